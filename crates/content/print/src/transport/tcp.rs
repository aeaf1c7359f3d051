//! TCP (RFC 9293).
//!
//! ```text
//! | source port 2 | destination port 2 | sequence 4 | acknowledgement 4 |
//! | words 4b, reserved 4b | flags 1 | window 2 | checksum 2 | urgent 2 | options | payload |
//! ```

use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::checksum;
use crate::context::{Context, put};
use crate::names::PortKind;
use crate::net::{Ip, protocol};
use crate::text::Text;
use crate::transport::connections::Relative;
use crate::transport::{ChecksumResult, captured, print_ends, verify};

mod mptcp;
mod options;

const HEADER_LEN: usize = 20;
/// Bytes of a reset's payload that are shown: it may hold the reason (RFC 9293, 3.5.3).
const RESET_DATA_MAX: usize = 30;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;

const FLAGS: [(u8, u8); 8] = [
    (FIN, b'F'),
    (SYN, b'S'),
    (RST, b'R'),
    (0x08, b'P'),
    (ACK, b'.'),
    (URG, b'U'),
    (0x40, b'E'),
    (0x80, b'W'),
];

/// Prints a TCP segment.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "tcp";
    let (Ok(source), Ok(destination)) = (span.u16(0), span.u16(2)) else {
        cx.host(ip.source);
        cx.text(" > ");
        cx.host(ip.destination);
        cx.text(":");
        cx.cut();
        return Ok(());
    };
    print_ends(cx, ip, protocol::TCP, PortKind::Tcp, (source, destination));
    let Some(&header) = span.data.first_chunk::<HEADER_LEN>() else {
        cx.cut();
        return Ok(());
    };
    let segment = Segment { span, header, source, destination };
    let header_len = segment.header_len();
    if header_len < HEADER_LEN {
        // As it is computed elsewhere: in 32 bits, and wrapping.
        let rest = (span.length as u32).wrapping_sub(header_len as u32);
        put!(cx, " tcp {rest} [bad hdr length {header_len} - too short, < {HEADER_LEN}]");
        return Ok(());
    }
    if cx.options.quiet {
        let rest = (span.length as u32).wrapping_sub(header_len as u32);
        cx.text("tcp ");
        cx.dec(rest);
    } else {
        segment.print_flags(cx);
    }
    let relative = if cx.options.quiet { Relative::default() } else { segment.relative(cx, ip) };
    if header_len > span.length {
        put!(cx, " [bad hdr length {header_len} - too long, > {}]", span.length);
        return Ok(());
    }
    if cx.options.quiet {
        return Ok(());
    }
    segment.print(cx, ip, relative)
}

struct Segment<'p> {
    span: Span<'p>,
    header: [u8; HEADER_LEN],
    source: u16,
    destination: u16,
}

impl Segment<'_> {
    fn header_len(&self) -> usize {
        usize::from(self.header[12] >> 4) * 4
    }

    fn flags(&self) -> u8 {
        self.header[13]
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.header[at], self.header[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(std::array::from_fn(|i| self.header[at + i]))
    }

    fn print_flags(&self, cx: &mut Context<'_>) {
        cx.text("Flags [");
        let flags = self.flags();
        if flags == 0 {
            cx.text("none");
        }
        for (bit, letter) in FLAGS {
            if flags & bit != 0 {
                cx.out.push(letter);
            }
        }
        cx.text("]");
    }

    fn relative(&self, cx: &mut Context<'_>, ip: &Ip) -> Relative {
        let (seq, ack) = (self.u32(4), self.u32(8));
        if cx.options.absolute_seq || self.flags() & ACK == 0 {
            return Relative { seq, ack, sack_base: 0 };
        }
        cx.connections.relative(
            (ip.source, self.source),
            (ip.destination, self.destination),
            (seq, ack),
            self.flags() & SYN != 0,
        )
    }

    fn print(&self, cx: &mut Context<'_>, ip: &Ip, relative: Relative) -> Printed {
        if cx.verbose() > 0 && cx.options.verify_checksums && !ip.fragmented {
            self.print_checksum(cx, ip);
        }
        let header_len = self.header_len();
        let payload = self.span.skip(header_len);
        self.print_numbers(cx, relative, payload.length);
        if header_len > HEADER_LEN {
            let options = Span { data: self.span.skip(HEADER_LEN).data, length: header_len - HEADER_LEN };
            if !options::print(cx, options, self.flags(), relative.sack_base)? {
                return Ok(());
            }
        }
        cx.text(", length ");
        cx.dec(payload.length);
        if payload.length == 0 {
            return Ok(());
        }
        let captured = self.span.captured();
        if captured < header_len {
            put!(cx, " [remaining caplen({captured}) < header length({header_len})]");
            return Err(Cut);
        }
        if self.flags() & RST != 0 && cx.verbose() > 0 {
            print_reset_data(cx, payload);
            return Ok(());
        }
        app::tcp(cx, payload, self.source, self.destination, ip).map(drop)
    }

    fn print_checksum(&self, cx: &mut Context<'_>, ip: &Ip) {
        let Some(bytes) = captured(self.span, self.span.length) else { return };
        let field = self.u16(16);
        cx.text(", cksum 0x");
        cx.hex(field, 4);
        match verify(cx, bytes, protocol::TCP, ip) {
            ChecksumResult::Correct => cx.text(" (correct)"),
            ChecksumResult::Unfinished => cx.text(" (left to the NIC)"),
            ChecksumResult::Wrong(computed) => {
                cx.text(" (incorrect -> 0x");
                cx.hex(checksum::should_be(field, computed), 4);
                cx.text(")");
            }
        }
    }

    fn print_numbers(&self, cx: &mut Context<'_>, relative: Relative, length: usize) {
        let flags = self.flags();
        if cx.verbose() > 1 || length > 0 || flags & (SYN | FIN | RST) != 0 {
            cx.text(", seq ");
            cx.dec(relative.seq);
            if length > 0 {
                cx.text(":");
                cx.dec(relative.seq.wrapping_add(length as u32));
            }
        }
        if flags & ACK != 0 {
            cx.text(", ack ");
            cx.dec(relative.ack);
        }
        cx.text(", win ");
        cx.dec(self.u16(14));
        if flags & URG != 0 {
            cx.text(", urg ");
            cx.dec(self.u16(18));
        }
    }
}

fn print_reset_data(cx: &mut Context<'_>, payload: Span<'_>) {
    let whole = payload.captured() >= payload.length;
    cx.text(if whole { " [RST" } else { " [!RST" });
    if payload.length > RESET_DATA_MAX {
        cx.text("+");
    }
    cx.text(" ");
    let shown = payload.length.min(RESET_DATA_MAX).min(payload.captured());
    cx.visible_all(&payload.data[..shown]);
    cx.text("]");
}

/// A value past the captured bytes ends the line, with this odd mark.
fn cut_options(cx: &mut Context<'_>, shown: bool) -> Result<bool, Cut> {
    cx.cut();
    if shown {
        cx.text(">");
    }
    Ok(false)
}
