//! Reserved disk space for indexes, roll-ups and the log.
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
use crate::files;
use crate::layout::{PAGE_LEN, remove};

/// An index has at most this part of its segment; of roll-ups a segment has a fifth of that.
const INDEX_SHARE: u64 = 200;
const ROLL_UP_SHARE: u64 = 1000;
/// Fixed length of an index and of a part of a roll-up, in addition to the share.
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
    /// Bytes that were kept before this recording.
    before: u64,
}

impl Reserve {
    /// The reserve of a store with this many segments. A recording that reserves no room for later ones does not
    /// release that of earlier ones.
    pub(super) fn new(catalog: &Catalog, segments: usize, keeps_room: bool) -> Reserve {
        let segment_len = catalog.segment_len();
        let index = segment_len / INDEX_SHARE + EXTRA_LEN;
        let roll_up = segment_len / ROLL_UP_SHARE + EXTRA_LEN;
        let max = segments as u64 * (index + roll_up);
        let before = fs::metadata(catalog.paths.reserve()).map_or(0, |metadata| metadata.len());
        let mut reserve = Reserve { catalog: catalog.clone(), max, step: index + 64 * roll_up, before };
        if !keeps_room {
            reserve.max = reserve.max.max(before + reserve.used());
        }
        reserve
    }

    /// Takes the room that is missing.
    ///
    /// # Errors
    /// [`Error::NoRoom`], [`Error::File`].
    pub(super) fn take(&self) -> Result<(), Error> {
        let missing = self.wanted().saturating_sub(self.before);
        check_room(self.catalog.root(), missing, "indexes and roll-ups")?;
        self.renew().map_err(Error::file("reserve room in", &self.catalog.paths.reserve()))
    }

    /// Releases the room that was not reserved before this recording.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn release(&self) -> Result<(), Error> {
        let path = self.catalog.paths.reserve();
        if self.before > 0 {
            let file = disk::open_regular(&path, OpenOptions::new().write(true));
            let shortened = file.and_then(|file| file.set_len(file.metadata()?.len().min(self.before)));
            return shortened.map_err(Error::file("shorten", &path));
        }
        remove(&path)?;
        // A file that gets the length it has gives up the blocks behind its end.
        let log = self.catalog.paths.log();
        let file = disk::open_regular(&log, OpenOptions::new().write(true));
        file.and_then(|file| file.set_len(file.metadata()?.len())).map_err(Error::file("shorten", &log))
    }

    /// Bytes that are not used yet.
    fn wanted(&self) -> u64 {
        self.max.saturating_sub(self.used())
    }

    /// Bytes of indexes and roll-ups.
    fn used(&self) -> u64 {
        let paths = &self.catalog.paths;
        bytes_of(&paths.segments(), "tix") + bytes_of(&paths.roll_ups(), "tir")
    }

    /// Releases room for an index and a roll-up, which are written at once.
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
        let file = files::open_or_make(&self.catalog.paths.reserve(), OpenOptions::new().write(true))?;
        let wanted = self.wanted();
        match file.metadata()?.len() > wanted {
            true => file.set_len(wanted)?,
            false if file.metadata()?.len() < wanted => {
                disk::reserve(&file, wanted).map_err(|error| error.source)?;
            }
            false => {}
        }
        let log = files::open_or_make(&self.catalog.paths.log(), OpenOptions::new().append(true))?;
        // Packets are recorded without a line in the log too.
        let _ = disk::reserve_behind(&log, LOG_LEN);
        Ok(())
    }
}

fn bytes_of(folder: &Path, ending: &str) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.path().extension().is_some_and(|found| found == ending));
    let blocks = |len: u64| len.next_multiple_of(PAGE_LEN as u64);
    named.filter_map(|entry| entry.metadata().ok()).map(|metadata| blocks(metadata.len())).sum()
}
