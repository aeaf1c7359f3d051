//! Interfaces: the places where packets are captured.

use crate::LinkType;

/// An index into a source's table of interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceId(pub u32);

/// The unit in which a file counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// 10^-n seconds: 6 is microseconds, 9 nanoseconds. 0 to 127.
    Decimal(u8),
    /// 2^-n seconds, as pcapng allows. 0 to 127.
    Binary(u8),
}

impl Resolution {
    /// Microseconds: classic pcap.
    pub const MICRO: Resolution = Resolution::Decimal(6);
    /// Nanoseconds: the resolution of written files by default.
    pub const NANO: Resolution = Resolution::Decimal(9);
}

/// An interface of a live capture, or one that a file describes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Name of the interface, such as `eth0`; empty if a file has none.
    pub name: String,
    /// A description for people; empty where there is none.
    pub description: String,
    /// Link type of the packets.
    pub link_type: LinkType,
    /// The most bytes kept of a packet; 0 for no limit.
    pub snap_len: u32,
    /// The unit in which its times were recorded.
    pub resolution: Resolution,
    /// The kernel's interface index; 0 where there is none.
    pub if_index: u32,
    /// The kernel's hardware type (`ARPHRD_*` of linux/if_arp.h), of live interfaces.
    pub hardware_type: Option<u16>,
    /// Bits per second, if known.
    pub speed: Option<u64>,
    /// The filter in force while it was captured, as text; empty if none.
    pub filter: String,
    /// Bytes of frame check sequence at the end of each packet, if the file says.
    pub fcs_len: Option<u8>,
    /// pcapng options that have no field above, kept for output: code and value in host byte order as read.
    pub options: Vec<(u16, Vec<u8>)>,
}

impl Interface {
    /// An interface of this link type about which nothing else is known.
    pub fn new(name: &str, link_type: LinkType) -> Interface {
        Interface {
            name: name.to_owned(),
            description: String::new(),
            link_type,
            snap_len: 0,
            resolution: Resolution::NANO,
            if_index: 0,
            hardware_type: None,
            speed: None,
            filter: String::new(),
            fcs_len: None,
            options: Vec::new(),
        }
    }

    /// A label for people: the name, or the description of an interface without a name.
    pub fn label(&self) -> &str {
        if self.name.is_empty() { &self.description } else { &self.name }
    }
}
