//! `merge`: packets of several ways in the order of their time stamps.
//!
//! ```text
//! earlier than one that has gone on --> goes on at once, late
//! all others                        --> kept, until each source has come `wait` further
//! ```

use std::any::Any;

use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::{ClockReading, Meta, Packet, Timestamp};
use tapline_source::Error;

use super::held::{HeldPackets, ROOM};

pub(crate) const CLASS: StageClass = StageClass {
    name: "merge",
    summary: "packets of several sources in the order of their time stamps",
    description: "Several outputs may lead to it. A packet is kept until each source has come so far that one with a time stamp `wait` later was \
        seen, and is passed on with the next batch, the earliest first; of equal ones, the one that came first. All interfaces that are captured \
        are one source, and each interface in files is \
        one; a file that has ended keeps packets of the others waiting until there is no room or the end comes, which costs memory and no order. \
        A packet that is earlier than one passed on already is passed on at once, and counts as late. If interfaces are captured and no packet \
        comes for `wait` by the clock, all are passed on, as at the end. If there is no room, the earliest are passed on early: none is refused. \
        Packets are copied.",
    parameters: &[
        Parameter::new("wait", ParameterType::Duration, "100ms")
            .means("how long a packet waits for earlier ones, by the time in the packets"),
        ROOM,
    ],
    order: Order::All,
    example: "m :: merge; device(eth0) -> m; device(eth1) -> m; m -> record(\"both.pcapng\")",
    make: Constructor::Stage(|arguments, _| {
        Ok(Box::new(Merge {
            wait: arguments.nanoseconds("wait") as i64,
            held: HeldPackets::new(arguments.number("room") as usize),
            sources: Vec::new(),
            batch_time: None,
            last_read_ns: None,
            counts: Counts::default(),
        }))
    }),
    ..StageClass::BASE
};

struct Merge {
    wait: i64,
    held: HeldPackets,
    sources: Vec<Source>,
    /// When the batch was lent that packets come from; it may come by several ways.
    batch_time: Option<Timestamp>,
    /// When a packet of an interface was read last, by the steady clock.
    last_read_ns: Option<i64>,
    counts: Counts,
}

/// Maximum number of distinguished sources; the stage does not wait for further ones.
const SOURCES_MAX: usize = 1024;

#[derive(Clone, Copy, Default)]
struct Counts {
    packets: u64,
    late: u64,
    early: u64,
}

/// Progress of a source: the latest time stamp of its packets.
struct Source {
    /// Number among the interfaces; `None` for all that are captured.
    interface: Option<u32>,
    newest: Timestamp,
    /// The time before this batch: parts of the batch may still come by other ways.
    before: Option<Timestamp>,
}

impl Merge {
    /// A batch that was lent at another time than the last begins.
    fn begin_batch(&mut self, lent: Timestamp) {
        if self.batch_time.replace(lent) != Some(lent) {
            self.sources.iter_mut().for_each(|source| source.before = Some(source.newest));
        }
    }

    /// A source has come to the time stamp of a packet.
    fn advance(&mut self, meta: &Meta) {
        let interface = (meta.if_index == 0).then_some(meta.interface.0);
        match self.sources.iter().position(|source| source.interface == interface) {
            Some(at) => self.sources[at].newest = self.sources[at].newest.max(meta.timestamp),
            None if self.sources.len() == SOURCES_MAX => {}
            None => self.sources.push(Source { interface, newest: meta.timestamp, before: None }),
        }
    }

    /// Up to where packets go on: all sources had come `wait` further before this batch.
    fn until(&self) -> Option<Timestamp> {
        let before = self.sources.iter().map(|source| source.before);
        before.min().flatten().map(|time| time.plus_nanos(-self.wait))
    }

    /// Keeps a packet, and makes room for it if there is none: a batch of the earliest goes on. `false` if it would
    /// never fit.
    fn keep(
        &mut self,
        packet: Packet<'_>,
        now: ClockReading,
        out: &mut Out<'_>,
    ) -> (bool, Result<(), Error>) {
        let mut result = Ok(());
        while !self.held.keep(packet.meta.timestamp, packet) {
            let (count, released) = self.held.release_some(now, out);
            result = result.and(released);
            self.counts.early += count as u64;
            if count == 0 {
                return (false, result);
            }
        }
        (true, result)
    }
}

impl Stage for Merge {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.held.learn(packets.interfaces);
        let (all, now) = (packets.clone(), packets.clocks());
        self.counts.packets += all.len() as u64;
        self.begin_batch(now.wall);
        let mut result = Ok(());
        packets.selection.retain(|index| {
            let packet = all.batch.packet(index);
            let stamp = packet.meta.timestamp;
            if packet.meta.if_index != 0 {
                self.last_read_ns = Some(now.steady_ns);
            }
            if self.held.gone().is_some_and(|gone| stamp < gone) {
                self.counts.late += 1;
                return true;
            }
            self.advance(packet.meta);
            let (is_kept, made_room) = self.keep(packet, now, out);
            result = std::mem::replace(&mut result, Ok(())).and(made_room);
            !is_kept
        });
        result = result.and(out.pass(packets));
        match self.until() {
            Some(until) => result.and(self.held.release(until, now, out)),
            None => result,
        }
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        let is_quiet = self.last_read_ns.is_some_and(|last| tick.steady_ns.saturating_sub(last) >= self.wait);
        if is_quiet {
            self.held.release_all(tick.clocks(), out)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.held.release_all(tick.clocks(), out)
    }

