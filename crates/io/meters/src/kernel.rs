//! The kernel's counters of its own work on packets: interrupts, softirqs, receive queues, and their time.
//!
//! ```text
//! /proc/interrupts        LABEL: count for each processor ... what it is        ->  interrupts
//! /proc/softirqs          NAME:  count for each processor                       ->  softirqs
//! /proc/stat              cpu user nice system idle iowait irq softirq ...      ->  times, of all processors
//! /proc/net/softnet_stat  a line for each processor, hexadecimal                ->  softnet
//! ```
//!
//! The counters cover the whole machine. A missing or unreadable file is `None`: unknown, not zero. In kernels built
//! without `IRQ_TIME_ACCOUNTING` the times of interrupts are sampled by the timer tick, and right only over seconds.

use std::fs;
use std::time::Duration;

use serde::Serialize;
use tapline_sys::usage;

/// The kernel's counters at one moment, or their growth between two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelCounters {
    /// Lines of /proc/interrupts.
    pub interrupts: Option<Vec<Interrupt>>,
    /// Softirqs run, by name: `NET_RX`.
    pub softirqs: Option<Vec<(String, u64)>>,
    /// Processor time of the machine.
    pub times: Option<CpuTimes>,
    /// Packets that went through the receive queues.
    pub softnet: Option<Softnet>,
}

/// An interrupt, over all processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Number or name of the interrupt: `24`, `LOC`.
    pub label: String,
    /// Number of occurrences.
    pub count: u64,
    /// Controller and device: `PCI-MSIX-0000:00:05.0 1-edge virtio4-input`.
    pub device: String,
}

/// Processor time of the whole machine. Idle time is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuTimes {
    /// Programs, with those of low priority.
    pub user: Duration,
    /// The kernel for programs.
    pub system: Duration,
    /// Interrupts.
    pub interrupt: Duration,
    /// Softirqs: receiving packets is one.
    pub softirq: Duration,
}

/// Receive queues over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Softnet {
    /// Packets taken from drivers' queues and the backlog.
    pub processed: u64,
    /// Packets lost because the backlog was full.
    pub dropped: u64,
    /// Polls that ended with work left.
    pub squeezed: u64,
}

impl KernelCounters {
    /// Now.
    pub fn read() -> KernelCounters {
        let file = |path: &str| fs::read_to_string(path).ok();
        KernelCounters {
            interrupts: file("/proc/interrupts").and_then(|text| parse_interrupts(&text)),
            softirqs: file("/proc/softirqs").and_then(|text| parse_softirqs(&text)),
            times: file("/proc/stat").and_then(|text| parse_times(&text, usage::clock_units_per_second())),
            softnet: file("/proc/net/softnet_stat").and_then(|text| parse_softnet(&text)),
        }
    }

    /// Counts since `earlier`. A counter that is unknown in one is unknown in the difference.
    #[must_use]
    pub fn since(&self, earlier: &KernelCounters) -> KernelCounters {
        let both = |now: &Option<Vec<Interrupt>>, before: &Option<Vec<Interrupt>>| {
            let (now, before) = (now.as_ref()?, before.as_ref()?);
            Some(now.iter().map(|interrupt| interrupt.since(before)).collect())
        };
        KernelCounters {
            interrupts: both(&self.interrupts, &earlier.interrupts),
            softirqs: self.softirqs.as_ref().zip(earlier.softirqs.as_ref()).map(|(now, before)| {
                let count = |name: &str| {
                    before.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
                };
                now.iter().map(|(name, now)| (name.clone(), now.saturating_sub(count(name)))).collect()
            }),
            times: self.times.zip(earlier.times).map(|(now, before)| now.since(before)),
            softnet: self.softnet.zip(earlier.softnet).map(|(now, before)| now.since(before)),
        }
    }

    /// Softirqs of one name: `NET_RX`.
    pub fn softirq(&self, name: &str) -> Option<u64> {
        self.softirqs.as_ref()?.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }
}

impl Interrupt {
    fn since(&self, earlier: &[Interrupt]) -> Interrupt {
        let same = |before: &&Interrupt| (&before.label, &before.device) == (&self.label, &self.device);
        let before = earlier.iter().find(same).map_or(0, |before| before.count);
        Interrupt { count: self.count.saturating_sub(before), ..self.clone() }
    }
}

impl CpuTimes {
    /// Counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: CpuTimes) -> CpuTimes {
        CpuTimes {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            interrupt: self.interrupt.saturating_sub(earlier.interrupt),
            softirq: self.softirq.saturating_sub(earlier.softirq),
        }
    }
}

impl Softnet {
    /// Counts since `earlier`. The kernel counts each with 32 bits for each processor: a sum that is less than before
    /// has gone round, once if they are read often enough.
    #[must_use]
    pub fn since(self, earlier: Softnet) -> Softnet {
        let difference = |now: u64, before: u64| u64::from((now as u32).wrapping_sub(before as u32));
        Softnet {
            processed: difference(self.processed, earlier.processed),
            dropped: difference(self.dropped, earlier.dropped),
            squeezed: difference(self.squeezed, earlier.squeezed),
        }
    }
}

fn parse_interrupts(text: &str) -> Option<Vec<Interrupt>> {
    let mut lines = text.lines();
    let processors = lines.next()?.split_whitespace().filter(|name| name.starts_with("CPU")).count();
    let parse = |line: &str| {
        let (label, rest) = line.split_once(':')?;
        let mut words = rest.split_whitespace().peekable();
        let mut count = 0_u64;
        // ERR and MIS have one number, not one for each processor.
        for _ in 0..processors {
            let Some(number) = words.peek().and_then(|word| word.parse::<u64>().ok()) else { break };
            count = count.saturating_add(number);
            words.next();
        }
        let device = words.collect::<Vec<_>>().join(" ");
        Some(Interrupt { label: label.trim().to_owned(), count, device })
    };
    (processors > 0).then(|| lines.filter_map(parse).collect())
}

