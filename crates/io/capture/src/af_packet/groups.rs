//! Fanout groups of workers, one for each interface that is there.
//!
//! ```text
//! the first socket makes the group of an interface, the others join it
//! the interface is removed:   its sockets keep the group, which no socket of another interface can join; so where the
//!                             number comes again, its sockets begin with a new one
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapline_sys::SyscallError;

/// Groups by the number of the interface, for all workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(Arc<Mutex<BTreeMap<u32, u16>>>);

impl Groups {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `join` join the known group of an interface, or make one. Returns its number.
    pub(super) fn join(
        &self,
        if_index: u32,
        join: impl FnOnce(Option<u16>) -> Result<u16, SyscallError>,
    ) -> Result<u16, SyscallError> {
        let mut groups = self.lock();
        let group = join(groups.get(&if_index).copied())?;
        groups.insert(if_index, group);
        Ok(group)
    }

    /// Forgets the group that the number had, which is that of a removed interface.
    pub(super) fn forget(&self, if_index: u32) {
        self.lock().remove(&if_index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_comes_again_has_a_group_of_its_own() {
        let groups = Groups::default();
        let join = |new| groups.join(5, |known| Ok(known.unwrap_or(new))).unwrap();
        assert_eq!((join(1), join(2)), (1, 1), "the second worker joins");
        groups.forget(5);
        assert_eq!((join(3), join(4)), (3, 3));
    }
}
