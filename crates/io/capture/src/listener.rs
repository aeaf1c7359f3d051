//! Datagrams that come to UDP sockets of ours, as packets.
//!
//! ```text
//! slot   := headroom | datagram             the headroom gets the IP and UDP headers that the datagram came with
//! packet := IPv4 20 or IPv6 40 | UDP 8 | datagram                                    (link type RAW)
//! socket:  received = lost (no room in the socket) + unread at the stop + delivered
//! ```
//!
//! The kernel gives addresses and ports, not headers: this source makes them, without checksums of UDP over IPv4. So
//! every stage and output for packets works behind a socket.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tapline_packet::checksum::internet;
use tapline_packet::{Batch, Interface, InterfaceId, LinkType, Meta, Record, Timestamp};
use tapline_source::{Advance, Error, InterfaceAccount, RingAccount, Source};
use tapline_sys::{DATAGRAMS_PER_CALL, DatagramSocket, Poller, ReceivedDatagram, Wakeup, clock};

/// Headers before each datagram: those of IPv6 and UDP.
const HEADROOM: usize = 48;
/// The longest datagram, and its headers.
const SLOT_LEN: usize = HEADROOM + 65_536;
/// Room for datagrams that wait in the kernel, in bytes: a tenth of a second at 2.5 Gbit/s.
const RECEIVE_BUFFER: u32 = 32 << 20;
/// Interval at which the kernel's counters are read, which have 32 bits, in calls that found datagrams.
const COUNT_INTERVAL: u32 = 1024;
/// Time after a stop for which waiting datagrams are still delivered. The rest is counted: a sender whose datagrams
/// cost much cannot delay the end.
const DRAIN_NS: u64 = 500_000_000;
/// The bytes of a batch, about: an order to stop waits for a batch, which may cost much for each of its bytes.
const BATCH_LEN: usize = 512 << 10;
const UDP: u8 = 17;
const TTL: u8 = 64;

/// A source of the datagrams that come to UDP sockets.
pub struct Listener {
    sockets: Vec<Listening>,
    interfaces: Vec<Interface>,
    memory: Box<[u8]>,
    received: Vec<ReceivedDatagram>,
    records: Vec<Record>,
    poller: Poller,
    wakeup: Arc<Wakeup>,
    /// The socket that is asked first.
    next: usize,
    calls: u32,
    /// The most datagrams of the next batch, by the lengths of those of the last.
    batch_max: usize,
    is_stopping: bool,
    /// The time, by the steady clock, until which datagrams are delivered after a stop.
    drained_until_ns: u64,
    has_batch: bool,
}

/// A socket and its counters.
struct Listening {
    socket: DatagramSocket,
    delivered: u64,
    dropped: u64,
    /// Datagrams that were discarded after the stop.
    unread: u64,
}

impl Listener {
    /// The scheme of addresses of sockets, with which the names of their interfaces begin.
    pub const SCHEME: &str = "udp://";

    /// Whether an interface is a socket of a listener, whose datagrams are live.
    pub fn is_socket(interface: &Interface) -> bool {
        interface.name.starts_with(Listener::SCHEME)
    }

