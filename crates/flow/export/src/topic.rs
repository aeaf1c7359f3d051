//! Topics with chunks of packets, as they are read.
//!
//! ```text
//! message --headers--> ChunkHead: id, packets, packets before --Runs--> new: its packets are lent
//!                                                                  '--> seen before: dropped
//! lacking = packets up to the last chunk of a run - packets of the chunks that came
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use crate::kafka_address::KafkaAddress;
use crate::{BlockId, Error, Sensor};

/// The most bytes of a message that is looked at: more than a writer's chunks have.
pub const MESSAGE_MAX: usize = 2 << 20;
/// The most headers of a message that are looked at.
const HEADERS_MAX: usize = 64;
/// Maximum number of distinguished runs of sensors. Beyond it the run that had no chunk for longest is forgotten: its
/// missing packets stay counted, and its chunks are new if they come again.
const RUNS_MAX: usize = 4096;
/// Maximum number of remembered gaps in the numbers of a run. Beyond it the lowest is forgotten: a late chunk for it
/// is dropped, and counts as missing.
const GAPS_MAX: usize = 1024;

const SCHEME: &str = "kafka://";

/// A topic of which packets are read.
///
/// ```text
/// kafka://[USER@]HOST[:PORT][+HOST[:PORT]...]/TOPIC[?from=beginning|end&until=end&group=NAME&properties=FILE]
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicAddress {
    pub(crate) address: KafkaAddress,
    pub(crate) user: Option<String>,
    /// Reading begins behind the existing messages; of a group only where it has read nothing yet.
    pub(crate) is_from_end: bool,
    /// Reading ends with the messages that existed at the start.
    pub(crate) is_until_end: bool,
    /// The group whose readers share the partitions, and go on where it stopped.
    pub(crate) group: Option<String>,
}

impl TopicAddress {
    /// Whether a text begins as a topic does.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// The topic of a text.
    ///
    /// # Errors
    /// [`Error::Source`] for another text.
    pub fn parse(text: &str) -> Result<TopicAddress, Error> {
        let wrong = |why: String| {
            let text = crate::destination::without_password(text);
            Error::Source { text, why }
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong(format!("it begins with {SCHEME}")))?;
        let (user, rest) = crate::destination::take_user(rest).map_err(|_| {
            wrong("a password has no place there: write it into the file of properties=".to_owned())
        })?;
        let (mut is_from_end, mut is_until_end, mut group) = (false, false, None);
        let address =
            KafkaAddress::parse_with(rest, "from=beginning, from=end, until=end, group=NAME", |setting| {
                match setting {
                    ("from", "beginning") => is_from_end = false,
                    ("from", "end") => is_from_end = true,
                    ("until", "end") => is_until_end = true,
                    ("group", name) if !name.is_empty() => group = Some(name.to_owned()),
                    _ => return false,
                }
                true
            });
        let address = address.map_err(wrong)?;
        Ok(TopicAddress { address, user, is_from_end, is_until_end, group })
    }

    /// Begins to read. The brokers are asked for the topic.
    ///
    /// # Errors
    /// [`Error::Topic`] if no broker answers, or they refuse the topic; [`Error::NoKafka`] in a build without Kafka.
    #[cfg(feature = "kafka")]
    pub fn open(&self) -> Result<Box<dyn Topic>, Error> {
        Ok(Box::new(crate::kafka_reader::KafkaReader::open(self)?))
    }

    /// Begins to read. The brokers are asked for the topic.
    ///
    /// # Errors
    /// [`Error::Topic`] if no broker answers, or they refuse the topic; [`Error::NoKafka`] in a build without Kafka.
    #[cfg(not(feature = "kafka"))]
    pub fn open(&self) -> Result<Box<dyn Topic>, Error> {
        Err(Error::NoKafka)
    }
}

impl fmt::Display for TopicAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// The next message of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextMessage {
    /// There was one.
    Taken,
    /// None within the time allowed; ask again.
    Idle,
    /// None will come any more.
    End,
}

/// A message of a topic.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// Partition of the message.
    pub partition: i32,
    /// Offset of the message in the partition.
    pub offset: i64,
    /// The head from its headers, or the reason that it is not a chunk of packets.
    pub head: Result<ChunkHead, &'static str>,
    /// A section of pcapng.
    pub bytes: &'a [u8],
}

/// A topic that is being read.
pub trait Topic: Send {
    /// The topic as users wrote it, without secrets.
    fn name(&self) -> &str;

    /// Whether all that was ever written to it is read: nothing was deleted before.
    fn is_whole(&self) -> bool;

    /// Whether other readers share it: a message that does not come here may come there.
    fn is_shared(&self) -> bool;

