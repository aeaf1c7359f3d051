//! The passes over the graph of values, in their order: the same answers for less work.
//!
//! ```text
//! fold       arithmetic on constants; branches on constants
//! number     equal values become one value
//! ...
//! dead       unread values and unreachable blocks go
//! ```
//!
//! Each pass is a function of a graph in a file of its own, keeps it safe ([`Ir::verify`]), and keeps the graph's
//! result for every packet, however short. Only this file decides which passes run, and in which order.

mod classes;
mod dead;
mod facts;
mod fold;
mod guards;
mod held;
mod hoist;
mod known;
mod limits;
mod merge;
mod number;
mod order;
mod predicates;
mod repair;
mod switch;
mod widen;

use crate::Ir;

/// A pass: its name, and its purpose. Its function returns whether anything changed.
pub struct Pass {
    /// For people and for `tapline filter explain --stage`.
    pub name: &'static str,
    /// The purpose of the pass, in a few words.
    pub purpose: &'static str,
    /// Changes the graph; says whether it did.
    pub run: fn(&mut Ir) -> bool,
}

/// All passes, in the order in which they run.
pub const PASSES: &[Pass] = &[
    FOLD, NUMBER, GUARDS, PREDICATES, NUMBER, GUARDS, FOLD, PREDICATES, MERGE, NUMBER, GUARDS, DEAD, HOIST,
    LIMITS, WIDEN, NUMBER, SWITCH, ORDER, DEAD,
];

const FOLD: Pass = Pass { name: "fold", purpose: "computes what is constant", run: fold::fold };
const NUMBER: Pass =
    Pass { name: "number", purpose: "reads one value for all that are equal", run: number::number };
const GUARDS: Pass = Pass { name: "guards", purpose: "merges length checks", run: guards::guards };
const PREDICATES: Pass =
    Pass { name: "predicates", purpose: "leads ways past tests that they know", run: predicates::predicates };
const MERGE: Pass = Pass { name: "merge", purpose: "makes equal blocks one", run: merge::merge };
const HOIST: Pass =
    Pass { name: "hoist", purpose: "computes once what loops do not change", run: hoist::hoist };
const DEAD: Pass =
    Pass { name: "dead", purpose: "removes unread values and unreachable blocks", run: dead::dead };
const LIMITS: Pass =
    Pass { name: "limits", purpose: "makes two limits of a counter one", run: limits::limits };
const WIDEN: Pass =
    Pass { name: "widen", purpose: "makes comparisons of neighbouring bytes one", run: widen::widen };
const SWITCH: Pass = Pass {
    name: "switch",
    purpose: "looks values up instead of comparing them one by one",
    run: switch::switch,
};
const ORDER: Pass =
    Pass { name: "order", purpose: "swaps constants instead of packet bytes", run: order::order };

/// Runs all passes.
pub fn optimise(ir: &mut Ir) {
    optimise_with_observer(ir, |_, _| {});
}

/// Runs all passes but the one that swaps constants: for engines whose loads give numbers in network order by
/// themselves, as those of socket filters in the kernel do.
pub fn optimise_for_sockets(ir: &mut Ir) {
    PASSES.iter().filter(|pass| pass.name != ORDER.name).for_each(|pass| {
        (pass.run)(ir);
    });
}

/// Runs the passes that remove superfluous parts after another transformation.
pub fn clean_up(ir: &mut Ir) {
    for pass in [NUMBER, FOLD, NUMBER, DEAD] {
        (pass.run)(ir);
    }
}

/// Runs all passes and calls `watch` after each that changed something.
pub fn optimise_with_observer(ir: &mut Ir, mut watch: impl FnMut(&Pass, &Ir)) {
    for pass in PASSES {
        if (pass.run)(ir) {
            watch(pass, ir);
        }
    }
}
