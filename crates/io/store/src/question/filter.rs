//! From a filter's tree to its question.
//!
//! ```text
//! vlan, mpls, pppoes   move later words past a tag, labels, a session: the same packet, the same keys
//! geneve, vxlan        move them into a tunnel: keys of the packet in it, from there on
//! inner(e)             the same for e alone
//! ```
//!
//! A shift lasts for all that comes after its word, behind `or` too, where the packet need not have the word's header.
//! So words behind it give keys only where they are joined to it by `and`. Scoped, it ends with its parentheses, at
//! `or` and with `not`.

use std::ops::Add;

use tapline_filter::ast::{
    Ast, BoolOp, Expr, ExprKind, Id, IdKind, Modifier, Primitive, Protocol, Qualifiers, TunnelKind,
    TunnelSelector,
};
use tapline_filter::{Options, Resolver};
use tapline_packet::numbers::{ethertype, ip_protocol, port};

use super::{Fact, Question};
use crate::keys::{Class, mac_value, port_value};

/// The most /24 (IPv6: /64) networks by which a shorter one is searched: a /18, a /58.
const NETS_MAX: u32 = 64;
/// The most ports by which a range is searched.
const PORTS_MAX: u16 = 32;

/// The question of a filter's tree.
pub(super) fn question(ast: &Ast, options: &Options) -> Question {
    let Some(root) = &ast.root else { return Question::Anything };
    let mut walk = Walk {
        resolver: &*options.resolver,
        is_scoped: options.scoped || options.any_vlan,
        place: Where::default(),
        sure: Shifts::default(),
        implied: Shifts::default(),
    };
    walk.expr(root, None).0
}

/// Words that moved the headers of later words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shifts {
    /// By a tag, labels, a session.
    headers: u32,
    /// Into a tunnel.
    tunnels: u32,
}

impl Add for Shifts {
    type Output = Shifts;

    fn add(self, other: Shifts) -> Shifts {
        Shifts { headers: self.headers + other.headers, tunnels: self.tunnels + other.tunnels }
    }
}

/// Headers to which the next word refers.
#[derive(Clone, Copy, Debug, Default)]
struct Where {
    /// All shifts so far.
    shifts: Shifts,
    /// Whether labels are among them: the index treats their contents as a tunnel's packet.
    has_labels: bool,
    /// Whether the index cannot follow.
    is_lost: bool,
}

/// A walk over the tree, from left to right as the compiler goes.
struct Walk<'a> {
    resolver: &'a dyn Resolver,
    is_scoped: bool,
    place: Where,
    /// Shifts of `place` whose headers every packet has that reaches the next word.
    sure: Shifts,
    /// Shifts in the last part whose headers every packet has that this part accepted.
    implied: Shifts,
}

