//! `view`: the top hosts, pairs, services and flows of each second, in a file that others read meanwhile.
//!
//! ```text
//! flow(view=yes) --what flows count------> Ranker: a thread of its own --> ViewFile, shared by all workers
//!                --totals, once a second-->
//! ```

use crate::settings::StageSettings;
use std::net::IpAddr;
use std::sync::Arc;

use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, Order, Outputs, Property, StageClass, StageInput,
};
use tapline_graph::{
    ChangesPart, ExpiredFlows, FlowChanges, MeteredSecond, Out, Packets, Stage, StageCounters, StageStatus,
    TickContext,
};
use tapline_source::{Error, InterfaceAccount, Loss, LossPoint};
use tapline_sys::RouteSocket;
use tapline_view::{Ranker, Second, ViewFile};

pub(crate) const CLASS: StageClass = StageClass {
    name: "view",
    summary: "the top hosts, pairs, services and flows of each second, for `tapline view`",
    description: "Right behind `flow(view=yes)`. Once a second it writes totals, the account and tables of hosts, pairs, services, names, segments, interfaces and \
        flows into a file of fixed size, which other processes read (docs/format/view.md). Each table ends with a row for all others, and sums \
        to the packets metered.",
    outputs: Outputs::None,
    input: StageInput::Flows(check_meters),
    order: Order::Flow,
    example: "device(eth0) -> flow(view=yes, details=\"tls,dns,application\") -> view",
    properties: &[Property::View, Property::External],
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

fn check_meters(meters: &[&Arguments], _: &Arguments) -> Result<(), String> {
    match meters {
        [meter] if meter.text("view") == "yes" => Ok(()),
        [_] => {
            Err("its meter does not report the counts of flows each second: write flow(view=yes)".to_owned())
        }
        _ => {
            Err("several meters lead to it: give each a view of its own, or one meter to all packets"
                .to_owned())
        }
    }
}

fn make(_: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let file = StageSettings::of(site.common).view.clone().unwrap_or_else(|| Arc::new(ViewFile::private()));
    Ok(Box::new(ViewStage {
        ranker: Ranker::new(file).with_own(own_addresses),
        before: Second::default(),
        steady_ns: (0, 0),
        received: 0,
        reported: 0,
    }))
}

struct ViewStage {
    ranker: Ranker,
    /// Totals since the start, at the end of the last second.
    before: Second,
    /// The steady clock at the end of the last second, and at the last tick.
    steady_ns: (i64, i64),
    received: u64,
    /// Packets that collected flows count.
    reported: u64,
}

impl ViewStage {
    fn publish(&mut self, metered: &MeteredSecond, is_live: bool) {
        let end_ns = metered.end.as_nanos().max(0).unsigned_abs();
        let totals = Second { end_ns, ..totals(metered) };
        let len_ns = match (is_live, self.steady_ns) {
            (true, (before, now)) if before > 0 => now.saturating_sub(before).unsigned_abs(),
            (false, _) if self.before.end_ns > 0 => end_ns.saturating_sub(self.before.end_ns).max(1),
            _ => 1_000_000_000,
        };
        let second = Second { len_ns, ..totals.since(&self.before) };
        (self.before, self.steady_ns.0) = (totals, self.steady_ns.1);
        self.ranker.publish(second, (&metered.interfaces, metered.sampling), is_live);
    }
}

/// The addresses of this host, if the system reports them.
fn own_addresses() -> Option<Vec<IpAddr>> {
    let addresses = RouteSocket::open().and_then(|mut route| route.addresses()).ok()?;
    Some(addresses.into_iter().map(|of_interface| of_interface.address).collect())
}

/// All numbers since the start of the meter.
fn totals(metered: &MeteredSecond) -> Second {
    let sum = |of: &dyn Fn(&InterfaceAccount) -> u64| metered.accounts.iter().map(of).sum();
    // The counts of a capture of the daemon are those of all its interfaces, and stand at one of them.
    let before = |account: &InterfaceAccount| {
        let counted = |loss: &&Loss| {
            matches!(loss.place, LossPoint::Nic | LossPoint::Driver) && !loss.counts_unwanted_frames()
        };
        account.losses.iter().filter(counted).filter_map(|loss| loss.count.known()).sum()
    };
    Second {
        lost_ring: sum(&|account| account.ring.map_or(0, |ring| ring.dropped)),
        lost_daemon: sum(&|account| account.tap.map_or(0, |tap| tap.lost())),
        lost_before: sum(&before),
        delivered: sum(&|account| account.delivered),
        ..Second::of_statistics(&metered.statistics)
    }
}

impl Stage for ViewStage {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.received += packets.len() as u64;
        Ok(())
    }

    fn flows(&mut self, ended: &ExpiredFlows<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.reported += ended.reported();
        Ok(())
    }

    fn changes(&mut self, changes: &FlowChanges<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let is_live = changes.is_live;
        let is_wanted_again = match changes.part {
            Some(ChangesPart::Journal(journal)) => self.ranker.add(journal, is_live),
            Some(ChangesPart::Collected(flows)) => {
                self.ranker.add_collected(flows, is_live);
                false
            }
            None => false,
        };
        if is_wanted_again {
            changes.is_wanted_again.set(true);
        }
        if let Some(metered) = changes.second {
            self.publish(metered, is_live);
        }
        Ok(())
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.steady_ns.1 = tick.steady_ns;
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.ranker.finish();
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        let written = self.received + self.reported;
        StageCounters { reported: self.reported, ..StageCounters::of_written("view", written) }
    }
}
