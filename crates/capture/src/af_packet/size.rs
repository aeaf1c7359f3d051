//! How large a ring to ask for.
//!
//! ```text
//! ring  = 50 ms of the link at full speed, at least 16 MiB, a worker's share of it     unless -B says otherwise
//!         all rings together at most a quarter of memory
//! block = 1 MiB, less in small rings so that there are several; 64 KiB at least, for a packet must fit into one
//! ```
//!
//! The kernel gives blocks back in order, so a ring is as good as its number of blocks is large; and it wakes us once a
//! block, so blocks should not be small. Ring memory is the kernel's and cannot be swapped out.

use tapline_sys::RingGeometry;

const MIB: u64 = 1 << 20;
const BLOCK_LEN: u64 = MIB;
const BLOCK_LEN_MIN: u64 = 64 << 10;
/// Blocks that a small ring should still have.
const BLOCKS_WANTED: u64 = 8;
const RING_LEN_MIN: u64 = 16 * MIB;
/// The kernel counts bytes of a ring in 32 bits in places.
const RING_LEN_MAX: u64 = 2048 * MIB;
/// A pause of the reader that a full link should survive.
const PAUSE_MS: u64 = 50;
const MEMORY_SHARE: u64 = 4;

/// What the size depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Bytes asked for, for each ring.
    pub(super) ring_len: Option<u64>,
    /// The link's speed in bits per second.
    pub(super) speed: Option<u64>,
    /// Workers that share the link.
    pub(super) workers: u64,
    /// Rings in all, over interfaces and workers.
    pub(super) rings: u64,
    /// Bytes of memory that the machine has.
    pub(super) memory: u64,
    /// Milliseconds until a block is handed over though not full.
    pub(super) retire_ms: u32,
}

/// The ring to ask for.
pub(super) fn geometry(wish: &Wish) -> RingGeometry {
    let len = match wish.ring_len {
        Some(len) => len.clamp(2 * BLOCK_LEN_MIN, RING_LEN_MAX),
        None => default_len(wish),
    };
    let block_len = block_len(len);
    let block_count = (len.div_ceil(block_len)).max(2);
    RingGeometry { block_len: block_len as u32, block_count: block_count as u32, retire_ms: wish.retire_ms }
}

/// The next smaller ring to try, if there is one.
pub(super) fn smaller(geometry: &RingGeometry) -> Option<RingGeometry> {
    let len = geometry.len() / 2;
    (len >= 2 * BLOCK_LEN_MIN).then(|| {
        let wish = Wish { ring_len: Some(len), retire_ms: geometry.retire_ms, ..Wish::default() };
        self::geometry(&wish)
    })
}

fn default_len(wish: &Wish) -> u64 {
    let burst = wish.speed.unwrap_or(0) / 8 / 1000 * PAUSE_MS / wish.workers.max(1);
    let share = wish.memory / MEMORY_SHARE / wish.rings.max(1);
    burst.max(RING_LEN_MIN).min(share).clamp(2 * BLOCK_LEN_MIN, RING_LEN_MAX)
}

fn block_len(ring_len: u64) -> u64 {
    let wanted = ring_len / BLOCKS_WANTED;
    let power = if wanted == 0 { 1 } else { 1 << wanted.ilog2() };
    power.clamp(BLOCK_LEN_MIN, BLOCK_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn len(wish: Wish) -> (u64, u32) {
        let geometry = geometry(&wish);
        (geometry.len(), geometry.block_len)
    }

    #[test]
    fn the_link_and_the_memory_decide() {
        let plain = Wish { workers: 1, rings: 1, memory: 16 * GIB, ..Wish::default() };
        assert_eq!(len(plain), (16 * MIB, 1 << 20));
        let ten_gigabit = Wish { speed: Some(10_000_000_000), ..plain };
        assert_eq!(len(ten_gigabit).0, 62_500_000u64.next_multiple_of(MIB));
        assert_eq!(len(Wish { workers: 4, rings: 4, ..ten_gigabit }).0, 16 * MIB);
        let hundred = Wish { speed: Some(100_000_000_000), ..plain };
        assert_eq!(len(hundred).0, 625_000_000u64.next_multiple_of(MIB));
        assert_eq!(len(Wish { memory: GIB, ..hundred }).0, 256 * MIB);
        assert_eq!(len(Wish { memory: GIB, rings: 1000, ..plain }), (262_144 + 65_536, 64 << 10));
    }

    #[test]
    fn an_order_is_followed_within_what_can_be() {
        let asked = |len| Wish { ring_len: Some(len), memory: GIB, ..Wish::default() };
        assert_eq!(len(asked(4 * MIB)), (4 * MIB, 512 << 10));
        assert_eq!(len(asked(1)), (128 << 10, 64 << 10));
        assert_eq!(len(asked(3 * GIB)).0, 2 * GIB);
        assert_eq!(len(asked(100 * MIB + 1)).0, 101 * MIB);
    }

    #[test]
    fn smaller_rings_end() {
        let mut tried = Vec::new();
        let mut next = Some(geometry(&Wish { ring_len: Some(2 * GIB), ..Wish::default() }));
        while let Some(geometry) = next {
            tried.push(geometry.len());
            next = smaller(&geometry);
        }
        assert!(tried.windows(2).all(|pair| pair[1] < pair[0]), "{tried:?}");
        assert_eq!(tried.last(), Some(&(128 << 10)));
    }
}
