//! The programs of live frames, instruction by instruction.
//!
//! ```text
//! fill   (XDP, each frame)    refused anything yet and not to go on, or none left: drop
//!                             slot of the next number --> length set, bytes stored --> redirect --> next number, our processor noted
//! told   (xdp_devmap_xmit)    our processor, and frames whose fate is open: the counts taken by the driver and without room; or why none
//! failed (xdp_redirect_err)   likewise: one could not be redirected, why
//! ```
//!
//! The tracepoint counts belong to our frames only: between `fill` and the end of its batch no interrupt's work runs
//! on that processor, and redirected frames are handed over before the batch ends.

use tapline_bpf::ebpf::code::{ADD, AND, DOUBLE, JEQ, JGE, JGT, JLT, JNE, LSH, MOV, OR, SUB, WORD};
use tapline_bpf::ebpf::{
    Assembler, CONTEXT, FRAME, Insn, Label, R0, R1, R2, R3, R4, Register, helper, xdp_action, xdp_md,
};

/// Words of the state that programs and we share.
pub(super) mod word {
    /// The number of the next frame; those before it were redirected, or tried to be.
    pub(in super::super) const NEXT: usize = 0;
    /// Number of frames of this run.
    pub(in super::super) const END: usize = 1;
    /// Frames whose outcome was reported.
    pub(in super::super) const TOLD: usize = 2;
    /// Reported frames that were refused.
    pub(in super::super) const REFUSED: usize = 3;
    /// The cause, if the queue was not full: a negative error number.
    pub(in super::super) const ERROR: usize = 4;
    /// The processor that we ran on.
    pub(in super::super) const PROCESSOR: usize = 5;
    /// Not 0: frames for which the queue is full are lost, and the frames after them go all the same.
    pub(in super::super) const GOES_ON: usize = 6;
    /// Number of batches that the driver was handed.
    pub(in super::super) const BATCHES: usize = 7;
    /// Number of frames that each batch took, and in the upper half the number for which the queue was full.
    pub(in super::super) const HANDED: usize = 8;
    /// Batches that there is room to note, a power of two.
    pub(in super::super) const BATCHES_MAX: usize = 64;
    /// Number of words.
    pub(in super::super) const COUNT: usize = HANDED + BATCHES_MAX;
}

/// The shortest frame.
pub(super) const LEN_MIN: u32 = 14;
/// In a slot the length, in a word; then the frame.
pub(super) const DATA_AT: usize = 8;

/// Registers that keep their value over calls.
const STATE: Register = Register(7);
const LENGTH: Register = Register(8);
const SLOT: Register = Register(9);

const ENXIO: i32 = 6;
const EMSGSIZE: i32 = 90;

const DROP: Label = Label(0);
const GOES: Label = Label(1);
const FITS: Label = Label(2);
const REFUSE: Label = Label(3);
const NO_ROOM: Label = Label(4);
const DONE: Label = Label(5);

/// An assembler with the few forms that these programs are made of. Numbers are of 64 bits.
#[derive(Default)]
struct Assembly(Assembler);

impl Assembly {
    fn push(&mut self, insn: Insn) {
        self.0.push(insn);
    }

    fn set(&mut self, to: Register, immediate: i32) {
        self.push(Insn::alu_immediate(MOV, true, to, immediate));
    }

    fn copy(&mut self, to: Register, from: Register) {
        self.push(Insn::copy(to, from));
    }

    fn add(&mut self, to: Register, immediate: i32) {
        self.push(Insn::alu_immediate(ADD, true, to, immediate));
    }

    fn add_register(&mut self, to: Register, from: Register) {
        self.push(Insn::alu_register(ADD, true, to, from));
    }

    fn load_state(&mut self, to: Register, word: usize) {
        self.push(Insn::load(DOUBLE, to, STATE, word as i16 * 8));
    }

    fn store_state(&mut self, word: usize, from: Register) {
        self.push(Insn::store(STATE, from, word as i16 * 8));
    }

    fn call(&mut self, helper: i32) {
        self.push(Insn::call(helper));
    }

