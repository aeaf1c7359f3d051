//! Arguments of the commands of bpf(2): the members of `union bpf_attr` of linux/bpf.h, as far as they are used.
//!
//! The kernel takes fewer bytes than its union has for zeros, and refuses bytes that it does not know unless they are
//! zero.

/// `BPF_OBJ_NAME_LEN`.
pub(super) const NAME_LEN: usize = 16;

/// A structure of attributes.
///
/// # Safety
/// Integers only, without padding.
pub(super) unsafe trait Attributes {}

/// `BPF_MAP_CREATE`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct MapCreate {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) map_flags: u32,
    pub(super) inner_map_fd: u32,
    pub(super) numa_node: u32,
    pub(super) map_name: [u8; NAME_LEN],
    pub(super) map_ifindex: u32,
}

/// `BPF_MAP_UPDATE_ELEM`, `BPF_MAP_DELETE_ELEM`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct MapElement {
    pub(super) map_fd: u32,
    pub(super) hole: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// `BPF_PROG_LOAD`, up to the attach type.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct ProgLoad {
    pub(super) prog_type: u32,
    pub(super) insn_cnt: u32,
    pub(super) insns: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_size: u32,
    pub(super) log_buf: u64,
    pub(super) kern_version: u32,
    pub(super) prog_flags: u32,
    pub(super) prog_name: [u8; NAME_LEN],
    pub(super) prog_ifindex: u32,
    pub(super) expected_attach_type: u32,
}

/// `BPF_PROG_TEST_RUN`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct TestRun {
    pub(super) prog_fd: u32,
    pub(super) retval: u32,
    pub(super) data_size_in: u32,
    pub(super) data_size_out: u32,
    pub(super) data_in: u64,
    pub(super) data_out: u64,
    pub(super) repeat: u32,
    pub(super) duration: u32,
    pub(super) ctx_size_in: u32,
    pub(super) ctx_size_out: u32,
    pub(super) ctx_in: u64,
    pub(super) ctx_out: u64,
    pub(super) flags: u32,
    pub(super) cpu: u32,
    pub(super) batch_size: u32,
    pub(super) hole: u32,
}

/// `BPF_RAW_TRACEPOINT_OPEN`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct TracepointOpen {
    pub(super) name: u64,
    pub(super) prog_fd: u32,
    pub(super) hole: u32,
}

/// `BPF_PROG_GET_FD_BY_ID`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct GetFd {
    pub(super) id: u32,
    pub(super) next_id: u32,
    pub(super) open_flags: u32,
}

/// `BPF_OBJ_GET_INFO_BY_FD`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct GetInfo {
    pub(super) bpf_fd: u32,
    pub(super) info_len: u32,
    pub(super) info: u64,
}

/// `BPF_LINK_CREATE`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct LinkCreate {
    pub(super) prog_fd: u32,
    pub(super) target_ifindex: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
}

/// `BPF_LINK_UPDATE`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct LinkUpdate {
    pub(super) link_fd: u32,
    pub(super) new_prog_fd: u32,
    pub(super) flags: u32,
    pub(super) old_prog_fd: u32,
}

/// `BPF_ENABLE_STATS`.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct EnableStats {
    pub(super) kind: u32,
}

/// `struct bpf_prog_info`, up to `verified_insns`. The kernel fills the known fields; the rest stays zero.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct ProgInfo {
    pub(super) kind: u32,
    pub(super) id: u32,
    pub(super) tag: [u8; 8],
    pub(super) jited_prog_len: u32,
    pub(super) xlated_prog_len: u32,
    pub(super) jited_prog_insns: u64,
    pub(super) xlated_prog_insns: u64,
    pub(super) load_time: u64,
    pub(super) created_by_uid: u32,
    pub(super) nr_map_ids: u32,
    pub(super) map_ids: u64,
    pub(super) name: [u8; NAME_LEN],
    pub(super) ifindex: u32,
    pub(super) gpl_compatible: u32,
    pub(super) netns_dev: u64,
    pub(super) netns_ino: u64,
    pub(super) nr_jited_ksyms: u32,
    pub(super) nr_jited_func_lens: u32,
    pub(super) jited_ksyms: u64,
    pub(super) jited_func_lens: u64,
    pub(super) btf_id: u32,
    pub(super) func_info_rec_size: u32,
    pub(super) func_info: u64,
    pub(super) nr_func_info: u32,
    pub(super) nr_line_info: u32,
    pub(super) line_info: u64,
    pub(super) jited_line_info: u64,
    pub(super) nr_jited_line_info: u32,
    pub(super) line_info_rec_size: u32,
    pub(super) jited_line_info_rec_size: u32,
    pub(super) nr_prog_tags: u32,
    pub(super) prog_tags: u64,
    pub(super) run_time_ns: u64,
    pub(super) run_cnt: u64,
    pub(super) recursion_misses: u64,
    pub(super) verified_insns: u32,
    pub(super) attach_btf_obj_id: u32,
}

// The kernel's layout has no padding in these, and ours is the same: sizes and places of linux/bpf.h.
const _: () = assert!(size_of::<MapCreate>() == 48);
const _: () = assert!(size_of::<MapElement>() == 32);
const _: () = assert!(size_of::<ProgLoad>() == 72);
const _: () = assert!(size_of::<TestRun>() == 80);
const _: () = assert!(size_of::<TracepointOpen>() == 16);
const _: () = assert!(size_of::<GetInfo>() == 16);
const _: () = assert!(std::mem::offset_of!(ProgInfo, run_time_ns) == 192);
const _: () = assert!(size_of::<ProgInfo>() == 224);

// SAFETY: integers, and no padding: 7 * 4 + 16 + 4 = 48 bytes.
unsafe impl Attributes for MapCreate {}
// SAFETY: integers, the hole is named.
unsafe impl Attributes for MapElement {}
// SAFETY: integers, 8-byte fields at multiples of 8.
unsafe impl Attributes for ProgLoad {}
// SAFETY: as above.
unsafe impl Attributes for TestRun {}
// SAFETY: as above.
unsafe impl Attributes for GetInfo {}
// SAFETY: integers, the hole is named.
unsafe impl Attributes for TracepointOpen {}
// SAFETY: 32-bit integers.
unsafe impl Attributes for GetFd {}
// SAFETY: 32-bit integers.
unsafe impl Attributes for LinkCreate {}
// SAFETY: 32-bit integers.
unsafe impl Attributes for LinkUpdate {}
// SAFETY: one integer.
unsafe impl Attributes for EnableStats {}
