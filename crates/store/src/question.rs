//! What the index can be asked about a filter.
//!
//! ```text
//! question := anything | key | question and question | question or question
//!
//! host 10.0.0.1 and not port 22     key(IPv4 10.0.0.1) and anything
//! tcp port 80 or icmp               key(port tcp 80) or key(protocol 1)
//! ```
//!
//! The law: a packet that the filter accepts satisfies the filter's question, or is open (see [`keys`](crate::keys)). So a part
//! that gives no key gives *anything*: all below `not`, all that stands behind a word that moves headers into a tunnel, host
//! names, byte tests. `vlan` moves headers by a tag for all that comes after it, behind `or` too: words after it give keys only
//! where they are joined to it by `and`, so that the tag is surely there.

use tapline_filter::ast::{Ast, Expr, Form, Id, IdKind, Joint, Kind, Primitive, Protocol, Qualifiers};
use tapline_filter::{Options, Resolver};
use tapline_packet::numbers::{ethertype, ip_protocol};

use crate::keys::{Class, Group, INNER, Way, inner_key, key, port_value};

/// A fact about packets that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fact {
    key: u64,
    class: u8,
}

impl Fact {
    /// Of a packet's own headers.
    pub fn of(class: Class, value: u128) -> Fact {
        Fact { key: key(class, value), class: class as u8 }
    }

    /// Of the first packet that a tunnel carries.
    pub fn inner(class: Class, value: u128) -> Fact {
        Fact { key: inner_key(class, value), class: class as u8 + INNER }
    }

    /// Its key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The number of its class.
    pub fn class(&self) -> u8 {
        self.class
    }

    /// The ways in which slots are open that may have it all the same.
    pub fn ways(&self) -> [Way; 3] {
        let of_group = Group::of(self.key).way();
        let inner = if self.class >= INNER { Way::Inner } else { Way::All };
        let name = if self.class == Class::Name as u8 { Way::Names } else { Way::All };
        [of_group, inner, name]
    }
}

/// What the index can be asked about a filter. See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Any packet may be meant.
    Anything,
    /// Only packets of which this is true.
    Is(Fact),
    /// Only packets that satisfy all of these.
    All(Vec<Question>),
    /// Only packets that satisfy one of these.
    Any(Vec<Question>),
}

impl Question {
    /// The question of a filter's text; *anything* for a text that is no filter, which its compiler will refuse.
    pub fn of(text: &str, options: &Options) -> Question {
        match tapline_filter::parse(text) {
            Ok(ast) => Question::of_ast(&ast, &*options.resolver),
            Err(_) => Question::Anything,
        }
    }

    fn of_ast(ast: &Ast, resolver: &dyn Resolver) -> Question {
        let Some(root) = &ast.root else { return Question::Anything };
        Walk { resolver, is_moved: false, tags: 0, sure_tags: 0, implied_tags: 0 }.expr(root, None).0
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Question) -> Question {
        match (self, other) {
            (Question::Anything, question) | (question, Question::Anything) => question,
            (Question::All(mut all), question) => {
                all.push(question);
                Question::All(all)
            }
            (first, second) => Question::All(vec![first, second]),
        }
    }

    /// Either.
    #[must_use]
    pub fn or(self, other: Question) -> Question {
        match (self, other) {
            (Question::Anything, _) | (_, Question::Anything) => Question::Anything,
            (Question::Any(mut any), question) => {
                any.push(question);
                Question::Any(any)
            }
            (first, second) => Question::Any(vec![first, second]),
        }
    }

    /// All facts that it names.
    pub fn facts(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.collect(&mut facts);
        facts.sort_unstable();
        facts.dedup();
        facts
    }

    fn collect(&self, facts: &mut Vec<Fact>) {
        match self {
            Question::Anything => {}
            Question::Is(fact) => facts.push(*fact),
            Question::All(parts) | Question::Any(parts) => parts.iter().for_each(|part| part.collect(facts)),
        }
    }

