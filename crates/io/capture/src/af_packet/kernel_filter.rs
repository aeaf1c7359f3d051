//! The program that runs in the kernel, before the ring.
//!
//! ```text
//! program   := direction? queue? filter
//! direction := ld #pkttype ; jeq #OUTGOING, .. ; ret #0 ; ld #0        out only, or in only on old kernels
//! queue     := ld #queue ; jeq #QUEUE, .. ; ret #0 ; ld #0             of one receive queue only
//! filter    := the compiled filter, `ret #k` lowered to the snap length
//!            | ret #snap_len                                           without one
//! ```
//!
//! The result of the program is how much of the packet goes into the ring: this is where the snap length acts.

use tapline_bpf::{Insn, ancillary, code};

use super::CaptureDirection;

/// `PACKET_OUTGOING` of linux/if_packet.h.
const OUTGOING: u32 = 4;

/// The program for a socket. `drops_sent` says that the kernel keeps sent packets away by itself.
pub(super) fn program(
    filter: Option<&[Insn]>,
    direction: CaptureDirection,
    drops_sent: bool,
    queue: Option<u16>,
    snap_len: u32,
) -> Vec<Insn> {
    let mut insns = match direction {
        CaptureDirection::Out => only(true),
        CaptureDirection::In if !drops_sent => only(false),
        _ => Vec::new(),
    };
    insns.extend(queue.into_iter().flat_map(of_queue));
    match filter {
        Some(filter) => insns.extend(filter.iter().map(|&insn| cut(insn, snap_len))),
        None => insns.push(Insn::new(code::RET | code::K, snap_len)),
    }
    insns
}

/// Passes only sent packets, or only others. Leaves A at 0.
fn only(sent: bool) -> Vec<Insn> {
    let (jt, jf) = if sent { (1, 0) } else { (0, 1) };
    vec![
        Insn::new(code::LD | code::W | code::ABS, ancillary::PKTTYPE),
        Insn::jump(code::JMP | code::JEQ | code::K, OUTGOING, jt, jf),
        Insn::new(code::RET | code::K, 0),
        Insn::new(code::LD | code::W | code::IMM, 0),
    ]
}

/// Passes only packets of one queue. The kernel numbers the queue of a received packet from 1, with 0 where its driver
/// does not record it, and that of a sent one from 0 (`skb_record_rx_queue`, linux/skbuff.h). Leaves A at 0.
fn of_queue(queue: u16) -> Vec<Insn> {
    let (queue, load) = (u32::from(queue), Insn::new(code::LD | code::W | code::ABS, ancillary::QUEUE));
    let is_equal = |k, jt, jf| Insn::jump(code::JMP | code::JEQ | code::K, k, jt, jf);
    let untold = if queue == 0 { 0 } else { queue + 1 };
    vec![
        Insn::new(code::LD | code::W | code::ABS, ancillary::PKTTYPE),
        is_equal(OUTGOING, 0, 2),
        load,
        is_equal(queue, 4, 3),
        load,
        is_equal(queue + 1, 2, 0),
        is_equal(untold, 1, 0),
        Insn::new(code::RET | code::K, 0),
        Insn::new(code::LD | code::W | code::IMM, 0),
    ]
}

/// `ret #k` asks for at most the snap length; `ret #0` stays a refusal.
fn cut(insn: Insn, snap_len: u32) -> Insn {
    let is_constant_return = insn.code == code::RET | code::K;
    Insn { k: if is_constant_return { insn.k.min(snap_len) } else { insn.k }, ..insn }
}

#[cfg(test)]
mod tests {
    use tapline_bpf::Program;
    use tapline_packet::{Meta, Packet, PacketType};

    use super::*;

    fn run(program: &[Insn], packet_type: PacketType) -> u32 {
        let meta = Meta { packet_type, wire_len: 4, ..Meta::default() };
        Program::new(program.to_vec()).unwrap().run(Packet { data: &[1, 2, 3, 4], meta: &meta })
    }

    #[test]
    fn directions() {
        let verdicts = |direction, drops_sent| {
            let program = program(None, direction, drops_sent, None, 96);
            [PacketType::Host, PacketType::OtherHost, PacketType::Outgoing].map(|kind| run(&program, kind))
        };
        assert_eq!(verdicts(CaptureDirection::Both, false), [96, 96, 96]);
        assert_eq!(verdicts(CaptureDirection::In, false), [96, 96, 0]);
        assert_eq!(verdicts(CaptureDirection::Out, false), [0, 0, 96]);
        assert_eq!(program(None, CaptureDirection::In, true, None, 96).len(), 1);
    }

    #[test]
    fn filters_start_with_zeroed_registers() {
        // A is 0 at the start, so this accepts; were it left at the packet type, it would not.
        let filter = [
            Insn::jump(code::JMP | code::JEQ | code::K, 0, 0, 1),
            Insn::new(code::RET | code::K, 262_144),
            Insn::new(code::RET | code::K, 0),
        ];
        let program = program(Some(&filter), CaptureDirection::Out, false, None, 64);
        assert_eq!(run(&program, PacketType::Outgoing), 64);
        assert_eq!(run(&program, PacketType::Host), 0);
    }
}
