//! Where events go: lines, commands, webhooks.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Stdout, Write};
use std::path::Path;
use std::time::Instant;

use tapline_capture::Error;
use tapline_watch::{
    Actions as RuleActions, Commands, END_TIME, Event, EventKind, RecordedPeriod, Rules, Webhooks,
};

use crate::catalog::Arguments;

enum Destination {
    File(File),
    Output(Stdout),
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Destination::File(file) => file.write(bytes),
            Destination::Output(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Destination::File(file) => file.flush(),
            Destination::Output(output) => output.flush(),
        }
    }
}

/// The ways out of events.
pub(super) struct Actions {
    name: String,
    lines: BufWriter<Destination>,
    is_json: bool,
    commands: Option<Commands>,
    webhooks: Option<Webhooks>,
    directory: std::path::PathBuf,
}

impl Actions {
    pub(super) fn new(rules: &Rules, arguments: &Arguments, directory: &Path) -> Result<Actions, String> {
        let name = arguments.text("to");
        let destination = match name {
            "-" => Destination::Output(std::io::stdout()),
            path => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                Destination::File(file.map_err(|error| format!("cannot write {path}: {error}"))?)
            }
        };
        let mut actions = Actions {
            name: if name == "-" { "standard output".to_owned() } else { name.to_owned() },
            lines: BufWriter::new(destination),
            is_json: arguments.text("json") == "yes",
            commands: None,
            webhooks: None,
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
        let no_thread = |error: std::io::Error| format!("no thread for actions: {error}");
        if self.commands.is_none() && all.iter().any(|actions| !actions.run.is_empty()) {
            self.commands = Some(Commands::start().map_err(no_thread)?);
        }
        if self.webhooks.is_none() && all.iter().any(|actions| !actions.webhook.is_empty()) {
            self.webhooks = Some(Webhooks::start(&self.directory)?);
        }
        Ok(())
    }

    /// Has events go where their rules say.
    pub(super) fn take(&mut self, events: &[Event], rules: &Rules) -> Result<(), Error> {
        for event in events {
            let line = if self.is_json { event.to_json().to_string() } else { event.to_text() };
            self.lines
                .write_all((line + "\n").as_bytes())
                .map_err(|error| Error::output(&self.name, error))?;
            let Some(actions) = actions_of(rules, event.rule) else { continue };
            if !actions.run.is_empty() && event.kind != EventKind::Cleared {
                self.commands.iter_mut().for_each(|commands| commands.offer(&actions.run, event));
            }
            if !actions.webhook.is_empty() {
                self.webhooks.iter_mut().for_each(|webhooks| webhooks.offer(&actions.webhook, event));
            }
        }
        self.flush()
    }

    /// Has what recorders held go to the lines.
    pub(super) fn record(&mut self, periods: &[RecordedPeriod]) -> Result<(), Error> {
        for period in periods {
            let line = if self.is_json { period.to_json().to_string() } else { period.to_text() };
            self.lines
                .write_all((line + "\n").as_bytes())
                .map_err(|error| Error::output(&self.name, error))?;
        }
        self.flush()
    }

    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.lines.flush().map_err(|error| Error::output(&self.name, error))
    }

    /// Waits for commands and webhooks that are due, for the time that an end has.
    pub(super) fn finish(&mut self) {
        let end = Instant::now() + END_TIME;
        self.commands.iter_mut().for_each(|commands| commands.end_by(end));
        self.webhooks.iter_mut().for_each(|webhooks| webhooks.end_by(end));
        self.commands.iter_mut().for_each(Commands::finish);
        self.webhooks.iter_mut().for_each(Webhooks::finish);
    }

    /// What found no room, and what failed: `run_refused`, `hook_refused`.
    pub(super) fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let commands = self.commands.as_ref().map(Commands::counts);
        commands.into_iter().for_each(|counts| tell("run_refused", counts.refused + counts.failed));
        let webhooks = self.webhooks.as_ref().map(Webhooks::counts);
        webhooks.into_iter().for_each(|counts| tell("hook_refused", counts.refused + counts.failed));
    }
}

fn actions_of(rules: &Rules, number: usize) -> Option<&RuleActions> {
    let scripts = || rules.scripts.get(number.checked_sub(rules.rules.len())?).map(|script| &script.actions);
    rules.rules.get(number).map(|rule| &rule.actions).or_else(scripts)
}
