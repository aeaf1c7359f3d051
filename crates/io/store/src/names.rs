//! Names that packets say in the clear: in DNS messages, and those that the hellos of TLS, DTLS and QUIC ask for.
//!
//! ```text
//! UDP port 53, 5353, 5355     DNS: questions, owners of answers, targets of CNAME
//! TCP port 53                 the same behind 2 bytes of length
//! TCP, UDP of any port        the client's hello of TLS, DTLS, QUIC: the server's name
//! ```
//!
//! Each packet is read by itself, and the packet that a tunnel carries too. A hello that several packets carry has its
//! name in the first of them or, seldom, in a later one, which then says none. The index takes names by the same reader
//! that [`NameFilter`] decides by, so a search for a name finds what a scan finds.

use tapline_dissect::quic::{self, ConnectionId};
use tapline_dissect::tls::Hello;
use tapline_dissect::{Detection, dns, dtls};
use tapline_packet::numbers::{ip_protocol, port};
use tapline_packet::{Headers, LinkType, Packet};

use crate::keys::{Class, key, name_value};
use crate::{Fact, Question};

/// Names of more labels are looked up by their last ones.
const LABELS_MAX: usize = 5;
/// The longest name in bytes (RFC 1035, 2.3.4).
const NAME_LEN_MAX: usize = dns::name::NAME_MAX;
/// Bytes of a hello that CRYPTO frames of one datagram are put together to.
const HELLO_LEN_MAX: usize = 4096;
/// Content type of TLS records with the handshake, and the first byte of their version.
const TLS_START: [u8; 2] = [22, 3];
/// Record type and version of a DTLS handshake.
const DTLS_START: [u8; 2] = [22, 0xfe];

/// A message that may say names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'p> {
    Dns(&'p [u8]),
    Tls(&'p [u8]),
    Dtls(&'p [u8]),
    /// A datagram of QUIC, which has to be decrypted first: that takes microseconds.
    Quic(&'p [u8]),
}

/// Returns the message of a packet that may contain names, by its first bytes.
#[inline]
pub(crate) fn message<'p>(data: &'p [u8], headers: &Headers) -> Option<Message<'p>> {
    let payload = data.get(headers.payload()?..headers.ip_end().min(data.len()))?;
    let (src, dst) = headers.ports(data)?;
    if headers.protocol() == Some(ip_protocol::UDP) {
        return match payload {
            _ if port::is_dns(src) || port::is_dns(dst) => Some(Message::Dns(payload)),
            _ if payload.starts_with(&DTLS_START) => Some(Message::Dtls(payload)),
            _ if quic::has_long_header(payload) => Some(Message::Quic(payload)),
            _ => None,
        };
    }
    if headers.protocol() != Some(ip_protocol::TCP) {
        return None;
    }
    match payload {
        _ if src == port::DNS || dst == port::DNS => payload.get(2..).map(Message::Dns),
        _ if payload.starts_with(&TLS_START) => Some(Message::Tls(payload)),
        _ => None,
    }
}

/// Reads names; keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct NameReader {
    name: Vec<u8>,
    hello: Vec<u8>,
    opened: Vec<u8>,
}

impl NameReader {
    /// Calls `each` with each name of a message, in its spelling there; a name may come several times.
    pub(crate) fn each(&mut self, message: Message<'_>, each: &mut dyn FnMut(&[u8])) {
        match message {
            Message::Dns(bytes) => dns::names(bytes, &mut self.name, |name| each(name)),
            Message::Tls(bytes) => {
                server_name(&Hello::from_stream(bytes, true, &mut self.hello), each);
            }
            Message::Dtls(bytes) => {
                for fragment in dtls::fragments(bytes).filter(|fragment| fragment.offset == 0) {
                    let (kind, len) = (fragment.message_type, fragment.message_len);
                    server_name(&Hello::from_dtls(kind, len, fragment.bytes, true), each);
                }
            }
            Message::Quic(bytes) => {
                self.put_together(bytes);
                server_name(&Hello::from_crypto(&self.hello, true), each);
            }
        }
    }

