//! A store made ready for recording: made or put in order, its room reserved, its last segment taken up again.

use std::path::Path;
use std::sync::Arc;

use tapline_packet::Timestamp;

use super::RecorderSettings;
use super::reserve::Reserve;
use super::retention::Retention;
use super::segments::{Segments, check_room, count_max};
use super::writing::{Progress, Writing, add};
use crate::catalog::{Catalog, check_segment_len};
use crate::erase::rewrite;
use crate::error::Error;
use crate::index::{Builder, Contents};
use crate::layout::{PAGE_LEN, Paths, SEGMENT_LEN_DEFAULT, SLOT_LEN, filler};
use crate::lock;
use crate::restore::Restored;

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

impl Writing {
    pub(super) fn open(root: &Path, settings: &RecorderSettings, now: Timestamp) -> Result<Begun, Error> {
        let paths = Paths::new(root);
        let mut is_made = false;
        let mut lock = None;
        let catalog = match Catalog::open(root) {
            Err(Error::NoStore { .. }) => {
                let segment_len = settings.segment_len.unwrap_or(SEGMENT_LEN_DEFAULT);
                // Before anything is made.
                check_segment_len(segment_len).map_err(Error::Setting)?;
                let count = count_max(settings.size, segment_len)?;
                check_room(root, count as u64 * segment_len)?;
                is_made = !root.exists();
                let folder = paths.segments();
                std::fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
                // Of two recorders that make the same store one does.
                lock = Some(lock::take(&paths)?);
                match Catalog::open(root) {
                    Err(Error::NoStore { .. }) => Catalog::create(root, segment_len)?,
                    catalog => catalog?,
                }
            }
            catalog => catalog?,
        };
        if let Some(wanted) = settings.segment_len
            && wanted != catalog.segment_len()
        {
            return Err(Error::Setting(format!(
                "{}: its segments have {} bytes, not {wanted}: a store keeps the length that it was made with",
                root.display(),
                catalog.segment_len()
            )));
        }
        let lock = lock.map_or_else(|| lock::take(&paths), Ok)?;
        let segment_len = catalog.segment_len();
        let progress = Arc::new(Progress::default());
        if let chunks @ 1.. = rewrite::finish(&catalog)? {
            progress.tell(format!("{chunks} chunks of an erasure that was killed were written"));
        }
        let mut segments = Segments::open(catalog, settings.size)?;
        let reserve = Reserve::open(segments.catalog(), count_max(settings.size, segment_len)?)?;
        let mut builder = settings.index.map(|options| Box::new(Builder::new(segment_len, options)));
        if let Some(builder) = &mut builder {
            restore_indexes(&segments, builder, &progress)?;
        }
        let newest = segments.newest();
        let read = |number| Restored::read(segments.catalog(), number, builder.as_deref_mut());
        let going_on = newest.map(read).transpose()?;
        // One in which no chunk is whole was begun when power failed, and begins again.
        let end = |found: &Restored| if found.contents.summary.chunks == 0 { 0 } else { found.end };
        let mut at = going_on.as_ref().map_or(segment_len, end);
        let last = match going_on.as_ref().map(|found| found.last) {
            Some(last) if last.0 > 0 => last,
            _ => last_chunk(&segments)?,
        };
        let mut state = None;
        if let (Some(number), Some(restored)) = (newest, going_on) {
            if restored.damaged > 0 {
                let damaged = restored.damaged;
                progress.tell(format!("segment {number}: {damaged} damaged chunks or places were found"));
            }
            if at < segment_len {
                state = Some((number, segments.go_on(number, at)?, restored.contents));
            } else if let Some(builder) = &mut builder {
                restored.seal(segments.catalog(), number, builder)?;
                builder.clear();
            }
        }
        let mut recycled = None;
        let (number, target, contents) = match state {
            Some(state) => state,
            None => {
                at = 0;
                let fresh = segments.next()?;
                recycled = fresh.recycled;
                (fresh.number, fresh.target, Contents::new(segment_len))
            }
        };
        let path = segments.catalog().segment_path(number);
        if segments.is_direct() && !target.takes_direct(at) {
            segments.use_cache();
            progress.tell("writes go through the page cache: the file system takes none past it".to_owned());
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
            untold: (0, 0, 0),
            is_unsynced: false,
            doubtful: Vec::new(),
            filler: filler(PAGE_LEN),
            is_full: false,
            tried: Timestamp::EPOCH,
            retention,
            expired: now,
            progress,
            snap_len: settings.snap_len,
            _lock: lock,
            segments,
            reserve,
        };
        if let Some(old) = recycled {
            add(&writing.progress.recycled, 1);
            writing.note("recycled", old);
        }
        writing.note("begun", number);
        add(&writing.progress.segments, 1);
        Ok(Begun {
            writing,
            segment_len,
            at,
            is_made,
            index: builder,
            spare: settings.index.map(|options| Box::new(Builder::new(segment_len, options))),
        })
    }
}

/// Makes indexes again that a recording which was broken off did not come to. Others are missing by wish: `tapline store repair` makes
/// those, so that no recording waits for it.
fn restore_indexes(segments: &Segments, builder: &mut Builder, progress: &Progress) -> Result<(), Error> {
    let missing = segments.without_index();
    let (older, newer) = missing.split_at(missing.len().saturating_sub(RESTORED_MAX));
    if !older.is_empty() {
        let count = older.len();
        progress.tell(format!("{count} segments have no index: `tapline store repair` makes them"));
    }
    for &number in newer {
        let restored = Restored::read(segments.catalog(), number, Some(&mut *builder))?;
        restored.seal(segments.catalog(), number, builder)?;
        progress.tell(format!("segment {number} had no index: made again from its chunks"));
        builder.clear();
    }
    Ok(())
}

/// The number and hash of the last chunk of the segments before the newest, which has none.
fn last_chunk(segments: &Segments) -> Result<(u64, [u8; 32]), Error> {
    for number in segments.before_newest() {
        let last = match segments.catalog().index(number) {
            Some(index) => (index.summary.last_number, index.summary.last_hash),
            None => Restored::read(segments.catalog(), number, None)?.last,
        };
        // A segment without a chunk says nothing of the chain.
        if last.0 > 0 {
            return Ok(last);
        }
    }
    Ok((0, [0; 32]))
}
