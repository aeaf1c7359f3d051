//! Multilink frame relay (FRF.16): fragments of frames over several links, and the links' control messages.
//!
//! ```text
//! control:   | 111 0000 1 | 0 | message 1 | elements: type 1, length 1 (with these two), value
//! fragment:  | begin, end, 0, sequence 4 bits, 1 | sequence 1 | frame, or a later part of one
//! ```

use super::frame_relay::{self, FRAGMENT_FLAGS};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::options::TimeStyle;
use crate::text::Text;

const KIND: u8 = 0xe0;
const CONTROL: u8 = 0xe0;
const BEGIN: u8 = 0x80;
const BEGIN_AND_END: u8 = 0xc0;

const MESSAGES: &[(u8, &str)] = &[
    (1, "Add Link"),
    (2, "Add Link ACK"),
    (3, "Add Link Reject"),
    (4, "Hello"),
    (5, "Hello ACK"),
    (6, "Remove Link"),
    (7, "Remove Link ACK"),
];

const BUNDLE: u8 = 1;
const LINK: u8 = 2;
const MAGIC: u8 = 3;
const TIMESTAMP: u8 = 5;

const ELEMENTS: &[(u8, &str)] = &[
    (BUNDLE, "Bundle ID"),
    (LINK, "Link ID"),
    (MAGIC, "Magic Number"),
    (TIMESTAMP, "Timestamp"),
    (6, "Vendor Extension"),
    (7, "Cause"),
];

/// Most characters of a bundle's or link's name.
const NAME_MAX: usize = 50;

/// Bytes of a time stamp in the form of a 64-bit host: seconds and microseconds.
const TIMESTAMP_LEN: usize = 16;

/// Prints a packet of the link type MFR.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "mfr";
    if span.captured() < 2 {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    cx.link_header_len += frame(cx, span)?;
    Ok(())
}

/// Prints a frame; how many bytes its header has.
pub(super) fn frame(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    cx.protocol = "mfr";
    if span.length < 4 {
        put!(cx, "[length {} < 4]", span.length);
        cx.invalid();
        return Ok(span.length);
    }
    let Ok([first, second, message, _]) = span.array(0) else {
        cx.cut();
        return Ok(span.length);
    };
    let kind = first & KIND;
    if kind == CONTROL && second == 0 {
        cx.text("FRF.16 Control, Flags [");
        put_bits(cx, FRAGMENT_FLAGS, "none", ", ", u32::from(kind));
        match lookup(MESSAGES, message) {
            Some(name) => put!(cx, "], {name}, length {}", span.length),
            None => put!(cx, "], Unknown Message (0x{message:02x}), length {}", span.length),
        }
        if cx.verbose() > 0 && elements(cx, span.skip(3)).is_err() {
            cx.cut();
            return Ok(span.length);
        }
        return Ok(3);
    }
    put!(cx, "FRF.16 Frag, seq {}, Flags [", frame_relay::sequence(first, second));
    put_bits(cx, FRAGMENT_FLAGS, "none", ", ", u32::from(kind));
    cx.text("]");
    if matches!(kind, BEGIN | BEGIN_AND_END) {
        cx.text(", ");
        frame_relay::print(cx, span.skip(2))?;
        return Ok(2);
    }
    cx.hex_lines("\n\t", span);
    Ok(0)
}

fn elements(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    // An element longer than the frame extends to the end of the captured bytes, not of the frame.
    let mut overrun = false;
    while overrun || rest.length > 2 {
        let [kind, length] = rest.array(0)?;
        let name = lookup(ELEMENTS, kind).unwrap_or("Unknown");
        put!(cx, "\n\tIE {name} ({kind}), length {length}: ");
        if kind == 0 || length <= 2 {
            return Ok(());
        }
        let value = Span::whole(&rest.bytes(0, usize::from(length))?[2..]);
        element(cx, kind, value)?;
        if cx.verbose() > 1 {
            cx.hex_lines("\n\t  ", value);
        }
        overrun |= usize::from(length) > rest.length;
        rest = rest.skip(usize::from(length));
    }
    Ok(())
}

fn element(cx: &mut Context<'_>, kind: u8, value: Span<'_>) -> Printed {
    match kind {
        MAGIC if value.length != 4 => {
            put!(cx, "[IE data length {} != 4]", value.length);
            cx.invalid();
        }
        MAGIC => put!(cx, "0x{:08x}", value.u32(0)?),
        BUNDLE | LINK => {
            cx.visible_until_nul(&value.data[..value.captured().min(NAME_MAX)]);
        }
        TIMESTAMP if value.length == TIMESTAMP_LEN => {
            let (seconds, micros) = (i64::from_le_bytes(value.array(0)?), value.u32_le(8)?);
            print_time(cx, seconds, micros);
        }
        _ if cx.verbose() <= 1 => cx.hex_lines("\n\t  ", value),
        _ => {}
    }
    Ok(())
}

/// The time of day, or seconds since 1970, as the packet's own time is wanted.
fn print_time(cx: &mut Context<'_>, seconds: i64, micros: u32) {
    match (cx.options.time, jiff::Timestamp::from_second(seconds)) {
        (TimeStyle::None, _) => {}
        (TimeStyle::TimeOfDay, Ok(time)) => {
            let time = time.to_zoned(cx.options.zone.clone());
            put!(cx, "{}.{micros:06} ", time.strftime("%H:%M:%S"));
        }
        _ => put!(cx, "{seconds}.{micros:06} "),
    }
}