    /// The beginning of the hello that a datagram carries, as far as its pieces join.
    fn put_together(&mut self, datagram: &[u8]) {
        let hello = &mut self.hello;
        hello.clear();
        let mut pieces: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut id = ConnectionId::NONE;
        quic::decrypt_initials(datagram, &mut id, &mut self.opened, &mut |offset, bytes| {
            pieces.push((offset as usize, bytes.to_vec()));
        });
        pieces.sort_unstable();
        for (offset, bytes) in pieces {
            let Some(known) = hello.len().checked_sub(offset) else { break };
            let room = HELLO_LEN_MAX.saturating_sub(hello.len());
            hello.extend(bytes.get(known..).unwrap_or_default().iter().take(room));
        }
    }
}

fn server_name(hello: &Detection<Hello<'_>>, each: &mut dyn FnMut(&[u8])) {
    if let Detection::Match(Hello::Client(hello)) = hello
        && !hello.server_name().is_empty()
    {
        each(hello.server_name());
    }
}

/// A name without its last dot.
fn plain(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

/// The last labels of a name, one more each time, at most [`LABELS_MAX`].
fn endings(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let dots = (0..name.len()).rev().filter(|at| name[*at] == b'.').map(|at| at + 1);
    dots.chain([0]).take(LABELS_MAX).map(|at| &name[at..])
}

/// Adds the keys of a name: its own, and those of the domains above it, which begin with a dot.
pub(crate) fn name_keys(name: &[u8], keys: &mut Vec<u64>) {
    let name = plain(name);
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return;
    }
    keys.push(key(Class::Name, name_value(name)));
    let mut dotted = [b'.'; NAME_LEN_MAX + 1];
    for ending in endings(name) {
        dotted[1..=ending.len()].copy_from_slice(ending);
        keys.push(key(Class::Name, name_value(&dotted[..=ending.len()])));
    }
}

/// A name to find packets by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFilter {
    /// Without a dot in front or at its end, in lower case.
    name: Vec<u8>,
    /// Whether names below it are meant too.
    has_names_below: bool,
}

impl NameFilter {
    /// `www.example.org`, or `.example.org` for that name and all below it. Upper and lower case are the same.
    ///
    /// # Errors
    /// A message if it is not a name.
    pub fn parse(text: &str) -> Result<NameFilter, String> {
        let has_names_below = text.starts_with('.');
        let name = plain(text.strip_prefix('.').unwrap_or(text).as_bytes()).to_ascii_lowercase();
        let is_name = !name.is_empty()
            && name.len() <= NAME_LEN_MAX
            && !name.split(|byte| *byte == b'.').any(|label| label.is_empty() || label.len() > 63);
        match is_name && !name.iter().any(u8::is_ascii_whitespace) {
            true => Ok(NameFilter { name, has_names_below }),
            false => Err(
                "a name is www.example.org, or .example.org for all below it; labels have 1 to 63 bytes, \
                          the whole at most 255"
                    .to_owned(),
            ),
        }
    }

    /// The question for the index.
    pub fn question(&self) -> Question {
        let value = match endings(&self.name).last() {
            Some(ending) if self.has_names_below => name_value(&[b".", ending].concat()),
            _ => name_value(&self.name),
        };
        Question::Is(Fact::of(Class::Name, value))
    }

    /// Whether a name is this one or, with a dot in front, below it.
    pub fn is_meant(&self, name: &[u8]) -> bool {
        let name = plain(name);
        let Some(above) = name.len().checked_sub(self.name.len()) else { return false };
        let is_below = above > 0 && name[above - 1] == b'.';
        name[above..].eq_ignore_ascii_case(&self.name) && (above == 0 || self.has_names_below && is_below)
    }
}

/// Decides by name over packets, one after the other.
#[derive(Debug, Default)]
pub struct NameMatcher(NameReader);

