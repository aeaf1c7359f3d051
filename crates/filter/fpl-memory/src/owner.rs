//! The owner's side: the program's cells, and orders of others between two batches.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex, PoisonError};

use tapline_ir::Memory;
use tapline_sys::privilege::{self, Identity};
use tapline_sys::{SharedWords, output_file};

use crate::Error;
use crate::layout::{
    BYTE_ORDER, CELLS_MAX, MAGIC, VERSION, check, file_len, lock_path, order, word, write_word,
};

/// Cells in a file, for the program that counts in them. The file stays when this is dropped, and its lock is free
/// then.
#[derive(Debug)]
pub struct SharedCells {
    words: SharedWords,
    cells: u64,
    /// Holds the lock.
    _file: File,
    /// One order at a time, if several threads look.
    orders: Mutex<()>,
}

/// The cells, without the header, as memory of a program.
#[derive(Debug)]
struct Cells(SharedWords);

impl AsRef<[std::sync::atomic::AtomicU64]> for Cells {
    fn as_ref(&self) -> &[std::sync::atomic::AtomicU64] {
        &self.0[word::FIRST..]
    }
}

impl SharedCells {
    /// Creates a file of `cells` cells, or opens an existing one with its contents.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has it, [`Error::WrongFile`] if it is another file or has other cells,
    /// [`Error::System`].
    pub fn open(path: &Path, cells: u32) -> Result<SharedCells, Error> {
        let cells = u64::from(cells);
        let wrong = |what: String| Error::WrongFile { path: path.to_owned(), what };
        if !cells.is_power_of_two() || cells > CELLS_MAX {
            return Err(wrong(format!("{cells} cells: a power of two, {CELLS_MAX} at most")));
        }
        let (file, is_new) = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(Error::system("lock", path)(error)),
        }
        open(&lock_path(path))?;
        if is_new {
            begin(&file, cells).map_err(Error::system("write", path))?;
        }
        let found = check(&file, path)?;
        if found != cells {
            return Err(wrong(format!("it has {found} cells, and the program {cells}: name another file")));
        }
        let words = SharedWords::map_populated(&file, word::FIRST + cells as usize);
        let words = words.map_err(|error| Error::system("map", path)(error.source))?;
        words[word::PROCESS].store(std::process::id().into(), Relaxed);
        words[word::SEQUENCE].fetch_and(!1, Relaxed);
        words[word::DONE].store(words[word::POSTED].load(Acquire), Release);
        Ok(SharedCells { words, cells, _file: file, orders: Mutex::new(()) })
    }

    /// The cells as a program's memory.
    pub fn memory(&self) -> Memory {
        Memory::shared(Arc::new(Cells(self.words.clone())))
    }

    /// To be called before packets are looked at: carries out an order that waits, and says that cells change.
    #[inline]
    pub fn begin(&self) {
        self.obey();
        self.turn();
    }

    /// To be called after packets were looked at: cells do not change until [`begin`](Self::begin).
    #[inline]
    pub fn end(&self) {
        self.turn();
    }

    /// Counts the sequence on. The fence has the number there before the cells that come after it change, and after
    /// those that changed before.
    #[inline]
    fn turn(&self) {
        let sequence = &self.words[word::SEQUENCE];
        sequence.store(sequence.load(Relaxed).wrapping_add(1), Release);
        fence(SeqCst);
    }

    /// Carries out an order that waits. To be called where no packet is looked at.
    #[inline]
    pub fn obey(&self) {
        let posted = self.words[word::POSTED].load(Acquire);
        if posted != self.words[word::DONE].load(Relaxed) {
            self.carry_out(posted);
        }
    }

    #[cold]
    fn carry_out(&self, posted: u64) {
        let _one = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |at: usize| self.words[at].load(Relaxed);
        let (what, cell, value) = (of(word::WHAT), of(word::CELL), of(word::VALUE));
        let cells = &self.words[word::FIRST..];
        // Readers see these changes as they see a program's.
        self.turn();
        let old = match (what, cells.get(usize::try_from(cell).unwrap_or(usize::MAX))) {
            (order::SET, Some(cell)) => cell.swap(value, Relaxed),
            (order::ADD, Some(cell)) => cell.fetch_add(value, Relaxed),
            (order::SET_ALL, _) => {
                cells.iter().fold(0, |sum, cell| cell.swap(value, Relaxed).wrapping_add(sum))
            }
            _ => 0,
        };
        self.turn();
        self.words[word::OLD].store(old, Relaxed);
        self.words[word::DONE].store(posted, Release);
    }

    /// Number of cells.
    pub fn len(&self) -> u64 {
        self.cells
    }

    /// Whether there are none. There always are.
    pub fn is_empty(&self) -> bool {
        self.cells == 0
    }
}

/// Opens a file, or makes it for its user alone; whether it is empty. Root follows no link. A file that others may
/// write is refused: they could shrink it, which kills the process that maps it.
fn open(path: &Path) -> Result<(File, bool), Error> {
    let mut options = OpenOptions::new();
    let file = output_file::open(path, options.read(true).write(true).create(true).truncate(false));
    let file = file.map_err(Error::system("open", path))?;
    let about = file.metadata().map_err(Error::system("look at", path))?;
    let wrong = |what: String| Err(Error::WrongFile { path: path.to_owned(), what });
    let caller = Identity::of_caller().map(|caller| caller.uid);
    if !about.is_file() || about.nlink() > 1 {
        return wrong("it is not a regular file with one name".to_owned());
    }
    if ![Some(0), Some(privilege::user()), caller].contains(&Some(about.uid())) {
        return wrong(format!(
            "it belongs to user {}: only its owner may have a program count in it",
            about.uid()
        ));
    }
    if about.len() == 0 {
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(Error::system("set the mode of", path))?;
    } else if about.mode() & 0o022 != 0 {
        return wrong(format!("others may write it (mode {:o}): chmod 600", about.mode() & 0o777));
    }
    Ok((file, about.len() == 0))
}

/// Writes a header, and all cells as 0: a full disk is reported here, not by a signal later.
fn begin(file: &File, cells: u64) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let zeros = [0; 64 << 10];
    let (mut at, end) = (0, file_len(cells));
    while at < end {
        let len = (end - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..len as usize], at)?;
        at += len;
    }
    write_word(file, word::BYTE_ORDER, BYTE_ORDER)?;
    write_word(file, word::VERSION, VERSION)?;
    write_word(file, word::CELLS, cells)?;
    write_word(file, word::MAGIC, MAGIC)
}
