//! Stores whose chunks are compressed: found, proven and erased as in others, and more of them fit on the disk.

use std::fs;
use std::os::unix::fs::FileExt;

use super::*;
use crate::chunk::{ChunkHead, seal};
use crate::layout::is_packed;
use crate::packed::section;

pub(super) fn packed() -> RecorderSettings {
    RecorderSettings { compress: Some(1), ..SETTINGS }
}

/// A packet that cannot be compressed.
fn noise(number: u64, len: usize) -> (Vec<u8>, Meta) {
    let (mut data, meta) = numbered(number, len);
    let behind = data.len() - 22;
    data[22..].copy_from_slice(&Random::new(number + 1).bytes(behind));
    (data, meta)
}

/// Bytes that the files of segments take on the disk.
pub(super) fn room(root: &Path) -> u64 {
    let entries = fs::read_dir(root.join("seg")).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    entries.map(|about| tapline_sys::disk::room_of(&about)).sum()
}

#[test]
fn a_compressed_store_is_searched_as_another() {
    let packets = captured();
    if packets.is_empty() {
        eprintln!("skipped: a_compressed_store_is_searched_as_another: there are no captures");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let catalogs = [("plain", None), ("packed", Some(1))].map(|(name, compress)| {
        let root = folder.path().join(name);
        let settings = RecorderSettings { size: 256 << 20, compress, ..SETTINGS };
        let mut recorder = Recorder::open(&root, settings, &ethernet(), at(0)).unwrap();
        for some in packets.chunks(500) {
            record(&mut recorder, some, at(0));
            recorder.tick(NO_LOSSES, &[], &ethernet(), at(2)).unwrap();
        }
        recorder.finish(&[], NO_LOSSES, at(3)).unwrap();
        let totals = recorder.totals();
        assert_eq!(totals.written, packets.len() as u64, "{:?}", recorder.news());
        assert_eq!(totals.bytes < totals.unpacked, compress.is_some(), "{totals:?}");
        Arc::new(Catalog::open(&root).unwrap())
    });
    let texts_max = volume("TAPLINE_STORE_TEXTS", 20);
    let mut texts = tapline_testkit::expressions::Expressions::new(45, 1);
    let (mut done, mut hits, mut by_keys) = (0, 0, 0);
    while done < texts_max {
        let text = texts.text();
        let Ok(program) = compile(&text, &Options::default()) else { continue };
        done += 1;
        let found = catalogs.each_ref().map(|catalog| {
            let question = Question::of(&text, &Options::default());
            let mut search = OneByOne::new(Arc::clone(catalog), Window::ALL, question);
            let mut found = (0_u64, 0_u32);
            while let Some(batch) = search.next() {
                let accepted = batch.iter().filter(|packet| program.run(*packet) != 0);
                found = accepted
                    .fold(found, |(count, sum), packet| (count + 1, crc32c::crc32c_append(sum, packet.data)));
            }
            let account = search.account();
            assert!(account.unread() == 0, "{text:?}: {account:?}");
            by_keys += account.chunks_by_keys;
            found
        });
        assert_eq!(found[0], found[1], "{text:?}");
        hits += found[0].0;
    }
    assert!(hits > 0 && by_keys > 0, "{hits} packets, {by_keys} chunks skipped");
}

#[test]
fn compression_may_change_between_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut end = 0;
    for (round, compress) in [None, Some(1), Some(3), None, None, Some(1)].into_iter().enumerate() {
        let settings = RecorderSettings { compress, size: 64 << 20, ..SETTINGS };
        let mut recorder = Recorder::open(root, settings, &ethernet(), at(0)).unwrap();
        let packets: Vec<_> = (end..end + 300).map(|number| numbered(number, 500)).collect();
        for some in packets.chunks(20) {
            record(&mut recorder, some, at(0));
            recorder.tick(NO_LOSSES, &[], &ethernet(), at(2)).unwrap();
        }
        // Half of them end as by a kill.
        if round % 2 == 0 {
            recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
        }
        drop(recorder);
        end += 300;
        assert_eq!(found(&mut search(root, Window::ALL)), (0..end).collect::<Vec<_>>(), "round {round}");
        assert_eq!(findings(root), Vec::new(), "round {round}");
    }
    let catalog = Catalog::open(root).unwrap();
    let numbers = catalog.numbers().unwrap();
    let kinds: Vec<bool> = numbers.iter().map(|number| is_packed(&catalog.segment_path(*number))).collect();
    assert_eq!(kinds, [false, true, false, true]);
    let repaired = repair(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((repaired.damaged, repaired.unreadable), (0, 0));
    assert_eq!(check(&catalog, &mut |_, _| true).unwrap().findings, Vec::new());
    let description = fs::read_to_string(root.join("store.toml")).unwrap();
    assert!(description.starts_with("version = 2\n"), "{description}");
    let segments = catalog.segments().unwrap();
    let is_less = |segment: &crate::SegmentEntry| segment.packed_len.is_some_and(|len| len < segment.len / 4);
    // The last one was broken off, and has the room to go on.
    assert_eq!(segments.iter().map(is_less).collect::<Vec<_>>(), [false, true, false, false]);
}

/// Unpacks a segment, or compresses it, into its folder, as zstd(1) does without another name.
fn make_stray(root: &Path, number: u64) -> std::path::PathBuf {
    let plain = root.join(format!("seg/{number:08}.pcapng"));
    let frames = plain.with_extension("pcapng.zst");
    if frames.exists() {
        let unpacked = zstd::decode_all(fs::File::open(&frames).unwrap()).unwrap();
        fs::write(&plain, unpacked).unwrap();
        return plain;
    }
    fs::write(&frames, zstd::encode_all(fs::File::open(&plain).unwrap(), 1).unwrap()).unwrap();
    frames
}

#[test]
fn of_two_files_of_a_segment_its_own_counts() {
    let kinds = [None, Some(1)];
    for (before, after) in kinds.into_iter().flat_map(|one| kinds.map(|other| (one, other))) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let settings = |compress| RecorderSettings { compress, size: 64 << 20, ..SETTINGS };
        record_range(root, &settings(before), 0..900, 30);
        let stray = make_stray(root, 1);
        let held = fs::read(&stray).unwrap();
        let context = format!("{before:?} {after:?}");
        let mut all = search(root, Window::ALL);
        assert_eq!(found(&mut all), (0..900).collect::<Vec<_>>(), "{context}");
        let is_named = |note: &String| note.contains("two files") && note.contains(stray.to_str().unwrap());
        let catalog = Catalog::open(root).unwrap();
        let notes = catalog.search_notes(Window::ALL, &all.account(), false, 900);
        assert!(notes.iter().any(is_named), "{context}: {notes:?}");
        let second = || vec![Finding::SecondFile { segment: 1, path: stray.clone() }];
        assert_eq!(findings(root), second(), "{context}");
        assert_eq!(check(&catalog, &mut |_, _| true).unwrap().findings, second(), "{context}");
        // The recorder leaves both files as they are, and says so.
        let mut recorder = Recorder::open(root, settings(after), &ethernet(), at(0)).unwrap();
        let news = recorder.news();
        let names = ["00000001.pcapng is", "00000001.pcapng.zst is"];
        let is_said =
            |line: &String| line.contains("two files") && names.iter().all(|name| line.contains(name));
        assert!(news.iter().any(is_said), "{context}: {news:?}");
        record(&mut recorder, &[numbered(900, 500)], at(0));
        recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
        drop(recorder);
        let catalog = Catalog::open(root).unwrap();
        assert_eq!((catalog.numbers().unwrap(), fs::read(&stray).unwrap() == held), (vec![1, 2], true));
        fs::remove_file(root.join("seg/00000001.tix")).unwrap();
        assert_eq!(repair(&catalog, &mut |_, _| true).unwrap().damaged, 0, "{context}");
        assert_eq!(found(&mut search(root, Window::ALL)), (0..=900).collect::<Vec<_>>(), "{context}");
        assert_eq!(findings(root), second(), "{context}");
        assert_eq!(catalog.segments().unwrap()[0].packed_len.is_some(), before.is_some());
    }
}

