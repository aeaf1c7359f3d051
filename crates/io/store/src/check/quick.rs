//! A quick look: heads, lengths, indexes. Packets are not read; [`verify`](super::verify) does that.

use std::fs::{File, OpenOptions};

use tapline_sys::disk;

use super::{Finding, SegmentGaps, gone_finding, missing_findings, second_file};
use crate::catalog::Catalog;
use crate::erase::rewrite;
use crate::error::Error;
use crate::index::rollup::{self, RollUp};
use crate::index::{Contents, Index, SlotRow, Summary};
use crate::log::{History, history};
use crate::restore::read_intact;
use crate::walk::Walk;

/// Result of a quick check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Segments looked at.
    pub segments: u64,
    /// Segments whose index is intact and fits their chunks.
    pub indexed: u64,
    /// Without one, as it should be: recorded now, the last of a recording that was broken off, or recorded with no
    /// index on request.
    pub open: u64,
    /// Segments in a recycled file without a chunk yet: the recorder ended before all slots were cleared.
    pub begun: u64,
    /// With something wrong.
    pub wrong: u64,
    /// Chunks found by their heads.
    pub chunks: u64,
    /// Packets in them, by their heads.
    pub packets: u64,
    /// Roll-ups that are whole.
    pub roll_ups: u64,
    /// Faults, in the order of recording.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// Whether each segment is in one place.
    pub fn is_balanced(&self) -> bool {
        self.segments == self.indexed + self.open + self.wrong
    }
}

/// Reads every chunk head and every index page. `progress` gets the number of segments done and of all; it stops the
/// check by `false`.
///
/// # Errors [`Error::File`] if the directory cannot be read.
pub fn check(catalog: &Catalog, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Checked, Error> {
    let numbers = catalog.numbers()?;
    let is_recorded = catalog.is_recorded();
    let mut checked = Checked::default();
    let mut last = None;
    let (missing, at_first) = catalog.missing_segments()?;
    let mut gaps = SegmentGaps::of(&missing);
    checked.findings.extend(missing_findings(&missing));
    for (done, &number) in numbers.iter().enumerate() {
        if !progress(done as u64, numbers.len() as u64) {
            break;
        }
        // A recorder seals a segment while the next one is there already.
        let may_be_open = done + if is_recorded { 2 } else { 1 } >= numbers.len();
        if gaps.before(number).is_some() {
            last = None;
        }
        let is_newest = done + 1 == numbers.len();
        let segment = Segment::look(catalog, number, last, is_newest, &at_first);
        if segment.findings.is_empty() || catalog.segment_path(number).exists() {
            last = segment.last.or(last);
            checked.add(segment, may_be_open);
        } else {
            // It was recycled meanwhile, or taken.
            checked.findings.extend(gone_finding(catalog, number));
            last = None;
        }
    }
    check_roll_ups(catalog, &numbers, &mut checked);
    if rewrite::is_left(catalog) && !is_recorded {
        checked.findings.push(Finding::RewriteLeft);
    }
    let holds = catalog.holds()?;
    let is_gone = |name: &String| !holds.iter().any(|entry| entry.name == *name);
    let gone = history(&catalog.paths).held.into_iter().filter(is_gone);
    checked.findings.extend(gone.map(|name| Finding::HoldMissing { name }));
    for entry in holds {
        let name = entry.name;
        checked.findings.extend(entry.hold.err().map(|reason| Finding::Hold { name, reason }));
    }
    Ok(checked)
}

impl Checked {
    fn add(&mut self, segment: Segment, may_be_open: bool) {
        self.segments += 1;
        self.chunks += segment.chunks;
        self.packets += segment.packets;
        let Segment { mut findings, number, state, is_begun, unindexed, .. } = segment;
        self.begun += u64::from(is_begun);
        let is_open =
            state == IndexCondition::Missing && (may_be_open || is_begun || unindexed == Some(true));
        match state {
            IndexCondition::Missing if !is_open => findings.push(Finding::NoIndex { segment: number }),
            IndexCondition::Damaged => findings.push(Finding::IndexDamaged { segment: number }),
            IndexCondition::Different => findings.push(Finding::IndexDiffers { segment: number }),
            IndexCondition::Whole | IndexCondition::Missing => {}
        }
        match (findings.is_empty(), is_open) {
            (false, _) => self.wrong += 1,
            (true, true) => self.open += 1,
            (true, false) => self.indexed += 1,
        }
        self.findings.append(&mut findings);
    }
}

/// Condition of a segment's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexCondition {
    /// Every page has its checksum, and the index lists the chunks of the segment.
    Whole,
    /// There is none.
    Missing,
    /// A page is not as it was written.
    Damaged,
    /// The index lists other chunks than the segment has.
    Different,
}

/// A segment by the heads of its chunks.
struct Segment {
    number: u64,
    chunks: u64,
    packets: u64,
    /// The number of its last chunk.
    last: Option<u64>,
    state: IndexCondition,
    is_begun: bool,
    /// Whether every chunk with packets comes from a recorder without an index; `None` without packets.
    unindexed: Option<bool>,
    findings: Vec<Finding>,
}

