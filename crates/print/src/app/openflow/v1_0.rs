//! OpenFlow 1.0.
//!
//! ```text
//! port 48:    number 2 | address 6 | name 16 | config 4 | state 4 | current 4 | advertised 4 | supported 4 | peer's 4
//! match 40:   wildcards 4 | port 2 | source 6 | destination 6 | VLAN 2 | priority 1 | 0 1 | type 2 | TOS 1 | protocol 1
//!             | 0 2 | source 4 | destination 4 | source port 2 | destination port 2
//! action:     type 2 | length 2, a multiple of 8 | by type
//! ```

use super::{
    Fields, INVALID_2, INVALID_4, Invalid, Length, Message, Otherwise, Part, bits, data, frame, put_bitmap,
    put_bits_of, put_error, put_name, put_word, settle, vendor_name,
};
use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::link::ethernet::print_tag;
use crate::text::Text;

const PORT_CONFIG: &[(u32, &str)] = &[
    (1, "PORT_DOWN"),
    (2, "NO_STP"),
    (4, "NO_RECV"),
    (8, "NO_RECV_STP"),
    (0x10, "NO_FLOOD"),
    (0x20, "NO_FWD"),
    (0x40, "NO_PACKET_IN"),
];
const SPANNING_TREE: &[(u32, &str)] =
    &[(0, "STP_LISTEN"), (0x100, "STP_LEARN"), (0x200, "STP_FORWARD"), (0x300, "STP_BLOCK")];
const PORTS: &[(u32, &str)] = &[
    (0xff00, "MAX"),
    (0xfff8, "IN_PORT"),
    (0xfff9, "TABLE"),
    (0xfffa, "NORMAL"),
    (0xfffb, "FLOOD"),
    (0xfffc, "ALL"),
    (0xfffd, "CONTROLLER"),
    (0xfffe, "LOCAL"),
    (0xffff, "NONE"),
];
const PORT_FEATURES: &[(u32, &str)] = &[
    (1, "10MB_HD"),
    (2, "10MB_FD"),
    (4, "100MB_HD"),
    (8, "100MB_FD"),
    (0x10, "1GB_HD"),
    (0x20, "1GB_FD"),
    (0x40, "10GB_FD"),
    (0x80, "COPPER"),
    (0x100, "FIBER"),
    (0x200, "AUTONEG"),
    (0x400, "PAUSE"),
    (0x800, "PAUSE_ASYM"),
];
const PROPERTIES: &[(u32, &str)] = &[(0, "NONE"), (1, "MIN_RATE")];
const WILDCARDS: &[(u32, &str)] = &[
    (1, "IN_PORT"),
    (2, "DL_VLAN"),
    (4, "DL_SRC"),
    (8, "DL_DST"),
    (0x10, "DL_TYPE"),
    (0x20, "NW_PROTO"),
    (0x40, "TP_SRC"),
    (0x80, "TP_DST"),
    (0x100000, "DL_VLAN_PCP"),
    (0x200000, "NW_TOS"),
];
const ACTIONS: &[(u32, &str)] = &[
    (0, "OUTPUT"),
    (1, "SET_VLAN_VID"),
    (2, "SET_VLAN_PCP"),
    (3, "STRIP_VLAN"),
    (4, "SET_DL_SRC"),
    (5, "SET_DL_DST"),
    (6, "SET_NW_SRC"),
    (7, "SET_NW_DST"),
    (8, "SET_NW_TOS"),
    (9, "SET_TP_SRC"),
    (0xa, "SET_TP_DST"),
    (0xb, "ENQUEUE"),
    (0xffff, "VENDOR"),
];
const ACTION_BITS: &[(u32, &str)] = &[
    (1, "OUTPUT"),
    (2, "SET_VLAN_VID"),
    (4, "SET_VLAN_PCP"),
    (8, "STRIP_VLAN"),
    (0x10, "SET_DL_SRC"),
    (0x20, "SET_DL_DST"),
    (0x40, "SET_NW_SRC"),
    (0x80, "SET_NW_DST"),
    (0x100, "SET_NW_TOS"),
    (0x200, "SET_TP_SRC"),
    (0x400, "SET_TP_DST"),
    (0x800, "ENQUEUE"),
];
const CAPABILITIES: &[(u32, &str)] = &[
    (1, "FLOW_STATS"),
    (2, "TABLE_STATS"),
    (4, "PORT_STATS"),
    (8, "STP"),
    (0x10, "RESERVED"),
    (0x20, "IP_REASM"),
    (0x40, "QUEUE_STATS"),
    (0x80, "ARP_MATCH_IP"),
];
const FRAGMENTS: &[(u32, &str)] = &[(0, "FRAG_NORMAL"), (1, "FRAG_DROP"), (2, "FRAG_REASM")];
const COMMANDS: &[(u32, &str)] =
    &[(0, "ADD"), (1, "MODIFY"), (2, "MODIFY_STRICT"), (3, "DELETE"), (4, "DELETE_STRICT")];
