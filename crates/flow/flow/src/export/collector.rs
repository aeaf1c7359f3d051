//! Collectors: transports by UDP, TCP and TLS, and files of messages.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::ExportOptions;
use super::connection::Connection;
use super::datagrams::{Datagrams, Outbox, Sent};
use super::file::MessageFile;
use super::tls::TlsSettings;
use crate::Error;

/// The ports of IPFIX, without and with TLS (RFC 7011, 10.1).
const PORT: u16 = 4739;
const TLS_PORT: u16 = 4740;
/// Timeout of a message over TCP, by default.
const PATIENCE: Duration = Duration::from_secs(5);
/// Octets of a message over TCP and in files, where no packet bounds it.
const STREAM_ROOM: usize = 16 << 10;

/// A collector's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExportTarget {
    /// Datagrams.
    Udp(String),
    /// A connection.
    Tcp(String),
    /// A connection with TLS.
    Tls(String),
    /// A file of IPFIX messages (RFC 5655); `-` is standard output.
    File(PathBuf),
}

impl FromStr for ExportTarget {
    type Err = Error;

    /// `udp://HOST:PORT`, `tcp://HOST:PORT`, `tls://HOST:PORT`, `file:NAME`; `HOST:PORT` alone means UDP. Without a port
    /// it is 4739, and 4740 with TLS.
    fn from_str(text: &str) -> Result<ExportTarget, Error> {
        let fail = |why: &str| Err(Error::Collector { text: text.to_owned(), why: why.to_owned() });
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => match text.strip_prefix("file:") {
                Some(name) => ("file", name),
                None => ("udp", text),
            },
        };
        if rest.is_empty() {
            return fail("nothing is named");
        }
        match scheme {
            "file" => return Ok(ExportTarget::File(rest.into())),
            "udp" | "tcp" | "tls" => {}
            _ => return fail("this way is not known"),
        }
        let has_port = match rest.rfind(':') {
            Some(at) => !rest[at..].contains(']') && (rest.starts_with('[') || rest.find(':') == Some(at)),
            None => false,
        };
        let host = if has_port || rest.starts_with('[') || !rest.contains(':') {
            rest.to_owned()
        } else {
            format!("[{rest}]")
        };
        let port = if scheme == "tls" { TLS_PORT } else { PORT };
        let address = if has_port { host } else { format!("{host}:{port}") };
        let port = address.rsplit(':').next().unwrap_or_default();
        if port.parse::<u16>().is_err() {
            return fail("the port is not a number from 0 to 65535");
        }
        Ok(match scheme {
            "udp" => ExportTarget::Udp(address),
            "tls" => ExportTarget::Tls(address),
            _ => ExportTarget::Tcp(address),
        })
    }
}

impl ExportTarget {
    /// Several, with commas between them.
    ///
    /// # Errors
    /// [`Error::Collector`] for the first that is none.
    pub fn list(text: &str) -> Result<Vec<ExportTarget>, Error> {
        text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(str::parse).collect()
    }
}

impl fmt::Display for ExportTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportTarget::Udp(address) => write!(f, "udp://{address}"),
            ExportTarget::Tcp(address) => write!(f, "tcp://{address}"),
            ExportTarget::Tls(address) => write!(f, "tls://{address}"),
            ExportTarget::File(path) if path.as_os_str() == "-" => f.write_str(&MessageFile::name_of(path)),
            ExportTarget::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// An open collector.
pub(super) struct Collector {
    name: String,
    way: Transport,
    limiter: Option<RateLimiter>,
    timeout: Duration,
    /// Messages that it did not take, and the packets of their records.
    lost: (u64, u64),
    state: CollectorState,
    /// An event about the collector for the user, until it is taken.
    events: Vec<String>,
}

/// The last reported event of a collector on the network.
#[derive(PartialEq, Eq)]
enum CollectorState {
    There,
    Gone,
    /// Datagrams to it are refused: reported once, as they are sent all the same.
    Refused,
}

/// A name without a scheme that no resolver knows may be that of a file.
fn with_hint(target: &ExportTarget, source: io::Error) -> io::Error {
    let ExportTarget::Udp(address) = target else { return source };
    // Errors of the resolver have no number of the system.
    if source.raw_os_error().is_some() {
        return source;
    }
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    io::Error::new(source.kind(), format!("{source}; `{host}` is taken for a host: a file is file:{host}"))
}

enum Transport {
    Udp(Datagrams),
    Tcp(Connection),
    File(MessageFile),
}

