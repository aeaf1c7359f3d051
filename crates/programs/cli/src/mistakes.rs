//! Mistakes of the command line: the command and the option that were meant, and the exit status.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::configuration::USAGE;

/// A mistake on the command line or in the configuration, such as an invalid filter.
#[derive(Debug)]
struct Mistake(String);

/// The mistake that a text describes, or an error of a parser.
pub(crate) fn mistake(text: impl fmt::Display) -> anyhow::Error {
    Mistake(text.to_string()).into()
}

/// Returns the mistake that a text describes, as `bail!` returns an error.
macro_rules! misuse {
    ($($text:tt)*) => { return Err($crate::mistakes::mistake(format_args!($($text)*))) };
}

pub(crate) use misuse;

/// The mistake of a command line that an error describes.
pub(crate) fn of_caller(error: anyhow::Error) -> anyhow::Error {
    mistake(format_args!("{error:#}"))
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// The exit status of an error.
pub(crate) fn status(error: &anyhow::Error) -> u8 {
    let is_mistake = error.chain().any(|cause| {
        let of_filter = cause.downcast_ref::<tapline_source::Error>();
        cause.is::<Mistake>() || matches!(of_filter, Some(tapline_source::Error::Filter(_)))
    });
    if is_mistake { USAGE } else { 1 }
}

/// Commands of other programs, and their names here.
const OTHER_NAMES: [(&str, &str); 13] = [
    ("dump", "capture"),
    ("tcpdump", "capture"),
    ("tshark", "capture"),
    ("sniff", "capture"),
    ("editcap", "capture"),
    ("capinfos", "info"),
    ("ngrep", "grep"),
    ("tcpflow", "follow"),
    ("tcpstat", "stats"),
    ("flows", "probe"),
    ("search", "find"),
    ("list", "status"),
    ("send", "replay"),
];

/// Adds the probable meaning to an error of the parser.
pub(crate) fn advise(program: &Command, arguments: &[OsString], error: &mut Error) {
    let invalid = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    let command = command_of(program, arguments);
    let advice = match error.kind() {
        ErrorKind::UnknownArgument => invalid(ContextKind::InvalidArg).and_then(|word| {
            of_capture(program, arguments).or_else(|| of_option(&command, &word, arguments))
        }),
        ErrorKind::InvalidSubcommand => invalid(ContextKind::InvalidSubcommand)
            .and_then(|word| of_file(&word).or_else(|| of_command(&command, &word))),
        _ => None,
    };
    if let Some(advice) = advice {
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(advice)]));
    }
}

/// The command that the words name, as far as they do.
fn command_of(program: &Command, arguments: &[OsString]) -> Command {
    let mut command = program;
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    command.clone()
}

/// The command line with `capture` in it, if it has options of that and no command.
fn of_capture(program: &Command, arguments: &[OsString]) -> Option<String> {
    let (name, words) = arguments.split_first()?;
    if !words.first()?.to_str()?.starts_with('-') {
        return None;
    }
    let with_command = [name.clone(), "capture".into()].into_iter().chain(words.iter().cloned());
    program.clone().try_get_matches_from(with_command).ok()?;
    Some(format!("did you mean 'tapline capture {}'?", shell_words(words)))
}

/// The option of a command that is nearest to a word: by its long name, or by its name in the configuration.
fn of_option(command: &Command, word: &str, arguments: &[OsString]) -> Option<String> {
    if word == "-Y" {
        return Some(of_display_filter(arguments));
    }
    let word = word.strip_prefix("--")?;
    let names = |arg: &clap::Arg| {
        let long = arg.get_long().map(|long| (long.to_owned(), format!("--{long}")));
        let short = arg.get_short().map(|short| (arg.get_id().to_string(), format!("-{short}")));
        long.or(short)
    };
    let all: Vec<(String, String)> = command.get_arguments().filter_map(names).collect();
    let nearest = tapline_config::nearest(word, all.iter().map(|(name, _)| name.as_str()))?;
    let (name, option) = all.iter().find(|(name, _)| *name == nearest)?;
    Some(match option.strip_prefix("--") {
        Some(_) => format!("a similar argument exists: '{option}'"),
        None => format!("the option is '{option}' ({name})"),
    })
}

/// The filter in place of tshark's `-Y`.
fn of_display_filter(arguments: &[OsString]) -> String {
    let text = arguments.iter().skip_while(|word| *word != "-Y").nth(1).and_then(|word| word.to_str());
    let about = "the filter is an argument of its own, in the language of tcpdump";
    match text.and_then(tapline_filter::equivalent_of_display_filter) {
        Some(ours) => format!("{about}: '{ours}'"),
        None => format!("{about}, such as 'tcp port 443'"),
    }
}

fn of_file(word: &str) -> Option<String> {
    let is_file = Path::new(word).is_file();
    is_file.then(|| format!("did you mean 'tapline capture -r {}'?", shell_word(word)))
}

fn of_command(command: &Command, word: &str) -> Option<String> {
    let (_, name) = OTHER_NAMES.iter().find(|(other, _)| *other == word)?;
    command.find_subcommand(name)?;
    Some(format!("the command is '{name}'"))
}

fn shell_words(words: &[OsString]) -> String {
    let words = words.iter().map(|word| shell_word(&word.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

/// The word as a shell takes it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn told(line: &[&str]) -> String {
        let arguments: Vec<OsString> = ["tapline"].iter().chain(line).map(OsString::from).collect();
        let program = crate::Cli::command();
        let mut error = program.clone().try_get_matches_from(&arguments).expect_err("a mistake");
        advise(&program, &arguments, &mut error);
        error.to_string()
    }

    #[test]
    fn mistakes_name_what_was_meant() {
        for (line, meant) in [
            (&["-i", "eth0"][..], "tapline capture -i eth0"),
            (&["-r", "a b.pcap", "-n", "port 53"], "tapline capture -r 'a b.pcap' -n 'port 53'"),
            (&["capture", "--writ", "out"], "the option is '-w' (write)"),
            (&["capture", "--read", "in"], "the option is '-r' (read)"),
            (&["capture", "--interfce", "eth0"], "'--interface'"),
            (&["probe", "--vew"], "'--view'"),
            (&["capture", "-Y", "tcp.port == 443"], "'tcp port 443'"),
            (&["capture", "-r", "a", "-Y", "http.host"], "such as 'tcp port 443'"),
            (&["dump"], "the command is 'capture'"),
            (&["ngrep"], "the command is 'grep'"),
            (&["store", "list"], "the command is 'status'"),
            (&["captur"], "'capture'"),
        ] {
            let told = told(line);
            assert!(told.contains(meant), "{line:?}: {told}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert!(told(&[path]).contains(&format!("tapline capture -r {path}")));
        // Words that mean nothing near keep the parser's own advice.
        assert!(!told(&["capture", "--zzzzzz"]).contains("similar"));
    }

    #[test]
    fn mistakes_have_a_status_of_their_own() {
        assert_eq!(status(&mistake("x").context("y")), USAGE);
        let of_filter = tapline_source::Error::Filter("x".into());
        assert_eq!(status(&anyhow::Error::new(of_filter).context("y")), USAGE);
        assert_eq!(status(&anyhow::anyhow!("x")), 1);
    }
}
