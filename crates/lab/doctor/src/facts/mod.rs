//! Facts of the machine and its interfaces, read once. All other modules work on these.
//!
//! | file | contents |
//! |---|---|
//! | `machine` | processors, clock, memory, limits, rights, disk: of the whole machine |
//! | `processors` | texts of /proc and /sys about processors and interrupts |
//! | `drops` | packets that the kernel dropped while it was watched, by reason |
//! | `interface` | one interface: driver, rings, queues, offloads, counters, packet sockets |

mod drops;
mod interface;
mod machine;
mod processors;

use std::collections::BTreeSet;

use tapline_sys::{Link, LinkControl, NetNs, NetdevSocket, RouteSocket, privilege};

use crate::{Error, Scope};

pub use drops::{DropWatch, Drops};
pub use interface::{Counter, Interface, Irq, PacketSocket};
pub use machine::{IdleState, Machine, Memory};
pub(crate) use machine::{governor_path, idle_path};
pub(crate) use processors::cpu_list;
pub use processors::{CpuTicks, Interrupt, NumaNode, SoftnetCpu};

/// Interfaces to examine.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Interfaces by name; empty for all that are up but loopback.
    pub interfaces: Vec<String>,
    /// The network namespace that they are in, as for captures; `None` for our own.
    pub netns: Option<String>,
}

/// All that was read.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The machine.
    pub machine: Machine,
    /// The interfaces, by number.
    pub interfaces: Vec<Interface>,
    /// Namespace and user of the printed commands.
    pub scope: Scope,
    /// Seconds between two readings of the counters, where there were two.
    pub interval_s: Option<f64>,
    /// Packets that the kernel dropped meanwhile, by reason; `None` without a watch.
    pub drops: Option<Drops>,
}

impl Facts {
    /// Reads everything.
    ///
    /// # Errors
    /// If an interface or the namespace does not exist, or the kernel lists no interfaces. Other unknown facts are
    /// `None`.
    pub fn gather(request: &Request) -> Result<Facts, Error> {
        let machine = Machine::read();
        let interfaces = match &request.netns {
            None => interfaces(request, true),
            Some(name) => {
                let namespace = NetNs::open(name)
                    .map_err(|source| Error::NoSuchNamespace { name: name.clone(), source })?;
                // /sys shows the namespace in which it was mounted, which is ours and not that one.
                let is_ours = namespace.inode().ok() == NetNs::inode_here().ok();
                let inside = namespace.run(|| interfaces(request, is_ours));
                inside.map_err(|source| Error::Namespace { name: name.clone(), source })?
            }
        }?;
        let scope = Scope { netns: request.netns.clone(), is_root: privilege::is_root() };
        Ok(Facts { machine, interfaces, scope, interval_s: None, drops: None })
    }

    /// Notes the growth of counters since an earlier reading, `seconds` ago.
    pub fn watched(&mut self, earlier: &Facts, seconds: f64) {
        self.interval_s = Some(seconds);
        self.machine.watched(&earlier.machine);
        for interface in &mut self.interfaces {
            let before = earlier.interfaces.iter().find(|before| before.link.index == interface.link.index);
            if let Some(before) = before {
                interface.watched(before);
            }
        }
    }
}

fn interfaces(request: &Request, has_sysfs: bool) -> Result<Vec<Interface>, Error> {
    let mut route = RouteSocket::open().map_err(Error::Interfaces)?;
    let mut links = route.links().map_err(Error::Interfaces)?;
    links.sort_by_key(|link| link.index);
    let wanted = wanted(request, &links)?;
    let addressed: BTreeSet<u32> =
        route.addresses().unwrap_or_default().iter().map(|address| address.if_index).collect();
    let mut reader = interface::Reader {
        control: LinkControl::open().map_err(Error::Interfaces)?,
        netdev: NetdevSocket::open().ok(),
        packet_sockets: interface::packet_sockets(),
        interrupts: processors::interrupts(),
        has_sysfs,
    };
    let read = |link: &Link| {
        let mut interface = reader.read(link);
        interface.has_addresses = addressed.contains(&link.index);
        interface.controller = links.iter().find(|other| Some(other.index) == link.controller).cloned();
        let peer = links.iter().find(|other| link.kind == "veth" && Some(other.index) == link.peer);
        interface.peer =
            peer.and_then(|peer| Some((peer.name.clone(), reader.control.features(&peer.name).ok()?)));
        interface.upper_devices = links.iter().filter(|other| stands_on(other, link)).cloned().collect();
        interface
    };
    Ok(wanted.into_iter().map(read).collect())
}

fn wanted<'a>(request: &Request, links: &'a [Link]) -> Result<Vec<&'a Link>, Error> {
    if request.interfaces.is_empty() {
        return Ok(links.iter().filter(|link| link.is_up() && !link.is_loopback()).collect());
    }
    let find = |wanted: &String| {
        let missing = || Error::NoSuchInterface {
            wanted: wanted.clone(),
            present: links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(", "),
        };
        links.iter().find(|link| link.name == *wanted).ok_or_else(missing)
    };
    request.interfaces.iter().map(find).collect()
}

/// VLAN devices and the like name the interface below them; the two ends of a veth name each other.
fn stands_on(other: &Link, link: &Link) -> bool {
    let is_port = other.index != link.index && link.index != 0 && other.controller == Some(link.index);
    let is_above = other.peer == Some(link.index) && !other.kind.is_empty() && other.kind != "veth";
    is_port || is_above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_read_when_named_and_only_then() {
        let named = Request { interfaces: vec!["lo".into()], netns: None };
        let facts = Facts::gather(&named).expect("there is lo");
        let [lo] = facts.interfaces.as_slice() else { panic!("one") };
        assert!(lo.link.is_loopback() && lo.rings.is_none());
        assert!(lo.features.as_ref().is_some_and(|features| !features.is_empty()));
        let all = Facts::gather(&Request::default()).expect("a list, perhaps empty");
        assert!(all.interfaces.iter().all(|interface| !interface.link.is_loopback()));
    }

    #[test]
    fn an_unknown_workload_lists_the_known_ones() {
        let request = Request { interfaces: vec!["no-such-if".into()], netns: None };
        let text = Facts::gather(&request).unwrap_err().to_string();
        assert!(text.contains("\"no-such-if\"; there are: ") && text.contains("lo"), "{text}");
        let request = Request { interfaces: Vec::new(), netns: Some("no-such-namespace".into()) };
        assert!(matches!(Facts::gather(&request), Err(Error::NoSuchNamespace { .. })));
    }

    #[test]
    fn the_ends_of_a_veth_do_not_stand_on_each_other() {
        let link = |index, kind: &str, peer| Link { index, kind: kind.into(), peer, ..Link::default() };
        let (near, far, vlan) =
            (link(2, "veth", Some(3)), link(3, "veth", Some(2)), link(4, "vlan", Some(2)));
        assert!(!stands_on(&far, &near) && stands_on(&vlan, &near) && !stands_on(&vlan, &far));
        let port = Link { controller: Some(9), ..link(5, "", None) };
        assert!(stands_on(&port, &link(9, "bridge", None)));
    }
}
