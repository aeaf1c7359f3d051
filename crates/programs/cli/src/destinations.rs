//! Flows from sources to destinations as stages of a graph, as `probe`, `collect-flows` and `find` take them, and the
//! options of destinations that take batches.

use std::path::{self, Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use tapline_export::{Destination, Receiver, Secret, Sensor};
use tapline_file::Section;
use tapline_graph::plan::{DraftId, PlanBuilder, StageDraft, Value};
use tapline_stages::ChunkSettings;
use tapline_syntax::units::{count_in, size, size_in};
use tapline_sys::sandbox::nearest_folder;

use crate::args::parse_duration;
use crate::mistakes::{mistake, misuse};
use crate::stored::{self, TimeArgs};
use crate::stream::is_stream;

/// The least size of a spool, in bytes.
const SPOOL_MIN: u64 = 1_000_000;

/// A destination in words, for messages.
const BATCHES: &str = "a receiver of batches (http://HOST/PATH, https://HOST/PATH, clickhouse://HOST/DB.TABLE, kafka://HOST/TOPIC, batch+file:NAME, batch+stdout:)";

/// Destinations with their texts, which stages of graphs have.
pub(crate) type Destinations<'a> = [(&'a str, Destination)];

/// Whether a destination is standard output.
pub(crate) fn is_on_stdout((_, to): &(&str, Destination)) -> bool {
    to.file() == Some(Path::new("-"))
}

/// The destinations of `--export`, unless there are mistakes that the words of the command explain better than those of
/// the graph. `has_form`: options say what records are like; `json`: results go to standard output, too.
pub(crate) fn destinations<'a>(
    export: Option<&'a str>,
    has_form: bool,
    json: bool,
    args: &ExportArgs,
    collectors: &str,
) -> Result<Vec<(&'a str, Destination)>> {
    let to = Destination::list(export.unwrap_or_default())?;
    if export.is_some() && to.is_empty() {
        bail!(
            "--export names nothing: a collector ({collectors}), {BATCHES} or a file (file:, json:, csv: or parquet: and its name)"
        );
    }
    args.batches.check(&to)?;
    args.places.check()?;
    if export.is_none() && has_form {
        bail!(
            "--template and --biflow say what records are like, and there are none: name a collector or a file (--export)"
        );
    }
    if to.iter().filter(|to| is_on_stdout(to)).count() + usize::from(json) > 1 {
        bail!("only one output can use standard output; give the others file names");
    }
    check_once(&to)?;
    Ok(to)
}

fn check_once(to: &Destinations<'_>) -> Result<()> {
    let file = |to: &Destination| path::absolute(to.file()?).ok().filter(|file| !is_stream(file));
    for (at, (text, one)) in to.iter().enumerate() {
        let is_same = |other: &Destination| file(one).is_some_and(|own| file(other) == Some(own));
        match to[..at].iter().find(|(_, other)| other == one || is_same(other)) {
            Some((other, other_to)) if is_same(other_to) => bail!(
                "{other} and {text}: two destinations of this command write the same file; name another for one of them"
            ),
            Some(_) => bail!("{text} is named twice; name each destination once"),
            None => {}
        }
    }
    Ok(())
}

/// Options of exported flows, metered or collected.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) places: PlaceArgs,
    /// Export protocol: 10 is IPFIX, 9 and 5 are NetFlow.
    #[arg(long, value_name = "N", default_value = "10", value_parser = ["5", "9", "10"], help_heading = "Export")]
    pub(crate) version: String,
    /// Export both directions of a flow in one record (RFC 5103); of collected flows, where they came in one.
    #[arg(long, help_heading = "Export")]
    pub(crate) biflow: bool,
    /// Observation domain (IPFIX), source id (9), or engine type and id in the low 16 bits (5).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u32>(..), help_heading = "Export")]
    domain: u32,
    /// Length of the largest IP packet that carries a message.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = size_in::<u16>(256..), help_heading = "Export")]
    mtu: u16,
    #[command(flatten)]
    pub(crate) parquet: ParquetArgs,
    #[command(flatten)]
    batches: BatchArgs,
    /// Number of largest flows to show, by bytes; 10 if nothing is exported.
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(1..=1_000_000), help_heading = "Reports")]
    pub(crate) top: Option<u32>,
}

