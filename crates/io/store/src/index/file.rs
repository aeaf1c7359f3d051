//! The index as a file (docs/format/store.md, "Index").

use std::ops::Range;
use std::path::Path;

use tapline_packet::Timestamp;

use super::expand::{Draft, expand};
use super::pages::{self, Owner, Pages};
use super::slots::decode;
use super::{Builder, Contents, SlotRow, Slots, Summary};
use crate::chunk::CHUNK_LEN_MAX;
use crate::error::Error;
use crate::keys::{Class, INNER, OpenKeys, WAYS};
use crate::layout::{PAGE_LEN, SEGMENT_LEN_MAX, SLOT_LEN, StoreId};

const MAGIC: [u8; 8] = *b"TAPLTIX3";
const HEAD_LEN: usize = 256;
const ROW_LEN: usize = 48;
/// The index has at most this part of the used slots: one in two hundred.
const BUDGET_SHARE: usize = 200;
/// The bit of a start that says that the bytes are a bit set.
const IS_BIT_SET: u32 = 1 << 31;
/// Bits of a key after those of its bucket that the file has.
const REST_BITS: u32 = 24;
const BUCKET_BITS_MIN: u32 = 8;
const BUCKET_BITS_MAX: u32 = 20;
/// Keys of a bucket on average.
const KEYS_PER_BUCKET: u32 = 8;
const SLOTS_MAX: u32 = (SEGMENT_LEN_MAX / SLOT_LEN as u64) as u32;

/// Writes the index of a sealed segment and returns its length. Fills in the summary's facts of the index.
pub(crate) fn write(path: &Path, contents: &mut Contents, builder: &mut Builder) -> Result<u64, Error> {
    let owner = Owner { store: contents.summary.store, number: contents.summary.segment };
    pages::write(path, &owner, &encode(contents, builder))
}

/// Classes whose keys are in an index, by bits.
fn classes(builder: &Builder) -> u64 {
    let bit = |class: Class| 1_u64 << class as u8;
    let of_packet = [
        Class::EtherType,
        Class::Protocol,
        Class::Ipv4,
        Class::Ipv6,
        Class::Ipv4Net,
        Class::Ipv6Net,
        Class::Port,
        Class::Vlan,
        Class::Tagged,
        Class::Pair,
        Class::Flow,
    ];
    let of_both: u64 = of_packet.into_iter().map(|class| bit(class) | bit(class) << INNER).sum();
    let if_asked = |is_asked: bool, class| if is_asked { bit(class) } else { 0 };
    let options = builder.options;
    of_both | bit(Class::Open) | if_asked(options.macs, Class::Mac) | if_asked(options.names, Class::Name)
}

fn encode(contents: &mut Contents, builder: &mut Builder) -> Vec<u8> {
    let Contents { rows, summary, .. } = contents;
    let used = used(rows);
    let fixed = HEAD_LEN + used as usize * ROW_LEN;
    let budget = (used as usize * SLOT_LEN / BUDGET_SHARE).saturating_sub(fixed + PAGE_LEN);
    let draft = expand(builder, used, budget);
    summary.slots = used;
    summary.classes = classes(builder);
    summary.open = std::array::from_fn(|way| draft.open[way].count());
    let layout = Layout::of(&draft, used);
    let mut content = Vec::with_capacity(layout.len() as usize);
    layout.write_head(summary, &mut content);
    rows[..used as usize].iter().for_each(|row| write_row(&mut content, row));
    layout.write_keys(&draft, &mut content);
    let ends = draft.starts.iter().copied().chain([draft.bytes.len() as u32]);
    ends.for_each(|start| content.extend_from_slice(&start.to_le_bytes()));
    content.extend_from_slice(&draft.bytes);
    debug_assert_eq!(content.len() as u64, layout.len());
    content
}

/// Slots up to the last one in which there is something of a chunk.
fn used(rows: &[SlotRow]) -> u32 {
    let end = |(slot, row): (usize, &SlotRow)| slot + (row.pages as usize * PAGE_LEN).div_ceil(SLOT_LEN);
    let with_chunks = rows.iter().enumerate().filter(|(_, row)| row.chunks > 0);
    with_chunks.map(end).max().unwrap_or(0).min(rows.len()) as u32
}

