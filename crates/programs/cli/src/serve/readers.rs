//! Readers of captures within `tapline serve`: for each table `[[record]]`, each capture with `view` and each capture
//! with tables `[[publish]]` a graph in a thread.
//!
//! ```text
//! Reader, with all rights --rights given up--> thread: Tap (lossy) --engine--> stages of its role --> account
//! ```
//!
//! They are lossy: a stage may wait for the disk in the midst of a batch, and a lossy reader copies packets and tests
//! the copies, so that none changes meanwhile. A reader that is slow or fails costs no other reader a packet.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use tapline_daemon::{EntryKind, JournalEntry, Log, Recording, Server};
use tapline_graph::catalog::GraphSettings;
use tapline_graph::plan::{self, Plan, WorkerContext};
use tapline_graph::{Control, GraphAccount, RunEnd, RunReport, Stage};
use tapline_meters::Meters;
use tapline_source::OutputAccount;
use tapline_tap_client::protocol::{AttachRequest, RecordingStatus};
use tapline_tap_client::{Client, Tap, WakeThreshold};

use crate::escape::one_line;
use crate::session::{BuiltGraph, Workers};
use crate::strict::{self, LostPackets};
use crate::{report, store};

/// A reader, before rights are given up.
pub(super) struct Reader {
    pub(super) role: Role,
    pub(super) attach: AttachRequest,
    pub(super) wake: WakeThreshold,
    pub(super) graph: MakeGraph,
}

/// Builds a reader's graph in its thread.
type MakeGraph = Box<dyn FnOnce(&Tap, &GraphSite<'_>) -> Result<BuiltGraph> + Send>;

/// The purpose of a reader.
#[derive(Clone)]
pub(super) enum Role {
    /// Records to a store; clients see its state.
    Recorder(PathBuf, Arc<Recording>),
    /// Meters flows for `tapline view`. It is not in the account of the daemon.
    View,
    /// Runs the stages of the capture's published places.
    Places,
}

/// The surroundings of a reader's graph.
pub(super) struct GraphSite<'a> {
    /// The number of the graph among those of the daemon.
    pub(super) number: usize,
    pub(super) meters: &'a Meters,
    pub(super) log: &'a Log,
    control: Arc<Control>,
}

impl GraphSite<'_> {
    /// Builds the graph of a plan; `output` gives the stage of a node that is an output.
    pub(super) fn build(
        &self,
        plan: &Plan,
        common: &GraphSettings,
        mut output: impl FnMut(usize) -> Result<Box<dyn Stage>, String>,
    ) -> Result<BuiltGraph> {
        let (worker, control) = (self.number, &self.control);
        let context = WorkerContext { worker, control, common, exits: None, output: &mut output };
        plan::build(plan, self.meters, context).map_err(|why| anyhow!(why))
    }
}

impl Role {
    /// The name of the thread.
    fn thread(&self) -> &'static str {
        match self {
            Role::Recorder(..) => "recorder",
            Role::View => "view",
            Role::Places => "graph",
        }
    }

    /// The name of a reader in the status of the daemon and in faults of the account.
    fn name(&self, capture: &str) -> String {
        match self {
            Role::Recorder(store, _) => format!("recorder of {}", store.display()),
            Role::View => "view".to_owned(),
            Role::Places => format!("graph of {capture}"),
        }
    }
}

/// A reader's account, which its thread writes and others read.
#[derive(Clone)]
struct ReaderAccount {
    role: Role,
    capture: String,
    latest: Arc<Mutex<GraphAccount>>,
    log: Log,
}

/// A reader that runs.
pub(super) struct RunningReader {
    account: ReaderAccount,
    thread: JoinHandle<Option<String>>,
}

/// The last account of a reader.
pub(super) struct EndedReader {
    role: Role,
    capture: String,
    account: GraphAccount,
    /// The reason for which it ended before the daemon did.
    error: Option<String>,
}

impl Reader {
    /// Reads in a thread, from the moment on in which the server runs.
    pub(super) fn start(
        self,
        server: &mut Server,
        number: usize,
        meters: &Meters,
        log: &Log,
    ) -> Result<RunningReader> {
        let (role, capture) = (self.role.clone(), self.attach.capture.clone());
        let stream = match &role {
            Role::Recorder(_, recording) => server.connect_recorder(&capture, Arc::clone(recording))?,
            Role::View | Role::Places => server.connect_reader()?,
        };
        let name = role.thread().to_owned();
        let account = ReaderAccount { role, capture, latest: Arc::default(), log: log.clone() };
        account.show(None);
        let (of_thread, meters) = (account.clone(), meters.clone());
        let run = move || {
            let ended = self.run(stream, number, &meters, &of_thread);
            of_thread.end(ended)
        };
        Ok(RunningReader { account, thread: thread::Builder::new().name(name).spawn(run)? })
    }

    fn run(
        self,
        stream: UnixStream,
        number: usize,
        meters: &Meters,
        account: &ReaderAccount,
    ) -> Result<RunEnd> {
        let client = Client::connected(stream, &self.role.name(&self.attach.capture))?;
        let mut tap = client.attach(&self.attach)?;
        tap.set_wake(self.wake);
        let control = Arc::new(Control::new(None));
        let site = GraphSite { number, meters, log: &account.log, control: Arc::clone(&control) };
        let built = (self.graph)(&tap, &site)?;
        let mut workers = Workers::alone(vec![Box::new(tap)], built);
        let finished = workers.run(&control, &|_, report| account.watch(report))?;
        account.keep(&finished.account);
        Ok(finished.ended)
    }
}

