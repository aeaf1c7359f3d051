//! The filter line: words of the view, and pcap-filter text.
//!
//! ```text
//! host:10.0.0.7 app:tls tcp port 443
//! '---words of the view---' '--pcap-filter--'
//! ```
//!
//! A text that pcap-filter refuses may have bare words: `10.0.0.7`, `443`, `tls` ([`forgiving`](crate::forgiving)).
//!
//! A flow fits if all words fit and the pcap-filter text accepts a packet with the flow's addresses, protocol and
//! ports, in either direction. Names in that text are looked up in files only: a name server would learn the watched
//! names.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tapline_filter::{Options, SystemNames};
use tapline_ir::CompiledFilter;
use tapline_packet::numbers::ip_protocol::{TCP, UDP};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_view::{Dimension, KeyValue, Row};

use crate::forgiving;
use crate::rights::Rights;

/// The most bytes of a filter line.
const LEN_MAX: usize = 1000;

/// A filter line that was understood.
#[derive(Clone, Debug, Default)]
pub struct FilterLine {
    hosts: Vec<IpAddr>,
    applications: Vec<String>,
    hides_names: bool,
    text: String,
    program: Option<Arc<CompiledFilter>>,
    read_as: Option<String>,
}

impl FilterLine {
    /// Reads a line.
    ///
    /// # Errors
    /// A text that describes the fault, with its place.
    pub fn parse(line: &str) -> Result<FilterLine, String> {
        let mut filter = FilterLine::understood(line, &|text| compiled(text, LinkType::RAW).map(drop))?;
        if !filter.text.is_empty() {
            filter.program = Some(Arc::new(compiled(&filter.text, LinkType::RAW)?));
        }
        Ok(filter)
    }

    /// Reads a line whose pcap-filter text `check` accepts, with its bare words if it accepts it only so.
    fn understood(line: &str, check: &dyn Fn(&str) -> Result<(), String>) -> Result<FilterLine, String> {
        let filter = FilterLine::words(line)?;
        if filter.text.is_empty() {
            return Ok(filter);
        }
        let Err(why) = check(&filter.text) else { return Ok(filter) };
        if compiled(&filter.text, LinkType::ETHERNET).is_ok() {
            return Err(format!(
                "{}: only packets have this; a flow has addresses, protocol and ports. Page Packets takes this filter",
                filter.text
            ));
        }
        let is_filter = |word: &str| compiled(word, LinkType::ETHERNET).is_ok();
        let reading = forgiving::read(&filter.text, &is_filter)
            .filter(|reading| reading.text.is_empty() || check(&reading.text).is_ok());
        let Some(reading) = reading else { return Err(why) };
        let mut filter = FilterLine { text: reading.text, ..filter };
        filter.applications.extend(reading.applications);
        filter.read_as = Some(filter.to_string());
        Ok(filter)
    }

    /// The line as it was read, where bare words were read as parts of it.
    pub fn read_as(&self) -> Option<&str> {
        self.read_as.as_deref()
    }

    /// A line taken apart, its pcap-filter text not compiled yet.
    fn words(line: &str) -> Result<FilterLine, String> {
        if line.len() > LEN_MAX {
            return Err(format!("the filter has {} bytes; {LEN_MAX} are the most", line.len()));
        }
        let mut filter = FilterLine::default();
        let mut rest = Vec::new();
        for word in line.split_whitespace() {
            match word.split_once(':') {
                Some(("host", address)) => match address.parse() {
                    Ok(address) => filter.hosts.push(address),
                    Err(_) => return Err(format!("`{word}`: {address} is not an address of IPv4 or IPv6")),
                },
                Some(("app", name)) if !name.is_empty() => {
                    filter.applications.push(name.to_lowercase());
                }
                Some(("app", _)) => {
                    return Err(format!("`{word}`: an application or a name belongs behind app:"));
                }
                _ => rest.push(word),
            }
        }
        filter.text = rest.join(" ");
        Ok(filter)
    }

    /// The flows of a host.
    pub fn of_host(host: IpAddr) -> FilterLine {
        FilterLine { hosts: vec![host], ..FilterLine::default() }
    }

    /// The filter for a viewer with these rights: without the right to names `app:` means only applications.
    #[must_use]
    pub fn seeing(self, rights: Rights) -> FilterLine {
        FilterLine { hides_names: rights < Rights::Names, ..self }
    }

