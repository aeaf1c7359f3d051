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
mod watching;

pub(crate) use args::{ArrowArgs, CaptureArgs, ColorArg};

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use tapline_file::{BlockQueue, FileInput};
use tapline_graph::{Control, Engine, GraphAccount, Inlet, RunEnd, RunReport, Stage, Table};
use tapline_meters::Meters;
use tapline_packet::Interface;
use tapline_source::{Error, Source};
use tapline_stages::{Chain, ChunkSettings, CompileFpl, FplProgram, Names, SharedOutput, input_file};
use tapline_store::moments::learn_zone;
use tapline_sys::output_file;
use tapline_sys::privilege::Identity;

use crate::args::FplArgs;
use crate::escape::plain_lines;
use crate::fpl::searches;
use crate::output;
use crate::privileges;
use crate::report;
use crate::session::{clocks, stop_after, title};
use crate::signals::{self, CaughtSignals};
use crate::store;
use crate::stored::{self, StoreSearch, UnfitLinkTypes};
use crate::strict::{self, INCOMPLETE};
use filtering::Filtering;
use input::Input;
use secrets::Secrets;
use watching::Watcher;

/// Runs the command.
pub(crate) fn run(args: &CaptureArgs) -> Result<ExitCode> {
    if lists::wanted(args) {
        return lists::print(args).map(|()| ExitCode::SUCCESS);
    }
    if args.fpl_memory_file.is_some() && args.workers > 1 {
        bail!("--fpl-memory-file is the memory of one worker: leave --workers out");
    }
    if args.verify && args.workers > 1 {
        bail!("--verify must see all packets in their order: leave --workers out");
    }
    let filtering = Arc::new(Filtering::new(args)?);
    let program = fpl_program(&args.fpl, args.fpl_memory_file.as_deref())?;
    if let Some(link_type) = lists::dump_link_type(args)? {
        return lists::dump(args, &filtering, &Interface::new("", link_type)).map(|()| ExitCode::SUCCESS);
    }
    if args.follow_links {
        output_file::follow_links();
    }
    let control = Arc::new(Control::new(args.count_packets.filter(|&count| count > 0)));
    args.stop_after.into_iter().for_each(|bytes| control.stop_after_bytes(bytes));
    let identity = privileges::identity(args.relinquish_privileges.as_deref())?;
    let (input, caught) = open_input(args, &filtering, program.as_ref(), &control)?;
    if args.dump > 0 {
        let interface = input.sources.first().and_then(|source| source.interfaces().first());
        let interface =
            interface.context("no interface is known to compile a filter for; -y names a link type")?;
        return lists::dump(args, &filtering, interface).map(|()| ExitCode::SUCCESS);
    }
    if !args.is_for_wireshark {
        announce(&input);
    }
    let secrets = Mutex::new(Secrets::open(&args.secrets, &input.blocks)?);
    let program = program.map(|program| Arc::new(program.for_workers(input.sources.len())));
    let program_name = program.as_ref().map(|program| program.name());
    let mut outputs = outputs::open(args, &filtering, program_name, &input, identity.as_ref())?;
    let receiver = outputs::receiver(args, &filtering, program_name, input.is_live)?;
    let meters = confine(args, &filtering, &input, receiver.as_ref(), identity.as_ref())?;
    if let Some(settings) = receiver {
        outputs.push(outputs::open_receiver(settings, &control)?);
    }
    match &args.recorder {
        // A recorder has no file to read or open again.
        Some(_) => caught.obey_with(Arc::clone(&control), || {})?,
        None => caught.obey(Arc::clone(&control))?,
    }
    if let Some(duration) = args.duration {
        stop_after(duration, Arc::clone(&control));
    }
    work(args, input, outputs, Run { filtering, program, control, meters, secrets })
}

