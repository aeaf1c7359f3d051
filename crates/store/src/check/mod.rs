//! Proof that nothing was altered or cut out: checksums of all chunks, and the chain of their hashes.

mod quick;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::chunk::{ChunkHead, chain_hash, is_intact};
use crate::error::Error;
use crate::log::deleted_segments;
use crate::walk::{Found, Walk};

pub use quick::{Checked, check};
pub(crate) use quick::{State, complete_roll_ups, segment_state};

/// What a look at all chunks found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Segments looked at.
    pub segments: u64,
    /// Chunks found.
    pub chunks: u64,
    /// Packets in intact chunks.
    pub packets: u64,
    /// Bytes of chunks.
    pub bytes: u64,
    /// Segments between the first and the last that a recorder deleted while holds kept older ones, by the store's log.
    /// The chain of hashes begins again behind them.
    pub deleted: u64,
    /// Chunks of which packets were erased, and those packets. What is left of such a chunk is proven by its checksum
    /// alone.
    pub erased: (u64, u64),
    /// Segments that were begun in a recycled file and have no chunk yet: the recorder ended before all slots were
    /// cleared.
    pub begun: u64,
    /// What is wrong, in the order of recording.
    pub findings: Vec<Finding>,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A chunk's checksum does not fit.
    Damaged {
        /// The segment.
        segment: u64,
        /// Where the chunk begins, in bytes.
        offset: u64,
        /// The chunk's number.
        number: u64,
    },
    /// Bytes that are neither chunk nor filler.
    Foreign {
        /// The segment.
        segment: u64,
        /// Places.
        places: u64,
    },
    /// A segment that is no regular file, or that the system refuses.
    Unreadable {
        /// The segment.
        segment: u64,
    },
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
        /// The segment.
        segment: u64,
        /// The chunk's number.
        number: u64,
    },
    /// A segment that is not as long as those of the store.
    Length {
        /// The segment.
        segment: u64,
        /// Bytes.
        len: u64,
    },
    /// A segment that should have an index has none.
    NoIndex {
        /// The segment.
        segment: u64,
    },
    /// A page of an index is not as it was written.
    IndexDamaged {
        /// The segment.
        segment: u64,
    },
    /// An index tells of other chunks than are there.
    IndexDiffers {
        /// The segment.
        segment: u64,
    },
    /// A roll-up is missing, or not as it was written.
    RollUp {
        /// Its number.
        number: u64,
    },
    /// An erasure was killed while it wrote.
    RewriteLeft,
    /// The file of a hold cannot be understood: it holds everything.
    Hold {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}

impl Finding {
    /// Whether [`repair`](crate::repair) mends it: packets are as they were.
    pub fn is_mendable(&self) -> bool {
        match self {
            Finding::Damaged { .. }
            | Finding::Foreign { .. }
            | Finding::Unreadable { .. }
            | Finding::Missing { .. }
            | Finding::Broken { .. }
            | Finding::Length { .. }
            | Finding::Hold { .. } => false,
            Finding::NoIndex { .. }
            | Finding::IndexDamaged { .. }
            | Finding::IndexDiffers { .. }
            | Finding::RollUp { .. }
            | Finding::RewriteLeft => true,
        }
    }
}

