//! The machine: processors, clock, memory, limits, rights, disk.
//!
//! ```text
//! /proc/{uptime,cpuinfo,meminfo,stat}  /proc/self/{limits,status}  /proc/sys/...  /sys/devices/system/...   adjtimex statvfs capget
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tapline_sys::capability::Capability;
use tapline_sys::clock_state::{self, ClockState};
use tapline_sys::disk::{self, DiskSpace};
use tapline_sys::tsc;

use super::processors::{self, CpuTicks, NumaNode, SoftnetCpu};

/// Settings of the kernel that are read, by their path under /proc/sys.
const SETTINGS: [&str; 8] = [
    "kernel/osrelease",
    "kernel/unprivileged_bpf_disabled",
    "net/core/bpf_jit_enable",
    "net/core/netdev_budget",
    "net/core/netdev_budget_usecs",
    "net/core/netdev_max_backlog",
    "net/core/optmem_max",
    "net/core/rmem_max",
];

/// Idle states that a processor may have (`CPUIDLE_STATE_MAX`).
const IDLE_STATES_MAX: usize = 10;

/// Facts of the machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Seconds since its start.
    pub uptime_s: Option<f64>,
    /// Online processors.
    pub cpus: Option<Vec<u32>>,
    /// Memory nodes.
    pub nodes: Option<Vec<NumaNode>>,
    /// Receive work of each processor.
    pub softnet: Option<Vec<SoftnetCpu>>,
    /// Growth of the counters while the machine was watched.
    pub softnet_growth: Option<Vec<SoftnetCpu>>,
    /// Processor time.
    pub times: Option<CpuTicks>,
    /// Growth of the times while the machine was watched.
    pub times_growth: Option<CpuTicks>,
    /// Whether a hypervisor runs it.
    pub is_virtual: Option<bool>,
    /// Whether the processor's counter keeps its rate and never stops; `None` on processors without that question.
    pub is_tsc_invariant: Option<bool>,
    /// The kernel's clock source, and those that it could use.
    pub clock_source: Option<String>,
    /// Sources that it could use.
    pub clock_sources: Vec<String>,
    /// The kernel's estimate of its clock's error.
    pub clock: Option<ClockState>,
    /// The frequency governor of each processor that has one.
    pub governors: Vec<(u32, String)>,
    /// Idle states of each processor that are enabled.
    pub idle: Vec<IdleState>,
    /// Weaknesses of the processor and the mitigation of each.
    pub vulnerabilities: Vec<(String, String)>,
    /// Settings of the kernel by their path under /proc/sys.
    pub settings: BTreeMap<String, String>,
    /// The limit of locked memory in bytes; `None` if unknown, `u64::MAX` for no limit.
    pub memory_lock_max: Option<u64>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Rights in effect, a bit each.
    pub capabilities: Option<u64>,
    /// Rights that this process could ever have.
    pub bounding_set: Option<u64>,
    /// Whether the process is in a user namespace: its capabilities then cover that namespace, not the machine.
    pub is_in_user_namespace: Option<bool>,
    /// Whether irqbalance runs.
    pub has_irqbalance: Option<bool>,
    /// The current directory and its room.
    pub disk: Option<(PathBuf, DiskSpace)>,
}

/// Memory in bytes, as /proc/meminfo has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All.
    pub total: u64,
    /// Memory available without swapping.
    pub available: u64,
    /// Huge pages that are free.
    pub huge_pages_free: u64,
    /// Bytes of a huge page.
    pub huge_page_len: u64,
}

/// An idle state of a processor that is enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleState {
    /// The processor.
    pub cpu: u32,
    /// The state's number.
    pub state: u32,
    /// Microseconds to wake from it.
    pub latency_us: u64,
}

