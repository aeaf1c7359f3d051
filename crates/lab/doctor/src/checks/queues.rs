//! Rings, queues, interrupts: everything between the wire and the processor.
//!
//! ```text
//! wire --> hash of addresses and ports --> table --> queue: ring of descriptors --> interrupt --> processor --> (RPS) another processor
//! ```

use std::collections::BTreeMap;

use super::{Check, Run, counted};
use crate::facts::cpu_list;
use crate::scope::quoted;
use crate::{Change, Facts, Finding, Interface, Severity};
use tapline_sys::{HashFields, ReceiveHash};

pub(super) const CHECKS: [Check; 9] = [
    Check {
        name: "ring_size",
        subject: "descriptors of the receive rings",
        why: "While the processor is busy elsewhere packets wait in the ring; when it is full the adapter drops them, and only its own counters show it.",
        source: "ethtool(8) -g; at 10 Gbit/s and 64 bytes 256 descriptors are 17 microseconds",
        run: Run::Interface(ring_size),
    },
    Check {
        name: "pause_frames",
        subject: "flow control of the link",
        why: "A full ring makes the adapter pause the other end: the capture then measures its own slowness.",
        source: "IEEE 802.3 annex 31B; Suricata's high performance guide switches it off",
        run: Run::Interface(pause_frames),
    },
    Check {
        name: "interrupt_moderation",
        subject: "how long the adapter waits before it raises an interrupt",
        why: "Packets wait for their interrupt and get their time stamps after it, so the kernel's time stamps are late by up to this wait.",
        source: "ethtool(8) -c",
        run: Run::Interface(interrupt_moderation),
    },
    Check {
        name: "queue_count",
        subject: "receive queues compared with processors",
        why: "One queue is served by one processor at a time, however many processors there are.",
        source: "Documentation/networking/scaling.rst",
        run: Run::Interface(queue_count),
    },
    Check {
        name: "hash_symmetry",
        subject: "function, key and transform of the receive hash",
        why: "With most keys the two directions of a connection go to different queues, so each worker sees only half of it, and the order of its packets is lost.",
        source: "Woo and Park 2012 (key 6d5a repeated); ethtool -X xfrm symmetric-xor since kernel 6.8",
        run: Run::Interface(hash_symmetry),
    },
    Check {
        name: "hash_fields",
        subject: "which fields the receive hash takes",
        why: "Later fragments have no ports: if ports are hashed, they may go to another queue than the first fragment; if not, all traffic of two hosts goes to one queue.",
        source: "ethtool(8) -n rx-flow-hash; Documentation/networking/scaling.rst",
        run: Run::Interface(hash_fields),
    },
    Check {
        name: "indirection",
        subject: "the table from hash to queue",
        why: "Queues that are not in the table stay empty, and the others get all packets.",
        source: "ethtool(8) -x",
        run: Run::Interface(indirection),
    },
    Check {
        name: "interrupt_affinity",
        subject: "which processors take the adapter's interrupts",
        why: "Queues whose interrupts go to one processor share it; a processor far from the adapter's memory pays for each packet.",
        source: "Documentation/core-api/irq/irq-affinity.rst; SEPTun (remote memory 140 ns, local 96)",
        run: Run::Interface(interrupt_affinity),
    },
    Check {
        name: "packet_steering",
        subject: "whether software spreads packets over processors",
        why: "Packets go through a second queue, which can overflow, to another processor; the order within a connection holds.",
        source: "Documentation/networking/scaling.rst, RPS",
        run: Run::Interface(packet_steering),
    },
];