impl ReaderAccount {
    fn get(&self) -> GraphAccount {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn with(&self, error: Option<String>) -> EndedReader {
        EndedReader { role: self.role.clone(), capture: self.capture.clone(), account: self.get(), error }
    }

    /// Runs once a second: stores the account for others, and logs a recorder's warnings.
    fn watch(&self, watch: &RunReport<'_>) {
        self.keep(watch.account);
        let is_logged = matches!(self.role, Role::Recorder(..));
        for event in watch.events.iter().filter(|event| event.is_warning && is_logged) {
            let name = self.role.name(&self.capture);
            self.log.line(&format!("{}, {name}: {}", event.interface, one_line(&event.text)));
        }
    }

    fn keep(&self, account: &GraphAccount) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = account.clone();
        self.show(None);
    }

    /// Shows the state of a recording to clients.
    fn show(&self, error: Option<&String>) {
        let Role::Recorder(store, recording) = &self.role else { return };
        let output = self.with(None).outputs().pop().unwrap_or_default();
        let OutputAccount { written, lost, buffered, .. } = output;
        recording.set(RecordingStatus {
            store: store.display().to_string(),
            written,
            lost,
            cut: output.skipped(),
            buffered,
            error: error.cloned().unwrap_or_default(),
        });
    }

    /// Logs the end. Gives the reason, if the reader ended before the daemon did.
    fn end(&self, ended: Result<RunEnd>) -> Option<String> {
        let error = match ended {
            Ok(RunEnd::Source | RunEnd::Stopped) => None,
            Ok(RunEnd::Failed(error)) => Some(error.to_string()),
            Err(error) => Some(format!("{error:#}")),
        };
        let (log, capture) = (&self.log, &self.capture);
        match (&self.role, &error) {
            (_, None) => {}
            (Role::View, Some(error)) => log.line(&format!("tap:{capture}: the view has ended: {error}")),
            (Role::Places, Some(error)) => {
                log.line(&format!("tap:{capture}: the graph of its places has ended: {error}"));
            }
            (Role::Recorder(store, _), Some(error)) => {
                let store = store.display().to_string();
                log.entry(&JournalEntry {
                    kind: EntryKind::RecordingEnded,
                    message: format!("tap:{capture}: the recording to {store} has ended: {error}"),
                    fields: vec![("CAPTURE", capture.clone()), ("STORE", store)],
                });
                self.show(Some(error));
            }
        }
        if let (Role::Recorder(store, _), lost @ 1..) = (&self.role, self.with(None).not_stored()) {
            log.line(&format!("tap:{capture}, {}: {}", store.display(), store::missing_text(lost)));
        }
        error
    }
}

impl RunningReader {
    /// The account of up to a second ago.
    pub(super) fn latest(&self) -> EndedReader {
        self.account.with(None)
    }

    /// Waits for its end, once the server has ended: a recorder seals its store.
    pub(super) fn join(self) -> EndedReader {
        let error = self.thread.join().unwrap_or_else(|_| Some("its thread has panicked".to_owned()));
        self.account.with(error)
    }
}

impl EndedReader {
    /// Whether the account of the daemon has it.
    pub(super) fn has_account(&self) -> bool {
        !matches!(self.role, Role::View)
    }

    pub(super) fn is_recording(&self) -> bool {
        matches!(self.role, Role::Recorder(..))
    }

    /// Whether it went on as long as the daemon did, and all packets that were to be recorded are in the store.
    pub(super) fn is_whole(&self) -> bool {
        self.error.is_none() && self.not_stored() == 0
    }

    /// Packets that a store was to get and lacks.
    fn not_stored(&self) -> u64 {
        if self.is_recording() { self.outputs().iter().map(|output| output.lost).sum() } else { 0 }
    }

    /// The accounts of its outputs; that of a recorder also before there is one.
    fn outputs(&self) -> Vec<OutputAccount> {
        let stages = self.account.stages.iter();
        let outputs: Vec<_> = stages.filter_map(|stage| stage.counters.output.clone()).collect();
        match &self.role {
            Role::Recorder(store, _) if outputs.is_empty() => {
                vec![OutputAccount::of_written(&store.display().to_string(), 0)]
            }
            _ => outputs,
        }
    }

    /// Adds its rows to the account of the daemon.
    pub(super) fn add_rows(&self, text: &mut report::Table) {
        let role = if self.is_recording() { "recorder" } else { "graph of places" };
        for interface in &self.account.interfaces {
            let mut of_reader = interface.clone();
            of_reader.name = format!("{}, {role}", interface.name);
            text.interface(&of_reader);
        }
        self.outputs().iter().for_each(|output| text.output(output));
    }

    /// Packets that it lost as a reader, or that its outputs lost.
    pub(super) fn losses(&self) -> Vec<LostPackets> {
        strict::losses(&self.account.interfaces, &self.outputs())
    }

    /// Equations of its account that do not hold.
    pub(super) fn imbalances(&self) -> Vec<String> {
        let name = self.role.name(&self.capture);
        self.account.faults().iter().map(|fault| format!("{name}: {fault}")).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let account = report::json(&self.account);
        let mut value =
            json!({ "capture": self.capture, "account": account["account"], "error": self.error });
        if let Role::Recorder(store, _) = &self.role {
            value["store"] = json!(store.display().to_string());
        }
        value
    }
}
