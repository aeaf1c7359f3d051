//! Processors and interrupts, from texts of the kernel.
//!
//! ```text
//! /sys/.../online            list := range,...   range := N | N-N
//! /proc/interrupts           CPU0 CPU1 ...       then NUMBER: count for each processor ... controller and device
//! /proc/net/softnet_stat     a line for each processor, hexadecimal: processed dropped squeezed ... (field 12) processor
//! /proc/stat                 cpu user nice system idle iowait irq softirq steal ...
//! ```
//!
//! Other kernels may write otherwise: unreadable text is `None`.

use std::fs;

/// More processors than any kernel is built for (`CONFIG_NR_CPUS`).
const CPUS_MAX: u32 = 65_536;

/// A line of /proc/net/softnet_stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftnetCpu {
    /// The processor.
    pub cpu: u32,
    /// Packets that it took from drivers' queues and its backlog.
    pub processed: u64,
    /// Packets lost because its backlog was full.
    pub dropped: u64,
    /// Rounds that ended with packets left.
    pub squeezed: u64,
}

/// Processor time of the machine since its start, in units of the kernel's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// All of it, idle too.
    pub total: u64,
    /// Steal time: given to other guests by the hypervisor while this one had work.
    pub steal: u64,
}

/// A numbered line of /proc/interrupts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Number of the processor.
    pub number: u32,
    /// Occurrences by processor, in the order of the columns.
    pub counts: Vec<u64>,
    /// Controller and device.
    pub device: String,
}

/// A memory node and its processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Number of the interrupt.
    pub number: u32,
    /// Processors of the node.
    pub cpus: Vec<u32>,
}

/// `0-3,8` as numbers.
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= CPUS_MAX || cpus.len() as u32 + last.checked_sub(first)? >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Numbers as `0-3,8`.
pub(crate) fn cpu_list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(cpu) => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |&(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

pub(super) fn read_cpu_list(path: &str) -> Option<Vec<u32>> {
    parse_cpu_list(&fs::read_to_string(path).ok()?)
}

pub(super) fn softnet() -> Option<Vec<SoftnetCpu>> {
    parse_softnet(&fs::read_to_string("/proc/net/softnet_stat").ok()?)
}

pub(super) fn times() -> Option<CpuTicks> {
    parse_times(&fs::read_to_string("/proc/stat").ok()?)
}

pub(super) fn interrupts() -> Option<Vec<Interrupt>> {
    parse_interrupts(&fs::read_to_string("/proc/interrupts").ok()?)
}

pub(super) fn nodes() -> Option<Vec<NumaNode>> {
    let numbers = read_cpu_list("/sys/devices/system/node/online")?;
    let node = |number| {
        let cpus = read_cpu_list(&format!("/sys/devices/system/node/node{number}/cpulist"))?;
        Some(NumaNode { number, cpus })
    };
    numbers.into_iter().map(node).collect()
}

fn parse_softnet(text: &str) -> Option<Vec<SoftnetCpu>> {
    let line = |(number, line): (usize, &str)| {
        let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
        let fields: Vec<u64> = line.split_ascii_whitespace().map_while(hexadecimal).collect();
        let [processed, dropped, squeezed, ..] = fields[..] else { return None };
        // Kernels since 5.10 name the processor; before, lines are in their order.
        let cpu = fields.get(12).copied().unwrap_or(number as u64);
        Some(SoftnetCpu { cpu: u32::try_from(cpu).ok()?, processed, dropped, squeezed })
    };
    let lines: Vec<SoftnetCpu> = text.lines().enumerate().map(line).collect::<Option<_>>()?;
    (!lines.is_empty()).then_some(lines)
}

fn parse_times(text: &str) -> Option<CpuTicks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    // Guests' time (fields 8 and 9) is in user's already.
    let own = fields.get(..8)?;
    Some(CpuTicks { total: own.iter().fold(0, |sum, units| sum.saturating_add(*units)), steal: own[7] })
}

fn parse_interrupts(text: &str) -> Option<Vec<Interrupt>> {
    let columns =
        text.lines().next()?.split_ascii_whitespace().filter(|word| word.starts_with("CPU")).count();
    let line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let counts: Vec<u64> = words.iter().take(columns).map_while(|word| word.parse().ok()).collect();
        let device = words.get(counts.len()..).unwrap_or(&[]).join(" ");
        (counts.len() == columns).then_some(Interrupt { number, counts, device })
    };
    (columns > 0).then(|| text.lines().skip(1).filter_map(line).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse_cpu_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpu_list("\n"), Some(Vec::new()));
        for text in ["3-1", "x", "0-4294967295", "1-", "-1", "0-65535,0-65535"] {
            assert_eq!(parse_cpu_list(text), None, "{text}");
        }
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(cpu_list(&[]), "");
    }

    #[test]
    fn softnet_of_old_and_new_kernels() {
        let new = "05c9813b 00000002 00000021 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000007 00000000 00000000\n";
        let cpu = SoftnetCpu { cpu: 7, processed: 0x5c9_813b, dropped: 2, squeezed: 0x21 };
        assert_eq!(parse_softnet(new), Some(vec![cpu]));
        let old = parse_softnet("0000000a 00000000 00000000\n0000000b 00000001 00000000\n").unwrap();
        assert_eq!((old[1].cpu, old[1].dropped), (1, 1));
        assert_eq!((parse_softnet(""), parse_softnet("x\n")), (None, None));
    }

    #[test]
    fn interrupts_of_a_virtual_machine() {
        let text = "           CPU0       CPU1       \n 38:          0      56434 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\nNMI:          0          0   Non-maskable interrupts\nERR:          0\n";
        let line = Interrupt {
            number: 38,
            counts: vec![0, 56434],
            device: "PCI-MSIX-0000:00:03.0 1-edge virtio2-input.0".into(),
        };
        assert_eq!(parse_interrupts(text), Some(vec![line]));
        assert_eq!(parse_interrupts(""), None);
    }

    #[test]
    fn steal_is_the_eighth_field() {
        let text = "cpu  10 0 20 300 0 1 2 7 5 0\ncpu0 1 2 3\n";
        assert_eq!(parse_times(text), Some(CpuTicks { total: 340, steal: 7 }));
        assert_eq!(parse_times("cpu  1 2 3\n"), None);
    }

    proptest! {
        /// Any text of a kernel, or of a file mounted over its own, is read without a panic.
        #[test]
        fn no_text_is_a_panic(text in "([0-9a-fCPU,:. \\n-]|\\PC){0,200}") {
            let cpus = parse_cpu_list(&text);
            if let Some(cpus) = cpus {
                prop_assert!(cpus.len() <= CPUS_MAX as usize);
            }
            let _ = (parse_softnet(&text), parse_times(&text), parse_interrupts(&text));
            let _ = parse_times(&format!("cpu  {text}"));
            let _ = parse_interrupts(&format!("CPU0 CPU1\n{text}"));
        }

        #[test]
        fn a_list_reads_back(cpus in proptest::collection::btree_set(0u32..500, 0..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse_cpu_list(&cpu_list(&cpus)), Some(cpus));
        }
    }
}
