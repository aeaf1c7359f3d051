//! The server, asked over a socket: pages go on while its history waits, downloads say how they ended.
//!
//! ```text
//! this test --ViewFile--> Server: feed, history <--HTTP-- this test
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Socket, Type};
use tapline_meters::RunFolder;
use tapline_pages::{EventFile, Feed, Rights};
use tapline_view::{Amount, Dimension, Key, Row, Second, Table, Tables, ViewFile};
use tapline_web::{
    Access, History, HistoryLimits, PacketAnswer, PacketRequest, PacketSource, Server, ServerSettings,
};

use crate::history::{lock, minutes};

/// A server that is ended with its test.
pub(crate) struct Served {
    session: String,
    address: SocketAddr,
    cookie: String,
    stop: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(folder: &Path, packets: Option<Arc<dyn PacketSource>>, history: Option<&Path>) -> Served {
        Served::with_events(folder, (packets, history), None, Rights::Packets)
    }

    pub(crate) fn with_events(
        folder: &Path,
        (packets, history): (Option<Arc<dyn PacketSource>>, Option<&Path>),
        events: Option<&Path>,
        rights: Rights,
    ) -> Served {
        let settings =
            ServerSettings { listen: ([127, 0, 0, 1], 0).into(), is_behind_proxy: false, certificate: None };
        let access = Access::new(rights, &[], false).expect("a token");
        let token = access.token().to_owned();
        let feed = Feed::of_folder(RunFolder::of(folder));
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let tell = Box::new(move |line: &str| lines.lock().expect("no panic").push(line.to_owned()));
        let mut server = Server::bind(&settings, access, feed, packets, tell).expect("a server");
        if let Some(path) = history {
            let history = History::open(path, HistoryLimits::default()).expect("a history");
            server.keep(history).expect("it is asked, too");
        }
        if let Some(path) = events {
            server.watch(EventFile::open(path).expect("a file of events"));
        }
        let (address, stop) = (server.address().expect("an address"), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || server.run(&stopped).expect("it serves")));
        let mut served = Served { session: String::new(), address, cookie: String::new(), stop, log, thread };
        let mut session = served.get("/api/session", &format!("Authorization: Bearer {token}\r\n"));
        let mut line = String::new();
        while session.read_line(&mut line).expect("a head") > 2 {
            if let Some(cookie) = line.strip_prefix("set-cookie: ") {
                served.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
            }
            line.clear();
        }
        session.read_to_string(&mut served.session).expect("a body");
        served
    }

    /// The answer to the token.
    pub(crate) fn session(&self) -> serde_json::Value {
        serde_json::from_str(&self.session).expect("JSON")
    }

    fn get(&self, path: &str, head: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let (host, cookie) = (self.address, &self.cookie);
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n{head}\r\n"
        );
        stream.write_all(text.as_bytes()).expect("it is sent");
        BufReader::new(stream)
    }

    /// Sends a request through a small window, for an answer that is not read.
    fn unread(&self, path: &str) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small window");
        socket.connect(&self.address.into()).expect("it listens");
        let mut stream = TcpStream::from(socket);
        let text =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n", self.address, self.cookie);
        stream.write_all(text.as_bytes()).expect("it is sent");
        stream
    }

    /// An answer with its head.
    pub(crate) fn text(&self, path: &str) -> String {
        let mut text = String::new();
        self.get(path, "").read_to_string(&mut text).expect("an answer");
        text
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }

    fn end(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The present minute, in seconds since 1970.
pub(crate) fn this_minute() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() / 60 * 60
}

/// A second of 9 packets that ends then.
fn second(end: u64) -> (Second, Tables) {
    let amount = Amount { packets: 9, bytes: 900 };
    let table =
        Table { rows: vec![Row { key: Key::name("a"), amount, ..Row::default() }], ..Table::default() };
    let (end_ns, len_ns) = (end * 1_000_000_000, 1_000_000_000);
    let second = Second { end_ns, len_ns, metered: 9, flow_bytes: 900, lost_ring: 1, ..Second::default() };
    (second, std::array::from_fn(|_| table.clone()))
}

