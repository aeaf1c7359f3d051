//! LSP ping (RFC 4379): whether a label switched path leads where its forwarding class says.
//!
//! ```text
//! version 2 | flags 2 | message 1 | reply mode 1 | return code 1, subcode 1 | handle 4 | sequence 4 | sent 8 | received 8
//! TLV: type 2 | length 2 | value, padded to four bytes; those of the forwarding class hold TLVs of the same form
//! ```

use std::net::Ipv4Addr;

use super::{enterprises, ntp};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HEADER_LEN: usize = 32;

const MESSAGES: &[(u8, &str)] = &[(1, "MPLS Echo Request"), (2, "MPLS Echo Reply")];

const REPLY_MODES: &[(u8, &str)] = &[
    (1, "Do not reply"),
    (2, "Reply via an IPv4/IPv6 UDP packet"),
    (3, "Reply via an IPv4/IPv6 UDP packet with Router Alert"),
    (4, "Reply via application level control channel"),
];

const RETURN_CODES: [&str; 14] = [
    "No return code or return code contained in the Error Code TLV",
    "Malformed echo request received",
    "One or more of the TLVs was not understood",
    "Replying router is an egress for the FEC at stack depth",
    "Replying router has no mapping for the FEC at stack depth",
    "Reserved",
    "Reserved",
    "Reserved",
    "Label switched at stack-depth",
    "Label switched but no MPLS forwarding at stack-depth",
    "Mapping for this FEC is not the given label at stack depth",
    "No label entry at stack-depth",
    "Protocol not associated with interface at FEC stack depth",
    "Premature termination of ping due to label stack shrinking to a single label",
];

const FORWARDING_CLASS: u16 = 1;
const DOWNSTREAM: u16 = 2;
const VENDOR: u16 = 5;
const DISCRIMINATOR: u16 = 15;

const TYPES: &[(u16, &str)] = &[
    (FORWARDING_CLASS, "Target FEC Stack"),
    (DOWNSTREAM, "Downstream Mapping"),
    (3, "Pad"),
    (VENDOR, "Vendor Enterprise Code"),
    (7, "Interface Label Stack"),
    (9, "Error Code"),
    (10, "Reply TOS Byte"),
    (DISCRIMINATOR, "BFD Discriminator"),
    (0xfc00, "Vendor Private Code"),
];

const CLASSES: &[(u16, &str)] = &[
    (1, "LDP IPv4 prefix"),
    (2, "LDP IPv6 prefix"),
    (3, "RSVP IPv4 Session Query"),
    (4, "RSVP IPv6 Session Query"),
    (5, "Reserved"),
    (6, "VPN IPv4 prefix"),
    (7, "VPN IPv6 prefix"),
    (8, "L2 VPN endpoint"),
    (9, "FEC 128 pseudowire (old)"),
    (10, "FEC 128 pseudowire"),
    (12, "BGP labeled IPv4 prefix"),
    (13, "BGP labeled IPv6 prefix"),
];

/// The only length that a class may have.
const CLASS_LENGTHS: &[(u16, usize)] =
    &[(1, 5), (2, 17), (3, 20), (4, 56), (6, 13), (7, 25), (8, 14), (9, 10), (10, 14), (12, 5), (13, 17)];

