//! Display filters of Wireshark, for errors: those with an equivalent in the language are shown it.
//!
//! ```text
//! all  := both (("||" | or) both)*
//! both := one (("&&" | and) one)*
//! one  := ("!" | not) one | "(" all ")" | field (operator value | in "{" value ("," value)* "}")? | protocol
//! ```

/// The deepest nesting that is looked at.
const DEPTH_MAX: usize = 32;

/// The text in the pcap-filter language that accepts what the display filter `text` does; of applications what is on
/// their port. `None` if `text` is not a display filter, or has no equivalent.
pub fn equivalent_of_display_filter(text: &str) -> Option<String> {
    let mut reader = Reader { words: words(text)?, at: 0, depth: 0 };
    let all = reader.all()?;
    (reader.at == reader.words.len()).then_some(all.text)
}

/// A filter of the language.
struct Translated {
    text: String,
    /// Whether it has an `and` or `or` outside of parentheses.
    is_compound: bool,
}

impl Translated {
    fn simple(text: String) -> Translated {
        Translated { text, is_compound: false }
    }

    /// All parts with a word between them, which libpcap reads from left to right.
    fn joined(mut parts: Vec<Translated>, word: &str) -> Option<Translated> {
        if parts.len() == 1 {
            return parts.pop();
        }
        let texts: Vec<String> = parts.into_iter().map(Translated::closed).collect();
        Some(Translated { text: texts.join(&format!(" {word} ")), is_compound: true })
    }

    fn closed(self) -> String {
        if self.is_compound { format!("({})", self.text) } else { self.text }
    }

    fn negated(self) -> Translated {
        Translated::simple(format!("not {}", self.closed()))
    }
}

/// Words and operators; `None` for what no display filter has.
fn words(text: &str) -> Option<Vec<&str>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || ".:_-/".contains(c);
    let mut rest = text.trim_start();
    let mut words = Vec::new();
    while !rest.is_empty() {
        let len = match rest.find(|c| !is_word(c)).unwrap_or(rest.len()) {
            0 if ["==", "!=", ">=", "<=", "&&", "||"].iter().any(|two| rest.starts_with(two)) => 2,
            0 if rest.starts_with(['!', '<', '>', '(', ')', '{', '}', ',']) => 1,
            0 => return None,
            len => len,
        };
        words.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    Some(words)
}

struct Reader<'a> {
    words: Vec<&'a str>,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let is_there = self.words.get(self.at).is_some_and(|word| wanted.contains(word));
        self.at += usize::from(is_there);
        is_there
    }

    fn all(&mut self) -> Option<Translated> {
        self.list(&["||", "or"], "or", Reader::both)
    }

    fn both(&mut self) -> Option<Translated> {
        self.list(&["&&", "and"], "and", Reader::one)
    }

    fn list(
        &mut self,
        joints: &[&str],
        word: &str,
        part: fn(&mut Self) -> Option<Translated>,
    ) -> Option<Translated> {
        let mut parts = vec![part(self)?];
        while self.take(joints) {
            parts.push(part(self)?);
        }
        Translated::joined(parts, word)
    }

    fn one(&mut self) -> Option<Translated> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let found = if self.take(&["!", "not"]) {
            self.one().map(Translated::negated)
        } else if self.take(&["("]) {
            self.all().filter(|_| self.take(&[")"]))
        } else {
            self.test()
        };
        self.depth -= 1;
        found
    }

    fn test(&mut self) -> Option<Translated> {
        let field = self.next()?;
        if self.take(&["in"]) {
            return self.set(field);
        }
        let Some(operator) = self.words.get(self.at).copied().and_then(operator) else {
            return protocol(field).map(|text| Translated::simple(text.to_owned()));
        };
        self.at += 1;
        comparison(field, operator, self.next()?)
    }

    fn set(&mut self, field: &str) -> Option<Translated> {
        if !self.take(&["{"]) {
            return None;
        }
        let mut parts = Vec::new();
        while !self.take(&["}"]) {
            parts.push(comparison(field, "=", self.next()?)?);
            self.take(&[","]);
        }
        if parts.is_empty() { None } else { Translated::joined(parts, "or") }
    }
}

