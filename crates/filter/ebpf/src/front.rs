//! The program around a filter in front of AF_XDP sockets.
//!
//! ```text
//! if counters.stop: pass                                              before anything else
//! packet of several buffers, where there may be any: the filter that gathers; others: the filter that reads in place
//! filter -- match ----> redirect to the socket of the packet's queue, which may pass it to the stack where there is none
//!        \\- no match -> pass
//!                       noted in front of it before that, if wanted: what the driver knows of it (`notes`)
//!
//! and of each packet, by its queue:  counters.redirected += 1, if it was redirected, or counters.passed += 1
//! ```
//!
//! A filter that the kernel refuses is replaced by a weaker part of it ([`weaker_fronts`]); the whole filter then runs
//! behind the sockets.
//!
//! The counters are a map of one value, which the owner of the program has mapped: a store stops the program, and
//! reading the counts takes no system call, so both work without any right.
//!
//! ```text
//! counters := stop:u64 ... | line*                                      lines of 64 bytes, the first has the stop
//! line := redirected:u64 passed:u64 ...                                  one for each queue, so that processors do not share them
//! ```

use super::lower::Lowering;
use super::{EmitError, Hook, Program, RxMetadataCalls, XdpAction, emit};
use tapline_bpf::ebpf::code::*;
use tapline_bpf::ebpf::{CONTEXT, Insn, Label, R0, R1, R2, R3, R7, R8, helper, xdp_action, xdp_md};
use tapline_ir::{Ir, MetaField, WeakerBounds, weaken};

/// Bytes of a line.
const LINE_BITS: i32 = 6;

/// Sockets and counters of a program in front of AF_XDP sockets. Descriptors are those of the process that loads the
/// program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFront {
    /// Descriptor of the map of AF_XDP sockets by queue.
    pub sockets: i32,
    /// Descriptor of the map of counters: one value of [`XdpFront::counters_len`] bytes.
    pub counters: i32,
    /// Queues that are counted: those from 0 on. A packet of another queue goes where the filter and the map of
    /// sockets say, uncounted.
    pub queues: u16,
    /// Whether packets may come in several buffers: the filter then looks at all of them. Minimum kernel: 5.18.
    pub several: bool,
    /// Metadata to store in front of packets that match; `None` for none.
    pub notes: Option<RxMetadataCalls>,
}

impl XdpFront {
    /// Index of the word, of 8 bytes, that stops the program when it is not 0.
    pub const STOP: usize = 0;

    /// Bytes of the counters of `queues` queues.
    pub const fn counters_len(queues: u16) -> u32 {
        (queues as u32 + 1) << LINE_BITS
    }

    /// Index of the word that counts the packets of a queue that were redirected to its socket.
    pub const fn redirected_counter(queue: u16) -> usize {
        (queue as usize + 1) << (LINE_BITS - 3)
    }

    /// Index of the word that counts the packets of a queue that were passed to the kernel's stack.
    pub const fn passed_counter(queue: u16) -> usize {
        XdpFront::redirected_counter(queue) + 1
    }
}

/// The filter as a program in front of AF_XDP sockets; without one, every packet goes to them.
///
/// # Errors
/// [`EmitError`] says why there is none.
pub fn front(filter: Option<&Ir>, front: XdpFront) -> Result<Program, EmitError> {
    match filter {
        Some(ir) => emit(ir, Hook::Front(front)),
        None => emit(&Ir::constant(1), Hook::Front(front)),
    }
}

/// Instructions and cases of the weaker parts that are tried. The verifier follows each way through a program, at most
/// a million instructions in all: whether it takes a filter is known only after an attempt.
const WEIGHTS: [usize; 3] = [4096, 512, 64];

/// Weaker parts of a filter for a kernel that refuses the whole of it in front, to be tried in turn. Each accepts all
/// packets that the filter accepts. Reads at computed places and of lengths take `CAP_PERFMON`: the last parts have none.
pub fn weaker_fronts(whole: &Ir) -> impl Iterator<Item = Ir> + '_ {
    let any = WeakerBounds { is_known, has_variable_places: true, weight_max: usize::MAX };
    let fixed = WeakerBounds { is_known: is_read_without_sums, has_variable_places: false, ..any };
    let weights = || [usize::MAX].into_iter().chain(WEIGHTS);
    [any, fixed]
        .into_iter()
        .flat_map(move |bounds| weights().map(move |weight_max| WeakerBounds { weight_max, ..bounds }))
        .filter_map(|bounds| weaken(whole, &bounds))
}

fn is_known(field: MetaField) -> bool {
    matches!(field, MetaField::WireLen | MetaField::CapLen) || is_read_without_sums(field)
}

fn is_read_without_sums(field: MetaField) -> bool {
    field == MetaField::InterfaceIndex
}

