use super::*;

fn stream(bytes: &[u8]) -> Option<Sign> {
    match of_stream(bytes, true) {
        Detection::Match(sign) => Some(sign),
        Detection::NoMatch => None,
        Detection::NeedMore => panic!("no more can come: {bytes:?}"),
    }
}

fn named(bytes: &[u8]) -> Option<&'static str> {
    match stream(bytes)? {
        Sign::Application(name) => Some(name),
        Sign::Hint(_) => None,
    }
}

/// The greeting of a server of version 8, up to the second part of its random bytes.
fn mysql_greeting() -> Vec<u8> {
    let body =
        [&[10][..], b"8.0.36\0", &[9, 0, 0, 0], b"random88", &[0, 0xff, 0xff, 8, 2, 0], &[7; 40]].concat();
    [&[body.len() as u8, 0, 0, 0][..], &body].concat()
}

fn mysql_answer() -> Vec<u8> {
    let body = [&[0x85, 0xa6, 0xff, 0x19, 0, 0, 0, 1, 45][..], &[0; 23], b"root\0"].concat();
    [&[body.len() as u8, 0, 0, 1][..], &body].concat()
}

const BIND: &[u8] = &[0x30, 12, 2, 1, 1, 0x60, 7, 2, 1, 3, 4, 0, 0x80, 0];
const SEARCH: &[u8] = b"\x30\x84\0\0\0\x11\x02\x01\x02\x63\x84\0\0\0\x08\x04\0\x0a\x01\0\x0a\x01\0";

