//! Protocols by themselves and by number: `tcp`, `ip proto 6`, `isis`.
//!
//! ```text
//! ip proto p    IPv4 and byte 9 = p
//! ip6 proto p   IPv6 and (byte 6 = p, or byte 6 = 44, a fragment, and byte 40 = p)
//! proto p       either
//! iso proto p   OSI and its first byte = p;  isis proto p: IS-IS and the low 5 bits of byte 4 = p
//! ```

use tapline_packet::LinkType;

use super::layers::{equal, masked};
use super::link::{nlpid, sap};
use super::numbers::{ethertype, ip_protocol};
use super::transport::is_extension;
use super::{Result, Scope, bad_qualifier, check_max};
use crate::ast::{IdKind, Protocol, Qualifiers};
use crate::predicate::{HeaderChain, Predicate};
use tapline_bpf::cfg::Width;
use tapline_syntax::Error;

/// PDU types of IS-IS (ISO/IEC 10589, 9.5 to 9.13).
mod isis {
    pub(super) const L1_HELLO: u32 = 15;
    pub(super) const L2_HELLO: u32 = 16;
    pub(super) const POINT_TO_POINT_HELLO: u32 = 17;
    pub(super) const L1_LINK_STATE: u32 = 18;
    pub(super) const L2_LINK_STATE: u32 = 20;
    pub(super) const L1_COMPLETE: u32 = 24;
    pub(super) const L2_COMPLETE: u32 = 25;
    pub(super) const L1_PARTIAL: u32 = 26;
    pub(super) const L2_PARTIAL: u32 = 27;
    /// The largest; also the bits that hold it.
    pub(super) const MAX: u32 = 0x1f;
}

