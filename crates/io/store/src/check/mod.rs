//! Proof that nothing was altered or cut out: checksums of all chunks, and the chain of their hashes.

mod quick;

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::PathBuf;

use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::chunk::{ChunkHead, chain_hash};
use crate::error::Error;
use crate::layout::named;
use crate::log::history;
use crate::missing::Ranges;
use crate::recordings::RecordingEntry;
use crate::walk::{FoundChunk, Walk};

pub use quick::{Checked, check};
pub(crate) use quick::{IndexCondition, complete_roll_ups, segment_state};

/// Result of reading all chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Segments looked at.
    pub segments: u64,
    /// Chunks found.
    pub chunks: u64,
    /// Packets in intact chunks.
    pub packets: u64,
    /// Bytes of chunks, as they are on the disk.
    pub bytes: u64,
    /// Segments between the first and the last that a recorder deleted while holds kept older ones, by the store's log.
    /// The chain of hashes begins again behind them.
    pub deleted: u64,
    /// Chunks of which packets were erased, and those packets. The rest of such a chunk is proven by its checksum
    /// alone.
    pub erased: (u64, u64),
    /// Segments that were begun in a recycled file and have no chunk yet: the recorder ended before all slots were
    /// cleared.
    pub begun: u64,
    /// Chunks that are not whole because their recorder was killed while it wrote them: no chunk behind them has their
    /// hash. Their packets are lost.
    pub unfinished: u64,
    /// Faults, in the order of recording.
    pub findings: Vec<Finding>,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Finding {
    /// A chunk's checksum does not fit.
    Damaged {
        segment: u64,
        /// Where the chunk begins, in bytes.
        offset: u64,
        /// The chunk's number.
        number: u64,
    },
    /// As [`Damaged`](Finding::Damaged), but of the last chunks that a recorder wrote before it was killed. Chunks behind
    /// it are whole, and nothing proves that this one never was.
    Unfinished {
        segment: u64,
        /// Where the chunk begins, in bytes.
        offset: u64,
        /// The chunk's number.
        number: u64,
    },
    /// Bytes that are neither chunk nor filler.
    Foreign { segment: u64, places: u64 },
    /// Segments that were removed or renamed: no recorder deleted them, by the log.
    SegmentsMissing {
        /// The number of the first.
        first: u64,
        /// The number of the last.
        last: u64,
    },
    /// Chunks of a segment that were recorded and are gone, by the log or the index: more than one in each damaged place.
    ChunksMissing {
        segment: u64,
        /// The number of them.
        chunks: u64,
    },
    /// A segment has two files, of which only one is read.
    SecondFile {
        segment: u64,
        /// The file that is not read.
        path: PathBuf,
    },
    /// A segment that is not a regular file, or that cannot be opened.
    Unreadable { segment: u64 },
    /// Chunks between two that are there are missing.
    Missing {
        /// The segment of the chunk behind them.
        segment: u64,
        /// The number that the chunk behind should have.
        expected: u64,
        /// The number that it has.
        found: u64,
    },
    /// A chunk does not carry the hash of the chunk before.
    Broken {
        segment: u64,
        /// The chunk's number.
        number: u64,
    },
    /// A segment that is not as long as those of the store.
    Length {
        segment: u64,
        /// Bytes.
        len: u64,
    },
    /// A segment that should have an index has none.
    NoIndex { segment: u64 },
    /// A page of an index is not as it was written.
    IndexDamaged { segment: u64 },
    /// An index that lists other chunks than the segment has.
    IndexDiffers { segment: u64 },
    /// A roll-up is missing, or not as it was written.
    RollUp {
        /// Number of the roll-up.
        number: u64,
    },
    /// An erasure was killed while it wrote.
    RewriteLeft,
    /// The file of a hold is gone though nobody released the hold, by the log: it holds nothing any more.
    HoldMissing {
        /// Name of the file.
        name: String,
    },
    /// The file of a hold cannot be understood: it holds everything.
    Hold {
        /// Name of the hold.
        name: String,
        /// Reason, for the user.
        reason: String,
    },
}

impl Finding {
    /// Whether [`repair`](crate::repair) mends it: packets are as they were.
    pub fn is_mendable(&self) -> bool {
        match self {
            Finding::Damaged { .. }
            | Finding::Unfinished { .. }
            | Finding::Foreign { .. }
            | Finding::SegmentsMissing { .. }
            | Finding::ChunksMissing { .. }
            | Finding::SecondFile { .. }
            | Finding::Unreadable { .. }
            | Finding::Missing { .. }
            | Finding::Broken { .. }
            | Finding::Length { .. }
            | Finding::HoldMissing { .. }
            | Finding::Hold { .. } => false,
            Finding::NoIndex { .. }
            | Finding::IndexDamaged { .. }
            | Finding::IndexDiffers { .. }
            | Finding::RollUp { .. }
            | Finding::RewriteLeft => true,
        }
    }
}

