//! Options from files, profiles and the environment, in the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Finished, finish, tapline};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(text: &str) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tapline.toml"), text).unwrap();
        Folder(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tapline.toml")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = tapline(line.split_whitespace());
        command.env("TAPLINE_CONFIG_DIR", self.0.path());
        command
    }

    fn run(&self, line: &str) -> Finished {
        finish(&mut self.command(line))
    }
}

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/mixed.pcapng").display().to_string()
}

fn packets(finished: Finished) -> u64 {
    let text = String::from_utf8(finished.succeeded().stdout).unwrap();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn places_win_in_their_order() {
    let folder = Folder::new("[capture]\nc = 3\ncount = true\n[profile.two]\nc = 2\n");
    let line = format!("capture -r {}", example());
    assert_eq!(packets(folder.run(&line)), 3);
    assert_eq!(packets(folder.run(&format!("{line} --profile two"))), 2);
    assert_eq!(packets(finish(folder.command(&line).env("TAPLINE_PROFILE", "two"))), 2);
    assert_eq!(
        packets(finish(folder.command(&format!("{line} --profile two")).env("TAPLINE_CAPTURE_C", "4"))),
        4
    );
    assert_eq!(packets(finish(folder.command(&format!("{line} -c 5")).env("TAPLINE_CAPTURE_C", "4"))), 5);
    assert_eq!(packets(folder.run(&format!("--profile=two {line}"))), 2);
}

#[test]
fn faults_have_a_line_number_and_the_usage_status() {
    let folder = Folder::new("[capture]\nsnapshot-lenght = 96\n");
    let finished = folder.run(&format!("capture -r {}", example()));
    assert_eq!(finished.status.code(), Some(2));
    let fault = format!(
        "{}:2: capture has no option \"snapshot-lenght\"; the nearest name is snapshot-length",
        folder.path().display()
    );
    finished.failed_saying(&[&fault, "tapline config check"]);
    // It can be looked at all the same.
    folder.run("config check").failed_saying(&[&fault]);
    folder.run("--version").succeeded();
}

#[test]
fn the_shown_configuration_sets_the_same() {
    let folder = Folder::new(
        "[capture]\ninterface = [\"eth0\", \"eth1\"]\nn = 2\nnames = false\n[store.verify]\njson = true\n",
    );
    let shown = folder.run("config show").succeeded();
    let text = String::from_utf8(shown.stdout).unwrap();
    let again = Folder::new(&text);
    let options = |folder: &Folder| -> Vec<(Value, Value)> {
        let text = String::from_utf8(folder.run("config show --json").succeeded().stdout).unwrap();
        let values = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        values.map(|value| (value["option"].clone(), value["values"].clone())).collect()
    };
    assert_eq!(options(&folder).len(), 4);
    assert_eq!(options(&again), options(&folder), "{text}");
    let origin = folder.run("config show capture --origin").succeeded();
    let text = String::from_utf8(origin.stdout).unwrap();
    assert!(
        text.contains(&format!("# {}:3\n", folder.path().display())) && !text.contains("store"),
        "{text}"
    );
    let defaults = folder.run("config show capture --origin --defaults").succeeded();
    assert!(String::from_utf8_lossy(&defaults.stdout).contains("snapshot-length = \"262144\""));
}

#[test]
fn endless_files_are_refused() {
    let folder = Folder::new("");
    folder.run("config check /dev/zero").failed_saying(&["/dev/zero", "more than 1048576 bytes"]);
}

#[test]
fn rules_of_the_daemon_are_checked_too() {
    let folder = Folder::new("[[capture]]\nname = \"office\"\ninterfaces = [\"eth0\"]\n");
    let path = folder.path().display().to_string();
    let finished = folder.run(&format!("config check {path}")).succeeded();
    assert!(String::from_utf8_lossy(&finished.stdout).contains("good"));
    fs::write(folder.path(), "[[capture]]\nnane = \"office\"\n").unwrap();
    folder.run(&format!("config check {path}")).failed_saying(&[&path, "nane", "the nearest key is name"]);
}
