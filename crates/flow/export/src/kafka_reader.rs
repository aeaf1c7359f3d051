//! A topic of Kafka that is read, message by message.
//!
//! ```text
//! without a group   all partitions of the start, from their beginning or end
//! with a group      those that the brokers give to this reader, from where the group stopped
//! ```

use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::Error;
use crate::kafka_client::{self, METADATA_TIME, shown};
use crate::topic::{ChunkHead, Message, NextMessage, Topic, TopicAddress};

/// The most partitions of a topic.
const PARTITIONS_MAX: usize = 10_000;
/// Lines for the user that wait to be shown; further ones are left out.
const EVENTS_MAX: usize = 16;

/// A topic that is read.
pub(crate) struct KafkaReader {
    name: String,
    topic: String,
    consumer: BaseConsumer<Quiet>,
    is_group: bool,
    is_until_end: bool,
    is_whole: bool,
    partitions: Vec<Partition>,
    /// The message that was handed out last: partition and offset.
    last: Option<(i32, i64)>,
    events: Vec<String>,
    /// Whether a report says that no message comes.
    is_failing: bool,
}

/// A partition, with its end at the start.
struct Partition {
    id: i32,
    end: i64,
    is_done: bool,
}

/// Errors come by the call that asks for a message.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

impl ConsumerContext for Quiet {}

impl KafkaReader {
    /// Begins to read a topic.
    ///
    /// # Errors
    /// [`Error::Topic`] if no broker answers, they refuse the topic, or the client a property; those of the file of
    /// properties.
    pub(crate) fn open(from: &TopicAddress) -> Result<KafkaReader, Error> {
        let name = from.to_string();
        let topic = from.address.topic.clone();
        let wrong = |why: String| Error::Topic { name: name.clone(), why };
        let failed = |error: KafkaError| wrong(shown(&error.to_string()));
        let mut config = kafka_client::config(&from.address, from.user.as_deref(), None)?;
        config
            // Without a group none is joined; the client wants a name all the same.
            .set("group.id", from.group.as_deref().unwrap_or("tapline"))
            .set("enable.auto.commit", if from.group.is_some() { "true" } else { "false" })
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", if from.is_from_end { "latest" } else { "earliest" })
            .set("enable.partition.eof", "true")
            .set("allow.auto.create.topics", "false")
            .set("fetch.message.max.bytes", "1048576")
            .set("fetch.max.bytes", "16777216")
            .set("receive.message.max.bytes", "33554432")
            .set("queued.max.messages.kbytes", "16384");
        let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet).map_err(failed)?;
        let ids = partitions(&consumer, &topic).map_err(wrong)?;
        let mut partitions = Vec::new();
        let mut is_whole = !from.is_from_end && from.group.is_none();
        for id in ids {
            let (low, end) = consumer.fetch_watermarks(&topic, id, METADATA_TIME).map_err(failed)?;
            is_whole &= low == 0;
            partitions.push(Partition {
                id,
                end,
                is_done: from.is_until_end && from.group.is_none() && low >= end,
            });
        }
        if from.group.is_some() {
            consumer.subscribe(&[&topic]).map_err(failed)?;
        } else {
            let mut list = TopicPartitionList::new();
            for partition in &partitions {
                let offset = if from.is_from_end { Offset::Offset(partition.end) } else { Offset::Beginning };
                list.add_partition_offset(&topic, partition.id, offset).map_err(failed)?;
            }
            consumer.assign(&list).map_err(failed)?;
        }
        Ok(KafkaReader {
            name,
            topic,
            consumer,
            is_group: from.group.is_some(),
            is_until_end: from.is_until_end,
            is_whole,
            partitions,
            last: None,
            events: Vec::new(),
            is_failing: false,
        })
    }

    /// Whether all partitions of this reader have come to their end of the start.
    fn is_at_end(&self) -> bool {
        if !self.is_until_end {
            return false;
        }
        let is_done =
            |id: i32| self.partitions.iter().any(|partition| partition.id == id && partition.is_done);
        if !self.is_group {
            return self.partitions.iter().all(|partition| partition.is_done);
        }
        let Ok(assigned) = self.consumer.assignment() else { return false };
        assigned.count() > 0 && assigned.elements().iter().all(|element| is_done(element.partition()))
    }

    fn note_end(&mut self, id: i32) {
        self.partitions
            .iter_mut()
            .filter(|partition| partition.id == id)
            .for_each(|partition| partition.is_done = true);
    }

    /// The answer where there is no message.
    fn none(&self) -> NextMessage {
        if self.is_at_end() { NextMessage::End } else { NextMessage::Idle }
    }

    /// Handles a fault. Of passing faults the first is reported until a message comes; others end the reading.
    fn fail(&mut self, error: &KafkaError) -> Result<NextMessage, Error> {
        let code = error.rdkafka_error_code();
        match code {
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition
                | RDKafkaErrorCode::Fatal,
            ) => Err(Error::Topic { name: self.name.clone(), why: shown(&error.to_string()) }),
            _ => {
                if !std::mem::replace(&mut self.is_failing, true) && self.events.len() < EVENTS_MAX {
                    self.events.push(format!(
                        "{}: {}; it is asked again",
                        self.name,
                        shown(&error.to_string())
                    ));
                }
                Ok(NextMessage::Idle)
            }
        }
    }
}

