//! Losses so far, by counter.
//!
//! ```text
//! counters since the start          loses if they are more than one in a million of the packets, else a note with their age
//! counters that grew while watched  loses if they grew; of an interface that is new since, not told
//! ```
//!
//! Packets that processors have received are counted in 32 bits by the kernel, so since the start interfaces may know
//! of more.
//!
//! `rx_dropped` also counts frames of protocols without a handler on this host, which captures did see: never more than
//! a note.

use super::{Check, Run, counted};
use crate::facts::{Counter, Drops, SoftnetCpu};
use crate::{Change, Facts, Finding, Interface, Severity};

pub(super) const CHECKS: [Check; 5] = [
    Check {
        name: "nic_losses",
        subject: "the adapter's counters of rtnetlink",
        why: "Packets for which the adapter had no room are lost before any capture can count them.",
        source: "Documentation/networking/statistics.rst, struct rtnl_link_stats64",
        run: Run::Interface(nic_losses),
    },
    Check {
        name: "driver_losses",
        subject: "counters of the driver whose names indicate loss",
        why: "Drivers count losses under names of their own, and the common counters may not include these losses.",
        source: "ethtool(8) -S; libpcap issue 1328",
        run: Run::Interface(driver_losses),
    },
    Check {
        name: "backlog",
        subject: "packets dropped in front of the stack",
        why: "Packets from software (veth, loopback, RPS) wait in a queue for each processor; when it is full they are dropped.",
        source: "net/core/dev.c enqueue_to_backlog; /proc/net/softnet_stat, second field",
        run: Run::Machine(backlog),
    },
    Check {
        name: "budget",
        subject: "rounds of receiving that ended with packets left",
        why: "The kernel's receive loop has a budget of packets and time; the rest waits in the ring for the next round.",
        source: "Documentation/admin-guide/sysctl/net.rst, netdev_budget; /proc/net/softnet_stat, third field",
        run: Run::Machine(budget),
    },
    Check {
        name: "drop_reasons",
        subject: "packets that the kernel dropped during --watch, by reason",
        why: "The stack drops packets at a hundred places, and most have no counter that says why.",
        source: "include/net/dropreason-core.h, tracepoint skb:kfree_skb",
        run: Run::Machine(drop_reasons),
    },
];

/// From this share of lost packets on, the loss is more than an old accident.
const SHARE: f64 = 1e-6;
/// Rounds that ended early, of packets: each is a wait of some microseconds.
const SQUEEZED_SHARE: f64 = 1e-4;
/// Reasons for which captures lack a packet (include/net/dropreason-core.h): in front of all sockets, and at a socket
/// whose ring is full.
const LACKED_BY_CAPTURES: [&str; 2] = ["cpu_backlog", "packet_sock_error"];
/// Counters that are named in one line.
const NAMED_MAX: usize = 4;

/// Most packets are dropped behind the sockets that capture, which saw them: worth a note.
fn drop_reasons(facts: &Facts) -> Vec<Finding> {
    let counted = match &facts.drops {
        None => return Vec::new(),
        Some(Drops::NotTold(why)) => {
            return vec![Finding::machine(Severity::NotTold, format!("reasons of drops: {why}"))];
        }
        Some(Drops::Counted(counted)) => counted,
    };
    if counted.is_empty() {
        return vec![Finding::machine(Severity::Fine, format!("the kernel dropped no packet{}", age(facts)))];
    }
    let is_lacked = counted.iter().any(|(name, _)| LACKED_BY_CAPTURES.contains(&name.as_str()));
    let severity = if is_lacked { Severity::Loses } else { Severity::Note };
    let mut words: Vec<String> =
        counted.iter().take(NAMED_MAX).map(|(name, count)| format!("{name} {count}")).collect();
    if counted.len() > NAMED_MAX {
        words.push(format!("{} further reasons", counted.len() - NAMED_MAX));
    }
    let text = format!("the kernel dropped packets of this machine{}: {}", age(facts), words.join(", "));
    let finding = Finding::machine(severity, text);
    vec![counted.iter().fold(finding, |finding, (name, count)| finding.with(name, *count))]
}

