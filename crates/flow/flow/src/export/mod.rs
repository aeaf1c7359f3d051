//! Export of flows: as messages of NetFlow v5, v9 and IPFIX to collectors or files ([`Exporter`]), as rows of text
//! ([`RowWriter`]), or as Parquet (`ParquetWriter`, with the feature `parquet`).
//!
//! ```text
//! Flow --direction by direction--> Encoder: records, until a message is full --> Collector: UDP, TCP, file
//! ```
//!
//! Sources: NetFlow v5 as Cisco's collectors document it; RFC 3954 (v9); RFC 7011, RFC 7012 (IPFIX); RFC 5103
//! (biflows); RFC 5655 (files).

mod collector;
mod community;
mod connection;
mod datagrams;
mod element;
mod encoder;
mod file;
#[cfg(feature = "parquet")]
mod parquet;
mod records;
mod rows;
mod sink;
mod table;
mod template;
mod text;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod types;
mod v5;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tapline_geo::Places;
use tapline_packet::Timestamp;
use tapline_source::OutputAccount;

#[cfg(feature = "parquet")]
pub use self::parquet::{ParquetEncoder, ParquetLimits, ParquetWriter, parquet_template};
pub use collector::ExportTarget;
pub use community::community_id;
pub use element::{ELEMENTS, Element, Foreign, Value};
pub use file::MessageFile;
pub use records::{LayoutField, RecordBatch, RecordLayout};
pub use rows::{RowFormat, RowWriter};
pub use sink::FlowSink;
#[cfg(feature = "arrow")]
pub use table::ArrowEncoder;
pub use table::{
    EncodedRows, FlowTable, GoflowEncoder, IpfixEncoder, JsonEncoder, NativeEncoder, SpareBuffers,
    TableEncoder, TableShape, goflow_template,
};

use crate::{Error, Flow, Sampling};
use collector::Collector;
use datagrams::Outbox;
use encoder::Encoder;
use template::Template;

/// The export protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// NetFlow v5: IPv4 only, fields fixed.
    V5,
    /// NetFlow v9.
    V9,
    /// IPFIX.
    #[default]
    Ipfix,
}

impl Version {
    /// The version of a number: 5, 9 or 10.
    pub fn of_number(number: u64) -> Option<Version> {
        match number {
            5 => Some(Version::V5),
            9 => Some(Version::V9),
            10 => Some(Version::Ipfix),
            _ => None,
        }
    }

    /// Whether the protocol can express how packets or flows were sampled.
    ///
    /// # Errors
    /// [`Error::Sampling`] for an interval that exceeds the field of NetFlow v5, [`Error::FlowSampling`] for flows,
    /// of which it can say nothing.
    pub fn check_sampling(self, sampling: Sampling) -> Result<(), Error> {
        match sampling {
            Sampling::Packets(sampling) if self == Version::V5 && sampling > v5::SAMPLING_MAX => {
                Err(Error::Sampling { sampling, max: v5::SAMPLING_MAX })
            }
            Sampling::Flows(2..) if self == Version::V5 => Err(Error::FlowSampling),
            _ => Ok(()),
        }
    }
}

/// Options of the export of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The protocol.
    pub version: Version,
    /// The elements of a record, by name and with commas between them; empty for the default.
    pub template: String,
    /// One record for both directions (IPFIX only).
    pub biflow: bool,
    /// The observation domain (IPFIX) or source id (v9); for v5 the low 16 bits are engine type and id.
    pub domain: u32,
    /// The exporter's address: source address of messages, and value of `exporterIPv4Address` or `exporterIPv6Address`.
    /// `None` lets the system choose it.
    pub exporter: Option<IpAddr>,
    /// Length in octets of the largest IP packet that carries a message: 256 to 65,535.
    pub mtu: u16,
    /// The records of flows with which a message is sent though it is not full; 0 fills each.
    pub message_records: u32,
    /// Interval at which templates are sent again over UDP, in messages.
    pub template_messages: u32,
    /// Interval at which templates are sent again over UDP, in export time.
    pub template_time: Duration,
    /// Whether each flow goes to one collector, chosen by a hash of its key, instead of to all.
    pub spreads_flows: bool,
    /// The most messages a second to each collector; 0 for no limit.
    pub rate: u32,
    /// The private enterprise number of Tapline's own elements (IPFIX only).
    pub enterprise: u32,
    /// The flows come from other exporters, whose addresses they bring along.
    pub is_collected: bool,
    /// Files of places are set before the first flow, so the template may have their elements.
    pub has_places: bool,
    /// Certificates, for collectors over TLS.
    pub tls: TlsFiles,
}

