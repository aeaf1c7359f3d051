//! Several buffers as one: complete, and by time as far as times are known.

use std::time::Duration;

use proptest::prelude::*;
use tapline_packet::{ClockReading, Timestamp};

use super::end_to_end::{Made, number, offer, writer};
use crate::*;

fn merged(count: usize, order: MergeOrder) -> (Vec<(Writer, ReaderId)>, MergedReader) {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut writer = writer(4096, 64);
        let attachment = writer.attach(&ReaderSpec::new(Policy::Lossy)).unwrap();
        readers.push(Reader::open(attachment.parts).unwrap());
        writers.push((writer, attachment.id));
    }
    (writers, MergedReader::new(readers, order))
}

/// All that comes at a moment, by a clock that has nothing to do with the times of packets.
fn all_now(merged: &mut MergedReader, now_ns: i64) -> Vec<u64> {
    all_at(merged, ClockReading { wall: Timestamp::from_nanos(i64::MIN), steady_ns: now_ns })
}

fn all_at(merged: &mut MergedReader, moment: ClockReading) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some(run) = merged.next_batch_at(|| moment).unwrap() {
        found.extend(run.batch.iter().map(|packet| number(packet.data)));
    }
    found
}

fn send(writer: &mut (Writer, ReaderId), first: u64, count: usize) {
    offer(&mut writer.0, &Made::new(first, count, 60), &[writer.1]);
}

#[test]
fn merging_waits_for_buffers_with_older_packets() {
    let (mut writers, mut merged) = merged(2, MergeOrder::ByTime(Duration::from_nanos(1000)));
    send(&mut writers[0], 10, 5);
    assert_eq!(all_now(&mut merged, 0), [], "the other said nothing");
    assert!(merged.is_holding_back(), "and no bell will ring for these");
    assert_eq!(
        merged.wait(Duration::ZERO).unwrap(),
        WaitEnd::TimedOut,
        "what is held up is not a reason to wake"
    );
    assert_eq!(merged.wait(Duration::from_secs(600)).unwrap(), WaitEnd::Ready, "but to look again");
    send(&mut writers[1], 12, 1);
    assert_eq!(all_now(&mut merged, 1), [10, 11, 12, 12], "none older than 12 comes");
    assert!(merged.is_holding_back());
    writers[1].0.publish_until(0, Some(Timestamp::from_nanos(139)));
    assert_eq!(all_now(&mut merged, 2), [13]);
    assert_eq!(all_now(&mut merged, 999), []);
    assert_eq!(all_now(&mut merged, 1000), [14], "patience is over");
    assert!(!merged.is_holding_back());
    writers.pop();
    send(&mut writers[0], 20, 2);
    assert_eq!(all_now(&mut merged, 1002), []);
    // The bell tells first that it was rung, and then that the other end is closed.
    (0..2).for_each(|_| assert_eq!(merged.wait(Duration::ZERO).unwrap(), WaitEnd::TimedOut));
    assert_eq!(all_now(&mut merged, 1002), [20, 21], "a writer that is gone is not waited for");
    let account = merged.finish();
    assert_eq!((account.offered, account.delivered), (8, 8));
}

#[test]
fn the_past_of_one_buffer_is_waited_for() {
    let (mut writers, mut merged) = merged(2, MergeOrder::ByTime(Duration::from_nanos(1000)));
    let late = |writer: &mut (Writer, ReaderId), looks: usize| {
        let third = |held: &HistoryPacket<'_>| held.number.is_multiple_of(3).then_some(9);
        let replay = writer.0.replay(writer.1, looks, third).unwrap();
        if replay == ReplayProgress::Done {
            writer.0.finish_replay(writer.1).unwrap();
        }
        writer.0.publish(0);
        replay
    };
    // 0 to 29 are stored in both before anybody comes.
    for (writer, id) in &mut writers {
        offer(writer, &Made::new(0, 30, 60), &[]);
        writer.begin(*id, StartPosition::Oldest).unwrap();
    }
    assert_eq!(late(&mut writers[0], 1000), ReplayProgress::Done);
    send(&mut writers[0], 30, 1);
    assert_eq!(all_now(&mut merged, 0), [], "of the other's past nothing is known");
    assert_eq!(all_now(&mut merged, 5000), [], "that takes as long as it takes");
    // The second buffer's own watermark says 29 all the while.
    assert_eq!(late(&mut writers[1], 11), ReplayProgress::More);
    assert_eq!(all_now(&mut merged, 5001), [0, 0, 3, 3, 6, 6, 9, 9]);
    assert_eq!(late(&mut writers[1], 1000), ReplayProgress::Done);
    // And in the present patience counts, which is over for what has been there since 0.
    assert_eq!(all_now(&mut merged, 5002), [12, 12, 15, 15, 18, 18, 21, 21, 24, 24, 27, 27, 30]);
}