    fn counters(&self) -> StageCounters {
        StageCounters { refused: Some(0), held: self.held.len() as u64, ..StageCounters::default() }
    }

    fn result(&self) -> Option<Table> {
        let Counts { packets, late, early } = self.counts;
        Some(Table::of_numbers(&[("packets", packets), ("late", late), ("early", early)]))
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Merge>() {
            self.counts.packets += other.counts.packets;
            self.counts.late += other.counts.late;
            self.counts.early += other.counts.early;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::trial::{Trial, lent, whole};
    use tapline_packet::{Batch, InterfaceId, Meta, Timestamp};
    use tapline_testkit::random::Random;

    #[test]
    fn two_ways_become_one_in_order() {
        let text =
            r#"i :: file("in"); m :: merge(10ns); i -> filter("less 60") -> m; i -> count -> m; m -> json"#;
        let mut trial = Trial::graph(text).unwrap();
        trial.push_stamps(&[5, 3, 20]);
        assert!(trial.stamps().is_empty(), "the batch may come by another way still");
        trial.push_stamps(&[21]);
        assert_eq!(trial.stamps(), [3, 3, 5, 5]);
        trial.push_stamps(&[4]);
        assert_eq!(trial.stamps(), [4, 4], "earlier than one that has gone");
        trial.finish();
        assert_eq!((trial.stamps(), trial.numbers("m", None)), (vec![20, 20, 21, 21], vec![10, 2, 0]));
        trial.assert_balanced();
    }

    /// Stamps that are at most `wait` behind come out in order, none late, whatever the batches.
    #[test]
    fn no_packet_is_late_within_the_wait() {
        let mut random = Random::new(9);
        for _ in 0..50 {
            let mut trial = Trial::of("m :: merge(wait=50ns)");
            let stamps: Vec<i64> = (0..2000).map(|n| n * 3 + 50 - random.below(51) as i64).collect();
            let mut rest = stamps.as_slice();
            let mut out = Vec::new();
            while !rest.is_empty() {
                let (batch, behind) = rest.split_at(rest.len().min(random.between(1..=256) as usize));
                trial.push_stamps(batch);
                out.extend(trial.stamps());
                rest = behind;
            }
            trial.finish();
            out.extend(trial.stamps());
            let mut expected = stamps.clone();
            expected.sort_unstable();
            assert_eq!((out, trial.numbers("m", None)), (expected, vec![2000, 0, 0]));
            trial.assert_balanced();
        }
    }

    /// Two files, of which one has a packet a second and the other a thousand: neither runs ahead of the other.
    #[test]
    fn sources_of_different_density_stay_in_order() {
        let mut trial = Trial::of("m :: merge");
        trial.interfaces.push(trial.interfaces[0].clone());
        let packets = |interface: u32, from: i64, step: i64| -> Vec<_> {
            let packet = |n: i64| {
                let timestamp = Timestamp::from_nanos((from + n) * step);
                (vec![1; 60], Meta { timestamp, interface: InterfaceId(interface), ..whole(&[1; 60]) })
            };
            (0..256).map(packet).collect()
        };
        let mut out = Vec::new();
        for batch in 0..20 {
            trial.push_all(&packets(0, batch * 256, 1_000_000_000), 256);
            trial.push_all(&packets(1, batch * 256, 1_000_000), 256);
            out.extend(trial.stamps());
        }
        assert!(out.len() > 4000);
        trial.finish();
        out.extend(trial.stamps());
        assert!(out.is_sorted());
        assert_eq!(trial.numbers("m", None), [20 * 512, 0, 0]);
    }

    #[test]
    fn full_merges_give_the_earliest_and_lose_none() {
        let mut trial = Trial::of("m :: merge(wait=1h, room=1M)");
        trial.push_stamps(&(0..20_000).collect::<Vec<_>>());
        let (refused, held) = trial.refused_and_held("m");
        trial.finish();
        let out = trial.stamps();
        assert!(out.is_sorted());
        assert_eq!(
            (out.len(), refused, trial.numbers("m", None)),
            (20_000, 0, vec![20_000, 0, 20_000 - held])
        );
        trial.assert_balanced();
    }

    #[test]
    fn a_packet_that_would_never_fit_goes_on_at_once() {
        let mut trial = Trial::of("m :: merge(room=1M)");
        trial.push_frames(&[vec![1; 60], vec![2; 1_000_000]]);
        trial.finish();
        assert_eq!(trial.data().len(), 2);
        trial.assert_balanced();
    }

    #[test]
    fn interfaces_that_fall_silent_hold_nothing_back() {
        let mut trial = Trial::of("m :: merge(wait=1s)");
        let frame = vec![1; 60];
        let meta = Meta { if_index: 2, timestamp: Timestamp::from_nanos(77), ..whole(&frame) };
        let (base, records) = lent(&[(frame, meta)]);
        trial.push(Batch::new(&base, &records));
        trial.tick(1_000_000_000); // it was lent at 1
        assert!(trial.stamps().is_empty());
        trial.tick(1_000_000_001);
        assert_eq!(trial.stamps(), [77]);
        trial.assert_balanced();
    }

    #[test]
    fn times_at_the_ends_of_the_range() {
        let mut trial = Trial::of("m :: merge");
        trial.push_stamps(&[i64::MAX, i64::MIN, 0, i64::MAX, -1]);
        trial.finish();
        assert_eq!(trial.stamps(), [i64::MIN, -1, 0, i64::MAX, i64::MAX]);
        trial.assert_balanced();
    }
}
