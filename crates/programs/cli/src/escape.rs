//! Text from packets, files and peers, made safe for a terminal.

use tapline_flow::is_plain;
use tapline_source::Event;

/// The text with control and invisible characters as escapes (`\u{1b}`). Names of interfaces and files may hold them.
pub(crate) fn plain(text: &str) -> String {
    let shown = |letter: char| match is_plain(letter) {
        true => letter.to_string(),
        false => letter.escape_default().to_string(),
    };
    text.chars().map(shown).collect()
}

/// As [`plain`], for text of several lines: the ends of lines stay.
pub(crate) fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// JSON with control and invisible characters as its own escapes (`\u001b`): they occur in strings only. Ends of lines
/// stay.
pub(crate) fn plain_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter == '\n' || is_plain(letter) {
            true => text.push(letter),
            false => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    text += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    text
}

/// The line of an event, without a line break.
pub(crate) fn event_line(event: &Event) -> String {
    let sign = if event.is_warning { "warning: " } else { "" };
    let separator = if event.interface.is_empty() { "" } else { ": " };
    format!("{sign}{}{separator}{}", plain(&event.interface), one_line(&event.text))
}

/// The text in one line. Messages of some errors have several, the further ones of which explain.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    plain(&lines.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_json() {
        let name = "a\u{9b}2J\u{202e}\u{e0001}é\x7f";
        let json = format!("{}\n", serde_json::json!({ "name": name }));
        let plain = plain_json(&json);
        assert!(plain.chars().all(|letter| letter == '\n' || is_plain(letter)), "{plain:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&plain).unwrap()["name"], name);
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(plain_lines("a\x1b]0;x\x07\nb\r\n"), "a\\u{1b}]0;x\\u{7}\nb\\r\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("eth0\x1b[2J\u{202e}é"), "eth0\\u{1b}[2J\\u{202e}é");
    }

    #[test]
    fn an_event_is_one_line() {
        let event = |text: &str| Event { interface: "vpn0".into(), text: text.to_owned(), is_warning: true };
        let text = "appeared but cannot be captured: no \x1b right\n  use sudo\n";
        let line = "warning: vpn0: appeared but cannot be captured: no \\u{1b} right; use sudo";
        assert_eq!(event_line(&event(text)), line);
    }
}
