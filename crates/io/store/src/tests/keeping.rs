//! Segments that are kept, given up, and shared by recordings.

use std::os::unix::fs::FileExt;

use super::*;

#[test]
fn a_recording_without_an_index_is_searched_whole() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let without = RecorderSettings { size: 40 << 20, index: None, ..SETTINGS };
    record_range(root, &without, 0..45_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let standing = |catalog: &Catalog| -> Vec<bool> {
        catalog.segments().unwrap().iter().map(|segment| segment.standing.is_some()).collect()
    };
    assert_eq!(standing(&catalog), vec![false; 6]);
    assert_eq!(found(&mut search(root, Window::ALL)), (0..45_000).collect::<Vec<_>>());
    // The next recording makes those that a kill may have cost, and leaves the others to `repair`.
    record_range(root, &RecorderSettings { index: SETTINGS.index, ..without }, 45_000..45_010, 900);
    assert_eq!(standing(&catalog), [false, false, true, true, true, true]);
    assert_eq!(found(&mut search(root, Window::ALL)), (0..45_010).collect::<Vec<_>>());
    assert_eq!(verify(&catalog, &mut |_, _| true).unwrap().findings, Vec::new());
}

#[test]
fn segments_keep_their_index_options() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let index = Some(IndexOptions { macs: true, names: true });
    let settings = RecorderSettings { size: 40 << 20, index, ..SETTINGS };
    record_range(root, &settings, 0..20_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let has_keys = |number: u64| {
        let index = catalog.index(number).unwrap();
        index.has_class(Class::Mac as u8) && index.has_class(Class::Name as u8)
    };
    let numbers = catalog.numbers().unwrap();
    assert!(numbers.len() > 2 && numbers.iter().all(|number| has_keys(*number)));
    // From the chunks alone.
    numbers.iter().for_each(|number| std::fs::remove_file(catalog.paths.index(*number)).unwrap());
    assert_eq!(repair(&catalog, &mut |_, _| true).unwrap().made, numbers.len() as u64);
    assert!(numbers.iter().all(|number| has_keys(*number)));
    let wanted = ErasureScope {
        window: Window { from: at(0), to: at(50) },
        filter: String::new(),
        options: Options::default(),
        why: "a test".to_owned(),
    };
    let mut eraser = Eraser::open(catalog.clone(), wanted).unwrap();
    eraser.look(&mut |_, _| true).unwrap();
    eraser.erase(&mut |_, _| true).unwrap();
    assert_eq!(found(&mut search(root, Window::ALL)), (50..20_000).collect::<Vec<_>>());
    assert!(numbers.iter().all(|number| has_keys(*number)));

    let root = &root.join("without");
    record_range(root, &RecorderSettings { index: None, ..settings.clone() }, 0..20_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let checked = check(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((checked.findings.len(), checked.open, checked.indexed), (0, checked.segments, 0));
    // An index that is lost is none that was not wished for.
    record_range(root, &settings, 20_000..40_000, 900);
    let lost = catalog.numbers().unwrap()[4];
    std::fs::remove_file(catalog.paths.index(lost)).unwrap();
    let findings = check(&catalog, &mut |_, _| true).unwrap().findings;
    assert_eq!(findings, [Finding::NoIndex { segment: lost }]);
}

/// Records packets of 500 bytes a second apart, by a clock that goes with them.
fn go_on(recorder: &mut Recorder, numbers: std::ops::Range<u64>) {
    for number in numbers {
        record(recorder, &[numbered(number, 500)], at(number as i64));
        if number.is_multiple_of(500) {
            recorder.tick(NO_LOSSES, &[], &ethernet(), at(number as i64)).unwrap();
        }
    }
}

/// A recording of such packets; gives how many were lost.
fn record_by_clock(root: &Path, settings: &RecorderSettings, numbers: std::ops::Range<u64>) -> u64 {
    let start = at(numbers.start as i64);
    let mut recorder = Recorder::open(root, settings.clone(), &ethernet(), start).unwrap();
    go_on(&mut recorder, numbers);
    recorder.finish(&[], Losses::default(), at(100_000)).unwrap();
    recorder.totals().lost
}

#[test]
fn segments_on_hold_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let settings = RecorderSettings { keep_ns: Some(1_000_000_000), ..SETTINGS };
    assert_eq!(record_by_clock(root, &SETTINGS, 0..15_000), 0);
    let catalog = Catalog::open(root).unwrap();
    let hold = |name: &str, from: i64, to: i64| {
        let window = Window { from: at(from), to: at(to) };
        let (filter, why) = (String::new(), String::new());
        catalog.hold(&Hold { name: name.to_owned(), window, filter, made: at(0), why }).unwrap();
    };
    hold("case", 100, 200);
    // Neither room nor time takes the first segment.
    assert_eq!(record_by_clock(root, &settings, 15_000..60_000), 0);
    let now = found(&mut search(root, Window::ALL));
    assert_eq!(now[..7000], (0..7000).collect::<Vec<_>>());
    assert_eq!(now.last(), Some(&59_999));
    assert!(now.len() < 40_000, "{}", now.len());
    // Where all but the newest are held packets are lost, and counted, until a hold is released.
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(60_000)).unwrap();
    hold("all", 0, 1_000_000);
    go_on(&mut recorder, 60_000..90_000);
    catalog.release("all").unwrap();
    go_on(&mut recorder, 90_000..91_000);
    recorder.finish(&[], Losses::default(), at(100_000)).unwrap();
    let (totals, after) = (recorder.totals(), found(&mut search(root, Window::ALL)));
    assert_eq!((totals.written + totals.lost, totals.buffered), (31_000, 0));
    assert!(totals.lost > 0 && after[..7000] == now[..7000], "{totals:?}");
    assert_eq!(after.last(), Some(&90_999), "{:?}", recorder.news());
    let lost: u64 =
        catalog.segments().unwrap().iter().flat_map(|one| one.standing).map(|one| one.dropped).sum();
    assert_eq!(lost, totals.lost);
    // Segments between that were deleted are not a fault, as the log has each of them.
    let verified = verify(&catalog, &mut |_, _| true).unwrap();
    assert!(verified.findings.is_empty() && verified.deleted > 0, "{verified:?}");
    assert!(!check(&catalog, &mut |_, _| true).unwrap().findings.iter().any(is_gap));
    // One that somebody else removed is.
    let numbers = catalog.numbers().unwrap();
    std::fs::remove_file(catalog.segment_path(numbers[numbers.len() - 2])).unwrap();
    assert!(verify(&catalog, &mut |_, _| true).unwrap().findings.iter().any(is_gap));
    assert!(check(&catalog, &mut |_, _| true).unwrap().findings.iter().any(is_gap));
}

