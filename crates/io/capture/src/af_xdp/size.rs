//! Memory of a queue.
//!
//! ```text
//! chunk  = 2048 bytes if a packet of the MTU fits, else 4096: packets that are longer still come in several
//! chunks = a power of two: 16 MiB of them for each queue, all queues together at most a quarter of memory and 2 GiB     unless -B says otherwise
//! ```
//!
//! Each ring has an entry for each chunk. So a queue survives a pause of its reader for as many packets as it has
//! chunks, and the RX ring is never the first to be full.

use tapline_sys::xsk::XdpSocket;

/// The headers before a packet of the MTU's length: an Ethernet header and two VLAN tags.
const LINK_LEN: u32 = 14 + 8;
const CHUNK_LENS: [u32; 2] = [2048, 4096];
const QUEUE_LEN: u64 = 16 << 20;
const SUM_LEN_MAX: u64 = 2 << 30;
const MEMORY_SHARE: u64 = 4;
const CHUNKS_MIN: u64 = 64;
const CHUNKS_MAX: u64 = 1 << 16;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_the_order_and_the_memory_decide() {
        let plain = Size { chunk_len: 2048, chunks: 8192, several: false };
        assert_eq!(of(1500, 4, None, 16 << 30), plain);
        assert_eq!(of(1770, 1, None, 16 << 30), plain);
        assert_eq!(of(1771, 1, None, 16 << 30), Size { chunk_len: 4096, chunks: 4096, several: false });
        assert_eq!(of(9000, 1, None, 16 << 30), Size { chunk_len: 4096, chunks: 4096, several: true });
        assert!(of(u32::MAX, 1, None, 16 << 30).several);
        assert_eq!(of(1500, 1, Some(300 << 10), 16 << 30).chunks, 128);
        assert_eq!((of(1500, 1, Some(1), 0).chunks, of(1500, 1, Some(u64::MAX), 0).chunks), (64, 1 << 16));
        assert_eq!(of(1500, 64, None, 1 << 30).chunks, 2048);
    }
}
