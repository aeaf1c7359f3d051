//! A decision tree over parts of a packet, beginning with the part that most tables compare.
//!
//! ```text
//! type?  0x800 -> protocol?  6  -> tables 1 4 7
//!    |                 |     17 -> found: filters 3 9; ports? range 80-90: filter 2
//!    |                 | none of these: tables 3
//!    |   0x86dd -> tables 6 8
//!    | none of these: tables 9
//! ```
//!
//! All filters of a table look at the same bits. A part for which they have few different numbers is tested before
//! the table is looked up. A part of several tables is tested once. A packet takes the branch of its number, and then
//! the branch for tables that do not test this part. A table with all bits tested on the path is not looked up: the
//! plan contains its entries for these numbers.

use tapline_packet::Packet;

use super::field::{BitField, Origin};
use super::filter::Bounds;
use super::{Entry, Shape, Slot};

/// Different numbers that a part may have in a table to be asked beforehand.
pub(super) const NUMBERS_MAX: usize = 4;

/// Maximum number of places of one table in the plan.
const COPIES_MAX: usize = 16;

/// Branches up to this number are tried in turn; more are searched by halving.
const WAYS_IN_TURN: usize = 8;

/// No further node.
const END: u32 = u32::MAX;

/// A part, and the numbers that the filters of a table require there.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub(super) part: BitField,
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

/// The result of a packet's walk through the plan.
pub(super) enum Step<'p> {
    /// Filters that accept the packet.
    Found(&'p [u32]),
    /// Filters that accept the packet if the rest of them holds too.
    Candidates(&'p [Entry]),
    /// A table that may have an entry for it.
    Table(u16),
}

/// The questions, the first one first.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    nodes: Vec<Node>,
    first: u32,
    ways: Vec<PlanBranch>,
    found: Vec<u32>,
    ranged: Vec<Ranged>,
    ranges: Vec<(Bounds, u32)>,
    candidates: Vec<Entry>,
    tables: Vec<u16>,
}

/// A piece of one of the plan's lists.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    start: u32,
    end: u32,
}

#[derive(Clone, Debug)]
struct Node {
    found: Piece,
    ranged: Piece,
    candidates: Piece,
    tables: Piece,
    /// The part to read, and the branches; no branches if there is no test.
    look: Look,
    ways: Piece,
    /// The next node for a packet that takes no branch; branches lead there as well. Always a node that was added
    /// before this one, so a walk ends.
    next: u32,
}

/// The branch of a number.
#[derive(Clone, Copy, Debug)]
struct PlanBranch {
    number: u32,
    node: u32,
}

/// Filters that accept if a part is in a range, each with its own.
#[derive(Clone, Copy, Debug)]
struct Ranged {
    look: Look,
    ranges: Piece,
}

/// The method of reading a part.
#[derive(Clone, Copy, Debug)]
enum Look {
    /// Tests these bits of the four bytes from here on.
    Four {
        at: u32,
        mask: u32,
    },
    Part(BitField),
}

impl Look {
    fn at(part: BitField) -> Look {
        match part.end().checked_sub(4).and_then(|at| u32::try_from(at).ok()) {
            Some(at) if part.origin == Origin::Start => Look::Four { at, mask: part.mask },
            _ => Look::Part(part),
        }
    }

    #[inline(always)]
    fn read(self, packet: Packet<'_>) -> Option<u32> {
        match self {
            Look::Four { at, mask } => {
                let bytes = packet.data.get(at as usize..)?.first_chunk()?;
                Some(u32::from_be_bytes(*bytes) & mask)
            }
            Look::Part(part) => part.read(packet),
        }
    }
}

/// A table on its way through the questions.
#[derive(Clone)]
struct Member<'a> {
    table: u16,
    guards: Vec<&'a Guard>,
    copies: usize,
    /// The numbers tested on the path, if they leave no bit of the table to look up.
    values: Option<Vec<(BitField, u32)>>,
}

