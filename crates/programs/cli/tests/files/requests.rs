//! `tapline dns`, `tapline http` and `tapline tls` compared with `tshark -T fields`.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp};

use super::info::{json_lines, named_captures};
use crate::support::*;

/// Requests, the summary of their end, and the account, which balances.
fn requests(command: &str, path: &Path) -> (Vec<Value>, Value) {
    let mut lines = json_lines(&[command, "--json", "-r", path.to_str().expect("text")]);
    assert_eq!(lines.pop().expect("an account")["account"]["balanced"], true);
    let summary = lines.pop().expect("a summary")["summary"].clone();
    (lines, summary)
}

/// Rows of fields.
fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args([
        "-o",
        "http.desegment_body:FALSE",
        "-o",
        "tcp.desegment_tcp_streams:TRUE",
    ]);
    command.args(["-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let done = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Captures with queries and responses at port 53.
const DNS: [&str; 10] = [
    "dce-rpc-mapi.pcap",
    "dns-caa.pcap",
    "dns-dns-binds.pcap",
    "dns-dns_notify2.pcap",
    "dns-dynamic-update.pcap",
    "dns53.pcap",
    "dns-naptr.pcap",
    "dns-spf.pcap",
    "dns-tkey.pcap",
    "dns-txt-multiple.pcap",
];

#[test]
fn dns_has_the_names_and_times_of_tshark() {
    let captures = named_captures("dns_has_the_names_and_times_of_tshark", &DNS, &["tshark"]);
    for path in captures {
        let (lines, summary) = requests("dns", &path);
        let fields = ["dns.id", "dns.qry.name", "dns.flags.rcode", "dns.time"];
        let theirs = tshark(&path, "dns.flags.response == 1 && (udp.port == 53 || tcp.port == 53)", &fields);
        let mut theirs: Vec<(u64, String, Option<i64>)> = theirs
            .iter()
            .map(|row| {
                let id = u64::from_str_radix(row[0].trim_start_matches("0x"), 16).expect("hexadecimal");
                let seconds = row[3].parse::<f64>().ok();
                let name = row[1].split(',').next().unwrap_or_default().to_ascii_lowercase();
                (id, name, seconds.map(|seconds| (seconds * 1e9).round() as i64))
            })
            .collect();
        let answered = lines.iter().filter(|line| line["answered"] == true);
        let mut ours: Vec<(u64, String, Option<i64>)> = answered
            .map(|line| {
                let name = text(&line["query"]).to_ascii_lowercase();
                let name = if name == "." { "<root>".to_owned() } else { name };
                (line["id"].as_u64().expect("a number"), name, line["latency_ns"].as_i64())
            })
            .collect();
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "{}", path.display());
        assert_eq!(
            summary["answered"].as_u64(),
            Some(ours.iter().filter(|one| one.2.is_some()).count() as u64)
        );
    }
}

const HTTP: [&str; 9] = [
    "http-100-continue.pcap",
    "http-byteranges.pcap",
    "http-get-gzip.pcap",
    "http-get-without-fins.pcap",
    "http-http-post-large.pcap",
    "http-pipelined-requests.pcap",
    "http-post.pcap",
    "http-proxy.pcap",
    "http-x-gzip.pcap",
];

#[test]
fn http_has_the_requests_of_tshark() {
    for path in named_captures("http_has_the_requests_of_tshark", &HTTP, &["tshark"]) {
        let (lines, summary) = requests("http", &path);
        let requests =
            tshark(&path, "http.request", &["http.request.method", "http.request.uri", "http.host"]);
        let seen = lines.iter().filter(|line| line["request_seen"] == true);
        let mut ours: Vec<Vec<String>> =
            seen.map(|line| ["method", "target", "host"].map(|key| text(&line[key])).to_vec()).collect();
        let mut theirs = requests;
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{}", path.display());
        let mut statuses: Vec<String> =
            tshark(&path, "http.response && !(http.response.code < 200)", &["http.response.code"]).concat();
        let mut codes: Vec<String> =
            lines.iter().filter_map(|line| Some(line["code"].as_u64()?.to_string())).collect();
        statuses.sort();
        codes.sort();
        assert_eq!(codes, statuses, "{}", path.display());
        assert_eq!(summary["requests"].as_u64(), Some(ours.len() as u64));
    }
}

const TLS: [&str; 10] = [
    "tls-certificate-with-sct.pcap",
    "tls-client-certificate.pcap",
    "tls-dhe.pcap",
    "tls-ecdhe.pcap",
    "tls-google-cert-repeat.pcap",
    "tls-ocsp-stapling-digicert.pcap",
    "tls-ssl.v3.pcap",
    "tls-tls-1.2-handshake-failure.pcap",
    "tls-tls-1.2-stream-keylog.pcap",
    "tls-tls1.2.pcap",
];

#[test]
fn tls_has_the_names_of_tshark() {
    for path in named_captures("tls_has_the_names_of_tshark", &TLS, &["tshark"]) {
        let (lines, _) = requests("tls", &path);
        let mut theirs: Vec<String> =
            tshark(&path, "tls.handshake.type == 1", &["tcp.stream", "tls.handshake.extensions_server_name"])
                .into_iter()
                .map(|row| row.into_iter().nth(1).unwrap_or_default())
                .collect();
        let seen = lines.iter().filter(|line| line["request_seen"] == true);
        let mut ours: Vec<String> = seen.map(|line| text(&line["name"])).collect();
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "{}", path.display());
        let servers = tshark(&path, "tls.handshake.type == 2", &["tcp.stream"]).len();
        assert_eq!(
            lines.iter().filter(|line| line["version"].is_string()).count(),
            servers,
            "{}",
            path.display()
        );
    }
}

