//! Information elements of IEEE 802.15.4 (section 7.4).
//!
//! ```text
//! header:   length 7 bits, identifier 8, 0             a list ends in identifier 0x7e (payload elements follow) or 0x7f
//! payload:  length 11 bits, group 4, 1                 a list ends in group 15
//! nested:   length 8 bits, identifier 7, 0; or length 11, identifier 4, 1
//! ```

use super::{Broken, PartResult, broken, pending_addresses, put_bytes, skip, superframe};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER: &[(u16, &str)] = &[
    (0x00, "Vendor Specific Header IE"),
    (0x1a, "LE CSL IE"),
    (0x1b, "LE RIT IE"),
    (0x1c, "DSME PAN descriptor IE"),
    (0x1d, "Rendezvous Time IE"),
    (0x1e, "Time Correction IE"),
    (0x21, "Extended DSME PAN descriptor IE"),
    (0x22, "Fragment Sequence Context Description IE"),
    (0x23, "Simplified Superframe Specification IE"),
    (0x24, "Simplified GTS Specification IE"),
    (0x25, "LECIM Capabilities IE"),
    (0x26, "TRLE Descriptor IE"),
    (0x27, "RCC Capabilities IE"),
    (0x28, "RCCN Descriptor IE"),
    (0x29, "Global Time IE"),
    (0x2a, "Omnibus Header IE"),
    (0x2b, "DA IE"),
    (0x7e, "Header Termination 1 IE"),
    (0x7f, "Header Termination 2 IE"),
];

const GROUPS: &[(u16, &str)] = &[
    (0, "ESDU IE"),
    (1, "MLME IE"),
    (2, "Vendor Specific Nested IE"),
    (3, "Multiplexed IE (802.15.9)"),
    (4, "Omnibus Payload Group IE"),
    (5, "IETF IE"),
    (15, "List termination"),
];

const NESTED: &[(u16, &str)] = &[
    (0x1a, "TSCH Synchronization IE"),
    (0x1b, "TSCH Slotframe and Link IE"),
    (0x1c, "TSCH Timeslot IE"),
    (0x1d, "Hopping timing IE"),
    (0x1e, "Enhanced Beacon Filter IE"),
    (0x1f, "MAC Metrics IE"),
    (0x20, "All MAC Metrics IE"),
    (0x21, "Coexistence Specification IE"),
    (0x22, "SUN Device Capabilities IE"),
    (0x23, "SUN FSK Generic PHY IE"),
    (0x24, "Mode Switch Parameter IE"),
    (0x25, "PHY Parameter Change IE"),
    (0x26, "O-QPSK PHY Mode IE"),
    (0x27, "PCA Allocation IE"),
    (0x28, "LECIM DSSS Operating Mode IE"),
    (0x29, "LECIM FSK Operating Mode IE"),
    (0x2b, "TVWS PHY Operating Mode Description IE"),
    (0x2c, "TVWS Device Capabilities IE"),
    (0x2d, "TVWS Device Category IE"),
    (0x2e, "TVWS Device Identiication IE"),
    (0x2f, "TVWS Device Location IE"),
    (0x30, "TVWS Channel Information Query IE"),
    (0x31, "TVWS Channel Information Source IE"),
    (0x32, "CTM IE"),
    (0x33, "Timestamp IE"),
    (0x34, "Timestamp Difference IE"),
    (0x35, "TMCTP Specification IE"),
    (0x36, "RCC PHY Operating Mode IE"),
];

const NESTED_LONG: &[(u16, &str)] = &[(0x08, "Vendor Specific MLME Nested IE"), (0x09, "Channel Hopping IE")];

/// From this verbosity on the fields of elements are shown, below it their bytes.
const FIELDS: u8 = 4;

/// Prints the elements of the header; their bytes, and whether payload elements follow.
pub(super) fn header_list(cx: &mut Context<'_>, span: Span<'_>) -> PartResult<(usize, bool)> {
    let mut rest = span;
    loop {
        if rest.length < 2 {
            return broken(cx, "Truncated header IE");
        }
        let head = rest.u16_le(0)?;
        if head & 0x8000 != 0 {
            cx.text("[ERROR: Header IE with type 1] ");
        }
        let (length, identifier) = (usize::from(head & 0x7f), head >> 7 & 0xff);
        if identifier > 127 {
            put!(cx, "Reserved Element ID {identifier:02x}, length = {length} ");
        } else {
            put_name(cx, "\n\t", lookup(HEADER, identifier), identifier);
            open(cx, length);
        }
        if rest.length < 2 + length {
            return broken(cx, "Truncated IE data");
        }
        let content = skip(rest, 2).with_length(length);
        match (length, cx.verbose() >= FIELDS) {
            (0, _) => {}
            (_, true) => header(cx, content, identifier)?,
            (_, false) => put_data(cx, content)?,
        }
        cx.text("] ");
        rest = skip(rest, 2 + length);
        if matches!(identifier, 0x7e | 0x7f) || rest.length == 0 {
            return Ok(Ok((span.length - rest.length, identifier == 0x7e)));
        }
    }
}