const BUFFERS: &[(u32, &str)] = &[(0xffffffff, "NONE")];
const FLOW_FLAGS: &[(u32, &str)] = &[(1, "SEND_FLOW_REM"), (2, "CHECK_OVERLAP"), (4, "EMERG")];
const STATISTICS: &[(u32, &str)] = &[
    (0, "DESC"),
    (1, "FLOW"),
    (2, "AGGREGATE"),
    (3, "TABLE"),
    (4, "PORT"),
    (5, "QUEUE"),
    (0xffff, "VENDOR"),
];
const TABLES: &[(u32, &str)] = &[(0xfe, "EMERG"), (0xff, "ALL")];
const QUEUES: &[(u32, &str)] = &[(0xffffffff, "ALL")];
const REPLY_FLAGS: &[(u32, &str)] = &[(1, "MORE")];
const PACKET_REASONS: &[(u32, &str)] = &[(0, "NO_MATCH"), (1, "ACTION")];
const REMOVAL_REASONS: &[(u32, &str)] = &[(0, "IDLE_TIMEOUT"), (1, "HARD_TIMEOUT"), (2, "DELETE")];
const PORT_REASONS: &[(u32, &str)] = &[(0, "ADD"), (1, "DELETE"), (2, "MODIFY")];
const ERRORS: &[(u32, &str)] = &[
    (0, "HELLO_FAILED"),
    (1, "BAD_REQUEST"),
    (2, "BAD_ACTION"),
    (3, "FLOW_MOD_FAILED"),
    (4, "PORT_MOD_FAILED"),
    (5, "QUEUE_OP_FAILED"),
];
const HELLO_FAILED: &[(u32, &str)] = &[(0, "INCOMPATIBLE"), (1, "EPERM")];
const BAD_REQUEST: &[(u32, &str)] = &[
    (0, "BAD_VERSION"),
    (1, "BAD_TYPE"),
    (2, "BAD_STAT"),
    (3, "BAD_VENDOR"),
    (4, "BAD_SUBTYPE"),
    (5, "EPERM"),
    (6, "BAD_LEN"),
    (7, "BUFFER_EMPTY"),
    (8, "BUFFER_UNKNOWN"),
];
const BAD_ACTION: &[(u32, &str)] = &[
    (0, "BAD_TYPE"),
    (1, "BAD_LEN"),
    (2, "BAD_VENDOR"),
    (3, "BAD_VENDOR_TYPE"),
    (4, "BAD_OUT_PORT"),
    (5, "BAD_ARGUMENT"),
    (6, "EPERM"),
    (7, "TOO_MANY"),
    (8, "BAD_QUEUE"),
];
const FLOW_MOD_FAILED: &[(u32, &str)] = &[
    (0, "ALL_TABLES_FULL"),
    (1, "OVERLAP"),
    (2, "EPERM"),
    (3, "BAD_EMERG_TIMEOUT"),
    (4, "BAD_COMMAND"),
    (5, "UNSUPPORTED"),
];
const PORT_MOD_FAILED: &[(u32, &str)] = &[(0, "BAD_PORT"), (1, "BAD_HW_ADDR")];
const QUEUE_OP_FAILED: &[(u32, &str)] = &[(0, "BAD_PORT"), (1, "BAD_QUEUE"), (2, "EPERM")];
const BIG_SWITCH_MESSAGES: &[(u32, &str)] = &[
    (0, "SET_IP_MASK"),
    (1, "GET_IP_MASK_REQUEST"),
    (2, "GET_IP_MASK_REPLY"),
    (3, "SET_MIRRORING"),
    (4, "GET_MIRRORING_REQUEST"),
    (5, "GET_MIRRORING_REPLY"),
    (6, "SHELL_COMMAND"),
    (7, "SHELL_OUTPUT"),
    (8, "SHELL_STATUS"),
    (9, "GET_INTERFACES_REQUEST"),
    (0xa, "GET_INTERFACES_REPLY"),
    (0xb, "SET_PKTIN_SUPPRESSION_REQUEST"),
    (0xc, "SET_L2_TABLE_REQUEST"),
    (0xd, "GET_L2_TABLE_REQUEST"),
    (0xe, "GET_L2_TABLE_REPLY"),
    (0xf, "VIRTUAL_PORT_CREATE_REQUEST"),
    (0x10, "VIRTUAL_PORT_CREATE_REPLY"),
    (0x11, "VIRTUAL_PORT_REMOVE_REQUEST"),
    (0x12, "BW_ENABLE_SET_REQUEST"),
    (0x13, "BW_ENABLE_GET_REQUEST"),
    (0x14, "BW_ENABLE_GET_REPLY"),
    (0x15, "BW_CLEAR_DATA_REQUEST"),
    (0x16, "BW_CLEAR_DATA_REPLY"),
    (0x17, "BW_ENABLE_SET_REPLY"),
    (0x18, "SET_L2_TABLE_REPLY"),
    (0x19, "SET_PKTIN_SUPPRESSION_REPLY"),
    (0x1a, "VIRTUAL_PORT_REMOVE_REPLY"),
    (0x1b, "HYBRID_GET_REQUEST"),
    (0x1c, "HYBRID_GET_REPLY"),
    (0x1f, "PDU_TX_REQUEST"),
    (0x20, "PDU_TX_REPLY"),
    (0x21, "PDU_RX_REQUEST"),
    (0x22, "PDU_RX_REPLY"),
    (0x23, "PDU_RX_TIMEOUT"),
];
const BIG_SWITCH_ACTIONS: &[(u32, &str)] = &[(1, "MIRROR"), (2, "SET_TUNNEL_DST"), (4, "CHECKSUM")];

