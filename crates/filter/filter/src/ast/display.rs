//! The tree as text: a line for each part, indented by depth.
//!
//! ```text
//! chain
//!   tcp dst port
//!     80
//!   or 443
//! ```

use std::fmt;

use super::{
    Arith, Ast, AtmField, BoolOp, Direction, Expr, ExprKind, Fragments, Id, IdKind, LlcType, Modifier,
    PfField, Primitive, Protocol, Qualifiers, Relop, TunnelSelector, WlanField,
};

/// A line for each part, indented by depth.
impl fmt::Display for Ast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.root {
            None => f.write_str("everything\n"),
            Some(root) => write_expr(f, root, 0, ""),
        }
    }
}

fn write_expr(f: &mut fmt::Formatter<'_>, expr: &Expr, depth: usize, label: &str) -> fmt::Result {
    write!(f, "{:width$}{label}", "", width = 2 * depth)?;
    match &expr.kind {
        ExprKind::Chain(first, rest) => {
            f.write_str("chain\n")?;
            write_expr(f, first, depth + 1, "")?;
            rest.iter().try_for_each(|(joint, part)| write_expr(f, part, depth + 1, joint_word(*joint)))
        }
        ExprKind::Not(inner) => write_inner(f, "not", inner, depth),
        ExprKind::Group(inner) => write_inner(f, "group", inner, depth),
        ExprKind::Modified(modifier, inner) => write_inner(f, &modifier.to_string(), inner, depth),
        ExprKind::Qualified(qualifiers, inner) => write_inner(f, &qualifiers.to_string(), inner, depth),
        ExprKind::Id(id) => writeln!(f, "{id}"),
        ExprKind::Protocol(protocol) => writeln!(f, "{}", protocol.name()),
        ExprKind::Relation(left, op, right) => writeln!(f, "{left} {} {right}", op.name()),
        ExprKind::Primitive(primitive) => writeln!(f, "{primitive}"),
    }
}

fn write_inner(f: &mut fmt::Formatter<'_>, name: &str, inner: &Expr, depth: usize) -> fmt::Result {
    writeln!(f, "{name}")?;
    write_expr(f, inner, depth + 1, "")
}

fn joint_word(joint: BoolOp) -> &'static str {
    match joint {
        BoolOp::And => "and ",
        BoolOp::Or => "or ",
    }
}

impl fmt::Display for Qualifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.protocol.map(Protocol::name),
            self.direction.map(Direction::name),
            self.kind.map(IdKind::name),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Modifier::Inner(Some(tunnel)) => write!(f, "inner {tunnel}"),
            modifier => f.write_str(modifier.word()),
        }
    }
}

impl fmt::Display for TunnelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_number(f, self.kind.name(), self.id)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Name(text) | Id::Ipv4(text) => f.write_str(text),
            Id::Number(number) => write!(f, "{number}"),
            Id::Ipv4Prefix(address, len) => write!(f, "{address}/{len}"),
            Id::Ipv4Mask(address, mask) => write!(f, "{address} mask {mask}"),
            Id::Ipv6(address) => write!(f, "{address}"),
            Id::Ipv6Prefix(address, len) => write!(f, "{address}/{len}"),
            Id::Mac([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
            Id::Mac8(address) => write!(f, "${address:02x}"),
        }
    }
}

impl fmt::Display for Arith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arith::Number(number) => write!(f, "{number}"),
            Arith::Len => f.write_str("len"),
            Arith::Load { protocol, index, size: 1, .. } => write!(f, "{}[{index}]", protocol.name()),
            Arith::Load { protocol, index, size, .. } => write!(f, "{}[{index}:{size}]", protocol.name()),
            Arith::Negate(inner) => write!(f, "-{inner}"),
            Arith::Binary { op, left, right, .. } => write!(f, "({left} {} {right})", op.name()),
        }
    }
}