/// Prints the elements of the payload; their bytes.
pub(super) fn payload_list(cx: &mut Context<'_>, span: Span<'_>) -> PartResult<usize> {
    let mut rest = span;
    loop {
        if rest.length < 2 {
            return broken(cx, "Truncated header IE");
        }
        let head = rest.u16_le(0)?;
        if head & 0x8000 == 0 {
            cx.text("[ERROR: Payload IE with type 0] ");
        }
        // tcpdump reads ten of the eleven bits.
        let (length, group) = (usize::from(head & 0x3ff), head >> 11 & 15);
        put_name(cx, "\n\t", lookup(GROUPS, group), group);
        open(cx, length);
        if rest.length < 2 + length {
            return broken(cx, "Truncated IE data");
        }
        let content = skip(rest, 2).with_length(length);
        if length != 0 {
            match (group, cx.verbose() >= FIELDS) {
                (1, true) => nested_list(cx, content)?,
                (2, true) => vendor(cx, content)?,
                (3, true) => multiplexed(cx, content)?,
                (5, true) => {
                    put!(cx, "Subtype ID = 0x{:02x}, Subtype content = ", content.u8(0)?);
                    put_bytes(cx, content, 1, length)?;
                }
                _ => put_data(cx, content)?,
            }
        }
        cx.text("]\n\t");
        rest = skip(rest, 2 + length);
        if group == 15 || rest.length == 0 {
            return Ok(Ok(span.length - rest.length));
        }
    }
}

fn put_name(cx: &mut Context<'_>, before: &str, name: Option<&str>, identifier: u16) {
    match name {
        Some(name) => put!(cx, "{before}{name}"),
        None => put!(cx, "{before}Reserved 0x{identifier:02x}"),
    }
}

fn open(cx: &mut Context<'_>, length: usize) {
    match length {
        0 => cx.text(" ["),
        length => put!(cx, " [ length = {length}, "),
    }
}

fn put_data(cx: &mut Context<'_>, content: Span<'_>) -> Printed {
    cx.text("IE Data = ");
    put_bytes(cx, content, 0, content.length)
}

fn error(cx: &mut Context<'_>, what: &str) -> Printed {
    put!(cx, "[ERROR: {what}]");
    Ok(())
}

fn vendor(cx: &mut Context<'_>, content: Span<'_>) -> Printed {
    if content.length < 3 {
        return error(cx, "Vendor OUI missing");
    }
    put!(cx, "OUI = 0x{:06x}, Data = ", content.u24(0)?);
    put_bytes(cx, content, 3, content.length)
}

fn header(cx: &mut Context<'_>, content: Span<'_>, identifier: u16) -> Printed {
    let length = content.length;
    match identifier {
        0x00 => vendor(cx, content),
        0x1a if length < 4 => error(cx, "Truncated CSL IE"),
        0x1a => {
            put!(cx, "CSL Phase = {}, CSL Period = {}", content.u16_le(0)?, content.u16_le(2)?);
            if length >= 6 {
                put!(cx, ", Rendezvous time = {}", content.u16_le(4)?);
            }
            if length != 4 && length != 6 {
                cx.text(" [ERROR: CSL IE length wrong]");
            }
            Ok(())
        }
        0x1b if length < 4 => error(cx, "Truncated RIT IE"),
        0x1b => {
            let (first, repeats, interval) = (content.u8(0)?, content.u8(1)?, content.u16_le(2)?);
            put!(cx, "Time to First Listen = {first}, # of Repeat Listen = {repeats}");
            put!(cx, ", Repeat Listen Interval = {interval}");
            Ok(())
        }
        0x1c | 0x21 => match descriptor(cx, content, identifier == 0x21)? {
            Ok(()) | Err(Broken) => Ok(()),
        },
        0x1d if length != 4 => error(cx, "Length != 2"),
        0x1d => {
            put!(cx, "Rendezvous time = {}, Wake-up Interval = {}", content.u16_le(0)?, content.u16_le(2)?);
            Ok(())
        }
        0x1e if length != 2 => error(cx, "Length != 2"),
        0x1e => {
            let value = content.u16_le(0)?;
            cx.text(if value & 0x8000 != 0 { "Negative " } else { "" });
            // Twelve bits with a sign.
            put!(cx, "Ack time correction = {}, ", (value << 4) as i16 >> 4);
            Ok(())
        }
        _ => put_data(cx, content),
    }
}

