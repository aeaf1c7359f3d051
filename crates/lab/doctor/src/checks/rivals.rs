//! Other programs that take packets, and the driver's means for fast ones.

use super::{Check, Run};
use crate::{Facts, Finding, Interface, Severity};
use tapline_sys::XdpFeatures;

pub(super) const CHECKS: [Check; 3] = [
    Check {
        name: "sniffers",
        subject: "other programs that capture here",
        why: "Each costs the receiving processor a run of its filter and a copy for each packet that it takes.",
        source: "/proc/net/packet, linux/packet_diag.h; net/core/dev.c, one delivery for each tap",
        run: Run::Interface(packet_sockets),
    },
    Check {
        name: "xdp_program",
        subject: "whether an XDP program sees packets first",
        why: "Packets that it drops, redirects or sends back never reach a tap.",
        source: "Documentation/networking/af_xdp.rst; IFLA_XDP of rtnetlink(7)",
        run: Run::Interface(xdp_program),
    },
    Check {
        name: "driver",
        subject: "the driver, its XDP and AF_XDP, its clock",
        why: "Without zero copy AF_XDP is not faster than AF_PACKET; without a clock in the adapter, times are those of the interrupt.",
        source: "Documentation/netlink/specs/netdev.yaml; Documentation/networking/timestamping.rst",
        run: Run::Interface(driver),
    },
];

fn packet_sockets(interface: &Interface, _: &Facts) -> Vec<Finding> {
    let name = interface.name();
    // The sockets of a program with workers are one line.
    let mut lines: Vec<(String, usize)> = Vec::new();
    for sniffer in &interface.packet_sockets {
        let line = described(sniffer);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => lines.push((line, 1)),
        }
    }
    if lines.is_empty() {
        return vec![Finding::on(name, Severity::Fine, "no other program captures here")];
    }
    let found = |(line, count): (String, usize)| {
        let sockets = if count > 1 { format!(" by {count} sockets") } else { String::new() };
        Finding::on(name, Severity::Note, format!("{line} captures here{sockets}")).with("sockets", count)
    };
    let with_holders = |finding: Finding| {
        let holders = interface.packet_sockets.iter().flat_map(|sniffer| &sniffer.holders);
        let mut pids: Vec<String> = holders.map(|holder| format!("{} {}", holder.pid, holder.name)).collect();
        pids.dedup();
        finding.with("processes", pids)
    };
    lines.into_iter().map(found).map(with_holders).collect()
}

fn described(sniffer: &crate::PacketSocket) -> String {
    let owner = match sniffer.holders.first() {
        Some(holder) => format!("{} (pid {})", holder.name, holder.pid),
        None => format!("a process of uid {} (root may see which)", sniffer.uid),
    };
    let everywhere = (sniffer.if_index == 0).then(|| "on all interfaces".to_owned());
    let ring = sniffer.ring_len.map(|len| format!("ring {} KiB", len / 1024));
    let fanout = sniffer.fanout.map(|(group, mode)| format!("fanout group {group} {}", fanout_mode(mode)));
    let details: Vec<String> = [everywhere, ring, fanout].into_iter().flatten().collect();
    if details.is_empty() { owner } else { format!("{owner}, {},", details.join(", ")) }
}

/// `PACKET_FANOUT_*` of linux/if_packet.h.
fn fanout_mode(mode: u8) -> String {
    const NAMES: [&str; 8] =
        ["hash", "round robin", "processor", "rollover", "random", "queue", "program", "extended program"];
    NAMES.get(usize::from(mode)).map_or_else(|| format!("mode {mode}"), |name| (*name).to_owned())
}

fn xdp_program(interface: &Interface, _: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let Some(program) = interface.link.xdp else {
        return vec![Finding::on(name, Severity::Fine, "no XDP program")];
    };
    let place = match program.mode {
        1 => "in the driver",
        2 => "generic",
        3 => "in the adapter",
        _ => "in several places",
    };
    let text = format!(
        "an XDP program sees packets first ({place}, id {}): taps do not see packets that it takes; bpftool prog show id {}",
        program.id, program.id
    );
    vec![Finding::on(name, Severity::Alters, text).with("program", program.id).with("mode", place)]
}

