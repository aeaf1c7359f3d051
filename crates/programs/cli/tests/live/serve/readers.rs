//! Readers over time: the past, the end, another daemon, several workers, wake-ups.

use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp};

use super::*;

/// Attaches by hand: the descriptors of the first buffer.
fn descriptors(daemon: &Daemon) -> (Channel, [OwnedFd; 3]) {
    let mut channel = Channel::new(UnixStream::connect(daemon.socket()).unwrap(), true);
    channel.send(&Request::Hello { version: VERSION, program: "test".to_owned() }, &[]).unwrap();
    assert!(matches!(channel.receive().unwrap(), Reply::Hello { .. }));
    let attach =
        AttachRequest { capture: "office".to_owned(), policy: Policy::Lossy, ..AttachRequest::default() };
    channel.send(&Request::Attach(attach), &[]).unwrap();
    assert!(matches!(channel.receive().unwrap(), Reply::Attached(_)));
    assert_eq!(channel.receive::<Reply>().unwrap(), Reply::Buffer(0));
    let parts = std::array::from_fn(|_| channel.take_descriptor().expect("three came"));
    (channel, parts)
}

#[test]
fn shared_buffers_are_read_only_and_sealed() {
    let Some(mut daemon) = Daemon::start("shared_buffers_are_read_only_and_sealed", &[]) else { return };
    let honest = daemon.reader("honest.pcap", &[]);
    let (_channel, [buffer, index, _bell]) = descriptors(&daemon);
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&buffer));
    let buffer_file = File::from(buffer.try_clone().unwrap());
    for file in [&buffer_file, &File::options().read(true).write(true).open(again).unwrap()] {
        assert!(file.set_len(0).is_err() && file.set_len(1 << 40).is_err());
        assert!(file.write_at(b"x", 0).is_err());
        assert!(
            Memfd::from_descriptor(OwnedFd::from(file.try_clone().unwrap())).map().is_err(),
            "mapped for writing"
        );
    }
    // The index is ours to write, and only ourselves to hurt: random words all over it.
    let index_file = File::from(index);
    assert!(index_file.set_len(0).is_err());
    let noise: Vec<u8> = (0..4096 * 4).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    index_file.write_at(&noise, 128).unwrap();
    let frames = frames(15, 3000);
    daemon.send(&frames);
    daemon.settle(3000, 1);
    let (packets, _) = honest.interrupt();
    assert!(packets == frames, "a damaged index harms no other reader");
    daemon.end();
}

#[test]
fn a_reader_can_begin_in_the_past() {
    let Some(mut daemon) = Daemon::start("a_reader_can_begin_in_the_past", &["--history", "udp or tcp"])
    else {
        return;
    };
    let oracles = Oracles::start(&daemon, &["udp or tcp", "udp"]);
    daemon.send(&frames(16, 2000));
    let oracles = oracles.end();
    let stored = oracles[0].len() as u64;
    daemon.settle(stored, 0);
    let since = [&["--since", "all"][..], &["--since", "1h", "udp"]];
    for (arguments, expected) in since.into_iter().zip(oracles) {
        let reader = daemon.reader("later.pcap", arguments);
        daemon.settle(stored, 1);
        let (packets, tap) = reader.interrupt();
        assert!(packets == expected && !packets.is_empty(), "{arguments:?}: {tap}");
    }
    daemon.end();
}

#[test]
fn the_past_may_be_more_than_an_index_holds() {
    let Some(mut daemon) =
        Daemon::start("the_past_may_be_more_than_an_index_holds", &["--history", "", "--buffer", "128"])
    else {
        return;
    };
    // An index has 65,536 places; and packets go on coming while the past is read.
    let (past, present) = (frames(31, 100_000), frames(32, 20_000));
    daemon.send(&past);
    daemon.settle(past.len() as u64, 0);
    let reader = daemon.reader("all.pcap", &["--since", "all"]);
    daemon.send(&present);
    daemon.settle((past.len() + present.len()) as u64, 1);
    let (packets, tap) = reader.interrupt();
    let all: Vec<_> = past.into_iter().chain(present).collect();
    assert!(packets == all, "{} of {}: {tap}", packets.len(), all.len());
    daemon.end();
}

