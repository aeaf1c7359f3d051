//! The sources and outputs of a plan, opened.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result, anyhow, bail};
use tapline_capture::Listener;
use tapline_capture::af_packet::{
    self, AfPacketSettings, CaptureDirection, LATENCY_INTERACTIVE_MS, LATENCY_RECORDING_MS,
};
use tapline_export::TopicAddress;
use tapline_file::{FileInput, MergeOrder, WriteOptions};
use tapline_graph::catalog::{
    Catalog, Constructor, GraphSettings, OpenContext, OpenError, OpenSite, Property, StageClass,
};
use tapline_graph::plan::{Plan, PlanNode};
use tapline_graph::{Control, RestampedSource, Stage, WorkerSource};
use tapline_meters::StampMode;
use tapline_packet::Interface;
use tapline_print::{Options, Printer};
use tapline_source::{Error, Source};
use tapline_stages::{LineFormat, LinesOutput, StageSettings};
use tapline_store::RecorderSettings;
use tapline_sys::NetNs;
use tapline_sys::privilege::Identity;
use tapline_sys::sandbox::folder_of;

use super::publishing::socket_of;
use super::sending;
use super::settings::RunSettings;
use crate::args::FormatArg;
use crate::capture::ColorArg;
use crate::compiler::Compiler;
use crate::live::{self, CaptureBackend, TapArgs, XdpArgs};
use crate::output::{self, say};
use crate::stored::{self, PastArgs};
use crate::{files, privileges, store, topics};

/// State of this program, which the classes below reach when they open.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) settings: RunSettings,
    pub(crate) compiler: Arc<Compiler>,
    pub(crate) control: Arc<Control>,
    /// The user that the process becomes once all is open.
    pub(crate) identity: Option<Identity>,
}

/// The classes of graphs: those of the library, with the sources and outputs that this program opens.
pub(crate) fn catalog() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
        let own = [&DEVICE, &FILE, &LISTEN, &PRINT, &JSON, &RECORD, &STORE, &PUBLISH, &BOUNCE, &REFLECT];
        own.into_iter().fold(tapline_stages::catalog().clone(), Catalog::with)
    });
    &CATALOG
}

static DEVICE: StageClass = StageClass {
    make: Constructor::Source(|context| device(Opener::of(context), context).map_err(boxed)),
    ..tapline_stages::DEVICE
};
static FILE: StageClass = StageClass {
    make: Constructor::Source(|context| file(Opener::of(context), context).map_err(boxed)),
    ..tapline_stages::FILE
};
static LISTEN: StageClass = StageClass {
    make: Constructor::Source(|context| listen(Opener::of(context), context).map_err(boxed)),
    ..tapline_stages::LISTEN
};
static PRINT: StageClass = StageClass {
    make: Constructor::Output(|context| lines(context, Opener::of(context).settings.json).map_err(boxed)),
    ..tapline_stages::PRINT
};
static JSON: StageClass = StageClass {
    make: Constructor::Output(|context| lines(context, true).map_err(boxed)),
    ..tapline_stages::JSON
};
static RECORD: StageClass = StageClass {
    make: Constructor::Output(|context| record(Opener::of(context), context).map_err(boxed)),
    ..tapline_stages::RECORD
};
static STORE: StageClass = StageClass {
    make: Constructor::Output(|context| store(Opener::of(context), context).map_err(boxed)),
    ..tapline_stages::STORE
};
static PUBLISH: StageClass = StageClass {
    access: |arguments, access| {
        access.allowed.removes.extend(folder_of(&socket_of(arguments)).map(Path::to_owned));
    },
    make: Constructor::Output(|context| publish(Opener::of(context), context).map_err(boxed)),
    ..tapline_stages::PUBLISH
};
static BOUNCE: StageClass = StageClass {
    make: Constructor::Output(|context| {
        sending::bounce(&Opener::of(context).settings, context).map_err(boxed)
    }),
    ..tapline_stages::BOUNCE
};
static REFLECT: StageClass = StageClass {
    make: Constructor::Output(|context| {
        sending::reflect(&Opener::of(context).settings, context).map_err(boxed)
    }),
    ..tapline_stages::REFLECT
};

/// An error of this program on its way through the library.
#[derive(Debug)]
struct Boxed(anyhow::Error);

impl std::error::Error for Boxed {}

impl fmt::Display for Boxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

fn boxed(error: anyhow::Error) -> OpenError {
    Box::new(Boxed(error))
}

/// The error as it was made, so that its kind decides about the exit status.
fn unboxed(error: OpenError) -> anyhow::Error {
    match error.downcast::<Boxed>().map_err(|error| error.downcast::<Error>()) {
        Ok(ours) => ours.0,
        Err(Ok(error)) => (*error).into(),
        Err(Err(other)) => anyhow!(other),
    }
}

impl Opener {
    /// The opener of stages that come later: places would have no socket, and files are opened as the present user,
    /// for rights were given up.
    pub(super) fn for_changes(&self) -> Opener {
        let settings = RunSettings { places: None, ..self.settings.clone() };
        Opener { settings, identity: None, ..self.clone() }
    }

