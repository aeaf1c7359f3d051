//! Tests of the protocol that a frame carries.
//!
//! ```text
//! Ethernet   type (above 1500), or length and 802.2: DSAP SSAP control, and with SNAP (aa aa 03) OUI and type
//! others     802.2 alone; a type field of their own; the version nibble of raw IP; a constant
//! ```
//!
//! A protocol is tested by its EtherType, if above 1500, or else by its 802.2 service access point. Their numbers on
//! each link type are those of libpcap's `gen_linktype`.

use tapline_packet::LinkType;

use super::layers::{NO_ETHERNET, NONE, at_most, bytes, equal, is_juniper, masked, not_equal};
use super::numbers::ethertype;
use super::transport::is;
use super::{Result, Scope, check_max};
use crate::ast::LlcType;
use crate::predicate::{FieldOffset, NumberExpr, Predicate, Relation, ScratchCell};
use tapline_bpf::cfg::{Alu, JumpTest as Compare, Width};
use tapline_syntax::Error;

/// Service access points of IEEE 802.2.
pub(super) mod sap {
    pub(in crate::resolve) const IP: u32 = 0x06;
    pub(in crate::resolve) const SPANNING_TREE: u32 = 0x42;
    pub(in crate::resolve) const SNAP: u8 = 0xaa;
    pub(in crate::resolve) const IPX: u32 = 0xe0;
    pub(in crate::resolve) const NETBEUI: u32 = 0xf0;
    pub(in crate::resolve) const ISO: u32 = 0xfe;
}

/// Network layer protocol identifiers (ISO/IEC TR 9577).
pub(super) mod nlpid {
    pub(in crate::resolve) const CLNP: u32 = 0x81;
    pub(in crate::resolve) const ESIS: u32 = 0x82;
    pub(in crate::resolve) const ISIS: u32 = 0x83;
}

const LENGTH_MAX: u32 = ethertype::LENGTH_MAX;

/// Types of Linux cooked captures that are not EtherTypes (`linux/if_ether.h`: ETH_P_802_3, ETH_P_802_2).
const COOKED_802_3: u32 = 0x0001;
const COOKED_802_2: u32 = 0x0004;

/// OUIs in SNAP: encapsulated Ethernet, and Apple.
const OUI_ETHERNET: u32 = 0x00_0000;
const OUI_APPLE: u32 = 0x08_0007;

const ETHER_TYPE: &str = "EtherType";
const LLC: &str = "802.2 header";