    fn set_map(&mut self, to: Register, descriptor: i32) {
        Insn::set_map(to, descriptor).into_iter().for_each(|insn| self.push(insn));
    }

    fn jump_if(&mut self, test: u8, left: Register, immediate: i32, label: Label) {
        self.0.jump(Insn::jump_immediate(test, true, left, immediate), label);
    }

    fn jump_if_register(&mut self, test: u8, left: Register, right: Register, label: Label) {
        self.0.jump(Insn::jump_register(test, true, left, right), label);
    }

    fn label(&mut self, label: Label) {
        self.0.label(label);
    }

    fn exit(&mut self) {
        self.push(Insn::EXIT);
    }

    /// `r0 = ` the address of entry `key` (a register, or 0) in a map, or 0.
    fn look_up(&mut self, map: i32, key: Option<Register>) {
        self.push(match key {
            Some(key) => Insn::store_word(FRAME, key, -4),
            None => Insn::store_constant(FRAME, -4, 0),
        });
        self.set_map(R1, map);
        self.copy(R2, FRAME);
        self.add(R2, -4);
        self.call(helper::MAP_LOOKUP_ELEM);
    }

    fn finish(self) -> Vec<Insn> {
        self.0.finish().expect("a label for each jump")
    }
}

/// Maps by their descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps {
    pub(super) state: i32,
    pub(super) slots: i32,
    pub(super) devices: i32,
}

/// Makes a frame of the next slot, and redirects it.
pub(super) fn fill(maps: Maps, frame_max: u32) -> Vec<Insn> {
    let mut a = Assembly::default();
    a.copy(CONTEXT, R1);
    a.look_up(maps.state, None);
    a.jump_if(JEQ, R0, 0, DROP);
    a.copy(STATE, R0);
    // After a refusal nothing goes any more, unless that is wanted: what follows must not overtake.
    a.load_state(R1, word::REFUSED);
    a.jump_if(JEQ, R1, 0, GOES);
    a.load_state(R1, word::GOES_ON);
    a.jump_if(JEQ, R1, 0, DROP);
    a.label(GOES);
    a.load_state(R3, word::NEXT);
    a.load_state(R1, word::END);
    a.jump_if_register(JGE, R3, R1, DROP);
    a.look_up(maps.slots, Some(R3));
    a.jump_if(JEQ, R0, 0, DROP);
    a.copy(SLOT, R0);
    a.push(Insn::load(DOUBLE, LENGTH, SLOT, 0));
    a.jump_if(JLT, LENGTH, LEN_MIN as i32, DROP);
    a.jump_if(JGT, LENGTH, frame_max as i32, DROP);
    // The present length.
    a.push(Insn::load(WORD, R3, CONTEXT, xdp_md::DATA_END));
    a.push(Insn::load(WORD, R1, CONTEXT, xdp_md::DATA));
    a.push(Insn::alu_register(SUB, true, R3, R1));
    a.copy(R2, LENGTH);
    a.push(Insn::alu_register(SUB, true, R2, R3));
    a.jump_if(JEQ, R2, 0, FITS);
    a.copy(R1, CONTEXT);
    a.call(helper::XDP_ADJUST_TAIL);
    a.set(R1, -EMSGSIZE);
    a.jump_if(JNE, R0, 0, REFUSE);
    a.label(FITS);
    a.copy(R1, CONTEXT);
    a.set(R2, 0);
    a.copy(R3, SLOT);
    a.add(R3, DATA_AT as i32);
    a.copy(R4, LENGTH);
    a.call(helper::XDP_STORE_BYTES);
    a.set(R1, -EMSGSIZE);
    a.jump_if(JNE, R0, 0, REFUSE);
    a.call(helper::GET_SMP_PROCESSOR_ID);
    a.store_state(word::PROCESSOR, R0);
    a.set_map(R1, maps.devices);
    a.set(R2, 0);
    a.set(R3, xdp_action::DROP as i32);
    a.call(helper::REDIRECT_MAP);
    // The interface is gone, and the kernel took it out of the map.
    a.set(R1, -ENXIO);
    a.jump_if(JNE, R0, xdp_action::REDIRECT as i32, REFUSE);
    a.load_state(R1, word::NEXT);
    a.add(R1, 1);
    a.store_state(word::NEXT, R1);
    a.exit();
    // One that never was handed over, for the reason in r1.
    a.label(REFUSE);
    a.store_state(word::ERROR, R1);
    a.set(R1, 0);
    a.store_state(word::GOES_ON, R1);
    for word in [word::NEXT, word::TOLD, word::REFUSED] {
        a.load_state(R2, word);
        a.add(R2, 1);
        a.store_state(word, R2);
    }
    a.label(DROP);
    a.set(R0, xdp_action::DROP as i32);
    a.exit();
    a.finish()
}

