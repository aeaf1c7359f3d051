//! MPLS label stacks.
//!
//! ```text
//! label 20b | traffic class 3b | bottom 1b | time to live 8b     ... until the bottom, then IP or a pseudo-wire
//! ```
//!
//! Labels do not name the protocol behind them. An IP header's first byte does: 45 to 4f, or 60 to 6f (RFC 4928). All
//! else is a pseudo-wire.
//!
//! Sources: RFC 3032, 2.1; RFC 4385, 3; RFC 4448, 4.

use super::read::{u8_at, u16_at, u32_at};
use super::{Headers, PackedOffset};
use crate::numbers::ethertype;

/// Labels in one stack at most; headers behind more are not found.
const LABELS_MAX: u8 = 16;

const BOTTOM: u32 = 0x100;

/// A label stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mpls {
    /// The outermost label, 20 bits.
    pub label: u32,
    /// Number of labels, 1 to 16.
    pub count: u8,
}

impl Headers {
    /// Over a stack, to the EtherType of the IP behind it.
    pub(super) fn labels(&mut self, data: &[u8], kind: u16, at: usize) -> Option<(u16, usize)> {
        let mpls = stack(data, at)?;
        let at = at + 4 * usize::from(mpls.count);
        self.mpls = Some(mpls);
        self.l3 = PackedOffset::at(at);
        match u8_at(data, at)? {
            0x45..=0x4f => Some((ethertype::IPV4, at)),
            0x60..=0x6f => Some((ethertype::IPV6, at)),
            _ => {
                self.ether_type = Some(kind);
                None
            }
        }
    }
}

/// The label stack at `at`.
pub(super) fn stack(data: &[u8], at: usize) -> Option<Mpls> {
    let label = u32_at(data, at)? >> 12;
    let is_bottom = |count: &u8| {
        let entry = u32_at(data, at + 4 * usize::from(count - 1));
        entry.is_none_or(|entry| entry & BOTTOM != 0)
    };
    let count = (1..=LABELS_MAX).find(is_bottom)?;
    u32_at(data, at + 4 * usize::from(count - 1))?;
    Some(Mpls { label, count })
}

/// The start of the Ethernet frame in a pseudo-wire that starts at `at`: there, or behind a control word of four
/// bytes.
///
/// A control word begins with four zero bits, and so do many Ethernet addresses; no field distinguishes them. If a
/// known EtherType follows the position without the word, the frame starts there; if a known EtherType follows both
/// positions, a control word is assumed. A word that begins with 1 does not precede data (RFC 4385, 5).
pub(super) fn pseudo_wire(data: &[u8], at: usize) -> Option<usize> {
    let behind_word = at + 4;
    match u8_at(data, at)? >> 4 {
        0 if is_known(data, behind_word) || !is_known(data, at) => {
            (behind_word <= data.len()).then_some(behind_word)
        }
        1 => None,
        _ => Some(at),
    }
}

/// Whether a frame here would have a well-known EtherType.
fn is_known(data: &[u8], frame: usize) -> bool {
    use ethertype::*;
    let kind = u16_at(data, frame + 12);
    kind.is_some_and(|kind| {
        matches!(kind, IPV4 | IPV6 | ARP | VLAN | VLAN_PROVIDER | MPLS | MPLS_MULTICAST | PPPOE_SESSION)
    })
}
