//! Keys that only several parts of a question together have: pairs of addresses, flows.
//!
//! ```text
//! host A and host B                              pair(A, B)
//! ... and tcp port P and tcp port Q    besides   flow(A P, B Q, tcp) or flow(A Q, B P, tcp)
//! ```
//!
//! A packet with the keys of two different addresses has both of them in its header, and no others; so it has their
//! pair. It is the same with ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Fact, Question};
use crate::keys::{Class, INNER, flow_value, pair_value};

/// The most pairs, or flows, that a question names: each is looked up in each index.
const JOINED_MAX: usize = 64;

/// The question with the pairs and flows of all that is joined by `and` in it.
pub(super) fn joined(question: Question) -> Question {
    match question {
        Question::All(parts) => {
            let mut parts: Vec<Question> = parts.into_iter().map(joined).collect();
            for depth in [0, INNER] {
                let more = joined_at(&parts, depth);
                parts.extend(more);
            }
            Question::All(parts)
        }
        Question::Any(parts) => Question::Any(parts.into_iter().map(joined).collect()),
        question => question,
    }
}

/// The pairs and flows of the packet itself, or of the one that it carries.
fn joined_at(parts: &[Question], depth: u8) -> Vec<Question> {
    let fact = |class, value| {
        Question::Is(if depth == 0 { Fact::of(class, value) } else { Fact::inner(class, value) })
    };
    let Some((ones, others)) = two_of(parts, &|fact| address(fact, depth)) else { return Vec::new() };
    let ends: Vec<(IpAddr, IpAddr)> =
        each_with_each(&ones, &others).filter(|(one, other)| one.is_ipv4() == other.is_ipv4()).collect();
    let pairs = ends.iter().map(|(one, other)| fact(Class::Pair, pair_value(*one, *other))).collect();
    let mut all = vec![Question::Any(pairs)];
    if let Some((ones, others)) = two_of(parts, &|fact| port(fact, depth)) {
        let ports = each_with_each(&ones, &others).filter(|(one, other)| one.0 == other.0);
        let flows: Vec<Question> = ports
            .flat_map(|((protocol, p), (_, q))| {
                let ends = ends.iter();
                ends.flat_map(move |&(a, b)| [((a, p), (b, q)), ((a, q), (b, p))])
                    .map(move |(one, other)| fact(Class::Flow, flow_value(one, other, protocol)))
            })
            .collect();
        if flows.len() <= JOINED_MAX {
            all.push(Question::Any(flows));
        }
    }
    all
}

fn address(fact: &Fact, depth: u8) -> Option<IpAddr> {
    match fact.class.checked_sub(depth)? {
        class if class == Class::Ipv4 as u8 => Some(Ipv4Addr::from(fact.value as u32).into()),
        class if class == Class::Ipv6 as u8 => Some(Ipv6Addr::from(fact.value).into()),
        _ => None,
    }
}

/// Protocol and port.
fn port(fact: &Fact, depth: u8) -> Option<(u8, u16)> {
    let is_port = fact.class.checked_sub(depth)? == Class::Port as u8;
    is_port.then_some(((fact.value >> 16) as u8, fact.value as u16))
}

/// Two lists without a common value of which a packet has a value each; those with the fewest pairs, at most
/// [`JOINED_MAX`].
fn two_of<T: PartialEq + Copy>(
    parts: &[Question],
    value: &dyn Fn(&Fact) -> Option<T>,
) -> Option<(Vec<T>, Vec<T>)> {
    let lists: Vec<Vec<T>> = parts.iter().filter_map(|part| one_of(part, value)).collect();
    let pairs = (0..lists.len()).flat_map(|one| (one + 1..lists.len()).map(move |other| (one, other)));
    let cost = |(one, other): &(usize, usize)| lists[*one].len() * lists[*other].len();
    let are_apart =
        |(one, other): &(usize, usize)| lists[*one].iter().all(|value| !lists[*other].contains(value));
    let (one, other) =
        pairs.filter(|pair| cost(pair) <= JOINED_MAX && are_apart(pair)).min_by_key(|pair| cost(pair))?;
    Some((lists[one].clone(), lists[other].clone()))
}

/// Values of which every packet has one that satisfies the question; `None` if there are none such.
fn one_of<T>(question: &Question, value: &dyn Fn(&Fact) -> Option<T>) -> Option<Vec<T>> {
    match question {
        Question::Anything => None,
        Question::Is(fact) => Some(vec![value(fact)?]),
        Question::All(parts) => parts.iter().find_map(|part| one_of(part, value)),
        Question::Any(parts) => {
            let lists: Option<Vec<Vec<T>>> = parts.iter().map(|part| one_of(part, value)).collect();
            lists.map(|lists| lists.into_iter().flatten().collect())
        }
    }
}

fn each_with_each<'a, T: Copy>(ones: &'a [T], others: &'a [T]) -> impl Iterator<Item = (T, T)> + 'a {
    ones.iter().flat_map(|one| others.iter().map(|other| (*one, *other)))
}
