//! Holds: time windows and filters whose packets a recorder must not delete (docs/format/store.md, "Holds").

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;
use tapline_filter::{HandleKind, Options};
use tapline_packet::{LinkType, Timestamp};
use tapline_sys::{Folder, disk};

use crate::catalog::Catalog;
use crate::error::Error;
use crate::files;
use crate::index::Index;
use crate::layout::{remove, sync_directory};
use crate::log;
use crate::question::Question;
use crate::search::Window;

/// The longest name of a hold, in bytes.
const NAME_LEN_MAX: usize = 64;
/// The longest filter of a hold, in bytes.
const FILTER_LEN_MAX: usize = 32 << 10;
/// The longest file of a hold, in bytes; a longer one holds everything.
const HOLD_LEN_MAX: u64 = 64 << 10;

/// A time window and a filter; segments that may have such packets are neither recycled nor deleted by age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// 1 to 64 ASCII letters, digits, `-` and `_`; unique in the store.
    pub name: String,
    /// The packets' times.
    pub window: Window,
    /// A filter in the pcap-filter language that selects packets of these times; empty for all of them.
    pub filter: String,
    /// When the hold was made.
    pub made: Timestamp,
    /// The reason as free text, which the log has too; may be empty.
    pub why: String,
}

/// A file in `holds/`. One that cannot be read or parsed holds all packets of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldEntry {
    /// The file's name without `.toml`.
    pub name: String,
    /// The hold, or the message of the error with which reading or parsing failed.
    pub hold: Result<Hold, String>,
}

/// The content of `holds/NAME.toml`; times are nanoseconds since 1970.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    from: Option<i64>,
    to: Option<i64>,
    #[serde(default)]
    filter: String,
    made: i64,
    #[serde(default)]
    why: String,
}

impl Hold {
    /// Whether a segment may have packets of the hold; `true` for a segment without an index or with a damaged one.
    pub(crate) fn may_hold(&self, index: Option<&Index>) -> bool {
        let Some(index) = index else { return true };
        if !self.window.overlaps(index.summary.first, index.summary.last) {
            return false;
        }
        let question = Question::of(&self.filter, &Options::default());
        index.may_satisfy(&question).is_none_or(|slots| slots.contains(&true))
    }

    /// Checks that a link type of the store supports the filter; in a store without interfaces, that any link type
    /// does.
    fn check_filter(&self, catalog: &Catalog) -> Result<(), Error> {
        let mut last_error = None;
        let mut fits = |link_type| {
            let options =
                Options { link_type, handle: HandleKind::Savefile, netmask: Some(0), ..Options::default() };
            let compiled = tapline_filter::compile(&self.filter, &options);
            compiled.map_err(|error| last_error = Some(error.render(&self.filter))).is_ok()
        };
        let can_be = match catalog.any_link_type(&mut fits)? {
            Some(fits) => fits,
            // Numbers of link types are below 300.
            None => fits(LinkType::ETHERNET) || (0..300).any(|number| fits(LinkType(number))),
        };
        match last_error.filter(|_| !can_be) {
            Some(error) => {
                Err(Error::Setting(format!("no interface of the store can have this filter: {error}")))
            }
            None => Ok(()),
        }
    }

    /// Checks the length of the file: readers refuse a longer one, which would then hold everything.
    fn check_len(&self, len: usize) -> Result<(), Error> {
        if self.filter.len() <= FILTER_LEN_MAX && len as u64 <= HOLD_LEN_MAX {
            return Ok(());
        }
        Err(Error::Setting(format!(
            "the hold {} would have {len} bytes with a filter of {}: a filter has at most {FILTER_LEN_MAX} bytes, a \
             hold {HOLD_LEN_MAX} with its reason; give shorter ones",
            self.name,
            self.filter.len()
        )))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| text += &format!("{name} = {value}\n");
        // A JSON string is a basic string of TOML, if it has no DEL.
        let quoted = |value: &str| json!(value.replace('\u{7f}', " ")).to_string();
        if self.window.from != Window::ALL.from {
            line("from", self.window.from.as_nanos().to_string());
        }
        if self.window.to != Window::ALL.to {
            line("to", self.window.to.as_nanos().to_string());
        }
        if !self.filter.is_empty() {
            line("filter", quoted(&self.filter));
        }
        line("made", self.made.as_nanos().to_string());
        if !self.why.is_empty() {
            line("why", quoted(&self.why));
        }
        text
    }

