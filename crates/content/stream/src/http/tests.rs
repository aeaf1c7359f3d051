//! Bodies out of made streams.

use super::*;

fn at(offset: u64, bytes: &[u8]) -> StreamBytes<'_> {
    StreamBytes { bytes, offset, acknowledged: None }
}

#[test]
fn heads_are_told_with_or_without_a_body() {
    let mut conversation = Conversation::with_heads();
    let mut heads = Vec::new();
    let mut sink = |event: BodyEvent<'_>| {
        if let BodyEvent::Message { head, .. } = event {
            heads.push((head.status, head.request.as_ref().map(|request| request.target.clone())));
        }
    };
    conversation.data(true, at(0, b"GET /a HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\n"), &mut sink);
    let answers = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 304 Not\r\n\r\n";
    conversation.data(false, at(0, answers), &mut sink);
    let [a, b] = ["/a", "/b"].map(|target| Some(target.to_owned()));
    assert_eq!(heads, [(None, a.clone()), (None, b.clone()), (Some(200), a), (Some(304), b)]);
}

/// Each byte is reported once, but for the framing of chunks and empty lines before messages.
#[test]
fn all_bytes_of_a_conversation_are_events() {
    let texts: [(&str, &str); 5] = [
        ("SSH-2.0-x\r\nabc", "SSH-2.0-x\r\nabc"),
        ("HTTP/1.1 200 OK\r\n\r\nbody", "HTTP/1.1 200 OK\r\n\r\nbody"),
        ("HTTP/1.1 204 No\r\n\r\n\r\nHTTP/1.1 20", "HTTP/1.1 204 No\r\n\r\nHTTP/1.1 20"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\nrest",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nokA: b\r\nrest",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\nrest",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\nrest",
        ),
    ];
    for (text, expected) in texts {
        for step in [1, 7, 999] {
            let (mut conversation, mut seen) = (Conversation::with_heads(), Vec::new());
            let mut sink = |event: BodyEvent<'_>| match event {
                BodyEvent::Message { bytes, .. } | BodyEvent::Other(bytes) | BodyEvent::Data(bytes) => {
                    seen.extend_from_slice(bytes);
                }
                BodyEvent::Begin(_) | BodyEvent::End { .. } => {}
            };
            for piece in text.as_bytes().chunks(step) {
                conversation.data(false, at(0, piece), &mut sink);
            }
            conversation.end(false, true, &mut sink);
            assert_eq!(String::from_utf8_lossy(&seen), expected, "{step}");
        }
    }
}

/// Bodies of a conversation whose streams come in pieces of `step` bytes: type, bytes, and whether it is whole.
fn bodies(parts: &[(bool, &[u8])], step: usize) -> Vec<(String, Vec<u8>, bool)> {
    let (mut conversation, mut found) = (Conversation::default(), Vec::new());
    let mut sink = |event: BodyEvent<'_>| match event {
        BodyEvent::Message { .. } | BodyEvent::Other(_) => {}
        BodyEvent::Begin(head) => found.push((head.content_type, Vec::new(), false)),
        BodyEvent::Data(bytes) => found.last_mut().expect("it began").1.extend_from_slice(bytes),
        BodyEvent::End { is_whole, .. } => found.last_mut().expect("it began").2 = is_whole,
    };
    for (is_from_client, bytes) in parts {
        for piece in bytes.chunks(step) {
            conversation.data(*is_from_client, at(0, piece), &mut sink);
        }
    }
    conversation.end(true, true, &mut sink);
    conversation.end(false, true, &mut sink);
    found
}

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: example.net\r\n\r\n";

#[test]
fn bodies_are_found_however_they_are_cut() {
    let post: &[u8] = b"POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Type: a/b\r\n\r\nbody";
    let chunked: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: c/d\r\n\r\n\
        5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nT: x\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Type: e/f\r\n\r\nto the end";
    let parts: [(bool, &[u8]); 4] = [(true, post), (true, GET), (true, GET), (false, chunked)];
    for step in 1..200 {
        let found = bodies(&parts, step);
        let expected = [("a/b", "body"), ("c/d", "hello world"), ("e/f", "to the end")];
        let expected = expected.map(|(kind, body)| (kind.to_owned(), body.as_bytes().to_vec(), true));
        assert_eq!(found, expected, "in pieces of {step}");
    }
}

#[test]
fn answers_to_head_have_no_body() {
    let head: &[u8] = b"HEAD / HTTP/1.1\r\n\r\n";
    let answers: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let found = bodies(&[(true, head), (true, GET), (false, answers)], 7);
    assert_eq!(found, [(String::new(), b"ok".to_vec(), true)]);
}