/// Bits that have a meaning, where the tables do not name them all.
const SPANNING_TREE_BITS: u32 = 0x300;
const LINK_DOWN: u32 = 1;
const WILDCARD_BITS: u32 = 0x3f_ffff;
const CAPABILITY_BITS: u32 = 0xef;

const BIG_SWITCH: u32 = 0x5c_16c7;

const PORT_LEN: usize = 48;

/// The names of an error's codes, by its type.
const CODES: [&[(u32, &str)]; 6] =
    [HELLO_FAILED, BAD_REQUEST, BAD_ACTION, FLOW_MOD_FAILED, PORT_MOD_FAILED, QUEUE_OP_FAILED];

use Length::{AtLeast, Exactly};

pub(super) static MESSAGES: [Message; 22] = [
    Message { name: "HELLO", length: AtLeast(0), print: Some(data) },
    Message { name: "ERROR", length: AtLeast(4), print: Some(error) },
    Message { name: "ECHO_REQUEST", length: AtLeast(0), print: Some(data) },
    Message { name: "ECHO_REPLY", length: AtLeast(0), print: Some(data) },
    Message { name: "VENDOR", length: AtLeast(4), print: Some(vendor_message) },
    Message { name: "FEATURES_REQUEST", length: Exactly(0), print: None },
    Message { name: "FEATURES_REPLY", length: AtLeast(24), print: Some(features) },
    Message { name: "GET_CONFIG_REQUEST", length: Exactly(0), print: None },
    Message { name: "GET_CONFIG_REPLY", length: Exactly(4), print: Some(switch_config) },
    Message { name: "SET_CONFIG", length: Exactly(4), print: Some(switch_config) },
    Message { name: "PACKET_IN", length: AtLeast(10), print: Some(packet_in) },
    Message { name: "FLOW_REMOVED", length: Exactly(80), print: Some(flow_removed) },
    Message { name: "PORT_STATUS", length: Exactly(56), print: Some(port_status) },
    Message { name: "PACKET_OUT", length: AtLeast(8), print: Some(packet_out) },
    Message { name: "FLOW_MOD", length: AtLeast(64), print: Some(flow_mod) },
    Message { name: "PORT_MOD", length: Exactly(24), print: Some(port_mod) },
    Message { name: "STATS_REQUEST", length: AtLeast(4), print: Some(statistics_request) },
    Message { name: "STATS_REPLY", length: AtLeast(4), print: Some(statistics_reply) },
    Message { name: "BARRIER_REQUEST", length: Exactly(0), print: None },
    Message { name: "BARRIER_REPLY", length: Exactly(0), print: None },
    Message { name: "QUEUE_GET_CONFIG_REQUEST", length: Exactly(4), print: Some(queue_request) },
    Message { name: "QUEUE_GET_CONFIG_REPLY", length: AtLeast(8), print: Some(queue_reply) },
];

fn put_vlan(cx: &mut Context<'_>, vlan: u16) {
    match vlan {
        0xffff => cx.text("NONE"),
        1..0x0fff => put!(cx, "{vlan}"),
        _ => put!(cx, "{vlan} (bogus)"),
    }
}

fn put_priority(cx: &mut Context<'_>, priority: u8) {
    put!(cx, "{priority}{}", if priority > 7 { " (bogus)" } else { "" });
}

/// `name PORT`.
fn put_port(cx: &mut Context<'_>, fields: &mut Fields<'_>, name: &str) -> Part {
    let port = fields.u16()?;
    cx.text(name);
    put_name(cx, PORTS, port, Otherwise::Decimal);
    Ok(())
}

