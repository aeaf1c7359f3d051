//! The journal of changes: each is written to a file before it is made, so that a run that is killed leaves the way
//! back.
//!
//! ```text
//! DIRECTORY/doctor-PID-N.journal := header (step | step with `taken`)*     one JSON object a line
//! step                written before the change is made; killed now, the setting may be either of the two, or the driver's own
//! step with `taken`   written after it, with the setting as it was read back: drivers round
//!
//! owner    creates it, locks it ------------------------> puts back, removes it
//!                         killed: the kernel releases the lock, the file stays
//! others   try the lock: refused: its owner runs          taken: left behind; tapline doctor --undo puts back and removes it
//! ```
//!
//! A line that was cut short belongs to a step that was never made. Lines survive kill -9, as the kernel holds them; a
//! crash of the machine resets all settings, so no line waits for a disk. The directory is `$TAPLINE_RUN_DIR`, or the
//! first writable one of /run/tapline and `$XDG_RUNTIME_DIR/tapline`. A journal of this user is restored, one of root
//! is shown, any other is ignored: its writer could have any interface changed.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tapline_sys::{Link, NetNs, RouteSocket, privilege};

use crate::{Change, Error, Step, UndoResult};

const PREFIX: &str = "doctor-";
const SUFFIX: &str = ".journal";
/// Longest journal, in bytes; one that is longer is foreign.
const LEN_MAX: u64 = 1 << 20;
/// Most journals that are read from a directory.
const JOURNALS_MAX: usize = 256;

/// The first line of a journal: where and when its changes were made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format: 1.
    version: u32,
    /// The kernel's identifier of this start of the system (`/proc/sys/kernel/random/boot_id`): a restart resets all
    /// settings.
    boot: String,
    /// Name of the network namespace, or its absolute path; `None` for the namespace of the process.
    pub netns: Option<String>,
    /// Inode of the network namespace; another one may have it later.
    pub(crate) netns_inode: u64,
    /// The namespace's number that no other one gets; `None` before Linux 5.14.
    #[serde(default)]
    pub(crate) netns_cookie: Option<u64>,
}

/// A step and the index of its interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Index of the interface in its namespace; `None` for a setting of the machine.
    pub(crate) if_index: Option<u32>,
    /// The change and the setting before it.
    pub step: Step,
    /// The setting read back after the change; `None` until then.
    #[serde(default)]
    pub(crate) taken: Option<Change>,
}

/// The interface of an entry, as found now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Present under its name; also a setting of the machine.
    Same,
    /// Present under another name.
    Renamed(String),
    /// Gone. Another interface may bear its name now.
    Gone,
}

/// A journal that this process writes.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    len: u64,
}

/// A journal found in a directory: of a process that runs, or left by one that was killed.
#[derive(Debug)]
pub struct FoundJournal {
    /// Process that wrote the journal.
    pub pid: u32,
    /// Whether that process still runs.
    pub is_running: bool,
    /// Place and time of its changes.
    pub header: Header,
    /// The changes, in the order in which they were made.
    pub entries: Vec<Entry>,
    /// The file.
    pub path: PathBuf,
    /// Whether this user may restore it.
    pub is_ours: bool,
    /// Held while this value lives, so that no other process restores the same journal.
    _lock: Option<File>,
}

impl FoundJournal {
    /// Without the lock: another process may restore the journal.
    pub fn released(self) -> FoundJournal {
        FoundJournal { _lock: None, ..self }
    }
}

impl Header {
    /// For changes made now, in the namespace `opened` under the name `netns`; `None` is the namespace of the process.
    pub(crate) fn now(netns: Option<&str>, opened: Option<&NetNs>) -> Result<Header, Error> {
        let inode = opened.map_or_else(NetNs::inode_here, NetNs::inode);
        let path = || "/proc/thread-self/ns/net".to_owned();
        let netns_inode = inode.map_err(|source| Error::File { path: path(), source })?;
        let netns_cookie = match opened {
            Some(opened) => opened.run(NetNs::cookie_here).ok().flatten(),
            None => NetNs::cookie_here(),
        };
        Ok(Header { version: 1, boot: boot(), netns: netns.map(from_root), netns_inode, netns_cookie })
    }

