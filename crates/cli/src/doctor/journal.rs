//! What was changed, in a file before it is changed, so that it can be put back whatever happens to us.
//!
//! ```text
//! FOLDER/doctor-PID-N.journal := header (step | step with `taken`)*     a line of JSON each
//! step                written before the change is made: killed now, nobody knows what the driver made of it
//! step with `taken`   written after it: the setting as it was then, which may be another than was wished
//!
//! process  creates it, locks it ------------------------> puts back, removes it
//!                         killed: the kernel takes the lock away, the file stays
//! others   try to lock it: refused, so it runs            got it: left behind; --undo puts back and removes it
//! ```
//!
//! A line that is cut short is of a step that was never made. What is written is safe from kill -9, as the kernel has it; after a crash of the
//! machine all settings are new, so nothing waits for a disk. The folder is `$TAPLINE_RUN_DIR`, or the first of /run/tapline and
//! `$XDG_RUNTIME_DIR/tapline` that can be written to: of this start of the system, as interfaces are. A journal is believed if it is ours, and
//! shown if it is root's; whoever could write one could have any interface changed.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tapline_health::{Change, Step, Undone};
use tapline_sys::{Link, NetNs, RouteSocket, privilege};

const PREFIX: &str = "doctor-";
const SUFFIX: &str = ".journal";
/// Journals are a few lines; more is none of ours.
const LEN_MAX: u64 = 1 << 20;
/// A folder may hold the journals of many, but not of so many.
const JOURNALS_MAX: usize = 256;

/// Where the interfaces are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The form of this file.
    version: u32,
    /// The system's start, as the kernel names it; after another one all settings are new.
    boot: String,
    /// The namespace as it was named; a path from the root.
    pub(super) netns: Option<String>,
    /// The namespace's number.
    pub(super) netns_inode: u64,
}

/// A step, and the number of the interface that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) if_index: Option<u32>,
    pub(super) step: Step,
    /// The setting once the change was made; `None` until then.
    #[serde(default)]
    pub(super) taken: Option<Change>,
}

/// What became of the interface of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is there; or the line is about none.
    Same,
    /// It has another name.
    Called(String),
    /// It is gone. One of the same name may have been made since.
    Gone,
}

/// A journal being kept.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    len: u64,
}

/// A journal of another run.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) pid: u32,
    pub(super) is_running: bool,
    pub(super) header: Header,
    pub(super) lines: Vec<Line>,
    pub(super) path: PathBuf,
    /// Whether it is ours to put back.
    pub(super) is_ours: bool,
    /// Held while it is looked at, so that nobody else puts it back meanwhile.
    _lock: Option<File>,
}

impl Left {
    /// The same, no longer held: others may put it back.
    pub(super) fn released(self) -> Left {
        Left { _lock: None, ..self }
    }
}

impl Header {
    /// Of changes that are made now, in the namespace that was opened by this name; `None` for ours.
    pub(super) fn now(netns: Option<&str>, opened: Option<&NetNs>) -> Result<Header> {
        let netns_inode = match opened {
            Some(namespace) => namespace.inode()?,
            None => NetNs::inode_here().context("/proc does not tell our network namespace")?,
        };
        Ok(Header { version: 1, boot: boot(), netns: netns.map(from_root), netns_inode })
    }

    /// Whether the system was not started anew since.
    pub(super) fn is_of_this_start(&self) -> bool {
        self.boot == boot()
    }
}

impl Line {
    /// A change that is not made yet, with the number that its interface has now, in the calling thread's namespace.
    pub(super) fn now(change: &Change) -> Result<Line> {
        let if_index = match change.interface() {
            None => None,
            Some(name) => {
                let index = links()?.iter().find(|link| link.name == name).map(|link| link.index);
                Some(index.with_context(|| format!("{change}: no number by which {name} is known again"))?)
            }
        };
        Ok(Line { if_index, step: change.step()?, taken: None })
    }

    /// What became of its interface, in the calling thread's namespace.
    pub(super) fn owner(&self) -> Result<Owner> {
        let Some(name) = self.step.change.interface() else { return Ok(Owner::Same) };
        Ok(match links()?.into_iter().find(|link| Some(link.index) == self.if_index) {
            Some(link) if link.name == name => Owner::Same,
            Some(link) => Owner::Called(link.name),
            None => Owner::Gone,
        })
    }

    /// Puts back what was before, unless somebody has set something else since.
    pub(super) fn undo(&self) -> Result<Undone, tapline_health::Error> {
        match &self.taken {
            Some(taken) => Step { change: taken.clone(), before: self.step.before.clone() }.undo(),
            None => self.step.restore(),
        }
    }
}

