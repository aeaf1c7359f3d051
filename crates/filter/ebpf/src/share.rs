//! A program that shares packets among the members of a fanout group by flow, fragments with their flow.
//!
//! ```text
//! frame  := (VLAN tag | PPPoE | MPLS labels)* ip                      at most 4 tags, 6 labels
//! ip     := IPv4 | IPv6 extension*, then ports | GRE frame | ip | MPLS  at most 4 IP headers, each with 4 extensions
//!
//! side   := mixed((address, port) ^ seed)                             of the innermost IP header
//! hash   := mixed(side + side + protocol)                             of both directions the same
//!
//! first fragment   goes by its hash, which is noted for (addresses, identification), and for (addresses)
//! later fragment   goes by the hash of its packet; if there is none it is counted, and goes by the one that was noted
//!                  last for its addresses; else by addresses and protocol
//! without IP       by MAC addresses and EtherType; ARP by the EtherType, as its requests and answers share no addresses
//! ```
//!
//! The kernel's own hash (`PACKET_FANOUT_HASH`) looks at no ports of any fragment, so it sends fragments elsewhere than
//! the whole packets of their flow; and a program has no way to ask for it (`__sk_buff.hash` is that of the adapter or
//! of the sender, another one for each direction). So this program reads the headers that the kernel reads. The
//! kernel's flag for fragments (`PACKET_FANOUT_FLAG_DEFRAG`) puts packets together before they are captured: the capture
//! then has packets that were never on the wire.
//!
//! Headers are copied to the stack, from whatever buffer of the packet: two calls for most packets. A header that is
//! cut off ends the search: the packet goes by what was read before.

mod headers;

use super::{Hook, Program};
use tapline_bpf::ebpf::code::*;
use tapline_bpf::ebpf::{
    Assembler, CONTEXT, FRAME, Insn, Label, R0, R1, R2, R3, R4, R5, R7, R8, R9, Register, helper, sk_buff,
};
use tapline_packet::mix::{MIX, MIX_LAST};

/// Parameters of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowShare {
    /// Descriptor of a hash table with keys of [`FlowShare::KEY_LEN`] bytes and values of [`FlowShare::VALUE_LEN`], in
    /// the process that loads the program.
    pub fragments: i32,
    /// Descriptor of an array of one value of 8 bytes: the number of later fragments whose first one is not known.
    pub apart: i32,
    /// Secret without which nobody can choose flows for one member.
    pub seed: u64,
    /// Bytes before the network header of packets that this host sends: 14 on Ethernet, the last two of which are the
    /// EtherType, or 0.
    pub sent_header_len: u32,
}

impl FlowShare {
    /// Bytes of a key of the table of fragments.
    pub const KEY_LEN: u32 = 24;
    /// Bytes of a value of it.
    pub const VALUE_LEN: u32 = 4;
}

// The stack. A key is two addresses as they are in SIDES, the identification, and the kind.
const HEADER: i16 = -40;
const SIDES: [i16; 2] = [-48, -56];
const HASH: i16 = -64;
const KEY: i16 = -88;
/// The key of the outermost first fragment; its kind is 0 if there is none.
const NOTED: i16 = -112;
const KEY_WORDS: [i16; 3] = [0, 8, 16];
const KEY_ID: i16 = 16;
const KEY_KIND: i16 = 20;

// Kinds of keys: with the protocol in IPv4 (RFC 791), without in IPv6 (RFC 8200, 4.5); for addresses without a packet.
const KIND_V4: i32 = 0x100;
const KIND_V6: u32 = 0x200;
const KIND_LAST: i32 = 0x400;

/// IP headers, one in the other.
const DEPTH_MAX: usize = 4;

/// `PACKET_OUTGOING` of linux/if_packet.h.
const OUTGOING: i32 = 4;

const ARP: [i32; 2] = [in_memory(0x0806), in_memory(0x8035)];

/// Two bytes in network order as a load from memory gives them.
const fn in_memory(half: u16) -> i32 {
    half.to_be() as i32
}

/// The program.
pub fn flow_share(share: FlowShare) -> Program {
    let mut program = Dissector { assembler: Assembler::default(), share, labels: 0 };
    let common = Common::new(&mut program);
    let outermost = Depth::new(&mut program, common.without_ip);
    let mut depths = vec![outermost];
    depths.extend((1..DEPTH_MAX).map(|_| Depth::new(&mut program, common.addresses)));
    program.start(outermost);
    for (number, &depth) in depths.iter().enumerate() {
        program.frame(depth);
        program.v4(depth, common);
        program.v6(depth, common);
        program.transport(depth, depths.get(number + 1), common);
    }
    program.without_ip(common);
    program.later_fragment(common);
    program.hash(common);
    program.note(common);
    let insns = program.assembler.finish().unwrap_or_default();
    Program { insns: insns.into_boxed_slice(), hook: Hook::SocketFilter }
}

