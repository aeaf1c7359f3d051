//! Mistakes in files of rules, and faults of actions.

/// A mistake in a file of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The file is too long.
    #[error("the file is longer than {most} bytes, the most that is read")]
    Long {
        /// The greatest length in bytes.
        most: u64,
    },
    /// There are too many rules and scripts.
    #[error("more than {most} rules and scripts: share them out over several files")]
    Many {
        /// The greatest number.
        most: usize,
    },
    /// The text is not TOML, or has an unknown word; the text of the error shows the place.
    #[error("{0}")]
    Toml(String),
    /// A setting is out of its range.
    #[error("[settings] {0}")]
    Settings(String),
    /// A receiver of events is wrong.
    #[error("[[webhook]] `{name}`: {why}")]
    Webhook {
        /// Name of the receiver.
        name: String,
        /// The mistake, and what to write instead.
        why: String,
    },
    /// A rule is wrong.
    #[error("`{name}` in line {line}: {why}")]
    Rule {
        /// The line of its name, from 1.
        line: usize,
        /// Name of the rule.
        name: String,
        /// The mistake, and what to write instead.
        why: String,
    },
}