    fn of<'a>(context: &OpenContext<'a>) -> &'a Opener {
        context.site.program.downcast_ref().expect("classes of this program are opened by its opener")
    }

    fn site<'a>(&'a self, interfaces: &'a [Interface], is_live: bool) -> OpenSite<'a> {
        OpenSite { workers: 1, interfaces, is_live, program: self }
    }

    /// Opens every source for each worker, in the order of the plan: the kernel shares out the packets of an interface,
    /// and the workers those of a file.
    pub(crate) fn sources(&self, plan: &Plan, workers: usize) -> Result<Vec<Vec<WorkerSource>>> {
        let site = OpenSite { workers, ..self.site(&[], plan.has(Property::Live)) };
        plan.open_sources(&site).map_err(unboxed)
    }

    /// Opens every output, by the number of its node.
    pub(crate) fn outputs(
        &self,
        plan: &Plan,
        interfaces: &[Interface],
        is_live: bool,
    ) -> Result<HashMap<usize, Box<dyn Stage>>> {
        plan.open_outputs(&self.site(interfaces, is_live)).map_err(unboxed)
    }

    /// Opens the output of a node.
    pub(crate) fn output(
        &self,
        plan: &Plan,
        index: usize,
        interfaces: &[Interface],
        is_live: bool,
    ) -> Result<Box<dyn Stage>> {
        plan.open_output(index, &self.site(interfaces, is_live)).map_err(unboxed)
    }

    /// Checks files and filters for all interfaces known, and where packets are sent, so that a mistake shows before
    /// anything is opened for writing.
    pub(crate) fn check(&self, plan: &Plan, interfaces: &[Interface]) -> Result<()> {
        check(plan, &self.compiler, interfaces)?;
        sending::check(&self.settings, plan, interfaces)
    }
}

/// Checks files and filters for interfaces, of which there may be none yet.
pub(crate) fn check(plan: &Plan, compiler: &Arc<Compiler>, interfaces: &[Interface]) -> Result<()> {
    let of_interfaces = Arc::clone(compiler);
    let options = Arc::new(move |interface: &Interface| of_interfaces.options(interface));
    let settings: GraphSettings = StageSettings { options, ..StageSettings::default() }.into();
    // Link types that a store was asked about in vain have no packets here.
    let fit = interfaces.iter().filter(|interface| !compiler.unfit().has(interface.link_type));
    let fit: Vec<Interface> = fit.cloned().collect();
    for node in &plan.nodes {
        (node.class.check)(&node.arguments, &fit, &settings).map_err(unboxed).map_err(|error| {
            // A filter depends on the link types of interfaces, other mistakes do not.
            let names = || fit.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ");
            match error.is::<Error>() && !fit.is_empty() {
                true => error.context(format!("{} on {}", node.name, names())),
                false => error.context(node.name.clone()),
            }
        })?;
    }
    Ok(())
}

fn file(opener: &Opener, context: &OpenContext<'_>) -> Result<Vec<WorkerSource>> {
    let (node, workers) = (context.node(), context.site.workers);
    let path = Path::new(node.arguments.text("name"));
    if let Some(topic) = topics::named(path)? {
        return read_topic(&topic, context);
    }
    if let Some(name) = stored::store_name(path)? {
        let text = node.kernel_filter.clone().unwrap_or_default();
        let input = stored::open_filtered(&name, &PastArgs::default(), &text, &opener.compiler)?;
        say(format!("reading from the store {}", name.directory.display()));
        return Ok(WorkerSource::shared(Box::new(input), workers));
    }
    let file = files::open(path, &opener.control)?;
    say(files::announcement(&file));
    Ok(WorkerSource::shared(Box::new(FileInput::new(vec![file], MergeOrder::Given)), workers))
}

/// The packets of a topic. A source that waits does so itself.
fn read_topic(topic: &TopicAddress, context: &OpenContext<'_>) -> Result<Vec<WorkerSource>> {
    let wants_rights = |node: &&PlanNode| node.is_source() || node.class.has(Property::Sends);
    let stands_alone = context.plan.nodes.iter().filter(wants_rights).count() == 1;
    let source = Box::new(topics::open(topic, stands_alone)?);
    say(format!("reading from {topic}"));
    Ok(waiting(source, context.site.workers))
}

/// A source that waits for its packets itself, for each worker.
fn waiting(source: Box<dyn Source>, workers: usize) -> Vec<WorkerSource> {
    if workers == 1 { vec![WorkerSource::Device(source)] } else { WorkerSource::shared(source, workers) }
}

fn listen(opener: &Opener, context: &OpenContext<'_>) -> Result<Vec<WorkerSource>> {
    let addresses = Listener::addresses(context.arguments().text("at")).map_err(|what| anyhow!("{what}"))?;
    let opened = match &opener.settings.netns {
        Some(name) => {
            let namespace =
                NetNs::open(name).with_context(|| format!("there is no network namespace {name}"))?;
            namespace.run(|| Listener::open(&addresses))??
        }
        None => Listener::open(&addresses)?,
    };
    let names = opened.interfaces().iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>();
    say(format!("listening on {}", names.join(", ")));
    Ok(waiting(Box::new(opened), context.site.workers))
}

