//! Marvell's switch tags (distributed switch architecture), between the addresses and the type of an Ethernet frame.
//!
//! ```text
//! DSA:   | mode 2 bits, tagged 1, device 5 | port 5, trunk or code 2, code 1, CFI 1 | priority 3, code 1, VLAN 12 |
//! EDSA:  | EtherType 2 | 0, 0 | DSA tag |
//! ```
//!
//! Source: Linux, `net/dsa/tag_dsa.c`.

use super::{ethernet, ethertype};
use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const TAG_LEN: usize = 4;
const ETHERTYPE_TAG_LEN: usize = 8;

const CODES: [&str; 8] = [
    "BPDU (MGMT) Trap",
    "Frame2Reg",
    "IGMP/MLD Trap",
    "Policy Trap",
    "ARP Mirror",
    "Policy Mirror",
    "reserved",
    "reserved",
];

/// Prints a frame with a tag of four bytes.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "dsa";
    cx.link_header_len += ethernet::switched(cx, span, TAG_LEN, |cx, span| {
        cx.text(if cx.options.link_header { "Marvell DSA " } else { "DSA " });
        print_tag(cx, Tag(span.array(0)?));
        Ok(())
    })?;
    Ok(())
}

/// Prints a frame with an EtherType before the tag.
pub(super) fn print_with_ethertype(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "edsa";
    cx.link_header_len += ethernet::switched(cx, span, ETHERTYPE_TAG_LEN, |cx, span| {
        let kind = span.u16(0)?;
        if cx.options.link_header {
            let name = ethertype::name(kind).unwrap_or("Unknown");
            let [first, second] = span.array(2)?;
            put!(cx, "Marvell EDSA ethertype 0x{kind:04x} ({name}), rsvd {first} {second}, ");
        } else {
            put!(cx, "EDSA 0x{kind:04x}, ");
        }
        print_tag(cx, Tag(span.array(4)?));
        Ok(())
    })?;
    Ok(())
}

/// The purpose of a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    ToCpu,
    FromCpu,
    ToSniffer,
    Forward,
}

/// The four bytes that both forms have.
#[derive(Clone, Copy)]
struct Tag([u8; TAG_LEN]);

impl Tag {
    fn mode(self) -> Mode {
        [Mode::ToCpu, Mode::FromCpu, Mode::ToSniffer, Mode::Forward][usize::from(self.0[0] >> 6)]
    }

    fn tagged(self) -> bool {
        self.0[0] & 0x20 != 0
    }

    fn device(self) -> u8 {
        self.0[0] & 0x1f
    }

    fn port(self) -> u8 {
        self.0[1] >> 3
    }

    /// In a forwarded frame: the port is a trunk's. In a sniffed one: it came in there.
    fn flag(self) -> bool {
        self.0[1] & 4 != 0
    }

    fn code(self) -> &'static str {
        let code = (self.0[1] & 6) | (self.0[2] >> 4 & 1);
        CODES[usize::from(code & 7)]
    }

    fn vlan(self) -> u16 {
        u16::from_be_bytes([self.0[2] & 0x0f, self.0[3]])
    }
}

fn print_tag(cx: &mut Context<'_>, tag: Tag) {
    let (device, port) = (tag.device(), tag.port());
    let trunk = if tag.flag() { "trunk" } else { "port" };
    if !cx.options.link_header {
        match tag.mode() {
            Mode::Forward => put!(cx, "Forward {trunk} {device}.{port}, "),
            Mode::FromCpu => put!(cx, "CPU > port {device}.{port}, "),
            Mode::ToCpu => put!(cx, "port {device}.{port} > CPU, "),
            Mode::ToSniffer => {
                put!(cx, "port {device}.{port} > {} Sniffer, ", if tag.flag() { "Rx" } else { "Tx" });
            }
        }
        put!(cx, "VLAN {}{}, ", tag.vlan(), if tag.tagged() { 't' } else { 'u' });
        return;
    }
    match tag.mode() {
        Mode::Forward => put!(cx, "mode Forward, dev {device}, {trunk} {port}, "),
        Mode::FromCpu => put!(cx, "mode From CPU, target dev {device}, port {port}, "),
        Mode::ToCpu => put!(cx, "mode To CPU, source dev {device}, port {port}, code {}, ", tag.code()),
        Mode::ToSniffer => {
            let sniff = if tag.flag() { "ingress" } else { "egress" };
            put!(cx, "mode To Sniffer, source dev {device}, port {port}, {sniff} sniff, ");
        }
    }
    cx.text(if tag.tagged() { "tagged, " } else { "untagged, " });
    cx.text(if tag.0[1] & 1 != 0 { "CFI, " } else { "" });
    put!(cx, "VID {}, FPri {}, ", tag.vlan(), tag.0[2] >> 5);
}
