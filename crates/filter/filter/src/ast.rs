//! The tree of a filter's text, before names, qualifiers and offsets are resolved.
//!
//! ```text
//! ast       := expr?                                  -- nothing accepts every packet
//! expr      := expr (joint expr)+                     -- `and` and `or` bind alike, from left to right
//!            | not expr | ( expr )
//!            | qualifiers expr                        -- the ids inside take these qualifiers
//!            | id                                     -- takes the qualifiers before it; the text left them out
//!            | protocol | arith relop arith | primitive
//!            | modifier ( expr )                      -- libpcap has none
//! qualifiers:= protocol? direction? type?             -- at least one
//! id        := name | number | ipv4 (/n | mask ipv4)? | ipv6 (/n)? | mac | mac8
//! arith     := number | len | protocol [ arith : size ] | - arith | arith op arith
//! ```

mod display;
mod primitive;

use std::net::Ipv6Addr;

use tapline_syntax::Span;

pub use primitive::{
    AtmField, AtmType, ByteOp, LlcType, Mtp2Format, Mtp2Type, Mtp3Field, PfField, Primitive, WlanField,
};

/// A parsed filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ast {
    /// `None` for an empty text, which accepts every packet.
    pub root: Option<Expr>,
}

/// A part of a filter and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    /// The kind of the part.
    pub kind: ExprKind,
    /// Place in the text.
    pub span: Span,
}

/// The kind of a part of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExprKind {
    /// `a and b or c`: from left to right.
    Chain(Box<Expr>, Vec<(BoolOp, Expr)>),
    /// `not a`.
    Not(Box<Expr>),
    /// `(a)`.
    Group(Box<Expr>),
    /// `tcp dst port a`: the ids in `a` take these qualifiers.
    Qualified(Qualifiers, Box<Expr>),
    /// An address, a port, a name: the qualifiers before it decide its meaning.
    Id(Id),
    /// A protocol by itself.
    Protocol(Protocol),
    /// A comparison of numbers.
    Relation(Arith, Relop, Arith),
    /// Anything else.
    Primitive(Primitive),
    /// `inner(a)`: `a` is tested under a modifier.
    Modified(Modifier, Box<Expr>),
}

/// A word of our own before parentheses, which changes the evaluation of their contents. libpcap refuses a name
/// before a parenthesis, so no text that it takes has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modifier {
    /// `scoped(...)`: the shift of `vlan` and its like ends with their parentheses and at `or`.
    Scoped,
    /// `extensions(...)`: the payload of IPv6 is looked for behind its extension headers.
    Extensions,
    /// `anyvlan(...)`: behind no VLAN tag, one, or two.
    AnyVlan,
    /// `inner(...)`, `inner(gre, ...)`: in the packet that a tunnel carries.
    Inner(Option<TunnelSelector>),
}

impl Modifier {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Modifier::Scoped => "scoped",
            Modifier::Extensions => "extensions",
            Modifier::AnyVlan => "anyvlan",
            Modifier::Inner(_) => "inner",
        }
    }
}

/// A kind of tunnel, and which tunnel of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelSelector {
    /// The kind.
    pub kind: TunnelKind,
    /// GRE's key, VXLAN's or Geneve's network, GTP's endpoint, ERSPAN's session; `None` for any.
    pub id: Option<u32>,
}

tapline_packet::named_enum! {
    /// Kinds of tunnels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TunnelKind {
        /// GRE (RFC 2784, RFC 2890) with any payload but ERSPAN.
        Gre = "gre",
        /// VXLAN (RFC 7348) over UDP to port 4789.
        Vxlan = "vxlan",
        /// Geneve (RFC 8926) over UDP to port 6081.
        Geneve = "geneve",
        /// GTP-U (3GPP TS 29.281) over UDP to port 2152.
        Gtp = "gtp",
        /// IPv4 or IPv6 in IPv4 or IPv6 (RFC 2003, RFC 2473, RFC 4213).
        Ipip = "ipip",
        /// ERSPAN of type I, II or III over GRE.
        Erspan = "erspan",
    }
}

/// The kinds of fragments that a filter can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragments {
    /// Any part of a packet that was cut.
    Any,
    /// The first part, which has the transport header.
    First,
    /// A later part.
    Later,
}

/// The operator that joins two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BoolOp {
    And,
    Or,
}

/// The qualifiers before an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qualifiers {
    /// `tcp`, `ip`, `ether`.
    pub protocol: Option<Protocol>,
    /// `src`, `dst`.
    pub direction: Option<Direction>,
    /// `host`, `port`.
    pub kind: Option<IdKind>,
}

tapline_packet::named_enum! {
    /// Words that name a protocol.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Protocol {
        Link = "link",
        Ip = "ip",
        Arp = "arp",
        Rarp = "rarp",
        Sctp = "sctp",
        Tcp = "tcp",
        Udp = "udp",
        Icmp = "icmp",
        Igmp = "igmp",
        Igrp = "igrp",
        Pim = "pim",
        Vrrp = "vrrp",
        Carp = "carp",
        Radio = "radio",
        Ip6 = "ip6",
        Icmp6 = "icmp6",
        Ah = "ah",
        Esp = "esp",
        Atalk = "atalk",
        Aarp = "aarp",
        Decnet = "decnet",
        Lat = "lat",
        Sca = "sca",
        Moprc = "moprc",
        Mopdl = "mopdl",
        Iso = "iso",
        Esis = "esis",
        Isis = "isis",
        IsisL1 = "l1",
        IsisL2 = "l2",
        IsisIih = "iih",
        IsisLsp = "lsp",
        IsisSnp = "snp",
        IsisCsnp = "csnp",
        IsisPsnp = "psnp",
        Clnp = "clnp",
        Stp = "stp",
        Ipx = "ipx",
        Netbeui = "netbeui",
    }
}

