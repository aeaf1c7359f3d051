//! Clocks that are set: packets are found under the times that they carry, in the order in which they came.

use tapline_packet::Timestamp;
use tapline_store::{Catalog, Losses, Recorder, Window, verify};

use super::packets::{all, assert_keys_find_all, at_ms, find, interfaces, record};
use super::recording::settings;

const HOUR_MS: i64 = 3_600_000;
/// Packets at each setting of the clock.
const PACKETS: u64 = 2500;

/// The clock goes ahead and back by hours, and once before 2001.
const STEPS_MS: [i64; 7] = [0, 5 * HOUR_MS, -3 * HOUR_MS, 2, -1_000_000_000_000, HOUR_MS, 3];

fn window(from_ms: i64, to_ms: i64) -> Window {
    Window { from: at_ms(from_ms), to: at_ms(to_ms) }
}

#[test]
fn a_clock_that_is_set_hides_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut recorder = Recorder::open(&store, settings(8), &interfaces(), at_ms(0)).unwrap();
    let mut first = 0;
    for step_ms in STEPS_MS {
        for batch in (first..first + PACKETS).step_by(50) {
            let time = at_ms(step_ms + (batch - first) as i64);
            record(&mut recorder, batch..batch + 50, time, time);
            recorder.tick(Losses::default(), &[], &interfaces(), time).unwrap();
        }
        first += PACKETS;
    }
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    assert_eq!(recorder.totals().written, first, "{:?}", recorder.news());
    let found = all(&store);
    assert_eq!(found, (0..first).collect::<Vec<_>>());
    assert_keys_find_all(&store, &found, (0..first).step_by(777));
    assert_eq!(verify(&Catalog::open(&store).unwrap(), &mut |_, _| true).unwrap().findings, Vec::new());
    for (at, step_ms) in STEPS_MS.iter().enumerate() {
        // The steps that come to nearly the same time share it.
        let others = STEPS_MS.iter().filter(|other| (*other - step_ms).abs() < PACKETS as i64).count() as u64;
        let of_step = find(&store, window(*step_ms, step_ms + PACKETS as i64 + 10), "").numbers;
        let own = of_step.iter().filter(|number| **number / PACKETS == at as u64).count() as u64;
        assert!(own >= PACKETS - 50 && of_step.len() as u64 <= others * PACKETS, "step {at}: {own}");
    }
}

/// Nothing waits until a clock that was set back comes to where it was.
#[test]
fn packets_are_found_soon_after_a_step_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut recorder = Recorder::open(&store, settings(4), &interfaces(), at_ms(10 * HOUR_MS)).unwrap();
    record(&mut recorder, 0..10, at_ms(10 * HOUR_MS), at_ms(10 * HOUR_MS));
    let back = at_ms(2 * HOUR_MS);
    for step in 0..5 {
        let now = Timestamp::from_nanos(back.as_nanos() + step * 100_000_000);
        recorder.tick(Losses::default(), &[], &interfaces(), now).unwrap();
    }
    // A chunk that is handed over is written at once.
    let start = std::time::Instant::now();
    while all(&store).len() < 10 {
        assert!(start.elapsed().as_secs() < 60, "packets wait for the clock");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// A clock that goes ahead by a year must not make packets of a minute ago old.
#[test]
fn clocks_that_are_ahead_keep_the_newest_segment() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let settings = tapline_store::RecorderSettings { keep_ns: Some(HOUR_MS * 1_000_000), ..settings(8) };
    let mut recorder = Recorder::open(&store, settings, &interfaces(), at_ms(0)).unwrap();
    for batch in (0..12_000).step_by(100) {
        record(&mut recorder, batch..batch + 100, at_ms(batch as i64), at_ms(batch as i64));
        recorder.tick(Losses::default(), &[], &interfaces(), at_ms(batch as i64)).unwrap();
    }
    let ahead = at_ms(365 * 24 * HOUR_MS);
    recorder.tick(Losses::default(), &[], &interfaces(), ahead).unwrap();
    recorder.finish(&[], Losses::default(), ahead).unwrap();
    let found = all(&store);
    // Whole segments may go, by the rule that was asked for; what is left has no hole.
    assert_eq!(found, (found[0]..12_000).collect::<Vec<_>>());
    assert!(!found.is_empty());
}
