//! IEEE 802.11 frames.
//!
//! ```text
//! | control 2 | duration 2 | address 6 | address 6 | address 6 | sequence 2 | [address 6] | [QoS 2] | body |
//! control: | version 2b, type 2b, subtype 4b | to DS, from DS, fragments, retry, power, more, protected, order |
//! ```
//!
//! Data frames are followed into their LLC header; management and control frames are named, with their identifying
//! fields.

use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

mod codes;
mod management;
pub(super) mod radiotap;

const MANAGEMENT: u16 = 0;
const CONTROL: u16 = 1;
const DATA: u16 = 2;

const MANAGEMENT_HEADER_LEN: usize = 24;

/// Control frames: subtype, name, header length.
const CONTROL_TYPES: [(u16, &str, usize); 9] = [
    (7, "Control Wrapper", 14),
    (8, "BAR", 20),
    (9, "BA", 20),
    (10, "Power Save-Poll", 16),
    (11, "Request-To-Send", 16),
    (12, "Clear-To-Send", 10),
    (13, "Acknowledgment", 10),
    (14, "CF-End", 16),
    (15, "CF-End+CF-Ack", 16),
];

/// Bytes around a frame, as a radio header describes them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trim {
    /// The header is padded to a multiple of 4 bytes.
    padded: bool,
    /// Bytes of frame check sequence at the end.
    fcs_len: usize,
}

/// Prints a frame; how many bytes its headers have.
pub(super) fn frame(cx: &mut Context<'_>, span: Span<'_>, trim: Trim) -> Result<usize, Cut> {
    cx.protocol = "802.11";
    if span.length < trim.fcs_len {
        cx.cut();
        return Ok(span.captured());
    }
    let span = span.limit(span.length - trim.fcs_len);
    if span.captured() < 2 {
        cx.cut();
        return Ok(span.captured());
    }
    let control = FrameControl(span.u16_le(0)?);
    let Some(header_len) = control.header_len() else {
        print_unknown(cx, control);
        return Ok(0);
    };
    let header_len = if trim.padded { header_len.next_multiple_of(4) } else { header_len };
    if span.captured() < header_len {
        cx.cut();
        return Ok(header_len);
    }
    if cx.options.link_header {
        print_header(cx, control, span)?;
    }
    body(cx, control, span, header_len)
}

fn print_unknown(cx: &mut Context<'_>, control: FrameControl) {
    match control.kind() {
        CONTROL => put!(cx, "unknown 802.11 ctrl frame subtype ({})", control.subtype()),
        kind => put!(cx, "unknown 802.11 frame type ({kind})"),
    }
}

#[derive(Clone, Copy, Debug)]
struct FrameControl(u16);

impl FrameControl {
    fn kind(self) -> u16 {
        (self.0 >> 2) & 3
    }

    fn subtype(self) -> u16 {
        (self.0 >> 4) & 15
    }

    fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }

    fn enters_ds(self) -> bool {
        self.has(0x0100)
    }

    fn leaves_ds(self) -> bool {
        self.has(0x0200)
    }

    fn protected(self) -> bool {
        self.has(0x4000)
    }

    fn has_qos(self) -> bool {
        self.subtype() & 8 != 0
    }

    /// `None` if the type is not known.
    fn header_len(self) -> Option<usize> {
        match self.kind() {
            MANAGEMENT => Some(MANAGEMENT_HEADER_LEN),
            CONTROL => CONTROL_TYPES.iter().find(|entry| entry.0 == self.subtype()).map(|entry| entry.2),
            DATA => {
                let addresses = if self.enters_ds() && self.leaves_ds() { 30 } else { 24 };
                Some(addresses + if self.has_qos() { 2 } else { 0 })
            }
            _ => None,
        }
    }

    /// The offsets of source and destination of a data frame.
    fn ends_at(self) -> (usize, usize) {
        match (self.enters_ds(), self.leaves_ds()) {
            (false, false) => (10, 4),
            (false, true) => (16, 4),
            (true, false) => (10, 16),
            (true, true) => (24, 16),
        }
    }
}

fn put_address(cx: &mut Context<'_>, name: &str, span: Span<'_>, at: usize) -> Printed {
    let address = span.bytes(at, 6)?;
    cx.text(name);
    cx.mac(address);
    cx.text(" ");
    Ok(())
}

fn print_header(cx: &mut Context<'_>, control: FrameControl, span: Span<'_>) -> Printed {
    if cx.verbose() > 0 {
        print_flags(cx, control, span)?;
    }
    match control.kind() {
        MANAGEMENT => {
            put_address(cx, "BSSID:", span, 16)?;
            put_address(cx, "DA:", span, 4)?;
            put_address(cx, "SA:", span, 10)
        }
        CONTROL => print_control_header(cx, control, span),
        _ => print_data_header(cx, control, span),
    }
}