tapline_packet::named_enum! {
    /// The address of a packet, of two (802.11: of four), that a primitive tests; none given means either.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Direction {
        Src = "src",
        Dst = "dst",
        SrcOrDst = "src or dst",
        SrcAndDst = "src and dst",
        Addr1 = "addr1",
        Addr2 = "addr2",
        Addr3 = "addr3",
        Addr4 = "addr4",
        Ra = "ra",
        Ta = "ta",
    }
}

tapline_packet::named_enum! {
    /// The kind of an id; a host by default.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum IdKind {
        Host = "host",
        Net = "net",
        Port = "port",
        Portrange = "portrange",
        Proto = "proto",
        Protochain = "protochain",
        Gateway = "gateway",
    }
}

/// An id: a name, number or address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    /// A name, to be looked up.
    Name(String),
    /// A bare number.
    Number(u32),
    /// Two to four numbers with dots, as written.
    Ipv4(String),
    /// `10.0.0.0/8`: address as written, prefix length.
    Ipv4Prefix(String, u32),
    /// `10.0.0.0 mask 255.0.0.0`, both as written.
    Ipv4Mask(String, String),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// `2001:db8::/32`.
    Ipv6Prefix(Ipv6Addr, u32),
    /// A 48-bit link-layer address.
    Mac([u8; 6]),
    /// An 8-bit link-layer address, written `$5c`.
    Mac8(u8),
}

/// A number that is computed for each packet: 32 bits, unsigned, wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arith {
    /// A number.
    Number(u32),
    /// The packet's length on the wire.
    Len,
    /// `protocol[index:size]`.
    Load {
        /// The header that the index counts from.
        protocol: Protocol,
        /// The first byte.
        index: Box<Arith>,
        /// 1, 2 or 4; as written, so not yet checked.
        size: u32,
        /// Place in the text.
        span: Span,
    },
    /// `-a`.
    Negate(Box<Arith>),
    /// `a op b`.
    Binary {
        /// The operator.
        op: ArithOp,
        /// The left operand.
        left: Box<Arith>,
        /// The right operand.
        right: Box<Arith>,
        /// The place of the whole in the text.
        span: Span,
    },
}

tapline_packet::named_enum! {
    /// Operators of arithmetic.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum ArithOp {
        Add = "+",
        Sub = "-",
        Mul = "*",
        Div = "/",
        Mod = "%",
        And = "&",
        Or = "|",
        Xor = "^",
        ShiftLeft = "<<",
        ShiftRight = ">>",
    }
}

tapline_packet::named_enum! {
    /// Operators of comparison; numbers are unsigned.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Relop {
        Equal = "=",
        NotEqual = "!=",
        Greater = ">",
        GreaterEqual = ">=",
        Less = "<",
        LessEqual = "<=",
    }
}

tapline_packet::named_enum! {
    /// Words that are neither protocols nor operators.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Keyword {
        Src = "src",
        Dst = "dst",
        Host = "host",
        Net = "net",
        Mask = "mask",
        Port = "port",
        Portrange = "portrange",
        Proto = "proto",
        Protochain = "protochain",
        Gateway = "gateway",
        Type = "type",
        Subtype = "subtype",
        Dir = "dir",
        Addr1 = "addr1",
        Addr2 = "addr2",
        Addr3 = "addr3",
        Addr4 = "addr4",
        Ra = "ra",
        Ta = "ta",
        Less = "less",
        Greater = "greater",
        Byte = "byte",
        Broadcast = "broadcast",
        Multicast = "multicast",
        Len = "len",
        Inbound = "inbound",
        Outbound = "outbound",
        Ifindex = "ifindex",
        Vlan = "vlan",
        Mpls = "mpls",
        Pppoed = "pppoed",
        Pppoes = "pppoes",
        Geneve = "geneve",
        Vxlan = "vxlan",
        Llc = "llc",
        Ifname = "ifname",
        Ruleset = "ruleset",
        Rulenum = "rulenum",
        Subrulenum = "subrulenum",
        Reason = "reason",
        Action = "action",
        Lane = "lane",
        Metac = "metac",
        Bcc = "bcc",
        Oam = "oam",
        Oamf4 = "oamf4",
        Oamf4ec = "oamf4ec",
        Oamf4sc = "oamf4sc",
        Sc = "sc",
        Ilmic = "ilmic",
        Vpi = "vpi",
        Vci = "vci",
        Connectmsg = "connectmsg",
        Metaconnect = "metaconnect",
        Fisu = "fisu",
        Lssu = "lssu",
        Msu = "msu",
        Hfisu = "hfisu",
        Hlssu = "hlssu",
        Hmsu = "hmsu",
        Sio = "sio",
        Opc = "opc",
        Dpc = "dpc",
        Sls = "sls",
        Hsio = "hsio",
        Hopc = "hopc",
        Hdpc = "hdpc",
        Hsls = "hsls",
    }
}
