//! The promise of each policy, and the report when it is not kept.

use std::time::Duration;

use tapline_packet::{Batch, LinkType, Meta, Record, Selection, Timestamp};

use crate::layout::Guarantee;
use crate::*;

/// Packets whose bytes and times contain their numbers.
pub(crate) struct Made {
    base: Vec<u8>,
    records: Vec<Record>,
}

impl Made {
    /// `count` packets from the number `first` on, each with its number in its first eight bytes.
    pub(crate) fn new(first: u64, count: usize, len: usize) -> Made {
        let mut base = Vec::new();
        let mut records = Vec::new();
        for number in first..first + count as u64 {
            let mut bytes = vec![number as u8; len.max(8)];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            let meta = Meta {
                timestamp: Timestamp::from_nanos(number as i64 * 10),
                wire_len: len as u32 + 4,
                if_index: 7,
                ..Meta::default()
            };
            records.push(Record { offset: base.len(), cap_len: bytes.len() as u32, options_len: 0, meta });
            base.extend_from_slice(&bytes);
        }
        Made { base, records }
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch::new(&self.base, &self.records)
    }

    pub(crate) fn all(&self) -> Selection {
        let mut all = Selection::none();
        all.select_all(self.records.len());
        all
    }
}

pub(crate) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
}

pub(crate) fn writer(block_len: u32, blocks: u32) -> Writer {
    let spec =
        BufferSpec { block_len, blocks, snap_len: block_len - 192, ..BufferSpec::new(LinkType::ETHERNET) };
    Writer::create(&spec, Timestamp::from_nanos(1)).expect("a buffer")
}

/// Stores and indexes packets for these readers.
pub(crate) fn offer(writer: &mut Writer, made: &Made, ids: &[ReaderId]) {
    let all = made.all();
    writer.store(&made.batch(), &all);
    ids.iter().for_each(|id| writer.index(*id, &all, 9).expect("a reader"));
    writer.publish(made.records.last().map_or(0, |record| record.meta.timestamp.as_nanos() as u64));
}

/// Reads all that there is: the packets' numbers.
pub(crate) fn drain(reader: &mut Reader) -> Vec<u64> {
    let mut numbers = Vec::new();
    while reader.advance().expect("a sound index") > 0 {
        for packet in reader.batch().iter() {
            let found = number(packet.data);
            assert!(packet.data[8..].iter().all(|byte| *byte == found as u8), "{found}: torn");
            assert_eq!(packet.meta.timestamp.as_nanos(), found as i64 * 10);
            assert_eq!((packet.meta.wire_len, packet.meta.if_index), (packet.data.len() as u32 + 4, 7));
            numbers.push(found);
        }
    }
    numbers
}

pub(crate) fn attach(writer: &mut Writer, policy: Policy, entries: u32) -> (ReaderId, Reader) {
    let attachment = writer.attach(&ReaderSpec { policy, entries }).expect("a reader");
    (attachment.id, Reader::open(attachment.parts).expect("parts that fit"))
}

fn leased(bytes: u64) -> Policy {
    Policy::Leased { bytes, time: Duration::from_secs(1000) }
}

#[test]
fn every_policy_gets_every_packet() {
    for policy in [Policy::Lossy, leased(8192), Policy::Lossless] {
        let mut writer = writer(4096, 16);
        let (id, mut reader) = attach(&mut writer, policy, 64);
        for round in 0..500 {
            let made = Made::new(round * 20, 20, 60 + round as usize % 100);
            offer(&mut writer, &made, &[id]);
            assert_eq!(drain(&mut reader), (round * 20..round * 20 + 20).collect::<Vec<_>>(), "{policy:?}");
        }
        assert_eq!(reader.wait(Duration::ZERO).unwrap(), WaitEnd::TimedOut);
        writer.end();
        let theirs = writer.detach(id).unwrap();
        assert_eq!(reader.wait(Duration::ZERO).unwrap(), WaitEnd::Closed);
        let account = reader.finish();
        assert_eq!((account.offered, account.delivered), (10_000, 10_000));
        assert_eq!(theirs, account);
    }
}