fn port(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> Part {
    put_port(cx, fields, "\n\t  port_no ")?;
    fields.mac(cx, ", hw_addr ")?;
    fields.quoted(cx, ", name", 16)?;
    if cx.verbose() < 2 {
        return fields.padding(24);
    }
    put_word(cx, fields, "\n\t   config", PORT_CONFIG)?;
    let state = fields.u32()?;
    let tree = lookup(SPANNING_TREE, state & SPANNING_TREE_BITS).unwrap_or("");
    put!(cx, "\n\t   state 0x{state:08x} ({tree}");
    cx.text(if state & LINK_DOWN != 0 { ", LINK_DOWN)" } else { ")" });
    cx.text(if state & !(SPANNING_TREE_BITS | LINK_DOWN) != 0 { " (bogus)" } else { "" });
    for name in ["\n\t   curr", "\n\t   advertised", "\n\t   supported", "\n\t   peer"] {
        put_word(cx, fields, name, PORT_FEATURES)?;
    }
    Ok(())
}

fn matching(cx: &mut Context<'_>, fields: &mut Fields<'_>, before: &str) -> Part {
    let wildcards = fields.u32()?;
    if wildcards & !WILDCARD_BITS != 0 {
        put!(cx, "{before}wildcards 0x{wildcards:08x} (bogus)");
    }
    let is_set = |bit: u32| wildcards >> bit & 1 == 0;
    let span = fields.rest;
    if is_set(0) {
        let port = span.u16(0)?;
        put!(cx, "{before}match in_port ");
        put_name(cx, PORTS, port, Otherwise::Decimal);
    }
    for (bit, name, at) in [(2, "dl_src", 2), (3, "dl_dst", 8)] {
        if is_set(bit) {
            let address = span.bytes(at, 6)?;
            put!(cx, "{before}match {name} ");
            cx.mac(address);
        }
    }
    if is_set(1) {
        let vlan = span.u16(14)?;
        put!(cx, "{before}match dl_vlan ");
        put_vlan(cx, vlan);
    }
    if is_set(20) {
        let priority = span.u8(16)?;
        put!(cx, "{before}match dl_vlan_pcp ");
        put_priority(cx, priority);
    }
    let kind = span.u16(18)?;
    if is_set(4) {
        put!(cx, "{before}match dl_type 0x{kind:04x}");
    }
    if is_set(21) {
        put!(cx, "{before}match nw_tos 0x{:02x}", span.u8(20)?);
    }
    let protocol = span.u8(21)?;
    let has_kind = |wanted: u16| is_set(4) && kind == wanted;
    if is_set(5) {
        let name = if has_kind(0x0806) { "arp_opcode" } else { "nw_proto" };
        put!(cx, "{before}match {name} {protocol}");
    }
    for (name, shift, at) in [("nw_src", 8, 24), ("nw_dst", 14, 28)] {
        let free = wildcards >> shift & 0x3f;
        if free < 32 {
            let address = span.array::<4>(at)?;
            put!(cx, "{before}match {name} ");
            cx.host(address.into());
            put!(cx, "/{}", 32 - free);
        }
    }
    let is_icmp = has_kind(0x0800) && is_set(5) && protocol == 1;
    for (bit, name, icmp_name, at) in [(6, "tp_src", "icmp_type", 32), (7, "tp_dst", "icmp_code", 34)] {
        if is_set(bit) {
            let name = if is_icmp { icmp_name } else { name };
            put!(cx, "{before}match {name} {}", span.u16(at)?);
        }
    }
    if !is_set(7) {
        span.need(36)?;
    }
    fields.pass(36);
    Ok(())
}

/// Prints actions; each is passed over as long as its length makes sense.
fn actions(cx: &mut Context<'_>, span: Span<'_>, before: &str) -> Part {
    let outcome = action_list(cx, span, before);
    settle(cx, outcome)
}

fn action_list<'p>(
    cx: &mut Context<'_>,
    span: Span<'p>,
    before: &str,
) -> Result<Result<(), Invalid<'p>>, Cut> {
    let mut fields = Fields::new(span);
    while fields.left() != 0 {
        if fields.left() < 8 {
            return Ok(Err(Invalid(fields.rest)));
        }
        let kind = fields.u16()?;
        put!(cx, "{before}action type ");
        put_name(cx, ACTIONS, kind, INVALID_4);
        let length = usize::from(fields.u16()?);
        put!(cx, ", len {length}");
        if length < 8 || length > fields.left() + 4 {
            return Ok(Err(Invalid(fields.rest)));
        }
        let fits = match kind {
            0x0..=0x3 | 0x6..=0xa => length == 8,
            0x4 | 0x5 | 0xb => length == 16,
            0xffff => length.is_multiple_of(8),
            _ => {
                fields.padding(length - 4)?;
                continue;
            }
        };
        if !fits {
            cx.text(" (bogus)");
            fields.padding(length - 4)?;
            continue;
        }
        let body = fields.rest.with_length(length - 4);
        action(cx, kind, body)?;
        fields.pass(length - 4);
    }
    Ok(Ok(()))
}

