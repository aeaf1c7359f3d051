//! Attributes of IKE transforms, and the names of their values.
//!
//! ```text
//! format 1b, type 15b | value 2         format 0: type 15b | length 2 | value
//! ```

use super::{PayloadEnd, print_hex};
use crate::bytes::Span;
use crate::context::{Context, put};
use crate::text::Text;

/// The name of an attribute, and those of its values; empty where there is none.
pub(super) type Name = (&'static str, &'static [&'static str]);

const GROUPS: [&str; 18] = [
    "",
    "modp768",
    "modp1024",
    "EC2N 2^155",
    "EC2N 2^185",
    "modp1536",
    "iana-grp06",
    "iana-grp07",
    "iana-grp08",
    "iana-grp09",
    "iana-grp10",
    "iana-grp11",
    "iana-grp12",
    "iana-grp13",
    "modp2048",
    "modp3072",
    "modp4096",
    "modp6144",
];

/// Attributes of AH, ESP and compression (RFC 2407, 4.5).
pub(super) const IPSEC: [Name; 10] = [
    ("", &[]),
    ("lifetype", &["", "sec", "kb"]),
    ("life", &[]),
    ("group desc", &GROUPS),
    ("enc mode", &["", "tunnel", "transport"]),
    ("auth", &["", "hmac-md5", "hmac-sha1", "1des-mac", "keyed"]),
    ("keylen", &[]),
    ("rounds", &[]),
    ("dictsize", &[]),
    ("privalg", &[]),
];

/// Attributes of IKE itself (RFC 2409, appendix A).
pub(super) const IKE: [Name; 17] = [
    ("", &[]),
    ("enc", &["", "1des", "idea", "blowfish", "rc5", "3des", "cast", "aes"]),
    ("hash", &["", "md5", "sha1", "tiger", "sha2-256", "sha2-384", "sha2-512"]),
    ("auth", &["", "preshared", "dss", "rsa sig", "rsa enc", "rsa enc revised"]),
    ("group desc", &GROUPS),
    ("group type", &["", "MODP", "ECP", "EC2N"]),
    ("group prime", &[]),
    ("group gen1", &[]),
    ("group gen2", &[]),
    ("group curve A", &[]),
    ("group curve B", &[]),
    ("lifetype", &["", "sec", "kb"]),
    ("lifeduration", &[]),
    ("prf", &[]),
    ("keylen", &[]),
    ("field", &[]),
    ("order", &[]),
];

/// Attributes of version 2's ciphers: the length of a key (RFC 7296, 3.3.5).
const KEY_LENGTH: Name = ("keylen", &[]);
const NONE: Name = ("", &[]);
#[rustfmt::skip]
pub(super) const CIPHER: [Name; 15] = [
    NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, KEY_LENGTH,
];

/// Prints the attributes between `at` and `end`; where they end.
pub(super) fn print_all(
    cx: &mut Context<'_>,
    message: Span<'_>,
    mut at: usize,
    end: usize,
    names: &[Name],
) -> PayloadEnd {
    while at < message.captured() && at < end {
        match print_one(cx, message, at, end, names)? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn print_one(cx: &mut Context<'_>, message: Span<'_>, at: usize, end: usize, names: &[Name]) -> PayloadEnd {
    let is_short = message.u8(at)? & 0x80 != 0;
    let length = if is_short { 4 } else { 4 + usize::from(message.u16(at + 2)?) };
    if end < at + length {
        cx.text("[|attr]");
        return Ok(Some(end + 1));
    }
    let kind = message.u16(at)? & 0x7fff;
    let (name, values) = names.get(usize::from(kind)).copied().unwrap_or_default();
    match name {
        "" => put!(cx, "(type=#{kind} "),
        _ => put!(cx, "(type={name} "),
    }
    let whole = if is_short {
        cx.text("value=");
        let value = if names.is_empty() { 0 } else { usize::from(message.u16(at + 2)?) };
        match values.get(value).copied().unwrap_or_default() {
            "" => print_hex(cx, message, at + 2, 2),
            name => {
                cx.text(name);
                true
            }
        }
    } else {
        put!(cx, "len={} value=", length - 4);
        print_hex(cx, message, at + 4, length - 4)
    };
    cx.text(")");
    Ok(whole.then_some(at + length))
}
