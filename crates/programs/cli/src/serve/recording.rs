//! Recordings of `tapline serve`: for each table `[[record]]` a [reader](super::readers) whose packets go to a store.
//!
//! ```text
//! rules --open, with all rights--> room reserved, files of the serving user --rights given up--> Tap --> StoreOutput
//! ```

use std::io::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result};
use tapline_daemon::{Log, RecordRule, Rules};
use tapline_graph::{Graph, SourceStage};
use tapline_packet::Interface;
use tapline_store::Recorder;
use tapline_sys::privilege::{self, Identity};
use tapline_tap_client::WakeThreshold;
use tapline_tap_client::protocol::AttachRequest;

use super::readers::{Reader, Role};
use crate::session::clocks;
use crate::{store, stored};

/// Delay of packets at the daemon, and then in the recorder's index: with the default of `flush` packets are found a
/// second after their arrival.
const DELAY_MS: u32 = 50;
/// See [`DELAY_MS`].
const WAKE: WakeThreshold =
    WakeThreshold { min_bytes: 4 << 20, min_packets: 0, max_delay: Duration::from_millis(100) };

/// Opens the store of a table, for a process that becomes `identity`, or root without capabilities.
pub(super) fn open(
    rule: &RecordRule,
    rules: &Rules,
    interfaces: &[Interface],
    identity: Option<&Identity>,
) -> Result<Reader> {
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
    // Until the log is there, lines go to standard error.
    let log = Arc::<OnceLock<Log>>::default();
    let of_output = Arc::clone(&log);
    let output = store::output(recorder, &rule.to, now, Box::new(move |line| say(&of_output, line)));
    let name = rule.to.display().to_string();
    Ok(Reader {
        role: Role::Recorder(rule.to.clone(), Arc::default()),
        attach: AttachRequest {
            capture: rule.capture.clone(),
            filter: rule.filter.clone(),
            delay_ms: DELAY_MS,
            ..AttachRequest::default()
        },
        wake: WAKE,
        graph: Box::new(move |_, site| {
            let _ = log.set(site.log.clone());
            let mut graph = Graph::new(site.meters, site.number as u16);
            let source = graph.add("source", "source", Box::new(SourceStage), &[]);
            graph.add(&name, "output", Box::new(output), &[(source, 0)]);
            Ok((graph, vec![source]))
        }),
    })
}

fn say(log: &OnceLock<Log>, line: &str) {
    match log.get() {
        Some(log) => log.line(line),
        None => drop(writeln!(io::stderr(), "tapline: {line}")),
    }
}
