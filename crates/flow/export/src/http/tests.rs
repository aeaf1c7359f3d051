//! A server that gives prepared answers, good or bad.

use std::net::TcpListener;

use super::*;
use crate::Receiver;
use crate::trial::block;
use crate::trial_server::{answer, server};

#[test]
fn answers_decide_what_becomes_of_a_block() {
    let answers = vec![
        answer("200 OK", "", "bec\x1bu"),
        answer("400 Bad Request", "", "bec\x1bu"),
        answer("503 Busy", "", "bec\x1bu"),
        answer("401 Unauthorized", "", "bec\x1bu"),
        answer("302 Found", "location: http://127.0.0.1:9/\r\n", "bec\x1bu"),
        b"HTTP/1.1 200 OK\r\ncontent-le".to_vec(),
        b"\x16\x03\x01 no HTTP at all\r\n\r\n".to_vec(),
        Vec::new(),
    ];
    let (url, serving) = server(answers);
    let mut target = HttpTarget::new(&url, None, Some("me"), Some(secret("sesame")));
    let outcomes: Vec<Outcome> = (0..8).map(|number| target.deliver(&block(number, b"{}\n"))).collect();
    let calls = serving.join().expect("it serves");
    assert_eq!(outcomes[0], Outcome::Delivered);
    assert_eq!(outcomes[1], Outcome::Refused("answer 400: becu".to_owned()));
    for outcome in &outcomes[2..] {
        assert!(matches!(outcome, Outcome::Again(why) if !why.contains("sesame")), "{outcome:?}");
    }
    let (head, body) = &calls[3];
    assert_eq!(body, b"{}\n");
    let head = head.to_ascii_lowercase();
    for line in [
        "post /flows http/1.1",
        "tapline-batch: test-7-3",
        "tapline-rows: 1",
        "content-type: application/x-ndjson",
    ] {
        assert!(head.contains(line), "{head}");
    }
    assert!(
        head.contains(&format!("authorization: basic {}", STANDARD.encode("me:sesame").to_ascii_lowercase()))
    );
}

#[test]
fn a_server_that_is_not_there_is_tried_again() {
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    // No socket listens on a port that was just given back, of an address with few others: the call is refused.
    drop(listener);
    let outcome = HttpTarget::new(&url, None, None, None).deliver(&block(0, b"{}\n"));
    assert!(matches!(outcome, Outcome::Again(_)), "{outcome:?}");
}

#[test]
fn a_destination_delivers_with_a_token() {
    let (url, serving) = server(vec![answer("204 No Content", "", "bec\x1bu")]);
    let destination = Receiver::parse(&format!("{url}?format=json&a=b")).expect("a URL");
    let mut carrier = destination.open(Some(secret("sesame"))).expect("a thread");
    assert_eq!(carrier.offer(&std::sync::Arc::new(block(0, b"{}\n"))), crate::Offer::Taken);
    let report = carrier.poll(Duration::from_secs(60)).expect("a report");
    assert_eq!(report.outcome, Outcome::Delivered);
    let calls = serving.join().expect("it serves");
    assert!(calls[0].0.starts_with("POST /flows?a=b HTTP/1.1"), "{}", calls[0].0);
    assert!(calls[0].0.to_ascii_lowercase().contains("authorization: bearer sesame"));
}

#[test]
fn bodies_are_compressed_on_request() {
    let (url, serving) = server(vec![answer("200 OK", "", ""); 2]);
    let rows = vec![b'7'; 100_000];
    for name in ["gzip", "zstd"] {
        let destination = Receiver::parse(&format!("{url}?compress={name}")).expect("a URL");
        let mut carrier = destination.open(None).expect("a thread");
        assert_eq!(carrier.offer(&std::sync::Arc::new(block(0, &rows))), crate::Offer::Taken);
        assert_eq!(
            carrier.poll(Duration::from_secs(60)).map(|report| report.outcome),
            Some(Outcome::Delivered)
        );
    }
    for ((head, body), (name, magic)) in
        serving.join().expect("it serves").iter().zip([("gzip", &[0x1f, 0x8b][..]), ("zstd", &[0x28, 0xb5])])
    {
        assert!(head.to_ascii_lowercase().contains(&format!("content-encoding: {name}")), "{head}");
        assert!(body.starts_with(magic) && body.len() < 10_000, "{name}: {} bytes", body.len());
    }
}

fn secret(text: &str) -> Secret {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("secret");
    std::fs::write(&path, text).expect("there is room");
    Secret::of_file(&path).expect("a line")
}
