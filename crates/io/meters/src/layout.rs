//! Layout of a file of meters: `docs/format/meters.md` in constants. Offsets are in words of 8 bytes.

/// Words of the header, and of each slot.
pub(crate) const SLOT_WORDS: usize = 128;
/// Bytes of the header, and of each slot.
pub(crate) const SLOT_LEN: usize = SLOT_WORDS * 8;
/// Slots in a file.
pub const SLOTS_MAX: usize = 1024;
/// Bytes of a file.
pub(crate) const FILE_LEN: usize = (SLOTS_MAX + 1) * SLOT_LEN;
/// Further counters in a slot.
pub const EXTRAS_MAX: usize = 8;

pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"TAPMETER");
pub(crate) const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
pub(crate) const VERSION: u64 = 1;

/// Places in the header.
pub(crate) mod header {
    use std::ops::Range;

    pub(crate) const MAGIC: usize = 0;
    pub(crate) const BYTE_ORDER: usize = 1;
    pub(crate) const VERSION: usize = 2;
    pub(crate) const PROCESS: usize = 3;
    pub(crate) const CREATED: usize = 4;
    pub(crate) const FREQUENCY: usize = 5;
    pub(crate) const CLOCK: usize = 6;
    pub(crate) const READ_COST: usize = 7;
    pub(crate) const SLOTS: usize = 8;
    pub(crate) const SLOT_LEN: usize = 9;
    pub(crate) const USED: usize = 10;
    pub(crate) const TITLE: Range<usize> = 16..32;
}

/// Places in a slot.
pub(crate) mod slot {
    use std::ops::Range;

    use super::EXTRAS_MAX;
    use crate::histogram::BUCKETS;

    pub(crate) const TAG: usize = 0;
    pub(crate) const BATCHES: usize = 1;
    pub(crate) const PACKETS_IN: usize = 2;
    pub(crate) const BYTES_IN: usize = 3;
    pub(crate) const PACKETS_OUT: usize = 4;
    pub(crate) const BYTES_OUT: usize = 5;
    pub(crate) const CYCLES: usize = 6;
    pub(crate) const SINCE: usize = 7;
    pub(crate) const HISTOGRAM: Range<usize> = 8..8 + BUCKETS;
    pub(crate) const NAME: Range<usize> = 90..98;
    pub(crate) const CLASS: Range<usize> = 98..101;
    pub(crate) const EXTRAS: usize = 104;
    /// Words of a further counter: its name, then its value.
    pub(crate) const EXTRA_WORDS: usize = 3;
    pub(crate) const EXTRA_NAME_WORDS: usize = 2;

    const _: () = assert!(HISTOGRAM.end == NAME.start);
    const _: () = assert!(EXTRAS + EXTRAS_MAX * EXTRA_WORDS == super::SLOT_WORDS);
}

/// State of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotState {
    /// Nothing.
    #[default]
    Free = 0,
    /// The counters of something that runs.
    Used = 1,
    /// The last counters of something that is gone.
    Retired = 2,
}

/// Kind of the stage that owns a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A stage of the graph.
    #[default]
    Stage = 0,
    /// A source: an interface, a file.
    Source = 1,
    /// An output: a file, a printer.
    Sink = 2,
    /// An interface or a file: packets that it received and lost, as further counters.
    Interface = 3,
}

/// The first word of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) state: SlotState,
    pub(crate) kind: Kind,
    pub(crate) worker: u16,
    /// Number of times that the slot was reused.
    pub(crate) generation: u32,
}

impl Tag {
    pub(crate) fn word(self) -> u64 {
        self.state as u64
            | (self.kind as u64) << 8
            | u64::from(self.worker) << 16
            | u64::from(self.generation) << 32
    }

    /// `None` for states and kinds that do not exist: the file is damaged.
    pub(crate) fn of_word(word: u64) -> Option<Tag> {
        let [state, kind, ..] = word.to_le_bytes();
        let states = [SlotState::Free, SlotState::Used, SlotState::Retired];
        let kinds = [Kind::Stage, Kind::Source, Kind::Sink, Kind::Interface];
        Some(Tag {
            state: states.into_iter().find(|known| *known as u8 == state)?,
            kind: kinds.into_iter().find(|known| *known as u8 == kind)?,
            worker: (word >> 16) as u16,
            generation: (word >> 32) as u32,
        })
    }
}

/// A text as `N` words, cut between two characters if it is too long, and at a zero.
pub fn words_of<const N: usize>(text: &str) -> [u64; N] {
    let text = text.split('\0').next().unwrap_or_default();
    let bytes = &text.as_bytes()[..text.floor_char_boundary(N * 8)];
    let mut words = [0; N];
    for (word, piece) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..piece.len()].copy_from_slice(piece);
        *word = u64::from_ne_bytes(whole);
    }
    words
}

/// The text in some words, up to the first zero. Invalid UTF-8 is replaced.
pub fn text_of(words: impl IntoIterator<Item = u64>) -> String {
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(text_of(words_of::<1>("1234567")), "1234567");
        assert_eq!(text_of(words_of::<1>("12345678")), "12345678");
        assert_eq!(text_of(words_of::<1>("1234567ä")), "1234567");
        assert_eq!(text_of(words_of::<1>("a\0b")), "a");
        assert_eq!(text_of([u64::from_ne_bytes([0xff; 8])]).chars().next(), Some('\u{fffd}'));
    }

    proptest! {
        #[test]
        fn tags_come_back(word in any::<u64>(), state in 0u64..4, kind in 0u64..4) {
            let word = word & !0xffff | kind << 8 | state;
            match Tag::of_word(word) {
                Some(tag) => prop_assert_eq!(tag.word(), word),
                None => prop_assert!(state == 3 || kind == 3),
            }
        }
    }
}
