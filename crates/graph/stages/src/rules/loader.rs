//! Rules that several workers share, and the thread that reads their file again.
//!
//! ```text
//! 1. the file has changed, or a reload was requested: read, parse; a mistake ends it here
//! 2. prepare the new rules for each worker: filters for the interfaces that it knows
//! 3. lay them ready, and count the generation up
//! 4. each worker takes its own between two batches
//! 5. when all have: the counts of the old rules are final, and those of rules that stay are carried over
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tapline_flow_rules::{RuleFile, RuleSet, parse};
use tapline_graph::catalog::BuildContext;
use tapline_graph::{Control, grouped};
use tapline_packet::Interface;

use super::super::changed_file::{FileStamp, FileWatcher, LOOK};
use super::super::input_file;
use super::prepared::{Compiled, Prepared};
use crate::settings::InterfaceOptions;
use crate::settings::StageSettings;

/// Interval at which it is checked whether workers have taken new rules.
const TAKEN: Duration = Duration::from_millis(2);
/// Maximum number of messages that wait to be reported; more are left out.
const MESSAGES_MAX: usize = 64;

/// Files of rules that are open in a run, so that workers share them.
#[derive(Debug, Default)]
pub struct RuleFiles(Mutex<Vec<Weak<SharedRules>>>);

impl RuleFiles {
    /// The rules of a file: those that another worker has, or else read now.
    pub(super) fn open(
        &self,
        path: PathBuf,
        outputs: Vec<String>,
        site: &BuildContext<'_>,
    ) -> Result<Arc<SharedRules>, String> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        // Each instance of a stage is in another worker; stages of one worker have rules of their own.
        let is_it = |shared: &Arc<SharedRules>| {
            shared.stage == site.name && shared.path == path && shared.outputs == outputs
        };
        if let Some(shared) = files.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(shared);
        }
        let stamp = FileStamp::of(&path);
        let set = RuleSet::new(read(&path, &outputs)?, site.common.workers > 1);
        let shared = Arc::new(SharedRules {
            stage: site.name.to_owned(),
            path,
            outputs,
            is_shared: site.common.workers > 1,
            options: Arc::clone(&StageSettings::of(site.common).options),
            generation: AtomicU64::new(0),
            state: Mutex::new(LoaderState { current: Arc::new(set), workers: Vec::new() }),
            messages: Mutex::default(),
        });
        files.push(Arc::downgrade(&shared));
        watch(&shared, stamp, Arc::clone(site.control))
            .map_err(|error| format!("no thread for the rules: {error}"))?;
        Ok(shared)
    }
}

/// Reads a file of rules.
///
/// # Errors
/// The reason, with the place and the mend of a mistake.
pub(super) fn read(path: &Path, outputs: &[String]) -> Result<RuleFile, String> {
    let text = input_file::read_text(path, input_file::RULES_MAX)?;
    parse(&text, outputs).map_err(|error| format!("{}: {}", path.display(), error.render(&text)))
}

/// Rules of a file, for all workers.
pub(super) struct SharedRules {
    /// The name of the stage.
    stage: String,
    path: PathBuf,
    outputs: Vec<String>,
    /// Whether several threads count.
    is_shared: bool,
    pub(super) options: InterfaceOptions,
    /// Number of changes of the rules.
    generation: AtomicU64,
    state: Mutex<LoaderState>,
    messages: Mutex<Vec<String>>,
}

impl std::fmt::Debug for SharedRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedRules").field("path", &self.path).finish_non_exhaustive()
    }
}

struct LoaderState {
    current: Arc<RuleSet>,
    workers: Vec<Worker>,
}

/// A stage that obeys the rules.
#[derive(Default)]
struct Worker {
    interfaces: Vec<Interface>,
    /// New rules that it has not taken yet.
    next: Option<Prepared>,
    is_gone: bool,
}

impl SharedRules {
    fn state(&self) -> MutexGuard<'_, LoaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker begins: its number, the generation of the rules, and the rules.
    pub(super) fn enter(&self) -> (usize, u64, Prepared) {
        let mut state = self.state();
        state.workers.push(Worker::default());
        (state.workers.len() - 1, self.generation(), Prepared::new(Arc::clone(&state.current)))
    }

