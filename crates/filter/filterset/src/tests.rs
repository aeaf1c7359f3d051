//! The answer of a set equals the answers of its filters one by one; and properties that are hard to see from
//! outside.

use std::sync::Arc;

use tapline_packet::{Batch, Packet, Selection};
use tapline_testkit::frame_batches::FrameBatches;
use tapline_testkit::frames::{Ethernet, Host, IpPair, Udp};

use super::*;
use tapline_filter::{Options, compile};
use tapline_ir::CompiledFilter;

fn classify(set: &mut FilterSet, batch: &Batch<'_>) -> Vec<Vec<u32>> {
    let (mut selection, mut matches) = (Selection::none(), Matches::new());
    selection.select_all(batch.len());
    set.classify(batch, &selection, &mut matches);
    (0..batch.len()).map(|packet| matches.of(packet).to_vec()).collect()
}

fn frames() -> Vec<Vec<u8>> {
    tapline_testkit::gallery::exhibits().into_iter().map(|(_, frame)| frame).collect()
}

fn filter(text: &str) -> Filter {
    Filter::compile(text, &Options::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn program(text: &str) -> CompiledFilter {
    compile(text, &Options::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn accepts(program: &CompiledFilter, packet: Packet<'_>) -> bool {
    program.run(packet) != 0
}

const TEXTS: &[&str] = &[
    "",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp port 53",
    "port 80 or port 443",
    "src host 192.0.2.1 and dst host 192.0.2.2 and tcp src port 40000 and tcp dst port 80",
    "net 192.0.2.0/24",
    "not ip",
    "not port 53",
    "portrange 1-1024",
    "greater 100",
    "tcp[13] & 2 != 0",
    "tcp[12] >> 4 > 5",
    "ip proto 1 or ip6 proto 58",
    "vlan and ip",
    "mpls",
    "ether host 02:00:00:00:00:01",
    "ip6 host 2001:db8::1 and not tcp",
    "ip6 protochain 58",
    "(host 192.0.2.1 and port 80) or (host 192.0.2.2 and port 53) or (arp and host 192.0.2.2)",
    "ip[6:2] & 0x1fff != 0",
    "ip host 192.0.2.1 and (tcp port 80 or udp port (53 or 67 or 123))",
    "len > 60 and len <= 90",
    "ether broadcast or ether multicast",
];

#[test]
fn each_filter_answers_as_its_program_does_alone() {
    let mut set = FilterSet::new(MatchPolicy::All);
    let ids: Vec<FilterId> = TEXTS.iter().map(|text| set.insert(filter(text), 0)).collect();
    let programs: Vec<CompiledFilter> = TEXTS.iter().map(|text| program(text)).collect();
    for frame in frames() {
        let cut: Vec<Vec<u8>> = (0..=frame.len().min(120)).map(|len| frame[..len].to_vec()).collect();
        for part in cut.chunks(100) {
            let frames = FrameBatches::new(part);
            let batch = frames.batch();
            for (packet, found) in classify(&mut set, &batch).into_iter().enumerate() {
                let expected: Vec<u32> = ids
                    .iter()
                    .zip(&programs)
                    .filter(|(_, program)| accepts(program, batch.packet(packet)))
                    .map(|(id, _)| id.index())
                    .collect();
                assert_eq!(found, expected, "{:02x?}", batch.packet(packet).data);
            }
        }
    }
}

#[test]
fn filters_that_differ_in_constants_share_a_table() {
    let mut set = FilterSet::new(MatchPolicy::All);
    for flow in 0..1000 {
        let text = format!(
            "src host 10.0.{}.{} and dst host 192.0.2.2 and tcp src port {} and tcp dst port 80",
            flow / 256,
            flow % 256,
            1024 + flow
        );
        let filter = filter(&text);
        assert!(!filter.has_program(), "{text}");
        set.insert(filter, 0);
    }
    assert_eq!(set.table_count(), 1);
}

/// Ranges of many filters are in the plan, as are tests with few numbers: it is rebuilt with each change, and beyond
/// a number of entries they are left to the table.
#[test]
fn plans_agree_with_filters_after_each_change() {
    let ports = |number: u16| format!("udp and portrange {}-{}", 40 * number, 40 * number + 100);
    let nibble = |number: u16| format!("udp and ip[15] & 15 = {number}");
    let text = |number: u16| if number.is_multiple_of(50) { nibble(number / 50 % 5) } else { ports(number) };
    let link = Ethernet::between(&Host::number(1), &Host::number(2));
    let frame = |at: u16| {
        let pair = IpPair::V4([10, 1, 2, at as u8 % 8].into(), [192, 0, 2, 1].into());
        link.ip(&Udp { src: 517 * at, dst: 50 + 97 * at }.packet(pair, b"payload"))
    };
    let frames = FrameBatches::new(&(0..100).map(frame).collect::<Vec<_>>());
    let mut set = FilterSet::new(MatchPolicy::All);
    let mut there: Vec<(FilterId, CompiledFilter)> = Vec::new();
    let check = |set: &mut FilterSet, there: &[(FilterId, CompiledFilter)]| {
        for (packet, found) in classify(set, &frames.batch()).into_iter().enumerate() {
            let accepting = there.iter().filter(|(_, own)| accepts(own, frames.batch().packet(packet)));
            let mut expected: Vec<u32> = accepting.map(|(id, _)| id.index()).collect();
            expected.sort_unstable();
            assert_eq!(found, expected, "packet {packet} of {} filters", there.len());
        }
    };
    for number in 0..1200 {
        there.push((set.insert(filter(&text(number)), 0), program(&text(number))));
        if number % 199 == 0 {
            check(&mut set, &there);
        }
    }
    let is_planned =
        |set: &FilterSet| set.shapes.iter().flatten().any(|shape| shape.entries > 100 && shape.is_planned());
    assert!(!is_planned(&set), "2,300 entries are too many");
    for number in 0..1200 {
        let at = usize::from(number) % there.len();
        let (id, own) = &mut there[at];
        if number % 3 == 0 {
            set.replace(*id, filter(&text(number + 7))).unwrap();
            *own = program(&text(number + 7));
        } else {
            set.remove(*id).unwrap();
            there.swap_remove(at);
        }
        if number % 199 == 0 {
            check(&mut set, &there);
        }
    }
    assert!(is_planned(&set), "{} are not", there.len());
    check(&mut set, &there);
}

/// A filter that most packets meet in part is one alternative, which its program decides; it is still looked up by
/// the common part of all its ways.
#[test]
fn a_broad_filter_is_asked_once() {
    for (text, has_key) in
        [("not port 22", false), ("not (host 10.0.0.1 and port 80)", false), ("tcp and not port 22", true)]
    {
        let filter = filter(text);
        assert_eq!((filter.alternatives.len(), filter.has_program()), (1, true), "{text}");
        assert_eq!(filter.alternatives[0].layout.words() > 0, has_key, "{text}");
    }
    assert!(filter("host 10.0.0.1 and not port 22").alternatives.len() > 1);
    assert_eq!(filter("not arp").alternatives.len(), 1);
}

#[test]
fn a_thousand_ports_are_few_alternatives() {
    let text = (1..=1000).map(|port| format!("port {port}")).collect::<Vec<_>>().join(" or ");
    let filter = filter(&text);
    assert!(filter.alternatives.len() <= 8, "{}", filter.alternatives.len());
}

#[test]
fn the_first_match_is_by_priority_then_by_age() {
    let mut set = FilterSet::new(MatchPolicy::First);
    let late = set.insert(filter("ip"), 7);
    let older = set.insert(filter("tcp"), 3);
    let younger = set.insert(filter("port 80"), 3);
    let frames = FrameBatches::new(&frames());
    let batch = frames.batch();
    let programs = [(older, program("tcp")), (younger, program("port 80")), (late, program("ip"))];
    for (packet, found) in classify(&mut set, &batch).into_iter().enumerate() {
        let first = programs.iter().find(|(_, program)| accepts(program, batch.packet(packet)));
        let expected: Vec<u32> = first.map(|(id, _)| id.index()).into_iter().collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn layouts_beyond_the_limit_are_asked_one_by_one() {
    let mut set = FilterSet::new(MatchPolicy::All);
    let texts: Vec<String> = (0..LAYOUTS_MAX + 40).map(|at| format!("ether[{at}] & 0x7f = 2")).collect();
    let ids: Vec<FilterId> = texts.iter().map(|text| set.insert(filter(text), 0)).collect();
    assert_eq!(set.table_count(), LAYOUTS_MAX);
    assert!(set.unmerged_count() > 0);
    let frames = FrameBatches::new(&[(0..=255).collect(), vec![2; 400], vec![0x82; 270]]);
    let batch = frames.batch();
    let programs: Vec<_> = texts.iter().map(|text| program(text)).collect();
    for (packet, found) in classify(&mut set, &batch).into_iter().enumerate() {
        let matching =
            programs.iter().enumerate().filter(|(_, program)| accepts(program, batch.packet(packet)));
        assert_eq!(found, matching.map(|(at, _)| ids[at].index()).collect::<Vec<u32>>());
    }
    for id in ids.into_iter().rev() {
        set.remove(id).unwrap();
    }
    assert_eq!((set.len(), set.table_count(), set.unmerged_count()), (0, 0, 0));
    assert!(classify(&mut set, &batch).iter().all(Vec::is_empty));
}

#[test]
fn constants_with_several_uses_are_not_exchanged() {
    let with = |text: &str, changes: &[(usize, u32)]| filter(text).with(changes).map(|_| ());
    let at = |text: &str, value: u32| {
        let filter = filter(text);
        filter.constants().iter().position(|constant| constant.value == value).unwrap()
    };
    let ports = "ip and tcp[0:2] = 80 or ether[34:2] = 443";
    assert!(with(ports, &[(9, 1)]).is_err());
    let two = "ip proto 6 or ip proto 17";
    assert_eq!(with(two, &[(at(two, 17), 6)]), Err(ConstantError::Entangled(at(two, 17))));
    assert_eq!(with(two, &[(at(two, 17), 256)]), Err(ConstantError::TooLarge(at(two, 17))));
    assert_eq!(with(two, &[(at(two, 17), 132)]), Ok(()));
    let ranged = "ip proto 6 and ip[9] < 7";
    assert!(matches!(with(ranged, &[(at(ranged, 6), 8)]), Err(ConstantError::Entangled(_))));
    let computed = "ip proto 6 and ip[8] + 1 = 7";
    assert_eq!(with(computed, &[(at(computed, 6), 8)]), Err(ConstantError::OwnProgram));
}

#[test]
fn changed_constants_equal_a_new_compilation() {
    let pairs = [
        ("host 192.0.2.7", "host 192.0.2.1", vec![(0xc000_0207, 0xc000_0201)]),
        ("port 5353", "port 53", vec![(5353, 53)]),
        ("ether src 02:00:00:00:00:77", "ether src 02:00:00:00:00:01", vec![(0x77, 1)]),
        ("net 198.51.100.0/24", "net 192.0.2.0/24", vec![(0xc633_6400, 0xc000_0200)]),
    ];
    for (old, new, numbers) in pairs {
        let old = filter(old);
        let change = |(at, constant): (usize, &Constant)| {
            numbers.iter().find(|(from, _)| *from == constant.value).map(|(_, to)| (at, *to))
        };
        let changes: Vec<(usize, u32)> = old.constants().iter().enumerate().filter_map(change).collect();
        assert!(!changes.is_empty(), "{new}: {:?}", old.constants());
        let mut set = FilterSet::new(MatchPolicy::All);
        let id = set.insert(old, 0);
        if let Err(reason) = set.set_constants(id, &changes) {
            panic!("{new}: {reason}");
        }
        let frames = FrameBatches::new(&frames());
        let batch = frames.batch();
        for (packet, found) in classify(&mut set, &batch).into_iter().enumerate() {
            assert_eq!(!found.is_empty(), accepts(&program(new), batch.packet(packet)), "{new}");
        }
    }
}

#[test]
fn ids_of_removed_filters_are_refused() {
    let mut set = FilterSet::new(MatchPolicy::All);
    let id = set.insert(filter("ip"), 0);
    set.remove(id).unwrap();
    let again = set.insert(filter("arp"), 0);
    assert_eq!(again.index(), id.index());
    assert_eq!(set.remove(id).unwrap_err(), SetError::NoSuchFilter);
    assert_eq!(set.set_constants(id, &[]), Err(SetError::NoSuchFilter));
    assert!(set.get(id).is_none() && set.get(again).is_some());
}

#[test]
fn a_program_alone_decides() {
    let texts = ["ip[8] + ip[9] = 70", "tcp port 80", "not ip", "less 60"];
    let mut set = FilterSet::new(MatchPolicy::All);
    for text in texts {
        let program = tapline_filter::compile(text, &Options::default()).unwrap();
        let own = set.insert(Filter::from_program(interpreted(program)), 0);
        let known = set.insert(filter(text), 0);
        assert_eq!(known.index(), own.index() + 1);
    }
    let frames = FrameBatches::new(&frames());
    for found in classify(&mut set, &frames.batch()) {
        let (own, known): (Vec<u32>, Vec<u32>) = found.iter().partition(|index| *index % 2 == 0);
        assert_eq!(own, known.iter().map(|index| index - 1).collect::<Vec<_>>());
    }
}

#[test]
fn a_backend_gets_the_programs_and_decides() {
    struct Never;
    impl tapline_bpf::PacketFilter for Never {
        fn accepts(&self, _: Packet<'_>) -> bool {
            false
        }
    }
    let compiled =
        Filter::compile_with("ip[8] + ip[9] = 70", &Options::default(), &|_| Arc::new(Never)).unwrap();
    let mut set = FilterSet::new(MatchPolicy::All);
    set.insert(compiled, 0);
    let frames = FrameBatches::new(&frames());
    assert!(classify(&mut set, &frames.batch()).iter().all(Vec::is_empty));
}

/// The filter behind each index, after each commit.
type States = Vec<Vec<(u32, &'static str)>>;

#[test]
fn replicas_follow_commits_in_order() {
    let mut random = tapline_testkit::random::Random::new(3);
    let (mut updates, mut replicas) = SetUpdater::new(MatchPolicy::All, 2);
    let frames = FrameBatches::new(&frames());
    let batch = frames.batch();
    let (mut ids, mut states): (Vec<(FilterId, &str)>, States) = (Vec::new(), vec![Vec::new()]);
    let mut applied = [0_usize; 2];
    for _ in 0..150 {
        for _ in 0..random.between(1..=4) {
            match random.below(4) {
                0 if !ids.is_empty() => {
                    let (id, _) = ids.swap_remove(random.below(ids.len() as u64) as usize);
                    updates.remove(id).unwrap();
                    assert_eq!(updates.remove(id).unwrap_err(), SetError::NoSuchFilter);
                }
                1 if !ids.is_empty() => {
                    let (text, at) = (*random.pick(TEXTS), random.below(ids.len() as u64) as usize);
                    updates.replace(ids[at].0, filter(text)).unwrap();
                    ids[at].1 = text;
                }
                _ => {
                    let text = *random.pick(TEXTS);
                    ids.push((updates.insert(filter(text), 0), text));
                }
            }
        }
        assert_eq!(updates.commit(), Some(states.len() as u64));
        states.push(ids.iter().map(|(id, text)| (id.index(), *text)).collect());
        for (worker, replica) in replicas.iter_mut().enumerate() {
            // One commit is never split, however small the number.
            let before = updates.last_visible_commit() as usize;
            for _ in 0..random.below(3) {
                applied[worker] += usize::from(replica.apply(1) > 0);
            }
            assert!(before <= applied[worker]);
            let state = &states[applied[worker]];
            assert_eq!(replica.set().len(), state.len());
            let found = classify(replica.set(), &batch);
            let at = random.below(batch.len() as u64) as usize;
            let packet = batch.packet(at);
            let mut expected: Vec<u32> = state
                .iter()
                .filter(|(_, text)| accepts(&program(text), packet))
                .map(|(index, _)| *index)
                .collect();
            expected.sort_unstable();
            assert_eq!(found[at], expected);
        }
    }
    for replica in &mut replicas {
        replica.apply(usize::MAX);
    }
    assert_eq!(updates.last_visible_commit() as usize, states.len() - 1);
}

#[test]
fn stalled_workers_stop_commits_and_lose_nothing() {
    let (mut updates, mut replicas) = SetUpdater::new(MatchPolicy::All, 1);
    let compiled = Arc::new(filter("arp"));
    for _ in 0..LAG_MAX {
        updates.insert(Arc::clone(&compiled), 0);
        assert!(updates.commit().is_some());
    }
    updates.insert(Arc::clone(&compiled), 0);
    assert_eq!(updates.commit(), None);
    replicas[0].apply(1);
    assert_eq!(updates.commit(), Some(LAG_MAX + 1));
    replicas[0].apply(usize::MAX);
    assert_eq!(replicas[0].set().len() as u64, LAG_MAX + 1);
    // A worker that is gone blocks no change.
    replicas.clear();
    updates.insert(compiled, 0);
    assert!(updates.commit().is_some());
}

#[test]
fn changes_show_a_packet_one_of_two_filters() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let (mut updates, mut replicas) = SetUpdater::new(MatchPolicy::All, 1);
    // On these frames both mean the same; each packet matches the one that is there.
    let pair = ["tcp dst port 80", "tcp dst port 80 or tcp dst port 81"].map(|text| Arc::new(filter(text)));
    let mut id = updates.insert(Arc::clone(&pair[0]), 0);
    updates.commit();
    let frames = FrameBatches::new(&frames());
    let program = program("tcp dst port 80");
    let done = AtomicBool::new(false);
    let mut replica = replicas.pop().unwrap();
    replica.apply(1);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut changes = 0;
            loop {
                let over = done.load(Ordering::Relaxed);
                changes += replica.apply(7);
                for (packet, found) in classify(replica.set(), &frames.batch()).into_iter().enumerate() {
                    let expected = usize::from(accepts(&program, frames.batch().packet(packet)));
                    assert_eq!(found.len(), expected, "after {changes} changes");
                }
                if over {
                    return changes;
                }
            }
        });
        let mut sent = 0;
        for round in 0..2000 {
            // One goes and one comes, as one.
            let next = updates.insert(Arc::clone(&pair[round % 2]), 0);
            updates.remove(std::mem::replace(&mut id, next)).unwrap();
            while updates.commit().is_none() {
                std::thread::yield_now();
            }
            sent += 2;
        }
        while updates.last_visible_commit() < 2001 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(worker.join().unwrap(), sent);
    });
}
