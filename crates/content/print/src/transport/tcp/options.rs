//! TCP options.
//!
//! ```text
//! 0 end | 1 no operation | kind 1, length 1, value
//! ```

use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;
use crate::transport::tcp::{cut_options, mptcp};

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const MAX_SEGMENT: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const SIGNATURE: u8 = 19;
const SCPS: u8 = 20;
const USER_TIMEOUT: u8 = 28;
const AUTHENTICATION: u8 = 29;
const MPTCP: u8 = 30;
const FAST_OPEN: u8 = 34;
const EXPERIMENT_2: u8 = 254;
/// The experiment that became fast open (RFC 6994, RFC 7413).
const EXPERIMENT_FAST_OPEN: u16 = 0xf989;

const NAMES: &[(u8, &str)] = &[
    (END, "eol"),
    (NO_OPERATION, "nop"),
    (MAX_SEGMENT, "mss"),
    (WINDOW_SCALE, "wscale"),
    (4, "sackOK"),
    (SACK, "sack"),
    (6, "echo"),
    (7, "echoreply"),
    (TIMESTAMPS, "TS"),
    (11, "cc"),
    (12, "ccnew"),
    (13, ""),
    (SIGNATURE, "md5"),
    (SCPS, "scps"),
    (USER_TIMEOUT, "uto"),
    (AUTHENTICATION, "tcp-ao"),
    (MPTCP, "mptcp"),
    (FAST_OPEN, "tfo"),
    (EXPERIMENT_2, "exp"),
];

/// The outcome of printing an option.
enum End {
    /// The whole option, with this many bytes of value used.
    Used(usize),
    /// The length makes no sense.
    Bad,
}

/// Prints the options: `, options [mss 1460,nop]`. `false` if they were cut or bad, after which nothing follows.
pub(super) fn print(cx: &mut Context<'_>, options: Span<'_>, flags: u8, sack_base: u32) -> Result<bool, Cut> {
    cx.text(", options [");
    let mut rest = options;
    let mut shown = false;
    while rest.length > 0 {
        if shown {
            cx.text(",");
        }
        let kind = rest.u8(0)?;
        let no_length = kind <= NO_OPERATION;
        let length = if no_length { 1 } else { usize::from(rest.u8(1)?) };
        if !no_length && (length < 2 || length > rest.length) {
            return bad(cx, shown);
        }
        match lookup(NAMES, kind) {
            Some(name) => cx.text(name),
            None => put!(cx, "unknown-{kind}"),
        }
        let head = if no_length { 1 } else { 2 };
        let value = Span { data: rest.skip(head).data, length: length - head };
        // The rest of all options, not only of this one: a value may extend past a wrong length.
        let room = rest.length - head;
        match print_value(cx, value, room, kind, flags, sack_base) {
            Err(Cut) => return cut_options(cx, shown),
            Ok(End::Bad) => return bad(cx, shown),
            Ok(End::Used(used)) => {
                if used + head != length {
                    put!(cx, "[len {length}]");
                }
                rest = rest.skip(head + used);
            }
        }
        shown = true;
        if kind == END {
            break;
        }
    }
    cx.text("]");
    Ok(true)
}

fn bad(cx: &mut Context<'_>, shown: bool) -> Result<bool, Cut> {
    cx.text("[bad opt]");
    if shown {
        cx.text("]");
    }
    Ok(false)
}