/// Pseudowire types (IANA, pwe3-parameters).
const PSEUDOWIRES: &[(u16, &str)] = &[
    (0x0000, "Reserved"),
    (0x0001, "Frame Relay DLCI (Martini Mode)"),
    (0x0002, "ATM AAL5 SDU VCC transport"),
    (0x0003, "ATM transparent cell transport"),
    (0x0004, "Ethernet VLAN"),
    (0x0005, "Ethernet"),
    (0x0006, "Cisco-HDLC"),
    (0x0007, "PPP"),
    (0x0008, "SONET/SDH Circuit Emulation Service over MPLS"),
    (0x0009, "ATM n-to-one VCC cell transport"),
    (0x000a, "ATM n-to-one VPC cell transport"),
    (0x000b, "IP Layer2 Transport"),
    (0x000c, "ATM one-to-one VCC Cell Mode"),
    (0x000d, "ATM one-to-one VPC Cell Mode"),
    (0x000e, "ATM AAL5 PDU VCC transport"),
    (0x000f, "Frame-Relay Port mode"),
    (0x0010, "SONET/SDH Circuit Emulation over Packet"),
    (0x0011, "Structure-agnostic E1 over Packet"),
    (0x0012, "Structure-agnostic T1 (DS1) over Packet"),
    (0x0013, "Structure-agnostic E3 over Packet"),
    (0x0014, "Structure-agnostic T3 (DS3) over Packet"),
    (0x0015, "CESoPSN basic mode"),
    (0x0016, "TDMoIP basic mode"),
    (0x0017, "CESoPSN TDM with CAS"),
    (0x0018, "TDMoIP TDM with CAS"),
    (0x0019, "Frame Relay DLCI"),
    (0x0040, "IP-interworking"),
];

const TOO_SHORT: &str = "\n\t      TLV is too short";

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "lspping";
    if span.length < HEADER_LEN {
        cx.text("\n\t\t packet is too short");
        return Ok(());
    }
    span.need(HEADER_LEN)?;
    let version = span.u16(0)?;
    if version != 1 {
        put!(cx, "LSP-PING version {version} packet not supported");
        return Ok(());
    }
    let message = span.u8(4)?;
    if cx.verbose() == 0 {
        match lookup(MESSAGES, message) {
            Some(name) => put!(cx, "LSP-PINGv1, {name}"),
            None => put!(cx, "LSP-PINGv1, unknown ({message})"),
        }
        put!(cx, ", seq {}, length: {}", span.u32(12)?, span.length);
        return Ok(());
    }
    header(cx, span)?;
    if !tlvs(cx, span.skip(HEADER_LEN))? {
        cx.text("\n\t\t packet is too short");
    }
    Ok(())
}

fn header(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let [message, mode, code, subcode] = span.array(4)?;
    let name = lookup(MESSAGES, message).unwrap_or("unknown");
    put!(cx, "\n\tLSP-PINGv1, msg-type: {name} ({message}), length: {}", span.length);
    put!(cx, "\n\t  reply-mode: {} ({mode})", lookup(REPLY_MODES, mode).unwrap_or("unknown"));
    let name = RETURN_CODES.get(usize::from(code)).copied().unwrap_or("unknown");
    put!(cx, "\n\t  Return Code: {name}");
    // These speak of the stack's depth, which is the subcode.
    if matches!(code, 3 | 4 | 8 | 10..=12) {
        put!(cx, " {subcode}");
    }
    put!(cx, " ({code})\n\t  Return Subcode: ({subcode})");
    put!(cx, "\n\t  Sender Handle: 0x{:08x}, Sequence: {}", span.u32(8)?, span.u32(12)?);
    cx.text("\n\t  Sender Timestamp: ");
    ntp::print_timestamp(cx, span.u64(16)?);
    cx.text(" Receiver Timestamp: ");
    match span.u64(24)? {
        0 => cx.text("no timestamp"),
        received => ntp::print_timestamp(cx, received),
    }
    Ok(())
}

/// `false` if they go past the packet.
fn tlvs(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    while rest.length != 0 {
        if rest.length < 4 {
            return Ok(false);
        }
        let (kind, length) = (rest.u16(0)?, usize::from(rest.u16(2)?));
        put!(cx, "\n\t  {} TLV ({kind}), length: {length}", lookup(TYPES, kind).unwrap_or("Unknown"));
        if rest.length < length + 4 {
            return Ok(false);
        }
        let value = rest.skip(4).with_length(length);
        value.need(length)?;
        if length != 0 {
            let Some(show) = tlv(cx, value.limit(length), value, kind)? else { return Ok(true) };
            if cx.verbose() > 1 || show {
                cx.hex_lines("\n\t    ", value);
            }
        }
        let size = 4 + length.next_multiple_of(4);
        if rest.length < size {
            return Ok(false);
        }
        rest = rest.skip(size);
    }
    Ok(true)
}