/// Certificates and names for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// A PEM file of the authorities that may have signed a collector's certificate. Without one there is no TLS.
    pub authorities: Option<PathBuf>,
    /// PEM files of the exporter's certificate, with the certificates that lead to its authority, and of its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that a collector's certificate must have; `None` is the host in its address.
    pub server_name: Option<String>,
}

/// The enterprise number of examples (RFC 5612): Tapline has none of its own.
pub const EXAMPLE_ENTERPRISE: u32 = 32473;

impl Default for ExportOptions {
    fn default() -> ExportOptions {
        ExportOptions {
            version: Version::Ipfix,
            template: String::new(),
            biflow: false,
            domain: 1,
            exporter: None,
            mtu: 1500,
            message_records: 0,
            template_messages: 1000,
            template_time: Duration::from_secs(60),
            spreads_flows: false,
            rate: 0,
            enterprise: EXAMPLE_ENTERPRISE,
            is_collected: false,
            has_places: false,
            tls: TlsFiles::default(),
        }
    }
}

/// The account of a destination of flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportAccount {
    /// The destination as it was given, and the packets that its flows count. Written are those that all receivers took;
    /// over UDP, that were sent to all. Lost are also those that the protocol cannot express.
    pub packets: OutputAccount,
    /// Flows.
    pub flows: u64,
    /// Records of flows: one a direction, or one a biflow.
    pub records: u64,
    /// Messages made. A message to several collectors counts once, also if some of them lost it.
    pub messages: u64,
    /// Octets of these messages.
    pub octets: u64,
    /// Messages that at least one collector did not take.
    pub messages_lost: u64,
    /// Packets of flows that the protocol cannot express, IPv6 in v5: they are among those lost.
    pub left_out: u64,
    /// Further counters by name, as this kind of destination has them.
    pub counters: Vec<(&'static str, u64)>,
    /// Receivers with losses: name, messages lost, and packets of the records in them.
    pub losses: Vec<(String, u64, u64)>,
}

impl ExportAccount {
    /// Adds the account of another exporter to the same destination.
    pub fn merge(&mut self, other: &ExportAccount) {
        self.packets.merge(&other.packets);
        self.flows += other.flows;
        self.records += other.records;
        self.messages += other.messages;
        self.octets += other.octets;
        self.messages_lost += other.messages_lost;
        self.left_out += other.left_out;
        for &(name, count) in &other.counters {
            match self.counters.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => *all += count,
                None => self.counters.push((name, count)),
            }
        }
        for loss in &other.losses {
            match self.losses.iter_mut().find(|(name, ..)| *name == loss.0) {
                Some((_, messages, packets)) => {
                    *messages += loss.1;
                    *packets += loss.2;
                }
                None => self.losses.push(loss.clone()),
            }
        }
    }
}

/// Sends flows to collectors.
pub struct Exporter {
    /// One stream for all collectors, or one for each.
    streams: Vec<Stream>,
    account: ExportAccount,
}

struct Stream {
    encoder: Encoder,
    collectors: Vec<Collector>,
    /// Messages that leave together; `None` sends each at once.
    outbox: Option<Outbox>,
}

impl Exporter {
    /// Opens every collector.
    ///
    /// # Errors
    /// If the template is invalid, or a collector cannot be opened.
    pub fn open(targets: &[ExportTarget], options: &ExportOptions) -> Result<Exporter, Error> {
        check(targets, options)?;
        let name = targets.iter().map(ExportTarget::to_string).collect::<Vec<_>>().join(",");
        let mut collectors = Vec::new();
        for target in targets {
            collectors.push(Collector::open(target, options)?);
        }
        let groups: Vec<Vec<Collector>> = match options.spreads_flows {
            true => collectors.into_iter().map(|collector| vec![collector]).collect(),
            false => vec![collectors],
        };
        let stream = |collectors: Vec<Collector>| {
            let room = collectors.iter().map(|collector| collector.room(options.mtu)).min().unwrap_or(512);
            let repeats = collectors.iter().any(Collector::loses_templates);
            let is_of_files = collectors.iter().all(Collector::is_file);
            let takes_several = collectors.iter().all(Collector::takes_several);
            let outbox = takes_several.then(|| Outbox::new(is_of_files));
            Ok(Stream { encoder: Encoder::new(options, room, repeats)?, collectors, outbox })
        };
        let streams = groups.into_iter().map(stream).collect::<Result<Vec<Stream>, Error>>()?;
        let packets = OutputAccount::of_written(&name, 0);
        Ok(Exporter { streams, account: ExportAccount { packets, ..ExportAccount::default() } })
    }

