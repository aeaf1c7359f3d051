//! Sockets for interfaces that come later. Opening one needs a right that is given up once the capture runs, so some are
//! opened in advance and kept: they cost a descriptor each.

use tapline_sys::{NetNs, PacketSocket, SyscallError};

use super::AfPacketError;

/// Sockets kept for interfaces that come later.
const SPARES: usize = 16;

/// `ENFILE` and `EMFILE`: not for want of a right, and another start does not help.
const NO_DESCRIPTOR: [i32; 2] = [23, 24];

/// Opens sockets in the namespace of the capture, and keeps some.
#[derive(Debug)]
pub(super) struct Spares {
    namespace: Option<NetNs>,
    sockets: Vec<PacketSocket>,
    kept_max: usize,
}

impl Spares {
    pub(super) fn new(namespace: Option<NetNs>) -> Spares {
        Spares { namespace, sockets: Vec::new(), kept_max: 0 }
    }

    pub(super) fn namespace(&self) -> Option<&NetNs> {
        self.namespace.as_ref()
    }

    /// Opens sockets in advance, `more` than usual.
    pub(super) fn fill(&mut self, more: usize) {
        self.kept_max = SPARES + more;
        while self.sockets.len() < self.kept_max {
            match self.open() {
                Ok(socket) => self.sockets.push(socket),
                Err(_) => return,
            }
        }
    }

    /// A new socket for an interface, or one that was kept.
    pub(super) fn socket(&mut self, interface: &str) -> Result<PacketSocket, AfPacketError> {
        let kept = self.kept_max;
        let none_left = |source: SyscallError| match kept > 0 && !NO_DESCRIPTOR.contains(&source.errno()) {
            true => AfPacketError::NoSocketLeft { kept, source },
            false => AfPacketError::of_call(interface, source),
        };
        self.open().or_else(|error| self.sockets.pop().ok_or_else(|| none_left(error)))
    }

    /// Whether a socket is kept.
    pub(super) fn is_any_left(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Keeps a socket that is not needed, where there is room; not one of a fanout group, as only its end takes it out.
    pub(super) fn put_back(&mut self, socket: PacketSocket) {
        if self.sockets.len() < self.kept_max && socket.reset().is_ok() {
            self.sockets.push(socket);
        }
    }

    /// All that are kept.
    pub(super) fn take(&mut self) -> Vec<PacketSocket> {
        std::mem::take(&mut self.sockets)
    }

    fn open(&self) -> Result<PacketSocket, SyscallError> {
        match &self.namespace {
            Some(namespace) => namespace.run(PacketSocket::open)?,
            None => PacketSocket::open(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_sys::RingGeometry;
    use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};

    use super::*;

    /// Also sockets that had a ring and packets.
    #[test]
    fn a_socket_that_was_put_back_is_as_a_new_one() {
        if !namespaces_or_skip("a_socket_that_was_put_back_is_as_a_new_one") {
            return;
        }
        let namespace = Namespace::with_pair("spares").unwrap();
        let number = |name: &str| {
            let path = format!("/sys/class/net/{name}/ifindex");
            let read = namespace.command("cat").arg(path).output().unwrap();
            String::from_utf8(read.stdout).unwrap().trim().parse::<u32>().unwrap()
        };
        let mut spares = Spares::new(Some(NetNs::open(namespace.name()).unwrap()));
        spares.fill(0);
        assert_eq!(spares.sockets.len(), SPARES);
        let geometry = RingGeometry { block_len: 1 << 16, block_count: 2, retire_ms: 10 };
        for name in [FAR, NEAR] {
            let socket = spares.sockets.pop().unwrap();
            let ring = socket.map_ring(&geometry, false).unwrap();
            socket.join_promiscuous(number(name)).unwrap();
            socket.bind(number(name)).unwrap();
            assert!(socket.has_interface().unwrap());
            drop(ring);
            socket.leave_promiscuous(number(name)).unwrap();
            spares.put_back(socket);
            assert_eq!(spares.sockets.len(), SPARES, "{name}");
        }
        let (grouped, bound) = (spares.socket(FAR).unwrap(), spares.socket(FAR).unwrap());
        grouped.bind(number(FAR)).unwrap();
        grouped.join_fanout(None, tapline_sys::FanoutMode::Hash, false).unwrap();
        bound.bind(number(NEAR)).unwrap();
        spares.sockets.truncate(3);
        spares.put_back(grouped);
        assert_eq!(spares.sockets.len(), 3, "a group keeps its members");
        namespace.ip(&["link", "delete", NEAR]).unwrap();
        assert!(!bound.has_interface().unwrap());
        spares.put_back(bound);
        assert_eq!(spares.sockets.len(), 4, "its interface was removed");
    }
}
