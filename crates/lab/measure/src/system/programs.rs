//! The programs under test: how to start each, and how to read the packets in its report.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tapline_arena::libpcap::Libpcap;
use tapline_arena::netns::has_program;

use super::workload::Case;

tapline_packet::named_enum! {
    /// The receiver.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub(crate) enum Program {
        /// `tapline capture -i IFACE`: AF_PACKET.
        Tapline = "tapline",
        /// `tapline capture -i xdp:IFACE`: AF_XDP.
        TaplineXdp = "tapline-xdp",
        /// `tapline capture -i xdp:IFACE --busy-poll`: AF_XDP, polling instead of waiting for interrupts.
        TaplineBusyPoll = "tapline-busy-poll",
        /// `tapline probe -i IFACE`: a table of flows.
        TaplineProbe = "tapline-probe",
        /// `tapline run -e 'device(IFACE) -> flow -> count'`.
        TaplineRun = "tapline-run",
        /// The least program on top of the system's libpcap: a callback that counts.
        Libpcap = "libpcap",
        Tcpdump = "tcpdump",
        Dumpcap = "dumpcap",
        NetsniffNg = "netsniff-ng",
        /// softflowd: a table of flows, exported as NetFlow.
        Softflowd = "softflowd",
        /// nfpcapd: a table of flows, written to files.
        Nfpcapd = "nfpcapd",
        /// No program: XDP drops every packet where the driver receives it.
        XdpDrop = "XDP drop",
    }
}

/// A capture that a program is to run.
#[derive(Clone, Debug)]
pub(crate) struct CaptureOrder<'a> {
    pub(crate) interface: &'a str,
    pub(crate) snap: u32,
    pub(crate) filter: &'a str,
    /// Write there; `None` discards.
    pub(crate) store: Option<&'a Path>,
    /// Bytes of its ring.
    pub(crate) buffer: u64,
}

/// A program's own report at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramReport {
    /// Packets that it had.
    pub(crate) captured: u64,
    /// Packets of which it knows that they came to it and were lost.
    pub(crate) dropped: u64,
    /// Packets of which it knows that they came to it and that it did not read.
    pub(crate) unread: u64,
    /// Packets that its filter kept out, if it knows.
    pub(crate) filtered: Option<u64>,
}

impl Program {
    /// Whether it is one of ours, of which every packet must be accounted for.
    pub(crate) fn is_ours(self) -> bool {
        matches!(
            self,
            Program::Tapline
                | Program::TaplineXdp
                | Program::TaplineBusyPoll
                | Program::TaplineProbe
                | Program::TaplineRun
        )
    }

    /// The program that a command line runs.
    pub(crate) fn of_command(command: &[String]) -> Option<Program> {
        let name = Path::new(command.first()?).file_name()?.to_str()?;
        let is_xdp = command.iter().any(|argument| argument.contains("xdp:"));
        match name {
            "tapline" if is_xdp => Some(Program::TaplineXdp),
            "tapline" => Some(Program::Tapline),
            "tcpdump" => Some(Program::Tcpdump),
            "dumpcap" => Some(Program::Dumpcap),
            "netsniff-ng" => Some(Program::NetsniffNg),
            "nfpcapd" => Some(Program::Nfpcapd),
            _ => None,
        }
    }

    /// The reason that it is not available on this machine, or `None`.
    pub(crate) fn absence(self) -> Option<String> {
        let missing = |name: &str| (!has_program(name)).then(|| format!("{name} is not installed"));
        match self {
            Program::XdpDrop => None,
            ours if ours.is_ours() => None,
            Program::Libpcap => Libpcap::get().err().map(str::to_owned),
            Program::Tcpdump => missing("tcpdump"),
            Program::Dumpcap => missing("dumpcap"),
            Program::NetsniffNg => missing("netsniff-ng"),
            Program::Softflowd => missing("softflowctl").or_else(|| missing("softflowd")),
            _ => missing("nfpcapd"),
        }
    }