impl Machine {
    pub(super) fn read() -> Machine {
        let cpus = processors::read_cpu_list("/sys/devices/system/cpu/online");
        let of_cpus = cpus.clone().unwrap_or_default();
        let status = file("/proc/self/status").unwrap_or_default();
        let flags = file("/proc/cpuinfo").and_then(|text| parse_flags(&text));
        let sources = file(&clock_source("available_clocksource")).unwrap_or_default();
        Machine {
            uptime_s: file("/proc/uptime")
                .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()),
            nodes: processors::nodes(),
            softnet: processors::softnet(),
            times: processors::times(),
            is_virtual: flags.as_ref().map(|flags| flags.iter().any(|flag| flag == "hypervisor")),
            is_tsc_invariant: flags.as_ref().map(|flags| tsc::is_invariant() || has_steady_tsc(flags)),
            clock_source: file(&clock_source("current_clocksource")),
            clock_sources: sources.split_ascii_whitespace().map(str::to_owned).collect(),
            clock: clock_state::read().ok(),
            governors: of_cpus.iter().filter_map(|&cpu| Some((cpu, file(&governor_path(cpu))?))).collect(),
            idle: of_cpus.iter().flat_map(|&cpu| idle_states(cpu)).collect(),
            vulnerabilities: vulnerabilities(),
            settings: SETTINGS.iter().filter_map(|path| setting(path)).collect(),
            memory_lock_max: file("/proc/self/limits").and_then(|text| parse_memory_lock(&text)),
            memory: file("/proc/meminfo").and_then(|text| parse_memory(&text)),
            capabilities: parse_capabilities(&status, "CapEff:"),
            bounding_set: parse_capabilities(&status, "CapBnd:"),
            is_in_user_namespace: file("/proc/self/uid_map").map(|map| !is_whole(&map)),
            has_irqbalance: has_process("irqbalance"),
            disk: room(),
            cpus,
            ..Machine::default()
        }
    }

    /// A setting of the kernel as a number.
    pub fn setting(&self, path: &str) -> Option<u64> {
        self.settings.get(path)?.parse().ok()
    }

    /// Whether a right over the machine is in effect; `None` if unknown.
    pub fn may(&self, capability: Capability) -> Option<bool> {
        let is_effective = self.capabilities? & 1 << capability as u32 != 0;
        Some(is_effective && !self.is_in_user_namespace?)
    }

    pub(super) fn watched(&mut self, earlier: &Machine) {
        self.softnet_growth = self.softnet.as_ref().zip(earlier.softnet.as_ref()).map(|(now, before)| {
            let grown = |now: &SoftnetCpu| {
                let zero = SoftnetCpu { cpu: now.cpu, ..SoftnetCpu::default() };
                let before = before.iter().find(|before| before.cpu == now.cpu).unwrap_or(&zero);
                // The kernel counts in 32 bits.
                let since = |now: u64, before: u64| u64::from((now as u32).wrapping_sub(before as u32));
                SoftnetCpu {
                    cpu: now.cpu,
                    processed: since(now.processed, before.processed),
                    dropped: since(now.dropped, before.dropped),
                    squeezed: since(now.squeezed, before.squeezed),
                }
            };
            now.iter().map(grown).collect()
        });
        self.times_growth = self.times.zip(earlier.times).map(|(now, before)| CpuTicks {
            total: now.total.saturating_sub(before.total),
            steal: now.steal.saturating_sub(before.steal),
        });
    }
}

/// The governor of a processor: one of [`crate::change::CHANGEABLE_FILES`].
pub(crate) fn governor_path(cpu: u32) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
}

/// Path of the file that says whether an idle state is switched off.
pub(crate) fn idle_path(cpu: u32, state: u32) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/disable")
}

fn clock_source(name: &str) -> String {
    format!("/sys/devices/system/clocksource/clocksource0/{name}")
}

fn file(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn setting(path: &str) -> Option<(String, String)> {
    Some((path.to_owned(), file(&format!("/proc/sys/{path}"))?))
}

fn idle_states(cpu: u32) -> Vec<IdleState> {
    let state = |state: usize| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}");
        let latency_us = file(&format!("{folder}/latency"))?.parse().ok()?;
        let is_enabled = file(&format!("{folder}/disable"))? == "0";
        is_enabled.then_some(IdleState { cpu, state: state as u32, latency_us })
    };
    (0..IDLE_STATES_MAX).filter_map(state).collect()
}

fn vulnerabilities() -> Vec<(String, String)> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten().flatten();
    let mut all: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            Some((entry.file_name().into_string().ok()?, text.trim().to_owned()))
        })
        .collect();
    all.sort();
    all
}

