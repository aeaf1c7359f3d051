//! Compressed stores on disks that others fill: nothing goes for room that deleting cannot make.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tapline_filter::Options;
use tapline_packet::{Batch, Meta, Record, Selection};
use tapline_store::{
    Catalog, Eraser, ErasureScope, Error, Losses, Recorder, RecorderSettings, Window, check, verify,
};
use tapline_testkit::random::Random;

use super::failures::{SmallDisk, fill_up, record_all};
use super::packets::{all, at_ms, interfaces};
use super::recording::settings;

/// The store that the other process is to record to.
const WHAT: &str = "TAPLINE_TEST_FILE_LIMIT";

fn open(store: &Path, compress: Option<i32>) -> Result<Recorder, Error> {
    Recorder::open(store, RecorderSettings { compress, ..settings(8) }, &interfaces(), at_ms(0))
}

fn record(store: &Path, compress: Option<i32>, numbers: std::ops::Range<u64>) {
    let mut recorder = open(store, compress).unwrap();
    record_all(&mut recorder, numbers);
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    assert_eq!(recorder.totals().lost, 0, "{:?}", recorder.news());
}

/// A store of several compressed segments, and perhaps a plain one behind them, whose room is all it has.
fn without_spares(store: &Path, ends_plain: bool) -> Vec<u64> {
    record(store, Some(1), 0..25_000);
    if ends_plain {
        record(store, None, 25_000..25_100);
    }
    for entry in fs::read_dir(store.join("seg")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("spare-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let numbers = Catalog::open(store).unwrap().numbers().unwrap();
    assert!(numbers.len() > 4, "{numbers:?}");
    numbers
}

/// Fills a disk up to some bytes.
fn leave(disk: &Path, bytes: u64) {
    let _ = fs::remove_file(disk.join("others"));
    let free = tapline_sys::disk::space(disk).unwrap().free;
    let others = fs::File::create(disk.join("others")).unwrap();
    tapline_sys::disk::reserve(&others, free - bytes).unwrap();
}

#[test]
fn segments_that_make_too_little_room_stay() {
    let folder = tempfile::tempdir().unwrap();
    let test = "segments_that_make_too_little_room_stay";
    for (round, ends_plain) in [false, true].into_iter().enumerate() {
        let disk = folder.path().join(format!("disk{round}"));
        let Some(disk) = SmallDisk::mount(&disk, 40 << 10, test) else { return };
        let store = disk.0.join("store");
        let numbers = without_spares(&store, ends_plain);
        let before = all(&store);
        leave(&disk.0, 128 << 10);
        let refused = open(&store, Some(1)).err();
        assert!(matches!(refused, Some(Error::Crowded { .. })), "{refused:?}");
        let catalog = Catalog::open(&store).unwrap();
        assert_eq!((catalog.numbers().unwrap(), all(&store)), (numbers, before));
        assert_eq!(verify(&catalog, &mut |_, _| true).unwrap().findings, Vec::new());
        // With room on the disk it goes on.
        fs::remove_file(disk.0.join("others")).unwrap();
        record(&store, Some(1), 25_100..25_200);
        assert!(all(&store).ends_with(&(25_100..25_200).collect::<Vec<_>>()));
    }
}

#[test]
fn a_compressed_recording_goes_on_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_compressed_recording_goes_on_on_a_full_disk";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 40 << 10, test) else { return };
    let store = disk.0.join("store");
    record(&store, Some(1), 0..100_000);
    assert_eq!(all(&store).len(), 100_000);
    fill_up(&disk);
    let mut recorder = open(&store, Some(1)).unwrap();
    record_all(&mut recorder, 100_000..200_000);
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    let (totals, news) = (recorder.totals(), recorder.news());
    assert_eq!(totals.lost, 0, "{news:?}");
    // Each segment takes the place of few others.
    assert!((1..=2 * totals.segments).contains(&totals.recycled), "{totals:?}");
    assert!(news.iter().any(|line| line.contains("had to go: the disk is full")), "{news:?}");
    let found = all(&store);
    assert!(found == (found[0]..200_000).collect::<Vec<_>>());
    assert!(found.len() > 50_000, "{}", found.len());
    assert_eq!(verify(&Catalog::open(&store).unwrap(), &mut |_, _| true).unwrap().findings, Vec::new());
}

/// Records a batch each 100 ms of the recorder's clock, so that it tries again where it found no room.
fn record_on(recorder: &mut Recorder, numbers: std::ops::Range<u64>) {
    for first in numbers.step_by(100) {
        super::packets::record(recorder, first..first + 100, at_ms(0), at_ms(first as i64));
    }
}

/// Links to the files of segments keep their room, as another program does that takes it at once.
#[test]
fn deletions_that_make_no_room_end() {
    let folder = tempfile::tempdir().unwrap();
    let test = "deletions_that_make_no_room_end";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 40 << 10, test) else { return };
    let (store, links) = (disk.0.join("store"), disk.0.join("links"));
    record(&store, Some(1), 0..100_000);
    fill_up(&disk);
    let mut recorder = open(&store, Some(1)).unwrap();
    fs::create_dir(&links).unwrap();
    let link = |number: u64| {
        let name = format!("{number:08}.pcapng.zst");
        fs::hard_link(store.join("seg").join(&name), links.join(&name)).unwrap();
    };
    let numbers = Catalog::open(&store).unwrap().numbers().unwrap();
    numbers.iter().copied().for_each(link);
    record_on(&mut recorder, 100_000..200_000);
    let totals = recorder.totals();
    // For each segment one by the thread that prepares a file and one by the thread that writes, and one by each of them
    // for the segment that does not begin.
    let (few, many) = (2 * (totals.segments + 1), numbers.len() as u64);
    assert!(totals.lost > 0 && (1..=few).contains(&totals.recycled) && few < many / 2, "{totals:?} {many}");
    fs::remove_dir_all(&links).unwrap();
    record_on(&mut recorder, 200_000..300_000);
    recorder.finish(&[], Losses::default(), at_ms(0)).unwrap();
    let news = recorder.news();
    // All others together may be too small before a second one goes.
    let is_end = |line: &String| line.contains("made no room") || line.contains("which is too little");
    assert!(news.iter().any(is_end), "{news:?}");
    assert!(news.iter().any(|line| line.contains("the recording continues")), "{news:?}");
    assert_eq!(all(&store).last(), Some(&299_999), "{news:?}");
    assert_eq!(verify(&Catalog::open(&store).unwrap(), &mut |_, _| true).unwrap().findings, Vec::new());
}

