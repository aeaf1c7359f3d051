//! Requests to receivers: the address, headers and body of an event, as each service wants them.
//!
//! ```text
//! event         the event itself
//! slack         {"text": "*scan* raised: 10.0.0.9 tried 20 ports"}          Slack, Mattermost, Rocket.Chat
//! pagerduty     {"routing_key": ..., "event_action": "trigger", ...}        Events API v2
//! alertmanager  [{"labels": {...}, "annotations": {...}, "startsAt": ...}]  /api/v2/alerts
//! body          the rule file's own, with {words}
//! ```
//!
//! Texts may have names from packets: they are values of JSON, and Slack's own marks are escaped.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::parse::check_address;
use crate::rules::{Secret, Webhook, WebhookFormat};

/// The most bytes of a file with a secret.
const SECRET_MAX: u64 = 8 << 10;
/// The most characters of a text in a message. Slack takes 40,000, and an escaped character has five.
const TEXT_MAX: usize = 2000;
/// The most characters that PagerDuty takes of a summary, and of the key that joins events.
const SUMMARY_MAX: usize = 1024;
const DEDUP_MAX: usize = 255;

/// A request: where to, with what.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Value,
}

/// The request of a receiver for an event.
///
/// # Errors
/// A file with a secret that cannot be read, in words.
pub(super) fn request(webhook: &Webhook, event: &Value) -> Result<Request, String> {
    let headers = webhook.headers.iter().map(|(name, value)| Ok((name.clone(), text_of(value)?)));
    let headers = headers.collect::<Result<_, String>>()?;
    let body = match &webhook.format {
        WebhookFormat::Event => event.clone(),
        WebhookFormat::Slack => slack(event),
        WebhookFormat::PagerDuty { key } => pagerduty(event, &text_of(key)?),
        WebhookFormat::Alertmanager => alertmanager(event),
        WebhookFormat::Body(body) => filled(body, event),
    };
    let url = text_of(&webhook.url)?;
    // Its own words, and those of the library, would have the address in them.
    check_address(&url).map_err(|_| "its url is not https://HOST/PATH or http://HOST/PATH".to_owned())?;
    Ok(Request { url, headers, body })
}

/// The first line of a file, or the text itself.
fn text_of(secret: &Secret) -> Result<String, String> {
    let path = match secret {
        Secret::Text(text) => return Ok(text.clone()),
        Secret::File(path) => path,
    };
    let text = read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match text.lines().next().map(str::trim) {
        None | Some("") => Err(format!("the first line of {} is empty", path.display())),
        Some(line) => Ok(line.to_owned()),
    }
}

/// Reads a file of limited length. A pipe in its place would have the thread wait for ever.
fn read(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    fs::File::open(path)?.take(SECRET_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// A member of an event as text; empty if it is not there.
fn member(event: &Value, path: &str) -> String {
    let value = path.split('.').try_fold(event, |value, name| value.get(name));
    let text = match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    text.chars().take(TEXT_MAX).collect()
}

/// The message of the rule, else its key and value.
fn summary(event: &Value) -> String {
    let message = member(event, "message");
    if !message.is_empty() {
        return message;
    }
    let mut parts = labels(event);
    let value = member(event, "value");
    if !value.is_empty() {
        parts.push(("value".to_owned(), value));
    }
    let text = parts.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
    text.chars().take(TEXT_MAX).collect()
}

/// The values of the rule's key.
fn labels(event: &Value) -> Vec<(String, String)> {
    let key = event["key"].as_object();
    key.into_iter().flatten().map(|(name, _)| (name.clone(), member(&event["key"], name))).collect()
}

fn slack(event: &Value) -> Value {
    let escaped = |text: String| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (rule, kind) = (escaped(member(event, "rule")), member(event, "event"));
    json!({"text": format!("*{rule}* {kind}: {}", escaped(summary(event)))})
}

fn pagerduty(event: &Value, key: &str) -> Value {
    let rule = member(event, "rule");
    let parts: Vec<String> = labels(event).into_iter().map(|(_, value)| value).collect();
    let action = if event["event"] == "cleared" { "resolve" } else { "trigger" };
    json!({
        "routing_key": key,
        "event_action": action,
        "dedup_key": dedup_key(&rule, &parts),
        "payload": {
            "summary": format!("{rule}: {}", summary(event)).chars().take(SUMMARY_MAX).collect::<String>(),
            "source": parts.iter().find(|part| !part.is_empty()).map_or("tapline", String::as_str),
            "severity": "warning",
            "timestamp": member(event, "time"),
            "custom_details": event,
        },
    })
}

/// The key under which events of a condition are one incident: rule and values, or their hash where they are long.
fn dedup_key(rule: &str, parts: &[String]) -> String {
    let key = [rule, &parts.join(" ")].join(" ").trim().to_owned();
    if key.chars().count() <= DEDUP_MAX {
        return key;
    }
    let hash: String = Sha256::digest(&key).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{rule} {hash}")
}

fn alertmanager(event: &Value) -> Value {
    let mut all = Map::new();
    // Names of labels have letters, digits and underscores.
    all.extend(labels(event).into_iter().map(|(name, value)| (name.replace(['-', '.'], "_"), value.into())));
    all.insert("alertname".to_owned(), member(event, "rule").into());
    all.insert("severity".to_owned(), "warning".into());
    let time = if event["event"] == "cleared" { "endsAt" } else { "startsAt" };
    json!([{"labels": all, "annotations": {"summary": summary(event)}, time: member(event, "time")}])
}

/// A body with its words in braces filled in: each text stays one value of JSON.
fn filled(body: &Value, event: &Value) -> Value {
    match body {
        Value::String(text) => filled_text(text, event).into(),
        Value::Array(all) => all.iter().map(|one| filled(one, event)).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), filled(value, event))).collect())
        }
        other => other.clone(),
    }
}

