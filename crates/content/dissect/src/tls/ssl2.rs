//! Hellos in the form of SSL 2.0, which clients sent to servers of unknown age (RFC 5246, E.2).
//!
//! ```text
//! hello = length 2 (highest bit set), type 1 (1), version 2, lengths of: cipher specs 2, session 2, challenge 2;
//!         cipher specs of 3 bytes each, session, challenge
//! ```

use crate::Detection;
use crate::bytes::ByteReader;

/// Bytes up to the lengths.
const HEADER_LEN: usize = 11;

/// A client's hello in the form of SSL 2.0. It has no extensions, and so no server name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ssl2ClientHello {
    /// The highest version that the client offers: 0x0002 for SSL 2.0, 0x0300 to 0x0303 for later ones.
    pub version: u16,
}

impl Ssl2ClientHello {
    /// Reads the hello at the start of a TCP stream.
    pub fn from_stream(stream: &[u8]) -> Detection<Ssl2ClientHello> {
        if stream.len() < HEADER_LEN {
            let may_be = matches!(
                stream,
                [] | [0x80..=0xff] | [0x80..=0xff, _] | [0x80..=0xff, _, 1] | [0x80..=0xff, _, 1, 0 | 3, ..]
            );
            return if may_be { Detection::NeedMore } else { Detection::NoMatch };
        }
        Ssl2ClientHello::parse(stream).map_or(Detection::NoMatch, Detection::Match)
    }

    fn parse(stream: &[u8]) -> Option<Ssl2ClientHello> {
        let mut reader = ByteReader(stream);
        let (length, kind, version) = (reader.u16()?, reader.u8()?, reader.u16()?);
        let (specs, session, challenge) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let rest = usize::from(specs) + usize::from(session) + usize::from(challenge);
        let fits = usize::from(length & 0x7fff) + 2 == HEADER_LEN + rest;
        let is_hello = length & 0x8000 != 0 && kind == 1 && matches!(version, 2 | 0x0300..=0x0303);
        let is_plausible =
            specs > 0 && specs % 3 == 0 && matches!(session, 0 | 16) && (16..=32).contains(&challenge);
        (fits && is_hello && is_plausible).then_some(Ssl2ClientHello { version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_of_ssl_2_have_a_version() {
        let mut hello = vec![0x80, 28, 1, 3, 0, 0, 3, 0, 0, 0, 16, 0, 0, 5];
        hello.extend([7; 16]);
        let found = Detection::Match(Ssl2ClientHello { version: 0x0300 });
        assert_eq!(Ssl2ClientHello::from_stream(&hello), found);
        for len in 0..HEADER_LEN {
            assert_eq!(Ssl2ClientHello::from_stream(&hello[..len]), Detection::NeedMore, "{len}");
        }
        assert_eq!(Ssl2ClientHello::from_stream(&hello[..HEADER_LEN]), found);
        for (at, value) in [(0, 0), (1, 29), (2, 4), (3, 4), (6, 4), (8, 1), (10, 15)] {
            let mut other = hello.clone();
            other[at] = value;
            assert_eq!(Ssl2ClientHello::from_stream(&other), Detection::NoMatch, "{at}");
        }
    }
}
