//! A TCP connection to a collector, by itself or with TLS on it. The meter never waits for a collector that goes away,
//! comes back or stops reading, but for the timeout of one message.
//!
//! ```text
//! Open --a message times out--> Lost --the pause ends--> Tried: a thread connects --success--> Open
//!                                 ^--------------------------------failure-------------/
//! ```

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::collector::{is_reached, no_address};
use super::tls::{TlsSession, TlsSettings};

/// Time that one address has to answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The pause before a lost connection is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a message timed out: a collector that does not read costs a timeout each time.
const PAUSE_STALLED: Duration = Duration::from_secs(10);

/// A connection, or the hope of one.
pub(super) struct Connection {
    /// Looked up once: names may take long.
    addresses: Vec<SocketAddr>,
    way: CollectorTransport,
    state: ConnectionState,
    /// The error that closed the connection, until it is taken.
    failure: Option<io::Error>,
}

#[derive(Clone)]
struct CollectorTransport {
    /// The source address; `None` lets the system choose it.
    from: Option<IpAddr>,
    /// `None` sends messages as they are.
    tls: Option<TlsSettings>,
}

enum ConnectionState {
    Open(Channel),
    Lost { since: Instant, pause: Duration },
    Tried(Receiver<io::Result<Channel>>),
}

/// An open connection.
struct Channel {
    stream: TcpStream,
    /// In a box: a session has some 1,000 bytes, which a connection without TLS does not need.
    session: Option<Box<TlsSession>>,
}

impl Channel {
    /// An error if the other end has closed the connection. Bytes that are written then are lost, though the first
    /// write seems to succeed.
    fn check(&mut self) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.hear(&mut self.stream),
            None if is_closed(&self.stream) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it closed the connection"))
            }
            None => Ok(()),
        }
    }

    fn write(&mut self, message: &[u8], timeout: Duration) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.write(&mut self.stream, message, Instant::now() + timeout),
            None => write_within(&mut self.stream, message, timeout),
        }
    }

    /// Closes it once the other end has read all.
    fn end(&mut self) {
        if let Some(session) = &mut self.session {
            session.end(&mut self.stream);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let ConnectionState::Open(channel) = &mut self.state {
            channel.end();
        }
    }
}

impl Connection {
    /// Looks the name up and connects.
    pub(super) fn open(
        address: &str,
        from: Option<IpAddr>,
        tls: Option<TlsSettings>,
    ) -> io::Result<Connection> {
        let addresses: Vec<SocketAddr> =
            address.to_socket_addrs()?.filter(|address| is_reached(address, from)).collect();
        let way = CollectorTransport { from, tls };
        let channel = connect(&addresses, &way)?;
        Ok(Connection { addresses, way, state: ConnectionState::Open(channel), failure: None })
    }

    /// Whether the connection is open, as far as the last message showed.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Open(_))
    }

    /// Whether the collector took the whole message within `timeout`. If not, the connection is closed, as it would go
    /// on with half a message.
    pub(super) fn send(&mut self, message: &[u8], timeout: Duration) -> bool {
        self.proceed();
        let ConnectionState::Open(channel) = &mut self.state else { return false };
        let written = channel.check().and_then(|()| channel.write(message, timeout));
        let Err(error) = written else { return true };
        let is_stalled = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        self.state = ConnectionState::lost(if is_stalled { PAUSE_STALLED } else { PAUSE });
        self.failure = Some(error);
        false
    }

    /// Takes the reason that the connection was lost, once each time.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Tries once more before the end, whatever the pause says, and waits so long for it.
    pub(super) fn reach(&mut self, timeout: Duration) {
        if let ConnectionState::Lost { .. } = self.state {
            self.state = ConnectionState::tried(&self.addresses, &self.way);
        }
        if let ConnectionState::Tried(answer) = &self.state {
            self.state = match answer.recv_timeout(timeout) {
                Ok(Ok(channel)) => ConnectionState::Open(channel),
                Ok(Err(_)) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    ConnectionState::lost(PAUSE)
                }
            };
        }
    }

    /// A step towards a connection, without waiting.
    fn proceed(&mut self) {
        match &self.state {
            ConnectionState::Open(_) => {}
            ConnectionState::Lost { since, pause } if since.elapsed() < *pause => {}
            ConnectionState::Lost { .. } => self.state = ConnectionState::tried(&self.addresses, &self.way),
            ConnectionState::Tried(answer) => match answer.try_recv() {
                Ok(Ok(channel)) => self.state = ConnectionState::Open(channel),
                Err(TryRecvError::Empty) => {}
                Ok(Err(_)) | Err(TryRecvError::Disconnected) => self.state = ConnectionState::lost(PAUSE),
            },
        }
    }
}

