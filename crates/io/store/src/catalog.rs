//! The directory of a store: `store.toml` and the list of segments.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tapline_packet::Timestamp;
use tapline_sys::disk;

use crate::chunk::{CHUNK_HEAD_LEN, ChunkHead};
use crate::error::Error;
use crate::files;
use crate::index::{Contents, Index, Summary};
use crate::keys::WAYS;
use crate::layout::{
    PACKED_VERSION, Paths, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN, SLOT_LEN, StoreId, VERSION, is_packed,
    segment_number, sync_directory,
};
use crate::log::history;
use crate::walk::{FoundChunk, Walk};

/// Segments without an index whose heads are read for their totals, at most.
const WALKED_MAX: u32 = 64;

/// Bytes of `store.toml` that are read at most.
const DESCRIPTION_LEN_MAX: u64 = 4096;

/// A store opened for reading. No lock is taken: a recorder may add and recycle segments meanwhile.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) paths: Paths,
    pub(crate) id: StoreId,
    pub(crate) segment_len: u64,
    /// The version of its layout.
    version: u16,
}

/// The content of `store.toml`.
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
    /// The number in the file's name, from 1 on: ascending in the order of recording, never used twice.
    pub number: u64,
    /// Length of the file in bytes; 0 if the file cannot be looked up (recycled meanwhile).
    pub len: u64,
    /// Bytes that the file takes on the disk, if its chunks are compressed.
    pub packed_len: Option<u64>,
    /// The totals in its index; `None` if the index is missing (segment not sealed yet, `--no-index`, crash of the
    /// recorder) or damaged.
    pub standing: Option<Standing>,
    /// Without an index: the totals by the heads of its chunks, for the newest of such segments. What heads say is not
    /// verified.
    pub walked: Option<Standing>,
    /// Chunks that it had when it was sealed and that are gone, by the log, and its index or the heads of its chunks;
    /// `None` if one of both is unknown.
    pub chunks_missing: Option<u64>,
}

/// Totals of a segment, from the head of its index. Packets lost behind the last chunk of a recording count with the
/// segment that it ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The earliest timestamp of its packets.
    pub first: Timestamp,
    /// The latest timestamp of its packets.
    pub last: Timestamp,
    /// Packets in the segment.
    pub packets: u64,
    /// Captured bytes of these packets, without headers of blocks.
    pub bytes: u64,
    /// Packets lost before they reached the recorder: by adapter, driver or kernel.
    pub lost: u64,
    /// Packets that the recorder took and could not write.
    pub dropped: u64,
    /// Length of the index in bytes.
    pub index_len: u64,
    /// Slots of 1 MiB in the index, up to the last one with a chunk.
    pub slots: u32,
    /// Slots whose keys are not all in the index, by the number of the [`OpenKeys`](crate::OpenKeys): searches for such
    /// keys read these slots.
    pub open: [u32; WAYS],
    /// Packets not recorded because their flow had reached its [`Cutoff`](crate::Cutoff).
    pub cut: u64,
    /// Packets of `dropped` that were dropped under overload, by policy in the order of
    /// [`Overload::LOSING`](crate::Overload::LOSING).
    pub overload: [u64; 3],
    /// Chunks from which packets were erased.
    pub erased: u32,
}

