//! Changes that `--fix` makes, and how they are put back.

use super::*;

#[test]
fn fixes_are_undone_on_a_signal() {
    if !namespaces_or_skip("fixes_are_undone_on_a_signal") {
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
fn fixes_last_as_long_as_the_command() {
    if !namespaces_or_skip("fixes_last_as_long_as_the_command") {
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
fn changes_of_a_killed_run_are_undone() {
    if !namespaces_or_skip("changes_of_a_killed_run_are_undone") {
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
fn settings_restored_by_others_are_restored_again() {
    if !namespaces_or_skip("settings_restored_by_others_are_restored_again") {
        return;
    }
    let patient = Patient::new("since");
    let before = patient.features();
    assert!(before.contains("tx-nocache-copy: off"), "{before}");
    let far = patient.ethtool(&["-k", FAR]);
    assert!(far.contains("generic-receive-offload: off"), "{far}");
    let fixing = patient.fixing(&[]);
    // One of the offloads that were switched off together, one beside them, and one on the far end: the last two are
    // none of ours.
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
fn nameless_namespaces_are_found_by_their_path() {
    let test = "nameless_namespaces_are_found_by_their_path";
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
fn a_hidden_namespace_is_not_reported_gone() {
    let test = "a_hidden_namespace_is_not_reported_gone";
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
    // The user `nobody` has no access to the namespaces of root's processes.
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
    // The signal ends it at once, long before the hour is over.
    let finished = fixing.signal("TERM");
    assert_eq!(finished.status.signal(), Some(15), "{}", finished.stderr);
    assert_eq!((patient.features(), patient.journals()), (before, 0));
}

#[test]
fn a_signal_before_the_command_prevents_it() {
    if !namespaces_or_skip("a_signal_before_the_command_prevents_it") {
        return;
    }
    let patient = Patient::new("before");
    let before = patient.features();
    let mark = tempfile::tempdir().unwrap();
    let mark = mark.path().join("ran");
    // Between the changes and the command lies the second look, as long as the first: long enough for a machine that
    // is busy with others.
    let fixing = patient.fixing(&["--watch", "10s", "--", "touch", mark.to_str().unwrap()]);
    let finished = fixing.signal("TERM");
    assert_eq!(finished.status.code(), Some(128 + 15), "{}", finished.stderr);
    assert!(finished.stderr.contains("put back: near0: gro on") && !mark.exists(), "{}", finished.stderr);
    assert_eq!((patient.features(), patient.journals()), (before, 0));
}

#[test]
fn reports_after_changes_list_remaining_findings() {
    if !namespaces_or_skip("reports_after_changes_list_remaining_findings") {
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
fn a_recreated_interface_is_left_alone() {
    if !namespaces_or_skip("a_recreated_interface_is_left_alone") {
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
    let undone = undo().stderr;
    assert!(undone.contains("the network namespace is gone"), "{undone}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
