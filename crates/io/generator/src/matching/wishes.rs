//! Alternatives of protocol, addresses and ports, read from the text of a filter.
//!
//! ```text
//! tcp port 80 or host 10.0.0.1   ->   { tcp, sport 80 }  { tcp, dport 80 }  { src 10.0.0.1 }  { dst 10.0.0.1 }
//! ```
//!
//! Hints only: conditions that cannot be read as such (arithmetic, `not`, names of hosts) give no wish.

use std::net::{IpAddr, Ipv4Addr};

use tapline_filter::ast::{BoolOp, Direction, Expr, ExprKind, Id, IdKind, Protocol, Qualifiers};
use tapline_filter::{Options, Resolver, parse};
use tapline_packet::headers::IpVersion;

use crate::flow::FlowRanges;
use crate::recipe::{Transport, address_bits, prefix};
use crate::space::NumberRanges;

/// The most alternatives that are followed.
const ALTERNATIVES_MAX: usize = 256;

/// One alternative.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wish {
    pub(super) transport: Option<Transport>,
    pub(super) version: Option<IpVersion>,
    src: Option<NumberRanges>,
    dst: Option<NumberRanges>,
    src_ports: Option<NumberRanges>,
    dst_ports: Option<NumberRanges>,
}

impl Wish {
    /// Replaces the recipe's values by the named ones.
    pub(super) fn apply(&self, spaces: &mut FlowRanges) {
        let parts = [
            (&self.src, &mut spaces.src),
            (&self.dst, &mut spaces.dst),
            (&self.src_ports, &mut spaces.src_ports),
            (&self.dst_ports, &mut spaces.dst_ports),
        ];
        for (wish, space) in parts {
            if let Some(wish) = wish {
                *space = wish.clone();
            }
        }
    }

    /// Both at once; `None` if they contradict each other.
    fn and(&self, other: &Wish) -> Option<Wish> {
        Some(Wish {
            transport: one(self.transport, other.transport)?,
            version: one(self.version, other.version)?,
            src: narrower(&self.src, &other.src),
            dst: narrower(&self.dst, &other.dst),
            src_ports: narrower(&self.src_ports, &other.src_ports),
            dst_ports: narrower(&self.dst_ports, &other.dst_ports),
        })
    }
}

fn one<T: PartialEq + Copy>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        _ => Some(a.or(b)),
    }
}

fn narrower(a: &Option<NumberRanges>, b: &Option<NumberRanges>) -> Option<NumberRanges> {
    [a, b].into_iter().flatten().min_by_key(|space| space.len()).cloned()
}

/// Protocols, addresses and ports that a filter names.
pub(super) struct Wishes {
    /// The alternatives of the whole; then the recipe's own packets, because mere hints may miss.
    pub(super) alternatives: Vec<Wish>,
    /// Each part by itself. Making one part true may make the whole false.
    pub(super) parts: Vec<Wish>,
}

pub(super) fn of(text: &str) -> Wishes {
    let root = parse(text).ok().and_then(|ast| ast.root);
    let mut reader = Reader { before: NONE, resolver: Options::default().resolver, parts: Vec::new() };
    let mut alternatives = root.map_or_else(Vec::new, |root| reader.read(&root));
    alternatives.push(Wish::default());
    let mut parts = reader.parts;
    parts.truncate(ALTERNATIVES_MAX);
    Wishes { alternatives, parts }
}

const NONE: Qualifiers = Qualifiers { protocol: None, direction: None, kind: None };

struct Reader {
    /// The qualifiers of an id that has none of its own.
    before: Qualifiers,
    resolver: std::sync::Arc<dyn Resolver + Send + Sync>,
    /// The alternatives of each id.
    parts: Vec<Wish>,
}

impl Reader {
    fn read(&mut self, expr: &Expr) -> Vec<Wish> {
        match &expr.kind {
            ExprKind::Chain(first, rest) => {
                let mut wishes = self.read(first);
                for (joint, part) in rest {
                    let part = self.read(part);
                    wishes = match joint {
                        BoolOp::Or => [wishes, part].concat(),
                        BoolOp::And => both(&wishes, &part),
                    };
                    wishes.truncate(ALTERNATIVES_MAX);
                }
                wishes
            }
            ExprKind::Group(inner) | ExprKind::Modified(_, inner) => self.read(inner),
            ExprKind::Qualified(qualifiers, inner) => {
                self.before = *qualifiers;
                self.read(inner)
            }
            ExprKind::Id(id) => {
                let wishes = self.id(id);
                self.parts.extend_from_slice(&wishes);
                wishes
            }
            ExprKind::Protocol(protocol) => vec![protocols(Some(*protocol))],
            ExprKind::Not(inner) => {
                self.read(inner);
                vec![Wish::default()]
            }
            ExprKind::Relation(..) | ExprKind::Primitive(_) => vec![Wish::default()],
        }
    }

