use crate::{FplOptions, compile, hash, report};
use tapline_ir::optimise::{optimise, optimise_with_observer};
use tapline_ir::{Machine, Memory};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Ipv4, Udp, vlan};

/// The verdict, which the form gives as it was made and after all passes.
fn run_on(text: &str, options: &FplOptions, data: &[u8]) -> u64 {
    let compiled = compile(text, options).unwrap_or_else(|error| panic!("{}", report(&error, text)));
    let mut optimised = compiled.ir.clone();
    optimise(&mut optimised);
    let verdicts = [compiled.ir, optimised].map(|ir| {
        assert_eq!(ir.verify(), Ok(()), "{text}");
        let memory = Memory::new(ir.cells);
        let meta = Meta { wire_len: 1500, ..Meta::default() };
        Machine::new(ir).run(Packet { data, meta: &meta }, &memory)
    });
    assert_eq!(verdicts[0], verdicts[1], "after all passes: {text}");
    verdicts[0]
}

fn run(text: &str, data: &[u8]) -> u64 {
    run_on(text, &FplOptions::default(), data)
}

const BYTES: [u8; 12] = [0x12, 0x9a, 0xff, 0x80, 0x00, 0x01, 0x7f, 0xfe, 0xc3, 0x3c, 0x55, 0xaa];

#[test]
fn operands_have_the_values_that_a_hand_gives_them() {
    for (expr, value) in [
        ("PKT.B[0]", 0x12),
        ("PKT.W[0]", 0x129a),
        ("PKT.DW[0]", 0x129a_ff80),
        ("PKT.QW[0]", 0x129a_ff80_0001_7ffe),
        ("PKT.B[11]", 0xaa),
        ("PKT.SB[1]", -0x66),
        ("PKT.SW[2]", -0x80),
        ("PKT.SDW[8]", -0x3cc3_aa56),
        ("PKT.SQW[0]", 0x129a_ff80_0001_7ffe),
        ("PKT.B[1].U1[0]", 1),
        ("PKT.B[1].U1[1]", 0),
        ("PKT.B[1].U4[0]", 9),
        ("PKT.B[1].U4[1]", 10),
        ("PKT.B[1].S4[0]", -7),
        ("PKT.B[1].S1[0]", -1),
        ("PKT.W[0].U8[1]", 0x9a),
        ("PKT.W[0].U1[15]", 0),
        ("PKT.DW[0].U16[1]", 0xff80),
        ("PKT.DW[0].S16[1]", -0x80),
        ("PKT.QW[0].U32[1]", 0x0001_7ffe),
        ("PKT.QW[0].U16[PKT.B[5]]", 0xff80),
        ("PKT.DW[0].U8[PKT.B[5] + 4]", 0x9a),
        ("PKT.B[PKT.B[5] + 1]", 0xff),
        ("PKT.LEN", 12),
        ("PKT.WIRE_LEN", 1500),
        ("S8(0x80)", -128),
        ("U4(0x99)", 9),
        ("S32(0xffff_ffff)", -1),
        ("U32(-1)", 0xffff_ffff),
        ("S64(PKT.B[0] - 0x13)", -1),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("PKT.SB[1] / 5", -20),
        ("PKT.SB[1] % 5", -2),
        ("PKT.SB[1] / -5", 20),
        ("PKT.SB[1] >> 1", -51),
        ("PKT.SB[1] >> 100", -1),
        ("PKT.B[1] >> 100", 0),
        ("PKT.B[1] << 64", 0),
        ("PKT.SB[1] < 0", 1),
        ("PKT.SB[1] < PKT.SB[0]", 1),
        ("PKT.B[1] < PKT.B[0]", 0),
        ("PKT.B[0] != 0x12", 0),
        ("~PKT.B[0] & 0xff", 0xed),
        ("!PKT.B[4]", 1),
        ("!PKT.B[0]", 0),
        ("PKT.B[4] || PKT.B[0]", 1),
        ("PKT.B[4] && PKT.B[100]", 0),
        ("PKT.B[0] || PKT.B[100]", 1),
        ("PKT.B[0] == 0x12 && PKT.B[2] > 3", 1),
        ("1 + 2 * 3 == 7", 1),
        ("6 & 3 == 2", 1),
        ("18446744073709551615 + 1", 0),
        ("0 - 1 == 0xffff_ffff_ffff_ffff", 1),
    ] {
        assert_eq!(run(&format!("RETURN {expr};"), &BYTES) as i64, value, "{expr}");
    }
}

