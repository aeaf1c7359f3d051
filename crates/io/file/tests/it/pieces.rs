//! Files that several threads read in pieces: packets, interfaces, errors and accounts are those of one thread, wherever
//! the pieces are cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use tapline_file::{ByteOrder, FileInput, FilePieces, MergeOrder, PieceCounts};
use tapline_packet::{BATCH_MAX, Batch, Interface};
use tapline_source::{Advance, Event, InterfaceAccount, Piece, PieceReader, Source};
use tapline_testkit::surroundings::captures_or_skip;
use tapline_testkit::volume::volume;

use crate::samples::{Bytes, Noise, ORDERS, Read, data, mutate, packets, small_files};

const WAIT: Duration = Duration::from_millis(100);

/// All that a file gave. Packets are counted as delivered by those who lend them: here by nobody.
#[derive(Debug, PartialEq)]
struct Whole {
    packets: Vec<Read>,
    interfaces: Vec<Interface>,
    error: Option<String>,
    account: Vec<InterfaceAccount>,
    events: Vec<Event>,
}

fn open(path: &Path) -> Option<FileInput> {
    Some(FileInput::new(vec![FileInput::open_file(path).ok()?], MergeOrder::Given))
}

/// The end of a source: its account without packets delivered, and its events.
fn end(source: &mut dyn Source) -> (Vec<InterfaceAccount>, Vec<Event>) {
    let mut account = source.account();
    account.iter_mut().for_each(|account| account.delivered = 0);
    (account, source.events())
}

/// Reads a file by one thread.
fn alone(path: &Path) -> Option<Whole> {
    let mut input = open(path)?;
    let mut all = Vec::new();
    let error = loop {
        match input.advance(WAIT) {
            Ok(Advance::Batch) => all.extend(packets(&input.batch())),
            Ok(_) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    let (account, events) = end(&mut input);
    Some(Whole { packets: all, interfaces: input.interfaces().to_vec(), error, account, events })
}

/// Reads a file in pieces, by several threads. `None` if it has to be read by one.
fn in_pieces(path: &Path, threads: usize, piece_len: usize) -> Option<(Whole, PieceCounts)> {
    let pieces = FilePieces::cut(&mut open(path)?, threads, piece_len, 0)?;
    let found = Mutex::new((Vec::new(), None));
    std::thread::scope(|scope| {
        let take = || {
            let mut piece = Piece::default();
            loop {
                match pieces.read(&mut piece, WAIT) {
                    Ok(Advance::Batch) => found.lock().unwrap().0.push(read_piece(&piece)),
                    Ok(Advance::Idle) => {}
                    Ok(Advance::End) => break,
                    Err(error) => {
                        let former = found.lock().unwrap().1.replace(error.to_string());
                        assert_eq!(former, None, "an error comes once");
                    }
                }
            }
        };
        (1..threads).for_each(|_| drop(scope.spawn(take)));
        take();
    });
    let (mut found, error) = found.into_inner().unwrap();
    found.sort_by_key(|(number, ..)| *number);
    let mut all = Vec::new();
    for (at, (number, start, packets)) in found.into_iter().enumerate() {
        assert_eq!((number, start), (at as u64, all.len() as u64), "numbers have no gaps");
        all.extend(packets);
    }
    let mut ended = None;
    pieces.look(&mut |source| ended = Some(end(source)));
    let (account, events) = ended?;
    Some((
        Whole { packets: all, interfaces: pieces.interfaces_from(0), error, account, events },
        pieces.counts(),
    ))
}

fn read_piece(piece: &Piece) -> (u64, u64, Vec<Read>) {
    let batches = piece.records.chunks(BATCH_MAX).map(|records| Batch::new(&piece.bytes, records));
    (piece.number, piece.start, batches.flat_map(|batch| packets(&batch)).collect())
}

/// Compares pieces of these lengths with the whole file, and adds up how they were parsed.
fn check(path: &Path, what: &str, threads: &[usize], lens: impl IntoIterator<Item = usize>) -> PieceCounts {
    let whole = alone(path);
    let mut sum = PieceCounts::default();
    for len in lens {
        for &threads in threads {
            let Some((found, counts)) = in_pieces(path, threads, len) else { continue };
            assert_eq!(Some(&found), whole.as_ref(), "{what}: {threads} threads, pieces of {len} bytes");
            sum.ahead += counts.ahead;
            sum.in_turn += counts.in_turn;
        }
    }
    sum
}

/// A folder for one file.
struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample");
        Place { _folder: folder, path }
    }

    fn holding(&self, bytes: &[u8]) -> &Path {
        fs::write(&self.path, bytes).unwrap();
        &self.path
    }
}

#[test]
fn pieces_cut_at_every_byte_are_the_file() {
    let place = Place::new();
    for (name, file) in small_files() {
        let path = place.holding(&file.bytes);
        check(path, name, &[1, 2, 7], 1..=file.bytes.len());
        for cut in 0..file.bytes.len() {
            check(place.holding(&file.bytes[..cut]), &format!("{name} cut at {cut}"), &[1], [1, 17, 64]);
        }
    }
}