#[test]
fn a_history_that_waits_holds_up_no_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let view = ViewFile::create_in(&RunFolder::of(folder.path()), "probe").expect("a view");
    view.set_live();
    let worker = view.join();
    let mut served = Served::start(folder.path(), None, Some(&path));
    let begin = this_minute() - 1200;
    let is_shown = |number: u64| served.text("/api/seconds").contains(&format!("{{\"number\":{number},"));
    let publish = |number: u64| {
        let (second, tables) = second(begin + 60 * number + 1);
        view.contribute(worker, &second, &tables);
        wait_for("the page shows it", || is_shown(number));
    };
    (0..3).for_each(publish);
    let other = lock(&path);
    let locked = Instant::now();
    (3..8).for_each(publish);
    let asked = format!("/api/history?from={begin}&to={}&dimension=name", begin + 1200);
    assert!(served.text(&asked).contains("\"tier\":\"minute\""), "the past is answered, too");
    // Each of the five writes waits 5 s for the lock.
    let held = locked.elapsed();
    assert!(held < Duration::from_secs(20), "nothing waited for the lock");
    drop(other);
    served.end();
    assert_eq!(minutes(&path, begin, begin + 1200), 8);
    let history = History::open_to_read(&path).expect("a history");
    let answer = history.greatest(Dimension::Name, begin, begin + 1200, 10).expect("an answer");
    assert_eq!((answer.packets(), answer.table.rows[0].amount.packets), ((80, 8), 72));
    // On a machine so slow that a write gave up, the log has that, and that all was kept again.
    let log = served.log();
    assert!(log.is_empty() || held >= Duration::from_secs(5), "{log:?}");
}

/// Browsers that open all streams there are and read none: each gives its place back.
#[test]
fn a_stream_that_is_not_read_is_ended() {
    const STREAMS: usize = 32;
    let folder = tempfile::tempdir().expect("a folder");
    let view = ViewFile::create_in(&RunFolder::of(folder.path()), "probe").expect("a view");
    let worker = view.join();
    let served = Served::start(folder.path(), None, None);
    let streams: Vec<TcpStream> =
        (0..STREAMS).map(|_| served.unread("/api/events?page=hosts&rows=256")).collect();
    let is_room = || {
        let mut head = String::new();
        served.get("/api/events", "").read_line(&mut head).expect("an answer");
        head.contains("200")
    };
    wait_for("all places are taken", || !is_room());
    // Less than the megabytes that the kernel would take of its own accord.
    for number in 0..8 {
        let (second, mut tables) = second(this_minute() + number);
        let amount = Amount { packets: 9, bytes: 900 };
        let row = |at: u32| Row { key: Key::host(Ipv4Addr::from(at << 8).into()), amount, ..Row::default() };
        tables[0].rows = (1..=256).rev().map(row).collect();
        view.contribute(worker, &second, &tables);
        let shown = format!("{{\"number\":{number},");
        wait_for("the page shows it", || served.text("/api/seconds").contains(&shown));
    }
    let begin = Instant::now();
    while !is_room() {
        assert!(begin.elapsed() < Duration::from_secs(60), "all places are taken still");
        thread::sleep(Duration::from_millis(100));
    }
    drop(streams);
}

/// RFC 9110, 9.3.2 and 15.5.6; RFC 9112, 3.2.
#[test]
fn methods_and_hosts_are_answered_by_the_rules() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(folder.path(), None, None);
    let host = format!("Host: {}\r\n", served.address);
    for (line, head, status, allowed) in [
        ("HEAD /", "", 200, None),
        ("POST /", "", 405, Some("allow: GET, HEAD\r\n")),
        ("HEAD /api/page", "", 405, Some("allow: GET\r\n")),
        ("GET /", host.as_str(), 400, None),
        ("GET http://evil.example/", "", 400, None),
    ] {
        let mut stream = TcpStream::connect(served.address).expect("it listens");
        let text = format!("{line} HTTP/1.1\r\n{host}{head}Connection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        assert!(allowed.is_none_or(|allowed| answer.contains(allowed)), "{line}: {answer}");
        if line == "HEAD /" {
            assert!(answer.ends_with("\r\n\r\n") && !answer.contains("content-length: 0"), "{answer}");
        }
    }
}

