//! Later fragments follow their first: generated datagrams, in and out of order, against a model.
//!
//! ```text
//! datagram --cut--> fragments --shuffled, spread over batches--> set --> Matches, reports
//! model: each fragment matches what its datagram's first matches, at once or by report
//! ```

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

use tapline_filter::Options;
use tapline_filterset::{
    Filter, FilterSet, FragmentCounts, FragmentLimits, FragmentOutcome, MatchPolicy, Matches,
};
use tapline_packet::{Batch, LinkType, Meta, Record, Selection, Timestamp};
use tapline_testkit::frames::{
    Ethernet, Host, IpPair, Ipv4, Ipv6, Udp, destination_options, fragment_header, fragments_v4, vlan,
};
use tapline_testkit::random::Random;

const SECOND_NS: i64 = 1_000_000_000;

const TEXTS: [&str; 5] = ["udp port 53", "port 80", "ip host 192.0.2.1", "not port 53", "ip6 and udp"];

/// A frame, the datagram that it belongs to, and whether it is its first fragment.
#[derive(Clone, Debug)]
struct Piece {
    frame: Vec<u8>,
    datagram: usize,
    is_first: bool,
}

fn link() -> Ethernet {
    Ethernet::between(&Host::number(1), &Host::number(2))
}

/// The fragments of one UDP datagram, in order.
fn datagram(number: usize, id: u32, port: u16, is_v6: bool, random: &mut Random) -> Vec<Piece> {
    let src = Ipv4Addr::new(192, 0, 2, 1 + number as u8 % 3);
    let (dst, src6, dst6) = (Ipv4Addr::new(192, 0, 2, 9), Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
    let pair = if is_v6 { IpPair::V6(src6, dst6) } else { IpPair::V4(src, dst) };
    let len = random.between(40..=200) as usize;
    let udp = Udp { src: 1024, dst: port }.datagram(pair, &random.bytes(len));
    let packets = if is_v6 {
        let last = udp.len().div_ceil(24) - 1;
        let fragment = |(at, part): (usize, &[u8])| {
            let inner = fragment_header(17, id, 3 * at as u16, at != last, part);
            // Some have another extension header before.
            let (next, rest) = if at % 2 == 0 { (44, inner) } else { (60, destination_options(44, &inner)) };
            Ipv6::new(src6, dst6, next).packet(&rest)
        };
        udp.chunks(24).enumerate().map(fragment).collect()
    } else {
        fragments_v4(&Ipv4 { id: id as u16, ..Ipv4::new(src, dst, 17) }, &udp, 24)
    };
    let piece = |(at, packet): (usize, Vec<u8>)| {
        let frame = link().ip(&packet);
        let frame = if number % 5 == 4 { vlan(&frame, 0x8100, 7) } else { frame };
        Piece { frame, datagram: number, is_first: at == 0 }
    };
    packets.into_iter().enumerate().map(piece).collect()
}

struct Watch {
    set: FilterSet,
    matches: Matches,
    now: Timestamp,
}

/// The answer for a packet: its filters, and its ticket.
type Answer = (Vec<u32>, Option<u64>);

impl Watch {
    fn new(limits: FragmentLimits) -> Watch {
        let mut set = FilterSet::new(MatchPolicy::All);
        for text in TEXTS {
            set.insert(Filter::compile(text, &Options::default()).unwrap(), 0);
        }
        set.follow_fragments(LinkType::ETHERNET, Some(limits)).unwrap();
        Watch { set, matches: Matches::new(), now: Timestamp::from_parts(1000, 0) }
    }

    fn pass(&mut self, pieces: &[Piece]) -> Vec<Answer> {
        let (mut base, mut records) = (Vec::new(), Vec::new());
        for piece in pieces {
            let cap_len = piece.frame.len() as u32;
            let meta = Meta { wire_len: cap_len, timestamp: self.now, ..Meta::default() };
            records.push(Record { offset: base.len(), cap_len, options_len: 0, meta });
            base.extend_from_slice(&piece.frame);
        }
        let mut selection = Selection::none();
        selection.select_all(records.len());
        self.set.classify(&Batch::new(&base, &records), &selection, &mut self.matches);
        let answer = |at| (self.matches.of(at).to_vec(), self.matches.ticket(at));
        (0..pieces.len()).map(answer).collect()
    }

    fn reports(&self) -> Vec<(u64, Option<Vec<u32>>)> {
        let report = |report: tapline_filterset::LateReport<'_>| match report.outcome {
            FragmentOutcome::Follows(filters) => (report.ticket, Some(filters.to_vec())),
            FragmentOutcome::Unanswered => (report.ticket, None),
        };
        self.matches.late_reports().map(report).collect()
    }

    fn counts(&self) -> FragmentCounts {
        self.set.fragment_counts()
    }
}

