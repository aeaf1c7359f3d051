//! Events around a store: it is moved and copied, its files go during a search, a second recorder comes.

use std::fs;
use std::io::Write;
use std::path::Path;

use tapline_source::Source as _;
use tapline_store::{
    Catalog, Cutoff, Error, Losses, Question, Recorder, RecorderSettings, StoreReading, Window,
};

use super::packets::{all, assert_keys_find_all, at_ms, bytes, interfaces, next, number, open, record};
use super::recording::settings;

fn fill(store: &Path, numbers: std::ops::Range<u64>) {
    let mut recorder = Recorder::open(store, settings(6), &interfaces(), at_ms(0)).unwrap();
    for batch in numbers.step_by(100) {
        record(&mut recorder, batch..batch + 100, at_ms(batch as i64), at_ms(batch as i64));
        recorder.tick(Losses::default(), &[], &interfaces(), at_ms(batch as i64)).unwrap();
    }
    recorder.finish(&[], Losses::default(), at_ms(100_000)).unwrap();
    assert_eq!(recorder.totals().lost, 0);
}

#[test]
fn a_store_that_was_moved_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    fill(&first, 0..8000);
    fs::rename(&first, &second).unwrap();
    assert_eq!(all(&second), (0..8000).collect::<Vec<_>>());
    fill(&second, 8000..12_000);
    // A copy has new files with the same names.
    let third = folder.path().join("third");
    let copied = std::process::Command::new("cp").arg("-r").arg(&second).arg(&third).status().unwrap();
    assert!(copied.success());
    fs::remove_dir_all(&second).unwrap();
    fill(&third, 12_000..14_000);
    let found = all(&third);
    assert_eq!(found, (0..14_000).collect::<Vec<_>>());
    assert_keys_find_all(&third, &found, [0, 7999, 8000, 13_999]);
}

#[test]
fn a_second_recorder_is_refused_and_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut recorder = Recorder::open(&store, settings(6), &interfaces(), at_ms(0)).unwrap();
    for batch in (0..8000).step_by(100) {
        record(&mut recorder, batch..batch + 100, at_ms(0), at_ms(0));
        // Each waits a moment for a recorder that is about to end.
        if batch % 1000 == 0 {
            let second = Recorder::open(&store, settings(6), &interfaces(), at_ms(0));
            assert!(matches!(second, Err(Error::Locked { .. })), "{batch}");
        }
    }
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    assert_eq!(all(&store), (0..8000).collect::<Vec<_>>());
}

/// Segments that go while a search is under way are in its account, and the rest is found.
#[test]
fn segments_deleted_under_a_search_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    fill(&store, 0..20_000);
    let segments = Catalog::open(&store).unwrap().numbers().unwrap();
    assert!(segments.len() > 3, "{segments:?}");
    let reading = StoreReading { threads: 1, ..StoreReading::default() };
    let mut input = open(&store, Window::ALL, Question::Anything, reading);
    let mut found = Vec::new();
    let mut is_first = true;
    while next(&mut input) {
        found.extend(input.batch().iter().map(number));
        if std::mem::take(&mut is_first) {
            // The last one goes with its index, the one before it loses the index only.
            let of = |number: u64, ending: &str| store.join(format!("seg/{number:08}.{ending}"));
            let [.., before, last] = segments[..] else { panic!("two at least") };
            let mut log = fs::OpenOptions::new().append(true).open(store.join("log")).unwrap();
            writeln!(log, "{{\"event\":\"recycled\",\"segment\":{last}}}").unwrap();
            fs::remove_file(of(last, "pcapng")).unwrap();
            fs::remove_file(of(last, "tix")).unwrap();
            fs::remove_file(of(before, "tix")).unwrap();
        }
    }
    let account = input.report().get();
    assert!(account.is_balanced() && account.segments_gone == 1, "{account:?}");
    assert_eq!((account.chunks_damaged, account.places_damaged), (0, 0), "{account:?}");
    assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>());
    assert!(found.len() > 10_000 && found.len() < 20_000, "{}", found.len());
}

/// Packets beyond a cut-off are counted: recorded and cut packets together are all.
#[test]
fn packets_beyond_a_cut_off_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let of = |filter: Option<&str>, bytes| Cutoff { filter: filter.map(str::to_owned), bytes };
    let cutoffs = vec![of(Some("udp port 1003"), 10), of(None, 2500)];
    let settings = RecorderSettings { cutoffs, ..settings(6) };
    let mut recorder = Recorder::open(&store, settings, &interfaces(), at_ms(0)).unwrap();
    // Each packet comes four times, so that flows have several.
    for _ in 0..4 {
        for batch in (0..3000).step_by(100) {
            record(&mut recorder, batch..batch + 100, at_ms(batch as i64), at_ms(batch as i64));
            recorder.tick(Losses::default(), &[], &interfaces(), at_ms(batch as i64)).unwrap();
        }
    }
    recorder.finish(&[], Losses::default(), at_ms(100_000)).unwrap();
    let totals = recorder.totals();
    assert_eq!((totals.written + totals.cut, totals.lost, totals.buffered), (12_000, 0, 0));
    let segments = Catalog::open(&store).unwrap().segments().unwrap();
    let told: u64 = segments.iter().flat_map(|segment| segment.standing).map(|standing| standing.cut).sum();
    assert_eq!(told, totals.cut);
    let found = all(&store);
    for number in 0..3000 {
        let len = bytes(number).len() as u64;
        let limit: u64 = if number % 7 == 3 { 10 } else { 2500 };
        let kept = found.iter().filter(|found| **found == number).count() as u64;
        assert_eq!(kept, limit.div_ceil(len).min(4), "{number}");
    }
}
