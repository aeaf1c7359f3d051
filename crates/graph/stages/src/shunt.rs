//! `shunt`: the beginning of each flow, as much as its application is worth.

use std::hash::{BuildHasher as _, RandomState};

use tapline_flow::{application_names, recognise};
use tapline_graph::catalog::{Arguments, Constructor, Order, Outputs, Parameter, ParameterType, StageClass};
use tapline_graph::{Cell, Out, Packets, Stage, Table};
use tapline_packet::headers::Headers;
use tapline_source::Error;

use super::recent::Recent;

pub(crate) const CLASS: StageClass = StageClass {
    name: "shunt",
    summary: "the first packets or bytes of each flow, by application; the rest is cut off",
    description: "A flow is cut when one of its limits is met; both directions count together. Cut packets go to output 1 if it is connected, \
        and are refused otherwise: put flow before this stage, or behind both outputs, so that flows keep all their packets. The application is \
        recognised by the first payload of a flow \
        (docs/flows.md#applications), else by its ports (IANA's names, as tapline probe has them); packets before that count by the general \
        limits. The result has the flows and the cut packets of each application. Later fragments are flows of their own, by addresses. Packets \
        without IP are passed on.",
    parameters: &[
        Parameter::new("packets", ParameterType::Number(0, 1_000_000_000), "0")
            .means("packets of a flow to pass on; 0 for no limit"),
        Parameter::new("bytes", ParameterType::Number(0, u64::MAX), "0")
            .means("bytes on the wire of a flow after which it is cut: the packet that reaches them still goes on; 0 for no limit"),
        Parameter::new("app", ParameterType::Text, "")
            .means("packets of flows by application instead of `packets` and `bytes`: \"tls=8, quic=8, ssh=0, domain=all\"; 0 passes none once \
                the flow is recognised"),
        Parameter::new("room", ParameterType::Number(1, 100_000_000), "1000000")
            .means("flows that are remembered for certain; about 60 bytes each. A forgotten flow starts over"),
    ],
    outputs: Outputs::Many,
    order: Order::Flow,
    example: "device(eth0) -> flow -> shunt(packets=50, app=\"tls=12, quic=12\") -> record(\"heads.pcapng\")",
    make: Constructor::Stage(|arguments, _| Ok(Box::new(make(arguments)?))),
    ..StageClass::BASE
};

/// The seed of the hash of flows: random, so that strangers cannot make flows that share a limit; a fixed one in
/// tests.
fn seed() -> u64 {
    if cfg!(test) { 0x7368_756e_7400 } else { RandomState::new().hash_one(0) }
}

/// The output of cut packets.
const CUT: usize = 1;
/// No limit.
const ALL: u64 = u64::MAX;

fn make(arguments: &Arguments) -> Result<Shunt, String> {
    let limit = |name| match arguments.number(name) {
        0 => ALL,
        number => number,
    };
    let general = Limits { packets: limit("packets"), bytes: limit("bytes") };
    let by_application = applications(arguments.text("app"))?;
    if general.packets == ALL && general.bytes == ALL && by_application.is_empty() {
        return Err("no limit: give packets, bytes or app".to_owned());
    }
    let kinds = by_application.into_iter();
    let kinds = kinds.map(|(name, packets)| Kind::new(name, Limits { packets, bytes: ALL }));
    let kinds = [Kind::new("(others)", general)].into_iter().chain(kinds).collect();
    Ok(Shunt { seed: seed(), kinds, flows: Recent::new(arguments.number("room") as usize) })
}

/// Names of applications with packets: `tls=8, domain=all`.
fn applications(text: &str) -> Result<Vec<(&'static str, u64)>, String> {
    let mut found: Vec<(&'static str, u64)> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, packets) =
            part.split_once('=').ok_or_else(|| format!("app: `{part}` lacks packets: tls=8"))?;
        let (name, packets) = (name.trim(), packets.trim());
        let name = application_names().find(|known| *known == name).ok_or_else(|| {
            format!("app: no application `{name}` is recognised: tls, quic, http, ssh, dtls, or a service of IANA's registry such as domain")
        })?;
        if found.iter().any(|(known, _)| *known == name) {
            return Err(format!("app: `{name}` is given twice"));
        }
        let packets = match packets {
            "all" => ALL,
            number => tapline_syntax::units::count(number)
                .map_err(|_| format!("app: `{number}` is not a number of packets: 8, or all"))?,
        };
        found.push((name, packets));
    }
    Ok(found)
}

