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
//! The state that this pass carries from left to right is [`layers::Layers`]: where each header is. `vlan`, `mpls`,
//! `pppoes`, `geneve`, `vxlan` and `lane` move it for all text to their right, whatever parentheses and `or` there are;
//! this is how libpcap means it, and filters in the field rely on it.

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
mod mtp;
mod other;
mod pflog;
mod port;
mod prefix;
mod proto;
mod wlan;

use tapline_packet::LinkType;

use crate::ast::{Ast, Expr, Kind, Primitive, Qualifiers};
use crate::cfg::CELLS;
use crate::error::{Error, Span};
use crate::options::Options;
use crate::predicate::{Cell, Predicate, Predicates};
use layers::Layers;

/// Resolves a tree for the link type, the handle and the names of `options`.
///
/// # Errors
/// If a name is unknown, a number too large, or something is asked that the link type cannot answer.
pub fn lower(ast: &Ast, options: &Options) -> Result<Predicates> {
    if options.snap_len == 0 {
        return Err(Error::whole("snaplen of 0 rejects all packets"));
    }
    let mut scope = Scope::new(options)?;
    let Some(root) = &ast.root else {
        return Ok(Predicates { root: Predicate::Constant(true), cells: 0, provable: false });
    };
    let (predicate, _) = scope.expr(root, None)?;
    scope.finish(predicate)
}

/// A predicate or why there is none.
type Result<T> = std::result::Result<T, Error>;

/// The state of the pass.
struct Scope<'a> {
    options: &'a Options,
    layers: Layers,
    cells: u8,
    /// Set when a cell is read, so that only those are computed.
    cell_used: [bool; CELLS as usize],
    /// The most cells that one relation needs beside the ones above, and where it stands.
    arith_cells: (usize, Span),
    /// Whether libpcap's optimiser would look at the program.
    provable: bool,
    /// What libpcap's optimiser would complain of.
    optimiser_error: Option<Error>,
}

impl<'a> Scope<'a> {
    fn new(options: &'a Options) -> Result<Scope<'a>> {
        let mut scope = Scope {
            options,
            layers: Layers::default(),
            cells: 0,
            cell_used: [false; CELLS as usize],
            arith_cells: (0, Span::default()),
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

    fn new_cell(&mut self) -> Result<Cell> {
        if self.cells >= CELLS {
            return Err(too_many_cells());
        }
        self.cells += 1;
        Ok(Cell(self.cells - 1))
    }

    fn finish(self, predicate: Predicate) -> Result<Predicates> {
        let (needed, span) = self.arith_cells;
        if usize::from(self.cells) + needed > usize::from(CELLS) {
            return Err(too_many_cells().or_at(span));
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
            cells: self.cells,
            provable,
        })
    }

    fn expr(
        &mut self,
        expr: &Expr,
        inherited: Option<Qualifiers>,
    ) -> Result<(Predicate, Option<Qualifiers>)> {
        match &expr.kind {
            Kind::Chain(first, rest) => {
                let (mut predicate, mut inherited) = self.expr(first, inherited)?;
                let mut parts = Vec::with_capacity(rest.len());
                for (joint, part) in rest {
                    let (part, next) = self.expr(part, inherited)?;
                    parts.push((*joint, part));
                    inherited = next;
                }
                predicate = Predicate::Chain(Box::new(predicate), parts);
                Ok((predicate, inherited))
            }
            Kind::Not(inner) => {
                let (predicate, next) = self.expr(inner, inherited)?;
                Ok((predicate.not(), next))
            }
            Kind::Group(inner) => {
                let (predicate, _) = self.expr(inner, inherited)?;
                Ok((predicate, inherited))
            }
            Kind::Qualified(qualifiers, inner) => self.expr(inner, Some(*qualifiers)),
            Kind::Id(id) => {
                let predicate = self.id(id, inherited).map_err(|error| error.or_at(expr.span))?;
                Ok((predicate, inherited))
            }
            _ => {
                let predicate = self.leaf(expr).map_err(|error| error.or_at(expr.span))?;
                Ok((predicate, None))
            }
        }
    }

    fn leaf(&mut self, expr: &Expr) -> Result<Predicate> {
        match &expr.kind {
            Kind::Protocol(protocol) => self.protocol(*protocol),
            Kind::Relation(left, op, right) => self.relation(left, *op, right, expr.span),
            Kind::Primitive(primitive) => self.primitive(primitive),
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
