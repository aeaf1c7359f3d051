//! The stages that send: whether they may, and their sockets.

use anyhow::Result;
use tapline_graph::Stage;
use tapline_graph::catalog::{Arguments, OpenContext, Property};
use tapline_graph::plan::{Plan, PlanNode};
use tapline_packet::Interface;
use tapline_stages::{Bounce, Reflect};
use tapline_transmit::{FrameEdit, SendPolicy, SendSettings, Transmitter};

use super::settings::RunSettings;
use crate::live::bare_name;

/// Latency of forwarded packets in a block of the ring, in milliseconds: the kernel's shortest timer.
pub(super) const LATENCY_MS: u32 = 1;

/// Whether packets of a source are sent on somewhere.
pub(super) fn follows(plan: &Plan, source: &PlanNode) -> bool {
    senders(plan).any(|index| sources_before(plan, index).iter().any(|node| std::ptr::eq(*node, source)))
}

/// Checks that sending is allowed wherever the plan sends, and that nothing goes round, before any socket to send is
/// opened.
pub(crate) fn check(settings: &RunSettings, plan: &Plan, interfaces: &[Interface]) -> Result<()> {
    if senders(plan).next().is_none() {
        return Ok(());
    }
    let network = network(settings)?;
    let mut ways = Vec::new();
    for index in senders(plan) {
        let node = &plan.nodes[index];
        for from in sources_of(plan, index, interfaces) {
            let to = node.arguments.get("interface").unwrap_or(&from);
            network.permit(to)?;
            ways.push((from.clone(), to.to_owned()));
        }
    }
    Ok(network.check_for_loops(&ways)?)
}

/// Opens the output of a `bounce`.
pub(super) fn bounce(settings: &RunSettings, context: &OpenContext<'_>) -> Result<Box<dyn Stage>> {
    let permit = network(settings)?.permit(context.arguments().text("interface"))?;
    Ok(Box::new(Bounce::new(Transmitter::open(&permit, &send_settings(context.arguments()))?)))
}

/// Opens the output of a `reflect`: a socket for each interface from which packets come.
pub(super) fn reflect(settings: &RunSettings, context: &OpenContext<'_>) -> Result<Box<dyn Stage>> {
    let network = network(settings)?;
    let mut transmitters = Vec::new();
    for name in sources_of(context.plan, context.index, context.site.interfaces) {
        let permit = network.permit(&name)?;
        transmitters
            .push((permit.if_index(), Transmitter::open(&permit, &send_settings(context.arguments()))?));
    }
    Ok(Box::new(Reflect::new(transmitters)))
}

fn network(settings: &RunSettings) -> Result<SendPolicy> {
    Ok(SendPolicy::inspect(settings.netns.as_deref(), &settings.owned)?)
}

fn send_settings(arguments: &Arguments) -> SendSettings {
    let change = if arguments.text("swap") == "mac" { FrameEdit::SwapAddresses } else { FrameEdit::None };
    SendSettings { segments: true, change, ..SendSettings::default() }
}

/// The nodes that send.
fn senders(plan: &Plan) -> impl Iterator<Item = usize> {
    let senders = plan.nodes.iter().enumerate().filter(|(_, node)| node.class.has(Property::Sends));
    senders.map(|(index, _)| index)
}

/// The sources from which packets come to a node.
pub(super) fn sources_before(plan: &Plan, index: usize) -> Vec<&PlanNode> {
    let mut reaches = vec![false; plan.nodes.len()];
    reaches[index] = true;
    // Each node stands before those that it leads to.
    for at in (0..=index).rev() {
        if reaches[at] {
            plan.nodes[at].inputs.iter().for_each(|&(from, _)| reaches[from] = true);
        }
    }
    let nodes = plan.nodes.iter().zip(reaches);
    nodes.filter(|(node, reaches)| *reaches && node.is_source()).map(|(node, _)| node).collect()
}

/// The interfaces from which packets come to a node: those that a device names, and all that are known if it means
/// several, or if the packets of several workers come together before.
fn sources_of(plan: &Plan, index: usize, interfaces: &[Interface]) -> Vec<String> {
    let live = || interfaces.iter().filter(|interface| interface.if_index > 0);
    let mut names: Vec<String> = Vec::new();
    for source in sources_before(plan, index) {
        let named = match source.captured_interface() {
            Some(name) => bare_name(name),
            None if source.exit.is_some() => "",
            None => continue,
        };
        match live().find(|interface| interface.name == named) {
            Some(one) => names.push(one.name.clone()),
            None => names.extend(live().map(|interface| interface.name.clone())),
        }
    }
    names.sort();
    names.dedup();
    names
}
