//! Stores of recorded packets as devices and as files of programs on our library.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output};

use tapline_packet::{Batch, Interface, LinkType, Meta, Record, Selection, Timestamp};
use tapline_store::{Losses, Recorder, RecorderSettings};
use tapline_testkit::netns::namespaces_or_skip;
use tempfile::TempDir;

use crate::live::wait_for;
use crate::support::{Hosts, Library, programs_or_skip, tapline, told};

/// Packets of the store, one a second, in chunks of 100.
const PACKETS: u32 = 20_000;
const FIRST_S: i64 = 1_700_000_000;
/// Packets between two of the host that is looked for.
const RARE: u32 = 5000;

/// An UDP packet; each [`RARE`]th is of a host of its own.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 1000];
    (frame[12], frame[14], frame[22], frame[23]) = (0x08, 0x45, 64, 17);
    frame[16..18].copy_from_slice(&986_u16.to_be_bytes());
    let host = if number.is_multiple_of(RARE) { 77 } else { (number % 50) as u8 };
    frame[26..34].copy_from_slice(&[10, 0, 0, host, 10, 0, 1, 1]);
    frame[34..40].copy_from_slice(&[0x27, 0x10, 0, 53, 3, 0xd2]);
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Records the packets into a store, and writes them to a pcap file for programs on the system's library.
fn record(store: &Path) {
    let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
    let settings =
        RecorderSettings { size: 64 << 20, segment_len: Some(4 << 20), ..RecorderSettings::default() };
    let at = |number: u32| Timestamp::from_nanos((FIRST_S + i64::from(number)) * 1_000_000_000);
    let mut recorder = Recorder::open(store, settings, &interfaces, at(0)).unwrap();
    for number in 0..PACKETS {
        let data = frame(number);
        let meta = Meta { timestamp: at(number), wire_len: data.len() as u32, ..Meta::default() };
        let records = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta }];
        let mut all = Selection::none();
        all.select_all(1);
        recorder.write(&Batch::new(&data, &records), &all, &interfaces, at(number)).unwrap();
        if number % 100 == 99 {
            recorder.tick(Losses::default(), &[], &interfaces, at(number)).unwrap();
        }
    }
    recorder.finish(&[], Losses::default(), at(PACKETS)).unwrap();
    assert_eq!(recorder.totals().lost, 0, "{:?}", recorder.news());
}

