//! The clock that packets get their times from.

use super::{Check, Run};
use crate::{Change, Facts, Finding, Interface, Severity};

pub(super) const CHECKS: [Check; 4] = [
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
        name: "adapter_clock",
        subject: "distance of the adapter's clock from the system's",
        why: "Time stamps of the adapter (`-j adapter`) are in the time of its clock, which may be UTC, TAI or any other.",
        source: "linux/ptp_clock.h: PTP_SYS_OFFSET_EXTENDED; adjtimex(2): tai",
        run: Run::Interface(adapter_clock),
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

/// A clock closer than this to UTC or TAI counts as showing it.
const IN_STEP_NS: u64 = 10_000_000;
/// Seconds by which TAI has been ahead of UTC since 2017, where the kernel does not know it.
const TAI_OFFSET_S: i32 = 37;

fn adapter_clock(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let Some(read) = &interface.clock_offset else { return Vec::new() };
    let offset = match read {
        Ok(offset) => *offset,
        Err(why) => {
            let text = format!("the distance of the adapter's clock from the system's is unknown: {why}");
            return vec![Finding::not_told(name, text)];
        }
    };
    let told = facts.machine.clock.map_or(0, |clock| clock.tai_offset);
    let tai_offset = if told == 0 { TAI_OFFSET_S } else { told };
    let from_tai = offset.offset_ns.saturating_sub(i64::from(tai_offset) * 1_000_000_000);
    let sign = if offset.offset_ns < 0 { "behind" } else { "ahead of" };
    let seconds = offset.offset_ns.unsigned_abs() / 1_000_000_000;
    let nanos = offset.offset_ns.unsigned_abs() % 1_000_000_000;
    let distance = format!("{seconds}.{nanos:09} s {sign} UTC, to {} ns", offset.error_ns);
    let (severity, scale, text) = if offset.offset_ns.unsigned_abs() < IN_STEP_NS {
        (Severity::Fine, "utc", format!("the adapter's clock shows UTC: {distance}"))
    } else if from_tai.unsigned_abs() < IN_STEP_NS {
        (
            Severity::Note,
            "tai",
            format!("the adapter's clock shows TAI, and so do its time stamps: {distance}"),
        )
    } else {
        (Severity::Note, "own", format!("the adapter's clock shows a time of its own: {distance}"))
    };
    let finding = Finding::on(name, severity, text)
        .with("scale", scale)
        .with("offset_seconds", offset.offset_ns as f64 / 1e9)
        .with("error_nanoseconds", offset.error_ns);
    vec![match told {
        0 => finding,
        told => finding.with("tai_offset_seconds", u64::from(told.unsigned_abs())),
    }]
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
    use tapline_sys::Link;
    use tapline_sys::clock_state::ClockState;
    use tapline_sys::ptp::ClockOffset;

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
    fn an_adapters_clock_is_utc_tai_or_its_own() {
        let of = |offset_ns, tai_offset| {
            let clock = Some(ClockState { tai_offset, ..ClockState::default() });
            let link = Link { name: "eth0".into(), ..Link::default() };
            let clock_offset = Some(Ok(ClockOffset { offset_ns, error_ns: 400 }));
            let interface = Interface { link, clock_offset, ..Interface::default() };
            let finding =
                adapter_clock(&interface, &facts(Machine { clock, ..Machine::default() })).remove(0);
            (finding.severity, finding.text)
        };
        let (utc, tai, own) = (of(-1_500, 37), of(37_000_000_900, 0), of(36_000_000_900, 37));
        assert_eq!((utc.0, tai.0, own.0), (Severity::Fine, Severity::Note, Severity::Note));
        assert!(utc.1.contains("shows UTC: 0.000001500 s behind UTC, to 400 ns"), "{}", utc.1);
        assert!(tai.1.contains("shows TAI") && tai.1.contains("37.000000900 s ahead of UTC"), "{}", tai.1);
        assert!(own.1.contains("a time of its own"), "{}", own.1);
        assert!(of(36_000_000_900, 36).1.contains("shows TAI"), "the kernel's own number counts");
        let none = adapter_clock(&Interface::default(), &Facts::default());
        assert!(none.is_empty(), "no clock, no finding");
        let unread = Interface { clock_offset: Some(Err("EACCES".into())), ..Interface::default() };
        assert_eq!(adapter_clock(&unread, &Facts::default())[0].severity, Severity::NotTold);
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