/// The DSME PAN descriptor (7.4.2.5) and its extension (7.4.2.6).
fn descriptor(cx: &mut Context<'_>, content: Span<'_>, extended: bool) -> PartResult<()> {
    let length = content.length;
    if length < 2 {
        return broken(cx, "Truncated DSME PAN IE");
    }
    superframe(cx, content.u16_le(0)?);
    if length < 3 {
        return broken(cx, "Truncated before pending addresses field");
    }
    let Some(len) = pending_addresses(cx, skip(content, 2))? else { return Ok(Err(Broken)) };
    let mut at = 2 + len;
    let (order, shift, size) = if extended { (0xff, 4, 2) } else { (0x0f, 0, 1) };
    if length < at + size {
        return broken(cx, "Truncated before DSME Superframe Specification");
    }
    let value = if extended { content.u16_le(at)? } else { u16::from(content.u8(at)?) };
    at += size;
    let bit = |mask: u16| value >> shift & mask != 0;
    put!(cx, "Multi-superframe Order = {}", value & order);
    cx.text(if bit(0x10) { ", Channel hopping mode" } else { ", Channel adaptation mode" });
    cx.text(if bit(0x40) { ", CAP reduction enabled" } else { "" });
    cx.text(if bit(0x80) { ", Deferred beacon enabled" } else { "" });
    let hopping = extended && bit(0x100);
    cx.text(if hopping { ", Hopping Sequence Present" } else { "" });
    if length < at + 8 {
        cx.text(" ");
        return broken(cx, "Truncated before Time synchronization specification");
    }
    let [a, b, c, d, e, f] = content.array(at)?;
    let stamp = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    put!(cx, "Beacon timestamp = {stamp}, offset = {}", content.u16_le(at + 6)?);
    at += 8;
    if length < at + 4 {
        cx.text(" ");
        return broken(cx, "Truncated before Beacon Bitmap");
    }
    let bitmap_len = usize::from(content.u16_le(at + 2)?);
    put!(cx, "SD Index = {}, Bitmap len = {bitmap_len}, ", content.u16_le(at)?);
    at += 4;
    if length < at + bitmap_len {
        cx.text(" ");
        return broken(cx, "Truncated in SD bitmap");
    }
    cx.text(" SD Bitmap = ");
    put_bytes(cx, content, at, at + bitmap_len)?;
    at += bitmap_len;
    hopping_specification(cx, content, at, hopping)
}

fn hopping_specification(
    cx: &mut Context<'_>,
    content: Span<'_>,
    mut at: usize,
    hopping: bool,
) -> PartResult<()> {
    let length = content.length;
    if length < at + 5 {
        cx.text(" ");
        return broken(cx, "Truncated before Channel hopping specification");
    }
    let bitmap_len = usize::from(content.u16_le(at + 4)?);
    let (sequence, coordinator, offset) = (content.u8(at)?, content.u8(at + 1)?, content.u16_le(at + 2)?);
    put!(cx, "Hopping Seq ID = {sequence}, PAN Coordinator BSN = {coordinator}, ");
    put!(cx, "Channel offset = {offset}, Bitmap length = {bitmap_len}, ");
    at += 5;
    if length < at + bitmap_len {
        cx.text(" ");
        return broken(cx, "Truncated in Channel offset bitmap");
    }
    cx.text(" Channel offset bitmap = ");
    put_bytes(cx, content, at, at + bitmap_len)?;
    at += bitmap_len;
    if !hopping {
        return Ok(Ok(()));
    }
    if length < at + 1 {
        cx.text(" ");
        return broken(cx, "Truncated in Hopping Sequence length");
    }
    let count = usize::from(content.u8(at)?);
    at += 1;
    put!(cx, "Hopping Seq length = {count} [ ");
    if length < at + count * 2 {
        cx.text(" ");
        return broken(cx, "Truncated in Channel offset bitmap");
    }
    put_channels(cx, content, at, count)?;
    Ok(Ok(()))
}

