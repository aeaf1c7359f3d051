//! Files cut at every byte: all packets before the cut come, and the error names the place.

use std::io;
use std::time::Duration;

use tapline_file::{Error, FileInput, FileSource, MergeOrder};
use tapline_source::{Advance, Source as _};

use crate::samples;
use crate::samples::{Bytes, read, small_files};

#[test]
fn every_cut_gives_all_packets_before_it() {
    for (name, file) in small_files() {
        let whole = read(&file.bytes);
        assert!(whole.error.is_none());
        assert_eq!(whole.packets.len(), file.packet_ends.len(), "{name}");
        for cut in 0..file.bytes.len() {
            check(name, &file, cut, &whole.packets);
        }
    }
}

fn check(name: &str, file: &Bytes, cut: usize, packets: &[samples::Read]) {
    let found = read(&file.bytes[..cut]);
    let before = file.packet_ends.iter().filter(|&&end| end <= cut).count();
    if name == "erf" && before == 0 {
        // Without a magic number nor a whole record the format cannot be known.
        assert!(matches!(found.error, Some(Error::NotACapture { .. } | Error::Empty { .. })));
        return;
    }
    assert_eq!(found.packets, packets[..before], "{name} cut at {cut}");
    let last_item_end = file.item_ends.iter().copied().filter(|&end| end <= cut).max().unwrap_or(0);
    match found.error {
        None => assert_eq!(last_item_end, cut, "{name} cut at {cut}"),
        Some(Error::Empty { .. }) => assert_eq!(cut, 0),
        Some(Error::NotACapture { .. }) => assert!(cut < 4, "{name} cut at {cut}"),
        Some(Error::Truncated { place, item_offset, missing, .. }) => {
            assert_eq!(
                (place.offset, item_offset),
                (cut as u64, last_item_end as u64),
                "{name} cut at {cut}"
            );
            let next = file.item_ends.iter().copied().find(|&end| end > cut).unwrap();
            assert!((1..=(next - cut) as u64).contains(&missing), "{name} cut at {cut}: {missing} missing");
        }
        Some(other) => panic!("{name} cut at {cut}: {other}"),
    }
}

/// Gives the first 24 bytes, then one at a time; between any two it has nothing.
struct Drip {
    bytes: Vec<u8>,
    at: usize,
    is_dry: bool,
}

impl io::Read for Drip {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= 24 && !std::mem::replace(&mut self.is_dry, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let rest = &self.bytes[self.at..];
        let most = if self.at < 24 { 24 - self.at } else { 1 };
        let len = most.min(rest.len()).min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        (self.at, self.is_dry) = (self.at + len, false);
        Ok(len)
    }
}

#[test]
fn a_polled_reader_may_have_nothing_at_any_byte() {
    for (name, file) in small_files().into_iter().filter(|(name, _)| *name != "erf") {
        let drip = Drip { bytes: file.bytes.clone(), at: 0, is_dry: false };
        let source = FileSource::from_polled_reader(Box::new(drip), "sample").expect(name);
        let mut input = FileInput::new(vec![source], MergeOrder::Given);
        let (mut packets, mut waits) = (Vec::new(), 0);
        loop {
            match input.advance(Duration::ZERO).expect(name) {
                Advance::Batch => packets.extend(samples::packets(&input.batch())),
                Advance::Idle => waits += 1,
                Advance::End => break,
            }
        }
        let whole = read(&file.bytes);
        assert!(packets == whole.packets && input.interfaces() == whole.interfaces, "{name}");
        assert!(waits >= file.bytes.len() - 24, "{name}: {waits}");
        assert!(matches!(input.advance(Duration::ZERO), Ok(Advance::End)), "{name}");
    }
}

#[test]
fn the_message_names_item_place_and_length() {
    let (_, file) = &small_files()[0];
    let error = read(&file.bytes[..24 + 16 + 10]).error.unwrap();
    assert_eq!(
        error.to_string(),
        "sample is cut short: it ends at byte 50, in the packet that begins at byte 24; 50 bytes are missing"
    );
}
