//! One program for the integration tests of this crate.

mod details;
mod export;
mod journal;
mod made_flows;
mod memory;
mod reference;
#[cfg(feature = "tls")]
mod tls;

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port that no other program is given: it is bound to our socket, which leaves it to those that ask for its number.
fn reserved_port(ip: Ipv4Addr) -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an option");
    socket.bind(&SocketAddr::from((ip, 0)).into()).expect("loopback is there");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket());
    (socket, address.expect("it is bound"))
}
