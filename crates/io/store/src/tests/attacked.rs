//! Stores as kills, full disks, other users and other files leave them.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};

use super::*;
use crate::{Error, check, repair};

/// A store whose recorder recycled segments; gives its segments' numbers.
fn recycled(root: &Path) -> Vec<u64> {
    record_range(root, &SETTINGS, 0..45_000, 900);
    let numbers = Catalog::open(root).unwrap().numbers().unwrap();
    assert!(numbers[0] > 1, "{numbers:?}");
    numbers
}

#[test]
fn a_segment_that_was_being_cleared_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let numbers = recycled(root);
    let catalog = Catalog::open(root).unwrap();
    // As a kill leaves it between the new name and the first slot that is cleared.
    let next = numbers.last().unwrap() + 1;
    let recycled = serde_json::json!({ "event": "recycled", "segment": numbers[0] });
    crate::log::append(&catalog.paths, recycled).unwrap();
    fs::remove_file(catalog.paths.index(numbers[0])).unwrap();
    fs::rename(catalog.segment_path(numbers[0]), catalog.segment_path(next)).unwrap();
    let verified = verify(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((verified.begun, verified.findings), (1, Vec::new()));
    let checked = check(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((checked.begun, checked.open, &checked.findings), (1, 1, &Vec::new()));
    assert!(checked.is_balanced());
    let repaired = repair(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((repaired.damaged, repaired.unreadable), (0, 0));
    let left = found(&mut search(root, Window::ALL));
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
    assert_eq!(recorder.news(), Vec::<String>::new());
    record(&mut recorder, &[numbered(45_000, 500)], at(0));
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    assert_eq!(found(&mut search(root, Window::ALL)), [left, vec![45_000]].concat());
    assert_eq!(findings(root), Vec::new());
}

#[test]
fn a_file_of_others_in_the_place_of_a_segment_stays() {
    let other = tempfile::tempdir().unwrap();
    record_range(other.path(), &SETTINGS, 0..10, 10);
    let of_another_store = fs::read(Catalog::open(other.path()).unwrap().segment_path(1)).unwrap();
    for content in [b"mine".to_vec(), of_another_store] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        record_range(root, &SETTINGS, 0..10, 10);
        let catalog = Catalog::open(root).unwrap();
        let path = catalog.segment_path(2);
        fs::write(&path, &content).unwrap();
        let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
        let news = recorder.news();
        assert!(news.iter().any(|text| text.contains("is not of this store")), "{news:?}");
        record(&mut recorder, &[numbered(10, 500)], at(0));
        recorder.finish(&[], Losses::default(), at(9)).unwrap();
        assert!(fs::read(&path).unwrap() == content);
        assert_eq!(found(&mut search(root, Window::ALL)), (0..11).collect::<Vec<_>>());
    }
}

#[test]
fn an_old_chunk_beside_new_ones_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let numbers = recycled(root);
    let catalog = Catalog::open(root).unwrap();
    // The disk did not keep the first slot: the chunk of another segment stands there.
    let old = fs::read(catalog.segment_path(numbers[0])).unwrap();
    let path = catalog.segment_path(numbers[1]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..SLOT_LEN].copy_from_slice(&old[..SLOT_LEN]);
    fs::write(&path, bytes).unwrap();
    let verified = verify(&catalog, &mut |_, _| true).unwrap();
    assert_eq!(verified.begun, 0);
    let foreign = Finding::Foreign { segment: numbers[1], places: 1 };
    assert!(verified.findings.contains(&foreign), "{:?}", verified.findings);
}

#[test]
fn no_recording_counts_on_from_the_highest_number() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record_range(root, &SETTINGS, 0..100, 10);
    let stray = root.join("seg/1152921504606846976.pcapng");
    fs::write(&stray, "").unwrap();
    let refused = Recorder::open(root, SETTINGS, &ethernet(), at(0)).err().map(|error| error.to_string());
    let refused = refused.unwrap_or_default();
    assert!(refused.contains("1152921504606846976.pcapng") && refused.contains("move it away"), "{refused}");
    fs::remove_file(stray).unwrap();
    record_range(root, &SETTINGS, 100..200, 10);
    assert_eq!(found(&mut search(root, Window::ALL)), (0..200).collect::<Vec<_>>());
}

