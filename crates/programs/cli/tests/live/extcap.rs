//! `tapline extcap` as Wireshark's own programs call it: interfaces, filters, packets and lost packets in the file.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::serve::{Daemon, NOBODY};
use crate::support::{
    Finished, PATIENCE, bytes_of, copy_program, finish, frames, packets_of, program_or_skip, root_or_skip,
    tapline, wait_for,
};
use tapline_testkit::capture_file::read_packets;

/// A daemon whose captures a user without rights may read, and a folder of extcap programs.
struct Wireshark {
    daemon: Daemon,
    programs: PathBuf,
}

impl Wireshark {
    fn start(test: &str, of_all: &str) -> Option<Wireshark> {
        if !program_or_skip(test, "tshark") || !program_or_skip(test, "dumpcap") || !root_or_skip(test) {
            return None;
        }
        let daemon = Daemon::with_rules(test, &format!("{of_all}[[access]]\nusers = [\"{NOBODY}\"]\n"))?;
        // Wireshark heeds WIRESHARK_EXTCAP_DIR for users without rights only.
        fs::set_permissions(daemon.file(""), fs::Permissions::from_mode(0o777)).unwrap();
        let programs = daemon.file("extcap");
        fs::create_dir(&programs).unwrap();
        copy_program(&programs.join("tapline-extcap"));
        Some(Wireshark { daemon, programs })
    }

    /// One of Wireshark's programs as a user without rights.
    fn command(&self, program: &str) -> Command {
        let user = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", program]);
        command.env("HOME", self.daemon.file("")).env("WIRESHARK_EXTCAP_DIR", &self.programs);
        command.env("TAPLINE_SOCKET", self.daemon.socket()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// tshark capturing into a file, once extcap reads and dumpcap heeds signals.
    fn capture(&self, file: &str, arguments: &[&str]) -> Child {
        let known = self.daemon.readers().len();
        let mut command = self.command("tshark");
        command.args(["-q", "-i", "tapline:office", "-w"]).arg(self.daemon.file(file)).args(arguments);
        let child = command.spawn().expect("it was found");
        wait_for("a reader", || self.daemon.readers().len() > known);
        // tshark starts dumpcap after extcap; an interrupt that it passes on before dumpcap has a handler kills dumpcap.
        wait_for("a dumpcap that catches interrupts", || catches_interrupts(child.id(), "dumpcap"));
        child
    }

    /// Identifier of the running extcap process.
    fn extcap_process(&self) -> u32 {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let is_extcap = |process: &u32| {
            fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|exe| exe.starts_with(&self.programs))
        };
        let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.find(is_extcap).expect("it reads")
    }
}

/// Whether a process of this name, a child of `parent`, has a handler for SIGINT: proc_pid_status(5), `SigCgt`.
fn catches_interrupts(parent: u32, name: &str) -> bool {
    const INTERRUPT: u64 = 1 << 1;
    let is_it = |status: &String| {
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
        let caught = u64::from_str_radix(field("SigCgt:"), 16).unwrap_or(0);
        field("Name:") == name && field("PPid:") == parent.to_string() && caught & INTERRUPT != 0
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok())
        .any(|status| is_it(&status))
}

/// Ends a child by a signal.
fn end(child: Child, signal: &str) -> Finished {
    send(child.id(), signal);
    wait(child)
}

fn wait(mut child: Child) -> Finished {
    let start = std::time::Instant::now();
    while child.try_wait().expect("our child").is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("tshark does not end");
        }
        sleep(Duration::from_millis(10));
    }
    Finished::new(child.wait_with_output().expect("our child"))
}

fn send(process: u32, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &process.to_string()]).status();
    assert!(sent.expect("kill is everywhere").success());
}

/// Dropped packets in the last interface statistics of a pcapng file (option isb_osdrop), and the number of such
/// blocks.
fn drops_in(path: &Path) -> (u64, usize) {
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut drops, mut blocks) = (0, 0, 0);
    while at + 12 <= bytes.len() {
        let len = word(at + 4) as usize;
        // dumpcap is writing the last one.
        if at + len > bytes.len() {
            break;
        }
        if word(at) == 5 {
            blocks += 1;
            let mut option = at + 20;
            while option + 4 <= at + len - 4 {
                let code = u16::from_le_bytes(bytes[option..option + 2].try_into().unwrap());
                let size = u16::from_le_bytes(bytes[option + 2..option + 4].try_into().unwrap()) as usize;
                if code == 7 {
                    drops = u64::from_le_bytes(bytes[option + 4..option + 12].try_into().unwrap());
                }
                option += 4 + size.next_multiple_of(4);
            }
        }
        at += len;
    }
    (drops, blocks)
}

