//! Live captures: unmodified programs on our library, in network namespaces of their own. Each is judged by its output.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{
    Hosts, Library, captures_or_skip, compile, programs_or_skip, system_library, tapline, told,
};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tempfile::TempDir;

/// Longest run of a program before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn may_run(test: &str, programs: &[&str]) -> bool {
    programs_or_skip(test, programs) && namespaces_or_skip(test)
}

/// Starts a program with its outputs in pipes.
fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(Duration::from_millis(20));
    }
}

/// Waits until a packet socket in a namespace has a filter, as ss(8) shows: from there on packets that pass the filter
/// are captured. A program's own filter is longer than the one instruction that is there before.
fn await_filter(namespace: &Namespace) {
    wait_for("a capture with its filter", || {
        let output = namespace.command("ss").args(["-0", "-b", "-n"]).output().expect("ss runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let len =
            |line: &str| line.trim().strip_prefix("bpf filter (")?.split_once(')')?.0.parse::<u32>().ok();
        text.lines().filter_map(len).any(|len| len > 1)
    });
}

/// The outputs of a program that ends by itself; one that does not is ended, and fails the test.
fn finish(mut child: Child) -> Output {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let mut text = String::new();
            let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut text));
            panic!("it does not end: {text}");
        }
        sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("its outputs")
}

fn interrupt(child: &Child) {
    let done = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(done.success());
}

