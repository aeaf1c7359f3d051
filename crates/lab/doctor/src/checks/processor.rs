//! Checks of processors: their number, their wake-up time, and other users of them.

use super::{Check, Run, counted};
use crate::facts::cpu_list;
use crate::{Change, Facts, Finding, Severity};

pub(super) const CHECKS: [Check; 5] = [
    Check {
        name: "processors",
        subject: "the number of processors, and whether they are real",
        why: "On one processor receiving takes the time that the capture needs; in a virtual machine the host may lose packets without any counter here.",
        source: "Documentation/networking/scaling.rst; /proc/cpuinfo hypervisor",
        run: Run::Machine(processors),
    },
    Check {
        name: "steal",
        subject: "processor time that the hypervisor gave to others",
        why: "While the processor is taken away the rings fill.",
        source: "proc_stat(5), steal",
        run: Run::Machine(steal),
    },
    Check {
        name: "governor",
        subject: "the governor of the processors' frequency",
        why: "A processor that lowers its frequency between packets is slow when a burst comes.",
        source: "Documentation/admin-guide/pm/cpufreq.rst",
        run: Run::Machine(governor),
    },
    Check {
        name: "idle_states",
        subject: "how long processors take to wake",
        why: "Packets wait that long for their interrupt, and their time stamps are late by it.",
        source: "Documentation/admin-guide/pm/cpuidle.rst",
        run: Run::Machine(idle_states),
    },
    Check {
        name: "mitigations",
        subject: "mitigations of processor vulnerabilities",
        why: "Some make each system call and each indirect call in the kernel slower; whether that is worth it is your decision.",
        source: "Documentation/admin-guide/hw-vuln",
        run: Run::Machine(mitigations),
    },
];

const STEAL_LOSES: f64 = 0.01;
const STEAL_DELAYS: f64 = 0.001;
/// Governors that hold a frequency, and the best one.
const STEADY: [&str; 2] = ["performance", "userspace"];
/// Waking slower than this shows in time stamps.
const WAKE_US: u64 = 50;

fn processors(facts: &Facts) -> Vec<Finding> {
    let machine = &facts.machine;
    let count = match &machine.cpus {
        None => Finding::machine(Severity::NotTold, "the kernel does not report its processors"),
        Some(cpus) => {
            let severity = if cpus.len() == 1 { Severity::Note } else { Severity::Fine };
            Finding::machine(severity, counted(cpus.len() as u64, "processor")).with("processors", cpus.len())
        }
    };
    let kind = match machine.is_virtual {
        None => Finding::machine(Severity::NotTold, "the processor does not report a hypervisor"),
        Some(false) => Finding::machine(Severity::Fine, "no hypervisor").with("virtual", false),
        Some(true) => {
            let text = "a virtual machine: losses of its host have no counter here";
            Finding::machine(Severity::Note, text).with("virtual", true)
        }
    };
    vec![count, kind]
}

fn steal(facts: &Facts) -> Vec<Finding> {
    let times = if facts.interval_s.is_some() { facts.machine.times_growth } else { facts.machine.times };
    let Some(times) = times.filter(|times| times.total > 0) else {
        return vec![Finding::machine(Severity::NotTold, "the kernel does not report stolen time")];
    };
    let share = times.steal as f64 / times.total as f64;
    let severity = match share {
        share if share > STEAL_LOSES => Severity::Loses,
        share if share > STEAL_DELAYS => Severity::Delays,
        _ => Severity::Fine,
    };
    let text = format!("{:.2} % of processor time went to others on this host", share * 100.0);
    vec![Finding::machine(severity, text).with("share", share)]
}

