//! Room for the next segment: reserved, given back by compressed segments, made by deletion.
//!
//! ```text
//! within --size --reserve a file--> a spare one
//!               '-- disk full, or beyond --size: a compressed segment gives back the room that it does not need, then again;
//!                   none does: the oldest goes, then again, if that can make room enough; else an error
//! ```
//!
//! Other programs may take the room that compression leaves. So a compressed segment keeps its whole room until there
//! are two other files with the room of a segment: then a recording goes on although the disk is full.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use tapline_sys::disk;

use super::super::RecorderSettings;
use super::super::progress::{Progress, add};
use super::Segments;
use crate::error::Error;
use crate::files;
use crate::layout::{NUMBER_MAX, is_packed, named};
use crate::packed::{self, PackedPlace};

/// Files with the room of a segment that there are, without the current segment, when a compressed segment is sealed
/// and gives its room back: one of them becomes the next segment.
const WHOLE_MIN: usize = 2;

/// Compressed segments with their whole room that a recorder may leave: these, the one that it was sealing when it was
/// killed, and the one that it was writing.
pub(super) const LEFT_WHOLE_MAX: usize = WHOLE_MIN + 2;

/// Segments of earlier recordings that are looked at for room, before one is deleted.
const LOOKS_MAX: usize = 8;

/// Changes to the files of a store that made room.
#[derive(Clone, Default)]
pub(in super::super) struct Changes {
    /// Segments that were deleted.
    recycled: Vec<u64>,
    /// Compressed ones of them that were deleted because the disk is full.
    crowded: u64,
    /// Compressed segments that were deleted because the segments were longer together than the store may be.
    beyond: u64,
    /// Segments that gave back what compression left of their room, as far as they could.
    given: Vec<u64>,
    /// The number of those that a copy of the store left with their whole room, and the bytes that these gave back.
    left: (u64, u64),
    /// Segments of earlier recordings that were looked at for room.
    looked_at: Vec<u64>,
    /// Segments that could not be deleted.
    stuck: Vec<u64>,
    /// Segments that could give nothing back or could not be deleted, with the reason, and segments with two files.
    refused: Vec<String>,
}

/// Deletions on a full disk whose room another program took, or keeps.
#[derive(Default)]
pub(super) struct VainDeletions {
    /// Number of calls that ended with one, without a new segment since.
    times: u32,
    /// The least number of free bytes since the last, with those that the recorder keeps.
    least: u64,
    /// Bytes of the segments that were deleted then: once so many more are free, others may go.
    wanted: u64,
}

/// One deletion may be misread, as while the room for indexes is given and renewed; so many are not.
const VAIN_MAX: u32 = 2;

impl Changes {
    /// Notes that a segment has two files.
    pub(super) fn note_stray(&mut self, number: u64, own: &Path, stray: &Path) {
        let [own, stray] = [own, stray].map(named);
        self.refused.push(format!(
            "segment {number} has two files: {} is used; {} is not, and goes when the segment does: move it away to keep it",
            own.display(),
            stray.display()
        ));
    }

    /// Notes that a segment cannot be deleted.
    pub(super) fn note_stuck(&mut self, number: u64, error: &Error) {
        self.stuck.push(number);
        self.refused.push(format!(
            "segment {number} cannot be deleted: {error}; it stays until that is mended, and newer segments go in its \
             place"
        ));
    }

    /// Counts and reports the changes.
    pub(in super::super) fn tell(self, progress: &Progress) {
        let segments = |count: u64| if count == 1 { "segment" } else { "segments" };
        add(&progress.recycled, self.recycled.len() as u64);
        if let (count @ 1.., bytes) = self.left {
            progress.tell(format!(
                "{count} compressed {} took the whole length on the disk, as after a copy without holes: {bytes} \
                 bytes were given back",
                segments(count)
            ));
        }
        self.refused.into_iter().for_each(|text| progress.tell(text));
        if let count @ 1.. = self.beyond {
            progress.tell(format!(
                "{count} compressed {} had to go: the store was larger than its size",
                segments(count)
            ));
        }
        if let count @ 1.. = self.crowded {
            progress.tell(format!(
                "{count} compressed {} had to go: the disk is full, as other programs took the room that compression \
                 left",
                segments(count)
            ));
        }
    }
}

