//! `tapline doctor`: findings compared with ethtool's output, and changes that are put back whatever ends the run.

mod fixing;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::*;
use serde_json::Value;
use tapline_bpf::ebpf::{Insn, R0, xdp_action};
use tapline_sys::bpf::{LoadedProgram, ProgramKind, XdpLink, XdpMode};
use tapline_sys::{NetNs, RouteSocket};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

/// A namespace whose [`NEAR`] merges, cuts and leaves checksums out, and a folder for journals.
struct Patient {
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Patient {
    fn new(label: &str) -> Patient {
        let patient = Patient {
            namespace: Namespace::with_pair(label).expect("we may"),
            folder: tempfile::tempdir().unwrap(),
        };
        let all_on = ["tx", "on", "sg", "on", "tso", "on", "gso", "on", "gro", "on"];
        patient.ethtool(&[&["-K", NEAR], &all_on[..]].concat());
        for feature in ["generic-receive-offload: on", "tcp-segmentation-offload: on"] {
            assert!(patient.features().contains(feature), "{}", patient.features());
        }
        patient
    }

    fn ethtool(&self, arguments: &[&str]) -> String {
        let output = finish(self.namespace.command("ethtool").args(arguments)).succeeded();
        String::from_utf8(output.stdout).unwrap()
    }

    /// All offloads as ethtool -k lists them.
    fn features(&self) -> String {
        self.ethtool(&["-k", NEAR])
    }

    fn is_mended(&self) -> bool {
        let features = self.features();
        ["generic-receive-offload: off", "tcp-segmentation-offload: off", "tx-checksumming: off"]
            .iter()
            .all(|feature| features.contains(feature))
    }

    fn doctor(&self, arguments: &[&str]) -> Command {
        let mut command = tapline(["doctor"]);
        command.args(arguments).env("TAPLINE_RUN_DIR", self.folder.path());
        command
    }

    fn examined(&self, arguments: &[&str]) -> Value {
        let output = finish(self.doctor(&["--netns", self.namespace.name(), NEAR, "--json"]).args(arguments));
        let value: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stderr));
        assert_eq!(output.status.code(), Some(i32::from(value["bad"] == true)), "{}", output.stderr);
        value
    }

    fn journals(&self) -> usize {
        fs::read_dir(self.folder.path()).unwrap().count()
    }

    /// `--fix` with more arguments, started, and waited for until it has changed all.
    fn fixing(&self, arguments: &[&str]) -> Fixing {
        let mut command = self.doctor(&["--netns", self.namespace.name(), NEAR, "--fix"]);
        let child = command.args(arguments).stdout(Stdio::null()).spawn().expect("the program was built");
        let fixing = Fixing { child: Some(child) };
        wait_for("offloads to be off", || self.is_mended());
        fixing
    }
}

struct Fixing {
    child: Option<Child>,
}

impl Fixing {
    fn signal(mut self, name: &str) -> Finished {
        let mut child = self.child.take().expect("it runs");
        let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(status.expect("kill is everywhere").success());
        wait_for("the end", || child.try_wait().expect("our child").is_some());
        Finished::new(child.wait_with_output().expect("our child"))
    }
}

impl Drop for Fixing {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn finding<'a>(report: &'a Value, check: &str) -> &'a Value {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().find(|one| one["check"] == check).unwrap_or_else(|| panic!("no {check} in {report}"))
}

#[test]
fn the_printed_command_switches_offloads_off() {
    if !namespaces_or_skip("the_printed_command_switches_offloads_off") {
        return;
    }
    let patient = Patient::new("found");
    patient.ethtool(&["-K", FAR, "tx", "on", "sg", "on", "tso", "on"]);
    let before = patient.examined(&[]);
    let peer = finding(&before, "peer_segmentation")["mend"].as_str().expect("a command");
    finish(Command::new("sh").args(["-c", peer])).succeeded();
    assert!(patient.ethtool(&["-k", FAR]).contains("tcp-segmentation-offload: off"), "{peer}");
    for (check, word) in [("receive_merging", "gro"), ("send_segmentation", "tso"), ("send_checksums", "tx")]
    {
        let found = finding(&before, check);
        assert_eq!((&found["severity"], &found["interface"]), (&"alters".into(), &NEAR.into()), "{found}");
        assert!(found["fix"] == true && found["text"].as_str().unwrap().contains(word), "{found}");
        let command = found["mend"].as_str().expect("a command");
        finish(Command::new("sh").args(["-c", command])).succeeded();
    }
    assert!(patient.is_mended(), "{}", patient.features());
    let after = patient.examined(&[]);
    for check in ["receive_merging", "send_segmentation", "send_checksums", "peer_segmentation"] {
        assert_eq!(finding(&after, check)["severity"], "fine");
    }
    assert_eq!(patient.journals(), 0, "only --fix keeps any");
}

