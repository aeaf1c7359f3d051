//! Chunks: one pcapng section each, with a head that describes its contents.
//!
//! ```text
//! section header 28 | head 220 | interfaces | packets | statistics | filler up to a multiple of 4 KiB
//! ```
//!
//! On the disk a chunk may be compressed (`packed.rs`); its head is at the same offset.

use tapline_file::{InterfaceStatistics, Section, blocks};
use tapline_packet::{Interface, Packet, Timestamp};
use tapline_sys::disk::DIRECT_ALIGN;

use crate::Overload;
use crate::index::IndexOptions;
use crate::layout::{BLOCK_KIND, FILLER_MAGIC, NUMBER_MAX, PAGE_LEN, SLOT_LEN, VERSION};
use crate::packed::{Packing, packed_len_max};

const MAGIC: [u8; 8] = *b"TAPLCHNK";
/// The first bytes of a section (draft-ietf-opsawg-pcapng, section 4.1).
pub(crate) const SECTION_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Where the head's data begin.
const HEAD_AT: usize = blocks::SECTION_HEADER_LEN + 8;
/// Bytes of the head's data.
const HEAD_LEN: usize = 208;
/// Section header and head: what has to be read to know a chunk.
pub(crate) const CHUNK_HEAD_LEN: usize = blocks::SECTION_HEADER_LEN + HEAD_LEN + blocks::BLOCK_OVERHEAD;
/// Offset of the checksum.
const CHECKSUM_AT: usize = HEAD_AT + 144;
/// The flag of unknown losses.
const LOSSES_UNKNOWN: u16 = 1;
/// The flag of erased packets.
const IS_ERASED: u16 = 2;
/// The flag of a recorder that makes no index.
const IS_UNINDEXED: u16 = 4;
/// The flag of an index with names.
const HAS_NAMES: u16 = 8;
/// The flag of an index with MAC addresses.
const HAS_MACS: u16 = 16;
/// Lowest bit of the overload policy in the flags.
const OVERLOAD_SHIFT: u16 = 5;
/// Bytes kept free for the statistics of each interface and the last filler.
pub(crate) const STATISTICS_LEN: usize = 128;
/// The longest chunk: one packet of the link type with the longest packets (D-Bus, 128 MiB).
pub(crate) const CHUNK_LEN_MAX: usize = 130 << 20;

/// Head of a chunk. The fields are named as in docs/format/store.md.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkHead {
    /// The slot in which it begins.
    pub slot: u32,
    /// The store's id.
    pub store: [u8; 16],
    /// The segment's number.
    pub segment: u64,
    /// Chunks of the store before this one, plus 1.
    pub number: u64,
    /// Bytes, a multiple of 4,096.
    pub len: u32,
    /// Packets.
    pub packets: u32,
    /// The least time of its packets.
    pub first: Timestamp,
    /// The greatest time of its packets.
    pub last: Timestamp,
    /// Captured bytes of its packets.
    pub bytes: u64,
    /// When the recorder closed it, by the wall clock.
    pub closed: Timestamp,
    /// Packets that the source received since the chunk before.
    pub received: u64,
    /// Packets lost before the recorder since the chunk before.
    pub lost: u64,
    /// Packets that the recorder lost since the chunk before.
    pub dropped: u64,
    /// Packets that the recorder lost before they had a place in a chunk: `dropped` will have them too. No chunk has
    /// this number itself.
    pub(crate) refused: u64,
    /// Whether `lost` may be more than it says.
    pub is_loss_unknown: bool,
    /// Whether the recorder made no index.
    pub is_unindexed: bool,
    /// Optional keys that the recorder put into the index.
    pub index: IndexOptions,
    /// BLAKE3 of the chunk before.
    pub previous: [u8; 32],
    /// CRC-32C of the chunk.
    pub checksum: u32,
    /// The erasure of packets from this chunk, if there was one.
    pub erasure: Option<Erasure>,
    /// Packets that were left out by wish since the chunk before.
    pub cut: u64,
    /// Packets of `dropped` that the overload policy dropped.
    pub overload: u64,
    /// The policy under overload.
    pub policy: Overload,
    /// Lengths of the parts of a compressed chunk.
    pub(crate) packing: Option<Packing>,
}

