//! Brokers of Kafka: a block is a message, and a header has its id.
//!
//! ```text
//! offer --copied--> librdkafka: queue, retries, idempotence --> brokers, acks=all
//! poll  <--reports-- delivery report:  acknowledged              Delivered
//!                                      too large, invalid        Refused: the block itself is at fault
//!                                      others, none for 10 s     Again: under the same id, so that readers know it
//! ```
//!
//! librdkafka keeps the order within a partition and drops its own repetitions; a block that is offered again, after
//! an answer that never came, may be there twice, with the same bytes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig};
use tapline_file::Compression;

use crate::kafka_address::{KafkaAddress, MessageKey};
use crate::kafka_client::{self, METADATA_TIME, shown};
use crate::key_group::key_of;
use crate::{Block, Carrier, Encoding, Error, Offer, Outcome, Report, Secret};

/// Blocks that are on their way at a time, and their bytes.
const TAKEN_MAX: usize = 64;
const TAKEN_BYTES_MAX: usize = 32 << 20;
/// The longest time from offer to acknowledgement.
const MESSAGE_TIME: Duration = Duration::from_secs(10);
/// The longest time in which blocks that are given up are reported.
const GIVE_UP_TIME: Duration = Duration::from_secs(5);
/// Schema of messages that are packets, in place of a version of columns.
const PACKETS_SCHEMA: &str = "tapline-packets-pcapng";
/// Poll interval for reports.
const STEP: Duration = Duration::from_millis(2);

/// A topic.
pub(crate) struct KafkaCarrier {
    name: String,
    address: KafkaAddress,
    config: ClientConfig,
    producer: BaseProducer<Reports>,
    reports: Reports,
    /// Blocks that are not reported yet.
    taken: Vec<Arc<Block>>,
    taken_bytes: usize,
}

/// Reports of librdkafka.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Reported>>);

#[derive(Default)]
struct Reported {
    blocks: Vec<Report>,
    /// The last error of a connection: the cause, if a report only says that a timeout passed.
    cause: Option<String>,
}

