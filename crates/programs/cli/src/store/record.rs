//! `tapline record`: a capture into a store.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, Command, FromArgMatches, ValueEnum};
use tapline_daemon::RecordRule;
use tapline_graph::catalog::Arguments;
use tapline_graph::grouped;
use tapline_packet::{Interface, Timestamp};
use tapline_stages::StoreOutput;
use tapline_store::{Catalog, Cutoff, IndexOptions, Overload, Recorder, RecorderSettings, StoreName};
use tapline_syntax::units::{self, count_in, size_in};
use tapline_sys::disk;
use tapline_sys::privilege::Identity;

use crate::args::{LanguageArgs, NetworkArgs, SNAP_LEN, parse_duration, parse_interval};
use crate::capture::{self, CaptureArgs};
use crate::escape::plain;
use crate::live::{TapArgs, XdpArgs};
use crate::mistakes::misuse;
use crate::session::clocks;
use crate::stored;
use crate::strict::ReportArgs;

pub(crate) const RECORD_EXAMPLES: &str = "\
Examples:
  tapline record -i eth0 --to /srv/store --size 80%             the disk's oldest packets make room for new ones
  tapline record -i eth0 --to /srv/store --size 500GB --keep 7d 'not port 22'
  tapline record -i eth0 --to /srv/store --compress zstd        each chunk compressed, for more days on the same disk
  tapline record -i tap:office --to /srv/store                  as a reader of tapline serve
  tapline record -i eth0 --to /srv/store --index names          found by name too: tapline find --name .example.org
  tapline record -r trace.pcapng --to /srv/store                files that exist already
  tapline find /srv/store --from -5m 'host 10.0.0.1'            found a second after they came, while it records

A store is a directory of pcapng files, each with an index: docs/store.md. Room for all of them is reserved at the start.";

/// Arguments of `tapline record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Interface to record: a name, a glob such as 'eth*', several with commas, xdp:NAME, or tap:CAPTURE. May be
    /// repeated.
    #[arg(short, long, value_name = "NAMES", help_heading = "Input")]
    interface: Vec<String>,
    /// Record the packets of a file. May be repeated.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Input", conflicts_with_all = ["interface", "netns", "container"])]
    read: Vec<PathBuf>,
    #[command(flatten)]
    network: NetworkArgs,
    /// Keep at most this many bytes of a packet; 0 is the default of 262144.
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAP_LEN, value_parser = size_in::<u32>(..), help_heading = "Input")]
    snapshot_length: u32,
    /// Ring size in KiB, for each interface and worker, 64 to 2097152; by default from link speed and memory.
    #[arg(short = 'B', long, value_name = "KIB", value_parser = count_in::<u64>(64..=2_097_152), help_heading = "Input")]
    buffer_size: Option<u64>,
    /// Do not use promiscuous mode.
    #[arg(short = 'p', long, help_heading = "Input")]
    no_promiscuous_mode: bool,
    #[command(flatten)]
    xdp: XdpArgs,
    #[command(flatten)]
    tap: TapArgs,

    #[command(flatten)]
    store: StoreOptions,
    /// Read the filter from a file.
    #[arg(short = 'F', value_name = "FILE", help_heading = "Filter")]
    filter_file: Option<PathBuf>,
    #[command(flatten)]
    language: LanguageArgs,

    /// Stop after this many packets, 1 or more.
    #[arg(short, value_name = "N", value_parser = count_in::<u64>(1..), help_heading = "Stop")]
    count_packets: Option<u64>,
    /// Stop after this time: seconds, or with a unit: 90s, 5m, 1h, 7d.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Stop")]
    duration: Option<Duration>,

    /// Print the account at this interval: 1, 500ms, 1m.
    #[arg(long, value_name = "TIME", value_parser = parse_interval, help_heading = "Reports")]
    stats: Option<Duration>,
    /// Print the account as JSON.
    #[arg(long, help_heading = "Reports")]
    json: bool,
    #[command(flatten)]
    report: ReportArgs,
    /// After opening, become this user, who then owns the store. By default the user who called sudo, if one did.
    #[arg(short = 'Z', long, value_name = "USER", help_heading = "Privileges")]
    relinquish_privileges: Option<String>,

    /// Record only packets that this filter accepts, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