impl Collector {
    /// Opens it; network messages are sent from the exporter's address, if there is one.
    pub(super) fn open(target: &ExportTarget, options: &ExportOptions) -> Result<Collector, Error> {
        let (rate, from) = (options.rate, options.exporter);
        let name = target.to_string();
        let way = match target {
            ExportTarget::Udp(address) => Datagrams::open(address, from).map(Transport::Udp),
            ExportTarget::Tcp(address) => Connection::open(address, from, None).map(Transport::Tcp),
            ExportTarget::Tls(address) => {
                let settings = TlsSettings::read(&options.tls, address)?;
                Connection::open(address, from, Some(settings)).map(Transport::Tcp)
            }
            ExportTarget::File(path) => MessageFile::create(path).map(Transport::File),
        };
        let way =
            way.map_err(|source| Error::Open { collector: name.clone(), source: with_hint(target, source) })?;
        Ok(Collector {
            name,
            way,
            limiter: (rate > 0).then(|| RateLimiter::new(rate)),
            timeout: PATIENCE,
            lost: (0, 0),
            state: CollectorState::There,
            events: Vec::new(),
        })
    }

    /// The most octets of a message.
    pub(super) fn room(&self, mtu: u16) -> usize {
        match &self.way {
            Transport::Udp(datagrams) => usize::from(mtu) - if datagrams.is_v6 { 48 } else { 28 },
            Transport::Tcp(_) | Transport::File(_) => STREAM_ROOM,
        }
    }

    /// Whether the collector may miss templates: datagrams get lost, and a collector that restarts does so unnoticed.
    pub(super) fn loses_templates(&self) -> bool {
        matches!(self.way, Transport::Udp(_))
    }

    /// Whether the collector's next session starts without templates: while a connection is down, each message must be
    /// able to begin one.
    pub(super) fn knows_none(&self) -> bool {
        matches!(&self.way, Transport::Tcp(connection) if !connection.is_open())
    }

    /// Sets the timeout of a message over TCP.
    pub(super) fn set_send_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// A flag that, once true, drops messages instead of delaying them for the rate limit.
    pub(super) fn set_cancel_flag(&mut self, cancel: &Arc<AtomicBool>) {
        if let Some(limiter) = &mut self.limiter {
            limiter.cancel = Arc::clone(cancel);
        }
    }

    /// The collector's name, the messages lost to it, and the packets of their records.
    pub(super) fn losses(&self) -> (&str, u64, u64) {
        (&self.name, self.lost.0, self.lost.1)
    }

    /// Takes the events of this collector that are to be shown to the user.
    pub(super) fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Sends a message, whose records count `packets` packets. Whether the collector took it.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn send(&mut self, message: &[u8], packets: u64) -> Result<bool, Error> {
        let sent = self.pass(message);
        if !matches!(sent, Ok(true)) {
            self.lost = (self.lost.0 + 1, self.lost.1 + packets);
        }
        self.hear();
        sent
    }

    /// Notes changes of the connection.
    fn hear(&mut self) {
        let Transport::Tcp(connection) = &mut self.way else { return };
        if let Some(error) = connection.take_failure() {
            self.state = CollectorState::Gone;
            self.events.push(format!(
                "{} is gone ({error}): messages are lost until a new connection succeeds",
                self.name
            ));
        } else if self.state == CollectorState::Gone && connection.is_open() {
            self.state = CollectorState::There;
            self.events.push(format!("{} is back", self.name));
        }
    }

    fn pass(&mut self, message: &[u8]) -> Result<bool, Error> {
        if self.limiter.as_mut().is_some_and(|limiter| !limiter.wait()) {
            return Ok(false);
        }
        match &mut self.way {
            Transport::Udp(datagrams) => {
                let sent = datagrams.send(message);
                Ok(self.took(&sent))
            }
            Transport::Tcp(connection) => Ok(connection.send(message, self.timeout)),
            Transport::File(file) => match file.add(message) {
                Ok(()) => Ok(true),
                Err(source) => Err(Error::Write { collector: self.name.clone(), source }),
            },
        }
    }

    /// Whether messages may wait for others and leave together: those that are paced and those of connections may
    /// not, as each must know the outcome of the previous one.
    pub(super) fn takes_several(&self) -> bool {
        match &self.way {
            Transport::Udp(_) => self.limiter.is_none(),
            Transport::Tcp(_) => false,
            Transport::File(file) => self.limiter.is_none() && file.takes_several(),
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.way, Transport::File(_))
    }

