//! `rules`: a file of rules decides where packets go, and is read again when it changes.
//!
//! ```text
//! batch: filter -> exact rules, all lookups of the batch together -> list, one set -> sample, default
//!        --> for each output its selection
//!
//! loader (a thread): file --parse--> RuleSet --for each worker--> Prepared --between two batches--> the stage
//! ```

mod loader;
mod prepared;

use std::path::Path;
use std::sync::Arc;

use tapline_filterset::Matches;
use tapline_flow_rules::{Counts, Decision, Flow, OUTPUTS_MAX, Probes, Report, RuleFile, RuleSet};
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Outputs, Parameter, ParameterType, Property, StageClass,
};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::numbers::ip_protocol::has_ports;
use tapline_packet::{BATCH_MAX, Interface, Selection};
use tapline_source::Error;

use super::filters::of_indices;
use crate::settings::InterfaceOptions;
use crate::settings::StageSettings;
pub use loader::RuleFiles;
use loader::SharedRules;
use prepared::Prepared;

pub(crate) const CLASS: StageClass = StageClass {
    name: "rules",
    summary: "a file of rules decides where packets go, and can be changed while they flow",
    description: "First the file's filter, then its exact rules (a million cost one lookup), then a list in its order, then a sample, then a default \
        (docs/rules.md). The file is read again on SIGHUP and when it changes, and takes effect between two batches; counters of unchanged rules \
        continue. A file with a mistake changes nothing. Packets that pass go to output 0, others to the outputs that rules name.",
    parameters: &[
        Parameter { name: "file", kind: ParameterType::Path, default: None, meaning: "the file of rules" },
        Parameter {
            name: "outputs",
            kind: ParameterType::Text,
            default: Some(""),
            meaning: "names of further outputs, with commas between them: the first is output 1; at most 63",
        },
        Parameter {
            name: "rows",
            kind: ParameterType::Number(0, 16_777_216),
            default: Some("100"),
            meaning: "exact rules that the result shows: those with the most packets",
        },
    ],
    outputs: Outputs::Many,
    example: "r :: rules(\"site.rules\", outputs=\"web, ids\"); device(eth0) -> r; r[0] -> record(\"rest.pcap\"); r[1] -> count; r[2] -> print",
    properties: &[Property::External],
    // Rules that come later may have names of hosts.
    access: |arguments, access| {
        access.reads_file(arguments.text("file"));
        access.allowed.ip = true;
    },
    check: |arguments, interfaces, settings| {
        Ok(check(arguments, interfaces, &StageSettings::of(settings).options)?)
    },
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let shared = StageSettings::of(site.common).rule_files.open(
        site.common.path(arguments.text("file")),
        output_names(arguments)?,
        site,
    )?;
    let (worker, generation, prepared) = shared.enter();
    Ok(Box::new(Rules {
        shared,
        worker,
        is_first: site.worker == 0,
        rows: arguments.number("rows") as usize,
        prepared,
        generation,
        matches: Matches::new(),
        probes: Probes::default(),
        decisions: Box::new([Decision::default(); BATCH_MAX]),
        chosen: Vec::with_capacity(BATCH_MAX),
        matched: 0,
        unexamined: 0,
    }))
}

fn output_names(arguments: &Arguments) -> Result<Vec<String>, String> {
    let text = arguments.text("outputs");
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.as_slice() {
        [only] if only.is_empty() => return Ok(Vec::new()),
        names if names.len() > OUTPUTS_MAX => return Err(format!("outputs: more than {OUTPUTS_MAX} names")),
        _ => {}
    }
    for (number, name) in names.iter().enumerate() {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(is_part) {
            return Err(format!("outputs: `{name}` cannot be a name: letters, digits, _ - and ."));
        }
        if names[..number].contains(name) {
            return Err(format!("outputs: `{name}` is given twice"));
        }
    }
    Ok(names)
}

/// Reads the file of a stage of this class, and compiles its filters for interfaces: before anything is opened for
/// writing.
///
/// # Errors
/// The first mistake, with its place and mend.
fn check(arguments: &Arguments, interfaces: &[Interface], options: &InterfaceOptions) -> Result<(), String> {
    let path = Path::new(arguments.text("file"));
    let file = loader::read(path, &output_names(arguments)?)?;
    let mut prepared = Prepared::new(Arc::new(RuleSet::new(file, false)));
    prepared.extend(interfaces, options).map_err(|why| format!("{}: {why}", path.display()))
}

struct Rules {
    shared: Arc<SharedRules>,
    /// Number among the stages that share the rules.
    worker: usize,
    /// Whether it reports changes of the file.
    is_first: bool,
    rows: usize,
    prepared: Prepared,
    /// The change that `prepared` is of.
    generation: u64,
    matches: Matches,
    probes: Probes,
    decisions: Box<[Decision; BATCH_MAX]>,
    /// Packets of one output.
    chosen: Vec<u8>,
    /// Packets that went to an output at least.
    matched: u64,
    unexamined: u64,
}

impl Rules {
    /// Takes changed rules, if there are any.
    fn take_change(&mut self) {
        let generation = self.shared.generation();
        if generation != self.generation {
            self.generation = generation;
            if let Some(prepared) = self.shared.take(self.worker) {
                self.prepared = prepared;
            }
        }
    }

