//! Filters in front of AF_XDP sockets: whole ones, and weaker parts with the whole filter behind.

use std::process::Stdio;

use super::{filtered, namespace, send, udp};
use crate::support::*;
use tapline_testkit::netns::FAR;

/// An XDP program sees received packets alone, and tags in their bytes.
#[test]
fn filters_run_in_front() {
    let Some(namespace) = namespace("filters_run_in_front") else { return };
    let tagged = |number: u32| {
        let mut frame = udp(53, number);
        frame.splice(12..12, [0x81, 0, 0, 7]);
        frame
    };
    let frames: Vec<Vec<u8>> = (0..1000)
        .map(|n| if n % 4 == 0 { tagged(n) } else { udp(if n % 2 == 0 { 53 } else { 80 }, n) })
        .collect();
    for (filter, matching) in [
        ("vlan 7 and udp port 53", 250),
        ("udp port 53", 250),
        ("inbound and udp port 53", 250),
        ("outbound and udp", 0),
        ("less 60", 750),
    ] {
        let account = filtered(&namespace, filter, &frames).account();
        assert_eq!((account.ring("received"), account.count("filtered")), (matching, 0), "{filter}");
        assert_eq!(account.count("accepted"), matching, "{filter}");
        assert_eq!(account.interface(FAR)["kernel_filtered"], 1000 - matching, "{filter}");
    }
}

/// Without CAP_PERFMON the kernel refuses to read ports behind an IPv4 header: other protocols stay with the host, and
/// other ports are refused behind the program.
#[test]
fn a_weaker_part_in_front_leaves_the_rest_behind() {
    const TEST: &str = "a_weaker_part_in_front_leaves_the_rest_behind";
    if !program_or_skip(TEST, "setpriv") {
        return;
    }
    let Some(namespace) = namespace(TEST) else { return };
    let tcp = |number: u32| {
        let mut frame = udp(53, number);
        frame[23] = 6;
        frame
    };
    let frames: Vec<Vec<u8>> = (0..400)
        .map(|n| match n % 4 {
            0 => udp(53, n),
            1 => udp(80, n),
            _ => tcp(n),
        })
        .collect();
    let weakened = || {
        let mut command = namespace.command("setpriv");
        let without = "-perfmon,-sys_admin";
        command.args(["--bounding-set", without, TAPLINE, "capture", "-i", "xdp:far0", "--json"]);
        command.args(["-w", "/dev/null", "udp port 53"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let live = Live::start_command(&namespace, 0, &mut weakened());
    send(&namespace, &frames, frames.len() as u64);
    let done = live.interrupt().succeeded();
    let account = done.account();
    assert!(done.stderr.contains("only a part of the filter runs in front"), "{}", done.stderr);
    assert_eq!(
        (account.ring("received"), account.count("filtered"), account.count("accepted")),
        (200, 100, 100)
    );
    assert_eq!(account.interface(FAR)["kernel_filtered"], 200);
    // A part may take everything, so it is no reason to take the interface of the default route.
    namespace.ip(&["route", "add", "default", "dev", FAR]).unwrap();
    finish(&mut weakened()).failed_saying(&["carries this host's default route", "--xdp-force"]);
}
