//! The reader's side of the merge: a source for each lane.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tapline_packet::{Batch, Interface, Record};
use tapline_source::{Advance, Error, InterfaceAccount, Source};
use tapline_sys::tsc;

use super::WorkerMerge;

/// The packets of one lane, ordered by key.
pub struct MergedSource {
    merge: Arc<WorkerMerge>,
    lane: usize,
    interfaces: Vec<Interface>,
    bytes: Vec<u8>,
    records: Vec<Record>,
    waited: u64,
}

impl MergedSource {
    /// The sources of all lanes, by exit, then inlet.
    pub fn all(merge: &Arc<WorkerMerge>) -> Vec<MergedSource> {
        let (lanes, interfaces) = {
            let state = merge.lock();
            (state.lanes.len(), state.interfaces.clone())
        };
        let source = |lane| MergedSource {
            merge: Arc::clone(merge),
            lane,
            interfaces: interfaces.clone(),
            bytes: Vec::new(),
            records: Vec::new(),
            waited: 0,
        };
        (0..lanes).map(source).collect()
    }

    /// The exit that its packets come from.
    pub fn exit(&self) -> usize {
        self.lane / self.merge.inlets
    }
}

impl Drop for MergedSource {
    fn drop(&mut self) {
        self.merge.lock().is_closed = true;
        self.merge.moved.notify_all();
    }
}

impl Source for MergedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.bytes.clear();
        self.records.clear();
        let inlet = self.lane % self.merge.inlets;
        let mut has_waited = false;
        let mut state = self.merge.lock();
        loop {
            let until = state.least_watermark(inlet);
            if state.take(self.lane, until, &mut self.bytes, &mut self.records) {
                self.interfaces.extend(state.interfaces.iter().skip(self.interfaces.len()).cloned());
                self.merge.moved.notify_all();
                return Ok(Advance::Batch);
            }
            if state.live == 0 && state.lanes[self.lane].is_empty() {
                return Ok(Advance::End);
            }
            if state.is_stuck(self.merge.inlets) {
                state.queue_len = state.queue_len.saturating_mul(2);
                self.merge.moved.notify_all();
            }
            if has_waited {
                return Ok(Advance::Idle);
            }
            let start = tsc::now();
            state = self.merge.moved.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            self.waited = self.waited.wrapping_add(tsc::now().wrapping_sub(start));
            has_waited = true;
        }
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records)
    }

    /// Stops nothing here: the workers stop, and packets queued by then are still lent.
    fn stop(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Empty: the interfaces are in the workers' accounts.
    fn account(&mut self) -> Vec<InterfaceAccount> {
        Vec::new()
    }

    fn waited_ticks(&self) -> u64 {
        self.waited
    }
}
