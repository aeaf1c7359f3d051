//! A sleeping reader is woken when its threshold is met, once, and no other reader is.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tapline_packet::LinkType;
use tapline_sys::futex::FutexWaitEnd;
use tapline_sys::{Bell, SharedWords};

use super::end_to_end::{Made, attach, drain, offer, writer};
use super::hostile::attached;
use crate::layout::index;
use crate::*;

/// Longer than any machine takes to wake a thread: a reader that sleeps that long was not woken.
const LONG: Duration = Duration::from_secs(60);
/// A delay that a reader keeps by its own clock.
const OWN_TIME: Duration = Duration::from_millis(60);

fn pair() -> (Writer, ReaderId, Reader) {
    let mut writer = writer(4096, 16);
    let attachment = writer.attach(&ReaderSpec::new(Policy::Lossy)).unwrap();
    let reader = Reader::open(attachment.parts).unwrap();
    (writer, attachment.id, reader)
}

/// Whether poll(2) would say that the reader's descriptor is readable.
fn rings(reader: &Reader) -> bool {
    let bell = Bell::from(reader.descriptor().try_clone_to_owned().unwrap());
    bell.wait(Duration::ZERO).unwrap()
}

#[test]
fn only_sleepers_are_woken_and_once_a_batch() {
    let (mut writer, id, mut reader) = pair();
    offer(&mut writer, &Made::new(0, 64, 60), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), rings(&reader)), (0, false));
    assert_eq!(reader.arm().unwrap(), Some(WaitEnd::Ready));
    assert_eq!(drain(&mut reader).len(), 64);
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(64, 64, 60), &[id]);
    offer(&mut writer, &Made::new(128, 64, 60), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), rings(&reader)), (1, true));
    assert_eq!(drain(&mut reader).len(), 128);
    assert_eq!(reader.arm().unwrap(), None);
    assert!(!rings(&reader));
}

#[test]
fn bytes_and_delay_are_wishes() {
    let (mut writer, id, mut reader) = pair();
    reader.set_wake(WakeThreshold {
        min_bytes: 1000,
        min_packets: 0,
        max_delay: Duration::from_nanos(500_000_000_000),
    });
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(0, 9, 100), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), reader.arm().unwrap()), (0, None));
    offer(&mut writer, &Made::new(9, 1, 100), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), rings(&reader)), (1, true));
    assert_eq!(drain(&mut reader).len(), 10);
    assert_eq!(reader.arm().unwrap(), None);
    // Bytes that were read do not count again.
    offer(&mut writer, &Made::new(10, 9, 100), &[id]);
    assert_eq!(writer.wake_count(id).unwrap(), 1);
    let due = writer.next_wake_ns().unwrap();
    assert_eq!(due, 180 + 500_000_000_000, "counted from the batch at 180 ns");
    writer.tick(due - 1);
    assert_eq!(writer.wake_count(id).unwrap(), 1);
    writer.tick(due);
    assert_eq!((writer.wake_count(id).unwrap(), writer.next_wake_ns()), (2, None));
}

#[test]
fn a_number_of_packets_is_a_wish() {
    let (mut writer, id, mut reader) = pair();
    reader.set_wake(WakeThreshold { min_bytes: u64::MAX, min_packets: 5, max_delay: Duration::MAX });
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(0, 4, 1000), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), reader.arm().unwrap()), (0, None));
    offer(&mut writer, &Made::new(4, 1, 60), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), rings(&reader)), (1, true));
    assert_eq!(reader.arm().unwrap(), Some(WaitEnd::Ready));
    assert_eq!(drain(&mut reader).len(), 5);
    // Packets that were read, or are lent, do not count again.
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(5, 4, 60), &[id]);
    assert_eq!(reader.advance().unwrap(), 4);
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(9, 4, 60), &[id]);
    assert_eq!(writer.wake_count(id).unwrap(), 1);
    offer(&mut writer, &Made::new(13, 1, 60), &[id]);
    assert_eq!(writer.wake_count(id).unwrap(), 2);
}

#[test]
fn lent_packets_wake_no_reader() {
    let (mut writer, id, mut reader) = pair();
    let max_delay = Duration::from_nanos(1000);
    reader.set_wake(WakeThreshold { min_bytes: 1000, min_packets: 0, max_delay });
    offer(&mut writer, &Made::new(0, 10, 100), &[id]);
    assert_eq!(reader.advance().unwrap(), 10);
    assert_eq!(reader.arm().unwrap(), None, "the batch is still lent");
    writer.tick(1_000_000);
    writer.tick(2_000_000);
    assert_eq!((writer.wake_count(id).unwrap(), writer.next_wake_ns()), (0, None), "its age is not a reason");
    offer(&mut writer, &Made::new(10, 9, 100), &[id]);
    assert_eq!(writer.wake_count(id).unwrap(), 0, "its bytes do not count");
    offer(&mut writer, &Made::new(19, 1, 100), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), rings(&reader)), (1, true));
    // The reader takes some of the packets, sleeps on, and is woken for the rest when they are old.
    reader.set_wake(WakeThreshold { min_bytes: 100_000, min_packets: 0, max_delay: LONG });
    assert_eq!(reader.advance().unwrap(), 10);
    offer(&mut writer, &Made::new(20, 1, 100), &[id]);
    assert_eq!(reader.arm().unwrap(), None);
    writer.tick(3_000_000);
    writer.tick(3_000_000 + LONG.as_nanos() as u64);
    assert_eq!(writer.wake_count(id).unwrap(), 2);
    assert_eq!(drain(&mut reader), [20]);
}

