//! Disks that fail: calls give EIO and ENOSPC, writes are cut short, by chance.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tapline_filter::Options;
use tapline_packet::Timestamp;
use tapline_store::{
    Catalog, Eraser, ErasureScope, Error, Finding, Losses, Overload, Recorder, RecorderSettings, Window,
    verify,
};

use super::disk::Shim;
use super::faults;
use super::packets::{all, assert_keys_find_all, at_ms, find, interfaces, record};
use super::recording::{LOST_OF, Recording, RecordingReport, settings};

/// More segments than failures take out.
const SEGMENTS: u64 = 24;

#[test]
fn what_a_failing_disk_loses_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shim) = Shim::build(folder.path(), "what_a_failing_disk_loses_is_counted") else { return };
    let (mut lost, mut left) = (0, 0);
    for seed in 0..faults(4).max(4) {
        // Some disks fail once in a while, some for good.
        let share = [5, 30, 200, 1000][seed as usize % 4];
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let recording = Recording {
            store: root.join("store"),
            progress: folder.path().join("progress"),
            numbers: 0..6000,
            batch: 40,
            segments: SEGMENTS,
            failing: Some(folder.path().join("failing")),
            is_finished: true,
            overload: Overload::Wait,
            compress: if seed / 4 % 2 == 1 { Some(1) } else { None },
        };
        let mut command = recording.command();
        shim.fail(&mut command, &root, seed, share, &folder.path().join("failing"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let context = format!("seed {seed}, {share} of 1,000 calls fail:\n{said}");
        assert!(output.status.success(), "{context}");
        let told = recording.told();
        check(&recording.store, &told, &context);
        lost += told.lost;
        left += said.matches("the segment is left").count();
        fs::remove_dir_all(&root).unwrap();
        fs::remove_file(&recording.progress).unwrap();
    }
    eprintln!("{lost} packets were lost and counted; {left} segments were left");
    assert!(lost > 0 && left > 0);
}

fn check(store: &Path, told: &RecordingReport, context: &str) {
    assert!(told.is_over && told.written + told.lost == told.handed, "{told:?}\n{context}");
    if told.recycled > 0 {
        return;
    }
    let found = find(store, Window::ALL, "");
    assert_eq!(found.numbers.len() as u64, told.written, "{:?}\n{context}", found.account);
    assert!(found.numbers.iter().is_sorted_by(|one, next| one < next), "{context}");
    // The disk was well again at the end, so that all is told.
    assert_eq!(found.account.lost, told.handed / LOST_OF + told.lost, "{:?}\n{context}", found.account);
    assert_keys_find_all(store, &found.numbers, [0, 1500, 3000, 4499, 5999]);
    let findings = verify(&Catalog::open(store).unwrap(), &mut |_, _| true).unwrap().findings;
    let is_true = |finding: &Finding| !matches!(finding, Finding::Broken { .. } | Finding::Unreadable { .. });
    assert!(findings.iter().all(is_true), "{findings:?}\n{context}");
    let time = at_ms(10_000_000);
    let mut recorder = Recorder::open(store, settings(SEGMENTS), &interfaces(), time).unwrap();
    record(&mut recorder, 1_000_000..1_000_100, time, time);
    recorder.finish(&[], Losses::default(), time).unwrap();
    if recorder.totals().recycled == 0 {
        assert_eq!(all(store).len(), found.numbers.len() + 100, "{:?}\n{context}", recorder.news());
    }
}

/// Writes stop while half of the packets come; each policy drops the packets that it names, and counts them.
#[test]
fn a_slow_disk_costs_the_packets_of_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shim) = Shim::build(folder.path(), "a_slow_disk_costs_the_packets_of_the_policy") else {
        return;
    };
    let stalled = folder.path().join("stalled");
    for (at, policy) in Overload::LOSING.into_iter().enumerate() {
        let root = folder.path().join(format!("{policy:?}"));
        fs::create_dir(&root).unwrap();
        let recording = Recording {
            store: root.join("store"),
            progress: root.with_extension("progress"),
            numbers: 0..6000,
            batch: 40,
            segments: SEGMENTS,
            failing: Some(stalled.clone()),
            overload: policy,
            compress: None,
            is_finished: true,
        };
        let mut command = recording.command();
        shim.stall(&mut command, &root, &stalled);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let told = recording.told();
        assert!(told.is_over && told.lost == 0, "{told:?}\n{said}");
        let given_up: u64 = told.overload.iter().sum();
        assert!(given_up > 500, "{policy:?}: {told:?}");
        assert_eq!(told.written + given_up, told.handed, "{policy:?}: {told:?}");
        // Each by its reason; packets that find no buffer, under any policy.
        let others = [0, 1, 2].map(|one| if one == at || one == 0 { 0 } else { told.overload[one] });
        assert!(told.overload[at] > 0 && others == [0; 3], "{policy:?}: {told:?}");
        let found = find(&recording.store, Window::ALL, "");
        assert_eq!(found.numbers.len() as u64, told.written, "{policy:?}");
        // What came while the disk was well, but for chunks that still waited and were the oldest; of the packets
        // between the first or the last.
        let is_found = |number: u64| found.numbers.binary_search(&number).is_ok();
        let is_oldest = policy == Overload::Oldest;
        let first = if is_oldest { 0..1200 } else { 0..1600 };
        assert!(first.chain(4520..6000).all(is_found), "{policy:?}: {told:?}");
        assert_eq!(is_found(4519), is_oldest, "{policy:?}");
        // The store says it, by the policy.
        let catalog = Catalog::open(&recording.store).unwrap();
        let sealed: Vec<_> = catalog.segments().unwrap().iter().filter_map(|one| one.standing).collect();
        let by_policy = |at: usize| sealed.iter().map(|one| one.overload[at]).sum::<u64>();
        assert_eq!([0, 1, 2].map(by_policy), std::array::from_fn(|one| if one == at { given_up } else { 0 }));
        assert_eq!(sealed.iter().map(|one| one.dropped).sum::<u64>(), given_up);
        assert_keys_find_all(&recording.store, &found.numbers, [0, 1500, 3000, 4499, 5999]);
        let findings = verify(&catalog, &mut |_, _| true).unwrap().findings;
        assert!(findings.is_empty(), "{policy:?}: {findings:?}");
    }
}