fn write_row(content: &mut Vec<u8>, row: &SlotRow) {
    for number in [row.chunks, row.pages, row.packets, row.lost] {
        content.extend_from_slice(&number.to_le_bytes());
    }
    let (first, last) = (row.first.as_nanos() as u64, row.last.as_nanos() as u64);
    for number in [first, last, row.bytes, row.number] {
        content.extend_from_slice(&number.to_le_bytes());
    }
}

/// Counts of all parts of an index, from which their offsets follow.
#[derive(Clone, Copy, Debug)]
struct Layout {
    slots: u32,
    keys: u32,
    sets: u32,
    set_bytes: u32,
    bucket_bits: u32,
    /// Bytes of a set's number.
    width: u32,
}

impl Layout {
    fn of(draft: &Draft, slots: u32) -> Layout {
        let keys = draft.keys.len() as u32;
        let buckets = (keys / KEYS_PER_BUCKET).max(1);
        let sets = draft.starts.len() as u32;
        Layout {
            slots,
            keys,
            sets,
            set_bytes: draft.bytes.len() as u32,
            bucket_bits: buckets.ilog2().clamp(BUCKET_BITS_MIN, BUCKET_BITS_MAX),
            width: if slots + sets <= 1 << 16 { 2 } else { 3 },
        }
    }

    /// Whether the numbers are such as a segment can have.
    fn is_sound(&self) -> bool {
        self.slots <= SLOTS_MAX
            && (BUCKET_BITS_MIN..=BUCKET_BITS_MAX).contains(&self.bucket_bits)
            && matches!(self.width, 2 | 3)
    }

    fn rows_at(&self) -> u64 {
        HEAD_LEN as u64
    }

    fn buckets_at(&self) -> u64 {
        self.rows_at() + u64::from(self.slots) * ROW_LEN as u64
    }

    fn keys_at(&self) -> u64 {
        self.buckets_at() + ((1 << self.bucket_bits) + 1) * 4
    }

    fn numbers_at(&self) -> u64 {
        self.keys_at() + u64::from(self.keys) * 3
    }

    fn starts_at(&self) -> u64 {
        self.numbers_at() + u64::from(self.keys) * u64::from(self.width)
    }

    fn sets_at(&self) -> u64 {
        self.starts_at() + (u64::from(self.sets) + 1) * 4
    }

    fn len(&self) -> u64 {
        self.sets_at() + u64::from(self.set_bytes)
    }

    fn write_head(&self, summary: &Summary, content: &mut Vec<u8>) {
        content.extend_from_slice(&MAGIC);
        content.extend_from_slice(&summary.store);
        let words = [
            summary.segment,
            summary.first.as_nanos() as u64,
            summary.last.as_nanos() as u64,
            summary.packets,
            summary.bytes,
            summary.lost,
            summary.dropped,
            summary.cut,
            summary.last_number,
        ];
        words.iter().for_each(|word| content.extend_from_slice(&word.to_le_bytes()));
        content.extend_from_slice(&summary.last_hash);
        let counts = [
            summary.chunks,
            self.slots,
            self.keys,
            self.sets,
            self.set_bytes,
            self.bucket_bits,
            self.width,
            summary.erased,
        ];
        counts.iter().for_each(|count| content.extend_from_slice(&count.to_le_bytes()));
        content.extend_from_slice(&summary.classes.to_le_bytes());
        summary.open.iter().for_each(|count| content.extend_from_slice(&count.to_le_bytes()));
        summary.overload.iter().for_each(|count| content.extend_from_slice(&count.to_le_bytes()));
        content.resize(HEAD_LEN, 0);
    }

    /// Buckets, keys, and their sets' numbers.
    fn write_keys(&self, draft: &Draft, content: &mut Vec<u8>) {
        let mut next = 0;
        for bucket in 0..=1_u64 << self.bucket_bits {
            while draft.keys.get(next).is_some_and(|(key, _)| key >> (64 - self.bucket_bits) < bucket) {
                next += 1;
            }
            content.extend_from_slice(&(next as u32).to_le_bytes());
        }
        for (key, _) in &draft.keys {
            content.extend_from_slice(&self.rest(*key).to_le_bytes()[..3]);
        }
        for (_, number) in &draft.keys {
            content.extend_from_slice(&number.to_le_bytes()[..self.width as usize]);
        }
    }

