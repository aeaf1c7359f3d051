//! A source that a test fills.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use tapline_ir::CompiledFilter;
use tapline_packet::{Batch, Meta, Record};

use crate::failure::Failure;
use crate::handle::{Handle, HandleState, Kind};
use crate::raw::Stat;
use crate::read::pcap_breakloop;
use crate::source::{Keep, Source};

/// Lends batches of packets of one byte each. None of its functions loses any.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) batches: VecDeque<Vec<u8>>,
    /// The batch that comes when there are no others, again and again.
    pub(crate) endless: Option<Vec<u8>>,
    /// A handle whose loop is broken whenever the batch is looked at.
    pub(crate) breaks: Arc<AtomicPtr<Handle>>,
    pub(crate) memory: Vec<u8>,
    pub(crate) records: Vec<Record>,
}

impl Fake {
    pub(crate) fn of(batches: &[&[u8]]) -> Fake {
        Fake { batches: batches.iter().map(|batch| batch.to_vec()).collect(), ..Fake::default() }
    }

    /// An active handle on this source.
    pub(crate) fn into_handle(self) -> *mut Handle {
        let mut state = HandleState::new(Kind::Live(Box::new(self)));
        state.snap_len = 100;
        state.dlt = 1;
        Handle::boxed(state)
    }
}

impl Source for Fake {
    fn advance(&mut self, keep: Keep<'_>) -> Result<bool, Failure> {
        self.records.clear();
        let Some(batch) = self.batches.pop_front().or_else(|| self.endless.clone()) else {
            return Ok(false);
        };
        self.memory = batch;
        let meta = Meta { wire_len: 1, ..Meta::default() };
        let record = |offset| Record { offset, cap_len: 1, options_len: 0, meta };
        self.records = (0..self.memory.len()).map(record).collect();
        self.refilter(0, keep);
        Ok(true)
    }

    fn batch(&self) -> Batch<'_> {
        // SAFETY: null, or the handle of the test.
        unsafe { pcap_breakloop(self.breaks.load(Ordering::Relaxed)) };
        Batch::new(&self.memory, &self.records)
    }

    fn refilter(&mut self, from: usize, keep: Keep<'_>) {
        let mut index = 0;
        self.records.retain(|record| {
            index += 1;
            let data = crate::vlan::data(&self.memory, record);
            index <= from || keep(tapline_packet::Packet { data, meta: &record.meta })
        });
    }

    fn release(&mut self) {
        self.records.clear();
    }

    fn fd(&self) -> RawFd {
        // poll(2) passes it over.
        -1
    }

    fn set_program(&mut self, _: &CompiledFilter) -> Result<(), Failure> {
        Ok(())
    }

    fn wants_filter(&self) -> bool {
        true
    }

    fn set_direction(&mut self, _: c_int) -> Result<(), Failure> {
        Ok(())
    }

    fn dlts(&self) -> &[c_int] {
        &[1]
    }

    fn statistics(&mut self) -> Result<Stat, Failure> {
        Ok(Stat::default())
    }

    fn send(&mut self, frame: &[u8], _: bool) -> Result<usize, Failure> {
        Ok(frame.len())
    }

    fn resize(&mut self, _: u64, _: Option<u32>) -> Result<(), Failure> {
        Ok(())
    }
}