    /// Hands the next message to `take`, and waits for it so long at most. The message before counts as read from here on.
    ///
    /// # Errors
    /// [`Error::Topic`] if no further message can come.
    fn next(&mut self, wait: Duration, take: &mut dyn FnMut(&Message<'_>)) -> Result<NextMessage, Error>;

    /// Lines to be shown to the user since this was last asked.
    fn take_events(&mut self) -> Vec<String>;

    /// Ends the reading: a group goes on behind the last read message, and behind the last message if that
    /// `was_read`.
    fn finish(&mut self, was_read: bool);
}

/// The contents of a chunk's headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// Identity of the chunk.
    pub id: BlockId,
    /// Packets of the chunk.
    pub packets: u64,
    /// Packets of the run before these.
    pub packets_before: u64,
}

impl ChunkHead {
    /// The head that the headers of a message give.
    ///
    /// # Errors
    /// The reason that it is not a chunk of packets.
    pub fn of<'h>(
        headers: impl Iterator<Item = (&'h str, Option<&'h [u8]>)>,
    ) -> Result<ChunkHead, &'static str> {
        let (mut id, mut packets, mut packets_before, mut is_pcapng) = (None, None, None, false);
        for (name, value) in headers.take(HEADERS_MAX) {
            let text = value.and_then(|value| std::str::from_utf8(value).ok());
            let number = || text.and_then(|text| text.parse::<u64>().ok());
            match name {
                "tapline-batch" => id = text.and_then(|text| text.parse::<BlockId>().ok()),
                "tapline-format" => is_pcapng = text == Some("pcapng"),
                "tapline-packets" => packets = number(),
                "tapline-packets-before" => packets_before = number(),
                _ => {}
            }
        }
        if !is_pcapng {
            return Err("its headers announce no packets (tapline-format: pcapng)");
        }
        let id = id.ok_or("it has no id (tapline-batch)")?;
        let packets = packets.ok_or("it has no count of packets (tapline-packets)")?;
        let packets_before =
            packets_before.ok_or("it has no count of the packets before (tapline-packets-before)")?;
        Ok(ChunkHead { id, packets, packets_before })
    }
}

/// The chunks of each run that came.
#[derive(Debug, Default)]
pub struct Runs {
    runs: HashMap<(Sensor, u64), Run>,
    /// Chunks so far.
    chunks: u64,
    /// Packets that runs lacked which were forgotten: of a whole topic, and of another.
    forgotten: [u64; 2],
}

#[derive(Debug)]
struct Run {
    /// Numbers that came: the first of a stretch, and the last.
    seen: BTreeMap<u64, u64>,
    /// Packets of the chunks that came, as their heads say.
    packets: u64,
    /// Packets before the first chunk that came, and up to the end of the last.
    from: u64,
    to: u64,
    /// The partition of its chunks; `None` for several.
    partition: Option<i32>,
    /// The number of its last chunk among those of all runs.
    last: u64,
}

impl Runs {
    /// Notes a chunk of a partition. `false` if it was seen before.
    pub fn add(&mut self, head: &ChunkHead, partition: i32) -> bool {
        let key = (head.id.sensor.clone(), head.id.epoch);
        if self.runs.len() >= RUNS_MAX && !self.runs.contains_key(&key) {
            self.forget_one();
        }
        self.chunks += 1;
        let run = self.runs.entry(key).or_insert_with(|| Run {
            seen: BTreeMap::new(),
            packets: 0,
            from: u64::MAX,
            to: 0,
            partition: Some(partition),
            last: 0,
        });
        run.last = self.chunks;
        run.partition = run.partition.filter(|before| *before == partition);
        if !run.see(head.id.number) {
            return false;
        }
        run.packets = run.packets.saturating_add(head.packets);
        run.from = run.from.min(head.packets_before);
        run.to = run.to.max(head.packets_before.saturating_add(head.packets));
        true
    }

    /// Packets before the last chunk of each run that are in none that came. Of a topic that is not whole, those since the
    /// first one that came, and of runs in one partition: each partition has its own beginning.
    pub fn lacking(&self, is_whole: bool) -> u64 {
        let forgotten = self.forgotten[usize::from(!is_whole)];
        self.runs.values().map(|run| run.lacking(is_whole)).fold(forgotten, u64::saturating_add)
    }

    /// Forgets the run that had no chunk for longest.
    fn forget_one(&mut self) {
        let Some(key) = self.runs.iter().min_by_key(|(_, run)| run.last).map(|(key, _)| key.clone()) else {
            return;
        };
        let Some(run) = self.runs.remove(&key) else { return };
        for (sum, is_whole) in self.forgotten.iter_mut().zip([true, false]) {
            *sum = sum.saturating_add(run.lacking(is_whole));
        }
    }
}

impl Run {
    fn lacking(&self, is_whole: bool) -> u64 {
        match (is_whole, self.partition) {
            (true, _) => self.to.saturating_sub(self.packets),
            (false, Some(_)) => self.to.saturating_sub(self.from).saturating_sub(self.packets),
            (false, None) => 0,
        }
    }