#[test]
fn a_lossy_reader_counts_overwritten_packets() {
    let mut writer = writer(4096, 4);
    let (id, mut reader) = attach(&mut writer, Policy::Lossy, 1024);
    for round in 0..10 {
        offer(&mut writer, &Made::new(round * 20, 20, 60), &[id]);
    }
    // 31 records of 128 bytes fit in a block after its head: of 200 the last 4 blocks hold 31 + 31 + 31 + 14.
    let numbers = drain(&mut reader);
    assert_eq!(numbers, (93..200).collect::<Vec<_>>());
    let account = writer.account(id).unwrap();
    assert_eq!((account.delivered, account.lost.overwritten, account.lost.total()), (107, 93, 93));
    assert!(account.balances() && !account.is_implausible);
    assert_eq!(account, reader.finish());
}

#[test]
fn a_full_index_loses_the_newest() {
    let mut writer = writer(4096, 64);
    let (id, mut reader) = attach(&mut writer, Policy::Lossy, 16);
    offer(&mut writer, &Made::new(0, 20, 60), &[id]);
    offer(&mut writer, &Made::new(20, 20, 60), &[id]);
    assert_eq!(drain(&mut reader), (0..16).collect::<Vec<_>>());
    let account = writer.account(id).unwrap();
    assert_eq!((account.offered, account.delivered, account.lost.index_full), (40, 16, 24));
    assert!(account.balances());
}

#[test]
fn a_block_that_is_looked_at_stays() {
    let mut writer = writer(4096, 16);
    let (id, mut reader) = attach(&mut writer, leased(8192), 4096);
    let (other, mut lossy) = attach(&mut writer, Policy::Lossy, 4096);
    offer(&mut writer, &Made::new(0, 31, 60), &[id, other]);
    assert_eq!(reader.advance().unwrap(), 31);
    assert!(reader.is_in_place());
    for round in 0..100 {
        offer(&mut writer, &Made::new(31 + round * 31, 31, 60), &[id, other]);
        drain(&mut lossy);
    }
    assert!(writer.skipped_blocks() >= 5);
    let found: Vec<u64> = reader.batch().iter().map(|packet| number(packet.data)).collect();
    assert_eq!(found, (0..31).collect::<Vec<_>>());
    assert_eq!(
        (reader.guarantee(), writer.guarantee(id).unwrap()),
        (Guarantee::LossyByBytes, Guarantee::LossyByBytes)
    );
    // The other lost nothing.
    assert_eq!(writer.account(other).unwrap().delivered, 101 * 31);
    let rest = drain(&mut reader);
    assert!(!reader.is_in_place());
    let account = writer.account(id).unwrap();
    assert_eq!(account.delivered, 31 + rest.len() as u64);
    assert!(account.balances() && account.lost.overwritten > 0 && account.lost.unread == 0);
}

#[test]
fn losses_beyond_the_credit_are_reported() {
    let mut writer = writer(4096, 16);
    let (id, mut reader) = attach(&mut writer, leased(4 * 4096), 4096);
    offer(&mut writer, &Made::new(0, 31 * 4, 60), &[id]);
    assert_eq!(writer.guarantee(id).unwrap(), Guarantee::Leased);
    offer(&mut writer, &Made::new(31 * 4, 31, 60), &[id]);
    offer(&mut writer, &Made::new(31 * 5, 31, 60), &[id]);
    assert_eq!(reader.guarantee(), Guarantee::LossyByBytes);
    assert_eq!(drain(&mut reader).len(), 31 * 6, "told, and nothing lost yet");
}

#[test]
fn time_is_a_credit_too() {
    let mut writer = writer(4096, 16);
    let policy = Policy::Leased { bytes: 8192, time: Duration::from_nanos(1000) };
    let (id, mut reader) = attach(&mut writer, policy, 4096);
    offer(&mut writer, &Made::new(0, 10, 60), &[id]);
    writer.tick(1090);
    assert_eq!(reader.guarantee(), Guarantee::Leased);
    writer.tick(1091);
    assert_eq!(reader.guarantee(), Guarantee::LossyByTime);
    assert_eq!(drain(&mut reader).len(), 10);
}

#[test]
fn blocks_filled_by_one_batch_have_its_age() {
    let mut writer = writer(4096, 16);
    let policy = Policy::Leased { bytes: 8 * 4096, time: Duration::from_nanos(1000) };
    let (id, mut reader) = attach(&mut writer, policy, 4096);
    for round in 0..50u64 {
        // Five blocks at once, and the times of rounds are far apart.
        offer(&mut writer, &Made::new(round * 1000, 155, 60), &[id]);
        writer.tick((round * 1000 + 154) * 10);
        assert_eq!(writer.guarantee(id).unwrap(), Guarantee::Leased, "{round}");
        assert_eq!(drain(&mut reader).len(), 155);
    }
}

