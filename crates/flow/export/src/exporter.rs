//! The metering thread's side: flows fill a table, which is sealed and handed to a thread of the exporter.
//!
//! ```text
//! flows --push--> table --rows or time: sealed--> thread: encode, deliver, spool
//! ```
//!
//! Where messages have a key by flow there is a table for each [key group](crate::key_group).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tapline_flow::export::{
    EncodedRows, ExportAccount, FlowSink, FlowTable, SpareBuffers, TableEncoder, TableShape,
};
use tapline_flow::{Flow, Sampling};
use tapline_geo::Places;
use tapline_packet::Timestamp;

use crate::account::{DeliveryAccount, Tally};
use crate::key_group::key_group;
use crate::outlet::{Batch, MakeBlocks, Outlet};
use crate::{Block, BlockId, Delivery, Encoding, Error};

/// The making of blocks of flows.
struct Blocks {
    /// The id of the first block.
    id: BlockId,
    /// Blocks that were made.
    made: u64,
    /// Key groups, of which there is one unless messages have a key by flow.
    groups: u64,
    encoding: Encoding,
    /// The version of the columns.
    schema: u64,
    /// Makes the bytes.
    encoder: Box<dyn TableEncoder>,
    /// Memory of blocks that were acknowledged.
    spare: SpareBuffers,
}

impl Blocks {
    fn block(&mut self, part: EncodedRows, group: usize) -> Block {
        // Numbers rise as blocks are made, and tell the group.
        let number = self.made * self.groups + group as u64;
        self.made += 1;
        Block {
            id: BlockId { number, ..self.id.clone() },
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
    is_live: bool,
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
        delivery: Delivery,
        shape: TableShape,
        encoder: Box<dyn TableEncoder>,
    ) -> Result<BatchExporter, Error> {
        let Delivery { encoding, groups, .. } = delivery;
        let batch = |group| FlowBatch { group, table: FlowTable::new(&shape), since: Timestamp::EPOCH };
        let blocks = Blocks {
            id: delivery.id.clone(),
            made: 0,
            groups,
            encoding,
            schema: shape.version(),
            encoder,
            spare: SpareBuffers::default(),
        };
        Ok(BatchExporter {
            batches: (0..groups as usize).map(batch).collect(),
            rows_max: delivery.limits.rows.div_ceil(groups),
            shape,
            sampling: Sampling::NONE,
            is_live: false,
            outlet: Outlet::start(delivery, Box::new(blocks))?,
        })
    }

    /// Once `cancel` is true the end of the run waits for no receiver: blocks that are not spooled are lost.
    pub fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        self.outlet.set_cancel_flag(cancel);
    }

    /// Deliveries so far. Flows of batches that are being filled are in flight.
    pub fn deliveries(&self) -> DeliveryAccount {
        let mut open = Tally::default();
        self.batches.iter().for_each(|batch| open += batch.tally());
        self.outlet.account(open)
    }

    /// Puts flows into the batch of a key group, and seals it where it is full.
    fn fill(&mut self, group: usize, mut flows: &[Flow], now: Timestamp) {
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
                self.seal(group, self.is_live);
            }
            flows = rest;
        }
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

/// Where the memory is full, flows of live interfaces are lost and counted; others wait for room.
impl FlowSink for BatchExporter {
    fn set_sampling(&mut self, sampling: Sampling) -> Result<(), tapline_flow::Error> {
        self.sampling = sampling;
        Ok(())
    }

    fn set_places(&mut self, places: &Arc<Places>) {
        self.shape.set_places(places);
    }

    fn set_live(&mut self, is_live: bool) {
        self.is_live = is_live;
    }

    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), tapline_flow::Error> {
        match self.batches.len() {
            1 => self.fill(0, flows, now),
            _ => {
                for flow in flows {
                    self.fill(key_group(flow) as usize, std::slice::from_ref(flow), now);
                }
            }
        }
        self.flush(now)
    }

    fn flush(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error> {
        for group in 0..self.batches.len() {
            if self.outlet.limits().is_too_old(self.batches[group].since, now) {
                self.seal(group, self.is_live);
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: Timestamp) -> Result<(), tapline_flow::Error> {
        for group in 0..self.batches.len() {
            self.seal(group, false);
        }
        self.outlet.finish();
        Ok(())
    }

    fn account(&self) -> ExportAccount {
        let account = self.deliveries();
        let messages_lost = account.blocks_lost.iter().sum();
        let [memory, refused, spool_full, undelivered] = account.lost.map(|lost| lost.flows);
        let mut counters = vec![
            ("acknowledged", account.acknowledged.flows),
            ("spooled", account.spooled.flows),
            ("lost_memory", memory),
            ("lost_refused", refused),
            ("lost_spool_full", spool_full),
            ("lost_undelivered", undelivered),
            ("in_flight", account.in_flight.flows),
            ("blocks", account.blocks),
            ("repeated", account.repeated),
        ];
        if account.found.flows > 0 {
            counters.push(("earlier_found", account.found.flows));
            counters.push(("earlier_acknowledged", account.replayed.flows));
            counters.push(("earlier_lost", account.replay_lost.flows));
        }
        ExportAccount {
            packets: account.output(self.outlet.name()),
            flows: account.ended.flows,
            records: account.ended.rows,
            messages: account.blocks + messages_lost,
            octets: account.bytes,
            messages_lost,
            left_out: 0,
            counters,
            losses: self.outlet.losses(),
        }
    }

    fn take_events(&mut self) -> Vec<String> {
        self.outlet.take_events()
    }
}
