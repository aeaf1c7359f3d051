//! Address families at the start of BSD loopback packets.
//!
//! ```text
//! NULL  family (4 bytes, byte order of the machine that captured)         LOOP  family (4 bytes, big-endian)
//! ENC   family (4 bytes, byte order of the machine that captured) | SPI | flags
//! ```
//!
//! IPv4 is 2 everywhere. IPv6 is 24 (NetBSD, OpenBSD, BSD/OS, Npcap), 28 (FreeBSD), 30 (macOS) or 10 (Linux). In files,
//! all that may be there are asked for, in both byte orders where the order is the machine's.

use tapline_packet::LinkType;

use super::Scope;
use super::layers::equal;
use super::numbers::ethertype;
use crate::options::HandleKind;
use crate::predicate::Predicate;
use tapline_bpf::cfg::Width;

const IPV4: u32 = 2;
const IPV6_IN_FILES: [u32; 3] = [24, 28, 30];
const IPV6_HERE: u32 = 10;

const FAMILY: &str = "address family";

impl Scope<'_> {
    pub(super) fn address_family(&mut self, protocol: u32) -> Predicate {
        match protocol {
            ethertype::IPV4 => self.family(IPV4),
            ethertype::IPV6 => Predicate::any(self.ipv6_families().iter().map(|family| self.family(*family))),
            _ => Predicate::Constant(false),
        }
    }

    fn ipv6_families(&self) -> &'static [u32] {
        match self.options.handle {
            HandleKind::Savefile => &IPV6_IN_FILES,
            HandleKind::Live | HandleKind::Front | HandleKind::Dropped | HandleKind::Dead => &[IPV6_HERE],
        }
    }

    fn family(&mut self, family: u32) -> Predicate {
        let at = self.at_link(0);
        let is = |value| equal(at, Width::Word, value, FAMILY);
        match (self.link_type(), self.options.handle) {
            (LinkType::LOOP, _) => is(family),
            (_, HandleKind::Savefile) => is(family.swap_bytes()).or(is(family)),
            _ => is(u32::from_be_bytes(family.to_ne_bytes())),
        }
    }

    /// The family in PFLOG's header is one byte.
    pub(super) fn pf_address_family(&mut self, protocol: u32) -> Predicate {
        let at = self.at_link(1);
        let is = |family| equal(at, Width::Byte, family, FAMILY);
        match protocol {
            ethertype::IPV4 => is(IPV4),
            ethertype::IPV6 => Predicate::any(self.ipv6_families().iter().map(|family| is(*family))),
            _ => Predicate::Constant(false),
        }
    }
}