#[test]
fn writers_wait_for_lossless_readers() {
    let mut writer = writer(4096, 4);
    let (id, mut reader) = attach(&mut writer, Policy::Lossless, 1024);
    let mut stored = 0;
    loop {
        let made = Made::new(stored, 20, 60);
        if writer.make_room(&made.batch(), &made.all()).unwrap() != WriteRoom::Ready {
            break;
        }
        offer(&mut writer, &made, &[id]);
        stored += 20;
    }
    assert!(stored >= 60, "{stored}");
    let made = Made::new(stored, 20, 60);
    assert_eq!(writer.make_room(&made.batch(), &made.all()).unwrap(), WriteRoom::Blocked(id));
    writer.wait_for(id, Duration::from_millis(1)).unwrap();
    let seen = drain(&mut reader);
    assert_eq!(seen, (0..stored).collect::<Vec<_>>());
    assert_eq!(writer.make_room(&made.batch(), &made.all()).unwrap(), WriteRoom::Ready);
    for round in 0..20 {
        offer(&mut writer, &Made::new(stored + round * 20, 20, 60), &[id]);
    }
    assert_eq!(reader.guarantee(), Guarantee::LossyByBytes, "stored without asking");
    drain(&mut reader);
    let account = writer.account(id).unwrap();
    assert!(account.balances() && account.lost.overwritten > 0);
}

#[test]
fn a_batch_that_never_fits_is_refused() {
    let mut writer = writer(4096, 4);
    let (_id, _reader) = attach(&mut writer, Policy::Lossless, 16);
    let many = Made::new(0, 17, 60);
    assert!(matches!(
        writer.make_room(&many.batch(), &many.all()),
        Err(Error::BatchTooLarge { packets: 17, .. })
    ));
    let large = Made::new(0, 10, 3000);
    assert!(matches!(
        writer.make_room(&large.batch(), &large.all()),
        Err(Error::BatchTooLarge { blocks: 10, .. })
    ));
}

/// Makes a reader begin in the past, with all its packets that fit; returns the number of offered packets.
fn replay(
    writer: &mut Writer,
    id: ReaderId,
    start: StartPosition,
    mut verdict: impl FnMut(&HistoryPacket<'_>) -> Option<u32>,
) -> u64 {
    let mut offered = 0;
    writer.begin(id, start).unwrap();
    let verdict = |held: &HistoryPacket<'_>| verdict(held).inspect(|_| offered += 1);
    if writer.replay(id, usize::MAX, verdict).unwrap() == ReplayProgress::Done {
        writer.finish_replay(id).unwrap();
    }
    offered
}

#[test]
fn a_new_reader_starts_in_the_past() {
    let mut writer = writer(4096, 4);
    for round in 0..10 {
        offer(&mut writer, &Made::new(round * 20, 20, 60), &[]);
    }
    let (id, _reader) = attach(&mut writer, Policy::Lossy, 256);
    let mut numbers = Vec::new();
    let none = |held: &HistoryPacket<'_>| {
        assert_eq!(held.number, number(held.packet().data));
        numbers.push(held.number);
        None
    };
    assert_eq!(replay(&mut writer, id, StartPosition::Oldest, none), 0);
    assert_eq!(numbers, (93..200).collect::<Vec<_>>());
    writer.detach(id).unwrap();
    let cases = [
        (StartPosition::Newest, 200..200),
        (StartPosition::Oldest, 93..200),
        (StartPosition::Since(Timestamp::from_nanos(1505)), 151..200),
        (StartPosition::Since(Timestamp::from_nanos(1991)), 200..200),
        (StartPosition::Since(Timestamp::from_nanos(0)), 93..200),
    ];
    for (start, expected) in cases {
        let (id, mut reader) = attach(&mut writer, Policy::Lossy, 256);
        let offered = replay(&mut writer, id, start, |_| Some(9));
        offer(&mut writer, &Made::new(200, 0, 60), &[id]);
        assert_eq!(drain(&mut reader), expected.clone().collect::<Vec<_>>(), "{start:?}");
        assert_eq!(offered, expected.end - expected.start);
        writer.detach(id).unwrap();
    }
}

