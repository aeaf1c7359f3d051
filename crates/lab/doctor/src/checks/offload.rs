//! Alterations of packets by adapter and kernel, before a tap sees them or after.
//!
//! ```text
//! wire --> adapter: LRO, rx-gro-hw, VLAN tag taken out --> GRO --> tap          received: merged
//! wire <-- adapter: TSO, checksum, VLAN tag put in <---- GSO <---- tap <-- IP   sent: not yet cut, not yet summed
//! ```

use super::{Check, Run};
use crate::scope::quoted;
use crate::{Change, Facts, Finding, Interface, Severity};
use tapline_sys::Offload;

pub(super) const CHECKS: [Check; 5] = [
    Check {
        name: "receive_merging",
        subject: "offloads that merge received packets",
        why: "Packets of a connection are merged before the tap: there are fewer and larger packets than on the wire, and their own time stamps are lost.",
        source: "Documentation/networking/segmentation-offloads.rst; packet_mmap: taps are behind GRO",
        run: Run::Interface(receive_merging),
    },
    Check {
        name: "send_segmentation",
        subject: "offloads that segment sent packets",
        why: "Packets that this host sends are captured before they are cut into frames: up to 64 KiB in one packet, or more with BIG TCP.",
        source: "Documentation/networking/segmentation-offloads.rst",
        run: Run::Interface(send_segmentation),
    },
    Check {
        name: "peer_segmentation",
        subject: "whether the other end of a veth segments its packets",
        why: "Between the ends of a veth nothing cuts packets: what a container sends with TSO arrives with up to 64 KiB.",
        source: "drivers/net/veth.c; Documentation/networking/segmentation-offloads.rst",
        run: Run::Interface(peer_segmentation),
    },
    Check {
        name: "send_checksums",
        subject: "checksums that are left to the adapter",
        why: "Sent packets are captured without their checksum; between the ends of a veth they never get one, and programs that verify it report an error.",
        source: "Documentation/networking/checksum-offloads.rst; if_packet.h TP_STATUS_CSUMNOTREADY",
        run: Run::Interface(send_checksums),
    },
    Check {
        name: "vlan_stripping",
        subject: "whether the adapter removes VLAN tags",
        why: "The outer tag is not in the packet but in its metadata: this program keeps it, others and AF_XDP may not.",
        source: "if_packet.h tp_vlan_tci; Documentation/networking/xdp-rx-metadata.rst",
        run: Run::Interface(vlan_stripping),
    },
];

/// An offload's name in the kernel, with `*` for any text, and the word of ethtool -K that switches it.
type Names = [(&'static str, &'static str)];

const MERGING: [(&str, &str); 5] = [
    ("rx-gro", "gro"),
    ("rx-lro", "lro"),
    ("rx-gro-hw", "rx-gro-hw"),
    ("rx-gro-list", "rx-gro-list"),
    ("rx-udp-gro-forwarding", "rx-udp-gro-forwarding"),
];

/// Kernels have several kinds of TCP segmentation; ethtool's "tso" switches all of them. Segmentation for tunnels
/// matters only if the machine sends through one.
const SEGMENTATION: [(&str, &str); 4] = [
    ("tx-tcp*-segmentation", "tso"),
    ("tx-udp-segmentation", "tx-udp-segmentation"),
    ("tx-sctp-segmentation", "tx-sctp-segmentation"),
    ("tx-generic-segmentation", "gso"),
];

const CHECKSUMS: [(&str, &str); 4] = [
    ("tx-checksum-ipv4", "tx"),
    ("tx-checksum-ip-generic", "tx"),
    ("tx-checksum-ipv6", "tx"),
    ("tx-checksum-sctp", "tx"),
];

const VLAN: [(&str, &str); 1] = [("rx-vlan-hw-parse", "rxvlan")];

fn receive_merging(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let say = |on: &[&str]| (Severity::Alters, format!("received packets are merged: {}", on.join(", ")));
    switched_on(interface, facts, &MERGING, "does not merge received packets", say)
}

fn send_segmentation(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let say = |on: &[&str]| {
        (Severity::Alters, format!("sent packets are seen before they are cut: {}", on.join(", ")))
    };
    switched_on(interface, facts, &SEGMENTATION, "sends packets as they are seen", say)
}