fn print_flags(cx: &mut Context<'_>, control: FrameControl, span: Span<'_>) -> Printed {
    for (bit, name) in [
        (0x2000, "More Data "),
        (0x0400, "More Fragments "),
        (0x1000, "Pwr Mgmt "),
        (0x0800, "Retry "),
        (0x8000, "Strictly Ordered "),
        (0x4000, "Protected "),
    ] {
        if control.has(bit) {
            cx.text(name);
        }
    }
    // A power save poll holds an association there, not a time.
    if control.kind() != CONTROL || control.subtype() != 10 {
        put!(cx, "{}us ", span.u16_le(2)?);
    }
    Ok(())
}

fn print_control_header(cx: &mut Context<'_>, control: FrameControl, span: Span<'_>) -> Printed {
    match control.subtype() {
        8 => block_ack_request(cx, span),
        10 => {
            put_address(cx, "BSSID:", span, 4)?;
            put_address(cx, "TA:", span, 10)
        }
        11 => {
            put_address(cx, "RA:", span, 4)?;
            put_address(cx, "TA:", span, 10)
        }
        9 | 12 | 13 => put_address(cx, "RA:", span, 4),
        14 | 15 => {
            put_address(cx, "RA:", span, 4)?;
            put_address(cx, "BSSID:", span, 10)
        }
        _ => Ok(()),
    }
}

fn block_ack_request(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    span.need(20)?;
    put_address(cx, " RA:", span, 4)?;
    put_address(cx, "TA:", span, 10)?;
    put!(cx, "CTL({:x}) SEQ({}) ", span.u16_le(16)?, span.u16_le(18)?);
    Ok(())
}

fn print_data_header(cx: &mut Context<'_>, control: FrameControl, span: Span<'_>) -> Printed {
    let subtype = control.subtype();
    if subtype & 11 != 0 {
        cx.text("CF ");
        cx.text(["", "Ack", "Poll", "Ack/Poll"][usize::from(subtype & 3)]);
        cx.text(if control.has_qos() { "+QoS " } else { " " });
    }
    let names = match (control.enters_ds(), control.leaves_ds()) {
        (false, false) => ["DA:", "SA:", "BSSID:"],
        (false, true) => ["DA:", "BSSID:", "SA:"],
        (true, false) => ["BSSID:", "SA:", "DA:"],
        (true, true) => ["RA:", "TA:", "DA:"],
    };
    for (name, at) in names.into_iter().zip([4, 10, 16]) {
        put_address(cx, name, span, at)?;
    }
    if control.enters_ds() && control.leaves_ds() {
        put_address(cx, "SA:", span, 24)?;
    }
    Ok(())
}

/// Prints the payload behind the header. The number of bytes of all headers.
fn body(
    cx: &mut Context<'_>,
    control: FrameControl,
    span: Span<'_>,
    header_len: usize,
) -> Result<usize, Cut> {
    let rest = span.skip(header_len);
    match control.kind() {
        MANAGEMENT => {
            if !management::print(cx, control.subtype(), control.protected(), span.bytes(10, 6)?, rest)? {
                cx.cut();
            }
            Ok(header_len)
        }
        CONTROL => {
            print_control(cx, control, span)?;
            Ok(header_len)
        }
        // Null frames have no body.
        _ if control.subtype() & 4 != 0 => Ok(header_len),
        _ if control.protected() => {
            cx.text("Data");
            print_encryption(cx, rest);
            Ok(header_len)
        }
        _ => {
            let (source, destination) = control.ends_at();
            let llc = app::llc(cx, rest, Some(span.array(source)?), Some(span.array(destination)?))?;
            if !llc.known {
                cx.unknown(rest.with_length(rest.captured()));
            }
            Ok(header_len + llc.header_len)
        }
    }
}

/// Initialisation vector and key number of an encrypted body.
fn print_encryption(cx: &mut Context<'_>, body: Span<'_>) {
    match body.u32_le(0) {
        Ok(iv) => put!(cx, " IV:{:3x} Pad {:x} KeyID {:x}", iv & 0xff_ffff, (iv >> 24) & 0x3f, iv >> 30),
        Err(Cut) => cx.cut(),
    }
}

fn print_control(cx: &mut Context<'_>, control: FrameControl, span: Span<'_>) -> Printed {
    let entry = CONTROL_TYPES.iter().find(|entry| entry.0 == control.subtype());
    cx.text(entry.map_or("Unknown Ctrl Subtype", |entry| entry.1));
    match control.subtype() {
        10 => put!(cx, " AID({:x})", span.u16_le(2)?),
        _ if cx.options.link_header => {}
        8 => block_ack_request(cx, span)?,
        11 => put_address(cx, " TA:", span, 10)?,
        9 | 12..=15 => put_address(cx, " RA:", span, 4)?,
        _ => {}
    }
    Ok(())
}
