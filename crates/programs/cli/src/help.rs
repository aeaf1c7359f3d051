//! Help: `-h` is one screen for each command, with the common options; `--help` has everything.
//!
//! Neither form is built until it is requested, because every start of the program would pay for it. clap reports the
//! request as an error; the arguments are then parsed again by a `Command` with the texts of that form.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Error};

use crate::mistakes;

/// Commands by purpose, for `tapline --help`.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Look",
        &["capture", "info", "grep", "follow", "dns", "http", "tls", "top", "view", "run", "interfaces"],
    ),
    ("Keep", &["record", "find", "store"]),
    ("Measure", &["stats", "probe", "collect-flows", "watch", "metrics"]),
    ("Share", &["serve", "status", "control", "extcap"]),
    ("Send", &["generate", "replay"]),
    ("Check", &["doctor", "filter", "profile", "bench", "memory", "config", "manual"]),
];

/// Text of `-h` by command. Commands whose generated help fits one screen are not listed.
pub(crate) const SCREENS: [(&str, &str); 28] = [
    ("", include_str!("help/tapline.txt")),
    ("bench", include_str!("help/bench.txt")),
    ("capture", include_str!("help/capture.txt")),
    ("collect-flows", include_str!("help/collect-flows.txt")),
    ("config", include_str!("help/config.txt")),
    ("doctor", include_str!("help/doctor.txt")),
    ("extcap", include_str!("help/extcap.txt")),
    ("filter bench", include_str!("help/filter-bench.txt")),
    ("filter explain", include_str!("help/filter-explain.txt")),
    ("find", include_str!("help/find.txt")),
    ("follow", include_str!("help/follow.txt")),
    ("generate", include_str!("help/generate.txt")),
    ("grep", include_str!("help/grep.txt")),
    ("memory", include_str!("help/memory.txt")),
    ("metrics", include_str!("help/metrics.txt")),
    ("probe", include_str!("help/probe.txt")),
    ("profile", include_str!("help/profile.txt")),
    ("record", include_str!("help/record.txt")),
    ("replay", include_str!("help/replay.txt")),
    ("run", include_str!("help/run.txt")),
    ("serve", include_str!("help/serve.txt")),
    ("store", include_str!("help/store.txt")),
    ("store forget", include_str!("help/store-forget.txt")),
    ("store hold", include_str!("help/store-hold.txt")),
    ("store import", include_str!("help/store-import.txt")),
    ("top", include_str!("help/top.txt")),
    ("view", include_str!("help/view.txt")),
    ("watch", include_str!("help/watch.txt")),
];

/// Prints the parser's error, or the help that the user requested, and exits.
pub(crate) fn exit<P: CommandFactory>(arguments: &[OsString], mut error: Error) -> ! {
    if error.kind() == ErrorKind::DisplayVersion {
        error.exit();
    }
    let program = P::command();
    let asks_for_all = arguments.iter().any(|word| word == "--help" || word == "help");
    let shaped = match error.kind() {
        ErrorKind::DisplayHelp if asks_for_all => whole(program),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => short(program),
        _ => {
            mistakes::advise(&program, arguments, &mut error);
            error.exit()
        }
    };
    shaped.try_get_matches_from(arguments).err().unwrap_or(error).exit()
}

/// Replaces the help of the commands in [`SCREENS`] with their screens.
pub(crate) fn short(program: Command) -> Command {
    SCREENS.iter().fold(program, |program, (path, text)| {
        let mut path = path.split_whitespace();
        below(program, &mut path, &|command| command.override_help(*text))
    })
}

/// Applies `change` to the subcommand at `path`.
fn below<'a>(
    command: Command,
    path: &mut impl Iterator<Item = &'a str>,
    change: &dyn Fn(Command) -> Command,
) -> Command {
    match path.next() {
        Some(name) => command.mut_subcommand(name, |command| below(command, path, change)),
        None => change(command),
    }
}

/// Sets the full help of the program: commands in groups, and examples that are wrapped once, by clap.
pub(crate) fn whole(program: Command) -> Command {
    let groups: String = GROUPS.iter().map(|(title, names)| group(&program, title, names)).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    );
    tidy(program.help_template(template))
}

