//! The first bytes of TCP streams, put together where they came in pieces.
//!
//! Most hellos and requests come in one segment and are read where they lie. For others there are buffers that all
//! flows share, one a stream at a time; the one that was taken longest ago is given up if there is none.

use std::collections::TryReserveError;

use tapline_dissect::quic::ConnectionId;

/// The most bytes of a stream that are put together.
pub(super) const LEN: usize = 8192;
const BUFFERS: usize = 512;
const NO_BUFFER: u16 = u16::MAX;

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// The number of the first byte, once it is known.
    start: u32,
    buffer: u16,
    is_known: bool,
    is_done: bool,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { start: 0, buffer: NO_BUFFER, is_known: false, is_done: false }
    }
}

impl Stream {
    /// A SYN says where it begins.
    pub(super) fn begin(&mut self, seq: u32) {
        if !self.is_known {
            (self.start, self.is_known) = (seq.wrapping_add(1), true);
        }
    }

    /// Whether it is known where it begins.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }
}

/// Whether the parser of a stream needs more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseProgress {
    Done,
    NeedMore,
}

struct Buffer {
    bytes: [u8; LEN],
    /// Bytes from the first one on that are there.
    len: usize,
    /// Pieces further on that came before them, from and to, in ascending order with holes in between.
    later: Ranges,
    owner: Option<(u32, u8)>,
    /// Connection ID of QUIC, from which the keys of the packets follow.
    id: ConnectionId,
}

pub(super) struct Buffers {
    all: Vec<Buffer>,
    /// The slot at which the search for a buffer goes on.
    hand: usize,
    pub(super) given_up: u64,
}

impl Buffers {
    pub(super) fn new() -> Result<Buffers, TryReserveError> {
        let mut all = Vec::new();
        all.try_reserve_exact(BUFFERS)?;
        Ok(Buffers { all, hand: 0, given_up: 0 })
    }

    /// Adds a segment to the stream of a flow's side, and has `read` look at the bytes from the first one on, until
    /// it is done. `read` gets to know whether more can come: not after a segment that was not captured whole, and
    /// not beyond [`LEN`].
    pub(super) fn add(
        &mut self,
        owner: (u32, u8),
        stream: &mut Stream,
        seq: u32,
        payload: &[u8],
        is_whole: bool,
        read: impl FnOnce(&[u8], bool) -> ParseProgress,
    ) {
        if stream.is_done || payload.is_empty() {
            return;
        }
        if stream.buffer != NO_BUFFER && self.of(owner, stream).is_none() {
            // Another one has it.
            stream.is_done = true;
            return;
        }
        stream.begin(seq.wrapping_sub(1));
        let offset = seq.wrapping_sub(stream.start) as usize;
        if offset >= LEN {
            // Before its first byte, or much further on: what is missing will hardly come.
            return;
        }
        let progress = match self.of(owner, stream) {
            None if offset == 0 => read(payload, !is_whole || payload.len() >= LEN),
            None => ParseProgress::NeedMore,
            Some(at) => {
                let buffer = &mut self.all[at];
                match buffer.put(offset, payload) {
                    true => read(&buffer.bytes[..buffer.len], !is_whole || buffer.len == LEN),
                    false => ParseProgress::NeedMore,
                }
            }
        };
        if progress == ParseProgress::Done || !is_whole {
            return self.end(owner, stream);
        }
        if self.of(owner, stream).is_none() {
            let at = self.take();
            let buffer = &mut self.all[at];
            buffer.owner = Some(owner);
            stream.buffer = at as u16;
            buffer.put(offset, payload);
        }
        if self.all[usize::from(stream.buffer)].len == LEN {
            self.end(owner, stream);
        }
    }

    /// The QUIC connection id that the keys of the stream's packets are derived from, if the stream has a buffer.
    pub(super) fn id(&mut self, owner: (u32, u8), stream: &Stream) -> Option<&mut ConnectionId> {
        self.of(owner, stream).map(|at| &mut self.all[at].id)
    }

    /// The stream's buffer, if it still has it.
    fn of(&self, owner: (u32, u8), stream: &Stream) -> Option<usize> {
        let at = usize::from(stream.buffer);
        self.all.get(at).is_some_and(|buffer| buffer.owner == Some(owner)).then_some(at)
    }

