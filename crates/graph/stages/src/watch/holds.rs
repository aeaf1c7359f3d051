//! Holds of rules, made in the store that they name.

use std::io::ErrorKind;
use std::path::Path;

use tapline_packet::Timestamp;
use tapline_store::{Catalog, Error, Hold, HoldEntry, Window};
use tapline_sys::{SyscallError, clock, privilege, unnamed};
use tapline_watch::HoldRequest;

/// The directory of holds in a store (docs/format/store.md).
const HOLDS: &str = "holds";

/// Makes a hold. One of this name that has all its time is as good: the rules were run over the same packets before.
/// `Some` describes the problem of a hold that is in force.
///
/// # Errors
/// A sentence with the reason.
pub(super) fn keep(request: &HoldRequest) -> Result<Option<String>, String> {
    let catalog = Catalog::open(&request.store).map_err(|error| error.to_string())?;
    let hold = Hold {
        name: request.name.clone(),
        window: Window {
            from: Timestamp::from_nanos(request.from_ns),
            to: Timestamp::from_nanos(request.to_ns),
        },
        filter: String::new(),
        made: Timestamp::from_nanos(clock::realtime_ns()),
        why: request.why.clone(),
    };
    match catalog.hold(&hold) {
        Ok(()) => Ok(None),
        Err(error @ Error::NotLogged { .. }) => Ok(Some(error.to_string())),
        Err(Error::Setting(_)) if is_kept(&catalog, &hold) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether there is a hold of this name that keeps all that this one would keep.
fn is_kept(catalog: &Catalog, hold: &Hold) -> bool {
    let holds = catalog.holds().unwrap_or_default();
    let there = holds.into_iter().find(|entry| entry.name == hold.name);
    there.is_some_and(|there| covers(&there, hold))
}

/// Whether a hold keeps all packets of the times of another; one that cannot be read keeps everything.
fn covers(there: &HoldEntry, hold: &Hold) -> bool {
    let (from, to) = (hold.window.from, hold.window.to);
    let has_all =
        |there: &Hold| there.filter.is_empty() && there.window.from <= from && to <= there.window.to;
    there.hold.as_ref().map_or(true, has_all)
}

/// Makes a file without a name where holds are made, so that a store that cannot be written shows before an event.
///
/// # Errors
/// The problem of the store, and the remedy.
pub(super) fn check(store: &Path) -> Result<(), String> {
    Catalog::open(store).map_err(|error| match error.is_denied() {
        true => format!("{error}; {}", rights(store)),
        false => error.to_string(),
    })?;
    let holds = store.join(HOLDS);
    if holds.is_symlink() {
        return Err(format!("{} is a link, which is not followed: make it a directory", holds.display()));
    }
    let folder = if holds.exists() { holds.as_path() } else { store };
    match unnamed::create(folder) {
        Ok(_) => Ok(()),
        Err(error) if unnamed::is_unsupported(&error) && folder.is_dir() => Ok(()),
        Err(SyscallError { source, .. }) => {
            let is_denied = source.kind() == ErrorKind::PermissionDenied;
            let mend = if is_denied { rights(store) } else { "name a store that can be written".to_owned() };
            Err(format!("cannot write to {}: {source}; {mend}", folder.display()))
        }
    }
}

/// The mend where the user, or a confined process, has no right to a store.
fn rights(store: &Path) -> String {
    let (user, store) = (privilege::user(), store.display());
    format!(
        "user {user} makes the holds: give the store to that user (chown -R {user} {store}); a store that the rules \
         did not name at the start wants a restart"
    )
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Interface, LinkType};
    use tapline_store::{Losses, Recorder, RecorderSettings};

    use super::*;

    /// A store without packets.
    fn store() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let settings =
            RecorderSettings { size: 16 << 20, segment_len: Some(4 << 20), ..RecorderSettings::default() };
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
        let at = Timestamp::from_nanos(0);
        let mut recorder = Recorder::open(folder.path(), settings, &interfaces, at).expect("a store");
        recorder.finish(&[], Losses::default(), at).expect("it ends");
        folder
    }

    fn request(store: &Path, from_ns: i64, to_ns: i64) -> HoldRequest {
        HoldRequest { store: store.to_owned(), name: "web-7".to_owned(), from_ns, to_ns, why: String::new() }
    }

    #[test]
    fn existing_holds_suffice_if_they_span_the_time() {
        let store = store();
        let keep = |from_ns, to_ns| keep(&request(store.path(), from_ns, to_ns));
        for (from_ns, to_ns) in [(10, 20), (10, 20), (11, 20)] {
            assert_eq!(keep(from_ns, to_ns), Ok(None), "{from_ns} to {to_ns}");
        }
        for (from_ns, to_ns) in [(9, 20), (10, 21)] {
            let why = keep(from_ns, to_ns).expect_err("it would not be held");
            assert!(why.contains("there is a hold of this name"), "{why}");
        }
        assert_eq!(Catalog::open(store.path()).expect("a store").holds().expect("holds").len(), 1);
    }

    #[test]
    fn a_store_that_cannot_be_written_is_refused() {
        let store = store();
        assert_eq!(check(store.path()), Ok(()));
        std::fs::write(store.path().join(HOLDS), "").expect("a file in place of the directory");
        let why = check(store.path()).expect_err("no directory");
        assert!(why.contains("/holds: ") && why.contains("name a store that can be written"), "{why}");
        let none = check(&store.path().join("none")).expect_err("no store");
        assert!(none.contains("tapline record"), "{none}");
    }
}
