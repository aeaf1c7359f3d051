//! Numbers and names of the layout (docs/format/store.md).

use std::path::{Path, PathBuf};
use std::{fs, io};

use tapline_file::blocks;

use crate::error::Error;

/// Bytes of a slot: where chunks begin, and the unit of the index.
pub const SLOT_LEN: usize = 1 << 20;
/// Chunks are multiples of this.
pub(crate) const PAGE_LEN: usize = 4096;
/// Bytes of a segment unless told otherwise.
pub const SEGMENT_LEN_DEFAULT: u64 = 1 << 30;
/// The shortest segment.
pub const SEGMENT_LEN_MIN: u64 = 4 << 20;
/// The longest segment: offsets of pages have 32 bits, slots 16.
pub const SEGMENT_LEN_MAX: u64 = 4 << 30;

/// The version of the layout in `store.toml` and in chunks.
pub(crate) const VERSION: u16 = 1;
/// Our blocks among those for local use.
pub(crate) const BLOCK_KIND: u32 = 0x5450_4c4e;

/// The highest number of a segment or a chunk: higher ones are not believed, so that counting on is always possible.
pub(crate) const NUMBER_MAX: u64 = 1 << 60;

/// The highest number that the newest segment may have when a recording begins. 2^32 numbers stay for its segments.
pub(crate) const NUMBER_BEGIN_MAX: u64 = NUMBER_MAX - (1 << 32);

/// How the data of a gap begin.
const GAP_MAGIC: [u8; 8] = *b"TAPLSKIP";

/// How the data of a filler begin.
pub(crate) const FILLER_MAGIC: [u8; 8] = *b"TAPLFILL";

/// A store's id.
pub(crate) type StoreId = [u8; 16];

/// Where the parts of a store lie.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    root: PathBuf,
}

impl Paths {
    pub(crate) fn new(root: &Path) -> Paths {
        Paths { root: root.to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn description(&self) -> PathBuf {
        self.root.join("store.toml")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    pub(crate) fn holds(&self) -> PathBuf {
        self.root.join("holds")
    }

    pub(crate) fn rewrite(&self) -> PathBuf {
        self.root.join("rewrite")
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    pub(crate) fn roll_ups(&self) -> PathBuf {
        self.root.join("roll")
    }

    pub(crate) fn roll_up(&self, number: u64) -> PathBuf {
        self.roll_ups().join(format!("{number:08}.tir"))
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.root.join("seg")
    }

    pub(crate) fn segment(&self, number: u64) -> PathBuf {
        self.segments().join(format!("{number:08}.pcapng"))
    }

    pub(crate) fn index(&self, number: u64) -> PathBuf {
        self.segments().join(format!("{number:08}.tix"))
    }
}

/// The number in a segment's file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".pcapng")?;
    let is_canonical = digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_canonical)?;
    (format!("{number:08}") == digits && (1..=NUMBER_MAX).contains(&number)).then_some(number)
}

/// Has the disk keep the names in the directory of a file: that a file was made, renamed or removed.
pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
}

/// Removes a file that may be there. One that came back after a power failure would hide what is written from now on.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
        Ok(()) => sync_directory(path).map_err(Error::file("remove", path)),
        Err(_) => Ok(()),
    }
}

/// A block of `len` bytes that says nothing.
pub(crate) fn filler(len: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(len);
    let mut data = vec![0; len - blocks::BLOCK_OVERHEAD];
    data[..FILLER_MAGIC.len()].copy_from_slice(&FILLER_MAGIC);
    blocks::local(&mut block, BLOCK_KIND, &data);
    block
}

/// The first bytes and the last four of a gap of `len` bytes, a multiple of a page; those between have no meaning.
pub(crate) fn gap(len: usize) -> ([u8; 32], [u8; 4]) {
    let mut head = [0; 32];
    let len = (len as u32).to_ne_bytes();
    head[..4].copy_from_slice(&(blocks::LOCAL | BLOCK_KIND).to_ne_bytes());
    head[4..8].copy_from_slice(&len);
    head[8..16].copy_from_slice(&GAP_MAGIC);
    (head, len)
}

/// The length of the filler that begins here, if one does.
pub(crate) fn filler_len(bytes: &[u8]) -> Option<usize> {
    block_len(bytes, FILLER_MAGIC)
}

/// The length of the gap that begins here, if one does.
pub(crate) fn gap_len(bytes: &[u8]) -> Option<usize> {
    block_len(bytes, GAP_MAGIC)
}

fn block_len(bytes: &[u8], magic: [u8; 8]) -> Option<usize> {
    let number = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let is_filler = number(0)? == blocks::LOCAL | BLOCK_KIND && bytes.get(8..16)? == magic;
    number(4).filter(|_| is_filler).map(|len| len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_names_are_canonical() {
        for (name, number) in [
            ("00000001.pcapng", Some(1)),
            ("123456789.pcapng", Some(123_456_789)),
            ("00000000.pcapng", None),
            ("1.pcapng", None),
            ("000000001.pcapng", None),
            ("00000001.tix", None),
            ("0000000x.pcapng", None),
        ] {
            assert_eq!(segment_number(name), number, "{name}");
        }
    }

    #[test]
    fn a_filler_says_its_length() {
        for len in [PAGE_LEN, SLOT_LEN] {
            let block = filler(len);
            assert_eq!((block.len(), filler_len(&block)), (len, Some(len)));
        }
        assert_eq!(filler_len(&[0; 64]), None);
        assert_eq!(filler_len(&filler(64)[..15]), None);
    }
}