fn links() -> Result<Vec<Link>> {
    let links = RouteSocket::open().and_then(|mut route| route.links());
    links.map_err(|error| anyhow!("cannot list the interfaces: {error}"))
}

/// A name, or a path that means the same in every directory.
fn from_root(name: &str) -> String {
    let path =
        name.contains('/').then(|| std::path::absolute(name).ok()?.into_os_string().into_string().ok());
    path.flatten().unwrap_or_else(|| name.to_owned())
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Journal {
    /// Makes a new one.
    pub(super) fn create(header: &Header) -> Result<Journal> {
        let mut reasons = Vec::new();
        for folder in folders() {
            match create_in(&folder) {
                Ok(mut journal) => {
                    journal.append(header)?;
                    return Ok(journal);
                }
                Err(error) => reasons.push(format!("{}: {error}", folder.display())),
            }
        }
        bail!(
            "no place to note what is changed, so nothing is: {}; use sudo, or set TAPLINE_RUN_DIR to a folder of yours",
            reasons.join("; ")
        )
    }

    /// Notes a step that will be made, or what came of it.
    pub(super) fn add(&mut self, line: &Line) -> Result<()> {
        self.append(line)
    }

    fn append(&mut self, value: &impl Serialize) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(value)?);
        self.len += line.len() as u64;
        if self.len > LEN_MAX {
            bail!("too many changes for {}, which must stay below {LEN_MAX} bytes", self.path.display());
        }
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// All is as it was: nothing is left to note.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

pub(super) fn create_in(folder: &Path) -> io::Result<Journal> {
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => check_folder(folder)?,
    }
    // A journal of our number is of a process that is gone, and waits to be put back.
    let name = |number| format!("{PREFIX}{}-{number}{SUFFIX}", std::process::id());
    for path in (0..JOURNALS_MAX).map(|number| folder.join(name(number))) {
        match OpenOptions::new().append(true).create_new(true).mode(0o644).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(file) => {
                file.lock()?;
                // Whoever swept it before we had the lock took its name: then it is none.
                if file.metadata()?.nlink() > 0 {
                    return Ok(Journal { file, path, len: 0 });
                }
            }
        }
    }
    Err(io::Error::other("too many journals; tapline doctor --undo puts back what they tell"))
}

/// A folder in which others may put files is none for journals.
fn check_folder(folder: &Path) -> io::Result<()> {
    let about = fs::metadata(folder)?;
    let user = privilege::user();
    let is_safe = about.is_dir() && (about.uid() == user || about.uid() == 0) && about.mode() & 0o022 == 0;
    if is_safe { Ok(()) } else { Err(io::Error::other("others may write there")) }
}

fn folders() -> Vec<PathBuf> {
    let named = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = named("TAPLINE_RUN_DIR") {
        return vec![folder];
    }
    let own = named("XDG_RUNTIME_DIR").map(|folder| folder.join("tapline"));
    [Some("/run/tapline".into()), own].into_iter().flatten().collect()
}

/// The journals of other runs, those that run first.
pub(super) fn left() -> Vec<Left> {
    let mut found: Vec<Left> = folders().iter().flat_map(|folder| left_in(folder)).collect();
    found.sort_by_key(|left| (!left.is_running, left.pid));
    found
}

/// Removes journals of ours whose process was killed before it had noted anything.
pub(super) fn sweep() {
    let folders = folders();
    let safe = folders.iter().filter(|folder| check_folder(folder).is_ok());
    let entries = safe.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    for path in entries.map(|entry| entry.path()) {
        let Some((_, file)) = lockable(&path).filter(|(_, file)| is_ours(file)) else { continue };
        let is_stale = file.try_lock().is_ok() && file.metadata().is_ok_and(|about| about.nlink() > 0);
        if is_stale && read(&file).is_some_and(|text| !text.contains('\n')) {
            // The next sweep tries again.
            let _ = fs::remove_file(&path);
        }
    }
}

