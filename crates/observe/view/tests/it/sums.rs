//! Tables against exact sums of random traffic.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use tapline_view::{Amount, Key, Ranking, Table, TableSum};

fn key(number: u32) -> Key {
    Key::host(IpAddr::V4(Ipv4Addr::from(number)))
}

type Exact = HashMap<Key, Amount>;

/// The laws of a table: rows and others are all there was, and each row is as sure as it says.
fn assert_laws(table: &Table, exact: &Exact) {
    let mut all = Amount::default();
    exact.values().for_each(|amount| all.add(*amount));
    assert_eq!(table.sum(), all, "rows and others");
    for row in &table.rows {
        let had = exact[&row.key];
        assert!(row.amount.bytes <= had.bytes && row.amount.packets <= had.packets, "{row:?} had {had:?}");
        let bytes_at_most = row.amount.bytes + row.error.bytes;
        let packets_at_most = row.amount.packets + row.error.packets;
        assert!(had.bytes <= bytes_at_most && had.packets <= packets_at_most, "{row:?} had {had:?}");
    }
    let listed: Vec<Key> = table.rows.iter().map(|row| row.key).collect();
    for (key, had) in exact.iter().filter(|(key, _)| !listed.contains(key)) {
        let Amount { packets, bytes } = table.missing;
        assert!(
            had.bytes <= bytes && had.packets <= packets,
            "{key:?} had {had:?}, missing {:?}",
            table.missing
        );
    }
    let bytes: Vec<u64> = table.rows.iter().map(|row| row.amount.bytes).collect();
    assert!(bytes.is_sorted_by(|one, other| one >= other), "the greatest first");
}

/// Adds changes of keys that are drawn so that some are frequent and most are rare.
fn add(ranking: &mut Ranking, exact: &mut Exact, changes: &[(u32, u32)]) {
    for (draw, bytes) in changes {
        let number = if draw % 3 == 0 { draw % 20 } else { draw % 50_000 };
        let amount = Amount { packets: 1, bytes: u64::from(bytes % 1500) };
        ranking.add(key(number), amount);
        exact.entry(key(number)).or_default().add(amount);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_ranking_keeps_its_promises(changes in prop::collection::vec(any::<(u32, u32)>(), 1..6000), rows in 1usize..300) {
        let (mut ranking, mut exact) = (Ranking::new(7), Exact::new());
        add(&mut ranking, &mut exact, &changes);
        let mut table = ranking.take();
        table.cut(rows);
        assert_laws(&table, &exact);
        prop_assert_eq!(ranking.take(), Table::default(), "empty again");
    }

    #[test]
    fn sums_of_tables_keep_them(parts in prop::collection::vec(prop::collection::vec(any::<(u32, u32)>(), 1..3000), 1..5), bound in 100usize..900) {
        let (mut exact, mut sum) = (Exact::new(), TableSum::default());
        for (seed, part) in parts.iter().enumerate() {
            let mut ranking = Ranking::new(seed as u64);
            add(&mut ranking, &mut exact, part);
            let mut table = ranking.take();
            table.cut(256);
            sum.add(&table);
            sum.bound(bound);
        }
        assert_laws(&sum.finish(200), &exact);
    }
}

/// Keys with many packets of few bytes give way first; when they come back, keys with fewer packets give way to them.
#[test]
fn packets_of_keys_that_came_back_have_a_bound() {
    let (mut ranking, mut exact) = (Ranking::new(7), Exact::new());
    for (keys, packets, bytes) in
        [(0..300, 3, 1), (10_000..10_500, 1, 1000), (20_000..20_600, 1, 2000), (0..300, 1, 5000)]
    {
        for number in keys {
            for _ in 0..packets {
                let amount = Amount { packets: 1, bytes };
                ranking.add(key(number), amount);
                exact.entry(key(number)).or_default().add(amount);
            }
        }
    }
    let mut table = ranking.take();
    table.cut(256);
    assert_laws(&table, &exact);
}

/// Bounds hold for amounts that exceed a cell.
#[test]
fn great_amounts_have_bounds() {
    for (shift, packets) in [(28, 1), (33, 1), (40, 1), (3, 1 << 33)] {
        let (mut ranking, mut exact) = (Ranking::new(3), Exact::new());
        for number in 0..20_000 {
            let number = number * 7919 % 9000;
            let amount = Amount { packets, bytes: u64::from(number + 1) << shift };
            ranking.add(key(number), amount);
            exact.entry(key(number)).or_default().add(amount);
        }
        let mut table = ranking.take();
        table.cut(256);
        assert!(table.others.packets > 0);
        assert_laws(&table, &exact);
    }
}

#[test]
fn few_keys_are_exact() {
    let (mut ranking, mut exact) = (Ranking::new(1), Exact::new());
    let changes: Vec<(u32, u32)> = (0..40_000).map(|n| (3 * (n % 20), n)).collect();
    add(&mut ranking, &mut exact, &changes);
    let mut table = ranking.take();
    table.cut(256);
    assert_eq!((table.rows.len(), table.others, table.missing), (20, Amount::default(), Amount::default()));
    assert!(table.rows.iter().all(|row| row.error == Amount::default()));
    assert_laws(&table, &exact);
}
