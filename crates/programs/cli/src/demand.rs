//! Options on demand: a start describes those of the command that it runs, and not those of all commands.
//!
//! ```text
//! first word --> the program with the options of that command --parsed--> values
//!                                                             --error---> the whole program parses and reports
//! ```
//!
//! Help, errors, completions, pages and configuration files see the whole program.

use std::cell::RefCell;
use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, CommandFactory, Error, FromArgMatches, Id, Subcommand};

thread_local! {
    /// The command whose options are described; `None` for all.
    static ONLY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Options of a command of the program, or its subcommands.
#[derive(Debug)]
pub(crate) struct OnDemand<T>(pub(crate) Box<T>);

/// Parses the command line.
///
/// # Errors
/// Those of the whole program.
pub(crate) fn parse<P: CommandFactory>(arguments: &[OsString]) -> Result<ArgMatches, Error> {
    let first = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let program = program_with::<P>(first);
    let is_version = matches!(first, "-V" | "--version");
    if is_version || program.get_subcommands().any(|command| command.get_name() == first) {
        match program.try_get_matches_from(arguments) {
            Err(error) if error.kind() != ErrorKind::DisplayVersion => {}
            parsed => return parsed,
        }
    }
    P::command().try_get_matches_from(arguments)
}

/// The program, in which one command has its options and subcommands.
fn program_with<P: CommandFactory>(command: &str) -> Command {
    ONLY.set(Some(command.to_owned()));
    let program = P::command();
    ONLY.set(None);
    program
}

fn add_to(command: Command, add: fn(Command) -> Command) -> Command {
    let is_left_out = ONLY.with_borrow(|only| only.as_ref().is_some_and(|only| only != command.get_name()));
    if is_left_out { command } else { add(command) }
}

impl<T: Args> Args for OnDemand<T> {
    fn group_id() -> Option<Id> {
        T::group_id()
    }

    fn augment_args(command: Command) -> Command {
        add_to(command, T::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        add_to(command, T::augment_args_for_update)
    }
}

impl<T: Subcommand> Subcommand for OnDemand<T> {
    fn augment_subcommands(command: Command) -> Command {
        add_to(command, T::augment_subcommands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        add_to(command, T::augment_subcommands_for_update)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

impl<T: FromArgMatches> FromArgMatches for OnDemand<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(|args| OnDemand(Box::new(args)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;

    /// Names of the commands below one, with their options and the like.
    fn described(command: &Command) -> String {
        let below: Vec<String> = command.get_subcommands().map(described).collect();
        let options: Vec<String> = command.get_arguments().map(|option| format!("{option:?}")).collect();
        format!("{}: {options:?} {below:?}", command.get_name())
    }

    /// A line, parsed by both programs.
    fn both(line: &[&str]) -> [String; 2] {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let shown = |parsed: Result<ArgMatches, Error>| {
            parsed.map_or_else(|error| error.to_string(), |matches| format!("{matches:?}"))
        };
        [shown(parse::<Cli>(&words)), shown(Cli::command().try_get_matches_from(&words))]
    }

    #[test]
    fn each_command_has_all_of_its_options_and_no_other_has() {
        let whole = Cli::command();
        for command in whole.get_subcommands() {
            let program = program_with::<Cli>(command.get_name());
            for other in program.get_subcommands() {
                let is_asked = other.get_name() == command.get_name();
                assert_eq!(is_asked, described(other) == described(command));
                let has_nothing = other.get_arguments().next().is_none() && !other.has_subcommands();
                assert_eq!(is_asked, !has_nothing, "{} for {}", other.get_name(), command.get_name());
            }
        }
    }

    #[test]
    fn lines_are_parsed_as_by_the_whole_program() {
        let whole = Cli::command();
        for name in whole.get_subcommands().map(Command::get_name) {
            for rest in ["--help", "-h", "--no-such-option", "-i", "--profile=x", "x", "--"] {
                let [short, long] = both(&["tapline", name, rest]);
                assert_eq!(short, long, "tapline {name} {rest}");
            }
            let [short, long] = both(&["tapline", name]);
            assert_eq!(short, long, "tapline {name}");
        }
        for line in [
            &["tapline"][..],
            &["tapline", "--version"],
            &["tapline", "-V"],
            &["tapline", "-h"],
            &["tapline", "--help"],
            &["tapline", "help"],
            &["tapline", "help", "capture"],
            &["tapline", "captur"],
            &["tapline", "--profile", "x", "capture", "-i", "eth0"],
            &["tapline", "--profile", "x", "info"],
            &["tapline", "capture", "--profile", "x", "-i", "eth0", "tcp"],
            &["tapline", "store", "status", "/srv/store"],
        ] {
            let [short, long] = both(line);
            assert_eq!(short, long, "{line:?}");
        }
    }
}
