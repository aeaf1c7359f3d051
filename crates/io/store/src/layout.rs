//! Numbers and names of the layout (docs/format/store.md).

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use tapline_file::blocks;
use tapline_sys::{Folder, output_file, privilege};

use crate::error::Error;
use crate::files;

/// Bytes of a slot: where chunks begin, and the unit of the index.
pub const SLOT_LEN: usize = 1 << 20;
/// Chunks are multiples of this.
pub(crate) const PAGE_LEN: usize = 4096;
/// Default length of a segment in bytes.
pub const SEGMENT_LEN_DEFAULT: u64 = 1 << 30;
/// The shortest segment.
pub const SEGMENT_LEN_MIN: u64 = 4 << 20;
/// The longest segment: offsets of pages have 32 bits, slots 16.
pub const SEGMENT_LEN_MAX: u64 = 4 << 30;

/// The version of the layout in `store.toml` and in chunks.
pub(crate) const VERSION: u16 = 1;
/// The version in `store.toml` of a store whose chunks may be compressed.
pub(crate) const PACKED_VERSION: u16 = 2;
/// Our blocks among those for local use.
pub(crate) const BLOCK_KIND: u32 = 0x5450_4c4e;

/// The highest number of a segment or a chunk: higher ones are not believed, so that counting on is always possible.
pub(crate) const NUMBER_MAX: u64 = 1 << 60;

/// The highest number that the newest segment may have when a recording begins. 2^32 numbers stay for its segments.
pub(crate) const NUMBER_BEGIN_MAX: u64 = NUMBER_MAX - (1 << 32);

/// The magic number of a frame that decoders of zstd pass over (RFC 8878, 3.1.2).
pub(crate) const SKIPPABLE: u32 = 0x184D_2A50;
/// Bytes of such a frame before its data: the magic number and the length.
pub(crate) const FRAME_HEADER_LEN: usize = 8;

const GAP_MAGIC: [u8; 8] = *b"TAPLSKIP";

pub(crate) const FILLER_MAGIC: [u8; 8] = *b"TAPLFILL";

/// A store's id.
pub(crate) type StoreId = [u8; 16];

/// Where the parts of a store lie. Root opens the directories within it once, without following links: their owner may
/// be another user, who could put a link to any directory in their place at any time.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    root: PathBuf,
    /// `None` if links are followed: not by root.
    folders: Option<Arc<OpenFolders>>,
}

/// Directories that are open, from when they are needed on.
#[derive(Debug, Default)]
struct OpenFolders {
    segments: OnceLock<Folder>,
    roll_ups: OnceLock<Folder>,
}

/// The name of the directory of segments.
pub(crate) const SEGMENTS: &str = "seg";
/// The name of the directory of roll-ups.
pub(crate) const ROLL_UPS: &str = "roll";
/// Ending of the name of a segment whose chunks are not compressed.
const PLAIN: &str = ".pcapng";
/// Ending of the name of a segment whose chunks are compressed.
const PACKED: &str = ".pcapng.zst";
/// A path that leads nowhere.
const NOWHERE: &str = "/proc/self/fd/none";
/// Where descriptors have names.
const DESCRIPTORS: &str = "/proc/self/fd";

impl Paths {
    pub(crate) fn new(root: &Path) -> Paths {
        let is_pinned = privilege::is_root() && !output_file::follows_links();
        Paths { root: root.to_owned(), folders: is_pinned.then(Arc::default) }
    }

    /// Makes a directory of the store that is missing.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Description`] if root finds a link in its place.
    pub(crate) fn make(&self, name: &str) -> Result<(), Error> {
        let path = self.root.join(name);
        files::make_folder(&path).map_err(Error::file("make", &path))?;
        self.check_links()
    }

    /// As root, checks that no directory of the store is a symbolic link.
    ///
    /// # Errors [`Error::Description`].
    pub(crate) fn check_links(&self) -> Result<(), Error> {
        let linked = [SEGMENTS, ROLL_UPS].into_iter().map(|name| self.root.join(name));
        match linked.filter(|_| self.folders.is_some()).find(|path| path.is_symlink()) {
            Some(path) => {
                let reason =
                    "it is a link, and root follows none within a store: put the directory in its place";
                Err(Error::Description { path, reason: reason.to_owned() })
            }
            None => Ok(()),
        }
    }

