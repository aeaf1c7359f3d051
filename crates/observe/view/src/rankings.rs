//! The greatest keys of all dimensions.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use crate::change::Change;
use crate::dimension::{Dimension, KEY_WORDS, Key, halves, order};
use crate::ranking::{Ranking, RankingAmount, hash, nothing};
use crate::table::{Amount, Tables};

/// Flows that are added together: each dimension's memory is used for all of them before the next dimension's.
pub(crate) const CHUNK: usize = 16;

/// The greatest keys of all dimensions.
#[derive(Debug)]
pub(crate) struct Rankings {
    host_in: Ranking<2>,
    host_out: Ranking<2>,
    pair: Ranking<4>,
    service: Ranking<1>,
    name: Ranking,
    segment: Ranking<1>,
    interface: Ranking<1>,
    flow: Ranking<5>,
    /// Seed of the hashes of hosts, from which those of pairs and flows are made.
    seed: u64,
    /// Addresses of this host, as keys have them.
    own: Vec<[u64; 2]>,
    /// Traffic between this host and others.
    directions: Directions,
}

/// Packets and bytes by direction, as seen from this host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Directions {
    pub(crate) sent: Amount,
    pub(crate) received: Amount,
}

/// The common part of the dimensions of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Prepared {
    /// Hashes of both hosts, the pair and the flow.
    hosts: [u64; 2],
    pair: u64,
    flow: u64,
    /// The side that began the flow has the greater address.
    is_swapped: bool,
    whole: Amount,
}

impl Default for Rankings {
    fn default() -> Rankings {
        let random = RandomState::new();
        let seed = |dimension: Dimension| random.hash_one(dimension);
        Rankings {
            host_in: Ranking::with_seed(seed(Dimension::HostIn)),
            host_out: Ranking::with_seed(seed(Dimension::HostOut)),
            pair: Ranking::with_seed(seed(Dimension::Pair)),
            service: Ranking::with_seed(seed(Dimension::Service)),
            name: Ranking::with_seed(seed(Dimension::Name)),
            segment: Ranking::with_seed(seed(Dimension::Segment)),
            interface: Ranking::with_seed(seed(Dimension::Interface)),
            flow: Ranking::with_seed(seed(Dimension::Flow)),
            seed: random.hash_one("host"),
            own: Vec::new(),
            directions: Directions::default(),
        }
    }
}

