//! The text of captures against that of the installed tcpdump, line by line.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use tapline_print::{HexStyle, HostNames, Options, Precision, Printer, TimeStyle};
use tapline_testkit::surroundings::program_or_skip;

use crate::captures::{self, Recorded};

/// Number of lines by which two texts may drift apart before they count as different for good.
const RESYNC_LINES: usize = 80;

/// tcpdump and the captures.
pub(crate) struct Bench {
    pub(crate) files: Vec<(String, std::path::PathBuf, Vec<Recorded>)>,
}

impl Bench {
    /// `None`, and said so, where tcpdump or the captures are missing.
    pub(crate) fn find() -> Option<Bench> {
        let test = "a comparison with tcpdump";
        let files = captures::files_or_skip(test).filter(|_| program_or_skip(test, "tcpdump"))?;
        let named = files.into_iter().map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let packets = captures::read(&path);
            (name, path, packets)
        });
        Some(Bench { files: named.collect() })
    }

    /// The score of the files that `wanted` selects by name.
    pub(crate) fn score_of(&self, flags: &str, wanted: impl Fn(&str) -> bool) -> Score {
        let mut score = Score::default();
        for (name, path, packets) in self.files.iter().filter(|(name, ..)| wanted(name)) {
            let Some(them) = tcpdump(flags, path) else { continue };
            let ours = printed(flags, packets);
            score.compare(name, &lines(&them), &lines(&ours));
        }
        score
    }
}

/// The text of tcpdump; `None` if it does not read the file at all.
pub(crate) fn tcpdump(flags: &str, path: &Path) -> Option<Vec<u8>> {
    let output = Command::new("tcpdump")
        .env("TZ", "UTC")
        .args(flags.split_whitespace())
        .arg("-r")
        .arg(path)
        .output()
        .expect("tcpdump runs");
    (!output.stdout.is_empty()).then_some(output.stdout)
}

/// The text of Tapline.
pub(crate) fn printed(flags: &str, packets: &[Recorded]) -> Vec<u8> {
    let mut printer = Printer::new(options(flags));
    printer.set_host_names(Box::new(HostsFile::read()));
    let mut out = Vec::new();
    for packet in packets {
        let lent = tapline_packet::Packet { data: &packet.data, meta: &packet.meta };
        printer.print(lent, &packet.interface, &mut out);
    }
    out
}

/// The names of `/etc/hosts` on the machine of the tests; tcpdump finds the same there.
struct HostsFile(HashMap<IpAddr, String>);

impl HostsFile {
    fn read() -> HostsFile {
        let text = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let mut hosts = HashMap::new();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            if let (Some(Ok(address)), Some(name)) = (words.next().map(str::parse), words.next()) {
                hosts.entry(address).or_insert_with(|| name.to_owned());
            }
        }
        HostsFile(hosts)
    }
}

impl HostNames for HostsFile {
    fn name(&mut self, address: IpAddr) -> Option<&str> {
        self.0.get(&address).map(String::as_str)
    }
}

/// The options for a set of tcpdump's flags.
fn options(flags: &str) -> Options {
    let count = |letter: char| flags.matches(letter).count();
    let nano = flags.contains("--nano");
    let flags = flags.replace("--nano", "");
    let time = match flags.matches('t').count() {
        0 => TimeStyle::TimeOfDay,
        1 => TimeStyle::None,
        2 => TimeStyle::Epoch,
        3 => TimeStyle::SincePrevious,
        4 => TimeStyle::DateTime,
        _ => TimeStyle::SinceFirst,
    };
    let hex = match (count('X'), count('x'), count('A')) {
        (1, ..) => HexStyle::HexAscii,
        (2.., ..) => HexStyle::HexAsciiLink,
        (_, 1, _) => HexStyle::Hex,
        (_, 2.., _) => HexStyle::HexLink,
        (_, _, 1) => HexStyle::Ascii,
        (_, _, 2..) => HexStyle::AsciiLink,
        _ => HexStyle::None,
    };
    Options {
        port_names: !flags.contains('n'),
        host_names: !flags.contains('n'),
        link_header: flags.contains('e'),
        verbose: count('v') as u8,
        quiet: flags.contains('q'),
        time,
        precision: if nano { Precision::Nano } else { Precision::Micro },
        hex,
        absolute_seq: flags.contains('S'),
        number: flags.contains('#'),
        verify_checksums: !flags.contains('K'),
        ..Options::default()
    }
}

pub(crate) fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// Lines that differ in one way.
struct Example {
    count: usize,
    file: String,
    them: String,
    ours: String,
}

/// The number of equal lines, and the differences.
#[derive(Default)]
pub(crate) struct Score {
    /// Equal lines and all lines, by protocol.
    protocols: BTreeMap<&'static str, (usize, usize)>,
    /// The counts by file, if lines differ.
    files: BTreeMap<String, (usize, usize)>,
    examples: BTreeMap<String, Example>,
}