    /// Bits of a key that the file has.
    fn rest(&self, key: u64) -> u32 {
        (key << self.bucket_bits >> (64 - REST_BITS)) as u32
    }
}

/// An open index: its head was read and checked, other parts are read when needed.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) summary: Summary,
    layout: Layout,
    pages: Pages,
}

impl Index {
    /// Opens an index; `None` if there is none, or one that is damaged or of another segment: then its segment is
    /// walked.
    pub(crate) fn read(path: &Path, store: &StoreId, segment: u64) -> Option<Index> {
        let pages = Pages::open(path, Owner { store: *store, number: segment })?;
        let head = pages.read(0..HEAD_LEN as u64)?;
        let (summary, layout) = parse_head(&head)?;
        let fits = summary.store == *store && summary.segment == segment && layout.is_sound();
        (fits && pages.is_of(layout.len())).then_some(Index { summary, layout, pages })
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.pages.len()
    }

    /// Whether every page is as it was written.
    pub(crate) fn is_whole(&self) -> bool {
        self.pages.read(0..self.layout.len()).is_some()
    }

    /// Bytes of it that were read so far.
    pub(crate) fn read_len(&self) -> u64 {
        self.pages.read_len()
    }

    /// Whether it has keys of a class, by number.
    pub(crate) fn has_class(&self, class: u8) -> bool {
        self.summary.classes >> class & 1 == 1
    }

    /// The slots, in the order of the segment; `None` if they are damaged or impossible in a segment.
    pub(crate) fn rows(&self) -> Option<Vec<SlotRow>> {
        let bytes = self.pages.read(self.layout.rows_at()..self.layout.buckets_at())?;
        let rows: Option<Vec<SlotRow>> = bytes.chunks_exact(ROW_LEN).map(parse_row).collect();
        let rows = rows?;
        let pages_max = |slot: usize| match (rows.len() - slot) * SLOT_LEN {
            // Only a packet that is longer than a slot has a chunk over several.
            left if left <= CHUNK_LEN_MAX => left / PAGE_LEN,
            _ => CHUNK_LEN_MAX / PAGE_LEN,
        };
        rows.iter().enumerate().all(|(slot, row)| row.pages as usize <= pages_max(slot)).then_some(rows)
    }

    /// The slots that have packets with this key; `None` if what says so is damaged.
    pub(crate) fn slots(&self, key: u64) -> Option<Slots> {
        let found = self.find(key)?;
        let mut slots = Slots::none(self.summary.slots);
        let width = u64::from(self.layout.width);
        let at = |key: u64| self.layout.numbers_at() + key * width;
        let numbers = self.pages.read(at(found.start)..at(found.end))?;
        for number in numbers.chunks_exact(width as usize) {
            let number = number.iter().rev().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
            match number.checked_sub(self.summary.slots) {
                None => slots.insert(number),
                Some(set) => slots.insert_all(&self.set(set)?),
            }
        }
        Some(slots)
    }

    /// The slots that are open in a way; `None` if what says so is damaged.
    pub(crate) fn open(&self, way: OpenKeys) -> Option<Slots> {
        match self.summary.open[way as usize] {
            0 => Some(Slots::none(self.summary.slots)),
            count if count >= self.summary.slots => Some(Slots::all(self.summary.slots)),
            _ => self.slots(crate::keys::open_key(way)),
        }
    }

    /// Range of entries whose compared bits are those of the key: it may have entries of other keys.
    fn find(&self, key: u64) -> Option<Range<u64>> {
        let bucket = key >> (64 - self.layout.bucket_bits);
        let at = self.layout.buckets_at() + bucket * 4;
        let bounds = self.pages.read(at..at + 8)?;
        let (from, to) = (u64::from(u32_at(&bounds, 0)?), u64::from(u32_at(&bounds, 4)?));
        if from > to || to > self.layout.keys.into() {
            return None;
        }
        let keys = self.pages.read(self.layout.keys_at() + from * 3..self.layout.keys_at() + to * 3)?;
        let wanted = self.layout.rest(key).to_le_bytes();
        let is_it = |key: &[u8]| key == &wanted[..3];
        let first = keys.chunks_exact(3).take_while(|key| !is_it(key)).count() as u64;
        let count = keys.chunks_exact(3).skip(first as usize).take_while(|key| is_it(key)).count() as u64;
        Some(from + first..from + first + count)
    }

