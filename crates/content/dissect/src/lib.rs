//! Readers of application protocols: those that say in the clear to which name a client goes (DNS, the hellos of TLS),
//! heads of HTTP/1, and calls (SIP, RTP).
//!
//! ```text
//! UDP payload, TCP behind 2 bytes of length --> dns::Message: header, first question;  dns::names: all names
//! TCP payload   --> tls::Record --> tls::Hello;  tls::Hello::from_stream for a hello in several records
//! UDP payload   --> dtls::fragments --------------> tls::Hello::from_dtls
//!               --> quic::decrypt_initials: CRYPTO -> tls::Hello::from_crypto
//! tls::ClientHello --> ja3(), ja4()
//! TCP payload   --> http::Head --> fields::Fields
//! first bytes --> application::of_stream, application::of_datagram: FTP, SMTP, SIP, databases and others
//! SIP         --> sip::Message --> sip::media: where RTP comes;  rtp::Header --> rtp::Stream: loss and jitter
//! ```
//!
//! Payloads are hostile. Every read is checked against the bytes that are there, every loop consumes bytes or has a
//! named bound, and no reader panics. Nothing is allocated except by callers' buffers and by the fingerprints.

#![forbid(unsafe_code)]

pub mod application;
mod bytes;
pub mod dns;
pub mod dtls;
pub mod fields;
pub mod http;
pub mod quic;
pub mod rtp;
pub mod sip;
pub mod tls;

pub use bytes::ByteReader;

/// Result of looking for a message at the front of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection<T> {
    /// The stream begins with another protocol; more bytes do not change that.
    NoMatch,
    /// The bytes are the beginning of a message, of which more is needed.
    NeedMore,
    /// The message.
    Match(T),
}

impl<T> Detection<T> {
    /// Changes the message.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Detection<U> {
        match self {
            Detection::Match(message) => Detection::Match(change(message)),
            Detection::NeedMore => Detection::NeedMore,
            Detection::NoMatch => Detection::NoMatch,
        }
    }
}
