//! IEEE 802.15.4, the link layer of Zigbee, Thread and 6TiSCH.
//!
//! ```text
//! | frame control 2 | [sequence 1] | [PAN 2] [destination 2 or 8] | [PAN 2] [source 2 or 8] | [security] | [elements] | payload |
//! control: type 3, security 1, pending 1, acknowledge 1, PAN compression 1, -, no sequence 1, elements 1,
//!          destination's mode 2, version 2, source's mode 2
//! ```
//!
//! All numbers are little-endian. A checksum of 4 or 2 bytes at the end is recognised by its correctness: the link
//! type does not say. Source: IEEE 802.15.4-2015, section 7.

mod command;
mod element;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const TYPES: [&str; 8] =
    ["Beacon", "Data", "ACK", "Command", "Reserved", "Multipurpose", "Fragment", "Extended"];

const BEACON: u16 = 0;
const COMMAND: u16 = 3;
const MULTIPURPOSE: u16 = 5;

/// A part of a frame ended too early or made no sense; its text says so, and the frame's ends there.
pub(super) struct Broken;

/// The outcome of printing a part: `Ok(Err(Broken))` if its text ends the frame's.
type PartResult<T> = Result<Result<T, Broken>, Cut>;

/// Passes a cut and a broken part on.
macro_rules! part {
    ($printed:expr) => {
        match $printed? {
            Ok(value) => value,
            Err(broken) => return Ok(Err(broken)),
        }
    };
}

/// Prints the problem with a part.
fn broken<T>(cx: &mut Context<'_>, what: &str) -> PartResult<T> {
    put!(cx, "[ERROR: {what}]");
    Ok(Err(Broken))
}

/// Prints a packet of the link types IEEE802_15_4 and IEEE802_15_4_NOFCS.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "802.15.4";
    if span.captured() < 2 {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    let frame = span.with_length(span.captured());
    let control = frame.u16_le(0)?;
    put!(cx, "IEEE 802.15.4 {} packet ", TYPES[usize::from(control & 7)]);
    match control & 7 {
        BEACON..=COMMAND => standard(cx, frame, control).map(drop),
        MULTIPURPOSE => multipurpose(cx, frame, control).map(drop),
        _ => Ok(()),
    }
}

/// Prints a packet of the link type IEEE802_15_4_TAP: fields about the reception, then the frame.
pub(super) fn print_tap(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "802.15.4_tap";
    if span.captured() < 4 {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    let length = usize::from(span.u16_le(2)?);
    if span.u8(0)? != 0 || length < 4 {
        cx.invalid();
        return Ok(());
    }
    if span.captured() < length {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    print(cx, span.skip(length))?;
    cx.link_header_len += length;
    Ok(())
}

/// The checksum at the end of a frame.
struct Checksum {
    len: usize,
    read: u32,
    computed: u32,
}

impl Checksum {
    /// Four bytes or two, whichever are right; neither is there otherwise.
    fn find(span: Span<'_>, short_min: usize, long_min: usize) -> Result<Checksum, Cut> {
        let length = span.length;
        if length >= long_min {
            let (read, computed) = (span.u32_le(length - 4)?, crc32(span.bytes(0, length - 4)?));
            if read == computed {
                return Ok(Checksum { len: 4, read, computed });
            }
        }
        if length < short_min {
            return Ok(Checksum { len: 0, read: 0, computed: 0 });
        }
        let (read, computed) = (u32::from(span.u16_le(length - 2)?), crc16(span.bytes(0, length - 2)?));
        Ok(Checksum { len: if read == computed { 2 } else { 0 }, read, computed })
    }

    fn print(&self, cx: &mut Context<'_>) {
        let Checksum { read, computed, .. } = *self;
        if read == computed {
            put!(cx, "FCS {read:x} ");
        } else {
            put!(cx, "wrong FCS {read:x} vs {computed:x} (assume no FCS stored) ");
        }
    }
}

/// x^16 + x^12 + x^5 + 1 from 0, the lowest bit first.
fn crc16(bytes: &[u8]) -> u32 {
    let step = |crc: u16, byte: &u8| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| if crc & 1 != 0 { crc >> 1 ^ 0x8408 } else { crc >> 1 })
    };
    u32::from(bytes.iter().fold(0, step))
}

/// The polynomial of Ethernet from 0, the lowest bit first.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 },
        )
    };
    bytes.iter().fold(0, step)
}

/// Fields of the security header.
struct Security {
    level: u8,
    len: usize,
}

impl Security {
    /// Bytes of the integrity code at the frame's end.
    fn code_len(&self) -> usize {
        [0, 4, 8, 16][usize::from(self.level & 3)]
    }
}

