//! Names of hosts, from the requests of their clients in TLS, QUIC and HTTP, and from DNS answers.
//!
//! The sender of a packet chooses these names, so they are bounded in number and length, and have no characters that
//! change the text around them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;

use tapline_view::{Dimension, KeyValue, Table};

/// Hosts with names; beyond these the first one that got a name goes.
const HOSTS_MAX: usize = 10_000;
/// Names of a host; beyond these the oldest goes.
const NAMES_MAX: usize = 8;
/// The application whose names are not those of its server.
const DNS: &str = "domain";

/// Names of hosts, each host's latest first.
#[derive(Debug, Default)]
pub struct HostNames {
    by_host: HashMap<IpAddr, VecDeque<String>>,
    order: VecDeque<IpAddr>,
}

impl HostNames {
    /// The latest name of each of these hosts that has one.
    pub fn latest(&self, hosts: impl Iterator<Item = IpAddr>) -> BTreeMap<IpAddr, String> {
        hosts.filter_map(|host| Some((host, self.of(host).next()?.to_owned()))).collect()
    }

    /// Learns from the rows of hosts of a second, whose names are those of DNS answers. Such a name is behind those under
    /// which clients asked the host itself.
    pub fn learn_answers(&mut self, hosts: &Table) {
        for row in &hosts.rows {
            let KeyValue::Host(host) = row.key.value(Dimension::HostOut) else { continue };
            let KeyValue::Name(name) = row.name.value(Dimension::Name) else { continue };
            if !self.of(host).any(|known| is_shown_as(&name, known)) {
                self.add(host, &name);
            }
        }
    }

    /// Learns from the flows of a second.
    pub fn learn(&mut self, flows: &Table) {
        for row in &flows.rows {
            let KeyValue::Flow(_, from, to) = row.key.value(Dimension::Flow) else { continue };
            let KeyValue::Name(text) = row.name.value(Dimension::Name) else { continue };
            if let Some((application, name)) = text.split_once(' ')
                && application != DNS
                && let Some(name) = without_port(name)
            {
                self.add(if row.server() == 0 { from.0 } else { to.0 }, name);
            }
        }
    }

    fn add(&mut self, host: IpAddr, name: &str) {
        if name.is_empty() {
            return;
        }
        let names = self.by_host.entry(host).or_default();
        if names.is_empty() {
            self.order.push_back(host);
        }
        match names.iter().position(|known| is_shown_as(name, known)) {
            Some(0) => {}
            Some(at) => {
                let known = names.remove(at);
                names.extend(known);
                names.rotate_right(1);
            }
            None => names.push_front(shown(name)),
        }
        names.truncate(NAMES_MAX);
        if self.order.len() > HOSTS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.by_host.remove(&first);
        }
    }

    /// The names of a host, the latest first.
    pub fn of(&self, host: IpAddr) -> impl Iterator<Item = &str> {
        self.by_host.get(&host).into_iter().flatten().map(String::as_str)
    }
}

/// A name without the port behind it, which HTTP adds; `None` for an address.
fn without_port(name: &str) -> Option<&str> {
    let is_address =
        |name: &str| name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    if is_address(name) {
        return None;
    }
    let name =
        name.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(name, |(name, _)| name);
    (!is_address(name)).then_some(name)
}

fn is_shown_as(name: &str, known: &str) -> bool {
    known.chars().eq(name.chars().map(plain))
}

fn shown(name: &str) -> String {
    name.chars().map(plain).collect()
}

/// A replacement for control characters, and for those that change the direction of the text behind them (UAX 9).
fn plain(letter: char) -> char {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if letter.is_control() || turns { '\u{fffd}' } else { letter }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tapline_view::{Key, Row};

    use super::*;

    #[test]
    fn names_have_no_ports_and_are_no_addresses() {
        for (text, name) in [
            ("a.example:8080", Some("a.example")),
            ("a.example", Some("a.example")),
            ("a:b", Some("a:b")),
            ("10.0.0.1:7070", None),
            ("[::1]:80", None),
            ("::1", None),
        ] {
            assert_eq!(without_port(text), name, "{text}");
        }
    }

    #[test]
    fn names_of_answers_are_behind_those_of_clients() {
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let row = |name: &str| Row { key: Key::host(host), name: Key::name(name), ..Row::default() };
        let hosts = |name: &str| Table { rows: vec![row(name)], ..Table::default() };
        let mut names = HostNames::default();
        names.learn_answers(&hosts(""));
        assert_eq!(names.of(host).count(), 0);
        names.learn_answers(&hosts("a.example"));
        names.add(host, "b.example");
        names.learn_answers(&hosts("a.example"));
        assert_eq!(names.of(host).collect::<Vec<_>>(), ["b.example", "a.example"]);
        names.learn_answers(&hosts("<script>\u{202e}"));
        assert_eq!(names.of(host).next(), Some("<script>\u{fffd}"));
    }

    #[test]
    fn names_of_hosts_are_bounded_and_plain() {
        let host = |number: u32| IpAddr::from(Ipv4Addr::from(number));
        let mut names = HostNames::default();
        for name in ["a.example", "b.example", "a.example"] {
            names.add(host(1), name);
        }
        assert_eq!(names.of(host(1)).collect::<Vec<_>>(), ["a.example", "b.example"]);
        names.add(host(2), "\u{202e}gro\u{1b}[2J");
        names.add(host(2), "\u{202e}gro\u{1b}[2J");
        assert_eq!(names.of(host(2)).collect::<Vec<_>>(), ["\u{fffd}gro\u{fffd}[2J"]);
        (0..100).for_each(|number| names.add(host(1), &format!("{number}.example")));
        assert_eq!((names.of(host(1)).count(), names.of(host(1)).next()), (NAMES_MAX, Some("99.example")));
        (0..2 * HOSTS_MAX as u32).for_each(|number| names.add(host(number), "x"));
        assert_eq!((names.by_host.len(), names.order.len()), (HOSTS_MAX, HOSTS_MAX));
    }
}
