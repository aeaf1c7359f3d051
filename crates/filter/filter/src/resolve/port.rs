//! Resolves `port` and `portrange`: ports of TCP, UDP and SCTP.
//!
//! ```text
//! IPv6  next header is the protocol; ports at 40 and 42; no extension headers, as in libpcap (but see `extensions`)
//! IPv4  protocol; fragment offset 0 (mask 0x1fff of bytes 6 and 7); ports after the header, whose length varies
//! ```

use super::host::by_direction;
use super::layers::{any_set, at_least, at_most, equal};
use super::numbers::ethertype;
use super::numbers::ip_protocol;
use super::{Result, Scope, bad_qualifier};
use crate::ast::{Direction, Protocol, Qualifiers};
use crate::names::Ports;
use crate::predicate::{FieldOffset, Predicate};
use tapline_bpf::cfg::Width;
use tapline_syntax::Error;

/// One port, or a range of ports with `low <= high`.
#[derive(Clone, Copy)]
pub(super) struct PortRange {
    low: u32,
    high: u32,
}

impl PortRange {
    pub(super) fn one(port: u32) -> PortRange {
        PortRange { low: port, high: port }
    }
}

/// A test of ports, and the word that asks for it.
#[derive(Clone, Copy)]
pub(super) struct PortTest<'w> {
    pub(super) range: PortRange,
    /// `None` means any protocol with ports.
    pub(super) protocol: Option<u32>,
    pub(super) direction: Option<Direction>,
    pub(super) word: &'w str,
}

impl Scope<'_> {
    pub(super) fn port_number(&mut self, port: u32, qualifiers: Qualifiers, word: &str) -> Result<Predicate> {
        let protocol = transport(qualifiers.protocol, word)?;
        check_port(port)?;
        self.ports(PortTest { range: PortRange::one(port), protocol, direction: qualifiers.direction, word })
    }

    pub(super) fn port_name(&mut self, name: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        let wanted = transport(qualifiers.protocol, "port")?;
        let unknown = || {
            Error::whole(format!("unknown port '{name}'"))
                .hint("names of ports are looked up in /etc/services; a number works too: port 80")
        };
        let (port, found) = service(self.options.resolver.port(name)).ok_or_else(unknown)?;
        let protocol =
            agreed(wanted, found).map_err(|other| Error::whole(format!("port '{name}' is {other}")))?;
        let range = PortRange::one(port);
        self.ports(PortTest { range, protocol, direction: qualifiers.direction, word: "port" })
    }

    /// Resolves `80-90` or `http-8080`; the ports may be in either order.
    pub(super) fn port_range_name(&mut self, text: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        let wanted = transport(qualifiers.protocol, "portrange")?;
        let wrong = |what: &str| Error::whole(format!("port range '{text}' {what}")).hint(RANGE_HINT);
        let (first, second) = text.split_once('-').ok_or_else(|| wrong("contains no hyphen"))?;
        if second.contains('-') {
            return Err(wrong("contains more than one hyphen"));
        }
        if first.is_empty() {
            return Err(wrong("has no starting port"));
        }
        if second.is_empty() {
            return Err(wrong("has no ending port"));
        }
        let (first, first_protocol) = self.range_end(first)?;
        let (second, second_protocol) = self.range_end(second)?;
        // Ends of different protocols do not restrict the range to one, as in libpcap.
        let found = if first_protocol == second_protocol { first_protocol } else { None };
        let protocol = agreed(wanted, found)
            .map_err(|other| Error::whole(format!("port in range '{text}' is {other}")))?;
        check_port(first)?;
        check_port(second)?;
        let range = PortRange { low: first.min(second), high: first.max(second) };
        self.ports(PortTest { range, protocol, direction: qualifiers.direction, word: "portrange" })
    }

    /// Resolves one end of a range to its port and, for a name, the protocol that [`service`] returns.
    fn range_end(&self, text: &str) -> Result<(u32, Option<u32>)> {
        if crate::lex::is_number(text) {
            return crate::lex::number(text).map(|port| (port, None));
        }
        service(self.options.resolver.port(text))
            .ok_or_else(|| Error::whole(format!("'{text}' is not a valid port")).hint(RANGE_HINT))
    }

    /// Tests that a port is in a range, for one protocol or for any of the three.
    fn ports(&mut self, test: PortTest<'_>) -> Result<Predicate> {
        if self.extensions {
            return self.ports_behind_extensions(test);
        }
        Ok(self.ports_ipv6(test)?.or(self.ports_ipv4(test)?))
    }

    /// Like [`ports`](Self::ports), but finds the transport header after IPv6 extension headers, too.
    fn ports_behind_extensions(&mut self, test: PortTest<'_>) -> Result<Predicate> {
        let Some(cells) = self.ask_transport() else { return Ok(Predicate::Constant(false)) };
        let carried = Predicate::any(test.transports().filter_map(|number| self.has_header(number)));
        Ok(carried.and(test.at(self.at_transport(cells, 0), self.at_transport(cells, 2))?))
    }

    pub(super) fn ports_ipv6(&mut self, test: PortTest<'_>) -> Result<Predicate> {
        let is_ip6 = self.link_protocol(ethertype::IPV6)?;
        let carried = Predicate::any(test.transports().map(|number| self.ip6_next_header(number)));
        Ok(is_ip6.and(carried).and(test.at(self.after_ipv6(0), self.after_ipv6(2))?))
    }

    pub(super) fn ports_ipv4(&mut self, test: PortTest<'_>) -> Result<Predicate> {
        let is_ip = self.link_protocol(ethertype::IPV4)?;
        let carried = Predicate::any(test.transports().map(|number| self.ip_protocol(number)));
        let first = self.first_fragment();
        Ok(is_ip.and(carried).and(first).and(test.at(self.after_ipv4(0), self.after_ipv4(2))?))
    }

    /// Tests that the packet is not a later fragment of IPv4: only the first one has the ports.
    pub(super) fn first_fragment(&mut self) -> Predicate {
        any_set(self.at_network(6), Width::Half, 0x1fff, "IPv4 fragment offset").not()
    }
}

