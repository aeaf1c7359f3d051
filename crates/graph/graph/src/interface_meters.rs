//! Accounts of interfaces in the meters, for other processes to read: docs/format/meters.md, "Counters of interfaces".

use tapline_meters::{Extra, Meter, Meters, UNKNOWN};
use tapline_source::{Count, InterfaceAccount, Loss, LossPoint};

/// Interfaces that have counters of their own; those of all others are summed, so that a file with thousands of them
/// leaves room for stages.
const INTERFACES_MAX: usize = 32;
/// Name of the sum.
const OTHERS: &str = "(others)";

/// The meters of a worker's interfaces.
#[derive(Default)]
pub(crate) struct InterfaceMeters {
    shown: Vec<Shown>,
}

/// An interface, and those of its counters that were shown before.
struct Shown {
    name: String,
    meter: Meter,
    extras: Vec<(&'static str, Extra)>,
    /// Whether a row has these counters already, of those that are being shown.
    is_taken: bool,
}

impl InterfaceMeters {
    /// Shows the accounts, in the order of the interfaces.
    pub(crate) fn show(&mut self, meters: &Meters, worker: u16, accounts: &[InterfaceAccount]) {
        self.shown.iter_mut().for_each(|shown| shown.is_taken = false);
        let (own, others) = accounts.split_at(accounts.len().min(INTERFACES_MAX));
        for account in own {
            self.take(meters, worker, &account.name, class(account)).show(&row(account));
        }
        if let Some(class) = others.first().map(class) {
            let sum = others.iter().map(counters).reduce(|sum, more| plus(&sum, &more)).unwrap_or_default();
            self.take(meters, worker, OTHERS, class).show(&sum);
        }
    }