#[test]
fn packets_never_handed_on_are_not_delivered() {
    let (mut writers, mut merged) = merged(2, MergeOrder::ByTime(Duration::from_secs(1)));
    send(&mut writers[0], 10, 5);
    send(&mut writers[1], 12, 3);
    // 10, 11 and the first 12 are lent; of the first buffer two wait, of the second all.
    assert_eq!(merged.next_batch().unwrap().unwrap().batch.len(), 3);
    let account = merged.finish();
    assert_eq!((account.offered, account.delivered, account.lost.unread), (8, 3, 5));
    assert!(account.balances());
    let theirs: Vec<Account> = writers.iter_mut().map(|(writer, id)| writer.account(*id).unwrap()).collect();
    assert_eq!(theirs.iter().map(|account| account.delivered).collect::<Vec<_>>(), [3, 0]);
}

/// A buffer that never has anything holds each packet up for as long as something older may come, and not only the
/// first ones.
#[test]
fn an_empty_buffer_is_waited_for_each_time() {
    let (mut writers, mut merged) = merged(2, MergeOrder::ByTime(Duration::from_nanos(1000)));
    let at = |time: i64| ClockReading { wall: Timestamp::from_nanos(time), steady_ns: 5_000_000 + time };
    for round in 1..50 {
        let first = round * 1000;
        // Of 10,000 ns and 10 more in each round.
        send(&mut writers[0], first, 3);
        let time = first as i64 * 10;
        assert_eq!(all_at(&mut merged, at(time + 999)), []);
        assert_eq!(all_at(&mut merged, at(time + 1000)), [first]);
        assert_eq!(all_at(&mut merged, at(time + 1010)), [first + 1]);
        // Packets that the other has stored by then are in time.
        send(&mut writers[1], first + 1, 1);
        assert_eq!(all_at(&mut merged, at(time + 1015)), [first + 1]);
        assert_eq!(all_at(&mut merged, at(time + 1020)), [first + 2]);
    }
    let account = merged.finish();
    assert_eq!((account.offered, account.delivered), (49 * 4, 49 * 4));
}

/// A reader without a processor takes nothing for late that was stored before it read the clock.
#[test]
fn packets_stored_before_the_clock_is_read_are_in_time() {
    let (mut writers, mut merged) = merged(2, MergeOrder::ByTime(Duration::from_nanos(1000)));
    send(&mut writers[0], 10, 1);
    let older_comes = || {
        send(&mut writers[1], 9, 1);
        ClockReading { wall: Timestamp::from_nanos(1_000_000), steady_ns: 0 }
    };
    let run = merged.next_batch_at(older_comes).unwrap().expect("both are older than patience");
    assert_eq!(run.batch.iter().map(|packet| number(packet.data)).collect::<Vec<_>>(), [9]);
}

/// A reader that would lose packets by waiting does not wait.
#[test]
fn no_reader_waits_until_packets_are_lost() {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut writer = writer(4096, 64);
        let spec = ReaderSpec { entries: 64, ..ReaderSpec::new(Policy::Lossy) };
        let attachment = writer.attach(&spec).unwrap();
        readers.push(Reader::open(attachment.parts).unwrap());
        writers.push((writer, attachment.id));
    }
    let mut merged = MergedReader::new(readers, MergeOrder::ByTime(Duration::from_secs(1)));
    send(&mut writers[0], 0, 15);
    assert_eq!(all_now(&mut merged, 0), []);
    send(&mut writers[0], 15, 1);
    assert_eq!(all_now(&mut merged, 0), (0..15).collect::<Vec<_>>(), "a quarter of the index is taken");
    assert!(merged.is_holding_back(), "no longer, so the last one waits");
    send(&mut writers[1], 20, 16);
    assert_eq!(all_now(&mut merged, 0), (15..16).chain(20..36).collect::<Vec<_>>(), "whosever index it is");
    send(&mut writers[0], 40, 1);
    assert_eq!(all_now(&mut merged, 0), []);
    let account = merged.finish();
    assert_eq!((account.delivered, account.lost.unread, account.lost.total()), (32, 1, 1));
}

#[test]
fn as_they_come_takes_turns() {
    let (mut writers, mut merged) = merged(3, MergeOrder::AsTheyCome);
    for round in 0..3 {
        (0..3).for_each(|at| send(&mut writers[at], 100 * at as u64 + round, 1));
    }
    let mut found = all_now(&mut merged, 0);
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 100, 101, 102, 200, 201, 202]);
    writers.iter_mut().for_each(|(writer, _)| writer.end());
    assert_eq!(merged.wait(Duration::from_secs(600)).unwrap(), WaitEnd::Closed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Packets in order, dealt to buffers, read at random moments: all come, in order.
    #[test]
    fn packets_dealt_to_buffers_come_back_in_order(
        deals in prop::collection::vec((0usize..3, 1usize..40, any::<bool>()), 1..60),
    ) {
        let (mut writers, mut merged) = merged(3, MergeOrder::ByTime(Duration::from_secs(1)));
        let (mut next, mut found) = (0, Vec::new());
        for (at, count, reads) in deals {
            send(&mut writers[at], next, count);
            next += count as u64;
            if reads {
                found.extend(all_now(&mut merged, 0));
            }
        }
        writers.iter_mut().for_each(|(writer, _)| writer.end());
        found.extend(all_now(&mut merged, 0));
        prop_assert_eq!(found, (0..next).collect::<Vec<_>>());
        let account = merged.finish();
        prop_assert!(account.balances() && account.delivered == next);
    }
}
