//! Text from packets, files and peers, made safe for a terminal.

use tapline_flow::is_plain;

/// The text with control and invisible characters as escapes (`\u{1b}`). Names of interfaces and files may hold them.
pub(crate) fn plain(text: &str) -> String {
    let shown = |letter: char| match is_plain(letter) {
        true => letter.to_string(),
        false => letter.escape_default().to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("eth0\x1b[2J\u{202e}é"), "eth0\\u{1b}[2J\\u{202e}é");
    }
}
