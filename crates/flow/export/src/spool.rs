//! A folder of blocks that wait for their receiver, over the end of a run and of the system.
//!
//! ```text
//! DIR/EPOCH-NUMBER-SENSOR.block      a block each, written as .part and renamed once it is on the disk
//! DIR/lock                           held by the exporter that uses the folder
//! ```
//!
//! Names sort as blocks were made. A block leaves the folder once it is acknowledged: after a kill between the two it is
//! delivered again, under the same id.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use tapline_sys::{disk, output_file};

use crate::account::Tally;
use crate::spool_file::{self, HEAD_MAX, Head};
use crate::{Block, Encoding, Error};

/// The most blocks of a spool.
const BLOCKS_MAX: usize = 1_000_000;
/// The most bytes of a block that is read.
const BLOCK_MAX: u64 = 1 << 30;
const SUFFIX: &str = "block";

/// A block in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    path: PathBuf,
    len: u64,
    pub(crate) tally: Tally,
    /// Whether it is of this run, not of an earlier one.
    pub(crate) is_own: bool,
}

/// A spool.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    bytes_max: u64,
    /// Bytes of all blocks, those that are being delivered among them.
    bytes: u64,
    count: usize,
    /// Blocks that are not being delivered, the oldest first.
    entries: VecDeque<Entry>,
    found: Tally,
    /// Files that are not whole blocks, at the start.
    unreadable: u64,
    _lock: File,
}

impl Spool {
    /// Opens a folder, which is made if it does not exist, for this many bytes. Existing blocks wait; the remains of
    /// a killed write are removed.
    ///
    /// # Errors
    /// [`Error::Open`] if the folder cannot be used, or is by another exporter; [`Error::SpoolEncoding`] if its blocks are
    /// encoded otherwise.
    pub fn open(folder: &Path, bytes_max: u64, encoding: Encoding) -> Result<Spool, Error> {
        let fail = |source| Error::Open { name: format!("spool {}", folder.display()), source };
        fs::create_dir_all(folder).map_err(fail)?;
        let lock = output_file::open(
            &folder.join("lock"),
            OpenOptions::new().write(true).create(true).truncate(false),
        );
        let lock = lock.map_err(fail)?;
        if !output_file::lock(&lock) {
            return Err(fail(io::Error::other("another exporter uses it: name another folder")));
        }
        let mut spool = Spool {
            folder: folder.to_owned(),
            bytes_max,
            bytes: 0,
            count: 0,
            entries: VecDeque::new(),
            found: Tally::default(),
            unreadable: 0,
            _lock: lock,
        };
        for path in spool.files().map_err(fail)? {
            spool.find(path, encoding)?;
        }
        Ok(spool)
    }

    /// Rows of earlier runs, at the start.
    pub fn found(&self) -> Tally {
        self.found
    }

    /// Files that were no whole blocks, at the start.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Whether blocks wait here that are not being delivered.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Blocks in the folder.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Whether there is room for a block.
    pub(crate) fn has_room(&self, block: &Block) -> bool {
        let len = block.bytes.len() as u64 + HEAD_MAX as u64;
        self.count < BLOCKS_MAX && self.bytes.saturating_add(len) <= self.bytes_max
    }

    /// Stores a block. Once this returns it is on the disk.
    ///
    /// # Errors
    /// If it is not; then nothing of it is there.
    pub(crate) fn store(&mut self, block: &Block) -> io::Result<()> {
        let id = &block.id;
        let name = format!("{:020}-{:020}-{}", id.epoch, id.number, id.sensor.as_str());
        let part = self.folder.join(format!("{name}.part"));
        let path = self.folder.join(format!("{name}.{SUFFIX}"));
        let written = write(&part, block).and_then(|len| fs::rename(&part, &path).map(|()| len));
        let len = written.inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })?;
        self.bytes += len;
        self.count += 1;
        self.entries.push_back(Entry { path, len, tally: Tally::of(block), is_own: true });
        Ok(())
    }

    /// The oldest block that waits. A file that is not a block any more is reported as an error, with its former
    /// contents.
    pub(crate) fn load(&mut self) -> Option<Result<(Entry, Block), (Entry, io::Error)>> {
        let entry = self.entries.pop_front()?;
        Some(match read(&entry.path) {
            Ok(block) => Ok((entry, block)),
            Err(error) => Err((entry, error)),
        })
    }

    /// Takes back a block that was not delivered, as the first.
    pub(crate) fn put_back(&mut self, entry: Entry) {
        let at = self.entries.partition_point(|other| other.path < entry.path);
        self.entries.insert(at, entry);
    }

    /// Removes a block that is done with.
    pub(crate) fn remove(&mut self, entry: &Entry) {
        // One that stays behind is delivered again at the next start, and known by its id.
        let _ = fs::remove_file(&entry.path);
        self.bytes = self.bytes.saturating_sub(entry.len);
        self.count = self.count.saturating_sub(1);
    }

    /// Puts a file that is not a block aside, where no start finds it again.
    pub(crate) fn put_aside(&mut self, entry: &Entry) {
        let _ = fs::rename(&entry.path, entry.path.with_extension("bad"));
        self.bytes = self.bytes.saturating_sub(entry.len);
        self.count = self.count.saturating_sub(1);
    }

    /// Paths of blocks, the oldest first; unfinished files are removed.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match path.extension().and_then(|suffix| suffix.to_str()) {
                Some(SUFFIX) if paths.len() < BLOCKS_MAX => paths.push(path),
                Some("part") => fs::remove_file(&path)?,
                _ => {}
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn find(&mut self, path: PathBuf, encoding: Encoding) -> Result<(), Error> {
        let head = disk::open_regular(&path, OpenOptions::new().read(true)).and_then(|file| {
            let len = file.metadata()?.len();
            let mut bytes = Vec::new();
            file.take(HEAD_MAX as u64).read_to_end(&mut bytes)?;
            Ok((len, Head::parse(&bytes)?))
        });
        let Ok((len, head)) = head else {
            self.unreadable += 1;
            let _ = fs::rename(&path, path.with_extension("bad"));
            return Ok(());
        };
        if head.encoding != encoding {
            let folder = self.folder.display().to_string();
            return Err(Error::SpoolEncoding {
                folder,
                there: head.encoding.name(),
                wanted: encoding.name(),
            });
        }
        self.bytes = self.bytes.saturating_add(len);
        self.count += 1;
        self.found += head.tally;
        self.entries.push_back(Entry { path, len, tally: head.tally, is_own: false });
        Ok(())
    }
}

