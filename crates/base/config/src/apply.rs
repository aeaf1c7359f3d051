//! Values as defaults of the command line.

use std::ffi::OsString;

use clap::builder::OsStr;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::error::Error;
use crate::layer::{Entry, Layers, Origin};
use crate::options::{Scope, command, find, key, settable};
use crate::suggestion::nearest_text;

/// The values that hold for a command, without those that are typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Name of the option.
    pub key: String,
    /// Values of the option.
    pub values: Vec<String>,
    /// The place.
    pub origin: Origin,
}

/// The command line with these values as defaults of the command that is typed, whose words are `arguments`.
///
/// # Errors
/// A profile that there is not, an option that the command has not, a value that it does not take, two values that
/// exclude each other.
pub fn apply(
    root: Command,
    layers: &Layers,
    arguments: &[OsString],
    profile: Option<&str>,
) -> Result<Command, Error> {
    let Some(typed) = typed(&root, arguments) else { return Ok(root) };
    let Some(below) = command(&root, &typed.scope) else { return Ok(root) };
    let values = effective(&root, layers, &typed.scope, profile)?;
    let values: Vec<Effective> =
        values.into_iter().filter(|value| !is_ruled_out(below, &typed, &value.key)).collect();
    ensure_compatible(below, &values)?;
    Ok(with_defaults(root, &typed.scope, &values))
}

/// The profile that is typed, and whether anything else of the command line matters.
pub fn explicit(root: &Command, arguments: &[OsString], id: &str) -> Option<String> {
    let matches = root.clone().ignore_errors(true).try_get_matches_from(arguments).ok()?;
    let mut here = Some(&matches);
    while let Some(matches) = here {
        if let Ok(Some(value)) = matches.try_get_one::<String>(id) {
            return Some(value.clone());
        }
        here = matches.subcommand().map(|(_, below)| below);
    }
    None
}

/// The values that hold for a command: of each option the one of the strongest place.
///
/// # Errors
/// As [`apply`].
pub fn effective(
    root: &Command,
    layers: &Layers,
    scope: &Scope,
    profile: Option<&str>,
) -> Result<Vec<Effective>, Error> {
    let Some(below) = command(root, scope) else { return Ok(Vec::new()) };
    let mut values: Vec<Effective> = Vec::new();
    let mut set = |entry: &Entry| {
        let Entry { key, values: words, origin, .. } = entry;
        let value = Effective { key: key.clone(), values: words.clone(), origin: origin.clone() };
        match values.iter_mut().find(|known| known.key == *key) {
            Some(known) => *known = value,
            None => values.push(value),
        }
    };
    // Options before the first table are for every command that has them; those of its table are stronger.
    let general = layers.of_files.iter().filter(|entry| entry.scope.is_empty());
    general.filter(|entry| find(below, &entry.key).is_some()).for_each(&mut set);
    layers.of_files.iter().filter(|entry| entry.scope == *scope).for_each(&mut set);
    for entry in profile_entries(layers, profile)? {
        if find(below, &entry.key).is_none() {
            let keys: Vec<String> = settable(below).map(key).collect();
            let near = nearest_text(&entry.key, keys.iter().map(String::as_str));
            let what = format!("{} has no option {:?}{near}", scope.join(" "), entry.key);
            return Err(Error::Unknown { origin: entry.origin.clone(), what });
        }
        set(entry);
    }
    layers.of_variables.iter().filter(|entry| entry.scope == *scope).for_each(&mut set);
    for value in &values {
        ensure_valid(below, value)?;
    }
    Ok(values)
}

/// The options of a command that have a default, with it.
pub fn defaults(root: &Command, scope: &Scope) -> Vec<Effective> {
    let below = command(root, scope).into_iter().flat_map(settable);
    let default = |arg: &Arg| {
        let values =
            arg.get_default_values().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Effective { key: key(arg), values, origin: Origin::Default }
    };
    below.filter(|arg| !arg.get_default_values().is_empty()).map(default).collect()
}

fn profile_entries<'l>(layers: &'l Layers, profile: Option<&str>) -> Result<Vec<&'l Entry>, Error> {
    let Some(profile) = profile else { return Ok(Vec::new()) };
    let entries: Vec<&Entry> =
        layers.profiles.iter().filter(|(name, _)| name == profile).map(|(_, entry)| entry).collect();
    if entries.is_empty() {
        let nearest = nearest_text(profile, layers.profile_names());
        return Err(Error::NoProfile { name: profile.to_owned(), nearest });
    }
    Ok(entries)
}

