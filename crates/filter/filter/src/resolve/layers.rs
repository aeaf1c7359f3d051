//! Offsets of the headers.
//!
//! ```text
//! link header | ... link type ... | payload: LLC/SNAP or the network header | transport header
//! ^ link_header  ^ link_type        ^ payload      ^ + network, or + network_no_snap
//! ```
//!
//! Each place is a constant, plus the value of a scratch cell where a header before it has no fixed length. Offsets
//! wrap at 32 bits: a link type without a payload has 0xffffffff there, and we read the same bytes as libpcap at such
//! a place. The constants are those of libpcap's `init_linktype`, and of the link types' own descriptions
//! (<https://www.tcpdump.org/linktypes.html>).

use tapline_packet::LinkType;

use super::{Result, Scope};
use crate::predicate::{Base, FieldOffset, FieldTest, Predicate, ScratchCell, TestedField};
use tapline_bpf::cfg::{JumpTest as Compare, Width};
use tapline_syntax::Error;

/// libpcap's value for an offset that a link type does not have.
pub(super) const NONE: u32 = u32::MAX;

/// The length of an Ethernet header.
pub(super) const ETHERNET_LEN: u32 = 14;

/// In the cell for the type of a tunnel's payload: it has no Ethernet header.
pub(super) const NO_ETHERNET: u32 = 0x1_0000;

/// A place that may depend on the lengths of headers before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offset {
    /// Holds the variable part.
    pub(super) cell: Option<ScratchCell>,
    /// The constant part.
    pub(super) constant: u32,
}

impl Offset {
    pub(super) const fn fixed(constant: u32) -> Offset {
        Offset { cell: None, constant }
    }

    pub(super) fn plus(self, more: u32) -> Offset {
        Offset { constant: self.constant.wrapping_add(more), ..self }
    }
}

/// Offsets of the headers that the next test looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layers {
    /// The type of the link header.
    pub(super) link: LinkType,
    /// The type of the link header around it; the same if there is none.
    pub(super) outer_link: LinkType,
    pub(super) link_header: Offset,
    pub(super) outer_link_header: Offset,
    pub(super) link_type: Offset,
    pub(super) payload: Offset,
    /// From the payload to the network header, past SNAP where there is one.
    pub(super) network: u32,
    /// The offset for 802.2 without SNAP.
    pub(super) network_no_snap: u32,
    /// Within Geneve or VXLAN.
    pub(super) in_tunnel: bool,
    /// Within `inner(...)`: holds the type of the payload, with [`NO_ETHERNET`] where no Ethernet header is before
    /// it. The link header's place is 14 bytes before the payload in any case.
    pub(super) kind: Option<ScratchCell>,
    pub(super) vlans: u32,
    pub(super) labels: u32,
}

impl Default for Layers {
    fn default() -> Layers {
        Layers::of(LinkType::ETHERNET, 12, 14, 0, 3)
    }
}

impl Layers {
    fn of(link: LinkType, link_type: u32, payload: u32, network: u32, network_no_snap: u32) -> Layers {
        Layers {
            link,
            outer_link: link,
            link_header: Offset::fixed(0),
            outer_link_header: Offset::fixed(0),
            link_type: Offset::fixed(link_type),
            payload: Offset::fixed(payload),
            network,
            network_no_snap,
            in_tunnel: false,
            kind: None,
            vlans: 0,
            labels: 0,
        }
    }

    /// The packet in a tunnel, whose link header or its substitute is at `base`.
    pub(super) fn inside(base: ScratchCell, kind: ScratchCell) -> Layers {
        let at = |constant| Offset { cell: Some(base), constant };
        Layers {
            link_header: at(0),
            outer_link_header: at(0),
            link_type: at(ETHERNET_LEN - 2),
            payload: at(ETHERNET_LEN),
            kind: Some(kind),
            ..Layers::default()
        }
    }

    /// The layers with a pseudo-header before the link header.
    fn after(mut self, len: u32) -> Layers {
        self.link_header = self.link_header.plus(len);
        self.outer_link_header = self.link_header;
        self.link_type = self.link_type.plus(len);
        self.payload = self.payload.plus(len);
        self
    }

