//! Weaker parts of filters accept every packet that the whole filter accepts, and need nothing that is out of their
//! bounds.

use tapline_ebpf::weaker_fronts;
use tapline_ir::{Op, WeakerBounds, weaken};
use tapline_packet::{PacketType, VlanTag};

use super::*;

const FRONT: XdpFront = XdpFront { sockets: 3, counters: 4, queues: 1, several: false, notes: None };

/// Weaker forms of a filter: those of a front, and a few that are cut anywhere.
fn weaker_forms(whole: &Ir, random: &mut Random) -> Vec<Ir> {
    let mut forms: Vec<Ir> = weaker_fronts(whole).collect();
    let most: usize = whole.order().into_iter().map(|id| whole[id].instructions.len() + 1).sum();
    for has_variable_places in [true, false] {
        let weight_max = random.below(most as u64 + 2) as usize;
        let bounds = WeakerBounds { is_known: |_| true, has_variable_places, weight_max };
        forms.extend(weaken(whole, &bounds));
    }
    forms
}

/// Verdicts on pairs of filters and packets.
#[derive(Debug, Default)]
struct Verdicts {
    forms: u64,
    /// Packets that the whole filter accepts, and those that a weaker one rejects.
    accepted: u64,
    rejected: u64,
}

impl Verdicts {
    fn judge(
        &mut self,
        whole: &Ir,
        about: &str,
        random: &mut Random,
        mut packet: impl FnMut(&mut Random) -> Vec<u8>,
    ) {
        let forms = weaker_forms(whole, random);
        let memory = Memory::new(0);
        let mut machines: Vec<Machine> = forms.into_iter().map(Machine::new).collect();
        let mut exact = Machine::new(whole.clone());
        self.forms += machines.len() as u64;
        for _ in 0..PACKETS_PER_TEXT {
            let data = packet(random);
            let vlan = random.one_of(1, 3).then(|| VlanTag { tpid: 0x8100, tci: random.below(8) as u16 });
            let packet_type = PacketType::from_kernel(random.below(5) as u8);
            let wire_len = data.len() as u32 + random.below(2) as u32;
            let meta = Meta { wire_len, vlan, packet_type, if_index: LOOPBACK, ..Meta::default() };
            let packet = Packet { data: &data, meta: &meta };
            let is_accepted = exact.run(packet, &memory) != 0;
            self.accepted += u64::from(is_accepted);
            for weaker in &mut machines {
                let is_left = weaker.run(packet, &memory) != 0;
                self.rejected += u64::from(!is_left);
                assert!(
                    is_left || !is_accepted,
                    "{about}\n{whole}\nis not implied:\n{}\n{data:02x?}",
                    weaker.ir()
                );
            }
        }
    }
}

#[test]
fn weaker_filters_accept_what_the_whole_accepts() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let (texts, seed) = (volume("TAPLINE_WEAKER_TEXTS", 400), number("TAPLINE_EBPF_SEED", 1));
    let mut random = Random::new(seed);
    let stock = Stock::new(pcap, &mut random);
    let mut stream = Texts::new(&mut random);
    let mut verdicts = Verdicts::default();
    let mut judged = 0;
    while judged < texts {
        let wording = stream.wording(&mut random);
        let Wording { dlt, ref text, scoped, ipv6_extensions, .. } = wording;
        let handle = *random.pick(&[HandleKind::Live, HandleKind::Front, HandleKind::Dead]);
        let options = Options {
            netmask: Some(0),
            handle,
            scoped,
            ipv6_extensions,
            ..Options::new(LinkType::from_dlt(dlt as u16))
        };
        let Ok(reference) = compile(text, &options) else { continue };
        let steering = LibpcapProgram::new(reference.insns().to_vec());
        let packet = |random: &mut Random| vary(stock.sample_for(&wording, random), &steering, random);
        verdicts.judge(reference.values(), text, &mut random, packet);
        judged += 1;
    }
    eprintln!("{judged} texts, seed {seed}: {verdicts:?}");
    assert!(verdicts.forms > texts / 2 && verdicts.accepted > 100 && verdicts.rejected > 100, "{verdicts:?}");
}

#[test]
fn weaker_graphs_accept_what_the_whole_accepts() {
    let mut random = Random::new(number("TAPLINE_EBPF_SEED", 1));
    let mut verdicts = Verdicts::default();
    for round in 0..volume("TAPLINE_WEAKER_GRAPHS", 2_000) {
        let mut whole = if round % 2 == 0 {
            random_graph(&mut random)
        } else {
            raise_program(&random_program(&mut random))
        };
        if round % 3 == 0 {
            optimise(&mut whole);
        }
        let packet = |random: &mut Random| (0..random.below(80)).map(|_| random.bits() as u8 & 15).collect();
        verdicts.judge(&whole, "a random graph", &mut random, packet);
    }
    assert!(verdicts.forms > 200 && verdicts.accepted > 100 && verdicts.rejected > 100, "{verdicts:?}");
}

/// The parts for a kernel that refuses computed places have none, and still distinguish protocols.
#[test]
fn the_weakest_front_reads_at_fixed_places() {
    let options = Options { handle: HandleKind::Front, ..Options::default() };
    let whole = compile("inbound and udp port 53", &options).expect("a filter");
    let weakest = weaker_fronts(whole.values()).last().expect("there is a weaker part");
    let values = weakest.order().into_iter().flat_map(|id| weakest[id].instructions.clone());
    let is_computed = |op: &Op| matches!(op, Op::Load(place, ..) | Op::Need(place) if place.base.is_some());
    assert!(values.clone().all(|value| !is_computed(weakest.op(value))), "{weakest}");
    assert!(emit(&weakest, Hook::Front(FRONT)).is_ok());
    let mut machine = Machine::new(weakest);
    let mut verdict = |protocol: u8, port: u8| {
        let mut data = frame(1, 2);
        (data[23], data[37]) = (protocol, port);
        let meta = Meta { wire_len: 60, ..Meta::default() };
        machine.run(Packet { data: &data, meta: &meta }, &Memory::new(0)) != 0
    };
    assert_eq!([verdict(17, 53), verdict(17, 80), verdict(6, 53)], [true, true, false]);
}

/// The packet type is not known in front: packets of both directions stay.
#[test]
fn unknown_metadata_keeps_the_packets_of_both_answers() {
    let options = Options { handle: HandleKind::Live, ..Options::default() };
    let tcp = compile("inbound and tcp", &options).expect("a filter");
    let weaker = weaker_fronts(tcp.values()).next().expect("the direction is unknown");
    let udp = compile("udp", &options).expect("a filter");
    assert!(
        weaken(
            udp.values(),
            &WeakerBounds { is_known: |_| true, has_variable_places: true, weight_max: 1000 }
        )
        .is_none()
    );
    let mut machine = Machine::new(weaker);
    let mut verdict = |protocol: u8, packet_type| {
        let mut data = frame(1, 2);
        data[23] = protocol;
        let meta = Meta { wire_len: 60, packet_type, ..Meta::default() };
        machine.run(Packet { data: &data, meta: &meta }, &Memory::new(0)) != 0
    };
    let [sent, received] = [PacketType::Outgoing, PacketType::Host];
    assert_eq!([verdict(6, received), verdict(6, sent), verdict(17, received)], [true, true, false]);
}