    /// Whether something of which these facts are true may satisfy it.
    pub fn holds(&self, has: &dyn Fn(&Fact) -> bool) -> bool {
        match self {
            Question::Anything => true,
            Question::Is(fact) => has(fact),
            Question::All(parts) => parts.iter().all(|part| part.holds(has)),
            Question::Any(parts) => parts.iter().any(|part| part.holds(has)),
        }
    }
}

/// Any of these values of a class.
fn any(class: Class, values: impl IntoIterator<Item = u128>) -> Question {
    let mut facts: Vec<Question> =
        values.into_iter().map(|value| Question::Is(Fact::of(class, value))).collect();
    match facts.len() {
        1 => facts.remove(0),
        _ => Question::Any(facts),
    }
}

/// A walk over the tree, from left to right as the compiler goes.
struct Walk<'a> {
    resolver: &'a dyn Resolver,
    /// A word before moved the headers that later words ask: into a tunnel, behind labels.
    is_moved: bool,
    /// Words `vlan` so far: each moved the headers by a tag.
    tags: u32,
    /// Of these, the ones that every packet has which comes to the next word.
    sure_tags: u32,
    /// Those that every packet has which the last part accepted, of the ones in that part.
    implied_tags: u32,
}

impl Walk<'_> {
    /// The question of a part, and the qualifiers that the next part inherits.
    fn expr(&mut self, expr: &Expr, inherited: Option<Qualifiers>) -> (Question, Option<Qualifiers>) {
        self.implied_tags = 0;
        match &expr.kind {
            Kind::Chain(first, rest) => self.chain(first, rest, inherited),
            Kind::Not(inner) => {
                let (_, next) = self.expr(inner, inherited);
                self.implied_tags = 0;
                (Question::Anything, next)
            }
            Kind::Group(inner) => (self.expr(inner, inherited).0, inherited),
            Kind::Qualified(qualifiers, inner) => self.expr(inner, Some(*qualifiers)),
            Kind::Form(form, inner) => (self.form(*form, inner), None),
            Kind::Id(id) => (self.unless_moved(|walk| walk.id(id, inherited)), inherited),
            Kind::Protocol(protocol) => (self.unless_moved(|_| of_protocol(*protocol)), None),
            Kind::Primitive(primitive) => (self.primitive(primitive), None),
            Kind::Relation(..) => (Question::Anything, None),
        }
    }

    fn chain(
        &mut self,
        first: &Expr,
        rest: &[(Joint, Expr)],
        inherited: Option<Qualifiers>,
    ) -> (Question, Option<Qualifiers>) {
        let outside = self.sure_tags;
        let (mut question, mut inherited) = self.expr(first, inherited);
        let mut implied = self.implied_tags;
        for (joint, part) in rest {
            self.sure_tags = if *joint == Joint::And { outside + implied } else { outside };
            let (part, next) = self.expr(part, inherited);
            (question, implied) = match joint {
                Joint::And => (question.and(part), implied + self.implied_tags),
                Joint::Or => (question.or(part), 0),
            };
            inherited = next;
        }
        (self.sure_tags, self.implied_tags) = (outside, implied);
        (question, inherited)
    }

    fn unless_moved(&self, question: impl FnOnce(&Self) -> Question) -> Question {
        let is_moved = self.is_moved || self.tags != self.sure_tags;
        if is_moved { Question::Anything } else { question(self) }
    }

    fn form(&mut self, form: Form, inner: &Expr) -> Question {
        match form {
            Form::Scoped | Form::Extensions => self.expr(inner, None).0,
            Form::AnyVlan => {
                let question = self.expr(inner, None).0;
                self.implied_tags = 0;
                question
            }
            // The packet in the tunnel is not in the index. The walk notes what moves headers.
            Form::Inner(_) => {
                self.expr(inner, None);
                self.implied_tags = 0;
                Question::Anything
            }
        }
    }

    fn primitive(&mut self, primitive: &Primitive) -> Question {
        match primitive {
            Primitive::Vlan(id) => {
                let question = self.unless_moved(|_| match id {
                    Some(id) => any(Class::Vlan, [u128::from(*id)]),
                    None => any(Class::Tagged, [0]),
                });
                self.tags += 1;
                self.implied_tags = 1;
                question
            }
            Primitive::Mpls(_)
            | Primitive::Pppoes(_)
            | Primitive::Geneve(_)
            | Primitive::Vxlan(_)
            | Primitive::Atm(_) => {
                self.is_moved = true;
                Question::Anything
            }
            _ => Question::Anything,
        }
    }

    fn id(&self, id: &Id, inherited: Option<Qualifiers>) -> Question {
        let Some(Qualifiers { protocol, kind, .. }) = inherited else { return Question::Anything };
        match kind.unwrap_or(IdKind::Host) {
            IdKind::Host => host(id, protocol),
            IdKind::Net => net(id, protocol),
            IdKind::Port => self.port(id, protocol),
            IdKind::Proto => proto(id, protocol),
            IdKind::Portrange | IdKind::Protochain | IdKind::Gateway => Question::Anything,
        }
    }

    fn port(&self, id: &Id, protocol: Option<Protocol>) -> Question {
        let protocols: &[u8] = match protocol {
            None => &[6, 17, 132],
            Some(Protocol::Tcp) => &[6],
            Some(Protocol::Udp) => &[17],
            Some(Protocol::Sctp) => &[132],
            Some(_) => return Question::Anything,
        };
        match id {
            Id::Number(port) => {
                let Ok(port) = u16::try_from(*port) else { return Question::Anything };
                any(Class::Port, protocols.iter().map(|protocol| port_value(*protocol, port)))
            }
            Id::Name(name) => {
                let ports = self.resolver.port(name);
                let numbers: Vec<u16> = [ports.tcp, ports.udp].into_iter().flatten().collect();
                if numbers.is_empty() {
                    return Question::Anything;
                }
                // The name may stand for different ports of different protocols.
                any(Class::Port, numbers.iter().flat_map(|n| protocols.iter().map(|p| port_value(*p, *n))))
            }
            _ => Question::Anything,
        }
    }
}

