//! Counts of events.

use tapline_ring::Account;

/// Events of rounds: rounds without any prove nothing.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) readers: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    pub(crate) overwritten: u64,
    pub(crate) index_full: u64,
    pub(crate) unread: u64,
    pub(crate) demoted: u64,
    pub(crate) in_place: u64,
    pub(crate) replayed: u64,
    pub(crate) skipped: u64,
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Sums) {
        self.readers += other.readers;
        self.kills += other.kills;
        self.stops += other.stops;
        self.offered += other.offered;
        self.delivered += other.delivered;
        self.overwritten += other.overwritten;
        self.index_full += other.index_full;
        self.unread += other.unread;
        self.demoted += other.demoted;
        self.in_place += other.in_place;
        self.replayed += other.replayed;
        self.skipped += other.skipped;
    }

    pub(crate) fn account(&mut self, account: &Account) {
        self.readers += 1;
        self.offered += account.offered;
        self.delivered += account.delivered;
        self.overwritten += account.lost.overwritten;
        self.index_full += account.lost.index_full;
        self.unread += account.lost.unread;
    }
}
