//! RADIUS (RFC 2865), its accounting (RFC 2866) and dynamic authorization (RFC 5176).
//!
//! ```text
//! code 1 | identifier 1 | length 2 | authenticator 16 | (type 1, length 1 with both, value)*
//! ```

mod tables;

use super::{eap, enterprises, ntp};
use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::hexdump;
use crate::text::Text;
use tables::{ATTRIBUTES, CODES, ERROR_CAUSES, Form, LOCATION_FLAGS, MOBILITY_FEATURES, VLAN_TAGGING};

const HEADER_LEN: usize = 20;

/// One packet: `RADIUS, Access-Request (1), id: 0x05 length: 139`; with `-v` its authenticator and attributes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "radius";
    if span.captured() < HEADER_LEN || span.u16(2)? < HEADER_LEN as u16 {
        cx.cut();
        return Ok(());
    }
    let length = usize::from(span.u16(2)?).min(span.length);
    let code = span.u8(0)?;
    let name = lookup(CODES, code).unwrap_or("Unknown Command");
    if cx.verbose() == 0 {
        put!(cx, "RADIUS, {name} ({code}), id: 0x{:02x} length: {length}", span.u8(1)?);
        return Ok(());
    }
    put!(cx, "RADIUS, length: {length}\n\t{name} ({code}), id: 0x{:02x}, Authenticator: ", span.u8(1)?);
    for &byte in span.bytes(4, 16)? {
        cx.hex(byte, 2);
    }
    print_attributes(cx, span.limit(length).skip(HEADER_LEN))
}

fn print_attributes(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    while rest.length > 0 {
        if rest.length < 2 || rest.captured() < 2 {
            cx.cut();
            return Ok(());
        }
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let attribute = ATTRIBUTES.iter().find(|(number, ..)| *number == kind);
        let name = attribute.map_or("Unknown", |(_, name, _)| name);
        put!(cx, "\n\t  {name} Attribute ({kind}), length: {length}");
        if length < 2 {
            cx.text(" (bogus, must be >= 2)");
            return Ok(());
        }
        if length > rest.length {
            cx.text(" (bogus, goes past end of packet)");
            return Ok(());
        }
        cx.text(", Value: ");
        let value = rest.skip(2).limit(length - 2);
        if let (Some((.., form)), 1..) = (attribute, value.length) {
            print_value(cx, *form, value)?;
        }
        if cx.verbose() > 1 {
            cx.hex_lines("\n\t    ", value);
        }
        rest = rest.skip(length);
    }
    Ok(())
}

fn print_value(cx: &mut Context<'_>, form: Form, value: Span<'_>) -> Printed {
    let needed = match form {
        Form::Number | Form::Network | Form::Named(_) | Form::TaggedNamed(_) | Form::Duration => 4,
        Form::NumberOr(_) | Form::TaggedNumber | Form::Vlan => 4,
        Form::Address | Form::Host | Form::Time | Form::Cause => 4,
        Form::MobilityFeatures => 8,
        Form::AppleTalkFeatures => 14,
        Form::Address6 | Form::AppleTalkPassword => 16,
        Form::HomePrefix6 => 17,
        _ => value.length,
    };
    if value.length != needed {
        let word = if matches!(form, Form::Cause) { "Error" } else { "ERROR" };
        put!(cx, "{word}: length {} != {needed}", value.length);
        return Ok(());
    }
    match form {
        Form::Hidden => {}
        Form::Text | Form::Tagged | Form::Password | Form::VlanName | Form::Eap => {
            print_string(cx, form, value)?;
        }
        Form::Network if value.u32(0)? == 0xffff_fffe => cx.text("NAS Select"),
        Form::NumberOr(word) if value.u32(0)? == 0 => cx.text(word),
        Form::Number | Form::Network | Form::NumberOr(_) => put!(cx, "{}", value.u32(0)?),
        Form::Named(names) => print_name(cx, names, value.u32(0)?),
        Form::TaggedNamed(names) => {
            print_tag(cx, value.u8(0)?);
            print_name(cx, names, value.u24(1)?);
        }
        Form::TaggedNumber => {
            print_tag(cx, value.u8(0)?);
            put!(cx, "{}", value.u24(1)?);
        }
        Form::Vlan => {
            print_vlan_tagging(cx, value.u8(0)?);
            put!(cx, "{}", value.u24(1)?);
        }
        Form::Duration => print_duration(cx, value.u32(0)?),
        Form::Address => print_address(cx, value.array(0)?),
        Form::Host => cx.host(value.array::<4>(0)?.into()),
        Form::Address6 => cx.host(value.array::<16>(0)?.into()),
        Form::Time => {
            if let Ok(time) = jiff::Timestamp::from_second(i64::from(value.u32(0)?)) {
                put!(cx, "{}", time.strftime("%a %b %e %H:%M:%S %Y"));
            }
        }
        Form::Cause => {
            let cause = value.u32(0)?;
            put!(cx, "Error cause {cause}: ");
            match lookup(ERROR_CAUSES, cause) {
                Some(name) => cx.text(name),
                None => put!(cx, "Error-Cause {cause} not known"),
            }
        }
        Form::Vendor => print_vendor(cx, value)?,
        Form::MobilityFeatures => {
            cx.text("[");
            print_mobility_features(cx, value.u64(0)?);
            cx.text("]");
        }
        Form::AppleTalkPassword => {
            cx.text("User_challenge (");
            print_hex(cx, value, 0, 8)?;
            cx.text(") User_resp(");
            print_hex(cx, value, 8, 8)?;
            cx.text(")");
        }
        Form::AppleTalkFeatures => {
            let can = if value.u8(0)? != 0 { "can" } else { "cannot" };
            put!(cx, "User {can} change password");
            put!(cx, ", Min password length: {}", value.u8(1)?);
            for (name, at) in [(", created at: ", 2), (", expires in: ", 6), (", Current Time: ", 10)] {
                cx.text(name);
                print_hex(cx, value, at, 4)?;
            }
        }
        Form::AppleTalkChallenge if value.length < 8 => put!(cx, "ERROR: length {} != 8", value.length),
        Form::AppleTalkChallenge => print_hex(cx, value, 0, 8)?,
        Form::Prefix6 if !(2..=18).contains(&value.length) => {
            put!(cx, "ERROR: length {} not in range (2..18)", value.length);
        }
        _ if value.need(value.length).is_err() => cx.cut(),
        Form::Prefix6 => print_prefix6(cx, value)?,
        Form::HomePrefix6 => match value.u8(0)? {
            bits @ 0..=128 => {
                cx.host(value.array::<16>(1)?.into());
                put!(cx, "/{bits}");
            }
            bits => put!(cx, "ERROR: netmask {bits} not in range (0..128)"),
        },
        Form::Operator | Form::Location | Form::LocationData | Form::LocationRules => {
            print_place(cx, form, value)?;
        }
    }
    Ok(())
}