/// Record of an erasure in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// Packets that were erased.
    pub packets: u32,
    /// BLAKE3 of the chunk as it was recorded.
    pub original: [u8; 32],
    /// When the last one was.
    pub at: Timestamp,
}

impl ChunkHead {
    /// Reads the head of the chunk that begins here; `None` if none does. Store, segment and slot are for the caller to
    /// check.
    pub(crate) fn parse(bytes: &[u8]) -> Option<ChunkHead> {
        let data = bytes.get(HEAD_AT..HEAD_AT + HEAD_LEN)?;
        let is_section = bytes.get(..4)? == SECTION_MAGIC;
        let packing = Packing::parse(bytes);
        if !(is_section || packing.is_some()) || data[..8] != MAGIC || u16_at(data, 8) != VERSION {
            return None;
        }
        let has_flag = |flag: u16| u16_at(data, 10) & flag != 0;
        let head = ChunkHead {
            slot: u32_at(data, 12),
            store: array(data, 16),
            segment: u64_at(data, 32),
            number: u64_at(data, 40),
            len: u32_at(data, 48),
            packets: u32_at(data, 52),
            first: time_at(data, 56),
            last: time_at(data, 64),
            bytes: u64_at(data, 72),
            closed: time_at(data, 80),
            received: u64_at(data, 88),
            lost: u64_at(data, 96),
            dropped: u64_at(data, 104),
            refused: 0,
            is_loss_unknown: has_flag(LOSSES_UNKNOWN),
            is_unindexed: has_flag(IS_UNINDEXED),
            index: IndexOptions { macs: has_flag(HAS_MACS), names: has_flag(HAS_NAMES) },
            previous: array(data, 112),
            checksum: u32_at(data, 144),
            erasure: has_flag(IS_ERASED).then(|| Erasure {
                packets: u32_at(data, 148),
                original: array(data, 152),
                at: time_at(data, 192),
            }),
            cut: u64_at(data, 184),
            overload: u64_at(data, 200),
            policy: Overload::of_number(u16_at(data, 10) >> OVERLOAD_SHIFT & 3),
            packing,
        };
        let len = head.len as usize;
        let fits = len >= PAGE_LEN && len.is_multiple_of(PAGE_LEN) && len <= CHUNK_LEN_MAX;
        let fits = fits && packing.is_none_or(|packing| packing.fits(len));
        let is_whole = len <= SLOT_LEN || len.is_multiple_of(SLOT_LEN);
        (fits && is_whole && (1..=NUMBER_MAX).contains(&head.number)).then_some(head)
    }

    /// Bytes of the chunk that are on the disk, from its start on: all of them unless it is compressed.
    pub(crate) fn stored_len(&self) -> usize {
        self.packing.map_or(self.len, |packing| packing.stored) as usize
    }