/// Records of both orders and units, small enough for chains in short pieces.
fn many_packets(order: ByteOrder, magic: u32, snap_len: u32) -> Bytes {
    let mut file = Bytes::new(order);
    file.pcap_header(magic, (2, 4), snap_len, 1);
    for at in 0..60 {
        file.pcap_record((1_700_000_000 + at, at * 1000), 90, &[], &data(at as usize % 41));
    }
    file
}

#[test]
fn likely_starts_are_found_at_every_cut() {
    let place = Place::new();
    for order in ORDERS {
        for (magic, snap_len) in [(0xa1b2_c3d4, 65_535), (0xa1b2_3c4d, 0)] {
            let file = many_packets(order, magic, snap_len);
            let path = place.holding(&file.bytes);
            let counts = check(path, &format!("{order:?} {magic:x}"), &[1, 3], 150..700);
            assert!(counts.ahead > counts.in_turn, "{counts:?}");
        }
    }
}

/// Packets whose data are records of a capture file, as if they were those of this one.
#[test]
fn records_within_packets_are_no_starts() {
    let place = Place::new();
    let inner = &many_packets(ByteOrder::Little, 0xa1b2_c3d4, 0).bytes[24..];
    let mut file = Bytes::new(ByteOrder::Little);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 65_535, 1);
    for at in 0..12u32 {
        let from = at as usize * 7;
        file.pcap_record((1_700_000_000, at), 5000, &[], &inner[from..from + 900]);
    }
    let counts = check(place.holding(&file.bytes), "inner", &[1, 2], 300..1300);
    assert!(counts.in_turn > 0, "{counts:?}");
    let mut zeros = Bytes::new(ByteOrder::Big);
    zeros.pcap_header(0xa1b2_c3d4, (2, 4), 65_535, 1);
    for at in 0..40 {
        zeros.pcap_record((0, at), 200, &[], &[0; 150]);
    }
    check(place.holding(&zeros.bytes), "zeros", &[2], (1..2000).step_by(7));
}

/// Sections, interfaces, statistics, other blocks and odd lengths between packets of all kinds.
fn busy_pcapng(order: ByteOrder, packets: u32) -> Bytes {
    let mut file = Bytes::new(order);
    file.section(&[(4, b"hand")]).interface(1, 65_535, &[(2, b"eth0"), (9, &[9])]);
    let drops = 7u64.to_ne_bytes();
    for at in 0..packets {
        match at % 97 {
            50 => file.interface(1, 65_535, &[(2, b"eth1")]),
            60 => file.section(&[]).interface(1, 40, &[(2, b"eth0"), (9, &[9])]),
            70 => file.block(0x0bad, b"whatever it is"),
            80 => {
                let body = file.body(|body| {
                    body.u32(0).u32(1).u32(2).u16(5).u16(8).u64(9).u32(0);
                });
                file.block(5, &body)
            }
            _ => &mut file,
        };
        let (ticks, bytes) = (1_700_000_000_000_000_000 + u64::from(at), data(at as usize % 37));
        let options: &[(u16, &[u8])] = match at % 7 {
            2 => &[(1, b"note")],
            4 => &[(4, &drops)],
            _ => &[],
        };
        match at % 11 {
            3 => {
                let body = file.body(|body| {
                    body.u32(30).padded(&data(30));
                });
                file.block(3, &body).packet_ends_here();
            }
            5 => {
                let body = file.body(|body| {
                    body.u16(0).u16(2).u32(0).u32(at).u32(20).u32(60).padded(&data(20));
                });
                file.block(2, &body).packet_ends_here();
            }
            _ => {
                file.enhanced(0, ticks, &bytes, 100, options);
            }
        }
    }
    file
}

#[test]
fn sections_and_interfaces_between_pieces() {
    let place = Place::new();
    // One length in three; `TAPLINE_PIECES=3` takes all.
    let some = 3 / volume("TAPLINE_PIECES", 1).clamp(1, 3) as usize;
    for order in ORDERS {
        // Opening parses a batch; pieces begin behind it.
        let file = busy_pcapng(order, 256 + 300);
        let path = place.holding(&file.bytes);
        let lens = (1..9).chain((250..2500).step_by(13 * some));
        let counts = check(path, &format!("{order:?}"), &[1, 3], lens);
        assert_eq!(counts.ahead > 0, order == ByteOrder::NATIVE, "{counts:?}");
        for cut in (file.bytes.len() - 3000..file.bytes.len()).step_by(3 * some) {
            check(place.holding(&file.bytes[..cut]), &format!("cut at {cut}"), &[2], [777]);
        }
    }
}

