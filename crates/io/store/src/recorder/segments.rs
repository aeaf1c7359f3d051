//! The files of a store that is recorded: reserved, taken, recycled.
//!
//! ```text
//! seg/spare-N --cleared, taken--> seg/NUMBER.pcapng --oldest, the newest is almost full--> seg/spare-NUMBER
//!                                                  '-- oldest, the newest is full--> seg/NUMBER+k.pcapng
//! ```

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tapline_sys::disk;

use super::RecorderSettings;
use super::writers::Target;
use super::writing::note_deletion;
use crate::catalog::Catalog;
use crate::error::Error;
use crate::files;
use crate::hold::HoldEntry;
use crate::index::rollup;
use crate::layout::{
    NUMBER_BEGIN_MAX, NUMBER_MAX, PAGE_LEN, SLOT_LEN, filler, named, remove, sync_directory,
};
use crate::walk::Walk;

/// Segments that exist, and files that wait to become one.
#[derive(Clone)]
pub(super) struct Segments {
    catalog: Catalog,
    /// Numbers of segments, ascending; the last is the current one.
    numbers: VecDeque<u64>,
    spares: Vec<PathBuf>,
    /// One of these whose slots are all unused already.
    cleared: Option<PathBuf>,
    /// Files at the end of `spares` that were made for this recording.
    made: usize,
    /// Segments and spares that there may be.
    count_max: usize,
    /// The greatest times of packets of segments that were looked at.
    lasts: HashMap<u64, i64>,
    /// Files are opened for writing past the page cache too.
    is_direct: bool,
}

/// A spare file for the next segment.
pub(super) struct Prepared {
    path: PathBuf,
    /// Whether all its slots are unused.
    is_cleared: bool,
    /// The number of the segment whose packets made room.
    pub(super) recycled: Option<u64>,
}

/// A segment that is begun.
pub(super) struct Fresh {
    pub(super) number: u64,
    pub(super) target: Target,
    /// The number of the segment whose packets made room.
    pub(super) recycled: Option<u64>,
}

/// Segments that expired: their files are spare ones.
pub(super) struct Retired {
    pub(super) spares: Vec<(u64, PathBuf)>,
    /// The reason for which the others are not.
    pub(super) error: Option<Error>,
}

impl Segments {
    /// Reads which segments exist, and reserves the missing files.
    pub(super) fn open(catalog: Catalog, settings: &RecorderSettings) -> Result<Segments, Error> {
        let count_max = count_max(settings.size, catalog.segment_len())?;
        let numbers: VecDeque<u64> = catalog.numbers()?.into();
        if let Some(&newest) = numbers.back().filter(|newest| **newest > NUMBER_BEGIN_MAX) {
            return Err(Error::LastNumber { path: named(&catalog.segment_path(newest)) });
        }
        let mut segments = Segments {
            spares: Vec::new(),
            cleared: None,
            made: 0,
            catalog,
            numbers,
            count_max,
            lasts: HashMap::new(),
            is_direct: true,
        };
        segments.spares = segments.find_spares()?;
        segments.reserve(settings.keeps_room)?;
        Ok(segments)
    }

    /// Whether files are written past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Has all files written through the page cache from now on.
    pub(super) fn use_cache(&mut self) {
        self.is_direct = false;
    }