/// Files of the places of addresses.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlaceArgs {
    /// Files of the places of addresses, with commas: CSV with a line of column names (network, name, country, as,
    /// as_name), or MMDB such as GeoLite2's. Records get country, autonomous system and network name of both ends, and
    /// the table of flows shows them. The first file that has a field counts; files that change are read again
    /// (docs/enrich.md).
    #[arg(long, value_name = "FILES", help_heading = "Flows")]
    enrich: Option<String>,
}

impl PlaceArgs {
    /// A list without a file is a mistake.
    fn check(&self) -> Result<()> {
        self.enrich.as_deref().map_or(Ok(()), |text| {
            tapline_geo::file_list(text).map(|_| ()).map_err(|error| anyhow!("--enrich: {error}"))
        })
    }

    /// Adds the argument of a stage.
    pub(crate) fn add_to(&self, stage: StageDraft) -> StageDraft {
        stage.with_some("enrich", self.enrich.as_deref()).by("--enrich")
    }

    /// The template of rows: the default one has places where there are files of them.
    pub(crate) fn of_rows(&self, template: &str) -> String {
        self.extended(template, "places")
    }

    /// The template of NetFlow or IPFIX messages. NetFlow has autonomous systems alone, version 5 in a field of its
    /// own.
    pub(crate) fn of_messages(&self, template: &str, version: &str) -> String {
        match version {
            "5" => template.to_owned(),
            "9" => self.extended(template, "bgpSourceAsNumber,bgpDestinationAsNumber"),
            _ => self.extended(template, "places"),
        }
    }

    fn extended(&self, template: &str, more: &str) -> String {
        let words: Vec<&str> = template.split(',').map(str::trim).collect();
        if self.enrich.is_none() || words[0] != "default" || words.contains(&"places") {
            return template.to_owned();
        }
        let new = more.split(',').filter(|word| !words.contains(word));
        words.iter().copied().chain(new).collect::<Vec<_>>().join(",")
    }
}

/// Options of files of Parquet.
#[derive(Clone, Debug, Args)]
pub(crate) struct ParquetArgs {
    /// Close a Parquet file before it exceeds this size; k, M and G are powers of 1000.
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = size_in::<u64>(64_000..=1_000_000_000_000), help_heading = "Export")]
    parquet_size: u64,
    /// Close a Parquet file this long after its first flow, which makes it readable; in packet time for files.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration, help_heading = "Export")]
    parquet_time: Duration,
}

impl ParquetArgs {
    /// Adds the arguments of a stage.
    pub(crate) fn add_to(&self, stage: StageDraft) -> StageDraft {
        stage.option("--parquet-size", "parquet_size", self.parquet_size).option(
            "--parquet-time",
            "parquet_time",
            self.parquet_time,
        )
    }
}

/// Options of batches.
#[derive(Clone, Debug, Args)]
pub(crate) struct BatchArgs {
    /// Seal a batch with this many rows.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = count_in::<u64>(1..=1_000_000), help_heading = "Batches")]
    batch_rows: u64,
    #[command(flatten)]
    receiver: ReceiverArgs,
}

