//! Signalling of frame relay (ITU-T Q.933; ANSI T1.617 annex D): status of links and their connections.
//!
//! ```text
//! | call reference's length 4 bits | call reference | message 1 | elements
//! element: 1xxxxxxx alone (1001xccc shifts to codeset ccc), or identifier 1, length 1, content
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const MESSAGES: &[(u8, &str)] = &[
    (0x00, "ESC to National"),
    (0x01, "Alert"),
    (0x02, "Call proceeding"),
    (0x03, "Progress"),
    (0x05, "Setup"),
    (0x07, "Connect"),
    (0x0f, "Connect ACK"),
    (0x45, "Disconnect"),
    (0x46, "Restart"),
    (0x4d, "Release"),
    (0x4e, "Restart ACK"),
    (0x5a, "Release Complete"),
    (0x75, "Status Enquiry"),
    (0x7d, "Status Reply"),
];

const REPORT_TYPE: [u8; 2] = [0x01, 0x51];
const LINK_VERIFY: [u8; 3] = [0x03, 0x19, 0x53];
const PVC_STATUS: [u8; 2] = [0x07, 0x57];

const ELEMENTS: &[(u8, &str)] = &[
    (0x01, "ANSI Report Type"),
    (0x19, "ANSI Link Verify"),
    (0x03, "ANSI Link Verify"),
    (0x07, "ANSI PVC Status"),
    (0x51, "CCITT Report Type"),
    (0x53, "CCITT Link Verify"),
    (0x57, "CCITT PVC Status"),
];

const REPORTS: &[(u8, &str)] = &[(0, "Full Status"), (1, "Link verify"), (2, "Async PVC Status")];

/// The codeset of the elements; a shift that does not lock holds for one element.
#[derive(Clone, Copy, Default)]
struct Codeset {
    number: u8,
    /// The one to go back to, and behind how many elements.
    back: Option<(u8, u8)>,
}

impl Codeset {
    fn is_shift(byte: u8) -> bool {
        byte & 0xf0 == 0x90
    }

    fn shift(&mut self, byte: u8) {
        let locks = byte & 8 == 0;
        self.back = if locks { None } else { Some((self.number, 1)) };
        self.number = byte & 7;
    }

    fn next_element(&mut self) {
        match self.back {
            Some((number, 0)) => *self = Codeset { number, back: None },
            Some((number, left)) => self.back = Some((number, left - 1)),
            None => {}
        }
    }

    fn is_known(self) -> bool {
        matches!(self.number, 0 | 5)
    }
}

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "q.933";
    if !cx.options.link_header {
        cx.text("Q.933");
    }
    // The end of the message and that of the captured bytes are one here.
    let message = span.limit(span.length);
    let Ok((header, codeset)) = Header::read(message) else {
        cx.text(if cx.options.link_header { "" } else { ", " });
        put!(cx, "length {}", span.length);
        cx.cut();
        return Ok(());
    };
    cx.text(if cx.options.link_header { "" } else { ", " });
    header.print(cx, span, codeset)?;
    let Ok(complete) = elements(cx, message.skip(header.len), codeset) else {
        if cx.verbose() == 0 {
            put!(cx, ", length {}", span.length);
        }
        cx.cut();
        return Ok(());
    };
    if complete && cx.verbose() == 0 {
        put!(cx, ", length {}", span.length);
    }
    Ok(())
}

/// The header before the information elements, including a first shift.
struct Header {
    call_reference_len: usize,
    message: u8,
    len: usize,
    is_ansi: bool,
}

impl Header {
    fn read(span: Span<'_>) -> Result<(Header, Codeset), Cut> {
        let call_reference_len = usize::from(span.u8(0)? & 0x0f);
        let message = span.u8(1 + call_reference_len)?;
        let mut header = Header { call_reference_len, message, len: 2 + call_reference_len, is_ansi: false };
        let mut codeset = Codeset::default();
        if span.length > header.len {
            let next = span.u8(header.len)?;
            if Codeset::is_shift(next) {
                header.len += 1;
                codeset.shift(next);
                header.is_ansi = codeset.back.is_none() && codeset.number == 5;
            }
        }
        Ok((header, codeset))
    }