    /// The counters of the next row of this name. Rows of one name keep their order, but not their places: those of
    /// interfaces that could not be opened come last, and make room for new ones.
    fn take(&mut self, meters: &Meters, worker: u16, name: &str, class: &str) -> &mut Shown {
        let known = self.shown.iter().position(|shown| !shown.is_taken && shown.name == name);
        let at = known.unwrap_or_else(|| {
            let meter = meters.interface(name, class, worker);
            self.shown.push(Shown { name: name.to_owned(), meter, extras: Vec::new(), is_taken: false });
            self.shown.len() - 1
        });
        self.shown[at].is_taken = true;
        &mut self.shown[at]
    }
}

impl Shown {
    fn show(&mut self, counters: &[(&'static str, Count)]) {
        for (name, count) in counters {
            self.set(name, count.known().unwrap_or(UNKNOWN));
        }
    }

    fn set(&mut self, name: &'static str, value: u64) {
        let known = self.extras.iter().position(|(known, _)| *known == name);
        let at = known.or_else(|| {
            self.extras.push((name, self.meter.extra(name)?));
            Some(self.extras.len() - 1)
        });
        if let Some(at) = at {
            self.extras[at].1.set(value);
        }
    }
}

fn class(account: &InterfaceAccount) -> &'static str {
    match account {
        InterfaceAccount { tap: Some(_), .. } => "tap",
        InterfaceAccount { xdp: Some(_), .. } => "xdp",
        InterfaceAccount { ring: Some(_), .. } => "live",
        InterfaceAccount { is_generated: true, .. } => "generated",
        _ => "file",
    }
}

/// The counters of an interface in a row of its own. One that could not be captured has no ring that counted 0.
fn row(account: &InterfaceAccount) -> Vec<(&'static str, Count)> {
    let mut counters = counters(account);
    let of_ring = counters.iter_mut().filter(|(name, _)| account.is_uncaptured() && *name != "delivered");
    of_ring.for_each(|(_, count)| *count = Count::Unknown);
    counters
}

/// The counters that apply to an interface: eight at most, as a slot has no room for more.
fn counters(account: &InterfaceAccount) -> Vec<(&'static str, Count)> {
    let lost = |point| lost_at(account, point);
    let delivered = ("delivered", Count::Known(account.delivered));
    match (account.tap, account.ring) {
        (Some(tap), _) => vec![
            delivered,
            ("received", Count::Known(tap.offered)),
            ("unread", Count::Known(tap.unread)),
            ("lost_index_full", Count::Known(tap.index_full)),
            ("lost_overwritten", Count::Known(tap.overwritten)),
            ("lost_damaged", Count::Known(tap.damaged)),
            ("lost_daemon", lost(LossPoint::Daemon)),
        ],
        (None, Some(ring)) => vec![
            delivered,
            ("received", Count::Known(ring.received)),
            ("unread", Count::Known(ring.unread)),
            ("lost_ring", Count::Known(ring.dropped)),
            ("freezes", Count::Known(ring.freezes)),
            ("refused", account.kernel_filtered),
            ("lost_nic_max", lost(LossPoint::Nic)),
            ("lost_driver_max", lost(LossPoint::Driver)),
        ],
        (None, None) if account.losses.is_empty() => vec![delivered],
        (None, None) if account.losses.iter().any(|loss| loss.place == LossPoint::Topic) => {
            vec![delivered, ("lost_topic", lost(LossPoint::Topic)), ("lost_file", lost(LossPoint::File))]
        }
        (None, None) => vec![delivered, ("lost_file", lost(LossPoint::File))],
    }
}

/// Packets lost at a point. Without `rx_dropped`, in which there are also frames that a capture got. Unknown for an
/// interface that could not be captured.
fn lost_at(account: &InterfaceAccount, point: LossPoint) -> Count {
    let is_there = |loss: &&Loss| loss.place == point || loss.place == LossPoint::Uncaptured;
    let losses = account.losses.iter().filter(is_there).filter(|loss| !loss.counts_unwanted_frames());
    losses.fold(Count::Known(0), |sum, loss| sum.plus(loss.count))
}

/// The sum by name.
fn plus(sum: &[(&'static str, Count)], more: &[(&'static str, Count)]) -> Vec<(&'static str, Count)> {
    let mut all = sum.to_vec();
    for (name, count) in more {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = sum.plus(*count),
            None => all.push((name, *count)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use tapline_meters::{EXTRAS_MAX, Kind};
    use tapline_source::{RingAccount, TapAccount};

    use super::*;

    fn live(name: &str, lost: u64) -> InterfaceAccount {
        let loss = |place, counter: &str, count| Loss { place, counter: counter.to_owned(), count };
        InterfaceAccount {
            losses: vec![
                loss(LossPoint::Nic, "rx_dropped", Count::Known(1000)),
                loss(LossPoint::Nic, "rx_missed_errors", Count::Known(3)),
                loss(LossPoint::Driver, "ethtool -S", Count::Unknown),
            ],
            kernel_filtered: Count::Unknown,
            ring: Some(RingAccount { received: 10 + lost, dropped: lost, freezes: 1, unread: 2 }),
            ..InterfaceAccount::of_file(name, 8)
        }
    }

    #[test]
    fn an_account_is_shown_place_by_place() {
        let meters = Meters::private();
        let mut shown = InterfaceMeters::default();
        shown.show(&meters, 0, &[live("eth0", 4)]);
        shown.show(&meters, 0, &[live("eth0", 5)]);
        let [snapshot] = &meters.snapshot()[..] else { panic!("one slot") };
        assert_eq!((snapshot.kind, &*snapshot.name, &*snapshot.class), (Kind::Interface, "eth0", "live"));
        let of =
            |name: &str| snapshot.extras.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        assert_eq!((of("received"), of("lost_ring"), of("delivered")), (Some(15), Some(5), Some(8)));
        assert_eq!(
            (of("lost_nic_max"), of("lost_driver_max"), of("refused")),
            (Some(3), Some(UNKNOWN), Some(UNKNOWN))
        );
        assert_eq!(of("lost_file"), None);
    }

    #[test]
    fn losses_of_an_uncaptured_interface_are_unknown() {
        let counter = "no socket".to_owned();
        let loss = Loss { place: LossPoint::Uncaptured, counter, count: Count::Unknown };
        let account = InterfaceAccount { losses: vec![loss], ..live("v0", 0) };
        assert_eq!(lost_at(&account, LossPoint::Nic), Count::Unknown);
        assert_eq!(lost_at(&live("v0", 0), LossPoint::Nic), Count::Known(3));
        let unknown = |account: &InterfaceAccount| {
            row(account).into_iter().filter(|(_, count)| *count == Count::Unknown).count()
        };
        assert_eq!(unknown(&account), 3, "packets of it came: it was captured later");
        let ring = Some(RingAccount::default());
        assert_eq!(unknown(&InterfaceAccount { ring, ..account }), 7, "all but packets lent");
    }

    #[test]
    fn rows_behind_the_interfaces_keep_their_counters() {
        let meters = Meters::private();
        let mut shown = InterfaceMeters::default();
        for names in [&["a", "later"][..], &["a", "b", "later"], &["a", "b", "later", "c"]] {
            let lost = |name: &str| live(name, u64::from(name.as_bytes()[0]));
            shown.show(&meters, 0, &names.iter().map(|name| lost(name)).collect::<Vec<_>>());
        }
        let lost = |extras: &[(String, u64)]| {
            extras.iter().find(|(name, _)| name == "lost_ring").map(|(_, count)| *count)
        };
        let all: Vec<_> = meters.snapshot().into_iter().map(|slot| (slot.name, lost(&slot.extras))).collect();
        let row = |name: &str| (name.to_owned(), Some(u64::from(name.as_bytes()[0])));
        assert_eq!(all, ["a", "later", "b", "c"].map(row));
    }

    /// Such as those of an interface that came back with another link type.
    #[test]
    fn rows_of_one_name_have_counters_of_their_own() {
        let meters = Meters::private();
        let mut shown = InterfaceMeters::default();
        for rows in [
            &[("a", 1), ("x", 9)][..],
            &[("a", 1), ("a", 2), ("x", 9)],
            &[("a", 3), ("b", 4), ("a", 5), ("x", 9)],
        ] {
            shown.show(&meters, 0, &rows.iter().map(|(name, lost)| live(name, *lost)).collect::<Vec<_>>());
        }
        let lost = |extras: &[(String, u64)]| extras.iter().find(|(name, _)| name == "lost_ring").unwrap().1;
        let all: Vec<_> = meters.snapshot().into_iter().map(|slot| (slot.name, lost(&slot.extras))).collect();
        assert_eq!(all, [("a", 3), ("x", 9), ("a", 5), ("b", 4)].map(|(name, lost)| (name.to_owned(), lost)));
    }

    #[test]
    fn each_kind_of_interface_has_room() {
        let tap = InterfaceAccount { ring: None, tap: Some(TapAccount::default()), ..live("tap", 1) };
        let file = InterfaceAccount { ring: None, ..live("file", 1) };
        for account in [live("eth0", 1), tap, file] {
            let counters = counters(&account);
            assert!(counters.len() <= EXTRAS_MAX && counters.iter().all(|(name, _)| name.len() <= 16));
        }
    }

    #[test]
    fn interfaces_without_room_are_summed() {
        let meters = Meters::private();
        let accounts: Vec<_> =
            (0..INTERFACES_MAX + 3).map(|at| live(&format!("eth{at}"), at as u64)).collect();
        InterfaceMeters::default().show(&meters, 0, &accounts);
        let slots = meters.snapshot();
        assert_eq!(slots.len(), INTERFACES_MAX + 1);
        let last = slots.last().expect("the sum");
        assert_eq!(last.name, OTHERS);
        assert!(last.extras.contains(&("lost_ring".to_owned(), 32 + 33 + 34)), "{:?}", last.extras);
        assert!(last.extras.contains(&("refused".to_owned(), UNKNOWN)));
    }
}
