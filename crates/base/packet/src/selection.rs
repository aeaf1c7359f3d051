//! The packets of a batch that are still wanted.

use crate::BATCH_MAX;

/// Indices into a batch, ascending, without repetition. Filters and samplers narrow it in place.
#[derive(Clone, Debug)]
pub struct Selection {
    indices: [u8; BATCH_MAX],
    len: usize,
}

impl Selection {
    /// No packet.
    pub const fn none() -> Selection {
        Selection { indices: [0; BATCH_MAX], len: 0 }
    }

    /// Selects the first `len` packets: all of a batch of that size.
    ///
    /// # Panics
    /// If `len` exceeds [`BATCH_MAX`].
    pub fn select_all(&mut self, len: usize) {
        assert!(len <= BATCH_MAX, "a batch holds at most {BATCH_MAX} packets");
        for (index, slot) in self.indices[..len].iter_mut().enumerate() {
            *slot = index as u8;
        }
        self.len = len;
    }

    /// No packet any more.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Selects one packet more. An index that is not behind those that are selected is ignored: it is already there,
    /// or comes too late.
    #[inline]
    pub fn push(&mut self, index: usize) {
        if index < BATCH_MAX && self.last().is_none_or(|last| last < index) {
            self.indices[self.len] = index as u8;
            self.len += 1;
        }
    }

    /// Number of selected packets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The greatest index that is selected.
    pub fn last(&self) -> Option<usize> {
        self.indices[..self.len].last().map(|&index| usize::from(index))
    }

    /// The selected indices, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.indices[..self.len].iter().map(|&i| usize::from(i))
    }

    /// Keeps the packets for which `keep` is true. Writes each slot without a branch on the outcome.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut kept = 0;
        for read in 0..self.len {
            let index = self.indices[read];
            self.indices[kept] = index;
            kept += usize::from(keep(usize::from(index)));
        }
        self.len = kept;
    }

    /// Hands the selected indices to an engine that narrows them by itself: it moves those that it keeps to the
    /// front, in order, and returns how many they are. More than there were count as all.
    #[inline]
    pub fn narrow(&mut self, engine: impl FnOnce(&mut [u8]) -> usize) {
        let kept = engine(&mut self.indices[..self.len]);
        self.truncate(kept);
    }

    /// Keeps at most the first `len` packets.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Default for Selection {
    fn default() -> Selection {
        Selection::none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retain_narrows_in_order() {
        let mut selection = Selection::none();
        selection.select_all(BATCH_MAX);
        selection.retain(|i| i % 2 == 1);
        selection.retain(|i| i % 3 == 0);
        let expected: Vec<usize> = (0..BATCH_MAX).filter(|i| i % 6 == 3).collect();
        assert_eq!(selection.iter().collect::<Vec<_>>(), expected);
        selection.truncate(2);
        assert_eq!(selection.iter().collect::<Vec<_>>(), [3, 9]);
    }

    #[test]
    fn pushed_indices_ascend() {
        let mut selection = Selection::none();
        assert_eq!(selection.last(), None);
        for index in [3, 3, 2, 7, 255, 256, 9] {
            selection.push(index);
        }
        assert_eq!(selection.iter().collect::<Vec<_>>(), [3, 7, 255]);
        assert_eq!(selection.last(), Some(255));
        selection.clear();
        selection.push(0);
        assert_eq!(selection.iter().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn an_engine_narrows_the_selection() {
        let mut selection = Selection::none();
        selection.select_all(4);
        selection.narrow(|indices| {
            assert_eq!(indices, [0, 1, 2, 3]);
            indices[0] = 2;
            1
        });
        assert_eq!(selection.iter().collect::<Vec<_>>(), [2]);
        selection.narrow(|_| 5);
        assert_eq!(selection.len(), 1);
    }
}
