//! `tapline watch` on files: rules and the scripts of `examples/watch` find what was put into the traffic.

use std::fs;
#[cfg(feature = "webhook")]
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
#[cfg(feature = "webhook")]
use std::net::TcpListener;
use std::path::{Path, PathBuf};
#[cfg(feature = "scripts")]
use std::process::Command;
use std::time::Duration;
#[cfg(feature = "webhook")]
use std::{sync::mpsc, thread};

use serde_json::Value;
use tapline_testkit::capture_file::{EPOCH, ETHERNET, Unit, write_pcap};
use tapline_testkit::traffic::TimedFrame;

use crate::support::scene::scene;
use crate::support::{Finished, run};
#[cfg(feature = "scripts")]
use crate::support::{files_in, packets_of, program_or_skip};

/// The file of examples of this name.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/watch").join(name)
}

/// A file of these frames.
fn capture(folder: &Path, frames: Vec<TimedFrame>) -> PathBuf {
    let path = folder.join("traffic.pcap");
    let mut file = fs::File::create(&path).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, frames.into_iter()).unwrap();
    path
}

/// The lines of a run before results and account; the account balances.
fn lines(finished: &Finished) -> Vec<Value> {
    finished.account();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let mut all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    all.truncate(all.len() - 2);
    all
}

fn watch(traffic: &Path, rules: &Path, folder: &Path) -> Finished {
    let words = ["watch", "--json", "-r"].map(Path::new).into_iter().chain([traffic]);
    run(words.chain([Path::new("--rules"), rules, Path::new("--directory"), folder])).succeeded()
}

/// The messages of a rule or script.
fn messages(lines: &[Value], rule: &str) -> Vec<String> {
    let of_rule = lines.iter().filter(|line| line["rule"] == rule);
    of_rule.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Events of these rules, written into a file, for the scene.
fn told_by(rules: &str) -> (Vec<Value>, Finished) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, rules).unwrap();
    let finished = watch(&capture(folder.path(), scene(Duration::from_secs(1))), &file, folder.path());
    (lines(&finished), finished)
}

#[test]
fn example_rules_find_scan_silence_and_new_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = capture(folder.path(), scene(Duration::from_secs(1)));
    let told = lines(&watch(&traffic, &example("rules.toml"), folder.path()));
    let scan: Vec<&Value> = told.iter().filter(|line| line["rule"] == "port-scan").collect();
    assert_eq!(scan[0]["event"], "raised", "{scan:?}");
    assert_eq!(scan[0]["message"], "10.0.0.5 tried 20 ports, the last one 1019 of 10.0.0.2");
    assert_eq!((&scan[1]["event"], &scan[1]["value"]), (&"cleared".into(), &30.into()));
    assert_eq!(scan.len(), 2);
    let hosts = messages(&told, "new-host");
    let expected = [3, 4, 5, 6, 8, 10, 9].map(|host| format!("10.0.0.{host} was not seen before"));
    assert_eq!(hosts.len(), 7, "{hosts:?}");
    expected.iter().for_each(|host| assert!(hosts.contains(host), "{host}: {hosts:?}"));
    let silence: Vec<&Value> = told.iter().filter(|line| line["rule"] == "silent-server").collect();
    let kinds: Vec<&str> = silence.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["raised", "cleared", "raised", "cleared"]);
}