#[test]
fn absent_headers_end_the_program_with_0() {
    for expr in [
        "PKT.B[12]",
        "PKT.W[11]",
        "PKT.DW[9]",
        "PKT.QW[5]",
        "PKT.B[PKT.B[2]]",
        "PKT.B[M[9] - 1]",
        "PKT.B[M[9] - 1 - PKT.B[4]]",
        "PKT.DW[9].U8[0]",
        "PKT.B[100] || 1",
        "1 / PKT.B[4]",
        "1 % PKT.B[4]",
        "S64(1) / S64(PKT.B[4])",
        "HASH(6, 7, 0) + 1",
        "HASH(PKT.B[0], 1, 0) + 1",
        "HASH(PKT.B[5], 12, 0) + 1",
        "HASH(M[9] - 1, PKT.B[0], 0) + 1",
        "HASH(PKT.B[5], -PKT.B[5], 0) + 1",
    ] {
        let text = format!("M[0] = 7; R[0] = {expr}; RETURN 1;");
        assert_eq!(run(&text, &BYTES), 0, "{expr}");
    }
}

#[test]
fn memory_written_before_the_end_stays_written() {
    let compiled =
        compile("M[3]++; R[0] = PKT.B[50]; M[4]++; RETURN 1;", &FplOptions::default()).expect("a program");
    let memory = Memory::new(compiled.ir.cells);
    let mut machine = Machine::new(compiled.ir);
    for _ in 0..3 {
        assert_eq!(machine.run(Packet { data: &BYTES, meta: &Meta::default() }, &memory), 0);
    }
    assert_eq!([memory.get(3), memory.get(4)], [3, 0]);
}

#[test]
fn statements_have_their_documented_effect() {
    for (text, value) in [
        ("", 0),
        ("R[0] = 5; RETURN R[0] + R[1];", 5),
        ("R[0] = 5; R[0]++; ++R[0]; R[0]--; RETURN R[0];", 6),
        ("M[1030] = 1;", u64::MAX),
        ("R[1] = M[9] + 1030; M[R[1]] = 4; RETURN M[6];", 4),
        ("M[1] = 6; M[1] <<= 2; M[1] -= 4; M[1] %= 7; RETURN MEM[1];", 6),
        ("IF (PKT.B[0] == 0x12) THEN R[0] = 1; ELSE R[0] = 2; FI RETURN R[0];", 1),
        ("IF (PKT.B[0] == 0x13) THEN R[0] = 1; ELSE R[0] = 2; FI; RETURN R[0];", 2),
        ("IF (PKT.B[0] == 0x13) THEN RETURN 9; FI RETURN 3;", 3),
        ("FOR (R[0] = 0; R[0] < PKT.LEN; R[0]++) R[1] += PKT.B[R[0]]; ROF RETURN R[1];", 1447),
        ("FOR (R[0] = 0; R[0] < 10; R[0] += 3) R[1]++; ROF RETURN R[1] * 100 + R[0];", 412),
        ("FOR (R[0] = 5; R[0] > 2; R[0]--) R[1] += R[0]; ROF RETURN R[1] * 100 + R[0];", 1202),
        (
            "FOR (R[0] = 0; R[0] < 10; R[0]++) IF (R[0] == 4) THEN BREAK; FI R[1]++; ROF RETURN R[1] * 100 + R[0];",
            404,
        ),
        (
            "FOR (R[0] = 0; R[0] < 4; R[0]++) FOR (R[1] = 0; R[1] < 4; R[1]++) IF (R[1] > R[0]) THEN BREAK; FI R[2]++; ROF ROF RETURN R[2];",
            10,
        ),
        ("R[1] = 3; FOR (R[0] = 0; R[0] < R[1]; R[0]++) R[1] = 100; ROF RETURN R[0];", 3),
        (
            "FOR (R[0] = 0; R[0] < 4; R[0]++) IF (PKT.B[R[0]] == 0xff) THEN RETURN R[0] + 10; FI ROF RETURN 1;",
            12,
        ),
        ("FOR (R[0] = 9; R[0] < 4; R[0]++) RETURN 1; ROF RETURN R[0];", 9),
        ("CONST N = 3; MACRO AT(i) = PKT.B[i + N]; MACRO X = R[2]; X = AT(N * 2); RETURN X;", 0x3c),
        ("MACRO DOUBLE(a) = a * 2; RETURN DOUBLE(1 + 2);", 6),
        ("MACRO F(x) = x + 1; MACRO G(x) = F(x * 2) + x; RETURN G(5);", 16),
        ("M[5] = 2; M[6] = EXTERN(sample, 5, 7); RETURN EXTERN(sample, 5, 7) * 10 + M[6];", 10),
        ("EXTERN(count, 0, 8); EXTERN(count, 0, 8); RETURN M[8] * 10000 + M[9];", 23_000),
    ] {
        if value == u64::MAX {
            assert!(compile(text, &FplOptions::default()).is_err(), "{text}");
        } else {
            assert_eq!(run(text, &BYTES), value, "{text}");
        }
    }
}