    fn print(&self, cx: &mut Context<'_>, span: Span<'_>, codeset: Codeset) -> Printed {
        put!(cx, "{}, codeset {}", if self.is_ansi { "ANSI" } else { "CCITT" }, codeset.number);
        let reference = span.bytes(1, self.call_reference_len)?;
        if reference.len() > 1 || reference.len() == 1 && span.u8(self.len)? != 0 {
            cx.text(", Call Ref: 0x");
            reference.iter().for_each(|byte| cx.hex(*byte, 2));
        }
        let message = self.message;
        match (lookup(MESSAGES, message), cx.verbose() > 0) {
            (name, true) => {
                let name = name.unwrap_or("unknown message");
                put!(cx, ", {name} (0x{message:02x}), length {}", span.length);
            }
            (Some(name), false) => put!(cx, ", {name}"),
            (None, false) => put!(cx, ", unknown message 0x{message:02x}"),
        }
        Ok(())
    }
}

/// `false` where an element makes no sense, which ends the text.
fn elements(cx: &mut Context<'_>, mut rest: Span<'_>, mut codeset: Codeset) -> Result<bool, Cut> {
    while rest.length != 0 {
        codeset.next_element();
        let identifier = rest.u8(0)?;
        if identifier & 0x80 != 0 {
            if Codeset::is_shift(identifier) {
                codeset.shift(identifier);
            }
            rest = rest.skip(1);
            continue;
        }
        let length = rest.u8(1)?;
        if cx.verbose() > 0 {
            let name = if codeset.is_known() { lookup(ELEMENTS, identifier) } else { None };
            put!(cx, "\n\t{} IE (0x{identifier:02x}), length {length}: ", name.unwrap_or("unknown"));
        }
        if identifier == 0 || length == 0 {
            return Ok(false);
        }
        let content = rest.skip(2);
        let bytes = content.bytes(0, usize::from(length))?;
        let known = codeset.is_known() && element(cx, identifier, bytes);
        match (known, cx.verbose()) {
            (true, 2..) => cx.hex_lines("\n\t  ", Span::whole(bytes)),
            (false, 1..) => cx.hex_lines("\n\t", Span::whole(bytes)),
            _ => {}
        }
        rest = content.skip(usize::from(length));
    }
    Ok(true)
}

/// Prints an element. `false`, and nothing printed, if it is not known.
fn element(cx: &mut Context<'_>, identifier: u8, bytes: &[u8]) -> bool {
    let separator = if cx.verbose() > 0 { "" } else { ", " };
    if REPORT_TYPE.contains(&identifier) {
        if let (Some(&report), true) = (bytes.first(), cx.verbose() > 0) {
            put!(cx, "{} ({report})", lookup(REPORTS, report).unwrap_or("unknown"));
        }
    } else if LINK_VERIFY.contains(&identifier) {
        cx.text(separator);
        match bytes {
            [sent, received, ..] => put!(cx, "TX Seq: {sent:3}, RX Seq: {received:3}"),
            _ => cx.text("Invalid LINK VERIFY IE"),
        }
    } else if PVC_STATUS.contains(&identifier) {
        cx.text(separator);
        connection(cx, bytes);
    } else {
        return false;
    }
    true
}

/// The status of a permanent connection: its DLCI in two to four bytes, of which the last has its upper bit set.
fn connection(cx: &mut Context<'_>, bytes: &[u8]) {
    let last = |byte: u8| byte & 0x80 != 0;
    let (dlci, status) = match *bytes {
        [a, b, status] if !last(a) && last(b) => (dlci(a, b), status),
        [a, b, c, status] if !last(a) && !last(b) && last(c) => {
            (dlci(a, b) << 6 | u32::from(c & 0x7e) >> 1, status)
        }
        [a, b, c, d, status] if !last(a) && !last(b) && !last(c) && last(d) => {
            (dlci(a, b) << 13 | u32::from(c & 0x7f) | u32::from(d & 0x7e) >> 1, status)
        }
        _ => (0, 0),
    };
    if !last(status) {
        cx.text("Invalid DLCI in PVC STATUS IE");
        return;
    }
    let new = if status & 8 != 0 { "New, " } else { "" };
    put!(cx, "DLCI {dlci}: status {new}{}", if status & 2 != 0 { "Active" } else { "Inactive" });
}

fn dlci(first: u8, second: u8) -> u32 {
    u32::from(first & 0x3f) << 4 | u32::from(second & 0x78) >> 3
}