#[test]
fn a_second_file_goes_with_its_segment() {
    for compress in [None, Some(1)] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let settings = RecorderSettings { compress, ..SETTINGS };
        record_range(root, &settings, 0..900, 30);
        let stray = make_stray(root, 1);
        let mut recorder = Recorder::open(root, settings, &ethernet(), at(0)).unwrap();
        assert!(stray.exists());
        let mut end = 900;
        while recorder.totals().recycled == 0 {
            let packets: Vec<_> = (end..end + 1000).map(|number| noise(number, 1000)).collect();
            record(&mut recorder, &packets, at(0));
            recorder.tick(NO_LOSSES, &[], &ethernet(), at(2)).unwrap();
            end += 1000;
        }
        recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
        let numbers = Catalog::open(root).unwrap().numbers().unwrap();
        assert!(!stray.exists() && !numbers.contains(&1), "{numbers:?}");
        let left = found(&mut search(root, Window::ALL));
        assert!(left == (left[0]..end).collect::<Vec<_>>());
        assert_eq!(findings(root), Vec::new());
    }
}

/// A segment without a chunk, and the empty file that zstd(1) makes of it.
#[test]
fn a_begun_segment_does_not_take_a_second_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    drop(Recorder::open(root, packed(), &ethernet(), at(0)).unwrap());
    let stray = make_stray(root, 1);
    record_range(root, &SETTINGS, 0..100, 30);
    assert_eq!(fs::metadata(&stray).unwrap().len(), 0);
    assert_eq!(found(&mut search(root, Window::ALL)), (0..100).collect::<Vec<_>>());
    assert_eq!(findings(root), [Finding::SecondFile { segment: 1, path: stray }]);
}

