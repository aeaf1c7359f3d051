//! Requests as Slack, PagerDuty and Alertmanager take them: a server refuses all that these would refuse.

use super::*;
use crate::event::EventKind;

/// The token and integration key of the tests.
const TOKEN: &str = "Bearer 7f1d-s3cret";
const KEY: &str = "0123456789abcdef0123456789s3cret";

/// A refusal, in words.
type Checked = Result<(), String>;

fn require(condition: bool, rule: &str) -> Checked {
    condition.then_some(()).ok_or_else(|| rule.to_owned())
}

fn text_of<'a>(of: &'a Value, name: &str) -> Result<&'a str, String> {
    of[name].as_str().ok_or_else(|| format!("{name} is not a text"))
}

fn check_time(text: &str) -> Checked {
    require(text.parse::<jiff::Timestamp>().is_ok(), "a time is not RFC 3339")
}

/// Refuses members that are not among the known ones.
fn check_members(of: &Value, known: &[&str]) -> Checked {
    let members = of.as_object().ok_or("not an object")?;
    let unknown = members.keys().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| Err(format!("unknown member {name}")))
}

/// Incoming webhooks of Slack: a text that is not empty, of 40,000 characters at most, in which `<` begins a link.
fn check_slack(call: &Call) -> Checked {
    check_members(&call.body, &["text"])?;
    let text = text_of(&call.body, "text")?;
    require(!text.trim().is_empty(), "no_text")?;
    require(text.chars().count() <= 40_000, "msg_too_long")?;
    require(!text.contains(['<', '>']), "a link that a packet has made")?;
    let marks = text.split('&').skip(1);
    require(
        marks.clone().all(|mark| ["amp;", "lt;", "gt;"].iter().any(|one| mark.starts_with(one))),
        "a lone &",
    )
}

/// PagerDuty's Events API, version 2.
fn check_pagerduty(call: &Call) -> Checked {
    let event = &call.body;
    check_members(event, &["routing_key", "event_action", "dedup_key", "payload"])?;
    require(event.to_string().len() <= 512_000, "larger than 512 kB")?;
    require(text_of(event, "routing_key")?.len() == 32, "routing_key has 32 characters")?;
    require(["trigger", "resolve"].contains(&text_of(event, "event_action")?), "event_action")?;
    require((1..=255).contains(&text_of(event, "dedup_key")?.chars().count()), "dedup_key: 255 characters")?;
    let payload = &event["payload"];
    check_members(payload, &["summary", "source", "severity", "timestamp", "custom_details"])?;
    require((1..=1024).contains(&text_of(payload, "summary")?.chars().count()), "summary: 1024 characters")?;
    require(!text_of(payload, "source")?.is_empty(), "source is empty")?;
    require(["critical", "error", "warning", "info"].contains(&text_of(payload, "severity")?), "severity")?;
    check_time(text_of(payload, "timestamp")?)?;
    require(payload["custom_details"].is_object(), "custom_details is not an object")
}

/// `postableAlerts` of Alertmanager's API, version 2, and its rules for an alert.
fn check_alertmanager(call: &Call) -> Checked {
    for alert in call.body.as_array().ok_or("not a list")? {
        check_members(alert, &["labels", "annotations", "startsAt", "endsAt", "generatorURL"])?;
        let labels = alert["labels"].as_object().ok_or("labels are missing")?;
        let name = text_of(&alert["labels"], "alertname")?;
        require(!name.is_empty(), "alertname is empty")?;
        for (name, value) in labels.iter().chain(alert["annotations"].as_object().into_iter().flatten()) {
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            require(is_name && !name.starts_with(|c: char| c.is_ascii_digit()), "name of a label")?;
            require(value.is_string(), "the value of a label is not a text")?;
        }
        for time in ["startsAt", "endsAt"].iter().filter_map(|name| alert.get(*name)) {
            check_time(time.as_str().ok_or("a time is not a text")?)?;
        }
        let (start, end) = (alert["startsAt"].as_str(), alert["endsAt"].as_str());
        require(start.is_none() || end.is_none() || start <= end, "start time must be before end time")?;
    }
    Ok(())
}

/// Answers calls by a check: 202, or 400. The calls, and the refusals.
fn serve(listener: &TcpListener, calls: usize, check: fn(&Call) -> Checked) -> (Vec<Call>, Vec<String>) {
    let mut refusals = Vec::new();
    let mut answer_one = |_| {
        let (mut stream, _) = listener.accept().unwrap();
        let call = Call::read(&stream);
        let checked = require(call.head[0] == "POST /in HTTP/1.1", "not POST of /in")
            .and_then(|()| {
                require(call.header("content-type") == Some("application/json"), "content-type is not JSON")
            })
            .and_then(|()| require(call.header("authorization") == Some(TOKEN), "no authorization"))
            .and_then(|()| check(&call));
        let status = if checked.is_ok() { "202 Accepted" } else { "400 Bad Request" };
        refusals.extend(checked.err());
        stream.write_all(OK.replace("200 OK", status).as_bytes()).unwrap();
        call
    };
    ((0..calls).map(&mut answer_one).collect(), refusals)
}