/// Rings smaller than this lose within a moment that a processor is away.
const RING_ENOUGH: u32 = 1024;
/// Bits on the wire of the smallest frame, with preamble and gap.
const MIN_FRAME_BITS: u64 = 84 * 8;
/// Link speed that one processor can serve with small frames: 1.5 million a second on a gigabit link, 3.7 on this.
const ONE_QUEUE_SPEED: u64 = 2_500_000_000;
/// Moderation that shows in time stamps.
const MODERATION_US: u32 = 50;
/// The two bytes that, repeated, make the Toeplitz hash symmetric.
const SYMMETRIC_PAIR: [u8; 2] = [0x6d, 0x5a];
/// `ETH_RSS_HASH_*`: functions of the receive hash. Xor of all words does not know their order; CRC32 does, whatever
/// the key.
const TOEPLITZ: u8 = 1;
const XOR: u8 = 2;
const CRC32: u8 = 4;
/// `RXH_XFRM_SYM_XOR | RXH_XFRM_SYM_OR_XOR`: both ends are made one before they are hashed.
const SYMMETRIC_TRANSFORMS: u8 = 3;
/// `RXH_L4_B_0_1 | RXH_L4_B_2_3`.
const PORTS: u64 = 0xc0;

fn ring_size(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let Some(rings) = interface.rings.filter(|rings| rings.rx_max > 0) else {
        return vec![Finding::not_told(name, "the driver reports no receive ring")];
    };
    let (rx, most) = (rings.rx, rings.rx_max);
    let severity = match () {
        () if rx >= most && rx < RING_ENOUGH => Severity::Note,
        () if rx >= most => Severity::Fine,
        () if rx < RING_ENOUGH => Severity::Loses,
        () => Severity::Fine,
    };
    let text = match severity {
        Severity::Note => format!("ring of {rx} descriptors, and the driver has no more"),
        _ => format!("ring of {rx} of {most} descriptors"),
    };
    let mut finding = Finding::on(name, severity, text).with("descriptors", rx).with("descriptors_max", most);
    let speed = interface.mode.and_then(|mode| mode.speed);
    if let Some(frames) = speed.map(|speed| speed / MIN_FRAME_BITS).filter(|frames| *frames > 0) {
        finding =
            finding.with("full_after_microseconds_of_smallest_frames", u64::from(rx) * 1_000_000 / frames);
    }
    if severity != Severity::Loses {
        return vec![finding];
    }
    let command = facts.scope.within(&format!("ethtool -G {} rx {most}", quoted(name)));
    vec![
        finding
            .fix(command, vec![Change::ReceiveRing { interface: name.to_owned(), rx: most }])
            .interrupting(),
    ]
}

fn pause_frames(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let Some(pause) = interface.pause else {
        return vec![Finding::not_told(name, "the driver reports no pause frames")];
    };
    let word = |is_on| if is_on { "on" } else { "off" };
    let text = format!("pause frames rx {} tx {}", word(pause.rx), word(pause.tx));
    let severity = if pause.tx { Severity::Delays } else { Severity::Fine };
    let finding = Finding::on(name, severity, text).with("rx", pause.rx).with("tx", pause.tx);
    if !pause.tx {
        return vec![finding];
    }
    let command = format!("ethtool -A {} autoneg off rx off tx off", quoted(name));
    let change = Change::Pause { interface: name.to_owned(), negotiated: false, rx: false, tx: false };
    vec![finding.fix(facts.scope.within(&command), vec![change]).interrupting()]
}

fn interrupt_moderation(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let Some(coalescing) = interface.coalescing else {
        return vec![Finding::not_told(name, "the driver reports no interrupt moderation")];
    };
    let (usecs, is_adaptive) = (coalescing.rx_usecs, coalescing.is_adaptive);
    let is_late = is_adaptive || usecs >= MODERATION_US;
    let text = match (is_adaptive, usecs) {
        (true, _) => {
            format!("interrupts wait as long as the driver likes (adaptive, now {usecs} microseconds)")
        }
        (false, 0) => "interrupts come at once".to_owned(),
        (false, _) => format!("interrupts wait {usecs} microseconds"),
    };
    let severity = if is_late { Severity::Delays } else { Severity::Fine };
    let finding = Finding::on(name, severity, text).with("rx_usecs", usecs).with("adaptive", is_adaptive);
    if !is_late {
        return vec![finding];
    }
    let adaptive = if is_adaptive { "adaptive-rx off " } else { "" };
    // Fewer interrupts also are less work: whether late stamps or lost packets are worse, people decide.
    vec![
        finding
            .with_remedy(facts.scope.within(&format!("ethtool -C {} {adaptive}rx-usecs 10", quoted(name)))),
    ]
}