fn packets_in(file: &Path, filter: &str) -> usize {
    let output = Command::new("tcpdump").arg("-nnr").arg(file).arg(filter).output().expect("tcpdump runs");
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn the_corners_of_live_capture_answer_alike() {
    const TEST: &str = "the_corners_of_live_capture_answer_alike";
    if !may_run(TEST, &["cc", "tc"]) {
        return;
    }
    let library = Library::new();
    let program = compile(&library, "live", true);
    let run = |folder: &Path| {
        let namespace = Namespace::with_pair("capi-live").expect("we may");
        namespace.ip(&["link", "set", "lo", "up"]).expect("up");
        let mut command = namespace.command(program.to_str().expect("a path"));
        told(&finish(start(command.env("LD_LIBRARY_PATH", folder).args([NEAR, FAR]))))
    };
    let ours = run(library.folder());
    assert!(ours.lines().count() > 45 && ours.ends_with("Some(0)\n"), "{ours}");
    let Some(system) = system_library() else { return eprintln!("not compared: no libpcap here") };
    assert_eq!(ours, run(system.parent().expect("a folder")));
}

#[test]
fn winpcaps_additions_work_as_documented() {
    const TEST: &str = "winpcaps_additions_work_as_documented";
    if !may_run(TEST, &["cc", "tc"]) {
        return;
    }
    let library = Library::new();
    let program = compile(&library, "winpcap", true);
    let namespace = Namespace::with_pair("capi-win").expect("we may");
    let folder = TempDir::new().expect("a folder");
    let mut command = library.command(Some(&namespace), program.to_str().expect("a path"));
    let output = finish(start(command.args([NEAR, FAR]).arg(folder.path().join("dump.pcap"))));
    // 10 frames of 50 bytes and one of 60 count 60 and 12 each, 5 of 1000 count 1012; 42 bytes do not pass "greater
    // 50", nor those of TCP "udp".
    let expected = "dump -1 [Could not start a thread: Resource temporarily unavailable]\nstill there 0\n\
        buffer 0\nbuffer -1 [can't create rx ring on packet socket: Cannot allocate memory]\n\
        no buffer -1 [can't create rx ring on packet socket: Cannot allocate memory]\n\
        no buffer -1 [can't create rx ring on packet socket: Cannot allocate memory]\nbuffer 0\nagain 0 1\n\
        filter 0 mode 0\ncounted 16 packets, 5852 bytes\n\
        odd mode -1 [unknown mode 9: 0 captures packets, 1 counts them, 17 counts while pcap_live_dump writes them]\n\
        mode 0\ncaptured 1200\n\
        both 0 dump 0\ncounted 7 packets, 784 bytes in a record of 24, dumped 836 ended 1\ndumped 7\n\
        dump 0 ended 0\nreading meanwhile -1\nended 1\nnot dumping -1\nfile 5\ndump 0\nended 1\nbytes 256\ndump 0\nuntil the close 3\n\
        queued 0\nqueued 0\nqueued 0\nqueued -1\nsent 1\ngot 100\ngot 101\ngot 102\ngap kept 1\n\
        one of four: 3 7 11 15 19\nfirst after a minute 0\n\
        buffer 0 same descriptor 1\nwake 0 wrong -1\ngot 4\nstats 1 1 4 0\n\
        before 0\nbuffer -1 [setsockopt(PACKET_RX_RING): Device or resource busy]\nafter 0 1\nbuffer 0\nafter 0 1\n\
        long filter 0\nbroken loop -2\ntimeout 0\nmode 0 record 1\nmode 0\ndump 0\nclosed, bytes 24\n\
        sent in the end 1514 []\nSome(0)\n";
    assert_eq!(told(&output), expected);
}

#[test]
fn tcpdump_captures_and_counts() {
    const TEST: &str = "tcpdump_captures_and_counts";
    if !may_run(TEST, &["tcpdump", "ping"]) {
        return;
    }
    let (library, hosts, folder) = (Library::new(), Hosts::new("capi-td"), TempDir::new().expect("a folder"));
    for device in [NEAR, "any"] {
        let file = folder.path().join(format!("{device}.pcap"));
        let mut command = library.command(Some(&hosts.near), "tcpdump");
        let child = start(command.args(["-i", device, "-U", "-w"]).arg(&file).arg("icmp"));
        await_filter(&hosts.near);
        hosts.ping(10);
        wait_for("the file", || packets_in(&file, "icmp") == 20);
        interrupt(&child);
        let text = told(&finish(child));
        assert!(
            text.contains("20 packets captured\n20 packets received by filter\n0 packets dropped"),
            "{device}: {text}"
        );
        assert_eq!(packets_in(&file, "icmp[icmptype] = icmp-echo"), 10, "{device}");
    }
}

/// The device that a program names may be another one, without the program knowing.
#[test]
fn the_device_map_sends_programs_elsewhere() {
    const TEST: &str = "the_device_map_sends_programs_elsewhere";
    if !may_run(TEST, &["tcpdump", "ping"]) {
        return;
    }
    let (library, hosts) = (Library::new(), Hosts::new("capi-map"));
    let mut command = library.command(Some(&hosts.near), "tcpdump");
    command.env("TAPLINE_DEVICE_MAP", format!("eth0={NEAR}")).args(["-nn", "-i", "eth0", "-c", "2", "icmp"]);
    let child = start(&mut command);
    await_filter(&hosts.near);
    hosts.ping(2);
    let text = told(&finish(child));
    assert!(text.contains("10.77.0.1 > 10.77.0.2: ICMP echo request"), "{text}");
    let mut command = library.command(Some(&hosts.near), "tcpdump");
    command.env("TAPLINE_DEVICE_MAP", "eth0=tap:edge").env("TAPLINE_SOCKET", "/without/daemon/here");
    let text = told(&finish(start(command.args(["-i", "eth0"]))));
    for words in ["No such device exists", "tap:edge: no daemon at /without/daemon/here"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn dumpcap_and_tshark_capture() {
    const TEST: &str = "dumpcap_and_tshark_capture";
    if !may_run(TEST, &["dumpcap", "tshark", "tcpdump", "ping"]) {
        return;
    }
    let (library, hosts, folder) = (Library::new(), Hosts::new("capi-ws"), TempDir::new().expect("a folder"));
    let file = folder.path().join("dumpcap.pcapng");
    let mut command = library.command(Some(&hosts.near), "dumpcap");
    let child = start(command.args(["-q", "-i", NEAR, "-f", "icmp", "-c", "20", "-w"]).arg(&file));
    await_filter(&hosts.near);
    hosts.ping(10);
    let text = told(&finish(child));
    assert!(text.contains("'near0': 20/0"), "{text}");
    assert_eq!(packets_in(&file, "icmp[icmptype] = icmp-echoreply"), 10);

    let mut command = library.command(Some(&hosts.near), "tshark");
    command.args([
        "-Q",
        "-i",
        NEAR,
        "-f",
        "icmp",
        "-c",
        "6",
        "-T",
        "fields",
        "-e",
        "icmp.seq",
        "-e",
        "icmp.type",
    ]);
    let child = start(&mut command);
    await_filter(&hosts.near);
    hosts.ping(3);
    let output = finish(child);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.trim(), "1\t8\n1\t0\n2\t8\n2\t0\n3\t8\n3\t0", "{}", told(&output));
}

/// The environment of a program with more rights than its user is ignored: both the map and the daemon's socket.
#[test]
fn set_uid_programs_ignore_their_environment() {
    const TEST: &str = "set_uid_programs_ignore_their_environment";
    const NOBODY: u32 = 65_534;
    if !may_run(TEST, &["cc"]) {
        return;
    }
    let library = Library::new();
    let program = compile(&library, "secure", true);
    // Another user has to come there, and to the library.
    let built = library.file().canonicalize().expect("it is there");
    fs::remove_file(library.file()).expect("a link");
    fs::copy(built, library.file()).expect("copied");
    fs::set_permissions(library.folder(), fs::Permissions::from_mode(0o755)).expect("ours");
    let opened = |device: &str, mode: u32| {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("ours");
        let mut command = Command::new(&program);
        command.env("TAPLINE_DEVICE_MAP", "mapped0=lo").env("TAPLINE_SOCKET", "/without/daemon/here");
        command.env("LD_LIBRARY_PATH", library.folder()).uid(NOBODY).arg(device);
        told(&command.output().expect("it runs"))
    };
    let said = opened("tap:edge", 0o755);
    assert!(said.starts_with("secure 0\n") && said.contains("/without/daemon/here"), "{said}");
    let said = opened("tap:edge", 0o4755);
    if said.starts_with("secure 0\n") {
        return eprintln!("skipped: {TEST}: setuid bits have no effect here");
    }
    assert!(said.starts_with("secure 1\n") && !said.contains("/without/daemon/here"), "{said}");
    let is_asked = said.contains("/run/tapline/serve.sock") || said.contains("the daemon");
    assert!(said.contains("\nopened") || is_asked, "{said}");
    let said = opened("mapped0", 0o4755);
    assert!(said.contains("mapped0: No such device exists"), "{said}");
}

/// A daemon's capture is readable, by poll(2), while there is something to be had, and no longer.
#[test]
fn a_shared_capture_can_be_waited_for() {
    const TEST: &str = "a_shared_capture_can_be_waited_for";
    if !may_run(TEST, &["cc"]) {
        return;
    }
    let Some(tapline) = tapline() else {
        return eprintln!("skipped: {TEST}: no tapline beside the library: cargo build -p tapline-cli");
    };
    let library = Library::new();
    let program = compile(&library, "shared", true);
    let (namespace, folder) =
        (Namespace::with_pair("capi-tap").expect("we may"), TempDir::new().expect("a folder"));
    let socket = folder.path().join("socket");
    let mut command = Command::new(tapline);
    command
        .args(["serve", "--netns", namespace.name(), "-i", FAR, "--name", "office", "--socket"])
        .arg(&socket);
    let mut daemon = start(&mut command);
    wait_for("the daemon", || UnixStream::connect(&socket).is_ok());
    let mut command = library.command(Some(&namespace), program.to_str().expect("a path"));
    command.env("TAPLINE_SOCKET", &socket).args(["tap:office", NEAR, &daemon.id().to_string()]);
    let said = told(&finish(start(&mut command)));
    let _ = daemon.kill();
    let _ = daemon.wait();
    let round = "got 5: poll 0\n".repeat(3);
    assert!(said.starts_with(&format!("nothing yet: poll 0\n{round}the end [")), "{said}");
    // Told by the descriptor as well, again and again.
    assert!(said.contains("the daemon is gone") && said.ends_with(": poll 1\nSome(0)\n"), "{said}");
}

/// A server on the far host that answers every connection; ended when dropped.
struct Server(Child);

impl Server {
    fn start(hosts: &Hosts) -> Server {
        let mut command = hosts.far.command("python3");
        command.args(["-m", "http.server", "8080", "--bind", "10.77.0.2"]);
        let server = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let output = hosts.far.command("cat").arg("/proc/net/tcp").output().expect("cat runs");
            // The port in hexadecimal, and the state of a listener.
            if String::from_utf8_lossy(&output.stdout).contains(":1F90 00000000:0000 0A") {
                return server;
            }
            sleep(Duration::from_millis(20));
        }
        panic!("the server does not listen");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nmap_finds_open_and_closed_ports() {
    const TEST: &str = "nmap_finds_open_and_closed_ports";
    if !may_run(TEST, &["nmap", "python3"]) {
        return;
    }
    let (library, hosts) = (Library::new(), Hosts::new("capi-nmap"));
    let _server = Server::start(&hosts);
    let mut command = library.command(Some(&hosts.near), "nmap");
    let text = told(&finish(start(command.args(["-n", "-sS", "-p", "8079-8081", "10.77.0.2"]))));
    assert!(text.contains("8080/tcp open") && text.contains("8079/tcp closed"), "{text}");
    assert!(text.contains("8081/tcp closed") && text.contains("(1 host up)"), "{text}");
}

#[test]
fn ngrep_finds_a_request() {
    const TEST: &str = "ngrep_finds_a_request";
    if !may_run(TEST, &["ngrep", "python3", "curl"]) {
        return;
    }
    let (library, hosts) = (Library::new(), Hosts::new("capi-ngrep"));
    let _server = Server::start(&hosts);
    let mut command = library.command(Some(&hosts.near), "ngrep");
    let child = start(command.args(["-d", NEAR, "-q", "-n", "1", "GET /marker", "tcp port 8080"]));
    await_filter(&hosts.near);
    let curl =
        hosts.near.command("curl").args(["-s", "-o", "/dev/null", "http://10.77.0.2:8080/marker"]).status();
    assert!(curl.expect("curl runs").success());
    let text = told(&finish(child));
    assert!(text.contains("10.77.0.2:8080") && text.contains("GET /marker HTTP"), "{text}");
}

#[test]
fn arp_scan_finds_the_other_host() {
    const TEST: &str = "arp_scan_finds_the_other_host";
    if !may_run(TEST, &["arp-scan"]) {
        return;
    }
    let (library, hosts) = (Library::new(), Hosts::new("capi-arp"));
    let mut command = library.command(Some(&hosts.near), "arp-scan");
    let text = told(&finish(start(command.args(["-I", NEAR, "10.77.0.0/29"]))));
    assert!(text.contains("10.77.0.2\t") && text.contains("1 responded"), "{text}");
}

#[test]
fn tcpreplay_sends_a_file() {
    const TEST: &str = "tcpreplay_sends_a_file";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !may_run(TEST, &["tcpreplay"]) {
        return;
    }
    let file = captures.iter().find(|path| path.ends_with("smtp.pcap")).expect("it is there");
    let (library, namespace) = (Library::new(), Namespace::with_pair("capi-tr").expect("we may"));
    let sent_before = namespace.counter(FAR, "rx_packets").expect("a counter");
    let mut command = library.command(Some(&namespace), "tcpreplay");
    let text = told(&finish(start(command.args(["-q", "-t", "-i", NEAR]).arg(file))));
    assert!(text.contains("Successful packets:        125"), "{text}");
    assert_eq!(namespace.counter(FAR, "rx_packets").expect("a counter") - sent_before, 125);
}

#[test]
fn softflowd_counts_flows() {
    const TEST: &str = "softflowd_counts_flows";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !may_run(TEST, &["softflowd"]) {
        return;
    }
    let file = captures.iter().find(|path| path.ends_with("smtp.pcap")).expect("it is there");
    let (library, namespace) = (Library::new(), Namespace::with_pair("capi-sf").expect("we may"));
    namespace.ip(&["link", "set", "lo", "up"]).expect("up");
    let run = |mut command: Command| {
        let text = told(&finish(start(command.args(["-d", "-D", "-n", "127.0.0.1:9999", "-r"]).arg(file))));
        let packets = text.lines().filter(|line| line.contains("tcp (6):") || line.contains("udp (17):"));
        packets.map(str::to_owned).collect::<Vec<_>>()
    };
    let ours = run(library.command(Some(&namespace), "softflowd"));
    assert!(ours.iter().any(|line| line.contains(" 118 ")), "{ours:?}");
    if system_library().is_some() {
        assert_eq!(ours, run(namespace.command("softflowd")));
    }
}

/// Runs a text of Debian's Python, which has its bindings, in the near host; skips where a module is missing.
fn python(library: &Library, hosts: &Hosts, test: &str, module: &str, text: &str) -> Option<String> {
    const PYTHON: &str = "/usr/bin/python3";
    let has = Command::new(PYTHON).args(["-c", &format!("import {module}")]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {test}: no Python module {module}");
        return None;
    }
    Some(told(&finish(start(library.command(Some(&hosts.near), PYTHON).args(["-c", text])))))
}

#[test]
fn scapy_asks_and_sniffs() {
    const TEST: &str = "scapy_asks_and_sniffs";
    if !may_run(TEST, &["ping"]) {
        return;
    }
    let (library, hosts) = (Library::new(), Hosts::new("capi-scapy"));
    let text = "
import subprocess, threading
from scapy.all import *
conf.use_pcap = True
answer = srp1(Ether(dst='ff:ff:ff:ff:ff:ff')/ARP(pdst='10.77.0.2'), iface='near0', timeout=10, verbose=0)
print('answer from', answer.psrc)
started = threading.Event()
sniffer = AsyncSniffer(iface='near0', filter='icmp', count=4, started_callback=started.set)
sniffer.start()
started.wait(60)
subprocess.run(['ping', '-q', '-c', '2', '-i', '0.2', '10.77.0.2'], stdout=subprocess.DEVNULL)
sniffer.join(30)
print([packet[ICMP].type for packet in sniffer.results])
print(conf.L2socket)
";
    let Some(said) = python(&library, &hosts, TEST, "scapy.all", text) else { return };
    assert!(said.contains("answer from 10.77.0.2") && said.contains("[8, 0, 8, 0]"), "{said}");
    assert!(said.contains("libpcap"), "it uses libpcap: {said}");
}

#[test]
fn a_python_binding_reads_packets() {
    const TEST: &str = "a_python_binding_reads_packets";
    if !may_run(TEST, &["ping"]) {
        return;
    }
    let (library, hosts) = (Library::new(), Hosts::new("capi-pcapy"));
    let text = "
import pcapy, subprocess
handle = pcapy.open_live('near0', 65535, 1, 100)
handle.setfilter('icmp[icmptype] = icmp-echo')
subprocess.run(['ping', '-q', '-c', '3', '-i', '0.2', '10.77.0.2'], stdout=subprocess.DEVNULL)
lengths = []
while len(lengths) < 3:
    header, data = handle.next()
    if header is not None:
        lengths.append((header.getlen(), len(data)))
print(lengths, handle.datalink(), handle.getnet(), handle.getmask(), 'near0' in pcapy.findalldevs())
";
    let Some(said) = python(&library, &hosts, TEST, "pcapy", text) else { return };
    assert!(said.contains("[(98, 98), (98, 98), (98, 98)] 1 10.77.0.0 255.255.255.0 True"), "{said}");
}

/// An interface that is removed ends the capture with libpcap's words.
#[test]
fn an_interface_that_goes_is_told() {
    const TEST: &str = "an_interface_that_goes_is_told";
    if !may_run(TEST, &["tcpdump"]) {
        return;
    }
    let (library, namespace) = (Library::new(), Namespace::with_pair("capi-gone").expect("we may"));
    let folder = TempDir::new().expect("a folder");
    let mut command = library.command(Some(&namespace), "tcpdump");
    let child = start(command.args(["-i", NEAR, "-w"]).arg(folder.path().join("gone.pcap")).arg("icmp"));
    await_filter(&namespace);
    namespace.ip(&["link", "delete", NEAR]).expect("deleted");
    let text = told(&finish(child));
    assert!(text.contains("The interface disappeared"), "{text}");
    assert!(fs::metadata(folder.path().join("gone.pcap")).expect("a file").len() >= 24);
}
