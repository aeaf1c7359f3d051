//! Inputs of a capture: files, or interfaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use tapline_capture::af_packet::{
    self, AfPacketSettings, CaptureDirection, LATENCY_FILE_MS, LATENCY_INTERACTIVE_MS, LATENCY_RECORDING_MS,
    LATENCY_STORE_MS, TimestampSource, is_pattern,
};
use tapline_export::TopicAddress;
use tapline_file::{BlockQueue, FileInput, MergeOrder};
use tapline_graph::{Control, CookedSource, PieceSource, RestampedSource, StampTicks};
use tapline_meters::StampMode;
use tapline_packet::{Interface, LinkType};
use tapline_source::Source;
use tapline_store::StoreName;

use super::args::{CaptureArgs, DirectionArg};
use super::filtering::Filtering;
use crate::files::{self, announcement};
use crate::live::{self, CaptureBackend, Live, link_type_text};
use crate::mistakes::{mistake, misuse};
use crate::stored::{self, StoreSearch};
use crate::topics;

/// Opened sources, one for each worker, and what people should know about them.
pub(super) struct Input {
    pub(super) sources: Vec<Box<dyn Source>>,
    pub(super) announcements: Vec<String>,
    pub(super) is_live: bool,
    pub(super) search: Option<StoreSearch>,
    /// Whether interfaces may follow that are not known yet: later blocks of a pcapng file describe them.
    pub(super) may_grow: bool,
    /// Blocks without packets in the files, for a copy of them.
    pub(super) blocks: BlockQueue,
}

/// Opens the requested input.
pub(super) fn open(args: &CaptureArgs, filtering: &Arc<Filtering>, control: &Arc<Control>) -> Result<Input> {
    if let Some(topic) = topics::of_sources(&args.read, &args.interface)? {
        args.past.check_unused()?;
        args.excerpt.check_unused()?;
        return open_topic(args, &topic);
    }
    let stores: Vec<_> = args.read.iter().map(|name| stored::store_name(name)).collect::<Result<_>>()?;
    match stores.as_slice() {
        [Some(name)] => {
            args.excerpt.check_unused()?;
            open_store(args, name, filtering)
        }
        names if names.iter().any(Option::is_some) => {
            misuse!("a store is read alone: leave the other files out")
        }
        [] => {
            args.past.check_unused()?;
            args.excerpt.check_unused()?;
            open_live(args, filtering)
        }
        _ => open_files(args, filtering, control),
    }
}

/// The packets of a topic.
fn open_topic(args: &CaptureArgs, topic: &TopicAddress) -> Result<Input> {
    if args.workers > 1 || args.direction != DirectionArg::Inout {
        misuse!("{topic}: --workers and -Q are for live captures: leave them out");
    }
    let input = topics::open(topic, true)?;
    check_link_type(args, input.interfaces().iter())?;
    Ok(Input {
        sources: vec![Box::new(input)],
        announcements: vec![format!("reading from {topic}")],
        is_live: false,
        search: None,
        may_grow: false,
        blocks: BlockQueue::default(),
    })
}

/// The packets of a store.
fn open_store(args: &CaptureArgs, name: &StoreName, filtering: &Arc<Filtering>) -> Result<Input> {
    let compile = {
        let filtering = Arc::clone(filtering);
        Arc::new(move |interface: &Interface| filtering.compile_for_search(interface))
    };
    let (input, asked) =
        stored::open(name, &args.past, filtering.text(), args.language, compile, filtering.unfit())?;
    check_link_type(args, input.interfaces().iter())?;
    let announcements = vec![format!("reading from the store {}", name.directory.display())];
    Ok(Input {
        sources: vec![Box::new(input)],
        announcements,
        is_live: false,
        search: Some(asked),
        may_grow: false,
        blocks: BlockQueue::default(),
    })
}

fn open_files(args: &CaptureArgs, filtering: &Filtering, control: &Arc<Control>) -> Result<Input> {
    if args.direction != DirectionArg::Inout {
        misuse!(
            "-Q: most files do not say which packets were sent; use the filter (inbound, outbound) where they do"
        );
    }
    if args.workers > 1 && (!args.only_counts() || filtering.names()?.is_some()) {
        misuse!(
            "--workers is for live captures, and for files whose packets are only counted (--count, without a limit)"
        );
    }
    let excerpt = args.excerpt.of_files(&args.past)?;
    let open = |path: &PathBuf| match &args.stream {
        Some(stream) => {
            let name = path.display().to_string();
            Ok(FileInput::open_stream(Box::new(Arc::clone(stream)), &name)?)
        }
        None => files::open(path, control),
    };
    let mut files = args.read.iter().map(open).collect::<Result<Vec<_>>>()?;
    let blocks = BlockQueue::default();
    if args.write.as_deref().is_some_and(|path| stored::directory(path).is_none()) {
        files.iter_mut().for_each(|file| file.copy_blocks_to(&blocks));
    }
    let announcements = files.iter().map(announcement).collect();
    let may_grow = files.iter().any(|file| file.format_name() == "pcapng");
    let order = if args.merge { MergeOrder::Time } else { MergeOrder::Given };
    let input = match args.stream {
        Some(_) => FileInput::of_answer(files.remove(0)),
        None => FileInput::new(files, order).with_excerpt(excerpt),
    };
    let source = with_link_type(args, Box::new(input))?;
    let sources = match usize::from(args.workers) {
        0 | 1 => vec![source],
        workers => PieceSource::all(source, workers),
    };
    Ok(Input { sources, announcements, is_live: false, search: None, may_grow, blocks })
}