fn queue_count(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    if !interface.link.kind.is_empty() {
        // Packets of software devices are received on the sending processor.
        return Vec::new();
    }
    let (Some(queues), Some(channels)) = (interface.receive_queues(), interface.channels) else {
        return vec![Finding::not_told(name, "the driver does not report its queues")];
    };
    let Some(cpus) = facts.machine.cpus.as_ref().map(|cpus| cpus.len() as u32) else {
        return vec![Finding::not_told(name, "the kernel does not report its processors")];
    };
    let most = channels.rx_max.saturating_add(channels.combined_max);
    let text =
        format!("{} for {}", counted(queues.into(), "receive queue"), counted(cpus.into(), "processor"));
    let is_alone = queues == 1 && cpus > 1;
    let is_slow = interface.mode.and_then(|mode| mode.speed).is_some_and(|speed| speed <= ONE_QUEUE_SPEED);
    let severity = match () {
        () if is_alone && most > 1 && !is_slow => Severity::Loses,
        () if is_alone || queues > cpus => Severity::Note,
        () => Severity::Fine,
    };
    let text = if is_alone && most <= 1 { format!("{text}, and the driver has no more") } else { text };
    let finding = Finding::on(name, severity, text)
        .with("queues", queues)
        .with("queues_max", most)
        .with("processors", cpus);
    if !is_alone || most <= 1 {
        return vec![finding];
    }
    let word = if channels.combined_max > 0 { "combined" } else { "rx" };
    let wanted = most.min(cpus);
    vec![finding.with_remedy(facts.scope.within(&format!("ethtool -L {} {word} {wanted}", quoted(name))))]
}

fn hash_symmetry(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    if interface.receive_queues() == Some(1) {
        return Vec::new();
    }
    let Some((hash, is_one)) = interface.hash.as_ref().and_then(|hash| Some((hash, symmetry(hash)?))) else {
        return vec![Finding::not_told(name, "the driver does not report the function and key of its hash")];
    };
    if is_one {
        return vec![Finding::on(name, Severity::Fine, "both directions of a connection come by one queue")];
    }
    let text = "the two directions of a connection come by different queues (the hash is not symmetric)";
    let finding = Finding::on(name, Severity::Alters, text)
        .with("key_bytes", hash.key.len())
        .with("queues", interface.receive_queues().unwrap_or(0));
    if hash.function != TOEPLITZ {
        // No key makes another function symmetric.
        return vec![finding];
    }
    let key: Vec<String> = (0..hash.key.len()).map(|at| format!("{:02x}", SYMMETRIC_PAIR[at % 2])).collect();
    let command = format!("ethtool -X {} hkey {}", quoted(name), key.join(":"));
    vec![finding.with_remedy(facts.scope.within(&command))]
}

/// Whether both directions of a connection have one hash; `None` if the driver reports too little to decide.
fn symmetry(hash: &ReceiveHash) -> Option<bool> {
    match hash.function {
        _ if hash.transform & SYMMETRIC_TRANSFORMS != 0 => Some(true),
        TOEPLITZ if !hash.key.is_empty() => Some(is_symmetric(&hash.key)),
        XOR => Some(true),
        CRC32 => Some(false),
        _ => None,
    }
}

/// Toeplitz hashes a port or address by the key's bits from its place on. With a period of 16 bits, places that are a
/// multiple of 16 bits apart, as those of source and destination are, count the same.
fn is_symmetric(key: &[u8]) -> bool {
    key.len() >= 4 && key.iter().zip(&key[2..]).all(|(byte, later)| byte == later)
}

