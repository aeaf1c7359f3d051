//! Bits that flip: what is damaged is named and not believed, and the rest is found.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tapline_store::{Catalog, Finding, Losses, Recorder, Window, verify};
use tapline_testkit::random::Random;

use super::faults;
use super::packets::{at_ms, find, host_of, interfaces, record};
use super::recording::settings;

const PACKETS: u64 = 4000;
/// Bytes that a flipped bit may cost: one chunk.
const CHUNK: u64 = 1400;

#[test]
fn flipped_bits_are_found_and_never_believed() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut recorder = Recorder::open(&store, settings(2), &interfaces(), at_ms(0)).unwrap();
    for batch in (0..PACKETS).step_by(100) {
        record(&mut recorder, batch..batch + 100, at_ms(batch as i64), at_ms(batch as i64));
        recorder.tick(Losses::default(), &[], &interfaces(), at_ms(batch as i64)).unwrap();
    }
    recorder.finish(&[], Losses::default(), at_ms(PACKETS as i64)).unwrap();
    let files: Vec<PathBuf> = ["seg/00000001.pcapng", "seg/00000001.tix"].map(|name| store.join(name)).into();
    let lens: Vec<u64> = files.iter().map(|path| path.metadata().unwrap().len()).collect();
    let mut random = Random::new(std::env::var("TAPLINE_STORE_SEED").map_or(3, |seed| seed.parse().unwrap()));
    let (mut named, mut harmless, mut of_index) = (0, 0, 0);
    let flips = faults(40);
    for _ in 0..flips {
        let which = usize::from(random.one_of(1, 3));
        let (place, bit) = (random.below(lens[which]), random.below(8));
        flip(&files[which], place, bit);
        if which == 1 {
            // An index is believed whole or not at all.
            assert_all_found(&store, place);
            of_index += 1;
        } else if is_named(&store, place) {
            named += 1;
        } else {
            harmless += 1;
        }
        flip(&files[which], place, bit);
    }
    assert_all_found(&store, 0);
    eprintln!("{flips} bits: {named} named, {harmless} in bytes without meaning, {of_index} in the index");
    assert!(named > 0 && of_index > 0);
}

fn flip(path: &Path, place: u64, bit: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], place).unwrap();
}

#[track_caller]
fn assert_all_found(store: &Path, place: u64) {
    let found = find(store, Window::ALL, "");
    assert_eq!(found.numbers.len() as u64, PACKETS, "{place}: {:?}", found.account);
    for number in [0, PACKETS / 2, PACKETS - 1] {
        let found = find(store, Window::ALL, &host_of(number));
        assert_eq!(found.numbers.len(), 50, "{place}: {:?}", found.account);
    }
}

/// Whether a flipped bit of the segment is named; then a chunk at most is missing, else nothing is.
fn is_named(store: &Path, place: u64) -> bool {
    let findings = verify(&Catalog::open(store).unwrap(), &mut |_, _| true).unwrap().findings;
    let found = find(store, Window::ALL, "");
    let numbers = &found.numbers;
    assert!(numbers.iter().is_sorted_by(|one, next| one < next), "{place}");
    let lost = PACKETS - numbers.len() as u64;
    let is_damage = |finding: &Finding| {
        matches!(finding, Finding::Damaged { .. } | Finding::Missing { .. } | Finding::Foreign { .. })
    };
    assert!(findings.iter().all(is_damage), "{place}: {findings:?}");
    assert!(lost == 0 || !findings.is_empty(), "{place}: {lost} packets are missing, and nothing is named");
    assert!(lost <= CHUNK, "{place}: {lost} packets are missing");
    // Of those that are lost the search says so too.
    let account = &found.account;
    assert!(lost == 0 || account.chunks_damaged + account.places_damaged > 0, "{place}: {account:?}");
    !findings.is_empty()
}