    /// Whether the changes were made in the namespace with this cookie, as far as both are known.
    pub(crate) fn has_cookie(&self, cookie: Option<u64>) -> bool {
        cookie.zip(self.netns_cookie).is_none_or(|(cookie, ours)| cookie == ours)
    }

    /// Whether the system still runs since the changes were made.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot()
    }
}

impl Entry {
    /// For a change that is not made yet, with the index of its interface in the namespace of the calling thread.
    pub(crate) fn now(change: &Change) -> Result<Entry, Error> {
        let if_index = match change.interface() {
            None => None,
            Some(name) => {
                let index = links()?.iter().find(|link| link.name == name).map(|link| link.index);
                Some(
                    index
                        .ok_or_else(|| Error::NoIndex { what: change.to_string(), name: name.to_owned() })?,
                )
            }
        };
        Ok(Entry { if_index, step: change.step()?, taken: None })
    }

    /// The entry's interface, in the namespace of the calling thread.
    pub(crate) fn owner(&self) -> Result<Owner, Error> {
        let Some(name) = self.step.change.interface() else { return Ok(Owner::Same) };
        Ok(match links()?.into_iter().find(|link| Some(link.index) == self.if_index) {
            Some(link) if link.name == name => Owner::Same,
            Some(link) => Owner::Renamed(link.name),
            None => Owner::Gone,
        })
    }

    /// Puts the setting before the change back, unless another program has changed it since.
    pub(crate) fn undo(&self) -> Result<UndoResult, Error> {
        match &self.taken {
            Some(taken) => Step { change: taken.clone(), before: self.step.before.clone() }.undo(),
            None => self.step.restore(),
        }
    }
}

fn links() -> Result<Vec<Link>, Error> {
    RouteSocket::open().and_then(|mut route| route.links()).map_err(Error::Interfaces)
}

/// A name, or a path made absolute.
fn from_root(name: &str) -> String {
    let path =
        name.contains('/').then(|| std::path::absolute(name).ok()?.into_os_string().into_string().ok());
    path.flatten().unwrap_or_else(|| name.to_owned())
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Journal {
    /// A new journal with its header.
    pub(crate) fn create(header: &Header) -> Result<Journal, Error> {
        let mut reasons = Vec::new();
        for directory in directories() {
            match create_in(&directory) {
                Ok(mut journal) => {
                    journal.append(header)?;
                    return Ok(journal);
                }
                Err(error) => reasons.push(format!("{}: {error}", directory.display())),
            }
        }
        Err(Error::NoJournal { reasons: reasons.join("; ") })
    }

    /// Writes a step before it is made, or again with the setting read back.
    pub(crate) fn add(&mut self, entry: &Entry) -> Result<(), Error> {
        self.append(entry)
    }

    fn append(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let line = serde_json::to_string(value).map_err(|error| self.error("write", error.into()))? + "\n";
        self.len += line.len() as u64;
        if self.len > LEN_MAX {
            let reason = format!("it would be longer than {LEN_MAX} bytes");
            return Err(self.error("write", io::Error::other(reason)));
        }
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|source| self.error("write", source))
    }

    /// Removes the file, once every setting is as before.
    pub(crate) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(|source| self.error("remove", source))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, action: &'static str, source: io::Error) -> Error {
        Error::Journal { action, path: self.path.display().to_string(), source }
    }
}