#[test]
fn the_past_waits_for_places_in_the_index() {
    let mut writer = writer(4096, 16);
    (0..10).for_each(|round| offer(&mut writer, &Made::new(round * 31, 31, 60), &[]));
    for policy in [Policy::Lossy, Policy::Lossless, leased(8 * 4096)] {
        let (id, mut reader) = attach(&mut writer, policy, 16);
        writer.begin(id, StartPosition::Since(Timestamp::from_nanos(500))).unwrap();
        let (mut found, mut looks) = (Vec::new(), 0);
        // Every third from 50 on; a few are looked at in each step.
        loop {
            let verdict = |held: &HistoryPacket<'_>| held.number.is_multiple_of(3).then_some(9);
            let replay = writer.replay(id, 20, verdict).unwrap();
            writer.publish(0);
            assert_eq!(writer.replay_left(id).unwrap() == 0, replay == ReplayProgress::Done);
            looks += 1;
            match replay {
                ReplayProgress::Done => break,
                ReplayProgress::Full => found.extend(drain(&mut reader)),
                ReplayProgress::More => {}
            }
        }
        writer.finish_replay(id).unwrap();
        assert!(looks > 310 / 20, "{looks}");
        found.extend(drain(&mut reader));
        assert_eq!(found, (51..310).step_by(3).collect::<Vec<_>>());
        let account = writer.account(id).unwrap();
        assert!(account.balances() && account.lost.total() == 0 && account.offered == 87, "{account}");
        writer.detach(id).unwrap();
    }
}

#[test]
fn the_past_is_offered_or_counted_as_lost() {
    let third = |held: &HistoryPacket<'_>| held.number.is_multiple_of(3).then_some(9);
    for (entries, is_read) in [(1 << 10, false), (16, true), (16, false)] {
        let mut writer = writer(4096, 16);
        (0..16).for_each(|round| offer(&mut writer, &Made::new(round * 31, 31, 60), &[]));
        let (id, mut reader) = attach(&mut writer, Policy::Lossy, entries);
        writer.begin(id, StartPosition::Oldest).unwrap();
        let (mut found, mut is_present) = (Vec::new(), false);
        for round in 16..48 {
            let made = Made::new(round * 31, 31, 60);
            let (batch, all) = (made.batch(), made.all());
            let lost = writer.replay_before(id, &batch, &all, third).unwrap();
            writer.store(&batch, &all);
            if is_present {
                let mut every_third = Selection::none();
                (0..31)
                    .filter(|at| (round * 31 + at).is_multiple_of(3))
                    .for_each(|at| every_third.push(at as usize));
                writer.index(id, &every_third, 9).unwrap();
            }
            writer.publish(0);
            if lost > 0 {
                writer.skip(id).unwrap();
                is_present = true;
            }
            if is_read {
                found.extend(drain(&mut reader));
            }
        }
        assert_eq!(is_present, entries == 16 && !is_read, "a reader that reads loses no place");
        while writer.replay(id, 100, third).unwrap() != ReplayProgress::Done {
            writer.publish(0);
            found.extend(drain(&mut reader));
        }
        writer.finish_replay(id).unwrap();
        writer.publish(0);
        found.extend(drain(&mut reader));
        let account = writer.account(id).unwrap();
        assert!(account.balances() && account.offered == 48 * 31 / 3, "{account}");
        assert!(found.is_sorted() && found.len() as u64 == account.delivered, "{found:?}");
        assert!((account.lost.index_full > 0) == is_present, "{account}");
    }
}

#[test]
fn history_is_kept_like_the_present() {
    // In blocks of 31, of which there are ten. Replayed is what is in one block, and it lags as far behind the tenth.
    use Guarantee::{Leased, LossyByBytes};
    for (block, expected) in [(8, Leased), (7, Leased), (6, LossyByBytes), (3, LossyByBytes)] {
        let mut writer = writer(4096, 16);
        (0..10).for_each(|round| offer(&mut writer, &Made::new(round * 31, 31, 60), &[]));
        let (id, mut reader) = attach(&mut writer, leased(4 * 4096), 64);
        let in_block = |held: &HistoryPacket<'_>| (held.number / 31 + 1 == block).then_some(9);
        assert_eq!(replay(&mut writer, id, StartPosition::Oldest, in_block), 31);
        writer.publish(0);
        writer.tick(0);
        assert_eq!(writer.guarantee(id).unwrap(), expected, "block {block}");
        // One more block, of which it wants nothing: what lags by five now is beyond its credit of four.
        offer(&mut writer, &Made::new(310, 31, 60), &[]);
        writer.tick(0);
        let later = if block == 8 { Leased } else { LossyByBytes };
        assert_eq!(writer.guarantee(id).unwrap(), later, "block {block}");
        assert_eq!(drain(&mut reader).len(), 31, "nothing of it was overwritten yet");
    }
}

