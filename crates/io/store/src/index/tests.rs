//! Laws of the index: noted packets are in its slots, within the budget, for any traffic.

use std::net::IpAddr;

use tapline_packet::{Interface, LinkType, Meta, Packet};
use tapline_testkit::random::Random;

use super::*;
use crate::Question;
use crate::keys::{Class, Group, OpenKeys, flow_value, key, pair_value, port_value};

const SEGMENT_LEN: u64 = 64 << 20;

/// Addresses and ports of a TCP packet.
type Ends = ([u8; 4], u16, [u8; 4], u16);

fn frame((src, src_port, dst, dst_port): Ends) -> [u8; 60] {
    let mut frame = [0; 60];
    (frame[12], frame[14], frame[17], frame[23], frame[46]) = (0x08, 0x45, 46, 6, 0x50);
    frame[26..30].copy_from_slice(&src);
    frame[30..34].copy_from_slice(&dst);
    frame[34..36].copy_from_slice(&src_port.to_be_bytes());
    frame[36..38].copy_from_slice(&dst_port.to_be_bytes());
    frame
}

/// Notes packets of slots, and returns the index with its temporary folder.
fn index_of(slots: &[Vec<Ends>]) -> (tempfile::TempDir, Index) {
    index_of_chunks(SEGMENT_LEN, slots, slots.len())
}

