//! `inner(...)`: the packet that a tunnel carries.
//!
//! ```text
//! IP  4, 41   IPv4, IPv6
//!     47      GRE: flags, type | [checksum 4] [key 4] [sequence 4] | what the type says
//!               0x88be  ERSPAN: without a sequence number (type I) a frame at once, else 8 bytes before it (type II)
//!               0x22eb  ERSPAN of type III: 12 bytes, or 20 with their last bit set, then a frame or IP
//!               0x6558  a frame;  others: the packet itself, of that EtherType
//! UDP 4789    VXLAN: flag 8, network | a frame
//!     6081    Geneve: version 0, options' length, type, network | options | what the type says
//!     2152    GTP-U: version 1, message 255, endpoint | [4 bytes, with flags; the last begins a chain of
//!               extensions: length in words ... next] | IPv4 or IPv6, as its first four bits say
//! ```
//!
//! Two cells hold the result: the position of its Ethernet header, or where one of 14 bytes would be; and its
//! EtherType. A tunnel's own header is one in a first fragment, over IPv4 or behind IPv6's extension headers.
//!
//! Sources: RFC 2784, RFC 2890; RFC 2003, RFC 2473, RFC 4213; RFC 7348; RFC 8926; 3GPP TS 29.281, 5;
//! draft-foschiano-erspan-03.

use super::layers::{ETHERNET_LEN, Layers, NO_ETHERNET, any_set, equal, masked, not_equal};
use super::numbers::ethertype;
use super::numbers::{ip_protocol, port};
use super::transport::{Cells, is};
use super::{Result, Scope};
use crate::ast::{Expr, TunnelKind, TunnelSelector};
use crate::predicate::{Base, FieldOffset, GTP_EXTENSIONS_MAX, NumberExpr, Predicate, ScratchCell};
use tapline_bpf::cfg::{Alu, Width};
use tapline_syntax::Span;

const UDP_LEN: u32 = 8;

/// GRE's first word: version and RFC 1701's routing, which we do not know; checksum, key, sequence number; type.
const GRE_UNKNOWN: u32 = 0x4007_0000;
const GRE_CHECKSUM: u32 = 0x8000_0000;
const GRE_KEY: u32 = 0x2000_0000;
const GRE_SEQUENCE: u32 = 0x1000_0000;
const GRE_TYPE: u32 = 0xffff;

/// A tunnel's payload, and the transport header in front of the tunnel.
#[derive(Clone, Copy)]
struct TunnelPayload {
    base: ScratchCell,
    kind: ScratchCell,
    outer: Cells,
}

impl Scope<'_> {
    pub(super) fn inner(
        &mut self,
        tunnel: Option<TunnelSelector>,
        inner: &Expr,
        span: Span,
    ) -> Result<Predicate> {
        let word = Span { start: span.start, end: span.start + "inner".len() };
        let (base, kind) = (self.new_cell()?, self.new_cell()?);
        let label = || match tunnel {
            Some(tunnel) => format!("inner({tunnel}, ...)"),
            None => "inner(...)".to_owned(),
        };
        let found = self.part(word, label, |scope| Ok(scope.find_tunnel(tunnel, base, kind)))?;
        self.before_inner(found, inner)
    }

    fn find_tunnel(
        &mut self,
        tunnel: Option<TunnelSelector>,
        base: ScratchCell,
        kind: ScratchCell,
    ) -> Predicate {
        let Some(outer) = self.ask_transport() else { return Predicate::Constant(false) };
        let found = TunnelPayload { base, kind, outer };
        let id = tunnel.and_then(|tunnel| tunnel.id);
        let wanted = TunnelKind::ALL.into_iter().filter(|kind| tunnel.is_none_or(|t| t.kind == *kind));
        let predicate = Predicate::any(wanted.map(|kind| found.by(kind, id)));
        self.count_assigned(&predicate);
        self.layers = Layers::inside(base, kind);
        predicate
    }
}

impl TunnelPayload {
    fn by(self, kind: TunnelKind, id: Option<u32>) -> Predicate {
        match kind {
            TunnelKind::Gre => self.gre(id),
            TunnelKind::Erspan => self.erspan(id),
            TunnelKind::Vxlan => self.vxlan(id),
            TunnelKind::Geneve => self.geneve(id),
            TunnelKind::Gtp => self.gtp(id),
            TunnelKind::Ipip => self.ipip(),
        }
    }

    /// A place in the outer transport header or behind it.
    fn outer(self, offset: u32) -> FieldOffset {
        FieldOffset { base: Base::Cell(self.outer.start), offset }
    }

    /// An offset behind the payload's start.
    fn at(self, offset: u32) -> FieldOffset {
        FieldOffset { base: Base::Cell(self.base), offset }
    }

    fn carried(self, protocol: u32) -> Predicate {
        is(NumberExpr::Cell(self.outer.protocol), protocol)
    }

    fn set_kind(self, value: NumberExpr) -> Predicate {
        Predicate::Assign(self.kind, value)
    }

