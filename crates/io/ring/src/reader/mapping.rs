//! The files of a writer, checked before a reader looks into them: seals, sizes, headers.

use tapline_packet::{LinkType, Timestamp};
use tapline_sys::{Memfd, Seals};

use super::BufferInfo;
use crate::Error;
use crate::consumer::{Consumer, entries_of};
use crate::layout::{HEADER_LEN, buffer, index_len};
use crate::view::View;

pub(super) fn info_of(view: &View) -> BufferInfo {
    BufferInfo {
        link_type: LinkType(view.header(buffer::LINK_TYPE) as u16),
        snap_len: view.snap_len(),
        generation: view.header(buffer::GENERATION),
        worker: view.header(buffer::WORKER) as u32,
        created: Timestamp::from_nanos(view.header(buffer::CREATED) as i64),
        block_len: view.geometry().block_len() as u32,
        blocks: view.geometry().blocks() as u32,
    }
}

pub(super) fn open_buffer(file: Memfd) -> Result<View, Error> {
    const FILE: &str = "packet buffer";
    ensure_sealed(&file, Seals::READ_ONLY, FILE)?;
    let words = file.map_to_read().map_err(Error::system("map the packet buffer"))?;
    let view = View::new(words)?;
    ensure_len(&file, FILE, view.geometry().file_len())?;
    Ok(view)
}

pub(super) fn open_index(file: Memfd) -> Result<Consumer, Error> {
    const FILE: &str = "index";
    ensure_sealed(&file, Seals::SIZE, FILE)?;
    let words = file.map().map_err(Error::system("map the index"))?;
    let entries = entries_of(&words)?;
    ensure_len(&file, FILE, index_len(entries))?;
    Ok(Consumer::unchecked(words, entries))
}

/// Checks the seals first: a file that can shrink is not mapped. Then it must be at least as long as a header.
fn ensure_sealed(file: &Memfd, seals: Seals, name: &'static str) -> Result<(), Error> {
    let found = file.seals().map_err(|_| Error::NotSealed { file: name })?;
    if !found.contains(seals) {
        return Err(Error::NotSealed { file: name });
    }
    let found = file.size().map_err(Error::system("look at a buffer's size"))?;
    // A power of two behind the header: no file on huge pages has such a length, and a page of those may be missing
    // when it is looked at (SIGBUS).
    let expected = HEADER_LEN as u64;
    match found.checked_sub(expected) {
        Some(rest) if rest.is_power_of_two() => Ok(()),
        _ => Err(Error::WrongLength { file: name, found, expected }),
    }
}

pub(super) fn ensure_most(what: &'static str, value: u64, most: u64) -> Result<(), Error> {
    if value <= most { Ok(()) } else { Err(Error::Size { what, value, least: 0, most }) }
}

fn ensure_len(file: &Memfd, name: &'static str, expected: u64) -> Result<(), Error> {
    let found = file.size().map_err(Error::system("look at a buffer's size"))?;
    if found != expected {
        return Err(Error::WrongLength { file: name, found, expected });
    }
    Ok(())
}
