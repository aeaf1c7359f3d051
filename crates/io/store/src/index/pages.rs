//! Files in pages, each with its own checksum (docs/format/store.md, "Pages of an index"): a part of a file is read and
//! believed without the rest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tapline_sys::disk;

use crate::error::Error;
use crate::files;
use crate::layout::{PAGE_LEN, StoreId, sync_directory};

/// Bytes of a page that are content.
const CONTENT_LEN: usize = PAGE_LEN - 4;
/// More than any index or roll-up needs: what claims to be longer is not read.
const LEN_MAX: u64 = 256 << 20;

/// Owner of the pages: the store's id, and the number of the segment or roll-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) store: StoreId,
    pub(crate) number: u64,
}

impl Owner {
    fn checksum(&self, page: u64, content: &[u8]) -> u32 {
        let of_store = crc32c::crc32c(&self.store);
        let of_number = crc32c::crc32c_append(of_store, &self.number.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(of_number, &page.to_le_bytes()), content)
    }

    /// Gives altered pages new checksums, as another program might.
    #[cfg(test)]
    pub(crate) fn reseal(&self, pages: &mut [u8]) {
        for (number, page) in (0..).zip(pages.as_chunks_mut::<PAGE_LEN>().0) {
            let checksum = self.checksum(number, &page[..CONTENT_LEN]);
            page[CONTENT_LEN..].copy_from_slice(&checksum.to_le_bytes());
        }
    }

    fn pages(&self, content: &[u8]) -> Vec<u8> {
        let mut pages = Vec::with_capacity(content.len().div_ceil(CONTENT_LEN) * PAGE_LEN);
        for (number, part) in content.chunks(CONTENT_LEN).enumerate() {
            let from = pages.len();
            pages.extend_from_slice(part);
            pages.resize(from + CONTENT_LEN, 0);
            let checksum = self.checksum(number as u64, &pages[from..]);
            pages.extend_from_slice(&checksum.to_le_bytes());
        }
        pages
    }
}

/// Writes content as a file of pages: under another name first, so that a file of this name is whole. Gives the file's
/// length.
///
/// # Errors
/// [`Error::File`].
pub(crate) fn write(path: &Path, owner: &Owner, content: &[u8]) -> Result<u64, Error> {
    let pages = owner.pages(content);
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = Path::new(&part);
    let write = || -> io::Result<()> {
        // Whatever has the name is not this file: a link could lead anywhere.
        match fs::remove_file(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = files::make(part)?;
        file.write_all(&pages)?;
        file.sync_data()?;
        fs::rename(part, path)?;
        sync_directory(path)
    };
    write().map_err(Error::file("write", path))?;
    Ok(pages.len() as u64)
}

/// A file of pages that is open for reading.
#[derive(Debug)]
pub(crate) struct Pages {
    file: File,
    owner: Owner,
    len: u64,
    /// Bytes that were read.
    read: AtomicU64,
}

impl Pages {
    /// Opens a file of pages; `None` if there is none, or none that such a file can be.
    pub(crate) fn open(path: &Path, owner: Owner) -> Option<Pages> {
        let file = disk::open_regular(path, OpenOptions::new().read(true)).ok()?;
        let len = file.metadata().ok()?.len();
        let fits = len > 0 && len <= LEN_MAX && len.is_multiple_of(PAGE_LEN as u64);
        fits.then(|| Pages { file, owner, len, read: AtomicU64::new(0) })
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of it that were read so far.
    pub(crate) fn read_len(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Whether content of this length makes a file as long as this one.
    pub(crate) fn is_of(&self, content_len: u64) -> bool {
        content_len.div_ceil(CONTENT_LEN as u64) * PAGE_LEN as u64 == self.len
    }

    /// The content at a place; `None` if it is beyond the file's end, or its pages are not as they were written.
    pub(crate) fn read(&self, place: Range<u64>) -> Option<Vec<u8>> {
        let content_len = CONTENT_LEN as u64;
        if place.is_empty() {
            return (place.start == place.end).then(Vec::new);
        }
        let (first, end) = (place.start / content_len, place.end.div_ceil(content_len));
        if end > self.len / PAGE_LEN as u64 {
            return None;
        }
        let mut pages = vec![0; (end - first) as usize * PAGE_LEN];
        self.file.read_exact_at(&mut pages, first * PAGE_LEN as u64).ok()?;
        self.read.fetch_add(pages.len() as u64, Ordering::Relaxed);
        let mut content = Vec::with_capacity(pages.len());
        for (number, page) in (first..).zip(pages.as_chunks::<PAGE_LEN>().0) {
            let (part, checksum) = page.split_last_chunk::<4>()?;
            if self.owner.checksum(number, part) != u32::from_le_bytes(*checksum) {
                return None;
            }
            content.extend_from_slice(part);
        }
        let from = (place.start - first * content_len) as usize;
        content.truncate(from + (place.end - place.start) as usize);
        content.drain(..from);
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { store: [7; 16], number: 3 };

    #[test]
    fn a_part_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000003.tix");
        let content: Vec<u8> = (0..10_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let len = write(&path, &OWNER, &content).unwrap();
        assert_eq!(len, 3 * PAGE_LEN as u64);
        let pages = Pages::open(&path, OWNER).unwrap();
        for place in [0..10, 4090..4095, 0..10_000, 9_999..10_000, 500..500] {
            let expected = &content[place.start as usize..place.end as usize];
            assert_eq!(pages.read(place.clone()).as_deref(), Some(expected), "{place:?}");
        }
        assert_eq!(pages.read(12_270..12_280), None);
        assert!(pages.is_of(10_000) && !pages.is_of(4_000));
    }

    #[test]
    fn a_page_that_was_altered_or_moved_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000003.tix");
        write(&path, &OWNER, &[9; 9_000]).unwrap();
        let good = fs::read(&path).unwrap();
        let read = |bytes: &[u8], owner| {
            fs::write(&path, bytes).unwrap();
            let pages = Pages::open(&path, owner)?;
            Some([pages.read(0..10).is_some(), pages.read(5_000..5_010).is_some()])
        };
        assert_eq!(read(&good, OWNER), Some([true, true]));
        assert_eq!(read(&good, Owner { number: 4, ..OWNER }), Some([false, false]));
        let mut bad = good.clone();
        bad[5_000] ^= 1;
        assert_eq!(read(&bad, OWNER), Some([true, false]));
        let mut moved = good.clone();
        moved.copy_within(..PAGE_LEN, PAGE_LEN);
        assert_eq!(read(&moved, OWNER), Some([true, false]));
        assert_eq!(read(&good[..good.len() - 1], OWNER), None);
    }
}