/// The program calls a receiver with secrets from files in a folder of their own, which it may read while it is confined.
#[cfg(feature = "webhook")]
#[test]
fn a_receiver_gets_its_header_from_a_file() {
    let (folder, secrets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, token) = (secrets.path().join("url"), secrets.path().join("token"));
    fs::write(&url, format!("http://{}/hook-s3cret\n", listener.local_addr().unwrap())).unwrap();
    fs::write(&token, "Bearer s3cret\n").unwrap();
    let rules = folder.path().join("rules.toml");
    let scan = fs::read_to_string(example("rules.toml")).unwrap();
    let with_webhook = scan.replacen("name = \"port-scan\"", "name = \"port-scan\"\nwebhook = \"ops\"", 1);
    let (url, token) = (url.display(), token.display());
    let receiver = format!(
        "[[webhook]]\nname = \"ops\"\nurl = \"file:{url}\"\nformat = \"slack\"\nheaders = {{ Authorization = \"file:{token}\" }}\n"
    );
    fs::write(&rules, [with_webhook, receiver].concat()).unwrap();
    // The scan is raised, and cleared: the second event is refused, however often it is tried.
    let (calls, called) = mpsc::channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let lines = reader.by_ref().lines().map(|line| line.unwrap().to_ascii_lowercase());
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let len = head.iter().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; len.unwrap().parse().unwrap()];
            reader.read_exact(&mut body).unwrap();
            calls.send((head, serde_json::from_slice::<Value>(&body).unwrap())).unwrap();
            let status = if number == 0 { "200 OK" } else { "403 Forbidden" };
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        }
    });
    let traffic = capture(folder.path(), scene(Duration::from_secs(1)));
    let finished = watch(&traffic, &rules, folder.path());
    let calls: Vec<(Vec<String>, Value)> = called.try_iter().collect();
    assert!(calls.len() >= 2, "{calls:?}");
    for (head, _) in &calls {
        assert_eq!(head[0], "post /hook-s3cret http/1.1");
        assert!(head.contains(&"authorization: bearer s3cret".to_owned()), "{head:?}");
    }
    assert_eq!(
        calls[0].1["text"],
        "*port-scan* raised: 10.0.0.5 tried 20 ports, the last one 1019 of 10.0.0.2"
    );
    assert!(finished.stderr.contains("answered 403"), "{}", finished.stderr);
    let spool = fs::read_to_string(folder.path().join("webhook.spool")).unwrap();
    assert!(!finished.stderr.contains("s3cret") && !spool.contains("s3cret"), "{}\n{spool}", finished.stderr);
}

#[cfg(feature = "scripts")]
#[test]
fn each_example_script_finds_its_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = capture(folder.path(), scene(Duration::from_secs(1)));
    let finished = watch(&traffic, &example("scripts.toml"), folder.path());
    let told = lines(&finished);
    assert!(!finished.stderr.contains(".rhai"), "{}", finished.stderr);
    for (script, expected) in [
        ("failed-logins", vec!["10.0.0.3 was refused 3 times by 10.0.0.4"]),
        ("port-scan", vec!["10.0.0.5 tried 20 ports"]),
        ("dns-tunnel", vec!["10.0.0.6 asks for random names below exfil.example"]),
        ("beacon", vec!["10.0.0.8 calls 10.0.0.7 at regular times"]),
        ("certificate", vec!["10.0.0.10:443 has another certificate"]),
        ("silence", vec!["10.0.0.4:21 is silent", "10.0.0.2:80 is silent", "10.0.0.2:80 is back"]),
    ] {
        assert_eq!(messages(&told, script), expected, "{script}");
    }
    let new = messages(&told, "new-host");
    assert_eq!(new, [3, 5, 6, 8, 9].map(|host| format!("10.0.0.{host} is new")));
    let talkers: Vec<&Value> = told.iter().filter(|line| line["recorder"] == "talkers/talkers").collect();
    let [talkers] = talkers.as_slice() else { panic!("one hour: {talkers:?}") };
    // 25 queries of 28 bytes of headers, and 12, 41, 6, 8 and 5 bytes of message.
    assert_eq!(talkers["rows"][0], serde_json::json!(["10.0.0.6", 25 * 100]), "{talkers}");
    let refusals = told.iter().find(|line| line["recorder"] == "failed-logins/refusals").expect("a list");
    assert_eq!(refusals["columns"][4], "answer");
    assert_eq!(refusals["rows"].as_array().unwrap().len(), 3);
    assert_eq!(refusals["rows"][0][4], "530 Login incorrect.");
}