/// Text, with its prefix.
fn print_string(cx: &mut Context<'_>, form: Form, mut value: Span<'_>) -> Printed {
    if value.need(value.length).is_err() {
        cx.cut();
        return Ok(());
    }
    match form {
        Form::Eap => return eap::print(cx, value),
        Form::Tagged if value.u8(0)? < 0x20 => {
            print_tag(cx, value.u8(0)?);
            value = value.skip(1);
        }
        Form::Password if value.length < 3 => {
            cx.cut();
            return Ok(());
        }
        Form::Password => {
            let tag = value.u8(0)?;
            print_tag(cx, if tag < 0x20 { tag } else { 0 });
            put!(cx, "Salt {} ", value.u16(1)?);
            value = value.skip(3);
        }
        Form::VlanName => {
            print_vlan_tagging(cx, value.u8(0)?);
            value = value.skip(1);
        }
        _ => {}
    }
    print_text(cx, value.data);
    Ok(())
}

fn print_vlan_tagging(cx: &mut Context<'_>, tagging: u8) {
    put!(cx, "{} (0x{tagging:02x}) ", lookup(VLAN_TAGGING, tagging).unwrap_or("Unknown tag"));
}

fn print_mobility_features(cx: &mut Context<'_>, features: u64) {
    let mut separator = "";
    for (bit, name) in MOBILITY_FEATURES {
        if features & bit != 0 {
            put!(cx, "{separator}{name}");
            separator = ", ";
        }
    }
}

/// Bytes in hexadecimal, up to where they were cut.
fn print_hex(cx: &mut Context<'_>, value: Span<'_>, at: usize, length: usize) -> Printed {
    for index in at..at + length {
        put!(cx, "{:02X}", value.u8(index)?);
    }
    Ok(())
}

fn print_prefix6(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let length = value.length;
    let bits = value.u8(1)?;
    if bits > 128 {
        put!(cx, "ERROR: netmask {bits} not in range (0..128)");
        return Ok(());
    }
    let prefix = value.bytes(2, length - 2)?;
    let address: [u8; 16] = std::array::from_fn(|index| prefix.get(index).copied().unwrap_or(0));
    cx.host(address.into());
    put!(cx, "/{bits}");
    cx.text(if usize::from(bits) > 8 * (length - 2) { " (inconsistent prefix length)" } else { "" });
    Ok(())
}

