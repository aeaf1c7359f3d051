//! The engine of rules: packets in, events out, by the time of the packets.
//!
//! ```text
//! batch --cut where a second of packet time begins--> runs
//!   run: flows counted -> filters asked -> each packet: kept for recordings, then the rules that it meets
//!   second: flows that have ended, conditions that no longer hold, silences
//! ```
//!
//! Nothing here reads a clock. A live run advances the time when no packets come ([`Watch::advance`]); otherwise
//! packets alone drive it, so a file gives the events of the live run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapline_filterset::Matches;
use tapline_flow::Flow;
use tapline_packet::headers::Headers;
use tapline_packet::{BATCH_MAX, Batch, Interface, LinkType, Packet, Record, Selection};
use tapline_source::InterfaceAccount;
use tapline_sys::disk;

use crate::certificates::{Certificate, Certificates};
use crate::clock::Clock;
use crate::filters::{Asking, Compile, FilterResults, RuleFilterSet, RuleFilters};
use crate::flows::{FlowFrames, Flows};
use crate::key::Subject;
use crate::outbox::{Outbox, Report};
use crate::past::Past;
use crate::recording::Recordings;
use crate::rules::{Rules, Source};
use crate::script::{SCRIPT_MAX, Script, TriggerKind, certificate_map, flow_map, packet_map};
use crate::state::{RuleCounts, RuleState};

const SECOND_NS: i64 = 1_000_000_000;
/// Seconds that are gone through one by one where no packets come, as long as a rule waits for something.
const STEPS: i64 = 86_400;
/// After these, hours; then the rest at once. A time stamp that is wrong by centuries costs no more than that.
const LONG_STEPS: i64 = 31 * 24;

/// Rules and scripts that are ready to run for the interfaces that are known.
pub struct Program {
    rules: Arc<Rules>,
    filters: RuleFilters,
    scripts: Vec<Script>,
    /// Triggers of all scripts: their numbers among filters begin behind those of the rules.
    triggers: Vec<TriggerPlace>,
    compile: Arc<dyn Compile>,
}

/// A trigger: the script, and its place there.
#[derive(Clone, Copy, Debug)]
struct TriggerPlace {
    script: usize,
    trigger: usize,
    kind: TriggerKind,
}