    /// Sends messages of an outbox; those that the collector did not take are no longer `taken`.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub(super) fn send_several(&mut self, outbox: &Outbox, taken: &mut [bool]) -> Result<(), Error> {
        let mut taken = taken.iter_mut();
        let mut failure = Ok(());
        // A file takes all at once. If it does not, each by itself shows which of them it takes.
        if let Transport::File(file) = &mut self.way
            && file.takes_several()
            && file.add(outbox.whole().bytes).is_ok()
        {
            return Ok(());
        }
        for run in outbox.runs() {
            let sent = match &mut self.way {
                Transport::Udp(datagrams) => datagrams.send_run(run),
                Transport::Tcp(_) | Transport::File(_) => None,
            };
            if let Some(sent) = sent {
                self.took(&sent);
                taken.by_ref().take(run.messages.len()).for_each(drop);
                continue;
            }
            let mut rest = run.bytes;
            for ((len, packets), taken) in run.messages.iter().zip(taken.by_ref()) {
                let (message, others) = rest.split_at(*len);
                rest = others;
                let sent = self.send(message, *packets);
                *taken &= matches!(sent, Ok(true));
                failure = failure.and(sent.map(drop));
            }
        }
        failure
    }

    /// Whether datagrams were taken. Reports a refusal once.
    fn took(&mut self, sent: &Sent) -> bool {
        if sent.refused && self.state == CollectorState::There {
            self.state = CollectorState::Refused;
            self.events.push(format!(
                "{}: no process listens there (ICMP port unreachable); messages are sent all the same, and count as written",
                self.name
            ));
        }
        sent.took
    }

    /// Goes on with another file if its own was renamed. Returns whether it did.
    pub(super) fn reopen(&mut self) -> Result<bool, Error> {
        let (Transport::File(file), Some(path)) = (&mut self.way, self.name.strip_prefix("file:")) else {
            return Ok(false);
        };
        file.reopen(path.as_ref()).map_err(|source| Error::Open { collector: self.name.clone(), source })
    }

    /// One more attempt to reach a collector that went away, before the last message.
    pub(super) fn reach(&mut self) {
        if let Transport::Tcp(connection) = &mut self.way {
            connection.reach(self.timeout);
            self.hear();
        }
    }
}

/// Whether an address is of the version of IP that we send from.
pub(super) fn is_reached(target: &SocketAddr, from: Option<IpAddr>) -> bool {
    from.is_none_or(|from| from.is_ipv4() == target.is_ipv4())
}

/// The error for a host name that has no usable address.
pub(super) fn no_address(from: Option<IpAddr>) -> io::Error {
    io::Error::other(match from {
        None => "the name has no address".to_owned(),
        Some(from) => format!("the name has no address that can be reached from {from}"),
    })
}

/// At most one message per `gap` on average, in bursts of [`AHEAD`].
struct RateLimiter {
    gap: Duration,
    /// When the next message may leave.
    next: Instant,
    /// Once true, messages are dropped instead of delayed.
    cancel: Arc<AtomicBool>,
}

/// Time by which messages may be ahead of the pace: sleeping for less costs more than it is worth.
const AHEAD: Duration = Duration::from_millis(2);
/// Interval at which the cancel flag is read while waiting.
const NAP: Duration = Duration::from_millis(100);

impl RateLimiter {
    fn new(rate: u32) -> RateLimiter {
        RateLimiter { gap: Duration::from_secs(1) / rate, next: Instant::now(), cancel: Arc::default() }
    }

    /// Waits for the turn of the next message. Whether it came: not if there is haste.
    fn wait(&mut self) -> bool {
        let mut now = Instant::now();
        self.next = self.next.max(now) + self.gap;
        while self.next.saturating_duration_since(now) > AHEAD {
            if self.cancel.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(self.next.saturating_duration_since(now).min(NAP));
            now = Instant::now();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_named_in_many_ways() {
        let text = |text: &str| text.parse::<ExportTarget>().map(|target| target.to_string());
        for (given, meant) in [
            ("udp://10.0.0.1:2055", "udp://10.0.0.1:2055"),
            ("10.0.0.1", "udp://10.0.0.1:4739"),
            ("collector:9995", "udp://collector:9995"),
            ("tcp://[::1]:99", "tcp://[::1]:99"),
            ("tcp://[::1]", "tcp://[::1]:4739"),
            ("udp://fe80::1", "udp://[fe80::1]:4739"),
            ("tls://[::1]", "tls://[::1]:4740"),
            ("tls://collector:99", "tls://collector:99"),
            ("file:a/b.ipfix", "file:a/b.ipfix"),
            ("file:-", "standard output"),
        ] {
            assert_eq!(text(given).unwrap(), meant);
        }
        for wrong in ["sctp://a", "udp://", "udp://a:b", "tcp://a:99999", "file:"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
        assert_eq!(ExportTarget::list("udp://a:1, tcp://b:2").unwrap().len(), 2);
    }
}
