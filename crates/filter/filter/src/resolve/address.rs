//! Ids, resolved by the qualifiers before them.
//!
//! ```text
//!              host            net             port, portrange   proto, protochain
//! name         host's address  network         service           protocol
//! number       IPv4 address    IPv4 network    port              number
//! n.n[.n[.n]]  IPv4, short: network            error             error
//! x/len        error           network         error             error
//! mac, $x      after `link`    error           error             error
//! ```

use std::net::{IpAddr, Ipv6Addr};

use super::{Result, Scope, bad_qualifier};
use crate::ast::{Direction, Id, IdKind, Protocol, Qualifiers};
use crate::predicate::Predicate;
use tapline_syntax::Error;

impl Scope<'_> {
    pub(super) fn id(&mut self, id: &Id, qualifiers: Option<Qualifiers>) -> Result<Predicate> {
        let Some(qualifiers) = qualifiers else {
            return Err(nothing_to_inherit(id));
        };
        match id {
            Id::Name(name) => self.name(name, qualifiers),
            Id::Number(number) => self.number(*number, qualifiers),
            Id::Ipv4(text) => self.ipv4(text, qualifiers),
            Id::Ipv4Prefix(text, len) => self.ipv4_prefix(text, *len, qualifiers),
            Id::Ipv4Mask(text, mask) => self.ipv4_mask(text, mask, qualifiers),
            Id::Ipv6(address) => self.ipv6(*address, 128, "IPv6 address", qualifiers),
            Id::Ipv6Prefix(address, len) => {
                self.ipv6(*address, *len, "IPv6 address and prefix length", qualifiers)
            }
            Id::Mac(address) => self.mac(*address, qualifiers),
            Id::Mac8(address) => self.mac8(*address, qualifiers),
        }
    }

    fn name(&mut self, name: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        if qualifiers.protocol == Some(Protocol::Decnet) {
            return Err(bad_qualifier("decnet", kind_word(qualifiers)));
        }
        match qualifiers.kind {
            None | Some(IdKind::Host) if qualifiers.protocol == Some(Protocol::Link) => {
                self.station(name, qualifiers.direction, "link host NAME")
            }
            None | Some(IdKind::Host) => self.host_name(name, qualifiers),
            Some(IdKind::Net) => self.network_name(name, qualifiers),
            Some(IdKind::Port) => self.port_name(name, qualifiers),
            Some(IdKind::Portrange) => self.port_range_name(name, qualifiers),
            Some(IdKind::Gateway) => self.gateway(name, qualifiers),
            Some(IdKind::Proto) => {
                let number = self.protocol_number(name, qualifiers)?;
                self.proto(number, qualifiers)
            }
            Some(IdKind::Protochain) => {
                let number = self.protocol_number(name, qualifiers)?;
                self.protochain(number, qualifiers)
            }
        }
    }

    fn number(&mut self, number: u32, qualifiers: Qualifiers) -> Result<Predicate> {
        if qualifiers.protocol == Some(Protocol::Decnet) {
            return Err(match qualifiers.kind {
                None | Some(IdKind::Host) => Error::whole(format!("invalid DECnet address '{number}'")),
                Some(kind) => bad_qualifier("decnet", kind.name()),
            });
        }
        match qualifiers.kind {
            None | Some(IdKind::Host | IdKind::Net) if qualifiers.protocol == Some(Protocol::Link) => {
                Err(Error::whole(format!("illegal link-layer address '{number}'")))
            }
            None | Some(IdKind::Host) => self.ipv4_host(number, u32::MAX, qualifiers),
            Some(IdKind::Net) => {
                let (network, mask) = left_justified(number);
                self.ipv4_host(network, mask, qualifiers)
            }
            Some(IdKind::Port) => self.port_number(number, qualifiers, "port"),
            Some(IdKind::Portrange) => self.port_number(number, qualifiers, "portrange"),
            Some(IdKind::Gateway) => Err(Error::whole("'gateway' requires a name")),
            Some(IdKind::Proto) => self.proto(number, qualifiers),
            Some(IdKind::Protochain) => self.protochain(number, qualifiers),
        }
    }

    fn ipv4(&mut self, text: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        refuse_port_or_proto(qualifiers, "IPv4 address")?;
        if qualifiers.protocol == Some(Protocol::Decnet) {
            return self.decnet(text, qualifiers);
        }
        let (address, mask) = short_ipv4(text)?;
        match (qualifiers.kind, qualifiers.protocol) {
            (Some(IdKind::Gateway), _) => Err(Error::whole("'gateway' requires a name")),
            (_, Some(Protocol::Link)) => Err(Error::whole(format!("illegal link-layer address '{text}'"))
                .hint("a link-layer address is written 00:00:5e:00:53:01")),
            _ => self.ipv4_host(address, mask, qualifiers),
        }
    }

    fn ipv4_prefix(&mut self, text: &str, len: u32, qualifiers: Qualifiers) -> Result<Predicate> {
        refuse_port_or_proto(qualifiers, "IPv4 address and prefix length")?;
        refuse_decnet(qualifiers)?;
        let (address, _) = short_ipv4(text)?;
        if len > 32 {
            return Err(Error::whole("mask length must be <= 32"));
        }
        let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        refuse_host_bits(address & !mask != 0, &format!("{text}/{len}"))?;
        network_only(qualifiers, &format!("{text}/{len}"))?;
        self.ipv4_host(address, mask, qualifiers)
    }

    fn ipv4_mask(&mut self, text: &str, mask_text: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        refuse_port_or_proto(qualifiers, "IPv4 address and netmask")?;
        refuse_decnet(qualifiers)?;
        let (address, _) = short_ipv4(text)?;
        let (mask, _) = short_ipv4(mask_text)?;
        refuse_host_bits(address & !mask != 0, &format!("{text} mask {mask_text}"))?;
        network_only(qualifiers, &format!("{text} mask {mask_text}"))?;
        self.ipv4_host(address, mask, qualifiers)
    }

    fn ipv6(&mut self, address: Ipv6Addr, len: u32, what: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        refuse_port_or_proto(qualifiers, what)?;
        if len > 128 {
            return Err(Error::whole("mask length must be <= 128"));
        }
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        let text = if len == 128 { address.to_string() } else { format!("{address}/{len}") };
        refuse_host_bits(u128::from(address) & !mask != 0, &text)?;
        match qualifiers.kind {
            Some(IdKind::Gateway) => Err(bad_qualifier("gateway", &text)),
            None | Some(IdKind::Host) if len != 128 => {
                Err(bad_qualifier("host", &text).hint("write net before it"))
            }
            _ => self.ipv6_host(u128::from(address), mask, qualifiers),
        }
    }

    fn mac(&mut self, address: [u8; 6], qualifiers: Qualifiers) -> Result<Predicate> {
        if !matches!(qualifiers.kind, None | Some(IdKind::Host))
            || qualifiers.protocol != Some(Protocol::Link)
        {
            return Err(not_after_ether());
        }
        self.link_host(address, qualifiers.direction, "link host XX:XX:XX:XX:XX:XX")
    }

    fn mac8(&mut self, address: u8, qualifiers: Qualifiers) -> Result<Predicate> {
        match qualifiers.kind {
            None | Some(IdKind::Host) => {}
            Some(kind) => return Err(bad_qualifier(kind.name(), "$XX")),
        }
        if qualifiers.protocol != Some(Protocol::Link) {
            return Err(Error::whole("'link' is the only valid proto qualifier for 'host $XX'"));
        }
        self.short_link_host(address, qualifiers.direction, "link host $XX")
    }

    fn host_name(&mut self, name: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        let addresses = self.options.resolver.host(name);
        if addresses.is_empty() {
            return Err(Error::whole(format!("unknown host '{name}'")).hint(format!(
                "{}; an address works too: host 192.0.2.1",
                self.options.resolver.asked_for_hosts()
            )));
        }
        // Without a link type field there is no ARP; IP of both versions is what is left.
        let no_arp = self.layers.link_type.constant == super::layers::NONE && qualifiers.protocol.is_none();
        let (ip, ip6) = match no_arp {
            true => (Some(Protocol::Ip), Some(Protocol::Ip6)),
            false => (qualifiers.protocol, qualifiers.protocol),
        };
        self.any_address(name, &addresses, ip, ip6, qualifiers.direction)
    }

    /// IPv4 addresses, then IPv6 addresses, each in ascending order. `ip host` leaves out the second, `ip6 host` the
    /// first.
    fn any_address(
        &mut self,
        name: &str,
        addresses: &[IpAddr],
        ip: Option<Protocol>,
        ip6: Option<Protocol>,
        direction: Option<Direction>,
    ) -> Result<Predicate> {
        let mut sorted: Vec<IpAddr> = addresses.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let v4 = sorted.iter().filter(|_| ip != Some(Protocol::Ip6)).filter(|address| address.is_ipv4());
        let only_v4 = matches!(ip6, Some(Protocol::Ip | Protocol::Arp | Protocol::Rarp));
        let v6 = sorted.iter().filter(|_| !only_v4).filter(|address| address.is_ipv6());
        let mut parts = Vec::new();
        for address in v4.take(ADDRESSES_MAX).chain(v6.take(ADDRESSES_MAX)) {
            let qualifiers = |protocol| Qualifiers { protocol, direction, kind: Some(IdKind::Host) };
            parts.push(match address {
                IpAddr::V4(address) => self.ipv4_host(u32::from(*address), u32::MAX, qualifiers(ip))?,
                IpAddr::V6(address) => self.ipv6_host(u128::from(*address), u128::MAX, qualifiers(ip6))?,
            });
        }
        if parts.is_empty() {
            let family =
                if ip.is_none() || addresses.is_empty() { "" } else { " for specified address family" };
            return Err(Error::whole(format!("unknown host '{name}'{family}")));
        }
        Ok(Predicate::any(parts))
    }

    fn network_name(&mut self, name: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        match self.options.resolver.network(name) {
            None | Some(0) => Err(Error::whole(format!("unknown network '{name}'")).hint(
                "names of networks are looked up in /etc/networks; a number works too: net 192.0.2.0/24",
            )),
            Some(number) => {
                let (network, mask) = left_justified(number);
                self.ipv4_host(network, mask, qualifiers)
            }
        }
    }

    /// Sent by way of a router: its link-layer address, but not its IPv4 address.
    fn gateway(&mut self, name: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        let protocol = qualifiers.protocol;
        if !matches!(protocol, None | Some(Protocol::Ip | Protocol::Arp | Protocol::Rarp)) {
            return Err(bad_qualifier(protocol.map_or("", Protocol::name), "gateway"));
        }
        if self.layers.labels > 0 {
            return Err(Error::whole("'gateway' cannot be used within MPLS"));
        }
        if self.layers.in_tunnel {
            return Err(Error::whole("'gateway' cannot be used within Geneve or VXLAN"));
        }
        let station = self.station(name, Some(Direction::SrcOrDst), "gateway")?;
        let addresses = self.options.resolver.host(name);
        let either = Some(Direction::SrcOrDst);
        let host = self.any_address(name, &addresses, protocol, Some(Protocol::Ip), either)?;
        Ok(station.and(host.not()))
    }

    fn station(&mut self, name: &str, direction: Option<Direction>, context: &str) -> Result<Predicate> {
        if !self.has_mac48() {
            return Err(self.unsupported(context));
        }
        match self.options.resolver.station(name) {
            Some(address) => self.link_host(address, direction, context),
            None => Err(Error::whole(format!("unknown Ethernet-like host '{name}'")).hint(
                "names of stations are looked up in /etc/ethers; an address works too: 00:00:5e:00:53:01",
            )),
        }
    }
}

