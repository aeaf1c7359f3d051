//! Memory of a queue, and the rest that it bears.
//!
//! ```text
//! chunk  = 2048 bytes if a packet of the MTU fits, else 4096: packets that are longer still come in several
//! chunks = a power of two: 64 MiB of them for each queue, all queues together at most a quarter of memory and 2 GiB
//!          unless -B says otherwise
//! rest   = the time in which a queue at its greatest rate fills half of its chunks
//! ```
//!
//! Each ring has an entry for each chunk. So a queue survives a pause of its reader for as many packets as it has
//! chunks, and the RX ring is never the first to be full. A packet takes a chunk however short it is: 64 MiB are 32,768
//! packets, which is 16 ms at two million a second. With 16 MiB it was 4 ms, less than a scheduler may give to others.

use std::time::Duration;

use tapline_sys::xsk::XdpSocket;

/// The headers before a packet of the MTU's length: an Ethernet header and two VLAN tags.
const LINK_LEN: u32 = 14 + 8;
const CHUNK_LENS: [u32; 2] = [2048, 4096];
const QUEUE_LEN: u64 = 64 << 20;
const SUM_LEN_MAX: u64 = 2 << 30;
const MEMORY_SHARE: u64 = 4;
const CHUNKS_MIN: u64 = 64;
const CHUNKS_MAX: u64 = 1 << 16;
/// Packets a second that a queue receives at most where the adapter writes them to our memory, and where the kernel
/// copies them: 200 ns a packet. On a veth the kernel takes more than 500 ns even for a packet that it drops in XDP.
const RATE_MAX: u64 = 30_000_000;
const RATE_COPIED_MAX: u64 = 5_000_000;
/// A slower link is not believed: tun and tap report 10 Mbit/s whatever they carry.
const RATE_LEAST: u64 = RATE_COPIED_MAX / 4;
/// Bits of the shortest frame on a wire, with preamble and gap.
const FRAME_BITS_MIN: u64 = 84 * 8;
/// A shorter rest costs more than the wake-ups that it saves.
const REST_LEAST: Duration = Duration::from_micros(50);

/// The memory of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) chunk_len: u32,
    pub(super) chunks: u32,
    /// Packets of the MTU may come in several chunks.
    pub(super) several: bool,
}

/// For `queues` queues in all, of interfaces like this one, on a machine with so much memory.
pub(super) fn of(mtu: u32, queues: u64, ring_len: Option<u64>, memory: u64) -> Size {
    let len = mtu.saturating_add(LINK_LEN);
    let fits = |chunk_len: &u32| len <= chunk_len - XdpSocket::HEADROOM;
    let chunk_len = CHUNK_LENS.into_iter().find(fits).unwrap_or(CHUNK_LENS[1]);
    let share = (memory / MEMORY_SHARE).min(SUM_LEN_MAX) / queues.max(1);
    let bytes = ring_len.unwrap_or(QUEUE_LEN.min(share));
    let chunks = (bytes / u64::from(chunk_len)).clamp(CHUNKS_MIN, CHUNKS_MAX);
    Size { chunk_len, chunks: 1 << chunks.ilog2(), several: !fits(&chunk_len) }
}

/// The longest rest of a reader that loses no packet, of a queue with this number of chunks: half of them fill
/// meanwhile at most, and the other half is for late wake-ups. No rest where that is too short to gain anything.
/// `speed` is the link's in bits per second.
pub(super) fn rest_max(chunks: u32, zero_copy: bool, speed: Option<u64>) -> Duration {
    let most = if zero_copy { RATE_MAX } else { RATE_COPIED_MAX };
    let rate = speed.map_or(most, |speed| (speed / FRAME_BITS_MIN).clamp(RATE_LEAST, most));
    let rest = Duration::from_nanos(u64::from(chunks / 2) * 1_000_000_000 / rate);
    if rest < REST_LEAST { Duration::ZERO } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_the_order_and_the_memory_decide() {
        let plain = Size { chunk_len: 2048, chunks: 32_768, several: false };
        assert_eq!(of(1500, 4, None, 16 << 30), plain);
        assert_eq!(of(1770, 1, None, 16 << 30), plain);
        assert_eq!(of(1771, 1, None, 16 << 30), Size { chunk_len: 4096, chunks: 16_384, several: false });
        assert_eq!(of(9000, 1, None, 16 << 30), Size { chunk_len: 4096, chunks: 16_384, several: true });
        assert!(of(u32::MAX, 1, None, 16 << 30).several);
        assert_eq!(of(1500, 1, Some(300 << 10), 16 << 30).chunks, 128);
        assert_eq!((of(1500, 1, Some(1), 0).chunks, of(1500, 1, Some(u64::MAX), 0).chunks), (64, 1 << 16));
        assert_eq!(of(1500, 64, None, 1 << 30).chunks, 2048);
    }

    #[test]
    fn half_of_the_memory_fills_in_a_rest() {
        let us = |chunks, zero_copy, speed| rest_max(chunks, zero_copy, speed).as_micros();
        assert_eq!((us(32_768, false, None), us(32_768, true, None)), (3276, 546));
        // 14.88 million packets a second are what 10 Gbit/s can carry, and 1.488 million 1 Gbit/s.
        assert_eq!(
            (us(32_768, true, Some(10_000_000_000)), us(32_768, false, Some(10_000_000_000))),
            (1101, 3276)
        );
        assert_eq!(us(32_768, true, Some(1_000_000_000)), 11_010);
        assert_eq!(us(32_768, true, Some(400_000_000_000)), 546);
        assert_eq!((us(64, false, None), us(64, true, Some(0))), (0, 0));
        // A tap carries more than the 10 Mbit/s that it reports.
        assert_eq!((us(32_768, false, Some(10_000_000)), us(32_768, false, Some(0))), (13_107, 13_107));
    }
}
