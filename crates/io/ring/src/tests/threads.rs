//! The halves in two threads, without files: miri runs them too, and looks for races and stray pointers.

use std::thread;

use tapline_packet::{Meta, Packet, Timestamp};

use crate::atomic::Relaxed;
use crate::consumer::{Consumer, Outcome};
use crate::copy::as_bytes;
use crate::layout::{BLOCK_HEAD_LEN, Geometry, Guarantee, HEADER_WORDS, LINE_LEN, index};
use crate::memory::Words;
use crate::producer::{Producer, to_words};
use crate::store::{Facts, Holders, Next, StartPosition, Store};
use crate::view::{View, release};

const PACKETS: u64 = if cfg!(miri) { 150 } else { 200_000 };
const ENTRIES: u64 = 16;

fn pairs(standing: Guarantee) -> (Store, View, Producer, Consumer) {
    let geometry = Geometry::tiny(1024, 4);
    let words = Words::private((geometry.file_len() / 8) as usize);
    let facts = Facts { generation: 1, link_type: 1, snap_len: 700, created_ns: 0, worker: 0 };
    let view = View::unchecked(words.to_read(), geometry);
    let words_of_index = Words::private(HEADER_WORDS + 2 * ENTRIES as usize);
    let producer = Producer::new(words_of_index.clone(), ENTRIES, 1, 1, standing);
    (Store::new(words, geometry, &facts), view, producer, Consumer::unchecked(words_of_index, ENTRIES))
}

fn data(number: u64) -> Vec<u8> {
    vec![number as u8; (number * 37 % 500) as usize]
}

struct Readers<'a>(&'a mut Producer);

impl Holders for Readers<'_> {
    fn begin(&mut self, _: u64) {}

    fn hold(&mut self, sequence: u64) -> bool {
        self.0.held() == sequence
    }

    fn give_up(&mut self, _: u64) {}
}

fn write(mut store: Store, mut producer: Producer) -> Producer {
    for number in 0..PACKETS {
        let data = data(number);
        let meta = Meta { timestamp: Timestamp::from_nanos(number as i64), ..Meta::default() };
        // A reader that goes from block to block ahead of the search can be found at all of them: here no reader is
        // refused for that.
        let entry = loop {
            match store.put(Packet { data: &data, meta: &meta }, &mut Readers(&mut producer)) {
                Some(entry) => break entry,
                None => thread::yield_now(),
            }
        };
        store.publish(Some(meta.timestamp), |_| {
            producer.push(std::iter::once(to_words(entry, number as u32)));
            producer.publish();
        });
    }
    store.close(|_| {});
    assert_eq!(store.records(), PACKETS);
    let mut past = store.past(StartPosition::Oldest).expect("something is stored");
    let mut number = || match store.next_held(&mut past) {
        Next::Held(held) => Some(held.number),
        Next::Older | Next::End => None,
    };
    let held: Vec<u64> = std::iter::from_fn(&mut number).collect();
    assert!(held.is_sorted() && held.last() == Some(&(PACKETS - 1)));
    producer
}

fn read(view: &View, consumer: &mut Consumer, mut one: impl FnMut(&View, &Consumer, u64) -> Outcome) {
    let mut found = 0;
    loop {
        let is_closed = view.is_closed();
        let watermark = view.watermark();
        let ready = consumer.refresh().expect("a sound head");
        found += ready;
        // The packet of number n has the time n.
        let offered = found + consumer.index_full();
        assert!(watermark.is_none_or(|time| (time.as_nanos() as u64) < offered), "of what is not there");
        for _ in 0..ready {
            let outcome = one(view, consumer, ready);
            consumer.commit(outcome);
        }
        if is_closed && ready == 0 {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn copies_are_complete() {
    let (store, view, producer, mut consumer) = pairs(Guarantee::Lossy);
    let writer = thread::spawn(move || write(store, producer));
    let mut arena = [0; 128];
    let mut copied = 0;
    read(&view, &mut consumer, |view, consumer, _| {
        let (entry, number) = consumer.peek(0);
        let result = view.copy(entry, &mut arena);
        if let Ok(head) = result {
            assert_eq!(head.number as u32, number);
            let bytes = &as_bytes(&arena)[LINE_LEN..][..head.cap_len as usize];
            assert_eq!(bytes, data(head.number));
            copied += 1;
        }
        let mut outcome = Outcome::default();
        outcome.add(entry, result.map(|_| ()));
        outcome
    });
    let account = writer.join().expect("the writer").account();
    assert!(account.balances() && account.offered == PACKETS && account.lost.damaged == 0);
    assert_eq!((account.delivered, account.lost.unread), (copied, 0));
}

#[test]
fn a_held_packet_is_a_slice_that_stays() {
    let (store, view, producer, mut consumer) = pairs(Guarantee::Leased);
    let writer = thread::spawn(move || write(store, producer));
    let mut looked = 0;
    read(&view, &mut consumer, |view, consumer, _| {
        let (entry, number) = consumer.peek(0);
        let mut outcome = Outcome::default();
        let held = view.hold(entry, consumer.held_word());
        if let Ok(sequence) = held {
            let head = view.look(entry).expect("a record that stays");
            let start = view.data_offset(entry);
            assert!(start >= BLOCK_HEAD_LEN);
            // SAFETY: the block is held until `release` below, and the record was published before its entry.
            let bytes = unsafe { view.bytes(sequence, start..start + head.cap_len as usize) };
            assert_eq!((bytes, head.number as u32), (&data(head.number)[..], number));
            release(consumer.held_word());
            looked += 1;
        }
        outcome.add(entry, held.map(|_| ()));
        outcome
    });
    let account = writer.join().expect("the writer").account();
    assert!(account.balances() && account.offered == PACKETS && account.lost.damaged == 0);
    assert_eq!((account.delivered, account.lost.unread), (looked, 0));
}

#[test]
fn without_news_nothing_is_stored() {
    const MARK: u64 = 77;
    let words = Words::private(HEADER_WORDS + 2 * ENTRIES as usize);
    let mut producer = Producer::new(words.clone(), ENTRIES, 1, 1, Guarantee::Lossy);
    let entry = |number: u32| to_words(crate::IndexEntry { position: number.into(), cap_len: 1 }, 0);
    let shown = [index::HEAD, index::INDEX_FULL, index::BYTES];
    producer.push((0..10).map(entry));
    producer.publish();
    assert_eq!(shown.map(|word| words[word].swap(MARK, Relaxed)), [10, 0, 10]);
    producer.publish();
    assert_eq!(shown.map(|word| words[word].load(Relaxed)), [MARK; 3]);
    producer.push((10..ENTRIES as u32 + 3).map(entry));
    producer.publish();
    assert_eq!(shown.map(|word| words[word].swap(MARK, Relaxed)), [ENTRIES, 3, ENTRIES]);
    assert_eq!(producer.push(std::iter::once(entry(20))), 1);
    producer.publish();
    assert_eq!(shown.map(|word| words[word].load(Relaxed)), [ENTRIES, 4, ENTRIES], "a loss is news");
}
