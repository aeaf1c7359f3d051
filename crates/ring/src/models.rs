//! Loom runs the protocols in every order of steps and every visibility that the memory model allows: `make loom`.
//!
//! ```text
//! index    entries come in order and whole; a place is not written before it was read; the account balances
//! blocks   a copy is the record that was meant, or known to be overwritten
//! hold     a block that is held keeps what it has
//! sleep    nobody sleeps over a packet; the writer does not sleep over room
//! ```
//!
//! It is the code that ships, on loom's atomics, with buffers of a few words, and records of which only the metadata's first and last words are
//! copied: lengths and position.

use loom::thread;

use tapline_packet::{Meta, Packet};

use crate::consumer::{Consumer, Outcome};
use crate::layout::{BLOCK_HEAD_LEN, Geometry, HEADER_WORDS, LINE_LEN, Standing, index};
use crate::memory::Words;
use crate::producer::{Producer, fence_for_sleepers, to_words};
use crate::store::{Entry, Facts, Holders, NoHolders, Store};
use crate::view::{Miss, View, release};

/// Blocks of two records.
const BLOCK_LEN: u64 = (BLOCK_HEAD_LEN + 2 * LINE_LEN) as u64;
const ENTRIES: u64 = 2;

fn index_pair(standing: Standing) -> (Producer, Consumer) {
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

fn put(store: &mut Store, holders: &mut impl Holders) -> Option<Entry> {
    let entry = store.put(Packet { data: &[], meta: &Meta::default() }, holders);
    store.publish(None);
    entry
}

fn entry(number: u64) -> Entry {
    Entry { position: number, cap_len: number as u32 + 7 }
}

#[test]
fn entries_come_whole_and_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = index_pair(Standing::Lossy);
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
        assert_eq!(account.delivered, consumer.consumed());
    });
}

#[test]
fn a_copy_is_what_was_meant_or_known_to_be_overwritten() {
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
fn what_the_head_says_is_there() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let first = Geometry::tiny(BLOCK_LEN, 2).position(1, BLOCK_HEAD_LEN);
        let writer = thread::spawn(move || put(&mut store, &mut NoHolders));
        if view.head() > first {
            let mut copy = [0; LINE_LEN / 8];
            let head = view.copy(Entry { position: first, cap_len: 0 }, &mut copy).expect("it was published");
            assert_eq!(head.position, first);
        }
        writer.join().unwrap();
    });
}

/// One reader, as the writer sees it.
struct Held(Producer);

impl Holders for Held {
    fn begin(&mut self) {}

    fn hold(&mut self, sequence: u64, _: bool) -> bool {
        self.0.held() == sequence
    }

    fn give_up(&mut self, _: u64) {}
}

#[test]
fn a_held_block_keeps_what_it_has() {
    loom::model(|| {
        let (mut store, view) = buffer_pair(2);
        let (producer, consumer) = index_pair(Standing::Leased);
        let mut holders = Held(producer);
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

#[test]
fn nobody_sleeps_over_a_packet() {
    loom::model(|| {
        let (mut producer, mut consumer) = index_pair(Standing::Lossy);
        let writer = thread::spawn(move || {
            producer.push(std::iter::once(to_words(entry(1), 1)));
            producer.publish();
            fence_for_sleepers();
            producer.sleeps().is_some()
        });
        let sleeps =
            consumer.refresh().expect("sound") == 0 && consumer.announce_sleep(index::ON_FUTEX, 1, 0);
        let is_woken = writer.join().unwrap();
        assert!(!sleeps || is_woken);
    });
}

#[test]
fn the_writer_does_not_sleep_over_room() {
    loom::model(|| {
        let (mut producer, mut consumer) = index_pair(Standing::Lossless);
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
