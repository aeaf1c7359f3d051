//! The IBuf's writing half: entries for one reader, and the reader's own words, which are all checked.
//!
//! ```text
//! push: a place is free if head - consumed < entries        consumed = delivered + overwritten + damaged, as told and checked
//! publish: bytes, losses, then the head
//! ```

use crate::account::{Account, LossCounts};
use crate::atomic::{Acquire, AtomicU64, Relaxed, Release, SeqCst, fence};
use crate::copy::store_entries;
use crate::layout::{BYTE_ORDER, Guarantee, HEADER_LEN, HEADER_WORDS, INDEX_MAGIC, VERSION, header, index};
use crate::memory::Words;
use crate::record::pair;
use crate::store::IndexEntry;

/// The reader's three counters, as last believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TrustedCounters {
    delivered: u64,
    overwritten: u64,
    damaged: u64,
}

impl TrustedCounters {
    fn consumed(&self) -> Option<u64> {
        self.delivered.checked_add(self.overwritten)?.checked_add(self.damaged)
    }
}

/// An entry in the form of an index: position; captured bytes and verdict.
pub(crate) type EntryWords = [u64; 2];

#[inline]
pub(crate) fn to_words(entry: IndexEntry, verdict: u32) -> EntryWords {
    [entry.position, pair(entry.cap_len, verdict)]
}

/// The way in which a reader sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    OnFutex,
    OnBell,
}

/// The writing half. The account is its own memory.
pub(crate) struct Producer {
    words: Words,
    mask: u64,
    /// Entries written, published or not.
    head: u64,
    published: u64,
    index_full: u64,
    /// As last shown.
    published_full: u64,
    bytes: u64,
    told: TrustedCounters,
    /// The sum of the reported counts.
    consumed: u64,
    is_implausible: bool,
}

impl Producer {
    /// Writes the header into memory that is all zero. `entries` is a power of two, and the memory has room for that
    /// many.
    pub(crate) fn new(
        words: Words,
        entries: u64,
        generation: u64,
        reader: u64,
        standing: Guarantee,
    ) -> Producer {
        for (word, value) in [
            (header::BYTE_ORDER, BYTE_ORDER),
            (header::VERSION, VERSION),
            (header::HEADER_LEN, HEADER_LEN as u64),
            (index::ENTRIES, entries),
            (index::GENERATION, generation),
            (index::READER, reader),
            (index::STANDING, standing.to_word()),
            (index::PAST, index::PRESENT),
            (header::MAGIC, INDEX_MAGIC),
        ] {
            words[word].store(value, Relaxed);
        }
        Producer {
            words,
            mask: entries - 1,
            head: 0,
            published: 0,
            index_full: 0,
            published_full: 0,
            bytes: 0,
            told: TrustedCounters::default(),
            consumed: 0,
            is_implausible: false,
        }
    }

    /// Writes entries, the oldest first. Those that find no place are lost, and counted. Returns how many these are.
    #[inline]
    pub(crate) fn push(&mut self, mut entries: impl ExactSizeIterator<Item = EntryWords>) -> u64 {
        self.push_with(entries.len(), |places, _| {
            let mut bytes = 0;
            // In this order: the iterator is asked only if there is a place.
            for ([position, what], entry) in places.iter().zip(entries.by_ref()) {
                position.store(entry[0], Relaxed);
                what.store(entry[1], Relaxed);
                bytes += u64::from(entry[1] as u32);
            }
            bytes
        })
    }

    /// Pushes entries with one verdict, which is in none of them yet. They are copied as one stretch: 2.8 cycles for
    /// each, where picking them one by one takes 5 to 7.
    #[inline]
    pub(crate) fn push_stretch(&mut self, entries: &[EntryWords], verdict: u32) -> u64 {
        self.push_with(entries.len(), |places, first| {
            let entries = &entries[first..first + places.len()];
            store_entries(places, entries, u64::from(verdict) << 32)
        })
    }

    /// Writes entries into adjacent places, the `first` of which is for the entry of that number. `write` returns
    /// their bytes.
    #[inline]
    fn push_with(&mut self, wanted: usize, mut write: impl FnMut(&[[AtomicU64; 2]], usize) -> u64) -> u64 {
        let room = self.room_for(wanted as u64) as usize;
        let (places, _) = self.words[HEADER_WORDS..].as_chunks::<2>();
        let start = (self.head & self.mask) as usize;
        let first = room.min(self.mask as usize + 1 - start);
        let mut bytes = write(&places[start..start + first], 0);
        if first < room {
            bytes += write(&places[..room - first], first);
        }
        self.head += room as u64;
        self.bytes += bytes;
        let lost = (wanted - room) as u64;
        self.index_full += lost;
        lost
    }

    /// Counts packets that were meant for the reader and get no entry, because there is no place for all.
    pub(crate) fn lose(&mut self, packets: u64) {
        self.index_full += packets;
    }

    /// Entries that there can be.
    pub(crate) fn capacity(&self) -> u64 {
        self.mask + 1
    }

    /// Number of entries, of `wanted`, that have a place.
    pub(crate) fn room_for(&mut self, wanted: u64) -> u64 {
        let entries = self.mask + 1;
        if entries - (self.head - self.consumed) < wanted {
            self.listen();
        }
        wanted.min(entries - (self.head - self.consumed))
    }

