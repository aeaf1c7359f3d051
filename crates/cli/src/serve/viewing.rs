//! Views of `tapline serve`: for each capture with `view` a reader in this process, whose flows are metered for
//! `tapline view`.
//!
//! ```text
//! thread: Tap (a lossy reader of the capture's buffer) --engine--> flow(view=yes) --> view --> PID.view
//! ```

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use tapline_daemon::{Log, Rules, Server};
use tapline_graph::catalog::GraphSettings;
use tapline_graph::plan::{self, GraphText, Plan, WorkerContext};
use tapline_graph::{Control, Engine, Inlet, RunEnd, Stage, ViewFile};
use tapline_profile::Meters;
use tapline_source::Source as _;
use tapline_sys::privilege::Identity;
use tapline_tap::protocol::AttachRequest;
use tapline_tap::{Client, WakeThreshold};

use super::say;
use crate::session::clocks;

/// Delay of packets at the daemon, and then in the meter's index: a view shows seconds.
const DELAY_MS: u32 = 50;
/// See [`DELAY_MS`].
const WAKE: WakeThreshold =
    WakeThreshold { min_bytes: 1 << 20, min_packets: 0, max_delay: Duration::from_millis(100) };

/// A capture whose flows are metered, before rights are given up.
pub(super) struct OpenedView {
    capture: String,
    file: Arc<ViewFile>,
}

impl OpenedView {
    /// The files of all captures with `view`, for a process that becomes `identity`. One that cannot be made is told
    /// of, and the capture is served all the same.
    pub(super) fn open_all(rules: &Rules, identity: Option<&Identity>) -> Vec<OpenedView> {
        let viewed = rules.captures.iter().filter(|capture| capture.view);
        let open = |name: &str| -> Result<OpenedView> {
            let file = ViewFile::create(&format!("serve tap:{name}"))?;
            // Flows of all packets: the rules may let the group of the daemon read some of them alone.
            file.make_private()?;
            if let Some(Identity { uid, gid, .. }) = identity {
                file.give_to(*uid, *gid)?;
            }
            Ok(OpenedView { capture: name.to_owned(), file: Arc::new(file) })
        };
        viewed
            .filter_map(|capture| {
                let opened = open(&capture.name);
                opened.map_err(|error| say(&format!("tap:{}: no view: {error}", capture.name))).ok()
            })
            .collect()
    }

    /// Meters in a thread, from the moment on in which the server runs.
    pub(super) fn start(
        self,
        server: &mut Server,
        number: usize,
        meters: &Meters,
        log: &Log,
    ) -> Result<JoinHandle<()>> {
        let stream = server.connect_reader()?;
        let (meters, log) = (meters.clone(), log.clone());
        let run = move || {
            let capture = self.capture.clone();
            match self.meter(stream, number, &meters) {
                Ok(RunEnd::Source | RunEnd::Stopped) => {}
                Ok(RunEnd::Failed(error)) => log.line(&format!("tap:{capture}: the view has ended: {error}")),
                Err(error) => log.line(&format!("tap:{capture}: the view has ended: {error:#}")),
            }
        };
        Ok(thread::Builder::new().name("view".to_owned()).spawn(run)?)
    }

    fn meter(self, stream: UnixStream, number: usize, meters: &Meters) -> Result<RunEnd> {
        let client = Client::connected(stream, "view")?;
        let attach =
            AttachRequest { capture: self.capture.clone(), delay_ms: DELAY_MS, ..AttachRequest::default() };
        let mut tap = client.attach(&attach)?;
        tap.set_wake(WAKE);
        if tap.interfaces().iter().any(|interface| interface.if_index > 0) {
            self.file.set_live();
        }
        let text = format!(
            "device(\"tap:{}\") -> meter :: flow(view=yes, details=\"dns,tls,http,application\") -> live :: view",
            self.capture
        );
        let plan = Plan::new(&[GraphText { name: "view", text: &text }]).map_err(|why| anyhow!(why))?;
        let common = GraphSettings {
            options: Arc::new(|interface| tapline_filter::Options::new(interface.link_type)),
            workers: 1,
            interpret: false,
            directory: PathBuf::new(),
            view: Some(self.file),
            rule_files: Default::default(),
            place_files: Default::default(),
            commands: None,
        };
        let control = Arc::new(Control::new(None));
        let mut output =
            |_: usize| -> Result<Box<dyn Stage>, String> { Err("a view has no outputs".to_owned()) };
        let context = WorkerContext {
            worker: number,
            control: &control,
            common: &common,
            exits: None,
            output: &mut output,
        };
        let (mut graph, sources) = plan::build(&plan, meters, context).map_err(|why| anyhow!(why))?;
        let engine = Engine::new(vec![Inlet::new(&mut tap, sources[0])], &mut graph, &control, clocks);
        Ok(engine.run(&mut |_| {}).ended)
    }
}