/// Labels of the program that all depths share.
#[derive(Clone, Copy)]
struct Common {
    without_ip: Label,
    /// A later fragment, with its key.
    later: Label,
    /// Two ports at the offset in r8.
    ports: Label,
    /// No ports.
    addresses: Label,
    /// The hash in r7.
    note: Label,
}

impl Common {
    fn new(program: &mut Dissector) -> Common {
        Common {
            without_ip: program.fresh(),
            later: program.fresh(),
            ports: program.fresh(),
            addresses: program.fresh(),
            note: program.fresh(),
        }
    }
}

/// Labels of one IP header and of what may be before it.
#[derive(Clone, Copy)]
struct Depth {
    /// The header of the EtherType in r7 at the offset in r8; likewise the next two.
    frame: Label,
    v4: Label,
    v6: Label,
    /// The header of the protocol in r9.
    transport: Label,
    /// There is no IP header, or not all of it.
    otherwise: Label,
}

impl Depth {
    fn new(program: &mut Dissector, otherwise: Label) -> Depth {
        let [frame, v4, v6, transport] = [(); 4].map(|()| program.fresh());
        Depth { frame, v4, v6, transport, otherwise }
    }
}

/// r6: context; r7: EtherType, later the hash; r8: offset of the next header; r9: protocol. The others are lost in calls.
struct Dissector {
    assembler: Assembler,
    share: FlowShare,
    labels: u32,
}

