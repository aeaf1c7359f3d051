//! Classic BPF: the instruction set, validated programs, the reference interpreter, texts; and block graphs, from which
//! programs are made. Instructions of eBPF, their assembler and text: [`ebpf`].
//!
//! ```text
//! Insn   := code:u16 jt:u8 jf:u8 k:u32        as in the kernel's struct sock_filter
//! code   := class | size | mode               loads:   ld ldx
//!         | class | op | source               alu, jmp
//! state  := A X M[0..16] pc                    32-bit registers, all 0 at the start
//!
//! Vec<Insn> --Program::new (validates, decodes)--> Program --run--> bytes to keep, 0 rejects
//! Cfg --simplify--> Cfg --initialise--> Cfg --assemble--> Vec<Insn>          decode: Program --> Cfg
//! ```
//!
//! The numbers are those of `linux/bpf_common.h` and `linux/filter.h`; the meaning is the one of "The BSD Packet
//! Filter" (McCanne and Jacobson, 1993) with the additions of Linux and libpcap: `mod`, `xor`, and the ancillary
//! loads.

#![forbid(unsafe_code)]

mod assemble;
pub mod cfg;
mod decode;
pub mod ebpf;
mod initialise;
mod interpret;
mod packet_filter;
pub mod simplify;
mod text;
mod validate;

pub use assemble::assemble;
pub use decode::decode;
pub use initialise::initialise;
pub use interpret::load_ancillary;
pub use packet_filter::{PacketFilter, retain_with};
pub use text::DumpFormat;
pub use validate::{Invalid, KernelRefusal};

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Insn {
    /// The operation: class, size or operation, mode or source, see [`code`].
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// The constant: an operand, a packet offset, a scratch cell or a distance.
    pub k: u32,
}

impl Insn {
    /// An instruction that does not branch.
    pub const fn new(code: u16, k: u32) -> Insn {
        Insn { code, jt: 0, jf: 0, k }
    }

    /// A comparison that skips `jt` instructions when it holds and `jf` when it does not.
    pub const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Insn {
        Insn { code, jt, jf, k }
    }

    /// The class: [`code::LD`] to [`code::MISC`].
    pub const fn class(self) -> u16 {
        self.code & 0x07
    }

    /// Whether it is a comparison with two edges out.
    pub const fn is_branch(self) -> bool {
        self.class() == code::JMP && self.code != code::JMP | code::JA
    }
}

/// The parts of an instruction's code, to be joined with `|`.
pub mod code {
    /// Class: load A.
    pub const LD: u16 = 0x00;
    /// Class: load X.
    pub const LDX: u16 = 0x01;
    /// Class: store A in a scratch cell.
    pub const ST: u16 = 0x02;
    /// Class: store X in a scratch cell.
    pub const STX: u16 = 0x03;
    /// Class: arithmetic on A.
    pub const ALU: u16 = 0x04;
    /// Class: jumps.
    pub const JMP: u16 = 0x05;
    /// Class: return.
    pub const RET: u16 = 0x06;
    /// Class: register moves.
    pub const MISC: u16 = 0x07;

    /// Size of a load: 4 bytes.
    pub const W: u16 = 0x00;
    /// Size of a load: 2 bytes.
    pub const H: u16 = 0x08;
    /// Size of a load: 1 byte.
    pub const B: u16 = 0x10;

    /// Load mode: the constant itself.
    pub const IMM: u16 = 0x00;
    /// Load mode: packet bytes at k.
    pub const ABS: u16 = 0x20;
    /// Load mode: packet bytes at X + k.
    pub const IND: u16 = 0x40;
    /// Load mode: scratch cell k.
    pub const MEM: u16 = 0x60;
    /// Load mode: the packet's length on the wire.
    pub const LEN: u16 = 0x80;
    /// Load mode, X only: 4 times the low nibble of the byte at k, an IPv4 header's length.
    pub const MSH: u16 = 0xa0;

    /// A + operand.
    pub const ADD: u16 = 0x00;
    /// A - operand.
    pub const SUB: u16 = 0x10;
    /// A * operand.
    pub const MUL: u16 = 0x20;
    /// A / operand.
    pub const DIV: u16 = 0x30;
    /// A | operand.
    pub const OR: u16 = 0x40;
    /// A & operand.
    pub const AND: u16 = 0x50;
    /// A << operand.
    pub const LSH: u16 = 0x60;
    /// A >> operand.
    pub const RSH: u16 = 0x70;
    /// -A.
    pub const NEG: u16 = 0x80;
    /// A modulo operand.
    pub const MOD: u16 = 0x90;
    /// A ^ operand.
    pub const XOR: u16 = 0xa0;

    /// Jump always, by k.
    pub const JA: u16 = 0x00;
    /// Jump if A equals the operand.
    pub const JEQ: u16 = 0x10;
    /// Jump if A is greater than the operand, unsigned.
    pub const JGT: u16 = 0x20;
    /// Jump if A is greater than or equal to the operand, unsigned.
    pub const JGE: u16 = 0x30;
    /// Jump if A and the operand have a bit in common.
    pub const JSET: u16 = 0x40;

