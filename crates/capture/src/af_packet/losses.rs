//! Losses before the ring: what the NIC and its driver say of themselves, since the capture began.
//!
//! ```text
//! NIC     rtnetlink  rx_dropped rx_missed_errors rx_fifo_errors rx_over_errors
//! driver  ethtool -S every counter whose name speaks of lost received packets; the names are each driver's own
//! ```
//!
//! Neither knows of filters, so packets that we did not want are among them; and `rx_dropped` also counts frames of
//! protocols without a receiver on this host, which we did see. So they stand beside the account and are not part of
//! its sums.

use tapline_source::{Count, Loss, LossPoint};
use tapline_sys::{LinkControl, LinkStatistics, RouteSocket, counts_receive_loss};

/// Counters of one interface, as sums of differences, so that an interface made anew does not count backward.
#[derive(Debug, Default)]
pub(crate) struct LossWatch {
    nic: Option<[Growth; 4]>,
    driver: Option<Vec<(String, Growth)>>,
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
    /// Starts at what the counters say now.
    pub(crate) fn start(
        name: &str,
        if_index: u32,
        route: &mut RouteSocket,
        control: &mut LinkControl,
    ) -> LossWatch {
        let nic = nic_counters(if_index, route).map(|values| values.map(Growth::from));
        let mut watch = LossWatch { nic, ..LossWatch::default() };
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

    fn select(&mut self, all: &[(String, u64)]) {
        let wanted = all.iter().enumerate().filter(|(_, (name, _))| counts_receive_loss(name));
        self.positions = wanted.clone().map(|(position, _)| position).collect();
        self.driver = Some(wanted.map(|(_, (name, value))| (name.clone(), Growth::from(*value))).collect());
    }
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
