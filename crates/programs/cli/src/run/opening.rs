//! The sources and outputs of a plan, opened.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use tapline_capture::Listener;
use tapline_capture::af_packet::{
    self, AfPacketSettings, CaptureDirection, LATENCY_INTERACTIVE_MS, LATENCY_RECORDING_MS,
};
use tapline_export::TopicAddress;
use tapline_file::{FileInput, FileWriter, MergeOrder, Section, WriteOptions};
use tapline_graph::catalog::{Constructor, InterfaceOptions};
use tapline_graph::plan::{Plan, PlanNode};
use tapline_graph::stages::{
    FileOutput, LineFormat, LinesOutput, StoreOutput, check_rules as check_rule_file,
};
use tapline_graph::{
    Control, FlowShardSource, GeneratedSource, RestampedSource, Stage, TimedSource, Watermark,
};
use tapline_meters::StampMode;
use tapline_packet::Interface;
use tapline_print::{Options, Printer, Services};
use tapline_source::Source;
use tapline_store::RecorderSettings;
use tapline_sys::NetNs;
use tapline_sys::privilege::Identity;

use super::sending;
use super::settings::RunSettings;
use crate::args::FormatArg;
use crate::compiler::{Compiler, fits_any};
use crate::live::{self, CaptureBackend, TapArgs, XdpArgs};
use crate::session::{clock, clocks};
use crate::stored::{self, PastArgs};
use crate::{clock_error, files, output, privileges, store, topics};

/// A source of one worker.
pub(crate) enum WorkerSource {
    /// The kernel gives each worker its packets.
    Device(Box<dyn Source>),
    /// A source that one worker reads whole.
    Whole(Box<dyn Source>),
    /// A worker's share of what one thread reads for all.
    Share(FlowShardSource),
}

impl WorkerSource {
    pub(crate) fn source(&self) -> &dyn Source {
        match self {
            WorkerSource::Device(source) | WorkerSource::Whole(source) => source.as_ref(),
            WorkerSource::Share(share) => share,
        }
    }

    /// For a worker that is the only one.
    pub(crate) fn alone(self) -> Box<dyn Source> {
        match self {
            WorkerSource::Device(source) | WorkerSource::Whole(source) => source,
            WorkerSource::Share(share) => Box::new(share),
        }
    }

    /// For one of several workers: its share, telling how far it has come.
    pub(crate) fn marked(self, watermark: Option<Watermark>) -> Box<dyn Source> {
        match (self, watermark) {
            (WorkerSource::Device(source) | WorkerSource::Whole(source), None) => source,
            (WorkerSource::Device(source) | WorkerSource::Whole(source), Some(watermark)) => {
                Box::new(TimedSource::new(source, watermark, clock))
            }
            (WorkerSource::Share(share), watermark) => Box::new(share.marked(watermark)),
        }
    }

    /// A source for each worker: shares of this one, if there are several. Also of a stream that one worker has: it may
    /// be silent for long, and a thread that waits for it would hear neither SIGUSR1 nor the clock.
    fn shared(source: Box<dyn Source>, workers: usize) -> Vec<WorkerSource> {
        match workers {
            1 if source.progress().is_some() => vec![WorkerSource::Whole(source)],
            _ => FlowShardSource::all(source, workers).into_iter().map(WorkerSource::Share).collect(),
        }
    }
}

/// Opens every source for one worker, in the order of the plan.
pub(crate) fn sources(
    settings: &RunSettings,
    plan: &Plan,
    compiler: &Arc<Compiler>,
    control: &Arc<Control>,
) -> Result<Vec<Box<dyn Source>>> {
    let mut all = worker_sources(settings, plan, compiler, control, 1)?;
    let only = all.pop().context("a graph has at least one worker")?;
    Ok(only.into_iter().map(WorkerSource::alone).collect())
}

