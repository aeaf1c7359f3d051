//! No bytes make the printer panic, loop or print without a bound: random ones, mutated real packets, and real packets
//! cut at every length, for every link type and the flags that reach most code.

use crate::captures;
use proptest::prelude::*;
use tapline_packet::{Interface, LinkType, Meta, Packet, VlanTag};
use tapline_print::{HexStyle, Options, Printer};

/// Link types with a printer, and one without.
const LINK_TYPES: [LinkType; 53] = [
    LinkType::ETHERNET,
    LinkType::RAW,
    LinkType::NULL,
    LinkType::LOOP,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::PPP,
    LinkType::PPP_HDLC,
    LinkType::PPP_ETHER,
    LinkType::PPP_PPPD,
    LinkType::NFLOG,
    LinkType::IEEE802_11,
    LinkType::IEEE802_11_RADIOTAP,
    LinkType::IEEE802_11_PRISM,
    LinkType::IEEE802_11_AVS,
    LinkType::IPV6,
    LinkType::DSA_TAG_DSA,
    LinkType::DSA_TAG_EDSA,
    LinkType::DSA_TAG_BRCM,
    LinkType::DSA_TAG_BRCM_PREPEND,
    LinkType::C_HDLC,
    LinkType::FRELAY,
    LinkType::MFR,
    LinkType::PPI,
    LinkType::IEEE802_15_4_WITHFCS,
    LinkType::IEEE802_15_4_NOFCS,
    LinkType::IEEE802_15_4_TAP,
    LinkType::FDDI,
    LinkType::SLIP,
    LinkType::SLIP_BSDOS,
    LinkType::IPOIB,
    LinkType::IPNET,
    LinkType::ARCNET_BSD,
    LinkType::ARCNET_LINUX,
    LinkType::VSOCK,
    LinkType::ATM_RFC1483,
    LinkType::SUNATM,
    LinkType::JUNIPER_GGSN,
    LinkType::JUNIPER_ES,
    LinkType::JUNIPER_MONITOR,
    LinkType::JUNIPER_SERVICES,
    LinkType::JUNIPER_PPPOE,
    LinkType::JUNIPER_ETHER,
    LinkType::JUNIPER_PPP,
    LinkType::JUNIPER_FRELAY,
    LinkType::JUNIPER_CHDLC,
    LinkType::JUNIPER_PPPOE_ATM,
    LinkType::JUNIPER_MLPPP,
    LinkType::JUNIPER_MFR,
    LinkType::JUNIPER_MLFR,
    LinkType::JUNIPER_ATM1,
    LinkType::JUNIPER_ATM2,
    LinkType(65_000),
];

/// Maximum text for a byte of a packet; more is a loop that reads the same bytes again and again.
const TEXT_PER_BYTE: usize = 20_000;

fn flag_sets() -> Vec<Options> {
    let base = Options { port_names: false, ..Options::default() };
    vec![
        base.clone(),
        Options { verbose: 3, link_header: true, ..base.clone() },
        Options { verbose: 1, hex: HexStyle::Hex, ..base.clone() },
        Options { quiet: true, link_header: true, absolute_seq: true, ..base },
    ]
}

fn print_all(printers: &mut [Printer], data: &[u8], meta: &Meta, link_type: LinkType) {
    let interface = Interface::new("", link_type);
    let mut out = Vec::new();
    for printer in printers {
        out.clear();
        printer.print(Packet { data, meta }, &interface, &mut out);
        assert!(out.ends_with(b"\n"));
        assert!(out.len() < 4096 + data.len() * TEXT_PER_BYTE, "{} bytes of text", out.len());
    }
}

fn printers() -> Vec<Printer> {
    flag_sets().into_iter().map(Printer::new).collect()
}

#[test]
fn real_packets_cut_at_every_length() {
    let Some(files) = captures::files_or_skip("real_packets_cut_at_every_length") else { return };
    let mut printers = printers();
    for path in files {
        for packet in captures::read(&path).iter().step_by(9).take(4) {
            for length in 0..=packet.data.len().min(300) {
                print_all(&mut printers, &packet.data[..length], &packet.meta, packet.interface.link_type);
            }
        }
    }
}

#[test]
fn real_packets_with_bytes_changed() {
    let Some(files) = captures::files_or_skip("real_packets_with_bytes_changed") else { return };
    let mut printers = printers();
    let mut random = captures::Random::new();
    for path in files {
        for packet in captures::read(&path).iter().take(40) {
            for _ in 0..8 {
                let mut data = packet.data.clone();
                random.change(&mut data);
                print_all(&mut printers, &data, &packet.meta, packet.interface.link_type);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_200, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(
        data in prop::collection::vec(any::<u8>(), 0..300),
        extra in 0_u32..2000,
        link_type in 0..LINK_TYPES.len(),
        tag in any::<Option<(u16, u16)>>(),
    ) {
        let meta = Meta {
            wire_len: data.len() as u32 + extra,
            vlan: tag.map(|(tpid, tci)| VlanTag { tpid, tci }),
            ..Meta::default()
        };
        print_all(&mut printers(), &data, &meta, LINK_TYPES[link_type]);
    }

    /// Any protocol behind IPv4 and IPv6, with lengths that fit so that its printer is reached.
    #[test]
    fn random_payload_of_ip(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        protocol in any::<u8>(),
        ports in prop::option::of((any::<u16>(), 0..WELL_KNOWN.len())),
    ) {
        let mut payload = payload;
        if let (Some((other, known)), true) = (ports, payload.len() >= 8) {
            payload[..2].copy_from_slice(&WELL_KNOWN[known].to_be_bytes());
            payload[2..4].copy_from_slice(&other.to_be_bytes());
            let length = payload.len() as u16;
            payload[4..6].copy_from_slice(&length.to_be_bytes());
        }
        let protocol = if ports.is_some() { 17 } else { protocol };
        for packet in [ipv4(protocol, &payload), ipv6(protocol, &payload)] {
            let meta = Meta { wire_len: packet.len() as u32, ..Meta::default() };
            print_all(&mut printers(), &packet, &meta, LinkType::RAW);
        }
    }
}

/// Ports whose payload has a printer of its own.
const WELL_KNOWN: [u16; 28] = [
    53, 67, 68, 69, 88, 123, 137, 138, 161, 162, 319, 320, 500, 514, 520, 546, 547, 698, 1701, 1812, 2049,
    3503, 4342, 4500, 4789, 5353, 6081, 6696,
];

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, (length >> 8) as u8, length as u8, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend_from_slice(payload);
    packet
}

fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut packet = vec![0x60, 0, 0, 0, (length >> 8) as u8, length as u8, protocol, 64];
    packet.extend_from_slice(&[0x20; 32]);
    packet.extend_from_slice(payload);
    packet
}