impl Segment {
    fn look(
        catalog: &Catalog,
        number: u64,
        before: Option<u64>,
        is_newest: bool,
        history: &History,
    ) -> Segment {
        let mut segment = Segment {
            number,
            chunks: 0,
            packets: 0,
            last: before,
            state: IndexCondition::Missing,
            is_begun: false,
            unindexed: None,
            findings: second_file(catalog, number).into_iter().collect(),
        };
        let path = catalog.segment_path(number);
        let opened = disk::open_regular(&path, OpenOptions::new().read(true));
        let len = opened.as_ref().ok().and_then(|file| file.metadata().ok()).map(|metadata| metadata.len());
        let (Ok(file), Some(len)) = (opened, len) else {
            segment.findings.push(Finding::Unreadable { segment: number });
            segment.state = IndexCondition::Whole;
            return segment;
        };
        if len != catalog.segment_len() {
            segment.findings.push(Finding::Length { segment: number, len });
        }
        segment.walk(catalog, &file, is_newest, history);
        segment.state = segment_state(catalog, number, history).unwrap_or(IndexCondition::Whole);
        segment
    }

    /// Goes from head to head.
    fn walk(&mut self, catalog: &Catalog, file: &File, is_newest: bool, history: &History) {
        let Ok(walk) = Walk::new(file, catalog.id, self.number, catalog.segment_len()) else {
            self.findings.push(Finding::Unreadable { segment: self.number });
            return;
        };
        let mut walk = walk.sealed(catalog.sealed_chunks(self.number, history));
        while let Some(found) = walk.next() {
            self.chunks += 1;
            self.packets += u64::from(found.head.packets);
            if found.head.packets > 0 {
                self.unindexed = Some(found.head.is_unindexed && self.unindexed.unwrap_or(true));
            }
            let expected = self.last.replace(found.head.number).map(|last| last + 1);
            // A chunk that was being written when its recorder was killed has its number once more.
            if let Some(expected) = expected.filter(|expected| found.head.number > *expected) {
                let (segment, found) = (self.number, found.head.number);
                self.findings.push(Finding::Missing { segment, expected, found });
            }
        }
        self.is_begun = walk.is_begun() && is_newest;
        let places = walk.damaged + u64::from(walk.is_begun() && !is_newest);
        if places > 0 {
            self.findings.push(Finding::Foreign { segment: self.number, places });
        }
        if let chunks @ 1.. = walk.missing() {
            self.findings.push(Finding::ChunksMissing { segment: self.number, chunks });
        }
    }
}

/// Compares the index with these chunks; `last_hash` is the hash of the last chunk, if that is intact.
fn state(catalog: &Catalog, number: u64, contents: &Contents, last_hash: Option<[u8; 32]>) -> IndexCondition {
    let path = catalog.paths.index(number);
    let Some(index) = Index::read(&path, &catalog.id, number) else {
        return if path.symlink_metadata().is_ok() {
            IndexCondition::Damaged
        } else {
            IndexCondition::Missing
        };
    };
    let Some(told) = index.rows().filter(|_| index.is_whole()) else { return IndexCondition::Damaged };
    let (nothing, rows) = (SlotRow::default(), &contents.rows);
    let row_of = |rows: &[SlotRow], slot: usize| rows.get(slot).copied().unwrap_or(nothing);
    let slots = told.len().max(rows.len());
    let has_rows = (0..slots).all(|slot| row_of(&told, slot) == row_of(rows, slot));
    let last_hash = last_hash.unwrap_or(index.summary.last_hash);
    let has_head = index.summary.tells_of(&Summary { last_hash, ..contents.summary.clone() });
    if has_rows && has_head { IndexCondition::Whole } else { IndexCondition::Different }
}

/// Compares the index with the intact chunks; `None` if the segment cannot be read.
pub(crate) fn segment_state(catalog: &Catalog, number: u64, history: &History) -> Option<IndexCondition> {
    let opened = disk::open_regular(&catalog.segment_path(number), OpenOptions::new().read(true));
    let file = opened.ok()?;
    let walk = Walk::new(&file, catalog.id, number, catalog.segment_len()).ok()?;
    let mut walk = walk.sealed(catalog.sealed_chunks(number, history));
    let mut heads = Contents::new(catalog.segment_len());
    let mut founds = Vec::new();
    while let Some(found) = walk.next() {
        heads.note(&found.head, found.offset, [0; 32]);
        founds.push(found);
    }
    let mut buffer = Vec::new();
    let last_hash = founds.last().and_then(|found| read_intact(&file, found, &mut buffer));
    let by_heads = state(catalog, number, &heads, last_hash);
    if by_heads != IndexCondition::Different {
        return Some(by_heads);
    }
    // Chunks whose head is there and whose packets are damaged are in no index.
    let mut contents = Contents::new(catalog.segment_len());
    for found in founds {
        if let Some(hash) = read_intact(&file, &found, &mut buffer) {
            contents.note(&found.head, found.offset, hash);
        }
    }
    let last_hash = Some(contents.summary.last_hash);
    Some(state(catalog, number, &contents, last_hash))
}

/// Roll-ups that should be there, of segments that all are sealed, and are not, or not whole.
fn check_roll_ups(catalog: &Catalog, numbers: &[u64], checked: &mut Checked) {
    for number in complete_roll_ups(catalog, numbers) {
        let is_whole = RollUp::read(catalog, number).is_some_and(|roll_up| roll_up.is_whole());
        match is_whole {
            true => checked.roll_ups += 1,
            false => checked.findings.push(Finding::RollUp { number }),
        }
    }
}

/// Roll-ups whose last segment is sealed.
pub(crate) fn complete_roll_ups(catalog: &Catalog, numbers: &[u64]) -> Vec<u64> {
    let last_ones =
        numbers.iter().filter(|number| **number == *rollup::segments_of(rollup::roll_up_of(**number)).end());
    let sealed = last_ones.filter(|number| catalog.index(**number).is_some());
    sealed.map(|number| rollup::roll_up_of(*number)).collect()
}