/// Options of a store to record to.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    /// The store: a directory, which is created if it does not exist.
    #[arg(long, value_name = "STORE", help_heading = "Store")]
    to: PathBuf,
    /// Room for packets: bytes (500GB, 2TB, 10GiB), or a share of the disk (80%). Two segments at least.
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = store_size, help_heading = "Store")]
    size: StoreSize,
    /// Delete packets older than this, a segment at a time: 12h, 7d.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Store")]
    keep: Option<Duration>,
    /// Segment size of a new store, 4MiB to 4GiB (1GiB unless given). Retention deletes whole segments.
    #[arg(long, value_name = "SIZE", value_parser = size_in::<u64>(..), help_heading = "Store")]
    segment: Option<u64>,
    /// Compress each chunk: zstd, or zstd:LEVEL with a level of 1 (the default) to 19. Segments are then files
    /// .pcapng.zst, and --size counts the room that they take on the disk.
    #[arg(long, value_name = "zstd[:LEVEL]", value_parser = compression, help_heading = "Store")]
    compress: Option<i32>,
    /// Longest time until packets can be found, 10ms to 1h.
    #[arg(long, value_name = "TIME", default_value = "800ms", value_parser = parse_duration, help_heading = "Store")]
    flush: Duration,
    /// Flush to disk this often, 10ms to 1h; a power failure loses at most this much.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration, help_heading = "Store")]
    sync: Duration,

    /// Optional keys of the index, with commas: names (of DNS, and of the hellos of TLS, DTLS and QUIC), mac (addresses
    /// of Ethernet). Addresses, ports, flows, types, protocols, VLANs and tunnels are always in it.
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        help_heading = "Store",
        conflicts_with = "no_index"
    )]
    index: Vec<IndexKeys>,

    /// Write no index: recording costs less, and each search reads all chunks in its times. `tapline store repair`
    /// makes the indexes later.
    #[arg(long, help_heading = "Store")]
    no_index: bool,

    /// Record the first bytes of each flow only: SIZE for all flows, 'FILTER=SIZE' for those whose first packet the
    /// filter accepts. May be repeated; the first that means a flow counts. Packets left out are counted.
    #[arg(long, value_name = "[FILTER=]SIZE", value_parser = cutoff, help_heading = "Store")]
    cut: Vec<Cutoff>,

    /// Packets to drop when the disk is too slow: wait (nothing; the recorder waits, and the source may lose packets), newest
    /// (packets that come), oldest (packets that waited longest to be written), flows (new flows as a whole). Every drop
    /// is counted.
    #[arg(long, value_name = "POLICY", default_value = "wait", help_heading = "Store")]
    overload: OverloadArg,
}

/// Runs the command.
pub(crate) fn record(args: &RecordArgs) -> Result<ExitCode> {
    if args.interface.is_empty() && args.read.is_empty() {
        misuse!("no source: give -i INTERFACE (tapline interfaces lists them) or -r FILE");
    }
    let snap_len = if args.snapshot_length == 0 { SNAP_LEN } else { args.snapshot_length };
    let settings = args.store.settings(snap_len)?;
    let capture = CaptureArgs {
        interface: args.interface.clone(),
        read: args.read.clone(),
        netns: args.network.name().cloned(),
        snapshot_length: args.snapshot_length,
        buffer_size: args.buffer_size,
        no_promiscuous_mode: args.no_promiscuous_mode,
        xdp: args.xdp,
        tap: args.tap.clone(),
        write: Some(StoreName::of(&args.store.to)),
        recorder: Some(settings),
        filter_file: args.filter_file.clone(),
        language: args.language,
        count_packets: args.count_packets,
        duration: args.duration,
        stats: args.stats,
        json: args.json,
        report: args.report,
        relinquish_privileges: args.relinquish_privileges.clone(),
        filter: args.filter.clone(),
        ..CaptureArgs::without_arguments()
    };
    capture::run(&capture)
}

impl StoreOptions {
    fn settings(&self, snap_len: u32) -> Result<RecorderSettings> {
        let of_all = self.cut.iter().position(|cutoff| cutoff.filter.is_none());
        if of_all.is_some_and(|at| at + 1 < self.cut.len()) {
            misuse!("--cut: one without a filter is for all flows that are left, so it comes last");
        }
        Ok(RecorderSettings {
            size: size(self.size, &self.to)?,
            segment_len: self.segment,
            keep_ns: self.keep.map(|keep| i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX)),
            flush_ns: interval("--flush", self.flush)?,
            sync_ns: interval("--sync", self.sync)?,
            snap_len,
            cutoffs: self.cut.clone(),
            compress: self.compress,
            overload: match self.overload {
                OverloadArg::Wait => Overload::Wait,
                OverloadArg::Newest => Overload::Newest,
                OverloadArg::Oldest => Overload::Oldest,
                OverloadArg::Flows => Overload::Flows,
            },
            index: (!self.no_index).then(|| index_options(&self.index)),
            ..RecorderSettings::default()
        })
    }
}

