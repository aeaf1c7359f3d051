//! `ipfix`: flows go to collectors. `flowlog`: they become lines of text, or Parquet.

use std::any::Any;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tapline_capture::{Error, OutputAccount, Wants};
use tapline_flow::export::{
    Element, ExportAccount, Exporter, Options, RowFormat, RowWriter, Target, Version,
};
#[cfg(feature = "parquet")]
use tapline_flow::export::{ParquetLimits, ParquetWriter};
use tapline_flow::{DetailFields, Flow};
use tapline_packet::Timestamp;

use crate::catalog::{Arguments, Class, Kind, Make, Order, Outputs, Parameter, Site, Takes};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Ended, Moment, Own, Stage};
use crate::table::{Table, grouped};

/// Messages of live interfaces that are not full wait for so many ticks: a second. Those of files wait until they are full, so that they are the same
/// however fast a file is read.
const TICKS_WAITING: u32 = 10;
/// How long a TCP collector may keep a meter of live interfaces waiting, whose ring fills meanwhile; and one of files, which can wait.
const PATIENCE_LIVE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(5);

/// What [`RowWriter`] calls standard output.
const STANDARD_OUTPUT: &str = "standard output";

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "ipfix",
    summary: "flows go to collectors, as IPFIX or NetFlow",
    description: "Right behind `flow`. Each direction becomes a record, unless biflows are asked for. Its account is of packets: those in records that were sent are \
        written, those in records that some collector did not take are lost, as are those of IPv6 with NetFlow v5, which has no place for them. With several \
        workers each is an observation domain of its own, numbered from `domain`.",
    parameters: &[
        Parameter {
            name: "to",
            kind: Kind::Text,
            default: None,
            meaning: "the collectors, with commas: udp://HOST:PORT, tcp://HOST:PORT, file:NAME; HOST:PORT means UDP",
        },
        Parameter {
            name: "version",
            kind: Kind::Choice(&["10", "9", "5"]),
            default: Some("10"),
            meaning: "10 is IPFIX, 9 and 5 are NetFlow",
        },
        Parameter {
            name: "template",
            kind: Kind::Text,
            default: Some("default"),
            meaning: "the elements of a record by IANA's names, with commas (docs/flows.md), default, and words of flow's details for all of theirs",
        },
        Parameter {
            name: "biflow",
            kind: Kind::Choice(&["no", "yes"]),
            default: Some("no"),
            meaning: "whether both directions are one record (RFC 5103; IPFIX)",
        },
        Parameter {
            name: "domain",
            kind: Kind::Number(0, u32::MAX as u64),
            default: Some("1"),
            meaning: "observation domain, source id, or engine type and id",
        },
        Parameter {
            name: "exporter",
            kind: Kind::Text,
            default: Some("none"),
            meaning: "the exporter's address, for exporterIPv4Address or exporterIPv6Address in the template, and to send from",
        },
        Parameter {
            name: "mtu",
            kind: Kind::Number(256, 65_535),
            default: Some("1500"),
            meaning: "the most bytes of an IP packet with a message",
        },
        Parameter {
            name: "templates",
            kind: Kind::Number(1, 1_000_000),
            default: Some("1000"),
            meaning: "over UDP, templates are sent again after so many messages",
        },
        Parameter {
            name: "template_time",
            kind: Kind::Duration,
            default: Some("60s"),
            meaning: "and after so long",
        },
        Parameter {
            name: "spread",
            kind: Kind::Choice(&["all", "flow"]),
            default: Some("all"),
            meaning: "all: each collector gets all flows; flow: each flow goes to one of them",
        },
        Parameter {
            name: "rate",
            kind: Kind::Number(0, 10_000_000),
            default: Some("0"),
            meaning: "the most messages a second to each collector, which the packets then wait for; 0 for no limit",
        },
        Parameter {
            name: "enterprise",
            kind: Kind::Number(1, u32::MAX as u64),
            default: Some("32473"),
            meaning: "the private enterprise number under which elements stand that IANA does not know; 32473 is that of examples",
        },
    ],
    outputs: Outputs::None,
    takes: Takes::Flows(check_meters),
    order: Order::Flow,
    example: "device(eth0) -> flow -> ipfix(\"127.0.0.1:4739,127.0.0.1:2055\")",
    make: Make::Stage(make),
};

