//! Options of commands, by the names that files and the environment have for them.

use clap::{Arg, ArgAction, Command};

/// Prefix of variables.
const PREFIX: &str = "TAPLINE_";

/// A command, by the names of its subcommands: `["store", "list"]`.
pub type Scope = Vec<String>;

/// The key of an option: its long name, its letter if it has none, or the name of a value without a dash.
pub(crate) fn key(arg: &Arg) -> String {
    match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => long.to_owned(),
        (None, Some(short)) => short.to_string(),
        (None, None) => arg.get_id().to_string(),
    }
}

/// Options that files may set: not --help, --version and --profile, and none that is hidden.
pub(crate) fn settable(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let is_answer = matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        );
        !is_answer && !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version" | "profile")
    })
}

/// The option of a key. Dashes and underscores are the same.
pub(crate) fn find<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let name = name.replace('_', "-");
    settable(command).find(|arg| key(arg).replace('_', "-") == name)
}

/// The variable of an option.
pub fn variable(scope: &[String], key: &str) -> String {
    let words: Vec<&str> = scope.iter().map(String::as_str).chain([key]).collect();
    format!("{PREFIX}{}", words.join("_").replace('-', "_").to_uppercase())
}

pub(crate) fn command<'c>(root: &'c Command, scope: &[String]) -> Option<&'c Command> {
    scope.iter().try_fold(root, |command, name| command.find_subcommand(name))
}

/// The scopes of all commands.
pub fn scopes(root: &Command) -> Vec<Scope> {
    commands(root).into_iter().map(|(scope, _)| scope).collect()
}

/// Every command that has options, with its scope.
pub(crate) fn commands(root: &Command) -> Vec<(Scope, &Command)> {
    fn add<'c>(scope: &Scope, command: &'c Command, all: &mut Vec<(Scope, &'c Command)>) {
        for below in command.get_subcommands() {
            let scope: Scope = scope.iter().cloned().chain([below.get_name().to_owned()]).collect();
            all.push((scope.clone(), below));
            add(&scope, below, all);
        }
    }
    let mut all = Vec::new();
    add(&Scope::new(), root, &mut all);
    all
}
