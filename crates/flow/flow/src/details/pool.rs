//! Entries for those flows that need one.
//!
//! ```text
//! slot of a flow --> number of its entry, or NONE --> entry        numbers of entries in no use
//! ```
//!
//! Address space for all entries is reserved when the pool is made. Memory is taken from the system as entries come
//! into use; returned entries are reused first.

use std::collections::TryReserveError;

use tapline_sys::memory;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Entries of one kind.
pub(super) struct Pool<T> {
    entries: Vec<T>,
    free: Vec<u32>,
    most: usize,
    /// Requests for an entry while all were in use.
    pub(super) refused: u64,
}

impl<T: Copy + Default> Pool<T> {
    /// Room for `most` entries.
    pub(super) fn new(most: usize) -> Result<Pool<T>, TryReserveError> {
        let most = most.min(NONE as usize - 1);
        let (mut entries, mut free) = (Vec::new(), Vec::new());
        entries.try_reserve_exact(most)?;
        free.try_reserve_exact(most)?;
        Ok(Pool { entries, free, most, refused: 0 })
    }

    /// Bytes of an entry, with its number among those in no use.
    pub(super) const fn entry_len() -> usize {
        size_of::<T>() + size_of::<u32>()
    }

    /// The entry of this number; `None` for [`NONE`].
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)
    }

    /// As `get`, without write access.
    pub(super) fn peek(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)
    }

    /// Prefetches the lines of an entry, if there is one.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        if number != NONE {
            memory::prefetch_element(&self.entries, number as usize);
            if size_of::<T>() > 64 {
                memory::prefetch_element(&self.entries, number as usize + 1);
            }
        }
    }

    /// The entry of this number, which becomes that of a new one if it is [`NONE`]; `None` if all are in use.
    #[inline]
    pub(super) fn get_or_take(&mut self, number: &mut u32) -> Option<&mut T> {
        if *number == NONE {
            *number = self.take()?;
        }
        self.get(*number)
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            self.entries[number as usize] = T::default();
            return Some(number);
        }
        if self.entries.len() == self.most {
            self.refused += 1;
            return None;
        }
        self.entries.push(T::default());
        Some(self.entries.len() as u32 - 1)
    }

    /// Returns an entry, if there is one; its number becomes [`NONE`].
    pub(super) fn give(&mut self, number: &mut u32) {
        let number = std::mem::replace(number, NONE);
        if number != NONE {
            self.free.push(number);
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.free.clear();
    }
}

/// One value for each slot of the flow table: numbers of pool entries, or state that every flow has.
pub(super) struct PerSlot<T>(Vec<T>);

impl<T: Copy> PerSlot<T> {
    /// Room for `flows_max` slots; for none if `is_wanted` is false.
    pub(super) fn new(is_wanted: bool, flows_max: usize) -> Result<PerSlot<T>, TryReserveError> {
        let mut all = Vec::new();
        all.try_reserve_exact(if is_wanted { flows_max } else { 0 })?;
        Ok(PerSlot(all))
    }

    /// Puts a slot into use; `empty` is its value. Its entries were given back when the previous flow ended.
    pub(super) fn begin(&mut self, slot: u32, empty: T) {
        match self.0.get_mut(slot as usize) {
            Some(here) => *here = empty,
            None => self.0.push(empty),
        }
    }

    #[inline]
    pub(super) fn get(&mut self, slot: u32) -> Option<&mut T> {
        self.0.get_mut(slot as usize)
    }

    /// Prefetches the line of a slot.
    #[inline]
    pub(super) fn prefetch(&self, slot: u32) {
        memory::prefetch_element(&self.0, slot as usize);
    }

    /// The value of a slot, without write access.
    #[inline]
    pub(super) fn peek(&self, slot: u32) -> Option<&T> {
        self.0.get(slot as usize)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_are_bounded() {
        let mut pool: Pool<u64> = Pool::new(2).unwrap();
        let mut numbers = [NONE; 3];
        for (at, number) in numbers.iter_mut().enumerate() {
            if let Some(entry) = pool.get_or_take(number) {
                *entry = at as u64 + 7;
            }
        }
        assert_eq!((numbers, pool.refused), ([0, 1, NONE], 1));
        assert_eq!(pool.get(1).copied(), Some(8));
        assert!(pool.get(NONE).is_none());
        pool.give(&mut numbers[0]);
        pool.give(&mut numbers[0]);
        assert_eq!(pool.get_or_take(&mut numbers[2]).copied(), Some(0), "as new");
        assert_eq!((numbers, pool.refused), ([NONE, 1, 0], 1));
    }
}
