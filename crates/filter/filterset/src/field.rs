//! The parts of a packet that filters of a set compare, and how they are read.
//!
//! ```text
//! part    := origin + offset : width & mask
//! origin  := packet's first byte | end of the IPv4 header at `header` | length on the wire | kernel's metadata
//! ```
//!
//! A read outside of the captured bytes gives nothing, as a load of a filter program rejects there.

use tapline_packet::{Meta, Packet};

use tapline_bpf::ancillary;
use tapline_bpf::cfg::Width;
use tapline_bpf::load_ancillary;
use tapline_filter::predicate::{Base, FieldOffset, TestedField};

/// The origin of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    /// The packet's first byte.
    Start,
    /// The length of the IPv4 header at this byte; an offset from here includes the header's own place.
    Ipv4Len(u32),
    /// No bytes: the packet's length on the wire.
    Len,
    /// Metadata from the kernel or the capture, by the number that Linux gives the load.
    Kernel(u32),
}

/// Some bits of a packet, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BitField {
    pub(super) origin: Origin,
    /// Bytes from the origin; 0 where there are none.
    pub(super) offset: u32,
    /// 1, 2 or 4 bytes; 4 where there are none.
    pub(super) width: u8,
    /// The bits that count.
    pub(super) mask: u32,
}

impl BitField {
    /// The part that a test of a resolved filter looks at; `None` if it depends on cells or is of a kind that is not
    /// known.
    pub(super) fn of(field: TestedField, mask: u32) -> Option<BitField> {
        match field {
            TestedField::Len => Some(BitField { origin: Origin::Len, offset: 0, width: 4, mask }),
            TestedField::Packet(place, width) => BitField::at(place, width, mask),
        }
    }

    /// The bytes at a fixed place, or past an IPv4 header at a fixed place.
    pub(super) fn at(place: FieldOffset, width: Width, mask: u32) -> Option<BitField> {
        let bytes = width.bytes();
        let all = u32::MAX >> (32 - 8 * bytes);
        let origin = match place.base {
            Base::Packet if ancillary::name(place.offset).is_some() => {
                // Only metadata that every packet has and that takes no bytes; other loads are left to programs.
                let known = load_ancillary(place.offset, &[], &Meta::default()).is_some();
                let origin = Origin::Kernel(place.offset);
                return known.then_some(BitField { origin, offset: 0, width: 4, mask });
            }
            Base::Packet => Origin::Start,
            Base::Ipv4Len { cell: None, header } => Origin::Ipv4Len(header),
            _ => return None,
        };
        Some(BitField { origin, offset: place.offset, width: bytes as u8, mask: mask & all })
    }

    /// One past its last byte, from the origin.
    pub(super) fn end(self) -> u64 {
        u64::from(self.offset) + u64::from(self.width)
    }

    /// Whether the bytes are the same, with any mask of bits.
    pub(super) fn same_bytes(self, other: BitField) -> bool {
        (self.origin, self.offset, self.width) == (other.origin, other.offset, other.width)
    }

    /// The part's bits in a packet; `None` if they were not captured.
    #[inline]
    pub(super) fn read(self, packet: Packet<'_>) -> Option<u32> {
        let Packet { data, meta } = packet;
        let start = match self.origin {
            Origin::Start => 0,
            Origin::Ipv4Len(header) => ipv4_header_len(data, header)?,
            Origin::Len => return Some(meta.wire_len & self.mask),
            Origin::Kernel(k) => return load_ancillary(k, data, meta).map(|value| value & self.mask),
        };
        let bytes = data.get(start.checked_add(self.offset as usize)?..)?;
        let value = match self.width {
            1 => u32::from(*bytes.first()?),
            2 => u32::from(u16::from_be_bytes(*bytes.first_chunk()?)),
            _ => u32::from_be_bytes(*bytes.first_chunk()?),
        };
        Some(value & self.mask)
    }
}

/// The length of the IPv4 header at `header`, as its first byte says it.
#[inline]
pub(super) fn ipv4_header_len(data: &[u8], header: u32) -> Option<usize> {
    data.get(header as usize).map(|first| usize::from(first & 0x0f) << 2)
}
