//! Receivers of events in the text of a file of rules: `[[webhook]]`.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::RuleError;
use crate::rules::{Secret, Webhook, WebhookFormat};

/// The most receivers of a file, and headers of one.
const WEBHOOKS_MAX: usize = 100;
const HEADERS_MAX: usize = 20;
/// Headers that belong to the connection and the length of the body. A second one would break each call.
const OWN_HEADERS: [&str; 4] = ["connection", "content-length", "host", "transfer-encoding"];
/// Words in the braces of a body; behind `key.` and `about.` any.
const WORDS: [&str; 9] =
    ["time", "rule", "event", "message", "summary", "value", "above", "swallowed", "recording"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookText {
    name: String,
    url: String,
    format: Option<String>,
    key: Option<String>,
    body: Option<toml::Value>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// Whether a text is a name of a receiver and not an address.
pub(super) fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&text.len()) && text.chars().all(is_plain)
}

/// Refuses a text that is not an address of a web server: `http[s]://[USER@]HOST[:PORT][/PATH]`. The message does not
/// repeat the address, which may be a secret.
pub(crate) fn check_address(text: &str) -> Result<(), &'static str> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = rest.ok_or("an address begins with https:// or http://; leave webhook out for none")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let server = authority.rsplit('@').next().unwrap_or_default();
    // An address of IPv6 stands in brackets, and has colons itself.
    let host_len = server.rfind(']').map_or_else(|| server.find(':').unwrap_or(server.len()), |at| at + 1);
    let (host, port) = server.split_at(host_len);
    let is_bracketed = || host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match host.contains(['[', ']']) {
        true => is_bracketed().is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok()),
        false => !host.is_empty(),
    };
    // Some programs take a backslash for a slash: `http://host\@other/` has two hosts.
    let is_plain = !authority.contains(['\\', '"']);
    if !is_host || !is_plain || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("write https://HOST/PATH, without spaces");
    }
    let is_port = port.is_empty()
        || port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()).is_some_and(|port| port > 0);
    is_port.then_some(()).ok_or("a port is from 1 to 65535")
}

pub(super) fn webhooks(texts: Vec<WebhookText>) -> Result<Vec<Webhook>, RuleError> {
    let mut all: Vec<Webhook> = Vec::new();
    for text in texts {
        let name = text.name.clone();
        let wrong = |why: String| RuleError::Webhook { name: name.clone(), why };
        if all.len() == WEBHOOKS_MAX {
            return Err(wrong(format!("a file has {WEBHOOKS_MAX} of them at most")));
        }
        if !is_name(&text.name) || all.iter().any(|known| known.name == text.name) {
            return Err(wrong(
                "a name is of up to 64 letters, digits, -, _ and ., and is there once".to_owned(),
            ));
        }
        all.push(webhook(text).map_err(wrong)?);
    }
    Ok(all)
}

fn webhook(text: WebhookText) -> Result<Webhook, String> {
    let url = secret(&text.url)?;
    if let Secret::Text(address) = &url {
        check_address(address)
            .map_err(|_| "url: write https://HOST[:PORT]/PATH, without spaces, or file:PATH".to_owned())?;
    }
    let format = match (text.format.as_deref(), text.body, text.key) {
        (None, Some(body), None) => WebhookFormat::Body(json(body)?),
        (None | Some("event"), None, None) => WebhookFormat::Event,
        (Some("slack"), None, None) => WebhookFormat::Slack,
        (Some("alertmanager"), None, None) => WebhookFormat::Alertmanager,
        (Some("pagerduty"), None, Some(key)) => WebhookFormat::PagerDuty { key: secret(&key)? },
        (Some("pagerduty"), None, None) => {
            return Err("format = \"pagerduty\" needs key = \"file:PATH\", a file with its integration key"
                .to_owned());
        }
        (Some(_), Some(_), _) => return Err("format and body: one of them".to_owned()),
        (_, _, Some(_)) => return Err("key is for format = \"pagerduty\"".to_owned()),
        (Some(other), ..) => {
            return Err(format!("format = \"{other}\": there are event, slack, pagerduty and alertmanager"));
        }
    };
    Ok(Webhook { name: text.name, url, format, headers: headers(text.headers)? })
}