    /// The base is `offset` bytes behind the start of the outer transport header.
    fn set_base(self, offset: u32) -> Predicate {
        Predicate::Assign(self.base, NumberExpr::Cell(self.outer.start).plus(offset))
    }

    fn move_base(self, by: NumberExpr) -> Predicate {
        Predicate::Assign(self.base, NumberExpr::binary(Alu::Add, by, NumberExpr::Cell(self.base)))
    }

    fn kind_bits(self, mask: u32) -> NumberExpr {
        NumberExpr::binary(Alu::And, NumberExpr::Cell(self.kind), NumberExpr::Constant(mask))
    }

    /// An Ethernet frame begins at the base.
    fn frame(self) -> Predicate {
        self.set_kind(NumberExpr::load(self.at(ETHERNET_LEN - 2), Width::Half))
    }

    /// A packet of a type begins at the base, without a link header.
    fn packet(self, kind: NumberExpr) -> Predicate {
        let marked = NumberExpr::binary(Alu::Or, kind, NumberExpr::Constant(NO_ETHERNET));
        let back = NumberExpr::Cell(self.base).plus(ETHERNET_LEN.wrapping_neg());
        self.set_kind(marked).and(Predicate::Assign(self.base, back))
    }

    /// A packet of IP begins at the base; its version says which.
    fn packet_by_version(self) -> Predicate {
        let version = |bits| masked(self.at(0), Width::Byte, bits, 0xf0, "inner IP version");
        let v4 = version(0x40).and(self.packet(NumberExpr::Constant(ethertype::IPV4)));
        v4.or(version(0x60).and(self.packet(NumberExpr::Constant(ethertype::IPV6))))
    }

    fn ipip(self) -> Predicate {
        let of = |number, kind| {
            let packet = self.set_base(0).and(self.packet(NumberExpr::Constant(kind)));
            self.carried(number).and(packet)
        };
        of(ip_protocol::IPV4, ethertype::IPV4).or(of(ip_protocol::IPV6, ethertype::IPV6))
    }

    /// GRE with a header that we know: its first word is in the cell for the kind, its end is the base.
    fn gre_header(self) -> Predicate {
        let word = self.set_kind(NumberExpr::load(self.outer(0), Width::Word));
        let known = is(self.kind_bits(GRE_UNKNOWN), 0);
        let field = |flag: u32| {
            let shifted = NumberExpr::binary(
                Alu::Shr,
                NumberExpr::Cell(self.kind),
                NumberExpr::Constant(flag.trailing_zeros() - 2),
            );
            NumberExpr::binary(Alu::And, shifted, NumberExpr::Constant(4))
        };
        let fields = NumberExpr::binary(Alu::Add, field(GRE_CHECKSUM), field(GRE_KEY));
        let fields = NumberExpr::binary(Alu::Add, fields, field(GRE_SEQUENCE));
        let end = NumberExpr::binary(Alu::Add, fields, NumberExpr::Cell(self.outer.start)).plus(4);
        self.carried(ip_protocol::GRE).and(word).and(known).and(Predicate::Assign(self.base, end))
    }

    fn gre(self, key: Option<u32>) -> Predicate {
        let of = |kind| is(self.kind_bits(GRE_TYPE), kind);
        let header = self.gre_header().and(of(ethertype::ERSPAN).or(of(ethertype::ERSPAN_III)).not());
        let header = match key {
            Some(key) => header.and(self.gre_key(key)),
            None => header,
        };
        let frame = of(ethertype::TRANSPARENT_BRIDGING).and(self.frame());
        header.and(frame.or(self.packet(self.kind_bits(GRE_TYPE))))
    }

    /// Tests the key, which follows the checksum, if there is one.
    fn gre_key(self, key: u32) -> Predicate {
        let has = |flag| is(self.kind_bits(flag), 0).not();
        let at = |offset| equal(self.outer(offset), Width::Word, key, "GRE key");
        let behind = has(GRE_CHECKSUM).and(at(8));
        has(GRE_KEY).and(behind.or(has(GRE_CHECKSUM).not().and(at(4))))
    }

    fn erspan(self, session: Option<u32>) -> Predicate {
        let of = |kind| is(self.kind_bits(GRE_TYPE), kind);
        let is_session = session.map(|id| masked(self.at(2), Width::Half, id, 0x03ff, "ERSPAN session"));
        let version = |bits| masked(self.at(0), Width::Byte, bits, 0xf0, "ERSPAN version");
        let has_sequence = is(self.kind_bits(GRE_SEQUENCE), 0).not();
        let second = [has_sequence.clone(), version(0x10)].into_iter().chain(is_session.clone());
        let second = Predicate::all(second.chain([self.move_base(NumberExpr::Constant(8))]));
        // Type I has no session.
        let first = match session {
            None => has_sequence.not(),
            Some(_) => Predicate::Constant(false),
        };
        let old = of(ethertype::ERSPAN).and(second.or(first)).and(self.frame());
        let third = [of(ethertype::ERSPAN_III), version(0x20)].into_iter().chain(is_session);
        let new = Predicate::all(third.chain([self.erspan_iii_payload()]));
        self.gre_header().and(old.or(new))
    }