#[test]
fn the_end_of_the_daemon_is_told() {
    let Some(mut daemon) = Daemon::start("the_end_of_the_daemon_is_told", &[]) else { return };
    let mut reader = daemon.reader("orderly.pcap", &[]);
    let frames = frames(17, 1000);
    daemon.send(&frames);
    daemon.settle(1000, 1);
    daemon.end();
    reader.end().succeeded().account();
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    assert!(!daemon.socket().exists());

    let mut daemon = daemon.begin(&[]);
    let mut reader = daemon.reader("sudden.pcap", &[]);
    daemon.send(&frames);
    daemon.settle(1000, 1);
    daemon.live.as_ref().unwrap().signal("KILL");
    let finished = reader.end();
    assert_eq!(finished.account().output("written"), 1000);
    assert_eq!(unknown(&finished), ["after the last report of the daemon"]);
    finished.failed_saying(&["tap:office: the daemon is gone; all that it had stored was read"]);
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    // The socket that it left is replaced.
    daemon.live = None;
    let mut daemon = daemon.begin(&[]);
    let list = |arguments: [&str; 3]| {
        let listed = Finished::new(tapline(arguments).arg("--socket").arg(daemon.socket()).output().unwrap());
        String::from_utf8(listed.succeeded().stdout).unwrap()
    };
    let listed: Value = serde_json::from_str(&list(["capture", "-D", "--json"])).unwrap();
    let office = listed.as_array().unwrap().last().unwrap();
    assert_eq!((&office["name"], &office["kind"]), (&"tap:office".into(), &"tap".into()), "{office}");
    assert_eq!(office["interfaces"][0]["name"], FAR);
    assert!(list(["capture", "-Li", "tap:office"]).contains("EN10MB (Ethernet)"));
    let second = tapline(["serve", "-i", "lo", "--socket"]).arg(daemon.socket()).output().unwrap();
    Finished::new(second).failed_saying(&["another daemon listens there"]);
    daemon.end();
    let arguments = ["capture", "-i", "tap:office", "--socket", daemon.folder.path().to_str().unwrap()];
    run(arguments).failed_saying(&["no daemon at", "tapline serve"]);
}

/// A daemon that does not answer neither blocks a reader nor makes it report that nothing was lost.
#[test]
fn a_stopped_daemon_holds_no_reader() {
    let Some(mut daemon) = Daemon::start("a_stopped_daemon_holds_no_reader", &[]) else { return };
    let mut reader = daemon.reader("stopped.pcap", &[]);
    let frames = frames(23, 1000);
    daemon.send(&frames);
    daemon.settle(1000, 1);
    daemon.live.as_ref().unwrap().signal("STOP");
    reader.signal("INT");
    let finished = reader.end().succeeded();
    assert_eq!(unknown(&finished), ["after the last report of the daemon"]);
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    let status = tapline(["status", "--socket"]).arg(daemon.socket()).output().unwrap();
    Finished::new(status).failed_saying(&["the daemon does not answer"]);
    daemon.live.as_ref().unwrap().signal("CONT");
    daemon.end();
}

/// Ctrl-C after the last packet loses none, though the kernel has not handed its block over yet.
#[test]
fn the_last_packet_before_the_end_is_read() {
    let Some(mut daemon) = Daemon::start("the_last_packet_before_the_end_is_read", &[]) else { return };
    let frames = frames(28, 10);
    for (at, frame) in frames.iter().enumerate() {
        let arguments: &[&str] = if at % 2 == 0 { &[] } else { &["--immediate-mode"] };
        let reader = daemon.reader(&format!("{at}.pcap"), arguments);
        daemon.send(std::slice::from_ref(frame));
        assert_eq!(reader.interrupt().0, std::slice::from_ref(frame), "{at}");
    }
    daemon.end();
}