#[derive(Clone, Copy)]
struct Limits {
    packets: u64,
    bytes: u64,
}

/// Flows with the same limits, and their outcome.
struct Kind {
    name: &'static str,
    limits: Limits,
    flows: u64,
    cut_flows: u64,
    cut_packets: u64,
    cut_bytes: u64,
}

impl Kind {
    fn new(name: &'static str, limits: Limits) -> Kind {
        Kind { name, limits, flows: 0, cut_flows: 0, cut_packets: 0, cut_bytes: 0 }
    }
}

/// The part of a flow that has gone on.
#[derive(Clone, Copy, Default)]
struct Passed {
    packets: u64,
    bytes: u64,
    /// Kind of the flow; 0 until it is recognised, and for others.
    kind: u16,
    is_recognised: bool,
    is_cut: bool,
}

struct Shunt {
    seed: u64,
    /// The first is for applications without limits of their own.
    kinds: Vec<Kind>,
    flows: Recent<u64, Passed>,
}

impl Shunt {
    fn goes_on(&mut self, headers: &Headers, data: &[u8], wire_len: u64) -> bool {
        if headers.ip().is_none() {
            return true;
        }
        let mut is_new = false;
        let flow = self.flows.of(headers.flow_hash(data, self.seed), || {
            is_new = true;
            Passed::default()
        });
        self.kinds[0].flows += u64::from(is_new);
        if !flow.is_recognised && self.kinds.len() > 1 {
            recognised(&mut self.kinds, flow, headers, data);
        }
        let kind = &mut self.kinds[usize::from(flow.kind)];
        if flow.packets >= kind.limits.packets || flow.bytes >= kind.limits.bytes {
            kind.cut_flows += u64::from(!flow.is_cut);
            flow.is_cut = true;
            kind.cut_packets += 1;
            kind.cut_bytes += wire_len;
            return false;
        }
        flow.packets += 1;
        flow.bytes += wire_len;
        true
    }
}

/// Finds the kind of a flow in its first payload.
fn recognised(kinds: &mut [Kind], flow: &mut Passed, headers: &Headers, data: &[u8]) {
    let payload = headers.payload().and_then(|at| data.get(at..headers.ip_end().min(data.len())));
    let Some((payload, protocol)) = payload.filter(|payload| !payload.is_empty()).zip(headers.protocol())
    else {
        return;
    };
    flow.is_recognised = true;
    let (caller, called) = headers.ports(data).unwrap_or_default();
    let name = recognise(protocol, caller, called, payload);
    if let Some(kind) = kinds.iter().position(|kind| Some(kind.name) == name) {
        flow.kind = kind as u16;
        kinds[0].flows -= 1;
        kinds[kind].flows += 1;
    }
}

impl Stage for Shunt {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let all = packets.clone();
        packets.selection.retain(|index| {
            let packet = all.batch.packet(index);
            self.goes_on(&all.headers(index), packet.data, u64::from(packet.meta.wire_len))
        });
        if packets.len() == all.len() {
            return out.pass(packets);
        }
        let mut is_kept = [false; tapline_packet::BATCH_MAX];
        packets.selection.iter().for_each(|index| is_kept[index] = true);
        let mut cut = all;
        cut.selection.retain(|index| !is_kept[index]);
        out.pass(packets).and(out.pass_to(CUT, &mut cut))
    }

    fn result(&self) -> Option<Table> {
        let columns = vec!["application", "flows", "cut_flows", "cut_packets", "cut_bytes"];
        let row = |kind: &Kind| {
            let numbers = [kind.flows, kind.cut_flows, kind.cut_packets, kind.cut_bytes];
            [Cell::from(kind.name.to_owned())].into_iter().chain(numbers.map(Cell::from)).collect()
        };
        let mut rows: Vec<Vec<Cell>> = self.kinds.iter().skip(1).map(row).collect();
        rows.push(row(&self.kinds[0]));
        if self.flows.forgotten() > 0 {
            let nothing = [0; 3].map(Cell::from);
            let forgotten = [Cell::from("(forgotten)".to_owned()), Cell::from(self.flows.forgotten())];
            rows.push(forgotten.into_iter().chain(nothing).collect());
        }
        Some(Table { columns, rows })
    }

    fn merge(&mut self, other: &dyn std::any::Any) {
        let Some(other) = other.downcast_ref::<Shunt>() else { return };
        for (ours, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            ours.flows += theirs.flows;
            ours.cut_flows += theirs.cut_flows;
            ours.cut_packets += theirs.cut_packets;
            ours.cut_bytes += theirs.cut_bytes;
        }
        self.flows.merge(&other.flows);
    }
}

