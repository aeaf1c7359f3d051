//! Writes the blocks other than packets of pcapng files.
//!
//! ```text
//! first file   section, interfaces, blocks that came before the first packet, packets and blocks ...
//! next file    section, interfaces, names and secrets so far, packets and blocks ...
//! ```

use crate::copied::{BlockQueue, CopiedBlock, RawBlock, WAITING_MAX};
use crate::section::Section;

/// Blocks that came for the files of a writer.
pub(super) struct Blocks {
    queue: BlockQueue,
    /// The header of a section that is all ours.
    own: Section,
    /// The section of the input that the packets now come from.
    original: Option<Section>,
    /// Names and secrets so far, for each file that follows.
    repeated: Vec<u8>,
}

/// Next item to append to the file in progress.
pub(super) enum Next {
    /// A section begins with this header.
    Section(Section),
    /// A block.
    Block(RawBlock),
}

impl Blocks {
    /// The blocks that `queue` holds and gets. The section of the first file is made of `own` and of all sections that
    /// the inputs have begun with.
    pub(super) fn new(queue: BlockQueue, own: Section) -> Blocks {
        Blocks { queue, own, original: None, repeated: Vec::new() }
    }

    /// The header of the first file, and the blocks behind it: all that waits now.
    pub(super) fn begin(&mut self) -> (Section, Vec<RawBlock>) {
        let (mut section, mut blocks) = (self.own.clone(), Vec::new());
        while let Some(block) = self.queue.pop() {
            match block {
                CopiedBlock::Section(original) => match &self.original {
                    None => {
                        section = self.own.of_copy(&original);
                        self.original = Some(original);
                    }
                    Some(_) => section.add(&original),
                },
                CopiedBlock::Other(block) => blocks.push(self.keep(block)),
            }
        }
        (section, blocks)
    }

    /// The next block for the file in progress.
    pub(super) fn next(&mut self) -> Option<Next> {
        loop {
            match self.queue.pop()? {
                CopiedBlock::Other(block) => return Some(Next::Block(self.keep(block))),
                // Files that are written in pieces say the same in each of them.
                CopiedBlock::Section(original) if self.original.as_ref() == Some(&original) => {}
                CopiedBlock::Section(original) => {
                    let section = self.own.of_copy(&original);
                    self.original = Some(original);
                    return Some(Next::Section(section));
                }
            }
        }
    }

    /// Names and secrets that each file begins with.
    pub(super) fn repeated(&self) -> &[u8] {
        &self.repeated
    }

    /// The copy has a format without such blocks.
    pub(super) fn refuse(&self) {
        self.queue.refuse();
    }

    fn keep(&mut self, block: RawBlock) -> RawBlock {
        if block.is_for_each_file() && self.repeated.len() + block.bytes().len() <= WAITING_MAX {
            self.repeated.extend_from_slice(block.bytes());
        }
        block
    }
}
