//! Blocks of pcapng one by one, for files whose layout is not that of [`FileWriter`](crate::FileWriter): segments of a
//! store, chunks on a wire.
//!
//! ```text
//! section_header (interface | packet | statistics | local)*     appended to a buffer
//! ```
//!
//! Numbers are in this machine's byte order, times in nanoseconds (draft-ietf-opsawg-pcapng, sections 4.1 to 4.7).

use tapline_packet::{Interface, Packet};

use crate::section::{InterfaceStatistics, Section};
use crate::write::pcapng;

/// Bytes of a section header without options.
pub const SECTION_HEADER_LEN: usize = 28;

/// Bytes of a block without its data: type and two lengths.
pub const BLOCK_OVERHEAD: usize = 12;

/// The first of the block types for local use (section 11.1 of the draft). Programs pass over those that they do not
/// know.
pub const LOCAL: u32 = 0x8000_0000;

/// Appends a section header for a section of unknown length.
pub fn section_header(buffer: &mut Vec<u8>, section: &Section) {
    pcapng::section_header(buffer, section);
}

/// Appends an interface description; `snap_len` is the snap length if the interface has none.
pub fn interface(buffer: &mut Vec<u8>, interface: &Interface, snap_len: u32) {
    pcapng::interface_description(buffer, interface, snap_len);
}

/// Appends an enhanced packet block of an interface that the section has described with this `snap_len`. A packet that
/// was captured longer than that keeps its bytes. `options` are raw options in this machine's byte order, as
/// [`Batch::options`](tapline_packet::Batch::options) has them.
#[inline]
pub fn packet(
    buffer: &mut Vec<u8>,
    packet: &Packet<'_>,
    interface: &Interface,
    snap_len: u32,
    options: &[u8],
) {
    let limit = match pcapng::limit(interface, snap_len) {
        0 => 0,
        limit => limit.max(packet.data.len() as u32),
    };
    pcapng::packet(buffer, packet, interface.link_type, limit, options);
}

/// Appends an interface statistics block.
pub fn statistics(buffer: &mut Vec<u8>, statistics: &InterfaceStatistics) {
    pcapng::interface_statistics(buffer, statistics);
}

/// Appends a block of a type for local use. `data` is padded to a multiple of 4 bytes.
///
/// # Panics
/// If `data` has 4 GiB or more.
pub fn local(buffer: &mut Vec<u8>, kind: u32, data: &[u8]) {
    let len = BLOCK_OVERHEAD + data.len().next_multiple_of(4);
    let len = u32::try_from(len).expect("a block has less than 4 GiB");
    for number in [LOCAL | kind, len] {
        buffer.extend_from_slice(&number.to_ne_bytes());
    }
    buffer.extend_from_slice(data);
    buffer.extend_from_slice(&[0; 3][..data.len().wrapping_neg() % 4]);
    buffer.extend_from_slice(&len.to_ne_bytes());
}