/// Options of receivers of batches: of flows, or of packets.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReceiverArgs {
    /// Folder and size of the spool: blocks (encoded batches) that a receiver does not accept now are kept there, and
    /// delivered later by this run or the next. Once it is full, further blocks are lost and counted.
    #[arg(long, value_name = "DIR,SIZE", help_heading = "Batches")]
    spool: Option<String>,
    /// Name of this sensor in the ids of blocks. Default: the host's name.
    #[arg(long, value_name = "NAME", help_heading = "Batches")]
    sensor: Option<String>,
    /// Seal a batch this long after its first flow or packet; for flows from files, in packet time.
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = parse_duration, help_heading = "Batches")]
    batch_time: Duration,
    /// Memory for waiting batches, for each receiver. On live interfaces further batches are lost and counted; the
    /// reader of a file waits.
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = size_in::<u64>(1_000_000..=1_000_000_000_000), help_heading = "Batches")]
    batch_memory: u64,
    /// Wait at most this long for a receiver to acknowledge, at the end of a run and while a file is read.
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = parse_duration, help_heading = "Batches")]
    patience: Duration,
    /// File with the password of the user in the receiver's URL, or with a token if there is no user; only the first
    /// line is read.
    #[arg(long, value_name = "FILE", help_heading = "Batches")]
    export_secret: Option<PathBuf>,
}

impl ReceiverArgs {
    /// The spool's folder, or the first above it that is there.
    pub(crate) fn spool_folder(&self) -> Option<PathBuf> {
        let (folder, _) = folder_and_size(self.spool.as_deref()?).ok()?;
        Some(nearest_folder(Path::new(folder)))
    }

    /// A spool without a receiver is a mistake.
    pub(crate) fn check_unused(&self) -> Result<()> {
        if self.spool.is_some() {
            misuse!("--spool keeps blocks for a receiver, and there is none: -w kafka://HOST/TOPIC");
        }
        Ok(())
    }

    /// The output of packets to a receiver.
    pub(crate) fn chunks(&self, to: &str, section: Section, is_live: bool) -> Result<ChunkSettings> {
        let to = Receiver::of_packets(to).map_err(mistake)?;
        let spool = self.spool.as_deref().map(folder_and_size).transpose()?;
        Ok(ChunkSettings {
            to,
            sensor: self.sensor.as_deref().map(Sensor::new).transpose().map_err(mistake)?,
            spool: spool.map(|(folder, size)| (folder.into(), size)),
            time: self.batch_time,
            memory: usize::try_from(self.batch_memory).unwrap_or(usize::MAX),
            patience: self.patience,
            secret: self.export_secret.as_deref().map(Secret::of_file).transpose()?,
            section,
            is_live,
        })
    }
}

impl BatchArgs {
    /// Mistakes that the words of the command explain better than those of the graph.
    fn check(&self, to: &Destinations<'_>) -> Result<()> {
        if let Some(sensor) = &self.receiver.sensor {
            Sensor::new(sensor)?;
        }
        let Some(spool) = &self.receiver.spool else { return Ok(()) };
        if receivers(to).next().is_none() {
            bail!("--spool keeps what receivers of batches do not take, and there are none: name {BATCHES}");
        }
        folder_and_size(spool).map(|_| ())
    }

    /// The stage of one of several receivers, which share the size of the spool.
    fn stage(&self, to: &str, receivers: usize) -> StageDraft {
        let ReceiverArgs { spool, sensor, batch_time, batch_memory, patience, export_secret } =
            &self.receiver;
        let spool = spool.as_deref().and_then(|spool| folder_and_size(spool).ok());
        let spool_size = spool.map(|(_, size)| (size / receivers.max(1) as u64).max(SPOOL_MIN));
        let secret = export_secret.as_ref().map(|path| path.to_string_lossy().into_owned());
        StageDraft::new("batches")
            .arg(to)
            .by("--export")
            .option("--batch-rows", "rows", self.batch_rows)
            .option("--batch-time", "time", *batch_time)
            .option("--batch-memory", "memory", *batch_memory)
            .option("--patience", "patience", *patience)
            .with_some("spool", spool.map(|(folder, _)| folder))
            .with_some("spool_size", spool_size)
            .with_some("sensor", sensor.as_deref())
            .with_some("secret", secret)
    }
}

