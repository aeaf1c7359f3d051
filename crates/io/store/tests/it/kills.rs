//! Recorders that are killed at any moment: the next recorder finds every packet once that was reported as written, as
//! does a scan.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use tapline_store::{Catalog, Finding, Overload, verify};
use tapline_testkit::random::Random;

use super::faults;
use super::packets::{all, assert_keys_find_all};
use super::recording::Recording;

/// Many more packets than a recording comes to before it is killed.
const MANY: u64 = 10_000_000;

#[test]
fn a_killed_recorder_keeps_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let kills = faults(5);
    let mut random = Random::new(std::process::id().into());
    let (mut torn, mut found_in_all) = (0, 0);
    for kill in 0..kills {
        let progress = folder.path().join("progress");
        let first = kill * MANY;
        let recording = Recording {
            store: store.clone(),
            progress: progress.clone(),
            numbers: first..first + MANY,
            batch: 1 + random.below(200),
            segments: 6,
            failing: None,
            is_finished: true,
            // Segments of both kinds in one store.
            compress: if random.one_of(1, 2) { Some(1) } else { None },
            overload: Overload::Wait,
        };
        // Recorders killed before they had opened a store leave none.
        let is_there = Catalog::open(&store).is_ok();
        let before = if is_there { all(&store) } else { Vec::new() };
        let mut child = recording.start();
        // Now and then before it has opened the store.
        if !random.one_of(1, 10) {
            while recording.told().handed == 0 && child.try_wait().unwrap().is_none() {
                sleep(Duration::from_millis(1));
            }
        }
        sleep(Duration::from_micros(random.below(300_000)));
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        let told = recording.told();
        if Catalog::open(&store).is_err() {
            assert!(!is_there && told.written == 0, "kill {kill}: {told:?}");
            continue;
        }
        let found = all(&store);
        found_in_all += found.len();
        let context = format!("kill {kill}: {told:?}");
        let own = found.iter().filter(|number| **number >= first).count() as u64;
        let oldest = found.first().copied().unwrap_or(0);
        // All that was written; but for what made room.
        assert!(own >= told.written || oldest > first, "{context}: {own} are found");
        let written = first..first + told.written;
        let expected = before.into_iter().chain(written).filter(|number| *number >= oldest);
        let (surely, on_the_way) =
            found.split_at(found.partition_point(|number| *number < first + told.written));
        assert!(surely.iter().copied().eq(expected), "{context}");
        // Of several chunks that were on their way a later one may be there alone.
        assert!(found.is_sorted_by(|one, next| one < next), "{context}");
        assert!(on_the_way.last().is_none_or(|last| *last < first + MANY), "{context}");
        let has_gap = found.windows(2).any(|pair| pair[1] != pair[0] + 1 && pair[1] % MANY != 0);
        assert_keys_find_all(&store, &found, [oldest, found.last().copied().unwrap_or(0)]);
        let findings = verify(&Catalog::open(&store).unwrap(), &mut |_, _| true).unwrap().findings;
        let is_torn = |finding: &Finding| match finding {
            Finding::Unfinished { .. } | Finding::Foreign { .. } => true,
            Finding::Missing { .. } => has_gap,
            _ => false,
        };
        assert!(findings.iter().all(is_torn), "{context}: {findings:?}");
        torn += findings.len();
        fs::remove_file(&progress).ok();
    }
    eprintln!("{kills} kills: {found_in_all} packets found, {torn} chunks were being written");
}