/// Opens every source for each worker: the kernel shares out an interface's packets, and one thread those of a file.
pub(crate) fn worker_sources(
    settings: &RunSettings,
    plan: &Plan,
    compiler: &Arc<Compiler>,
    control: &Arc<Control>,
    workers: usize,
) -> Result<Vec<Vec<WorkerSource>>> {
    let mut all: Vec<Vec<WorkerSource>> = (0..workers).map(|_| Vec::new()).collect();
    for node in plan.nodes.iter().filter(|node| node.is_source()) {
        let opened = match node.class.name {
            "device" => device(settings, plan, node, compiler, workers)?,
            "generate" => made(node, workers)?,
            "listen" => listen(settings, node, workers)?,
            _ => file(plan, node, compiler, control, workers)?,
        };
        all.iter_mut().zip(opened).for_each(|(sources, source)| sources.push(source));
    }
    Ok(all)
}

fn say(line: &str) {
    let _ = writeln!(io::stderr(), "tapline: {line}");
}

fn file(
    plan: &Plan,
    node: &PlanNode,
    compiler: &Arc<Compiler>,
    control: &Arc<Control>,
    workers: usize,
) -> Result<Vec<WorkerSource>> {
    let path = Path::new(node.arguments.text("name"));
    if let Some(topic) = topics::named(path)? {
        return read_topic(&topic, plan, workers);
    }
    if let Some(name) = stored::store_name(path)? {
        let text = node.kernel_filter.clone().unwrap_or_default();
        let input = stored::open_filtered(&name, &PastArgs::default(), &text, compiler)?;
        say(&format!("reading from the store {}", name.directory.display()));
        return Ok(WorkerSource::shared(Box::new(input), workers));
    }
    let file = files::open(path, control)?;
    say(&files::announcement(&file));
    Ok(WorkerSource::shared(Box::new(FileInput::new(vec![file], MergeOrder::Given)), workers))
}

/// The packets of a topic. A source that waits does so itself.
fn read_topic(topic: &TopicAddress, plan: &Plan, workers: usize) -> Result<Vec<WorkerSource>> {
    let wants_rights = |node: &&PlanNode| node.is_source() || sending::is_sender(node);
    let stands_alone = plan.nodes.iter().filter(wants_rights).count() == 1;
    let source: Box<dyn Source> = Box::new(topics::open(topic, stands_alone)?);
    say(&format!("reading from {topic}"));
    Ok(if workers == 1 { vec![WorkerSource::Device(source)] } else { WorkerSource::shared(source, workers) })
}

fn listen(settings: &RunSettings, node: &PlanNode, workers: usize) -> Result<Vec<WorkerSource>> {
    let addresses = Listener::addresses(node.arguments.text("at")).map_err(|what| anyhow!("{what}"))?;
    let opened = match &settings.netns {
        Some(name) => {
            let namespace =
                NetNs::open(name).with_context(|| format!("there is no network namespace {name}"))?;
            namespace.run(|| Listener::open(&addresses))??
        }
        None => Listener::open(&addresses)?,
    };
    let names = opened.interfaces().iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>();
    say(&format!("listening on {}", names.join(", ")));
    let listener: Box<dyn Source> = Box::new(opened);
    Ok(if workers == 1 {
        vec![WorkerSource::Device(listener)]
    } else {
        WorkerSource::shared(listener, workers)
    })
}

fn made(node: &PlanNode, workers: usize) -> Result<Vec<WorkerSource>> {
    let text = node.arguments.text("recipe");
    let made: Box<dyn Source> =
        Box::new(GeneratedSource::new(text, clock()).map_err(|error| anyhow!(error.render(text)))?);
    Ok(if workers == 1 { vec![WorkerSource::Whole(made)] } else { WorkerSource::shared(made, workers) })
}