fn group(program: &Command, title: &str, names: &[&str]) -> String {
    let line = |name: &&str| {
        let about = program.find_subcommand(name).and_then(Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        // The details after the colon do not fit into the list.
        let subject = about.split(": ").next().unwrap_or_default();
        format!("  {name:<13}  {subject}\n")
    };
    format!("\n{title}:\n{}", names.iter().map(line).collect::<String>())
}

/// Maximum width of an example with its comment on one line. In a longer one the comment moves to the next line.
const EXAMPLE_WIDTH: usize = 96;

/// Joins the lines of each paragraph in the text after the options, in a command and its subcommands: clap would wrap
/// lines that are wrapped already.
fn tidy(command: Command) -> Command {
    let text = command.get_after_help().map(|text| unwrapped(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(tidy)
}

/// Joins the lines of each paragraph, and moves the comment of a long example to the next line. A paragraph is a run of
/// lines that do not begin with a space.
fn unwrapped(text: &str) -> String {
    let mut all = String::new();
    let mut is_prose = false;
    for line in text.lines() {
        let follows = std::mem::replace(&mut is_prose, !line.is_empty() && !line.starts_with(' '));
        all += match is_prose && follows {
            true => " ",
            false if all.is_empty() => "",
            false => "\n",
        };
        match line.trim_end().rsplit_once("   ") {
            Some((example, comment))
                if line.chars().count() > EXAMPLE_WIDTH && !example.trim().is_empty() =>
            {
                all += &format!("{}\n      {comment}", example.trim_end());
            }
            _ => all += line,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    /// Lines and columns of the smallest terminal that a screen must fit.
    const SCREEN: (usize, usize) = (24, 90);

    fn screens(command: &mut Command, path: &str, found: &mut Vec<(String, String)>) {
        found.push((path.to_owned(), command.render_help().to_string()));
        let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
        for name in names {
            let below = command.find_subcommand_mut(&name).expect("a command");
            screens(below, format!("{path} {name}").trim(), found);
        }
    }

    #[test]
    fn each_command_has_help_of_one_screen() {
        let mut program = short(crate::Cli::command().term_width(SCREEN.1));
        program.build();
        let mut found = Vec::new();
        screens(&mut program, "", &mut found);
        assert!(found.len() > 40, "{}", found.len());
        for (path, text) in found.iter().filter(|(path, _)| !path.contains("help")) {
            let width = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(text.lines().count() <= SCREEN.0 && width <= SCREEN.1, "tapline {path}:\n{text}");
        }
        for (path, text) in SCREENS {
            assert!(found.iter().any(|(name, _)| name == path), "tapline {path}");
            let last = text.lines().last().unwrap_or_default();
            assert!(last.contains("--help` has everything"), "tapline {path}: {last}");
            assert_eq!(examples(text).count(), 3, "tapline {path}");
        }
    }

    fn examples(text: &str) -> impl Iterator<Item = &str> {
        text.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| !line.is_empty())
    }

    /// A screen is written by hand, so it could name options that do not exist.
    #[test]
    fn options_of_screens_are_those_of_commands() {
        let mut program = crate::Cli::command();
        program.build();
        for (path, text) in SCREENS {
            let command = path
                .split(' ')
                .filter(|name| !name.is_empty())
                .fold(&program, |command, name| command.find_subcommand(name).expect(name));
            let is_option = |word: &str| {
                command.get_arguments().any(|argument| {
                    argument.get_long().is_some_and(|long| word == format!("--{long}"))
                        || argument.get_short().is_some_and(|short| word == format!("-{short}"))
                })
            };
            let of_options = text.lines().filter(|line| line.trim_start().starts_with('-'));
            for line in of_options {
                let names = line.trim_start().split("  ").next().unwrap_or_default();
                for word in names.split([' ', ',']).filter(|word| word.starts_with('-')) {
                    assert!(is_option(word), "tapline {path}: {word}: {line}");
                }
            }
        }
    }

    #[test]
    fn groups_have_each_command_once() {
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let program = crate::Cli::command();
        let all: BTreeSet<&str> = program.get_subcommands().map(Command::get_name).collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len());
        for (title, names) in GROUPS {
            let line = format!("{title:<8}  {}", names.join(", "));
            assert!(SCREENS[0].1.lines().any(|other| other == line), "{line}");
        }
    }

    #[test]
    fn texts_behind_options_are_wrapped_once() {
        let text = "Examples:\n  tapline a   one\n\nA paragraph of\ntwo lines.\nExit:\n  0  done";
        let joined = "Examples:\n  tapline a   one\n\nA paragraph of two lines. Exit:\n  0  done";
        assert_eq!(unwrapped(text), joined);
        let long = format!("  tapline {}    a comment", "x".repeat(80));
        assert_eq!(unwrapped(&long), format!("  tapline {}\n      a comment", "x".repeat(80)));
    }
}