    /// The addresses of a text: `udp://HOST:PORT` with commas between them; without a host all of this machine, without
    /// the scheme UDP too.
    ///
    /// # Errors
    /// A message with the fault of the text.
    pub fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let all = words.map(address).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            return Err("no address to listen on: write udp://:4739, or udp://192.0.2.1:2055".to_owned());
        }
        Ok(all)
    }

    /// Opens a socket on each address, in the network namespace of the calling thread. An unspecified IPv6 address takes
    /// IPv4 too.
    ///
    /// # Errors
    /// The first socket that cannot be opened.
    pub fn open(addresses: &[SocketAddr]) -> Result<Listener, Error> {
        let mut sockets = Vec::new();
        let mut interfaces = Vec::new();
        for &wanted in addresses {
            let socket = bind(wanted)
                .map_err(|source| Error::source(&format!("{}{wanted}", Listener::SCHEME), source))?;
            // A small buffer is not a fault, and what it loses is counted.
            let _ = socket.set_receive_buffer(RECEIVE_BUFFER);
            let name = format!("{}{}", Listener::SCHEME, socket.local());
            interfaces.push(Interface { fcs_len: Some(0), ..Interface::new(&name, LinkType::RAW) });
            sockets.push(Listening { socket, delivered: 0, dropped: 0, unread: 0 });
        }
        let wakeup = Wakeup::new().map_err(|source| Error::source("listener", source))?;
        Ok(Listener {
            sockets,
            interfaces,
            memory: vec![0; SLOT_LEN * DATAGRAMS_PER_CALL].into(),
            received: Vec::with_capacity(DATAGRAMS_PER_CALL),
            records: Vec::with_capacity(DATAGRAMS_PER_CALL),
            poller: Poller::new(),
            wakeup: Arc::new(wakeup),
            next: 0,
            calls: 0,
            batch_max: DATAGRAMS_PER_CALL,
            is_stopping: false,
            drained_until_ns: u64::MAX,
            has_batch: false,
        })
    }

    /// Receives from the first socket, in turn, that has datagrams.
    fn receive(&mut self) -> Result<bool, Error> {
        for _ in 0..self.sockets.len() {
            let at = self.next;
            self.next = (self.next + 1) % self.sockets.len();
            let Listening { socket, delivered, dropped, .. } = &mut self.sockets[at];
            let memory = &mut self.memory[..SLOT_LEN * self.batch_max];
            let received = socket.receive(memory, SLOT_LEN, HEADROOM, &mut self.received);
            received.map_err(|source| Error::source(&self.interfaces[at].name, source))?;
            if self.received.is_empty() {
                continue;
            }
            *delivered += self.received.len() as u64;
            let bytes: usize = self.received.iter().map(|datagram| datagram.len).sum();
            let each = (bytes / self.received.len()).max(1);
            self.batch_max = (BATCH_LEN / each).clamp(1, DATAGRAMS_PER_CALL);
            self.calls = self.calls.wrapping_add(1);
            if self.calls.is_multiple_of(COUNT_INTERVAL) {
                *dropped = socket.drops();
            }
            let (to, now) = (socket.local(), Timestamp::from_nanos(clock::realtime_ns()));
            self.records.clear();
            let slots = self.memory.chunks_exact_mut(SLOT_LEN).enumerate();
            for ((slot, memory), datagram) in slots.zip(&self.received) {
                let len = put_headers(memory, datagram, to);
                let offset = slot * SLOT_LEN + HEADROOM + datagram.len - len;
                let meta = Meta {
                    timestamp: now,
                    wire_len: len as u32,
                    interface: InterfaceId(at as u32),
                    ..Meta::default()
                };
                self.records.push(Record { offset, cap_len: len as u32, options_len: 0, meta });
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Takes what still waits in the sockets, and counts it as unread.
    fn discard(&mut self) -> Result<(), Error> {
        for (Listening { socket, unread, .. }, interface) in self.sockets.iter_mut().zip(&self.interfaces) {
            loop {
                let received = socket.receive(&mut self.memory, SLOT_LEN, HEADROOM, &mut self.received);
                received.map_err(|source| Error::source(&interface.name, source))?;
                if self.received.is_empty() {
                    break;
                }
                *unread += self.received.len() as u64;
            }
        }
        Ok(())
    }
}

/// Binds a socket. An unspecified IPv6 address means IPv4's on a machine without IPv6.
fn bind(address: SocketAddr) -> Result<DatagramSocket, tapline_sys::SyscallError> {
    let bound = DatagramSocket::bind(address);
    match bound {
        Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
            DatagramSocket::bind(SocketAddr::new([0, 0, 0, 0].into(), address.port())).or(bound)
        }
        bound => bound,
    }
}

fn address(word: &str) -> Result<SocketAddr, String> {
    let wrong = || {
        format!(
            "`{word}` is not an address to listen on: write udp://:4739, udp://192.0.2.1:2055 or udp://[::1]:6343"
        )
    };
    let place = word.strip_prefix(Listener::SCHEME).unwrap_or(word);
    match place.strip_prefix(':') {
        Some(port) => Ok(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port.parse().map_err(|_| wrong())?)),
        None => place.parse().map_err(|_| wrong()),
    }
}

