//! The options of a DHCP message as text, one a line: `Lease-Time (51), length 4: 3600`.

use super::tables::{AGENT_OPTIONS, Form, HARDWARE_TYPES, MESSAGE_TYPES, NODE_TYPES, OVERLOADS, option};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const PAD: u8 = 0;
const END: u8 = 255;

/// The magic and the options behind it.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    put!(cx, "\n\t  Vendor-rfc1048 Extensions\n\t    Magic Cookie 0x{:08x}", span.u32(0)?);
    let mut at = 4;
    while let Ok(code) = span.u8(at) {
        at += 1;
        match code {
            PAD if cx.verbose() < 3 => continue,
            END if cx.verbose() < 3 => break,
            PAD => at = print_padding(cx, span, at),
            END => put!(cx, "\n\t    END (255), length 0"),
            _ => at = print_option(cx, span, at, code)?,
        }
    }
    Ok(())
}

/// Padding from `at - 1` on; where it ends.
fn print_padding(cx: &mut Context<'_>, span: Span<'_>, at: usize) -> usize {
    put!(cx, "\n\t    PAD (0), length 0");
    let more = span.skip(at).data.iter().take_while(|&&byte| byte == PAD).count();
    if more > 0 {
        put!(cx, ", occurs {}", more + 1);
    }
    at + more
}

/// Prints the option whose length is at `at`. Returns the start of the next one.
fn print_option(cx: &mut Context<'_>, span: Span<'_>, at: usize, code: u8) -> Result<usize, Cut> {
    let length = usize::from(span.u8(at)?);
    let (name, form) = option(code, length);
    put!(cx, "\n\t    {name} ({code}), length {length}{}", if length > 0 { ": " } else { "" });
    let value = span.bytes(at + 1, length)?;
    let left = print_value(cx, form, value);
    if left > 0 {
        put!(cx, "\n\t  trailing data length {left}");
    }
    Ok(at + 1 + length)
}

/// The value of an option; how many of its bytes are left over.
fn print_value(cx: &mut Context<'_>, form: Form, value: &[u8]) -> usize {
    match form {
        Form::Bytes => return print_bytes(cx, value),
        Form::Shorts => {
            print_list(cx, value.chunks_exact(2), |cx, v| cx.dec(u16::from_be_bytes([v[0], v[1]])));
            return value.len() % 2;
        }
        Form::Longs => {
            print_list(cx, value.chunks_exact(4), |cx, v| cx.dec(long(v)));
            return value.len() % 4;
        }
        Form::SignedLongs => {
            print_list(cx, value.chunks_exact(4), |cx, v| put!(cx, "{}", long(v) as i32));
            return value.len() % 4;
        }
        Form::Addresses => {
            print_list(cx, value.chunks_exact(4), address);
            return value.len() % 4;
        }
        Form::Pairs => {
            print_list(cx, value.chunks_exact(8), print_pair);
            return value.len() % 8;
        }
        Form::Flags => print_list(cx, value.chunks_exact(1), |cx, v| match v[0] {
            0 => cx.text("N"),
            1 => cx.text("Y"),
            other => put!(cx, "{other}?"),
        }),
        Form::Text => print_quoted(cx, value),
        Form::MessageType => return print_message_type(cx, value),
        Form::OptionList => print_option_list(cx, value),
        Form::NodeType => return print_named(cx, value, NODE_TYPES),
        Form::Overload => return print_named(cx, value, OVERLOADS),
        Form::Fqdn => print_fqdn(cx, value),
        Form::ClientId => print_client_id(cx, value),
        Form::Agent => return print_agent(cx, value),
        Form::Routes => print_routes(cx, value),
        Form::UserClass => print_user_class(cx, value),
        Form::Redirect => return print_redirect(cx, value),
        Form::None => return value.len(),
    }
    0
}

fn long(value: &[u8]) -> u32 {
    value.first_chunk().copied().map_or(0, u32::from_be_bytes)
}

fn address(cx: &mut Context<'_>, value: &[u8]) {
    cx.host(long(value).to_be_bytes().into());
}

fn print_list<'v>(
    cx: &mut Context<'_>,
    values: impl Iterator<Item = &'v [u8]>,
    print: impl Fn(&mut Context<'_>, &'v [u8]),
) {
    for (index, value) in values.enumerate() {
        cx.text(if index > 0 { "," } else { "" });
        print(cx, value);
    }
}

fn print_bytes(cx: &mut Context<'_>, value: &[u8]) -> usize {
    for (index, byte) in value.iter().enumerate() {
        cx.text(if index > 0 { "." } else { "" });
        cx.dec(*byte);
    }
    0
}

fn print_pair(cx: &mut Context<'_>, value: &[u8]) {
    cx.text("(");
    address(cx, value);
    cx.text(":");
    address(cx, &value[4..]);
    cx.text(")");
}

fn print_quoted(cx: &mut Context<'_>, value: &[u8]) {
    cx.text("\"");
    cx.visible_all(value);
    cx.text("\"");
}

fn print_message_type(cx: &mut Context<'_>, value: &[u8]) -> usize {
    match value {
        [kind] => match lookup(MESSAGE_TYPES, *kind) {
            Some(name) => cx.text(name),
            None => put!(cx, "Unknown ({kind})"),
        },
        _ => return print_bytes(cx, value),
    }
    0
}