    fn set(&self, number: u32) -> Option<Slots> {
        let slots = self.summary.slots;
        if number >= self.layout.sets {
            return None;
        }
        let at = self.layout.starts_at() + u64::from(number) * 4;
        let starts = self.pages.read(at..at + 8)?;
        let (start, end) = (u32_at(&starts, 0)?, u32_at(&starts, 4)? & !IS_BIT_SET);
        let from = start & !IS_BIT_SET;
        if from > end || end > self.layout.set_bytes || end - from > slots * 17 {
            return None;
        }
        let sets_at = self.layout.sets_at();
        let bytes = self.pages.read(sets_at + u64::from(from)..sets_at + u64::from(end))?;
        decode(&bytes, start & IS_BIT_SET != 0, slots)
    }

    /// The upper 32 bits of all keys of some groups, ascending, for a roll-up.
    pub(crate) fn uppers(&self, groups: Range<u64>) -> Option<Vec<u32>> {
        let bounds = self.pages.read(self.layout.buckets_at()..self.layout.keys_at())?;
        let rests = self.pages.read(self.layout.keys_at()..self.layout.numbers_at())?;
        let bucket_of_group = 1_u64 << (self.layout.bucket_bits - 2);
        let mut uppers = Vec::new();
        for bucket in groups.start * bucket_of_group..groups.end * bucket_of_group {
            let at = bucket as usize * 4;
            let place = u32_at(&bounds, at)? as usize * 3..u32_at(&bounds, at + 4)? as usize * 3;
            for rest in rests.get(place)?.chunks_exact(3) {
                let rest = u64::from(rest[0]) | u64::from(rest[1]) << 8 | u64::from(rest[2]) << 16;
                let key = bucket << (64 - self.layout.bucket_bits)
                    | rest << (64 - REST_BITS - self.layout.bucket_bits);
                uppers.push((key >> 32) as u32);
            }
        }
        Some(uppers)
    }
}

fn parse_head(head: &[u8]) -> Option<(Summary, Layout)> {
    (head.get(..8)? == MAGIC).then_some(())?;
    let (u32_at, u64_at) = (|at| u32_at(head, at), |at| u64_at(head, at));
    let mut open = [0; WAYS];
    for (way, count) in open.iter_mut().enumerate() {
        *count = u32_at(168 + way * 4)?;
    }
    let mut overload = [0; 3];
    for (at, count) in overload.iter_mut().enumerate() {
        *count = u64_at(192 + at * 8)?;
    }
    let summary = Summary {
        store: *head.get(8..)?.first_chunk()?,
        segment: u64_at(24)?,
        first: Timestamp::from_nanos(u64_at(32)? as i64),
        last: Timestamp::from_nanos(u64_at(40)? as i64),
        packets: u64_at(48)?,
        bytes: u64_at(56)?,
        lost: u64_at(64)?,
        dropped: u64_at(72)?,
        cut: u64_at(80)?,
        overload,
        last_number: u64_at(88)?,
        last_hash: *head.get(96..)?.first_chunk()?,
        chunks: u32_at(128)?,
        slots: u32_at(132)?,
        erased: u32_at(156)?,
        classes: u64_at(160)?,
        open,
    };
    let layout = Layout {
        slots: summary.slots,
        keys: u32_at(136)?,
        sets: u32_at(140)?,
        set_bytes: u32_at(144)?,
        bucket_bits: u32_at(148)?,
        width: u32_at(152)?,
    };
    Some((summary, layout))
}

fn parse_row(bytes: &[u8]) -> Option<SlotRow> {
    Some(SlotRow {
        chunks: u32_at(bytes, 0)?,
        pages: u32_at(bytes, 4)?,
        packets: u32_at(bytes, 8)?,
        lost: u32_at(bytes, 12)?,
        first: Timestamp::from_nanos(u64_at(bytes, 16)? as i64),
        last: Timestamp::from_nanos(u64_at(bytes, 24)? as i64),
        bytes: u64_at(bytes, 32)?,
        number: u64_at(bytes, 40)?,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}
