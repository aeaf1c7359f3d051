//! Packets behind a chart: of the past that a capture of the daemon keeps, by the daemon's rules, or of a store.
//!
//! ```text
//! tap:NAME         a reader that begins in the past, ends with the window
//! store:DIRECTORY  a search of the window
//! ```

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tapline_file::{Section, blocks};
use tapline_packet::Selection;
use tapline_print::{HexStyle, Options, Printer, TimeStyle};
use tapline_source::{Advance, Source};
use tapline_tap_client::protocol::{AttachRequest, StartPosition};
use tapline_tap_client::{Client, WakeThreshold, socket_path};
use tapline_web::{PacketAnswer, PacketRequest, PacketSource, QuestionTime};

use crate::args::LanguageArgs;
use crate::compiler::Compiler;
use crate::live::{self, TAP};
use crate::session::clock;
use crate::stored::{self, PastArgs};

/// Longest wait for the daemon's list of captures.
const DAEMON_PATIENCE: Duration = Duration::from_secs(5);
/// The first packets of a capture come within this time, on a busy machine too, and those that are still on their way
/// within the other.
const FIRST: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_millis(400);
const STEP: Duration = Duration::from_millis(50);

/// The sources of packets: those that were named; else the captures of the daemon that we may read, whenever it runs.
pub(super) struct Sources {
    named: Vec<String>,
    socket: PathBuf,
}

impl Sources {
    pub(super) fn of(named: &[String], socket: Option<&Path>) -> Sources {
        Sources { named: named.to_vec(), socket: socket_path(socket) }
    }

    /// Looks at the sources that were named. Captures that are not there may come later: lines about them.
    ///
    /// # Errors
    /// A store that is not there, or that this user may not read.
    pub(super) fn check(&self) -> Result<Vec<String>> {
        for folder in self.directories() {
            let shown = folder.display();
            fs::read_dir(&folder).with_context(|| {
                format!("--packets store:{shown}: name the directory that tapline record --to writes")
            })?;
        }
        let captures: Vec<&String> = self.named.iter().filter(|name| name.starts_with(TAP)).collect();
        let offered = if captures.is_empty() { Vec::new() } else { self.offered() };
        let lacking = captures.into_iter().filter(|name| !offered.contains(name));
        let line = |name| format!("--packets {name}: tapline serve does not offer it yet (tapline status)");
        Ok(lacking.map(line).collect())
    }

    /// The captures of the daemon, if it runs.
    fn offered(&self) -> Vec<String> {
        let offered = live::captures(Some(&self.socket), DAEMON_PATIENCE).unwrap_or_default();
        offered.iter().map(|capture| format!("{TAP}{}", capture.name)).collect()
    }

    /// The directories of stores.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.named.iter().filter_map(|name| stored::directory(Path::new(name))).collect()
    }

    fn open(&self, request: &PacketRequest) -> Result<Box<dyn Source>> {
        match request.source.strip_prefix(TAP) {
            Some(capture) => self.open_tap(capture, request),
            None => open_store(request),
        }
    }

    fn open_tap(&self, capture: &str, request: &PacketRequest) -> Result<Box<dyn Source>> {
        let ago_ns = clock().as_nanos().saturating_sub(request.from_ns).max(0);
        let attach = AttachRequest {
            capture: capture.to_owned(),
            filter: request.filter.clone(),
            start: StartPosition::SinceMs(ago_ns as u64 / 1_000_000 + REQUEST_MS),
            ..AttachRequest::default()
        };
        let client = Client::connect(&self.socket, "tapline view")?;
        let mut tap = client.attach(&attach)?;
        tap.set_wake(WakeThreshold::IMMEDIATE);
        Ok(Box::new(tap))
    }
}

fn open_store(request: &PacketRequest) -> Result<Box<dyn Source>> {
    let name = stored::store_name(Path::new(&request.source))?;
    let mut name = name.ok_or_else(|| anyhow!("{} is not a store", request.source))?;
    let time = |ns: i64| -> Result<String> { Ok(jiff::Timestamp::from_nanosecond(ns.into())?.to_string()) };
    (name.from, name.to) = (Some(time(request.from_ns)?), Some(time(request.to_ns)?));
    let compiler = Arc::new(Compiler::new(crate::args::SNAP_LEN, true, LanguageArgs::default(), false, None));
    Ok(Box::new(stored::open_filtered(&name, &PastArgs::default(), &request.filter, &compiler)?))
}

/// Longest time that a request to the daemon may take, in milliseconds. The daemon subtracts the age of the window from
/// its own present, so a request that took longer would miss the first packets of the window.
const REQUEST_MS: u64 = 1000;

