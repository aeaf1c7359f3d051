//! Work left to the NIC or done by it: checksums and segmentation.
//!
//! Captures see sent packets before the NIC has worked on them, and received ones after: a checksum may not be filled
//! in yet, and one packet may represent many frames. The kernel's status bits show both; the size of the frames needs a
//! `struct virtio_net_hdr` before each packet, which costs packets that it cannot express (see
//! [`AfPacketSettings::vnet_header`](super::AfPacketSettings::vnet_header)).

use tapline_packet::numbers::ethertype;
use tapline_packet::{Checksum, Gso};

/// Bytes of `struct virtio_net_hdr`: flags, gso_type, and four 16-bit numbers (linux/virtio_net.h).
pub(super) const VNET_HEADER_LEN: usize = 10;

const STATUS_CHECKSUM_NOT_READY: u32 = 1 << 3;
const STATUS_CHECKSUM_VALID: u32 = 1 << 7;
/// Minimum kernel: 6.4.
const STATUS_GSO_TCP: u32 = 1 << 8;

const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;

/// The state of the transport checksum, by the status word.
#[inline]
pub(super) fn checksum(status: u32) -> Checksum {
    if status & STATUS_CHECKSUM_NOT_READY != 0 {
        Checksum::NotReady
    } else if status & STATUS_CHECKSUM_VALID != 0 {
        Checksum::Valid
    } else {
        Checksum::Unknown
    }
}

/// The segmentation of a packet, from its virtio header if there is one, else from the status.
#[inline]
pub(super) fn gso<'a>(
    status: u32,
    ethertype: u16,
    vnet_header: impl FnOnce() -> Option<&'a [u8; VNET_HEADER_LEN]>,
) -> Option<Gso> {
    if let Some(header) = vnet_header() {
        // On AF_PACKET these numbers are in host byte order.
        let size = u16::from_ne_bytes([header[4], header[5]]);
        return (header[1] != GSO_NONE).then_some(Gso { size, kind: header[1] });
    }
    let kind = if ethertype == ethertype::IPV6 { GSO_TCP6 } else { GSO_TCP4 };
    (status & STATUS_GSO_TCP != 0).then_some(Gso { size: 0, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_header_says_more_than_the_status() {
        let header = [0, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut sized = header;
        sized[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        assert_eq!(gso(0, 0x86dd, || Some(&sized)), Some(Gso { size: 1448, kind: 4 }));
        assert_eq!(gso(STATUS_GSO_TCP, 0x0800, || Some(&[0; 10])), None);
        assert_eq!(gso(STATUS_GSO_TCP, 0x0800, || None), Some(Gso { size: 0, kind: 1 }));
        assert_eq!(gso(STATUS_GSO_TCP, 0x86dd, || None), Some(Gso { size: 0, kind: 4 }));
        assert_eq!(gso(1, 0x0800, || None), None);
    }

    #[test]
    fn a_checksum_to_come_is_not_a_valid_one() {
        assert_eq!(checksum(1 << 3 | 1 << 7), Checksum::NotReady);
        assert_eq!(checksum(1 << 7), Checksum::Valid);
        assert_eq!(checksum(1), Checksum::Unknown);
    }
}