fn hash_fields(interface: &Interface, _: &Facts) -> Vec<Finding> {
    let name = interface.name();
    if interface.receive_queues() == Some(1) {
        return Vec::new();
    }
    if interface.hash_fields.is_empty() {
        return vec![Finding::not_told(name, "the driver does not report which fields it hashes")];
    }
    let find = |wanted: HashFields| interface.hash_fields.iter().find(|(flow, _)| *flow == wanted);
    let list = interface.hash_fields.iter().map(|(flow, fields)| format!("{flow:?} {}", letters(*fields)));
    let udp_has_ports =
        [HashFields::Udp4, HashFields::Udp6].map(find).iter().flatten().any(|(_, f)| f & PORTS != 0);
    let tcp_has_none = find(HashFields::Tcp4).is_some_and(|(_, fields)| fields & PORTS == 0);
    let list = list.collect::<Vec<_>>();
    let (severity, text) = match (udp_has_ports, tcp_has_none) {
        (true, _) => {
            (Severity::Note, "UDP is spread by ports, so fragments come by other queues than their first")
        }
        (_, true) => (Severity::Note, "TCP is spread by addresses alone, so two busy hosts are one queue"),
        _ => (Severity::Fine, "TCP is spread by ports, UDP by addresses"),
    };
    vec![Finding::on(name, severity, text).with("fields", list)]
}

/// Letters of ethtool(8): s and d addresses, f and n ports, v VLAN, t protocol, m Ethernet destination.
fn letters(fields: u64) -> String {
    let all = [(1, 'm'), (2, 'v'), (3, 't'), (4, 's'), (5, 'd'), (6, 'f'), (7, 'n')];
    all.iter().filter(|(bit, _)| fields & 1 << bit != 0).map(|(_, letter)| letter).collect()
}

fn indirection(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let queues = match interface.receive_queues() {
        Some(1) => return Vec::new(),
        Some(queues) => queues,
        None => return vec![Finding::not_told(name, "the driver does not report its queues")],
    };
    let Some(hash) = interface.hash.as_ref().filter(|hash| !hash.table.is_empty()) else {
        return vec![Finding::not_told(name, "the driver does not report the table of its queues")];
    };
    let mut shares: BTreeMap<u32, u64> = BTreeMap::new();
    hash.table.iter().for_each(|queue| *shares.entry(*queue).or_default() += 1);
    let (used, largest) = (shares.len() as u64, shares.values().max().copied().unwrap_or(0));
    let is_uneven = largest * used > hash.table.len() as u64 * 2;
    let severity = match () {
        () if used == 1 => Severity::Loses,
        () if used < u64::from(queues) || is_uneven => Severity::Note,
        () => Severity::Fine,
    };
    let text = format!("packets go to {used} of {}", counted(queues.into(), "queue"));
    let finding = Finding::on(name, severity, text)
        .with("queues_used", used)
        .with("queues", queues)
        .with("largest_share", largest as f64 / hash.table.len() as f64);
    if severity == Severity::Fine {
        return vec![finding];
    }
    vec![finding.with_remedy(facts.scope.within(&format!("ethtool -X {} equal {queues}", quoted(name))))]
}