/// Losses that a search over everything reports: their number, and how many losses of unknown size there are.
fn losses_told(root: &Path) -> (u64, u64) {
    let mut search = search(root, Window::ALL);
    found(&mut search);
    (search.account().lost, search.account().losses_unknown)
}

#[test]
fn losses_behind_the_last_chunk_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record_range(root, &SETTINGS, 0..15_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let (filter, why) = (String::new(), String::new());
    let hold = Hold { name: "all".to_owned(), window: Window::ALL, filter, made: at(0), why };
    catalog.hold(&hold).unwrap();
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(15_000)).unwrap();
    go_on(&mut recorder, 15_000..60_000);
    // The source lost more, and a packet was too long for any segment.
    let (data, meta) = numbered(60_000, 5 << 20);
    record(&mut recorder, &[(data, meta)], at(60_000));
    recorder.finish(&[], Losses { received: None, lost: Some(7) }, at(60_001)).unwrap();
    let lost = recorder.totals().lost;
    assert!(lost > 10_000, "{lost}");
    assert_eq!(losses_told(root), (lost + 7, 0));
    let standings: Vec<_> = catalog.segments().unwrap().iter().flat_map(|one| one.standing).collect();
    let told: u64 = standings.iter().map(|one| one.lost + one.dropped).sum();
    assert_eq!(told, lost + 7);
    let last = catalog.recordings().pop().unwrap();
    assert_eq!((last.from, last.to, last.is_broken), (at(15_000), Some(at(60_001)), false));
    // Of other times nothing was lost.
    let early = Window { from: at(0), to: at(10_000) };
    assert_eq!(search(root, early).account().lost, 0);
}