/// The settings of a table `[[record]]` of `tapline serve`: its keys are options of the command.
pub(crate) fn settings_of_rule(rule: &RecordRule, snap_len: u32) -> Result<RecorderSettings> {
    let command = StoreOptions::augment_args(Command::new("record").no_binary_name(true));
    let parsed = command.try_get_matches_from(rule.options());
    let options = parsed.and_then(|matches| StoreOptions::from_arg_matches(&matches));
    // The rest of the message is about the command line.
    let first_line = |error: clap::Error| {
        let text = error.to_string();
        anyhow!("{}", text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    };
    options.map_err(first_line)?.settings(snap_len)
}

fn cutoff(text: &str) -> Result<Cutoff, String> {
    let (filter, size) = match text.rsplit_once('=') {
        Some((filter, size)) => (Some(filter.trim().to_owned()), size),
        None => (None, text),
    };
    let bytes = units::size(size.trim()).map_err(|error| format!("{error}: give SIZE or 'FILTER=SIZE'"))?;
    Ok(Cutoff { filter, bytes })
}

/// The level of `zstd` or `zstd:LEVEL`.
fn compression(text: &str) -> Result<i32, String> {
    let unknown =
        || format!("unknown compression `{text}`; expected zstd, or zstd:LEVEL with a level of 1 to 19");
    let level = match text.strip_prefix("zstd").ok_or_else(unknown)? {
        "" => return Ok(1),
        level => level.strip_prefix(':').and_then(|level| units::count(level).ok()),
    };
    level.filter(|level| (1..=19).contains(level)).map(|level| level as i32).ok_or_else(unknown)
}

fn interval(name: &str, time: Duration) -> Result<i64> {
    if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&time) {
        misuse!("{name}: give 10ms to 1h");
    }
    Ok(time.as_nanos() as i64)
}

/// The options of an index with these keys.
pub(super) fn index_options(keys: &[IndexKeys]) -> IndexOptions {
    IndexOptions { macs: keys.contains(&IndexKeys::Mac), names: keys.contains(&IndexKeys::Names) }
}

/// Keys of the index that are there by option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum IndexKeys {
    /// Names of DNS, and of the hellos of TLS, DTLS and QUIC.
    Names,
    /// MAC addresses of Ethernet.
    Mac,
}

/// Packets to drop when the disk is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OverloadArg {
    /// None: the recorder waits for the disk, and the source may lose packets.
    Wait,
    /// Packets that come.
    Newest,
    /// Packets that have waited longest to be written.
    Oldest,
    /// New flows, each as a whole.
    Flows,
}

/// Room for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreSize {
    Bytes(u64),
    /// Percent of the disk.
    Share(u64),
}

fn store_size(text: &str) -> Result<StoreSize, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return units::size(text)
            .map(StoreSize::Bytes)
            .map_err(|error| format!("{error}, or a share of the disk: 80%"));
    };
    let share = units::count(percent).ok().filter(|share| (1..=100).contains(share));
    share.map(StoreSize::Share).ok_or_else(|| "a share of the disk is 1% to 100%".to_owned())
}

/// Bytes for a store in a directory.
fn size(size: StoreSize, directory: &Path) -> Result<u64> {
    let share = match size {
        StoreSize::Bytes(bytes) => return Ok(bytes),
        StoreSize::Share(percent) => percent,
    };
    // The directory may not be there yet; its disk is that of the first one above it that is.
    let there = directory.ancestors().find(|path| path.exists());
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let space = disk::space(there).map_err(|error| error.source)?;
    Ok((u128::from(space.total) * u128::from(share) / 100) as u64)
}

/// Settings from the arguments of the stage `store`. An existing store keeps the length of its segments.
pub(crate) fn settings_of_stage(arguments: &Arguments) -> Result<RecorderSettings> {
    let directory = Path::new(arguments.text("name"));
    let keep_ns = arguments.nanoseconds("keep");
    let segment_len = units::size(arguments.text("segment")).map_err(|error| anyhow!("segment: {error}"))?;
    let room = store_size(arguments.text("size")).map_err(|error| anyhow!("size: {error}"))?;
    let compress = match arguments.text("compress") {
        "none" => None,
        text => Some(compression(text).map_err(|error| anyhow!("compress: {error}"))?),
    };
    Ok(RecorderSettings {
        size: size(room, directory)?,
        segment_len: Catalog::open(directory).is_err().then_some(segment_len),
        keep_ns: (keep_ns > 0).then(|| i64::try_from(keep_ns).unwrap_or(i64::MAX)),
        snap_len: SNAP_LEN,
        compress,
        ..RecorderSettings::default()
    })
}