    /// The kind of what a header of type III carries is in bits 14 to 10 of its last half word.
    fn erspan_iii_payload(self) -> Predicate {
        let carries = |kind: u32| masked(self.at(10), Width::Half, kind << 10, 0x7c00, "ERSPAN frame type");
        let more =
            NumberExpr::binary(Alu::And, NumberExpr::load(self.at(11), Width::Byte), NumberExpr::Constant(1));
        let more = NumberExpr::binary(Alu::Shl, more, NumberExpr::Constant(3));
        let over = self.move_base(more.plus(12));
        let frame = carries(0).and(over.clone()).and(self.frame());
        frame.or(carries(2).and(over).and(self.packet_by_version()))
    }

    fn udp_to(self, port: u32) -> Predicate {
        let to = equal(self.outer(2), Width::Half, port, "destination port");
        self.carried(ip_protocol::UDP).and(to)
    }

    /// The 24 bits at 4 in the header behind UDP.
    fn is_network(self, id: Option<u32>) -> Option<Predicate> {
        let at = self.outer(UDP_LEN + 4);
        id.map(|id| masked(at, Width::Word, id << 8, 0xffff_ff00, "virtual network identifier"))
    }

    fn vxlan(self, network: Option<u32>) -> Predicate {
        // The other flags are to be ignored; group policies use one of them.
        let has_network = any_set(self.outer(UDP_LEN), Width::Byte, 0x08, "VXLAN flags");
        let header = [self.udp_to(port::VXLAN), has_network].into_iter().chain(self.is_network(network));
        Predicate::all(header.chain([self.set_base(UDP_LEN + 8), self.frame()]))
    }

    fn geneve(self, network: Option<u32>) -> Predicate {
        let first = self.outer(UDP_LEN);
        let version = masked(first, Width::Byte, 0, 0xc0, "Geneve version");
        let header = [self.udp_to(port::GENEVE), version].into_iter().chain(self.is_network(network));
        let kind = self.set_kind(NumberExpr::load(self.outer(UDP_LEN + 2), Width::Half));
        let options =
            NumberExpr::binary(Alu::And, NumberExpr::load(first, Width::Byte), NumberExpr::Constant(0x3f));
        let options = NumberExpr::binary(Alu::Shl, options, NumberExpr::Constant(2));
        let end = NumberExpr::binary(Alu::Add, options, NumberExpr::Cell(self.outer.start)).plus(UDP_LEN + 8);
        let frame = is(NumberExpr::Cell(self.kind), ethertype::TRANSPARENT_BRIDGING).and(self.frame());
        let carried = frame.or(self.packet(NumberExpr::Cell(self.kind)));
        Predicate::all(header.chain([kind, Predicate::Assign(self.base, end), carried]))
    }

    fn gtp(self, endpoint: Option<u32>) -> Predicate {
        let first = self.outer(UDP_LEN);
        let version = masked(first, Width::Byte, 0x30, 0xf0, "GTP version");
        let message = equal(self.outer(UDP_LEN + 1), Width::Byte, 0xff, "GTP message type");
        let is_endpoint = endpoint.map(|id| equal(self.outer(UDP_LEN + 4), Width::Word, id, "GTP endpoint"));
        let has = |flags| any_set(first, Width::Byte, flags, "GTP flags");
        let short = has(0x07).not().and(self.set_base(UDP_LEN + 8));
        let chained = has(0x04).not().or(self.over_gtp_extensions());
        let long = has(0x07).and(self.set_base(UDP_LEN + 12)).and(chained);
        let header = [self.udp_to(port::GTP_U), version, message].into_iter().chain(is_endpoint);
        Predicate::all(header.chain([short.or(long), self.packet_by_version()]))
    }

    /// Skips the chain of GTP extensions, whose first kind is in the header's last byte. Holds if it ends.
    fn over_gtp_extensions(self) -> Predicate {
        let first = self.set_kind(NumberExpr::load(self.outer(UDP_LEN + 11), Width::Byte));
        let steps = (0..GTP_EXTENSIONS_MAX).map(|_| self.over_gtp_extension());
        let steps = Predicate::all(steps).in_any_case();
        first.and(steps).and(is(NumberExpr::Cell(self.kind), 0))
    }

    fn over_gtp_extension(self) -> Predicate {
        let has_len = not_equal(self.at(0), Width::Byte, 0, "GTP extension length");
        let len =
            NumberExpr::binary(Alu::Shl, NumberExpr::load(self.at(0), Width::Byte), NumberExpr::Constant(2));
        let last = NumberExpr::binary(Alu::Sub, len.clone(), NumberExpr::Constant(1));
        let next = NumberExpr::Load { index: Box::new(last), place: self.at(0), width: Width::Byte };
        let more = is(NumberExpr::Cell(self.kind), 0).not();
        more.and(has_len).and(self.set_kind(next)).and(self.move_base(len))
    }
}
