//! Words for names in filters: `sni(...)`, `http_host(...)`, `dns_name(...)`.
//!
//! ```text
//! text    := [filter and] names [and filter] | filter
//! names   := word { or word } | ( names )
//! word    := (sni | http_host | dns_name) ( name { , name } )          name := www.example.org | .example.org
//! ```
//!
//! The filter decides about a packet, the words about its flow, so they are parts of the text joined by `and`. In the
//! language of filters `and` and `or` bind alike, from the left: `a or b and sni(x)` is `(a or b) and sni(x)`.

use tapline_store::NameFilter;

/// Protocols in which a client says a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Sni,
    HttpHost,
    DnsName,
}

const WORDS: [(&str, NameKind); 3] =
    [("sni", NameKind::Sni), ("http_host", NameKind::HttpHost), ("dns_name", NameKind::DnsName)];

/// Names of flows: any of them is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameWords(Vec<(NameKind, NameFilter)>);

impl NameWords {
    /// Parses words without a filter.
    pub(super) fn parse(text: &str) -> Result<NameWords, String> {
        match split(text)? {
            Some((filter, words)) if filter.is_empty() => NameWords::of(&words),
            Some((filter, _)) => {
                Err(format!("`{filter}` is a filter: give it to a stage `filter` before this one"))
            }
            None => Err(format!(
                "`{text}` is not sni(NAME), http_host(NAME) or dns_name(NAME), with `or` between"
            )),
        }
    }

    fn of(text: &str) -> Result<NameWords, String> {
        let mut names = Vec::new();
        let mut rest = text.trim();
        while let Some((kind, open)) = word_at(rest, 0) {
            let close = rest[open..].find(')').ok_or_else(|| format!("`{rest}`: a `)` is missing"))? + open;
            for name in rest[open..close].split(',').map(str::trim) {
                let name = name.trim_matches(['"', '\'']);
                names.push((kind, NameFilter::parse(name).map_err(|why| format!("`{name}`: {why}"))?));
            }
            rest = rest[close + 1..].trim_start();
            rest = match rest.strip_prefix("or").or_else(|| rest.strip_prefix("||")) {
                Some(behind) => behind.trim_start(),
                None if rest.is_empty() => break,
                None => return Err(format!("`{rest}` does not follow a name: join names with `or`")),
            };
        }
        if rest.is_empty() && !names.is_empty() {
            return Ok(NameWords(names));
        }
        Err(format!("`{text}`: only names are joined by `or`; the rest of the filter by `and`"))
    }

    /// Whether flows can have a name of this kind.
    pub(super) fn has(&self, kind: NameKind) -> bool {
        self.0.iter().any(|(known, _)| *known == kind)
    }

    /// Whether a name that a flow said is one of these.
    pub(super) fn accept(&self, kind: NameKind, name: &str) -> bool {
        let name = if kind == NameKind::HttpHost { without_port(name) } else { name };
        self.0.iter().any(|(known, filter)| *known == kind && filter.is_meant(name.as_bytes()))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    }
}

/// Splits a filter into the filter of packets, which may be empty, and the words for names; `None` without such words.
///
/// # Errors
/// Words that are not joined to the rest by `and`.
pub fn split_names(text: &str) -> Result<Option<(String, String)>, String> {
    let Some((filter, words)) = split(text)? else { return Ok(None) };
    NameWords::of(&words)?;
    Ok(Some((filter, words)))
}

/// The kind of a word at a place, and the place behind its parenthesis.
fn word_at(text: &str, at: usize) -> Option<(NameKind, usize)> {
    let is_inside =
        text[..at].ends_with(|letter: char| letter.is_alphanumeric() || "_-.:\\".contains(letter));
    WORDS.iter().filter(|_| !is_inside).find_map(|(word, kind)| {
        let behind = text[at..].strip_prefix(word)?.trim_start().strip_prefix('(')?;
        Some((*kind, text.len() - behind.len()))
    })
}

