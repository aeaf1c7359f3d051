//! Errors of capture files in libpcap's words.

use tapline_file::Error;

use crate::failure::{Failure, system_text};

use super::beginning::SECTION_START_LEN;

const RECORD_HEADER_LEN: u64 = 16;
/// A block's type and length.
const BLOCK_START_LEN: u64 = 8;

/// libpcap's message for a fault of a file, where it has one.
pub(super) fn failure(error: &Error, format: &str, snap_len: u32) -> Failure {
    let text = match error {
        Error::Read { source, .. } | Error::Open { source, .. } => {
            format!("error reading dump file: {}", system_text(source))
        }
        Error::NotACapture { .. } => "unknown file format".to_owned(),
        Error::Empty { .. } => {
            "truncated dump file; tried to read 4 file header bytes, only got 0".to_owned()
        }
        Error::Truncated { place, item, item_offset, missing, .. } => {
            let have = place.offset.saturating_sub(*item_offset);
            // libpcap reads a block's type and length, of the first one the byte-order magic too, then the rest.
            let begun = if *item_offset == 0 { SECTION_START_LEN } else { BLOCK_START_LEN };
            truncated(format, item, have, *missing, begun, snap_len)
        }
        Error::Corrupt { cap_len: Some(cap_len), .. } => {
            format!("invalid packet capture length {cap_len}, bigger than snaplen of {snap_len}")
        }
        Error::Unsupported { libpcap, .. } => libpcap.clone(),
        other => other.to_string(),
    };
    Failure::error(text)
}

fn truncated(format: &str, item: &str, have: u64, missing: u64, begun: u64, snap_len: u32) -> String {
    let len = have + missing;
    match (format, item) {
        ("pcap", "packet header") => {
            format!("truncated dump file; tried to read {len} header bytes, only got {have}")
        }
        ("pcap", "packet") => {
            let (cap_len, got) = (len - RECORD_HEADER_LEN.min(len), have - RECORD_HEADER_LEN.min(have));
            // A packet longer than the file's snap length is read up to there, then the rest is skipped.
            let tried = if got < u64::from(snap_len) { cap_len.min(snap_len.into()) } else { cap_len };
            format!("truncated dump file; tried to read {tried} captured bytes, only got {got}")
        }
        ("pcapng", _) if have < begun => {
            format!("truncated pcapng dump file; tried to read {begun} bytes, only got {have}")
        }
        ("pcapng", _) => {
            let (tried, got) = (len - begun.min(len), have - begun);
            format!("truncated pcapng dump file; tried to read {tried} bytes, only got {got}")
        }
        _ => format!("truncated dump file; tried to read {len} bytes, only got {have}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tapline_file::FileSource;

    use super::*;
    use crate::savefile::tests::header;

    #[test]
    fn unread_formats_are_refused_in_libpcaps_words() {
        let refusal = |bytes: Vec<u8>| {
            let opened = FileSource::from_reader(Box::new(io::Cursor::new(bytes)), "test");
            failure(&opened.err().expect("refused"), "pcap", 0).text.into_owned()
        };
        let mut reserved = header(2, 4);
        reserved[20..24].copy_from_slice(&0x0030_0001u32.to_ne_bytes());
        assert_eq!(refusal(reserved), "savefile linktype reserved bits set (0x00300000)");
        assert_eq!(refusal(header(2, 5)), "unsupported pcap savefile version 2.5");
        let mut section = [0x0a0d_0d0au32, 28, 0x1a2b_3c4d, 1 << 16, u32::MAX, u32::MAX, 28];
        if cfg!(target_endian = "big") {
            section[3] = 1;
        }
        let section = section.map(u32::to_ne_bytes).concat();
        assert_eq!(refusal(section), "unsupported pcapng savefile version 0.1");
    }

    #[test]
    fn cut_files_are_told_in_libpcaps_words() {
        assert_eq!(
            truncated("pcap", "packet", 26, 214, 8, 65_535),
            "truncated dump file; tried to read 224 captured bytes, only got 10"
        );
        assert_eq!(
            truncated("pcapng", "block", 108, 40, 8, 65_535),
            "truncated pcapng dump file; tried to read 140 bytes, only got 100"
        );
    }
}