    /// The version that the program itself reports.
    pub(crate) fn version(self) -> Option<String> {
        let first_line = |name: &str, option: &str| {
            let output = Command::new(name).arg(option).output().ok()?;
            let text = [output.stdout, output.stderr].concat();
            Some(String::from_utf8_lossy(&text).lines().next()?.trim().to_owned())
        };
        match self {
            Program::XdpDrop | Program::Softflowd => None,
            ours if ours.is_ours() => Some(format!("tapline {}", env!("CARGO_PKG_VERSION"))),
            Program::Libpcap => Libpcap::get().ok().map(|pcap| pcap.version().to_owned()),
            Program::Tcpdump => first_line("tcpdump", "--version"),
            Program::Dumpcap => first_line("dumpcap", "--version"),
            Program::NetsniffNg => first_line("netsniff-ng", "--version"),
            _ => first_line("nfpcapd", "-V"),
        }
    }

    /// The reason that it cannot do this, or `None`.
    pub(crate) fn refusal(self, case: &Case, stores: bool) -> Option<&'static str> {
        match self {
            // And to no device either: it might take that for a file of its own.
            Program::Dumpcap if !stores && case.filter.is_empty() => {
                Some("dumpcap cannot discard packets: into a pipe it writes one by one")
            }
            Program::NetsniffNg if case.snap < case.size => Some("netsniff-ng has no snap length"),
            Program::Libpcap if stores => Some("the program on libpcap only counts"),
            Program::XdpDrop if stores => Some("XDP drop stores nothing"),
            Program::TaplineProbe | Program::TaplineRun | Program::Softflowd | Program::Nfpcapd if stores => {
                Some("programs for flows store no packets")
            }
            Program::Softflowd | Program::Nfpcapd if !case.filter.is_empty() => {
                Some("losses of softflowd and nfpcapd are unknown behind a filter")
            }
            _ => None,
        }
    }

    /// Delay from the kernel to the program: programs on libpcap get a block after its timeout.
    pub(crate) fn settles(self) -> Duration {
        match self {
            Program::Tcpdump | Program::Dumpcap | Program::Softflowd | Program::Nfpcapd => {
                Duration::from_millis(1200)
            }
            Program::Libpcap | Program::NetsniffNg => Duration::from_millis(400),
            _ => Duration::from_millis(150),
        }
    }

    /// The program's command line. `tapline` is the running program.
    pub(crate) fn command(self, tapline: &Path, order: &CaptureOrder<'_>) -> Vec<String> {
        let CaptureOrder { interface, snap, filter, store, buffer } = order;
        let (snap, kib, mib) = (snap.to_string(), (buffer >> 10).to_string(), (buffer >> 20).to_string());
        let tapline = tapline.to_string_lossy().into_owned();
        let path = store.map(|path| path.to_string_lossy().into_owned());
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let write = || path.clone().unwrap_or_else(|| "-".to_owned());
        let mut line = match self {
            Program::Tapline | Program::TaplineXdp | Program::TaplineBusyPoll => {
                let prefix = if self == Program::Tapline { "" } else { "xdp:" };
                let interface = format!("{prefix}{interface}");
                let mut line = words(&[
                    &tapline, "capture", "-i", &interface, "-Z", "root", "-B", &kib, "-s", &snap, "--json",
                ]);
                line.extend((self == Program::TaplineBusyPoll).then(|| "--busy-poll".to_owned()));
                line.extend(path.map_or_else(|| words(&["--count"]), |path| words(&["-w", &path])));
                line
            }
            Program::Libpcap => words(&[
                &tapline,
                "bench",
                "--as-libpcap",
                interface,
                "--snap",
                &snap,
                "--ring",
                &buffer.to_string(),
            ]),
            Program::Tcpdump => {
                words(&["tcpdump", "-Z", "root", "-i", interface, "-B", &kib, "-s", &snap, "-w", &write()])
            }
            Program::Dumpcap => {
                words(&["dumpcap", "-q", "-P", "-i", interface, "-B", &mib, "-s", &snap, "-w", &write()])
            }
            Program::NetsniffNg => {
                let mut line =
                    words(&["netsniff-ng", "--silent", "-i", interface, "--ring-size", &format!("{mib}MiB")]);
                line.extend(path.map_or_else(Vec::new, |path| words(&["-o", &path])));
                line
            }
            Program::TaplineProbe => words(&[&tapline, "probe", "-i", interface, "-Z", "root", "--json"]),
            Program::TaplineRun => {
                let graph = format!("device({interface}) -> flow -> count");
                return words(&[&tapline, "run", "-e", &graph, "-Z", "root", "--json"]);
            }
            Program::Softflowd => {
                let (pid, control) = (path_in_tmp("pid"), path_in_tmp("ctl"));
                let bytes = buffer.to_string();
                let to = "127.0.0.1:9995";
                words(&[
                    "softflowd",
                    "-d",
                    "-v",
                    "5",
                    "-i",
                    interface,
                    "-B",
                    &bytes,
                    "-n",
                    to,
                    "-p",
                    &pid,
                    "-c",
                    &control,
                ])
            }
            Program::Nfpcapd => words(&[
                "nfpcapd",
                "-i",
                interface,
                "-b",
                &mib,
                "-w",
                &std::env::temp_dir().to_string_lossy(),
            ]),
            Program::XdpDrop => Vec::new(),
        };
        match self {
            _ if filter.is_empty() => {}
            Program::Dumpcap => line.extend(words(&["-f", filter])),
            Program::Libpcap => line.extend(words(&["--filter", filter])),
            _ => line.push((*filter).to_owned()),
        }
        line
    }

    /// Asks a running program for figures that it does not report at its end, and returns its answer.
    pub(crate) fn ask(self, command: &[String]) -> String {
        let Some(control) = command.last().filter(|_| self == Program::Softflowd) else {
            return String::new();
        };
        let answer = Command::new("softflowctl").args(["-c", control, "statistics"]).output();
        answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default()
    }

    /// Parses the report of the program: standard output and standard error.
    ///
    /// # Errors
    /// That its words are not understood, with them.
    pub(crate) fn said(self, output: &str, errors: &str) -> Result<ProgramReport> {
        let said = match self {
            ours if ours.is_ours() => of_account(output),
            Program::Libpcap => of_libpcap(output),
            Program::Tcpdump => of_tcpdump(errors),
            Program::Dumpcap => of_dumpcap(errors),
            Program::NetsniffNg => of_netsniff(&format!("{output}\n{errors}")),
            Program::Softflowd => of_softflowd(output),
            Program::Nfpcapd => of_nfpcapd(&format!("{output}\n{errors}")),
            _ => bail!("XDP drop says nothing"),
        };
        said.with_context(|| format!("{} ended without its figures: {}", self.name(), tail(errors)))
    }
}

