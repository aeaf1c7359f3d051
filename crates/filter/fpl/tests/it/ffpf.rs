//! The programs in `crates/filter/fpl/programs`: FFPF's examples, on traffic made for them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use tapline_fpl::{FplOptions, Registry, compile, functions, hash, report};
use tapline_ir::{Machine, Memory};
use tapline_packet::{Meta, Packet};
use tapline_search::{Horspool, Pattern, Patterns};
use tapline_testkit::frames::{
    ETHERTYPE_IPV4, Ethernet, Host, IpPair, IpVersion, Ipv4, Tcp, Udp, flags, fragments_v4, vlan,
};
use tapline_testkit::random::Random;

/// A program at work.
struct Running {
    machine: Machine,
    memory: Memory,
}

impl Running {
    fn new(text: &str) -> Running {
        Running::with(text, Registry::standard())
    }

    fn with(text: &str, registry: Registry) -> Running {
        let options = FplOptions { registry: Arc::new(registry), ..FplOptions::default() };
        let compiled = compile(text, &options).unwrap_or_else(|error| panic!("{}", report(&error, text)));
        assert_eq!(compiled.ir.verify(), Ok(()));
        let memory = Memory::new(compiled.ir.cells);
        Running { machine: Machine::new(compiled.ir), memory }
    }

