//! sFlow, version 5: `sFlowv5, IPv4 agent 10.0.0.1, agent-id 0, length 48`; with `-v` its samples.
//!
//! ```text
//! version 4 | address type 4 (1 IPv4, 2 IPv6) | agent 4 or 16 | agent id 4 | sequence 4 | uptime 4 | samples 4 | ...
//! sample = format 4 (enterprise 20 bits, type 12), length 4, sequence 4, source ..., records 4, records
//! record = format 4, length 4, value
//! ```

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const SAMPLES: &[(u32, &str)] = &[
    (FLOW, "flow sample"),
    (COUNTER, "counter sample"),
    (EXPANDED_FLOW, "expanded flow sample"),
    (EXPANDED_COUNTER, "expanded counter sample"),
];
const FLOW: u32 = 1;
const COUNTER: u32 = 2;
const EXPANDED_FLOW: u32 = 3;
const EXPANDED_COUNTER: u32 = 4;

const FLOW_RECORDS: &[(u32, &str)] = &[
    (1, "Raw packet"),
    (2, "Ethernet frame"),
    (3, "IPv4 Data"),
    (4, "IPv6 Data"),
    (1001, "Extended Switch data"),
    (1002, "Extended Router data"),
    (1003, "Extended Gateway data"),
    (1004, "Extended User data"),
    (1005, "Extended URL data"),
    (1006, "Extended MPLS data"),
    (1007, "Extended NAT data"),
    (1008, "Extended MPLS tunnel"),
    (1009, "Extended MPLS VC"),
    (1010, "Extended MPLS FEC"),
    (1011, "Extended MPLS LVP FEC"),
    (1012, "Extended VLAN Tunnel"),
];

const COUNTER_RECORDS: &[(u32, &str)] = &[
    (1, "Generic counter"),
    (2, "Ethernet counter"),
    (3, "Token ring counter"),
    (4, "100 BaseVG counter"),
    (5, "Vlan counter"),
    (1001, "Processor counter"),
];

const RAW_PROTOCOLS: &[(u32, &str)] = &[(1, "Ethernet"), (11, "IPv4"), (12, "IPv6")];
const DIRECTIONS: [&str; 5] = ["unknown", "full-duplex", "half-duplex", "in", "out"];

/// The label of a number, and its length: 4 or 8 bytes.
type Field = (&'static str, usize);

const INTERFACE: &[Field] =
    &[("\n\t      ifindex ", 4), (", iftype ", 4), (", ifspeed ", 8), (", ifdirection ", 4)];

/// Counters of an interface, behind its state.
const GENERIC: &[Field] = &[
    ("\n\t      In octets ", 8),
    (", unicast pkts ", 4),
    (", multicast pkts ", 4),
    (", broadcast pkts ", 4),
    (", discards ", 4),
    ("\n\t      In errors ", 4),
    (", unknown protos ", 4),
    ("\n\t      Out octets ", 8),
    (", unicast pkts ", 4),
    (", multicast pkts ", 4),
    (", broadcast pkts ", 4),
    (", discards ", 4),
    ("\n\t      Out errors ", 4),
    (", promisc mode ", 4),
];

const ETHERNET: &[Field] = &[
    ("\n\t      align errors ", 4),
    (", fcs errors ", 4),
    (", single collision ", 4),
    (", multiple collision ", 4),
    (", test error ", 4),
    ("\n\t      deferred ", 4),
    (", late collision ", 4),
    (", excessive collision ", 4),
    (", mac trans error ", 4),
    ("\n\t      carrier error ", 4),
    (", frames too long ", 4),
    (", mac receive errors ", 4),
    (", symbol errors ", 4),
];

const BASE_VG: &[Field] = &[
    ("\n\t      in high prio frames ", 4),
    (", in high prio octets ", 8),
    ("\n\t      in norm prio frames ", 4),
    (", in norm prio octets ", 8),
    ("\n\t      in ipm errors ", 4),
    (", oversized ", 4),
    (", in data errors ", 4),
    (", null addressed frames ", 4),
    ("\n\t      out high prio frames ", 4),
    (", out high prio octets ", 8),
    (", trans into frames ", 4),
    ("\n\t      in hc high prio octets ", 8),
    (", in hc norm prio octets ", 8),
    (", out hc high prio octets ", 8),
];

const VLAN: &[Field] = &[
    ("\n\t      vlan_id ", 4),
    (", octets ", 8),
    (", unicast_pkt ", 4),
    (", multicast_pkt ", 4),
    (", broadcast_pkt ", 4),
    (", discards ", 4),
];

const PROCESSOR: &[Field] =
    &[("\n\t      5sec ", 4), (", 1min ", 4), (", 5min ", 4), (", total_mem ", 8), (", total_mem ", 8)];

const SWITCH: &[Field] =
    &[("\n\t      src vlan ", 4), (", src pri ", 4), (", dst vlan ", 4), (", dst pri ", 4)];

const FRAME: &[Field] = &[("\n\t      frame len ", 4)];

/// Whether the lengths of a sample make sense.
type Valid = Result<bool, Cut>;

pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "sflow";
    let is_v4 = span.u32(4)? == 1;
    let header_len = if is_v4 { 28 } else { 40 };
    if span.length < header_len && matches!(span.u32(4)?, 1 | 2) {
        put!(cx, "sFlowv{} [length {} < 28]", span.u32(0)?, span.length);
        cx.invalid();
        return Ok(());
    }
    if span.captured() < 28 {
        cx.cut();
        return Ok(());
    }
    let version = span.u32(0)?;
    if version != 5 {
        put!(cx, "sFlow version {version} packet not supported");
        return Ok(());
    }
    let (family, agent) = match is_v4 {
        true => ("IPv4", IpAddr::from(span.array::<4>(8)?)),
        false => ("IPv6", IpAddr::from(span.array::<16>(8)?)),
    };
    let at = header_len - 16;
    let identifier = span.u32(at)?;
    if cx.verbose() > 0 {
        span.need(header_len)?;
    }
    put!(cx, "sFlowv5, {family} agent ");
    cx.host(agent);
    put!(cx, ", agent-id {identifier}");
    if cx.verbose() == 0 {
        put!(cx, ", length {}", span.length);
        return Ok(());
    }
    let count = span.u32(at + 12)?;
    put!(cx, ", seqnum {}, uptime {}", span.u32(at + 4)?, span.u32(at + 8)?);
    put!(cx, ", samples {count}, length {}", span.length);
    if span.length < header_len {
        put!(cx, " [tlen {} < {header_len}]", span.length);
        cx.invalid();
        return Ok(());
    }
    print_samples(cx, span.skip(header_len), count)
}