    /// Exact rules. Leaves the packets that are not decided.
    fn ask_exact(&mut self, rules: &RuleSet, packets: &Packets<'_>, undecided: &mut Selection) {
        let table = &rules.file().exact;
        if table.is_empty() {
            return;
        }
        self.probes.clear();
        for index in undecided.iter() {
            let (headers, data) = (packets.headers(index), packets.batch.packet(index).data);
            let Some(tuple) = headers.five_tuple(data) else { continue };
            let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
            if let Some(flow) = Flow::of(&tuple).filter(|_| !is_later || !has_ports(tuple.protocol)) {
                self.probes.add(index, flow);
            }
        }
        let decisions = &mut self.decisions;
        table.find_all(&mut self.probes, |index, rule| {
            if let Some(rule) = rule {
                rules.obey_exact(rule, wire_len(packets, index), &mut decisions[index]);
            }
        });
        undecided.retain(|index| !decisions[index].is_final);
    }

    /// The list. Leaves the packets that are not decided.
    fn ask_list(&mut self, rules: &RuleSet, packets: &Packets<'_>, undecided: &mut Selection) {
        if rules.file().list.is_empty() {
            return;
        }
        let Rules { prepared, matches, decisions, .. } = self;
        prepared.classify(packets, undecided, matches, |index, rule| {
            let decision = &mut decisions[index];
            if !decision.is_final {
                rules.obey_list(rule, wire_len(packets, index), decision);
            }
        });
        undecided.retain(|index| !decisions[index].is_final);
    }

    fn decide(&mut self, packets: &mut Packets<'_>) {
        let rules = Arc::clone(&self.prepared.rules);
        let (len, bytes) = (packets.len() as u64, packets.bytes());
        self.prepared.filter.select(&packets.batch, &mut packets.selection);
        if packets.len() as u64 != len {
            rules.refuse(len - packets.len() as u64, bytes - packets.bytes());
        }
        packets.selection.iter().for_each(|index| self.decisions[index] = Decision::default());
        let mut undecided = packets.selection.clone();
        self.ask_exact(&rules, packets, &mut undecided);
        self.ask_list(&rules, packets, &mut undecided);
        undecided
            .iter()
            .for_each(|index| rules.obey_rest(wire_len(packets, index), &mut self.decisions[index]));
    }

    fn hand_on(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let mut all = tapline_flow_rules::Outputs::default();
        for index in packets.selection.iter() {
            let outputs = self.decisions[index].outputs;
            self.matched += u64::from(!outputs.is_empty());
            all = all.and(outputs);
        }
        let mut result = Ok(());
        for output in (0..=OUTPUTS_MAX).filter(|output| all.has(*output)) {
            self.chosen.clear();
            let goes_there = |index: &usize| self.decisions[*index].outputs.has(output);
            self.chosen.extend(packets.selection.iter().filter(goes_there).map(|index| index as u8));
            result = result.and(out.pass_to(output, &mut packets.narrowed_to(of_indices(&self.chosen))));
        }
        result
    }
}

fn wire_len(packets: &Packets<'_>, index: usize) -> u64 {
    u64::from(packets.batch.records()[index].meta.wire_len)
}

impl Stage for Rules {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.take_change();
        if packets.interfaces.len() > self.prepared.known() {
            if let Err(why) = self.prepared.extend(packets.interfaces, &self.shared.options) {
                self.unexamined += packets.len() as u64;
                return Err(Error::Filter(why));
            }
            self.shared.learn(self.worker, packets.interfaces);
        }
        self.decide(packets);
        self.hand_on(packets, out)
    }

    fn tick(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.take_change();
        Ok(StageStatus::Running)
    }

    fn counters(&self) -> StageCounters {
        StageCounters {
            unexamined: self.unexamined,
            matched: Some(self.matched),
            filter: (self.prepared.filter.len() > 0).then(|| self.prepared.filter.account()),
            ..StageCounters::default()
        }
    }

    fn result(&self) -> Option<Table> {
        let rules = &self.prepared.rules;
        Some(table(rules.file(), rules.report(), self.rows))
    }

    fn events(&mut self) -> Vec<String> {
        let mut events = std::mem::take(&mut self.prepared.told);
        match self.is_first {
            true => events.extend(self.shared.take_messages()),
            false => events.clear(),
        }
        events
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        self.shared.leave(self.worker);
    }
}

/// The counts as a table: the filter, exact rules, the list, the sample, the default, and rules that are gone.
fn table(file: &RuleFile, report: Report, rows: usize) -> Table {
    let mut table = Table { columns: vec!["rule", "actions", "packets", "bytes"], rows: Vec::new() };
    let mut add = |rule: String, actions: String, counts: Counts| {
        table.rows.push(vec![rule.into(), actions.into(), counts.packets.into(), counts.bytes.into()]);
    };
    let Report { totals, mut exact } = report;
    if !file.filter.is_empty() {
        add(format!("filter {}", file.filter), "refused".to_owned(), totals.refused);
    }
    exact.sort_by_key(|(number, counts)| (std::cmp::Reverse(*counts), *number));
    for (number, counts) in exact.iter().take(rows) {
        add(file.shown(*number), file.shown_actions(file.actions_of(*number)), *counts);
    }
    if !file.exact.is_empty() {
        let sum = exact.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(*counts));
        add("flow (all)".to_owned(), format!("{} rules, {} met", file.exact.len(), exact.len()), sum);
    }
    for (rule, counts) in file.list.iter().zip(&totals.list) {
        let name = if rule.name.is_empty() { &rule.filter } else { &rule.name };
        add(format!("rule {name}"), file.shown_actions(&rule.actions), *counts);
    }
    if let Some(share) = file.sample {
        add(format!("sample {share}"), "dropped".to_owned(), totals.unsampled);
    }
    add("default".to_owned(), file.shown_actions(&file.default), totals.default);
    if totals.removed.packets > 0 {
        add("removed".to_owned(), String::new(), totals.removed);
    }
    table
}

#[cfg(test)]
mod tests;
