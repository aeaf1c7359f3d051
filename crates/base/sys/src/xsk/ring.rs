//! The two ends of a ring that is shared with the kernel.
//!
//! ```text
//! producer:u32 consumer:u32 flags:u32 entry[len]        each where XDP_MMAP_OFFSETS says; len is a power of two
//!
//! entries from consumer to producer (modulo 2^32; modulo len as places) are the taker's, the others the putter's
//! ```
//!
//! Each end keeps the other's index as it was last read, and reads it again only when that is not enough: the words lie
//! in cache lines that the other side writes to. Orderings as in the kernel's net/xdp/xsk_queue.h, whose comment names
//! the pairs A to D.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use super::memory::Mapping;

/// Offsets of a ring's parts, from the start of its mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
    /// Entries, a power of two.
    pub(super) len: u32,
}

impl Layout {
    /// Bytes of the mapping.
    pub(super) fn mapping_len<T>(&self) -> usize {
        self.entries + self.len as usize * size_of::<T>()
    }
}

/// The elements of rings: plain integers.
///
/// # Safety
/// Any bytes are a value, and there is no padding.
pub(super) unsafe trait Entry: Copy {}

// SAFETY: an integer: the address of a chunk.
unsafe impl Entry for u64 {}
// SAFETY: 8 + 4 + 4 bytes of integers.
unsafe impl Entry for libc::xdp_desc {}

#[derive(Debug)]
struct Shared<T> {
    mapping: Mapping,
    layout: Layout,
    entry: PhantomData<T>,
}

impl<T: Entry> Shared<T> {
    fn new(mapping: Mapping, layout: Layout) -> Shared<T> {
        assert!(layout.len.is_power_of_two() && layout.mapping_len::<T>() <= mapping.len());
        let words = [layout.producer, layout.consumer, layout.flags];
        assert!(words.iter().all(|word| word % 4 == 0 && word + 4 <= mapping.len()));
        assert!(layout.entries.is_multiple_of(align_of::<T>()));
        Shared { mapping, layout, entry: PhantomData }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `new` has checked that the word lies in the mapping and is aligned; it lives as long as `self`. Both
        // sides only ever access it as a whole word, we atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.at(offset).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let place = (index & (self.layout.len - 1)) as usize;
        self.mapping.at(self.layout.entries + place * size_of::<T>()).cast()
    }

    fn needs_wakeup(&self) -> bool {
        self.word(self.layout.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The end that puts in: fill and TX.
#[derive(Debug)]
pub(super) struct Producer<T> {
    shared: Shared<T>,
    /// The slot of the next entry. Ahead of the shared index by the unpublished entries.
    next: u32,
    /// The kernel's index when it was last read.
    consumer: u32,
}

impl<T: Entry> Producer<T> {
    pub(super) fn new(mapping: Mapping, layout: Layout) -> Producer<T> {
        let shared = Shared::new(mapping, layout);
        let next = shared.word(layout.producer).load(Ordering::Relaxed);
        let consumer = shared.word(layout.consumer).load(Ordering::Acquire);
        Producer { shared, next, consumer }
    }

    /// The number of entries that there is room for; at least `wanted`, if there is that much room.
    #[inline]
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = self.known_room();
        if room >= wanted {
            return room;
        }
        // Acquire: the kernel is done reading the entries that it gives back. Pairs with D: smp_store_release() of the
        // consumer in __xskq_cons_release().
        self.consumer = self.shared.word(self.shared.layout.consumer).load(Ordering::Acquire);
        self.known_room()
    }

    /// Puts an entry in, which the kernel sees once it is published. Says whether there was room.
    #[inline]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: the place lies in the mapping and is aligned for T. The place is ours: the kernel reads entries up
        // to the published index only, and `room` has seen that it is past this one.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the new entries to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        // Release: entries are written before the index. Pairs with C: smp_load_acquire() of the producer in
        // __xskq_cons_peek().
        self.shared.word(self.shared.layout.producer).store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has not taken, with those not yet published.
    pub(super) fn pending(&mut self) -> u32 {
        let len = self.shared.layout.len;
        len - self.room(len)
    }

    /// Whether the kernel goes on only if it is called.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }

    /// An impossible index of the kernel's counts as a full ring.
    fn known_room(&self) -> u32 {
        self.shared.layout.len.saturating_sub(self.next.wrapping_sub(self.consumer))
    }
}

/// The end that takes out: RX and completion.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    /// The next entry to take. It is ahead of the shared index by the entries that are not yet released.
    next: u32,
    /// The kernel's index when it was last read.
    producer: u32,
}

impl<T: Entry> Consumer<T> {
    pub(super) fn new(mapping: Mapping, layout: Layout) -> Consumer<T> {
        let shared = Shared::new(mapping, layout);
        let next = shared.word(layout.consumer).load(Ordering::Relaxed);
        let producer = shared.word(layout.producer).load(Ordering::Acquire);
        Consumer { shared, next, producer }
    }

