//! Loom runs the protocols in every order of steps and every visibility that the memory model allows: `make loom`.
//!
//! ```text
//! index    entries come in order and whole; a place is not written before it was read; the account balances
//! blocks   a copy is the record that was meant, or known to be overwritten
//! hold     a block that is held keeps what it has; a reader found at two blocks in one search looks at the first only
//! order    a watermark, and the end, speak of what can be seen
//! sleep    no reader sleeps over a packet or the end, nor the second time; the writer does not sleep over room
//! ```
//!
//! The models run the code that ships, on loom's atomics, with buffers of a few words, and records of which only the
//! metadata's first and last words are copied: lengths and position.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use tapline_packet::{Meta, Packet, Timestamp};

use crate::atomic::{AtomicU64, SeqCst, fence};
use crate::consumer::{Consumer, Outcome, SleepWish};
use crate::layout::{BLOCK_HEAD_LEN, Geometry, Guarantee, HEADER_WORDS, LINE_LEN, index};
use crate::memory::Words;
use crate::producer::{Producer, fence_for_sleepers, to_words};
use crate::store::{Facts, Holders, IndexEntry, NoHolders, Store};
use crate::view::{Miss, View, release};

/// Blocks of two records.
const BLOCK_LEN: u64 = (BLOCK_HEAD_LEN + 2 * LINE_LEN) as u64;
const ENTRIES: u64 = 2;

fn index_pair(standing: Guarantee) -> (Producer, Consumer) {
    let words = Words::private(HEADER_WORDS + 2 * ENTRIES as usize);
    let producer = Producer::new(words.clone(), ENTRIES, 1, 1, standing);
    (producer, Consumer::unchecked(words, ENTRIES))
}

fn buffer_pair(blocks: u64) -> (Store, View) {
    let geometry = Geometry::tiny(BLOCK_LEN, blocks);
    let words = Words::private(HEADER_WORDS + (BLOCK_LEN * blocks / 8) as usize);
    let facts = Facts { generation: 1, link_type: 1, snap_len: 0, created_ns: 0, worker: 0 };
    let view = View::unchecked(words.to_read(), geometry);
    (Store::new(words, geometry, &facts), view)
}

fn put(store: &mut Store, holders: &mut impl Holders) -> Option<IndexEntry> {
    let entry = store.put(Packet { data: &[], meta: &Meta::default() }, holders);
    store.publish(None, |_| {});
    entry
}

fn entry(number: u64) -> IndexEntry {
    IndexEntry { position: number, cap_len: number as u32 + 7 }
}

#[test]
fn entries_are_read_complete_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = index_pair(Guarantee::Lossy);
        let writer = thread::spawn(move || {
            for number in 0..4 {
                producer.push(std::iter::once(to_words(entry(number), 1)));
                producer.publish();
            }
            producer
        });
        let mut last = None;
        for _ in 0..2 {
            let ready = consumer.refresh().expect("a head that makes sense");
            for ahead in 0..ready {
                let (found, verdict) = consumer.peek(ahead);
                assert_eq!((found, verdict), (entry(found.position), 1));
                assert!(last < Some(found.position));
                last = Some(found.position);
            }
            consumer.commit(Outcome { delivered: ready, ..Outcome::default() });
        }
        let mut producer = writer.join().unwrap();
        let account = producer.account();
        assert!(account.balances() && !account.is_implausible && account.offered == 4);
        assert_eq!(account.delivered, consumer.done().total());
    });
}

#[test]
fn a_copy_is_intact_or_known_to_be_overwritten() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let first = put(&mut store, &mut NoHolders).expect("room");
        let writer = thread::spawn(move || {
            // One more in the block, two in the next, and the first is gone.
            for _ in 0..4 {
                put(&mut store, &mut NoHolders).expect("room");
            }
        });
        let mut copy = [0; LINE_LEN / 8];
        match view.copy(first, &mut copy) {
            Ok(head) => assert_eq!(head.position, first.position),
            Err(miss) => assert_eq!(miss, Miss::Overwritten),
        }
        writer.join().unwrap();
        assert_eq!(view.copy(first, &mut copy), Err(Miss::Overwritten));
    });
}

