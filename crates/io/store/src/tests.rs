//! Laws of the whole: recorded packets are found, and a search by keys misses none.

mod attacked;
mod broken_off;
mod compressed;
mod compressed_room;
mod gone;
mod keeping;
mod laws;

use laws::satisfies;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tapline_file::SectionReader;
use tapline_filter::{Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Headers, Interface, LinkType, Meta, Packet, Record, Selection, Timestamp};
use tapline_testkit::libpcap::Libpcap;
use tapline_testkit::random::Random;
use tapline_testkit::stock::{Stock, Texts};
use tapline_testkit::volume::volume;

use crate::index::Owner;
use crate::index::rollup::RollUp;
use crate::keys::{Class, OpenKeys, PacketKeys, key, open_key};
use crate::search::{Examine, Next, ParallelSearch};
use crate::walk::{FoundChunk, Walk};
use crate::{
    Catalog, Eraser, ErasureScope, Fact, Finding, Hold, IndexOptions, Losses, NameFilter, NameMatcher,
    Question, Recorder, RecorderSettings, SLOT_LEN, Search, SearchAccount, Window, check, repair, verify,
};

pub(crate) const SETTINGS: RecorderSettings = RecorderSettings {
    size: 16 << 20,
    segment_len: Some(4 << 20),
    keep_ns: None,
    flush_ns: 1_000_000_000,
    sync_ns: 5_000_000_000,
    snap_len: 262_144,
    index: Some(IndexOptions { macs: false, names: false }),
    cutoffs: Vec::new(),
    compress: None,
    keeps_room: true,
    is_live: true,
    overload: crate::Overload::Wait,
    buffers: 4,
};

/// A source that counts its losses, and has none.
pub(crate) const NO_LOSSES: Losses = Losses { received: None, lost: Some(0) };

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos(second * 1_000_000_000)
}

pub(crate) fn ethernet() -> Vec<Interface> {
    vec![Interface::new("far0", LinkType::ETHERNET)]
}

/// A packet whose bytes and time are its number's.
pub(crate) fn numbered(number: u64, len: usize) -> (Vec<u8>, Meta) {
    let mut data = vec![number as u8; len.max(22)];
    data[12..14].copy_from_slice(&[0x88, 0xb5]);
    data[14..22].copy_from_slice(&number.to_be_bytes());
    let meta = Meta { timestamp: at(number as i64), wire_len: len as u32, ..Meta::default() };
    (data, meta)
}

pub(crate) fn record(recorder: &mut Recorder, packets: &[(Vec<u8>, Meta)], now: Timestamp) {
    record_on(recorder, &ethernet(), packets, now);
}

pub(crate) fn record_on(
    recorder: &mut Recorder,
    interfaces: &[Interface],
    packets: &[(Vec<u8>, Meta)],
    now: Timestamp,
) {
    for (data, meta) in packets {
        let record = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta: *meta }];
        let mut all = Selection::none();
        all.select_all(1);
        recorder.write(&Batch::new(data, &record), &all, interfaces, now).unwrap();
    }
}

/// A search whose sections the caller takes one by one.
struct OneByOne {
    search: ParallelSearch<Vec<u8>>,
    window: Window,
    reader: SectionReader,
}

impl OneByOne {
    fn new(catalog: Arc<Catalog>, window: Window, question: Question) -> OneByOne {
        let search = Search::new(catalog, window, question).unwrap();
        let copy = |buffer: &mut Vec<u8>, place: Range<usize>, _| buffer[place].to_vec();
        let copies = Arc::new(move |_| Box::new(copy) as Examine<Vec<u8>>);
        let mut search = ParallelSearch::new(search, 1, None, copies);
        search.resume();
        OneByOne { search, window, reader: SectionReader::new() }
    }

    /// Goes on to the next packets; `None` at the end, where the account must balance.
    fn next(&mut self) -> Option<Batch<'_>> {
        while !self.reader.advance().unwrap() {
            match self.search.next(Duration::from_secs(60)) {
                Next::Found(sections) => {
                    let place = 0..sections.len();
                    self.reader.set_buffer(sections, place);
                }
                Next::Idle => panic!("nothing for a minute: {:?}", self.account()),
                Next::End => {
                    assert!(self.account().is_balanced(), "{:?}", self.account());
                    return None;
                }
            }
        }
        Some(self.reader.batch())
    }

    fn account(&self) -> SearchAccount {
        self.search.account()
    }
}

