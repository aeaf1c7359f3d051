//! Whether a filter accepts any packet at all, shown by a packet that it accepts.
//!
//! ```text
//! walk     the graph from its entry on a packet of zeroes; at a branch, take the edge that is nearer to an accepting return, and
//!          write into the packet what makes the branch take it, unless earlier branches rest on these bits
//! check    run the graph on the packet: accepted is a proof, anything else says nothing
//! ```
//!
//! The optimiser for the accumulator machine changes no verdict, so a graph that accepts some packet is none that it
//! could prove never true. Few filters are never true, so this quick answer spares most of them that proof.

use tapline_bpf::ancillary;
use tapline_bpf::cfg::{Alu, BlockId, Cfg, JumpTest, Operand, Statement, Terminator, Width};

/// The packet's bytes. Filters that look further in get no witness.
const LEN: usize = 1024;

/// The packet's metadata, and its place behind the bytes: four bytes each, in network order.
const KEPT: [u32; 6] = [
    ancillary::PKTTYPE,
    ancillary::IFINDEX,
    ancillary::RXHASH,
    ancillary::VLAN_TAG,
    ancillary::VLAN_TAG_PRESENT,
    ancillary::VLAN_TPID,
];

/// The place of the length on the wire.
const WIRE_LEN_AT: usize = LEN + 4 * KEPT.len();

/// Whether a packet was found that the graph accepts. `false` says nothing.
pub(crate) fn accepts_some(cfg: &Cfg) -> bool {
    let mut walk = Walk::new(Some(distances(cfg)));
    walk.run(cfg);
    walk.steering = None;
    walk.restart();
    walk.run(cfg)
}

/// For each block how many blocks lie between it and an accepting return. Graphs come with each block behind those
/// that it leads to; where one does not, the walk is led less well.
fn distances(cfg: &Cfg) -> Vec<u32> {
    let mut distances = vec![u32::MAX; cfg.blocks.len()];
    for at in 0..cfg.blocks.len() {
        distances[at] = match cfg.blocks[at].terminator {
            Terminator::Return(0) => u32::MAX,
            Terminator::Return(_) | Terminator::ReturnA => 0,
            terminator => {
                let there = terminator.successors().map(|next| distances[next.0 as usize]);
                there.min().unwrap_or(u32::MAX).saturating_add(1)
            }
        };
    }
    distances
}

/// The bytes from which A was loaded, and the bits of them that it has.
#[derive(Clone, Copy)]
struct Origin {
    at: usize,
    width: Width,
    mask: u32,
}

/// A run of the graph on a packet that is, at first, still being made.
struct Walk {
    bytes: [u8; WIRE_LEN_AT + 4],
    /// The bits that branches rest on.
    pinned: [u8; WIRE_LEN_AT + 4],
    /// For each block how far it is from accepting; `None` once the packet is made.
    steering: Option<Vec<u32>>,
    a: u32,
    x: u32,
    cells: [u32; tapline_bpf::cfg::CELLS as usize],
    origin: Option<Origin>,
}

/// The run ends by rejecting, or cannot be followed.
struct Stopped;

impl Walk {
    fn new(steering: Option<Vec<u32>>) -> Walk {
        let mut walk = Walk {
            bytes: [0; WIRE_LEN_AT + 4],
            pinned: [0; WIRE_LEN_AT + 4],
            steering,
            a: 0,
            x: 0,
            cells: [0; tapline_bpf::cfg::CELLS as usize],
            origin: None,
        };
        walk.write(Origin { at: WIRE_LEN_AT, width: Width::Word, mask: u32::MAX }, LEN as u32);
        walk
    }

    fn restart(&mut self) {
        (self.a, self.x, self.origin) = (0, 0, None);
        self.cells.fill(0);
    }