impl Catalog {
    /// Opens the store in a directory.
    ///
    /// # Errors
    /// [`Error::NoStore`] if the directory has no `store.toml`; [`Error::Description`] if that file is not valid, of
    /// another version, or of another store than the oldest and the newest segment; [`Error::File`] if it cannot be
    /// read.
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
        if ![VERSION, PACKED_VERSION].contains(&description.version) {
            return Err(refused(format!(
                "this is version {} of the store's layout; {VERSION} and {PACKED_VERSION} can be read",
                description.version
            )));
        }
        let id = parse_id(&description.id)
            .ok_or_else(|| refused("the id is not 32 hexadecimal digits".to_owned()))?;
        check_segment_len(description.segment).map_err(refused)?;
        let (version, segment_len) = (description.version, description.segment);
        let catalog = Catalog { paths, id, segment_len, version };
        catalog.paths.check_links()?;
        catalog.check_id().map_err(refused)?;
        Ok(catalog)
    }

    /// Writes `store.toml` in a directory that has none. The caller has made the directory `seg/`.
    pub(crate) fn create(root: &Path, segment_len: u64) -> Result<Catalog, Error> {
        check_segment_len(segment_len).map_err(Error::Setting)?;
        let paths = Paths::new(root);
        let id = random_id()?;
        let path = paths.description();
        let catalog = Catalog { paths, id, segment_len, version: VERSION };
        catalog.check_unused().map_err(|reason| Error::Description { path, reason })?;
        catalog.describe(catalog.version)?;
        Ok(catalog)
    }

    /// Says in `store.toml` that chunks may be compressed: versions of the program that cannot read them refuse the
    /// store, and do not take their segments for missing ones.
    pub(crate) fn allow_packed(&self) -> Result<(), Error> {
        if self.allows_packed() { Ok(()) } else { self.describe(PACKED_VERSION) }
    }

    /// Whether chunks were compressed here before.
    pub(crate) fn allows_packed(&self) -> bool {
        self.version == PACKED_VERSION
    }

    /// Writes `store.toml`.
    fn describe(&self, version: u16) -> Result<(), Error> {
        let (path, segment_len) = (self.paths.description(), self.segment_len);
        let text = format!("version = {version}\nid = \"{}\"\nsegment = {segment_len}\n", self.id());
        let part = path.with_extension("toml.part");
        let write = || -> io::Result<()> {
            match fs::remove_file(&part) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = files::make(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            sync_directory(&path)
        };
        write().map_err(Error::file("write", &path))
    }

    /// Checks that a directory without `store.toml` has no segments: a new store would take them for its own and
    /// overwrite them.
    fn check_unused(&self) -> Result<(), String> {
        let numbers = self.numbers().map_err(|error| error.to_string())?;
        let Some(id) = numbers.iter().find_map(|number| self.id_in(*number)) else { return Ok(()) };
        let is_packed = numbers.iter().any(|number| is_packed(&self.segment_path(*number)));
        let len = numbers.iter().find_map(|number| fs::metadata(self.segment_path(*number)).ok());
        Err(format!(
            "it is missing, but there are {} segments of the store {}: write a file with the lines version = {}, \
             id = \"{}\", segment = {}",
            numbers.len(),
            hexadecimal(&id),
            if is_packed { PACKED_VERSION } else { VERSION },
            hexadecimal(&id),
            len.map_or(0, |len| len.len())
        ))
    }

    /// Checks the id against those in the oldest and the newest segment: with the `store.toml` of another store, as
    /// after a backup was restored to the wrong directory, no chunk would fit and no packet would be found.
    fn check_id(&self) -> Result<(), String> {
        let numbers = self.numbers().unwrap_or_default();
        let ends = [numbers.first(), numbers.last()];
        let ids: Vec<StoreId> = ends.into_iter().flatten().filter_map(|number| self.id_in(*number)).collect();
        match ids.first() {
            Some(other) if !ids.contains(&self.id) => Err(format!(
                "it is of the store {}, but the segments are of {}: put the right file back, or write id = \"{}\" in it",
                self.id(),
                hexadecimal(other),
                hexadecimal(other)
            )),
            _ => Ok(()),
        }
    }

    /// The id in the first chunk of a segment.
    fn id_in(&self, number: u64) -> Option<StoreId> {
        let file = disk::open_regular(&self.segment_path(number), OpenOptions::new().read(true)).ok()?;
        let mut head = [0; CHUNK_HEAD_LEN];
        file.read_exact_at(&mut head, 0).ok()?;
        ChunkHead::parse(&head).map(|head| head.store)
    }

    /// The store's directory.
    pub fn root(&self) -> &Path {
        self.paths.root()
    }

    /// The store's id: 32 hexadecimal digits, chosen at random when the store was made.
    pub fn id(&self) -> String {
        hexadecimal(&self.id)
    }

    /// Length of each segment in bytes, 4 MiB to 4 GiB.
    pub fn segment_len(&self) -> u64 {
        self.segment_len
    }

    /// Numbers of the segments, ascending.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn numbers(&self) -> Result<Vec<u64>, Error> {
        let mut numbers = self.files()?;
        numbers.dedup();
        Ok(numbers)
    }

    /// Segments that have two files, of which only one is read.
    pub(crate) fn doubled(&self) -> Result<Vec<u64>, Error> {
        let files = self.files()?;
        Ok(files.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect())
    }

    /// The number of each file of a segment, ascending.
    fn files(&self) -> Result<Vec<u64>, Error> {
        let folder = self.paths.segments();
        let entries = fs::read_dir(&folder).map_err(Error::file("read", &folder))?;
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry.map_err(Error::file("read", &folder))?.file_name();
            numbers.extend(name.to_str().and_then(segment_number));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The segments in the order of recording, with the totals of their indexes.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn segments(&self) -> Result<Vec<SegmentEntry>, Error> {
        let mut walks_left = WALKED_MAX;
        let history = history(&self.paths);
        let mut entry = |number: u64| {
            let path = self.segment_path(number);
            let about = fs::metadata(&path).ok();
            let len = about.as_ref().map_or(0, fs::Metadata::len);
            let packed_len = about.filter(|_| is_packed(&path)).map(|about| disk::room_of(&about));
            let had = history.sealed.get(&number).map(|sealed| sealed.chunks);
            let index = self.index(number);
            let walked = if index.is_none() && walks_left > 0 {
                walks_left -= 1;
                self.walked(number, had.unwrap_or(0))
            } else {
                None
            };
            let chunks = index.as_ref().map(|index| &index.summary).or(walked.as_ref()).map(|has| has.chunks);
            let chunks_missing = had.zip(chunks).map(|(had, has)| had.saturating_sub(has.into()));
            let standing = index.map(|index| totals(&index.summary, index.len()));
            let walked = walked.filter(|has| has.chunks > 0).map(|has| totals(&has, 0));
            SegmentEntry { number, len, packed_len, standing, walked, chunks_missing }
        };
        // The newest ones are walked.
        let mut entries: Vec<SegmentEntry> = self.numbers()?.into_iter().rev().map(&mut entry).collect();
        entries.reverse();
        for rest in self.recordings().into_iter().map(|recording| recording.rest) {
            let of = |entry: &SegmentEntry| entry.number.cmp(&rest.segment);
            let Ok(at) = entries.binary_search_by(of) else { continue };
            let SegmentEntry { standing, walked, .. } = &mut entries[at];
            if let Some(standing) = standing.as_mut().or(walked.as_mut()) {
                standing.lost = standing.lost.saturating_add(rest.lost);
                standing.dropped = standing.dropped.saturating_add(rest.dropped);
                standing.cut = standing.cut.saturating_add(rest.cut);
            }
        }
        Ok(entries)
    }

    /// The totals of a segment by the heads of its chunks; it had `sealed` of them when it was sealed.
    fn walked(&self, number: u64, sealed: u64) -> Option<Summary> {
        let file = disk::open_regular(&self.segment_path(number), OpenOptions::new().read(true)).ok()?;
        let mut walk = Walk::new(&file, self.id, number, self.segment_len).ok()?.sealed(sealed);
        let mut contents = Contents::new(self.segment_len);
        while let Some(FoundChunk { offset, head }) = walk.next() {
            contents.note(&head, offset, [0; 32]);
        }
        Some(contents.summary)
    }

    /// The earliest and the latest time of the packets that the store has; `None` if it has none. Segments without an
    /// index are looked through by the heads of their chunks.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn span(&self) -> Result<Option<(Timestamp, Timestamp)>, Error> {
        let spans = self.numbers()?.into_iter().filter_map(|number| self.span_of(number));
        Ok(spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))))
    }

    /// The earliest and the latest time of the packets of one segment.
    pub(crate) fn span_of(&self, number: u64) -> Option<(Timestamp, Timestamp)> {
        if let Some(index) = self.index(number) {
            return (index.summary.packets > 0).then_some((index.summary.first, index.summary.last));
        }
        let file = disk::open_regular(&self.segment_path(number), OpenOptions::new().read(true)).ok()?;
        let mut walk = Walk::new(&file, self.id, number, self.segment_len).ok()?;
        let mut span: Option<(Timestamp, Timestamp)> = None;
        while let Some(FoundChunk { head, .. }) = walk.next() {
            if head.packets > 0 {
                let (first, last) = span.unwrap_or((head.first, head.last));
                span = Some((first.min(head.first), last.max(head.last)));
            }
        }
        span
    }

    /// The time of the packets that a segment begins with: the least in its index, or in its first chunk.
    pub fn first_of(&self, number: u64) -> Option<Timestamp> {
        if let Some(index) = self.index(number) {
            return (index.summary.packets > 0).then_some(index.summary.first);
        }
        let file = disk::open_regular(&self.segment_path(number), OpenOptions::new().read(true)).ok()?;
        let mut walk = Walk::new(&file, self.id, number, self.segment_len).ok()?;
        std::iter::from_fn(|| walk.next()).find(|found| found.head.packets > 0).map(|found| found.head.first)
    }

    /// Whether another process holds the store's lock: a recorder, or a command that changes segments.
    pub fn is_recorded(&self) -> bool {
        let lock = disk::open_regular(&self.paths.lock(), OpenOptions::new().read(true));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }

    pub(crate) fn index(&self, number: u64) -> Option<Index> {
        Index::read(&self.paths.index(number), &self.id, number)
    }

    /// The file of a segment: of two the one that a recorder wrote.
    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        let [plain, packed] = [false, true].map(|is_packed| self.paths.segment_as(number, is_packed));
        match [&plain, &packed].map(|path| path.symlink_metadata().is_ok()) {
            [_, false] => plain,
            [false, true] => packed,
            [true, true] if self.likeness(number, &packed) > self.likeness(number, &plain) => packed,
            [true, true] => plain,
        }
    }

    /// The file of a segment that is not its own, if it has two: somebody else compressed or unpacked it there.
    pub(crate) fn stray_path(&self, number: u64) -> Option<PathBuf> {
        let is_packed = is_packed(&self.segment_path(number));
        Some(self.paths.segment_as(number, !is_packed)).filter(|path| path.symlink_metadata().is_ok())
    }

    /// The likeness of a file to this segment, by a first chunk that is compressed or not as the name says; without
    /// such a chunk by the length.
    fn likeness(&self, number: u64, path: &Path) -> (bool, bool) {
        let Ok(file) = disk::open_regular(path, OpenOptions::new().read(true)) else { return (false, false) };
        let mut bytes = [0; CHUNK_HEAD_LEN];
        let head = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| ChunkHead::parse(&bytes));
        let is_own = head.is_some_and(|head| {
            (head.store, head.segment, head.packing.is_some()) == (self.id, number, is_packed(path))
        });
        (is_own, file.metadata().is_ok_and(|about| about.len() == self.segment_len))
    }
}

/// The first [`DESCRIPTION_LEN_MAX`] bytes of `store.toml`.
fn read_description(path: &Path) -> io::Result<String> {
    let file = disk::open_regular(path, OpenOptions::new().read(true))?;
    let mut text = String::new();
    file.take(DESCRIPTION_LEN_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn totals(summary: &Summary, index_len: u64) -> Standing {
    Standing {
        first: summary.first,
        last: summary.last,
        packets: summary.packets,
        bytes: summary.bytes,
        lost: summary.lost,
        dropped: summary.dropped,
        index_len,
        slots: summary.slots,
        open: summary.open,
        cut: summary.cut,
        overload: summary.overload,
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
