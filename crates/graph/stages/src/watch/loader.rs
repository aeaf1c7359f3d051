//! The thread that reads rules again when it is asked to, and lays them ready: packets do not wait for it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tapline_graph::Control;
use tapline_packet::Interface;
use tapline_watch::Program;

use super::compile::{WatchCompiler, folder, read};

/// Interval at which it is looked whether the stage is still there.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct LoaderState {
    interfaces: Vec<Interface>,
    ready: Option<Result<Program, String>>,
}

/// Rules that were read again.
pub(super) struct Loader {
    state: Arc<Mutex<LoaderState>>,
}

fn lock(state: &Mutex<LoaderState>) -> MutexGuard<'_, LoaderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loader {
    /// Starts the thread; it ends with the stage. `seen` is the number of requests before the rules were first read.
    pub(super) fn start(
        path: PathBuf,
        compile: Arc<WatchCompiler>,
        control: Arc<Control>,
        mut seen: u64,
    ) -> std::io::Result<Loader> {
        let state = Arc::new(Mutex::new(LoaderState::default()));
        let theirs = Arc::downgrade(&state);
        thread::Builder::new().name("rules".to_owned()).spawn(move || {
            loop {
                let asked = control.reloads().wait(seen, LOOK);
                let Some(state) = theirs.upgrade() else { break };
                if asked == seen {
                    continue;
                }
                seen = asked;
                let interfaces = lock(&state).interfaces.clone();
                let program = read(&path)
                    .and_then(|rules| Program::new(rules, folder(&path), &interfaces, compile.clone()));
                lock(&state).ready = Some(program);
            }
        })?;
        Ok(Loader { state })
    }

    /// Interfaces for which rules are to be made ready.
    pub(super) fn learn(&self, interfaces: &[Interface]) {
        lock(&self.state).interfaces = interfaces.to_vec();
    }

    /// The rules that lie ready, or the mistake in them.
    pub(super) fn take(&self) -> Option<Result<Program, String>> {
        lock(&self.state).ready.take()
    }
}
