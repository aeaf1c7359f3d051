use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tapline_file::SectionReader;

use super::*;
use crate::chunk::is_intact;
use crate::layout::{PAGE_LEN, filler};
use crate::tests::{SETTINGS, at, ethernet, numbered, record};
use crate::walk::{FoundChunk, Walk};
use crate::{Catalog, Losses, Question, Recorder, RecorderSettings};

const WAIT: Duration = Duration::from_secs(60);

fn search(root: &Path, window: Window) -> Search {
    Search::new(Arc::new(Catalog::open(root).unwrap()), window, Question::Anything).unwrap()
}

/// The numbers of the packets in sections.
fn numbers(reader: &mut SectionReader, buffer: &mut Vec<u8>, place: Range<usize>) -> Vec<u64> {
    let mut numbers = Vec::new();
    reader.set_buffer(std::mem::take(buffer), place);
    while reader.advance().unwrap() {
        let batch = reader.batch();
        numbers
            .extend(batch.iter().map(|packet| u64::from_be_bytes(*packet.data[14..].first_chunk().unwrap())));
    }
    *buffer = reader.take_buffer();
    numbers
}

fn parallel(search: Search, threads: usize) -> ParallelSearch<Vec<u64>> {
    let examiners = |_| {
        let mut reader = SectionReader::new();
        Box::new(move |buffer: &mut Vec<u8>, place, _| numbers(&mut reader, buffer, place))
            as Examine<Vec<u64>>
    };
    ParallelSearch::new(search, threads, None, Arc::new(examiners))
}

/// The numbers of all packets in the chunks that a search reads, in its order, and its account.
fn all(search: Search, threads: usize) -> (Vec<u64>, SearchAccount) {
    let mut search = parallel(search, threads);
    search.resume();
    let mut numbers = Vec::new();
    loop {
        match search.next(WAIT) {
            Next::Found(found) => numbers.extend(found),
            Next::Idle => panic!("nothing for {WAIT:?}: {:?}", search.account()),
            Next::End => break,
        }
    }
    let account = search.account();
    assert!(account.is_balanced() && (account.segments_left, account.chunks_left) == (0, 0), "{account:?}");
    (numbers, account)
}

fn recorded(root: &Path, settings: RecorderSettings, packets: Range<u64>) -> Recorder {
    let mut recorder = Recorder::open(root, settings, &ethernet(), at(0)).unwrap();
    let packets: Vec<_> = packets.map(|number| numbered(number, 60 + number as usize * 7 % 1400)).collect();
    for some in packets.chunks(700) {
        record(&mut recorder, some, at(0));
        recorder.tick(Losses::default(), &[], &ethernet(), at(2)).unwrap();
    }
    recorder
}

#[test]
fn threads_find_what_one_finds_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { size: 64 << 20, ..SETTINGS };
    recorded(folder.path(), settings, 0..40_000).finish(&[], Losses::default(), at(9)).unwrap();
    for window in [
        Window::ALL,
        Window { from: at(9_000), to: at(31_000) },
        Window { from: at(99_999), to: at(99_999_999) },
    ] {
        // One is the caller's.
        let (expected, account) = all(search(folder.path(), window), 1);
        for threads in [2, 7] {
            assert!(all(search(folder.path(), window), threads) == (expected.clone(), account), "{threads}");
        }
        assert!(expected.is_sorted() && (window != Window::ALL || expected.len() == 40_000));
    }
}

#[test]
fn results_that_nobody_takes_are_few() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { size: 64 << 20, ..SETTINGS };
    recorded(folder.path(), settings, 0..40_000).finish(&[], Losses::default(), at(9)).unwrap();
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let examiners = move |_| {
        let made = Arc::clone(&count);
        let examine = move |_: &mut Vec<u8>, _, _| {
            made.fetch_add(1, Ordering::Relaxed);
        };
        Box::new(examine) as Examine<()>
    };
    let mut search = ParallelSearch::new(search(folder.path(), Window::ALL), 2, None, Arc::new(examiners));
    search.resume();
    // Threads work until there is no room; then the first result is taken, and they go on by one.
    let settles_at = |count: usize| {
        let begun = std::time::Instant::now();
        while made.load(Ordering::Relaxed) < count {
            assert!(begun.elapsed() < WAIT, "{} results of {count}", made.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(1));
        }
        // Time for one that should not be made.
        thread::sleep(Duration::from_millis(200));
        assert_eq!(made.load(Ordering::Relaxed), count);
    };
    settles_at(6);
    assert_eq!(search.next(WAIT), Next::Found(()));
    settles_at(7);
    // An account at any time is one of all segments and chunks.
    search.pause();
    let account = search.account();
    assert!(account.is_balanced() && account.chunks_left > 0, "{account:?}");
}

