//! The program at the tracepoint `kfree_skb`, which hands over packets of one network namespace.
//!
//! ```text
//! kfree_skb(packet, place, reason, receiver)        receiver: the socket that did not take it, since Linux 6.11
//! namespace := of the receiver | of the packet's device | of the socket that sent it     the first that there is
//! unknown: unknown += 1       another: nothing       ours: seen += 1, and then
//!   neither IPv4 nor IPv6, or not filled: refused += 1       no room in the ring: no_room += 1       else: a record
//! record   := time:u64 reason:u32 len:u32 if_index:u32 protocol:u16 network:u16 tail:u32 0:u32 head:u64 data:u64
//!             bytes of the packet from its network header on, BYTES at most
//! counters := seen:u64 no_room:u64 refused:u64 unknown:u64
//! ```
//!
//! The fields of a packet are not always what their names say: a queue of a socket uses the place of the device for
//! numbers and addresses of its own. An address is therefore never followed but by the helper that reads zeros where
//! there is no memory, and a packet whose namespace is not ours for certain stays in the kernel.
//!
//! Nor is a packet's buffer always filled. A socket makes room for the whole packet, and then copies; if that fails, or
//! the socket closes before the headers are written, the kernel drops what was in the memory before.

use std::os::fd::{AsFd, AsRawFd};

use tapline_bpf::ebpf::code::{ADD, DOUBLE, HALF, JEQ, JGT, JLE, JNE, MOV, SUB, WORD};
use tapline_bpf::ebpf::{
    Assembler, CONTEXT as R6, FRAME, Insn, Label, R0, R1, R2, R3, R7, R8, R9, Register, helper,
};
use tapline_sys::SyscallError;
use tapline_sys::bpf::{
    LoadError, LoadedProgram, ProgramKind, RecordRing, SharedArray, TracepointLink, kernel_offsets,
};

/// The name in bpftool(8).
pub(super) const NAME: &str = "tapline_drops";
/// Bytes that are kept of a packet, from its network header on.
pub(super) const BYTES: u32 = 240;
/// Bytes of a record before those.
pub(super) const HEAD_LEN: u32 = 48;
/// Packets of the namespace.
pub(super) const SEEN: usize = 0;
/// Packets among them for which the ring had no room.
pub(super) const NO_ROOM: usize = 1;
/// Packets among them that are neither IPv4 nor IPv6, or that are not filled.
pub(super) const REFUSED: usize = 2;
/// Packets whose namespace is unknown.
pub(super) const UNKNOWN: usize = 3;
/// Bytes of the counters.
pub(super) const COUNTERS_LEN: u32 = 32;

/// The numbers of IPv4 and IPv6 in an Ethernet header.
pub(super) const PROTOCOLS: [u16; 2] = [0x0800, 0x86dd];

const TRACEPOINT: &std::ffi::CStr = c"kfree_skb";
/// Place on the stack for fields that are looked at.
const SLOT: i16 = -8;

/// Labels. Those of the sources of the namespace follow.
const KNOWN: Label = Label(0);
const IP: Label = Label(1);
const ROOM: Label = Label(2);
const FITS: Label = Label(3);
const END: Label = Label(4);
const PLACED: Label = Label(5);
const UNFIT: Label = Label(6);
const FILLED: Label = Label(7);
const SOURCES: u32 = 8;

/// Offsets in the kernel's structures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    len: i32,
    if_index: i32,
    protocol: i32,
    network: i32,
    tail: i32,
    head: i32,
    data: i32,
    device: i32,
    socket: i32,
    link_header: i32,
    transport: i32,
    route: i32,
    /// The namespace in a device.
    net_of_device: i32,
    /// The namespace in a socket.
    net_of_socket: i32,
    /// The number in a namespace.
    number: i32,
}

