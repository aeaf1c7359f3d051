//! Packets and bytes, counted here or in the kernel, as statistics mode counts them: as on an Ethernet, where a frame has 60 bytes at least, and
//! preamble, delimiter and check sequence add 12.

use tapline_capture::af_packet::KernelCount;
use tapline_source::CountedPackets;

/// Bytes that an Ethernet adds to a frame: preamble 7, delimiter 1, check sequence 4.
const OVERHEAD: u64 = 12;
/// The shortest frame without its check sequence.
const FRAME_LEN_MIN: u32 = 60;

/// Counts since the last record.
#[derive(Default)]
pub(crate) struct Tally {
    packets: u64,
    bytes: u64,
    record: [u8; 24],
    kernel: Option<InKernel>,
    /// Bytes in the file of a dump, where records have them.
    dumped: Option<u64>,
}

/// Counts of the kernel, and the part of them that records have reported.
struct InKernel {
    count: KernelCount,
    told: CountedPackets,
}

impl Tally {
    /// A tally of which the kernel has the counts.
    pub(crate) fn in_kernel(count: KernelCount) -> Tally {
        let told = count.read();
        Tally { kernel: Some(InKernel { count, told }), ..Tally::default() }
    }

    /// A tally of the kernel's counts during a dump, whose records have the position of the dump.
    pub(crate) fn beside_dump(count: KernelCount) -> Tally {
        Tally { dumped: Some(0), ..Tally::in_kernel(count) }
    }

    /// Sets the position of the dump, where records have it.
    pub(crate) fn set_dumped(&mut self, bytes: u64) {
        self.dumped = self.dumped.map(|_| bytes);
    }

    /// Whether the kernel counts, so that no packet need be read for it.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// Counts a packet by its length on the wire.
    pub(crate) fn add(&mut self, wire_len: u32) {
        self.packets += 1;
        self.bytes += u64::from(wire_len.max(FRAME_LEN_MIN)) + OVERHEAD;
    }

    /// The record, and counts from 0 again: packets, bytes and, with a dump, its position.
    pub(crate) fn take(&mut self) -> &[u8] {
        if let Some(InKernel { count, told }) = &mut self.kernel {
            let now = count.read();
            let new = now.since(told);
            self.packets += new.packets;
            self.bytes += new.padded_bytes + new.packets * OVERHEAD;
            *told = now;
        }
        self.record[..8].copy_from_slice(&self.packets.to_ne_bytes());
        self.record[8..16].copy_from_slice(&self.bytes.to_ne_bytes());
        self.record[16..].copy_from_slice(&self.dumped.unwrap_or(0).to_ne_bytes());
        (self.packets, self.bytes) = (0, 0);
        &self.record[..if self.dumped.is_some() { 24 } else { 16 }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_as_on_the_wire() {
        let mut tally = Tally::default();
        tally.add(42);
        tally.add(1514);
        let record = tally.take().to_vec();
        assert_eq!(record[..8], 2u64.to_ne_bytes());
        assert_eq!(record[8..], (72 + 1526u64).to_ne_bytes());
        tally.set_dumped(7);
        assert_eq!(tally.take(), [0; 16]);
        tally.dumped = Some(0);
        tally.set_dumped(7);
        assert_eq!(tally.take()[16..], 7_u64.to_ne_bytes());
    }
}
