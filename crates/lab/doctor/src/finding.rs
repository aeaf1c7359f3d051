//! Result of a check.

use serde::Serialize;

use crate::Change;

/// Severity of a finding, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Packets are or will be lost.
    Loses,
    /// Packets are not seen as they were on the wire, or not in their order.
    Alters,
    /// Packets or their time stamps come late.
    Delays,
    /// Worth knowing.
    Note,
    /// Looked at, nothing to say against it.
    Fine,
    /// Neither kernel nor driver reports the fact.
    NotTold,
}

impl Severity {
    /// All, worst first.
    pub const ALL: [Severity; 6] = [
        Severity::Loses,
        Severity::Alters,
        Severity::Delays,
        Severity::Note,
        Severity::Fine,
        Severity::NotTold,
    ];

    /// One word, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Loses => "loses",
            Severity::Alters => "alters",
            Severity::Delays => "delays",
            Severity::Note => "note",
            Severity::Fine => "fine",
            Severity::NotTold => "not_told",
        }
    }

    /// Whether it makes the machine unfit for a capture that must hold the packets as they were on the wire.
    pub fn is_bad(self) -> bool {
        self <= Severity::Alters
    }
}

/// A figure or a word that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Evidence {
    /// A count, or a quantity whose unit is in its name.
    Number(u64),
    /// A share.
    Share(f64),
    /// Yes or no.
    Flag(bool),
    /// A name or a setting.
    Text(String),
    /// Several.
    List(Vec<String>),
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// The interface; `None` for the machine.
    pub interface: Option<String>,
    /// The finding in one line. Contains untrusted names: escape it for terminals.
    pub text: String,
    /// Evidence, by name.
    pub evidence: Vec<(String, Evidence)>,
    /// The remedy, if a certain one is known.
    pub remedy: Option<Remedy>,
}

/// Remedy of a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// A command line for a shell.
    pub command: String,
    /// The remedy as changes that can be made and put back; empty if only people should do it.
    pub changes: Vec<Change>,
    /// Whether the link may stop for a moment.
    pub interrupts_link: bool,
}

impl Finding {
    /// Whether changes that can be put back mend it.
    pub fn is_fixable(&self) -> bool {
        self.remedy.as_ref().is_some_and(|mend| !mend.changes.is_empty())
    }

    /// A finding about the whole machine.
    pub(crate) fn machine(severity: Severity, text: impl Into<String>) -> Finding {
        Finding { severity, interface: None, text: text.into(), evidence: Vec::new(), remedy: None }
    }

    pub(crate) fn on(interface: &str, severity: Severity, text: impl Into<String>) -> Finding {
        Finding { interface: Some(interface.to_owned()), ..Finding::machine(severity, text) }
    }

    pub(crate) fn not_told(interface: &str, text: impl Into<String>) -> Finding {
        Finding::on(interface, Severity::NotTold, text)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Evidence>) -> Finding {
        self.evidence.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn with_remedy(mut self, command: impl Into<String>) -> Finding {
        self.remedy = Some(Remedy { command: command.into(), changes: Vec::new(), interrupts_link: false });
        self
    }

    /// Mended by a command that is the same as these changes.
    pub(crate) fn fix(mut self, command: impl Into<String>, changes: Vec<Change>) -> Finding {
        self.remedy = Some(Remedy { command: command.into(), changes, interrupts_link: false });
        self
    }

    /// The link may stop for a moment while it is mended.
    pub(crate) fn interrupting(mut self) -> Finding {
        if let Some(mend) = &mut self.remedy {
            mend.interrupts_link = true;
        }
        self
    }
}

impl From<u64> for Evidence {
    fn from(value: u64) -> Evidence {
        Evidence::Number(value)
    }
}

impl From<u32> for Evidence {
    fn from(value: u32) -> Evidence {
        Evidence::Number(value.into())
    }
}

impl From<usize> for Evidence {
    fn from(value: usize) -> Evidence {
        Evidence::Number(value as u64)
    }
}

impl From<f64> for Evidence {
    fn from(value: f64) -> Evidence {
        Evidence::Share(value)
    }
}

impl From<bool> for Evidence {
    fn from(value: bool) -> Evidence {
        Evidence::Flag(value)
    }
}

impl From<&str> for Evidence {
    fn from(value: &str) -> Evidence {
        Evidence::Text(value.to_owned())
    }
}

impl From<String> for Evidence {
    fn from(value: String) -> Evidence {
        Evidence::Text(value)
    }
}

impl From<Vec<String>> for Evidence {
    fn from(value: Vec<String>) -> Evidence {
        Evidence::List(value)
    }
}