#[test]
fn room_on_the_disk_is_what_counts() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = Recorder::open(root, packed(), &ethernet(), at(0)).unwrap();
    let mut end = 0;
    let mut recorded = |recorder: &mut Recorder, is_noise: bool| {
        for _ in 0..60 {
            let of = if is_noise { noise } else { numbered };
            let packets: Vec<_> = (end..end + 1000).map(|number| of(number, 1000)).collect();
            record(recorder, &packets, at(0));
            end += 1000;
        }
        end
    };
    // Fifteen segments where four of them have room.
    recorded(&mut recorder, false);
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    let totals = recorder.totals();
    assert_eq!((totals.recycled, totals.lost), (0, 0), "{:?}", recorder.news());
    assert!(totals.segments > 10 && totals.bytes < totals.unpacked / 10, "{totals:?}");
    drop(recorder);
    assert_eq!(found(&mut search(root, Window::ALL)), (0..60_000).collect::<Vec<_>>());
    assert!(room(root) <= SETTINGS.size + SETTINGS.size / 50, "{}", room(root));
    // Each of the next ones takes the room of several.
    let mut recorder = Recorder::open(root, packed(), &ethernet(), at(0)).unwrap();
    let end = recorded(&mut recorder, true);
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    let totals = recorder.totals();
    assert!(totals.lost == 0 && totals.recycled > 15, "{totals:?}: {:?}", recorder.news());
    drop(recorder);
    assert!(room(root) <= SETTINGS.size + SETTINGS.size / 50, "{}", room(root));
    let numbers = found(&mut search(root, Window::ALL));
    assert!(numbers[0] > 0 && numbers == (numbers[0]..end).collect::<Vec<_>>());
    assert_eq!(findings(root), Vec::new());
    // Recorded to without compression, it stays within its size too.
    record_range(root, &SETTINGS, end..end + 10_000, 900);
    let numbers = found(&mut search(root, Window::ALL));
    assert!(numbers == (numbers[0]..end + 10_000).collect::<Vec<_>>());
    assert!(room(root) <= SETTINGS.size + SETTINGS.size / 50, "{}", room(root));
    assert_eq!(findings(root), Vec::new());
}

