//! A store as a source: the chunks that a search finds, packet by packet.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapline_file::SectionReader;
use tapline_packet::{Batch, Interface};
use tapline_store::{Search, SearchAccount};

use crate::{Advance, Count, Error, Event, InterfaceAccount, Loss, Place, Source};

/// Packets of a store within the times of a search. The search only leaves out what cannot be meant: the capture's filter decides about each packet.
pub struct StoreInput {
    name: String,
    search: Search,
    reader: SectionReader,
    /// Packets lent of each interface.
    lent: Vec<u64>,
    /// The first batch was read when the store was opened.
    is_read_ahead: bool,
    is_stopped: bool,
    is_read: bool,
    account: SearchReport,
    /// Chunks that were not read to their end.
    faulty: u64,
    /// What is still to be told of them.
    faults: Vec<String>,
}

/// How many faults of chunks are told at once.
const FAULTS_TOLD_MAX: usize = 16;

/// What a search did so far, for others to see.
#[derive(Clone, Debug, Default)]
pub struct SearchReport(Arc<Mutex<SearchAccount>>);

impl SearchReport {
    /// Up to the last chunk that was asked for.
    pub fn get(&self) -> SearchAccount {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, account: SearchAccount) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = account;
    }
}

impl StoreInput {
    /// Opens what a search finds; `name` is what the account calls the store.
    pub fn new(search: Search, name: &str) -> StoreInput {
        let mut input = StoreInput {
            name: name.to_owned(),
            search,
            reader: SectionReader::new(),
            lent: Vec::new(),
            is_read_ahead: false,
            is_stopped: false,
            is_read: false,
            account: SearchReport::default(),
            faulty: 0,
            faults: Vec::new(),
        };
        // Filters are compiled for interfaces, which the first chunk describes.
        input.is_read_ahead = input.find_batch();
        input
    }

    /// What the search does.
    pub fn report(&self) -> SearchReport {
        self.account.clone()
    }

    /// Whether there is another batch.
    fn find_batch(&mut self) -> bool {
        let window = self.search.window();
        loop {
            while self.advance_in_chunk() {
                self.reader.retain(|record| window.has(record.meta.timestamp));
                if !self.reader.batch().is_empty() {
                    return true;
                }
            }
            let mut is_there = false;
            let search = &mut self.search;
            let filled = self.reader.refill(|buffer| {
                is_there = search.next(buffer);
                Ok::<_, Infallible>(())
            });
            filled.unwrap_or_else(|never| match never {});
            self.account.set(self.search.account());
            if !is_there {
                self.is_read = true;
                return false;
            }
        }
    }

    /// Whether the chunk has another batch. A chunk whose checksum fits was written by a recorder; one that contradicts itself all the same
    /// is left there, which is told.
    fn advance_in_chunk(&mut self) -> bool {
        self.reader.advance().unwrap_or_else(|reason| {
            self.faulty += 1;
            if self.faults.len() < FAULTS_TOLD_MAX {
                self.faults.push(format!("a chunk contradicts itself: {reason}; the rest of it is left out"));
            }
            false
        })
    }

    fn count(&mut self) {
        self.lent.resize(self.reader.interfaces().len(), 0);
        for record in self.reader.batch().records() {
            if let Some(lent) = self.lent.get_mut(record.meta.interface.0 as usize) {
                *lent += 1;
            }
        }
    }
}

impl Source for StoreInput {
    fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    fn advance(&mut self, _wait: Duration) -> Result<Advance, Error> {
        if self.is_stopped || self.is_read {
            return Ok(Advance::End);
        }
        if std::mem::take(&mut self.is_read_ahead) || self.find_batch() {
            self.count();
            return Ok(Advance::Batch);
        }
        Ok(Advance::End)
    }

    fn batch(&self) -> Batch<'_> {
        if self.is_stopped || self.is_read { Batch::empty() } else { self.reader.batch() }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped = true;
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let rows = self.reader.interfaces().iter().enumerate().map(|(at, interface)| {
            let lent = self.lent.get(at).copied().unwrap_or(0);
            let mut row = InterfaceAccount::of_file(&format!("{} {}", self.name, interface.label()), lent);
            row.is_partial = !self.is_read;
            row
        });
        let mut rows: Vec<InterfaceAccount> = rows.collect();
        let lost = self.search.account().lost;
        if let Some(first) = rows.first_mut().filter(|_| lost > 0) {
            let counter = "lost while recorded".to_owned();
            first.losses.push(Loss { place: Place::File, counter, count: Count::Known(lost) });
        }
        if let Some(first) = rows.first_mut().filter(|_| self.faulty > 0) {
            let counter = format!("in {} chunks that contradict themselves", self.faulty);
            first.losses.push(Loss { place: Place::File, counter, count: Count::Unknown });
        }
        rows
    }

    fn events(&mut self) -> Vec<Event> {
        let event = |text| Event { interface: String::new(), text, warning: true };
        std::mem::take(&mut self.faults).into_iter().map(event).collect()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some(self.search.progress())
    }
}
