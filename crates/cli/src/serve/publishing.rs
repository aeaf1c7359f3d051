//! Published places of `tapline serve`: for each capture with tables `[[publish]]` one graph in a thread, which reads
//! the capture and publishes all of its places. What their stages have in common runs once.
//!
//! ```text
//! thread: Tap (a lossy reader of the capture's buffer) --engine--> stages --> publish(dns) --> capture tap:dns
//!                                                                         \-> publish(web) --> capture tap:web
//! ```

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use tapline_daemon::{Capture, CaptureRule, Log, PublishRule, Rules, Server};
use tapline_filter::{HandleKind, Options, SystemNames};
use tapline_graph::catalog::{Constructor, GraphSettings};
use tapline_graph::plan::{self, GraphText, Plan, PlanNode, WorkerContext};
use tapline_graph::stages::{Publish, PublishedSource};
use tapline_graph::{Control, Engine, Graph, GraphAccount, Inlet, NodeId, RunEnd, Stage};
use tapline_packet::Interface;
use tapline_profile::Meters;
use tapline_tap::protocol::AttachRequest;
use tapline_tap::{Client, WakeThreshold};

use super::OpenCapture;
use crate::report;
use crate::session::clocks;
use crate::strict::{self, LostPackets};

/// Delay of packets in the graph's index, beside the capture's own.
const WAKE: WakeThreshold =
    WakeThreshold { min_bytes: 256 << 10, min_packets: 0, max_delay: Duration::from_millis(10) };
/// Stages that make files, send, or read files again: the daemon has no right to that once it serves.
const REFUSED: [&str; 7] = ["ipfix", "flowlog", "batches", "streams", "extract", "view", "rules"];

/// The graph of a capture, before rights are given up.
pub(super) struct OpenedGraph {
    capture: String,
    plan: Plan,
    stages: HashMap<usize, Publish>,
}

/// A place, before its capture starts.
pub(super) struct OpenedPlace {
    rule: CaptureRule,
    source: PublishedSource,
}

/// A graph that runs.
pub(super) struct RunningGraph {
    capture: String,
    latest: Arc<Mutex<GraphAccount>>,
    thread: JoinHandle<Option<String>>,
}

/// The last account of a graph.
#[derive(Clone)]
pub(super) struct EndedGraph {
    capture: String,
    account: GraphAccount,
    /// The reason for which it ended before the daemon did.
    error: Option<String>,
}

/// The plan of all places of a capture.
///
/// # Errors
/// The error in the stages; a stage that the daemon does not run.
fn plan_of(capture: &str, places: &[&PublishRule]) -> Result<Plan> {
    let texts: Vec<String> = places.iter().map(|place| place.graph()).collect();
    let named = places.iter().zip(&texts).map(|(place, text)| GraphText { name: &place.name, text });
    let plan = Plan::new(&named.collect::<Vec<_>>()).map_err(|why| anyhow!("[[publish]]: {why}"))?;
    plan.nodes.iter().try_for_each(|node| check(node, capture, places))?;
    Ok(plan)
}

/// The daemon runs stages over the packets of one capture, and nothing that reads, writes or sends elsewhere.
fn check(node: &PlanNode, capture: &str, places: &[&PublishRule]) -> Result<()> {
    let is_ours = match node.class.make {
        Constructor::Source => node.arguments.text("interface") == format!("tap:{capture}"),
        Constructor::Output => node.class.name == "publish",
        Constructor::Stage(_) => !REFUSED.contains(&node.class.name),
    };
    let is_ours = is_ours && (node.class.name != "file" && node.class.name != "generate");
    if !is_ours {
        bail!("[[publish]]: the daemon does not run the stage {}: tapline run does", node.name);
    }
    if node.class.name == "publish" && !places.iter().any(|place| place.name == node.arguments.text("name")) {
        bail!("[[publish]]: {} has no table of its own", node.name);
    }
    Ok(())
}

/// Checks the stages of all tables.
///
/// # Errors
/// See [`plan_of`].
pub(super) fn check_rules(rules: &Rules) -> Result<()> {
    graphs(rules).into_iter().try_for_each(|(capture, places)| plan_of(capture, &places).map(drop))
}

/// The tables by capture.
fn graphs(rules: &Rules) -> Vec<(&str, Vec<&PublishRule>)> {
    let of = |capture: &'_ str| -> Vec<&PublishRule> {
        rules.places.iter().filter(|place| place.capture == capture).collect()
    };
    let captures = rules.captures.iter().map(|capture| capture.name.as_str());
    captures.map(|capture| (capture, of(capture))).filter(|(_, places)| !places.is_empty()).collect()
}

impl OpenedGraph {
    /// The graphs of all captures with places, and the places.
    pub(super) fn open_all(
        rules: &Rules,
        opened: &[OpenCapture],
    ) -> Result<(Vec<OpenedGraph>, Vec<OpenedPlace>)> {
        let (mut graphs_of, mut places_of) = (Vec::new(), Vec::new());
        for (capture, places) in graphs(rules) {
            let plan = plan_of(capture, &places)?;
            let source =
                opened.iter().find(|(rule, _)| rule.name == capture).and_then(|(_, all)| all.first());
            let interfaces: Vec<Interface> =
                source.map(|source| source.interfaces().to_vec()).unwrap_or_default();
            let names: Vec<String> =
                interfaces.iter().map(|interface| interface.label().to_owned()).collect();
            let mut stages = HashMap::new();
            for (index, node) in plan.nodes.iter().enumerate() {
                let is_it = |place: &&&PublishRule| {
                    node.class.name == "publish" && place.name == node.arguments.text("name")
                };
                let Some(place) = places.iter().find(is_it) else { continue };
                let (stage, source) = Publish::new(&place.name, &interfaces)?;
                stages.insert(index, stage);
                places_of.push(OpenedPlace { rule: place.as_capture(&names), source });
            }
            graphs_of.push(OpenedGraph { capture: capture.to_owned(), plan, stages });
        }
        Ok((graphs_of, places_of))
    }