#[test]
fn packets_before_the_head_are_there() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let first = Geometry::tiny(BLOCK_LEN, 2).position(1, BLOCK_HEAD_LEN);
        let writer = thread::spawn(move || put(&mut store, &mut NoHolders));
        if view.head() > first {
            let mut copy = [0; LINE_LEN / 8];
            let head =
                view.copy(IndexEntry { position: first, cap_len: 0 }, &mut copy).expect("it was published");
            assert_eq!(head.position, first);
        }
        writer.join().unwrap();
    });
}

/// One reader, as the writer sees it.
struct OneReader(Producer);

impl Holders for OneReader {
    fn begin(&mut self, _: u64) {}

    fn hold(&mut self, sequence: u64) -> bool {
        self.0.held() == sequence
    }

    fn give_up(&mut self, _: u64) {}
}

#[test]
fn a_held_block_keeps_its_packets() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let (producer, consumer) = index_pair(Guarantee::Leased);
        let mut holders = OneReader(producer);
        let first = put(&mut store, &mut holders).expect("room");
        for _ in 0..3 {
            put(&mut store, &mut holders).expect("room");
        }
        // Both blocks are full; the next record takes the first one, unless it is held, and then the second.
        let writer = thread::spawn(move || put(&mut store, &mut holders).expect("room"));
        let held = view.hold(first, consumer.held_word());
        if held.is_ok() {
            assert_eq!(view.look(first).expect("it stays").position, first.position);
            assert_eq!(view.look(first).expect("it stays").position, first.position);
            release(consumer.held_word());
        }
        writer.join().unwrap();
    });
}

/// The steps of `Readers::begin` and of a search that looks at two blocks, and those of a reader that goes from the
/// first to the second.
#[test]
fn readers_at_two_blocks_read_the_first_only() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let (producer, consumer) = index_pair(Guarantee::Leased);
        let entries: Vec<IndexEntry> =
            (0..4).map(|_| put(&mut store, &mut NoHolders).expect("room")).collect();
        view.hold(entries[0], consumer.held_word()).expect("it is there");
        let writer = thread::spawn(move || {
            producer.set_standing(Guarantee::LossyByBytes);
            fence(SeqCst);
            producer.held() == 1 && producer.held() == 2
        });
        let is_held = view.hold(entries[2], consumer.held_word()).is_ok();
        let looks = is_held && consumer.guarantee().keeps_unread();
        assert!(!(writer.join().unwrap() && looks));
    });
}

#[test]
fn a_watermark_covers_visible_packets_only() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let (mut producer, mut consumer) = index_pair(Guarantee::Lossy);
        let writer = thread::spawn(move || {
            for number in 1..=2 {
                store.publish(Some(Timestamp::from_nanos(number)), |_| {
                    producer.push(std::iter::once(to_words(entry(number as u64), 1)));
                    producer.publish();
                });
            }
        });
        let watermark = view.watermark().map_or(0, |time| time.as_nanos());
        assert!(consumer.refresh().expect("sound") >= watermark as u64);
        writer.join().unwrap();
    });
}

#[test]
fn the_past_mark_covers_visible_packets_only() {
    loom::model(|| {
        let (mut producer, mut consumer) = index_pair(Guarantee::Lossy);
        producer.set_past(Some(0));
        let writer = thread::spawn(move || {
            for number in 1..=2 {
                producer.push(std::iter::once(to_words(entry(number), 1)));
                producer.publish();
                producer.set_past((number < 2).then_some(number as i64));
            }
        });
        let past = consumer.past().min(2);
        assert!(consumer.refresh().expect("sound") >= past as u64);
        writer.join().unwrap();
    });
}