/// Writes a file that is on the disk afterwards; its length.
fn write(path: &Path, block: &Block) -> io::Result<u64> {
    let mut file = output_file::create(path)?;
    let head = spool_file::head(block);
    file.write_all(&head)?;
    file.write_all(&block.bytes)?;
    file.sync_data()?;
    Ok((head.len() + block.bytes.len()) as u64)
}

fn read(path: &Path) -> io::Result<Block> {
    let file = disk::open_regular(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.take(BLOCK_MAX).read_to_end(&mut bytes)?;
    spool_file::parse(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::block;

    fn open(folder: &Path) -> Spool {
        Spool::open(folder, 10_000, Encoding::JsonLines).expect("a folder")
    }

    #[test]
    fn blocks_are_found_by_the_next_run_in_order() {
        let folder = tempfile::tempdir().expect("there is room");
        let mut spool = open(folder.path());
        for number in [2, 10, 1] {
            spool.store(&block(number, format!("{{\"a\":{number}}}\n").as_bytes())).expect("there is room");
        }
        assert!(Spool::open(folder.path(), 1, Encoding::JsonLines).is_err(), "one exporter at a time");
        drop(spool);
        fs::write(folder.path().join("9-9-a.part"), b"cut").expect("there is room");
        fs::write(folder.path().join("9-9-a.block"), b"cut").expect("there is room");
        let mut spool = open(folder.path());
        assert_eq!((spool.count(), spool.found().rows, spool.unreadable()), (3, 3, 1));
        let (first, loaded) = spool.load().expect("it is there").expect("it is whole");
        assert_eq!((loaded, first.is_own), (block(1, b"{\"a\":1}\n"), false));
        spool.put_back(first);
        for number in [1, 2, 10] {
            let (entry, loaded) = spool.load().expect("it is there").expect("it is whole");
            assert_eq!(loaded.id.number, number);
            spool.remove(&entry);
        }
        assert!(spool.load().is_none() && spool.count() == 0);
        drop(spool);
        assert_eq!(open(folder.path()).count(), 0);
    }

    #[test]
    fn a_pipe_in_place_of_a_block_is_put_aside() {
        let folder = tempfile::tempdir().expect("there is room");
        disk::make_pipe(&folder.path().join("9-9-a.block")).expect("there is room");
        assert_eq!(open(folder.path()).unreadable(), 1);
        let mut spool = open(folder.path());
        spool.store(&block(1, b"{}\n")).expect("there is room");
        let path = spool.entries[0].path.clone();
        fs::remove_file(&path).expect("it is there");
        disk::make_pipe(&path).expect("there is room");
        assert!(spool.load().expect("it is there").is_err());
    }

    #[test]
    fn a_block_that_the_disk_changed_is_told() {
        let folder = tempfile::tempdir().expect("there is room");
        let mut spool = open(folder.path());
        spool.store(&block(1, b"{\"a\":1}\n")).expect("there is room");
        let path = spool.entries[0].path.clone();
        let mut bytes = fs::read(&path).expect("it is there");
        *bytes.last_mut().expect("not empty") ^= 1;
        fs::write(&path, bytes).expect("there is room");
        let (entry, error) = spool.load().expect("it is there").expect_err("another checksum");
        assert!(error.to_string().contains("checksum"), "{error}");
        spool.put_aside(&entry);
        drop(spool);
        assert_eq!(open(folder.path()).count(), 0);
        assert!(path.with_extension("bad").exists());
    }

    #[test]
    fn a_spool_has_a_limit() {
        let folder = tempfile::tempdir().expect("there is room");
        let mut spool = open(folder.path());
        let great = block(0, &[b'x'; 6000]);
        assert!(spool.has_room(&great));
        spool.store(&great).expect("there is room");
        assert!(!spool.has_room(&great));
    }
}