impl Scope<'_> {
    /// A protocol's word by itself.
    pub(super) fn protocol(&mut self, protocol: Protocol) -> Result<Predicate> {
        match protocol {
            Protocol::Ip => self.link_protocol(ethertype::IPV4),
            Protocol::Ip6 => self.link_protocol(ethertype::IPV6),
            Protocol::Arp => self.link_protocol(ethertype::ARP),
            Protocol::Rarp => self.link_protocol(ethertype::REVERSE_ARP),
            Protocol::Atalk => self.link_protocol(ethertype::APPLETALK),
            Protocol::Aarp => self.link_protocol(ethertype::APPLETALK_ARP),
            Protocol::Decnet => self.link_protocol(ethertype::DECNET),
            Protocol::Sca => self.link_protocol(ethertype::SCA),
            Protocol::Lat => self.link_protocol(ethertype::LAT),
            Protocol::Mopdl => self.link_protocol(ethertype::MOP_DUMP),
            Protocol::Moprc => self.link_protocol(ethertype::MOP_CONSOLE),
            Protocol::Iso => self.link_protocol(sap::ISO),
            Protocol::Stp => self.link_protocol(sap::SPANNING_TREE),
            Protocol::Ipx => self.link_protocol(sap::IPX),
            Protocol::Netbeui => self.link_protocol(sap::NETBEUI),
            Protocol::Sctp => self.ip_or_ip6(ip_protocol::SCTP),
            Protocol::Tcp => self.ip_or_ip6(ip_protocol::TCP),
            Protocol::Udp => self.ip_or_ip6(ip_protocol::UDP),
            Protocol::Pim => self.ip_or_ip6(ip_protocol::PIM),
            Protocol::Ah => self.ip_or_ip6(ip_protocol::AH),
            Protocol::Esp => self.ip_or_ip6(ip_protocol::ESP),
            Protocol::Icmp => self.ip_carries(ip_protocol::ICMP),
            Protocol::Igmp => self.ip_carries(ip_protocol::IGMP),
            Protocol::Igrp => self.ip_carries(ip_protocol::IGRP),
            Protocol::Vrrp | Protocol::Carp => self.ip_carries(ip_protocol::VRRP),
            Protocol::Icmp6 => self.ip6_carries(ip_protocol::ICMPV6),
            Protocol::Clnp => self.iso(nlpid::CLNP),
            Protocol::Esis => self.iso(nlpid::ESIS),
            Protocol::Isis => self.iso(nlpid::ISIS),
            _ => self.isis_kind(protocol),
        }
    }

    /// IS-IS by level or kind. Hellos between two routers are of either level; their circuit type is not looked at.
    fn isis_kind(&mut self, protocol: Protocol) -> Result<Predicate> {
        use isis::*;
        let types: &[u32] = match protocol {
            Protocol::IsisL1 => &[L1_PARTIAL, L1_COMPLETE, L1_LINK_STATE, L1_HELLO, POINT_TO_POINT_HELLO],
            Protocol::IsisL2 => &[L2_PARTIAL, L2_COMPLETE, L2_LINK_STATE, L2_HELLO, POINT_TO_POINT_HELLO],
            Protocol::IsisIih => &[POINT_TO_POINT_HELLO, L1_HELLO, L2_HELLO],
            Protocol::IsisLsp => &[L1_LINK_STATE, L2_LINK_STATE],
            Protocol::IsisSnp => &[L2_PARTIAL, L1_PARTIAL, L1_COMPLETE, L2_COMPLETE],
            Protocol::IsisCsnp => &[L1_COMPLETE, L2_COMPLETE],
            Protocol::IsisPsnp => &[L1_PARTIAL, L2_PARTIAL],
            other => {
                return Err(Error::whole(format!("'{}' cannot be used as an abbreviation", other.name()))
                    .hint("index it, as in radio[0] = 0"));
            }
        };
        let parts: Result<Vec<Predicate>> = types.iter().map(|kind| self.isis(*kind)).collect();
        parts.map(Predicate::any)
    }

    pub(super) fn ip_or_ip6(&mut self, protocol: u32) -> Result<Predicate> {
        if self.extensions
            && !is_extension(protocol)
            && let Some(carried) = self.carries(protocol)
        {
            check_max("protocol number", protocol, 0xff)?;
            return Ok(carried);
        }
        Ok(self.ip_carries(protocol)?.or(self.ip6_carries(protocol)?))
    }

    pub(super) fn ip_carries(&mut self, protocol: u32) -> Result<Predicate> {
        check_max("protocol number", protocol, 0xff)?;
        Ok(self.link_protocol(ethertype::IPV4)?.and(self.ip_protocol(protocol)))
    }

    fn ip6_carries(&mut self, protocol: u32) -> Result<Predicate> {
        check_max("protocol number", protocol, 0xff)?;
        let is_ip6 = self.link_protocol(ethertype::IPV6)?;
        if self.extensions
            && !is_extension(protocol)
            && let Some(carried) = self.carries(protocol)
        {
            return Ok(is_ip6.and(carried));
        }
        let fragment = self.ip6_next_header(ip_protocol::FRAGMENT);
        let in_fragment = equal(self.at_network(40), Width::Byte, protocol, "IPv6 fragment's next header");
        let carried = self.ip6_next_header(protocol).or(fragment.and(in_fragment));
        Ok(is_ip6.and(carried))
    }

    /// The protocol of an IPv4 header.
    pub(super) fn ip_protocol(&mut self, protocol: u32) -> Predicate {
        equal(self.at_network(9), Width::Byte, protocol, "IPv4 protocol")
    }

    /// The next header of an IPv6 header.
    pub(super) fn ip6_next_header(&mut self, protocol: u32) -> Predicate {
        equal(self.at_network(6), Width::Byte, protocol, "IPv6 next header")
    }

    fn iso(&mut self, protocol: u32) -> Result<Predicate> {
        check_max("ISO protocol", protocol, 0xff)?;
        const NLPID: &str = "OSI protocol";
        Ok(match self.link_type() {
            // The same bytes say that it is OSI and which protocol of it.
            LinkType::FRELAY => equal(self.at_link(2), Width::Half, 0x0300 | protocol, "Frame Relay NLPID"),
            LinkType::C_HDLC | LinkType::HDLC => {
                let is_iso = self.link_protocol(sap::ISO << 8 | sap::ISO)?;
                is_iso.and(equal(self.at_network_no_snap(1), Width::Byte, protocol, NLPID))
            }
            _ => {
                let is_iso = self.link_protocol(sap::ISO)?;
                is_iso.and(equal(self.at_network_no_snap(0), Width::Byte, protocol, NLPID))
            }
        })
    }

    fn isis(&mut self, kind: u32) -> Result<Predicate> {
        check_max("IS-IS PDU type", kind, isis::MAX)?;
        let is_isis = self.iso(nlpid::ISIS)?;
        // Cisco's HDLC has a byte more before OSI.
        let offset = if matches!(self.link_type(), LinkType::C_HDLC | LinkType::HDLC) { 5 } else { 4 };
        Ok(is_isis.and(masked(
            self.at_network_no_snap(offset),
            Width::Byte,
            kind,
            isis::MAX,
            "IS-IS PDU type",
        )))
    }

    /// `ip proto 6` and its like.
    pub(super) fn proto(&mut self, number: u32, qualifiers: Qualifiers) -> Result<Predicate> {
        match qualifiers.protocol {
            None => self.ip_or_ip6(number),
            Some(Protocol::Link) => self.link_protocol(number),
            Some(Protocol::Ip) => self.ip_carries(number),
            Some(Protocol::Ip6) => self.ip6_carries(number),
            Some(Protocol::Iso) => self.iso(number),
            Some(Protocol::Isis) => self.isis(number),
            Some(other) => Err(bad_qualifier(other.name(), "proto")),
        }
    }

    /// `ip6 protochain 17` and its like.
    pub(super) fn protochain(&mut self, number: u32, qualifiers: Qualifiers) -> Result<Predicate> {
        match qualifiers.protocol {
            None => Ok(self.headers_to(number, 4)?.or(self.headers_to(number, 6)?)),
            Some(Protocol::Ip) => self.headers_to(number, 4),
            Some(Protocol::Ip6) => self.headers_to(number, 6),
            Some(other) => Err(bad_qualifier(other.name(), "protochain")),
        }
    }

    fn headers_to(&mut self, number: u32, version: u8) -> Result<Predicate> {
        check_max("protocol number", number, 0xff)?;
        if self.layers.payload.cell.is_some() {
            return Err(Error::whole("'protochain' not supported with variable length headers")
                .hint("extensions(...) looks behind the extension headers of IPv6 wherever they are"));
        }
        self.provable = false;
        self.arith_cells.0 = self.arith_cells.0.max(1);
        let link = self.link_protocol(if version == 4 { ethertype::IPV4 } else { ethertype::IPV6 })?;
        let start = self.at_network(0).offset;
        Ok(link.and(Predicate::Headers(HeaderChain { version, start, protocol: number as u8 })))
    }

    /// The number of a protocol's name after `proto` or `protochain`.
    pub(super) fn protocol_number(&self, name: &str, qualifiers: Qualifiers) -> Result<u32> {
        let number = match qualifiers.protocol {
            None | Some(Protocol::Ip | Protocol::Ip6) => self.options.resolver.protocol(name).map(u32::from),
            Some(Protocol::Link) => link_protocol_number(name),
            Some(Protocol::Iso) => iso_number(name),
            Some(_) => None,
        };
        let kind = qualifiers.kind.map_or("proto", IdKind::name);
        number.ok_or_else(|| match qualifiers.protocol {
            None => Error::whole(format!("unknown '{kind}' value '{name}'")),
            Some(protocol) => Error::whole(format!("unknown '{} {kind}' value '{name}'", protocol.name())),
        })
    }
}

/// Names after `ether proto`.
fn link_protocol_number(name: &str) -> Option<u32> {
    Some(match name {
        "aarp" => ethertype::APPLETALK_ARP,
        "arp" => ethertype::ARP,
        "atalk" => ethertype::APPLETALK,
        "decnet" => ethertype::DECNET,
        "ip" => ethertype::IPV4,
        "ip6" => ethertype::IPV6,
        "lat" => ethertype::LAT,
        "lldp" => ethertype::LLDP,
        "loopback" => ethertype::CONFIGURATION_TEST,
        "mopdl" => ethertype::MOP_DUMP,
        "moprc" => ethertype::MOP_CONSOLE,
        "rarp" => ethertype::REVERSE_ARP,
        "sca" => ethertype::SCA,
        "slow" => ethertype::SLOW,
        "iso" => sap::ISO,
        "stp" => sap::SPANNING_TREE,
        "ipx" => sap::IPX,
        "netbeui" => sap::NETBEUI,
        _ => return None,
    })
}

fn iso_number(name: &str) -> Option<u32> {
    Some(match name {
        "esis" => nlpid::ESIS,
        "isis" => nlpid::ISIS,
        "clnp" => nlpid::CLNP,
        _ => return None,
    })
}
