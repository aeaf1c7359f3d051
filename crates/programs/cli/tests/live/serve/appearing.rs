//! Interfaces that appear while the daemon captures, go, and come back: their packets reach readers under their names.

use std::collections::BTreeMap;

use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp};

use super::*;

impl Daemon {
    /// Serves the far ends of all links as `office`, with these lines of rules.
    fn of_far_ends(test: &str, rules: &str) -> Option<Daemon> {
        let daemon = Daemon::new(test)?;
        let (socket, netns) = (daemon.socket(), daemon.namespace.name());
        let text = format!(
            "socket = {socket:?}\nmode = \"0666\"\n[[capture]]\nname = \"office\"\ninterfaces = [\"far*\"]\nnetns = {netns:?}\n{rules}"
        );
        fs::write(daemon.rules(), text).unwrap();
        fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = tapline(["serve", "--json", "--config"]);
        command.arg(daemon.rules());
        Some(daemon.begin_command(&mut command))
    }

    /// Adds a link, and waits until its far end is captured.
    fn add_link(&self, number: u32) {
        self.namespace.add_pair(&format!("near{number}"), &format!("far{number}")).unwrap();
        self.await_link(number);
    }

    /// Waits until the far end of a link is captured.
    fn await_link(&self, number: u32) {
        self.namespace.wait_until_up(&format!("far{number}")).unwrap();
        let far = format!("far{number}");
        wait_for("the interface to be captured", || {
            self.status()["captures"][0]["interfaces"]
                .as_array()
                .expect("a list")
                .contains(&far.as_str().into())
        });
    }

    fn send_on(&self, link: u32, frames: &[Vec<u8>]) {
        let mut sender = Sender::open(Some(self.namespace.name()), &format!("near{link}")).unwrap();
        sender.send(frames, frames.len() as u64, Pace::PerSecond(20_000)).unwrap();
        wait_for_backlog();
    }

    fn captured(&self) -> u64 {
        self.status()["captures"][0]["packets"].as_u64().expect("a count")
    }

    /// Starts a reader of the first place, as [`reader`](Self::reader) does.
    fn strict_reader_of_place(&self, file: &str) -> Reader {
        let readers = || self.status()["captures"][1]["readers"].as_array().expect("a list").len();
        let known = readers();
        let mut command = tapline(["capture", "-i", "tap:place", "--json", "--strict", "--socket"]);
        command.arg(self.socket()).arg("-w").arg(self.file(file));
        let child = command.spawn().expect("the program was built");
        let reader = Reader { child: Some(child), file: self.file(file) };
        wait_for("a reader", || readers() > known);
        reader
    }

    /// Packets of each interface in a file, of those that have some.
    fn packets_by_interface(&self, file: &str) -> BTreeMap<String, u64> {
        let info = finish(tapline(["info", "--json"]).arg(self.file(file))).succeeded();
        // The account is the next line.
        let line = info.stdout.split(|byte| *byte == b'\n').next().expect("a line");
        let info: Value = serde_json::from_slice(line).expect("JSON");
        let interfaces = info["interfaces"].as_array().expect("a list").clone();
        let counts = interfaces.into_iter().map(|one| {
            (one["name"].as_str().expect("a name").to_owned(), one["packets"].as_u64().expect("a count"))
        });
        counts.filter(|(_, packets)| *packets > 0).collect()
    }
}

/// Two packets of UDP for each one of TCP.
fn mixed(count: u16) -> Vec<Vec<u8>> {
    let (a, b) = (Host::number(1), Host::number(2));
    let ips = IpPair::between(&a, &b, IpVersion::V4);
    let frame = |number: u16| match number % 3 {
        0 => Ethernet::between(&a, &b).ip(&Tcp { src: 9, dst: 80, ..Tcp::default() }.packet(ips, b"tcp")),
        _ => Ethernet::between(&a, &b).ip(&Udp { src: 9, dst: number }.packet(ips, b"udp")),
    };
    (0..count).map(frame).collect()
}

/// The counts of the far ends of links, from the first on.
fn of_links(counts: &[u64]) -> BTreeMap<String, u64> {
    counts.iter().enumerate().map(|(link, count)| (format!("far{link}"), *count)).collect()
}

