//! Protocol numbers of IP, and the text for those without a printer.

use crate::context::{Context, lookup};
use crate::text::Text;

pub(crate) use tapline_packet::numbers::ip_protocol::*;

/// The name of a protocol, if it has one.
pub(crate) fn name(number: u8) -> Option<&'static str> {
    match number {
        TCP => Some("TCP"),
        UDP => Some("UDP"),
        _ => lookup(NAMES, number),
    }
}

const NAMES: &[(u8, &str)] = &[
    (HOP_BY_HOP, "Options"),
    (ICMP, "ICMP"),
    (IGMP, "IGMP"),
    (IPV4, "IPIP"),
    (TCP, "TCP"),
    (8, "EGP"),
    (9, "IGRP"),
    (UDP, "UDP"),
    (DCCP, "DCCP"),
    (IPV6, "IPv6"),
    (ROUTING, "Routing"),
    (FRAGMENT, "Fragment"),
    (46, "RSVP"),
    (GRE, "GRE"),
    (ESP, "ESP"),
    (AH, "AH"),
    (55, "Mobile IP"),
    (MOBILITY_OLD, "Mobile IP (old)"),
    (ICMPV6, "ICMPv6"),
    (ND, "ND"),
    (EIGRP, "EIGRP"),
    (OSPF, "OSPF"),
    (PIM, "PIM"),
    (IPCOMP, "Compressed IP"),
    (VRRP, "VRRP"),
    (113, "PGM"),
    (SCTP, "SCTP"),
    (MOBILITY, "Mobility"),
    (99, "IPv6 Encryption"),
    (ETHERNET, "Ethernet"),
];

/// Whether the protocol's own printer shows the addresses, with ports.
pub(crate) const fn prints_addresses(number: u8) -> bool {
    matches!(number, TCP | UDP | SCTP | DCCP)
}

/// Keywords of the IANA registry, as tcpdump 4.99 has them, by number; empty where there is none.
#[rustfmt::skip]
const KEYWORDS: [&str; 143] = [
    "hopopt", "icmp", "igmp", "ggp", "ipencap", "st", "tcp", "cbt", "egp", "igp", "bbn-rcc-mon", "nvp-ii",
    "pup", "argus", "emcon", "xnet", "chaos", "udp", "mux", "dcn-meas", "hmp", "prm", "xns-idp", "trunk-1",
    "trunk-2", "leaf-1", "leaf-2", "rdp", "irtp", "iso-tp4", "netblt", "mfe-nsp", "merit-inp", "dccp",
    "3pc", "idpr", "xtp", "ddp", "idpr-cmtp", "tp++", "il", "ipv6", "sdrp", "ipv6-route", "ipv6-frag",
    "idrp", "rsvp", "gre", "dsr", "bna", "esp", "ah", "i-nlsp", "swipe", "narp", "mobile", "tlsp", "skip",
    "ipv6-icmp", "ipv6-nonxt", "ipv6-opts", "", "cftp", "", "sat-expak", "kryptolan", "rvd", "ippc", "",
    "sat-mon", "visa", "ipcv", "cpnx", "rspf", "wsn", "pvp", "br-sat-mon", "sun-nd", "wb-mon", "wb-expak",
    "iso-ip", "vmtp", "secure-vmtp", "vines", "ttp", "nsfnet-igp", "dgp", "tcf", "eigrp", "ospf",
    "sprite-rpc", "larp", "mtp", "ax.25", "ipip", "micp", "scc-sp", "etherip", "encap", "", "gmtp", "ifmp",
    "pnni", "pim", "aris", "scps", "qnx", "a/n", "ipcomp", "snp", "compaq-peer", "ipx-in-ip", "vrrp", "pgm",
    "", "l2tp", "ddx", "iatp", "stp", "srp", "uti", "smp", "sm", "ptp", "isis", "fire", "crtp", "crudp",
    "sscopmce", "iplt", "sps", "pipe", "sctp", "fc", "rsvp-e2e-ignore", "mobility-header", "udplite",
    "mpls-in-ip", "manet", "hip", "shim6", "wesp", "rohc",
];

/// The keyword of a protocol in the IANA registry; empty if it has none.
pub(crate) fn keyword(number: u8) -> &'static str {
    match number {
        253 => "exptest-253",
        254 => "exptest-254",
        255 => "reserved",
        _ => KEYWORDS.get(usize::from(number)).copied().unwrap_or(""),
    }
}

/// ` ip-proto-N`, or the protocol's keyword if names are wanted.
pub(crate) fn print_unknown(cx: &mut Context<'_>, number: u8) {
    let keyword = keyword(number);
    if cx.options.port_names && !keyword.is_empty() {
        cx.text(" ");
        cx.text(keyword);
        return;
    }
    cx.text(" ip-proto-");
    cx.dec(number);
}
