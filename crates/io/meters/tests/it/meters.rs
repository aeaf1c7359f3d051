//! Meters and their readers: the view of a second process, the remains, the refusals.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tapline_meters::{Cost, Error, Kind, Meters, Reader, SlotState};

/// Set for the second process: the folder that it counts in.
const CHILD: &str = "TAPLINE_TEST_CHILD";

fn batch(packets: u64) -> Cost {
    let bytes = packets * 64;
    Cost {
        cycles: packets * 20,
        packets_in: packets,
        bytes_in: bytes,
        packets_out: packets,
        bytes_out: bytes,
    }
}

#[test]
fn a_reader_sees_the_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let meters = Meters::create_in(folder.path(), "tapline run web.graph").expect("a file");
    let path = meters.path().expect("a file").to_owned();
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o644);
    let [process] = &Reader::list_in(folder.path())[..] else { panic!("one process") };
    assert_eq!((process.pid, process.title.as_str()), (std::process::id(), "tapline run web.graph"));
    assert!(process.frequency_hz > 0 && process.clock.is_some());

    let reader = Reader::open(&process.path).expect("the file");
    assert!(reader.snapshot().expect("nothing yet").is_empty() && reader.is_alive());
    let source = meters.source("eth0", "device", 0);
    let filter = meters.slot("web", "filter", 1);
    source.add(&batch(256));
    source.add(&batch(1));
    let matches = filter.extra("matches").expect("room");
    matches.add(9);
    let snapshots = reader.snapshot().expect("two slots");
    assert_eq!(snapshots, [source.snapshot(), filter.snapshot()]);
    assert_eq!((snapshots[0].kind, snapshots[0].packets_in, snapshots[0].batches), (Kind::Source, 257, 2));
    assert_eq!(snapshots[1].extras, [("matches".to_owned(), 9)]);

    drop((filter, matches));
    assert_eq!(reader.snapshot().expect("two slots")[1].state, SlotState::Retired);
    drop(meters);
    assert!(path.exists(), "a meter still counts");
    drop(source);
    assert!(!path.exists() && !reader.is_alive());
    assert_eq!(reader.snapshot().expect("what was last").len(), 2);
}

/// Not a test by itself: the second process of the next one.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let meters = Meters::create_in(Path::new(&folder), "child").expect("a file");
    let meter = meters.slot("stage", "count", 0);
    meter.add(&batch(100));
    println!("ready");
    loop {
        thread::park();
    }
}

#[test]
fn files_of_killed_processes_are_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "meters::child", "--nocapture"])
        .env(CHILD, folder.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("a second process");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut output, &mut line).expect("its output") > 0, "it ended");
    }
    let [process] = &Reader::list_in(folder.path())[..] else { panic!("one process") };
    assert_eq!(process.pid, child.id());
    let reader = Reader::open(&process.path).expect("its file");
    assert_eq!(reader.snapshot().expect("its counters")[0].packets_in, 100);
    assert!(reader.is_alive());

    child.kill().expect("our child");
    child.wait().expect("our child");
    assert!(!reader.is_alive());
    assert_eq!(reader.snapshot().expect("its last counters")[0].packets_in, 100);
    assert!(process.path.exists());
    assert!(Reader::list_in(folder.path()).is_empty());
    assert!(!process.path.exists());
}

#[test]
fn a_process_has_several_files_and_many_slots() {
    let folder = tempfile::tempdir().expect("a folder");
    let all: Vec<Meters> =
        (0..3).map(|_| Meters::create_in(folder.path(), "one of three").expect("a file")).collect();
    assert_eq!(Reader::list_in(folder.path()).len(), 3);
    let reader = Reader::open(all[1].path().expect("a file")).expect("the file");
    for round in 1..=3000_u64 {
        let meter = all[1].slot("stage", "count", 0);
        meter.add(&batch(round));
        if round % 100 > 0 && round > 10 {
            continue;
        }
        let snapshots = reader.snapshot().expect("the counters");
        let last = snapshots.iter().max_by_key(|snapshot| snapshot.packets_in).expect("a slot");
        assert_eq!((last.packets_in, last.state), (round, SlotState::Used));
        assert_eq!(snapshots.len() as u64, round.min(1024));
    }
}

