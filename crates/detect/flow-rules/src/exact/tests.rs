use std::collections::HashMap;

use super::*;

/// A rule by chance, of few hosts and ports so that many are alike.
fn rule(chance: &mut u64, kinds: u64) -> ExactRule {
    let mut below = |bound: u64| {
        *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*chance >> 33) % bound
    };
    let is_v4 = below(2) == 0;
    let mut address = || {
        let host = below(kinds) as u16;
        match is_v4 {
            true => IpAddr::from([10, 0, (host >> 8) as u8, host as u8]),
            false => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]),
        }
    };
    let (src, dst) = (address(), address());
    let (src_port, dst_port) = (below(3) as u16, below(3) as u16);
    let protocol = if below(2) == 0 { 6 } else { 17 };
    let tuple = FiveTuple { src, dst, protocol, src_port, dst_port };
    ExactRule { tuple, is_both: below(2) == 0, actions: below(4) as u16 }
}

#[test]
fn the_table_finds_what_a_map_of_directions_finds() {
    let mut chance = 1;
    let (mut table, mut map) = (ExactTable::default(), HashMap::new());
    for _ in 0..20_000 {
        let rule = rule(&mut chance, 60);
        let ways = [Some(rule.tuple), rule.is_both.then(|| rule.tuple.reversed())];
        let is_free = ways.iter().flatten().all(|way| !map.contains_key(way));
        assert_eq!(table.insert(&rule).is_ok(), is_free, "{rule:?}");
        if is_free {
            map.extend(ways.iter().flatten().map(|way| (*way, rule.actions)));
        }
    }
    assert!(table.len() > 5_000);
    let mut probes = Probes::default();
    for _ in 0..400 {
        let asked: Vec<FiveTuple> = (0..256).map(|_| rule(&mut chance, 70).tuple).collect();
        probes.clear();
        let flows = asked.iter().filter_map(Flow::of).enumerate();
        flows.for_each(|(packet, flow)| probes.add(packet, flow));
        let mut answers = Vec::new();
        table.find_all(&mut probes, |packet, number| {
            answers.push((packet, number.map(|number| table.actions(number))))
        });
        let expected: Vec<_> = asked.iter().map(|tuple| map.get(tuple).copied()).enumerate().collect();
        assert_eq!(answers, expected);
    }
    for number in table.numbers() {
        let rule = table.rule(number);
        assert_eq!(table.same_in(number, &table), Some(number), "{rule:?}");
    }
}

#[test]
fn a_million_rules_have_the_documented_size() {
    let mut table = ExactTable::default();
    for number in 0..1_000_000_u32 {
        let src = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        let tuple =
            FiveTuple { src, dst: IpAddr::from([192, 0, 2, 1]), protocol: 6, src_port: 9, dst_port: 80 };
        table.insert(&ExactRule { tuple, is_both: true, actions: 0 }).expect("each is new");
    }
    table.shrink();
    let bytes = table.memory() / table.len();
    assert!((52..=64).contains(&bytes), "{bytes} bytes a rule");
}