    fn write(&self, data: &mut [u8]) {
        data[..8].copy_from_slice(&MAGIC);
        data[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let flags = [
            (self.is_loss_unknown, LOSSES_UNKNOWN),
            (self.erasure.is_some(), IS_ERASED),
            (self.is_unindexed, IS_UNINDEXED),
            (self.index.names, HAS_NAMES),
            (self.index.macs, HAS_MACS),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
        let flags = flags | self.policy.number() << OVERLOAD_SHIFT;
        data[10..12].copy_from_slice(&flags.to_le_bytes());
        data[12..16].copy_from_slice(&self.slot.to_le_bytes());
        data[16..32].copy_from_slice(&self.store);
        let words = [
            (32, self.segment),
            (40, self.number),
            (56, self.first.as_nanos() as u64),
            (64, self.last.as_nanos() as u64),
            (72, self.bytes),
            (80, self.closed.as_nanos() as u64),
            (88, self.received),
            (96, self.lost),
            (104, self.dropped),
            (184, self.cut),
            (192, self.erasure.map_or(0, |erasure| erasure.at.as_nanos() as u64)),
            (200, self.overload),
        ];
        for (at, word) in words {
            data[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        data[48..52].copy_from_slice(&self.len.to_le_bytes());
        data[52..56].copy_from_slice(&self.packets.to_le_bytes());
        data[112..144].copy_from_slice(&self.previous);
        data[148..152].copy_from_slice(&self.erasure.map_or(0, |erasure| erasure.packets).to_le_bytes());
        data[152..184].copy_from_slice(&self.erasure.map_or([0; 32], |erasure| erasure.original));
    }
}

/// Puts what only the writer knows into a chunk and seals it with its checksum. Gives its hash, for the next one.
pub(crate) fn seal(chunk: &mut [u8], head: &ChunkHead) -> [u8; 32] {
    head.write(&mut chunk[HEAD_AT..HEAD_AT + HEAD_LEN]);
    chunk[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let checksum = crc32c::crc32c(chunk);
    chunk[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    chain_hash(chunk, head)
}

/// Whether a whole chunk is as it was written.
pub(crate) fn is_intact(chunk: &[u8], head: &ChunkHead) -> bool {
    let (Some(before), Some(after)) = (chunk.get(..CHECKSUM_AT), chunk.get(CHECKSUM_AT + 4..)) else {
        return false;
    };
    let checksum = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]), after);
    chunk.len() == head.stored_len() && checksum == head.checksum
}

/// Hash of an intact chunk for the chain, as the next chunk contains it. After an erasure it is the hash that the chunk
/// had before.
pub(crate) fn chain_hash(chunk: &[u8], head: &ChunkHead) -> [u8; 32] {
    head.erasure.map_or_else(|| *blake3::hash(chunk).as_bytes(), |erasure| erasure.original)
}

/// Memory for a chunk, which begins at a multiple of the page: disks may take it from there.
#[derive(Debug, Default)]
pub(crate) struct ChunkBuffer {
    /// Bytes without meaning, then the chunk.
    memory: Vec<u8>,
    /// Number of bytes before the chunk.
    lead: usize,
}

impl ChunkBuffer {
    /// Memory for a chunk of so many bytes; a longer one grows out of it, perhaps to an address that no disk takes.
    pub(crate) fn with_capacity(len: usize) -> ChunkBuffer {
        ChunkBuffer { memory: Vec::with_capacity(len + DIRECT_ALIGN), lead: 0 }
    }

    /// Memory for a chunk of a slot and its filler, which the system has mapped already: no page fault delays packets.
    pub(crate) fn of_slot() -> ChunkBuffer {
        let mut buffer = ChunkBuffer::with_capacity(SLOT_LEN + PAGE_LEN);
        buffer.memory.resize(buffer.memory.capacity(), 0);
        buffer
    }

    /// Clears the buffer.
    pub(crate) fn begin(&mut self) {
        let lead = self.memory.as_ptr().align_offset(DIRECT_ALIGN);
        self.memory.clear();
        self.memory.resize(lead, 0);
        self.lead = lead;
    }

    /// Where bytes of the chunk are appended.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.memory
    }

    /// Bytes of the chunk so far.
    pub(crate) fn len(&self) -> usize {
        self.memory.len() - self.lead
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.lead..]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.lead..]
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.memory.truncate(self.lead + len);
    }

    /// Whether a disk can take the chunk from where it is.
    pub(crate) fn is_aligned(&self) -> bool {
        self.bytes().as_ptr().addr().is_multiple_of(DIRECT_ALIGN) && self.len().is_multiple_of(DIRECT_ALIGN)
    }

    /// Whether it is as long as a slot's chunks need, and no longer.
    pub(crate) fn is_of_slot(&self) -> bool {
        (SLOT_LEN..=2 * SLOT_LEN).contains(&self.memory.capacity())
    }
}

/// Gathers packets for a chunk.
pub(crate) struct ChunkBuilder {
    buffer: ChunkBuffer,
    /// Bytes that the chunk may have.
    room: usize,
    /// Interfaces described in it.
    interfaces: usize,
    snap_len: u32,
    /// Whether the chunk will be compressed.
    is_packed: bool,
    /// Counts, times and bytes so far.
    head: ChunkHead,
}

impl ChunkBuilder {
    pub(crate) fn new(snap_len: u32) -> ChunkBuilder {
        ChunkBuilder {
            buffer: ChunkBuffer::default(),
            room: 0,
            interfaces: 0,
            snap_len,
            is_packed: false,
            head: ChunkHead::default(),
        }
    }

    /// Gathers packets for chunks that will be compressed, if `is_packed` says so.
    pub(crate) fn packed(self, is_packed: bool) -> ChunkBuilder {
        ChunkBuilder { is_packed, ..self }
    }