    /// Gives up a stream's buffer; it is done.
    pub(super) fn end(&mut self, owner: (u32, u8), stream: &mut Stream) {
        if let Some(at) = self.of(owner, stream) {
            self.all[at].owner = None;
        }
        (stream.buffer, stream.is_done) = (NO_BUFFER, true);
    }

    fn take(&mut self) -> usize {
        const EMPTY: Buffer =
            Buffer { bytes: [0; LEN], len: 0, later: Ranges::EMPTY, owner: None, id: ConnectionId::NONE };
        let at = self.hand;
        self.hand = (self.hand + 1) % BUFFERS;
        match self.all.get_mut(at) {
            Some(buffer) => {
                self.given_up += u64::from(buffer.owner.is_some());
                (buffer.len, buffer.later) = (0, Ranges::EMPTY);
            }
            None => self.all.push(EMPTY),
        }
        at
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.hand = 0;
    }
}

impl Buffer {
    /// Puts bytes where they belong, as far as there is room. Whether more are there from the first one on.
    fn put(&mut self, offset: usize, bytes: &[u8]) -> bool {
        let end = (offset + bytes.len()).min(LEN);
        let before = self.len;
        if offset <= self.len {
            if end > self.len {
                self.bytes[offset..end].copy_from_slice(&bytes[..end - offset]);
                self.len = end;
            }
        } else if self.later.add(offset, end) {
            self.bytes[offset..end].copy_from_slice(&bytes[..end - offset]);
        }
        self.len = self.later.reach(self.len);
        self.len > before
    }
}

/// Pieces that are there behind holes: clients of QUIC shuffle their hello, and put it into several packets.
const PIECES: usize = 32;

/// Ranges that neither touch nor overlap, in ascending order.
struct Ranges {
    all: [(u16, u16); PIECES],
    count: usize,
}

impl Ranges {
    const EMPTY: Ranges = Ranges { all: [(0, 0); PIECES], count: 0 };

    /// Adds one. Whether there is room for it.
    fn add(&mut self, from: usize, to: usize) -> bool {
        let (mut from, mut to) = (from as u16, to as u16);
        let known = &self.all[..self.count];
        let first = known.partition_point(|(_, end)| *end < from);
        let behind = known.partition_point(|(begin, _)| *begin <= to);
        if let Some((begin, end)) = known.get(first).zip(known[..behind].last()).filter(|_| first < behind) {
            (from, to) = (from.min(begin.0), to.max(end.1));
        } else if self.count == PIECES {
            return false;
        }
        // Ranges that the new one touches are merged with it.
        self.all.copy_within(behind..self.count, first + 1);
        self.all[first] = (from, to);
        self.count = first + 1 + self.count - behind;
        true
    }

    /// End of the contiguous bytes from `len` on; removes the segments that it covers.
    fn reach(&mut self, len: usize) -> usize {
        let mut len = len as u16;
        let mut done = 0;
        while let Some(&(_, to)) = self.all[..self.count].get(done).filter(|(from, _)| *from <= len) {
            len = len.max(to);
            done += 1;
        }
        self.all.copy_within(done..self.count, 0);
        self.count -= done;
        len.into()
    }
}

