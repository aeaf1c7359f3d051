//! `tapline capture`: the command line becomes a source, a filter, outputs and reports; the engine does the rest.
//!
//! ```text
//! lists and dumps?  -> print, done
//! filter text, source (opened with all rights), outputs -> rights dropped -> signals, timers -> engine -> account
//! ```

mod args;
mod filtering;
mod input;
mod lists;
mod outputs;
mod secrets;

pub(crate) use args::{ArrowArgs, CaptureArgs, ColorArg};

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use tapline_file::{BlockQueue, FileInput};
use tapline_graph::{GraphAccount, RunReport, Stage, Table};
use tapline_meters::Meters;
use tapline_packet::Interface;
use tapline_source::Source;
use tapline_stages::{Chain, ChunkSettings, CompileFpl, FplProgram, Names, input_file};
use tapline_sys::output_file;

use crate::args::FplArgs;
use crate::fpl::searches;
use crate::mistakes::misuse;
use crate::output::{self, say};
use crate::report;
use crate::session::{Counters, Finished, Session, Watcher, WorkerGraph, Workers, share, title};
use crate::store;
use crate::stored::{self, StoreSearch, UnfitLinkTypes};
use crate::strict::{self, INCOMPLETE};
use filtering::Filtering;
use input::Input;
use secrets::Secrets;

pub(crate) fn run(args: &CaptureArgs) -> Result<ExitCode> {
    run_with(args, None)
}

/// Runs a command that is a capture, whose packets go to a stage of its own.
pub(crate) fn run_with(args: &CaptureArgs, own_output: Option<Box<dyn Stage>>) -> Result<ExitCode> {
    if lists::wanted(args) {
        return lists::print(args).map(|()| ExitCode::SUCCESS);
    }
    if args.fpl_memory_file.is_some() && args.workers > 1 {
        misuse!("--fpl-memory-file is the memory of one worker: leave --workers out");
    }
    if args.verify && args.workers > 1 {
        misuse!("--verify must see all packets in their order: leave --workers out");
    }
    let filtering = Arc::new(Filtering::new(args)?);
    let program = fpl_program(&args.fpl, args.fpl_memory_file.as_deref())?;
    if let Some(link_type) = lists::dump_link_type(args)? {
        return lists::dump(args, &filtering, &Interface::new("", link_type)).map(|()| ExitCode::SUCCESS);
    }
    if args.follow_links {
        output_file::follow_links();
    }
    let user = args.relinquish_privileges.as_deref();
    let mut session = Session::new(user, args.count_packets.filter(|&count| count > 0))?;
    args.stop_after.into_iter().for_each(|bytes| session.control.stop_after_bytes(bytes));
    let input = open_input(args, &filtering, program.as_ref(), &mut session)?;
    if args.dump > 0 {
        let interface = input.sources.first().and_then(|source| source.interfaces().first());
        let interface =
            interface.context("no interface is known to compile a filter for; -y names a link type")?;
        return lists::dump(args, &filtering, interface).map(|()| ExitCode::SUCCESS);
    }
    if !args.is_for_wireshark {
        input.announcements.iter().for_each(say);
    }
    let secrets = Mutex::new(Secrets::open(&args.secrets, &input.blocks)?);
    let program = program.map(|program| Arc::new(program.for_workers(input.sources.len())));
    let program_name = program.as_ref().map(|program| program.name());
    let identity = session.identity.as_ref();
    // Before files are opened: a mistake in options of receivers leaves those that are there as they are.
    let receiver = outputs::receiver(args, &filtering, program_name, input.is_live)?;
    let mut outputs = outputs::open(args, &filtering, program_name, &input, identity, own_output)?;
    let meters = confine(args, &filtering, &input, receiver.as_ref(), &session)?;
    if let Some(settings) = receiver {
        outputs.push(outputs::open_receiver(settings, &session.control)?);
    }
    match &args.recorder {
        // A recorder has no file to read or open again.
        Some(_) => session.obey_with(args.duration, || {})?,
        None => session.obey(args.duration)?,
    }
    work(args, input, outputs, Run { filtering, program, session, meters, secrets })
}

/// Opens the sources, and checks that filter and program fit them.
fn open_input(
    args: &CaptureArgs,
    filtering: &Arc<Filtering>,
    program: Option<&FplProgram>,
    session: &mut Session,
) -> Result<Input> {
    if args.read.is_empty() {
        session.catch()?;
    }
    let input = input::open(args, filtering, &session.control)?;
    session.catch()?;
    for source in &input.sources {
        filtering.check(source.interfaces(), input.may_grow)?;
        program.map_or(Ok(()), |program| program.check(source.interfaces()))?;
    }
    Ok(input)
}

/// Drops rights, once all is open. The meters are made before: their file is the last one.
fn confine(
    args: &CaptureArgs,
    filtering: &Filtering,
    input: &Input,
    receiver: Option<&ChunkSettings>,
    session: &Session,
) -> Result<Meters> {
    let needs = outputs::needs(args, filtering, receiver, input.is_live, session);
    // A search has no meters that others see: measuring the clock for their file takes longer than most searches.
    let meters = || if input.search.is_some() { Meters::private() } else { Meters::create(&title()) };
    let (meters, lacks) = session.confine(needs, meters)?;
    if args.verbose > 0 {
        lacks.iter().for_each(say);
    }
    Ok(meters)
}

