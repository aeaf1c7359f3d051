//! Cisco Discovery Protocol.
//!
//! ```text
//! version 1 | time to live 1 | checksum 2 | (type 2, length 2 with this header, value)*
//! addresses = count 4, (protocol type 1, protocol length 1, protocol, address length 2, address)*
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put, put_bits};
use crate::text::Text;

const HEADER_LEN: usize = 4;

/// Text forms of values.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Addresses,
    Capability,
    Version,
    Prefixes,
    Undocumented,
    Number,
    Duplex,
    VoiceVlan,
    Power,
    Bytes4,
    Hex,
    Location,
}

/// One kind of field: type, name, form, least and greatest length.
const FIELDS: &[(u16, &str, Form, usize, usize)] = &[
    (0x01, "Device-ID", Form::Text, 0, usize::MAX),
    (0x02, "Address", Form::Addresses, 0, usize::MAX),
    (0x03, "Port-ID", Form::Text, 0, usize::MAX),
    (0x04, "Capability", Form::Capability, 4, 4),
    (0x05, "Version String", Form::Version, 0, usize::MAX),
    (0x06, "Platform", Form::Text, 0, usize::MAX),
    (0x07, "Prefixes", Form::Prefixes, 0, usize::MAX),
    (0x08, "Protocol-Hello option", Form::Undocumented, 0, usize::MAX),
    (0x09, "VTP Management Domain", Form::Text, 0, usize::MAX),
    (0x0a, "Native VLAN ID", Form::Number, 2, 2),
    (0x0b, "Duplex", Form::Duplex, 1, 1),
    (0x0e, "ATA-186 VoIP VLAN assignment", Form::VoiceVlan, 3, 3),
    (0x0f, "ATA-186 VoIP VLAN request", Form::VoiceVlan, 2, 3),
    (0x10, "power consumption", Form::Power, 1, 3),
    (0x11, "MTU", Form::Bytes4, 4, 4),
    (0x12, "AVVID trust bitmap", Form::Hex, 1, 1),
    (0x13, "AVVID untrusted ports CoS", Form::Hex, 1, 1),
    (0x14, "System Name", Form::Text, 0, usize::MAX),
    (0x15, "System Object ID (not decoded)", Form::Undocumented, 0, usize::MAX),
    (0x16, "Management Addresses", Form::Addresses, 4, usize::MAX),
    (0x17, "Physical Location", Form::Location, 1, usize::MAX),
];

const DEVICE_ID: u16 = 1;
/// Fields up to this kind are taken for known, even if they have no name.
const LAST_KIND: u16 = 0x17;

const CAPABILITIES: &[(u32, &str)] = &[
    (0x01, "Router"),
    (0x02, "Transparent Bridge"),
    (0x04, "Source Route Bridge"),
    (0x08, "L2 Switch"),
    (0x10, "L3 capable"),
    (0x20, "IGMP snooping"),
    (0x40, "L1 capable"),
];

/// One message: `CDPv1, ttl: 180s, Device-ID 'R1', length 278`; with `-v` all fields.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "cdp";
    if span.length < HEADER_LEN {
        put!(cx, " (packet length {} < {HEADER_LEN})", span.length);
        cx.invalid();
        return Ok(());
    }
    put!(cx, "CDPv{}, ttl: {}s", span.u8(0)?, span.u8(1)?);
    let checksum = span.u16(2)?;
    if cx.verbose() > 0 {
        put!(cx, ", checksum: 0x{checksum:04x} (unverified), length {}", span.length);
    }
    if let Some(rest) = print_fields(cx, span.skip(HEADER_LEN))? {
        cx.invalid();
        return rest.need(rest.length);
    }
    if cx.verbose() == 0 {
        put!(cx, ", length {}", span.length);
    }
    Ok(())
}

/// Prints the fields. The bytes that are left if a field does not fit.
fn print_fields<'p>(cx: &mut Context<'_>, mut rest: Span<'p>) -> Result<Option<Span<'p>>, Cut> {
    while rest.length > 0 {
        if rest.length < HEADER_LEN {
            put!(cx, " (remaining packet length {} < {HEADER_LEN})", rest.length);
            return Ok(Some(rest));
        }
        let (kind, length) = (rest.u16(0)?, usize::from(rest.u16(2)?));
        let field = FIELDS.iter().find(|(number, ..)| *number == kind);
        let name = field.map_or("unknown field type", |(_, name, ..)| name);
        if length < HEADER_LEN {
            if cx.verbose() > 0 {
                let plural = if length == 1 { "" } else { "s" };
                put!(cx, "\n\t{name} (0x{kind:02x}), TLV length: {length} byte{plural} (too short)");
            } else {
                put!(cx, ", {name} TLV length {length} too short");
            }
            return Ok(Some(rest));
        }
        if length > rest.length {
            put!(cx, " (TLV length {length} > {})", rest.length);
            return Ok(Some(rest));
        }
        let value = rest.skip(HEADER_LEN).with_length(length - HEADER_LEN);
        if cx.verbose() > 0 {
            let plural = if value.length == 1 { "" } else { "s" };
            put!(cx, "\n\t{name} (0x{kind:02x}), value length: {} byte{plural}: ", value.length);
        } else if kind == DEVICE_ID {
            put!(cx, ", {name} ");
        }
        let shown = cx.verbose() > 0 || kind == DEVICE_ID;
        let fits = field.is_none_or(|(.., min, max)| (*min..=*max).contains(&value.length));
        if !fits {
            cx.text(" (malformed TLV)");
        }
        match field {
            Some((_, _, form, ..)) if fits && shown => print_value(cx, *form, value)?,
            // Without `-v` version 4.99.3 shows the bytes of all fields; earlier and later ones do not.
            _ => {
                value.need(value.length)?;
                if cx.verbose() > 0 && (!fits || kind > LAST_KIND) {
                    cx.hex_lines("\n\t  ", value);
                }
            }
        }
        rest = rest.skip(length);
    }
    Ok(None)
}