impl Segments {
    /// Learns the room of a segment whose chunks are compressed. That of others is their length.
    fn weigh(&mut self, number: u64) {
        let path = self.catalog.segment_path(number);
        if !is_packed(&path) {
            return;
        }
        let room = |path: &Path| fs::symlink_metadata(path).map_or(0, |about| disk::room_of(&about));
        // Of indexes only those of segments of full length have room kept for them.
        let room = room(&path) + room(&self.catalog.paths.index(number));
        self.packed.insert(number, room.min(self.segment_len()));
    }

    /// Learns the room of a segment of an earlier recording.
    pub(super) fn weigh_old(&mut self, number: u64) {
        self.weigh(number);
        match self.packed.get(&number) {
            Some(room) if *room == self.segment_len() => drop(self.whole.insert(number, None)),
            Some(_) => self.unsure.push_back(number),
            None => {}
        }
    }

    /// Learns the room of a segment that was sealed. With the places of its chunks it has its whole room still.
    pub(in super::super) fn weigh_sealed(&mut self, number: u64, places: Option<Arc<[PackedPlace]>>) {
        self.weigh(number);
        if let Some(places) = places {
            self.whole.insert(number, Some(places));
        }
    }

    /// Whether a compressed segment that is sealed now gives its room back at once.
    pub(in super::super) fn has_whole(&self) -> bool {
        self.spares.len() + self.whole.len() >= WHOLE_MIN
    }

    /// Bytes that a segment counts with. The newest one may go on.
    pub(super) fn weight(&self, number: u64) -> u64 {
        let packed = self.packed.get(&number).filter(|_| Some(number) != self.newest());
        packed.copied().unwrap_or(self.segment_len())
    }

    /// Bytes that segments and spares take.
    fn used(&self) -> u64 {
        let segments: u64 = self.numbers.iter().map(|number| self.weight(*number)).sum();
        segments + self.spares.len() as u64 * self.segment_len()
    }

    /// Makes a spare file: a new one if there is room for it, else that of the oldest segment. The file of a compressed
    /// one does not have the room of a segment: then as many go as make that room. None goes if all together cannot.
    pub(super) fn make_room(&mut self) -> Result<(), Error> {
        let len = self.segment_len();
        // Bytes of segments that were deleted because the disk is full, and those that were free before.
        let (mut freed, mut before) = (0, 0);
        loop {
            let mut full = None;
            if self.used() + len <= self.room {
                match self.make_spare() {
                    Err(error) if error.is_full() => full = Some(error),
                    made => {
                        self.vain.lock().unwrap_or_else(PoisonError::into_inner).times = 0;
                        return made;
                    }
                }
            }
            if self.give_room_back() {
                continue;
            }
            let is_full = full.is_some();
            full.map_or(Ok(()), |error| self.check_crowd((freed, before), error))?;
            if freed == 0 {
                before = self.free().saturating_add(self.kept());
            }
            let (oldest, weight, spare) = self.retire_oldest()?;
            self.changes.recycled.push(oldest);
            if let Some(spare) = spare {
                self.spares.push(spare);
                return Ok(());
            }
            if is_full {
                freed += weight;
                self.changes.crowded += 1;
            }
        }
    }

    /// Bytes that are free on the disk.
    fn free(&self) -> u64 {
        disk::space(self.catalog.root()).map_or(0, |space| space.free)
    }

    /// Bytes that the recorder keeps for indexes and the log. It may take them again while segments are deleted.
    fn kept(&self) -> u64 {
        let files = [self.catalog.paths.reserve(), self.catalog.paths.log()];
        files.iter().map(|path| fs::symlink_metadata(path).map_or(0, |about| disk::room_of(&about))).sum()
    }

    /// Checks, on a disk that is full, that deleting segments can make the room of one; `freed` bytes of them were
    /// deleted for it, and `before` bytes were free. Where others take it at once, or the disk does not give it, no more
    /// segments go.
    fn check_crowd(&self, (freed, before): (u64, u64), full: Error) -> Result<(), Error> {
        let wanted = self.segment_len();
        let space = self.free();
        self.check_vain_deletions((freed, before), space)?;
        // Under a quota the disk has room that this process does not get.
        let free = if space < wanted { space } else { freed };
        let holds = self.catalog.holds()?;
        let stays = |number: u64| self.stuck.contains(&number) || self.is_held(&holds, number);
        let free_ones = self.all_but_newest().filter(|number| !stays(*number));
        let deletable: u64 = free_ones.map(|number| self.weight(number)).sum();
        if self.numbers.len() < 2 {
            return Err(full);
        }
        // Holds have an error of their own.
        if deletable == 0 || freed < wanted && free.saturating_add(deletable) >= wanted {
            return Ok(());
        }
        Err(Error::Crowded { path: self.catalog.root().to_owned(), wanted, free, deletable })
    }

