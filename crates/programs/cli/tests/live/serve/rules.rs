//! Rights of readers: rules, forced filters, budgets of users.

use super::*;

#[test]
fn rules_decide_the_rights_of_readers() {
    const TEST: &str = "rules_decide_the_rights_of_readers";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "[[access]]\nusers = [\"65534\"]\nfilter = \"udp\"\nsnap_len = 60\nreaders = 1\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), daemon.folder.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let capture = |uid: u32, arguments: &[&str]| {
        let mut command = tapline(["capture", "--json", "--socket"]);
        command.arg(daemon.socket()).args(arguments).uid(uid).gid(uid);
        command
    };
    match capture(NOBODY, &["-i", "tap:office", "--policy", "lossless"]).output() {
        Ok(output) => Finished::new(output)
            .failed_saying(&["the policy lossless is not allowed", "there is lossy, leased"]),
        Err(error) => return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}: {error}"),
    }
    finish(&mut capture(NOBODY, &["-i", "tap:home"]))
        .failed_saying(&["no capture \"home\" that you may read", "office"]);
    finish(&mut capture(NOBODY - 1, &["-i", "tap:office"]))
        .failed_saying(&["and no other: ask the administrator"]);
    let file = folder.path().join("nobody.pcap");
    let child =
        capture(NOBODY, &["-i", "tap:office", "-w", file.to_str().unwrap(), "greater 70"]).spawn().unwrap();
    let nobody = Reader { child: Some(child), file };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    finish(&mut capture(NOBODY, &["-i", "tap:office"])).failed_saying(&["1 readers of yours are there"]);
    let root = daemon.reader("root.pcap", &[]);
    let oracles = Oracles::start(&daemon, &["udp and greater 70"]);
    let frames = frames(13, 3000);
    daemon.send(&frames);
    daemon.settle(3000, 2);
    let (all, _) = root.interrupt();
    assert!(all == frames);
    let (some, _) = nobody.interrupt();
    let mut expected = oracles.end().remove(0);
    expected.iter_mut().for_each(|frame| frame.truncate(60));
    assert!(some == expected && !some.is_empty(), "{} packets, not {}", some.len(), expected.len());
    assert_eq!(daemon.status()["refused"], 4);
    let (account, told) = daemon.end();
    // Once for each of the two groups of readers, of what they want.
    assert_eq!(account["stored"], 3000 + expected.len(), "{account}");
    assert_eq!(told.matches("refused: ").count(), 4, "{told}");
}

/// A packet goes to one reader: the user with the least number, then the reader with the least number, then the one
/// that came first.
#[test]
fn match_first_gives_each_packet_to_one_reader() {
    const TEST: &str = "match_first_gives_each_packet_to_one_reader";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "match = \"first\"\n[[access]]\neverybody = true\npriority = 1\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(nobody) = as_nobody(&daemon, folder.path(), "nobody.pcap", "") else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    let all = daemon.reader_of("tap:office/any?by=first:20", "all.pcap", &["udp or tcp"]);
    let tcp = daemon.reader_of("tap:office/tcp?by=first:10", "tcp.pcap", &["tcp"]);
    let mut late = tapline(["capture", "-i", "tap:office", "--since", "all", "--socket"]);
    finish(late.arg(daemon.socket())).failed_saying(&["packets of this capture go to one reader"]);
    let filters = ["tcp", "udp and not tcp", "not (udp or tcp)"];
    let oracles = Oracles::start(&daemon, &filters);
    daemon.send_in_parts(&frames(24, 3000), 0, 3);
    let expected = oracles.end();
    for ((mut reader, expected), filter) in [tcp, all, nobody].into_iter().zip(expected).zip(filters) {
        reader.signal("INT");
        reader.end().succeeded();
        let packets = bytes_of(packets_of(&reader.file));
        assert!(
            packets == expected && !packets.is_empty(),
            "{filter}: {} of {}",
            packets.len(),
            expected.len()
        );
    }
    daemon.end();
}

