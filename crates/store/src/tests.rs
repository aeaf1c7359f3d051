//! Laws of the whole: what is recorded is found, and by keys nothing is missed.

use std::path::Path;
use std::sync::Arc;

use tapline_file::SectionReader;
use tapline_filter::bpf::Program;
use tapline_filter::{Options, compile};
use tapline_packet::{Batch, Interface, LinkType, Meta, Packet, Record, Selection, Timestamp};
use tapline_testkit::libpcap::Libpcap;
use tapline_testkit::random::Random;
use tapline_testkit::stock::{Stock, Texts};

use crate::keys::{Class, PacketKeys, key};
use crate::{
    Catalog, Finding, Losses, Question, Recorder, RecorderSettings, SLOT_LEN, Search, Window, verify,
};

const SETTINGS: RecorderSettings = RecorderSettings {
    size: 16 << 20,
    segment_len: Some(4 << 20),
    keep_ns: None,
    flush_ns: 1_000_000_000,
    sync_ns: 5_000_000_000,
    snap_len: 262_144,
    buffers: 4,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_nanos(second * 1_000_000_000)
}

fn ethernet() -> Vec<Interface> {
    vec![Interface::new("far0", LinkType::ETHERNET)]
}

/// A packet whose bytes and time are its number's.
fn numbered(number: u64, len: usize) -> (Vec<u8>, Meta) {
    let mut data = vec![number as u8; len.max(22)];
    data[12..14].copy_from_slice(&[0x88, 0xb5]);
    data[14..22].copy_from_slice(&number.to_be_bytes());
    let meta = Meta { timestamp: at(number as i64), wire_len: len as u32, ..Meta::default() };
    (data, meta)
}

fn record(recorder: &mut Recorder, packets: &[(Vec<u8>, Meta)], now: Timestamp) {
    for (data, meta) in packets {
        let record = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta: *meta }];
        let mut all = Selection::none();
        all.select_all(1);
        recorder.write(&Batch::new(data, &record), &all, &ethernet(), now).unwrap();
    }
}

/// The numbers of the packets that a search finds in its chunks, in order.
fn found(search: &mut Search) -> Vec<u64> {
    let mut reader = SectionReader::new();
    let mut numbers = Vec::new();
    loop {
        let mut is_there = false;
        reader.refill(|buffer| search.next(buffer).map(|there| is_there = there)).unwrap();
        if !is_there {
            assert!(search.account().is_balanced(), "{:?}", search.account());
            return numbers;
        }
        while reader.advance().unwrap() {
            let in_window = |packet: &Packet<'_>| search.window().has(packet.meta.timestamp);
            let number = |packet: Packet<'_>| u64::from_be_bytes(*packet.data[14..].first_chunk().unwrap());
            numbers.extend(reader.batch().iter().filter(in_window).map(number));
        }
    }
}

