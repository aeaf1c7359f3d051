//! `--names`: the names that the system's resolver has, and a DNS server that never answers.

use std::fs;
use std::process::Command;

use crate::support::*;

/// In namespaces of its own: hosts(5) and resolv.conf(5) as given, and a DNS server that takes questions and is silent
/// (the other end of a link has no such address).
const SCRIPT: &str = "
    ip link add d0 type veth peer name d1 && ip link set d1 up && ip addr add 10.9.9.1/24 dev d0 && ip link set d0 up &&
    ip neigh add 10.9.9.8 lladdr 02:00:00:00:00:01 dev d0 || exit 99
    for name in hosts resolv.conf nsswitch.conf; do
        mount --bind \"$1/$name\" \"/etc/$name\" || exit 99
    done
    \"$2\" capture -r \"$1/in.pcap\" -t --names";

#[test]
fn a_silent_dns_server_leaves_numbers() {
    const TEST: &str = "a_silent_dns_server_leaves_numbers";
    if !root_or_skip(TEST) || !program_or_skip(TEST, "unshare") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("hosts", "10.9.0.1 alice.example alice\n10.9.0.3 carol.example\n");
    write("resolv.conf", "nameserver 10.9.9.8\n");
    write("nsswitch.conf", "hosts: files dns\n");
    let input = folder.path().join("in.pcap");
    let recipe = ["generate", "udp", "src=10.9.0.1", "dst=10.9.0.2", "count=1", "-w"];
    run(recipe.into_iter().chain(input.to_str())).succeeded();
    // A file waits half a second for a name. A machine may be too busy for that once, but not each time.
    let mut text = String::new();
    for _ in 0..20 {
        let mut command = Command::new("unshare");
        command.args(["-mn", "sh", "-c", SCRIPT, "sh"]).arg(folder.path()).arg(TAPLINE);
        let finished = finish(&mut command);
        if finished.status.code() == Some(99) {
            return eprintln!("skipped: {TEST}: {}", finished.stderr);
        }
        text = String::from_utf8_lossy(&finished.succeeded().stdout).into_owned();
        assert!(text.contains(" > 10.9.0.2."), "{text}");
        if text.contains("IP alice.example.") {
            return;
        }
    }
    panic!("no name from /etc/hosts: {text}");
}
