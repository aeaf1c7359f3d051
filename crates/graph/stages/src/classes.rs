//! All classes. Those that are a stage of one file declare themselves there.

use std::sync::{Arc, LazyLock};

use tapline_filter::Options;
use tapline_filterset::MatchPolicy;
use tapline_graph::catalog::{
    Arguments, BuildContext, Catalog, Constructor, OpenContext, OpenError, Order, Outputs, Parameter,
    ParameterType, Property, StageClass, refuse,
};
use tapline_graph::{Stage, WorkerSource};
use tapline_ir::CompiledFilter;
use tapline_meters::StampMode;
use tapline_packet::{Interface, LinkType, Timestamp};
use tapline_source::Error;
use tapline_store::StoreName;
use tapline_sys::clock;
use tapline_sys::sandbox::folder_of;

use crate::generated::GeneratedSource;
use crate::passes::PASSES;
use crate::settings::StageSettings;
use crate::tag_look::TagLook;
use crate::{FilterStage, fits_any};

/// The classes of this crate.
pub fn catalog() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new(CLASSES, PASSES));
    &CATALOG
}

/// Every class, sources first, then stages that narrow, change, count, and end.
static CLASSES: &[StageClass] = &[
    DEVICE,
    FILE,
    GENERATE,
    LISTEN,
    FILTER,
    crate::filters::CLASS,
    crate::rules::CLASS,
    crate::names::CLASS,
    crate::fpl::CLASS,
    crate::script::CLASS,
    crate::r#match::CLASS,
    crate::signatures::CLASS,
    crate::first::CLASS,
    crate::shunt::CLASS,
    crate::sample::CLASS,
    crate::dedup::CLASS,
    crate::rate::CLASS,
    crate::cut::CLASS,
    crate::decap::CLASS,
    crate::trailer::CLASS,
    crate::arista7150::CLASS,
    crate::mask::CLASS,
    crate::streams::reassemble::CLASS,
    crate::delay::CLASS,
    crate::merge::CLASS,
    crate::balance::CLASS,
    crate::switch::CLASS,
    crate::tee::CLASS,
    crate::count::CLASS,
    crate::histogram::CLASS,
    crate::bursts::CLASS,
    crate::top::CLASS,
    crate::verify::CLASS,
    crate::rtp::CLASS,
    crate::streams::written::CLASS,
    crate::streams::extract::CLASS,
    crate::flow::CLASS,
    crate::collect::CLASS,
    crate::flowtop::CLASS,
    crate::view::CLASS,
    crate::watch::CLASS,
    crate::ipfix::CLASS,
    crate::flowlog::CLASS,
    crate::batches::CLASS,
    PRINT,
    JSON,
    RECORD,
    STORE,
    crate::publish::CLASS,
    crate::bounce::CLASS,
    crate::reflect::CLASS,
    crate::drop::CLASS,
];

/// The class `device`; programs open it.
pub const DEVICE: StageClass = StageClass {
    name: "device",
    summary: "packets of a network interface",
    description: "AF_PACKET, as `tapline capture -i`: the host sends and receives as before. A filter that all of its packets meet first \
        runs in the kernel.",
    parameters: &[
        Parameter::required("interface", ParameterType::Text)
            .means("its name; `any` for all; patterns such as eth*; xdp:eth0 takes the packets away from the host, by AF_XDP (docs/afxdp.md)"),
        Parameter::new("ring", ParameterType::Number(0, 4_000_000_000), "0")
            .means("bytes of the ring that holds packets until they are read; 0 for the default of tapline capture -B"),
        Parameter::new("promiscuous", ParameterType::Choice(&["yes", "no"]), "yes")
            .means("whether the interface receives packets to other hosts"),
        Parameter::new("direction", ParameterType::Choice(&["both", "in", "out"]), "both")
            .means("in: packets that the interface receives; out: packets that this host sends there"),
        Parameter::new("stamp", ParameterType::Choice(&StampMode::NAMES), "kernel")
            .means("source of time stamps: kernel: the kernel's; tsc: the processor's counter when the packet is read; tsc-sync: the counter, \
                kept in step with the system's clock; batch: the system's clock once a batch (tapline profile --timestamps measures them)"),
    ],
    example: "device(eth0) -> print",
    properties: &[Property::Live],
    make: Constructor::Source(refuse),
    ..StageClass::BASE
};