/// Workers have a buffer each. Their packets come in the order in which they were captured, also when there is a pause
/// of some milliseconds after each, so that one worker's are often there before older ones of the other. Readers wait
/// 50 ms for a worker. A machine may be too busy for that once, but not each time.
#[test]
fn packets_of_several_workers_come_in_order() {
    let Some(mut daemon) = Daemon::with_rules("packets_of_several_workers_come_in_order", "workers = 2\n")
    else {
        return;
    };
    let frames = frames(27, 200);
    let mut sender = Sender::near(&daemon.namespace).unwrap();
    let mut late = 0;
    for round in 1..=20 {
        let looker = daemon.reader("looker.pcap", &["--immediate-mode"]);
        let sleeper = daemon.reader("sleeper.pcap", &[]);
        assert_eq!(daemon.readers().len(), 2);
        sender.send(&frames, 200, Pace::PerSecond(400)).unwrap();
        daemon.settle(200 * round, 2);
        late = 0;
        for reader in [looker, sleeper] {
            let (packets, account) = reader.interrupt();
            assert_eq!((packets.len(), &account["offered"]), (200, &200.into()));
            late += packets.iter().zip(&frames).filter(|(packet, frame)| packet != frame).count();
        }
        if late == 0 {
            break;
        }
    }
    assert_eq!(late, 0, "in the last of 20 rounds as in all before");
    daemon.end();
}

/// SIGUSR1: what became of packets up to now, while it goes on.
#[test]
fn the_account_is_told_on_the_way() {
    let Some(daemon) = Daemon::new("the_account_is_told_on_the_way") else { return };
    let mut command =
        tapline(["serve", "--netns", daemon.namespace.name(), "-i", FAR, "--name", "office", "--json"]);
    let told = daemon.file("told");
    command.arg("--socket").arg(daemon.socket()).stderr(File::create(&told).unwrap());
    let mut daemon = daemon.begin_command(&mut command);
    let row = || {
        let told = fs::read_to_string(&told).unwrap();
        told.lines().find(|line| line.contains("tap:office  delivered")).map(str::to_owned)
    };
    let reader = daemon.reader("all.pcap", &[]);
    let frames = frames(24, 1234);
    daemon.send(&frames);
    daemon.settle(1234, 1);
    daemon.live.as_ref().unwrap().signal("USR1");
    // A signal is obeyed some time after it was sent: packets that come before are in the account too.
    wait_for("the account", || row().is_some());
    daemon.send(&frames);
    daemon.settle(2468, 1);
    let (packets, _) = reader.interrupt();
    assert_eq!(packets.len(), 2468);
    let (account, _) = daemon.end();
    assert_eq!(account["stored"], 2468);
    assert!(row().is_some_and(|row| row.contains("1,234")), "{row:?}", row = row());
}

