//! Payloads of IKE, version 2 (RFC 7296, 3).

use super::attribute::{self, Name};
use super::{
    PAYLOADS, PROTOCOLS, Payload, PayloadEnd, cut_in, print_chain, print_contents, print_hex, print_name,
    print_some, start_line, version1,
};
use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const PROPOSAL: u8 = 2;
const TRANSFORM: u8 = 3;
const NOTIFICATION: u8 = 11;
const ENCRYPTED: u8 = 46;

const TRANSFORMS: [&str; 6] = ["", "encr", "prf", "integ", "dh", "esn"];
const FUNCTIONS: [&str; 5] = ["", "hmac-md5", "hmac-sha", "hmac-tiger", "aes128_xcbc"];
const INTEGRITIES: [&str; 6] = ["", "hmac-md5", "hmac-sha", "dec-mac", "kpdk-md5", "aes-xcbc"];
const SEQUENCES: [&str; 2] = ["no-esn", "esn"];
const METHODS: [&str; 4] = ["invalid", "rsasig", "shared-secret", "dsssig"];
#[rustfmt::skip]
const GROUPS: [&str; 19] = [
    "", "modp768", "modp1024", "EC2N 2^155", "EC2N 2^185", "modp1536", "iana-grp06", "iana-grp07", "iana-grp08",
    "iana-grp09", "iana-grp10", "iana-grp11", "iana-grp12", "iana-grp13", "modp2048", "modp3072", "modp4096",
    "modp6144", "modp8192",
];

/// Notifications (RFC 7296, 3.10.1), in tcpdump's words.
const NOTIFICATIONS: &[(u16, &str)] = &[
    (1, "unsupported_critical_payload"),
    (4, "invalid_ike_spi"),
    (5, "invalid_major_version"),
    (7, "invalid_syntax"),
    (9, "invalid_message_id"),
    (11, "invalid_spi"),
    (14, "no_protocol_chosen"),
    (17, "invalid_ke_payload"),
    (24, "authentication_failed"),
    (34, "single_pair_required"),
    (35, "no_additional_sas"),
    (36, "internal_address_failure"),
    (37, "failed:cp_required"),
    (39, "invalid_selectors"),
    (16_384, "initial_contact"),
    (16_385, "set_window_size"),
    (16_386, "additional_ts_possible"),
    (16_387, "ipcomp_supported"),
    (16_388, "nat_detection_source_ip"),
    (16_389, "nat_detection_destination_ip"),
    (COOKIE, "cookie"),
    (16_391, "use_transport_mode"),
    (16_392, "http_cert_lookup_supported"),
    (16_393, "rekey_sa"),
    (16_394, "tfc_padding_not_supported"),
    (16_395, "non_first_fragment_also"),
];
const COOKIE: u16 = 16_390;
/// Notifications whose SPI is not shown.
const WITHOUT_SPI: [u16; 14] =
    [1, 5, 35, 36, 37, 39, 16_384, 16_385, 16_386, 16_387, 16_391, 16_392, 16_394, 16_395];

/// Prints the payloads of a message, the first of which is `first`.
pub(super) fn print(cx: &mut Context<'_>, message: Span<'_>, first: (u8, usize)) -> PayloadEnd {
    print_chain(cx, message, first, 0, &mut |cx, message, payload| match payload.kind {
        1..=13 => version1::print_alone(cx, message, payload),
        ENCRYPTED => encrypted(cx, message, payload),
        _ => print_payload(cx, message, payload),
    })
}

/// The name of a payload, marked if it is critical.
fn print_head(cx: &mut Context<'_>, message: Span<'_>, at: usize, name: &str) -> Result<(), Cut> {
    cx.text(name);
    cx.text(if message.u8(at + 1)? & 0x80 != 0 { "[C]:" } else { ":" });
    Ok(())
}