fn action(cx: &mut Context<'_>, kind: u16, body: Span<'_>) -> Part {
    let mut fields = Fields::new(body);
    match kind {
        0x0 => {
            let port = fields.u16()?;
            cx.text(", port ");
            put_name(cx, PORTS, port, Otherwise::Decimal);
            match port {
                0xfffd => fields.put_u16(cx, ", max_len"),
                _ => fields.padding(2),
            }
        }
        0x1 => {
            let vlan = fields.u16()?;
            cx.text(", vlan_vid ");
            put_vlan(cx, vlan);
            fields.padding(2)
        }
        0x2 => {
            let priority = fields.u8()?;
            cx.text(", vlan_pcp ");
            put_priority(cx, priority);
            fields.padding(3)
        }
        0x3 => fields.padding(4),
        0x4 | 0x5 => {
            fields.mac(cx, ", dl_addr ")?;
            fields.padding(6)
        }
        0x6 | 0x7 => fields.ipv4(cx, ", nw_addr "),
        0x8 => {
            put!(cx, ", nw_tos 0x{:02x}", fields.u8()?);
            fields.padding(3)
        }
        0x9 | 0xa => {
            fields.put_u16(cx, ", tp_port")?;
            fields.padding(2)
        }
        0xb => {
            put_port(cx, &mut fields, ", port ")?;
            fields.pass(6);
            let queue = fields.u32()?;
            cx.text(", queue_id ");
            put_name(cx, QUEUES, queue, Otherwise::Decimal);
            Ok(())
        }
        _ => {
            let vendor = fields.u32()?;
            put!(cx, ", vendor 0x{vendor:08x} ({})", vendor_name(vendor));
            match vendor {
                BIG_SWITCH => big_switch_action(cx, fields.rest),
                _ => data(cx, fields.rest),
            }
        }
    }
}

fn big_switch_action(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    if span.length < 4 {
        return settle(cx, Ok(Err(Invalid(span))));
    }
    let mut fields = Fields::new(span);
    let kind = fields.u32()?;
    cx.text("\n\t  subtype ");
    put_name(cx, BIG_SWITCH_ACTIONS, kind, Otherwise::Word("unknown", 8));
    if kind != 1 {
        return fields.rest.need(fields.left());
    }
    if fields.left() != 12 {
        return settle(cx, Ok(Err(Invalid(fields.rest))));
    }
    fields.put_u32(cx, ", dest_port")?;
    let tag = fields.u32()?;
    match tag >> 16 {
        0 => cx.text(", vlan_tag none"),
        0x8100 => {
            cx.text(", vlan_tag 802.1Q (");
            print_tag(cx, tag as u16);
            cx.text(")");
        }
        other => put!(cx, ", vlan_tag unknown (0x{other:04x})"),
    }
    match fields.u8()? {
        0 => cx.text(", copy_stage INGRESS"),
        1 => cx.text(", copy_stage EGRESS"),
        other => put!(cx, ", copy_stage unknown ({other})"),
    }
    fields.padding(3)
}

fn vendor_message(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    let vendor = fields.u32()?;
    put!(cx, ", vendor 0x{vendor:08x} ({})", vendor_name(vendor));
    match vendor {
        BIG_SWITCH => {
            let outcome = big_switch_message(cx, fields.rest);
            settle(cx, outcome)
        }
        _ => data(cx, fields.rest),
    }
}

fn big_switch_message<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Result<(), Invalid<'p>>, Cut> {
    if span.length < 4 {
        return Ok(Err(Invalid(span)));
    }
    let mut fields = Fields::new(span);
    let kind = fields.u32()?;
    cx.text("\n\t subtype ");
    put_name(cx, BIG_SWITCH_MESSAGES, kind, Otherwise::Word("unknown", 8));
    let expected = match kind {
        0..=2 => Some(8),
        3..=5 | 8 | 17 => Some(4),
        9 | 13 | 19 | 21 | 27 => Some(0),
        _ => None,
    };
    if expected.is_some_and(|expected| fields.left() != expected) || kind == 6 && fields.left() < 4 {
        return Ok(Err(Invalid(fields.rest)));
    }
    match kind {
        0..=2 => {
            put!(cx, ", index {}", fields.u8()?);
            if kind == 1 {
                fields.padding(7)?;
            } else {
                fields.pass(3);
                fields.ipv4(cx, ", mask ")?;
            }
        }
        3..=5 => {
            match fields.u8()? {
                0 => cx.text(", report_mirror_ports OFF"),
                1 => cx.text(", report_mirror_ports ON"),
                other => put!(cx, ", report_mirror_ports bogus ({other})"),
            }
            fields.padding(3)?;
        }
        6 | 7 => {
            if kind == 6 {
                fields.put_u32(cx, ", service")?;
            }
            cx.text(", data '");
            cx.characters(fields.rest, fields.left(), false)?;
            cx.text("'");
        }
        8 => put!(cx, ", status 0x{:08x}", fields.u32()?),
        17 => fields.put_u32(cx, ", vport_no")?,
        _ => fields.rest.need(fields.left())?,
    }
    Ok(Ok(()))
}

