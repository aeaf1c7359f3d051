//! Addresses and types of 802.11 frames.
//!
//! ```text
//! byte 0: subtype (f0) | type (0c): 00 management, 04 control, 08 data        byte 1: to DS 01, from DS 02
//! addr1 at 4, addr2 at 10, addr3 at 16, addr4 at 24
//!
//!              destination   source
//! management   addr1         addr2
//! data, IBSS   addr1         addr2
//! data, to DS  addr3         addr2
//! from DS      addr1         addr3
//! both         addr3         addr4
//! ```
//!
//! Control frames have neither source nor destination. Source: IEEE 802.11-2020, 9.2.4, 9.3.2.1.

use tapline_packet::LinkType;

use super::layers::{any_set, bytes, masked};
use super::{Result, Scope};
use crate::ast::{Direction, WlanField};
use crate::predicate::Predicate;
use tapline_bpf::cfg::Width;

const FRAME_CONTROL: &str = "802.11 frame control";

const TYPE_MASK: u32 = 0x0c;
const SUBTYPE_MASK: u32 = 0xf0;
const DIRECTION_MASK: u32 = 0x03;

const CONTROL: u32 = 0x04;
const DATA: u32 = 0x08;
const CTS: u32 = 0xc0;
const ACK: u32 = 0xd0;

const TO_DS: u32 = 0x01;
const FROM_DS: u32 = 0x02;

const ADDR1: u32 = 4;
const ADDR2: u32 = 10;
const ADDR3: u32 = 16;
const ADDR4: u32 = 24;

impl Scope<'_> {
    pub(super) fn is_wlan(&self) -> bool {
        matches!(
            self.link_type(),
            LinkType::IEEE802_11
                | LinkType::IEEE802_11_PRISM
                | LinkType::IEEE802_11_AVS
                | LinkType::IEEE802_11_RADIOTAP
                | LinkType::PPI
        )
    }

    pub(super) fn is_data_frame(&mut self) -> Predicate {
        masked(self.at_link(0), Width::Byte, DATA, TYPE_MASK, FRAME_CONTROL)
    }

    pub(super) fn wlan_field(&mut self, field: WlanField) -> Result<Predicate> {
        let word = if matches!(field, WlanField::Dir(_)) { "dir" } else { "type/subtype" };
        if !self.is_wlan() {
            return Err(self.unsupported(word));
        }
        Ok(match field {
            WlanField::Type { value, mask } => {
                masked(self.at_link(0), Width::Byte, value, mask, FRAME_CONTROL)
            }
            WlanField::Dir(value) => {
                masked(self.at_link(1), Width::Byte, value, DIRECTION_MASK, FRAME_CONTROL)
            }
        })
    }

    pub(super) fn wlan_host(&mut self, address: [u8; 6], direction: Option<Direction>) -> Predicate {
        let mut at = |offset| bytes(self.at_link(offset), &address, "802.11 address");
        let (addr1, addr2, addr3, addr4) = (at(ADDR1), at(ADDR2), at(ADDR3), at(ADDR4));
        match direction {
            Some(Direction::Src) => self.wlan_source(addr2, addr3, addr4),
            Some(Direction::Dst) => self.wlan_destination(addr1, addr3),
            Some(Direction::SrcAndDst) => {
                let source = self.wlan_source(addr2, addr3.clone(), addr4);
                source.and(self.wlan_destination(addr1, addr3))
            }
            None | Some(Direction::SrcOrDst) => {
                let source = self.wlan_source(addr2, addr3.clone(), addr4);
                source.or(self.wlan_destination(addr1, addr3))
            }
            Some(Direction::Addr1) => addr1,
            Some(Direction::Addr2) => self.has_addr2().and(addr2),
            Some(Direction::Addr3) => self.type_is(CONTROL).not().and(addr3),
            Some(Direction::Addr4) => {
                let both =
                    masked(self.at_link(1), Width::Byte, TO_DS | FROM_DS, DIRECTION_MASK, FRAME_CONTROL);
                both.and(addr4)
            }
            Some(Direction::Ra) => self.first_has(DATA).and(addr1),
            Some(Direction::Ta) => self.first_has(DATA).and(self.has_addr2()).and(addr2),
        }
    }

    /// A destination that is a group.
    pub(super) fn wlan_multicast(&mut self) -> Predicate {
        let (addr1, addr3) = (self.group_bit(ADDR1), self.group_bit(ADDR3));
        self.wlan_destination(addr1, addr3)
    }

    fn wlan_source(&mut self, addr2: Predicate, addr3: Predicate, addr4: Predicate) -> Predicate {
        let not_to = self.second_has(TO_DS).not().and(addr3);
        let to = self.second_has(TO_DS).and(addr4);
        let not_from = self.second_has(FROM_DS).not().and(addr2.clone());
        let from = self.second_has(FROM_DS).and(not_to.or(to));
        self.by_frame_type(addr2, not_from.or(from))
    }

    fn wlan_destination(&mut self, addr1: Predicate, addr3: Predicate) -> Predicate {
        let not_to = self.second_has(TO_DS).not().and(addr1.clone());
        let to = self.second_has(TO_DS).and(addr3);
        self.by_frame_type(addr1, not_to.or(to))
    }

    fn by_frame_type(&mut self, management: Predicate, data: Predicate) -> Predicate {
        let management = self.first_has(DATA).not().and(management);
        let data = self.first_has(DATA).and(data);
        self.first_has(CONTROL).not().and(management.or(data))
    }

    /// CTS and ACK frames have only one address.
    fn has_addr2(&mut self) -> Predicate {
        let mut subtype_is = |value| masked(self.at_link(0), Width::Byte, value, SUBTYPE_MASK, FRAME_CONTROL);
        let more = subtype_is(CTS).not().and(subtype_is(ACK).not());
        self.type_is(CONTROL).not().or(more)
    }

    fn type_is(&mut self, value: u32) -> Predicate {
        masked(self.at_link(0), Width::Byte, value, TYPE_MASK, FRAME_CONTROL)
    }

    fn first_has(&mut self, bits: u32) -> Predicate {
        any_set(self.at_link(0), Width::Byte, bits, FRAME_CONTROL)
    }

    fn second_has(&mut self, bits: u32) -> Predicate {
        any_set(self.at_link(1), Width::Byte, bits, FRAME_CONTROL)
    }
}