#[test]
fn losses_are_told_whatever_the_index_passes_over() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
    go_on(&mut recorder, 0..1000);
    recorder.finish(&[], Losses { received: None, lost: Some(7) }, at(1000)).unwrap();
    let catalog = Arc::new(Catalog::open(root).unwrap());
    let question = Question::Is(Fact::of(Class::EtherType, 0x1234));
    let mut search = OneByOne::new(catalog, Window::ALL, question);
    assert_eq!(found(&mut search), Vec::<u64>::new());
    assert_eq!(search.account().lost, 7);
}

#[test]
fn kills_and_hours_without_a_recorder_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
    go_on(&mut recorder, 0..501);
    let catalog = Catalog::open(root).unwrap();
    assert_eq!(losses_told(root), (0, 0));
    // It writes what it has, and ends without an end.
    drop(recorder);
    assert_eq!(losses_told(root), (0, 1));
    let gap =
        |from, to: Option<i64>, is_broken| crate::RecordingGap { from: at(from), to: to.map(at), is_broken };
    let since_start = Window { from: at(0), to: Window::ALL.to };
    assert_eq!(catalog.recording_gaps(since_start), [gap(500, None, true)]);
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(4000)).unwrap();
    assert_eq!(
        (losses_told(root), catalog.recording_gaps(since_start)),
        ((0, 1), vec![gap(500, Some(4000), true)])
    );
    go_on(&mut recorder, 4000..4001);
    recorder.finish(&[], NO_LOSSES, at(4002)).unwrap();
    // The packets of a file have times of their own.
    let of_file = RecorderSettings { is_live: false, ..SETTINGS };
    let mut recorder = Recorder::open(root, of_file, &ethernet(), at(5000)).unwrap();
    record(&mut recorder, &[numbered(9, 60)], at(5000));
    recorder.finish(&[], NO_LOSSES, at(5001)).unwrap();
    let gaps = catalog.recording_gaps(since_start);
    assert_eq!(gaps, [gap(500, Some(4000), true), gap(4002, None, false)]);
    let before = Window { from: at(0), to: at(400) };
    assert_eq!((search(root, before).account().losses_unknown, catalog.recording_gaps(before)), (0, vec![]));
}

fn is_gap(finding: &Finding) -> bool {
    matches!(finding, Finding::SegmentsMissing { .. } | Finding::Missing { .. })
}

#[test]
fn old_segments_go_though_one_has_no_index() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let settings = RecorderSettings { size: 40 << 20, index: None, ..SETTINGS };
    record_by_clock(root, &settings, 0..40_000);
    let keep = RecorderSettings { keep_ns: Some(5_000_000_000_000), ..settings };
    record_by_clock(root, &keep, 40_000..42_000);
    let left = found(&mut search(root, Window::ALL));
    assert!((28_000..37_000).contains(&left[0]), "{}", left[0]);
    assert_eq!(left, (left[0]..42_000).collect::<Vec<_>>());
}

#[test]
fn short_recordings_share_a_slot() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for first in (0..120).step_by(4) {
        record_range(root, &SETTINGS, first..first + 4, 4);
    }
    let catalog = Catalog::open(root).unwrap();
    let chunks = chunks_of(&catalog);
    assert_eq!(catalog.numbers().unwrap(), [1]);
    let end = chunks.last().map(|found| found.offset + u64::from(found.head.len)).unwrap();
    assert!(chunks.len() > 30 && end < SLOT_LEN as u64, "{end}");
    assert_eq!(found(&mut search(root, Window::ALL)), (0..120).collect::<Vec<_>>());
    assert_eq!(findings(root), Vec::new());
}