/// Runs the capture to its end, and reports on it.
fn work(args: &CaptureArgs, input: Input, outputs: Vec<Box<dyn Stage>>, run: Run) -> Result<ExitCode> {
    let is_quiet = io::stderr().is_terminal() && args.write.is_some() && !args.print;
    let counters = if args.progress || is_quiet { Counters::All } else { Counters::None };
    let watcher = Watcher::of_accounts(input.sources.len(), counters, args.json).every(args.stats);
    let tell = |worker: usize, report: &RunReport<'_>| {
        let is_answered = watcher.tell(worker, report);
        if worker == 0 {
            run.secrets.lock().unwrap_or_else(PoisonError::into_inner).follow();
        }
        if is_answered && args.fpl_memory {
            tell_memory(args, run.program.as_deref(), &mut io::stderr());
        }
    };
    let finished = workers(args, input.sources, outputs, &run)?.run(&run.session.control, &tell)?;
    watcher.clear();
    tell_left_out(args, &input.blocks);
    conclude(args, finished, &run, input.search.as_ref())
}

/// The program of `--fpl`.
fn fpl_program(args: &FplArgs, memory: Option<&Path>) -> Result<Option<FplProgram>> {
    let Some(path) = &args.fpl else { return Ok(None) };
    let name = path.display().to_string();
    let text = input_file::read_text(path, input_file::TEXT_MAX);
    let text = text.map_err(|why| anyhow!("the program: {why}"))?;
    let program = FplProgram::new(&name, &text, args.fpl_cells, searches(args)?)?;
    Ok(Some(match memory {
        Some(file) => program.in_file(file)?,
        None => program,
    }))
}

/// The engines' filter, program and counters.
struct Run {
    filtering: Arc<Filtering>,
    program: Option<Arc<FplProgram>>,
    session: Session,
    meters: Meters,
    /// Keys that go into the file.
    secrets: Mutex<Secrets>,
}

/// The stages of one worker.
fn chain(args: &CaptureArgs, worker: usize, names: Option<Names>, run: &Run) -> Chain {
    let filtering = Arc::clone(&run.filtering);
    let decide = run.program.as_ref().map(|program| {
        let program = Arc::clone(program);
        Arc::new(move |interface: &Interface| program.engine(worker, interface)) as CompileFpl
    });
    Chain {
        looks_for_tags: !tapline_stages::TagLook::is_known_to(&filtering.in_words()),
        compile: Arc::new(move |interface: &_| filtering.compile(interface)),
        names,
        decide,
        shared: run.program.as_ref().and_then(|program| program.shared()),
        control: Arc::clone(&run.session.control),
        snap_len: args.snap_len(),
        verify: args.verify,
    }
}

/// The graph of each source, which shares its outputs with the others.
fn workers(
    args: &CaptureArgs,
    sources: Vec<Box<dyn Source>>,
    outputs: Vec<Box<dyn Stage>>,
    run: &Run,
) -> Result<Workers> {
    let (workers, is_only) = (sources.len(), outputs.len() == 1);
    let (sets, completers) =
        if workers == 1 { (vec![outputs], Vec::new()) } else { share(outputs, workers, is_only) };
    let mut heads = Vec::new();
    for (worker, (source, outputs)) in sources.into_iter().zip(sets).enumerate() {
        let chain = chain(args, worker, run.filtering.names()?, run);
        let (graph, node) = chain.graph(&run.meters, worker as u16, outputs);
        heads.push(WorkerGraph::new(vec![source], (graph, vec![node])));
    }
    Ok(Workers { heads, completers, ..Workers::default() })
}

/// Prints the account and says how the command ended.
fn conclude(
    args: &CaptureArgs,
    finished: Finished,
    run: &Run,
    search: Option<&StoreSearch>,
) -> Result<ExitCode> {
    let program = run.program.as_deref();
    let unfit = run.filtering.unfit();
    let Finished { account, ended, results, .. } = finished;
    let mut told = Ok(());
    if args.count && !args.json {
        let packets = counted(&account);
        told = output::tell(&format!("{packets} packet{}\n", if packets == 1 { "" } else { "s" }));
    }
    if args.fpl_memory && args.writes_standard_output() {
        tell_memory(args, program, &mut io::stderr());
    } else if args.fpl_memory {
        tell_memory(args, program, &mut io::stdout());
    }
    tell_marks(args, results.iter().find(|result| result.stage == "verify").map(|result| &result.table));
    // A reader of lines that has enough ends the work; a file beside them would lack the rest.
    let only_lines = args.write.is_none() || args.is_for_wireshark;
    let failure = run.session.failure(&ended, only_lines);
    let (code, failure) = match failure {
        Some(failure) => (ExitCode::FAILURE, Some(failure)),
        None => (code_of_whole(args, &account, unfit.error().as_deref()), unfit.error()),
    };
    tell_search(args, search);
    let accepted = account.chain().unwrap_or_default().accepted;
    let notes = search.map_or_else(Vec::new, |asked| asked.notes(accepted));
    if !args.is_for_wireshark {
        report::tag_hints(&account).for_each(say);
        unfit.text().iter().for_each(say);
        notes.iter().for_each(say);
        tell_account(args, &account, (search, &notes), unfit, failure);
    }
    let code = args.report.code(code, &strict::losses_of(&account));
    let is_whole =
        !search.is_some_and(StoreSearch::is_answered_in_part) && !is_answer_in_part(args, &account);
    let is_part = code == ExitCode::SUCCESS && !is_whole;
    told.map(|()| if is_part { ExitCode::from(INCOMPLETE) } else { code })
}

