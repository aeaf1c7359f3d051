//! The clock that packets get their times from.

use super::{Check, Run};
use crate::{Change, Facts, Finding, Severity};

pub(super) const CHECKS: [Check; 3] = [
    Check {
        name: "clock_source",
        subject: "clock source of the kernel",
        why: "The kernel reads the clock for each packet: a register takes 20 nanoseconds, a device on a bus a microsecond.",
        source: "Documentation/timers/timekeeping.rst; arch/x86/kernel/tsc.c",
        run: Run::Machine(clock_source),
    },
    Check {
        name: "clock_synchronised",
        subject: "whether the clock is synchronised",
        why: "Traces of two machines can only be compared if both clocks are synchronised.",
        source: "adjtimex(2): STA_UNSYNC, maxerror",
        run: Run::Machine(synchronised),
    },
    Check {
        name: "invariant_counter",
        subject: "whether the processor's counter keeps its rate",
        why: "If the rate changes or the counter stops, time stamps from it are wrong, and the kernel uses a slower clock.",
        source: "Intel SDM volume 3, 18.17.1 Invariant TSC; /proc/cpuinfo constant_tsc, nonstop_tsc",
        run: Run::Machine(counter),
    },
];

/// Sources that are read without leaving the processor.
const FAST: [&str; 6] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource", "timebase"];
const SOURCE_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// From this error on, times cannot be compared with others.
const ERROR_MAX_US: u64 = 100_000;

fn clock_source(facts: &Facts) -> Vec<Finding> {
    let machine = &facts.machine;
    let Some(current) = &machine.clock_source else {
        return vec![Finding::machine(Severity::NotTold, "the kernel does not show its clock source")];
    };
    let with = |finding: Finding| {
        finding.with("clock_source", current.as_str()).with("available", machine.clock_sources.clone())
    };
    if FAST.contains(&current.as_str()) {
        return vec![with(Finding::machine(Severity::Fine, format!("the clock source is {current}")))];
    }
    let finding = with(Finding::machine(
        Severity::Delays,
        format!("the clock source is {current}, which is slow to read"),
    ));
    let better = FAST.iter().find(|fast| machine.clock_sources.iter().any(|source| source == *fast));
    vec![match better {
        None => finding,
        Some(better) => {
            let change = Change::File { path: SOURCE_FILE.to_owned(), value: (*better).to_owned() };
            finding.fix(facts.scope.write(better, SOURCE_FILE), vec![change])
        }
    }]
}

fn synchronised(facts: &Facts) -> Vec<Finding> {
    let Some(clock) = facts.machine.clock else {
        return vec![Finding::machine(
            Severity::NotTold,
            "the kernel does not report the error of its clock",
        )];
    };
    let (severity, text) = match (clock.is_synchronised, clock.error_max_us) {
        (false, _) => {
            (Severity::Note, "no program disciplines the clock (run chrony, ntpd or phc2sys)".to_owned())
        }
        (true, error) if error > ERROR_MAX_US => {
            (Severity::Note, format!("the clock may be wrong by {} ms", error / 1000))
        }
        (true, error) => (Severity::Fine, format!("the clock is accurate to {error} microseconds")),
    };
    vec![
        Finding::machine(severity, text)
            .with("synchronised", clock.is_synchronised)
            .with("error_max_microseconds", clock.error_max_us)
            .with("error_estimate_microseconds", clock.error_estimate_us),
    ]
}

fn counter(facts: &Facts) -> Vec<Finding> {
    vec![match facts.machine.is_tsc_invariant {
        None => Finding::machine(Severity::NotTold, "this processor has no such flag"),
        Some(true) => Finding::machine(Severity::Fine, "the counter keeps its rate and never stops"),
        Some(false) => Finding::machine(Severity::Note, "the processor's counter changes its rate or stops"),
    }]
}

#[cfg(test)]
mod tests {
    use tapline_sys::clock_state::ClockState;

    use super::*;
    use crate::Machine;

    fn facts(machine: Machine) -> Facts {
        Facts { machine, ..Facts::default() }
    }

    #[test]
    fn a_slow_source_is_changed_if_there_is_a_fast_one() {
        let of = |sources: &[&str]| {
            clock_source(&facts(Machine {
                clock_source: Some("hpet".into()),
                clock_sources: sources.iter().map(|source| (*source).to_owned()).collect(),
                ..Machine::default()
            }))
            .remove(0)
        };
        let mend = of(&["tsc", "hpet"]).remedy.expect("a mend");
        assert_eq!(mend.command, format!("echo tsc | sudo tee {SOURCE_FILE}"));
        assert!(mend.changes[0].to_string().ends_with("current_clocksource: tsc"));
        let none = of(&["hpet", "acpi_pm"]);
        assert_eq!((none.severity, none.remedy), (Severity::Delays, None));
    }

    #[test]
    fn an_error_is_told_as_the_kernel_has_it() {
        let of = |is_synchronised, error_max_us| {
            let clock = Some(ClockState { is_synchronised, error_max_us, ..ClockState::default() });
            synchronised(&facts(Machine { clock, ..Machine::default() }))[0].severity
        };
        assert_eq!(
            (of(true, 500), of(true, 16_000_000), of(false, 0)),
            (Severity::Fine, Severity::Note, Severity::Note)
        );
    }
}
