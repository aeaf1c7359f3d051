//! The headers of a pcap file and of its packets, in this machine's byte order.

use std::ffi::c_int;

use tapline_packet::LinkType;

use crate::precision::Precision;
use crate::raw::PacketHeader;

/// The magic number of files with microseconds.
pub(crate) const MAGIC_MICRO: u32 = 0xa1b2_c3d4;
/// The magic number of files with nanoseconds.
pub(crate) const MAGIC_NANO: u32 = 0xa1b2_3c4d;
/// Bytes before the first packet.
pub(crate) const FILE_HEADER_LEN: usize = 24;

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) magic: u32,
    pub(crate) version: u32,
    pub(crate) snap_len: u32,
    pub(crate) link_field: u32,
}

impl FileHeader {
    /// For packets of this link type; `dlt_extra` are the upper bits of its field.
    pub(crate) fn new(
        link_type: LinkType,
        dlt_extra: c_int,
        snap_len: c_int,
        precision: Precision,
    ) -> FileHeader {
        FileHeader {
            magic: if precision == Precision::Nano { MAGIC_NANO } else { MAGIC_MICRO },
            version: u32::from_ne_bytes(bytes_of_halves(2, 4)),
            snap_len: snap_len as u32,
            link_field: u32::from(link_type.0) | dlt_extra as u32,
        }
    }

    pub(crate) fn bytes(&self) -> [u8; FILE_HEADER_LEN] {
        let mut bytes = [0; FILE_HEADER_LEN];
        let words = [self.magic, self.version, 0, 0, self.snap_len, self.link_field];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

fn bytes_of_halves(first: u16, second: u16) -> [u8; 4] {
    let (first, second) = (first.to_ne_bytes(), second.to_ne_bytes());
    [first[0], first[1], second[0], second[1]]
}

/// A packet's header as files have it. Times before 1970 and after 2106 wrap, as the format has 32 bits for them.
pub(crate) fn record_header(header: &PacketHeader) -> [u8; 16] {
    let mut bytes = [0; 16];
    let words = [header.ts.tv_sec as u32, header.ts.tv_usec as u32, header.cap_len, header.len];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}