impl Program {
    /// Makes rules ready. Their scripts are read from `folder`.
    ///
    /// # Errors
    /// The mistake in a filter or script, with the name of its rule or file.
    pub fn new(
        rules: Rules,
        folder: &Path,
        interfaces: &[Interface],
        compile: Arc<dyn Compile>,
    ) -> Result<Program, String> {
        let mut askings = Asking::of_rules(&rules);
        let (mut scripts, mut triggers) = (Vec::new(), Vec::new());
        for (at, entry) in rules.scripts.iter().enumerate().filter(|(_, entry)| !entry.is_off) {
            let text =
                read_script(&folder.join(&entry.file)).map_err(|why| format!("`{}`: {why}", entry.name))?;
            let script = Script::load(entry, rules.rules.len() + at, text, rules.settings.operations)?;
            askings.extend(script.askings(rules.rules.len() + triggers.len()));
            let places = script.kinds.iter().enumerate();
            triggers.extend(places.map(|(trigger, kind)| TriggerPlace {
                script: scripts.len(),
                trigger,
                kind: *kind,
            }));
            scripts.push(script);
        }
        let mut filters = RuleFilters::new(askings, &*compile)?;
        filters.extend(interfaces, &*compile)?;
        Ok(Program { rules: Arc::new(rules), filters, scripts, triggers, compile })
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    fn needs_flows(&self) -> bool {
        self.filters.asks_ended() || self.filters.asks_begun()
    }

    fn needs_certificates(&self) -> bool {
        self.triggers.iter().any(|place| place.kind == TriggerKind::Certificate)
    }

    /// Nanoseconds that packets are kept for recordings; `None` if none are made.
    fn keeps_ns(&self) -> Option<u64> {
        let rules = self.rules.rules.iter().map(|rule| &rule.actions);
        let all = rules.chain(self.rules.scripts.iter().map(|script| &script.actions));
        all.filter_map(|actions| actions.record).map(|record| record.before_ns).max()
    }

    /// Takes over the scripts of another program that are the same here: they go on with all that they remember. Their
    /// numbers there, and here.
    fn keep_scripts(&mut self, before: Vec<Script>) -> HashMap<usize, usize> {
        let mut numbers = HashMap::new();
        for old in before {
            if let Some(same) = self.scripts.iter_mut().find(|new| new.is_same(&old)) {
                let number = same.number;
                numbers.insert(old.number, number);
                *same = old;
                same.number = number;
            }
        }
        numbers
    }
}

fn read_script(path: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let bytes = disk::read_at_most(path, SCRIPT_MAX).map_err(|error| failed(&error))?;
    match bytes.len() as u64 {
        0..=SCRIPT_MAX => String::from_utf8(bytes).map_err(|error| failed(&error)),
        _ => Err(format!("{} is longer than {SCRIPT_MAX} bytes, the most that is read", path.display())),
    }
}

/// Rules at work.
pub struct Watch {
    program: Program,
    states: Vec<RuleState>,
    flows: Option<Flows>,
    certificates: Option<Certificates>,
    frames: FlowFrames,
    out: Outbox,
    records: bool,
    matches: Matches,
    found: FilterResults,
    begun: FilterResults,
    accounts: Vec<InterfaceAccount>,
    clock: Clock,
    /// Memory for records of a batch in which one is ahead of the clock.
    limited: Vec<Record>,
    /// The next second that has work of its own.
    next_ns: i64,
}

impl Watch {
    /// Rules that have seen nothing. Recordings are made in `directory`.
    ///
    /// # Errors
    /// If the flows that rules need do not fit into memory.
    pub fn new(program: Program, directory: PathBuf) -> Result<Watch, String> {
        let rules = Arc::clone(&program.rules);
        let states = rules.rules.iter().enumerate().map(|(at, rule)| RuleState::new(at, rule)).collect();
        let keeps_ns = program.keeps_ns();
        Ok(Watch {
            states,
            flows: program.needs_flows().then(|| Flows::new(&rules.settings)).transpose()?,
            certificates: program.needs_certificates().then(Certificates::new),
            frames: FlowFrames::default(),
            out: Outbox {
                reports: Vec::new(),
                faults: Vec::new(),
                past: Past::new(keeps_ns.unwrap_or(0), rules.settings.history),
                recordings: Recordings::new(directory, rules.rules.len() + rules.scripts.len()),
                interfaces: Vec::new(),
            },
            records: keeps_ns.is_some(),
            matches: Matches::new(),
            found: FilterResults::default(),
            begun: FilterResults::default(),
            accounts: Vec::new(),
            clock: Clock::default(),
            limited: Vec::new(),
            next_ns: i64::MAX,
            program,
        })
    }

    /// Puts other rules in place of these. A rule that is as before goes on with all that it remembers; flows and the
    /// packets of the last seconds stay. The names of settings that keep their values, because flows go on with them.
    ///
    /// # Errors
    /// If the flows that rules need do not fit into memory; then the rules are as before.
    pub fn exchange(&mut self, program: Program) -> Result<Vec<&'static str>, String> {
        if program.needs_flows() && self.flows.is_none() {
            self.flows = Some(Flows::new(&program.rules.settings)?);
        }
        if program.needs_certificates() && self.certificates.is_none() {
            self.certificates = Some(Certificates::new());
        }
        let mut before = std::mem::replace(&mut self.program, program);
        let mut numbers = self.program.keep_scripts(std::mem::take(&mut before.scripts));
        let mut states: Vec<Option<RuleState>> =
            std::mem::take(&mut self.states).into_iter().map(Some).collect();
        let rules = Arc::clone(&self.program.rules);
        for (number, rule) in rules.rules.iter().enumerate() {
            let is_same = |old: &crate::rules::Rule| {
                let line = old.line;
                old.name == rule.name && *old == crate::rules::Rule { line, ..rule.clone() }
            };
            let old = before.rules.rules.iter().position(is_same);
            let kept = old.and_then(|old| {
                numbers.insert(old, number);
                states[old].take()
            });
            let mut state = kept.unwrap_or_else(|| RuleState::joining(number, rule));
            state.number = number;
            if let Some(now_ns) = self.clock.now_ns().filter(|_| old.is_none()) {
                state.start(rule, now_ns);
            }
            self.states.push(state);
        }
        self.out.recordings.renumber(rules.rules.len() + rules.scripts.len(), &numbers);
        let keeps_ns = self.program.keeps_ns();
        self.records = keeps_ns.is_some();
        self.out.past.set_bounds(keeps_ns.unwrap_or(0), rules.settings.history);
        Ok(self.flows.as_ref().map_or_else(Vec::new, |flows| flows.kept_settings(&rules.settings)))
    }

