//! Packets that leave in sealed chunks: each is a complete section of pcapng.
//!
//! ```text
//! packets --push--> chunk: section header, interface*, packet* --bytes or time: sealed--> thread: deliver, spool
//! ```
//!
//! A chunk describes the interfaces of its own packets. It has the number of packets of the run before it, including
//! those of lost chunks, so that a reader learns from the next chunk how many are missing.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tapline_file::{Section, blocks};
use tapline_packet::{Interface, InterfaceId, Meta, Packet, Timestamp};

use crate::account::{DeliveryAccount, Tally};
use crate::outlet::{Batch, MakeBlocks, Outlet};
use crate::{Block, BlockId, Delivery, Encoding, Error};

/// A section with its packets.
#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    packets: u64,
    packets_before: u64,
    first: Timestamp,
    last: Timestamp,
}

impl Batch for Chunk {
    const WHAT: &str = "packets";

    fn tally(&self) -> Tally {
        Tally { packets: self.packets, ..Tally::default() }
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Assigns ids to chunks.
struct Numbered(BlockId);

impl MakeBlocks<Chunk> for Numbered {
    fn blocks(&mut self, chunk: &mut Chunk, _: usize) -> Result<Vec<Block>, String> {
        let id = self.0.clone();
        self.0.number += 1;
        Ok(vec![Block {
            id,
            encoding: Encoding::Pcapng,
            schema: 0,
            flows: 0,
            rows: 0,
            packets: chunk.packets,
            packets_before: chunk.packets_before,
            first_ns: chunk.first.as_nanos(),
            last_ns: chunk.last.as_nanos(),
            bytes: std::mem::take(&mut chunk.bytes),
        }])
    }
}

/// Exports packets in sealed chunks.
pub struct PacketExporter {
    /// The section header of every chunk.
    head: Vec<u8>,
    chunk: Chunk,
    /// The chunk's own numbers of interfaces, by those of the source.
    numbers: Vec<Option<InterfaceId>>,
    /// Interfaces that the chunk describes.
    described: u32,
    /// The time at which the chunk was begun.
    since: Timestamp,
    outlet: Outlet<Chunk>,
}

impl PacketExporter {
    /// Starts the thread that delivers. `section` is the writer that chunks name.
    ///
    /// # Errors
    /// [`Error::Thread`] if there can be none.
    pub fn start(delivery: Delivery, section: &Section) -> Result<PacketExporter, Error> {
        let numbered = Box::new(Numbered(delivery.id.clone()));
        let mut head = Vec::new();
        blocks::section_header(&mut head, section);
        Ok(PacketExporter {
            chunk: Chunk { bytes: head.clone(), ..Chunk::default() },
            head,
            numbers: Vec::new(),
            described: 0,
            since: Timestamp::EPOCH,
            outlet: Outlet::start(delivery, numbered)?,
        })
    }

    /// The destination as users wrote it, without secrets.
    pub fn name(&self) -> &str {
        self.outlet.name()
    }

    /// Once `cancel` is true the end of the run waits for no receiver: chunks that are not spooled are lost.
    pub fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        self.outlet.set_cancel_flag(cancel);
    }

    /// Takes a packet. `interface` is that of its number, `options` are those of pcapng that it came with, and `now` is the
    /// time by which a chunk becomes too old. Where the memory is full, chunks of live interfaces are lost and counted;
    /// others wait for room.
    pub fn push(
        &mut self,
        packet: &Packet<'_>,
        interface: &Interface,
        options: &[u8],
        now: Timestamp,
        is_live: bool,
    ) {
        let end = self.chunk.bytes.len();
        self.append(packet, interface, options);
        if self.chunk.bytes.len() > self.outlet.limits().block && self.chunk.packets > 0 {
            self.chunk.bytes.truncate(end);
            self.seal(is_live);
            self.append(packet, interface, options);
        }
        let time = packet.meta.timestamp;
        if self.chunk.packets == 0 {
            (self.since, self.chunk.first, self.chunk.last) = (now, time, time);
        }
        self.chunk.packets += 1;
        self.chunk.first = self.chunk.first.min(time);
        self.chunk.last = self.chunk.last.max(time);
    }

    /// Seals the chunk if it is too old.
    pub fn flush(&mut self, now: Timestamp, is_live: bool) {
        if self.outlet.limits().is_too_old(self.since, now) {
            self.seal(is_live);
        }
    }

    /// Seals the last chunk, and waits until every one is acknowledged, spooled or lost.
    pub fn finish(&mut self) {
        self.seal(false);
        self.outlet.finish();
    }

    /// Counters. Packets of the chunk that is being filled are in flight.
    pub fn deliveries(&self) -> DeliveryAccount {
        self.outlet.account(self.chunk.tally())
    }

    /// Lines to be shown to the user since this was last asked.
    pub fn take_events(&mut self) -> Vec<String> {
        self.outlet.take_events()
    }

    /// Losses by cause: each with the name and the first reason, chunks and packets.
    pub fn losses(&self) -> Vec<(String, u64, u64)> {
        self.outlet.losses()
    }

    /// Appends a packet, and its interface if the chunk has not described it.
    fn append(&mut self, packet: &Packet<'_>, interface: &Interface, options: &[u8]) {
        let place = packet.meta.interface.0 as usize;
        if self.numbers.len() <= place {
            self.numbers.resize(place + 1, None);
        }
        let number = *self.numbers[place].get_or_insert_with(|| {
            blocks::interface(&mut self.chunk.bytes, interface, 0);
            self.described += 1;
            InterfaceId(self.described - 1)
        });
        let meta = Meta { interface: number, ..*packet.meta };
        let packet = Packet { data: packet.data, meta: &meta };
        blocks::packet(&mut self.chunk.bytes, &packet, interface, 0, options);
    }

    /// Hands the chunk to the thread, and begins the next one.
    fn seal(&mut self, is_live: bool) {
        if self.chunk.packets == 0 {
            return;
        }
        // The next one is about as long.
        let mut bytes = Vec::with_capacity(self.chunk.bytes.len());
        bytes.extend_from_slice(&self.head);
        let packets_before = self.chunk.packets_before + self.chunk.packets;
        let next = Chunk { bytes, packets_before, ..Chunk::default() };
        self.numbers.fill(None);
        self.described = 0;
        let chunk = std::mem::replace(&mut self.chunk, next);
        self.outlet.seal(chunk, is_live);
    }
}