const RANGE_HINT: &str = "write two ports with a hyphen between them: portrange 8000-8080";

fn check_port(port: u32) -> Result<()> {
    if port > 65535 {
        return Err(Error::whole(format!("illegal port number {port} > 65535")).hint("a port is 0 to 65535"));
    }
    Ok(())
}

/// Returns the IP protocol of a qualifier; `None` means any protocol with ports.
fn transport(protocol: Option<Protocol>, word: &str) -> Result<Option<u32>> {
    Ok(Some(match protocol {
        None => return Ok(None),
        Some(Protocol::Tcp) => ip_protocol::TCP,
        Some(Protocol::Udp) => ip_protocol::UDP,
        Some(Protocol::Sctp) => ip_protocol::SCTP,
        Some(other) => return Err(bad_qualifier(other.name(), word).hint("tcp, udp and sctp have ports")),
    }))
}

/// Returns the port of a service, and its protocol unless TCP and UDP have the same port. If the ports differ, TCP's is
/// taken, as in libpcap.
fn service(ports: Ports) -> Option<(u32, Option<u32>)> {
    match (ports.tcp, ports.udp) {
        (Some(tcp), Some(udp)) if tcp == udp => Some((u32::from(tcp), None)),
        (Some(tcp), _) => Some((u32::from(tcp), Some(ip_protocol::TCP))),
        (None, Some(udp)) => Some((u32::from(udp), Some(ip_protocol::UDP))),
        (None, None) => None,
    }
}

/// Returns the protocol that both the qualifier and the service allow. The error is the name of the service's protocol,
/// for the message.
fn agreed(wanted: Option<u32>, found: Option<u32>) -> std::result::Result<Option<u32>, &'static str> {
    match (wanted, found) {
        (Some(wanted), Some(found)) if wanted != found => {
            Err(if found == ip_protocol::TCP { "tcp" } else { "udp" })
        }
        (wanted, found) => Ok(wanted.or(found)),
    }
}

impl PortTest<'_> {
    fn transports(self) -> impl Iterator<Item = u32> {
        const ALL: [u32; 3] = [ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP];
        ALL.into_iter().filter(move |number| self.protocol.is_none_or(|protocol| protocol == *number))
    }

    fn at(self, source: FieldOffset, destination: FieldOffset) -> Result<Predicate> {
        let PortTest { range, direction, word, .. } = self;
        let (source, destination) =
            (in_range(range, source, "source port"), in_range(range, destination, "destination port"));
        by_direction(direction, source, destination)
            .map_err(|_| bad_qualifier(direction.map_or("", Direction::name), word))
    }
}

fn in_range(range: PortRange, place: FieldOffset, name: &'static str) -> Predicate {
    if range.low == range.high {
        return equal(place, Width::Half, range.low, name);
    }
    at_least(place, Width::Half, range.low, name).and(at_most(place, Width::Half, range.high, name))
}