    /// Whether there is a segment of this number.
    pub(super) fn has(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The newest segment.
    pub(super) fn newest(&self) -> Option<u64> {
        self.numbers.back().copied()
    }

    /// Opens a segment to go on at `from`, and makes the slots behind unused ones: after a power failure later slots
    /// may be on the disk without the ones before them.
    pub(super) fn go_on(&self, number: u64, from: u64) -> Result<Target, Error> {
        remove(&self.catalog.paths.roll_up(rollup::roll_up_of(number)))?;
        self.forget_index(number)?;
        let path = self.catalog.segment_path(number);
        let target = Target::open(&path, self.is_direct).map_err(Error::file("open", &path))?;
        fill_slot(&target.file, from)
            .and_then(|end| clear(&target.file, end, self.catalog.segment_len()))
            .map_err(Error::file("write to", &path))?;
        Ok(target)
    }

    /// Whether a file is ready for the next segment.
    pub(super) fn has_cleared(&self) -> bool {
        self.cleared.is_some()
    }

    /// Makes a spare file ready for the next segment, or that of the oldest segment, which is none from then on: for
    /// another thread, with a copy of the segments. [`take_prepared`](Self::take_prepared) updates the recorder's own.
    pub(super) fn prepare(&self) -> Result<Prepared, Error> {
        let (path, recycled) = match self.spares.last() {
            Some(spare) => (spare.clone(), None),
            None => {
                let oldest = self.oldest_free()?;
                (self.retire(oldest, "recycled")?, Some(oldest))
            }
        };
        let file = disk::open_regular(&path, OpenOptions::new().read(true).write(true));
        // Where that fails the segment is cleared when it begins, and the error is told then.
        let is_cleared = file.and_then(|file| clear(&file, 0, self.catalog.segment_len())).is_ok();
        Ok(Prepared { path, is_cleared, recycled })
    }

    /// Learns of a file that another thread made ready.
    pub(super) fn take_prepared(&mut self, prepared: Prepared) {
        let Prepared { path, is_cleared, recycled } = prepared;
        if let Some(oldest) = recycled {
            self.drop_number(oldest);
            self.spares.push(path.clone());
        }
        self.cleared = is_cleared.then_some(path);
    }

    /// Makes the file of a segment a spare one. The log says so first: a segment that is gone without such a line was
    /// removed by somebody else.
    fn retire(&self, number: u64, event: &str) -> Result<PathBuf, Error> {
        note_deletion(&self.catalog, event, number);
        self.forget(number)?;
        let (path, spare) = (self.catalog.segment_path(number), self.spare_path(number));
        fs::rename(&path, &spare)
            .and_then(|()| sync_directory(&spare))
            .map_err(Error::file("rename", &path))?;
        Ok(spare)
    }

    /// Begins the next segment, in a spare file or that of the oldest segment. All its slots are unused then. After an
    /// error the file is unchanged, or a spare one.
    pub(super) fn next(&mut self) -> Result<Fresh, Error> {
        let number = self.numbers.back().map_or(1, |last| last + 1);
        let cleared = self.cleared.take();
        let (from, recycled) = match cleared.clone().or_else(|| self.spares.last().cloned()) {
            Some(spare) => (spare, None),
            None => {
                let oldest = self.oldest_free()?;
                (self.catalog.segment_path(oldest), Some(oldest))
            }
        };
        if let Some(oldest) = recycled {
            note_deletion(&self.catalog, "recycled", oldest);
            self.forget(oldest)?;
        }
        let path = self.catalog.segment_path(number);
        // The new number first: from then on no chunk in the file is one of this segment.
        fs::rename(&from, &path).map_err(Error::file("rename a segment to", &path))?;
        match recycled {
            Some(oldest) => self.drop_number(oldest),
            None => {
                self.spares.retain(|spare| *spare != from);
                self.made = self.made.saturating_sub(1);
            }
        }
        match self.begin(&path, cleared.is_some()) {
            Ok(target) => {
                self.numbers.push_back(number);
                Ok(Fresh { number, target, recycled })
            }
            Err(error) => {
                // Another try may have better luck with it.
                let spare = self.spare_path(NUMBER_MAX + number);
                let path = if fs::rename(&path, &spare).is_ok() { spare } else { path };
                self.spares.push(path);
                Err(error)
            }
        }
    }

    fn begin(&self, path: &Path, is_cleared: bool) -> Result<Target, Error> {
        sync_directory(path).map_err(Error::file("rename a segment to", path))?;
        let target = Target::open(path, self.is_direct).map_err(Error::file("open", path))?;
        if !is_cleared {
            clear(&target.file, 0, self.catalog.segment_len()).map_err(Error::file("write to", path))?;
        }
        Ok(target)
    }

    /// The oldest segment but the newest that no hold keeps.
    fn oldest_free(&self) -> Result<u64, Error> {
        let path = || self.catalog.root().to_owned();
        // The newest segment makes no room for the next.
        if self.numbers.len() < 2 {
            return Err(Error::NoSegment { path: path() });
        }
        let holds = self.catalog.holds()?;
        let mut free = self.all_but_newest().filter(|number| !self.is_held(&holds, *number));
        free.next().ok_or_else(|| Error::AllHeld { path: path() })
    }

    fn all_but_newest(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().take(self.numbers.len().saturating_sub(1)).copied()
    }

    fn is_held(&self, holds: &[HoldEntry], number: u64) -> bool {
        if holds.is_empty() {
            return false;
        }
        let index = self.catalog.index(number);
        holds.iter().any(|hold| hold.may_hold(index.as_ref()))
    }

    fn drop_number(&mut self, number: u64) {
        self.numbers.retain(|other| *other != number);
        self.lasts.remove(&number);
    }

    /// Old segments: those whose last packet came before `before`, unless a hold keeps them.
    pub(super) fn expired(&mut self, before: i64) -> Result<Vec<u64>, Error> {
        let numbers: Vec<u64> = self.all_but_newest().collect();
        let old: Vec<u64> = numbers.into_iter().filter(|number| self.last(*number) < before).collect();
        if old.is_empty() {
            return Ok(old);
        }
        let holds = self.catalog.holds()?;
        Ok(old.into_iter().filter(|number| !self.is_held(&holds, *number)).collect())
    }

    /// Makes spare files of expired segments: for another thread, with a copy of the segments.
    /// [`take_retired`](Self::take_retired) updates the recorder's own.
    pub(super) fn retire_all(&self, expired: &[u64]) -> Retired {
        let mut retired = Retired { spares: Vec::new(), error: None };
        for &number in expired {
            match self.retire(number, "expired") {
                Ok(spare) => retired.spares.push((number, spare)),
                Err(error) => return Retired { error: Some(error), ..retired },
            }
        }
        retired
    }

    /// Learns of segments whose files are spare ones now.
    pub(super) fn take_retired(&mut self, spares: Vec<(u64, PathBuf)>) {
        for (number, spare) in spares {
            self.drop_number(number);
            self.spares.push(spare);
        }
    }

    /// The greatest time of the packets of a segment, from its index or the heads of its chunks.
    fn last(&mut self, number: u64) -> i64 {
        if let Some(last) = self.lasts.get(&number) {
            return *last;
        }
        let of_index = self.catalog.index(number).map(|index| index.summary.last.as_nanos());
        // One that cannot be read stays.
        let last = of_index.or_else(|| self.last_of_heads(number)).unwrap_or(i64::MAX);
        self.lasts.insert(number, last);
        last
    }

    fn last_of_heads(&self, number: u64) -> Option<i64> {
        let path = self.catalog.segment_path(number);
        let file = disk::open_regular(&path, OpenOptions::new().read(true)).ok()?;
        let mut walk = Walk::new(&file, self.catalog.id, number, self.catalog.segment_len()).ok()?;
        let heads = std::iter::from_fn(|| walk.next());
        Some(heads.map(|found| found.head.last.as_nanos()).max().unwrap_or(i64::MIN))
    }

    /// The greatest time of the packets of the newest segment that has any.
    pub(super) fn newest_time(&mut self) -> Option<i64> {
        let numbers: Vec<u64> = self.numbers.iter().rev().copied().collect();
        let times = numbers.into_iter().map(|number| self.last(number));
        let newest = times.into_iter().find(|last| !matches!(*last, i64::MIN | i64::MAX));
        // The newest one goes on.
        self.lasts.clear();
        newest
    }

    /// Removes the index of a segment: before it is written again, or goes on.
    pub(super) fn forget_index(&self, number: u64) -> Result<(), Error> {
        remove(&self.catalog.paths.index(number))
    }

    /// Removes the index of a segment that goes, and the roll-up if it was the last of it.
    fn forget(&self, number: u64) -> Result<(), Error> {
        self.forget_index(number)?;
        let roll_up = rollup::roll_up_of(number);
        let is_needed =
            self.numbers.iter().any(|other| *other != number && rollup::roll_up_of(*other) == roll_up);
        if is_needed { Ok(()) } else { remove(&self.catalog.paths.roll_up(roll_up)) }
    }

    /// Segments that have no index, but for the newest.
    pub(super) fn without_index(&self) -> Vec<u64> {
        self.all_but_newest().filter(|number| self.catalog.index(*number).is_none()).collect()
    }

    /// All segments but the newest, that one's neighbour first.
    pub(super) fn before_newest(&self) -> impl Iterator<Item = u64> {
        self.numbers.iter().rev().skip(1).copied()
    }

    fn spare_path(&self, number: u64) -> PathBuf {
        self.catalog.paths.segments().join(format!("spare-{number:08}"))
    }

    /// Spare files of the right length; others are removed.
    fn find_spares(&self) -> Result<Vec<PathBuf>, Error> {
        let folder = self.catalog.paths.segments();
        let mut spares = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::file("read", &folder))?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with("spare-") {
                continue;
            }
            let is_whole =
                entry.metadata().is_ok_and(|metadata| metadata.len() == self.catalog.segment_len());
            if is_whole {
                spares.push(entry.path());
            } else {
                fs::remove_file(entry.path()).map_err(Error::file("remove", &entry.path()))?;
            }
        }
        Ok(spares)
    }

    /// Reserves room in the file system for all possible segments; removes surplus ones. A recording that reserves no
    /// room for later ones does not release that of earlier ones.
    fn reserve(&mut self, keeps_room: bool) -> Result<(), Error> {
        while keeps_room && self.numbers.len() + self.spares.len() > self.count_max {
            match self.spares.pop() {
                Some(spare) => fs::remove_file(&spare).map_err(Error::file("remove", &spare))?,
                None => {
                    let oldest = self.oldest_free()?;
                    note_deletion(&self.catalog, "recycled", oldest);
                    self.forget(oldest)?;
                    let path = self.catalog.segment_path(oldest);
                    fs::remove_file(&path).map_err(Error::file("remove", &path))?;
                    self.drop_number(oldest);
                }
            }
        }
        let missing = self.count_max.saturating_sub(self.numbers.len() + self.spares.len());
        let len = self.catalog.segment_len();
        let wanted = missing as u64 * len;
        check_room(self.catalog.root(), wanted, "segments")?;
        for _ in 0..missing {
            // No segment has such a number.
            let mut names = (0..).map(|at| self.spare_path(NUMBER_MAX + 1 + at));
            let Some(path) = names.find(|path| !self.spares.contains(path)) else { break };
            let file = files::make(&path).map_err(Error::file("make", &path))?;
            disk::reserve(&file, len)
                .map_err(|error| Error::file("reserve room for", &path)(error.source))?;
            self.spares.push(path);
            self.made += 1;
        }
        Ok(())
    }

    /// Removes files that were reserved for this recording and became no segment.
    pub(super) fn release_room(&mut self) -> Result<(), Error> {
        for _ in 0..std::mem::take(&mut self.made) {
            let Some(spare) = self.spares.pop() else { break };
            fs::remove_file(&spare).map_err(Error::file("remove", &spare))?;
        }
        Ok(())
    }
}