/// Reads every chunk of a store. `progress` gets the number of segments done and of all; it stops the check by `false`.
/// A segment that a recorder recycles meanwhile is left out.
///
/// # Errors [`Error::File`] if the directory cannot be read.
pub fn verify(catalog: &Catalog, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verified, Error> {
    let numbers = catalog.numbers()?;
    let mut verified = Verified::default();
    let recordings = catalog.recordings();
    let mut chain = Chain::default();
    let (missing, history) = catalog.missing_segments()?;
    let mut gaps = SegmentGaps::of(&missing);
    verified.findings.extend(missing_findings(&missing));
    for (done, &number) in numbers.iter().enumerate() {
        if !progress(done as u64, numbers.len() as u64) {
            break;
        }
        if let Some(deleted) = gaps.before(number) {
            verified.deleted += deleted;
            verified.findings.extend(chain.reset(&recordings));
        }
        let pending = chain.pending.len();
        let mut of_segment = Verified { segments: 1, ..Verified::default() };
        let path = catalog.segment_path(number);
        let opened = disk::open_regular(&path, OpenOptions::new().read(true));
        let is_gone = match &opened {
            Err(error) => error.kind() == ErrorKind::NotFound,
            Ok(file) => match Walk::new(file, catalog.id, number, catalog.segment_len) {
                Err(_) => false,
                Ok(walk) => {
                    let walk = walk.sealed(catalog.sealed_chunks(number, &history));
                    let is_newest = numbers.last() == Some(&number);
                    look(
                        walk,
                        file,
                        (number, is_newest, catalog.segment_len),
                        (&mut chain, &recordings),
                        &mut of_segment,
                    );
                    !of_segment.findings.is_empty() && !path.exists()
                }
            },
        };
        if is_gone {
            chain.pending.truncate(pending);
            verified.findings.extend(chain.reset(&recordings));
            verified.findings.extend(gone_finding(catalog, number));
            continue;
        }
        of_segment.findings.extend(second_file(catalog, number));
        if opened.is_err() {
            of_segment.findings.push(Finding::Unreadable { segment: number });
        }
        verified.segments += of_segment.segments;
        verified.chunks += of_segment.chunks;
        verified.packets += of_segment.packets;
        verified.bytes += of_segment.bytes;
        verified.erased.0 += of_segment.erased.0;
        verified.erased.1 += of_segment.erased.1;
        verified.begun += of_segment.begun;
        verified.unfinished += of_segment.unfinished;
        verified.findings.extend(of_segment.findings);
    }
    // Behind the last chunks nothing has their hashes.
    let (torn, altered): (Vec<_>, Vec<_>) =
        std::mem::take(&mut chain.pending).into_iter().partition(|damaged| damaged.may_be_torn(&recordings));
    verified.unfinished += torn.len() as u64;
    verified.findings.extend(altered.into_iter().map(|damaged| damaged.finding(&recordings)));
    Ok(verified)
}

/// A finding for a segment with two files.
fn second_file(catalog: &Catalog, number: u64) -> Option<Finding> {
    catalog.stray_path(number).map(|path| Finding::SecondFile { segment: number, path: named(&path) })
}

/// A finding for each row of missing segments.
fn missing_findings(missing: &Ranges) -> impl Iterator<Item = Finding> {
    missing.iter().map(|range| Finding::SegmentsMissing { first: *range.start(), last: *range.end() })
}

/// A finding for a segment that went while it was looked at, unless a recorder deleted it.
fn gone_finding(catalog: &Catalog, number: u64) -> Option<Finding> {
    let is_deleted = history(&catalog.paths).deleted.contains(&number);
    (!is_deleted).then_some(Finding::SegmentsMissing { first: number, last: number })
}

/// Numbers of segments that are missing between those that are there.
pub(crate) struct SegmentGaps<'a> {
    /// Missing segments that no recorder deleted.
    missing: &'a Ranges,
    before: Option<u64>,
}