/// The last lines of the output, for an error.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

fn of_account(output: &str) -> Option<ProgramReport> {
    let last: Value = serde_json::from_str(output.lines().last()?).ok()?;
    let account = &last["account"];
    let interfaces = account["interfaces"].as_array()?;
    let of = |place: &Value, key: &str| place[key].as_u64().unwrap_or(0);
    // Accounts of graphs (probe, run) have no verdict: a packet that entered the graph was captured.
    let captured = account["accepted"].as_u64().or_else(|| account["delivered"].as_u64())?;
    let filtered = account["filtered"].as_u64();
    let mut said = ProgramReport { captured, filtered, ..ProgramReport::default() };
    for interface in interfaces {
        said.unread += of(&interface["ring"], "unread");
        said.dropped += of(&interface["ring"], "dropped");
        // A filter before the ring of AF_PACKET has no counter.
        let before = interface["kernel_filtered"].as_u64();
        said.filtered = said.filtered.zip(before).map(|(sum, before)| sum + before);
    }
    Some(said)
}

fn of_libpcap(output: &str) -> Option<ProgramReport> {
    let said: Value = serde_json::from_str(output.trim()).ok()?;
    let of = |key: &str| said[key].as_u64();
    let (captured, received, dropped) = (of("captured")?, of("received")?, of("dropped")?);
    Some(ProgramReport {
        captured,
        dropped,
        unread: received.saturating_sub(captured + dropped),
        filtered: None,
    })
}

/// The number before ` packets WHAT`.
fn packets(text: &str, what: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(what))?;
    line.split_whitespace().next()?.parse().ok()
}

fn of_tcpdump(errors: &str) -> Option<ProgramReport> {
    let captured = packets(errors, "captured")?;
    let (received, dropped) = (packets(errors, "received by filter")?, packets(errors, "dropped by kernel")?);
    Some(ProgramReport {
        captured,
        dropped,
        unread: received.saturating_sub(captured + dropped),
        filtered: None,
    })
}

