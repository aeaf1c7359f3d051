//! Alternatives that differ in constants only, asked together: a list of a thousand hosts becomes a handful of
//! lookups before there is a graph at all.
//!
//! ```text
//! host a or host b or ... or host z        host a or (ip and (src in {b ... z} or dst in {b ... z}) or arp and ...)
//!
//! run      := part (or part)*              neighbours in a chain, each joined to what is before it by `or`
//! shape    := a part without the constants of its final tests
//! final    := a test of a part, after which, if it holds, the part holds at once
//! barrier  := a part whose shape the run has not had before, or that has no final test
//! ```
//!
//! That is exact, also for packets that were cut short. The parts of one shape take the same path as long as their
//! final tests do not hold, and make the same loads on it. Once the first of them has been answered with no, all
//! these loads were there, so the others cannot reject the packet, and the order of their tests does not matter. So
//! the first part of each shape stays in place; a later part waits for the next barrier, which may reject, and is
//! asked before it together with all that wait.

use crate::ast::BoolOp;
use crate::predicate::{FieldTest, Predicate, Predicates};
use tapline_bpf::cfg::JumpTest as Compare;

/// Fewer parts of one shape are left alone: the passes over the graph do as well with them.
const PARTS_MIN: usize = 6;

/// Shapes of a run that are looked for at most.
const SHAPES_MAX: usize = 16;

/// Tests of a part at most.
const TESTS_MAX: usize = 64;

/// Groups alternatives of one shape, so that they are tested together.
pub(crate) fn gather(predicates: &mut Predicates) {
    gather_within(&mut predicates.root);
}

fn gather_within(predicate: &mut Predicate) {
    match predicate {
        Predicate::Not(inner) => gather_within(inner),
        Predicate::Chain(first, rest) => {
            gather_within(first);
            rest.iter_mut().for_each(|(_, part)| gather_within(part));
            if rest.len() > PARTS_MIN {
                *rest = gathered(std::mem::take(rest));
            }
        }
        _ => {}
    }
}

/// The parts of a chain behind its first, its runs gathered.
fn gathered(rest: Vec<(BoolOp, Predicate)>) -> Vec<(BoolOp, Predicate)> {
    let mut run = Run::default();
    for (joint, part) in rest {
        if joint == BoolOp::And {
            run.end();
            run.done.push((joint, part));
        } else {
            run.take(part);
        }
    }
    run.end();
    run.done
}

#[derive(Default)]
struct Run {
    /// The parts that are in their places, of all runs.
    done: Vec<(BoolOp, Predicate)>,
    shapes: Vec<Shape>,
}

/// A shape that the run has had, and the later parts of it that wait.
struct Shape {
    /// The place of its first part.
    first: usize,
    finals: Vec<bool>,
    waiting: Vec<Predicate>,
}

impl Run {
    fn take(&mut self, part: Predicate) {
        let done = &self.done;
        let known = |shape: &&mut Shape| alike(&done[shape.first].1, &part, &shape.finals);
        if let Some(shape) = self.shapes.iter_mut().find(known) {
            return shape.waiting.push(part);
        }
        self.barrier();
        if part.assigns() {
            // The places that parts count from may be others now.
            self.shapes.clear();
        }
        if let Some(finals) = finals(&part).filter(|_| self.shapes.len() < SHAPES_MAX) {
            self.shapes.push(Shape { first: self.done.len(), finals, waiting: Vec::new() });
        }
        self.done.push((BoolOp::Or, part));
    }

    /// Puts the waiting parts into their place.
    fn barrier(&mut self) {
        for shape in &mut self.shapes {
            let waiting = std::mem::take(&mut shape.waiting);
            let parts = match waiting.len() >= PARTS_MIN {
                true => vec![together(waiting, &shape.finals)],
                false => waiting,
            };
            self.done.extend(parts.into_iter().map(|part| (BoolOp::Or, part)));
        }
    }

    fn end(&mut self) {
        self.barrier();
        self.shapes.clear();
    }
}

/// For each test of a part whether it is final; `None` if none is, or if the part assigns cells.
fn finals(part: &Predicate) -> Option<Vec<bool>> {
    let mut finals = Vec::new();
    let fits = add_finals(part, true, &mut finals);
    (fits && finals.len() <= TESTS_MAX && finals.contains(&true)).then_some(finals)
}

/// Adds those of a predicate; `ends` says whether the whole part holds once it holds.
fn add_finals(predicate: &Predicate, ends: bool, finals: &mut Vec<bool>) -> bool {
    match predicate {
        Predicate::Test(test) => {
            finals.push(ends && test.compare == Compare::Equal);
            true
        }
        Predicate::Not(inner) => add_finals(inner, false, finals),
        Predicate::Chain(first, rest) => {
            let parts = || [&**first].into_iter().chain(rest.iter().map(|(_, part)| part));
            // Behind the last `and`, and the part before it, each part ends the chain.
            let last_and = rest.iter().rposition(|(joint, _)| *joint == BoolOp::And);
            let from = last_and.map_or(0, |at| at + 1);
            parts().enumerate().all(|(at, part)| add_finals(part, ends && at >= from, finals))
        }
        Predicate::Assign(..) | Predicate::AnyOf(..) => false,
        Predicate::Constant(_) | Predicate::Relation(_) | Predicate::Headers(_) | Predicate::Differ(..) => {
            true
        }
    }
}

