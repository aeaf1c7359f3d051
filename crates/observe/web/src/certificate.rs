//! TLS of the page's server: its certificate, and connections that are proven by it (RFC 8446).

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tapline_sys::disk;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::error::Error;

/// The most bytes of a file of certificates or of a key.
const LEN_MAX: u64 = 1 << 20;

/// A chain of certificates and the key of the first.
#[derive(Clone)]
pub struct Certificate(TlsAcceptor);

impl Certificate {
    /// Reads both files, which are PEM. The chain begins with the server's own certificate.
    ///
    /// # Errors
    /// [`Error::Certificate`]: a file that cannot be read, has more than 1 MiB, or does not fit the other; a key that
    /// every user of the system may read.
    pub fn read(chain: &Path, key: &Path) -> Result<Certificate, Error> {
        let (text, _) = read(chain)?;
        let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| failure(chain, &error))?;
        if certificates.is_empty() {
            return Err(failure(chain, &"there is no certificate in it"));
        }
        let (text, mode) = read(key)?;
        if mode & 0o007 != 0 {
            return Err(failure(key, &"every user may read this key: chmod o= it"));
        }
        let private = PrivateKeyDer::from_pem_slice(&text).map_err(|error| failure(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failure(chain, &error))?
            .with_no_client_auth()
            .with_single_cert(certificates, private)
            .map_err(|error| failure(key, &error))?;
        Ok(Certificate(TlsAcceptor::from(Arc::new(config))))
    }

    /// The handshake of a connection. The caller bounds its time.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

/// All of a file, and its mode.
fn read(path: &Path) -> Result<(Vec<u8>, u32), Error> {
    let read = || -> io::Result<(Vec<u8>, u32)> {
        let file = disk::open_at_once(path, OpenOptions::new().read(true))?;
        let mode = file.metadata()?.mode();
        Ok((disk::read_file_at_most(&file, LEN_MAX)?, mode))
    };
    let (bytes, mode) = read().map_err(|error| failure(path, &error))?;
    match bytes.len() as u64 > LEN_MAX {
        true => Err(failure(path, &format!("it has more than {LEN_MAX} bytes"))),
        false => Ok((bytes, mode)),
    }
}

fn failure(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Certificate { path: path.to_owned(), why: why.to_string() }
}