fn interrupt_affinity(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let (Some(irqs), Some(cpus)) = (&interface.irqs, &facts.machine.cpus) else {
        return vec![Finding::not_told(name, "the device reports no interrupts")];
    };
    // Interrupts that never came are for configuration, or of unused queues.
    let busy: Vec<_> = irqs.iter().filter(|irq| irq.count > 0 && !irq.cpus.is_empty()).collect();
    if busy.is_empty() {
        return vec![Finding::not_told(name, "no interrupt of the device has come yet")];
    }
    let list: Vec<String> =
        busy.iter().map(|irq| format!("{} -> {}", irq.number, cpu_list(&irq.cpus))).collect();
    let with = |finding: Finding| {
        let finding = finding.with("interrupts", list.clone());
        match facts.machine.has_irqbalance {
            Some(runs) => finding.with("irqbalance_runs", runs),
            None => finding,
        }
    };
    let spread = |targets: &[u32]| {
        let one = |(irq, cpu): (&&crate::Irq, &u32)| {
            facts.scope.write(&cpu.to_string(), &format!("/proc/irq/{}/smp_affinity_list", irq.number))
        };
        busy.iter().zip(targets.iter().cycle()).map(one).collect::<Vec<_>>().join("; ")
    };
    let mut found = Vec::new();
    let first = &busy[0].cpus;
    let is_one = first.len() == 1 && busy.iter().all(|irq| irq.cpus == *first);
    if busy.len() > 1 && interface.receive_queues() != Some(1) && is_one && cpus.len() > 1 {
        let text = format!("all {} interrupts go to processor {}", busy.len(), first[0]);
        found.push(with(Finding::on(name, Severity::Loses, text)).with_remedy(spread(cpus)));
    }
    let node = facts.machine.nodes.as_ref().filter(|nodes| nodes.len() > 1).and_then(|nodes| {
        let near = nodes.iter().find(|node| Some(node.number) == interface.node)?;
        let is_far = busy.iter().any(|irq| irq.cpus.iter().any(|cpu| !near.cpus.contains(cpu)));
        (is_far && !near.cpus.is_empty()).then_some(near)
    });
    if let Some(node) = node {
        let text = format!(
            "interrupts go to processors that are not of the adapter's memory node {} ({})",
            node.number,
            cpu_list(&node.cpus)
        );
        found.push(with(Finding::on(name, Severity::Delays, text)).with_remedy(spread(&node.cpus)));
    }
    if found.is_empty() {
        let moves =
            if facts.machine.has_irqbalance == Some(true) { "; irqbalance may move them" } else { "" };
        let text = format!("interrupts to processors: {}{moves}", list.join(", "));
        found.push(with(Finding::on(name, Severity::Fine, text)));
    }
    found
}