/// First bytes of each protocol, and its name.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let rdp_request = b"\x03\0\0\x13\x0e\xe0\0\0\0\0\0\x01\0\x08\0\x0b\0\0\0";
    let rdp_confirm = b"\x03\0\0\x13\x0e\xd0\0\0\x12\x34\0\x02\x1f\x08\0\x02\0\0\0";
    let rdp_cookie = b"\x03\0\0\x2a\x25\xe0\0\0\0\0\0Cookie: mstshash=eltons\r\n\x01\0\x08\0\0\0\0\0";
    let all: [(&str, &[u8]); 28] = [
        (FTP, b"220 (vsFTPd 3.0.3)\r\n"),
        (FTP, b"220-FileZilla Server\r\n220 Welcome to FTP\r\n"),
        (FTP, b"AUTH TLS\r\n"),
        (SMTP, b"220 mail.example.org ESMTP Postfix\r\n"),
        (SMTP, b"EHLO me.example.org\r\n"),
        (SMTP, b"helo me\r\n"),
        (SIP, b"INVITE sip:bob@example.org SIP/2.0\r\n"),
        (SIP, b"OPTIONS bob SIP/2.0\r\n"),
        (SIP, b"SIP/2.0 100 Trying\r\n"),
        (REDIS, b"*1\r\n$4\r\nPING\r\n"),
        (REDIS, b"+PONG\r\n"),
        (REDIS, b"-NOAUTH Authentication required.\r\n"),
        (MQTT, b"\x10\x16\0\x04MQTT\x04\x02\0\x3c\0\x0aclient-id1"),
        (MQTT, b"\x10\x80\x01\0\x04MQTT\x05\x02"),
        (MQTT, b"\x10\x12\0\x06MQIsdp\x03\x02\0\x3c\0\x04abcd"),
        (MYSQL, b"\x45\0\0\0\xff\x6a\x04Host '10.0.0.9' is not allowed to connect to this MySQL server"),
        (POSTGRESQL, b"\0\0\0\x08\x04\xd2\x16\x2f"),
        (POSTGRESQL, b"\0\0\0\x13\0\x03\0\0user\0joe\0\0"),
        (POSTGRESQL, b"R\0\0\0\x08\0\0\0\0"),
        (LDAP, BIND),
        (LDAP, SEARCH),
        (LDAP, b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\0\x04\0\x04\0"),
        (LDAP, b"\x30\x05\x02\x01\x07\x42\0"),
        (LDAP, b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"),
        (RDP, rdp_request),
        (RDP, rdp_confirm),
        (RDP, rdp_cookie),
        (REDIS, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"),
    ];
    let all = all.into_iter().map(|(name, bytes)| (name, bytes.to_vec()));
    all.chain([(MYSQL, mysql_greeting()), (MYSQL, mysql_answer())]).collect()
}

#[test]
fn first_bytes_show_their_application() {
    for (name, bytes) in samples() {
        assert_eq!(named(&bytes), Some(name), "{}", bytes.escape_ascii());
    }
}

/// A piece of a sample is never taken for another application, and more is not waited for without end.
#[test]
fn pieces_of_samples_are_not_mistaken() {
    for (name, bytes) in samples() {
        for len in 1..=bytes.len() {
            match of_stream(&bytes[..len], false) {
                Detection::Match(Sign::Application(found)) => assert_eq!(found, name, "{len}"),
                Detection::Match(Sign::Hint(_)) | Detection::NoMatch => {}
                Detection::NeedMore => assert!(len < bytes.len(), "{name} {len}"),
            }
        }
    }
    let long = [&b"220 "[..], &[b'a'; 600]].concat();
    assert_eq!(of_stream(&long, false), Detection::Match(Sign::Hint(Hint::Greeting)));
    let long = [&b"OPTIONS "[..], &[b'a'; 600]].concat();
    assert_eq!(of_stream(&long, false), Detection::NoMatch);
}

#[test]
fn both_sides_together_show_ftp() {
    let (greeting, login) = (stream(b"220 ready\r\n"), stream(b"USER anonymous\r\n"));
    assert_eq!((greeting, login), (Some(Sign::Hint(Hint::Greeting)), Some(Sign::Hint(Hint::Login))));
    assert_eq!((Hint::Greeting.with(Hint::Login), Hint::Login.with(Hint::Login)), (Some(FTP), None));
}

/// First bytes of other protocols that look like these.
#[test]
fn others_are_not_mistaken() {
    let kerberos = [0, 0, 1, 0x20, 0x6a, 0x82, 1, 0x1c];
    let s7 = b"\x03\0\0\x16\x11\xe0\0\0\0\x01\0\xc0\x01\x0a\xc1\x02\x01\0\xc2\x02\x01\x02";
    let snmp = b"\x30\x26\x02\x01\x01\x04\x06public\xa0\x19\x02\x01\x01";
    let others: [&[u8]; 15] = [
        &kerberos,
        s7,
        snmp,
        b"GET / HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"OPTIONS rtsp://a/b RTSP/1.0\r\n",
        b"+OK POP3 ready\r\n",
        b"-ERR no such user\r\n",
        b"200 news ready\r\n",
        b"* OK IMAP4rev1\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        &[0x10, 2, 0, 0],
        &[0, 0, 0, 0x55, 0xff, b'S', b'M', b'B', 0x72, 0],
        &[0; 64],
    ];
    for other in others {
        assert_eq!(stream(other), None, "{}", other.escape_ascii());
    }
    assert_eq!(stream(b"USER guest 0 * :IRC\r\n"), Some(Sign::Hint(Hint::Login)));
}

#[test]
fn datagrams_show_their_application() {
    let mut client = [0; 48];
    client[0] = 0x23;
    assert_eq!(of_datagram(&client), Some(NTP));
    let server = [
        &[0x24, 2, 6, 0xe9, 0, 0, 4, 0, 0, 0, 2, 0, 192, 0, 2, 1][..],
        &[0xe0, 1, 2, 3, 0, 0, 0, 0],
        &[0xe0, 1, 2, 3, 0, 0, 0, 0],
        &[0xe0, 1, 2, 4, 0, 0, 0, 0],
        &[0xe0, 1, 2, 4, 0, 0, 0, 1],
    ]
    .concat();
    assert_eq!(of_datagram(&server), Some(NTP));
    for (at, wrong) in [(0, 0xc6), (1, 17), (2, 18), (3, 5), (4, 1), (8, 1), (40, 0x12)] {
        let mut other = server.clone();
        other[at] = wrong;
        assert_eq!(of_datagram(&other), None, "{at}");
    }
    assert_eq!(of_datagram(&server[..47]), None);
    let control = [0x16, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!((of_datagram(&control), of_datagram(&control[..11])), (Some(NTP), None));
    assert_eq!(of_datagram(&[&control[..11], &[5]].concat()), None, "five bytes of data are missing");
    let list = [&[0x17, 0, 3, 0x2a][..], &[0; 44]].concat();
    assert_eq!((of_datagram(&list), of_datagram(&[&list[..], &[1]].concat())), (Some(NTP), None));
    assert_eq!(of_datagram(BIND), Some(LDAP));
    assert_eq!(of_datagram(b"REGISTER sip:example.org SIP/2.0\r\n"), Some(SIP));
    let rdp = [&[0xff; 4][..], &[0, 64, 0, 1, 1, 2, 3, 4, 4, 0xd0, 4, 0xd0], &[0; 1216]].concat();
    assert_eq!(of_datagram(&rdp), Some(RDP));
    assert_eq!(of_datagram(b"\0\x01\0\0\x21\x12\xa4\x42"), None);
    assert_eq!((of_datagram(b""), of_datagram(&[0; 48])), (None, None));
}
