use std::collections::BTreeMap;
use std::fs;

use super::*;

/// A value of an MMDB file.
enum Value {
    Text(&'static str),
    Number(u32),
    /// Numbers of 16 and of 64 bits.
    Short(u16),
    Long(u64),
    Map(Vec<(&'static str, Value)>),
    List(Vec<&'static str>),
}

/// Type and length of a value (MaxMind DB, version 2: "Data Field Format").
fn control(kind: u8, len: usize, out: &mut Vec<u8>) {
    assert!(len < 285);
    let size = len.min(29) as u8;
    match kind {
        ..=7 => out.push(kind << 5 | size),
        _ => out.extend([size, kind - 7]),
    }
    if len >= 29 {
        out.push((len - 29) as u8);
    }
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Text(text) => {
                control(2, text.len(), out);
                out.extend_from_slice(text.as_bytes());
            }
            Value::Number(number) => {
                control(6, 4, out);
                out.extend(number.to_be_bytes());
            }
            Value::Short(number) => {
                control(5, 2, out);
                out.extend(number.to_be_bytes());
            }
            Value::Long(number) => {
                control(9, 8, out);
                out.extend(number.to_be_bytes());
            }
            Value::Map(entries) => {
                control(7, entries.len(), out);
                for (key, value) in entries {
                    Value::Text(key).write(out);
                    value.write(out);
                }
            }
            Value::List(texts) => {
                control(11, texts.len(), out);
                texts.iter().for_each(|text| Value::Text(text).write(out));
            }
        }
    }
}

/// An MMDB file of IPv6 with records of 32 bits, in which IPv4 is below `::/96`.
fn database(networks: Vec<(&str, Value)>) -> Vec<u8> {
    // Of each node its two records: the next node, or a network's data.
    let mut nodes: Vec<[Option<Result<usize, usize>>; 2]> = vec![[None; 2]];
    let mut data = Vec::new();
    for (network, value) in networks {
        let (address, len) = network.split_once('/').expect("a network");
        let (bits, len) = match address.parse().expect("an address") {
            IpAddr::V4(address) => {
                (u128::from(address.to_bits()), len.parse::<usize>().expect("a length") + 96)
            }
            IpAddr::V6(address) => (address.to_bits(), len.parse().expect("a length")),
        };
        let mut node = 0;
        for depth in 0..len {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == len {
                nodes[node][side] = Some(Err(data.len()));
                break;
            }
            node = match nodes[node][side] {
                Some(Ok(next)) => next,
                _ => {
                    let next = nodes.len();
                    nodes[node][side] = Some(Ok(next));
                    nodes.push([None; 2]);
                    next
                }
            };
        }
        value.write(&mut data);
    }
    let count = nodes.len();
    let mut file = Vec::new();
    for record in nodes.iter().flatten() {
        let number = match record {
            None => count,
            Some(Ok(node)) => *node,
            Some(Err(offset)) => count + 16 + offset,
        };
        file.extend((number as u32).to_be_bytes());
    }
    file.extend([0; 16]);
    file.extend(data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    let metadata = Value::Map(vec![
        ("node_count", Value::Number(count as u32)),
        ("record_size", Value::Short(32)),
        ("ip_version", Value::Short(6)),
        ("database_type", Value::Text("Test")),
        ("languages", Value::List(vec!["en"])),
        ("binary_format_major_version", Value::Short(2)),
        ("binary_format_minor_version", Value::Short(0)),
        ("build_epoch", Value::Long(1_700_000_000)),
        ("description", Value::Map(vec![("en", Value::Text("a file of a test"))])),
    ]);
    metadata.write(&mut file);
    file
}

fn country(code: &'static str) -> Value {
    let names = Value::Map(vec![("en", Value::Text("Somewhere"))]);
    Value::Map(vec![
        ("continent", Value::Map(vec![("code", Value::Text("EU"))])),
        (
            "country",
            Value::Map(vec![
                ("geoname_id", Value::Number(7)),
                ("iso_code", Value::Text(code)),
                ("names", names),
            ]),
        ),
    ])
}

fn system(number: u32, name: &'static str) -> Value {
    Value::Map(vec![
        ("autonomous_system_number", Value::Number(number)),
        ("autonomous_system_organization", Value::Text(name)),
    ])
}

/// Writes files into a folder, and opens them in the order of their names.
fn open(files: BTreeMap<&str, Vec<u8>>) -> (tempfile::TempDir, Result<Places, Error>) {
    let folder = tempfile::tempdir().expect("there is room");
    let paths: Vec<PathBuf> = files.keys().map(|name| folder.path().join(name)).collect();
    files.values().zip(&paths).for_each(|(bytes, path)| fs::write(path, bytes).expect("there is room"));
    let places = Places::open(&paths);
    (folder, places)
}

fn text(places: &Places, address: &str) -> String {
    places.of(address.parse().expect("an address")).to_string()
}

#[test]
fn each_field_is_of_the_first_file_that_has_it() {
    let own = "network,name,country,as\n192.0.2.0/25,office,,\n2001:db8::/48,lab,NO,64511\n".into();
    let countries = database(vec![("192.0.2.0/24", country("DE")), ("2001:db8::/32", country("SE"))]);
    let systems =
        database(vec![("192.0.0.0/16", system(64496, "Example")), ("2001:db8::/32", system(64497, "Other"))]);
    let (_folder, places) =
        open(BTreeMap::from([("1.csv", own), ("2.mmdb", countries), ("3.mmdb", systems)]));
    let places = places.expect("they have no mistake");
    assert_eq!(text(&places, "192.0.2.1"), "office, DE, AS64496 Example");
    assert_eq!(text(&places, "192.0.2.129"), "DE, AS64496 Example");
    assert_eq!(text(&places, "::ffff:192.0.2.1"), "office, DE, AS64496 Example");
    // The name of another system does not stand with this number.
    assert_eq!(text(&places, "2001:db8::1"), "lab, NO, AS64511");
    assert_eq!(text(&places, "2001:db8:1::1"), "SE, AS64497 Other");
    assert!(places.of("198.51.100.1".parse().expect("an address")).is_empty());
}

#[test]
fn records_of_other_publishers_are_read_too() {
    let lite = Value::Map(vec![
        ("as_name", Value::Text("Example")),
        ("asn", Value::Text("AS64496")),
        ("country", Value::Text("United States")),
        ("country_code", Value::Text("US")),
    ]);
    let (_folder, places) = open(BTreeMap::from([("1.mmdb", database(vec![("192.0.2.0/24", lite)]))]));
    assert_eq!(text(&places.expect("it has no mistake"), "192.0.2.1"), "US, AS64496 Example");
    let short = Value::Map(vec![("asn", Value::Number(64496)), ("name", Value::Text("office"))]);
    let (_folder, places) = open(BTreeMap::from([("1.mmdb", database(vec![("192.0.2.0/24", short)]))]));
    assert_eq!(text(&places.expect("it has no mistake"), "192.0.2.1"), "office, AS64496");
}

#[test]
fn texts_that_could_harm_a_terminal_are_unknown() {
    let escape = database(vec![
        ("192.0.2.0/24", system(64496, "a\u{1b}[2Jb")),
        ("192.0.3.0/24", system(64497, "fine")),
    ]);
    let (_folder, places) = open(BTreeMap::from([("1.mmdb", escape)]));
    let places = places.expect("the file is whole");
    assert_eq!([text(&places, "192.0.2.1"), text(&places, "192.0.3.1")], ["AS64496", "AS64497 fine"]);
}

#[test]
fn files_of_something_else_are_refused() {
    let city = Value::Map(vec![("city", Value::Text("Oslo")), ("location", Value::Map(Vec::new()))]);
    let (_folder, places) = open(BTreeMap::from([("1.mmdb", database(vec![("192.0.2.0/24", city)]))]));
    let error = places.expect_err("it has no place").to_string();
    assert!(error.ends_with("in its first records, but city, location"), "{error}");
    let error = Places::open(&["/dev/zero"]).expect_err("it has no end").to_string();
    assert_eq!(error, "/dev/zero is not a regular file: name a CSV or MMDB file");
    let error = Places::open(&["/nowhere"]).expect_err("it is not there").to_string();
    assert!(error.starts_with("cannot read /nowhere: "), "{error}");
    assert!(file_list(" , ").is_err());
    assert_eq!(file_list("a.csv, b.mmdb").expect("two"), [PathBuf::from("a.csv"), PathBuf::from("b.mmdb")]);
}

/// Every file with a byte changed or its end cut off is refused, or answers.
#[test]
fn damaged_databases_do_no_harm() {
    let whole = database(vec![
        ("192.0.2.0/24", country("DE")),
        ("198.51.100.0/24", system(64496, "Example")),
        ("2001:db8::/32", system(64497, "Other")),
    ]);
    let addresses = ["192.0.2.1", "198.51.100.7", "2001:db8::1", "::", "255.255.255.255"];
    let mut opened = 0;
    let mut look = |bytes: Vec<u8>| {
        if !mmdb::is_database(&bytes) {
            return;
        }
        if let Ok(database) = Database::parse(Path::new("f"), bytes) {
            opened += 1;
            for address in addresses {
                let _ = database.of(address.parse().expect("an address")).to_string();
            }
        }
    };
    for at in 0..whole.len() {
        look(whole[..at].to_vec());
        for change in [1, 0x20, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            look(bytes);
        }
    }
    assert!(opened > 1000, "{opened}");
}