fn parse_softirqs(text: &str) -> Option<Vec<(String, u64)>> {
    let mut lines = text.lines();
    lines.next().filter(|head| head.contains("CPU"))?;
    let parse = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts = counts.split_whitespace().filter_map(|count| count.parse::<u64>().ok());
        Some((name.trim().to_owned(), counts.fold(0, u64::saturating_add)))
    };
    Some(lines.filter_map(parse).collect())
}

fn parse_times(text: &str, units_per_second: u64) -> Option<CpuTimes> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let units: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, interrupt, softirq, ..] = units[..] else { return None };
    let time =
        |units: u64| Duration::from_secs(units) / u32::try_from(units_per_second).unwrap_or(u32::MAX).max(1);
    Some(CpuTimes {
        user: time(user.saturating_add(nice)),
        system: time(system),
        interrupt: time(interrupt),
        softirq: time(softirq),
    })
}

fn parse_softnet(text: &str) -> Option<Softnet> {
    let mut sum = Softnet::default();
    for line in text.lines() {
        let numbers: Vec<u64> =
            line.split_whitespace().map_while(|word| u64::from_str_radix(word, 16).ok()).collect();
        let [processed, dropped, squeezed, ..] = numbers[..] else { return None };
        sum.processed = sum.processed.wrapping_add(processed);
        sum.dropped = sum.dropped.wrapping_add(dropped);
        sum.squeezed = sum.squeezed.wrapping_add(squeezed);
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU1       
 34:        452          3 PCI-MSIX-0000:00:05.0   1-edge      virtio4-input
 35:          0          1 PCI-MSIX-0000:00:05.0   2-edge      virtio4-output
LOC:   10          20   Local timer interrupts
ERR:          7
";

    #[test]
    fn interrupts_are_added_over_processors() {
        let interrupts = |counters: &KernelCounters, name: &str| {
            let lines = counters.interrupts.iter().flatten().filter(|line| line.device.contains(name));
            lines.map(|line| line.count).reduce(|sum, count| sum + count)
        };
        let counters =
            KernelCounters { interrupts: parse_interrupts(INTERRUPTS), ..KernelCounters::default() };
        assert_eq!(interrupts(&counters, "virtio4-input"), Some(455));
        assert_eq!(interrupts(&counters, "virtio4"), Some(456));
        assert_eq!(interrupts(&counters, "eth0"), None);
        let lines = counters.interrupts.as_ref().expect("lines");
        assert_eq!((lines[2].label.as_str(), lines[2].count), ("LOC", 30));
        assert_eq!((lines[3].count, lines[3].device.as_str()), (7, ""));
        let later = INTERRUPTS.replace("452", "552").replace("virtio4-output", "renamed");
        let later = KernelCounters { interrupts: parse_interrupts(&later), ..KernelCounters::default() };
        let since = later.since(&counters);
        assert_eq!(interrupts(&since, "virtio4-input"), Some(100));
        assert_eq!(interrupts(&since, "renamed"), Some(1), "new since");
    }

    #[test]
    fn softirqs_have_names() {
        let text = "                    CPU0       CPU1       \n          HI:          0          0\n      NET_RX:   74344822   31695604\n";
        let counters = KernelCounters { softirqs: parse_softirqs(text), ..KernelCounters::default() };
        assert_eq!(counters.softirq("NET_RX"), Some(106_040_426));
        assert_eq!(counters.softirq("NET_TX"), None);
        assert_eq!(counters.since(&counters).softirq("NET_RX"), Some(0));
        assert_eq!(counters.since(&KernelCounters::default()).softirq("NET_RX"), None, "unknown before");
    }

    #[test]
    fn times_are_in_units() {
        let text = "cpu  100 50 200 9999 1 3 25 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let times = parse_times(text, 100).expect("times");
        assert_eq!(times.user, Duration::from_millis(1500));
        assert_eq!((times.system, times.interrupt), (Duration::from_secs(2), Duration::from_millis(30)));
        assert_eq!(times.softirq, Duration::from_millis(250));
        assert_eq!(parse_times("cpu  1 2 3", 100), None);
    }

    #[test]
    fn receive_queues_are_hexadecimal_and_go_round() {
        let text = "0000000a 00000001 00000013 00000000\nfffffff0 00000000 00000001 00000000\n";
        let softnet = parse_softnet(text).expect("queues");
        assert_eq!(softnet, Softnet { processed: 0xffff_fffa, dropped: 1, squeezed: 0x14 });
        let later =
            parse_softnet("0000000a 00000001 00000013\n00000010 00000000 00000001\n").expect("queues");
        assert_eq!(later.since(softnet).processed, 0x20);
        assert_eq!(parse_softnet("x"), None);
        assert_eq!(parse_softnet(""), None);
    }

    #[test]
    fn this_kernel_counts() {
        let counters = KernelCounters::read();
        assert!(counters.softirq("NET_RX").is_some());
        assert!(counters.times.is_some_and(|times| times.user + times.system > Duration::ZERO));
        assert!(counters.softnet.is_some() && counters.interrupts.is_some_and(|lines| !lines.is_empty()));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[ -~\n]{0,200}", units in any::<u64>()) {
            let (text, numbers) = (&text, format!("cpu  {u} {u} {u} {u} {u} {u} {u}", u = u64::MAX));
            let _ = (parse_interrupts(text), parse_softirqs(text), parse_softnet(text), parse_times(text, units));
            let _ = (parse_interrupts(&format!("CPU0\n{text}")), parse_times(&numbers, units));
        }
    }
}
