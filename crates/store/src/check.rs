//! Proof that nothing was altered or cut out: checksums of all chunks, and the chain of their hashes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::catalog::Catalog;
use crate::chunk::{hash, is_intact};
use crate::error::Error;
use crate::walk::Walk;

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
}

/// Reads every chunk of a store; `progress` is told segments done and all.
///
/// # Errors
/// [`Error::File`] where a segment cannot be read.
pub fn verify(catalog: &Catalog, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Verified, Error> {
    let numbers = catalog.numbers()?;
    let mut verified = Verified::default();
    let mut last: Option<(u64, Option<[u8; 32]>)> = None;
    for (done, &number) in numbers.iter().enumerate() {
        if !progress(done as u64, numbers.len() as u64) {
            break;
        }
        let path = catalog.segment_path(number);
        let file = File::open(&path).map_err(Error::file("open", &path))?;
        let of_file = |error| Error::file("read", &path)(error);
        let mut walk = Walk::new(&file, catalog.id, number).map_err(of_file)?;
        verified.segments += 1;
        let mut buffer = Vec::new();
        while let Some(found) = walk.next().map_err(of_file)? {
            let head = found.head;
            buffer.resize(head.len as usize, 0);
            file.read_exact_at(&mut buffer, found.offset).map_err(of_file)?;
            verified.chunks += 1;
            verified.bytes += u64::from(head.len);
            let findings = &mut verified.findings;
            if !is_intact(&buffer, &head) {
                findings.push(Finding::Damaged {
                    segment: number,
                    offset: found.offset,
                    number: head.number,
                });
                // Its own number is as doubtful as the rest; the next one shows whether it stood in its place.
                last = last.map(|(before, _)| (before + 1, None));
                continue;
            }
            verified.packets += u64::from(head.packets);
            if let Some((before, hash_before)) = last {
                if head.number != before + 1 {
                    let (expected, found) = (before + 1, head.number);
                    findings.push(Finding::Missing { segment: number, expected, found });
                } else if hash_before.is_some_and(|hash| hash != head.previous) {
                    findings.push(Finding::Broken { segment: number, number: head.number });
                }
            }
            last = Some((head.number, Some(hash(&buffer))));
        }
        if walk.damaged > 0 {
            verified.findings.push(Finding::Foreign { segment: number, places: walk.damaged });
        }
    }
    Ok(verified)
}