/// The command that is typed, and its options that are.
struct Typed {
    scope: Scope,
    ids: Vec<String>,
}

/// `None` for a line whose command is unknown: the real parse says why.
fn typed(root: &Command, arguments: &[OsString]) -> Option<Typed> {
    let matches = root.clone().ignore_errors(true).try_get_matches_from(arguments).ok()?;
    let mut scope = Scope::new();
    let mut here: &ArgMatches = &matches;
    while let Some((name, below)) = here.subcommand() {
        scope.push(name.to_owned());
        here = below;
    }
    let is_typed = |id: &str| here.value_source(id) == Some(ValueSource::CommandLine);
    let ids = here.ids().map(|id| id.as_str().to_owned()).filter(|id| is_typed(id)).collect();
    Some(Typed { scope, ids })
}

/// Whether an option is typed, or conflicts with one that is.
fn is_ruled_out(below: &Command, typed: &Typed, name: &str) -> bool {
    let Some(arg) = find(below, name) else { return true };
    let typed = below.get_arguments().filter(|arg| typed.ids.iter().any(|id| arg.get_id() == id.as_str()));
    typed.into_iter().any(|other| other.get_id() == arg.get_id() || conflict(below, arg, other))
}

fn conflict(below: &Command, one: &Arg, other: &Arg) -> bool {
    let names = |from: &Arg, to: &Arg| {
        below.get_arg_conflicts_with(from).iter().any(|arg| arg.get_id() == to.get_id())
    };
    names(one, other) || names(other, one)
}

