//! Changes to a set while packets flow.
//!
//! ```text
//!                    +--channel--> Replica of worker 0    apply() between two batches
//! SetUpdater --commit---+--channel--> Replica of worker 1    apply() between two batches
//! ```
//!
//! Each worker has the whole set for itself, so that classifying takes no lock and never waits. One writer sends
//! changes to all. Changes that are committed together become visible together, at a worker's next `apply`: a batch
//! sees all of a commit or none of it, and commits in their order. A change is visible at the latest one batch and
//! the changes before it after its commit; [`SetUpdater::last_visible_commit`] returns the last commit that
//! all workers use. The price is memory: one set of tables for each worker; the filters themselves are shared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{Filter, FilterId, FilterSet, MatchPolicy, SetError};

/// Commits that a worker may be behind; [`SetUpdater::commit`] then waits for no one and sends nothing.
pub const LAG_MAX: u64 = 4096;

/// A change, which every replica makes.
#[derive(Clone, Debug)]
enum Change {
    Insert(Arc<Filter>, u32),
    Remove(FilterId),
    Exchange(FilterId, Arc<Filter>),
}

/// The writer's side: lists the contents of the set, and makes changes.
#[derive(Debug)]
pub struct SetUpdater {
    places: Vec<MirrorSlot>,
    free: Vec<u32>,
    collected: Vec<Change>,
    commits: u64,
    workers: Vec<Worker>,
}

/// The way to a worker.
#[derive(Debug)]
struct Worker {
    changes: Sender<Arc<[Change]>>,
    /// Commits that it has applied.
    applied: Arc<AtomicU64>,
}

/// Mirrors a slot of the replicas.
#[derive(Debug, Default)]
struct MirrorSlot {
    generation: u32,
    filter: Option<Arc<Filter>>,
}

/// A worker's set.
#[derive(Debug)]
pub struct Replica {
    /// The set. Changing it otherwise than by [`apply`](Self::apply) parts it from the others.
    set: FilterSet,
    changes: Receiver<Arc<[Change]>>,
    applied: Arc<AtomicU64>,
}

impl SetUpdater {
    /// Empty sets for `workers` workers.
    pub fn new(mode: MatchPolicy, workers: usize) -> (SetUpdater, Vec<Replica>) {
        let mut replicas = Vec::with_capacity(workers);
        let mut ends = Vec::with_capacity(workers);
        for _ in 0..workers {
            let ((sender, changes), applied) = (channel(), Arc::<AtomicU64>::default());
            ends.push(Worker { changes: sender, applied: Arc::clone(&applied) });
            replicas.push(Replica { set: FilterSet::new(mode), changes, applied });
        }
        let updates = SetUpdater {
            places: Vec::new(),
            free: Vec::new(),
            collected: Vec::new(),
            commits: 0,
            workers: ends,
        };
        (updates, replicas)
    }

    /// Adds a filter with the next commit; see [`FilterSet::insert`].
    pub fn insert(&mut self, filter: impl Into<Arc<Filter>>, priority: u32) -> FilterId {
        let filter = filter.into();
        let index = self.free.pop().unwrap_or(self.places.len() as u32);
        if index as usize == self.places.len() {
            self.places.push(MirrorSlot::default());
        }
        let place = &mut self.places[index as usize];
        place.filter = Some(Arc::clone(&filter));
        let id = FilterId { index, generation: place.generation };
        self.collected.push(Change::Insert(filter, priority));
        id
    }

    /// Takes a filter out with the next commit.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn remove(&mut self, id: FilterId) -> Result<Arc<Filter>, SetError> {
        let place = self.place(id)?;
        place.generation += 1;
        let filter = place.filter.take().ok_or(SetError::NoSuchFilter)?;
        self.free.push(id.index);
        self.collected.push(Change::Remove(id));
        Ok(filter)
    }

    /// Puts another filter in the place of one with the next commit.
    ///
    /// # Errors
    /// If it is not in the set.
    pub fn replace(&mut self, id: FilterId, filter: impl Into<Arc<Filter>>) -> Result<Arc<Filter>, SetError> {
        let filter = filter.into();
        let old = self.place(id)?.filter.replace(Arc::clone(&filter)).ok_or(SetError::NoSuchFilter)?;
        self.collected.push(Change::Exchange(id, filter));
        Ok(old)
    }

    /// Exchanges constants with the next commit; see [`FilterSet::set_constants`].
    ///
    /// # Errors
    /// If the filter is not in the set, or its constants cannot be exchanged; it stays as it was.
    pub fn set_constants(&mut self, id: FilterId, changes: &[(usize, u32)]) -> Result<(), SetError> {
        let filter = self.place(id)?.filter.as_ref().ok_or(SetError::NoSuchFilter)?.with(changes)?;
        self.replace(id, filter).map(|_| ())
    }

    /// Sends the changes since the last commit, as one. Returns the number of the commit, or `None` if a worker is
    /// [`LAG_MAX`] commits behind: the changes stay collected, for the next call. Workers that are gone are
    /// forgotten.
    pub fn commit(&mut self) -> Option<u64> {
        if self.commits - self.last_visible_commit() >= LAG_MAX {
            return None;
        }
        if !self.collected.is_empty() {
            self.commits += 1;
            let changes: Arc<[Change]> = std::mem::take(&mut self.collected).into();
            self.workers.retain(|worker| worker.changes.send(Arc::clone(&changes)).is_ok());
        }
        Some(self.commits)
    }

    /// The last commit that all workers have applied.
    pub fn last_visible_commit(&self) -> u64 {
        let applied = self.workers.iter().map(|worker| worker.applied.load(Ordering::Acquire));
        applied.min().unwrap_or(self.commits)
    }

    fn place(&mut self, id: FilterId) -> Result<&mut MirrorSlot, SetError> {
        let place = self.places.get_mut(id.index as usize);
        place
            .filter(|place| place.generation == id.generation && place.filter.is_some())
            .ok_or(SetError::NoSuchFilter)
    }
}

impl Replica {
    /// Applies the commits that have arrived, until `changes_max` changes are made or passed; call it between
    /// batches. Gives the number of changes. A commit is never split.
    pub fn apply(&mut self, changes_max: usize) -> usize {
        let (mut commits, mut changes) = (0, 0);
        while changes < changes_max
            && let Ok(commit) = self.changes.try_recv()
        {
            commits += 1;
            changes += commit.len();
            commit.iter().for_each(|change| self.make(change));
        }
        if commits > 0 {
            self.applied.fetch_add(commits, Ordering::Release);
        }
        changes
    }

    /// The set, to classify with.
    pub fn set(&mut self) -> &mut FilterSet {
        &mut self.set
    }

    /// Makes a change. The same change on the same set gives the same ids, and was checked by the writer.
    fn make(&mut self, change: &Change) {
        let made = match change {
            Change::Insert(filter, priority) => {
                self.set.insert(Arc::clone(filter), *priority);
                Ok(())
            }
            Change::Remove(id) => self.set.remove(*id).map(|_| ()),
            Change::Exchange(id, filter) => self.set.replace(*id, Arc::clone(filter)).map(|_| ()),
        };
        debug_assert!(made.is_ok(), "a replica was changed by others: {change:?}");
    }
}