fn search(root: &Path, window: Window) -> Search {
    Search::new(Arc::new(Catalog::open(root).unwrap()), window, Question::Anything).unwrap()
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
    for _ in 0..200 {
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
fn captured() -> Vec<(Vec<u8>, Meta)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
        .unwrap_or_default();
    paths.sort();
    let mut packets = Vec::new();
    for path in paths {
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

#[test]
fn a_search_finds_what_a_scan_finds() {
    let packets = captured();
    if packets.is_empty() {
        eprintln!("skipped: a_search_finds_what_a_scan_finds: there are no captures beside the repository");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let settings = RecorderSettings { size: 256 << 20, ..SETTINGS };
    let mut recorder = Recorder::open(folder.path(), settings, &ethernet(), at(0)).unwrap();
    for some in packets.chunks(64) {
        record(&mut recorder, some, at(0));
        // Small chunks, so that keys have something to tell apart.
        recorder.tick(Losses::default(), &[], &ethernet(), at(0)).unwrap();
    }
    recorder.finish(&[], Losses::default(), at(1)).unwrap();
    assert_eq!(recorder.totals().written, packets.len() as u64, "{:?}", recorder.news());
    let catalog = Arc::new(Catalog::open(folder.path()).unwrap());
    let texts_max = std::env::var("TAPLINE_STORE_TEXTS").map_or(300, |texts| texts.parse().unwrap());
    let mut texts = tapline_testkit::expressions::Expressions::new(11, 1);
    let (mut done, mut passed_over) = (0, 0);
    while done < texts_max {
        let text = texts.text();
        let options = Options::default();
        let Ok(program) = compile(&text, &options) else { continue };
        done += 1;
        let accepts = |packet: &Packet<'_>| program.run(*packet) != 0;
        // Number and checksum of the packets that are accepted, in order.
        let add = |(count, sum): (usize, u32), packet: Packet<'_>| {
            (count + 1, crc32c::crc32c_append(sum, packet.data))
        };
        let all = packets.iter().map(|(data, meta)| Packet { data, meta });
        let scanned = all.filter(&accepts).fold((0, 0), add);
        let question = Question::of(&text, &options);
        let mut search = Search::new(Arc::clone(&catalog), Window::ALL, question).unwrap();
        let mut reader = SectionReader::new();
        let mut found = (0, 0);
        loop {
            let mut is_there = false;
            reader.refill(|buffer| search.next(buffer).map(|there| is_there = there)).unwrap();
            if !is_there {
                break;
            }
            while reader.advance().unwrap() {
                found = reader.batch().iter().filter(&accepts).fold(found, add);
            }
        }
        let account = search.account();
        assert_eq!(found, scanned, "{text:?}: {account:?}");
        assert!(account.is_balanced() && account.chunks_damaged == 0, "{text:?}: {account:?}");
        passed_over += account.chunks_by_keys + account.segments_by_keys;
    }
    assert!(passed_over > 0);
}

#[test]
fn a_filter_finds_no_packet_beside_its_keys() {
    let Ok(pcap) = Libpcap::get() else {
        eprintln!("skipped: a_filter_finds_no_packet_beside_its_keys: no libpcap reads the captures");
        return;
    };
    let seed = std::env::var("TAPLINE_STORE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let texts_max = std::env::var("TAPLINE_STORE_TEXTS").map_or(3000, |texts| texts.parse().unwrap());
    let mut random = Random::new(seed);
    let (stock, mut texts) = (Stock::new(pcap, &mut random), Texts::new(&mut random));
    let (mut accepted, mut by_keys) = (0, 0);
    for _ in 0..texts_max {
        let wording = texts.wording(&mut random);
        let options = Options {
            link_type: LinkType::from_dlt(wording.dlt as u16),
            scoped: wording.scoped,
            ipv6_extensions: wording.ipv6_extensions,
            ..Options::default()
        };
        let Ok(program) = compile(&wording.text, &options) else { continue };
        let question = Question::of(&wording.text, &options);
        by_keys += u64::from(question != Question::Anything);
        for _ in 0..24 {
            let mut sample = stock.sample_for(&wording, &mut random);
            if random.one_of(1, 4) {
                sample.data.truncate(random.below(80) as usize);
            }
            accepted += u64::from(satisfies(
                &program,
                &question,
                options.link_type,
                &sample.data,
                sample.wire_len,
                &wording.text,
            ));
        }
    }
    assert!(accepted > texts_max / 2 && by_keys > texts_max / 8, "{accepted} accepted, {by_keys} with keys");
}

/// Whether the packet is accepted; if so its keys answer the question.
fn satisfies(
    program: &Program,
    question: &Question,
    link_type: LinkType,
    data: &[u8],
    wire_len: u32,
    text: &str,
) -> bool {
    let meta = Meta { wire_len, ..Meta::default() };
    let packet = Packet { data, meta: &meta };
    if program.run(packet) == 0 {
        return false;
    }
    let mut keys = PacketKeys::new();
    keys.take(link_type, packet);
    let has = |wanted: u64| keys.as_slice().contains(&wanted);
    assert!(
        has(key(Class::Open, 0)) || question.holds(&has),
        "{text:?} accepts a packet without its keys, link type {link_type}: {data:02x?}"
    );
    true
}
