//! Intended differences from libpcap 1.10: narrow, named, with reasons.
//!
//! Each rule has a test of its own in this folder's parent that states what is right.

use tapline_filter::predicate::HEADERS_MAX;
use tapline_testkit::expressions::Family;
use tapline_testkit::libpcap::Trace;

const DLT_ARCNET: i32 = 7;
const DLT_ARCNET_LINUX: i32 = 129;
const DLT_SUNATM: i32 = 123;
const DLT_MTP2_WITH_PHDR: i32 = 139;
const DLT_MTP2: i32 = 140;
const DLT_SLIP: i32 = 8;
const DLT_PPI: i32 = 192;

/// A pair on which the two sides differ.
pub(crate) struct Difference<'a> {
    /// The filter.
    pub(crate) text: &'a str,
    /// The link type, as libpcap numbers it.
    pub(crate) dlt: i32,
    /// The packet.
    pub(crate) data: &'a [u8],
    /// Whether it was longer on the wire.
    pub(crate) is_short: bool,
    /// The run of libpcap's optimised program.
    pub(crate) optimised: &'a Trace,
    /// The run of libpcap's unoptimised program.
    pub(crate) plain: &'a Trace,
}

/// A reason to differ.
pub(crate) struct Rule {
    /// For the count at the end of a run.
    pub(crate) name: &'static str,
    /// The reason that libpcap 1.10 is not followed there.
    pub(crate) reason: &'static str,
    /// Whether a difference falls under the rule.
    pub(crate) covers: fn(&Difference<'_>) -> bool,
}

/// All of them.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "unwritten-scratch",
        reason: "libpcap's program reads a scratch cell that nothing wrote (geneve, pppoes on variable headers): what it \
                 finds there is left over from other calls before 1.10.7",
        covers: |d| d.optimised.read_unwritten || d.plain.read_unwritten,
    },
    Rule {
        name: "overwritten-scratch",
        reason: "on link layers of variable length, libpcap 1.10 lets arithmetic use the scratch cell that holds where the \
                 header is: `1 > 2 or wlan addr1 X` then looks for X at a wrong place",
        covers: |d| d.plain.read_overwritten,
    },
    Rule {
        name: "geneve-missed",
        reason: "what stands after `geneve ... or` looks for the inner packet although there is none: libpcap finds in that \
                 cell what arithmetic or the outer packet left there, we find 0, as 1.11 mostly does",
        covers: |d| d.text.contains("geneve") && !d.plain.entered_tunnel,
    },
    Rule {
        name: "tunnels-on-802.11",
        reason: "behind 802.11's header, libpcap's geneve and pppoes look for the outer packet at a place that they take from \
                 the wrong cell, which other parts of the filter may have filled",
        covers: |d| {
            (d.text.contains("geneve") || d.text.contains("pppoes")) && Family::of(d.dlt) == Family::Wireless
        },
    },
    Rule {
        name: "wrapped-offsets",
        reason: "an index so large that it wraps, or the first byte of Juniper types without a header, which libpcap counts \
                 from -2: its optimiser adds the numbers, without it (and beside protochain) the load is outside",
        covers: |d| d.plain.index_wraps(),
    },
    Rule {
        name: "protochain-long",
        reason: "we follow a bounded number of headers and then say no; libpcap goes on to the packet's end, and rejects it",
        covers: |d| d.plain.loops >= HEADERS_MAX,
    },
    Rule {
        name: "net-loads",
        reason: "1.11 loads only the words of an address that a network looks at, 1.10 loads all, masks some with 0, and \
                 rejects packets that end before them",
        covers: |d| d.plain.masked_out,
    },
    Rule {
        name: "protochain-ah",
        reason: "libpcap moves to (length + 2) * 4 from the start of the header chain, not from the authentication header",
        covers: |d| {
            d.text.contains("protochain") && (d.plain.compared_equal(51) || d.optimised.compared_equal(51))
        },
    },
    Rule {
        name: "protochain-unending",
        reason: "the chain of headers comes back to itself, and libpcap's program never ends",
        covers: |d| d.plain.verdict.is_none() || d.optimised.verdict.is_none(),
    },
    Rule {
        name: "ip-multicast-class-e",
        reason: "1.10 takes 240.0.0.0/4 for multicast, 1.11 tests the class D bits alone",
        covers: |d| d.text.contains("ip multicast"),
    },
    Rule {
        name: "isis-levels",
        reason: "1.10 compares IS-IS PDU types with other masks",
        covers: |d| ["l1", "l2", "iih", "lsp", "snp", "isis proto"].iter().any(|word| d.text.contains(word)),
    },
    Rule {
        name: "decnet-loads",
        reason: "1.11 looks at the flags and the address of a DECnet packet in one load, which a cut packet may lack",
        covers: |d| {
            d.text.contains("decnet host") || d.text.contains("decnet src") || d.text.contains("decnet dst")
        },
    },
    Rule {
        name: "ss7-fields",
        reason: "1.10 reads the fields of MTP2 and MTP3 in other bit and byte orders",
        covers: |d| (DLT_MTP2_WITH_PHDR..=DLT_MTP2).contains(&d.dlt),
    },
    Rule {
        name: "slip-outbound",
        reason: "1.10 takes every direction byte but 0 for outbound, 1.11 only 1",
        covers: |d| d.dlt == DLT_SLIP && d.text.contains("outbound"),
    },
    Rule {
        name: "constants-decide",
        reason: "where a protocol is always or never there, 1.11 drops what stands beside it, and asks a cut packet \
                 nothing for that",
        covers: |d| has_constants(d.dlt) && is_cut(d),
    },
    Rule {
        name: "zero-networks",
        reason: "`net 0.0.0.0/0` and `net ::/0` are constants too",
        covers: |d| d.text.contains("/0") && is_cut(d),
    },
    Rule {
        name: "guard-order",
        reason: "1.11 asks for the header of a comparison's right operand first, 1.10 for the left one's: on a cut \
                 packet that decides",
        covers: |d| d.text.contains('[') && is_cut(d) || d.text.matches('[').count() > 1 && d.is_short,
    },
    Rule {
        name: "index-over-ipv4",
        reason: "for `tcp[...]` and its like 1.11 asks the protocol of IPv4 alone; 1.10 asks it of IPv6 too, and on \
                 Juniper's types, which do not say what they carry, reads IPv6's fields of a cut packet",
        covers: |d| {
            let first = matches!(d.dlt, 130..=137 | 164 | 167..=168 | 174 | 178..=181 | 183);
            let juniper = first || matches!(d.dlt, 194 | 200 | 232..=234 | 238);
            juniper && ["tcp[", "udp[", "sctp[", "pim["].iter().any(|word| d.text.contains(word))
        },
    },
    Rule {
        name: "arcnet-rfc1051",
        reason: "1.11 no longer takes the codes 240 and 241, which RFC 1051 uses with another header, for IP and ARP",
        covers: |d| {
            let at = if d.dlt == DLT_ARCNET { 2 } else { 4 };
            matches!(d.dlt, DLT_ARCNET | DLT_ARCNET_LINUX) && matches!(d.data.get(at), Some(240 | 241))
        },
    },
];

