//! Room on the disk for what stands beside segments: indexes, roll-ups, the log.
//!
//! ```text
//! reserve: one file, as long as all indexes and roll-ups may become less what they are     shorter --> index --> as long as it should be
//! log:     blocks behind its end
//! ```

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use tapline_sys::disk;

use super::segments::check_room;
use crate::catalog::Catalog;
use crate::error::Error;
use crate::layout::PAGE_LEN;

/// An index has at most this part of its segment; of roll-ups a segment has a fifth of that.
const INDEX_SHARE: u64 = 200;
const ROLL_UP_SHARE: u64 = 1000;
/// Pages that an index and a part of a roll-up have besides.
const EXTRA_LEN: u64 = 4 * PAGE_LEN as u64;
/// Bytes behind the end of the log: lines of some thousand segments.
const LOG_LEN: u64 = 1 << 20;

/// The file that keeps room.
#[derive(Clone, Debug)]
pub(super) struct Reserve {
    catalog: Catalog,
    /// Bytes of all indexes and roll-ups that there may be.
    max: u64,
    /// Bytes that the index of a segment and the roll-up that it completes may take.
    step: u64,
}

impl Reserve {
    /// Keeps room for a store of so many segments.
    ///
    /// # Errors
    /// [`Error::NoRoom`], [`Error::File`].
    pub(super) fn open(catalog: &Catalog, segments: usize) -> Result<Reserve, Error> {
        let segment_len = catalog.segment_len();
        let index = segment_len / INDEX_SHARE + EXTRA_LEN;
        let roll_up = segment_len / ROLL_UP_SHARE + EXTRA_LEN;
        let max = segments as u64 * (index + roll_up);
        let reserve = Reserve { catalog: catalog.clone(), max, step: index + 64 * roll_up };
        let kept = fs::metadata(catalog.paths.reserve()).map_or(0, |metadata| metadata.len());
        let missing = reserve.wanted().saturating_sub(kept);
        check_room(catalog.root(), missing.saturating_add(LOG_LEN))?;
        reserve.renew().map_err(Error::file("reserve room in", &catalog.paths.reserve()))?;
        Ok(reserve)
    }

    /// Bytes that are not used yet.
    fn wanted(&self) -> u64 {
        let paths = &self.catalog.paths;
        let used = bytes_of(&paths.segments(), "tix") + bytes_of(&paths.roll_ups(), "tir");
        self.max.saturating_sub(used)
    }

    /// Gives room up for an index and a roll-up, which are to be written at once.
    pub(super) fn give(&self) {
        let path = self.catalog.paths.reserve();
        let give = |file: fs::File| {
            let len = file.metadata()?.len().saturating_sub(self.step);
            file.set_len(len)
        };
        // Where that fails the index perhaps finds room all the same.
        let _ = disk::open_regular(&path, OpenOptions::new().write(true)).and_then(give);
    }

    /// Takes the room again that is not used.
    ///
    /// # Errors
    /// `ENOSPC` where another took it first.
    pub(super) fn renew(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = disk::open_regular(&self.catalog.paths.reserve(), &options)?;
        let wanted = self.wanted();
        match file.metadata()?.len() > wanted {
            true => file.set_len(wanted)?,
            false if wanted > 0 => disk::reserve(&file, wanted).map_err(|error| error.source)?,
            false => {}
        }
        let log = disk::open_regular(&self.catalog.paths.log(), options.append(true))?;
        disk::reserve_behind(&log, LOG_LEN).map_err(|error| error.source)
    }
}

fn bytes_of(folder: &Path, ending: &str) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.path().extension().is_some_and(|found| found == ending));
    let blocks = |len: u64| len.next_multiple_of(PAGE_LEN as u64);
    named.filter_map(|entry| entry.metadata().ok()).map(|metadata| blocks(metadata.len())).sum()
}
