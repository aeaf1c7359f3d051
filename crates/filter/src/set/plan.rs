//! Which tables a packet is looked up in.
//!
//! ```text
//! type?  0x800 -> protocol?  6  -> tables 1 4 7
//!    |                       17 -> tables 2 5
//!    |            | none of these, or not asked: tables 3
//!    |   0x86dd -> tables 6 8
//!    | not asked: tables 9
//! ```
//!
//! All filters of a table look at the same bits. Where they want few different numbers in a part, these decide beforehand whether
//! the table is worth a lookup. What several tables want is asked once. A packet takes the way of its number and the way of
//! those tables that do not ask.

use tapline_packet::Packet;

use super::field::Part;

/// Different numbers that a part may have in a table to be asked beforehand.
pub(super) const NUMBERS_MAX: usize = 4;

/// Places at which one table may stand.
const COPIES_MAX: usize = 16;

/// A part, and the numbers that the filters of a table want there.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub(super) part: Part,
    pub(super) numbers: Vec<u32>,
}

impl Guard {
    /// Lets more numbers in. Says whether it is still a guard; `wider` becomes true if it changed.
    pub(super) fn widen(&mut self, numbers: &[u32], wider: &mut bool) -> bool {
        for number in numbers {
            if !self.numbers.contains(number) {
                self.numbers.push(*number);
                *wider = true;
            }
            if self.numbers.len() > NUMBERS_MAX {
                return false;
            }
        }
        true
    }
}

/// The questions, the first one first.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    tables: Vec<u16>,
    question: Option<Question>,
}

#[derive(Clone, Debug)]
struct Question {
    part: Part,
    /// Numbers, ascending, and where they lead.
    ways: Vec<(u32, usize)>,
    /// Where the tables stand that do not ask.
    otherwise: usize,
}

/// A table on its way through the questions.
#[derive(Clone)]
struct Member<'a> {
    table: u16,
    guards: Vec<&'a Guard>,
    copies: usize,
}

impl Plan {
    /// A plan for tables and their guards.
    pub(super) fn new<'a>(tables: impl IntoIterator<Item = (u16, &'a [Guard])>) -> Plan {
        let members = tables
            .into_iter()
            .map(|(table, guards)| Member { table, guards: guards.iter().collect(), copies: 1 })
            .collect();
        let mut plan = Plan::default();
        plan.add(members);
        plan
    }

    /// Calls `visit` with each table that may have an entry for the packet.
    #[inline]
    pub(super) fn tables(&self, packet: Packet<'_>, visit: &mut impl FnMut(u16)) {
        self.from(0, packet, visit);
    }

    fn from(&self, node: usize, packet: Packet<'_>, visit: &mut impl FnMut(u16)) {
        let mut next = self.nodes.get(node);
        while let Some(node) = next {
            node.tables.iter().for_each(|table| visit(*table));
            let Some(question) = &node.question else { return };
            if let Some(number) = question.part.read(packet)
                && let Ok(way) = question.ways.binary_search_by_key(&number, |(number, _)| *number)
            {
                self.from(question.ways[way].1, packet, visit);
            }
            next = self.nodes.get(question.otherwise);
        }
    }

    /// Adds the questions for these tables and says where they begin.
    fn add(&mut self, members: Vec<Member<'_>>) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Node::default());
        let Some(part) = most_asked(&members) else {
            self.nodes[at].tables = members.iter().map(|member| member.table).collect();
            return at;
        };
        let (asking, rest): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.asks(part));
        let mut numbers: Vec<u32> = asking
            .iter()
            .flat_map(|member| member.guard(part))
            .flat_map(|guard| guard.numbers.clone())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let ways = numbers.into_iter().map(|number| {
            let wanting = asking.iter().filter_map(|member| member.after(part, number));
            (number, self.add(wanting.collect()))
        });
        let ways = ways.collect();
        let otherwise = if rest.is_empty() { usize::MAX } else { self.add(rest) };
        self.nodes[at].question = Some(Question { part, ways, otherwise });
        at
    }
}

/// The part that most tables ask, of several; one table alone is looked up at once.
fn most_asked(members: &[Member<'_>]) -> Option<Part> {
    if members.len() < 2 {
        return None;
    }
    let asked = |member: &Member<'_>| {
        let parts: Vec<Part> = member.guards.iter().map(|guard| guard.part).collect();
        parts.into_iter().filter(|part| member.asks(*part)).collect::<Vec<Part>>()
    };
    let mut parts: Vec<Part> = members.iter().flat_map(asked).collect();
    parts.sort_unstable();
    let run = |run: &[Part]| (run.len(), std::cmp::Reverse(run[0]));
    parts.chunk_by(|a, b| a == b).map(run).max().map(|(_, part)| part.0)
}

impl<'a> Member<'a> {
    fn guard(&self, part: Part) -> Option<&'a Guard> {
        self.guards.iter().find(|guard| guard.part == part).copied()
    }

    fn asks(&self, part: Part) -> bool {
        self.guard(part).is_some_and(|guard| self.copies * guard.numbers.len() <= COPIES_MAX)
    }

    /// The table behind an answer, if it wants it.
    fn after(&self, part: Part, number: u32) -> Option<Member<'a>> {
        let guard = self.guard(part).filter(|guard| guard.numbers.contains(&number))?;
        let guards = self.guards.iter().filter(|guard| guard.part != part).copied().collect();
        Some(Member { table: self.table, guards, copies: self.copies * guard.numbers.len() })
    }
}
