//! Detects the format of a file by its first bytes, and explains to users which files are in none of the formats.

use super::{erf, pcap, pcapng};

/// A format that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Pcap,
    Pcapng,
    Erf,
}

/// The bytes that [`format`] wants to see where a file has them: the longest ERF record and the next header.
pub(crate) const DETECT_LEN: usize = 65_536 + erf::HEADER_LEN;

/// The format of a file that begins with `bytes`.
pub(crate) fn format(bytes: &[u8]) -> Option<Format> {
    let magic = *bytes.first_chunk()?;
    if pcap::byte_order(magic).is_some() {
        Some(Format::Pcap)
    } else if magic == pcapng::SECTION_HEADER_TYPE {
        Some(Format::Pcapng)
    } else {
        erf::looks_like_records(bytes).then_some(Format::Erf)
    }
}

/// First bytes of formats that people give to capture tools by mistake, and what to say.
const KNOWN: [(&[u8], &str); 19] = [
    (b"\x1f\x8b", "gzip data inside of compressed data; unpack it once first"),
    (b"\x28\xb5\x2f\xfd", "zstd data inside of compressed data; unpack it once first"),
    (b"\x04\x22\x4d\x18", "lz4 data inside of compressed data; unpack it once first"),
    (b"\x02\x21\x4c\x18", "it looks like lz4 in its legacy form; unpack it first (lz4 -d)"),
    (b"PK\x03\x04", "it looks like a zip archive; unpack it first"),
    (b"BZh", "it looks like bzip2 data; unpack it first (bunzip2)"),
    (b"\xfd7zXZ\0", "it looks like xz data; unpack it first (unxz)"),
    (b"7z\xbc\xaf\x27\x1c", "it looks like a 7z archive; unpack it first"),
    (b"snoop\0\0\0", "it looks like a snoop capture of Solaris; editcap can convert it"),
    (b"btsnoop\0", "it looks like a Bluetooth snoop log; editcap can convert it"),
    (b"RTSS", "it looks like a Network Monitor 1 capture; editcap can convert it"),
    (b"GMBU", "it looks like a Network Monitor 2 capture; editcap can convert it"),
    (b"XCP\0", "it looks like a NetXRay or Sniffer capture; editcap can convert it"),
    (b"TRSNIFF data", "it looks like a Sniffer capture; editcap can convert it"),
    (b"\x7fELF", "it looks like a program (ELF)"),
    (b"%PDF", "it looks like a PDF document"),
    (b"SQLite format 3", "it looks like an SQLite database"),
    (b"\xcd\x34\xb2\xa1", "it looks like the pcap variant a1b234cd, of which no description is known"),
    (b"\xa1\xb2\x34\xcd", "it looks like the pcap variant a1b234cd, of which no description is known"),
];

/// A clause that says what `bytes` seem to be.
pub(crate) fn looks_like(bytes: &[u8]) -> String {
    if let Some((_, text)) = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return (*text).to_owned();
    }
    let head = &bytes[..bytes.len().min(64)];
    if head.iter().all(|&b| b == 0) {
        return "it begins with zeros, as a file does whose data never reached the disk".to_owned();
    }
    if head.iter().all(|&b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
        return "it looks like text".to_owned();
    }
    let magic: String = head.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("it begins with {magic}, which is not a magic number that we know")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_formats_are_named() {
        assert!(looks_like(b"PK\x03\x04...").contains("zip"));
        assert!(looks_like(b"snoop\0\0\0\0\0\0\x02").contains("snoop"));
        assert!(looks_like(b"12:00:01.000 IP a > b").contains("text"));
        assert!(looks_like(&[0; 30]).contains("zeros"));
        assert!(looks_like(&[0xde, 0xad, 0xbe, 0xef]).contains("deadbeef"));
    }

    #[test]
    fn short_files_are_no_format() {
        assert_eq!(format(b""), None);
        assert_eq!(format(b"\xd4\xc3\xb2"), None);
    }
}
