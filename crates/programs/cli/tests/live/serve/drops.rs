//! Packets that the kernel drops, for many readers.

use std::net::UdpSocket;

use tapline_sys::NetNs;

use super::*;
use crate::drops::drops_or_skip;

/// No front runs the filter of these captures: without one of the daemon's, readers would get everything.
#[test]
fn readers_of_drops_get_what_the_capture_accepts() {
    const TEST: &str = "readers_of_drops_get_what_the_capture_accepts";
    if !drops_or_skip(TEST) {
        return;
    }
    let mut daemon = Daemon::new(TEST).expect("namespaces can be made");
    daemon.namespace.ip(&["link", "set", "lo", "up"]).unwrap();
    let (socket, netns) = (daemon.socket(), daemon.namespace.name());
    let rules = format!(
        "socket = {socket:?}\nmode = \"0666\"\n[[capture]]\nname = \"office\"\ninterfaces = [\"drops:\"]\n\
         netns = {netns:?}\nfilter = \"udp dst port 7777\"\n[[access]]\neverybody = true\n"
    );
    fs::write(daemon.rules(), rules).unwrap();
    let mut command = tapline(["serve", "--json", "--config"]);
    command.arg(daemon.rules());
    daemon.live = Some(Live::start_command(&daemon.namespace, 0, &mut command));
    daemon.wait_until_served();
    let reader = daemon.reader("read.pcapng", &[]);
    let place = NetNs::open(daemon.namespace.name()).unwrap();
    let send = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for port in [9, 7777] {
            (0..20).for_each(|_| drop(socket.send_to(b"dropped", ("127.0.0.1", port))));
        }
    };
    place.run(send).unwrap();
    // The packets to port 9 came first.
    wait_for("the packets", || daemon.readers()[0]["counts"]["offered"].as_u64() >= Some(20));
    let (packets, _) = reader.interrupt();
    let ports: Vec<&[u8]> = packets.iter().map(|packet| &packet[22..24]).collect();
    assert_eq!(ports, [&7777_u16.to_be_bytes()[..]; 20]);
    daemon.end();
}