impl Offsets {
    /// Finds them in the kernel's type information.
    ///
    /// # Errors
    /// The reason, and a remedy.
    pub(super) fn of_kernel() -> Result<Offsets, String> {
        let members = [
            ("sk_buff", "len"),
            ("sk_buff", "skb_iif"),
            ("sk_buff", "protocol"),
            ("sk_buff", "network_header"),
            ("sk_buff", "tail"),
            ("sk_buff", "head"),
            ("sk_buff", "data"),
            ("sk_buff", "dev"),
            ("sk_buff", "sk"),
            ("sk_buff", "mac_header"),
            ("sk_buff", "transport_header"),
            ("sk_buff", "_skb_refdst"),
            ("net_device", "nd_net"),
            ("sock_common", "skc_net"),
            ("net", "ns"),
            ("ns_common", "inum"),
        ];
        let found = kernel_offsets(members).map_err(|error| {
            format!(
                "the kernel's type information cannot be read: {error}; a kernel with CONFIG_DEBUG_INFO_BTF=y has it"
            )
        })?;
        Offsets::new(found).ok_or_else(|| {
            let absent = members.iter().zip(found).find(|(_, offset)| offset.is_none());
            let name =
                absent.map_or(String::new(), |((structure, member), _)| format!("{structure}.{member}"));
            format!("this kernel has no {name}: packets and their namespaces cannot be read here")
        })
    }

    fn new(found: [Option<u32>; 16]) -> Option<Offsets> {
        let at = |index: usize| i32::try_from(found[index]?).ok();
        Some(Offsets {
            len: at(0)?,
            if_index: at(1)?,
            protocol: at(2)?,
            network: at(3)?,
            tail: at(4)?,
            head: at(5)?,
            data: at(6)?,
            device: at(7)?,
            socket: at(8)?,
            link_header: at(9)?,
            transport: at(10)?,
            route: at(11)?,
            net_of_device: at(12)?,
            net_of_socket: at(13)?,
            number: at(14)?.checked_add(at(15)?)?,
        })
    }
}

/// A program at its tracepoint.
pub(super) struct Attached {
    pub(super) program: LoadedProgram,
    pub(super) link: TracepointLink,
}

/// Lets the program run for packets of a namespace.
///
/// # Errors
/// The reason, and a remedy.
pub(super) fn attach(
    ring: &RecordRing,
    counters: &SharedArray,
    offsets: &Offsets,
    namespace: u32,
) -> Result<Attached, String> {
    let maps = [ring.as_fd(), counters.as_fd()].map(|map| map.as_raw_fd());
    let with = |has_receiver| {
        let insns = program(maps, offsets, namespace, has_receiver).expect("every label is set");
        let program = LoadedProgram::load(ProgramKind::RawTracepoint, NAME, &insns);
        let program = program.map_err(|error: LoadError| refusal(&error.call, &error))?;
        let link = TracepointLink::attach(&program, TRACEPOINT).map_err(|error| refusal(&error, &error))?;
        Ok(Attached { program, link })
    };
    with(true).or_else(|_: String| with(false))
}

/// The words for a call that the kernel refused.
pub(super) fn refusal(call: &SyscallError, words: &dyn std::fmt::Display) -> String {
    match call.source.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("this needs root, or CAP_BPF and CAP_PERFMON: {words}")
        }
        std::io::ErrorKind::OutOfMemory => format!("no memory for the ring (-B makes it smaller): {words}"),
        _ => format!("this kernel does not report drops with their reasons (Linux 5.17 does): {words}"),
    }
}

