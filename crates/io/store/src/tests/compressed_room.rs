//! Room of compressed segments is given back only where intact chunks prove that nothing is there; forged chunks.

use std::fs;
use std::os::unix::fs::FileExt;

use super::compressed::{packed, room};
use super::*;
use crate::chunk::{ChunkHead, seal};
use crate::packed::{Packer, section};

/// A bit of a chunk's length: one more says that it is 256 KiB longer.
fn flip_length(path: &Path, chunk: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let place = chunk + 36 + 48 + 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).unwrap();
    file.write_all_at(&[byte[0] ^ 4], place).unwrap();
}

#[test]
fn a_repair_leaves_chunks_behind_a_wrong_head() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record_range(root, &packed(), 0..1500, 30);
    let catalog = Catalog::open(root).unwrap();
    let path = catalog.segment_path(1);
    let chunk = chunks_of(&catalog).into_iter().find(|found| found.head.packets > 0).unwrap();
    flip_length(&path, chunk.offset);
    let before = fs::read(&path).unwrap();
    let repair = || {
        fs::remove_file(root.join("seg/00000001.tix")).unwrap();
        repair(&catalog, &mut |_, _| true).unwrap()
    };
    assert!(repair().damaged > 0);
    assert!(fs::read(&path).unwrap() == before, "a repair writes indexes alone");
    flip_length(&path, chunk.offset);
    assert_eq!((repair().damaged, findings(root)), (0, Vec::new()));
    assert_eq!(found(&mut search(root, Window::ALL)), (0..1500).collect::<Vec<_>>());
}

/// Copies a directory; holes become zeros.
pub(super) fn copy_whole(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => copy_whole(&entry.path(), &to.join(entry.file_name())),
            false => fs::write(to.join(entry.file_name()), fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

#[test]
fn a_copy_without_holes_loses_no_segment() {
    let folder = tempfile::tempdir().unwrap();
    let (first, copy) = (folder.path().join("first"), folder.path().join("copy"));
    let mut recorder = Recorder::open(&first, packed(), &ethernet(), at(0)).unwrap();
    for from in (0..40_000).step_by(1000) {
        let packets: Vec<_> = (from..from + 1000).map(|number| numbered(number, 1000)).collect();
        record(&mut recorder, &packets, at(0));
    }
    recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
    copy_whole(&first, &copy);
    let catalog = Catalog::open(&copy).unwrap();
    let numbers = catalog.numbers().unwrap();
    assert!(numbers.len() > 8 && room(&copy) > 8 << 22, "{numbers:?}");
    // One of its chunks hides others.
    let chunk = chunks_of(&catalog).into_iter().find(|found| found.head.packets > 0).unwrap();
    flip_length(&catalog.segment_path(1), chunk.offset);
    let mut recorder = Recorder::open(&copy, packed(), &ethernet(), at(0)).unwrap();
    let news = recorder.news();
    let is_said = |line: &String| line.contains("whole length on the disk") && line.contains("given back");
    assert!(news.iter().any(is_said), "{news:?}");
    record(&mut recorder, &[numbered(40_000, 1000)], at(0));
    recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
    assert_eq!(recorder.totals().recycled, 0);
    assert!(room(&copy) <= SETTINGS.size + SETTINGS.size / 50, "{}", room(&copy));
    flip_length(&catalog.segment_path(1), chunk.offset);
    assert_eq!(catalog.numbers().unwrap(), numbers);
    assert!(found(&mut search(&copy, Window::ALL)) == (0..=40_000).collect::<Vec<_>>());
    assert_eq!(findings(&copy), Vec::new());
}

/// A recorder leaves some segments with their whole room, which the next one gives back and does not report.
#[test]
fn a_restart_is_no_copy() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { size: 12 << 20, ..packed() };
    let mut given = 0;
    for round in 0..6_u64 {
        let mut recorder = Recorder::open(folder.path(), settings.clone(), &ethernet(), at(0)).unwrap();
        let before = room(folder.path());
        for from in (round * 9000..round * 9000 + 9000).step_by(900) {
            let packets: Vec<_> = (from..from + 900).map(|number| numbered(number, 500)).collect();
            record(&mut recorder, &packets, at(0));
            recorder.tick(NO_LOSSES, &[], &ethernet(), at(2)).unwrap();
        }
        recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
        given += before.saturating_sub(room(folder.path()));
        let news = recorder.news();
        assert!(!news.iter().any(|line| line.contains("whole length")), "round {round}: {news:?}");
    }
    assert!(given > 0, "nothing was given back");
}

/// A recorder that was killed while it gave room back left the rest; another gives it back before it deletes segments.
#[test]
fn room_that_a_kill_left_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let large = RecorderSettings { size: 64 << 20, ..packed() };
    record_range(root, &large, 0..80_000, 900);
    let catalog = Catalog::open(root).unwrap();
    let numbers = catalog.numbers().unwrap();
    let half = 2 << 20;
    for number in &numbers {
        let path = catalog.segment_path(*number);
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        tapline_sys::disk::reserve_part(&file, half..4 << 20).unwrap();
    }
    assert!(numbers.len() > 8 && room(root) > numbers.len() as u64 * half, "{numbers:?}, {}", room(root));
    let mut recorder = Recorder::open(root, packed(), &ethernet(), at(0)).unwrap();
    record(&mut recorder, &[numbered(80_000, 500)], at(0));
    recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
    let news = recorder.news();
    assert!(!news.iter().any(|line| line.contains("had to go")), "{news:?}");
    assert_eq!(recorder.totals().recycled, 0);
    assert_eq!(catalog.numbers().unwrap(), numbers);
    assert!(room(root) <= SETTINGS.size + SETTINGS.size / 50, "{}", room(root));
    assert!(found(&mut search(root, Window::ALL)) == (0..=80_000).collect::<Vec<_>>());
    assert_eq!(findings(root), Vec::new());
}

