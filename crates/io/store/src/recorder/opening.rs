//! A store made ready for recording: made or put in order, its room reserved, its last segment taken up again.

use std::fs::File;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use tapline_packet::Timestamp;

use super::RecorderSettings;
use super::progress::{Progress, add};
use super::reserve::Reserve;
use super::retention::Retention;
use super::segments::{Fresh, Segments, check_room, count_max};
use super::writers::Target;
use super::writing::{Untold, Writing};
use crate::catalog::{Catalog, check_segment_len};
use crate::erase::rewrite;
use crate::error::{Error, is_full};
use crate::index::{Builder, Contents};
use crate::layout::{
    PAGE_LEN, Paths, ROLL_UPS, SEGMENT_LEN_DEFAULT, SEGMENTS, SLOT_LEN, filler, named, remove,
};
use crate::log::{History, history};
use crate::packed::{self, Packer};
use crate::restore::Restored;
use crate::{files, lock};

/// Levels of zstd by which chunks are compressed: higher ones need more memory to unpack, for chunks as short as ours
/// to no avail.
const COMPRESSION_LEVELS: RangeInclusive<i32> = 1..=19;
/// Indexes that are made again when a recording begins: more segments than one that was broken off leaves unsealed.
const RESTORED_MAX: usize = 3;

/// A store that is ready to be written to.
pub(super) struct Begun {
    pub(super) writing: Writing,
    pub(super) segment_len: u64,
    /// Where the first chunk goes.
    pub(super) at: u64,
    /// Whether the directory was made.
    pub(super) is_made: bool,
    /// The index of the segment that goes on.
    pub(super) index: Option<Box<Builder>>,
    /// One for the next.
    pub(super) spare: Option<Box<Builder>>,
}

/// A store that is locked for this recorder.
struct Locked {
    catalog: Catalog,
    lock: File,
    /// Whether the directory was made.
    is_made: bool,
}

/// The segment that the recording begins in.
struct Current {
    number: u64,
    target: Target,
    contents: Contents,
    /// Where the first chunk goes.
    at: u64,
    /// Number and hash of the chunk before it.
    last: (u64, [u8; 32]),
}

impl Writing {
    pub(super) fn open(root: &Path, settings: &RecorderSettings, now: Timestamp) -> Result<Begun, Error> {
        let Locked { catalog, lock, is_made } = lock_store(root, settings)?;
        let segment_len = catalog.segment_len();
        let packer = settings.compress.map(|level| packer(&catalog, level)).transpose()?;
        let progress = Arc::new(Progress::default());
        if let chunks @ 1.. = rewrite::finish(&catalog)? {
            progress.tell(format!("{chunks} chunks of an erasure that was killed were written"));
        }
        if let Err(error) = catalog.paths.make(ROLL_UPS) {
            progress.tell(format!("no roll-ups are made: {error}"));
        }
        let mut segments = Segments::open(catalog, settings)?;
        segments.take_changes().tell(&progress);
        let reserve =
            Reserve::new(segments.catalog(), count_max(settings.size, segment_len)?, settings.keeps_room);
        match reserve.take() {
            // Packets have their room: that of indexes keeps no store from being recorded to again.
            Err(error) if segments.newest().is_some() => {
                progress
                    .tell(format!("{error}; a segment whose index finds no room is searched by its chunks"));
            }
            taken => taken?,
        }
        let mut history = history(&segments.catalog().paths);
        let mut index = settings.index.map(|options| Box::new(Builder::new(segment_len, options)));
        if let Some(builder) = &mut index {
            restore_indexes(&segments, builder, &reserve, (&progress, &mut history))?;
        }
        let current =
            begin_segment(&mut segments, index.as_deref_mut(), &reserve, (&progress, &mut history))?;
        segments.take_changes().tell(&progress);
        let Current { number, target, contents, at, last } = current;
        let path = named(&segments.catalog().segment_path(number));
        if segments.is_direct() && !target.takes_direct(at, segments.is_packed()) {
            segments.use_cache();
            progress.tell(
                "writes go through the page cache: the file system does not support direct I/O".to_owned(),
            );
        }
        let retention = settings.keep_ns.map(|keep_ns| {
            let step_max_ns = settings.sync_ns.saturating_mul(2);
            Retention::new(keep_ns, step_max_ns, segments.newest_time(), now.as_nanos())
        });
        let writing = Writing {
            number,
            target: Arc::new(target),
            path,
            contents,
            last,
            filled: at.next_multiple_of(SLOT_LEN as u64),
            end: at,
            dropped: 0,
            untold: Untold::default(),
            untold_times: None,
            is_live: settings.is_live,
            is_unsynced: false,
            doubtful: Vec::new(),
            filler: filler(PAGE_LEN),
            packer,
            is_full: false,
            tried: Timestamp::EPOCH,
            retention,
            expired: now,
            progress,
            snap_len: settings.snap_len,
            keeps_room: settings.keeps_room,
            policy: settings.overload,
            history: History { sealed: history.sealed, ..History::default() },
            _lock: lock,
            segments,
            reserve,
        };
        writing.note("begun", number);
        if let Err(error) = writing.segments.catalog().note_begun(now, settings.is_live) {
            let text = format!("{error}; if this recording is broken off, the store does not report it");
            writing.progress.tell(text);
        }
        add(&writing.progress.segments, 1);
        let spare = index.as_deref().map(|index| Box::new(index.twin()));
        Ok(Begun { writing, segment_len, at, is_made, index, spare })
    }
}

