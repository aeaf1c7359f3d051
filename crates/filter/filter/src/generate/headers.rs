//! `protochain`: follows IP headers to a protocol, without a loop.
//!
//! ```text
//! A = protocol of the IP header; X = its length
//! [ A = wanted? yes.  A = 59 (none)? no.
//!   A is an extension header (IPv6: 0 43 44 60)?  A = pkt[X], X += (pkt[X + 1] + 1) * 8
//!   A = 51 (authentication header)?               A = pkt[X], X += (pkt[X + 1] + 2) * 4
//!   else no. ] HEADERS_MAX times
//! A = wanted? yes.  no.
//! ```
//!
//! Sources: RFC 8200, 4.1 to 4.8; RFC 4302, 2.2 (the length of an authentication header counts 32-bit words less two).

use super::{Exits, Generator};
use crate::predicate::{HEADERS_MAX, HeaderChain};
use tapline_bpf::cfg::{Alu, BlockId, JumpTest, Operand, Statement, Terminator, Width};

const HOP_BY_HOP: u32 = 0;
const ROUTING: u32 = 43;
const FRAGMENT: u32 = 44;
const AUTHENTICATION: u32 = 51;
const NO_NEXT_HEADER: u32 = 59;
const DESTINATION_OPTIONS: u32 = 60;

impl Generator {
    pub(super) fn headers(&mut self, headers: &HeaderChain, exits: Exits) -> BlockId {
        let mut next = self.ask(u32::from(headers.protocol), exits);
        for _ in 0..HEADERS_MAX {
            next = self.header(headers, next, exits);
        }
        let code = match headers.version {
            4 => vec![
                Statement::LoadPacket(Width::Byte, headers.start.wrapping_add(9)),
                Statement::LoadXHeaderLen(headers.start),
            ],
            _ => vec![
                Statement::LoadPacket(Width::Byte, headers.start.wrapping_add(6)),
                Statement::LoadXConst(40),
            ],
        };
        self.cfg.push(code, Terminator::Goto(next))
    }

    /// One header: found, at the end, or over it to `next`.
    fn header(&mut self, headers: &HeaderChain, next: BlockId, exits: Exits) -> BlockId {
        let over_authentication = self.over(headers, 2, 4, next);
        let mut other = self.ask(AUTHENTICATION, Exits { yes: over_authentication, no: exits.no });
        if headers.version == 6 {
            let over_extension = self.over(headers, 1, 8, next);
            for extension in [FRAGMENT, ROUTING, DESTINATION_OPTIONS, HOP_BY_HOP] {
                other = self.ask(extension, Exits { yes: over_extension, no: other });
            }
        }
        let not_found = self.ask(NO_NEXT_HEADER, Exits { yes: exits.no, no: other });
        self.ask(u32::from(headers.protocol), Exits { yes: exits.yes, no: not_found })
    }

    /// A = the protocol after the header at X, X = the header's end. The protocol waits in a free cell.
    fn over(&mut self, headers: &HeaderChain, units_more: u32, unit: u32, next: BlockId) -> BlockId {
        let cell = self.first_free_cell;
        let code = vec![
            Statement::LoadIndexed(Width::Byte, headers.start),
            Statement::Store(cell),
            Statement::LoadIndexed(Width::Byte, headers.start.wrapping_add(1)),
            Statement::Alu(Alu::Add, Operand::K(units_more)),
            Statement::Alu(Alu::Mul, Operand::K(unit)),
            Statement::Alu(Alu::Add, Operand::X),
            Statement::Tax,
            Statement::LoadCell(cell),
        ];
        self.cfg.push(code, Terminator::Goto(next))
    }

    fn ask(&mut self, protocol: u32, exits: Exits) -> BlockId {
        self.branch(Vec::new(), JumpTest::Equal, Operand::K(protocol), exits)
    }
}
