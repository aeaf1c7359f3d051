//! Files of signatures, and packets that they are evaluated on.
//!
//! ```text
//! input := rules file | 0 | payload        what is parsed is evaluated on the payload, as TCP and as UDP
//! ```

use tapline_packet::headers::Headers;
use tapline_packet::{Batch, LinkType, Meta, Record, Selection};
use tapline_signature::{Conversation, Detector, Direction, Ruleset, Variables};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp};

/// Any bytes are parsed, each line is used or refused once, and any payload is evaluated within the budget.
pub fn signatures(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (rules, payload) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let ruleset = Ruleset::parse(rules, Variables::default());
    let lines = rules.split(|byte| *byte == b'\n').count();
    assert!(ruleset.signatures.len() + ruleset.refusals.len() <= lines);
    for refusal in &ruleset.refusals {
        assert!(refusal.line as usize <= lines && !refusal.reason.is_empty());
    }
    let Ok((mut detector, _)) = Detector::new(ruleset) else { return };
    let Ok(set) = detector.prepare(LinkType::ETHERNET, &tapline_filter::Options::default()) else { return };
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = IpPair::between(&a, &b, IpVersion::V4);
    let payload = &payload[..payload.len().min(1400)];
    let tcp = Tcp { src: 4000, dst: 80, flags: 0x18, ..Tcp::default() }.packet(pair, payload);
    for packet in [tcp, Udp { src: 4000, dst: 53 }.packet(pair, payload)] {
        evaluate(&mut detector, set, &Ethernet::between(&a, &b).ip(&packet));
    }
}

fn evaluate(detector: &mut Detector, set: usize, frame: &[u8]) {
    let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
    let records = [Record { cap_len: frame.len() as u32, meta, ..Record::default() }];
    let batch = Batch::new(frame, &records);
    let mut selection = Selection::none();
    selection.select_all(1);
    let headers = Headers::parse(LinkType::ETHERNET, batch.packet(0));
    let payload = headers.payload().map_or(&frame[..0], |start| &frame[start..headers.ip_end()]);
    detector.search(set, &batch, &selection, |_| payload);
    let is_suspect = detector.is_suspect(0);
    let mut flow = Conversation::default();
    let mut found = 0;
    detector.evaluate(0, frame, &headers, payload, Some((&mut flow, Direction::ToServer)), |_| found += 1);
    assert!(is_suspect || found == 0);
    assert!(found <= detector.signatures().len());
}

pub(crate) fn signatures_seeds() -> Vec<Vec<u8>> {
    let seed = |rules: &str, payload: &[u8]| [rules.as_bytes(), &[0], payload].concat();
    vec![
        seed(
            "alert tcp any any -> any 80 (msg:\"a\"; content:\"GET\"; depth:3; content:\"/admin\"; distance:1; nocase; sid:1;)",
            b"GET /Admin",
        ),
        seed(
            "ipvar HOME_NET [10.0.0.0/8,!10.9.0.0/16]\nalert udp any any <> $HOME_NET [53,1024:] (content:!\"|41 42|\"; dsize:<300; sid:2; rev:3;)",
            b"xyz",
        ),
        seed(
            "alert tcp any any -> any any (flow:to_server,established; pcre:\"/user=(\\w+)/iR\"; flowbits:set,a; sid:3;)\nalert tcp any any -> any any (flowbits:isset,a; byte_test:4,>,10,0,relative,string,dec; sid:4;)",
            b"USER=root 1234",
        ),
        seed(
            "alert ip any any -> any any (byte_jump:2,0,align,multiplier 2,post_offset -1; isdataat:!4,relative; \\\n threshold:type both, track by_src, count 1, seconds 9; sid:5;)\npass icmp any any -> any any (itype:8; sid:6;)",
            b"\x00\x02abcdefgh",
        ),
    ]
}