fn print_samples(cx: &mut Context<'_>, mut rest: Span<'_>, count: u32) -> Printed {
    let mut left = count;
    // Each sample takes at least 9 bytes.
    while left > 0 && rest.length > 0 {
        let (kind, length) = (rest.u32(0)? & 0x0fff, rest.u32(4)? as usize);
        if rest.length < 8 {
            cx.invalid();
            return rest.need(rest.length);
        }
        rest = rest.skip(8);
        put!(cx, "\n\t{} ({kind}), length {length},", lookup(SAMPLES, kind).unwrap_or("Unknown"));
        if kind == 0 || length == 0 {
            return Ok(());
        }
        if rest.length < length {
            cx.invalid();
            return rest.need(rest.length);
        }
        if rest.captured() < length {
            cx.cut();
            return Ok(());
        }
        // tcpdump lets records reach past their sample.
        let valid = match kind {
            FLOW | EXPANDED_FLOW => flow_sample(cx, rest, kind == EXPANDED_FLOW)?,
            COUNTER | EXPANDED_COUNTER => counter_sample(cx, rest, kind == EXPANDED_COUNTER)?,
            _ => {
                if cx.verbose() == 1 {
                    cx.hex_lines("\n\t    ", rest.with_length(length));
                }
                true
            }
        };
        if !valid {
            cx.invalid();
            return rest.need(rest.length);
        }
        rest = rest.skip(length);
        left -= 1;
    }
    Ok(())
}

/// Type and index of the sampled interface; both have 4 bytes in expanded samples.
fn source(span: Span<'_>, is_expanded: bool) -> Result<(u32, u32, usize), Cut> {
    match is_expanded {
        true => Ok((span.u32(4)?, span.u32(8)?, 12)),
        false => Ok((u32::from(span.u8(4)?), span.u24(5)?, 8)),
    }
}

fn flow_sample(cx: &mut Context<'_>, sample: Span<'_>, is_expanded: bool) -> Valid {
    let header_len = if is_expanded { 44 } else { 32 };
    if sample.length < header_len {
        return Ok(false);
    }
    let (kind, index, at) = source(sample, is_expanded)?;
    let records = sample.u32(header_len - 4)?;
    put!(cx, " seqnum {}, type {kind}, idx {index}", sample.u32(0)?);
    put!(cx, ", rate {}, pool {}, drops {}", sample.u32(at)?, sample.u32(at + 4)?, sample.u32(at + 8)?);
    match is_expanded {
        true => put!(cx, ", records {records}"),
        false => {
            put!(cx, ", input {} output {} records {records}", sample.u32(20)?, sample.u32(24)?);
        }
    }
    print_records(cx, sample.skip(header_len), records, true)
}