/// The class of rows.
pub(crate) const ROWS: Class = Class {
    name: "flowlog",
    summary: "flows become lines of JSON or CSV, or files of Parquet",
    description: "Right behind `flow`. Each direction becomes a line or row, unless biflows are asked for; fields are called as IANA's information elements are. Its account is of packets: \
        those in lines that were written, or in files of Parquet that are whole, are written; those of files that are not whole yet are buffered; the others are lost. Several workers \
        cannot write one file of lines, but they can write Parquet into one directory.",
    parameters: &[
        Parameter {
            name: "to",
            kind: Kind::Text,
            default: None,
            meaning: "the file, for Parquet the directory; - is standard output",
        },
        Parameter {
            name: "format",
            kind: Kind::Choice(&["json", "csv", "parquet"]),
            default: Some("json"),
            meaning: "an object a line, values with commas below their names, or Parquet by date and hour",
        },
        Parameter {
            name: "template",
            kind: Kind::Text,
            default: Some("default"),
            meaning: "the fields, as IANA's names with commas, communityId (docs/flows.md), default, and words of flow's details for all of theirs",
        },
        Parameter {
            name: "biflow",
            kind: Kind::Choice(&["no", "yes"]),
            default: Some("no"),
            meaning: "whether both directions are one line",
        },
        Parameter {
            name: "domain",
            kind: Kind::Number(0, u32::MAX as u64),
            default: Some("1"),
            meaning: "the observation domain, of the first worker",
        },
        Parameter {
            name: "exporter",
            kind: Kind::Text,
            default: Some("none"),
            meaning: "the exporter's address, for exporterIPv4Address or exporterIPv6Address in the template",
        },
        Parameter {
            name: "parquet_size",
            kind: Kind::Number(64_000, 1_000_000_000_000),
            default: Some("128M"),
            meaning: "a file of Parquet is closed before it has more bytes",
        },
        Parameter {
            name: "parquet_time",
            kind: Kind::Duration,
            default: Some("5m"),
            meaning: "and when so much time has passed since its first flow: the packets' own for files, the clock's for live interfaces",
        },
    ],
    outputs: Outputs::None,
    takes: Takes::Flows(check_rows),
    order: Order::Flow,
    example: "device(eth0) -> flow -> flowlog(\"-\")",
    make: Make::Stage(make_rows),
};

/// Lines take flows of any meters that know what the lines are to have.
fn check_rows(meters: &[&Arguments], own: &Arguments) -> Result<(), String> {
    check_details(meters, own)
}

/// What a template names that only meters know which are asked for it.
fn check_details(meters: &[&Arguments], own: &Arguments) -> Result<(), String> {
    let needed = Element::needs_of(own.text("template"));
    for meter in meters {
        // A mistake there is the meter's to tell.
        let asked = DetailFields::parse(meter.text("details")).unwrap_or(needed);
        let missing = needed.without(asked);
        if missing.any() {
            let words = needed.with(asked).words();
            return Err(format!(
                "its template has elements of {}, which its meter is not asked for: flow(details=\"{words}\")",
                missing.words()
            ));
        }
    }
    Ok(())
}