/// Findings about the other end of a veth: packets that one end sends unsegmented arrive so at the other. If both ends
/// are checked, each has its own finding.
fn peer_segmentation(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let name = interface.name();
    if interface.link.kind != "veth" {
        return Vec::new();
    }
    let Some((peer, features)) = &interface.peer else {
        let text =
            "the other end is in another network namespace, which may send packets uncut: look there too";
        return vec![Finding::not_told(name, text)];
    };
    if facts.interfaces.iter().any(|other| other.name() == peer) {
        return Vec::new();
    }
    let on = those_on(features, &SEGMENTATION);
    if on.is_empty() {
        return vec![Finding::on(name, Severity::Fine, "its other end sends packets cut")];
    }
    let text = format!("packets come from its other end {peer} uncut: {}", words(&on).join(", "));
    let finding = Finding::on(name, Severity::Alters, text).with("peer", peer.as_str());
    vec![mended(evident(finding, &on), peer, &on, facts)]
}

fn send_checksums(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    // On a real link the adapter fills them in; on a veth they are never filled in.
    let is_veth = interface.link.kind == "veth";
    let say = |on: &[&str]| match is_veth {
        true => (Severity::Alters, format!("packets pass without a checksum: {}", on.join(", "))),
        false => (Severity::Fine, format!("sent packets are seen without a checksum: {}", on.join(", "))),
    };
    switched_on(interface, facts, &CHECKSUMS, "sends packets with their checksum", say)
}

fn vlan_stripping(interface: &Interface, facts: &Facts) -> Vec<Finding> {
    let say = |on: &[&str]| {
        (
            Severity::Note,
            format!("VLAN tags are removed from packets and kept in their metadata: {}", on.join(", ")),
        )
    };
    switched_on(interface, facts, &VLAN, "leaves VLAN tags in packets", say)
}

/// Names the offloads that are on at the interface, and how to switch them off.
fn switched_on(
    interface: &Interface,
    facts: &Facts,
    names: &Names,
    fine: &str,
    say: impl Fn(&[&str]) -> (Severity, String),
) -> Vec<Finding> {
    let name = interface.name();
    let Some(features) = &interface.features else {
        return vec![Finding::not_told(name, "the driver does not report its offloads")];
    };
    let on = those_on(features, names);
    if on.is_empty() {
        return vec![Finding::on(name, Severity::Fine, fine)];
    }
    let (severity, text) = say(&words(&on));
    // Loopback has no wire: what passes there is as it was sent.
    let is_loopback = interface.link.is_loopback();
    let severity = if is_loopback { severity.max(Severity::Note) } else { severity };
    let finding = Finding::on(name, severity, text).with("host_has_addresses", interface.has_addresses);
    vec![if is_loopback { evident(finding, &on) } else { mended(evident(finding, &on), name, &on, facts) }]
}

/// The features that are on, by their ethtool names.
fn those_on<'a>(features: &'a [Offload], names: &'a Names) -> Vec<(&'a Offload, &'static str)> {
    let of = |&(pattern, word): &(&'static str, &'static str)| {
        let named = features.iter().filter(move |feature| matches(pattern, &feature.name));
        named.filter(|feature| feature.is_on).map(move |feature| (feature, word))
    };
    names.iter().flat_map(of).collect()
}

