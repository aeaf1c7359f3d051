//! Where events go: lines, commands, webhooks, holds in stores.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tapline_graph::catalog::Arguments;
use tapline_source::Error;
use tapline_sys::{output_file, unnamed};
use tapline_watch::{
    Actions as RuleActions, CommandStarter, Commands, DeliveryCounts, DeliveryQueue, END_TIME, EventKind,
    Holds, Report, Rules, Webhooks,
};

/// Waits shorter than this are not reported.
const SHORT: Duration = Duration::from_millis(500);
/// Interval at which it is looked whether commands, webhooks and holds are done.
const LOOK: Duration = Duration::from_millis(10);

/// The ways out of events.
pub(super) struct Actions {
    name: String,
    lines: BufWriter<Box<dyn Write + Send>>,
    is_json: bool,
    commands: Option<Commands>,
    starter: Option<Arc<CommandStarter>>,
    webhooks: Option<Webhooks>,
    holds: Option<Holds>,
    directory: std::path::PathBuf,
}

impl Actions {
    pub(super) fn new(
        rules: &Rules,
        arguments: &Arguments,
        directory: &Path,
        starter: Option<Arc<CommandStarter>>,
    ) -> Result<Actions, String> {
        let name = arguments.text("to");
        let destination: Box<dyn Write + Send> = match name {
            "-" => Box::new(io::stdout()),
            path => {
                let file = output_file::open(path.as_ref(), OpenOptions::new().create(true).append(true));
                Box::new(file.map_err(|error| format!("cannot write {path}: {error}"))?)
            }
        };
        let mut actions = Actions {
            name: if name == "-" { "standard output".to_owned() } else { name.to_owned() },
            lines: BufWriter::new(destination),
            is_json: arguments.text("json") == "yes",
            commands: None,
            starter,
            webhooks: None,
            holds: None,
            directory: directory.to_owned(),
        };
        actions.extend(rules)?;
        Ok(actions)
    }

    /// Starts the threads that rules need and that are not there yet.
    pub(super) fn extend(&mut self, rules: &Rules) -> Result<(), String> {
        let of_rules = rules.rules.iter().map(|rule| &rule.actions);
        let all: Vec<&RuleActions> =
            of_rules.chain(rules.scripts.iter().map(|script| &script.actions)).collect();
        if all.iter().any(|actions| actions.record.is_some()) {
            check_folder(&self.directory)?;
        }
        let no_thread = |error: std::io::Error| format!("no thread for actions: {error}");
        if self.commands.is_none() && all.iter().any(|actions| !actions.run.is_empty()) {
            self.commands = Some(Commands::start(self.starter.clone()).map_err(no_thread)?);
        }
        if self.webhooks.is_none() && all.iter().any(|actions| !actions.webhook.is_empty()) {
            self.webhooks = Some(Webhooks::start(&self.directory, &rules.webhooks)?);
        }
        self.webhooks.iter().for_each(|webhooks| webhooks.set_receivers(&rules.webhooks));
        if self.holds.is_none() && all.iter().any(|actions| actions.hold.is_some()) {
            self.holds = Some(Holds::start(Box::new(super::holds::keep)).map_err(no_thread)?);
        }
        Ok(())
    }

    /// Writes reports, and delivers events by their rules.
    pub(super) fn take(&mut self, reports: &[Report], rules: &Rules) -> Result<(), Error> {
        for report in reports {
            let line = match (report, self.is_json) {
                (Report::Event(event), true) => event.to_json().to_string(),
                (Report::Event(event), false) => event.to_text(),
                (Report::Period(period), true) => period.to_json().to_string(),
                (Report::Period(period), false) => period.to_text(),
            };
            self.lines
                .write_all((line + "\n").as_bytes())
                .map_err(|error| Error::output(&self.name, error))?;
            let Report::Event(event) = report else { continue };
            let Some(actions) = actions_of(rules, event.rule) else { continue };
            if !actions.run.is_empty() && event.kind != EventKind::Cleared {
                self.commands.iter_mut().for_each(|commands| commands.offer(&actions.run, event));
            }
            if let Some(hold) = actions.hold.as_ref().filter(|_| event.kind != EventKind::Cleared) {
                self.holds.iter_mut().for_each(|holds| holds.offer(hold, event));
            }
            if !actions.webhook.is_empty() {
                self.webhooks.iter_mut().for_each(|webhooks| webhooks.offer(&actions.webhook, event));
            }
        }
        self.flush()
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.lines.flush().map_err(|error| Error::output(&self.name, error))
    }