#[test]
fn hash_is_the_one_that_applications_compute() {
    let data: Vec<u8> = (0..200u8).map(|byte| byte.wrapping_mul(91)).collect();
    for seed in [0, 0x1234_5678_9abc_def0] {
        let options = FplOptions { hash_seed: seed, ..FplOptions::default() };
        for start in [0usize, 3, 17] {
            for len in (0..80).chain([120, 183]) {
                let wanted = hash(&data[start..start + len], seed);
                let constant = run_on(&format!("RETURN HASH({start}, {len}, ~0);"), &options, &data);
                let computed = format!("R[0] = {start}; R[1] = {len}; RETURN HASH(R[0], R[1], ~0);");
                assert_eq!([constant, run_on(&computed, &options, &data)], [wanted; 2], "{start} {len}");
            }
        }
    }
    assert_eq!(run("RETURN HASH(0, 12, 1023);", &BYTES), hash(&BYTES, 0) & 1023);
}

#[test]
fn bytes_beyond_the_longest_packet_do_not_count() {
    let options = FplOptions { packet_len_max: 8, ..FplOptions::default() };
    assert_eq!(run_on("RETURN PKT.LEN;", &options, &BYTES), 8);
    assert_eq!(run_on("RETURN PKT.B[M[0] + 11];", &options, &BYTES), 0xaa);
    assert_eq!(run_on("RETURN HASH(0, M[0] + 9, 0) + 1;", &options, &BYTES), 0);
}

#[test]
fn fields_are_found_on_every_link_type() {
    let ips = IpPair::between(&Host::number(1), &Host::number(2), IpVersion::V4);
    let IpPair::V4(src, dst) = ips else { panic!("asked for version 4") };
    let datagram = Udp { src: 1000, dst: 2000 }.datagram(ips, b"data");
    let plain = Ipv4::new(src, dst, 17).packet(&datagram);
    let with_options = Ipv4 { options: vec![1; 8], ..Ipv4::new(src, dst, 17) }.packet(&datagram);
    let v6 = Udp { src: 1000, dst: 2000 }
        .packet(IpPair::between(&Host::number(1), &Host::number(2), IpVersion::V6), b"data");
    let ethernet = Ethernet { dst: [2; 6], src: [4; 6] };
    let frame = ethernet.frame(0x800, &with_options);
    let text = "RETURN PKT.UDP_DPORT == 2000 && PKT.DATA_LEN == 4 && PKT.DW[PKT.DATA_START] == 'data';";
    for (link_type, data) in [
        (LinkType::ETHERNET, ethernet.frame(0x800, &plain)),
        (LinkType::ETHERNET, [ethernet.frame(0x800, &plain), vec![0; 20]].concat()),
        (LinkType::ETHERNET, frame.clone()),
        (LinkType::ETHERNET, vlan(&frame, 0x8100, 5)),
        (LinkType::ETHERNET, vlan(&vlan(&frame, 0x8100, 5), 0x88a8, 6)),
        (LinkType::ETHERNET, ethernet.frame(0x86dd, &v6)),
        (LinkType::RAW, plain.clone()),
        (LinkType::RAW, v6.clone()),
        (LinkType::IPV6, v6.clone()),
        (LinkType::LINUX_SLL, [&[0; 14][..], &[8, 0], &plain].concat()),
        (LinkType::LINUX_SLL2, [&[8, 0][..], &[0; 18], &plain].concat()),
    ] {
        let options = FplOptions { link_type, ..FplOptions::default() };
        assert_eq!(run_on(text, &options, &data), 1, "{link_type} {data:02x?}");
    }
    let three = vlan(&vlan(&vlan(&frame, 0x8100, 5), 0x8100, 6), 0x8100, 7);
    assert_eq!(run("RETURN PKT.ETH_TYPE * 10 + PKT.IS_UDP;", &three), 0x8100 * 10);
}

#[test]
fn only_programs_with_memory_or_calls_have_state() {
    for (text, has_state) in [
        ("RETURN PKT.TCP_DPORT == 80;", false),
        ("FOR (R[0] = 0; R[0] < 9; R[0]++) R[1] ^= HASH(R[0], 3, 7); ROF RETURN R[1];", false),
        ("RETURN M[0];", true),
        ("M[0] = 1;", true),
        ("EXTERN(count, 0, 0);", true),
    ] {
        let compiled = compile(text, &FplOptions::default()).expect(text);
        assert_eq!(compiled.ir.has_state(), has_state, "{text}");
        assert_eq!(compiled.ir.cells, if has_state { 1024 } else { 0 }, "{text}");
    }
}

