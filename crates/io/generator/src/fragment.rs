//! A packet in pieces.
//!
//! ```text
//! whole frame   | headers up to IP |            what IP carries            |
//! a piece       | the same headers, in IPv6 a fragment header | 8n bytes | a piece | ... the rest |
//! ```

use tapline_packet::headers::IpVersion;

use crate::mark::MARK_LEN;
use crate::shape::Shape;
use crate::write::{write_ip_checksum, write_tunnel};

/// RFC 8200, 4.5.
const FRAGMENT_HEADER: u8 = 44;
const MORE_FRAGMENTS: u16 = 0x2000;

/// A frame of which pieces are still to be sent.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the frame, and the number of bytes of the IP payload that have been sent.
    len: usize,
    sent: usize,
    /// The shape of its headers, its identification, and the port of its tunnel.
    pub(crate) shape: usize,
    id: u32,
    tunnel_port: u16,
    /// The last piece must hold a mark.
    is_marked: bool,
}

/// The most that a piece of an IP packet of `limit` bytes carries: whole units of 8 bytes.
pub(crate) fn piece_max(limit: usize, version: IpVersion) -> usize {
    let headers = if version == IpVersion::V4 { 20 } else { 48 };
    limit.saturating_sub(headers) & !7
}

impl Whole {
    /// For frames of up to `len` bytes.
    pub(crate) fn new(len: usize) -> Whole {
        Whole { bytes: vec![0; len], ..Whole::default() }
    }

    /// Whether pieces are still to be sent.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.len > 0
    }

    /// The frame of `len` bytes in `bytes` is to be sent in pieces.
    pub(crate) fn begin(&mut self, len: usize, shape: usize, id: u32, tunnel_port: u16, is_marked: bool) {
        (self.len, self.sent, self.shape) = (len, 0, shape);
        (self.id, self.tunnel_port, self.is_marked) = (id, tunnel_port, is_marked);
    }

    /// Writes the next piece and gives the length of its frame.
    pub(crate) fn write_next(&mut self, shape: &Shape, limit: usize, out: &mut [u8]) -> usize {
        let left = self.len - shape.l4 - self.sent;
        let max = piece_max(limit, shape.version);
        let mut piece = left.min(max);
        if self.is_marked && (1..MARK_LEN).contains(&(left - piece)) {
            piece -= MARK_LEN.next_multiple_of(8);
        }
        let has_more = piece < left;
        let extension = if shape.version == IpVersion::V4 { 0 } else { 8 };
        let start = shape.l4 + extension;
        out[..shape.l4].copy_from_slice(&self.bytes[..shape.l4]);
        let from = shape.l4 + self.sent;
        out[start..start + piece].copy_from_slice(&self.bytes[from..from + piece]);
        let (headers, behind) = out.split_at_mut(shape.l4);
        match shape.version {
            IpVersion::V4 => self.write_v4(&mut headers[shape.l3..], piece, has_more),
            IpVersion::V6 => self.write_v6(&mut headers[shape.l3..], &mut behind[..8], piece, has_more),
        }
        if let Some(outer) = shape.outer {
            write_tunnel(headers, outer, extension + piece, shape, self.tunnel_port);
        }
        self.sent += piece;
        if !has_more {
            self.len = 0;
        }
        start + piece
    }

    /// RFC 791, 3.2.
    fn write_v4(&self, header: &mut [u8], piece: usize, has_more: bool) {
        let flags = if has_more { MORE_FRAGMENTS } else { 0 };
        header[2..4].copy_from_slice(&(20 + piece as u16).to_be_bytes());
        header[6..8].copy_from_slice(&(flags | (self.sent / 8) as u16).to_be_bytes());
        write_ip_checksum(header);
    }

    fn write_v6(&self, header: &mut [u8], extension: &mut [u8], piece: usize, has_more: bool) {
        header[4..6].copy_from_slice(&(8 + piece as u16).to_be_bytes());
        extension[..2].copy_from_slice(&[header[6], 0]);
        extension[2..4].copy_from_slice(&(self.sent as u16 | u16::from(has_more)).to_be_bytes());
        extension[4..8].copy_from_slice(&self.id.to_be_bytes());
        header[6] = FRAGMENT_HEADER;
    }
}
