//! The files of a store that is recorded: reserved, taken, recycled.
//!
//! ```text
//! seg/spare-N --cleared, taken--> seg/NUMBER.pcapng     --the oldest, if another needs its room--> seg/spare-NUMBER
//!                             '-> seg/NUMBER.pcapng.zst --the oldest, if another needs its room--> removed
//! ```
//!
//! A segment counts with its whole length, but for one that is sealed and whose chunks are compressed: it counts with
//! the room that it takes on the disk.

mod room;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tapline_sys::disk;

use super::RecorderSettings;
use super::clearing::{clear, fill_slot};
use super::writers::Target;
use super::writing::note_deletion;
use crate::catalog::Catalog;
use crate::chunk::ChunkHead;
use crate::error::Error;
use crate::hold::HoldEntry;
use crate::index::rollup;
use crate::layout::{
    NUMBER_BEGIN_MAX, NUMBER_MAX, PAGE_LEN, filler_len, gap_len, is_packed, named, remove, sync_directory,
};
use crate::packed::PackedPlace;
use crate::walk::Walk;
pub(super) use room::{Changes, check_room, count_max};
use room::{LEFT_WHOLE_MAX, VainDeletions};

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
    /// Bytes that segments and spares may take.
    room: u64,
    /// Bytes on the disk of segments whose chunks are compressed, with their indexes.
    packed: HashMap<u64, u64>,
    /// Sealed segments among these that have their whole room, and give it back where it is needed: with the places of
    /// their chunks if this recorder wrote them.
    whole: BTreeMap<u64, Option<Arc<[PackedPlace]>>>,
    /// Compressed segments of earlier recordings that may have kept a part of their room, the oldest first.
    unsure: VecDeque<u64>,
    /// Whether more of these have their whole room than a recorder leaves.
    is_copy: bool,
    /// Changes to files that the recorder does not know yet.
    changes: Changes,
    /// Deletions that made no room, as its copies know them too.
    vain: Arc<Mutex<VainDeletions>>,
    /// Segments that have a second file, which goes with them.
    doubled: Vec<u64>,
    /// Segments that could not be deleted: each was reported.
    stuck: BTreeSet<u64>,
    /// Whether the chunks of new segments are compressed.
    is_packed: bool,
    /// The greatest times of packets of segments that were looked at.
    lasts: HashMap<u64, i64>,
    /// Files are opened for writing past the page cache too.
    is_direct: bool,
}

/// A spare file for the next segment.
pub(super) struct Prepared {
    /// `None` if there is no room for one.
    path: Option<PathBuf>,
    /// Whether all its slots are unused.
    is_cleared: bool,
    changes: Changes,
}

/// A segment that is begun.
pub(super) struct Fresh {
    pub(super) number: u64,
    pub(super) target: Target,
}