    /// Whether the packet is accepted.
    fn run(&mut self, cfg: &Cfg) -> bool {
        let mut id = cfg.entry;
        loop {
            let block = &cfg[id];
            if block.statements.iter().any(|statement| self.statement(*statement).is_err()) {
                return false;
            }
            id = match block.terminator {
                Terminator::Return(k) => return k != 0,
                Terminator::ReturnA => return self.a != 0,
                Terminator::Goto(next) => next,
                Terminator::Branch { test, operand, on_true, on_false } => {
                    self.steer(test, operand, on_true, on_false);
                    let holds = match operand {
                        Operand::K(k) => holds(test, self.a, k),
                        Operand::X => holds(test, self.a, self.x),
                    };
                    if holds { on_true } else { on_false }
                }
                Terminator::OneOf { list, on_true, on_false } => {
                    // The first number stands for all: another would lead to the same block.
                    self.steer(JumpTest::Equal, Operand::K(cfg.list(list)[0]), on_true, on_false);
                    self.settle();
                    let is_in = cfg.list(list).binary_search(&self.a).is_ok();
                    if is_in { on_true } else { on_false }
                }
            };
        }
    }

    fn statement(&mut self, statement: Statement) -> Result<(), Stopped> {
        match statement {
            Statement::LoadConst(k) => self.set_a(k),
            Statement::LoadPacket(_, ancillary::ALU_XOR_X) => self.set_a(self.a ^ self.x),
            Statement::LoadPacket(_, k) if k >= ancillary::BASE => {
                let kept = KEPT.iter().position(|&known| known == k).ok_or(Stopped)?;
                self.load(Origin { at: LEN + 4 * kept, width: Width::Word, mask: u32::MAX });
            }
            Statement::LoadPacket(width, k) => {
                let origin = inside(k.into(), width)?;
                self.load(origin);
            }
            Statement::LoadIndexed(width, k) => {
                let origin = inside(u64::from(self.x) + u64::from(k), width)?;
                self.load(origin);
            }
            Statement::LoadLen => self.load(Origin { at: WIRE_LEN_AT, width: Width::Word, mask: u32::MAX }),
            Statement::LoadCell(n) => self.set_a(self.cells[usize::from(n)]),
            Statement::LoadXConst(k) => self.x = k,
            Statement::LoadXCell(n) => self.x = self.cells[usize::from(n)],
            Statement::LoadXLen => {
                let origin = Origin { at: WIRE_LEN_AT, width: Width::Word, mask: u32::MAX };
                self.pin(origin);
                self.x = self.read(origin);
            }
            Statement::LoadXHeaderLen(k) => {
                let origin = Origin { mask: 0x0f, ..inside(k.into(), Width::Byte)? };
                self.shortest_header(origin);
                self.x = 4 * self.read(origin);
            }
            Statement::Store(n) => {
                self.settle();
                self.cells[usize::from(n)] = self.a;
            }
            Statement::StoreX(n) => self.cells[usize::from(n)] = self.x,
            Statement::Alu(Alu::And, Operand::K(mask)) => {
                self.a &= mask;
                self.origin = self.origin.map(|origin| Origin { mask: origin.mask & mask, ..origin });
            }
            Statement::Alu(op, operand) => {
                let right = if let Operand::K(k) = operand { k } else { self.x };
                let result = tapline_bpf::simplify::compute(op, self.a, right).ok_or(Stopped)?;
                self.set_a(result);
            }
            Statement::Negate => self.set_a(self.a.wrapping_neg()),
            Statement::Tax => {
                self.settle();
                self.x = self.a;
            }
            Statement::Txa => self.set_a(self.x),
        }
        Ok(())
    }

    /// Sets A to a computed number; its operands stay.
    fn set_a(&mut self, a: u32) {
        self.settle();
        self.a = a;
        self.origin = None;
    }

    /// A is used other than in a branch: its bits stay as they are.
    fn settle(&mut self) {
        if let Some(origin) = self.origin {
            self.pin(origin);
        }
    }

    fn load(&mut self, origin: Origin) {
        self.a = self.read(origin);
        self.origin = Some(origin);
    }

    fn read(&self, origin: Origin) -> u32 {
        number(&self.bytes, origin)
    }

    fn write(&mut self, origin: Origin, value: u32) {
        let old = number(&self.bytes, Origin { mask: u32::MAX, ..origin });
        let new = old & !origin.mask | value & origin.mask;
        put(&mut self.bytes, origin, new);
    }

    fn pin(&mut self, origin: Origin) {
        let pinned = number(&self.pinned, Origin { mask: u32::MAX, ..origin }) | origin.mask;
        put(&mut self.pinned, origin, pinned);
    }