#[test]
fn packets_beyond_the_snap_length_keep_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let interfaces = [Interface { snap_len: 40, ..Interface::new("far0", LinkType::ETHERNET) }];
    let mut recorder = Recorder::open(folder.path(), SETTINGS, &interfaces, at(0)).unwrap();
    let (data, meta) = numbered(1, 500);
    let packet = [Record { offset: 0, cap_len: 500, options_len: 0, meta }];
    let mut all = Selection::none();
    all.select_all(1);
    recorder.write(&Batch::new(&data, &packet), &all, &interfaces, at(0)).unwrap();
    recorder.finish(&[], Losses::default(), at(1)).unwrap();
    let mut search = search(folder.path(), Window::ALL);
    let mut bytes = Vec::new();
    while let Some(batch) = search.next() {
        bytes.extend(batch.iter().map(|packet| packet.data.to_vec()));
    }
    assert_eq!(bytes, [data]);
}

/// Writes over the middle of the last chunk with packets of a segment; gives how many packets it has.
fn damage_last_chunk(catalog: &Catalog, number: u64) -> u64 {
    let path = catalog.segment_path(number);
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut walk = Walk::new(&file, catalog.id, number, catalog.segment_len()).unwrap();
    let chunks = std::iter::from_fn(|| walk.next()).filter(|found| found.head.packets > 0);
    let last = chunks.last().unwrap();
    file.write_all_at(&[0xee; 40], last.offset + 1000).unwrap();
    last.head.packets.into()
}

#[test]
fn a_damaged_last_chunk_is_told_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let without = RecorderSettings { size: 40 << 20, index: None, ..SETTINGS };
    record_range(root, &without, 0..30_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let numbers = catalog.numbers().unwrap();
    assert!(numbers.len() > 3);
    let mut missing = 0;
    for (damaged, number) in numbers.iter().enumerate() {
        missing += damage_last_chunk(&catalog, *number);
        let mut search = search(root, Window::ALL);
        assert_eq!(found(&mut search).len() as u64, 30_000 - missing);
        let account = search.account();
        let told = (account.chunks_damaged, account.chunks_unfinished, account.unread());
        assert_eq!(told, (damaged as u64 + 1, 0, damaged as u64 + 1));
    }
    // While a recorder runs only the segment that it writes to may have unfinished chunks.
    let _recorder = Recorder::open(root, without, &ethernet(), at(0)).unwrap();
    let mut search = search(root, Window::ALL);
    found(&mut search);
    let account = search.account();
    assert!(account.chunks_damaged >= numbers.len() as u64 - 1, "{account:?}");
}

#[test]
fn chunks_unfinished_by_a_kill_are_not_altered() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
    for number in 0..20 {
        record(&mut recorder, &[numbered(number, 500)], at(0));
        recorder.tick(NO_LOSSES, &[], &ethernet(), at(2)).unwrap();
    }
    drop(recorder);
    let catalog = Catalog::open(root).unwrap();
    let verified = || {
        let verified = verify(&catalog, &mut |_, _| true).unwrap();
        (verified.unfinished, verified.findings)
    };
    let damage = |at: usize, is_damaged: bool| {
        let found = chunks_of(&catalog).into_iter().filter(|found| found.head.packets > 0).nth(at).unwrap();
        let file = fs::OpenOptions::new().read(true).write(true).open(catalog.segment_path(1)).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, found.offset + 700).unwrap();
        file.write_all_at(&bytes.map(|byte| !byte), found.offset + 700).unwrap();
        let (segment, offset, number) = (1, found.offset, found.head.number);
        match is_damaged {
            true => Finding::Damaged { segment, offset, number },
            false => Finding::Unfinished { segment, offset, number },
        }
    };
    // The last one; one of those that were on their way with it; one that was written long before.
    damage(19, true);
    assert_eq!(verified(), (1, vec![]));
    let torn = damage(17, false);
    assert_eq!(verified(), (1, vec![torn]));
    damage(17, false);
    let altered = damage(10, true);
    assert_eq!(verified(), (1, vec![altered.clone()]));
    // The next recorder writes the number once more.
    record_range(root, &SETTINGS, 20..30, 10);
    assert_eq!(verified(), (1, vec![altered]));
}

