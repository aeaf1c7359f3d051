//! Hellos that are complete, cut, and in pieces.

use super::*;
use proptest::prelude::*;

/// A vector behind its length of two bytes.
fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(value)].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 0][..], &vector16(body)].concat()
}

fn record(data: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &vector16(data)].concat()
}

fn be_bytes(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

/// With the suites, extensions and signatures of the example in FoxIO's description of JA4.
fn client_hello() -> Vec<u8> {
    let suites = be_bytes(&[
        0x3a3a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014,
        0x009c, 0x009d, 0x002f, 0x0035,
    ]);
    let signatures = be_bytes(&[0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601]);
    let extensions = [
        extension(0x5a5a, &[]),
        extension(0, &vector16(&[&[0][..], &vector16(b"www.example.org")].concat())),
        extension(0x17, &[]),
        extension(0xff01, &[0]),
        extension(10, &vector16(&[0x4a, 0x4a, 0, 29, 0, 23])),
        extension(11, &[1, 0]),
        extension(0x23, &[]),
        extension(16, &vector16(b"\x02h2\x08http/1.1")),
        extension(5, &[1, 0, 0, 0, 0]),
        extension(13, &vector16(&signatures)),
        extension(0x12, &[]),
        extension(0x33, &[0, 0]),
        extension(0x2d, &[1, 1]),
        extension(43, &[6, 0xaa, 0xaa, 3, 4, 3, 3]),
        extension(0x1b, &[2, 0, 2]),
        extension(0x4469, &[0, 0]),
        extension(0xaaaa, &[0]),
        extension(0x15, &[0; 20]),
    ]
    .concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &vector16(&suites), &[1, 0], &vector16(&extensions)].concat();
    message(CLIENT_HELLO, &body)
}

/// Version, server name, protocols and JA4.
type Fields = (u16, Vec<u8>, Vec<Vec<u8>>, Option<String>);

/// The fields of a hello, without the bytes that contain it.
fn fields_of(detection: Detection<Hello<'_>>) -> Detection<Fields> {
    match detection {
        Detection::NoMatch => Detection::NoMatch,
        Detection::NeedMore => Detection::NeedMore,
        Detection::Match(Hello::Client(client)) => {
            let protocols = client.protocols().map(<[u8]>::to_vec).collect();
            Detection::Match((client.version(), client.server_name().to_vec(), protocols, client.ja4()))
        }
        Detection::Match(Hello::Server(server)) => {
            let protocols = server.protocols().map(<[u8]>::to_vec).collect();
            Detection::Match((server.version(), Vec::new(), protocols, None))
        }
    }
}

