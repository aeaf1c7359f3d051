//! The file `rewrite`: new bytes of chunks before they are written over the old ones (docs/format/store.md, "Chunk").
//!
//! ```text
//! rewrite := record*        record := segment u64, place u64, chunk
//!
//! written, kept by the disk --> room of the chunks reserved --> index, roll-up removed --> chunks written at their
//! places, kept --> rewrite removed
//! ```
//!
//! Killed before the first arrow no chunk was touched; killed later, [`finish`] writes them once more. A compressed chunk
//! may grow into the hole behind it, so it needs room. Where the disk has none, nothing is changed.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;

use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::chunk::{CHUNK_HEAD_LEN, CHUNK_LEN_MAX, ChunkHead, is_intact};
use crate::error::Error;
use crate::files;
use crate::index::rollup;
use crate::layout::{is_packed, named, remove, sync_directory};
use crate::walk::belongs;

/// Bytes of chunks that are written over together: some more are kept in memory while the last one is added.
pub(super) const BATCH_LEN: usize = 32 << 20;
/// The longest file that is read.
const FILE_LEN_MAX: u64 = (BATCH_LEN + 2 * CHUNK_LEN_MAX) as u64;

/// The new bytes of a chunk.
pub(super) struct Rewrite {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// Writes chunks over old ones, safe against a kill or a power failure at any moment. Index and roll-up of their
/// segments go before the first of them, and stay where the disk has no room for `rewrite` or for the chunks. `written`
/// is the number of chunks at their places, also after an error.
pub(super) fn replace(catalog: &Catalog, rewrites: &[Rewrite], written: &mut usize) -> Result<(), Error> {
    let path = catalog.paths.rewrite();
    remove(&path)?;
    let reserved = write(catalog, rewrites).map_err(Error::file("write", &path));
    let reserved = reserved.and_then(|()| rewrites.iter().try_for_each(|rewrite| rewrite.reserve(catalog)));
    if let Err(error) = reserved {
        // A part of the file would tell of an erasure that was killed, and take room of the disk.
        remove(&path)?;
        let wanted = rewrites.iter().map(|rewrite| rewrite.wanted(catalog)).sum();
        return Err(if error.is_full() { Error::NoRoomToErase { path, wanted } } else { error });
    }
    for rewrite in rewrites {
        rewrite.remove_index(catalog)?;
    }
    for rewrite in rewrites {
        rewrite.apply(catalog)?;
        *written += 1;
    }
    remove(&path)
}

/// Writes the file `rewrite`, and has the disk keep it.
fn write(catalog: &Catalog, rewrites: &[Rewrite]) -> io::Result<()> {
    let path = catalog.paths.rewrite();
    let mut file = files::make(&path)?;
    for Rewrite { segment, offset, bytes } in rewrites {
        file.write_all(&segment.to_le_bytes())?;
        file.write_all(&offset.to_le_bytes())?;
        file.write_all(bytes)?;
    }
    file.sync_all()?;
    sync_directory(&path)
}

/// Writes chunks once more that an erasure was writing when it was killed; gives how many. To be called with the lock.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn finish(catalog: &Catalog) -> Result<u64, Error> {
    let path = catalog.paths.rewrite();
    let mut file = match disk::open_regular(&path, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        file => file.map_err(Error::file("open", &path))?.take(FILE_LEN_MAX),
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(Error::file("read", &path))?;
    let mut done = 0;
    let mut rest = &bytes[..];
    // A record that is not whole was not yet kept by the disk: its chunk, and those after it, stand as they did.
    while let Some((rewrite, len)) = Rewrite::parse(catalog, rest) {
        rest = &rest[len..];
        if rewrite.is_missing(catalog) {
            rewrite.remove_index(catalog)?;
            rewrite.apply(catalog)?;
            done += 1;
        }
    }
    remove(&path)?;
    Ok(done)
}

impl Rewrite {
    /// The record that `bytes` begin with, if it is whole and of this store, and its length.
    fn parse(catalog: &Catalog, bytes: &[u8]) -> Option<(Rewrite, usize)> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (segment, offset) = (word(0)?, word(8)?);
        let head = ChunkHead::parse(bytes.get(16..)?)?;
        let chunk = bytes.get(16..16 + head.stored_len())?;
        let fits = head.erasure.is_some()
            && offset < catalog.segment_len()
            && belongs(&head, &catalog.id, segment, offset, catalog.segment_len())
            && is_intact(chunk, &head);
        fits.then(|| (Rewrite { segment, offset, bytes: chunk.to_vec() }, 16 + chunk.len()))
    }

    /// Whether the place of the chunk has neither this chunk nor one of the same number with at least as many packets
    /// erased.
    fn is_missing(&self, catalog: &Catalog) -> bool {
        let path = catalog.segment_path(self.segment);
        let Ok(file) = disk::open_regular(&path, OpenOptions::new().read(true)) else {
            // The segment was given up since.
            return false;
        };
        let Some(own) = ChunkHead::parse(&self.bytes) else { return false };
        let mut head = [0; CHUNK_HEAD_LEN];
        let there = file.read_exact_at(&mut head, self.offset).ok().and_then(|()| ChunkHead::parse(&head));
        let Some(there) = there.filter(|there| there.store == own.store && there.segment == own.segment)
        else {
            return true;
        };
        let mut chunk = vec![0; there.stored_len()];
        let is_read = file.read_exact_at(&mut chunk, self.offset).is_ok();
        let erased = |head: &ChunkHead| head.erasure.map_or(0, |erasure| erasure.packets);
        !(is_read && is_intact(&chunk, &there)) || there.number == own.number && erased(&there) < erased(&own)
    }

    /// Removes the index and the roll-up, which list the chunk before the erasure.
    fn remove_index(&self, catalog: &Catalog) -> Result<(), Error> {
        remove(&catalog.paths.roll_up(rollup::roll_up_of(self.segment)))?;
        remove(&catalog.paths.index(self.segment))
    }

    /// Bytes that the disk needs for it: in `rewrite`, and at most as many at the place of a compressed chunk.
    fn wanted(&self, catalog: &Catalog) -> u64 {
        let len = self.bytes.len() as u64;
        16 + if is_packed(&catalog.segment_path(self.segment)) { 2 * len } else { len }
    }

    /// Has the file system keep room for the chunk at its place. Those that cannot do that have no holes.
    fn reserve(&self, catalog: &Catalog) -> Result<(), Error> {
        let path = catalog.segment_path(self.segment);
        let of_file = Error::file("reserve room in", &path);
        let file = match disk::open_regular(&path, OpenOptions::new().write(true)) {
            Err(error) => return Err(of_file(error)),
            Ok(file) => file,
        };
        match disk::reserve_part(&file, self.offset..self.offset + self.bytes.len() as u64) {
            Err(error) if !error.is_unsupported() => Err(of_file(error.source)),
            _ => Ok(()),
        }
    }

    fn apply(&self, catalog: &Catalog) -> Result<(), Error> {
        let path = catalog.segment_path(self.segment);
        let write = || {
            let file = disk::open_regular(&path, OpenOptions::new().read(true).write(true))?;
            file.write_all_at(&self.bytes, self.offset)?;
            file.sync_data()
        };
        write().map_err(|source| Error::ErasureStopped { path: named(&path), source })
    }
}

/// Whether an erasure was killed while it wrote.
pub(crate) fn is_left(catalog: &Catalog) -> bool {
    fs::symlink_metadata(catalog.paths.rewrite()).is_ok()
}