/// A capture file of yesterday together with a history of live interfaces.
#[test]
fn seconds_of_a_file_are_not_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let view = ViewFile::create_in(&RunFolder::of(folder.path()), "probe -r yesterday.pcap").expect("a view");
    let worker = view.join();
    let mut served = Served::start(folder.path(), None, Some(&path));
    let begin = this_minute() - 86_400;
    for number in 0..3 {
        let (second, tables) = second(begin + 60 * number + 1);
        view.contribute(worker, &second, &tables);
        let shown = format!("{{\"number\":{number},");
        wait_for("the page shows it", || served.text("/api/seconds").contains(&shown));
    }
    served.end();
    assert_eq!(minutes(&path, begin, begin + 600), 0);
    let log = served.log();
    assert!(log.len() == 1 && log[0].contains("reads no live interface"), "{log:?}");
}

/// Captures of a daemon that starts after the page.
#[test]
fn sources_of_packets_may_come_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let later = Arc::new(Later::default());
    let served = Served::start(folder.path(), Some(later.clone()), None);
    let ask = || served.text("/api/packets?from=1&to=2");
    assert!(
        ask().contains("no packets are available")
            && served.text("/api/sources").contains("{\"sources\":[]}"),
        "none yet"
    );
    later.0.store(true, Relaxed);
    assert!(ask().starts_with("HTTP/1.1 200 OK"), "it is there now");
    assert!(served.text("/api/sources").contains("{\"sources\":[\"tap:office\"]}"));
}

/// A flow of a host of which a client asked by name, and this host's part of it.
fn second_of_a_server(end: u64) -> (Second, Tables) {
    let address = |host: [u8; 4]| Key::host(host.into()).0;
    let ([a, b, ..], [c, d, ..]) = (address([10, 0, 0, 9]), address([10, 0, 0, 1]));
    let key = Key([a, b, c, d, 6 << 32 | 40_000 << 16 | 443, 0, 0, 0]);
    let (amount, first) = (Amount { packets: 9, bytes: 900 }, Amount { packets: 4, bytes: 400 });
    let flow = Row { key, name: Key::name("tls shop.example"), amount, first, flows: 1, ..Row::default() };
    let host = |host: [u8; 4], amount| Table {
        rows: vec![Row { key: Key::host(host.into()), amount, ..Row::default() }],
        ..Table::default()
    };
    let (second, _) = second(end);
    let tables = Dimension::ALL.map(|dimension| match dimension {
        Dimension::Flow => Table { rows: vec![flow], ..Table::default() },
        Dimension::HostIn => host([10, 0, 0, 1], first),
        Dimension::HostOut => host([10, 0, 0, 1], amount.less(first)),
        _ => Table::default(),
    });
    (Second { sent: amount.less(first), received: first, ..second }, tables)
}