    /// Whether every flow fits.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.applications.is_empty() && self.program.is_none()
    }

    /// The pcap-filter text of a line for packets: with its hosts. It fits frames of Ethernet or packets of IP; a
    /// source of another link type looks at it again. Applications cannot be said in it.
    ///
    /// # Errors
    /// A text that describes the fault, or says that the line asks for an application.
    pub fn packets_text(line: &str) -> Result<String, String> {
        let check = |text: &str| {
            let of_ethernet = compiled(text, LinkType::ETHERNET);
            of_ethernet.or_else(|why| compiled(text, LinkType::RAW).map_err(|_| why)).map(drop)
        };
        FilterLine::understood(line, &check)?.with_hosts()
    }

    fn with_hosts(&self) -> Result<String, String> {
        if !self.applications.is_empty() {
            return Err(format!(
                "{}: applications and names are known of flows, not of packets: name hosts and ports",
                self.applications.iter().map(|name| format!("app:{name}")).collect::<Vec<_>>().join(" ")
            ));
        }
        let hosts = self.hosts.iter().map(|host| format!("host {host}"));
        let text = (!self.text.is_empty()).then(|| format!("({})", self.text));
        Ok(hosts.chain(text).collect::<Vec<_>>().join(" and "))
    }

    /// Whether a flow fits.
    pub fn fits(&self, row: &Row) -> bool {
        let KeyValue::Flow(protocol, from, to) = row.key.value(Dimension::Flow) else { return false };
        if !self.hosts.iter().all(|host| *host == from.0 || *host == to.0) {
            return false;
        }
        if !self.applications.is_empty() {
            let KeyValue::Name(name) = row.name.value(Dimension::Name) else { return false };
            let seen =
                if self.hides_names { name.split(' ').next().unwrap_or_default() } else { name.as_str() };
            let name = seen.to_lowercase();
            if !self.applications.iter().all(|wanted| name.contains(wanted.as_str())) {
                return false;
            }
        }
        let Some(program) = &self.program else { return true };
        let accepts = |from, to| {
            let data = headers(protocol, from, to);
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            program.run(Packet { data: &data, meta: &meta }) > 0
        };
        accepts(from, to) || accepts(to, from)
    }
}

impl fmt::Display for FilterLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.hosts.iter().map(|host| format!("host:{host}"));
        let applications = self.applications.iter().map(|name| format!("app:{name}"));
        let text = (!self.text.is_empty()).then(|| self.text.clone());
        f.write_str(&hosts.chain(applications).chain(text).collect::<Vec<_>>().join(" "))
    }
}

/// Names are looked up in files only.
fn compiled(text: &str, link_type: LinkType) -> Result<CompiledFilter, String> {
    let names = Arc::new(SystemNames::in_directory("/etc").files_only());
    let options = Options { resolver: names, ..Options::new(link_type) };
    tapline_filter::compile(text, &options).map_err(|error| error.render(text))
}

/// The headers of a packet of a flow: IP, and the part of the transport header that filters look at.
fn headers(protocol: u8, from: (IpAddr, u16), to: (IpAddr, u16)) -> Vec<u8> {
    let payload = match protocol {
        TCP => 20,
        UDP => 8,
        _ => 4,
    };
    let mut data = match (from.0, to.0) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 20 + payload, 0, 0, 0, 0, 64, protocol, 0, 0];
            header.extend(source.octets());
            header.extend(destination.octets());
            header
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            let mut header = vec![0x60, 0, 0, 0, 0, payload, protocol, 64];
            header.extend(octets(source));
            header.extend(octets(destination));
            header
        }
    };
    match protocol {
        1 | 58 => data.extend([(to.1 >> 8) as u8, to.1 as u8, 0, 0]),
        _ => {
            data.extend(from.1.to_be_bytes());
            data.extend(to.1.to_be_bytes());
        }
    }
    data.resize(data.len() + usize::from(payload) - 4, 0);
    if protocol == TCP {
        let offset = data.len() - 8;
        data[offset] = 0x50;
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bare words that people type first, and mistakes with their place.
    #[test]
    fn bare_words_are_read_and_mistakes_marked() {
        let row = |name: &str, port: u16| {
            let address = |host: &str| tapline_view::Key::host(host.parse().expect("an address")).0;
            let ([a, b, ..], [c, d, ..]) = (address("10.9.0.12"), address("10.9.0.2"));
            let rest = 6 << 32 | 40_000 << 16 | u64::from(port);
            let key = tapline_view::Key([a, b, c, d, rest, 0, 0, 0]);
            Row { key, name: tapline_view::Key::name(name), ..Row::default() }
        };
        let (web, mail) = (row("tls shop.example.com", 443), row("smtp", 25));
        for line in ["10.9.0.12 443", "443", "tls", "shop.example.com", "10.9.0.2:443", "tcp 443"] {
            let filter = FilterLine::parse(line).expect(line);
            assert!(filter.fits(&web) && !filter.fits(&mail), "{line}: {filter}");
        }
        assert_eq!(FilterLine::parse("443 tls").expect("a filter").read_as(), Some("app:tls port 443"));
        assert_eq!(FilterLine::parse("tcp port 443").expect("a filter").read_as(), None);
        let told = FilterLine::parse("tcp prot 80").expect_err("a mistake");
        assert!(told.contains("\n  tcp prot 80\n      ^^^^"), "{told}");
        assert!(FilterLine::parse("vlan 5").expect_err("of frames").contains("Packets"));
        assert_eq!(FilterLine::packets_text("10.9.0.12 443").as_deref(), Ok("(host 10.9.0.12 and port 443)"));
        assert!(FilterLine::packets_text("tls").expect_err("of flows").contains("app:tls"));
    }

    /// A frame has words that a flow's row does not have.
    #[test]
    fn words_of_frames_are_for_packets_alone() {
        for text in ["vlan 5", "mpls", "ether host 02:00:00:00:00:01", "broadcast", "arp"] {
            assert!(FilterLine::parse(text).is_err(), "{text}");
            assert_eq!(FilterLine::packets_text(text).as_deref(), Ok(format!("({text})").as_str()));
        }
        let both = FilterLine::packets_text("host:10.0.0.7 tcp port 443");
        assert_eq!(both.as_deref(), Ok("host 10.0.0.7 and (tcp port 443)"));
        for wrong in ["app:tls", "tcp port", "host no-such-name.invalid"] {
            assert!(FilterLine::packets_text(wrong).is_err(), "{wrong}");
        }
    }
}