#[test]
fn hostile_lengths_lose_only_their_stream() {
    for length in ["-1", "+5", "18446744073709551616", "1, 2", "", "5,", "5\r\nContent-Length: 6"] {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhello");
        assert!(bodies(&[(false, answer.as_bytes())], 999).is_empty(), "{length}");
    }
    let chunk: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx";
    assert_eq!(bodies(&[(false, chunk)], 999), [(String::new(), Vec::new(), false)]);
}

#[test]
fn several_transfer_codings_are_one_list() {
    let answer: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 3\r\n\
        Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_eq!(bodies(&[(false, answer)], 5), [(String::new(), b"ok".to_vec(), true)]);
}

#[test]
fn memory_of_a_conversation_is_bounded() {
    let mut conversation = Conversation::default();
    let mut sink = |event: BodyEvent<'_>| panic!("{event:?}");
    let target = "a".repeat(4000);
    for _ in 0..300 {
        let request = format!("GET /{target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        conversation.data(true, at(0, request.as_bytes()), &mut sink);
        assert!(conversation.memory() <= awaited::BYTES_MAX, "{}", conversation.memory());
    }
    // A head that never ends, and empty lines before one.
    for _ in 0..200_000 {
        conversation.data(false, at(0, b"\n"), &mut sink);
    }
    conversation.data(false, at(0, b"HTTP/1.1 200 OK\r\nA: "), &mut sink);
    for _ in 0..200_000 {
        conversation.data(false, at(0, b"a"), &mut sink);
        assert!(conversation.memory() <= awaited::BYTES_MAX + 2 * HEAD_MAX, "{}", conversation.memory());
    }
    conversation.give_up(true, &mut sink);
    conversation.give_up(false, &mut sink);
    assert_eq!(conversation.memory(), 0);
}

#[test]
fn gaps_in_bodies_are_reported_and_skipped() {
    let (mut conversation, mut ends, mut bytes) = (Conversation::default(), Vec::new(), Vec::new());
    let mut sink = |event: BodyEvent<'_>| match event {
        BodyEvent::End { missing, is_whole } => ends.push((missing, is_whole)),
        BodyEvent::Data(more) => bytes.extend_from_slice(more),
        BodyEvent::Begin(_) | BodyEvent::Message { .. } | BodyEvent::Other(_) => {}
    };
    conversation.data(false, at(0, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12"), &mut sink);
    conversation.gap(false, 5, &mut sink);
    conversation.data(false, at(0, b"890"), &mut sink);
    conversation.data(false, at(0, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12"), &mut sink);
    conversation.gap(false, 500, &mut sink);
    conversation.data(false, at(0, b"in the midst of something"), &mut sink);
    conversation.data(false, at(0, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!"), &mut sink);
    assert_eq!((ends, bytes), (vec![(5, false), (8, false), (0, true)], b"1289012!".to_vec()));
}

/// Each body with the request that it answers, and its bytes; `None` if the request is unknown.
type Answers = Vec<(Option<String>, String)>;

/// A conversation whose messages come with offsets and acknowledgements, and with losses.
#[derive(Default)]
struct Exchange {
    conversation: Conversation,
    offsets: [u64; 2],
    answers: Answers,
}

impl Exchange {
    fn take(&mut self, is_from_client: bool, message: Result<&str, u64>) {
        let Exchange { conversation, offsets, answers } = self;
        let mut sink = |event: BodyEvent<'_>| match event {
            BodyEvent::Begin(head) => answers.push((head.request.map(|one| one.target), String::new())),
            BodyEvent::Data(bytes) => {
                answers.last_mut().expect("it began").1 += std::str::from_utf8(bytes).expect("text");
            }
            BodyEvent::End { .. } | BodyEvent::Message { .. } | BodyEvent::Other(_) => {}
        };
        let (offset, other) = (offsets[usize::from(is_from_client)], offsets[usize::from(!is_from_client)]);
        let len = match message {
            Ok(text) => {
                let piece = StreamBytes { bytes: text.as_bytes(), offset, acknowledged: Some(other) };
                conversation.data(is_from_client, piece, &mut sink);
                text.len() as u64
            }
            Err(len) => {
                conversation.gap(is_from_client, len, &mut sink);
                len
            }
        };
        self.offsets[usize::from(is_from_client)] += len;
    }

    fn get(&mut self, target: &str) {
        self.take(true, Ok(&format!("GET /{target} HTTP/1.1\r\n\r\n")));
    }

    fn answer(&mut self, body: &str) {
        let len = body.len();
        self.take(false, Ok(&format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{body}")));
    }

    fn exchange(&mut self, name: &str) {
        self.get(name);
        self.answer(name);
    }

    /// Every body has the name of its request, or of none.
    fn matched(&self) -> Vec<bool> {
        let is_matched = |(target, body): &(Option<String>, String)| match target {
            Some(target) => {
                assert_eq!(*target, format!("/{body}"));
                true
            }
            None => false,
        };
        self.answers.iter().map(is_matched).collect()
    }
}

#[test]
fn requests_match_responses_after_losses() {
    // A response is lost.
    let mut one = Exchange::default();
    one.exchange("a");
    one.get("b");
    one.take(false, Err(60));
    one.exchange("c");
    one.exchange("d");
    assert_eq!(one.matched(), [true, true, true]);
    // A request is lost, and its response is not.
    let mut one = Exchange::default();
    one.exchange("a");
    one.take(true, Err(30));
    one.answer("b");
    one.exchange("c");
    assert_eq!(one.matched(), [true, false, true]);
    // The first of two responses is lost.
    let mut one = Exchange::default();
    one.get("a");
    one.get("b");
    one.take(false, Err(60));
    one.answer("b");
    one.exchange("c");
    assert_eq!(one.matched(), [false, true]);
    // A response with an invalid length, and bytes that are not a response.
    for bad in ["HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc", "nonsense\r\n\r\n"] {
        let mut one = Exchange::default();
        one.exchange("a");
        one.get("b");
        one.take(false, Ok(bad));
        one.exchange("c");
        assert_eq!(one.matched(), [true, true], "{bad}");
        assert_eq!(one.conversation.take_unparsed(), Unparsed { messages: 1, lines: 0 }, "{bad}");
    }
}

#[test]
fn heads_that_browsers_accept_are_read() {
    let many = "X: y\r\n".repeat(3000);
    for (lines, malformed) in [
        ("X-A : b\r\nContent-Length: 4\r\n", 0),
        ("X-A: b\r\n c\r\nContent-Length:\r\n 4\r\n", 0),
        ("X-A\r\nContent-Length : 4\r\n", 1),
        ("Content-Length: 4\r\nContent-Length: 4, 4\r\n", 0),
        ("X-\u{e9}: b\nContent-Length: 4\n", 0),
        ("Transfer-Encoding: gzip,\r\n Chunked ,\r\nContent-Length: 9\r\n", 0),
        (&format!("{many}Content-Length: 4\r\n"), 0),
    ] {
        let body = if lines.contains("Chunked") { "4 ;x\nbody\n0\n\n" } else { "body" };
        let first = format!("HTTP/1.1 200 OK\r\n{lines}\r\n{body}");
        let both = format!("{first}HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo");
        for step in [1, 7, 100_000] {
            let mut one = Exchange::default();
            one.get("body");
            one.get("two");
            for piece in both.as_bytes().chunks(step) {
                // A letter may be cut.
                let piece = StreamBytes { bytes: piece, offset: 0, acknowledged: Some(100) };
                let answers = &mut one.answers;
                one.conversation.data(false, piece, &mut |event| match event {
                    BodyEvent::Begin(head) => {
                        answers.push((head.request.map(|one| one.target), String::new()));
                    }
                    BodyEvent::Data(bytes) => {
                        answers.last_mut().expect("it began").1 += std::str::from_utf8(bytes).expect("text");
                    }
                    BodyEvent::End { is_whole, .. } => assert!(is_whole),
                    BodyEvent::Message { .. } | BodyEvent::Other(_) => {}
                });
            }
            assert_eq!(one.matched(), [true, true], "{lines:?} in pieces of {step}");
            assert_eq!(one.conversation.take_unparsed(), Unparsed { messages: 0, lines: malformed });
        }
    }
}

#[test]
fn long_heads_count_and_other_protocols_do_not() {
    let of = |bytes: &[u8]| {
        let mut conversation = Conversation::default();
        conversation.data(true, at(0, bytes), &mut |event| panic!("{event:?}"));
        conversation.take_unparsed().messages
    };
    assert_eq!([&b"SSH-2.0-x\r\n"[..], b"\x16\x03\x01", b"HELO x\r\n\r\n"].map(of), [0, 0, 0]);
    assert_eq!(of(format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(HEAD_MAX)).as_bytes()), 1);
}

#[test]
fn the_end_seen_first_may_be_the_server() {
    let answer: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(bodies(&[(true, answer), (false, GET), (true, answer)], 999).len(), 2);
}