    /// A worker ends.
    pub(super) fn leave(&self, worker: usize) {
        self.state().workers[worker] = Worker { is_gone: true, ..Worker::default() };
    }

    /// Interfaces of a worker, for which rules are to be prepared.
    pub(super) fn learn(&self, worker: usize, interfaces: &[Interface]) {
        self.state().workers[worker].interfaces = interfaces.to_vec();
    }

    /// Number of changes of the rules.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The rules that lie ready for a worker.
    pub(super) fn take(&self, worker: usize) -> Option<Prepared> {
        self.state().workers[worker].next.take()
    }

    /// Messages for the user since the last call.
    pub(super) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, message: String) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < MESSAGES_MAX {
            messages.push(message);
        }
    }

    /// Reads the file and prepares its rules. A mistake is reported, and the old rules stay.
    fn reload(&self) {
        match self.try_reload() {
            Ok(set) => {
                let (exact, list) = (set.file().exact.len() as u64, set.file().list.len() as u64);
                self.tell(format!(
                    "rules read again: {} exact, {} in the list",
                    grouped(exact),
                    grouped(list)
                ));
            }
            Err(why) => self.tell(format!("{}; the rules before stay", in_one_line(&why))),
        }
    }

    fn try_reload(&self) -> Result<Arc<RuleSet>, String> {
        let file = read(&self.path, &self.outputs)?;
        let (current, interfaces) = {
            let state = self.state();
            let interfaces: Vec<_> = state.workers.iter().map(|worker| worker.interfaces.clone()).collect();
            (Arc::clone(&state.current), interfaces)
        };
        let set = Arc::new(RuleSet::after(file, self.is_shared, current));
        let mut compiled = Compiled::new();
        let mut prepared = Vec::new();
        for interfaces in &interfaces {
            let mut one = Prepared::new(Arc::clone(&set));
            one.extend_with(interfaces, &self.options, &mut compiled)
                .map_err(|why| format!("{}: {why}", self.path.display()))?;
            prepared.push(one);
        }
        let mut state = self.state();
        state.current = Arc::clone(&set);
        let mut prepared = prepared.into_iter();
        for worker in &mut state.workers {
            // A worker that has begun meanwhile compiles when it meets its interfaces.
            let one = prepared.next().unwrap_or_else(|| Prepared::new(Arc::clone(&set)));
            worker.next = (!worker.is_gone).then_some(one);
        }
        self.generation.fetch_add(1, Ordering::Release);
        Ok(set)
    }

    /// Whether every worker has the current rules; then their counts are settled.
    fn settle(&self) -> bool {
        let state = self.state();
        let all_have = state.workers.iter().all(|worker| worker.next.is_none());
        let current = Arc::clone(&state.current);
        drop(state);
        if all_have {
            current.settle();
        }
        all_have
    }
}

/// An error in one line: without the line that marks a place, which is given as line and column too.
fn in_one_line(error: &str) -> String {
    let is_mark =
        |line: &&str| !line.trim().is_empty() && line.trim().chars().all(|c| matches!(c, '^' | '~' | ' '));
    let lines: Vec<&str> = error.lines().filter(|line| !is_mark(line)).map(str::trim).collect();
    lines.join("; ")
}

/// Starts the thread that reads the file again; it ends with the last stage.
fn watch(shared: &Arc<SharedRules>, stamp: Option<FileStamp>, control: Arc<Control>) -> std::io::Result<()> {
    let shared = Arc::downgrade(shared);
    let mut seen = control.reloads().count();
    thread::Builder::new().name("rules".to_owned()).spawn(move || {
        let mut watcher = FileWatcher::new(stamp);
        loop {
            let asked = control.reloads().wait(seen, LOOK);
            let Some(shared) = shared.upgrade() else { break };
            let is_asked = asked != seen;
            seen = asked;
            if watcher.is_due(FileStamp::of(&shared.path), is_asked) {
                shared.reload();
                settle(shared);
            }
        }
    })?;
    Ok(())
}

/// Waits until every worker has the new rules, as long as there is a stage.
fn settle(shared: Arc<SharedRules>) {
    let stages = Arc::downgrade(&shared);
    let mut held = Some(shared);
    while let Some(shared) = held.take() {
        if shared.settle() {
            break;
        }
        drop(shared);
        thread::sleep(TAKEN);
        held = stages.upgrade();
    }
}
