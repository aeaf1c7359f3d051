//! The IBuf's reading half: entries taken in order, and the outcome of each announced by one store.
//!
//! ```text
//! refresh: head, checked       peek(n): the n-th entry that is not consumed
//! commit: delivered += ..., overwritten += ..., damaged += ...       together they are how far we are
//! ```

use crate::Error;
use crate::atomic::{Acquire, AtomicU64, Relaxed, Release, SeqCst, fence};
use crate::layout::{ENTRIES, Guarantee, HEADER_WORDS, INDEX_MAGIC, index};
use crate::memory::Words;
use crate::record::halves;
use crate::store::IndexEntry;
use crate::view::{Miss, View, ensure_header};

const FILE: &str = "index";

/// The condition that ends a sleep: bytes beyond those that were seen, packets likewise (0: any number), or age.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SleepWish {
    pub(crate) min_bytes: u64,
    pub(crate) min_packets: u64,
    pub(crate) max_delay_ns: u64,
}

/// The fate of the entries that were looked at since the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) delivered: u64,
    pub(crate) overwritten: u64,
    pub(crate) damaged: u64,
    /// Captured bytes of all of them.
    pub(crate) bytes: u64,
}

impl Outcome {
    pub(crate) fn total(&self) -> u64 {
        self.delivered + self.overwritten + self.damaged
    }

    pub(crate) fn add(&mut self, entry: IndexEntry, result: Result<(), Miss>) {
        self.bytes = self.bytes.wrapping_add(u64::from(entry.cap_len));
        match result {
            Ok(()) => self.delivered += 1,
            Err(Miss::Overwritten) => self.overwritten += 1,
            Err(Miss::Damaged) => self.damaged += 1,
        }
    }
}

/// The reading half.
pub(crate) struct Consumer {
    words: Words,
    mask: u64,
    /// As last seen.
    head: u64,
    /// Nothing beyond this head is taken.
    is_final: bool,
    consumed: u64,
    done: Outcome,
    /// Whether the writer may sleep until we come on.
    wakes_writer: bool,
}

impl Consumer {
    /// The header was checked: the memory has room for that many entries.
    pub(crate) fn unchecked(words: Words, entries: u64) -> Consumer {
        let standing = Guarantee::from_word(words[index::STANDING].load(Relaxed));
        Consumer {
            words,
            mask: entries - 1,
            head: 0,
            is_final: false,
            consumed: 0,
            done: Outcome::default(),
            wakes_writer: standing == Guarantee::Lossless,
        }
    }

    /// Looks at the head. Returns how many entries are there that are not consumed.
    pub(crate) fn refresh(&mut self) -> Result<u64, Error> {
        if self.is_final {
            return Ok(self.ready());
        }
        // Pairs with the release store in `Producer::publish`.
        let head = self.words[index::HEAD].load(Acquire);
        let ready = head.wrapping_sub(self.consumed);
        if head < self.head || ready > self.mask + 1 {
            return Err(Error::IndexDamaged { head, consumed: self.consumed, room: self.mask + 1 });
        }
        self.head = head;
        Ok(ready)
    }

    /// Entries that are there by now are the last that are taken.
    #[cfg(not(loom))]
    pub(crate) fn stop_at_present(&mut self) {
        // A head that cannot be adds nothing.
        let _ = self.refresh();
        self.is_final = true;
    }

    /// Entries that were there at the last [`refresh`](Self::refresh) and are not consumed.
    pub(crate) fn ready(&self) -> u64 {
        self.head - self.consumed
    }

    /// The `ahead`-th entry that is not consumed, and its verdict. Less than [`ready`](Self::ready) are there.
    #[inline]
    pub(crate) fn peek(&self, ahead: u64) -> (IndexEntry, u32) {
        debug_assert!(ahead < self.ready());
        let at = HEADER_WORDS + 2 * ((self.consumed + ahead) & self.mask) as usize;
        let (cap_len, verdict) = halves(self.words[at + 1].load(Relaxed));
        (IndexEntry { position: self.words[at].load(Relaxed), cap_len }, verdict)
    }