/// Reads the packets of a window, a batch at a time, until the window or a limit is over.
fn read(
    source: &mut dyn Source,
    request: &PacketRequest,
    is_file: bool,
    take: &mut dyn FnMut(&dyn Source, &Selection) -> Result<()>,
) -> Result<PacketAnswer> {
    let mut answer = PacketAnswer::default();
    let is_of_past = request.source.starts_with(TAP);
    // A capture goes on for ever; its past ends now.
    let to_ns = if is_of_past { request.to_ns.min(clock().as_nanos()) } else { request.to_ns };
    let (begin, mut bytes, mut last, mut quiet) = (Instant::now(), 0, Instant::now(), FIRST);
    let mut time = QuestionTime::begin(is_file, Duration::ZERO);
    loop {
        if time.is_over(begin.elapsed()) {
            answer.is_cut = true;
            let ended = match (is_file, request.is_from_end) {
                (true, _) => "no packet came for a minute",
                (false, false) => "it took a minute",
                (false, true) => "it took a minute, so later packets of the window are not here",
            };
            answer.notes.push(format!("the search was ended: {ended}"));
            break;
        }
        match source.advance(STEP)? {
            Advance::End => break,
            // A store that is slow is not at its end.
            Advance::Idle if is_of_past && last.elapsed() > quiet => break,
            Advance::Idle => continue,
            Advance::Batch => {}
        }
        let batch = source.batch();
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        let (mut is_past_window, mut is_full) = (is_of_past, false);
        selection.retain(|index| {
            let meta = &batch.records()[index].meta;
            let ns = meta.timestamp.as_nanos();
            is_past_window &= ns >= to_ns;
            let fits = (request.from_ns..to_ns).contains(&ns);
            let is_room =
                request.is_from_end || answer.packets < request.packets_max && bytes < request.bytes_max;
            is_full |= fits && !is_room;
            if fits && is_room {
                answer.packets += 1;
                bytes += u64::from(meta.wire_len);
                let (first, _) = answer.span_ns.unwrap_or((ns, ns));
                answer.span_ns = Some((first.min(ns), ns));
            }
            fits && is_room
        });
        if !selection.is_empty() {
            take(source, &selection)?;
            time.progress(begin.elapsed());
        }
        // A browser that takes its time leaves packets behind it, not silence.
        (last, quiet) = (Instant::now(), QUIET);
        if is_full && is_file {
            let (packets, mb) = (request.packets_max, request.bytes_max >> 20);
            answer.notes.push(format!("a file has at most {packets} packets and {mb} MiB: more are there"));
        }
        answer.is_cut |= is_full;
        if is_past_window || is_full {
            break;
        }
    }
    note_losses(source, &mut answer);
    if answer.packets == 0 && !answer.is_cut {
        answer.notes.push("no packet of this window and filter is kept, or any longer".to_owned());
    }
    Ok(answer)
}

/// Reports losses, and the messages of the source.
fn note_losses(source: &mut dyn Source, answer: &mut PacketAnswer) {
    for account in source.account() {
        if let Some(tap) = account.tap.filter(|tap| tap.lost() > 0) {
            answer.notes.push(format!("{} packets were overwritten before they were read", tap.lost()));
        }
    }
    let warnings = source.events().into_iter().filter(|event| event.is_warning);
    answer.notes.extend(warnings.map(|event| event.text));
}

impl PacketSource for Sources {
    fn sources(&self) -> Vec<String> {
        if self.named.is_empty() { self.offered() } else { self.named.clone() }
    }

    fn list(&self, request: &PacketRequest) -> Result<PacketAnswer, String> {
        let listed = || -> Result<PacketAnswer> {
            let mut source = self.open(request)?;
            let mut printer = Printer::new(options(request.is_detailed));
            let mut lines = VecDeque::new();
            let mut answer = read(source.as_mut(), request, false, &mut |source, selection| {
                let batch = source.batch();
                for index in selection.iter() {
                    let packet = batch.packet(index);
                    let interface = &source.interfaces()[packet.meta.interface.0 as usize];
                    let mut text = Vec::new();
                    printer.print(packet, interface, &mut text);
                    let line = String::from_utf8_lossy(&text).trim().to_owned();
                    lines.push_back((packet.meta.timestamp.as_nanos(), packet.meta.wire_len, line));
                    if lines.len() as u64 > request.packets_max {
                        lines.pop_front();
                    }
                }
                Ok(())
            })?;
            answer.is_cut |= answer.packets > lines.len() as u64;
            answer.lines = lines.into();
            Ok(answer)
        };
        listed().map_err(|error| crate::chain(&error))
    }

    fn write(&self, request: &PacketRequest, to: &mut dyn Write) -> Result<PacketAnswer, String> {
        let mut written = || -> Result<PacketAnswer> {
            let mut source = self.open(request)?;
            let (mut bytes, mut described) = (Vec::new(), 0);
            let section = Section { application: "tapline view".to_owned(), ..Section::default() };
            blocks::section_header(&mut bytes, &section);
            send(&mut bytes, to)?;
            let answer = read(source.as_mut(), request, true, &mut |source, selection| {
                let (batch, interfaces) = (source.batch(), source.interfaces());
                for interface in &interfaces[described..] {
                    blocks::interface(&mut bytes, interface, 0);
                }
                described = interfaces.len();
                for index in selection.iter() {
                    let packet = batch.packet(index);
                    let interface = &interfaces[packet.meta.interface.0 as usize];
                    blocks::packet(&mut bytes, &packet, interface, 0, batch.options(index));
                }
                send(&mut bytes, to)
            })?;
            // Notes have a section of their own at the end: the file says by itself that it is not whole.
            if !answer.notes.is_empty() {
                let comments = answer.notes.clone();
                blocks::section_header(&mut bytes, &Section { comments, ..Section::default() });
            }
            send(&mut bytes, to)?;
            Ok(answer)
        };
        written().map_err(|error| crate::chain(&error))
    }
}

/// A packet in one line, or in all that is known of it, with its bytes.
fn options(is_detailed: bool) -> Options {
    match is_detailed {
        false => Options { time: TimeStyle::None, ..Options::default() },
        true => Options {
            time: TimeStyle::None,
            link_header: true,
            verbose: 2,
            hex: HexStyle::HexAsciiLink,
            ..Options::default()
        },
    }
}

fn send(bytes: &mut Vec<u8>, to: &mut dyn Write) -> Result<()> {
    let sent = to.write_all(bytes).context("the browser took no more");
    bytes.clear();
    sent
}
