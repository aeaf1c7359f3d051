//! Application protocols, tunnels and protocols other than IP, by port, IP protocol number, EtherType and LLC.
//!
//! ```text
//! TCP port      22 23 25 21 53 80 88 ...   -> what its payload says
//! UDP port      53 67 123 161 ...          -> likewise
//! IP protocol   47 132 ...                 -> GRE, SCTP
//! EtherType     0x88cc 0x8809 ...          -> LLDP, slow protocols
//! ```
//!
//! Each table function says whether it knew the protocol (and printed it); `Ok(false)` means that nothing was printed.

mod babel;
mod bfd;
mod bgp;
mod configuration_test;
pub(crate) mod dhcp;
mod dhcp6;
pub(crate) mod dns;
mod eap;
mod eigrp;
mod enterprises;
mod hsrp;
pub(crate) mod isakmp;
mod kerberos;
mod l2tp;
mod ldp;
mod lisp;
mod lsp_ping;
pub(crate) mod nfs;
pub(crate) mod ntp;
mod olsr;
mod openflow;
mod ospf;
pub(crate) mod pim;
mod ptp;
mod radius;
mod redis;
mod rip;
mod ripng;
mod rpki;
pub(crate) mod sctp;
pub(crate) mod service;
mod sflow;
mod snmp;
mod ssh;
mod syslog;
mod telnet;
mod text_protocol;
mod tftp;
pub(crate) mod tls;
mod vrrp;

use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::link::ethertype as kind;
use crate::net::{Ip, protocol as numbers};
use crate::text::Text;
use crate::tunnel::{geneve, gre, vxlan};
use dns::Carrier;
use service::{TcpService, UdpService};

pub(crate) use crate::llc::print as llc;
pub(crate) use snmp::print as snmp;

/// The payload of a TCP segment, after the TCP header's text. `Ok(false)` leaves it to the caller to end the line.
pub(crate) fn tcp(
    cx: &mut Context<'_>,
    span: Span<'_>,
    source_port: u16,
    destination_port: u16,
    ip: &Ip,
) -> Result<bool, Cut> {
    match TcpService::of(source_port, destination_port) {
        Some(TcpService::Telnet) => telnet::print(cx, span)?,
        Some(TcpService::Smtp) => print_text(cx, span, &text_protocol::SMTP)?,
        Some(TcpService::Whois) => print_text(cx, span, &text_protocol::WHOIS)?,
        Some(TcpService::Bgp) => bgp::print(cx, span)?,
        Some(TcpService::Redis) => redis::print(cx, span),
        Some(TcpService::Ssh) => ssh::print(cx, span)?,
        Some(TcpService::OpenFlow) => openflow::print(cx, span)?,
        Some(TcpService::Ftp) => print_text(cx, span, &text_protocol::FTP)?,
        Some(TcpService::Http) => print_text(cx, span, &text_protocol::HTTP)?,
        Some(TcpService::Rtsp) => print_text(cx, span, &text_protocol::RTSP)?,
        Some(TcpService::Rpki) => rpki::print(cx, span)?,
        Some(TcpService::Ldp) => ldp::print(cx, span)?,
        Some(TcpService::Dns) => dns::print(cx, span, Carrier::Tcp)?,
        Some(TcpService::Nfs) => return nfs::tcp(cx, span, source_port, destination_port, ip),
        _ => return Ok(tls::print(cx, span)),
    }
    Ok(true)
}

fn print_text(cx: &mut Context<'_>, span: Span<'_>, protocol: &text_protocol::Protocol) -> Result<(), Cut> {
    cx.text(": ");
    text_protocol::print(cx, span, protocol)
}

/// The payload of a UDP datagram, after `addresses: ` (and the checksum's text). `Ok(false)` has the caller print
/// `UDP, length N`.
pub(crate) fn udp(
    cx: &mut Context<'_>,
    span: Span<'_>,
    source_port: u16,
    destination_port: u16,
    ip: &Ip,
) -> Result<bool, Cut> {
    let ports = (source_port, destination_port);
    match UdpService::of(source_port, destination_port) {
        // A payload that is neither a call nor reply is that of the other port.
        Some(UdpService::Nfs) => match nfs::udp(cx, span, source_port, destination_port, ip)? {
            true => Ok(true),
            false => udp_service(cx, span, UdpService::beside_nfs(source_port, destination_port), ports, ip),
        },
        service => udp_service(cx, span, service, ports, ip),
    }
}