/// A vendor and data of its own, in statistics.
fn vendor_data(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    if span.length < 4 {
        return settle(cx, Ok(Err(Invalid(span))));
    }
    let vendor = span.u32(0)?;
    put!(cx, ", vendor 0x{vendor:08x} ({})", vendor_name(vendor));
    data(cx, span.skip(4))
}

fn error(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    put_error(cx, span, ERRORS, &CODES)
}

fn features(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    put!(cx, "\n\t dpid 0x{:016x}", fields.u64()?);
    fields.put_u32(cx, ", n_buffers")?;
    put!(cx, ", n_tables {}", fields.u8()?);
    fields.pass(3);
    put_bits_of(cx, &mut fields, "\n\t capabilities", CAPABILITIES, CAPABILITY_BITS)?;
    put_word(cx, &mut fields, "\n\t actions", ACTION_BITS)?;
    while fields.left() != 0 {
        if fields.left() < PORT_LEN {
            return settle(cx, Ok(Err(Invalid(fields.rest))));
        }
        port(cx, &mut Fields::new(fields.rest))?;
        fields.pass(PORT_LEN);
    }
    Ok(())
}

fn switch_config(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    let flags = fields.u16()?;
    cx.text("\n\t flags ");
    put_name(cx, FRAGMENTS, flags, INVALID_4);
    fields.put_u16(cx, ", miss_send_len")
}

fn packet_in(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    let buffer = fields.u32()?;
    cx.text("\n\t buffer_id ");
    put_name(cx, BUFFERS, buffer, Otherwise::Hex(8));
    fields.put_u16(cx, ", total_len")?;
    put_port(cx, &mut fields, ", in_port ")?;
    let reason = fields.u8()?;
    cx.text(", reason ");
    put_name(cx, PACKET_REASONS, reason, INVALID_2);
    fields.padding(1)?;
    frame(cx, fields.rest)
}

fn packet_out(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    put!(cx, "\n\t buffer_id 0x{:08x}", fields.u32()?);
    put_port(cx, &mut fields, ", in_port ")?;
    let length = usize::from(fields.u16()?);
    if length > fields.left() {
        return settle(cx, Ok(Err(Invalid(fields.rest))));
    }
    actions(cx, fields.rest.with_length(length), "\n\t ")?;
    fields.pass(length);
    frame(cx, fields.rest)
}

/// `name N`, unless it is 0.
fn put_if_set(cx: &mut Context<'_>, fields: &mut Fields<'_>, name: &str) -> Part {
    match fields.u16()? {
        0 => {}
        value => put!(cx, ", {name} {value}"),
    }
    Ok(())
}

fn flow_mod(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    matching(cx, &mut fields, "\n\t ")?;
    put!(cx, "\n\t cookie 0x{:016x}", fields.u64()?);
    let command = fields.u16()?;
    cx.text(", command ");
    put_name(cx, COMMANDS, command, INVALID_4);
    put_if_set(cx, &mut fields, "idle_timeout")?;
    put_if_set(cx, &mut fields, "hard_timeout")?;
    put_if_set(cx, &mut fields, "priority")?;
    if command <= 2 {
        let buffer = fields.rest.u32(0)?;
        cx.text(", buffer_id ");
        put_name(cx, BUFFERS, buffer, Otherwise::Hex(8));
    }
    fields.pass(4);
    if matches!(command, 3 | 4) {
        put_port(cx, &mut Fields::new(fields.rest), ", out_port ")?;
    }
    fields.pass(2);
    let flags = fields.u16()?;
    put!(cx, ", flags 0x{flags:04x}");
    put_bitmap(cx, FLOW_FLAGS, u32::from(flags), bits(FLOW_FLAGS));
    actions(cx, fields.rest, "\n\t ")
}

