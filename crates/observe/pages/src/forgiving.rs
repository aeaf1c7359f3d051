//! Bare words in the filter line: what people type before they know the language.
//!
//! ```text
//! 10.0.0.7           host 10.0.0.7
//! 10.0.0.0/8         net 10.0.0.0/8
//! 443                port 443
//! 10.0.0.7:443       (host 10.0.0.7 and port 443)
//! tls, example.org   app:tls, app:example.org
//! ```
//!
//! Only a text that pcap-filter refuses is read so. A word behind one that takes an operand (`port`, `host`, `src`) is
//! never changed, so that a mistake there is reported.

use std::net::{IpAddr, SocketAddr};

/// Words behind which an operand comes.
const TAKES_OPERAND: &str = "host net mask port portrange proto protochain src dst gateway ether link less greater len \
     vlan mpls pppoes geneve vxlan type subtype dir inbound outbound ifname on rulenum action reason";
/// Applications as flows have them, and how else they are called.
const APPLICATIONS: [(&str, &str); 8] = [
    ("dns", "domain"),
    ("dtls", "dtls"),
    ("http", "http"),
    ("https", "tls"),
    ("quic", "quic"),
    ("ssh", "ssh"),
    ("ssl", "tls"),
    ("tls", "tls"),
];

/// A text with its bare words read: pcap-filter text, and words of applications and names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) text: String,
    pub(crate) applications: Vec<String>,
}

/// Reads the bare words of a text; `None` if it has none. `is_filter` says whether a word is a filter by itself.
pub(crate) fn read(text: &str, is_filter: &dyn Fn(&str) -> bool) -> Option<Reading> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut reading = Reading::default();
    let mut parts: Vec<LineWord> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_operand = at.checked_sub(1).is_some_and(|before| takes_operand(words[before]));
        let bare = if is_operand { None } else { endpoint(word) };
        if let Some(bare) = bare {
            parts.push(LineWord::Bare(bare));
        } else if let Some(name) = application(word, words.len() == 1, is_filter).filter(|_| !is_operand) {
            reading.applications.push(name);
            parts.push(LineWord::Application);
        } else {
            parts.push(LineWord::Word((*word).to_owned()));
        }
    }
    // Applications are all required: they cannot be one side of `or`.
    let has_choice =
        words.iter().any(|word| matches!(*word, "or" | "||" | "not" | "!") || word.contains(['(', ')', '!']));
    if parts.iter().all(|part| matches!(part, LineWord::Word(_)))
        || has_choice && !reading.applications.is_empty()
    {
        return None;
    }
    reading.text = joined(&parts);
    Some(reading)
}

enum LineWord {
    Word(String),
    /// A primitive, which `and` joins to its neighbours.
    Bare(String),
    /// A word that is not part of the text.
    Application,
}

impl LineWord {
    fn is_and(&self) -> bool {
        matches!(self, LineWord::Word(word) if matches!(word.as_str(), "and" | "&&"))
    }

    /// Whether a primitive may come next.
    fn is_joint(&self) -> bool {
        self.is_and()
            || matches!(self, LineWord::Word(word) if matches!(word.as_str(), "or" | "||" | "not" | "!") || word.ends_with(['(', '!']))
    }
}

/// Joins the parts: adds `and` between a primitive and its neighbour, and removes it next to applications.
fn joined(parts: &[LineWord]) -> String {
    let mut text: Vec<&str> = Vec::new();
    let (mut is_open, mut was_bare) = (true, false);
    for (at, part) in parts.iter().enumerate() {
        let (LineWord::Word(word) | LineWord::Bare(word)) = part else {
            was_bare = true;
            continue;
        };
        let is_bare = matches!(part, LineWord::Bare(_));
        let is_last =
            parts[at + 1..].iter().all(|part| part.is_and() || matches!(part, LineWord::Application));
        if part.is_and() && (is_open || is_last) {
            continue;
        }
        let is_joint = part.is_joint() || word.starts_with(')') || matches!(word.as_str(), "or" | "||");
        let opens_itself = matches!(word.as_str(), "not" | "!") || word.starts_with('(');
        if !is_open && (is_bare || was_bare) && (!is_joint || opens_itself) {
            text.push("and");
        }
        text.push(word);
        (is_open, was_bare) = (part.is_joint(), is_bare);
    }
    text.join(" ")
}