/// The beginning of both listeners: they do nothing unless the event is about frames of ours. The context has the
/// words of the tracepoint.
fn listen(a: &mut Assembly, maps: Maps) {
    a.copy(CONTEXT, R1);
    a.look_up(maps.state, None);
    a.jump_if(JEQ, R0, 0, DONE);
    a.copy(STATE, R0);
    a.load_state(R1, word::NEXT);
    a.load_state(R2, word::TOLD);
    a.jump_if_register(JGE, R2, R1, DONE);
    a.call(helper::GET_SMP_PROCESSOR_ID);
    a.load_state(R1, word::PROCESSOR);
    a.jump_if_register(JNE, R0, R1, DONE);
}

/// Counts `r3` frames as refused for the reason in `r4`; after a reason other than a full queue nothing goes any
/// more.
fn refuse(a: &mut Assembly) {
    for word in [word::REFUSED, word::TOLD] {
        a.load_state(R1, word);
        a.add_register(R1, R3);
        a.store_state(word, R1);
    }
    a.jump_if(JEQ, R4, 0, NO_ROOM);
    a.store_state(word::ERROR, R4);
    a.set(R1, 0);
    a.store_state(word::GOES_ON, R1);
    a.label(NO_ROOM);
}

/// At `xdp_devmap_xmit(from, to, sent, drops, err)`.
pub(super) fn told(maps: Maps) -> Vec<Insn> {
    let mut a = Assembly::default();
    listen(&mut a, maps);
    a.push(Insn::load(DOUBLE, R3, CONTEXT, 3 * 8));
    a.push(Insn::load(DOUBLE, R4, CONTEXT, 4 * 8));
    a.jump_if(JNE, R4, 0, REFUSE);
    // Note the batch: r2 = its place, r3 = refused << 32 | sent.
    a.load_state(R1, word::BATCHES);
    a.copy(R2, R1);
    a.add(R1, 1);
    a.store_state(word::BATCHES, R1);
    a.push(Insn::alu_immediate(AND, true, R2, word::BATCHES_MAX as i32 - 1));
    a.push(Insn::alu_immediate(LSH, true, R2, 3));
    a.add_register(R2, STATE);
    a.push(Insn::load(DOUBLE, R1, CONTEXT, 2 * 8));
    a.copy(R0, R3);
    a.push(Insn::alu_immediate(LSH, true, R0, 32));
    a.push(Insn::alu_register(OR, true, R0, R1));
    a.push(Insn::store(R2, R0, word::HANDED as i16 * 8));
    a.load_state(R2, word::TOLD);
    a.add_register(R2, R1);
    a.store_state(word::TOLD, R2);
    a.label(REFUSE);
    refuse(&mut a);
    a.label(DONE);
    a.set(R0, 0);
    a.exit();
    a.finish()
}

/// At `xdp_redirect_err(dev, xdp, tgt, err, map_type, map_id, index)`.
pub(super) fn failed(maps: Maps) -> Vec<Insn> {
    let mut a = Assembly::default();
    listen(&mut a, maps);
    a.set(R3, 1);
    a.push(Insn::load(DOUBLE, R4, CONTEXT, 3 * 8));
    refuse(&mut a);
    a.label(DONE);
    a.set(R0, 0);
    a.exit();
    a.finish()
}
