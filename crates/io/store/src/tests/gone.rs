//! Chunks that somebody wrote over with what looks like room that was never used.

use std::fs;
use std::os::unix::fs::FileExt;

use super::compressed_room::copy_whole;
use super::*;
use crate::layout::filler;
use crate::{check, repair};

/// A store of several sealed segments, and their numbers.
fn recorded(root: &Path) -> (Catalog, Vec<u64>) {
    record_range(root, &RecorderSettings { size: 40 << 20, ..SETTINGS }, 0..27_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let numbers = catalog.numbers().unwrap();
    assert!(numbers.len() > 3, "{numbers:?}");
    (catalog, numbers)
}

/// A well-formed unused slot over a slot of a segment.
fn fill(catalog: &Catalog, number: u64, slot: usize) {
    let file = fs::OpenOptions::new().write(true).open(catalog.segment_path(number)).unwrap();
    file.write_all_at(&filler(SLOT_LEN), (slot * SLOT_LEN) as u64).unwrap();
}

/// Packets found, and the chunks that the search counts as damaged.
fn searched(root: &Path, window: Window) -> (usize, u64) {
    let mut search = search(root, window);
    let packets = found(&mut search).len();
    assert!(search.account().is_balanced(), "{:?}", search.account());
    (packets, search.account().unread())
}

/// Every command reports the chunks that are gone, and no command hides packets that are left.
fn assert_reported(catalog: &Catalog, number: u64, (packets, chunks): (usize, u64), case: &str) {
    assert_eq!(searched(catalog.root(), Window::ALL), (packets, chunks), "find: {case}");
    let missing = Finding::ChunksMissing { segment: number, chunks };
    assert!(findings(catalog.root()).contains(&missing), "verify: {case}");
    assert!(check(catalog, &mut |_, _| true).unwrap().findings.contains(&missing), "check: {case}");
}

/// Removes the counts from the lines of the log, as an earlier version wrote them.
fn without_counts(catalog: &Catalog) {
    let log = fs::read_to_string(catalog.paths.log()).unwrap();
    fs::write(catalog.paths.log(), log.replace("\"chunks\"", "\"unknown\"")).unwrap();
}

#[test]
fn chunks_under_an_unused_slot_stay_reported() {
    let intact = tempfile::tempdir().unwrap();
    let (_, numbers) = recorded(intact.path());
    for (has_counts, has_index) in [(true, true), (true, false), (false, true)] {
        // The oldest segment, one between, the newest; each has chunks in slot 1.
        for (place, slot) in [(0, 0), (0, 1), (1, 0), (1, 1), (usize::MAX, 0), (usize::MAX, 1)] {
            let case = format!("segment {place}, slot {slot}, counts {has_counts}, index {has_index}");
            let folder = tempfile::tempdir().unwrap();
            copy_whole(intact.path(), folder.path());
            let catalog = Catalog::open(folder.path()).unwrap();
            let number = *numbers.get(place).unwrap_or(numbers.last().unwrap());
            let rows = catalog.index(number).unwrap().rows().unwrap();
            let chunks = u64::from(rows[slot].chunks);
            assert!(chunks > 0, "{case}");
            if !has_counts {
                without_counts(&catalog);
            }
            fill(&catalog, number, slot);
            if !has_index {
                fs::write(catalog.paths.index(number), b"damaged").unwrap();
            }
            let packets = searched(folder.path(), Window::ALL).0;
            assert!((1..27_000).contains(&packets), "{case}");
            assert_reported(&catalog, number, (packets, chunks), &case);
            assert_eq!(repair(&catalog, &mut |_, _| true).unwrap().damaged, chunks, "{case}");
            assert_reported(&catalog, number, (packets, chunks), &format!("{case}, repaired"));
            let segments = catalog.segments().unwrap();
            let entry = segments.iter().find(|segment| segment.number == number).unwrap();
            assert_eq!(entry.chunks_missing, Some(chunks), "{case}");
            assert_eq!(repair(&catalog, &mut |_, _| true).unwrap().made, 0, "{case}");
        }
    }
}

#[test]
fn a_recorder_does_not_hide_what_is_gone() {
    for has_index in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (catalog, numbers) = recorded(folder.path());
        let newest = *numbers.last().unwrap();
        let chunks = u64::from(catalog.index(newest).unwrap().rows().unwrap()[0].chunks);
        fill(&catalog, newest, 0);
        if !has_index {
            fs::remove_file(catalog.paths.index(newest)).unwrap();
        }
        let packets = searched(folder.path(), Window::ALL).0;
        record_range(folder.path(), &RecorderSettings { size: 40 << 20, ..SETTINGS }, 27_000..27_100, 900);
        assert!(catalog.numbers().unwrap().contains(&(newest + 1)), "the damaged segment goes on");
        assert_reported(&catalog, newest, (packets + 100, chunks), "recorded since");
    }
}

#[test]
fn a_roll_up_does_not_rule_out_what_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, numbers) = recorded(folder.path());
    fill(&catalog, numbers[0], 0);
    repair(&catalog, &mut |_, _| true).unwrap();
    crate::index::rollup::write(&catalog, 0, &crate::log::history(&catalog.paths)).unwrap();
    let roll_up = crate::index::rollup::RollUp::read(&catalog, 0).unwrap();
    assert_eq!((roll_up.times(numbers[0]), roll_up.times(numbers[1]).is_some()), (None, true));
}

#[test]
fn a_loss_at_other_times_is_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (catalog, numbers) = recorded(folder.path());
    let last = catalog.index(numbers[1]).unwrap().summary.last;
    fill(&catalog, numbers[1], 0);
    repair(&catalog, &mut |_, _| true).unwrap();
    let earlier = Window { to: last, ..Window::ALL };
    let later = Window { from: last.plus_nanos(1), ..Window::ALL };
    assert!(searched(folder.path(), earlier).1 > 0);
    assert_eq!(searched(folder.path(), later).1, 0);
}
