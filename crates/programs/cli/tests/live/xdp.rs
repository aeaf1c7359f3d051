//! AF_XDP on a virtual link: taken + left to the host = sent, exactly; every way to end leaves the link as it was; a
//! capture that would cut the host off is refused.

mod buffers;
mod filters;

use std::net::UdpSocket;
use std::process::Command;

use crate::support::*;
use tapline_sys::bpf::{ProgramKind, probe};
use tapline_sys::xsk::{XdpSocket, XskSettings};
use tapline_sys::{Link, NetNs, RouteSocket};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

/// A small socket, to see whether there are any.
const SOCKET: XskSettings = XskSettings {
    chunk_len: 2048,
    chunks: 64,
    fill_len: 64,
    completion_len: 64,
    rx_len: 64,
    tx_len: 0,
    huge_pages: false,
};

/// A namespace with a quiet pair, or `None` where AF_XDP cannot be had.
fn namespace(test: &str) -> Option<Namespace> {
    can_use_xdp(test).then(|| Namespace::with_pair("xdp").expect("a probe succeeded before"))
}

/// A namespace with a pair of `queues` queues.
fn namespace_with_queues(test: &str, queues: u32) -> Option<Namespace> {
    let namespace = namespace(test)?;
    let count = queues.to_string();
    namespace.ip(&["link", "delete", NEAR]).unwrap();
    let one = ["link", "add", NEAR, "numrxqueues", &count, "numtxqueues", &count, "type", "veth"];
    let other = ["peer", "name", FAR, "numrxqueues", &count, "numtxqueues", &count];
    namespace.ip(&[&one[..], &other].concat()).unwrap();
    for interface in [NEAR, FAR] {
        namespace.ip(&["link", "set", interface, "arp", "off", "multicast", "off"]).unwrap();
        let offloads = ["-K", interface, "tx", "off", "gso", "off", "tso", "off", "gro", "off"];
        assert!(namespace.command("ethtool").args(offloads).output().unwrap().status.success());
        namespace.ip(&["link", "set", interface, "up"]).unwrap();
    }
    [NEAR, FAR].iter().for_each(|interface| namespace.wait_until_up(interface).unwrap());
    Some(namespace)
}

pub(crate) fn can_use_xdp(test: &str) -> bool {
    if !namespaces_or_skip(test) {
        return false;
    }
    let can = XdpSocket::open(&SOCKET).map(|_| ()).map_err(|error| error.to_string());
    let can = can.and_then(|()| probe(ProgramKind::Xdp).map_err(|error| error.to_string()));
    can.map_err(|error| eprintln!("skipped: {test}: {error}")).is_ok()
}

/// Starts `tapline capture ARGUMENTS` and waits until it captures.
fn start(namespace: &Namespace, arguments: &[&str]) -> Live {
    Live::start(namespace, 0, arguments)
}

fn send(namespace: &Namespace, frames: &[Vec<u8>], count: u64) {
    let arrived = || namespace.counter(FAR, "rx_packets").unwrap();
    let before = arrived();
    let sent = Sender::near(namespace).unwrap().send(frames, count, Pace::PerSecond(20_000)).unwrap();
    assert_eq!(sent.packets, count);
    // With an XDP program a veth has a queue, which the kernel empties when it gets a processor.
    wait_for("packets at the far end", || arrived() >= before + count);
}

fn link(namespace: &Namespace, name: &str) -> Link {
    let find = || RouteSocket::open().unwrap().links().unwrap().into_iter().find(|link| link.name == name);
    NetNs::open(namespace.name()).unwrap().run(find).unwrap().expect("it is there")
}

fn is_untouched(namespace: &Namespace) -> bool {
    let link = link(namespace, FAR);
    link.xdp.is_none() && link.promiscuity == 0
}

/// Frames of a UDP packet to this port, with a number in it.
fn udp(port: u16, number: u32) -> Vec<u8> {
    let mut frame =
        vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0];
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

