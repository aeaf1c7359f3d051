//! Connections that have not yet shown a token. A new one ends the oldest beyond [`STRANGERS_MAX`], so that a browser
//! with a token finds room however many others stand there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::task::AbortHandle;

/// Connections without a token at a time.
const STRANGERS_MAX: usize = 64;

/// A connection, to be given up by its answer, or as a stranger.
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
}

/// Connections without a token, the oldest first.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<VecDeque<Connection>>);

impl Strangers {
    pub(crate) fn add(&self, connection: Connection) {
        let mut all = self.all();
        all.push_back(connection);
        let gone = if all.len() > STRANGERS_MAX { all.pop_front() } else { None };
        drop(all);
        gone.iter().for_each(Connection::give_up);
    }

    /// The connection has shown a token, or has ended.
    pub(crate) fn remove(&self, connection: &Connection) {
        self.all().retain(|stranger| !Arc::ptr_eq(&stranger.0, &connection.0));
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