    /// A link header within the previous layers.
    pub(super) fn push(&mut self, link: LinkType, at: Offset) {
        self.outer_link = self.link;
        self.outer_link_header = self.link_header;
        self.link = link;
        self.link_header = at;
        self.in_tunnel = false;
        self.kind = None;
    }
}

impl Scope<'_> {
    /// The headers as a packet begins.
    ///
    /// # Errors
    /// If libpcap compiles nothing for the link type.
    pub(super) fn initial_layers(&mut self) -> Result<Layers> {
        let link = self.options.link_type;
        let at =
            |link_type, payload, network, no_snap| Layers::of(link, link_type, payload, network, no_snap);
        Ok(match link {
            LinkType::ETHERNET => at(12, 14, 0, 3),
            LinkType::NETANALYZER => at(12, 14, 0, 3).after(4),
            LinkType::NETANALYZER_TRANSPARENT => at(12, 14, 0, 3).after(12),
            LinkType::DSA_TAG_BRCM | LinkType::DSA_TAG_DSA => at(16, 18, 0, 3),
            LinkType::DSA_TAG_EDSA => at(20, 22, 0, 3),
            LinkType::LINUX_SLL => at(14, 16, 0, 0),
            LinkType::LINUX_SLL2 => at(0, 20, 0, 0),
            LinkType::NULL | LinkType::LOOP => at(0, 4, 0, 0),
            LinkType::ENC => at(0, 12, 0, 0),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => at(NONE, 0, 0, 0),
            LinkType::IEEE802_11
            | LinkType::IEEE802_11_PRISM
            | LinkType::IEEE802_11_AVS
            | LinkType::IEEE802_11_RADIOTAP
            | LinkType::PPI => self.wlan_layers(at(24, 0, 8, 3))?,
            LinkType::PPP | LinkType::PPP_PPPD | LinkType::PPP_HDLC | LinkType::C_HDLC | LinkType::HDLC => {
                at(2, 4, 0, 0)
            }
            LinkType::PPP_ETHER => at(6, 8, 0, 0),
            LinkType::PPP_BSDOS => at(5, 24, 0, 0),
            LinkType::SLIP => at(NONE, 16, 0, 0),
            LinkType::SLIP_BSDOS => at(NONE, 24, 0, 0),
            LinkType::FDDI => at(13, 13, 8, 3),
            LinkType::IEEE802_5 => at(14, 14, 8, 3),
            LinkType::IP_OVER_FC => at(16, 16, 8, 3),
            LinkType::ATM_RFC1483 | LinkType::ATM_CLIP => at(0, 0, 8, 3),
            LinkType::SUNATM => at(4, 4, 8, 3),
            LinkType::ARCNET_BSD => at(2, 6, 0, 0),
            LinkType::ARCNET_LINUX => at(4, 8, 0, 0),
            LinkType::LTALK | LinkType::FRELAY => at(NONE, 0, 0, 0),
            LinkType::MFR => at(NONE, 0, 4, 0),
            LinkType::APPLE_IP_OVER_IEEE1394 => at(16, 18, 0, 0),
            LinkType::SYMANTEC_FIREWALL => at(6, 44, 0, 0),
            LinkType::PFLOG => {
                let cell = self.new_cell()?;
                Layers { payload: Offset { cell: Some(cell), constant: 0 }, ..at(0, 0, 0, 0) }
            }
            LinkType::PFSYNC => at(NONE, 4, 0, 0),
            LinkType::IPNET => at(1, 24, 0, NONE),
            _ => return juniper(link).or_else(|| bytes_only(link)).ok_or_else(|| self.unknown_link_type()),
        })
    }

    fn wlan_layers(&mut self, layers: Layers) -> Result<Layers> {
        let mut layers = layers;
        if layers.link != LinkType::IEEE802_11 {
            layers.link_header.cell = Some(self.new_cell()?);
            layers.outer_link_header = layers.link_header;
        }
        layers.payload.cell = Some(self.new_cell()?);
        Ok(layers)
    }

    fn unknown_link_type(&self) -> Error {
        Error::whole(format!("unknown data link type {}", self.options.link_type.dlt()))
            .hint("no filter is possible on this link type; capture without one")
    }

    /// The place `offset` bytes past `from`.
    pub(super) fn place(&mut self, from: Offset, offset: u32) -> FieldOffset {
        let base = match from.cell {
            None => Base::Packet,
            Some(cell) => Base::Cell(self.use_cell(cell)),
        };
        FieldOffset { base, offset: from.constant.wrapping_add(offset) }
    }

    pub(super) fn use_cell(&mut self, cell: ScratchCell) -> ScratchCell {
        self.cell_used[usize::from(cell.0)] = true;
        cell
    }

    pub(super) fn at_packet(&self, offset: u32) -> FieldOffset {
        FieldOffset { base: Base::Packet, offset }
    }

    pub(super) fn at_link(&mut self, offset: u32) -> FieldOffset {
        self.place(self.layers.link_header, offset)
    }

    pub(super) fn at_outer_link(&mut self, offset: u32) -> FieldOffset {
        self.place(self.layers.outer_link_header, offset)
    }

    pub(super) fn at_link_type(&mut self, offset: u32) -> FieldOffset {
        self.place(self.layers.link_type, offset)
    }

    /// The 802.2 header: the first bytes of the payload.
    pub(super) fn at_llc(&mut self, offset: u32) -> FieldOffset {
        self.place(self.layers.payload, offset)
    }

    pub(super) fn at_network(&mut self, offset: u32) -> FieldOffset {
        self.place(self.layers.payload.plus(self.layers.network), offset)
    }

    pub(super) fn at_network_no_snap(&mut self, offset: u32) -> FieldOffset {
        self.place(self.layers.payload.plus(self.layers.network_no_snap), offset)
    }

    /// Past an IPv4 header of any length.
    pub(super) fn after_ipv4(&mut self, offset: u32) -> FieldOffset {
        let at = self.layers.payload.plus(self.layers.network);
        let cell = at.cell.map(|cell| self.use_cell(cell));
        let base = Base::Ipv4Len { cell, header: at.constant };
        FieldOffset { base, offset: at.constant.wrapping_add(offset) }
    }

    /// Past an IPv6 header without extensions.
    pub(super) fn after_ipv6(&mut self, offset: u32) -> FieldOffset {
        self.at_network(offset.wrapping_add(40))
    }
}

