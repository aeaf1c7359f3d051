//! Restores an index from the chunks of its segment, and writes it with its roll-up.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use tapline_file::SectionReader;
use tapline_packet::Headers;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::chunk;
use crate::error::Error;
use crate::index::{self, Builder, Contents, IndexOptions, rollup};
use crate::keys::Class;
use crate::layout::{SLOT_LEN, fills_slot};
use crate::log::{self, History};
use crate::packed;
use crate::walk::{FoundChunk, Walk};

/// Writes the index of a segment, and the roll-up that it completes; gives the index's length.
pub(crate) fn seal(
    catalog: &Catalog,
    number: u64,
    contents: &mut Contents,
    index: &mut Builder,
    history: &History,
) -> Result<u64, Error> {
    (contents.summary.store, contents.summary.segment) = (catalog.id, number);
    let len = index::write(&catalog.paths.index(number), contents, index)?;
    let roll_up = rollup::roll_up_of(number);
    if number == *rollup::segments_of(roll_up).end() {
        rollup::write(catalog, roll_up, history)?;
    }
    Ok(len)
}

/// Optional keys that a segment's index has or should have, by the index and by the heads of the chunks.
pub(crate) fn index_options(catalog: &Catalog, number: u64) -> IndexOptions {
    let of_index = catalog.index(number).map_or(IndexOptions::default(), |index| IndexOptions {
        macs: index.has_class(Class::Mac as u8),
        names: index.has_class(Class::Name as u8),
    });
    let file = disk::open_regular(&catalog.segment_path(number), OpenOptions::new().read(true));
    let walk = file.as_ref().map(|file| Walk::new(file, catalog.id, number, catalog.segment_len()));
    let Ok(Ok(mut walk)) = walk else { return of_index };
    let heads = std::iter::from_fn(|| walk.next()).map(|found| found.head.index);
    heads.fold(of_index, |one, other| IndexOptions {
        macs: one.macs || other.macs,
        names: one.names || other.names,
    })
}

/// Reads a chunk and gives its hash; `None` if it is not as it was written, or the disk cannot read it.
pub(crate) fn read_intact(file: &File, found: &FoundChunk, buffer: &mut Vec<u8>) -> Option<[u8; 32]> {
    found.read(file, buffer).then(|| chunk::chain_hash(buffer, &found.head))
}

/// As [`read_intact`], with the chunk's section in `buffer`.
pub(crate) fn read_section(file: &File, found: &FoundChunk, buffer: &mut Vec<u8>) -> Option<[u8; 32]> {
    let hash = read_intact(file, found, buffer)?;
    if found.head.packing.is_some() {
        let stored = std::mem::take(buffer);
        *buffer = packed::section(&stored, &found.head)?.into_owned();
    }
    Some(hash)
}

/// Whether a filler begins here, within a slot.
fn is_filler(file: &File, at: u64) -> bool {
    let mut bytes = [0; 32];
    let is_read = file.read_exact_at(&mut bytes, at).is_ok();
    let in_slot = (at % SLOT_LEN as u64) as usize;
    is_read && in_slot > 0 && fills_slot(&bytes, in_slot)
}

/// Notes the keys of the packets of a chunk.
fn note_packets(index: &mut Builder, slot: u32, reader: &mut SectionReader) {
    index.begin_slot(slot);
    while reader.advance().unwrap_or(false) {
        let batch = reader.batch();
        for packet in batch.iter() {
            if let Some(interface) = reader.interfaces().get(packet.meta.interface.0 as usize) {
                let headers = Headers::parse(interface.link_type, packet);
                let flow = index.fingerprint_parsed(interface, packet, &headers);
                index.note(interface, packet, flow, Some(&headers));
            }
        }
    }
}

/// Contents of a segment, read from its chunks.
pub(crate) struct Restored {
    pub(crate) contents: Contents,
    /// The number and hash of the last intact chunk; zeros if there is none.
    pub(crate) last: (u64, [u8; 32]),
    /// Offset for the next chunk: the end of the last one, or the start of the first unused slot.
    pub(crate) end: u64,
    /// Chunks that are gone or not as they were written, and places that hold neither chunks nor fillers.
    pub(crate) damaged: u64,
}

impl Restored {
    /// Reads every chunk of a segment, and notes the keys of its packets if there is to be an index. When it was sealed
    /// the segment had `sealed` chunks.
    ///
    /// # Errors
    /// [`Error::File`] if the segment cannot be opened.
    pub(crate) fn read(
        catalog: &Catalog,
        number: u64,
        sealed: u64,
        mut index: Option<&mut Builder>,
    ) -> Result<Restored, Error> {
        let path = catalog.segment_path(number);
        let of_file = |error| Error::file("read", &path)(error);
        let opened = disk::open_regular(&path, OpenOptions::new().read(true));
        let file = opened.map_err(Error::file("open", &path))?;
        let walk = Walk::new(&file, catalog.id, number, catalog.segment_len());
        let mut walk = walk.map_err(of_file)?.sealed(sealed);
        let mut reader = SectionReader::new();
        let (mut contents, mut damaged) = (Contents::new(catalog.segment_len()), 0);
        let mut last = (0, [0; 32]);
        // Where the last chunk ends, if it is whole.
        let mut tail = None;
        while let Some(found) = walk.next() {
            let read = |buffer: &mut Vec<u8>| read_section(&file, &found, buffer);
            let mut hash = [0; 32];
            if reader.refill(|buffer| read(buffer).map(|of_chunk| hash = of_chunk).ok_or(())).is_err() {
                damaged += 1;
                tail = None;
                continue;
            };
            if let Some(index) = &mut index {
                note_packets(index, found.head.slot, &mut reader);
            }
            contents.note(&found.head, found.offset, hash);
            last = (found.head.number, hash);
            tail = Some(found.offset + u64::from(found.head.len));
        }
        damaged += walk.damaged + walk.missing();
        let tail = tail.filter(|tail| damaged == 0 && is_filler(&file, *tail));
        Ok(Restored { contents, last, end: tail.unwrap_or(walk.end()), damaged })
    }

    /// Writes the index that the chunks gave; gives its length. If the index before alone knows of more chunks, the log
    /// gets their number first: the new one would hide the loss.
    pub(crate) fn seal(
        mut self,
        catalog: &Catalog,
        number: u64,
        index: &mut Builder,
        history: &mut History,
    ) -> Result<u64, Error> {
        let chunks = u64::from(self.contents.summary.chunks);
        if let Some(sealed) = catalog.sealed(number, history).filter(|sealed| sealed.chunks > chunks)
            && history.sealed.insert(number, sealed).is_none()
        {
            log::append_synced(&catalog.paths, sealed.event(number))?;
        }
        seal(catalog, number, &mut self.contents, index, history)
    }
}