/// The filters that each datagram's first fragment matches by itself.
fn model(pieces: &[Piece]) -> HashMap<usize, Vec<u32>> {
    let mut alone = Watch::new(FragmentLimits::default());
    alone.set.follow_fragments(LinkType::ETHERNET, None).unwrap();
    let firsts = pieces.iter().filter(|piece| piece.is_first);
    firsts.map(|piece| (piece.datagram, alone.pass(std::slice::from_ref(piece))[0].0.clone())).collect()
}

#[test]
fn ordered_fragments_have_filters_of_the_first() {
    let mut random = Random::new(1);
    let pieces: Vec<Piece> = (0..60)
        .flat_map(|at| datagram(at, at as u32, [53, 80, 99][at % 3], at % 2 == 0, &mut random))
        .collect();
    let expected = model(&pieces);
    let mut watch = Watch::new(FragmentLimits::default());
    for batch in pieces.chunks(100) {
        for (piece, (found, ticket)) in batch.iter().zip(watch.pass(batch)) {
            assert_eq!((&found, ticket), (&expected[&piece.datagram], None));
        }
        assert!(watch.reports().is_empty());
    }
    let counts = watch.counts();
    assert_eq!((counts.first, counts.followed, counts.early), (60, pieces.len() as u64 - 60, 0));
    assert!(
        expected.values().any(|found| found.contains(&0))
            && expected.values().any(|found| found.contains(&4))
    );
}

#[test]
fn fragments_in_any_order_are_answered() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut pieces: Vec<Piece> = (0..40)
            .flat_map(|at| datagram(at, at as u32, [53, 80, 99][at % 3], at % 2 == 0, &mut random))
            .collect();
        // Shuffled as a network does it, or wholly.
        let reach = if seed % 2 == 0 { 6 } else { pieces.len() as u64 };
        for at in 0..pieces.len() {
            let other = (at as u64 + random.below(reach)).min(pieces.len() as u64 - 1);
            pieces.swap(at, other as usize);
        }
        let expected = model(&pieces);
        let mut watch = Watch::new(FragmentLimits::default());
        let (mut waiting, mut early) = (BTreeMap::new(), 0);
        for batch in pieces.chunks(1 + random.below(60) as usize) {
            let answers = watch.pass(batch);
            for (ticket, found) in watch.reports() {
                let datagram: usize =
                    waiting.remove(&ticket).expect("a ticket that was given and not answered");
                assert_eq!(found.as_ref(), Some(&expected[&datagram]));
            }
            for (piece, (found, ticket)) in batch.iter().zip(answers) {
                match ticket {
                    None => assert_eq!(found, expected[&piece.datagram]),
                    Some(ticket) => {
                        early += 1;
                        assert!(!piece.is_first && waiting.insert(ticket, piece.datagram).is_none());
                    }
                }
            }
        }
        assert!(waiting.is_empty());
        let counts = watch.counts();
        assert_eq!(counts.early, counts.answered);
        assert!(counts.early >= early && counts.followed + counts.early + 40 == pieces.len() as u64);
    }
}

