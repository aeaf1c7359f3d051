//! The metering thread's side: flows fill a table, which is sealed and handed to a thread of the exporter.
//!
//! ```text
//! flows --push--> table --rows or time: sealed--> thread: encode, deliver, spool
//! ```
//!
//! Where messages have a key by flow there is a table for each [key group](crate::key_group).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tapline_flow::export::{EncodedRows, FlowTable, SpareBuffers, TableEncoder, TableShape};
use tapline_flow::{Flow, Sampling};
use tapline_geo::Places;
use tapline_packet::Timestamp;

use crate::account::{Account, Cause, Tally};
use crate::key_group::{KEY_GROUPS, key_group};
use crate::outlet::{Batch, Limits, MakeBlocks, Outlet};
use crate::{Block, BlockId, Carrier, Encoding, Error, Sensor, Spool};

/// The making of blocks of flows.
pub struct Blocks {
    sensor: Sensor,
    epoch: u64,
    /// Blocks that were made.
    made: u64,
    /// Key groups, of which there is one unless messages have a key by flow.
    groups: u64,
    /// The form of the bytes.
    pub encoding: Encoding,
    /// The version of the columns.
    pub schema: u64,
    /// Makes the bytes.
    pub encoder: Box<dyn TableEncoder>,
    /// Memory of blocks that were acknowledged.
    spare: SpareBuffers,
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
        Blocks {
            sensor,
            epoch,
            made: 0,
            groups: 1,
            encoding,
            schema: shape.version(),
            encoder,
            spare: SpareBuffers::default(),
        }
    }

    /// Makes each block of the flows of one key group.
    #[must_use]
    pub fn keyed_by_flow(self) -> Blocks {
        Blocks { groups: KEY_GROUPS, ..self }
    }

    fn block(&mut self, part: EncodedRows, group: usize) -> Block {
        // Numbers rise as blocks are made, and tell the group.
        let number = self.made * self.groups + group as u64;
        self.made += 1;
        Block {
            id: BlockId { sensor: self.sensor.clone(), epoch: self.epoch, number },
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

/// Flows of a key group.
struct FlowBatch {
    group: usize,
    table: FlowTable,
    /// The time of the first flow of the table.
    since: Timestamp,
}

impl Batch for FlowBatch {
    const WHAT: &str = "flows";

    fn tally(&self) -> Tally {
        let table = &self.table;
        Tally { flows: table.flows(), rows: table.rows(), packets: table.packets() }
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }
}

impl MakeBlocks<FlowBatch> for Blocks {
    fn blocks(&mut self, batch: &mut FlowBatch, bytes_max: usize) -> Result<Vec<Block>, String> {
        let parts = self.encoder.encode_into(&batch.table, bytes_max, &mut self.spare);
        let parts = parts.map_err(|error| error.to_string())?;
        Ok(parts.into_iter().map(|part| self.block(part, batch.group)).collect())
    }

    fn reuse(&mut self, bytes: Vec<u8>) {
        self.spare.put(bytes);
    }
}

/// Exports flows in sealed batches.
pub struct BatchExporter {
    shape: TableShape,
    sampling: Sampling,
    /// The batch of each key group that is being filled.
    batches: Vec<FlowBatch>,
    /// Rows with which a batch is sealed: all batches together have those of the limits.
    rows_max: u64,
    outlet: Outlet<FlowBatch>,
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
        let groups = blocks.groups as usize;
        let batch = |group| FlowBatch { group, table: FlowTable::new(&shape), since: Timestamp::EPOCH };
        Ok(BatchExporter {
            batches: (0..groups).map(batch).collect(),
            rows_max: limits.rows.div_ceil(groups as u64),
            shape,
            sampling: Sampling::NONE,
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

    /// Sets the files of places of addresses, from the next flow on.
    pub fn set_places(&mut self, places: &Arc<Places>) {
        self.shape.set_places(places);
    }

    /// Once `cancel` is true the end of the run waits for no receiver: blocks that are not spooled are lost.
    pub fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        self.outlet.set_cancel_flag(cancel);
    }

    /// Takes flows. `now` is the time by which a batch becomes too old. Where the memory is full, flows of live interfaces
    /// are lost and counted; others wait for room.
    pub fn export(&mut self, flows: &[Flow], now: Timestamp, is_live: bool) {
        match self.batches.len() {
            1 => self.fill(0, flows, now, is_live),
            _ => {
                for flow in flows {
                    self.fill(key_group(flow) as usize, std::slice::from_ref(flow), now, is_live);
                }
            }
        }
        self.flush(now, is_live);
    }

    /// Puts flows into the batch of a key group, and seals it where it is full.
    fn fill(&mut self, group: usize, mut flows: &[Flow], now: Timestamp, is_live: bool) {
        while !flows.is_empty() {
            let batch = &mut self.batches[group];
            if batch.table.is_empty() {
                batch.since = now;
            }
            // A flow has two rows at most.
            let room = (self.rows_max.saturating_sub(batch.table.rows()) / 2).max(1);
            let count = usize::try_from(room).unwrap_or(usize::MAX).min(flows.len());
            let (fitting, rest) = flows.split_at(count);
            batch.table.push(&self.shape, fitting, self.sampling);
            if batch.table.rows() >= self.rows_max {
                self.seal(group, is_live);
            }
            flows = rest;
        }
    }

    /// Seals batches that are too old.
    pub fn flush(&mut self, now: Timestamp, is_live: bool) {
        for group in 0..self.batches.len() {
            if self.outlet.limits().is_too_old(self.batches[group].since, now) {
                self.seal(group, is_live);
            }
        }
    }

    /// Seals the last batches, and waits until every block is acknowledged, spooled or lost.
    pub fn finish(&mut self) {
        for group in 0..self.batches.len() {
            self.seal(group, false);
        }
        self.outlet.finish();
    }

    /// Counters. Flows of batches that are being filled are in flight.
    pub fn account(&self) -> Account {
        let mut open = Tally::default();
        for batch in &self.batches {
            open += batch.tally();
        }
        self.outlet.account(open)
    }

    /// Lines to be shown to the user since this was last asked.
    pub fn take_events(&mut self) -> Vec<String> {
        self.outlet.take_events()
    }

    /// The first reason of each cause by which rows were lost.
    pub fn reasons(&self) -> Vec<(Cause, String)> {
        self.outlet.reasons()
    }

    /// Hands the batch of a key group to the thread.
    fn seal(&mut self, group: usize, is_live: bool) {
        let batch = &mut self.batches[group];
        if !batch.table.is_empty() {
            let next = match self.outlet.spent() {
                Some(mut spent) => {
                    spent.table.clear();
                    spent.table
                }
                None => FlowTable::new(&self.shape),
            };
            let table = std::mem::replace(&mut batch.table, next);
            self.outlet.seal(FlowBatch { group, table, since: batch.since }, is_live);
        }
    }
}
