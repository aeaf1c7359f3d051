//! Recordings of `tapline serve`: for each table `[[record]]` a reader in this process, whose packets go to a store.
//!
//! ```text
//! rules --OpenedStore::open, with all rights--> room reserved, files of the serving user
//!       --rights given up-->  thread: Tap (a lossy reader of the capture's buffer) --engine--> StoreOutput
//! ```
//!
//! The reader is lossy: the recorder waits for the disk in the midst of a batch, and a lossy reader copies packets and
//! tests the copies, so that none changes meanwhile. A disk that is slow or fails costs the recorder packets of its own
//! index, and no other reader any.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tapline_daemon::{EntryKind, JournalEntry, Log, RecordRule, Recording, Rules, Server};
use tapline_graph::stages::{SourceStage, StoreOutput};
use tapline_graph::{Control, Engine, Graph, GraphAccount, Inlet, RunEnd, RunReport};
use tapline_packet::Interface;
use tapline_profile::Meters;
use tapline_source::OutputAccount;
use tapline_store::Recorder;
use tapline_sys::privilege::{self, Identity};
use tapline_tap::protocol::{AttachRequest, RecordingStatus};
use tapline_tap::{Client, WakeThreshold};

use crate::escape::one_line;
use crate::session::clocks;
use crate::strict::{self, LostPackets};
use crate::{report, store, stored};

/// Delay of packets at the daemon, and then in the recorder's index: with the default of `flush` packets are found a
/// second after their arrival.
const DELAY_MS: u32 = 50;
/// See [`DELAY_MS`].
const WAKE: WakeThreshold =
    WakeThreshold { min_bytes: 4 << 20, min_packets: 0, max_delay: Duration::from_millis(100) };

/// A store that is ready, before rights are given up.
pub(super) struct OpenedStore {
    rule: RecordRule,
    output: StoreOutput,
    /// The log, once it is there; until then lines go to standard error.
    log: Arc<OnceLock<Log>>,
}

/// A recording that runs.
pub(super) struct RunningRecording {
    rule: RecordRule,
    latest: Arc<Mutex<GraphAccount>>,
    thread: JoinHandle<EndedRecording>,
}

/// The last account of a recording.
#[derive(Clone)]
pub(super) struct EndedRecording {
    rule: RecordRule,
    account: GraphAccount,
    /// The reason for which it ended before the daemon did.
    error: Option<String>,
}

impl OpenedStore {
    /// Opens the store of a table, for a process that becomes `identity`, or root without capabilities.
    pub(super) fn open(
        rule: &RecordRule,
        rules: &Rules,
        interfaces: &[Interface],
        identity: Option<&Identity>,
    ) -> Result<OpenedStore> {
        let of = || format!("[[record]] of the capture {:?}, {}", rule.capture, rule.to.display());
        let capture = rules.captures.iter().find(|capture| capture.name == rule.capture);
        let snap_len = capture.map_or(0, |capture| capture.snap_len);
        let settings = store::settings_of_rule(rule, snap_len).with_context(of)?;
        stored::check_open_files()?;
        let now = clocks().wall;
        let recorder = Recorder::open(&rule.to, settings, interfaces, now).with_context(of)?;
        if privilege::is_root() {
            let (uid, gid) = identity.map_or((0, 0), |identity| (identity.uid, identity.gid));
            recorder.give_to(uid, gid).with_context(of)?;
        }
        let log = Arc::<OnceLock<Log>>::default();
        let of_output = Arc::clone(&log);
        let tell = Box::new(move |line: &str| say(&of_output, line));
        let output = store::output(recorder, &rule.to, now, tell);
        Ok(OpenedStore { rule: rule.clone(), output, log })
    }

    /// Records in a thread, from the moment on in which the server runs.
    pub(super) fn start(
        self,
        server: &mut Server,
        number: usize,
        meters: &Meters,
        log: &Log,
    ) -> Result<RunningRecording> {
        let OpenedStore { rule, output, log: of_output } = self;
        let _ = of_output.set(log.clone());
        let recording = Arc::<Recording>::default();
        let stream = server.connect_recorder(&rule.capture, Arc::clone(&recording))?;
        let latest = Arc::<Mutex<GraphAccount>>::default();
        let worker = RecordingThread {
            rule: rule.clone(),
            recording,
            latest: Arc::clone(&latest),
            log: log.clone(),
            number: number as u16,
            meters: meters.clone(),
        };
        worker.show(None);
        let thread =
            thread::Builder::new().name("recorder".to_owned()).spawn(move || worker.run(stream, output))?;
        Ok(RunningRecording { rule, latest, thread })
    }
}

/// The thread of a recording.
struct RecordingThread {
    rule: RecordRule,
    recording: Arc<Recording>,
    latest: Arc<Mutex<GraphAccount>>,
    log: Log,
    number: u16,
    meters: Meters,
}

