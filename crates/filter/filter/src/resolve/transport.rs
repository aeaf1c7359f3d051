//! The offset of the transport header, over IPv4 with options and over IPv6 with extension headers.
//!
//! ```text
//! cells   protocol  the number of what is carried; with 0x100 in a later fragment, which has no transport header;
//!                   0x200 if the packet is not IP
//!         start     where its header is
//!         cut       0, or the offset of a fragment (13 bits) and 0x2000 where more follow
//!
//! IPv4    protocol byte 9, start behind the header
//! IPv6    next header byte 6, start at 40, then at most EXTENSIONS_MAX times:
//!           0 43 60   next header at 0, length at 1 in units of 8 bytes, less one
//!           51        next header at 0, length at 1 in units of 4 bytes, less two
//!           44        next header at 0, offset and flag at 2; the first fragment goes on 8 bytes further, a later one ends here
//! ```
//!
//! The chain is followed where the text first needs the header at its end, and again only where the cells may hold
//! something else. A chain that leaves the captured bytes rejects the packet, as any load does.
//!
//! Sources: RFC 8200, 4; RFC 4302, 2.2; RFC 6946 (a fragment header that cuts nothing is none).

use super::layers::{Layers, any_set};
use super::numbers::ethertype;
use super::numbers::ip_protocol;
use super::{Result, Scope};
use crate::ast::{Expr, ExprKind, Fragments, Modifier, Primitive};
use crate::predicate::{Base, EXTENSIONS_MAX, FieldOffset, NumberExpr, Predicate, Relation, ScratchCell};
use tapline_bpf::cfg::{Alu, JumpTest as Compare, Width};
use tapline_packet::numbers::ip_protocol::IPV6_EXTENSIONS;

/// In the protocol's cell: a later fragment.
const LATER: u32 = 0x100;
/// In the protocol's cell: no IP.
const NO_IP: u32 = 0x200;
/// In the cell for fragments: more follow.
const MORE: u32 = 0x2000;
const OFFSET: u32 = 0x1fff;

/// The cells of the transport header.
#[derive(Clone, Copy)]
pub(super) struct Cells {
    pub(super) protocol: ScratchCell,
    pub(super) start: ScratchCell,
    /// Only where the filter asks for fragments.
    cut: Option<ScratchCell>,
}

/// Whether a number is that of an extension header, of which a packet may have several.
pub(super) fn is_extension(protocol: u32) -> bool {
    IPV6_EXTENSIONS.iter().any(|header| u32::from(*header) == protocol)
}

impl Scope<'_> {
    /// Sets cells aside if any part of the filter may ask for the transport header.
    pub(super) fn reserve_transport(&mut self, root: &Expr) -> Result<()> {
        let asks = Asks::of(root);
        if asks.transport || self.extensions {
            let cut = if asks.cut { Some(self.new_cell()?) } else { None };
            self.transport = Some(Cells { protocol: self.new_cell()?, start: self.new_cell()?, cut });
        }
        Ok(())
    }

    /// The cells, which will be filled before the part that asks for them.
    pub(super) fn ask_transport(&mut self) -> Option<Cells> {
        self.transport_asked |= self.transport.is_some();
        self.transport
    }

    /// Fills the cells for these layers; holds always.
    pub(super) fn find_transport_in(&mut self, layers: Layers) -> Result<Predicate> {
        let now = std::mem::replace(&mut self.layers, layers);
        let found = self.find_transport();
        self.layers = now;
        found.inspect(|predicate| self.count_assigned(predicate))
    }

    fn find_transport(&mut self) -> Result<Predicate> {
        let Some(cells) = self.transport else { return Ok(Predicate::Constant(true)) };
        let none = [Predicate::Assign(cells.protocol, NumberExpr::Constant(NO_IP))]
            .into_iter()
            .chain(cells.cut.map(|cut| Predicate::Assign(cut, NumberExpr::Constant(0))));
        let found = self.in_ipv4(cells)?.or(self.in_ipv6(cells)?);
        Ok(Predicate::all(none.chain([found.in_any_case()])))
    }

    fn in_ipv4(&mut self, cells: Cells) -> Result<Predicate> {
        let is_ip = self.link_protocol(ethertype::IPV4)?;
        let protocol = NumberExpr::load(self.at_network(9), Width::Byte);
        let cut = self.at_network(6);
        let start = self.ipv4_end();
        let later = any_set(cut, Width::Half, OFFSET, "IPv4 fragment offset");
        let mark = Predicate::Assign(cells.protocol, flagged(NumberExpr::Cell(cells.protocol)));
        let noted = cells.cut.map(|cell| {
            let bits = NumberExpr::binary(
                Alu::And,
                NumberExpr::load(cut, Width::Half),
                NumberExpr::Constant(MORE | OFFSET),
            );
            Predicate::Assign(cell, bits)
        });
        let parts =
            [is_ip, Predicate::Assign(cells.protocol, protocol), Predicate::Assign(cells.start, start)];
        let parts = parts.into_iter().chain(noted).chain([later.and(mark).in_any_case()]);
        Ok(Predicate::all(parts))
    }

    fn in_ipv6(&mut self, cells: Cells) -> Result<Predicate> {
        let is_ip6 = self.link_protocol(ethertype::IPV6)?;
        let protocol = NumberExpr::load(self.at_network(6), Width::Byte);
        let start = address(self.at_network(40));
        let found =
            [is_ip6, Predicate::Assign(cells.protocol, protocol), Predicate::Assign(cells.start, start)];
        let steps = (0..EXTENSIONS_MAX).map(|_| step(cells));
        Ok(Predicate::all(found.into_iter().chain([Predicate::all(steps).in_any_case()])))
    }

    /// Whether the chain leads to a protocol: in a fragment of any place.
    pub(super) fn carries(&mut self, protocol: u32) -> Option<Predicate> {
        let cells = self.ask_transport()?;
        let value = NumberExpr::binary(
            Alu::And,
            NumberExpr::Cell(cells.protocol),
            NumberExpr::Constant(NO_IP | 0xff),
        );
        Some(is(value, protocol))
    }

    /// Whether the header of a protocol is there: not in later fragments.
    pub(super) fn has_header(&mut self, protocol: u32) -> Option<Predicate> {
        let cells = self.ask_transport()?;
        Some(is(NumberExpr::Cell(cells.protocol), protocol))
    }

    /// The place `offset` bytes into the transport header.
    pub(super) fn at_transport(&mut self, cells: Cells, offset: u32) -> FieldOffset {
        FieldOffset { base: Base::Cell(cells.start), offset }
    }

    /// `fragment()` and its like.
    pub(super) fn fragment(&mut self, which: Fragments) -> Result<Predicate> {
        let Some(Cells { cut: Some(cut), .. }) = self.ask_transport() else {
            return Ok(Predicate::Constant(false));
        };
        Ok(match which {
            Fragments::Any => is(NumberExpr::Cell(cut), 0).not(),
            Fragments::First => is(NumberExpr::Cell(cut), MORE),
            Fragments::Later => {
                is(NumberExpr::binary(Alu::And, NumberExpr::Cell(cut), NumberExpr::Constant(OFFSET)), 0).not()
            }
        })
    }
}