/// Maximum number of addresses of one family for a name.
const ADDRESSES_MAX: usize = 100;

fn kind_word(qualifiers: Qualifiers) -> &'static str {
    qualifiers.kind.unwrap_or(IdKind::Host).name()
}

fn nothing_to_inherit(id: &Id) -> Error {
    match id {
        Id::Mac(_) => not_after_ether(),
        _ => Error::whole("syntax error in filter expression")
            .hint("its kind is unknown: write host, net, port or the like before it"),
    }
}

fn not_after_ether() -> Error {
    Error::whole("Ethernet address used in non-ether expression")
        .hint("write ether host, ether src or ether dst before it")
}

fn refuse_port_or_proto(qualifiers: Qualifiers, what: &str) -> Result<()> {
    match qualifiers.kind {
        Some(kind @ (IdKind::Port | IdKind::Portrange | IdKind::Proto | IdKind::Protochain)) => {
            Err(Error::whole(format!("'{}' qualifier applied to {what}", kind.name())))
        }
        _ => Ok(()),
    }
}

fn refuse_decnet(qualifiers: Qualifiers) -> Result<()> {
    match qualifiers.protocol {
        Some(Protocol::Decnet) => Err(bad_qualifier("decnet", kind_word(qualifiers))),
        _ => Ok(()),
    }
}