fn headers(texts: BTreeMap<String, String>) -> Result<Vec<(String, Secret)>, String> {
    if texts.len() > HEADERS_MAX {
        return Err(format!("{HEADERS_MAX} headers at most"));
    }
    let (mut headers, mut names) = (Vec::new(), HashSet::new());
    for (name, value) in texts {
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_name || value.contains(char::is_control) {
            // The token may be where the name should be.
            return Err("headers: a name has letters, digits and -, a value no control characters".to_owned());
        }
        let lower = name.to_ascii_lowercase();
        if let Some(own) = OWN_HEADERS.iter().find(|own| **own == lower) {
            return Err(format!("headers: leave {own} out, each call has its own"));
        }
        if !names.insert(lower) {
            return Err("headers: a name is there twice, as capital letters do not count".to_owned());
        }
        headers.push((name, secret(&value)?));
    }
    Ok(headers)
}

fn secret(text: &str) -> Result<Secret, String> {
    match text.strip_prefix("file:").map(PathBuf::from) {
        None => Ok(Secret::Text(text.to_owned())),
        Some(path) if path.is_absolute() => Ok(Secret::File(path)),
        Some(_) => Err(format!("{text}: a file is named from / on")),
    }
}

/// A body as JSON, which lacks dates, nan and inf.
fn json(body: toml::Value) -> Result<serde_json::Value, String> {
    use toml::Value;
    Ok(match body {
        Value::String(text) => {
            check_words(&text)?;
            text.into()
        }
        Value::Integer(number) => number.into(),
        Value::Boolean(is_true) => is_true.into(),
        Value::Float(number) if number.is_finite() => number.into(),
        Value::Float(_) => return Err("body: JSON has neither nan nor inf: write a text".to_owned()),
        Value::Datetime(_) => {
            return Err("body: JSON has no dates: write a text, with quotes around the date".to_owned());
        }
        Value::Array(all) => all.into_iter().map(json).collect::<Result<_, _>>()?,
        Value::Table(members) => {
            let members = members.into_iter().map(|(name, value)| Ok((name, json(value)?)));
            serde_json::Value::Object(members.collect::<Result<_, String>>()?)
        }
    })
}