    /// Checks that the room of deleted segments is free, or that some became free since the last deletions whose room
    /// was not.
    fn check_vain_deletions(&self, (freed, before): (u64, u64), free: u64) -> Result<(), Error> {
        let wanted = self.segment_len();
        // Under a quota the free room of the disk says nothing.
        if free >= wanted {
            return Ok(());
        }
        let had = free.saturating_add(self.kept());
        let mut vain = self.vain.lock().unwrap_or_else(PoisonError::into_inner);
        let is_gone = freed > 0 && had.saturating_sub(before) < freed / 4 * 3;
        if is_gone {
            *vain = VainDeletions { times: vain.times + 1, least: had, wanted: freed };
        }
        vain.least = vain.least.min(had);
        let is_unchanged = had < vain.least.saturating_add(vain.wanted);
        if is_gone || vain.times >= VAIN_MAX && is_unchanged {
            return Err(Error::VainDeletions { path: self.catalog.root().to_owned(), wanted, free });
        }
        Ok(())
    }

    /// Has the oldest compressed segment of those with their whole room give back the rest. `false` if there is none.
    fn give_room_back(&mut self) -> bool {
        let newest = self.newest();
        let known = self.whole.keys().copied().find(|number| Some(*number) != newest);
        let Some(number) = known.or_else(|| self.find_unreleased()) else { return false };
        self.give_back(number);
        true
    }

    /// Looks for a segment of an earlier recording that kept a part of its room, as after a recorder that was killed
    /// while it gave it back.
    fn find_unreleased(&mut self) -> Option<u64> {
        let (store, len) = (self.catalog.id, self.segment_len());
        for _ in 0..LOOKS_MAX {
            let number = self.unsure.pop_front()?;
            self.changes.looked_at.push(number);
            if Some(number) == self.newest() || !self.packed.contains_key(&number) {
                continue;
            }
            let path = self.catalog.segment_path(number);
            let file = disk::open_regular(&path, OpenOptions::new().read(true).write(true));
            // One that cannot be read keeps its room.
            if file.and_then(|file| packed::release_samples(&file, store, number, len)).unwrap_or(false) {
                return Some(number);
            }
        }
        None
    }

    fn give_back(&mut self, number: u64) {
        let places = self.whole.remove(&number).flatten();
        let (path, len) = (self.catalog.segment_path(number), self.segment_len());
        let (before, is_old) = (self.weight(number), places.is_none());
        let release = || {
            let file = disk::open_regular(&path, OpenOptions::new().read(true).write(true))?;
            match places {
                None if !packed::saves_room(&file, len) => Ok(()),
                // Nothing is known of other places of a segment that somebody else wrote, or copied.
                None => {
                    let places = packed::intact_places(&file, self.catalog.id, number, len)?;
                    packed::release_chunks(&file, &places)
                }
                Some(places) => packed::release_all(&file, &places, len),
            }
        };
        if let Err(error) = release() {
            let text = format!("segment {number} takes its whole length on the disk: {error}");
            self.changes.refused.push(text);
        }
        self.weigh(number);
        self.changes.given.push(number);
        let given = before.saturating_sub(self.weight(number));
        if is_old && self.is_copy && given > 0 {
            self.changes.left.0 += 1;
            self.changes.left.1 += given;
        }
    }

    /// Gives back the room of a segment whose chunks are all known, after not all of its room could be reserved again.
    pub(in super::super) fn release_again(&self, number: u64, places: &[PackedPlace]) {
        let path = self.catalog.segment_path(number);
        let file = disk::open_regular(&path, OpenOptions::new().read(true).write(true));
        // Room that stays reserved is counted with the segment when the next recording begins.
        let _ = file.and_then(|file| packed::release_all(&file, places, self.segment_len()));
    }

    /// Learns of changes that another thread made.
    pub(super) fn learn(&mut self, changes: Changes) {
        changes.recycled.iter().for_each(|number| self.drop_number(*number));
        self.unsure.retain(|number| !changes.looked_at.contains(number));
        self.stuck.extend(changes.stuck.iter().filter(|number| !changes.recycled.contains(number)));
        for &number in changes.given.iter().filter(|number| !changes.recycled.contains(number)) {
            self.whole.remove(&number);
            self.weigh(number);
        }
        self.changes = changes;
    }