/// A file system of its own, of a size that is known.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    pub(crate) fn mount(at: &Path, kib: u64, test: &str) -> Option<SmallDisk> {
        fs::create_dir(at).unwrap();
        let size = format!("size={kib}k");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at).output();
        if mount.is_ok_and(|output| output.status.success()) {
            return Some(SmallDisk(at.to_owned()));
        }
        eprintln!("skipped: {test}: no file system can be mounted here (root may)");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn open(store: &Path, segments: u64) -> Result<Recorder, Error> {
    let settings = RecorderSettings { size: segments * (4 << 20), ..settings(2) };
    Recorder::open(store, settings, &interfaces(), Timestamp::EPOCH)
}

#[test]
fn a_store_that_does_not_fit_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_store_that_does_not_fit_is_not_made";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 20 << 10, test) else { return };
    let store = disk.0.join("store");
    assert!(matches!(open(&store, 8), Err(Error::NoRoom { .. })));
    assert!(!store.exists());
    assert!(open(&store, 2).is_ok());
    // Nor does it grow beyond the disk, and what there is stays whole.
    assert!(matches!(open(&store, 8), Err(Error::NoRoom { .. })));
    let mut recorder = open(&store, 2).unwrap();
    record(&mut recorder, 0..100, at_ms(0), at_ms(0));
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    assert_eq!(all(&store), (0..100).collect::<Vec<_>>());
}

