//! `delay`: packets go on later.

use tapline_capture::{Error, Wants};
use tapline_packet::Timestamp;

use super::held::{Held, ROOM};
use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Moment, Own, Stage};

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "delay",
    summary: "the same packets, so much later",
    description: "The first packet says by which time. If it comes from an interface, that is the clock: a packet goes on `time` after it was read, to within a \
        tenth of a second where no other packet comes. If it comes from a file, it is the time in the packets: one goes on once another is `time` later \
        than it, by their own stamps. Time stamps stay as they are. Packets are copied; those for which there is no room are refused. At the end all go on.",
    parameters: &[
        Parameter { name: "time", kind: Kind::Duration, default: None, meaning: "how much later" },
        ROOM,
    ],
    outputs: Outputs::One,
    order: Order::Free,
    example: "device(eth0) -> delay(5s) -> record(\"later.pcapng\")",
    make: Make::Stage(|arguments, _| {
        let held = Held::new(arguments.number("room") as usize);
        let time = arguments.nanoseconds("time") as i64;
        Ok(Box::new(Delay { time, held, by: None, newest: None, refused: 0 }))
    }),
};

/// What says the time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Clock,
    Stamps,
}

struct Delay {
    time: i64,
    held: Held,
    by: Option<By>,
    /// The latest time that anything told.
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

impl Stage for Delay {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.held.learn(packets.interfaces);
        let mut result = Ok(());
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let is_live = packet.meta.if_index != 0;
            let by = *self.by.get_or_insert(if is_live { By::Clock } else { By::Stamps });
            let time = if by == By::Clock { packets.now } else { packet.meta.timestamp };
            let newest = self.advance(time);
            let due = time.plus_nanos(self.time);
            if !self.held.keep(due, packet) {
                result = result.and(self.held.release(newest, packets.now, out));
                self.refused += u64::from(!self.held.keep(due, packet));
            }
        }
        match self.newest {
            Some(newest) => result.and(self.held.release(newest, packets.now, out)),
            None => result,
        }
    }

    fn tick(&mut self, moment: &Moment<'_>, out: &mut Out<'_>) -> Result<Wants, Error> {
        if self.by == Some(By::Clock) {
            let newest = self.advance(moment.now);
            self.held.release(newest, moment.now, out)?;
        }
        Ok(Wants::More)
    }

    fn finish(&mut self, moment: &Moment<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.held.release_all(moment.now, out)
    }

    fn own(&self) -> Own {
        Own { refused: Some(self.refused), held: self.held.len() as u64, ..Own::default() }
    }
}
