//! Published places of `tapline serve`: for each capture with tables `[[publish]]` one [reader](super::readers), which
//! publishes all of its places. What their stages have in common runs once.
//!
//! ```text
//! Tap --> stages --> publish(dns) --> capture tap:dns
//!                \-> publish(web) --> capture tap:web
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tapline_daemon::{Capture, CaptureRule, PublishRule, Rules};
use tapline_filter::{HandleKind, Options, SystemNames};
use tapline_graph::Stage;
use tapline_graph::catalog::{Constructor, Property, StageClass};
use tapline_graph::plan::{GraphText, Plan, PlanNode};
use tapline_packet::Interface;
use tapline_stages::{PUBLISH, Publish, PublishedSource, StageSettings};
use tapline_tap_client::protocol::AttachRequest;
use tapline_tap_client::{Tap, WakeThreshold};

use super::OpenCapture;
use super::readers::{GraphSite, Reader, Role};
use crate::mistakes::{mistake, misuse};

/// Delay of packets in the graph's index, in addition to the capture's own.
const WAKE: WakeThreshold =
    WakeThreshold { min_bytes: 256 << 10, min_packets: 0, max_delay: Duration::from_millis(10) };
/// The one class of outputs that the daemon opens.
static PLACE: StageClass = PUBLISH;

/// A place, before its capture starts.
pub(super) struct OpenedPlace {
    rule: CaptureRule,
    source: PublishedSource,
}

/// The plan of all places of a capture.
///
/// # Errors
/// The error in the stages; a stage that the daemon does not run.
fn plan_of(capture: &str, places: &[&PublishRule]) -> Result<Plan> {
    let texts: Vec<String> = places.iter().map(|place| place.graph()).collect();
    let named = places.iter().zip(&texts).map(|(place, text)| GraphText { name: &place.name, text });
    let catalog = tapline_stages::catalog().clone().with(&PLACE);
    let plan = Plan::new(&catalog, &named.collect::<Vec<_>>());
    let plan = plan.map_err(|why| mistake(format_args!("[[publish]]: {why}")))?;
    plan.nodes.iter().try_for_each(|node| check(node, capture, places))?;
    Ok(plan)
}

/// The daemon runs stages over the packets of one capture, and nothing that reads, writes or sends elsewhere.
fn check(node: &PlanNode, capture: &str, places: &[&PublishRule]) -> Result<()> {
    let is_ours = match node.class.make {
        Constructor::Source(_) => node.captured_interface() == Some(&*format!("tap:{capture}")),
        Constructor::Output(_) => is_place(node),
        Constructor::Stage(_) => !node.class.has(Property::External),
    };
    if !is_ours {
        misuse!("[[publish]]: the daemon does not run the stage {}: tapline run does", node.name);
    }
    if is_place(node) && rule_of(node, places).is_none() {
        misuse!("[[publish]]: {} has no table of its own", node.name);
    }
    Ok(())
}

fn is_place(node: &PlanNode) -> bool {
    std::ptr::eq(node.class, &PLACE)
}

/// The table of a place.
fn rule_of<'r>(node: &PlanNode, places: &[&'r PublishRule]) -> Option<&'r PublishRule> {
    places.iter().copied().find(|place| is_place(node) && place.name == node.arguments.text("name"))
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

/// The graphs of all captures with places, and the places.
pub(super) fn open_all(rules: &Rules, opened: &[OpenCapture]) -> Result<(Vec<Reader>, Vec<OpenedPlace>)> {
    let (mut graphs_of, mut places_of) = (Vec::new(), Vec::new());
    for (capture, places) in graphs(rules) {
        let plan = plan_of(capture, &places)?;
        let opened = opened.iter().find(|opened| opened.rule.name == capture);
        let source = opened.and_then(|opened| opened.sources.first());
        let interfaces: Vec<Interface> =
            source.map(|source| source.interfaces().to_vec()).unwrap_or_default();
        let names: Vec<String> = interfaces.iter().map(|interface| interface.label().to_owned()).collect();
        let mut stages = HashMap::new();
        for (index, node) in plan.nodes.iter().enumerate() {
            let Some(place) = rule_of(node, &places) else { continue };
            let (stage, source) = Publish::new(&place.name, &interfaces)?;
            stages.insert(index, stage);
            places_of.push(OpenedPlace { rule: place.as_capture(&names), source });
        }
        graphs_of.push(reader(capture, plan, stages));
    }
    Ok((graphs_of, places_of))
}

/// The reader of a capture with places, whose stages are those of the nodes with these numbers.
fn reader(capture: &str, plan: Plan, mut stages: HashMap<usize, Publish>) -> Reader {
    // What all places need together is asked of the daemon, and thereby of the kernel.
    let filter = plan.nodes.iter().find_map(|node| node.kernel_filter.clone()).unwrap_or_default();
    let attach = AttachRequest { capture: capture.to_owned(), filter, ..AttachRequest::default() };
    let options = |interface: &Interface| Options {
        link_type: interface.link_type,
        handle: HandleKind::Live,
        resolver: Arc::new(SystemNames::default().files_only()),
        ..Options::default()
    };
    let graph = move |_: &Tap, site: &GraphSite<'_>| {
        let common = StageSettings { options: Arc::new(options), ..StageSettings::default() }.into();
        site.build(&plan, &common, |node| {
            let stage = stages.remove(&node).ok_or("each place was opened")?;
            Ok(Box::new(stage) as Box<dyn Stage>)
        })
    };
    Reader { role: Role::Places, attach, wake: WAKE, graph: Box::new(graph) }
}

impl OpenedPlace {
    /// Starts the capture, once rights were given up.
    pub(super) fn start(self) -> Result<Capture> {
        let name = self.rule.name.clone();
        Capture::start_place(self.rule, Box::new(self.source), HandleKind::Live)
            .with_context(|| format!("[[publish]] {name:?}"))
    }
}
