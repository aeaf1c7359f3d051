//! Fingerprints of clients' hellos.
//!
//! JA3: MD5 of version, suites, extensions, groups and point formats, as Althouse, Atkinson and Atkins published it.
//! JA4: as FoxIO's technical description has it, the part for TLS clients.

use std::fmt::Write as _;

use md5::{Digest, Md5};
use sha2::Sha256;

use super::{ALPN, ClientHello, SERVER_NAME, Transport, values};

impl ClientHello<'_> {
    /// JA3 as the 16 bytes of its MD5; `None` of a hello that is not [complete](ClientHello::is_complete).
    pub fn ja3(&self) -> Option<[u8; 16]> {
        self.is_complete.then(|| Md5::digest(self.ja3_text()).into())
    }

    fn ja3_text(&self) -> String {
        let mut text = format!("{},", self.legacy_version);
        let mut list = |values: &mut dyn Iterator<Item = u16>, end: &str| {
            for (at, value) in values.enumerate() {
                let _ = write!(text, "{}{value}", if at > 0 { "-" } else { "" });
            }
            text.push_str(end);
        };
        list(&mut self.cipher_suites(), ",");
        list(&mut self.extension_types(), ",");
        list(&mut values(self.groups), ",");
        list(&mut self.point_formats.iter().map(|format| u16::from(*format)), "");
        text
    }

    /// JA4; `None` of a hello that is not [complete](ClientHello::is_complete).
    pub fn ja4(&self) -> Option<String> {
        self.is_complete.then(|| self.ja4_text())
    }

    fn ja4_text(&self) -> String {
        let transport = match self.transport {
            Transport::Tcp => 't',
            Transport::Quic => 'q',
            Transport::Dtls => 'd',
        };
        let version = version_code(self.version());
        let name = if self.server_name.is_some() { 'd' } else { 'i' };
        let mut suites: Vec<u16> = self.cipher_suites().collect();
        suites.sort_unstable();
        let mut kinds: Vec<u16> = self.extension_types().collect();
        let (suite_count, extension_count) = (suites.len().min(99), kinds.len().min(99));
        kinds.retain(|kind| ![SERVER_NAME, ALPN].contains(kind));
        kinds.sort_unstable();
        let signatures: Vec<u16> = values(self.signatures).collect();
        let mut extensions = hexadecimal(&kinds);
        if !signatures.is_empty() {
            extensions = format!("{extensions}_{}", hexadecimal(&signatures));
        }
        let protocol = first_and_last(self.protocols().next().unwrap_or_default());
        let (suites, extensions) = (short_hash(&hexadecimal(&suites)), short_hash(&extensions));
        format!(
            "{transport}{version}{name}{suite_count:02}{extension_count:02}{protocol}_{suites}_{extensions}"
        )
    }
}

fn version_code(version: u16) -> &'static str {
    match version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        0xfeff => "d1",
        0xfefd => "d2",
        0xfefc => "d3",
        _ => "00",
    }
}

/// The first and the last letter of a protocol; if they are not letters, the first and the last digit of its bytes in
/// hexadecimal.
fn first_and_last(protocol: &[u8]) -> String {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else { return "00".to_owned() };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last].map(char::from).iter().collect();
    }
    let (first, last) = (format!("{first:02x}"), format!("{last:02x}"));
    format!("{}{}", &first[..1], &last[1..])
}

fn hexadecimal(values: &[u16]) -> String {
    values.iter().map(|value| format!("{value:04x}")).collect::<Vec<_>>().join(",")
}

/// The first twelve digits of SHA-256; zeros for an empty text.
fn short_hash(text: &str) -> String {
    if text.is_empty() {
        return "0".repeat(12);
    }
    let digest = Sha256::digest(text);
    digest[..6].iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
