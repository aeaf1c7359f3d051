//! The filters that each packet of a batch matches.

use tapline_packet::BATCH_MAX;

/// For each packet of a batch, the filters that match it. Reused from batch to batch: its memory grows to the need of
/// the largest batch and then stays.
///
/// Filters are given by [`FilterId::index`](super::FilterId::index), ascending.
#[derive(Clone, Debug)]
pub struct Matches {
    ranges: [(u32, u32); BATCH_MAX],
    found: Vec<u32>,
    pub(super) scratch: Scratch,
    pub(super) late: super::fragments::Late,
}

/// The filters that match each packet of a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    pub(super) probes: Vec<Probe>,
    pub(super) keys: Vec<u64>,
    /// Filters that accept a packet of a lookup, by its index.
    pub(super) found: Vec<(u8, u32)>,
}

/// A lookup that was gathered and not yet made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) hash: u64,
    /// The start of its key.
    pub(super) key: u32,
    pub(super) shape: u16,
    pub(super) packet: u8,
}

impl Matches {
    /// Matches of an empty batch.
    pub fn new() -> Matches {
        Matches {
            ranges: [(0, 0); BATCH_MAX],
            found: Vec::new(),
            scratch: Scratch::default(),
            late: Default::default(),
        }
    }

    /// Reserves room for `matches` in a batch, so that up to there no more memory is allocated.
    pub fn with_capacity(matches: usize) -> Matches {
        Matches { found: Vec::with_capacity(matches), ..Matches::new() }
    }

    /// The filters that match the packet at `packet` in the batch; none for one that was not selected.
    ///
    /// # Panics
    /// If `packet` is not less than [`BATCH_MAX`].
    #[inline]
    pub fn of(&self, packet: usize) -> &[u32] {
        let (start, end) = self.ranges[packet];
        &self.found[start as usize..end as usize]
    }

    /// Writes the matches as a set of bits: bit `i % 64` of word `i / 64` for the filter with the index `i`. Filters
    /// beyond the length of `bits` are left out.
    ///
    /// # Panics
    /// If `packet` is not less than [`BATCH_MAX`].
    pub fn bits(&self, packet: usize, bits: &mut [u64]) {
        bits.fill(0);
        for filter in self.of(packet) {
            if let Some(word) = bits.get_mut(*filter as usize / 64) {
                *word |= 1 << (filter % 64);
            }
        }
    }

    /// Number of matches in the batch.
    pub fn total(&self) -> usize {
        self.ranges.iter().map(|(start, end)| (end - start) as usize).sum()
    }

    pub(super) fn clear(&mut self) {
        self.ranges = [(0, 0); BATCH_MAX];
        self.found.clear();
        self.late.clear();
    }

    /// Adds a match of the current packet.
    #[inline]
    pub(super) fn push(&mut self, filter: u32) {
        self.found.push(filter);
    }

    /// The place of the next match.
    #[inline]
    pub(super) fn mark(&self) -> usize {
        self.found.len()
    }

    /// The matches since `mark`.
    pub(super) fn since(&mut self, mark: usize) -> &mut [u32] {
        &mut self.found[mark..]
    }

    /// Keeps the first `len` matches since `mark`, as those of a packet.
    #[inline]
    pub(super) fn finish(&mut self, packet: usize, mark: usize, len: usize) {
        self.found.truncate(mark + len);
        self.ranges[packet] = (mark as u32, (mark + len) as u32);
    }

    /// Gives a packet the matches of another one of the batch.
    pub(super) fn share(&mut self, from: usize, to: usize) {
        self.ranges[to] = self.ranges[from];
    }
}

impl Default for Matches {
    fn default() -> Matches {
        Matches::new()
    }
}