/// tcpdump's output on a library, and the bytes that it read of segments.
fn tcpdump(library: Option<&Library>, arguments: &[&str]) -> String {
    let mut command = match library {
        Some(library) => library.command(None, "tcpdump"),
        None => Command::new("tcpdump"),
    };
    let output = command.args(["-Z", "root", "-nn", "-tt"]).args(arguments).output().expect("tcpdump runs");
    assert!(output.status.success(), "{arguments:?}: {}", told(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// As the device of a live capture, and as a file: the same packets, filtered alike, as in the segments on the
/// system's library.
#[test]
fn tcpdump_reads_a_store_as_device_and_as_file() {
    const TEST: &str = "tcpdump_reads_a_store_as_device_and_as_file";
    if !programs_or_skip(TEST, &["tcpdump"]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("store");
    record(&store);
    let name = format!("store:{}", store.display());
    let library = Library::new();
    let mut segments: Vec<_> = std::fs::read_dir(store.join("seg"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "pcapng"))
        .collect();
    segments.sort();
    for filter in
        ["", "host 10.0.0.77", "udp port 53 and not host 10.0.0.3", "greater 2000", "vlan or ether[45] = 7"]
    {
        let words: &[&str] = if filter.is_empty() { &[] } else { &[filter] };
        let scan = |segment| tcpdump(None, &[&["-r", segment], words].concat());
        let scanned: String = segments.iter().map(|segment| scan(segment.to_str().unwrap())).collect();
        for option in ["-i", "-r"] {
            let got = tcpdump(Some(&library), &[&[option, &name], words].concat());
            assert!(got == scanned, "{option} {filter:?}: {} bytes, {} scanned", got.len(), scanned.len());
        }
        let lines = scanned.lines().count();
        assert_eq!(lines > 0, filter != "greater 2000", "{filter:?}");
    }
    // Times in the name, and a number of packets.
    let (from, to) = (FIRST_S + 4000, FIRST_S + 6000);
    let window = format!("{name}?from=@{from}&to=@{to}");
    let got = tcpdump(Some(&library), &["-r", &window, "host 10.0.0.77"]);
    assert!(got.lines().count() == 1 && got.starts_with(&(FIRST_S + 5000).to_string()), "{got}");
    assert_eq!(tcpdump(Some(&library), &["-i", &window, "-c", "7"]).lines().count(), 7);
}

/// A name that is not a store, or not a time, gives an error in words.
#[test]
fn a_folder_that_is_no_store_is_told() {
    const TEST: &str = "a_folder_that_is_no_store_is_told";
    if !programs_or_skip(TEST, &["tcpdump"]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let library = Library::new();
    let store = folder.path().join("store");
    record(&store);
    for (name, words) in [
        (format!("store:{}/nowhere", folder.path().display()), "nowhere"),
        (format!("store:{}?from=teatime", store.display()), "teatime"),
        (format!("store:{}?from=-1h&unto=now", store.display()), "unto=now"),
    ] {
        for option in ["-i", "-r"] {
            let output = library.command(None, "tcpdump").args([option, &name]).output().unwrap();
            let said = told(&output);
            assert!(!output.status.success() && said.contains(words), "{option} {name}: {said}");
        }
    }
    // Stores are not devices that lists have.
    let output = library.command(None, "tcpdump").arg("-D").output().unwrap();
    assert!(!told(&output).contains("store:"));
}

/// The filter's text is asked of the index: a rare host is found without reading what has none of its packets.
#[test]
fn a_filter_passes_over_chunks() {
    const TEST: &str = "a_filter_passes_over_chunks";
    if !programs_or_skip(TEST, &["tcpdump", "strace"]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("store");
    record(&store);
    let library = Library::new();
    let name = format!("store:{}?from=@{}", store.display(), FIRST_S);
    let read = |filter: &str| -> u64 {
        let log = folder.path().join("log");
        let mut strace = library.command(None, "strace");
        strace.args(["-f", "-e", "trace=pread64", "-o"]).arg(&log);
        let output = strace.args(["tcpdump", "-Z", "root", "-nn", "-r", &name, filter]).output().unwrap();
        assert!(output.status.success(), "{}", told(&output));
        let lengths = std::fs::read_to_string(&log).unwrap();
        let length = |line: &str| line.rsplit_once("= ")?.1.split_whitespace().next()?.parse::<u64>().ok();
        lengths.lines().filter_map(length).sum()
    };
    let (rare, all) = (read("host 10.0.0.77"), read("udp and not host 10.0.0.200"));
    assert!(rare * 2 < all, "{rare} bytes for a rare host, {all} for all");
}

/// A user without a right to the store's files.
const NOBODY: u32 = 65_534;

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of [`NOBODY`] on our library, which asks the daemon at `socket`.
fn as_nobody(library: &Library, socket: &Path, words: &[&str]) -> std::io::Result<Output> {
    let mut command = library.command(None, "tcpdump");
    command.env("TAPLINE_SOCKET", socket).args(["-nn", "-tt"]).args(words).uid(NOBODY).gid(NOBODY).output()
}

/// Without a right to the files the daemon is asked: it answers by its rules, or says why not.
#[test]
fn the_daemon_is_asked_for_a_store_of_its_own() {
    const TEST: &str = "the_daemon_is_asked_for_a_store_of_its_own";
    if !namespaces_or_skip(TEST) || !programs_or_skip(TEST, &["tcpdump", "ping"]) {
        return;
    }
    let Some(tapline) = tapline() else {
        return eprintln!("skipped: {TEST}: no tapline beside the library: cargo build -p tapline-cli");
    };
    let (hosts, folder, library) = (Hosts::new("capi-store"), TempDir::new().unwrap(), Library::new());
    for path in [folder.path(), library.folder()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let [socket, store, rules] = ["socket", "store", "rules.toml"].map(|name| folder.path().join(name));
    let write_rules = |filter: &str| {
        let text = format!(
            "socket = {socket:?}\nmode = \"0666\"\n[[capture]]\nname = \"office\"\ninterfaces = [\"near0\"]\n\
             netns = {:?}\n[[record]]\ncapture = \"office\"\nto = {store:?}\nsize = \"16MiB\"\nsegment = \"4MiB\"\n\
             flush = \"50ms\"\n[[access]]\nusers = [\"{NOBODY}\"]\nfilter = \"{filter}\"\nstore = true\n",
            hosts.near.name()
        );
        fs::write(&rules, text).unwrap();
    };
    write_rules("icmp");
    let mut serve = Command::new(tapline);
    let _daemon = Ended(serve.args(["serve", "--config"]).arg(&rules).spawn().unwrap());
    wait_for("the daemon", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let name = format!("store:{}", store.display());
    let lines = |words: &[&str]| -> Vec<String> {
        let output = as_nobody(&library, &socket, words).unwrap();
        assert!(output.status.success(), "{words:?}: {}", told(&output));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    };
    if let Err(error) = as_nobody(&library, &socket, &["--version"]) {
        return eprintln!("skipped: {TEST}: a user without rights cannot run tcpdump: {error}");
    }
    // The daemon serves before its recorder reads.
    wait_for("the first packets to be found", || {
        hosts.ping(1);
        !lines(&["-i", &name]).is_empty()
    });
    // With ARP.
    hosts.near.ip(&["neigh", "flush", "all"]).unwrap();
    // The last ones are the longest: once they are found, all are.
    hosts.ping_with(5, 200);
    let by_root = |filter: &str| tcpdump(Some(&library), &["-i", &name, filter]);
    wait_for("all packets to be found", || by_root("icmp and greater 200").lines().count() == 10);
    // By the rules: no ARP, which root finds. By the filter's text, also where the index serves no part of it.
    assert!(!by_root("arp").is_empty() && lines(&["-i", &name, "arp"]).is_empty());
    for option in ["-i", "-r"] {
        for filter in ["icmp", "icmp[icmptype] = icmp-echo", "icmp and host 10.77.0.2", "icmp and less 10"] {
            assert_eq!(
                lines(&[option, &name, filter]).join("\n"),
                by_root(filter).trim_end(),
                "{option} {filter}"
            );
        }
        assert_eq!(lines(&[option, &name]).join("\n"), by_root("icmp").trim_end(), "{option}");
        assert_eq!(lines(&[option, &name, "-c", "3", "icmp"]).len(), 3, "{option}");
    }
    assert!(by_root("icmp[icmptype] = icmp-echo").lines().count() >= 5);
    let past = format!("{name}?to=-1h");
    assert!(lines(&["-i", &past]).is_empty());
    // A store that the daemon does not record, and no daemon.
    let other = folder.path().join("other");
    record(&other);
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
    let refused = as_nobody(&library, &socket, &["-i", &format!("store:{}", other.display())]).unwrap();
    let said = told(&refused);
    assert!(!refused.status.success() && said.contains("no recording to"), "{said}");
    let nowhere = folder.path().join("nowhere");
    let refused = as_nobody(&library, &nowhere, &["-i", &name]).unwrap();
    let said = told(&refused);
    assert!(!refused.status.success() && said.contains("no right to its files"), "{said}");
}
