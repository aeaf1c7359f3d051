//! Which chunks are to be read: segment by segment, by time and by keys.
//!
//! ```text
//! segment --time of its index--> --keys--> slots --time--> chunks, those that stand together as one stretch
//!         '-- no index: its chunks are walked, and chosen by time
//! ```

use std::io;
use std::sync::Arc;

use tapline_sys::disk::PieceFile;

use super::{SearchAccount, Window};
use crate::catalog::Catalog;
use crate::index::{Index, Slots};
use crate::keys::{Class, key};
use crate::layout::SLOT_LEN;
use crate::question::Question;
use crate::walk::Walk;

/// What is asked of a store.
pub(super) struct Plan {
    pub(super) catalog: Arc<Catalog>,
    pub(super) window: Window,
    pub(super) question: Question,
    /// Chunks are read past the page cache: somebody records, whose pages are to stay there.
    pub(super) is_past_cache: bool,
}

/// A segment that is open.
pub(super) struct OpenSegment {
    pub(super) number: u64,
    pub(super) file: PieceFile,
    pub(super) len: u64,
    /// Its last chunk is surely whole.
    pub(super) is_whole: bool,
}

/// Chunks that stand one behind the other and are read at once: a slot at most, or one longer chunk.
pub(super) struct Stretch {
    pub(super) segment: Arc<OpenSegment>,
    pub(super) offset: u64,
    /// Lengths of the chunks.
    pub(super) chunks: Vec<u32>,
    /// Whether the last of them is the last that was found in its segment.
    pub(super) is_last: bool,
}

impl Stretch {
    /// Bytes of all its chunks.
    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(|len| *len as usize).sum()
    }
}

/// Where a chunk stands.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Plan {
    /// What is to be read of a segment, in the order of recording; what is passed over, and the segment itself, are in the account.
    pub(super) fn segment(&self, number: u64, account: &mut SearchAccount) -> Vec<Stretch> {
        match self.open(number) {
            Ok(Some(stretches)) => {
                *account += stretches.1;
                stretches.0
            }
            Ok(None) => {
                account.segments_gone += 1;
                Vec::new()
            }
            Err(_) => {
                account.segments_unreadable += 1;
                Vec::new()
            }
        }
    }

    /// `None` if the segment is gone.
    fn open(&self, number: u64) -> io::Result<Option<(Vec<Stretch>, SearchAccount)>> {
        let path = self.catalog.segment_path(number);
        let file = match PieceFile::open(&path, self.is_past_cache) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let len = file.file().metadata()?.len().min(self.catalog.segment_len);
        let index = self.catalog.index(number);
        let mut account = SearchAccount::default();
        let is_indexed = index.is_some();
        let places = match index {
            Some(index) => self.by_index(&index, &mut account),
            None => self.by_walk(&file, number, &mut account)?,
        };
        let segment = Arc::new(OpenSegment { number, file, len, is_whole: is_indexed });
        Ok(Some((stretches(&segment, &places), account)))
    }

    fn by_index(&self, index: &Index, account: &mut SearchAccount) -> Vec<Place> {
        account.index_bytes += index.len() as u64;
        if !self.window.overlaps(index.summary.first, index.summary.last) {
            account.segments_by_time += 1;
            return Vec::new();
        }
        let may = self.slots(index);
        if !may.contains(&true) {
            account.segments_by_keys += 1;
            return Vec::new();
        }
        account.segments_indexed += 1;
        let mut places = Vec::new();
        for row in index.chunks() {
            account.chunks += 1;
            let slot = (row.offset / SLOT_LEN as u64) as usize;
            if !self.window.overlaps(row.first, row.last) {
                account.chunks_by_time += 1;
            } else if !may.get(slot).copied().unwrap_or(true) {
                account.chunks_by_keys += 1;
            } else {
                places.push(Place { offset: row.offset, len: row.len });
            }
        }
        places
    }

    /// For each slot whether what is asked for may be in it.
    fn slots(&self, index: &Index) -> Vec<bool> {
        let keys = self.question.keys();
        let sets: Vec<Slots> = keys.iter().map(|key| index.slots(*key)).collect();
        let open = index.slots(key(Class::Open, 0));
        let slot_may = |slot: u32| {
            let has = |key: u64| keys.binary_search(&key).is_ok_and(|at| sets[at].has(slot));
            slot >= index.summary.complete || open.has(slot) || self.question.holds(&has)
        };
        (0..index.summary.slots).map(slot_may).collect()
    }

    fn by_walk(&self, file: &PieceFile, number: u64, account: &mut SearchAccount) -> io::Result<Vec<Place>> {
        let mut walk = Walk::new(file.file(), self.catalog.id, number, self.catalog.segment_len)?;
        account.segments_walked += 1;
        let mut places = Vec::new();
        while let Some(found) = walk.next() {
            account.chunks += 1;
            if self.window.overlaps(found.head.first, found.head.last) {
                places.push(Place { offset: found.offset, len: found.head.len });
            } else {
                account.chunks_by_time += 1;
            }
        }
        // A segment that was recycled meanwhile has chunks of another number, or none yet.
        if walk.damaged > 0 && self.catalog.segment_path(number).exists() {
            account.places_damaged += walk.damaged;
        }
        Ok(places)
    }
}

/// Puts chunks together that stand together.
pub(super) fn stretches(segment: &Arc<OpenSegment>, places: &[Place]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut end = None;
    for place in places {
        match stretches.last_mut() {
            Some(last) if end == Some(place.offset) && last.len() + place.len as usize <= SLOT_LEN => {
                last.chunks.push(place.len);
            }
            _ => stretches.push(Stretch {
                segment: Arc::clone(segment),
                offset: place.offset,
                chunks: vec![place.len],
                is_last: false,
            }),
        }
        end = Some(place.offset + u64::from(place.len));
    }
    if let Some(last) = stretches.last_mut() {
        last.is_last = true;
    }
    stretches
}