#[test]
fn a_paused_search_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), SETTINGS, 0..9_000).finish(&[], Losses::default(), at(9)).unwrap();
    let mut search = parallel(search(folder.path(), Window::ALL), 2);
    let mut numbers = Vec::new();
    loop {
        search.resume();
        match search.next(WAIT) {
            Next::Found(found) => numbers.extend(found),
            Next::Idle => panic!("nothing for {WAIT:?}"),
            Next::End => break,
        }
        search.pause();
        assert!(search.account().is_balanced(), "{:?}", search.account());
    }
    assert!(numbers == (0..9_000).collect::<Vec<_>>());
}

#[test]
#[should_panic(expected = "an examiner's fault")]
fn a_panic_of_a_thread_is_the_callers() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path(), SETTINGS, 0..10).finish(&[], Losses::default(), at(9)).unwrap();
    let fault = |_: &mut Vec<u8>, place: Range<usize>, _| assert!(place.is_empty(), "an examiner's fault");
    let examine = move |_| Box::new(fault) as Examine<()>;
    let mut search = ParallelSearch::new(search(folder.path(), Window::ALL), 2, None, Arc::new(examine));
    search.resume();
    while search.next(WAIT) != Next::End {}
}

#[test]
fn segments_may_be_recycled_under_a_search() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = recorded(root, SETTINGS, 0..20_000);
    let mut gone = 0;
    for round in 1..=6u64 {
        let mut search = parallel(search(root, Window::ALL), 2);
        search.resume();
        let mut found = match search.next(WAIT) {
            Next::Found(found) => found,
            other => panic!("{other:?}"),
        };
        // While one result was taken, the recorder goes once round.
        let packets: Vec<_> = (round * 20_000..(round + 1) * 20_000).map(|n| numbered(n, 700)).collect();
        for some in packets.chunks(700) {
            record(&mut recorder, some, at(0));
            recorder.tick(Losses::default(), &[], &ethernet(), at(2)).unwrap();
        }
        while let Next::Found(more) = search.next(WAIT) {
            found.extend(more);
        }
        assert!(found.is_sorted_by(|one, next| one < next), "round {round}");
        let account = search.account();
        assert!(account.is_balanced() && account.chunks_damaged == 0, "{account:?}");
        gone += account.chunks_gone + account.segments_gone;
    }
    assert!(gone > 0);
}

#[test]
fn a_moved_store_is_searched_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    recorded(&old, SETTINGS, 0..9_000).finish(&[], Losses::default(), at(9)).unwrap();
    std::fs::rename(&old, &new).unwrap();
    assert!(all(search(&new, Window::ALL), 2).0 == (0..9_000).collect::<Vec<_>>());
}

#[test]
fn a_recording_is_followed_over_segments() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = recorded(root, SETTINGS, 0..1_000);
    let mut followed = search(root, Window::ALL);
    followed.follow();
    let mut search = parallel(followed, 2);
    search.resume();
    let mut found = Vec::new();
    for round in 1..8u64 {
        let until = round * 1_000;
        while (found.len() as u64) < until {
            match search.next(WAIT) {
                Next::Found(more) => found.extend(more),
                other => panic!("{other:?} after {} packets", found.len()),
            }
        }
        // Threads may still be looking at the chunks behind the last packet.
        for _ in 0..60_000 {
            assert_eq!(search.next(Duration::from_millis(1)), Next::Idle, "round {round}");
            if search.is_waiting() {
                break;
            }
        }
        assert!(search.is_waiting() && search.account().is_balanced(), "{:?}", search.account());
        let packets: Vec<_> = (until..until + 1_000).map(|number| numbered(number, 1_400)).collect();
        record(&mut recorder, &packets, at(0));
        recorder.tick(Losses::default(), &[], &ethernet(), at(2)).unwrap();
    }
    assert!(found == (0..7_000).collect::<Vec<_>>());
    assert!(search.account().segments > 1, "{:?}", search.account());
}

#[test]
fn a_segment_that_is_renamed_is_followed() {
    for compress in [(None, Some(1)), (Some(1), None)] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        // Killed before its first chunk.
        drop(recorded(root, RecorderSettings { compress: compress.0, ..SETTINGS }, 0..0));
        let mut followed = search(root, Window::ALL);
        followed.follow();
        let mut search = parallel(followed, 2);
        search.resume();
        assert_eq!(search.next(Duration::from_millis(1)), Next::Idle);
        while !search.is_waiting() || search.account().segments_walked == 0 {
            assert_eq!(search.next(Duration::from_millis(1)), Next::Idle);
        }
        let mut recorder = recorded(root, RecorderSettings { compress: compress.1, ..SETTINGS }, 0..1_000);
        recorder.tick(Losses::default(), &[], &ethernet(), at(2)).unwrap();
        let names = ["00000001.pcapng", "00000001.pcapng.zst"];
        let is_there = names.map(|name| root.join("seg").join(name).exists());
        assert_eq!(is_there, [compress.1.is_none(), compress.1.is_some()]);
        let mut found = Vec::new();
        while found.len() < 1_000 {
            match search.next(WAIT) {
                Next::Found(more) => found.extend(more),
                other => panic!("{compress:?}: {other:?}, {:?}", search.account()),
            }
        }
        assert!(found == (0..1_000).collect::<Vec<_>>());
        assert_eq!(search.account().chunks_damaged, 0);
    }
}