fn split(text: &str) -> Result<Option<(String, String)>, String> {
    let places = || text.char_indices().filter(|(at, _)| word_at(text, *at).is_some()).map(|(at, _)| at);
    let (Some(first), Some(last)) = (places().next(), places().next_back()) else { return Ok(None) };
    let end = text[last..].find(')').map(|close| last + close + 1);
    let end = end.ok_or_else(|| format!("`{}`: a `)` is missing", &text[last..]))?;
    let (mut before, words, mut behind) = (text[..first].trim(), &text[first..end], text[end..].trim());
    // Parentheses around the words.
    while let (Some(less), Some(rest)) = (before.strip_suffix('('), behind.strip_prefix(')')) {
        (before, behind) = (less.trim_end(), rest.trim_start());
    }
    let joined = |rest: &str| format!("`{rest}`: names of flows are joined to the rest of a filter by `and`");
    let strip_end = |text: &'_ str| {
        let less = text.strip_suffix("and").or_else(|| text.strip_suffix("&&"));
        less.filter(|less| less.ends_with([' ', ')']) || text.ends_with("&&"))
            .map(|less| less.trim().to_owned())
    };
    let strip_start = |text: &'_ str| {
        let less = text.strip_prefix("and").or_else(|| text.strip_prefix("&&"));
        less.filter(|less| less.starts_with([' ', '(']) || text.starts_with("&&"))
            .map(|less| less.trim().to_owned())
    };
    let before =
        if before.is_empty() { String::new() } else { strip_end(before).ok_or_else(|| joined(before))? };
    let behind =
        if behind.is_empty() { String::new() } else { strip_start(behind).ok_or_else(|| joined(behind))? };
    if depth(&before) != 0 || depth(&behind) != 0 || has_or(&behind) {
        return Err(joined(text));
    }
    let filter = match (before.is_empty(), behind.is_empty()) {
        (false, false) => format!("({before}) and ({behind})"),
        _ => format!("{before}{behind}"),
    };
    Ok(Some((filter, words.to_owned())))
}

/// Parentheses that are open at the end; -1 if one closes that was not open.
fn depth(text: &str) -> i32 {
    let mut depth = 0;
    for letter in text.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if depth < 0 {
            return depth;
        }
    }
    depth
}

/// Whether there is an `or` outside of parentheses, which would apply to the text before it too.
fn has_or(text: &str) -> bool {
    let mut depth = 0;
    let outside: String = text
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(') - i32::from(*letter == ')');
            depth == 0
        })
        .collect();
    outside.contains("||") || outside.split_whitespace().any(|word| word.trim_matches(')') == "or")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(text: &str) -> (String, String) {
        split_names(text)
            .unwrap_or_else(|why| panic!("{text}: {why}"))
            .unwrap_or_else(|| panic!("{text}: no word"))
    }

    #[test]
    fn filters_and_names_are_split() {
        for (text, filter, words) in [
            ("sni(a.b)", "", "sni(a.b)"),
            ("tcp port 443 and sni(.example.org)", "tcp port 443", "sni(.example.org)"),
            ("tcp or udp and sni(a)", "tcp or udp", "sni(a)"),
            ("sni(a, b) or http_host ( c ) and (tcp or udp)", "(tcp or udp)", "sni(a, b) or http_host ( c )"),
            (
                "ip && (sni(a) || dns_name(a)) and host 10.0.0.1",
                "(ip) and (host 10.0.0.1)",
                "sni(a) || dns_name(a)",
            ),
        ] {
            assert_eq!(halves(text), (filter.to_owned(), words.to_owned()), "{text}");
        }
        for none in ["tcp port 80", "host sni", "host snifter", "", "port (80 or 443)"] {
            assert_eq!(split_names(none), Ok(None), "{none}");
        }
    }

    #[test]
    fn mistakes_are_reported() {
        for wrong in [
            "tcp or sni(a)",
            "sni(a) and tcp or udp",
            "not sni(a)",
            "(tcp and sni(a)) or udp",
            "sni(a) and tcp or http_host(b)",
            "sni(a",
            "sni()",
            "sni(a b)",
            "sni(a) sni(b)",
        ] {
            assert!(split_names(wrong).is_err(), "{wrong}");
        }
        assert!(NameWords::parse("tcp and sni(a)").is_err_and(|why| why.contains("stage `filter`")));
        assert!(NameWords::parse("tcp").is_err());
    }

    #[test]
    fn names_are_those_of_their_protocol() {
        let words = NameWords::parse("sni(.example.org) or dns_name(a.test)").unwrap();
        assert!(words.accept(NameKind::Sni, "www.Example.org") && words.accept(NameKind::DnsName, "a.test"));
        assert!(
            !words.accept(NameKind::DnsName, "example.org") && !words.accept(NameKind::HttpHost, "a.test")
        );
        let words = NameWords::parse("http_host(a.test)").unwrap();
        assert!(
            words.accept(NameKind::HttpHost, "a.test:8080") && words.accept(NameKind::HttpHost, "A.test")
        );
        assert!(!words.accept(NameKind::HttpHost, "a.test:b") && !words.has(NameKind::Sni));
        let words = NameWords::parse("sni(.example.org) or dns_name(a.test)").unwrap();
        assert_eq!([NameKind::Sni, NameKind::HttpHost].map(|kind| words.has(kind)), [true, false]);
    }
}
