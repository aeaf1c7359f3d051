//! Text files of networks: a line of column names, then a network in each line.
//!
//! ```text
//! network,name,country,as,as_name                start,end,country
//! 10.1.0.0/16,office,DE,,                        192.0.2.0,192.0.2.255,US
//! 2001:db8::/32,"lab, old",,64496,Example        # a comment
//! ```
//!
//! Fields are those of RFC 4180. A file whose line of column names has a tab has tabs instead of commas. The narrowest network
//! around an address counts; ranges may be one inside the other, and may not cross.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::place::is_plain;
use crate::range::{Conflict, Range, RangeMap};
use crate::{Error, Place, TEXT_MAX};

/// Networks of a text file.
#[derive(Debug)]
pub(crate) struct NetworkTable {
    v4: RangeMap<u32>,
    v6: RangeMap<u128>,
    entries: Vec<Entry>,
    texts: Vec<Box<str>>,
    lines: u64,
}

/// A place whose texts are numbers of `texts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    country: u32,
    as_number: u32,
    as_name: u32,
    network_name: u32,
}

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Network,
    Start,
    End,
    Name,
    Country,
    AsNumber,
    AsName,
}

/// Names of columns: ours first, then those of files that are published.
const COLUMNS: [(&str, Field); 18] = [
    ("network", Field::Network),
    ("start", Field::Start),
    ("end", Field::End),
    ("name", Field::Name),
    ("country", Field::Country),
    ("as", Field::AsNumber),
    ("as_name", Field::AsName),
    ("cidr", Field::Network),
    ("prefix", Field::Network),
    ("start_ip", Field::Start),
    ("end_ip", Field::End),
    ("network_name", Field::Name),
    ("country_code", Field::Country),
    ("country_iso_code", Field::Country),
    ("asn", Field::AsNumber),
    ("as_number", Field::AsNumber),
    ("autonomous_system_number", Field::AsNumber),
    ("autonomous_system_organization", Field::AsName),
];

impl NetworkTable {
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<NetworkTable, Error> {
        let at = |offset: u64, what: String| {
            let line = line_of(bytes, offset as usize);
            Error::Line { file: path.to_owned(), line, what }
        };
        if bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            return Err(at(0, "the file is compressed: unpack it first".to_owned()));
        }
        let is_passed_over = |line: &&[u8]| line.trim_ascii().is_empty() || line.starts_with(b"#");
        let first = bytes.split(|byte| *byte == b'\n').find(|line| !is_passed_over(line)).unwrap_or_default();
        let mut lines = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .comment(Some(b'#'))
            .delimiter(if first.contains(&b'\t') { b'\t' } else { b',' })
            .from_reader(bytes);
        let mut builder = TableBuilder::default();
        let mut columns: Option<Vec<Option<Field>>> = None;
        let mut record = StringRecord::new();
        loop {
            let offset = lines.position().byte();
            match lines.read_record(&mut record) {
                Ok(false) => break,
                Ok(true) => {}
                Err(_) => return Err(at(offset, "this is not text in UTF-8 with commas".to_owned())),
            }
            match &columns {
                None => columns = Some(header(&record).map_err(|what| at(offset, what))?),
                Some(columns) => builder.line(columns, &record, offset).map_err(|what| at(offset, what))?,
            }
        }
        if columns.is_none() {
            return Err(at(
                0,
                "the file is empty: its first line names the columns, such as network,name".to_owned(),
            ));
        }
        builder.finish().map_err(|Conflict { offset, other, are_equal }| {
            let other = line_of(bytes, other as usize);
            let what = match are_equal {
                true => format!("line {other} has the same network: leave one out"),
                false => {
                    format!("its range shares a part with that of line {other}: let one lie inside the other")
                }
            };
            at(offset, what)
        })
    }

    pub(crate) fn of(&self, address: IpAddr) -> Place<'_> {
        let found = match address {
            IpAddr::V4(address) => self.v4.get(address.to_bits()),
            IpAddr::V6(address) => self.v6.get(address.to_bits()),
        };
        let entry = found.and_then(|found| self.entries.get(found as usize));
        let text = |number: u32| self.texts.get(number as usize).map_or("", |text| &**text);
        entry.map_or(Place::default(), |entry| Place {
            country: text(entry.country),
            as_number: entry.as_number,
            as_name: text(entry.as_name),
            network_name: text(entry.network_name),
        })
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }
}

/// Reads the columns of a file; those of other names are skipped.
fn header(record: &StringRecord) -> Result<Vec<Option<Field>>, String> {
    let field = |name: &str| {
        let name = name.trim_start_matches('\u{feff}').to_ascii_lowercase().replace([' ', '-'], "_");
        COLUMNS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
    };
    let columns: Vec<Option<Field>> = record.iter().map(field).collect();
    let count = |field: Field| columns.iter().filter(|column| **column == Some(field)).count();
    let has_range = count(Field::Start) == 1 && count(Field::End) == 1;
    if !(has_range || count(Field::Network) == 1) {
        return Err("the first line names the columns, and has neither network nor start and end: write, for example, network,name above the others".to_owned());
    }
    if [Field::Name, Field::Country, Field::AsNumber, Field::AsName]
        .into_iter()
        .all(|field| count(field) == 0)
    {
        return Err(
            "no column says where the networks are: name one of them name, country, as or as_name".to_owned()
        );
    }
    for (name, field) in &COLUMNS[..7] {
        if count(*field) > 1 {
            return Err(format!("two columns are {name}: give one of them another name"));
        }
    }
    Ok(columns)
}