fn print_value(
    cx: &mut Context<'_>,
    value: Span<'_>,
    room: usize,
    kind: u8,
    flags: u8,
    sack_base: u32,
) -> Result<End, Cut> {
    let fixed = match kind {
        MAX_SEGMENT | USER_TIMEOUT | SCPS => 2,
        WINDOW_SCALE => 1,
        6 | 7 | 11..=13 => 4,
        TIMESTAMPS => 8,
        SIGNATURE => 16,
        END | NO_OPERATION | 4 => 0,
        _ => value.length,
    };
    if fixed > room {
        return Ok(End::Bad);
    }
    // Acknowledged stretches and unknown values are printed up to where they are cut.
    if matches!(
        kind,
        MAX_SEGMENT | USER_TIMEOUT | SCPS | WINDOW_SCALE | 6 | 7 | 11
            ..=13 | TIMESTAMPS | SIGNATURE | AUTHENTICATION | MPTCP | FAST_OPEN | EXPERIMENT_2
    ) {
        value.need(fixed)?;
    }
    match kind {
        END | NO_OPERATION | 4 => {}
        MAX_SEGMENT => put_number(cx, value.u16(0)?),
        WINDOW_SCALE => put_number(cx, value.u8(0)?),
        SACK => sack(cx, value, sack_base)?,
        6 | 7 | 11..=13 => put_number(cx, value.u32(0)?),
        TIMESTAMPS => {
            cx.text(" val ");
            cx.dec(value.u32(0)?);
            cx.text(" ecr ");
            cx.dec(value.u32(4)?);
        }
        SIGNATURE => {
            cx.text(" shared secret not supplied with -M, can't check - ");
            put_hex(cx, value.bytes(0, fixed)?);
        }
        SCPS => put!(cx, " cap {:02x} id {}", value.u8(0)?, value.u8(1)?),
        USER_TIMEOUT => user_timeout(cx, value.u16(0)?),
        AUTHENTICATION => authentication(cx, value)?,
        MPTCP if mptcp::print(cx, value, flags)? => {}
        MPTCP => return Ok(End::Bad),
        FAST_OPEN => {
            cx.text(" ");
            fast_open(cx, value)?;
        }
        EXPERIMENT_2 if value.length < 2 => return Ok(End::Bad),
        EXPERIMENT_2 => experiment(cx, value)?,
        _ if value.length > 0 => {
            cx.text(" 0x");
            for at in 0..value.length {
                let byte = value.u8(at)?;
                cx.hex(byte, 2);
            }
        }
        _ => {}
    }
    Ok(End::Used(fixed))
}

fn put_number(cx: &mut Context<'_>, number: impl Into<u64>) {
    cx.text(" ");
    cx.dec(number.into());
}

fn put_hex(cx: &mut Context<'_>, bytes: &[u8]) {
    for byte in bytes {
        cx.hex(*byte, 2);
    }
}

fn sack(cx: &mut Context<'_>, value: Span<'_>, base: u32) -> Result<(), Cut> {
    if !value.length.is_multiple_of(8) {
        cx.text(" invalid sack");
        return Ok(());
    }
    cx.text(" ");
    cx.dec(value.length / 8);
    cx.text(" ");
    for at in (0..value.length).step_by(8) {
        let (start, end) = (value.u32(at)?, value.u32(at + 4)?);
        cx.text("{");
        cx.dec(start.wrapping_sub(base));
        cx.text(":");
        cx.dec(end.wrapping_sub(base));
        cx.text("}");
    }
    Ok(())
}

/// Seconds, or minutes if the lowest bit is set (RFC 5482 has it the other way round; tcpdump's form is kept).
fn user_timeout(cx: &mut Context<'_>, value: u16) {
    let seconds = if value & 1 != 0 { u32::from(value >> 1) * 60 } else { u32::from(value >> 1) };
    put!(cx, " 0x{value:x} {seconds}");
}

fn authentication(cx: &mut Context<'_>, value: Span<'_>) -> Result<(), Cut> {
    if value.length < 2 {
        cx.invalid();
        return Ok(());
    }
    put!(cx, " keyid {} rnextkeyid {}", value.u8(0)?, value.u8(1)?);
    if value.length > 2 {
        cx.text(" mac 0x");
        put_hex(cx, value.bytes(2, value.length - 2)?);
    }
    Ok(())
}

fn fast_open(cx: &mut Context<'_>, value: Span<'_>) -> Result<(), Cut> {
    match value.length {
        0 => cx.text(" cookiereq"),
        length if length % 2 != 0 || !(4..=16).contains(&length) => cx.invalid(),
        length => {
            cx.text(" cookie ");
            put_hex(cx, value.bytes(0, length)?);
        }
    }
    Ok(())
}

fn experiment(cx: &mut Context<'_>, value: Span<'_>) -> Result<(), Cut> {
    let number = value.u16(0)?;
    cx.text("-");
    if number == EXPERIMENT_FAST_OPEN {
        cx.text("tfo");
        return fast_open(cx, value.skip(2));
    }
    cx.hex(number, 4);
    Ok(())
}
