//! Searches of a recording by the rules: bytes and packets of others are withheld, and searches are bounded.

use std::os::unix::fs::FileExt as _;
use std::process::Stdio;

use tapline_testkit::capture_file::read_packets;

use super::recording::{count, record_table, recording, segments};
use super::*;

impl Daemon {
    /// `tapline find tap:office` as a user, into a file.
    fn find(&self, user: u32, file: &str, arguments: &[&str]) -> std::io::Result<Finished> {
        let mut command = tapline(["find", "tap:office", "--json", "--socket"]);
        command.arg(self.socket()).arg("-w").arg("-").args(arguments).uid(user).gid(user);
        let file = File::create(self.file(file))?;
        Ok(Finished::new(command.stdout(file).stderr(Stdio::piped()).spawn()?.wait_with_output()?))
    }

    /// The packets that a user finds.
    fn found(&self, user: u32, arguments: &[&str]) -> Vec<Vec<u8>> {
        self.find(user, "found.pcapng", arguments).unwrap().succeeded();
        bytes_of(packets_of(&self.file("found.pcapng")))
    }
}

/// Whether users other than root can run the program: the folder of the build may be closed to them.
fn nobody_or_skip(test: &str) -> bool {
    let ran = tapline(["--version"]).uid(NOBODY).gid(NOBODY).output();
    if let Err(error) = &ran {
        eprintln!("skipped: {test}: nobody may not run {TAPLINE}: {error}");
    }
    ran.is_ok()
}

#[test]
fn a_user_finds_what_the_rule_shows() {
    const TEST: &str = "a_user_finds_what_the_rule_shows";
    if !root_or_skip(TEST) || !nobody_or_skip(TEST) {
        return;
    }
    let rule = "[[access]]\nusers = [\"65534\"]\nfilter = \"udp or arp\"\nsnap_len = 60\nstore = true";
    let Some(mut daemon) = recording(TEST, &format!("size = \"64MiB\"\n{rule}")) else { return };
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The files themselves are closed.
    fs::set_permissions(daemon.file("store"), fs::Permissions::from_mode(0o700)).unwrap();
    let mut frames = frames(41, 4000);
    // A tag hides the port from a filter of stored packets, not from the rule.
    let is_plain = |frame: &&Vec<u8>| frame.len() > 60 && frame[12..14] == [8, 0] && frame[23] == 17;
    let tagged: Vec<Vec<u8>> = frames.iter().filter(is_plain).take(50).map(|frame| tagged(frame)).collect();
    frames.extend(tagged);
    daemon.send(&frames);
    let sent = frames.len() as u64;
    wait_for("all packets to be found", || count(&daemon, "") == sent);
    // The measure: packets that the rule's filter accepts, cut, and then the user's filter, by files.
    let by_files = |arguments: &[&str]| {
        finish(tapline(["capture", "--json"]).args(arguments)).succeeded();
    };
    let file = |name: &str| daemon.file(name).display().to_string();
    let (store, whole, cut, filtered) = (
        format!("store:{}", file("store")),
        file("whole.pcapng"),
        file("cut.pcapng"),
        file("filtered.pcapng"),
    );
    by_files(&["-r", &store, "-w", &whole, "udp or arp"]);
    by_files(&["-r", &whole, "-s", "60", "-w", &cut]);
    for filter in ["", "udp port 53", "greater 300", "arp", "tcp", "not port 53", "ether[70] >= 0"] {
        by_files(&["-r", &cut, "-w", &filtered, filter]);
        let expected = bytes_of(packets_of(&daemon.file("filtered.pcapng")));
        let found = daemon.found(NOBODY, &[filter]);
        assert!(found == expected, "{filter:?}: {} packets, not {}", found.len(), expected.len());
        assert!(found.iter().all(|packet| packet.len() <= 60), "{filter:?}");
        assert_eq!(found.is_empty(), matches!(filter, "tcp" | "ether[70] >= 0"), "{filter:?}");
    }
    // Under the name of the directory, whose files are closed.
    let mut command = tapline(["find", "--json", "--socket"]);
    command.arg(daemon.socket()).args(["-w", "-"]).arg(daemon.file("store")).arg("udp port 53");
    let named = finish(command.uid(NOBODY).gid(NOBODY)).succeeded();
    assert_eq!(read_packets(&named.stdout).unwrap().len(), daemon.found(NOBODY, &["udp port 53"]).len());
    let other = daemon.file("store/seg");
    let refused =
        finish(tapline(["find", "--socket"]).arg(daemon.socket()).arg(&other).uid(NOBODY).gid(NOBODY));
    refused.failed_saying(&["asked in vain", "no recording to"]);
    // Root finds all, whole; times bound.
    assert!(daemon.found(0, &[]) == frames);
    assert_eq!(daemon.found(NOBODY, &["--to", "-1h"]).len(), 0);
    assert!(!daemon.found(NOBODY, &["--from", "-1h"]).is_empty());
    let refused = daemon.find(NOBODY, "refused.pcapng", &["tcp port"]).unwrap();
    refused.failed_saying(&["tcp port"]);
    // A rule that forbids a port forbids it to tagged packets too.
    let rule = rule.replace("udp or arp", "not udp");
    daemon.write_rules(&format!("{}{rule}\n", record_table(&daemon, "size = \"64MiB\"")));
    daemon.signal("HUP");
    wait_for("the new rules", || !daemon.found(NOBODY, &["tcp"]).is_empty());
    assert!(daemon.found(NOBODY, &["udp or (vlan and udp)"]).is_empty());
    daemon.terminate();
}

/// A frame with a VLAN tag.
fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
}