#[cfg(feature = "scripts")]
#[test]
fn a_recording_has_the_seconds_before_its_event() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = capture(folder.path(), scene(Duration::from_secs(1)));
    let told = lines(&watch(&traffic, &example("scripts.toml"), folder.path()));
    let event = told.iter().find(|line| line["rule"] == "failed-logins").expect("an event");
    let file = PathBuf::from(event["recording"].as_str().expect("a file"));
    let packets = packets_of(&file);
    // SYN to the last acknowledgement of the session of hosts 3 and 4: 3 + 5 + 3 segments.
    assert_eq!(packets.len(), 11);
    let times: Vec<u64> = packets.iter().map(|packet| packet.time_ns / 10_000_000 % 1_000_000).collect();
    let begin = packets_of(&traffic)[0].time_ns / 10_000_000 % 1_000_000;
    assert_eq!((times[0] - begin, times[10] - begin), (200, 605), "from two seconds on");
    let scan =
        files_in(folder.path()).into_iter().find(|path| path.display().to_string().contains("port-scan-"));
    assert_eq!(packets_of(&scan.expect("a file")).len(), 30);
    if program_or_skip("a_recording_has_the_seconds_before_its_event", "tshark") {
        let command = ["-n", "-r", file.to_str().unwrap(), "-T", "fields", "-e", "ip.addr"];
        let output = Command::new("tshark").args(command).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().count(), 11, "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.lines().all(|line| line.contains("10.0.0.3") && line.contains("10.0.0.4")), "{text}");
    }
}

#[test]
fn storms_of_events_are_bounded_and_counted() {
    let rule = "[[rule]]\nname = \"all\"\non = \"packet\"\nlimit = \"3/10s\"\n";
    let (told, finished) = told_by(rule);
    // Six periods of ten seconds have packets; the periods begin at multiples of ten seconds.
    assert!((10..=21).contains(&told.len()), "{}", told.len());
    let swallowed: u64 = told.iter().filter_map(|line| line["swallowed"].as_u64()).sum();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let results: Value = serde_json::from_str(text.lines().rev().nth(1).unwrap()).unwrap();
    let row = &results["results"]["watch"][0];
    let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    assert_eq!(number("matched"), scene(Duration::from_secs(1)).len() as u64);
    assert_eq!(number("told") + number("swallowed"), number("matched"));
    assert_eq!(number("told"), told.len() as u64);
    assert!(swallowed <= number("swallowed") && swallowed > 0, "{swallowed}");
}

#[test]
fn commands_get_each_event_on_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("events");
    let rule = format!(
        "[[rule]]\nname = \"scan\"\non = \"flow begun\"\nfilter = \"src host 10.0.0.5\"\nrun = [\"sh\", \"-c\", \"cat >> {}\"]\n",
        to.display()
    );
    let (told, _) = told_by(&rule);
    assert_eq!(told.len(), 30);
    let text = fs::read_to_string(&to).unwrap();
    let got: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(got, told, "one after the other, in their order");
}

