//! Published places of a graph: each is a capture of a small daemon within this process.
//!
//! ```text
//! publish(NAME) --queue--> thread tap:NAME (a capture's worker) --> readers
//! thread places: one for each socket, which answers readers by the rules that the stage's arguments are
//! ```

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tapline_daemon::{AccessRule, Capture, CaptureRule, Log, Orders, Rules, Server, Socket};
use tapline_filter::HandleKind;
use tapline_graph::catalog::Arguments;
use tapline_graph::plan::PlanNode;
use tapline_packet::Interface;
use tapline_stages::{Publish, PublishedSource};
use tapline_tap_client::{SOCKET_VARIABLE, place_socket};

use crate::mistakes::{mistake, misuse};
use crate::privileges;

/// Time limit for the log's reader at the end.
const LOG_WAIT: Duration = Duration::from_secs(2);

/// The places of a graph that are open: sockets are bound, and no thread runs yet.
#[derive(Clone, Default)]
pub(crate) struct Places {
    opened: Arc<Mutex<Vec<OpenedPlace>>>,
}

/// A place before its capture starts.
struct OpenedPlace {
    path: PathBuf,
    rule: CaptureRule,
    access: Option<AccessRule>,
    source: PublishedSource,
    handle: HandleKind,
}

/// The places of a graph while it runs.
pub(crate) struct RunningPlaces {
    servers: Vec<RunningServer>,
    log: Option<Log>,
}

struct RunningServer {
    orders: Arc<Orders>,
    thread: JoinHandle<Result<()>>,
}

pub(crate) struct PlaceSockets(Vec<(Rules, Socket, Vec<OpenedPlace>)>);

/// The socket of a place.
pub(super) fn socket_of(arguments: &Arguments) -> PathBuf {
    match (arguments.text("socket"), std::env::var_os(SOCKET_VARIABLE)) {
        ("", Some(path)) if !path.is_empty() => path.into(),
        ("", _) => place_socket(arguments.text("name")),
        (path, _) => path.into(),
    }
}

impl Places {
    /// The stage of a place.
    pub(super) fn stage(&self, node: &PlanNode, interfaces: &[Interface], is_live: bool) -> Result<Publish> {
        if interfaces.is_empty() {
            bail!("{}: publish needs an interface; this source has none until its first packet", node.name);
        }
        let (rule, access) = rules_of(node, interfaces);
        let path = socket_of(&node.arguments);
        let handle = if is_live { HandleKind::Live } else { HandleKind::Savefile };
        let (stage, source) = Publish::new(&rule.name, interfaces)?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.push(OpenedPlace { path, rule, access, source, handle });
        Ok(stage)
    }

    /// Binds the sockets, with all rights.
    pub(super) fn bind(&self) -> Result<PlaceSockets> {
        let opened = mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        let mut by_socket: BTreeMap<PathBuf, Vec<OpenedPlace>> = BTreeMap::new();
        opened.into_iter().for_each(|place| by_socket.entry(place.path.clone()).or_default().push(place));
        let bind = |(path, places): (PathBuf, Vec<OpenedPlace>)| {
            let rules = rules(&path, &places)?;
            let socket = Socket::bind(&rules, Some(privileges::starter()))
                .with_context(|| format!("the socket of tap:{}", rules.captures[0].name))?;
            Ok((rules, socket, places))
        };
        Ok(PlaceSockets(by_socket.into_iter().map(bind).collect::<Result<_>>()?))
    }
}

/// The capture that a place is, and the users that its arguments let read.
fn rules_of(node: &PlanNode, interfaces: &[Interface]) -> (CaptureRule, Option<AccessRule>) {
    let arguments = &node.arguments;
    let list = |name: &str| -> Vec<String> {
        let words = arguments.text(name).split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    let name = arguments.text("name").to_owned();
    let rule = CaptureRule {
        name: name.clone(),
        interfaces: interfaces.iter().map(|interface| interface.label().to_owned()).collect(),
        buffer: arguments.number("buffer") as u32,
        history: (arguments.text("history") == "yes").then(String::new),
        ..CaptureRule::default()
    };
    let access = AccessRule {
        captures: vec![name],
        users: list("users"),
        groups: list("groups"),
        everybody: arguments.text("everybody") == "yes",
        filter: arguments.text("filter").to_owned(),
        snap_len: arguments.number("snap") as u32,
        readers: arguments.number("readers") as u32,
        ..AccessRule::default()
    };
    let is_open = access.everybody || !access.users.is_empty() || !access.groups.is_empty();
    (rule, is_open.then_some(access))
}

/// The rules of one socket. The socket itself is open to all where any user but root and the owner may read: the rules
/// decide by the user that the kernel names.
fn rules(path: &Path, places: &[OpenedPlace]) -> Result<Rules> {
    let access: Vec<AccessRule> = places.iter().filter_map(|place| place.access.clone()).collect();
    let rules = Rules {
        socket: path.to_owned(),
        mode: if access.is_empty() { "0660" } else { "0666" }.to_owned(),
        captures: places.iter().map(|place| place.rule.clone()).collect(),
        access,
        ..Rules::default()
    };
    rules.check().map_err(|why| mistake(format_args!("publish: {why}")))?;
    if let Some(unknown) = rules.unknown().first() {
        misuse!("publish: {}", unknown.replace("[[access]]", "it"));
    }
    Ok(rules)
}

impl PlaceSockets {
    /// Starts the threads, once rights were given up.
    pub(super) fn start(self) -> Result<RunningPlaces> {
        let log = if self.0.is_empty() { None } else { Some(Log::start(io::stderr(), "tapline: ")?) };
        let mut servers = Vec::new();
        for (rules, socket, places) in self.0 {
            let names: Vec<String> = places.iter().map(|place| format!("tap:{}", place.rule.name)).collect();
            let start =
                |place: OpenedPlace| Capture::start_place(place.rule, Box::new(place.source), place.handle);
            let captures = places.into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
            let path = rules.socket.display().to_string();
            let server = Server::new(rules, socket, captures)?;
            let orders = server.orders();
            let log = log.clone().context("a log is there where a place is")?;
            log.line(&format!("publishing {} at {path}", names.join(", ")));
            let serve = move || {
                server.run(&mut |line| log.line(line), &mut |_| {})?;
                Ok(())
            };
            let thread = thread::Builder::new().name("places".to_owned()).spawn(serve)?;
            servers.push(RunningServer { orders, thread });
        }
        Ok(RunningPlaces { servers, log })
    }
}

impl RunningPlaces {
    /// Ends the places once the graph has: readers get what was handed over, for three seconds at most.
    pub(super) fn end(self) -> Result<()> {
        self.servers.iter().for_each(|server| server.orders.stop());
        for server in self.servers {
            server.thread.join().map_err(|_| anyhow!("the thread of published places has panicked"))??;
        }
        if let Some(log) = self.log {
            // Lines that are not read in time are given up.
            let _ = log.flush(LOG_WAIT);
        }
        Ok(())
    }
}
