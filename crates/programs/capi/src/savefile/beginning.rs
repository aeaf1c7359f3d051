//! The first bytes of a capture file, as libpcap reads them.

use std::ffi::c_int;
use std::io::Read;

use crate::failure::Failure;

const MAGIC_LEN: usize = 4;
const FILE_HEADER_LEN: usize = 24;
/// The first bytes of a pcapng file.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The byte-order magic of a pcapng section header, in the section's byte order.
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// A section header block's type, length and byte-order magic.
pub(super) const SECTION_START_LEN: u64 = 12;

/// Magic numbers of the pcap files that libpcap knows: standard, nanoseconds, Kuznetzov's, Navtel's.
const MAGICS: [u32; 4] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34, 0xa12b_3c4d];

/// Whether a file that begins so is a pcap or pcapng file as libpcap knows them.
pub(super) fn is_plain(read: &[u8]) -> bool {
    let magic = number(read, 0);
    MAGICS.contains(&magic) || MAGICS.contains(&magic.swap_bytes()) || magic.to_ne_bytes() == SECTION
}

/// Facts in a file's first bytes that the reader of packets does not report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    pub(super) is_swapped: bool,
    pub(super) version: (c_int, c_int),
    pub(super) dlt_extra: c_int,
}

/// Examines the beginning of a file as libpcap does, and rejects the same files with the same words. The caller puts
/// `read` back.
pub(super) fn beginning(stream: &mut dyn Read, read: &mut Vec<u8>) -> Result<Beginning, Failure> {
    fill(stream, read, MAGIC_LEN)?;
    let magic = number(read, 0);
    let is_swapped = MAGICS.contains(&magic.swap_bytes());
    if !MAGICS.contains(&magic) && !is_swapped {
        return Ok(Beginning {
            is_swapped: is_swapped_section(stream, read)?,
            version: (1, 0),
            dlt_extra: 0,
        });
    }
    fill(stream, read, FILE_HEADER_LEN)?;
    let word = |at| if is_swapped { number(read, at).swap_bytes() } else { number(read, at) };
    let half = |at| {
        let half = u16::from_ne_bytes([read[at], read[at + 1]]);
        c_int::from(if is_swapped { half.swap_bytes() } else { half })
    };
    let version = (half(4), half(6));
    if version.0 < 2 {
        return Err(Failure::error("archaic pcap savefile format"));
    }
    if !matches!(version, (2, 0..=4) | (543, 0)) {
        return Err(Failure::error(format!("unsupported pcap savefile version {}.{}", version.0, version.1)));
    }
    // The FCS length and the bit that says that it is there.
    let dlt_extra = (word(20) & 0xfc00_0000) as c_int;
    Ok(Beginning { is_swapped, version, dlt_extra })
}

/// A number in this machine's byte order.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Whether a pcapng file begins with a section of the other byte order.
fn is_swapped_section(stream: &mut dyn Read, read: &mut Vec<u8>) -> Result<bool, Failure> {
    if read[..MAGIC_LEN] != SECTION {
        return Ok(false);
    }
    // libpcap takes what ends before its byte-order magic for no capture at all.
    fill(stream, read, SECTION_START_LEN as usize).map_err(|_| Failure::error("unknown file format"))?;
    match number(read, 8) {
        BYTE_ORDER_MAGIC => Ok(false),
        magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => Ok(true),
        _ => Err(Failure::error("unknown file format")),
    }
}

/// Reads until `len` bytes are there. libpcap reads the magic number separately: its count of bytes in errors is
/// without it.
fn fill(stream: &mut dyn Read, read: &mut Vec<u8>, len: usize) -> Result<(), Failure> {
    let apart = if len > MAGIC_LEN { MAGIC_LEN } else { 0 };
    while read.len() < len {
        let mut bytes = [0; FILE_HEADER_LEN];
        match stream.read(&mut bytes[..len - read.len()]) {
            Ok(0) => {
                let got = read.len() - apart.min(read.len());
                return Err(Failure::error(format!(
                    "truncated dump file; tried to read {len} file header bytes, only got {got}"
                )));
            }
            Ok(len) => read.extend_from_slice(&bytes[..len]),
            Err(error) => return Err(Failure::system("error reading dump file", &error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        let mut read = Vec::new();
        beginning(&mut io::Cursor::new(bytes.to_vec()), &mut read).expect_err("refused").text.into_owned()
    }

    fn header(major: u16, minor: u16) -> Vec<u8> {
        let mut header = 0xa1b2_c3d4u32.to_ne_bytes().to_vec();
        header.extend([major.to_ne_bytes(), minor.to_ne_bytes()].concat());
        header.extend([0; 16]);
        header
    }

    #[test]
    fn beginnings_are_refused_in_libpcaps_words() {
        let short = "truncated dump file; tried to read";
        assert_eq!(refusal(b""), format!("{short} 4 file header bytes, only got 0"));
        assert_eq!(refusal(b"abc"), format!("{short} 4 file header bytes, only got 3"));
        assert_eq!(refusal(&header(2, 4)[..20]), format!("{short} 24 file header bytes, only got 16"));
        assert_eq!(refusal(&header(1, 9)), "archaic pcap savefile format");
        assert_eq!(refusal(&header(2, 5)), "unsupported pcap savefile version 2.5");
    }
}
