//! The stage on whole conversations.

use std::path::Path;

use serde_json::Value;
use tapline_graph::Cell;
use tapline_packet::Batch;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};

use crate::trial::Trial;

fn tcp(src: u16, dst: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    let (from, to) = if dst < src { (&a, &b) } else { (&b, &a) };
    let tcp = Tcp { src, dst, flags, ..Tcp::default() };
    Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), payload))
}

fn trial(folder: &Path, rules: &str, arguments: &str) -> Result<Trial, String> {
    let path = folder.join("x.rules");
    std::fs::write(&path, rules).expect("there is room");
    Trial::graph(&format!("file(\"in\") -> s :: signatures({path:?}{arguments}) -> json"))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the file of alerts");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

#[test]
fn alerts_are_lines_and_their_packets_go_on() {
    let folder = tempfile::tempdir().expect("there is room");
    let alerts = folder.path().join("eve.json");
    let rules = r#"
        alert tcp any any -> $HOME_NET 80 (msg:"an \"admin\""; flow:to_server,established; content:"/admin"; classtype:web; reference:cve,2020-1; sid:7; rev:2; priority:1;)
        log tcp any any -> any any (content:"logged"; sid:8;)
        alert tcp any any -> any any (content:"x"; http_uri; sid:9;)
    "#;
    let home = Host::number(2).v4;
    let arguments = format!(", variables=\"HOME_NET={home}\", alerts={alerts:?}");
    let mut trial = trial(folder.path(), rules, &arguments).unwrap_or_else(|why| panic!("{why}"));
    let frames = [
        tcp(40_000, 80, 0x18, b"GET /admin early: no handshake was refused, so it counts as established"),
        tcp(40_001, 80, 0x02, b""),
        tcp(40_001, 80, 0x18, b"GET /admin before the answer"),
        tcp(80, 40_001, 0x12, b""),
        tcp(40_001, 80, 0x18, b"GET /admin"),
        tcp(40_001, 80, 0x18, b"logged"),
        tcp(80, 40_001, 0x18, b"/admin"),
    ];
    trial.push_frames(&frames);
    trial.finish();
    trial.assert_balanced();
    assert_eq!(trial.data(), [frames[0].clone(), frames[4].clone(), frames[5].clone()]);
    let lines = lines(&alerts);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["alert"]["signature"], "an \"admin\"");
    assert_eq!((&lines[1]["alert"]["signature_id"], &lines[1]["alert"]["severity"]), (&7.into(), &1.into()));
    assert_eq!((&lines[1]["src_port"], &lines[1]["proto"]), (&40_001.into(), &"TCP".into()));
    let text = |text: &str| Cell::from(text.to_owned());
    assert_eq!(trial.result("s").rows[0], [7.into(), text("an \"admin\""), 2.into(), 2.into()]);
}

#[test]
fn dropped_packets_are_not_forwarded() {
    let folder = tempfile::tempdir().expect("there is room");
    let (path, alerts) = (folder.path().join("x.rules"), folder.path().join("eve.json"));
    let rules = r#"
        drop tcp any any -> any any (content:"bad"; threshold:type limit, track by_src, count 1, seconds 60; sid:1;)
        alert tcp any any -> any any (content:"odd"; sid:2;)
        pass tcp any any -> any any (content:"good"; sid:3;)
        drop tcp any any -> any any (content:"quiet"; flowbits:set,seen; flowbits:noalert; sid:4;)
    "#;
    std::fs::write(&path, rules).expect("there is room");
    let payloads: [&[u8]; 7] = [b"plain", b"odd", b"bad", b"bad again", b"good bad", b"quiet", b"odd bad"];
    let frames = payloads.map(|payload| tcp(40_000, 80, 0x18, payload));
    let stage = format!("s :: signatures({path:?}, alerts={alerts:?})");
    let mut inline =
        Trial::graph(&format!("{stage}; file(\"in\") -> s; s[0] -> json; s[1] -> json")).expect("a graph");
    inline.push_frames(&frames);
    inline.finish();
    inline.assert_balanced();
    let at = |places: &[usize]| places.iter().map(|at| frames[*at].clone()).collect::<Vec<_>>();
    let arrived = |trial: &Trial, end: usize| -> Vec<Vec<u8>> {
        trial.arrived_at(end).into_iter().map(|packet| packet.data).collect()
    };
    assert_eq!(arrived(&inline, 0), at(&[1, 2, 6]));
    assert_eq!(arrived(&inline, 1), at(&[0, 1, 4]));
    // The threshold keeps a report back, and `noalert` another.
    assert_eq!(inline.refused_and_held("s"), (2, 0));
    let actions: Vec<String> =
        lines(&alerts).iter().map(|line| line["alert"]["action"].to_string()).collect();
    assert_eq!(actions, ["allowed", "blocked", "allowed"].map(|action| format!("\"{action}\"")));
    // Where nothing is forwarded, drop is alert.
    let mut looking = trial(folder.path(), rules, &format!(", alerts={alerts:?}")).expect("a graph");
    looking.push_frames(&frames);
    looking.finish();
    assert_eq!(looking.data(), at(&[1, 2, 6]));
    assert!(lines(&alerts).iter().all(|line| line["alert"]["action"] == "allowed"));
}

