//! `delay`: packets go on later.

use tapline_graph::catalog::{Constructor, Order, Parameter, ParameterType, StageClass};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_packet::Timestamp;
use tapline_source::Error;

use super::held::{HeldPackets, ROOM};

pub(crate) const CLASS: StageClass = StageClass {
    name: "delay",
    summary: "delays packets",
    description: "The first packet decides on the clock. If it comes from an interface, that is the system's: a packet is passed on `time` after \
        it was read, to within a \
        tenth of a second where no other packet comes. If it comes from a file, it is the time in the packets: one is passed on once another is \
        `time` later, by their own stamps. Time stamps stay as they are. Packets are copied; if there is no room they are refused. At the end \
        all are passed on.",
    parameters: &[Parameter::required("time", ParameterType::Duration).means("the delay"), ROOM],
    order: Order::All,
    example: "device(eth0) -> delay(5s) -> record(\"later.pcapng\")",
    make: Constructor::Stage(|arguments, _| {
        let held = HeldPackets::new(arguments.number("room") as usize);
        let time = arguments.nanoseconds("time") as i64;
        Ok(Box::new(Delay { time, held, by: None, newest: None, refused: 0 }))
    }),
    ..StageClass::BASE
};

/// The source of the time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The steady clock: a wall clock that is set changes no delay.
    Clock,
    Stamps,
}

struct Delay {
    time: i64,
    held: HeldPackets,
    by: Option<By>,
    /// The latest known time.
    newest: Option<Timestamp>,
    refused: u64,
}

impl Delay {
    /// Time has come to `now`, or was there before.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        let newest = self.newest.map_or(now, |newest| newest.max(now));
        self.newest = Some(newest);
        newest
    }
}

/// A time of the steady clock, in the place of a time stamp.
fn steady(ns: i64) -> Timestamp {
    Timestamp::from_nanos(ns)
}

impl Stage for Delay {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.held.learn(packets.interfaces);
        let mut result = Ok(());
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let is_live = packet.meta.if_index != 0;
            let by = *self.by.get_or_insert(if is_live { By::Clock } else { By::Stamps });
            let time = if by == By::Clock { steady(packets.steady_ns) } else { packet.meta.timestamp };
            let newest = self.advance(time);
            let due = time.plus_nanos(self.time);
            if !self.held.keep(due, packet) {
                result = result.and(self.held.release(newest, packets.clocks(), out));
                self.refused += u64::from(!self.held.keep(due, packet));
            }
        }
        match self.newest {
            Some(newest) => result.and(self.held.release(newest, packets.clocks(), out)),
            None => result,
        }
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        if self.by == Some(By::Clock) {
            let newest = self.advance(steady(tick.steady_ns));
            self.held.release(newest, tick.clocks(), out)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.held.release_all(tick.clocks(), out)
    }

    fn counters(&self) -> StageCounters {
        StageCounters {
            refused: Some(self.refused),
            held: self.held.len() as u64,
            ..StageCounters::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::trial::{Trial, lent, whole};
    use tapline_packet::{Batch, ClockReading, Meta, Timestamp};

    #[test]
    fn packets_of_files_wait_by_their_own_time() {
        let mut trial = Trial::of("s :: delay(100ns)");
        trial.push_stamps(&[1000, 1050, 1099]);
        assert_eq!((trial.stamps(), trial.refused_and_held("s")), (vec![], (0, 3)));
        trial.tick(i64::MAX);
        assert!(trial.stamps().is_empty(), "the clock is not theirs");
        trial.push_stamps(&[1150, 1149]);
        assert_eq!(trial.stamps(), [1000, 1050]);
        trial.push_stamps(&[1010]);
        assert_eq!(trial.stamps(), [1010], "it is due already");
        trial.finish();
        assert_eq!((trial.stamps(), trial.refused_and_held("s")), (vec![1099, 1149, 1150], (0, 0)));
        trial.assert_balanced();
    }

    #[test]
    fn packets_of_interfaces_wait_by_the_clock() {
        let mut trial = Trial::of("s :: delay(1s)");
        let frame = vec![1; 60];
        let meta = Meta { if_index: 2, timestamp: Timestamp::from_nanos(77), ..whole(&frame) };
        trial.now = ClockReading::unset(Timestamp::from_nanos(4_999_999_999));
        let (base, records) = lent(&[(frame.clone(), meta)]);
        trial.push(Batch::new(&base, &records));
        trial.tick(5_999_999_999);
        assert_eq!(trial.data().len(), 0);
        trial.tick(6_000_000_000);
        let arrived = trial.arrived();
        assert_eq!((arrived.len(), &arrived[0].data, arrived[0].meta), (1, &frame, meta));
        trial.assert_balanced();
    }

    /// An hour back while a packet waits: it goes on after a second all the same.
    #[test]
    fn packets_do_not_wait_for_a_clock_set_back() {
        let mut trial = Trial::of("s :: delay(1s)");
        let frame = vec![1; 60];
        let meta = Meta { if_index: 2, ..whole(&frame) };
        let hours = |hours: i64| Timestamp::from_parts(hours * 3600, 0);
        trial.now = ClockReading { wall: hours(9), steady_ns: 0 };
        let (base, records) = lent(&[(frame.clone(), meta)]);
        trial.push(Batch::new(&base, &records));
        trial.tick_at(ClockReading { wall: hours(8), steady_ns: 999_999_999 });
        assert_eq!(trial.data().len(), 0);
        trial.tick_at(ClockReading { wall: hours(8), steady_ns: 1_000_000_001 });
        assert_eq!(trial.data().len(), 1);
    }

    #[test]
    fn packets_without_room_are_refused_and_counted() {
        let mut trial = Trial::of("s :: delay(1h, room=1M)");
        trial.push_stamps(&vec![0; 10_000]);
        let (refused, held) = trial.refused_and_held("s");
        assert!(refused > 1000 && held > 4000, "{refused} {held}");
        trial.assert_balanced();
        trial.finish();
        assert_eq!((trial.stamps().len() as u64, trial.refused_and_held("s")), (held, (refused, 0)));
        trial.assert_balanced();
    }

    #[test]
    fn times_at_the_ends_of_the_range() {
        let mut trial = Trial::of("s :: delay(1h)");
        trial.push_stamps(&[i64::MIN, i64::MAX, 0, -1]);
        trial.finish();
        assert_eq!(trial.stamps(), [i64::MIN, -1, 0, i64::MAX]);
        trial.assert_balanced();
    }
}
