//! Application protocols, tunnels and protocols beside IP, by port, IP protocol number, EtherType and LLC.
//!
//! Each table function says whether it knew the protocol (and printed it); `Ok(false)` means that nothing was printed.

use crate::bytes::{Cut, Span};
use crate::context::Context;
use crate::net::Ip;

/// The payload of a TCP segment, after the TCP header's text. `Ok(false)` leaves it to the caller to end the line.
pub(crate) fn tcp(
    _cx: &mut Context<'_>,
    _span: Span<'_>,
    _source_port: u16,
    _destination_port: u16,
    _ip: &Ip<'_>,
) -> Result<bool, Cut> {
    Ok(false)
}

/// The payload of a UDP datagram, after `addresses: ` (and the checksum's text). `Ok(false)` has the caller print
/// `UDP, length N`.
pub(crate) fn udp(
    _cx: &mut Context<'_>,
    _span: Span<'_>,
    _source_port: u16,
    _destination_port: u16,
    _ip: &Ip<'_>,
) -> Result<bool, Cut> {
    Ok(false)
}

/// The payload of an IP packet, for protocols other than TCP, UDP, ICMP, ICMPv6, IGMP, AH, ESP, IPComp and IP itself.
pub(crate) fn ip_protocol(
    _cx: &mut Context<'_>,
    _span: Span<'_>,
    _protocol: u8,
    _ip: &Ip<'_>,
) -> Result<bool, Cut> {
    Ok(false)
}

/// What follows an EtherType, for those other than IPv4, IPv6, ARP, VLAN tags, MPLS and PPPoE.
pub(crate) fn ethertype(_cx: &mut Context<'_>, _span: Span<'_>, _ethertype: u16) -> Result<bool, Cut> {
    Ok(false)
}

/// What became of an LLC header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Llc {
    /// Bytes of LLC and SNAP headers: part of the link-layer header that `-x` leaves out.
    pub(crate) header_len: usize,
    /// `false` has the caller show the bytes of the LLC frame.
    pub(crate) known: bool,
}

/// An IEEE 802.2 LLC header and what follows; `source` and `destination` are the link-layer addresses, if there are any.
/// The span ends where the length field of IEEE 802.3 says.
pub(crate) fn llc(
    _cx: &mut Context<'_>,
    _span: Span<'_>,
    _source: Option<[u8; 6]>,
    _destination: Option<[u8; 6]>,
) -> Result<Llc, Cut> {
    Ok(Llc { header_len: 0, known: false })
}
