//! The radiotap header before 802.11 frames (<https://www.radiotap.org>).
//!
//! ```text
//! | version 1 | 0 | length 2 | present 4 [more present words while bit 31 is set] | fields, in order of their bits |
//! ```
//!
//! All numbers are little-endian; each field is aligned to its own size, counted from the start of the header.

use super::{Trim, frame};
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::text::Text;

const FIXED_LEN: usize = 8;
const EXTENDED: u32 = 1 << 31;
const VENDOR_NAMESPACE: u32 = 1 << 30;
const RADIOTAP_NAMESPACE: u32 = 1 << 29;
const MCS: u32 = 1 << 19;
const EXTENDED_CHANNEL: u32 = 1 << 18;

const FLAG_FCS: u8 = 0x10;
const FLAG_PADDED: u8 = 0x20;

/// Alignment and size of each field, by its bit; fields past the last have a size that is not known.
const FIELDS: [(usize, usize); 22] = [
    (8, 8),
    (1, 1),
    (1, 1),
    (2, 4),
    (1, 2),
    (1, 1),
    (1, 1),
    (2, 2),
    (2, 2),
    (1, 1),
    (1, 1),
    (1, 1),
    (1, 1),
    (1, 1),
    (2, 2),
    (0, 0),
    (0, 0),
    (0, 0),
    (4, 8),
    (1, 3),
    (4, 8),
    (2, 12),
];

/// Prints a radiotap header and the frame behind it; how many bytes all headers have.
pub(in crate::link) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    cx.protocol = "802.11_radio";
    let length = if span.captured() < FIXED_LEN { 0 } else { usize::from(span.u16_le(2)?) };
    if length < FIXED_LEN || span.captured() < length {
        cx.cut();
        return Ok(span.captured());
    }
    let header = Span::whole(span.bytes(0, length)?);
    let Some(words) = present_words(header) else {
        cx.cut();
        return Ok(span.captured());
    };
    let mut fields = Fields { header, at: 4 + words * 4, flags: 0 };
    fields.print(cx, words)?;
    let trim = Trim {
        padded: fields.flags & FLAG_PADDED != 0,
        fcs_len: if fields.flags & FLAG_FCS != 0 { 4 } else { 0 },
    };
    Ok(length + frame(cx, span.skip(length), trim)?)
}

/// The number of words that list the present fields; `None` if they do not end within the header.
fn present_words(header: Span<'_>) -> Option<usize> {
    let mut words = 1;
    while header.u32_le(words * 4).ok()? & EXTENDED != 0 {
        words += 1;
    }
    Some(words)
}

struct Fields<'p> {
    header: Span<'p>,
    at: usize,
    flags: u8,
}

impl<'p> Fields<'p> {
    /// Stops at the first field that is not known, as its size is not.
    fn print(&mut self, cx: &mut Context<'_>, words: usize) -> Result<(), Cut> {
        let mut first_bit = 0;
        for word in 1..=words {
            let present = self.header.u32_le(word * 4)?;
            for bit in (0..29).filter(|bit| present & (1 << bit) != 0) {
                if !self.print_field(cx, first_bit + bit, present)? {
                    return Ok(());
                }
            }
            match present & (RADIOTAP_NAMESPACE | VENDOR_NAMESPACE) {
                RADIOTAP_NAMESPACE => first_bit = 0,
                // Fields that vendors define are skipped.
                VENDOR_NAMESPACE => return Ok(()),
                _ => first_bit += 32,
            }
        }
        Ok(())
    }