#[test]
fn tshark_captures_from_the_daemon() {
    const TEST: &str = "tshark_captures_from_the_daemon";
    let Some(wireshark) = Wireshark::start(TEST, "") else { return };
    // A list waits a second for the daemon, which may get no processor for longer.
    wait_for("the capture in the list", || {
        let listed = finish(wireshark.command("tshark").arg("-D")).succeeded();
        String::from_utf8_lossy(&listed.stdout).contains("tapline:office (Tapline office (far0))")
    });
    // The count includes packets that the filter refuses: they are not captured.
    let sent = frames(81, 500);
    let wanted: Vec<Vec<u8>> = sent.iter().filter(|frame| frame.len() < 200).cloned().collect();
    let count = wanted.len().to_string();
    let child = wireshark.capture("got.pcapng", &["-f", "less 199", "-c", &count]);
    wireshark.daemon.send(&sent);
    wait(child).succeeded();
    assert_eq!(bytes_of(packets_of(&wireshark.daemon.file("got.pcapng"))), wanted);
    let mut read = wireshark.command("tshark");
    let read = finish(read.arg("-r").arg(wireshark.daemon.file("got.pcapng"))).succeeded();
    assert_eq!(String::from_utf8_lossy(&read.stdout).lines().count(), wanted.len());
}

#[test]
fn lost_packets_are_in_wiresharks_file() {
    const TEST: &str = "lost_packets_are_in_wiresharks_file";
    let Some(wireshark) = Wireshark::start(TEST, "") else { return };
    let child = wireshark.capture("lost.pcapng", &["-o", "extcap.tapline_office.policy:lossy"]);
    let process = wireshark.extcap_process();
    let sent = frames(82, 1000);
    wireshark.daemon.send(&sent[..100]);
    send(process, "STOP");
    // Far more than the index of a reader has room for.
    for _ in 0..100 {
        wireshark.daemon.send(&sent);
    }
    send(process, "CONT");
    wait_for("a block of statistics with losses", || drops_in(&wireshark.daemon.file("lost.pcapng")).0 > 0);
    // The last block is written a second after the last packet at most.
    let file = wireshark.daemon.file("lost.pcapng");
    wait_for("all packets in the file, or told as lost", || {
        let packets = read_packets(&fs::read(&file).unwrap()).map_or(0, |packets| packets.len() as u64);
        packets + drops_in(&file).0 == 100_100
    });
    end(child, "INT").succeeded();
    let (drops, blocks) = drops_in(&file);
    assert!(blocks >= 2, "{blocks}");
    assert_eq!(packets_of(&file).len() as u64 + drops, 100_100);
}

#[test]
fn wireshark_starts_stops_and_kills() {
    const TEST: &str = "wireshark_starts_stops_and_kills";
    let Some(wireshark) = Wireshark::start(TEST, "") else { return };
    let sent = frames(83, 20);
    for round in 0..40 {
        let file = format!("{round}.pcapng");
        let mut child = wireshark.capture(&file, &[]);
        wireshark.daemon.send(&sent);
        match round % 4 {
            // Its output is not read: the dumpcap that a killed tshark leaves holds the pipe until further packets come.
            0 => drop(child.kill().and_then(|()| child.wait()).expect("our child")),
            1 => drop(end(child, "TERM")),
            _ => drop(end(child, "INT").succeeded()),
        }
        // No process is left reading, whatever ended its reader. A killed tshark leaves a dumpcap that notices only when
        // it writes about the next packets.
        wait_for("no reader", || {
            let is_left = !wireshark.daemon.readers().is_empty();
            if is_left {
                wireshark.daemon.send(&sent);
            }
            !is_left
        });
    }
    wait_for("no process of extcap", || {
        let ended = finish(Command::new("pgrep").arg("-f").arg(wireshark.programs.join("tapline-extcap")));
        ended.stdout.is_empty()
    });
}