/// The words of ethtool, each once.
fn words(on: &[(&Offload, &'static str)]) -> Vec<&'static str> {
    let mut words: Vec<&str> = on.iter().map(|(_, word)| *word).collect();
    words.dedup();
    words
}

/// Adds the offloads that are on, by their names in the kernel, and those that cannot be switched.
fn evident(finding: Finding, on: &[(&Offload, &str)]) -> Finding {
    let fixed: Vec<&str> = on
        .iter()
        .filter(|(feature, _)| !feature.is_changeable)
        .map(|(feature, _)| feature.name.as_str())
        .collect();
    let text = match fixed.is_empty() {
        true => finding.text,
        false => format!("{} ({} cannot be switched)", finding.text, fixed.join(", ")),
    };
    let list: Vec<String> = on.iter().map(|(feature, _)| feature.name.clone()).collect();
    Finding { text, ..finding }.with("on", list)
}

/// Adds the command that switches off the offloads that can be switched at `owner`.
fn mended(finding: Finding, owner: &str, on: &[(&Offload, &'static str)], facts: &Facts) -> Finding {
    let can: Vec<_> = on.iter().filter(|(feature, _)| feature.is_changeable).copied().collect();
    if can.is_empty() || finding.severity >= Severity::Fine {
        return finding;
    }
    let switches: Vec<String> = words(&can).iter().map(|word| format!("{word} off")).collect();
    let command = facts.scope.within(&format!("ethtool -K {} {}", quoted(owner), switches.join(" ")));
    // A note is nothing to be mended unasked.
    if finding.severity == Severity::Note {
        return finding.with_remedy(command);
    }
    let features = can.iter().map(|(feature, _)| (feature.name.clone(), false)).collect();
    finding.fix(command, vec![Change::Features { interface: owner.to_owned(), features }])
}

/// The word by which ethtool -K switches an offload with others of its kind; the name in the kernel if there is none.
pub(crate) fn ethtool_word(name: &str) -> &str {
    let mut all = MERGING.iter().chain(&SEGMENTATION).chain(&CHECKSUMS).chain(&VLAN);
    all.find(|(pattern, _)| matches(pattern, name)).map_or(name, |(_, word)| word)
}

/// Whether a name is of a pattern that may have one `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
    }
}

#[cfg(test)]
mod tests {
    use tapline_sys::Link;

    use super::*;

    fn interface(kind: &str, features: &[(&str, bool, bool)]) -> Interface {
        let feature = |&(name, is_on, is_changeable): &(&str, bool, bool)| Offload {
            name: name.into(),
            is_on,
            is_changeable,
        };
        Interface {
            link: Link { name: "eth0".into(), kind: kind.into(), ..Link::default() },
            features: Some(features.iter().map(feature).collect()),
            ..Interface::default()
        }
    }

    #[test]
    fn merging_is_mended_as_far_as_it_can_be_switched() {
        let facts = Facts { scope: crate::Scope { netns: None, is_root: true }, ..Facts::default() };
        let one =
            interface("", &[("rx-gro", true, true), ("rx-lro", false, true), ("rx-gro-hw", true, false)]);
        let [finding] = receive_merging(&one, &facts).try_into().unwrap();
        assert_eq!(finding.severity, Severity::Alters);
        assert_eq!(
            finding.text,
            "received packets are merged: gro, rx-gro-hw (rx-gro-hw cannot be switched)"
        );
        let mend = finding.remedy.unwrap();
        assert_eq!(mend.command, "ethtool -K eth0 gro off");
        let features = vec![("rx-gro".to_owned(), false)];
        assert_eq!(mend.changes, [Change::Features { interface: "eth0".into(), features }]);
    }

    #[test]
    fn one_word_switches_all_of_tso() {
        let one = interface(
            "veth",
            &[
                ("tx-tcp-segmentation", true, true),
                ("tx-tcp6-segmentation", true, true),
                ("tx-tcp-accecn-segmentation", true, true),
                ("tx-generic-segmentation", true, true),
            ],
        );
        let [finding] = send_segmentation(&one, &Facts::default()).try_into().unwrap();
        let mend = finding.remedy.unwrap();
        assert_eq!(mend.command, "sudo ethtool -K eth0 tso off gso off");
        let [Change::Features { features, .. }] = mend.changes.as_slice() else { panic!("one change") };
        assert_eq!(features.len(), 4);
    }

    #[test]
    fn the_other_end_of_a_veth_is_mended_too() {
        let far = interface("veth", &[("tx-tcp-segmentation", true, true)]);
        let near = interface("veth", &[]);
        let near = Interface { peer: Some(("far0".into(), far.features.clone().unwrap())), ..near };
        let [finding] = peer_segmentation(&near, &Facts::default()).try_into().unwrap();
        assert_eq!(finding.severity, Severity::Alters);
        assert_eq!(finding.remedy.unwrap().command, "sudo ethtool -K far0 tso off");
        let link = Link { name: "far0".into(), ..Link::default() };
        let both = Facts { interfaces: vec![Interface { link, ..far }], ..Facts::default() };
        assert_eq!(peer_segmentation(&near, &both), [], "it says so of itself");
        let elsewhere = peer_segmentation(&Interface { peer: None, ..near }, &Facts::default());
        assert_eq!(elsewhere[0].severity, Severity::NotTold);
        assert_eq!(peer_segmentation(&interface("", &[]), &Facts::default()), []);
    }

    #[test]
    fn checksums_matter_without_offload() {
        let features = [("tx-checksum-ip-generic", true, true)];
        let severity = |kind| send_checksums(&interface(kind, &features), &Facts::default())[0].severity;
        assert_eq!((severity("veth"), severity("")), (Severity::Alters, Severity::Fine));
    }

    #[test]
    fn a_driver_that_says_nothing_is_not_guessed_at() {
        let found = receive_merging(&Interface::default(), &Facts::default());
        assert_eq!(found[0].severity, Severity::NotTold);
        let off = receive_merging(&interface("", &[]), &Facts::default());
        assert_eq!(off[0].severity, Severity::Fine);
    }
}
