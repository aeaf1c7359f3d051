//! The place of `tls.rs` in a build without TLS: no settings can be made, so no session can begin.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use super::TlsFiles;
use crate::Error;

#[derive(Clone)]
pub(super) enum TlsSettings {}

impl TlsSettings {
    pub(super) fn read(_: &TlsFiles, _: &str) -> Result<TlsSettings, Error> {
        Err(Error::NoTls)
    }
}

pub(super) enum TlsSession {}

impl TlsSession {
    pub(super) fn begin(settings: &TlsSettings, _: &mut TcpStream) -> io::Result<TlsSession> {
        match *settings {}
    }

    pub(super) fn write(&mut self, _: &mut TcpStream, _: &[u8], _: Instant) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn hear(&mut self, _: &mut TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn end(&mut self, _: &mut TcpStream) {
        match *self {}
    }
}