/// The source with packets of the link type that -y asks for: a cooked one can be made of others.
fn with_link_type(args: &CaptureArgs, source: Box<dyn Source>) -> Result<Box<dyn Source>> {
    if let Some(link_type) = cooked_link_type(args) {
        return Ok(CookedSource::wrap(source, link_type));
    }
    check_link_type(args, source.interfaces().iter())?;
    Ok(source)
}

/// The cooked link type that -y asks for, if it does.
fn cooked_link_type(args: &CaptureArgs) -> Option<LinkType> {
    let wanted = args.linktype.as_deref().and_then(LinkType::from_name);
    wanted.filter(|link_type| CookedSource::makes(*link_type))
}

/// Whether all interfaces have the link type that -y asks for.
fn check_link_type<'a>(args: &CaptureArgs, interfaces: impl Iterator<Item = &'a Interface>) -> Result<()> {
    let Some(name) = &args.linktype else { return Ok(()) };
    let Some(wanted) = LinkType::from_name(name) else {
        misuse!("-y {name}: there is no such link type; tapline capture -L lists those of an interface");
    };
    for interface in interfaces {
        if interface.link_type != wanted {
            misuse!("-y {name}: {} has {} and no other", interface.name, link_type_text(interface.link_type));
        }
    }
    Ok(())
}

fn open_live(args: &CaptureArgs, filtering: &Arc<Filtering>) -> Result<Input> {
    let (settings, way) = settings(args, filtering)?;
    let Live { sources, mut announcements } = live::open(settings, &way, args.xdp, &args.tap)?;
    if announcements.is_empty() {
        let names = chosen_interfaces(args)?.join(", ");
        announcements.push(format!("nothing matches {names} yet; waiting for an interface that does"));
    }
    announcements
        .extend(cooked_link_type(args).map(|to| format!("packets are given {}", link_type_text(to))));
    let (mode, ticks) = (stamp_mode(args), StampTicks::default());
    let stamped = sources.into_iter().map(|source| RestampedSource::wrap(source, mode, &ticks));
    let sources = stamped.map(|source| with_link_type(args, source)).collect::<Result<_>>()?;
    Ok(Input {
        sources,
        announcements,
        is_live: true,
        search: None,
        may_grow: false,
        blocks: BlockQueue::default(),
    })
}

fn settings(args: &CaptureArgs, filtering: &Arc<Filtering>) -> Result<(AfPacketSettings, CaptureBackend)> {
    let interfaces = chosen_interfaces(args)?;
    let names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
    let way = CaptureBackend::of(names.iter().copied())?;
    let taken = way.clone();
    let cooked = cooked_link_type(args);
    // The filter is for packets as outputs get them, and the XDP program would take what it does not refuse.
    if let Some(link_type) = cooked.filter(|_| way.is_xdp()) {
        misuse!("-y {link_type}: packets that AF_XDP takes keep their link type; leave xdp: out");
    }
    let is_cooked = cooked.is_some();
    let filter = (!filtering.text().trim().is_empty() && !is_cooked).then(|| {
        let filtering = Arc::clone(filtering);
        Arc::new(move |interface: &Interface| match taken.is_xdp() {
            true => filtering.compile_in_front(interface),
            false => filtering.compile(interface),
        }) as af_packet::CompileFilter
    });
    let mut settings = AfPacketSettings {
        netns: args.netns.clone(),
        filter,
        filter_text: filtering.in_words(),
        snap_len: args.snap_len(),
        promiscuous: !args.no_promiscuous_mode,
        direction: match args.direction {
            DirectionArg::In => CaptureDirection::In,
            DirectionArg::Out => CaptureDirection::Out,
            DirectionArg::Inout => CaptureDirection::Both,
        },
        ring_len: args.buffer_size.map(|kib| kib.saturating_mul(1024)),
        latency_ms: latency_ms(args),
        timestamps: timestamps(args)?,
        workers: usize::from(args.workers.max(1)),
        // JSON shows it, and nothing else does.
        receive_hash: args.json && args.prints(),
        order: af_packet::MergeOrder::Time,
        tally: (args.in_kernel && args.only_counts() && !is_cooked).then(af_packet::KernelTally::of_count),
        ..AfPacketSettings::new(&names)
    };
    if let Some(wish) = args.wake.wake {
        wish.apply(&mut settings);
    }
    Ok((settings, way))
}

