//! The end of a filter that samples and counts at a socket, in memory that the owner of the program has mapped.
//!
//! ```text
//! accepted -- sample? -- not chosen -> the packet's end
//!          \ chosen -> line of the processor: counted -> kept as the filter says (hands_on), or the packet's end
//!
//! memory := number:u64 ... | line*                                     lines of 64 bytes, one for each processor
//! line   := packets:u64 bytes:u64 padded:u64 tagged:u64 ...            padded: frames of fewer than 60 bytes as 60
//! ```
//!
//! `number` is the number of packets accepted, where a sample is taken. Bytes are those on the wire, with the VLAN
//! tag that the adapter took out; `tagged` is the number of packets with such a tag. Refused packets are not counted.
//! Reading the memory takes no system call and no right.

use super::lower::Lowering;
use super::step::Operand;
use tapline_bpf::ebpf::code::*;
use tapline_bpf::ebpf::{CONTEXT, Insn, R0, R1, R2, R3, R4, R7, R8, R9, helper, sk_buff};
use tapline_packet::block_sample::BlockSample;
use tapline_packet::mix::{GOLDEN, MIX, MIX_LAST};

/// Bytes of a line.
const LINE_BITS: i32 = 6;
const LINE_LEN: i16 = 1 << LINE_BITS;
/// Words of 8 bytes of a line.
const LINE_WORDS: usize = 1 << (LINE_BITS - 3);
/// The shortest frame of an Ethernet without its check sequence.
const FRAME_LEN_MIN: u32 = 60;
/// Bytes of a VLAN tag.
const TAG_LEN: i32 = 4;

/// A count of the packets that a filter at a socket accepts, or of a sample of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCount {
    /// Descriptor of the map, in the process that loads the program: one value of [`SocketCount::memory_len`] bytes.
    pub map: i32,
    /// Lines, a power of two. Where there are fewer than processors, some share one; no packet is missed for that.
    pub lines: u16,
    /// Bytes that a caller puts before each packet, counted with it: a cooked header.
    pub header_len: u16,
    /// The sample, of blocks of [`SocketCount::BLOCK_MAX`] packets at most; `None` for all packets. Minimum kernel:
    /// 5.12.
    pub sample: Option<BlockSample>,
    /// Whether the socket gets counted packets too; else they end here.
    pub hands_on: bool,
}

impl SocketCount {
    /// The most packets of a sample's block.
    pub const BLOCK_MAX: u64 = i32::MAX as u64;

    /// Index of the word, of 8 bytes, that numbers accepted packets.
    pub const NUMBER_WORD: usize = 0;

    /// Bytes of the memory of `lines` lines.
    pub const fn memory_len(lines: u16) -> u32 {
        (lines as u32 + 1) << LINE_BITS
    }

    /// Index of the word, of 8 bytes, that counts packets in a line; the others follow it.
    pub const fn packets_word(line: u16) -> usize {
        (line as usize + 1) * LINE_WORDS
    }
}

impl Lowering {
    /// Counts the packet, and ends: keeps as many bytes as the filter said, or none.
    pub(super) fn count(&mut self, count: &SocketCount, keep: Operand) {
        // Calls leave r6 to r9 as they are, and no variable is read any more.
        if count.hands_on {
            self.copy_to(R7, keep);
        }
        if let Some(sample) = &count.sample {
            self.sample(sample, count.map);
        }
        self.push(Insn::load(WORD, R8, CONTEXT, sk_buff::LEN));
        self.push(Insn::load(WORD, R9, CONTEXT, sk_buff::VLAN_PRESENT));
        self.push(Insn::skip_if(JEQ, false, R9, 0, 1));
        self.push(Insn::alu_immediate(ADD, true, R8, TAG_LEN));
        if count.header_len > 0 {
            self.push(Insn::alu_immediate(ADD, true, R8, count.header_len.into()));
        }
        self.push(Insn::call(helper::GET_SMP_PROCESSOR_ID));
        self.push(Insn::alu_immediate(AND, false, R0, i32::from(count.lines) - 1));
        self.push(Insn::alu_immediate(LSH, true, R0, LINE_BITS));
        self.push_all(Insn::set_map_value(R2, count.map));
        self.push(Insn::alu_register(ADD, true, R2, R0));
        self.push(Insn::set(R1, 1));
        self.push(Insn::add_at(R2, R1, LINE_LEN));
        self.push(Insn::add_at(R2, R8, LINE_LEN + 8));
        self.push(Insn::skip_if(JEQ, false, R9, 0, 1));
        self.push(Insn::add_at(R2, R1, LINE_LEN + 24));
        self.push(Insn::skip_if(JGE, true, R8, FRAME_LEN_MIN as i32, 1));
        self.push(Insn::set(R8, FRAME_LEN_MIN));
        self.push(Insn::add_at(R2, R8, LINE_LEN + 16));
        self.push(if count.hands_on { Insn::copy(R0, R7) } else { Insn::set(R0, 0) });
        self.push(Insn::EXIT);
    }

    /// Numbers the packet, and ends unless the sample chooses it: [`BlockSample::chooses`].
    fn sample(&mut self, sample: &BlockSample, map: i32) {
        let under = sample.under() as i32;
        self.push_all(Insn::set_map_value(R2, map));
        self.push(Insn::set(R1, 1));
        self.push(Insn::fetch_add_at(R2, R1, 0));
        self.push(Insn::copy(R3, R1));
        self.push(Insn::alu_immediate(DIV, true, R3, under));
        self.push(Insn::alu_immediate(MOD, true, R1, under));
        let with = |lowering: &mut Lowering, op, k| {
            lowering.push_all(Insn::set_wide(R4, k));
            lowering.push(Insn::alu_register(op, true, R3, R4));
        };
        with(self, MUL, GOLDEN);
        with(self, ADD, sample.seed());
        for (shift, factor) in MIX {
            self.fold(shift);
            with(self, MUL, factor);
        }
        self.fold(MIX_LAST);
        self.push(Insn::alu_immediate(MOD, true, R3, under));
        self.push(Insn::alu_immediate(MUL, true, R1, sample.step() as i32));
        self.push(Insn::alu_register(ADD, true, R1, R3));
        self.push(Insn::alu_immediate(MOD, true, R1, under));
        let over = sample.over().min(SocketCount::BLOCK_MAX) as i32;
        self.push(Insn::skip_if(JLT, true, R1, over, 2));
        self.push(Insn::set(R0, 0));
        self.push(Insn::EXIT);
    }

    /// `r3 ^= r3 >> shift`.
    fn fold(&mut self, shift: u32) {
        self.push(Insn::copy(R4, R3));
        self.push(Insn::alu_immediate(RSH, true, R4, shift as i32));
        self.push(Insn::alu_register(XOR, true, R3, R4));
    }
}