/// Attributes of a place (RFC 5580).
fn print_place(cx: &mut Context<'_>, form: Form, value: Span<'_>) -> Printed {
    let least = match form {
        Form::Operator => 2,
        Form::Location => 21,
        Form::LocationData => 3,
        _ => 10,
    };
    if value.length < least {
        put!(cx, "ERROR: length {} < {least}", value.length);
        return Ok(());
    }
    match form {
        Form::Operator => {
            let space = value.u8(0)?;
            match lookup(&[(0x30, "TADIG"), (0x31, "REALM"), (0x32, "E212"), (0x33, "ICC")], space) {
                Some(name) => put!(cx, "[{name}] "),
                None => put!(cx, "[unknown namespace {space}] "),
            }
            cx.visible_all(value.bytes(1, value.length - 1)?);
        }
        Form::Location => {
            put!(cx, "index {}", value.u16(0)?);
            for (name, names, number) in [
                ("code", ["Civic", "Geospatial"], value.u8(2)?),
                ("entity", ["User", "RADIUS"], value.u8(3)?),
            ] {
                match names.get(usize::from(number)) {
                    Some(text) => put!(cx, ", {name} {text}"),
                    None => put!(cx, ", {name} Unknown ({number})"),
                }
            }
            cx.text(", sighting time ");
            ntp::print_timestamp(cx, value.u64(4)?);
            cx.text(", time to live ");
            ntp::print_timestamp(cx, value.u64(12)?);
            cx.text(", method \"");
            cx.visible_all(value.bytes(20, value.length - 20)?);
            cx.text("\"");
        }
        Form::LocationData => {
            put!(cx, "index {}, location", value.u16(0)?);
            hexdump::hex_and_ascii(cx.out, b"\n\t    ", value.bytes(2, value.length - 2)?, 0);
        }
        _ => {
            cx.text("flags [");
            put_bits(cx, LOCATION_FLAGS, "none", ", ", u32::from(value.u16(0)?));
            cx.text("], retention expires ");
            ntp::print_timestamp(cx, value.u64(2)?);
            if value.length > 10 {
                cx.text(", note well \"");
                cx.visible_all(value.bytes(10, value.length - 10)?);
                cx.text("\"");
            }
        }
    }
    Ok(())
}

/// Prints up to a NUL; a dot replaces each unprintable byte.
fn print_text(cx: &mut Context<'_>, text: &[u8]) {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    print_characters(cx, &text[..end]);
}

fn print_characters(cx: &mut Context<'_>, text: &[u8]) {
    for &byte in text {
        cx.raw(&[if (0x20..0x7f).contains(&byte) { byte } else { b'.' }]);
    }
}

fn print_tag(cx: &mut Context<'_>, tag: u8) {
    match tag {
        0 => cx.text("Tag[Unused] "),
        _ => put!(cx, "Tag[{tag}] "),
    }
}

fn print_name(cx: &mut Context<'_>, names: &[&str], value: u32) {
    match usize::try_from(value).ok().and_then(|index| names.get(index)) {
        Some(name) if !name.is_empty() => cx.text(name),
        _ => put!(cx, "#{value}"),
    }
}

fn print_duration(cx: &mut Context<'_>, seconds: u32) {
    let (hours, minutes) = (seconds / 3600, seconds / 60);
    match seconds {
        0..60 => put!(cx, "{seconds:02} secs"),
        60..3600 => put!(cx, "{minutes:02}:{:02} min", seconds % 60),
        _ => put!(cx, "{hours:02}:{:02}:{:02} hours", minutes % 60, seconds % 60),
    }
}

/// The two highest addresses leave the choice to others (RFC 2865, 5.8).
fn print_address(cx: &mut Context<'_>, address: [u8; 4]) {
    match address {
        [0xff, 0xff, 0xff, 0xff] => cx.text("User Selected"),
        [0xff, 0xff, 0xff, 0xfe] => cx.text("NAS Select"),
        _ => cx.host(address.into()),
    }
}

/// Number of the vendor 4, (type 1, length 1 with both, value)*.
fn print_vendor(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    if value.length < 4 {
        cx.cut();
        return Ok(());
    }
    let vendor = value.u32(0)?;
    put!(cx, "Vendor: {} ({vendor})", lookup(enterprises::NAMES, vendor).unwrap_or("Unknown"));
    let mut rest = value.skip(4);
    while rest.length >= 2 {
        let (kind, length) = (rest.u8(0)?, usize::from(rest.u8(1)?));
        let fault = match length {
            0 | 1 => Some("must be >= 2"),
            _ if length > rest.length => Some("goes past end of vendor-specific attribute"),
            _ => None,
        };
        if let Some(fault) = fault {
            put!(cx, "\n\t    Vendor Attribute: {kind}, Length: {length} (bogus, {fault})");
            return Ok(());
        }
        let Ok(text) = rest.bytes(2, length - 2) else {
            cx.cut();
            return Ok(());
        };
        put!(cx, "\n\t    Vendor Attribute: {kind}, Length: {}, Value: ", length - 2);
        print_characters(cx, text);
        rest = rest.skip(length);
    }
    Ok(())
}
