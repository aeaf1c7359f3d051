//! Options between the parentheses of a signature: names and values.
//!
//! ```text
//! ( name: value; name; name:"text with \; \" \\"; )
//! ```

/// An option as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawOption<'t> {
    /// The name in small letters.
    pub(crate) name: String,
    /// The text behind the colon, without blanks around it; empty if there is none.
    pub(crate) value: &'t str,
}

/// Splits the text between the parentheses.
pub(crate) fn split(text: &str) -> Result<Vec<RawOption<'_>>, String> {
    let (mut all, mut start) = (Vec::new(), 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ';' if !is_quoted => {
                all.extend(option(&text[start..at])?);
                start = at + 1;
            }
            _ => {}
        }
    }
    let rest = text[start..].trim();
    match (is_quoted, rest) {
        (true, _) => Err(format!("a quote is not closed in `{}`", shortened(rest))),
        (false, "") => Ok(all),
        (false, rest) => Err(format!("`{}` lacks its ;", shortened(rest))),
    }
}

fn option(text: &str) -> Result<Option<RawOption<'_>>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let name = name.trim();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(format!("`{}` is not an option's name", shortened(name)));
    }
    Ok(Some(RawOption { name: name.to_ascii_lowercase(), value: value.trim() }))
}

/// The beginning of a text, for messages.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// The text between quotes, escapes undone; a text without quotes as it is.
pub(crate) fn unquoted(value: &str) -> Result<String, String> {
    let Some(inner) = value.strip_prefix('"') else { return Ok(value.to_owned()) };
    let inner = inner.strip_suffix('"').ok_or_else(|| format!("`{}` lacks its quote", shortened(value)))?;
    let (mut text, mut is_escaped) = (String::with_capacity(inner.len()), false);
    for letter in inner.chars() {
        match letter {
            '\\' if !is_escaped => is_escaped = true,
            letter => {
                // The language escapes these three and, as people write, the colon.
                if is_escaped && !matches!(letter, '"' | '\\' | ';' | ':') {
                    text.push('\\');
                }
                is_escaped = false;
                text.push(letter);
            }
        }
    }
    Ok(text)
}

/// The parts of a value between commas outside of quotes, without blanks around them.
pub(crate) fn parts(value: &str) -> Vec<&str> {
    let (mut all, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, letter) in value.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                all.push(value[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(value[start..].trim());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_end_at_semicolons_outside_of_quotes() {
        let text = r#" msg:"a; b \" c"; content:"|3b|x"; nocase; SID: 7 ; "#;
        let options = split(text).expect("four options");
        let read: Vec<(&str, &str)> =
            options.iter().map(|option| (option.name.as_str(), option.value)).collect();
        assert_eq!(
            read,
            [("msg", r#""a; b \" c""#), ("content", r#""|3b|x""#), ("nocase", ""), ("sid", "7")]
        );
        assert_eq!(unquoted(options[0].value).unwrap(), r#"a; b " c"#);
        assert_eq!(unquoted(r#""C:\\temp \d""#).unwrap(), r"C:\temp \d");
    }

    #[test]
    fn errors_name_the_option() {
        for (text, wanted) in
            [("msg:\"open;", "not closed"), ("sid:1", "lacks its ;"), ("a b:1;", "`a b`"), (":x;", "``")]
        {
            let error = split(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
