//! The counters of one stage, and how they are added to.
//!
//! The engine reads the clock before and after a stage's batch and calls [`Meter::add`] once: seven additions to memory
//! that no other thread writes to, so they need neither lock nor locked instruction. Readers see each counter as it was
//! at some moment.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tapline_sys::WordRange;

use crate::histogram::bucket;
use crate::layout::{EXTRAS_MAX, SLOT_WORDS, slot, text_of, words_of};
use crate::meters::Lease;
use crate::snapshot::Snapshot;

/// The words of a slot.
pub(crate) type Slot = WordRange<SLOT_WORDS>;

/// Cost of a batch at one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Ticks of the [`Clock`](crate::Clock), without those of the stages that this one called.
    pub cycles: u64,
    /// Packets selected when the stage got the batch.
    pub packets_in: u64,
    /// Bytes of the packets in, on the wire.
    pub bytes_in: u64,
    /// Packets that left, over all outputs.
    pub packets_out: u64,
    /// Bytes of the packets out, on the wire.
    pub bytes_out: u64,
}

/// The counters of one stage, source or sink of one worker. A clone is the same counters; when the last one is dropped
/// they are retired: they stay readable, and final, until their place is needed.
///
/// One thread may add at a time. If two do, counts are lost, nothing worse.
#[derive(Clone, Debug)]
pub struct Meter {
    slot: Slot,
    lease: Arc<Lease>,
}

impl Meter {
    pub(crate) fn new(slot: Slot, lease: Lease) -> Meter {
        Meter { slot, lease: Arc::new(lease) }
    }

    /// Counts a batch.
    #[inline]
    pub fn add(&self, cost: &Cost) {
        let words = &*self.slot;
        add(&words[slot::BATCHES], 1);
        add(&words[slot::PACKETS_IN], cost.packets_in);
        add(&words[slot::BYTES_IN], cost.bytes_in);
        add(&words[slot::PACKETS_OUT], cost.packets_out);
        add(&words[slot::BYTES_OUT], cost.bytes_out);
        add(&words[slot::CYCLES], cost.cycles);
        add(&words[slot::HISTOGRAM.start + bucket(cost.cycles, cost.packets_in)], cost.packets_in);
    }

    /// A further counter under this name, of at most 16 bytes: the one that has it, or a new one. `None` if there are
    /// [`EXTRAS_MAX`] others, or the name is empty.
    pub fn extra(&self, name: &str) -> Option<Extra> {
        let wanted: [u64; slot::EXTRA_NAME_WORDS] = words_of(name);
        if wanted[0] == 0 {
            return None;
        }
        let (place, is_new) =
            (0..EXTRAS_MAX).map(|index| slot::EXTRAS + index * slot::EXTRA_WORDS).find_map(|place| {
                let name = [0, 1].map(|word| self.slot[place + word].load(Relaxed));
                (name[0] == 0 || name == wanted).then_some((place, name[0] == 0))
            })?;
        if is_new {
            // The first word last: a reader that sees it sees a name.
            self.slot[place + 1].store(wanted[1], Relaxed);
            self.slot[place].store(wanted[0], std::sync::atomic::Ordering::Release);
        }
        Some(Extra { meter: self.clone(), value: place + slot::EXTRA_NAME_WORDS })
    }

    /// The counters as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let words = std::array::from_fn(|word| self.slot[word].load(Relaxed));
        Snapshot::of_words(&words).expect("our own slot has a state and a kind that exist")
    }

    /// Whether other processes can see the counters.
    pub fn is_shared(&self) -> bool {
        self.slot.is_shared()
    }

    /// The name of the counters, cut to its field.
    pub fn name(&self) -> String {
        text_of(slot::NAME.map(|word| self.slot[word].load(Relaxed)))
    }

    /// The set of meters that these counters are in.
    pub fn meters(&self) -> crate::Meters {
        self.lease.meters()
    }
}

/// A further counter of a stage, for its own quantity: the entries of a table, the packets of the loudest talker.
#[derive(Clone, Debug)]
pub struct Extra {
    meter: Meter,
    value: usize,
}

impl Extra {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.word().store(value, Relaxed);
    }

    /// Adds to the value. One thread may at a time.
    #[inline]
    pub fn add(&self, value: u64) {
        add(self.word(), value);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.word().load(Relaxed)
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        &self.meter.slot[self.value]
    }
}

/// A plain addition: the only writer needs no locked one.
#[inline]
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
}
