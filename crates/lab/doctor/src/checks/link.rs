//! The link, and the interfaces on top of it.

use super::{Check, Run};
use crate::scope::quoted;
use crate::{Facts, Finding, Interface, Severity};
use tapline_sys::Duplex;

pub(super) const CHECKS: [Check; 5] = [
    Check {
        name: "link",
        subject: "whether the interface is up and has carrier",
        why: "An interface that is down, or without carrier, receives nothing.",
        source: "netdevice(7): IFF_UP, IFF_RUNNING",
        run: Run::Interface(link),
    },
    Check {
        name: "speed",
        subject: "speed, duplex and negotiation",
        why: "A half-duplex link has collisions and loses frames; most often one end negotiates and the other does not.",
        source: "IEEE 802.3 clause 28; ethtool(8)",
        run: Run::Interface(speed),
    },
    Check {
        name: "mtu",
        subject: "the largest packet of a monitor port",
        why: "Many adapters drop received frames that are larger than the MTU, and count them as errors at most.",
        source: "rx_length_errors in Documentation/networking/statistics.rst",
        run: Run::Interface(mtu),
    },
    Check {
        name: "promiscuous",
        subject: "promiscuous mode of the interface",
        why: "A monitor port needs it; elsewhere the host spends time on packets that are not for it.",
        source: "IFLA_PROMISCUITY of rtnetlink(7)",
        run: Run::Interface(promiscuous),
    },
    Check {
        name: "layers",
        subject: "bridges, bonds, VLAN devices on the interface",
        why: "The same packet passes each of them: a capture on all interfaces sees it several times.",
        source: "libpcap issue 540 and others on doubled packets",
        run: Run::Interface(layers),
    },
];

const ETHERNET_MTU: u32 = 1500;

fn link(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    if !interface.link.is_up() {
        let command = facts.scope.within(&format!("ip link set dev {} up", quoted(name)));
        return vec![
            Finding::on(name, Severity::Loses, "the interface is down")
                .with("up", false)
                .with_remedy(command),
        ];
    }
    if !interface.link.is_running() {
        let text = "no carrier: the cable, or the other end";
        return vec![Finding::on(name, Severity::Loses, text).with("carrier", false)];
    }
    vec![Finding::on(name, Severity::Fine, "up, with carrier").with("carrier", true)]
}

fn speed(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let Some(mode) = interface.mode else {
        return vec![Finding::not_told(name, "the driver reports no speed")];
    };
    let speed = mode.speed.map_or("unknown speed".to_owned(), |bits| format!("{} Mbit/s", bits / 1_000_000));
    let (severity, duplex) = match mode.duplex {
        Duplex::Half => (Severity::Loses, "half duplex"),
        Duplex::Full => (Severity::Fine, "full duplex"),
        Duplex::Unknown => (Severity::NotTold, "duplex unknown"),
    };
    let mut finding = Finding::on(name, severity, format!("{speed}, {duplex}"))
        .with("duplex", duplex)
        .with("negotiated", mode.is_negotiated);
    if let Some(bits) = mode.speed {
        finding = finding.with("bits_per_second", bits);
    }
    if severity != Severity::Loses {
        return vec![finding];
    }
    vec![finding.with_remedy(facts.scope.within(&format!("ethtool -s {} autoneg on", quoted(name))))]
}

fn mtu(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let (name, mtu) = (interface.name(), interface.link.mtu);
    // The rule is one of adapters; on a port with addresses the MTU is the network's.
    let is_monitor =
        interface.link.kind.is_empty() && !interface.has_addresses && !interface.link.is_loopback();
    if !is_monitor || mtu > ETHERNET_MTU || mtu == 0 {
        return vec![Finding::on(name, Severity::Fine, format!("MTU {mtu}")).with("mtu", mtu)];
    }
    let text =
        format!("MTU {mtu} on a port without addresses: larger frames may be dropped before they are seen");
    let command = facts.scope.within(&format!("ip link set dev {} mtu 9000", quoted(name)));
    vec![Finding::on(name, Severity::Note, text).with("mtu", mtu).with_remedy(command)]
}

fn promiscuous(interface: &Interface, _: &Facts) -> Vec<Finding> {
    let (name, askers) = (interface.name(), interface.link.promiscuity);
    let finding = match askers {
        0 => Finding::on(name, Severity::Fine, "off; captures switch it on themselves"),
        _ => Finding::on(name, Severity::Note, format!("is promiscuous (asked for {askers} times)")),
    };
    vec![finding.with("promiscuity", askers)]
}

fn layers(interface: &Interface, _: &Facts) -> Vec<Finding> {
    let name = interface.name();
    let kind = |link: &tapline_sys::Link| match link.kind.as_str() {
        "" => link.name.clone(),
        kind => format!("{} ({kind})", link.name),
    };
    let under =
        interface.controller.as_ref().map(|controller| format!("it is a port of {}", kind(controller)));
    let list: Vec<String> = interface.upper_devices.iter().map(kind).collect();
    let above = (!list.is_empty()).then(|| format!("{} on it", list.join(", ")));
    let words: Vec<String> = under.into_iter().chain(above).collect();
    if words.is_empty() {
        return vec![Finding::on(name, Severity::Fine, "nothing is stacked on it")];
    }
    let text = format!("{}: captures on all interfaces see such packets more than once", words.join(", "));
    let mut finding = Finding::on(name, Severity::Note, text).with("others", list);
    if let Some(controller) = &interface.controller {
        finding = finding.with("port_of", controller.name.as_str());
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use tapline_sys::{Link, LinkMode};

    use super::*;

    fn interface(flags: u32) -> Interface {
        let link = Link { name: "eth0".into(), flags, mtu: 1500, ..Link::default() };
        Interface { link, ..Interface::default() }
    }

    #[test]
    fn down_and_without_carrier_lose() {
        let severity = |flags| link(&interface(flags), &Facts::default())[0].severity;
        // IFF_UP, IFF_RUNNING
        assert_eq!(
            (severity(0), severity(1), severity(0x41)),
            (Severity::Loses, Severity::Loses, Severity::Fine)
        );
    }

    #[test]
    fn half_duplex_loses_and_unknown_is_not_told() {
        let of = |duplex| {
            let mode = Some(LinkMode { speed: None, duplex, is_negotiated: false });
            speed(&Interface { mode, ..interface(1) }, &Facts::default())[0].severity
        };
        assert_eq!((of(Duplex::Half), of(Duplex::Full)), (Severity::Loses, Severity::Fine));
        assert_eq!(of(Duplex::Unknown), Severity::NotTold);
    }

    #[test]
    fn the_mtu_of_a_monitor_port_is_noted() {
        let one = interface(1);
        assert_eq!(mtu(&one, &Facts::default())[0].severity, Severity::Note);
        let host = Interface { has_addresses: true, ..one };
        assert_eq!(mtu(&host, &Facts::default())[0].severity, Severity::Fine);
    }

    #[test]
    fn layers_are_named() {
        let vlan = Link { name: "eth0.5".into(), kind: "vlan".into(), ..Link::default() };
        let bridge = Link { name: "br0".into(), kind: "bridge".into(), ..Link::default() };
        let one = Interface { controller: Some(bridge), upper_devices: vec![vlan], ..interface(1) };
        let text = &layers(&one, &Facts::default())[0].text;
        assert!(text.starts_with("it is a port of br0 (bridge), eth0.5 (vlan) on it: "), "{text}");
    }
}
