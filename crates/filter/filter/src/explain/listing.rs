//! A program, line by line as `tcpdump -d` prints it, with its meaning; and its measures.
//!
//! The meaning of A is followed from loads, which have the names of the fields that the filter asks for, through
//! masks to tests. An instruction gets no words if paths join before it with different fields in A.

use std::collections::{BTreeMap, BTreeSet};

use super::meaning;
use crate::predicate::{Base, Predicate, Predicates, TestedField};
use tapline_bpf::cfg::Width;
use tapline_bpf::code::*;
use tapline_bpf::{Insn, Program, ancillary};

/// Column of the meanings.
const COLUMN: usize = 48;

/// Figures of a program that are known without running it.
pub(super) struct Measures {
    /// Instructions on the longest path.
    pub(super) longest: usize,
    /// Bytes that every accepted packet must have been captured with; `None` if none is accepted.
    pub(super) captured: Option<u64>,
    /// Whether it looks at captured bytes at all.
    pub(super) loads: bool,
}

/// Measures each path at once, from the end backward.
pub(super) fn measure(program: &Program) -> Measures {
    let insns = program.insns();
    let mut longest = vec![0; insns.len()];
    let mut captured: Vec<Option<u64>> = vec![None; insns.len()];
    for (at, insn) in insns.iter().enumerate().rev() {
        let nexts = successors(at, *insn);
        longest[at] = 1 + nexts.iter().map(|&next| longest[next]).max().unwrap_or(0);
        let after = nexts.iter().filter_map(|&next| captured[next]).min();
        let accepts = insn.class() == RET && (insn.code == RET | A || insn.k != 0);
        let ends = if accepts { Some(0) } else { after };
        captured[at] = ends.map(|bytes| bytes.max(end_of_load(*insn)));
    }
    let loads = insns.iter().any(|insn| end_of_load(*insn) > 0);
    Measures { longest: longest[0], captured: captured[0], loads }
}

fn successors(at: usize, insn: Insn) -> Vec<usize> {
    match insn.class() {
        RET => vec![],
        JMP if insn.is_branch() => vec![at + 1 + usize::from(insn.jt), at + 1 + usize::from(insn.jf)],
        JMP => vec![at + 1 + insn.k as usize],
        _ => vec![at + 1],
    }
}

/// One past the last byte that a load needs at least; 0 for other instructions. X is not negative.
fn end_of_load(insn: Insn) -> u64 {
    let size = match insn.code & 0x18 {
        W => 4,
        H => 2,
        _ => 1,
    };
    match (insn.class(), insn.code & 0xe0) {
        (LD, ABS) if insn.k >= ancillary::BASE => 0,
        (LD, ABS | IND) | (LDX, MSH) => u64::from(insn.k) + size,
        _ => 0,
    }
}

/// The names of loads: mode and width, then the offset.
type Names = BTreeMap<(u16, u32), BTreeSet<&'static str>>;

/// The program with its meanings.
pub(super) fn render(program: &Program, predicates: &Predicates) -> String {
    let mut names = Names::new();
    collect(&predicates.root, &mut names);
    let insns = program.insns();
    let mut arriving: Vec<Holds> = vec![Holds::Unreached; insns.len()];
    arriving[0] = Holds::Unknown;
    let mut out = String::new();
    for (at, insn) in insns.iter().enumerate() {
        let before = arriving[at].clone();
        let after = effect(*insn, &before, &names);
        let line =
            format!("  {:<COLUMN$}{}", insn.assembly(at).replace('\t', " "), says(*insn, &before, &after));
        out += line.trim_end();
        out.push('\n');
        for next in successors(at, *insn) {
            arriving[next] = arriving[next].clone().meet(&after);
        }
    }
    out
}

/// The content of A, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holds {
    /// No edge leads here yet.
    Unreached,
    /// Nothing that has a name, or different things on different paths.
    Unknown,
    /// A field, under a mask if one was applied.
    Field(String, Option<u32>),
}

impl Holds {
    fn meet(self, other: &Holds) -> Holds {
        match self {
            Holds::Unreached => other.clone(),
            same if same == *other => same,
            _ => Holds::Unknown,
        }
    }
}

