//! NTP (RFC 5905) and its control messages (RFC 9327).
//!
//! ```text
//! leap 2 bits, version 3, mode 3 | stratum 1 | poll 1 | precision 1
//! root delay 4 | root dispersion 4 | reference identifier 4        16.16 fixed point
//! reference 8 | originate 8 | receive 8 | transmit 8               seconds since 1900, 32.32 fixed point
//! [key identifier 4 [digest 16 or 20]]
//! control: first byte | R E M opcode 5 | sequence 2 | status 2 | association 2 | offset 2 | count 2
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

pub(crate) const MODES: [&str; 8] = [
    "unspecified",
    "symmetric active",
    "symmetric passive",
    "Client",
    "Server",
    "Broadcast",
    "Control Message",
    "Reserved",
];

/// Seconds from 1900 to 1970.
pub(crate) const UNIX_EPOCH: i64 = 2_208_988_800;

const HEADER_LEN: usize = 48;
const CONTROL_LEN: usize = 12;

/// One packet: `NTPv4, Client, length 48`; with `-v` all fields.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ntp";
    let first = span.u8(0)?;
    let (leap, version, mode) = (first & 0xc0, first >> 3 & 7, first & 7);
    put!(cx, "NTPv{version}, {}, length {}", MODES[usize::from(mode)], span.length);
    if cx.verbose() == 0 {
        return Ok(());
    }
    let leap_name = ["", "+1s", "-1s", "clock unsynchronized"][usize::from(leap >> 6)];
    put!(cx, "\n\tLeap indicator: {leap_name} ({leap})");
    match mode {
        6 => print_control(cx, span),
        7 => Ok(()),
        _ => print_time(cx, span),
    }
}

fn print_time(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.length < HEADER_LEN {
        cx.invalid();
        return span.need(span.length);
    }
    let stratum = span.u8(1)?;
    let kind = match stratum {
        0 => "unspecified",
        1 => "primary reference",
        2..=15 => "secondary reference",
        _ => "reserved",
    };
    put!(cx, ", Stratum {stratum} ({kind})");
    let poll = span.u8(2)? as i8;
    put!(cx, ", poll {poll}");
    print_poll(cx, poll);
    put!(cx, ", precision {}", span.u8(3)? as i8);
    for (name, at) in [("\n\tRoot Delay: ", 4), (", Root dispersion: ", 8)] {
        let value = span.u32(at)?;
        cx.text(name);
        print_short(cx, value);
    }
    span.need(16)?;
    cx.text(", Reference-ID: ");
    if !print_reference(cx, span, stratum)? {
        return Ok(());
    }
    for (name, at) in [
        ("  Reference Timestamp:  ", 16),
        ("  Originator Timestamp: ", 24),
        ("  Receive Timestamp:    ", 32),
        ("  Transmit Timestamp:   ", 40),
    ] {
        let value = span.u64(at)?;
        put!(cx, "\n\t{name}");
        print_timestamp(cx, value);
    }
    let originated = span.u64(24)?;
    cx.text("\n\t    Originator - Receive Timestamp:  ");
    print_difference(cx, originated, span.u64(32)?);
    cx.text("\n\t    Originator - Transmit Timestamp: ");
    print_difference(cx, originated, span.u64(40)?);
    print_authentication(cx, span)
}

/// Whether more fields follow: not so in an old implementation's private messages.
fn print_reference(cx: &mut Context<'_>, span: Span<'_>, stratum: u8) -> Result<bool, Cut> {
    match stratum {
        0 => cx.text("(unspec)"),
        1 => cx.visible_all(span.bytes(12, 4)?),
        62 | 63 => {
            cx.ipv4(span.array(12)?);
            cx.text(if stratum == 62 { " INFO_QUERY" } else { " INFO_REPLY" });
            return Ok(false);
        }
        _ => put!(cx, "0x{:08x}", span.u32(12)?),
    }
    Ok(true)
}

fn print_authentication(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let digest_len = match span.length - HEADER_LEN {
        0 => return Ok(()),
        4 => 0,
        20 => 16,
        24 => 20,
        more => {
            put!(cx, "\n\t({more} more bytes after the header)");
            return Ok(());
        }
    };
    put!(cx, "\n\tKey id: {}", span.u32(HEADER_LEN)?);
    if digest_len > 0 {
        cx.text("\n\tAuthentication: ");
        for &byte in span.bytes(HEADER_LEN + 4, digest_len)? {
            cx.hex(byte, 2);
        }
    }
    Ok(())
}

fn print_control(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.length < CONTROL_LEN {
        cx.invalid();
        return span.need(span.length);
    }
    let control = span.u8(1)?;
    let choose =
        |bit: u8, set: &'static str, clear: &'static str| if control & bit != 0 { set } else { clear };
    put!(
        cx,
        ", {}, {}, {}, OpCode={}\n",
        choose(0x80, "Response", "Request"),
        choose(0x40, "Error", "OK"),
        choose(0x20, "More", "Last"),
        control & 0x1f
    );
    put!(cx, "\tSequence={}", span.u16(2)?);
    cx.text(", Status=");
    print_alternate_hex(cx, span.u16(4)?);
    put!(cx, ", Assoc.={}", span.u16(6)?);
    put!(cx, ", Offset={}", span.u16(8)?);
    let count = span.u16(10)?;
    put!(cx, ", Count={count}");
    if CONTROL_LEN + usize::from(count) > span.length {
        cx.invalid();
        return span.need(span.length);
    }
    if count != 0 {
        span.need(CONTROL_LEN + usize::from(count))?;
        cx.text("\n\tTO-BE-DONE: data not interpreted");
    }
    Ok(())
}

/// `%#x`: zero has no prefix.
fn print_alternate_hex(cx: &mut Context<'_>, value: u16) {
    if value != 0 {
        cx.text("0x");
    }
    cx.hex(value, 1);
}

/// The poll interval: a power of two of seconds.
fn print_poll(cx: &mut Context<'_>, poll: i8) {
    match poll {
        -31..0 => put!(cx, " (1/{}s)", 1_u64 << -i32::from(poll)),
        0..=31 => put!(cx, " ({}s)", 1_u64 << poll),
        _ => {}
    }
}

/// 16.16 fixed point, to six digits, cut off.
fn print_short(cx: &mut Context<'_>, value: u32) {
    let fraction = u64::from(value & 0xffff) * 1_000_000 / 65_536;
    put!(cx, "{}.{fraction:06}", value >> 16);
}

/// 32.32 fixed point, to nine digits, and the date that it means.
pub(crate) fn print_timestamp(cx: &mut Context<'_>, value: u64) {
    put!(cx, "{}.{:09}", value >> 32, nanoseconds(value));
    if value >> 32 != 0 {
        cx.text(" (");
        // tcpdump takes every time for one of the first era, which ends in 2036.
        if let Ok(time) = jiff::Timestamp::from_second((value >> 32) as i64 - UNIX_EPOCH) {
            put!(cx, "{}", time.strftime("%Y-%m-%dT%H:%M:%SZ"));
        }
        cx.text(")");
    }
}

/// The fraction of a second, in nanoseconds, cut off.
pub(crate) fn nanoseconds(value: u64) -> u64 {
    (value & 0xffff_ffff) * 1_000_000_000 / (1 << 32)
}

fn print_difference(cx: &mut Context<'_>, from: u64, to: u64) {
    if from == 0 {
        return print_timestamp(cx, to);
    }
    let (sign, difference) = if to > from { ("+", to - from) } else { ("-", from - to) };
    put!(cx, "{sign}{}.{:09}", difference >> 32, nanoseconds(difference));
}
