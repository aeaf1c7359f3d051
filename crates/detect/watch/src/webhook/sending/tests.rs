use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::delivery::{DeliveryCounts, DeliveryQueue as _};
use crate::rules::{Secret, WebhookFormat};

mod services;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// A call that came: the lines above its body, names of headers in small letters, and the body.
struct Call {
    head: Vec<String>,
    body: Value,
}

impl Call {
    fn read(stream: &TcpStream) -> Call {
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim();
            match line.split_once(':') {
                _ if line.is_empty() => break,
                Some((name, value)) if !head.is_empty() => {
                    head.push(format!("{}:{value}", name.to_ascii_lowercase()));
                }
                _ => head.push(line.to_owned()),
            }
        }
        let mut call = Call { head, body: Value::Null };
        let mut body = vec![0; call.header("content-length").unwrap().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        call.body = serde_json::from_slice(&body).unwrap();
        call
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }
}

/// Answers calls, each after a time; the bodies that came.
fn answer(listener: &TcpListener, calls: usize, after: Duration) -> Vec<Value> {
    answer_by(listener, calls, after, OK)
}

fn answer_by(listener: &TcpListener, calls: usize, after: Duration, answer: &str) -> Vec<Value> {
    (0..calls)
        .map(|_| {
            let (mut stream, _) = listener.accept().unwrap();
            thread::sleep(after);
            let call = Call::read(&stream);
            stream.write_all(answer.as_bytes()).unwrap();
            call.body
        })
        .collect()
}

/// Ends a sender that has little time left.
fn end(sender: &mut Sender, time: Duration) -> DeliveryCounts {
    sender.0.end_by(Instant::now() + time);
    sender.0.finish();
    sender.0.counts()
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn what_finds_no_answer_is_sent_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join(SPOOL);
    let event = Event::of_rule("r");
    let url = dead_address();
    let mut sender = Sender::start(spool.clone(), &[]).unwrap();
    sender.offer(&url, &event);
    end(&mut sender, LONG);
    assert_eq!(fs::read_to_string(&spool).unwrap().lines().count(), 1);
    let listener = TcpListener::bind(url.trim_start_matches("http://").trim_end_matches('/')).unwrap();
    let answering = thread::spawn(move || answer(&listener, 2, Duration::ZERO));
    let mut sender = Sender::start(spool.clone(), &[]).unwrap();
    sender.offer(&url, &event);
    assert_eq!(end(&mut sender, LONG), DeliveryCounts { done: 2, ..DeliveryCounts::default() });
    assert_eq!(answering.join().unwrap(), [event.to_json(), event.to_json()]);
    assert_eq!(fs::read_to_string(&spool).unwrap(), "");
}

#[test]
fn a_content_type_of_the_rules_is_the_only_one() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Secret::Text(format!("http://{}/", listener.local_addr().unwrap()));
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let call = Call::read(&stream);
        stream.write_all(OK.as_bytes()).unwrap();
        call.head
    });
    let headers = vec![("Content-Type".to_owned(), Secret::Text("application/cloudevents+json".to_owned()))];
    let receiver = Webhook { name: "ops".to_owned(), url, format: WebhookFormat::Event, headers };
    let mut sender = Sender::start(folder.path().join(SPOOL), &[receiver]).unwrap();
    sender.offer("ops", &Event::of_rule("r"));
    assert_eq!(end(&mut sender, LONG), DeliveryCounts { done: 1, ..DeliveryCounts::default() });
    let head = answering.join().unwrap();
    let types: Vec<&String> = head.iter().filter(|line| line.starts_with("content-type:")).collect();
    assert_eq!(types, ["content-type: application/cloudevents+json"]);
}

#[test]
fn a_backslash_ends_the_host_of_an_address() {
    assert_eq!(host_of("https://u:w@a:1/x@y"), "https://a:1");
    assert_eq!(host_of("https://a\\@b/x"), "https://a");
}

/// A port at which no socket listens, since it was just given back: of an address at which few tests have one.
fn dead_address() -> String {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    format!("http://{}/", listener.local_addr().unwrap())
}