    /// Runs in a thread, from the moment on in which the server runs.
    pub(super) fn start(
        self,
        server: &mut Server,
        number: usize,
        meters: &Meters,
        log: &Log,
    ) -> Result<RunningGraph> {
        let stream = server.connect_reader()?;
        let latest = Arc::<Mutex<GraphAccount>>::default();
        let (capture, of_thread) = (self.capture.clone(), Arc::clone(&latest));
        let (meters, log) = (meters.clone(), log.clone());
        let run = move || {
            let capture = self.capture.clone();
            let error = match self.run(stream, number, &meters, &of_thread) {
                Ok(RunEnd::Source | RunEnd::Stopped) => return None,
                Ok(RunEnd::Failed(error)) => error.to_string(),
                Err(error) => format!("{error:#}"),
            };
            log.line(&format!("tap:{capture}: the graph of its places has ended: {error}"));
            Some(error)
        };
        let thread = thread::Builder::new().name("graph".to_owned()).spawn(run)?;
        Ok(RunningGraph { capture, latest, thread })
    }

    fn run(
        mut self,
        stream: UnixStream,
        number: usize,
        meters: &Meters,
        latest: &Mutex<GraphAccount>,
    ) -> Result<RunEnd> {
        let control = Arc::new(Control::new(None));
        // What all places need together is asked of the daemon, and thereby of the kernel.
        let filter = self.plan.nodes.iter().find_map(|node| node.kernel_filter.clone()).unwrap_or_default();
        let (mut graph, sources) = self.build(number, meters, &control)?;
        let client = Client::connected(stream, &format!("graph of {}", self.capture))?;
        let attach = AttachRequest { capture: self.capture, filter, ..AttachRequest::default() };
        let mut tap = client.attach(&attach)?;
        tap.set_wake(WAKE);
        let engine = Engine::new(vec![Inlet::new(&mut tap, sources[0])], &mut graph, &control, clocks);
        let keep = |account: &GraphAccount| {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = account.clone();
        };
        let outcome = engine.run(&mut |report| keep(report.account));
        keep(&outcome.account);
        Ok(outcome.ended)
    }

    fn build(
        &mut self,
        number: usize,
        meters: &Meters,
        control: &Arc<Control>,
    ) -> Result<(Graph, Vec<NodeId>)> {
        let options = |interface: &Interface| Options {
            link_type: interface.link_type,
            handle: HandleKind::Live,
            resolver: Arc::new(SystemNames::default().files_only()),
            ..Options::default()
        };
        let common = GraphSettings {
            options: Arc::new(options),
            workers: 1,
            interpret: false,
            directory: PathBuf::new(),
            view: None,
            rule_files: Default::default(),
            place_files: Default::default(),
            commands: None,
        };
        let stages = &mut self.stages;
        let mut output = |node: usize| -> Result<Box<dyn Stage>, String> {
            let stage = stages.remove(&node).ok_or("each place was opened")?;
            Ok(Box::new(stage))
        };
        let context =
            WorkerContext { worker: number, control, common: &common, exits: None, output: &mut output };
        plan::build(&self.plan, meters, context).map_err(|why| anyhow!(why))
    }
}

impl OpenedPlace {
    /// Starts the capture, once rights were given up.
    pub(super) fn start(self) -> Result<Capture> {
        let name = self.rule.name.clone();
        Capture::start_place(self.rule, Box::new(self.source), HandleKind::Live)
            .with_context(|| format!("[[publish]] {name:?}"))
    }
}

impl RunningGraph {
    /// The account of up to a second ago.
    pub(super) fn latest(&self) -> EndedGraph {
        let account = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        EndedGraph { capture: self.capture.clone(), account, error: None }
    }

    /// Waits for its end, once the server has ended.
    pub(super) fn join(self) -> EndedGraph {
        let RunningGraph { capture, latest, thread } = self;
        let error = thread.join().unwrap_or_else(|_| Some("its thread has panicked".to_owned()));
        let account = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        EndedGraph { capture, account, error }
    }
}

impl EndedGraph {
    /// Whether it went on as long as the daemon did.
    pub(super) fn is_whole(&self) -> bool {
        self.error.is_none()
    }

    /// Adds its rows to the account of the daemon.
    pub(super) fn add_rows(&self, text: &mut report::Table) {
        for interface in &self.account.interfaces {
            let mut of_graph = interface.clone();
            of_graph.name = format!("{}, graph of places", interface.name);
            text.interface(&of_graph);
        }
        self.account.outputs().for_each(|output| text.output(output));
    }

    /// Packets that the graph lost as a reader, or that found no room on their way to a place.
    pub(super) fn losses(&self) -> Vec<LostPackets> {
        strict::losses(&self.account.interfaces, self.account.outputs())
    }

    /// Equations of its account that do not hold.
    pub(super) fn imbalances(&self) -> Vec<String> {
        let of = |fault: &String| format!("graph of {}: {fault}", self.capture);
        self.account.faults().iter().map(of).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let account = report::json(&self.account);
        json!({ "capture": self.capture, "account": account["account"], "error": self.error })
    }
}