#[test]
fn fpl_and_ended_flows_are_sources_too() {
    let rules = "
[[rule]]
name = \"third\"
on = \"packet\"
fpl = \"M[0] += 1; IF (M[0] == 3) THEN RETURN 1; FI RETURN 0;\"

[[rule]]
name = \"long\"
on = \"flow ended\"
filter = \"tcp dst port 21\"
where = [\"duration > 3s\", \"packets > 10\"]

[[rule]]
name = \"short\"
on = \"flow ended\"
filter = \"tcp dst port 21\"
where = [\"duration < 3s\"]
";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, rules).unwrap();
    run(["watch", "check", file.to_str().unwrap()]).succeeded();
    let (told, _) = told_by(rules);
    let names: Vec<&str> = told.iter().map(|line| line["rule"].as_str().unwrap()).collect();
    assert_eq!(names, ["third", "long"]);
    assert_eq!(told[1]["about"]["packets"], 11);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let name = file.to_str().unwrap();
    let rule = |rest: &str| format!("[[rule]]\nname = \"x\"\n{rest}\n");
    let script = "[[script]]\nname = \"s\"\nfile = \"s.rhai\"\n";
    let of_rules = [
        (rule("on = \"packet\"\nfilter = \"prot 80\""), "", "`x`"),
        (rule("on = \"sometimes\""), "", "silence TIME"),
        (rule("on = \"packet\"\nfiltr = \"tcp\""), "", "unknown field `filtr`"),
    ];
    let of_scripts = [
        (script.to_owned(), "fn f(p) {", "s.rhai"),
        (script.to_owned(), "on_packet(\"tcp\", \"f\");", "no fn f with one parameter"),
        (script.to_owned(), "on_packet(\"prot 80\", \"f\"); fn f(p) {}", "`s`"),
        (script.to_owned(), "let x = 0; loop { x += 1; }", "Too many operations"),
        (script.to_owned(), "fn f() {}", "no trigger"),
        (script.to_owned(), "table(\"t\", #{most: 3}); on_timer(\"1s\", \"f\"); fn f() {}", "`most`"),
    ];
    let no_scripts = [(script.to_owned(), "fn f(p) {", "--features scripts")];
    let of_scripts = if cfg!(feature = "scripts") { &of_scripts[..] } else { &no_scripts };
    for (text, code, words) in of_rules.iter().chain(of_scripts) {
        fs::write(&file, text).unwrap();
        fs::write(folder.path().join("s.rhai"), code).unwrap();
        run(["watch", "check", name]).failed_saying(&[*words]);
    }
    for (line, words) in [(["-r", "x"], "--rules"), (["--rules", name], "no packets")] {
        let finished = run(["watch"].into_iter().chain(line));
        assert_eq!(finished.status.code(), Some(2), "a wrong command line");
        assert!(finished.stderr.contains(words), "{}", finished.stderr);
    }
    if cfg!(not(feature = "scripts")) {
        return;
    }
    let right = run(["watch", "check", example("scripts.toml").to_str().unwrap()]).succeeded();
    assert_eq!(String::from_utf8_lossy(&right.stdout), "file OK: 0 rules, 8 scripts\n");
}

#[cfg(feature = "scripts")]
#[test]
fn a_script_that_fails_or_never_ends_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = "[settings]\noperations = 1000\n[[script]]\nname = \"s\"\nfile = \"s.rhai\"\n";
    let script = format!("{rules}[[rule]]\nname = \"r\"\non = \"flow begun\"\nfilter = \"udp\"\n");
    fs::write(&file, script).unwrap();
    let code = "on_packet(\"tcp\", \"f\"); on_packet(\"udp\", \"g\"); fn f(p) { loop {} } fn g(p) { p.nothing.more }";
    fs::write(folder.path().join("s.rhai"), code).unwrap();
    let traffic = capture(folder.path(), scene(Duration::from_secs(1)));
    let finished = watch(&traffic, &file, folder.path());
    assert_eq!(lines(&finished).len(), 2, "the rule goes on");
    assert!(finished.stderr.contains("Too many operations"), "{}", finished.stderr);
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let results: Value = serde_json::from_str(text.lines().rev().nth(1).unwrap()).unwrap();
    let row = &results["results"]["watch"][1];
    assert_eq!(row["faults"], row["matched"], "{row}");
}

/// A missing folder is an error before anything is read; a command that fails is in the table.
#[test]
fn what_follows_events_and_fails_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let traffic = capture(folder.path(), scene(Duration::from_secs(1)));
    let rule = "[[rule]]\nname = \"all\"\non = \"packet\"\nlimit = \"3/1h\"\n";
    fs::write(&file, format!("{rule}record = {{}}\n")).unwrap();
    let none = folder.path().join("none");
    let words = ["watch", "--strict", "-r"].map(Path::new).into_iter().chain([traffic.as_path()]);
    run(words.chain([Path::new("--rules"), &file, Path::new("--directory"), &none]))
        .failed_saying(&["recordings cannot be written", "--directory"]);
    fs::write(&file, format!("{rule}run = [\"sh\", \"-c\", \"exit 3\"]\n")).unwrap();
    let finished = watch(&traffic, &file, folder.path());
    assert_eq!(finished.stderr.matches("sh ended with status 3").count(), 1, "{}", finished.stderr);
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let results: Value = serde_json::from_str(text.lines().rev().nth(1).unwrap()).unwrap();
    let row = &results["results"]["watch"][0];
    assert_eq!((&row["failed"], &row["done"]), (&row["told"], &0.into()), "{row}");
}

