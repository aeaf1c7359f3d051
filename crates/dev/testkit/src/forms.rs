//! Random filters of our own forms, as trees and as text.
//!
//! ```text
//! tree := tree (and | or) tree | not tree | (tree) | form(tree) | leaf
//! form := scoped | extensions | anyvlan | inner[kind [id],]
//! leaf := vlan [id] | ip | ip6 | arp | host | protocol | port | byte | fragment()
//! ```

use std::fmt;

use crate::random::Random;

/// Kinds of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// GRE.
    Gre,
    /// VXLAN.
    Vxlan,
    /// Geneve.
    Geneve,
    /// GTP-U.
    Gtp,
    /// IP in IP.
    Ipip,
    /// ERSPAN.
    Erspan,
}

/// The selected fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Any fragment.
    Any,
    /// The first.
    First,
    /// All but the first.
    Later,
}

/// A filter.
#[derive(Clone, Debug)]
pub enum Tree {
    /// Two or more, from left to right. Written without parentheses.
    And(Vec<Tree>),
    /// Two or more, from left to right. Written without parentheses.
    Or(Vec<Tree>),
    /// `and` (false) and `or` (true) as they come.
    Mixed(Box<Tree>, Vec<(bool, Tree)>),
    /// `not ...`
    Not(Box<Tree>),
    /// `(...)`
    Group(Box<Tree>),
    /// `scoped(...)`
    Scoped(Box<Tree>),
    /// `extensions(...)`
    Extensions(Box<Tree>),
    /// `anyvlan(...)`
    AnyVlan(Box<Tree>),
    /// `inner(kind id, ...)`
    Inner(Option<Kind>, Option<u32>, Box<Tree>),
    /// `vlan id`
    Vlan(Option<u16>),
    /// `ip`
    Ip,
    /// `ip6`
    Ip6,
    /// `arp`
    Arp,
    /// 02:00:00:00:00:xx
    EtherHost(u8),
    /// `ip host ...`
    IpHost(u32),
    /// `tcp`, `udp`, `sctp`, `icmp6`.
    Protocol(u8),
    /// `port n`, of one protocol or of any.
    Port(Option<u8>, u16),
    /// `tcp[n] & m != 0`.
    Byte(u8, usize, u8),
    /// `fragment(...)`
    Fragment(Which),
}

fn word(protocol: u8) -> &'static str {
    match protocol {
        6 => "tcp",
        17 => "udp",
        58 => "icmp6",
        _ => "sctp",
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::And(parts) => list(f, parts, " and "),
            Tree::Or(parts) => list(f, parts, " or "),
            Tree::Mixed(first, rest) => {
                write!(f, "{first}")?;
                rest.iter().try_for_each(|(or, part)| write!(f, " {} {part}", if *or { "or" } else { "and" }))
            }
            Tree::Not(inner) => write!(f, "not {inner}"),
            Tree::Group(inner) => write!(f, "({inner})"),
            Tree::Scoped(inner) => write!(f, "scoped({inner})"),
            Tree::Extensions(inner) => write!(f, "extensions({inner})"),
            Tree::AnyVlan(inner) => write!(f, "anyvlan ({inner})"),
            Tree::Inner(None, _, inner) => write!(f, "inner({inner})"),
            Tree::Inner(Some(kind), None, inner) => {
                write!(f, "inner({}, {inner})", format!("{kind:?}").to_lowercase())
            }
            Tree::Inner(Some(kind), Some(id), inner) => {
                write!(f, "inner( {} {id},{inner})", format!("{kind:?}").to_lowercase())
            }
            Tree::Vlan(None) => f.write_str("vlan"),
            Tree::Vlan(Some(id)) => write!(f, "vlan {id}"),
            Tree::Ip => f.write_str("ip"),
            Tree::Ip6 => f.write_str("ip6"),
            Tree::Arp => f.write_str("arp"),
            Tree::EtherHost(last) => write!(f, "ether host 02:00:00:00:00:{last:02x}"),
            Tree::IpHost(address) => write!(f, "ip host {}", std::net::Ipv4Addr::from(*address)),
            Tree::Protocol(protocol) => f.write_str(word(*protocol)),
            Tree::Port(None, port) => write!(f, "port {port}"),
            Tree::Port(Some(protocol), port) => write!(f, "{} port {port}", word(*protocol)),
            Tree::Byte(protocol, at, mask) => write!(f, "{}[{at}] & {mask} != 0", word(*protocol)),
            Tree::Fragment(Which::Any) => f.write_str("fragment()"),
            Tree::Fragment(Which::First) => f.write_str("fragment(first)"),
            Tree::Fragment(Which::Later) => f.write_str("fragment( later )"),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, parts: &[Tree], joint: &str) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        f.write_str(if index > 0 { joint } else { "" })?;
        write!(f, "{part}")?;
    }
    Ok(())
}

