//! Failures of actions, as sentences: each cause once for a rule, the others are counted.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

/// Maximum number of reported causes; then one sentence says that there are more.
const CAUSES_MAX: usize = 64;

/// The reason that a command, webhook or recording failed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The kind of failure; it has neither times nor names of files.
    pub(crate) cause: String,
    /// The sentence behind the rule's name: the failure, and the remedy.
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(cause: &str, text: String) -> Failure {
        Failure { cause: cause.to_owned(), text }
    }
}

/// Sentences that wait to be reported.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    known: HashSet<(String, String)>,
    untold: Vec<String>,
}

impl Faults {
    /// Reports a failure of a rule, or of none if the name is empty.
    pub(crate) fn add(&mut self, rule: &str, failure: Failure) {
        let full = self.known.len() > CAUSES_MAX;
        if full || !self.known.insert((rule.to_owned(), failure.cause)) {
            return;
        }
        let place = if rule.is_empty() { String::new() } else { format!("rule {rule}: ") };
        self.untold.push(match self.known.len() {
            ..=CAUSES_MAX => format!("{place}{}; more of this kind is counted", failure.text),
            _ => "more causes of failures are not reported; the table of rules counts all".to_owned(),
        });
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_reported_once_for_a_rule() {
        let mut faults = Faults::default();
        for rule in ["a", "b", "a"] {
            faults.add(rule, Failure::new("404", "answered 404".to_owned()));
        }
        let told = |rule| format!("rule {rule}: answered 404; more of this kind is counted");
        assert_eq!(faults.take(), [told("a"), told("b")]);
        (0..1000).for_each(|cause| faults.add("a", Failure::new(&cause.to_string(), String::new())));
        assert_eq!(faults.take().len(), CAUSES_MAX - 2 + 1);
    }
}