#[test]
fn a_full_disk_is_not_one_without_holes() {
    let folder = tempfile::tempdir().unwrap();
    let test = "a_full_disk_is_not_one_without_holes";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 40 << 10, test) else { return };
    let store = disk.0.join("store");
    record(&store, None, 0..100);
    fill_up(&disk);
    let refused = open(&store, Some(1)).err();
    let is_full = |error: &Error| matches!(error, Error::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull);
    assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
    assert_eq!(all(&store), (0..100).collect::<Vec<_>>());
}

/// The other process, which may not make files as long as a segment: does nothing unless it is asked to.
#[test]
fn the_limited_process() {
    let Ok(store) = std::env::var(WHAT) else { return };
    let refused = open(Path::new(&store), Some(1)).err();
    assert!(matches!(refused, Some(Error::File { .. })), "{refused:?}");
}

#[test]
fn errors_that_room_does_not_mend_cost_no_segment() {
    let test = "errors_that_room_does_not_mend_cost_no_segment";
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let numbers = without_spares(&store, true);
    // The longest file is a byte shorter than a segment, and longer ones give EFBIG.
    let script = "trap '' XFSZ; exec prlimit --fsize=4194303 \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "full_disk::the_limited_process"]).env(WHAT, &store).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if said.contains("prlimit: not found") {
        eprintln!("skipped: {test}: there is no prlimit");
        return;
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(Catalog::open(&store).unwrap().numbers().unwrap(), numbers);
    assert_eq!(all(&store), (0..25_100).collect::<Vec<_>>());
}

/// Packets of words, which a high level compresses better than a low one.
fn record_words(store: &Path) -> u64 {
    let settings = RecorderSettings { compress: Some(19), keeps_room: false, ..settings(2) };
    let mut recorder = Recorder::open(store, settings, &interfaces(), at_ms(0)).unwrap();
    let mut random = Random::new(45);
    let mut word = |_| (0..3 + random.below(7)).map(|_| b'a' + random.below(26) as u8).collect();
    let words: Vec<Vec<u8>> = (0..4000).map(&mut word).collect();
    let count = 2500;
    for number in 0..count {
        let mut data = super::packets::bytes(number)[..50].to_vec();
        while data.len() < 1200 {
            data.extend_from_slice(random.pick::<Vec<u8>>(&words));
        }
        let len = data.len() as u32;
        let meta = Meta { timestamp: at_ms(number as i64), wire_len: len, ..Meta::default() };
        let mut all = Selection::none();
        all.select_all(1);
        let record = [Record { offset: 0, cap_len: len, options_len: 0, meta }];
        recorder.write(&Batch::new(&data, &record), &all, &interfaces(), at_ms(0)).unwrap();
    }
    recorder.finish(&[], Losses::default(), at_ms(9)).unwrap();
    assert_eq!(recorder.totals().written, count);
    count
}

/// An erasure of the packets of one host.
fn eraser(store: &Path) -> Eraser {
    let (filter, why) = (super::packets::host_of(100), String::new());
    let wanted = ErasureScope { window: Window::ALL, filter, options: Options::default(), why };
    Eraser::open(Catalog::open(store).unwrap(), wanted).unwrap()
}

#[test]
fn an_erasure_of_frames_has_its_room_before() {
    let folder = tempfile::tempdir().unwrap();
    let test = "an_erasure_of_frames_has_its_room_before";
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 20 << 10, test) else { return };
    let store = disk.0.join("store");
    let packets = record_words(&store);
    let looked = eraser(&store).look(&mut |_, _| true).unwrap();
    assert!(looked.packets_erased > 0 && looked.chunks_erased > 0, "{looked:?}");
    let mut refusals = 0;
    // From a disk that has no room for the journal to one that has it for the longer chunks too.
    for free in (1..).map(|step| step * (64 << 10)) {
        leave(&disk.0, free);
        let mut eraser = eraser(&store);
        let erased = eraser.erase(&mut |_, _| true);
        let account = eraser.account().clone();
        drop(eraser);
        assert!(account.is_balanced() && !store.join("rewrite").exists(), "{account:?}");
        let catalog = Catalog::open(&store).unwrap();
        let verified = verify(&catalog, &mut |_, _| true).unwrap();
        assert_eq!(
            (verified.findings, check(&catalog, &mut |_, _| true).unwrap().findings),
            (vec![], vec![])
        );
        match erased {
            Ok(erased) => {
                assert_eq!(erased.packets_erased, looked.packets_erased);
                assert_eq!(verified.packets, packets - looked.packets_erased);
                break;
            }
            Err(error) => {
                assert!(matches!(error, Error::NoRoomToErase { .. }), "{error:?}");
                let told = (account.packets_erased, account.packets_unwritten, verified.erased);
                assert_eq!(told, (0, looked.packets_erased, (0, 0)));
                assert_eq!(verified.packets, packets);
                refusals += 1;
            }
        }
    }
    assert!(refusals > 1);
}