#[test]
fn packets_are_dropped_if_no_alert_can_be_written() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("x.rules");
    std::fs::write(&path, "drop tcp any any -> any any (content:\"bad\"; sid:1;)").expect("there is room");
    let stage = format!("s :: signatures({path:?}, alerts=\"/dev/full\")");
    let mut trial =
        Trial::graph(&format!("{stage}; file(\"in\") -> s; s[0] -> json; s[1] -> json")).expect("a graph");
    let frame = tcp(40_000, 80, 0x18, b"bad");
    let (data, records) = crate::trial::lent(&vec![(frame.clone(), crate::trial::whole(&frame)); 200]);
    let error = trial.try_push(Batch::new(&data, &records)).expect_err("there is no room for the alerts");
    assert!(error.to_string().contains("/dev/full"), "{error}");
    assert_eq!((trial.arrived_at(0).len(), trial.arrived_at(1).len()), (200, 0));
}

#[test]
fn thresholds_limit_the_reports_of_an_address() {
    let folder = tempfile::tempdir().expect("there is room");
    let rules = "alert tcp any any -> any any (content:\"x\"; threshold:type limit, track by_src, count 2, seconds 60; sid:1;)";
    let mut trial = trial(folder.path(), rules, "").unwrap_or_else(|why| panic!("{why}"));
    let frames: Vec<Vec<u8>> = (0..6)
        .map(|at| if at % 2 == 0 { tcp(40_000, 80, 0x18, b"x") } else { tcp(80, 40_000, 0x18, b"x") })
        .collect();
    trial.push_frames(&frames);
    trial.finish();
    trial.assert_balanced();
    assert_eq!(trial.data(), frames[..4]);
    assert_eq!(trial.numbers("s", None), [1, 6, 4]);
}

#[test]
fn refused_signatures_are_told_or_are_errors() {
    let folder = tempfile::tempdir().expect("there is room");
    let rules = "alert tcp any any -> any any (content:\"x\"; http_uri; sid:9;)\nalert tcp any any -> any any (sid:1;)";
    let error = trial(folder.path(), rules, ", refused=error").err().expect("a line is refused");
    assert!(error.contains("line 1 (sid 9): the option `http_uri` is not supported"), "{error}");
    assert!(trial(folder.path(), rules, "").is_ok());
    let none = rules.lines().next().expect("a line");
    let error = trial(folder.path(), none, "").err().expect("nothing is left");
    assert!(error.contains("no signature that can be used"), "{error}");
}

/// Neither over bytes that are missing, nor over bytes that waited for a packet.
#[test]
fn contents_are_not_spread_over_holes() {
    let folder = tempfile::tempdir().expect("there is room");
    let rules = "alert tcp any any -> any 80 (content:\"needle\"; sid:1;)";
    let mut trial = trial(folder.path(), rules, ", streams=yes").unwrap_or_else(|why| panic!("{why}"));
    let piece = |seq: u32, payload: &[u8]| {
        let (a, b) = (Host::number(1), Host::number(2));
        let tcp = Tcp { src: 40_000, dst: 80, seq, flags: 0x18, ..Tcp::default() };
        let frame =
            Ethernet::between(&a, &b).ip(&tcp.packet(IpPair::between(&a, &b, IpVersion::V4), payload));
        let meta = crate::trial::whole(&frame);
        (frame, meta)
    };
    // The capture cut four bytes.
    let mut cut = piece(104, b"nee????");
    cut.0.truncate(cut.0.len() - 4);
    // 121 to 123 wait for 118 to 121.
    let packets = [
        piece(100, b"hay "),
        cut,
        piece(111, b"dle hay"),
        piece(121, b"xx"),
        piece(118, b"nee"),
        piece(123, b"dle"),
    ];
    trial.push_all(&packets, 256);
    trial.push_all(&[piece(126, b" a nee"), piece(132, b"dle")], 256);
    trial.finish();
    trial.assert_balanced();
    assert_eq!(trial.data(), [piece(132, b"dle").0]);
}

#[test]
fn contents_may_be_spread_over_packets_of_a_stream() {
    let folder = tempfile::tempdir().expect("there is room");
    let rules = r#"
        alert tcp any any -> any 80 (flow:to_server; content:"GET /ad"; offset:0; depth:7; content:"min"; sid:1;)
        alert tcp any any -> any 80 (content:"needle"; sid:2;)
        alert tcp any any -> any 80 (flow:only_stream; content:"hay"; sid:3;)
    "#;
    let piece = |seq: u32, flags: u8, payload: &[u8]| {
        let (a, b) = (Host::number(1), Host::number(2));
        let tcp = Tcp { src: 40_000, dst: 80, seq, flags, ..Tcp::default() };
        Ethernet::between(&a, &b).ip(&tcp.packet(IpPair::between(&a, &b, IpVersion::V4), payload))
    };
    let frames = [
        piece(99, 0x02, b""),
        piece(100, 0x18, b"GET /a"),
        piece(106, 0x18, b"dm"),
        piece(108, 0x18, b"in HTTP/1.1 h"),
        piece(121, 0x18, b"ay nee"),
        piece(121, 0x18, b"ay nee"),
        piece(127, 0x18, b"dle"),
    ];
    for (streams, wanted) in [("no", vec![]), ("yes", vec![3, 4, 6])] {
        let mut trial = trial(folder.path(), rules, &format!(", streams={streams}"))
            .unwrap_or_else(|why| panic!("{why}"));
        trial.push_frames(&frames);
        trial.finish();
        trial.assert_balanced();
        let wanted: Vec<Vec<u8>> = wanted.into_iter().map(|at: usize| frames[at].clone()).collect();
        assert_eq!(trial.data(), wanted, "streams={streams}");
    }
}
