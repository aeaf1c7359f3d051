//! The common part of writers and readers of topics: the client's properties, and the brokers' description of a
//! topic.

use std::time::Duration;

use rdkafka::config::{ClientConfig, RDKafkaLogLevel};

use crate::kafka_address::KafkaAddress;
use crate::{Error, Secret, kafka_properties};

/// The longest time for the brokers' word on the topic at the start.
pub(crate) const METADATA_TIME: Duration = Duration::from_secs(5);
/// The most letters of a reason that are shown.
const SHOWN_MAX: usize = 200;

/// The client's properties, with those of the user's file.
pub(crate) fn config(
    address: &KafkaAddress,
    user: Option<&str>,
    secret: Option<&Secret>,
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::new();
    config.set("client.id", "tapline");
    if let Some(user) = user {
        config.set("security.protocol", "SASL_SSL").set("sasl.mechanisms", "SCRAM-SHA-512");
        config.set("sasl.username", user);
    }
    if let Some(secret) = secret {
        config.set("sasl.password", secret.as_str());
    }
    if let Some(file) = &address.properties {
        for (name, value) in kafka_properties::read(file)? {
            // Two names of one property would be set in no order.
            let name = if name == "sasl.mechanism" { "sasl.mechanisms".to_owned() } else { name };
            config.set(name, value);
        }
    }
    config
        .set("bootstrap.servers", address.brokers.join(","))
        .set("reconnect.backoff.max.ms", "1000")
        .set_log_level(RDKafkaLogLevel::Emerg);
    Ok(config)
}

/// A text of others: no letter of it moves a terminal's cursor.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_MAX).collect()
}