fn put_channels(cx: &mut Context<'_>, content: Span<'_>, at: usize, count: usize) -> Printed {
    for index in 0..count {
        put!(cx, "{:02x} ", content.u16_le(at + index * 2)?);
    }
    cx.text("]");
    Ok(())
}

fn nested_list(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    loop {
        if rest.length < 2 {
            return error(cx, "Truncated MLME IE");
        }
        let head = rest.u16_le(0)?;
        let is_long = head & 0x8000 != 0;
        let (length, identifier) = match is_long {
            true => (usize::from(head & 0x3ff), head >> 11 & 15),
            false => (usize::from(head & 0xff), head >> 8 & 0x7f),
        };
        match (is_long, identifier) {
            (false, 0..=15) => put!(cx, "\n\t\tReserved for long format 0x{identifier:x}"),
            (false, _) => put_name(cx, "\n\t\t", lookup(NESTED, identifier), identifier),
            (true, _) => put_name(cx, "\n\t\t", lookup(NESTED_LONG, identifier), identifier),
        }
        put!(cx, " [ length = {length}, ");
        if rest.length < 2 + length {
            return error(cx, "Truncated IE data");
        }
        if length != 0 {
            nested(cx, skip(rest, 2).with_length(length), identifier)?;
        }
        cx.text("] ");
        rest = skip(rest, 2 + length);
        if rest.length == 0 {
            return Ok(());
        }
    }
}

fn nested(cx: &mut Context<'_>, content: Span<'_>, identifier: u16) -> Printed {
    match identifier {
        0x08 => vendor(cx, content),
        0x09 => channel_hopping(cx, content),
        0x1a => {
            if content.length < 6 {
                cx.text("[ERROR: Length != 6]");
            }
            let [a, b, c, d, e, metric] = content.array(0)?;
            let number = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
            put!(cx, "ASN = {number:010x}, Join Metric = {metric} ");
            Ok(())
        }
        0x1b => slotframes(cx, content),
        0x1c => timeslot(cx, content),
        _ => put_data(cx, content),
    }
}

fn channel_hopping(cx: &mut Context<'_>, content: Span<'_>) -> Printed {
    put!(cx, "Hopping Sequence ID = {}", content.u8(0)?);
    if content.length == 1 {
        return Ok(());
    }
    if content.length < 8 {
        return error(cx, "IE truncated");
    }
    let (page, channels, configuration) = (content.u8(1)?, content.u16_le(2)?, content.u32_le(4)?);
    put!(
        cx,
        "Channel Page = {page}, Number of Channels = {channels}, Phy Configuration = 0x{configuration:08x}, "
    );
    let mut rest = skip(content, 8);
    if matches!(page, 9 | 10) {
        let len = usize::from(channels).div_ceil(8);
        if rest.length < len {
            return error(cx, "IE truncated");
        }
        cx.text("Extended bitmap = 0x");
        for at in 0..len {
            put!(cx, "{:02x}", rest.u8(at)?);
        }
        cx.text(", ");
        rest = skip(rest, len);
    }
    if rest.length < 2 {
        return error(cx, "IE truncated");
    }
    let count = usize::from(rest.u16_le(0)?);
    rest = skip(rest, 2);
    put!(cx, "Hopping Seq length = {count} [ ");
    if rest.length < count * 2 {
        cx.text(" ");
        return error(cx, "IE truncated");
    }
    put_channels(cx, rest, 0, count)?;
    rest = skip(rest, count * 2);
    if rest.length < 2 {
        return error(cx, "IE truncated");
    }
    put!(cx, "Current hop = {}", rest.u16_le(0)?);
    Ok(())
}

fn slotframes(cx: &mut Context<'_>, content: Span<'_>) -> Printed {
    const OPTIONS: &[(u8, &str)] =
        &[(1, "TX "), (2, "RX "), (4, "Shared "), (8, "Timekeeping "), (16, "Priority ")];
    let count = content.u8(0)?;
    put!(cx, "Slotframes = {count} ");
    let mut at = 1;
    for _ in 0..count {
        if content.length < at + 4 {
            return error(cx, "Truncated IE before slotframes");
        }
        let (handle, size, links) = (content.u8(at)?, content.u16_le(at + 1)?, content.u8(at + 3)?);
        put!(cx, "\n\t\t\t[ Handle {handle}, size = {size}, links = {links} ");
        at += 4;
        for _ in 0..links {
            if content.length < at + 5 {
                cx.text("[ERROR: Truncated IE links]");
                break;
            }
            let (slot, offset, options) = (content.u16_le(at)?, content.u16_le(at + 2)?, content.u8(at + 4)?);
            put!(cx, "\n\t\t\t\t[ Timeslot =  {slot}, Offset = {offset}, Options = ");
            OPTIONS.iter().filter(|(bit, _)| options & bit != 0).for_each(|(_, name)| cx.text(name));
            at += 5;
            cx.text("] ");
        }
        cx.text("] ");
    }
    Ok(())
}