/// Opens the sources, and checks that filter and program fit them.
fn open_input(
    args: &CaptureArgs,
    filtering: &Arc<Filtering>,
    program: Option<&FplProgram>,
    control: &Arc<Control>,
) -> Result<(Input, CaughtSignals)> {
    // From its first packet on a live capture ends with its account. A file may keep us waiting for its writer: until
    // it is open, Ctrl-C may end the program as it ends any other.
    let caught_early = if args.read.is_empty() { Some(signals::catch()?) } else { None };
    let input = input::open(args, filtering, control)?;
    let caught = caught_early.map_or_else(signals::catch, Ok)?;
    for source in &input.sources {
        filtering.check(source.interfaces(), input.may_grow)?;
        program.map_or(Ok(()), |program| program.check(source.interfaces()))?;
    }
    Ok((input, caught))
}

/// Meters for `tapline top`. A search has none that others see: measuring the clock for their file takes longer than
/// most searches.
fn meters(input: &Input) -> Meters {
    match &input.search {
        Some(_) => Meters::private(),
        None => Meters::create(&title()),
    }
}

/// Drops rights, once all is open. The meters are made before: their file is the last one.
fn confine(
    args: &CaptureArgs,
    filtering: &Filtering,
    input: &Input,
    receiver: Option<&ChunkSettings>,
    identity: Option<&Identity>,
) -> Result<Meters> {
    privileges::give_up(identity)?;
    if input.search.is_some() {
        learn_zone();
    }
    let meters = meters(input);
    let needs = outputs::needs(args, filtering, receiver, input.is_live, identity.is_some());
    let lacks = privileges::confine(needs, &meters);
    if args.verbose > 0 {
        lacks.iter().for_each(|lack| drop(writeln!(io::stderr(), "tapline: {lack}")));
    }
    Ok(meters)
}

/// Runs the capture to its end, and reports on it.
fn work(args: &CaptureArgs, input: Input, outputs: Vec<Box<dyn Stage>>, run: Run) -> Result<ExitCode> {
    let watcher = Watcher::new(args, input.sources.len());
    let tell = |worker: usize, watch: &RunReport<'_>| {
        watcher.tell(worker, watch);
        if worker == 0 {
            run.secrets.lock().unwrap_or_else(PoisonError::into_inner).follow();
        }
        if worker == 0 && watch.is_requested && args.fpl_memory {
            tell_memory(args, run.program.as_deref(), &mut io::stderr());
        }
    };
    let blocks = input.blocks.clone();
    let outcome = drive(args, input.sources, outputs, &run, &tell)?;
    watcher.clear();
    tell_left_out(args, &blocks);
    conclude(args, outcome, &run, input.search.as_ref())
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
    control: Arc<Control>,
    meters: Meters,
    /// Keys that go into the file.
    secrets: Mutex<Secrets>,
}

/// Result of a run.
struct Outcome {
    account: GraphAccount,
    ended: RunEnd,
    /// The result of `--verify`.
    marks: Option<Table>,
}

fn announce(input: &Input) {
    for line in &input.announcements {
        let _ = writeln!(io::stderr(), "tapline: {line}");
    }
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
        control: Arc::clone(&run.control),
        snap_len: args.snap_len(),
        verify: args.verify,
    }
}

