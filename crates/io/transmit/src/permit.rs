//! The one place that decides on which interfaces Tapline may send.
//!
//! ```text
//! loopback                                        yes: nothing leaves the host
//! veth (IFLA_INFO_KIND, not the name)             yes: it was made on this host
//! named with --i-own-this-network                 yes: the user answers for it
//! anything else                                   no
//! ```
//!
//! A [`Transmitter`](crate::Transmitter) is opened with a [`SendPermit`], and only [`SendPolicy::permit`] makes one. Back
//! ends bind by number: once bound, and before the first frame, they [confirm](SendPermit::confirm) that the number is
//! still the permitted interface's.

use std::sync::Arc;

use tapline_packet::LinkType;
use tapline_sys::{Link, NetNs, RouteSocket, SyscallError};

use crate::TransmitError;

/// `ARPHRD_LOOPBACK` of linux/if_arp.h.
const HARDWARE_LOOPBACK: u16 = 772;

/// The interfaces of a network namespace as they are now, and which of them the user answers for.
#[derive(Clone, Debug)]
pub struct SendPolicy {
    links: Vec<Link>,
    namespace: Option<Arc<NetNs>>,
    owned: Vec<String>,
}

/// Proof that packets may be sent on an interface.
#[derive(Clone, Debug)]
pub struct SendPermit {
    link: Link,
    namespace: Option<Arc<NetNs>>,
}

impl SendPolicy {
    /// Looks at the interfaces of a namespace (`None` for our own). `owned` are the names given with
    /// `--i-own-this-network`.
    ///
    /// # Errors
    /// If the namespace does not exist, or one of `owned` is not an interface there.
    pub fn inspect(namespace: Option<&str>, owned: &[String]) -> Result<SendPolicy, TransmitError> {
        let open =
            |name: &str| NetNs::open(name).map_err(|source| TransmitError::no_such_namespace(name, source));
        let namespace = namespace.map(open).transpose()?.map(Arc::new);
        let ask = || RouteSocket::open().and_then(|mut route| route.links());
        let links = run_in(namespace.as_ref(), ask).and_then(|answer| answer);
        let links = links.map_err(|source| TransmitError::of_call("network interfaces", source))?;
        let network = SendPolicy { links, namespace, owned: owned.to_vec() };
        network.owned.iter().try_for_each(|name| network.link(name).map(|_| ()))?;
        Ok(network)
    }

    /// Whether packets may be sent on this interface.
    ///
    /// # Errors
    /// [`TransmitError::NotAllowed`], with the reason and what to add; [`TransmitError::NoSuchInterface`].
    pub fn permit(&self, interface: &str) -> Result<SendPermit, TransmitError> {
        let link = self.link(interface)?;
        let is_allowed = is_loopback(link) || link.kind == "veth" || self.owned.contains(&link.name);
        if !is_allowed {
            let what = match link.kind.as_str() {
                "" => "hardware or a device of the host's hypervisor".to_owned(),
                kind => format!("of the kind {kind}"),
            };
            return Err(TransmitError::NotAllowed { interface: link.name.clone(), what });
        }
        Ok(SendPermit { link: link.clone(), namespace: self.namespace.clone() })
    }

    /// A network that is made up.
    #[cfg(test)]
    pub(super) fn of(links: Vec<Link>, owned: Vec<String>) -> SendPolicy {
        SendPolicy { links, namespace: None, owned }
    }

    /// The interfaces.
    pub(super) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(super) fn link(&self, name: &str) -> Result<&Link, TransmitError> {
        self.links.iter().find(|link| link.name == name).ok_or_else(|| {
            let present: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
            TransmitError::NoSuchInterface { wanted: name.to_owned(), present: present.join(", ") }
        })
    }
}

impl SendPermit {
    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Number of the interface.
    pub fn if_index(&self) -> u32 {
        self.link.index
    }

    /// The link type: the first header of a frame on it.
    pub fn link_type(&self) -> LinkType {
        LinkType::of_hardware(self.link.hardware_type)
    }

    /// The largest packet that it sends, without the link header, in bytes.
    pub(super) fn mtu(&self) -> u32 {
        self.link.mtu
    }

    /// The queueing discipline that was chosen for it: one that the kernel does not put there by itself.
    pub(super) fn chosen_discipline(&self) -> Option<&str> {
        const DEFAULTS: [&str; 8] = ["", "noqueue", "noop", "pfifo_fast", "fq_codel", "fq", "mq", "pfifo"];
        let discipline = self.link.discipline.as_str();
        (!DEFAULTS.contains(&discipline)).then_some(discipline)
    }

