//! Unmodified libpcap programs that read a capture of the daemon.

use super::*;

/// The library that programs find under libpcap's name, if it was built in the directory of this test.
fn library(folder: &std::path::Path) -> bool {
    let places =
        ["deps/libpcap.so", "libpcap.so"].map(|name| std::path::Path::new(TAPLINE).with_file_name(name));
    let built = places.iter().find(|path| path.is_file());
    built.is_some_and(|built| std::os::unix::fs::symlink(built, folder.join("libpcap.so.0.8")).is_ok())
}

/// Programs that know nothing of the daemon, on our library.
struct Programs<'d>(&'d Daemon);

impl Programs<'_> {
    fn new<'d>(test: &str, daemon: &'d Daemon) -> Option<Programs<'d>> {
        if !library(daemon.folder.path()) {
            eprintln!("skipped: {test}: no libpcap.so beside the program: cargo build -p tapline-capi");
            return None;
        }
        fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Some(Programs(daemon))
    }

    fn command(&self, program: &str) -> Command {
        let Programs(daemon) = self;
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", daemon.folder.path()).env("TAPLINE_SOCKET", daemon.socket());
        // A name that there is not: only the map makes it one.
        command.env("TAPLINE_DEVICE_MAP", "monitor0=tap:office");
        command
    }

    fn tcpdump(&self, device: &str, file: &str, filter: &str) -> Reader {
        self.start(self.command("tcpdump").args(["-Z", "root", "-i", device]), file, &[filter])
    }

    fn dumpcap(&self, file: &str, filter: &str) -> Reader {
        self.start(self.command("dumpcap").args(["-q", "-i", "tap:office"]), file, &["-f", filter])
    }

    /// Starts a program that writes into a file, and waits until it reads with its filter.
    fn start(&self, command: &mut Command, file: &str, filter: &[&str]) -> Reader {
        let Programs(daemon) = self;
        let file = daemon.file(file);
        let known = daemon.readers().len();
        command.arg("-w").arg(&file).args(filter);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let reader = Reader { child: Some(command.spawn().expect("it is there")), file };
        let has_filter = |reader: &Value| reader["filter"] != "";
        wait_for("a reader with its filter", || {
            let readers = daemon.readers();
            readers.len() > known && readers.iter().all(has_filter)
        });
        reader
    }
}

/// Three tcpdumps, a dumpcap and our own capture, on one daemon.
#[test]
fn unmodified_programs_share_a_capture_by_filter() {
    const TEST: &str = "unmodified_programs_share_a_capture_by_filter";
    if !program_or_skip(TEST, "tcpdump") || !program_or_skip(TEST, "dumpcap") {
        return;
    }
    let Some(mut daemon) = Daemon::start(TEST, &[]) else { return };
    let Some(programs) = Programs::new(TEST, &daemon) else { return };
    for (program, line) in
        [("tcpdump", "tap:office (Capture of tapline serve on far0)"), ("dumpcap", "tap:office")]
    {
        // A list waits 200 ms for the daemon, which may get no processor for longer.
        wait_for(line, || {
            let listed = finish(programs.command(program).arg("-D")).succeeded();
            let said = [listed.stdout, listed.stderr.into_bytes()].concat();
            let said = String::from_utf8_lossy(&said);
            said.trim_end().lines().last().is_some_and(|last| last.contains(line))
        });
    }
    // A daemon that hangs delays no program, and lists nothing.
    let live = daemon.live.as_ref().expect("it runs");
    live.signal("STOP");
    let listed = finish(programs.command("tcpdump").arg("-D")).succeeded();
    live.signal("CONT");
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(said.contains("any") && !said.contains("tap:"), "{said}");
    let filters = ["tcp", "udp dst portrange 1-2000", "icmp or arp", "ip and greater 300", "not tcp"];
    let readers = [
        programs.tcpdump("tap:office", "1.pcap", filters[0]),
        programs.tcpdump("monitor0", "2.pcap", filters[1]),
        programs.tcpdump("tap:office", "3.pcap", filters[2]),
        programs.dumpcap("4.pcapng", filters[3]),
        daemon.reader("5.pcapng", &[filters[4]]),
    ];
    let oracles = Oracles::start(&daemon, &filters);
    daemon.send_in_parts(&frames(18, 8000), 0, 5);
    let counts: Vec<Value> = daemon.readers().iter().map(|reader| reader["counts"].clone()).collect();
    for ((mut reader, expected), filter) in readers.into_iter().zip(oracles.end()).zip(filters) {
        reader.signal("INT");
        let finished = reader.end();
        let file = reader.file.clone();
        assert!(finished.status.success(), "{filter}: {}", finished.stderr);
        let got = bytes_of(packets_of(&file));
        assert!(got == expected, "{filter}: {} of {}: {}", got.len(), expected.len(), finished.stderr);
        // The daemon offered exactly these packets, and all were delivered.
        assert!(
            counts
                .iter()
                .any(|counts| counts["offered"] == expected.len() && counts["delivered"] == expected.len()),
            "{filter}: {counts:?}"
        );
        if filter == filters[0] {
            let said = format!("{} packets received by filter\n0 packets dropped by kernel", expected.len());
            assert!(finished.stderr.contains(&said), "{}", finished.stderr);
        }
    }
    let (account, _) = daemon.end();
    assert_eq!((&account["delivered"], &account["stored"]), (&8000.into(), &8000.into()), "{account}");
}