/// A number in ethtool's output, in the lines after `section`.
fn number(text: &str, section: &str, name: &str) -> Option<u64> {
    let (_, text) = text.split_once(section)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}

const NOW: &str = "Current hardware settings:";

/// Queues that receive, in the output of ethtool -l: those for both directions and those for one.
fn queues(text: &str) -> Option<u64> {
    let counts = ["RX", "Combined"].map(|name| number(text, NOW, name));
    counts.into_iter().flatten().reduce(|one, other| one + other)
}

#[test]
fn settings_agree_with_ethtool() {
    let output = "Pre-set maximums:\nRX:\t\t7\nCombined:\t8\nCurrent hardware settings:\nRX:\t\t2\nTX:\t\tn/a\nCombined:\t3\n";
    assert_eq!((queues(output), queues(&output.replace("RX:\t\t2", "RX:\t\tn/a"))), (Some(5), Some(3)));

    let test = "settings_agree_with_ethtool";
    if !program_or_skip(test, "ethtool") {
        return;
    }
    let report: Value = serde_json::from_slice(&run(["doctor", "--json"]).stdout).unwrap();
    let mut compared = 0;
    for one in report["findings"].as_array().expect("a list") {
        let Some(interface) = one["interface"].as_str() else { continue };
        let ethtool = |option: &str| {
            let output = Command::new("ethtool").args([option, interface]).output().expect("it is there");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let (field, expected) = match one["check"].as_str().expect("a name") {
            "ring_size" => ("descriptors", number(&ethtool("-g"), NOW, "RX")),
            "queue_count" => ("queues", queues(&ethtool("-l"))),
            "interrupt_moderation" => ("rx_usecs", number(&ethtool("-c"), "", "rx-usecs")),
            _ => continue,
        };
        if let Some(told) = one["evidence"][field].as_u64() {
            assert_eq!(Some(told), expected, "{one}");
            compared += 1;
        }
    }
    if compared == 0 {
        eprintln!("skipped: {test}: no interface here has rings or queues");
    }
}

#[test]
fn json_lists_the_changes() {
    if !namespaces_or_skip("json_lists_the_changes") {
        return;
    }
    let patient = Patient::new("changes");
    let arguments = ["--netns", patient.namespace.name(), NEAR, "--fix", "--json", "--", "true"];
    let finished = finish(&mut patient.doctor(&arguments)).succeeded();
    assert!(finished.stdout.is_empty(), "that is the command's");
    let line = finished.stderr.lines().find(|line| line.starts_with('{')).expect("the report");
    let report: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        finding(&report, "receive_merging")["severity"],
        "fine",
        "it is of the machine after the changes"
    );
    let changes = report["changes"].as_array().expect("a list");
    let merging = changes.iter().find(|one| one["change"] == "near0: gro off").expect("it was changed");
    assert_eq!((&merging["done"], &merging["before"]), (&true.into(), &"near0: gro on".into()));
}

#[test]
fn the_bridge_above_an_interface_is_found() {
    let test = "the_bridge_above_an_interface_is_found";
    if !namespaces_or_skip(test) {
        return;
    }
    let patient = Patient::new("layers");
    assert_eq!(finding(&patient.examined(&[]), "layers")["severity"], "fine");
    if let Err(reason) = patient.namespace.ip(&["link", "add", "br0", "type", "bridge"]) {
        return eprintln!("skipped: {test}: {reason}");
    }
    patient.namespace.ip(&["link", "set", NEAR, "master", "br0"]).unwrap();
    let report = patient.examined(&[]);
    let text = finding(&report, "layers")["text"].as_str().unwrap();
    assert!(text.starts_with("it is a port of br0 (bridge): "), "{text}");
    assert_eq!(finding(&report, "promiscuous")["severity"], "note", "the bridge asks for it");
    let bridge =
        finish(&mut patient.doctor(&["--netns", patient.namespace.name(), "br0", "--json", "--all"]));
    let report: Value = serde_json::from_slice(&bridge.stdout).unwrap();
    assert_eq!(finding(&report, "layers")["evidence"]["others"], serde_json::json!(["near0 (veth)"]));
}

