//! Memory of the daemon that users have: indices of their readers, and buffers that were made for their rights.
//!
//! ```text
//! attach ---> charge for the index, of all workers ------> given back a minute after the reader left
//!        \--> charge for a buffer, if one is to be made -> given back when the buffer is
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Time for which an index counts after its reader left: a process may keep its memory mapped, so the rate of new
/// readers has to be limited too.
pub(crate) const LEFT_KEPT: Duration = Duration::from_secs(60);

/// Bytes by user.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<u32, u64>>);

/// The limit of one user in all.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    ledger: Arc<Ledger>,
    uid: u32,
    /// Bytes.
    most: u64,
}

/// Bytes that a user has, until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    uid: u32,
    bytes: u64,
}

/// Charges for indices of readers that left.
#[derive(Debug, Default)]
pub(crate) struct PastCharges(VecDeque<(Instant, Charge)>);

impl PastCharges {
    /// Keeps a charge from now on.
    pub(crate) fn keep(&mut self, now: Instant, charge: Option<Charge>) {
        self.0.extend(charge.map(|charge| (now, charge)));
    }

    /// Releases memory that was kept for [`LEFT_KEPT`].
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.0.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) >= LEFT_KEPT) {
            self.0.pop_front();
        }
    }
}

impl Ledger {
    /// The limits of a user.
    pub(crate) fn allowance(self: &Arc<Ledger>, uid: u32, most: u64) -> Allowance {
        Allowance { ledger: Arc::clone(self), uid, most }
    }

    /// All users that have something, and how much.
    pub(crate) fn users(&self) -> Vec<(u32, u64)> {
        self.lock().iter().map(|(uid, bytes)| (*uid, *bytes)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Allowance {
    /// Charges a user with `bytes` for `what`.
    ///
    /// # Errors
    /// If it would have more than it may, in words for it.
    pub(crate) fn charge(&self, bytes: u64, what: &str) -> Result<Charge, String> {
        let Allowance { ledger, uid, most } = self;
        let mut users = ledger.lock();
        let used = users.get(uid).copied().unwrap_or(0);
        if bytes > most.saturating_sub(used) {
            return Err(format!(
                "{what} would take {} MiB, and {} of the {} MiB that a user's readers may take (user_memory) are in use, by those that left within a minute too: end others, come later, ask for fewer entries, or ask the administrator of the daemon for more",
                bytes.div_ceil(MIB),
                used.div_ceil(MIB),
                most / MIB,
            ));
        }
        users.insert(*uid, used + bytes);
        Ok(Charge { ledger: Arc::clone(ledger), uid: *uid, bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut users = self.ledger.lock();
        let left = users.get(&self.uid).map_or(0, |used| used.saturating_sub(self.bytes));
        if left > 0 {
            users.insert(self.uid, left);
        } else {
            users.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_no_more_than_it_may() {
        let ledger = Arc::<Ledger>::default();
        let one = ledger.allowance(7, 10 * MIB);
        let first = one.charge(6 * MIB, "an index").unwrap();
        let error = one.charge(5 * MIB, "an index").unwrap_err();
        assert!(error.contains("an index would take 5 MiB, and 6 of the 10 MiB"), "{error}");
        let other = ledger.allowance(8, 10 * MIB).charge(5 * MIB, "an index").unwrap();
        assert_eq!(ledger.users(), [(7, 6 * MIB), (8, 5 * MIB)]);
        drop((first, other));
        assert_eq!(ledger.users(), []);
        one.charge(10 * MIB, "an index").unwrap();
    }

    #[test]
    fn an_index_counts_a_minute_after_its_reader_left() {
        let (ledger, mut left, now) = (Arc::<Ledger>::default(), PastCharges::default(), Instant::now());
        let allowance = ledger.allowance(7, 10 * MIB);
        left.keep(now, Some(allowance.charge(6 * MIB, "an index").unwrap()));
        left.keep(now, None);
        left.expire(now + LEFT_KEPT - Duration::from_nanos(1));
        assert!(allowance.charge(6 * MIB, "an index").is_err());
        left.expire(now + LEFT_KEPT);
        assert_eq!(ledger.users(), []);
    }
}