#[test]
fn segments_that_somebody_removed_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let numbers = recycled(root);
    let catalog = Catalog::open(root).unwrap();
    let unread = || {
        let mut search = search(root, Window::ALL);
        found(&mut search);
        search.account().unread()
    };
    assert_eq!((unread(), findings(root)), (0, Vec::new()));
    for &number in &numbers {
        let (path, index) = (catalog.segment_path(number), catalog.paths.index(number));
        let others = [path.with_extension("old"), index.with_extension("tix.old")];
        // Renamed: that a segment is gone is not a proof that a recorder deleted it.
        fs::rename(&path, &others[0]).unwrap();
        fs::rename(&index, &others[1]).unwrap();
        let mut search = search(root, Window::ALL);
        found(&mut search);
        let account = search.account();
        assert_eq!((account.segments_missing, account.unread()), (1, 1), "{number}");
        assert!(
            account.warnings("store")[0].contains("1 segment is missing"),
            "{:?}",
            account.warnings("store")
        );
        let missing = Finding::SegmentsMissing { first: number, last: number };
        assert_eq!(findings(root), std::slice::from_ref(&missing), "{number}");
        assert_eq!(check(&catalog, &mut |_, _| true).unwrap().findings, [missing], "{number}");
        fs::rename(&others[0], &path).unwrap();
        fs::rename(&others[1], &index).unwrap();
    }
    // Of a time for which it cannot have packets nothing is missing.
    let path = catalog.segment_path(numbers[1]);
    let last = catalog.index(numbers[2]).unwrap().summary.last;
    fs::rename(&path, path.with_extension("old")).unwrap();
    let later = Window { from: last.plus_nanos(1), to: Window::ALL.to };
    assert_eq!(search(root, later).account().segments_missing, 0);
    // In place of another the segment is not what its name says.
    fs::rename(path.with_extension("old"), catalog.segment_path(numbers[2])).unwrap();
    fs::remove_file(catalog.paths.index(numbers[2])).unwrap();
    let segments = catalog.segments().unwrap();
    let had = segments.iter().find(|segment| segment.number == numbers[2]).unwrap().chunks_missing.unwrap();
    assert_eq!((had > 0, unread()), (true, 1 + had));
}

#[test]
fn a_segment_that_was_cut_is_told_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record_range(root, &RecorderSettings { index: None, ..SETTINGS }, 0..20_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let number = *catalog.numbers().unwrap().last().unwrap();
    let file = fs::OpenOptions::new().write(true).open(catalog.segment_path(number)).unwrap();
    file.set_len(4096).unwrap();
    let mut search = search(root, Window::ALL);
    assert!(found(&mut search).len() < 20_000);
    let (places, chunks) = (search.account().places_damaged, search.account().chunks_damaged);
    assert!(places == 1 && chunks > 0, "{:?}", search.account());
    let missing = Finding::ChunksMissing { segment: number, chunks };
    assert_eq!(findings(root), [Finding::Length { segment: number, len: 4096 }, missing]);
}

#[test]
fn a_hold_that_nobody_released_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..10, 10);
    let catalog = Catalog::open(folder.path()).unwrap();
    for name in ["released", "removed", "kept"] {
        catalog.hold(&hold(name, "tcp", String::new())).unwrap();
    }
    catalog.release("released").unwrap();
    fs::remove_file(folder.path().join("holds/removed.toml")).unwrap();
    let findings = check(&catalog, &mut |_, _| true).unwrap().findings;
    assert_eq!(findings, [Finding::HoldMissing { name: "removed".to_owned() }]);
}

#[test]
fn segments_removed_under_a_search_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let numbers = recycled(root);
    let catalog = Catalog::open(root).unwrap();
    let mut search = search(root, Window::ALL);
    let path = catalog.segment_path(numbers[1]);
    fs::rename(&path, path.with_extension("old")).unwrap();
    found(&mut search);
    let account = search.account();
    assert_eq!((account.segments_gone, account.segments_unreadable, account.unread()), (0, 1, 1));
}