/// The numbers of the packets that a search finds in its chunks, in order.
fn found(search: &mut OneByOne) -> Vec<u64> {
    let (window, mut numbers) = (search.window, Vec::new());
    while let Some(batch) = search.next() {
        let in_window = |packet: &Packet<'_>| window.has(packet.meta.timestamp);
        let number = |packet: Packet<'_>| u64::from_be_bytes(*packet.data[14..].first_chunk().unwrap());
        numbers.extend(batch.iter().filter(in_window).map(number));
    }
    numbers
}

fn search(root: &Path, window: Window) -> OneByOne {
    OneByOne::new(Arc::new(Catalog::open(root).unwrap()), window, Question::Anything)
}

#[test]
fn what_is_recorded_is_found_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let mut recorder = Recorder::open(&root, SETTINGS, &ethernet(), at(0)).unwrap();
    let packets: Vec<_> = (0..4000).map(|number| numbered(number, 60 + number as usize % 1400)).collect();
    record(&mut recorder, &packets, at(0));
    recorder.finish(&[], Losses::default(), at(4000)).unwrap();
    let totals = recorder.totals();
    assert_eq!((totals.written, totals.lost, totals.buffered), (4000, 0, 0), "{:?}", recorder.news());
    assert_eq!(found(&mut search(&root, Window::ALL)), (0..4000).collect::<Vec<_>>());
    let window = Window { from: at(1000), to: at(1010) };
    assert_eq!(found(&mut search(&root, window)), (1000..1010).collect::<Vec<_>>());
    let verified = verify(&Catalog::open(&root).unwrap(), &mut |_, _| true).unwrap();
    assert_eq!((verified.packets, verified.findings), (4000, Vec::new()));
}

#[test]
fn the_oldest_segments_make_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0)).unwrap();
    let packets: Vec<_> = (0..30_000).map(|number| numbered(number, 1000)).collect();
    record(&mut recorder, &packets, at(0));
    recorder.finish(&[], Losses::default(), at(30_000)).unwrap();
    assert!(recorder.totals().recycled > 3, "{:?}", recorder.totals());
    let numbers = found(&mut search(folder.path(), Window::ALL));
    let first = numbers[0];
    assert!(first > 0 && numbers == (first..30_000).collect::<Vec<_>>());
    let verified = verify(&Catalog::open(folder.path()).unwrap(), &mut |_, _| true).unwrap();
    assert_eq!(verified.findings, Vec::new());
    let bytes: u64 = std::fs::read_dir(folder.path().join("seg"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| !entry.file_name().to_string_lossy().ends_with(".tix"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert_eq!(bytes, SETTINGS.size);
}

#[test]
fn a_broken_recording_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for round in 0..5u64 {
        let mut recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
        let packets: Vec<_> = (round * 1000..(round + 1) * 1000).map(|n| numbered(n, 500)).collect();
        record(&mut recorder, &packets, at(0));
        // What is old enough is written; then nothing is finished, as after a kill.
        recorder.tick(Losses::default(), &[], &ethernet(), at(2)).unwrap();
        drop(recorder);
        assert_eq!(found(&mut search(root, Window::ALL)), (0..(round + 1) * 1000).collect::<Vec<_>>());
    }
    let verified = verify(&Catalog::open(root).unwrap(), &mut |_, _| true).unwrap();
    assert_eq!((verified.packets, verified.findings), (5000, Vec::new()));
}

#[test]
fn one_store_has_one_recorder() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0)).unwrap();
    let second = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0));
    assert!(matches!(second, Err(crate::Error::Locked { .. })));
    assert!(Catalog::open(folder.path()).unwrap().is_recorded());
}

/// The findings of a look at all chunks.
fn findings(root: &Path) -> Vec<Finding> {
    verify(&Catalog::open(root).unwrap(), &mut |_, _| true).unwrap().findings
}