    /// Shows the written and the lost entries. Without news nothing is stored: readers look at these words without
    /// pause.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.head == self.published && self.index_full == self.published_full {
            return;
        }
        self.words[index::INDEX_FULL].store(self.index_full, Relaxed);
        self.words[index::BYTES].store(self.bytes, Relaxed);
        // Pairs with the acquire load in `Consumer::refresh`.
        self.words[index::HEAD].store(self.head, Release);
        (self.published, self.published_full) = (self.head, self.index_full);
    }

    /// Announces that entries which cannot be seen yet are of packets not older than this, independently of the
    /// buffer's watermark; `None`: no packet of the past comes any more. Call it after [`publish`](Self::publish).
    pub(crate) fn set_past(&self, latest: Option<i64>) {
        let word = latest.map_or(index::PRESENT, |latest| latest as u64);
        // Pairs with the acquire load in `Consumer::past`.
        self.words[index::PAST].store(word, Release);
    }

    /// Reads the reader's progress. Impossible progress is not believed. Returns the entries that the reader
    /// consumed.
    pub(crate) fn listen(&mut self) -> u64 {
        // Pairs with the release stores in `Consumer::commit`: what the reader loaded from a place, it loaded before.
        let told = TrustedCounters {
            delivered: self.words[index::DELIVERED].load(Acquire),
            overwritten: self.words[index::OVERWRITTEN].load(Acquire),
            damaged: self.words[index::DAMAGED].load(Acquire),
        };
        let goes_on = told.delivered >= self.told.delivered
            && told.overwritten >= self.told.overwritten
            && told.damaged >= self.told.damaged;
        match told.consumed() {
            Some(consumed) if goes_on && consumed <= self.published => {
                (self.told, self.consumed) = (told, consumed);
            }
            _ => self.is_implausible = true,
        }
        self.consumed
    }

    /// Whether there are packets that the reader had not looked at when it fell asleep. Packets that it had on loan
    /// then do not count.
    pub(crate) fn has_news(&self) -> bool {
        self.published > self.words[index::SEEN].load(Relaxed)
    }

    /// Whether entries were written that are not published.
    pub(crate) fn has_unpublished(&self) -> bool {
        self.head != self.published
    }

    /// Entries written.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn account(&mut self) -> Account {
        self.listen();
        let TrustedCounters { delivered, overwritten, damaged } = self.told;
        Account {
            offered: self.head + self.index_full,
            delivered,
            lost: LossCounts {
                index_full: self.index_full,
                overwritten,
                damaged,
                unread: self.head - self.consumed,
            },
            is_implausible: self.is_implausible,
        }
    }

    pub(crate) fn set_standing(&self, standing: Guarantee) {
        self.words[index::STANDING].store(standing.to_word(), Release);
    }

    /// The block that the reader says it holds; 0 if none.
    pub(crate) fn held(&self) -> u64 {
        // Pairs with the release stores in `View::hold` and `view::release`.
        self.words[index::HELD].load(Acquire)
    }

    /// Whether a reader that sleeps should be woken: it has waited long enough, there are bytes or packets enough, or it
    /// has a quarter of the index to read. `age_ns` is how old the oldest entry is that it has not been woken for. The caller
    /// made a fence after [`publish`](Self::publish), and [found news](Self::has_news).
    pub(crate) fn should_wake(&self, age_ns: u64) -> bool {
        let unread = self.published.saturating_sub(self.words[index::SEEN].load(Relaxed));
        self.bytes >= self.words[index::WAKE_AT_BYTES].load(Relaxed)
            || age_ns >= self.words[index::WAKE_AFTER_NS].load(Relaxed)
            // 0 is not a wish; a reader that asks for more than the index has is woken as others are.
            || (1..=unread).contains(&self.words[index::WAKE_AT_PACKETS].load(Relaxed))
            || unread >= (self.mask + 1) / 4
    }

    /// The nanoseconds after which the reader has to be woken for few packets.
    pub(crate) fn wake_after_ns(&self) -> u64 {
        self.words[index::WAKE_AFTER_NS].load(Relaxed)
    }

    pub(crate) fn sleeps(&self) -> Option<Sleep> {
        match self.words[index::WAITING].load(Acquire) {
            index::ON_FUTEX => Some(Sleep::OnFutex),
            index::ON_BELL => Some(Sleep::OnBell),
            _ => None,
        }
    }

    /// Marks the reader as awake, which its waker does before it wakes it.
    pub(crate) fn mark_awake(&self) {
        self.words[index::WAITING].store(index::AWAKE, Relaxed);
    }

    /// The word that a reader sleeps on.
    pub(crate) fn waiting_word(&self) -> &AtomicU64 {
        &self.words[index::WAITING]
    }

    /// Announces that the writer is about to sleep until the reader continues. Returns the word to sleep on
    /// [`turn_word`](Self::turn_word) with; `None` if the reader consumed more than was last heard. One that was
    /// caught lying never did: the writer does not retry for it.
    pub(crate) fn announce_sleep(&self) -> Option<u64> {
        let seen = self.words[index::TURN].load(Relaxed);
        self.words[index::WRITER_SLEEPS].store(1, Relaxed);
        // Pairs with the fence in `Consumer::commit`: either we see how far it is, or it sees that we sleep.
        fence(SeqCst);
        let counts =
            [index::DELIVERED, index::OVERWRITTEN, index::DAMAGED].map(|word| self.words[word].load(Relaxed));
        let came_on = counts.into_iter().fold(0, u64::wrapping_add) != self.consumed;
        (self.is_implausible || !came_on).then_some(seen)
    }

    /// Announces that the writer is awake.
    pub(crate) fn announce_awake(&self) {
        self.words[index::WRITER_SLEEPS].store(0, Relaxed);
    }

    /// The word that the writer sleeps on.
    #[cfg(not(loom))]
    pub(crate) fn turn_word(&self) -> &AtomicU64 {
        &self.words[index::TURN]
    }
}

/// One fence for all readers, between the heads that were stored and the sleepers that are looked for.
pub(crate) fn fence_for_sleepers() {
    // Pairs with the fence in `Consumer::announce_sleep`.
    fence(SeqCst);
}
