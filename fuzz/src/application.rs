//! The law of the recognisers of applications.

use tapline_dissect::Detection;
use tapline_dissect::application::{GREETING_MAX, Sign, of_datagram, of_stream};

/// The bytes that more are waited for have an end, more bytes never make another application of a stream, and a
/// stream that has ended is never waited for.
///
/// ```text
/// input := first bytes of a stream, or a datagram
/// ```
pub fn application(data: &[u8]) {
    of_datagram(data);
    assert!(of_stream(data, true) != Detection::NeedMore, "no more can come");
    let mut found = None;
    for len in 0..=data.len().min(2 * GREETING_MAX) {
        match of_stream(&data[..len], false) {
            Detection::Match(Sign::Application(name)) => {
                assert!(*found.get_or_insert(name) == name, "{name} was {found:?}");
            }
            Detection::NeedMore => assert!(len <= GREETING_MAX + 4, "{len} bytes are waited for"),
            Detection::Match(Sign::Hint(_)) | Detection::NoMatch => {}
        }
    }
}

/// First bytes of each kind.
pub(crate) fn application_seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 12] = [
        b"220 mail.example.org ESMTP\r\n",
        b"220-FileZilla\r\n220 FTP\r\n",
        b"USER joe\r\n",
        b"EHLO me\r\n",
        b"INVITE sip:bob@example.org SIP/2.0\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x10\x16\0\x04MQTT\x04\x02\0\x3c\0\x0aclient-id1",
        b"\0\0\0\x13\0\x03\0\0user\0joe\0\0",
        b"\x4a\0\0\0\x0a8.0.36\0\x09\0\0\0random88\0\xff\xff\x08\x02\0",
        b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0",
        b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x0b\0\0\0",
        b"R\0\0\0\x08\0\0\0\0",
    ];
    let mut ntp = vec![0; 48];
    ntp[0] = 0x23;
    texts.iter().map(|text| text.to_vec()).chain([ntp]).collect()
}