impl NameMatcher {
    /// Whether a packet, or the one that it carries in a tunnel, says a name that is meant by one of the filters.
    pub fn accepts(&mut self, filters: &[NameFilter], link_type: LinkType, packet: Packet<'_>) -> bool {
        let mut is_found = false;
        each_message(link_type, packet, &mut |message| {
            self.0.each(message, &mut |name| is_found |= filters.iter().any(|filter| filter.is_meant(name)));
        });
        is_found
    }
}

/// Calls `each` with the messages of a packet that may contain names.
fn each_message<'p>(link_type: LinkType, packet: Packet<'p>, each: &mut dyn FnMut(Message<'p>)) {
    let headers = Headers::parse(link_type, packet);
    messages(packet.data, &headers).into_iter().flatten().for_each(each);
}

/// Messages that may contain names: of a packet, and of the packet that it carries in a tunnel.
#[inline]
pub(crate) fn messages<'p>(data: &'p [u8], headers: &Headers) -> [Option<Message<'p>>; 2] {
    let own = message(data, headers);
    // A packet with a message of its own is not a tunnel, but for one that a sender made to look like both.
    let inner = headers.inner(data).and_then(|inner| message(inner.data(data), &inner.headers(data)));
    [own, inner]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> NameFilter {
        NameFilter::parse(text).unwrap()
    }

    #[test]
    fn a_name_is_meant_by_itself_or_by_its_domain() {
        for (text, name, is_meant) in [
            ("www.example.org", "www.example.org", true),
            ("www.example.org", "WWW.Example.ORG.", true),
            ("WWW.example.org.", "www.example.org", true),
            ("example.org", "www.example.org", false),
            (".example.org", "www.example.org", true),
            (".example.org", "example.org", true),
            (".example.org", "anexample.org", false),
            (".org", "a.b.c.d.e.f.g.example.org", true),
            (".e.f.g.h.example.org", "d.e.f.g.h.example.org", true),
            (".example.org", "org", false),
        ] {
            assert_eq!(filter(text).is_meant(name.as_bytes()), is_meant, "{text}, {name}");
            if is_meant {
                let mut keys = Vec::new();
                name_keys(name.as_bytes(), &mut keys);
                let facts = filter(text).question().facts();
                assert!(facts.iter().all(|fact| keys.contains(&fact.key())), "{text}, {name}");
            }
        }
        for text in ["", ".", "a..b", "a b", &"x".repeat(64), &"abc.".repeat(70)] {
            assert!(NameFilter::parse(text).is_err(), "{text}");
        }
    }

    /// Every name that is read in any capture has its keys, and never more keys than labels allow.
    #[test]
    fn names_of_captures_have_keys() {
        let (mut reader, mut keys, mut names) = (NameReader::default(), Vec::new(), 0);
        for (data, meta) in crate::tests::captured() {
            let packet = Packet { data: &data, meta: &meta };
            let mut all: Vec<Vec<u8>> = Vec::new();
            each_message(LinkType::ETHERNET, packet, &mut |message| {
                reader.each(message, &mut |name| all.push(name.to_vec()));
            });
            for name in all {
                let text = String::from_utf8_lossy(&name).into_owned();
                let Ok(filter) = NameFilter::parse(text.trim_start_matches('.')) else { continue };
                if filter.name.len() != plain(&name).len() {
                    continue;
                }
                keys.clear();
                name_keys(&name, &mut keys);
                assert!(keys.len() <= 1 + LABELS_MAX, "{text}");
                let is_there = |fact: &Fact| keys.contains(&fact.key());
                assert!(filter.question().holds(&is_there), "{text}");
                assert!(NameMatcher::default().accepts(&[filter], LinkType::ETHERNET, packet), "{text}");
                names += 1;
            }
        }
        if names == 0 {
            eprintln!("skipped: names_of_captures_have_keys: there are no captures beside the repository");
        } else {
            eprintln!("{names} names");
        }
    }
}