fn device(opener: &Opener, context: &OpenContext<'_>) -> Result<Vec<WorkerSource>> {
    let (settings, plan, node) = (&opener.settings, context.plan, context.node());
    let text = node.kernel_filter.clone().unwrap_or_default();
    let name = node.arguments.text("interface");
    if let Some(topic) = topics::named(Path::new(name))? {
        return read_topic(&topic, context);
    }
    let way = CaptureBackend::of([name])?;
    let taken = way.clone();
    let filter = node.kernel_filter.clone().map(|text| {
        let compiler = Arc::clone(&opener.compiler);
        Arc::new(move |interface: &Interface| match taken.is_xdp() {
            true => compiler.compile_in_front(&text, interface),
            false => compiler.compile(&text, interface),
        }) as af_packet::CompileFilter
    });
    let is_ours = |source: &&PlanNode| std::ptr::eq(*source, node);
    let is_published = |index: &usize| {
        plan.nodes[*index].class.name == PUBLISH.name
            && sending::sources_before(plan, *index).iter().any(is_ours)
    };
    if (0..plan.nodes.len()).any(|index| is_published(&index)) {
        live::check_shared(name)?;
    }
    let sends = sending::follows(plan, node);
    let mut capture = AfPacketSettings {
        netns: settings.netns.clone(),
        filter,
        filter_text: opener.compiler.language().in_words(&text),
        promiscuous: node.arguments.text("promiscuous") == "yes",
        kernel_filter_runs: settings.kernel_filter_runs.clone(),
        tally: tapline_stages::kernel_tally(node.tally.as_ref()).cloned(),
        ring_len: Some(node.arguments.number("ring")).filter(|bytes| *bytes > 0),
        direction: direction(node.arguments.text("direction")),
        // Forwarded packets wait for their block. To segment merged packets again, their segment size is needed.
        latency_ms: if sends {
            sending::LATENCY_MS
        } else if plan.has(Property::Interactive) {
            LATENCY_INTERACTIVE_MS
        } else {
            LATENCY_RECORDING_MS
        },
        vnet_header: sends,
        receive_hash: plan.has(Property::ReceiveHash),
        order: af_packet::MergeOrder::Time,
        workers: context.site.workers,
        ..AfPacketSettings::new(&[name])
    };
    if let Some(wish) = settings.wake.filter(|_| !sends) {
        wish.apply(&mut capture);
    }
    // Options for AF_XDP are for those devices of the graph that it is meant for.
    let xdp = if way.is_xdp() { settings.xdp } else { XdpArgs::default() };
    let opened = live::open(capture, &way, xdp, &TapArgs::default())?;
    opened.announcements.iter().for_each(say);
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

fn publish(opener: &Opener, context: &OpenContext<'_>) -> Result<Box<dyn Stage>> {
    let (node, OpenSite { interfaces, is_live, .. }) = (context.node(), *context.site);
    match &opener.settings.places {
        Some(places) => Ok(Box::new(places.stage(node, interfaces, is_live)?)),
        None => bail!("{}: places are published by tapline run, from the start of the graph on", node.name),
    }
}

fn record(opener: &Opener, context: &OpenContext<'_>) -> Result<Box<dyn Stage>> {
    let (node, OpenSite { interfaces, is_live, .. }) = (context.node(), *context.site);
    let path = Path::new(node.arguments.text("name"));
    let mut options = WriteOptions::new(path, interfaces);
    options.format = FormatArg::of(None, path)?;
    if let snap @ 1.. = node.arguments.number("snap") {
        options.snap_len = snap as u32;
    }
    options.section = output::section(&format!("graph, stage {}", node.name), is_live, None);
    let files = privileges::files(path, opener.identity.as_ref())?;
    let output = output::file(options, path, interfaces, is_live, files)?;
    Ok(Box::new(output.reopening(&opener.control)))
}

fn store(opener: &Opener, context: &OpenContext<'_>) -> Result<Box<dyn Stage>> {
    let (node, OpenSite { interfaces, is_live, .. }) = (context.node(), *context.site);
    let directory = Path::new(node.arguments.text("name"));
    let settings = store::settings_of_stage(&node.arguments).with_context(|| node.name.clone())?;
    let settings = RecorderSettings { is_live, ..settings };
    Ok(Box::new(store::open_output(directory, settings, interfaces, opener.identity.as_ref())?))
}

fn lines(context: &OpenContext<'_>, as_json: bool) -> Result<Box<dyn Stage>> {
    let is_terminal = io::stdout().is_terminal();
    let format = if as_json {
        LineFormat::Json
    } else {
        let options = Options {
            interface: context.site.interfaces.len() > 1,
            verbose: context.arguments().number("verbose") as u8,
            link_header: context.arguments().text("link") == "yes",
            ..Options::default()
        };
        LineFormat::Text { printer: Box::new(Printer::new(options)), colored: ColorArg::Auto.is_colored() }
    };
    Ok(Box::new(LinesOutput::new(format, output::standard()?, context.site.is_live || is_terminal)))
}