    /// Once `cancel` is true, messages that the rate limit would delay are dropped and counted as lost.
    pub fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        let collectors = self.streams.iter_mut().flat_map(|stream| &mut stream.collectors);
        collectors.for_each(|collector| collector.set_cancel_flag(cancel));
    }
}

impl FlowSink for Exporter {
    fn set_sampling(&mut self, sampling: Sampling) -> Result<(), Error> {
        self.streams.iter_mut().try_for_each(|stream| stream.encoder.set_sampling(sampling))
    }

    fn set_places(&mut self, places: &Arc<Places>) {
        self.streams.iter_mut().for_each(|stream| stream.encoder.set_places(places));
    }

    fn set_write_timeout(&mut self, timeout: Duration) {
        let collectors = self.streams.iter_mut().flat_map(|stream| &mut stream.collectors);
        collectors.for_each(|collector| collector.set_send_timeout(timeout));
    }

    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), Error> {
        let mut failure = Ok(());
        let Exporter { streams, account, .. } = self;
        let count = streams.len() as u64;
        for flow in flows {
            let which = if count > 1 { spread(flow) % count } else { 0 };
            if let Some(Stream { encoder, collectors, outbox }) = streams.get_mut(which as usize) {
                account.flows += 1;
                encoder
                    .add(flow, &mut MessageSink { now, account, collectors, outbox, failure: &mut failure });
            }
        }
        for Stream { collectors, outbox, .. } in streams {
            MessageSink { now, account, collectors, outbox, failure: &mut failure }.send_several();
        }
        failure
    }

    fn record_layout(&self) -> Option<Arc<RecordLayout>> {
        match self.streams.as_slice() {
            [stream] => stream.encoder.layout().cloned(),
            _ => None,
        }
    }

    fn export_records(&mut self, records: &RecordBatch, now: Timestamp) -> Result<(), Error> {
        let mut failure = Ok(());
        let Exporter { streams, account, .. } = self;
        account.flows += records.flows();
        for Stream { encoder, collectors, outbox } in streams {
            let mut sink = MessageSink { now, account, collectors, outbox, failure: &mut failure };
            encoder.add_records(records, &mut sink);
            sink.send_several();
        }
        failure
    }

    fn flush(&mut self, now: Timestamp) -> Result<(), Error> {
        let mut failure = Ok(());
        let Exporter { streams, account, .. } = self;
        for Stream { encoder, collectors, outbox } in streams {
            let mut sink = MessageSink { now, account, collectors, outbox, failure: &mut failure };
            encoder.flush(&mut sink);
            sink.send_several();
        }
        failure
    }

    fn finish(&mut self, now: Timestamp) -> Result<(), Error> {
        // A lost TCP connection is tried once more.
        for Stream { encoder, collectors, .. } in &mut self.streams {
            if encoder.waiting() > 0 {
                collectors.iter_mut().for_each(Collector::reach);
            }
        }
        self.flush(now)
    }

    fn reopen(&mut self, now: Timestamp) -> Result<bool, Error> {
        // Templates of records that wait are in the file before.
        self.flush(now)?;
        let mut is_another = false;
        for Stream { encoder, collectors, .. } in &mut self.streams {
            for collector in collectors {
                if collector.reopen()? {
                    encoder.repeat_templates();
                    is_another = true;
                }
            }
        }
        Ok(is_another)
    }

    fn account(&self) -> ExportAccount {
        let mut account = self.account.clone();
        account.packets.buffered = self.streams.iter().map(|stream| stream.encoder.waiting()).sum();
        account.counters = vec![
            ("messages", account.messages),
            ("messages_lost", account.messages_lost),
            ("packets_left_out", account.left_out),
        ];
        let collectors = self.streams.iter().flat_map(|stream| &stream.collectors);
        let losses = collectors.map(Collector::losses).filter(|(_, messages, _)| *messages > 0);
        account.losses =
            losses.map(|(name, messages, packets)| (name.to_owned(), messages, packets)).collect();
        account
    }

    fn take_events(&mut self) -> Vec<String> {
        let collectors = self.streams.iter_mut().flat_map(|stream| &mut stream.collectors);
        collectors.flat_map(Collector::take_events).collect()
    }
}

