//! Sockets for interfaces that come later. Opening one needs a right that is given up once the capture runs, so some are
//! opened in advance and kept: they cost a descriptor each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    kept: KeptSockets,
}

/// Sockets that workers keep together: one of them opens those of all.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptSockets(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    sockets: Vec<PacketSocket>,
    max: usize,
}

impl KeptSockets {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spares {
    pub(super) fn new(namespace: Option<NetNs>, kept: KeptSockets) -> Spares {
        Spares { namespace, kept }
    }

    pub(super) fn namespace(&self) -> Option<&NetNs> {
        self.namespace.as_ref()
    }

    /// Opens sockets in advance, `more` than usual.
    pub(super) fn fill(&self, more: usize) {
        let mut kept = self.kept.lock();
        kept.max += SPARES + more;
        while kept.sockets.len() < kept.max {
            match self.open() {
                Ok(socket) => kept.sockets.push(socket),
                Err(_) => return,
            }
        }
    }

    /// A new socket for an interface, or one that was kept.
    pub(super) fn socket(&self, interface: &str) -> Result<PacketSocket, AfPacketError> {
        let mut kept = self.kept.lock();
        self.next(&mut kept, interface)
    }

    /// As [`socket`](Self::socket), several; if there are fewer, none is taken.
    pub(super) fn sockets(&self, interface: &str, count: usize) -> Result<Vec<PacketSocket>, AfPacketError> {
        let mut kept = self.kept.lock();
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            match self.next(&mut kept, interface) {
                Ok(socket) => taken.push(socket),
                Err(error) => {
                    let Kept { sockets, max } = &mut *kept;
                    sockets.append(&mut taken);
                    sockets.truncate(*max);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn next(&self, kept: &mut Kept, interface: &str) -> Result<PacketSocket, AfPacketError> {
        let max = kept.max;
        let none_left = |source: SyscallError| match max > 0 && !NO_DESCRIPTOR.contains(&source.errno()) {
            true => AfPacketError::NoSocketLeft { kept: max, source },
            false => AfPacketError::of_call(interface, source),
        };
        self.open().or_else(|error| kept.sockets.pop().ok_or_else(|| none_left(error)))
    }

    /// Whether a socket is kept.
    pub(super) fn is_any_left(&self) -> bool {
        !self.kept.lock().sockets.is_empty()
    }

    /// Keeps a socket that is not needed, where there is room; not one of a fanout group, as only its end takes it out.
    pub(super) fn put_back(&self, socket: PacketSocket) {
        let mut kept = self.kept.lock();
        if kept.sockets.len() < kept.max && socket.reset().is_ok() {
            kept.sockets.push(socket);
        }
    }

    /// All that are kept.
    pub(super) fn take(&self) -> Vec<PacketSocket> {
        std::mem::take(&mut self.kept.lock().sockets)
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
        let spares = Spares::new(Some(NetNs::open(namespace.name()).unwrap()), KeptSockets::default());
        let kept = || spares.kept.lock().sockets.len();
        spares.fill(0);
        assert_eq!(kept(), SPARES);
        let geometry = RingGeometry { block_len: 1 << 16, block_count: 2, retire_ms: 10 };
        for name in [FAR, NEAR] {
            let socket = spares.kept.lock().sockets.pop().unwrap();
            let ring = socket.map_ring(&geometry, false).unwrap();
            socket.join_promiscuous(number(name)).unwrap();
            socket.bind(number(name)).unwrap();
            assert!(socket.has_interface().unwrap());
            drop(ring);
            socket.leave_promiscuous(number(name)).unwrap();
            spares.put_back(socket);
            assert_eq!(kept(), SPARES, "{name}");
        }
        let (grouped, bound) = (spares.socket(FAR).unwrap(), spares.socket(FAR).unwrap());
        grouped.bind(number(FAR)).unwrap();
        grouped.join_fanout(None, tapline_sys::FanoutMode::Hash, false).unwrap();
        bound.bind(number(NEAR)).unwrap();
        spares.kept.lock().sockets.truncate(3);
        spares.put_back(grouped);
        assert_eq!(kept(), 3, "a group keeps its members");
        namespace.ip(&["link", "delete", NEAR]).unwrap();
        assert!(!bound.has_interface().unwrap());
        spares.put_back(bound);
        assert_eq!(kept(), 4, "its interface was removed");
    }
}