/// Whether two parts are equal but for the constants of final tests.
fn alike(a: &Predicate, b: &Predicate, finals: &[bool]) -> bool {
    let mut finals = finals.iter();
    same_shape(a, b, &mut finals)
}

fn same_shape<'a>(a: &Predicate, b: &Predicate, finals: &mut impl Iterator<Item = &'a bool>) -> bool {
    match (a, b) {
        (Predicate::Test(a), Predicate::Test(b)) => {
            let is_final = finals.next().copied().unwrap_or(false);
            a.field == b.field
                && a.mask == b.mask
                && a.compare == b.compare
                && (is_final || a.value == b.value)
        }
        (Predicate::Not(a), Predicate::Not(b)) => same_shape(a, b, finals),
        (Predicate::Chain(first_a, rest_a), Predicate::Chain(first_b, rest_b)) => {
            rest_a.len() == rest_b.len()
                && same_shape(first_a, first_b, finals)
                && rest_a
                    .iter()
                    .zip(rest_b)
                    .all(|((joint_a, a), (joint_b, b))| joint_a == joint_b && same_shape(a, b, finals))
        }
        (a, b) => a == b,
    }
}

/// Parts of one shape as one.
fn together(parts: Vec<Predicate>, finals: &[bool]) -> Predicate {
    let mut values: Vec<Vec<u32>> = vec![Vec::with_capacity(parts.len()); finals.len()];
    for part in &parts {
        let mut at = 0;
        for_each_test(part, &mut |test| {
            values[at].push(test.value);
            at += 1;
        });
    }
    let mut values = values.into_iter().zip(finals);
    let mut whole = parts.into_iter().next().unwrap_or(Predicate::Constant(false));
    put(&mut whole, &mut values);
    whole
}

fn for_each_test(predicate: &Predicate, visit: &mut impl FnMut(&FieldTest)) {
    match predicate {
        Predicate::Test(test) => visit(test),
        Predicate::Not(inner) => for_each_test(inner, visit),
        Predicate::Chain(first, rest) => {
            for_each_test(first, visit);
            rest.iter().for_each(|(_, part)| for_each_test(part, visit));
        }
        _ => {}
    }
}

/// Puts lookups in place of the final tests.
fn put<'a>(predicate: &mut Predicate, values: &mut impl Iterator<Item = (Vec<u32>, &'a bool)>) {
    match predicate {
        Predicate::Test(test) => {
            if let Some((mut values, true)) = values.next() {
                values.sort_unstable();
                values.dedup();
                if values.len() > 1 {
                    *predicate = Predicate::AnyOf(*test, values.into());
                }
            }
        }
        Predicate::Not(inner) => put(inner, values),
        Predicate::Chain(first, rest) => {
            put(first, values);
            rest.iter_mut().for_each(|(_, part)| put(part, values));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::parse::parse;
    use crate::resolve::lower;

    fn of(text: &str) -> Predicates {
        let mut predicates = lower(&parse(text).expect("a filter"), &Options::default()).expect("a filter");
        gather(&mut predicates);
        predicates
    }

    /// Number of constants of each lookup of a text.
    fn lookups(text: &str) -> Vec<usize> {
        fn collect(predicate: &Predicate, found: &mut Vec<usize>) {
            match predicate {
                Predicate::AnyOf(_, values) => found.push(values.len()),
                Predicate::Not(inner) => collect(inner, found),
                Predicate::Chain(first, rest) => {
                    collect(first, found);
                    rest.iter().for_each(|(_, part)| collect(part, found));
                }
                _ => {}
            }
        }
        let mut found = Vec::new();
        collect(&of(text).root, &mut found);
        found
    }

    fn joined(parts: impl Iterator<Item = String>) -> String {
        parts.collect::<Vec<_>>().join(" or ")
    }

    #[test]
    fn lists_become_lookups() {
        // The first host is a part of the chain itself, the second the first of its shape: 98 are left, for source
        // and destination in IP, ARP and RARP.
        let hosts = joined((0..100).map(|n| format!("host 10.0.0.{n}")));
        assert_eq!(lookups(&hosts), [98; 6]);
        assert_eq!(lookups(&format!("tcp and ({hosts})")), [98; 6]);
    }

    #[test]
    fn tests_that_may_reject_keep_their_place() {
        let hosts = |from: u32| joined((from..from + 10).map(|n| format!("src host 10.0.0.{n}")));
        let barrier = format!("{} or udp[100] = 1 or {}", hosts(0), hosts(10));
        let counts = lookups(&barrier);
        assert!(counts.len() > 2 && counts.iter().all(|&count| count <= 10), "{counts:?}");
    }

    #[test]
    fn tests_that_others_follow_are_no_final_ones() {
        let pairs = joined((0..20).map(|n| format!("(src host 10.0.0.{n} and tcp port {n})")));
        assert_eq!(lookups(&pairs), []);
        let negated = joined((0..20).map(|n| format!("not src host 10.0.0.{n}")));
        assert_eq!(lookups(&negated), []);
    }
}