/// Whether addresses of this qualifier are those of IP or ARP.
fn is_internet(protocol: Option<Protocol>) -> bool {
    matches!(protocol, None | Some(Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp))
}

fn host(id: &Id, protocol: Option<Protocol>) -> Question {
    match id {
        _ if !is_internet(protocol) => Question::Anything,
        Id::Ipv4(text) => ipv4(text).map_or(Question::Anything, |address| any(Class::Ipv4, [address.into()])),
        Id::Ipv6(address) => any(Class::Ipv6, [u128::from(*address)]),
        _ => Question::Anything,
    }
}

fn net(id: &Id, protocol: Option<Protocol>) -> Question {
    match id {
        _ if !is_internet(protocol) => Question::Anything,
        Id::Ipv4(_) => host(id, protocol),
        Id::Ipv4Prefix(text, len) => match (ipv4(text), len) {
            (Some(address), 32) => any(Class::Ipv4, [address.into()]),
            (Some(address), 24..32) => any(Class::Ipv4Net, [(address >> 8).into()]),
            _ => Question::Anything,
        },
        Id::Ipv6(_) => host(id, protocol),
        Id::Ipv6Prefix(address, 128) => any(Class::Ipv6, [u128::from(*address)]),
        Id::Ipv6Prefix(address, 64..128) => any(Class::Ipv6Net, [u128::from(*address) >> 64]),
        _ => Question::Anything,
    }
}

fn proto(id: &Id, protocol: Option<Protocol>) -> Question {
    match (id, protocol) {
        (Id::Number(number), None | Some(Protocol::Ip | Protocol::Ip6)) if *number <= 255 => {
            any(Class::Protocol, [u128::from(*number)])
        }
        _ => Question::Anything,
    }
}

/// Four numbers with dots; fewer stand for a network.
fn ipv4(text: &str) -> Option<u32> {
    let mut parts = text.split('.');
    let mut address = 0u32;
    for _ in 0..4 {
        address = address << 8 | u32::from(parts.next()?.parse::<u8>().ok()?);
    }
    parts.next().is_none().then_some(address)
}

fn of_protocol(protocol: Protocol) -> Question {
    let of_type = |kind: u16| any(Class::EtherType, [kind.into()]);
    let of_ip = |number: u8| any(Class::Protocol, [number.into()]);
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
