//! Link types: what the first header of a packet is.
//!
//! Files carry the numbers of the LINKTYPE registry (<https://www.tcpdump.org/linktypes.html>). Programs that use
//! libpcap know them as DLT values, which differ in a few old cases; [`LinkType::dlt`] and [`LinkType::from_dlt`]
//! translate.

/// A number of the LINKTYPE registry. Every 16-bit value is allowed: what we do not know is captured and saved alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: a 4-byte address family in the writer's byte order.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// Raw IP: IPv4 or IPv6, by the version nibble.
    pub const RAW: LinkType = LinkType(101);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);
}
