//! In the place of `certificate`, in a build without TLS.

use std::io;
use std::path::Path;

use tokio::net::TcpStream;

use crate::error::Error;

/// There is none in this build.
#[derive(Clone)]
pub enum Certificate {}

impl Certificate {
    /// Reports that this build has no TLS.
    ///
    /// # Errors
    /// Always [`Error::Certificate`].
    pub fn read(chain: &Path, _key: &Path) -> Result<Certificate, Error> {
        let why = "this build has no TLS: build it with `--features tls,view`".to_owned();
        Err(Error::Certificate { path: chain.to_owned(), why })
    }

    pub(crate) async fn accept(&self, _stream: TcpStream) -> io::Result<TcpStream> {
        match *self {}
    }
}