#[test]
fn chunks_on_their_way_to_the_disk_are_not_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0)).unwrap();
    for number in 0..10 {
        record(&mut recorder, &[numbered(number, 60)], at(number as i64 * 10));
        recorder.tick(Losses::default(), &[], &ethernet(), at(number as i64 * 10 + 5)).unwrap();
    }
    while recorder.totals().buffered > 0 {
        std::thread::yield_now();
    }
    let catalog = Catalog::open(folder.path()).unwrap();
    let path = catalog.segment_path(1);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut walk = Walk::new(&file, catalog.id, 1, catalog.segment_len()).unwrap();
    let chunks: Vec<FoundChunk> =
        std::iter::from_fn(|| walk.next()).filter(|found| found.head.packets > 0).collect();
    assert_eq!(chunks.len(), 10);
    let torn = |at: usize| file.write_all_at(&[0xee; 40], chunks[at].offset + 1000).unwrap();
    let unwritten = |at: usize| file.write_all_at(&[0xee; 40], chunks[at].offset).unwrap();
    let search = || {
        let mut search = search(folder.path(), Window::ALL);
        let found = found(&mut search);
        (found, search.account())
    };
    // Later chunks are whole before earlier ones: of one there is a part, of the other no head.
    torn(8);
    unwritten(7);
    let (found, account) = search();
    assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 9]);
    assert_eq!((account.chunks_unfinished, account.chunks_damaged, account.places_damaged), (1, 0, 0));
    // No recorder has more on their way.
    torn(4);
    unwritten(2);
    let (found, account) = search();
    assert_eq!(found, [0, 1, 3, 5, 6, 9]);
    assert_eq!((account.chunks_unfinished, account.chunks_damaged, account.places_damaged), (1, 1, 1));
    drop(recorder);
    let account = search().1;
    assert_eq!((account.chunks_damaged, account.places_damaged), (2, 2));
}

/// The oldest segment makes room before its file is needed: no chunk waits until the slots of a long file are cleared.
#[test]
fn the_next_file_is_ready_before_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0)).unwrap();
    let spares = || {
        let entries = std::fs::read_dir(folder.path().join("seg")).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("spare-")).count()
    };
    // 64 packets fill a slot: the last of four segments of four slots is more than seven eighths full.
    let packets: Vec<_> = (0..1_010).map(|number| numbered(number, 16_000)).collect();
    record(&mut recorder, &packets, at(1_010));
    recorder.tick(Losses::default(), &[], &ethernet(), at(1_020)).unwrap();
    let numbers = || Catalog::open(folder.path()).unwrap().numbers().unwrap();
    let begun = std::time::Instant::now();
    while numbers() != [2, 3, 4] {
        assert!(begun.elapsed().as_secs() < 60, "{:?} {:?}", recorder.totals(), recorder.news());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(spares(), 1);
    let packets: Vec<_> = (1_010..1_100).map(|number| numbered(number, 16_000)).collect();
    record(&mut recorder, &packets, at(1_100));
    recorder.finish(&[], Losses::default(), at(1_101)).unwrap();
    assert_eq!((numbers(), spares(), recorder.totals().recycled), (vec![2, 3, 4, 5], 0, 1));
    let found = found(&mut search(folder.path(), Window::ALL));
    assert_eq!(found.len() as u64 + found[0], 1_100, "{found:?}");
    assert_eq!(findings(folder.path()), Vec::new());
}

#[test]
fn a_segment_that_cannot_be_deleted_keeps_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let settings = RecorderSettings { size: 64 << 20, ..SETTINGS };
    assert_eq!(record_by_clock(root, &settings, 0..40_000), 0);
    let catalog = Catalog::open(root).unwrap();
    let index = catalog.paths.index(1);
    std::fs::remove_file(&index).unwrap();
    std::fs::create_dir(&index).unwrap();
    let keep = RecorderSettings { keep_ns: Some(1_000_000_000), ..settings };
    assert_eq!(record_by_clock(root, &keep, 40_000..60_000), 0);
    let left = catalog.numbers().unwrap();
    assert!(left[0] == 1 && left[1] > 5, "{left:?}");
    // The others were deleted by this recorder, not by somebody else.
    assert!(!verify(&catalog, &mut |_, _| true).unwrap().findings.iter().any(is_gap));
}