/// The seconds around an event stay in the store that its rule names. A second run asks for the same holds, which are
/// there; a rule with another time asks for others.
#[test]
fn an_event_holds_its_time_in_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = capture(folder.path(), scene(Duration::from_secs(1)));
    let store = folder.path().join("store");
    let words = ["record", "--size", "16MiB", "--segment", "4MiB", "-r"].map(Path::new);
    run(words.into_iter().chain([traffic.as_path(), Path::new("--to"), &store])).succeeded();
    let rules = folder.path().join("rules.toml");
    let rule = |store: &Path, before: &str| {
        let hold = format!("{{ store = {store:?}, before = \"{before}\", after = \"3s\", holds = 2 }}");
        format!("[[rule]]\nname = \"web.server\"\non = \"packet\"\nfilter = \"tcp\"\nhold = {hold}\n")
    };
    let holds = || {
        let listed = run([Path::new("store"), Path::new("hold"), &store, Path::new("--json")]).succeeded();
        let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        listed["holds"].as_array().expect("a list").clone()
    };
    for (before, number) in [("2s", 2), ("2s", 2), ("4s", 4)] {
        fs::write(&rules, rule(&store, before)).unwrap();
        let finished = watch(&traffic, &rules, folder.path());
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let results: Value = serde_json::from_str(text.lines().rev().nth(1).unwrap()).unwrap();
        let row = &results["results"]["watch"][0];
        let count = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_eq!((count("done"), count("failed")), (2, 0), "{row}");
        assert!(count("refused") > 0 && count("refused") == count("told") - 2, "{row}");
        assert!(finished.stderr.contains("its number of 2 holds"), "{}", finished.stderr);
        assert_eq!(holds().len(), number, "{:?}", holds());
    }
    let event_ns = i64::try_from(EPOCH.as_nanos()).unwrap();
    let is_first = |hold: &Value| {
        let name = format!("web-server-{event_ns}-");
        hold["name"].as_str().is_some_and(|of_hold| of_hold.starts_with(&name))
    };
    let first: Vec<Value> = holds().into_iter().filter(is_first).collect();
    let mut from: Vec<i64> = first.iter().filter_map(|hold| hold["from_ns"].as_i64()).collect();
    from.sort_unstable();
    assert_eq!(from, [4, 2].map(|seconds| event_ns - seconds * 1_000_000_000), "{first:?}");
    assert!(first.iter().all(|hold| hold["to_ns"] == event_ns + 3_000_000_001), "{first:?}");

    let refused = |words: &[&str]| {
        let line = [Path::new("watch"), Path::new("-r"), &traffic, Path::new("--rules"), &rules];
        run(line).failed_saying(&[&["`web.server` in line 2: hold:"][..], words].concat());
    };
    fs::write(&rules, rule(&folder.path().join("none"), "2s")).unwrap();
    refused(&["is not a store", "tapline record"]);
    fs::write(&rules, rule(&store, "2s")).unwrap();
    fs::remove_dir_all(store.join("holds")).unwrap();
    fs::write(store.join("holds"), "").unwrap();
    refused(&["cannot write to", "store/holds", "name a store"]);
}

/// Nobody writes into these pipes.
#[test]
fn pipes_are_not_read_as_rules_or_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, script) = (folder.path().join("rules.toml"), folder.path().join("s.rhai"));
    tapline_sys::disk::make_pipe(&script).unwrap();
    let check = || run(["watch", "check", rules.to_str().unwrap()]);
    fs::write(&rules, "[[script]]\nname = \"s\"\nfile = \"s.rhai\"\n").unwrap();
    check().failed_saying(&["s.rhai", "pipe"]);
    fs::remove_file(&rules).unwrap();
    tapline_sys::disk::make_pipe(&rules).unwrap();
    check().failed_saying(&["rules.toml", "pipe"]);
}