/// Bytes without the skipped ones; a count below zero is as large as 32 bits have it.
fn skip(span: Span<'_>, count: usize) -> Span<'_> {
    let left = (span.length as u32).wrapping_sub(count as u32) as usize;
    span.skip(count).with_length(left)
}

/// Beacons, data, acknowledgements and commands.
fn standard(cx: &mut Context<'_>, span: Span<'_>, control: u16) -> PartResult<()> {
    let bit = |number: u16| control >> number & 1 != 0;
    let checksum = Checksum::find(span, 4, 4)?;
    let frame = span.with_length(span.length - checksum.len);
    let version = control >> 12 & 3;
    put!(cx, "v{version} ");
    if cx.verbose() > 2 {
        put_flags(cx, control, STANDARD_FLAGS);
    }
    let rest = if bit(8) {
        if version < 2 {
            cx.text("[ERROR: Sequence number suppressed on frames where version < 2]");
        }
        if cx.verbose() > 0 {
            cx.text("seq suppressed ");
        }
        skip(frame, 2)
    } else {
        let sequence = frame.u8(2)?;
        if cx.verbose() > 0 {
            put!(cx, "seq {sequence:02x} ");
        }
        skip(frame, 3)
    };
    if frame.length < if bit(8) { 2 } else { 3 } {
        cx.cut();
        return Ok(Err(Broken));
    }
    let (destination, source) = part!(address_lengths(cx, control >> 10, control >> 14));
    let (destination_pan, source_pan) = pans(cx, version, bit(6), destination, source);
    let rest = part!(address(cx, rest, destination_pan, destination));
    cx.text(" < ");
    let rest = part!(address(cx, rest, source_pan, source));
    cx.text(" ");
    let rest = part!(secured(cx, rest, bit(3), bit(9), &checksum));
    payload(cx, rest, control & 7, version)
}

const STANDARD_FLAGS: &[(u16, &str)] = &[
    (3, "Security Enabled, "),
    (4, "Frame Pending, "),
    (5, "AR, "),
    (6, "PAN ID Compression, "),
    (8, "Sequence Number Suppression, "),
    (9, "IE present, "),
];

const MULTIPURPOSE_FLAGS: &[(u16, &str)] = &[
    (9, "Security Enabled, "),
    (11, "Frame Pending, "),
    (14, "AR, "),
    (8, "PAN ID Present, "),
    (10, "Sequence Number Suppression, "),
    (15, "IE present, "),
];

fn put_flags(cx: &mut Context<'_>, control: u16, flags: &[(u16, &str)]) {
    flags.iter().filter(|(bit, _)| control >> bit & 1 != 0).for_each(|(_, name)| cx.text(name));
}

/// Multipurpose frames: a frame control of one byte or, with bit 3, of two.
fn multipurpose(cx: &mut Context<'_>, span: Span<'_>, control: u16) -> PartResult<()> {
    let long = control & 8 != 0;
    let bit = |number: u16| long && control >> number & 1 != 0;
    let checksum = Checksum::find(span, 3, 5)?;
    let frame = span.with_length(span.length - checksum.len);
    let rest = if long {
        put!(cx, "v{} ", control >> 12 & 3);
        if cx.verbose() > 2 {
            put_flags(cx, control, MULTIPURPOSE_FLAGS);
        }
        let header_len = if bit(10) { 2 } else { 3 };
        if header_len == 3 {
            let sequence = frame.u8(2)?;
            if cx.verbose() > 0 {
                put!(cx, "seq {sequence:02x} ");
            }
        }
        if frame.length < header_len {
            cx.cut();
            return Ok(Err(Broken));
        }
        skip(frame, header_len)
    } else {
        let sequence = frame.u8(1)?;
        if cx.verbose() > 0 {
            put!(cx, "seq {sequence:02x} ");
        }
        skip(frame, 2)
    };
    let (destination, source) = part!(address_lengths(cx, control >> 4, control >> 6));
    let rest = part!(address(cx, rest, bit(8), destination));
    cx.text(" <  ");
    let rest = part!(address(cx, rest, false, source));
    cx.text(" ");
    let rest = part!(secured(cx, rest, bit(9), bit(15), &checksum));
    default_print(cx, rest)?;
    Ok(Ok(()))
}

fn default_print(cx: &mut Context<'_>, rest: Span<'_>) -> Printed {
    if cx.options.hex.shows_hex() || cx.options.quiet {
        return Ok(());
    }
    cx.hex_and_ascii_to_end(rest)
}

/// Bytes of both addresses: none, 2 or 8.
fn address_lengths(cx: &mut Context<'_>, destination: u16, source: u16) -> PartResult<(usize, usize)> {
    let length = |mode: u16| [Some(0), None, Some(2), Some(8)][usize::from(mode & 3)];
    match (length(destination), length(source)) {
        (_, None) => broken(cx, "Invalid src address mode"),
        (None, _) => broken(cx, "Invalid dst address mode"),
        (Some(destination), Some(source)) => Ok(Ok((destination, source))),
    }
}

/// Whether the destination's and the source's PAN are in the frame (table 7-2; for versions below 2 the rules of 2006).
fn pans(
    cx: &mut Context<'_>,
    version: u16,
    compressed: bool,
    destination: usize,
    source: usize,
) -> (bool, bool) {
    let plain = (destination != 0, !compressed && source != 0);
    if version < 2 {
        if compressed && (destination == 0 || source == 0) {
            cx.text("[ERROR: PAN ID Compression != 0, and only one address with frame version < 2]");
        }
        return plain;
    }
    match (compressed, destination, source) {
        (true, 0, 0) => (true, false),
        (true, 0, _) | (true, _, 0) | (true, 8, 8) => (false, false),
        // Implementations of 6TiSCH leave the source's PAN out there, against the table.
        (false, 8 | 2, 8) => (true, false),
        _ => plain,
    }
}

/// A PAN and an address. Returns the rest.
fn address<'p>(cx: &mut Context<'_>, mut rest: Span<'p>, has_pan: bool, len: usize) -> PartResult<Span<'p>> {
    if has_pan {
        if rest.length < 2 {
            return broken(cx, "Truncated before dst_pan");
        }
        put!(cx, "{:04x}:", rest.u16_le(0)?);
        rest = skip(rest, 2);
    } else {
        cx.text("-:");
    }
    if rest.length < len {
        return broken(cx, "Truncated before dst_addr");
    }
    put_address(cx, rest, len)?;
    Ok(Ok(skip(rest, len)))
}

fn put_address(cx: &mut Context<'_>, span: Span<'_>, len: usize) -> Printed {
    match len {
        0 => cx.text("none"),
        2 => put!(cx, "{:04x}", span.u16_le(0)?),
        _ => {
            let mut address: [u8; 8] = span.array(0)?;
            address.reverse();
            cx.colon_hex(&address);
        }
    }
    Ok(())
}

/// The security header, elements, integrity code and checksum; the payload between them.
fn secured<'p>(
    cx: &mut Context<'_>,
    mut rest: Span<'p>,
    is_secured: bool,
    has_elements: bool,
    checksum: &Checksum,
) -> PartResult<Span<'p>> {
    let mut security = Security { level: 0, len: 0 };
    if is_secured {
        security = part!(security_header(cx, rest));
        rest.need(security.len)?;
        rest = skip(rest, security.len);
    }
    let code_len = security.code_len();
    if rest.length < code_len {
        return broken(cx, "Truncated before MIC");
    }
    rest.length -= code_len;
    let code = rest.skip(rest.length);
    if has_elements {
        let (len, more) = part!(element::header_list(cx, rest));
        rest = skip(rest, len);
        if more && security.level >= 4 {
            cx.text("Payload IEs present, but encrypted, cannot print ");
        } else if more {
            let len = part!(element::payload_list(cx, rest));
            rest = skip(rest, len);
        }
    }
    if cx.verbose() > 2 {
        if code_len != 0 {
            cx.text("\n\tMIC ");
            for at in 0..code_len {
                put!(cx, "{:02x}", code.u8(at)?);
            }
            cx.text(" ");
        }
        checksum.print(cx);
    }
    Ok(Ok(rest))
}