fn filled_text(text: &str, event: &Value) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((word, after)) = behind.split_once('}') else {
            return filled + "{" + behind;
        };
        match word {
            "summary" => filled.push_str(&summary(event)),
            _ => filled.push_str(&member(event, word)),
        }
        rest = after;
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str) -> Value {
        json!({"time": "2026-11-25T22:13:20Z", "rule": "scan", "event": kind, "key": {"src": "10.0.0.9"}, "value": 20,
            "message": "<b>\"&10.0.0.9 tried 20 ports"})
    }

    fn of(format: WebhookFormat, kind: &str) -> Value {
        let url = Secret::Text("http://127.0.0.1/".to_owned());
        let webhook = Webhook { name: "ops".to_owned(), url, format, headers: Vec::new() };
        request(&webhook, &event(kind)).expect("a request").body
    }

    #[test]
    fn each_service_gets_its_form() {
        let slack = of(WebhookFormat::Slack, "raised");
        assert_eq!(slack, json!({"text": "*scan* raised: &lt;b&gt;\"&amp;10.0.0.9 tried 20 ports"}));
        let key = Secret::Text("R0UT1NG".to_owned());
        let duty = of(WebhookFormat::PagerDuty { key: key.clone() }, "raised");
        assert_eq!((&duty["routing_key"], &duty["event_action"]), (&json!("R0UT1NG"), &json!("trigger")));
        assert_eq!(
            (&duty["dedup_key"], &duty["payload"]["severity"]),
            (&json!("scan 10.0.0.9"), &json!("warning"))
        );
        assert_eq!(of(WebhookFormat::PagerDuty { key }, "cleared")["event_action"], "resolve");
        let alerts = of(WebhookFormat::Alertmanager, "raised");
        assert_eq!(
            alerts[0]["labels"],
            json!({"alertname": "scan", "severity": "warning", "src": "10.0.0.9"})
        );
        assert_eq!(alerts[0]["startsAt"], "2026-11-25T22:13:20Z");
        assert!(of(WebhookFormat::Alertmanager, "cleared")[0]["endsAt"].is_string());
    }

    #[test]
    fn words_of_a_body_stay_values() {
        let body = json!({"a": ["{rule} {key.src} {none}", 7], "b": "{summary} {"});
        let filled = of(WebhookFormat::Body(body), "raised");
        assert_eq!(filled, json!({"a": ["scan 10.0.0.9 ", 7], "b": "<b>\"&10.0.0.9 tried 20 ports {"}));
    }

    #[test]
    fn secrets_are_first_lines_of_files() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "Bearer abc\nmore\n").expect("room");
        assert_eq!(text_of(&Secret::File(file.path().to_owned())).as_deref(), Ok("Bearer abc"));
        assert!(text_of(&Secret::File("/none".into())).expect_err("no file").contains("/none"));
    }
}
