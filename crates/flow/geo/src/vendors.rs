//! Lists of vendors of MAC addresses, as systems have them: IEEE's registries, Wireshark's `manuf`, nmap's prefixes.
//!
//! ```text
//! MA-L,00000C,"Cisco Systems, Inc",170 West Tasman Dr     oui.csv: a registry, a prefix, a name
//! 00-00-0C   (hex)    Cisco Systems, Inc                  oui.txt
//! 00:1B:C5:00:00:00/36    Short    The whole name    # .. manuf, with tabs
//! 00000C Cisco Systems                                    nmap-mac-prefixes
//! ```
//!
//! Other lines are left out: such files have addresses and headings between their entries.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use csv::{ReaderBuilder, Trim};

use crate::place::is_plain;

/// The beginnings of IEEE's files as CSV, with and without a heading.
const CSV_HEADS: [&[u8]; 6] = [b"Registry,Assignment,", b"MA-L,", b"MA-M,", b"MA-S,", b"IAB,", b"CID,"];
/// The beginning of IEEE's files as text.
const TEXT_HEAD: &[u8] = b"OUI/MA-";
/// Bits of a MAC address.
const BITS: u32 = 48;

/// Vendors by prefix.
#[derive(Debug, Default)]
pub(crate) struct VendorTable {
    /// By bits, the longest prefixes first.
    prefixes: BTreeMap<Reverse<u32>, HashMap<u64, Box<str>>>,
}

impl VendorTable {
    /// The table of a file; `None` for a file of something else.
    pub(crate) fn parse(bytes: &[u8]) -> Option<VendorTable> {
        let lines = || bytes.split(|byte| *byte == b'\n');
        let first = lines().find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"))?;
        let mut table = VendorTable::default();
        if CSV_HEADS.iter().any(|head| first.starts_with(head)) {
            let mut csv = ReaderBuilder::new();
            let records = csv.has_headers(false).flexible(true).trim(Trim::All).from_reader(bytes);
            for record in records.into_records().flatten() {
                table.add(record.get(1).zip(record.get(2)).and_then(|(prefix, name)| entry(prefix, name)));
            }
        } else if first.starts_with(TEXT_HEAD) || entry_of_line(first).is_some() {
            lines().for_each(|line| table.add(entry_of_line(line)));
        } else {
            return None;
        }
        Some(table)
    }

    fn add(&mut self, entry: Option<Entry>) {
        let Some((bits, prefix, name)) = entry else { return };
        self.prefixes.entry(Reverse(bits)).or_default().entry(prefix).or_insert(name);
    }

    /// The vendor of the longest prefix of an address.
    pub(crate) fn of(&self, station: [u8; 6]) -> Option<&str> {
        let [a, b, c, d, e, f] = station;
        let address = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        self.prefixes
            .iter()
            .find_map(|(bits, names)| names.get(&(address >> (BITS - bits.0))).map(|name| &**name))
    }

    pub(crate) fn lines(&self) -> u64 {
        self.prefixes.values().map(|names| names.len() as u64).sum()
    }
}

/// The bits of a prefix, the prefix, and the name.
type Entry = (u32, u64, Box<str>);

fn entry(prefix: &str, name: &str) -> Option<Entry> {
    let (bits, prefix) = prefix_of(prefix)?;
    (!name.is_empty() && is_plain(name)).then(|| (bits, prefix, name.into()))
}

fn entry_of_line(line: &[u8]) -> Option<Entry> {
    let line = std::str::from_utf8(line).ok()?;
    let (prefix, rest) = line.split_at(line.find(char::is_whitespace)?);
    entry(prefix, last_name(rest))
}

/// The name behind a prefix: of several with tabs the last one before a comment.
fn last_name(text: &str) -> &str {
    let text = text.trim();
    let text = ["(hex)", "(base 16)"].iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text);
    let names = text.split('\t').map(str::trim).take_while(|name| !name.starts_with('#'));
    names.filter(|name| !name.is_empty()).last().unwrap_or_default()
}

