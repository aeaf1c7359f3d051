//! Application, tunnel and LLC protocols: packets made for this test, with the text that tcpdump 4.99.3 printed of
//! them, and the same packets changed and cut at random.
//!
//! `applications/cases.txt` says at its top how it is written. Where tcpdump's `-v` differs from ours on purpose, a
//! case has no lines with `v|`.

use proptest::prelude::*;
use tapline_packet::{Interface, LinkType, Meta, Packet};
use tapline_print::{Options, Printer, TimeStyle, json};

/// One packet and its text.
struct Case {
    protocol: &'static str,
    frame: Vec<u8>,
    brief: String,
    verbose: String,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in include_str!("applications/cases.txt").split('\n') {
        if let Some(rest) = line.strip_prefix('[') {
            let (protocol, frame) = rest.split_once("] ").expect("[protocol] frame");
            cases.push(Case { protocol, frame: bytes(frame), brief: String::new(), verbose: String::new() });
        } else if let (Some(case), Some((kind, text))) = (cases.last_mut(), line.split_once('|')) {
            let target = if kind == "v" { &mut case.verbose } else { &mut case.brief };
            target.push_str(text);
            target.push('\n');
        }
    }
    cases
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
}

fn text(data: &[u8], wire_len: usize, verbose: u8) -> String {
    let options = Options { port_names: false, time: TimeStyle::None, verbose, ..Options::default() };
    let meta = Meta { wire_len: wire_len as u32, ..Meta::default() };
    let mut out = Vec::new();
    Printer::new(options).print(
        Packet { data, meta: &meta },
        &Interface::new("", LinkType::ETHERNET),
        &mut out,
    );
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn the_text_is_that_of_tcpdump() {
    let cases = cases();
    assert!(cases.len() > 250, "only {} cases", cases.len());
    for Case { protocol, frame, brief, verbose } in &cases {
        assert_eq!(text(frame, frame.len(), 0), *brief, "{protocol}");
        if !verbose.is_empty() {
            assert_eq!(text(frame, frame.len(), 1), *verbose, "{protocol} -v");
        }
    }
}

#[test]
fn every_cut_ends_in_a_line() {
    for Case { protocol, frame, .. } in &cases() {
        for end in 1..frame.len() {
            for verbose in [0, 3] {
                let text = text(&frame[..end], frame.len(), verbose);
                assert!(text.ends_with('\n'), "{protocol} cut at {end}: {text}");
            }
        }
    }
}

/// A case, changed in some bytes and cut.
fn changed() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let case = prop::sample::select(cases().into_iter().map(|case| case.frame).collect::<Vec<_>>());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    (case, changes, any::<prop::sample::Index>()).prop_map(|(mut frame, changes, cut)| {
        for (at, value) in changes {
            // The headers that lead to the protocol stay unchanged: Ethernet and the IP protocol number.
            let at = at.index(frame.len());
            if at >= 24 || (14..23).contains(&at) {
                frame[at] = value;
            }
        }
        let wire_len = frame.len();
        frame.truncate(cut.index(wire_len * 2).max(1));
        (frame, wire_len)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn changed_packets_print_and_parse((frame, wire_len) in changed()) {
        for verbose in 0..=3 {
            let text = text(&frame, wire_len, verbose);
            prop_assert!(text.ends_with('\n'));
            prop_assert!(text.len() < 100_000, "{} bytes of text", text.len());
        }
        let meta = Meta { wire_len: wire_len as u32, ..Meta::default() };
        let mut line = Vec::new();
        json::packet(Packet { data: &frame, meta: &meta }, &Interface::new("", LinkType::ETHERNET), 1, &mut line);
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&line);
        prop_assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&line));
    }
}