/// Prints a payload of a kind that version 1 does not have.
pub(super) fn print_payload(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> PayloadEnd {
    let Payload { kind, at, length, .. } = payload;
    let name = PAYLOADS.get(usize::from(kind)).copied().unwrap_or_default();
    let whole = match kind {
        33 => return association(cx, message, payload),
        34 => key_exchange(cx, message, payload)?,
        35 | 36 => identity(cx, message, payload)?,
        39 => authentication(cx, message, payload)?,
        40 => nonce(cx, message, payload)?,
        41 => {
            if !notification(cx, message, payload)? {
                return Ok(cut_in(cx, NOTIFICATION));
            }
            true
        }
        43 => vendor(cx, message, payload)?,
        37 | 38 | 42 | 44 | 45 | 47 | 48 => {
            print_head(cx, message, at, name)?;
            super::print_whole(cx, message, at, length, "len")
        }
        _ => {
            print_name(cx, &PAYLOADS, kind);
            true
        }
    };
    Ok(if whole { Some(at + length) } else { cut_in(cx, kind) })
}

/// Ends the message at an encrypted payload: its next payload is that of the encrypted content.
fn encrypted(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> PayloadEnd {
    let Payload { kind, at, length, .. } = payload;
    print_head(cx, message, at, "v2e")?;
    let inner = length - 4;
    put!(cx, " len={inner}");
    let whole = inner <= 4 || print_contents(cx, message, at, length, 4);
    Ok(if whole { None } else { cut_in(cx, kind) })
}

/// A chain of proposals or transforms within `left` bytes.
struct Chain {
    /// The payload that encloses the chain.
    outer: u8,
    /// The payloads of the chain.
    inner: u8,
    left: usize,
    depth: usize,
}

impl Chain {
    fn print(
        mut self,
        cx: &mut Context<'_>,
        message: Span<'_>,
        mut at: usize,
        mut one: impl FnMut(&mut Context<'_>, Payload, usize) -> PayloadEnd,
    ) -> PayloadEnd {
        let mut kind = self.inner;
        let mut count = 0;
        while kind != 0 {
            count += 1;
            let start = at;
            if self.left < 4 {
                return Ok(self.too_long(cx, at));
            }
            let Ok(length) = message.u16(at + 2).map(usize::from) else { return Ok(cut_in(cx, self.outer)) };
            if length <= 4 {
                return Ok(cut_in(cx, self.outer));
            }
            if self.left < length {
                return Ok(self.too_long(cx, at));
            }
            if message.bytes(at, length).is_err() {
                return Ok(cut_in(cx, self.outer));
            }
            start_line(cx, self.depth + 1);
            if kind == self.inner {
                let payload = Payload { kind, at, length, depth: self.depth + 1 };
                match one(cx, payload, count)? {
                    Some(end) => at = end,
                    None => return Ok(None),
                }
            } else {
                print_name(cx, &PAYLOADS, kind);
                at += length;
            }
            cx.text(")");
            self.left -= length;
            kind = message.u8(start)?;
        }
        Ok(Some(at))
    }

    fn too_long(&self, cx: &mut Context<'_>, at: usize) -> Option<usize> {
        cut_in(cx, self.outer);
        Some(at + self.left)
    }
}

fn association(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> PayloadEnd {
    let Payload { kind, at, length, depth } = payload;
    print_head(cx, message, at, "sa")?;
    put!(cx, " len={}", length - 4);
    let chain = Chain { outer: kind, inner: PROPOSAL, left: length - 4, depth };
    chain.print(cx, message, at + 4, |cx, payload, _| proposal(cx, message, payload))
}

fn proposal(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> PayloadEnd {
    let Payload { kind, at, length, depth } = payload;
    let Ok([number, protocol, spi_len, transforms]) = message.array(at + 4) else {
        return Ok(cut_in(cx, kind));
    };
    print_head(cx, message, at, "p")?;
    put!(cx, " #{number} protoid=");
    print_name(cx, &PROTOCOLS, protocol);
    put!(cx, " transform={transforms} len={length}");
    let spi_len = usize::from(spi_len);
    let mut left = length - 4;
    if spi_len != 0 {
        if left < spi_len {
            cut_in(cx, kind);
            return Ok(Some(at + 8 + left));
        }
        cx.text(" spi=");
        if !print_hex(cx, message, at + 8, spi_len) {
            return Ok(cut_in(cx, kind));
        }
        left -= spi_len;
    }
    let chain = Chain { outer: kind, inner: TRANSFORM, left, depth };
    chain.print(cx, message, at + 8 + spi_len, |cx, payload, count| transform(cx, message, payload, count))
}

fn transform(cx: &mut Context<'_>, message: Span<'_>, payload: Payload, count: usize) -> PayloadEnd {
    let Payload { kind, at, length, .. } = payload;
    let Ok([family, _, id @ ..]) = message.array::<4>(at + 4) else { return Ok(cut_in(cx, kind)) };
    let id = u16::from_be_bytes(id);
    print_head(cx, message, at, "t")?;
    put!(cx, " #{count} type=");
    print_name(cx, &TRANSFORMS, family);
    cx.text(" id=");
    match family {
        1 => print_name(cx, &version1::CIPHERS, id),
        2 => print_name(cx, &FUNCTIONS, id),
        3 => print_name(cx, &INTEGRITIES, id),
        4 => print_name(cx, &GROUPS, id),
        5 => print_name(cx, &SEQUENCES, id),
        _ => put!(cx, "{id}"),
    }
    cx.text(" ");
    let names: &[Name] = if family == 1 { &attribute::CIPHER } else { &[] };
    let end = attribute::print_all(cx, message, at + 8, at + length, names)?;
    Ok(if end.is_none() { cut_in(cx, kind) } else { end })
}

fn key_exchange(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> Result<bool, Cut> {
    let Payload { at, length, .. } = payload;
    if message.bytes(at, 8).is_err() {
        return Ok(false);
    }
    print_head(cx, message, at, "v2ke")?;
    if length < 8 {
        put!(cx, " len={length} < 8");
        return Ok(true);
    }
    put!(cx, " len={} group=", length - 8);
    print_name(cx, &GROUPS, message.u16(at + 4)?);
    Ok(print_contents(cx, message, at, length, 8))
}

fn identity(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> Result<bool, Cut> {
    let Payload { kind, at, length, .. } = payload;
    if message.bytes(at, 8).is_err() {
        return Ok(false);
    }
    print_head(cx, message, at, PAYLOADS[usize::from(kind)])?;
    if !super::print_whole(cx, message, at, length, "len") {
        return Ok(false);
    }
    let (name, is_text) = match message.u8(at + 4)? {
        1 => ("ipv4", false),
        2 => ("fqdn", true),
        3 => ("rfc822", true),
        5 => ("ipv6", false),
        9 => ("dn", false),
        10 => ("gn", false),
        11 => ("keyid", false),
        _ => return Ok(true),
    };
    put!(cx, " {name}:");
    let Some(value_len) = length.checked_sub(8) else { return Ok(false) };
    if !is_text {
        return Ok(print_hex(cx, message, at + 8, value_len));
    }
    let Ok(value) = message.bytes(at + 8, value_len) else { return Ok(false) };
    print_ascii(cx, value);
    Ok(true)
}

/// Characters of ASCII; a dot for any other.
fn print_ascii(cx: &mut Context<'_>, bytes: &[u8]) {
    for &byte in bytes {
        cx.raw(&[if (0x20..0x7f).contains(&byte) { byte } else { b'.' }]);
    }
}

fn authentication(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> Result<bool, Cut> {
    let Payload { at, length, .. } = payload;
    if message.bytes(at, 8).is_err() {
        return Ok(false);
    }
    print_head(cx, message, at, "v2auth")?;
    put!(cx, " len={} method=", length - 4);
    print_name(cx, &METHODS, message.u8(at + 4)?);
    if cx.verbose() == 1 {
        return Ok(print_some(cx, message, at + 8));
    }
    cx.text(" authdata=(");
    let Some(data_len) = length.checked_sub(8) else { return Ok(false) };
    let whole = print_hex(cx, message, at + 8, data_len);
    cx.text(if whole { ") " } else { "" });
    Ok(whole)
}

fn nonce(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> Result<bool, Cut> {
    let Payload { at, length, .. } = payload;
    print_head(cx, message, at, "nonce")?;
    put!(cx, " len={}", length - 4);
    if cx.verbose() == 1 {
        return Ok(print_some(cx, message, at + 4));
    }
    cx.text(" nonce=(");
    let whole = print_hex(cx, message, at + 4, length - 4);
    cx.text(if whole { ") " } else { "" });
    Ok(whole)
}

fn notification(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> Result<bool, Cut> {
    let at = payload.at;
    let Ok([protocol, spi_len, kind @ ..]) = message.array::<4>(at + 4) else { return Ok(false) };
    let (kind, spi_len) = (u16::from_be_bytes(kind), usize::from(spi_len));
    print_head(cx, message, at, "n")?;
    cx.text(" prot_id=");
    print_name(cx, &PROTOCOLS, protocol);
    let name = lookup(NOTIFICATIONS, kind).unwrap_or(match kind {
        0..8192 => "error",
        8192..16_384 => "private-error",
        16_384..40_960 => "status",
        40_960.. => "private-status",
    });
    put!(cx, " type={kind}({name})");
    if spi_len != 0 && !WITHOUT_SPI.contains(&kind) {
        cx.text(" spi=");
        if !print_hex(cx, message, at + 8, spi_len) {
            return Ok(false);
        }
    }
    let data = at + 8 + spi_len;
    if kind != COOKIE || data >= message.captured() {
        return Ok(true);
    }
    let left = message.captured() - data;
    if left >= 30 {
        return Ok(print_some(cx, message, data));
    }
    cx.text(" data=(");
    print_hex(cx, message, data, left);
    cx.text(")");
    Ok(true)
}

fn vendor(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> Result<bool, Cut> {
    let Payload { at, length, .. } = payload;
    print_head(cx, message, at, "v2vid")?;
    put!(cx, " len={} vid=", length - 4);
    let Ok(value) = message.bytes(at + 4, length - 4) else { return Ok(false) };
    print_ascii(cx, value);
    Ok(length <= 8 || print_contents(cx, message, at, length, 4))
}