impl Lowering {
    /// Passes every packet once the word that stops is set.
    pub(super) fn heed_stop(&mut self, front: &XdpFront) {
        self.push_all(Insn::set_map_value(R0, front.counters));
        self.push(Insn::load(DOUBLE, R0, R0, 0));
        self.push(Insn::skip_if(JEQ, true, R0, 0, 2));
        self.push(Insn::set(R0, XdpAction::PASS));
        self.push(Insn::EXIT);
    }

    /// Packets of several buffers go on at a label. Leaves the context in r6, and of others the packet's start and end
    /// in r7 and r8.
    pub(super) fn part_several(&mut self, to: Label) {
        self.push(Insn::copy(CONTEXT, R1));
        self.push(Insn::call(helper::XDP_GET_BUFF_LEN));
        self.push(Insn::load(WORD, R7, CONTEXT, xdp_md::DATA));
        self.push(Insn::load(WORD, R8, CONTEXT, xdp_md::DATA_END));
        self.push(Insn::copy(R1, R8));
        self.push(Insn::alu_register(SUB, true, R1, R7));
        self.assembler.jump(Insn::jump_register(JGT, true, R0, R1), to);
    }

    /// The end of a packet that matches.
    pub(super) fn redirect(&mut self, front: &XdpFront) {
        if let Some(notes) = &front.notes {
            self.note(notes);
        }
        self.push(Insn::load(WORD, R2, CONTEXT, xdp_md::RX_QUEUE_INDEX));
        self.push_all(Insn::set_map(R1, front.sockets));
        self.push(Insn::set(R3, XdpAction::PASS));
        self.push(Insn::call(helper::REDIRECT_MAP));
        // r2 = the queue's line, but behind the ends below where it is not counted.
        self.find_line(front, 5);
        self.push(Insn::set(R1, 1));
        self.push(Insn::skip_if(JNE, false, R0, xdp_action::REDIRECT as i32, 2));
        self.push(Insn::add_at(R2, R1, 64));
        self.push(Insn::EXIT);
        self.push(Insn::add_at(R2, R1, 72));
        self.push(Insn::EXIT);
    }

    /// The end of a packet that does not match.
    pub(super) fn pass(&mut self, front: &XdpFront) {
        self.push(Insn::set(R0, XdpAction::PASS));
        self.find_line(front, 2);
        self.push(Insn::set(R1, 1));
        self.push(Insn::add_at(R2, R1, 72));
        self.push(Insn::EXIT);
    }

    /// `r2 =` 64 bytes before the line of the packet's queue. For a queue that has none, skips the next `skipped`
    /// instructions.
    fn find_line(&mut self, front: &XdpFront, skipped: i16) {
        const FOUND: i16 = 4;
        self.push(Insn::load(WORD, R1, CONTEXT, xdp_md::RX_QUEUE_INDEX));
        self.push(Insn::skip_if(JGE, true, R1, front.queues.into(), FOUND + skipped));
        self.push(Insn::alu_immediate(LSH, true, R1, LINE_BITS));
        self.push_all(Insn::set_map_value(R2, front.counters));
        self.push(Insn::alu_register(ADD, true, R2, R1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_book_lie_in_it_and_apart() {
        let queues = 5;
        let len = XdpFront::counters_len(queues) as usize / 8;
        let mut words: Vec<usize> = (0..queues)
            .flat_map(|queue| [XdpFront::redirected_counter(queue), XdpFront::passed_counter(queue)])
            .collect();
        words.push(XdpFront::STOP);
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 11);
        assert!(words.iter().all(|word| *word < len));
        assert_eq!(XdpFront::redirected_counter(0) * 8, 64);
    }

    #[test]
    fn jumps_of_known_distance_lead_to_ends() {
        let all = RxMetadataCalls { time: Some(7), vlan: Some(8), cookie: 9 };
        for notes in [None, Some(all), Some(RxMetadataCalls { vlan: None, ..all })] {
            let program =
                front(None, XdpFront { sockets: 3, counters: 4, queues: 2, several: false, notes }).unwrap();
            let insns = program.insns();
            for (at, insn) in insns.iter().enumerate().filter(|(_, insn)| insn.is_jump()) {
                let to = (at as i64 + 1 + i64::from(insn.offset)) as usize;
                assert!(insns.get(to).is_some(), "{}", program.text());
            }
            assert_eq!(insns.last(), Some(&Insn::EXIT));
            assert_eq!(insns[0].to(), R0, "r1 is the context until it was copied");
            let asked = program.text().matches("kernel-function#").count();
            assert_eq!(asked, notes.map_or(0, |notes| 1 + usize::from(notes.vlan.is_some())));
        }
    }
}
