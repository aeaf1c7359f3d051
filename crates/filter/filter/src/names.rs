//! Names of hosts, networks, ports, protocols and stations, and where they are looked up.
//!
//! ```text
//! name       looked up in                                   as libpcap does by
//! host       hosts, DNS, what nsswitch.conf says            getaddrinfo
//! network    /etc/networks                                  getnetbyname
//! port       /etc/services, for TCP and for UDP             getaddrinfo
//! protocol   /etc/protocols                                 getprotobyname
//! station    /etc/ethers                                    ether_hostton
//! ```
//!
//! Lines of these files are words divided by blanks; `#` starts a comment; more names may follow as aliases.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use tapline_packet::numbers::ip_protocol;

/// Whether compiling a filter may ask a name server: it may name hosts or networks.
pub fn may_ask_for_names(filter: &str) -> bool {
    ["host", "net", "gateway", "src", "dst"].iter().any(|word| filter.contains(word))
}

/// Looks names up. Asking may block, for hosts.
pub trait Resolver: std::fmt::Debug {
    /// The addresses of a host; none if it is unknown.
    fn host(&self, name: &str) -> Vec<IpAddr>;

    /// The sources of host names, for the error about an unknown host.
    fn asked_for_hosts(&self) -> &'static str {
        "neither /etc/hosts nor DNS knows it"
    }

    /// The number of a network, in the host's byte order.
    fn network(&self, name: &str) -> Option<u32>;

    /// The ports of a service.
    fn port(&self, name: &str) -> Ports;

    /// The number of an IP protocol.
    fn protocol(&self, name: &str) -> Option<u8>;

    /// The link-layer address of a station.
    fn station(&self, name: &str) -> Option<[u8; 6]>;
}

/// The port of a service, by protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Under TCP.
    pub tcp: Option<u16>,
    /// Under UDP.
    pub udp: Option<u16>,
}

/// Looks names up where this system keeps them.
#[derive(Clone, Debug)]
pub struct SystemNames {
    directory: PathBuf,
    files_only: bool,
}

impl SystemNames {
    /// With the files of `directory` in place of `/etc`; hosts are looked up by the system all the same.
    pub fn in_directory(directory: impl AsRef<Path>) -> SystemNames {
        SystemNames { directory: directory.as_ref().to_owned(), files_only: false }
    }

    /// Hosts from `/etc/hosts` alone: no query is sent, whatever the name, so a look-up never waits.
    #[must_use]
    pub fn files_only(self) -> SystemNames {
        SystemNames { files_only: true, ..self }
    }

    /// The addresses that the file of hosts has.
    fn hosts_in_file(&self, name: &str) -> Vec<IpAddr> {
        let bytes = std::fs::read(self.directory.join("hosts")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let found = text.lines().filter_map(|line| {
            let mut words = line.split('#').next()?.split_ascii_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|known| known.eq_ignore_ascii_case(name)).then_some(address)
        });
        found.collect()
    }

    /// The first line of a file of which `wanted` makes something.
    fn find<T>(&self, file: &str, wanted: impl Fn(&[&str]) -> Option<T>) -> Option<T> {
        let bytes = std::fs::read(self.directory.join(file)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        text.lines().find_map(|line| {
            let words: Vec<&str> = line.split('#').next()?.split_ascii_whitespace().collect();
            wanted(&words)
        })
    }

    fn service(&self, name: &str, protocol: &str) -> Option<u16> {
        self.find("services", |words| {
            let (port, under) = words.get(1)?.split_once('/')?;
            (under == protocol && is_called(words, name)).then(|| port.parse().ok())?
        })
    }
}

impl Default for SystemNames {
    fn default() -> SystemNames {
        SystemNames::in_directory("/etc")
    }
}

impl Resolver for SystemNames {
    fn host(&self, name: &str) -> Vec<IpAddr> {
        if self.files_only {
            return self.hosts_in_file(name);
        }
        (name, 0)
            .to_socket_addrs()
            .map(|found| found.map(|address| address.ip()).collect())
            .unwrap_or_default()
    }

    fn asked_for_hosts(&self) -> &'static str {
        if self.files_only {
            "the /etc/hosts of the process that compiles the filter does not have it, and DNS is not asked there"
        } else {
            "neither /etc/hosts nor DNS knows it"
        }
    }

    fn network(&self, name: &str) -> Option<u32> {
        self.find("networks", |words| {
            let number = words.get(1)?;
            is_called(words, name).then(|| network_number(number))?
        })
    }

    fn port(&self, name: &str) -> Ports {
        if let Ok(port) = name.parse() {
            return Ports { tcp: Some(port), udp: Some(port) };
        }
        Ports { tcp: self.service(name, "tcp"), udp: self.service(name, "udp") }
    }

    fn protocol(&self, name: &str) -> Option<u8> {
        if !self.directory.join("protocols").exists() {
            return well_known_protocol(name);
        }
        self.find("protocols", |words| {
            let number = words.get(1)?;
            is_called(words, name).then(|| number.parse().ok())?
        })
    }

    fn station(&self, name: &str) -> Option<[u8; 6]> {
        self.find("ethers", |words| match words {
            [address, known, ..] if known.eq_ignore_ascii_case(name) => station_address(address),
            _ => None,
        })
    }
}