    /// Announces the outcome of the next entries. Returns the word on which the writer sleeps, if it does, for the
    /// caller to wake it.
    pub(crate) fn commit(&mut self, outcome: Outcome) -> Option<&AtomicU64> {
        if outcome.total() == 0 {
            return None;
        }
        let done = &mut self.done;
        done.delivered += outcome.delivered;
        done.overwritten += outcome.overwritten;
        done.damaged += outcome.damaged;
        done.bytes = done.bytes.wrapping_add(outcome.bytes);
        self.consumed += outcome.total();
        // Each pairs with an acquire load in `Producer::listen`: the places of these entries are free from here on.
        self.words[index::DELIVERED].store(done.delivered, Release);
        self.words[index::OVERWRITTEN].store(done.overwritten, Release);
        self.words[index::DAMAGED].store(done.damaged, Release);
        if !self.wakes_writer {
            return None;
        }
        let turn = &self.words[index::TURN];
        turn.store(turn.load(Relaxed).wrapping_add(1), Release);
        // Pairs with the fence in `Producer::announce_sleep`: either the writer sees how far we are, or we see that it
        // sleeps.
        fence(SeqCst);
        (self.words[index::WRITER_SLEEPS].load(Relaxed) != 0).then_some(turn)
    }

    /// The fate of all entries so far.
    pub(crate) fn done(&self) -> Outcome {
        self.done
    }

    /// Entries that the index has places for.
    pub(crate) fn capacity(&self) -> u64 {
        self.mask + 1
    }

    pub(crate) fn index_full(&self) -> u64 {
        self.words[index::INDEX_FULL].load(Relaxed)
    }

    pub(crate) fn guarantee(&self) -> Guarantee {
        Guarantee::from_word(self.words[index::STANDING].load(Acquire))
    }

    /// After a [`refresh`](Self::refresh) behind this call, no packet of the past comes that is older than this; the
    /// greatest number once none comes any more.
    pub(crate) fn past(&self) -> i64 {
        // Pairs with the release store in `Producer::set_past`.
        self.words[index::PAST].load(Acquire) as i64
    }

    /// Captured bytes of the entries that are not consumed. A dishonest writer may give any number.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.words[index::BYTES].load(Relaxed).wrapping_sub(self.done.bytes)
    }

    pub(crate) fn held_word(&self) -> &AtomicU64 {
        &self.words[index::HELD]
    }

    /// The word to sleep on, as long as it is [`index::ON_FUTEX`]: our waker makes it something else before it wakes.
    pub(crate) fn waiting_word(&self) -> &AtomicU64 {
        &self.words[index::WAITING]
    }

    /// Announces that we are about to sleep, and until when we would like to: `lent` was looked at and is not
    /// committed, so no wake is needed for it. Returns whether the head is still the one that was last seen, and the
    /// buffer not closed: then a writer that changes either will see that we sleep.
    pub(crate) fn announce_sleep(&self, view: &View, how: u64, lent: &Outcome, wish: SleepWish) -> bool {
        let SleepWish { min_bytes, min_packets, max_delay_ns } = wish;
        let seen_bytes = self.done.bytes.wrapping_add(lent.bytes);
        self.words[index::WAKE_AT_BYTES].store(seen_bytes.saturating_add(min_bytes), Relaxed);
        self.words[index::WAKE_AT_PACKETS].store(min_packets, Relaxed);
        self.words[index::WAKE_AFTER_NS].store(max_delay_ns, Relaxed);
        self.words[index::SEEN].store(self.consumed + lent.total(), Relaxed);
        self.words[index::WAITING].store(how, Release);
        // Pairs with `producer::fence_for_sleepers`: either we see the new head, or the end, or the writer that we
        // sleep.
        fence(SeqCst);
        self.words[index::HEAD].load(Relaxed) == self.head && !view.is_closed()
    }

    /// Whether the writer made us awake since we said that we sleep.
    #[cfg(not(loom))]
    pub(crate) fn was_woken(&self) -> bool {
        self.words[index::WAITING].load(Relaxed) == index::AWAKE
    }

    /// Announces that we are awake.
    pub(crate) fn announce_awake(&self) {
        self.words[index::WAITING].store(index::AWAKE, Relaxed);
    }

    #[cfg(not(loom))]
    pub(crate) fn generation(&self) -> u64 {
        self.words[index::GENERATION].load(Relaxed)
    }
}

/// The entries that an index says it has, if its header is one.
pub(crate) fn entries_of(words: &Words) -> Result<u64, Error> {
    ensure_header(FILE, &|word| words[word].load(Relaxed), INDEX_MAGIC)?;
    let entries = words[index::ENTRIES].load(Relaxed);
    if entries.is_power_of_two() && ENTRIES.contains(&entries) {
        Ok(entries)
    } else {
        Err(Error::Size {
            what: "number of entries",
            value: entries,
            least: *ENTRIES.start(),
            most: *ENTRIES.end(),
        })
    }
}