impl Walk<'_> {
    /// The question of a part, and the qualifiers that the next part inherits.
    fn expr(&mut self, expr: &Expr, inherited: Option<Qualifiers>) -> (Question, Option<Qualifiers>) {
        self.implied = Shifts::default();
        match &expr.kind {
            ExprKind::Chain(first, rest) => self.chain(first, rest, inherited),
            ExprKind::Not(inner) => {
                let (_, next) = self.in_scope(|walk| walk.expr(inner, inherited));
                self.implied = Shifts::default();
                (Question::Anything, next)
            }
            ExprKind::Group(inner) => (self.in_scope(|walk| walk.expr(inner, inherited).0), inherited),
            ExprKind::Qualified(qualifiers, inner) => self.expr(inner, Some(*qualifiers)),
            ExprKind::Modified(form, inner) => (self.form(*form, inner), None),
            ExprKind::Id(id) => (self.id(id, inherited), inherited),
            ExprKind::Protocol(protocol) => (self.protocol(*protocol), None),
            ExprKind::Primitive(primitive) => (self.primitive(primitive), None),
            ExprKind::Relation(..) => (Question::Anything, None),
        }
    }

    /// Walks over parentheses or the operand of `not`. In scoped text the shifts in it end with it.
    fn in_scope<T>(&mut self, walk: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.place;
        let result = walk(self);
        if self.is_scoped {
            (self.place, self.implied) = (before, Shifts::default());
        }
        result
    }

    fn chain(
        &mut self,
        first: &Expr,
        rest: &[(BoolOp, Expr)],
        inherited: Option<Qualifiers>,
    ) -> (Question, Option<Qualifiers>) {
        let (outside, start) = (self.sure, self.place);
        let (mut question, mut inherited) = self.expr(first, inherited);
        let mut implied = self.implied;
        for (joint, part) in rest {
            self.sure = if *joint == BoolOp::And { outside + implied } else { outside };
            if *joint == BoolOp::Or && self.is_scoped {
                self.place = start;
            }
            let (part, next) = self.expr(part, inherited);
            (question, implied) = match joint {
                BoolOp::And => (question.and(part), implied + self.implied),
                BoolOp::Or => (question.or(part), Shifts::default()),
            };
            inherited = next;
        }
        (self.sure, self.implied) = (outside, implied);
        (question, inherited)
    }

    /// No shift leaves a form.
    fn form(&mut self, form: Modifier, inner: &Expr) -> Question {
        let (place, sure, is_scoped) = (self.place, self.sure, self.is_scoped);
        self.is_scoped |= form != Modifier::Extensions;
        let tunnel = match form {
            Modifier::Inner(tunnel) => self.enter(tunnel),
            Modifier::Scoped | Modifier::Extensions | Modifier::AnyVlan => Question::Anything,
        };
        let question = tunnel.and(self.expr(inner, None).0);
        (self.place, self.sure, self.is_scoped) = (place, sure, is_scoped);
        self.implied = Shifts::default();
        question
    }

    /// Enters the packet in a tunnel; returns the question about the packet around it.
    fn enter(&mut self, tunnel: Option<TunnelSelector>) -> Question {
        let kinds = TunnelKind::ALL.into_iter().filter(|kind| tunnel.is_none_or(|t| t.kind == *kind));
        let question = kinds.map(|kind| self.tunnel(kind)).reduce(Question::or).unwrap_or(Question::Anything);
        let one = Shifts { headers: 0, tunnels: 1 };
        (self.place.shifts, self.sure) = (self.place.shifts + one, self.sure + one);
        self.place.is_lost |= self.place.has_labels;
        question
    }

    fn tunnel(&self, kind: TunnelKind) -> Question {
        let to = |port: u16| self.any(Class::Port, [port_value(ip_protocol::UDP, port)]);
        let of_ip = |numbers: &[u8]| self.any(Class::Protocol, numbers.iter().map(|n| u128::from(*n)));
        match kind {
            TunnelKind::Gre | TunnelKind::Erspan => of_ip(&[ip_protocol::GRE]),
            TunnelKind::Ipip => of_ip(&[ip_protocol::IPV4, ip_protocol::IPV6]),
            TunnelKind::Vxlan => to(port::VXLAN),
            TunnelKind::Geneve => to(port::GENEVE),
            TunnelKind::Gtp => to(port::GTP_U),
        }
    }

    /// Any of these values of a class, in the headers of the next word.
    fn any(&self, class: Class, values: impl IntoIterator<Item = u128>) -> Question {
        let depth = self.sure.tunnels;
        if self.place.is_lost || self.place.shifts != self.sure || depth > 1 {
            return Question::Anything;
        }
        let fact = |value| if depth == 0 { Fact::of(class, value) } else { Fact::inner(class, value) };
        let mut facts: Vec<Question> = values.into_iter().map(|value| Question::Is(fact(value))).collect();
        match facts.len() {
            1 => facts.remove(0),
            _ => Question::Any(facts),
        }
    }

    fn primitive(&mut self, primitive: &Primitive) -> Question {
        match primitive {
            Primitive::Vlan(id) => {
                let question = match id {
                    Some(id) => self.any(Class::Vlan, [u128::from(*id)]),
                    None => self.any(Class::Tagged, [0]),
                };
                self.shift(Shifts { headers: 1, tunnels: 0 });
                question
            }
            Primitive::Mpls(_) | Primitive::Pppoes(_) => {
                self.place.has_labels |= matches!(primitive, Primitive::Mpls(_));
                self.shift(Shifts { headers: 1, tunnels: 0 });
                Question::Anything
            }
            Primitive::Geneve(_) => self.enter_for_good(TunnelKind::Geneve),
            Primitive::Vxlan(_) => self.enter_for_good(TunnelKind::Vxlan),
            Primitive::Atm(_) => {
                self.place.is_lost = true;
                Question::Anything
            }
            _ => Question::Anything,
        }
    }

    fn enter_for_good(&mut self, kind: TunnelKind) -> Question {
        let question = self.tunnel(kind);
        self.place.is_lost |= self.place.has_labels;
        self.shift(Shifts { headers: 0, tunnels: 1 });
        question
    }

    fn shift(&mut self, by: Shifts) {
        self.place.shifts = self.place.shifts + by;
        self.implied = by;
    }

    fn id(&self, id: &Id, inherited: Option<Qualifiers>) -> Question {
        let Some(Qualifiers { protocol, kind, .. }) = inherited else { return Question::Anything };
        match kind.unwrap_or(IdKind::Host) {
            IdKind::Host => self.host(id, protocol),
            IdKind::Net => self.net(id, protocol),
            IdKind::Port => self.port(id, protocol),
            IdKind::Portrange => self.ports(id, protocol),
            IdKind::Proto => self.proto(id, protocol),
            IdKind::Protochain | IdKind::Gateway => Question::Anything,
        }
    }

    fn port(&self, id: &Id, protocol: Option<Protocol>) -> Question {
        match id {
            Id::Number(port) => match u16::try_from(*port) {
                Ok(port) => self.port_of(&[port], protocol),
                Err(_) => Question::Anything,
            },
            Id::Name(name) => {
                // The name may stand for different ports of different protocols.
                let ports = self.resolver.port(name);
                let numbers: Vec<u16> = [ports.tcp, ports.udp].into_iter().flatten().collect();
                if numbers.is_empty() { Question::Anything } else { self.port_of(&numbers, protocol) }
            }
            _ => Question::Anything,
        }
    }

    fn ports(&self, id: &Id, protocol: Option<Protocol>) -> Question {
        let Id::Name(text) = id else { return self.port(id, protocol) };
        let bounds =
            text.split_once('-').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        match bounds {
            Some((low, high)) if low <= high && high - low < PORTS_MAX => {
                self.port_of(&(low..=high).collect::<Vec<u16>>(), protocol)
            }
            _ => Question::Anything,
        }
    }

    fn port_of(&self, ports: &[u16], protocol: Option<Protocol>) -> Question {
        let protocols: &[u8] = match protocol {
            None => &[ip_protocol::TCP, ip_protocol::UDP, ip_protocol::SCTP],
            Some(Protocol::Tcp) => &[ip_protocol::TCP],
            Some(Protocol::Udp) => &[ip_protocol::UDP],
            Some(Protocol::Sctp) => &[ip_protocol::SCTP],
            Some(_) => return Question::Anything,
        };
        self.any(Class::Port, ports.iter().flat_map(|n| protocols.iter().map(|p| port_value(*p, *n))))
    }

    fn host(&self, id: &Id, protocol: Option<Protocol>) -> Question {
        match id {
            Id::Mac(address) if protocol == Some(Protocol::Link) && self.sure.tunnels == 0 => {
                self.any(Class::Mac, [mac_value(address)])
            }
            _ if !is_internet(protocol) => Question::Anything,
            Id::Ipv4(text) => match ipv4(text) {
                Some((address, 32)) => self.ipv4_host(address),
                _ => Question::Anything,
            },
            Id::Ipv6(address) => self.ipv6_host(u128::from(*address)),
            _ => Question::Anything,
        }
    }

    /// An address and its network, which remains in slots that dropped addresses.
    fn ipv4_host(&self, address: u32) -> Question {
        self.any(Class::Ipv4, [address.into()]).and(self.any(Class::Ipv4Net, [(address >> 8).into()]))
    }

    fn ipv6_host(&self, address: u128) -> Question {
        self.any(Class::Ipv6, [address]).and(self.any(Class::Ipv6Net, [address >> 64]))
    }

    fn net(&self, id: &Id, protocol: Option<Protocol>) -> Question {
        match id {
            _ if !is_internet(protocol) => Question::Anything,
            Id::Ipv4(text) => ipv4(text).map_or(Question::Anything, |(net, len)| self.ipv4_net(net, len)),
            Id::Ipv4Prefix(text, len) => match ipv4(text) {
                Some((net, _)) => self.ipv4_net(net, *len),
                None => Question::Anything,
            },
            Id::Ipv4Mask(text, mask) => match (ipv4(text), ipv4(mask)) {
                (Some((net, _)), Some((mask, 32))) if mask.leading_ones() + mask.trailing_zeros() == 32 => {
                    self.ipv4_net(net, mask.leading_ones())
                }
                _ => Question::Anything,
            },
            Id::Ipv6(address) => self.ipv6_host(u128::from(*address)),
            Id::Ipv6Prefix(address, len) => self.ipv6_net(u128::from(*address), *len),
            _ => Question::Anything,
        }
    }

    fn ipv4_net(&self, net: u32, len: u32) -> Question {
        match len {
            32 => self.ipv4_host(net),
            24..32 => self.any(Class::Ipv4Net, [u128::from(net >> 8)]),
            1..24 if 1 << (24 - len) <= NETS_MAX => {
                let first = net >> 8 & !((1 << (24 - len)) - 1);
                self.any(Class::Ipv4Net, (first..=first + ((1 << (24 - len)) - 1)).map(u128::from))
            }
            _ => Question::Anything,
        }
    }

    fn ipv6_net(&self, net: u128, len: u32) -> Question {
        match len {
            128 => self.ipv6_host(net),
            64..128 => self.any(Class::Ipv6Net, [net >> 64]),
            1..64 if 64 - len < 32 && 1 << (64 - len) <= NETS_MAX => {
                let first = net >> 64 & !((1 << (64 - len)) - 1);
                self.any(Class::Ipv6Net, first..=first + ((1 << (64 - len)) - 1))
            }
            _ => Question::Anything,
        }
    }

    fn proto(&self, id: &Id, protocol: Option<Protocol>) -> Question {
        match (id, protocol) {
            (Id::Number(number), None | Some(Protocol::Ip | Protocol::Ip6)) if *number <= 255 => {
                self.any(Class::Protocol, [u128::from(*number)])
            }
            _ => Question::Anything,
        }
    }

    fn protocol(&self, protocol: Protocol) -> Question {
        let of_type = |kind: u16| self.any(Class::EtherType, [kind.into()]);
        let of_ip = |number: u8| self.any(Class::Protocol, [number.into()]);
        match protocol {
            Protocol::Ip => of_type(ethertype::IPV4),
            Protocol::Ip6 => of_type(ethertype::IPV6),
            Protocol::Arp => of_type(ethertype::ARP),
            Protocol::Rarp => of_type(ethertype::REVERSE_ARP),
            Protocol::Tcp => of_ip(ip_protocol::TCP),
            Protocol::Udp => of_ip(ip_protocol::UDP),
            Protocol::Sctp => of_ip(ip_protocol::SCTP),
            Protocol::Icmp => of_ip(ip_protocol::ICMP),
            Protocol::Igmp => of_ip(ip_protocol::IGMP),
            Protocol::Igrp => of_ip(ip_protocol::IGRP),
            Protocol::Pim => of_ip(ip_protocol::PIM),
            Protocol::Vrrp | Protocol::Carp => of_ip(ip_protocol::VRRP),
            Protocol::Icmp6 => of_ip(ip_protocol::ICMPV6),
            Protocol::Ah => of_ip(ip_protocol::AH),
            Protocol::Esp => of_ip(ip_protocol::ESP),
            _ => Question::Anything,
        }
    }
}

/// Whether addresses of this qualifier are those of IP or ARP.
fn is_internet(protocol: Option<Protocol>) -> bool {
    matches!(protocol, None | Some(Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp))
}

/// Up to four numbers with dots, and their number of bits: fewer numbers are the upper ones.
fn ipv4(text: &str) -> Option<(u32, u32)> {
    let (mut address, mut len) = (0_u32, 0);
    for part in text.split('.') {
        if len == 32 {
            return None;
        }
        address |= u32::from(part.parse::<u8>().ok()?) << (24 - len);
        len += 8;
    }
    Some((address, len))
}
