//! BOOTP and DHCP messages: the header, and the options that people ask for.

use super::walk::Walk;
use super::write::Writer;
use crate::app::dhcp::tables::MESSAGE_TYPES;
use crate::app::dhcp::{MAGIC, VENDOR};
use crate::bytes::{Printed, Span};
use crate::context::lookup;

/// Forms of option values.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Address,
    Addresses,
    Number,
    Mac,
    Codes,
}

/// Options with a key: code, key, form.
const OPTIONS: [(u8, &str, Form); 17] = [
    (1, "subnet_mask", Form::Address),
    (3, "routers", Form::Addresses),
    (6, "dns_servers", Form::Addresses),
    (12, "hostname", Form::Text),
    (15, "domain", Form::Text),
    (42, "ntp_servers", Form::Addresses),
    (50, "requested_ip", Form::Address),
    (51, "lease_time", Form::Number),
    (54, "server_id", Form::Address),
    (55, "requested_options", Form::Codes),
    (56, "message", Form::Text),
    (58, "renewal_time", Form::Number),
    (59, "rebinding_time", Form::Number),
    (60, "vendor_class", Form::Text),
    (61, "client_id", Form::Mac),
    (66, "tftp_server", Form::Text),
    (67, "boot_file", Form::Text),
];

const MESSAGE_TYPE: u8 = 53;

pub(super) fn message(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("dhcp", |json| {
        let operation = span.u8(0)?;
        json.number_field("op", operation);
        json.text_field("op_name", if operation == 1 { b"request" } else { b"reply" });
        let hardware_len = usize::from(span.u8(2)?).min(16);
        json.hex_field("transaction", span.u32(4)?, 8);
        json.number_field("seconds", span.u16(8)?);
        json.boolean_field("broadcast", span.u16(10)? & 0x8000 != 0);
        for (name, at) in [("client_ip", 12), ("your_ip", 16), ("server_ip", 20), ("gateway_ip", 24)] {
            json.address_field(name, span.bytes(at, 4)?);
        }
        json.mac_field("client_mac", span.bytes(28, hardware_len)?);
        if span.array::<4>(VENDOR)? == MAGIC {
            options(json, span.skip(VENDOR + 4))?;
        }
        Ok(())
    })
}

/// Each option once, in the order of the table, so that no key repeats.
fn options(json: &mut Writer, span: Span<'_>) -> Printed {
    if let Some(&[kind]) = find(span, MESSAGE_TYPE) {
        json.number_field("message_type", kind);
        if let Some(name) = lookup(MESSAGE_TYPES, kind) {
            json.text_field("message_type_name", name.as_bytes());
        }
    }
    for (code, key, form) in OPTIONS {
        if let Some(value) = find(span, code) {
            option(json, key, form, value);
        }
    }
    Ok(())
}

/// The value of the first option with this code.
fn find(span: Span<'_>, code: u8) -> Option<&[u8]> {
    let mut rest = span.data;
    while let Some((&found, after)) = rest.split_first() {
        match found {
            0 => rest = after,
            255 => return None,
            _ => {
                let (&length, after) = after.split_first()?;
                let (value, after) = after.split_at_checked(usize::from(length))?;
                if found == code {
                    return Some(value);
                }
                rest = after;
            }
        }
    }
    None
}

/// A value whose length does not fit its form is left out.
fn option(json: &mut Writer, key: &'static str, form: Form, value: &[u8]) {
    match (form, value) {
        (Form::Text, _) => json.text_field(key, value.strip_suffix(b"\0").unwrap_or(value)),
        (Form::Address, &[_, _, _, _]) => json.address_field(key, value),
        (Form::Number, &[a, b, c, d]) => json.number_field(key, u32::from_be_bytes([a, b, c, d])),
        (Form::Addresses, _) => json.array_field(key, |json| {
            value.chunks_exact(4).for_each(|address| json.address(address));
        }),
        (Form::Mac, _) => json.mac_field(key, value),
        (Form::Codes, _) => json.array_field(key, |json| value.iter().for_each(|&code| json.number(code))),
        (Form::Address | Form::Number, _) => {}
    }
}
