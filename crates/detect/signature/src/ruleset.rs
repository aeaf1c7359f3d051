//! Files of signatures: lines, variables, and refusals.

use std::collections::{BTreeMap, HashSet};

use crate::conversation::FlowBitNames;
use crate::options::shortened;
use crate::payload::REGEX_SUM_MAX;
use crate::signature::{Context, Signature, classification};

/// The most signatures of a ruleset.
pub const SIGNATURES_MAX: usize = 100_000;
/// The most bytes of a line, lines joined by a backslash together.
const LINE_MAX: usize = 1 << 16;

/// Values of the variables that headers name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    addresses: BTreeMap<String, String>,
    ports: BTreeMap<String, String>,
}

/// Variables with a value from the start, as Snort's configuration has them.
const ADDRESSES: [(&str, &str); 12] = [
    ("HOME_NET", "any"),
    ("EXTERNAL_NET", "any"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("SSH_SERVERS", "$HOME_NET"),
    ("FTP_SERVERS", "$HOME_NET"),
    ("SIP_SERVERS", "$HOME_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "any"),
];
const PORTS: [(&str, &str); 8] = [
    ("HTTP_PORTS", "[80,81,591,8000,8008,8080,8081,8888]"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1024:"),
    ("SSH_PORTS", "22"),
    ("FTP_PORTS", "[21,2100,3535]"),
    ("SIP_PORTS", "[5060,5061]"),
    ("DNS_PORTS", "53"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
];

impl Default for Variables {
    fn default() -> Variables {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        Variables { addresses: owned(&ADDRESSES), ports: owned(&PORTS) }
    }
}

impl Variables {
    /// `NAME=value;NAME=value`, over the values from the start. A name means addresses where a header has addresses,
    /// and ports where it has ports.
    ///
    /// # Errors
    /// The part that has no `=`, or no name.
    pub fn parse(text: &str) -> Result<Variables, String> {
        let mut variables = Variables::default();
        for part in text.split([';', '\n']).map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is not written as NAME=value"))?;
            let name = checked_name(name.trim())?;
            variables.addresses.insert(name.to_owned(), value.trim().to_owned());
            variables.ports.insert(name.to_owned(), value.trim().to_owned());
        }
        Ok(variables)
    }

    pub(crate) fn address(&self, name: &str) -> Option<&str> {
        self.addresses.get(name).map(String::as_str)
    }

    pub(crate) fn port(&self, name: &str) -> Option<&str> {
        self.ports.get(name).map(String::as_str)
    }

    /// Takes a line of a file; whether it is one of variables.
    fn declare(&mut self, line: &str) -> Option<Result<(), String>> {
        let (word, rest) = line.split_once(char::is_whitespace)?;
        let (has_addresses, has_ports) = match word {
            "var" => (true, true),
            "ipvar" => (true, false),
            "portvar" => (false, true),
            _ => return None,
        };
        let Some((name, value)) = rest.trim().split_once(char::is_whitespace) else {
            return Some(Err(format!("{word} needs a name and a value")));
        };
        let name = match checked_name(name) {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        if has_addresses {
            self.addresses.insert(name.to_owned(), value.trim().to_owned());
        }
        if has_ports {
            self.ports.insert(name.to_owned(), value.trim().to_owned());
        }
        Some(Ok(()))
    }
}

fn checked_name(name: &str) -> Result<&str, String> {
    let is_right = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    match !name.is_empty() && name.chars().all(is_right) {
        true => Ok(name),
        false => Err(format!("`{}` is not a variable's name", shortened(name))),
    }
}

/// A line that was not understood, and is not evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {reason}", sid.map_or(String::new(), |sid| format!(" (sid {sid})")))]
pub struct Refusal {
    /// The line in which it begins, counted from 1.
    pub line: u32,
    /// The number of the signature, if it could be read.
    pub sid: Option<u32>,
    /// The reason, which names the part.
    pub reason: String,
}

/// The signatures of a file.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    /// Signatures that were understood, in the order of the file.
    pub signatures: Vec<Signature>,
    /// Lines that were not.
    pub refusals: Vec<Refusal>,
}

impl Ruleset {
    /// Parses a file. Each line is a signature, a variable, a classification, a comment, or refused; a backslash at
    /// its end joins it with the next.
    pub fn parse(text: &[u8], mut variables: Variables) -> Ruleset {
        let mut ruleset = Ruleset::default();
        let (mut flow_bits, mut classes) = (FlowBitNames::default(), Vec::new());
        let (mut known, mut regex_room) = (HashSet::new(), REGEX_SUM_MAX);
        for LogicalLine { number, text } in logical_lines(text) {
            let text = match text {
                Ok(text) => text,
                Err(reason) => {
                    ruleset.refuse(number, "", reason);
                    continue;
                }
            };
            let line = text.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(declared) = variables.declare(line) {
                declared.unwrap_or_else(|reason| ruleset.refuse(number, line, reason));
                continue;
            }
            if let Some(rest) = line.strip_prefix("config classification:") {
                match classification(rest) {
                    Ok(class) => classes.push(class),
                    Err(reason) => ruleset.refuse(number, line, reason),
                }
                continue;
            }
            let mut context = Context {
                variables: &variables,
                flow_bits: &mut flow_bits,
                regex_room: &mut regex_room,
                classes: &classes,
            };
            match Signature::parse(line, number, &mut context) {
                Ok(_) if ruleset.signatures.len() == SIGNATURES_MAX => {
                    ruleset.refuse(number, line, format!("more than {SIGNATURES_MAX} signatures"));
                }
                Ok(signature) if !known.insert((signature.gid, signature.sid)) => {
                    ruleset.refuse(number, line, "a line above has this sid".to_owned());
                }
                Ok(signature) => ruleset.signatures.push(signature),
                Err(reason) => ruleset.refuse(number, line, reason),
            }
        }
        ruleset
    }

    fn refuse(&mut self, line: u32, text: &str, reason: String) {
        let sid = text.rsplit_once("sid:").map(|(_, rest)| rest.trim_start());
        let digits = sid.map(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next().unwrap_or(""));
        self.refusals.push(Refusal { line, sid: digits.and_then(|digits| digits.parse().ok()), reason });
    }
}

/// A line with those that a backslash joins to it.
struct LogicalLine {
    number: u32,
    text: Result<String, String>,
}

fn logical_lines(text: &[u8]) -> impl Iterator<Item = LogicalLine> {
    let mut lines = text.split(|byte| *byte == b'\n').zip(1_u32..);
    std::iter::from_fn(move || {
        let (mut line, number) = lines.next()?;
        let mut joined = Vec::new();
        let mut is_too_long = false;
        loop {
            line = line.strip_suffix(b"\r").unwrap_or(line);
            let (part, goes_on) = match line.strip_suffix(b"\\") {
                Some(part) if joined.first() != Some(&b'#') => (part, true),
                _ => (line, false),
            };
            is_too_long |= joined.len() + part.len() > LINE_MAX;
            if !is_too_long {
                joined.extend_from_slice(part);
            }
            match goes_on.then(|| lines.next()).flatten() {
                Some((next, _)) => line = next,
                None => break,
            }
        }
        let text = match is_too_long {
            true => Err(format!("the line exceeds {LINE_MAX} bytes")),
            false => String::from_utf8(joined)
                .map_err(|_| "the line is not UTF-8: write other bytes as |hex|".to_owned()),
        };
        Some(LogicalLine { number, text })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Action;

    fn parsed(text: &str) -> Ruleset {
        Ruleset::parse(text.as_bytes(), Variables::default())
    }

    #[test]
    fn a_file_has_signatures_variables_and_classes() {
        let text = "# a comment\nipvar HOME_NET 10.0.0.0/8\nportvar WEB [80,\\\n8080]\n\
            config classification: probe, A probe, 2\n\
            alert tcp $EXTERNAL_NET any -> $HOME_NET $WEB (msg:\"a \\\"web\\\" probe\"; flow:to_server,established; \\\n  \
            content:\"GET\"; depth:3; content:\"/admin\"; nocase; distance:1; classtype:probe; \
            reference:cve,2020-1; reference:url,example.com; sid:7; rev:3;)\n\
            pass udp any any <> any 53 (sid:8; priority:1;)\n";
        let ruleset = parsed(text);
        assert_eq!(ruleset.refusals, []);
        let [one, other] = ruleset.signatures.as_slice() else { panic!("{:?}", ruleset.signatures) };
        assert_eq!((one.sid, one.rev, one.line, one.priority), (7, 3, 6, 2));
        assert_eq!((one.msg.as_str(), one.classtype.as_str()), ("a \"web\" probe", "probe"));
        assert_eq!(one.references.len(), 2);
        assert_eq!(one.fast_content().map(|content| content.bytes.as_slice()), Some(&b"/admin"[..]));
        assert!(one.header.filter.contains("dst port 8080"), "{}", one.header.filter);
        assert!(one.needs_flow() && !one.payload.is_empty());
        assert_eq!((other.action, other.priority, other.line), (Action::Pass, 1, 8));
        assert!(!other.needs_flow() && other.payload.is_empty());
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (text, wanted) in [
            ("alert tcp any any -> any any (content:\"x\"; http_uri; sid:1;)", "`http_uri`"),
            ("reject tcp any any -> any any (sid:1;)", "`reject` is not supported"),
            ("alert http any any -> any any (sid:1;)", "`http`"),
            ("alert tcp any any -> any any (msg:\"x\";)", "sid is missing"),
            ("alert tcp any any -> any any sid:1;", "parentheses"),
            ("alert tcp any any -> any any (sid:1;", "not closed"),
            ("alert tcp any any -> any any (nocase; sid:1;)", "before any content"),
            ("alert tcp any any -> any any (content:\"x\"; offset:y; sid:1;)", "`y`"),
            ("alert tcp any any -> any any (flow:sideways; sid:1;)", "`sideways`"),
            ("alert tcp any any -> any any (flags:SX; sid:1;)", "`X`"),
            ("hello", "parentheses"),
            ("ipvar A", "a name and a value"),
            ("config classification: x", "a classification"),
        ] {
            let ruleset = parsed(text);
            assert_eq!(ruleset.signatures.len(), 0, "{text}");
            let refusal = &ruleset.refusals[0];
            assert!(refusal.to_string().contains(wanted) && refusal.line == 1, "{text}: {refusal}");
        }
        let twice = parsed("alert ip any any -> any any (sid:5;)\nalert ip any any -> any any (sid:5;)");
        assert_eq!(twice.refusals[0].to_string(), "line 2 (sid 5): a line above has this sid");
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic() {
        let valid =
            b"alert tcp any any -> any [80,!81] (msg:\"x\"; content:\"|41 42|\"; pcre:\"/a/i\"; sid:1;)";
        for at in 0..valid.len() {
            for byte in [0, b'"', b'(', b')', b';', b'\\', b'|', b'[', 0xff] {
                let mut text = valid.to_vec();
                text[at] = byte;
                let ruleset = Ruleset::parse(&text, Variables::default());
                assert!(ruleset.signatures.len() + ruleset.refusals.len() <= 2);
                let cut = Ruleset::parse(&valid[..at], Variables::default());
                assert!(cut.signatures.is_empty());
            }
        }
    }
}