/// Waits until a reader sleeps on its futex, as far as can be seen from here; or until its thread has ended.
fn until_asleep<T>(words: &SharedWords, sleeper: &JoinHandle<T>) {
    while words[index::WAITING].load(SeqCst) != index::ON_FUTEX && !sleeper.is_finished() {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(1));
}

#[test]
fn a_sleeper_on_the_futex_is_woken() {
    for sleeps in [true, false] {
        let mut writer = writer(4096, 16);
        let (id, mut reader, words) = attached(&mut writer, Policy::Lossy, 4096);
        let sleeper = thread::spawn(move || {
            let mut found = Vec::new();
            loop {
                match reader.wait(Duration::ZERO).unwrap() {
                    WaitEnd::Ready => found.extend(drain(&mut reader)),
                    WaitEnd::TimedOut => {
                        assert_ne!(reader.nap(LONG.as_nanos() as u64).unwrap(), FutexWaitEnd::TimedOut);
                    }
                    end => return (found, end),
                }
            }
        });
        for number in 0..200 {
            if sleeps && number < 30 {
                until_asleep(&words, &sleeper);
            }
            offer(&mut writer, &Made::new(number, 1, 60), &[id]);
        }
        if sleeps {
            until_asleep(&words, &sleeper);
        }
        writer.end();
        assert_eq!(sleeper.join().unwrap(), ((0..200).collect(), WaitEnd::Closed));
    }
}

#[test]
fn a_writer_that_sleeps_over_room_is_woken() {
    let mut writer = writer(4096, 16);
    let (id, mut reader, words) = attached(&mut writer, Policy::Lossless, 16);
    let stop = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&stop);
    let reading = thread::spawn(move || {
        while !is_over.load(Relaxed) {
            if words[index::WRITER_SLEEPS].load(SeqCst) == 1 {
                thread::sleep(Duration::from_millis(1));
                drain(&mut reader);
            }
            thread::yield_now();
        }
    });
    for round in 0..30 {
        let made = Made::new(round * 16, 16, 60);
        while writer.make_room(&made.batch(), &made.all()).unwrap() == WriteRoom::Blocked(id) {
            assert_ne!(writer.wait_long_for(id, LONG).unwrap(), FutexWaitEnd::TimedOut);
        }
        offer(&mut writer, &made, &[id]);
    }
    stop.store(true, Relaxed);
    reading.join().unwrap();
    let account = writer.account(id).unwrap();
    assert!(account.delivered >= 29 * 16 && account.lost.total() == account.lost.unread, "{account}");
}

#[test]
fn the_writers_end_is_noticed_by_sleepers() {
    let (mut writer, id, mut reader) = pair();
    offer(&mut writer, &Made::new(0, 3, 60), &[id]);
    let sleeper = thread::spawn(move || {
        assert_eq!(drain(&mut reader), [0, 1, 2]);
        let waited = reader.wait(Duration::from_secs(600)).unwrap();
        (waited, reader.arm().unwrap(), rings(&reader))
    });
    drop(writer);
    assert_eq!(sleeper.join().unwrap(), (WaitEnd::WriterGone, Some(WaitEnd::WriterGone), true));
}

#[test]
fn waiting_packets_are_told_when_the_time_is_over() {
    let (mut writer, id, mut reader) = pair();
    reader.set_wake(WakeThreshold {
        min_bytes: 1 << 20,
        min_packets: 0,
        max_delay: Duration::from_millis(1),
    });
    offer(&mut writer, &Made::new(0, 3, 60), &[id]);
    assert_eq!(reader.wait(Duration::from_secs(600)).unwrap(), WaitEnd::Ready);
    assert_eq!(reader.wait(Duration::ZERO).unwrap(), WaitEnd::Ready);
    reader.set_wake(WakeThreshold {
        min_bytes: 1 << 20,
        min_packets: 0,
        max_delay: Duration::from_secs(3600),
    });
    assert_eq!(reader.wait(Duration::ZERO).unwrap(), WaitEnd::TimedOut);
    assert_eq!(drain(&mut reader).len(), 3);
    assert_eq!(reader.info().link_type, LinkType::ETHERNET);
}

