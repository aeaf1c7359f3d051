//! Times the tap: the interval between two packets at the kernel's tracepoint `netif_receive_skb`, in one of its threads.
//!
//! ```text
//! list of packets   netif_receive_skb, tap, copy into the ring | netif_receive_skb, tap, copy into the ring | ...
//!                   '---------------- interval ---------------'
//! ```
//!
//! The kernel delivers packets in lists of eight. It runs the tap of one packet right before it comes to the next one, so
//! that seven of eight intervals are the tap, the time stamp and the copy, and nothing else; the median is one of them.
//! The driver and the stack work before and after a list. The program itself, some tens of nanoseconds, is part of it.
//!
//! A program at the tracepoint counts intervals in a histogram: bucket 0 is unused, the last one has all longer ones.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Result, anyhow};
use tapline_bpf::ebpf::code::{ADD, DOUBLE, JEQ, JLT, JNE, LSH, MOV, RSH, SUB};
use tapline_bpf::ebpf::{Insn, R0, R1, R2, helper};
use tapline_sys::bpf::{LoadedProgram, ProgramKind, SharedArray, TracepointLink};

/// Nanoseconds of a bucket, as a power of two.
const BUCKET_BITS: i32 = 2;
const BUCKETS: u32 = 8192;
/// Word of the array that holds the time of the packet before.
const LAST: i16 = 0;
const NAME: &str = "tapline_tap";

/// Counts intervals while this lives. Minimum kernel: 5.5. Needs `CAP_BPF` and `CAP_PERFMON`.
#[derive(Debug)]
pub(crate) struct TapTimer {
    _link: TracepointLink,
    counts: SharedArray,
}

impl TapTimer {
    /// Begins to count packets of one thread.
    ///
    /// # Errors
    /// If the kernel refuses the program.
    pub(crate) fn start(thread: u32) -> Result<TapTimer> {
        let counts = SharedArray::create(NAME, (BUCKETS + 1) * 8, 1)?;
        let insns = program(counts.as_fd().as_raw_fd(), thread);
        let program = LoadedProgram::load(ProgramKind::RawTracepoint, NAME, &insns);
        let program = program.map_err(|error| anyhow!("timing the tap: {error}"))?;
        let link = TracepointLink::attach(&program, c"netif_receive_skb")?;
        Ok(TapTimer { _link: link, counts })
    }

    /// The median interval in nanoseconds; `None` before the second packet.
    pub(crate) fn median_ns(&self) -> Option<f64> {
        let count = |bucket: u32| self.counts.word(0, 1 + bucket as usize);
        let all: u64 = (0..BUCKETS).map(count).sum();
        let mut seen = 0;
        let middle = (0..BUCKETS).find(|bucket| {
            seen += count(*bucket);
            all > 0 && seen * 2 >= all
        })?;
        Some((f64::from(middle) + 0.5) * f64::from(1_u32 << BUCKET_BITS))
    }
}

/// `now - last` into the histogram, in the thread alone.
fn program(array: i32, thread: u32) -> Vec<Insn> {
    let mut work = vec![Insn::call(helper::KTIME_GET_NS)];
    work.extend(Insn::set_map_value(R1, array));
    work.push(Insn::load(DOUBLE, R2, R1, LAST));
    work.push(Insn::store(R1, R0, LAST));
    let count = [
        Insn::alu_register(SUB, true, R0, R2),
        Insn::alu_immediate(RSH, true, R0, BUCKET_BITS),
        Insn::skip_if(JLT, true, R0, BUCKETS as i32, 1),
        Insn::set(R0, BUCKETS - 1),
        Insn::alu_register(MOV, false, R0, R0),
        Insn::alu_immediate(LSH, true, R0, 3),
        Insn::alu_register(ADD, true, R1, R0),
        Insn::set(R2, 1),
        Insn::add_at(R1, R2, 8),
    ];
    // The first packet has none before it.
    work.push(Insn::skip_if(JEQ, true, R2, 0, count.len() as i16));
    work.extend(count);
    let mut insns = vec![
        Insn::call(helper::GET_CURRENT_PID_TGID),
        Insn::skip_if(JNE, false, R0, thread as i32, work.len() as i16),
    ];
    insns.extend(work);
    insns.extend([Insn::set(R0, 0), Insn::EXIT]);
    insns
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn intervals_of_this_threads_packets_count() {
        const TEST: &str = "intervals_of_this_threads_packets_count";
        let own = std::fs::read_link("/proc/thread-self").ok();
        let own =
            own.and_then(|path| path.file_name()?.to_str()?.parse().ok()).expect("a thread has a number");
        let timers = TapTimer::start(own).and_then(|timer| Ok((timer, TapTimer::start(u32::MAX >> 1)?)));
        let (timer, others) = match timers {
            Ok(timers) => timers,
            Err(why) => return eprintln!("skipped: {TEST}: {why:#}"),
        };
        assert_eq!(timer.median_ns(), None);
        // What is sent over loopback is mostly received in the same thread, right after the call.
        let (one, other) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
        let (one, other) = (one.expect("loopback"), other.expect("loopback"));
        let to = other.local_addr().expect("an address");
        for _ in 0..1000 {
            one.send_to(b"x", to).expect("loopback takes it");
        }
        let median = timer.median_ns().expect("packets came");
        assert!((100.0..1e7).contains(&median), "{median} ns from one call to the next");
        assert_eq!(others.median_ns(), None, "no thread has this number");
    }
}
