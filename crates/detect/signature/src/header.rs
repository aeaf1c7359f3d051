//! The header of a signature: protocol, addresses, ports, direction; as a packet filter.

use crate::address::{Kind, Side, translate};
use crate::ruleset::Variables;

/// The part of a signature before its parentheses, without the action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The protocol's word: `tcp`, `udp`, `icmp` or `ip`.
    pub protocol: &'static str,
    /// The header as a packet filter, which looks behind up to two VLAN tags.
    pub filter: String,
}

/// Protocols, and the packet filter of each.
const PROTOCOLS: [(&str, &str); 4] =
    [("tcp", "tcp"), ("udp", "udp"), ("icmp", "(icmp or icmp6)"), ("ip", "(ip or ip6)")];

impl Header {
    /// Parses the six words behind the action.
    pub(crate) fn parse(words: &[&str], variables: &Variables) -> Result<Header, String> {
        let [protocol, source, source_port, direction, destination, destination_port] = words else {
            return Err(
                "a header has seven words: action, protocol, source, port, -> or <>, destination, port"
                    .to_owned(),
            );
        };
        let known = PROTOCOLS.iter().find(|(word, _)| protocol.eq_ignore_ascii_case(word));
        let Some((protocol, filter)) = known else {
            return Err(format!("the protocol `{protocol}` is not supported: tcp, udp, icmp and ip are"));
        };
        let has_ports = matches!(*protocol, "tcp" | "udp");
        let way = |sender: Side, receiver: Side| -> Result<Option<String>, String> {
            let mut parts = Vec::new();
            parts.extend(translate(Kind::Address, sender, source, variables)?);
            parts.extend(translate(Kind::Address, receiver, destination, variables)?);
            let ports = [
                translate(Kind::Port, sender, source_port, variables)?,
                translate(Kind::Port, receiver, destination_port, variables)?,
            ];
            if !has_ports && ports.iter().any(Option::is_some) {
                return Err(format!("{protocol} has no ports: write any"));
            }
            parts.extend(ports.into_iter().flatten());
            Ok((!parts.is_empty()).then(|| parts.join(" and ")))
        };
        let forth = way(Side::Source, Side::Destination)?;
        let sides = match *direction {
            "->" => forth,
            "<>" => forth
                .zip(way(Side::Destination, Side::Source)?)
                .map(|(forth, back)| if forth == back { forth } else { format!("(({forth}) or ({back}))") }),
            other => return Err(format!("unknown direction `{other}`; expected -> or <>")),
        };
        let all = sides.map_or((*filter).to_owned(), |sides| format!("{filter} and {sides}"));
        Ok(Header { protocol, filter: format!("anyvlan({all})") })
    }
}

/// The words of a header; brackets keep a list in one word.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut depth) = (Vec::new(), None, 0_usize);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (letter.is_whitespace() && depth == 0, start) {
            (true, Some(begin)) => {
                words.push(&text[begin..at]);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    words.extend(start.map(|begin| &text[begin..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Result<String, String> {
        let variables = Variables::parse("HOME_NET=10.0.0.0/8").expect("a variable");
        let header = Header::parse(&words(text), &variables)?;
        let options = tapline_filter::Options::default();
        tapline_filter::compile(&header.filter, &options).map_err(|error| error.render(&header.filter))?;
        Ok(header.filter)
    }

    #[test]
    fn headers_become_filters_that_compile() {
        for (text, wanted) in [
            ("tcp any any -> any any", "anyvlan(tcp)"),
            ("udp any any -> any 53", "anyvlan(udp and dst port 53)"),
            (
                "tcp $HOME_NET any -> !$HOME_NET [80, 443]",
                "anyvlan(tcp and ip src net 10.0.0.0/8 and not ip dst net 10.0.0.0/8 and ((dst port 80 or dst port 443)))",
            ),
            (
                "udp 10.0.0.1 any <> any 53",
                "anyvlan(udp and ((ip src net 10.0.0.1/32 and dst port 53) or (ip dst net 10.0.0.1/32 and src port 53)))",
            ),
            ("ip any any <> any any", "anyvlan((ip or ip6))"),
            ("icmp 2001:db8::/32 any -> any any", "anyvlan((icmp or icmp6) and ip6 src net 2001:db8::/32)"),
        ] {
            assert_eq!(filter(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn errors_name_the_word_that_is_wrong() {
        for (text, wanted) in [
            ("tcp any any -> any", "seven words"),
            ("http any any -> any any", "`http`"),
            ("tcp any any <- any any", "`<-`"),
            ("icmp any 8 -> any any", "no ports"),
        ] {
            let error = filter(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
