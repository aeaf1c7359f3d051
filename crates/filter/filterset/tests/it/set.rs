//! A set's answer is that of its filters' programs, run one by one.
//!
//! ```text
//! for each round: a link type, random texts -> a set, and programs
//!     for each batch: frames, constants of some filter planted, bits flipped, cut
//!         each packet, each filter: in the set's answer  <=>  its program accepts
//!         between batches: filters go, others come, constants are exchanged
//! ```
//!
//! `TAPLINE_SET_PAIRS=10000000` sets how many pairs of filter and packet are judged (else 300,000),
//! `TAPLINE_SET_SEED` where chance starts.

use tapline_bpf::Program;
use tapline_bpf::assemble;
use tapline_bpf::simplify::simplify;
use tapline_filter::predicate::{Predicate, Predicates};
use tapline_filter::{HandleKind, Options, compile, generate, lower, parse};
use tapline_filterset::{
    Filter, FilterId, FilterSet, FiveTuple, FiveTuples, HeaderPattern, MatchPolicy, Matches,
};
use tapline_packet::{BATCH_MAX, Batch, LinkType, Meta, Packet, Record, Selection, VlanTag};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::gallery::exhibit;
use tapline_testkit::libpcap::{Libpcap, LibpcapProgram};
use tapline_testkit::random::Random;
use tapline_testkit::stock::{Sample, Stock};
use tapline_testkit::volume::{number, volume};

/// Filters that a set has at once.
const FILTERS: usize = 60;

/// Link types and their share.
const LINK_TYPES: &[(i32, u64)] =
    &[(1, 24), (12, 3), (113, 3), (276, 2), (0, 2), (9, 1), (105, 2), (127, 2), (117, 1), (10, 1)];

/// A filter of the set, and its expected answer.
struct Member {
    id: FilterId,
    text: String,
    predicates: Predicates,
    program: Program,
    planting: LibpcapProgram,
}

#[derive(Default)]
struct Tally {
    pairs: u64,
    accepted: u64,
    texts: u64,
    own_programs: u64,
    exchanged: u64,
}

#[test]
fn a_set_answers_as_its_filters_do_one_by_one() {
    let mut random = Random::new(number("TAPLINE_SET_SEED", 1));
    let stock = Libpcap::get().ok().map(|pcap| Stock::new(pcap, &mut random));
    let (pairs, mut tally) = (volume("TAPLINE_SET_PAIRS", 30_000), Tally::default());
    while tally.pairs < pairs {
        round(stock.as_ref(), &mut random, &mut tally);
    }
    eprintln!(
        "{} pairs, {} accepted; {} texts, {} with a program of their own, {} exchanged in place",
        tally.pairs, tally.accepted, tally.texts, tally.own_programs, tally.exchanged
    );
    assert!(tally.accepted > tally.pairs / 100 && tally.exchanged > 0);
}

/// One set, from its first filters to its last.
fn round(stock: Option<&Stock>, random: &mut Random, tally: &mut Tally) {
    let dlt = link_type(random);
    let handle = *random.pick(&[HandleKind::Dead, HandleKind::Savefile, HandleKind::Live]);
    let options =
        Options { handle, netmask: Some(0xffff_ff00), ..Options::new(LinkType::from_dlt(dlt as u16)) };
    let mut texts = Expressions::new(random.bits(), dlt);
    let mut set = FilterSet::new(MatchPolicy::All);
    let mut members: Vec<Member> = Vec::new();
    for _ in 0..8 {
        while members.len() < FILTERS {
            members.extend(add(&mut set, &texts.text(), &options, tally));
        }
        judge_batch(&mut set, &members, dlt, stock, random, tally);
        for _ in 0..6 {
            let gone = members.swap_remove(random.below(members.len() as u64) as usize);
            set.remove(gone.id).expect("it is in the set");
        }
        for _ in 0..8 {
            let at = random.below(members.len() as u64) as usize;
            exchange(&mut set, &mut members[at], random, tally);
        }
        judge_batch(&mut set, &members, dlt, stock, random, tally);
    }
    assert_eq!(set.len(), members.len());
    members.drain(..).for_each(|member| assert!(set.remove(member.id).is_ok(), "{}", member.text));
    assert_eq!((set.len(), set.table_count(), set.unmerged_count()), (0, 0, 0));
}

fn link_type(random: &mut Random) -> i32 {
    let total: u64 = LINK_TYPES.iter().map(|(_, share)| share).sum();
    let mut place = random.below(total);
    let here = |(_, share): &&(i32, u64)| {
        let here = place < *share;
        place = place.saturating_sub(*share);
        here
    };
    LINK_TYPES.iter().find(here).expect("the shares add up").0
}