fn device(
    settings: &RunSettings,
    plan: &Plan,
    node: &PlanNode,
    compiler: &Arc<Compiler>,
    workers: usize,
) -> Result<Vec<WorkerSource>> {
    let text = node.kernel_filter.clone().unwrap_or_default();
    let name = node.arguments.text("interface");
    if let Some(topic) = topics::named(Path::new(name))? {
        return read_topic(&topic, plan, workers);
    }
    let way = CaptureBackend::of([name])?;
    let taken = way.clone();
    let filter = node.kernel_filter.clone().map(|text| {
        let compiler = Arc::clone(compiler);
        Arc::new(move |interface: &Interface| match taken.is_xdp() {
            true => compiler.compile_in_front(&text, interface),
            false => compiler.compile(&text, interface),
        }) as af_packet::CompileFilter
    });
    let sends = sending::follows(plan, node);
    let prints = plan.nodes.iter().any(|node| matches!(node.class.name, "print" | "json"));
    let mut capture = AfPacketSettings {
        netns: settings.netns.clone(),
        filter,
        filter_text: text,
        promiscuous: node.arguments.text("promiscuous") == "yes",
        kernel_filter_runs: settings.kernel_filter_runs.clone(),
        tally: node.tally.clone(),
        ring_len: Some(node.arguments.number("ring")).filter(|bytes| *bytes > 0),
        direction: direction(node.arguments.text("direction")),
        // Forwarded packets wait for their block. To segment merged packets again, their segment size is needed.
        latency_ms: if sends {
            sending::LATENCY_MS
        } else if prints {
            LATENCY_INTERACTIVE_MS
        } else {
            LATENCY_RECORDING_MS
        },
        vnet_header: sends,
        receive_hash: plan.nodes.iter().any(|node| node.class.name == "json"),
        order: af_packet::MergeOrder::Time,
        workers,
        ..AfPacketSettings::new(&[name])
    };
    if let Some(wish) = settings.wake.filter(|_| !sends) {
        wish.apply(&mut capture);
    }
    // Options for AF_XDP are for those devices of the graph that it is meant for.
    let opened = live::open(
        capture,
        &way,
        if way.is_xdp() { settings.xdp } else { XdpArgs::default() },
        &TapArgs::default(),
    )?;
    opened.announcements.iter().for_each(|line| say(line));
    let mode: StampMode = node.arguments.text("stamp").parse()?;
    let stamped = |source| WorkerSource::Device(RestampedSource::wrap(source, mode, &settings.stamp_ticks));
    Ok(opened.sources.into_iter().map(stamped).collect())
}

fn direction(word: &str) -> CaptureDirection {
    match word {
        "in" => CaptureDirection::In,
        "out" => CaptureDirection::Out,
        _ => CaptureDirection::Both,
    }
}

/// The interfaces that sources know of now.
pub(crate) fn interfaces<'s>(sources: impl IntoIterator<Item = &'s dyn Source>) -> Vec<Interface> {
    sources.into_iter().flat_map(|source| source.interfaces().iter().cloned()).collect()
}

/// Compiles every filter for all interfaces known, so that a mistake shows before anything is opened for writing.
pub(crate) fn check_filters(plan: &Plan, compiler: &Arc<Compiler>, interfaces: &[Interface]) -> Result<()> {
    check_rules(plan, compiler, interfaces)?;
    // Link types that a store was asked about in vain have no packets here.
    let fit = interfaces.iter().filter(|interface| !compiler.unfit().has(interface.link_type));
    let fit: Vec<Interface> = fit.cloned().collect();
    for node in plan.nodes.iter().filter(|node| node.class.name == "filter") {
        let compile = |interface: &Interface| compiler.compile(node.arguments.text("text"), interface);
        let names = || fit.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ");
        fits_any(&fit, compile).with_context(|| format!("{} on {}", node.name, names()))?;
    }
    Ok(())
}

/// Reads files of rules, and compiles their filters for interfaces.
pub(crate) fn check_rules(plan: &Plan, compiler: &Arc<Compiler>, interfaces: &[Interface]) -> Result<()> {
    let compiler = Arc::clone(compiler);
    let options: InterfaceOptions = Arc::new(move |interface| compiler.options(interface));
    for node in plan.nodes.iter().filter(|node| node.class.name == "rules") {
        check_rule_file(&node.arguments, interfaces, &options)
            .map_err(|why| anyhow!("{}: {why}", node.name))?;
    }
    Ok(())
}