    /// Takes the next entry, if there is one.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.known() == 0 {
            self.refresh();
            if self.known() == 0 {
                return None;
            }
        }
        // SAFETY: the place lies in the mapping and is aligned for T, of which any bytes are a value. The place is
        // ours: the kernel's index, read with Acquire, is past it, and ours is not, so the kernel does not write to
        // it.
        let entry = unsafe { self.shared.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// The entry at a place among those that [wait](Self::waiting), which stays there.
    ///
    /// # Panics
    /// If fewer wait.
    pub(super) fn peek(&self, place: u32) -> T {
        assert!(place < self.known(), "no entry there");
        // SAFETY: as in `pop`: the entry is between our index and the kernel's, which was read with Acquire.
        unsafe { self.shared.entry(self.next.wrapping_add(place)).read() }
    }

    /// Returns the places of the taken entries.
    #[inline]
    pub(super) fn release(&mut self) {
        // Release: our reads of the entries are done. Pairs with A: the control dependency in xskq_prod_nb_free() after
        // it has read the consumer.
        self.shared.word(self.shared.layout.consumer).store(self.next, Ordering::Release);
    }

    /// Entries that wait to be taken.
    pub(super) fn waiting(&mut self) -> u32 {
        self.refresh();
        self.known()
    }

    fn refresh(&mut self) {
        // Acquire: what the kernel wrote before it moved its index is seen after this load: entries, and the packets
        // that they name. Pairs with B: smp_store_release() of the producer in __xskq_prod_submit().
        self.producer = self.shared.word(self.shared.layout.producer).load(Ordering::Acquire);
    }

    /// An index of the kernel's that cannot be counts as a full ring, not as more.
    fn known(&self) -> u32 {
        self.producer.wrapping_sub(self.next).min(self.shared.layout.len)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs::File;
    use std::os::fd::{AsFd, FromRawFd};

    use super::*;

    const LAYOUT: Layout = Layout { producer: 0, consumer: 64, flags: 128, entries: 192, len: 8 };

    /// Both ends of one ring, whose indices start at `index`: each plays the kernel for the other.
    fn ring(index: u32) -> (Producer<u64>, Consumer<u64>) {
        // SAFETY: the name is a C string; the descriptor is new, and no other value owns it.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC)) };
        let len = LAYOUT.mapping_len::<u64>();
        file.set_len(len as u64).unwrap();
        let mapping = || Mapping::of_file(file.as_fd(), len, 0).unwrap();
        let shared = Shared::<u64>::new(mapping(), LAYOUT);
        shared.word(LAYOUT.producer).store(index, Ordering::Relaxed);
        shared.word(LAYOUT.consumer).store(index, Ordering::Relaxed);
        (Producer::new(mapping(), LAYOUT), Consumer::new(mapping(), LAYOUT))
    }

    #[test]
    fn entries_stay_in_order_when_numbers_wrap() {
        for start in [0, 5, u32::MAX - 3, u32::MAX, 1 << 31] {
            let (mut producer, mut consumer) = ring(start);
            let mut model = VecDeque::new();
            let (mut next, mut state) = (0u64, 12345u32);
            for _ in 0..2000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let count = state >> 28;
                if state & 1 << 20 == 0 {
                    for _ in 0..count {
                        let has_room = model.len() < 8;
                        assert_eq!(producer.push(next), has_room);
                        model.extend(has_room.then_some(next));
                        next += 1;
                    }
                    producer.publish();
                } else {
                    for _ in 0..count {
                        assert_eq!(consumer.pop(), model.pop_front());
                    }
                    consumer.release();
                }
                assert_eq!(consumer.waiting() as usize, model.len());
                assert_eq!(producer.pending() as usize, model.len());
            }
        }
    }

    #[test]
    fn entries_are_published_before_they_are_seen() {
        let (mut producer, mut consumer) = ring(u32::MAX - 1);
        assert!((0..8).all(|entry| producer.push(entry)) && !producer.push(8));
        assert_eq!(consumer.pop(), None);
        producer.publish();
        assert_eq!((0..8).map(|_| consumer.pop().unwrap()).sum::<u64>(), 28);
        assert_eq!(producer.room(1), 0);
        consumer.release();
        assert_eq!(producer.room(1), 8);
    }

    #[test]
    fn an_impossible_index_stays_within_the_ring() {
        let (mut producer, mut consumer) = ring(0);
        consumer.shared.word(LAYOUT.producer).store(1 << 30, Ordering::Relaxed);
        assert_eq!(consumer.waiting(), 8);
        producer.shared.word(LAYOUT.consumer).store(77, Ordering::Relaxed);
        assert_eq!(producer.room(9), 0);
        assert!(!producer.push(1));
    }
}
