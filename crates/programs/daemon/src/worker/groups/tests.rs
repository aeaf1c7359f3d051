use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tapline_packet::Selection;
use tapline_ring::StartPosition;
use tapline_testkit::frame_batches::FrameBatches;
use tapline_testkit::traffic::Traffic;

use super::super::readers::Readers;
use super::super::readers::tests::{join, view};
use super::*;
use crate::budget::TIME_OF_ALL_MS;

fn request(by: ShareBy) -> GroupRequest {
    GroupRequest { name: "ids".to_owned(), by, priority: 0 }
}

fn purses() -> Purses {
    Purses::new(Duration::from_secs(3600), TIME_OF_ALL_MS, 0)
}

/// Readers of these numbers in one group, and their descriptors.
fn group_of(numbers: &[u64], by: ShareBy) -> (Readers, Vec<tapline_ring::ReaderParts>) {
    group_paid_by(None, numbers, by)
}

fn group_paid_by(
    payer: Option<Payer>,
    numbers: &[u64],
    by: ShareBy,
) -> (Readers, Vec<tapline_ring::ReaderParts>) {
    let mut readers = Readers::new();
    let view = readers.add_view(view(65_535), None, None);
    let join = |number: &u64| join(&mut readers, *number, (view, StartPosition::Newest, payer));
    let parts = numbers.iter().map(join).collect();
    readers.list.iter_mut().for_each(|reader| reader.group = Some(request(by)));
    readers.rebuild_filter_index();
    (readers, parts)
}

/// The reader of each packet that some reader of `wants` wants.
fn owners(
    readers: &mut Readers,
    pool: &FrameBatches,
    wants: &dyn Fn(u64, usize) -> bool,
) -> Vec<Option<u64>> {
    owners_by(readers, pool, wants, &mut purses())
}

fn owners_by(
    readers: &mut Readers,
    pool: &FrameBatches,
    wants: &dyn Fn(u64, usize) -> bool,
    purses: &mut Purses,
) -> Vec<Option<u64>> {
    let mut owners = Vec::new();
    for batch in pool.batches() {
        for reader in &mut readers.list {
            let mut wanted = Selection::none();
            let is_wanted = |index: &usize| wants(reader.number, owners.len() + index);
            (0..batch.len()).filter(is_wanted).for_each(|index| wanted.push(index));
            reader.wanted = wanted;
        }
        let Readers { groups, list, .. } = readers;
        groups.share(&batch, LinkType::ETHERNET, list, purses);
        for index in 0..batch.len() {
            let has = |reader: &&Reader| reader.wanted.iter().any(|wanted| wanted == index);
            let having: Vec<u64> = list.iter().filter(has).map(|reader| reader.number).collect();
            assert!(having.len() <= 1, "{having:?} have packet {index}");
            owners.push(having.first().copied());
        }
    }
    owners
}

fn pool() -> FrameBatches {
    FrameBatches::new(&Traffic::new(9).take(6000).map(|(_, frame)| frame).collect::<Vec<_>>())
}

fn flows(pool: &FrameBatches) -> Vec<u64> {
    let hash = |batch: &Batch<'_>, index| {
        let packet = batch.packet(index);
        Headers::parse(LinkType::ETHERNET, packet).flow_hash(packet.data, 77)
    };
    pool.batches()
        .flat_map(|batch| (0..batch.len()).map(|index| hash(&batch, index)).collect::<Vec<_>>())
        .collect()
}

#[test]
fn each_flow_has_one_reader_for_its_packets() {
    let pool = pool();
    let (mut readers, _parts) = group_of(&[11, 22, 33], ShareBy::Flow);
    let owners = owners(&mut readers, &pool, &|_, _| true);
    let mut by_flow: HashMap<u64, HashSet<u64>> = HashMap::new();
    for (flow, owner) in flows(&pool).into_iter().zip(&owners) {
        by_flow.entry(flow).or_default().insert(owner.expect("every packet has a reader"));
    }
    assert!(by_flow.values().all(|owners| owners.len() == 1) && by_flow.len() > 30, "{}", by_flow.len());
    for reader in [11, 22, 33] {
        let flows = by_flow.values().filter(|owners| owners.contains(&reader)).count();
        assert!(flows * 6 > by_flow.len(), "reader {reader} has {flows} of {} flows", by_flow.len());
    }
}

