//! Erasure: chunks with packets to be erased are written again without them, at the same offset and of the same length.
//!
//! ```text
//! segment --index: time, keys--> chunks --read, filter--> packets to erase            look: only the account
//!    chunk without them --rewrite--> roll-up, index removed --> at its place --> index, roll-up made again
//! ```
//!
//! An [`Eraser`] holds the store's lock: no recorder and no other command that changes segments runs at the same time.

mod chunk;
mod link;
pub(crate) mod rewrite;

use std::fs::{File, OpenOptions};

use serde::Serialize;
use serde_json::json;
use tapline_file::SectionReader;
use tapline_filter::Options;
use tapline_packet::{Interface, Packet};
use tapline_sys::disk;

#[cfg(test)]
pub(crate) use self::chunk::PACKET;
pub(crate) use self::chunk::{Blocks, packets_of};
use self::chunk::{Verdict, without};
use self::link::LinkFilters;
use self::rewrite::{BATCH_LEN, Rewrite};
use crate::catalog::Catalog;
use crate::error::Error;
use crate::hold::HoldEntry;
use crate::index::{Builder, IndexOptions, rollup};
use crate::layout::SLOT_LEN;
use crate::log::History;
use crate::packed;
use crate::question::Question;
use crate::restore::{Restored, index_options, read_intact};
use crate::search::Window;
use crate::walk::{FoundChunk, Walk};
use crate::{lock, log};

/// The packets to be erased: those of `window` that `filter` accepts.
#[derive(Clone, Debug)]
pub struct ErasureScope {
    /// The packets' times.
    pub window: Window,
    /// A filter in the pcap-filter language; empty for all packets of these times.
    pub filter: String,
    /// Options of the filter's compiler. Link type, handle and netmask are replaced by those of the store.
    pub options: Options,
    /// The reason as free text, which goes into the log; may be empty.
    pub why: String,
}

/// Counters of an erasure: each segment, chunk and packet is counted in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErasureAccount {
    /// Segments of the store.
    pub segments: u64,
    /// Segments that were not read because their times are outside the window.
    pub segments_by_time: u64,
    /// Not read because no slot in their index has the keys of the filter.
    pub segments_by_keys: u64,
    /// Not read because the file could not be opened.
    pub segments_unreadable: u64,
    /// Read.
    pub segments_read: u64,
    /// Chunks of the segments that were read.
    pub chunks: u64,
    /// Chunks that were not read because their times are outside the window.
    pub chunks_by_time: u64,
    /// Not read because their slot does not have the keys of the filter.
    pub chunks_by_keys: u64,
    /// With a wrong checksum, not readable, or with other packets than their head says: none can be erased.
    pub chunks_damaged: u64,
    /// Read, and without packets to be erased.
    pub chunks_left: u64,
    /// With packets to be erased: rewritten by [`Eraser::erase`], only counted by [`Eraser::look`].
    pub chunks_erased: u64,
    /// Damaged places in the segments that were read: neither chunk nor filler.
    pub places_damaged: u64,
    /// Packets in the chunks that were read.
    pub packets: u64,
    /// Packets kept.
    pub packets_left: u64,
    /// Packets in `packets_left` whose link type does not support the filter.
    pub packets_unfit: u64,
    /// Erased by [`Eraser::erase`]; to be erased after [`Eraser::look`].
    pub packets_erased: u64,
    /// Chunks with packets to be erased whose writing failed. They are as they were, or in the file `rewrite`, which
    /// the next command that changes segments, or recorder, completes.
    pub chunks_unwritten: u64,
    /// Packets of these chunks.
    pub packets_unwritten: u64,
    /// Captured bytes of the packets in `packets_erased`.
    pub bytes_erased: u64,
    /// Packets in `packets_erased` that were on hold.
    pub packets_held: u64,
    /// Names of the holds that these packets are on; ascending, each once.
    pub holds: Vec<String>,
}

impl ErasureAccount {
    /// Counts chunks that could not be written.
    fn take_back(&mut self, pending: &Pending) {
        let chunks = pending.rewrites.len() as u64;
        let packets: u64 = pending.counts.iter().map(|(packets, _)| packets).sum();
        self.chunks_erased -= chunks;
        self.chunks_unwritten += chunks;
        self.packets_erased -= packets;
        self.packets_unwritten += packets;
        self.bytes_erased -= pending.counts.iter().map(|(_, bytes)| bytes).sum::<u64>();
    }

