//! Blocks: encoded rows that are delivered as a whole or not at all.
//!
//! ```text
//! id = sensor-epoch-number      probe7-1790000000123456789-42
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::Error;

/// The longest name of a sensor, in bytes.
const SENSOR_MAX: usize = 64;

/// The name of a sensor: 1 to 64 letters, digits, dots, hyphens and underscores, so that it is valid in names of
/// files, in URLs and in headers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sensor(Arc<str>);

impl Sensor {
    /// A sensor of this name.
    ///
    /// # Errors
    /// [`Error::Sensor`] for a name that is empty, too long, or has other letters.
    pub fn new(name: &str) -> Result<Sensor, Error> {
        let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
        let is_name =
            (1..=SENSOR_MAX).contains(&name.len()) && name.chars().all(fits) && !name.starts_with('.');
        if !is_name {
            return Err(Error::Sensor { name: name.to_owned() });
        }
        Ok(Sensor(name.into()))
    }

    /// The host as a sensor.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn host() -> Result<Sensor, Error> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let fits =
            |letter: char| if letter.is_ascii_alphanumeric() || "._".contains(letter) { letter } else { '-' };
        let name: String = host.trim().trim_start_matches('.').chars().map(fits).take(SENSOR_MAX).collect();
        Sensor::new(if name.is_empty() { "sensor" } else { &name })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The identity of a block, by which a receiver knows that it has it already. No two blocks of different rows have the
/// same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    /// The sensor that metered the rows.
    pub sensor: Sensor,
    /// The run of the sensor: the time at which it began, in nanoseconds since 1970, other than those of all its other
    /// runs and workers.
    pub epoch: u64,
    /// The block's place in that run, from 0 on.
    pub number: u64,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.sensor.as_str(), self.epoch, self.number)
    }
}

impl FromStr for BlockId {
    type Err = Error;

    /// The id of a text.
    ///
    /// # Errors
    /// [`Error::Sensor`] for another text.
    fn from_str(text: &str) -> Result<BlockId, Error> {
        let wrong = || Error::Sensor { name: text.chars().take(SENSOR_MAX).collect() };
        let (rest, number) = text.rsplit_once('-').ok_or_else(wrong)?;
        let (sensor, epoch) = rest.rsplit_once('-').ok_or_else(wrong)?;
        let number_of = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        Ok(BlockId { sensor: Sensor::new(sensor)?, epoch: number_of(epoch)?, number: number_of(number)? })
    }
}

tapline_packet::named_enum! {
    /// The form of a block's bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Encoding {
        /// An object of JSON for each row, each in a line of its own.
        JsonLines = "json",
        /// goflow2's protobuf, each message behind its length.
        Goflow = "goflow",
        /// Messages of IPFIX, the first with templates.
        Ipfix = "ipfix",
        /// ClickHouse's Native.
        Native = "native",
        /// A stream of Arrow: a schema and a record batch.
        Arrow = "arrow",
        /// A file of Parquet.
        Parquet = "parquet",
        /// A section of pcapng: packets, not flows.
        Pcapng = "pcapng",
    }
}

impl Encoding {
    /// Media type for HTTP.
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::JsonLines => "application/x-ndjson",
            Encoding::Goflow => "application/x-protobuf",
            Encoding::Ipfix | Encoding::Native => "application/octet-stream",
            Encoding::Arrow => "application/vnd.apache.arrow.stream",
            Encoding::Parquet => "application/vnd.apache.parquet",
            Encoding::Pcapng => "application/vnd.tcpdump.pcap",
        }
    }

    /// Whether its rows are flows.
    pub fn is_of_flows(self) -> bool {
        self != Encoding::Pcapng
    }

    /// Whether blocks behind each other are of the same form again.
    pub fn is_joinable(self) -> bool {
        !matches!(self, Encoding::Arrow | Encoding::Parquet)
    }
}

/// Encoded rows, or packets. A flow is whole in one block: both of its directions are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Identity of the block.
    pub id: BlockId,
    /// The form of its bytes.
    pub encoding: Encoding,
    /// The version of the columns: a hash of their names and types.
    pub schema: u64,
    /// Flows in the block.
    pub flows: u64,
    /// Rows, of which each is a direction of a flow, or a flow.
    pub rows: u64,
    /// Packets that the rows count.
    pub packets: u64,
    /// Packets of the run before these, in blocks or lost: a reader of packets counts missing ones by it. 0 for
    /// flows.
    pub packets_before: u64,
    /// The start of the earliest flow, in nanoseconds since 1970.
    pub first_ns: i64,
    /// The end of the latest flow, in nanoseconds since 1970.
    pub last_ns: i64,
    /// The rows.
    pub bytes: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_id_gives_it_back() {
        let id =
            BlockId { sensor: Sensor::new("a-7.b_c").expect("a name"), epoch: 1_790_000_000, number: 42 };
        assert_eq!(id.to_string(), "a-7.b_c-1790000000-42");
        assert_eq!(id.to_string().parse::<BlockId>().expect("an id"), id);
        for wrong in ["", "a", "a-1", "a-1-x", "-1-2", "a/b-1-2", "a-1-99999999999999999999"] {
            assert!(wrong.parse::<BlockId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_sensors_are_safe_in_paths() {
        for wrong in ["", "..", ".a", "a/b", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(Sensor::new(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Sensor::new(&"x".repeat(64)).expect("the longest").as_str().len(), 64);
    }

    #[test]
    fn encodings_are_found_by_name() {
        for encoding in Encoding::ALL {
            assert_eq!(Encoding::of_name(encoding.name()), Some(encoding));
        }
        assert_eq!(Encoding::of_name("xml"), None);
    }
}