    /// Takes packets.
    ///
    /// # Errors
    /// If a filter cannot be compiled for an interface that is new.
    pub fn push(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), String> {
        if interfaces.len() > self.program.filters.known() {
            let compile = Arc::clone(&self.program.compile);
            self.program.filters.extend(interfaces, &*compile)?;
        }
        if interfaces.len() != self.out.interfaces.len() {
            self.out.interfaces = interfaces.to_vec();
        }
        let mut records = std::mem::take(&mut self.limited);
        let batch = self.clock.limit(batch, selection, &mut records);
        self.take(&batch, selection, interfaces);
        self.limited = records;
        Ok(())
    }

    /// Cuts packets into runs of a second, and takes these.
    fn take(&mut self, batch: &Batch<'_>, selection: &Selection, interfaces: &[Interface]) {
        let mut run = Selection::none();
        for index in selection.iter() {
            let time_ns = batch.records()[index].meta.timestamp.as_nanos();
            self.start(time_ns);
            if let Some(step_ns) = self.clock.follow(time_ns) {
                self.run(batch, &run, interfaces);
                run.clear();
                self.set_back(step_ns);
            }
            if time_ns >= self.next_ns {
                self.run(batch, &run, interfaces);
                run.clear();
                self.advance(time_ns);
            }
            run.push(index);
        }
        self.run(batch, &run, interfaces);
    }

    /// Time begins, if it has not.
    fn start(&mut self, now_ns: i64) {
        if self.clock.now_ns().is_some() {
            return;
        }
        self.clock.advance(now_ns);
        self.next_ns = next_second(now_ns);
        for (state, rule) in self.states.iter_mut().zip(&self.program.rules.rules) {
            state.start(rule, now_ns);
        }
    }

    /// Takes packets of one second.
    fn run(&mut self, batch: &Batch<'_>, run: &Selection, interfaces: &[Interface]) {
        if run.is_empty() {
            return;
        }
        let Watch { program, flows, matches, found, begun, .. } = self;
        let first = flows.as_mut().map(|flows| flows.push(batch, run, interfaces));
        program.filters.packets(RuleFilterSet::Packets, batch, run, matches, found);
        let first = first.unwrap_or_else(Selection::none);
        program.filters.packets(RuleFilterSet::Begun, batch, &first, matches, begun);
        if found.is_empty() && begun.is_empty() && !self.records {
            return;
        }
        let (mut at, mut begun_at) = (0, 0);
        for index in run.iter() {
            let packet = batch.packet(index);
            if self.records {
                self.out.past.push(packet);
                if self.out.recordings.is_recording() {
                    self.out.recordings.push(packet, interfaces);
                }
            }
            let (mut subject, mut certificates) = (None, None);
            for (found, at) in [(&self.found, &mut at), (&self.begun, &mut begun_at)] {
                for (_, number) in found.of(index, at) {
                    let subject = subject.get_or_insert_with(|| subject_of(packet, interfaces));
                    let number = *number as usize;
                    let time_ns = packet.meta.timestamp.as_nanos();
                    match self.program.rules.rules.get(number) {
                        Some(rule) => self.states[number].take(rule, time_ns, subject, &mut self.out),
                        None => {
                            let place = self.program.triggers[number - self.states.len()];
                            let script = &mut self.program.scripts[place.script];
                            let link_type = link_type(packet, interfaces);
                            let mut call = |argument| {
                                script.call(
                                    place.trigger,
                                    time_ns,
                                    Some(subject),
                                    Some(argument),
                                    &mut self.out,
                                );
                            };
                            if place.kind != TriggerKind::Certificate {
                                call(packet_map(link_type, packet, subject));
                                continue;
                            }
                            // A packet is taken once, and what it completes is for each trigger that meets it.
                            let of_packet = certificates.get_or_insert_with(|| -> Vec<Certificate> {
                                let all = self.certificates.as_mut();
                                all.map_or_else(Vec::new, |all| all.push(link_type, packet))
                            });
                            of_packet.iter().map(certificate_map).for_each(call);
                        }
                    }
                }
            }
        }
    }