/// Segments that expired: their files are spare ones, or gone.
pub(super) struct Retired {
    spares: Vec<(u64, Option<PathBuf>)>,
    /// Segments that could not be deleted.
    stuck: Vec<(u64, Error)>,
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
            room: 0,
            packed: HashMap::new(),
            whole: BTreeMap::new(),
            unsure: VecDeque::new(),
            is_copy: false,
            changes: Changes::default(),
            doubled: Vec::new(),
            stuck: BTreeSet::new(),
            vain: Arc::default(),
            is_packed: settings.compress.is_some(),
            lasts: HashMap::new(),
            is_direct: true,
        };
        segments.room = count_max as u64 * segments.segment_len();
        let all: Vec<u64> = segments.numbers.iter().copied().collect();
        all.into_iter().for_each(|number| {
            segments.weigh_old(number);
            segments.note_stray(number);
        });
        segments.is_copy = segments.whole.len() > LEFT_WHOLE_MAX;
        segments.spares = segments.find_spares()?;
        segments.reserve(settings)?;
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

    fn segment_len(&self) -> u64 {
        self.catalog.segment_len()
    }

    /// Whether the chunks of new segments are compressed.
    pub(super) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// Learns of a second file of a segment.
    fn note_stray(&mut self, number: u64) {
        let Some(stray) = self.catalog.stray_path(number) else { return };
        self.doubled.push(number);
        self.changes.note_stray(number, &self.catalog.segment_path(number), &stray);
    }

    /// Whether a segment had a second file when the recording began: then it does not go on.
    pub(super) fn is_doubled(&self, number: u64) -> bool {
        self.doubled.contains(&number)
    }

    /// Whether a segment without a chunk begins with what no recorder of this store leaves there: bytes that are neither
    /// zeros, nor a filler or a gap, nor the head of one of its chunks. Somebody put the file there.
    pub(super) fn is_foreign(&self, number: u64) -> bool {
        let mut bytes = Vec::new();
        let read = disk::open_regular(&self.catalog.segment_path(number), OpenOptions::new().read(true))
            .and_then(|file| file.take(PAGE_LEN as u64).read_to_end(&mut bytes));
        let is_left = filler_len(&bytes).is_some() || gap_len(&bytes).is_some();
        let is_own = |head: ChunkHead| head.store == self.catalog.id;
        // What cannot be read is reported where it is written to.
        read.is_ok()
            && bytes.iter().any(|&byte| byte != 0)
            && !is_left
            && !ChunkHead::parse(&bytes).is_some_and(is_own)
    }

    /// Whether the chunks of this segment are as those of new ones: compressed, or not.
    pub(super) fn is_alike(&self, number: u64) -> bool {
        is_packed(&self.catalog.segment_path(number)) == self.is_packed
    }

    /// The newest segment.
    pub(super) fn newest(&self) -> Option<u64> {
        self.numbers.back().copied()
    }

    /// Opens a segment to go on at `from`, and makes the slots behind unused ones: after a power failure later slots
    /// may be on the disk without the ones before them.
    pub(super) fn go_on(&mut self, number: u64, from: u64) -> Result<Target, Error> {
        let mut path = self.catalog.segment_path(number);
        let is_renamed = from == 0 && !self.is_alike(number);
        if self.is_packed || is_renamed {
            // Sealed, a segment whose chunks are compressed gave room back.
            disk::open_regular(&path, OpenOptions::new().read(true).write(true))
                .and_then(|file| disk::reserve(&file, self.segment_len()).map_err(|error| error.source))
                .map_err(Error::file("reserve room for", &path))?;
        }
        self.whole.remove(&number);
        remove(&self.catalog.paths.roll_up(rollup::roll_up_of(number)))?;
        self.forget_index(number)?;
        if is_renamed {
            let own = self.catalog.paths.segment_as(number, self.is_packed);
            // Somebody may have put a file there since the segments were read.
            disk::rename_new(&path, &own).map_err(Error::file("rename a segment to", &own))?;
            path = own;
        }
        let target = Target::open(&path, self.is_direct).map_err(Error::file("open", &path))?;
        fill_slot(&target.file, from, self.is_packed)
            .and_then(|end| clear(&target.file, end, self.segment_len(), self.is_packed))
            .map_err(Error::file("write to", &path))?;
        Ok(target)
    }

    /// Whether a file is ready for the next segment.
    pub(super) fn has_cleared(&self) -> bool {
        self.cleared.is_some()
    }

    /// Makes a spare file ready for the next segment, or that of the oldest segment, which is none from then on: for
    /// another thread, with a copy of the segments. [`take_prepared`](Self::take_prepared) updates the recorder's own.
    pub(super) fn prepare(mut self) -> Prepared {
        self.changes = Changes::default();
        if self.spares.is_empty() {
            // The error is reported when the segment begins.
            let _ = self.make_room();
        }
        let Some(path) = self.spares.pop() else {
            return Prepared { path: None, is_cleared: false, changes: self.changes };
        };
        let file = disk::open_regular(&path, OpenOptions::new().read(true).write(true));
        // Where that fails the segment is cleared when it begins, and the error is told then.
        let cleared = file.and_then(|file| clear(&file, 0, self.segment_len(), self.is_packed));
        Prepared { path: Some(path), is_cleared: cleared.is_ok(), changes: self.changes }
    }

    /// Learns of a file that another thread made ready.
    pub(super) fn take_prepared(&mut self, Prepared { path, is_cleared, changes }: Prepared) {
        self.learn(changes);
        let Some(path) = path else { return };
        if !self.spares.contains(&path) {
            self.spares.push(path.clone());
        }
        self.cleared = is_cleared.then_some(path);
    }

    /// Makes the file of a segment a spare one, and returns it; removes it if its chunks are compressed. The log says so
    /// first: a segment that is gone without such a line was removed by somebody else.
    fn retire(&self, number: u64, event: &str) -> Result<Option<PathBuf>, Error> {
        let path = self.catalog.segment_path(number);
        self.forget_index(number)?;
        if matches!(path.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound) {
            return self.forget(number).map(|()| None);
        }
        note_deletion(&self.catalog, event, number);
        self.forget(number)?;
        if is_packed(&path) {
            return remove(&path).map(|()| None);
        }
        let spare = self.spare_path(number);
        fs::rename(&path, &spare)
            .and_then(|()| sync_directory(&spare))
            .map_err(Error::file("rename", &path))?;
        Ok(Some(spare))
    }

    /// Begins the next segment, in a spare file or that of the oldest segment. All its slots are unused then. After an
    /// error the file is unchanged, or a spare one.
    pub(super) fn next(&mut self) -> Result<Fresh, Error> {
        let number = self.numbers.back().map_or(1, |last| last + 1);
        let path = self.catalog.paths.segment_as(number, self.is_packed);
        for taken in [&path, &self.catalog.paths.segment_as(number, !self.is_packed)] {
            if taken.symlink_metadata().is_ok() {
                return Err(Error::NameTaken { path: named(taken) });
            }
        }
        let cleared = self.cleared.take();
        if cleared.is_none() && self.spares.is_empty() {
            self.make_room()?;
        }
        let spare = cleared.clone().or_else(|| self.spares.last().cloned());
        let from = spare.ok_or_else(|| Error::NoSegment { path: self.catalog.root().to_owned() })?;
        // The new number first: from then on no chunk in the file is one of this segment.
        name_segment(&from, &path)?;
        self.spares.retain(|spare| *spare != from);
        self.made = self.made.saturating_sub(1);
        match self.begin(&path, cleared.is_some()) {
            Ok(target) => {
                self.numbers.push_back(number);
                Ok(Fresh { number, target })
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
            clear(&target.file, 0, self.segment_len(), self.is_packed)
                .map_err(Error::file("write to", path))?;
        }
        Ok(target)
    }

    /// Retires the oldest segment that can be deleted. Returns its number, the bytes that it counted with, and its file if
    /// that is a spare one now.
    fn retire_oldest(&mut self) -> Result<(u64, u64, Option<PathBuf>), Error> {
        let (mut tried, mut failure) = (Vec::new(), None);
        loop {
            let oldest = match self.oldest_free(&tried) {
                Ok(oldest) => oldest,
                Err(error) => return Err(failure.unwrap_or(error)),
            };
            let weight = self.weight(oldest);
            match self.retire(oldest, "recycled") {
                Ok(spare) => {
                    self.drop_number(oldest);
                    return Ok((oldest, weight, spare));
                }
                Err(error) => {
                    self.note_stuck(oldest, &error);
                    tried.push(oldest);
                    failure = Some(error);
                }
            }
        }
    }

    /// Notes that a segment cannot be deleted. It is tried again whenever segments are.
    fn note_stuck(&mut self, number: u64, error: &Error) {
        if self.stuck.insert(number) {
            self.changes.note_stuck(number, error);
        }
    }

    /// The oldest segment but the newest that no hold keeps, and that is not among those that were tried.
    fn oldest_free(&self, tried: &[u64]) -> Result<u64, Error> {
        let path = || self.catalog.root().to_owned();
        // The newest segment makes no room for the next.
        if self.numbers.len() < 2 {
            return Err(Error::NoSegment { path: path() });
        }
        let holds = self.catalog.holds()?;
        let mut free =
            self.all_but_newest().filter(|number| !tried.contains(number) && !self.is_held(&holds, *number));
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
        self.packed.remove(&number);
        self.whole.remove(&number);
        self.stuck.remove(&number);
    }

    /// Old segments: those whose last packet came before `before`, unless a hold keeps them. Those that could not be
    /// deleted come last.
    pub(super) fn expired(&mut self, before: i64) -> Result<Vec<u64>, Error> {
        let numbers: Vec<u64> = self.all_but_newest().collect();
        let mut old: Vec<u64> = numbers.into_iter().filter(|number| self.last(*number) < before).collect();
        old.sort_by_key(|number| self.stuck.contains(number));
        if old.is_empty() {
            return Ok(old);
        }
        let holds = self.catalog.holds()?;
        Ok(old.into_iter().filter(|number| !self.is_held(&holds, *number)).collect())
    }

    /// Makes spare files of expired segments: for another thread, with a copy of the segments.
    /// [`take_retired`](Self::take_retired) updates the recorder's own.
    pub(super) fn retire_all(&self, expired: &[u64]) -> Retired {
        let mut retired = Retired { spares: Vec::new(), stuck: Vec::new() };
        for &number in expired {
            match self.retire(number, "expired") {
                Ok(spare) => retired.spares.push((number, spare)),
                Err(error) => retired.stuck.push((number, error)),
            }
        }
        retired
    }

    /// Learns of segments whose files are spare ones now, and of those that could not be deleted.
    pub(super) fn take_retired(&mut self, Retired { spares, stuck }: Retired) {
        for (number, spare) in spares {
            self.drop_number(number);
            self.spares.extend(spare);
        }
        stuck.iter().for_each(|(number, error)| self.note_stuck(*number, error));
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

    /// Removes a second file of a segment that goes, which was reported, and the roll-up if it was the last of it.
    fn forget(&self, number: u64) -> Result<(), Error> {
        if self.is_doubled(number)
            && let Some(stray) = self.catalog.stray_path(number)
        {
            remove(&stray)?;
        }
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
}

/// Gives a spare file the name of a segment, which others may take at any time.
fn name_segment(spare: &Path, path: &Path) -> Result<(), Error> {
    disk::rename_new(spare, path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::NameTaken { path: named(path) },
        _ => Error::file("rename a segment to", path)(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_others_take_in_the_last_moment_stays_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let [spare, taken, free] = ["spare-00000001", "mine", "free"].map(|name| folder.path().join(name));
        fs::write(&spare, "ours").unwrap();
        fs::write(&taken, "mine").unwrap();
        let error = name_segment(&spare, &taken).unwrap_err();
        assert!(matches!(error, Error::NameTaken { .. }), "{error}");
        assert_eq!((fs::read(&spare).unwrap(), fs::read(&taken).unwrap()), (b"ours".into(), b"mine".into()));
        name_segment(&spare, &free).unwrap();
        assert_eq!(fs::read(&free).unwrap(), b"ours");
    }
}