/// Inserts a text, if it is a filter; both sides agree on that.
fn add(set: &mut FilterSet, text: &str, options: &Options, tally: &mut Tally) -> Option<Member> {
    let (alone, merged) = (compile(text, options), Filter::compile(text, options));
    assert_eq!(alone.as_ref().err(), merged.as_ref().err(), "{text}");
    let program = alone.ok()?.program().clone();
    let merged = merged.ok()?;
    tally.texts += 1;
    tally.own_programs += u64::from(merged.has_program());
    let planting = planting(&program);
    let predicates = lower(&parse(text).ok()?, options).ok()?;
    Some(Member { id: set.insert(merged, 0), text: text.to_owned(), predicates, program, planting })
}

fn planting(program: &Program) -> LibpcapProgram {
    LibpcapProgram::new(program.insns().to_vec())
}

/// Exchanges a constant in place, and in the predicates that the program is made from.
fn exchange(set: &mut FilterSet, member: &mut Member, random: &mut Random, tally: &mut Tally) {
    let Some(filter) = set.get(member.id) else { return };
    let constants = filter.constants().to_vec();
    if constants.is_empty() {
        return;
    }
    let old = random.pick(&constants).clone();
    let new =
        if random.one_of(1, 2) { random.pick(&constants).value } else { random.bits() as u32 } & old.mask;
    // Constants of the same name and value stand at several places.
    let same = |constant: &tapline_filterset::Constant| {
        (constant.name, constant.value, constant.mask) == (old.name, old.value, old.mask)
    };
    let changes: Vec<(usize, u32)> =
        (0..constants.len()).filter(|at| same(&constants[*at])).map(|at| (at, new)).collect();
    if set.set_constants(member.id, &changes).is_err() {
        return;
    }
    change(&mut member.predicates.root, &|test| {
        if (test.name, test.value) == (old.name, old.value) && test.mask & old.mask == old.mask {
            test.value = new;
        }
    });
    let graph = simplify(&generate(&member.predicates, 1));
    member.program = Program::new(assemble(&graph)).expect("it is a program");
    member.planting = planting(&member.program);
    member.text.push_str(&format!(" [{} {:#x} now {new:#x}]", old.name, old.value));
    tally.exchanged += 1;
}

fn change(predicate: &mut Predicate, each: &impl Fn(&mut tapline_filter::predicate::FieldTest)) {
    match predicate {
        Predicate::Test(test) => each(test),
        Predicate::Not(inner) => change(inner, each),
        Predicate::Chain(first, rest) => {
            change(first, each);
            rest.iter_mut().for_each(|(_, part)| change(part, each));
        }
        _ => {}
    }
}

fn judge_batch(
    set: &mut FilterSet,
    members: &[Member],
    dlt: i32,
    stock: Option<&Stock>,
    random: &mut Random,
    tally: &mut Tally,
) {
    let count = random.between(1..=BATCH_MAX as u64 / 4) as usize;
    let samples: Vec<Sample> = (0..count).map(|_| sample(members, dlt, stock, random)).collect();
    let (base, records) = lend(&samples, random);
    let batch = Batch::new(&base, &records);
    let (mut selection, mut matches) = (Selection::none(), Matches::new());
    selection.select_all(batch.len());
    selection.retain(|_| random.one_of(15, 16));
    set.classify(&batch, &selection, &mut matches);
    for index in 0..batch.len() {
        if !selection.iter().any(|selected| selected == index) {
            assert!(matches.of(index).is_empty());
            continue;
        }
        judge_packet(batch.packet(index), matches.of(index), members, tally);
    }
}

fn judge_packet(packet: Packet<'_>, found: &[u32], members: &[Member], tally: &mut Tally) {
    assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    for member in members {
        let alone = member.program.run(packet) != 0;
        let merged = found.binary_search(&member.id.index()).is_ok();
        tally.pairs += 1;
        tally.accepted += u64::from(alone);
        assert_eq!(
            merged, alone,
            "in a set, alone: {} on {:02x?}, {:?}",
            member.text, packet.data, packet.meta
        );
    }
    assert!(found.iter().all(|index| members.iter().any(|member| member.id.index() == *index)));
}

/// A frame that some filter was steered through, flipped and cut.
fn sample(members: &[Member], dlt: i32, stock: Option<&Stock>, random: &mut Random) -> Sample {
    let mut sample = match stock {
        Some(stock) => stock.sample(dlt, random),
        None => {
            let data = exhibit(random).to_vec();
            Sample { wire_len: data.len() as u32, data }
        }
    };
    let mut loads = Vec::new();
    for _ in 0..random.below(3) {
        let member = random.pick(members);
        loads = member.planting.plant(&mut sample.data, sample.wire_len, random).load_ends;
    }
    if random.one_of(1, 8) && !sample.data.is_empty() {
        let bit = random.below(sample.data.len().min(80) as u64 * 8);
        sample.data[bit as usize / 8] ^= 1 << (bit % 8);
    }
    if random.one_of(1, 4) {
        let len = match loads.len() {
            0 => random.below(80) as usize,
            // Just before, at, or just behind the end of a load.
            _ => (*random.pick(&loads) + 1).saturating_sub(random.below(4) as usize),
        };
        sample.data.truncate(len);
    }
    sample.wire_len = sample.wire_len.max(sample.data.len() as u32);
    sample
}

