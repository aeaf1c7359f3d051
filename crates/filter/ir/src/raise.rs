//! From the accumulator machine to values: block graphs, and so classic BPF programs, as [`Ir`].
//!
//! ```text
//! ldh [12]; jeq #0x800 jt jf      need 14; v1 = load16 [12]; branch v1 == 0x800 ? b1 : b2
//! ldx 4*([14]&0xf); ldh [x+16]    need 15; v2 = load8 [14]; v3 = (v2 & 15) << 2; need v3+18; v4 = load16 [v3+16]
//! st M[0]; ...; ld M[0]           nothing: the value is known, or a parameter where paths join
//! ```
//!
//! Registers and scratch cells start as 0. A load of metadata that no capture holds (mark, queue, random number, ...)
//! rejects the packet, as in the interpreter, [`tapline_bpf`].

use super::{
    Binary, BlockId, Builder, Case, Comparison, Ir, MetaField, Op, PacketOffset, SwitchSearch, Target,
    Terminator, Type, Value, Variables, Width,
};
use tapline_bpf::cfg::{self, Alu, Cfg, Operand, Statement};
use tapline_bpf::{Program, ancillary};

/// A classic BPF program as a graph of values.
pub fn raise_program(program: &Program) -> Ir {
    raise(&tapline_bpf::decode(program))
}

/// A block graph as a graph of values.
pub fn raise(cfg: &Cfg) -> Ir {
    let mut builder = Builder::new();
    let order = cfg.order();
    let blocks: Vec<BlockId> = cfg.blocks.iter().map(|_| builder.block()).collect();
    let start = builder.block();
    builder.switch_to(start);
    let zero = builder.const32(0);
    builder.goto(blocks[cfg.entry.0 as usize]);
    let mut variables = Variables::new(&builder, &[zero; REGISTERS]);
    variables.leave(&builder);
    let live = live(cfg, &order);
    let mut raise = Raise { builder, variables, blocks };
    for &id in &order {
        let wanted = live[id.0 as usize];
        raise.variables.enter(&mut raise.builder, raise.blocks[id.0 as usize], |n| wanted & 1 << n != 0);
        raise.block(cfg, id);
        raise.variables.leave(&raise.builder);
    }
    raise.builder.build(start)
}

const A: usize = 0;
const X: usize = 1;
const REGISTERS: usize = cfg::CELLS as usize + 2;

const fn cell(n: u8) -> usize {
    n as usize + 2
}

struct Raise {
    builder: Builder,
    variables: Variables,
    blocks: Vec<BlockId>,
}

impl Raise {
    fn block(&mut self, cfg: &Cfg, id: cfg::BlockId) {
        let block = &cfg[id];
        for &statement in &block.statements {
            self.statement(statement);
        }
        match block.terminator {
            cfg::Terminator::Goto(next) => self.builder.goto(self.blocks[next.0 as usize]),
            cfg::Terminator::Return(k) => {
                let value = self.builder.const32(k);
                self.builder.finish(Terminator::Return(value));
            }
            cfg::Terminator::ReturnA => {
                let value = self.variables.get(A);
                self.builder.finish(Terminator::Return(value));
            }
            cfg::Terminator::Branch { test, operand, on_true, on_false } => {
                let (left, right) = (self.variables.get(A), self.operand(operand));
                let (yes, no) = (self.blocks[on_true.0 as usize], self.blocks[on_false.0 as usize]);
                self.builder.branch(question(test), left, right, yes, no);
            }
            cfg::Terminator::OneOf { list, on_true, on_false } => {
                let [yes, no] = [on_true, on_false].map(|block| Target::to(self.blocks[block.0 as usize]));
                let case = |key: &u32| Case { key: (*key).into(), to: yes.clone() };
                let cases = cfg.list(list).iter().map(case).collect();
                let value = self.variables.get(A);
                let search = SwitchSearch::Binary;
                self.builder.finish(Terminator::Switch { value, cases, default: no, search });
            }
        }
    }

    fn statement(&mut self, statement: Statement) {
        let (a, x) = (self.variables.get(A), self.variables.get(X));
        let builder = &mut self.builder;
        let (register, value) = match statement {
            Statement::LoadConst(k) => (A, builder.const32(k)),
            Statement::LoadPacket(_, ancillary::ALU_XOR_X) => (A, builder.binary(Binary::Xor, a, x)),
            Statement::LoadPacket(_, k) if k >= ancillary::BASE => (A, self.metadata(k)),
            Statement::LoadPacket(w, k) => (A, builder.load(PacketOffset::at(k), width(w))),
            Statement::LoadIndexed(w, k) => (A, builder.load(PacketOffset::from(x, k), width(w))),
            Statement::LoadLen => (A, builder.field(MetaField::WireLen)),
            Statement::LoadCell(n) => (A, self.variables.get(cell(n))),
            Statement::LoadXConst(k) => (X, builder.const32(k)),
            Statement::LoadXCell(n) => (X, self.variables.get(cell(n))),
            Statement::LoadXLen => (X, builder.field(MetaField::WireLen)),
            Statement::LoadXHeaderLen(k) => (X, self.header_len(k)),
            Statement::Store(n) => (cell(n), a),
            Statement::StoreX(n) => (cell(n), x),
            Statement::Alu(op, operand) => {
                let operand = self.operand(operand);
                (A, self.builder.binary(arithmetic(op), a, operand))
            }
            Statement::Negate => {
                let zero = builder.const32(0);
                (A, builder.binary(Binary::Sub, zero, a))
            }
            Statement::Tax => (X, a),
            Statement::Txa => (A, x),
        };
        self.variables.set(register, value);
    }

    fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::K(k) => self.builder.const32(k),
            Operand::X => self.variables.get(X),
        }
    }

    /// 4 * (pkt[k] & 15).
    fn header_len(&mut self, k: u32) -> Value {
        let byte = self.builder.load(PacketOffset::at(k), Width::Byte);
        let (low, two) = (self.builder.const32(0x0f), self.builder.const32(2));
        let words = self.builder.binary(Binary::And, byte, low);
        self.builder.binary(Binary::Shl, words, two)
    }

    fn metadata(&mut self, k: u32) -> Value {
        let field = match k {
            ancillary::PROTOCOL => return self.protocol(),
            ancillary::PKTTYPE => MetaField::PacketType,
            ancillary::IFINDEX => MetaField::InterfaceIndex,
            ancillary::RXHASH => MetaField::ReceiveHash,
            ancillary::VLAN_TAG => MetaField::VlanTag,
            ancillary::VLAN_TAG_PRESENT => MetaField::VlanPresent,
            ancillary::VLAN_TPID => MetaField::VlanProtocol,
            _ => {
                let zero = self.builder.const32(0);
                self.builder.push(Op::NonZero(zero), Type::None);
                return zero;
            }
        };
        self.builder.field(field)
    }

    /// `skb->protocol` as `eth_type_trans` sets it: the EtherType, or 1 (raw IPX) or 4 (LLC) where the field is a
    /// length. The blocks that this takes all leave the variables as they are.
    fn protocol(&mut self) -> Value {
        const RAW_802_3: u32 = 0x0001;
        const LLC_802_2: u32 = 0x0004;
        let builder = &mut self.builder;
        let ether_type = builder.load(PacketOffset::at(12), Width::Half);
        let first_type = builder.const32(0x0600);
        let [length, longer, done] = [(); 3].map(|()| builder.block());
        let result = builder.parameter(done, Type::U32);
        let end = |block: BlockId, value: Value| Target { block, arguments: vec![value] };
        builder.finish(Terminator::Branch {
            test: Comparison::GreaterEqual,
            left: ether_type,
            right: first_type,
            yes: end(done, ether_type),
            no: Target::to(length),
        });
        self.variables.leave(builder);
        self.variables.enter(builder, length, |_| true);
        let captured = builder.field(MetaField::CapLen);
        let (enough, llc) = (builder.const32(16), builder.const32(LLC_802_2));
        builder.finish(Terminator::Branch {
            test: Comparison::GreaterEqual,
            left: captured,
            right: enough,
            yes: Target::to(longer),
            no: end(done, llc),
        });
        self.variables.leave(builder);
        self.variables.enter(builder, longer, |_| true);
        let first = builder.load(PacketOffset::at(14), Width::Half);
        let (ones, ipx) = (builder.const32(0xffff), builder.const32(RAW_802_3));
        builder.finish(Terminator::Branch {
            test: Comparison::Equal,
            left: first,
            right: ones,
            yes: end(done, ipx),
            no: end(done, llc),
        });
        self.variables.leave(builder);
        self.variables.enter(builder, done, |_| true);
        result
    }
}

fn width(width: cfg::Width) -> Width {
    match width {
        cfg::Width::Byte => Width::Byte,
        cfg::Width::Half => Width::Half,
        cfg::Width::Word => Width::Word,
    }
}

fn question(test: cfg::JumpTest) -> Comparison {
    match test {
        cfg::JumpTest::Equal => Comparison::Equal,
        cfg::JumpTest::Greater => Comparison::Greater,
        cfg::JumpTest::GreaterEqual => Comparison::GreaterEqual,
        cfg::JumpTest::AnySet => Comparison::AnySet,
    }
}

fn arithmetic(op: Alu) -> Binary {
    match op {
        Alu::Add => Binary::Add,
        Alu::Sub => Binary::Sub,
        Alu::Mul => Binary::Mul,
        Alu::Div => Binary::Div,
        Alu::Mod => Binary::Mod,
        Alu::And => Binary::And,
        Alu::Or => Binary::Or,
        Alu::Xor => Binary::Xor,
        Alu::Shl => Binary::Shl,
        Alu::Shr => Binary::Shr,
    }
}

/// For each block the registers, as bits, that are read in it or behind it before they are written.
fn live(cfg: &Cfg, order: &[cfg::BlockId]) -> Vec<u32> {
    let mut live = vec![0_u32; cfg.blocks.len()];
    for &id in order.iter().rev() {
        let block = &cfg[id];
        let mut here = block.terminator.successors().fold(0, |all, next| all | live[next.0 as usize]);
        here |= match block.terminator {
            cfg::Terminator::Branch { operand: Operand::X, .. } => 1 << A | 1 << X,
            cfg::Terminator::Branch { .. } | cfg::Terminator::OneOf { .. } | cfg::Terminator::ReturnA => {
                1 << A
            }
            _ => 0,
        };
        for &statement in block.statements.iter().rev() {
            here = here & !(1 << statement.writes()) | statement.reads();
        }
        live[id.0 as usize] = here;
    }
    live
}