/// A packer for the chunks of a store, whose file system can give back the room of parts of a file.
fn packer(catalog: &Catalog, level: i32) -> Result<Packer, Error> {
    if !COMPRESSION_LEVELS.contains(&level) {
        return Err(Error::Setting(format!("compression of level {level}: zstd has levels 1 to 19")));
    }
    let path = catalog.paths.segments().join("spare-holes");
    remove(&path)?;
    let tried = files::make(&path).and_then(|file| packed::has_holes(&file));
    remove(&path)?;
    match tried {
        Ok(true) => {}
        Ok(false) => {
            return Err(Error::Setting(format!(
                "{}: the file system cannot give back the room of parts of a file, so compression saves none: record \
                 without it, or compress in the file system",
                catalog.root().display()
            )));
        }
        // A store may have all the room of its disk, in spare files.
        Err(error) if is_full(&error) && catalog.allows_packed() => {}
        Err(error) => return Err(Error::file("reserve room for", &path)(error)),
    }
    catalog.allow_packed()?;
    Packer::new(level).map_err(Error::file("compress chunks for", catalog.root()))
}

/// Opens the store, or makes it, and takes its lock.
fn lock_store(root: &Path, settings: &RecorderSettings) -> Result<Locked, Error> {
    let paths = Paths::new(root);
    match Catalog::open(root) {
        Err(Error::NoStore { .. }) => make_store(root, &paths, settings),
        catalog => {
            let catalog = of_length(catalog?, root, settings)?;
            Ok(Locked { catalog, lock: lock::take(&paths)?, is_made: false })
        }
    }
}

/// Makes a store, after its settings and the room on the disk were looked at.
fn make_store(root: &Path, paths: &Paths, settings: &RecorderSettings) -> Result<Locked, Error> {
    let segment_len = settings.segment_len.unwrap_or(SEGMENT_LEN_DEFAULT);
    check_segment_len(segment_len).map_err(Error::Setting)?;
    let count = count_max(settings.size, segment_len)?;
    check_room(root, count as u64 * segment_len, "segments")?;
    let is_made = !root.exists();
    files::make_folder(root).map_err(Error::file("make", root))?;
    paths.make(SEGMENTS)?;
    // Of two recorders that make the same store one does.
    let lock = lock::take(paths)?;
    let catalog = match Catalog::open(root) {
        Err(Error::NoStore { .. }) => Catalog::create(root, segment_len)?,
        catalog => catalog?,
    };
    Ok(Locked { catalog: of_length(catalog, root, settings)?, lock, is_made })
}

/// Checks that the segments of the store have the requested length.
fn of_length(catalog: Catalog, root: &Path, settings: &RecorderSettings) -> Result<Catalog, Error> {
    match settings.segment_len {
        Some(wanted) if wanted != catalog.segment_len() => Err(Error::Setting(format!(
            "{}: its segments have {} bytes, not {wanted}: a store keeps the length that it was made with",
            root.display(),
            catalog.segment_len()
        ))),
        _ => Ok(catalog),
    }
}