fn packet_steering(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let Some(masks) = &interface.rps_masks else {
        return vec![Finding::not_told(name, "/sys does not show this interface's queues")];
    };
    let is_set = |mask: &&String| mask.chars().any(|c| !matches!(c, '0' | ','));
    let set = masks.iter().filter(is_set).count();
    if set == 0 {
        return vec![Finding::on(name, Severity::Fine, "no software spreads packets over processors")];
    }
    let text = format!("software spreads packets of {} over processors (RPS)", counted(set as u64, "queue"));
    let mut finding = Finding::on(name, Severity::Note, text).with("masks", masks.clone());
    if let Some(backlog) = facts.machine.setting("net/core/netdev_max_backlog") {
        finding = finding.with("netdev_max_backlog", backlog);
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use tapline_sys::{Channels, Coalescing, Duplex, Link, LinkMode, PauseFrames, RingSizes};

    use super::*;
    use crate::{Irq, Machine, NumaNode, Scope};

    fn interface() -> Interface {
        let link = Link { name: "eth0".into(), ..Link::default() };
        let channels = Channels { combined: 4, combined_max: 8, ..Channels::default() };
        Interface { link, channels: Some(channels), ..Interface::default() }
    }

    fn facts(cpus: u32) -> Facts {
        let machine = Machine { cpus: Some((0..cpus).collect()), ..Machine::default() };
        Facts { machine, scope: Scope { netns: None, is_root: true }, ..Facts::default() }
    }

    #[track_caller]
    fn only(found: Vec<Finding>) -> (Severity, Option<String>) {
        let [finding] = found.try_into().expect("one finding");
        (finding.severity, finding.remedy.map(|mend| mend.command))
    }

    #[test]
    fn a_small_ring_loses_unless_there_is_no_larger() {
        let of = |rx, rx_max| {
            let mode = LinkMode { speed: Some(10_000_000_000), duplex: Duplex::Full, is_negotiated: true };
            let rings = Some(RingSizes { rx, rx_max });
            ring_size(&Interface { rings, mode: Some(mode), ..interface() }, &facts(2))
        };
        assert_eq!(only(of(256, 4096)), (Severity::Loses, Some("ethtool -G eth0 rx 4096".into())));
        assert_eq!(only(of(256, 256)), (Severity::Note, None));
        assert_eq!(only(of(2048, 4096)), (Severity::Fine, None));
        assert_eq!(only(ring_size(&interface(), &facts(2))).0, Severity::NotTold);
        let evidence = &of(256, 4096)[0].evidence;
        let time = ("full_after_microseconds_of_smallest_frames".to_owned(), crate::Evidence::Number(17));
        assert!(evidence.contains(&time), "{evidence:?}");
    }

    #[test]
    fn hostile_sizes_do_not_overflow() {
        let rings = Some(RingSizes { rx: u32::MAX, rx_max: u32::MAX });
        let mode = LinkMode { speed: Some(1), duplex: Duplex::Unknown, is_negotiated: false };
        let channels =
            Channels { rx: u32::MAX, rx_max: u32::MAX, combined: u32::MAX, combined_max: u32::MAX };
        let one = Interface { rings, mode: Some(mode), channels: Some(channels), ..interface() };
        for check in CHECKS {
            let Run::Interface(run) = check.run else { panic!("of interfaces") };
            run(&one, &facts(2));
        }
    }

    #[test]
    fn one_queue_for_many_processors_loses() {
        let with = |combined, combined_max, speed| {
            let channels = Channels { combined, combined_max, ..Channels::default() };
            let mode = Some(LinkMode { speed, duplex: Duplex::Full, is_negotiated: true });
            queue_count(&Interface { channels: Some(channels), mode, ..interface() }, &facts(4))
        };
        let of = |combined, combined_max| with(combined, combined_max, None);
        let slow = with(1, 8, Some(1_000_000_000));
        assert_eq!(only(slow), (Severity::Note, Some("ethtool -L eth0 combined 4".into())));
        assert_eq!(only(of(1, 8)), (Severity::Loses, Some("ethtool -L eth0 combined 4".into())));
        assert_eq!(only(of(1, 1)), (Severity::Note, None));
        assert_eq!(only(of(4, 8)), (Severity::Fine, None));
        assert_eq!(only(of(8, 8)), (Severity::Note, None));
    }

    #[test]
    fn keys_with_a_period_of_16_bits_are_symmetric() {
        assert!(is_symmetric(&[0x6d, 0x5a].repeat(20)));
        assert!(!is_symmetric(&(0..40).collect::<Vec<u8>>()) && !is_symmetric(&[]));
        let of = |key: Vec<u8>, transform| {
            let hash = ReceiveHash { key, transform, function: TOEPLITZ, ..ReceiveHash::default() };
            hash_symmetry(&Interface { hash: Some(hash), ..interface() }, &facts(4))
        };
        let (severity, mend) = only(of(vec![1, 2, 3, 4, 5, 6], 0));
        assert_eq!(severity, Severity::Alters);
        assert_eq!(mend.as_deref(), Some("ethtool -X eth0 hkey 6d:5a:6d:5a:6d:5a"));
        assert_eq!(only(of(vec![1, 2, 3, 4], 1)).0, Severity::Fine);
        assert_eq!(only(of(Vec::new(), 0)).0, Severity::NotTold);
    }

    #[test]
    fn symmetry_is_of_the_function_first() {
        let (same, other) = ([0x6d, 0x5a].repeat(3), vec![1, 2, 3, 4, 5, 6]);
        let of = |function, key: &[u8], transform| {
            let hash = ReceiveHash { function, key: key.to_vec(), transform, ..ReceiveHash::default() };
            only(hash_symmetry(&Interface { hash: Some(hash), ..interface() }, &facts(4)))
        };
        let mended = of(TOEPLITZ, &other, 0);
        assert!(mended.0 == Severity::Alters && mended.1.is_some(), "{mended:?}");
        assert_eq!(of(TOEPLITZ, &same, 0), (Severity::Fine, None));
        for key in [&same[..], &other, &[]] {
            assert_eq!(of(XOR, key, 0), (Severity::Fine, None), "{key:?}");
            assert_eq!(of(CRC32, key, 0), (Severity::Alters, None), "{key:?}");
            for unknown in [0, 8] {
                assert_eq!(of(unknown, key, 0), (Severity::NotTold, None), "{key:?}");
            }
            for function in [0, TOEPLITZ, XOR, CRC32] {
                assert_eq!(of(function, key, 2), (Severity::Fine, None), "{function} {key:?}");
            }
        }
    }

    #[test]
    fn a_table_that_names_one_queue_loses() {
        let of = |table: Vec<u32>| {
            let hash = ReceiveHash { table, ..ReceiveHash::default() };
            only(indirection(&Interface { hash: Some(hash), ..interface() }, &facts(4)))
        };
        assert_eq!(of(vec![0; 128]), (Severity::Loses, Some("ethtool -X eth0 equal 4".into())));
        assert_eq!(of((0..128).map(|n| n % 4).collect()), (Severity::Fine, None));
        assert_eq!(of((0..128).map(|n| n % 3).collect()).0, Severity::Note);
    }

    #[test]
    fn interrupts_on_one_processor_or_far_away() {
        let irq = |number, cpu| Irq { number, count: 5, cpus: vec![cpu], device: "x".into() };
        let one = Interface { irqs: Some(vec![irq(30, 0), irq(31, 0)]), ..interface() };
        let (severity, mend) = only(interrupt_affinity(&one, &facts(2)));
        assert_eq!(severity, Severity::Loses);
        let command =
            "echo 0 | tee /proc/irq/30/smp_affinity_list; echo 1 | tee /proc/irq/31/smp_affinity_list";
        assert_eq!(mend.as_deref(), Some(command));
        let mut far = facts(4);
        far.machine.nodes =
            Some(vec![NumaNode { number: 0, cpus: vec![0, 1] }, NumaNode { number: 1, cpus: vec![2, 3] }]);
        let spread = Interface { irqs: Some(vec![irq(30, 0), irq(31, 2)]), node: Some(1), ..interface() };
        assert_eq!(only(interrupt_affinity(&spread, &far)).0, Severity::Delays);
        let near = Interface { node: None, ..spread };
        assert_eq!(only(interrupt_affinity(&near, &far)).0, Severity::Fine);
    }

    #[test]
    fn waiting_packets_are_delayed() {
        let pause = |rx, tx| {
            let pause = Some(PauseFrames { is_negotiated: true, rx, tx });
            only(pause_frames(&Interface { pause, ..interface() }, &facts(2)))
        };
        assert_eq!(pause(true, true).1.as_deref(), Some("ethtool -A eth0 autoneg off rx off tx off"));
        assert_eq!(pause(true, false), (Severity::Fine, None));
        let moderation = |rx_usecs, is_adaptive| {
            let coalescing = Some(Coalescing { rx_usecs, is_adaptive });
            only(interrupt_moderation(&Interface { coalescing, ..interface() }, &facts(2))).0
        };
        assert_eq!(moderation(3, true), Severity::Delays);
        assert_eq!(moderation(125, false), Severity::Delays);
        assert_eq!(moderation(3, false), Severity::Fine);
    }

    #[test]
    fn steering_is_in_any_bit_of_any_mask() {
        let of = |masks: &[&str]| {
            let rps_masks = Some(masks.iter().map(|mask| (*mask).to_owned()).collect());
            only(packet_steering(&Interface { rps_masks, ..interface() }, &facts(2))).0
        };
        assert_eq!(of(&["00000000,00000000", "0"]), Severity::Fine);
        assert_eq!(of(&["00000000,00000000", "00000001,00000000"]), Severity::Note);
    }
}