/// `Packets received/dropped on interface 'far0': 12/3 (pcap:2/dumpcap:1/flushed:0/ps_ifdrop:0) (80.0%)`
fn of_dumpcap(errors: &str) -> Option<ProgramReport> {
    let line = errors.lines().find(|line| line.contains("received/dropped"))?;
    let (counts, causes) = line.rsplit_once("': ")?.1.split_once(" (pcap:")?;
    let captured = counts.split_once('/')?.0.parse().ok()?;
    let number = |text: &str| text.split(['/', ')']).next()?.parse().ok();
    let lost_in_kernel: u64 = number(causes)?;
    let lost_within: u64 = number(causes.split_once("dumpcap:")?.1)?;
    let flushed: u64 = number(causes.split_once("flushed:")?.1)?;
    Some(ProgramReport { captured, dropped: lost_in_kernel + lost_within, unread: flushed, filtered: None })
}

/// ```text
///        12  packets incoming (0 unread on exit)
///        12  packets passed filter
///         0  packets failed filter (out of space)
/// ```
///
/// The dropped ones are among those that it calls unread, and none of them among those that passed, as its files show
/// (0.6.8).
fn of_netsniff(text: &str) -> Option<ProgramReport> {
    let line = text.lines().find(|line| line.contains("packets incoming"))?;
    let unseen: u64 = line.split_once('(')?.1.split_whitespace().next()?.parse().ok()?;
    let (passed, dropped) =
        (packets(text, "packets passed filter")?, packets(text, "packets failed filter")?);
    let unread = unseen.saturating_sub(dropped);
    Some(ProgramReport { captured: passed.saturating_sub(unread), dropped, unread, filtered: None })
}

/// A path of ours for a file of softflowd's.
fn path_in_tmp(kind: &str) -> String {
    let name = format!("tapline-bench-softflowd-{}.{kind}", std::process::id());
    std::env::temp_dir().join(name).to_string_lossy().into_owned()
}