#[test]
fn a_function_cannot_reach_beside_its_cells() {
    use crate::{External, Registry};
    let mut registry = Registry::new();
    registry.insert(External::new("greedy", 1, 2, |call| {
        (0..10).for_each(|cell| call.set_output(cell, 9));
        call.input(0) + call.input(1) + call.output(1) + call.output(2)
    }));
    let options =
        FplOptions { memory_cells: 16, registry: std::sync::Arc::new(registry), ..FplOptions::default() };
    let compiled = compile("M[0] = 1; M[1] = 5; RETURN EXTERN(greedy, 0, 14);", &options).expect("a program");
    let memory = Memory::new(16);
    let verdict =
        Machine::new(compiled.ir.clone()).run(Packet { data: &BYTES, meta: &Meta::default() }, &memory);
    assert_eq!(verdict, 10);
    let cells: Vec<u64> = (0..16).map(|cell| memory.get(cell)).collect();
    assert_eq!(cells, [1, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9]);
    // A memory smaller than the program was compiled for: the call does nothing.
    let small = Memory::new(8);
    assert_eq!(Machine::new(compiled.ir).run(Packet { data: &BYTES, meta: &Meta::default() }, &small), 0);
    assert_eq!(small.get(7), 0);
}

/// The loop asks one question a round, whichever of the two limits is the lesser, and has the result of the written
/// loop.
#[test]
fn two_limits_of_a_loop_become_one() {
    let text = "FOR (R[0] = 0; R[0] < 16; R[0]++) IF (R[0] >= M[4]) THEN BREAK; FI R[1] += M[8 + R[0]] + PKT.B[R[0]]; ROF
                RETURN R[1] * 100 + R[0];";
    let ir = compile(text, &FplOptions::default()).expect("a program").ir;
    let mut optimised = ir.clone();
    let mut seen = Vec::new();
    optimise_with_observer(&mut optimised, |pass, ir| {
        assert_eq!(ir.verify(), Ok(()), "{}", pass.name);
        seen.push(pass.name);
    });
    assert!(seen.contains(&"hoist") && seen.contains(&"limits"), "{seen:?}\n{optimised}");
    let mut machines = [Machine::new(ir), Machine::new(optimised)];
    for held in [0, 1, 2, 11, 15, 16, 17, 1000, u64::MAX] {
        for len in 0..BYTES.len() {
            let memory = Memory::new(1024);
            memory.set(4, held);
            (0..20).for_each(|cell| memory.set(8 + cell, cell * cell));
            let packet = Packet { data: &BYTES[..len], meta: &Meta::default() };
            let verdicts = machines.each_mut().map(|machine| machine.run(packet, &memory));
            assert_eq!(verdicts[0], verdicts[1], "{held} held, {len} bytes");
            // Rounds beyond the packet end the program.
            let rounds = held.min(16);
            assert_eq!(verdicts[0] == 0, rounds > len as u64 || rounds == 0, "{held} held, {len} bytes");
        }
    }
}

/// Headers are not looked for where the left side of && decides: neither extension headers nor ports.
#[test]
fn fields_are_looked_for_where_they_are_read() {
    let graph = |text: &str| {
        let mut ir = compile(text, &FplOptions::default()).expect("a program").ir;
        optimise(&mut ir);
        ir.order().len()
    };
    let loops = |text: &str| {
        let mut ir = compile(text, &FplOptions::default()).expect("a program").ir;
        optimise(&mut ir);
        ir.loops.iter().filter(|one| ir.order().contains(&one.header)).count()
    };
    assert_eq!(loops("RETURN PKT.IP_PROTO == PROTO_TCP && PKT.TCP_DPORT == 80;"), 0);
    assert_eq!(loops("RETURN PKT.TCP_DPORT == 80;"), 1);
    assert!(graph("RETURN PKT.IS_IP6;") < graph("RETURN PKT.IS_IP6 && PKT.IS_UDP;"));
    // Before a choice, where both sides or what follows read it: found once.
    assert_eq!(
        loops("IF (PKT.B[0]) THEN R[0] = PKT.TCP_DPORT; ELSE R[0] = PKT.UDP_DPORT; FI RETURN R[0];"),
        1
    );
    assert_eq!(loops("IF (PKT.B[0]) THEN R[0] = PKT.TCP_DPORT; FI RETURN R[0] + PKT.TCP_SPORT;"), 1);
    assert_eq!(loops("IF (PKT.B[0] || PKT.TCP_DPORT) THEN R[0] = PKT.TCP_SPORT; FI RETURN R[0];"), 1);
}
