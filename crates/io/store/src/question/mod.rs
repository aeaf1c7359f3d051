//! Questions to the index: the part of a filter that keys can answer.
//!
//! ```text
//! question := anything | key | question and question | question or question
//!
//! host 10.0.0.1 and not port 22     key(IPv4 10.0.0.1) and anything
//! tcp port 80 or icmp               key(port tcp 80) or key(protocol 1)
//! ```
//!
//! The law: a packet that the filter accepts satisfies the filter's question, or is open (see [`keys`](crate::keys)).
//! So a part that gives no key gives *anything*: all below `not`, host names, byte tests, a tunnel in a tunnel.
//!
//! [`filter`] has the walk over a filter's tree, [`pairs`] adds the keys that only several parts together have.

mod filter;
mod pairs;

use tapline_filter::Options;

use crate::keys::{Class, Group, INNER, OpenKeys, inner_key, key};

/// A fact about packets that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fact {
    key: u64,
    class: u8,
    value: u128,
}

impl Fact {
    /// A fact of a packet's own headers.
    pub fn of(class: Class, value: u128) -> Fact {
        Fact { key: key(class, value), class: class as u8, value }
    }

    /// A fact of the first packet in a tunnel.
    pub fn inner(class: Class, value: u128) -> Fact {
        Fact { key: inner_key(class, value), class: class as u8 + INNER, value }
    }

    /// Key of the fact in an index.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The number of its class.
    pub fn class(&self) -> u8 {
        self.class
    }

    /// The ways in which slots are open that may have it all the same.
    pub fn ways(&self) -> [OpenKeys; 3] {
        let of_group = Group::of(self.key).way();
        let inner = if self.class >= INNER { OpenKeys::Inner } else { OpenKeys::All };
        let name = if self.class == Class::Name as u8 { OpenKeys::Names } else { OpenKeys::All };
        [of_group, inner, name]
    }
}

/// Question to the index.
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
    /// The question of a filter's text; *anything* if the text is not a filter, which its compiler will refuse.
    pub fn of(text: &str, options: &Options) -> Question {
        match tapline_filter::parse(text) {
            Ok(ast) => pairs::joined(filter::question(&ast, options)),
            Err(_) => Question::Anything,
        }
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

#[cfg(test)]
mod tests;