    /// Whether it is one end of a veth.
    pub(super) fn is_veth(&self) -> bool {
        self.link.kind == "veth"
    }

    /// Checks that the number is still that of the permitted interface. A back end that was bound before is then bound
    /// to this interface, or to one that was removed, on which nothing can be sent.
    ///
    /// # Errors
    /// [`TransmitError::Replaced`]; the kernel's answer if it cannot be asked.
    pub(super) fn confirm(&self) -> Result<(), TransmitError> {
        let ask = || RouteSocket::open().and_then(|mut route| route.link(self.link.index));
        let present = self.run(ask).and_then(|answer| answer);
        let present = present.map_err(|source| TransmitError::of_call(self.name(), source))?;
        match present.is_some_and(|present| identity(&present) == identity(&self.link)) {
            true => Ok(()),
            false => Err(TransmitError::Replaced { interface: self.name().to_owned() }),
        }
    }

    /// Runs work in the interface's namespace.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, SyscallError> {
        run_in(self.namespace.as_ref(), work)
    }
}

/// The properties by which an interface is permitted and its frames are made.
fn identity(link: &Link) -> (&str, &str, u16, bool) {
    (&link.name, &link.kind, link.hardware_type, is_loopback(link))
}

/// Both say so: a flag can be anything on an interface of an unknown driver.
pub(super) fn is_loopback(link: &Link) -> bool {
    link.is_loopback() && link.hardware_type == HARDWARE_LOOPBACK
}

fn run_in<T: Send>(
    namespace: Option<&Arc<NetNs>>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, SyscallError> {
    match namespace {
        Some(namespace) => namespace.run(work),
        None => Ok(work()),
    }
}

#[cfg(test)]
mod tests {
    use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};

    use super::*;
    use crate::{Backend, BackendChoice, SendSettings, Transmitter};

    fn network(owned: &[&str]) -> SendPolicy {
        const ETHERNET: u16 = 1;
        let link = |name: &str, hardware_type, kind: &str, flags| Link {
            name: name.to_owned(),
            hardware_type,
            kind: kind.to_owned(),
            flags,
            ..Link::default()
        };
        let links = vec![
            link("lo", HARDWARE_LOOPBACK, "", 0x8),
            link("eth0", ETHERNET, "", 0),
            link("near0", ETHERNET, "veth", 0),
            link("veth7", ETHERNET, "bridge", 0),
            link("sly0", ETHERNET, "", 0x8),
        ];
        SendPolicy::of(links, owned.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn the_kind_decides_and_not_the_name() {
        let network = network(&[]);
        assert!(network.permit("lo").is_ok() && network.permit("near0").is_ok());
        for name in ["eth0", "veth7", "sly0"] {
            let text = network.permit(name).map(drop).unwrap_err().to_string();
            assert!(text.contains(&format!("--i-own-this-network {name}")), "{text}");
        }
        assert!(network.permit("veth7").unwrap_err().to_string().contains("of the kind bridge"));
        assert!(network.permit("none0").unwrap_err().to_string().contains("lo, eth0, near0"));
    }

    #[test]
    fn an_owned_interface_permits_itself_alone() {
        let network = network(&["eth0"]);
        assert_eq!(network.permit("eth0").unwrap().name(), "eth0");
        assert!(network.permit("sly0").is_err());
    }

    /// A kind of interface on which sending is not permitted, under the name and the number of the veth.
    #[test]
    fn an_interface_that_was_replaced_is_not_sent_on() {
        if !namespaces_or_skip("an_interface_that_was_replaced_is_not_sent_on") {
            return;
        }
        let namespace = Namespace::with_pair("permit").unwrap();
        let permit = SendPolicy::inspect(Some(namespace.name()), &[]).unwrap().permit(NEAR).unwrap();
        let open = |backend| {
            let backend = BackendChoice::This(backend);
            Transmitter::open(&permit, &SendSettings { backend, ..SendSettings::default() })
        };
        assert!(open(Backend::Packet).is_ok());
        namespace.ip(&["link", "delete", FAR]).unwrap();
        assert!(open(Backend::Packet).is_err(), "it was removed");
        let number = permit.if_index().to_string();
        namespace.ip(&["link", "add", NEAR, "index", &number, "type", "bridge"]).unwrap();
        namespace.ip(&["link", "set", NEAR, "up"]).unwrap();
        let replaced = |error: TransmitError| matches!(error, TransmitError::Replaced { .. });
        assert!(open(Backend::Packet).is_err_and(replaced));
        for backend in [Backend::Xdp, Backend::Live] {
            assert!(open(backend).is_err(), "{backend}");
        }
    }
}
