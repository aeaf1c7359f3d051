//! Tapline's native code (its JIT), called once per packet and called once per batch.

use std::time::Duration;

use tapline_ir::{Ir, Memory};
use tapline_jit::Native;

use super::Subject;
use super::engines::{Cost, Engine, select_all, spin, verdicts};
use super::packets::Packets;

/// Two engines, one per way to call; none where native code cannot be made.
pub(crate) fn engines(subject: &Subject) -> anyhow::Result<Vec<Box<dyn Engine>>> {
    Ok(match (Native::of(&subject.ours), Native::of(&subject.ours)) {
        (Ok(one), Ok(batch)) => vec![Box::new(NativePerPacket(one)), Box::new(NativePerBatch(batch))],
        _ => Vec::new(),
    })
}

/// Time to compile `ir` to native code, taken by the stopwatch `time`; `None` where native code cannot be made.
pub(crate) fn compile_time(
    ir: &Ir,
    time: impl FnOnce(&mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<Duration>,
) -> Option<Duration> {
    time(&mut || {
        Native::compile(ir)?;
        Ok(())
    })
    .ok()
}

/// Called with one packet at a time.
struct NativePerPacket(Native);

impl Engine for NativePerPacket {
    fn name(&self) -> &'static str {
        "ours, native, a packet a call"
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        let memory = Memory::new(0);
        Ok(verdicts(packets, |batch, selection| {
            selection.retain(|index| self.0.run(batch.packet(index), &memory) != 0);
        }))
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        let memory = Memory::new(0);
        Ok(spin(packets.len(), time, || {
            let accepts = |packet| self.0.run(packet, &memory) != 0;
            packets.batches().map(|batch| batch.iter().filter(|packet| accepts(*packet)).count()).sum()
        }))
    }
}

/// Called with a batch at a time.
struct NativePerBatch(Native);

impl Engine for NativePerBatch {
    fn name(&self) -> &'static str {
        "ours, native, a batch a call"
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        let memory = Memory::new(0);
        Ok(verdicts(packets, |batch, selection| self.0.select(batch, &memory, selection)))
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        let memory = Memory::new(0);
        Ok(spin(packets.len(), time, || {
            select_all(packets, |batch, selection| self.0.select(batch, &memory, selection))
        }))
    }
}