/// A capture by a user without rights, which writes into its own folder.
fn as_nobody(daemon: &Daemon, folder: &std::path::Path, file: &str, filter: &str) -> Option<Reader> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.join(file);
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "--socket"]);
    command.arg(daemon.socket()).arg("-w").arg(&file).arg(filter).uid(NOBODY).gid(NOBODY);
    Some(Reader { child: Some(command.spawn().ok()?), file })
}

#[test]
fn bytes_behind_a_forced_cut_decide_nothing() {
    const TEST: &str = "bytes_behind_a_forced_cut_decide_nothing";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "[[access]]\neverybody = true\nsnap_len = 60\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut frames = vec![vec![0x02; 200]; 1000];
    frames.iter_mut().enumerate().for_each(|(at, frame)| frame[100] = (at % 2) as u8);
    // Filters of visible bytes, of hidden bytes, and of both.
    let filters = ["link[0] = 2", "link[100] = 1", "link[0] = 3 or link[100] = 1", "len = 200"];
    let mut readers = Vec::new();
    for (at, filter) in filters.iter().enumerate() {
        let Some(reader) = as_nobody(&daemon, folder.path(), &format!("{at}.pcap"), filter) else {
            return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
        };
        wait_for("nobody to read", || daemon.readers().len() == at + 1);
        readers.push(reader);
    }
    let root = daemon.reader("root.pcap", &["link[100] = 1"]);
    daemon.send(&frames);
    daemon.settle(1000, 5);
    let mut command = tapline(["status", "--json", "--socket"]);
    let told = finish(command.arg(daemon.socket()).uid(NOBODY).gid(NOBODY)).succeeded();
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let capture = &told["captures"][0];
    assert_eq!((&capture["packets"], &capture["bytes"]), (&1000.into(), &60_000.into()), "{capture}");
    for withheld in ["unwanted", "cpu_ns"] {
        assert_eq!(capture[withheld], 0, "{capture}");
    }
    assert_eq!(capture["kernel_insns"], Value::Null, "{capture}");
    assert_eq!(root.interrupt().0.len(), 500);
    let expected = [1000, 0, 0, 1000];
    for ((reader, expected), filter) in readers.into_iter().zip(expected).zip(filters) {
        let (packets, tap) = reader.interrupt();
        assert_eq!((packets.len(), &tap["offered"]), (expected, &expected.into()), "{filter}");
        assert!(packets.iter().all(|packet| packet.len() == 60));
    }
    daemon.end();
}

#[test]
fn programs_are_no_longer_than_the_kernel_takes() {
    let Some(mut daemon) = Daemon::start("programs_are_no_longer_than_the_kernel_takes", &[]) else { return };
    let client = Client::connect(&daemon.socket(), "test").unwrap();
    let mut tap =
        client.attach(&AttachRequest { capture: "office".to_owned(), ..AttachRequest::default() }).unwrap();
    let program = |len: usize| [vec![(0x30, 0, 0, 0); len - 1], vec![(0x06, 0, 0, 1)]].concat();
    tap.set_program(program(4096)).unwrap();
    for len in [4097, 15_999] {
        let error = tap.set_program(program(len)).unwrap_err().to_string();
        assert!(error.contains("4096 are the most"), "{error}");
    }
    let text = ["ip protochain 6"; 60].join(" or ");
    let text = text.replace("ip protochain 6", "inner(host 10.0.0.1)");
    match tap.set_filter(&text) {
        // The compiler may find that they are all the same.
        Ok(()) => {}
        Err(error) => assert!(error.to_string().contains("4096 are the most"), "{error}"),
    }
    daemon.end();
}