    /// Operand: the constant.
    pub const K: u16 = 0x00;
    /// Operand: X.
    pub const X: u16 = 0x08;
    /// Return value: A.
    pub const A: u16 = 0x10;

    /// Register move: X = A.
    pub const TAX: u16 = 0x00;
    /// Register move: A = X.
    pub const TXA: u16 = 0x80;
}

/// Scratch cells, `M[0]` to `M[15]`.
pub const SCRATCH_CELLS: usize = 16;

/// The most instructions that the kernel takes (`BPF_MAXINSNS` of `linux/bpf_common.h`).
pub const KERNEL_INSNS_MAX: usize = 4096;

/// The most instructions of a [`Program`], so that positions and jumps fit 32 bits with room to spare.
pub const INSNS_MAX: usize = 1 << 24;

/// Packet offsets from which Linux loads metadata of a packet instead of its bytes (`linux/filter.h`).
///
/// Only absolute loads reach them; the size of the load does not matter.
pub mod ancillary {
    /// The first of these offsets: -4096.
    pub const BASE: u32 = -0x1000_i32 as u32;
    /// The EtherType, in host byte order.
    pub const PROTOCOL: u32 = BASE;
    /// The way in which the packet was addressed: `sll_pkttype` of packet(7).
    pub const PKTTYPE: u32 = BASE + 4;
    /// The kernel's index of the interface.
    pub const IFINDEX: u32 = BASE + 8;
    /// The firewall mark; does not reach user space.
    pub const MARK: u32 = BASE + 20;
    /// The receive queue; does not reach user space.
    pub const QUEUE: u32 = BASE + 24;
    /// The interface's hardware type; does not reach user space with the packet.
    pub const HATYPE: u32 = BASE + 28;
    /// The receive hash.
    pub const RXHASH: u32 = BASE + 32;
    /// The CPU that runs the filter.
    pub const CPU: u32 = BASE + 36;
    /// Not a load: A = A ^ X.
    pub const ALU_XOR_X: u32 = BASE + 40;
    /// The control information of a VLAN tag that was taken out of the bytes; 0 without one.
    pub const VLAN_TAG: u32 = BASE + 44;
    /// 1 if a VLAN tag was taken out of the bytes, else 0.
    pub const VLAN_TAG_PRESENT: u32 = BASE + 48;
    /// A random number.
    pub const RANDOM: u32 = BASE + 56;
    /// The protocol identifier of a VLAN tag that was taken out of the bytes; 0 without one.
    pub const VLAN_TPID: u32 = BASE + 60;

    /// libpcap's names of these offsets, in the order of the offsets, 4 apart.
    pub(crate) const NAMES: [&str; 16] = [
        "proto",
        "type",
        "ifidx",
        "nla",
        "nlan",
        "mark",
        "queue",
        "hatype",
        "rxhash",
        "cpu",
        "xor_x",
        "vlan_tci",
        "vlanp",
        "poff",
        "random",
        "vlan_tpid",
    ];

    /// The name that libpcap's listing has for an offset, if it is one of these.
    pub fn name(k: u32) -> Option<&'static str> {
        let distance = k.wrapping_sub(BASE);
        if !distance.is_multiple_of(4) {
            return None;
        }
        NAMES.get(distance as usize / 4).copied()
    }
}

/// A validated program: it ends on every packet, whatever the packet holds.
///
/// ```
/// use tapline_bpf::{Insn, Program, code};
/// let accept = Program::new(vec![Insn::new(code::RET | code::K, 65535)])?;
/// assert_eq!(accept.insns().len(), 1);
/// # Ok::<(), tapline_bpf::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    insns: Box<[Insn]>,
    decoded: interpret::Decoded,
}

impl Program {
    /// Validates `insns` and decodes them for the interpreter.
    ///
    /// # Errors
    /// [`Invalid`] says which instruction is wrong and why: an unknown code, a jump that is not forward and in
    /// range, a scratch cell that does not exist, a constant division by zero or shift by more than 31 bits, or an
    /// end without a return. Reading scratch cells that were never written is allowed here (they hold 0), but
    /// not to the kernel: see [`check_for_kernel`](Self::check_for_kernel).
    pub fn new(insns: Vec<Insn>) -> Result<Program, Invalid> {
        validate::validate(&insns)?;
        let decoded = interpret::Decoded::new(&insns);
        Ok(Program { insns: insns.into_boxed_slice(), decoded })
    }

    /// The instructions as given.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// Whether the kernel would take it as a socket filter.
    ///
    /// # Errors
    /// [`KernelRefusal`] says which rule of the kernel it breaks, and where.
    pub fn check_for_kernel(&self) -> Result<(), KernelRefusal> {
        validate::check_for_kernel(&self.insns)
    }

    /// The program as text, each line ended with a line feed.
    pub fn text(&self, form: DumpFormat) -> String {
        text::render(&self.insns, form)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.insns == other.insns
    }
}

impl Eq for Program {}