#[test]
fn a_file_that_shrinks_is_an_error_and_no_signal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("77.meters");
    let meters = Meters::create_in(folder.path(), "whole").expect("a file");
    let meter = meters.slot("stage", "count", 0);
    meter.add(&batch(1));
    fs::copy(meters.path().expect("a file"), &path).expect("a copy");
    let reader = Reader::open(&path).expect("the copy");
    assert_eq!(reader.snapshot().expect("the copy").len(), 1);
    let copy = OpenOptions::new().write(true).open(&path).expect("the copy");
    for len in [2047, 1025, 1024, 1023, 1, 0] {
        copy.set_len(len).expect("our file");
        assert!(matches!(reader.snapshot(), Err(Error::Ended { .. })), "{len} bytes");
    }
    assert!(matches!(Reader::open(&path), Err(Error::Ended { .. })));
}

#[test]
fn foreign_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let meters = Meters::create_in(folder.path(), "whole").expect("a file");
    let path = folder.path().join("foreign");
    let refused = |offset: u64, bytes: &[u8], words: &str| {
        fs::copy(meters.path().expect("a file"), &path).expect("a copy");
        let copy = OpenOptions::new().write(true).open(&path).expect("the copy");
        copy.write_all_at(bytes, offset).expect("the copy");
        let error = Reader::open(&path).expect_err("foreign").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(0, b"\x7fELF", "TAPMETER");
    refused(8, &0x0102_0304_0506_0708_u64.swap_bytes().to_ne_bytes(), "other byte order");
    refused(8, &[9; 8], "byte 8");
    refused(16, &2_u64.to_ne_bytes(), "version 2");
    refused(24, &u64::MAX.to_ne_bytes(), "not a process");
    refused(64, &7_u64.to_ne_bytes(), "7 slots");
    assert!(matches!(Reader::open(folder.path()), Err(Error::Foreign { .. })));
    assert!(matches!(Reader::open(&folder.path().join("none")), Err(Error::Io { .. })));
}

#[test]
fn hostile_counters_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let meters = Meters::create_in(folder.path(), "whole").expect("a file");
    let meter = meters.slot("stage", "count", 0);
    let path = folder.path().join("foreign");
    fs::copy(meters.path().expect("a file"), &path).expect("a copy");
    let copy = OpenOptions::new().write(true).open(&path).expect("the copy");
    // All slots used, all full of the largest numbers, names that are not UTF-8; states that exist.
    copy.write_all_at(&u64::MAX.to_ne_bytes(), 80).expect("the copy");
    for slot in 1..=1024_u64 {
        let mut bytes = [0xff; 1024];
        bytes[..8].copy_from_slice(&1_u64.to_ne_bytes());
        copy.write_all_at(&bytes, slot * 1024).expect("the copy");
    }
    let snapshots = Reader::open(&path).expect("the copy").snapshot().expect("the copy");
    assert_eq!(snapshots.len(), 1024);
    let [merged] = &tapline_meters::merge_workers(&snapshots)[..] else { panic!("one name") };
    assert_eq!((merged.packets_in, merged.histogram.packets()), (u64::MAX, u64::MAX));
    assert!(merged.percentile(0.5).is_some() && !merged.to_json().is_empty());
    drop(meter);
}

#[test]
fn counters_are_read_whole() {
    // Both halves of the counter are always equal; a reading that mixes two moments of one word would show.
    const STEP: u64 = 0x1_0000_0001;
    let folder = tempfile::tempdir().expect("a folder");
    let meters = Meters::create_in(folder.path(), "whole").expect("a file");
    let meter = meters.slot("stage", "count", 0);
    let reader = Reader::open(meters.path().expect("a file")).expect("the file");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                meter.add(&Cost { bytes_in: STEP, packets_in: 1, ..Cost::default() });
            }
        });
        let mut last = 0;
        for _ in 0..2000 {
            let bytes = reader.snapshot().expect("the counters")[0].bytes_in;
            assert_eq!(bytes >> 32, bytes & 0xffff_ffff);
            assert!(bytes >= last);
            last = bytes;
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    File::create(&file).expect("a file");
    let error = Meters::create_in(&file.join("below"), "x").expect_err("below a file");
    assert!(error.to_string().contains("below"), "{error}");
}

#[test]
fn a_pipe_for_a_file_makes_no_reader_wait() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("1.meters");
    tapline_sys::disk::make_pipe(&path).expect("there is room");
    let error = Reader::open(&path).expect_err("it is a pipe");
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}
