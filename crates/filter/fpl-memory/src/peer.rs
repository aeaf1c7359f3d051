//! The side of other processes: cells of one moment, and orders.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tapline_sys::disk;

use crate::Error;
use crate::layout::{check, lock_path, order, read_word, word, write_word};

/// The longest wait for an owner, which looks ten times a second and between two batches.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two looks.
const NAP: Duration = Duration::from_micros(200);
/// Attempts to read all cells between two batches.
const ATTEMPTS: u32 = 500;

/// A change of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A cell gets a value.
    Set {
        /// Number of the cell, from 0.
        cell: u64,
        /// The new value.
        value: u64,
    },
    /// A value is added to a cell, modulo 2^64.
    Add {
        /// Number of the cell, from 0.
        cell: u64,
        /// The summand.
        value: u64,
    },
    /// All cells get a value.
    SetAll {
        /// The new value.
        value: u64,
    },
}

/// All cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Values of the cells.
    pub cells: Vec<u64>,
    /// The values are of one moment, between two batches of packets.
    pub is_consistent: bool,
}

/// Opens a file. Does not wait if the path is a pipe: a pipe is not a file of cells.
fn open(path: &Path, options: &OpenOptions) -> Result<File, Error> {
    let file = disk::open_at_once(path, options).map_err(Error::system("open", path))?;
    match file.metadata().map_err(Error::system("look at", path))?.is_file() {
        true => Ok(file),
        false => {
            let what = "it is not a regular file".to_owned();
            Err(Error::WrongFile { path: path.to_owned(), what })
        }
    }
}

/// A file of cells that another process may have.
#[derive(Debug)]
pub struct Peer {
    path: PathBuf,
    file: File,
    cells: u64,
}

impl Peer {
    /// Opens a file to be read.
    ///
    /// # Errors
    /// [`Error::WrongFile`], [`Error::System`].
    pub fn open(path: &Path) -> Result<Peer, Error> {
        let file = open(path, OpenOptions::new().read(true))?;
        Peer::of(path, file)
    }

    /// Opens a file to be read and changed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_change(path: &Path) -> Result<Peer, Error> {
        Peer::of(path, open(path, OpenOptions::new().read(true).write(true))?)
    }

    fn of(path: &Path, file: File) -> Result<Peer, Error> {
        let cells = check(&file, path)?;
        Ok(Peer { path: path.to_owned(), file, cells })
    }

    /// Number of cells.
    pub fn len(&self) -> u64 {
        self.cells
    }

    /// Whether there are none. There always are.
    pub fn is_empty(&self) -> bool {
        self.cells == 0
    }

    /// The process that has, or had, the file.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn process(&self) -> Result<u64, Error> {
        self.word(word::PROCESS)
    }

    fn word(&self, at: usize) -> Result<u64, Error> {
        read_word(&self.file, at).map_err(Error::system("read", &self.path))
    }

    fn write(&self, at: usize, value: u64) -> Result<(), Error> {
        write_word(&self.file, at, value).map_err(Error::system("write to", &self.path))
    }

    /// Reads all cells, as they are between two batches; of several batches if the program never pauses for long
    /// enough.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut bytes = vec![0; 8 * self.cells as usize];
        for _ in 0..ATTEMPTS {
            let before = self.word(word::SEQUENCE)?;
            let read = self.file.read_exact_at(&mut bytes, 8 * word::FIRST as u64);
            read.map_err(Error::system("read", &self.path))?;
            if before.is_multiple_of(2) && self.word(word::SEQUENCE)? == before {
                return Ok(Snapshot { cells: words(&bytes), is_consistent: true });
            }
            std::thread::sleep(NAP);
        }
        // A program that was killed in the midst of a batch changes nothing any more.
        let is_abandoned = self.file.try_lock().is_ok_and(|()| self.file.unlock().is_ok());
        Ok(Snapshot { cells: words(&bytes), is_consistent: is_abandoned })
    }

    /// Changes cells between two batches of the program, or directly if no program has the file. Returns the previous
    /// value of the cell; for all cells the sum.
    ///
    /// # Errors
    /// [`Error::NoCell`], [`Error::NotDone`], [`Error::System`].
    pub fn change(&self, wanted: Order) -> Result<u64, Error> {
        let (what, cell, value) = match wanted {
            Order::Set { cell, value } => (order::SET, cell, value),
            Order::Add { cell, value } => (order::ADD, cell, value),
            Order::SetAll { value } => (order::SET_ALL, 0, value),
        };
        if cell >= self.cells {
            return Err(Error::NoCell { cell, cells: self.cells });
        }
        let path = lock_path(&self.path);
        let lock = open(&path, OpenOptions::new().write(true))?;
        lock.lock().map_err(Error::system("lock", &path))?;
        match self.file.try_lock() {
            Ok(()) => {
                let old = self.change_directly(wanted);
                // The end of this value would release it too.
                let _ = self.file.unlock();
                old
            }
            Err(TryLockError::WouldBlock) => self.order(what, cell, value),
            Err(TryLockError::Error(error)) => Err(Error::system("lock", &self.path)(error)),
        }
    }

    /// Passes the order to the owner. The lock of orders is held.
    fn order(&self, what: u64, cell: u64, value: u64) -> Result<u64, Error> {
        // That of a process that was killed.
        self.wait(self.word(word::POSTED)?)?;
        let number = self.word(word::POSTED)?.wrapping_add(1);
        self.write(word::WHAT, what)?;
        self.write(word::CELL, cell)?;
        self.write(word::VALUE, value)?;
        self.write(word::POSTED, number)?;
        self.wait(number)?;
        self.word(word::OLD)
    }

    fn wait(&self, number: u64) -> Result<(), Error> {
        let begun = Instant::now();
        while self.word(word::DONE)? != number {
            if begun.elapsed() > PATIENCE {
                return Err(Error::NotDone { path: self.path.clone(), seconds: PATIENCE.as_secs() });
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// Changes cells that no program has. Both locks are held.
    fn change_directly(&self, wanted: Order) -> Result<u64, Error> {
        let place = |cell: u64| word::FIRST + cell as usize;
        match wanted {
            Order::Set { cell, value } => {
                let old = self.word(place(cell))?;
                self.write(place(cell), value).map(|()| old)
            }
            Order::Add { cell, value } => {
                let old = self.word(place(cell))?;
                self.write(place(cell), old.wrapping_add(value)).map(|()| old)
            }
            Order::SetAll { value } => {
                let mut sum = 0_u64;
                for cell in 0..self.cells {
                    sum = sum.wrapping_add(self.word(place(cell))?);
                    self.write(place(cell), value)?;
                }
                Ok(sum)
            }
        }
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}