#[test]
fn extcap_answers_as_the_guide_says() {
    const TEST: &str = "extcap_answers_as_the_guide_says";
    let Some(daemon) = Daemon::start(TEST, &[]) else { return };
    let ask = |arguments: &[&str]| {
        let mut command = tapline(["extcap"].iter().chain(arguments));
        finish(command.env("TAPLINE_SOCKET", daemon.socket()))
    };
    let text = |finished: Finished| {
        assert!(finished.stderr.is_empty(), "{}", finished.stderr);
        String::from_utf8(finished.succeeded().stdout).unwrap()
    };
    wait_for("the capture in the list", || {
        let listed = text(ask(&["--extcap-interfaces", "--extcap-version=4.0"]));
        assert!(listed.starts_with("extcap {version="), "{listed}");
        listed.contains("\ninterface {value=tapline:office}{display=Tapline office (far0)}\n")
    });
    let config = text(ask(&["--extcap-config", "--extcap-interface", "tapline:office"]));
    assert_eq!(config.lines().filter(|line| line.starts_with("arg {")).count(), 3, "{config}");
    let types = text(ask(&["--extcap-dlts", "--extcap-interface", "tapline:office"]));
    assert_eq!(types, "dlt {number=1}{name=EN10MB}{display=EN10MB}\n");
    let judged = |filter: &str| {
        text(ask(&["--extcap-interface", "tapline:office", "--extcap-capture-filter", filter]))
    };
    assert_eq!(judged("tcp port 443"), "");
    assert!(judged("tcp prot 443").contains("prot"), "the fault names the word");
    ask(&["--extcap-dlts", "--extcap-interface", "eth0"]).failed_saying(&["eth0", "tapline:NAME"]);
    // A machine without daemon: a list with nothing in it, and no error at each start of Wireshark.
    let mut alone = tapline(["extcap", "--extcap-interfaces"]);
    let alone = finish(alone.env("TAPLINE_SOCKET", daemon.file("none"))).succeeded();
    assert_eq!(String::from_utf8_lossy(&alone.stdout).lines().count(), 1);
    assert!(alone.stderr.is_empty(), "{}", alone.stderr);
}

/// The caller of the program chooses the path of `--fifo`: a file that is not a pipe stays as it is.
#[test]
fn only_a_pipe_is_written_to() {
    const TEST: &str = "only_a_pipe_is_written_to";
    let Some(daemon) = Daemon::start(TEST, &[]) else { return };
    let [file, link] = ["kept", "link"].map(|name| daemon.file(name));
    fs::write(&file, "kept").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        let mut command = tapline(["extcap", "--capture", "--extcap-interface", "tapline:office", "--fifo"]);
        finish(command.arg(path).env("TAPLINE_SOCKET", daemon.socket())).failed_saying(&["it is not a pipe"]);
    }
    assert_eq!(fs::read(&file).unwrap(), b"kept");
}

#[test]
fn a_stopped_daemon_delays_no_list() {
    const TEST: &str = "a_stopped_daemon_delays_no_list";
    let Some(daemon) = Daemon::start(TEST, &[]) else { return };
    daemon.signal("STOP");
    let mut command = tapline(["extcap", "--extcap-interfaces"]);
    let listed = finish(command.env("TAPLINE_SOCKET", daemon.socket()));
    daemon.signal("CONT");
    assert_eq!(String::from_utf8_lossy(&listed.succeeded().stdout).lines().count(), 1);
}

#[test]
fn the_program_is_linked_for_wireshark() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = folder.path().join("extcap");
    let install = || {
        let mut command = tapline(["extcap", "--install", "--folder"]);
        finish(command.arg(&wanted))
    };
    install().succeeded();
    install().succeeded();
    let link = wanted.join("tapline-extcap");
    let answer =
        finish(Command::new(&link).args(["--extcap-interfaces", "--extcap-version=4.6"])).succeeded();
    assert!(answer.stdout.starts_with(b"extcap {version="));
    fs::remove_file(&link).unwrap();
    File::create(&link).unwrap();
    install().failed_saying(&["tapline-extcap"]);
}
