//! Commands to a disk, and the files that it may have kept when power failed.
//!
//! ```text
//! log    := record*                  written by disk.c, which is between a process and the disk
//! record := "DISK" u32 | kind u32 | file u64 | offset u64 | length u64 | bytes       kinds below
//!
//! kept at a moment   data:   all that a fsync of the file covered; of each page of 4 KiB written since, one of its states,
//!                            perhaps torn between sectors of 512 bytes
//!                    names:  all that a fsync of the directory covered, and of those since as many as the journal had, in order
//!                    length: as names; what was appended may be missing, or zeros
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tapline_testkit::random::Random;

const PAGE_LEN: usize = 4096;
const SECTOR_LEN: usize = 512;

/// The library between a process and the disk.
pub(crate) struct Shim {
    path: PathBuf,
}

impl Shim {
    /// Builds it; `None`, said on standard error, where that is not possible.
    pub(crate) fn build(folder: &Path, test: &str) -> Option<Shim> {
        let path = folder.join("disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/disk.c");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&path).arg(source).output();
        match built {
            Ok(output) if output.status.success() => Some(Shim { path }),
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => {
                eprintln!("skipped: {test}: no C compiler here (cc)");
                None
            }
        }
    }

    /// Makes a command log its operations below `root`.
    pub(crate) fn log(&self, command: &mut Command, root: &Path, log: &Path) {
        command.env("LD_PRELOAD", &self.path).env("TAPLINE_DISK_ROOT", root).env("TAPLINE_DISK_LOG", log);
    }

    /// Has `share` of 1,000 calls of a command below `root` fail once the file `when` is there.
    pub(crate) fn fail(&self, command: &mut Command, root: &Path, seed: u64, share: u64, when: &Path) {
        command.env("LD_PRELOAD", &self.path).env("TAPLINE_DISK_ROOT", root);
        command.env("TAPLINE_DISK_FAIL", format!("{seed}:{share}")).env("TAPLINE_DISK_WHEN", when);
    }
}

impl Shim {
    /// Has writes of a command below `root` wait as long as the file `when` is there.
    pub(crate) fn stall(&self, command: &mut Command, root: &Path, when: &Path) {
        command.env("LD_PRELOAD", &self.path).env("TAPLINE_DISK_ROOT", root).env("TAPLINE_DISK_STALL", when);
    }
}

/// A command to the disk.
#[derive(Clone, Debug)]
pub(crate) enum DiskCommand {
    Write { file: u64, offset: u64, data: Vec<u8> },
    Length { file: u64, len: u64 },
    Create { file: u64, path: PathBuf },
    Rename { file: u64, from: PathBuf, to: PathBuf },
    Remove { file: u64, path: PathBuf },
    Folder { path: PathBuf },
    Sync { file: u64 },
    SyncFolder,
}

/// Reads a log. Paths are those below `root`.
pub(crate) fn read_log(log: &Path, root: &Path) -> Vec<DiskCommand> {
    let bytes = fs::read(log).expect("it was written");
    let (mut rest, mut told) = (&bytes[..], Vec::new());
    let relative = |bytes: &[u8]| {
        let path = Path::new(std::str::from_utf8(bytes).expect("paths are plain"));
        path.strip_prefix(root).expect("it is below the root").to_owned()
    };
    while let Some((head, behind)) = rest.split_first_chunk::<32>() {
        let u64_at = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("32 bytes"));
        assert_eq!(head[..4], *b"DISK");
        let (kind, file, offset, len) = (head[4], u64_at(8), u64_at(16), u64_at(24) as usize);
        let (data, behind) = behind.split_at(len);
        rest = behind;
        told.push(match kind {
            1 => DiskCommand::Write { file, offset, data: data.to_vec() },
            2 => DiskCommand::Length { file, len: offset },
            3 => DiskCommand::Create { file, path: relative(data) },
            4 => {
                let zero = data.iter().position(|byte| *byte == 0).expect("two paths");
                DiskCommand::Rename { file, from: relative(&data[..zero]), to: relative(&data[zero + 1..]) }
            }
            5 => DiskCommand::Remove { file, path: relative(data) },
            6 => DiskCommand::Folder { path: relative(data) },
            7 => DiskCommand::Sync { file },
            8 => DiskCommand::SyncFolder,
            other => panic!("a record of kind {other}"),
        });
    }
    told
}