/// Records packets with these numbers, in chunks of `len` packets.
fn record_range(root: &Path, settings: &RecorderSettings, numbers: std::ops::Range<u64>, len: usize) {
    let mut recorder = Recorder::open(root, settings.clone(), &ethernet(), at(0)).unwrap();
    let packets: Vec<_> = numbers.map(|number| numbered(number, 500)).collect();
    for some in packets.chunks(len) {
        record(&mut recorder, some, at(0));
        recorder.tick(NO_LOSSES, &[], &ethernet(), at(2)).unwrap();
    }
    recorder.finish(&[], NO_LOSSES, at(9)).unwrap();
    assert_eq!(recorder.totals().lost, 0, "{:?}", recorder.news());
}

/// The chunks of the first segment.
fn chunks_of(catalog: &Catalog) -> Vec<FoundChunk> {
    let file = std::fs::File::open(catalog.segment_path(1)).unwrap();
    let mut walk = Walk::new(&file, catalog.id, 1, catalog.segment_len()).unwrap();
    std::iter::from_fn(|| walk.next()).collect()
}

#[test]
fn a_damaged_head_costs_one_chunk_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..100, 10);
    let catalog = Catalog::open(folder.path()).unwrap();
    let row = chunks_of(&catalog).into_iter().nth(5).unwrap();
    let path = catalog.segment_path(1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[row.offset as usize + 40] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    std::fs::remove_file(folder.path().join("seg/00000001.tix")).unwrap();
    let numbers = found(&mut search(folder.path(), Window::ALL));
    assert_eq!(numbers.len() as u32, 100 - row.head.packets);
}

#[test]
fn the_chain_goes_on_after_an_empty_segment() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..100, 10);
    let last = Catalog::open(folder.path()).unwrap().index(1).unwrap().summary.last_number;
    // As a recorder leaves it that is killed between renaming a segment and clearing it; then one killed at its first
    // chunk.
    std::fs::copy(folder.path().join("seg/00000001.pcapng"), folder.path().join("seg/00000002.pcapng"))
        .unwrap();
    record_range(folder.path(), &SETTINGS, 100..101, 10);
    let blank = vec![0; 4 << 20];
    std::fs::write(folder.path().join("seg/00000003.pcapng"), blank).unwrap();
    let _ = std::fs::remove_file(folder.path().join("seg/00000003.tix"));
    record_range(folder.path(), &SETTINGS, 101..102, 10);
    let catalog = Catalog::open(folder.path()).unwrap();
    let newest = *catalog.numbers().unwrap().last().unwrap();
    assert!(catalog.index(newest).unwrap().summary.last_number > last);
}

#[test]
fn a_store_grows_whatever_spares_are_left() {
    let folder = tempfile::tempdir().unwrap();
    for segments in [4, 5, 6, 9] {
        let settings = RecorderSettings { size: segments * (4 << 20), ..SETTINGS };
        let recorder = Recorder::open(folder.path(), settings, &ethernet(), at(0));
        let mut recorder = recorder.unwrap_or_else(|error| panic!("{segments}: {error}"));
        let packets: Vec<_> = (0..5000).map(|number| numbered(number, 1000)).collect();
        record(&mut recorder, &packets, at(0));
        recorder.finish(&[], Losses::default(), at(9)).unwrap();
        assert_eq!(
            std::fs::read_dir(folder.path().join("seg"))
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().metadata().unwrap().len() == 4 << 20)
                .count() as u64,
            segments
        );
    }
}

#[test]
fn new_interfaces_in_a_full_chunk_cost_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0)).unwrap();
    let packets: Vec<_> = (0..1020).map(|number| numbered(number, 960)).collect();
    record(&mut recorder, &packets, at(0));
    let many: Vec<_> = (0..1000).map(|at| Interface::new(&format!("far{at}"), LinkType::ETHERNET)).collect();
    let (data, meta) = numbered(1020, 960);
    let of_packet = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta }];
    let mut all = Selection::none();
    all.select_all(1);
    recorder.write(&Batch::new(&data, &of_packet), &all, &many, at(0)).unwrap();
    let too_many: Vec<_> =
        (0..9000).map(|at| Interface::new(&format!("far{at}"), LinkType::ETHERNET)).collect();
    assert!(recorder.write(&Batch::new(&data, &of_packet), &all, &too_many, at(0)).is_err());
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    let totals = recorder.totals();
    assert_eq!((totals.written, totals.lost, totals.buffered), (1021, 1, 0), "{:?}", recorder.news());
    assert_eq!(findings(folder.path()), Vec::new());
    assert_eq!(found(&mut search(folder.path(), Window::ALL)).len(), 1021);
}