/// Link types of Juniper routers. Those without a payload do not say where theirs is.
fn juniper(link: LinkType) -> Option<Layers> {
    let at =
        |link_type, payload, network, no_snap| Some(Layers::of(link, link_type, payload, network, no_snap));
    match link {
        LinkType::JUNIPER_MFR
        | LinkType::JUNIPER_MLFR
        | LinkType::JUNIPER_MLPPP
        | LinkType::JUNIPER_PPP
        | LinkType::JUNIPER_CHDLC
        | LinkType::JUNIPER_FRELAY => at(4, 4, 0, NONE),
        LinkType::JUNIPER_ATM1 => at(4, 4, 0, 10),
        LinkType::JUNIPER_ATM2 => at(8, 8, 0, 10),
        LinkType::JUNIPER_PPPOE | LinkType::JUNIPER_ETHER => at(16, 14, 18, 21),
        LinkType::JUNIPER_PPPOE_ATM => at(4, 6, 0, NONE),
        LinkType::JUNIPER_GGSN => at(6, 12, 0, NONE),
        LinkType::JUNIPER_ES => at(6, NONE, NONE, NONE),
        LinkType::JUNIPER_MONITOR => at(12, 12, 0, NONE),
        LinkType::JUNIPER_SERVICES => at(12, NONE, NONE, NONE),
        LinkType::JUNIPER_VP | LinkType::JUNIPER_ST => at(18, NONE, NONE, NONE),
        _ if is_juniper(link) => at(8, NONE, NONE, NONE),
        _ => None,
    }
}