#[test]
fn reused_identifications_are_new_datagrams() {
    let mut random = Random::new(3);
    let one = datagram(0, 7, 53, false, &mut random);
    let two = datagram(0, 7, 80, false, &mut random);
    // The same identification under other addresses, in between.
    let other = datagram(1, 7, 99, false, &mut random);
    let mut pieces = Vec::new();
    for at in 0..3 {
        pieces.extend([one[at].clone(), other[at].clone()]);
    }
    pieces.extend(two[..3].to_vec());
    let mut watch = Watch::new(FragmentLimits::default());
    let answers: Vec<Vec<u32>> = watch.pass(&pieces).into_iter().map(|(found, _)| found).collect();
    let (dns, web, neither) = (vec![0, 2], vec![1, 2, 3], vec![3]);
    let expected = [&dns, &neither, &dns, &neither, &dns, &neither, &web, &web, &web];
    assert_eq!(answers.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn fragments_without_a_first_expire_by_packet_time() {
    let mut random = Random::new(4);
    let late = datagram(0, 1, 53, false, &mut random);
    let other = datagram(1, 2, 80, false, &mut random);
    let mut watch =
        Watch::new(FragmentLimits { timeout_ns: 5 * SECOND_NS as u64, ..FragmentLimits::default() });
    let tickets: Vec<Option<u64>> = watch.pass(&late[1..3]).into_iter().map(|(_, ticket)| ticket).collect();
    assert_eq!(tickets, [Some(0), Some(1)]);
    watch.now = watch.now.plus_nanos(5 * SECOND_NS);
    watch.pass(&other[..1]);
    assert!(watch.reports().is_empty());
    watch.now = watch.now.plus_nanos(1);
    watch.pass(&other[1..2]);
    assert_eq!(watch.reports(), [(0, None), (1, None)]);
    // The first comes too late for them; a fragment that comes after it follows it.
    let answers = watch.pass(&[late[0].clone(), late[1].clone()]);
    assert_eq!(answers, [(vec![0, 2], None), (vec![0, 2], None)]);
    // And is forgotten in its turn. Time that goes back does not matter.
    watch.now = watch.now.plus_nanos(6 * SECOND_NS);
    watch.pass(&other[..1]);
    watch.now = watch.now.plus_nanos(-20 * SECOND_NS);
    assert_eq!(watch.pass(&late[1..2])[0].1, Some(2));
    let counts = watch.counts();
    assert_eq!((counts.early, counts.answered, counts.unanswered), (3, 0, 2));
    assert_eq!((counts.expired, counts.evicted), (3, 0));
}

#[test]
fn memory_is_bounded_and_evictions_are_counted() {
    let mut random = Random::new(5);
    let limits = FragmentLimits { datagrams_max: 8, early_max: 5, ..FragmentLimits::default() };
    let mut watch = Watch::new(limits);
    let all: Vec<Vec<Piece>> =
        (0..500).map(|at| datagram(at, at as u32, 53, at % 2 == 0, &mut random)).collect();
    let mut given = 0;
    for datagram in &all {
        given += watch.pass(&datagram[1..2]).iter().filter(|(_, ticket)| ticket.is_some()).count() as u64;
        // Used again and again: each first is a datagram of its own.
        watch.pass(&all[0][..1]);
    }
    let counts = watch.counts();
    assert_eq!(counts.early, 500);
    assert_eq!(counts.early, counts.no_ticket + given);
    assert!(counts.no_ticket > 0 && given >= 5, "{counts:?}");
    let firsts: Vec<Piece> = all.iter().map(|datagram| datagram[0].clone()).collect();
    firsts.chunks(100).for_each(|firsts| drop(watch.pass(firsts)));
    let counts = watch.counts();
    assert!(counts.evicted > 400, "{counts:?}");
    assert_eq!(counts.early, counts.answered + counts.unanswered + counts.no_ticket);
}

#[test]
fn a_filter_that_was_removed_is_followed_no_longer() {
    let mut random = Random::new(6);
    let pieces = datagram(0, 1, 53, false, &mut random);
    let mut watch = Watch::new(FragmentLimits::default());
    assert_eq!(watch.pass(&pieces[..2])[1].0, [0, 2]);
    let gone = watch.set.id(0).unwrap();
    watch.set.remove(gone).unwrap();
    // Another filter takes its index.
    let again = watch.set.insert(Filter::compile("arp", &Options::default()).unwrap(), 0);
    assert_eq!(again.index(), 0);
    assert_eq!(watch.pass(&pieces[2..3])[0].0, [2]);
}

#[test]
fn hostile_headers_are_whole_packets_or_fragments() {
    let mut random = Random::new(7);
    let mut watch =
        Watch::new(FragmentLimits { datagrams_max: 16, early_max: 16, ..FragmentLimits::default() });
    let seeds: Vec<Piece> = (0..10).flat_map(|at| datagram(at, 1, 53, at % 2 == 0, &mut random)).collect();
    for _ in 0..200 {
        let mut pieces: Vec<Piece> = (0..50).map(|_| random.pick(&seeds).clone()).collect();
        for piece in &mut pieces {
            for _ in 0..random.below(4) {
                let at = random.below(piece.frame.len() as u64) as usize;
                piece.frame[at] = random.bits() as u8;
            }
            piece.frame.truncate(random.below(120) as usize);
        }
        watch.pass(&pieces);
        let _ = watch.reports();
    }
    assert!(watch.counts().early > 0);
}

#[test]
fn link_types_without_an_ip_header_are_refused() {
    let mut set = FilterSet::new(MatchPolicy::All);
    let limits = Some(FragmentLimits::default());
    assert!(set.follow_fragments(LinkType::IEEE802_11, limits).is_err());
    assert!(set.follow_fragments(LinkType::RAW, limits).is_ok());
}