/// A query or a response for a name of one label.
fn dns(id: u16, flags: u16, name: &str) -> Vec<u8> {
    let mut message = Vec::new();
    for word in [id, flags, 1, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    message.push(name.len() as u8);
    message.extend(name.as_bytes());
    message.extend([0, 0, 1, 0, 1]);
    message
}

fn datagram(is_client: bool, message: &[u8]) -> Vec<u8> {
    let [client, server] = [1, 2].map(Host::number);
    let (from, to, ports) =
        if is_client { (&client, &server, (4000, 53)) } else { (&server, &client, (53, 4000)) };
    let ip = IpPair::between(from, to, IpVersion::V4);
    Ethernet::between(from, to).ip(&Udp { src: ports.0, dst: ports.1 }.packet(ip, message))
}

fn segment(is_client: bool, seq: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let [client, server] = [1, 2].map(Host::number);
    let (from, to, src, dst) =
        if is_client { (&client, &server, 4000, 53) } else { (&server, &client, 53, 4000) };
    let tcp = Tcp { src, dst, seq, flags, ..Tcp::default() };
    Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), bytes))
}

/// A file of frames, a millisecond apart.
pub(crate) fn write_frames(path: &Path, frames: Vec<Vec<u8>>) {
    let mut file = File::create(path).expect("a file");
    let timed = frames.into_iter().enumerate().map(|(at, frame)| (Duration::from_millis(at as u64), frame));
    write_pcap(&mut file, ETHERNET, Unit::Microseconds, timed).expect("there is room");
}

/// A block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let len = (12 + body.len() + padding.len()) as u32;
    [&kind.to_le_bytes()[..], &len.to_le_bytes(), body, &padding, &len.to_le_bytes()].concat()
}

/// A pcapng file of frames in simple packet blocks, which have no time.
pub(crate) fn write_untimed(path: &Path, frames: &[Vec<u8>]) {
    let section = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let mut file = [block(0x0a0d_0d0a, &section), block(1, &[1, 0, 0, 0, 0, 0, 4, 0])].concat();
    for frame in frames {
        file.extend(block(3, &[&(frame.len() as u32).to_le_bytes()[..], frame].concat()));
    }
    std::fs::write(path, file).expect("there is room");
}

/// A time that is not known is null in JSON, and no time of 1970 in text.
#[test]
fn packets_without_a_time_have_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("untimed.pcapng");
    let [client, server] = [1, 2].map(Host::number);
    let segment = |is_client: bool, seq: u32, ack: u32, text: &str| {
        let (from, to, ports) =
            if is_client { (&client, &server, (4000, 80)) } else { (&server, &client, (80, 4000)) };
        let tcp = Tcp { src: ports.0, dst: ports.1, seq, ack, flags: 16, ..Tcp::default() };
        let ip = IpPair::between(from, to, IpVersion::V4);
        Ethernet::between(from, to).ip(&tcp.packet(ip, text.as_bytes()))
    };
    let (request, answer) =
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n");
    let frames = [
        datagram(true, &dns(1, 0x0100, "good")),
        datagram(false, &dns(1, 0x8180, "good")),
        datagram(true, &dns(2, 0x0100, "silent")),
        segment(true, 1, 1, request),
        segment(false, 1, 1 + request.len() as u32, answer),
    ];
    write_untimed(&path, &frames);
    let name = path.to_str().expect("text");
    for (command, objects) in [
        (&["grep", "404"][..], 1),
        (&["grep", "--stream", "404"], 1),
        (&["follow"], 2),
        (&["dns"], 2),
        (&["http"], 1),
    ] {
        let lines = json_lines(&[command, &["--json", "-r", name]].concat());
        let timed: Vec<&Value> = lines.iter().filter(|line| line.get("time").is_some()).collect();
        assert!(
            timed.len() == objects && timed.iter().all(|line| line["time"].is_null()),
            "{command:?}: {lines:?}"
        );
        assert!(timed.iter().all(|line| line["latency_ns"].is_null()), "{command:?}: {lines:?}");
        if command.len() == 1 || command.contains(&"--stream") {
            let text = run([command, &["-r", name]].concat()).succeeded();
            assert!(String::from_utf8_lossy(&text.stdout).contains("no time"), "{command:?}");
        }
    }
}

