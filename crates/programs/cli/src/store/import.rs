//! `tapline store import`: capture files into a store, with an index.
//!
//! ```text
//! files --read once: packets, bytes, interfaces--> room is reserved for all --read again--> recorder --> segments, indexes
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use tapline_file::FileSource;
use tapline_graph::grouped;
use tapline_packet::{Batch, Interface, InterfaceId, Record, Selection, Timestamp};
use tapline_store::moments::Clock;
use tapline_store::{Catalog, Losses, Recorder, RecorderSettings, SLOT_LEN};
use tapline_syntax::units::size_in;
use tapline_sys::sandbox::{AllowedAccess, nearest_folder};

use super::progress::{ProgressLine, print};
use super::record::{IndexKeys, index_options};
use crate::args::SNAP_LEN;
use crate::escape::plain;
use crate::privileges;

pub(super) const IMPORT_EXAMPLES: &str = "\
Examples:
  tapline store import /srv/store trace.pcap old/*.pcapng.zst
  tapline store import /srv/store /srv/pcaps         all capture files below a folder, by name
  tapline find /srv/store 'host 192.0.2.7'           then, as in any store

Packets are copied: only segments of the store's own layout have an index. Room for all of them is \
reserved before the first packet is copied, and nothing that the store has makes room for them. The files may go afterwards.

Exit status: 0 all packets of all capture files are in the store; 1 an error, or a file was read in part: the account names it.";

/// Folders within each other that are looked into.
const DEPTH_MAX: usize = 16;
/// Bytes of descriptions that are left to interfaces without a name where not all others have room.
const JOINED_LEN_MAX: usize = 64 << 10;
/// An interface that no store has: its packets count as lost.
const NO_INTERFACE: InterfaceId = InterfaceId(u32::MAX);
/// Bytes of a packet block in addition to packet and options: header, trailer, flags.
const BLOCK_LEN: u64 = 48;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The store: a directory, which is created if it does not exist.
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// Capture files (pcap, pcapng, ERF; gzip, zstd, lz4), or folders of them.
    #[arg(value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,
    /// Segment size of a new store, 4MiB to 4GiB; by default an eighth of the imported packets, up to 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = size_in::<u64>(..))]
    segment: Option<u64>,
    /// Optional keys of the index, with commas: names (of DNS, and of the hellos of TLS, DTLS and QUIC), mac (addresses
    /// of Ethernet).
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    index: Vec<IndexKeys>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// A file as the first reading found it.
struct ImportFile {
    path: PathBuf,
    packets: u64,
    /// Bytes that its packets take in a store at most.
    room: u64,
    /// Bytes of its longest packet with options.
    longest: u64,
    /// The number of each of its interfaces among those of all files.
    interfaces: Vec<InterfaceId>,
    /// Packets whose times a pcapng file cannot have.
    out_of_time: u64,
    /// Where it could not be read any further.
    fault: Option<String>,
}

/// Leaves this process the files, and the store that it writes.
fn confine(args: &ImportArgs, paths: &[PathBuf]) {
    let store = std::path::absolute(&args.store).unwrap_or_else(|_| args.store.clone());
    let needs = AllowedAccess {
        // The identifier of a new store is random.
        reads: paths.iter().chain(&args.files).cloned().chain(["/dev/urandom".into()]).collect(),
        makes: vec![nearest_folder(&store)],
        ..AllowedAccess::default()
    };
    privileges::confine_quietly(&needs);
}

/// Counters of the files and their packets.
#[derive(Debug, Default)]
struct ImportAccount {
    files: u64,
    whole: u64,
    /// Read up to a fault.
    in_part: Vec<String>,
    /// No capture files.
    passed_over: Vec<String>,
    packets: u64,
    written: u64,
    lost: u64,
    segments: u64,
    recycled: u64,
    bytes: u64,
    index_bytes: u64,
    /// Interfaces whose packets are those of an interface without a name, for lack of room.
    joined: u64,
    /// Packets whose times are outside of 1970 to 2262: they have the nearest one.
    out_of_time: u64,
}

impl ImportAccount {
    fn is_balanced(&self) -> bool {
        let files = self.whole + self.in_part.len() as u64 + self.passed_over.len() as u64;
        self.files == files && self.packets == self.written + self.lost
    }
}

pub(super) fn import(args: &ImportArgs) -> Result<ExitCode> {
    let paths = files(&args.files)?;
    confine(args, &paths);
    let mut account = ImportAccount { files: paths.len() as u64, ..ImportAccount::default() };
    let mut described = Descriptions::default();
    let mut found = Vec::new();
    let line = ProgressLine::new("files looked at");
    for (done, path) in paths.iter().enumerate() {
        line.tell(done as u64, paths.len() as u64);
        match look(path, &mut described) {
            Ok(file) => found.push(file),
            Err(error) => account.passed_over.push(format!("{}: {error}", path.display())),
        }
    }
    drop(line);
    if found.is_empty() {
        tell(args, &account)?;
        bail!("none of {} files is a capture file", account.files);
    }
    let (interfaces, numbers) = described.with_room();
    for id in found.iter_mut().flat_map(|file| &mut file.interfaces) {
        *id = numbers[id.0 as usize];
    }
    let is_there = |(id, one): &(&InterfaceId, &Interface)| interfaces.get(id.0 as usize) == Some(*one);
    account.joined = numbers.iter().zip(&described.all).filter(|pair| !is_there(pair)).count() as u64;
    account.out_of_time = found.iter().map(|file| file.out_of_time).sum();
    let mut recorder = open(args, &found, &interfaces)?;
    let line = ProgressLine::new("packets");
    let all = found.iter().map(|file| file.packets).sum();
    for file in &found {
        let copied =
            copy(file, &mut recorder, &interfaces, &mut |done| line.tell(done, all), account.packets)?;
        account.packets += copied;
        let fault = file
            .fault
            .clone()
            .or_else(|| (copied != file.packets).then(|| "it changed while it was imported".to_owned()));
        match fault {
            None => account.whole += 1,
            Some(fault) => account.in_part.push(format!("{}: {fault}", file.path.display())),
        }
    }
    recorder.finish(&[], Losses::default(), Clock::local().now)?;
    drop(line);
    recorder.news().iter().for_each(|news| eprintln!("tapline: {}", plain(news)));
    let totals = recorder.totals();
    (account.written, account.lost) = (totals.written, totals.lost);
    (account.segments, account.recycled) = (totals.segments, totals.recycled);
    (account.bytes, account.index_bytes) = (totals.bytes, totals.index_bytes);
    let names = found.iter().map(|file| (file.path.display().to_string(), file.packets));
    Catalog::open(&args.store)?.note_import(names)?;
    tell(args, &account)?;
    let is_whole = account.in_part.is_empty() && account.lost + account.recycled == 0;
    Ok(if is_whole && account.is_balanced() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The files that are meant, those of folders by name.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        match (metadata.is_dir(), metadata.is_file()) {
            (true, _) => gather(path, DEPTH_MAX, &mut files)?,
            (_, true) => files.push(path.clone()),
            // Opening a pipe waits for a writer, and none writes its packets twice.
            _ => bail!("{} is neither a file nor a folder: packets are read twice", path.display()),
        }
    }
    if files.is_empty() {
        bail!(
            "there are no files in {}",
            named.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(files)
}

/// Regular files below a folder; links are not followed.
fn gather(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            gather(&entry.path(), depth - 1, files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Reads a file to learn its size in a store. Its interfaces join those of the files before that have the same
/// description.
fn look(path: &Path, described: &mut Descriptions) -> Result<ImportFile, tapline_file::Error> {
    let mut source = FileSource::open(path)?;
    let mut found = ImportFile {
        path: path.to_owned(),
        packets: 0,
        room: 0,
        longest: 0,
        interfaces: Vec::new(),
        out_of_time: 0,
        fault: None,
    };
    loop {
        match source.advance() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                found.fault = Some(error.to_string());
                break;
            }
        }
        for record in source.batch().records() {
            found.packets += 1;
            found.room += room(record);
            found.longest = found.longest.max(u64::from(record.cap_len) + u64::from(record.options_len));
            let times = Timestamp::EPOCH..Timestamp::from_nanos(i64::MAX);
            found.out_of_time += u64::from(!times.contains(&record.meta.timestamp));
        }
    }
    found.interfaces = source.interfaces().iter().map(|interface| described.number(interface)).collect();
    Ok(found)
}

/// Bytes of a packet at most: a long one may leave as much of a slot unused.
fn room(record: &Record) -> u64 {
    let len = u64::from(record.cap_len) + u64::from(record.options_len) + BLOCK_LEN;
    match len {
        0..0x4000 => len,
        0x4000..0x8_0000 => 2 * len,
        _ => (len + len / 8).next_multiple_of(SLOT_LEN as u64) + SLOT_LEN as u64,
    }
}

/// The interfaces of all files; those that are described alike are one.
#[derive(Default)]
struct Descriptions {
    all: Vec<Interface>,
    numbers: HashMap<Interface, InterfaceId>,
}

impl Descriptions {
    fn number(&mut self, interface: &Interface) -> InterfaceId {
        if let Some(number) = self.numbers.get(interface) {
            return *number;
        }
        let number = InterfaceId(self.all.len() as u32);
        self.all.push(interface.clone());
        self.numbers.insert(interface.clone(), number);
        number
    }

    /// The interfaces of the store, and the number there of each of these. A chunk has room for some thousands: those
    /// beyond are an interface without a name for each link type.
    fn with_room(&self) -> (Vec<Interface>, Vec<InterfaceId>) {
        let len = |interface: &Interface| Recorder::description_len(interface, SNAP_LEN);
        let (mut kept, mut left) = (Descriptions::default(), Recorder::DESCRIPTIONS_LEN_MAX);
        let all: usize = self.all.iter().map(len).sum();
        // Room for interfaces without a name, if any is needed.
        let spare = if all > left { JOINED_LEN_MAX } else { 0 };
        let mut number = |interface: &Interface| {
            let nameless =
                Interface { fcs_len: interface.fcs_len, ..Interface::new("", interface.link_type) };
            for (one, spare) in [(interface, spare), (&nameless, 0)] {
                let needed = if kept.numbers.contains_key(one) { 0 } else { len(one) };
                if needed + spare <= left || needed == 0 {
                    left -= needed;
                    return kept.number(one);
                }
            }
            NO_INTERFACE
        };
        let numbers = self.all.iter().map(&mut number).collect();
        (kept.all, numbers)
    }
}

/// Bytes of the segments of a store for packets that take `room`: a segment has room for the longest packet, a slot at
/// the start, and the descriptions of interfaces.
fn segment_len(room: u64, longest: u64) -> u64 {
    let least = (longest + 3 * SLOT_LEN as u64).next_power_of_two();
    (room / 8).next_power_of_two().clamp(4 << 20, 1 << 30).max(least)
}

/// Opens the store with room for all packets, in addition to those that it has.
fn open(args: &ImportArgs, found: &[ImportFile], interfaces: &[Interface]) -> Result<Recorder> {
    let room: u64 = found.iter().map(|file| file.room).sum();
    let longest = found.iter().map(|file| file.longest).max().unwrap_or(0);
    let (segment_len, there) = match Catalog::open(&args.store) {
        Ok(catalog) => (catalog.segment_len(), catalog.numbers()?.len() as u64),
        Err(tapline_store::Error::NoStore { .. }) => {
            (args.segment.unwrap_or_else(|| segment_len(room, longest)), 0)
        }
        Err(error) => return Err(error.into()),
    };
    // Less than a tenth of each slot and one slot of each segment are left to fillers.
    let slots = (room + room / 8).div_ceil(SLOT_LEN as u64) + 2;
    let segments = slots.div_ceil((segment_len / SLOT_LEN as u64).saturating_sub(1).max(1)) + 1;
    let settings = RecorderSettings {
        size: (there + segments.max(2)) * segment_len,
        segment_len: args.segment.or((there == 0).then_some(segment_len)),
        flush_ns: 3_600_000_000_000,
        index: Some(index_options(&args.index)),
        snap_len: SNAP_LEN,
        keeps_room: false,
        is_live: false,
        ..RecorderSettings::default()
    };
    Ok(Recorder::open(&args.store, settings, interfaces, Clock::local().now)?)
}

/// Copies the packets of a file; gives how many it had.
fn copy(
    file: &ImportFile,
    recorder: &mut Recorder,
    interfaces: &[Interface],
    tell: &mut dyn FnMut(u64),
    before: u64,
) -> Result<u64> {
    let mut source = FileSource::open(&file.path)?;
    let (mut copied, mut records) = (0, Vec::new());
    // What ends a file early was found before, and is told in the account.
    while source.advance().unwrap_or(false) {
        let batch = source.batch();
        records.clear();
        for record in batch.records() {
            let mut record = *record;
            let id = file.interfaces.get(record.meta.interface.0 as usize).copied();
            // An interface that the first reading did not find: the packet is counted as lost.
            record.meta.interface = id.unwrap_or(NO_INTERFACE);
            records.push(record);
        }
        let mut all = Selection::none();
        all.select_all(records.len());
        let now = Clock::local().now;
        recorder.write(&Batch::new(batch.base(), &records), &all, interfaces, now)?;
        recorder.tick(Losses::default(), &[], interfaces, now)?;
        copied += records.len() as u64;
        tell(before + copied);
    }
    Ok(copied)
}

fn tell(args: &ImportArgs, account: &ImportAccount) -> Result<()> {
    let text = if args.json { account_json(account) } else { account_text(account) };
    print(&text, args.json)?;
    Ok(())
}

fn account_text(account: &ImportAccount) -> String {
    let mut text = String::new();
    for line in account.in_part.iter().chain(&account.passed_over) {
        text += &format!("{}\n", line.trim_end());
    }
    let mut row = |name: &str, count: u64| text += &format!("  {name:<34}{:>16}\n", grouped(count));
    row("files", account.files);
    row("imported whole", account.whole);
    row("imported up to a fault", account.in_part.len() as u64);
    row("passed over: no capture files", account.passed_over.len() as u64);
    row("packets", account.packets);
    row("written", account.written);
    row("lost", account.lost);
    if account.recycled > 0 {
        row("older segments that made room", account.recycled);
    }
    if account.joined > 0 {
        row("interfaces whose names found no room", account.joined);
    }
    if account.out_of_time > 0 {
        row("packets outside of 1970 to 2262", account.out_of_time);
    }
    let balance = if account.is_balanced() { "every packet is accounted for" } else { "NOT BALANCED" };
    text + format!(
        "  {} segments, {} bytes of chunks, {} bytes of indexes; {balance}\n",
        grouped(account.segments),
        grouped(account.bytes),
        grouped(account.index_bytes)
    )
    .as_str()
}

fn account_json(account: &ImportAccount) -> String {
    let value = json!({
        "files": account.files,
        "files_whole": account.whole,
        "files_in_part": account.in_part,
        "files_passed_over": account.passed_over,
        "packets": account.packets,
        "written": account.written,
        "lost": account.lost,
        "segments": account.segments,
        "segments_recycled": account.recycled,
        "bytes": account.bytes,
        "index_bytes": account.index_bytes,
        "interfaces_joined": account.joined,
        "packets_out_of_time": account.out_of_time,
        "balanced": account.is_balanced(),
    });
    format!("{value}\n")
}