/// Events of all kinds, with texts as a packet may have them.
fn events() -> Vec<Event> {
    let texts = ["", "10.0.0.9", "<!channel> & \"you\" \u{7}\u{202e}\n", &"é<&".repeat(3000)];
    let kinds = [EventKind::Seen, EventKind::Raised, EventKind::Cleared];
    let of = |text: &str, kind| Event {
        time_ns: 1_764_000_000_123_456_789,
        kind,
        key: vec![("src", text.into()), ("dst-port", 443.into()), ("name", text.into())],
        value: Some(u64::MAX),
        message: text.to_owned(),
        about: [("name".to_owned(), text.into())].into_iter().collect(),
        ..Event::of_rule(&"r".repeat(64))
    };
    let full = texts.iter().flat_map(|text| kinds.map(|kind| of(text, kind)));
    full.chain(kinds.map(|kind| Event { kind, ..Event::of_rule("r") })).collect()
}

/// A receiver with a token, and for PagerDuty a key, in files of a folder.
fn receiver(folder: &Path, url: &str, format: WebhookFormat) -> Webhook {
    fs::write(folder.join("token"), format!("{TOKEN}\nsecond line\n")).unwrap();
    fs::write(folder.join("key"), format!("{KEY}\n")).unwrap();
    fs::write(folder.join("url"), url).unwrap();
    let headers = vec![("Authorization".to_owned(), Secret::File(folder.join("token")))];
    Webhook { name: "ops".to_owned(), url: Secret::File(folder.join("url")), format, headers }
}

fn pagerduty(folder: &Path) -> WebhookFormat {
    WebhookFormat::PagerDuty { key: Secret::File(folder.join("key")) }
}

/// Sends all events to a server of a check. The calls, in their order.
fn deliver(format: WebhookFormat, folder: &Path, check: fn(&Call) -> Checked) -> Vec<Call> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let all = events();
    let calls = all.len();
    let serving = thread::spawn(move || serve(&listener, calls, check));
    let mut sender = Sender::start(folder.join(SPOOL), &[receiver(folder, &url, format)]).unwrap();
    all.iter().for_each(|event| sender.offer("ops", event));
    let counts = end(&mut sender, LONG);
    let (calls, refusals) = serving.join().unwrap();
    assert_eq!(refusals, [""; 0]);
    assert_eq!(counts, DeliveryCounts { done: all.len() as u64, ..DeliveryCounts::default() });
    calls
}

#[test]
fn slack_takes_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let calls = deliver(WebhookFormat::Slack, folder.path(), check_slack);
    let text = calls[3].body["text"].as_str().unwrap();
    assert!(text.starts_with(&format!("*{}* seen: 10.0.0.9", "r".repeat(64))), "{text}");
}

#[test]
fn pagerduty_takes_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let calls = deliver(pagerduty(folder.path()), folder.path(), check_pagerduty);
    // A condition is resolved under the key with which it was raised, and long keys stay different.
    let keys: Vec<&str> = calls.iter().map(|call| call.body["dedup_key"].as_str().unwrap()).collect();
    assert!(keys.chunks(3).all(|kinds| kinds.iter().all(|key| *key == kinds[0])), "{keys:?}");
    let distinct: HashSet<&str> = keys.iter().copied().collect();
    assert_eq!(distinct.len(), keys.len() / 3);
    assert!(calls.iter().all(|call| call.body["routing_key"] == KEY));
}

#[test]
fn alertmanager_takes_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let calls = deliver(WebhookFormat::Alertmanager, folder.path(), check_alertmanager);
    let labels = |at: usize| calls[at].body[0]["labels"].clone();
    // The labels are the alert's identity: the same when it is raised and cleared.
    assert_eq!(labels(4), labels(5));
    assert!(calls[5].body[0]["endsAt"].is_string() && calls[4].body[0]["endsAt"].is_null());
}

/// The checks refuse bodies that the services refuse: they are not true of everything.
#[test]
fn the_checks_refuse_other_bodies() {
    let call = |body: Value| Call { head: Vec::new(), body };
    let payload = json!({"summary": "s", "source": "h", "severity": "warning",
        "timestamp": "2026-11-25T22:13:20Z", "custom_details": {}});
    let duty = json!({"routing_key": KEY, "event_action": "trigger", "dedup_key": "k", "payload": payload});
    assert_eq!(check_pagerduty(&call(duty.clone())), Ok(()));
    for (path, wrong) in [
        ("/routing_key", json!("short")),
        ("/event_action", json!("raised")),
        ("/dedup_key", json!("k".repeat(256))),
        ("/payload/summary", json!("s".repeat(1025))),
        ("/payload/source", json!("")),
        ("/payload/severity", json!("high")),
        ("/payload/timestamp", json!("yesterday")),
    ] {
        let mut body = duty.clone();
        *body.pointer_mut(path).unwrap() = wrong;
        assert!(check_pagerduty(&call(body)).is_err(), "{path}");
    }
    assert!(check_slack(&call(json!({"text": "<!channel>"}))).is_err());
    assert!(check_slack(&call(json!({"texts": "a"}))).is_err());
    let alert = |label: Value| json!([{"labels": {"alertname": "a", "src": label}}]);
    assert!(check_alertmanager(&call(alert(json!("x")))).is_ok());
    assert!(check_alertmanager(&call(alert(json!(7)))).is_err());
    assert!(check_alertmanager(&call(json!([{"labels": {"src-port": "1", "alertname": "a"}}]))).is_err());
}

