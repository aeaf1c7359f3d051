//! Application protocols, tunnels and protocols beside IP, by port, IP protocol number, EtherType and LLC.
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
use crate::net::Ip;
use crate::text::Text;
use crate::tunnel::{geneve, gre, vxlan};
use dns::Carrier;

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
    // The port that names the service: tcpdump asks for each in turn on either side.
    let is = |port| source_port == port || destination_port == port;
    if is(23) {
        telnet::print(cx, span)?;
    } else if is(25) {
        cx.text(": ");
        text_protocol::print(cx, span, &text_protocol::SMTP)?;
    } else if is(43) {
        cx.text(": ");
        text_protocol::print(cx, span, &text_protocol::WHOIS)?;
    } else if is(179) {
        bgp::print(cx, span)?;
    } else if is(6379) {
        redis::print(cx, span);
    } else if is(22) {
        ssh::print(cx, span)?;
    } else if is(openflow::PORT) || is(openflow::OLD_PORT) {
        openflow::print(cx, span)?;
    } else if is(21) {
        cx.text(": ");
        text_protocol::print(cx, span, &text_protocol::FTP)?;
    } else if is(80) || is(8080) {
        cx.text(": ");
        text_protocol::print(cx, span, &text_protocol::HTTP)?;
    } else if is(554) || is(8554) {
        cx.text(": ");
        text_protocol::print(cx, span, &text_protocol::RTSP)?;
    } else if is(323) {
        rpki::print(cx, span)?;
    } else if is(646) {
        ldp::print(cx, span)?;
    } else if is(53) {
        dns::print(cx, span, Carrier::Tcp)?;
    } else if is(nfs::PORT) {
        return nfs::tcp(cx, span, source_port, destination_port, ip);
    } else {
        return Ok(tls::print(cx, span));
    }
    Ok(true)
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
    let is = |port| source_port == port || destination_port == port;
    if is(nfs::PORT) && nfs::udp(cx, span, source_port, destination_port, ip)? {
        return Ok(true);
    }
    if is(53) {
        dns::print(cx, span, Carrier::Udp)?;
    } else if is(5353) {
        dns::print(cx, span, Carrier::Multicast)?;
    } else if is(69) {
        tftp::print(cx, span)?;
    } else if is(68) || is(67) {
        dhcp::print(cx, span)?;
    } else if is(500) {
        isakmp::print(cx, span, ip)?;
    } else if is(4500) {
        isakmp::print_traversal(cx, span, ip)?;
    } else if is(520) {
        rip::print(cx, span)?;
    } else if is(161) || is(162) {
        snmp::print(cx, span)?;
    } else if is(123) {
        ntp::print(cx, span)?;
    } else if is(88) || is(750) {
        kerberos::print(cx, span)?;
    } else if is(1701) {
        l2tp::print(cx, span)?;
    } else if is(521) {
        ripng::print(cx, span)?;
    } else if is(546) || is(547) {
        dhcp6::print(cx, span)?;
    } else if is(6696) || is(6697) {
        babel::print(cx, span)?;
    } else if destination_port == 1985 {
        hsrp::print(cx, span)?;
    } else if is(1645) || is(1812) || is(1646) || is(1813) || is(1700) || is(3799) {
        radius::print(cx, span)?;
    } else if is(646) {
        ldp::print(cx, span)?;
    } else if is(698) {
        olsr::print(cx, span, ip.is_v4())?;
    } else if is(3503) {
        lsp_ping::print(cx, span)?;
    } else if matches!(destination_port, bfd::CONTROL | bfd::ECHO | bfd::MULTIHOP | bfd::LAG) {
        bfd::print(cx, span, destination_port)?;
    } else if is(6343) {
        sflow::print(cx, span)?;
    } else if is(5060) {
        text_protocol::print(cx, span, &text_protocol::SIP)?;
    } else if is(514) {
        syslog::print(cx, span)?;
    } else if is(4789) {
        vxlan::print(cx, span)?;
    } else if is(6081) {
        geneve::print(cx, span)?;
    } else if is(4342) {
        lisp::print(cx, span)?;
    } else if is(4790) {
        vxlan::print_gpe(cx, span)?;
    } else if is(ptp::EVENT) || is(ptp::GENERAL) {
        ptp::print(cx, span)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// The payload of an IP packet, for protocols other than TCP, UDP, ICMP, ICMPv6, IGMP, AH, ESP, IPComp and IP itself.
pub(crate) fn ip_protocol(cx: &mut Context<'_>, span: Span<'_>, protocol: u8, ip: &Ip) -> Result<bool, Cut> {
    match protocol {
        47 => gre::print(cx, span)?,
        33 => datagram_congestion_control(cx, span, ip)?,
        88 => eigrp::print(cx, span)?,
        89 if ip.is_v4() => ospf::print(cx, span)?,
        89 => ospf::version3::print(cx, span)?,
        103 => pim::print(cx, span, ip)?,
        112 => vrrp::print(cx, span, ip)?,
        132 => sctp::print(cx, span, ip)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// DCCP (RFC 4340) by its ports, which stand with the addresses that go before them.
fn datagram_congestion_control(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Result<(), Cut> {
    cx.protocol = "dccp";
    let (source, destination) = (span.u16(0)?, span.u16(2)?);
    cx.host(ip.source);
    put!(cx, ".{source} > ");
    cx.host(ip.destination);
    put!(cx, ".{destination}: DCCP, length {}", span.length);
    Ok(())
}

/// What follows an EtherType, for those other than IPv4, IPv6, ARP, VLAN tags, MPLS and PPPoE.
pub(crate) fn ethertype(cx: &mut Context<'_>, span: Span<'_>, ethertype: u16) -> Result<bool, Cut> {
    match ethertype {
        0x88cc => crate::llc::lldp::print(cx, span)?,
        0x888e => eap::print_lan(cx, span)?,
        0x9000 => configuration_test::print(cx, span)?,
        0x88f7 => ptp::print(cx, span)?,
        0x8809 => crate::llc::slow::print(cx, span)?,
        // Not assigned, but used by Cisco; a byte of padding goes before the protocol's.
        0xfefe if span.length == 0 || span.captured() == 0 => {
            cx.protocol = "isoclns";
            cx.cut();
        }
        0xfefe => crate::llc::iso::print(cx, span.skip(1))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Megabits in a second of a field of bytes in a second (a float of 32 bits), as C prints what is no number.
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