    fn id(&self, id: &Id) -> Vec<Wish> {
        let Qualifiers { protocol, direction, kind } = self.before;
        let base = protocols(protocol);
        let named = match kind {
            Some(IdKind::Port) => self.port(id).map(|space| (None, space)),
            Some(IdKind::Portrange) => self.port_range(id).map(|space| (None, space)),
            Some(IdKind::Proto) => return vec![carried(id, base)],
            None | Some(IdKind::Host | IdKind::Net) => {
                address(id).map(|(version, space)| (Some(version), space))
            }
            Some(IdKind::Protochain | IdKind::Gateway) => None,
        };
        let Some((version, space)) = named else { return vec![base] };
        let as_src = match version {
            Some(_) => Wish { version, src: Some(space.clone()), ..base.clone() },
            None => Wish { src_ports: Some(space.clone()), ..base.clone() },
        };
        let as_dst = match version {
            Some(_) => Wish { version, dst: Some(space), ..base },
            None => Wish { dst_ports: Some(space), ..base },
        };
        match direction {
            Some(Direction::Src) => vec![as_src],
            Some(Direction::Dst) => vec![as_dst],
            Some(Direction::SrcAndDst) => both(&[as_src], &[as_dst]),
            _ => vec![as_dst, as_src],
        }
    }

    fn port(&self, id: &Id) -> Option<NumberRanges> {
        match id {
            Id::Number(port) => u16::try_from(*port).ok().map(|port| NumberRanges::one(port.into())),
            Id::Name(name) => {
                let ports = self.resolver.port(name);
                let port = ports.tcp.or(ports.udp)?;
                Some(NumberRanges::one(port.into()))
            }
            _ => None,
        }
    }

    fn port_range(&self, id: &Id) -> Option<NumberRanges> {
        let Id::Name(name) = id else { return self.port(id) };
        let (first, last) = name.split_once('-')?;
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        Some(NumberRanges::range(first.min(last).into(), first.max(last).into()))
    }
}

fn both(left: &[Wish], right: &[Wish]) -> Vec<Wish> {
    let pairs = left.iter().flat_map(|a| right.iter().map(move |b| a.and(b)));
    pairs.flatten().take(ALTERNATIVES_MAX).collect()
}

fn protocols(protocol: Option<Protocol>) -> Wish {
    let (transport, version) = match protocol {
        Some(Protocol::Tcp) => (Some(Transport::Tcp), None),
        Some(Protocol::Udp) => (Some(Transport::Udp), None),
        Some(Protocol::Icmp) => (Some(Transport::Icmp), Some(IpVersion::V4)),
        Some(Protocol::Icmp6) => (Some(Transport::Icmp), Some(IpVersion::V6)),
        Some(Protocol::Ip) => (None, Some(IpVersion::V4)),
        Some(Protocol::Ip6) => (None, Some(IpVersion::V6)),
        _ => (None, None),
    };
    Wish { transport, version, ..Wish::default() }
}

fn carried(id: &Id, base: Wish) -> Wish {
    let transport = match id {
        Id::Number(6) => Some(Transport::Tcp),
        Id::Number(17) => Some(Transport::Udp),
        Id::Number(1 | 58) => Some(Transport::Icmp),
        Id::Name(name) => match name.as_str() {
            "tcp" => Some(Transport::Tcp),
            "udp" => Some(Transport::Udp),
            "icmp" | "icmp6" => Some(Transport::Icmp),
            _ => None,
        },
        _ => None,
    };
    Wish { transport: transport.or(base.transport), ..base }
}

fn address(id: &Id) -> Option<(IpVersion, NumberRanges)> {
    match id {
        Id::Ipv4(text) => {
            let (address, len) = partial(text)?;
            Some((IpVersion::V4, prefix(address.into(), len)?))
        }
        Id::Ipv4Prefix(text, len) => Some((IpVersion::V4, prefix(partial(text)?.0.into(), *len)?)),
        Id::Ipv4Mask(text, mask) => {
            let mask = u32::from(partial(mask)?.0);
            Some((IpVersion::V4, prefix(partial(text)?.0.into(), mask.leading_ones())?))
        }
        Id::Ipv6(address) => Some((IpVersion::V6, NumberRanges::one(address_bits(IpAddr::V6(*address))))),
        Id::Ipv6Prefix(address, len) => Some((IpVersion::V6, prefix((*address).into(), *len)?)),
        _ => None,
    }
}

/// `10.1` is 10.1.0.0/16.
fn partial(text: &str) -> Option<(Ipv4Addr, u32)> {
    let numbers = text.split('.').map(|part| part.parse::<u8>().ok()).collect::<Option<Vec<u8>>>()?;
    let mut octets = [0; 4];
    octets.get_mut(..numbers.len())?.copy_from_slice(&numbers);
    Some((octets.into(), 8 * numbers.len() as u32))
}
