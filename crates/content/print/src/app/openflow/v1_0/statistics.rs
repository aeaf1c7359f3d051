//! Statistics of OpenFlow 1.0: requests, and replies with an entry for each flow, table, port or queue.

use super::super::{
    Fields, INVALID_4, Invalid, Otherwise, PartResult, bits, put_bitmap, put_bits_of, put_name, settle,
};
use super::tables::{QUEUES, REPLY_FLAGS, STATISTICS, TABLES, WILDCARD_BITS, WILDCARDS};
use super::{actions, matching, put_port, vendor_data};
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};

use crate::text::Text;

pub(super) fn statistics_request(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
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

pub(super) fn statistics_reply(cx: &mut Context<'_>, span: Span<'_>) -> PartResult {
    let mut fields = Fields::new(span);
    let kind = fields.u16()?;
    cx.text("\n\t type ");
    put_name(cx, STATISTICS, kind, INVALID_4);
    let flags = fields.u16()?;
    put!(cx, ", flags 0x{flags:04x}");
    put_bitmap(cx, REPLY_FLAGS, u32::from(flags), bits(REPLY_FLAGS));
    let (entry, size, repeats): (fn(&mut Context<'_>, &mut Fields<'_>) -> PartResult, usize, bool) =
        match kind {
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

fn description(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> PartResult {
    for (name, count) in
        [("mfr_desc", 256), ("hw_desc", 256), ("sw_desc", 256), ("serial_num", 32), ("dp_desc", 256)]
    {
        cx.text("\n\t  ");
        fields.quoted(cx, name, count)?;
    }
    Ok(())
}

fn aggregate(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> PartResult {
    fields.put_u64(cx, "\n\t packet_count")?;
    fields.put_u64(cx, ", byte_count")?;
    fields.put_u32(cx, ", flow_count")?;
    fields.padding(4)
}

fn table_statistics(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> PartResult {
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

fn port_statistics(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> PartResult {
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

fn queue_statistics(cx: &mut Context<'_>, fields: &mut Fields<'_>) -> PartResult {
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