#[test]
fn a_roll_up_tells_of_64_segments() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { size: 40 << 20, ..SETTINGS };
    let mut recorder = Recorder::open(folder.path(), settings, &ethernet(), at(0)).unwrap();
    // A kind of packet for each 1,000: 66 segments of 4 MiB and more.
    let kind = |number: u64| 0xa000 + (number / 1000) as u16;
    for first in (0..280_000).step_by(1000) {
        let mut packets: Vec<_> = (first..first + 1000).map(|number| numbered(number, 1000)).collect();
        packets.iter_mut().for_each(|(data, _)| data[12..14].copy_from_slice(&kind(first).to_be_bytes()));
        record(&mut recorder, &packets, at(0));
    }
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    let catalog = Catalog::open(folder.path()).unwrap();
    let numbers = catalog.numbers().unwrap();
    assert!(numbers[0] < 64 && numbers.len() == 10 && *numbers.last().unwrap() > 66, "{numbers:?}");
    let roll_up = RollUp::read(&catalog, 0).unwrap();
    let index = catalog.index(64).unwrap();
    assert_eq!(roll_up.times(64), Some((index.summary.first, index.summary.last)));
    assert_eq!((roll_up.times(65), roll_up.is_open(64, OpenKeys::All)), (None, false));
    let has = |kind: u16| roll_up.may_have(key(Class::EtherType, kind.into())).unwrap();
    let kinds_of = |segment: u64| -> Vec<u16> {
        let index = catalog.index(segment).unwrap();
        let has = |kind: &u16| index.slots(key(Class::EtherType, (*kind).into())).unwrap().count() > 0;
        (0xa000..0xa000 + 300).filter(has).collect()
    };
    let (there, beyond) = (kinds_of(64), kinds_of(*numbers.last().unwrap()));
    assert!(there.len() > 2 && there.iter().all(|kind| has(*kind)));
    assert!(beyond.iter().filter(|kind| has(**kind)).count() <= 1, "{beyond:?}");
}

#[test]
fn files_that_are_no_segments_stop_no_search() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..100, 10);
    let of = |name: &str| folder.path().join("seg").join(name);
    std::fs::create_dir(of("00000002.pcapng")).unwrap();
    std::os::unix::fs::symlink(of("00000001.pcapng"), of("00000003.pcapng")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(of("00000004.pcapng")).status().unwrap();
    assert!(pipe.success());
    // Longer than any disk; a walk of it would not end.
    let file = std::fs::File::create(of("00000005.pcapng")).unwrap();
    file.set_len(1 << 42).unwrap();
    std::fs::write(of("18446744073709551615.pcapng"), b"").unwrap();
    let mut all = search(folder.path(), Window::ALL);
    assert_eq!(found(&mut all), (0..100).collect::<Vec<_>>());
    assert_eq!(all.account().segments_unreadable, 3);
    let unreadable = |finding: &&Finding| matches!(finding, Finding::Unreadable { .. });
    assert_eq!(findings(folder.path()).iter().filter(unreadable).count(), 3);
}

#[test]
fn an_index_that_no_segment_can_have_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..100, 10);
    let path = folder.path().join("seg/00000001.tix");
    let good = std::fs::read(&path).unwrap();
    let catalog = Catalog::open(folder.path()).unwrap();
    let is_read = |place: usize, number: u32| {
        let mut bytes = good.clone();
        bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
        Owner { store: catalog.id, number: 1 }.reseal(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let index = catalog.index(1);
        index.is_some_and(|index| {
            index.rows().is_some() && index.slots(key(Class::EtherType, 0x88b5)).is_some()
        })
    };
    assert!(is_read(132, 1));
    // The segment's number; slots, keys, sets, their bytes; bits of a bucket, bytes of a set's number; pages of a slot;
    // a bucket.
    let bucket = 256 + 48 + 4 * (key(Class::EtherType, 0x88b5) >> 56) as usize;
    for (place, number) in [
        (24, 2),
        (132, u32::MAX),
        (132, 5000),
        (136, u32::MAX),
        (140, u32::MAX),
        (144, 1 << 30),
        (148, 63),
        (152, 9),
        (256 + 4, u32::MAX),
        (bucket, u32::MAX),
    ] {
        assert!(!is_read(place, number), "{place}");
    }
}