/// A flow whose first packet has no time begins at none; a later packet counts at the time of those before it.
#[test]
fn flows_without_a_time_have_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("untimed.pcapng");
    let name = path.to_str().expect("text");
    let frame = datagram(true, &dns(1, 0x0100, "good"));
    write_untimed(&path, &[frame.clone(), frame.clone()]);
    let probe = |more: &[&str]| {
        let run = run([&["probe", "-r", name][..], more].concat()).succeeded();
        String::from_utf8_lossy(&run.stdout).into_owned()
    };
    let first = |text: &str| -> Value {
        serde_json::from_str(text.lines().next().expect("a line")).expect("an object")
    };
    let flow = first(&probe(&["--json"]))["results"]["top"][0].clone();
    assert_eq!((&flow["packets"], &flow["first_ns"], &flow["ms"]), (&2.into(), &Value::Null, &Value::Null));
    let text = probe(&[]);
    assert!(text.contains("no time") && !text.contains("1970"), "{text}");
    let record = first(&probe(&["--export", "json:-"]));
    assert_eq!((record.get("flowStartNanoseconds"), record.get("flowEndNanoseconds")), (None, None));
    assert_eq!(record["packetDeltaCount"], 2);
    let table = probe(&["--export", "csv:-"]);
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with(",,10.")), "{table}");

    // A packet with a time, and then one without.
    let (len, time) = ((frame.len() as u32).to_le_bytes(), 1_700_000_000_000_000_u64);
    let [high, low] = [(time >> 32) as u32, time as u32].map(u32::to_le_bytes);
    let timed = block(6, &[&[0; 4][..], &high, &low, &len, &len, &frame].concat());
    let untimed = block(3, &[&len[..], &frame].concat());
    write_untimed(&path, &[]);
    std::fs::write(&path, [std::fs::read(&path).expect("it is there"), timed, untimed].concat())
        .expect("room");
    let results = first(&probe(&["--json"]))["results"].clone();
    let flow = &results["top"][0];
    assert_eq!(
        (&flow["packets"], &flow["ms"], &results["meter"][0]["late"]),
        (&2.into(), &0.into(), &0.into())
    );
    assert_eq!(flow["first_ns"], 1_700_000_000_000_000_000_u64);
}

#[test]
fn failures_and_unanswered_queries_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let over_tcp = |message: &[u8]| [&(message.len() as u16).to_be_bytes(), message].concat();
    let query = over_tcp(&dns(9, 0x0100, "tcp"));
    let path = folder.path().join("requests.pcap");
    write_frames(
        &path,
        vec![
            datagram(true, &dns(1, 0x0100, "good")),
            datagram(true, &dns(2, 0x0100, "bad")),
            datagram(true, &dns(2, 0x0100, "bad")),
            datagram(false, &dns(1, 0x8180, "good")),
            datagram(false, &dns(2, 0x8183, "BAD")),
            datagram(true, &dns(3, 0x0100, "silent")),
            datagram(false, &dns(4, 0x8180, "unasked")),
            segment(true, 0, 0x02, b""),
            segment(true, 1, 0x10, &query[..5]),
            segment(true, 6, 0x10, &query[5..]),
            segment(false, 1, 0x10, &over_tcp(&dns(9, 0x8180, "tcp"))),
        ],
    );
    let (lines, summary) = requests("dns", &path);
    let row = |line: &Value| (text(&line["query"]), text(&line["status"]), line["latency_ns"].as_i64());
    let expected = [
        ("good", "NOERROR, 0 records", Some(3_000_000)),
        ("bad", "NXDOMAIN", Some(3_000_000)),
        ("unasked", "NOERROR, 0 records", None),
        ("tcp", "NOERROR, 0 records", Some(1_000_000)),
        ("silent", "no answer", None),
    ];
    let expected = expected.map(|(name, status, latency)| (name.to_owned(), status.to_owned(), latency));
    assert_eq!(lines.iter().map(row).collect::<Vec<_>>(), expected);
    let count = |name: &str| summary[name].as_u64().expect("a number");
    assert_eq!(["requests", "answered", "failed", "unanswered"].map(count), [4, 3, 1, 1]);
    assert_eq!(["answers_without_request", "queries_were_repeated"].map(count), [1, 1]);
    assert_eq!(summary["failures"], serde_json::json!({"NXDOMAIN": 1, "no answer": 1}));
    let done = run(["dns", "-r", path.to_str().expect("text")]).succeeded();
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    for words in
        ["A bad  NXDOMAIN  3.000 ms\n", "4 requests: 2 answered, 1 failed, 1 without an answer", "slowest\n"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}