/// Text up to where it is cut.
fn print_text(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let captured = value.length.min(value.captured());
    cx.visible_all(&value.data[..captured]);
    value.need(value.length)
}

fn print_value(cx: &mut Context<'_>, form: Form, value: Span<'_>) -> Printed {
    match form {
        Form::Text => {
            cx.text("'");
            print_text(cx, value)?;
            cx.text("'");
        }
        Form::Addresses => return print_addresses(cx, value),
        Form::Capability => {
            let bits = value.u32(0)?;
            put!(cx, "(0x{bits:08x}): ");
            put_bits(cx, CAPABILITIES, "none", ", ", bits);
        }
        Form::Version => return print_version(cx, value),
        Form::Prefixes => return print_prefixes(cx, value),
        Form::Undocumented => return value.need(value.length),
        Form::Number => put!(cx, "{}", value.u16(0)?),
        Form::Duplex => cx.text(if value.u8(0)? != 0 { "full" } else { "half" }),
        Form::VoiceVlan if value.length == 2 => put!(cx, "unknown 0x{:04x}", value.u16(0)?),
        Form::VoiceVlan => put!(cx, "app {}, vlan {}", value.u8(0)?, value.u16(1)?),
        Form::Power => {
            let bytes = value.bytes(0, value.length)?;
            let milliwatts = bytes.iter().fold(0_u32, |sum, &byte| sum << 8 | u32::from(byte));
            put!(cx, "{:.2}W", f64::from(milliwatts) / 1000.0);
        }
        Form::Bytes4 => put!(cx, "{} bytes", value.u32(0)?),
        Form::Hex => put!(cx, "0x{:02x}", value.u8(0)?),
        Form::Location => {
            put!(cx, "0x{:02x}", value.u8(0)?);
            if value.length > 1 {
                cx.text("/");
                print_text(cx, value.skip(1))?;
            }
        }
    }
    Ok(())
}

fn print_version(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    cx.text("\n\t  ");
    for at in 0..value.length {
        match value.u8(at)? {
            b'\n' => cx.text("\n\t  "),
            byte => cx.visible(byte),
        }
    }
    Ok(())
}

fn print_prefixes(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    if !value.length.is_multiple_of(5) {
        put!(cx, " [length {} is not a multiple of 5]", value.length);
        return value.need(value.length);
    }
    put!(cx, " IPv4 Prefixes ({}):", value.length / 5);
    for at in (0..value.length).step_by(5) {
        let (address, length) = (value.array(at)?, value.u8(at + 4)?);
        cx.text(" ");
        cx.ipv4(address);
        put!(cx, "/{length}");
    }
    Ok(())
}

/// An LLC and SNAP header that says IPv6.
const IPV6_PROTOCOL: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 0x86, 0xdd];

fn print_addresses(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    if value.length < 4 {
        cx.text(" (not enough space for num)");
        return value.need(value.length);
    }
    let mut left = value.u32(0)?;
    let mut rest = value.skip(4);
    while left > 0 {
        if rest.length < 2 {
            cx.text(" (not enough space for PT+PL)");
            return rest.need(rest.length);
        }
        let (kind, protocol_len) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        if rest.length < protocol_len + 4 {
            cx.text(" (not enough space for P+AL)");
            return rest.need(rest.length);
        }
        let protocol = rest.bytes(2, protocol_len)?;
        let address_len = usize::from(rest.u16(2 + protocol_len)?);
        let address = rest.skip(4 + protocol_len);
        if address.length < address_len {
            cx.text(" (not enough space for A)");
            return address.need(address.length);
        }
        match (kind, protocol, address_len) {
            (1, [0xcc], 4) => {
                put!(cx, "IPv4 ({left}) ");
                cx.ipv4(address.array(0)?);
            }
            (2, _, 16) if protocol == IPV6_PROTOCOL => {
                put!(cx, "IPv6 ({left}) ");
                cx.ipv6(address.array(0)?);
            }
            _ => {
                put!(cx, "pt=0x{kind:02x}, pl={protocol_len}, pb=");
                print_spaced(cx, protocol);
                put!(cx, ", al={address_len}, a=");
                print_spaced(cx, address.bytes(0, address_len)?);
            }
        }
        rest = address.skip(address_len);
        left -= 1;
        cx.text(if left > 0 { " " } else { "" });
    }
    if rest.length > 0 {
        put!(cx, " ({} bytes of stray data)", rest.length);
    }
    Ok(())
}

fn print_spaced(cx: &mut Context<'_>, bytes: &[u8]) {
    for &byte in bytes {
        cx.text(" ");
        cx.hex(byte, 2);
    }
}