impl RecordingThread {
    fn run(self, stream: UnixStream, output: StoreOutput) -> EndedRecording {
        let ended = self.record(stream, output);
        let error = match ended {
            Ok(RunEnd::Source | RunEnd::Stopped) => None,
            Ok(RunEnd::Failed(error)) => Some(error.to_string()),
            Err(error) => Some(format!("{error:#}")),
        };
        if let Some(error) = &error {
            let RecordRule { capture, to, .. } = &self.rule;
            let store = to.display().to_string();
            self.log.entry(&JournalEntry {
                kind: EntryKind::RecordingEnded,
                message: format!("tap:{capture}: the recording to {store} has ended: {error}"),
                fields: vec![("CAPTURE", capture.clone()), ("STORE", store)],
            });
            self.show(Some(error));
        }
        let ended = EndedRecording { account: self.account(), rule: self.rule, error };
        if ended.lost() > 0 {
            let RecordRule { capture, to, .. } = &ended.rule;
            let missing = store::missing_text(ended.lost());
            self.log.line(&format!("tap:{capture}, {}: {missing}", to.display()));
        }
        ended
    }

    fn record(&self, stream: UnixStream, output: StoreOutput) -> Result<RunEnd> {
        let RecordRule { capture, filter, to, .. } = &self.rule;
        let store = to.display().to_string();
        let client = Client::connected(stream, &format!("recorder of {store}"))?;
        let attach = AttachRequest {
            capture: capture.clone(),
            filter: filter.clone(),
            delay_ms: DELAY_MS,
            ..AttachRequest::default()
        };
        let mut tap = client.attach(&attach)?;
        tap.set_wake(WAKE);
        let mut graph = Graph::new(&self.meters, self.number);
        let source = graph.add("source", "source", Box::new(SourceStage), &[]);
        graph.add(&store, "output", Box::new(output), &[(source, 0)]);
        let control = Control::new(None);
        let engine = Engine::new(vec![Inlet::new(&mut tap, source)], &mut graph, &control, clocks);
        let outcome = engine.run(&mut |watch| self.watch(watch));
        self.keep(&outcome.account);
        Ok(outcome.ended)
    }

    /// Runs once a second: stores the account for status replies, and logs the recorder's warnings.
    fn watch(&self, watch: &RunReport<'_>) {
        self.keep(watch.account);
        for event in watch.events.iter().filter(|event| event.is_warning) {
            self.log.line(&format!(
                "{}, recorder of {}: {}",
                event.interface,
                self.rule.to.display(),
                one_line(&event.text)
            ));
        }
    }

    fn keep(&self, account: &GraphAccount) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = account.clone();
        self.show(None);
    }

    fn show(&self, error: Option<&String>) {
        let output = output_of(&self.account());
        let OutputAccount { written, lost, buffered, .. } = output;
        self.recording.set(RecordingStatus {
            store: self.rule.to.display().to_string(),
            written,
            lost,
            cut: output.skipped(),
            buffered,
            error: error.cloned().unwrap_or_default(),
        });
    }

    fn account(&self) -> GraphAccount {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl RunningRecording {
    /// The account of up to a second ago.
    pub(super) fn latest(&self) -> EndedRecording {
        let account = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        EndedRecording { rule: self.rule.clone(), account, error: None }
    }

    /// Waits until the store is sealed, once the server has ended.
    pub(super) fn join(self) -> EndedRecording {
        let RunningRecording { rule, latest, thread } = self;
        thread.join().unwrap_or_else(|_| {
            let account = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
            EndedRecording { rule, account, error: Some("its thread has panicked".to_owned()) }
        })
    }
}

impl EndedRecording {
    /// Whether all packets that were to be recorded are in the store.
    pub(super) fn is_whole(&self) -> bool {
        self.error.is_none() && self.lost() == 0
    }

    /// Packets that the store was to get and lacks.
    fn lost(&self) -> u64 {
        output_of(&self.account).lost
    }

    /// Adds its rows to the account of the daemon.
    pub(super) fn add_rows(&self, text: &mut report::Table) {
        for interface in &self.account.interfaces {
            let mut of_reader = interface.clone();
            of_reader.name = format!("{}, recorder", interface.name);
            text.interface(&of_reader);
        }
        text.output(&self.output());
    }

    /// Packets that the recorder lost as a reader, or that the store lost.
    pub(super) fn losses(&self) -> Vec<LostPackets> {
        strict::losses(&self.account.interfaces, [&self.output()])
    }

    /// The account of the store, under its name.
    fn output(&self) -> OutputAccount {
        OutputAccount { name: self.rule.to.display().to_string(), ..output_of(&self.account) }
    }

    /// Equations of its account that do not hold.
    pub(super) fn imbalances(&self) -> Vec<String> {
        let store = self.rule.to.display();
        self.account.faults().iter().map(|fault| format!("recorder of {store}: {fault}")).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let account = report::json(&self.account);
        json!({
            "capture": self.rule.capture,
            "store": self.rule.to.display().to_string(),
            "account": account["account"],
            "error": self.error,
        })
    }
}

/// The account of the store.
fn output_of(account: &GraphAccount) -> OutputAccount {
    account.stages.iter().find_map(|stage| stage.counters.output.clone()).unwrap_or_default()
}

fn say(log: &OnceLock<Log>, line: &str) {
    match log.get() {
        Some(log) => log.line(line),
        None => drop(writeln!(io::stderr(), "tapline: {line}")),
    }
}