#[test]
fn a_host_has_names_directions_and_a_past() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let view = ViewFile::create_in(&RunFolder::of(folder.path()), "probe").expect("a view");
    view.set_live();
    view.set_own(&[[10, 0, 0, 1].into()]);
    let worker = view.join();
    let mut served = Served::start(folder.path(), None, Some(&path));
    let begin = this_minute() - 600;
    for number in 0..3 {
        let (second, tables) = second_of_a_server(begin + 60 * number + 1);
        view.contribute(worker, &second, &tables);
        let shown = format!("{{\"number\":{number},");
        wait_for("the page shows it", || served.text("/api/seconds").contains(&shown));
    }
    let page = served.text("/api/page?page=hosts&window=1");
    for part in [
        "\"own\":[\"10.0.0.1\"]",
        "\"sent\":[5,500],\"received\":[4,400]",
        "\"names\":{\"10.0.0.1\":\"shop.example\"}",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let host = served.text("/api/page?page=hosts&host=10.0.0.1");
    assert!(host.contains("\"names\":[\"shop.example\"],\"is_own\":true"), "{host}");
    // Bare words are a filter, and the numbers follow it.
    let fitting = served.text("/api/page?filter=10.0.0.9+443&window=1");
    let part = "\"read_as\":\"host 10.0.0.9 and port 443\",\"second\":{\"amount\":[9,900],\"sent\":[5,500],\"received\":[4,400],\"flows\":1";
    assert!(fitting.contains(part), "{fitting}");
    let series = served.text("/api/seconds?filter=port+25");
    assert!(
        series.contains("\"bits\":[0.0,0.0,0.0]") && series.contains("\"in_bits\":[0.0,0.0,0.0]"),
        "{series}"
    );
    let wrong = served.text("/api/page?filter=tcp+prot+80");
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("^^^^"), "{wrong}");
    let asked = format!("/api/host?host=10.0.0.1&from={begin}&to={}", begin + 600);
    wait_for("two minutes are kept", || {
        served.text(&asked).contains(&format!("\"seen\":[{begin},{}]", begin + 120))
    });
    let past = served.text(&asked);
    assert!(
        past.contains("\"in_bits\":[3200.0,3200.0]") && past.contains("\"out_packets\":[5.0,5.0]"),
        "{past}"
    );
    served.end();
    let served = Served::with_events(folder.path(), (None, Some(&path)), None, Rights::Look);
    wait_for("the page shows it", || served.text("/api/page").contains("\"rights\":\"look\",\"number\":2"));
    let page = served.text("/api/page?page=hosts&host=10.0.0.1");
    assert!(!page.contains("shop.example") && page.contains("\"names\":[]"), "{page}");
    assert!(served.text(&asked).contains("\"station\":null"), "no device either");
    assert!(served.text("/api/sources").contains("[]"));
}

/// A source that is there once this is set.
#[derive(Default)]
struct Later(AtomicBool);

impl PacketSource for Later {
    fn sources(&self) -> Vec<String> {
        if self.0.load(Relaxed) { vec!["tap:office".to_owned()] } else { Vec::new() }
    }

    fn list(&self, _: &PacketRequest) -> Result<PacketAnswer, String> {
        Ok(PacketAnswer::default())
    }

    fn write(&self, _: &PacketRequest, _: &mut dyn Write) -> Result<PacketAnswer, String> {
        Ok(PacketAnswer::default())
    }
}

/// A source of files of one megabyte; `broken` fails at the end, `cut` says that it is cut.
struct Megabyte;

impl PacketSource for Megabyte {
    fn sources(&self) -> Vec<String> {
        ["whole", "cut", "broken", "gone"].map(str::to_owned).into()
    }

    fn list(&self, _: &PacketRequest) -> Result<PacketAnswer, String> {
        Ok(PacketAnswer::default())
    }

    fn write(&self, request: &PacketRequest, to: &mut dyn Write) -> Result<PacketAnswer, String> {
        for _ in 0..128 {
            to.write_all(&[7; 8192]).map_err(|error| error.to_string())?;
        }
        let answer = PacketAnswer { packets: 128, ..PacketAnswer::default() };
        match request.source.as_str() {
            "whole" => Ok(answer),
            "cut" => {
                Ok(PacketAnswer { is_cut: true, notes: vec!["3 packets were overwritten".into()], ..answer })
            }
            "broken" => Err("the disk failed".into()),
            _ => panic!("a fault of ours"),
        }
    }
}

/// A browser that reads slowly, and the log's message about each end.
#[test]
fn a_download_tells_how_it_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(folder.path(), Some(Arc::new(Megabyte)), None);
    for (source, is_whole, told) in [
        ("whole", true, Some("128 packets, all there are")),
        ("cut", true, Some("128 packets, cut: more may be there; 3 packets were overwritten")),
        ("broken", false, Some("the disk failed")),
        ("gone", false, None),
    ] {
        let mut answer = served.get(&format!("/api/packets.pcapng?source={source}&from=1&to=2"), "");
        let (mut bytes, mut part) = (Vec::new(), [0; 32_768]);
        loop {
            match answer.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(len) => bytes.extend_from_slice(&part[..len]),
            }
            thread::sleep(Duration::from_millis(2));
        }
        assert!(bytes.starts_with(b"HTTP/1.1 200 OK"), "{source}");
        assert_eq!(bytes.ends_with(b"\r\n0\r\n\r\n"), is_whole, "{source} has the end of its body");
        if let Some(told) = told {
            let line = format!("download from {source}: {told}");
            wait_for("the log has it", || served.log().contains(&line));
        }
    }
}

