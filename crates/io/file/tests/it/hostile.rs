//! Files made to hurt: no panic, no loop without end, no memory for a length that is only claimed.

use crate::samples;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::samples::{Noise, mutate, read, small_files};
use proptest::prelude::*;
use tapline_file::{FileSource, MergeOrder, MergedSource, ReadMode};
use tapline_testkit::volume::volume;

#[test]
fn mutated_files_end_in_packets_or_an_error() {
    let files = small_files();
    for seed in 1..=volume("TAPLINE_FILE_MUTATIONS", 4_000) {
        let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = files[noise.below(files.len())].1.bytes.clone();
        mutate(&mut bytes, &mut noise);
        let len = bytes.len();
        let whole = read(&bytes);
        // Packets do not overlap: together they are no longer than the file.
        let total: usize = whole.packets.iter().map(|packet| packet.data.len() + packet.options.len()).sum();
        assert!(total <= len, "seed {seed}: {total} bytes of packets from {len}");
        if let Some(error) = whole.error {
            assert!(!error.to_string().is_empty());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600), kind in 0..6usize) {
        let mut file = small_files()[kind % 5].1.bytes.clone();
        file.truncate([0, 4, 24, 28, 56, 1000][kind]);
        file.extend_from_slice(&bytes);
        read(&file);
    }

    #[test]
    fn packed_noise(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0..3usize) {
        let magic: [&[u8]; 3] = [&[0x1f, 0x8b, 8, 0], &[0x28, 0xb5, 0x2f, 0xfd], &[0x04, 0x22, 0x4d, 0x18]];
        read(&[magic[kind], &bytes].concat());
    }

    /// Merging loses nothing, repeats nothing, and keeps each file's own order.
    #[test]
    fn merged_files_hold_every_packet_once(times in proptest::collection::vec(proptest::collection::vec(0u32..50, 0..40), 1..5)) {
        let sources: Vec<_> = times.iter().map(|times| source(times)).collect();
        let mut merged = MergedSource::new(sources, MergeOrder::Time);
        let mut seen: Vec<Vec<u32>> = vec![Vec::new(); times.len()];
        let mut all = Vec::new();
        while merged.advance().unwrap() {
            for packet in merged.batch().iter() {
                let second = packet.meta.timestamp.seconds() as u32;
                seen[packet.meta.interface.0 as usize].push(second);
                all.push((second, packet.meta.interface.0));
            }
        }
        prop_assert_eq!(&seen, &times);
        if times.iter().all(|times| times.is_sorted()) {
            prop_assert!(all.is_sorted(), "by time, then by file: {:?}", all);
        }
    }
}

fn source(times: &[u32]) -> FileSource {
    let mut file = samples::Bytes::new(tapline_file::ByteOrder::Little);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 100, 1);
    for &time in times {
        file.pcap_record((time, 0), 4, &[], &time.to_le_bytes());
    }
    FileSource::from_reader(Box::new(Cursor::new(file.bytes)), "x").unwrap()
}

/// A damaged file among good ones: the good ones come whole, the error comes last.
#[test]
fn a_damaged_file_does_not_stop_the_merge() {
    let good = small_files()[0].1.bytes.clone();
    let cut = good[..good.len() - 3].to_vec();
    let open = |bytes: Vec<u8>| FileSource::from_reader(Box::new(Cursor::new(bytes)), "x").unwrap();
    let mut merged = MergedSource::new(vec![open(cut), open(good)], MergeOrder::Time);
    let mut count = 0;
    let error = loop {
        match merged.advance() {
            Ok(true) => count += merged.batch().len(),
            Ok(false) => panic!("the damage must be told"),
            Err(error) => break error,
        }
    };
    assert_eq!(count, 9);
    assert!(error.to_string().contains("cut short"));
    assert!(!merged.advance().unwrap());
}

/// pcapng names its interfaces in the first packets' stretch, which is parsed when the file is opened.
#[test]
fn merged_pcapng_files_get_interfaces_of_their_own() {
    let open = || {
        let bytes = small_files()[1].1.bytes.clone();
        FileSource::from_reader(Box::new(Cursor::new(bytes)), "x").unwrap()
    };
    let mut merged = MergedSource::new(vec![open(), open()], MergeOrder::Time);
    let mut counts = [0; 2];
    while merged.advance().unwrap() {
        merged.batch().iter().for_each(|packet| counts[packet.meta.interface.0 as usize] += 1);
    }
    assert_eq!((counts, merged.interfaces().len()), ([5, 5], 2));
    assert!(merged.files().all(|file| file.counters()[0].packets == 5));
}