/// The names of a time slot's parts, in their order; each has two bytes, in the long form the last two have three.
const TIMESLOT: [&str; 12] = [
    "CCA Offset",
    "CCA",
    "TX Offset",
    "RX Offset",
    "RX Ack Delay",
    "TX Ack Delay",
    "RX Wait",
    "Ack Wait",
    "RX TX",
    "Max Ack",
    "Max TX",
    "Time slot Length",
];

fn timeslot(cx: &mut Context<'_>, content: Span<'_>) -> Printed {
    if !matches!(content.length, 1 | 25 | 27) {
        cx.text("[ERROR: Length not 1, 25, or 27]\n\t\t\t");
        return put_data(cx, content);
    }
    content.need(content.length)?;
    put!(cx, "Time slot ID = {}", content.u8(0)?);
    if content.length > 1 {
        let mut at = 1;
        for (index, name) in TIMESLOT.iter().enumerate() {
            let is_long = content.length == 27 && index >= 10;
            let high = if is_long { u32::from(content.u8(at + 2)?) << 16 } else { 0 };
            put!(cx, ", {name} = {}", high | u32::from(content.u16_le(at)?));
            at += if is_long { 3 } else { 2 };
        }
    }
    cx.text(" ");
    Ok(())
}

/// Fragments of frames of upper layers (IEEE 802.15.9).
fn multiplexed(cx: &mut Context<'_>, content: Span<'_>) -> Printed {
    let length = content.length;
    let first = content.u8(0)?;
    let (kind, transaction) = (first & 7, first >> 3);
    let data_at = match kind {
        0 => {
            cx.text("Type = Full upper layer fragment, ");
            if length < 3 {
                return error(cx, "Multiplex ID missing");
            }
            put!(cx, "tid = 0x{transaction:02x}, Multiplex ID = 0x{:04x}, ", content.u16_le(1)?);
            3
        }
        1 => {
            cx.text("Type = Full upper layer fragment with small Multiplex ID, ");
            put!(cx, "Multiplex ID = 0x{transaction:04x}, ");
            1
        }
        2 | 4 if length < 2 => return error(cx, "fragment number missing"),
        2 | 4 => match fragment(cx, content, kind, transaction)? {
            Some(data_at) => data_at,
            None => return Ok(()),
        },
        6 => {
            put!(cx, "Type = Abort, tid = 0x{transaction:02x}, ");
            match length {
                1 => cx.text("no max size given"),
                3 => put!(cx, "max size = 0x{:04x}", content.u16_le(1)?),
                _ => {
                    put!(cx, "invalid length = {length} (not 1 or 3)Abort data = ");
                    put_bytes(cx, content, 1, length)?;
                }
            }
            return Ok(());
        }
        _ => {
            put!(cx, "Type = {kind} (Reserved), tid = 0x{transaction:02x}, ");
            1
        }
    };
    cx.text("Upper layer data = ");
    put_bytes(cx, content, data_at, length)
}

/// The offset of the fragment's data; `None` if the fragment is malformed.
fn fragment(
    cx: &mut Context<'_>,
    content: Span<'_>,
    kind: u8,
    transaction: u8,
) -> Result<Option<usize>, Cut> {
    let number = content.u8(1)?;
    let name = match (kind, number) {
        (2, 0) => "First fragment",
        (2, _) => "Middle fragment",
        _ => "Last fragment",
    };
    put!(cx, "Type = {name}, tid = 0x{transaction:02x}, fragment = 0x{number:02x}, ");
    if number != 0 {
        return Ok(Some(2));
    }
    if content.length < 6 {
        error(cx, "Total upper layer size or multiplex ID missing")?;
        return Ok(None);
    }
    let (size, identifier) = (content.u16_le(2)?, content.u16_le(4)?);
    put!(cx, "Total upper layer size = 0x{size:04x}, Multiplex ID = 0x{identifier:04x}, ");
    Ok(Some(6))
}