fn flow_removed(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    matching(cx, &mut fields, "\n\t ")?;
    put!(cx, "\n\t cookie 0x{:016x}", fields.u64()?);
    put_if_set(cx, &mut fields, "priority")?;
    let reason = fields.u8()?;
    cx.text(", reason ");
    put_name(cx, REMOVAL_REASONS, reason, Otherwise::Word("unknown", 2));
    fields.pass(1);
    fields.put_u32(cx, ", duration_sec")?;
    fields.put_u32(cx, ", duration_nsec")?;
    put_if_set(cx, &mut fields, "idle_timeout")?;
    fields.pass(2);
    fields.put_u64(cx, ", packet_count")?;
    fields.put_u64(cx, ", byte_count")
}

fn port_status(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    let reason = fields.u8()?;
    cx.text("\n\t reason ");
    put_name(cx, PORT_REASONS, reason, INVALID_2);
    fields.pass(7);
    port(cx, &mut fields)
}

fn port_mod(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    put_port(cx, &mut fields, "\n\t port_no ")?;
    fields.mac(cx, ", hw_addr ")?;
    put_word(cx, &mut fields, "\n\t config", PORT_CONFIG)?;
    put_word(cx, &mut fields, "\n\t mask", PORT_CONFIG)?;
    put_word(cx, &mut fields, "\n\t advertise", PORT_FEATURES)?;
    fields.padding(4)
}

fn queue_request(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    put_port(cx, &mut fields, "\n\t port ")?;
    fields.padding(2)
}

fn queue_reply(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    put_port(cx, &mut fields, "\n\t port ")?;
    fields.padding(6)?;
    while fields.left() != 0 {
        if fields.left() < 8 {
            return settle(cx, Ok(Err(Invalid(fields.rest))));
        }
        fields.put_u32(cx, "\n\t  queue_id")?;
        let length = usize::from(fields.u16()?);
        put!(cx, ", len {length}");
        if length < 8 || length > fields.left() + 6 {
            return settle(cx, Ok(Err(Invalid(fields.rest))));
        }
        fields.padding(2)?;
        let properties = fields.rest.with_length(length - 8);
        if cx.verbose() >= 2 {
            let outcome = queue_properties(cx, properties);
            settle(cx, outcome)?;
        } else {
            properties.need(length - 8)?;
        }
        fields.pass(length - 8);
    }
    Ok(())
}

fn queue_properties<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Result<(), Invalid<'p>>, Cut> {
    let mut fields = Fields::new(span);
    while fields.left() != 0 {
        if fields.left() < 8 {
            return Ok(Err(Invalid(fields.rest)));
        }
        let property = fields.u16()?;
        cx.text("\n\t   property ");
        put_name(cx, PROPERTIES, property, INVALID_4);
        let length = usize::from(fields.u16()?);
        put!(cx, ", len {length}");
        if length < 8 || length > fields.left() + 4 {
            return Ok(Err(Invalid(fields.rest)));
        }
        fields.padding(4)?;
        match (property, length) {
            (0, 8) => {}
            (1, 16) => {
                match fields.u16()? {
                    1001.. => cx.text(", rate disabled"),
                    rate => put!(cx, ", rate {}.{}%", rate / 10, rate % 10),
                }
                fields.padding(6)?;
            }
            _ => {
                cx.text(if property <= 1 { " (bogus)" } else { "" });
                fields.padding(length - 8)?;
            }
        }
    }
    Ok(Ok(()))
}