/// Reads every chunk of a store; `progress` is told segments done and all, and ends the look with `false`. A segment
/// that a recorder recycles meanwhile is left out.
///
/// # Errors
/// [`Error::File`] if the directory cannot be read.
pub fn verify(catalog: &Catalog, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verified, Error> {
    let numbers = catalog.numbers()?;
    let mut verified = Verified::default();
    let mut chain = Chain::default();
    let mut gaps = SegmentGaps::of(catalog, &numbers);
    for (done, &number) in numbers.iter().enumerate() {
        if !progress(done as u64, numbers.len() as u64) {
            break;
        }
        if let deleted @ 1.. = gaps.deleted_before(number) {
            verified.deleted += deleted;
            chain = Chain::default();
        }
        let mut of_segment = Verified { segments: 1, ..Verified::default() };
        let path = catalog.segment_path(number);
        let opened = disk::open_regular(&path, OpenOptions::new().read(true));
        let is_gone = match &opened {
            Err(error) => error.kind() == ErrorKind::NotFound,
            Ok(file) => match Walk::new(file, catalog.id, number, catalog.segment_len) {
                Err(_) => false,
                Ok(walk) => {
                    look(walk, file, number, &mut chain, &mut of_segment);
                    !of_segment.findings.is_empty() && !path.exists()
                }
            },
        };
        if is_gone {
            chain = Chain::default();
            continue;
        }
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
        verified.findings.extend(of_segment.findings);
    }
    Ok(verified)
}

/// Numbers of segments that are missing between those that are there.
pub(crate) struct SegmentGaps {
    /// Segments that recorders deleted, by the log; read only if a number is missing.
    deleted: HashSet<u64>,
    before: Option<u64>,
}

impl SegmentGaps {
    /// `numbers` ascend.
    pub(crate) fn of(catalog: &Catalog, numbers: &[u64]) -> SegmentGaps {
        let is_whole = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let deleted = if is_whole { HashSet::new() } else { deleted_segments(&catalog.paths) };
        SegmentGaps { deleted, before: None }
    }

    /// The number of segments missing before the next one, if the log has the deletion of each; else 0.
    pub(crate) fn deleted_before(&mut self, number: u64) -> u64 {
        let Some(before) = self.before.replace(number) else { return 0 };
        let missing = number.saturating_sub(before + 1);
        let is_deleted = missing <= self.deleted.len() as u64
            && (before + 1..number).all(|number| self.deleted.contains(&number));
        if is_deleted { missing } else { 0 }
    }
}

/// The last intact chunk, and how many damaged ones came after it.
#[derive(Default)]
struct Chain {
    last: Option<(u64, [u8; 32])>,
    damaged: u64,
}

impl Chain {
    /// What is wrong with an intact chunk's place in the chain.
    fn join(&mut self, segment: u64, head: &ChunkHead, hash: [u8; 32]) -> Option<Finding> {
        let damaged = std::mem::take(&mut self.damaged);
        let (before, hash_before) = self.last.replace((head.number, hash))?;
        // A recorder that was killed while it wrote a chunk has the number of that chunk again.
        let follows = head.number == before + 1;
        if follows && hash_before == head.previous || damaged > 0 && head.number == before + 1 + damaged {
            return None;
        }
        Some(match follows {
            true => Finding::Broken { segment, number: head.number },
            false => Finding::Missing { segment, expected: before + 1 + damaged, found: head.number },
        })
    }
}

/// Reads every chunk of a segment.
fn look(mut walk: Walk<'_>, file: &File, segment: u64, chain: &mut Chain, verified: &mut Verified) {
    let mut buffer = Vec::new();
    while let Some(Found { offset, head }) = walk.next() {
        buffer.resize(head.len as usize, 0);
        let is_read = file.read_exact_at(&mut buffer, offset).is_ok();
        verified.chunks += 1;
        verified.bytes += u64::from(head.len);
        if !is_read || !is_intact(&buffer, &head) {
            verified.findings.push(Finding::Damaged { segment, offset, number: head.number });
            chain.damaged += 1;
            continue;
        }
        verified.packets += u64::from(head.packets);
        if let Some(erasure) = head.erasure {
            verified.erased.0 += 1;
            verified.erased.1 += u64::from(erasure.packets);
        }
        verified.findings.extend(chain.join(segment, &head, chain_hash(&buffer, &head)));
    }
    verified.begun += u64::from(walk.is_begun());
    if walk.damaged > 0 {
        verified.findings.push(Finding::Foreign { segment, places: walk.damaged });
    }
}
