//! SunATM: ATM frames with a header of four bytes.
//!
//! ```text
//! flags, type (0f): 1 LAN emulation, 2 LLC | VPI (1) | VCI (2) | frame
//! LAN emulation:  LE client identifier (2) | Ethernet
//! signalling:     message type in byte 5 of the frame (ITU-T Q.2931, 4.4)
//! ```

use tapline_packet::LinkType;

use super::arith::comparison;
use super::layers::{Offset, equal, masked, test};
use super::{Result, Scope, check_max};
use crate::ast::{AtmField, AtmType, Relop};
use crate::predicate::Predicate;
use tapline_bpf::cfg::Width;
use tapline_syntax::Error;

const TYPE_LANE: u32 = 1;
const TYPE_LLC: u32 = 2;
const FRAME: u32 = 4;

/// Message types of Q.2931.
const SETUP: u32 = 0x05;
const CALL_PROCEEDING: u32 = 0x02;
const CONNECT: u32 = 0x07;
const CONNECT_ACK: u32 = 0x0f;
const RELEASE: u32 = 0x4d;
const RELEASE_DONE: u32 = 0x5a;

impl Scope<'_> {
    pub(super) fn atm(&mut self, kind: AtmType) -> Result<Predicate> {
        self.check_atm(kind.name())?;
        Ok(match kind {
            AtmType::Lane => self.lane(),
            AtmType::Metac => self.circuit(1),
            AtmType::Bcc => self.circuit(2),
            AtmType::Oamf4sc => self.circuit(3),
            AtmType::Oamf4ec => self.circuit(4),
            AtmType::Sc => self.circuit(5),
            AtmType::Ilmic => self.circuit(16),
            AtmType::Oam | AtmType::Oamf4 => {
                let segment_or_end = self.vci(3).or(self.vci(4));
                self.vpi(0).and(segment_or_end)
            }
            AtmType::Connectmsg => {
                let messages =
                    self.messages(&[RELEASE_DONE, RELEASE, CONNECT_ACK, CONNECT, SETUP, CALL_PROCEEDING]);
                self.circuit(5).and(messages)
            }
            AtmType::Metaconnect => {
                let messages = self.messages(&[RELEASE_DONE, RELEASE, CONNECT, SETUP, CALL_PROCEEDING]);
                self.circuit(1).and(messages)
            }
        })
    }

    pub(super) fn atm_field(&mut self, field: AtmField, values: &[(Relop, u32)]) -> Result<Predicate> {
        let (word, name, offset, width, max) = match field {
            AtmField::Vpi => ("vpi", "VPI", 1, Width::Byte, 0xff),
            AtmField::Vci => ("vci", "VCI", 2, Width::Half, 0xffff),
        };
        self.check_atm(word)?;
        let at = self.at_link(offset);
        let parts: Result<Vec<Predicate>> = values
            .iter()
            .map(|(op, value)| {
                check_max(name, *value, max)?;
                let (compare, negated) = comparison(*op);
                let part = test(at, width, u32::MAX, compare, *value, name);
                Ok(if negated { part.not() } else { part })
            })
            .collect();
        parts.map(Predicate::any)
    }

    pub(super) fn atm_is_llc(&mut self) -> Predicate {
        self.frame_type(TYPE_LLC)
    }

    fn check_atm(&self, word: &str) -> Result<()> {
        if self.link_type() != LinkType::SUNATM {
            return Err(Error::whole(format!("'{word}' supported only on SUNATM")));
        }
        Ok(())
    }

    fn frame_type(&mut self, kind: u32) -> Predicate {
        masked(self.at_link(0), Width::Byte, kind, 0x0f, "ATM frame type")
    }

    fn vpi(&mut self, value: u32) -> Predicate {
        equal(self.at_link(1), Width::Byte, value, "VPI")
    }

    fn vci(&mut self, value: u32) -> Predicate {
        equal(self.at_link(2), Width::Half, value, "VCI")
    }

    /// A well-known circuit.
    fn circuit(&mut self, vci: u32) -> Predicate {
        self.vpi(0).and(self.vci(vci))
    }

    fn messages(&mut self, types: &[u32]) -> Predicate {
        let at = self.at_link(FRAME + 5);
        Predicate::any(types.iter().map(|kind| equal(at, Width::Byte, *kind, "signalling message type")))
    }

    /// LAN emulation; all that comes after is about the Ethernet frame in it.
    fn lane(&mut self) -> Predicate {
        let found = self.frame_type(TYPE_LANE);
        const ETHERNET: u32 = FRAME + 2;
        self.layers.push(LinkType::ETHERNET, Offset::fixed(ETHERNET));
        self.layers.link_type = Offset::fixed(ETHERNET + 12);
        self.layers.payload = Offset::fixed(ETHERNET + 14);
        self.layers.network = 0;
        self.layers.network_no_snap = 3;
        found
    }
}
