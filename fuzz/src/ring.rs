//! The shared ring with a peer that lies, on either side.
//!
//! ```text
//! input := step*        step := kind:u8 word:u16 value:u64, little-endian; what is left over is ignored
//! ```

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tapline_packet::{BATCH_MAX, Batch, LinkType, Meta, Record, Selection, Timestamp};
use tapline_ring::{
    BufferSpec, Guarantee, HistoryPacket, Policy, Reader, ReaderId, ReaderParts, ReaderSpec, ReplayProgress,
    StartPosition, WakeThreshold, WriteRoom, Writer,
};
use tapline_sys::{Memfd, Seals, SharedWords};

const BLOCK_LEN: u32 = 4096;
const SNAP_LEN: u32 = 1500;
const ENTRIES: u32 = 64;
const STEPS_MAX: usize = 64;

/// One step of the liar.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    word: u16,
    value: u64,
}

fn steps(data: &[u8]) -> impl Iterator<Item = Step> + '_ {
    data.chunks_exact(11).take(STEPS_MAX).map(|bytes| Step {
        kind: bytes[0],
        word: u16::from_le_bytes([bytes[1], bytes[2]]),
        value: bytes[3..].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)),
    })
}

fn step(kind: u8, word: u16, value: u64) -> Vec<u8> {
    [&[kind][..], &word.to_le_bytes(), &value.to_le_bytes()].concat()
}

/// A word becomes a value, or grows by it: small numbers reach what is near what is right.
fn lie(words: &SharedWords, Step { kind, word, value }: Step) {
    let word = &words[usize::from(word) % words.len()];
    if kind & 0x80 == 0 {
        word.store(value, Relaxed);
    } else {
        word.fetch_add(value, Relaxed);
    }
}

fn spec() -> BufferSpec {
    BufferSpec { block_len: BLOCK_LEN, blocks: 4, snap_len: SNAP_LEN, ..BufferSpec::new(LinkType::ETHERNET) }
}

fn policy(number: u64) -> Policy {
    match number % 3 {
        0 => Policy::Lossy,
        1 => Policy::Leased { bytes: u64::from(BLOCK_LEN), time: Duration::from_micros(1) },
        _ => Policy::Lossless,
    }
}

/// Stores packets and offers them to all.
fn offer(writer: &mut Writer, ids: &[ReaderId], count: usize, len: usize, now_ns: u64) {
    let base = vec![7; len];
    let meta = Meta { timestamp: Timestamp::from_nanos(now_ns as i64), ..Meta::default() };
    let records = vec![Record { offset: 0, cap_len: len as u32, options_len: 0, meta }; count];
    let mut all = Selection::none();
    all.select_all(count);
    let batch = Batch::new(&base, &records);
    // Not waited for: a lossless reader becomes lossy.
    let room = writer.make_room(&batch, &all);
    assert!(matches!(room, Ok(WriteRoom::Ready | WriteRoom::Blocked(_)) | Err(_)));
    writer.store(&batch, &all);
    ids.iter().for_each(|id| writer.index(*id, &all, 1).expect("a reader"));
    writer.publish(now_ns);
}

/// What an honest writer leaves: the words of both files, and the policy.
fn honest() -> &'static [(Vec<u64>, Vec<u64>)] {
    static HONEST: OnceLock<Vec<(Vec<u64>, Vec<u64>)>> = OnceLock::new();
    HONEST.get_or_init(|| {
        (0..3)
            .map(|number| {
                let mut writer = Writer::create(&spec(), Timestamp::EPOCH).expect("a buffer");
                let spec = ReaderSpec { policy: policy(number), entries: ENTRIES };
                let attachment = writer.attach(&spec).expect("a reader");
                (0..6).for_each(|round| offer(&mut writer, &[attachment.id], 8, 100, round));
                (words_of(attachment.parts.buffer), words_of(attachment.parts.index))
            })
            .collect()
    })
}

fn words_of(file: std::os::fd::OwnedFd) -> Vec<u64> {
    let words = Memfd::from_descriptor(file).map_to_read().expect("a mapping");
    (0..words.len()).map(|at| words.load(at)).collect()
}

/// A sealed file with these words, and memory to change them by.
fn forged(words: &[u64], seals: Seals) -> (Memfd, SharedWords) {
    let file = Memfd::create(c"forged", words.len() as u64 * 8).expect("memory");
    let memory = file.map().expect("a mapping");
    memory.iter().zip(words).for_each(|(to, word)| to.store(*word, Relaxed));
    file.seal(seals).expect("seals");
    (file, memory)
}

