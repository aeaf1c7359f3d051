//! Texts of flows, in blocks that all flows share.
//!
//! ```text
//! first block of a note    next note 4 | more 4 | length 2 | tag 1 | 0 | 52 bytes
//! more                     0 4         | more 4 | 56 bytes
//! ```
//!
//! A flow has the number of its first note, a note that of the next one. The blocks are all there is: a note for which
//! there are not enough is refused.

use std::collections::TryReserveError;

const NONE: u32 = u32::MAX;
const HEAD: usize = 52;
const BODY: usize = 56;

/// A list of notes; of which flow is the flow's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextList(u32);

impl Default for TextList {
    fn default() -> TextList {
        TextList(NONE)
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Block {
    next: u32,
    more: u32,
    bytes: [u8; BODY],
}

const _: () = assert!(size_of::<Block>() == 64, "a line of the cache");

/// The blocks.
pub(super) struct TextPool {
    blocks: Vec<Block>,
    most: usize,
    /// Blocks in no use, by `more`.
    free: u32,
    free_count: usize,
    pub(super) refused: u64,
}

impl TextPool {
    /// Room for `most` blocks, taken from the system as they come into use.
    pub(super) fn new(most: usize) -> Result<TextPool, TryReserveError> {
        let most = most.min(NONE as usize - 1);
        let mut blocks = Vec::new();
        blocks.try_reserve_exact(most)?;
        Ok(TextPool { blocks, most, free: NONE, free_count: 0, refused: 0 })
    }

    /// Writes a note at the front of a list. Bytes beyond a length of 16 bits are dropped.
    pub(super) fn add(&mut self, list: &mut TextList, tag: u8, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(u16::MAX.into())];
        let needed = 1 + bytes.len().saturating_sub(HEAD).div_ceil(BODY);
        if self.free_count + (self.most - self.blocks.len()) < needed {
            self.refused += 1;
            return;
        }
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
        let first = self.take();
        let block = &mut self.blocks[first as usize];
        block.next = list.0;
        block.bytes[..2].copy_from_slice(&(bytes.len() as u16).to_ne_bytes());
        block.bytes[2] = tag;
        block.bytes[4..4 + head.len()].copy_from_slice(head);
        let mut last = first;
        for part in rest.chunks(BODY) {
            let at = self.take();
            self.blocks[at as usize].bytes[..part.len()].copy_from_slice(part);
            self.blocks[last as usize].more = at;
            last = at;
        }
        list.0 = first;
    }

    /// A block that was free, with nothing behind it.
    fn take(&mut self) -> u32 {
        match self.blocks.get_mut(self.free as usize) {
            Some(block) => {
                let at = std::mem::replace(&mut self.free, block.more);
                block.more = NONE;
                self.free_count -= 1;
                at
            }
            None => {
                self.blocks.push(Block { next: NONE, more: NONE, bytes: [0; BODY] });
                (self.blocks.len() - 1) as u32
            }
        }
    }

    /// Reads all notes of a list, the last one that was written first, and gives their blocks back.
    pub(super) fn drain(&mut self, list: &mut TextList, mut each: impl FnMut(u8, &[u8])) {
        let mut text = Vec::new();
        let mut at = std::mem::take(list).0;
        while at != NONE {
            let first = self.blocks[at as usize];
            let len = usize::from(u16::from_ne_bytes([first.bytes[0], first.bytes[1]]));
            text.clear();
            text.extend_from_slice(&first.bytes[4..]);
            let mut more = first.more;
            self.give(at);
            while more != NONE {
                let block = self.blocks[more as usize];
                text.extend_from_slice(&block.bytes);
                self.give(more);
                more = block.more;
            }
            each(first.bytes[2], &text[..len]);
            at = first.next;
        }
    }

    /// The last note of a list with this tag.
    pub(super) fn find(&self, list: &TextList, tag: u8) -> Option<Vec<u8>> {
        let mut at = list.0;
        while let Some(first) = self.blocks.get(at as usize) {
            if first.bytes[2] != tag {
                at = first.next;
                continue;
            }
            let len = usize::from(u16::from_ne_bytes([first.bytes[0], first.bytes[1]]));
            let mut text = first.bytes[4..].to_vec();
            let mut more = first.more;
            while let Some(block) = self.blocks.get(more as usize) {
                text.extend_from_slice(&block.bytes);
                more = block.more;
            }
            text.truncate(len);
            return Some(text);
        }
        None
    }

    fn give(&mut self, at: u32) {
        self.blocks[at as usize].more = std::mem::replace(&mut self.free, at);
        self.free_count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        (self.free, self.free_count) = (NONE, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text_pool: &mut TextPool, list: &mut TextList) -> Vec<(u8, Vec<u8>)> {
        let mut found = Vec::new();
        text_pool.drain(list, |tag, bytes| found.push((tag, bytes.to_vec())));
        found
    }

    #[test]
    fn notes_come_back_as_they_were() {
        let mut text_pool = TextPool::new(40).unwrap();
        for round in 0..10 {
            let mut lists = [TextList::default(); 2];
            for (at, len) in [0, 1, 51, 52, 53, 108, 109, 300].into_iter().enumerate() {
                let bytes: Vec<u8> = (0..len).map(|n| (n + round) as u8).collect();
                text_pool.add(&mut lists[at % 2], at as u8, &bytes);
            }
            for (at, list) in lists.iter_mut().enumerate() {
                let found = all(&mut text_pool, list);
                let lens: Vec<usize> = found.iter().map(|(_, bytes)| bytes.len()).collect();
                assert_eq!(lens, [[109, 53, 51, 0], [300, 108, 52, 1]][at]);
                assert!(
                    found.iter().all(|(_, bytes)| bytes
                        .iter()
                        .enumerate()
                        .all(|(n, byte)| *byte == (n + round) as u8))
                );
                assert!(all(&mut text_pool, list).is_empty());
            }
        }
        assert_eq!(text_pool.refused, 0);
        assert!(text_pool.blocks.len() <= 40);
    }

    #[test]
    fn texts_without_room_are_counted() {
        let (mut text_pool, mut list) = (TextPool::new(3).unwrap(), TextList::default());
        text_pool.add(&mut list, 1, &[1; 100]);
        text_pool.add(&mut list, 2, &[2; 100]);
        text_pool.add(&mut list, 3, &[3; 10]);
        assert_eq!(text_pool.refused, 1);
        assert_eq!(all(&mut text_pool, &mut list), [(3, vec![3; 10]), (1, vec![1; 100])]);
        text_pool.add(&mut list, 4, &[4; 164]);
        assert_eq!((text_pool.refused, all(&mut text_pool, &mut list).len()), (1, 1));
    }
}