/// The exit status of a run that came to its end: not 0 where a store lacks packets that were to be written to it, or
/// where no link type can have the filter.
fn code_of_whole(args: &CaptureArgs, account: &GraphAccount, misfit: Option<&str>) -> ExitCode {
    misfit.iter().for_each(say);
    let is_whole = store::tell_missing(lost_by_store(args, account)) && misfit.is_none();
    if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether the daemon could not search all of the store.
fn is_answer_in_part(args: &CaptureArgs, account: &GraphAccount) -> bool {
    let mut losses = account.interfaces.iter().flat_map(|interface| &interface.losses);
    args.stream.is_some() && losses.any(|loss| loss.counter == FileInput::ANSWER_LOSS)
}

/// Packets that `--count` counted, in the kernel and here.
fn counted(account: &GraphAccount) -> u64 {
    let in_kernel = account.interfaces.iter().filter_map(|interface| interface.counted);
    let in_kernel: u64 = in_kernel.map(|counted| counted.packets).sum();
    in_kernel + account.outputs().find(|output| output.name == "count").map_or(0, |output| output.written)
}

/// Packets that a store was to get and lacks.
fn lost_by_store(args: &CaptureArgs, account: &GraphAccount) -> u64 {
    let Some(directory) = args.write.as_deref().and_then(stored::directory) else { return 0 };
    let name = directory.display().to_string();
    account.outputs().filter(|output| output.name == name).map(|output| output.lost).sum()
}

/// Shows the memory of a program.
fn tell_memory(args: &CaptureArgs, program: Option<&FplProgram>, out: &mut dyn Write) {
    let Some(program) = program else { return };
    let text = if args.json { format!("{}\n", program.memory_json()) } else { program.memory_text() };
    let _ = out.write_all(text.as_bytes());
}

/// Reports blocks without packets that a copy lacks.
fn tell_left_out(args: &CaptureArgs, blocks: &BlockQueue) {
    let Some(path) = &args.write else { return };
    for clause in blocks.left_out().clauses() {
        let _ = writeln!(io::stderr(), "tapline: not in {}: {clause}", path.display());
    }
}

/// Shows what became of marked packets.
fn tell_marks(args: &CaptureArgs, marks: Option<&Table>) {
    let Some(table) = marks else { return };
    let text =
        if args.json { format!("{}\n", json!({ "marks": table.to_json() })) } else { table.to_string() };
    let _ = if args.writes_standard_output() {
        io::stderr().write_all(text.as_bytes())
    } else {
        io::stdout().write_all(text.as_bytes())
    };
}

/// Shows the parts that a search skipped and read, if requested.
fn tell_search(args: &CaptureArgs, search: Option<&StoreSearch>) {
    let Some(search) = search.filter(|_| args.explain_search) else { return };
    let account = search.report.get();
    let _ = match args.json {
        true => writeln!(io::stderr(), "{}", json!({ "search": stored::search_json(&account) })),
        false => write!(io::stderr(), "{}", stored::search_text(&account)),
    };
}

/// The account goes to standard error as text; as JSON it is the last object of standard output, unless that is a
/// capture file.
fn tell_account(
    args: &CaptureArgs,
    account: &GraphAccount,
    (search, notes): (Option<&StoreSearch>, &[String]),
    unfit: &UnfitLinkTypes,
    failure: Option<String>,
) {
    if !args.json {
        let _ = io::stderr()
            .write_all(report::text(account, args.report.account.form(args.verbose > 0)).as_bytes());
        return;
    }
    let mut object = report::json(account);
    if args.count {
        object["count"] = counted(account).into();
    }
    if let Some(failure) = failure {
        object["error"] = failure.into();
    }
    if let Some(asked) = search {
        object["account"]["search"] = asked.to_json(notes);
        object["account"]["unfit_link_types"] = unfit.to_json();
    }
    if args.write.as_deref().and_then(stored::directory).is_some() {
        object["account"]["missing_in_store"] = lost_by_store(args, account).into();
    }
    let line = format!("{object}\n");
    let told = !args.writes_standard_output() && io::stdout().write_all(line.as_bytes()).is_ok();
    if !told || (io::stdout().is_terminal() && account.lost() > 0) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
