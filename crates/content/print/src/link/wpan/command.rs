//! MAC commands of IEEE 802.15.4 (section 7.5).

use super::{put_address, put_bytes, skip};
use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const COMMANDS: &[(u8, &str)] = &[
    (0x01, "Association Request command"),
    (0x02, "Association Response command"),
    (0x03, "Disassociation Notification command"),
    (0x04, "Data Request command"),
    (0x05, "PAN ID Conflict Notification command"),
    (0x06, "Orphan Notification command"),
    (0x07, "Beacon Request command"),
    (0x08, "Coordinator realignment command"),
    (0x09, "GTS request command"),
    (0x0a, "TRLE Management Request command"),
    (0x0b, "TRLE Management Response command"),
    (0x13, "DSME Association Request command"),
    (0x14, "DSME Association Response command"),
    (0x15, "DSME GTS Request command"),
    (0x16, "DSME GTS Response command"),
    (0x17, "DSME GTS Notify command"),
    (0x18, "DSME Information Request command"),
    (0x19, "DSME Information Response command"),
    (0x1a, "DSME Beacon Allocation Notification command"),
    (0x1b, "DSME Beacon Collision Notification command"),
    (0x1c, "DSME Link Report command"),
    (0x20, "RIT Data Request command"),
    (0x21, "DBS Request command"),
    (0x22, "DBS Response command"),
    (0x23, "RIT Data Response command"),
    (0x24, "Vendor Specific command"),
];

const CAPABILITIES: &[(u8, &str)] = &[
    (0x04, "AC powered, "),
    (0x08, "Receiver on when idle, "),
    (0x10, "Fast association, "),
    (0x40, "Security supported, "),
    (0x80, "Allocate address, "),
];

const STATUSES: &[(u8, &str)] = &[
    (0x00, "Association successful"),
    (0x01, "PAN at capacity"),
    (0x02, "PAN access denied"),
    (0x03, "Hooping sequence offset duplication"),
    (0x80, "Fast association successful"),
];

/// Prints a command. Returns the rest.
pub(super) fn print<'p>(cx: &mut Context<'_>, span: Span<'p>) -> Result<Option<Span<'p>>, Cut> {
    if span.length < 1 {
        cx.text("[ERROR: Truncated before Command ID]");
        return Ok(Some(span));
    }
    let command = span.u8(0)?;
    match lookup(COMMANDS, command) {
        Some(name) => put!(cx, "Command ID = {name} "),
        None => put!(cx, "Command ID = Reserved 0x{command:02x} "),
    }
    let data = skip(span, 1);
    let known = data.length != 0 && print_data(cx, command, data)?;
    Ok(Some(if known { skip(data, data.length) } else { data }))
}

/// Whether all of the data was shown.
fn print_data(cx: &mut Context<'_>, command: u8, data: Span<'_>) -> Result<bool, Cut> {
    let valid = match command {
        0x01 | 0x03 | 0x09 => data.length == 1,
        0x02 => data.length == 3,
        0x08 => matches!(data.length, 7 | 8),
        _ => true,
    };
    if !valid {
        let name = match command {
            0x01 => "Association request",
            0x02 => "Association response",
            0x03 => "Disassociation Notification",
            0x08 => "Coordinator Realignment",
            _ => "GTS Request",
        };
        put!(cx, "Invalid {name} command length");
        return Ok(false);
    }
    match command {
        0x01 => {
            let capabilities = data.u8(0)?;
            cx.text(if capabilities & 2 != 0 { "FFD, " } else { "RFD, " });
            let set = CAPABILITIES.iter().filter(|(bit, _)| capabilities & bit != 0);
            set.for_each(|(_, name)| cx.text(name));
        }
        0x02 => {
            cx.text("Short address = ");
            put_address(cx, data, 2)?;
            let status = data.u8(2)?;
            match lookup(STATUSES, status) {
                Some(name) => put!(cx, ", {name}"),
                None => put!(cx, ", Status = 0x{status:02x}"),
            }
        }
        0x03 => match data.u8(0)? {
            0 => cx.text("Reserved"),
            1 => cx.text("Reason = The coordinator wishes the device to leave PAN"),
            2 => cx.text("Reason = The device wishes to leave the PAN"),
            // tcpdump shows the byte two behind the reason.
            _ => put!(cx, "Reason = 0x{:02x}", data.u8(2)?),
        },
        0x04..=0x07 => return Ok(false),
        0x08 => realignment(cx, data)?,
        0x09 => {
            let slot = data.u8(0)?;
            let direction = if slot & 0x10 != 0 { "Receive-only GTS" } else { "Transmit-only GTS" };
            let kind = if slot & 0x20 != 0 { "GTS allocation" } else { "GTS deallocations" };
            put!(cx, "GTS Length = {}, {direction}, {kind}", slot & 15);
        }
        _ => {
            cx.text("Command Data = ");
            put_bytes(cx, data, 0, data.length)?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn realignment(cx: &mut Context<'_>, data: Span<'_>) -> Result<(), Cut> {
    put!(cx, "Pan ID = 0x{:04x}, Coordinator short address = ", data.u16_le(0)?);
    put_address(cx, data.skip(2), 2)?;
    let channel = u16::from(data.u8(4)?);
    let page = if data.length == 8 { data.u8(7)? } else { 0x80 };
    if page & 0x80 != 0 {
        put!(cx, ", Channel Number = {}", channel | u16::from(page & 0x7f) << 8);
    } else {
        put!(cx, ", Channel Number = {channel}, page = {page}");
    }
    cx.text(", Short address = ");
    put_address(cx, data.skip(5), 2)
}