    /// Advances the time of the packets to `now_ns` when none has come. An earlier time than that of the packets
    /// changes nothing.
    pub fn advance(&mut self, now_ns: i64) {
        self.start(now_ns);
        // A second that is over would be done again, with what came after it.
        let now_ns = self.clock.now_ns().map_or(now_ns, |clock_ns| clock_ns.max(now_ns));
        let mut steps = 0;
        while self.next_ns <= now_ns {
            let second_ns = self.next_ns;
            self.second(second_ns, false);
            steps += 1;
            self.next_ns = match steps {
                _ if !self.is_active() => next_second(now_ns),
                0..STEPS => second_ns + SECOND_NS,
                _ if steps < STEPS + LONG_STEPS => second_ns.saturating_add(3600 * SECOND_NS),
                _ => next_second(now_ns),
            };
        }
        self.next_ns = self.next_ns.min(next_second(now_ns));
        self.clock.advance(now_ns);
    }

    /// Takes time stamps beyond `latest_ns` as that from now on, also in recordings. For live interfaces, where one
    /// wrong time stamp would hold up all that waits for its time.
    pub fn set_latest(&mut self, latest_ns: i64) {
        self.clock.set_latest(latest_ns);
    }

    /// Notes that the clock of the packets was set back by `step_ns`. Flows end, and start again with their next
    /// packets; all other memory keeps its age.
    pub fn set_back(&mut self, step_ns: i64) {
        let Some(step) = self.clock.set_back(step_ns) else { return };
        self.next_ns = next_second(step.to_ns);
        self.states.iter_mut().for_each(|state| state.set_back(step));
        self.program.scripts.iter_mut().for_each(|script| script.set_back(step, &mut self.out));
        self.out.recordings.set_back(step);
        self.out.past.set_back(step);
        self.certificates = self.certificates.take().map(|_| Certificates::new());
        self.end_flows(step.to_ns, true);
        self.flows.iter_mut().for_each(|flows| flows.set_back(step.to_ns));
        let seconds = step.from_ns.saturating_sub(step.to_ns) as f64 / SECOND_NS as f64;
        self.out.faults.push(format!("the clock of the packets was set back by {seconds:.1} s: flows end"));
    }

    /// Whether time alone can bring an event.
    fn is_active(&self) -> bool {
        self.out.recordings.is_recording()
            || self.flows.as_ref().is_some_and(Flows::is_active)
            || self.states.iter().any(RuleState::is_active)
            || self.program.scripts.iter().any(Script::is_active)
    }

    /// The work of a second: flows that have ended, then conditions.
    fn second(&mut self, now_ns: i64, is_last: bool) {
        self.end_flows(now_ns, is_last);
        self.out.recordings.advance(now_ns);
        let Watch { program, states, out, accounts, .. } = self;
        for (state, rule) in states.iter_mut().zip(&program.rules.rules).filter(|(_, rule)| !rule.is_off) {
            if let (Source::Account(row), false) = (rule.source, accounts.is_empty()) {
                state.read_account(rule, row, accounts, now_ns, out);
            }
            state.advance(rule, now_ns, out);
        }
        accounts.clear();
        program.scripts.iter_mut().for_each(|script| script.advance(now_ns, out));
    }

