//! Rules that decide where packets go, from a file that can change while packets flow.
//!
//! ```text
//! text --parse--> RuleFile --RuleSet::new--> RuleSet: the same with counters, shared by workers
//!
//! packet: filter -> exact rules (one lookup) -> list, in order -> sample -> default
//!                          \----------------------\--> Outputs, or nowhere
//!
//! a rule with `learn` --> Learned: exact rules of a worker, bounded
//! ```
//!
//! `docs/rules.md` has the language. The crate knows nothing of graphs: it parses, looks up and counts; a stage asks
//! the filters and hands packets on.
#![forbid(unsafe_code)]

mod action;
mod exact;
mod learned;
mod parse;
mod set;
mod text;

pub use action::{Actions, Outputs, Share};
pub use exact::{Directions, ExactRule, ExactTable, Flow, Probes};
pub use learned::{Learned, Teacher};
pub use parse::{EXACT_MAX, LINE_MAX, LIST_MAX, ListRule, OUTPUTS_MAX, REFLECT, RuleFile, parse};
pub use set::{Counts, Decision, LearnedTotals, ListTotals, Report, RuleSet};