fn governor(facts: &Facts) -> Vec<Finding> {
    let governors = &facts.machine.governors;
    if governors.is_empty() {
        return vec![Finding::machine(Severity::NotTold, "the processors' frequency is not ours to see")];
    }
    let slow: Vec<&(u32, String)> =
        governors.iter().filter(|(_, name)| !STEADY.contains(&name.as_str())).collect();
    let Some((_, name)) = slow.first() else {
        return vec![Finding::machine(
            Severity::Fine,
            format!("the frequency governor is {}", governors[0].1),
        )];
    };
    let cpus: Vec<u32> = slow.iter().map(|(cpu, _)| *cpu).collect();
    let text = format!("processors {} change their frequency (governor {name})", cpu_list(&cpus));
    let path = crate::facts::governor_path;
    let change = |&cpu: &u32| Change::File { path: path(cpu), value: "performance".to_owned() };
    let command = facts.scope.write("performance", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
    let finding = Finding::machine(Severity::Delays, text).with("governor", name.as_str());
    vec![finding.fix(command, cpus.iter().map(change).collect())]
}

fn idle_states(facts: &Facts) -> Vec<Finding> {
    let idle = &facts.machine.idle;
    let Some(slowest) = idle.iter().map(|state| state.latency_us).max() else {
        return vec![Finding::machine(Severity::NotTold, "idle states of processors are not ours to see")];
    };
    let text = format!("processors take up to {slowest} microseconds to wake");
    if slowest < WAKE_US {
        return vec![Finding::machine(Severity::Fine, text).with("wake_microseconds", slowest)];
    }
    let deep: Vec<_> = idle.iter().filter(|state| state.latency_us >= WAKE_US).collect();
    let mut states: Vec<u32> = deep.iter().map(|state| state.state).collect();
    states.sort_unstable();
    states.dedup();
    let paths: Vec<String> = states
        .iter()
        .map(|state| format!("/sys/devices/system/cpu/cpu*/cpuidle/state{state}/disable"))
        .collect();
    let path = crate::facts::idle_path;
    let changes =
        deep.iter().map(|s| Change::File { path: path(s.cpu, s.state), value: "1".to_owned() }).collect();
    let finding = Finding::machine(Severity::Delays, text).with("wake_microseconds", slowest);
    vec![finding.fix(facts.scope.write("1", &paths.join(" ")), changes)]
}

fn mitigations(facts: &Facts) -> Vec<Finding> {
    let all = &facts.machine.vulnerabilities;
    if all.is_empty() {
        return vec![Finding::machine(Severity::NotTold, "the kernel does not list mitigations")];
    }
    let active: Vec<&str> =
        all.iter().filter(|(_, text)| text.contains("Mitigation:")).map(|(name, _)| name.as_str()).collect();
    if active.is_empty() {
        return vec![Finding::machine(Severity::Fine, "no mitigations of the processor's weaknesses")];
    }
    let list = all.iter().map(|(name, text)| format!("{name}: {text}")).collect::<Vec<_>>();
    let text = format!(
        "{} cost time in the kernel: {}",
        counted(active.len() as u64, "mitigation"),
        active.join(", ")
    );
    vec![Finding::machine(Severity::Note, text).with("vulnerabilities", list)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuTicks, IdleState, Machine, Scope};

    fn facts(machine: Machine) -> Facts {
        Facts { machine, scope: Scope { netns: None, is_root: true }, ..Facts::default() }
    }

    #[test]
    fn stolen_time_is_a_share() {
        let of = |steal| {
            let times = Some(CpuTicks { total: 100_000, steal });
            steal_of(times)
        };
        fn steal_of(times: Option<CpuTicks>) -> Severity {
            steal(&facts(Machine { times, ..Machine::default() }))[0].severity
        }
        assert_eq!((of(5000), of(500), of(50)), (Severity::Loses, Severity::Delays, Severity::Fine));
        assert_eq!(steal_of(None), Severity::NotTold);
    }

    #[test]
    fn each_processor_gets_its_governor_back() {
        let governors = vec![(0, "performance".into()), (1, "powersave".into()), (2, "powersave".into())];
        let [finding] = governor(&facts(Machine { governors, ..Machine::default() })).try_into().unwrap();
        assert_eq!(finding.text, "processors 1-2 change their frequency (governor powersave)");
        let mend = finding.remedy.unwrap();
        assert_eq!(mend.changes.len(), 2);
        assert!(mend.command.starts_with("echo performance | tee /sys/devices/system/cpu/cpu*/"));
        assert!(mend.changes.iter().all(|change| change.interface().is_none()));
    }

    #[test]
    fn deep_sleep_delays() {
        let idle = vec![
            IdleState { cpu: 0, state: 1, latency_us: 2 },
            IdleState { cpu: 0, state: 3, latency_us: 133 },
            IdleState { cpu: 1, state: 3, latency_us: 133 },
        ];
        let [finding] = idle_states(&facts(Machine { idle, ..Machine::default() })).try_into().unwrap();
        let mend = finding.remedy.unwrap();
        assert_eq!(mend.command, "echo 1 | tee /sys/devices/system/cpu/cpu*/cpuidle/state3/disable");
        assert_eq!(mend.changes.len(), 2);
        let idle = vec![IdleState { cpu: 0, state: 1, latency_us: 2 }];
        assert_eq!(idle_states(&facts(Machine { idle, ..Machine::default() }))[0].severity, Severity::Fine);
    }

    #[test]
    fn stages_outside_a_difference_cost_nothing() {
        let of = |text: &str| {
            let vulnerabilities = vec![("meltdown".to_owned(), text.to_owned())];
            mitigations(&facts(Machine { vulnerabilities, ..Machine::default() }))[0].severity
        };
        assert_eq!((of("Not affected"), of("Mitigation: PTI")), (Severity::Fine, Severity::Note));
    }
}
