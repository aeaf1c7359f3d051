//! The offset of each header of a packet, and the fields that distinguish flows.
//!
//! ```text
//! | link header | VLAN tags, MPLS labels | IP | IPv6 extensions | transport | payload | link padding |
//!                                        l3                     l4          payload   ip_end
//!
//! link.rs       Ethernet, 802.2, cooked, raw, loopback, PPP, Cisco HDLC     wlan.rs    802.11 data frames
//! label.rs      MPLS                                                        ip.rs      IPv4, IPv6 with extensions
//! transport.rs  ports, where the payload is                                 tunnel.rs  the packet inside
//! flow.rs       the five-tuple                                              hash.rs    a number for each flow
//! ```
//!
//! [`Headers::parse`] goes over a packet once and allocates nothing. It returns a small value of offsets; the methods
//! read addresses and ports from the bytes. So most methods take the captured bytes again: the same that were parsed.
//!
//! Packets are hostile. Each read is checked against the captured bytes, each stack of headers has a bound, and
//! nothing panics on any bytes. These hold for every packet: `l3 <= l4 <= payload <= ip_end <=` captured length, of
//! those that there are. A header that is cut short gives `None` for itself and what is behind it, and more captured
//! bytes never change a result except from `None` to a value, and `ip_end`.
//!
//! If the filter language looks at the same header, it finds the same: `tcp port 80` is true of a packet without tags
//! exactly when its [`ports`](Headers::ports) say so (`extensions(tcp port 80)` behind IPv6 extension headers). There
//! are three differences, all in malformed or rare packets. Filters believe the EtherType, and look at neither the
//! version nor the lengths in an IP header; here a header of another version, or shorter than 20 bytes, is not IP,
//! and no header is found behind the end that IP gives itself. And filters do not look for IP in 802.3 frames with
//! SNAP.

mod flow;
mod fragments;
mod hash;
mod ip;
mod label;
mod link;
mod read;
mod transport;
mod tunnel;
mod wlan;

#[cfg(test)]
mod tests;

pub use flow::FiveTuple;
pub use fragments::FragmentFlows;
pub use hash::plain_host_hash;
pub use ip::{Fragment, IpVersion};
pub use label::Mpls;
pub use tunnel::{InnerPacket, Tunnel};

use crate::{LinkType, Packet, VlanTag};

/// VLAN tags that are kept; more are counted, up to what [`link`] walks over.
const VLANS_KEPT: usize = 4;

/// The offset of each header of a packet, and the fields that distinguish flows. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    l3: PackedOffset,
    l4: PackedOffset,
    payload: PackedOffset,
    end: u32,
    vlans: [VlanTag; VLANS_KEPT],
    vlan_count: u8,
    ip: Option<IpVersion>,
    protocol: Option<u8>,
    ether_type: Option<u16>,
    link_type: LinkType,
    fragment: Option<Fragment>,
    mpls: Option<Mpls>,
}

/// The most tunnels that [`Headers::innermost`] looks into.
const TUNNELS_MAX: usize = 4;

impl Headers {
    /// Finds the headers of a packet of a source's link type. A VLAN tag in its metadata counts as the outermost.
    #[inline]
    pub fn parse(link_type: LinkType, packet: Packet<'_>) -> Headers {
        Headers::parse_tagged(link_type, packet.data, packet.meta.vlan)
    }

    /// Finds the headers in bytes without metadata, such as the packet inside a tunnel.
    #[inline]
    pub fn parse_data(link_type: LinkType, data: &[u8]) -> Headers {
        Headers::parse_tagged(link_type, data, None)
    }

    /// Most packets are [plain](link::Plain). For these nothing here takes the address of the value that is made, so
    /// that it stays in registers until it is whole: built in memory and then copied, it took more than twice as
    /// long.
    #[inline]
    fn parse_tagged(link_type: LinkType, data: &[u8], tag: Option<VlanTag>) -> Headers {
        let data = addressable(data);
        if let Some(plain) = link::plain(link_type, data) {
            let mut headers = Headers::none(link_type, data);
            if let Some(tag) = tag {
                headers.push_vlan(tag);
            }
            headers.walk_plain(data, plain);
            return headers;
        }
        Headers::parse_any(link_type, data, tag)
    }

    #[inline(never)]
    fn parse_any(link_type: LinkType, data: &[u8], tag: Option<VlanTag>) -> Headers {
        let mut headers = Headers::none(link_type, data);
        if let Some(tag) = tag {
            headers.push_vlan(tag);
        }
        headers.walk_link(data);
        headers
    }

    /// Finds the headers from an IP header on, which begins at `offset` and whose version decides. Offsets count from
    /// the start of `data`; the link type is [`LinkType::RAW`].
    pub fn parse_ip(data: &[u8], offset: usize) -> Headers {
        let data = addressable(data);
        let mut headers = Headers::none(LinkType::RAW, data);
        if let Some((kind, at)) = link::raw(data, offset) {
            headers.walk_network(data, kind, at);
        }
        headers
    }

