//! Memory, limits and settings of the kernel, room on the disk.

use tapline_sys::capability::Capability;
use tapline_sys::default_ring_len;

use super::{Check, Run, counted};
use crate::{Change, Facts, Finding, Severity};

pub(super) const CHECKS: [Check; 7] = [
    Check {
        name: "free_memory",
        subject: "free memory compared with the rings of captures",
        why: "Rings cannot be swapped out; a capture with a smaller ring than it requested loses packets sooner.",
        source: "docs/doctor.md; af_packet.c alloc_pg_vec",
        run: Run::Machine(free_memory),
    },
    Check {
        name: "locked_memory",
        subject: "RLIMIT_MEMLOCK",
        why: "AF_XDP's buffers are locked memory: without CAP_IPC_LOCK they must stay below this limit.",
        source: "net/xdp/xdp_umem.c xdp_umem_account_pages; getrlimit(2)",
        run: Run::Machine(locked_memory),
    },
    Check {
        name: "socket_memory",
        subject: "net.core.rmem_max and optmem_max",
        why: "The buffer of a program without a ring (a netlink monitor, another capture program with -B) is limited to rmem_max, the memory of a filter to optmem_max.",
        source: "Documentation/admin-guide/sysctl/net.rst; net/core/filter.c sk_filter_charge",
        run: Run::Machine(socket_memory),
    },
    Check {
        name: "huge_pages",
        subject: "free huge pages",
        why: "Buffers of AF_XDP on huge pages need fewer address translations; without them they work on small ones.",
        source: "Documentation/admin-guide/mm/hugetlbpage.rst",
        run: Run::Machine(huge_pages),
    },
    Check {
        name: "bpf_jit",
        subject: "net.core.bpf_jit_enable",
        why: "Without it the kernel interprets each filter for each packet, at several times the cost.",
        source: "Documentation/admin-guide/sysctl/net.rst",
        run: Run::Machine(bpf_jit),
    },
    Check {
        name: "unprivileged_bpf",
        subject: "kernel.unprivileged_bpf_disabled",
        why: "Filters too large for classic BPF are loaded as eBPF; if this is not 0, loading them needs CAP_BPF.",
        source: "Documentation/admin-guide/sysctl/kernel.rst",
        run: Run::Machine(unprivileged_bpf),
    },
    Check {
        name: "disk",
        subject: "room in the current directory",
        why: "A full disk ends a recording.",
        source: "statvfs(3)",
        run: Run::Machine(disk),
    },
];

/// Memory that should remain free, in rings.
const RINGS_OF_ROOM: u64 = 4;
/// A UMEM of the size that this program and others ask for.
const UMEM_LEN: u64 = 64 << 20;
/// The kernel's defaults of long: `SK_RMEM_MAX`, and 20 KiB for options.
const RMEM_DEFAULT: u64 = 212_992;
const OPTMEM_DEFAULT: u64 = 20_480;
const DISK_LOW: u64 = 10 << 30;
const MIB: u64 = 1 << 20;

fn free_memory(facts: &Facts) -> Vec<Finding> {
    let Some(memory) = facts.machine.memory else {
        return vec![Finding::machine(Severity::NotTold, "the kernel does not report its memory")];
    };
    let rings = facts.interfaces.len() as u64;
    let ring = |interface: &crate::Interface| {
        default_ring_len(interface.mode.and_then(|mode| mode.speed), 1, rings, memory.total)
    };
    let wanted: u64 = facts.interfaces.iter().map(ring).fold(0, u64::saturating_add);
    let is_low = memory.available < wanted.saturating_mul(RINGS_OF_ROOM);
    let text = format!(
        "{} MiB available; captures on {} ask for {} MiB",
        memory.available / MIB,
        counted(rings, "interface"),
        wanted / MIB
    );
    let severity = if is_low { Severity::Loses } else { Severity::Fine };
    let text = if is_low { format!("little memory: {text}") } else { text };
    vec![
        Finding::machine(severity, text)
            .with("available_bytes", memory.available)
            .with("total_bytes", memory.total)
            .with("ring_bytes", wanted),
    ]
}

fn locked_memory(facts: &Facts) -> Vec<Finding> {
    let Some(limit) = facts.machine.memory_lock_max else {
        return vec![Finding::machine(Severity::NotTold, "the limit of locked memory is unknown")];
    };
    let is_free = limit == u64::MAX || facts.machine.may(Capability::IpcLock) == Some(true);
    if is_free || limit >= UMEM_LEN {
        let text = if is_free { "no limit of locked memory" } else { "enough memory may be locked" };
        return vec![Finding::machine(Severity::Fine, text).with("limit_bytes", limit)];
    }
    let text = format!("{} KiB of memory may be locked, AF_XDP takes {} MiB", limit / 1024, UMEM_LEN / MIB);
    // In the shell that will run the capture: its own limit is what counts.
    let command = "sudo prlimit --pid $$ --memlock=unlimited:unlimited";
    vec![Finding::machine(Severity::Note, text).with("limit_bytes", limit).with_remedy(command)]
}