fn statistics_request(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    let kind = fields.u16()?;
    cx.text("\n\t type ");
    put_name(cx, STATISTICS, kind, INVALID_4);
    let flags = fields.u16()?;
    put!(cx, ", flags 0x{flags:04x}{}", if flags != 0 { " (bogus)" } else { "" });
    let expected = match kind {
        0 | 3 => 0,
        1 | 2 => 44,
        4 | 5 => 8,
        0xffff => return vendor_data(cx, fields.rest),
        _ => return Ok(()),
    };
    if fields.left() != expected {
        return settle(cx, Ok(Err(Invalid(fields.rest))));
    }
    match kind {
        1 | 2 => {
            matching(cx, &mut fields, "\n\t ")?;
            let table = fields.u8()?;
            cx.text("\n\t table_id ");
            put_name(cx, TABLES, table, Otherwise::Decimal);
            fields.pass(1);
            put_port(cx, &mut fields, ", out_port ")
        }
        4 => {
            put_port(cx, &mut fields, "\n\t port_no ")?;
            fields.padding(6)
        }
        5 => {
            put_port(cx, &mut fields, "\n\t port_no ")?;
            fields.pass(2);
            let queue = fields.u32()?;
            cx.text(", queue_id ");
            put_name(cx, QUEUES, queue, Otherwise::Decimal);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn statistics_reply(cx: &mut Context<'_>, span: Span<'_>) -> Part {
    let mut fields = Fields::new(span);
    let kind = fields.u16()?;
    cx.text("\n\t type ");
    put_name(cx, STATISTICS, kind, INVALID_4);
    let flags = fields.u16()?;
    put!(cx, ", flags 0x{flags:04x}");
    put_bitmap(cx, REPLY_FLAGS, u32::from(flags), bits(REPLY_FLAGS));
    let (entry, size, repeats): (fn(&mut Context<'_>, &mut Fields<'_>) -> Part, usize, bool) = match kind {
        0 => (description, 1056, false),
        1 => {
            let outcome = flow_statistics(cx, fields.rest);
            return settle(cx, outcome);
        }
        2 => (aggregate, 24, false),
        3 => (table_statistics, 64, true),
        4 => (port_statistics, 104, true),
        5 => (queue_statistics, 32, true),
        0xffff => return vendor_data(cx, fields.rest),
        _ => return fields.rest.need(fields.left()),
    };
    if !repeats && fields.left() != size {
        return settle(cx, Ok(Err(Invalid(fields.rest))));
    }
    while fields.left() != 0 {
        if fields.left() < size {
            return settle(cx, Ok(Err(Invalid(fields.rest))));
        }
        entry(cx, &mut fields)?;
    }
    Ok(())
}

fn description(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> Part {
    for (name, count) in
        [("mfr_desc", 256), ("hw_desc", 256), ("sw_desc", 256), ("serial_num", 32), ("dp_desc", 256)]
    {
        cx.text("\n\t  ");
        fields.quoted(cx, name, count)?;
    }
    Ok(())
}

fn aggregate(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> Part {
    fields.put_u64(cx, "\n\t packet_count")?;
    fields.put_u64(cx, ", byte_count")?;
    fields.put_u32(cx, ", flow_count")?;
    fields.padding(4)
}

fn table_statistics(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> Part {
    let table = fields.u8()?;
    cx.text("\n\t table_id ");
    put_name(cx, TABLES, table, Otherwise::Decimal);
    fields.pass(3);
    fields.quoted(cx, ", name", 32)?;
    put_bits_of(cx, fields, "\n\t  wildcards", WILDCARDS, WILDCARD_BITS)?;
    fields.put_u32(cx, "\n\t  max_entries")?;
    fields.put_u32(cx, ", active_count")?;
    fields.put_u64(cx, ", lookup_count")?;
    fields.put_u64(cx, ", matched_count")
}

fn port_statistics(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> Part {
    put_port(cx, fields, "\n\t  port_no ")?;
    if cx.verbose() < 2 {
        return fields.padding(102);
    }
    fields.pass(6);
    for name in [
        ", rx_packets",
        ", tx_packets",
        ", rx_bytes",
        ", tx_bytes",
        ", rx_dropped",
        ", tx_dropped",
        ", rx_errors",
        ", tx_errors",
        ", rx_frame_err",
        ", rx_over_err",
        ", rx_crc_err",
        ", collisions",
    ] {
        fields.put_u64(cx, name)?;
    }
    Ok(())
}

fn queue_statistics(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> Part {
    put_port(cx, fields, "\n\t  port_no ")?;
    fields.pass(2);
    fields.put_u32(cx, ", queue_id")?;
    for name in [", tx_bytes", ", tx_packets", ", tx_errors"] {
        fields.put_u64(cx, name)?;
    }
    Ok(())
}

fn flow_statistics<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Result<(), Invalid<'p>>, Cut> {
    const ENTRY_LEN: usize = 88;
    let mut rest = span;
    while rest.length != 0 {
        if rest.length < ENTRY_LEN {
            return Ok(Err(Invalid(rest)));
        }
        let length = usize::from(rest.u16(0)?);
        put!(cx, "\n\t length {length}");
        if length < ENTRY_LEN || length > rest.length {
            return Ok(Err(Invalid(rest)));
        }
        let mut fields = Fields::new(rest.skip(2));
        let table = fields.u8()?;
        cx.text(", table_id ");
        put_name(cx, TABLES, table, Otherwise::Decimal);
        fields.pass(1);
        matching(cx, &mut fields, "\n\t  ")?;
        fields.put_u32(cx, "\n\t  duration_sec")?;
        fields.put_u32(cx, ", duration_nsec")?;
        fields.put_u16(cx, ", priority")?;
        fields.put_u16(cx, ", idle_timeout")?;
        fields.put_u16(cx, ", hard_timeout")?;
        fields.pass(6);
        put!(cx, ", cookie 0x{:016x}", fields.u64()?);
        fields.put_u64(cx, ", packet_count")?;
        fields.put_u64(cx, ", byte_count")?;
        actions(cx, fields.rest.with_length(length - ENTRY_LEN), "\n\t  ")?;
        rest = rest.skip(length);
    }
    Ok(Ok(()))
}
