//! Frames of every protocol we print, with lengths and checksums right.
//!
//! Frames are built from the inside out: each builder takes its payload and returns bytes.
//!
//! ```text
//! application bytes --Udp/Tcp/Sctp--> segment --IpPair--> packet --Ethernet--> frame --vlan, mpls, vxlan, ...--> frame
//! ```
//!
//! Nothing here is random and nothing reads a clock: the caller brings every number.

pub mod application;
mod checksum;
mod internet;
mod link;
mod transport;
mod tunnel;

pub use checksum::{crc32c, internet_checksum};
pub use internet::{
    IpPair, Ipv4, Ipv6, destination_options, fragment_header, fragments_v4, hop_by_hop, icmp, icmpv6, igmp,
    routing_header,
};
pub use link::{
    BROADCAST, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Mac, arp, llc, mpls, pppoe_session,
    snap, spanning_tree, vlan,
};
pub use transport::{Tcp, TcpOption, Udp, flags, sctp};
pub use tunnel::{
    ERSPAN_I_II, ERSPAN_III, Gre, TRANSPARENT_BRIDGING, erspan_ii, erspan_iii, geneve, gre, gtp_u, vxlan,
};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host with an address of every kind, all derived from one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Locally administered: `02:00:00:00:hh:ll`.
    pub mac: Mac,
    /// `10.0.hh.ll`.
    pub v4: Ipv4Addr,
    /// `fd00::hhll`.
    pub v6: Ipv6Addr,
}

impl Host {
    /// The host of this number.
    pub fn number(number: u16) -> Host {
        let [high, low] = number.to_be_bytes();
        Host {
            mac: [2, 0, 0, 0, high, low],
            v4: Ipv4Addr::new(10, 0, high, low),
            v6: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number),
        }
    }

    /// Address of the given version.
    pub fn ip(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => self.v4.into(),
            IpVersion::V6 => self.v6.into(),
        }
    }
}

/// A version of the internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}