/// The set's tables and filters.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) shapes: &'a [Option<Shape>],
    pub(super) slots: &'a [Slot],
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            nodes: Vec::new(),
            first: END,
            ways: Vec::new(),
            found: Vec::new(),
            ranged: Vec::new(),
            ranges: Vec::new(),
            candidates: Vec::new(),
            tables: Vec::new(),
        }
    }
}

impl Plan {
    /// A plan for all tables that are guarded, if only by nothing.
    pub(super) fn new(tables: Tables<'_>) -> Plan {
        let shapes = tables.shapes.iter().enumerate();
        let members = shapes.filter_map(|(at, shape)| Member::new(at as u16, shape.as_ref()?)).collect();
        let mut plan = Plan::default();
        plan.first = plan.add(tables, members, END);
        plan
    }

    /// Reports to `see` all filters that accept the packet, those that may, and tables that may have more.
    #[inline]
    pub(super) fn walk<'p>(&'p self, packet: Packet<'_>, mut see: impl FnMut(Step<'p>)) {
        let mut next = self.first;
        while let Some(node) = self.nodes.get(next as usize) {
            if !node.found.is_empty() {
                see(Step::Found(node.found.of(&self.found)));
            }
            for ranged in node.ranged.of(&self.ranged) {
                let Some(value) = ranged.look.read(packet) else { continue };
                for (bounds, slot) in ranged.ranges.of(&self.ranges) {
                    if bounds.hold(value) {
                        see(Step::Found(std::slice::from_ref(slot)));
                    }
                }
            }
            if !node.candidates.is_empty() {
                see(Step::Candidates(node.candidates.of(&self.candidates)));
            }
            node.tables.of(&self.tables).iter().for_each(|table| see(Step::Table(*table)));
            next = node.next;
            if !node.ways.is_empty()
                && let Some(number) = node.look.read(packet)
                && let Some(way) = way_of(node.ways.of(&self.ways), number)
            {
                next = way;
            }
        }
    }

    /// Adds the questions for these tables, behind which `then` comes, and says where they begin.
    fn add(&mut self, tables: Tables<'_>, members: Vec<Member<'_>>, then: u32) -> u32 {
        if members.is_empty() {
            return then;
        }
        let Some(part) = most_asked(&members) else {
            return self.add_leaf(tables, members, then);
        };
        let (asking, rest): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.asks(part));
        let mut numbers: Vec<u32> = asking
            .iter()
            .flat_map(|member| member.guard(part))
            .flat_map(|guard| guard.numbers.clone())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let next = self.add(tables, rest, then);
        let ways = numbers.into_iter().map(|number| {
            let wanting = asking.iter().filter_map(|member| member.after(part, number));
            PlanBranch { number, node: self.add(tables, wanting.collect(), next) }
        });
        let ways: Vec<PlanBranch> = ways.collect();
        let ways = Piece::added(&mut self.ways, ways);
        self.add_node(Node { look: Look::at(part), ways, ..Node::leading_to(next) })
    }

    /// Adds the rest when no more tests are left.
    fn add_leaf(&mut self, tables: Tables<'_>, members: Vec<Member<'_>>, then: u32) -> u32 {
        let (mut found, mut ranged, mut candidates, mut looked_up) = (vec![], vec![], vec![], vec![]);
        for member in members {
            let Some(shape) = &tables.shapes[usize::from(member.table)] else { continue };
            let Some(values) = member.values.filter(|_| member.guards.is_empty()) else {
                looked_up.push(member.table);
                continue;
            };
            for entry in shape.entries_of(&values) {
                match entry.bounds(tables.slots) {
                    _ if entry.settled => found.push(entry.slot),
                    Some((part, bounds)) => ranged.push((part, bounds, entry.slot)),
                    None => candidates.push(entry),
                }
            }
        }
        if found.is_empty() && ranged.is_empty() && candidates.is_empty() && looked_up.is_empty() {
            return then;
        }
        ranged.sort_by_key(|(part, ..)| *part);
        let ranged: Vec<Ranged> = ranged
            .chunk_by(|a, b| a.0 == b.0)
            .map(|of_part| {
                let ranges = of_part.iter().map(|(_, bounds, slot)| (*bounds, *slot));
                Ranged { look: Look::at(of_part[0].0), ranges: Piece::added(&mut self.ranges, ranges) }
            })
            .collect();
        let node = Node {
            found: Piece::added(&mut self.found, found),
            ranged: Piece::added(&mut self.ranged, ranged),
            candidates: Piece::added(&mut self.candidates, candidates),
            tables: Piece::added(&mut self.tables, looked_up),
            ..Node::leading_to(then)
        };
        self.add_node(node)
    }

    fn add_node(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }
}

