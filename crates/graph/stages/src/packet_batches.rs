//! Packets that leave in sealed chunks, which are kept until the receiver has acknowledged them: `capture -w kafka://`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tapline_export::{Delivery, Limits, PacketExporter, Receiver, Secret, Sensor};
use tapline_file::Section;
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_source::Error;

use super::flow_export::check_losses;

/// The most bytes of a chunk, where the receiver takes more.
const CHUNK_MAX: usize = 900_000;

/// Settings of an output of chunks.
#[derive(Debug)]
pub struct ChunkSettings {
    /// The receiver, of [`Receiver::of_packets`].
    pub to: Receiver,
    /// The sensor in the ids of chunks; `None` is the host.
    pub sensor: Option<Sensor>,
    /// The folder that keeps chunks, and the most bytes in it.
    pub spool: Option<(PathBuf, u64)>,
    /// The longest time that a chunk is filled, by the clock.
    pub time: Duration,
    /// Bytes of chunks that wait in memory.
    pub memory: usize,
    /// The longest time without an acknowledgement that is waited.
    pub patience: Duration,
    /// The password of the receiver's user, or a token.
    pub secret: Option<Secret>,
    /// The writer that chunks name.
    pub section: Section,
    /// Whether packets come from interfaces, which do not wait: packets are lost and counted when the memory is full.
    pub is_live: bool,
}

/// Packets in chunks to a receiver.
pub struct ChunkOutput {
    exporter: PacketExporter,
    is_live: bool,
}

impl ChunkOutput {
    /// Opens the receiver and the spool, and starts the thread that delivers. Once `cancel` is true the end waits for no
    /// receiver.
    ///
    /// # Errors
    /// If it cannot be opened; the text has the remedy.
    pub fn open(
        settings: ChunkSettings,
        cancel: &Arc<AtomicBool>,
    ) -> Result<ChunkOutput, tapline_export::Error> {
        let ChunkSettings { to, sensor, spool, time, memory, patience, secret, section, is_live } = settings;
        let limits = Limits { time, block: CHUNK_MAX, memory, patience, ..Limits::default() };
        let delivery = Delivery::open(&to, sensor, spool, secret, limits, 0)?;
        let mut exporter = PacketExporter::start(delivery, &section)?;
        exporter.set_cancel_flag(cancel);
        Ok(ChunkOutput { exporter, is_live })
    }
}

impl Stage for ChunkOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let options = packets.batch.options(index);
            if let Some(interface) = packets.interfaces.get(packet.meta.interface.0 as usize) {
                self.exporter.push(&packet, interface, options, packets.now, self.is_live);
            }
        }
        Ok(())
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.exporter.flush(tick.now, self.is_live);
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.exporter.finish();
        check_losses(self.exporter.name(), &self.exporter.losses(), self.is_live)
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_output(self.exporter.deliveries().output(self.exporter.name()))
    }

    fn events(&mut self) -> Vec<String> {
        self.exporter.take_events()
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let account = self.exporter.deliveries();
        tell("acknowledged", account.acknowledged.packets);
        tell("spooled", account.spooled.packets);
        tell("repeated", account.repeated);
    }
}
