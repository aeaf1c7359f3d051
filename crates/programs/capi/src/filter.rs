//! Filters for C: texts to programs, programs onto handles, and single packets through programs.
//!
//! ```text
//! text --compile--> bpf_program (malloc) --pcap_setfilter--> kernel and Engine
//!                                        --pcap_offline_filter, bpf_filter--> verdict on one packet
//! ```
//!
//! Programs may also be the caller's own. Each is validated before it runs; `bpf_filter` gets no length, so its extent
//! is found by following its jumps, which go forward only. The last few programs are kept decoded, by their content.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_uchar, c_uint};
use std::ptr;
use std::slice;

use tapline_bpf::{Insn, Program, code};
use tapline_filter::{HandleKind as Origin, Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::{Meta, Packet};

use crate::engine::Engine;
use crate::failure::{Failure, guard, text_at};
use crate::handle::{Handle, HandleState, Kind, on};
use crate::memory;
use crate::offline::pcap_open_dead;
use crate::query::pcap_close;
use crate::raw::{Code, ERRBUF_SIZE, NETMASK_UNKNOWN, PacketHeader};
use crate::stdio;

/// The longest program that is followed: the kernel's limit is 4096.
const EXTENT_MAX: usize = 1 << 20;
/// Programs kept decoded for each thread.
const KEPT_MAX: usize = 8;

/// `pcap_compile(3PCAP)`. The program is freed by `pcap_freecode`.
///
/// # Safety
/// `p` is an open handle that no other thread uses meanwhile; `program` is a place for a program; `text` is null or
/// ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_compile(
    p: *mut Handle,
    program: *mut Code,
    text: *const c_char,
    optimise: c_int,
    netmask: u32,
) -> c_int {
    let body = |state: &mut HandleState| {
        // SAFETY: as the caller promises.
        let text = unsafe { text_at(text) }.unwrap_or_default();
        // The program is empty if compiling fails, so that it can be freed.
        // SAFETY: as above.
        unsafe { *program = Code { len: 0, insns: ptr::null_mut() } };
        let compiled = compile_for(state, &text, optimise != 0, netmask)?;
        let insns = memory::copy(compiled.insns());
        if insns.is_null() {
            return Err(Failure::error("malloc: Cannot allocate memory"));
        }
        // SAFETY: as above.
        unsafe { *program = Code { len: compiled.insns().len() as c_uint, insns } };
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

fn compile_for(
    state: &mut HandleState,
    text: &str,
    optimise: bool,
    netmask: u32,
) -> Result<CompiledFilter, Failure> {
    if !state.is_active() {
        return Err(Failure::error("not-yet-activated pcap_t passed to pcap_compile"));
    }
    let Some(snap_len) = u32::try_from(state.snap_len).ok().filter(|len| *len > 0) else {
        return Err(Failure::error("snaplen of 0 rejects all packets"));
    };
    let link_type =
        state.link_type().ok_or_else(|| Failure::error(format!("unknown data link type {}", state.dlt)))?;
    let options = Options {
        snap_len,
        // `pcap_lookupnet` gives it in network byte order.
        netmask: (netmask != NETMASK_UNKNOWN).then(|| u32::from_be(netmask)),
        handle: match state.kind {
            Kind::Live(ref source) if !source.is_stored() => Origin::Live,
            Kind::Live(_) | Kind::File(_) => Origin::Savefile,
            _ => Origin::Dead,
        },
        optimise,
        ..Options::new(link_type)
    };
    let filter = compile(text, &options).map_err(|error| Failure::error(error.message))?;
    if let Kind::Live(source) = &mut state.kind {
        source.compiled(text, &options, &filter);
    }
    Ok(filter)
}

/// `pcap_compile_nopcap(3PCAP)`.
///
/// # Safety
/// As for [`pcap_compile`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_compile_nopcap(
    snap_len: c_int,
    dlt: c_int,
    program: *mut Code,
    text: *const c_char,
    optimise: c_int,
    netmask: u32,
) -> c_int {
    // SAFETY: as the caller promises; the handle is ours.
    unsafe {
        let p = pcap_open_dead(dlt, snap_len);
        let result = pcap_compile(p, program, text, optimise, netmask);
        pcap_close(p);
        result
    }
}

/// `pcap_freecode(3PCAP)`.
///
/// # Safety
/// `program` is null, or came from `pcap_compile` and its instructions are not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_freecode(program: *mut Code) {
    // SAFETY: as the caller promises.
    if let Some(program) = unsafe { program.as_mut() } {
        // SAFETY: pcap_compile took them from malloc(3).
        unsafe { memory::free(program.insns) };
        *program = Code { len: 0, insns: ptr::null_mut() };
    }
}