#[test]
fn a_user_takes_no_more_memory_than_the_rules_say() {
    const TEST: &str = "a_user_takes_no_more_memory_than_the_rules_say";
    if !root_or_skip(TEST) {
        return;
    }
    // The buffer of cut packets is 64 MiB, and an index a little more than one.
    let access = "user_memory = 66\n[[access]]\neverybody = true\nsnap_len = 60\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(reader) = as_nobody(&daemon, folder.path(), "1.pcap", "udp") else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    let user = daemon.status()["users"][0].clone();
    let mib = |of: &str| user[of].as_u64().unwrap() >> 20;
    assert_eq!((&user["uid"], mib("memory"), mib("memory_max")), (&NOBODY.into(), 65, 66), "{user}");
    let mut second = as_nobody(&daemon, folder.path(), "2.pcap", "udp").unwrap();
    second.end().failed_saying(&["an index would take 2 MiB, and 66 of the 66 MiB", "user_memory"]);
    // Others have their own, and root has no bound.
    daemon.reader("root.pcap", &[]).interrupt();
    reader.interrupt();
    wait_for("nobody to leave", || daemon.readers().is_empty());
    // The process may have kept the descriptor, so the index counts for a minute.
    assert_eq!(daemon.status()["users"][0]["memory"], user["memory"]);
    let mut third = as_nobody(&daemon, folder.path(), "3.pcap", "udp").unwrap();
    third.end().failed_saying(&["66 of the 66 MiB", "by those that left within a minute too"]);
    daemon.end();
}

/// A user with as many readers and as long filters as it may have leaves room for others in the answer of `status`.
#[test]
fn long_filters_of_a_user_hide_no_status() {
    const TEST: &str = "long_filters_of_a_user_hide_no_status";
    let Some(mut daemon) = Daemon::start(TEST, &[]) else { return };
    let filter = format!("tcp{}", "\n".repeat(8000));
    let attach =
        AttachRequest { capture: "office".to_owned(), entries: 16, filter, ..AttachRequest::default() };
    let attached = || Client::connect(&daemon.socket(), "many").unwrap().attach(&attach).unwrap();
    let taps: Vec<_> = (0..64).map(|_| attached()).collect();
    let readers = daemon.readers();
    assert_eq!(readers.len(), 64);
    let filter = readers[0]["filter"].as_str().unwrap();
    // Readers take the control characters out.
    assert!(filter.starts_with("tcp") && filter.len() < 500, "{filter:?}");
    drop(taps);
    daemon.end();
}

/// The number of a reader does not reveal how many came before it.
#[test]
fn numbers_of_readers_do_not_count_others() {
    let Some(mut daemon) = Daemon::start("numbers_of_readers_do_not_count_others", &[]) else { return };
    let attach = AttachRequest { capture: "office".to_owned(), entries: 16, ..AttachRequest::default() };
    let attached = || Client::connect(&daemon.socket(), "many").unwrap().attach(&attach).unwrap();
    let taps: Vec<_> = (0..8).map(|_| attached()).collect();
    let numbers: Vec<u64> =
        daemon.readers().iter().map(|reader| reader["number"].as_u64().unwrap()).collect();
    // Eight in a row by chance: once in 10^42.
    assert!(numbers.windows(2).any(|pair| pair[0].abs_diff(pair[1]) != 1), "{numbers:?}");
    drop(taps);
    daemon.end();
}

#[test]
fn readers_over_budget_are_disconnected() {
    const TEST: &str = "readers_over_budget_are_disconnected";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "user_time = 1\n[[access]]\neverybody = true\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    let folder = tempfile::tempdir().unwrap();
    let tests: Vec<String> = (1..200).map(|n| format!("link[link[0] + {n}] * {n} = 77")).collect();
    let Some(mut costly) = as_nobody(&daemon, folder.path(), "1.pcap", &tests.join(" or ")) else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    let root = daemon.reader("root.pcap", &[]);
    let frames = vec![vec![0x02; 300]; 20_000];
    daemon.send(&frames);
    costly.end().failed_saying(&["tap:office: the daemon: readers of user 65534 took more processor time"]);
    daemon.settle(20_000, 1);
    let (packets, _) = root.interrupt();
    assert!(packets == frames, "root reads on without a gap: {}", packets.len());
    let (_, told) = daemon.end();
    assert!(told.contains("1 readers of office are sent away"), "{told}");
}