const _: () = assert!(LEN <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    /// The prefixes that the reader got from segments at these offsets.
    fn looked(buffers: &mut Buffers, segments: &[(u32, &[u8])], enough: usize) -> Vec<Vec<u8>> {
        let (mut stream, mut seen) = (Stream::default(), Vec::new());
        stream.begin(u32::MAX - 3);
        for (offset, bytes) in segments {
            let seq = (u32::MAX - 2).wrapping_add(*offset);
            buffers.add((1, 0), &mut stream, seq, bytes, true, |bytes, _| {
                seen.push(bytes.to_vec());
                if bytes.len() >= enough { ParseProgress::Done } else { ParseProgress::NeedMore }
            });
        }
        assert_eq!(stream.is_done(), seen.last().is_some_and(|bytes| bytes.len() >= enough));
        buffers.end((1, 0), &mut stream);
        seen
    }

    #[test]
    fn pieces_are_put_together() {
        let mut buffers = Buffers::new().unwrap();
        let mut view = |segments: &[(u32, &[u8])], enough| looked(&mut buffers, segments, enough);
        assert_eq!(view(&[(0, b"abc")], 3), [b"abc"]);
        assert_eq!(view(&[(0, b"abc"), (3, b"def")], 6), [b"abc".to_vec(), b"abcdef".to_vec()]);
        assert_eq!(
            view(&[(0, b"abc"), (6, b"ghi"), (3, b"def")], 9),
            [b"abc".to_vec(), b"abcdefghi".to_vec()]
        );
        // The first one comes last; what overlaps; what comes again.
        assert_eq!(view(&[(3, b"def"), (0, b"abc")], 6), [b"abcdef"]);
        assert_eq!(view(&[(0, b"abc"), (1, b"bcde"), (0, b"ab"), (5, b"f")], 6).last().unwrap(), b"abcdef");
        assert_eq!(
            view(&[(6, b"gh"), (3, b"d"), (0, b"a"), (4, b"ef"), (1, b"bc")], 8),
            [b"a".to_vec(), b"abcdefgh".to_vec()]
        );
    }

    /// Against a map of bytes, with pieces of chance.
    #[test]
    fn ranges_are_those_of_a_map_of_bytes() {
        let mut chance = tapline_testkit::random::Random::new(7);
        for _ in 0..2000 {
            let (mut ranges, mut map, mut len) = (Ranges::EMPTY, [false; 200], 0);
            for _ in 0..60 {
                let from = chance.below(199) as usize + 1;
                let to = (from + 1 + chance.below(8) as usize).min(200);
                if from > len && ranges.add(from, to) {
                    map[from..to].fill(true);
                }
                if chance.below(20) == 0 {
                    len = (len + 1 + chance.below(10) as usize).min(200);
                    map[..len].fill(true);
                }
                len = ranges.reach(len);
                assert_eq!(len, map.iter().position(|is_there| !is_there).unwrap_or(200));
                let known = &ranges.all[..ranges.count];
                assert!(known.windows(2).all(|pair| pair[0].1 < pair[1].0), "{known:?}");
                let there: usize = known.iter().map(|(from, to)| usize::from(to - from)).sum();
                assert_eq!(len + there, map.iter().filter(|is_there| **is_there).count());
            }
        }
    }

    /// A range beyond the limit is left out, and the reach stays right.
    #[test]
    fn ranges_are_limited() {
        let mut ranges = Ranges::EMPTY;
        for at in 0..PIECES {
            assert!(ranges.add(10 * at + 5, 10 * at + 7));
        }
        assert!(!ranges.add(1000, 1001) && !ranges.add(1, 3));
        // Ranges that touch others need no room, even between the last.
        assert!(ranges.add(7, 8) && ranges.add(10 * PIECES - 13, 10 * PIECES - 5));
        assert_eq!((ranges.count, ranges.reach(5)), (PIECES - 1, 8));
    }

    #[test]
    fn long_streams_end_and_far_segments_are_ignored() {
        let mut buffers = Buffers::new().unwrap();
        let long = vec![7; LEN - 1];
        let seen = looked(&mut buffers, &[(0, b"a"), (1, &long)], LEN);
        assert_eq!(seen.last().map(Vec::len), Some(LEN));
        assert_eq!(looked(&mut buffers, &[(LEN as u32, b"x"), (u32::MAX, b"y"), (0, b"a")], 1), [b"a"]);
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut buffers = Buffers::new().unwrap();
        let mut streams = vec![Stream::default(); BUFFERS + 10];
        for (at, stream) in streams.iter_mut().enumerate() {
            buffers.add((at as u32, 0), stream, 1, b"a", true, |_, _| ParseProgress::NeedMore);
        }
        assert_eq!((buffers.given_up, buffers.all.len()), (10, BUFFERS));
        // A stream that lost its buffer is not read further; the others are.
        let mut looks = 0;
        for (at, stream) in streams.iter_mut().enumerate().skip(9) {
            buffers.add((at as u32, 0), stream, 2, b"b", true, |bytes, _| {
                looks += usize::from(bytes == b"ab");
                ParseProgress::Done
            });
        }
        assert_eq!(looks, BUFFERS);
    }
}
