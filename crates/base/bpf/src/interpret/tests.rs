use super::*;
use crate::Insn;
use tapline_packet::{PacketType, Record, VlanTag};

fn run(insns: &[Insn], data: &[u8], meta: &Meta) -> u32 {
    Program::new(insns.to_vec()).expect("valid").run(Packet { data, meta })
}

/// Loads the constants into A and X, does one operation, returns A.
fn compute(code: u16, a: u32, x: u32) -> u32 {
    let insns = [Insn::new(LD | IMM, a), Insn::new(LDX | IMM, x), Insn::new(code, x), Insn::new(RET | A, 0)];
    run(&insns, &[], &Meta::default())
}

#[test]
fn arithmetic_wraps_and_large_shifts_give_zero() {
    assert_eq!(compute(ALU | ADD | X, u32::MAX, 2), 1);
    assert_eq!(compute(ALU | SUB | K, 1, 2), u32::MAX);
    assert_eq!(compute(ALU | MUL | X, 1 << 31, 2), 0);
    assert_eq!(compute(ALU | LSH | X, 1, 32), 0);
    assert_eq!(compute(ALU | RSH | X, u32::MAX, 200), 0);
    assert_eq!(compute(ALU | RSH | K, u32::MAX, 31), 1);
    assert_eq!(compute(ALU | NEG, 1, 0), u32::MAX);
    assert_eq!(compute(ALU | MOD | X, 20, 7), 6);
    assert_eq!(compute(ALU | XOR | X, 6, 3), 5);
}

#[test]
fn division_by_a_zero_in_x_rejects() {
    let insns = [Insn::new(ALU | DIV | X, 0), Insn::new(RET | K, 9)];
    assert_eq!(run(&insns, &[], &Meta::default()), 0);
    assert_eq!(compute(ALU | DIV | X, 7, 2), 3);
}

#[test]
fn a_load_ends_at_the_captured_length() {
    let meta = Meta { wire_len: 100, ..Meta::default() };
    let load = |code: u16, k: u32| {
        let insns = [Insn::new(LDX | IMM, 1), Insn::new(code, k), Insn::new(RET | K, 9)];
        run(&insns, &[1, 2, 3, 4], &meta)
    };
    assert_eq!((load(LD | W | ABS, 0), load(LD | W | ABS, 1)), (9, 0));
    assert_eq!((load(LD | H | ABS, 2), load(LD | H | ABS, 3)), (9, 0));
    assert_eq!((load(LD | B | ABS, 3), load(LD | B | ABS, 4)), (9, 0));
    assert_eq!((load(LD | H | IND, 1), load(LD | H | IND, 2)), (9, 0));
    assert_eq!((load(LD | B | IND, 2), load(LD | B | IND, u32::MAX)), (9, 0));
    assert_eq!((load(LDX | B | MSH, 3), load(LDX | B | MSH, 4)), (9, 0));
}

#[test]
fn lengths_are_those_on_the_wire() {
    let meta = Meta { wire_len: 1500, ..Meta::default() };
    assert_eq!(run(&[Insn::new(LD | LEN, 0), Insn::new(RET | A, 0)], &[0; 60], &meta), 1500);
}

#[test]
fn scratch_cells_start_as_zero_and_keep_stores() {
    let insns = [
        Insn::new(LD | MEM, 5),
        Insn::jump(JMP | JEQ | K, 0, 0, 3),
        Insn::new(LDX | IMM, 77),
        Insn::new(STX, 5),
        Insn::new(LD | MEM, 5),
        Insn::new(RET | A, 0),
    ];
    assert_eq!(run(&insns, &[], &Meta::default()), 77);
}

#[test]
fn ancillary_loads_read_the_meta() {
    let meta = Meta {
        vlan: Some(VlanTag { tpid: 0x88a8, tci: 0xa123 }),
        packet_type: PacketType::OtherHost,
        if_index: 4,
        rx_hash: 0xdead_beef,
        ..Meta::default()
    };
    let load =
        |k: u32, meta: &Meta| run(&[Insn::new(LD | B | ABS, k), Insn::new(RET | A, 0)], &[0; 14], meta);
    assert_eq!(load(ancillary::VLAN_TAG, &meta), 0xa123);
    assert_eq!(load(ancillary::VLAN_TAG_PRESENT, &meta), 1);
    assert_eq!(load(ancillary::VLAN_TPID, &meta), 0x88a8);
    assert_eq!(load(ancillary::PKTTYPE, &meta), 3);
    assert_eq!(load(ancillary::IFINDEX, &meta), 4);
    assert_eq!(load(ancillary::RXHASH, &meta), 0xdead_beef);
    assert_eq!(load(ancillary::VLAN_TAG_PRESENT, &Meta::default()), 0);
    assert_eq!(load(ancillary::PROTOCOL, &meta), 4);
}

#[test]
fn loads_of_unknown_metadata_reject() {
    let insns = [Insn::new(LD | W | ABS, ancillary::MARK), Insn::new(RET | K, 9)];
    assert_eq!(run(&insns, &[0; 64], &Meta::default()), 0);
}

/// A chain, entered at its head and in its middle, agrees with the comparisons that it replaces.
#[test]
fn chains_agree_with_their_comparisons() {
    let constants = [50, 20, 40, 20, 30];
    let mut insns = vec![Insn::new(LD | B | ABS, 0), Insn::jump(JMP | JGT | K, 100, 2, 0)];
    let count = constants.len() as u8;
    for (i, k) in constants.into_iter().enumerate() {
        insns.push(Insn::jump(JMP | JEQ | K, k, count - 1 - i as u8, u8::from(i == 4)));
    }
    insns.extend([Insn::new(RET | K, 1), Insn::new(RET | K, 0)]);
    let program = Program::new(insns).expect("valid");
    assert!(matches!(program.decoded.ops[2], Op::Among(0)));
    for value in 0..=255_u8 {
        let accepted = program.run(Packet { data: &[value], meta: &Meta::default() }) != 0;
        assert_eq!(accepted, constants.contains(&value.into()), "{value}");
    }
}

#[test]
fn long_chains_are_searched_too() {
    let mut insns = vec![Insn::new(LD | W | ABS, 0)];
    insns.extend((0..100).map(|i| Insn::jump(JMP | JEQ | K, i * 7, 99 - i as u8, u8::from(i == 99))));
    insns.extend([Insn::new(RET | K, 1), Insn::new(RET | K, 0)]);
    let program = Program::new(insns).expect("valid");
    for value in 0..1000_u32 {
        let accepted = program.run(Packet { data: &value.to_be_bytes(), meta: &Meta::default() }) != 0;
        assert_eq!(accepted, value % 7 == 0 && value < 700, "{value}");
    }
}

#[test]
fn select_keeps_the_packets_that_run_accepts() {
    let program = Program::new(vec![
        Insn::new(LD | B | ABS, 0),
        Insn::jump(JMP | JSET | K, 1, 0, 1),
        Insn::new(RET | K, 1),
        Insn::new(RET | K, 0),
    ])
    .expect("valid");
    let base: Vec<u8> = (0..10).collect();
    let records: Vec<Record> =
        (0..10).map(|offset| Record { offset, cap_len: 1, ..Record::default() }).collect();
    let batch = Batch::new(&base, &records);
    let mut selection = Selection::none();
    selection.select_all(batch.len());
    program.select(&batch, &mut selection);
    assert_eq!(selection.iter().collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
}
