//! The network layer: ARP, IPv4, IPv6 and what belongs to them.

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::context::Context;

/// The IP header that encloses a transport header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip<'p> {
    /// Its bytes, all captured: 20 to 60 for IPv4 with its options, 40 for IPv6.
    pub(crate) header: &'p [u8],
    pub(crate) source: IpAddr,
    /// As the header has it.
    pub(crate) destination: IpAddr,
    /// Where source routing leads in the end; checksums cover this one.
    pub(crate) final_destination: IpAddr,
    /// Time to live, or hop limit.
    pub(crate) ttl: u8,
    /// The payload is the first of several fragments.
    pub(crate) fragmented: bool,
}

/// Prints an IP packet of either version.
pub(crate) fn ip(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.unknown(span);
    Ok(())
}

/// Prints what a protocol number of IP says that it is.
pub(crate) fn ip_protocol(cx: &mut Context<'_>, span: Span<'_>, protocol: u8, ip: &Ip<'_>) -> Printed {
    crate::app::ip_protocol(cx, span, protocol, ip)?;
    Ok(())
}

/// Prints what an EtherType says that it is. `false`, and nothing printed, if it is not known.
pub(crate) fn ethertype(cx: &mut Context<'_>, span: Span<'_>, ethertype: u16) -> Result<bool, Cut> {
    crate::app::ethertype(cx, span, ethertype)
}