pub(crate) fn create_in(directory: &Path) -> io::Result<Journal> {
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => check_directory(directory)?,
    }
    // A journal with our process number is of a process that is gone, and waits to be restored.
    let name = |number| format!("{PREFIX}{}-{number}{SUFFIX}", std::process::id());
    for path in (0..JOURNALS_MAX).map(|number| directory.join(name(number))) {
        match OpenOptions::new().append(true).create_new(true).mode(0o644).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                file.lock()?;
                // A sweep before we had the lock may have removed the name: then the next one is taken.
                if file.metadata()?.nlink() > 0 {
                    return Ok(Journal { file, path, len: 0 });
                }
            }
        }
    }
    Err(io::Error::other("too many journals; tapline doctor --undo restores them"))
}

/// Refuses a directory in which other users may create files.
fn check_directory(directory: &Path) -> io::Result<()> {
    let about = fs::metadata(directory)?;
    let user = privilege::user();
    let is_safe = about.is_dir() && (about.uid() == user || about.uid() == 0) && about.mode() & 0o022 == 0;
    if is_safe { Ok(()) } else { Err(io::Error::other("other users may write there")) }
}

/// Folders of journals.
pub fn directories() -> Vec<PathBuf> {
    let named = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = named("TAPLINE_RUN_DIR") {
        return vec![directory];
    }
    let own = named("XDG_RUNTIME_DIR").map(|directory| directory.join("tapline"));
    [Some("/run/tapline".into()), own].into_iter().flatten().collect()
}

/// The journals of other processes, those of running ones first.
pub fn found() -> Vec<FoundJournal> {
    let mut found: Vec<FoundJournal> =
        directories().iter().flat_map(|directory| found_in(directory)).collect();
    found.sort_by_key(|found| (!found.is_running, found.pid));
    found
}

/// Removes journals of this user whose process was killed before its first change.
pub(crate) fn sweep() {
    let directories = directories();
    let safe = directories.iter().filter(|directory| check_directory(directory).is_ok());
    let entries = safe.flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    for path in entries.map(|entry| entry.path()) {
        let Some((_, file)) = lockable(&path).filter(|(_, file)| is_ours(file)) else { continue };
        let is_stale = file.try_lock().is_ok() && file.metadata().is_ok_and(|about| about.nlink() > 0);
        if is_stale && read(&file).is_some_and(|text| !text.contains('\n')) {
            // The next sweep tries again.
            let _ = fs::remove_file(&path);
        }
    }
}

fn found_in(directory: &Path) -> Vec<FoundJournal> {
    if check_directory(directory).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter_map(|path| open(&path)).take(JOURNALS_MAX).collect()
}

fn open(path: &Path) -> Option<FoundJournal> {
    let (pid, file) = lockable(path)?;
    let is_ours = is_ours(&file);
    let is_running = file.try_lock().is_err();
    let (header, entries) = parse(&read(&file)?)?;
    let lock = (!is_running).then_some(file);
    Some(FoundJournal { pid, is_running, header, entries, path: path.to_owned(), is_ours, _lock: lock })
}

/// A file that is a journal by its name and owner, and the process number in its name.
fn lockable(path: &Path) -> Option<(u32, File)> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let pid = name.split_once('-')?.0.parse().ok()?;
    // Only this user and root may change the directory, so the name means the same file in these calls.
    let about = fs::symlink_metadata(path).ok()?;
    let is_trusted = about.is_file() && (about.uid() == privilege::user() || about.uid() == 0);
    is_trusted.then(|| File::open(path).ok()).flatten().map(|file| (pid, file))
}

fn is_ours(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.uid() == privilege::user())
}

/// The whole text; `None` if it is too long, for half of a foreign file must not be restored either.
fn read(file: &File) -> Option<String> {
    let mut text = String::new();
    file.take(LEN_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= LEN_MAX).then_some(text)
}

/// The header and the entries up to the first line that is cut short or foreign.
fn parse(text: &str) -> Option<(Header, Vec<Entry>)> {
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let header: Header = serde_json::from_str(lines.next()?).ok()?;
    let entries = lines.map_while(|line| serde_json::from_str(line).ok()).fold(Vec::new(), with_entry);
    (header.version == 1).then_some((header, entries))
}

