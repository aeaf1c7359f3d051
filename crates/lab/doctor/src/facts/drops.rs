//! Packets that the kernel dropped while it was watched, by its own reason.
//!
//! ```text
//! kernel: kfree_skb(packet, place, reason) --program at the tracepoint--> counts[reason] += 1
//! reasons by name: enum skb_drop_reason of the kernel's type information
//! ```
//!
//! The counts are of the whole machine: all interfaces and namespaces, sent packets and local ones too.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};

use tapline_bpf::ebpf::code::{ADD, DOUBLE, JLT, LSH, MOV};
use tapline_bpf::ebpf::{Insn, R0, R1, R2, R3};
use tapline_sys::bpf::{LoadedProgram, ProgramKind, SharedArray, TracepointLink, kernel_enumeration};

/// The name in bpftool(8).
const NAME: &str = "tapline_drops";
/// Reasons that are counted apart. Those of subsystems (mac80211, Open vSwitch) have numbers beyond.
const REASONS: u32 = 512;
/// The tracepoint, and the third of its arguments.
const TRACEPOINT: &std::ffi::CStr = c"kfree_skb";
const REASON_ARGUMENT: i16 = 16;

/// Packets dropped by the kernel in some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drops {
    /// Packets by reason, most first.
    Counted(Vec<(String, u64)>),
    /// The kernel was not asked, or does not report drops, with the reason.
    NotTold(String),
}

/// A program that counts drops while this lives. Minimum kernel: 5.17. Needs `CAP_BPF` and `CAP_PERFMON`.
#[derive(Debug)]
pub struct DropWatch {
    _link: TracepointLink,
    counts: SharedArray,
}

impl DropWatch {
    /// Begins to count.
    ///
    /// # Errors
    /// The reason for the impossibility, and the needed rights, for people.
    pub fn start() -> Result<DropWatch, String> {
        let counts = SharedArray::create(NAME, (REASONS + 1) * 8, 1).map_err(|error| {
            format!("counting by reason needs CAP_BPF and CAP_PERFMON, or root, and Linux 5.17: {error}")
        })?;
        let program = program(counts.as_fd().as_raw_fd());
        let loaded = LoadedProgram::load(ProgramKind::RawTracepoint, NAME, &program);
        let loaded = loaded.map_err(|error| format!("counting by reason: {error}"))?;
        let link = TracepointLink::attach(&loaded, TRACEPOINT);
        let link =
            link.map_err(|error| format!("this kernel reports no reasons (Linux 5.17 does): {error}"))?;
        Ok(DropWatch { _link: link, counts })
    }

    /// The drops since the start.
    pub fn read(&self) -> Drops {
        let names: BTreeMap<u32, String> = kernel_enumeration("skb_drop_reason")
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| (value, name))
            .collect();
        let name = |reason: u32| match names.get(&reason) {
            _ if reason == REASONS => "of subsystems".to_owned(),
            Some(name) => name.trim_start_matches("SKB_DROP_REASON_").to_ascii_lowercase(),
            None => format!("reason {reason}"),
        };
        let count = |reason: u32| self.counts.word(0, reason as usize);
        let mut counted: Vec<(String, u64)> = (0..=REASONS)
            .filter(|reason| count(*reason) > 0)
            .map(|reason| (name(reason), count(reason)))
            .collect();
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Drops::Counted(counted)
    }
}

/// `counts[min(reason, REASONS)] += 1`.
fn program(counts: i32) -> Vec<Insn> {
    let mut insns = vec![
        Insn::load(DOUBLE, R2, R1, REASON_ARGUMENT),
        // The upper half of the word is none of the reason's.
        Insn::alu_register(MOV, false, R2, R2),
        Insn::skip_if(JLT, false, R2, REASONS as i32, 1),
        Insn::set(R2, REASONS),
        Insn::alu_immediate(LSH, true, R2, 3),
    ];
    insns.extend(Insn::set_map_value(R3, counts));
    insns.extend([
        Insn::alu_register(ADD, true, R3, R2),
        Insn::set(R1, 1),
        Insn::add_at(R3, R1, 0),
        Insn::set(R0, 0),
        Insn::EXIT,
    ]);
    insns
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn packets_without_a_socket_have_a_drop_reason() {
        const TEST: &str = "packets_without_a_socket_have_a_drop_reason";
        let watch = match DropWatch::start() {
            Ok(watch) => watch,
            Err(why) => return eprintln!("skipped: {TEST}: {why}"),
        };
        // A port that was free a moment ago.
        let port =
            UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("loopback").port();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        // Each packet is answered by ICMP, of which the next call of the socket tells.
        (0..20).for_each(|_| drop(socket.send_to(b"x", ("127.0.0.1", port))));
        let Drops::Counted(counted) = watch.read() else { panic!("it counts") };
        assert!(counted.is_sorted_by(|one, other| one.1 >= other.1), "{counted:?}");
        let no_socket = counted.iter().find(|(name, _)| name == "no_socket" || name.starts_with("reason "));
        assert!(no_socket.is_some_and(|(_, count)| *count >= 10), "{counted:?}");
    }
}
