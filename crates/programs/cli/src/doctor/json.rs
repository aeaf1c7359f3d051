//! The report for machines: docs/doctor.md has its fields.

use serde_json::{Map, Value, json};
use tapline_doctor::journal::FoundJournal;
use tapline_doctor::{Attempt, CheckResult, Severity};

use super::Report;

/// One object.
pub(super) fn report(report: &Report<'_>) -> Value {
    let count = |severity| report.examined.iter().filter(|one| one.finding.severity == severity).count();
    let mut summary: Map<String, Value> =
        Severity::ALL.iter().map(|severity| (severity.name().to_owned(), count(*severity).into())).collect();
    let fixable = report.examined.iter().filter(|one| one.finding.is_fixable()).count();
    summary.insert("fixable".to_owned(), fixable.into());
    json!({
        "interfaces": report.facts.interfaces.iter().map(|one| one.name()).collect::<Vec<_>>(),
        "netns": report.facts.scope.netns,
        "watched_seconds": report.facts.interval_s,
        "findings": report.examined.iter().map(finding).collect::<Vec<_>>(),
        "changes": report.changes.map(|changes| changes.iter().map(change).collect::<Vec<_>>()),
        "left": report.left.iter().map(left).collect::<Vec<_>>(),
        "summary": summary,
        "bad": report.is_bad(),
    })
}

fn finding(one: &CheckResult) -> Value {
    let CheckResult { check, finding } = one;
    let evidence: Map<String, Value> =
        finding.evidence.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "severity": finding.severity.name(),
        "interface": finding.interface,
        "check": check.name,
        "text": finding.text,
        "looks_at": check.subject,
        "evidence": evidence,
        "mend": finding.remedy.as_ref().map(|mend| mend.command.as_str()),
        "fix": finding.is_fixable(),
        "interrupts": finding.remedy.as_ref().is_some_and(|mend| mend.interrupts_link),
        "why": check.why,
        "source": check.source,
    })
}

fn change(change: &Attempt) -> Value {
    match change {
        Attempt::Made(step) => {
            json!({"done": true, "change": step.change.to_string(), "before": step.before.to_string()})
        }
        Attempt::NotMade { what, why } => json!({"done": false, "change": what, "reason": why}),
    }
}

/// Changes of another run, or left by one.
pub(super) fn left(left: &FoundJournal) -> Value {
    json!({
        "pid": left.pid,
        "running": left.is_running,
        "netns": left.header.netns,
        "put_back": left.entries.iter().map(|entry| entry.step.before.to_string()).collect::<Vec<_>>(),
    })
}
