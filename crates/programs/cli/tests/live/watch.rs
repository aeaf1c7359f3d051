//! `tapline watch` on a virtual link: a live run reports the same events as a run over its packets in a file, and rules
//! change while it runs.

use std::fs;
use std::path::Path;
#[cfg(feature = "scripts")]
use std::path::PathBuf;
#[cfg(feature = "scripts")]
use std::time::Duration;

use serde_json::Value;
#[cfg(feature = "scripts")]
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};
#[cfg(feature = "scripts")]
use tapline_testkit::netns::NEAR;
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

#[cfg(feature = "scripts")]
use crate::support::scene::scene;
use crate::support::{Live, tapline, wait_for};
#[cfg(feature = "scripts")]
use crate::support::{files_in, run};

#[cfg(feature = "scripts")]
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/watch")
}

/// Lines of JSON of a rule, script or recorder.
fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[cfg(feature = "scripts")]
/// The eight scripts, with times that fit a scene whose unit is a tenth of a second. Recorders end many periods in it,
/// whenever it begins.
fn quick_scripts(folder: &Path) {
    for file in files_in(&examples()) {
        let text = fs::read_to_string(&file).unwrap();
        let text = text.replace(">= 30.0", ">= 3.0").replace("every: \"1h\"", "every: \"1s\"");
        fs::write(folder.join(file.file_name().unwrap()), text).unwrap();
    }
}

#[cfg(feature = "scripts")]
/// The graph of a run whose packets are recorded next to the rules: both see the same packets with the same times.
fn graph(source: &str, folder: &Path, part: &str) -> String {
    let name = |name: String| format!("{:?}", folder.join(name).display().to_string());
    let directory = folder.join(part);
    fs::create_dir(&directory).unwrap();
    format!(
        "{source} -> all :: tee; all -> watch({}, to={}, json=yes, directory={:?}); all -> record({})",
        name("scripts.toml".to_owned()),
        name(format!("{part}.json")),
        directory.display().to_string(),
        name(format!("{part}.pcapng")),
    )
}

#[cfg(feature = "scripts")]
#[test]
fn live_and_file_tell_the_same() {
    if !namespaces_or_skip("live_and_file_tell_the_same") {
        return;
    }
    let (namespace, folder) = (Namespace::with_pair("watch").unwrap(), tempfile::tempdir().unwrap());
    quick_scripts(folder.path());
    let traffic = folder.path().join("traffic.pcap");
    let mut file = fs::File::create(&traffic).unwrap();
    let unit = Duration::from_millis(100);
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, scene(unit).into_iter()).unwrap();
    let device = format!("device({FAR})");
    let text = graph(&device, folder.path(), "live");
    let live =
        Live::start_command(&namespace, 1, &mut tapline(["run", "--netns", namespace.name(), "-e", &text]));
    let sent = ["replay", traffic.to_str().unwrap(), "--netns", namespace.name(), "-i", NEAR];
    run(sent).succeeded();
    live.interrupt().succeeded();
    let recorded = format!("file({:?})", folder.path().join("live.pcapng").display().to_string());
    run(["run", "-e", &graph(&recorded, folder.path(), "file")]).succeeded();

    let last =
        |events: &[Value]| events.iter().filter_map(|line| line["time"].as_str()).max().map(str::to_owned);
    let (live, file) = (events(&folder.path().join("live.json")), events(&folder.path().join("file.json")));
    // Live, time goes on behind the last packet; a file ends with it, also with the periods of its recorders.
    let end = last(&file).expect("events");
    let of = |lines: &[Value], part: &str| -> Vec<String> {
        let time = |line: &Value| line["time"].as_str().or(line["to"].as_str()).expect("a time").to_owned();
        let told = lines.iter().filter(|line| time(line) <= end);
        told.map(|line| line.to_string().replace(&format!("/{part}/"), "/")).collect()
    };
    assert_eq!(of(&live, "live"), of(&file, "file"));
    for script in ["failed-logins", "port-scan", "dns-tunnel", "certificate", "new-host"] {
        assert!(file.iter().any(|line| line["rule"] == script), "{script} told nothing");
    }
    for recorder in ["talkers/talkers", "failed-logins/refusals", "certificate/certificates"] {
        assert!(file.iter().any(|line| line["recorder"] == recorder), "{recorder} recorded nothing");
    }
    let names = |part: &str| -> Vec<_> {
        let files = files_in(&folder.path().join(part));
        files.iter().map(|path| (path.file_name().unwrap().to_owned(), packets(path))).collect()
    };
    assert_eq!(names("live"), names("file"));
    assert!(names("file").len() >= 2, "log-ins and the scan are recorded");
}