fn client_of<'b>(detection: Detection<Hello<'b>>) -> ClientHello<'b> {
    match detection {
        Detection::Match(Hello::Client(client)) => client,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_hello_is_read_as_a_whole() {
    let (bytes, mut scratch) = (record(&client_hello()), Vec::new());
    let client = client_of(Hello::from_stream(&bytes, false, &mut scratch));
    assert_eq!(client.server_name(), b"www.example.org");
    assert_eq!(client.protocols().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
    assert_eq!(client.versions().collect::<Vec<_>>(), [0x0304, 0x0303]);
    assert_eq!((client.version(), client.legacy_version), (0x0304, 0x0303));
    assert_eq!(client.cipher_suites().count(), 15);
    // The example's, from FoxIO's technical description.
    assert_eq!(client.ja4().as_deref(), Some("t13d1516h2_8daaf6152771_e5627efa2ab1"));
    let text = "771,4865-4866-4867-49195-49199-49196-49200-52393-52392-49171-49172-156-157-47-53,\
        0-23-65281-10-11-35-16-5-13-18-51-45-43-27-17513-21,29-23,0";
    assert_eq!(client.ja3(), Some(<md5::Md5 as md5::Digest>::digest(text).into()));
    let of_record = Record::parse(&bytes).and_then(|record| record.hello());
    assert_eq!(of_record, Some(Hello::Client(client)));
}

#[test]
fn quic_has_no_records() {
    let hello = client_hello();
    let client = client_of(Hello::from_crypto(&hello, false));
    assert_eq!(client.ja4().as_deref(), Some("q13d1516h2_8daaf6152771_e5627efa2ab1"));
    assert_eq!(Hello::from_crypto(&hello[..hello.len() - 1], false), Detection::NeedMore);
    assert_eq!(Hello::from_crypto(&[], false), Detection::NeedMore);
    assert_eq!(Hello::from_crypto(&[4], false), Detection::NoMatch);
}

#[test]
fn records_may_cut_a_hello_anywhere() {
    let (hello, mut scratch) = (client_hello(), Vec::new());
    let bytes = record(&hello);
    let whole = fields_of(Hello::from_stream(&bytes, false, &mut scratch));
    for cut in 1..hello.len() {
        let (one, other) = hello.split_at(cut);
        let two = [record(one), record(other)].concat();
        assert_eq!(fields_of(Hello::from_stream(&two, false, &mut scratch)), whole, "{cut}");
    }
}

#[test]
fn a_cut_hello_keeps_its_captured_fields() {
    let (bytes, mut scratch) = (record(&client_hello()), Vec::new());
    for cut in 1..bytes.len() {
        assert_eq!(Hello::from_stream(&bytes[..cut], false, &mut scratch), Detection::NeedMore, "{cut}");
        if let Detection::Match(Hello::Client(client)) = Hello::from_stream(&bytes[..cut], true, &mut scratch)
        {
            assert_eq!((client.is_complete, client.ja3(), client.ja4()), (false, None, None), "{cut}");
            assert!([&b""[..], b"www.example.org"].contains(&client.server_name()));
        }
    }
    let client = client_of(Hello::from_stream(&bytes[..200], true, &mut scratch));
    assert_eq!(client.server_name(), b"www.example.org");
    // Behind the version stand 32 bytes of chance, of which the last are missing.
    assert_eq!(client_of(Hello::from_stream(&bytes[..30], true, &mut scratch)).version(), 0x0303);
}

#[test]
fn a_server_hello_tells_the_choice() {
    let mut scratch = Vec::new();
    let mut chosen = |body: &[u8]| {
        let bytes = record(&message(SERVER_HELLO, body));
        match Hello::from_stream(&bytes, false, &mut scratch) {
            Detection::Match(Hello::Server(server)) => (server.version(), server.cipher_suite),
            other => panic!("{other:?}"),
        }
    };
    let old = [&[3, 3][..], &[9; 32], &[2, 1, 1], &[0xc0, 0x2f], &[0]].concat();
    assert_eq!(chosen(&old), (0x0303, Some(0xc02f)));
    let new = [&old[..], &vector16(&extension(43, &[3, 4]))].concat();
    assert_eq!(chosen(&new), (0x0304, Some(0xc02f)));
    let draft = [&[DRAFT_VERSION, 18][..], &[9; 32], &[0x13, 1]].concat();
    assert_eq!(chosen(&draft), (0x7f12, Some(0x1301)));
    assert_eq!(chosen(&old[..20]), (0x0303, None));
}

#[test]
fn other_bytes_are_no_hello() {
    let mut scratch = Vec::new();
    for bytes in [&b"GET / HTTP/1.1"[..], &[22, 3, 1, 0, 0], &record(&[11, 0, 0, 1, 0])] {
        assert_eq!(Hello::from_stream(bytes, false, &mut scratch), Detection::NoMatch, "{bytes:?}");
    }
    assert_eq!(Hello::from_stream(&[22], false, &mut scratch), Detection::NeedMore);
    for bytes in [&b"GET / HTTP/1.1"[..], &[22, 9, 9, 0, 1, 1], &[22, 3, 1, 0, 0], &[22, 3, 1], &[]] {
        assert_eq!(Record::parse(bytes), None, "{bytes:?}");
    }
    let bytes = record(&client_hello());
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            fields_of(Hello::from_stream(&changed, true, &mut scratch));
        }
    }
}

proptest! {
    /// More bytes never change a verdict but `NeedMore`.
    #[test]
    fn a_longer_stream_confirms_its_prefix(
        at in 0_usize..300,
        value in any::<u8>(),
        lens in prop::collection::vec(1_usize..120, 1..8),
        end in 0_usize..400,
    ) {
        let mut hello = client_hello();
        if let Some(byte) = hello.get_mut(at) {
            *byte = value;
        }
        let mut rest = &hello[..];
        let mut bytes = Vec::new();
        for len in lens {
            let (data, behind) = rest.split_at(len.min(rest.len()));
            if !data.is_empty() {
                bytes.extend(record(data));
            }
            rest = behind;
        }
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let prefix = fields_of(Hello::from_stream(&bytes[..end.min(bytes.len())], false, &mut one));
        if prefix != Detection::NeedMore {
            prop_assert_eq!(fields_of(Hello::from_stream(&bytes, false, &mut other)), prefix);
        }
    }
}