impl Rankings {
    /// Adds the counts of flows to all dimensions.
    pub(crate) fn add(&mut self, changes: &[Change<'_>]) {
        changes.chunks(CHUNK).for_each(|changes| self.add_chunk(changes));
    }

    fn add_chunk(&mut self, changes: &[Change<'_>]) {
        let mut prepared = [Prepared::default(); CHUNK];
        for (change, prepared) in changes.iter().zip(&mut prepared) {
            *prepared = self.prepare(change);
        }
        let both = || changes.iter().zip(&prepared);
        for (change, of) in both() {
            let hosts = &change.fields.hosts;
            self.direct(change);
            for (sender, receiver) in [(0, 1), (1, 0)] {
                let amount = change.amounts[sender];
                if amount.packets > 0 {
                    let part = RankingAmount { amount, ..RankingAmount::default() };
                    self.host_out.add_part(&hosts[sender], of.hosts[sender], &part, nothing);
                    self.host_in.add_part(&hosts[receiver], of.hosts[receiver], &part, nothing);
                }
            }
        }
        for (change, of) in both() {
            self.pair.add_part(&pair_words(change, of), of.pair, &of.part(change, of.is_swapped), nothing);
        }
        for (change, of) in both() {
            let described = || (flow_name(change), change.fields.began_ns);
            let part = RankingAmount { state: change.state.into(), ..of.part(change, false) };
            self.flow.add_part(&flow_words(change), of.flow, &part, described);
        }
        for (change, of) in both() {
            let (fields, whole) = (change.fields, of.part(change, false));
            let service = Key::service_word(fields.protocol, fields.ports[usize::from(fields.server & 1)]);
            self.service.add_often(&[service], &of.part(change, fields.server == 0));
            self.name.add_often(&name_words(change), &whole);
            self.segment.add_often(&[fields.segment], &whole);
            self.interface.add_often(&[fields.interface.into()], &whole);
        }
    }

    /// Sets the addresses of this host.
    pub(crate) fn set_own(&mut self, addresses: &[IpAddr]) {
        self.own = addresses.iter().map(|address| halves(*address)).collect();
    }

    /// Adds the counts of a flow between this host and another to its direction.
    fn direct(&mut self, change: &Change<'_>) {
        let [ours, theirs] = match change.fields.hosts.map(|host| self.own.contains(&host)) {
            [true, false] => change.amounts,
            [false, true] => [change.amounts[1], change.amounts[0]],
            _ => return,
        };
        self.directions.sent.add(ours);
        self.directions.received.add(theirs);
    }

    /// Takes what was sent and received so far, and starts again.
    pub(crate) fn take_directions(&mut self) -> Directions {
        std::mem::take(&mut self.directions)
    }

    /// Hashes the keys of a flow, and asks for their memory.
    fn prepare(&self, change: &Change<'_>) -> Prepared {
        let [from, to] = change.fields.hosts;
        let hosts = [hash(&from, self.seed), hash(&to, self.seed)];
        let is_swapped = order(from) > order(to);
        let [low, high] = if is_swapped { [hosts[1], hosts[0]] } else { hosts };
        let pair = hash(&[low, high], self.seed);
        let flow = hash(&[pair, rest_of_flow(change) << 1 | u64::from(is_swapped)], self.seed);
        hosts.iter().for_each(|&host| {
            self.host_in.ask_for(host);
            self.host_out.ask_for(host);
        });
        self.pair.ask_for(pair);
        self.flow.ask_for(flow);
        let mut whole = change.amounts[0];
        whole.add(change.amounts[1]);
        Prepared { hosts, pair, flow, is_swapped, whole }
    }

    /// Takes the tables so far, and starts again.
    pub(crate) fn take(&mut self) -> Tables {
        Dimension::ALL.map(|dimension| match dimension {
            Dimension::HostIn => self.host_in.take(),
            Dimension::HostOut => self.host_out.take(),
            Dimension::Pair => self.pair.take(),
            Dimension::Service => self.service.take(),
            Dimension::Name => self.name.take(),
            Dimension::Segment => self.segment.take(),
            Dimension::Interface => self.interface.take(),
            Dimension::Flow => self.flow.take(),
        })
    }
}

impl Prepared {
    /// The part that a row gets; its first side is the one that began the flow, unless they are swapped.
    fn part(&self, change: &Change<'_>, is_swapped: bool) -> RankingAmount {
        RankingAmount { amount: self.whole, first: change.amounts[usize::from(is_swapped)], state: 0 }
    }
}

fn pair_words(change: &Change<'_>, of: &Prepared) -> [u64; 4] {
    let [[a, b], [c, d]] = change.fields.hosts;
    if of.is_swapped { [c, d, a, b] } else { [a, b, c, d] }
}

/// The last word of a flow's key: protocol and ports.
fn rest_of_flow(change: &Change<'_>) -> u64 {
    let [from, to] = change.fields.ports.map(u64::from);
    u64::from(change.fields.protocol) << 32 | from << 16 | to
}

fn flow_words(change: &Change<'_>) -> [u64; 5] {
    let [[a, b], [c, d]] = change.fields.hosts;
    [a, b, c, d, rest_of_flow(change)]
}

/// The requested name, else the application.
fn name_words(change: &Change<'_>) -> [u64; KEY_WORDS] {
    let name = if change.name.is_empty() { change.application } else { change.name };
    if name.is_empty() { [0; KEY_WORDS] } else { Key::name(name).0 }
}

/// The application of a flow and the requested name.
fn flow_name(change: &Change<'_>) -> Key {
    match (change.application, change.name) {
        ("", "") => Key::default(),
        (application, name) => Key::name(&[application, name].join(" ")),
    }
}
