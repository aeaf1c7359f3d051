//! Names of hosts and ports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

mod lookup;
mod organizations;

pub use lookup::HostLookup;
pub(crate) use organizations::organization;

/// Names of hosts. Called at each occurrence of an address, so implementations keep their answers.
pub trait HostNames {
    /// The name of `address`; `None` shows it as a number.
    fn name(&mut self, address: IpAddr) -> Option<&str>;
}

/// Transport protocols that have port names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PortKind {
    Tcp,
    Udp,
}

/// Names of ports: `/etc/services`.
#[derive(Clone, Debug, Default)]
pub struct Services {
    tcp: HashMap<u16, String>,
    udp: HashMap<u16, String>,
}

impl Services {
    /// The names in the system's files (services(5) and others); empty where there are none.
    pub fn system() -> Services {
        Services::from_file(Path::new("/etc/services"))
    }

    /// From a file in the form of services(5); empty where it cannot be read.
    pub fn from_file(path: &Path) -> Services {
        std::fs::read(path).map_or_else(|_| Services::default(), |text| Services::parse(&text))
    }

    /// From text in the form of services(5): `name port/protocol aliases # comment`. The first name of a port holds.
    pub fn parse(text: &[u8]) -> Services {
        let mut services = Services::default();
        for line in String::from_utf8_lossy(text).lines() {
            services.add_line(line);
        }
        services
    }

    fn add_line(&mut self, line: &str) {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let (Some(name), Some(place)) = (words.next(), words.next()) else { return };
        let Some((port, protocol)) = place.split_once('/') else { return };
        let Ok(port) = port.parse() else { return };
        let table = match protocol {
            "tcp" => &mut self.tcp,
            "udp" => &mut self.udp,
            _ => return,
        };
        table.entry(port).or_insert_with(|| name.to_owned());
    }

    fn name(&self, kind: PortKind, port: u16) -> Option<&str> {
        match kind {
            PortKind::Tcp => self.tcp.get(&port),
            PortKind::Udp => self.udp.get(&port),
        }
        .map(String::as_str)
    }
}

/// All names a printer knows.
#[derive(Default)]
pub(crate) struct Names {
    services: Services,
    host_names: Option<Box<dyn HostNames + Send>>,
}

impl Names {
    pub(crate) fn set_services(&mut self, services: Services) {
        self.services = services;
    }

    pub(crate) fn set_host_names(&mut self, host_names: Box<dyn HostNames + Send>) {
        self.host_names = Some(host_names);
    }

    pub(crate) fn port(&self, kind: PortKind, port: u16) -> Option<&str> {
        self.services.name(kind, port)
    }

    pub(crate) fn host(&mut self, address: IpAddr) -> Option<&str> {
        self.host_names.as_mut()?.name(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_read() {
        let services =
            Services::parse(b"# c\nhttp 80/tcp www # WWW\nother 80/tcp\ndomain 53/udp\nbad\nx y/tcp\n");
        assert_eq!(services.name(PortKind::Tcp, 80), Some("http"));
        assert_eq!(services.name(PortKind::Udp, 53), Some("domain"));
        assert_eq!(services.name(PortKind::Udp, 80), None);
    }
}
