//! The network layer: ARP, IPv4, IPv6 and their companions.

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::link::{self, ethertype};
use crate::text::Text;
use crate::{app, transport};

mod arp;
mod icmp;
mod icmp6;
mod igmp;
pub(crate) mod ipsec;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod protocol;

/// The IP header that encloses a transport header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip {
    pub(crate) source: IpAddr,
    /// As the header has it.
    pub(crate) destination: IpAddr,
    /// The last address of the source route, which checksums cover.
    pub(crate) final_destination: IpAddr,
    /// Time to live, or hop limit.
    pub(crate) ttl: u8,
    /// The payload is the first of several fragments.
    pub(crate) fragmented: bool,
    /// The protocol number in the header itself: not that of the payload if extension headers are between.
    pub(crate) protocol: u8,
}

impl Ip {
    pub(crate) fn is_v4(&self) -> bool {
        self.source.is_ipv4()
    }
}

/// Prints an IP packet of either version.
pub(crate) fn ip(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ipn";
    if span.length == 0 {
        cx.text("truncated-ip 0");
        return Ok(());
    }
    match span.u8(0)? >> 4 {
        4 => ipv4::print(cx, span),
        6 => ipv6::print(cx, span),
        version => {
            put!(cx, "unknown ip {version}");
            Ok(())
        }
    }
}

/// Prints the payload of a protocol number of IP.
pub(crate) fn ip_protocol(cx: &mut Context<'_>, span: Span<'_>, number: u8, ip: &Ip) -> Printed {
    match number {
        protocol::TCP => transport::tcp::print(cx, span, ip),
        protocol::UDP => transport::udp::print(cx, span, ip),
        protocol::ICMP if ip.is_v4() => icmp::print(cx, span, ip),
        protocol::ICMPV6 if !ip.is_v4() => icmp6::print(cx, span, ip),
        protocol::IGMP if ip.is_v4() => igmp::print(cx, span),
        protocol::ICMP | protocol::IGMP => wrong_version(cx, number, 4),
        protocol::ICMPV6 => wrong_version(cx, number, 6),
        protocol::IPV4 => ipv4::print(cx, span),
        protocol::IPV6 => ipv6::print(cx, span),
        protocol::AH => ipsec::authentication(cx, span, ip),
        protocol::ESP => ipsec::encapsulation(cx, span),
        protocol::IPCOMP => ipsec::compression(cx, span),
        protocol::ETHERNET if !ip.is_v4() => link::ethernet::print(cx, span),
        protocol::ETHERNET => wrong_version(cx, number, 6),
        protocol::NONE => {
            cx.text("no next header");
            Ok(())
        }
        protocol::ND => {
            put!(cx, " nd {}", span.length);
            Ok(())
        }
        _ => other_protocol(cx, span, number, ip),
    }
}

fn wrong_version(cx: &mut Context<'_>, number: u8, version: u8) -> Printed {
    put!(cx, "[{} requires IPv{version}]", protocol::name(number).unwrap_or("unknown"));
    cx.invalid();
    Ok(())
}

fn other_protocol(cx: &mut Context<'_>, span: Span<'_>, number: u8, ip: &Ip) -> Printed {
    if !app::ip_protocol(cx, span, number, ip)? {
        protocol::print_unknown(cx, number);
        cx.text(" ");
        cx.dec(span.length);
    }
    Ok(())
}

/// Prints the payload of an EtherType. `false`, and nothing printed, if it is not known.
pub(crate) fn ethertype(cx: &mut Context<'_>, span: Span<'_>, ethertype: u16) -> Result<bool, Cut> {
    match ethertype {
        ethertype::IPV4 => ipv4::print(cx, span)?,
        ethertype::IPV6 => ipv6::print(cx, span)?,
        ethertype::ARP | ethertype::REVERSE_ARP => arp::print(cx, span)?,
        ethertype::MPLS | ethertype::MPLS_MULTICAST => link::mpls::print(cx, span)?,
        ethertype::PPPOE_DISCOVERY
        | ethertype::PPPOE_SESSION
        | ethertype::PPPOE_DISCOVERY_2
        | ethertype::PPPOE_SESSION_2 => link::pppoe::print(cx, span)?,
        ethertype::PPP if span.length == 0 => {}
        ethertype::PPP => {
            cx.text(": ");
            link::ppp::print(cx, span)?;
        }
        _ => return app::ethertype(cx, span, ethertype),
    }
    Ok(true)
}