impl Dissector {
    fn fresh(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    fn label(&mut self, label: Label) {
        self.assembler.label(label);
    }

    fn push(&mut self, insn: Insn) {
        self.assembler.push(insn);
    }

    fn push_all<const N: usize>(&mut self, insns: [Insn; N]) {
        insns.into_iter().for_each(|insn| self.push(insn));
    }

    fn jump(&mut self, to: Label) {
        self.assembler.jump(Insn::GOTO, to);
    }

    fn jump_if(&mut self, test: u8, left: Register, right: i32, to: Label) {
        self.assembler.jump(Insn::jump_immediate(test, true, left, right), to);
    }

    fn jump_if_one_of(&mut self, left: Register, values: &[i32], to: Label) {
        values.iter().for_each(|&value| self.jump_if(JEQ, left, value, to));
    }

    /// Puts the address of a place of the stack into a register.
    fn address(&mut self, to: Register, place: i16) {
        self.push_all([Insn::copy(to, FRAME), Insn::alu_immediate(ADD, true, to, place.into())]);
    }

    /// Copies bytes from the offset in r8 to the stack; goes elsewhere if they are not there.
    fn copy_header(&mut self, len: u32, otherwise: Label) {
        self.push_all([Insn::copy(R1, CONTEXT), Insn::copy(R2, R8)]);
        self.address(R3, HEADER);
        self.push_all([Insn::set(R4, len), Insn::call(helper::SKB_LOAD_BYTES)]);
        self.jump_if(JNE, R0, 0, otherwise);
    }

    /// Loads from the header on the stack.
    fn load(&mut self, size: u8, to: Register, at: i16) {
        self.push(Insn::load(size, to, FRAME, HEADER + at));
    }

    /// Loads two bytes in network order.
    fn load_half(&mut self, to: Register, at: i16) {
        self.load(HALF, to, at);
        if cfg!(target_endian = "little") {
            self.push(Insn::to_big_endian(to, 16));
        }
    }

    fn skip(&mut self, bytes: i32) {
        self.push(Insn::alu_immediate(ADD, true, R8, bytes));
    }

    /// Received packets begin at their network header, sent ones at their link's.
    fn start(&mut self, outermost: Depth) {
        self.push_all([Insn::copy(CONTEXT, R1), Insn::set(R1, 0)]);
        // The verifier does not see that a key is noted only where all of it was written.
        KEY_WORDS.into_iter().for_each(|word| self.push(Insn::store(FRAME, R1, NOTED + word)));
        self.push_all([Insn::set(R8, 0), Insn::load(WORD, R7, CONTEXT, sk_buff::PROTOCOL)]);
        let Some(type_at) = self.share.sent_header_len.checked_sub(2) else { return };
        self.push(Insn::load(WORD, R1, CONTEXT, sk_buff::PKT_TYPE));
        self.jump_if(JNE, R1, OUTGOING, outermost.frame);
        self.push(Insn::set(R8, type_at));
        self.copy_header(2, outermost.otherwise);
        self.load(HALF, R7, 0);
        self.skip(2);
    }

    /// The MAC addresses are the sides.
    fn without_ip(&mut self, common: Common) {
        const FROM_MAC: u32 = 0;
        self.label(common.without_ip);
        self.push_all([Insn::copy(R9, R7), Insn::set(R1, 0)]);
        SIDES.into_iter().for_each(|side| self.push(Insn::store(FRAME, R1, side)));
        self.jump_if_one_of(R7, &ARP, common.addresses);
        self.push_all([Insn::copy(R1, CONTEXT), Insn::set(R2, 0)]);
        self.address(R3, HEADER);
        self.push_all([
            Insn::set(R4, 12),
            Insn::set(R5, FROM_MAC),
            Insn::call(helper::SKB_LOAD_BYTES_RELATIVE),
        ]);
        self.jump_if(JNE, R0, 0, common.addresses);
        for (at, side) in [0, 6].into_iter().zip(SIDES) {
            self.load(HALF, R1, at);
            for at in [at + 2, at + 4] {
                self.load(HALF, R2, at);
                self.push_all([Insn::alu_immediate(LSH, true, R1, 16), Insn::alu_register(OR, true, R1, R2)]);
            }
            self.push(Insn::store(FRAME, R1, side));
        }
        self.jump(common.addresses);
    }

    fn later_fragment(&mut self, common: Common) {
        let found = self.fresh();
        self.label(common.later);
        self.look_up();
        self.jump_if(JNE, R0, 0, found);
        self.push_all(Insn::set_map_value(R1, self.share.apart));
        self.push_all([Insn::set(R2, 1), Insn::add_at(R1, R2, 0)]);
        self.without_id(KEY);
        self.look_up();
        self.jump_if(JEQ, R0, 0, common.addresses);
        self.label(found);
        self.push(Insn::load(WORD, R7, R0, 0));
        self.jump(common.note);
    }

    /// Makes the key one of the addresses' last fragmented packet.
    fn without_id(&mut self, key: i16) {
        self.push_all([
            Insn::store_constant(FRAME, key + KEY_ID, 0),
            Insn::load(WORD, R1, FRAME, key + KEY_KIND),
            Insn::alu_immediate(OR, true, R1, KIND_LAST),
            Insn::store_word(FRAME, R1, key + KEY_KIND),
        ]);
    }

    fn look_up(&mut self) {
        self.push_all(Insn::set_map(R1, self.share.fragments));
        self.address(R2, KEY);
        self.push(Insn::call(helper::MAP_LOOKUP_ELEM));
    }

    /// The hash in r7.
    fn hash(&mut self, common: Common) {
        let sides = self.fresh();
        self.label(common.ports);
        self.copy_header(4, common.addresses);
        self.load(HALF, R7, 0);
        self.load(HALF, R2, 2);
        self.jump(sides);
        self.label(common.addresses);
        self.push_all([Insn::set(R7, 0), Insn::set(R2, 0)]);
        self.label(sides);
        for (sum, side) in [R7, R2].into_iter().zip(SIDES) {
            self.push_all([Insn::load(DOUBLE, R1, FRAME, side), Insn::alu_register(ADD, true, sum, R1)]);
            self.mix_with_seed(sum);
        }
        self.push_all([Insn::alu_register(ADD, true, R7, R2), Insn::alu_register(ADD, true, R7, R9)]);
        self.mix(R7);
        self.push(Insn::alu_immediate(RSH, true, R7, 32));
    }

    fn mix_with_seed(&mut self, bits: Register) {
        self.push_all(Insn::set_wide(R4, self.share.seed));
        self.push(Insn::alu_register(XOR, true, bits, R4));
        self.mix(bits);
    }

    /// [`tapline_packet::mix::mixed`]. Uses r3 and r4.
    fn mix(&mut self, bits: Register) {
        let fold = |program: &mut Dissector, shift: u32| {
            program.push_all([
                Insn::copy(R3, bits),
                Insn::alu_immediate(RSH, true, R3, shift as i32),
                Insn::alu_register(XOR, true, bits, R3),
            ]);
        };
        for (shift, factor) in MIX {
            fold(self, shift);
            self.push_all(Insn::set_wide(R4, factor));
            self.push(Insn::alu_register(MUL, true, bits, R4));
        }
        fold(self, MIX_LAST);
    }

    /// Notes the hash of a first fragment, and ends with it.
    fn note(&mut self, common: Common) {
        let end = self.fresh();
        self.label(common.note);
        self.push(Insn::load(WORD, R1, FRAME, NOTED + KEY_KIND));
        self.jump_if(JEQ, R1, 0, end);
        self.push(Insn::store_word(FRAME, R7, HASH));
        self.update();
        self.without_id(NOTED);
        self.update();
        self.label(end);
        self.push_all([Insn::copy(R0, R7), Insn::EXIT]);
    }

    fn update(&mut self) {
        self.push_all(Insn::set_map(R1, self.share.fragments));
        self.address(R2, NOTED);
        self.address(R3, HASH);
        self.push_all([Insn::set(R4, 0), Insn::call(helper::MAP_UPDATE_ELEM)]);
    }
}