    /// The field's bytes; moves past them.
    fn take(&mut self, align: usize, size: usize) -> Option<Span<'p>> {
        let start = self.at.next_multiple_of(align);
        let bytes = self.header.bytes(start, size).ok()?;
        self.at = start + size;
        Some(Span::whole(bytes))
    }

    fn print_field(&mut self, cx: &mut Context<'_>, bit: usize, present: u32) -> Result<bool, Cut> {
        let Some(&(align @ 1.., size)) = FIELDS.get(bit) else {
            put!(cx, "[bit {bit}] ");
            return Ok(false);
        };
        let Some(field) = self.take(align, size) else {
            cx.cut();
            return Ok(false);
        };
        match bit {
            0 => put!(cx, "{}us tsft ", u64::from_le_bytes(field.array(0)?)),
            1 => {
                self.flags = field.u8(0)?;
                print_flags(cx, self.flags);
            }
            2 => print_rate(cx, field.u8(0)?),
            3 if present & EXTENDED_CHANNEL != 0 => {}
            3 => print_channel(cx, field.u16_le(0)?, u32::from(field.u16_le(2)?), present),
            4 => put!(cx, "fhset {} fhpat {} ", field.u8(0)?, field.u8(1)?),
            5 => put!(cx, "{}dBm signal ", field.u8(0)?.cast_signed()),
            6 => put!(cx, "{}dBm noise ", field.u8(0)?.cast_signed()),
            7 => put!(cx, "{} sq ", field.u16_le(0)?),
            8 => put!(cx, "{} tx power ", -i32::from(field.u16_le(0)?.cast_signed())),
            9 => put!(cx, "{}dB tx attenuation ", -i32::from(field.u8(0)?.cast_signed())),
            10 => put!(cx, "{}dBm tx power ", field.u8(0)?.cast_signed()),
            11 => put!(cx, "antenna {} ", field.u8(0)?),
            12 => put!(cx, "{}dB signal ", field.u8(0)?),
            13 => put!(cx, "{}dB noise ", field.u8(0)?),
            18 => print_channel(cx, field.u16_le(4)?, field.u32_le(0)?, present),
            19 => print_mcs(cx, field.u8(0)?, field.u8(1)?, field.u8(2)?),
            21 => print_vht(cx, field)?,
            _ => {}
        }
        Ok(true)
    }
}

fn print_flags(cx: &mut Context<'_>, flags: u8) {
    for (bit, name) in
        [(0x01, "cfp "), (0x02, "short preamble "), (0x04, "wep "), (0x08, "fragmented "), (0x40, "bad-fcs ")]
    {
        if flags & bit != 0 {
            cx.text(name);
        }
    }
}

/// In units of 500 kbit/s; some drivers put an 802.11n index there, with the highest bit set.
fn print_rate(cx: &mut Context<'_>, rate: u8) {
    match rate {
        0x80..=0x8f => put!(cx, "MCS {} ", rate & 0x7f),
        _ => put!(cx, "{}.{} Mb/s ", rate / 2, rate % 2 * 5),
    }
}

const TURBO: u32 = 0x0010;
const CCK: u32 = 0x0020;
const OFDM: u32 = 0x0040;
const GHZ_2: u32 = 0x0080;
const GHZ_5: u32 = 0x0100;
const DYNAMIC: u32 = 0x0400;
const HOPPING: u32 = 0x0800;
const HALF: u32 = 0x4000;
const QUARTER: u32 = 0x8000;

fn print_channel(cx: &mut Context<'_>, frequency: u16, flags: u32, present: u32) {
    put!(cx, "{frequency} MHz");
    if present & MCS != 0 {
        cx.text(" 11n");
    } else {
        print_standard(cx, flags);
    }
    for (bit, name) in [(0x1_0000, " ht/20"), (0x4_0000, " ht/40-"), (0x2_0000, " ht/40+")] {
        if flags & bit != 0 {
            cx.text(name);
            break;
        }
    }
    cx.text(" ");
}

fn print_standard(cx: &mut Context<'_>, flags: u32) {
    let all = |bits: u32| flags & bits == bits;
    let width = match (all(HALF), all(QUARTER)) {
        (true, _) => "/10Mhz",
        (false, true) => "/5Mhz",
        _ => "",
    };
    if all(GHZ_2 | HOPPING) {
        cx.text(" FHSS");
    }
    if all(GHZ_5 | OFDM) {
        put!(cx, " 11a{width}");
    }
    if all(GHZ_2 | OFDM) || all(GHZ_2 | DYNAMIC) {
        put!(cx, " 11g{width}");
    } else if all(GHZ_2 | CCK) {
        cx.text(" 11b");
    }
    if all(TURBO) {
        cx.text(" Turbo");
    }
}