    fn parse(name: &str, text: &str) -> Result<Hold, String> {
        let description: Description = toml::from_str(text).map_err(|error| error.to_string())?;
        tapline_filter::parse(&description.filter)
            .map_err(|error| format!("its filter: {}", error.render(&description.filter)))?;
        let moment = |nanos: Option<i64>, otherwise| nanos.map_or(otherwise, Timestamp::from_nanos);
        let window = Window {
            from: moment(description.from, Window::ALL.from),
            to: moment(description.to, Window::ALL.to),
        };
        let Description { filter, made, why, .. } = description;
        Ok(Hold { name: name.to_owned(), window, filter, made: Timestamp::from_nanos(made), why })
    }
}

impl HoldEntry {
    /// As [`Hold::may_hold`]; `true` for a hold that could not be parsed.
    pub(crate) fn may_hold(&self, index: Option<&Index>) -> bool {
        self.hold.as_ref().map_or(true, |hold| hold.may_hold(index))
    }
}

impl Catalog {
    /// All holds in the order of their names; empty if the store has no directory `holds/`.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read. A hold that cannot be read has an entry, too: see
    /// [`HoldEntry`].
    pub fn holds(&self) -> Result<Vec<HoldEntry>, Error> {
        let folder = self.paths.holds();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::file("read", &folder))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::file("read", &folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".toml").map(str::to_owned));
        }
        names.sort();
        Ok(names.into_iter().map(|name| HoldEntry { hold: self.read_hold(&name), name }).collect())
    }

    /// Names of the holds that keep the segment with this number.
    ///
    /// # Errors
    /// As [`holds`](Self::holds).
    pub fn holds_of(&self, segment: u64) -> Result<Vec<String>, Error> {
        let holds = self.holds()?;
        if holds.is_empty() {
            return Ok(Vec::new());
        }
        let index = self.index(segment);
        let of_segment = holds.into_iter().filter(|hold| hold.may_hold(index.as_ref()));
        Ok(of_segment.map(|hold| hold.name).collect())
    }

    /// Writes the hold to `holds/` and to the log. No lock is taken: a recorder that runs reads the holds each time
    /// before it recycles a segment or deletes old ones.
    ///
    /// # Errors
    /// [`Error::Setting`] if the name is not valid or already in use, if no link type of the store can have the filter,
    /// or if filter and reason are longer than a hold's file may be; [`Error::File`] if the hold cannot be written, or `holds/` is a
    /// link; [`Error::NotLogged`] if the hold is in force and the log cannot be written.
    pub fn hold(&self, hold: &Hold) -> Result<(), Error> {
        check_name(&hold.name)?;
        let text = hold.text();
        Hold::parse(&hold.name, &text).map_err(Error::Setting)?;
        hold.check_len(text.len())?;
        hold.check_filter(self)?;
        let path = self.hold_path(&hold.name);
        let is_there = || {
            Error::Setting(format!(
                "{}: there is a hold of this name: release it, or take another name",
                path.display()
            ))
        };
        if fs::symlink_metadata(&path).is_ok() {
            return Err(is_there());
        }
        let folder = self.paths.holds();
        let made = files::make_folder(&folder).and_then(|()| sync_directory(&folder));
        made.map_err(Error::file("make", &folder))?;
        let folder = self.open_holds()?;
        let name = format!("{}.toml", hold.name);
        // Written where no other process writes, and named only if no other process was first.
        let write = || {
            let private = folder.make_private().map_err(|error| error.source)?;
            let draft = private.path_of(name.as_ref());
            let mut file = files::make_as(&draft, files::owner_beside(&path))?;
            let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            let named =
                written.and_then(|()| private.publish(name.as_ref(), false).map_err(|error| error.source));
            if named.is_err() {
                let _ = private.remove(name.as_ref());
            }
            named.and_then(|()| sync_directory(&path))
        };
        write().map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => is_there(),
            _ => Error::file("write", &path)(error),
        })?;
        let (from, to) = (hold.window.from.as_nanos(), hold.window.to.as_nanos());
        let event = json!({ "event": "held", "hold": hold.name, "from_ns": from, "to_ns": to, "filter": hold.filter,
            "why": hold.why });
        let in_force = |source| Error::NotLogged { name: hold.name.clone(), source: Box::new(source) };
        log::append(&self.paths, event).map_err(in_force)
    }

    /// The directory of holds. A link is not followed: its target is the choice of the user who owns the store.
    fn open_holds(&self) -> Result<Folder, Error> {
        let path = self.paths.holds();
        let opened = Folder::open_no_link(&path).map_err(|error| error.source);
        opened.map_err(Error::file("open", &path))
    }

    /// Writes the release to the log, then removes the hold.
    ///
    /// # Errors
    /// [`Error::Setting`] if the name is not valid or the store has no such hold; [`Error::File`] if the log cannot be
    /// written or the file cannot be removed.
    pub fn release(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        let path = self.hold_path(name);
        if fs::symlink_metadata(&path).is_err() {
            return Err(Error::Setting(format!(
                "{}: there is no hold {name} (tapline store hold STORE lists them)",
                self.root().display()
            )));
        }
        // The log comes first: a crash between both steps leaves the hold in force, not a release without a record.
        let folder = self.open_holds()?;
        log::append(&self.paths, json!({ "event": "released", "hold": name }))?;
        remove(&folder.path_of(format!("{name}.toml").as_ref()))
    }

    fn hold_path(&self, name: &str) -> PathBuf {
        self.paths.holds().join(format!("{name}.toml"))
    }

    fn read_hold(&self, name: &str) -> Result<Hold, String> {
        check_name(name).map_err(|error| error.to_string())?;
        let file = disk::open_regular(&self.hold_path(name), OpenOptions::new().read(true));
        let mut text = String::new();
        let read = file.and_then(|file| file.take(HOLD_LEN_MAX + 1).read_to_string(&mut text));
        match read.map_err(|error| error.to_string())? as u64 {
            0..=HOLD_LEN_MAX => Hold::parse(name, &text),
            _ => Err(format!("it is longer than {HOLD_LEN_MAX} bytes")),
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if (1..=NAME_LEN_MAX).contains(&name.len()) && name.chars().all(is_letter) {
        return Ok(());
    }
    Err(Error::Setting(format!(
        "{name:?} is not a name of a hold: 1 to {NAME_LEN_MAX} letters, digits, '-' and '_'"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(filter: &str) -> Hold {
        Hold {
            name: "case-7".to_owned(),
            window: Window { from: Timestamp::from_nanos(5), to: Window::ALL.to },
            filter: filter.to_owned(),
            made: Timestamp::from_nanos(9),
            why: "said by \"legal\"\n\u{7f}".to_owned(),
        }
    }

    #[test]
    fn a_hold_is_read_as_it_was_written() {
        for filter in ["", "host 10.0.0.1 and not port 22"] {
            let written = hold(filter);
            let read = Hold::parse("case-7", &written.text()).unwrap();
            assert_eq!(read, Hold { why: "said by \"legal\"\n ".to_owned(), ..written });
        }
    }

    #[test]
    fn a_hold_that_is_not_understood_holds_everything() {
        for text in ["", "made = 1\nfilter = \"host\"", "made = 1\nuntil = 3", "made = \"now\""] {
            let entry = HoldEntry { name: "x".to_owned(), hold: Hold::parse("x", text) };
            assert!(entry.hold.is_err() && entry.may_hold(None), "{text}");
        }
    }

    #[test]
    fn names_of_holds_lead_nowhere_else() {
        for name in ["", "../x", "a/b", "a.b", "ä"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("Case_7-b").is_ok());
    }
}