fn udp_service(
    cx: &mut Context<'_>,
    span: Span<'_>,
    service: Option<UdpService>,
    (_, destination_port): (u16, u16),
    ip: &Ip,
) -> Result<bool, Cut> {
    match service {
        Some(UdpService::Dns) => dns::print(cx, span, Carrier::Udp)?,
        Some(UdpService::MulticastDns) => dns::print(cx, span, Carrier::Multicast)?,
        Some(UdpService::Tftp) => tftp::print(cx, span)?,
        Some(UdpService::Dhcp) => dhcp::print(cx, span)?,
        Some(UdpService::Isakmp) => isakmp::print(cx, span, ip)?,
        Some(UdpService::IpsecTraversal) => isakmp::print_traversal(cx, span, ip)?,
        Some(UdpService::Rip) => rip::print(cx, span)?,
        Some(UdpService::Snmp) => snmp::print(cx, span)?,
        Some(UdpService::Ntp) => ntp::print(cx, span)?,
        Some(UdpService::Kerberos) => kerberos::print(cx, span)?,
        Some(UdpService::L2tp) => l2tp::print(cx, span)?,
        Some(UdpService::RipNg) => ripng::print(cx, span)?,
        Some(UdpService::Dhcpv6) => dhcp6::print(cx, span)?,
        Some(UdpService::Babel) => babel::print(cx, span)?,
        Some(UdpService::Hsrp) => hsrp::print(cx, span)?,
        Some(UdpService::Radius) => radius::print(cx, span)?,
        Some(UdpService::Ldp) => ldp::print(cx, span)?,
        Some(UdpService::Olsr) => olsr::print(cx, span, ip.is_v4())?,
        Some(UdpService::LspPing) => lsp_ping::print(cx, span)?,
        Some(UdpService::Bfd) => bfd::print(cx, span, destination_port)?,
        Some(UdpService::Sflow) => sflow::print(cx, span)?,
        Some(UdpService::Sip) => text_protocol::print(cx, span, &text_protocol::SIP)?,
        Some(UdpService::Syslog) => syslog::print(cx, span)?,
        Some(UdpService::Vxlan) => vxlan::print(cx, span)?,
        Some(UdpService::Geneve) => geneve::print(cx, span)?,
        Some(UdpService::Lisp) => lisp::print(cx, span)?,
        Some(UdpService::VxlanGpe) => vxlan::print_gpe(cx, span)?,
        Some(UdpService::Ptp) => ptp::print(cx, span)?,
        None | Some(UdpService::Nfs | UdpService::Llmnr | UdpService::GtpU | UdpService::Quic) => {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The payload of an IP packet, for protocols other than TCP, UDP, ICMP, ICMPv6, IGMP, AH, ESP, IPComp and IP itself.
pub(crate) fn ip_protocol(cx: &mut Context<'_>, span: Span<'_>, protocol: u8, ip: &Ip) -> Result<bool, Cut> {
    match protocol {
        numbers::GRE => gre::print(cx, span)?,
        numbers::DCCP => datagram_congestion_control(cx, span, ip)?,
        numbers::EIGRP => eigrp::print(cx, span)?,
        numbers::OSPF if ip.is_v4() => ospf::print(cx, span)?,
        numbers::OSPF => ospf::version3::print(cx, span)?,
        numbers::PIM => pim::print(cx, span, ip)?,
        numbers::VRRP => vrrp::print(cx, span, ip)?,
        numbers::SCTP => sctp::print(cx, span, ip)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// DCCP (RFC 4340) by its ports, which are printed with the addresses before them.
fn datagram_congestion_control(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Result<(), Cut> {
    cx.protocol = "dccp";
    let (source, destination) = (span.u16(0)?, span.u16(2)?);
    cx.host(ip.source);
    put!(cx, ".{source} > ");
    cx.host(ip.destination);
    put!(cx, ".{destination}: DCCP, length {}", span.length);
    Ok(())
}

/// Prints the payload of an EtherType, except IPv4, IPv6, ARP, VLAN tags, MPLS and PPPoE.
pub(crate) fn ethertype(cx: &mut Context<'_>, span: Span<'_>, ethertype: u16) -> Result<bool, Cut> {
    match ethertype {
        kind::LLDP => crate::llc::lldp::print(cx, span)?,
        kind::EAPOL => eap::print_lan(cx, span)?,
        kind::CONFIGURATION_TEST => configuration_test::print(cx, span)?,
        kind::PTP => ptp::print(cx, span)?,
        kind::SLOW => crate::llc::slow::print(cx, span)?,
        // Not assigned, but used by Cisco; a byte of padding goes before the protocol's.
        kind::CISCO_OSI if span.length == 0 || span.captured() == 0 => {
            cx.protocol = "isoclns";
            cx.cut();
        }
        kind::CISCO_OSI => crate::llc::iso::print(cx, span.skip(1))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Megabits per second of a field in bytes per second (a float of 32 bits), with C's text for NaN and infinity.
pub(crate) fn megabits(cx: &mut Context<'_>, bits: u32) {
    let rate = f32::from_bits(bits) * 8.0 / 1_000_000.0;
    if rate.is_nan() {
        put!(cx, "{}nan Mbps", if bits >> 31 == 1 { "-" } else { "" });
    } else {
        put!(cx, "{rate:.3} Mbps");
    }
}

/// A number of seconds as `1d2h3m4s`.
pub(crate) fn relative_time(cx: &mut Context<'_>, mut seconds: u32) {
    if seconds == 0 {
        return cx.text("0s");
    }
    for (unit, name) in [(31_536_000, "y"), (604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")]
    {
        if seconds >= unit {
            put!(cx, "{}{name}", seconds / unit);
            seconds %= unit;
        }
    }
}