/// Runs one engine for each source, in threads if there are several.
fn drive(
    args: &CaptureArgs,
    mut sources: Vec<Box<dyn Source>>,
    outputs: Vec<Box<dyn Stage>>,
    run: &Run,
    tell: &(dyn Fn(usize, &RunReport<'_>) + Sync),
) -> Result<Outcome> {
    let names = sources.iter().map(|_| run.filtering.names()).collect::<Result<Vec<_>, _>>()?;
    let work = |worker: usize, source: &mut dyn Source, names, outputs: Vec<Box<dyn Stage>>| {
        let chain = chain(args, worker, names, run);
        let (mut graph, node) = chain.graph(&run.meters, worker as u16, outputs);
        let engine = Engine::new(vec![Inlet::new(source, node)], &mut graph, &run.control, clocks);
        let outcome = engine.run(&mut |watch| tell(worker, watch));
        let marks =
            graph.results().into_iter().find(|result| result.stage == "verify").map(|result| result.table);
        Outcome { account: outcome.account, ended: outcome.ended, marks }
    };
    if let [source] = sources.as_mut_slice() {
        return Ok(work(0, source.as_mut(), names.into_iter().next().flatten(), outputs));
    }
    let is_only = outputs.len() == 1;
    let (handles, completers) = share(outputs, sources.len(), is_only);
    let outcomes = thread::scope(|scope| {
        let work = &work;
        let workers = sources.iter_mut().zip(handles).zip(names).enumerate();
        let threads: Vec<_> = workers
            .map(|(worker, ((source, outputs), names))| {
                scope.spawn(move || work(worker, source.as_mut(), names, outputs))
            })
            .collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    Ok(join(outcomes, completers))
}

/// Handles of the outputs for each worker.
type Handles = Vec<Vec<Box<dyn Stage>>>;

/// Handles of the outputs for each worker, and those that complete them once all workers are done. `is_only` says that
/// each packet goes to one of them only.
pub(crate) fn share(
    outputs: Vec<Box<dyn Stage>>,
    workers: usize,
    is_only: bool,
) -> (Handles, Vec<SharedOutput>) {
    let mut sets: Handles = (0..workers).map(|_| Vec::new()).collect();
    let mut completers = Vec::new();
    for output in outputs {
        let mut handles = SharedOutput::handles(output, workers + 1, is_only);
        completers.extend(handles.pop());
        for (set, handle) in sets.iter_mut().zip(handles) {
            set.push(Box::new(handle));
        }
    }
    (sets, completers)
}

/// One outcome of those of all workers.
fn join(outcomes: Vec<thread::Result<Outcome>>, mut completers: Vec<SharedOutput>) -> Outcome {
    let mut account = GraphAccount::default();
    let mut ended = RunEnd::Source;
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => {
                account.merge(outcome.account);
                ended = ended.worse(outcome.ended);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    let outputs = account.stages.iter_mut().filter(|stage| stage.counters.output.is_some());
    for (stage, output) in outputs.zip(&mut completers) {
        if let Err(error) = output.complete(clocks(), &account.interfaces) {
            ended = ended.worse(RunEnd::Failed(error));
        }
        stage.counters.output = Some(output.account());
    }
    Outcome { account, ended, marks: None }
}

/// Prints the account and says how the command ended.
fn conclude(
    args: &CaptureArgs,
    outcome: Outcome,
    run: &Run,
    search: Option<&StoreSearch>,
) -> Result<ExitCode> {
    let (program, control) = (run.program.as_deref(), &run.control);
    let unfit = run.filtering.unfit();
    let Outcome { account, ended, marks } = outcome;
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
    tell_marks(args, marks.as_ref());
    let mut failure = None;
    let code = match ended {
        RunEnd::Source | RunEnd::Stopped => {
            failure = unfit.error();
            code_of_whole(args, &account, failure.as_deref())
        }
        RunEnd::Failed(Error::File(error)) if control.is_stop_requested() && is_truncation(&*error) => {
            ExitCode::SUCCESS
        }
        // A reader of lines that has enough (`| head`) ends the work; a file beside them would lack the rest.
        RunEnd::Failed(Error::BrokenPipe { .. }) if args.write.is_none() || args.is_for_wireshark => {
            ExitCode::SUCCESS
        }
        RunEnd::Failed(error) => {
            let _ = writeln!(io::stderr(), "tapline: {}", plain_lines(&error.to_string()));
            failure = Some(error.to_string());
            ExitCode::FAILURE
        }
    };
    tell_search(args, search);
    let accepted = account.chain().unwrap_or_default().accepted;
    let notes = search.map_or_else(Vec::new, |asked| asked.notes(accepted));
    if !args.is_for_wireshark {
        report::tag_hints(&account).for_each(|line| drop(writeln!(io::stderr(), "tapline: {line}")));
        unfit.text().iter().for_each(|line| drop(writeln!(io::stderr(), "tapline: {line}")));
        notes.iter().for_each(|note| drop(writeln!(io::stderr(), "tapline: {note}")));
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
    misfit.iter().for_each(|error| drop(writeln!(io::stderr(), "tapline: {error}")));
    let is_whole = store::tell_missing(lost_by_store(args, account)) && misfit.is_none();
    if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether a file ended within a packet, as a pipe does when its writer is stopped.
fn is_truncation(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(tapline_file::Error::Truncated { .. }))
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
