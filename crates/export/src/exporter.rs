//! The metering thread's side: flows fill a table, which is sealed and handed to a thread of the exporter.
//!
//! ```text
//! flows --push--> table --rows or time: sealed--> thread: encode, deliver, spool
//! ```

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tapline_flow::export::{EncodedRows, FlowTable, TableEncoder, TableShape};
use tapline_flow::{Flow, Sampling};
use tapline_packet::Timestamp;
use tapline_places::Places;

use crate::account::{Account, Cause, Tally};
use crate::outlet::{Batch, Limits, MakeBlocks, Outlet};
use crate::{Block, BlockId, Carrier, Encoding, Error, Sensor, Spool};

/// The making of blocks of flows.
pub struct Blocks {
    /// The sensor and the run; its number is that of the next block.
    pub first: BlockId,
    /// The form of the bytes.
    pub encoding: Encoding,
    /// The version of the columns.
    pub schema: u64,
    /// Makes the bytes.
    pub encoder: Box<dyn TableEncoder>,
}

impl Blocks {
    /// Blocks of a sensor's run.
    pub fn new(
        sensor: Sensor,
        epoch: u64,
        encoding: Encoding,
        shape: &TableShape,
        encoder: Box<dyn TableEncoder>,
    ) -> Blocks {
        let first = BlockId { sensor, epoch, number: 0 };
        Blocks { first, encoding, schema: shape.version(), encoder }
    }

    fn block(&mut self, part: EncodedRows) -> Block {
        let id = self.first.clone();
        self.first.number += 1;
        Block {
            id,
            encoding: self.encoding,
            schema: self.schema,
            flows: part.flows,
            rows: part.rows,
            packets: part.packets,
            packets_before: 0,
            first_ns: part.first.as_nanos(),
            last_ns: part.last.as_nanos(),
            bytes: part.bytes,
        }
    }
}

impl Batch for FlowTable {
    const WHAT: &str = "flows";

    fn tally(&self) -> Tally {
        Tally { flows: self.flows(), rows: self.rows(), packets: self.packets() }
    }

    fn bytes(&self) -> usize {
        FlowTable::bytes(self)
    }
}

impl MakeBlocks<FlowTable> for Blocks {
    fn blocks(&mut self, table: FlowTable, bytes_max: usize) -> Result<Vec<Block>, String> {
        let parts = self.encoder.encode(&table, bytes_max).map_err(|error| error.to_string())?;
        Ok(parts.into_iter().map(|part| self.block(part)).collect())
    }
}

/// Exports flows in sealed batches.
pub struct BatchExporter {
    shape: TableShape,
    sampling: Sampling,
    table: FlowTable,
    /// The time of the first flow of the table.
    since: Timestamp,
    outlet: Outlet<FlowTable>,
}

impl BatchExporter {
    /// Starts the thread that encodes and delivers.
    ///
    /// # Errors
    /// [`Error::Thread`] if there can be none.
    pub fn start(
        shape: TableShape,
        blocks: Blocks,
        carrier: Box<dyn Carrier>,
        spool: Option<Spool>,
        limits: Limits,
    ) -> Result<BatchExporter, Error> {
        Ok(BatchExporter {
            table: FlowTable::new(&shape),
            shape,
            sampling: Sampling::NONE,
            since: Timestamp::EPOCH,
            outlet: Outlet::start(Box::new(blocks), carrier, spool, limits)?,
        })
    }

    /// The destination as users wrote it, without secrets.
    pub fn name(&self) -> &str {
        self.outlet.name()
    }

    /// Sets how packets or flows were sampled.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
    }

    /// Sets the files that tell where addresses are, from the next flow on.
    pub fn set_places(&mut self, places: &Arc<Places>) {
        self.shape.set_places(places);
    }

    /// Once `cancel` is true the end of the run waits for no receiver: what is not spooled is lost.
    pub fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        self.outlet.set_cancel_flag(cancel);
    }

    /// Takes flows. `now` is the time by which a batch becomes too old. Where the memory is full, flows of live interfaces
    /// are lost and counted; others wait for room.
    pub fn export(&mut self, flows: &[Flow], now: Timestamp, is_live: bool) {
        for flow in flows {
            if self.table.is_empty() {
                self.since = now;
            }
            self.table.push(&self.shape, flow, self.sampling);
            if self.table.rows() >= self.outlet.limits().rows {
                self.seal(is_live);
            }
        }
        self.flush(now, is_live);
    }

    /// Seals the batch if it is too old.
    pub fn flush(&mut self, now: Timestamp, is_live: bool) {
        if !self.table.is_empty() && self.outlet.limits().is_too_old(self.since, now) {
            self.seal(is_live);
        }
    }

    /// Seals the last batch, and waits until every block is acknowledged, spooled or lost.
    pub fn finish(&mut self) {
        self.seal(false);
        self.outlet.finish();
    }

    /// Counters. Flows of the batch that is being filled are in flight.
    pub fn account(&self) -> Account {
        self.outlet.account(self.table.tally())
    }

    /// Lines to be shown to the user since this was last asked.
    pub fn take_events(&mut self) -> Vec<String> {
        self.outlet.take_events()
    }

    /// The first reason of each cause by which rows were lost.
    pub fn reasons(&self) -> Vec<(Cause, String)> {
        self.outlet.reasons()
    }

    /// Hands the table to the thread.
    fn seal(&mut self, is_live: bool) {
        if !self.table.is_empty() {
            let table = std::mem::replace(&mut self.table, FlowTable::new(&self.shape));
            self.outlet.seal(table, is_live);
        }
    }
}
