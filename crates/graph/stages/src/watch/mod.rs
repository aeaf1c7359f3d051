//! `watch`: events of rules, and their actions.
//!
//! ```text
//! packets --> Watch (rules) --> Event --> line of text or JSON
//!                 ^                  |--> command, webhook, hold in a store
//!  SIGHUP: Loader, a thread          '--> (recordings are made by Watch itself)
//! ```

mod actions;
mod compile;
mod holds;
mod loader;

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Outputs, Parameter, ParameterType, Property, StageAccess,
    StageClass,
};
use tapline_graph::{Cell, Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::{ClockReading, Interface, LinkType, Timestamp};
use tapline_source::Error;
use tapline_watch::{Program, Source, Watch};

use crate::live_clock::{AHEAD_NS, LiveClock, ON_THEIR_WAY_NS};
use crate::settings::InterfaceOptions;
use crate::settings::StageSettings;
use crate::tag_look::TagLook;
use actions::Actions;
use compile::{WatchCompiler, read};
use loader::Loader;

pub use compile::check;
pub use tapline_watch::{STACK_LEN, counted};

/// Columns of the result: of events, then of the commands, webhooks and holds that follow them, then packets that
/// recordings lack, and those that bursts and gaps leave out.
const COLUMNS: [&str; 13] = [
    "rule",
    "matched",
    "told",
    "swallowed",
    "keys",
    "no_room",
    "faults",
    "done",
    "failed",
    "spooled",
    "refused",
    "rec_lost",
    "late",
];

pub(crate) const CLASS: StageClass = StageClass {
    name: "watch",
    summary: "events of rules: rates, counts, new hosts, silence, scripts; and their actions",
    description: "Rules of a file (docs/watch.md): each has a source of events, a condition over a window, and actions: a line, a command, a webhook, a hold in a store, packets \
        recorded from seconds before to seconds after. Times are those of the packets, so that a file gives the same events as the live run. The \
        file is read again on SIGHUP; unchanged rules keep their state.",
    parameters: &[
        Parameter::required("rules", ParameterType::Path).means("the file of rules, TOML"),
        Parameter::new("to", ParameterType::Text, "-")
            .means("the output of event lines: a file to append to; - is standard output"),
        Parameter::new("json", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether each line is a JSON object"),
        Parameter::new("directory", ParameterType::Text, ".")
            .means("the folder of recordings, and of events that wait to be sent"),
    ],
    outputs: Outputs::None,
    order: Order::All,
    example: "device(eth0) -> watch(\"rules.toml\", json=yes)",
    properties: &[Property::Scripts],
    access: add_access,
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

fn add_access(arguments: &Arguments, access: &mut StageAccess) {
    compile::add_needs(arguments.text("rules").as_ref(), access);
    access.allowed.makes.push(arguments.text("directory").into());
    access.makes_file(arguments.text("to"));
}

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let path = site.common.path(arguments.text("rules"));
    let directory = site.common.path(arguments.text("directory"));
    // Before the rules are read: a request that comes meanwhile has them read again.
    let seen = site.control.reloads().count();
    let options = Arc::clone(&StageSettings::of(site.common).options) as InterfaceOptions;
    let sees_behind_tags = options(&Interface::new("", LinkType::ETHERNET)).any_vlan;
    let compile = Arc::new(WatchCompiler::new(options));
    let program = Program::new(read(&path)?, compile::folder(&path), &[], compile.clone())?;
    let actions = Actions::new(
        program.rules(),
        arguments,
        &directory,
        StageSettings::of(site.common).commands.clone(),
    )?;
    let watch = Watch::new(program, directory)?;
    let loader = Loader::start(path, Arc::clone(&compile), Arc::clone(site.control), seen)
        .map_err(|error| format!("no thread for the rules: {error}"))?;
    let name = site.name.to_owned();
    Ok(Box::new(WatchStage {
        name,
        watch,
        actions,
        loader,
        compile,
        known: 0,
        received: 0,
        is_live: false,
        is_idle: false,
        ticked: None,
        clock: LiveClock::default(),
        tags: if sees_behind_tags { TagLook::OVER } else { TagLook::default() },
        told: Vec::new(),
        notices: Vec::new(),
    }))
}

struct WatchStage {
    name: String,
    watch: Watch,
    actions: Actions,
    loader: Loader,
    compile: Arc<WatchCompiler>,
    /// Interfaces that the loader knows.
    known: usize,
    received: u64,
    is_live: bool,
    /// The source had no packets, and none has come since.
    is_idle: bool,
    /// The wall clock at the tick before.
    ticked: Option<Timestamp>,
    clock: LiveClock,
    tags: TagLook,
    told: Vec<String>,
    notices: Vec<String>,
}

impl WatchStage {
    /// Delivers the events.
    fn deliver(&mut self) -> Result<(), Error> {
        match self.watch.take_reports() {
            none if none.is_empty() => Ok(()),
            reports => self.actions.take(&reports, self.watch.rules()),
        }
    }

    /// Reports failures of rules, recordings, commands, webhooks and holds.
    fn tell_faults(&mut self) {
        self.told.extend(self.watch.take_faults());
        self.told.extend(self.actions.take_faults());
    }

    /// Hints at filters of packets that matched nothing, where packets have VLAN tags.
    fn hint_at_tags(&mut self) {
        if self.tags.tagged() == 0 {
            return;
        }
        let matched: HashMap<String, u64> =
            self.watch.counts().into_iter().map(|counts| (counts.name, counts.matched)).collect();
        for rule in &self.watch.rules().rules {
            let is_of_packets = !matches!(rule.source, Source::FlowEnded | Source::Account(_));
            let is_blind = is_of_packets && !rule.filter.is_empty() && !TagLook::is_known_to(&rule.filter);
            if is_blind && matched.get(&rule.name) == Some(&0) {
                self.notices.push(format!("rule {}: {}", rule.name, TagLook::HINT));
            }
        }
    }

    /// Sets the rules' clock back with the wall clock of a live run.
    fn follow_clock(&mut self, clocks: ClockReading) {
        if let Some(step_ns) = self.clock.step_back(clocks) {
            self.watch.set_back(step_ns);
            self.ticked = None;
        }
    }

    /// Takes rules that were read again.
    fn take_rules(&mut self) {
        match self.loader.take() {
            None => {}
            Some(Ok(program)) => {
                let rules = program.rules();
                let counts = (rules.rules.len(), rules.scripts.len());
                match self.actions.extend(rules).and_then(|()| self.watch.exchange(program)) {
                    Ok(kept) => self.notices.push(read_again(counts, &kept)),
                    Err(why) => self.told.push(stay(&why)),
                }
            }
            Some(Err(why)) => self.told.push(stay(&why)),
        }
    }
}

/// The message about rules that were read again, their number, and settings that keep their values.
fn read_again((rules, scripts): (usize, usize), kept: &[&str]) -> String {
    let kept = match kept {
        [] => String::new(),
        kept => format!("; flows go on with the {} of before, until a restart", kept.join(" and ")),
    };
    let (rules, scripts) = (counted(rules as u64, "rule"), counted(scripts as u64, "script"));
    format!("rules read again: {rules}, {scripts}{kept}")
}

/// The message about a file with a mistake: one line, without the drawing that shows the place.
fn stay(why: &str) -> String {
    let is_drawn = |line: &&str| {
        let behind_number = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        behind_number.starts_with('|') || line.chars().all(|c| "^~ ".contains(c))
    };
    let lines: Vec<&str> = why.lines().map(str::trim).filter(|line| !is_drawn(line)).collect();
    format!("{}; the rules before stay", lines.join(": "))
}

impl Stage for WatchStage {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.received += packets.len() as u64;
        self.is_idle = false;
        if packets.interfaces.len() != self.known {
            self.known = packets.interfaces.len();
            self.is_live = packets.interfaces.iter().any(|interface| interface.if_index > 0);
            self.loader.learn(packets.interfaces);
        }
        if self.is_live {
            self.follow_clock(packets.clocks());
            self.watch.set_latest(packets.now.plus_nanos(AHEAD_NS).as_nanos());
        }
        self.tags.look(packets, &packets.selection);
        self.watch
            .push(&packets.batch, &packets.selection, packets.interfaces)
            .map_err(|why| Error::Filter(format!("{}: {why}", self.name)))?;
        self.deliver()
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.is_idle = true;
        self.actions.flush()
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.take_rules();
        self.watch.read_account(tick.interfaces);
        // An interface without packets has not said that it is live; a file has packets from the start.
        let has_ring =
            || tick.interfaces.iter().any(|account| account.ring.is_some() || account.tap.is_some());
        let is_live = self.is_live || self.received == 0 && has_ring();
        if is_live {
            self.follow_clock(tick.clocks());
        }
        let ticked = self.ticked.replace(tick.now);
        // The source was empty after the tick before: all packets from before it have come. The present time says
        // nothing, where this process had to wait for its processor.
        if let (Some(ticked), true) = (ticked, is_live && self.is_idle) {
            self.watch.advance(ticked.plus_nanos(-ON_THEIR_WAY_NS).as_nanos());
        }
        self.is_idle = false;
        self.tell_faults();
        self.deliver()?;
        self.actions.flush()?;
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        // Counters of rings are read last, so this account alone has what was lost at the stop.
        self.watch.read_account(tick.interfaces);
        self.watch.finish();
        self.hint_at_tags();
        let delivered = self.deliver();
        self.actions.finish();
        self.tell_faults();
        delivered.and(self.actions.flush())
    }

    fn counters(&self) -> StageCounters {
        let written = StageCounters::of_written("watch", self.received);
        StageCounters { recordings_lost: self.watch.recordings_lost(), ..written }
    }

    fn result(&self) -> Option<Table> {
        let row = |counts: &tapline_watch::RuleCounts| {
            let sent = self.actions.counts_of(&counts.name);
            let numbers =
                [counts.matched, counts.told, counts.swallowed, counts.keys, counts.no_room, counts.faults];
            let sent =
                [sent.done, sent.failed, sent.spooled, sent.refused, counts.recordings_lost, counts.late];
            let numbers = numbers.into_iter().chain(sent).map(Cell::from);
            std::iter::once(Cell::from(counts.name.clone())).chain(numbers).collect()
        };
        Some(Table { columns: COLUMNS.to_vec(), rows: self.watch.counts().iter().map(row).collect() })
    }

    fn events(&mut self) -> Vec<String> {
        self.told.extend(self.compile.take_told());
        std::mem::take(&mut self.told)
    }

    fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let counts = self.watch.counts();
        tell("told", counts.iter().map(|rule| rule.told).sum());
        tell("swallowed", counts.iter().map(|rule| rule.swallowed).sum());
        // Only eight are shown, three of them counters of outputs: what found no room comes first.
        tell("ahead", self.watch.ahead());
        self.actions.gauges(tell);
        let [refused, files, written, left] = self.watch.recording_counts();
        tell("rec_refused", refused);
        tell("rec_left", left);
        tell("past_given_up", self.watch.past_given_up());
        tell("keys", counts.iter().map(|rule| rule.keys).sum());
        tell("recordings", files);
        tell("rec_packets", written);
    }

    fn merge(&mut self, _: &dyn Any) {}
}

#[cfg(test)]
mod tests;
