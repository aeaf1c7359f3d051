//! SS7: signal units of MTP2 and the routing label of MTP3.
//!
//! ```text
//! length indicator (low 6 bits; high-speed: 9 bits of two bytes)   0 FISU, 1 and 2 LSSU, 3 and more MSU
//! SIO (1) | DPC (14 bits) OPC (14 bits) SLS (4 bits), little-endian
//! ```
//!
//! Sources: ITU-T Q.703, 2.2 and annex A; Q.704, 2.2.

use tapline_packet::LinkType;

use super::arith::comparison;
use super::layers::{masked, test};
use super::{Result, Scope, check_max};
use crate::ast::{Mtp2Format, Mtp2Type, Mtp3Field, Relop};
use crate::predicate::Predicate;
use tapline_bpf::cfg::{JumpTest as Compare, Width};
use tapline_syntax::Error;

const LENGTH: &str = "MTP2 length indicator";

/// A high-speed link has three bytes more before the SIO.
const HIGH_SPEED_MORE: u32 = 3;

impl Scope<'_> {
    pub(super) fn mtp2(&mut self, kind: Mtp2Type, link: Mtp2Format) -> Result<Predicate> {
        let start = self.mtp2_start(&link.word(kind.name()))?;
        let (offset, width, mask, lssu_max) = match link {
            Mtp2Format::Normal => (2, Width::Byte, 0x3f, 2),
            Mtp2Format::HighSpeed => (4, Width::Half, 0xff80, 0x0100),
        };
        let at = self.at_packet(start + offset);
        let above = |value| test(at, width, mask, Compare::Greater, value, LENGTH);
        Ok(match kind {
            Mtp2Type::Fisu => masked(at, width, 0, mask, LENGTH),
            Mtp2Type::Lssu => above(0).and(above(lssu_max).not()),
            Mtp2Type::Msu => above(lssu_max),
        })
    }

    pub(super) fn mtp3(
        &mut self,
        field: Mtp3Field,
        link: Mtp2Format,
        values: &[(Relop, u32)],
    ) -> Result<Predicate> {
        let word = &link.word(field.name());
        let start = self.mtp2_start(word)?;
        let more = if link == Mtp2Format::HighSpeed { HIGH_SPEED_MORE } else { 0 };
        let (offset, width, mask, max) = match field {
            Mtp3Field::Sio => (3, Width::Byte, u32::MAX, 0xff),
            Mtp3Field::Dpc => (4, Width::Half, on_wire(field, 0x3fff), 0x3fff),
            Mtp3Field::Opc => (4, Width::Word, on_wire(field, 0x3fff), 0x3fff),
            Mtp3Field::Sls => (7, Width::Byte, on_wire(field, 0xf), 0xf),
        };
        let at = self.at_packet(start + offset + more);
        let parts: Result<Vec<Predicate>> = values
            .iter()
            .map(|(op, value)| {
                check_max(word, *value, max)?;
                let (compare, negated) = comparison(*op);
                let part = test(at, width, mask, compare, on_wire(field, *value), "MTP3 field");
                Ok(if negated { part.not() } else { part })
            })
            .collect();
        parts.map(Predicate::any)
    }

    fn mtp2_start(&self, word: &str) -> Result<u32> {
        match self.link_type() {
            LinkType::MTP2 => Ok(0),
            LinkType::MTP2_WITH_PHDR => Ok(4),
            LinkType::ERF => Ok(20),
            _ => Err(Error::whole(format!("'{word}' supported only on SS7"))),
        }
    }
}

/// A value as the big-endian load of its bytes finds it.
fn on_wire(field: Mtp3Field, value: u32) -> u32 {
    match field {
        Mtp3Field::Sio => value,
        Mtp3Field::Dpc => u32::from((value as u16).swap_bytes()),
        Mtp3Field::Opc => (value << 14).swap_bytes(),
        Mtp3Field::Sls => value << 4,
    }
}
