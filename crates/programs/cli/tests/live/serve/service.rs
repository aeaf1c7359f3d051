//! The process of the daemon: rights, confinement, descriptors, log, the service manager.

use super::*;

/// As under sudo: the socket is made with all rights in root's folder, and belongs to the user that the daemon then
/// runs as.
#[test]
fn the_daemon_serves_as_the_sudo_user() {
    const TEST: &str = "the_daemon_serves_as_the_sudo_user";
    let Some(daemon) = Daemon::new(TEST).filter(|_| root_or_skip(TEST)) else { return };
    let place =
        ["serve", "--netns", daemon.namespace.name(), "-i", FAR, "--name", "office", "--json", "--socket"];
    let mut command = tapline(place);
    command.arg(daemon.socket()).env("SUDO_UID", NOBODY.to_string());
    let mut daemon = daemon.begin_command(&mut command);
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.live.as_ref().unwrap().pid())).unwrap();
    assert!(status.contains(&format!("Uid:\t{NOBODY}\t{NOBODY}")), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    assert_eq!(fs::metadata(daemon.socket()).unwrap().uid(), NOBODY);
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = tapline(["capture", "-i", "tap:office", "--json", "-w", "/dev/null", "--socket"]);
    match command.arg(daemon.socket()).uid(NOBODY).gid(NOBODY).spawn() {
        Ok(child) => {
            let nobody = Reader { child: Some(child), file: PathBuf::new() };
            wait_for("nobody to read", || daemon.readers().len() == 1);
            daemon.send(&frames(19, 500));
            daemon.settle(500, 1);
            assert_eq!(daemon.readers()[0]["counts"]["delivered"], 500);
            nobody.signal("INT");
        }
        Err(error) => eprintln!("skipped in part: {TEST}: nobody may not run {TAPLINE}: {error}"),
    }
    daemon.end();
}

/// With `-Z` the daemon runs as a user whose other processes it knows nothing of.
#[test]
fn the_user_that_it_becomes_has_no_right() {
    const TEST: &str = "the_user_that_it_becomes_has_no_right";
    let Some(daemon) = Daemon::new(TEST).filter(|_| root_or_skip(TEST)) else { return };
    daemon.write_rules("");
    let mut command = tapline(["serve", "--json", "-Z", "nobody", "--config"]);
    command.arg(daemon.rules());
    let mut daemon = daemon.begin_command(&mut command);
    let pid = daemon.live.as_ref().unwrap().pid();
    assert_eq!(fs::metadata(daemon.socket()).unwrap().uid(), 0, "the socket is of the user who started it");
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Run by the shell: the program of the test may lie where nobody may not look.
    let as_nobody = |command: &mut Command| finish(command.uid(NOBODY).gid(NOBODY));
    let mut ask = tapline(["capture", "-i", "tap:office", "-c", "1", "-w", "/dev/null", "--socket"]);
    match ask.arg(daemon.socket()).uid(NOBODY).gid(NOBODY).output() {
        Ok(output) => Finished::new(output).failed_saying(&["and no other: ask the administrator"]),
        Err(error) => eprintln!("skipped in part: {TEST}: nobody may not run {TAPLINE}: {error}"),
    }
    // The daemon's descriptors and memory are out of reach too.
    let looks =
        as_nobody(Command::new("sh").args(["-c", &format!("ls /proc/{pid}/fd; cat /proc/{pid}/maps")]));
    assert!(!looks.status.success() && looks.stdout.is_empty(), "{}", String::from_utf8_lossy(&looks.stdout));
    assert_eq!(daemon.readers().len(), 0);
    let (_, told) = daemon.end();
    assert!(!told.contains("reads office"), "{told}");
}

/// Processor time of a process so far, in ticks of a hundredth of a second (proc(5)).
fn ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
    [11, 12].iter().map(|&at| fields[at].parse::<u64>().unwrap()).sum()
}