/// A line as `tapline watch --json` writes it, of an event at this second since 1970.
fn event(second: u64, rule: &str) -> String {
    let time = day_time(second);
    format!(
        "{{\"time\":\"{time}\",\"rule\":\"{rule}\",\"event\":\"raised\",\"message\":\"to name.example\"}}\n"
    )
}

/// RFC 3339 of a second on 2025-11-25.
fn day_time(second: u64) -> String {
    format!("2025-11-25T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// 2025-11-25, in seconds since 1970: no event of the future is kept.
const DAY: u64 = 1_764_028_800;

#[test]
fn events_of_rules_are_shown_by_rights_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let (history, events) = (folder.path().join("history.sqlite"), folder.path().join("events"));
    let table = format!(
        "{{\"recorder\":\"t/top\",\"kind\":\"top\",\"from\":\"{}\",\"to\":\"{}\",\"columns\":[\"key\"],\"rows\":[[\"a\"]]}}\n",
        day_time(0),
        day_time(3600)
    );
    std::fs::write(&events, event(10, "first") + "no event\n" + &table).expect("room");
    let path = Some(history.as_path());
    let mut served = Served::with_events(folder.path(), (None, path), Some(&events), Rights::Packets);
    wait_for("the first event", || served.text("/api/watched").contains("\"rule\":\"first\""));
    let mut file = std::fs::OpenOptions::new().append(true).open(&events).expect("it is there");
    file.write_all(event(4000, "second").as_bytes()).expect("room");
    wait_for("one that came later", || served.text("/api/watched").contains("\"rule\":\"second\""));
    let told = served.text("/api/watched");
    assert!(told.contains("to name.example") && told.contains("\"recorder\":\"t/top\""), "{told}");
    assert!(told.find("second") < told.find("first"), "the latest first: {told}");
    let alone = served.text("/api/watched?tables=0&most=1");
    assert!(alone.contains("\"is_cut\":true") && !alone.contains("t/top"), "{alone}");
    assert!(served.log().iter().any(|line| line.contains("left out")), "{:?}", served.log());
    // Of a time in the past the history tells, and tells it after a restart, once.
    let hour = format!("/api/watched?from={DAY}&to={}", DAY + 3600);
    wait_for("it is kept", || served.text(&hour).contains("t/top"));
    served.end();
    let served = Served::with_events(folder.path(), (None, path), Some(&events), Rights::Look);
    // Lines are kept in their order: with the third, those that were read again are in the history.
    let third = event(20, "third").replace("\"message\"", "\"swallowed\":7,\"message\"");
    file.write_all(third.as_bytes()).expect("room");
    wait_for("the history has it", || served.text(&hour).contains("\"rule\":\"third\""));
    let told = served.text(&hour);
    let count = |rule: &str| told.matches(&format!("\"rule\":\"{rule}\"")).count();
    assert_eq!((count("first"), count("second"), count("third")), (1, 0, 1), "a line is kept once: {told}");
    assert!(told.contains("\"is_cut\":false") && told.contains("\"tables\":[]"), "{told}");
    let cut = served.text(&format!("{hour}&most=1"));
    assert!(cut.contains("\"is_cut\":true") && !cut.contains("\"rule\":\"first\""), "the latest: {cut}");
    wait_for("the latest have it", || served.text("/api/watched").contains("\"rule\":\"third\""));
    for path in [hour.as_str(), "/api/watched"] {
        let told = served.text(path);
        assert!(
            !told.contains("name.example") && !told.contains("t/top") && !told.contains("\"swallowed\":7"),
            "no names without the right: {told}"
        );
    }
}

#[test]
fn without_a_file_of_events_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = Served::start(folder.path(), None, None);
    let told = served.text("/api/watched");
    assert!(told.starts_with("HTTP/1.1 404") && told.contains("--events"), "{told}");
}