/// As it may be written in a filter, as far as the words are known.
impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Broadcast(protocol) => write!(f, "{}broadcast", word_before(*protocol)),
            Primitive::Multicast(protocol) => write!(f, "{}multicast", word_before(*protocol)),
            Primitive::Less(len) => write!(f, "less {len}"),
            Primitive::Greater(len) => write!(f, "greater {len}"),
            Primitive::Byte(index, op, value) => write!(f, "byte {index} {} {value}", op.name()),
            Primitive::Inbound => f.write_str("inbound"),
            Primitive::Outbound => f.write_str("outbound"),
            Primitive::IfIndex(index) => write!(f, "ifindex {index}"),
            Primitive::Vlan(id) => with_number(f, "vlan", *id),
            Primitive::Mpls(label) => with_number(f, "mpls", *label),
            Primitive::Pppoed => f.write_str("pppoed"),
            Primitive::Pppoes(session) => with_number(f, "pppoes", *session),
            Primitive::Geneve(vni) => with_number(f, "geneve", *vni),
            Primitive::Vxlan(vni) => with_number(f, "vxlan", *vni),
            Primitive::Fragment(Fragments::Any) => f.write_str("fragment()"),
            Primitive::Fragment(Fragments::First) => f.write_str("fragment(first)"),
            Primitive::Fragment(Fragments::Later) => f.write_str("fragment(later)"),
            Primitive::Llc(kind) => write_llc(f, *kind),
            Primitive::Pf(field) => write_pf(f, field),
            Primitive::Wlan(WlanField::Type { value, mask }) => {
                write!(f, "frame control & {mask:#04x} = {value:#04x}")
            }
            Primitive::Wlan(WlanField::Dir(direction)) => write!(f, "dir {direction}"),
            Primitive::AtmField(AtmField::Vpi, values) => write_values(f, "vpi", values),
            Primitive::AtmField(AtmField::Vci, values) => write_values(f, "vci", values),
            Primitive::Atm(kind) => f.write_str(kind.name()),
            Primitive::Mtp2(kind, link) => f.write_str(&link.word(kind.name())),
            Primitive::Mtp3(field, link, values) => write_values(f, &link.word(field.name()), values),
        }
    }
}

fn word_before(protocol: Option<Protocol>) -> String {
    protocol.map(|protocol| format!("{} ", protocol.name())).unwrap_or_default()
}

fn with_number(f: &mut fmt::Formatter<'_>, word: &str, number: Option<u32>) -> fmt::Result {
    match number {
        None => f.write_str(word),
        Some(number) => write!(f, "{word} {number}"),
    }
}

fn write_llc(f: &mut fmt::Formatter<'_>, kind: Option<LlcType>) -> fmt::Result {
    match kind {
        None => f.write_str("llc"),
        Some(LlcType::I) => f.write_str("llc i"),
        Some(LlcType::S) => f.write_str("llc s"),
        Some(LlcType::U) => f.write_str("llc u"),
        Some(LlcType::Supervisory(control) | LlcType::Unnumbered(control)) => {
            write!(f, "llc control {control:#04x}")
        }
    }
}

fn write_pf(f: &mut fmt::Formatter<'_>, field: &PfField) -> fmt::Result {
    match field {
        PfField::Ifname(name) => write!(f, "ifname {name}"),
        PfField::Ruleset(name) => write!(f, "ruleset {name}"),
        PfField::Rulenum(number) => write!(f, "rulenum {number}"),
        PfField::Subrulenum(number) => write!(f, "subrulenum {number}"),
        PfField::Reason(code) => write!(f, "reason {code}"),
        PfField::Action(code) => write!(f, "action {code}"),
    }
}

fn write_values(f: &mut fmt::Formatter<'_>, word: &str, values: &[(Relop, u32)]) -> fmt::Result {
    let values: Vec<String> = values.iter().map(|(op, value)| format!("{} {value}", op.name())).collect();
    write!(f, "{word} {}", values.join(" or "))
}
