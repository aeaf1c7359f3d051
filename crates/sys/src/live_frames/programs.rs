//! The programs of live frames, instruction by instruction.
//!
//! ```text
//! fill   (XDP, each frame)    refused anything yet and not to go on, or none left: drop
//!                             slot of the next number --> length set, bytes stored --> redirect --> next number, our processor noted
//! told   (xdp_devmap_xmit)    our processor, and frames whose fate is open: the counts taken by the driver and without room; or why none
//! failed (xdp_redirect_err)   likewise: one could not be redirected, why
//! ```
//!
//! Whose frames the tracepoints tell of is certain: between `fill` and the end of its batch no interrupt's work runs on
//! that processor, and what was redirected is handed over before the batch ends.

use crate::bpf::Insn;

/// Words of the state that programs and we share.
pub(super) mod word {
    /// The number of the next frame; those before it were redirected, or tried to be.
    pub(in super::super) const NEXT: usize = 0;
    /// How many frames there are in this run.
    pub(in super::super) const END: usize = 1;
    /// Frames whose fate was told.
    pub(in super::super) const TOLD: usize = 2;
    /// Of these, refused.
    pub(in super::super) const REFUSED: usize = 3;
    /// Why, if it was not for want of room: a negative error number.
    pub(in super::super) const ERROR: usize = 4;
    /// The processor that we ran on.
    pub(in super::super) const PROCESSOR: usize = 5;
    /// Not 0: what found no room is lost, and the frames after it go all the same.
    pub(in super::super) const GOES_ON: usize = 6;
    /// How many batches the driver was handed.
    pub(in super::super) const BATCHES: usize = 7;
    /// Of each batch, how many frames it took; and in the upper half how many it had no room for.
    pub(in super::super) const HANDED: usize = 8;
    /// Batches that there is room to note, a power of two.
    pub(in super::super) const BATCHES_MAX: usize = 64;
    /// How many words there are.
    pub(in super::super) const COUNT: usize = HANDED + BATCHES_MAX;
}

/// The shortest frame.
pub(super) const LEN_MIN: u32 = 14;
/// In a slot the length, in a word; then the frame.
pub(super) const DATA_AT: usize = 8;

/// Registers: results and helpers' arguments; 6 to 9 keep their value over calls; 10 is the stack's end.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const STATE: u8 = 7;
const CONTEXT: u8 = 6;
const LENGTH: u8 = 8;
const SLOT: u8 = 9;
const STACK: u8 = 10;

/// Helpers: `enum bpf_func_id` of linux/bpf.h.
const MAP_LOOKUP_ELEM: i32 = 1;
const GET_SMP_PROCESSOR_ID: i32 = 8;
const REDIRECT_MAP: i32 = 51;
const XDP_ADJUST_TAIL: i32 = 65;
const XDP_STORE_BYTES: i32 = 190;

/// `enum xdp_action`.
const XDP_DROP: i32 = 1;
const XDP_REDIRECT: i32 = 4;

const ENXIO: i32 = 6;
const EMSGSIZE: i32 = 90;

/// Where a program's map is named by its descriptor (`BPF_PSEUDO_MAP_FD`).
const MAP_FD: u8 = 1;

/// Instructions with jumps to labels, which are resolved at the end.
#[derive(Default)]
struct Assembly {
    insns: Vec<Insn>,
    /// Which instruction jumps to which label.
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Drop,
    Goes,
    Fits,
    Refuse,
    NoRoom,
    Done,
}

