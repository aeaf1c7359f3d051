//! The report for people.
//!
//! ```text
//! loses   eth0  ring of 256 of 4096 descriptors        → ethtool -G eth0 rx 4096
//! alters  eth0  received packets are merged: gro, lro  → ethtool -K eth0 gro off lro off
//! note          a virtual machine: losses of its host have no counter here
//! 1 loses, 1 alters, 1 note; 2 can be fixed with --fix (12 fine, 3 unknown: --all)
//! ```

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use tapline_doctor::journal::FoundJournal;
use tapline_doctor::{CheckResult, Severity};
use tapline_sys::TerminalSize;

use super::Report;

/// Columns of a line where the terminal gives none.
const COLUMNS: usize = 120;
/// Longest text in front of the column of commands.
const TEXT_MAX: usize = 60;

/// Layout of lines for the output's reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    has_colour: bool,
    columns: usize,
}

impl Style {
    /// The style of an output: colour on terminals only, and not with NO_COLOR (no-color.org).
    pub(super) fn of(output: &(impl IsTerminal + AsFd)) -> Style {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let size = TerminalSize::of(output.as_fd());
        Style {
            has_colour: output.is_terminal() && !is_set("NO_COLOR") && !is_dumb,
            columns: size.map_or(COLUMNS, |size| usize::from(size.columns)),
        }
    }

    fn coloured(&self, severity: Severity, word: &str) -> String {
        let code = match severity {
            Severity::Loses => "1;31",
            Severity::Alters => "35",
            Severity::Delays => "33",
            Severity::Note => "36",
            Severity::Fine => "32",
            Severity::NotTold => "2",
        };
        if self.has_colour { format!("\x1b[{code}m{word}\x1b[0m") } else { word.to_owned() }
    }
}

/// The lines, and their sum.
pub(super) fn report(report: &Report<'_>, style: &Style, all: bool, why: bool) -> String {
    let shown: Vec<&CheckResult> =
        report.examined.iter().filter(|one| all || one.finding.severity <= Severity::Note).collect();
    let layout = Layout::of(&shown);
    let mut text = String::new();
    for left in report.left {
        text += &left_line(left);
    }
    for one in shown {
        text += &layout.line(one, style);
        if why {
            let _ = writeln!(text, "{:indent$}{}", "", one.check.why, indent = layout.indent());
            let _ = writeln!(text, "{:indent$}({})", "", one.check.source, indent = layout.indent());
        }
    }
    text + sum(report.examined, all).as_str() + "\n"
}

/// Widths of columns.
struct Layout {
    place: usize,
    text: usize,
}

impl Layout {
    fn of(shown: &[&CheckResult]) -> Layout {
        let place = shown.iter().map(|one| width(&place(one))).max().unwrap_or(0);
        let mended = shown.iter().filter(|one| one.finding.remedy.is_some());
        let texts = mended.map(|one| width(&plain(&one.finding.text))).filter(|width| *width <= TEXT_MAX);
        Layout { place, text: texts.max().unwrap_or(0) }
    }

    /// The column at which texts begin.
    fn indent(&self) -> usize {
        const SEVERITY: usize = 8;
        SEVERITY + 2 + if self.place == 0 { 0 } else { self.place + 2 }
    }

