//! eBPF: instructions and their encoding, labels that become distances, programs as text.
//!
//! ```text
//! (Insn | jump to Label | Label)* --Assembler::finish--> Insn* --text--> lines as the kernel's verifier prints them
//! ```
//!
//! The crate `ebpf` makes programs of filters with this, the crate `sys` those of live frames, and both are loaded as
//! they are: [`Insn`] has the layout of the kernel's `struct bpf_insn`. Sources: RFC 9669, `linux/bpf.h`,
//! `linux/bpf_common.h`.

mod assemble;
pub mod code;
mod insn;
mod text;

pub use assemble::{Assembler, Label, opposite};
pub use insn::{
    CONTEXT, FRAME, Insn, PSEUDO_KFUNC_CALL, PSEUDO_MAP_FD, PSEUDO_MAP_VALUE, R0, R1, R2, R3, R4, R5, R7, R8,
    R9, Register, Registers,
};
pub use text::text;

/// The kernel's functions for programs: `enum bpf_func_id` of `linux/bpf.h`.
pub mod helper {
    /// `r0 = bpf_map_lookup_elem(map, key)`: the address of the value, or 0. Minimum kernel: 3.18.
    pub const MAP_LOOKUP_ELEM: i32 = 1;
    /// `r0 = bpf_map_update_elem(map, key, value, flags)`. Minimum kernel: 3.18.
    pub const MAP_UPDATE_ELEM: i32 = 2;
    /// `r0 = bpf_ktime_get_ns()`: CLOCK_MONOTONIC. Minimum kernel: 4.1.
    pub const KTIME_GET_NS: i32 = 5;
    /// `r0 = bpf_get_smp_processor_id()`. Minimum kernel: 4.1.
    pub const GET_SMP_PROCESSOR_ID: i32 = 8;
    /// `r0 = bpf_get_current_pid_tgid()`: the thread in the lower half. Minimum kernel: 4.2.
    pub const GET_CURRENT_PID_TGID: i32 = 14;
    /// `bpf_tail_call(context, map, index)`: continues in another program. Minimum kernel: 4.2.
    pub const TAIL_CALL: i32 = 12;
    /// `r0 = bpf_skb_load_bytes(context, offset, to, length)`: from any of the packet's buffers, 0 unless bytes are
    /// missing. Minimum kernel: 4.5.
    pub const SKB_LOAD_BYTES: i32 = 26;
    /// `r0 = bpf_redirect_map(map, key, flags)`. Minimum kernel: 4.14.
    pub const REDIRECT_MAP: i32 = 51;
    /// `r0 = bpf_xdp_adjust_meta(context, delta)`: room in front of the packet. Minimum kernel: 4.15.
    pub const XDP_ADJUST_META: i32 = 54;
    /// `r0 = bpf_xdp_adjust_tail(context, delta)`: another length of the packet. Minimum kernel: 4.18.
    pub const XDP_ADJUST_TAIL: i32 = 65;
    /// `r0 = bpf_skb_load_bytes_relative(context, offset, to, length, start)`: from the packet's first buffer, 0 unless
    /// bytes are missing there; `start` is 0 for the MAC header, 1 for the network header. Minimum kernel: 4.18.
    pub const SKB_LOAD_BYTES_RELATIVE: i32 = 68;
    /// `r0 = bpf_probe_read_kernel(to, length, from)`: 0, or an error and zeros where there is no memory. For programs
    /// whose licence says GPL. Minimum kernel: 5.5.
    pub const PROBE_READ_KERNEL: i32 = 113;
    /// `r0 = bpf_ringbuf_reserve(ring, length, 0)`: the address of a record, or 0. Minimum kernel: 5.8.
    pub const RINGBUF_RESERVE: i32 = 131;
    /// `bpf_ringbuf_submit(record, 0)`: the record can be read. Minimum kernel: 5.8.
    pub const RINGBUF_SUBMIT: i32 = 132;
    /// `r0 = bpf_xdp_get_buff_len(context)`: the length of the packet with all of its buffers. Minimum kernel: 5.18.
    pub const XDP_GET_BUFF_LEN: i32 = 188;
    /// `r0 = bpf_xdp_load_bytes(context, offset, to, length)`: from any of the packet's buffers. Minimum kernel: 5.18.
    pub const XDP_LOAD_BYTES: i32 = 189;
    /// `r0 = bpf_xdp_store_bytes(context, offset, from, length)`. Minimum kernel: 5.18.
    pub const XDP_STORE_BYTES: i32 = 190;
}

/// Offsets in `struct __sk_buff` of `linux/bpf.h`, the context of a socket filter.
pub mod sk_buff {
    /// Length of the packet on the wire.
    pub const LEN: i16 = 0;
    /// The way in which the packet was addressed: `sll_pkttype` of packet(7).
    pub const PKT_TYPE: i16 = 4;
    /// EtherType of the packet, in network order.
    pub const PROTOCOL: i16 = 16;
    /// 1 if a VLAN tag was taken out of the bytes.
    pub const VLAN_PRESENT: i16 = 20;
    /// Control information of the VLAN tag.
    pub const VLAN_TCI: i16 = 24;
    /// Protocol identifier of the VLAN tag, in network order.
    pub const VLAN_PROTO: i16 = 28;
    /// The kernel's index of the interface.
    pub const IFINDEX: i16 = 40;
    /// The receive hash.
    pub const HASH: i16 = 68;
}

/// Offsets in `struct xdp_md` of `linux/bpf.h`, the context of an XDP program.
pub mod xdp_md {
    /// The address of the packet's first byte.
    pub const DATA: i16 = 0;
    /// The address behind its last byte.
    pub const DATA_END: i16 = 4;
    /// The address of the metadata in front of the packet.
    pub const DATA_META: i16 = 8;
    /// The kernel's index of the interface.
    pub const INGRESS_IFINDEX: i16 = 12;
    /// The number of the receive queue.
    pub const RX_QUEUE_INDEX: i16 = 16;
}

/// Results of an XDP program: `enum xdp_action` of `linux/bpf.h`.
pub mod xdp_action {
    /// `XDP_DROP`: the packet is dropped.
    pub const DROP: u32 = 1;
    /// `XDP_PASS`: the kernel's stack gets the packet.
    pub const PASS: u32 = 2;
    /// `XDP_REDIRECT`: the packet goes where `bpf_redirect_map` said.
    pub const REDIRECT: u32 = 4;
}