#[test]
fn joining_and_leaving_move_no_flow_between_others() {
    let pool = pool();
    for by in [ShareBy::Flow, ShareBy::Host, ShareBy::Vlan, ShareBy::Inner] {
        let (mut three, _parts) = group_of(&[11, 22, 33], by);
        let (mut four, _parts) = group_of(&[11, 22, 33, 44], by);
        let before = owners(&mut three, &pool, &|_, _| true);
        let after = owners(&mut four, &pool, &|_, _| true);
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
        let moved: Vec<_> = moved.collect();
        assert!(moved.iter().all(|(_, after)| **after == Some(44)), "{by:?}");
        assert!(!moved.is_empty() && moved.len() < before.len() * 2 / 3, "{by:?}: {}", moved.len());
        // Back to three by a departure.
        let at = four.position(44).expect("it is here");
        four.remove(at);
        assert_eq!(owners(&mut four, &pool, &|_, _| true), before, "{by:?}");
    }
}

#[test]
fn a_packet_goes_to_a_reader_that_wants_it() {
    let pool = pool();
    for by in [ShareBy::Flow, ShareBy::Host, ShareBy::Vlan, ShareBy::Inner, ShareBy::Turn, ShareBy::First] {
        let (mut readers, _parts) = group_of(&[11, 22, 33], by);
        let wants = |reader: u64, packet: usize| match packet % 4 {
            0 => reader == 22,
            1 => reader != 22,
            2 => false,
            _ => true,
        };
        for (packet, owner) in owners(&mut readers, &pool, &wants).into_iter().enumerate() {
            match owner {
                Some(reader) => assert!(wants(reader, packet), "{by:?}: {packet} to {reader}"),
                None => assert_eq!(packet % 4, 2, "{by:?}"),
            }
        }
    }
}

#[test]
fn the_first_by_priority_gets_what_it_wants() {
    let pool = pool();
    let (mut readers, _parts) = group_of(&[11, 22, 33], ShareBy::First);
    for (reader, priority) in readers.list.iter_mut().zip([20, 10, 20]) {
        reader.group = Some(GroupRequest { priority, ..request(ShareBy::First) });
    }
    readers.rebuild_filter_index();
    let wants = |reader: u64, packet: usize| reader != 22 || packet.is_multiple_of(2);
    for (packet, owner) in owners(&mut readers, &pool, &wants).into_iter().enumerate() {
        assert_eq!(owner, Some(if packet.is_multiple_of(2) { 22 } else { 11 }), "{packet}");
    }
}

#[test]
fn in_turn_all_have_the_same_number() {
    let pool = pool();
    let (mut readers, _parts) = group_of(&[11, 22, 33], ShareBy::Turn);
    let owners = owners(&mut readers, &pool, &|_, _| true);
    for reader in [11, 22, 33] {
        assert_eq!(owners.iter().filter(|owner| **owner == Some(reader)).count(), owners.len() / 3);
    }
}

/// Else a user with many groups takes all of the thread that captures, and packets are lost.
#[test]
fn a_group_is_shared_at_the_cost_of_its_user() {
    let pool = pool();
    for (payer, is_free) in [(Some(Payer { uid: 7, time_ms: 200 }), false), (None, true)] {
        let (mut readers, _parts) = group_paid_by(payer, &[11, 22, 33], ShareBy::Flow);
        let mut purses = purses();
        let owners = owners_by(&mut readers, &pool, &|_, _| true, &mut purses);
        assert!(owners.iter().all(Option::is_some));
        assert_eq!(purses.spent_ns(7) == 0, is_free, "{payer:?}: {} ns", purses.spent_ns(7));
    }
}

#[test]
fn groups_refuse_other_ways_and_too_many() {
    let numbers: Vec<u64> = (1..=GROUP_MEMBERS_MAX as u64).collect();
    let (few, _parts) = group_of(&numbers[..2], ShareBy::Host);
    let refusal = few.groups.admit(&request(ShareBy::Flow), None, 0).expect_err("another way");
    assert!(refusal.contains("?by=host"), "{refusal}");
    assert!(few.groups.admit(&request(ShareBy::Host), None, 0).is_ok());
    // Another user's, or another buffer's, is another group.
    assert!(few.groups.admit(&request(ShareBy::Flow), Some(1000), 0).is_ok());
    assert!(few.groups.admit(&request(ShareBy::Flow), None, 1).is_ok());
}