fn lend(samples: &[Sample], random: &mut Random) -> (Vec<u8>, Vec<Record>) {
    let (mut base, mut records) = (Vec::new(), Vec::new());
    for sample in samples {
        let vlan = random.one_of(1, 4).then(|| VlanTag { tpid: 0x8100, tci: random.below(8) as u16 });
        let meta =
            Meta { wire_len: sample.wire_len, if_index: random.below(3) as u32, vlan, ..Meta::default() };
        records.push(Record { offset: base.len(), cap_len: sample.data.len() as u32, options_len: 0, meta });
        base.extend_from_slice(&sample.data);
    }
    (base, records)
}

fn run_alone(set: &mut FilterSet, data: &[u8]) -> bool {
    let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
    let records = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta }];
    let (mut selection, mut matches) = (Selection::none(), Matches::new());
    selection.select_all(1);
    set.classify(&Batch::new(data, &records), &selection, &mut matches);
    !matches.of(0).is_empty()
}

#[test]
fn a_five_tuple_made_from_an_example_is_its_text() {
    let mut random = Random::new(5);
    for link_type in [LinkType::ETHERNET, LinkType::LINUX_SLL, LinkType::RAW] {
        let options = Options::new(link_type);
        let examples = FiveTuples::new(&options).unwrap();
        for _ in 0..200 {
            let flow = random_flow(&mut random);
            let text = flow.to_string();
            let program = compile(&text, &options).unwrap().program().clone();
            let mut set = FilterSet::new(MatchPolicy::All);
            set.insert(examples.filter(&flow).unwrap(), 0);
            let steered = planting(&program);
            for _ in 0..40 {
                let mut data = exhibit(&mut random).to_vec();
                steered.plant(&mut data, 1500, &mut random);
                data.truncate(random.between(20..=90) as usize);
                let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
                let alone = program.run(Packet { data: &data, meta: &meta }) != 0;
                assert_eq!(run_alone(&mut set, &data), alone, "{text} on {data:02x?}");
            }
        }
    }
    let mixed = FiveTuple { src: [192, 0, 2, 1].into(), ..random_flow(&mut random) };
    let mixed = FiveTuple { dst: [0_u16, 0, 0, 0, 0, 0, 0, 1].into(), ..mixed };
    assert!(FiveTuples::new(&Options::default()).unwrap().filter(&mixed).is_err());
    assert!(FiveTuples::new(&Options::new(LinkType::IEEE802_11_RADIOTAP)).is_err());
}

fn random_flow(random: &mut Random) -> FiveTuple {
    let address = |random: &mut Random, v6: bool| match v6 {
        true => (random.bits() as u128 | (random.bits() as u128) << 64).to_be_bytes().into(),
        // Few addresses, so that source and destination are the same now and then.
        false => [192, 0, 2, random.below(3) as u8].into(),
    };
    let v6 = random.one_of(1, 2);
    FiveTuple {
        src: address(random, v6),
        dst: address(random, v6),
        protocol: *random.pick(&[6, 17, 132]),
        src_port: random.below(4) as u16 * 1000,
        dst_port: random.below(4) as u16 * 1000,
    }
}

#[test]
fn a_pattern_is_the_text_that_asks_for_its_bytes() {
    let mut random = Random::new(11);
    for _ in 0..300 {
        let (pattern, text) = random_pattern(&mut random);
        let Some(pattern) = pattern else { continue };
        let filter = compile(&text, &Options { optimise: false, ..Options::default() }).unwrap();
        let program = filter.program();
        let mut set = FilterSet::new(MatchPolicy::All);
        set.insert(pattern.filter(), 0);
        let steered = planting(program);
        for _ in 0..30 {
            let mut data = exhibit(&mut random).to_vec();
            steered.plant(&mut data, 1500, &mut random);
            data.truncate(random.between(0..=70) as usize);
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            let alone = program.run(Packet { data: &data, meta: &meta }) != 0;
            assert_eq!(run_alone(&mut set, &data), alone, "{text} on {data:02x?}");
        }
    }
}

/// Cells of one to eleven bytes, and the same in words of the language.
fn random_pattern(random: &mut Random) -> (Option<HeaderPattern>, String) {
    let (mut pattern, mut parts) = (Some(HeaderPattern::new()), Vec::new());
    for _ in 0..random.between(1..=4) {
        let len = random.between(1..=11) as usize;
        let offset = random.below(50) as u32;
        let mask: Vec<u8> = (0..len).map(|_| *random.pick(&[0xff, 0xff, 0x0f, 0x80, 0x00])).collect();
        let value: Vec<u8> = random.bytes(len).iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
        for at in 0..len {
            parts.push(format!("ether[{}] & {} = {}", offset as usize + at, mask[at], value[at]));
        }
        pattern = pattern.and_then(|pattern| pattern.cell(offset, &mask, &value).ok());
    }
    (pattern, parts.join(" and "))
}