#[test]
fn mutated_files_give_what_was_recorded_or_less() {
    let folder = tempfile::tempdir().unwrap();
    record_range(folder.path(), &SETTINGS, 0..1500, 100);
    let paths = ["seg/00000001.tix", "seg/00000001.pcapng"].map(|name| folder.path().join(name));
    let goods = [0, 1].map(|at| std::fs::read(&paths[at]).unwrap());
    let mut random = Random::new(20);
    for round in 0..volume("TAPLINE_STORE_FAULTS", 60) as usize {
        let which = round % 2;
        let mut bad = goods[which].clone();
        let reach = if which == 0 { bad.len() } else { 1 << 20 };
        for _ in 0..=random.below(6) {
            let place = random.below(reach.min(bad.len()) as u64) as usize;
            match random.below(4) {
                0 => bad[place] ^= 1 << random.below(8),
                1 => bad[place..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
                2 => bad[place..].iter_mut().take(64).for_each(|byte| *byte = random.below(256) as u8),
                _ if which == 0 => bad.truncate(place.max(1)),
                _ => bad.copy_within(place..place + 4096, random.below(1 << 20) as usize),
            }
        }
        if which == 0 && round % 4 == 0 {
            Owner { store: Catalog::open(folder.path()).unwrap().id, number: 1 }.reseal(&mut bad);
        }
        std::fs::write(&paths[which], &bad).unwrap();
        if which == 1 && round % 4 == 1 {
            let _ = std::fs::remove_file(&paths[0]);
        }
        for question in [Question::Anything, Question::Is(Fact::of(Class::EtherType, 0x88b5))] {
            let catalog = Arc::new(Catalog::open(folder.path()).unwrap());
            let mut search = OneByOne::new(catalog, Window::ALL, question);
            let numbers = found(&mut search);
            assert!(numbers.is_sorted_by(|one, next| one < next), "round {round}");
            assert!(numbers.last().is_none_or(|last| *last < 1500), "round {round}");
        }
        let _ = findings(folder.path());
        std::fs::write(&paths[0], &goods[0]).unwrap();
        std::fs::write(&paths[1], &goods[1]).unwrap();
        // Sections as they come from anywhere.
        let mut reader = SectionReader::new();
        reader
            .refill(|buffer| {
                buffer.extend_from_slice(&bad[..bad.len().min(SLOT_LEN)]);
                Ok::<_, ()>(())
            })
            .unwrap();
        let mut batches = 0;
        while reader.advance().unwrap_or(false) {
            batches += 1;
            assert!(batches < 10_000);
        }
    }
}

#[test]
fn what_else_is_in_the_directory_keeps_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (other, root) = (folder.path().join("other"), folder.path());
    std::fs::write(&other, "not of the store").unwrap();
    let recorder = Recorder::open(root, SETTINGS, &ethernet(), at(0)).unwrap();
    let hold = Hold {
        name: "case".to_owned(),
        window: Window::ALL,
        filter: String::new(),
        made: at(0),
        why: String::new(),
    };
    Catalog::open(root).unwrap().hold(&hold).unwrap();
    if recorder.give_to(65_534, 65_534).is_err() {
        eprintln!("skipped: what_else_is_in_the_directory_keeps_its_owner: only root gives files away");
        return;
    }
    let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&std::fs::symlink_metadata(path).unwrap());
    assert_eq!((owner(root), owner(&other)), (0, 0));
    // A recorder of that user reads holds, and others of the user's make and release them.
    let own = ["store.toml", "lock", "log", "seg", "holds", "holds/case.toml", "reserve", "roll"];
    let kept: Vec<&str> = own.into_iter().filter(|name| owner(&root.join(name)) != 65_534).collect();
    assert_eq!(kept, Vec::<&str>::new());
}