fn driver(interface: &Interface, _: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let described = interface.driver.as_ref().filter(|driver| !driver.driver.is_empty());
    let driver = described.map_or("driver unknown".to_owned(), |driver| {
        format!("{} {}", driver.driver, driver.version).trim_end().to_owned()
    });
    let stamps = interface.timestamping;
    let stamping = match stamps {
        None => "time stamps unknown".to_owned(),
        Some(stamps) if stamps.can_stamp_all() && stamps.clock >= 0 => {
            format!("stamps packets itself (/dev/ptp{})", stamps.clock)
        }
        Some(stamps) if stamps.can_stamp_all() => "stamps packets itself".to_owned(),
        Some(_) => "no clock for packets".to_owned(),
    };
    let severity =
        if described.is_none() && interface.xdp.is_none() { Severity::NotTold } else { Severity::Note };
    let text = format!("{driver}: {}, {stamping}", xdp_words(interface.xdp));
    let mut finding = Finding::on(name, severity, text);
    if let Some(driver) = described {
        finding = finding
            .with("driver", driver.driver.as_str())
            .with("version", driver.version.as_str())
            .with("firmware", driver.firmware.as_str())
            .with("bus", driver.bus.as_str());
    }
    if let Some(xdp) = interface.xdp {
        finding = finding
            .with("xdp_actions", xdp.actions)
            .with("xdp_in_driver", xdp.has_driver_mode())
            .with("af_xdp_zero_copy", xdp.has_zero_copy())
            .with("xdp_metadata", xdp.metadata);
    }
    if let Some(stamps) = stamps {
        finding = finding.with("stamps_all_packets", stamps.can_stamp_all());
        if let Ok(clock) = u32::try_from(stamps.clock) {
            finding = finding.with("ptp_clock", clock);
        }
    }
    vec![finding]
}

fn xdp_words(xdp: Option<XdpFeatures>) -> &'static str {
    match xdp {
        None => "XDP unknown (kernel 6.3 or newer reports it)",
        Some(xdp) if xdp.has_zero_copy() => "XDP in the driver, AF_XDP without copies",
        Some(xdp) if xdp.has_driver_mode() => "XDP in the driver, AF_XDP copies",
        Some(_) => "no XDP in the driver",
    }
}

#[cfg(test)]
mod tests {
    use tapline_sys::proc_packet::SocketHolder;
    use tapline_sys::{Link, XdpProgram};

    use super::*;
    use crate::PacketSocket;

    #[test]
    fn sockets_of_one_program_are_one_line() {
        let holder = SocketHolder { pid: 7, name: "suricata".into() };
        let worker = PacketSocket {
            if_index: 2,
            holders: vec![holder],
            ring_len: Some(2 << 20),
            fanout: Some((99, 0)),
            ..PacketSocket::default()
        };
        let hidden = PacketSocket { uid: 5, ..PacketSocket::default() };
        let one = Interface { packet_sockets: vec![worker.clone(), worker, hidden], ..Interface::default() };
        let texts: Vec<String> =
            packet_sockets(&one, &Facts::default()).into_iter().map(|f| f.text).collect();
        let expected = [
            "suricata (pid 7), ring 2048 KiB, fanout group 99 hash, captures here by 2 sockets",
            "a process of uid 5 (root may see which), on all interfaces, captures here",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_program_in_front_alters() {
        let link = Link { xdp: Some(XdpProgram { id: 12, mode: 2 }), ..Link::default() };
        let found = xdp_program(&Interface { link, ..Interface::default() }, &Facts::default());
        assert_eq!(found[0].severity, Severity::Alters);
        assert!(found[0].text.contains("(generic, id 12)"), "{}", found[0].text);
    }

    #[test]
    fn driver_capabilities_are_listed() {
        let xdp = Some(XdpFeatures { actions: 0xb, ..XdpFeatures::default() });
        let text = &driver(&Interface { xdp, ..Interface::default() }, &Facts::default())[0].text;
        assert_eq!(text, "driver unknown: XDP in the driver, AF_XDP without copies, time stamps unknown");
    }
}
