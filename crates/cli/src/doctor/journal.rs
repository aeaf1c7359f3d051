//! What was changed, on disk before it is changed, so that it can be put back whatever happens to us.
//!
//! ```text
//! FOLDER/doctor-PID.journal := header line, then a line for each step       JSON, each synced to the disk before the step is made
//! process  creates it, locks it ------------------------> puts back, removes it
//!                         killed: the kernel takes the lock away, the file stays
//! others   try to lock it: refused, so it runs            got it: left behind; --undo puts back and removes it
//! ```
//!
//! A line that is cut short is of a step that was never made. The folder is `$TAPLINE_RUN_DIR`, or the first of /run/tapline and
//! `$XDG_RUNTIME_DIR/tapline` that can be written to: of this start of the system, as interfaces are. A journal is believed if it is ours, and
//! shown if it is root's; whoever could write one could have any interface changed.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tapline_health::Step;
use tapline_sys::{NetNs, RouteSocket, privilege};

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
    /// The namespace as it was named.
    pub(super) netns: Option<String>,
    /// The namespace's number.
    pub(super) netns_inode: u64,
}

/// A step, and the number of the interface that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) if_index: Option<u32>,
    pub(super) step: Step,
}

/// A journal being kept.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
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

impl Header {
    /// Of changes that are made now, in this namespace.
    pub(super) fn now(netns: Option<&str>) -> Result<Header> {
        let netns_inode = match netns {
            Some(name) => NetNs::open(name)?.inode()?,
            None => NetNs::inode_here().context("/proc does not tell our network namespace")?,
        };
        Ok(Header { version: 1, boot: boot(), netns: netns.map(str::to_owned), netns_inode })
    }

    /// Whether the system was not started anew since.
    pub(super) fn is_of_this_start(&self) -> bool {
        self.boot == boot()
    }
}

impl Line {
    /// A step with the number that its interface has now, in the calling thread's namespace.
    pub(super) fn now(step: Step) -> Line {
        let if_index = step.change.interface().and_then(index_of);
        Line { if_index, step }
    }

    /// Whether the interface is still the one that it was; one of the same name may have been made since.
    pub(super) fn has_its_interface(&self) -> bool {
        self.step.change.interface().is_none_or(|name| index_of(name) == self.if_index)
    }
}

fn index_of(name: &str) -> Option<u32> {
    let links = RouteSocket::open().ok()?.links().ok()?;
    links.iter().find(|link| link.name == name).map(|link| link.index)
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
                Ok((file, path)) => {
                    let mut journal = Journal { file, path };
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

    /// Notes a step that will be made.
    pub(super) fn add(&mut self, line: &Line) -> Result<()> {
        self.append(line)
    }

    fn append(&mut self, value: &impl Serialize) -> Result<()> {
        let mut write = || -> io::Result<()> {
            let line = format!("{}\n", serde_json::to_string(value)?);
            self.file.write_all(line.as_bytes())?;
            self.file.sync_data()
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// All is as it was: nothing is left to note.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn create_in(folder: &Path) -> io::Result<(File, PathBuf)> {
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
                    return Ok((file, path));
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
        if is_stale && !read(&file).is_some_and(|text| text.contains('\n')) {
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

fn read(file: &File) -> Option<String> {
    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Lines up to the first that is cut short or not ours.
fn parse(text: &str) -> Option<(Header, Vec<Line>)> {
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let header: Header = serde_json::from_str(lines.next()?).ok()?;
    let steps = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
    (header.version == 1).then_some((header, steps))
}

#[cfg(test)]
mod tests {
    use tapline_health::Change;

    use super::*;

    fn line(rx: u32) -> Line {
        let ring = |rx| Change::ReceiveRing { interface: "eth0".into(), rx };
        Line { if_index: Some(7), step: Step { change: ring(rx), before: ring(1) } }
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