/// `00000C`, `00-00-0C`, `00:1B:C5:00:00:00/36`.
fn prefix_of(text: &str) -> Option<(u32, u64)> {
    let (text, bits) = match text.split_once('/') {
        Some((text, bits)) => (text, Some(bits.parse().ok()?)),
        None => (text, None),
    };
    let digits: String = text.chars().filter(|letter| !matches!(letter, ':' | '-' | '.')).collect();
    // Those of 24, 28, 36 and 48 bits: other words of hexadecimal digits are text.
    let is_whole = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_whole || !matches!(digits.len(), 6 | 7 | 9 | 12) {
        return None;
    }
    let len = digits.len() as u32 * 4;
    let bits: u32 = bits.unwrap_or(len);
    let prefix = u64::from_str_radix(&digits, 16).ok()?;
    (1..=len).contains(&bits).then(|| (bits, prefix >> (len - bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_four_forms_are_read() {
        let files = [
            "Registry,Assignment,Organization Name,Organization Address\r\n\
             MA-L,00000C,\"Cisco \"\"Systems\"\", Inc\",\"170 West\nfacade 1\"\r\nMA-S,001BC5000,Converging Systems,x\r\n",
            "OUI/MA-L      Organization\ncompany_id    Organization\n\n00-00-0C   (hex)\t\tCisco \"Systems\", Inc\n\
             00000C     (base 16)\t\tCisco \"Systems\", Inc\n\t\t\t\tDeadbeef Road\n001BC5000 (hex)\t\tConverging Systems\n",
            "# a comment\n\n00:00:0C\tCisco\tCisco \"Systems\", Inc\t# a remark\n00:1B:C5:00:00:00/36\tConverg\tConverging Systems\n",
            "00000C Cisco \"Systems\", Inc\n001BC5000 Converging Systems\n",
        ];
        for file in files {
            let table = VendorTable::parse(file.as_bytes()).unwrap_or_else(|| panic!("a list: {file}"));
            let of = |station: [u8; 6]| table.of(station).unwrap_or("none");
            assert_eq!(of([0, 0, 0x0c, 9, 9, 9]), "Cisco \"Systems\", Inc", "{file}");
            assert_eq!(of([0, 0x1b, 0xc5, 0, 0x0f, 1]), "Converging Systems", "{file}");
            // Behind the prefix of 36 bits, and an address that nobody assigned.
            assert_eq!((of([0, 0x1b, 0xc5, 0, 0x10, 1]), of([2, 0, 0, 0, 0, 1])), ("none", "none"), "{file}");
            assert_eq!(table.lines(), 2, "{file}");
        }
    }

    #[test]
    fn other_files_are_not_lists() {
        for text in ["", "# nothing", "network,name\n10.0.0.0/8,a\n", "start\tend\n", "00000C", "deadbeef a"]
        {
            assert!(VendorTable::parse(text.as_bytes()).is_none(), "{text}");
        }
        let harmful = VendorTable::parse(b"00000D b\n00000C a\x1b[2J\n\xff\xff\n").expect("a list");
        assert_eq!((harmful.of([0, 0, 0x0c, 0, 0, 0]), harmful.of([0, 0, 0x0d, 0, 0, 0])), (None, Some("b")));
    }

    /// The list of tshark, where it is installed.
    #[test]
    fn the_list_of_wireshark_is_read() {
        let Ok(bytes) = std::fs::read("/usr/share/wireshark/manuf") else {
            eprintln!("skipped: tshark's list is not there");
            return;
        };
        let table = VendorTable::parse(&bytes).expect("a list");
        assert!(table.lines() > 30_000, "{}", table.lines());
        assert!(table.of([0, 0, 0x0c, 1, 2, 3]).is_some_and(|name| name.starts_with("Cisco")));
    }
}