/// Form of the records of a command's flows.
pub(crate) struct Records<'a> {
    /// Elements of lines, Parquet and batches.
    pub(crate) template: String,
    /// The exporter's address; the word `records` where each flow has its own.
    pub(crate) exporter: Option<Value>,
    pub(crate) args: &'a ExportArgs,
}

impl Records<'_> {
    /// The stage of the collectors among destinations, if there are any. Messages have the elements of `template`.
    pub(crate) fn messages(&self, to: &Destinations<'_>, template: &str) -> Option<StageDraft> {
        let stage = collectors_of(to)?.option("--version", "version", Value::word(&self.args.version));
        Some(self.add_to(stage, template).option("--mtu", "mtu", self.args.mtu))
    }

    /// Adds what all records have to a stage.
    fn add_to(&self, stage: StageDraft, template: &str) -> StageDraft {
        let ExportArgs { biflow, domain, .. } = *self.args;
        let stage = stage.option("--template", "template", template).option("--biflow", "biflow", biflow);
        stage.option("--domain", "domain", domain)
    }

    /// Adds the stages of files and receivers behind a meter. `parquet`: further arguments of files of a format.
    pub(crate) fn write(
        &self,
        graph: &mut PlanBuilder,
        meter: DraftId,
        to: &Destinations<'_>,
        of_files: impl Fn(&str, StageDraft) -> StageDraft,
    ) {
        let exporter =
            |stage: StageDraft| stage.with_some("exporter", self.exporter.clone()).by("--exporter");
        let rows = to.iter().filter_map(|(_, to)| match to {
            Destination::Rows(format, path) => Some((*format, path)),
            _ => None,
        });
        for (at, (format, path)) in rows.enumerate() {
            let lines = lines(at, format, &path.to_string_lossy());
            let lines = of_files(format, exporter(self.add_to(lines, &self.template)));
            let lines = graph.add(self.args.places.add_to(lines));
            graph.connect(meter, lines);
        }
        for (at, receiver) in receivers(to).enumerate() {
            let stage =
                self.args.batches.stage(receiver, receivers(to).count()).named(format!("batches{at}"));
            let stage = graph.add(self.args.places.add_to(exporter(self.add_to(stage, &self.template))));
            graph.connect(meter, stage);
        }
    }
}

/// The stage of a file of rows.
pub(crate) fn lines(at: usize, format: &str, path: &str) -> StageDraft {
    let lines = StageDraft::new("flowlog").named(format!("lines{at}")).arg(path).by("--export");
    lines.with("format", Value::word(format))
}

/// The stage of collectors, which are named with commas.
pub(crate) fn collectors(to: &str) -> StageDraft {
    StageDraft::new("ipfix").named("export").arg(to).by("--export")
}

/// The stage of the collectors among destinations.
pub(crate) fn collectors_of(to: &Destinations<'_>) -> Option<StageDraft> {
    let is_one = |(_, to): &&(&str, Destination)| matches!(to, Destination::Messages(_));
    let names: Vec<&str> = to.iter().filter(is_one).map(|(text, _)| *text).collect();
    (!names.is_empty()).then(|| collectors(&names.join(",")))
}

/// The receivers of batches among destinations.
fn receivers<'a>(to: &Destinations<'a>) -> impl Iterator<Item = &'a str> {
    to.iter().filter(|(_, to)| matches!(to, Destination::Blocks(_))).map(|(text, _)| *text)
}

/// Leads sources through a filter, if there is one, to a meter.
pub(crate) fn lead(
    graph: &mut PlanBuilder,
    sources: impl IntoIterator<Item = StageDraft>,
    filter: Option<&str>,
    meter: StageDraft,
) -> DraftId {
    let only = filter.map(|text| StageDraft::new("filter").named("only").arg(text).by("FILTER"));
    let mut sources = sources.into_iter();
    let chain = graph.add_chain(sources.next().into_iter().chain(only).chain([meter]));
    for source in sources {
        let source = graph.add(source);
        graph.connect(source, chain[1]);
    }
    chain[chain.len() - 1]
}

