//! Answers on the socket that no honest daemon gives.

use super::*;

/// Lines that are too long, no JSON, or without measure.
#[test]
fn malformed_lines_are_refused() {
    let cases: &[Case] = &[
        ("closes at once", STATUS, End::Alone, Vec::new),
        ("an endless line", STATUS, End::Alone, || vec![Endless(vec![b'['; 65_536])]),
        ("endless spaces", CAPTURE, End::Alone, || vec![Endless(vec![b' '; 100])]),
        ("no UTF-8", STATUS, End::Alone, || vec![Hear, Raw(b"\xff\xfe\x80\n".to_vec())]),
        ("nested", STATUS, End::Alone, || {
            vec![Hear, say(format!(r#"{{"hello":{{"x":{}"#, "[".repeat(100_000)))]
        }),
        ("counts without measure", STATUS, End::Alone, || {
            let most = u64::MAX;
            let counts = format!(
                r#"{{"offered":{most},"index_full":{most},"overwritten":{most},"damaged":{most},"unread":{most}}}"#
            );
            let reader = format!(r#"{{"number":{most},"counts":{counts},"wakes":{most},"past":{most}}}"#);
            let capture = format!(
                r#"{{"packets":1,"bytes":{most},"lost_before":{most},"cpu_ns":{most},"waits_for":{most},"waits_ms":{most},"readers":[{reader}]}}"#
            );
            vec![
                Hear,
                say(HELLO),
                Hear,
                say(format!(r#"{{"status":{{"seconds":{most},"captures":[{capture}],"refused":{most}}}}}"#)),
            ]
        }),
        ("many captures", STATUS, End::Alone, || {
            vec![
                Hear,
                say(HELLO),
                Hear,
                say(format!(r#"{{"status":{{"captures":[{}{{}}]}}}}"#, "{},".repeat(80_000))),
            ]
        }),
        ("one filter for many interfaces", CAPTURE, End::Alone, || {
            let offer = format!(
                r#"{{"interfaces":[{}{{}}],"forced_filter":"{}"}}"#,
                "{},".repeat(40_000),
                "x".repeat(100_000)
            );
            let mut ring = Ring::new();
            let parts = ring.parts();
            let attached = format!(r#"{{"attached":{{"buffers":1,"offer":{offer}}}}}"#);
            vec![Hear, say(HELLO), Hear, say(attached), Give(BUFFER.to_owned(), parts)]
        }),
    ];
    run_all(cases);
}

/// Control characters in every text that is printed.
#[test]
fn escapes_reach_no_terminal() {
    let cases: &[Case] = &[
        ("escapes in a word that is none", STATUS, End::Alone, || {
            vec![Hear, say(format!(r#"{{"{ESCAPES}":{{}}}}"#))]
        }),
        ("escapes in an error", CAPTURE, End::Alone, || {
            vec![Hear, say(format!(r#"{{"error":"{ESCAPES}"}}"#))]
        }),
        ("a long error", CAPTURE, End::Alone, || {
            vec![Hear, say(format!(r#"{{"error":"{}"}}"#, "\\u001b".repeat(40_000)))]
        }),
        ("escapes in status", STATUS, End::Alone, || {
            let reader = format!(r#"{{"program":"{ESCAPES}","filter":"{ESCAPES}","standing":"{ESCAPES}"}}"#);
            let capture =
                format!(r#"{{"name":"{ESCAPES}","interfaces":["{ESCAPES}"],"readers":[{reader}]}}"#);
            vec![Hear, say(HELLO), Hear, say(format!(r#"{{"status":{{"captures":[{capture}]}}}}"#))]
        }),
        ("escapes in a list", LIST, End::Alone, || {
            let interface = format!(r#"{{"name":"{ESCAPES}","description":"{ESCAPES}","link_type":65535}}"#);
            let offer =
                format!(r#"{{"name":"{ESCAPES}","forced_filter":"{ESCAPES}","interfaces":[{interface}]}}"#);
            vec![Hear, say(format!(r#"{{"hello":{{"version":1,"captures":[{offer}]}}}}"#))]
        }),
        ("escapes in names that are read", CAPTURE, End::Interrupt, || {
            let offer = format!(
                r#"{{"interfaces":[{{"name":"eth0{ESCAPES}","link_type":1}}],"forced_filter":"{ESCAPES}"}}"#
            );
            let mut ring = Box::new(Ring::new());
            let parts = ring.parts();
            let attached = format!(r#"{{"attached":{{"buffers":1,"offer":{offer}}}}}"#);
            vec![keep(ring), Hear, say(HELLO), Hear, say(attached), Give(BUFFER.to_owned(), parts), Hang]
        }),
    ];
    run_all(cases);
}

/// Answers that come byte by byte, late, or never.
#[test]
fn slow_answers_hold_no_client() {
    let cases: &[Case] = &[
        ("byte by byte", STATUS, End::Alone, || {
            vec![Hear, Drip(vec![b' '; 200], Duration::from_millis(500))]
        }),
        ("byte by byte to a listing client", LIST, End::Alone, || {
            vec![Hear, Drip(vec![b' '; 200], Duration::from_millis(300))]
        }),
        ("byte by byte to an attaching client", CAPTURE, End::GivenUp, || {
            vec![Hear, say(HELLO), Hear, Drip(vec![b' '; 2000], Duration::from_millis(300))]
        }),
        ("no answer to a leave, then byte by byte", CAPTURE, End::Interrupt, || {
            honest(Ring::new(), |ring| {
                vec![keep(ring), Hear, Drip(vec![b' '; 200], Duration::from_millis(500))]
            })
        }),
        ("another answer to a leave", CAPTURE, End::Interrupt, || {
            honest(Ring::new(), |ring| {
                vec![keep(ring), Hear, say(format!(r#"{{"error":"{ESCAPES}"}}"#)), Hang]
            })
        }),
        ("it answers a leave and never ends", CAPTURE, End::Interrupt, || {
            honest(Ring::new(), |ring| {
                let mut steps = vec![Hear, say(r#"{"detached":{"account":{}}}"#)];
                steps.push(Lie(Box::new(|_, _| nap()), ring));
                steps
            })
        }),
        ("accepts and closes again and again", AGAIN, End::Interrupt, || honest(Ring::new(), |_| Vec::new())),
    ];
    run_all(cases);
}

/// Buffers and descriptors that do not match the offer.
#[test]
fn wrong_descriptors_are_refused() {
    let cases: &[Case] = &[
        ("no buffers", CAPTURE, End::Alone, || {
            vec![Hear, say(HELLO), Hear, say(r#"{"attached":{"buffers":0}}"#), Hang]
        }),
        ("2^32 - 1 buffers", CAPTURE, End::Alone, || {
            vec![Hear, say(HELLO), Hear, say(r#"{"attached":{"buffers":4294967295}}"#), Hang]
        }),
        ("buffers in another order", CAPTURE, End::Alone, || {
            let parts = Ring::new().parts();
            vec![Hear, say(HELLO), Hear, say(ATTACHED), Give(r#"{"buffer":1}"#.to_owned(), parts)]
        }),
        ("no descriptors", CAPTURE, End::Alone, || {
            vec![Hear, say(HELLO), Hear, say(ATTACHED), say(BUFFER), Hang]
        }),
        ("descriptors without end", CAPTURE, End::Alone, || {
            let mut steps = vec![Hear];
            let pipes = || (0..16).map(|_| File::open("/dev/zero").unwrap().into()).collect::<Vec<OwnedFd>>();
            steps.extend((0..60).map(|_| Give(" ".repeat(10), pipes())));
            steps
        }),
        ("unrequested descriptors, kept", CAPTURE, End::Alone, || {
            honest(Ring::new(), |_| {
                let more = (0..15).map(|_| File::open("/dev/zero").unwrap().into()).collect();
                vec![Give(BUFFER.to_owned(), more), Hang]
            })
            .into_iter()
            .enumerate()
            .map(|(at, step)| match step {
                // With the hello, where none belong.
                Say(line) if at == 1 => {
                    Give(line, (0..15).map(|_| File::open("/dev/zero").unwrap().into()).collect())
                }
                other => other,
            })
            .collect()
        }),
    ];
    run_all(cases);
}

/// A packet of an interface that appears, and what the daemon says when it is asked for the name.
fn appearing(answers: Vec<Step>) -> Vec<Step> {
    let ring = Ring::new();
    ring.offer(|head| head[3] = u64::MAX);
    let attached = ATTACHED.replace(r#""buffers":1"#, r#""buffers":1,"interfaces_max":65536"#);
    let mut steps = honest(ring, |ring| vec![keep(ring)]);
    steps[3] = say(attached);
    steps.extend(answers);
    steps
}

/// Names of interfaces that appear: too few, for another question, for a terminal, or none.
#[test]
fn names_that_never_come_hold_no_reader() {
    let cases: &[Case] = &[
        ("one name for each question, then none", CAPTURE, End::Interrupt, || {
            let answer = |from: u32| {
                let list = format!(r#"[{{"name":"{ESCAPES}","description":"{ESCAPES}","link_type":1}}]"#);
                say(format!(r#"{{"interfaces":{{"from":{from},"list":{list}}}}}"#))
            };
            let answers = (1..50).flat_map(|from| [Hear, answer(from)]).chain([Hang]);
            appearing(answers.collect())
        }),
        ("names for another question", CAPTURE, End::Interrupt, || {
            appearing(vec![Hear, say(r#"{"interfaces":{"from":0,"list":[{"name":"eth1"}]}}"#), Hang])
        }),
        ("no further names", CAPTURE, End::Interrupt, || {
            appearing(vec![Hear, say(r#"{"interfaces":{"from":1,"list":[]}}"#), Hang])
        }),
        ("an error in place of names", CAPTURE, End::Interrupt, || {
            appearing(vec![Hear, say(format!(r#"{{"error":"{ESCAPES}"}}"#))])
        }),
        ("it closes in place of an answer", CAPTURE, End::Interrupt, || appearing(vec![Hear])),
    ];
    run_all(cases);
}