fn left_in(folder: &Path) -> Vec<Left> {
    if check_folder(folder).is_err() {
        return Vec::new();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter_map(|path| open(&path)).take(JOURNALS_MAX).collect()
}

fn open(path: &Path) -> Option<Left> {
    let (pid, file) = lockable(path)?;
    let is_ours = is_ours(&file);
    let is_running = file.try_lock().is_err();
    let (header, lines) = parse(&read(&file)?)?;
    let lock = (!is_running).then_some(file);
    Some(Left { pid, is_running, header, lines, path: path.to_owned(), is_ours, _lock: lock })
}

/// A file that by its name and owner is a journal, and the process in its name.
fn lockable(path: &Path) -> Option<(u32, File)> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let pid = name.split_once('-')?.0.parse().ok()?;
    // The folder is nobody else's, so what a name stands for does not change between these calls.
    let about = fs::symlink_metadata(path).ok()?;
    let is_believed = about.is_file() && (about.uid() == privilege::user() || about.uid() == 0);
    is_believed.then(|| File::open(path).ok()).flatten().map(|file| (pid, file))
}

fn is_ours(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.uid() == privilege::user())
}

/// The whole text. One that is too long is none of ours: half of it put back would be as wrong as all of it.
fn read(file: &File) -> Option<String> {
    let mut text = String::new();
    file.take(LEN_MAX + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= LEN_MAX).then_some(text)
}

/// Lines up to the first that is cut short or not ours.
fn parse(text: &str) -> Option<(Header, Vec<Line>)> {
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let header: Header = serde_json::from_str(lines.next()?).ok()?;
    let steps = lines.map_while(|line| serde_json::from_str(line).ok()).fold(Vec::new(), noted);
    (header.version == 1).then_some((header, steps))
}

/// With one line more. What came of a step stands in the step's place.
fn noted(mut lines: Vec<Line>, line: Line) -> Vec<Line> {
    let same = lines.last_mut().filter(|last| {
        last.taken.is_none()
            && line.taken.is_some()
            && last.if_index == line.if_index
            && last.step == line.step
    });
    match same {
        Some(last) => *last = line,
        None => lines.push(line),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rx: u32) -> Line {
        let ring = |rx| Change::ReceiveRing { interface: "eth0".into(), rx };
        Line { if_index: Some(7), step: Step { change: ring(rx), before: ring(1) }, taken: None }
    }

    #[test]
    fn what_came_of_a_step_takes_its_place() {
        let taken = |rx: u32, taken: u32| Line { taken: Some(line(taken).step.change), ..line(rx) };
        let of = |lines: &[Line]| {
            let header = Header { version: 1, boot: "x".into(), netns: None, netns_inode: 5 };
            let lines = lines.iter().map(|line| serde_json::to_string(line).unwrap());
            let text: Vec<String> =
                [serde_json::to_string(&header).unwrap()].into_iter().chain(lines).collect();
            parse(&(text.join("\n") + "\n")).unwrap().1
        };
        assert_eq!(of(&[line(4000), taken(4000, 3968)]), [taken(4000, 3968)]);
        let cut = [line(2), taken(2, 2), line(3)];
        assert_eq!(of(&cut), [taken(2, 2), line(3)], "killed while the second was made");
        assert_eq!(of(&[line(2), taken(3, 3)]), [line(2), taken(3, 3)], "of another step");
    }

    #[test]
    fn a_journal_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let of_len = |len: u64| {
            let path = folder.path().join(len.to_string());
            fs::write(&path, vec![b' '; len as usize]).unwrap();
            read(&File::open(path).unwrap()).map(|text| text.len() as u64)
        };
        assert_eq!((of_len(LEN_MAX), of_len(LEN_MAX + 1)), (Some(LEN_MAX), None));
        let mut journal = Journal { len: LEN_MAX, ..create_in(folder.path()).unwrap() };
        assert!(journal.add(&line(2)).is_err());
        assert_eq!(fs::metadata(journal.path()).unwrap().len(), 0, "nothing of it is written");
    }

    #[test]
    fn a_path_means_the_same_everywhere() {
        assert_eq!((from_root("blue"), from_root("/x/y")), ("blue".to_owned(), "/x/y".to_owned()));
        assert!(from_root("x/y").starts_with('/') && from_root("x/y").ends_with("/x/y"));
    }

    #[test]
    fn a_journal_cut_at_any_byte_holds_the_steps_before() {
        let header = Header { version: 1, boot: "x".into(), netns: None, netns_inode: 5 };
        let mut text = format!("{}\n", serde_json::to_string(&header).unwrap());
        let starts: Vec<usize> = (2..5)
            .map(|rx| {
                text += &format!("{}\n", serde_json::to_string(&line(rx)).unwrap());
                text.len()
            })
            .collect();
        for len in 0..=text.len() {
            let whole = starts.iter().filter(|end| **end <= len).count();
            match parse(&text[..len]) {
                Some((read, steps)) => {
                    assert_eq!(read, header);
                    assert_eq!(steps, (2..5).map(line).take(whole).collect::<Vec<_>>());
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
