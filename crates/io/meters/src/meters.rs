//! All meters of a process: a file of slots that others read, or memory of our own if no file is possible.
//!
//! ```text
//! slot   free --slot()--> used --the last Meter dropped--> retired --slot(), when no slot is left unused--> used
//! ```
//!
//! Slots are given out in order, each reserved by writing to the file, so that a full disk is an error here and not a
//! signal when a counter is touched. When all were used, the slot that retired first is given out again; when none is
//! retired, the counters live in memory that other processes do not see.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapline_sys::{SharedWords, clock};

use crate::Error;
use crate::clock::Clock;
use crate::layout::{
    BYTE_ORDER, FILE_LEN, Kind, MAGIC, SLOT_LEN, SLOT_WORDS, SLOTS_MAX, SlotState, Tag, VERSION, header,
    slot, words_of,
};
use crate::meter::{Meter, Slot};
use crate::place::{METERS, RunFolder, run_folders};
use crate::snapshot::Snapshot;

/// The meters of a process. A clone is the same ones; the file goes when they and every [`Meter`] are dropped.
///
/// A process that ends without dropping them leaves the file behind; the next one removes it.
#[derive(Clone, Debug)]
pub struct Meters {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    words: SharedWords,
    file: Option<SharedFile>,
    reason: Option<Error>,
    slots: Mutex<Slots>,
}

/// A file that readers map, removed at the end by the process that made it.
#[derive(Debug)]
pub struct SharedFile {
    /// The open file.
    pub file: File,
    /// The path of the file.
    pub path: PathBuf,
    /// A process that was forked off must not remove it.
    owner: u32,
}

impl SharedFile {
    /// Takes charge of a file that this process made.
    pub fn new((file, path): (File, PathBuf)) -> SharedFile {
        SharedFile { file, path, owner: process::id() }
    }
}

/// The slots in use. Numbers from [`SLOTS_MAX`] on are in `spare`.
#[derive(Debug, Default)]
struct Slots {
    used: usize,
    retired: VecDeque<usize>,
    spare: Vec<SharedWords>,
}

/// A slot in use; retired when dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    inner: Arc<Inner>,
    number: usize,
}

impl Meters {
    /// Meters in a file that other processes can read, `title` in its header (128 bytes of it). Where no file can be
    /// made they are private, and [`reason`](Self::reason) says why.
    pub fn create(title: &str) -> Meters {
        Meters::create_in_first(&run_folders(), title)
    }

    fn create_in_first(places: &[RunFolder], title: &str) -> Meters {
        let mut tried = Vec::new();
        for place in places {
            match shared(place, title) {
                Ok(meters) => return meters,
                Err(error) => tried.push(error.to_string()),
            }
        }
        Meters::in_memory(Some(Error::NoFolder { tried }))
    }