#[test]
fn a_reader_comes_back_to_the_next_daemon() {
    let Some(mut daemon) = Daemon::start("a_reader_comes_back_to_the_next_daemon", &[]) else { return };
    let mut reader = daemon.reader("all.pcapng", &["--reconnect", "--policy", "leased", "tcp or udp"]);
    let oracles = Oracles::start(&daemon, &["tcp or udp"]);
    let frames = frames(21, 1000);
    daemon.send(&frames);
    let wanted = oracles.end().remove(0);
    daemon.settle(wanted.len() as u64, 1);
    for signal in ["KILL", "INT"] {
        let live = daemon.live.take().unwrap();
        live.signal(signal);
        let _ = live.wait();
        daemon = daemon.begin(&[]);
        wait_for("the reader to be back", || daemon.readers().len() == 1);
        daemon.send(&frames);
        daemon.settle(wanted.len() as u64, 1);
    }
    reader.signal("INT");
    let finished = reader.end().succeeded();
    let account = finished.account();
    assert!(bytes_of(packets_of(&reader.file)) == [&wanted[..], &wanted, &wanted].concat());
    assert_eq!(account.interface("tap:office")["tap"]["offered"], 3 * wanted.len());
    assert_eq!(unknown(&finished), ["while there was no daemon"]);
    assert_eq!(finished.stderr.matches("the daemon is there again").count(), 2, "{}", finished.stderr);
    // Interfaces of the next daemon that have other numbers keep their names.
    let mut reader = daemon.reader("other.pcapng", &["--reconnect", "tcp or udp"]);
    daemon.end();
    let mut command =
        tapline(["serve", "--netns", daemon.namespace.name(), "-i", "lo", "-i", FAR, "--name", "office"]);
    command.arg("--socket").arg(daemon.socket());
    let other = Live::start_command(&daemon.namespace, 1, &mut command);
    wait_for("the reader to be back", || daemon.readers().len() == 1);
    daemon.send(&frames);
    daemon.settle(wanted.len() as u64, 1);
    reader.signal("INT");
    reader.end().succeeded();
    assert!(bytes_of(packets_of(&reader.file)) == wanted);
    let info = tapline(["info", "--json"]).arg(&reader.file).output().unwrap();
    let first = info.stdout.split(|&byte| byte == b'\n').next().unwrap();
    let info: Value = serde_json::from_slice(first).unwrap();
    let interfaces = info["interfaces"].as_array().expect("a list");
    let packets_of = |name: &str| {
        interfaces.iter().filter(|i| i["name"] == name).map(|i| i["packets"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(
        (packets_of(FAR), packets_of("lo")),
        (vec![Some(wanted.len() as u64)], vec![Some(0)]),
        "{info}"
    );
    drop(other);
}

#[test]
fn a_file_is_served_whole_to_waiting_readers() {
    if !namespaces_or_skip("a_file_is_served_whole_to_waiting_readers") {
        return;
    }
    let namespace = Namespace::with_pair("serve").unwrap();
    let mut daemon = Daemon { live: None, folder: tempfile::tempdir().unwrap(), namespace };
    let file = daemon.file("in.pcap");
    // A batch of these is several times the buffer.
    let frames: Vec<Vec<u8>> = (0..700_u32).map(|n| n.to_be_bytes().repeat(15_000)).collect();
    write(&file, &frames);
    let mut command = tapline(["serve", "--json", "--name", "office", "--buffer", "4", "-r"]);
    command.arg(&file).arg("--socket").arg(daemon.socket()).stderr(Stdio::piped());
    daemon.live = Some(Live::start_command(&daemon.namespace, 0, &mut command));
    daemon.wait_until_served();
    let mut reader = daemon.reader_of_file("all.pcap");
    reader.end().succeeded().account();
    assert!(bytes_of(packets_of(&reader.file)) == frames);
    let mut small = Channel::new(UnixStream::connect(daemon.socket()).unwrap(), true);
    small.send(&Request::Hello { version: VERSION, program: "test".to_owned() }, &[]).unwrap();
    assert!(matches!(small.receive().unwrap(), Reply::Hello { .. }));
    let attach = AttachRequest {
        capture: "office".into(),
        policy: Policy::Lossless,
        entries: 128,
        ..AttachRequest::default()
    };
    small.send(&Request::Attach(attach), &[]).unwrap();
    let Reply::Error(text) = small.receive().unwrap() else { panic!("it was taken") };
    assert!(text.contains("a lossless reader needs 256"), "{text}");
    let (account, _) = daemon.end();
    assert_eq!((&account["delivered"], &account["ended"]), (&700.into(), &"".into()), "{account}");
}

/// A reader that is woken seldom gets every packet: when traffic stops, when its index fills, and while others come
/// that are woken at once.
#[test]
fn a_reader_with_rare_wakeups_gets_every_packet() {
    let Some(mut daemon) = Daemon::start("a_reader_with_rare_wakeups_gets_every_packet", &[]) else { return };
    let patient = daemon.reader("patient.pcap", &[]);
    // Few packets, and then none that would wake the reader.
    let first = frames(21, 5);
    daemon.send(&first);
    daemon.settle(5, 1);
    let second = frames(22, 40_000);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| daemon.send(&second));
        let mut hasty = 0;
        while !sending.is_finished() {
            let name = format!("hasty{hasty}.pcap");
            let mut command = tapline(["capture", "-i", "tap:office", "-U", "-c", "3", "--socket"]);
            command.arg(daemon.socket()).arg("-w").arg(daemon.file(&name));
            let child = command.spawn().expect("the program was built");
            let mut reader = Reader { child: Some(child), file: daemon.file(&name) };
            wait_for("packets of the hasty reader", || {
                let child = reader.child.as_mut().expect("it runs");
                child.try_wait().expect("our child").is_some() || sending.is_finished()
            });
            drop(reader);
            hasty += 1;
        }
        assert!(hasty > 0);
    });
    daemon.settle(40_005, 1);
    let (packets, tap) = patient.interrupt();
    assert_eq!((&tap["overwritten"], &tap["index_full"]), (&0.into(), &0.into()), "{tap}");
    assert!(packets == [first, second].concat());
    daemon.end();
}