/// Section 9.4. The key source of eight bytes is skipped as four, as tcpdump 4.99 does.
fn security_header(cx: &mut Context<'_>, span: Span<'_>) -> PartResult<Security> {
    if span.length < 1 {
        return broken(cx, "Truncated before Aux Security Header");
    }
    let control = span.u8(0)?;
    let (level, key_mode) = (control & 7, control >> 3 & 3);
    if cx.verbose() > 0 {
        put!(cx, "\n\tSecurity Level {level}, Key Id Mode {key_mode}, ");
    }
    let mut len = 1;
    if control & 0x20 == 0 {
        if span.length < len + 4 {
            return broken(cx, "Truncated before Frame Counter");
        }
        if cx.verbose() > 1 {
            put!(cx, "Frame Counter 0x{:08x} ", span.u32_le(len)?);
        }
        len += 4;
    }
    let source_len = [0, 0, 4, 8][usize::from(key_mode)];
    if span.length < len + source_len {
        return broken(cx, "Truncated before Key Source");
    }
    match key_mode {
        0 => {
            cx.text(if cx.verbose() > 1 { "Implicit" } else { "" });
            return Ok(Ok(Security { level, len }));
        }
        2 if cx.verbose() > 1 => {
            put!(cx, "KeySource 0x{:04x}:{:x}4x, ", span.u16_le(len)?, span.u16_le(len + 2)?);
        }
        3 if cx.verbose() > 1 => {
            cx.text("KeySource ");
            put_address(cx, span.skip(len), 8)?;
            cx.text(", ");
        }
        _ => {}
    }
    len += source_len.min(4);
    if span.length < len + 1 {
        return broken(cx, "Truncated before Key Index");
    }
    if cx.verbose() > 1 {
        put!(cx, "KeyIndex 0x{:02x}, ", span.u8(len)?);
    }
    Ok(Ok(Security { level, len: len + 1 }))
}

