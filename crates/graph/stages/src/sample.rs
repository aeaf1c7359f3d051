//! `sample`: a share of the packets, a share of the flows, or one packet per interval.

use crate::kernel_tally;
use tapline_capture::af_packet::KernelTally;
use tapline_graph::catalog::{Arguments, Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage};
use tapline_packet::mix::{GOLDEN, mixed};
use tapline_packet::{BlockSample, Timestamp};
use tapline_source::Error;

/// The class of such stages that count packets or time.
pub(crate) const CLASS: StageClass = StageClass {
    name: "sample",
    summary: "a share of the packets, a share of the flows, or one packet per interval",
    description: "By packet, a random one of each block of n packets goes on: unlike with every n-th packet, \
        periodic traffic is not sampled unevenly; with place=kernel the kernel chooses the same ones, and copies no other. By flow, whole flows go on or not, both directions alike, as a hash of addresses and ports \
        decides: statistics of flows stay correct. By time, a packet goes on if the last one that did is at least `every` older.",
    parameters: &[
        Parameter::new("share", ParameterType::Ratio, "1/1")
            .means("the share to pass on: 1/100 is one of a hundred (packets, flows)"),
        Parameter::new("by", ParameterType::Choice(&["packet", "flow", "time"]), "packet")
            .means("the unit of sampling"),
        Parameter::new("every", ParameterType::Duration, "100ms")
            .means("the least time between two packets (time)"),
        Parameter::new("seed", ParameterType::Number(0, u64::MAX), "1")
            .means("seed of the random choice: the same seed chooses the same packets of the same traffic"),
        super::count::PLACE,
    ],
    order: Order::All,
    example: "device(eth0) -> sample(1/100) -> print",
    refused: "sampled out",
    make: Constructor::Stage(|arguments, site| Ok(make(arguments, kernel_tally(site.tally)))),
    ..StageClass::BASE
};

fn make(arguments: &Arguments, tally: Option<&KernelTally>) -> Box<dyn Stage> {
    let (over, under) = arguments.ratio("share");
    let seed = arguments.number("seed");
    match arguments.text("by") {
        "flow" => Box::new(ByFlow { bound: (u128::from(over) << 64) / u128::from(under), seed }),
        "time" => Box::new(ByTime { every: arguments.nanoseconds("every") as i64, last: None }),
        _ => {
            Box::new(ByNumber { sample: BlockSample::new(over, under, seed), next: 0, tally: tally.cloned() })
        }
    }
}

/// A small generator of chance (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mixed(self.0)
    }

    /// A number less than `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// `over` of each block of `under` packets, each choice alike: for a choice that no sender may foresee.
pub(super) struct Blocks {
    over: u64,
    under: u64,
    chance: Chance,
    /// Packets of this block that are still to come, and how many of them are to go on.
    left: u64,
    wanted: u64,
}

impl Blocks {
    /// `seed` is the seed of the random choice.
    pub(super) fn new(over: u64, under: u64, seed: u64) -> Blocks {
        Blocks { over, under, chance: Chance(seed), left: 0, wanted: 0 }
    }

    /// Whether the next packet is chosen.
    pub(super) fn choose(&mut self) -> bool {
        if self.left == 0 {
            (self.left, self.wanted) = (self.under, self.over);
        }
        let is_chosen = self.chance.below(self.left) < self.wanted;
        self.left -= 1;
        self.wanted -= u64::from(is_chosen);
        is_chosen
    }
}

/// Passes packets by their number.
struct ByNumber {
    sample: BlockSample,
    /// The number of the next packet, where this stage is the only one that numbers them.
    next: u64,
    /// The kernel's sample; without one there, all workers take theirs together.
    tally: Option<KernelTally>,
}

impl Stage for ByNumber {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let len = packets.len() as u64;
        let mut number = match &self.tally {
            Some(tally) if tally.is_in_kernel() => return out.pass(packets),
            Some(tally) => tally.number(len),
            None => self.next,
        };
        packets.selection.retain(|_| {
            number += 1;
            self.sample.chooses(number - 1)
        });
        self.next = number;
        out.pass(packets)
    }
}

/// Passes flows with a hash below a bound.
struct ByFlow {
    bound: u128,
    seed: u64,
}

