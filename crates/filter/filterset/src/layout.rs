//! Keys: the parts that filters compare with constants, side by side in a few words.
//!
//! ```text
//! parts     type 12:2   fragment 20:2&1fff   protocol 23:1   source 26:4   destination 30:4   ports x+14:2 x+16:2
//! windows   [12..14)    [20..28)                             [28..34)                         [x+14..x+18)
//! key       [20..28) & mask | [28..34) [12..14) | [x+14..x+18)          in words of 64 bits
//! ```
//!
//! A window is up to 8 bytes that are read at once and masked; windows of few bytes share a word. Two lists of parts
//! that look at the same bits have the same layout, and one lookup distinguishes filters of one layout.

use tapline_packet::Packet;

use super::field::{BitField, Origin, ipv4_header_len};
use tapline_bpf::load_ancillary;

/// Words of a key, at most.
pub(super) const WORDS_MAX: usize = 8;

const WORD: u64 = 8;

/// Bytes read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Window {
    origin: Origin,
    /// From the origin.
    start: u32,
    /// 1 to 8 bytes.
    len: u8,
    /// The bits that count, of the bytes as a big-endian number.
    mask: u64,
    /// The word of the key, and the place in it, to which they go.
    word: u8,
    shift: u8,
}

impl Window {
    fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.len)
    }

    fn kind(&self) -> u8 {
        match self.origin {
            Origin::Start => 0,
            Origin::Ipv4Len(_) => 1,
            Origin::Len | Origin::Kernel(_) => 2,
        }
    }

    /// Reads the layout's bits in the packet into the key.
    #[inline(always)]
    fn read(&self, data: &[u8], base: usize, key: &mut [u64; WORDS_MAX]) -> Option<()> {
        let bytes = data.get(base + self.start as usize..)?;
        let value = match bytes.first_chunk::<8>() {
            Some(all) => u64::from_be_bytes(*all) >> (64 - 8 * u32::from(self.len)),
            None => short(bytes.get(..usize::from(self.len))?),
        };
        self.put(value, key);
        Some(())
    }

    #[inline(always)]
    fn put(&self, value: u64, key: &mut [u64; WORDS_MAX]) {
        key[usize::from(self.word) % WORDS_MAX] |= (value & self.mask) << (self.shift % 64);
    }

    fn holds(&self, part: BitField) -> bool {
        self.origin == part.origin && self.start <= part.offset && part.end() <= self.end()
    }

    /// The place of a part of this window in its word: the bits by which it is shifted to the left.
    fn shift_of(&self, part: BitField) -> u32 {
        8 * (self.end() - part.end()) as u32 + u32::from(self.shift)
    }
}

/// The windows of a key, in an order that the bits alone decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    /// First those at fixed places, then those past IPv4 headers, then those that are not in the bytes.
    windows: Box<[Window]>,
    /// The index of the first window of the second kind, and of the third.
    kinds: [u8; 2],
    words: u8,
}

impl Layout {
    /// The layout for parts that ascend; `None` if the key would be too long.
    pub(super) fn new(parts: &[BitField]) -> Option<Layout> {
        let mut windows = grouped(parts);
        // Long ones first, so that short ones fill what they leave.
        windows.sort_by_key(|window| std::cmp::Reverse(window.len));
        let mut used: Vec<u64> = Vec::with_capacity(WORDS_MAX);
        for window in &mut windows {
            let len = u64::from(window.len);
            let word = match used.iter().position(|used| used + len <= WORD) {
                Some(word) => word,
                None => {
                    used.push(0);
                    used.len() - 1
                }
            };
            window.word = word as u8;
            window.shift = (8 * used[word]) as u8;
            used[word] += len;
        }
        windows.sort_by_key(|window| (window.kind(), window.origin, window.start));
        let first = |kind| windows.partition_point(|window| window.kind() < kind) as u8;
        let kinds = [first(1), first(2)];
        let words = used.len();
        (words <= WORDS_MAX).then(|| Layout { windows: windows.into(), kinds, words: words as u8 })
    }

    /// Number of words of a key.
    pub(super) fn words(&self) -> usize {
        usize::from(self.words)
    }

    /// The key of a packet; `None` if bytes of it were not captured. `key` is all 0 before; [`words`](Self::words) of
    /// it are the key.
    #[inline]
    pub(super) fn read(&self, packet: Packet<'_>, key: &mut [u64; WORDS_MAX]) -> Option<()> {
        let [past, other] = self.kinds.map(usize::from);
        for window in self.windows.get(..past)? {
            window.read(packet.data, 0, key)?;
        }
        for window in self.windows.get(past..other)? {
            let Origin::Ipv4Len(header) = window.origin else { return None };
            window.read(packet.data, ipv4_header_len(packet.data, header)?, key)?;
        }
        for window in self.windows.get(other..)? {
            window.put(number(window.origin, packet)?, key);
        }
        Some(())
    }