/// The class `file`; programs open it.
pub const FILE: StageClass = StageClass {
    name: "file",
    summary: "packets of a capture file or of a store",
    description: "pcap, pcapng and ERF, also packed with gzip, zstd or lz4; store:DIRECTORY is a store, store:DIRECTORY?from=-1h&to=-10m a time \
        of it; with follow in place of to= packets that are being recorded come too. The graph ends when all files have ended.",
    parameters: &[Parameter::required("name", ParameterType::Path)
        .means("the file; - is standard input, store:DIRECTORY a store")],
    example: "file(\"a.pcapng\") -> count",
    access: |arguments, access| {
        let store = StoreName::parse(arguments.text("name").as_ref()).and_then(Result::ok);
        access.allowed.reads.extend(store.map(|store| store.directory));
    },
    make: Constructor::Source(refuse),
    ..StageClass::BASE
};

const GENERATE: StageClass = StageClass {
    name: "generate",
    summary: "packets made from a recipe, as fast as the graph takes them",
    description: "The same recipe gives the same packets and time stamps always. Rates and gaps set the time stamps; packets are not delayed to \
        them. Words and keys: \
        tapline generate --help, docs/generate.md.",
    parameters: &[Parameter::required("recipe", RECIPE)
        .means("the recipe of the packets: \"udp size=imix flows=1000 rate=100k count=1M\"; without count or duration there is no end")],
    example: "generate(\"tcp flows=100 count=10k\") -> count -> drop",

    make: Constructor::Source(generate),
    ..StageClass::BASE
};

/// The class `listen`; programs open it.
pub const LISTEN: StageClass = StageClass {
    name: "listen",
    summary: "datagrams that come to UDP sockets of this machine",
    description: "A socket for each address. A datagram is a packet with the headers of IP and UDP, so that every stage takes it; `collect` makes flows of \
        it. Datagrams for which a socket had no room are lost, and counted.",
    parameters: &[Parameter::required("at", ParameterType::Text)
        .means("addresses, with commas: udp://:4739 is a port on all addresses of the machine, udp://192.0.2.1:2055 one on this address")],
    example: "listen(\"udp://:4739,udp://:2055\") -> collect -> flowtop",
    properties: &[Property::Live],
    make: Constructor::Source(refuse),
    ..StageClass::BASE
};

const FILTER: StageClass = StageClass {
    name: "filter",
    summary: "packets that a filter accepts",
    description: "The language is that of tcpdump, with Tapline's modifiers (docs/filter.md); it is compiled for the link type of each interface and runs as native \
        code on long runs.",
    parameters: &[
        Parameter::required("text", FILTER_TEXT).means("the filter: \"tcp port 80 or udp port 53\""),
        crate::filters::FRAGMENTS,
    ],
    example: "device(eth0) -> filter(\"tcp port 80\") -> record(\"web.pcapng\")",
    access: |arguments, access| {
        access.allowed.ip |= tapline_filter::may_ask_for_names(arguments.text("text"));
    },
    check: |arguments, interfaces, settings| {
        Ok(fits_any(interfaces, |interface| {
            compile(arguments.text("text"), &(StageSettings::of(settings).options)(interface))
        })?)
    },
    refused: "filtered",
    expand: crate::names::expand,
    make: Constructor::Stage(filter),
    ..StageClass::BASE
};