/// Data bits a symbol for each index of one stream, in 20 and in 40 MHz (IEEE 802.11, 19.5).
const BITS_20: [u32; 8] = [26, 52, 78, 104, 156, 208, 234, 260];
const BITS_40: [u32; 8] = [54, 108, 162, 216, 324, 432, 486, 540];

/// 802.11n: the known fields, width and guard interval, index.
fn print_mcs(cx: &mut Context<'_>, known: u8, flags: u8, index: u8) {
    let width = flags & 3;
    let short = flags & 0x04 != 0;
    if known & 0x02 != 0 {
        if known & 0x05 != 0 && index < 32 {
            print_mcs_rate(cx, index, width == 1, short);
        }
        put!(cx, "MCS {index} ");
    }
    if known & 0x01 != 0 {
        cx.text(["20 MHz ", "40 MHz ", "20 MHz (L) ", "20 MHz (U) "][usize::from(width)]);
    }
    if known & 0x04 != 0 {
        cx.text(if short { "short GI " } else { "long GI " });
    }
    if known & 0x08 != 0 {
        cx.text(if flags & 0x08 != 0 { "greenfield " } else { "mixed " });
    }
    if known & 0x10 != 0 {
        cx.text(if flags & 0x10 != 0 { "LDPC FEC " } else { "BCC FEC " });
    }
    if known & 0x20 != 0 {
        put!(cx, "RX-STBC{} ", (flags >> 5) & 3);
    }
}

/// Bits a symbol over the time of a symbol: 4 microseconds, or 3.6 with the short guard interval.
fn print_mcs_rate(cx: &mut Context<'_>, index: u8, wide: bool, short: bool) {
    let bits = if wide { BITS_40 } else { BITS_20 }[usize::from(index % 8)] * (u32::from(index / 8) + 1);
    let symbol_us = if short { 3.6 } else { 4.0 };
    put!(cx, "{:.1} Mb/s ", f64::from(bits) / symbol_us);
}

const WIDTHS: [&str; 26] = [
    "20 MHz",
    "40 MHz",
    "20 MHz (L)",
    "20 MHz (U)",
    "80 MHz",
    "80 MHz (L)",
    "80 MHz (U)",
    "80 MHz (LL)",
    "80 MHz (LU)",
    "80 MHz (UL)",
    "80 MHz (UU)",
    "160 MHz",
    "160 MHz (L)",
    "160 MHz (U)",
    "160 MHz (LL)",
    "160 MHz (LU)",
    "160 MHz (UL)",
    "160 MHz (UU)",
    "160 MHz (LLL)",
    "160 MHz (LLU)",
    "160 MHz (LUL)",
    "160 MHz (UUU)",
    "160 MHz (ULL)",
    "160 MHz (ULU)",
    "160 MHz (UUL)",
    "160 MHz (UUU)",
];

/// 802.11ac: `| known 2 | flags 1 | width 1 | index and streams of four users 4 | coding 1 | group 1 | aid 2 |`.
fn print_vht(cx: &mut Context<'_>, field: Span<'_>) -> Result<(), Cut> {
    let (known, flags, width) = (field.u16_le(0)?, field.u8(2)?, field.u8(3)? & 0x1f);
    let coding = field.u8(8)?;
    for user in 0..4 {
        let streams = field.u8(4 + user)?;
        if streams & 0x0f != 0 {
            let code = if coding & (1 << user) != 0 { "LDPC" } else { "BCC" };
            put!(cx, "User {user} MCS {} {code} FEC ", streams >> 4);
        }
    }
    if known & 0x0040 != 0 {
        match WIDTHS.get(usize::from(width)) {
            Some(name) => put!(cx, "{name} "),
            None => put!(cx, "unknown ({width}) "),
        }
    }
    if known & 0x0004 != 0 {
        cx.text(if flags & 0x04 != 0 { "short GI " } else { "long GI " });
    }
    Ok(())
}
