//! The tree to predicates: qualifiers inherited, names looked up, offsets computed.
//!
//! ```text
//! expr, inherited qualifiers --> predicate, qualifiers that the next part inherits
//!
//! qualified(q, e)   e inherits q; the next part too
//! id                means what the inherited qualifiers say; none: an error
//! ( e )             e inherits; the next part inherits what stood before the parenthesis
//! anything else     the next part has nothing to inherit
//! ```
//!
//! Two things are carried from left to right ([`state`]): where each header is ([`layers::Layers`]), and whether the
//! cells for the transport header hold good. `vlan`, `mpls`, `pppoes`, `geneve`, `vxlan` and `lane` move the headers
//! for all text to their right, whatever parentheses and `or` there are; this is how libpcap means it, and filters in
//! the field rely on it. Scoped, a move ends with its parenthesis, with `not`, and at `or`:
//!
//! ```text
//! scoped chain   p1 and p2 or p3 and p4         p2 is moved by p1; p3 and p4 start where p1 started
//! scoped         not p, ( p ), modifier ( p )   parts behind it start where p started
//! ```

mod address;
mod arith;
mod atm;
mod decnet;
mod direction;
mod encapsulation;
mod host;
mod layers;
mod link;
mod loopback;
mod modifier;
mod mtp;
mod numbers;
mod other;
mod pflog;
mod port;
mod prefix;
mod proto;
pub(crate) mod state;
mod transport;
mod tunnel;
mod wlan;

use tapline_packet::LinkType;

use crate::ast::{Ast, BoolOp, Expr, ExprKind, Modifier, Primitive, Qualifiers};
use crate::options::Options;
use crate::predicate::{Predicate, Predicates, ScratchCell};
use layers::Layers;
use state::{Flow, Probe};
use tapline_bpf::cfg::CELLS;
use tapline_syntax::{Error, Span};

/// Resolves a tree for the link type, the handle and the names of `options`.
///
/// # Errors
/// If a name is unknown, a number too large, or something is asked that the link type cannot answer.
pub fn lower(ast: &Ast, options: &Options) -> Result<Predicates> {
    lower_observed(ast, options, &mut Probe::default())
}

/// Lowers a tree; `probe` leaves parts out and learns the tests of each part.
pub(crate) fn lower_observed(ast: &Ast, options: &Options, probe: &mut Probe) -> Result<Predicates> {
    if options.snap_len == 0 {
        return Err(Error::whole("snaplen of 0 rejects all packets"));
    }
    let mut scope = Scope::new(options, probe)?;
    let Some(root) = &ast.root else {
        return Ok(Predicates { root: Predicate::Constant(true), cells: 0, provable: false });
    };
    scope.reserve_transport(root)?;
    let predicate = match options.any_vlan {
        true => scope.modifier(Modifier::AnyVlan, root, root.span)?,
        false => scope.expr(root, None)?.0,
    };
    scope.finish(predicate)
}

/// A predicate or why there is none.
type Result<T> = std::result::Result<T, Error>;

/// The state of the pass.
struct Scope<'a> {
    options: &'a Options,
    /// Whether shifts end with their parentheses, here.
    scoped: bool,
    /// Whether the payload of IPv6 is looked for behind its extension headers, here.
    extensions: bool,
    layers: Layers,
    /// The version of the layers: a new number with each shift, the old one where a shift ends.
    version: u32,
    versions: u32,
    /// The next cell that is free here, and the first one that never was used.
    cells: u8,
    cells_max: u8,
    /// Set when a cell is read, so that only those are computed.
    cell_used: [bool; CELLS as usize],
    /// The most cells that one relation needs in addition to those above, and its place.
    arith_cells: (usize, Span),
    /// The cells with the place of the transport header, if the filter asks for that.
    transport: Option<transport::Cells>,
    /// Set when a part reads these cells.
    transport_asked: bool,
    /// The layers for which these cells hold good before the next part, and after the last one.
    known: Option<u32>,
    flow: Flow,
    /// Whether the part is under an odd number of `not`.
    negated: bool,
    /// The parts that moved the headers to where they are: how many, and the last one.
    shifts: (usize, Option<Span>),
    probe: &'a mut Probe,
    /// Whether libpcap's optimiser would look at the program.
    provable: bool,
    /// The error that libpcap's optimiser would report.
    optimiser_error: Option<Error>,
}

