//! A worker's share of a source that every worker reads whole: a file.
//!
//! Which packets are a worker's, a hash of their addresses says: both directions of a flow and all fragments of its packets come to one worker, and the
//! shares of all workers together are the source.

use std::time::Duration;

use tapline_capture::{Advance, Error, InterfaceAccount, Source};
use tapline_packet::headers::Headers;
use tapline_packet::{Batch, LinkType, Record};

use crate::join::Marker;
use crate::layer::leave_to_source;

/// Where the hash starts.
const SEED: u64 = 0x7368_6172_6500;
/// So many batches without a packet for us are read before the loop may look at the clock.
const EMPTY_MAX: usize = 64;

/// A worker's share of a source.
pub struct Share {
    source: Box<dyn Source>,
    worker: u64,
    workers: u64,
    records: Vec<Record>,
    /// Packets lent of each interface.
    lent: Vec<u64>,
    /// Packets of the source so far, those of other workers too.
    read: u64,
    /// Tells how far this worker has come.
    marker: Option<Marker>,
}

impl Share {
    /// The share of `worker`, counted from 0, of `workers`, each of which reads the same.
    pub fn new(source: Box<dyn Source>, worker: usize, workers: usize) -> Share {
        let (worker, workers) = (worker as u64, workers.max(1) as u64);
        Share { source, worker, workers, records: Vec::new(), lent: Vec::new(), read: 0, marker: None }
    }

    /// The same, telling how far it has come, if anybody wants to know.
    #[must_use]
    pub fn marked(self, marker: Option<Marker>) -> Share {
        Share { marker, ..self }
    }

    /// Keeps of the source's batch what is ours.
    fn choose(&mut self) {
        let (batch, interfaces) = (self.source.batch(), self.source.interfaces());
        self.lent.resize(interfaces.len(), 0);
        self.records.clear();
        for (index, record) in batch.records().iter().enumerate() {
            let interface = record.meta.interface.0 as usize;
            let link_type =
                interfaces.get(interface).map_or(LinkType::ETHERNET, |interface| interface.link_type);
            let packet = batch.packet(index);
            let hash = Headers::parse(link_type, packet).host_hash(packet.data, SEED);
            if (u128::from(hash) * u128::from(self.workers)) >> 64 == u128::from(self.worker) {
                self.records.push(*record);
                if let Some(lent) = self.lent.get_mut(interface) {
                    *lent += 1;
                }
            }
        }
    }
}

impl Source for Share {
    leave_to_source!(interfaces stop is_filtered events progress waited_ticks);

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.records.clear();
        for _ in 0..EMPTY_MAX {
            if let Some(marker) = &self.marker {
                marker.reached(self.read);
            }
            match self.source.advance(wait)? {
                Advance::Batch => self.choose(),
                other => return Ok(other),
            }
            let start = self.read;
            self.read += self.source.batch().len() as u64;
            if !self.records.is_empty() {
                if let Some(marker) = &self.marker {
                    marker.begin(start);
                }
                return Ok(Advance::Batch);
            }
        }
        Ok(Advance::Idle)
    }

    fn batch(&self) -> Batch<'_> {
        let whole = self.source.batch();
        Batch::new(whole.base(), &self.records).cut(whole.snap_len())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let mut accounts = self.source.account();
        for (index, account) in accounts.iter_mut().enumerate() {
            account.delivered = self.lent.get(index).copied().unwrap_or(0);
        }
        accounts
    }
}
