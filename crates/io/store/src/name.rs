//! A store as a name, wherever a capture file's or an interface's name is asked for.
//!
//! ```text
//! name := store:DIRECTORY [ ? part ( & part )* ]
//! part := from=MOMENT | to=MOMENT | follow
//!
//! store:/srv/store    store:/srv/store?from=-1h    store:/srv/store?from=yesterday 22:00&to=+10m
//! ```

use std::path::{Path, PathBuf};

use crate::moments::Clock;
use crate::search::Window;

/// Prefix of the directory.
const PREFIX: &str = "store:";

/// A store that is meant by a name, and which of its packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreName {
    /// The store's directory.
    pub directory: PathBuf,
    /// The first moment, as it was said.
    pub from: Option<String>,
    /// The first moment after, as it was said.
    pub to: Option<String>,
    /// Packets that are recorded from now on are meant too.
    pub follow: bool,
}

impl StoreName {
    /// Parses a name; `None` if it does not name a store. Text after the last question mark belongs to the directory
    /// unless it begins with one of the parts.
    ///
    /// # Errors A message with the unknown part and the parts that exist.
    pub fn parse(name: &Path) -> Option<Result<StoreName, String>> {
        let rest = name.to_str()?.strip_prefix(PREFIX)?;
        let is_asked = |(_, parts): &(&str, &str)| parts.split('&').next().and_then(part).is_some();
        let (directory, parts) = rest.rsplit_once('?').filter(is_asked).unwrap_or((rest, ""));
        let mut store = StoreName { directory: PathBuf::from(directory), ..StoreName::default() };
        for text in parts.split('&').filter(|text| !text.is_empty()) {
            match part(text) {
                Some(NamePart::From(moment)) => store.from = Some(moment.to_owned()),
                Some(NamePart::To(moment)) => store.to = Some(moment.to_owned()),
                Some(NamePart::Follow) => store.follow = true,
                None => {
                    return Some(Err(format!("{text:?}: a store's name may say from=TIME, to=TIME, follow")));
                }
            }
        }
        Some(Ok(store))
    }

    /// The name of the store in a directory.
    pub fn of(directory: &Path) -> PathBuf {
        let mut name = std::ffi::OsString::from(PREFIX);
        name.push(directory);
        name.into()
    }

    /// As it is typed.
    pub fn text(&self) -> String {
        let from = self.from.iter().map(|moment| format!("from={moment}"));
        let to = self.to.iter().map(|moment| format!("to={moment}"));
        let follow = self.follow.then(|| "follow".to_owned());
        let parts: Vec<String> = from.chain(to).chain(follow).collect();
        let sign = if parts.is_empty() { "" } else { "?" };
        format!("{PREFIX}{}{sign}{}", self.directory.display(), parts.join("&"))
    }

    /// The times that are meant.
    ///
    /// # Errors
    /// Which moment is none, and what would be one.
    pub fn window(&self, clock: &Clock) -> Result<Window, String> {
        clock.window(self.from.as_deref(), self.to.as_deref(), ["from", "to"])
    }
}

enum NamePart<'a> {
    From(&'a str),
    To(&'a str),
    Follow,
}

fn part(text: &str) -> Option<NamePart<'_>> {
    match text.split_once('=') {
        Some(("from", moment)) => Some(NamePart::From(moment)),
        Some(("to", moment)) => Some(NamePart::To(moment)),
        None if text == "follow" => Some(NamePart::Follow),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> Option<(String, Option<String>, Option<String>, bool)> {
        let StoreName { directory, from, to, follow } = StoreName::parse(Path::new(name))?.ok()?;
        Some((directory.display().to_string(), from, to, follow))
    }

    #[test]
    fn a_name_says_directory_and_times() {
        let said = |text: &str| Some(text.to_owned());
        for (name, directory, from, to, follow) in [
            ("store:/srv/a", "/srv/a", None, None, false),
            ("store:a?from=-1h", "a", said("-1h"), None, false),
            ("store:a?from=yesterday 22:00&to=+10m", "a", said("yesterday 22:00"), said("+10m"), false),
            ("store:a?follow&from=now", "a", said("now"), None, true),
            ("store:what?", "what?", None, None, false),
            ("store:a?b=c", "a?b=c", None, None, false),
            ("store:a?b?to=10:00", "a?b", None, said("10:00"), false),
        ] {
            assert_eq!(parsed(name), Some((directory.to_owned(), from, to, follow)), "{name}");
            let again = StoreName::parse(Path::new(name)).unwrap().unwrap().text();
            assert_eq!(parsed(&again), parsed(name), "{again}");
        }
        assert_eq!((parsed("/srv/a"), parsed("tap:a")), (None, None));
        let bad = StoreName::parse(Path::new("store:a?from=1&b=2"));
        assert!(bad.is_some_and(|bad| bad.is_err_and(|error| error.starts_with("\"b=2\""))));
        assert_eq!(StoreName::of(Path::new("a b")), Path::new("store:a b"));
    }
}
