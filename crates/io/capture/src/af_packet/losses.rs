//! Losses before the ring: what the NIC and its driver say of themselves, since the capture began.
//!
//! ```text
//! NIC     rtnetlink  rx_dropped rx_missed_errors rx_fifo_errors rx_over_errors
//! driver  ethtool -S every counter whose name speaks of lost received packets; the names are each driver's own
//! backlog softnet    full queues between driver and captures: of the host, bounded by the interface's rx_dropped
//! ```
//!
//! Neither knows of filters, so packets that we did not want are among them; and `rx_dropped` also counts frames of
//! protocols without a receiver on this host, which we did see. So they are shown with the account, but are not part of
//! its sums.

use std::fs::File;
use std::os::unix::fs::FileExt;

use tapline_source::{Count, Loss, LossPoint};
use tapline_sys::{LinkControl, LinkStatistics, RouteSocket, counts_receive_loss};

/// Counters of one interface, as sums of differences, so that an interface that was created again does not count
/// backward.
#[derive(Debug, Default)]
pub(crate) struct LossWatch {
    nic: Option<[Growth; 4]>,
    driver: Option<Vec<(String, Growth)>>,
    backlog: Option<Backlog>,
    /// The positions of the counters of `driver` in the driver's list.
    positions: Vec<usize>,
}

/// A counter that only grows, but may start again from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Growth {
    last: u64,
    total: u64,
}

impl Growth {
    fn from(value: u64) -> Growth {
        Growth { last: value, total: 0 }
    }

    fn update(&mut self, value: u64) {
        self.total += value.checked_sub(self.last).unwrap_or(value);
        self.last = value;
    }
}

impl LossWatch {
    /// Starts at the present values of the counters.
    pub(crate) fn start(
        name: &str,
        if_index: u32,
        route: &mut RouteSocket,
        control: &mut LinkControl,
    ) -> LossWatch {
        let nic = nic_counters(if_index, route).map(|values| values.map(Growth::from));
        let mut watch = LossWatch { nic, backlog: Backlog::open(), ..LossWatch::default() };
        if let Ok(all) = control.statistics(name) {
            watch.select(&all);
        }
        watch
    }

    /// Reads the counters again.
    pub(crate) fn update(
        &mut self,
        name: &str,
        if_index: u32,
        route: &mut RouteSocket,
        control: &mut LinkControl,
    ) {
        if let (Some(nic), Some(values)) = (&mut self.nic, nic_counters(if_index, route)) {
            nic.iter_mut().zip(values).for_each(|(growth, value)| growth.update(value));
        }
        if let Some(backlog) = &mut self.backlog {
            backlog.update();
        }
        let Some(driver) = self.driver.as_mut().filter(|driver| !driver.is_empty()) else { return };
        if let Ok(values) = control.statistics_values(name) {
            for ((_, growth), &position) in driver.iter_mut().zip(&self.positions) {
                growth.update(values.get(position).copied().unwrap_or(growth.last));
            }
        }
    }

    /// The losses so far. Of the driver's counters, those that grew; one entry for all if none did.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        let mut losses = self.nic_losses();
        losses.extend(self.backlog_loss());
        let before = losses.len();
        let driver = self.driver.iter().flatten().filter(|(_, growth)| growth.total > 0);
        losses.extend(driver.map(|(name, growth)| loss(LossPoint::Driver, name, Count::Known(growth.total))));
        if losses.len() == before {
            let count = if self.driver.is_some() { Count::Known(0) } else { Count::Unknown };
            losses.push(loss(LossPoint::Driver, "ethtool -S", count));
        }
        losses
    }

    fn nic_losses(&self) -> Vec<Loss> {
        const NAMES: [&str; 4] = ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
        let count = |index: usize| self.nic.map_or(Count::Unknown, |nic| Count::Known(nic[index].total));
        NAMES.iter().enumerate().map(|(index, name)| loss(LossPoint::Nic, name, count(index))).collect()
    }

    /// The kernel counts what its queues had no room for by processor, and with other frames by interface: the loss is
    /// the lesser of both at most. `None` where either counter did not grow.
    fn backlog_loss(&self) -> Option<Loss> {
        let [rx_dropped, ..] = self.nic?;
        let most = self.backlog.as_ref()?.dropped.total.min(rx_dropped.total);
        (most > 0).then(|| loss(LossPoint::Backlog, "softnet drops, at most", Count::Known(most)))
    }

    fn select(&mut self, all: &[(String, u64)]) {
        let wanted = all.iter().enumerate().filter(|(_, (name, _))| counts_receive_loss(name));
        self.positions = wanted.clone().map(|(position, _)| position).collect();
        self.driver = Some(wanted.map(|(_, (name, value))| (name.clone(), Growth::from(*value))).collect());
    }
}