/// A reader that sleeps on its descriptor is woken by its wish, or before it loses packets; also when nothing more
/// comes.
#[test]
fn a_wakeup_follows_the_requested_amount() {
    let Some(mut daemon) = Daemon::start("a_wakeup_follows_the_requested_amount", &[]) else { return };
    let attach = AttachRequest {
        capture: "office".to_owned(),
        entries: 256,
        delay_ms: 20,
        ..AttachRequest::default()
    };
    let client = Client::connect(&daemon.socket(), "test").unwrap();
    let mut tap = client.attach(&attach).unwrap();
    let mut sent = 0;
    for (min_bytes, max_delay, count) in [
        (u64::MAX, Duration::from_millis(100), 3),
        (u64::MAX, Duration::ZERO, 1),
        (2000, Duration::MAX, 200),
        // A quarter of the index.
        (u64::MAX, Duration::MAX, 70),
    ] {
        tap.set_wake(WakeThreshold { min_bytes, min_packets: 0, max_delay });
        assert_eq!(tap.advance(Duration::ZERO).unwrap(), Advance::Idle);
        let frames = frames(30, count);
        daemon.send(&frames);
        sent += count as u64;
        let mut read = 0;
        while read < count {
            let mut poller = Poller::new();
            tap.descriptors().for_each(|descriptor| poller.add(descriptor));
            assert_eq!(poller.wait(PATIENCE).unwrap(), 1, "not woken: {min_bytes} {max_delay:?}");
            // Packets that came in several batches may leave too few for another wake. The threshold is sent when an
            // advance finds nothing, so it arrives before the last of them.
            tap.set_wake(WakeThreshold::IMMEDIATE);
            while tap.advance(Duration::ZERO).unwrap() == Advance::Batch {
                read += tap.batch().len();
            }
        }
        assert_eq!(read, count);
    }
    daemon.settle(sent, 1);
    tap.stop().unwrap();
    while tap.advance(PATIENCE).unwrap() != Advance::End {}
    drop(tap);
    daemon.end();
}

/// The flow of a frame, both directions alike; fragments by themselves.
fn flow_of(frame: &[u8]) -> u64 {
    tapline_packet::headers::Headers::parse_data(tapline_packet::LinkType::ETHERNET, frame)
        .flow_hash(frame, 5)
}

#[test]
fn readers_of_a_group_share_the_packets() {
    const GROUP: &str = "tap:office/ids";
    let Some(mut daemon) = Daemon::start("readers_of_a_group_share_the_packets", &[]) else { return };
    let all = daemon.reader("all.pcap", &[]);
    let mut members: Vec<Reader> =
        ["a.pcap", "b.pcap", "c.pcap"].iter().map(|file| daemon.reader_of(GROUP, file, &[])).collect();
    let first = frames(41, 3000);
    daemon.send_in_parts(&first, 0, 4);
    // One leaves: the others keep their flows.
    let (third, account) = members.pop().expect("three").interrupt_as(GROUP);
    assert_eq!(account["offered"], third.len() as u64);
    wait_for("a reader to leave", || daemon.readers().len() == 3);
    daemon.send_in_parts(&first, 3000, 3);
    let shares: Vec<Vec<Vec<u8>>> = members
        .into_iter()
        .map(|reader| {
            let (packets, account) = reader.interrupt_as(GROUP);
            assert_eq!(
                account["offered"],
                packets.len() as u64,
                "no other reader's packets are offered: {account}"
            );
            packets
        })
        .collect();
    let (everything, _) = all.interrupt();
    assert_eq!(everything.len(), 6000);
    assert_eq!(
        third.len() + shares.iter().map(Vec::len).sum::<usize>(),
        6000,
        "the group's sum is the capture"
    );
    assert!(shares.iter().chain([&third]).all(|share| share.len() > 300), "each has a share");
    let of: Vec<std::collections::HashSet<u64>> =
        shares.iter().map(|share| share.iter().map(|frame| flow_of(frame)).collect()).collect();
    assert!(of[0].is_disjoint(&of[1]), "a flow has one reader");
    let gone: std::collections::HashSet<u64> = third.iter().map(|frame| flow_of(frame)).collect();
    for (share, flows) in shares.iter().zip(&of) {
        for flow in flows.difference(&gone) {
            let times = |packets: &[Vec<u8>]| packets.iter().filter(|frame| flow_of(frame) == *flow).count();
            assert_eq!(times(share), 2 * times(&first), "a flow of a reader that stayed is all its own");
        }
    }
    // Another way to share, and the past, are refused.
    let refused = |arguments: &[&str], expected: &str| {
        let mut command = tapline(["capture", "-c", "1", "--socket"]);
        finish(command.arg(daemon.socket()).args(arguments)).failed_saying(&[expected]);
    };
    let _member = daemon.reader_of(GROUP, "d.pcap", &[]);
    refused(
        &["-i", "tap:office/ids?by=host"],
        "the group ids shares by flow: write ?by=flow behind its name",
    );
    refused(&["-i", "tap:office/ids?by=port"], "?by=flow, host, vlan, inner, address, turn or first:NUMBER");
    refused(&["-i", "tap:office/ids", "--since", "all"], "a group shares packets that come");
    daemon.end();
}