impl<'a> Scope<'a> {
    fn new(options: &'a Options, probe: &'a mut Probe) -> Result<Scope<'a>> {
        let mut scope = Scope {
            options,
            scoped: options.scoped,
            extensions: options.ipv6_extensions,
            layers: Layers::default(),
            version: 0,
            versions: 0,
            cells: 0,
            cells_max: 0,
            cell_used: [false; CELLS as usize],
            arith_cells: (0, Span::default()),
            transport: None,
            transport_asked: false,
            known: None,
            flow: Flow::default(),
            negated: false,
            shifts: (0, None),
            probe,
            provable: true,
            optimiser_error: None,
        };
        scope.layers = scope.initial_layers()?;
        Ok(scope)
    }

    /// The first header of each packet.
    fn link_type(&self) -> LinkType {
        self.layers.link
    }

    /// A cell that is free here. Unless shifts end here, the cell is one that was never written, so that it is 0
    /// before.
    fn new_cell(&mut self) -> Result<ScratchCell> {
        let next = if self.scoped { self.cells } else { self.cells_max };
        if next >= CELLS {
            return Err(too_many_cells());
        }
        self.cells = next + 1;
        self.cells_max = self.cells_max.max(self.cells);
        Ok(ScratchCell(next))
    }

    fn finish(self, predicate: Predicate) -> Result<Predicates> {
        let (needed, span) = self.arith_cells;
        if usize::from(self.cells_max) + needed > usize::from(CELLS) {
            return Err(too_many_cells().with_place_if_none(span));
        }
        if let Some(error) = &self.optimiser_error
            && self.options.optimise
            && self.provable
        {
            return Err(error.clone());
        }
        let (before, provable) = self.prefix();
        Ok(Predicates {
            root: Predicate::all(before.into_iter().chain([predicate])),
            cells: self.cells_max,
            provable,
        })
    }

    fn expr(
        &mut self,
        expr: &Expr,
        inherited: Option<Qualifiers>,
    ) -> Result<(Predicate, Option<Qualifiers>)> {
        match &expr.kind {
            ExprKind::Chain(first, rest) => self.chain(first, rest, inherited),
            ExprKind::Not(inner) => {
                self.negated = !self.negated;
                let lowered = self.bracketed(inner, inherited);
                self.negated = !self.negated;
                self.flow = self.flow.not();
                lowered.map(|(predicate, next)| (predicate.not(), next))
            }
            ExprKind::Group(inner) => {
                let (predicate, _) = self.bracketed(inner, inherited)?;
                Ok((predicate, inherited))
            }
            ExprKind::Qualified(qualifiers, inner) => self.expr(inner, Some(*qualifiers)),
            ExprKind::Modified(modifier, inner) => Ok((self.modifier(*modifier, inner, expr.span)?, None)),
            ExprKind::Id(id) => {
                let label = || inherited.map_or(String::new(), |words| format!("{words} ")) + &id.to_string();
                let predicate = self.part(expr.span, label, |scope| scope.id(id, inherited))?;
                Ok((predicate, inherited))
            }
            _ => Ok((self.part(expr.span, String::new, |scope| scope.leaf(expr))?, None)),
        }
    }

    fn chain(
        &mut self,
        first: &Expr,
        rest: &[(BoolOp, Expr)],
        inherited: Option<Qualifiers>,
    ) -> Result<(Predicate, Option<Qualifiers>)> {
        let start = self.mark();
        let (mut predicate, mut inherited) = self.expr(first, inherited)?;
        let mut flow = self.flow;
        let mut only_and = true;
        for (joint, part) in rest {
            only_and &= *joint == BoolOp::And;
            if self.scoped && !only_and {
                self.return_to(&start);
            }
            self.known = flow.before(*joint);
            let (part, next) = self.expr(part, inherited)?;
            flow = flow.joined(*joint, self.flow);
            predicate = predicate.joined(*joint, part);
            inherited = next;
        }
        if self.scoped && !only_and {
            self.return_to(&start);
        }
        self.flow = flow;
        Ok((predicate, inherited))
    }

    /// The content of parentheses or of `not`: scoped, its shifts end with it.
    fn bracketed(
        &mut self,
        inner: &Expr,
        inherited: Option<Qualifiers>,
    ) -> Result<(Predicate, Option<Qualifiers>)> {
        let start = self.mark();
        let lowered = self.expr(inner, inherited)?;
        if self.scoped {
            self.return_to(&start);
        }
        Ok(lowered)
    }

    /// One part of a filter that tests the packet: the result of `lower`, after the transport header is found if it
    /// needs that.
    fn part(
        &mut self,
        span: Span,
        label: impl FnOnce() -> String,
        lower: impl FnOnce(&mut Self) -> Result<Predicate>,
    ) -> Result<Predicate> {
        let (before, version, shifts) = (self.layers, self.version, self.shifts);
        self.transport_asked = false;
        let predicate = lower(self).map_err(|error| error.with_place_if_none(span))?;
        let moves = self.layers != before;
        if moves {
            self.shifted(span);
        }
        let asked = std::mem::take(&mut self.transport_asked);
        let predicate = self.probe.part(predicate, self.negated, span, label, shifts, moves);
        let predicate = match asked && self.known != Some(version) {
            true => self.find_transport_in(before)?.and(predicate),
            false => predicate,
        };
        self.known = if asked { Some(version) } else { self.known };
        self.flow = Flow::both(self.known);
        Ok(predicate)
    }

    fn leaf(&mut self, expr: &Expr) -> Result<Predicate> {
        match &expr.kind {
            ExprKind::Protocol(protocol) => self.protocol(*protocol),
            ExprKind::Relation(left, op, right) => self.relation(left, *op, right, expr.span),
            ExprKind::Primitive(primitive) => self.primitive(primitive),
            _ => Err(Error::whole("syntax error in filter expression")),
        }
    }

    fn primitive(&mut self, primitive: &Primitive) -> Result<Predicate> {
        match primitive {
            Primitive::Broadcast(protocol) => self.broadcast(*protocol),
            Primitive::Multicast(protocol) => self.multicast(*protocol),
            Primitive::Less(len) => Ok(self.less(*len)),
            Primitive::Greater(len) => Ok(self.greater(*len)),
            Primitive::Byte(index, op, value) => self.byte(*index, *op, *value),
            Primitive::Inbound => self.direction(false),
            Primitive::Outbound => self.direction(true),
            Primitive::IfIndex(index) => self.if_index(*index),
            Primitive::Vlan(id) => self.vlan(*id),
            Primitive::Mpls(label) => self.mpls(*label),
            Primitive::Pppoed => self.pppoed(),
            Primitive::Pppoes(session) => self.pppoes(*session),
            Primitive::Geneve(vni) => self.geneve(*vni),
            Primitive::Vxlan(vni) => self.vxlan(*vni),
            Primitive::Fragment(which) => self.fragment(*which),
            Primitive::Llc(kind) => self.llc(*kind),
            Primitive::Pf(field) => self.pf(field),
            Primitive::Wlan(field) => self.wlan_field(*field),
            Primitive::AtmField(field, values) => self.atm_field(*field, values),
            Primitive::Atm(kind) => self.atm(*kind),
            Primitive::Mtp2(kind, link) => self.mtp2(*kind, *link),
            Primitive::Mtp3(field, link, values) => self.mtp3(*field, *link, values),
        }
    }

    /// `'word' not supported on` this link type.
    fn unsupported(&self, word: &str) -> Error {
        Error::whole(format!("'{word}' not supported on {}", self.link_name()))
    }

    /// The link type as libpcap's messages name it: `DLT_EN10MB (Ethernet)`.
    fn link_name(&self) -> String {
        let link = self.link_type();
        match (link.name(), link.description()) {
            (Some(name), Some(description)) => format!("DLT_{name} ({description})"),
            (Some(name), None) => format!("DLT_{name}"),
            _ => format!("DLT {}", link.dlt()),
        }
    }
}

fn too_many_cells() -> Error {
    Error::whole("too many registers needed to evaluate expression")
        .hint("BPF has 16 scratch cells; compute less at once, or test fewer tunnels in one filter")
}

/// An error if `value` exceeds `max`.
fn check_max(what: &str, value: u32, max: u32) -> Result<()> {
    if value > max {
        return Err(Error::whole(format!("{what} {value} greater than maximum {max}")));
    }
    Ok(())
}

/// `'word' is not a valid qualifier for 'what'`.
fn bad_qualifier(word: &str, what: &str) -> Error {
    Error::whole(format!("'{word}' is not a valid qualifier for '{what}'"))
}

#[cfg(test)]
mod tests;