#[inline(always)]
fn way_of(ways: &[PlanBranch], number: u32) -> Option<u32> {
    if ways.len() <= WAYS_IN_TURN {
        return ways.iter().find(|way| way.number == number).map(|way| way.node);
    }
    ways.binary_search_by_key(&number, |way| way.number).ok().map(|at| ways[at].node)
}

/// The part that most tables ask. One table alone asks only if that decides it: else it is looked up at once.
fn most_asked(members: &[Member<'_>]) -> Option<BitField> {
    let is_alone = members.len() < 2;
    let asked = |member: &Member<'_>| {
        let parts: Vec<BitField> = member.guards.iter().map(|guard| guard.part).collect();
        parts.into_iter().filter(|part| member.asks(*part)).collect::<Vec<BitField>>()
    };
    let asking = members.iter().filter(|member| !is_alone || member.values.is_some());
    let mut parts: Vec<BitField> = asking.flat_map(asked).collect();
    parts.sort_unstable();
    let run = |run: &[BitField]| (run.len(), std::cmp::Reverse(run[0]));
    parts.chunk_by(|a, b| a == b).map(run).max().map(|(_, part)| part.0)
}

impl<'a> Member<'a> {
    fn new(table: u16, shape: &'a Shape) -> Option<Member<'a>> {
        let guards = shape.guards.as_ref()?.iter().collect();
        let values = shape.is_planned().then(Vec::new);
        Some(Member { table, guards, copies: 1, values })
    }

    fn guard(&self, part: BitField) -> Option<&'a Guard> {
        self.guards.iter().find(|guard| guard.part == part).copied()
    }

    fn asks(&self, part: BitField) -> bool {
        self.guard(part).is_some_and(|guard| self.copies * guard.numbers.len() <= COPIES_MAX)
    }

    /// The table behind an answer, if it accepts it.
    fn after(&self, part: BitField, number: u32) -> Option<Member<'a>> {
        let guard = self.guard(part).filter(|guard| guard.numbers.contains(&number))?;
        let guards = self.guards.iter().filter(|guard| guard.part != part).copied().collect();
        let mut values = self.values.clone();
        values.iter_mut().for_each(|values| values.push((part, number)));
        Some(Member { table: self.table, guards, copies: self.copies * guard.numbers.len(), values })
    }
}

impl Node {
    fn leading_to(next: u32) -> Node {
        let [found, ranged, candidates, tables, ways] = [Piece::default(); 5];
        Node { found, ranged, candidates, tables, look: Look::Four { at: 0, mask: 0 }, ways, next }
    }
}

impl Piece {
    fn added<T>(list: &mut Vec<T>, more: impl IntoIterator<Item = T>) -> Piece {
        let start = list.len() as u32;
        list.extend(more);
        Piece { start, end: list.len() as u32 }
    }

    #[inline(always)]
    fn is_empty(self) -> bool {
        self.start == self.end
    }

    #[inline(always)]
    fn of<T>(self, list: &[T]) -> &[T] {
        list.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }
}