    /// Notes a number. `false` if it was noted before.
    fn see(&mut self, number: u64) -> bool {
        let before = self.seen.range(..=number).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| number <= last) {
            return false;
        }
        let first = match before {
            Some((first, last)) if last.checked_add(1) == Some(number) => first,
            _ => number,
        };
        let joined = number.checked_add(1).and_then(|next| self.seen.remove(&next));
        self.seen.insert(first, joined.unwrap_or(number));
        if self.seen.len() > GAPS_MAX
            && let Some((first, _)) = self.seen.pop_first()
            && let Some((_, last)) = self.seen.pop_first()
        {
            self.seen.insert(first, last);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(number: u64, packets_before: u64) -> ChunkHead {
        let sensor = Sensor::new("a").expect("a name");
        ChunkHead { id: BlockId { sensor, epoch: 1, number }, packets: 10, packets_before }
    }

    #[test]
    fn topics_to_read_are_parsed() {
        let parse = |text: &str| TopicAddress::parse(text);
        let topic = parse("kafka://me@h:9/t?from=end&until=end&group=g").expect("a topic");
        assert_eq!((topic.to_string().as_str(), topic.user.as_deref()), ("kafka://h:9/t", Some("me")));
        assert_eq!((topic.is_from_end, topic.is_until_end, topic.group.as_deref()), (true, true, Some("g")));
        for (text, why) in [
            ("kafka://h", "topic is missing"),
            ("kafka://h/t?key=none", "unknown setting"),
            ("kafka://h/t?until=now", "unknown setting"),
            ("kafka://me:sesame@h/t", "properties="),
            ("h/t", "begins with"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(why) && !error.contains("sesame"), "{error}");
        }
    }

    #[test]
    fn chunks_come_in_any_order_and_once() {
        let mut runs = Runs::default();
        for number in [3, 0, 4, 1] {
            assert!(runs.add(&head(number, number * 10), 0));
            assert!(!runs.add(&head(number, number * 10), 0));
        }
        assert_eq!(runs.lacking(true), 10);
        assert!(runs.add(&head(2, 20), 0) && !runs.add(&head(3, 30), 0));
        assert_eq!(runs.lacking(true), 0);
        // A chunk that had no room in the memory has no number, and its packets count.
        assert!(runs.add(&head(5, 70), 0));
        assert_eq!((runs.lacking(true), runs.lacking(false)), (20, 20));
    }

    #[test]
    fn what_was_deleted_before_is_not_lacking() {
        let mut runs = Runs::default();
        assert!(runs.add(&head(7, 70), 0) && runs.add(&head(9, 90), 0));
        assert_eq!((runs.lacking(false), runs.lacking(true)), (10, 80));
        assert!(runs.add(&head(u64::MAX, u64::MAX), 0) && !runs.add(&head(u64::MAX, 0), 0));
    }

    #[test]
    fn gaps_and_runs_have_a_bound() {
        let mut runs = Runs::default();
        (0..3000).for_each(|number| assert!(runs.add(&head(2 * number, 0), 0)));
        assert!(runs.runs.values().all(|run| run.seen.len() <= GAPS_MAX));
        assert!(!runs.add(&head(1, 0), 0) && runs.add(&head(5999, 0), 0));
        for epoch in 0..5000 {
            let mut other = head(0, 0);
            other.id.epoch = epoch;
            runs.add(&other, 0);
        }
        assert_eq!(runs.runs.len(), RUNS_MAX);
        // The first run lacked what is still counted, and is new now; the last one is known.
        assert_eq!(runs.lacking(true), 0);
        let mut late = head(3, 30);
        late.id.epoch = 9000;
        assert!(runs.add(&late, 0) && runs.lacking(true) == 30 && runs.lacking(false) == 0);
        for epoch in 10_000..15_000 {
            late.id.epoch = epoch;
            late.packets_before = 0;
            assert!(runs.add(&late, 0) && !runs.add(&late, 0));
        }
        assert_eq!((runs.lacking(true), runs.lacking(false)), (30, 0));
    }

    #[test]
    fn partitions_that_begin_elsewhere_are_no_gaps() {
        let mut runs = Runs::default();
        assert!(runs.add(&head(3, 30), 0) && runs.add(&head(8, 80), 1));
        assert_eq!((runs.lacking(false), runs.lacking(true)), (0, 70));
    }

    #[test]
    fn heads_want_all_their_headers() {
        let good = [
            ("tapline-batch", "a-1-2"),
            ("tapline-format", "pcapng"),
            ("tapline-packets", "3"),
            ("tapline-packets-before", "4"),
        ];
        let of = |headers: &[(&str, &str)]| {
            let owned: Vec<(String, String)> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            ChunkHead::of(owned.iter().map(|(name, value)| (name.as_str(), Some(value.as_bytes()))))
        };
        let head = of(&good).expect("a head");
        assert_eq!((head.id.number, head.packets, head.packets_before), (2, 3, 4));
        for without in 0..good.len() {
            let mut headers = good.to_vec();
            headers[without].1 = "x";
            assert!(of(&headers).is_err(), "{without}");
        }
        assert!(ChunkHead::of([("tapline-format", None), ("", Some(&b"\xff"[..]))].into_iter()).is_err());
    }
}