/// Whether the packet starts with Juniper's magic number and flags.
pub(super) fn is_juniper(link: LinkType) -> bool {
    matches!(
        link,
        LinkType::JUNIPER_MFR
            | LinkType::JUNIPER_MLFR
            | LinkType::JUNIPER_MLPPP
            | LinkType::JUNIPER_ATM1
            | LinkType::JUNIPER_ATM2
            | LinkType::JUNIPER_PPPOE
            | LinkType::JUNIPER_PPPOE_ATM
            | LinkType::JUNIPER_GGSN
            | LinkType::JUNIPER_ES
            | LinkType::JUNIPER_MONITOR
            | LinkType::JUNIPER_SERVICES
            | LinkType::JUNIPER_ETHER
            | LinkType::JUNIPER_PPP
            | LinkType::JUNIPER_FRELAY
            | LinkType::JUNIPER_CHDLC
            | LinkType::JUNIPER_VP
            | LinkType::JUNIPER_ST
            | LinkType::JUNIPER_ISM
            | LinkType::JUNIPER_VS
            | LinkType::JUNIPER_SRX_E2E
            | LinkType::JUNIPER_FIBRECHANNEL
            | LinkType::JUNIPER_ATM_CEMIC
    )
}

/// Link types of which only bytes can be tested, with `link[...]`: those that libpcap names, and all from the first
/// number that is the same for DLT and LINKTYPE.
fn bytes_only(link: LinkType) -> Option<Layers> {
    const MATCHING_MIN: u16 = 104;
    let named = matches!(link, LinkType::EXP_ETHERNET | LinkType::AX25 | LinkType::PRONET | LinkType::CHAOS)
        || link == LinkType(REDBACK_SMARTEDGE);
    (named || link.0 >= MATCHING_MIN).then(|| Layers::of(link, NONE, NONE, NONE, NONE))
}

/// `DLT_REDBACK_SMARTEDGE`, which has no LINKTYPE.
const REDBACK_SMARTEDGE: u16 = 32;

/// A field compared with a constant.
pub(super) fn test(
    place: FieldOffset,
    width: Width,
    mask: u32,
    compare: Compare,
    value: u32,
    name: &'static str,
) -> Predicate {
    Predicate::Test(FieldTest { field: TestedField::Packet(place, width), mask, compare, value, name })
}

pub(super) fn equal(place: FieldOffset, width: Width, value: u32, name: &'static str) -> Predicate {
    test(place, width, u32::MAX, Compare::Equal, value, name)
}

pub(super) fn not_equal(place: FieldOffset, width: Width, value: u32, name: &'static str) -> Predicate {
    equal(place, width, value, name).not()
}

/// Masked bits equal to `value`; without a bit to look at the packet is not read.
pub(super) fn masked(
    place: FieldOffset,
    width: Width,
    value: u32,
    mask: u32,
    name: &'static str,
) -> Predicate {
    match mask {
        0 => Predicate::Constant(value == 0),
        mask => test(place, width, mask, Compare::Equal, value, name),
    }
}

pub(super) fn any_set(place: FieldOffset, width: Width, bits: u32, name: &'static str) -> Predicate {
    test(place, width, u32::MAX, Compare::AnySet, bits, name)
}

pub(super) fn at_most(place: FieldOffset, width: Width, value: u32, name: &'static str) -> Predicate {
    test(place, width, u32::MAX, Compare::Greater, value, name).not()
}

pub(super) fn at_least(place: FieldOffset, width: Width, value: u32, name: &'static str) -> Predicate {
    test(place, width, u32::MAX, Compare::GreaterEqual, value, name)
}

/// A run of bytes, compared in words from its end to its start, as libpcap does.
pub(super) fn bytes(place: FieldOffset, wanted: &[u8], name: &'static str) -> Predicate {
    let mut parts = Vec::new();
    let mut end = wanted.len();
    while end > 0 {
        let (width, len) = match end {
            4.. => (Width::Word, 4),
            2..=3 => (Width::Half, 2),
            _ => (Width::Byte, 1),
        };
        end -= len;
        let value = wanted[end..end + len].iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        let at = FieldOffset { offset: place.offset.wrapping_add(end as u32), ..place };
        parts.push(equal(at, width, value, name));
    }
    Predicate::all(parts)
}