/// Takes up the newest segment where its last chunk ends; begins the next one where there is none, or no room in it.
fn begin_segment(
    segments: &mut Segments,
    mut index: Option<&mut Builder>,
    reserve: &Reserve,
    (progress, history): (&Progress, &mut History),
) -> Result<Current, Error> {
    let segment_len = segments.catalog().segment_len();
    let newest = segments.newest();
    let sealed = newest.map_or(0, |number| segments.catalog().sealed_chunks(number, history));
    let read = |number| Restored::read(segments.catalog(), number, sealed, index.as_deref_mut());
    let going_on = newest.map(read).transpose()?;
    let last = match going_on.as_ref().map(|found| found.last) {
        Some(last) if last.0 > 0 => last,
        _ => last_chunk(segments, history)?,
    };
    if let (Some(number), Some(restored)) = (newest, going_on) {
        if let damaged @ 1.. = restored.damaged {
            progress.tell(format!("segment {number}: {damaged} damaged chunks or places were found"));
        }
        let at = match u64::from(restored.contents.summary.chunks) {
            // Chunks are gone, and others may stand where the next one would: what is left stays.
            chunks if chunks < sealed => segment_len,
            // Somebody may be writing to the other file, or take this one for it.
            _ if segments.is_doubled(number) => segment_len,
            0 if segments.is_foreign(number) => {
                let path = segments.catalog().segment_path(number);
                progress.tell(format!(
                    "segment {number}: {} is not of this store: the next segment is begun; it goes when a segment of \
                     its age does: move it away to keep it",
                    named(&path).display()
                ));
                segment_len
            }
            // A segment without an intact chunk was begun when power failed, and begins again.
            0 => 0,
            _ if !segments.is_alike(number) => segment_len,
            _ => restored.end,
        };
        let went_on = (at < segment_len).then(|| segments.go_on(number, at));
        match went_on {
            // A segment whose chunks are compressed gave its room back, and others took it.
            Some(Err(error)) if segments.is_packed() && error.is_full() && restored.damaged == 0 => {
                segments.release_again(number, &restored.contents.packed);
            }
            Some(Err(error)) if segments.is_packed() && error.is_full() => {}
            Some(target) => {
                let contents = restored.contents;
                return Ok(Current { number, target: target?, contents, at, last });
            }
            None => {}
        }
        if let Some(builder) = index {
            seal_again(restored, segments, number, builder, reserve, (progress, history));
        }
    }
    let Fresh { number, target } = segments.next()?;
    Ok(Current { number, target, contents: Contents::new(segment_len), at: 0, last })
}

/// Makes indexes again that a recording which was broken off did not come to. Others are missing by wish: `tapline
/// store repair` makes those, so that no recording waits for it.
fn restore_indexes(
    segments: &Segments,
    builder: &mut Builder,
    reserve: &Reserve,
    (progress, history): (&Progress, &mut History),
) -> Result<(), Error> {
    let missing = segments.without_index();
    let (older, newer) = missing.split_at(missing.len().saturating_sub(RESTORED_MAX));
    if !older.is_empty() {
        let count = older.len();
        progress.tell(format!("{count} segments have no index: `tapline store repair` makes them"));
    }
    for &number in newer {
        let sealed = segments.catalog().sealed_chunks(number, history);
        let restored = Restored::read(segments.catalog(), number, sealed, Some(&mut *builder))?;
        if seal_again(restored, segments, number, builder, reserve, (progress, history)) {
            progress.tell(format!("segment {number} had no index: made again from its chunks"));
        }
    }
    Ok(())
}

/// Makes the index of a segment in the room that is reserved for it. If the disk refuses it, reports that and returns
/// `false`: the segment is then searched by its chunks.
fn seal_again(
    restored: Restored,
    segments: &Segments,
    number: u64,
    builder: &mut Builder,
    reserve: &Reserve,
    (progress, history): (&Progress, &mut History),
) -> bool {
    reserve.give();
    let sealed = restored.seal(segments.catalog(), number, builder, history);
    builder.clear();
    // A lack of room was told when the recording took it.
    let _ = reserve.renew();
    sealed.map_err(|error| progress.tell(error.to_string())).is_ok()
}

/// The number and hash of the last chunk of the segments before the newest, which has none.
fn last_chunk(segments: &Segments, history: &History) -> Result<(u64, [u8; 32]), Error> {
    for number in segments.before_newest() {
        let last = match segments.catalog().index(number) {
            Some(index) => (index.summary.last_number, index.summary.last_hash),
            None => {
                let sealed = segments.catalog().sealed_chunks(number, history);
                Restored::read(segments.catalog(), number, sealed, None)?.last
            }
        };
        // A segment without a chunk says nothing of the chain.
        if last.0 > 0 {
            return Ok(last);
        }
    }
    Ok((0, [0; 32]))
}