#[test]
fn the_end_comes_after_the_last_entry() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let (mut producer, mut consumer) = index_pair(Guarantee::Lossy);
        let writer = thread::spawn(move || {
            producer.push(std::iter::once(to_words(entry(1), 1)));
            store.close(|_| producer.publish());
        });
        let is_closed = view.is_closed();
        assert!(!is_closed || consumer.refresh().expect("sound") == 1);
        writer.join().unwrap();
    });
}

/// To be woken for the first packet.
const WISH: SleepWish = SleepWish { min_bytes: 1, min_packets: 0, max_delay_ns: 0 };

fn announce_sleep(consumer: &Consumer, view: &View) -> bool {
    consumer.announce_sleep(view, index::ON_FUTEX, &Outcome::default(), WISH)
}

/// A model of futex(2): the word is compared and the sleeper put in the queue under a lock that its waker takes too.
#[derive(Default)]
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU64, expected: u64) {
        let queue = self.queue.lock().unwrap();
        if word.load(SeqCst) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self) {
        let _queue = self.queue.lock().unwrap();
        self.woken.notify_one();
    }

    /// The steps of `Readers::wake_sleepers` and `wake_all`.
    fn wake_if_asleep(&self, producer: &Producer) {
        fence_for_sleepers();
        if producer.sleeps().is_some() {
            producer.mark_awake();
            self.wake();
        }
    }
}

/// The reader sleeps up to twice, the second time over the end. A wake that is lost is a deadlock, which loom finds.
/// With that many steps it is bounded: each way to lose a wake takes two switches, one between the store and the fence
/// of either side.
#[test]
fn a_reader_that_sleeps_again_is_woken_again() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(model.preemption_bound.unwrap_or(3).min(3));
    model.check(|| {
        let (mut store, view) = buffer_pair(2);
        let (mut producer, mut consumer) = index_pair(Guarantee::Lossy);
        let futex = Arc::new(Futex::default());
        let theirs = Arc::clone(&futex);
        let writer = thread::spawn(move || {
            producer.push(std::iter::once(to_words(entry(1), 1)));
            producer.publish();
            theirs.wake_if_asleep(&producer);
            store.close(|_| {});
            theirs.wake_if_asleep(&producer);
        });
        let mut found = 0;
        // The steps of `Reader::look` and `Reader::nap`.
        loop {
            let is_closed = view.is_closed();
            let ready = consumer.refresh().expect("sound");
            found += ready;
            consumer.commit(Outcome { delivered: ready, ..Outcome::default() });
            if ready == 0 && is_closed {
                break;
            }
            if ready == 0 {
                if announce_sleep(&consumer, &view) {
                    futex.wait(consumer.waiting_word(), index::ON_FUTEX);
                }
                consumer.announce_awake();
            }
        }
        assert_eq!(found, 1);
        writer.join().unwrap();
    });
}

#[test]
fn no_reader_sleeps_over_a_packet() {
    loom::model(|| {
        let (_store, view) = buffer_pair(2);
        let (mut producer, mut consumer) = index_pair(Guarantee::Lossy);
        let writer = thread::spawn(move || {
            producer.push(std::iter::once(to_words(entry(1), 1)));
            producer.publish();
            fence_for_sleepers();
            producer.sleeps().is_some()
        });
        let sleeps = consumer.refresh().expect("sound") == 0 && announce_sleep(&consumer, &view);
        let is_woken = writer.join().unwrap();
        assert!(!sleeps || is_woken);
    });
}

#[test]
fn the_writer_does_not_sleep_over_room() {
    loom::model(|| {
        let (mut producer, mut consumer) = index_pair(Guarantee::Lossless);
        producer.push((0..ENTRIES as u32).map(|number| to_words(entry(number.into()), 1)));
        producer.publish();
        let reader = thread::spawn(move || {
            assert_eq!(consumer.refresh().expect("sound"), ENTRIES);
            consumer.commit(Outcome { delivered: 1, ..Outcome::default() }).is_some()
        });
        let sleeps = producer.room_for(1) == 0 && producer.announce_sleep().is_some();
        let wakes = reader.join().unwrap();
        assert!(!sleeps || wakes);
    });
}
