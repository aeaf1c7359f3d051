//! The driver's metadata of a packet, written in front of its bytes by a program in front of AF_XDP sockets.
//!
//! ```text
//! chunk := ... note packet                                     the kernel copies what stands in front of a packet with it
//! note  := time:u64 vlan:u64 cookie:u64                        24 bytes that end where the packet begins
//! time  := nanoseconds of the adapter's clock, or 0            bpf_xdp_metadata_rx_timestamp, since Linux 6.3
//! vlan  := protocol:u16be tci:u16 0:u32, or 0                  bpf_xdp_metadata_rx_vlan_tag, since Linux 6.8: a tag that the adapter took out
//! ```
//!
//! Not each packet has a note: a driver may leave no headroom. The cookie marks one; the reader clears the cookie, as
//! the memory is used again.

use super::lower::Lowering;
use tapline_bpf::ebpf::code::*;
use tapline_bpf::ebpf::{CONTEXT, FRAME, Insn, R0, R1, R2, R3, helper, xdp_md};

/// Stack offsets of the answers: nothing else is needed there any more.
const TIME_AT: i16 = -8;
const VLAN_AT: i16 = -16;

/// The kernel functions that give XDP metadata of a received packet, by their numbers in the kernel's type
/// information (BTF). Minimum kernel: 6.3. A driver that lacks an answer leaves 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMetadataCalls {
    /// `bpf_xdp_metadata_rx_timestamp`, to note the time.
    pub time: Option<u32>,
    /// `bpf_xdp_metadata_rx_vlan_tag`, to note the tag.
    pub vlan: Option<u32>,
    /// The number that ends the metadata of a packet, by which it is known.
    pub cookie: u64,
}

/// XDP metadata of a received packet, as a program left it in front of the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxMetadata {
    /// Nanoseconds of the adapter's clock; 0 if it did not stamp the packet.
    pub time: u64,
    /// Protocol identifier and control information of the tag; 0 and 0 without one.
    pub vlan: (u16, u16),
}

impl RxMetadata {
    /// Bytes of a note.
    pub const LEN: usize = 24;

    /// Reads the note in front of a packet, if it has this cookie, and clears that.
    pub fn take(bytes: &mut [u8; RxMetadata::LEN], cookie: u64) -> Option<RxMetadata> {
        let [time, vlan, end] = std::array::from_fn(|word| {
            let bytes: &[u8; RxMetadata::LEN] = bytes;
            std::array::from_fn::<u8, 8, _>(|byte| bytes[word * 8 + byte])
        });
        if end != cookie.to_ne_bytes() {
            return None;
        }
        bytes[16..].fill(0);
        let [p, q, t, u, ..] = vlan;
        let vlan = (u16::from_be_bytes([p, q]), u16::from_ne_bytes([t, u]));
        Some(RxMetadata { time: u64::from_ne_bytes(time), vlan })
    }
}

impl Lowering {
    /// Notes the driver's metadata, if there is room in front of the packet.
    pub(super) fn note(&mut self, notes: &RxMetadataCalls) {
        let store: Vec<Insn> = store(notes);
        self.push(Insn::copy(R1, CONTEXT));
        self.push(Insn::alu_immediate(MOV, true, R2, -(RxMetadata::LEN as i32)));
        self.push(Insn::call(helper::XDP_ADJUST_META));
        self.push(Insn::skip_if(JNE, true, R0, 0, store.len() as i16));
        store.into_iter().for_each(|insn| self.push(insn));
    }
}

/// Asks the driver, and stores its answers with the cookie.
fn store(notes: &RxMetadataCalls) -> Vec<Insn> {
    let at = |to, offset: i16| [Insn::copy(to, FRAME), Insn::alu_immediate(ADD, true, to, offset.into())];
    let mut ask = vec![Insn::set(R1, 0), Insn::store(FRAME, R1, TIME_AT), Insn::store(FRAME, R1, VLAN_AT)];
    if let Some(function) = notes.time {
        ask.push(Insn::copy(R1, CONTEXT));
        ask.extend(at(R2, TIME_AT));
        ask.push(Insn::call_kernel(function));
    }
    if let Some(function) = notes.vlan {
        ask.push(Insn::copy(R1, CONTEXT));
        ask.extend(at(R2, VLAN_AT));
        ask.extend(at(R3, VLAN_AT + 2));
        ask.push(Insn::call_kernel(function));
    }
    let mut write = vec![
        Insn::load(DOUBLE, R1, FRAME, TIME_AT),
        Insn::store(R2, R1, 0),
        Insn::load(DOUBLE, R1, FRAME, VLAN_AT),
        Insn::store(R2, R1, 8),
    ];
    write.extend(Insn::set_wide(R1, notes.cookie));
    write.push(Insn::store(R2, R1, 16));
    // The verifier wants to see that the note ends before the packet's first byte.
    ask.extend([
        Insn::load(WORD, R2, CONTEXT, xdp_md::DATA_META),
        Insn::load(WORD, R3, CONTEXT, xdp_md::DATA),
        Insn::copy(R1, R2),
        Insn::alu_immediate(ADD, true, R1, RxMetadata::LEN as i32),
        Insn { offset: write.len() as i16, ..Insn::jump_register(JGT, true, R1, R3) },
    ]);
    ask.extend(write);
    ask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_once() {
        let mut bytes = [0; RxMetadata::LEN];
        assert_eq!(RxMetadata::take(&mut bytes, 7), None);
        bytes[..8].copy_from_slice(&99_u64.to_ne_bytes());
        bytes[8..10].copy_from_slice(&[0x88, 0xa8]);
        bytes[10..12].copy_from_slice(&0x2005_u16.to_ne_bytes());
        bytes[16..].copy_from_slice(&7_u64.to_ne_bytes());
        assert_eq!(RxMetadata::take(&mut bytes, 8), None);
        assert_eq!(RxMetadata::take(&mut bytes, 7), Some(RxMetadata { time: 99, vlan: (0x88a8, 0x2005) }));
        assert_eq!(RxMetadata::take(&mut bytes, 7), None, "it belongs to another packet now");
    }
}
