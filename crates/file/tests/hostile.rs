//! Files made to hurt: no panic, no loop without end, no memory for a length that is only claimed.

mod samples;

use std::io::Cursor;

use proptest::prelude::*;
use samples::{Noise, mutate, read, small_files};
use tapline_file::{FileSource, MergedSource, Order};

#[test]
fn mutated_files_end_in_packets_or_an_error() {
    let files = small_files();
    for seed in 1..=40_000u64 {
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
        let mut merged = MergedSource::new(sources, Order::Time);
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
fn a_damaged_file_does_not_keep_others_from_being_merged() {
    let good = small_files()[0].1.bytes.clone();
    let cut = good[..good.len() - 3].to_vec();
    let open = |bytes: Vec<u8>| FileSource::from_reader(Box::new(Cursor::new(bytes)), "x").unwrap();
    let mut merged = MergedSource::new(vec![open(cut), open(good)], Order::Time);
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
    let mut merged = MergedSource::new(vec![open(), open()], Order::Time);
    let mut counts = [0; 2];
    while merged.advance().unwrap() {
        merged.batch().iter().for_each(|packet| counts[packet.meta.interface.0 as usize] += 1);
    }
    assert_eq!((counts, merged.interfaces().len()), ([5, 5], 2));
    assert!(merged.files().all(|file| file.counters()[0].packets == 5));
}