#[test]
fn the_first_reader_alone_gets_a_packet() {
    let pool = pool();
    let mut readers = Readers::new();
    let view = readers.add_view(view(65_535), None, None);
    let _parts: Vec<_> =
        [11, 22, 33, 44].map(|number| join(&mut readers, number, (view, StartPosition::Newest, None))).into();
    for (reader, precedence) in readers.list.iter_mut().zip([Some(5), Some(2), Some(5), None]) {
        reader.precedence = precedence;
    }
    for batch in pool.batches() {
        for reader in &mut readers.list {
            reader.wanted = Selection::none();
            let wants = |index: &usize| reader.number != 22 || index.is_multiple_of(3);
            (0..batch.len()).filter(wants).for_each(|index| reader.wanted.push(index));
        }
        let Readers { groups, list, .. } = &mut readers;
        groups.give_to_first(batch.len(), list);
        let got = |at: usize| list[at].wanted.iter().collect::<Vec<_>>();
        let thirds: Vec<usize> = (0..batch.len()).filter(|index| index.is_multiple_of(3)).collect();
        let others: Vec<usize> = (0..batch.len()).filter(|index| !index.is_multiple_of(3)).collect();
        assert_eq!((got(1), got(0)), (thirds, others), "the least number, then the one that came first");
        assert_eq!((got(2).len(), got(3).len()), (0, batch.len()), "a recording gets its packets besides");
    }
}

/// A whole packet and a packet in three fragments of each of 30 flows go to one reader.
#[test]
fn fragments_have_the_reader_of_their_flow() {
    use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Ipv4, Udp, fragments_v4};
    let (a, b) = (Host::number(1), Host::number(2));
    let ips = IpPair::between(&a, &b, IpVersion::V4);
    let frames: Vec<Vec<u8>> = (0..30_u16)
        .flat_map(|flow| {
            let udp = Udp { src: 1000 + flow, dst: 53 };
            let header = Ipv4 { id: 7 + flow, dont_fragment: false, ..Ipv4::new(a.v4, b.v4, 17) };
            let parts = fragments_v4(&header, &udp.datagram(ips, &[7; 2000]), 800);
            assert_eq!(parts.len(), 3);
            [vec![udp.packet(ips, &[1])], parts].concat()
        })
        .map(|packet| Ethernet::between(&a, &b).ip(&packet))
        .collect();
    let pool = FrameBatches::new(&frames);
    let (mut readers, _parts) = group_of(&[11, 22, 33], ShareBy::Flow);
    let owners = owners(&mut readers, &pool, &|_, _| true);
    assert!(owners.chunks(4).all(|flow| flow.iter().all(|owner| *owner == flow[0])), "{owners:?}");
    assert_eq!(owners.iter().collect::<HashSet<_>>().len(), 3);
    assert_eq!(readers.groups.fragments_apart, 0);
}

#[test]
fn a_reader_of_an_address_has_all_its_packets() {
    let pool = pool();
    let (mut readers, _parts) = group_of(&[11, 22, 33], ShareBy::Address);
    let mut by_host: HashMap<std::net::IpAddr, Vec<HashSet<u64>>> = HashMap::new();
    for batch in pool.batches() {
        for reader in &mut readers.list {
            reader.wanted = Selection::none();
            (0..batch.len()).for_each(|index| reader.wanted.push(index));
        }
        let Readers { groups, list, .. } = &mut readers;
        groups.share(&batch, LinkType::ETHERNET, list, &mut purses());
        for index in 0..batch.len() {
            let has = |reader: &&Reader| reader.wanted.iter().any(|wanted| wanted == index);
            let having: HashSet<u64> = list.iter().filter(has).map(|reader| reader.number).collect();
            assert!((1..=2).contains(&having.len()), "{having:?}");
            let packet = batch.packet(index);
            if let Some((src, dst)) = Headers::parse(LinkType::ETHERNET, packet).addresses(packet.data) {
                [src, dst].into_iter().for_each(|host| by_host.entry(host).or_default().push(having.clone()));
            }
        }
    }
    for (host, packets) in by_host {
        let all = packets.iter().skip(1).fold(packets[0].clone(), |all, having| &all & having);
        assert!(!all.is_empty(), "{host}: no reader has all of {packets:?}");
    }
}