/// Four to a line.
fn print_option_list(cx: &mut Context<'_>, value: &[u8]) {
    for (index, &code) in value.iter().enumerate() {
        cx.text(if index % 4 == 0 { "\n\t      " } else { ", " });
        put!(cx, "{} ({code})", option(code, 0).0);
    }
}

/// A number of one byte with a name; how many bytes follow it.
fn print_named(cx: &mut Context<'_>, value: &[u8], table: &[(u8, &'static str)]) -> usize {
    let Some((&number, rest)) = value.split_first() else {
        cx.text("[ERROR: length < 1 bytes]");
        return 0;
    };
    match lookup(table, number) {
        Some(name) => cx.text(name),
        None => put!(cx, "#{number}"),
    }
    rest.len()
}

/// Flags, two response codes that are no longer used, a name (RFC 4702).
fn print_fqdn(cx: &mut Context<'_>, value: &[u8]) {
    let &[flags, code1, code2, ref name @ ..] = value else {
        return cx.text("[ERROR: length < 3 bytes]");
    };
    if flags & 0xf0 != 0 {
        put!(cx, "[ERROR: MBZ nibble {:#x} != 0] ", flags >> 4);
    }
    if flags & 0x0f != 0 {
        cx.text("[");
        for (bit, letter) in [(1, "S"), (2, "O"), (4, "E"), (8, "N")] {
            cx.text(if flags & bit != 0 { letter } else { "" });
        }
        cx.text("] ");
    }
    if code1 != 0 || code2 != 0 {
        put!(cx, "{code1}/{code2} ");
    }
    print_quoted(cx, name);
}

/// A hardware type and an address, or characters (RFC 2132, 9.14).
fn print_client_id(cx: &mut Context<'_>, value: &[u8]) {
    match value {
        [] => cx.text("[ERROR: length < 1 bytes]"),
        [0, text @ ..] => print_quoted(cx, text),
        [kind, address @ ..] => {
            match lookup(HARDWARE_TYPES, *kind) {
                Some(name) => put!(cx, "{name} "),
                None => put!(cx, "hardware-type {kind}, "),
            }
            cx.colon_hex(address);
        }
    }
}

/// Prints the relay agent's sub-options (RFC 3046). The number of bytes left over.
fn print_agent(cx: &mut Context<'_>, mut value: &[u8]) -> usize {
    while let [code, length, rest @ ..] = value {
        let (code, length) = (*code, usize::from(*length));
        let name = lookup(AGENT_OPTIONS, code);
        put!(cx, "\n\t      {} SubOption {code}, length {length}: ", name.unwrap_or("Unknown"));
        let Some((inner, after)) = rest.split_at_checked(length) else {
            cx.text("length goes past end of option");
            return 0;
        };
        match name {
            Some(_) => cx.visible_all(inner),
            None => cx.hex_lines("\n\t\t", Span::whole(inner)),
        }
        value = after;
    }
    value.len()
}

/// Prefix length, as many bytes of prefix as it needs, router (RFC 3442).
fn print_routes(cx: &mut Context<'_>, mut value: &[u8]) {
    if value.len() < 5 {
        return cx.text("[ERROR: length < 5 bytes]");
    }
    let mut separator = "";
    while let [width, rest @ ..] = value {
        cx.text(separator);
        separator = ",";
        if *width > 32 {
            return put!(cx, "[ERROR: Mask width ({width}) > 32]");
        }
        let octets = usize::from(width.div_ceil(8));
        let Some((route, after)) = rest.split_at_checked(octets + 4) else {
            return put!(cx, "[ERROR: Remaining length ({}) < {} bytes]", rest.len(), octets + 4);
        };
        let (prefix, router) = route.split_at(octets);
        cx.text("(");
        if *width == 0 {
            cx.text("default");
        } else {
            let mut address = [0; 4];
            address[..octets].copy_from_slice(prefix);
            cx.ipv4(address);
            put!(cx, "/{width}");
        }
        cx.text(":");
        address(cx, router);
        cx.text(")");
        value = after;
    }
}

/// Length and text of each class (RFC 3004).
fn print_user_class(cx: &mut Context<'_>, mut value: &[u8]) {
    if value.len() < 2 {
        return cx.text("[ERROR: length < 2 bytes]");
    }
    let mut number = 1;
    while let [length, rest @ ..] = value {
        put!(cx, "\n\t      instance#{number}: ");
        if *length == 0 {
            return cx.text("[ERROR: suboption length must be non-zero]");
        }
        let Some((text, after)) = rest.split_at_checked(usize::from(*length)) else {
            return cx.text("[ERROR: invalid option]");
        };
        print_quoted(cx, text);
        put!(cx, ", length {length}");
        number += 1;
        value = after;
    }
}

/// Length (16 bits) and text of each address (RFC 8572); how many bytes are left over.
fn print_redirect(cx: &mut Context<'_>, mut value: &[u8]) -> usize {
    while let [high, low, rest @ ..] = value {
        let length = u16::from_be_bytes([*high, *low]);
        put!(cx, "\n\t\t    length {length}: ");
        let Some((text, after)) = rest.split_at_checked(usize::from(length)) else {
            cx.text("length goes past end of option");
            return 0;
        };
        print_quoted(cx, text);
        value = after;
    }
    if !value.is_empty() {
        cx.text("[ERROR: length < 2 bytes]");
    }
    value.len()
}
