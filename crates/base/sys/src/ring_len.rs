//! Length of a receive ring, where none is asked for.
//!
//! ```text
//! ring = 50 ms of the link at full speed, at least 16 MiB, divided among its workers
//!        all rings together at most a quarter of memory and 2 GiB: `any` may mean hundreds of interfaces
//! ```

const MIB: u64 = 1 << 20;

/// Longest ring, in bytes: the kernel counts the bytes of a ring in 32 bits in places.
pub const RING_LEN_MAX: u64 = 2048 * MIB;

/// Two blocks of the shortest length.
const RING_LEN_LEAST: u64 = 128 << 10;
/// Ring of a link whose speed asks for less, in bytes.
const RING_LEN_MIN: u64 = 16 * MIB;
/// Pause of the reader that a ring of a full link bears, in milliseconds.
const PAUSE_MS: u64 = 50;
/// Part of the memory that all rings together may take: one in this many.
const MEMORY_SHARE: u64 = 4;
/// Most bytes of all rings together.
const SUM_LEN_MAX: u64 = 2048 * MIB;

/// Length of a ring in bytes for a link of `speed` bits per second that `workers` share, if there are `rings` rings
/// in all, on a machine with `memory` bytes.
pub fn default_ring_len(speed: Option<u64>, workers: u64, rings: u64, memory: u64) -> u64 {
    let burst = speed.unwrap_or(0) / 8 / 1000 * PAUSE_MS / workers.max(1);
    let share = (memory / MEMORY_SHARE).min(SUM_LEN_MAX) / rings.max(1);
    burst.max(RING_LEN_MIN).min(share).clamp(RING_LEN_LEAST, RING_LEN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_workers_and_memory_decide() {
        let gib = 1 << 30;
        assert_eq!(default_ring_len(None, 1, 1, 16 * gib), 16 * MIB);
        assert_eq!(default_ring_len(Some(100_000_000_000), 1, 1, 16 * gib), 625_000_000);
        assert_eq!(default_ring_len(Some(100_000_000_000), 2, 2, 16 * gib), 312_500_000);
        assert_eq!(default_ring_len(Some(100_000_000_000), 1, 1, gib), 256 * MIB);
        assert_eq!(default_ring_len(None, 1, 100_000, gib), RING_LEN_LEAST);
    }
}