/// Where flows go.
trait Destination: Send {
    /// One of so many packets is metered.
    fn set_sampling(&mut self, sampling: u32) -> Result<(), tapline_flow::Error>;
    fn set_patience(&mut self, _patience: Duration) {}
    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), tapline_flow::Error>;
    fn flush(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error>;
    fn finish(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error> {
        self.flush(now)
    }
    fn account(&self) -> ExportAccount;
    fn names(&self) -> &str;
    /// What a person should know of it, each thing once.
    fn take_news(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Of several places: those that did not take everything, with messages and packets.
    fn losses(&self) -> Vec<(String, u64, u64)> {
        Vec::new()
    }
    /// What its result tells besides flows, records and octets.
    fn told(&self, _all: &ExportAccount) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl Destination for Exporter {
    fn set_sampling(&mut self, sampling: u32) -> Result<(), tapline_flow::Error> {
        Exporter::set_sampling(self, sampling)
    }

    fn set_patience(&mut self, patience: Duration) {
        Exporter::set_patience(self, patience);
    }

    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), tapline_flow::Error> {
        Exporter::export(self, flows, now)
    }

    fn flush(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error> {
        Exporter::flush(self, now)
    }

    fn finish(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error> {
        Exporter::finish(self, now)
    }

    fn account(&self) -> ExportAccount {
        Exporter::account(self)
    }

    fn names(&self) -> &str {
        Exporter::names(self)
    }

    fn take_news(&mut self) -> Vec<String> {
        Exporter::take_news(self)
    }

    fn losses(&self) -> Vec<(String, u64, u64)> {
        Exporter::losses(self).map(|(name, messages, packets)| (name.to_owned(), messages, packets)).collect()
    }

    fn told(&self, all: &ExportAccount) -> Vec<(&'static str, u64)> {
        vec![
            ("messages", all.messages),
            ("messages_lost", all.messages_lost),
            ("packets_left_out", all.left_out),
        ]
    }
}

impl Destination for RowWriter {
    fn set_sampling(&mut self, sampling: u32) -> Result<(), tapline_flow::Error> {
        RowWriter::set_sampling(self, sampling);
        Ok(())
    }

    fn export(&mut self, flows: &[Flow], _: Timestamp) -> Result<(), tapline_flow::Error> {
        RowWriter::export(self, flows)
    }

    fn flush(&mut self, _: Timestamp) -> Result<(), tapline_flow::Error> {
        RowWriter::flush(self)
    }

    fn account(&self) -> ExportAccount {
        RowWriter::account(self)
    }

    fn names(&self) -> &str {
        RowWriter::names(self)
    }
}

#[cfg(feature = "parquet")]
impl Destination for ParquetWriter {
    fn set_sampling(&mut self, sampling: u32) -> Result<(), tapline_flow::Error> {
        ParquetWriter::set_sampling(self, sampling);
        Ok(())
    }

    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), tapline_flow::Error> {
        ParquetWriter::export(self, flows, now)
    }

    fn flush(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error> {
        ParquetWriter::flush(self, now)
    }

    fn finish(&mut self, _: Timestamp) -> Result<(), tapline_flow::Error> {
        ParquetWriter::finish(self)
    }

    fn account(&self) -> ExportAccount {
        ParquetWriter::account(self)
    }

    fn names(&self) -> &str {
        ParquetWriter::names(self)
    }

    fn told(&self, all: &ExportAccount) -> Vec<(&'static str, u64)> {
        let whole = all.messages.saturating_sub(all.messages_lost);
        vec![("files", whole), ("files_lost", all.messages_lost)]
    }
}

#[cfg(feature = "parquet")]
fn make_parquet(arguments: &Arguments, options: &Options) -> Result<Box<dyn Stage>, String> {
    let limits = ParquetLimits {
        size: arguments.number("parquet_size"),
        time: Duration::from_nanos(arguments.nanoseconds("parquet_time")),
    };
    let writer = ParquetWriter::create(Path::new(arguments.text("to")), options, limits);
    Ok(stage("flowlog", writer.map_err(|error| error.to_string())?))
}

#[cfg(not(feature = "parquet"))]
fn make_parquet(_: &Arguments, _: &Options) -> Result<Box<dyn Stage>, String> {
    Err(tapline_flow::Error::NoParquet.to_string())
}

fn make_rows(arguments: &Arguments, site: &Site<'_>) -> Result<Box<dyn Stage>, String> {
    let options = Options {
        domain: (arguments.number("domain") as u32).wrapping_add(site.worker as u32),
        exporter: exporter(arguments)?,
        ..Options::of_rows(arguments.text("template"), arguments.text("biflow") == "yes")
    };
    if arguments.text("format") == "parquet" && !(site.common.workers > 1 && arguments.text("to") == "-") {
        return make_parquet(arguments, &options);
    }
    if site.common.workers > 1 {
        return Err("several workers cannot write one file: leave --workers out".to_owned());
    }
    let format = if arguments.text("format") == "csv" { RowFormat::Csv } else { RowFormat::Json };
    let rows = RowWriter::create(Path::new(arguments.text("to")), format, &options);
    Ok(stage("flowlog", rows.map_err(|error| error.to_string())?))
}

/// Records and options tell one rate, of all flows, which the protocol must have room for.
fn check_meters(meters: &[&Arguments], own: &Arguments) -> Result<(), String> {
    check_details(meters, own)?;
    let mut rates = meters.iter().map(|meter| meter.number("sample"));
    let Some(rate) = rates.next() else { return Ok(()) };
    if let Some(other) = rates.find(|other| *other != rate) {
        return Err(format!(
            "its meters take one of {rate} and one of {other} packets: give each an ipfix of its own, and another domain"
        ));
    }
    let max = Version::of_number(own.number("version")).and_then(Version::sampling_max);
    match max.filter(|max| rate > u64::from(*max)) {
        Some(max) => Err(tapline_flow::Error::Sampling { sampling: rate as u32, max }.to_string()),
        None => Ok(()),
    }
}

fn exporter(arguments: &Arguments) -> Result<Option<IpAddr>, String> {
    match arguments.text("exporter") {
        "none" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| format!("exporter=\"{text}\" is no address of IPv4 or IPv6"))
        }
    }
}

fn make(arguments: &Arguments, site: &Site<'_>) -> Result<Box<dyn Stage>, String> {
    let text = |error: tapline_flow::Error| error.to_string();
    let targets = Target::list(arguments.text("to")).map_err(text)?;
    if site.common.workers > 1 && targets.iter().any(|target| matches!(target, Target::File(_))) {
        return Err(
            "several workers cannot write one file: leave --workers out, or name a collector".to_owned()
        );
    }
    let options = Options {
        version: Version::of_number(arguments.number("version")).unwrap_or_default(),
        template: arguments.text("template").to_owned(),
        biflow: arguments.text("biflow") == "yes",
        domain: (arguments.number("domain") as u32).wrapping_add(site.worker as u32),
        exporter: exporter(arguments)?,
        mtu: arguments.number("mtu") as u16,
        template_messages: arguments.number("templates") as u32,
        template_time: Duration::from_nanos(arguments.nanoseconds("template_time")),
        by_flow: arguments.text("spread") == "flow",
        rate: arguments.number("rate") as u32,
        enterprise: arguments.number("enterprise") as u32,
    };
    let mut exporter = Exporter::open(&targets, &options).map_err(text)?;
    if options.rate > 0 {
        exporter.set_haste(&site.control.haste());
    }
    Ok(stage("ipfix", exporter))
}

fn stage(class: &'static str, exporter: impl Destination + 'static) -> Box<dyn Stage> {
    Box::new(ExportStage {
        class,
        exporter: Box::new(exporter),
        received: 0,
        given: 0,
        now: None,
        is_live: false,
        ticks: 0,
        is_finished: false,
        absorbed: ExportAccount::default(),
        losses_absorbed: Vec::new(),
    })
}

struct ExportStage {
    class: &'static str,
    exporter: Box<dyn Destination>,
    /// Packets that came, and packets of flows that came.
    received: u64,
    given: u64,
    /// The time of the last flows.
    now: Option<Timestamp>,
    is_live: bool,
    ticks: u32,
    is_finished: bool,
    /// What the same stage did in other workers.
    absorbed: ExportAccount,
    losses_absorbed: Vec<(String, u64, u64)>,
}

/// Adds losses by name.
fn merge_losses(sum: &mut Vec<(String, u64, u64)>, more: &[(String, u64, u64)]) {
    for (name, messages, packets) in more {
        match sum.iter_mut().find(|(known, ..)| known == name) {
            Some((_, all_messages, all_packets)) => {
                *all_messages += messages;
                *all_packets += packets;
            }
            None => sum.push((name.clone(), *messages, *packets)),
        }
    }
}

fn losses_text(losses: &[(String, u64, u64)]) -> String {
    let one = |(name, messages, packets): &(String, u64, u64)| {
        format!("{name}: {} messages, {} packets", grouped(*messages), grouped(*packets))
    };
    losses.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl ExportStage {
    fn checked(&self, result: Result<(), tapline_flow::Error>) -> Result<(), Error> {
        result.map_err(|error| match error {
            // Lines whose reader has enough, as those of packets.
            tapline_flow::Error::Write { collector, source }
                if source.kind() == io::ErrorKind::BrokenPipe && collector == STANDARD_OUTPUT =>
            {
                Error::BrokenPipe { what: collector }
            }
            error => Error::Output { what: self.class.to_owned(), source: Box::new(error) },
        })
    }
}

impl Stage for ExportStage {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.received += packets.len() as u64;
        Ok(())
    }

    fn flows(&mut self, ended: &Ended<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.now = Some(ended.now);
        self.is_live = ended.is_live;
        let set = self.exporter.set_sampling(ended.sampling);
        self.checked(set)?;
        self.exporter.set_patience(if ended.is_live { PATIENCE_LIVE } else { PATIENCE });
        self.given += ended.flows.iter().map(tapline_flow::Flow::packets).sum::<u64>();
        let exported = self.exporter.export(ended.flows, ended.now);
        self.checked(exported)
    }

    fn tick(&mut self, moment: &Moment<'_>, _: &mut Out<'_>) -> Result<Wants, Error> {
        self.ticks += 1;
        if self.is_live && self.ticks.is_multiple_of(TICKS_WAITING) {
            let flushed = self.exporter.flush(moment.now);
            self.checked(flushed)?;
        }
        Ok(Wants::More)
    }

    fn finish(&mut self, moment: &Moment<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.is_finished = true;
        let finished = self.exporter.finish(self.now.unwrap_or(moment.now));
        self.checked(finished)?;
        let losses = self.exporter.losses();
        if self.is_live || losses.is_empty() {
            return Ok(());
        }
        // A file is all there, and so should its flows be.
        let source = format!("not all was taken: {}", losses_text(&losses)).into();
        Err(Error::Output { what: self.class.to_owned(), source })
    }

    fn own(&self) -> Own {
        let ExportAccount { written, lost, left_out, waiting, .. } = self.exporter.account();
        // Until the end there are packets in flows that go on. Whatever did not come by then is lost.
        let rest = self.received.saturating_sub(self.given);
        let (in_flows, missing) = if self.is_finished { (0, rest) } else { (rest, 0) };
        let output = OutputAccount {
            name: self.exporter.names().to_owned(),
            written,
            lost: lost + left_out + missing,
            buffered: waiting + in_flows,
            ..OutputAccount::default()
        };
        Own { output: Some(output), ..Own::default() }
    }

    fn result(&self) -> Option<Table> {
        let mut all = self.exporter.account();
        all.merge(&self.absorbed);
        let rows = [("flows", all.flows), ("records", all.records), ("octets", all.octets)];
        let mut table = Table::of_numbers(&[&rows[..], &self.exporter.told(&all)].concat());
        let mut losses = self.exporter.losses();
        merge_losses(&mut losses, &self.losses_absorbed);
        if !losses.is_empty() {
            table.add("lost_by", losses_text(&losses).into());
        }
        Some(table)
    }

    fn events(&mut self) -> Vec<String> {
        self.exporter.take_news()
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let all = self.exporter.account();
        tell("flows", all.flows);
        tell("records", all.records);
        self.exporter.told(&all).into_iter().for_each(|(name, value)| tell(name, value));
    }

    fn absorb(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<ExportStage>() {
            self.absorbed.merge(&other.exporter.account());
            self.absorbed.merge(&other.absorbed);
            merge_losses(&mut self.losses_absorbed, &other.exporter.losses());
            merge_losses(&mut self.losses_absorbed, &other.losses_absorbed);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{Plan, Source};

    #[cfg(feature = "parquet")]
    #[test]
    fn packets_wait_until_their_file_is_whole() {
        use tapline_testkit::frames::*;

        let folder = tempfile::tempdir().expect("there is room");
        let to = folder.path().join("flows");
        let text = format!("file(\"in\") -> flow -> e :: flowlog({to:?}, format=parquet); e -> json");
        assert!(Plan::new(&[Source { name: "t", text: &text }]).is_err(), "nothing follows it");
        let text = text.replace("; e -> json", "; file(\"in\") -> json");
        let mut trial = crate::trial::Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let datagram =
            |src| Ethernet::between(&a, &b).ip(&Udp { src, dst: 53 }.packet(pair, b"twelve bytes"));
        trial.push_frames(&(0..100).map(datagram).collect::<Vec<_>>());
        trial.assert_balanced();
        assert_eq!(std::fs::read_dir(&to).expect("it is made").count(), 0);
        trial.finish();
        trial.assert_balanced();
        let account = trial.account();
        let own = account.stages.iter().find(|stage| stage.name == "e").map(|stage| stage.own.clone());
        let output = own.and_then(|own| own.output).expect("it is an output");
        assert_eq!((output.written, output.lost, output.buffered), (100, 0, 0));
        assert_eq!(std::fs::read_dir(&to).expect("it is made").count(), 1);
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn without_the_feature_it_says_how_to_get_it() {
        let text = "file(\"in\") -> flow -> flowlog(\"flows\", format=parquet)";
        assert!(Plan::new(&[Source { name: "t", text }]).is_ok());
        let why = crate::trial::Trial::graph(text).err().expect("it cannot");
        assert!(why.contains("cargo build --release --features parquet"), "{why}");
    }
}