/// The number behind `what`.
fn number_behind(text: &str, what: &str) -> Option<u64> {
    let rest = &text[text.rfind(what)? + what.len()..];
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// ```text
/// Packets processed: 12
/// Ignored packets: 2 (2 non-IP, 0 too short)
/// Packets received by libpcap: 20
/// Packets dropped by libpcap: 6
/// ```
fn of_softflowd(output: &str) -> Option<ProgramReport> {
    let of = |what| number_behind(output, what);
    let captured = of("Packets processed:")? + of("Ignored packets:")?;
    let (received, dropped) = (of("received by libpcap:")?, of("dropped by libpcap:")?);
    let unread = received.saturating_sub(captured + dropped);
    Some(ProgramReport { captured, dropped, unread, filtered: None })
}

/// ```text
/// Stat: received: 20, dropped by OS/Buffer: 6, freeze_q_cnt: 0
/// Total: Processed: 12, skipped: 1, short caplen: 0, unknown: 1
/// ```
fn of_nfpcapd(text: &str) -> Option<ProgramReport> {
    let total = &text[text.rfind("Total: Processed")?..];
    let parts = ["Processed:", "skipped:", "short caplen:", "unknown:"];
    let captured = parts.iter().map(|part| number_behind(total, part)).sum::<Option<u64>>()?;
    let dropped = number_behind(text, "dropped by OS/Buffer:")?;
    Some(ProgramReport { captured, dropped, unread: 0, filtered: None })
}

/// A file that a program of the bench may write and that is gone afterwards.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that was never written is absent.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_messages_of_peers_are_parsed() {
        let tcpdump = "tcpdump: listening on far0\n90 packets captured\n100 packets received by filter\n7 packets dropped by kernel\n";
        assert_eq!(
            Program::Tcpdump.said("", tcpdump).unwrap(),
            ProgramReport { captured: 90, dropped: 7, unread: 3, filtered: None }
        );
        let dumpcap = "Packets captured: 12\nPackets received/dropped on interface 'far0': 12/6 (pcap:2/dumpcap:1/flushed:3/ps_ifdrop:0) (66.7%)\n";
        assert_eq!(
            Program::Dumpcap.said("", dumpcap).unwrap(),
            ProgramReport { captured: 12, dropped: 3, unread: 3, filtered: None }
        );
        let netsniff = "Running! Hang up with ^C!\n\n   12  packets incoming (6 unread on exit)\n   12  packets passed filter\n    4  packets failed filter (out of space)\n";
        assert_eq!(
            Program::NetsniffNg.said(netsniff, "").unwrap(),
            ProgramReport { captured: 10, dropped: 4, unread: 2, filtered: None }
        );
        let libpcap = "{\"captured\":5,\"received\":8,\"dropped\":1}\n";
        assert_eq!(
            Program::Libpcap.said(libpcap, "").unwrap(),
            ProgramReport { captured: 5, dropped: 1, unread: 2, filtered: None }
        );
        let softflowd = "Packets processed: 4\nIgnored packets: 1 (1 non-IP, 0 too short)\nPackets received by libpcap: 8\n\
                         Packets dropped by libpcap: 1\n";
        assert_eq!(
            Program::Softflowd.said(softflowd, "").unwrap(),
            ProgramReport { captured: 5, dropped: 1, unread: 2, filtered: None }
        );
        let nfpcapd = "Stat: received: 9, dropped by OS/Buffer: 2, freeze_q_cnt: 0\nTotal: Processed: 5, skipped: 1, \
                       short caplen: 0, unknown: 1\n";
        assert_eq!(
            Program::Nfpcapd.said("", nfpcapd).unwrap(),
            ProgramReport { captured: 7, dropped: 2, unread: 0, filtered: None }
        );
        let graph = "{\"results\":{}}\n{\"account\":{\"delivered\":5,\"interfaces\":[{\"ring\":{\"unread\":1,\"dropped\":2}}]}}\n";
        let account = |filtered: &str| {
            format!(
                "5\n{{\"account\":{{\"accepted\":5,\"filtered\":1,\"interfaces\":\
                 [{{\"kernel_filtered\":{filtered},\"ring\":{{\"unread\":1,\"dropped\":2}}}}]}}}}\n"
            )
        };
        let said = ProgramReport { captured: 5, dropped: 2, unread: 1, filtered: None };
        assert_eq!(Program::Tapline.said(&account("null"), "").unwrap(), said);
        assert_eq!(Program::Tapline.said(graph, "").unwrap(), said, "probe and run");
        assert_eq!(
            Program::TaplineXdp.said(&account("7"), "").unwrap(),
            ProgramReport { filtered: Some(8), ..said }
        );
    }

    #[test]
    fn a_silent_peer_is_an_error_with_its_output() {
        let error = Program::Tcpdump.said("", "tcpdump: far0: No such device exists\n").unwrap_err();
        assert!(error.to_string().contains("No such device"), "{error}");
    }

    #[test]
    fn unsupported_options_of_peers_are_named() {
        let case = |program, snap, filter: &str| Case {
            program,
            size: 500,
            snap,
            filter: filter.to_owned(),
            buffer: 32,
        };
        let refused = |case: Case, stores| case.program.refusal(&case, stores).is_some();
        assert!(
            refused(case(Program::Dumpcap, 500, ""), false)
                && !refused(case(Program::Dumpcap, 500, ""), true)
        );
        assert!(!refused(case(Program::Dumpcap, 500, "tcp"), false), "nothing to discard");
        assert!(
            refused(case(Program::NetsniffNg, 68, ""), true)
                && !refused(case(Program::NetsniffNg, 500, ""), true)
        );
        assert!(
            refused(case(Program::Libpcap, 500, ""), true)
                && !refused(case(Program::Libpcap, 500, ""), false)
        );
        assert!(!refused(case(Program::TaplineXdp, 68, "tcp"), true));
    }

    #[test]
    fn filters_and_files_stand_where_each_wants_them() {
        let order =
            CaptureOrder { interface: "far0", snap: 68, filter: "udp", store: None, buffer: 32 << 20 };
        let line = |program: Program| program.command(Path::new("/x/tapline"), &order).join(" ");
        assert_eq!(
            line(Program::TaplineXdp),
            "/x/tapline capture -i xdp:far0 -Z root -B 32768 -s 68 --json --count udp"
        );
        assert_eq!(line(Program::Tcpdump), "tcpdump -Z root -i far0 -B 32768 -s 68 -w - udp");
        assert_eq!(line(Program::Dumpcap), "dumpcap -q -P -i far0 -B 32 -s 68 -w - -f udp");
        assert_eq!(line(Program::NetsniffNg), "netsniff-ng --silent -i far0 --ring-size 32MiB udp");
    }
}