/// Two tcpdumps and our own capture share by flow, and `tapline status` shows who shares what.
#[test]
fn a_group_has_tcpdump_as_a_member() {
    const TEST: &str = "a_group_has_tcpdump_as_a_member";
    // All packets, so that the kernel refuses none; and a filter, by which a reader is known to be ready.
    const ALL: &str = "tcp or not tcp";
    if !program_or_skip(TEST, "tcpdump") {
        return;
    }
    let Some(mut daemon) = Daemon::start(TEST, &[]) else { return };
    let Some(programs) = Programs::new(TEST, &daemon) else { return };
    let members = [
        programs.tcpdump("tap:office/ids", "1.pcap", ALL),
        programs.tcpdump("tap:office/ids?by=flow", "2.pcap", ALL),
        daemon.reader_of("tap:office/ids", "3.pcap", &[ALL]),
    ];
    let oracles = Oracles::start(&daemon, &[ALL]);
    daemon.send_in_parts(&frames(23, 4000), 0, 3);
    let readers = daemon.readers();
    assert!(readers.iter().all(|reader| reader["group"]["name"] == "ids"), "{readers:?}");
    let offered: u64 = readers.iter().filter_map(|reader| reader["counts"]["offered"].as_u64()).sum();
    let mut command = tapline(["status", "--socket"]);
    let told = finish(command.arg(daemon.socket())).succeeded();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let line = told.lines().find(|line| line.trim_start().starts_with("group ids of user")).expect("a line");
    let numbers: Vec<String> = readers.iter().map(|reader| reader["number"].to_string()).collect();
    assert!(line.contains("by flow") && numbers.iter().all(|number| line.contains(number)), "{line}");
    let expected = oracles.end().remove(0);
    assert_eq!(offered, expected.len() as u64);
    let mut shares = Vec::new();
    for mut member in members {
        member.signal("INT");
        assert!(member.end().status.success());
        shares.push(bytes_of(packets_of(&member.file)));
    }
    assert!(shares.iter().all(|share| share.len() > 200), "each has a share");
    let mut all = shares.concat();
    let mut expected = expected;
    all.sort_unstable();
    expected.sort_unstable();
    assert!(all == expected, "{} packets of {}", all.len(), expected.len());
    daemon.end();
}

/// Unmodified programs under a load of several times the buffer, while some of them stop: those have lost as many as
/// they report, the others none.
#[test]
fn slow_unmodified_programs_report_their_loss() {
    const TEST: &str = "slow_unmodified_programs_report_their_loss";
    if !program_or_skip(TEST, "tcpdump") || !program_or_skip(TEST, "dumpcap") {
        return;
    }
    let Some(mut daemon) = Daemon::start(TEST, &["--buffer", "8"]) else { return };
    let Some(programs) = Programs::new(TEST, &daemon) else { return };
    let filters = ["tcp", "ip", "udp or icmp", "ip or arp", "not tcp"];
    let readers = [
        programs.tcpdump("tap:office", "1.pcap", filters[0]),
        programs.tcpdump("tap:office", "2.pcap", filters[1]),
        programs.tcpdump("monitor0", "3.pcap", filters[2]),
        programs.dumpcap("4.pcapng", filters[3]),
        daemon.reader("5.pcapng", &["--policy", "lossy", filters[4]]),
    ];
    let oracles = Oracles::start(&daemon, &filters);
    let is_slow = [false, true, true, true, true];
    let slow = || readers.iter().zip(is_slow).filter_map(|(reader, is_slow)| is_slow.then_some(reader));
    let frames = frames(19, 20_000);
    let (fits, floods) = frames.split_at(300);
    daemon.send(fits);
    slow().for_each(|reader| reader.signal("STOP"));
    daemon.send_in_parts(floods, fits.len(), 1);
    slow().for_each(|reader| reader.signal("CONT"));
    // Packets that come after they run again are read.
    daemon.send(fits);
    daemon.settle(20_300, 5);
    let counts: Vec<Value> = daemon.readers().iter().map(|reader| reader["counts"].clone()).collect();
    let of_tcpdump: fn(usize, usize) -> String = |got, lost| {
        let offered = got + lost;
        format!(
            "{got} packets captured\n{offered} packets received by filter\n{lost} packets dropped by kernel"
        )
    };
    let of_dumpcap: fn(usize, usize) -> String = |got, lost| format!("{got}/{lost} (pcap:{lost}/");
    let of_ours: fn(usize, usize) -> String = |_, _| String::new();
    let words = [of_tcpdump, of_tcpdump, of_tcpdump, of_dumpcap, of_ours];
    for ((((mut reader, expected), filter), is_slow), words) in
        readers.into_iter().zip(oracles.end()).zip(filters).zip(is_slow).zip(words)
    {
        reader.signal("INT");
        let finished = reader.end();
        let got = bytes_of(packets_of(&reader.file));
        assert!(finished.status.success(), "{filter}: {}", finished.stderr);
        let (offered, lost) = (expected.len(), expected.len() - got.len());
        assert_eq!(lost > 0, is_slow, "{filter}: {lost} lost: {}", finished.stderr);
        // In order, and as they were sent.
        let mut rest = expected.iter();
        assert!(got.iter().all(|packet| rest.any(|frame| frame == packet)), "{filter}");
        // The daemon's count, and what the program itself says.
        let is_it = |counts: &&Value| counts["offered"] == offered && counts["delivered"] == got.len();
        let count = counts
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{filter}: {got:?} of {offered}: {counts:?}", got = got.len()));
        let causes = ["index_full", "overwritten", "damaged"].map(|cause| count[cause].as_u64().unwrap());
        assert_eq!((causes.iter().sum::<u64>(), causes[2]), (lost as u64, 0), "{filter}: {count}");
        let said = words(got.len(), lost);
        assert!(finished.stderr.contains(&said), "{filter}: {said}: {}", finished.stderr);
    }
    let (account, _) = daemon.end();
    assert_eq!((&account["stored"], &account["not_stored"]), (&20_300.into(), &0.into()), "{account}");
}
