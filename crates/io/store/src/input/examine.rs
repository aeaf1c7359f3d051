//! The work of each thread of a search: the wanted packets of sections, in place.

use std::ops::Range;
use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_file::SectionReader;
use tapline_packet::{Interface, Record, Selection, Timestamp};
use tapline_source::Error;

use super::order::{copy_out, len_of};
use crate::Window;

/// Returns the filter for the packets of an interface: the same [`Arc`] for interfaces that share it, `None` if every
/// packet is wanted.
pub type SearchFilter = Arc<dyn Fn(&Interface) -> Result<Option<Arc<dyn PacketFilter>>, Error> + Send + Sync>;

/// Packets that are wanted of some sections.
pub(super) struct FoundPackets {
    /// The thread that found them: each has a table of interfaces of its own.
    pub(super) thread: usize,
    /// Interfaces that the thread met for the first time.
    pub(super) interfaces: Vec<Interface>,
    /// The memory that the records point into.
    pub(super) bytes: Vec<u8>,
    /// In the order of time.
    pub(super) records: Vec<Record>,
    /// The least time that packets of the next slots may have.
    pub(super) later: Timestamp,
    /// Packets of the time that the sieve refused, by the thread's numbers of interfaces.
    pub(super) refused: Vec<u64>,
    /// Sections that contradict themselves, in words.
    pub(super) faults: Vec<String>,
    /// Error of the filter for an interface, after which no packet can be decided.
    pub(super) failure: Option<Error>,
}

impl Default for FoundPackets {
    fn default() -> FoundPackets {
        FoundPackets {
            thread: 0,
            interfaces: Vec::new(),
            bytes: Vec::new(),
            records: Vec::new(),
            later: Timestamp::from_nanos(i64::MAX),
            refused: Vec::new(),
            faults: Vec::new(),
            failure: None,
        }
    }
}

/// Wanted packets are copied if they are less than this part of a buffer: the thread then goes on with the buffer,
/// which is in its processor's cache.
const COPIED_PART: usize = 4;

/// A thread's part of a search.
pub(super) struct Examiner {
    thread: usize,
    window: Window,
    sieve: Option<SearchFilter>,
    reader: SectionReader,
    /// The filter of each interface.
    engines: Vec<Option<Arc<dyn PacketFilter>>>,
    /// All interfaces have the same.
    is_uniform: bool,
    selection: Selection,
}

impl Examiner {
    pub(super) fn new(thread: usize, window: Window, sieve: Option<SearchFilter>) -> Examiner {
        Examiner {
            thread,
            window,
            sieve,
            reader: SectionReader::new(),
            engines: Vec::new(),
            is_uniform: true,
            selection: Selection::none(),
        }
    }

    /// Finds the wanted packets in the sections at `place` of `buffer`. Takes the buffer if there are any.
    pub(super) fn examine(
        &mut self,
        buffer: &mut Vec<u8>,
        place: Range<usize>,
        later: Timestamp,
    ) -> FoundPackets {
        let mut found = FoundPackets { thread: self.thread, later, ..FoundPackets::default() };
        let known = self.engines.len();
        self.reader.set_buffer(std::mem::take(buffer), place);
        loop {
            match self.reader.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => {
                    found.faults.push(reason);
                    break;
                }
            }
            if let Err(failure) = self.learn_interfaces() {
                found.failure = Some(failure);
                break;
            }
            self.take_wanted(&mut found);
        }
        found.interfaces = self.reader.interfaces().get(known..).unwrap_or_default().to_vec();
        // Nearly always they are in order already.
        found.records.sort_by_key(|record| record.meta.timestamp);
        let bytes = self.reader.take_buffer();
        let wanted: usize = found.records.iter().map(len_of).sum();
        match wanted * COPIED_PART < bytes.len() {
            true => {
                found.bytes.reserve_exact(wanted);
                copy_out(&bytes, &mut found.records, &mut found.bytes);
                *buffer = bytes;
            }
            false => found.bytes = bytes,
        }
        found
    }

    fn learn_interfaces(&mut self) -> Result<(), Error> {
        for interface in self.reader.interfaces().iter().skip(self.engines.len()) {
            let engine = self.sieve.as_ref().map_or(Ok(None), |sieve| sieve(interface))?;
            self.engines.push(engine);
            let is_same = |pair: &[Option<Arc<dyn PacketFilter>>]| match (&pair[0], &pair[1]) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            self.is_uniform = self.engines.windows(2).all(is_same);
        }
        Ok(())
    }

    /// Adds the wanted packets of the reader's batch.
    fn take_wanted(&mut self, found: &mut FoundPackets) {
        let window = self.window;
        if window != Window::ALL {
            self.reader.retain(|record| window.has(record.meta.timestamp));
        }
        let batch = self.reader.batch();
        if self.sieve.is_none() {
            found.records.extend_from_slice(batch.records());
            return;
        }
        self.selection.select_all(batch.len());
        match self.engines.first() {
            Some(Some(engine)) if self.is_uniform => engine.select(&batch, &mut self.selection),
            _ => {
                let engines = &self.engines;
                self.selection.retain(|index| {
                    let packet = batch.packet(index);
                    let engine = engines.get(packet.meta.interface.0 as usize);
                    engine.and_then(Option::as_ref).is_none_or(|engine| engine.accepts(packet))
                });
            }
        }
        found.refused.resize(self.engines.len(), 0);
        let mut wanted = self.selection.iter().peekable();
        for (index, record) in batch.records().iter().enumerate() {
            if wanted.next_if_eq(&index).is_some() {
                found.records.push(*record);
            } else if let Some(refused) = found.refused.get_mut(record.meta.interface.0 as usize) {
                *refused += 1;
            }
        }
    }
}