#[test]
fn a_follower_counts_what_was_recycled() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = recorded(root, SETTINGS, 0..100);
    recorder.tick(Losses::default(), &[], &ethernet(), at(2)).unwrap();
    let mut followed = search(root, Window::ALL);
    followed.follow();
    let mut search = parallel(followed, 2);
    search.resume();
    let mut found = Vec::new();
    while found.len() < 100 {
        match search.next(WAIT) {
            Next::Found(more) => found.extend(more),
            other => panic!("{other:?}"),
        }
    }
    // Some dozen segments of which four stay, while the follower does not look.
    for from in (100..40_100).step_by(1_000) {
        let packets: Vec<_> = (from..from + 1_000).map(|number| numbered(number, 1_400)).collect();
        record(&mut recorder, &packets, at(0));
    }
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    while found.last() != Some(&40_099) {
        match search.next(WAIT) {
            Next::Found(more) => found.extend(more),
            other => panic!("{other:?} after {} packets", found.len()),
        }
    }
    while !search.is_waiting() {
        assert_eq!(search.next(Duration::from_millis(1)), Next::Idle);
    }
    let account = search.account();
    let numbers = Catalog::open(root).unwrap().numbers().unwrap();
    assert!(found.len() < 30_000 && account.is_balanced(), "{account:?}");
    assert_eq!(Some(&account.segments), numbers.last());
    let between = numbers[0] - 2;
    assert!(account.segments_gone == between && account.chunks_gone > 0, "{numbers:?} {account:?}");
}

#[test]
fn a_chunk_written_after_a_later_one_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut recorder = recorded(root, SETTINGS, 0..700);
    // The end of a slot, and the start of the next one: two writes that are on their way together.
    let packets: Vec<_> = (700..1_400).map(|number| numbered(number, 1_000)).collect();
    record(&mut recorder, &packets, at(0));
    recorder.tick(Losses::default(), &[], &ethernet(), at(2)).unwrap();
    let catalog = Catalog::open(root).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(catalog.segment_path(1)).unwrap();
    let chunks = || {
        let mut walk = Walk::new(&file, catalog.id, 1, catalog.segment_len).unwrap();
        std::iter::from_fn(|| walk.next()).collect::<Vec<_>>()
    };
    let is_whole = |chunk: &FoundChunk| {
        let mut bytes = vec![0; chunk.head.len as usize];
        file.read_exact_at(&mut bytes, chunk.offset).unwrap();
        is_intact(&bytes, &chunk.head)
    };
    let begun = Instant::now();
    while chunks().iter().filter(|chunk| is_whole(chunk)).map(|chunk| chunk.head.packets).sum::<u32>() < 1_400
    {
        assert!(begun.elapsed() < WAIT, "{:?}", chunks());
        thread::sleep(Duration::from_millis(1));
    }
    let chunks = chunks();
    let late = chunks.iter().rev().nth(1).unwrap();
    assert!(late.offset % SLOT_LEN as u64 > 0 && chunks.len() > 2, "{chunks:?}");

    // Before it was written, its place had the fillers that came with the first chunk of the slot.
    let (start, len) = (late.offset, late.head.len as usize);
    let mut written = vec![0; len];
    file.read_exact_at(&mut written, start).unwrap();
    let fillers: Vec<_> = std::iter::repeat_n(filler(PAGE_LEN), len / PAGE_LEN).flatten().collect();
    file.write_all_at(&fillers, start).unwrap();
    let mut followed = search(root, Window::ALL);
    followed.follow();
    let mut search = parallel(followed, 2);
    search.resume();
    let mut found = Vec::new();
    let before =
        1_400 - chunks[chunks.len() - 2..].iter().map(|chunk| chunk.head.packets as usize).sum::<usize>();
    while found.len() < before {
        match search.next(WAIT) {
            Next::Found(more) => found.extend(more),
            other => panic!("{other:?} after {} packets", found.len()),
        }
    }
    assert_eq!((found.len(), search.next(4 * LOOK)), (before, Next::Idle));
    file.write_all_at(&written, start).unwrap();
    while found.len() < 1_400 {
        match search.next(WAIT) {
            Next::Found(more) => found.extend(more),
            other => panic!("{other:?} after {} packets", found.len()),
        }
    }
    assert!(found == (0..1_400).collect::<Vec<_>>());
}