    /// Whether the sums of segments, chunks and packets agree with their totals.
    pub fn is_balanced(&self) -> bool {
        let segments =
            self.segments_by_time + self.segments_by_keys + self.segments_unreadable + self.segments_read;
        let passed = self.chunks_by_time + self.chunks_by_keys;
        let looked = self.chunks_damaged + self.chunks_left + self.chunks_erased + self.chunks_unwritten;
        self.segments == segments
            && self.chunks == passed + looked
            && self.packets == self.packets_left + self.packets_erased + self.packets_unwritten
    }
}

/// An erasure. It holds the store's lock until it is dropped.
pub struct Eraser {
    catalog: Catalog,
    wanted: ErasureScope,
    question: Question,
    filter: LinkFilters,
    holds: Vec<(HoldEntry, LinkFilters)>,
    account: ErasureAccount,
    history: History,
    _lock: File,
}

impl Eraser {
    /// Takes the store's lock, and writes the chunks that a killed erasure left in the file `rewrite`.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds the lock; [`Error::Setting`] if the filter does not parse;
    /// [`Error::File`].
    pub fn open(catalog: Catalog, wanted: ErasureScope) -> Result<Eraser, Error> {
        let filter = LinkFilters::new(&wanted.filter, &wanted.options);
        let parsed = tapline_filter::parse(&wanted.filter);
        parsed.map_err(|error| Error::Setting(error.render(&wanted.filter)))?;
        let lock = lock::take(&catalog.paths)?;
        rewrite::finish(&catalog)?;
        let of_hold = |entry: HoldEntry| {
            let text = entry.hold.as_ref().map_or("", |hold| &hold.filter);
            let filters = LinkFilters::new(text, &Options::default());
            (entry, filters)
        };
        let holds = catalog.holds()?.into_iter().map(of_hold).collect();
        let question = Question::of(&wanted.filter, &wanted.options);
        let account = ErasureAccount::default();
        let history = log::history(&catalog.paths);
        Ok(Eraser { catalog, wanted, question, filter, holds, account, history, _lock: lock })
    }

