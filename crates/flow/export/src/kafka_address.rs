//! Topics of Kafka, as destinations name them.
//!
//! ```text
//! kafka://[USER@]HOST[:PORT][+HOST[:PORT]...]/TOPIC[?key=sensor|flow|none&properties=FILE]
//! ```

use std::fmt;
use std::path::PathBuf;

/// The port of brokers.
const PORT: u16 = 9092;
/// The longest name of a topic (Kafka's `Topic.MAX_NAME_LENGTH`).
const TOPIC_MAX: usize = 249;
/// Maximum number of named brokers; the first one that answers names the others.
const BROKERS_MAX: usize = 32;

/// The most bytes of a block: with key and headers it fits into a message of 1,000,000 bytes, and brokers take 1,048,588
/// where nothing else was set (`message.max.bytes`).
pub(crate) const BLOCK_MAX: usize = 900_000;

/// The key of messages, by which the client chooses the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MessageKey {
    /// The sensor's name: its blocks are in one partition, in their order.
    #[default]
    Sensor,
    /// The key group of the block's flows: a flow is in one partition, whichever sensor metered it.
    Flow,
    /// None: blocks are spread.
    None,
}

/// A topic, as destinations name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KafkaAddress {
    /// `HOST:PORT`, of which each is asked until one answers.
    pub(crate) brokers: Vec<String>,
    /// Name of the topic: letters, digits, dots, hyphens and underscores.
    pub(crate) topic: String,
    pub(crate) key: MessageKey,
    /// A file of further properties of the client.
    pub(crate) properties: Option<PathBuf>,
}

impl KafkaAddress {
    /// The topic behind `kafka://USER@`, to which blocks go.
    pub(crate) fn parse(text: &str) -> Result<KafkaAddress, String> {
        let mut key = MessageKey::default();
        let address = KafkaAddress::parse_with(text, "key=sensor, key=flow, key=none", |setting| {
            key = match setting {
                ("key", "sensor") => MessageKey::Sensor,
                ("key", "flow") => MessageKey::Flow,
                ("key", "none") => MessageKey::None,
                _ => return false,
            };
            true
        });
        address.map(|address| KafkaAddress { key, ..address })
    }

    /// The topic with other settings: `take` says whether it knows a name and its value, `known` are those that it does.
    pub(crate) fn parse_with(
        text: &str,
        known: &str,
        mut take: impl FnMut((&str, &str)) -> bool,
    ) -> Result<KafkaAddress, String> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let (hosts, topic) = path.split_once('/').ok_or("the topic is missing: kafka://HOST:PORT/TOPIC")?;
        let fits = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
        if !(1..=TOPIC_MAX).contains(&topic.len()) || !topic.chars().all(fits) || [".", ".."].contains(&topic)
        {
            return Err(format!(
                "`{topic}` is not a topic: 1 to {TOPIC_MAX} letters, digits, dots, hyphens and underscores"
            ));
        }
        let brokers = hosts.split('+').map(broker).collect::<Result<Vec<String>, String>>()?;
        if brokers.len() > BROKERS_MAX {
            return Err(format!(
                "more than {BROKERS_MAX} brokers: a few are enough, as each knows the others"
            ));
        }
        let mut address =
            KafkaAddress { brokers, topic: topic.to_owned(), key: MessageKey::default(), properties: None };
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("properties", file)) if !file.is_empty() => address.properties = Some(file.into()),
                Some(given) if take(given) => {}
                _ => {
                    return Err(format!("unknown setting `{setting}`; expected {known} or properties=FILE"));
                }
            }
        }
        Ok(address)
    }
}

/// A broker with its port.
fn broker(host: &str) -> Result<String, String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || ".-_:[]".contains(letter);
    let (name, port) = match host.rsplit_once(':').filter(|_| !host.ends_with(']')) {
        None => (host, PORT),
        Some((name, digits)) => {
            (name, digits.parse().map_err(|_| format!("`{digits}` is not a port: 1 to 65535"))?)
        }
    };
    match name {
        "" => Err("a broker is missing: kafka://HOST:PORT/TOPIC".to_owned()),
        name if port == 0 || !name.chars().all(fits) => {
            Err(format!("`{host}` is not a broker: HOST or HOST:PORT, and + between several"))
        }
        name => Ok(format!("{name}:{port}")),
    }
}

impl fmt::Display for KafkaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka://{}/{}", self.brokers.join("+"), self.topic)?;
        // The key decides how blocks are numbered, so a spool is of one key.
        if self.key == MessageKey::Flow { f.write_str("?key=flow") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read() {
        let address =
            KafkaAddress::parse("a+b:9+[::1]:7/net.flows?key=none&properties=/etc/k").expect("a topic");
        assert_eq!(address.brokers, ["a:9092", "b:9", "[::1]:7"]);
        assert_eq!((address.topic.as_str(), address.key), ("net.flows", MessageKey::None));
        assert_eq!(address.properties, Some("/etc/k".into()));
        assert_eq!(address.to_string(), "kafka://a:9092+b:9+[::1]:7/net.flows");
        assert_eq!(KafkaAddress::parse("[::1]/t").expect("a topic").key, MessageKey::Sensor);
        let by_flow = KafkaAddress::parse("h/t?key=flow").expect("a topic");
        assert_eq!(
            (by_flow.key, by_flow.to_string().as_str()),
            (MessageKey::Flow, "kafka://h:9092/t?key=flow")
        );
    }

    #[test]
    fn what_is_no_topic_is_refused() {
        let long = format!("h/{}", "x".repeat(250));
        let many = format!("{}h/t", "h+".repeat(32));
        for (text, why) in [
            ("h", "topic is missing"),
            ("h/", "not a topic"),
            ("h/..", "not a topic"),
            ("h/a b", "not a topic"),
            (long.as_str(), "not a topic"),
            ("/t", "broker is missing"),
            ("h+/t", "broker is missing"),
            ("h:0/t", "not a broker"),
            ("h:x/t", "not a port"),
            ("h,i/t", "not a broker"),
            (many.as_str(), "more than 32"),
            ("h/t?acks=0", "unknown setting"),
            ("h/t?key=packet", "unknown setting"),
            ("h/t?properties=", "unknown setting"),
        ] {
            let error = KafkaAddress::parse(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