/// The daemon's classification reaches the reader's output.
#[test]
fn labels_are_printed_and_in_json() {
    let Some(mut daemon) = Daemon::start("labels_are_printed_and_in_json", &[]) else { return };
    let capture = |form: &[&str]| {
        let known = daemon.readers().len();
        let mut command = tapline(["capture", "-i", "tap:office", "-n", "--socket"]);
        command.arg(daemon.socket()).args(["--label", "udp port 53", "--label", "udp"]).args(form);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let reader = Reader { child: Some(command.spawn().expect("it is built")), file: PathBuf::new() };
        wait_for("a reader", || daemon.readers().len() > known);
        reader
    };
    let mut readers = [capture(&["--json"]), capture(&[])];
    let (a, b) = (Host::number(1), Host::number(2));
    let ips = IpPair::between(&a, &b, IpVersion::V4);
    let udp = |dst| Ethernet::between(&a, &b).ip(&Udp { src: 9, dst }.packet(ips, b"twelve bytes"));
    let tcp = Ethernet::between(&a, &b).ip(&Tcp { src: 9, dst: 80, ..Tcp::default() }.packet(ips, b""));
    daemon.send(&[udp(53), udp(99), tcp]);
    daemon.settle(3, 2);
    let [json, text] = readers.each_mut().map(|reader| {
        reader.signal("INT");
        String::from_utf8(reader.end().succeeded().stdout).expect("text")
    });
    let label = |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["label"].clone();
    let labels: Vec<Value> = json.lines().take(3).map(label).collect();
    assert_eq!(labels, [Value::from(1), Value::from(2), Value::Null], "{json}");
    let texts: Vec<&str> = text.lines().map(|line| line.split(' ').nth(1).unwrap_or_default()).collect();
    assert_eq!(texts, ["label", "label", "IP"], "{text}");
    daemon.end();
}

/// Packets of a pause go nowhere and are counted; a client without the right to pause is refused.
#[test]
fn a_paused_capture_captures_nothing() {
    let Some(mut daemon) = Daemon::start("a_paused_capture_captures_nothing", &[]) else { return };
    let reader = daemon.reader("all.pcap", &[]);
    let control = |action: &str| {
        let mut command = tapline(["control", "office", action, "--socket"]);
        finish(command.arg(daemon.socket()))
    };
    let frames = frames(17, 900);
    daemon.send(&frames[..300]);
    daemon.settle(300, 1);
    control("resume").failed_saying(&["not paused"]);
    control("pause").succeeded();
    control("pause").failed_saying(&["paused already"]);
    daemon.send(&frames[300..600]);
    wait_for("packets of the pause", || daemon.status()["captures"][0]["paused"] == 300);
    assert_eq!(daemon.status()["captures"][0]["is_paused"], true);
    control("resume").succeeded();
    daemon.send(&frames[600..]);
    daemon.settle(900, 1);
    let (packets, _) = reader.interrupt();
    assert!(packets == [&frames[..300], &frames[600..]].concat());
    daemon.end();
}
