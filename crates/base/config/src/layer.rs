//! Files, profiles and variables as one list of values, the weakest first.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use tapline_sys::disk;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::Error;
use crate::options::{Scope, commands, find, key, settable, variable};
use crate::places::Places;
use crate::suggestion::nearest_text;

/// The table of profiles.
const PROFILE: &str = "profile";
/// Bytes of a file: more is none of ours.
const FILE_LEN_MAX: u64 = 1 << 20;

/// The place of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program's own.
    Default,
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Variable(name) => write!(f, "environment variable {name}"),
        }
    }
}

/// The value of an option in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The command; empty in a profile and before the first table, where options are for any.
    pub scope: Scope,
    /// Name of the option.
    pub key: String,
    /// Values of the option.
    pub values: Vec<String>,
    /// The place.
    pub origin: Origin,
}

/// All values, those that win last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Values of files.
    pub(crate) of_files: Vec<Entry>,
    /// Values of profiles, by name.
    pub(crate) profiles: Vec<(String, Entry)>,
    /// Values of the environment.
    pub(crate) of_variables: Vec<Entry>,
    /// Files that were read.
    pub files: Vec<PathBuf>,
}

impl Layers {
    /// Reads the files and the environment, for the options of `root`, which is looked at only if something is set.
    ///
    /// # Errors
    /// All faults, in the order of their places.
    pub fn read(
        root: &impl Deref<Target = Command>,
        places: &Places,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Layers, Vec<Error>> {
        let mut layers = Layers::default();
        let mut faults = Vec::new();
        let present = places.present().unwrap_or_else(|error| {
            faults.push(error);
            Vec::new()
        });
        for (path, file) in present {
            match text_of(&path, file) {
                Ok(text) => layers.add_file(root, &path, &text, &mut faults),
                Err(error) => faults.push(error),
            }
            layers.files.push(path);
        }
        layers.add_variables(root, variables, &mut faults);
        if faults.is_empty() { Ok(layers) } else { Err(faults) }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.of_files.is_empty() && self.profiles.is_empty() && self.of_variables.is_empty()
    }

    /// Names of the profiles.
    pub fn profile_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.profiles.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn add_file(
        &mut self,
        root: &impl Deref<Target = Command>,
        path: &Path,
        text: &str,
        faults: &mut Vec<Error>,
    ) {
        let table = match DeTable::parse(text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let line = line_of(text, error.span().map_or(0, |span| span.start));
                faults.push(Error::Syntax { path: path.to_owned(), line, what: error.message().to_owned() });
                return;
            }
        };
        if table.is_empty() {
            return;
        }
        let mut file = File { path, text, entries: Vec::new(), profiles: Vec::new(), faults };
        file.table(root, &Scope::new(), &table);
        let File { entries, profiles, .. } = file;
        self.of_files.extend(entries);
        self.profiles.extend(profiles);
    }

    fn add_variables(
        &mut self,
        root: &impl Deref<Target = Command>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        faults: &mut Vec<Error>,
    ) {
        let ours: Vec<(String, OsString)> = variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with("TAPLINE_"))
            .collect();
        if ours.is_empty() {
            return;
        }
        for (scope, command) in commands(root) {
            for arg in settable(command) {
                let name = variable(&scope, &key(arg));
                let Some((name, value)) = ours.iter().find(|(known, _)| *known == name) else { continue };
                let origin = Origin::Variable(name.clone());
                match value.to_str().map(|value| flag_word(arg, value)) {
                    Some(Ok(value)) => {
                        let (key, values) = (key(arg), vec![value]);
                        self.of_variables.push(Entry { scope: scope.clone(), key, values, origin });
                    }
                    Some(Err(what)) => faults.push(Error::Unknown { origin, what }),
                    None => faults.push(Error::Unknown { origin, what: "it is not UTF-8".to_owned() }),
                }
            }
        }
    }
}

/// The value of a variable; of an option without a value it is a statement.
fn flag_word(arg: &Arg, value: &str) -> Result<String, String> {
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, "1" | "true" | "yes" | "on") => Ok("true".to_owned()),
        (ArgAction::SetTrue, "" | "0" | "false" | "no" | "off") => Ok("false".to_owned()),
        (ArgAction::SetTrue, _) => Err(format!("{value:?} is neither true nor false")),
        _ => Ok(value.to_owned()),
    }
}

/// The text of a file, also of a pipe or device whose bytes come within seconds, of 1 MiB at most.
///
/// # Errors
/// [`Error::File`] if it cannot be read, is longer, or is not UTF-8.
pub fn read_bounded(path: &Path) -> Result<String, Error> {
    let file = disk::open_at_once(path, fs::OpenOptions::new().read(true));
    text_of(path, file.map_err(|source| Error::File { path: path.to_owned(), source })?)
}

fn text_of(path: &Path, file: fs::File) -> Result<String, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let text = disk::read_file_at_most(&file, FILE_LEN_MAX).map_err(failed)?;
    if text.len() as u64 > FILE_LEN_MAX {
        let text = format!("it has more than {FILE_LEN_MAX} bytes, the most of a configuration");
        return Err(failed(std::io::Error::other(text)));
    }
    String::from_utf8(text).map_err(|error| failed(std::io::Error::other(error)))
}

