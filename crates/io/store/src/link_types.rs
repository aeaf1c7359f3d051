//! The link types of a store, from the interface descriptions at the start of its chunks.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use tapline_file::blocks::SECTION_HEADER_LEN;
use tapline_packet::LinkType;
use tapline_sys::disk;

use crate::catalog::Catalog;
use crate::chunk::CHUNK_HEAD_LEN;
use crate::erase::Blocks;
use crate::error::Error;
use crate::layout::{PAGE_LEN, SLOT_LEN};
use crate::restore::read_section;
use crate::walk::{FoundChunk, Walk};

/// The type of an Interface Description Block (draft-ietf-opsawg-pcapng, section 4.2).
const INTERFACE: u32 = 1;
/// Where such a block has the link type.
const LINK_TYPE_AT: usize = 8;

impl Catalog {
    /// Whether `fits` is true of the link type of an interface in the store; `None` if the store describes no
    /// interface. The look ends at the first link type that fits; without one the start of each chunk is read.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read. Segments that cannot be opened are left out.
    pub fn any_link_type(&self, fits: &mut dyn FnMut(LinkType) -> bool) -> Result<Option<bool>, Error> {
        let mut known: HashMap<LinkType, bool> = HashMap::new();
        for number in self.numbers()? {
            let opened = disk::open_regular(&self.segment_path(number), OpenOptions::new().read(true));
            let Ok(file) = opened else { continue };
            let Ok(mut walk) = Walk::new(&file, self.id, number, self.segment_len) else { continue };
            while let Some(found) = walk.next() {
                let link_types = described(&file, &found);
                if link_types.into_iter().any(|one| *known.entry(one).or_insert_with(|| fits(one))) {
                    return Ok(Some(true));
                }
            }
        }
        Ok((!known.is_empty()).then_some(false))
    }
}

/// Link types that a chunk describes. All descriptions are in its first half MiB.
fn described(file: &File, found: &FoundChunk) -> Vec<LinkType> {
    if found.head.packing.is_some() {
        let mut section = Vec::new();
        let is_read = read_section(file, found, &mut section).is_some();
        let blocks = section.get(SECTION_HEADER_LEN..).filter(|_| is_read);
        return link_types(blocks.unwrap_or_default()).0;
    }
    let len = found.head.len as usize;
    let mut bytes = vec![0; len.min(PAGE_LEN)];
    let mut is_read = file.read_exact_at(&mut bytes, found.offset).is_ok();
    let blocks = |bytes: &[u8]| link_types(bytes.get(CHUNK_HEAD_LEN..).unwrap_or_default());
    let (mut link_types, mut is_all) = blocks(&bytes);
    if is_read && !is_all && len > PAGE_LEN {
        bytes.resize(len.min(SLOT_LEN), 0);
        is_read = file.read_exact_at(&mut bytes, found.offset).is_ok();
        (link_types, is_all) = blocks(&bytes);
    }
    if is_read && is_all { link_types } else { Vec::new() }
}

/// The link types of the descriptions that blocks begin with, and whether another block follows them.
fn link_types(blocks: &[u8]) -> (Vec<LinkType>, bool) {
    let mut link_types = Vec::new();
    for (kind, block) in Blocks(blocks) {
        if kind != INTERFACE {
            return (link_types, true);
        }
        let number = block.get(LINK_TYPE_AT..).and_then(|rest| rest.first_chunk());
        link_types.extend(number.map(|number| LinkType::from_dlt(u16::from_ne_bytes(*number))));
    }
    (link_types, false)
}

#[cfg(test)]
mod tests {
    use tapline_packet::Interface;

    use super::*;
    use crate::tests::{at, numbered};
    use crate::{Losses, Recorder, RecorderSettings};

    #[test]
    fn link_types_are_those_of_all_recordings() {
        let folder = tempfile::tempdir().unwrap();
        let settings =
            RecorderSettings { size: 16 << 20, segment_len: Some(4 << 20), ..RecorderSettings::default() };
        for link_type in [LinkType::NULL, LinkType::RAW] {
            let interfaces = [Interface::new("far0", link_type)];
            let mut recorder = Recorder::open(folder.path(), settings.clone(), &interfaces, at(0)).unwrap();
            crate::tests::record_on(&mut recorder, &interfaces, &[numbered(1, 60)], at(1));
            recorder.finish(&[], Losses::default(), at(2)).unwrap();
        }
        let catalog = Catalog::open(folder.path()).unwrap();
        let mut met = Vec::new();
        let mut is_ethernet = |link_type| {
            met.push(link_type);
            link_type == LinkType::ETHERNET
        };
        assert_eq!(catalog.any_link_type(&mut is_ethernet).unwrap(), Some(false));
        assert_eq!(met, [LinkType::NULL, LinkType::RAW]);
        assert_eq!(catalog.any_link_type(&mut |link_type| link_type == LinkType::RAW).unwrap(), Some(true));
    }

    #[test]
    fn descriptions_may_take_more_than_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let settings =
            RecorderSettings { size: 16 << 20, segment_len: Some(4 << 20), ..RecorderSettings::default() };
        let mut interfaces = vec![Interface::new("far0", LinkType::ETHERNET); 200];
        interfaces.push(Interface::new("last", LinkType::RAW));
        Recorder::open(folder.path(), settings, &interfaces, at(0))
            .unwrap()
            .finish(&[], Losses::default(), at(2))
            .unwrap();
        let catalog = Catalog::open(folder.path()).unwrap();
        assert_eq!(catalog.any_link_type(&mut |link_type| link_type == LinkType::RAW).unwrap(), Some(true));
    }
}