    /// Creates the file in the given folder, which is made if it does not exist.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn create_in(folder: &Path, title: &str) -> Result<Meters, Error> {
        shared(&RunFolder::of(folder), title)
    }

    /// Meters that only this process sees.
    pub fn private() -> Meters {
        Meters::in_memory(None)
    }

    fn in_memory(reason: Option<Error>) -> Meters {
        let words = SharedWords::private(FILE_LEN / 8);
        Meters { inner: Arc::new(Inner { words, file: None, reason, slots: Mutex::default() }) }
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.inner.file.as_ref().map(|file| file.path.as_path())
    }

    /// The reason that there is no file although one was requested.
    pub fn reason(&self) -> Option<&Error> {
        self.inner.reason.as_ref()
    }

    /// Counters for a stage: its name, its class, its worker. Names are cut to 64 bytes, classes to 24.
    pub fn slot(&self, name: &str, class: &str, worker: u16) -> Meter {
        self.slot_of(Kind::Stage, name, class, worker)
    }

    /// Counters for a source.
    pub fn source(&self, name: &str, class: &str, worker: u16) -> Meter {
        self.slot_of(Kind::Source, name, class, worker)
    }

    /// Counters for a sink.
    pub fn sink(&self, name: &str, class: &str, worker: u16) -> Meter {
        self.slot_of(Kind::Sink, name, class, worker)
    }

    /// Counters of an interface, `class` being the way its packets come: all of them are further counters.
    pub fn interface(&self, name: &str, class: &str, worker: u16) -> Meter {
        self.slot_of(Kind::Interface, name, class, worker)
    }

    fn slot_of(&self, kind: Kind, name: &str, class: &str, worker: u16) -> Meter {
        let (number, slot) = self.inner.take();
        let generation = Tag::of_word(slot[slot::TAG].load(Relaxed)).map_or(0, |tag| tag.generation);
        let generation = if slot[slot::SINCE].load(Relaxed) == 0 { 0 } else { generation.wrapping_add(1) };
        let tag = |state| Tag { state, kind, worker, generation }.word();
        slot[slot::TAG].store(tag(SlotState::Free), Relaxed);
        std::sync::atomic::fence(Release);
        slot[1..].iter().for_each(|word| word.store(0, Relaxed));
        let name: [u64; slot::NAME.end - slot::NAME.start] = words_of(name);
        let class: [u64; slot::CLASS.end - slot::CLASS.start] = words_of(class);
        name.iter().zip(&slot[slot::NAME]).for_each(|(value, word)| word.store(*value, Relaxed));
        class.iter().zip(&slot[slot::CLASS]).for_each(|(value, word)| word.store(*value, Relaxed));
        // A clock before 1970 must not look as if the slot had never been used.
        slot[slot::SINCE].store(clock::realtime_ns().max(1).unsigned_abs(), Relaxed);
        slot[slot::TAG].store(tag(SlotState::Used), Release);
        Meter::new(slot, Lease { inner: Arc::clone(&self.inner), number })
    }

    /// All counters as they are now: those in use and those that retired, in the order of their slots.
    pub fn snapshot(&self) -> Vec<Snapshot> {
        // Under the lock, so that no slot is given to something else meanwhile.
        let slots = self.inner.lock();
        let numbers = (0..slots.used).chain(SLOTS_MAX..SLOTS_MAX + slots.spare.len());
        numbers
            .filter_map(|number| {
                let slot = self.inner.part(&slots, number);
                Snapshot::of_words(&std::array::from_fn(|word| slot[word].load(Relaxed)))
            })
            .filter(|snapshot| snapshot.state != SlotState::Free)
            .collect()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Nothing that is done under the lock leaves it half done.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free slot.
    fn take(&self) -> (usize, Slot) {
        let mut slots = self.lock();
        let number = if slots.used < SLOTS_MAX && self.reserve(slots.used) {
            slots.used += 1;
            if self.file.is_some() {
                self.words[header::USED].store(slots.used as u64, Release);
            }
            slots.used - 1
        } else if let Some(number) = slots.retired.pop_front() {
            number
        } else {
            slots.spare.push(SharedWords::private(SLOT_WORDS));
            SLOTS_MAX + slots.spare.len() - 1
        };
        (number, self.part(&slots, number))
    }

    /// Makes the file system provide the memory.
    fn reserve(&self, number: usize) -> bool {
        let offset = ((number + 1) * SLOT_LEN) as u64;
        self.file.as_ref().is_none_or(|file| file.file.write_all_at(&[0; SLOT_LEN], offset).is_ok())
    }

    fn part(&self, slots: &Slots, number: usize) -> Slot {
        match number.checked_sub(SLOTS_MAX) {
            Some(spare) => slots.spare[spare].part(0),
            None => self.words.part((number + 1) * SLOT_WORDS),
        }
    }
}