impl Scope<'_> {
    /// Whether the frame carries a protocol: an EtherType, or a service access point up to 1500.
    pub(super) fn link_protocol(&mut self, protocol: u32) -> Result<Predicate> {
        if self.layers.labels > 0 {
            return self.mpls_payload(protocol);
        }
        match self.scoped && self.may_have_metadata() {
            true => self.link_protocol_on_the_wire(protocol),
            false => self.link_protocol_in_bytes(protocol),
        }
    }

    /// The test of the captured bytes alone, without MPLS.
    pub(super) fn link_protocol_in_bytes(&mut self, protocol: u32) -> Result<Predicate> {
        match self.link_type() {
            LinkType::ETHERNET | LinkType::NETANALYZER | LinkType::NETANALYZER_TRANSPARENT => {
                self.ethernet(protocol)
            }
            LinkType::DSA_TAG_BRCM | LinkType::DSA_TAG_DSA | LinkType::DSA_TAG_EDSA => {
                self.length_or_type(protocol)
            }
            LinkType::C_HDLC | LinkType::HDLC => self.cisco_hdlc(protocol),
            LinkType::IEEE802_11
            | LinkType::IEEE802_11_PRISM
            | LinkType::IEEE802_11_AVS
            | LinkType::IEEE802_11_RADIOTAP
            | LinkType::PPI => Ok(self.is_data_frame().and(self.llc_protocol(protocol)?)),
            LinkType::FDDI
            | LinkType::IEEE802_5
            | LinkType::ATM_RFC1483
            | LinkType::ATM_CLIP
            | LinkType::IP_OVER_FC => self.llc_protocol(protocol),
            LinkType::SUNATM => Ok(self.atm_is_llc().and(self.llc_protocol(protocol)?)),
            LinkType::LINUX_SLL => self.cooked(protocol),
            LinkType::RAW | LinkType::SLIP | LinkType::SLIP_BSDOS => Ok(self.by_version(protocol)),
            LinkType::IPV4 => Ok(Predicate::Constant(protocol == ethertype::IPV4)),
            LinkType::IPV6 => Ok(Predicate::Constant(protocol == ethertype::IPV6)),
            LinkType::PPP | LinkType::PPP_PPPD | LinkType::PPP_HDLC | LinkType::PPP_ETHER => {
                self.ppp(protocol)
            }
            LinkType::PPP_BSDOS => self.ppp_bsdos(protocol),
            LinkType::NULL | LinkType::LOOP | LinkType::ENC => Ok(self.address_family(protocol)),
            LinkType::PFLOG => Ok(self.pf_address_family(protocol)),
            LinkType::ARCNET_BSD | LinkType::ARCNET_LINUX => Ok(self.arcnet(protocol)),
            LinkType::LTALK => Ok(Predicate::Constant(protocol == ethertype::APPLETALK)),
            LinkType::FRELAY => Ok(self.frame_relay(protocol)),
            LinkType::IPNET => Ok(self.ipnet(protocol)),
            link if is_juniper(link) => Ok(self.juniper_magic()),
            LinkType::MFR => Err(self.no_link_protocol()),
            _ if self.layers.link_type.constant == NONE => Err(self.no_link_protocol()),
            _ => self.type_field(protocol),
        }
    }

    fn no_link_protocol(&self) -> Error {
        Error::whole(format!("link-layer type filtering not implemented for {}", self.link_name()))
            .hint("on this link type only bytes can be tested, such as link[0] = 1, and the length")
    }

    fn ethernet(&mut self, protocol: u32) -> Result<Predicate> {
        // Tunnels say an EtherType also where there is no inner Ethernet header.
        let in_tunnel = self.layers.in_tunnel || self.layers.kind.is_some();
        let check = if in_tunnel { None } else { self.outer_check() };
        let frame = self.length_or_type(protocol)?;
        Ok(Predicate::all(check.into_iter().chain([frame])))
    }

    /// The condition of an inner link header on the header around it.
    pub(super) fn outer_check(&mut self) -> Option<Predicate> {
        if self.layers.in_tunnel {
            return self.has_inner_ethernet();
        }
        if let Some(kind) = self.layers.kind {
            return Some(greater(kind, NO_ETHERNET - 1).not());
        }
        match self.layers.outer_link {
            // LAN emulation: a frame, no control message. Whether it is LAN emulation was asked before.
            LinkType::SUNATM => {
                Some(not_equal(self.at_outer_link(4), Width::Half, 0xff00, "LANE control marker"))
            }
            _ => None,
        }
    }

    /// Whether the type field, or the field of a tunnel's header in its place, is this number.
    fn ether_type_is(&mut self, protocol: u32) -> Predicate {
        match self.layers.kind {
            Some(kind) => is(
                NumberExpr::binary(Alu::And, NumberExpr::Cell(kind), NumberExpr::Constant(0xffff)),
                protocol,
            ),
            None => equal(self.at_link_type(0), Width::Half, protocol, ETHER_TYPE),
        }
    }

    /// Whether the type field is a length.
    fn is_length(&mut self) -> Predicate {
        match self.layers.kind {
            Some(kind) => greater(kind, LENGTH_MAX).not(),
            None => at_most(self.at_link_type(0), Width::Half, LENGTH_MAX, "Ethernet length"),
        }
    }

    fn length_or_type(&mut self, protocol: u32) -> Result<Predicate> {
        let is_length = self.is_length();
        Ok(match protocol {
            sap::ISO | sap::IP | sap::NETBEUI => is_length.and(self.both_saps(protocol)),
            sap::IPX => {
                let raw = equal(self.at_llc(0), Width::Half, 0xffff, "IPX without 802.2");
                let llc = self.dsap(sap::IPX).or(raw);
                let in_802_3 = is_length.and(self.snap(OUI_ETHERNET, ethertype::IPX).or(llc));
                self.ether_type_is(ethertype::IPX).or(in_802_3)
            }
            ethertype::APPLETALK | ethertype::APPLETALK_ARP => {
                let in_802_3 = is_length.and(self.apple_snap(protocol));
                self.ether_type_is(protocol).or(in_802_3)
            }
            0..=LENGTH_MAX => {
                check_max("LLC DSAP", protocol, 0xff)?;
                is_length.and(equal(self.at_link_type(2), Width::Byte, protocol, "DSAP"))
            }
            _ => {
                check_max(ETHER_TYPE, protocol, 0xffff)?;
                self.ether_type_is(protocol)
            }
        })
    }

    /// Linux cooked captures, version 1.
    fn cooked(&mut self, protocol: u32) -> Result<Predicate> {
        let at_type = self.at_link_type(0);
        let is_type = |protocol| equal(at_type, Width::Half, protocol, ETHER_TYPE);
        Ok(match protocol {
            sap::ISO | sap::IP | sap::NETBEUI => is_type(COOKED_802_2).and(self.both_saps(protocol)),
            sap::IPX => {
                let llc = self.dsap(sap::IPX).or(self.snap(OUI_ETHERNET, ethertype::IPX));
                let in_802_2 = is_type(COOKED_802_2).and(llc);
                is_type(ethertype::IPX).or(is_type(COOKED_802_3).or(in_802_2))
            }
            ethertype::APPLETALK | ethertype::APPLETALK_ARP => {
                is_type(protocol).or(is_type(COOKED_802_2).and(self.apple_snap(protocol)))
            }
            0..=LENGTH_MAX => {
                check_max("LLC DSAP", protocol, 0xff)?;
                is_type(COOKED_802_2).and(equal(self.at_llc(0), Width::Byte, protocol, "DSAP"))
            }
            _ => {
                check_max(ETHER_TYPE, protocol, 0xffff)?;
                is_type(protocol)
            }
        })
    }

    /// Link types where 802.2 follows the link header at once.
    fn llc_protocol(&mut self, protocol: u32) -> Result<Predicate> {
        Ok(match protocol {
            sap::IP | sap::ISO | sap::NETBEUI => self.both_saps(protocol),
            sap::IPX => self.dsap(sap::IPX),
            ethertype::APPLETALK => self.apple_snap(protocol),
            0..=LENGTH_MAX => {
                check_max("LLC DSAP", protocol, 0xff)?;
                self.dsap(protocol)
            }
            _ => {
                check_max(ETHER_TYPE, protocol, 0xffff)?;
                equal(self.at_llc(6), Width::Half, protocol, ETHER_TYPE)
            }
        })
    }

    fn both_saps(&mut self, sap: u32) -> Predicate {
        equal(self.at_llc(0), Width::Half, sap << 8 | sap, "DSAP and SSAP")
    }

    fn dsap(&mut self, sap: u32) -> Predicate {
        equal(self.at_llc(0), Width::Byte, sap, "DSAP")
    }

    fn apple_snap(&mut self, protocol: u32) -> Predicate {
        let oui = if protocol == ethertype::APPLETALK { OUI_APPLE } else { OUI_ETHERNET };
        self.snap(oui, protocol)
    }

    fn snap(&mut self, oui: u32, protocol: u32) -> Predicate {
        let [_, o0, o1, o2] = oui.to_be_bytes();
        let [_, _, p0, p1] = protocol.to_be_bytes();
        bytes(self.at_llc(0), &[sap::SNAP, sap::SNAP, 0x03, o0, o1, o2, p0, p1], "802.2 SNAP header")
    }

    fn cisco_hdlc(&mut self, protocol: u32) -> Result<Predicate> {
        check_max("HDLC protocol", protocol, 0xffff)?;
        let protocol = if protocol == sap::ISO { sap::ISO << 8 | sap::ISO } else { protocol };
        Ok(equal(self.at_link_type(0), Width::Half, protocol, "HDLC protocol"))
    }

    fn by_version(&mut self, protocol: u32) -> Predicate {
        let version = match protocol {
            ethertype::IPV4 => 0x40,
            ethertype::IPV6 => 0x60,
            _ => return Predicate::Constant(false),
        };
        masked(self.at_link(0), Width::Byte, version, 0xf0, "IP version")
    }

    fn ppp(&mut self, protocol: u32) -> Result<Predicate> {
        let protocol = ppp_protocol(protocol)?;
        Ok(equal(self.at_link_type(0), Width::Half, protocol, "PPP protocol"))
    }

    /// BSD/OS also has IP with compressed headers (RFC 1144).
    fn ppp_bsdos(&mut self, protocol: u32) -> Result<Predicate> {
        if protocol != ethertype::IPV4 {
            return self.ppp(protocol);
        }
        let at = self.at_link_type(0);
        Ok(Predicate::any(
            [0x0021, 0x002d, 0x002f].map(|value| equal(at, Width::Half, value, "PPP protocol")),
        ))
    }

    /// RFC 1201's codes only: those of RFC 1051 come with another header, in which nothing else would be found.
    fn arcnet(&mut self, protocol: u32) -> Predicate {
        let code = match protocol {
            ethertype::IPV4 => 0xd4,
            ethertype::ARP => 0xd5,
            ethertype::REVERSE_ARP => 0xd6,
            ethertype::APPLETALK => 0xdd,
            ethertype::IPV6 => 0xc4,
            _ => return Predicate::Constant(false),
        };
        equal(self.at_link_type(0), Width::Byte, code, "ARCnet system code")
    }

    /// After a header of two bytes: control 03 and a network layer protocol identifier (RFC 2427).
    fn frame_relay(&mut self, protocol: u32) -> Predicate {
        let at = self.at_link(2);
        let is = |nlpid| equal(at, Width::Half, 0x0300 | nlpid, "Frame Relay NLPID");
        match protocol {
            ethertype::IPV4 => is(0xcc),
            ethertype::IPV6 => is(0x8e),
            sap::ISO => is(nlpid::CLNP).or(is(nlpid::ESIS).or(is(nlpid::ISIS))),
            _ => Predicate::Constant(false),
        }
    }

    /// Address families of Solaris.
    fn ipnet(&mut self, protocol: u32) -> Predicate {
        let family = match protocol {
            ethertype::IPV4 => 2,
            ethertype::IPV6 => 26,
            _ => return Predicate::Constant(false),
        };
        equal(self.at_link_type(0), Width::Byte, family, "address family")
    }

    fn juniper_magic(&mut self) -> Predicate {
        masked(self.at_link(0), Width::Word, 0x4d47_4300, 0xffff_ff00, "Juniper magic number")
    }

    fn type_field(&mut self, protocol: u32) -> Result<Predicate> {
        check_max(ETHER_TYPE, protocol, 0xffff)?;
        Ok(equal(self.at_link_type(0), Width::Half, protocol, ETHER_TYPE))
    }

    /// `llc`, with the kind of its control field.
    pub(super) fn llc(&mut self, kind: Option<LlcType>) -> Result<Predicate> {
        let frame = self.is_llc()?;
        let Some(kind) = kind else { return Ok(frame) };
        let control: FieldOffset = self.at_llc(2);
        const CONTROL: &str = "802.2 control";
        Ok(frame.and(match kind {
            LlcType::I => super::layers::any_set(control, Width::Byte, 0x01, CONTROL).not(),
            LlcType::S => masked(control, Width::Byte, 0x01, 0x03, CONTROL),
            LlcType::U => masked(control, Width::Byte, 0x03, 0x03, CONTROL),
            LlcType::Supervisory(function) => {
                masked(control, Width::Byte, u32::from(function), 0x0f, CONTROL)
            }
            LlcType::Unnumbered(command) => masked(control, Width::Byte, u32::from(command), 0xef, CONTROL),
        }))
    }

    fn is_llc(&mut self) -> Result<Predicate> {
        match self.link_type() {
            LinkType::ETHERNET | LinkType::DSA_TAG_BRCM | LinkType::DSA_TAG_DSA | LinkType::DSA_TAG_EDSA => {
                let on_the_wire = self.scoped && self.may_have_metadata();
                let untagged = on_the_wire.then(|| self.tag_in_metadata().not());
                let is_llc = self.is_length().and(not_equal(self.at_llc(0), Width::Half, 0xffff, LLC));
                Ok(Predicate::all(untagged.into_iter().chain([is_llc])))
            }
            LinkType::SUNATM => Ok(self.atm_is_llc()),
            LinkType::IEEE802_5 | LinkType::FDDI | LinkType::ATM_RFC1483 => Ok(Predicate::Constant(true)),
            LinkType::IEEE802_11
            | LinkType::IEEE802_11_PRISM
            | LinkType::IEEE802_11_AVS
            | LinkType::IEEE802_11_RADIOTAP
            | LinkType::PPI => Ok(self.is_data_frame()),
            _ => Err(self.unsupported("llc")),
        }
    }
}

/// A cell's value is greater than a number.
fn greater(cell: ScratchCell, number: u32) -> Predicate {
    let (left, right) = (NumberExpr::Cell(cell), NumberExpr::Constant(number));
    Predicate::Relation(Relation { left, compare: Compare::Greater, right })
}

/// PPP's number of a protocol (IANA, ppp-numbers).
fn ppp_protocol(protocol: u32) -> Result<u32> {
    Ok(match protocol {
        ethertype::IPV4 => 0x0021,
        ethertype::IPV6 => 0x0057,
        ethertype::DECNET => 0x0027,
        ethertype::APPLETALK => 0x0029,
        ethertype::XNS => 0x0025,
        sap::ISO => 0x0023,
        sap::SPANNING_TREE => 0x0031,
        sap::IPX => 0x002b,
        other => {
            check_max("PPP protocol", other, 0xffff)?;
            other
        }
    })
}