fn takes_operand(word: &str) -> bool {
    TAKES_OPERAND.split_whitespace().any(|known| known == word)
        || word.ends_with(|end: char| "<>=+-*/&|[".contains(end)) && !matches!(word, "&&" | "||")
}

/// The primitive of an address, a network, a port, or of both ends of a colon.
fn endpoint(word: &str) -> Option<String> {
    if let Ok(address) = word.parse::<IpAddr>() {
        return Some(format!("host {address}"));
    }
    if let Ok(both) = word.parse::<SocketAddr>() {
        return Some(format!("(host {} and port {})", both.ip(), both.port()));
    }
    let is_network = word.split_once('/').is_some_and(|(address, len)| {
        address.parse::<IpAddr>().is_ok() && len.parse::<u8>().is_ok_and(|len| len <= 128)
    });
    if is_network {
        return Some(format!("net {word}"));
    }
    word.parse::<u16>().ok().filter(|port| *port > 0).map(|port| format!("port {port}"))
}

/// An application or a name: a known one, one with a dot, or the only word of the line.
fn application(word: &str, is_alone: bool, is_filter: &dyn Fn(&str) -> bool) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    if let Some((_, name)) = APPLICATIONS.iter().find(|(known, _)| *known == lower) {
        return Some((*name).to_owned());
    }
    let has_letter = word.contains(|c: char| c.is_alphabetic());
    let is_name = has_letter && word.chars().all(|c| c.is_alphanumeric() || "-._".contains(c));
    let has_dot = word.trim_matches('.').contains('.');
    let is_word = TAKES_OPERAND.split_whitespace().chain(["and", "or", "not"]).any(|known| known == lower);
    (is_name && !is_word && (has_dot || is_alone) && !is_filter(word)).then_some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_become_what_they_mean() {
        let is_filter = |word: &str| ["tcp", "udp", "arp"].contains(&word);
        for (line, text, applications) in [
            ("10.9.0.21", "host 10.9.0.21", ""),
            ("2001:db8::1", "host 2001:db8::1", ""),
            ("10.9.0.21:443", "(host 10.9.0.21 and port 443)", ""),
            ("10.0.0.0/8", "net 10.0.0.0/8", ""),
            ("443", "port 443", ""),
            ("tcp 443", "tcp and port 443", ""),
            ("10.0.0.1 tcp port 443", "host 10.0.0.1 and tcp port 443", ""),
            ("10.0.0.1 or 10.0.0.2", "host 10.0.0.1 or host 10.0.0.2", ""),
            ("not 10.0.0.1", "not host 10.0.0.1", ""),
            ("10.0.0.1 not udp", "host 10.0.0.1 and not udp", ""),
            ("tls", "", "tls"),
            ("dns", "", "domain"),
            ("shop.example.com", "", "shop.example.com"),
            ("intranet", "", "intranet"),
            ("tls and 10.0.0.1 and", "host 10.0.0.1", "tls"),
            ("tcp and tls and port 443", "tcp and port 443", "tls"),
            ("10.0.0.1 shop.example.com tls", "host 10.0.0.1", "shop.example.com,tls"),
        ] {
            let reading = read(line, &is_filter).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                (reading.text.as_str(), reading.applications.join(",").as_str()),
                (text, applications),
                "{line}"
            );
        }
        for wrong in [
            "tcp prot 80",
            "port 99999",
            "host web",
            "tls or 10.0.0.1",
            "vlan 5",
            "arp",
            "src",
            "70000",
            "tcp[",
        ] {
            let reading = read(wrong, &is_filter);
            assert!(
                reading.as_ref().is_none_or(|reading| reading.text.contains("prot")),
                "{wrong}: {reading:?}"
            );
        }
    }
}