/// Registers: r6 packet, r7 reason, r8 record, r9 the receiver and other addresses. `None` if a label is missing.
fn program(maps: [i32; 2], offsets: &Offsets, namespace: u32, has_receiver: bool) -> Option<Vec<Insn>> {
    let [ring, counters] = maps;
    let mut code = Assembler::default();
    // The upper half of the third word does not belong to the reason.
    add(&mut code, [Insn::load(DOUBLE, R6, R1, 0), Insn::load(DOUBLE, R7, R1, 16)]);
    code.push(Insn::alu_register(MOV, false, R7, R7));
    if has_receiver {
        code.push(Insn::load(DOUBLE, R9, R1, 24));
    }
    find_namespace(&mut code, offsets, has_receiver);
    count(&mut code, counters, UNKNOWN);
    code.jump(Insn::GOTO, END);
    code.label(KNOWN);
    code.jump(Insn::jump_immediate(JNE, false, R1, namespace as i32), END);
    count(&mut code, counters, SEEN);
    read_field(&mut code, R6, offsets.protocol, 2);
    code.push(Insn::load(HALF, R1, FRAME, SLOT));
    for protocol in PROTOCOLS {
        code.jump(Insn::jump_immediate(JEQ, true, R1, i32::from(protocol.to_be())), IP);
    }
    code.jump(Insn::GOTO, UNFIT);
    code.label(IP);
    check_filled(&mut code, offsets);
    code.label(UNFIT);
    count(&mut code, counters, REFUSED);
    code.jump(Insn::GOTO, END);
    code.label(FILLED);
    add(&mut code, Insn::set_map(R1, ring));
    add(&mut code, [Insn::set(R2, HEAD_LEN + BYTES), Insn::set(R3, 0), Insn::call(helper::RINGBUF_RESERVE)]);
    code.jump(Insn::jump_immediate(JNE, true, R0, 0), ROOM);
    count(&mut code, counters, NO_ROOM);
    code.jump(Insn::GOTO, END);
    code.label(ROOM);
    fill_record(&mut code, offsets);
    code.label(END);
    add(&mut code, [Insn::set(R0, 0), Insn::EXIT]);
    code.finish()
}

/// Goes to [`KNOWN`] with the number of the packet's namespace in r1, and on if there is none.
fn find_namespace(code: &mut Assembler, offsets: &Offsets, has_receiver: bool) {
    let sources = [
        (None, offsets.net_of_socket),
        (Some(offsets.device), offsets.net_of_device),
        (Some(offsets.socket), offsets.net_of_socket),
    ];
    for ((address, net), number) in sources.into_iter().zip(SOURCES..).skip(usize::from(!has_receiver)) {
        let next = Label(number);
        if let Some(at) = address {
            read_field(code, R6, at, 8);
            code.push(Insn::load(DOUBLE, R9, FRAME, SLOT));
        }
        code.jump(Insn::jump_immediate(JEQ, true, R9, 0), next);
        read_field(code, R9, net, 8);
        code.push(Insn::load(DOUBLE, R9, FRAME, SLOT));
        code.jump(Insn::jump_immediate(JEQ, true, R9, 0), next);
        read_field(code, R9, offsets.number, 4);
        code.push(Insn::load(WORD, R1, FRAME, SLOT));
        code.jump(Insn::jump_immediate(JNE, true, R1, 0), KNOWN);
        code.label(next);
    }
}

/// Goes to [`FILLED`] if the packet's bytes were written from its network header on, and on or to [`UNFIT`] otherwise.
/// Changes r8 and r9.
///
/// The network header is set if it is behind the link's, or where the packet begins. A packet that neither came from a
/// device nor has one to go to is filled once it has a route (IPv6 writes headers before that) and a transport header
/// of its own (a raw socket with the header in its data sets that once all is copied).
fn check_filled(code: &mut Assembler, offsets: &Offsets) {
    read_field(code, R6, offsets.network, 2);
    code.push(Insn::load(HALF, R8, FRAME, SLOT));
    code.jump(Insn::jump_immediate(JEQ, true, R8, 0), UNFIT);
    read_field(code, R6, offsets.data, 8);
    code.push(Insn::load(DOUBLE, R9, FRAME, SLOT));
    read_field(code, R6, offsets.head, 8);
    add(code, [Insn::load(DOUBLE, R1, FRAME, SLOT), Insn::alu_register(SUB, true, R9, R1)]);
    code.jump(Insn::jump_register(JLE, true, R9, R8), PLACED);
    // Without a link header this is greater than any place.
    read_field(code, R6, offsets.link_header, 2);
    code.push(Insn::load(HALF, R1, FRAME, SLOT));
    code.jump(Insn::jump_register(JGT, true, R1, R8), UNFIT);
    code.label(PLACED);
    for (offset, len, size) in [(offsets.device, 8, DOUBLE), (offsets.if_index, 4, WORD)] {
        read_field(code, R6, offset, len);
        code.push(Insn::load(size, R1, FRAME, SLOT));
        code.jump(Insn::jump_immediate(JNE, true, R1, 0), FILLED);
    }
    read_field(code, R6, offsets.transport, 2);
    code.push(Insn::load(HALF, R1, FRAME, SLOT));
    code.jump(Insn::jump_register(JEQ, true, R1, R8), UNFIT);
    read_field(code, R6, offsets.route, 8);
    code.push(Insn::load(DOUBLE, R1, FRAME, SLOT));
    code.jump(Insn::jump_immediate(JNE, true, R1, 0), FILLED);
}

