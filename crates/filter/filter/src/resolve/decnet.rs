//! DECnet addresses.
//!
//! ```text
//! length (2, little-endian) | 0x81 if there is a byte of padding | flags: 6 long, 2 short header | ...
//! long   destination at 7, source at 15 from the flags          short  destination at 1, source at 3
//! address: area (6 bits), node (10 bits), little-endian
//! ```
//!
//! Only data packets without padding or with one byte of it are understood, as in libpcap.
//! Source: DECnet Phase IV routing layer specification, 6 to 8.

use super::layers::{equal, masked};
use super::numbers::ethertype;
use super::{Result, Scope, bad_qualifier};
use crate::ast::{Direction, IdKind, Qualifiers};
use crate::predicate::Predicate;
use tapline_bpf::cfg::Width;
use tapline_syntax::Error;

const FLAGS: &str = "DECnet padding and flags";
const ADDRESS: &str = "DECnet address";

impl Scope<'_> {
    pub(super) fn decnet(&mut self, text: &str, qualifiers: Qualifiers) -> Result<Predicate> {
        if let Some(kind) = qualifiers.kind.filter(|kind| *kind != IdKind::Host) {
            return Err(bad_qualifier("decnet", kind.name()));
        }
        let address = decnet_address(text).ok_or_else(|| {
            Error::whole(format!("invalid DECnet address '{text}'"))
                .hint("area 0 to 63, a dot, node 0 to 1023")
        })?;
        let is_decnet = self.link_protocol(ethertype::DECNET)?;
        let host = match qualifiers.direction {
            Some(Direction::Src) => self.decnet_source(address),
            Some(Direction::Dst) => self.decnet_destination(address),
            Some(Direction::SrcAndDst) => self.decnet_source(address).and(self.decnet_destination(address)),
            None | Some(Direction::SrcOrDst) => {
                self.decnet_source(address).or(self.decnet_destination(address))
            }
            Some(other) => {
                return Err(Error::whole(format!("'{}' is valid for 802.11 syntax only", other.name())));
            }
        };
        Ok(is_decnet.and(host))
    }

    fn decnet_source(&mut self, address: u32) -> Predicate {
        let short_unpadded = self.decnet_unpadded(0x02, 3, address);
        let short_padded = self.decnet_padded(0x8102, 3, address);
        short_unpadded.or(short_padded).or(self.decnet_long(15, address))
    }

    /// The destination of a short header is near enough to the flags to be compared with them.
    fn decnet_destination(&mut self, address: u32) -> Predicate {
        let at = self.at_network(2);
        let short_unpadded = masked(at, Width::Word, 0x0200_0000 | address << 8, 0x07ff_ff00, ADDRESS);
        let short_padded = masked(at, Width::Word, 0x8102_0000 | address, 0xff07_ffff, ADDRESS);
        short_unpadded.or(short_padded).or(self.decnet_long(7, address))
    }

    fn decnet_long(&mut self, offset: u32, address: u32) -> Predicate {
        self.decnet_unpadded(0x06, offset, address).or(self.decnet_padded(0x8106, offset, address))
    }

    fn decnet_unpadded(&mut self, flags: u32, offset: u32, address: u32) -> Predicate {
        let header = masked(self.at_network(2), Width::Byte, flags, 0x07, FLAGS);
        header.and(equal(self.at_network(2 + offset), Width::Half, address, ADDRESS))
    }

    fn decnet_padded(&mut self, flags: u32, offset: u32, address: u32) -> Predicate {
        let header = masked(self.at_network(2), Width::Half, flags, 0xff07, FLAGS);
        header.and(equal(self.at_network(3 + offset), Width::Half, address, ADDRESS))
    }
}

/// Area and node as the packet has them when read big-endian.
fn decnet_address(text: &str) -> Option<u32> {
    let (area, node) = text.split_once('.')?;
    let (area, node): (u16, u16) = (area.parse().ok()?, node.parse().ok()?);
    (area < 64 && node < 1024).then(|| u32::from((area << 10 | node).swap_bytes()))
}