/// Over one extension header. Holds if there may be more behind it.
fn step(cells: Cells) -> Predicate {
    let at = |offset| FieldOffset { base: Base::Cell(cells.start), offset };
    let is_next = |number| is(NumberExpr::Cell(cells.protocol), number);
    let next = || NumberExpr::load(at(0), Width::Byte);
    let over = |more, shift| {
        let units = NumberExpr::load(at(1), Width::Byte).plus(more);
        let len = NumberExpr::binary(Alu::Shl, units, NumberExpr::Constant(shift));
        let end = NumberExpr::binary(Alu::Add, len, NumberExpr::Cell(cells.start));
        Predicate::Assign(cells.protocol, next()).and(Predicate::Assign(cells.start, end))
    };
    let options = is_next(ip_protocol::HOP_BY_HOP)
        .or(is_next(ip_protocol::DESTINATION_OPTIONS))
        .or(is_next(ip_protocol::ROUTING))
        .and(over(1, 3));
    let authentication = is_next(ip_protocol::AH).and(over(2, 2));
    let first = any_set(at(2), Width::Half, 0xfff8, "IPv6 fragment offset").not();
    let behind = Predicate::Assign(cells.start, NumberExpr::Cell(cells.start).plus(8));
    let go_on = first.and(Predicate::Assign(cells.protocol, next())).and(behind);
    let end = Predicate::Assign(cells.protocol, flagged(next())).and(Predicate::Constant(false));
    let noted = cells.cut.map(|cell| Predicate::Assign(cell, cut_of(at(2))));
    let fragment = [is_next(ip_protocol::FRAGMENT)].into_iter().chain(noted).chain([go_on.or(end)]);
    options.or(authentication).or(Predicate::all(fragment))
}

/// The offset and flag of an IPv6 fragment header in the order of IPv4.
fn cut_of(place: FieldOffset) -> NumberExpr {
    let word = NumberExpr::load(place, Width::Half);
    let more = NumberExpr::binary(Alu::And, word.clone(), NumberExpr::Constant(1));
    let more = NumberExpr::binary(Alu::Shl, more, NumberExpr::Constant(13));
    NumberExpr::binary(Alu::Or, NumberExpr::binary(Alu::Shr, word, NumberExpr::Constant(3)), more)
}

fn flagged(value: NumberExpr) -> NumberExpr {
    NumberExpr::binary(Alu::Or, value, NumberExpr::Constant(LATER))
}

/// A value equals a number.
pub(super) fn is(value: NumberExpr, number: u32) -> Predicate {
    Predicate::Relation(Relation {
        left: value,
        compare: Compare::Equal,
        right: NumberExpr::Constant(number),
    })
}

pub(super) fn address(place: FieldOffset) -> NumberExpr {
    match place.base {
        Base::Cell(cell) => NumberExpr::Cell(cell).plus(place.offset),
        _ => NumberExpr::Constant(place.offset),
    }
}

/// The headers that a filter may ask for.
#[derive(Default)]
struct Asks {
    transport: bool,
    cut: bool,
}

impl Asks {
    fn of(root: &Expr) -> Asks {
        let mut asks = Asks::default();
        asks.look(root);
        asks
    }

    fn look(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Chain(first, rest) => {
                self.look(first);
                rest.iter().for_each(|(_, part)| self.look(part));
            }
            ExprKind::Not(inner) | ExprKind::Group(inner) | ExprKind::Qualified(_, inner) => self.look(inner),
            ExprKind::Modified(modifier, inner) => {
                self.transport |= matches!(modifier, Modifier::Extensions | Modifier::Inner(_));
                self.look(inner);
            }
            ExprKind::Primitive(Primitive::Fragment(_)) => {
                self.transport = true;
                self.cut = true;
            }
            _ => {}
        }
    }
}
