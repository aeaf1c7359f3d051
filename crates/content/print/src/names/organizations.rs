//! Organizations by the first three bytes of their hardware addresses, as far as tcpdump 4.99 names them.

use crate::context::lookup;

const NAMES: &[(u32, &str)] = &[
    (0x00_0000, "Ethernet"),
    (0x00_000c, "Cisco"),
    (0x00_005e, "IANA"),
    (0x00_0081, "Nortel Networks SONMP"),
    (0x00_00f8, "Cisco bridged"),
    (0x00_80c2, "Ethernet bridged"),
    (0x00_a03e, "ATM Forum"),
    (0x00_e02f, "DOCSIS Spanning Tree"),
    (0x08_0007, "Appletalk"),
    (0x00_9069, "Juniper"),
    (0x08_0009, "Hewlett-Packard"),
    (0x00_120f, "IEEE 802.3 Private"),
    (0x00_12bb, "ANSI/TIA"),
    (0x00_1b21, "DCBX"),
    (0x00_2320, "Nicira Networks"),
    (0x5c_16c7, "Big Switch Networks"),
    (0xb0_d2f5, "Vello Systems"),
    (0x00_2481, "HP"),
    (0x00_04ea, "HP-Labs"),
    (0x74_8771, "Infoblox Inc"),
    (0xa4_2305, "Open Networking Lab"),
    (0x00_049f, "Freescale"),
    (0x00_15ad, "Netronome"),
    (0x00_1018, "Broadcom"),
    (0x00_e004, "PMC-Sierra"),
    (0xd0_f0db, "Ericsson"),
];

/// The name of an organization, if it has one.
pub(crate) fn organization(number: u32) -> Option<&'static str> {
    lookup(NAMES, number)
}