fn ensure_compatible(below: &Command, values: &[Effective]) -> Result<(), Error> {
    let is_set = |value: &&Effective| value.values != ["false"];
    let set: Vec<&Effective> = values.iter().filter(is_set).collect();
    for (at, first) in set.iter().enumerate() {
        for second in &set[at + 1..] {
            let pair = find(below, &first.key).zip(find(below, &second.key));
            if pair.is_some_and(|(first, second)| conflict(below, first, second)) {
                return Err(Error::Conflict {
                    first: first.key.clone(),
                    first_origin: first.origin.clone(),
                    second: second.key.clone(),
                    second_origin: second.origin.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Whether the option takes its values: they are parsed as if they were typed.
fn ensure_valid(below: &Command, value: &Effective) -> Result<(), Error> {
    let Some(arg) = find(below, &value.key) else { return Ok(()) };
    let mut words: Vec<OsString> = Vec::new();
    match (arg.get_action(), arg.get_long(), arg.get_short()) {
        (ArgAction::SetTrue, ..) => return Ok(()),
        (ArgAction::Count, ..) => {
            let is_count = value.values.iter().all(|word| word.parse::<u8>().is_ok());
            return if is_count { Ok(()) } else { Err(refused(value, "it is a number, 0 to 255")) };
        }
        (_, Some(long), _) => words.extend(value.values.iter().map(|word| format!("--{long}={word}").into())),
        (_, None, Some(short)) => {
            words.extend(value.values.iter().map(|word| format!("-{short}{word}").into()))
        }
        (_, None, None) => words.extend(["--".into()].into_iter().chain(value.values.iter().map(Into::into))),
    }
    let parsed = below.clone().no_binary_name(true).try_get_matches_from(words);
    match parsed {
        Err(error) if is_about_value(error.kind()) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            Err(refused(value, line.trim_start_matches("error: ")))
        }
        // What is missing beside it is typed, or not.
        _ => Ok(()),
    }
}

fn is_about_value(kind: ErrorKind) -> bool {
    use ErrorKind::{
        InvalidUtf8, InvalidValue, TooFewValues, TooManyValues, ValueValidation, WrongNumberOfValues,
    };
    matches!(
        kind,
        InvalidUtf8 | InvalidValue | TooFewValues | TooManyValues | ValueValidation | WrongNumberOfValues
    )
}

fn refused(value: &Effective, why: &str) -> Error {
    let what = if why.contains(&value.key) { why.to_owned() } else { format!("{}: {why}", value.key) };
    Error::Unknown { origin: value.origin.clone(), what }
}

fn with_defaults(root: Command, scope: &[String], values: &[Effective]) -> Command {
    if let Some((name, rest)) = scope.split_first() {
        return root.mut_subcommand(name, |below| with_defaults(below, rest, values));
    }
    values.iter().fold(root, |below, value| {
        let Some(id) = find(&below, &value.key).map(|arg| arg.get_id().clone()) else { return below };
        // The defaults of a command line are those of the program: they last as long as it runs.
        let words: Vec<OsStr> = value.values.iter().map(|word| OsStr::from(&*word.clone().leak())).collect();
        below.mut_arg(id, |arg| arg.required(false).default_values(words))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use clap::{Args, Parser, Subcommand};

    use super::*;
    use crate::places::Places;

    #[derive(Debug, Parser)]
    struct Cli {
        #[arg(long, global = true)]
        profile: Option<String>,
        #[command(subcommand)]
        command: Sub,
    }

    #[derive(Debug, Subcommand)]
    enum Sub {
        Capture(Capture),
        #[command(subcommand)]
        Store(Store),
        Profile {
            #[arg(long)]
            json: bool,
        },
    }

    #[derive(Debug, Subcommand)]
    enum Store {
        List {
            #[arg(long)]
            json: bool,
        },
    }

    #[derive(Debug, Args)]
    struct Capture {
        #[arg(short, long)]
        interface: Vec<String>,
        #[arg(short, conflicts_with = "interface")]
        read: Option<String>,
        #[arg(short, long, default_value_t = 7)]
        snapshot_length: u32,
        #[arg(short, action = ArgAction::Count)]
        numeric: u8,
        #[arg(long, conflicts_with = "numeric")]
        names: bool,
        #[arg(long)]
        to: String,
        filter: Vec<String>,
    }

    struct Trial {
        folder: tempfile::TempDir,
        variables: Vec<(OsString, OsString)>,
    }

    impl Trial {
        fn new(text: &str) -> Trial {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join("tapline.toml"), text).expect("a file");
            Trial { folder, variables: Vec::new() }
        }

        fn with(mut self, name: &str, value: &str) -> Trial {
            self.variables.push((name.into(), value.into()));
            self
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("tapline.toml")
        }

        fn layers(&self) -> Result<Layers, Vec<Error>> {
            use clap::CommandFactory;
            Layers::read(&&Cli::command(), &Places::only(&self.path()), self.variables.clone())
        }

        /// The result of the command line, or the error with the file's folder taken off.
        fn parse(&self, line: &str) -> Result<Cli, String> {
            use clap::{CommandFactory, FromArgMatches};
            let words: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            let folder = format!("{}/", self.folder.path().display());
            let told = |error: Error| error.to_string().replace(&folder, "");
            let layers = self.layers().map_err(|mut faults| told(faults.remove(0)))?;
            let profile = explicit(&Cli::command(), &words, "profile");
            let command = apply(Cli::command(), &layers, &words, profile.as_deref()).map_err(told)?;
            let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
            Ok(Cli::from_arg_matches(&matches).expect("as declared"))
        }

        fn capture(&self, line: &str) -> Capture {
            match self.parse(line).unwrap_or_else(|why| panic!("{why}")).command {
                Sub::Capture(capture) => capture,
                other => panic!("a capture, not {other:?}"),
            }
        }
    }

    #[test]
    fn a_stronger_place_wins() {
        let trial = Trial::new("[capture]\nsnapshot_length = 96\nto = \"a\"\nn = 2\n");
        let capture = trial.capture("tapline capture");
        assert_eq!((capture.snapshot_length, capture.to.as_str(), capture.numeric), (96, "a", 2));
        let drop_in = trial.folder.path().join("tapline.toml.d");
        fs::create_dir(&drop_in).expect("a folder");
        fs::write(drop_in.join("x.toml"), "[capture]\nsnapshot-length = 97\n").expect("a file");
        assert_eq!(trial.capture("tapline capture").snapshot_length, 97);
        let trial = trial.with("TAPLINE_CAPTURE_SNAPSHOT_LENGTH", "98").with("TAPLINE_OTHER", "1");
        assert_eq!(trial.capture("tapline capture").snapshot_length, 98);
        assert_eq!(trial.capture("tapline capture -s 99 --to b").snapshot_length, 99);
    }

    #[test]
    fn keys_before_tables_are_for_all_commands() {
        let trial = Trial::new("to = \"a\"\njson = true\n");
        assert_eq!(trial.capture("tapline capture").to, "a");
        assert!(matches!(
            trial.parse("tapline store list").unwrap().command,
            Sub::Store(Store::List { json: true })
        ));
        let trial = Trial::new("to = \"a\"\n[capture]\nto = \"b\"\n");
        assert_eq!(trial.capture("tapline capture").to, "b");
        assert_eq!(trial.capture("tapline capture --to c").to, "c");
        let error = Trial::new("jsno = true\n").parse("tapline capture").unwrap_err();
        assert_eq!(error, "tapline.toml:1: no command has an option \"jsno\"; the nearest name is json");
    }

    #[test]
    fn a_typed_option_rules_out_its_rivals() {
        let trial = Trial::new("[capture]\ninterface = [\"eth0\", \"eth1\"]\nto = \"a\"\nnames = true\n");
        assert_eq!(trial.capture("tapline capture").interface, ["eth0", "eth1"]);
        let capture = trial.capture("tapline capture -r x.pcap -n");
        assert!(capture.interface.is_empty() && capture.read.is_some() && !capture.names);
    }

    #[test]
    fn a_profile_is_used_when_it_is_named() {
        let trial = Trial::new(
            "[profile.dns]\nfilter = [\"udp\", \"port 53\"]\nto = \"a\"\ns = 1\n[profile.list]\njson = true\n",
        );
        let error = trial.parse("tapline capture --profile dns").unwrap_err();
        assert!(error.contains("no command has an option \"s\""), "{error}");
        let trial = Trial::new(
            "[profile.dns]\nfilter = [\"udp\", \"port 53\"]\nto = \"a\"\n[profile.list]\njson = true\n",
        );
        assert_eq!(trial.capture("tapline capture --profile dns").filter, ["udp", "port 53"]);
        assert_eq!(trial.capture("tapline --profile dns capture tcp").filter, ["tcp"]);
        assert!(trial.parse("tapline capture").is_err(), "--to is required without it");
        let error = trial.parse("tapline store list --profile dn").unwrap_err();
        assert_eq!(error, "there is no profile \"dn\"; the nearest name is dns");
        let error = trial.parse("tapline store list --profile dns").unwrap_err();
        assert!(error.starts_with("tapline.toml:2: store list has no option \"filter\""), "{error}");
        assert!(matches!(
            trial.parse("tapline store list --profile list").unwrap().command,
            Sub::Store(Store::List { json: true })
        ));
    }

    #[test]
    fn a_fault_names_its_line_and_the_nearest_name() {
        for (text, fault) in [
            (
                "\n[capture]\nsnapshot-lenght = 1\n",
                "tapline.toml:3: capture has no option \"snapshot-lenght\"; the nearest name is snapshot-length",
            ),
            ("[captrue]\n", "tapline.toml:1: there is no command \"captrue\"; the nearest name is capture"),
            ("[capture]\nnames = 1\n", "tapline.toml:2: names: it is true or false"),
            ("[capture]\nto = [\"a\"]\n", "tapline.toml:2: to: it has one value, not a list"),
            ("[capture]\n\nto = \n", "tapline.toml:3: "),
            (
                "[capture]\nto = \"a\"\nsnapshot-length = \"x\"\n",
                "tapline.toml:3: invalid value 'x' for '--snapshot-length <SNAPSHOT_LENGTH>'",
            ),
            (
                "[capture]\nto = \"a\"\nn = 1\nnames = true\n",
                "tapline.toml:3: n cannot be together with names (tapline.toml:4)",
            ),
            ("[capture]\nhelp = true\n", "tapline.toml:2: capture has no option \"help\""),
        ] {
            let error = Trial::new(text).parse("tapline capture").unwrap_err();
            assert!(error.starts_with(fault), "{text}: {error}");
        }
        let trial = Trial::new("").with("TAPLINE_CAPTURE_NAMES", "perhaps");
        let error = trial.parse("tapline capture --to a").unwrap_err();
        assert_eq!(
            error,
            "environment variable TAPLINE_CAPTURE_NAMES: \"perhaps\" is neither true nor false"
        );
    }

    #[test]
    fn every_fault_is_found_at_once() {
        let trial = Trial::new("[capture]\nx = 1\ny = 2\n[profile]\nz = 3\n");
        assert_eq!(trial.layers().unwrap_err().len(), 3);
    }

    #[test]
    fn a_command_may_be_called_profile() {
        let trial = Trial::new("[profile]\njson = true\n[profile.dns]\nto = \"a\"\n");
        assert!(matches!(trial.parse("tapline profile").unwrap().command, Sub::Profile { json: true }));
        assert_eq!(trial.capture("tapline capture --profile dns").to, "a");
        let error = Trial::new("[profile]\nsjon = true\n").parse("tapline profile").unwrap_err();
        assert!(error.contains("profile has no option \"sjon\"; the nearest name is json"), "{error}");
    }

    #[test]
    fn help_and_other_commands_are_left_alone() {
        let trial = Trial::new("[capture]\nsnapshot-length = \"x\"\n");
        assert!(trial.parse("tapline store list").is_ok());
        assert!(trial.parse("tapline capture --help").unwrap_err().contains("Usage"));
    }
}