/// A whole message, and the number of packets that its records count.
struct Message<'m> {
    bytes: &'m [u8],
    packets: u64,
}

/// Destination and export time of messages, and their accounting.
struct MessageSink<'p> {
    now: Timestamp,
    account: &'p mut ExportAccount,
    collectors: &'p mut [Collector],
    outbox: &'p mut Option<Outbox>,
    /// The first error of a file.
    failure: &'p mut Result<(), Error>,
}

impl MessageSink<'_> {
    /// Sends a message to all collectors. Returns whether templates must be sent again because a session restarts.
    fn send(&mut self, message: &Message<'_>) -> bool {
        if self.outbox.as_ref().is_some_and(|outbox| !outbox.has_room(message.bytes.len())) {
            self.send_several();
        }
        if let Some(outbox) = self.outbox {
            outbox.add(message.bytes, message.packets);
            return false;
        }
        let mut is_taken = true;
        for collector in self.collectors.iter_mut() {
            match collector.send(message.bytes, message.packets) {
                Ok(took) => is_taken &= took,
                Err(error) => {
                    is_taken = false;
                    if self.failure.is_ok() {
                        *self.failure = Err(error);
                    }
                }
            }
        }
        self.count(message.bytes.len(), message.packets, is_taken);
        self.collectors.iter().any(Collector::knows_none)
    }

    /// Sends the messages in the outbox.
    fn send_several(&mut self) {
        let Some(mut outbox) = self.outbox.take() else { return };
        let mut taken = vec![true; outbox.messages().len()];
        for collector in self.collectors.iter_mut() {
            let sent = collector.send_several(&outbox, &mut taken);
            if self.failure.is_ok() {
                *self.failure = sent;
            }
        }
        for ((len, packets), is_taken) in outbox.messages().iter().zip(taken) {
            self.count(*len, *packets, is_taken);
        }
        outbox.clear();
        *self.outbox = Some(outbox);
    }

    fn count(&mut self, len: usize, packets: u64, is_taken: bool) {
        self.account.messages += 1;
        self.account.octets += len as u64;
        if is_taken {
            self.account.packets.written += packets;
        } else {
            self.account.packets.lost += packets;
            self.account.messages_lost += 1;
        }
    }
}

fn check(targets: &[ExportTarget], options: &ExportOptions) -> Result<(), Error> {
    let fail = |what: &str| Err(Error::Template { what: what.to_owned() });
    if targets.is_empty() {
        return fail("has nowhere to go: name a collector");
    }
    if options.biflow && options.version != Version::Ipfix {
        return fail("cannot have both directions in one record: only IPFIX has biflows (--version 10)");
    }
    if options.version == Version::V5 && !matches!(options.template.trim(), "" | "default") {
        return fail("is fixed in NetFlow v5: leave --template out, or use --version 9 or 10");
    }
    if options.version != Version::Ipfix
        && targets.iter().any(|target| !matches!(target, ExportTarget::Udp(_)))
    {
        return fail("is not for TCP, TLS and files, which take IPFIX only: use --version 10 or udp://");
    }
    if options.mtu < 256 {
        return fail("needs packets of 256 octets at least: give another --mtu");
    }
    // The template is checked before a file is truncated or a collector contacted.
    Template::both(options).map(drop)
}

/// A hash that spreads flows over collectors: equal for both directions, and in every run.
fn spread(flow: &Flow) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let [one, other] = flow.endpoints.map(|side| (side.address, side.port));
    let mut hasher = DefaultHasher::new();
    (one.min(other), one.max(other), flow.protocol).hash(&mut hasher);
    hasher.finish()
}
