//! Actions of OpenFlow 1.0: type 2, length 2 in multiples of 8, and the fields of the type.

use super::super::{Fields, INVALID_4, Invalid, Otherwise, PartResult, data, put_name, settle, vendor_name};
use super::tables::{ACTIONS, BIG_SWITCH_ACTIONS, PORTS, QUEUES};
use super::{BIG_SWITCH, put_port, put_priority, put_vlan};
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::link::ethernet::print_tag;
use crate::text::Text;

/// Prints actions; each is skipped as long as its length makes sense.
pub(super) fn actions(cx: &mut Context<'_>, span: Span<'_>, before: &str) -> PartResult {
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

fn action(cx: &mut Context<'_>, kind: u16, body: Span<'_>) -> PartResult {
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

fn big_switch_action(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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
