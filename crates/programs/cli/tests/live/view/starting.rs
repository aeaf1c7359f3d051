//! `tapline view -i` and `tapline top -i`: one command starts the meter, keeps packets, watches by rules, and shows.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tapline_sys::without_signals;
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

use super::{Ended, files, round};
use crate::serve::NOBODY;
use crate::support::{TAPLINE, finish, tapline, wait_for};

/// A link, and a folder that every user may write to.
struct TestLink {
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl TestLink {
    fn new(test: &str) -> Option<TestLink> {
        if !namespaces_or_skip(test) {
            return None;
        }
        let namespace = Namespace::with_pair("view").expect("a probe succeeded before");
        let folder = tempfile::tempdir().expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("it is ours");
        let mut up = Command::new("ip");
        finish(up.args(["-n", namespace.name(), "link", "set", "lo", "up"])).succeeded();
        Some(TestLink { namespace, folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command in the namespace, as sudo starts it for a user without rights.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace.name(), TAPLINE]).args(arguments);
        command.env("TAPLINE_RUN_DIR", self.path("run")).env("TAPLINE_SOCKET", self.path("serve.sock"));
        command.env("SUDO_UID", NOBODY.to_string());
        command
    }

    /// The page, its process and its address.
    fn view(&self, arguments: &[&str]) -> (Ended, String) {
        let history = self.path("history.sqlite");
        let mut command = self.command(&["view", "--listen", "127.0.0.1:0", "--history"]);
        command.arg(history).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("ip runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
        (Ended(child), line.trim().to_owned())
    }

    fn captures(&self) -> String {
        let mut status = tapline(["status", "--json"]);
        let output = status.env("TAPLINE_SOCKET", self.path("serve.sock")).output().expect("it was built");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A line of /proc/PID/status.
fn status_of(process: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim_start_matches(':').trim().to_owned()
}

/// The processes that a process started.
fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn token(address: &str) -> &str {
    address.split_once("#token=").expect("a token").1
}

#[test]
fn one_command_starts_all_that_the_page_shows() {
    let Some(place) = TestLink::new("one_command_starts_all_that_the_page_shows") else { return };
    let rules = place.path("rules.toml");
    fs::write(&rules, "[[rule]]\nname = \"web\"\non = \"packet\"\nfilter = \"tcp\"\nlimit = \"1/1m\"\n")
        .unwrap();
    let rules = rules.to_str().unwrap();
    let (page, address) = place.view(&["-i", FAR, "--buffer", "8", "--rules", rules]);
    assert!(address.starts_with("http://127.0.0.1:"), "{address}");
    assert_eq!(files(&place.path("run"), "view").count(), 1);
    assert!(place.captures().contains("\"far0\""), "{}", place.captures());
    // The meter, the rules, the page, and the process above them have no right, and are the user's.
    let above = page.0.id();
    wait_for("three processes", || children(above).len() == 3);
    for process in children(above).into_iter().chain([above]) {
        wait_for("the rights to be given up", || {
            let rights = u64::from_str_radix(&status_of(process, "CapPrm"), 16).unwrap_or(0);
            let user = status_of(process, "Uid").split_whitespace().all(|uid| uid == NOBODY.to_string());
            rights == 0 && user
        });
    }
    let mut sender = Sender::near(&place.namespace).expect("the link is there");
    let has_event =
        || fs::read_to_string(place.path("events.json")).is_ok_and(|text| text.contains("\"web\""));
    wait_for("an event", || {
        let frames = round(1);
        sender.send(&frames, frames.len() as u64, Pace::PerSecond(2000)).expect("the link takes frames");
        has_event()
    });
    // The packets of the past are there for its user.
    let mut past = tapline(["capture", "-i", "tap:far0", "--since", "all", "-n", "-c", "3", "tcp"]);
    let past = finish(past.env("TAPLINE_SOCKET", place.path("serve.sock"))).succeeded();
    assert_eq!(String::from_utf8_lossy(&past.stdout).lines().count(), 3);

    // A second one finds the meter.
    let mut second = place.command(&["view", "-i", FAR, "--listen", "127.0.0.1:0", "--no-history"]);
    let mut second = second.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("ip runs");
    let mut line = String::new();
    BufReader::new(second.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
    let second = Ended(second);
    assert!(line.starts_with("http://") && children(second.0.id()).is_empty(), "{line}");
    assert_eq!(files(&place.path("run"), "view").count(), 1);
    drop(second);

    // All end with the page, and its token stays.
    drop(page);
    assert!(!place.captures().contains("far0"));
    let (page, again) = place.view(&["-i", FAR, "--buffer", "8"]);
    assert_eq!(token(&again), token(&address));
    // Nor is anything left of a command that was killed.
    let left = children(page.0.id());
    assert_eq!(left.len(), 2);
    finish(Command::new("kill").args(["-KILL", &page.0.id().to_string()])).succeeded();
    wait_for("the end of meter and page", || {
        left.iter().all(|process| !Path::new(&format!("/proc/{process}")).exists())
    });
    drop(page);
    let (_other, look) = place.view(&["--meter", "none", "--rights", "look"]);
    assert_ne!(token(&look), token(&address));
}

/// A signal that comes before the page has its handlers, as when the meter has just ended.
#[test]
fn a_page_that_has_just_been_started_ends_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let meter = std::process::id().to_string();
    let mut page = tapline(["view", "--started", &meter, "--listen", "127.0.0.1:0", "--no-history"]);
    page.env("TAPLINE_RUN_DIR", folder.path()).env("TAPLINE_SOCKET", folder.path().join("serve.sock"));
    page.stdout(Stdio::null()).stderr(Stdio::null());
    let mut page = without_signals(|| page.spawn()).expect("it was built");
    finish(Command::new("kill").args(["-TERM", &page.id().to_string()])).succeeded();
    assert_eq!(page.wait().expect("it is ours").code(), Some(0));
}

#[test]
fn the_terminal_starts_its_meter_too() {
    let Some(place) = TestLink::new("the_terminal_starts_its_meter_too") else { return };
    let top = |arguments: &[&str]| {
        let mut command = place.command(&["top", "-i"]);
        finish(command.args(arguments).arg("--history").arg(place.path("history.sqlite")))
    };
    let shown = top(&[FAR, "--once", "--buffer", "8"]).succeeded();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("tap:far0") && text.contains("overview"), "{text}");
    assert!(!place.captures().contains("far0"));
    // What cannot be started is said by the command that cannot.
    let refused = top(&["none0", "--once"]);
    refused.failed_saying(&["none0"]);
    assert_eq!(files(Path::new(&place.path("run")), "view").count(), 0);
}