    #[inline]
    fn none(link_type: LinkType, data: &[u8]) -> Headers {
        Headers {
            l3: PackedOffset::NONE,
            l4: PackedOffset::NONE,
            payload: PackedOffset::NONE,
            end: data.len() as u32,
            vlans: [VlanTag { tpid: 0, tci: 0 }; VLANS_KEPT],
            vlan_count: 0,
            ip: None,
            protocol: None,
            ether_type: None,
            link_type,
            fragment: None,
            mpls: None,
        }
    }

    /// Link type by which the packet was parsed.
    #[inline]
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The VLAN tags, outermost first, at most four; that of the metadata is among them.
    /// [`vlan_count`](Self::vlan_count) says how many there are.
    #[inline]
    pub fn vlans(&self) -> &[VlanTag] {
        &self.vlans[..VLANS_KEPT.min(self.vlan_count.into())]
    }

    /// Number of captured VLAN tags, up to 16 link headers.
    #[inline]
    pub fn vlan_count(&self) -> usize {
        self.vlan_count.into()
    }

    /// The MPLS label stack, if there is one and all of it was captured.
    #[inline]
    pub fn mpls(&self) -> Option<Mpls> {
        self.mpls
    }

    /// The EtherType of the header at [`l3`](Self::l3), whatever the link type: 0x0800 for IPv4, also in PPP and
    /// behind labels. Of a pseudo-wire in MPLS it is that of MPLS. `None` for 802.2 without SNAP, and if the link
    /// type has no such types.
    #[inline]
    pub fn ether_type(&self) -> Option<u16> {
        self.ether_type
    }

    /// The start of the network header (IP, ARP, whatever it is): behind link header, tags and labels.
    #[inline]
    pub fn l3(&self) -> Option<usize> {
        self.l3.get()
    }

    /// The version of IP, if its fixed header (20 or 40 bytes) is there and is one of that version.
    #[inline]
    pub fn ip(&self) -> Option<IpVersion> {
        self.ip
    }

    /// The payload protocol of IP: IPv4's protocol, or the next header of the last IPv6 extension. In a later
    /// fragment it is the protocol in its fragment header; behind eight extensions, that in the eighth.
    #[inline]
    pub fn protocol(&self) -> Option<u8> {
        self.protocol
    }

    /// Headers and bytes of the innermost packet, behind at most four tunnels.
    pub fn innermost<'d>(&self, data: &'d [u8]) -> (Headers, &'d [u8]) {
        let (mut headers, mut data) = (*self, data);
        for _ in 0..TUNNELS_MAX {
            let Some(inner) = headers.inner(data) else { break };
            (headers, data) = (inner.headers(data), inner.data(data));
        }
        (headers, data)
    }

    /// The position of this fragment in its packet; `None` if the packet is whole. An IPv6 fragment header that cuts
    /// nothing (RFC 6946) does not count.
    #[inline]
    pub fn fragment(&self) -> Option<Fragment> {
        self.fragment
    }

    /// The start of the header behind IP; `None` in later fragments, which have none.
    #[inline]
    pub fn l4(&self) -> Option<usize> {
        self.l4.get()
    }

    /// The payload behind the transport header of TCP (by its data offset), UDP (8 bytes), SCTP (12), ICMP and ICMPv6
    /// (8). In a later
    /// fragment, its data. `None` for other protocols, whose headers we do not know.
    #[inline]
    pub fn payload(&self) -> Option<usize> {
        self.payload.get()
    }

    /// The end of the IP packet in the captured bytes, by its own length: the bytes behind it are padding of the
    /// link. The result is the captured length if there is no IP or it gives no length (segmentation offload,
    /// jumbograms).
    #[inline]
    pub fn ip_end(&self) -> usize {
        self.end as usize
    }

    #[inline]
    fn push_vlan(&mut self, tag: VlanTag) {
        // An index that varies would force the whole value into memory.
        match self.vlan_count {
            0 => self.vlans[0] = tag,
            1 => self.vlans[1] = tag,
            2 => self.vlans[2] = tag,
            3 => self.vlans[3] = tag,
            _ => {}
        }
        self.vlan_count += 1;
    }
}

/// An offset, or none, in half the size of `Option<usize>`, because there are three in each [`Headers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedOffset(u32);

impl PackedOffset {
    const NONE: PackedOffset = PackedOffset(u32::MAX);

    /// `offset` is within [`addressable`] bytes.
    #[inline]
    fn at(offset: usize) -> PackedOffset {
        PackedOffset(offset as u32)
    }

    #[inline]
    fn get(self) -> Option<usize> {
        (self != PackedOffset::NONE).then_some(self.0 as usize)
    }
}

/// As much of the bytes as a [`PackedOffset`] can point into: all, for any packet that a link type allows.
#[inline]
fn addressable(data: &[u8]) -> &[u8] {
    const MAX: usize = u32::MAX as usize - 1;
    data.get(..MAX).unwrap_or(data)
}
