//! Erasures that are killed, and disks that fail under them: what must go goes, nothing else is lost.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tapline_filter::Options;
use tapline_store::{
    Catalog, Eraser, ErasureAccount, ErasureScope, Finding, Losses, Recorder, RecorderSettings, Window,
    check, repair, verify,
};
use tapline_testkit::random::Random;

use super::disk::{Disk, DiskCommand, Manner, Shim, read_log};
use super::faults;
use super::packets::{PACKETS_OF_HOST, all, assert_keys_find_all, at_ms, host_of, interfaces, record};
use super::recording::settings;

/// The store that the other process is to erase from.
const WHAT: &str = "TAPLINE_TEST_ERASING";
const PACKETS: u64 = 16_000;
const SEGMENTS: u64 = 6;
/// Hosts of which every packet must go.
const HOSTS: std::ops::Range<u64> = 10..15;

fn wanted() -> ErasureScope {
    let hosts: Vec<String> = HOSTS.map(|host| host_of(host * 20 * PACKETS_OF_HOST)).collect();
    ErasureScope {
        window: Window::ALL,
        filter: hosts.join(" or "),
        options: Options::default(),
        why: "a test".to_owned(),
    }
}

fn must_go(number: &u64) -> bool {
    HOSTS.map(|host| host * 20).any(|host| number / PACKETS_OF_HOST == host)
}

/// A store of several segments whose recorder ended.
fn make(store: &Path, compress: Option<i32>) {
    let settings = RecorderSettings { compress, ..settings(SEGMENTS) };
    let mut recorder = Recorder::open(store, settings, &interfaces(), at_ms(0)).unwrap();
    for from in (0..PACKETS).step_by(200) {
        let time = at_ms(from as i64);
        record(&mut recorder, from..from + 200, time, time);
        recorder.tick(Losses::default(), &[], &interfaces(), time).unwrap();
    }
    recorder.finish(&[], Losses::default(), at_ms(PACKETS as i64)).unwrap();
    assert_eq!(recorder.totals().recycled, 0);
}

fn erase(store: &Path) -> ErasureAccount {
    let mut eraser = Eraser::open(Catalog::open(store).unwrap(), wanted()).unwrap();
    let looked = eraser.look(&mut |_, _| true).unwrap();
    let erased = eraser.erase(&mut |_, _| true).unwrap();
    assert_eq!(looked, erased);
    assert!(erased.is_balanced(), "{erased:?}");
    erased
}

/// The other process: does nothing unless it is asked to by the environment.
#[test]
fn the_erasing_process() {
    let Ok(store) = std::env::var(WHAT) else { return };
    erase(Path::new(&store));
}

/// This program again, one test of it alone.
fn process(test: &str, what: &str, store: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(what, store);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn command(store: &Path) -> Command {
    process("erasing::the_erasing_process", WHAT, store)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => fs::copy(entry.path(), to.join(entry.file_name())).map(|_| ()).unwrap(),
        }
    }
}

/// Ends an erasure that something cut off, and looks at what is left.
fn finish(store: &Path, told: &str) {
    // Whatever was killed, the next who takes the lock leaves only whole chunks.
    let repaired = repair(&Catalog::open(store).unwrap(), &mut |_, _| true).unwrap();
    assert!(repaired.is_balanced() && repaired.unreadable + repaired.damaged == 0, "{told}: {repaired:?}");
    let between = all(store);
    let lost = (0..PACKETS)
        .filter(|number| !must_go(number))
        .filter(|number| between.binary_search(number).is_err());
    assert_eq!(lost.count(), 0, "{told}: packets of others are lost");
    erase(store);
    is_erased(store, told);
}

#[track_caller]
fn is_erased(store: &Path, told: &str) {
    let left: Vec<u64> = (0..PACKETS).filter(|number| !must_go(number)).collect();
    assert!(all(store) == left, "{told}");
    assert_keys_find_all(store, &left, [0, 200 * PACKETS_OF_HOST, 201 * PACKETS_OF_HOST, PACKETS - 1]);
    let catalog = Catalog::open(store).unwrap();
    assert_eq!(verify(&catalog, &mut |_, _| true).unwrap().findings, Vec::new(), "{told}");
    let checked = check(&catalog, &mut |_, _| true).unwrap();
    assert!(checked.findings.is_empty() && checked.is_balanced(), "{told}: {checked:?}");
    assert!(!store.join("rewrite").exists());
    // Not even the bytes are there any more.
    for number in [200 * PACKETS_OF_HOST, 280 * PACKETS_OF_HOST + 7] {
        let bytes = super::packets::bytes(number);
        for entry in fs::read_dir(store.join("seg")).unwrap().flatten() {
            let file = fs::read(entry.path()).unwrap();
            let is_there = memchr::memmem::find(&file, &bytes).is_some();
            assert!(!is_there, "{told}: packet {number} is in {}", entry.path().display());
        }
    }
}

#[test]
fn what_is_erased_is_gone_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    make(&store, None);
    let account = erase(&store);
    assert_eq!(account.packets_erased, PACKETS_OF_HOST * 5);
    assert!(account.segments_by_keys > 0 && account.chunks_by_keys > 0, "the index passes over: {account:?}");
    is_erased(&store, "");
    let again = erase(&store);
    assert_eq!((again.packets_erased, again.chunks_erased), (0, 0));
    let log = fs::read_to_string(store.join("log")).unwrap();
    assert!(log.contains("\"erasing\"") && log.contains("a test") && log.contains("\"erased\""), "{log}");
    // A recorder goes on behind it, and the chain joins.
    let mut recorder = Recorder::open(&store, settings(SEGMENTS), &interfaces(), at_ms(90_000)).unwrap();
    assert!(matches!(
        Eraser::open(Catalog::open(&store).unwrap(), wanted()),
        Err(tapline_store::Error::Locked { .. })
    ));
    record(&mut recorder, 20_000..20_010, at_ms(90_000), at_ms(90_000));
    recorder.finish(&[], Losses::default(), at_ms(90_000)).unwrap();
    assert_eq!(verify(&Catalog::open(&store).unwrap(), &mut |_, _| true).unwrap().findings, Vec::new());
}

