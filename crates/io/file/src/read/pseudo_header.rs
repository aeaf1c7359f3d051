//! Pseudo-headers in the byte order of the capturing machine.
//!
//! ```text
//! SLL      ... protocol u16 (network order) at 14; if it is CAN or CAN FD: CAN id u32 at 16
//! USB      id u64, 4 bytes, bus u16, 2 bytes, seconds u64, µs u32, status u32, urb length u32, data length u32,
//!          isochronous: errors u32, descriptors u32; else 8 bytes of setup
//! USB mmap the same, then interval, start frame, flags, descriptors u32; isochronous: 16 bytes for each descriptor
//! NFLOG    family u8, version u8, resource u16 (network order), then TLVs: length u16, type u16, value, padding
//! PFLOG    length u8 ... uid u32 at 44, pid u32 at 48, rule's uid u32 at 52, rule's pid u32 at 56
//! ```
//!
//! A file of the other byte order has them turned around. Like libpcap (`pcap-common.c`) we put them into this
//! machine's order, so that filters, printers and output files see one form. Fields beyond the captured length stay.

use tapline_packet::LinkType;

use crate::byte_order::{ByteOrder, reverse};

/// `LINUX_SLL_P_CAN` and `LINUX_SLL_P_CANFD`.
const SLL_CAN: [u16; 2] = [0x000c, 0x000d];

/// `URB_ISOCHRONOUS`, the transfer type at byte 9 of a USB header.
const USB_ISOCHRONOUS: u8 = 0;

/// A kind of pseudo-header that has to be turned around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PseudoHeader {
    Sll,
    Usb,
    UsbMapped,
    Nflog,
    Pflog,
}

impl PseudoHeader {
    /// The change to packets of this link type in a file of this byte order.
    pub(super) fn to_swap(order: ByteOrder, link_type: LinkType) -> Option<PseudoHeader> {
        if order == ByteOrder::NATIVE {
            return None;
        }
        match link_type {
            LinkType::LINUX_SLL => Some(PseudoHeader::Sll),
            LinkType::USB_LINUX => Some(PseudoHeader::Usb),
            LinkType::USB_LINUX_MMAPPED => Some(PseudoHeader::UsbMapped),
            LinkType::NFLOG => Some(PseudoHeader::Nflog),
            LinkType::PFLOG => Some(PseudoHeader::Pflog),
            _ => None,
        }
    }

    /// Swaps the bytes of the header of `packet`, as far as it is captured.
    pub(super) fn swap(self, packet: &mut [u8]) {
        // Each ends early where the packet does.
        let _ended_early = match self {
            PseudoHeader::Sll => swap_sll(packet),
            PseudoHeader::Usb => swap_usb(packet),
            PseudoHeader::UsbMapped => swap_usb_mapped(packet),
            PseudoHeader::Nflog => swap_nflog(packet),
            PseudoHeader::Pflog => swap_pflog(packet),
        };
    }
}

fn swap_sll(packet: &mut [u8]) -> Option<()> {
    let protocol = u16::from_be_bytes(*packet.get(14..)?.first_chunk()?);
    if SLL_CAN.contains(&protocol) { reverse(packet, 16, 4) } else { Some(()) }
}

fn swap_usb(packet: &mut [u8]) -> Option<()> {
    for (at, len) in [(0, 8), (12, 2), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4)] {
        reverse(packet, at, len)?;
    }
    if packet[9] == USB_ISOCHRONOUS {
        reverse(packet, 40, 4)?;
        reverse(packet, 44, 4)?;
    }
    Some(())
}

fn swap_usb_mapped(packet: &mut [u8]) -> Option<()> {
    swap_usb(packet)?;
    for at in [48, 52, 56, 60] {
        reverse(packet, at, 4)?;
    }
    if packet[9] != USB_ISOCHRONOUS {
        return Some(());
    }
    let descriptors = u32::from_ne_bytes(*packet.get(60..)?.first_chunk()?);
    let mut at = 64;
    for _ in 0..descriptors {
        // Status, offset, length, padding; the end of the packet ends the loop.
        for field in [0, 4, 8] {
            reverse(packet, at + field, 4)?;
        }
        at += 16;
    }
    Some(())
}

fn swap_nflog(packet: &mut [u8]) -> Option<()> {
    if *packet.get(1)? != 0 {
        return None;
    }
    let mut at = 4;
    while at + 4 <= packet.len() {
        reverse(packet, at, 2)?;
        reverse(packet, at + 2, 2)?;
        let len = usize::from(u16::from_ne_bytes([packet[at], packet[at + 1]]));
        if len < 4 {
            return None;
        }
        at += len.next_multiple_of(4);
    }
    Some(())
}

fn swap_pflog(packet: &mut [u8]) -> Option<()> {
    let header_len = usize::from(*packet.first()?);
    for at in [44, 48, 52, 56] {
        if at + 4 > header_len {
            return None;
        }
        reverse(packet, at, 4)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sll_turns_the_can_id_only() {
        let mut can = vec![0; 20];
        can[15] = 0x0c;
        can[16..].copy_from_slice(&[1, 2, 3, 4]);
        PseudoHeader::Sll.swap(&mut can);
        assert_eq!(can[16..], [4, 3, 2, 1]);
        let mut ip = can.clone();
        ip[14..16].copy_from_slice(&[8, 0]);
        PseudoHeader::Sll.swap(&mut ip);
        assert_eq!(ip[16..], [4, 3, 2, 1]);
    }

    #[test]
    fn nflog_turns_each_tlv_header() {
        // A TLV of 6 bytes (padded to 8) and one of 4, as a machine of the other order wrote them.
        let be = ByteOrder::NATIVE == ByteOrder::Little;
        let number = |n: u16| if be { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut packet = vec![2, 0, 0, 0];
        packet.extend([number(6), number(1), [9, 9], [0, 0], number(4), number(2)].concat());
        PseudoHeader::Nflog.swap(&mut packet);
        let native = |n: u16| n.to_ne_bytes();
        assert_eq!(packet[4..], [native(6), native(1), [9, 9], [0, 0], native(4), native(2)].concat());
    }

    #[test]
    fn swapping_a_header_twice_restores_the_packet() {
        let kinds = [PseudoHeader::Sll, PseudoHeader::Usb, PseudoHeader::Pflog];
        for kind in kinds {
            for len in 0..80 {
                let packet: Vec<u8> = (0..len).map(|i| if i == 0 { 61 } else { i }).collect();
                let mut twice = packet.clone();
                kind.swap(&mut twice);
                kind.swap(&mut twice);
                // USB's first field holds the transfer type apart from what is swapped, so it survives.
                if kind != PseudoHeader::Pflog {
                    assert_eq!(twice, packet, "{kind:?} {len}");
                }
            }
        }
        for len in 0..200 {
            PseudoHeader::UsbMapped.swap(&mut vec![0; len]);
            PseudoHeader::UsbMapped.swap(&mut vec![0xff; len]);
            PseudoHeader::Nflog.swap(&mut vec![0; len]);
            PseudoHeader::Pflog.swap(&mut vec![255; len]);
        }
    }
}