fn payload(cx: &mut Context<'_>, rest: Span<'_>, kind: u16, version: u16) -> PartResult<()> {
    let rest = match kind {
        // An error in a beacon does not keep the rest from being printed.
        BEACON if version < 2 => beacon(cx, rest)?,
        COMMAND => command::print(cx, rest)?,
        _ => Some(rest),
    };
    if let Some(rest) = rest {
        default_print(cx, rest)?;
    }
    Ok(Ok(()))
}

/// A beacon of version 0 or 1. Returns the rest, unless it is broken.
fn beacon<'p>(cx: &mut Context<'_>, mut rest: Span<'p>) -> Result<Option<Span<'p>>, Cut> {
    if rest.length < 2 {
        cx.text("[ERROR: Truncated before beacon information]");
        return Ok(None);
    }
    superframe(cx, rest.u16_le(0)?);
    rest = skip(rest, 2);
    if rest.length < 1 {
        cx.text("[ERROR: Truncated before GTS info]");
        return Ok(None);
    }
    let Some(len) = guaranteed_slots(cx, rest)? else { return Ok(None) };
    rest = skip(rest, len);
    if rest.length < 1 {
        cx.text("[ERROR: Truncated before pending addresses]");
        return Ok(None);
    }
    let Some(len) = pending_addresses(cx, rest)? else { return Ok(None) };
    rest.need(len)?;
    Ok(Some(skip(rest, len)))
}

fn superframe(cx: &mut Context<'_>, value: u16) {
    if cx.verbose() == 0 {
        return;
    }
    put!(cx, "\n\tBeacon order = {}, Superframe order = {}, ", value & 15, value >> 4 & 15);
    put!(cx, "Final CAP Slot = {}", value >> 8 & 15);
    let flags = [(12, ", BLE enabled"), (14, ", PAN Coordinator"), (15, ", Association Permit")];
    put_flags(cx, value, &flags);
}

fn guaranteed_slots(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    let count = usize::from(span.u8(0)? & 7);
    if count == 0 {
        if cx.verbose() > 0 {
            cx.text("\n\tGTS Descriptor Count = 0, ");
        }
        return Ok(Some(1));
    }
    let len = 2 + count * 3;
    if span.length < len {
        cx.text(" [ERROR: Truncated GTS Info List]");
        return Ok(None);
    }
    if cx.verbose() < 2 {
        return Ok(Some(len));
    }
    put!(cx, "GTS Descriptor Count = {count}, GTS Directions Mask = {:02x}, [ ", span.u8(1)? & 0x7f);
    for at in (2..len).step_by(3) {
        // The slot is read from the address's second byte, as tcpdump does.
        let slot = span.u8(at + 1)?;
        put!(cx, "[ {:04x}, Start slot = {}, Length = {} ] ", span.u16_le(at)?, slot & 15, slot >> 4);
    }
    cx.text("]");
    Ok(Some(len))
}

/// Addresses for which the coordinator holds data; how many bytes they have, unless they are broken.
fn pending_addresses(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    let counts = span.u8(0)?;
    let (short, extended) = (usize::from(counts & 7), usize::from(counts >> 4 & 7));
    let len = 1 + short * 2 + extended * 8;
    if cx.verbose() > 0 {
        put!(cx, "\n\tPending address list, # short addresses = {short}, # extended addresses = {extended}");
    }
    if span.length < len {
        cx.text(" [ERROR: Pending address list truncated]");
        return Ok(None);
    }
    let lists = [("Short", short, 2, 1), ("Extended", extended, 8, 1 + short * 2)];
    for (name, count, address_len, at) in lists {
        if cx.verbose() < 2 || count == 0 {
            continue;
        }
        put!(cx, ", {name} address list = [ ");
        for index in 0..count {
            put_address(cx, span.skip(at + index * address_len), address_len)?;
            cx.text(" ");
        }
        cx.text("]");
    }
    Ok(Some(len))
}

/// Each byte as `01 `.
fn put_bytes(cx: &mut Context<'_>, span: Span<'_>, from: usize, to: usize) -> Printed {
    for at in from..to {
        put!(cx, "{:02x} ", span.u8(at)?);
    }
    Ok(())
}
