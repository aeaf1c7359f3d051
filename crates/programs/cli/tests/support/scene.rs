//! Traffic in which each script of `examples/watch` finds its subject: hosts 1 to 10, and 57 units of time.
//!
//! ```text
//! unit  0       2     3..6    7     8       9     10 .. 40   12     30      55      57
//!       web  log-in  refused scan  tunnel  cert.  beacon   new   cert.  back    the last
//! ```

use std::time::Duration;

use tapline_testkit::frames::flags::{ACK, FIN, PSH, SYN};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp};
use tapline_testkit::traffic::TimedFrame;

/// One direction of a connection.
#[derive(Clone, Copy)]
struct Direction {
    from: (u16, u16),
    to: (u16, u16),
}

impl Direction {
    fn back(self) -> Direction {
        Direction { from: self.to, to: self.from }
    }

    fn tcp(self, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = (Host::number(self.from.0), Host::number(self.to.0));
        let ips = IpPair::between(&source, &destination, IpVersion::V4);
        let tcp = Tcp { src: self.from.1, dst: self.to.1, seq, ack, flags, window: 1000, ..Tcp::default() };
        Ethernet::between(&source, &destination).ip(&tcp.packet(ips, payload))
    }

    fn udp(self, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = (Host::number(self.from.0), Host::number(self.to.0));
        let ips = IpPair::between(&source, &destination, IpVersion::V4);
        let udp = Udp { src: self.from.1, dst: self.to.1 };
        Ethernet::between(&source, &destination).ip(&udp.packet(ips, payload))
    }
}

/// A whole connection: what the server says, each with its time; hundredths of a unit lie between the segments.
fn connection(frames: &mut Vec<(f64, Vec<u8>)>, way: Direction, begin: f64, said: &[(f64, &[u8])]) {
    let back = way.back();
    frames.push((begin, way.tcp(SYN, 100, 0, &[])));
    frames.push((begin + 0.01, back.tcp(SYN | ACK, 500, 101, &[])));
    frames.push((begin + 0.02, way.tcp(ACK, 101, 501, &[])));
    let (mut seq, mut end) = (501, begin + 0.02);
    for (at, bytes) in said {
        frames.push((*at, back.tcp(PSH | ACK, seq, 101, bytes)));
        (seq, end) = (seq + bytes.len() as u32, *at);
    }
    frames.push((end + 0.03, way.tcp(FIN | ACK, 101, seq, &[])));
    frames.push((end + 0.04, back.tcp(FIN | ACK, seq, 102, &[])));
    frames.push((end + 0.05, way.tcp(ACK, 102, seq + 1, &[])));
}

/// A record of TLS 1.2 with the messages ServerHello, cut short, and Certificate.
fn certificate(der: &[u8]) -> Vec<u8> {
    let length = |len: usize| [(len >> 16) as u8, (len >> 8) as u8, len as u8];
    let hello = [2, 0, 0, 4, 3, 3, 0, 0];
    let one = [&length(der.len())[..], der].concat();
    let list = [&length(one.len())[..], &one].concat();
    let message = [&[11][..], &length(list.len()), &list].concat();
    let data = [&hello[..], &message].concat();
    [&[22, 3, 3, (data.len() >> 8) as u8, data.len() as u8][..], &data].concat()
}

/// A query for 40 random letters below `exfil.example`.
fn query(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"abcdefghijklmnopqrstuvwxyz234567"[(state >> 33) as usize % 32]
    };
    let label: Vec<u8> = (0..40).map(|_| letter()).collect();
    let mut message = vec![0, number as u8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for part in [&label[..], b"exfil", b"example"] {
        message.push(part.len() as u8);
        message.extend_from_slice(part);
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// The traffic, with `unit` as its unit of time.
pub fn scene(unit: Duration) -> Vec<TimedFrame> {
    let mut frames: Vec<(f64, Vec<u8>)> = Vec::new();
    let web = |client: u16, port: u16| Direction { from: (client, port), to: (2, 80) };
    connection(&mut frames, web(1, 4000), 0.0, &[(0.1, b"HTTP/1.1 200 OK\r\n\r\n")]);
    let refused: &[u8] = b"530 Login incorrect.\r\n";
    let said: [(f64, &[u8]); 5] =
        [(2.1, b"220 ready\r\n"), (3.0, refused), (4.0, refused), (5.0, refused), (6.0, b"230 in\r\n")];
    connection(&mut frames, Direction { from: (3, 4100), to: (4, 21) }, 2.0, &said);
    for port in 0..30 {
        let way = Direction { from: (5, 4200 + port), to: (2, 1000 + port) };
        frames.push((7.0 + f64::from(port) / 100.0, way.tcp(SYN, 1, 0, &[])));
    }
    for number in 0..25 {
        let way = Direction { from: (6, 4300), to: (7, 53) };
        frames.push((8.0 + number as f64 / 100.0, way.udp(&query(number))));
    }
    for (port, at, der) in [(4400, 9.0, [0x30; 300]), (4401, 20.0, [0x30; 300]), (4402, 30.0, [0x31; 300])] {
        let record = certificate(&der);
        connection(&mut frames, Direction { from: (1, port), to: (10, 443) }, at, &[(at + 0.1, &record)]);
    }
    for call in 0..7 {
        let way = Direction { from: (8, 4500 + call), to: (7, 8080) };
        frames.push((10.0 + 5.0 * f64::from(call), way.tcp(SYN, 1, 0, &[])));
    }
    connection(&mut frames, web(9, 4600), 12.0, &[(12.1, b"HTTP/1.1 200 OK\r\n\r\n")]);
    connection(&mut frames, web(1, 4700), 55.0, &[(55.1, b"HTTP/1.1 200 OK\r\n\r\n")]);
    frames.push((57.0, Direction { from: (1, 9), to: (2, 9) }.udp(b"the last")));
    frames.sort_by(|a, b| a.0.total_cmp(&b.0));
    frames.into_iter().map(|(at, frame)| (unit.mul_f64(at), frame)).collect()
}