/// The operator in our language.
fn operator(word: &str) -> Option<&'static str> {
    Some(match word {
        "==" | "eq" => "=",
        "!=" | "ne" => "!=",
        ">" | "gt" => ">",
        "<" | "lt" => "<",
        ">=" | "ge" => ">=",
        "<=" | "le" => "<=",
        _ => return None,
    })
}

/// A protocol by name; an application by its port.
fn protocol(name: &str) -> Option<&'static str> {
    Some(match name {
        "ip" => "ip",
        "ipv6" => "ip6",
        "tcp" => "tcp",
        "udp" => "udp",
        "sctp" => "sctp",
        "arp" => "arp",
        "icmp" => "icmp",
        "icmpv6" => "icmp6",
        "igmp" => "igmp",
        "vlan" => "vlan",
        "mpls" => "mpls",
        "stp" => "stp",
        "lldp" => r"ether proto \lldp",
        "http" => "tcp port 80",
        "tls" | "ssl" | "http2" => "tcp port 443",
        "quic" | "http3" => "udp port 443",
        "dns" => "port 53",
        "mdns" => "udp port 5353",
        "dhcp" | "bootp" => "udp portrange 67-68",
        "dhcpv6" => "udp portrange 546-547",
        "ntp" => "udp port 123",
        "ssh" => "tcp port 22",
        "telnet" => "tcp port 23",
        "ftp" => "tcp port 21",
        "smtp" => "tcp port 25",
        "sip" => "port 5060",
        "snmp" => "udp portrange 161-162",
        "tftp" => "udp port 69",
        "syslog" => "udp port 514",
        "ldap" => "tcp port 389",
        "smb" | "smb2" => "tcp port 445",
        "bgp" => "tcp port 179",
        "mysql" => "tcp port 3306",
        "pgsql" => "tcp port 5432",
        "rdp" => "tcp port 3389",
        "vxlan" => "udp port 4789",
        _ => return None,
    })
}

fn comparison(field: &str, operator: &str, value: &str) -> Option<Translated> {
    let positive = |operator| match field {
        "ip.addr" | "ipv6.addr" | "ip.host" => address("", operator, value),
        "ip.src" | "ipv6.src" | "ip.src_host" => address("src ", operator, value),
        "ip.dst" | "ipv6.dst" | "ip.dst_host" => address("dst ", operator, value),
        "eth.addr" => equal("ether host", operator, value),
        "eth.src" => equal("ether src", operator, value),
        "eth.dst" => equal("ether dst", operator, value),
        "vlan.id" => equal("vlan", operator, value),
        "ip.proto" => equal("ip proto", operator, value),
        "tcp.port" | "udp.port" | "sctp.port" => ports(field, "", operator, value),
        "tcp.srcport" | "udp.srcport" | "sctp.srcport" => ports(field, "src ", operator, value),
        "tcp.dstport" | "udp.dstport" | "sctp.dstport" => ports(field, "dst ", operator, value),
        "frame.len" => number("len", operator, value),
        "ip.len" => number("ip[2:2]", operator, value),
        "ip.ttl" => number("ip[8]", operator, value),
        "icmp.type" => number("icmp[icmptype]", operator, value),
        "icmp.code" => number("icmp[icmpcode]", operator, value),
        "tcp.flags" => number("tcp[tcpflags]", operator, value),
        _ => flag(field, operator, value),
    };
    match operator {
        "!=" => positive("=").map(|text| Translated::simple(text).negated()),
        operator => positive(operator).map(Translated::simple),
    }
}

fn equal(what: &str, operator: &str, value: &str) -> Option<String> {
    (operator == "=").then(|| format!("{what} {value}"))
}