/// As [`index_of`], for a segment of this length in which the chunks of the first slots only were written.
fn index_of_chunks(segment_len: u64, slots: &[Vec<Ends>], chunks: usize) -> (tempfile::TempDir, Index) {
    let interface = Interface::new("far0", LinkType::ETHERNET);
    let mut builder = Builder::new(segment_len, IndexOptions::default());
    let mut contents = Contents::new(segment_len);
    (contents.summary.store, contents.summary.segment) = ([3; 16], 7);
    for (slot, packets) in slots.iter().enumerate() {
        builder.begin_slot(slot as u32);
        for ends in packets {
            let (data, meta) = (frame(*ends), Meta { wire_len: 60, ..Meta::default() });
            let packet = Packet { data: &data, meta: &meta };
            let flow = builder.fingerprint(&interface, packet);
            builder.note(&interface, packet, flow, None);
        }
        if slot >= chunks {
            continue;
        }
        let head =
            ChunkHead { len: SLOT_LEN as u32, number: slot as u64 + 1, packets: 1, ..ChunkHead::default() };
        contents.note(&head, (slot * SLOT_LEN) as u64, [0; 32]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("00000007.tix");
    write(&path, &mut contents, &mut builder).unwrap();
    let index = Index::read(&path, &[3; 16], 7).unwrap();
    (folder, index)
}

/// The slots that a search for a key reads.
fn read_for(index: &Index, key: u64) -> Vec<u32> {
    let mut slots = index.slots(key).unwrap();
    slots.insert_all(&index.open(Group::of(key).way()).unwrap());
    slots.insert_all(&index.open(OpenKeys::All).unwrap());
    (0..index.summary.slots).filter(|slot| slots.has(*slot)).collect()
}

fn keys_of((src, src_port, dst, dst_port): Ends) -> Vec<u64> {
    let address = |bytes: [u8; 4]| u128::from(u32::from_be_bytes(bytes));
    let (one, other) = (IpAddr::from(src), IpAddr::from(dst));
    let mut keys: Vec<u64> = [src, dst].map(|bytes| key(Class::Ipv4, address(bytes))).to_vec();
    keys.extend([src, dst].map(|bytes| key(Class::Ipv4Net, address(bytes) >> 8)));
    keys.extend([src_port, dst_port].map(|port| key(Class::Port, port_value(6, port))));
    keys.push(key(Class::Pair, pair_value(one, other)));
    keys.push(key(Class::Flow, flow_value((one, src_port), (other, dst_port), 6)));
    keys
}

/// No slot of a packet is missing under any of its keys; and the index keeps to its budget.
fn check(slots: &[Vec<Ends>], index: &Index) {
    let budget = slots.len() as u64 * SLOT_LEN as u64 / 200;
    assert!(index.len() <= budget, "{} bytes of {budget}", index.len());
    let mut random = Random::new(1);
    for (slot, packets) in slots.iter().enumerate() {
        for _ in 0..packets.len().min(20) {
            let ends = packets[random.below(packets.len() as u64) as usize];
            for key in keys_of(ends) {
                let read = read_for(index, key);
                assert!(read.contains(&(slot as u32)), "slot {slot}, {ends:?}: {:?}", Group::of(key));
            }
        }
    }
}

fn random_address(random: &mut Random) -> [u8; 4] {
    (random.below(1 << 32) as u32).to_be_bytes()
}

/// Two packets of one host, in two slots.
const NEEDLE: Ends = ([192, 0, 2, 77], 40_000, [198, 51, 100, 9], 443);

fn with_needle(mut slots: Vec<Vec<Ends>>) -> Vec<Vec<Ends>> {
    [17, 40].iter().for_each(|slot| slots[*slot].push(NEEDLE));
    slots
}

fn needle_key() -> u64 {
    key(Class::Ipv4, u32::from_be_bytes(NEEDLE.0).into())
}

/// Sets have words for all slots of a segment, of which the index of one that is not full needs the first.
#[test]
fn a_segment_that_is_not_full_has_its_keys() {
    let mut random = Random::new(21);
    let mut flow = |_| (random_address(&mut random), 5000, random_address(&mut random), 443);
    let flows: Vec<Ends> = (0..300).map(&mut flow).collect();
    for used in [1, 3, 63, 64, 65, 130] {
        let slots: Vec<Vec<Ends>> = (0..used).map(|slot| flows[slot..slot + 100].to_vec()).collect();
        let (_folder, index) = index_of_chunks(256 << 20, &slots, used);
        check(&slots, &index);
        let [first, last] = [flows[0], flows[used + 98]].map(|ends| *keys_of(ends).last().expect("a flow"));
        if index.open(OpenKeys::Flows).expect("it is there").count() == 0 {
            assert_eq!((read_for(&index, first), read_for(&index, last)), (vec![0], vec![used as u32 - 1]));
        }
        let (_folder, index) = index_of_chunks(256 << 20, &slots, used.div_ceil(2));
        check(&slots[..used.div_ceil(2)], &index);
        assert_eq!(index.summary.slots as usize, used.div_ceil(2));
        let lost = keys_of(flows[used + 98])[7];
        assert!(used < 3 || index.slots(lost).expect("it can be read").count() == 0, "{used}");
    }
}

#[test]
fn flows_in_random_order_are_told_apart() {
    let mut random = Random::new(20);
    let flows: Vec<Ends> = (0..1_500)
        .map(|_| {
            (
                random_address(&mut random),
                1024 + random.below(60_000) as u16,
                random_address(&mut random),
                443,
            )
        })
        .collect();
    let slot = |_| (0..3_400).map(|_| flows[random.below(1_500) as usize]).collect();
    let slots = with_needle((0..64).map(slot).collect());
    let (_folder, index) = index_of(&slots);
    check(&slots, &index);
    assert_eq!(index.summary.open, [0; WAYS]);
    for key in keys_of(NEEDLE) {
        assert!(read_for(&index, key) == [17, 40] || key == self::key(Class::Port, port_value(6, 443)));
    }
}

#[test]
fn a_port_scan_costs_flows_and_ports_alone() {
    let mut next = 0_u32;
    let mut scan = || {
        next += 1;
        (
            [10, 0, 0, 1],
            1024 + (next % 60_000) as u16,
            [10, 0, (next >> 8) as u8 & 3, next as u8],
            (next >> 3) as u16,
        )
    };
    let slots = with_needle((0..64).map(|_| (0..9_000).map(|_| scan()).collect()).collect());
    let (_folder, index) = index_of(&slots);
    check(&slots, &index);
    assert_eq!(read_for(&index, needle_key()), [17, 40]);
    let open = |way: OpenKeys| index.summary.open[way as usize];
    assert!(open(OpenKeys::Flows) > 0);
    assert_eq!((open(OpenKeys::Addresses), open(OpenKeys::All)), (0, 0));
}

#[test]
fn a_flood_from_everywhere_keeps_to_the_budget() {
    let mut random = Random::new(9);
    let mut flood = |count: usize| -> Vec<Ends> {
        (0..count).map(|_| (random_address(&mut random), 1024, [10, 0, 0, 1], 80)).collect()
    };
    // It lasts a quarter of the time; what came before and after is found as ever.
    let slots = with_needle((0..64).map(|slot| flood(if slot % 4 == 2 { 9_000 } else { 3 })).collect());
    let (_folder, index) = index_of(&slots);
    check(&slots, &index);
    let read = read_for(&index, needle_key());
    assert!(read.iter().all(|slot| slot % 4 == 2 || [17, 40].contains(slot)), "{read:?}");
    assert!(
        read.len() <= 18 && index.summary.open[OpenKeys::Addresses as usize] > 0,
        "{read:?} {:?}",
        index.summary.open
    );
}

/// Slots that a search reads.
fn slots_read(index: &Index, text: &str) -> usize {
    let question = Question::of(text, &tapline_filter::Options::default());
    index.may_satisfy(&question).unwrap().into_iter().filter(|may| *may).count()
}

#[test]
fn pairs_flows_and_networks_read_fewer_slots() {
    let ends =
        |client: u8, port: u16, server: u8| ([10, 0, client % 8, client], port, [192, 0, 2, server], 443);
    // Client 7 is busy in each slot, server 9 too; together they are in slots 5 and 50, by port 40000 in slot 50 alone.
    let slot = |slot: u8| {
        let mut packets: Vec<Ends> = (0..40).map(|other| ends(7, 5000 + other, 20 + other as u8)).collect();
        packets.extend((0..40).map(|other| ends(100 + other as u8, 40_000, 9)));
        match slot {
            5 => packets.push(ends(7, 40_001, 9)),
            50 => packets.extend([ends(7, 40_000, 9), ([10, 0, 77, 1], 1, [198, 51, 100, 1], 2)]),
            _ => {}
        }
        packets
    };
    let slots: Vec<Vec<Ends>> = (0..64).map(slot).collect();
    let (_folder, index) = index_of(&slots);
    check(&slots, &index);
    let of = |text: &str| slots_read(&index, text);
    assert_eq!((of("host 10.0.7.7"), of("host 192.0.2.9"), of("tcp port 40000")), (64, 64, 64));
    assert_eq!(of("host 10.0.7.7 and host 192.0.2.9"), 2);
    assert_eq!(of("src host 10.0.7.7 and dst host 192.0.2.9 and tcp port 443"), 2);
    let five_tuple =
        "ip src host 10.0.7.7 and ip dst host 192.0.2.9 and tcp src port 40000 and tcp dst port 443";
    assert_eq!((of(five_tuple), of("host 10.0.7.7 and host 10.0.4.100")), (1, 0));
    assert_eq!((of("net 10.0.76.0/22"), of("net 10.0.80.0/20"), of("net 10.0.0.0/21")), (1, 0, 64));
    assert_eq!((of("inner(host 10.0.7.7)"), of("vxlan and host 10.0.7.7")), (0, 0));
    assert_eq!((of("ether host 02:00:00:00:00:01"), of("not tcp")), (64, 64));
}

#[test]
fn twins_give_a_flow_one_fingerprint() {
    let interface = Interface::new("far0", LinkType::ETHERNET);
    let (one, meta) = (Builder::new(SEGMENT_LEN, IndexOptions::default()), Meta::default());
    let data = frame(([10, 0, 0, 1], 1000, [10, 0, 0, 2], 53));
    let packet = Packet { data: &data, meta: &meta };
    let fingerprint = one.fingerprint(&interface, packet);
    assert_ne!(fingerprint, 0);
    assert_eq!(one.twin().fingerprint(&interface, packet), fingerprint);
    // Chosen again for each recorder: a sender must not know it.
    assert_ne!(
        Builder::new(SEGMENT_LEN, IndexOptions::default()).fingerprint(&interface, packet),
        fingerprint
    );
}

/// Packets of mixed sizes, of more flows than a segment has room for, in random order: flows and ports go, the hosts
/// stay.
#[test]
fn many_flows_in_random_order_leave_the_hosts() {
    let mut random = Random::new(31);
    let client = |number: u64| [10, 0, (number >> 8) as u8, number as u8];
    let flows: Vec<Ends> = (0..12_500)
        .map(|number| (client(number), 1024 + random.below(60_000) as u16, [10, 1, 0, 1], 443))
        .collect();
    let slot = |_| (0..2_680).map(|_| flows[random.below(12_500) as usize]).collect();
    let slots = with_needle((0..64).map(slot).collect());
    let (_folder, index) = index_of(&slots);
    check(&slots, &index);
    assert_eq!(read_for(&index, needle_key()), [17, 40], "{:?}", index.summary.open);
    let open = |way: OpenKeys| index.summary.open[way as usize];
    assert!(open(OpenKeys::Flows) > 0);
    assert_eq!((open(OpenKeys::Addresses), open(OpenKeys::All)), (0, 0));
}