fn nic_losses(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let Some(counters) = &interface.nic_losses else {
        return vec![Finding::not_told(interface.name(), "the kernel sends no counters")];
    };
    let (unclear, lost): (Vec<_>, Vec<_>) = counters.iter().partition(|counter| counter.name == "rx_dropped");
    let mut found = vec![judged(interface, facts, &lost, "the adapter lost no packet")];
    let unclear = unclear.into_iter().filter_map(|counter| amount(counter, facts)).filter(|count| *count > 0);
    found.extend(unclear.map(|count| {
        let text = format!(
            "rx_dropped {count}: also frames that no protocol of this host takes, which captures saw{}",
            age(facts)
        );
        Finding::on(interface.name(), Severity::Note, text).with("rx_dropped", count)
    }));
    found
}

fn driver_losses(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    match &interface.driver_losses {
        None => vec![Finding::not_told(interface.name(), "the driver has no counters")],
        Some(counters) if counters.is_empty() => {
            vec![Finding::not_told(interface.name(), "the driver has no counter whose name indicates loss")]
        }
        Some(counters) => {
            let all: Vec<&Counter> = counters.iter().collect();
            vec![judged(interface, facts, &all, "the driver lost no packet")]
        }
    }
}

/// Growth during the watch, or the total without one. `None` for a counter that appeared during the watch.
fn amount(counter: &Counter, facts: &Facts) -> Option<u64> {
    if facts.interval_s.is_some() { counter.growth } else { Some(counter.value) }
}

fn judged(interface: &Interface, facts: &Facts, counters: &[&Counter], fine: &str) -> Finding {
    let name = interface.name();
    let lost: Vec<(&str, u64)> = counters
        .iter()
        .filter_map(|counter| Some((counter.name.as_str(), amount(counter, facts)?)))
        .filter(|(_, count)| *count > 0)
        .collect();
    if lost.is_empty() && counters.iter().any(|counter| amount(counter, facts).is_none()) {
        return Finding::not_told(name, "counters came while they were watched: the interface is new");
    }
    if lost.is_empty() {
        return Finding::on(name, Severity::Fine, format!("{fine}{}", age(facts)));
    }
    // Totals and their parts by queue stand side by side, so the largest is what can be said for sure.
    let most = lost.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let received = interface.received.as_ref().and_then(|counter| amount(counter, facts)).unwrap_or(0);
    let severity = verdict(most, received, facts, SHARE, Severity::Loses);
    let mut words: Vec<String> =
        lost.iter().take(NAMED_MAX).map(|(name, count)| format!("{name} {count}")).collect();
    if lost.len() > NAMED_MAX {
        words.push(format!("{} more", lost.len() - NAMED_MAX));
    }
    let text = format!("lost: {}, of {received} received{}", words.join(", "), age(facts));
    let finding = Finding::on(name, severity, text).with("received", received);
    lost.into_iter().fold(finding, |finding, (name, count)| finding.with(name, count))
}

fn verdict(lost: u64, passed: u64, facts: &Facts, share: f64, bad: Severity) -> Severity {
    let of_all = lost as f64 / (lost as f64 + passed as f64).max(1.0);
    if facts.interval_s.is_some() || of_all > share { bad } else { Severity::Note }
}

/// Age of the counters. Interfaces may be younger than the machine.
fn age(facts: &Facts) -> String {
    match (facts.interval_s, facts.machine.uptime_s) {
        (Some(seconds), _) => format!(", in {seconds:.1} seconds"),
        (None, Some(seconds)) => format!(", in at most {}", span(seconds)),
        (None, None) => String::new(),
    }
}

fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 172_800.0 => format!("{:.0} days", s / 86_400.0),
        s if s >= 7200.0 => format!("{:.0} hours", s / 3600.0),
        s => format!("{:.0} minutes", (s / 60.0).ceil()),
    }
}

fn softnet(facts: &Facts) -> Option<&[SoftnetCpu]> {
    let machine = &facts.machine;
    let lines = if facts.interval_s.is_some() { &machine.softnet_growth } else { &machine.softnet };
    lines.as_deref()
}

fn sum(lines: &[SoftnetCpu], field: impl Fn(&SoftnetCpu) -> u64) -> u64 {
    lines.iter().fold(0, |sum, line| sum.saturating_add(field(line)))
}

/// Packets that processors have received. Since the start the kernel's count of them may have wrapped: the interfaces'
/// are of 64 bits.
fn passed(lines: &[SoftnetCpu], facts: &Facts) -> u64 {
    let processed = sum(lines, |line| line.processed);
    if facts.interval_s.is_some() {
        return processed;
    }
    let received = facts.interfaces.iter().filter_map(|interface| interface.received.as_ref());
    processed.max(received.fold(0, |sum, counter| sum.saturating_add(counter.value)))
}

