//! The law of the readers of DNS names and of hellos, and hellos to begin with.

use tapline_dissect::tls::{ClientHello, Hello};
use tapline_dissect::{Detection, dns, dtls, quic};

/// More bytes of a stream never change a verdict but "need more"; a hello is the same in one record and in many; names
/// end within their message, alike for each reader; and only complete hellos have fingerprints.
///
/// ```text
/// input := cut 1, record length 1, bytes
/// ```
pub fn wire(data: &[u8]) {
    let Some((&[cut, record_len], bytes)) = data.split_first_chunk() else { return };
    let cut = usize::from(cut) * bytes.len() / 255;
    names_end_within(bytes);
    hellos_are_stable(bytes, cut);
    one_record_or_many(bytes, usize::from(record_len).max(1));
    datagrams_end(bytes);
}

fn names_end_within(bytes: &[u8]) {
    let mut text = Vec::new();
    for at in 0..bytes.len().min(64) {
        let end = dns::name::walk(bytes, at, |_| {});
        if let Ok(end) = end {
            assert!(end > at && end <= bytes.len(), "a name ends outside of its message");
            assert_eq!(dns::name::skip(bytes, at), Some(end), "a name ends in two places");
        }
        text.clear();
        if let Some(after) = dns::name::read(bytes, at, &mut text) {
            assert_eq!(end, Ok(after), "a name ends in two places");
            assert!((1..=dns::name::NAME_MAX).contains(&text.len()));
        }
    }
    let mut first = Vec::new();
    let message = dns::Message::parse(bytes, &mut first);
    let mut names: Vec<Vec<u8>> = Vec::new();
    dns::names(bytes, &mut text, |name| names.push(name.to_vec()));
    assert!(names.len() <= 2 * dns::NAMED_ENTRIES_MAX);
    if message.is_some_and(|message| message.question_type.is_some()) {
        assert_eq!(names.first(), Some(&first), "the first question has two names");
    }
}

fn hellos_are_stable(bytes: &[u8], cut: usize) {
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let prefix = fields(Hello::from_stream(&bytes[..cut], false, &mut one));
    if prefix != Detection::NeedMore {
        assert_eq!(fields(Hello::from_stream(bytes, false, &mut other)), prefix);
    }
    let prefix = fields(Hello::from_crypto(&bytes[..cut], false));
    if prefix != Detection::NeedMore {
        assert_eq!(fields(Hello::from_crypto(bytes, false)), prefix);
    }
    assert_ne!(fields(Hello::from_crypto(bytes, true)), Detection::NeedMore, "nothing more can come");
}

/// Puts the bytes into records of a length and reads the same hello as from one record.
fn one_record_or_many(bytes: &[u8], record_len: usize) {
    let bytes = &bytes[..bytes.len().min(4096)];
    let records = |len: usize| -> Vec<u8> {
        let record = |data: &[u8]| [&[22, 3, 1][..], &(data.len() as u16).to_be_bytes(), data].concat();
        bytes.chunks(len).flat_map(record).collect()
    };
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let whole = records(bytes.len().max(1));
    let wanted = fields(Hello::from_stream(&whole, true, &mut one));
    assert_eq!(fields(Hello::from_stream(&records(record_len), true, &mut other)), wanted);
}

fn datagrams_end(bytes: &[u8]) {
    for fragment in dtls::fragments(bytes) {
        assert!(fragment.bytes.len() <= bytes.len());
        fields(Hello::from_dtls(fragment.message_type, fragment.message_len, fragment.bytes, true));
    }
    let mut id = quic::ConnectionId::NONE;
    quic::decrypt_initials(bytes, &mut id, &mut Vec::new(), &mut |_, piece| {
        assert!(piece.len() < bytes.len(), "a piece is longer than its datagram");
    });
}

/// The fields of a hello, apart from the bytes in which it lies.
type Fields = (u16, Vec<u8>, Vec<Vec<u8>>, Option<String>);

fn fields(hello: Detection<Hello<'_>>) -> Detection<Fields> {
    let owned = |name: &[u8]| name.to_vec();
    match hello {
        Detection::NoMatch => Detection::NoMatch,
        Detection::NeedMore => Detection::NeedMore,
        Detection::Match(Hello::Client(client)) => {
            assert_complete_or_without_fingerprints(&client);
            let protocols = client.protocols().map(owned).collect();
            Detection::Match((client.version(), owned(client.server_name()), protocols, client.ja4()))
        }
        Detection::Match(Hello::Server(server)) => {
            Detection::Match((server.version(), Vec::new(), server.protocols().map(owned).collect(), None))
        }
    }
}

fn assert_complete_or_without_fingerprints(client: &ClientHello<'_>) {
    assert_eq!(client.ja3().is_some(), client.is_complete);
    // Transport, version, name, two counts and two letters; twelve digits; twelve digits.
    let is_formed = |ja4: String| ja4.split('_').map(str::len).eq([10, 12, 12]);
    assert_eq!(client.ja4().is_some_and(is_formed), client.is_complete);
}

/// A client's hello with the extensions that are read, without its record.
fn client_hello() -> Vec<u8> {
    let vector = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, value: &[u8]| [&kind.to_be_bytes()[..], &vector(value)].concat();
    let extensions = [
        extension(0, &vector(&[&[0][..], &vector(b"a.example")].concat())),
        extension(10, &vector(&[0x4a, 0x4a, 0, 29])),
        extension(11, &[1, 0]),
        extension(13, &vector(&[4, 3, 8, 4])),
        extension(16, &vector(b"\x02h2\x08http/1.1")),
        extension(43, &[4, 3, 4, 3, 3]),
    ]
    .concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &vector(&[0x13, 1, 0xc0, 0x2f]), &[1, 0], &vector(&extensions)]
        .concat();
    [&[1, 0][..], &vector(&body)].concat()
}

pub(crate) fn wire_seeds() -> Vec<Vec<u8>> {
    let hello = client_hello();
    let len = (hello.len() as u16).to_be_bytes();
    let record = [&[22, 3, 1][..], &len, &hello].concat();
    let server = [&[2, 0, 0, 40, 3, 3][..], &[9; 32], &[2, 1, 1, 0xc0, 0x2f, 0]].concat();
    let fragment = [&hello[..4], &[0, 0, 0, 0, 0, 0], &hello[2..4], &hello[4..]].concat();
    let fragment_len = (fragment.len() as u16).to_be_bytes();
    let dtls = [&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 1][..], &fragment_len, &fragment].concat();
    let quic = [&[0xc0, 0, 0, 0, 1, 8][..], &[7; 8], &[0, 0, 0x40, 60], &[0x5a; 60]].concat();
    let dns = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\0\x03www\x07example\x03org\0\0\x01\0\x01\
        \xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03cdn\xc0\x10\xc0\x2d\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04";
    let inputs = [record, hello, server, dtls, quic, dns.to_vec()];
    inputs
        .into_iter()
        .flat_map(|input| [[200, 40], [120, 3]].map(|head| [&head[..], &input].concat()))
        .collect()
}
