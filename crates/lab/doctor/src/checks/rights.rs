//! Rights of this user.

use super::{Check, Run};
use crate::{Facts, Finding, Severity};
use tapline_sys::capability::Capability;

pub(super) const CHECKS: [Check; 1] = [Check {
    name: "rights",
    subject: "capabilities in effect, and those that could be had",
    why: "Capturing takes CAP_NET_RAW; AF_XDP, eBPF, hardware time stamps and --fix take more; a container can have taken them away for good.",
    source: "capabilities(7)",
    run: Run::Machine(rights),
}];

/// Each right and its purpose.
const NEEDED: [(Capability, &str); 5] = [
    (Capability::NetRaw, "captures"),
    (Capability::NetAdmin, "--fix, AF_XDP, time stamps of the adapter"),
    (Capability::Bpf, "large filters in the kernel, AF_XDP"),
    (Capability::IpcLock, "AF_XDP beyond the limit of locked memory"),
    (Capability::SysNice, "running before others"),
];

fn rights(facts: &Facts) -> Vec<Finding> {
    let Some(effective) = facts.machine.capabilities else {
        return vec![Finding::machine(Severity::NotTold, "the kernel does not report our capabilities")];
    };
    let lacks = |set: u64, right: Capability| set & 1 << right as u32 == 0;
    let missing: Vec<&(Capability, &str)> =
        NEEDED.iter().filter(|(right, _)| lacks(effective, *right)).collect();
    if missing.is_empty() {
        return vec![Finding::machine(Severity::Fine, "all rights that captures can use")];
    }
    let words: Vec<String> =
        missing.iter().map(|(right, what)| format!("{} ({what})", right.name())).collect();
    let barred: Vec<&str> = missing
        .iter()
        .filter(|(right, _)| facts.machine.bounding_set.is_some_and(|set| lacks(set, *right)))
        .map(|(right, _)| right.name())
        .collect();
    let uses: Vec<String> = missing.iter().map(|(right, what)| format!("{}: {what}", right.name())).collect();
    let finding =
        Finding::machine(Severity::Note, format!("you lack {}", words.join(", "))).with("missing", uses);
    if !barred.is_empty() {
        let options: Vec<String> =
            barred.iter().map(|name| format!("--cap-add {}", name.trim_start_matches("CAP_"))).collect();
        let text = format!(
            "{}; not available here, as in a container: start it with {}",
            finding.text,
            options.join(" ")
        );
        return vec![Finding { text, ..finding }];
    }
    let command = "sudo setcap cap_net_raw,cap_net_admin=eip \"$(command -v tapline)\"";
    vec![match lacks(effective, Capability::NetRaw) {
        true => finding.with_remedy(command),
        false => finding,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    #[test]
    fn rights_of_containers_and_of_sudo_differ() {
        let of = |effective, bounding_set| {
            let machine = Machine {
                capabilities: Some(effective),
                bounding_set: Some(bounding_set),
                ..Machine::default()
            };
            rights(&Facts { machine, ..Facts::default() }).remove(0)
        };
        assert_eq!(of(u64::MAX, u64::MAX).severity, Severity::Fine);
        let user = of(0, u64::MAX);
        assert!(user.remedy.is_some_and(|mend| mend.command.starts_with("sudo setcap cap_net_raw")));
        let container = of(0, !(1 << Capability::NetRaw as u32));
        assert!(container.text.ends_with("start it with --cap-add NET_RAW"), "{}", container.text);
        assert_eq!(container.remedy, None);
    }
}