/// Checks the packets of `-i` and `-r`, and the times of a store.
pub(crate) fn check_inputs(interfaces: &[String], file: Option<&Path>, times: &TimeArgs) -> Result<()> {
    if file.is_none() && interfaces.is_empty() {
        return Err(mistake(
            "no packets: name an interface (-i eth0; tapline interfaces lists them) or a file (-r trace.pcap)",
        ));
    }
    match file.map(stored::store_name).transpose()?.flatten() {
        Some(store) => times.check(&store),
        None => times.check_unused(),
    }
}

/// The stages of `-i` and `-r`, of a store with its times.
pub(crate) fn timed_inputs(interfaces: &[String], file: Option<&Path>, times: &TimeArgs) -> Vec<StageDraft> {
    let file = file.map(|path| match stored::store_name(path) {
        Ok(Some(store)) => times.of(&store).text(),
        _ => path.to_string_lossy().into_owned(),
    });
    inputs(interfaces, file.as_deref())
}

/// The stages of `-i` and `-r`.
pub(crate) fn inputs(interfaces: &[String], file: Option<&str>) -> Vec<StageDraft> {
    let devices = interfaces.iter().map(|name| StageDraft::new("device").arg(name.as_str()).by("-i"));
    devices.chain(file.map(|name| StageDraft::new("file").arg(name).by("-r"))).collect()
}

/// Adds the view and the greatest flows of a command.
pub(crate) fn show(
    graph: &mut PlanBuilder,
    meter: DraftId,
    is_viewed: bool,
    top: Option<u32>,
    places: &PlaceArgs,
) {
    let view = is_viewed.then(|| StageDraft::new("view").named("live"));
    let top = top.map(|count| StageDraft::new("flowtop").named("top").option("--top", "n", count));
    for stage in view.into_iter().chain(top.map(|top| places.add_to(top))) {
        let stage = graph.add(stage);
        graph.connect(meter, stage);
    }
}

fn folder_and_size(spool: &str) -> Result<(&str, u64)> {
    let (folder, text) = spool.rsplit_once(',').unwrap_or((spool, ""));
    match size(text) {
        Ok(bytes) if bytes >= SPOOL_MIN && !folder.is_empty() => Ok((folder, bytes)),
        Ok(bytes) if !folder.is_empty() => {
            misuse!("--spool: {bytes} bytes are less than a megabyte: give a greater size")
        }
        _ => misuse!("--spool {spool}: expected DIR,SIZE, such as --spool /var/spool/tapline,20G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_output_has_a_name_in_each_format() {
        let files = "file:-,batch+file:-?format=json,csv:-,parquet:-,file:a,batch+file:a,csv:a,udp://-";
        let all = Destination::list(files).expect("all are known");
        assert_eq!(all.iter().filter(|to| is_on_stdout(to)).count(), 4);
    }

    #[test]
    fn the_default_template_has_places_once() {
        let args = PlaceArgs { enrich: Some("a.csv".to_owned()) };
        assert_eq!(args.of_rows("default,tcp"), "default,tcp,places");
        assert_eq!(args.of_rows("default, places"), "default, places");
        assert_eq!(args.of_rows("octetDeltaCount"), "octetDeltaCount");
        let systems = "default,bgpSourceAsNumber,bgpDestinationAsNumber";
        assert_eq!(args.of_messages("default", "9"), systems);
        assert_eq!(args.of_messages(systems, "9"), systems);
        assert_eq!(args.of_messages("default", "5"), "default");
        assert_eq!(PlaceArgs { enrich: None }.of_rows("default"), "default");
    }

    #[test]
    fn a_spool_has_a_folder_and_a_size() {
        assert_eq!(folder_and_size("a,b,20G").expect("both"), ("a,b", 20_000_000_000));
        for wrong in ["a", ",20G", "a,", "a,x", "a,1k", ""] {
            assert!(folder_and_size(wrong).is_err(), "{wrong}");
        }
    }
}
