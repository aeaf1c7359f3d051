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

use crate::place::is_plain;

const REGISTRIES: [&str; 5] = ["MA-L,", "MA-M,", "MA-S,", "IAB,", "CID,"];
/// The beginnings of IEEE's files.
const HEADS: [&[u8]; 2] = [b"Registry,Assignment,", b"OUI/MA-"];
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
        if !HEADS.iter().any(|head| first.starts_with(head)) && entry(first).is_none() {
            return None;
        }
        // Addresses in quotes may go over several lines.
        let is_csv = first.starts_with(HEADS[0]);
        let is_entry =
            |line: &&[u8]| !is_csv || REGISTRIES.iter().any(|name| line.starts_with(name.as_bytes()));
        let mut table = VendorTable::default();
        for (bits, prefix, name) in lines().filter(is_entry).filter_map(entry) {
            table.prefixes.entry(Reverse(bits)).or_default().entry(prefix).or_insert(name);
        }
        Some(table)
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

/// The bits of a prefix, the prefix, and the name of a line that has them.
fn entry(line: &[u8]) -> Option<(u32, u64, Box<str>)> {
    let line = std::str::from_utf8(line).ok()?;
    let (prefix, name) = match REGISTRIES.iter().find_map(|registry| line.strip_prefix(registry)) {
        Some(rest) => {
            let (prefix, rest) = rest.split_once(',')?;
            (prefix, first_field(rest))
        }
        None => {
            let (prefix, rest) = line.split_at(line.find(char::is_whitespace)?);
            (prefix, last_name(rest).to_owned())
        }
    };
    let (bits, prefix) = prefix_of(prefix)?;
    (!name.is_empty() && is_plain(&name)).then(|| (bits, prefix, name.into()))
}

/// The first field of a line with commas (RFC 4180).
fn first_field(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"') else {
        return text.split(',').next().unwrap_or_default().trim().to_owned();
    };
    let mut field = String::new();
    let mut letters = quoted.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '"' && letters.next_if_eq(&'"').is_none() {
            break;
        }
        field.push(letter);
    }
    field.trim().to_owned()
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
