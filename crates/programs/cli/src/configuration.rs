//! Options from files, profiles and the environment; `tapline config` shows and checks them.
//!
//! Nothing here knows an option: `tapline_config` takes them from the command line's own description.

use std::cell::LazyCell;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Command, CommandFactory, Subcommand};
use serde_json::json;
use tapline_config::{
    Effective, Error, Layers, Places, Scope, apply, defaults, effective, explicit, nearest, read_bounded,
    scopes,
};
use tapline_daemon::Rules;

use crate::mistakes::misuse;

/// The exit status for a command line that is wrong, as clap has it.
pub(crate) const USAGE: u8 = 2;

/// The rules of the daemon as a service.
const RULES: &str = "/etc/tapline/serve.toml";

/// The variable that names a profile.
const PROFILE_VARIABLE: &str = "TAPLINE_PROFILE";

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline config show --origin              every option that is set, and the line that sets it
  tapline config show capture --defaults    all options of a command, with the values that hold
  tapline config check                      the files that would be read, and /etc/tapline/serve.toml
  tapline config check ./tapline.toml       another file: options, or rules of tapline serve

Files: /usr/lib/tapline/tapline.toml, /etc/tapline/tapline.toml, ~/.config/tapline/config.toml, each with drop-ins NAME.d/*.toml; then the
profile (--profile), variables such as TAPLINE_CAPTURE_SNAPSHOT_LENGTH, and the command line. The later ones win. docs/configuration.md.";

/// Subcommands of the command.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the options that files, profile and environment set, as a file that sets the same.
    Show(ShowArgs),
    /// Check files for options that there are not, and for values that they do not take.
    Check(CheckArgs),
}

/// Arguments of `tapline config show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Only options of this command: capture, store list.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Name the file and line, or the variable, behind each value.
    #[arg(long)]
    origin: bool,
    /// Show options that nothing sets, too, with their defaults.
    #[arg(long)]
    defaults: bool,
    /// Print one JSON object per option.
    #[arg(long)]
    json: bool,
}

/// Arguments of `tapline config check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The files. Default: those that commands read, and the rules of the service.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// The command line with the values of files, profile and environment as its defaults; `None` if there are none.
///
/// # Errors
/// All faults of the configuration.
pub(crate) fn command_line<P: CommandFactory>(arguments: &[OsString]) -> Result<Option<Command>, Vec<Error>> {
    if is_for_configuration(arguments) {
        return Ok(None);
    }
    // Described only if something is set.
    let program = LazyCell::new(P::command);
    let layers = Layers::read(&program, &Places::usual(), std::env::vars_os())?;
    let named = std::env::var(PROFILE_VARIABLE).ok().filter(|name| !name.is_empty());
    if layers.is_empty() && named.is_none() && !arguments.iter().any(is_profile) {
        return Ok(None);
    }
    let profile = explicit(&program, arguments, "profile").or(named);
    apply(program.clone(), &layers, arguments, profile.as_deref()).map(Some).map_err(|error| vec![error])
}

fn is_profile(argument: &OsString) -> bool {
    argument.to_str().is_some_and(|text| text == "--profile" || text.starts_with("--profile="))
}

/// Whether the command works on the configuration, or needs none: a fault must not keep it from being found.
fn is_for_configuration(arguments: &[OsString]) -> bool {
    let first = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    matches!(first, "" | "config" | "manual" | "help" | "-h" | "--help" | "-V" | "--version")
}

/// Reports the faults.
pub(crate) fn tell_faults(faults: &[Error]) -> ExitCode {
    for fault in faults {
        let _ = writeln!(io::stderr(), "tapline: {fault}");
    }
    let _ = writeln!(io::stderr(), "tapline: the configuration is not usable; tapline config check");
    ExitCode::from(USAGE)
}

/// Runs the command; `program` is the whole command line.
pub(crate) fn run(command: &ConfigCommand, program: &Command, profile: Option<&str>) -> Result<ExitCode> {
    match command {
        ConfigCommand::Show(args) => show(args, program, profile),
        ConfigCommand::Check(args) => check(args, program),
    }
}

fn show(args: &ShowArgs, program: &Command, profile: Option<&str>) -> Result<ExitCode> {
    let layers = match Layers::read(&program, &Places::usual(), std::env::vars_os()) {
        Ok(layers) => layers,
        Err(faults) => return Ok(tell_faults(&faults)),
    };
    let all = scopes(program);
    let wanted: Vec<&Scope> = all.iter().filter(|scope| scope.starts_with(&args.command)).collect();
    if wanted.is_empty() {
        misuse!("there is no command {}; tapline --help lists them", args.command.join(" "));
    }
    let mut text = String::new();
    if !args.json {
        layers.files.iter().for_each(|path| text += &format!("# read: {}\n", path.display()));
    }
    for scope in wanted {
        // A profile has options of some commands, and is asked for by one of them.
        let profile = profile.filter(|_| !args.command.is_empty());
        let mut values = effective(program, &layers, scope, profile).map_err(|error| anyhow!(error))?;
        if args.defaults {
            let others = defaults(program, scope);
            let is_set = |key: &str| values.iter().any(|value| value.key == key);
            let others: Vec<_> = others.into_iter().filter(|other| !is_set(&other.key)).collect();
            values.extend(others);
        }
        text += &match args.json {
            true => json_lines(scope, &values),
            false => table(scope, &values, args.origin),
        };
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The table of a command, as files have it.
fn table(scope: &Scope, values: &[Effective], has_origin: bool) -> String {
    if values.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = values.iter().map(|value| format!("{} = {}", value.key, words(value))).collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut text = format!("[{}]\n", scope.join("."));
    for (line, value) in lines.iter().zip(values) {
        text += &match has_origin {
            true => format!("{line:<width$}  # {}\n", value.origin),
            false => format!("{line}\n"),
        };
    }
    text + "\n"
}

fn words(value: &Effective) -> String {
    let quoted = |word: &String| match word.as_str() {
        "true" | "false" => word.clone(),
        word => json!(word).to_string(),
    };
    match value.values.as_slice() {
        [word] => quoted(word),
        words => format!("[{}]", words.iter().map(quoted).collect::<Vec<_>>().join(", ")),
    }
}

fn json_lines(scope: &Scope, values: &[Effective]) -> String {
    let line = |value: &Effective| {
        let origin = value.origin.to_string();
        json!({"command": scope.join(" "), "option": value.key, "values": value.values, "origin": origin})
            .to_string()
            + "\n"
    };
    values.iter().map(line).collect()
}

fn check(args: &CheckArgs, program: &Command) -> Result<ExitCode> {
    let mut faults = Vec::new();
    let mut good = Vec::new();
    if args.files.is_empty() {
        check_layers(program, &Places::usual(), std::env::vars_os().collect(), &mut good, &mut faults);
        // The package's file has comments alone: the service does not start with it, and nothing is wrong.
        if fs::read_to_string(RULES).is_ok_and(|text| !is_blank(&text)) {
            check_rules(Path::new(RULES), &mut good, &mut faults);
        }
    }
    for path in &args.files {
        let text = read_bounded(path)?;
        match is_of_rules(&text) {
            true => check_rules(path, &mut good, &mut faults),
            false => check_layers(program, &Places::only(path), Vec::new(), &mut good, &mut faults),
        }
    }
    let mut out = io::stdout().lock();
    good.iter().try_for_each(|path| writeln!(out, "{}: good", path.display()))?;
    if good.is_empty() && faults.is_empty() {
        writeln!(out, "there is no file of options, and no rules at {RULES}")?;
    }
    faults.iter().for_each(|fault| drop(writeln!(io::stderr(), "tapline: {fault}")));
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a text is a file of rules: `[[capture]]` is a list there, `[capture]` a table of options here.
fn is_of_rules(text: &str) -> bool {
    let names = ["[[capture]]", "[[access]]", "[[record]]"];
    text.lines().any(|line| names.iter().any(|name| line.trim_start().starts_with(name)))
}

/// Whether a text has nothing but comments.
fn is_blank(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn check_rules(path: &Path, good: &mut Vec<PathBuf>, faults: &mut Vec<String>) {
    match Rules::read(path) {
        Ok(_) => good.push(path.to_owned()),
        Err(error) => faults.push(with_nearest(&error.to_string())),
    }
}

/// The error of a key of rules that there is not, with the nearest one.
pub(crate) fn with_nearest(error: &str) -> String {
    let nearest = || {
        let (_, rest) = error.split_once("unknown field `")?;
        let (key, rest) = rest.split_once('`')?;
        let (_, known) = rest.split_once("expected ")?;
        nearest(key, known.split('`').skip(1).step_by(2))
    };
    match nearest() {
        Some(key) => format!("{}; the nearest key is {key}", error.trim_end()),
        None => error.to_owned(),
    }
}

/// Checks the files, and all values with the options that they are for.
fn check_layers(
    program: &Command,
    places: &Places,
    variables: Vec<(OsString, OsString)>,
    good: &mut Vec<PathBuf>,
    faults: &mut Vec<String>,
) {
    let layers = match Layers::read(&program, places, variables) {
        Ok(layers) => layers,
        Err(all) => return faults.extend(all.iter().map(ToString::to_string)),
    };
    let before = faults.len();
    for scope in scopes(program) {
        faults.extend(effective(program, &layers, &scope, None).err().map(|error| error.to_string()));
    }
    if faults.len() == before {
        good.extend(layers.files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_in_rules_finds_its_key() {
        let error = "rules.toml: unknown field `interface`, expected one of `name`, `interfaces`, `file`\n";
        assert!(with_nearest(error).ends_with("`file`; the nearest key is interfaces"));
        assert_eq!(with_nearest("no file"), "no file");
    }

    #[test]
    fn rules_of_comments_are_not_checked() {
        assert!(is_blank("# [[capture]]\n\n  # name = 1\n") && !is_blank("# x\nmode = \"0660\"\n"));
    }
}
