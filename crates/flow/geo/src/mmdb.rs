//! MMDB files: MaxMind's format, version 2.
//!
//! ```text
//! GeoLite2, DB-IP    country.iso_code | autonomous_system_number, autonomous_system_organization
//! IPinfo             country_code, or country as a text | asn "AS64496", as_name
//! others             name, network_name
//! ```
//!
//! Records are decoded when they are asked for; a record that is damaged, or has another type there, is unknown.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::place::is_plain;
use crate::{Error, Place};

/// The beginning of the metadata, which is in the last bytes of a file.
const MARK: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// The most bytes of metadata, with the mark.
const METADATA_MAX: usize = 128 << 10;
/// Records that are looked at when a file is opened.
const LOOKED_AT: usize = 1000;

/// Whether a file is one of these.
pub(crate) fn is_database(bytes: &[u8]) -> bool {
    let end = &bytes[bytes.len().saturating_sub(METADATA_MAX)..];
    end.windows(MARK.len()).any(|window| window == MARK)
}

/// An MMDB file in memory.
pub(crate) struct Database(Reader<Vec<u8>>);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(self.0.metadata()).finish()
    }
}

impl Database {
    pub(crate) fn parse(path: &Path, bytes: Vec<u8>) -> Result<Database, Error> {
        let wrong = |what: String| Error::Database { file: path.to_owned(), what };
        let damaged = |error: MaxMindDbError| wrong(format!("the MMDB file is damaged: {error}"));
        let reader = Reader::from_source(bytes).map_err(damaged)?;
        let mut keys: Vec<String> = Vec::new();
        let mut has_place = false;
        let options = WithinOptions::default().skip_empty_values();
        for found in reader.networks(options).map_err(damaged)?.take(LOOKED_AT) {
            let found = found.map_err(damaged)?;
            has_place |=
                found.decode::<Record<'_>>().ok().flatten().is_some_and(|record| !record.place().is_empty());
            if has_place {
                break;
            }
            if let Some(Keys(more)) = found.decode::<Keys>().map_err(damaged)? {
                keys.extend(more);
                keys.sort_unstable();
                keys.dedup();
                keys.truncate(10);
            }
        }
        if has_place {
            return Ok(Database(reader));
        }
        let kind = &reader.metadata().database_type;
        Err(wrong(format!(
            "the MMDB file ({kind}) has neither country nor autonomous system nor name in its first records, but {}",
            if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") },
        )))
    }

    pub(crate) fn of(&self, address: IpAddr) -> Place<'_> {
        let found = self.0.lookup(address).ok();
        let record = found.and_then(|found| found.decode::<Record<'_>>().ok().flatten());
        record.map_or(Place::default(), |record| record.place())
    }

    /// Nodes of the tree.
    pub(crate) fn nodes(&self) -> u64 {
        u64::from(self.0.metadata().node_count)
    }
}

/// The fields of a record that places are made of.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Record<'a> {
    #[serde(borrow)]
    country: Country<'a>,
    country_code: &'a str,
    autonomous_system_number: u32,
    autonomous_system_organization: &'a str,
    #[serde(borrow)]
    asn: AsNumber<'a>,
    as_name: &'a str,
    name: &'a str,
    network_name: &'a str,
}

impl<'a> Record<'a> {
    fn place(&self) -> Place<'a> {
        let first = |texts: [&'a str; 2]| texts.into_iter().find(|text| !text.is_empty() && is_plain(text));
        Place {
            country: first([self.country_code, self.country.0]).unwrap_or_default(),
            as_number: if self.autonomous_system_number == 0 {
                self.asn.number()
            } else {
                self.autonomous_system_number
            },
            as_name: first([self.autonomous_system_organization, self.as_name]).unwrap_or_default(),
            network_name: first([self.network_name, self.name]).unwrap_or_default(),
        }
    }
}

/// The code of a country: the text itself, or `iso_code` of a map.
#[derive(Default)]
struct Country<'a>(&'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Country<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Code;
        impl<'de> Visitor<'de> for Code {
            type Value = Country<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the code of a country, or a map with its iso_code")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Country<'de>, E> {
                Ok(Country(text))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Country<'de>, A::Error> {
                let mut code = "";
                while let Some(key) = map.next_key::<&str>()? {
                    match key {
                        "iso_code" => code = map.next_value()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Country(code))
            }
        }
        deserializer.deserialize_any(Code)
    }
}

/// The number of an autonomous system, as a number or as a text such as `AS64496`.
enum AsNumber<'a> {
    Number(u32),
    Text(&'a str),
}

impl Default for AsNumber<'_> {
    fn default() -> Self {
        AsNumber::Number(0)
    }
}

impl AsNumber<'_> {
    fn number(&self) -> u32 {
        match self {
            AsNumber::Number(number) => *number,
            AsNumber::Text(text) => text.trim_start_matches("AS").parse().unwrap_or(0),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for AsNumber<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = AsNumber<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of an autonomous system")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<AsNumber<'de>, E> {
                Ok(AsNumber::Text(text))
            }

            fn visit_u64<E>(self, number: u64) -> Result<AsNumber<'de>, E> {
                Ok(AsNumber::Number(u32::try_from(number).unwrap_or(0)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The names of a record's fields.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut names = Vec::new();
                while let Some((name, _)) = map.next_entry::<&str, IgnoredAny>()? {
                    names.push(name.escape_debug().to_string());
                }
                Ok(Keys(names))
            }
        }
        deserializer.deserialize_any(Names)
    }
}