#[test]
fn interfaces_that_appear_come_with_their_names() {
    const TEST: &str = "interfaces_that_appear_come_with_their_names";
    for workers in [1, 2] {
        let Some(mut daemon) = Daemon::of_far_ends(TEST, &format!("workers = {workers}\n")) else { return };
        let early = daemon.reader("early.pcapng", &[]);
        let leased = daemon.reader("leased.pcapng", &["--policy", "leased"]);
        let narrow = daemon.reader("narrow.pcapng", &["udp"]);
        let other = daemon.reader("other.pcapng", &["tcp"]);
        daemon.send_on(0, &mixed(300));
        daemon.add_link(1);
        daemon.send_on(1, &mixed(600));
        // Readers wait a second for names, which the daemon does not give while a worker opens another interface.
        daemon.settle(900, 4);
        daemon.add_link(2);
        daemon.send_on(2, &mixed(30));
        daemon.settle(930, 4);
        // One that attaches now has the list from the start.
        let late = daemon.reader("late.pcapng", &[]);
        daemon.namespace.ip(&["link", "delete", "near1"]).unwrap();
        daemon.send_on(0, &mixed(30));
        daemon.settle(960, 5);
        daemon.namespace.add_pair("near1", "far1").unwrap();
        // Of a third kind: those that come before the socket is bound again are nobody's.
        let mut probes = 0;
        wait_for("the interface to be captured again", || {
            daemon.send_on(1, &[[&[0x02; 12][..], &[0x88, 0xb5], &[0; 46]].concat()]);
            probes += 1;
            daemon.captured() > 960
        });
        daemon.send_on(1, &mixed(300));
        wait_for("the last packets", || {
            let is_there = |count: u64| {
                let counts = daemon.readers().into_iter().map(|reader| reader["counts"]["offered"].clone());
                counts.into_iter().any(|offered| offered == count)
            };
            is_there(840) && is_there(420)
        });
        for (reader, file) in [(early, "early.pcapng"), (leased, "leased.pcapng")] {
            let (packets, tap) = reader.interrupt();
            assert_eq!(tap["offered"], packets.len(), "{file}: {tap}");
            let counts = daemon.packets_by_interface(file);
            let known = packets.len() as u64 - 360;
            assert_eq!(counts, of_links(&[330, known, 30]), "{file}, {workers} workers");
            assert!((901..=900 + probes).contains(&known), "{file}: {known} with {probes} probes");
        }
        for (reader, file, share) in [(narrow, "narrow.pcapng", 2), (other, "other.pcapng", 1)] {
            reader.interrupt();
            let counts = [330, 900, 30].map(|count| count / 3 * share);
            assert_eq!(daemon.packets_by_interface(file), of_links(&counts), "{file}, {workers} workers");
        }
        late.interrupt();
        let names: Vec<String> = daemon.packets_by_interface("late.pcapng").into_keys().collect();
        assert_eq!(names, ["far0", "far1"]);
        let (account, _) = daemon.end();
        let delivered = account["delivered"].as_u64().expect("a count");
        assert!((1261..=1260 + probes).contains(&delivered), "{account} with {probes} probes");
        assert_eq!(account["delivered"], account["stored"], "{account}");
    }
}

/// The rules' filter is asked of packets of a new interface as of those of the others, and the recorder has them all.
#[test]
fn rules_and_recordings_hold_for_new_interfaces() {
    const TEST: &str = "rules_and_recordings_hold_for_new_interfaces";
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let rules = format!(
        "[[record]]\ncapture = \"office\"\nto = {store:?}\nsize = \"64MiB\"\nsegment = \"4MiB\"\n[[access]]\nusers = [\"{NOBODY}\"]\nfilter = \"udp and not ifindex 71\"\n"
    );
    let Some(mut daemon) = Daemon::of_far_ends(TEST, &rules) else { return };
    // A user without rights writes a file there.
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "-w"]);
    command.arg(daemon.file("theirs.pcapng")).arg("--socket").arg(daemon.socket());
    let theirs = command.stdout(Stdio::null()).stderr(Stdio::null()).uid(NOBODY).gid(NOBODY).spawn();
    let readers = if theirs.is_ok() { 2 } else { 1 };
    wait_for("readers", || daemon.readers().len() == readers);
    // The number that the rule withholds.
    let words = "link add near1 up index 70 type veth peer name far1 index 71";
    daemon.namespace.ip(&words.split(' ').collect::<Vec<_>>()).unwrap();
    daemon.namespace.ip(&["link", "set", "far1", "up"]).unwrap();
    daemon.await_link(1);
    daemon.add_link(2);
    daemon.send_on(0, &mixed(30));
    daemon.send_on(1, &mixed(300));
    daemon.send_on(2, &mixed(60));
    daemon.settle(390, readers);
    match theirs {
        Ok(child) => {
            let mut theirs = Reader { child: Some(child), file: daemon.file("theirs.pcapng") };
            theirs.signal("INT");
            theirs.end();
            let expected = [("far0", 20), ("far2", 40)].map(|(name, count)| (name.to_owned(), count));
            assert_eq!(daemon.packets_by_interface("theirs.pcapng"), expected.into());
        }
        Err(error) => eprintln!("skipped in part: {TEST}: nobody may not run {TAPLINE}: {error}"),
    }
    wait_for("packets to be found", || {
        let mut find = tapline(["find", "tap:office", "--socket"]);
        find.arg(daemon.socket()).arg("-w").arg(daemon.file("found.pcapng"));
        finish(&mut find).succeeded();
        daemon.packets_by_interface("found.pcapng").values().sum::<u64>() == 390
    });
    assert_eq!(daemon.packets_by_interface("found.pcapng"), of_links(&[30, 300, 60]));
    daemon.end();
}