#[test]
fn packets_that_cannot_be_compressed_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { size: 64 << 20, ..packed() };
    let mut recorder = Recorder::open(folder.path(), settings, &ethernet(), at(0)).unwrap();
    let dbus = vec![Interface::new("bus", LinkType::DBUS)];
    for number in 0..60_u64 {
        let len = [SLOT_LEN + SLOT_LEN / 2, 100, SLOT_LEN - 500, 300_000][number as usize % 4];
        let packet = if number % 8 < 4 { noise(number, len) } else { numbered(number, len) };
        record_on(&mut recorder, &dbus, &[packet], at(0));
    }
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    assert_eq!(recorder.totals().written, 60, "{:?}", recorder.news());
    let mut search = search(folder.path(), Window::ALL);
    let mut number = 0;
    while let Some(batch) = search.next() {
        for packet in batch.iter() {
            let of = if number % 8 < 4 { noise } else { numbered };
            assert!(packet.data == of(number, packet.data.len()).0, "packet {number}");
            number += 1;
        }
    }
    assert_eq!((number, findings(folder.path())), (60, Vec::new()));
}

#[test]
fn a_segment_is_frames_of_zstd() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &packed(), 0..300, 20);
    // A second recording goes on in it, behind fillers.
    record_range(folder.path(), &packed(), 300..320, 20);
    let catalog = Catalog::open(folder.path()).unwrap();
    let file = fs::read(catalog.segment_path(1)).unwrap();
    assert_eq!(file.len(), 4 << 20);
    let whole = zstd::decode_all(&file[..]).unwrap();
    let sections = chunks_of(&catalog).into_iter().map(|found| {
        let at = found.offset as usize;
        section(&file[at..at + found.head.stored_len()], &found.head).unwrap().into_owned()
    });
    assert!(sections.collect::<Vec<_>>().concat() == whole);
    let mut reader = SectionReader::new();
    let place = 0..whole.len();
    reader.set_buffer(whole, place);
    let mut packets = 0;
    while reader.advance().unwrap() {
        packets += reader.batch().len();
    }
    assert_eq!(packets, 320);
}

#[test]
fn erased_packets_leave_no_bytes_in_a_frame() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = Recorder::open(root, packed(), &ethernet(), at(0)).unwrap();
    let packets: Vec<_> = (0..2000).map(|number| noise(number, 600)).collect();
    record(&mut recorder, &packets, at(0));
    recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
    let catalog = Catalog::open(root).unwrap();
    let is_there = |number: usize| {
        let file = fs::read(catalog.segment_path(1)).unwrap();
        memchr::memmem::find(&file, &packets[number].0[100..140]).is_some()
    };
    assert!(is_there(5) && is_there(99) && is_there(100));
    let wanted = ErasureScope {
        window: Window::ALL,
        filter: "ether[20:2] < 100".to_owned(),
        options: Options::default(),
        why: String::new(),
    };
    let before = room(root);
    let erased = Eraser::open(catalog.clone(), wanted).unwrap().erase(&mut |_, _| true).unwrap();
    assert_eq!((erased.packets_erased, erased.is_balanced()), (100, true));
    assert!(!is_there(5) && !is_there(99) && is_there(100) && room(root) <= before);
    assert_eq!(found(&mut search(root, Window::ALL)), (100..2000).collect::<Vec<_>>());
    let verified = verify(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((verified.findings, verified.erased), (Vec::new(), (1, 100)));
    assert_eq!(check(&catalog, &mut |_, _| true).unwrap().findings, Vec::new());
}