fn has_process(name: &str) -> Option<bool> {
    let mut names = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        fs::read_to_string(entry.path().join("comm")).ok()
    });
    Some(names.any(|found| found.trim_end() == name))
}

fn room() -> Option<(PathBuf, DiskSpace)> {
    let here = std::env::current_dir().ok()?;
    let space = disk::space(Path::new(".")).ok()?;
    Some((here, space))
}

/// The flags of the first processor. Others than x86 have other words for it, or none.
fn parse_flags(text: &str) -> Option<Vec<String>> {
    let line = text.lines().find(|line| line.starts_with("flags"))?;
    Some(line.split_once(':')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

fn has_steady_tsc(flags: &[String]) -> bool {
    ["constant_tsc", "nonstop_tsc"].iter().all(|wanted| flags.iter().any(|flag| flag == wanted))
}

/// `Max locked memory         8388608              8388608              bytes`: the first is in force.
fn parse_memory_lock(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn parse_memory(text: &str) -> Option<Memory> {
    let number = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let bytes = |name: &str| number(name)?.checked_mul(1024);
    Some(Memory {
        total: bytes("MemTotal")?,
        available: bytes("MemAvailable")?,
        huge_pages_free: number("HugePages_Free").unwrap_or(0),
        huge_page_len: bytes("Hugepagesize").unwrap_or(0),
    })
}

/// Whether a uid map is that of the initial user namespace: the identity (user_namespaces(7)).
fn is_whole(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

fn parse_capabilities(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_and_memory_as_the_kernel_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608              16777216             bytes     \n";
        assert_eq!(parse_memory_lock(limits), Some(8_388_608));
        assert_eq!(
            parse_memory_lock("Max locked memory         unlimited            unlimited            bytes"),
            Some(u64::MAX)
        );
        assert_eq!(parse_memory_lock("Max stack size 1 1 bytes"), None);
        let memory = "MemTotal:       24683964 kB\nMemFree:        10652672 kB\nMemAvailable:   23564288 kB\nHugePages_Free:        3\nHugepagesize:       2048 kB\n";
        let expected = Memory {
            total: 24_683_964 << 10,
            available: 23_564_288 << 10,
            huge_pages_free: 3,
            huge_page_len: 2 << 20,
        };
        assert_eq!(parse_memory(memory), Some(expected));
        assert_eq!(parse_memory("MemTotal: 1 kB\n"), None);
        assert_eq!(parse_capabilities("Name:\tx\nCapEff:\t00000000a80425fb\n", "CapEff:"), Some(0xa804_25fb));
    }

    #[test]
    fn user_namespaces_give_no_rights_on_the_machine() {
        assert!(is_whole("         0          0 4294967295"));
        assert!(!is_whole("         0      65534          1") && !is_whole(""));
        let machine = |inside| Machine {
            capabilities: Some(u64::MAX),
            is_in_user_namespace: inside,
            ..Machine::default()
        };
        let may = |inside| machine(inside).may(Capability::IpcLock);
        assert_eq!([may(Some(false)), may(Some(true)), may(None)], [Some(true), Some(false), None]);
    }

    #[test]
    fn counters_of_32_bits_wrap() {
        let line = |dropped| Some(vec![SoftnetCpu { cpu: 1, dropped, ..SoftnetCpu::default() }]);
        let earlier = Machine { softnet: line(0xffff_fffe), ..Machine::default() };
        let mut later = Machine { softnet: line(3), ..Machine::default() };
        later.watched(&earlier);
        assert_eq!(later.softnet_growth.unwrap()[0].dropped, 5);
    }

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::read();
        assert!(machine.cpus.is_none_or(|cpus| !cpus.is_empty()));
        assert!(machine.memory.is_none_or(|memory| memory.available <= memory.total));
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "\\PC{0,80}", number in any::<u64>()) {
            let memory = format!("MemTotal: {number} {text}\nMemAvailable: {number}\nHugepagesize:{text}");
            let _ = (parse_memory(&memory), parse_memory(&text));
            let _ = (parse_memory_lock(&format!("Max locked memory {text}")), parse_flags(&format!("flags{text}")));
            let _ = parse_capabilities(&format!("CapEff:{text}"), "CapEff:");
        }
    }
}