/// The entries with one more. An entry with the setting read back replaces the one before it of the same step.
fn with_entry(mut entries: Vec<Entry>, entry: Entry) -> Vec<Entry> {
    let same = entries.last_mut().filter(|last| {
        last.taken.is_none()
            && entry.taken.is_some()
            && last.if_index == entry.if_index
            && last.step == entry.step
    });
    match same {
        Some(last) => *last = entry,
        None => entries.push(entry),
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(rx: u32) -> Entry {
        let ring = |rx| Change::ReceiveRing { interface: "eth0".into(), rx };
        Entry { if_index: Some(7), step: Step { change: ring(rx), before: ring(1) }, taken: None }
    }

    #[test]
    fn a_setting_read_back_replaces_its_step() {
        let taken = |rx: u32, taken: u32| Entry { taken: Some(entry(taken).step.change), ..entry(rx) };
        let of = |lines: &[Entry]| {
            let header =
                Header { version: 1, boot: "x".into(), netns: None, netns_inode: 5, netns_cookie: None };
            let lines = lines.iter().map(|line| serde_json::to_string(line).unwrap());
            let text: Vec<String> =
                [serde_json::to_string(&header).unwrap()].into_iter().chain(lines).collect();
            parse(&(text.join("\n") + "\n")).unwrap().1
        };
        assert_eq!(of(&[entry(4000), taken(4000, 3968)]), [taken(4000, 3968)]);
        let cut = [entry(2), taken(2, 2), entry(3)];
        assert_eq!(of(&cut), [taken(2, 2), entry(3)], "killed while the second was made");
        assert_eq!(of(&[entry(2), taken(3, 3)]), [entry(2), taken(3, 3)], "of another step");
    }

    #[test]
    fn a_journal_that_is_too_long_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let of_len = |len: u64| {
            let path = directory.path().join(len.to_string());
            fs::write(&path, vec![b' '; len as usize]).unwrap();
            read(&File::open(path).unwrap()).map(|text| text.len() as u64)
        };
        assert_eq!((of_len(LEN_MAX), of_len(LEN_MAX + 1)), (Some(LEN_MAX), None));
        let mut journal = Journal { len: LEN_MAX, ..create_in(directory.path()).unwrap() };
        assert!(journal.add(&entry(2)).is_err());
        assert_eq!(fs::metadata(journal.path()).unwrap().len(), 0, "no byte of it is written");
    }

    #[test]
    fn paths_become_absolute() {
        assert_eq!((from_root("blue"), from_root("/x/y")), ("blue".to_owned(), "/x/y".to_owned()));
        assert!(from_root("x/y").starts_with('/') && from_root("x/y").ends_with("/x/y"));
    }

    #[test]
    fn journals_cut_at_any_byte_keep_earlier_steps() {
        let header = Header { version: 1, boot: "x".into(), netns: None, netns_inode: 5, netns_cookie: None };
        let mut text = format!("{}\n", serde_json::to_string(&header).unwrap());
        let starts: Vec<usize> = (2..5)
            .map(|rx| {
                text += &format!("{}\n", serde_json::to_string(&entry(rx)).unwrap());
                text.len()
            })
            .collect();
        for len in 0..=text.len() {
            let whole = starts.iter().filter(|end| **end <= len).count();
            match parse(&text[..len]) {
                Some((read, steps)) => {
                    assert_eq!(read, header);
                    assert_eq!(steps, (2..5).map(entry).take(whole).collect::<Vec<_>>());
                }
                None => assert_eq!(whole, 0),
            }
        }
    }

    #[test]
    fn other_text_is_no_journal() {
        for text in [
            "",
            "\n",
            "{}\n",
            "null\nnull\n",
            "{\"version\":2,\"boot\":\"\",\"netns\":null,\"netns_inode\":1}\n",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