#[test]
fn a_killed_erasure_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let made = [None, Some(1)].map(|compress| {
        let made = folder.path().join(format!("made-{compress:?}"));
        make(&made, compress);
        made
    });
    let mut random = Random::new(std::process::id().into());
    let kills = faults(6);
    let mut cut_off = 0;
    for kill in 0..kills {
        copy(&made[kill as usize % 2], &store);
        let mut child = command(&store).spawn().unwrap();
        sleep(Duration::from_micros(random.below(60_000)));
        child.kill().unwrap();
        cut_off += u64::from(!child.wait().unwrap().success());
        finish(&store, &format!("kill {kill}"));
        fs::remove_dir_all(&store).unwrap();
    }
    eprintln!("{kills} erasures: {cut_off} killed, all ended");
}

/// After every call that the disk got, power fails in each manner.
#[test]
fn power_failures_cost_an_erasure_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let test = "power_failures_cost_an_erasure_no_packet";
    let Some(shim) = Shim::build(folder.path(), test) else { return };
    let (root, log) = (folder.path().join("root"), folder.path().join("log"));
    fs::create_dir(&root).unwrap();
    // The disk is told of the store too: it is written with the library in between.
    let mut making = process("erasing::the_making_process", MAKING, &root.join("store"));
    shim.log(&mut making, &root, &log);
    assert!(making.output().unwrap().status.success());
    let made = read_log(&log, &root).len();
    let mut erasing = command(&root.join("store"));
    shim.log(&mut erasing, &root, &log);
    assert!(erasing.output().unwrap().status.success());
    let told = read_log(&log, &root);
    let seed = std::env::var("TAPLINE_STORE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random::new(seed);
    let mut disk = Disk::default();
    (0..made).for_each(|at| disk.follow(&told, at));
    let every = (told.len() - made).div_ceil(faults(20) as usize).max(1);
    let mut images = 0;
    for at in made..told.len() {
        disk.follow(&told, at);
        if !(at - made).is_multiple_of(every) {
            continue;
        }
        let manner = *random.pick(&[Manner::Cut, Manner::Torn, Manner::Reordered]);
        let image = folder.path().join("image");
        fs::create_dir(&image).unwrap();
        disk.image(&told, at, manner, &mut random, &image);
        finish(&image.join("store"), &format!("seed {seed}: {manner:?} behind {at} ({:?})", kind(&told[at])));
        fs::remove_dir_all(&image).unwrap();
        images += 1;
    }
    eprintln!("{images} images of {} calls", told.len() - made);
}

fn kind(told: &DiskCommand) -> &'static str {
    match told {
        DiskCommand::Write { .. } => "a write",
        DiskCommand::Length { .. } => "a length",
        DiskCommand::Create { .. } => "a new file",
        DiskCommand::Rename { .. } => "a new name",
        DiskCommand::Remove { .. } => "a file removed",
        DiskCommand::Folder { .. } => "a folder",
        DiskCommand::Sync { .. } => "fsync",
        DiskCommand::SyncFolder => "fsync of a folder",
    }
}

/// The store that the other process is to make.
const MAKING: &str = "TAPLINE_TEST_MAKING";

/// The other process: does nothing unless it is asked to by the environment.
#[test]
fn the_making_process() {
    let Ok(store) = std::env::var(MAKING) else { return };
    make(Path::new(&store), None);
}

#[test]
fn a_repair_makes_indexes_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    make(&store, None);
    let catalog = Catalog::open(&store).unwrap();
    let index = |number: u64| store.join(format!("seg/{number:08}.tix"));
    let before = fs::read(index(1)).unwrap();
    fs::remove_file(index(1)).unwrap();
    let mut damaged = fs::read(index(2)).unwrap();
    let end = damaged.len() - 100;
    damaged[end] ^= 1;
    fs::write(index(2), damaged).unwrap();
    let segments: Vec<Vec<u8>> = catalog
        .numbers()
        .unwrap()
        .iter()
        .map(|number| fs::read(store.join(format!("seg/{number:08}.pcapng"))).unwrap())
        .collect();
    let checked = check(&catalog, &mut |_, _| true).unwrap();
    assert_eq!(checked.findings, [Finding::NoIndex { segment: 1 }, Finding::IndexDamaged { segment: 2 }]);
    assert!(checked.findings.iter().all(Finding::is_mendable) && checked.is_balanced());
    let repaired = repair(&catalog, &mut |_, _| true).unwrap();
    assert_eq!((repaired.made, repaired.segments, repaired.damaged), (2, segments.len() as u64, 0));
    assert_eq!(check(&catalog, &mut |_, _| true).unwrap().findings, Vec::new());
    assert_eq!(fs::read(index(1)).unwrap().len(), before.len());
    assert_eq!(repair(&catalog, &mut |_, _| true).unwrap().made, 0);
    assert_eq!(all(&store).len() as u64, PACKETS);
    assert_keys_find_all(&store, &(0..PACKETS).collect::<Vec<_>>(), [0, 5_000, 15_999]);
    for (number, bytes) in catalog.numbers().unwrap().iter().zip(&segments) {
        assert!(
            fs::read(store.join(format!("seg/{number:08}.pcapng"))).unwrap() == *bytes,
            "segment {number}"
        );
    }
}