fn by_cpu(lines: &[SoftnetCpu], field: impl Fn(&SoftnetCpu) -> u64) -> Vec<String> {
    let some = lines.iter().filter(|line| field(line) > 0);
    some.map(|line| format!("processor {}: {}", line.cpu, field(line))).collect()
}

fn backlog(facts: &Facts) -> Vec<Finding> {
    const SETTING: &str = "net/core/netdev_max_backlog";
    let Some(lines) = softnet(facts) else {
        return vec![Finding::machine(Severity::NotTold, "the kernel shows no /proc/net/softnet_stat")];
    };
    let dropped = sum(lines, |line| line.dropped);
    let size = facts.machine.setting(SETTING);
    let with_size = |finding: Finding| match size {
        Some(size) => finding.with("netdev_max_backlog", size),
        None => finding,
    };
    if dropped == 0 {
        let text = format!("no packet was dropped in front of the stack{}", age(facts));
        return vec![with_size(Finding::machine(Severity::Fine, text))];
    }
    let severity = verdict(dropped, passed(lines, facts), facts, SHARE, Severity::Loses);
    let text = format!("{} dropped in front of the stack{}", counted(dropped, "packet"), age(facts));
    let finding = Finding::machine(severity, text)
        .with("dropped", dropped)
        .with("by_processor", by_cpu(lines, |line| line.dropped));
    let finding = with_size(finding);
    match size.map(|size| size.saturating_mul(4).max(4000)).filter(|_| severity == Severity::Loses) {
        None => vec![finding],
        Some(wanted) => {
            let command = facts.scope.machine(&format!("sysctl -w net.core.netdev_max_backlog={wanted}"));
            vec![finding.fix(command, vec![setting(SETTING, wanted)])]
        }
    }
}

fn budget(facts: &Facts) -> Vec<Finding> {
    let Some(lines) = softnet(facts) else {
        return vec![Finding::machine(Severity::NotTold, "the kernel shows no /proc/net/softnet_stat")];
    };
    let squeezed = sum(lines, |line| line.squeezed);
    let processed = sum(lines, |line| line.processed);
    let text = format!("{} of receiving ended with packets left{}", counted(squeezed, "round"), age(facts));
    let severity = match squeezed {
        0 => Severity::Fine,
        _ if squeezed as f64 > passed(lines, facts) as f64 * SQUEEZED_SHARE => Severity::Delays,
        _ => Severity::Fine,
    };
    let finding = Finding::machine(severity, text)
        .with("squeezed", squeezed)
        .with("processed", processed)
        .with("by_processor", by_cpu(lines, |line| line.squeezed));
    let settings = ["net/core/netdev_budget", "net/core/netdev_budget_usecs"];
    let now: Option<Vec<u64>> = settings.iter().map(|path| facts.machine.setting(path)).collect();
    let told = settings.iter().zip(now.iter().flatten());
    let finding = told.fold(finding, |finding, (path, value)| finding.with(&path.replace('/', "."), *value));
    let Some([budget, usecs]) = now.as_deref().filter(|_| severity == Severity::Delays) else {
        return vec![finding];
    };
    let (budget, usecs) = (budget.saturating_mul(2), usecs.saturating_mul(2));
    let words = format!("sysctl -w net.core.netdev_budget={budget} net.core.netdev_budget_usecs={usecs}");
    let changes = vec![setting(settings[0], budget), setting(settings[1], usecs)];
    vec![finding.fix(facts.scope.machine(&words), changes)]
}

fn setting(path: &str, value: u64) -> Change {
    Change::File { path: format!("/proc/sys/{path}"), value: value.to_string() }
}

#[cfg(test)]
mod tests {
    use tapline_sys::Link;

    use super::*;
    use crate::{Machine, Scope};

    fn counter(name: &str, value: u64, growth: Option<u64>) -> Counter {
        Counter { name: name.into(), value, growth }
    }

    fn interface(counters: Vec<Counter>) -> Interface {
        Interface {
            link: Link { name: "eth0".into(), ..Link::default() },
            nic_losses: Some(counters),
            received: Some(counter("rx_packets", 1_000_000_000, Some(1000))),
            ..Interface::default()
        }
    }

    fn watched() -> Facts {
        Facts { interval_s: Some(2.0), ..Facts::default() }
    }

