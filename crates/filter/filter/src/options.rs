//! The packets and the user that a filter is compiled for.

use std::sync::Arc;

use tapline_packet::LinkType;

use crate::names::{Resolver, SystemNames};

/// The origin of the packets. It decides which metadata a filter can test and how some link-layer headers are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HandleKind {
    /// A file, from a machine of either byte order.
    #[default]
    Savefile,
    /// An interface of this machine: the kernel's metadata can be asked (VLAN tag, direction, interface index).
    Live,
    /// An interface of this machine, in front of its stack: all packets are received, and VLAN tags are in their bytes.
    Front,
    /// The kernel of this machine, which dropped the packets: it knows their interface, and not whether they were
    /// received or sent.
    Dropped,
    /// Neither: a link type alone.
    Dead,
}

/// The packets and the user that a filter is compiled for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Link type of the packets. Default: Ethernet.
    pub link_type: LinkType,
    /// Bytes of an accepted packet to keep, which the program returns. 1 or more; default 262144.
    pub snap_len: u32,
    /// The netmask of the network, in the host's byte order, for `ip broadcast`; `None` if it is unknown.
    pub netmask: Option<u32>,
    /// The origin of the packets. Default: a file.
    pub handle: HandleKind,
    /// Whether to simplify the program, and to refuse a filter that rejects every packet. Default: yes.
    pub optimise: bool,
    /// Whether the whole text is read as in `scoped(...)`: the shift of `vlan` and its like ends with its parenthesis
    /// and at `or`, and a VLAN tag in metadata counts as one in the bytes. Default: no, as libpcap.
    pub scoped: bool,
    /// Whether the whole text is read as in `extensions(...)`: the payload of IPv6 is looked for behind its extension
    /// headers, and `tcp[...]` and its like look at IPv6 too. Default: no, as libpcap.
    pub ipv6_extensions: bool,
    /// Whether the whole text is read as in `anyvlan(...)`: behind no VLAN tag, one or two. Default: no, as libpcap.
    pub any_vlan: bool,
    /// The source of names. Default: this system.
    pub resolver: Arc<dyn Resolver + Send + Sync>,
}

impl Options {
    /// For files of this link type; the rest as by default.
    pub fn new(link_type: LinkType) -> Options {
        Options { link_type, ..Options::default() }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            link_type: LinkType::ETHERNET,
            snap_len: 262_144,
            netmask: None,
            handle: HandleKind::default(),
            optimise: true,
            scoped: false,
            ipv6_extensions: false,
            any_vlan: false,
            resolver: Arc::new(SystemNames::default()),
        }
    }
}
