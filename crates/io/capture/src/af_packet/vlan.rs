//! VLAN tags that are no longer in the packet's bytes.
//!
//! On receipt the NIC or the kernel (`skb_vlan_untag`) takes the outer 802.1Q or 802.1ad tag out of every frame, before
//! any socket sees it. A ring has it in the header of the packet; inner tags stay in the bytes. We keep it in the
//! metadata too: putting it back would move every packet, and only outputs that need it do so.

use tapline_packet::VlanTag;
use tapline_packet::numbers::ethertype;

/// `TP_STATUS_VLAN_VALID` and `TP_STATUS_VLAN_TPID_VALID` of linux/if_packet.h.
const VALID: u32 = 1 << 4;
const TPID_VALID: u32 = 1 << 6;

/// The tag in a frame's header.
///
/// A tag may have the value 0 (priority 0, VLAN 0): the status bit decides, not the value.
#[inline]
pub(super) fn tag(status: u32, tci: u32, tpid: u16) -> Option<VlanTag> {
    if status & VALID == 0 {
        return None;
    }
    // Kernels before 3.14 give no type and mean 802.1Q.
    let tpid = if status & TPID_VALID != 0 { tpid } else { ethertype::VLAN };
    Some(VlanTag { tpid, tci: tci as u16 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_bits_decide() {
        assert_eq!(tag(1, 5, 0x88a8), None);
        assert_eq!(tag(VALID, 5, 0), Some(VlanTag { tpid: 0x8100, tci: 5 }));
        assert_eq!(tag(VALID | TPID_VALID, 0, 0x88a8), Some(VlanTag { tpid: 0x88a8, tci: 0 }));
    }
}