/// Packets that the queues of all processors had no room for.
#[derive(Debug)]
struct Backlog {
    /// Stays open: later there may be no right to open it.
    file: File,
    dropped: Growth,
}

impl Backlog {
    fn open() -> Option<Backlog> {
        let file = File::open("/proc/net/softnet_stat").ok()?;
        let dropped = Growth::from(softnet_drops(&file)?);
        Some(Backlog { file, dropped })
    }

    fn update(&mut self) {
        if let Some(dropped) = softnet_drops(&self.file) {
            self.dropped.update(dropped);
        }
    }
}

/// The most bytes that are read: lines of 8,000 processors.
const SOFTNET_LEN_MAX: usize = 1 << 20;

/// The sum over all processors: a line each, of hexadecimal numbers, of which the second counts drops.
fn softnet_drops(file: &File) -> Option<u64> {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    while text.len() < SOFTNET_LEN_MAX {
        match file.read_at(&mut part, text.len() as u64).ok()? {
            0 => break,
            len => text.extend_from_slice(&part[..len]),
        }
    }
    parse_drops(std::str::from_utf8(&text).ok()?)
}

fn parse_drops(text: &str) -> Option<u64> {
    let drops = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok();
    text.lines().map(drops).sum()
}

fn loss(place: LossPoint, counter: &str, count: Count) -> Loss {
    Loss { place, counter: counter.to_owned(), count }
}

fn nic_counters(if_index: u32, route: &mut RouteSocket) -> Option<[u64; 4]> {
    let link = route.link(if_index).ok()??;
    let LinkStatistics { rx_dropped, rx_missed_errors, rx_fifo_errors, rx_over_errors, .. } =
        link.statistics?;
    Some([rx_dropped, rx_missed_errors, rx_fifo_errors, rx_over_errors])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_loses_what_both_counters_saw() {
        let text = "0000000a 00000002 00000000 0\n0000000b 0000000f 00000000 0\n";
        assert_eq!((parse_drops(text), parse_drops("x"), parse_drops("1 x")), (Some(17), None, None));
        let losses = |rx_dropped, drops| {
            let mut backlog = Backlog::open()?;
            backlog.dropped = Growth { last: 0, total: drops };
            let nic = [rx_dropped, 0, 0, 0].map(|total| Growth { last: 0, total });
            Some(LossWatch { nic: Some(nic), backlog: Some(backlog), ..LossWatch::default() }.backlog_loss())
        };
        let Some(both) = losses(7, 9) else { return eprintln!("skipped: no /proc/net/softnet_stat") };
        assert_eq!(both, Some(loss(LossPoint::Backlog, "softnet drops, at most", Count::Known(7))));
        assert_eq!((losses(7, 0), losses(0, 9)), (Some(None), Some(None)));
    }

    #[test]
    fn counters_that_start_again_go_on() {
        let mut growth = Growth::from(100);
        for value in [105, 105, 3, 4] {
            growth.update(value);
        }
        assert_eq!(growth.total, 5 + 3 + 1);
    }

    #[test]
    fn unreadable_counters_are_unknown() {
        let losses = LossWatch::default().losses();
        assert_eq!(losses.len(), 5);
        assert!(losses.iter().all(|loss| loss.count == Count::Unknown));
        let mut watch = LossWatch::default();
        watch.select(&[("rx_packets".into(), 5)]);
        assert_eq!(watch.losses().last(), Some(&loss(LossPoint::Driver, "ethtool -S", Count::Known(0))));
    }
}