/// The name comes first, aliases from the third word on.
fn is_called(words: &[&str], name: &str) -> bool {
    words.first() == Some(&name) || words.iter().skip(2).any(|alias| *alias == name)
}

/// `127` and `127.0.0.0` are the same network: missing parts are 0, as glibc reads the file.
fn network_number(text: &str) -> Option<u32> {
    let parts: Vec<u8> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let mut octets = [0; 4];
    octets.get_mut(..parts.len())?.copy_from_slice(&parts);
    Some(u32::from(Ipv4Addr::from(octets)))
}

fn station_address(text: &str) -> Option<[u8; 6]> {
    let parts: Vec<u8> =
        text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

/// For systems without `/etc/protocols`, as small containers are.
fn well_known_protocol(name: &str) -> Option<u8> {
    Some(match name {
        "ip" => 0,
        "icmp" => ip_protocol::ICMP,
        "igmp" => ip_protocol::IGMP,
        "ipencap" => ip_protocol::IPV4,
        "tcp" => ip_protocol::TCP,
        "egp" => ip_protocol::EGP,
        "igp" => ip_protocol::IGRP,
        "udp" => ip_protocol::UDP,
        "ipv6" => ip_protocol::IPV6,
        "gre" => ip_protocol::GRE,
        "esp" => ip_protocol::ESP,
        "ah" => ip_protocol::AH,
        "ipv6-icmp" => ip_protocol::ICMPV6,
        "ospf" => ip_protocol::OSPF,
        "ipip" => ip_protocol::IPIP,
        "pim" => ip_protocol::PIM,
        "vrrp" => ip_protocol::VRRP,
        "l2tp" => ip_protocol::L2TP,
        "sctp" => ip_protocol::SCTP,
        "udplite" => ip_protocol::UDP_LITE,
        _ => return None,
    })
}

/// A fixed set of names: for tests, and for programs that must not ask the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedNames {
    /// Hosts and their addresses; a name may occur several times.
    pub hosts: Vec<(String, IpAddr)>,
    /// Networks and their numbers.
    pub networks: Vec<(String, u32)>,
    /// Services and their ports.
    pub ports: Vec<(String, Ports)>,
    /// IP protocols and their numbers.
    pub protocols: Vec<(String, u8)>,
    /// Stations and their link-layer addresses.
    pub stations: Vec<(String, [u8; 6])>,
}

impl Resolver for FixedNames {
    fn host(&self, name: &str) -> Vec<IpAddr> {
        self.hosts.iter().filter(|(known, _)| known == name).map(|(_, address)| *address).collect()
    }

    fn network(&self, name: &str) -> Option<u32> {
        lookup(&self.networks, name)
    }

    fn port(&self, name: &str) -> Ports {
        lookup(&self.ports, name).unwrap_or_default()
    }

    fn protocol(&self, name: &str) -> Option<u8> {
        lookup(&self.protocols, name)
    }

    fn station(&self, name: &str) -> Option<[u8; 6]> {
        lookup(&self.stations, name)
    }
}

fn lookup<T: Copy>(table: &[(String, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> (tempfile::TempDir, SystemNames) {
        let directory = tempfile::tempdir().expect("a directory");
        let write =
            |file: &str, text: &str| std::fs::write(directory.path().join(file), text).expect("a file");
        write(
            "services",
            "# comment\nhttp\t80/tcp www # web\ndomain 53/tcp\ndomain 53/udp\nsyslog 514/udp\nbad\nx y/z\n",
        );
        write("protocols", "tcp 6 TCP\nlarge 256\n");
        write("networks", "loopback 127\nlink-local 169.254.0.0 ll\nbad 1.2.3.4.5\n");
        write("ethers", "00:00:5e:0:53:1 router\n1:2:3 short\n");
        let names = SystemNames::in_directory(directory.path());
        (directory, names)
    }

    #[test]
    fn files_are_read_by_name_and_alias() {
        let (_directory, names) = names();
        assert_eq!(names.port("www"), Ports { tcp: Some(80), udp: None });
        assert_eq!(names.port("domain"), Ports { tcp: Some(53), udp: Some(53) });
        assert_eq!(names.port("syslog"), Ports { tcp: None, udp: Some(514) });
        assert_eq!((names.port("nothing"), names.port("x")), (Ports::default(), Ports::default()));
        assert_eq!(
            (names.protocol("TCP"), names.protocol("large"), names.protocol("6")),
            (Some(6), None, None)
        );
        assert_eq!((names.network("loopback"), names.network("ll")), (Some(0x7f00_0000), Some(0xa9fe_0000)));
        assert_eq!(names.network("bad"), None);
        assert_eq!((names.station("ROUTER"), names.station("short")), (Some([0, 0, 0x5e, 0, 0x53, 1]), None));
    }

    #[test]
    fn well_known_protocols_need_no_files() {
        let names = SystemNames::in_directory("/nonexistent");
        assert_eq!((names.protocol("icmp"), names.port("http")), (Some(1), Ports::default()));
    }

    #[test]
    fn addresses_are_hosts_of_their_own_name() {
        assert_eq!(SystemNames::default().host("192.0.2.1"), [IpAddr::from([192, 0, 2, 1])]);
    }
}
