//! Connections by their owners, and who gives way where there are too many. One that has not yet shown a token is a
//! stranger's. A new one ends the oldest of the owner who has the most, so that a browser with a token finds room however
//! many connections strangers or one user hold.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::task::AbortHandle;

/// Connections without a token at a time.
const STRANGERS_MAX: usize = 64;

/// A connection, to be given up by its answer, or because it gives way.
#[derive(Clone, Default)]
pub(crate) struct Connection(Arc<OnceLock<AbortHandle>>);

impl Connection {
    /// Sets the task that answers the connection.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        let _ = self.0.set(task);
    }

    pub(crate) fn give_up(&self) {
        if let Some(task) = self.0.get() {
            task.abort();
        }
    }

    fn is(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The user of a connection; `None` for a stranger.
type Owner = Option<String>;

/// Connections of one kind, the oldest first.
pub(crate) struct Visitors {
    most: usize,
    all: Mutex<VecDeque<(Connection, Owner)>>,
}

impl Visitors {
    /// Room for so many connections.
    pub(crate) fn new(most: usize) -> Visitors {
        Visitors { most, all: Mutex::default() }
    }

    /// Adds a connection; another one may give way. `false` if none does, because no owner has more than this one.
    pub(crate) fn add(&self, connection: &Connection, owner: Owner) -> bool {
        let mut all = self.all();
        let strangers = all.iter().filter(|(_, owner)| owner.is_none()).count();
        let gone = if owner.is_none() && strangers >= STRANGERS_MAX {
            oldest_of(&all, &None)
        } else if all.len() >= self.most {
            let Some(largest) = largest(&all, &owner) else { return false };
            oldest_of(&all, &largest)
        } else {
            None
        };
        let gone = gone.and_then(|at| all.remove(at));
        all.push_back((connection.clone(), owner));
        drop(all);
        gone.iter().for_each(|(connection, _)| connection.give_up());
        true
    }

    /// The connection has shown the token of a user.
    pub(crate) fn name(&self, connection: &Connection, user: &str) {
        let mut all = self.all();
        let known = all.iter_mut().find(|(other, owner)| owner.is_none() && other.is(connection));
        known.into_iter().for_each(|(_, owner)| *owner = Some(user.to_owned()));
    }

    /// The connection has ended.
    pub(crate) fn remove(&self, connection: &Connection) {
        self.all().retain(|(other, _)| !other.is(connection));
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<(Connection, Owner)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn oldest_of(all: &VecDeque<(Connection, Owner)>, owner: &Owner) -> Option<usize> {
    all.iter().position(|(_, other)| other == owner)
}

/// The owner with the most connections, if these are more than the newcomer will have. A stranger may turn out to be
/// any user.
fn largest(all: &VecDeque<(Connection, Owner)>, newcomer: &Owner) -> Option<Owner> {
    let mut counts: HashMap<&Owner, usize> = HashMap::new();
    all.iter().for_each(|(_, owner)| *counts.entry(owner).or_default() += 1);
    let own = if newcomer.is_some() { counts.get(newcomer).map_or(1, |count| count + 1) } else { 0 };
    let (owner, count) = counts.into_iter().max_by_key(|(owner, count)| (*count, owner.is_none()))?;
    (count > own).then(|| owner.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(visitors: &Visitors) -> Vec<usize> {
        let count =
            |name: Option<&str>| visitors.all().iter().filter(|(_, owner)| owner.as_deref() == name).count();
        vec![count(None), count(Some("a")), count(Some("b"))]
    }

    #[test]
    fn the_user_with_the_most_connections_gives_way() {
        let visitors = Visitors::new(100);
        let visit = |user: Option<&str>| {
            let connection = Connection::default();
            assert!(visitors.add(&connection, None));
            user.into_iter().for_each(|user| visitors.name(&connection, user));
            connection
        };
        (0..300).for_each(|_| drop(visit(Some("a"))));
        assert_eq!(owners(&visitors), [0, 100, 0]);
        let first = visit(Some("b"));
        (0..9).for_each(|_| drop(visit(Some("b"))));
        (0..300).for_each(|_| drop(visit(Some("a"))));
        assert_eq!(owners(&visitors), [0, 90, 10], "a's own gave way");
        (0..300).for_each(|_| drop(visit(None)));
        assert_eq!(owners(&visitors), [45, 45, 10], "of as many the strangers' give way");
        visitors.remove(&first);
        assert_eq!(owners(&visitors), [45, 45, 9]);
    }

    #[test]
    fn a_full_house_refuses_those_who_have_the_most() {
        let streams = Visitors::new(4);
        let add = |user: &str| streams.add(&Connection::default(), Some(user.to_owned()));
        assert!((0..4).all(|_| add("a")));
        assert!(!add("a"), "a has them all");
        assert!(add("b") && add("b") && !add("b"), "half each");
        assert_eq!(owners(&streams), [0, 2, 2]);
    }
}