/// Lets a program that answers this to every packet run at [`NEAR`].
fn attach(namespace: &Namespace, verdict: u32, mode: XdpMode) -> Result<XdpLink, String> {
    let attach = || {
        let program = LoadedProgram::load(ProgramKind::Xdp, "verdict", &[Insn::set(R0, verdict), Insn::EXIT]);
        let program = program.map_err(|error| error.to_string())?;
        let links = RouteSocket::open().and_then(|mut route| route.links()).expect("it answers");
        let near = links.iter().find(|link| link.name == NEAR).expect("it is there");
        XdpLink::attach(&program, near.index, mode).map_err(|error| error.to_string())
    };
    NetNs::open(namespace.name()).unwrap().run(attach).unwrap()
}

#[test]
fn losses_carry_the_drivers_counter_names() {
    let test = "losses_carry_the_drivers_counter_names";
    if !namespaces_or_skip(test) {
        return;
    }
    // Quiet and without offloads, as it was made.
    let patient =
        Patient { namespace: Namespace::with_pair("watch").unwrap(), folder: tempfile::tempdir().unwrap() };
    let quiet = patient.examined(&["--watch", "20ms"]);
    assert_ne!(finding(&quiet, "driver_losses")["severity"], "loses");
    let _attached = match attach(&patient.namespace, xdp_action::DROP, XdpMode::Native) {
        Ok(link) => link,
        Err(reason) => return eprintln!("skipped: {test}: {reason}"),
    };
    let lost = std::thread::scope(|scope| {
        let watching = scope.spawn(|| patient.examined(&["--watch", "2s"]));
        let mut sender = Sender::open(Some(patient.namespace.name()), FAR).unwrap();
        while !watching.is_finished() {
            sender.send(&frames(1, 50), 50, Pace::PerSecond(1000)).unwrap();
        }
        watching.join().unwrap()
    });
    let found = finding(&lost, "driver_losses");
    assert_eq!(found["severity"], "loses", "{found}");
    let evidence = found["evidence"].as_object().unwrap();
    let dropped = evidence.iter().find(|(name, _)| name.contains("xdp_drops")).expect("veth counts them");
    assert!(dropped.1.as_u64().is_some_and(|count| count > 0), "{found}");
}

#[test]
fn a_program_in_front_is_found() {
    let test = "a_program_in_front_is_found";
    if !namespaces_or_skip(test) {
        return;
    }
    let patient = Patient::new("program");
    assert_eq!(finding(&patient.examined(&[]), "xdp_program")["severity"], "fine");
    let _attached = match attach(&patient.namespace, xdp_action::PASS, XdpMode::Generic) {
        Ok(link) => link,
        Err(reason) => return eprintln!("skipped: {test}: {reason}"),
    };
    let found = finding(&patient.examined(&[]), "xdp_program").clone();
    assert_eq!(
        (&found["severity"], &found["evidence"]["mode"]),
        (&"alters".into(), &"generic".into()),
        "{found}"
    );
    assert!(found["evidence"]["program"].as_u64().is_some_and(|id| id > 0), "{found}");
}

#[test]
fn another_sniffer_is_found_by_name() {
    let test = "another_sniffer_is_found_by_name";
    if !namespaces_or_skip(test) || !program_or_skip(test, "tcpdump") {
        return;
    }
    let patient = Patient::new("sniffer");
    assert_eq!(finding(&patient.examined(&[]), "sniffers")["severity"], "fine");
    let mut tcpdump = patient.namespace.command("tcpdump");
    tcpdump.args(["-i", NEAR, "-w", "/dev/null"]).stdout(Stdio::null()).stderr(Stdio::null());
    let _running = Fixing { child: Some(tcpdump.spawn().expect("it is there")) };
    wait_for("tcpdump to be found", || {
        let report = patient.examined(&[]);
        let found = finding(&report, "sniffers");
        found["severity"] == "note"
            && found["text"].as_str().is_some_and(|text| text.starts_with("tcpdump (pid "))
    });
    let text = finish(&mut patient.doctor(&["--netns", patient.namespace.name(), NEAR])).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("tcpdump (pid ") && text.contains(" KiB") && !text.contains('\x1b'), "{text}");
}