#[test]
fn packets_longer_than_pieces_are_whole() {
    let place = Place::new();
    let mut pcap = Bytes::new(ByteOrder::Little);
    pcap.pcap_header(0xa1b2_c3d4, (2, 4), 262_144, 1);
    let mut pcapng = busy_pcapng(ByteOrder::Little, 256);
    for len in [40_000, 10, 70_000, 17_000, 0, 200_000, 90] {
        pcap.pcap_record((1, 2), 300_000, &[], &data(len));
        pcapng.enhanced(0, 3, &data(len), 300_000, &[]).block(0x0bad, &data(len));
    }
    for (name, file) in [("pcap", pcap), ("pcapng", pcapng)] {
        check(place.holding(&file.bytes), name, &[1, 2], [1000, 16_384, 16_385, 50_000, 1 << 20]);
    }
}

/// Buffers of very long packets do not stay with the pieces behind them.
#[test]
fn memory_of_very_long_packets_is_freed() {
    const LONG: usize = 2 << 20;
    let place = Place::new();
    let mut file = Bytes::new(ByteOrder::Little);
    // D-Bus allows packets of 128 MiB.
    file.pcap_header(0xa1b2_c3d4, (2, 4), 1 << 27, 231);
    for _ in 0..4 {
        file.pcap_record((1, 0), LONG as u32, &[], &vec![0; LONG]);
    }
    for at in 0..2000 {
        file.pcap_record((2, at), 100, &[], &data(100));
    }
    let pieces = FilePieces::cut(&mut open(place.holding(&file.bytes)).unwrap(), 1, 16 << 10, 0).unwrap();
    // Several are held at a time, as by workers.
    let mut held = [const { None }; 3];
    let (mut long, mut short) = (0, 0);
    for turn in 0.. {
        let piece: &mut Piece = held[turn % held.len()].get_or_insert_default();
        match pieces.read(piece, WAIT).unwrap() {
            Advance::Batch => {}
            Advance::Idle => continue,
            Advance::End => break,
        }
        if piece.records.iter().any(|record| record.cap_len as usize == LONG) {
            long += 1;
        } else {
            short += 1;
            assert!(piece.bytes.capacity() < LONG, "piece {turn} has a buffer of {}", piece.bytes.capacity());
        }
    }
    assert_eq!((long, short > 10), (4, true), "{short} pieces of short packets");
}

/// Damage anywhere ends the pieces where it ends the file, with its words.
#[test]
fn mutated_files_end_alike() {
    let place = Place::new();
    let mut files = vec![many_packets(ByteOrder::Big, 0xa1b2_c3d4, 100).bytes];
    files.extend(ORDERS.map(|order| busy_pcapng(order, 256 + 90).bytes));
    for seed in 1..=600u64 {
        let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = files[noise.below(files.len())].clone();
        // Behind what opening parses.
        let mut tail = bytes.split_off(if bytes.len() > 8000 { bytes.len() - 4000 } else { 24 });
        mutate(&mut tail, &mut noise);
        bytes.extend(tail);
        let len = 1 + noise.below(1500);
        check(place.holding(&bytes), &format!("seed {seed}"), &[1 + noise.below(3)], [len]);
    }
}

#[test]
fn captures_are_the_same_in_pieces() {
    let Some(captures) = captures_or_skip("captures_are_the_same_in_pieces") else { return };
    let mut sum = PieceCounts::default();
    for path in captures {
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 4 << 20) {
            continue;
        }
        let counts = check(&path, &path.display().to_string(), &[1, 2, 3, 7], [1500, 5000]);
        (sum.ahead, sum.in_turn) = (sum.ahead + counts.ahead, sum.in_turn + counts.in_turn);
    }
    assert!(sum.ahead > 0 && sum.in_turn > 0, "{sum:?}");
}

#[test]
fn streams_and_packed_files_stay_whole() {
    let place = Place::new();
    let file = many_packets(ByteOrder::Little, 0xa1b2_c3d4, 0);
    let reader = Box::new(std::io::Cursor::new(file.bytes.clone()));
    let stream = FileInput::open_stream(reader, "stream").unwrap();
    let mut input = FileInput::new(vec![stream], MergeOrder::Given);
    assert!(FilePieces::cut(&mut input, 2, 100, 0).is_none());
    assert_eq!(input.advance(WAIT).unwrap(), Advance::Batch, "it is as it was");
    let path = place.holding(&file.bytes);
    let files = vec![FileInput::open_file(path).unwrap(), FileInput::open_file(path).unwrap()];
    let mut input = FileInput::new(files, MergeOrder::Given);
    assert!(FilePieces::cut(&mut input, 2, 100, 0).is_none());
    assert!(open(path).unwrap().split(2).is_none(), "small files are read by one thread");
    let packed = place.path.with_extension("zst");
    fs::write(&packed, zstd::encode_all(file.bytes.as_slice(), 1).unwrap()).unwrap();
    assert!(FilePieces::cut(&mut open(&packed).unwrap(), 2, 100, 0).is_none());
}