impl Assembly {
    fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        let registers = if cfg!(target_endian = "big") { to << 4 | from } else { from << 4 | to };
        self.insns.push(Insn { code, registers, offset, immediate });
    }

    /// `to = immediate`, of 64 bits.
    fn set(&mut self, to: u8, immediate: i32) {
        self.put(0xb7, to, 0, 0, immediate);
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.put(0xbf, to, from, 0, 0);
    }

    fn add(&mut self, to: u8, immediate: i32) {
        self.put(0x07, to, 0, 0, immediate);
    }

    fn add_register(&mut self, to: u8, from: u8) {
        self.put(0x0f, to, from, 0, 0);
    }

    fn and(&mut self, to: u8, immediate: i32) {
        self.put(0x57, to, 0, 0, immediate);
    }

    fn shift_left(&mut self, to: u8, bits: i32) {
        self.put(0x67, to, 0, 0, bits);
    }

    fn or_register(&mut self, to: u8, from: u8) {
        self.put(0x4f, to, from, 0, 0);
    }

    fn subtract(&mut self, to: u8, from: u8) {
        self.put(0x1f, to, from, 0, 0);
    }

    /// `to = *(u64 *)(from + at)`
    fn load(&mut self, to: u8, from: u8, at: usize) {
        self.put(0x79, to, from, at as i16, 0);
    }

    fn load_32(&mut self, to: u8, from: u8, at: usize) {
        self.put(0x61, to, from, at as i16, 0);
    }

    fn store(&mut self, to: u8, at: usize, from: u8) {
        self.put(0x7b, to, from, at as i16, 0);
    }

    fn load_state(&mut self, to: u8, word: usize) {
        self.load(to, STATE, word * 8);
    }

    fn store_state(&mut self, word: usize, from: u8) {
        self.store(STATE, word * 8, from);
    }

    fn call(&mut self, helper: i32) {
        self.put(0x85, 0, 0, 0, helper);
    }

    fn set_map(&mut self, to: u8, fd: i32) {
        self.put(0x18, to, MAP_FD, 0, fd);
        self.put(0, 0, 0, 0, 0);
    }

    /// Jumps if `what (op) immediate`: 0x15 equal, 0x55 different, 0xa5 less, 0x25 greater, all unsigned.
    fn jump_if(&mut self, op: u8, what: u8, immediate: i32, label: Label) {
        self.jumps.push((self.insns.len(), label));
        self.put(op, what, 0, 0, immediate);
    }

    /// Likewise with a register: 0x5d different, 0x3d not less.
    fn jump_if_register(&mut self, op: u8, what: u8, with: u8, label: Label) {
        self.jumps.push((self.insns.len(), label));
        self.put(op, what, with, 0, 0);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.insns.len()));
    }

    fn exit(&mut self) {
        self.put(0x95, 0, 0, 0, 0);
    }

    /// `r0 = ` the place of entry `key` (a register, or 0) in a map, or 0.
    fn look_up(&mut self, map: i32, key: Option<u8>) {
        match key {
            Some(key) => self.put(0x63, STACK, key, -4, 0),
            None => self.put(0x62, STACK, 0, -4, 0),
        }
        self.set_map(R1, map);
        self.copy(R2, STACK);
        self.add(R2, -4);
        self.call(MAP_LOOKUP_ELEM);
    }

    fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let target = self.labels.iter().find(|(name, _)| *name == label).map(|(_, place)| *place);
            let target = target.expect("a label for each jump");
            self.insns[at].offset = target as i16 - at as i16 - 1;
        }
        self.insns
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
    a.jump_if(0x15, R0, 0, Label::Drop);
    a.copy(STATE, R0);
    // After a refusal nothing goes any more, unless that is wanted: what follows must not overtake.
    a.load_state(R1, word::REFUSED);
    a.jump_if(0x15, R1, 0, Label::Goes);
    a.load_state(R1, word::GOES_ON);
    a.jump_if(0x15, R1, 0, Label::Drop);
    a.label(Label::Goes);
    a.load_state(R3, word::NEXT);
    a.load_state(R1, word::END);
    a.jump_if_register(0x3d, R3, R1, Label::Drop);
    a.look_up(maps.slots, Some(R3));
    a.jump_if(0x15, R0, 0, Label::Drop);
    a.copy(SLOT, R0);
    a.load(LENGTH, SLOT, 0);
    a.jump_if(0xa5, LENGTH, LEN_MIN as i32, Label::Drop);
    a.jump_if(0x25, LENGTH, frame_max as i32, Label::Drop);
    // The length that it has: data_end - data of struct xdp_md.
    a.load_32(R3, CONTEXT, 4);
    a.load_32(R1, CONTEXT, 0);
    a.subtract(R3, R1);
    a.copy(R2, LENGTH);
    a.subtract(R2, R3);
    a.jump_if(0x15, R2, 0, Label::Fits);
    a.copy(R1, CONTEXT);
    a.call(XDP_ADJUST_TAIL);
    a.set(R1, -EMSGSIZE);
    a.jump_if(0x55, R0, 0, Label::Refuse);
    a.label(Label::Fits);
    a.copy(R1, CONTEXT);
    a.set(R2, 0);
    a.copy(R3, SLOT);
    a.add(R3, DATA_AT as i32);
    a.copy(R4, LENGTH);
    a.call(XDP_STORE_BYTES);
    a.set(R1, -EMSGSIZE);
    a.jump_if(0x55, R0, 0, Label::Refuse);
    a.call(GET_SMP_PROCESSOR_ID);
    a.store_state(word::PROCESSOR, R0);
    a.set_map(R1, maps.devices);
    a.set(R2, 0);
    a.set(R3, XDP_DROP);
    a.call(REDIRECT_MAP);
    // The interface is gone, and the kernel took it out of the map.
    a.set(R1, -ENXIO);
    a.jump_if(0x55, R0, XDP_REDIRECT, Label::Refuse);
    a.load_state(R1, word::NEXT);
    a.add(R1, 1);
    a.store_state(word::NEXT, R1);
    a.exit();
    // One that never was handed over, for the reason in r1.
    a.label(Label::Refuse);
    a.store_state(word::ERROR, R1);
    a.set(R1, 0);
    a.store_state(word::GOES_ON, R1);
    for word in [word::NEXT, word::TOLD, word::REFUSED] {
        a.load_state(R2, word);
        a.add(R2, 1);
        a.store_state(word, R2);
    }
    a.label(Label::Drop);
    a.set(R0, XDP_DROP);
    a.exit();
    a.finish()
}