    /// A directory of the store, by its descriptor if links are not followed.
    fn folder(&self, name: &str, of: fn(&OpenFolders) -> &OnceLock<Folder>) -> PathBuf {
        let path = self.root.join(name);
        let Some(place) = self.folders.as_deref().map(of) else { return path };
        if place.get().is_none()
            && let Ok(folder) = Folder::open_no_link(&path)
        {
            // Of two threads one was first.
            let _ = place.set(folder);
        }
        place.get().map_or_else(|| NOWHERE.into(), |folder| folder.path_of("".as_ref()))
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

    pub(crate) fn recordings(&self) -> PathBuf {
        self.root.join("recordings")
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
        self.folder(ROLL_UPS, |folders| &folders.roll_ups)
    }

    pub(crate) fn roll_up(&self, number: u64) -> PathBuf {
        self.roll_ups().join(format!("{number:08}.tir"))
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.folder(SEGMENTS, |folders| &folders.segments)
    }

    /// The file of a segment whose chunks are compressed, or are not.
    pub(crate) fn segment_as(&self, number: u64, is_packed: bool) -> PathBuf {
        let ending = if is_packed { PACKED } else { PLAIN };
        self.segments().join(format!("{number:08}{ending}"))
    }

    pub(crate) fn index(&self, number: u64) -> PathBuf {
        self.segments().join(format!("{number:08}.tix"))
    }
}

/// A path as people know it: without a descriptor's name.
pub(crate) fn named(path: &Path) -> PathBuf {
    let Ok(rest) = path.strip_prefix(DESCRIPTORS) else { return path.to_owned() };
    let mut parts = rest.components();
    let folder = parts.next().and_then(|number| fs::read_link(Path::new(DESCRIPTORS).join(number)).ok());
    folder.map_or_else(|| path.to_owned(), |folder| folder.join(parts.as_path()))
}

/// The number in a segment's file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(PLAIN).or_else(|| name.strip_suffix(PACKED))?;
    let is_canonical = digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_canonical)?;
    (format!("{number:08}") == digits && (1..=NUMBER_MAX).contains(&number)).then_some(number)
}

/// Whether the chunks of a segment are compressed, by the name of its file.
pub(crate) fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "zst")
}

/// Has the disk keep the names in the directory of a file: that a file was made, renamed or removed.
pub(crate) fn sync_directory(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
}

/// Removes a file that may be there. One that came back after a power failure would hide files that are written from
/// now on.
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

/// The first bytes of a skippable frame of `len` bytes with this magic; those behind have no meaning.
fn frame(len: usize, magic: [u8; 8]) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&SKIPPABLE.to_le_bytes());
    head[4..8].copy_from_slice(&((len - FRAME_HEADER_LEN) as u32).to_le_bytes());
    head[8..].copy_from_slice(&magic);
    head
}

/// The first page of a filler of `len` bytes in a segment whose chunks are compressed.
pub(crate) fn filler_frame(len: usize) -> Vec<u8> {
    let mut page = vec![0; PAGE_LEN];
    page[..16].copy_from_slice(&frame(len, FILLER_MAGIC));
    page
}

/// As [`gap`], in a segment whose chunks are compressed.
pub(crate) fn gap_frame(len: usize) -> [u8; 16] {
    frame(len, GAP_MAGIC)
}

/// The length of the filler that begins here, if one does.
pub(crate) fn filler_len(bytes: &[u8]) -> Option<usize> {
    block_len(bytes, FILLER_MAGIC)
}

/// Whether a filler begins at this offset of a slot behind which the slot has no chunk.
pub(crate) fn fills_slot(bytes: &[u8], in_slot: usize) -> bool {
    let is_frame = bytes.get(..4) == Some(&SKIPPABLE.to_le_bytes()[..]);
    let fills = |len| len == PAGE_LEN || is_frame && in_slot + len == SLOT_LEN;
    filler_len(bytes).is_some_and(fills)
}

/// The length of the gap that begins here, if one does.
pub(crate) fn gap_len(bytes: &[u8]) -> Option<usize> {
    block_len(bytes, GAP_MAGIC)
}

/// The length of a block or a skippable frame with this magic.
fn block_len(bytes: &[u8], magic: [u8; 8]) -> Option<usize> {
    let number = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let (kind, len) = (number(0)?, number(4)? as usize);
    let is_ours = bytes.get(8..16)? == magic;
    match kind {
        _ if !is_ours => None,
        SKIPPABLE => Some(len.saturating_add(FRAME_HEADER_LEN)),
        kind if kind == blocks::LOCAL | BLOCK_KIND => Some(len),
        _ => None,
    }
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
            ("00000001.pcapng.zst", Some(1)),
            ("00000001.zst", None),
            ("00000001.pcapng.zst.zst", None),
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
        for len in [PAGE_LEN, 5 * PAGE_LEN, SLOT_LEN] {
            let page = filler_frame(len);
            assert_eq!((page.len(), filler_len(&page), gap_len(&page)), (PAGE_LEN, Some(len), None));
            assert_eq!(gap_len(&gap_frame(len)), Some(len));
        }
        assert!(fills_slot(&filler(PAGE_LEN), PAGE_LEN) && !fills_slot(&filler(2 * PAGE_LEN), PAGE_LEN));
        assert!(fills_slot(&filler_frame(5 * PAGE_LEN), SLOT_LEN - 5 * PAGE_LEN));
        assert!(!fills_slot(&filler_frame(5 * PAGE_LEN), SLOT_LEN - 6 * PAGE_LEN));
        assert_eq!(filler_len(&[0; 64]), None);
        assert_eq!(filler_len(&filler(64)[..15]), None);
    }
}