/// Treatment of operations that no sync covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Everything is kept up to the moment.
    Cut,
    /// So it is, but of the last write only a part.
    Torn,
    /// Each page may be in any state; names are kept as far as the journal went.
    Reordered,
}

/// A write that no fsync covers.
#[derive(Clone, Copy)]
struct Pending {
    /// Index of the write in the log.
    told: usize,
    /// Bytes of it.
    len: usize,
}

#[derive(Default)]
struct FileState {
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Lengths that were set and that no fsync covers yet.
    lengths: Vec<(usize, u64)>,
}

/// A disk that follows a log.
#[derive(Default)]
pub(crate) struct Disk {
    files: BTreeMap<u64, FileState>,
    /// Names that are surely kept.
    names: BTreeMap<PathBuf, Option<u64>>,
    /// Changes of names that are not.
    unsure: Vec<usize>,
}

impl Disk {
    /// Applies the command at `at`.
    pub(crate) fn follow(&mut self, log: &[DiskCommand], at: usize) {
        match &log[at] {
            DiskCommand::Write { file, data, .. } => {
                self.file(*file).pending.push(Pending { told: at, len: data.len() });
            }
            DiskCommand::Length { file, len } => self.file(*file).lengths.push((at, *len)),
            DiskCommand::Sync { file } => {
                let state = self.file(*file);
                let mut whole = std::mem::take(&mut state.durable);
                let mut changes: Vec<(usize, Option<usize>, u64)> =
                    state.pending.drain(..).map(|one| (one.told, Some(one.len), 0)).collect();
                changes.extend(state.lengths.drain(..).map(|(told, len)| (told, None, len)));
                changes.sort_unstable_by_key(|change| change.0);
                for (told, part, len) in changes {
                    match part {
                        Some(part) => write(&mut whole, &log[told], 0..part),
                        None => whole.resize(len as usize, 0),
                    }
                }
                state.durable = whole;
            }
            DiskCommand::Create { file, .. } => {
                // A new file may have the number of one that was removed.
                *self.file(*file) = FileState::default();
                self.unsure.push(at);
            }
            DiskCommand::SyncFolder => {
                let unsure = std::mem::take(&mut self.unsure);
                unsure.iter().for_each(|told| rename(&mut self.names, &log[*told]));
            }
            _ => self.unsure.push(at),
        }
    }

    fn file(&mut self, file: u64) -> &mut FileState {
        self.files.entry(file).or_default()
    }

    /// Writes to `folder` what the disk may have if power fails after the command at `at`.
    pub(crate) fn image(
        &self,
        log: &[DiskCommand],
        at: usize,
        manner: Manner,
        random: &mut Random,
        folder: &Path,
    ) {
        let mut names = self.names.clone();
        let kept = match manner {
            Manner::Reordered => random.below(self.unsure.len() as u64 + 1) as usize,
            _ => self.unsure.len(),
        };
        self.unsure[..kept].iter().for_each(|told| rename(&mut names, &log[*told]));
        let journal = self.unsure.get(kept).copied().unwrap_or(usize::MAX);
        for (path, file) in &names {
            let path = folder.join(path);
            match file {
                None => fs::create_dir_all(&path).expect("the folder is ours"),
                Some(file) => {
                    let content = self
                        .files
                        .get(file)
                        .map_or(Vec::new(), |state| content(state, log, at, manner, journal, random));
                    fs::create_dir_all(path.parent().expect("it is below")).expect("the folder is ours");
                    fs::write(&path, content).expect("there is room");
                }
            }
        }
    }
}