#[test]
fn segments_dropped_by_shrinking_are_not_missing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let larger = RecorderSettings { size: 40 << 20, ..SETTINGS };
    record_range(root, &larger, 0..45_000, 900);
    record_range(root, &SETTINGS, 45_000..45_100, 900);
    assert!(Catalog::open(root).unwrap().numbers().unwrap()[0] > 1);
    assert_eq!(search(root, Window::ALL).account().segments_missing, 0);
}

#[test]
fn segments_without_a_description_are_no_new_store() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record_range(root, &SETTINGS, 0..100, 10);
    let (path, id) = (root.join("store.toml"), Catalog::open(root).unwrap().id());
    fs::remove_file(&path).unwrap();
    let refused = Recorder::open(root, SETTINGS, &ethernet(), at(0)).err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|text| text.contains(&id)), "{refused:?}");
    fs::write(&path, format!("version = 1\nid = \"{id}\"\nsegment = {}\n", 4 << 20)).unwrap();
    assert_eq!(found(&mut search(root, Window::ALL)), (0..100).collect::<Vec<_>>());
}

fn hold(name: &str, filter: &str, why: String) -> Hold {
    let filter = filter.to_owned();
    Hold { name: name.to_owned(), window: Window::ALL, filter, made: at(0), why }
}

#[test]
fn a_hold_that_no_reader_would_take_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..10, 10);
    let catalog = Catalog::open(folder.path()).unwrap();
    let long = format!("host 10.0.0.1{}", " or host 10.0.0.2".repeat(3000));
    for refused in [
        hold("reason", "", "x".repeat(70_000)),
        hold("filter", &long, String::new()),
        // The store has Ethernet, no 802.11.
        hold("link", "type mgt", String::new()),
    ] {
        assert!(matches!(catalog.hold(&refused), Err(Error::Setting(_))), "{}", refused.name);
    }
    assert_eq!(catalog.holds().unwrap(), Vec::new());
    catalog.hold(&hold("all", "tcp", "x".repeat(60_000))).unwrap();
    assert!(catalog.holds().unwrap()[0].hold.is_ok());
}

#[test]
fn of_several_holds_of_one_name_one_is_made() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..10, 10);
    for round in 0..20 {
        let name = format!("case-{round}");
        let begin = std::sync::Barrier::new(8);
        let make = |who: usize| {
            // Each with a catalog of its own, as processes have.
            let (catalog, why) = (Catalog::open(folder.path()).unwrap(), who.to_string());
            begin.wait();
            catalog.hold(&hold(&name, "tcp", why)).map(|()| who)
        };
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|who| scope.spawn(move || make(who))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
        assert_eq!((made.len(), refused.len()), (1, 7), "{refused:?}");
        let is_told = |error: &Error| error.to_string().contains("there is a hold of this name");
        assert!(refused.iter().all(|error| is_told(error.as_ref().unwrap_err())), "{refused:?}");
        let holds = Catalog::open(folder.path()).unwrap().holds().unwrap();
        let kept = holds.into_iter().find(|entry| entry.name == name).unwrap().hold.unwrap();
        assert_eq!(kept.why, made[0].as_ref().unwrap().to_string());
    }
    let left = fs::read_dir(folder.path().join("holds")).unwrap().count();
    assert_eq!(left, 20);
}

#[test]
fn holds_are_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (folder.path().join("store"), folder.path().join("elsewhere"));
    record_range(&root, &SETTINGS, 0..10, 10);
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("kept.toml"), "").unwrap();
    symlink(&elsewhere, root.join("holds")).unwrap();
    let catalog = Catalog::open(&root).unwrap();
    assert!(catalog.hold(&hold("case", "tcp", String::new())).is_err());
    assert!(catalog.release("kept").is_err());
    let names: Vec<_> = fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept.toml"]);
}

