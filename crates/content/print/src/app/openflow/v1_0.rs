//! OpenFlow 1.0.
//!
//! ```text
//! port 48:    number 2 | address 6 | name 16 | config 4 | state 4 | current 4 | advertised 4 | supported 4 | peer's 4
//! match 40:   wildcards 4 | port 2 | source 6 | destination 6 | VLAN 2 | priority 1 | 0 1 | type 2 | TOS 1 | protocol 1
//!             | 0 2 | source 4 | destination 4 | source port 2 | destination port 2
//! action:     type 2 | length 2, a multiple of 8 | by type
//! ```

mod action;
mod statistics;
mod tables;

use super::{
    Fields, INVALID_2, INVALID_4, Invalid, Length, Message, Otherwise, PartResult, bits, data, frame,
    put_bitmap, put_bits_of, put_error, put_name, put_word, settle, vendor_name,
};
use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;
use action::actions;
use statistics::{statistics_reply, statistics_request};
use tables::*;

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
fn put_port(cx: &mut Context<'_>, fields: &mut Fields<'_>, name: &str) -> PartResult {
    let port = fields.u16()?;
    cx.text(name);
    put_name(cx, PORTS, port, Otherwise::Decimal);
    Ok(())
}

fn port(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> PartResult {
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

fn matching(cx: &mut Context<'_>, fields: &mut Fields<'_>, before: &str) -> PartResult {
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

fn vendor_message(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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
fn vendor_data(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    if span.length < 4 {
        return settle(cx, Ok(Err(Invalid(span))));
    }
    let vendor = span.u32(0)?;
    put!(cx, ", vendor 0x{vendor:08x} ({})", vendor_name(vendor));
    data(cx, span.skip(4))
}

fn error(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    put_error(cx, span, ERRORS, &CODES)
}

fn features(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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

fn switch_config(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let flags = fields.u16()?;
    cx.text("\n\t flags ");
    put_name(cx, FRAGMENTS, flags, INVALID_4);
    fields.put_u16(cx, ", miss_send_len")
}

fn packet_in(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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

fn packet_out(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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
fn put_if_set(cx: &mut Context<'_>, fields: &mut Fields<'_>, name: &str) -> PartResult {
    match fields.u16()? {
        0 => {}
        value => put!(cx, ", {name} {value}"),
    }
    Ok(())
}

fn flow_mod(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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

fn flow_removed(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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

fn port_status(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let reason = fields.u8()?;
    cx.text("\n\t reason ");
    put_name(cx, PORT_REASONS, reason, INVALID_2);
    fields.pass(7);
    port(cx, &mut fields)
}

fn port_mod(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    put_port(cx, &mut fields, "\n\t port_no ")?;
    fields.mac(cx, ", hw_addr ")?;
    put_word(cx, &mut fields, "\n\t config", PORT_CONFIG)?;
    put_word(cx, &mut fields, "\n\t mask", PORT_CONFIG)?;
    put_word(cx, &mut fields, "\n\t advertise", PORT_FEATURES)?;
    fields.padding(4)
}

fn queue_request(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    put_port(cx, &mut fields, "\n\t port ")?;
    fields.padding(2)
}

fn queue_reply(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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