#[test]
fn vlan_moves_the_headers_of_what_stands_behind_or() {
    // No tag, but what an IPv4 header behind one would be.
    let mut data = vec![0; 60];
    data[12..14].copy_from_slice(&[0x88, 0xb5]);
    data[16..18].copy_from_slice(&[0x08, 0x00]);
    data[18] = 0x45;
    data[27] = 6;
    data[30..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    data[38..42].copy_from_slice(&[0, 80, 0, 81]);
    let mut accepted = 0;
    for text in [
        "vlan or ip",
        "vlan 5 or tcp",
        "not vlan and ip",
        "not vlan and host 10.0.0.1",
        "(vlan or arp or ether[0] = 0) and tcp port 80",
        "(vlan and arp) or ip host 10.0.0.2",
        "not (vlan and vlan) and ether[20:2] = 0 or vlan or ip",
        "anyvlan(vlan) or ip",
        "vlan or (not arp and ip)",
    ] {
        let options = Options::default();
        let Ok(program) = compile(text, &options) else { continue };
        let question = Question::of(text, &options);
        accepted += u64::from(satisfies(&program, &question, LinkType::ETHERNET, &data, 60, text));
    }
    assert!(accepted > 4, "{accepted}");
    // Joined by `and` the tag is there, and keys have something to say.
    let keys = |text: &str| Question::of(text, &Options::default()).facts().len();
    assert_eq!((keys("vlan 5 and host 10.0.0.1"), keys("vlan and (vlan 7 and ip)")), (3, 3));
    // Of `ip` and of the tag; `arp` may stand behind either.
    assert_eq!(keys("ip or vlan and arp"), 2);
}

#[test]
fn packets_longer_than_a_slot_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0)).unwrap();
    let dbus = vec![Interface::new("bus", LinkType::DBUS)];
    for number in 0..6u64 {
        let (data, meta) = numbered(number, if number % 2 == 0 { SLOT_LEN + SLOT_LEN / 2 } else { 100 });
        let record = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta }];
        let mut all = Selection::none();
        all.select_all(1);
        recorder.write(&Batch::new(&data, &record), &all, &dbus, at(0)).unwrap();
    }
    recorder.finish(&[], Losses::default(), at(9)).unwrap();
    assert_eq!(recorder.totals().written, 6, "{:?}", recorder.news());
    assert_eq!(found(&mut search(folder.path(), Window::ALL)), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn flipped_bits_are_found_and_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::open(folder.path(), SETTINGS, &ethernet(), at(0)).unwrap();
    let packets: Vec<_> = (0..3000).map(|number| numbered(number, 900)).collect();
    record(&mut recorder, &packets, at(0));
    recorder.finish(&[], Losses::default(), at(3000)).unwrap();
    let path = folder.path().join("seg/00000001.pcapng");
    let good = std::fs::read(&path).unwrap();
    let mut random = Random::new(7);
    for _ in 0..volume("TAPLINE_STORE_FAULTS", 40) {
        let mut bad = good.clone();
        let place = random.below(2 << 20) as usize;
        bad[place] ^= 1 << random.below(8);
        std::fs::write(&path, &bad).unwrap();
        let findings = verify(&Catalog::open(folder.path()).unwrap(), &mut |_, _| true).unwrap().findings;
        let numbers = found(&mut search(folder.path(), Window::ALL));
        assert!(numbers.is_sorted() && numbers.len() <= 3000);
        // Bytes between the ends of a filler mean nothing.
        let is_harmless = findings.is_empty() && numbers.len() == 3000;
        let is_found = findings.iter().any(|finding| {
            matches!(finding, Finding::Damaged { .. } | Finding::Missing { .. } | Finding::Foreign { .. })
        });
        assert!(is_harmless || is_found && numbers.len() < 3000, "{place}: {findings:?}");
    }
}

/// Packets of Ethernet captures: bytes, times, lengths on the wire.
pub(crate) fn captured() -> Vec<(Vec<u8>, Meta)> {
    let mut packets = Vec::new();
    for path in tapline_testkit::surroundings::captures() {
        let Ok(mut file) = tapline_file::FileSource::open(&path) else { continue };
        if file.interfaces().iter().any(|interface| interface.link_type != LinkType::ETHERNET) {
            continue;
        }
        while let Ok(true) = file.advance() {
            let meta = |packet: &Packet<'_>| Meta { interface: Default::default(), ..*packet.meta };
            packets.extend(file.batch().iter().map(|packet| (packet.data.to_vec(), meta(&packet))));
        }
    }
    packets
}