    /// Counts what [`erase`](Self::erase) would erase; no file is changed. `progress` is called before each segment
    /// with the number of segments done and of all segments; if it returns `false` the account ends there.
    ///
    /// # Errors
    /// [`Error::Setting`] if no link type of the packets that were read can have the filter; [`Error::File`].
    pub fn look(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<ErasureAccount, Error> {
        let looked = self
            .each_segment(progress, &mut |eraser, number, account| eraser.segment(number, false, account))?;
        self.filter.check()?;
        Ok(looked)
    }

    /// The account of the last [`look`](Self::look) or [`erase`](Self::erase), also of one that ended by an error.
    pub fn account(&self) -> &ErasureAccount {
        &self.account
    }

    /// Erases the packets and writes the log. Packets on hold are erased too: callers that respect holds call
    /// [`look`](Self::look) first and stop if `packets_held` is not 0. `progress` is as there.
    ///
    /// # Errors
    /// Those of [`look`](Self::look); [`Error::NoRoomToErase`] if the disk has too little room. Packets erased before
    /// the error stay erased; another call erases the rest.
    pub fn erase(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<ErasureAccount, Error> {
        self.account = ErasureAccount::default();
        let Window { from, to } = self.wanted.window;
        let (filter, why) = (&self.wanted.filter, &self.wanted.why);
        log::append(
            &self.catalog.paths,
            json!({ "event": "erasing", "from_ns": from.as_nanos(), "to_ns": to.as_nanos(), "filter": filter,
                "why": why }),
        )?;
        self.each_segment(progress, &mut |eraser, number, account| {
            let before = (account.chunks_erased, account.packets_erased);
            let erased = eraser.segment(number, true, account);
            let (chunks, packets) = (account.chunks_erased - before.0, account.packets_erased - before.1);
            if chunks == 0 {
                return erased;
            }
            // Of an error too: some chunks may have been written before it.
            let event = json!({ "event": "erased", "segment": number, "chunks": chunks, "packets": packets });
            let logged = log::append(&eraser.catalog.paths, event);
            erased.and(logged)
        })
    }

    fn each_segment(
        &mut self,
        progress: &mut dyn FnMut(u64, u64) -> bool,
        visit: &mut dyn FnMut(&mut Eraser, u64, &mut ErasureAccount) -> Result<(), Error>,
    ) -> Result<ErasureAccount, Error> {
        let numbers = self.catalog.numbers()?;
        let mut account = ErasureAccount::default();
        let mut visited = Ok(());
        for (done, &number) in numbers.iter().enumerate() {
            if !progress(done as u64, numbers.len() as u64) {
                break;
            }
            account.segments += 1;
            visited = visit(self, number, &mut account);
            account.packets_unfit += self.filter.take_unfit();
            if visited.is_err() {
                break;
            }
        }
        account.holds.sort();
        account.holds.dedup();
        self.account = account.clone();
        visited.map(|()| account)
    }

    /// Counts the packets to be erased in a segment, and erases them if `is_meant`.
    fn segment(&mut self, number: u64, is_meant: bool, account: &mut ErasureAccount) -> Result<(), Error> {
        let index = self.catalog.index(number);
        let times = index.as_ref().map(|index| (index.summary.first, index.summary.last));
        if times.is_some_and(|(first, last)| !self.wanted.window.overlaps(first, last)) {
            account.segments_by_time += 1;
            return Ok(());
        }
        let slots = index.as_ref().and_then(|index| index.may_satisfy(&self.question));
        if slots.as_ref().is_some_and(|slots| !slots.contains(&true)) {
            account.segments_by_keys += 1;
            return Ok(());
        }
        let opened = disk::open_regular(&self.catalog.segment_path(number), OpenOptions::new().read(true));
        let Ok(file) = opened else {
            account.segments_unreadable += 1;
            return Ok(());
        };
        account.segments_read += 1;
        let may = |slot: u32| slots.as_ref().is_none_or(|slots| slots.get(slot as usize) != Some(&false));
        let mut pending = Pending::new(self.catalog.clone(), number, index.is_some());
        let mut reader = SectionReader::new();
        let len = self.catalog.segment_len();
        let path = self.catalog.segment_path(number);
        let walk = Walk::new(&file, self.catalog.id, number, len).map_err(Error::file("read", &path))?;
        let mut walk = walk.sealed(self.catalog.sealed_chunks(number, &self.history));
        while let Some(found) = walk.next() {
            account.chunks += 1;
            if !self.wanted.window.overlaps(found.head.first, found.head.last) {
                account.chunks_by_time += 1;
            } else if !may((found.offset / SLOT_LEN as u64) as u32) {
                account.chunks_by_keys += 1;
            } else if let Some(new) = self.chunk(&file, &found, &mut reader, account).filter(|_| is_meant) {
                pending.add(found.offset, new).inspect_err(|_| account.take_back(&pending))?;
            }
        }
        account.places_damaged += walk.damaged + walk.missing();
        pending.write_rest().inspect_err(|_| account.take_back(&pending))?;
        pending.finish(&mut self.history)
    }

    /// Counts the packets to be erased in a chunk; returns the chunk without them, or `None` if it stays as it is.
    fn chunk(
        &mut self,
        file: &File,
        found: &FoundChunk,
        reader: &mut SectionReader,
        account: &mut ErasureAccount,
    ) -> Option<Erased> {
        let mut bytes = Vec::new();
        if read_intact(file, found, &mut bytes).is_none() {
            account.chunks_damaged += 1;
            return None;
        }
        let Some(section) = packed::section(&bytes, &found.head) else {
            account.chunks_damaged += 1;
            return None;
        };
        let held = (account.packets_held, account.holds.len());
        let verdicts = self.judge(&section, reader, account);
        if verdicts.len() != found.head.packets as usize {
            // The checksum is right, and the head is not: what is in there cannot be erased by it.
            account.packets_held = held.0;
            account.holds.truncate(held.1);
            account.chunks_damaged += 1;
            return None;
        }
        let wanted = || verdicts.iter().filter(|verdict| verdict.is_wanted);
        let count = wanted().count() as u64;
        if count == 0 {
            account.chunks_left += 1;
            account.packets += verdicts.len() as u64;
            account.packets_left += verdicts.len() as u64;
            return None;
        }
        let Some(chunk) = without(&bytes, &verdicts, log::now()) else {
            account.chunks_damaged += 1;
            return None;
        };
        account.chunks_erased += 1;
        account.packets += verdicts.len() as u64;
        account.packets_erased += count;
        account.packets_left += verdicts.len() as u64 - count;
        let bytes = wanted().map(|verdict| verdict.len as u64).sum::<u64>();
        account.bytes_erased += bytes;
        Some(Erased { chunk, packets: count, bytes })
    }

    /// Decides about each packet of a chunk, in their order; counts those that are on hold.
    fn judge(
        &mut self,
        bytes: &[u8],
        reader: &mut SectionReader,
        account: &mut ErasureAccount,
    ) -> Vec<Verdict> {
        let filled: Result<(), std::convert::Infallible> = reader.refill(|buffer| {
            buffer.clear();
            buffer.extend_from_slice(bytes);
            Ok(())
        });
        filled.unwrap_or_else(|never| match never {});
        let mut verdicts = Vec::new();
        while reader.advance().unwrap_or(false) {
            for packet in reader.batch().iter() {
                let Some(interface) = reader.interfaces().get(packet.meta.interface.0 as usize) else {
                    continue;
                };
                let timestamp = packet.meta.timestamp;
                let is_wanted = self.wanted.window.has(timestamp) && self.filter.accepts(interface, packet);
                if is_wanted {
                    self.note_holds(interface, packet, account);
                }
                verdicts.push(Verdict { is_wanted, timestamp, len: packet.data.len() });
            }
        }
        verdicts
    }

    fn note_holds(&mut self, interface: &Interface, packet: Packet<'_>, account: &mut ErasureAccount) {
        let mut is_held = false;
        for (entry, filters) in &mut self.holds {
            let holds = match &entry.hold {
                Ok(hold) => hold.window.has(packet.meta.timestamp) && filters.accepts(interface, packet),
                Err(_) => true,
            };
            if holds {
                is_held = true;
                if !account.holds.contains(&entry.name) {
                    account.holds.push(entry.name.clone());
                }
            }
        }
        account.packets_held += u64::from(is_held);
    }
}

/// A chunk without its erased packets, and counts of these.
struct Erased {
    chunk: Vec<u8>,
    packets: u64,
    bytes: u64,
}

/// Rewritten chunks of a segment, collected until they are [`BATCH_LEN`] bytes.
struct Pending {
    catalog: Catalog,
    segment: u64,
    /// Optional keys of the index; `None` without an index.
    index: Option<IndexOptions>,
    has_roll_up: bool,
    rewrites: Vec<Rewrite>,
    len: usize,
    /// Packets and their bytes that each of these chunks lacks.
    counts: Vec<(u64, u64)>,
    /// Chunks were written: index and roll-up were removed before.
    is_begun: bool,
}

impl Pending {
    fn new(catalog: Catalog, segment: u64, has_index: bool) -> Pending {
        let has_roll_up = catalog.paths.roll_up(rollup::roll_up_of(segment)).exists();
        let index = has_index.then(|| index_options(&catalog, segment));
        Pending {
            catalog,
            segment,
            index,
            has_roll_up,
            rewrites: Vec::new(),
            len: 0,
            counts: Vec::new(),
            is_begun: false,
        }
    }

    fn add(&mut self, offset: u64, erased: Erased) -> Result<(), Error> {
        self.len += erased.chunk.len();
        self.counts.push((erased.packets, erased.bytes));
        self.rewrites.push(Rewrite { segment: self.segment, offset, bytes: erased.chunk });
        if self.len >= BATCH_LEN { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), Error> {
        let mut written = 0;
        let replaced = rewrite::replace(&self.catalog, &self.rewrites, &mut written);
        self.rewrites.drain(..written);
        self.counts.drain(..written);
        replaced?;
        (self.len, self.is_begun) = (0, true);
        Ok(())
    }

    fn write_rest(&mut self) -> Result<(), Error> {
        if self.rewrites.is_empty() { Ok(()) } else { self.write() }
    }

    /// Makes index and roll-up again if the segment had them.
    fn finish(self, history: &mut History) -> Result<(), Error> {
        let Some(options) = self.index.filter(|_| self.is_begun) else { return Ok(()) };
        let mut index = Builder::new(self.catalog.segment_len(), options);
        let sealed = self.catalog.sealed_chunks(self.segment, history);
        let restored = Restored::read(&self.catalog, self.segment, sealed, Some(&mut index))?;
        restored.seal(&self.catalog, self.segment, &mut index, history)?;
        if self.has_roll_up {
            rollup::write(&self.catalog, rollup::roll_up_of(self.segment), history)?;
        }
        Ok(())
    }
}