#[test]
fn reloaded_rules_detach_readers_without_rights() {
    const TEST: &str = "reloaded_rules_detach_readers_without_rights";
    if !root_or_skip(TEST) {
        return;
    }
    let Some(mut daemon) = Daemon::with_rules(TEST, "[[access]]\neverybody = true\n") else { return };
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "--socket"]);
    command.arg(daemon.socket()).args(["-w", "/dev/null"]).uid(NOBODY).gid(NOBODY);
    let Ok(child) = command.spawn() else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    let mut nobody = Reader { child: Some(child), file: PathBuf::new() };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    let root = daemon.reader("root.pcap", &[]);
    let frames = frames(14, 2000);
    daemon.send(&frames[..1000]);
    daemon.settle(1000, 2);
    daemon.write_rules("colour = \"red\"\n");
    daemon.live.as_ref().unwrap().signal("HUP");
    daemon.send(&frames[1000..]);
    daemon.settle(2000, 2);
    daemon.write_rules("[[access]]\neverybody = true\nfilter = \"arp\"\n");
    daemon.live.as_ref().unwrap().signal("HUP");
    nobody.end().failed_saying(&["tap:office: the daemon: the rules no longer let you read as you did"]);
    let (packets, _) = root.interrupt();
    assert!(packets == frames, "root reads on without a gap");
    let (_, told) = daemon.end();
    assert!(
        told.contains("the rules stay as they were") && told.contains("unknown field `colour`"),
        "{told}"
    );
    assert!(told.contains("the rules no longer let it read as it did"), "{told}");
}

/// Rules that forbid and then allow again are as a daemon that was away for a while.
#[test]
fn a_detached_reader_may_attach_again() {
    const TEST: &str = "a_detached_reader_may_attach_again";
    if !root_or_skip(TEST) {
        return;
    }
    const ALL: &str = "[[access]]\neverybody = true\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, ALL) else { return };
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "--reconnect", "--socket"]);
    command.arg(daemon.socket()).args(["-w", "/dev/null"]).uid(NOBODY).gid(NOBODY);
    let Ok(child) = command.spawn() else {
        return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}");
    };
    let mut nobody = Reader { child: Some(child), file: PathBuf::new() };
    wait_for("nobody to read", || daemon.readers().len() == 1);
    daemon.write_rules("[[access]]\nusers = [\"no-such-user\"]\n");
    daemon.live.as_ref().unwrap().signal("HUP");
    wait_for("nobody to be refused", || daemon.status()["refused"].as_u64() > Some(1));
    daemon.write_rules(ALL);
    daemon.live.as_ref().unwrap().signal("HUP");
    wait_for("nobody to read again", || daemon.readers().len() == 1);
    let frames = frames(25, 100);
    daemon.send(&frames);
    daemon.settle(100, 1);
    nobody.signal("INT");
    let finished = nobody.end().succeeded();
    assert_eq!(finished.account().output("written"), 100);
    assert_eq!(unknown(&finished), ["while there was no daemon"]);
    for told in ["the rules no longer let you read as you did", "it is asked again until it lets us read"] {
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
    let (_, told) = daemon.end();
    assert!(told.contains("\"no-such-user\", and there is none"), "{told}");
}

/// Sent packets never come in front of the stack, so the capture takes none; it starts all the same.
#[test]
fn outbound_takes_no_packet_in_front() {
    const TEST: &str = "outbound_takes_no_packet_in_front";
    if !crate::xdp::can_use_xdp(TEST) {
        return;
    }
    let Some(mut daemon) = Daemon::new(TEST) else { return };
    let (socket, netns) = (daemon.socket(), daemon.namespace.name());
    let capture = format!("interfaces = [\"xdp:{FAR}\"]\nnetns = {netns:?}\nfilter = \"outbound\"");
    let rules = format!("socket = {socket:?}\n[[capture]]\nname = \"office\"\n{capture}\n");
    fs::write(daemon.rules(), rules).unwrap();
    let mut command = tapline(["serve", "--json", "--config"]);
    command.arg(daemon.rules());
    daemon.live = Some(Live::start_command(&daemon.namespace, 0, &mut command));
    daemon.wait_until_served();
    let reader = daemon.reader("a.pcapng", &[]);
    daemon.send(&frames(1, 100));
    assert!(reader.interrupt().0.is_empty());
    daemon.end();
}
