//! Whether a filter accepts packets of which it names nothing.
//!
//! The filter is tried on sample packets of common protocols, with addresses and ports that hardly any filter names.
//! A filter that accepts one of them is likely to accept many.

use tapline_packet::numbers::ethertype::{ARP, IPV4, IPV6};
use tapline_packet::numbers::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use tapline_packet::{Meta, Packet};

use tapline_ir::CompiledFilter;

const LEN: usize = 90;

/// EtherType, and protocol or next header, of common frames.
const COMMON: [(u16, u8); 7] =
    [(IPV4, TCP), (IPV4, UDP), (IPV4, ICMP), (IPV6, TCP), (IPV6, UDP), (IPV6, ICMPV6), (ARP, 0)];

/// Whether the program accepts a common frame on Ethernet. Of other link types it is not known: the answer costs
/// time, and changes no verdict.
pub(super) fn is_broad(program: &CompiledFilter) -> bool {
    let meta = Meta { wire_len: LEN as u32, ..Meta::default() };
    COMMON.iter().any(|(ether_type, protocol)| {
        let data = frame(*ether_type, *protocol);
        program.run(Packet { data: &data, meta: &meta }) != 0
    })
}

fn frame(ether_type: u16, protocol: u8) -> [u8; LEN] {
    // Whatever stands nowhere else: addresses and ports alike.
    let mut frame = [0xc7; LEN];
    frame[0] = 0xc6;
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    match ether_type {
        IPV4 => {
            frame[14..24].copy_from_slice(&[0x45, 0, 0, (LEN - 14) as u8, 0, 0, 0x40, 0, 64, protocol]);
            // An acknowledgement, with data.
            (frame[46], frame[47]) = (0x50, 0x18);
        }
        IPV6 => {
            frame[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, (LEN - 54) as u8, protocol, 64]);
            (frame[66], frame[67]) = (0x50, 0x18);
        }
        _ => frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]),
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_name_nothing_of_a_packet_are_broad() {
        let is = |text: &str| {
            is_broad(&tapline_filter::compile(text, &tapline_filter::Options::default()).unwrap())
        };
        for broad in [
            "not port 22",
            "not (host 10.0.0.1 and tcp)",
            "tcp",
            "ip6",
            "len > 60",
            "udp and not port 53",
            "arp",
        ] {
            assert!(is(broad), "{broad}");
        }
        for narrow in [
            "port 22",
            "host 10.0.0.1",
            "net 192.168.0.0/16 and not port 80",
            "tcp[tcpflags] & tcp-syn != 0",
            "vlan",
        ] {
            assert!(!is(narrow), "{narrow}");
        }
    }
}
