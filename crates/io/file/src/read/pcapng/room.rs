//! Memory for the names, filters, comments and other options of a file.

/// Bytes that are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room(usize);

/// Bytes that an option takes in addition to its value, at most: an entry of a table and a piece of the heap.
const OPTION_COST: usize = 48;

impl Room {
    /// Bytes for one file.
    pub(crate) const MAX: usize = 64 << 20;

    /// Takes the memory for a value of `len` bytes; `None` if there is not as much.
    pub(crate) fn take(&mut self, len: usize) -> Option<()> {
        // Bytes that are not UTF-8 grow threefold as text.
        self.0 = self.0.checked_sub(len.saturating_mul(3).saturating_add(OPTION_COST))?;
        Some(())
    }

    /// Bytes that were taken since there was as much room as `before`.
    pub(crate) fn taken_since(self, before: Room) -> usize {
        before.0.saturating_sub(self.0)
    }

    /// Releases bytes that were taken.
    pub(crate) fn give_back(&mut self, len: usize) {
        self.0 = self.0.saturating_add(len).min(Room::MAX);
    }
}

impl Default for Room {
    fn default() -> Room {
        Room(Room::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends() {
        let mut room = Room(100);
        assert_eq!((room.take(4), room.take(0), room.take(0)), (Some(()), None, None));
        assert_eq!(Room::default().take(usize::MAX), None);
    }
}