fn counter_sample(cx: &mut Context<'_>, sample: Span<'_>, is_expanded: bool) -> Valid {
    let header_len = if is_expanded { 16 } else { 12 };
    if sample.length < header_len {
        return Ok(false);
    }
    let (kind, index, at) = source(sample, is_expanded)?;
    let records = sample.u32(at)?;
    put!(cx, " seqnum {}, type {kind}, idx {index}, records {records}", sample.u32(0)?);
    print_records(cx, sample.skip(header_len), records, false)
}

fn print_records(cx: &mut Context<'_>, mut rest: Span<'_>, count: u32, is_flow: bool) -> Valid {
    // Each record takes at least 8 of the bytes.
    for _ in 0..count {
        if rest.length < 8 {
            return Ok(false);
        }
        let (format, length) = (rest.u32(0)?, rest.u32(4)? as usize);
        let kind = format & 0x0fff;
        let (enterprise, names, comma) = match is_flow {
            true => (format >> 12, FLOW_RECORDS, ""),
            false => (format >> 20, COUNTER_RECORDS, ","),
        };
        let name = if enterprise == 0 { lookup(names, kind) } else { None };
        let title = name.unwrap_or("Unknown");
        put!(cx, "\n\t    enterprise {enterprise}{comma} {title} ({kind}) length {length}");
        rest = rest.skip(8);
        if rest.length < length {
            return Ok(false);
        }
        if enterprise == 0 {
            let printed = match (name, is_flow) {
                (None, _) => {
                    if cx.verbose() == 1 {
                        cx.hex_lines("\n\t\t", rest.with_length(length));
                    }
                    true
                }
                (_, true) => flow_record(cx, kind, rest)?,
                (_, false) => counter_record(cx, kind, rest)?,
            };
            if !printed {
                return Ok(false);
            }
        }
        rest = rest.skip(length);
    }
    Ok(true)
}

/// Numbers one after another. `false` if there are not as many.
fn print_numbers(cx: &mut Context<'_>, fields: &[Field], value: Span<'_>) -> Valid {
    if value.length < fields.iter().map(|(_, size)| size).sum() {
        return Ok(false);
    }
    let mut at = 0;
    for (name, size) in fields {
        let number = if *size == 8 { value.u64(at)? } else { u64::from(value.u32(at)?) };
        cx.text(name);
        cx.dec(number);
        at += size;
    }
    Ok(true)
}

fn flow_record(cx: &mut Context<'_>, kind: u32, value: Span<'_>) -> Valid {
    match kind {
        1 if value.length < 16 => Ok(false),
        1 => {
            value.need(16)?;
            let protocol = value.u32(0)?;
            let name = lookup(RAW_PROTOCOLS, protocol).unwrap_or("Unknown");
            put!(cx, "\n\t      protocol {name} ({protocol}), length {}", value.u32(4)?);
            put!(cx, ", stripped bytes {}, header_size {}", value.u32(8)?, value.u32(12)?);
            Ok(true)
        }
        // length 4, addresses of 6 bytes in 8 each, type 4
        2 if value.length < 24 => Ok(false),
        2 => {
            print_numbers(cx, FRAME, value)?;
            put!(cx, ", type {}", value.u32(20)?);
            Ok(true)
        }
        1001 => print_numbers(cx, SWITCH, value),
        _ => Ok(true),
    }
}

fn counter_record(cx: &mut Context<'_>, kind: u32, value: Span<'_>) -> Valid {
    match kind {
        1 if value.length < 88 => Ok(false),
        1 => {
            print_numbers(cx, INTERFACE, value)?;
            let direction = value.u32(16)? as usize;
            put!(cx, " ({})", DIRECTIONS.get(direction).copied().unwrap_or("Unknown"));
            let status = value.u32(20)?;
            let state = |bit: u32| if status >> bit & 1 != 0 { "up" } else { "down" };
            put!(cx, "\n\t      ifstatus {status}, adminstatus: {}, operstatus: {}", state(0), state(1));
            print_numbers(cx, GENERIC, value.skip(24))
        }
        2 => print_numbers(cx, ETHERNET, value),
        4 => print_numbers(cx, BASE_VG, value),
        5 => print_numbers(cx, VLAN, value),
        1001 => print_numbers(cx, PROCESSOR, value),
        _ => Ok(true),
    }
}