/// Fills the record at r0 and hands it over.
fn fill_record(code: &mut Assembler, offsets: &Offsets) {
    add(code, [Insn::copy(R8, R0), Insn::call(helper::KTIME_GET_NS), Insn::store(R8, R0, 0)]);
    code.push(Insn::store_word(R8, R7, 8));
    let fields = [
        (offsets.len, 4, 12),
        (offsets.if_index, 4, 16),
        (offsets.protocol, 2, 20),
        (offsets.network, 2, 22),
        (offsets.tail, 4, 24),
        (offsets.head, 8, 32),
        (offsets.data, 8, 40),
    ];
    for (offset, len, at) in fields {
        code.push(Insn::set(R2, len));
        read(code, R6, offset, R8, at);
    }
    // No byte behind the tail, where other memory begins.
    add(code, [Insn::load(DOUBLE, R3, R8, 32), Insn::load(HALF, R1, R8, 22), Insn::load(WORD, R2, R8, 24)]);
    add(code, [Insn::alu_register(ADD, true, R3, R1), Insn::alu_register(SUB, false, R2, R1)]);
    code.jump(Insn::jump_immediate(JLE, true, R2, BYTES as i32), FITS);
    code.push(Insn::set(R2, BYTES));
    code.label(FITS);
    read(code, R3, 0, R8, HEAD_LEN as i32);
    add(code, [Insn::copy(R1, R8), Insn::set(R2, 0), Insn::call(helper::RINGBUF_SUBMIT)]);
}

/// Reads a field of the structure at `from` to the place on the stack; zeros if there is no memory.
fn read_field(code: &mut Assembler, from: Register, offset: i32, len: u32) {
    code.push(Insn::set(R2, len));
    read(code, from, offset, FRAME, i32::from(SLOT));
}

/// Reads r2 bytes of the kernel's memory at `from + offset` to `to + at`.
fn read(code: &mut Assembler, from: Register, offset: i32, to: Register, at: i32) {
    add(code, [Insn::copy(R3, from), Insn::alu_immediate(ADD, true, R3, offset)]);
    add(code, [Insn::copy(R1, to), Insn::alu_immediate(ADD, true, R1, at)]);
    code.push(Insn::call(helper::PROBE_READ_KERNEL));
}

/// `counters[word] += 1`.
fn count(code: &mut Assembler, counters: i32, word: usize) {
    add(code, Insn::set_map_value(R1, counters));
    add(code, [Insn::set(R2, 1), Insn::add_at(R1, R2, (word * 8) as i16)]);
}

fn add(code: &mut Assembler, insns: impl IntoIterator<Item = Insn>) {
    insns.into_iter().for_each(|insn| code.push(insn));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_remedy() {
        // EPERM, ENOMEM, EINVAL.
        for (errno, remedy) in [(1, "CAP_BPF and CAP_PERFMON"), (12, "-B"), (22, "Linux 5.17")] {
            let error = SyscallError::new("bpf(BPF_PROG_LOAD)", errno);
            let words = refusal(&error, &error);
            assert!(words.contains(remedy) && words.contains("bpf(BPF_PROG_LOAD)"), "{words}");
        }
        assert!(Offsets::new([Some(u32::MAX); 16]).is_none(), "no offset of a structure");
    }

    #[test]
    fn every_offset_is_needed() {
        assert!(Offsets::new([Some(8); 16]).is_some());
        for absent in 0..16 {
            let mut found = [Some(8); 16];
            found[absent] = None;
            assert!(Offsets::new(found).is_none(), "{absent}");
        }
    }
}