    #[test]
    fn few_of_long_ago_are_a_note_and_growth_is_a_loss() {
        let one =
            interface(vec![counter("rx_missed_errors", 12, Some(1)), counter("rx_dropped", 9, Some(0))]);
        let found = nic_losses(&one, &Facts::default());
        assert_eq!(found.iter().map(|f| f.severity).collect::<Vec<_>>(), [Severity::Note, Severity::Note]);
        assert_eq!(found[0].text, "lost: rx_missed_errors 12, of 1000000000 received");
        let found = nic_losses(&one, &watched());
        assert_eq!(found.len(), 1, "rx_dropped did not grow");
        assert_eq!(found[0].text, "lost: rx_missed_errors 1, of 1000 received, in 2.0 seconds");
        assert_eq!(found[0].severity, Severity::Loses);
    }

    #[test]
    fn many_are_a_loss_whenever_they_were() {
        let one = interface(vec![counter("rx_missed_errors", 2000, None)]);
        assert_eq!(nic_losses(&one, &Facts::default())[0].severity, Severity::Loses);
        let none = nic_losses(&interface(vec![counter("rx_missed_errors", 0, None)]), &Facts::default());
        assert_eq!(none[0].severity, Severity::Fine);
    }

    #[test]
    fn long_lists_are_cut_in_text_only() {
        let counters = (0..9).map(|number| counter(&format!("rx{number}_drops"), 10, None)).collect();
        let one = Interface { driver_losses: Some(counters), ..interface(Vec::new()) };
        let finding = &driver_losses(&one, &Facts::default())[0];
        assert!(finding.text.contains("rx3_drops 10, 5 more"), "{}", finding.text);
        assert_eq!(finding.evidence.len(), 10);
    }

    #[test]
    fn a_full_backlog_is_mended_by_a_longer_one() {
        let line = SoftnetCpu { cpu: 1, processed: 1000, dropped: 7, squeezed: 5 };
        let settings = [("net/core/netdev_max_backlog", "1000"), ("net/core/netdev_budget", "300")];
        let settings = settings.map(|(path, value)| (path.to_owned(), value.to_owned())).into();
        let machine = Machine { softnet: Some(vec![line]), settings, ..Machine::default() };
        let facts = Facts { machine, scope: Scope { netns: None, is_root: true }, ..Facts::default() };
        let [finding] = backlog(&facts).try_into().unwrap();
        assert_eq!(finding.severity, Severity::Loses);
        let mend = finding.remedy.unwrap();
        assert_eq!(mend.command, "sysctl -w net.core.netdev_max_backlog=4000");
        assert_eq!(mend.changes, [setting("net/core/netdev_max_backlog", 4000)]);
        let [finding] = budget(&facts).try_into().unwrap();
        assert_eq!((finding.severity, finding.remedy), (Severity::Delays, None), "the time is not told");
    }

    #[test]
    fn a_count_that_wrapped_is_no_total() {
        let facts = |value, interval_s: Option<f64>| {
            let line = SoftnetCpu { cpu: 0, processed: 1000, dropped: 7, squeezed: 5 };
            let machine = Machine {
                softnet: Some(vec![line]),
                softnet_growth: interval_s.map(|_| vec![line]),
                ..Machine::default()
            };
            let received = Some(counter("rx_packets", value, Some(1)));
            let interfaces = vec![Interface { received, ..interface(Vec::new()) }];
            Facts { machine, interfaces, interval_s, ..Facts::default() }
        };
        let of = |facts: &Facts| (backlog(facts)[0].severity, budget(facts)[0].severity);
        assert_eq!(of(&facts(10_000_000_000, None)), (Severity::Note, Severity::Fine));
        assert_eq!(of(&facts(10, None)), (Severity::Loses, Severity::Delays));
        assert_eq!(of(&facts(10_000_000_000, Some(2.0))), (Severity::Loses, Severity::Delays));
    }

    #[test]
    fn changes_during_the_watch_are_left_out() {
        let of = |counters| {
            let one = Interface { driver_losses: Some(counters), ..interface(Vec::new()) };
            driver_losses(&one, &watched())[0].severity
        };
        let (new, still, lost) = (counter("a", 5, None), counter("b", 5, Some(0)), counter("c", 5, Some(1)));
        assert_eq!(of(vec![new.clone()]), Severity::NotTold);
        assert_eq!(of(vec![still.clone(), new.clone()]), Severity::NotTold);
        assert_eq!(of(vec![lost, new]), Severity::Loses);
        assert_eq!(of(vec![still]), Severity::Fine);
    }

    #[test]
    fn ages_are_readable() {
        assert_eq!([span(59.0), span(9000.0), span(200_000.0)], ["1 minutes", "2 hours", "2 days"]);
    }
}