#[test]
fn without_the_word_store_no_user_searches() {
    const TEST: &str = "without_the_word_store_no_user_searches";
    if !root_or_skip(TEST) || !nobody_or_skip(TEST) {
        return;
    }
    let Some(mut daemon) = recording(TEST, "size = \"8MiB\"\n[[access]]\neverybody = true") else { return };
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let refused = daemon.find(NOBODY, "refused.pcapng", &[]).unwrap();
    refused.failed_saying(&["no recording of", "office"]);
    // With the word after a reload; without it again.
    let table = record_table(&daemon, "size = \"8MiB\"");
    daemon.send(&frames(42, 500));
    wait_for("all packets to be found", || count(&daemon, "") == 500);
    for (word, is_allowed) in [("store = true", true), ("store = false", false)] {
        daemon.write_rules(&format!("{table}[[access]]\neverybody = true\n{word}\n"));
        daemon.signal("HUP");
        wait_for(word, || {
            let finished = daemon.find(NOBODY, "found.pcapng", &[]).unwrap();
            finished.status.success() == is_allowed
        });
    }
    run(["find", "tap:office", "--explain"]).failed_saying(&["--explain", "DIRECTORY"]);
    run(["find", "tap:office", "--name", "a.b"]).failed_saying(&["--name", "DIRECTORY"]);
    daemon.terminate();
}

/// Damage is reported as by a search of the files; where the rules withhold packets, without a count.
#[test]
fn damage_of_a_store_is_reported_with_the_answer() {
    const TEST: &str = "damage_of_a_store_is_reported_with_the_answer";
    if !root_or_skip(TEST) || !nobody_or_skip(TEST) {
        return;
    }
    let rule = "[[access]]\nusers = [\"65534\"]\nfilter = \"udp or arp\"\nstore = true";
    let Some(mut daemon) = recording(TEST, &format!("size = \"64MiB\"\n{rule}")) else { return };
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    daemon.send(&frames(44, 12_000));
    wait_for("all packets to be found", || count(&daemon, "") == 12_000);
    // In the packets of the second slot of a segment that is complete: in others a chunk may be under way.
    wait_for("a sealed segment", || !segments(&daemon, "tix").is_empty());
    let segment = segments(&daemon, "tix").remove(0).with_extension("pcapng");
    let segment = File::options().read(true).write(true).open(segment).unwrap();
    let (mut byte, place) = ([0], (1 << 20) + 5000);
    segment.read_exact_at(&mut byte, place).unwrap();
    segment.write_all_at(&[byte[0] ^ 1], place).unwrap();
    for (user, told) in
        [(0, "warning: 1 chunk is damaged"), (NOBODY, "warning: parts of the store are damaged")]
    {
        let found = daemon.find(user, "found.pcapng", &[]).unwrap();
        assert_eq!(found.status.code(), Some(3), "{user}: {}", found.stderr);
        assert!(found.stderr.contains(told), "{user}: {}", found.stderr);
        assert!((1..12_000).contains(&packets_of(&daemon.file("found.pcapng")).len()), "{user}");
    }
    let by_files = run(["find", &daemon.file("store").display().to_string(), "--count"]);
    assert_eq!(by_files.status.code(), Some(3));
    assert!(by_files.stderr.contains("warning: 1 chunk is damaged"), "{}", by_files.stderr);
    let (_, told) = daemon.terminate();
    assert!(!told.contains("was cut short"), "{told}");
}

/// Searches whose clients take nothing: two of a user, and the recorder goes on; new rules end them.
#[test]
fn searches_are_bounded_and_stop_no_recording() {
    const TEST: &str = "searches_are_bounded_and_stop_no_recording";
    if !root_or_skip(TEST) || !nobody_or_skip(TEST) {
        return;
    }
    let rule = "[[access]]\neverybody = true\nstore = true";
    let Some(mut daemon) = recording(TEST, &format!("size = \"64MiB\"\n{rule}")) else { return };
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let frames = frames(43, 6000);
    daemon.send(&frames);
    wait_for("all packets to be found", || count(&daemon, "") == 6000);
    // Pipes that are not read: each search has more than they take.
    let stuck = || {
        let mut command = tapline(["find", "tap:office", "-w", "-", "--socket"]);
        command.arg(daemon.socket()).uid(NOBODY).gid(NOBODY);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it ran before")
    };
    let mut searches = [stuck(), stuck()];
    for search in &mut searches {
        // Its first bytes say that it runs.
        search.stdout.as_mut().expect("piped").read_exact(&mut [0; 4]).unwrap();
    }
    daemon.find(NOBODY, "third.pcapng", &[]).unwrap().failed_saying(&["2 searches", "no more"]);
    assert!(daemon.found(0, &[]) == frames, "root's search waits for none");
    daemon.send(&frames);
    wait_for("what came later to be found", || count(&daemon, "") == 12_000);
    // Rules that no longer allow them: their answers are cut short, which they say.
    daemon.write_rules(&record_table(&daemon, "size = \"64MiB\""));
    daemon.signal("HUP");
    // An answer that is read before they hold may come to its end.
    wait_for("the new rules", || {
        daemon.find(NOBODY, "third.pcapng", &[]).unwrap().stderr.contains("no recording of")
    });
    for search in &mut searches {
        let mut rest = Vec::new();
        search.stdout.take().expect("piped").read_to_end(&mut rest).unwrap();
        let mut told = String::new();
        search.stderr.take().expect("piped").read_to_string(&mut told).unwrap();
        assert!(!search.wait().unwrap().success(), "{told}");
        assert!(rest.len() < frames.iter().map(Vec::len).sum(), "{} bytes", rest.len());
    }
    let (recording, told) = daemon.terminate();
    assert_eq!(recording["account"]["balanced"], true, "{recording}");
    assert!(told.contains("was cut short"), "{told}");
}