/// The instructions of a caller's program.
///
/// # Safety
/// `program` is null, or points to as many instructions as it says.
unsafe fn insns_of<'a>(program: *const Code) -> Option<&'a [Insn]> {
    // SAFETY: as the caller promises.
    let Code { len, insns } = unsafe { program.as_ref() }?;
    // SAFETY: as the caller promises.
    (!insns.is_null()).then(|| unsafe { slice::from_raw_parts(*insns, *len as usize) })
}

/// `pcap_setfilter(3PCAP)`.
///
/// # Safety
/// `p` is an open handle that no other thread uses meanwhile; `program` is null or a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setfilter(p: *mut Handle, program: *mut Code) -> c_int {
    let body = |state: &mut HandleState| {
        state.require_active()?;
        if let Kind::Dead = state.kind {
            return Err(Failure::error("A filter cannot be set on a pcap_open_dead pcap_t"));
        }
        // SAFETY: as the caller promises.
        let insns =
            unsafe { insns_of(program) }.ok_or_else(|| Failure::error("setfilter: No filter specified"))?;
        let program = Program::new(insns.to_vec()).map_err(|_| Failure::error("BPF program is not valid"))?;
        let filter = CompiledFilter::from(program);
        if state.extras.live_dump.is_some() {
            return Err(Failure::error("The filter cannot be changed while pcap_live_dump writes"));
        }
        if let Kind::Live(source) = &mut state.kind {
            source.set_program(&filter)?;
        }
        let engine = state.engine.insert(Engine::new(filter));
        if let Kind::Live(source) = &mut state.kind {
            // Packets taken out of the ring before passed the former filter.
            source.refilter(state.at, &mut |packet| engine.accepts(packet));
        }
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { on(p, body) }
}

/// `pcap_offline_filter(3PCAP)`: the return value of the program for a packet.
///
/// # Safety
/// `program` is null or a program; `data` has as many bytes as the header says were captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_offline_filter(
    program: *const Code,
    header: *const PacketHeader,
    data: *const c_uchar,
) -> c_int {
    guard(0, || {
        // SAFETY: as the caller promises.
        let (insns, header) = unsafe { (insns_of(program), header.as_ref()) };
        let (Some(insns), Some(header)) = (insns, header) else { return 0 };
        // SAFETY: as the caller promises.
        unsafe { verdict(insns, data, header.len, header.cap_len) as c_int }
    })
}

/// `bpf_filter`: the return value of a program of unknown length for a packet; all bits set without a program, 0 for
/// one that is not valid.
///
/// # Safety
/// `pc` is null or points to a program whose every way ends in a return; `data` has `cap_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bpf_filter(
    pc: *const Insn,
    data: *const c_uchar,
    wire_len: c_uint,
    cap_len: c_uint,
) -> c_uint {
    if pc.is_null() {
        return c_uint::MAX;
    }
    // SAFETY: as the caller promises.
    guard(0, || unsafe {
        match extent(pc) {
            Some(len) => verdict(slice::from_raw_parts(pc, len), data, wire_len, cap_len),
            None => 0,
        }
    })
}

/// Number of instructions of a program, up to the last that can be reached. `None` if it jumps backward or never
/// ends.
///
/// # Safety
/// All instructions that jumps forward from `pc` can reach are there.
unsafe fn extent(pc: *const Insn) -> Option<usize> {
    let (mut at, mut end) = (0, 1);
    while at < end {
        // SAFETY: an instruction before `end` can be reached, so it is there; or it stands between such, in the same
        // list.
        let insn = unsafe { pc.add(at).read() };
        let reached = match insn.class() {
            code::RET => at + 1,
            code::JMP if insn.is_branch() => at + 2 + usize::from(insn.jt.max(insn.jf)),
            code::JMP => (at + 2).checked_add(insn.k as usize)?,
            _ => at + 2,
        };
        end = end.max(reached);
        at += 1;
        if end > EXTENT_MAX {
            return None;
        }
    }
    Some(end)
}

/// Runs a program of the caller's on a packet.
///
/// # Safety
/// `data` is null or has `cap_len` bytes.
unsafe fn verdict(insns: &[Insn], data: *const c_uchar, wire_len: u32, cap_len: u32) -> u32 {
    let data = match data.is_null() {
        true => &[][..],
        // SAFETY: as the caller promises.
        false => unsafe { slice::from_raw_parts(data, cap_len as usize) },
    };
    let meta = Meta { wire_len, ..Meta::default() };
    with_decoded(insns, |program| program.run(Packet { data, meta: &meta })).unwrap_or(0)
}