fn write(whole: &mut Vec<u8>, told: &DiskCommand, part: std::ops::Range<usize>) {
    let DiskCommand::Write { offset, data, .. } = told else { panic!("no write") };
    let at = *offset as usize;
    if whole.len() < at + part.end {
        whole.resize(at + part.end, 0);
    }
    whole[at + part.start..at + part.end].copy_from_slice(&data[part]);
}

fn rename(names: &mut BTreeMap<PathBuf, Option<u64>>, told: &DiskCommand) {
    match told {
        DiskCommand::Create { file, path } => drop(names.insert(path.clone(), Some(*file))),
        DiskCommand::Rename { file, from, to } => {
            names.remove(from);
            names.insert(to.clone(), Some(*file));
        }
        DiskCommand::Remove { path, .. } => drop(names.remove(path)),
        DiskCommand::Folder { path } => drop(names.insert(path.clone(), None)),
        other => panic!("{other:?} changes no name"),
    }
}

/// Contents that a file may have. `journal` is the first change of names that is not kept: lengths set after it may not
/// be kept either.
fn content(
    state: &FileState,
    log: &[DiskCommand],
    at: usize,
    manner: Manner,
    journal: usize,
    random: &mut Random,
) -> Vec<u8> {
    let mut whole = state.durable.clone();
    if manner != Manner::Reordered {
        let mut changes: Vec<(usize, Option<u64>)> =
            state.pending.iter().map(|one| (one.told, None)).collect();
        changes.extend(state.lengths.iter().map(|(told, len)| (*told, Some(*len))));
        changes.sort_unstable_by_key(|change| change.0);
        for (told, len) in changes {
            let Some(len) = len else {
                let DiskCommand::Write { data, .. } = &log[told] else { panic!("no write") };
                let is_torn = manner == Manner::Torn && told == at;
                let part = if is_torn { random.below(data.len() as u64 + 1) as usize } else { data.len() };
                write(&mut whole, &log[told], 0..part);
                continue;
            };
            whole.resize(len as usize, 0);
        }
        return whole;
    }
    // Lengths that were set are in the journal, in order with names.
    let mut len_min = whole.len();
    for (told, len) in &state.lengths {
        if *told < journal || random.one_of(1, 2) {
            whole.resize(*len as usize, 0);
            len_min = *len as usize;
        }
    }
    // Each page has the state after some number of the writes to it.
    let mut pages: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for one in &state.pending {
        let DiskCommand::Write { offset, .. } = &log[one.told] else { panic!("no write") };
        let (first, last) = (*offset as usize / PAGE_LEN, (*offset as usize + one.len - 1) / PAGE_LEN);
        (first..=last).for_each(|page| pages.entry(page).or_default().push(one.told));
    }
    // Some disks keep nearly all, some nearly nothing.
    let share = *random.pick(&[5, 50, 95]);
    for (page, writes) in pages {
        let kept = match random.one_of(share, 100) {
            true => writes.len(),
            false => random.below(writes.len() as u64 + 1) as usize,
        };
        for (number, told) in writes[..kept].iter().enumerate() {
            let is_torn = number + 1 == kept && random.one_of(1, 20);
            let DiskCommand::Write { offset, data, .. } = &log[*told] else { panic!("no write") };
            let start = (page * PAGE_LEN).max(*offset as usize);
            let end = ((page + 1) * PAGE_LEN).min(*offset as usize + data.len());
            let sectors = PAGE_LEN / SECTOR_LEN;
            let cut = if is_torn { random.below(sectors as u64) as usize * SECTOR_LEN } else { PAGE_LEN };
            let end = end.min(page * PAGE_LEN + cut);
            if start < end {
                let from = *offset as usize;
                write(&mut whole, &log[*told], start - from..end - from);
            }
        }
    }
    // What was appended may not count yet.
    if whole.len() > len_min && random.one_of(1, 4) {
        whole.truncate(len_min + random.below((whole.len() - len_min) as u64 + 1) as usize);
    }
    whole
}