/// More connections than descriptors: they cost next to nothing, and when they are gone all is as before.
#[test]
fn without_descriptors_it_rests_and_comes_back() {
    const TEST: &str = "without_descriptors_it_rests_and_comes_back";
    let Some(daemon) = Daemon::new(TEST) else { return };
    let mut command = Command::new("sh");
    let serve = format!(
        "ulimit -n 64; exec {TAPLINE} serve --netns {} -i {FAR} --name office --json --socket {}",
        daemon.namespace.name(),
        daemon.socket().display()
    );
    command.args(["-c", &serve]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut daemon = daemon.begin_command(&mut command);
    let pid = daemon.live.as_ref().unwrap().pid();
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = open();
    let connections: Vec<UnixStream> =
        (0..150).map(|_| UnixStream::connect(daemon.socket()).expect("it listens")).collect();
    wait_for("connections to be accepted", || open() > before);
    daemon.live.as_ref().unwrap().wait_until_idle();
    // On a busy machine a process that spins gets a share of the processor only, so the bound is far below one.
    let (start, began) = (ticks(pid), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let (used_ms, took_ms) = ((ticks(pid) - start) * 10, began.elapsed().as_millis() as u64);
    assert!(used_ms * 20 < took_ms, "{used_ms} ms of processor time in {took_ms} ms");
    drop(connections);
    wait_for("connections to be closed", || open() <= before);
    // Readers, until none more are let in: each that is has what it needs, each that is not is told why.
    let mut taps = Vec::new();
    let refusal = loop {
        let Ok(client) = Client::connect(&daemon.socket(), "many") else { break "no connection".to_owned() };
        match client.attach(&AttachRequest { capture: "office".to_owned(), ..AttachRequest::default() }) {
            Ok(tap) => taps.push(tap),
            Err(error) => break error.to_string(),
        }
        assert!(taps.len() < 64, "64 descriptors are not enough for 64 readers");
    };
    assert!(
        !taps.is_empty() && (refusal.contains("no descriptors left") || refusal == "no connection"),
        "{refusal}"
    );
    taps.clear();
    wait_for("readers to leave", || open() <= before);
    let reader = daemon.reader("after.pcap", &[]);
    daemon.send(&frames(23, 300));
    daemon.settle(300, 1);
    reader.interrupt();
    let (_, told) = daemon.end();
    assert!(told.contains("no descriptors"), "{told}");
}

/// A client that connects again and again, with long filters and names that would forge lines of the log.
#[test]
fn coming_and_going_fills_no_log() {
    const ROUNDS: usize = 150;
    let begun = std::time::Instant::now();
    let Some(mut daemon) = Daemon::start("coming_and_going_fills_no_log", &[]) else { return };
    let filter = vec!["port 53"; 60].join(" or ");
    let attach = AttachRequest { capture: "office".to_owned(), filter, ..AttachRequest::default() };
    for round in 0..ROUNDS {
        let client = Client::connect(&daemon.socket(), "busy").unwrap();
        drop(client.attach(&attach).unwrap());
        if round % 3 == 0 {
            let mut client = UnixStream::connect(daemon.socket()).unwrap();
            let _ = client.write_all(
                b"{\"hello\":{\"version\":1,\"program\":\"x\"}}\n{\"a\\ntapline: forged\\u001b[2J\":1}\n",
            );
            let mut answer = String::new();
            let _ = client.read_to_string(&mut answer);
        }
    }
    wait_for("readers to leave", || daemon.readers().is_empty());
    let (_, told) = daemon.end();
    let told: String = told
        .lines()
        .filter(|line| line.contains("user 0") || line.contains("forged"))
        .collect::<Vec<_>>()
        .join("\n");
    // 20 lines a minute, and one that sums up the rest: a slow machine takes more than one minute.
    let minutes = begun.elapsed().as_secs() as usize / 60 + 1;
    let count = told.lines().count();
    assert!(count <= 22 * minutes && told.len() < minutes << 14, "{count} lines of {} bytes", told.len());
    assert!(
        !told.contains('\u{1b}') && !told.lines().any(|line| line.starts_with("tapline: forged")),
        "{told}"
    );
    // Where the rounds take more than a minute, lines of the next one follow.
    let is_sum = |line: &str| {
        line.contains("user 0: not logged one by one: ") && line.contains("came ") && line.contains("left ")
    };
    assert!(told.lines().any(is_sum), "{told}");
}

#[test]
fn it_is_confined_and_tells_the_service_manager() {
    const TEST: &str = "it_is_confined_and_tells_the_service_manager";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("serve").unwrap();
    let mut daemon = Daemon { live: None, folder: tempfile::tempdir().unwrap(), namespace };
    let manager = UnixDatagram::bind(daemon.file("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut message = [0; 256];
        let len = manager.recv(&mut message).expect("it tells");
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    daemon.write_rules("");
    let mut command = tapline(["serve", "--json", "--config"]);
    command.arg(daemon.rules()).env("NOTIFY_SOCKET", daemon.file("notify"));
    daemon.live = Some(Live::start_command(&daemon.namespace, 1, &mut command));
    assert_eq!(told(), "READY=1\n");
    let pid = daemon.live.as_ref().unwrap().pid();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for line in
            ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"]
        {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    // Rules are read again all the same, and an interface that is created again is captured again.
    daemon.live.as_ref().unwrap().signal("HUP");
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(told(), "READY=1\n");
    let reader = daemon.reader("all.pcap", &[]);
    daemon.send(&frames(19, 300));
    daemon.settle(300, 1);
    daemon.namespace.ip(&["link", "delete", FAR]).unwrap();
    daemon.namespace.add_pair(NEAR, FAR).unwrap();
    wait_for("the interface to be captured again", || {
        let before = daemon.readers()[0]["counts"]["delivered"].as_u64().unwrap();
        daemon.send(&frames(20, 10));
        let after = daemon.readers()[0]["counts"]["delivered"].as_u64().unwrap();
        after > before
    });
    reader.interrupt();
    daemon.live.as_ref().unwrap().signal("INT");
    assert_eq!(told(), "STOPPING=1\n");
    let finished = daemon.live.take().unwrap().wait().succeeded();
    assert!(!finished.stderr.contains("stay within reach"), "{}", finished.stderr);
}

/// Units in contrib/systemd, each with the most exposure that `systemd-analyze security` may find, in tenths of its ten.
const UNITS: [(&str, u32); 7] = [
    ("tapline.service", 25),
    ("tapline-record@.service", 25),
    ("tapline-probe@.service", 25),
    ("tapline-watch@.service", 25),
    ("tapline-collect.service", 15),
    ("tapline-metrics.service", 15),
    ("tapline-view.service", 15),
];

#[test]
fn units_are_valid_and_confined() {
    if !program_or_skip("units_are_valid_and_confined", "systemd-analyze") {
        return;
    }
    let contrib = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contrib/systemd");
    let folder = tempfile::tempdir().unwrap();
    for (name, exposure_max) in UNITS {
        let file = folder.path().join(name);
        // The path of the program and the manual are those of an installation.
        let text =
            fs::read_to_string(format!("{contrib}/{name}")).unwrap().replace("/usr/bin/tapline", TAPLINE);
        let lines = text.lines().filter(|line| !line.starts_with("Documentation=man:"));
        fs::write(&file, lines.collect::<Vec<_>>().join("\n") + "\n").unwrap();
        let finished = finish(Command::new("systemd-analyze").arg("verify").arg(&file));
        let ours = finished.stderr.lines().filter(|line| line.contains("tapline"));
        assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
        let mut security = Command::new("systemd-analyze");
        security.args(["security", "--offline=true", &format!("--threshold={exposure_max}"), "--no-pager"]);
        finish(security.arg(&file)).succeeded();
    }
}

#[test]
fn names_of_hosts_are_not_asked_for() {
    let Some(mut daemon) = Daemon::start("names_of_hosts_are_not_asked_for", &[]) else { return };
    let mut command = tapline(["capture", "-i", "tap:office", "-w", "/dev/null", "--socket"]);
    let refused = finish(command.arg(daemon.socket()).arg("udp and host www.example.com"));
    refused.failed_saying(&["unknown host 'www.example.com'", "DNS is not asked there"]);
    // Nor is one compiled that takes others' time.
    let long = vec!["host 10.0.0.1"; 600].join(" or ");
    let mut command = tapline(["capture", "-i", "tap:office", "-w", "/dev/null", "--socket"]);
    let refused = finish(command.arg(daemon.socket()).arg(long));
    refused.failed_saying(&["8192 are the most"]);
    daemon.reader("local.pcap", &["host localhost"]).interrupt();
    daemon.end();
}

#[test]
fn garbage_is_refused_counted_and_told_once() {
    let Some(mut daemon) = Daemon::start("garbage_is_refused_counted_and_told_once", &[]) else { return };
    let hello = format!("{{\"hello\":{{\"version\":{VERSION},\"program\":\"x\\u001b[2J\"}}}}\n");
    let attach = "{\"attach\":{\"capture\":\"office\",\"entries\":7}}\n";
    let bad_filter = "{\"attach\":{\"capture\":\"office\",\"filter\":\"tcp port\"}}\n";
    let lines: [(&str, bool); 6] = [
        ("garbage\n", true),
        ("{\"attach\":{\"entries\":-1}}\n", true),
        ("{\"status\":{}}\n", false),
        ("{\"hello\":{\"version\":99,\"program\":\"\"}}\n", false),
        (attach, false),
        (bad_filter, false),
    ];
    for (line, ends) in lines {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        if [attach, bad_filter].contains(&line) {
            stream.write_all(hello.as_bytes()).unwrap();
        }
        stream.write_all(line.as_bytes()).unwrap();
        let mut channel = Channel::new(stream.try_clone().unwrap(), true);
        let mut reply: Reply = channel.receive().unwrap();
        if matches!(reply, Reply::Hello { .. }) {
            reply = channel.receive().unwrap();
        }
        assert!(matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
        if ends {
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0, "{line}");
        }
    }
    // Unrequested descriptors, a line without an end, and a client that never reads its answers.
    let stream = UnixStream::connect(daemon.socket()).unwrap();
    let file = File::open("/dev/null").unwrap();
    passing::send(stream.as_fd(), b"{}\n", &[file.as_fd()]).unwrap();
    let mut endless = UnixStream::connect(daemon.socket()).unwrap();
    let _ = endless.write_all(&vec![b' '; 1 << 20]);
    let mut deaf = UnixStream::connect(daemon.socket()).unwrap();
    deaf.write_all(hello.as_bytes()).unwrap();
    while deaf.write_all(&b"{\"status\":{}}\n".repeat(1000)).is_ok() {}
    wait_for("all to be refused", || daemon.status()["refused"] == 6);
    let (_, told) = daemon.end();
    assert_eq!(told.matches("refused: ").count(), 6, "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
}

#[test]
fn what_makes_no_sense_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[capture]]\nname = \"x\"\n").unwrap();
    let config = ["serve", "--config", rules.to_str().unwrap()];
    run(config).failed_saying(&["rules.toml", "either interfaces or a file"]);
    run(["serve", "-i", "no-such-if"]).failed_saying(&["no-such-if"]);
    run(["serve"]).failed_saying(&["--interface", "--read", "--config"]);
    // A path that is something else already is a slip of the pen, and stays what it is.
    let precious = folder.path().join("precious.pcap");
    fs::write(&precious, "packets").unwrap();
    let served = folder.path().join("served.pcap");
    write(&served, &frames(26, 3));
    let serve = ["serve", "-r", served.to_str().unwrap(), "--socket", precious.to_str().unwrap()];
    run(serve).failed_saying(&["precious.pcap", "is not a socket"]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "packets");
    run(["capture", "-i", "tap:x", "-i", "lo"]).failed_saying(&["one tap:NAME and nothing else"]);
    run(["capture", "-i", NEAR, "--since", "5s"]).failed_saying(&["are for captures of tapline serve"]);
}

/// A log that is a pipe, and that nothing reads: requests are answered, packets flow, and the end comes.
#[test]
fn an_unread_log_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut command = tapline(["serve", "-r", sample::STORED, "--name", "office", "--json", "--socket"]);
    let mut child = command.arg(&socket).spawn().unwrap();
    wait_for("the socket", || Client::connect(&socket, "test").is_ok());
    // A line of 70 bytes for each, or for several that come while the daemon waits for a processor; the pipe holds 64
    // KiB.
    for _ in 0..5000 {
        process::signal(child.id(), SIGHUP).unwrap();
        Client::connect(&socket, "test").unwrap();
    }
    for _ in 0..5 {
        process::signal(child.id(), SIGUSR1).unwrap();
        Client::connect(&socket, "test").unwrap().status().unwrap();
    }
    process::signal(child.id(), SIGTERM).unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the daemon does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    // The pipe was full.
    assert!(output.stderr.len() >= 60_000, "{}", output.stderr.len());
}