#[test]
fn af_xdp_captures_all_packets_and_the_host_none() {
    let Some(namespace) = namespace("af_xdp_captures_all_packets_and_the_host_none") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let before = namespace.counter(FAR, "rx_packets").unwrap();
    let live = start(&namespace, &["-i", "xdp:far0", "-w", text(&out), "--json"]);
    let during = link(&namespace, FAR);
    assert!(during.xdp.is_some() && during.promiscuity == 1, "{during:?}");
    let frames = frames(1, 5000);
    send(&namespace, &frames, 10_000);
    let finished = live.interrupt().succeeded();
    assert!(finished.stderr.contains("AF_XDP in the driver, copied, 1 queue"), "{}", finished.stderr);
    let account = finished.account();
    assert_eq!((account.ring("received"), account.ring("dropped")), (10_000, 0));
    assert_eq!((account.count("accepted"), account.output("written")), (10_000, 10_000));
    assert_eq!(account.interface(FAR)["kernel_filtered"], 0);
    assert!(bytes_of(packets_of(&out)) == [&frames[..], &frames].concat(), "packets differ from those sent");
    assert!(is_untouched(&namespace));
    assert_eq!(namespace.counter(FAR, "rx_packets").unwrap() - before, 10_000);
}

/// The capture requests the tag that adapters remove from the packet, and the adapter's time; a packet without that has
/// the host's.
#[test]
fn driver_metadata_is_requested() {
    let Some(namespace) = namespace("driver_metadata_is_requested") else { return };
    // A bridge takes tags out of what it receives, and hands them on beside the packet.
    if let Err(error) = namespace.ip(&["link", "add", "bridge0", "type", "bridge", "mcast_snooping", "0"]) {
        return eprintln!("skipped: driver_metadata_is_requested: {error}");
    }
    namespace.ip(&["link", "add", "source0", "type", "veth", "peer", "name", "port0"]).unwrap();
    for interface in ["bridge0", "source0", "port0"] {
        namespace.ip(&["link", "set", interface, "arp", "off", "multicast", "off"]).unwrap();
    }
    for port in ["port0", NEAR] {
        namespace.ip(&["link", "set", port, "master", "bridge0"]).unwrap();
    }
    for interface in ["bridge0", "source0", "port0"] {
        namespace.ip(&["link", "set", interface, "up"]).unwrap();
    }
    for interface in ["source0", "port0", NEAR] {
        wait_for("a link", || {
            let shown = namespace.ip(&["-d", "link", "show", interface]).unwrap();
            shown.contains("state UP") && (interface == "source0" || shown.contains("state forwarding"))
        });
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.pcap");
    // Of a protocol that no firewall on the bridge looks into.
    let plain = (0..50).map(|number| {
        let mut frame = udp(7, number);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    });
    let tagged = plain.clone().map(|frame| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat());
    let frames: Vec<Vec<u8>> = tagged.chain(plain).collect();
    let mut sender = Sender::open(Some(namespace.name()), "source0").unwrap();
    for (clock, stripping) in [("host", "on"), ("adapter_unsynced", "on"), ("host", "off")] {
        // A veth leaves tags where they are, whatever it says of taking them out.
        finish(namespace.command("ethtool").args(["-K", FAR, "rxvlan", stripping])).succeeded();
        let arguments = ["-i", "xdp:far0", "-w", text(&file), "-j", clock, "--json"];
        let live = start(&namespace, &arguments);
        let before = namespace.counter(FAR, "rx_packets").unwrap();
        assert_eq!(sender.send(&frames, 100, Pace::PerSecond(5_000)).unwrap().packets, 100);
        wait_for("packets behind the bridge", || {
            namespace.counter(FAR, "rx_packets").unwrap() >= before + 100
        });
        let finished = live.interrupt().succeeded();
        let got = bytes_of(packets_of(&file));
        let strange = got.iter().find(|frame| !frames.contains(frame));
        assert!(got == frames, "{clock}: {} packets, {strange:?}: {}", got.len(), finished.stderr);
        // A veth has no clock of its own: what the adapter was to stamp and did not is told.
        let told = "100 packets of queue 0 were not stamped by the adapter";
        assert_eq!(finished.stderr.contains(told), clock != "host", "{}", finished.stderr);
        assert_eq!(finished.account().count("delivered"), 100);
    }
}

#[test]
fn one_or_several_workers_serve_several_queues() {
    const TEST: &str = "one_or_several_workers_serve_several_queues";
    let Some(namespace) = namespace_with_queues(TEST, 4) else { return };
    let folder = tempfile::tempdir().unwrap();
    for workers in ["1", "2"] {
        let out = folder.path().join(workers);
        let arguments = ["-i", "xdp:far0", "--workers", workers, "-w", text(&out), "--json"];
        let live = start(&namespace, &arguments);
        // The queue is chosen by the flow.
        let frames: Vec<Vec<u8>> = (0..2000).map(|number| udp((number % 500) as u16 + 1, number)).collect();
        send(&namespace, &frames, 4000);
        let finished = live.interrupt().succeeded();
        assert!(finished.stderr.contains("4 queues of"), "{}", finished.stderr);
        let account = finished.account();
        assert_eq!((account.ring("received"), account.count("delivered")), (4000, 4000));
        let mut captured = bytes_of(packets_of(&out));
        let mut sent = [&frames[..], &frames].concat();
        captured.sort();
        sent.sort();
        assert!(captured == sent, "packets differ from those sent");
    }
    let refused = run(["capture", "--netns", namespace.name(), "-i", "xdp:far0", "--workers", "5"]);
    refused.failed_saying(&["--workers 5", "4 receive queues"]);
}

#[test]
fn refused_packets_stay_with_the_host() {
    const TEST: &str = "refused_packets_stay_with_the_host";
    let Some(near) = namespace(TEST) else { return };
    let far = Namespace::named(&format!("{}-far", near.name())).unwrap();
    near.ip(&["link", "set", FAR, "netns", far.name()]).unwrap();
    near.ip(&["address", "add", "10.7.0.1/24", "dev", NEAR]).unwrap();
    far.ip(&["address", "add", "10.7.0.2/24", "dev", FAR]).unwrap();
    for (place, interface) in [(&near, NEAR), (&far, FAR)] {
        place.ip(&["link", "set", interface, "up", "arp", "on"]).unwrap();
        place.ip(&["link", "set", "lo", "up"]).unwrap();
    }
    let socket = |place: &Namespace, address: &'static str| {
        let socket = NetNs::open(place.name()).unwrap().run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let live = start(&far, &["-i", "xdp:far0", "--json", "-w", "/dev/null", "udp port 5000"]);
    let (here, there) = (socket(&near, "10.7.0.1:7001"), socket(&far, "10.7.0.2:7000"));
    let taken = socket(&far, "10.7.0.2:5000");
    let mut buffer = [0; 64];
    for number in 0..200u8 {
        here.send_to(&[number], "10.7.0.2:5000").unwrap();
        here.send_to(&[number], "10.7.0.2:7000").unwrap();
        let (len, from) = there.recv_from(&mut buffer).expect("it stays with the host");
        there.send_to(&buffer[..len], from).unwrap();
        assert_eq!(here.recv_from(&mut buffer).expect("and is answered").0, 1);
        assert_eq!(buffer[0], number);
    }
    taken.set_nonblocking(true).unwrap();
    assert!(taken.recv_from(&mut buffer).is_err(), "it was taken from the host");
    let account = live.interrupt().succeeded().account();
    assert_eq!(
        (account.ring("received"), account.count("filtered"), account.count("accepted")),
        (200, 0, 200)
    );
    // The others, and questions for addresses.
    assert!(account.interface(FAR)["kernel_filtered"].as_u64().unwrap() >= 200, "{:?}", account.value);
    // After the end all goes to the host again.
    here.send_to(&[9], "10.7.0.2:5000").unwrap();
    wait_for("the host's packets", || taken.recv_from(&mut buffer).is_ok());
}

/// A capture with this filter, while these frames are sent.
fn filtered(namespace: &Namespace, filter: &str, frames: &[Vec<u8>]) -> Finished {
    filtered_as(namespace, "xdp:far0", filter, frames)
}

/// As [`filtered`], for an interface with either backend.
fn filtered_as(namespace: &Namespace, interface: &str, filter: &str, frames: &[Vec<u8>]) -> Finished {
    let live = start(namespace, &["-i", interface, "--json", "-w", "/dev/null", filter]);
    send(namespace, frames, frames.len() as u64);
    live.interrupt().succeeded()
}

#[test]
fn overload_is_counted_by_place_and_the_sums_agree() {
    let Some(namespace) = namespace("overload_is_counted_by_place_and_the_sums_agree") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let live = start(&namespace, &["-i", "xdp:far0", "-B", "256", "-w", text(&out), "--json"]);
    let frames = frames(2, 2000);
    let mut sender = Sender::near(&namespace).unwrap();
    let mut sent = sender.send(&frames, 1000, Pace::PerSecond(10_000)).unwrap().packets;
    // A program that stands still is one that is too slow by any measure.
    live.signal("STOP");
    sent += sender.send(&frames, 3000, Pace::PerSecond(20_000)).unwrap().packets;
    live.signal("CONT");
    live.wait_until_idle();
    // So few that they find room whenever they are taken: they carry what was lost before them.
    send(&namespace, &frames, 60);
    sent += 60;
    let account = live.interrupt().succeeded().account();
    let xdp = &account.interface(FAR)["xdp"];
    let places = ["rx_dropped", "rx_ring_full"].map(|place| xdp[place].as_u64().unwrap());
    assert!(account.ring("dropped") > 1000, "{:?}", account.value);
    assert_eq!(account.ring("dropped"), places.iter().sum::<u64>());
    assert_eq!(account.ring("received"), sent);
    assert_eq!(account.count("delivered") + account.ring("dropped") + account.ring("unread"), sent);
    let packets = packets_of(&out);
    assert_eq!(packets.len() as u64, account.output("written"));
    let told: u64 = packets.iter().map(|packet| packet.drops).sum();
    assert_eq!(told, account.ring("dropped"), "the file tells of other losses than the account");
}

#[test]
fn a_killed_capture_restores_the_interface() {
    let Some(namespace) = namespace("a_killed_capture_restores_the_interface") else {
        return;
    };
    assert!(is_untouched(&namespace));
    let live = start(&namespace, &["-i", "xdp:far0", "-c", "1"]);
    assert!(!is_untouched(&namespace));
    live.signal("KILL");
    wait_for("the interface as it was", || is_untouched(&namespace));
    drop(live);
    // At once, though the kernel releases queues in the background.
    for _ in 0..5 {
        let live = start(&namespace, &["-i", "xdp:far0", "--json", "-w", "/dev/null"]);
        send(&namespace, &frames(3, 100), 100);
        assert_eq!(live.interrupt().succeeded().account().ring("received"), 100);
    }
}

#[test]
fn a_second_capture_names_the_first() {
    let Some(namespace) = namespace("a_second_capture_names_the_first") else { return };
    let live = start(&namespace, &["-i", "xdp:far0", "--json", "-w", "/dev/null"]);
    let id = link(&namespace, FAR).xdp.unwrap().id.to_string();
    let second = run(["capture", "--netns", namespace.name(), "-i", "xdp:far0"]);
    second.failed_saying(&[
        "an XDP program is there already",
        "tapline_xdp",
        &id,
        "stop it first",
        "without xdp:",
    ]);
    // The refused attempt did no harm.
    send(&namespace, &frames(4, 100), 100);
    assert_eq!(live.interrupt().succeeded().account().count("delivered"), 100);
}

#[test]
fn a_queue_that_another_program_has_is_named() {
    let Some(namespace) = namespace("a_queue_that_another_program_has_is_named") else { return };
    let index = link(&namespace, FAR).index;
    let bound = || {
        let mut socket = XdpSocket::open(&SOCKET).unwrap();
        socket.bind(index, 0, false).unwrap();
        socket
    };
    let _socket = NetNs::open(namespace.name()).unwrap().run(bound).unwrap();
    let refused = run(["capture", "--netns", namespace.name(), "-i", "xdp:far0"]);
    refused.failed_saying(&["far0", "queue 0 has an AF_XDP socket of another program", "without xdp:"]);
    assert!(is_untouched(&namespace));
}

#[test]
fn busy_polling_gets_every_packet_too() {
    let Some(namespace) = namespace("busy_polling_gets_every_packet_too") else { return };
    let live = start(&namespace, &["-i", "xdp:far0", "--busy-poll=50", "--json", "-w", "/dev/null"]);
    send(&namespace, &frames(6, 500), 1000);
    let account = live.interrupt().succeeded().account();
    assert_eq!((account.ring("received"), account.count("delivered")), (1000, 1000));
}

#[test]
fn long_packets_are_joined_and_cut_to_snap_length() {
    let Some(namespace) = namespace("long_packets_are_joined_and_cut_to_snap_length") else {
        return;
    };
    for interface in [NEAR, FAR] {
        namespace.ip(&["link", "set", interface, "mtu", "9000"]).unwrap();
    }
    let frames: Vec<Vec<u8>> = (0..400u32)
        .map(|number| {
            let mut frame = udp(9, number);
            let len = if number % 3 == 0 { 60 } else { 3000 + (number as usize * 37) % 6000 };
            frame.extend((frame.len()..len).map(|at| (at as u32 ^ number) as u8));
            frame
        })
        .collect();
    let long = frames.iter().filter(|frame| frame.len() > 3840).count() as u64;
    let folder = tempfile::tempdir().unwrap();
    for snap_len in [0, 100, 5000] {
        let out = folder.path().join(format!("{snap_len}.pcapng"));
        let snap = snap_len.to_string();
        let live = start(&namespace, &["-i", "xdp:far0", "-s", &snap, "-w", text(&out), "--json"]);
        // Once many wait: a batch then ends within a packet.
        if snap_len == 0 {
            live.signal("STOP");
        }
        send(&namespace, &frames, 800);
        live.signal("CONT");
        let account = live.interrupt().succeeded().account();
        assert_eq!((account.ring("received"), account.ring("dropped")), (800, 0), "{:?}", account.value);
        let joined = account.interface(FAR)["xdp"]["several_buffers"].as_u64().unwrap();
        assert!(joined >= 2 * long, "{joined} of {long}");
        let captured = packets_of(&out);
        let most = if snap_len == 0 { usize::MAX } else { snap_len };
        for (packet, sent) in captured.iter().zip(frames.iter().chain(&frames)) {
            assert!(packet.data == sent[..sent.len().min(most)], "a packet of {} bytes", sent.len());
        }
        assert_eq!(captured.len(), 800);
    }
}

#[test]
fn the_default_route_is_protected_unless_forced() {
    let Some(namespace) = namespace("the_default_route_is_protected_unless_forced") else {
        return;
    };
    namespace.ip(&["address", "add", "10.8.0.2/24", "dev", FAR]).unwrap();
    namespace.ip(&["route", "add", "default", "via", "10.8.0.1", "dev", FAR]).unwrap();
    let refused = run(["capture", "--netns", namespace.name(), "-i", "xdp:far0"]);
    refused.failed_saying(&["default route", "without xdp:", "a filter", "--xdp-force"]);
    assert!(is_untouched(&namespace));
    // Allowed are: the other end, which carries no address; a filter, which leaves the rest; and --xdp-force.
    for arguments in
        [&["-i", "xdp:near0"][..], &["-i", "xdp:far0", "udp port 5"], &["-i", "xdp:far0", "--xdp-force"]]
    {
        start(&namespace, arguments).interrupt().succeeded();
    }
}

#[test]
fn this_session_is_not_cut_off() {
    const TEST: &str = "this_session_is_not_cut_off";
    let Some(namespace) = namespace(TEST) else { return };
    namespace.ip(&["address", "add", "10.8.0.2/24", "dev", FAR]).unwrap();
    // Inside the namespace, as if sshd had started it there.
    let capture = |arguments: &[&str]| {
        let mut command = namespace.command("env");
        command.arg("SSH_CONNECTION=10.8.0.9 50000 10.8.0.2 22").arg(TAPLINE).arg("capture").args(arguments);
        finish(&mut command)
    };
    capture(&["-i", "xdp:far0"]).failed_saying(&[
        "10.8.0.9",
        "SSH session",
        "all its packets",
        "--xdp-force",
    ]);
    capture(&["-i", "xdp:far0", "tcp"]).failed_saying(&[
        "10.8.0.9",
        "what the filter matches",
        "--xdp-force",
    ]);
    for arguments in
        [&["-i", "xdp:far0", "udp"][..], &["-i", "xdp:near0"], &["-i", "xdp:far0", "--xdp-force"]]
    {
        capture(&[arguments, &["--duration", "0.1"]].concat()).succeeded();
    }
}

#[test]
fn graphs_capture_by_af_xdp_and_follow_links() {
    let Some(namespace) = namespace("graphs_capture_by_af_xdp_and_follow_links") else { return };
    let graph = "device(xdp:far0) -> filter(\"udp port 53\") -> count";
    let mut command = tapline(["run", "--netns", namespace.name(), "--json", "-e", graph]);
    let live = Live::start_command(&namespace, 0, &mut command);
    let frames: Vec<Vec<u8>> =
        (0..100).map(|number| udp(if number % 4 == 0 { 53 } else { 80 }, number)).collect();
    send(&namespace, &frames, 100);
    namespace.ip(&["link", "set", FAR, "down"]).unwrap();
    live.wait_until_idle();
    namespace.ip(&["link", "set", FAR, "up"]).unwrap();
    namespace.wait_until_up(NEAR).unwrap();
    send(&namespace, &frames, 100);
    let finished = live.interrupt().succeeded();
    let account = finished.account();
    assert_eq!((account.ring("received"), account.count("delivered")), (50, 50));
    assert_eq!(account.interface(FAR)["kernel_filtered"], 150);
}

#[test]
fn removed_interfaces_end_captures_with_accounts() {
    let Some(namespace) = namespace("removed_interfaces_end_captures_with_accounts") else {
        return;
    };
    let live = start(&namespace, &["-i", "xdp:far0", "--json", "-w", "/dev/null"]);
    send(&namespace, &frames(5, 100), 100);
    namespace.ip(&["link", "delete", FAR]).unwrap();
    let finished = live.wait();
    finished.failed_saying(&["was removed", "start again"]);
    assert_eq!(finished.account().count("delivered"), 100);
}

#[test]
fn generic_mode_without_a_driver_is_reported() {
    let Some(namespace) = namespace("generic_mode_without_a_driver_is_reported") else {
        return;
    };
    // The driver of the loopback interface knows no XDP.
    namespace.ip(&["link", "set", "lo", "up"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let filter = ["udp port 5000 and dst host 127.0.0.1"];
    let live = start(&namespace, &[&["-i", "xdp:lo", "-w", text(&out), "--json"][..], &filter].concat());
    let listed = finish(&mut tapline(["interfaces", "--netns", namespace.name()])).succeeded();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("in the stack: -i xdp: cannot attach another one"), "{listed}");
    let place = NetNs::open(namespace.name()).unwrap();
    place
        .run(|| {
            let socket = UdpSocket::bind("127.0.0.1:5001").unwrap();
            for number in 0..100u8 {
                socket.send_to(&[number; 20], "127.0.0.1:5000").unwrap();
            }
        })
        .unwrap();
    let finished = live.interrupt().succeeded();
    assert!(finished.stderr.contains("AF_XDP in the stack, copied"), "{}", finished.stderr);
    assert!(finished.stderr.contains("gains nothing over AF_PACKET"), "{}", finished.stderr);
    let account = finished.account();
    assert_eq!((account.ring("received"), account.ring("dropped")), (100, 0));
    let payloads: Vec<u8> = packets_of(&out).iter().map(|packet| packet.data[42]).collect();
    assert_eq!(payloads, (0..100).collect::<Vec<u8>>());
}

#[test]
fn contradictory_options_are_refused() {
    let refuses = |arguments: &[&str], words: &[&str]| run(arguments).failed_saying(words);
    refuses(&["capture", "-i", "xdp:lo,lo"], &["before each name or none"]);
    refuses(&["capture", "-i", "lo", "--xdp-force"], &["xdp:"]);
    refuses(&["capture", "-i", "xdp:lo", "-Q", "out"], &["sees what an interface receives"]);
    if root_or_skip("contradictory_options_are_refused, names") {
        refuses(&["capture", "-i", "xdp:any"], &["\"any\"", "name each one"]);
        refuses(&["capture", "-i", "xdp:no-such-if"], &["there is no interface"]);
    }
}

/// The program's own words, on `ip`: nothing but what a person would look at.
#[test]
fn people_see_the_program_and_then_none() {
    let Some(namespace) = namespace("people_see_the_program_and_then_none") else { return };
    let shown = || {
        let output = Command::new("ip").args(["-n", namespace.name(), "link", "show", FAR]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let live = start(&namespace, &["-i", "xdp:far0"]);
    assert!(shown().contains("xdp"), "{}", shown());
    live.interrupt().succeeded();
    assert!(!shown().contains("xdp") && !shown().contains("PROMISC"), "{}", shown());
}

#[test]
fn a_queue_by_itself_has_its_packets_and_no_others() {
    let Some(namespace) = namespace_with_queues("a_queue_by_itself_has_its_packets_and_no_others", 2) else {
        return;
    };
    // By AF_PACKET the host keeps all: both queues together have what was sent, each packet once.
    let both = ["far0@0", "far0@1"].map(|name| start(&namespace, &["-i", name, "--json", "-w", "/dev/null"]));
    let all = frames(31, 500);
    send(&namespace, &all, 500);
    let counts = both.map(|live| live.interrupt().succeeded().account().ring("received"));
    assert_eq!(counts.iter().sum::<u64>(), 500, "{counts:?}");
    // By AF_XDP the packets of other queues stay with the host.
    let live = start(&namespace, &["-i", "xdp:far0@1", "--json", "-w", "/dev/null"]);
    send(&namespace, &all, 500);
    let account = live.interrupt().succeeded().account();
    let left = account.interface(FAR)["kernel_filtered"].as_u64().expect("what was left to the host");
    assert_eq!(left + account.ring("received"), 500, "{left} left to the host");
    for name in ["far0@2", "xdp:far0@2"] {
        run(["capture", "--netns", namespace.name(), "-i", name])
            .failed_saying(&["there is no receive queue 2: it has 2"]);
    }
}

#[test]
fn a_capture_falls_back_to_af_packet_and_says_so() {
    let Some(namespace) = namespace("a_capture_falls_back_to_af_packet_and_says_so") else { return };
    let first = start(&namespace, &["-i", "xdp?:far0", "--json", "-w", "/dev/null", "udp"]);
    let second = start(&namespace, &["-i", "xdp?:far0", "--json", "-w", "/dev/null", "ip or ip6"]);
    let all = frames(32, 500);
    send(&namespace, &all, 500);
    let first = first.interrupt().succeeded();
    assert!(first.account().interface(FAR)["xdp"].is_object(), "{}", first.stderr);
    let second = second.interrupt().succeeded();
    assert!(second.stderr.contains("captured by AF_PACKET, as AF_XDP cannot be"), "{}", second.stderr);
    assert!(second.account().interface(FAR)["xdp"].is_null(), "{}", second.stderr);
}