/// Refuses words in braces that an event does not have.
fn check_words(text: &str) -> Result<(), String> {
    // As the body is filled in: from each brace to the next closing one.
    let mut rest = text;
    let mut words = std::iter::from_fn(|| {
        let (word, behind) = rest.split_once('{')?.1.split_once('}')?;
        rest = behind;
        Some(word)
    });
    let is_known =
        |word: &&str| WORDS.contains(word) || word.starts_with("key.") || word.starts_with("about.");
    let unknown = words.find(|word| !is_known(word));
    unknown.map_or(Ok(()), |word| {
        // A text that is JSON itself has all its members in braces, so also its secrets.
        let word = if is_name(word) { word } else { "..." };
        Err(format!(
            "body: {{{word}}} means nothing; there are {}, key.FIELD and about.FIELD",
            WORDS.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check_address;
    use crate::parse;
    use crate::rules::WebhookFormat;

    const RULE: &str = "[[rule]]\nname = \"r\"\non = \"packet\"\nwebhook = \"ops\"\n";

    #[test]
    fn rules_call_receivers_by_their_names() {
        let text = format!(
            "{RULE}[[webhook]]\nname = \"ops\"\nurl = \"file:/etc/tapline/url\"\nformat = \"pagerduty\"\n\
             key = \"file:/etc/tapline/key\"\nheaders = {{ Authorization = \"file:/etc/tapline/token\" }}\n"
        );
        let rules = parse(&text).expect("rules");
        let [webhook] = &rules.webhooks[..] else { panic!("{rules:?}") };
        assert_eq!((rules.rules[0].actions.webhook.as_str(), webhook.files().count()), ("ops", 3));
        for (wrong, told) in [
            ("", "no [[webhook]]"),
            ("url = \"ftp://x\"", "https://"),
            ("url = \"file:x\"", "from / on"),
            ("url = \"http://x\"\nformat = \"teams\"", "slack"),
            ("url = \"http://x\"\nformat = \"pagerduty\"", "key"),
            ("url = \"http://x\"\nbody = { text = \"{rlue}\" }", "{rlue}"),
            ("url = \"http://x\"\nbody = { list = [{ when = 2026-01-01T00:00:00Z }] }", "no dates"),
            ("url = \"http://x\"\nbody = 07:32:00", "no dates"),
            ("url = \"http://x\"\nbody = { n = nan }", "neither nan nor inf"),
            ("url = \"http://x\"\nbody = [1.5, -inf]", "neither nan nor inf"),
            ("url = \"http://x\"\nheaders = { \"a b\" = \"x\" }", "header"),
            ("url = \"http://x\"\nheaders = { Content-Length = \"5\" }", "leave content-length out"),
            ("url = \"http://x\"\nheaders = { Transfer-Encoding = \"x\" }", "leave transfer-encoding out"),
            ("url = \"http://x\"\nheaders = { HOST = \"x\" }", "leave host out"),
            ("url = \"http://x\"\nheaders = { connection = \"close\" }", "leave connection out"),
            ("url = \"http://x\"\nheaders = { X-A = \"x\", x-a = \"y\" }", "twice"),
        ] {
            let head = if wrong.is_empty() { "" } else { "[[webhook]]\nname = \"ops\"\n" };
            let error = parse(&format!("{RULE}{head}{wrong}\n")).expect_err(wrong).to_string();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }
    #[test]
    fn a_body_of_toml_becomes_json() {
        let body = "{ t = \"{rule}\", n = -7, f = 0.5, b = true, list = [1, \"{key.src}\", { x = \"\" }] }";
        let text = format!("{RULE}[[webhook]]\nname = \"ops\"\nurl = \"http://x\"\nbody = {body}\n");
        let expected =
            json!({"t": "{rule}", "n": -7, "f": 0.5, "b": true, "list": [1, "{key.src}", {"x": ""}]});
        assert_eq!(parse(&text).expect("rules").webhooks[0].format, WebhookFormat::Body(expected));
    }

    #[test]
    fn no_mistake_shows_a_secret() {
        for (wrong, told) in [
            ("key = \"SECRET\" x", "line 7, column 16: "),
            ("keys = \"SECRET\"", "line 7, column 1: unknown field `keys`"),
            ("headers = \"SECRET, expected \\\"SECRET\"", "column 11: invalid type: string, expected a map"),
            ("headers = { Authorization = [\"SECRET\"] }", "expected a string"),
            ("key = 5318008", "column 7: invalid type: integer, expected a string"),
            ("headers = { \"Bearer SECRET\" = \"x\" }", "headers: a name has letters"),
            ("headers = { a = \"SECRET\\n\" }", "headers: a name has letters"),
            ("body = '{\"token\": \"SECRET\"}'", "body: {...} means nothing"),
        ] {
            let text = format!("{RULE}[[webhook]]\nname = \"ops\"\n{wrong}\nurl = \"http://x/SECRET\"\n");
            let error = parse(&text).expect_err(wrong).to_string();
            assert!(error.contains(told), "{wrong}: {error}");
            assert!(!error.contains("SECRET") && !error.contains("5318008"), "{wrong}: {error}");
        }
        for wrong in ["ftp://u:SECRET@x", "http://x y/SECRET", "http://x:0/SECRET", "https//x/SECRET"] {
            let rule = parse(&RULE.replace("\"ops\"", &format!("\"{wrong}\""))).expect_err(wrong);
            let head = "[[webhook]]\nname = \"ops\"\n";
            let receiver = parse(&format!("{RULE}{head}url = \"{wrong}\"\n")).expect_err(wrong);
            assert!(!format!("{rule}{receiver}").contains("SECRET"), "{rule} {receiver}");
        }
    }
    #[test]
    fn addresses_have_a_host_and_may_have_a_port() {
        for address in ["http://a", "https://u:w@a.b:8080/x?y", "http://[::1]:80/", "http://10.0.0.1:1"] {
            check_address(address).unwrap_or_else(|why| panic!("{why}"));
        }
        for address in
            ["http://127.0.0.1:1\\@x/", "http://x\\/", "http://u\"@x/", "http://\\@[::1]/", "http://x\"/"]
        {
            assert!(check_address(address).is_err(), "{address}");
        }
        check_address("http://x/a\\b?q={\"a\":1}").unwrap_or_else(|why| panic!("{why}"));
    }
}