/// Whether the value's bytes are to be shown; `None` ends the message's text. `beyond` goes on behind the value.
fn tlv(cx: &mut Context<'_>, value: Span<'_>, beyond: Span<'_>, kind: u16) -> Result<Option<bool>, Cut> {
    match kind {
        FORWARDING_CLASS => return classes(cx, beyond),
        DOWNSTREAM => {
            downstream(cx, value)?;
            return Ok(Some(true));
        }
        DISCRIMINATOR | VENDOR if value.length < 4 => {
            cx.text(TOO_SHORT);
            return Ok(Some(true));
        }
        DISCRIMINATOR => put!(cx, "\n\t    BFD Discriminator 0x{:08x}", value.u32(0)?),
        VENDOR => {
            let vendor = value.u32(0)?;
            let name = lookup(enterprises::NAMES, vendor).unwrap_or("Unknown");
            put!(cx, "\n\t    Vendor: {name} (0x{vendor:04x})");
        }
        _ if cx.verbose() <= 1 => cx.hex_lines("\n\t    ", value),
        _ => {}
    }
    Ok(Some(false))
}

/// tcpdump skips the values of these TLVs, not their headers, so a second one is read four bytes too early.
fn classes(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<bool>, Cut> {
    let (mut rest, mut left) = (span, span.length);
    while left != 0 {
        if left < 4 {
            cx.text(TOO_SHORT);
            return Ok(Some(true));
        }
        let (kind, length) = (rest.u16(0)?, usize::from(rest.u16(2)?));
        if left < length + 4 {
            cx.text(TOO_SHORT);
            return Ok(Some(true));
        }
        let value = rest.skip(4).with_length(length);
        value.need(length)?;
        let name = lookup(CLASSES, kind).unwrap_or("Unknown");
        put!(cx, "\n\t    {name} subTLV ({kind}), length: {length}");
        let expected = CLASS_LENGTHS.iter().find(|(class, _)| *class == kind).map(|(_, length)| *length);
        let known = expected == Some(length);
        match expected {
            Some(_) if known => class(cx, value, kind)?,
            Some(expected) => put!(cx, "\n\t      invalid subTLV length, should be {expected}"),
            None => {}
        }
        if cx.verbose() > 1 || !known {
            cx.hex_lines("\n\t      ", value);
        }
        let padded = length.next_multiple_of(4);
        if left < padded + 4 {
            cx.text("\n\t\t TLV is too short");
            return Ok(None);
        }
        rest = rest.skip(padded);
        left -= padded + 4;
    }
    Ok(Some(false))
}

fn class(cx: &mut Context<'_>, value: Span<'_>, kind: u16) -> Printed {
    cx.text("\n\t      ");
    match kind {
        1 | 12 => prefix(cx, value, 4),
        2 | 13 => prefix(cx, value, 16),
        3 => session(cx, value, 4),
        4 => session(cx, value, 16),
        6 => {
            route(cx, value)?;
            prefix(cx, value.skip(8), 4)
        }
        7 => {
            route(cx, value)?;
            prefix(cx, value.skip(8), 16)
        }
        8 => {
            route(cx, value)?;
            let (sender, receiver) = (value.u16(8)?, value.u16(10)?);
            put!(cx, "Sender VE ID: {sender}, Receiver VE ID: {receiver}\n\t      Encapsulation Type: ");
            pseudowire(cx, value.u16(12)?);
            Ok(())
        }
        9 => {
            cx.text("Remote PE: ");
            put_address(cx, value, 4)?;
            put!(cx, "\n\t      PW ID: 0x{:08x}, PW Type: ", value.u32(4)?);
            pseudowire(cx, value.u16(8)?);
            Ok(())
        }
        _ => {
            cx.text("Sender PE: ");
            put_address(cx, value, 4)?;
            cx.text(", Remote PE: ");
            put_address(cx, value.skip(4), 4)?;
            put!(cx, "\n\t      PW ID: 0x{:08x}, PW Type: ", value.u32(8)?);
            pseudowire(cx, value.u16(12)?);
            Ok(())
        }
    }
}

fn put_address(cx: &mut Context<'_>, span: Span<'_>, len: usize) -> Printed {
    let address = match len {
        4 => span.array::<4>(0)?.into(),
        _ => span.array::<16>(0)?.into(),
    };
    cx.host(address);
    Ok(())
}

fn prefix(cx: &mut Context<'_>, value: Span<'_>, address_len: usize) -> Printed {
    put_address(cx, value, address_len)?;
    put!(cx, "/{}", value.u8(address_len)?);
    Ok(())
}

/// A session of RSVP: end point, 0 2, tunnel 2, extended tunnel, sender, 0 2, path 2.
fn session(cx: &mut Context<'_>, value: Span<'_>, address_len: usize) -> Printed {
    cx.text("tunnel end-point ");
    put_address(cx, value, address_len)?;
    cx.text(", tunnel sender ");
    put_address(cx, value.skip(address_len * 2 + 4), address_len)?;
    put!(cx, ", lsp-id 0x{:04x}", value.u16(address_len * 3 + 6)?);
    put!(cx, "\n\t      tunnel-id 0x{:04x}, extended tunnel-id ", value.u16(address_len + 2)?);
    put_address(cx, value.skip(address_len + 4), address_len)
}

/// A route distinguisher (RFC 4364, 4.2).
fn route(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    cx.text("RD: ");
    match value.u16(0)? {
        0 => {
            let number = value.u32(4)?;
            put!(cx, "{}:{number} (= {})", value.u16(2)?, Ipv4Addr::from(number));
        }
        1 => put!(cx, "{}:{}", Ipv4Addr::from(value.u32(2)?), value.u16(6)?),
        2 => {
            let (system, number) = (value.u32(2)?, value.u16(6)?);
            put!(cx, "{system}:{number} ({}:{number})", Ipv4Addr::from(system));
        }
        _ => cx.text("unknown RD format"),
    }
    cx.text(", ");
    Ok(())
}

fn pseudowire(cx: &mut Context<'_>, kind: u16) {
    put!(cx, "{} ({kind})", lookup(PSEUDOWIRES, kind).unwrap_or("unknown"));
}

/// A neighbor: MTU 2, address type 1, flags 1, address, interface, and the way to distinguish paths.
fn downstream(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    if value.length < 4 {
        cx.text(TOO_SHORT);
        return Ok(());
    }
    let kind = value.u8(2)?;
    let names = [(1, "IPv4"), (2, "Unnumbered IPv4"), (3, "IPv6"), (4, "IPv6")];
    let name = lookup(&names, kind).unwrap_or("unknown");
    put!(cx, "\n\t    MTU: {}, Address-Type: {name} ({kind})", value.u16(0)?);
    let (address_len, interface_len) = match kind {
        1 => (4, 4),
        2 => (4, 0),
        3 => (16, 16),
        4 => (16, 0),
        _ => return Ok(()),
    };
    let size = 4 + address_len + if interface_len == 0 { 4 } else { interface_len };
    if value.length < size {
        cx.text(TOO_SHORT);
        return Ok(());
    }
    cx.text("\n\t    Downstream IP: ");
    put_address(cx, value.skip(4), address_len)?;
    cx.text("\n\t    Downstream Interface ");
    let interface = value.skip(4 + address_len);
    if interface_len == 0 {
        put!(cx, "Index: 0x{:08x}", interface.u32(0)?);
    } else {
        cx.text("IP: ");
        put_address(cx, interface, interface_len)?;
    }
    if value.length < size + 4 {
        cx.text(TOO_SHORT);
    }
    Ok(())
}