/// The beginning of both that listen: nothing to do unless it is about frames of ours. Words that the kernel tells are
/// in the context.
fn listen(a: &mut Assembly, maps: Maps) {
    a.copy(CONTEXT, R1);
    a.look_up(maps.state, None);
    a.jump_if(0x15, R0, 0, Label::Done);
    a.copy(STATE, R0);
    a.load_state(R1, word::NEXT);
    a.load_state(R2, word::TOLD);
    a.jump_if_register(0x3d, R2, R1, Label::Done);
    a.call(GET_SMP_PROCESSOR_ID);
    a.load_state(R1, word::PROCESSOR);
    a.jump_if_register(0x5d, R0, R1, Label::Done);
}

/// Counts `r3` frames as refused for the reason in `r4`; after one that is not want of room nothing goes any more.
fn refuse(a: &mut Assembly) {
    for word in [word::REFUSED, word::TOLD] {
        a.load_state(R1, word);
        a.add_register(R1, R3);
        a.store_state(word, R1);
    }
    a.jump_if(0x15, R4, 0, Label::NoRoom);
    a.store_state(word::ERROR, R4);
    a.set(R1, 0);
    a.store_state(word::GOES_ON, R1);
    a.label(Label::NoRoom);
}

/// At `xdp_devmap_xmit(from, to, sent, drops, err)`.
pub(super) fn told(maps: Maps) -> Vec<Insn> {
    let mut a = Assembly::default();
    listen(&mut a, maps);
    a.load(R3, CONTEXT, 3 * 8);
    a.load(R4, CONTEXT, 4 * 8);
    a.jump_if(0x55, R4, 0, Label::Refuse);
    // Note the batch: r2 = its place, r3 = refused << 32 | sent.
    a.load_state(R1, word::BATCHES);
    a.copy(R2, R1);
    a.add(R1, 1);
    a.store_state(word::BATCHES, R1);
    a.and(R2, word::BATCHES_MAX as i32 - 1);
    a.shift_left(R2, 3);
    a.add_register(R2, STATE);
    a.load(R1, CONTEXT, 2 * 8);
    a.copy(R0, R3);
    a.shift_left(R0, 32);
    a.or_register(R0, R1);
    a.store(R2, word::HANDED * 8, R0);
    a.load_state(R2, word::TOLD);
    a.add_register(R2, R1);
    a.store_state(word::TOLD, R2);
    a.label(Label::Refuse);
    refuse(&mut a);
    a.label(Label::Done);
    a.set(R0, 0);
    a.exit();
    a.finish()
}

/// At `xdp_redirect_err(dev, xdp, tgt, err, map_type, map_id, index)`.
pub(super) fn failed(maps: Maps) -> Vec<Insn> {
    let mut a = Assembly::default();
    listen(&mut a, maps);
    a.set(R3, 1);
    a.load(R4, CONTEXT, 3 * 8);
    refuse(&mut a);
    a.label(Label::Done);
    a.set(R0, 0);
    a.exit();
    a.finish()
}
