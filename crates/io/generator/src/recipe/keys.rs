//! Every word and key of a recipe, for help and for errors.

/// A word or a key of a recipe.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As it is written: `size`, or a word alone: `tcp`.
    pub name: &'static str,
    /// The form of the value; empty for a word without one.
    pub value: &'static str,
    /// The meaning, and the default.
    pub meaning: &'static str,
}

const fn key(name: &'static str, value: &'static str, meaning: &'static str) -> Key {
    Key { name, value, meaning }
}

/// Every word and key, in the order of help.
pub const KEYS: &[Key] = &[
    key("udp", "", "datagrams (the default); several protocols: flows take turns"),
    key(
        "tcp",
        "",
        "connections with data from the client; control segments have no payload and are shorter than size",
    ),
    key("icmp", "", "echo requests"),
    key("ip", "", "IPv4 (the default)"),
    key("ip6", "", "IPv6; with ip, flows take turns"),
    key(
        "size",
        "60 | imix | 60:7,590:4,1514:1 | 60..1514 | 60..1514+64",
        "bytes of a frame without its check sequence (FCS), tags and tunnels included; a mix by weights, or a sweep; 60",
    ),
    key("flows", "N", "how many flows, all different; 1"),
    key("walk", "step | random", "how flows take addresses and ports; step"),
    key("order", "turns | random", "which flow comes next; turns"),
    key(
        "src",
        "ADDRESS | A/24 | A-B, with commas",
        "clients' addresses, of either IP version; 10.0.0.0/16, fd00::/112",
    ),
    key("dst", "as src", "servers' addresses; 10.1.0.1, fd00:0:0:1::1"),
    key("sport", "PORT | A-B, with commas", "clients' ports, identifiers of ICMP; 1024-65535"),
    key("dport", "as sport", "servers' ports; 9 for UDP, 80 for TCP"),
    key("smac", "MAC", "clients' link address; 02:00:00:00:00:01"),
    key("dmac", "MAC", "servers' link address; 02:00:00:00:00:02"),
    key("ttl", "0 to 255", "hops left; 64"),
    key("tos", "0 to 255", "type of service, traffic class; 0"),
    key("vlan", "ID | OUTER.INNER", "an 802.1Q tag, or 802.1ad with 802.1Q inside (QinQ)"),
    key("mpls", "LABEL | OUTER.INNER...", "a stack of up to 8 labels"),
    key(
        "vxlan",
        "NETWORK",
        "a VXLAN tunnel from 10.255.0.1 to 10.255.0.2 around everything else, VLAN and MPLS outside",
    ),
    key("payload", "zero | counting | random | 'any text'", "what packets carry; text is repeated; zero"),
    key("segments", "N", "data segments of a TCP connection; 10"),
    key("oneway", "", "of TCP connections only what the client sends"),
    key("fragment", "N", "IP packets longer than this many bytes are sent in fragments"),
    key(
        "bad",
        "checksum | ip-checksum | length | truncated, each with :1/100, with commas",
        "malformed packets, and their share of all; everything else has right checksums and lengths",
    ),
    key("match", "'FILTER'", "packets that this filter accepts"),
    key("share", "1/10", "how many of the packets the filter is to accept; 1/1"),
    key("count", "N", "how many packets; k, M, G are thousands"),
    key("duration", "10s", "how long, by the packets' own times: ns, us, ms, s, m, h"),
    key(
        "rate",
        "100k | 10Mbit | 100Mwire",
        "packets a second; bits a second of frames; bits a second on the wire with 24 bytes more a frame",
    ),
    key("gaps", "constant | poisson | burst:32", "how packets are spread in time; constant"),
    key("start", "now | SECONDS", "the first packet's time, seconds since 1970; 946684800 (2000-01-01)"),
    key("seed", "N", "where chance starts: the same seed, the same bytes; 1"),
    key(
        "mark",
        "0 to 255",
        "a sequence number and the time in the last 18 bytes of each payload, of this stream; mark alone is 0",
    ),
];