const DEPTH_MAX: u32 = 4;

/// A tree for a given depth in another one (0: in none); it contains `vlan` only if it is read scoped.
pub fn tree(random: &mut Random, scoped: bool, depth: u32) -> Tree {
    match random.below(10) {
        0..2 if depth < DEPTH_MAX => {
            let parts = (0..random.between(2..=4)).map(|_| operand(random, scoped, depth + 1)).collect();
            Tree::Or(parts)
        }
        2 if depth < DEPTH_MAX => {
            let first = Box::new(operand(random, scoped, depth + 1));
            let part = |random: &mut Random| (random.one_of(1, 2), operand(random, scoped, depth + 1));
            Tree::Mixed(first, (0..random.between(2..=5)).map(|_| part(random)).collect())
        }
        3..6 if depth < DEPTH_MAX => {
            let parts = (0..random.between(2..=4)).map(|_| operand(random, scoped, depth + 1)).collect();
            Tree::And(parts)
        }
        _ => operand(random, scoped, depth),
    }
}

/// An operand of `and` and `or`.
fn operand(random: &mut Random, scoped: bool, depth: u32) -> Tree {
    if depth >= DEPTH_MAX {
        return leaf(random, scoped);
    }
    let boxed = |random: &mut Random, scoped| Box::new(tree(random, scoped, depth + 1));
    match random.below(16) {
        0 => Tree::Not(Box::new(operand(random, scoped, depth + 1))),
        1..3 => Tree::Group(boxed(random, scoped)),
        3 => Tree::Scoped(boxed(random, true)),
        4 => Tree::Extensions(boxed(random, scoped)),
        5 => Tree::AnyVlan(boxed(random, true)),
        6..9 => {
            let kind = *random.pick(&[
                None,
                None,
                Some(Kind::Gre),
                Some(Kind::Vxlan),
                Some(Kind::Geneve),
                Some(Kind::Gtp),
                Some(Kind::Ipip),
                Some(Kind::Erspan),
            ]);
            let id = kind.filter(|kind| *kind != Kind::Ipip && random.one_of(1, 2)).map(|_| 5);
            Tree::Inner(kind, id, boxed(random, true))
        }
        _ => leaf(random, scoped),
    }
}

fn leaf(random: &mut Random, scoped: bool) -> Tree {
    match random.below(13) {
        0 | 1 if scoped => Tree::Vlan(*random.pick(&[None, None, Some(5), Some(7)])),
        2 => Tree::Ip,
        3 => Tree::Ip6,
        4 => Tree::Arp,
        5 => Tree::EtherHost(random.below(3) as u8),
        6 => Tree::IpHost(0x0a00_0000 + random.below(3) as u32),
        7 => Tree::Protocol(*random.pick(&[6, 17, 132, 58])),
        8 | 9 => {
            let protocol = *random.pick(&[None, Some(6), Some(17)]);
            Tree::Port(protocol, *random.pick(&[80, 53, 4789, 2152]))
        }
        10 | 11 => {
            let protocol = *random.pick(&[6, 6, 17, 58]);
            Tree::Byte(protocol, random.below(16) as usize, *random.pick(&[0x02, 0xff, 0x10]))
        }
        _ => Tree::Fragment(*random.pick(&[Which::Any, Which::First, Which::Later])),
    }
}
