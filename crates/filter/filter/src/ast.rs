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

/// Kinds of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// GRE (RFC 2784, RFC 2890) with any payload but ERSPAN.
    Gre,
    /// VXLAN (RFC 7348) over UDP to port 4789.
    Vxlan,
    /// Geneve (RFC 8926) over UDP to port 6081.
    Geneve,
    /// GTP-U (3GPP TS 29.281) over UDP to port 2152.
    Gtp,
    /// IPv4 or IPv6 in IPv4 or IPv6 (RFC 2003, RFC 2473, RFC 4213).
    Ipip,
    /// ERSPAN of type I, II or III over GRE.
    Erspan,
}

impl TunnelKind {
    /// All of them.
    pub const ALL: [TunnelKind; 6] = [
        TunnelKind::Gre,
        TunnelKind::Vxlan,
        TunnelKind::Geneve,
        TunnelKind::Gtp,
        TunnelKind::Ipip,
        TunnelKind::Erspan,
    ];

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            TunnelKind::Gre => "gre",
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::Gtp => "gtp",
            TunnelKind::Ipip => "ipip",
            TunnelKind::Erspan => "erspan",
        }
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

/// Words that name a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Protocol {
    Link,
    Ip,
    Arp,
    Rarp,
    Sctp,
    Tcp,
    Udp,
    Icmp,
    Igmp,
    Igrp,
    Pim,
    Vrrp,
    Carp,
    Radio,
    Ip6,
    Icmp6,
    Ah,
    Esp,
    Atalk,
    Aarp,
    Decnet,
    Lat,
    Sca,
    Moprc,
    Mopdl,
    Iso,
    Esis,
    Isis,
    IsisL1,
    IsisL2,
    IsisIih,
    IsisLsp,
    IsisSnp,
    IsisCsnp,
    IsisPsnp,
    Clnp,
    Stp,
    Ipx,
    Netbeui,
}

impl Protocol {
    /// The word; `link` for its seven words.
    pub fn word(self) -> &'static str {
        match self {
            Protocol::Link => "link",
            Protocol::Ip => "ip",
            Protocol::Arp => "arp",
            Protocol::Rarp => "rarp",
            Protocol::Sctp => "sctp",
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Icmp => "icmp",
            Protocol::Igmp => "igmp",
            Protocol::Igrp => "igrp",
            Protocol::Pim => "pim",
            Protocol::Vrrp => "vrrp",
            Protocol::Carp => "carp",
            Protocol::Radio => "radio",
            Protocol::Ip6 => "ip6",
            Protocol::Icmp6 => "icmp6",
            Protocol::Ah => "ah",
            Protocol::Esp => "esp",
            Protocol::Atalk => "atalk",
            Protocol::Aarp => "aarp",
            Protocol::Decnet => "decnet",
            Protocol::Lat => "lat",
            Protocol::Sca => "sca",
            Protocol::Moprc => "moprc",
            Protocol::Mopdl => "mopdl",
            Protocol::Iso => "iso",
            Protocol::Esis => "esis",
            Protocol::Isis => "isis",
            Protocol::IsisL1 => "l1",
            Protocol::IsisL2 => "l2",
            Protocol::IsisIih => "iih",
            Protocol::IsisLsp => "lsp",
            Protocol::IsisSnp => "snp",
            Protocol::IsisCsnp => "csnp",
            Protocol::IsisPsnp => "psnp",
            Protocol::Clnp => "clnp",
            Protocol::Stp => "stp",
            Protocol::Ipx => "ipx",
            Protocol::Netbeui => "netbeui",
        }
    }
}

/// The address of a packet, of two (802.11: of four), that a primitive tests; none given means either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Direction {
    Src,
    Dst,
    SrcOrDst,
    SrcAndDst,
    Addr1,
    Addr2,
    Addr3,
    Addr4,
    Ra,
    Ta,
}

impl Direction {
    /// The word or words.
    pub fn word(self) -> &'static str {
        match self {
            Direction::Src => "src",
            Direction::Dst => "dst",
            Direction::SrcOrDst => "src or dst",
            Direction::SrcAndDst => "src and dst",
            Direction::Addr1 => "addr1",
            Direction::Addr2 => "addr2",
            Direction::Addr3 => "addr3",
            Direction::Addr4 => "addr4",
            Direction::Ra => "ra",
            Direction::Ta => "ta",
        }
    }
}

/// The kind of an id; a host by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum IdKind {
    Host,
    Net,
    Port,
    Portrange,
    Proto,
    Protochain,
    Gateway,
}

impl IdKind {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            IdKind::Host => "host",
            IdKind::Net => "net",
            IdKind::Port => "port",
            IdKind::Portrange => "portrange",
            IdKind::Proto => "proto",
            IdKind::Protochain => "protochain",
            IdKind::Gateway => "gateway",
        }
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

/// Operators of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ArithOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// Operators of comparison; numbers are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Relop {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// Words that are neither protocols nor operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Keyword {
    Src,
    Dst,
    Host,
    Net,
    Mask,
    Port,
    Portrange,
    Proto,
    Protochain,
    Gateway,
    Type,
    Subtype,
    Dir,
    Addr1,
    Addr2,
    Addr3,
    Addr4,
    Ra,
    Ta,
    Less,
    Greater,
    Byte,
    Broadcast,
    Multicast,
    Len,
    Inbound,
    Outbound,
    Ifindex,
    Vlan,
    Mpls,
    Pppoed,
    Pppoes,
    Geneve,
    Vxlan,
    Llc,
    Ifname,
    Ruleset,
    Rulenum,
    Subrulenum,
    Reason,
    Action,
    Lane,
    Metac,
    Bcc,
    Oam,
    Oamf4,
    Oamf4ec,
    Oamf4sc,
    Sc,
    Ilmic,
    Vpi,
    Vci,
    Connectmsg,
    Metaconnect,
    Fisu,
    Lssu,
    Msu,
    Hfisu,
    Hlssu,
    Hmsu,
    Sio,
    Opc,
    Dpc,
    Sls,
    Hsio,
    Hopc,
    Hdpc,
    Hsls,
}

impl ArithOp {
    /// The operator as written.
    pub fn symbol(self) -> &'static str {
        match self {
            ArithOp::Add => "+",
            ArithOp::Sub => "-",
            ArithOp::Mul => "*",
            ArithOp::Div => "/",
            ArithOp::Mod => "%",
            ArithOp::And => "&",
            ArithOp::Or => "|",
            ArithOp::Xor => "^",
            ArithOp::ShiftLeft => "<<",
            ArithOp::ShiftRight => ">>",
        }
    }
}

impl Relop {
    /// The operator as written.
    pub fn symbol(self) -> &'static str {
        match self {
            Relop::Equal => "=",
            Relop::NotEqual => "!=",
            Relop::Greater => ">",
            Relop::GreaterEqual => ">=",
            Relop::Less => "<",
            Relop::LessEqual => "<=",
        }
    }
}
