//! The size of ring that the kernel is asked for.
//!
//! ```text
//! ring  = as -B says, else by link, workers and memory: tapline_sys::default_ring_len
//! block = so that a second's worth of hand-overs fits the ring, 128 KiB to 1 MiB;  64 KiB in rings under 1 MiB
//!         or, for a number of packets, so long as they are; 64 KiB at least, or less with a short snap length
//! ```
//!
//! Blocks are handed over when they are full or when their time is over, however little they hold. So a ring bears a
//! pause of its reader in two measures: as many bytes as it has, and as many hand-overs as it has blocks. At a packet a
//! millisecond, 16 blocks and 4 ms would be 64 ms, less than a disk may take to write; so there are many blocks. Few
//! and large ones save wake-ups: each finds code and memory out of the caches, which costs up to 200 us on an idle
//! virtual machine; the work on a thousand packets takes 60 us. And a packet must fit into a block: 128 KiB hold any
//! that segmentation offload makes (64 KiB, before BIG TCP). None has 2 MiB: a host that provides the memory of a
//! virtual machine takes free units of 2 MiB back, and is slow to give them again (docs/bench.md, "A start"). Ring
//! memory is the kernel's and cannot be swapped out. If there is no memory for the size asked for, half of it is tried,
//! and so on ([`largest`]).

use std::time::Duration;

use tapline_sys::{RING_LEN_MAX, RingGeometry, SyscallError, default_ring_len};

use super::AfPacketError;

const ENOMEM: i32 = 12;

const MIB: u64 = 1 << 20;
const BLOCK_LEN_MAX: u64 = MIB;
const BLOCK_LEN_MIN: u64 = 64 << 10;
/// Bytes of a frame in addition to its packet, at most: header, address, and the padding that aligns the network header
/// to 16 (linux/if_packet.h).
const FRAME_OVERHEAD: u64 = 144;
/// Bytes of a block before its packets.
const BLOCK_HEADER_LEN: u64 = 48;
/// In rings that have room for several.
const BLOCK_LEN_LOW: u64 = 128 << 10;
const BLOCKS_MIN: u64 = 8;
/// A pause of the reader that should be survived however few packets come.
const PAUSE_AT_ANY_RATE_MS: u64 = 1000;

/// The inputs of the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Requested bytes for each ring.
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
    /// The packets for which a block is made, if their number decides.
    pub(super) packets: Option<BlockWish>,
}

/// A number of packets for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockWish {
    /// The least number of packets that a full block holds.
    pub(super) packets: u32,
    /// Captured bytes of the longest packet on the link.
    pub(super) packet_len: u32,
    /// Captured bytes of any packet, at most: those that offload makes are longer than the link's.
    pub(super) snap_len: u32,
}

/// The ring to ask for.
pub(super) fn geometry(wish: &Wish) -> RingGeometry {
    let len = match wish.ring_len {
        Some(len) => len.clamp(2 * BLOCK_LEN_MIN, RING_LEN_MAX),
        None => default_ring_len(wish.speed, wish.workers, wish.rings, wish.memory),
    };
    let block_len = match wish.packets {
        Some(wish) => block_len_of(&wish, len),
        None => block_len(len, wish.retire_ms),
    };
    let block_count = (len.div_ceil(block_len)).max(2);
    RingGeometry { block_len: block_len as u32, block_count: block_count as u32, retire_ms: wish.retire_ms }
}

/// Bytes of rings that begin small, all together.
const FIRST_SUM_LEN: u64 = 64 * MIB;
/// The least and the most bytes of one of them.
const FIRST_LEN_MIN: u64 = MIB;
const FIRST_LEN_MAX: u64 = 4 * MIB;

/// The first ring of one that may grow to `whole`, one of `rings`.
pub(super) fn first(whole: &RingGeometry, rings: u64) -> RingGeometry {
    let len = (FIRST_SUM_LEN / rings.max(1)).clamp(FIRST_LEN_MIN, FIRST_LEN_MAX);
    geometry(&Wish { ring_len: Some(len), retire_ms: whole.retire_ms, ..Wish::default() })
}

/// Sets up the largest ring that there is memory for, from `wanted` down, on the interface `name`; `map` sets one up.
/// Gives the size that it got, too.
pub(super) fn largest<T>(
    wanted: RingGeometry,
    name: &str,
    mut map: impl FnMut(&RingGeometry) -> Result<T, SyscallError>,
) -> Result<(T, RingGeometry), AfPacketError> {
    let mut geometry = wanted;
    loop {
        let source = match map(&geometry) {
            Ok(ring) => return Ok((ring, geometry)),
            Err(error) if error.errno() == ENOMEM => error,
            Err(error) => return Err(AfPacketError::of_call(name, error)),
        };
        match smaller(&geometry) {
            Some(next) => geometry = next,
            None => {
                let (interface, len) = (name.to_owned(), geometry.len());
                return Err(AfPacketError::NoRing { interface, len, source });
            }
        }
    }
}