fn effect(insn: Insn, before: &Holds, names: &Names) -> Holds {
    match (insn.class(), before) {
        (LD, _) => Holds::Field(name_of_load(insn, names), None),
        (ALU, Holds::Field(name, None)) if insn.code == ALU | AND | K => {
            Holds::Field(name.clone(), Some(insn.k))
        }
        (ALU, _) => Holds::Unknown,
        (MISC, _) if insn.code == MISC | TXA => Holds::Unknown,
        _ => before.clone(),
    }
}

fn name_of_load(insn: Insn, names: &Names) -> String {
    let Insn { code, k, .. } = insn;
    let mode = code & 0xe0;
    match names.get(&(code, k)) {
        Some(names) => names.iter().copied().collect::<Vec<_>>().join(" or "),
        None if mode == LEN => "length on the wire".to_owned(),
        None if mode == ABS && k >= ancillary::BASE => of_metadata(k).to_owned(),
        None if mode == ABS => bytes("", k, end_of_load(insn)),
        None if mode == IND => bytes("X + ", k, end_of_load(insn)),
        None if mode == MEM => format!("what M[{k}] holds"),
        None => format!("the number {k}"),
    }
}

fn bytes(base: &str, from: u32, end: u64) -> String {
    let last = end - 1;
    if last == u64::from(from) {
        format!("byte {base}{from}")
    } else {
        format!("bytes {base}{from} to {base}{last}")
    }
}

fn of_metadata(k: u32) -> &'static str {
    match k {
        ancillary::VLAN_TAG_PRESENT => "whether a VLAN tag was taken out",
        ancillary::VLAN_TAG => "the VLAN tag that was taken out",
        ancillary::PKTTYPE => "how the packet was addressed",
        ancillary::IFINDEX => "interface index",
        _ => "the kernel's metadata",
    }
}

/// The work of an instruction, in words.
fn says(insn: Insn, before: &Holds, after: &Holds) -> String {
    match (insn.class(), before, after) {
        (LD, _, Holds::Field(name, _)) => name.clone(),
        (LDX, ..) if insn.code & 0xe0 == MSH => "X = length of the IPv4 header".to_owned(),
        (ALU, _, Holds::Field(name, Some(mask))) => format!("{name}, bits {mask:#x} of it"),
        (JMP, Holds::Field(name, mask), _) if insn.code & X == 0 && insn.is_branch() => {
            asks(insn, name, *mask)
        }
        (RET, ..) if insn.code == RET | K && insn.k == 0 => "reject".to_owned(),
        (RET, ..) if insn.code == RET | K => format!("accept, keep {} bytes", insn.k),
        _ => String::new(),
    }
}

fn asks(insn: Insn, name: &str, mask: Option<u32>) -> String {
    let k = meaning::of_number(name, insn.k);
    match insn.code & 0xf0 {
        JEQ => match mask {
            Some(mask) if mask.leading_ones() + mask.trailing_zeros() == 32 && name.starts_with("IPv4 ") => {
                format!("is it {k}? (/{})", mask.leading_ones())
            }
            _ => format!("is it {k}?"),
        },
        JGT => format!("greater than {k}?"),
        JGE => format!("{k} or greater?"),
        _ if name == "IPv4 fragment offset" => "a later fragment?".to_owned(),
        _ => format!("any of the bits {:#x}?", insn.k),
    }
}

fn collect(predicate: &Predicate, names: &mut Names) {
    match predicate {
        Predicate::Test(test) => {
            if let TestedField::Packet(place, width) = test.field {
                let mode = if place.base == Base::Packet { ABS } else { IND };
                let code = LD | mode | code_of(width);
                names.entry((code, place.offset)).or_default().insert(test.name);
            }
        }
        Predicate::Not(inner) => collect(inner, names),
        Predicate::Chain(first, rest) => {
            collect(first, names);
            rest.iter().for_each(|(_, part)| collect(part, names));
        }
        Predicate::Constant(_)
        | Predicate::AnyOf(..)
        | Predicate::Relation(_)
        | Predicate::Headers(_)
        | Predicate::Differ(..)
        | Predicate::Assign(..) => {}
    }
}

fn code_of(width: Width) -> u16 {
    match width {
        Width::Byte => B,
        Width::Half => H,
        Width::Word => W,
    }
}
