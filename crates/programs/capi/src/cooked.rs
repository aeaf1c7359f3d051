//! "Cooked" captures: the header that replaces the link layer's where that is not the same for all packets, and
//! programs for such sockets.
//!
//! ```text
//! SLL   packet type u16, hardware type u16, address length u16, address 8, protocol u16                        16 bytes
//! SLL2  protocol u16, 0 u16, interface u32, hardware type u16, packet type u8, address length u8, address 8    20 bytes
//! ```
//!
//! Network byte order throughout; <https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html> and `_SLL2.html`.

use std::ffi::c_int;

use tapline_bpf::{Insn, ancillary, code};
use tapline_capture::af_packet::LinkLayerAddress;

/// `DLT_LINUX_SLL`.
pub(crate) const SLL: c_int = 113;
/// `DLT_LINUX_SLL2`.
pub(crate) const SLL2: c_int = 276;

/// Bytes of the header of this link type; 0 where packets have their own.
pub(crate) fn header_len(dlt: c_int) -> usize {
    match dlt {
        SLL => 16,
        SLL2 => 20,
        _ => 0,
    }
}

/// Writes the header of this link type to `room`, which has its length.
pub(crate) fn write_header(dlt: c_int, station: &LinkLayerAddress, room: &mut [u8]) {
    let LinkLayerAddress { protocol, if_index, hardware_type, packet_type, address_len, address } = *station;
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        if let Some(room) = room.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        at += bytes.len();
    };
    if dlt == SLL2 {
        put(&protocol.to_be_bytes());
        put(&[0, 0]);
        put(&if_index.to_be_bytes());
        put(&hardware_type.to_be_bytes());
        put(&[packet_type, address_len]);
        put(&address);
    } else {
        put(&u16::from(packet_type).to_be_bytes());
        put(&hardware_type.to_be_bytes());
        put(&u16::from(address_len).to_be_bytes());
        put(&address);
        put(&protocol.to_be_bytes());
    }
}

/// The program for a socket whose packets start behind the header; `None` if it loads a field that the kernel does not
/// have, and has to run here.
pub(crate) fn for_kernel(insns: &[Insn], dlt: c_int) -> Option<Vec<Insn>> {
    insns.iter().map(|&insn| shifted(insn, dlt)).collect()
}

fn shifted(insn: Insn, dlt: c_int) -> Option<Insn> {
    if !matches!(insn.class(), code::LD | code::LDX) {
        return Some(insn);
    }
    match insn.code & 0xe0 {
        code::ABS if insn.k >= ancillary::BASE => Some(insn),
        code::ABS | code::IND | code::MSH => {
            let header_len = header_len(dlt) as u32;
            if insn.k >= header_len {
                return Some(Insn { k: insn.k - header_len, ..insn });
            }
            (insn.code & 0xe0 == code::ABS).then(|| from_header(insn, dlt))?
        }
        // The length with the header is not the one that the kernel knows.
        code::LEN => None,
        _ => Some(insn),
    }
}

/// A load from the header as one from the kernel's knowledge, which holds the same number.
fn from_header(insn: Insn, dlt: c_int) -> Option<Insn> {
    let (half, word, byte) =
        (code::LD | code::H | code::ABS, code::LD | code::W | code::ABS, code::LD | code::B | code::ABS);
    let k = match (dlt, insn.k, insn.code) {
        (SLL, 0, c) if c == half => ancillary::PKTTYPE,
        (SLL, 2, c) if c == half => ancillary::HATYPE,
        (SLL, 14, c) if c == half => ancillary::PROTOCOL,
        (SLL2, 0, c) if c == half => ancillary::PROTOCOL,
        (SLL2, 4, c) if c == word => ancillary::IFINDEX,
        (SLL2, 8, c) if c == half => ancillary::HATYPE,
        (SLL2, 10, c) if c == byte => ancillary::PKTTYPE,
        _ => return None,
    };
    Some(Insn { k, ..insn })
}

#[cfg(test)]
mod tests {
    use tapline_filter::{HandleKind, Options, compile};
    use tapline_packet::LinkType;

    use super::*;

    const STATION: LinkLayerAddress = LinkLayerAddress {
        protocol: 0x0800,
        if_index: 7,
        hardware_type: 1,
        packet_type: 4,
        address_len: 6,
        address: [2, 3, 4, 5, 6, 7, 0, 0],
    };

    #[test]
    fn headers_byte_by_byte() {
        let mut sll = [0; 16];
        write_header(SLL, &STATION, &mut sll);
        assert_eq!(sll, [0, 4, 0, 1, 0, 6, 2, 3, 4, 5, 6, 7, 0, 0, 8, 0]);
        let mut sll2 = [0; 20];
        write_header(SLL2, &STATION, &mut sll2);
        assert_eq!(sll2, [8, 0, 0, 0, 0, 0, 0, 7, 0, 1, 4, 6, 2, 3, 4, 5, 6, 7, 0, 0]);
    }

    fn lowered(text: &str, dlt: c_int) -> Option<Vec<Insn>> {
        let link_type = LinkType::from_dlt(dlt as u16);
        let options = Options { handle: HandleKind::Live, ..Options::new(link_type) };
        let program = compile(text, &options).expect("compiles");
        for_kernel(program.insns(), dlt)
    }

    #[test]
    fn offsets_move_and_the_header_becomes_metadata() {
        for dlt in [SLL, SLL2] {
            let insns = lowered("tcp port 80", dlt).expect("runs in the kernel");
            assert_eq!(insns[0].k, ancillary::PROTOCOL);
            assert!(
                insns.iter().any(|insn| insn.code == code::LD | code::B | code::ABS && insn.k == 9),
                "{insns:?}"
            );
            assert!(lowered("greater 100", dlt).is_none(), "lengths differ by the header");
        }
    }
}