    /// Begins a chunk in `buffer`, of at most `room` bytes, a multiple of the page.
    pub(crate) fn begin(&mut self, mut buffer: ChunkBuffer, room: usize, interfaces: &[Interface]) {
        buffer.begin();
        blocks::section_header(buffer.tail(), &Section::default());
        blocks::local(buffer.tail(), BLOCK_KIND, &[0; HEAD_LEN]);
        self.buffer = buffer;
        self.room = room;
        self.interfaces = 0;
        self.head = ChunkHead {
            first: Timestamp::from_nanos(i64::MAX),
            last: Timestamp::EPOCH,
            ..ChunkHead::default()
        };
        self.describe(interfaces);
    }

    /// The buffer of a chunk that was begun and not finished.
    pub(crate) fn take_buffer(&mut self) -> Option<ChunkBuffer> {
        (self.buffer.memory.capacity() > 0).then(|| std::mem::take(&mut self.buffer))
    }

    /// Describes interfaces that are new.
    pub(crate) fn describe(&mut self, interfaces: &[Interface]) {
        for interface in interfaces.get(self.interfaces..).unwrap_or_default() {
            blocks::interface(self.buffer.tail(), interface, self.snap_len);
        }
        self.interfaces = self.interfaces.max(interfaces.len());
    }

    /// Packets gathered.
    pub(crate) fn packets(&self) -> u32 {
        self.head.packets
    }

    /// Bytes of a chunk with one packet of this length, without the interfaces.
    pub(crate) fn len_with(&self, cap_len: usize, options_len: usize) -> usize {
        let tail = self.interfaces * STATISTICS_LEN + blocks::BLOCK_OVERHEAD + FILLER_MAGIC.len();
        // Header, trailer, a tag that is put back, flags and drop count.
        let len = self.buffer.len() + cap_len + options_len + 80 + tail;
        if self.is_packed { packed_len_max(len) } else { len }
    }

    /// Whether a packet of this length still fits.
    pub(crate) fn fits(&self, cap_len: usize, options_len: usize) -> bool {
        self.len_with(cap_len, options_len) <= self.room
    }

    /// Adds a packet that fits.
    #[inline]
    pub(crate) fn push(&mut self, packet: &Packet<'_>, interface: &Interface, options: &[u8]) {
        blocks::packet(self.buffer.tail(), packet, interface, self.snap_len, options);
        let ChunkHead { packets, first, last, bytes, .. } = &mut self.head;
        *packets += 1;
        // A packet block has no times before 1970.
        let timestamp = packet.meta.timestamp.max(Timestamp::EPOCH);
        *first = (*first).min(timestamp);
        *last = (*last).max(timestamp);
        *bytes += packet.data.len() as u64;
    }

    /// Completes the chunk up to its seal. Returns its bytes and its head; without a filler if it will be compressed.
    pub(crate) fn finish(
        &mut self,
        statistics: &[InterfaceStatistics],
        now: Timestamp,
    ) -> (ChunkBuffer, ChunkHead) {
        let known = self.interfaces;
        for one in statistics.iter().filter(|one| (one.interface.0 as usize) < known) {
            blocks::statistics(self.buffer.tail(), one);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let used = buffer.len();
        let needed = if self.is_packed { packed_len_max(used) } else { used };
        let mut len = needed.next_multiple_of(PAGE_LEN);
        // A filler has at least 20 bytes.
        let filler_min = blocks::BLOCK_OVERHEAD + FILLER_MAGIC.len();
        if !self.is_packed && len > used && len - used < filler_min {
            len += PAGE_LEN;
        }
        if len > SLOT_LEN {
            len = len.next_multiple_of(SLOT_LEN);
        }
        if !self.is_packed && len > used {
            let mut data = vec![0; len - used - blocks::BLOCK_OVERHEAD];
            data[..FILLER_MAGIC.len()].copy_from_slice(&FILLER_MAGIC);
            blocks::local(buffer.tail(), BLOCK_KIND, &data);
        }
        let mut head = ChunkHead { len: len as u32, closed: now, ..std::mem::take(&mut self.head) };
        if head.packets == 0 {
            (head.first, head.last) = (now, now);
        }
        (buffer, head)
    }
}

fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(data, at))
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(data, at))
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(data, at))
}

fn time_at(data: &[u8], at: usize) -> Timestamp {
    Timestamp::from_nanos(u64_at(data, at) as i64)
}