/// The class `print`; programs open it.
pub const PRINT: StageClass = StageClass {
    name: "print",
    summary: "packets as lines of text on standard output",
    description: "The text is that of tapline capture.",
    parameters: &[
        Parameter::new("verbose", ParameterType::Number(0, 3), "0").means("as -v, -vv, -vvv"),
        Parameter::new("link", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether the link header is shown, as -e"),
    ],
    outputs: Outputs::None,
    order: Order::All,
    example: "device(eth0) -> filter(\"icmp\") -> print(verbose=1)",
    properties: &[Property::Interactive],
    make: Constructor::Output(refuse),
    ..StageClass::BASE
};

/// The class `json`; programs open it.
pub const JSON: StageClass = StageClass {
    name: "json",
    summary: "packets as JSON, one object a line, on standard output",
    outputs: Outputs::None,
    order: Order::All,
    example: "file(\"a.pcap\") -> json",
    properties: &[Property::Interactive, Property::ReceiveHash],
    make: Constructor::Output(refuse),
    ..StageClass::BASE
};

/// The class `record`; programs open it.
pub const RECORD: StageClass = StageClass {
    name: "record",
    summary: "packets into a capture file",
    description: "The name's end chooses format and packing, as tapline capture -w does: .pcap, .pcapng, .gz, .zst, .lz4.",
    parameters: &[
        Parameter::required("name", ParameterType::Path).means("the file; it is replaced"),
        Parameter::new("snap", ParameterType::Number(0, 262_144), "0")
            .means("the most bytes of a packet; 0 for all"),
    ],
    outputs: Outputs::None,
    order: Order::All,
    example: "device(eth0) -> record(\"all.pcapng.zst\")",
    properties: &[Property::Writer],
    access: |arguments, access| match arguments.text("name") {
        "-" => {}
        name => access.captures.extend(folder_of(name.as_ref()).map(Into::into)),
    },
    make: Constructor::Output(refuse),
    ..StageClass::BASE
};

/// The class `store`; programs open it.
pub const STORE: StageClass = StageClass {
    name: "store",
    summary: "packets into a store, with an index",
    description: "As tapline record --to does: the store is made if it is not there, its oldest segments make room, and tapline find has the packets \
        a second later. Packets of it are read by file(\"store:DIRECTORY\").",
    parameters: &[
        Parameter::required("name", ParameterType::Path).means("the store's directory"),
        Parameter::new("size", ParameterType::Text, "10GiB")
            .means("room for packets: bytes (500GB, 10GiB), or a share of the disk (80%); two segments at least"),
        Parameter::new("keep", ParameterType::Duration, "0")
            .means("packets older than this are deleted, a segment at a time; 0 to keep them as long as there is room"),
        Parameter::new("segment", ParameterType::Text, "1GiB")
            .means("segment size of a new store, 4MiB to 4GiB; an existing one keeps its own"),
        Parameter::new("compress", ParameterType::Text, "none")
            .means("zstd, or \"zstd:LEVEL\" with a level of 1 to 19, compresses each chunk"),
    ],
    outputs: Outputs::None,
    order: Order::All,
    example: "device(eth0) -> filter(\"not port 22\") -> store(\"/srv/store\", size=80%, keep=7d)",
    properties: &[Property::Writer, Property::Archive],
    access: |arguments, access| access.allowed.makes.push(arguments.text("name").into()),
    make: Constructor::Output(refuse),
    ..StageClass::BASE
};

/// The text of a filter, as `tapline filter explain` takes it.
pub const FILTER_TEXT: ParameterType = ParameterType::Language("filter", |text| {
    tapline_filter::parse(text).map(drop).map_err(|error| error.render(text))
});

/// A recipe for packets, as `tapline generate` takes it.
const RECIPE: ParameterType = ParameterType::Language("recipe", |text| {
    tapline_generator::Recipe::parse(text).map(drop).map_err(|error| error.render(text))
});

fn generate(context: &OpenContext<'_>) -> Result<Vec<WorkerSource>, OpenError> {
    let text = context.arguments().text("recipe");
    let now = Timestamp::from_nanos(clock::realtime_ns());
    let source = GeneratedSource::new(text, now).map_err(|error| error.render(text))?;
    Ok(match context.site.workers {
        1 => vec![WorkerSource::Whole(Box::new(source))],
        workers => WorkerSource::shared(Box::new(source), workers),
    })
}

fn filter(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let text = arguments.text("text").to_owned();
    if arguments.text("fragments") == "follow" {
        return Ok(crate::filters::of_texts(vec![text], MatchPolicy::All, vec![0], arguments, site));
    }
    let options = Arc::clone(&StageSettings::of(site.common).options);
    let knows_tags = TagLook::is_known_to(&text) || options(&Interface::new("", LinkType::ETHERNET)).any_vlan;
    let compile = Arc::new(move |interface: &_| compile(&text, &options(interface)));
    let stage = FilterStage::new(compile, site.is_first);
    let stage = if knows_tags { stage } else { stage.looking_for_tags() };
    Ok(Box::new(if StageSettings::of(site.common).interpret { stage.interpreted() } else { stage }))
}

/// The program of a filter; none for the filter of everything.
fn compile(text: &str, options: &Options) -> Result<Option<CompiledFilter>, Error> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let program = tapline_filter::compile(text, options);
    program.map(Some).map_err(|error| Error::Filter(error.render(text)))
}
