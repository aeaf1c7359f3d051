//! The two parts of an entry of the table: the hot one, which every packet touches, and the cold one.

use std::net::IpAddr;

use tapline_packet::Timestamp;
use tapline_packet::numbers::ip_protocol::TCP;

use super::{FIN, RST};
use crate::details::SideTotals;
use crate::key::{self, Addresses, Words};
use crate::packet::PacketSummary;
use crate::{Endpoint, FlowContext};

/// The state bit of the side of the key that sent the first packet.
pub(super) const FIRST_SIDE: u32 = 1;

/// The state of a flow whose times are in the cold part.
pub(super) const TIMES_COLD: u32 = 2;

/// The lowest bit of the state that counts epochs.
pub(super) const EPOCH: u32 = 4;

/// The greatest time from creation to the last packet in the hot part: 78 hours in nanoseconds.
pub(super) const AFTER_MAX: u64 = (1 << 48) - 1;

/// The key of an unused slot. No packet has it: the unused bits of a key are never set.
pub(super) const FREE: Words = [u64::MAX; 2];

/// The hot part of an entry: one cache line that every packet reads and writes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Hot {
    pub(super) words: Words,
    pub(super) created_ns: i64,
    pub(super) packets: [u32; 2],
    pub(super) bytes: [u32; 2],
    pub(super) after_low: [u32; 2],
    pub(super) after_high: [u16; 2],
    pub(super) flags: [u8; 2],
    pub(super) ttl_min: [u8; 2],
    pub(super) ttl_max: [u8; 2],
    /// Bits of state; above them the epoch of the journal in which the flow was last described, 0 for none.
    pub(super) state: u32,
}

const _: () = assert!(size_of::<Hot>() == 64, "an entry is a cache line");

/// The cold part of an entry.
#[derive(Clone, Copy)]
pub(super) struct Cold {
    pub(super) addresses: [[u64; 2]; 2],
    pub(super) context: FlowContext,
    pub(super) first: [i64; 2],
    /// With [`TIMES_COLD`]: the latest packet of each side, and the last one by the clock.
    pub(super) last: [i64; 2],
    pub(super) last_clock: i64,
    /// The high words of the hot counters.
    pub(super) bytes_high: [u32; 2],
    pub(super) packets_high: [u16; 2],
    pub(super) flags_first: [u8; 2],
    pub(super) tos: [u8; 2],
}

const _: () = assert!(
    size_of::<Cold>() == 104,
    "with the hot part, wheel, creation order and index less than 200 bytes a flow"
);

/// Addresses as the cold part has them: as numbers of 128 bits they would begin at multiples of 16, and fill it up to
/// 112 bytes.
#[inline]
pub(super) fn halves(addresses: Addresses) -> [[u64; 2]; 2] {
    addresses.map(|address| [(address >> 64) as u64, address as u64])
}

#[inline]
pub(super) fn whole([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Whether TCP has ended: a reset, or FIN from both. A flow of several connections does not end with one of them.
#[inline]
pub(super) fn is_closed(hot: &Hot) -> bool {
    let [one, other] = hot.flags;
    key::protocol(hot.words) == TCP
        && !key::is_merged(hot.words)
        && ((one | other) & RST != 0 || one & other & FIN != 0)
}

impl Hot {
    pub(super) const EMPTY: Hot = Hot {
        words: FREE,
        created_ns: 0,
        packets: [0; 2],
        bytes: [0; 2],
        after_low: [0; 2],
        after_high: [0; 2],
        flags: [0; 2],
        ttl_min: [0; 2],
        ttl_max: [0; 2],
        state: 0,
    };

    /// The side of the key that sent the first packet.
    #[inline(always)]
    pub(super) fn first_side(&self) -> usize {
        (self.state & FIRST_SIDE) as usize
    }

    /// The epoch of the journal in which the flow was last described, in its bits of the state.
    #[inline(always)]
    pub(super) fn epoch(&self) -> u32 {
        self.state & !(FIRST_SIDE | TIMES_COLD)
    }

    /// Nanoseconds from the creation of the flow to the last packet of a side.
    #[inline(always)]
    pub(super) fn after(&self, side: usize) -> u64 {
        u64::from(self.after_high[side]) << 32 | u64::from(self.after_low[side])
    }

    #[inline]
    pub(super) fn last(&self, side: usize) -> i64 {
        self.created_ns.saturating_add(self.after(side) as i64)
    }

    /// Moves all times into the cold part.
    pub(super) fn move_times_to_cold(&mut self, cold: &mut Cold) {
        self.state |= TIMES_COLD;
        cold.last_clock = self.last(0).max(self.last(1));
        cold.last = [self.last(0), self.last(1)];
    }

    /// The packets of a side so far, including the present one. At the second packet also bytes and time of the first:
    /// the sums minus the present packet, and the other time.
    #[inline]
    pub(super) fn sent(&self, cold: &Cold, side: usize, summary: &PacketSummary) -> SideTotals {
        if self.packets[side] > 2 {
            // Further packets need no more, and the cold part is not read.
            return SideTotals { packets: self.packets[side].into(), bytes: 0, time: 0 };
        }
        let packets = u64::from(cold.packets_high[side]) << 32 | u64::from(self.packets[side]);
        let last = if self.state & TIMES_COLD == 0 { self.last(side) } else { cold.last[side] };
        SideTotals {
            packets,
            bytes: self.bytes[side].wrapping_sub(summary.bytes),
            time: cold.first[side].wrapping_add(last).wrapping_sub(summary.time),
        }
    }

    pub(super) fn side(&self, cold: &Cold, at: usize, address: IpAddr) -> Endpoint {
        let sum = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let packets = sum(cold.packets_high[at].into(), self.packets[at]);
        let last = if self.state & TIMES_COLD == 0 { self.last(at) } else { cold.last[at] };
        let (first, last) = if packets == 0 { (0, 0) } else { (cold.first[at], last) };
        Endpoint {
            address,
            port: key::ports(self.words)[at],
            packets,
            bytes: sum(cold.bytes_high[at], self.bytes[at]),
            first: Timestamp::from_nanos(first),
            last: Timestamp::from_nanos(last),
            tcp_flags: self.flags[at],
            tcp_flags_first: cold.flags_first[at],
            ttl_min: self.ttl_min[at],
            ttl_max: self.ttl_max[at],
            tos: cold.tos[at],
        }
    }
}

impl Cold {
    pub(super) const EMPTY: Cold = Cold {
        addresses: [[0; 2]; 2],
        context: FlowContext::NONE,
        first: [0; 2],
        last: [0; 2],
        last_clock: 0,
        bytes_high: [0; 2],
        packets_high: [0; 2],
        flags_first: [0; 2],
        tos: [0; 2],
    };
}
