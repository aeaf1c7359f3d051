//! Modifiers, and the filters in their parentheses.
//!
//! ```text
//! scoped(e)       e, its shifts ending with their parentheses and at `or`
//! extensions(e)   e, looking behind IPv6's extension headers
//! anyvlan(e)      assign(type's place) and (tag? move 4 and (tag? move 4)) and e          scoped
//! inner(e)        a tunnel was found and e, looking at the packet in it                   scoped
//! ```
//!
//! No shift leaves a modifier.

use tapline_packet::LinkType;

use super::encapsulation::TAGGED;
use super::layers::Offset;
use super::state::Flow;
use super::transport::address;
use super::{Result, Scope};
use crate::ast::{BoolOp, Expr, Modifier};
use crate::options::HandleKind;
use crate::predicate::{Base, FieldOffset, NumberExpr, Predicate};
use tapline_bpf::cfg::Width;
use tapline_syntax::Span;

impl Scope<'_> {
    pub(super) fn modifier(&mut self, modifier: Modifier, inner: &Expr, span: Span) -> Result<Predicate> {
        let start = self.mark();
        let (scoped, extensions) = (self.scoped, self.extensions);
        self.scoped |= modifier != Modifier::Extensions;
        self.extensions |= modifier == Modifier::Extensions;
        let lowered = match modifier {
            Modifier::Scoped | Modifier::Extensions => self.alone(inner),
            Modifier::AnyVlan => self.any_vlan(inner, span),
            Modifier::Inner(tunnel) => self.inner(tunnel, inner, span),
        };
        (self.scoped, self.extensions) = (scoped, extensions);
        self.return_to(&start);
        lowered
    }

    /// A filter in parentheses that takes no qualifiers from before them.
    fn alone(&mut self, inner: &Expr) -> Result<Predicate> {
        self.expr(inner, None).map(|(predicate, _)| predicate)
    }

    /// `before`, which may have moved the headers, and then `inner`.
    pub(super) fn before_inner(&mut self, before: Predicate, inner: &Expr) -> Result<Predicate> {
        let flow = Flow::both(self.known);
        let inner = self.alone(inner)?;
        self.flow = flow.joined(BoolOp::And, self.flow);
        Ok(before.and(inner))
    }

    fn any_vlan(&mut self, inner: &Expr, span: Span) -> Result<Predicate> {
        if !self.may_be_tagged() {
            return self.alone(inner);
        }
        let untagged = match self.link_type() {
            LinkType::IEEE802_11
            | LinkType::IEEE802_11_PRISM
            | LinkType::IEEE802_11_AVS
            | LinkType::IEEE802_11_RADIOTAP => self.over_tags_of_llc()?,
            _ => self.over_tags()?,
        };
        self.shifted(span);
        self.before_inner(untagged, inner)
    }

    /// Whether the link type may have VLAN tags where we look for them.
    fn may_be_tagged(&self) -> bool {
        let link_type = self.link_type();
        self.layers.labels == 0 && (link_type == LinkType::LINUX_SLL || TAGGED.contains(&link_type))
    }

    /// Skips tags. The type is right before the payload; it is found behind no tag, one or two. Holds always.
    fn over_tags(&mut self) -> Result<Predicate> {
        let place = self.new_cell()?;
        let kind = match self.layers.kind {
            Some(kind) => Some((kind, self.new_cell()?)),
            None => None,
        };
        let at = Offset { cell: Some(place), constant: 0 };
        let begin = Predicate::Assign(place, address(self.at_link_type(0)));
        let begin = match kind {
            Some((of, own)) => begin.and(Predicate::Assign(own, NumberExpr::Cell(of))),
            None => begin,
        };
        let moved = Predicate::Assign(place, NumberExpr::Cell(place).plus(4));
        let moved = match kind {
            Some((_, own)) => {
                let at_type = FieldOffset { base: Base::Cell(place), offset: 0 };
                moved.and(Predicate::Assign(own, NumberExpr::load(at_type, Width::Half)))
            }
            None => moved,
        };
        let first = self.is_tagged()?.and(moved.clone());
        let first = match self.may_have_metadata() {
            true => self.tag_in_metadata().or(first),
            false => first,
        };
        self.layers.link_type = at;
        self.layers.payload = at.plus(2);
        self.layers.kind = kind.map(|(_, own)| own);
        self.layers.vlans += 2;
        let second = self.is_tagged()?.and(moved);
        Ok(begin.and(first.and(second).in_any_case()))
    }

    /// Skips tags of 802.2, where they follow the type in the SNAP header.
    fn over_tags_of_llc(&mut self) -> Result<Predicate> {
        let payload = self.new_cell()?;
        let begin = Predicate::Assign(payload, address(self.at_llc(0)));
        let moved = Predicate::Assign(payload, NumberExpr::Cell(payload).plus(4));
        let first = self.is_tagged()?.and(moved.clone());
        self.layers.payload = Offset { cell: Some(payload), constant: 0 };
        self.layers.vlans += 2;
        let second = self.is_tagged()?.and(moved);
        Ok(begin.and(first.and(second).in_any_case()))
    }

    /// Whether the outermost tag may be in the packet's metadata: then the bytes before it are not those of the wire.
    pub(super) fn may_have_metadata(&self) -> bool {
        self.options.handle == HandleKind::Live
            && self.link_type() == LinkType::ETHERNET
            && self.layers.vlans == 0
            && self.layers.link_header == Offset::fixed(0)
    }
}