#[test]
fn history_is_kept_for_as_long_as_the_present() {
    let second = 1_000_000_000;
    let mut writer = writer(4096, 16);
    let none: [ReaderId; 0] = [];
    offer(&mut writer, &Made::new(0, 10, 60), &none);
    writer.publish(second);
    writer.tick(100 * second);
    let policy = Policy::Leased { bytes: 4 * 4096, time: Duration::from_secs(5) };
    let (id, _reader) = attach(&mut writer, policy, 64);
    assert_eq!(replay(&mut writer, id, StartPosition::Oldest, |_| Some(9)), 10);
    writer.publish(101 * second);
    for (now, expected) in [(102, Guarantee::Leased), (106, Guarantee::Leased), (107, Guarantee::LossyByTime)]
    {
        writer.tick(now * second);
        assert_eq!(writer.guarantee(id).unwrap(), expected, "{now} s");
    }
}

/// A reader that lost a packet is not waited for.
fn assert_demoted(writer: &mut Writer, id: ReaderId) {
    let account = writer.account(id).unwrap();
    assert!(account.balances() && account.lost.total() > account.lost.unread, "{account}");
    assert_eq!(writer.guarantee(id).unwrap(), Guarantee::LossyByBytes, "{account}");
    let large = Made::new(0, 10, 3000);
    assert_eq!(writer.make_room(&large.batch(), &large.all()).unwrap(), WriteRoom::Ready);
}

#[test]
fn a_full_index_of_a_lossless_reader_is_reported() {
    let mut writer = writer(4096, 64);
    let (id, mut reader) = attach(&mut writer, Policy::Lossless, 16);
    offer(&mut writer, &Made::new(0, 40, 60), &[id]);
    assert_eq!(drain(&mut reader), (0..16).collect::<Vec<_>>());
    assert_eq!(writer.account(id).unwrap().lost.index_full, 24);
    assert_demoted(&mut writer, id);
    // Likewise of the past, when it is waited for no longer.
    let (id, mut reader) = attach(&mut writer, Policy::Lossless, 16);
    assert_eq!(replay(&mut writer, id, StartPosition::Oldest, |_| Some(9)), 16);
    writer.publish(0);
    assert_eq!(writer.guarantee(id).unwrap(), Guarantee::Lossless);
    writer.skip(id).unwrap();
    let mut counted = 0;
    let count = |_: &HistoryPacket<'_>| Some(9).inspect(|_| counted += 1);
    assert_eq!(writer.replay(id, 100, count).unwrap(), ReplayProgress::Done);
    writer.finish_replay(id).unwrap();
    assert_eq!(drain(&mut reader), (0..16).collect::<Vec<_>>());
    assert_eq!((counted, writer.account(id).unwrap().lost.index_full), (24, 24));
    assert_demoted(&mut writer, id);
    let (id, _reader) = attach(&mut writer, Policy::Lossless, 64);
    assert_eq!(replay(&mut writer, id, StartPosition::Oldest, |_| Some(9)), 40);
    assert_eq!(writer.guarantee(id).unwrap(), Guarantee::Lossless);
    // In the present it has nothing to skip.
    writer.skip(id).unwrap();
    assert_eq!(writer.guarantee(id).unwrap(), Guarantee::Lossless);
}

#[test]
fn self_overwriting_batches_demote_readers() {
    for policy in [Policy::Lossless, leased(4096)] {
        let mut writer = writer(4096, 4);
        let (id, mut reader) = attach(&mut writer, policy, 64);
        // Each takes a block.
        offer(&mut writer, &Made::new(0, 10, 3000), &[id]);
        assert_eq!(drain(&mut reader), (6..10).collect::<Vec<_>>());
        assert_eq!(writer.account(id).unwrap().lost.overwritten, 6);
        assert_demoted(&mut writer, id);
    }
}