#[cfg(feature = "scripts")]
/// The packets of a file: time and bytes.
fn packets(path: &Path) -> Vec<(u64, Vec<u8>)> {
    crate::support::packets_of(path).into_iter().map(|packet| (packet.time_ns, packet.data)).collect()
}

#[test]
fn rules_are_read_again_without_loss() {
    if !namespaces_or_skip("rules_are_read_again_without_loss") {
        return;
    }
    let (namespace, folder) = (Namespace::with_pair("reload").unwrap(), tempfile::tempdir().unwrap());
    let (rules, told) = (folder.path().join("rules.toml"), folder.path().join("events"));
    let sum = "[[rule]]\nname = \"sum\"\non = \"packet\"\nfilter = \"udp dst port 7\"\nabove = 15\nbelow = 0\nwindow = \"1h\"\n";
    let other =
        "[[rule]]\nname = \"other\"\non = \"packet\"\nfilter = \"udp dst port 7\"\nlimit = \"1/1h\"\n";
    fs::write(&rules, sum).unwrap();
    let words = ["watch", "--json", "--netns", namespace.name(), "-i", FAR, "--rules"];
    let mut command = tapline(words);
    let said = folder.path().join("said");
    command.arg(&rules).arg("--events").arg(&told).arg("--directory").arg(folder.path());
    command.stderr(fs::File::create(&said).unwrap());
    let live = Live::start_command(&namespace, 1, &mut command);
    let mut sender = Sender::near(&namespace).unwrap();
    let (one, two) = (Host::number(1), Host::number(2));
    let ips = IpPair::between(&one, &two, IpVersion::V4);
    let frame = Ethernet::between(&one, &two).ip(&Udp { src: 9, dst: 7 }.packet(ips, b"hello"));
    sender.send(std::slice::from_ref(&frame), 10, Pace::Full).unwrap();
    wait_for("the rules to be read", || live.has_thread("rules"));
    // A mistake leaves the rules; then one more rule comes, and `sum` goes on with its ten packets.
    fs::write(&rules, "[[rule]]\nname = 3\n").unwrap();
    live.signal("HUP");
    let has_said = |words: &str| fs::read_to_string(&said).unwrap().contains(words);
    wait_for("the mistake to be told", || has_said("the rules before stay"));
    fs::write(&rules, format!("{other}{sum}")).unwrap();
    live.signal("HUP");
    let mut sent = 10;
    wait_for("the new rule", || {
        sender.send(std::slice::from_ref(&frame), 1, Pace::Full).unwrap();
        sent += 1;
        events(&told).iter().any(|line| line["rule"] == "other")
    });
    while sent < 20 {
        sender.send(std::slice::from_ref(&frame), 1, Pace::Full).unwrap();
        sent += 1;
    }
    let finished = live.interrupt().succeeded();
    let account = finished.account();
    assert_eq!((account.ring("dropped"), account.ring("received")), (0, sent));
    let raised: Vec<u64> = events(&told)
        .iter()
        .filter(|line| line["rule"] == "sum" && line["event"] == "raised")
        .map(|line| line["value"].as_u64().expect("a sum"))
        .collect();
    assert_eq!(raised, [15], "ten before, five after");
    assert!(has_said("rules read again: 2 rules"), "{}", fs::read_to_string(&said).unwrap());
}