    fn line(&self, one: &CheckResult, style: &Style) -> String {
        let word = word(one.finding.severity);
        let padding = " ".repeat(10 - word.len());
        let place_padding = match self.place {
            0 => String::new(),
            most => " ".repeat(most + 2 - width(&place(one))),
        };
        let text = plain(&one.finding.text);
        let start =
            format!("{}{padding}{}{place_padding}", style.coloured(one.finding.severity, word), place(one));
        let Some(mend) = &one.finding.remedy else { return format!("{start}{text}\n") };
        let command = plain(&mend.command);
        let text_width = width(&text).max(self.text);
        // Commands must stay whole to be pasted, so those that do not fit have a line of their own.
        let fits =
            width(&text) <= self.text && self.indent() + text_width + 4 + width(&command) <= style.columns;
        match fits {
            true => {
                let gap = " ".repeat(text_width - width(&text));
                format!("{start}{text}{gap}  → {command}\n")
            }
            false => format!("{start}{text}\n{:indent$}→ {command}\n", "", indent = self.indent()),
        }
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn place(one: &CheckResult) -> String {
    one.finding.interface.as_deref().map(plain).unwrap_or_default()
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::NotTold => "unknown",
        other => other.name(),
    }
}

fn left_line(left: &FoundJournal) -> String {
    let steps: Vec<String> = left.entries.iter().map(|entry| plain(&entry.step.before.to_string())).collect();
    match left.is_running {
        true => {
            format!("tapline doctor --fix runs (pid {}) and will put back: {}\n", left.pid, steps.join("; "))
        }
        false => format!(
            "left by a run that was killed (pid {}), to be put back by tapline doctor --undo: {}\n",
            left.pid,
            steps.join("; ")
        ),
    }
}

/// `2 lose, 1 alters, 3 notes; 2 can be fixed with --fix (12 fine, 3 unknown: --all)`
pub(super) fn sum(examined: &[CheckResult], all: bool) -> String {
    let count = |severity| examined.iter().filter(|one| one.finding.severity == severity).count();
    let counted = [
        (Severity::Loses, "loses", "lose"),
        (Severity::Alters, "alters", "alter"),
        (Severity::Delays, "delays", "delay"),
        (Severity::Note, "note", "notes"),
    ]
    .map(|(severity, one, more)| (count(severity), one, more));
    let words: Vec<String> = counted
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, more)| format!("{count} {}", if *count == 1 { one } else { more }))
        .collect();
    let bad = if words.is_empty() {
        "nothing loses, alters or delays packets".to_owned()
    } else {
        words.join(", ")
    };
    let mended = examined.iter().filter(|one| one.finding.is_fixable()).count();
    let mended = if mended > 0 { format!("; {mended} can be fixed with --fix") } else { String::new() };
    let (fine, not_told) = (count(Severity::Fine), count(Severity::NotTold));
    let hint = if all { "" } else { ": --all" };
    format!("{bad}{mended} ({fine} fine, {not_told} unknown{hint})")
}

/// Text for a terminal: names of interfaces and processes are others' to choose, and may hold anything.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use tapline_doctor::{Facts, Interface, Scope, examine};
    use tapline_sys::{Link, Offload, RingSizes};

    use super::*;

    /// A host with a small ring and GRO, under a name that would like to clear the screen.
    fn facts(name: &str) -> Facts {
        let gro = Offload { name: "rx-gro".into(), is_on: true, is_changeable: true };
        let interface = Interface {
            link: Link { name: name.into(), flags: 0x41, kind: "veth".into(), ..Link::default() },
            rings: Some(RingSizes { rx: 256, rx_max: 4096 }),
            features: Some(vec![gro]),
            ..Interface::default()
        };
        Facts { interfaces: vec![interface], scope: Scope { netns: None, is_root: true }, ..Facts::default() }
    }

    fn text(name: &str, has_colour: bool, columns: usize) -> String {
        let facts = facts(name);
        let examined = examine(&facts);
        let all = Report { facts: &facts, examined: &examined, left: &[], changes: None };
        report(&all, &Style { has_colour, columns }, false, false)
    }

    #[test]
    fn findings_are_aligned_and_summed() {
        let expected = "\
loses     eth0  ring of 256 of 4096 descriptors   → ethtool -G eth0 rx 4096
alters    eth0  received packets are merged: gro  → ethtool -K eth0 gro off
1 loses, 1 alters; 2 can be fixed with --fix (";
        assert!(text("eth0", false, 120).starts_with(expected), "{}", text("eth0", false, 120));
    }

    #[test]
    fn long_commands_have_a_line_of_their_own() {
        let narrow = text("eth0", false, 60);
        assert!(narrow.contains("descriptors\n                → ethtool -G eth0 rx 4096\n"), "{narrow}");
    }

    #[test]
    fn names_of_others_do_nothing_to_a_terminal() {
        let hostile = text("a\x1b[2J\u{9b}x", false, 120);
        assert!(!hostile.contains('\x1b') && !hostile.contains('\u{9b}'), "{hostile:?}");
        assert!(text("eth0", true, 120).contains("\x1b[1;31mloses\x1b[0m"));
    }
}