/// Whether libpcap's program rejected the packet because it ends before what was loaded.
fn is_cut(d: &Difference<'_>) -> bool {
    let ends_before = |trace: &Trace| trace.load_ends.iter().any(|&end| end > d.data.len());
    ends_before(d.plain) || ends_before(d.optimised)
}

/// Link types on which a protocol can be a constant: always there, or never.
fn has_constants(dlt: i32) -> bool {
    const RAW: i32 = 12;
    const SLIP_BSDOS: i32 = 15;
    const LTALK: i32 = 114;
    const FRELAY: i32 = 107;
    const PFLOG: i32 = 117;
    const IPNET: i32 = 226;
    let loopback = matches!(dlt, 0 | 108 | 109);
    let ip = matches!(dlt, RAW | DLT_SLIP | SLIP_BSDOS | 228 | 229);
    loopback || ip || matches!(dlt, LTALK | FRELAY | PFLOG | IPNET | DLT_ARCNET | DLT_ARCNET_LINUX)
}

/// A text that at least one side refuses.
pub(crate) struct Refusal<'a> {
    /// The filter.
    pub(crate) text: &'a str,
    /// The link type, as libpcap numbers it.
    pub(crate) dlt: i32,
    /// Our message, if we refuse it.
    pub(crate) ours: Option<&'a str>,
    /// libpcap's, with its optimiser.
    pub(crate) optimised: Option<&'a str>,
}

/// The message of both sides about a filter that can never be true.
pub(crate) const NEVER: &str = "expression rejects all packets";

/// A reason to refuse a text that libpcap takes, or the other way around.
pub(crate) struct RefusalRule {
    /// For the count at the end of a run.
    pub(crate) name: &'static str,
    /// The reason that libpcap 1.10 is not followed there.
    pub(crate) reason: &'static str,
    /// Whether a text falls under the rule.
    pub(crate) covers: fn(&Refusal<'_>) -> bool,
}

/// All of them.
pub(crate) const REFUSALS: &[RefusalRule] = &[
    RefusalRule {
        name: "number-too-large",
        reason: "1.11 refuses numbers that do not fit their field, 1.10 lets them wrap or never match",
        covers: |r| r.ours.is_some_and(|m| m.contains("greater than maximum")),
    },
    RefusalRule {
        name: "no-metadata",
        reason: "1.11 refuses inbound, outbound and ifindex where neither the header nor a live capture tells, 1.10 \
                 compiles loads that fail on every packet",
        covers: |r| r.ours.is_some_and(|m| m.starts_with("not a live capture")),
    },
    RefusalRule {
        name: "atm-after-lane",
        reason: "after lane and pppoes the link layer is another, and 1.11 refuses tests of the ATM header there",
        covers: |r| r.dlt == DLT_SUNATM && r.ours.is_some_and(|m| m.contains("supported only on SUNATM")),
    },
    RefusalRule {
        name: "port-ranges",
        reason: "1.11 refuses a range of ports with more than one hyphen, without one of its ends, or with an end that is neither a number nor name; \
                 1.10 reads the digits that it finds",
        covers: |r| {
            let faults =
                ["more than one hyphen", "has no starting port", "has no ending port", "is not a valid port"];
            r.text.contains("portrange")
                && r.ours.is_some_and(|m| faults.iter().any(|fault| m.contains(fault)))
        },
    },
    RefusalRule {
        name: "decnet-address",
        reason: "1.11 refuses DECnet addresses that are not area.node with an area to 63 and a node to 1023",
        covers: |r| r.text.contains("decnet") && r.ours.is_some_and(|m| m.contains("DECnet address")),
    },
    RefusalRule {
        name: "constant-faults",
        reason: "libpcap finds a division by zero or a shift too far among numbers only in what its optimiser has not \
                 dropped before",
        covers: |r| {
            let faults = ["division by zero", "modulus by zero", "shift by more than 31 bits"];
            r.ours.or(r.optimised).is_some_and(|m| faults.contains(&m))
        },
    },
    RefusalRule {
        name: "ppi-802.11",
        reason: "1.11 takes tests of 802.11 types on PPI, which mostly holds 802.11",
        covers: |r| r.dlt == DLT_PPI && r.optimised.is_some_and(|m| m.contains("802.11")),
    },
];