/// A secret that changes is read again, and the events that waited for it are sent.
#[test]
fn a_new_secret_is_used_at_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let webhook = receiver(folder.path(), &url, WebhookFormat::Slack);
    fs::write(folder.path().join("token"), "Bearer old\n").unwrap();
    let serving = thread::spawn(move || serve(&listener, 4, check_slack));
    let mut sender = Sender::start(folder.path().join(SPOOL), &[webhook]).unwrap();
    sender.offer("ops", &Event::of_rule("r"));
    while sender.0.counts().spooled == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    // As rotations do it: another file takes the name.
    fs::write(folder.path().join("token.new"), format!("{TOKEN}\n")).unwrap();
    fs::rename(folder.path().join("token.new"), folder.path().join("token")).unwrap();
    end(&mut sender, LONG);
    let mut sender =
        Sender::start(folder.path().join(SPOOL), &[receiver(folder.path(), &url, WebhookFormat::Slack)])
            .unwrap();
    assert_eq!(end(&mut sender, LONG), DeliveryCounts { done: 1, ..DeliveryCounts::default() });
    let (_, refusals) = serving.join().unwrap();
    assert_eq!(refusals, ["no authorization"; 3]);
}

/// Neither faults nor the spool have a secret, whatever goes wrong.
#[test]
fn no_failure_shows_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let live = format!("http://user:s3cret@{}/s3cret", listener.local_addr().unwrap());
    let moved = OK.replace("200 OK", "302 Found\r\nlocation: https://new.example/s3cret?s3cret");
    let refused = OK.replace("200 OK", "403 s3cret");
    let answers: Vec<String> = [&moved, &refused].into_iter().flat_map(|one| vec![one.clone(); 3]).collect();
    let answering = thread::spawn(move || {
        answers.iter().for_each(|one| drop(answer_by(&listener, 1, Duration::ZERO, one)));
    });
    let dead = dead_address();
    let dead = format!("{dead}s3cret");
    let binary = folder.join("binary");
    fs::write(&binary, b"s3cret\xff\n").unwrap();
    let mut webhooks = Vec::new();
    for (name, url) in [
        ("moved", live.as_str()),
        ("refused", &live),
        ("dead", &dead),
        ("nowhere", "http://s3cret.invalid/s3cret"),
        ("scheme", "ftp://x/s3cret"),
        ("spaces", "https://x/s3cret s3cret"),
        ("odd", "http://x/s3cret|{s3cret}^`"),
        ("port", "http://x:99999/s3cret"),
    ] {
        fs::write(folder.join(name), url).unwrap();
        let url = Secret::File(folder.join(name));
        webhooks.push(Webhook { url, name: name.to_owned(), ..receiver(folder, "", pagerduty(folder)) });
    }
    for (name, file) in
        [("empty", "empty"), ("absent", "absent"), ("folder", "."), ("binary", "binary"), ("bell", "bell")]
    {
        let headers = vec![("X-Key".to_owned(), Secret::File(folder.join(file)))];
        let url = Secret::Text(dead.clone());
        webhooks.push(Webhook { url, headers, name: name.to_owned(), format: WebhookFormat::Slack });
    }
    fs::write(folder.join("empty"), "\n").unwrap();
    fs::write(folder.join("bell"), "s3cret\u{7}s3cret\n").unwrap();
    let mut sender = Sender::start(folder.join(SPOOL), &webhooks).unwrap();
    webhooks.iter().for_each(|webhook| sender.offer(&webhook.name, &Event::of_rule(&webhook.name)));
    while sender.0.counts().spooled < webhooks.len() as u64 {
        thread::sleep(Duration::from_millis(1));
    }
    end(&mut sender, LONG);
    answering.join().unwrap();
    let faults = sender.0.take_faults();
    assert_eq!(faults.len(), webhooks.len(), "{faults:#?}");
    for webhook in &webhooks {
        let place = format!("rule {}: ", webhook.name);
        assert!(faults.iter().any(|fault| fault.starts_with(&place)), "{place}{faults:#?}");
    }
    let spool = fs::read_to_string(folder.join(SPOOL)).unwrap();
    // The name of a host is shown.
    let shown = faults.join("\n").replace("http://s3cret.invalid", "");
    assert!(!shown.contains("s3cret") && !spool.contains("s3cret"), "{shown}\n{spool}");
}