impl ConnectionState {
    /// From now on.
    fn lost(pause: Duration) -> ConnectionState {
        ConnectionState::Lost { since: Instant::now(), pause }
    }

    fn tried(addresses: &[SocketAddr], way: &CollectorTransport) -> ConnectionState {
        let (answer, asked) = mpsc::channel();
        let (addresses, way) = (addresses.to_vec(), way.clone());
        // The receiver may have been dropped by then.
        let work = move || drop(answer.send(connect(&addresses, &way)));
        match thread::Builder::new().name("collector".to_owned()).spawn(work) {
            Ok(_) => ConnectionState::Tried(asked),
            Err(_) => ConnectionState::lost(PAUSE),
        }
    }
}

fn connect(addresses: &[SocketAddr], way: &CollectorTransport) -> io::Result<Channel> {
    let mut failure = no_address(way.from);
    for address in addresses {
        match connect_to(address, way.from).and_then(|stream| channel(stream, way)) {
            Ok(channel) => return Ok(channel),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn channel(mut stream: TcpStream, way: &CollectorTransport) -> io::Result<Channel> {
    let session = way
        .tls
        .as_ref()
        .map(|settings| TlsSession::begin(settings, &mut stream).map(Box::new))
        .transpose()?;
    Ok(Channel { stream, session })
}

fn connect_to(address: &SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(from) = from else { return TcpStream::connect_timeout(address, CONNECT_MAX) };
    let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&(*address).into(), CONNECT_MAX)?;
    Ok(socket.into())
}

/// Whether the other end has closed its half. Bytes from there are discarded: the protocols have no answers.
fn is_closed(stream: &TcpStream) -> bool {
    let mut said = [MaybeUninit::uninit(); 256];
    matches!(SockRef::from(stream).recv_with_flags(&mut said, DONT_WAIT), Ok(0))
}

/// MSG_DONTWAIT of recv(2).
const DONT_WAIT: i32 = 0x40;

/// Writes all bytes within `timeout`, even to a peer that reads slowly: each write gets the time that is left.
fn write_within(stream: &mut TcpStream, mut bytes: &[u8], timeout: Duration) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    let mut left = timeout;
    while !left.is_zero() {
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) if written == bytes.len() => return Ok(()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        left = deadline.saturating_duration_since(Instant::now());
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_millis(100);

    fn pair() -> (TcpListener, Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let address = listener.local_addr().expect("it has one").to_string();
        let connection = Connection::open(&address, None, None).expect("the listener is open");
        let (stream, _) = listener.accept().expect("it was connected");
        (listener, connection, stream)
    }

    #[test]
    fn a_stalled_collector_costs_one_timeout() {
        let (_listener, mut connection, _stream) = pair();
        let message = vec![7; 1 << 16];
        let taken = (0..10_000).take_while(|_| connection.send(&message, PATIENCE)).count();
        assert!(taken < 10_000, "no buffer is that large");
        assert!(!connection.is_open(), "half a message is on its way");
        let ConnectionState::Lost { pause, .. } = connection.state else { panic!("it is not tried at once") };
        assert_eq!(pause, PAUSE_STALLED);
        assert!((0..100).all(|_| !connection.send(&message, PATIENCE)));
        assert!(matches!(connection.state, ConnectionState::Lost { .. }), "nor in the pause");
    }

    /// A peer that reads a little at a time makes each write succeed in part; the message has one deadline all the
    /// same.
    #[test]
    fn a_slow_reader_exceeds_the_deadline_of_a_message() {
        let (_listener, mut connection, mut stream) = pair();
        let reader = thread::spawn(move || {
            let mut some = vec![0; 1 << 16];
            while stream.read(&mut some).is_ok_and(|len| len > 0) {
                thread::sleep(Duration::from_millis(5));
            }
        });
        // At this pace the whole takes five seconds at least.
        assert!(!connection.send(&vec![7; 64 << 20], PATIENCE));
        assert!(!connection.is_open());
        reader.join().expect("no panic");
    }

    #[test]
    fn one_more_attempt_is_made_before_the_end() {
        let (listener, mut connection, stream) = pair();
        drop(stream);
        while connection.send(b"a message", PATIENCE) {
            thread::sleep(Duration::from_millis(1));
        }
        connection.reach(CONNECT_MAX);
        assert!(connection.is_open());
        let (mut stream, _) = listener.accept().expect("it was connected again");
        assert!(connection.send(b"the last", PATIENCE));
        drop(connection);
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("all came");
        assert_eq!(text, "the last");
    }
}