impl Score {
    /// Counts the lines of `them` that `ours` has at the same place; both may have lines that the other lacks.
    pub(crate) fn compare(&mut self, file: &str, them: &[String], ours: &[String]) {
        let before = self.totals();
        let (mut i, mut j) = (0, 0);
        let mut protocol = "other";
        while i < them.len() {
            if !them[i].starts_with([' ', '\t']) || them[i].trim_start().contains(" > ") {
                protocol = protocol_of(&them[i]);
            }
            if ours.get(j) == Some(&them[i]) {
                self.count(protocol, true);
                i += 1;
                j += 1;
                continue;
            }
            let (skip_them, skip_ours) = resync(&them[i..], &ours[j.min(ours.len())..]);
            for step in 0..skip_them {
                self.count(protocol, false);
                let other = if step < skip_ours { ours.get(j + step) } else { None };
                self.keep(file, protocol, &them[i + step], other.map_or("", String::as_str));
            }
            i += skip_them;
            j += skip_ours;
        }
        let (same, all) = self.totals();
        if same - before.0 != all - before.1 {
            self.files.insert(file.to_owned(), (same - before.0, all - before.1));
        }
    }

    fn count(&mut self, protocol: &'static str, equal: bool) {
        let (same, all) = self.protocols.entry(protocol).or_default();
        *same += usize::from(equal);
        *all += 1;
    }

    fn keep(&mut self, file: &str, protocol: &str, them: &str, ours: &str) {
        let common = them.bytes().zip(ours.bytes()).take_while(|(a, b)| a == b).count();
        let rest: String = String::from_utf8_lossy(&them.as_bytes()[common..]).chars().take(24).collect();
        let shape: String = rest.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        let example = self.examples.entry(format!("[{protocol}] {shape}")).or_insert_with(|| Example {
            count: 0,
            file: file.to_owned(),
            them: them.to_owned(),
            ours: ours.to_owned(),
        });
        example.count += 1;
    }

    fn totals(&self) -> (usize, usize) {
        self.protocols.values().fold((0, 0), |(same, all), (s, a)| (same + s, all + a))
    }

    pub(crate) fn per_mille(&self) -> u32 {
        let (same, all) = self.totals();
        (same * 1000 / all.max(1)) as u32
    }

    /// The table and the most frequent differences.
    pub(crate) fn show(&self, flags: &str) {
        println!("{}", self.table(flags));
        for (name, (same, all)) in &self.files {
            println!("  {name:<40} {same:>7} of {all:>7}");
        }
        let mut shown: Vec<_> = self.examples.iter().collect();
        shown.sort_by_key(|(_, examples)| std::cmp::Reverse(examples.count));
        for (shape, example) in shown.iter().take(60) {
            let Example { count, file, them, ours } = example;
            println!("{count:5} {shape}  ({file})\n   them {them:?}\n   ours {ours:?}");
        }
    }

    pub(crate) fn table(&self, flags: &str) -> String {
        let mut table = format!("tcpdump {flags}: equal lines by protocol\n");
        let total = ("total", self.totals());
        let rows = self.protocols.iter().map(|(name, counts)| (*name, *counts)).chain([total]);
        for (name, (same, all)) in rows {
            let share = 100.0 * same as f64 / all.max(1) as f64;
            table.push_str(&format!("  {name:<12} {same:>7} of {all:>7}  {share:6.2} %\n"));
        }
        table
    }
}

/// The shortest way to a line that both have again.
fn resync(them: &[String], ours: &[String]) -> (usize, usize) {
    for distance in 1..RESYNC_LINES {
        for skip_them in 0..=distance {
            let skip_ours = distance - skip_them;
            if let (Some(a), Some(b)) = (them.get(skip_them), ours.get(skip_ours))
                && a == b
            {
                return (skip_them.max(usize::from(skip_ours == 0)), skip_ours);
            }
        }
    }
    (1, 1)
}

/// The protocol that a packet's line is about, by the words and ports that are typical for it.
fn protocol_of(line: &str) -> &'static str {
    const BY_WORD: &[(&str, &str)] = &[
        ("ARP", "ARP"),
        ("ICMP6", "ICMPv6"),
        ("ICMP ", "ICMP"),
        ("igmp", "IGMP"),
        ("STP ", "STP"),
        ("LLDP", "LLDP"),
        ("CDP", "CDP"),
        ("sctp", "SCTP"),
        ("GRE", "GRE"),
        ("VXLAN", "VXLAN"),
        ("Geneve", "Geneve"),
        ("NTP", "NTP"),
        ("BOOTP/DHCP", "DHCP"),
        ("dhcp6", "DHCPv6"),
        ("MPLS", "MPLS"),
        ("PPPoE", "PPPoE"),
        ("ESP(", "IPsec"),
        ("AH(", "IPsec"),
        ("frag (", "fragments"),
        ("LLC", "LLC"),
    ];
    const BY_PORT: &[(&str, &str)] = &[
        ("53", "DNS"),
        ("5353", "DNS"),
        ("67", "DHCP"),
        ("68", "DHCP"),
        ("123", "NTP"),
        ("161", "SNMP"),
        ("4789", "VXLAN"),
        ("6081", "Geneve"),
        ("137", "NetBIOS"),
        ("138", "NetBIOS"),
        ("139", "SMB"),
        ("445", "SMB"),
        ("2049", "NFS"),
        ("80", "HTTP"),
        ("21", "FTP"),
        ("25", "SMTP"),
    ];
    if let Some((_, name)) = BY_WORD.iter().find(|(word, _)| line.contains(word)) {
        return name;
    }
    let has_port = |port: &str| line.contains(&format!(".{port} > ")) || line.contains(&format!(".{port}: "));
    if let Some((_, name)) = BY_PORT.iter().find(|(port, _)| has_port(port)) {
        return name;
    }
    if line.contains("Flags [") || line.contains(": tcp ") {
        "TCP"
    } else if line.contains("UDP") {
        "UDP"
    } else if line.contains("IP6") {
        "IPv6"
    } else {
        "other"
    }
}