/// Hands packets to a recorder in batches, all with the same time.
pub(crate) fn record_all(recorder: &mut Recorder, packets: std::ops::Range<u64>) {
    for first in packets.step_by(100) {
        record(recorder, first..first + 100, at_ms(0), at_ms(0));
    }
}

/// Takes all room of a disk that is left.
pub(crate) fn fill_up(disk: &SmallDisk) {
    let free = tapline_sys::disk::space(&disk.0).unwrap().free;
    let others = fs::File::create(disk.0.join("others")).unwrap();
    tapline_sys::disk::reserve(&others, free).unwrap();
}

#[test]
fn a_recording_goes_on_in_its_room_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_recording_goes_on_in_its_room_on_a_full_disk";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 20 << 10, test) else { return };
    let store = disk.0.join("store");
    let mut recorder = open(&store, 4).unwrap();
    record_all(&mut recorder, 0..15_000);
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    // The log's room, and a part of that for indexes, is another's.
    let log = fs::OpenOptions::new().write(true).open(store.join("log")).unwrap();
    log.set_len(log.metadata().unwrap().len()).unwrap();
    fs::OpenOptions::new().write(true).open(store.join("reserve")).unwrap().set_len(4096).unwrap();
    fill_up(&disk);
    let mut recorder = open(&store, 4).unwrap();
    let news = recorder.news();
    assert!(news.iter().any(|line| line.contains("indexes and roll-ups")), "{news:?}");
    record_all(&mut recorder, 15_000..40_000);
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    assert_eq!(recorder.totals().lost, 0, "{:?}", recorder.news());
    let found = all(&store);
    assert_eq!(found, (found[0]..40_000).collect::<Vec<_>>());
}

#[test]
fn an_erasure_without_room_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let test = "an_erasure_without_room_changes_nothing";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 20 << 10, test) else { return };
    let store = disk.0.join("store");
    let mut recorder = open(&store, 2).unwrap();
    record_all(&mut recorder, 0..5000);
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    fill_up(&disk);
    let wanted = ErasureScope {
        window: Window::ALL,
        filter: "udp".to_owned(),
        options: Options::default(),
        why: String::new(),
    };
    let mut eraser = Eraser::open(Catalog::open(&store).unwrap(), wanted).unwrap();
    let refused = eraser.erase(&mut |_, _| true);
    assert!(matches!(refused, Err(Error::NoRoomToErase { .. })), "{refused:?}");
    let account = eraser.account().clone();
    assert!(account.is_balanced() && account.packets_unwritten > 0, "{account:?}");
    assert_eq!(account.packets_erased, 0);
    assert!(!store.join("rewrite").exists());
    assert_eq!(all(&store), (0..5000).collect::<Vec<_>>());
    drop(eraser);
    let checked = tapline_store::check(&Catalog::open(&store).unwrap(), &mut |_, _| true).unwrap();
    assert_eq!(checked.findings, Vec::new());
}

#[test]
fn a_full_disk_stops_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_full_disk_stops_no_recording";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 20 << 10, test) else { return };
    let store = disk.0.join("store");
    let mut recorder = open(&store, 4).unwrap();
    // Somebody else takes all that is left.
    fill_up(&disk);
    let packets = 0..40_000;
    for first in packets.clone().step_by(100) {
        record(&mut recorder, first..first + 100, at_ms(first as i64), at_ms(first as i64));
    }
    recorder.finish(&[], Losses::default(), at_ms(50_000)).unwrap();
    let totals = recorder.totals();
    assert_eq!((totals.written, totals.lost), (40_000, 0), "{:?}", recorder.news());
    assert!(totals.recycled > 0);
    // Room is kept for indexes too.
    let segments = Catalog::open(&store).unwrap().segments().unwrap();
    assert!(segments.iter().all(|segment| segment.standing.is_some()), "{segments:?}");
    let found = all(&store);
    assert_eq!(found, (found[0]..40_000).collect::<Vec<_>>());
    assert!(found.len() > 10_000);
    assert_keys_find_all(&store, &found, [found[0] + 50, 39_999]);
}