impl Lease {
    pub(crate) fn meters(&self) -> Meters {
        Meters { inner: Arc::clone(&self.inner) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut slots = self.inner.lock();
        let slot = self.inner.part(&slots, self.number);
        if let Some(tag) = Tag::of_word(slot[slot::TAG].load(Relaxed)) {
            slot[slot::TAG].store(Tag { state: SlotState::Retired, ..tag }.word(), Release);
        }
        slots.retired.push_back(self.number);
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // A process that gave up the right to remove the file still has it open. The mapping is no longer used, so its
        // memory can be freed.
        if self.owner == process::id() && fs::remove_file(&self.path).is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

fn shared(place: &RunFolder, title: &str) -> Result<Meters, Error> {
    // From here on a failure removes the file.
    let file = SharedFile::new(place.create(METERS)?);
    file.file.set_len(FILE_LEN as u64).map_err(Error::io("make room in", &file.path))?;
    let bytes: Vec<u8> = header_of(title).iter().flat_map(|word| word.to_ne_bytes()).collect();
    file.file.write_all_at(&bytes, 0).map_err(Error::io("write to", &file.path))?;
    let words = SharedWords::map(&file.file, FILE_LEN / 8)
        .map_err(|source| Error::Map { path: file.path.clone(), source })?;
    words[header::MAGIC].store(MAGIC, Release);
    let inner = Inner { words, file: Some(file), reason: None, slots: Mutex::default() };
    Ok(Meters { inner: Arc::new(inner) })
}

/// The header, without the magic number: that comes last.
fn header_of(title: &str) -> [u64; SLOT_WORDS] {
    let clock = Clock::of_costs();
    let mut words = [0; SLOT_WORDS];
    words[header::BYTE_ORDER] = BYTE_ORDER;
    words[header::VERSION] = VERSION;
    words[header::PROCESS] = u64::from(process::id());
    words[header::CREATED] = clock::realtime_ns().max(0).unsigned_abs();
    words[header::FREQUENCY] = clock.frequency_hz().round() as u64;
    words[header::CLOCK] = clock.kind() as u64;
    words[header::READ_COST] = (clock.read_ticks() * 1000.0).round() as u64;
    words[header::SLOTS] = SLOTS_MAX as u64;
    words[header::SLOT_LEN] = SLOT_LEN as u64;
    words[header::TITLE].copy_from_slice(&words_of::<{ header::TITLE.end - header::TITLE.start }>(title));
    words
}

const _: () = assert!(FILE_LEN == (SLOTS_MAX + 1) * SLOT_WORDS * mem::size_of::<u64>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Cost;

    fn cost(packets: u64) -> Cost {
        Cost {
            cycles: packets * 10,
            packets_in: packets,
            bytes_in: packets * 64,
            packets_out: 1,
            bytes_out: 64,
        }
    }

    #[test]
    fn private_meters_count() {
        let meters = Meters::private();
        let web = meters.slot("web", "filter", 3);
        web.add(&cost(256));
        web.clone().add(&cost(44));
        let snapshot = web.snapshot();
        assert_eq!((snapshot.name.as_str(), snapshot.class.as_str(), snapshot.worker), ("web", "filter", 3));
        assert_eq!((snapshot.batches, snapshot.packets_in, snapshot.bytes_in), (2, 300, 19_200));
        assert_eq!((snapshot.packets_out, snapshot.bytes_out, snapshot.cycles), (2, 128, 3000));
        assert_eq!(snapshot.histogram.packets(), 300);
        assert_eq!(snapshot.percentile(0.0), Some(10.0));
        assert!(meters.path().is_none() && meters.reason().is_none() && !web.is_shared());
    }

    #[test]
    fn the_last_clone_retires_and_the_counters_stay() {
        let meters = Meters::private();
        let first = meters.source("eth0", "device", 0);
        let second = first.clone();
        first.add(&cost(1));
        drop(first);
        assert_eq!(second.snapshot().state, SlotState::Used);
        drop(second);
        let [left] = &meters.snapshot()[..] else { panic!("one slot") };
        assert_eq!((left.state, left.kind, left.packets_in), (SlotState::Retired, Kind::Source, 1));
    }

    #[test]
    fn slots_are_used_again_once_all_were_used() {
        let meters = Meters::private();
        let first = meters.slot("first", "count", 0);
        first.add(&cost(7));
        assert!(first.extra("entries").is_some());
        drop(first);
        let others: Vec<Meter> = (1..SLOTS_MAX).map(|_| meters.slot("other", "count", 0)).collect();
        let again = meters.slot("again", "sink", 1);
        assert_eq!(again.snapshot().generation, 1);
        assert_eq!((again.snapshot().packets_in, again.snapshot().extras.len()), (0, 0));
        // Now none is left, and none has retired: these two are elsewhere, and count all the same.
        let spare = [meters.sink("spare", "sink", 0), meters.sink("spare", "sink", 1)];
        spare[1].add(&cost(2));
        assert_eq!(meters.snapshot().len(), SLOTS_MAX + 2);
        assert_eq!(meters.snapshot()[SLOTS_MAX + 1].packets_in, 2);
        drop((others, spare));
        assert_eq!(meters.slot("other", "count", 0).snapshot().generation, 1);
        assert_eq!(meters.snapshot().len(), SLOTS_MAX + 2);
    }

    #[test]
    fn the_first_folder_that_takes_a_file_is_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let (no, yes) = (RunFolder::of(Path::new("/proc/none")), RunFolder::of(&folder.path().join("new")));
        let meters = Meters::create_in_first(&[no.clone(), yes], "x");
        assert!(meters.path().is_some_and(|path| path.starts_with(folder.path())));
        let meters = Meters::create_in_first(&[no], "x");
        let reason = meters.reason().expect("a reason").to_string();
        assert!(reason.contains("/proc/none") && reason.contains("TAPLINE_RUN_DIR"), "{reason}");
        let meter = meters.slot("stage", "count", 0);
        meter.add(&cost(5));
        assert_eq!((meter.snapshot().packets_in, meter.is_shared(), meters.path()), (5, false, None));
    }

    #[test]
    fn meter_files_are_emptied_if_not_removable() {
        let folder = tempfile::tempdir().expect("a folder");
        let meters = Meters::create_in(folder.path(), "x").expect("a file");
        let meter = meters.slot("stage", "count", 0);
        let (path, moved) = (meters.path().expect("a file").to_owned(), folder.path().join("moved"));
        // As root may remove anything, something that is not a file stands in its place.
        fs::rename(&path, &moved).expect("our file");
        fs::create_dir(&path).expect("our folder");
        drop(meters);
        meter.add(&cost(1));
        assert_eq!(fs::metadata(&moved).expect("the file").len(), FILE_LEN as u64);
        drop(meter);
        assert_eq!(fs::metadata(&moved).expect("the file").len(), 0);
    }

    #[test]
    fn eight_further_counters_have_room() {
        let meter = Meters::private().slot("top", "top", 0);
        for number in 0..crate::EXTRAS_MAX {
            meter.extra(&format!("counter {number}")).expect("room").add(number as u64);
        }
        assert!(meter.extra("one more").is_none() && meter.extra("").is_none());
        let same = meter.extra("counter 3").expect("known");
        same.add(4);
        assert_eq!(same.get(), 7);
        same.set(1);
        assert_eq!(meter.snapshot().extras[3], ("counter 3".to_owned(), 1));
        assert_eq!(meter.snapshot().extras.len(), 8);
    }
}