fn refuse_host_bits(set: bool, text: &str) -> Result<()> {
    if set {
        return Err(Error::whole(format!("non-network bits set in \"{text}\""))
            .hint("clear the bits of the address past the prefix, or make the prefix longer"));
    }
    Ok(())
}

fn network_only(qualifiers: Qualifiers, text: &str) -> Result<()> {
    match qualifiers.kind {
        Some(IdKind::Net) => Ok(()),
        _ => Err(bad_qualifier(kind_word(qualifiers), text).hint("write net before it")),
    }
}

/// An address of two to four parts, and the mask of the parts that are there. Each part is decimal, 0 to 255.
fn short_ipv4(text: &str) -> Result<(u32, u32)> {
    let invalid =
        || Error::whole(format!("invalid IPv4 address '{text}'")).hint("each part is 0 to 255, in decimal");
    let mut address: u32 = 0;
    let mut parts = 0;
    for part in text.split('.') {
        let value: u32 = part.parse().map_err(|_| invalid())?;
        if value > 255 {
            return Err(invalid());
        }
        address = address << 8 | value;
        parts += 1;
    }
    let missing = 32 - 8 * parts;
    Ok((address << missing, u32::MAX << missing))
}

/// A network number moved to the left until its first byte is not 0, and its mask.
fn left_justified(number: u32) -> (u32, u32) {
    let bits = if number == 0 { 0 } else { number.leading_zeros() / 8 * 8 };
    (number << bits, u32::MAX << bits)
}
