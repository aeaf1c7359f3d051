//! `merge`: packets of several ways in the order of their time stamps.
//!
//! ```text
//! earlier than one that has gone on --> goes on at once, late
//! all others                        --> kept, until the newest stamp is `wait` later than theirs
//! ```

use std::any::Any;

use tapline_capture::{Error, Wants};
use tapline_packet::{Packet, Timestamp};

use super::held::{Held, ROOM};
use crate::catalog::{Class, Kind, Make, Order, Outputs, Parameter};
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{Moment, Own, Stage};
use crate::table::Table;

/// The class of this stage.
pub(crate) const CLASS: Class = Class {
    name: "merge",
    summary: "packets of several sources in the order of their time stamps",
    description: "Several outputs may lead to it. A packet is kept until one was seen whose time stamp is `wait` later, then it goes on, the earliest first; of equal \
        ones, that which came first. So the order is right if no source lags behind another by more than `wait`. A packet that is earlier than one \
        that has gone on already goes on at once, and counts as late. Where interfaces are captured and no packet comes for `wait` by the clock, all go on, as at \
        the end. Where there is no room, the earliest go on early: none is refused. Packets are copied.",
    parameters: &[
        Parameter {
            name: "wait",
            kind: Kind::Duration,
            default: Some("100ms"),
            meaning: "how long a packet waits for earlier ones, by the time in the packets",
        },
        ROOM,
    ],
    outputs: Outputs::One,
    order: Order::All,
    example: "m :: merge; device(eth0) -> m; device(eth1) -> m; m -> record(\"both.pcapng\")",
    make: Make::Stage(|arguments, _| {
        Ok(Box::new(Merge {
            wait: arguments.nanoseconds("wait") as i64,
            held: Held::new(arguments.number("room") as usize),
            newest: None,
            last_read: None,
            counts: Counts::default(),
        }))
    }),
};

struct Merge {
    wait: i64,
    held: Held,
    /// The latest time stamp that was seen.
    newest: Option<Timestamp>,
    /// When a packet of an interface was read last, by the clock.
    last_read: Option<Timestamp>,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    packets: u64,
    late: u64,
    early: u64,
}

impl Merge {
    /// Keeps a packet, and makes room for it if there is none: a batch of the earliest goes on. `false` if it would never fit.
    fn keep(&mut self, packet: Packet<'_>, now: Timestamp, out: &mut Out<'_>) -> (bool, Result<(), Error>) {
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
        let (all, now) = (packets.clone(), packets.now);
        self.counts.packets += all.len() as u64;
        let mut result = Ok(());
        packets.selection.retain(|index| {
            let packet = all.batch.packet(index);
            let stamp = packet.meta.timestamp;
            if packet.meta.if_index != 0 {
                self.last_read = Some(now);
            }
            if self.held.gone().is_some_and(|gone| stamp < gone) {
                self.counts.late += 1;
                return true;
            }
            self.newest = self.newest.max(Some(stamp));
            let (is_kept, made_room) = self.keep(packet, now, out);
            result = std::mem::replace(&mut result, Ok(())).and(made_room);
            !is_kept
        });
        result = result.and(out.pass(packets));
        match self.newest {
            Some(newest) => result.and(self.held.release(newest.plus_nanos(-self.wait), now, out)),
            None => result,
        }
    }

    fn tick(&mut self, moment: &Moment<'_>, out: &mut Out<'_>) -> Result<Wants, Error> {
        let is_quiet = self.last_read.is_some_and(|last| !(0..self.wait).contains(&moment.now.since(last)));
        if let (Some(newest), true) = (self.newest, is_quiet) {
            self.held.release(newest, moment.now, out)?;
        }
        Ok(Wants::More)
    }

    fn finish(&mut self, moment: &Moment<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.held.release_all(moment.now, out)
    }

    fn own(&self) -> Own {
        Own { refused: Some(0), held: self.held.len() as u64, ..Own::default() }
    }

    fn result(&self) -> Option<Table> {
        let Counts { packets, late, early } = self.counts;
        Some(Table::of_numbers(&[("packets", packets), ("late", late), ("early", early)]))
    }

    fn absorb(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<Merge>() {
            self.counts.packets += other.counts.packets;
            self.counts.late += other.counts.late;
            self.counts.early += other.counts.early;
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