/// Interfaces beyond the limit end the file, in one section and in many; a section after a section of the same
/// interfaces does not count.
#[test]
fn interfaces_have_a_limit() {
    const MAX: usize = 65_536;
    let mut one = samples::Bytes::new(tapline_file::ByteOrder::Little);
    one.section(&[]);
    let mut many = one.clone();
    for number in 0..=MAX {
        one.interface(1, 0, &[]);
        many.section(&[]).interface(1, number as u32, &[]);
    }
    for file in [one, many] {
        let whole = read(&file.bytes);
        let error = whole.error.expect("too many").to_string();
        assert!(error.ends_with("the file describes more than 65536 interfaces"), "{error}");
        assert_eq!(whole.interfaces.len(), MAX);
    }
    let mut same = samples::Bytes::new(tapline_file::ByteOrder::Little);
    for _ in 0..=MAX {
        same.section(&[]).interface(1, 0, &[(2, b"eth0"), (3, &[b'x'; 1000])]);
    }
    let whole = read(&same.bytes);
    assert!(whole.error.is_none(), "{:?}", whole.error);
    assert_eq!(whole.interfaces.len(), 1);
}

/// Names and options of interfaces take so much memory and no more.
#[test]
fn descriptions_of_interfaces_have_a_limit() {
    let mut file = samples::Bytes::new(tapline_file::ByteOrder::Little);
    file.section(&[]);
    let options: Vec<(u16, &[u8])> = vec![(99, b""); 1 << 17];
    for _ in 0..11 {
        file.interface(1, 0, &options);
    }
    let whole = read(&file.bytes);
    let error = whole.error.expect("too much").to_string();
    assert!(error.ends_with("the file describes its interfaces in more than 67108864 bytes"), "{error}");
    assert_eq!(whole.interfaces.len(), 10);
}

/// Sections and statistics come in any number, and only some are kept.
#[test]
fn sections_and_statistics_are_kept_up_to_a_limit() {
    let mut file = samples::Bytes::new(tapline_file::ByteOrder::Little);
    (0..10_000).for_each(|_| _ = file.section(&[(1, b"a comment")]));
    file.interface(1, 0, &[]).interface(1, 0, &[]);
    for count in 0..20_000u32 {
        // Of the first interface once, of the second each other time.
        let statistics = file.body(|b| {
            b.u32(u32::from(count > 0)).u32(0).u32(count);
        });
        file.block(5, &statistics);
    }
    let mut source = FileSource::from_reader(Box::new(Cursor::new(file.bytes)), "x").unwrap();
    assert!(samples::read_source(&mut source).error.is_none());
    assert_eq!(source.sections().len(), 4096);
    let statistics = source.statistics();
    assert!(statistics.len() <= 4100, "{}", statistics.len());
    let last_of = |interface| statistics.iter().rev().find(|found| found.interface.0 == interface);
    let ticks = |interface| last_of(interface).expect("kept").taken.as_nanos() / 1000;
    assert_eq!((ticks(0), ticks(1)), (0, 19_999));
}

/// Packet by packet no byte is read beyond the packet that is lent.
#[test]
fn packet_by_packet_nothing_is_read_ahead() {
    for (name, file) in small_files().iter().filter(|(name, _)| !name.contains("erf")) {
        let read_len = Arc::new(AtomicUsize::new(0));
        let reader = Counted { bytes: file.bytes.clone(), read_len: Arc::clone(&read_len) };
        let mut source = FileSource::packets_from_reader(Box::new(reader), name, ReadMode::ByPacket).unwrap();
        let mut ends = Vec::new();
        while let Ok(true) = source.advance() {
            assert_eq!(source.batch().len(), 1, "{name}");
            ends.push(read_len.load(Ordering::Relaxed));
        }
        assert_eq!(ends, file.packet_ends, "{name}");
    }
}

/// A file in memory that counts how much of it was read.
struct Counted {
    bytes: Vec<u8>,
    read_len: Arc<AtomicUsize>,
}

impl std::io::Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.bytes[self.read_len.load(Ordering::Relaxed)..];
        let len = buffer.len().min(rest.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.read_len.fetch_add(len, Ordering::Relaxed);
        Ok(len)
    }
}