/// Room for the store is reserved now, with all rights; its files are those of the user that this program becomes.
pub(crate) fn open_output(
    directory: &Path,
    settings: RecorderSettings,
    interfaces: &[Interface],
    identity: Option<&Identity>,
) -> Result<StoreOutput> {
    stored::check_open_files()?;
    let now = clocks().wall;
    let recorder = Recorder::open(directory, settings, interfaces, now)?;
    if let Some(Identity { uid, gid, .. }) = identity {
        recorder.give_to(*uid, *gid)?;
    }
    let tell = Box::new(|line: &str| drop(writeln!(io::stderr(), "tapline: {}", plain(line))));
    Ok(output(recorder, directory, now, tell))
}

/// Says how many packets a store lacks that were to be written to it; `false` if there are any.
pub(crate) fn tell_missing(lost: u64) -> bool {
    if lost > 0 {
        let _ = writeln!(io::stderr(), "tapline: {}", missing_text(lost));
    }
    lost == 0
}

/// Packets that a store lacks, for people.
pub(crate) fn missing_text(lost: u64) -> String {
    format!("{} packets are not in the store: they could not be written", grouped(lost))
}

/// The recorder as the last stage of a graph.
pub(crate) fn output(
    recorder: Recorder,
    directory: &Path,
    now: Timestamp,
    tell: Box<dyn FnMut(&str) + Send>,
) -> StoreOutput {
    StoreOutput::new(recorder, &directory.display().to_string(), now, tell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_has_bytes_and_perhaps_a_filter() {
        let of = |filter: Option<&str>, bytes| Ok(Cutoff { filter: filter.map(str::to_owned), bytes });
        assert_eq!(cutoff("10MB"), of(None, 10_000_000));
        assert_eq!(cutoff("tcp[13] = 2 = 64KiB"), of(Some("tcp[13] = 2"), 65_536));
        assert!(cutoff("udp").is_err() && cutoff("udp=").is_err());
    }

    #[test]
    fn keys_of_a_table_are_options_of_the_command() {
        let rule = RecordRule {
            to: "/srv/store".into(),
            size: Some("20MB".to_owned()),
            keep: Some("7d".to_owned()),
            cut: vec!["udp=1k".to_owned()],
            index: vec!["names".to_owned()],
            ..RecordRule::default()
        };
        let settings = settings_of_rule(&rule, 96).unwrap();
        assert_eq!((settings.size, settings.snap_len), (20_000_000, 96));
        assert_eq!(settings.keep_ns, Some(7 * 86_400 * 1_000_000_000));
        assert_eq!(settings.flush_ns, RecorderSettings::default().flush_ns);
        assert_eq!(settings.cutoffs, [Cutoff { filter: Some("udp".to_owned()), bytes: 1000 }]);
        assert_eq!(settings.index, Some(IndexOptions { macs: false, names: true }));
        for (key, value) in [("size", "x"), ("sync", "1ms"), ("index", "colour")] {
            let mut rule = RecordRule { to: "/srv/store".into(), ..RecordRule::default() };
            match key {
                "size" => rule.size = Some(value.to_owned()),
                "sync" => rule.sync = Some(value.to_owned()),
                _ => rule.index = vec![value.to_owned()],
            }
            let error = settings_of_rule(&rule, 96).unwrap_err().to_string();
            assert!(error.contains(key) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_compression_has_a_name_and_perhaps_a_level() {
        let given = ["zstd", "zstd:3", "zstd:19", "zstd:0", "zstd:20", "zstd:", "zstd3", "gzip", ""];
        let levels = given.map(|text| compression(text).ok());
        let none = [None; 6];
        assert_eq!(levels[..3], [Some(1), Some(3), Some(19)]);
        assert_eq!(levels[3..], none);
        let rule =
            RecordRule { to: "/srv/store".into(), compress: Some("zstd:2".into()), ..RecordRule::default() };
        assert_eq!(settings_of_rule(&rule, 96).unwrap().compress, Some(2));
    }

    #[test]
    fn a_cut_off_of_all_flows_comes_last() {
        let settings = |cut: &[&str]| {
            let cut = cut.iter().map(|text| (*text).to_owned()).collect();
            settings_of_rule(&RecordRule { to: "/srv/store".into(), cut, ..RecordRule::default() }, 96)
        };
        assert!(settings(&["udp=1k", "7k"]).is_ok());
        assert!(settings(&["udp=1k", "7k", "8k"]).is_err() && settings(&["7k", "udp=1k"]).is_err());
    }

    #[test]
    fn a_store_takes_bytes_or_a_share_of_the_disk() {
        assert_eq!(store_size("10GiB"), Ok(StoreSize::Bytes(10 << 30)));
        assert_eq!(store_size("80%"), Ok(StoreSize::Share(80)));
        assert!(["0%", "101%", "5X", "%"].iter().all(|text| store_size(text).is_err()));
    }
}