#[test]
fn the_last_files_with_their_room_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let settings = RecorderSettings { size: 12 << 20, ..packed() };
    for round in 0..6_u64 {
        record_range(root, &settings, round * 9000..round * 9000 + 9000, 900);
        let entries = fs::read_dir(root.join("seg")).unwrap().flatten();
        let rooms = entries.map(|entry| tapline_sys::disk::room_of(&entry.metadata().unwrap()));
        // One for the rest of the recording, or the next one, and one behind it.
        assert!(rooms.filter(|room| *room >= 4 << 20).count() >= 2, "round {round}");
        assert_eq!(findings(root), Vec::new());
    }
    // Without room for later recordings all of it goes.
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { keeps_room: false, ..settings };
    record_range(folder.path(), &settings, 0..30_000, 900);
    assert!(room(folder.path()) < 4 << 20, "{}", room(folder.path()));
    assert!(found(&mut search(folder.path(), Window::ALL)) == (0..30_000).collect::<Vec<_>>());
}

/// Writes another section into the fourth chunk of the first segment, with a checksum that fits. Returns the packets
/// that it had.
fn forge(catalog: &Catalog, packets: u32, change: &dyn Fn(&mut Vec<u8>)) -> u32 {
    let chunk = chunks_of(catalog).into_iter().nth(3).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(catalog.segment_path(1)).unwrap();
    let mut bytes = vec![0; chunk.head.stored_len()];
    file.read_exact_at(&mut bytes, chunk.offset).unwrap();
    let mut head = ChunkHead { packets, ..chunk.head.clone() };
    let mut forged = section(&bytes, &head).unwrap().into_owned();
    change(&mut forged);
    if head.packing.is_some() {
        forged = Packer::new(1).unwrap().pack(&forged, &mut head, 0).unwrap();
    }
    seal(&mut forged, &head);
    file.write_all_at(&forged, chunk.offset).unwrap();
    chunk.head.packets
}

/// The place of the first packet block of a section.
fn first_packet(section: &[u8]) -> usize {
    let mut blocks = crate::erase::Blocks(section);
    let before = blocks.by_ref().take_while(|(kind, _)| *kind != crate::erase::PACKET);
    before.map(|(_, block)| block.len()).sum()
}

/// Makes another section of one.
type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn forged_sections_count_as_damage() {
    let unknown = |section: &mut Vec<u8>| {
        let at = first_packet(section);
        section[at..at + 4].copy_from_slice(&0x0bad_u32.to_ne_bytes());
    };
    let broken = |section: &mut Vec<u8>| {
        let at = first_packet(section);
        section[at + 4..at + 8].copy_from_slice(&u32::MAX.to_ne_bytes());
    };
    // Plain chunks have their head in the section.
    let of_frames: [Change<'_>; 3] =
        [&|section| section.clear(), &|section| *section = vec![7; 5000], &|section| {
            section.truncate(section.len() - 7)
        }];
    for compress in [None, Some(1)] {
        let mut changes: Vec<(Change<'_>, u32)> = vec![(&unknown, 30), (&broken, 30), (&|_| {}, 31)];
        if compress.is_some() {
            changes.extend(of_frames.map(|change| (change, 30)));
        }
        for (number, (change, packets)) in changes.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            record_range(folder.path(), &RecorderSettings { compress, ..SETTINGS }, 0..300, 30);
            let catalog = Catalog::open(folder.path()).unwrap();
            assert_eq!(forge(&catalog, packets, change), 30);
            let mut search = search(folder.path(), Window::ALL);
            let count = found(&mut search).len();
            let account = search.account();
            assert_eq!((count, account.chunks_damaged), (270, 1), "{compress:?} {number}: {account:?}");
            assert!(!findings(folder.path()).is_empty());
            let scope = ErasureScope {
                window: Window::ALL,
                filter: String::new(),
                options: Options::default(),
                why: String::new(),
            };
            let mut eraser = Eraser::open(catalog, scope).unwrap();
            let erased = eraser.erase(&mut |_, _| true).unwrap();
            assert_eq!((erased.packets_erased, erased.chunks_damaged), (270, 1), "{compress:?} {number}");
            assert!(erased.is_balanced(), "{erased:?}");
        }
    }
}
