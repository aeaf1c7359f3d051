//! The directory of a store: its description, its segments.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::error::Error;
use crate::index::Index;
use crate::keys::WAYS;
use crate::layout::{
    Paths, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SLOT_LEN, StoreId, VERSION, segment_number, sync_directory,
};

/// The most bytes of `store.toml` that are read.
const DESCRIPTION_LEN_MAX: u64 = 4096;

/// A store as it lies, opened for reading.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) paths: Paths,
    pub(crate) id: StoreId,
    pub(crate) segment_len: u64,
}

/// `store.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    version: u16,
    id: String,
    segment: u64,
}

/// A segment of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Its number: segments ascend in the order of recording.
    pub number: u64,
    /// Bytes reserved for it.
    pub len: u64,
    /// What its index says; `None` while it is recorded, after a crash, or if the index is damaged.
    pub standing: Option<Standing>,
}

/// What the index of a sealed segment says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The least time of its packets.
    pub first: Timestamp,
    /// The greatest time of its packets.
    pub last: Timestamp,
    /// Packets.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Packets lost before the recorder.
    pub lost: u64,
    /// Packets that the recorder lost.
    pub dropped: u64,
    /// Bytes of the index.
    pub index_len: u64,
    /// Slots in which chunks are.
    pub slots: u32,
    /// Slots of which not all facts are in the index, by [`Way`](crate::Way).
    pub open: [u32; WAYS],
    /// Packets that were left out by wish.
    pub cut: u64,
    /// Chunks of which packets were erased.
    pub erased: u32,
}

impl Catalog {
    /// Opens the store in a directory.
    ///
    /// # Errors
    /// [`Error::NoStore`], [`Error::Description`], [`Error::File`].
    pub fn open(root: &Path) -> Result<Catalog, Error> {
        let paths = Paths::new(root);
        let path = paths.description();
        let text = match read_description(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(Error::NoStore { path: root.to_owned() });
            }
            text => text.map_err(Error::file("read", &path))?,
        };
        let refused = |reason: String| Error::Description { path: path.clone(), reason };
        let description: Description = toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
        if description.version != VERSION {
            return Err(refused(format!(
                "this is version {} of the store's layout; {VERSION} can be read",
                description.version
            )));
        }
        let id = parse_id(&description.id)
            .ok_or_else(|| refused("the id is not 32 hexadecimal digits".to_owned()))?;
        check_segment_len(description.segment).map_err(refused)?;
        Ok(Catalog { paths, id, segment_len: description.segment })
    }

    /// Makes a store in a directory that has none, but has the directory of segments.
    pub(crate) fn create(root: &Path, segment_len: u64) -> Result<Catalog, Error> {
        check_segment_len(segment_len).map_err(Error::Setting)?;
        let paths = Paths::new(root);
        let id = random_id()?;
        let path = paths.description();
        let text = format!("version = {VERSION}\nid = \"{}\"\nsegment = {segment_len}\n", hexadecimal(&id));
        let part = path.with_extension("toml.part");
        let write = || -> io::Result<()> {
            match fs::remove_file(&part) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = fs::File::create_new(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            sync_directory(&path)
        };
        write().map_err(Error::file("write", &path))?;
        Ok(Catalog { paths, id, segment_len })
    }

    /// The store's directory.
    pub fn root(&self) -> &Path {
        self.paths.root()
    }

    /// The store's id.
    pub fn id(&self) -> String {
        hexadecimal(&self.id)
    }

    /// Bytes of a segment.
    pub fn segment_len(&self) -> u64 {
        self.segment_len
    }

    /// Numbers of its segments, ascending.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn numbers(&self) -> Result<Vec<u64>, Error> {
        let folder = self.paths.segments();
        let entries = fs::read_dir(&folder).map_err(Error::file("read", &folder))?;
        let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
        let mut numbers: Vec<u64> =
            entries.flatten().filter_map(name).filter_map(|name| segment_number(&name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Its segments, in the order of recording.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn segments(&self) -> Result<Vec<SegmentEntry>, Error> {
        let entry = |number: u64| {
            let len = fs::metadata(self.paths.segment(number)).map_or(0, |metadata| metadata.len());
            SegmentEntry { number, len, standing: self.index(number).map(|index| standing(&index)) }
        };
        Ok(self.numbers()?.into_iter().map(entry).collect())
    }

    /// Whether a recorder writes to it now.
    pub fn is_recorded(&self) -> bool {
        let lock = disk::open_regular(&self.paths.lock(), OpenOptions::new().read(true));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }

    pub(crate) fn index(&self, number: u64) -> Option<Index> {
        Index::read(&self.paths.index(number), &self.id, number)
    }

    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.paths.segment(number)
    }
}

/// The text of `store.toml`, which is short.
fn read_description(path: &Path) -> io::Result<String> {
    let file = disk::open_regular(path, OpenOptions::new().read(true))?;
    let mut text = String::new();
    file.take(DESCRIPTION_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn standing(index: &Index) -> Standing {
    let summary = &index.summary;
    Standing {
        first: summary.first,
        last: summary.last,
        packets: summary.packets,
        bytes: summary.bytes,
        lost: summary.lost,
        dropped: summary.dropped,
        index_len: index.len(),
        slots: summary.slots,
        open: summary.open,
        cut: summary.cut,
        erased: summary.erased,
    }
}

pub(crate) fn check_segment_len(len: u64) -> Result<(), String> {
    let fits = (SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&len) && len.is_multiple_of(SLOT_LEN as u64);
    match fits {
        true => Ok(()),
        false => Err(format!("a segment of {len} bytes: it has 4 MiB to 4 GiB, in whole MiB")),
    }
}

fn random_id() -> Result<StoreId, Error> {
    let path = Path::new("/dev/urandom");
    let mut id = StoreId::default();
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut id));
    read.map_err(Error::file("read", path))?;
    Ok(id)
}

fn hexadecimal(id: &StoreId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_id(text: &str) -> Option<StoreId> {
    let mut id = StoreId::default();
    let is_hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (byte, at) in id.iter_mut().zip((0..32).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    is_hexadecimal.then_some(id)
}