    fn verdict(&mut self, frame: &[u8]) -> u64 {
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        self.machine.run(Packet { data: frame, meta: &meta }, &self.memory)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flow {
    client: u16,
    server: u16,
    port: u16,
}

impl Flow {
    fn ips(&self) -> IpPair {
        IpPair::between(&Host::number(self.client), &Host::number(self.server), IpVersion::V4)
    }

    fn frame(&self, tcp: bool, payload: &[u8]) -> Vec<u8> {
        let ips = self.ips();
        let packet = match tcp {
            true => Tcp { src: self.port, dst: 80, flags: flags::ACK, ..Tcp::default() }.packet(ips, payload),
            false => Udp { src: self.port, dst: 80 }.packet(ips, payload),
        };
        Ethernet { dst: [2; 6], src: [4; 6] }.ip(&packet)
    }

    /// Addresses and ports in the bytes of the packet.
    fn tuple(&self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&Host::number(self.client).v4.octets());
        bytes[4..8].copy_from_slice(&Host::number(self.server).v4.octets());
        bytes[8..10].copy_from_slice(&self.port.to_be_bytes());
        bytes[10..].copy_from_slice(&80u16.to_be_bytes());
        bytes
    }
}

/// Packets of `flows` flows in random order, some of UDP; and the number of TCP packets of each flow.
fn traffic(flows: u16, random: &mut Random) -> (Vec<Vec<u8>>, BTreeMap<Flow, u64>) {
    let mut truth = BTreeMap::new();
    let mut frames = Vec::new();
    for _ in 0..u64::from(flows) * 20 {
        let number = random.below(flows.into()) as u16;
        let flow = Flow { client: number % 50, server: 1000 + number % 7, port: 1024 + number };
        let tcp = random.one_of(4, 5);
        let payload = random.bytes(20);
        frames.push(flow.frame(tcp, &payload));
        *truth.entry(flow).or_insert(0) += u64::from(tcp);
    }
    (frames, truth)
}

#[test]
fn figure_6_counts_each_flow_in_its_cell() {
    let mut running = Running::new(include_str!("../../programs/count-flows.fpl"));
    let (frames, truth) = traffic(300, &mut Random::new(1));
    frames.iter().for_each(|frame| assert_eq!(running.verdict(frame), 0, "nothing is passed"));
    let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (flow, packets) in &truth {
        let cell = expected.entry(hash(&flow.tuple(), 0) & 1023).or_default();
        *cell = (cell.0 + packets, cell.1 + 1);
    }
    for cell in 0..1024 {
        assert_eq!(running.memory.get(cell), expected.get(&cell).map_or(0, |cell| cell.0), "cell {cell}");
    }
    let collisions: u64 = expected.values().map(|(_, flows)| flows - 1).sum();
    // 300 flows in 1024 cells: 300 - 1024 (1 - (1023/1024)^300) = 40 are expected to share one.
    assert!((20..=60).contains(&collisions), "{collisions} flows share a cell");
}

/// The count of a flow in the table of `flows.fpl`.
fn counted(memory: &Memory, flow: &Flow) -> u64 {
    let tuple = flow.tuple();
    let mark = (hash(&tuple[..8], 0) ^ hash(&tuple[8..], 0).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    (0..504).filter(|place| memory.get(place * 2) == mark).map(|place| memory.get(place * 2 + 1)).sum()
}

#[test]
fn flow_counts_are_exact_and_report_collisions() {
    let mut running = Running::new(include_str!("../../programs/flows.fpl"));
    let (frames, truth) = traffic(200, &mut Random::new(2));
    let mut tagged = false;
    for frame in &frames {
        tagged = !tagged;
        let frame = if tagged { vlan(frame, 0x8100, 7) } else { frame.clone() };
        assert_eq!(running.verdict(&frame), 0);
    }
    for (flow, packets) in &truth {
        assert_eq!(counted(&running.memory, flow), *packets, "{flow:?}");
    }
    assert_eq!(running.memory.get(1016), truth.values().filter(|packets| **packets > 0).count() as u64);
    assert!(running.memory.get(1017) > 0, "200 flows in 504 places without a collision");
    assert_eq!(running.memory.get(1018), 0);
}

#[test]
fn refusals_of_a_full_table_are_counted() {
    let mut running = Running::new(include_str!("../../programs/flows.fpl"));
    let (frames, truth) = traffic(2000, &mut Random::new(3));
    frames.iter().for_each(|frame| assert_eq!(running.verdict(frame), 0));
    let in_table: u64 = truth.keys().map(|flow| counted(&running.memory, flow)).sum();
    let lacking = running.memory.get(1018);
    assert!(lacking > 0);
    assert_eq!(in_table + lacking, truth.values().sum::<u64>());
}

/// One RTSP session: its control connection's packets with their bytes in one or two segments, and its ports.
struct Session {
    client: Host,
    server: Host,
    control_port: u16,
    media: [u16; 4],
}

impl Session {
    fn number(number: u16) -> Session {
        let media = [5000 + number * 2, 5001 + number * 2, 7000 + number * 2, 7001 + number * 2];
        Session {
            client: Host::number(number),
            server: Host::number(900),
            control_port: 30_000 + number,
            media,
        }
    }

    fn segment(&self, from_server: bool, seq: u32, payload: &[u8], version: IpVersion) -> Vec<u8> {
        let (src, dst, ips) = match from_server {
            true => (554, self.control_port, IpPair::between(&self.server, &self.client, version)),
            false => (self.control_port, 554, IpPair::between(&self.client, &self.server, version)),
        };
        let packet =
            Tcp { src, dst, seq, flags: flags::ACK | flags::PSH, ..Tcp::default() }.packet(ips, payload);
        Ethernet { dst: [2; 6], src: [4; 6] }
            .frame(if version == IpVersion::V4 { 0x800 } else { 0x86dd }, &packet)
    }

    fn reply(&self) -> String {
        let [a, b, c, d] = self.media;
        format!(
            "RTSP/1.0 200 OK\r\nCSeq: 3\r\nTransport: RTP/AVP;unicast;client_port={a}-{b};server_port={c}-{d}\r\n\
             Session: 4711\r\n\r\n"
        )
    }

    fn media(&self, number: usize) -> Vec<u8> {
        let ips = IpPair::between(&self.server, &self.client, IpVersion::V4);
        let packet =
            Udp { src: self.media[2 + number % 2], dst: self.media[number % 2] }.packet(ips, b"frame");
        Ethernet { dst: [2; 6], src: [4; 6] }.ip(&packet)
    }
}

#[test]
fn figure_7_follows_split_interleaved_sessions() {
    let len = Session::number(1).reply().len();
    for at in (0..=len).step_by(3) {
        let mut running = Running::new(include_str!("../../programs/rtsp.fpl"));
        let sessions: Vec<Session> = (1..=5).map(Session::number).collect();
        let version = |session: &Session| {
            if session.control_port.is_multiple_of(2) { IpVersion::V4 } else { IpVersion::V6 }
        };
        for session in &sessions {
            for number in 0..2 {
                assert_eq!(
                    running.verdict(&session.media(number)),
                    0,
                    "media before the session agreed on it"
                );
            }
        }
        // The first halves of all replies, then the second halves: five connections side by side.
        for (from, to) in [(0, at), (at, usize::MAX)] {
            for session in &sessions {
                let reply = session.reply();
                let part = &reply.as_bytes()[from..to.min(reply.len())];
                let frame = session.segment(true, 1000 + from as u32, part, version(session));
                assert_eq!(running.verdict(&frame), 1, "control packets pass");
            }
        }
        for session in &sessions {
            for number in 0..2 {
                assert_eq!(
                    running.verdict(&session.media(number)),
                    1,
                    "media of {}, split {at}",
                    session.control_port
                );
            }
        }
        let stranger = Udp { src: 9000, dst: 9001 }
            .packet(IpPair::between(&Host::number(1), &Host::number(2), IpVersion::V4), b"x");
        assert_eq!(running.verdict(&Ethernet { dst: [2; 6], src: [4; 6] }.ip(&stranger)), 0);
        assert_eq!((running.memory.get(4), running.memory.get(5)), (20, 20));
    }
}

#[test]
fn figure_7_does_not_follow_segments_out_of_order() {
    let mut running = Running::new(include_str!("../../programs/rtsp.fpl"));
    let session = Session::number(1);
    let reply = session.reply();
    let at = reply.find("port").expect("ports");
    for (from, to) in [(at, reply.len()), (0, at)] {
        let frame = session.segment(true, from as u32, &reply.as_bytes()[from..to], IpVersion::V4);
        assert_eq!(running.verdict(&frame), 1);
    }
    assert_eq!(running.verdict(&session.media(0)), 0);
}

#[test]
fn the_oldest_port_gives_way() {
    let mut running = Running::new(include_str!("../../programs/rtsp.fpl"));
    let sessions: Vec<Session> = (1..=20).map(Session::number).collect();
    for session in &sessions {
        running.verdict(&session.segment(true, 0, session.reply().as_bytes(), IpVersion::V4));
    }
    assert_eq!((running.memory.get(4), running.memory.get(5)), (64, 80));
    let passed: Vec<u64> = sessions.iter().map(|session| running.verdict(&session.media(0))).collect();
    assert_eq!(passed, [[0; 4].as_slice(), &[1; 16]].concat());
}

const SIGNATURE: &[u8] = b"/default.ida?NNNNNNNN";

fn worm_runs() -> [Running; 2] {
    let text = include_str!("../../programs/worm.fpl");
    let patterns =
        Patterns::new(vec![Pattern::new(7, b"other".to_vec()), Pattern::new(9, SIGNATURE.to_vec())]);
    let searches = [
        functions::aho_corasick("signature", patterns.expect("patterns")),
        functions::horspool("signature", Horspool::new(SIGNATURE).expect("a pattern")),
    ];
    searches.map(|search| {
        let mut registry = Registry::new();
        registry.insert(search);
        Running::with(text, registry)
    })
}

#[test]
fn figure_2_records_hosts_and_passes_the_first() {
    for (mut running, pattern) in worm_runs().into_iter().zip([9, 0]) {
        let mut random = Random::new(4);
        let mut infected = Vec::new();
        for number in 0..2000u16 {
            let flow = Flow { client: number % 300, server: 1000 + number % 3, port: 1024 + number };
            let is_worm = random.one_of(1, 20);
            let request: &[u8] = if is_worm { SIGNATURE } else { b"/index.html HTTP/1.0" };
            let payload = [b"GET ", request].concat();
            let verdict = running.verdict(&flow.frame(true, &payload));
            assert_eq!(verdict, u64::from(is_worm && infected.is_empty()));
            if is_worm {
                infected.push(flow);
                assert_eq!((running.memory.get(2), running.memory.get(3)), (pattern, 14 + 20 + 20 + 4));
            }
            // Not web traffic: never looked at.
            assert_eq!(running.verdict(&flow.frame(false, SIGNATURE)), 0);
        }
        assert_eq!(running.memory.get(8), infected.len() as u64);
        for (number, flow) in infected.iter().enumerate() {
            let place = 16 + number as u64 * 2;
            let addresses =
                [Host::number(flow.client), Host::number(flow.server)].map(|host| u32::from(host.v4));
            assert_eq!([running.memory.get(place), running.memory.get(place + 1)], addresses.map(u64::from));
        }
    }
}

#[test]
fn figure_2_passes_the_first_fragment() {
    let mut running = Running::new(include_str!("../../programs/fragments.fpl"));
    let (mut fragments, mut packets) = (0, 0);
    for number in 0..40u16 {
        let port = if number % 3 == 0 { 443 } else { 80 };
        let client = Ipv4Addr::new(10, 1, 0, number as u8);
        let ips = IpPair::V4(client, Ipv4Addr::new(10, 2, 0, 1));
        let segment =
            Tcp { src: 5000, dst: port, flags: flags::ACK, ..Tcp::default() }.segment(ips, &[7; 1000]);
        let header = Ipv4 { id: number, ..Ipv4::new(client, Ipv4Addr::new(10, 2, 0, 1), 6) };
        for (at, fragment) in fragments_v4(&header, &segment, 400).iter().enumerate() {
            let frame = Ethernet { dst: [2; 6], src: [4; 6] }.frame(ETHERTYPE_IPV4, fragment);
            assert_eq!(running.verdict(&frame), u64::from(port == 80 && at == 0));
            fragments += u64::from(port == 80);
        }
        packets += u64::from(port == 80);
    }
    assert_eq!([running.memory.get(0), running.memory.get(1)], [fragments, packets]);
}