#[test]
fn damage_costs_the_compressed_chunk_that_it_is_in() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record_range(root, &packed(), 0..1500, 30);
    let catalog = Catalog::open(root).unwrap();
    let path = catalog.segment_path(1);
    let index = root.join("seg/00000001.tix");
    let (good, good_index) = (fs::read(&path).unwrap(), fs::read(&index).unwrap());
    let chunks: Vec<_> = chunks_of(&catalog).into_iter().filter(|found| found.head.packets > 0).collect();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut random = Random::new(49);
    for round in 0..200 {
        let chunk = random.pick(&chunks);
        let (stored, frame) = (chunk.head.stored_len() as u64, u64::from(chunk.head.packing.unwrap().frame));
        // Header, head, frame, header of the filler, zeros; a hole.
        let parts = [0..36, 36..248, 248..248 + frame, 248 + frame..256 + frame, 256 + frame..stored];
        let part = &parts[round % 5];
        if part.is_empty() {
            continue;
        }
        let place = chunk.offset + part.start + random.below(part.end - part.start);
        file.write_all_at(&[good[place as usize] ^ 1 << random.below(8)], place).unwrap();
        if round % 2 == 1 {
            fs::remove_file(&index).unwrap();
        }
        let mut search = search(root, Window::ALL);
        let numbers = found(&mut search);
        let lost = 1500 - numbers.len() as u32;
        // A length that is not true hides the chunk behind it as well.
        let is_one = lost == chunk.head.packets || round % 5 == 1 && lost > chunk.head.packets;
        assert!(is_one, "{place}: {lost}, {:?}", search.account());
        assert!(search.account().unread() > 0 && !findings(root).is_empty(), "{place}");
        file.write_all_at(&[good[place as usize]], place).unwrap();
        fs::write(&index, &good_index).unwrap();
    }
    assert_eq!((found(&mut search(root, Window::ALL)).len(), findings(root)), (1500, Vec::new()));
    for len in [0, 100, 4096, 5000, 300_000, (4 << 20) - 1] {
        file.set_len(len).unwrap();
        let _ = fs::remove_file(&index);
        let mut search = search(root, Window::ALL);
        let numbers = found(&mut search);
        assert!(numbers.is_sorted() && search.account().unread() > 0, "{len}");
        let length = Finding::Length { segment: 1, len };
        assert!(findings(root).contains(&length), "{len}");
    }
}

#[test]
fn a_sealed_frame_that_is_none_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    record_range(root, &packed(), 0..300, 30);
    let catalog = Catalog::open(root).unwrap();
    let chunk = chunks_of(&catalog).into_iter().nth(4).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(catalog.segment_path(1)).unwrap();
    let mut bytes = vec![0; chunk.head.stored_len()];
    file.read_exact_at(&mut bytes, chunk.offset).unwrap();
    let frame = chunk.head.packing.unwrap().frame as usize;
    bytes[248..248 + frame].fill(0x28);
    seal(&mut bytes, &chunk.head);
    file.write_all_at(&bytes, chunk.offset).unwrap();
    assert!(ChunkHead::parse(&bytes).is_some());
    let mut all = search(root, Window::ALL);
    assert_eq!(found(&mut all).len() as u32, 300 - chunk.head.packets);
    assert_eq!(all.account().chunks_damaged, 1);
    // The chain ends there, as somebody wrote another chunk.
    assert!(!findings(root).is_empty());
    fs::remove_file(root.join("seg/00000001.tix")).unwrap();
    let repaired = repair(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((repaired.made, repaired.damaged), (1, 1));
    let wanted = ErasureScope {
        window: Window::ALL,
        filter: String::new(),
        options: Options::default(),
        why: String::new(),
    };
    let looked = Eraser::open(catalog, wanted).unwrap().look(&mut |_, _| true).unwrap();
    assert_eq!((looked.chunks_damaged, looked.is_balanced()), (1, true));
}

#[test]
fn levels_that_zstd_does_not_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for level in [-1, 0, 20, 1000] {
        let settings = RecorderSettings { compress: Some(level), ..SETTINGS };
        let refused = Recorder::open(folder.path(), settings, &ethernet(), at(0)).err();
        assert!(matches!(refused, Some(crate::Error::Setting(_))), "{level}");
    }
}