#[derive(Default)]
struct TableBuilder {
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u128>>,
    entries: Vec<Entry>,
    numbers: HashMap<Entry, u32>,
    texts: Vec<Box<str>>,
    text_numbers: HashMap<Box<str>, u32>,
}

impl TableBuilder {
    fn line(&mut self, columns: &[Option<Field>], record: &StringRecord, offset: u64) -> Result<(), String> {
        if record.len() != columns.len() {
            return Err(format!(
                "the line has {} fields, and the first line names {}",
                record.len(),
                columns.len()
            ));
        }
        let value = |field: Field| {
            let at = columns.iter().position(|column| *column == Some(field));
            at.and_then(|at| record.get(at)).unwrap_or_default()
        };
        let as_number = as_number(value(Field::AsNumber))?;
        let mut text = |field: Field| self.text(value(field));
        let (country, as_name, network_name) =
            (text(Field::Country)?, text(Field::AsName)?, text(Field::Name)?);
        let entry = Entry { country, as_number, as_name, network_name };
        let next = self.entries.len() as u32;
        let number = *self.numbers.entry(entry).or_insert(next);
        if number == next {
            self.entries.push(entry);
        }
        let ends = match value(Field::Network) {
            "" => ends_of_range(value(Field::Start), value(Field::End))?,
            network => ends_of_network(network)?,
        };
        match ends {
            Ends::V4(first, last) => self.v4.push(Range { first, last, value: number, offset }),
            Ends::V6(first, last) => self.v6.push(Range { first, last, value: number, offset }),
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<u32, String> {
        if let Some(number) = self.text_numbers.get(text) {
            return Ok(*number);
        }
        if !is_plain(text) {
            return Err(format!("a name has control characters, or more than {TEXT_MAX} bytes: shorten it"));
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.into());
        self.text_numbers.insert(text.into(), number);
        Ok(number)
    }

    fn finish(self) -> Result<NetworkTable, Conflict> {
        let lines = (self.v4.len() + self.v6.len()) as u64;
        let (v4, v6) = (RangeMap::new(self.v4)?, RangeMap::new(self.v6)?);
        Ok(NetworkTable { v4, v6, entries: self.entries, texts: self.texts, lines })
    }
}

/// The line of the record that is read from an offset: blank lines and comments before it are skipped.
fn line_of(bytes: &[u8], offset: usize) -> u64 {
    let (before, mut rest) = bytes.split_at(offset.min(bytes.len()));
    let mut line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        if !(rest[..end].trim_ascii().is_empty() || rest[0] == b'#') {
            break;
        }
        rest = &rest[end + 1..];
        line += 1;
    }
    line
}

/// The number of an autonomous system, with or without `AS` before it; nothing is 0.
fn as_number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("AS").or_else(|| text.strip_prefix("as")).unwrap_or(text);
    match digits {
        "" if text.is_empty() => Ok(0),
        _ => digits.parse().map_err(|_| {
            format!("{text:?} is not a number of an autonomous system, such as 64496 or AS64496")
        }),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    V4(u32, u32),
    V6(u128, u128),
}

fn ends_of_network(text: &str) -> Result<Ends, String> {
    let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let wrong = || format!("{text:?} is not a network, such as 10.1.0.0/16, 2001:db8::/32 or 192.0.2.1");
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let len: u32 = match len {
        None => whole,
        Some(len) => len.parse().ok().filter(|len| *len <= whole).ok_or_else(wrong)?,
    };
    let (ends, network) = match address {
        IpAddr::V4(address) => {
            let host = u32::MAX.checked_shr(len).unwrap_or(0);
            let first = address.to_bits() & !host;
            (Ends::V4(first, first | host), IpAddr::from(Ipv4Addr::from_bits(first)))
        }
        IpAddr::V6(address) => {
            let host = u128::MAX.checked_shr(len).unwrap_or(0);
            let first = address.to_bits() & !host;
            (Ends::V6(first, first | host), IpAddr::from(Ipv6Addr::from_bits(first)))
        }
    };
    match network == address {
        true => Ok(ends),
        false => {
            Err(format!("{text:?} has bits behind its prefix: write {network}/{len}, or another length"))
        }
    }
}

fn ends_of_range(start: &str, end: &str) -> Result<Ends, String> {
    let address = |text: &str| {
        text.parse::<IpAddr>().map_err(|_| format!("{text:?} is not an address of IPv4 or IPv6"))
    };
    match (address(start)?, address(end)?) {
        (IpAddr::V4(first), IpAddr::V4(last)) if first <= last => {
            Ok(Ends::V4(first.to_bits(), last.to_bits()))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) if first <= last => {
            Ok(Ends::V6(first.to_bits(), last.to_bits()))
        }
        _ => Err(format!(
            "a range begins at its least address, of the same version of IP: {start} to {end} does not"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<NetworkTable, String> {
        NetworkTable::parse(Path::new("f.csv"), text.as_bytes()).map_err(|error| error.to_string())
    }

    fn place(table: &NetworkTable, address: &str) -> String {
        table.of(address.parse().expect("an address")).to_string()
    }

    #[test]
    fn the_narrowest_network_has_the_name() {
        let text = "\u{feff}Network, Name,country,AS,as_name,colour\r\n\
            10.0.0.0/8,ours,DE,,,red\n# all of it\n\n10.1.0.0/16,\"office, \"\"old\"\"\",,AS64496,Example,\n\
            10.1.2.3,printer,,,,\n2001:db8::/32,,FR,4200000000,,\n";
        let table = table(text).expect("it has no mistake");
        assert_eq!(place(&table, "10.2.0.1"), "ours, DE");
        assert_eq!(place(&table, "10.1.0.1"), "office, \"old\", AS64496 Example");
        assert_eq!(place(&table, "10.1.2.3"), "printer");
        assert_eq!(place(&table, "11.0.0.0"), "");
        assert_eq!(place(&table, "2001:db8::9"), "FR, AS4200000000");
        assert_eq!(table.lines(), 4);
    }

    #[test]
    fn published_files_are_read_as_they_are() {
        let blocks = "network,autonomous_system_number,autonomous_system_organization\n1.0.0.0/24,13335,CLOUDFLARENET\n";
        assert_eq!(place(&table(blocks).expect("GeoLite2"), "1.0.0.1"), "AS13335 CLOUDFLARENET");
        let ranges = "start_ip\tend_ip\tcountry_code\n1.0.0.0\t1.0.1.255\tAU\n::1\t::5\tZZ\n";
        let table = table(ranges).expect("with tabs");
        assert_eq!(
            [place(&table, "1.0.1.255"), place(&table, "::5"), place(&table, "::6")],
            ["AU", "ZZ", ""]
        );
    }

    #[test]
    fn mistakes_have_their_line_and_their_mend() {
        let long = format!("network,name\n10.0.0.0/8,{}\n", "x".repeat(256));
        for (text, expected) in [
            ("", "f.csv:1: the file is empty"),
            ("10.0.0.0/8,office\n", "f.csv:1: the first line names the columns"),
            ("network,colour\n", "f.csv:1: no column says"),
            ("network,name,network_name\n", "f.csv:1: two columns are name"),
            ("network,name\n10.0.0.0/8\n", "f.csv:2: the line has 1 fields, and the first line names 2"),
            (
                "network,name\n\n10.0.0.1/8,a\n",
                "f.csv:3: \"10.0.0.1/8\" has bits behind its prefix: write 10.0.0.0/8",
            ),
            ("network,name\n10.0.0.0/33,a\n", "f.csv:2: \"10.0.0.0/33\" is not a network"),
            ("network,name\nthere,a\n", "f.csv:2: \"there\" is not a network"),
            ("network,as\n10.0.0.0/8,AS\n", "f.csv:2: \"AS\" is not a number"),
            ("network,as\n10.0.0.0/8,4294967296\n", "f.csv:2: \"4294967296\" is not a number"),
            ("start,end,name\n10.0.0.9,10.0.0.1,a\n", "f.csv:2: a range begins at its least address"),
            ("start,end,name\n10.0.0.9,::1,a\n", "f.csv:2: a range begins at its least address"),
            ("start,end,name\n,,a\n", "f.csv:2: \"\" is not an address"),
            ("network,name\n10.0.0.0/8,a\n10.0.0.0/8,b\n", "f.csv:3: line 2 has the same network"),
            (
                "start,end,name\n10.0.0.0,10.0.0.9,a\n10.0.0.5,10.0.0.20,b\n",
                "f.csv:3: its range shares a part",
            ),
            ("network,name\n10.0.0.0/8,\"a\nb\"\n", "f.csv:2: a name has control characters"),
            (long.as_str(), "f.csv:2: a name has control characters, or more than 255 bytes"),
        ] {
            let error = table(text).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        }
        let error = NetworkTable::parse(Path::new("f.csv"), b"network,name\n10.0.0.0/8,a\xff\n");
        assert_eq!(
            error.expect_err("no UTF-8").to_string(),
            "f.csv:2: this is not text in UTF-8 with commas"
        );
        let error = NetworkTable::parse(Path::new("f.csv"), &[0x1f, 0x8b, 8, 0]).expect_err("gzip");
        assert_eq!(error.to_string(), "f.csv:1: the file is compressed: unpack it first");
    }
}