    fn end_flows(&mut self, now_ns: i64, is_last: bool) {
        if let Some(flows) = &mut self.flows {
            let ended = flows.take_ended(now_ns, is_last);
            ended.chunks(BATCH_MAX).for_each(|ended| self.take_ended(ended, now_ns));
        }
    }

    fn take_ended(&mut self, ended: &[Flow], now_ns: i64) {
        if !self.program.filters.asks_ended() {
            return;
        }
        let Watch { program, frames, matches, found, states, out, .. } = self;
        let batch = frames.make(ended);
        program.filters.flows(&batch, matches, found);
        let mut at = 0;
        for (index, flow) in ended.iter().enumerate() {
            let mut subject = None;
            for (_, number) in found.of(index, &mut at) {
                let subject = subject.get_or_insert_with(|| Subject::of_flow(flow));
                let number = *number as usize;
                let Some(rule) = program.rules.rules.get(number) else {
                    let place = program.triggers[number - states.len()];
                    let argument = Some(flow_map(flow, subject));
                    program.scripts[place.script].call(place.trigger, now_ns, Some(subject), argument, out);
                    continue;
                };
                if rule.comparisons.iter().all(|comparison| comparison.holds(subject)) {
                    states[number].take(rule, now_ns, subject, out);
                }
            }
        }
    }

    /// Takes the account of the interfaces, which rules look at once a second.
    pub fn read_account(&mut self, accounts: &[InterfaceAccount]) {
        self.accounts.clear();
        self.accounts.extend_from_slice(accounts);
    }

    /// The end: flows end, recordings are completed.
    pub fn finish(&mut self) {
        let Some(clock_ns) = self.clock.now_ns() else { return };
        self.second(clock_ns.max(self.next_ns.saturating_sub(SECOND_NS)), true);
        for (state, rule) in self.states.iter_mut().zip(&self.program.rules.rules) {
            state.finish(rule, &mut self.out);
        }
        for script in &mut self.program.scripts {
            self.out.tell_periods(script.finish());
        }
        self.out.recordings.finish();
    }

    /// Reports since the last call, in the order of their times.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.out.reports)
    }

    /// Faults of recordings, scripts and clocks since the last call, and printed lines of scripts, as sentences.
    pub fn take_faults(&mut self) -> Vec<String> {
        let mut faults = self.out.recordings.take_faults();
        faults.append(&mut self.out.faults);
        faults
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.program.rules
    }

    /// Counters of each rule and script.
    pub fn counts(&self) -> Vec<RuleCounts> {
        let lost_of = |number| self.out.recordings.lost_of(number);
        let rules = self.states.iter().zip(&self.program.rules.rules);
        let rules = rules
            .map(|(state, rule)| RuleCounts { recordings_lost: lost_of(state.number), ..state.counts(rule) });
        let scripts = self
            .program
            .scripts
            .iter()
            .map(|script| RuleCounts { recordings_lost: lost_of(script.number), ..script.counts() });
        rules.chain(scripts).collect()
    }

    /// Counters of recordings: refused, files, packets written, packets left out.
    pub fn recording_counts(&self) -> [u64; 4] {
        self.out.recordings.counts()
    }

    /// Packets that recordings lack, as they could not be written.
    pub fn recordings_lost(&self) -> u64 {
        self.out.recordings.lost()
    }

    /// Packets whose time stamps were beyond the latest.
    pub fn ahead(&self) -> u64 {
        self.clock.ahead()
    }

    /// Packets that were given up before the age that recordings need, for lack of memory.
    pub fn past_given_up(&self) -> u64 {
        self.out.past.given_up()
    }
}

fn subject_of(packet: Packet<'_>, interfaces: &[Interface]) -> Subject {
    Subject::of_packet(&Headers::parse(link_type(packet, interfaces), packet), packet)
}

fn link_type(packet: Packet<'_>, interfaces: &[Interface]) -> LinkType {
    let interface = interfaces.get(packet.meta.interface.0 as usize);
    interface.map_or(LinkType::ETHERNET, |interface| interface.link_type)
}

/// The first whole second after a time.
fn next_second(now_ns: i64) -> i64 {
    now_ns.div_euclid(SECOND_NS).saturating_add(1).saturating_mul(SECOND_NS)
}