/// The line of a byte, from 1 on.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// A file that is looked through.
struct File<'f> {
    path: &'f Path,
    text: &'f str,
    entries: Vec<Entry>,
    profiles: Vec<(String, Entry)>,
    faults: &'f mut Vec<Error>,
}

impl File<'_> {
    fn origin(&self, at: usize) -> Origin {
        Origin::File { path: self.path.to_owned(), line: line_of(self.text, at) }
    }

    fn fault(&mut self, at: usize, what: String) {
        let origin = self.origin(at);
        self.faults.push(Error::Unknown { origin, what });
    }

    /// The table of a command: tables of its subcommands, and its options.
    fn table(&mut self, command: &Command, scope: &Scope, table: &DeTable<'_>) {
        for (name, value) in table.iter() {
            let (at, name) = (name.span().start, name.get_ref().to_string());
            let is_root = scope.is_empty();
            match (value.get_ref(), command.find_subcommand(&name)) {
                (DeValue::Table(table), below) if is_root && name == PROFILE => {
                    self.profiles(command, below, table);
                }
                (DeValue::Table(table), Some(below)) => {
                    let scope = scope.iter().cloned().chain([below.get_name().to_owned()]).collect();
                    self.table(below, &scope, table);
                }
                _ => self.option(command, scope, at, &name, value),
            }
        }
    }

    fn option(
        &mut self,
        command: &Command,
        scope: &Scope,
        at: usize,
        name: &str,
        value: &Spanned<DeValue<'_>>,
    ) {
        if scope.is_empty() {
            let entry = match value.get_ref() {
                DeValue::Table(_) => return self.fault(at, unknown(command, name)),
                _ => self.of_any_command(command, at, name, value),
            };
            return self.entries.extend(entry);
        }
        let Some(arg) = find(command, name) else {
            let keys: Vec<String> = settable(command).map(key).collect();
            let below = command.get_subcommands().map(Command::get_name);
            let near = nearest_text(name, keys.iter().map(String::as_str).chain(below));
            let what = format!("{} has no option {name:?}{near}", scope.join(" "));
            return self.fault(at, what);
        };
        match values(arg, value.get_ref()) {
            Ok(values) => {
                let origin = self.origin(at);
                self.entries.push(Entry { scope: scope.clone(), key: key(arg), values, origin });
            }
            Err(what) => self.fault(at, format!("{name}: {what}")),
        }
    }

    /// Tables of profiles. A profile may be for several commands: each option is one of some command. `below` is the
    /// command of the same name, whose options are between them.
    fn profiles(&mut self, root: &Command, below: Option<&Command>, table: &DeTable<'_>) {
        for (profile, value) in table.iter() {
            let (at, profile) = (profile.span().start, profile.get_ref().to_string());
            let DeValue::Table(options) = value.get_ref() else {
                match below {
                    Some(below) => self.option(below, &vec![PROFILE.to_owned()], at, &profile, value),
                    None => self.fault(
                        at,
                        format!("{PROFILE}.{profile} is not a table: [{PROFILE}.NAME] has options"),
                    ),
                }
                continue;
            };
            for (name, value) in options.iter() {
                let (at, name) = (name.span().start, name.get_ref().to_string());
                let entry = self.of_any_command(root, at, &name, value);
                self.profiles.extend(entry.map(|entry| (profile.clone(), entry)));
            }
        }
    }

    /// An option that some command has, for all that have it; `None` if it is at fault.
    fn of_any_command(
        &mut self,
        root: &Command,
        at: usize,
        name: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Entry> {
        let all = commands(root);
        let Some(arg) = all.iter().find_map(|(_, command)| find(command, name)) else {
            let keys: Vec<String> = all.iter().flat_map(|(_, command)| settable(command).map(key)).collect();
            let near = nearest_text(name, keys.iter().map(String::as_str));
            self.fault(at, format!("no command has an option {name:?}{near}"));
            return None;
        };
        match values(arg, value.get_ref()) {
            Ok(values) => Some(Entry { scope: Scope::new(), key: key(arg), values, origin: self.origin(at) }),
            Err(what) => {
                self.fault(at, format!("{name}: {what}"));
                None
            }
        }
    }
}

/// The error for a table that is not a command's.
fn unknown(root: &Command, name: &str) -> String {
    let near = nearest_text(name, root.get_subcommands().map(Command::get_name).chain([PROFILE]));
    format!("there is no command {name:?}{near}")
}

/// The words that a value makes on a command line.
fn values(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let takes_several = matches!(arg.get_action(), ArgAction::Append)
        || arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(is_set)) => Ok(vec![is_set.to_string()]),
        (ArgAction::SetTrue, _) => Err("it is true or false".to_owned()),
        (ArgAction::Count, DeValue::Boolean(is_set)) => Ok(vec![u8::from(*is_set).to_string()]),
        (_, DeValue::Array(list)) if takes_several => {
            list.iter().map(|value| scalar(value.get_ref())).collect()
        }
        (_, DeValue::Array(_)) => Err("it has one value, not a list".to_owned()),
        (_, value) => Ok(vec![scalar(value)?]),
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().replace('_', "")),
        DeValue::Integer(_) => Err("a number is decimal".to_owned()),
        DeValue::Float(number) => Ok(number.as_str().replace('_', "")),
        DeValue::Boolean(is_set) => Ok(is_set.to_string()),
        DeValue::Datetime(time) => Ok(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => Err("it is a text, a number, true or false".to_owned()),
    }
}
