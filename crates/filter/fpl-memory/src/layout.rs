//! Offsets in a file of cells, and its header: `docs/format/memory.md`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::Error;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"TAPCELLS");
pub(crate) const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
pub(crate) const VERSION: u64 = 1;
/// The most cells of a program.
pub(crate) const CELLS_MAX: u64 = 1 << 24;

/// Numbers of words of 8 bytes.
pub(crate) mod word {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const BYTE_ORDER: usize = 1;
    pub(crate) const VERSION: usize = 2;
    pub(crate) const CELLS: usize = 3;
    pub(crate) const PROCESS: usize = 4;
    pub(crate) const POSTED: usize = 16;
    pub(crate) const WHAT: usize = 17;
    pub(crate) const CELL: usize = 18;
    pub(crate) const VALUE: usize = 19;
    pub(crate) const DONE: usize = 32;
    pub(crate) const OLD: usize = 33;
    pub(crate) const SEQUENCE: usize = 40;
    /// The first cell.
    pub(crate) const FIRST: usize = 512;
}

/// Orders, as they are posted.
pub(crate) mod order {
    pub(crate) const SET: u64 = 1;
    pub(crate) const ADD: u64 = 2;
    pub(crate) const SET_ALL: u64 = 3;
}

/// The bytes of a file.
pub(crate) fn file_len(cells: u64) -> u64 {
    8 * (word::FIRST as u64 + cells)
}

/// The file that serialises the orders of others.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

pub(crate) fn read_word(file: &File, word: usize) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 8 * word as u64)?;
    Ok(u64::from_ne_bytes(bytes))
}

pub(crate) fn write_word(file: &File, word: usize, value: u64) -> std::io::Result<()> {
    file.write_all_at(&value.to_ne_bytes(), 8 * word as u64)
}

/// Checks a header against the length of the file. Returns the number of cells.
pub(crate) fn check(file: &File, path: &Path) -> Result<u64, Error> {
    let wrong = |what: String| Error::WrongFile { path: path.to_owned(), what };
    let len = file.metadata().map_err(Error::system("look at", path))?.len();
    if len < file_len(1) {
        return Err(wrong(format!("it has {len} bytes")));
    }
    let word = |at: usize| read_word(file, at).map_err(Error::system("read", path));
    if word(word::MAGIC)? != MAGIC || word(word::BYTE_ORDER)? != BYTE_ORDER {
        return Err(wrong("it does not begin with TAPCELLS in this machine's byte order".to_owned()));
    }
    let (version, cells) = (word(word::VERSION)?, word(word::CELLS)?);
    if version != VERSION {
        return Err(wrong(format!("version {version}, and {VERSION} is known")));
    }
    if !cells.is_power_of_two() || cells > CELLS_MAX || len != file_len(cells) {
        return Err(wrong(format!("{cells} cells in {len} bytes")));
    }
    Ok(cells)
}