/// Offers packets of 100 bytes one by one, until the reader was woken. Returns how many that took.
fn offer_until_woken(writer: &mut Writer, id: ReaderId, most: u64) -> u64 {
    let before = writer.wake_count(id).unwrap();
    for number in 0..most {
        if writer.wake_count(id).unwrap() > before {
            return number;
        }
        offer(writer, &Made::new(number, 1, 100), &[id]);
    }
    panic!("not woken by {most} packets");
}

#[test]
fn a_reader_with_a_high_threshold_loses_no_packet() {
    let wish = WakeThreshold { min_bytes: u64::MAX, min_packets: 0, max_delay: Duration::MAX };
    let leased = Policy::Leased { bytes: 4 * 4096, time: LONG };
    // 20 records of 192 bytes fit into a block of 4096.
    for (policy, entries, least, most) in [
        (Policy::Lossy, 64, 16, 16),
        (Policy::Lossy, 4096, 3 * 20, 4 * 20 + 1),
        (leased, 4096, 20, 2 * 20 + 1),
    ] {
        let mut writer = writer(4096, 16);
        let (id, mut reader) = attach(&mut writer, policy, entries);
        reader.set_wake(wish);
        for _ in 0..3 {
            assert_eq!(reader.arm().unwrap(), None);
            let needed = offer_until_woken(&mut writer, id, 1000);
            assert!((least..=most).contains(&needed), "{policy:?}: {needed}");
            // The writer knows why: that there is less than was wished is not a reason to sleep on.
            assert_eq!((rings(&reader), reader.arm().unwrap()), (true, Some(WaitEnd::Ready)));
            assert_eq!(drain(&mut reader).len() as u64, needed);
        }
        let account = writer.account(id).unwrap();
        assert_eq!(
            (account.lost.total(), writer.guarantee(id).unwrap().keeps_unread()),
            (0, policy == leased)
        );
    }
}

#[test]
fn readers_that_block_the_writer_are_woken_at_once() {
    let mut writer = writer(4096, 16);
    let (id, mut reader) = attach(&mut writer, Policy::Lossless, 16);
    reader.set_wake(WakeThreshold { min_bytes: u64::MAX, min_packets: 0, max_delay: Duration::MAX });
    assert_eq!(reader.arm().unwrap(), None);
    offer(&mut writer, &Made::new(0, 3, 60), &[id]);
    assert_eq!((writer.wake_count(id).unwrap(), rings(&reader)), (0, false));
    // A batch that has no room though there is less than a quarter of the index to read.
    let made = Made::new(3, 14, 60);
    assert_eq!(writer.make_room(&made.batch(), &made.all()).unwrap(), WriteRoom::Blocked(id));
    writer.wait_for(id, Duration::from_millis(1)).unwrap();
    assert_eq!((writer.wake_count(id).unwrap(), rings(&reader)), (1, true));
    assert_eq!((reader.arm().unwrap(), drain(&mut reader).len()), (Some(WaitEnd::Ready), 3));
    assert_eq!(writer.make_room(&made.batch(), &made.all()).unwrap(), WriteRoom::Ready);
}

#[test]
fn a_merged_reader_looks_at_the_clock_by_itself() {
    let (mut writer, id, reader) = pair();
    let mut merged = MergedReader::new(vec![reader], MergeOrder::AsTheyCome);
    merged.set_wake(WakeThreshold { min_bytes: 1 << 20, min_packets: 0, max_delay: OWN_TIME });
    assert_eq!(merged.wait(Duration::ZERO).unwrap(), WaitEnd::TimedOut);
    offer(&mut writer, &Made::new(0, 3, 60), &[id]);
    // For readers that wait on descriptors the writer looks at the clock; for those that wait here it need not.
    assert_eq!(
        writer.next_wake_ns(),
        Some(20 + OWN_TIME.as_nanos() as u64),
        "counted from the batch at 20 ns"
    );
    assert_eq!(merged.wait(Duration::from_secs(600)).unwrap(), WaitEnd::Ready);
    assert_eq!(writer.wake_count(id).unwrap(), 0);
    assert_eq!(merged.next_batch().unwrap().map(|run| run.batch.len()), Some(3));
    assert!(merged.next_batch().unwrap().is_none());
    // A shorter delay is the writer's to keep.
    merged.set_wake(WakeThreshold {
        min_bytes: 1 << 20,
        min_packets: 0,
        max_delay: Duration::from_millis(1),
    });
    assert_eq!(merged.wait(Duration::ZERO).unwrap(), WaitEnd::TimedOut);
    offer(&mut writer, &Made::new(3, 1, 60), &[id]);
    let due = writer.next_wake_ns().unwrap();
    writer.tick(due);
    assert_eq!(writer.wake_count(id).unwrap(), 1);
    assert_eq!(merged.wait(Duration::from_secs(600)).unwrap(), WaitEnd::Ready);
    assert_eq!(merged.next_batch().unwrap().map(|run| run.batch.len()), Some(1));
    drop(writer);
    assert!(merged.next_batch().unwrap().is_none());
    assert_eq!(merged.wait(Duration::from_secs(600)).unwrap(), WaitEnd::WriterGone);
}