    /// Takes the changes that were made since the last call.
    pub(in super::super) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Spare files of the right length, with their room; others are removed.
    pub(super) fn find_spares(&self) -> Result<Vec<PathBuf>, Error> {
        let folder = self.catalog.paths.segments();
        let mut spares = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::file("read", &folder))?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with("spare-") {
                continue;
            }
            if self.is_spare(&entry.path()) {
                spares.push(entry.path());
            } else {
                fs::remove_file(entry.path()).map_err(Error::file("remove", &entry.path()))?;
            }
        }
        Ok(spares)
    }

    /// Whether a file has the length of a segment, and its room too: a copy may be all holes.
    fn is_spare(&self, path: &Path) -> bool {
        let len = self.segment_len();
        let Ok(file) = disk::open_regular(path, OpenOptions::new().read(true).write(true)) else {
            return false;
        };
        file.metadata().is_ok_and(|about| {
            about.len() == len && (disk::room_of(&about) >= len || disk::reserve(&file, len).is_ok())
        })
    }

    /// Reserves room in the file system for all possible segments; removes surplus ones. A recording that reserves no
    /// room for later ones does not release that of earlier ones.
    pub(super) fn reserve(&mut self, settings: &RecorderSettings) -> Result<(), Error> {
        while settings.keeps_room && self.used() > self.room {
            match self.spares.pop() {
                Some(spare) => fs::remove_file(&spare).map_err(Error::file("remove", &spare))?,
                None if self.give_room_back() => {}
                None => self.delete_oldest()?,
            }
        }
        let missing = self.room.saturating_sub(self.used()) / self.segment_len();
        // Others may have taken room that compression left: then old segments make room, but only where that helps.
        let is_needed = self.packed.is_empty();
        if is_needed {
            check_room(self.catalog.root(), missing * self.segment_len(), "segments")?;
        }
        for _ in 0..missing {
            match self.make_spare() {
                Err(error) if !is_needed && error.is_full() => break,
                made => made?,
            }
            self.made += 1;
        }
        Ok(())
    }

    fn delete_oldest(&mut self) -> Result<(), Error> {
        match self.retire_oldest()? {
            (.., Some(spare)) => fs::remove_file(&spare).map_err(Error::file("remove", &spare))?,
            (.., None) => self.changes.beyond += 1,
        }
        Ok(())
    }

    /// Makes a spare file with its room.
    fn make_spare(&mut self) -> Result<(), Error> {
        // No segment has such a number.
        let mut names = (0..).map(|at| self.spare_path(NUMBER_MAX + 1 + at));
        let Some(path) = names.find(|path| !self.spares.contains(path)) else { return Ok(()) };
        let file = files::make(&path).map_err(Error::file("make", &path))?;
        if let Err(error) = disk::reserve(&file, self.segment_len()) {
            // A file without its room is none.
            let _ = fs::remove_file(&path);
            return Err(Error::file("reserve room for", &path)(error.source));
        }
        self.spares.push(path);
        Ok(())
    }

    /// Gives back the room that this recording kept, and that no later one is to have: files that were reserved for it
    /// and became no segment, and what compression left.
    pub(in super::super) fn release_room(&mut self) -> Result<(), Error> {
        let own = self.whole.iter().filter(|(_, places)| places.is_some());
        let own: Vec<u64> = own.map(|(number, _)| *number).collect();
        own.into_iter().for_each(|number| self.give_back(number));
        for _ in 0..std::mem::take(&mut self.made) {
            let Some(spare) = self.spares.pop() else { break };
            fs::remove_file(&spare).map_err(Error::file("remove", &spare))?;
        }
        Ok(())
    }
}

/// Whether the disk of a directory, or of the first one above that is there, has so many bytes to give for this
/// purpose.
pub(in super::super) fn check_room(root: &Path, wanted: u64, purpose: &'static str) -> Result<(), Error> {
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
pub(in super::super) fn count_max(size: u64, segment_len: u64) -> Result<usize, Error> {
    let count = size / segment_len.max(1);
    if count < 2 {
        let text = format!("a store of {size} bytes: it has two segments of {segment_len} bytes at least");
        return Err(Error::Setting(text));
    }
    Ok(count as usize)
}