#[test]
fn root_writes_to_no_store_through_a_link() {
    if !tapline_sys::privilege::is_root() {
        return eprintln!("skipped: root_writes_to_no_store_through_a_link: not root");
    }
    for name in ["seg", "roll"] {
        let folder = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (folder.path().join("store"), folder.path().join("elsewhere"));
        record_range(&root, &SETTINGS, 0..10, 10);
        let (own, moved) = (root.join(name), root.join("moved"));
        fs::create_dir(&elsewhere).unwrap();
        let of_others = |at: u64| elsewhere.join(format!("spare-{at:08}"));
        (1..4).for_each(|at| fs::write(of_others(at), vec![7; 4 << 20]).unwrap());
        // Before the recorder opens the store.
        fs::rename(&own, &moved).unwrap();
        symlink(&elsewhere, &own).unwrap();
        let refused =
            Recorder::open(&root, SETTINGS, &ethernet(), at(0)).err().map(|error| error.to_string());
        assert!(refused.as_ref().is_some_and(|text| text.contains("is a link")), "{refused:?}");
        fs::remove_file(&own).unwrap();
        fs::rename(&moved, &own).unwrap();
        // While it records: it goes on where it began.
        let mut recorder = Recorder::open(&root, SETTINGS, &ethernet(), at(0)).unwrap();
        fs::rename(&own, &moved).unwrap();
        symlink(&elsewhere, &own).unwrap();
        let packets: Vec<_> = (10..30_000).map(|number| numbered(number, 1000)).collect();
        record(&mut recorder, &packets, at(0));
        recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
        assert_eq!(recorder.totals().lost, 0, "{:?}", recorder.news());
        let mut names: Vec<_> =
            fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names, [of_others(1), of_others(2), of_others(3)]);
        assert!(names.iter().all(|path| fs::read(path).unwrap() == vec![7; 4 << 20]));
        fs::remove_file(&own).unwrap();
        fs::rename(&moved, &own).unwrap();
        assert_eq!(found(&mut search(&root, Window::ALL)).last(), Some(&29_999));
    }
}

#[test]
fn errors_name_a_directory_and_no_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..10, 10);
    let catalog = Catalog::open(folder.path()).unwrap();
    let shown = crate::layout::named(&catalog.segment_path(1));
    assert_eq!(shown, folder.path().canonicalize().unwrap().join("seg/00000001.pcapng"));
}

#[test]
fn holds_without_a_log_line_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..10, 10);
    let log = folder.path().join("log");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    let catalog = Catalog::open(folder.path()).unwrap();
    let error = catalog.hold(&hold("case", "tcp", String::new())).unwrap_err().to_string();
    assert!(error.contains("case is in force"), "{error}");
    assert_eq!(catalog.holds().unwrap().len(), 1);
}

#[test]
fn the_description_of_another_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..10, 10);
    let path = folder.path().join("store.toml");
    let (own, id) = (fs::read_to_string(&path).unwrap(), Catalog::open(folder.path()).unwrap().id());
    fs::write(&path, own.replace(&id, &"5".repeat(32))).unwrap();
    let refused = Catalog::open(folder.path()).unwrap_err().to_string();
    assert!(refused.contains(&id), "{refused}");
    fs::write(&path, own).unwrap();
    assert_eq!(found(&mut search(folder.path(), Window::ALL)), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_followed_recording_ends_with_its_window() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Arc::new({
        record_range(folder.path(), &SETTINGS, 0..10, 10);
        Catalog::open(folder.path()).unwrap()
    });
    let window = Window { from: at(0), to: at(5) };
    let mut search = Search::new(catalog, window, Question::Anything).unwrap();
    search.follow();
    let examiners =
        Arc::new(|_| Box::new(|_: &mut Vec<u8>, place: Range<usize>, _| place.len()) as Examine<usize>);
    let mut search = ParallelSearch::new(search, 2, None, examiners);
    search.resume();
    let mut found = 0;
    loop {
        match search.next(Duration::from_secs(60)) {
            Next::Found(_) => found += 1,
            Next::Idle => panic!("nothing more can come"),
            Next::End => break,
        }
    }
    assert!(found > 0 && search.account().is_balanced(), "{:?}", search.account());
    assert_eq!(search.next(Duration::ZERO), Next::End);
    search.pause();
}