    /// The key of these values of the parts that the layout was made of; `None` if parts that share bits disagree on
    /// them.
    pub(super) fn key(&self, values: &[(BitField, u32)]) -> Option<[u64; WORDS_MAX]> {
        let (mut key, mut settled) = ([0; WORDS_MAX], [0; WORDS_MAX]);
        for (part, value) in values {
            // Windows may overlap, each for parts of its own.
            for window in self.windows.iter().filter(|window| window.holds(*part)) {
                let (word, shift) = (usize::from(window.word), window.shift_of(*part));
                let bits = u64::from(part.mask) << shift & window.mask << window.shift;
                let value = u64::from(*value) << shift & bits;
                if (key[word] ^ value) & bits & settled[word] != 0 {
                    return None;
                }
                key[word] |= value;
                settled[word] |= bits;
            }
        }
        Some(key)
    }
}

impl Layout {
    /// Whether these parts are all that the key is made of.
    pub(super) fn is_covered_by(&self, parts: impl Iterator<Item = BitField> + Clone) -> bool {
        self.windows.iter().all(|window| {
            let held = parts.clone().filter(|part| window.holds(*part));
            let bits =
                held.map(|part| u64::from(part.mask) << (window.shift_of(part) - u32::from(window.shift)));
            bits.fold(0, |all, bits| all | bits) & window.mask == window.mask
        })
    }
}

/// Neighbours in windows; not yet placed in words.
fn grouped(parts: &[BitField]) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::with_capacity(parts.len());
    let mut firsts = Vec::with_capacity(parts.len());
    for (at, part) in parts.iter().enumerate() {
        if let Some(last) = windows.last_mut()
            && last.origin == part.origin
            && part.end() - u64::from(last.start) <= WORD
        {
            last.len = last.len.max((part.end() - u64::from(last.start)) as u8);
        } else {
            let BitField { origin, offset: start, width: len, .. } = *part;
            windows.push(Window { origin, start, len, mask: 0, word: 0, shift: 0 });
            firsts.push(at);
        }
    }
    firsts.push(parts.len());
    for (window, range) in windows.iter_mut().zip(firsts.windows(2)) {
        for part in &parts[range[0]..range[1]] {
            window.mask |= u64::from(part.mask) << window.shift_of(*part);
        }
    }
    windows
}

/// A part that is not in the packet's bytes.
fn number(origin: Origin, packet: Packet<'_>) -> Option<u64> {
    match origin {
        Origin::Kernel(k) => load_ancillary(k, packet.data, packet.meta).map(u64::from),
        _ => Some(u64::from(packet.meta.wire_len)),
    }
}

/// A few bytes at the end of a packet.
#[cold]
fn short(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::Meta;

    fn part(origin: Origin, offset: u32, width: u8, mask: u32) -> BitField {
        BitField { origin, offset, width, mask }
    }

    fn five_tuple() -> [BitField; 7] {
        let past = Origin::Ipv4Len(14);
        [
            part(Origin::Start, 12, 2, 0xffff),
            part(Origin::Start, 20, 2, 0x1fff),
            part(Origin::Start, 23, 1, 0xff),
            part(Origin::Start, 26, 4, u32::MAX),
            part(Origin::Start, 30, 4, u32::MAX),
            part(past, 14, 2, 0xffff),
            part(past, 16, 2, 0xffff),
        ]
    }

    #[test]
    fn packets_have_a_key_unless_they_are_cut() {
        let parts = five_tuple();
        let layout = Layout::new(&parts).unwrap();
        assert!(layout.words() <= 4);
        let mut data: Vec<u8> = (100..160).collect();
        data[14] = 0x46;
        let meta = Meta::default();
        for cut in 0..=data.len() {
            let packet = Packet { data: &data[..cut], meta: &meta };
            let mut key = [0; WORDS_MAX];
            let values: Option<Vec<(BitField, u32)>> =
                parts.iter().map(|part| Some((*part, part.read(packet)?))).collect();
            assert_eq!(layout.read(packet, &mut key).is_some(), values.is_some(), "{cut} bytes");
            if let Some(values) = values {
                assert_eq!(layout.key(&values), Some(key), "{cut} bytes");
            }
        }
    }

    #[test]
    fn parts_that_overlap_must_agree() {
        let (half, byte) = (part(Origin::Start, 12, 2, 0xffff), part(Origin::Start, 12, 1, 0xff));
        let layout = Layout::new(&[byte, half]).unwrap();
        assert!(layout.key(&[(byte, 8), (half, 0x0800)]).is_some());
        assert!(layout.key(&[(byte, 9), (half, 0x0800)]).is_none());
    }

    #[test]
    fn the_last_bytes_of_an_offset_space_are_a_window() {
        let layout = Layout::new(&[part(Origin::Start, u32::MAX, 4, 1)]).unwrap();
        let meta = Meta::default();
        assert!(layout.read(Packet { data: &[1; 64], meta: &meta }, &mut [0; WORDS_MAX]).is_none());
    }
}
