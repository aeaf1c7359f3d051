//! Texts of events with places for facts: `{src} tried {value} ports of {dst}`.

use std::fmt::Write as _;

use crate::key::Subject;

/// Words that are allowed in braces.
const NAMES: [&str; 11] =
    ["src", "dst", "sport", "dport", "proto", "vlan", "packets", "bytes", "value", "above", "rule"];

/// A text with places for facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Name(&'static str),
}

/// Facts in addition to those of the subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) rule: &'a str,
    pub(crate) value: u64,
    /// Whether the value is a lower bound.
    pub(crate) is_least: bool,
    pub(crate) above: u64,
    pub(crate) subject: Option<&'a Subject>,
}

impl Template {
    /// Parses a text; `{{` is a brace.
    ///
    /// # Errors
    /// The first word in braces that means nothing, or a brace without its other half.
    pub fn parse(text: &str) -> Result<Template, String> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(at) = rest.find('{') {
            parts.push(TemplatePart::Text(rest[..at].to_owned()));
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('{') {
                parts.push(TemplatePart::Text("{".to_owned()));
                rest = behind;
                continue;
            }
            let end = rest.find('}').ok_or("message: { needs a }; {{ is a brace")?;
            let name = &rest[..end];
            let known = NAMES.iter().find(|known| **known == name);
            let known = known.ok_or_else(|| {
                format!("message: {{{name}}} means nothing; there are {}", NAMES.join(", "))
            })?;
            parts.push(TemplatePart::Name(known));
            rest = &rest[end + 1..];
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        Ok(Template(parts))
    }

    /// The text with these facts.
    pub(crate) fn text(&self, facts: &Facts<'_>) -> String {
        let mut text = String::new();
        for part in &self.0 {
            let _ = match part {
                TemplatePart::Text(part) => text.write_str(part),
                TemplatePart::Name("value") if facts.is_least => write!(text, "at least {}", facts.value),
                TemplatePart::Name("value") => write!(text, "{}", facts.value),
                TemplatePart::Name("above") => write!(text, "{}", facts.above),
                TemplatePart::Name("rule") => text.write_str(facts.rule),
                TemplatePart::Name(name) => {
                    match facts.subject {
                        Some(subject) => subject.write(name, &mut text),
                        None => text.push('-'),
                    }
                    Ok(())
                }
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_take_their_places() {
        let template = Template::parse("{{x} {src}: {value} of {above} by {rule}").unwrap();
        let subject = Subject { src: "10.0.0.9".parse().ok(), ..Subject::default() };
        let facts = Facts { rule: "r", value: 7, is_least: false, above: 5, subject: Some(&subject) };
        assert_eq!(template.text(&facts), "{x} 10.0.0.9: 7 of 5 by r");
        let facts = Facts { is_least: true, ..facts };
        assert_eq!(template.text(&facts), "{x} 10.0.0.9: at least 7 of 5 by r");
        assert!(Template::parse("{src").is_err());
    }
}