/// Sockets are kept for some sixteen of them. Readers that read meanwhile learn of the loss, and no names; a reader that
/// attaches when it is over does not.
#[test]
fn readers_learn_of_interfaces_that_are_not_captured() {
    const TEST: &str = "readers_learn_of_interfaces_that_are_not_captured";
    const LINKS: u32 = 22;
    const LOSS: &str = "at least one interface of the capture";
    let rules = "workers = 2\n[[publish]]\nname = \"place\"\ncapture = \"office\"\n";
    let Some(mut daemon) = Daemon::of_far_ends(TEST, rules) else { return };
    let capture = || daemon.status()["captures"][0].clone();
    wait_for("the graph of the place", || daemon.readers().len() == 1);
    let of_place = |file| daemon.strict_reader_of_place(file);
    let early = daemon.reader("early.pcapng", &["--strict"]);
    let early_of_place = of_place("early_of_place.pcapng");
    for link in 1..LINKS {
        daemon.namespace.add_pair(&format!("near{link}"), &format!("far{link}")).unwrap();
    }
    let names = |capture: &Value| -> Vec<String> {
        serde_json::from_value(capture["interfaces"].clone()).expect("a list of names")
    };
    let uncaptured = |capture: &Value| capture["uncaptured"].as_u64().expect("a count");
    wait_for("interfaces that are not captured", || {
        let capture = capture();
        names(&capture).len() as u64 + uncaptured(&capture) == u64::from(LINKS)
    });
    let captured = names(&capture());
    let missed: Vec<u32> = (1..LINKS).filter(|link| !captured.contains(&format!("far{link}"))).collect();
    assert!(!missed.is_empty());
    let status = finish(tapline(["status", "--socket"]).arg(daemon.socket())).succeeded();
    let told = format!("; interfaces that could not be captured: {} now\n", missed.len());
    assert!(String::from_utf8_lossy(&status.stdout).contains(&told), "{status:?}");
    wait_for("the place to learn of them", || daemon.status()["captures"][1]["uncaptured"] == missed.len());
    let during = daemon.reader("during.pcapng", &["--strict"]);
    for (name, mut reader) in [("tap:office", early), ("tap:office", during), ("tap:place", early_of_place)] {
        reader.signal("INT");
        let finished = reader.end();
        assert_eq!(finished.status.code(), Some(3), "{}", finished.stderr);
        let told = format!("packets were lost: an unknown number at {name} (uncaptured, {LOSS})");
        assert!(finished.stderr.contains(&told), "{}", finished.stderr);
        let losses = finished.account().interface(name)["losses"].clone();
        let is_ours = |loss: &&Value| loss["counter"] == LOSS && loss["count"].is_null();
        assert_eq!(losses.as_array().expect("a list").iter().filter(is_ours).count(), 1, "{losses}");
        let account = String::from_utf8_lossy(&finished.stdout);
        assert!(missed.iter().all(|link| !account.contains(&format!("far{link}"))), "{account}");
    }
    for link in &missed {
        daemon.namespace.ip(&["link", "delete", &format!("near{link}")]).unwrap();
    }
    wait_for("the failures to be over", || {
        let captures = daemon.status()["captures"].clone();
        captures.as_array().expect("a list").iter().all(|capture| uncaptured(capture) == 0)
    });
    assert_eq!(capture()["uncaptured_before"], missed.len());
    daemon.reader("late.pcapng", &["--strict"]).interrupt();
    of_place("late_of_place.pcapng").interrupt_as("tap:place");
    let (account, _) = daemon.end();
    let rows = account["interfaces"].as_array().expect("a list");
    for link in missed {
        let of_link: Vec<&Value> = rows.iter().filter(|row| row["name"] == format!("far{link}")).collect();
        assert!(
            matches!(of_link.as_slice(), [row] if row["losses"][0]["place"] == "uncaptured"),
            "{account}"
        );
    }
}