/// The next smaller ring to try, if there is one.
fn smaller(geometry: &RingGeometry) -> Option<RingGeometry> {
    let len = geometry.len() / 2;
    (len >= 2 * BLOCK_LEN_MIN).then(|| {
        let wish = Wish { ring_len: Some(len), retire_ms: geometry.retire_ms, ..Wish::default() };
        self::geometry(&wish)
    })
}

/// The time in which a link of this speed, in bits per second, can fill half of a ring; no time if the speed is
/// unknown.
pub(super) fn half_full_after(geometry: &RingGeometry, speed: Option<u64>) -> Duration {
    let bytes_per_second = speed.unwrap_or(u64::MAX) / 8;
    let half_us = u128::from(geometry.len()) * 500_000 / u128::from(bytes_per_second.max(1));
    // A block is handed over when its time is over, however little it holds.
    let blocks_ms = u64::from(geometry.block_count / 2) * u64::from(geometry.retire_ms);
    Duration::from_micros(u64::try_from(half_us).unwrap_or(u64::MAX)).min(Duration::from_millis(blocks_ms))
}

/// The length of a block that holds this number of packets when it is full, at most half of the ring.
fn block_len_of(wish: &BlockWish, ring_len: u64) -> u64 {
    let frame_len = u64::from(wish.packet_len) + FRAME_OVERHEAD;
    let wanted = (u64::from(wish.packets) * frame_len + BLOCK_HEADER_LEN).next_power_of_two();
    let most = 1 << (ring_len / 2).max(BLOCK_LEN_MIN).ilog2();
    wanted.clamp(block_len_min(wish.snap_len), most)
}

/// The shortest block that any packet fits, cut to a snap length: a packet that does not fit is cut by the kernel.
pub(super) fn block_len_min(snap_len: u32) -> u64 {
    let longest = u64::from(snap_len) + FRAME_OVERHEAD + BLOCK_HEADER_LEN;
    longest.max(tapline_sys::usage::page_len() as u64).next_power_of_two().min(BLOCK_LEN_MIN)
}