impl Topic for KafkaReader {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }

    fn is_shared(&self) -> bool {
        self.is_group
    }

    fn next(&mut self, wait: Duration, take: &mut dyn FnMut(&Message<'_>)) -> Result<NextMessage, Error> {
        if let Some((partition, offset)) = self.last.take().filter(|_| self.is_group) {
            // A partition that was taken away meanwhile is read again by another reader.
            let _ = self.consumer.store_offset(&self.topic, partition, offset);
        }
        if self.is_at_end() {
            return Ok(NextMessage::End);
        }
        let (id, offset, end) = match self.consumer.poll(wait) {
            None => return Ok(NextMessage::Idle),
            Some(Err(KafkaError::PartitionEOF(id))) => {
                self.note_end(id);
                return Ok(self.none());
            }
            Some(Err(error)) => return self.fail(&error),
            Some(Ok(message)) => {
                let (id, offset) = (message.partition(), message.offset());
                let known = self.partitions.iter().find(|partition| partition.id == id);
                // Partitions that were added since the start had nothing then.
                let end = known.map_or(0, |partition| partition.end);
                if !self.is_until_end || offset < end {
                    take(&Message {
                        partition: id,
                        offset,
                        head: head(&message),
                        bytes: message.payload().unwrap_or_default(),
                    });
                }
                (id, offset, end)
            }
        };
        self.is_failing = false;
        if offset + 1 >= end {
            self.note_end(id);
        }
        if self.is_until_end && offset >= end {
            return Ok(self.none());
        }
        self.last = Some((id, offset));
        Ok(NextMessage::Taken)
    }

    fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn finish(&mut self, was_read: bool) {
        if let Some((partition, offset)) = self.last.take().filter(|_| self.is_group && was_read) {
            let _ = self.consumer.store_offset(&self.topic, partition, offset);
        }
        // Nothing that was read makes it fail, too.
        if self.is_group {
            let _ = self.consumer.commit_consumer_state(CommitMode::Sync);
        }
    }
}

fn head(message: &BorrowedMessage<'_>) -> Result<ChunkHead, &'static str> {
    let headers = message.headers().ok_or("it has no headers")?;
    ChunkHead::of(headers.iter().map(|header| (header.key, header.value)))
}

/// The numbers of a topic's partitions.
fn partitions(consumer: &BaseConsumer<Quiet>, topic: &str) -> Result<Vec<i32>, String> {
    let metadata = consumer.fetch_metadata(Some(topic), METADATA_TIME);
    let metadata = metadata.map_err(|error| format!("no broker answers: {}", shown(&error.to_string())))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let found = found.ok_or_else(|| format!("the broker has no topic `{topic}`: correct its name"))?;
    if let Some(error) = found.error() {
        let error = RDKafkaErrorCode::from(error);
        return Err(match error {
            RDKafkaErrorCode::UnknownTopicOrPartition => {
                format!("the broker has no topic `{topic}`: correct its name")
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => format!(
                "the broker lets this user not read `{topic}`: allow it (kafka-acls.sh --add --consumer)"
            ),
            other => shown(&other.to_string()),
        });
    }
    Ok(found.partitions().iter().map(|partition| partition.id()).take(PARTITIONS_MAX).collect())
}
