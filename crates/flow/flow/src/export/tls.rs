//! TLS over a TCP connection to a collector (RFC 7011, 11).
//!
//! ```text
//! connect --handshake: names and certificates--> a word of the server, or a pause --> messages --> close_notify --> end of the stream
//! ```
//!
//! With TLS 1.3 the server judges our certificate after our part of the handshake is over: so its first word, which is a
//! ticket or an alert, is waited for, that messages to a server which refuses us are not taken for written.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore};

use super::TlsFiles;
use crate::Error;

/// Maximum duration of the handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Time to wait for a server that sends nothing after the handshake: it has accepted us then.
const FIRST_WORD_MAX: Duration = Duration::from_secs(1);
/// Time to wait at the end of a stream until the server has read it.
const END_MAX: Duration = Duration::from_secs(2);

/// The authorities to trust, the exporter's certificate, and the name of the collector.
#[derive(Clone)]
pub(super) struct TlsSettings {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsSettings {
    /// Reads the files. `address` is the collector's, `HOST:PORT`.
    pub(super) fn read(files: &TlsFiles, address: &str) -> Result<TlsSettings, Error> {
        let Some(authorities) = &files.authorities else { return Err(Error::NoTlsAuthorities) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|error| failure(authorities, &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failure(authorities, &error))?
            .with_root_certificates(roots);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key_file)) => {
                let key =
                    PrivateKeyDer::from_pem_file(key_file).map_err(|error| failure(key_file, &error))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, key)
                    .map_err(|error| failure(key_file, &error))?
            }
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = files.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| Error::Collector {
            text: name.to_owned(),
            why: "no name that a certificate could have".to_owned(),
        })?;
        Ok(TlsSettings { config: Arc::new(config), name })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| failure(path, &error))?;
    match all.is_empty() {
        true => Err(failure(path, &"there is no certificate in it")),
        false => Ok(all),
    }
}

fn failure(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::TlsFile { file: path.display().to_string(), why: why.to_string() }
}

pub(super) struct TlsSession(ClientConnection);

impl TlsSession {
    /// The handshake.
    pub(super) fn begin(settings: &TlsSettings, stream: &mut TcpStream) -> io::Result<TlsSession> {
        let connection = ClientConnection::new(Arc::clone(&settings.config), settings.name.clone());
        let mut session = TlsSession(connection.map_err(io::Error::other)?);
        let deadline = Instant::now() + HANDSHAKE_MAX;
        while session.0.is_handshaking() || session.0.wants_write() {
            if session.0.wants_write() {
                stream.set_write_timeout(Some(left(deadline)?))?;
                session.0.write_tls(stream)?;
            } else {
                session.read(stream, deadline)?;
            }
        }
        if session.0.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
            let deadline = Instant::now() + FIRST_WORD_MAX;
            match session.read(stream, deadline) {
                Err(error) if !is_timeout(&error) => return Err(error),
                _ => {}
            }
        }
        stream.set_read_timeout(None)?;
        Ok(session)
    }

    /// Reads some of the server's bytes.
    fn read(&mut self, stream: &mut TcpStream, deadline: Instant) -> io::Result<()> {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let count = self.0.read_tls(stream)?;
        let heard = self.0.process_new_packets();
        if let Err(error) = heard {
            // The server learns why: an alert is on its way.
            let _ = self.0.write_tls(stream);
            return Err(io::Error::other(error));
        }
        match count {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
            _ => Ok(()),
        }
    }

    /// Writes a whole message until `deadline`.
    pub(super) fn write(
        &mut self,
        stream: &mut TcpStream,
        message: &[u8],
        deadline: Instant,
    ) -> io::Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            let written = self.0.writer().write(rest)?;
            rest = &rest[written..];
            while self.0.wants_write() {
                stream.set_write_timeout(Some(left(deadline)?))?;
                match self.0.write_tls(stream) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Processes the bytes that have arrived. An error if the server has closed the connection, or says that it will not go on.
    pub(super) fn hear(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let heard = self.hear_all(stream);
        stream.set_nonblocking(false)?;
        heard
    }

    fn hear_all(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        loop {
            match self.0.read_tls(stream) {
                Ok(0) => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it closed the connection"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            let state = self.0.process_new_packets().map_err(io::Error::other)?;
            // The protocols have no answers: what is said is thrown away.
            let mut said = vec![0; state.plaintext_bytes_to_read()];
            self.0.reader().read_exact(&mut said)?;
            if state.peer_has_closed() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "it ended the session"));
            }
        }
    }

    /// Ends the session, and waits until the server has read all of it: a socket that is closed with unread bytes
    /// resets the connection, and bytes on their way are lost.
    pub(super) fn end(&mut self, stream: &mut TcpStream) {
        let deadline = Instant::now() + END_MAX;
        self.0.send_close_notify();
        let said = stream.set_write_timeout(Some(END_MAX)).and_then(|()| self.0.write_tls(stream));
        if said.is_err() || stream.shutdown(std::net::Shutdown::Write).is_err() {
            return;
        }
        let mut unheard = [0; 4096];
        while let Ok(left) = left(deadline) {
            match stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut unheard)) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The time until a deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