    /// An IPv4 header without options, if the packet does not say otherwise yet.
    fn shortest_header(&mut self, origin: Origin) {
        if self.steering.is_some() && number(&self.pinned, origin) == 0 {
            self.write(origin, 5);
        }
        self.pin(origin);
    }

    /// Makes a branch take the nearer edge, if the packet can be made so.
    fn steer(&mut self, test: JumpTest, operand: Operand, on_true: BlockId, on_false: BlockId) {
        let (Some(distances), Some(origin), Operand::K(k)) = (&self.steering, self.origin, operand) else {
            self.settle();
            return;
        };
        let wanted = distances[on_true.0 as usize] <= distances[on_false.0 as usize];
        let free = origin.mask & !number(&self.pinned, origin);
        let steered = steered(test, wanted, self.a, k, free);
        let fits = holds(test, steered, k) == wanted && (steered ^ self.a) & !free == 0;
        if fits {
            self.write(origin, steered);
            self.a = steered;
        }
        let rests_on = match test {
            JumpTest::AnySet => k,
            JumpTest::Equal if holds(test, self.a, k) => u32::MAX,
            // One bit that differs is enough.
            JumpTest::Equal => 1 << (self.a ^ k).trailing_zeros(),
            _ => u32::MAX,
        };
        self.pin(Origin { mask: origin.mask & rests_on, ..origin });
    }
}

/// The number nearest to `a` in which the free bits make a test come out as wanted, or one that does not.
fn steered(test: JumpTest, wanted: bool, a: u32, k: u32, free: u32) -> u32 {
    match (test, wanted) {
        _ if holds(test, a, k) == wanted => a,
        (JumpTest::Equal, true) | (JumpTest::GreaterEqual, true) | (JumpTest::Greater, false) => {
            a & !free | k & free
        }
        (JumpTest::Equal, false) => a ^ (free & free.wrapping_neg()),
        (JumpTest::Greater, true) => a & !free | k.wrapping_add(1) & free,
        (JumpTest::GreaterEqual, false) => a & !free | k.wrapping_sub(1) & free,
        (JumpTest::AnySet, true) => a | k & free,
        (JumpTest::AnySet, false) => a & !(k & free),
    }
}

fn holds(test: JumpTest, left: u32, right: u32) -> bool {
    tapline_bpf::simplify::outcome(test, left, right)
}

fn inside(at: u64, width: Width) -> Result<Origin, Stopped> {
    match at + u64::from(width.bytes()) <= LEN as u64 {
        true => Ok(Origin { at: at as usize, width, mask: u32::MAX >> (32 - 8 * width.bytes()) }),
        false => Err(Stopped),
    }
}

fn number(bytes: &[u8], origin: Origin) -> u32 {
    let there = &bytes[origin.at..origin.at + origin.width.bytes() as usize];
    there.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)) & origin.mask
}

fn put(bytes: &mut [u8], origin: Origin, value: u32) {
    let len = origin.width.bytes() as usize;
    bytes[origin.at..origin.at + len].copy_from_slice(&value.to_be_bytes()[4 - len..]);
}

#[cfg(test)]
mod tests {
    use super::accepts_some;
    use crate::generate::generate;
    use crate::options::Options;
    use crate::parse::parse;
    use crate::resolve::lower;

    fn is_shown(text: &str) -> bool {
        let predicates = lower(&parse(text).expect("a filter"), &Options::default()).expect("a filter");
        accepts_some(&generate(&predicates, 262_144))
    }

    #[test]
    fn filters_that_accept_are_shown_to() {
        for text in [
            "",
            "ip",
            "tcp port 80",
            "not broadcast and not multicast",
            "portrange 6000-6010",
            "greater 100 and less 1500",
            "vlan 100 and tcp port 443",
            "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
            "ip and arp or udp",
            "ip6 host 2001:db8::1 and icmp6[icmp6type] == 128",
        ] {
            assert!(is_shown(text), "{text}");
        }
    }

    #[test]
    fn nothing_is_shown_of_filters_that_are_never_true() {
        for text in ["ip and arp", "tcp and udp", "less 10 and greater 20", "ip proto 6 and ip proto 17"] {
            assert!(!is_shown(text), "{text}");
        }
    }
}