fn socket_memory(facts: &Facts) -> Vec<Finding> {
    let settings = [
        ("net/core/rmem_max", "net.core.rmem_max", RMEM_DEFAULT, "socket buffers of other programs"),
        ("net/core/optmem_max", "net.core.optmem_max", OPTMEM_DEFAULT, "filters"),
    ];
    let one = |(path, name, least, what): (&str, &str, u64, &str)| {
        let Some(value) = facts.machine.setting(path) else {
            return Finding::machine(Severity::NotTold, format!("{name} is unknown"));
        };
        if value >= least {
            return Finding::machine(Severity::Fine, format!("{name} is {value}")).with(name, value);
        }
        let text = format!("{name} is {value}, below the kernel's default: {what} stay small");
        let command = facts.scope.machine(&format!("sysctl -w {name}={least}"));
        Finding::machine(Severity::Note, text).with(name, value).with_remedy(command)
    };
    settings.into_iter().map(one).collect()
}

fn huge_pages(facts: &Facts) -> Vec<Finding> {
    let Some(memory) = facts.machine.memory.filter(|memory| memory.huge_page_len > 0) else {
        return vec![Finding::machine(Severity::NotTold, "the kernel does not report huge pages")];
    };
    let (free, len) = (memory.huge_pages_free, memory.huge_page_len);
    let text = format!("{} of {} KiB free", counted(free, "huge page"), len / 1024);
    vec![Finding::machine(Severity::Fine, text).with("free", free).with("page_bytes", len)]
}

fn bpf_jit(facts: &Facts) -> Vec<Finding> {
    const PATH: &str = "net/core/bpf_jit_enable";
    match facts.machine.setting(PATH) {
        None => vec![Finding::machine(Severity::NotTold, "net.core.bpf_jit_enable is unknown")],
        Some(0) => {
            let change = Change::File { path: format!("/proc/sys/{PATH}"), value: "1".to_owned() };
            let command = facts.scope.machine("sysctl -w net.core.bpf_jit_enable=1");
            let text = "the kernel interprets filters instead of translating them";
            vec![
                Finding::machine(Severity::Delays, text)
                    .with("bpf_jit_enable", 0u64)
                    .fix(command, vec![change]),
            ]
        }
        Some(value) => {
            let text = "the kernel translates filters";
            vec![Finding::machine(Severity::Fine, text).with("bpf_jit_enable", value)]
        }
    }
}

fn unprivileged_bpf(facts: &Facts) -> Vec<Finding> {
    let Some(value) = facts.machine.setting("kernel/unprivileged_bpf_disabled") else {
        return vec![Finding::machine(Severity::NotTold, "kernel.unprivileged_bpf_disabled is unknown")];
    };
    let may = [Capability::Bpf, Capability::SysAdmin].map(|one| facts.machine.may(one));
    let (severity, text) = match (value, may) {
        (0, _) => (Severity::Fine, "everyone may load socket filters as eBPF"),
        (_, [Some(false), Some(false)]) => {
            (Severity::Note, "you may not load eBPF: filters too large for classic BPF run in user space")
        }
        _ => (Severity::Fine, "only privileged users may load eBPF"),
    };
    vec![Finding::machine(severity, text).with("unprivileged_bpf_disabled", value)]
}

fn disk(facts: &Facts) -> Vec<Finding> {
    let Some((path, space)) = &facts.machine.disk else {
        return vec![Finding::machine(Severity::NotTold, "the room on the disk is unknown")];
    };
    let severity = if space.free < DISK_LOW { Severity::Note } else { Severity::Fine };
    let text = format!("{} MiB free in {}", space.free / MIB, path.display());
    vec![
        Finding::machine(severity, text)
            .with("free_bytes", space.free)
            .with("total_bytes", space.total)
            .with("directory", path.to_string_lossy().into_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interface, Machine, Memory};

    fn facts(machine: Machine) -> Facts {
        Facts { machine, interfaces: vec![Interface::default()], ..Facts::default() }
    }

    #[test]
    fn little_memory_loses() {
        let of = |available| {
            let memory = Memory { total: 8 << 30, available, ..Memory::default() };
            free_memory(&facts(Machine { memory: Some(memory), ..Machine::default() }))[0].severity
        };
        assert_eq!((of(4 << 30), of(32 << 20)), (Severity::Fine, Severity::Loses));
    }

    #[test]
    fn a_memory_limit_does_not_bind_ipc_lock() {
        let of = |limit, capabilities| {
            let machine = Machine {
                is_in_user_namespace: Some(false),
                memory_lock_max: Some(limit),
                capabilities: Some(capabilities),
                ..Machine::default()
            };
            locked_memory(&facts(machine))[0].severity
        };
        let ipc_lock = 1 << Capability::IpcLock as u32;
        assert_eq!(
            (of(65_536, 0), of(65_536, ipc_lock), of(u64::MAX, 0)),
            (Severity::Note, Severity::Fine, Severity::Fine)
        );
    }

    #[test]
    fn a_setting_compiles_interpreted_filters() {
        let settings = [("net/core/bpf_jit_enable".to_owned(), "0".to_owned())].into();
        let found = bpf_jit(&facts(Machine { settings, ..Machine::default() }));
        let mend = found[0].remedy.as_ref().unwrap();
        assert_eq!(mend.command, "sudo sysctl -w net.core.bpf_jit_enable=1");
        assert_eq!(mend.changes[0].to_string(), "/proc/sys/net/core/bpf_jit_enable: 1");
    }
}