impl SegmentGaps<'_> {
    fn of(missing: &Ranges) -> SegmentGaps<'_> {
        SegmentGaps { missing, before: None }
    }

    /// Segments that a recorder deleted between the last segment asked about and this one; `None` if no number is
    /// missing between them.
    fn before(&mut self, number: u64) -> Option<u64> {
        let before = self.before.replace(number)?;
        let between = number.saturating_sub(before + 1);
        let inside = self.missing.iter().filter(|range| *range.start() > before && *range.end() < number);
        let missing: u64 = inside.map(|range| range.end() - range.start() + 1).sum();
        (between > 0).then(|| between.saturating_sub(missing))
    }
}

/// The last intact chunk, and the damaged ones that came after it.
#[derive(Default)]
struct Chain {
    last: Option<(u64, [u8; 32])>,
    pending: Vec<DamagedChunk>,
}

/// A chunk whose checksum does not fit.
struct DamagedChunk {
    segment: u64,
    offset: u64,
    number: u64,
}

impl DamagedChunk {
    /// Whether a recorder may have been writing it when it was killed.
    fn may_be_torn(&self, recordings: &[RecordingEntry]) -> bool {
        recordings.iter().any(|recording| recording.may_have_torn(self.number))
    }

    fn finding(self, recordings: &[RecordingEntry]) -> Finding {
        let is_torn = self.may_be_torn(recordings);
        let DamagedChunk { segment, offset, number } = self;
        match is_torn {
            true => Finding::Unfinished { segment, offset, number },
            false => Finding::Damaged { segment, offset, number },
        }
    }
}

impl Chain {
    /// Begins again; gives findings for the damaged chunks.
    fn reset(&mut self, recordings: &[RecordingEntry]) -> Vec<Finding> {
        self.last = None;
        self.pending.drain(..).map(|damaged| damaged.finding(recordings)).collect()
    }

    /// Notes faults of an intact chunk's place in the chain, and of the damaged chunks before it.
    fn join(
        &mut self,
        segment: u64,
        (head, hash): (&ChunkHead, [u8; 32]),
        recordings: &[RecordingEntry],
        verified: &mut Verified,
    ) {
        let damaged = self.pending.len() as u64;
        let Some((before, hash_before)) = self.last else {
            verified.findings.extend(self.reset(recordings));
            self.last = Some((head.number, hash));
            return;
        };
        // A recorder that was killed while it wrote a chunk has the number of that chunk again, and the hash of the one
        // before: the chain proves that the chunk was never whole.
        let follows = head.number == before + 1;
        if follows && hash_before == head.previous {
            verified.unfinished += damaged;
            self.pending.clear();
        } else {
            verified.findings.extend(self.reset(recordings));
            match follows {
                _ if damaged > 0 && head.number == before + 1 + damaged => {}
                true => verified.findings.push(Finding::Broken { segment, number: head.number }),
                false => {
                    let (expected, found) = (before + 1 + damaged, head.number);
                    verified.findings.push(Finding::Missing { segment, expected, found });
                }
            }
        }
        self.last = Some((head.number, hash));
    }
}

/// Reads every chunk of a segment.
fn look(
    mut walk: Walk<'_>,
    file: &File,
    (segment, is_newest, segment_len): (u64, bool, u64),
    (chain, recordings): (&mut Chain, &[RecordingEntry]),
    verified: &mut Verified,
) {
    let mut buffer = Vec::new();
    while let Some(found) = walk.next() {
        let is_whole = found.read(file, &mut buffer);
        let FoundChunk { offset, head } = found;
        verified.chunks += 1;
        verified.bytes += head.stored_len() as u64;
        if !is_whole {
            chain.pending.push(DamagedChunk { segment, offset, number: head.number });
            continue;
        }
        verified.packets += u64::from(head.packets);
        if let Some(erasure) = head.erasure {
            verified.erased.0 += 1;
            verified.erased.1 += u64::from(erasure.packets);
        }
        chain.join(segment, (&head, chain_hash(&buffer, &head)), recordings, verified);
    }
    match file.metadata().map(|metadata| metadata.len()) {
        Ok(len) if len < segment_len => verified.findings.push(Finding::Length { segment, len }),
        _ => {}
    }
    // The next recorder goes on in a segment that was begun: behind it there is none.
    verified.begun += u64::from(walk.is_begun() && is_newest);
    let places = walk.damaged + u64::from(walk.is_begun() && !is_newest);
    if places > 0 {
        verified.findings.push(Finding::Foreign { segment, places });
    }
    if let chunks @ 1.. = walk.missing() {
        verified.findings.push(Finding::ChunksMissing { segment, chunks });
    }
}