fn address(direction: &str, operator: &str, value: &str) -> Option<String> {
    let kind = if value.contains('/') { "net" } else { "host" };
    equal(&format!("{direction}{kind}"), operator, value)
}

/// A port or a range of ports; the protocol is the field's.
fn ports(field: &str, direction: &str, operator: &str, value: &str) -> Option<String> {
    let (protocol, _) = field.split_once('.')?;
    if let Some((first, last)) = value.split_once("..") {
        return equal(&format!("{protocol} {direction}portrange"), operator, &format!("{first}-{last}"));
    }
    let port: u16 = value.parse().ok()?;
    let range = match operator {
        "=" => return Some(format!("{protocol} {direction}port {port}")),
        ">" => port.checked_add(1)?..=u16::MAX,
        ">=" => port..=u16::MAX,
        "<" => 0..=port.checked_sub(1)?,
        _ => 0..=port,
    };
    Some(format!("{protocol} {direction}portrange {}-{}", range.start(), range.end()))
}

fn number(what: &str, operator: &str, value: &str) -> Option<String> {
    let is_number = value.starts_with(|c: char| c.is_ascii_digit());
    is_number.then(|| format!("{what} {operator} {value}"))
}

fn flag(field: &str, operator: &str, value: &str) -> Option<String> {
    let name = match field.strip_prefix("tcp.flags.")? {
        "reset" => "rst",
        name @ ("syn" | "ack" | "fin" | "push" | "urg" | "ece" | "cwr") => name,
        _ => return None,
    };
    let compared = match (operator, value) {
        ("=", "1" | "True" | "true") => "!=",
        ("=", "0" | "False" | "false") => "=",
        _ => return None,
    };
    Some(format!("tcp[tcpflags] & tcp-{name} {compared} 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_filters_have_equivalents() {
        for (display, ours) in [
            ("tcp.port == 443", "tcp port 443"),
            ("tcp.port==443", "tcp port 443"),
            ("ip.addr == 1.2.3.4", "host 1.2.3.4"),
            ("ip.addr eq 10.0.0.0/8 && !arp", "net 10.0.0.0/8 and not arp"),
            ("ipv6.src == 2001:db8::1", "src host 2001:db8::1"),
            ("http", "tcp port 80"),
            ("dns or mdns", "port 53 or udp port 5353"),
            (
                "ip.src != 10.0.0.1 and (http || tls)",
                "not src host 10.0.0.1 and (tcp port 80 or tcp port 443)",
            ),
            ("dns || http && ip", "port 53 or (tcp port 80 and ip)"),
            ("udp.dstport >= 1024", "udp dst portrange 1024-65535"),
            ("tcp.port < 1024", "tcp portrange 0-1023"),
            ("tcp.port in {80, 443, 8000..8080}", "tcp port 80 or tcp port 443 or tcp portrange 8000-8080"),
            (
                "tcp.flags.syn == 1 && tcp.flags.ack == 0",
                "tcp[tcpflags] & tcp-syn != 0 and tcp[tcpflags] & tcp-ack = 0",
            ),
            ("frame.len > 1000", "len > 1000"),
            ("eth.addr == 02:00:00:00:00:01", "ether host 02:00:00:00:00:01"),
            ("not (dns)", "not port 53"),
        ] {
            assert_eq!(equivalent_of_display_filter(display).as_deref(), Some(ours), "{display}");
            crate::parse(ours).unwrap_or_else(|error| panic!("{ours}: {error}"));
        }
    }

    #[test]
    fn other_texts_have_none() {
        let deep = "(".repeat(100_000) + "http";
        for text in [
            "",
            "foo",
            "tcp port 80 and and udp",
            "http.host contains \"a\"",
            "tcp.port == x",
            "tcp.port ==",
            "(http",
            "tcp.port > 65535",
            "tcp.port < 0",
            "tcp.port in {}",
            "tcp.port in {80",
            "http http",
            "! ! !",
            &deep,
        ] {
            assert_eq!(equivalent_of_display_filter(text), None, "{text}");
        }
    }
}
