//! Views of `tapline serve`: for each capture with `view` a [reader](super::readers) that meters flows for
//! `tapline view`.
//!
//! ```text
//! Tap --> flow(view=yes) --> view --> PID.view
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tapline_daemon::Rules;
use tapline_graph::plan::{PlanBuilder, StageDraft};
use tapline_source::Source as _;
use tapline_stages::{StageSettings, ViewFile};
use tapline_sys::privilege::Identity;
use tapline_tap_client::protocol::AttachRequest;
use tapline_tap_client::{Tap, WakeThreshold};

use super::readers::{GraphSite, Reader, Role};
use crate::output::say;

/// Delay of packets at the daemon, and then in the meter's index: a view shows seconds.
const DELAY_MS: u32 = 50;
/// See [`DELAY_MS`].
const WAKE: WakeThreshold =
    WakeThreshold { min_bytes: 1 << 20, min_packets: 0, max_delay: Duration::from_millis(100) };

/// The readers of all captures with `view`, for a process that becomes `identity`. A view whose file cannot be made is
/// reported, and the capture is served all the same.
pub(super) fn open_all(rules: &Rules, identity: Option<&Identity>) -> Vec<Reader> {
    let viewed = rules.captures.iter().filter(|capture| capture.view);
    viewed
        .filter_map(|capture| {
            let opened = open(&capture.name, identity);
            opened.map_err(|error| say(format!("tap:{}: no view: {error}", capture.name))).ok()
        })
        .collect()
}

fn open(capture: &str, identity: Option<&Identity>) -> Result<Reader> {
    let file = ViewFile::create(&format!("serve tap:{capture}"))?;
    // Flows of all packets: the rules may let the group of the daemon read some of them alone.
    file.make_private()?;
    if let Some(Identity { uid, gid, .. }) = identity {
        file.give_to(*uid, *gid)?;
    }
    let mut graph = PlanBuilder::default();
    let meter = StageDraft::new("flow").with("view", true).with("details", "dns,tls,http,application");
    graph.add_chain([
        StageDraft::new("device").arg(format!("tap:{capture}")),
        meter.named("meter"),
        StageDraft::new("view").named("live"),
    ]);
    let plan = graph.plan(tapline_stages::catalog()).map_err(|why| anyhow!(why))?;
    let attach =
        AttachRequest { capture: capture.to_owned(), delay_ms: DELAY_MS, ..AttachRequest::default() };
    let graph = move |tap: &Tap, site: &GraphSite<'_>| {
        if tap.interfaces().iter().any(|interface| interface.if_index > 0) {
            file.set_live();
        }
        let common = StageSettings { view: Some(Arc::new(file)), ..StageSettings::default() }.into();
        site.build(&plan, &common, |_| Err("a view has no outputs".to_owned()))
    };
    Ok(Reader { role: Role::View, attach, wake: WAKE, graph: Box::new(graph) })
}