/// Whether the disk of a directory, or of the first one above that is there, has so many bytes to give for this
/// purpose.
pub(super) fn check_room(root: &Path, wanted: u64, purpose: &'static str) -> Result<(), Error> {
    let there = root.ancestors().find(|path| path.exists());
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A file system that does not tell is asked when segments are reserved.
    let free = disk::space(there).map_or(u64::MAX, |space| space.free);
    if wanted > free {
        return Err(Error::NoRoom { path: root.to_owned(), purpose, wanted, free });
    }
    Ok(())
}

/// Number of segments in a store of this size.
pub(super) fn count_max(size: u64, segment_len: u64) -> Result<usize, Error> {
    let count = size / segment_len.max(1);
    if count < 2 {
        let text = format!("a store of {size} bytes: it has two segments of {segment_len} bytes at least");
        return Err(Error::Setting(text));
    }
    Ok(count as usize)
}

/// Fills the slot that `from` is in; gives its end. Chunks that a power failure left behind fillers do not come back.
fn fill_slot(file: &File, from: u64) -> io::Result<u64> {
    let page = filler(PAGE_LEN);
    let end = from.next_multiple_of(SLOT_LEN as u64);
    (from..end).step_by(PAGE_LEN).try_for_each(|at| file.write_all_at(&page, at))?;
    Ok(end)
}

/// Makes every slot from `from` on an unused one by its first and last bytes; the bytes between have no meaning. The
/// disk has to keep that before a chunk is written: otherwise old chunks could come back after a power failure.
fn clear(file: &File, from: u64, len: u64) -> io::Result<()> {
    let block = filler(SLOT_LEN);
    // Whole pages, so that no page has to be read before.
    let (head, tail) = (&block[..PAGE_LEN], &block[SLOT_LEN - PAGE_LEN..]);
    for slot in from / SLOT_LEN as u64..len / SLOT_LEN as u64 {
        let at = slot * SLOT_LEN as u64;
        file.write_all_at(head, at)?;
        file.write_all_at(tail, at + (SLOT_LEN - PAGE_LEN) as u64)?;
    }
    file.sync_data()
}