/// A writer that lies is refused, or read from without harm: packets lie within bounds, every entry has a place in the
/// account.
///
/// The first step's value chooses the policy; even kinds change the buffer, odd ones the index, before it is opened or,
/// from kind 0x40 on, while it is read.
pub fn ring_writer(data: &[u8]) {
    let steps: Vec<Step> = steps(data).collect();
    let (buffer, index) = &honest()[steps.first().map_or(0, |step| (step.value % 3) as usize)];
    let (buffer_file, buffer) = forged(buffer, Seals::READ_ONLY);
    let (index_file, index) = forged(index, Seals::SIZE);
    let tell = |step: &Step| lie(if step.kind & 1 == 0 { &buffer } else { &index }, *step);
    let (later, before): (Vec<Step>, Vec<Step>) = steps.iter().partition(|step| step.kind & 0x40 != 0);
    before.iter().for_each(tell);
    let (bell, _other) = tapline_sys::Bell::pair().expect("a bell");
    let parts = ReaderParts { buffer: buffer_file.into(), index: index_file.into(), bell: bell.into() };
    match Reader::open(parts) {
        Ok(reader) => read(reader, &later, tell),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn read(mut reader: Reader, later: &[Step], tell: impl Fn(&Step)) {
    reader.set_wake(WakeThreshold { min_bytes: 1000, min_packets: 0, max_delay: Duration::ZERO });
    for round in 0..later.len() + 8 {
        match reader.advance() {
            Ok(packets) => ensure_within_bounds(&reader, packets),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert!(reader.account().balances(), "{}", reader.account());
        let _ = (
            reader.wait(Duration::ZERO),
            reader.arm(),
            reader.watermark(),
            reader.source(),
            reader.guarantee(),
        );
        later.get(round).into_iter().for_each(&tell);
    }
    let account = reader.finish();
    assert!(account.balances(), "{account}");
}

fn ensure_within_bounds(reader: &Reader, packets: usize) {
    let batch = reader.batch();
    assert!(packets == batch.len() && packets <= BATCH_MAX);
    for (packet, record) in batch.iter().zip(batch.records()) {
        assert_eq!(packet.data.len(), record.cap_len as usize, "a record outside of what is lent");
        assert!(record.cap_len <= reader.info().snap_len);
        std::hint::black_box(packet.data.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    }
}

/// A reader that lies costs nobody a packet and forges no account; one that lost for want of room is not called
/// lossless.
///
/// A batch fits two of the four blocks, as one that is held leaves three. Kinds: 0 to 3 store packets, 4 ticks, 5
/// replays, after `word` packets no more than counting; all others change a word of the liar's index.
pub fn ring_reader(data: &[u8]) {
    let steps: Vec<Step> = steps(data).collect();
    let mut writer = Writer::create(&spec(), Timestamp::EPOCH).expect("a buffer");
    let liars = ReaderSpec { policy: policy(steps.first().map_or(0, |step| step.value)), entries: ENTRIES };
    let liar = writer.attach(&liars).expect("a reader");
    let memory = Memfd::from_descriptor(liar.parts.index).map().expect("a mapping");
    let attachment = writer.attach(&ReaderSpec { policy: Policy::Lossy, entries: 1024 }).expect("a reader");
    let mut honest = Reader::open(attachment.parts).expect("a reader");
    let (mut stored, mut offered, mut now_ns) = (0, 0, 0);
    for step in steps {
        now_ns += step.value & 0xfff;
        match step.kind {
            0..=3 => {
                let (count, len) = (usize::from(step.word & 31), (step.value % 100) as usize);
                offer(&mut writer, &[liar.id, attachment.id], count, len, now_ns);
                (stored, offered) = (stored + count as u64, offered + count as u64);
                while honest.advance().expect("a sound index") > 0 {}
            }
            4 => writer.tick(now_ns),
            5 => {
                writer.begin(liar.id, StartPosition::Oldest).expect("a reader");
                let mut offer = |_: &HistoryPacket<'_>| Some(1).inspect(|_| offered += 1);
                let is_done = writer.replay(liar.id, step.word.into(), &mut offer).expect("a reader");
                if is_done != ReplayProgress::Done {
                    // It lies about its places, or has none: the rest is counted.
                    writer.skip(liar.id).expect("a reader");
                    let rest = writer.replay(liar.id, usize::MAX, &mut offer);
                    assert_eq!(rest.expect("a reader"), ReplayProgress::Done);
                }
                writer.finish_replay(liar.id).expect("a reader");
            }
            _ => lie(&memory, step),
        }
        let account = writer.account(liar.id).expect("a reader");
        assert!(account.balances() && account.offered == offered, "{account}, offered {offered}");
        let is_waited_for = writer.guarantee(liar.id).expect("a reader") == Guarantee::Lossless;
        assert!(!is_waited_for || account.lost.index_full == 0, "{account}, and it is still lossless");
    }
    assert_eq!((writer.stored(), writer.unstored_packets()), (stored, 0));
    let account = honest.finish();
    assert_eq!((account.offered, account.delivered), (stored, stored), "{account}");
    assert_eq!(Some(account), writer.detach(attachment.id).ok());
}

pub(crate) fn ring_writer_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..3).map(|policy| step(0x41, 100, policy)).collect();
    for (kind, word, value) in [
        (0, 4, 8192),
        (0, 5, 8),
        (0, 16, 0),
        (1, 4, 128),
        (1, 16, 60),
        (1, 18, 2),
        (0x81, 512, 64),
        (0x81, 513, 1),
        (0x80, 512, 4),
        (0xc1, 16, 3),
        (0xc0, 1024, 4),
    ] {
        seeds.push([step(kind, word, value), step(kind | 0x40, word + 1, value)].concat());
    }
    seeds
}

pub(crate) fn ring_reader_seeds() -> Vec<Vec<u8>> {
    let store = |count: u16| step(0, count, 90);
    let lies = [(32, 5), (33, 8), (34, u64::MAX), (35, 1), (35, 3), (40, 1), (40, 2), (41, 1), (42, 0)];
    let mut seeds: Vec<Vec<u8>> = lies
        .iter()
        .map(|(word, value)| [store(30), step(9, *word, *value), store(31), store(31)].concat())
        .collect();
    seeds.push([step(6, 0, 1), store(31), step(5, 0, 0), step(4, 0, 4000), store(31)].concat());
    seeds.push([step(6, 0, 2), store(31), step(5, 0, 0), store(31), store(31), store(31)].concat());
    seeds
}
