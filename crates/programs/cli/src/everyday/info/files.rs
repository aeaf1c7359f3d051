//! Summaries of files, one after the other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use sha2::{Digest, Sha256};
use tapline_file::{FileInput, FileSource, MergeOrder};
use tapline_graph::{Control, GraphAccount, Packets, StageAccount, StageCounters};
use tapline_meters::Meters;
use tapline_packet::ClockReading;
use tapline_source::{Advance, Source};
use tapline_sys::sandbox::AllowedAccess;

use super::report::InputFacts;
use super::summary::Summary;
use super::{InfoArgs, dropped, name_of, write};
use crate::escape::plain_lines;
use crate::output::{self, say};
use crate::session::Session;
use crate::{files, report, stream, strict};

/// Bytes of a file that are hashed at a time.
const PIECE_LEN: usize = 1 << 18;

/// A file before rights were given up.
struct OpenFile {
    facts: InputFacts,
    file: Result<FileSource>,
    /// A second handle of the file, for its checksum; none of a pipe.
    whole: Option<File>,
}

/// Prints a summary of each file. A file that cannot be read, or is damaged, does not affect the others; the exit
/// status shows it.
pub(super) fn run(paths: &[PathBuf], args: &InfoArgs) -> Result<ExitCode> {
    let excerpt = args.session.of_files()?;
    let mut session = Session::new(args.session.relinquish_privileges.as_deref(), None)?;
    let control = Arc::clone(&session.control);
    let opened: Vec<OpenFile> = paths.iter().map(|path| open(path, &control)).collect();
    session.catch()?;
    session.confine(AllowedAccess::default(), Meters::private)?;
    session.obey(None)?;
    let mut all = GraphAccount::default();
    let mut code = ExitCode::SUCCESS;
    for (at, opened) in opened.into_iter().enumerate() {
        if control.is_stop_requested() {
            let _ = writeln!(io::stderr(), "tapline: stopped: {} files were not read", paths.len() - at);
            break;
        }
        if !args.json && at > 0 {
            output::tell("\n")?;
        }
        let OpenFile { mut facts, file, whole } = opened;
        match file {
            Ok(file) => {
                let input = FileInput::new(vec![file], MergeOrder::Given).with_excerpt(excerpt.clone());
                let summary = read(&mut facts, input, whole, &control, &mut all);
                write(&facts, &summary, args.top as usize, args.json)?;
            }
            Err(error) => {
                facts.damage = Some(crate::chain(&error));
                write(&facts, &Summary::new(), args.top as usize, args.json)?;
            }
        }
        if let Some(damage) = &facts.damage {
            say(plain_lines(damage));
            code = ExitCode::FAILURE;
        }
    }
    all.stages = stages(all.delivered);
    match args.json {
        true => output::tell(&format!("{}\n", report::json(&all)))?,
        false => {
            let form = args.session.report.account.form(false);
            io::stderr().write_all(report::text(&all, form).as_bytes())?;
        }
    }
    Ok(args.session.report.code(code, &strict::losses_of(&all)))
}

fn open(path: &Path, control: &Arc<Control>) -> OpenFile {
    let mut facts = InputFacts { name: name_of(path), ..InputFacts::default() };
    let file = files::open(path, control);
    if let Ok(file) = &file {
        facts.format = Some(file.format_name());
        facts.compression = file.compression().map(|compression| compression.name());
    }
    let is_file = file.is_ok() && path.as_os_str() != "-" && !stream::is_stream(path);
    let whole = if is_file { File::open(path).ok() } else { None };
    facts.size = whole.as_ref().and_then(|file| file.metadata().ok()).map(|metadata| metadata.len());
    OpenFile { facts, file, whole }
}

/// The stages of a capture whose output is the summary.
fn stages(packets: u64) -> Vec<StageAccount> {
    let limit = StageAccount {
        name: "limit".to_owned(),
        class: "limit",
        received: packets,
        passed: packets,
        ..StageAccount::default()
    };
    let info = StageAccount {
        name: "info".to_owned(),
        class: "info",
        handed: Some(packets),
        received: packets,
        counters: StageCounters::of_written("info", packets),
        ..StageAccount::default()
    };
    vec![limit, info]
}

/// Reads a file to its end, to where it is damaged, or until the user stops it. What was read is added to `all`.
fn read(
    facts: &mut InputFacts,
    mut input: FileInput,
    whole: Option<File>,
    control: &Control,
    all: &mut GraphAccount,
) -> Summary {
    let mut summary = Summary::new();
    let (ended, sha256) = thread::scope(|scope| {
        let hash = whole.map(|file| scope.spawn(move || sha256(file, control)));
        let ended = walk(&mut input, &mut summary, control);
        (ended, hash.and_then(|hash| hash.join().ok()).flatten())
    });
    facts.sha256 = sha256;
    facts.is_stopped = control.is_stop_requested();
    facts.damage = ended.err().filter(|_| !facts.is_stopped).map(|error| error.to_string());
    for event in input.events() {
        say(crate::escape::event_line(&event));
    }
    summary.join(input.interfaces());
    let interfaces = input.account();
    facts.dropped = interfaces.iter().map(dropped).collect();
    all.merge(GraphAccount { interfaces, delivered: summary.packets, ..GraphAccount::default() });
    summary
}

fn walk(
    input: &mut FileInput,
    summary: &mut Summary,
    control: &Control,
) -> Result<(), tapline_source::Error> {
    while !control.is_stop_requested() && input.advance(Duration::ZERO)? != Advance::End {
        let now = ClockReading::default();
        summary.take(&Packets::all(input.batch(), input.interfaces(), now));
    }
    Ok(())
}

/// SHA-256 in hexadecimal; `None` if it cannot be read whole.
fn sha256(mut file: File, control: &Control) -> Option<String> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE_LEN]);
    loop {
        match file.read(&mut piece) {
            _ if control.is_stop_requested() => return None,
            Ok(0) => break,
            Ok(len) => hash.update(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