#[test]
fn readers_of_remaining_packets_lose_none() {
    for policy in [Policy::Lossless, leased(4096)] {
        let mut writer = writer(4096, 4);
        let (id, mut reader) = attach(&mut writer, policy, 64);
        let made = Made::new(0, 10, 3000);
        let (all, mut last) = (made.all(), made.all());
        last.retain(|index| index == 9);
        writer.store(&made.batch(), &all);
        writer.index(id, &last, 9).unwrap();
        writer.publish(0);
        assert!(writer.guarantee(id).unwrap().keeps_unread());
        assert_eq!(drain(&mut reader), [9]);
    }
}

#[test]
fn unpublished_entries_are_promised_too() {
    for policy in [Policy::Lossless, leased(4096)] {
        let mut writer = writer(4096, 4);
        let (id, mut reader) = attach(&mut writer, policy, 64);
        for first in [0, 3] {
            let made = Made::new(first, 3, 3000);
            writer.store(&made.batch(), &made.all());
            writer.index(id, &made.all(), 9).unwrap();
        }
        writer.publish(0);
        assert_eq!(drain(&mut reader), (2..6).collect::<Vec<_>>());
        assert_demoted(&mut writer, id);
    }
}

#[test]
fn packets_are_cut_to_the_snap_length() {
    let spec = BufferSpec { block_len: 4096, blocks: 4, snap_len: 10, ..BufferSpec::new(LinkType::RAW) };
    let mut writer = Writer::create(&spec, Timestamp::from_nanos(5)).unwrap();
    let (id, mut reader) = attach(&mut writer, Policy::Lossy, 16);
    assert_eq!((reader.info().snap_len, reader.info().link_type), (10, LinkType::RAW));
    offer(&mut writer, &Made::new(0, 1, 60), &[id]);
    assert_eq!(reader.advance().unwrap(), 1);
    let packet = reader.batch();
    assert_eq!((packet.packet(0).data.len(), packet.packet(0).meta.wire_len), (10, 64));
}

#[test]
fn the_sources_counters_are_there() {
    let mut writer = writer(4096, 4);
    let (_, reader) = attach(&mut writer, Policy::Lossy, 16);
    assert_eq!(reader.source().get(SourceCounter::Nic), None);
    let mut counts = SourceCounts::new();
    counts.set(SourceCounter::Nic, Some(0));
    counts.set(SourceCounter::KernelRing, Some(17));
    counts.set(SourceCounter::UncapturedEnded, Some(2));
    writer.set_source(&counts);
    assert_eq!(reader.source().get(SourceCounter::Nic), Some(0));
    assert_eq!(reader.source().get(SourceCounter::KernelRing), Some(17));
    assert_eq!(reader.source().get(SourceCounter::UncapturedEnded), Some(2));
    assert_eq!(reader.source().get(SourceCounter::Xdp), None);
}

#[test]
fn limits_are_errors() {
    let mut writer = writer(4096, 16);
    assert!(matches!(
        writer.attach(&ReaderSpec { policy: leased(9 * 4096), entries: 16 }),
        Err(Error::CreditTooLarge { most: 32768, .. })
    ));
    assert!(matches!(
        writer.attach(&ReaderSpec { policy: Policy::Lossy, entries: 17 }),
        Err(Error::Size { .. })
    ));
    let held: Vec<_> = (0..4).map(|_| attach(&mut writer, leased(1), 16)).collect();
    assert!(matches!(
        writer.attach(&ReaderSpec { policy: leased(1), entries: 16 }),
        Err(Error::TooManyReaders { most: 4 })
    ));
    let id = held[0].0;
    drop(held);
    assert_eq!(writer.reap().len(), 4);
    assert!(matches!(writer.account(id), Err(Error::UnknownReader)));
    for spec in [
        BufferSpec { block_len: 2048, ..BufferSpec::new(LinkType::ETHERNET) },
        BufferSpec { blocks: 3, ..BufferSpec::new(LinkType::ETHERNET) },
        BufferSpec { snap_len: 1 << 20, ..BufferSpec::new(LinkType::ETHERNET) },
    ] {
        assert!(matches!(Writer::create(&spec, Timestamp::EPOCH), Err(Error::Size { .. })), "{spec:?}");
    }
}