    /// Waits for commands, webhooks and holds that are due, for the time that an end has. A longer wait is reported.
    pub(super) fn finish(&mut self) {
        let end = Instant::now() + END_TIME;
        self.queues_mut().for_each(|queue| queue.end_by(end));
        let told_at = Instant::now() + SHORT;
        while Instant::now() < told_at && self.waits_for().is_some() {
            thread::sleep(LOOK);
        }
        if let Some(what) = self.waits_for() {
            let seconds = END_TIME.as_secs();
            let _ = writeln!(io::stderr(), "tapline: the end waits for {what}, {seconds} s at most");
        }
        self.queues_mut().for_each(DeliveryQueue::finish);
    }

    fn queues(&self) -> impl Iterator<Item = &(dyn DeliveryQueue + 'static)> {
        let queues = [self.commands.as_deref(), self.webhooks.as_deref(), self.holds.as_deref()];
        queues.into_iter().flatten()
    }

    fn queues_mut(&mut self) -> impl Iterator<Item = &mut (dyn DeliveryQueue + 'static)> {
        let (commands, webhooks) = (self.commands.as_deref_mut(), self.webhooks.as_deref_mut());
        [commands, webhooks, self.holds.as_deref_mut()].into_iter().flatten()
    }

    /// Commands, webhooks and holds that are not done, in words.
    fn waits_for(&self) -> Option<String> {
        self.queues().filter_map(DeliveryQueue::waits_for).reduce(|one, other| format!("{one} and {other}"))
    }

    /// Counters of commands, webhooks and holds of a rule.
    pub(super) fn counts_of(&self, rule: &str) -> DeliveryCounts {
        self.queues().map(|queue| queue.counts_of(rule)).fold(DeliveryCounts::default(), DeliveryCounts::plus)
    }

    /// Failures of commands, webhooks and holds since the last call, as sentences.
    pub(super) fn take_faults(&self) -> Vec<String> {
        self.queues().flat_map(DeliveryQueue::take_faults).collect()
    }

    /// Reports dropped and failed actions: `run_refused`, of commands and holds, and `hook_refused`. Only eight
    /// gauges are shown, so holds have none of their own.
    pub(super) fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let commands = self.commands.iter().map(|commands| commands.counts());
        let holds = self.holds.iter().map(|holds| holds.counts());
        let both = commands.chain(holds).reduce(DeliveryCounts::plus);
        both.into_iter().for_each(|counts| tell("run_refused", counts.refused + counts.failed));
        let webhooks = self.webhooks.iter().map(|webhooks| webhooks.counts());
        webhooks.for_each(|counts| tell("hook_refused", counts.refused + counts.failed));
    }
}

/// Makes a file without a name in the folder of recordings, so that one that cannot be written shows at the start.
fn check_folder(folder: &Path) -> Result<(), String> {
    match unnamed::create(folder) {
        Ok(_) => Ok(()),
        Err(error) if unnamed::is_unsupported(&error) && folder.is_dir() => Ok(()),
        Err(error) => {
            let why = error.source;
            Err(format!(
                "recordings cannot be written to {}: {why}; name a folder with --directory",
                folder.display()
            ))
        }
    }
}

fn actions_of(rules: &Rules, number: usize) -> Option<&RuleActions> {
    let scripts = || rules.scripts.get(number.checked_sub(rules.rules.len())?).map(|script| &script.actions);
    rules.rules.get(number).map(|rule| &rule.actions).or_else(scripts)
}
