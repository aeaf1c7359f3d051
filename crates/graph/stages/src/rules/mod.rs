//! `rules`: a file of rules decides where packets go, and is read again when it changes.
//!
//! ```text
//! batch: filter -> exact rules, then learned flows, all lookups of the batch together -> list, one set -> sample, default
//!        --> for each output its selection
//!
//! loader (a thread): file --parse--> RuleSet --for each worker--> Prepared --between two batches--> the stage
//! ```

mod loader;
mod prepared;

use std::path::Path;
use std::sync::Arc;

use tapline_filterset::Matches;
use tapline_flow_rules::{
    Counts, Decision, ExactTable, Flow, Learned, LearnedTotals, OUTPUTS_MAX, Probes, Report, RuleFile,
    RuleSet, Teacher,
};
use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Outputs, Parameter, ParameterType, Property, StageClass,
};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::numbers::ip_protocol::has_ports;
use tapline_packet::{BATCH_MAX, FiveTuple, Interface, Selection};
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
        Parameter::required("file", ParameterType::Path).means("the file of rules"),
        Parameter::new("outputs", ParameterType::Text, "")
            .means("names of further outputs, with commas between them: the first is output 1; at most 63"),
        Parameter::new("rows", ParameterType::Number(0, 16_777_216), "100")
            .means("exact rules that the result shows: those with the most packets"),
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
    let learned = Learned::of(&prepared.rules);
    Ok(Box::new(Rules {
        learned,
        to_learn: Vec::with_capacity(BATCH_MAX),
        shared,
        worker,
        is_first: site.worker == 0,
        rows: arguments.number("rows") as usize,
        prepared,
        generation,
        matches: Matches::new(),
        probes: Probes::default(),
        decisions: Box::new([Decision::default(); BATCH_MAX]),
        seconds: Box::new([0; BATCH_MAX]),
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
    /// Flows that rules with `learn` have taught this worker.
    learned: Learned,
    /// Packets of the batch whose flows are to be learned.
    to_learn: Vec<(u8, Teacher)>,
    matches: Matches,
    probes: Probes,
    decisions: Box<[Decision; BATCH_MAX]>,
    /// The second of each packet as idle times count it.
    seconds: Box<[u32; BATCH_MAX]>,
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
                self.learned = Learned::of(&prepared.rules);
                self.prepared = prepared;
            }
        }
    }

    /// Exact rules, and the flows that were learned. Leaves the packets that are not decided.
    fn ask_exact(&mut self, rules: &RuleSet, packets: &Packets<'_>, undecided: &mut Selection) {
        let table = &rules.file().exact;
        let has_learned = !self.learned.is_empty();
        if table.is_empty() && !has_learned {
            return;
        }
        self.probe(packets, undecided);
        let Rules { probes, decisions, seconds, .. } = self;
        table.find_all(probes, |index, rule| {
            if let Some(rule) = rule {
                rules.obey_exact(rule, wire_len(packets, index), seconds[index], &mut decisions[index]);
            }
        });
        undecided.retain(|index| !decisions[index].is_final);
        if has_learned {
            self.probe(packets, undecided);
            let facts = |index: usize| (wire_len(packets, index), self.seconds[index]);
            self.learned.ask(rules, &mut self.probes, facts, &mut self.decisions[..]);
            let decisions = &self.decisions;
            undecided.retain(|index| !decisions[index].is_final);
        }
    }

    /// Prepares lookups of the flows of packets.
    fn probe(&mut self, packets: &Packets<'_>, selection: &Selection) {
        self.probes.clear();
        for index in selection.iter() {
            if let Some(flow) = flow_of(packets, index).as_ref().and_then(Flow::of) {
                self.probes.add(index, flow);
            }
        }
    }

    /// Adds rules for the flows of packets that met a rule with `learn`: the first one, if there were several.
    fn learn(&mut self, rules: &RuleSet, packets: &Packets<'_>) {
        let mut has_taught = [false; BATCH_MAX];
        for (index, teacher) in self.to_learn.drain(..) {
            let index = usize::from(index);
            if !std::mem::replace(&mut has_taught[index], true)
                && let Some(tuple) = flow_of(packets, index)
            {
                self.learned.learn(rules, tuple, teacher, self.seconds[index]);
            }
        }
    }

    /// The list. Leaves the packets that are not decided.
    fn ask_list(&mut self, rules: &RuleSet, packets: &Packets<'_>, undecided: &mut Selection) {
        if rules.file().list.is_empty() {
            return;
        }
        let Rules { prepared, matches, decisions, to_learn, .. } = self;
        prepared.classify(packets, undecided, matches, |index, rule| {
            let decision = &mut decisions[index];
            if !decision.is_final {
                rules.obey_list(rule, wire_len(packets, index), decision);
                if rules.file().list[rule].actions.learns {
                    to_learn.push((index as u8, Teacher::List(rule)));
                }
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
        for index in packets.selection.iter() {
            self.decisions[index] = Decision::default();
            self.seconds[index] = rules.see(stamp_s(packets, index));
        }
        let mut undecided = packets.selection.clone();
        self.ask_exact(&rules, packets, &mut undecided);
        self.ask_list(&rules, packets, &mut undecided);
        for index in undecided.iter() {
            let is_default = rules.obey_rest(wire_len(packets, index), &mut self.decisions[index]);
            if is_default && rules.file().default.learns {
                self.to_learn.push((index as u8, Teacher::Default));
            }
        }
        if !self.to_learn.is_empty() {
            self.learn(&rules, packets);
        }
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

/// The second of a packet's time stamp since 1970, from 1 on; 0 and the last number have a meaning of their own.
fn stamp_s(packets: &Packets<'_>, index: usize) -> Option<u32> {
    let meta = &packets.batch.records()[index].meta;
    let seconds = meta.timestamp.seconds().clamp(1, i64::from(ExactTable::PURGED) - 1);
    (!meta.is_untimed).then_some(seconds as u32)
}

/// The flow of a packet. Later fragments have none where the protocol has ports.
fn flow_of(packets: &Packets<'_>, index: usize) -> Option<FiveTuple> {
    let (headers, data) = (packets.headers(index), packets.batch.packet(index).data);
    let tuple = headers.five_tuple(data)?;
    let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
    (!is_later || !has_ports(tuple.protocol)).then_some(tuple)
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
}

impl Drop for Rules {
    fn drop(&mut self) {
        self.shared.leave(self.worker);
    }
}

/// The counts as a table: the filter, exact rules, the list, the sample, the default, and rules that are gone.
fn table(file: &RuleFile, report: Report, rows: usize) -> Table {
    let mut table =
        Table { columns: vec!["rule", "actions", "packets", "bytes", "idle_s"], rows: Vec::new() };
    let mut add_idle = |rule: String, actions: String, counts: Counts, idle_s: Option<u64>| {
        let Counts { packets, bytes } = counts;
        table.rows.push(vec![rule.into(), actions.into(), packets.into(), bytes.into(), idle_s.into()]);
    };
    let Report { totals, mut exact, purged, learned, now_s } = report;
    let idle_s = |number: u32| {
        let last_s = file.exact.last_s(number).filter(|last_s| *last_s != ExactTable::PURGED);
        last_s.map(|last_s| u64::from(now_s.saturating_sub(last_s)))
    };
    if !file.filter.is_empty() {
        add_idle(format!("filter {}", file.filter), "refused".to_owned(), totals.refused, None);
    }
    exact.sort_by_key(|(number, counts)| (std::cmp::Reverse(*counts), *number));
    for (number, counts) in exact.iter().take(rows) {
        let actions = file.shown_actions(file.actions_of(*number));
        add_idle(file.shown(*number), actions, *counts, idle_s(*number));
    }
    let mut add = |rule: String, actions: String, counts: Counts| add_idle(rule, actions, counts, None);
    if !file.exact.is_empty() {
        let sum = exact.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(*counts));
        let purged = if purged > 0 { format!(", {purged} purged") } else { String::new() };
        add("flow (all)".to_owned(), format!("{} rules, {} met{purged}", file.exact.len(), exact.len()), sum);
    }
    if file.learns() {
        let LearnedTotals { flows, forgotten, refused, counts } = learned;
        let text = format!("{flows} flows, {forgotten} purged, {refused} packets without room");
        add("learned".to_owned(), text, counts);
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