impl Stage for ByFlow {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let batch = packets.batch;
        let seen = packets.clone();
        packets.selection.retain(|index| {
            let hash = seen.headers(index).flow_hash(batch.packet(index).data, self.seed);
            u128::from(hash) < self.bound
        });
        out.pass(packets)
    }
}

/// The first packet so long after the last one.
struct ByTime {
    every: i64,
    last: Option<Timestamp>,
}

impl Stage for ByTime {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        let batch = packets.batch;
        packets.selection.retain(|index| {
            let time = batch.packet(index).meta.timestamp;
            // A clock that was set back starts over.
            let is_due = self.last.is_none_or(|last| !(0..self.every).contains(&time.since(last)));
            if is_due {
                self.last = Some(time);
            }
            is_due
        });
        out.pass(packets)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use tapline_packet::headers::Headers;
    use tapline_packet::{FiveTuple, LinkType};
    use tapline_testkit::traffic::Traffic;

    use crate::trial::Trial;

    #[test]
    fn whole_blocks_have_exactly_their_share() {
        for (over, under) in [(1, 100), (3, 7), (99, 100), (0, 5), (5, 5)] {
            let mut trial = Trial::of(&format!("sample({over}/{under}, seed=3)"));
            let stamps: Vec<i64> = (0..under * 50).collect();
            // Batches that share no rhythm with the blocks.
            stamps.chunks(37).for_each(|chunk| trial.push_stamps(chunk));
            let mut blocks: HashMap<i64, i64> = HashMap::new();
            trial.stamps().iter().for_each(|stamp| *blocks.entry(stamp / under).or_default() += 1);
            let counts: HashSet<i64> = (0..50).map(|block| *blocks.get(&block).unwrap_or(&0)).collect();
            assert_eq!(counts, HashSet::from([over]), "{over}/{under}");
            trial.assert_balanced();
        }
    }

    #[test]
    fn a_seed_chooses_the_same_and_another_others() {
        let chosen = |seed: u64| {
            let mut trial = Trial::of(&format!("sample(1/10, seed={seed})"));
            trial.push_stamps(&(0..2000).collect::<Vec<_>>());
            trial.stamps()
        };
        assert_eq!(chosen(7), chosen(7));
        assert_ne!(chosen(7), chosen(8));
        let places: HashSet<i64> = chosen(7).iter().map(|stamp| stamp % 10).collect();
        assert_eq!(places.len(), 10, "every place within a block is chosen at times");
    }

    #[test]
    fn flows_go_on_whole_or_not_at_all() {
        let frames: Vec<Vec<u8>> = Traffic::new(6).take(5000).map(|(_, frame)| frame).collect();
        let flow = |data: &[u8]| {
            let headers = Headers::parse_data(LinkType::ETHERNET, data);
            let tuple = headers.five_tuple(data).map(FiveTuple::canonical);
            tuple.filter(|tuple| tuple.src_port > 0 && headers.fragment().is_none())
        };
        let count = |packets: &[Vec<u8>]| {
            let mut flows: HashMap<FiveTuple, usize> = HashMap::new();
            packets
                .iter()
                .filter_map(|data| flow(data))
                .for_each(|flow| *flows.entry(flow).or_default() += 1);
            flows
        };
        let all = count(&frames);
        let mut trial = Trial::of("sample(1/2, flow)");
        trial.push_frames(&frames);
        let chosen = count(&trial.data());
        assert!(chosen.iter().all(|(flow, packets)| all[flow] == *packets));
        assert!(
            (all.len() / 4..all.len() * 3 / 4).contains(&chosen.len()),
            "{} of {}",
            chosen.len(),
            all.len()
        );
        let mut trial = Trial::of("sample(1/1, flow)");
        trial.push_frames(&frames);
        assert_eq!(trial.data().len(), frames.len());
    }

    #[test]
    fn the_first_packet_in_so_much_time() {
        let mut trial = Trial::of("sample(by=time, every=100ns)");
        trial.push_stamps(&[0, 99, 100, 150, 350, 449, 450]);
        trial.push_stamps(&[20, 60, 120]);
        assert_eq!(trial.stamps(), [0, 100, 350, 450, 20, 120], "a clock that was set back starts over");
        trial.assert_balanced();
    }
}
