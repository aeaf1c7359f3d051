//! `tapline generate -i`: packets leave at the times of their recipe, or as fast as they can.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tapline_generator::Rate;
use tapline_packet::{Batch, Interface, Timestamp};
use tapline_source::{Advance, Error, Source};
use tapline_stages::GeneratedSource;
use tapline_transmit::{LEAD_NS, Schedule};

use super::GenerateArgs;
use crate::mistakes::mistake;
use crate::sending::{Pace, SendInput, Sender};
use crate::session::clock;

/// Sends the packets of a recipe.
pub(super) fn run(args: &GenerateArgs, interface: &str, text: &str, rate: Rate) -> Result<ExitCode> {
    let pace = match rate {
        Rate::Free => Pace::Top,
        Rate::Packets(rate) => Pace::Rate(rate as f64),
        _ => Pace::Times,
    };
    let made = GeneratedSource::new(text, clock()).map_err(|error| mistake(error.render(text)))?;
    let how = if made.is_paced() { "at the times of the recipe" } else { "as fast as it goes" };
    let user = args.relinquish_privileges.as_deref();
    let mut sender = Sender::open(&args.sending, interface, pace, user, args.json)?;
    sender.confine(Vec::new(), None)?;
    sender.announce(how);
    // Marks say when packets are to go: from now on, whatever the recipe says of files.
    let made = made.starting(clock().plus_nanos(LEAD_NS as i64));
    let mut schedule = Departures { made, start: None, times: Vec::new(), packets: 0 };
    let whole = schedule.made.progress().map(|(_, all)| all);
    let failure = sender.send(&mut schedule, "made", whole)?.map(|failure| failure.to_string());
    let taken = SendInput { verb: "made", packets: schedule.packets, passes: 1, backwards: 0, left: 0 };
    sender.conclude(taken, failure.as_deref())
}

/// Generated packets with their departure times.
struct Departures {
    made: GeneratedSource,
    /// When the first packet leaves.
    start: Option<Timestamp>,
    times: Vec<u64>,
    packets: u64,
}

impl Schedule for Departures {
    fn advance(&mut self) -> Result<bool, Error> {
        if self.made.advance(Duration::ZERO)? != Advance::Batch {
            return Ok(false);
        }
        let is_paced = self.made.is_paced();
        if !is_paced {
            self.made.restamp(clock());
        }
        let batch = self.made.batch();
        let stamps = || batch.records().iter().map(|record| record.meta.timestamp);
        let start = *self.start.get_or_insert_with(|| stamps().next().unwrap_or(Timestamp::EPOCH));
        let time =
            |stamp: Timestamp| if is_paced { u64::try_from(stamp.since(start)).unwrap_or(0) } else { 0 };
        self.times.clear();
        self.times.extend(stamps().map(time));
        self.packets += self.times.len() as u64;
        Ok(true)
    }

    fn batch(&self) -> Batch<'_> {
        self.made.batch()
    }

    fn times(&self) -> &[u64] {
        &self.times
    }

    fn interfaces(&self) -> &[Interface] {
        self.made.interfaces()
    }
}