fn block_len(ring_len: u64, retire_ms: u32) -> u64 {
    let hand_overs = PAUSE_AT_ANY_RATE_MS.div_ceil(u64::from(retire_ms.max(1)));
    let wanted = (ring_len / hand_overs.max(BLOCKS_MIN)).max(1);
    let least = if ring_len / BLOCKS_MIN < BLOCK_LEN_LOW { BLOCK_LEN_MIN } else { BLOCK_LEN_LOW };
    (1 << wanted.ilog2()).clamp(least, BLOCK_LEN_MAX)
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
        let plain = Wish { workers: 1, rings: 1, memory: 16 * GIB, retire_ms: 20, ..Wish::default() };
        assert_eq!(len(plain), (16 * MIB, 256 << 10));
        let ten_gigabit = Wish { speed: Some(10_000_000_000), ..plain };
        assert_eq!(len(ten_gigabit), (62_500_000u64.next_multiple_of(MIB), 1 << 20));
        assert_eq!(len(Wish { workers: 4, rings: 4, ..ten_gigabit }).0, 16 * MIB);
        let hundred = Wish { speed: Some(100_000_000_000), ..plain };
        assert_eq!(len(hundred).0, 625_000_000u64.next_multiple_of(MIB));
        assert_eq!(len(Wish { memory: GIB, ..hundred }).0, 256 * MIB);
        assert_eq!(len(Wish { memory: GIB, rings: 1000, ..plain }), (262_144 + 65_536, 64 << 10));
        let containers = Wish { rings: 200, memory: 256 * GIB, ..ten_gigabit };
        assert!(len(containers).0 * 200 < 3 * GIB, "{}", len(containers).0);
    }

    #[test]
    fn half_of_a_ring_is_filled_by_bytes_or_by_time() {
        let plain = Wish { workers: 1, rings: 1, memory: 16 * GIB, retire_ms: 10, ..Wish::default() };
        let after = |speed| half_full_after(&geometry(&Wish { speed, ..plain }), speed).as_millis();
        assert_eq!(after(None), 0);
        assert_eq!(after(Some(10_000_000_000)), 25);
        assert_eq!(after(Some(1_000_000_000)), 67);
        // 128 blocks of 10 ms.
        assert_eq!(after(Some(10_000_000)), 640);
        assert_eq!(after(Some(0)), 640);
    }

    #[test]
    fn rings_that_begin_small_take_little_together() {
        let whole = geometry(&Wish { ring_len: Some(32 * MIB), retire_ms: 20, ..Wish::default() });
        let lens = [1, 60, 1000].map(|rings| first(&whole, rings).len());
        assert_eq!(lens[0], 4 * MIB);
        assert!(lens[1] * 60 <= FIRST_SUM_LEN + 60 * MIB && lens[1] >= MIB && lens[1] < 2 * MIB, "{lens:?}");
        assert_eq!(lens[2], MIB);
        assert_eq!(first(&whole, 60).retire_ms, 20);
    }

    #[test]
    fn a_requested_size_is_kept_within_limits() {
        let asked = |len| Wish { ring_len: Some(len), memory: GIB, retire_ms: 200, ..Wish::default() };
        assert_eq!(len(asked(4 * MIB)), (4 * MIB, 512 << 10));
        assert_eq!(len(asked(1)), (128 << 10, 64 << 10));
        assert_eq!(len(asked(3 * GIB)).0, 2 * GIB);
        assert_eq!(len(asked(100 * MIB + 1)), (101 * MIB, 1 << 20));
    }

    /// With a short snap length a block is as long as its packets are; any packet has room in one.
    #[test]
    fn blocks_are_for_a_number_of_packets() {
        let block = |packets, packet_len, snap_len| {
            let wish = BlockWish { packets, packet_len, snap_len };
            geometry(&Wish { ring_len: Some(16 * MIB), packets: Some(wish), ..Wish::default() }).block_len
        };
        assert_eq!([block(64, 64, 64), block(1, 96, 96)], [16 << 10, tapline_sys::usage::page_len() as u32]);
        assert_eq!([block(64, 1536, 262_144), block(1, 1536, 262_144)], [128 << 10, 64 << 10]);
        assert_eq!(block(1, 1536, 9000), 16 << 10, "offload makes packets of up to the snap length");
        for snap_len in [0, 1, 68, 96, 1500, 4000, 9000, 40_000, 65_000] {
            let least = block_len_min(snap_len);
            assert!(least >= u64::from(snap_len) + FRAME_OVERHEAD + BLOCK_HEADER_LEN, "{snap_len}");
        }
        assert_eq!(block_len_min(u32::MAX), BLOCK_LEN_MIN);
    }

    #[test]
    fn a_slow_reader_of_few_packets_has_time() {
        for retire_ms in [10, 20, 100] {
            let wish = Wish { workers: 1, rings: 1, memory: 16 * GIB, retire_ms, ..Wish::default() };
            let geometry = geometry(&wish);
            assert!(geometry.block_count * retire_ms >= 1000, "{geometry:?}");
            assert!(geometry.block_len >= 128 << 10);
        }
    }

    #[test]
    fn smaller_rings_are_tried_until_memory_suffices() {
        let wanted = geometry(&Wish { ring_len: Some(2 * GIB), ..Wish::default() });
        let (mut tried, error) = (Vec::new(), |errno| SyscallError::new("test", errno));
        let none: Result<((), _), _> = largest(wanted, "eth7", |geometry| {
            tried.push(geometry.len());
            Err(error(ENOMEM))
        });
        assert!(tried.windows(2).all(|pair| pair[1] < pair[0]), "{tried:?}");
        assert_eq!(tried.last(), Some(&(128 << 10)));
        let Err(AfPacketError::NoRing { interface, len, .. }) = none else { panic!("{none:?}") };
        assert_eq!((interface.as_str(), len), ("eth7", 128 << 10));

        let has_room = |geometry: &RingGeometry| geometry.len() <= 100 * MIB;
        let map = |geometry: &RingGeometry| if has_room(geometry) { Ok(7) } else { Err(error(ENOMEM)) };
        let (ring, got) = largest(wanted, "eth7", map).unwrap();
        assert_eq!((ring, got.len()), (7, 64 * MIB));

        // An error other than a lack of memory does not go away with a smaller ring.
        let mut tries = 0;
        let refused: Result<((), _), _> = largest(wanted, "eth7", |_| {
            tries += 1;
            Err(error(22))
        });
        assert!(matches!(refused, Err(AfPacketError::Call { source, .. }) if source.errno() == 22));
        assert_eq!(tries, 1);
    }
}