/// Interfaces as named: `-i a,b -i c`. Without -i the first that is up, as tcpdump chooses.
pub(super) fn chosen_interfaces(args: &CaptureArgs) -> Result<Vec<String>> {
    let named: Vec<String> = args
        .interface
        .iter()
        .flat_map(|names| names.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let present = af_packet::list(args.netns.as_deref())?;
    let up = present.iter().filter(|interface| interface.is_up);
    match up.min_by_key(|interface| (interface.is_loopback, !interface.is_running, interface.index)) {
        Some(interface) => Ok(vec![interface.name.clone()]),
        None => bail!(
            "no interface is up: name one with -i (tapline interfaces lists them), or read a file with -r"
        ),
    }
}

/// The longest time that packets wait for their block to fill.
fn latency_ms(args: &CaptureArgs) -> u32 {
    if args.immediate_mode {
        return 1;
    }
    if args.prints() || args.packet_buffered {
        return LATENCY_INTERACTIVE_MS;
    }
    // A clock that is read here gives packets the time when they are read.
    let has_late_clock = stamp_mode(args) != StampMode::Kernel;
    let ends_by_itself = args.count_packets.is_some() || args.rotate_seconds.is_some();
    if has_reader(args) || has_late_clock || ends_by_itself || has_several_interfaces(args) {
        return LATENCY_RECORDING_MS;
    }
    let to_store = args.write.as_deref().and_then(stored::directory).is_some();
    if to_store { LATENCY_STORE_MS } else { LATENCY_FILE_MS }
}

/// Whether packets of several interfaces go by their times: those of a busy one would wait for blocks of an idle one.
fn has_several_interfaces(args: &CaptureArgs) -> bool {
    let mut names = args.interface.iter().flat_map(|names| names.split(','));
    names.next().is_some_and(|name| is_pattern(name.trim())) || names.next().is_some()
}

/// Whether something reads the output while packets come: a pipe's other end, a receiver, an everyday command.
fn has_reader(args: &CaptureArgs) -> bool {
    let is_piped = args.writes_standard_output() || args.arrow.arrow || args.is_for_wireshark;
    let is_special = |path: &Path| fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    is_piped
        || args.write.as_deref().is_some_and(is_special)
        || args.has_own_output
        || args.written_receiver().is_some()
}

/// The source of timestamps by `-j`: one of the kernel and the adapter, or a clock that is read here.
fn timestamps(args: &CaptureArgs) -> Result<TimestampSource> {
    let Some(name) = args.time_stamp_type.as_ref().filter(|_| stamp_mode(args) == StampMode::Kernel) else {
        return Ok(TimestampSource::default());
    };
    TimestampSource::from_name(name).ok_or_else(|| {
        let known: Vec<&str> =
            TimestampSource::NAMES.into_iter().chain(READ_HERE.map(StampMode::name)).collect();
        mistake(format_args!("-j {name}: there is no such time stamp type; there are: {}", known.join(", ")))
    })
}

/// Clocks that are read here, when a packet is looked at.
pub(super) const READ_HERE: [StampMode; 3] = [StampMode::Tsc, StampMode::TscSync, StampMode::Batch];

fn stamp_mode(args: &CaptureArgs) -> StampMode {
    let named = |mode: &StampMode| args.time_stamp_type.as_deref() == Some(mode.name());
    READ_HERE.into_iter().find(named).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn args(words: &[&str]) -> CaptureArgs {
        let command = CaptureArgs::augment_args(clap::Command::new("capture"));
        let matches = command.get_matches_from([&["capture"], words].concat());
        CaptureArgs::from_arg_matches(&matches).expect("arguments")
    }

    /// Only what nobody looks at before the end waits for long.
    #[test]
    fn a_file_of_one_interface_is_patient() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.pcap");
        let file = file.to_str().expect("text");
        let latency = |more: &[&str]| latency_ms(&args(&[&["-w", file], more].concat()));
        assert_eq!(latency(&["-i", "eth0"]), LATENCY_FILE_MS);
        for more in [
            &["-i", "eth0,eth1"][..],
            &["-i", "eth0", "-i", "eth1"],
            &["-i", "any"],
            &["-i", "veth*"],
            &["-i", "eth0", "-c", "1"],
            &["-i", "eth0", "-G", "60"],
            &["-i", "eth0", "-j", "tsc"],
        ] {
            assert_eq!(latency(more), LATENCY_RECORDING_MS, "{more:?}");
        }
        assert_eq!(latency(&["-i", "eth0", "--immediate-mode"]), 1);
        assert_eq!(latency(&["-i", "eth0", "--print"]), LATENCY_INTERACTIVE_MS);
        assert_eq!(latency_ms(&args(&["-i", "eth0", "-w", "-"])), LATENCY_RECORDING_MS);
        assert_eq!(
            latency_ms(&args(&["-i", "eth0", "-w", "/dev/null"])),
            LATENCY_RECORDING_MS,
            "no regular file"
        );
        assert_eq!(latency_ms(&args(&["-i", "eth0", "--count"])), LATENCY_FILE_MS);
    }
}
