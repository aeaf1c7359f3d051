//! Stores as kills, full disks, other users and other files leave them.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::*;
use crate::{Error, Examiners, Next, ParallelSearch, check, repair};

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
    let (mut reader, mut is_there) = (SectionReader::new(), false);
    let mut search = search(folder.path(), Window::ALL);
    let mut bytes = Vec::new();
    loop {
        fill(&mut reader, &mut search, &mut is_there);
        if !is_there {
            break;
        }
        while reader.advance().unwrap() {
            bytes.extend(reader.batch().iter().map(|packet| packet.data.to_vec()));
        }
    }
    assert_eq!(bytes, [data]);
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
fn a_hold_in_force_without_a_line_in_the_log_says_so() {
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
    let examiners: Examiners<usize> = Arc::new(|_| Box::new(|_, place: Range<usize>, _| place.len()));
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

/// Checksums of an index's pages are no secret: its totals and times are compared with the heads of the chunks.
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