#[test]
fn the_report_has_its_fields_and_its_sums() {
    if !namespaces_or_skip("the_report_has_its_fields_and_its_sums") {
        return;
    }
    let patient = Patient::new("shape");
    let report = patient.examined(&["--watch", "50ms"]);
    assert_eq!(report["interfaces"], serde_json::json!([NEAR]));
    assert_eq!(report["netns"], patient.namespace.name());
    assert!(report["watched_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let findings = report["findings"].as_array().expect("a list");
    let severities = ["loses", "alters", "delays", "note", "fine", "not_told"];
    let rank =
        |one: &Value| severities.iter().position(|name| one["severity"] == *name).expect("one of them");
    assert!(findings.iter().map(rank).is_sorted(), "worst first");
    for one in findings {
        for field in ["check", "text", "why", "source", "looks_at"] {
            assert!(one[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {one}");
        }
        assert!(one["mend"].is_string() || one["mend"].is_null());
        assert!(one["fix"].is_boolean() && one["evidence"].is_object() && one["interrupts"].is_boolean());
        assert!(one["interface"] == NEAR || one["interface"].is_null());
    }
    for (number, name) in severities.iter().enumerate() {
        let count = findings.iter().filter(|one| rank(one) == number).count();
        assert_eq!(report["summary"][name], count, "{name}");
    }
    let fixable = findings.iter().filter(|one| one["fix"] == true).count();
    assert_eq!(report["summary"]["fixable"], fixable);
    assert_eq!(report["bad"], findings.iter().any(|one| rank(one) < 2));
    assert!(report["changes"].is_null() && report["left"].as_array().is_some_and(Vec::is_empty));
    // Settings that a veth does not have are reported as unknown, and lead to no finding.
    for check in ["ring_size", "interrupt_moderation", "hash_symmetry"] {
        let found = findings.iter().find(|one| one["check"] == check);
        assert!(
            found.is_none_or(|one| one["severity"] == "not_told" || one["severity"] == "fine"),
            "{found:?}"
        );
    }
}

#[test]
fn the_report_for_people_is_summed_and_explained() {
    if !namespaces_or_skip("the_report_for_people_is_summed_and_explained") {
        return;
    }
    let patient = Patient::new("people");
    let of = |arguments: &[&str]| {
        let mut command = patient.doctor(&["--netns", patient.namespace.name(), NEAR]);
        String::from_utf8(finish(command.args(arguments)).stdout).unwrap()
    };
    let plain = of(&[]);
    let mend = format!("ip netns exec {} ethtool -K {NEAR} gro off", patient.namespace.name());
    assert!(plain.contains(&mend), "{plain}");
    assert!(plain.lines().last().is_some_and(|line| line.contains(" can be fixed with --fix (")), "{plain}");
    assert!(!plain.contains("\nfine ") && of(&["--all"]).contains("\nfine "), "{plain}");
    assert!(of(&["--why"]).contains("Packets of a connection are merged before the tap"));
}

#[test]
fn a_name_full_of_shell_is_only_a_name() {
    if !namespaces_or_skip("a_name_full_of_shell_is_only_a_name") {
        return;
    }
    let patient = Patient::new("shell");
    let (name, mark) = ("a;id>x;'$(id)", patient.folder.path().join("x"));
    patient.namespace.ip(&["link", "set", NEAR, "down"]).unwrap();
    patient.namespace.ip(&["link", "set", NEAR, "name", name]).unwrap();
    patient.namespace.ip(&["link", "set", name, "up"]).unwrap();
    let mut command = patient.doctor(&["--netns", patient.namespace.name(), name, "--json"]);
    let report: Value = serde_json::from_slice(&finish(&mut command).stdout).unwrap();
    let mend = finding(&report, "receive_merging")["mend"].as_str().expect("a command").to_owned();
    finish(Command::new("sh").args(["-c", &mend]).current_dir(patient.folder.path())).succeeded();
    assert!(!Path::new(&mark).exists(), "{mend}");
    assert!(patient.ethtool(&["-k", name]).contains("generic-receive-offload: off"), "{mend}");
}

#[test]
fn missing_interfaces_are_errors() {
    run(["doctor", "no-such-if"]).failed_saying(&["there is no interface \"no-such-if\"; there are: ", "lo"]);
    run(["doctor", "--netns", "no-such-namespace"]).failed_saying(&["no-such-namespace"]);
    run(["doctor", "--", "true"]).failed_saying(&["--fix"]);
}