#[cfg(test)]
mod tests {
    use tapline_testkit::frames::*;

    use crate::trial::Trial;

    /// A packet of flow number `n`, either way, with a payload.
    fn packet(n: u16, is_back: bool, port: u16, payload: &[u8]) -> Vec<u8> {
        let (mut a, mut b) = (Host::number(1), Host::number(2));
        let (mut src, mut dst) = (1000 + n, port);
        if is_back {
            (a, b, src, dst) = (b, a, dst, src);
        }
        Ethernet::between(&a, &b)
            .ip(&Udp { src, dst }.packet(IpPair::between(&a, &b, IpVersion::V4), payload))
    }

    #[test]
    fn the_first_packets_of_both_directions_go_on() {
        let mut trial =
            Trial::graph("s :: shunt(packets=3); file(\"in\") -> s; s[0] -> json; s[1] -> json").unwrap();
        let frames: Vec<_> = (0..100).map(|n| packet(n % 10, n / 10 % 2 == 1, 7000, &[n as u8])).collect();
        frames.chunks(7).for_each(|some| trial.push_frames(some));
        let (kept, cut) = (trial.arrived_at(0), trial.arrived_at(1));
        assert_eq!((kept.len(), cut.len()), (30, 70));
        assert!(kept.iter().map(|packet| &packet.data).eq(&frames[..30]));
        assert_eq!(trial.numbers("s", Some("(others)"))[..3], [10, 10, 70]);
        trial.assert_balanced();
    }

    #[test]
    fn bytes_and_packets_without_ip() {
        let mut trial = Trial::of("s :: shunt(bytes=200)");
        let long = packet(1, false, 7000, &[0; 100]);
        let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
        for _ in 0..5 {
            trial.push_frames(&[long.clone(), arp.clone()]);
        }
        assert_eq!(trial.data().iter().filter(|data| **data == long).count(), 2, "142 bytes each");
        assert_eq!(trial.refused_and_held("s"), (3, 0));
        trial.assert_balanced();
    }

    #[test]
    fn applications_have_limits_of_their_own() {
        let quic = [0xc3, 0, 0, 0, 1, 8, 1, 2];
        let mut trial = Trial::of("s :: shunt(packets=5, app=\"quic=2, domain=all, sip=0\")");
        for _ in 0..8 {
            trial.push_frames(&[
                packet(1, false, 7000, &quic),
                packet(2, false, 53, &[9; 20]),
                packet(3, false, 5060, &[9; 20]),
                packet(4, false, 7001, &[9; 20]),
            ]);
        }
        let count = |name| trial.numbers("s", Some(name));
        assert_eq!(count("quic")[..3], [1, 1, 6]);
        assert_eq!(count("domain")[..3], [1, 0, 0]);
        assert_eq!(count("sip")[..3], [1, 1, 8]);
        assert_eq!(count("(others)")[..3], [1, 1, 3]);
        assert_eq!(trial.data().len(), 2 + 8 + 5);
        trial.assert_balanced();
    }

    #[test]
    fn arguments_that_say_nothing_are_refused() {
        let fault = |arguments: &str| {
            let text = format!("file(\"in\") -> shunt({arguments}) -> json");
            Trial::graph(&text).err().unwrap_or_else(|| panic!("{arguments} is taken"))
        };
        assert!(fault("").contains("no limit"));
        assert!(fault("app=\"tsl=8\"").contains("no application `tsl`"));
        assert!(fault("app=\"tls\"").contains("tls=8"));
        assert!(fault("app=\"tls=8, tls=9\"").contains("is given twice"));
        assert!(fault("app=\"tls=few\"").contains("8, or all"));
    }
}
