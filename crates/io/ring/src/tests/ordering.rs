//! In which order things are shown, seen from another thread. `models.rs` has the halves in every order; this has the
//! whole.

use std::thread;

use super::end_to_end::{Made, attach, drain, offer, writer};
use crate::*;

/// Readers whose indices are shown before the one that is looked at: so that between two steps there is time to look.
const OTHERS: usize = 64;

/// A writer with many readers, the last of which is ours.
fn crowd(entries: u32) -> (Writer, Vec<ReaderId>, Reader) {
    let mut writer = writer(4096, 64);
    let mut ids: Vec<ReaderId> = (0..OTHERS).map(|_| attach(&mut writer, Policy::Lossy, 16).0).collect();
    let (id, reader) = attach(&mut writer, Policy::Lossy, entries);
    ids.push(id);
    (writer, ids, reader)
}

#[test]
fn a_watermark_covers_visible_packets_only() {
    const PACKETS: u64 = 20_000;
    let (mut writer, ids, mut reader) = crowd(1 << 15);
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..PACKETS).for_each(|number| offer(&mut writer, &Made::new(number, 1, 60), &ids));
            writer.end();
        });
        let mut latest = -1;
        while latest + 1 < PACKETS as i64 {
            // The packet of number n has the time 10 n.
            let watermark = reader.watermark().map_or(-1, |time| time.as_nanos() / 10);
            latest = drain(&mut reader).last().map_or(latest, |number| *number as i64);
            assert!(watermark <= latest, "nothing older than {watermark} comes, and {latest} was the last");
        }
    });
}

#[test]
fn entries_before_the_end_are_read_before_it() {
    for round in 0..100 {
        let (mut writer, ids, mut reader) = crowd(16);
        thread::scope(|scope| {
            scope.spawn(move || {
                let made = Made::new(0, 10, 60);
                writer.store(&made.batch(), &made.all());
                ids.iter().for_each(|id| writer.index(*id, &made.all(), 9).unwrap());
                writer.end();
            });
            let mut found = 0;
            while !reader.is_at_end().unwrap() {
                found += drain(&mut reader).len();
            }
            assert_eq!(found, 10, "round {round}: the end was shown before all that came");
        });
    }
}