/// Calls `run` with the program in decoded form; `None` if it is not valid.
fn with_decoded<T>(insns: &[Insn], run: impl FnOnce(&Program) -> T) -> Option<T> {
    thread_local! {
        /// The last one used comes first.
        static KEPT: RefCell<Vec<Program>> = const { RefCell::new(Vec::new()) };
    }
    KEPT.with_borrow_mut(|kept| {
        match kept.iter().position(|program| program.insns() == insns) {
            Some(0) => {}
            Some(place) => kept[..=place].rotate_right(1),
            None => {
                let program = Program::new(insns.to_vec()).ok()?;
                kept.truncate(KEPT_MAX - 1);
                kept.insert(0, program);
            }
        }
        kept.first().map(run)
    })
}

/// `bpf_validate`: 1 for a program that may be run.
///
/// # Safety
/// `insns` points to `len` instructions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bpf_validate(insns: *const Insn, len: c_int) -> c_int {
    guard(0, || {
        let Some(len) = usize::try_from(len).ok().filter(|len| *len > 0 && !insns.is_null()) else {
            return 0;
        };
        // SAFETY: as the caller promises.
        let insns = unsafe { slice::from_raw_parts(insns, len) };
        c_int::from(Program::new(insns.to_vec()).is_ok())
    })
}

/// `bpf_image`: the line for an instruction at a position, until the thread's next call.
///
/// # Safety
/// `insn` points to an instruction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bpf_image(insn: *const Insn, at: c_int) -> *mut c_char {
    thread_local! {
        static LINE: Cell<[c_char; ERRBUF_SIZE]> = const { Cell::new([0; ERRBUF_SIZE]) };
    }
    guard(ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let text = unsafe { *insn }.assembly(at.max(0) as usize);
        LINE.with(|line| {
            let line = line.as_ptr().cast::<c_char>();
            // SAFETY: the buffer has that room, and belongs to this thread.
            unsafe { crate::failure::put(line, &text) };
            line
        })
    })
}

/// `bpf_dump`: prints a program to standard output as `tcpdump -d`, with 2 as `-dd`, with more as `-ddd`.
///
/// # Safety
/// `program` is a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bpf_dump(program: *const Code, option: c_int) {
    guard((), || {
        // SAFETY: as the caller promises.
        let insns = unsafe { insns_of(program) }.unwrap_or_default();
        let text = listing(insns, option);
        // The program's own output may wait in stdio's buffer, so ours goes there as well.
        // SAFETY: pointer and length describe `text`; standard output is a stream.
        unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdio::standard_output()) };
    });
}

fn listing(insns: &[Insn], option: c_int) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    if option > 2 {
        // A String takes any text.
        let _ = writeln!(text, "{}", insns.len());
    }
    for (at, insn) in insns.iter().enumerate() {
        let Insn { code, jt, jf, k } = insn;
        let _ = match option {
            ..=1 => writeln!(text, "{}", insn.assembly(at)),
            2 => writeln!(text, "{{ {code:#x}, {jt}, {jf}, {k:#010x} }},"),
            _ => writeln!(text, "{code} {jt} {jf} {k}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETURN: Insn = Insn::new(code::RET | code::K, 1);

    #[test]
    fn the_extent_follows_jumps() {
        let len = |insns: &[Insn]| {
            // SAFETY: all that can be reached is in the list.
            unsafe { extent(insns.as_ptr()) }
        };
        assert_eq!(len(&[RETURN, RETURN]), Some(1));
        let branch = Insn::jump(code::JMP | code::JEQ | code::K, 0, 1, 0);
        assert_eq!(len(&[branch, RETURN, RETURN, RETURN]), Some(3));
        let jump = Insn::new(code::JMP | code::JA, 1);
        assert_eq!(len(&[jump, RETURN, RETURN]), Some(3));
        assert_eq!(len(&[Insn::new(code::JMP | code::JA, u32::MAX), RETURN]), None, "backward");
    }

    #[test]
    fn many_programs_in_turn_keep_their_meaning() {
        for round in 0..3 * KEPT_MAX as u32 {
            let k = round % 11;
            let insns = [Insn::new(code::RET | code::K, k)];
            assert_eq!(with_decoded(&insns, |program| program.insns()[0].k), Some(k));
        }
        assert_eq!(with_decoded(&[Insn::new(code::LD | code::IMM, 0)], |_| ()), None);
    }

    #[test]
    fn null_programs_accept_and_invalid_ones_reject() {
        // SAFETY: null, or a list whose way ends.
        unsafe {
            assert_eq!(bpf_filter(ptr::null(), ptr::null(), 0, 0), u32::MAX);
            let invalid = [Insn::new(code::ALU | code::DIV | code::K, 0), RETURN];
            assert_eq!(bpf_filter(invalid.as_ptr(), [0; 4].as_ptr(), 4, 4), 0);
            assert_eq!(bpf_validate(invalid.as_ptr(), 2), 0);
            assert_eq!(bpf_validate(invalid[1..].as_ptr(), 1), 1);
        }
    }
}