/// Opens every output, by the number of its node.
pub(crate) fn open_outputs(
    settings: &RunSettings,
    plan: &Plan,
    interfaces: &[Interface],
    identity: Option<&Identity>,
) -> Result<HashMap<usize, Box<dyn Stage>>> {
    let is_live = plan.nodes.iter().any(|node| matches!(node.class.name, "device" | "listen"));
    let mut outputs: HashMap<usize, Box<dyn Stage>> = HashMap::new();
    for (index, node) in plan.nodes.iter().enumerate() {
        if !matches!(node.class.make, Constructor::Output) {
            continue;
        }
        outputs.insert(index, open_output(settings, plan, index, interfaces, is_live, identity)?);
    }
    Ok(outputs)
}

/// Opens the output of a node.
pub(crate) fn open_output(
    settings: &RunSettings,
    plan: &Plan,
    index: usize,
    interfaces: &[Interface],
    is_live: bool,
    identity: Option<&Identity>,
) -> Result<Box<dyn Stage>> {
    let node = &plan.nodes[index];
    Ok(match node.class.name {
        "bounce" => Box::new(sending::bounce(settings, node)?),
        "reflect" => Box::new(sending::reflect(settings, plan, index, interfaces)?),
        "record" => Box::new(record(settings, node, interfaces, is_live, identity)?),
        "publish" => match &settings.places {
            Some(places) => Box::new(places.stage(node, interfaces, is_live)?),
            None => {
                bail!("{}: places are published by tapline run, from the start of the graph on", node.name)
            }
        },
        "store" => Box::new(store(node, interfaces, is_live, identity)?),
        _ => Box::new(lines(settings, node, interfaces.len() > 1, is_live)?),
    })
}

fn record(
    settings: &RunSettings,
    node: &PlanNode,
    interfaces: &[Interface],
    is_live: bool,
    identity: Option<&Identity>,
) -> Result<FileOutput> {
    let path = Path::new(node.arguments.text("name"));
    let mut options = WriteOptions::new(path, interfaces);
    options.format = FormatArg::of(None, path)?;
    if let snap @ 1.. = node.arguments.number("snap") {
        options.snap_len = snap as u32;
    }
    let writer = concat!("tapline ", env!("CARGO_PKG_VERSION"));
    let comment = format!("{writer}, graph, stage {}", node.name);
    let clock = is_live.then(|| clock_error::comment(None));
    let comments = [comment].into_iter().chain(clock).collect();
    options.section = Section { comments, ..Section::of_this_machine(writer) };
    let now = clocks();
    let writer = FileWriter::create(options, interfaces, now, privileges::files(path, identity)?)?;
    let output = FileOutput::new(writer, &path.display().to_string(), is_live.then_some(now.wall));
    Ok(match &settings.control {
        Some(control) => output.reopening(control),
        None => output,
    })
}

fn store(
    node: &PlanNode,
    interfaces: &[Interface],
    is_live: bool,
    identity: Option<&Identity>,
) -> Result<StoreOutput> {
    let text = |name: &str| node.arguments.text(name);
    let directory = Path::new(text("name"));
    let keep = node.arguments.nanoseconds("keep");
    let settings = store::settings_of_stage(directory, text("size"), keep, text("segment"))
        .with_context(|| node.name.clone())?;
    let settings = RecorderSettings { is_live, ..settings };
    store::open_output(directory, settings, interfaces, identity)
}

fn lines(
    settings: &RunSettings,
    node: &PlanNode,
    interface: bool,
    is_live: bool,
) -> Result<LinesOutput<File>> {
    let is_terminal = io::stdout().is_terminal();
    let format = if node.class.name == "json" || settings.json {
        LineFormat::Json
    } else {
        let options = Options {
            interface,
            verbose: node.arguments.number("verbose") as u8,
            link_header: node.arguments.text("link") == "yes",
            ..Options::default()
        };
        let has_names = options.port_names;
        let mut printer = Printer::new(options);
        if has_names {
            printer.set_services(Services::system());
        }
        let colored = is_terminal && std::env::var_os("NO_COLOR").is_none();
        LineFormat::Text { printer: Box::new(printer), colored }
    };
    Ok(LinesOutput::new(format, output::standard()?, is_live || is_terminal))
}