impl Reports {
    fn with<T>(&self, call: impl FnOnce(&mut Reported) -> T) -> T {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Reports {
    /// Errors come by [`error`](Self::error), and in reports.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    /// Ignores that all brokers are down: it follows from an earlier error, which has the reason.
    fn error(&self, error: KafkaError, reason: &str) {
        let is_sum = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        self.with(|reported| {
            if !is_sum || reported.cause.is_none() {
                reported.cause = Some(shown(reason));
            }
        });
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Arc<Block>;

    fn delivery(&self, result: &DeliveryResult<'_>, block: Arc<Block>) {
        self.with(|reported| {
            let outcome = match result {
                Ok(_) => Outcome::Delivered,
                Err((error, _)) => outcome(error, reported.cause.as_deref()),
            };
            if outcome == Outcome::Delivered {
                reported.cause = None;
            }
            reported.blocks.push(Report { block, outcome });
        });
    }
}

impl KafkaCarrier {
    /// Opens the connection to a topic, and asks the brokers for it. Brokers that are away are not an error: they may
    /// come.
    ///
    /// # Errors
    /// [`Error::Topic`] if the brokers refuse the topic, or the client a property; those of the file of properties.
    pub(crate) fn open(
        address: &KafkaAddress,
        compression: Option<Compression>,
        user: Option<&str>,
        secret: Option<&Secret>,
    ) -> Result<KafkaCarrier, Error> {
        let config = config(address, compression, user, secret)?;
        let reports = Reports::default();
        let name = address.to_string();
        let wrong = |why: String| Error::Topic { name: name.clone(), why };
        let producer = start(&config, &reports).map_err(|error| wrong(shown(&error.to_string())))?;
        check_topic(&producer, &address.topic).map_err(wrong)?;
        Ok(KafkaCarrier {
            name,
            address: address.clone(),
            config,
            producer,
            reports,
            taken: Vec::new(),
            taken_bytes: 0,
        })
    }

    fn send(&self, block: &Arc<Block>) -> Result<(), KafkaError> {
        let headers = headers(block).into_iter().fold(OwnedHeaders::new(), |all, (key, value)| {
            all.insert(Header { key, value: Some(value.as_bytes()) })
        });
        let record = BaseRecord::with_opaque_to(&self.address.topic, Arc::clone(block));
        let record = record.payload(block.bytes.as_slice()).headers(headers);
        let record = match self.address.key {
            MessageKey::Sensor => record.key(block.id.sensor.as_str()),
            MessageKey::Flow => record.key(key_of(block.id.number)),
            MessageKey::None => record,
        };
        self.producer.send(record).map_err(|(error, _)| error)
    }

    /// The next report of a block that was taken.
    fn next(&mut self) -> Option<Report> {
        loop {
            let report = self
                .reports
                .with(|reported| (!reported.blocks.is_empty()).then(|| reported.blocks.remove(0)))?;
            let at = self.taken.iter().position(|block| Arc::ptr_eq(block, &report.block));
            if let Some(at) = at {
                self.taken.remove(at);
                self.taken_bytes = self.taken_bytes.saturating_sub(report.block.bytes.len());
                return Some(report);
            }
        }
    }

    /// Restarts the client, after an error from which it does not recover. Its messages are reported before.
    fn restart(&mut self) {
        self.producer.purge(PurgeConfig::default().queue().inflight());
        self.producer.poll(STEP);
        if let Ok(producer) = start(&self.config, &self.reports) {
            self.producer = producer;
        }
        let reported: Vec<Arc<Block>> = self
            .reports
            .with(|reported| reported.blocks.iter().map(|report| Arc::clone(&report.block)).collect());
        let is_reported = |block: &Arc<Block>| reported.iter().any(|other| Arc::ptr_eq(block, other));
        let orphans: Vec<Arc<Block>> =
            self.taken.iter().filter(|block| !is_reported(block)).map(Arc::clone).collect();
        self.reports.with(|reported| {
            let outcome = Outcome::Again("the client was restarted".to_owned());
            let report = |block| Report { block, outcome: outcome.clone() };
            reported.blocks.extend(orphans.into_iter().map(report));
        });
    }
}

impl Carrier for KafkaCarrier {
    fn name(&self) -> &str {
        &self.name
    }

    fn offer(&mut self, block: &Arc<Block>) -> Offer {
        let bytes = block.bytes.len();
        let has_room = self.taken.is_empty()
            || self.taken.len() < TAKEN_MAX && self.taken_bytes + bytes <= TAKEN_BYTES_MAX;
        if !has_room {
            return Offer::Full;
        }
        match self.send(block) {
            Ok(()) => {}
            Err(KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) => return Offer::Full,
            Err(KafkaError::MessageProduction(RDKafkaErrorCode::Fatal)) => {
                self.restart();
                return Offer::Full;
            }
            Err(error) => self.reports.with(|reported| {
                let outcome = outcome(&error, reported.cause.as_deref());
                reported.blocks.push(Report { block: Arc::clone(block), outcome });
            }),
        }
        self.taken.push(Arc::clone(block));
        self.taken_bytes += bytes;
        Offer::Taken
    }

    fn poll(&mut self, wait: Duration) -> Option<Report> {
        let until = Instant::now() + wait;
        // Connections are served also while no block is taken.
        self.producer.poll(Duration::ZERO);
        loop {
            let report = self.next();
            let rest = until.saturating_duration_since(Instant::now());
            if report.is_some() || self.taken.is_empty() || rest.is_zero() {
                return report;
            }
            self.producer.poll(rest.min(STEP));
        }
    }

    fn give_up(&mut self) -> Vec<Report> {
        self.producer.purge(PurgeConfig::default().queue().inflight());
        let until = Instant::now() + GIVE_UP_TIME;
        let mut reports = Vec::new();
        while !self.taken.is_empty() && Instant::now() < until {
            reports.extend(self.poll(STEP));
        }
        self.taken_bytes = 0;
        let outcome = Outcome::Again("given up".to_owned());
        let orphan = |block| Report { block, outcome: outcome.clone() };
        reports.extend(std::mem::take(&mut self.taken).into_iter().map(orphan));
        reports
    }
}

fn start(config: &ClientConfig, reports: &Reports) -> Result<BaseProducer<Reports>, KafkaError> {
    config.create_with_context(reports.clone())
}

/// The client's properties. Those on which it depends that no row is lost come last: no file changes them.
fn config(
    address: &KafkaAddress,
    compression: Option<Compression>,
    user: Option<&str>,
    secret: Option<&Secret>,
) -> Result<ClientConfig, Error> {
    let mut config = kafka_client::config(address, user, secret)?;
    let codec = match compression {
        Some(Compression::Zstd) => "zstd",
        _ => "lz4",
    };
    config
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("compression.codec", codec)
        // As Java's clients place keys.
        .set("partitioner", "murmur2_random")
        // A message is a batch already.
        .set("linger.ms", "5")
        .set("message.timeout.ms", MESSAGE_TIME.as_millis().to_string())
        .set("message.max.bytes", "1000000")
        .set("queue.buffering.max.kbytes", ((2 * TAKEN_BYTES_MAX) >> 10).to_string())
        .set("queue.buffering.max.messages", (2 * TAKEN_MAX).to_string());
    Ok(config)
}

/// Whether the brokers take messages for the topic. Silence says nothing.
fn check_topic(producer: &BaseProducer<Reports>, topic: &str) -> Result<(), String> {
    let Ok(metadata) = producer.client().fetch_metadata(Some(topic), METADATA_TIME) else { return Ok(()) };
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else { return Ok(()) };
    let Some(error) = found.error() else { return Ok(()) };
    match RDKafkaErrorCode::from(error) {
        RDKafkaErrorCode::UnknownTopicOrPartition => Err(format!(
            "the broker has no topic `{topic}`: make it (kafka-topics.sh --create), or correct its name"
        )),
        RDKafkaErrorCode::TopicAuthorizationFailed => Err(format!(
            "the broker does not let this user write to `{topic}`: allow it (kafka-acls.sh --add --producer)"
        )),
        RDKafkaErrorCode::InvalidTopic => Err(format!("the broker refuses a topic of the name `{topic}`")),
        // Such as: the topic is being made.
        _ => Ok(()),
    }
}

/// The outcome of a failed delivery for the block.
fn outcome(error: &KafkaError, cause: Option<&str>) -> Outcome {
    let code = error.rdkafka_error_code();
    let text = code.map_or_else(|| error.to_string(), |code| code.to_string());
    match code {
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::UnsupportedForMessageFormat,
        ) => Outcome::Refused(shown(&text)),
        _ => Outcome::Again(cause.map_or_else(|| shown(&text), |cause| format!("{}: {cause}", shown(&text)))),
    }
}

/// Headers of a message, in addition to its rows.
fn headers(block: &Block) -> Vec<(&'static str, String)> {
    let is_of_flows = block.encoding.is_of_flows();
    let schema = if is_of_flows { format!("{:016x}", block.schema) } else { PACKETS_SCHEMA.to_owned() };
    let mut headers = vec![
        ("tapline-batch", block.id.to_string()),
        ("tapline-format", block.encoding.name().to_owned()),
        ("tapline-schema", schema),
        ("tapline-packets", block.packets.to_string()),
        ("tapline-first", block.first_ns.to_string()),
        ("tapline-last", block.last_ns.to_string()),
    ];
    headers.extend(match block.encoding {
        Encoding::Pcapng => vec![("tapline-packets-before", block.packets_before.to_string())],
        _ => vec![("tapline-rows", block.rows.to_string()), ("tapline-flows", block.flows.to_string())],
    });
    headers
}

#[cfg(test)]
mod tests;
