//! The table of checks. Each is a small function of facts; it returns several findings, or none if it does not apply.
//!
//! | file | checks |
//! |---|---|
//! | `offload` | packets merged, cut, stripped or left unfinished by the adapter |
//! | `queues` | rings, moderation, pause frames; how packets spread over queues and processors |
//! | `link` | carrier, speed, size, interfaces on top of the interface |
//! | `losses` | counters of loss so far |
//! | `rivals` | other packet sockets, XDP programs, the driver's abilities |
//! | `clock` | clock source, synchronisation, counter |
//! | `memory` | memory, limits, settings of the kernel, disk |
//! | `processor` | number, governor, idle states, steal, mitigations |
//! | `rights` | the rights of this user |

mod clock;
mod link;
mod losses;
mod memory;
mod offload;
mod processor;
mod queues;
mod rights;
mod rivals;

use crate::{Facts, Finding, Interface};

pub(crate) use offload::ethtool_word;

/// A check of the facts.
#[derive(Debug)]
pub struct Check {
    /// Name for machines.
    pub name: &'static str,
    /// Subject of the check.
    pub subject: &'static str,
    /// Reason that it matters, in a sentence.
    pub why: &'static str,
    /// The source of this knowledge.
    pub source: &'static str,
    run: Run,
}

/// A check is of the machine, or of each interface.
#[derive(Clone, Copy, Debug)]
enum Run {
    Machine(fn(&Facts) -> Vec<Finding>),
    Interface(fn(&Interface, &Facts) -> Vec<Finding>),
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// The check.
    pub check: &'static Check,
    /// The finding.
    pub finding: Finding,
}

/// All checks there are.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let groups: [&'static [Check]; 9] = [
        &offload::CHECKS,
        &queues::CHECKS,
        &link::CHECKS,
        &losses::CHECKS,
        &rivals::CHECKS,
        &clock::CHECKS,
        &memory::CHECKS,
        &processor::CHECKS,
        &rights::CHECKS,
    ];
    groups.into_iter().flatten()
}

/// Runs all checks. The worst comes first; among equals the machine before interfaces, and those by their order.
pub fn examine(facts: &Facts) -> Vec<CheckResult> {
    let mut all: Vec<CheckResult> = checks()
        .flat_map(|check| check.run(facts).into_iter().map(move |finding| CheckResult { check, finding }))
        .collect();
    let place = |finding: &Finding| {
        let name = finding.interface.as_deref()?;
        facts.interfaces.iter().position(|interface| interface.name() == name)
    };
    all.sort_by_key(|examined| (examined.finding.severity, place(&examined.finding)));
    all
}

impl Check {
    fn run(&self, facts: &Facts) -> Vec<Finding> {
        match self.run {
            Run::Machine(run) => run(facts),
            Run::Interface(run) => facts.interfaces.iter().flat_map(|one| run(one, facts)).collect(),
        }
    }
}

/// `1 queue`, `2 queues`.
fn counted(count: u64, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Severity;

    #[test]
    fn names_are_unique_and_texts_are_sentences() {
        let names: BTreeSet<&str> = checks().map(|check| check.name).collect();
        assert_eq!(names.len(), checks().count());
        for check in checks() {
            assert!(check.why.ends_with('.') && !check.source.is_empty(), "{}", check.name);
        }
    }

    #[test]
    fn the_manual_has_each_check() {
        let of_words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let manual = of_words(include_str!("../../../../../docs/doctor.md"));
        for check in checks() {
            let (name, subject, why) = (check.name, check.subject, check.why);
            let row = format!("| `{name}` | {subject} | {why} | {} |", check.source);
            assert!(manual.contains(&of_words(&row)), "docs/doctor.md lacks: {row}");
        }
    }

    #[test]
    fn a_machine_that_tells_nothing_is_not_blamed() {
        let facts = Facts { interfaces: vec![Interface::default()], ..Facts::default() };
        for CheckResult { check, finding } in examine(&facts) {
            // An interface that is not up is known to lose: that is told.
            let is_link = check.name == "link";
            assert!(is_link || finding.severity >= Severity::Note, "{}: {finding:?}", check.name);
        }
    }

    #[test]
    fn the_worst_comes_first() {
        let facts = Facts { interfaces: vec![Interface::default(); 2], ..Facts::default() };
        let severities: Vec<Severity> = examine(&facts).iter().map(|one| one.finding.severity).collect();
        assert!(severities.is_sorted(), "{severities:?}");
    }
}