/// Checksums of an index's pages prove nothing, as they have no key: its totals and times are compared with the heads
/// of the chunks.
#[test]
fn a_forged_head_of_an_index_is_found() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..10, 10);
    let catalog = Catalog::open(folder.path()).unwrap();
    let path = catalog.paths.index(1);
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(check(&catalog, &mut |_, _| true).unwrap().findings, Vec::new());
    // The places are those of docs/format/store.md: times, packets, bytes, losses, the last chunk, counts.
    for place in [32, 40, 48, 56, 64, 72, 80, 88, 96, 127, 128, 156, 192, 256 + 16, 256 + 32] {
        let mut forged = whole.clone();
        forged[place] ^= 1;
        Owner { store: catalog.id, number: 1 }.reseal(&mut forged);
        std::fs::write(&path, &forged).unwrap();
        let findings = check(&catalog, &mut |_, _| true).unwrap().findings;
        assert_eq!(findings, [Finding::IndexDiffers { segment: 1 }], "byte {place}");
    }
    assert_eq!(repair(&catalog, &mut |_, _| true).unwrap().made, 1);
    assert_eq!(check(&catalog, &mut |_, _| true).unwrap().findings, Vec::new());
}

#[test]
fn a_segment_that_cannot_be_deleted_stops_no_recycling() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let numbers = recycled(root);
    let catalog = Catalog::open(root).unwrap();
    let stuck = numbers[0];
    let index = catalog.paths.index(stuck);
    fs::remove_file(&index).unwrap();
    fs::create_dir(&index).unwrap();
    let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
    let mut news = recorder.news();
    for from in (45_000..93_000).step_by(500) {
        let packets: Vec<_> = (from..from + 500).map(|number| numbered(number, 900)).collect();
        record(&mut recorder, &packets, at(0));
        news.extend(recorder.news());
    }
    recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
    news.extend(recorder.news());
    let totals = recorder.totals();
    assert_eq!((totals.written, totals.lost), (48_000, 0), "{news:?}");
    let left = catalog.numbers().unwrap();
    assert!(left[0] == stuck && left[1] > numbers[1], "{left:?}");
    let told = |line: &&String| line.contains(&format!("segment {stuck} cannot be deleted"));
    let lines: Vec<&String> = news.iter().filter(told).collect();
    assert!(matches!(lines[..], [line] if line.contains(&format!("seg/{stuck:08}.tix"))), "{news:?}");
    // Once it can be, it is the first to go.
    fs::remove_dir(&index).unwrap();
    record_range(root, &SETTINGS, 93_000..113_000, 900);
    assert!(!catalog.numbers().unwrap().contains(&stuck));
}

#[test]
fn a_file_with_the_name_of_the_next_segment_stays() {
    for (compress, ending) in
        [None, Some(1)].into_iter().flat_map(|one| ["pcapng", "pcapng.zst"].map(|ending| (one, ending)))
    {
        let context = format!("{compress:?}, {ending}");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let settings = RecorderSettings { compress, size: 64 << 20, ..SETTINGS };
        let mut recorder = Recorder::open(root, settings, &ethernet(), at(0)).unwrap();
        let taken = root.join(format!("seg/00000002.{ending}"));
        fs::write(&taken, "mine").unwrap();
        let (mut end, mut news) = (0, Vec::new());
        let mut record_until = |recorder: &mut Recorder, word: &str| {
            while !news.iter().any(|line: &String| line.contains(word)) {
                assert!(end < 50_000, "{context}: never {word:?}: {news:?}");
                let packets: Vec<_> = (end..end + 500).map(|number| numbered(number, 1000)).collect();
                record(recorder, &packets, at(0));
                recorder.tick(NO_LOSSES, &[], &ethernet(), at(2)).unwrap();
                news.extend(recorder.news());
                end += 500;
            }
            end
        };
        record_until(&mut recorder, "another file has the name of the next segment");
        assert_eq!(fs::read_to_string(&taken).unwrap(), "mine", "{context}");
        fs::remove_file(&taken).unwrap();
        let end = record_until(&mut recorder, "segment 2 is begun: the recording continues");
        recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
        let totals = recorder.totals();
        assert_eq!(totals.written + totals.lost, end, "{context}: {totals:?}");
        assert_eq!(found(&mut search(root, Window::ALL)).len() as u64, totals.written, "{context}");
        assert_eq!(findings(root), Vec::new(), "{context}");
    }
}