#[test]
fn a_redirection_fails_and_its_target_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join(SPOOL);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://user:word@{}/secret", listener.local_addr().unwrap());
    let moved = OK.replace("200 OK", "302 Found\r\nlocation: https://new.example/");
    let answering = thread::spawn(move || answer_by(&listener, 1, Duration::ZERO, &moved));
    let mut sender = Sender::start(spool.clone(), &[]).unwrap();
    sender.offer(&url, &Event::of_rule("r"));
    let counts = end(&mut sender, LONG);
    assert_eq!(counts, DeliveryCounts { spooled: 1, ..DeliveryCounts::default() });
    let told = sender.0.take_faults();
    assert_eq!((told.len(), told[0].contains("answered 302")), (1, true), "{told:?}");
    assert!(told[0].contains("webhook = \"https://new.example/\""), "{told:?}");
    assert!(!told[0].contains("secret") && !told[0].contains("word@"), "{told:?}");
    assert_eq!(fs::read_to_string(&spool).unwrap().lines().count(), 1);
    assert_eq!(answering.join().unwrap(), [Event::of_rule("r").to_json()]);
}

#[test]
fn a_dead_address_keeps_no_other_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join(SPOOL);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (live, dead) = (format!("http://{}/", listener.local_addr().unwrap()), dead_address());
    for (url, rule) in [(&dead, "a"), (&live, "b"), (&dead, "c"), (&live, "d")] {
        append(&spool, url, &Event::of_rule(rule).to_json()).unwrap();
    }
    let answering = thread::spawn(move || answer(&listener, 2, Duration::ZERO));
    let mut sender = Sender::start(spool.clone(), &[]).unwrap();
    sender.offer(&dead, &Event::of_rule("e"));
    let counts = end(&mut sender, LONG);
    assert_eq!(counts, DeliveryCounts { done: 2, spooled: 3, ..DeliveryCounts::default() });
    let sent: Vec<Value> = answering.join().unwrap().iter().map(|body| body["rule"].clone()).collect();
    assert_eq!(sent, ["b", "d"]);
    let text = fs::read_to_string(&spool).unwrap();
    let rules: Vec<String> =
        text.lines().filter_map(|line| job_of(line.as_bytes())).map(|job| job.rule).collect();
    assert_eq!(rules, ["a", "c", "e"], "in their order");
    assert_eq!(sender.0.counts_of("c"), DeliveryCounts { spooled: 1, ..DeliveryCounts::default() });
}

#[test]
fn root_writes_through_no_link_to_the_spool() {
    if !tapline_sys::privilege::is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (spool, target) = (folder.path().join(SPOOL), folder.path().join("target"));
    fs::write(&target, "content").unwrap();
    std::os::unix::fs::symlink(&target, &spool).unwrap();
    let mut sender = Sender::start(spool, &[]).unwrap();
    sender.offer(&dead_address(), &Event::of_rule("r"));
    assert_eq!(end(&mut sender, LONG), DeliveryCounts { failed: 1, ..DeliveryCounts::default() });
    assert!(sender.0.take_faults().iter().any(|told| told.contains("link")));
    assert_eq!(fs::read_to_string(&target).unwrap(), "content");
}

/// A long spool, and a receiver that takes its time.
#[test]
fn the_end_keeps_what_it_has_no_time_for() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join(SPOOL);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let event = Event::of_rule("r");
    (0..1000).for_each(|_| append(&spool, &url, &event.to_json()).unwrap());
    thread::spawn(move || answer(&listener, 1000, Duration::from_millis(100)));
    let mut sender = Sender::start(spool.clone(), &[]).unwrap();
    while sender.0.counts().done < 3 {
        thread::sleep(Duration::from_millis(1));
    }
    // So far nothing was rewritten: a run after a kill here knows what was sent.
    let text = fs::read_to_string(&spool).unwrap();
    assert!(text.lines().filter(|line| line.starts_with('-')).count() >= 3);
    let begin = Instant::now();
    sender.offer(&url, &event);
    let DeliveryCounts { done, spooled, .. } = end(&mut sender, Duration::from_millis(500));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    let text = fs::read_to_string(&spool).unwrap();
    assert_eq!((text.lines().count() as u64, spooled + done), (spooled, 1001));
    assert!(text.lines().all(|line| line.starts_with('{')), "what was sent is gone");
}