/// Writes the headers of a datagram right before it. The length of the packet.
fn put_headers(slot: &mut [u8], datagram: &ReceivedDatagram, to: SocketAddr) -> usize {
    let (from, udp_len) = (datagram.from, 8 + datagram.len);
    let (Some(head), true) = (slot.first_chunk_mut::<HEADROOM>(), udp_len <= usize::from(u16::MAX)) else {
        return datagram.len;
    };
    let udp = &mut head[HEADROOM - 8..];
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
    udp[6..].fill(0);
    match (from.ip(), u16::try_from(20 + udp_len)) {
        (IpAddr::V4(source), Ok(total)) => {
            let ip = &mut head[HEADROOM - 28..HEADROOM - 8];
            ip.fill(0);
            (ip[0], ip[8], ip[9]) = (0x45, TTL, UDP);
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[12..16].copy_from_slice(&source.octets());
            if let IpAddr::V4(to) = to.ip() {
                ip[16..20].copy_from_slice(&to.octets());
            }
            let sum = internet(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            20 + udp_len
        }
        (source, _) => {
            let v6 = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            let ip = &mut head[..40];
            ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
            ip[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
            (ip[6], ip[7]) = (UDP, TTL);
            ip[8..24].copy_from_slice(&v6(source));
            ip[24..40].copy_from_slice(&v6(to.ip()));
            40 + udp_len
        }
    }
}

impl Source for Listener {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if self.is_stopping && clock::monotonic_ns() >= self.drained_until_ns {
            self.has_batch = false;
            self.discard()?;
            return Ok(Advance::End);
        }
        self.has_batch = self.receive()?;
        if !self.has_batch && !self.is_stopping && !wait.is_zero() {
            self.poller.clear();
            self.poller.add(self.wakeup.as_fd());
            self.sockets.iter().for_each(|listening| self.poller.add(listening.socket.as_fd()));
            self.poller.wait(wait).map_err(|source| Error::source("listener", source))?;
            if self.poller.is_readable(0) {
                self.wakeup.take();
            }
            self.has_batch = self.receive()?;
        }
        Ok(match (self.has_batch, self.is_stopping) {
            (true, _) => Advance::Batch,
            (false, true) => Advance::End,
            (false, false) => Advance::Idle,
        })
    }

    fn batch(&self) -> Batch<'_> {
        if self.has_batch { Batch::new(&self.memory, &self.records) } else { Batch::empty() }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopping = true;
        self.drained_until_ns = clock::monotonic_ns().saturating_add(DRAIN_NS);
        for (Listening { socket, dropped, .. }, interface) in self.sockets.iter_mut().zip(&self.interfaces) {
            *dropped = socket.drops();
            // From here on nothing comes in, and what is refused is not counted as lost.
            socket.refuse_all().map_err(|source| Error::source(&interface.name, source))?;
        }
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let is_stopping = self.is_stopping;
        let account = |(listening, interface): (&mut Listening, &Interface)| {
            if !is_stopping {
                listening.dropped = listening.socket.drops();
            }
            let Listening { delivered, dropped, unread, .. } = *listening;
            let received = delivered + dropped + unread;
            let ring = RingAccount { received, dropped, unread, ..RingAccount::default() };
            InterfaceAccount {
                ring: Some(ring),
                is_socket: true,
                ..InterfaceAccount::of_file(&interface.name, delivered)
            }
        };
        self.sockets.iter_mut().zip(&self.interfaces).map(account).collect()
    }

    fn waited_ticks(&self) -> u64 {
        self.poller.waited_ticks()
    }

    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        Some(Arc::clone(&self.wakeup))
    }

    fn wait_on(&self, poller: &mut Poller) -> bool {
        poller.add(self.wakeup.as_fd());
        self.sockets.iter().for_each(|listening| poller.add(listening.socket.as_fd()));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use tapline_packet::headers::Headers;

    fn packets(listener: &mut Listener) -> Vec<Vec<u8>> {
        assert_eq!(listener.advance(Duration::from_secs(60)).unwrap(), Advance::Batch);
        listener.batch().iter().map(|packet| packet.data.to_vec()).collect()
    }

    #[test]
    fn datagrams_come_with_their_headers() {
        for (address, ip_len) in [("127.0.0.1:0", 20), ("[::1]:0", 40)] {
            let Ok(sender) = UdpSocket::bind(address) else {
                println!("skipped {address}: this machine has no such address");
                continue;
            };
            let mut listener = Listener::open(&Listener::addresses(address).unwrap()).unwrap();
            let to = listener.sockets[0].socket.local();
            sender.send_to(b"flow export", to).unwrap();
            let packet = packets(&mut listener).remove(0);
            let headers = Headers::parse_data(LinkType::RAW, &packet);
            let from = sender.local_addr().unwrap();
            assert_eq!(headers.addresses(&packet), Some((from.ip(), to.ip())));
            assert_eq!(headers.ports(&packet), Some((from.port(), to.port())));
            assert_eq!((headers.payload(), headers.ip_end()), (Some(ip_len + 8), packet.len()));
            assert_eq!(&packet[ip_len + 8..], b"flow export");
            sender.send_to(b"", to).unwrap();
            listener.stop().unwrap();
            sender.send_to(b"late", to).unwrap();
            assert_eq!(packets(&mut listener)[0].len(), ip_len + 8);
            assert_eq!(listener.advance(Duration::ZERO).unwrap(), Advance::End);
            let account = listener.account().remove(0);
            assert_eq!((account.delivered, account.lost(), account.imbalance()), (2, 0, None));
        }
    }

    /// Once the time for them is over, datagrams that wait end as a count.
    #[test]
    fn the_end_is_not_put_off_by_what_waits() {
        let mut listener = Listener::open(&Listener::addresses("127.0.0.1:0").unwrap()).unwrap();
        let (to, sender) = (listener.sockets[0].socket.local(), UdpSocket::bind("127.0.0.1:0").unwrap());
        (0..100).for_each(|_| {
            sender.send_to(b"flow export", to).unwrap();
        });
        listener.stop().unwrap();
        assert_eq!(listener.advance(Duration::ZERO).unwrap(), Advance::Batch);
        let delivered = listener.batch().len() as u64;
        listener.drained_until_ns = 0;
        assert_eq!(listener.advance(Duration::ZERO).unwrap(), Advance::End);
        assert_eq!(listener.batch().len(), 0);
        let account = listener.account().remove(0);
        let unread = account.ring.as_ref().map(|ring| ring.unread);
        assert_eq!(
            (account.delivered, unread, account.imbalance()),
            (delivered, Some(100 - delivered), None)
        );
    }

    /// Long datagrams come in batches of few, so that an order to stop is obeyed soon.
    #[test]
    fn batches_of_long_datagrams_are_short() {
        let mut listener = Listener::open(&Listener::addresses("127.0.0.1:0").unwrap()).unwrap();
        let (to, sender) = (listener.sockets[0].socket.local(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut lens = Vec::new();
        for (len, count) in [(60_000, 100), (100, 200)] {
            for _ in 0..count {
                sender.send_to(&vec![0; len], to).unwrap();
                // One by one, so that the socket of a machine with a small limit has room.
                if lens.len() < 2 {
                    lens.push(packets(&mut listener).len());
                }
            }
        }
        while listener.advance(Duration::ZERO).unwrap() == Advance::Batch {
            lens.push(listener.batch().len());
        }
        let long = lens.iter().skip(2).take_while(|len| **len <= BATCH_LEN / 60_000).count();
        assert!(long > 0 && lens.contains(&DATAGRAMS_PER_CALL), "{lens:?}");
        assert_eq!(lens[2], BATCH_LEN / 60_000, "{lens:?}");
    }

    #[test]
    fn addresses_are_checked() {
        let all = Listener::addresses("udp://:4739, 192.0.2.1:2055,udp://[::1]:6343").unwrap();
        assert_eq!(all, ["[::]:4739", "192.0.2.1:2055", "[::1]:6343"].map(|text| text.parse().unwrap()));
        for (text, word) in [("", "no address"), ("udp://host:1", "`udp://host:1`"), (":70000", "`:70000`")] {
            let error = Listener::addresses(text).unwrap_err();
            assert!(error.contains(word) && error.contains("write udp://"), "{error}");
        }
    }
}
