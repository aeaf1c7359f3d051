//! `tapline doctor`: findings beside what ethtool says, and changes that are put back whatever ends the run.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::*;
use serde_json::Value;
use tapline_bpf::ebpf::{Insn, R0, xdp_action};
use tapline_sys::bpf::{Program, ProgramKind, XdpLink, XdpMode};
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
fn offloads_are_found_and_the_command_that_is_told_mends_them() {
    if !namespaces_or_skip("offloads_are_found_and_the_command_that_is_told_mends_them") {
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

#[test]
fn what_is_fixed_is_put_back_on_a_signal() {
    if !namespaces_or_skip("what_is_fixed_is_put_back_on_a_signal") {
        return;
    }
    for signal in ["INT", "TERM", "HUP"] {
        let patient = Patient::new("signal");
        let before = patient.features();
        let fixing = patient.fixing(&[]);
        wait_for("the journal", || patient.journals() == 1);
        let finished = fixing.signal(signal);
        assert!(finished.status.code().is_some(), "{signal}: {}", finished.status);
        assert_eq!(patient.features(), before, "{signal}");
        assert_eq!(patient.journals(), 0);
        for word in ["changed: near0: gro off", "put back: near0: gro on"] {
            assert!(finished.stderr.contains(word), "no {word} in {}", finished.stderr);
        }
    }
}

#[test]
fn what_is_fixed_lasts_as_long_as_the_command() {
    if !namespaces_or_skip("what_is_fixed_lasts_as_long_as_the_command") {
        return;
    }
    let patient = Patient::new("command");
    let before = patient.features();
    let script = format!("ip netns exec {} ethtool -k {NEAR}; exit 7", patient.namespace.name());
    let arguments = ["--netns", patient.namespace.name(), NEAR, "--fix", "--", "sh", "-c", &script];
    let finished = finish(patient.doctor(&arguments).stdout(Stdio::piped()));
    assert_eq!(finished.status.code(), Some(7), "{}", finished.stderr);
    // Standard output is the command's alone.
    let meanwhile = String::from_utf8(finished.stdout).unwrap();
    assert!(meanwhile.starts_with("Features for near0:"), "{meanwhile}");
    assert!(meanwhile.contains("generic-receive-offload: off"), "{meanwhile}");
    assert_eq!((patient.features(), patient.journals()), (before, 0));
    let missing = ["--netns", patient.namespace.name(), NEAR, "--fix", "--", "no-such-program"];
    finish(&mut patient.doctor(&missing)).failed_saying(&["no-such-program"]);
    assert!(!patient.is_mended() && patient.journals() == 0, "put back where the command does not start");
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
fn drivers_tell_us_what_they_tell_ethtool() {
    let output = "Pre-set maximums:\nRX:\t\t7\nCombined:\t8\nCurrent hardware settings:\nRX:\t\t2\nTX:\t\tn/a\nCombined:\t3\n";
    assert_eq!((queues(output), queues(&output.replace("RX:\t\t2", "RX:\t\tn/a"))), (Some(5), Some(3)));

    let test = "drivers_tell_us_what_they_tell_ethtool";
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
fn machines_are_told_what_was_changed() {
    if !namespaces_or_skip("machines_are_told_what_was_changed") {
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
fn a_signal_ends_the_command_too() {
    if !namespaces_or_skip("a_signal_ends_the_command_too") {
        return;
    }
    let patient = Patient::new("forward");
    let before = patient.features();
    let finished = patient.fixing(&["--", "sleep", "1000"]).signal("TERM");
    assert_eq!(finished.status.code(), Some(128 + 15), "{}", finished.stderr);
    assert_eq!((patient.features(), patient.journals()), (before, 0));
}

#[test]
fn what_a_killed_run_left_is_told_and_undone() {
    if !namespaces_or_skip("what_a_killed_run_left_is_told_and_undone") {
        return;
    }
    let patient = Patient::new("killed");
    let before = patient.features();
    let fixing = patient.fixing(&[]);
    let running = patient.examined(&[]);
    assert_eq!(running["left"][0]["running"], true);
    fixing.signal("KILL");
    assert!(patient.is_mended() && patient.journals() == 1);
    let told = patient.examined(&[]);
    assert_eq!(told["left"][0]["running"], false);
    assert!(told["left"][0]["put_back"].to_string().contains("gro on"), "{told}");
    let undone = finish(&mut patient.doctor(&["--undo"])).succeeded();
    assert!(undone.stderr.contains("put back: near0: gro on"), "{}", undone.stderr);
    assert_eq!((patient.features(), patient.journals()), (before, 0));
    let again = finish(&mut patient.doctor(&["--undo"])).succeeded();
    assert_eq!(again.stderr, "nothing is left to be put back\n");
}

#[test]
fn what_somebody_else_switched_back_is_put_back_all_the_same() {
    if !namespaces_or_skip("what_somebody_else_switched_back_is_put_back_all_the_same") {
        return;
    }
    let patient = Patient::new("since");
    let before = patient.features();
    assert!(before.contains("tx-nocache-copy: off"), "{before}");
    let far = patient.ethtool(&["-k", FAR]);
    assert!(far.contains("generic-receive-offload: off"), "{far}");
    let fixing = patient.fixing(&[]);
    // One of the offloads that were switched off together, one beside them, and one on the far end: the last two are none of ours.
    patient.ethtool(&["-K", NEAR, "gso", "on", "tx-nocache-copy", "on"]);
    patient.ethtool(&["-K", FAR, "gro", "on"]);
    let finished = fixing.signal("INT");
    assert!(!finished.stderr.contains("NOT put back"), "{}", finished.stderr);
    let after = before.replace("tx-nocache-copy: off", "tx-nocache-copy: on");
    assert_eq!((patient.features(), patient.journals()), (after, 0));
    let far = far.replace("generic-receive-offload: off", "generic-receive-offload: on");
    assert_eq!(patient.ethtool(&["-k", FAR]), far);
}

#[test]
fn an_interface_that_was_renamed_is_not_forgotten() {
    if !namespaces_or_skip("an_interface_that_was_renamed_is_not_forgotten") {
        return;
    }
    let patient = Patient::new("renamed");
    let before = patient.features();
    patient.fixing(&[]).signal("KILL");
    let rename = |from: &str, to: &str| {
        patient.namespace.ip(&["link", "set", from, "down"]).unwrap();
        patient.namespace.ip(&["link", "set", from, "name", to]).unwrap();
        patient.namespace.ip(&["link", "set", to, "up"]).unwrap();
    };
    rename(NEAR, "other0");
    let undone = finish(&mut patient.doctor(&["--undo", "--json"]));
    undone.failed_saying(&["NOT put back: near0: gro on: it is called other0 now"]);
    let told: Value = serde_json::from_slice(&undone.stdout).unwrap();
    assert_eq!(told, serde_json::json!({"undone": [], "failed": 1}));
    assert_eq!(patient.journals(), 1, "it is kept");
    rename("other0", NEAR);
    assert!(patient.is_mended(), "nothing was put back");
    let undone = finish(&mut patient.doctor(&["--undo", "--json"])).succeeded();
    let told: Value = serde_json::from_slice(&undone.stdout).unwrap();
    assert!(told["failed"] == 0 && told["undone"][0]["put_back"].to_string().contains("gro on"), "{told}");
    assert_eq!((patient.features(), patient.journals()), (before, 0));
}

#[test]
fn a_namespace_without_name_and_process_is_found_by_its_path() {
    let test = "a_namespace_without_name_and_process_is_found_by_its_path";
    if !namespaces_or_skip(test) {
        return;
    }
    /// A namespace bound to a file.
    struct Bound(String);
    impl Drop for Bound {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.0).status();
        }
    }
    let patient = Patient::new("path");
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("ns"), "").unwrap();
    let path = place.path().join("ns").to_str().unwrap().to_owned();
    let named = format!("/var/run/netns/{}", patient.namespace.name());
    let bound = Command::new("mount").args(["--bind", &named, &path]).output().expect("mount is everywhere");
    if !bound.status.success() {
        return eprintln!("skipped: {test}: {}", String::from_utf8_lossy(&bound.stderr));
    }
    let _bound = Bound(path.clone());
    // By a path that means something in one folder only.
    let mut command = patient.doctor(&["--netns", "./ns", NEAR, "--fix"]);
    let child =
        command.current_dir(place.path()).stdout(Stdio::null()).spawn().expect("the program was built");
    let fixing = Fixing { child: Some(child) };
    wait_for("offloads to be off", || patient.is_mended());
    fixing.signal("KILL");
    let Patient { namespace, folder } = patient;
    drop(namespace);
    let undone = finish(tapline(["doctor", "--undo"]).env("TAPLINE_RUN_DIR", folder.path())).succeeded();
    assert!(undone.stderr.contains("put back: near0: gro on"), "{}", undone.stderr);
    let features = finish(Command::new("nsenter").args([&format!("--net={path}"), "ethtool", "-k", NEAR]));
    let features = String::from_utf8(features.succeeded().stdout).unwrap();
    assert!(features.contains("generic-receive-offload: on"), "{features}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_namespace_that_may_be_hidden_is_not_said_to_be_gone() {
    let test = "a_namespace_that_may_be_hidden_is_not_said_to_be_gone";
    if !root_or_skip(test) {
        return;
    }
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let header = serde_json::json!({"version": 1, "boot": boot.trim(), "netns": null, "netns_inode": 1});
    let ring = |rx: u32| serde_json::json!({"receive_ring": {"interface": "eth9", "rx": rx}});
    let line = serde_json::json!({"if_index": 9, "step": {"change": ring(4096), "before": ring(256)}});
    let journal = folder.path().join("doctor-1-0.journal");
    fs::write(&journal, format!("{header}\n{line}\n")).unwrap();
    for path in [folder.path(), &journal] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // The namespaces of root's processes are not for nobody to look at.
    let mut command = tapline(["doctor", "--undo"]);
    command.env("TAPLINE_RUN_DIR", folder.path()).uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
    let undone = match command.output() {
        Ok(output) => Finished::new(output),
        Err(error) => return eprintln!("skipped: {test}: nobody may not run {TAPLINE}: {error}"),
    };
    undone.failed_saying(&["NOT put back: eth9: receive ring 256", "use sudo"]);
    assert!(journal.exists());
    // Root's journal is for root, and root sees that there is no such namespace.
    for path in [folder.path(), &journal] {
        std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap();
    }
    let undone = finish(tapline(["doctor", "--undo"]).env("TAPLINE_RUN_DIR", folder.path())).succeeded();
    assert!(undone.stderr.contains("the network namespace is gone"), "{}", undone.stderr);
    assert!(!journal.exists());
}

#[test]
fn a_signal_before_the_first_change_ends_it() {
    if !namespaces_or_skip("a_signal_before_the_first_change_ends_it") {
        return;
    }
    let patient = Patient::new("early");
    let before = patient.features();
    let mut command = patient.doctor(&["--netns", patient.namespace.name(), NEAR, "--fix", "--watch", "1h"]);
    let fixing = Fixing { child: Some(command.spawn().expect("the program was built")) };
    // It ends now, and not after an hour.
    let finished = fixing.signal("TERM");
    assert_eq!(finished.status.signal(), Some(15), "{}", finished.stderr);
    assert_eq!((patient.features(), patient.journals()), (before, 0));
}

#[test]
fn a_signal_before_the_command_keeps_it_from_running() {
    if !namespaces_or_skip("a_signal_before_the_command_keeps_it_from_running") {
        return;
    }
    let patient = Patient::new("before");
    let before = patient.features();
    let mark = tempfile::tempdir().unwrap();
    let mark = mark.path().join("ran");
    // Between the changes and the command lies the second look, as long as the first.
    let fixing = patient.fixing(&["--watch", "3s", "--", "touch", mark.to_str().unwrap()]);
    let finished = fixing.signal("TERM");
    assert_eq!(finished.status.code(), Some(128 + 15), "{}", finished.stderr);
    assert!(finished.stderr.contains("put back: near0: gro on") && !mark.exists(), "{}", finished.stderr);
    assert_eq!((patient.features(), patient.journals()), (before, 0));
}

#[test]
fn the_report_after_changes_is_watched_and_tells_what_was_left() {
    if !namespaces_or_skip("the_report_after_changes_is_watched_and_tells_what_was_left") {
        return;
    }
    let patient = Patient::new("after");
    patient.fixing(&[]).signal("KILL");
    patient.ethtool(&["-K", NEAR, "gro", "on"]);
    let arguments = ["--netns", patient.namespace.name(), NEAR, "--fix", "--json", "--watch", "20ms"];
    let finished = finish(patient.doctor(&arguments).args(["--", "true"])).succeeded();
    let line = finished.stderr.lines().find(|line| line.starts_with('{')).expect("the report");
    let report: Value = serde_json::from_str(line).unwrap();
    assert!(report["watched_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{report}");
    let changes = report["changes"].as_array().expect("a list");
    assert!(changes.iter().any(|one| one["change"] == "near0: gro off" && one["done"] == true), "{report}");
    let left = report["left"].as_array().expect("a list");
    assert!(left.len() == 1 && left[0]["running"] == false, "the other run's, and not its own: {report}");
    assert!(left[0]["put_back"].to_string().contains("gro on"), "{report}");
    assert_eq!(patient.journals(), 1, "its own is gone");
}

#[test]
fn an_interface_made_anew_is_none_of_ours() {
    if !namespaces_or_skip("an_interface_made_anew_is_none_of_ours") {
        return;
    }
    let patient = Patient::new("anew");
    patient.fixing(&[]).signal("KILL");
    patient.namespace.ip(&["link", "delete", NEAR]).unwrap();
    // Offloads off, as the killed run had left them on the one before.
    patient.namespace.add_pair(NEAR, "other0").unwrap();
    let before = patient.features();
    let undone = finish(&mut patient.doctor(&["--undo"])).succeeded();
    assert!(undone.stderr.contains("the interface is gone"), "{}", undone.stderr);
    assert_eq!((patient.features(), patient.journals()), (before, 0));
}

#[test]
fn what_the_interface_is_a_port_of_is_found() {
    let test = "what_the_interface_is_a_port_of_is_found";
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
        let program = Program::load(ProgramKind::Xdp, "verdict", &[Insn::set(R0, verdict), Insn::EXIT]);
        let program = program.map_err(|error| error.to_string())?;
        let links = RouteSocket::open().and_then(|mut route| route.links()).expect("it answers");
        let near = links.iter().find(|link| link.name == NEAR).expect("it is there");
        XdpLink::attach(&program, near.index, mode).map_err(|error| error.to_string())
    };
    NetNs::open(namespace.name()).unwrap().run(attach).unwrap()
}

#[test]
fn what_is_lost_while_watched_is_told_by_the_drivers_name() {
    let test = "what_is_lost_while_watched_is_told_by_the_drivers_name";
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
fn a_namespace_that_is_gone_leaves_nothing_to_undo() {
    if !namespaces_or_skip("a_namespace_that_is_gone_leaves_nothing_to_undo") {
        return;
    }
    let Patient { namespace, folder } = {
        let patient = Patient::new("gone");
        patient.fixing(&[]).signal("KILL");
        patient
    };
    drop(namespace);
    let undo = || finish(tapline(["doctor", "--undo"]).env("TAPLINE_RUN_DIR", folder.path())).succeeded();
    assert!(undo().stderr.contains("the network namespace is gone"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
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
    // What a veth does not have is not told, and nothing is made of it.
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
    assert!(plain.lines().last().is_some_and(|line| line.contains(" can be mended with --fix (")), "{plain}");
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
fn what_is_not_there_is_said() {
    run(["doctor", "no-such-if"]).failed_saying(&["there is no interface \"no-such-if\"; there are: ", "lo"]);
    run(["doctor", "--netns", "no-such-namespace"]).failed_saying(&["no-such-namespace"]);
    run(["doctor", "--", "true"]).failed_saying(&["--fix"]);
}
