//! The arena: a sending and a receiving machine, made of one.
//!
//! ```text
//! core A: generator --> near0 =====veth===== far0 --> ring of the link --> kernel thread (NAPI) --> tap --> program :core B
//! ```
//!
//! Receiving by NAPI in a thread of its own, on the program's core, makes that core a machine which receives: the
//! kernel and the program share it, and frames that do not come through in time are lost on the link, as it is on a
//! wire.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use tapline_arena::netns::{FAR, NEAR, Namespace};
use tapline_bpf::ebpf::{Insn, R0, xdp_action};
use tapline_sys::bpf::{LoadedProgram, ProgramKind, XdpLink, XdpMode};
use tapline_sys::{LinkControl, LinkStatistics, NetNs, RouteSocket, affinity, proc_packet};

use crate::scheduled;

/// Time limit for a program's start: one that hangs ends there, and one on a busy machine does not.
const START_MAX: Duration = Duration::from_secs(60);
/// Polling interval meanwhile.
const GLANCE: Duration = Duration::from_millis(10);
/// Time limit for the kernel's thread of an interface.
const THREAD_MAX: Duration = Duration::from_secs(20);

/// The core of each part.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cores {
    /// The generator's.
    pub sender: usize,
    /// The program's, and of the kernel's part of receiving.
    pub receiver: usize,
}

/// Counters of the interfaces, and the cost of the kernel's part of receiving.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Packets that left `near0`.
    pub entered: u64,
    /// Packets that `far0` received.
    pub received: u64,
    /// Processor time of the kernel's thread, in nanoseconds.
    pub kernel_ns: u64,
    /// Times that the kernel's thread slept until packets came.
    pub kernel_wakes: u64,
}

impl Counters {
    /// Growth since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            entered: self.entered.saturating_sub(earlier.entered),
            received: self.received.saturating_sub(earlier.received),
            kernel_ns: self.kernel_ns.saturating_sub(earlier.kernel_ns),
            kernel_wakes: self.kernel_wakes.saturating_sub(earlier.kernel_wakes),
        }
    }
}

/// A namespace with a pair of interfaces, and the cores.
#[derive(Debug)]
pub struct Arena {
    namespace: Namespace,
    place: NetNs,
    route: RouteSocket,
    near: u32,
    far: u32,
    thread: Option<u32>,
    /// The core of each part.
    pub cores: Cores,
}

impl Arena {
    /// Makes the namespace. Its first two processors are the ones that this process may use.
    ///
    /// # Errors
    /// Without the rights, or the program `ip`, for it.
    pub fn new() -> Result<Arena> {
        let allowed = affinity::allowed()?;
        let [sender, receiver] = [0, 1].map(|at| allowed[at.min(allowed.len() - 1)]);
        let namespace = Namespace::with_pair("bench").map_err(|error| anyhow!(error))?;
        // NAPI is on where GRO is. UDP is not merged by it.
        let place = NetNs::open(namespace.name())?;
        place.run(|| LinkControl::open()?.set_features(FAR, &[("rx-gro", true)]))??;
        let mut route = place.run(RouteSocket::open)??;
        let links = route.links()?;
        let index = |name: &str| links.iter().find(|link| link.name == name).map(|link| link.index);
        let (near, far) = (index(NEAR).context("near0")?, index(FAR).context("far0")?);
        let cores = Cores { sender, receiver };
        let mut arena = Arena { namespace, place, route, near, far, thread: None, cores };
        arena.thread()?;
        Ok(arena)
    }

    /// The namespace, with both ends of the pair.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The kernel's thread that receives for `far0`.
    pub fn receiving_thread(&self) -> Option<u32> {
        self.thread
    }

    /// Finds the kernel's thread that receives for `far0`, and puts it on the receiver's core. It may be another one
    /// after XDP was attached.
    fn thread(&mut self) -> Result<()> {
        if self.thread.is_some_and(|thread| napi_threads().contains(&thread)) {
            return Ok(());
        }
        let others = napi_threads();
        let switch = format!("echo 1 > /sys/class/net/{FAR}/threaded");
        let output = self.namespace.command("sh").args(["-c", &switch]).output()?;
        if !output.status.success() {
            bail!(
                "the kernel receives in no thread of its own (Linux 5.12 or later does): {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let start = Instant::now();
        while start.elapsed() < THREAD_MAX {
            if let Some(thread) = napi_threads().into_iter().find(|thread| !others.contains(thread)) {
                affinity::pin(Some(thread), &[self.cores.receiver])?;
                self.thread = Some(thread);
                return Ok(());
            }
            std::thread::sleep(GLANCE);
        }
        bail!("the kernel's thread napi/{FAR} did not appear")
    }

    /// Counters so far.
    pub fn counters(&mut self) -> Result<Counters> {
        let entered = self.statistics(self.near)?.tx_packets;
        let received = self.statistics(self.far)?.rx_packets;
        let kernel_ns = self.thread.and_then(scheduled::thread).unwrap_or(0);
        let kernel_wakes = self.thread.and_then(scheduled::waits).unwrap_or(0);
        Ok(Counters { entered, received, kernel_ns, kernel_wakes })
    }

    fn statistics(&mut self, index: u32) -> Result<LinkStatistics> {
        let link = self.route.link(index)?.context("the interface is gone")?;
        link.statistics.context("the interface has no statistics")
    }

    /// Waits until a program receives: its packet socket is bound, or XDP is attached. `is_alive` says whether it still
    /// runs.
    pub fn wait_for_receiver(&mut self, mut is_alive: impl FnMut() -> Result<bool>) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            let sockets = self.place.run(proc_packet::sockets)?;
            let is_bound = sockets.iter().any(|socket| socket.if_index == self.far && socket.is_running);
            let has_xdp = self.route.link(self.far)?.is_some_and(|link| link.xdp.is_some());
            if is_bound || has_xdp {
                // Programs that attach XDP change the kernel's thread.
                return self.thread();
            }
            if !is_alive()? {
                bail!("it ended before it began");
            }
            std::thread::sleep(GLANCE);
        }
        bail!("it did not begin within {START_MAX:?}")
    }

    /// Makes XDP drop every packet that `far0` receives, until the returned link is dropped.
    pub fn drop_all(&mut self) -> Result<XdpLink> {
        let insns = [Insn::set(R0, xdp_action::DROP), Insn::EXIT];
        let program = LoadedProgram::load(ProgramKind::Xdp, "tapline_drop", &insns)
            .map_err(|error| anyhow!("{error}"))?;
        let far = self.far;
        let link = self.place.run(|| XdpLink::attach(&program, far, XdpMode::Native))??;
        self.thread()?;
        Ok(link)
    }
}

/// Threads of the kernel that receive for interfaces of this name, in whatever namespace.
fn napi_threads() -> Vec<u32> {
    scheduled::kernel_threads(&format!("napi/{FAR}-"))
}

/// Processor time of a process so far, in nanoseconds, all of its threads that still run.
pub fn process_ns(pid: u32) -> u64 {
    scheduled::tasks(pid).into_iter().flatten().sum()
}
