//! DNS messages (RFC 1035, 4.1): the first question, and of answers their code and number.

/// The longest name, with its dots.
const NAME_MAX: usize = 255;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: u16,
    pub(super) is_response: bool,
    pub(super) code: u8,
    pub(super) answers: u16,
    /// The type of the first question, if there is one.
    pub(super) kind: Option<u16>,
}

/// Whether a port is that of DNS, multicast DNS or LLMNR.
pub(super) fn is_port(port: u16) -> bool {
    matches!(port, 53 | 5353 | 5355)
}

/// Reads a message, and the name of its first question into `name`; `None` if it is none.
pub(super) fn read(bytes: &[u8], name: &mut Vec<u8>) -> Option<Message> {
    name.clear();
    let head: &[u8; 12] = bytes.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let flags = word(2);
    // Opcodes up to 6 are given out (RFC 8490).
    if flags >> 11 & 0xf > 6 {
        return None;
    }
    let kind = match word(4) {
        0 => None,
        _ => Some(question(&bytes[12..], name)?),
    };
    Some(Message {
        id: word(0),
        is_response: flags >> 15 == 1,
        code: (flags & 0xf) as u8,
        answers: word(6),
        kind,
    })
}

/// The type of a question whose name goes into `name`.
fn question(mut bytes: &[u8], name: &mut Vec<u8>) -> Option<u16> {
    loop {
        let (len, rest) = bytes.split_first()?;
        if *len == 0 {
            bytes = rest;
            break;
        }
        // Before the first name there is nothing that it could point to.
        if *len > 63 || name.len() + usize::from(*len) > NAME_MAX {
            return None;
        }
        let (label, rest) = rest.split_at_checked(usize::from(*len))?;
        if !name.is_empty() {
            name.push(b'.');
        }
        name.extend_from_slice(label);
        bytes = rest;
    }
    if name.is_empty() {
        name.push(b'.');
    }
    let &[high, low] = bytes.first_chunk()?;
    Some(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_are_read() {
        let mut name = Vec::new();
        let query = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x1c\0\x01";
        let message = read(query, &mut name).expect("it is one");
        assert_eq!((message.id, message.is_response), (0x1234, false));
        assert_eq!((message.kind, name.as_slice()), (Some(28), &b"www.example.org"[..]));
        let answer = b"\x12\x34\x81\x83\0\x01\0\x02\0\0\0\0\0\0\x02\0\x01\xc0\x0c";
        let message = read(answer, &mut name).expect("it is one");
        assert_eq!((message.is_response, message.code, message.answers), (true, 3, 2));
        assert_eq!((message.kind, name.as_slice()), (Some(2), &b"."[..]));
        for cut in 0..query.len() - 2 {
            assert_eq!(read(&query[..cut], &mut name), None, "{cut}");
        }
        assert_eq!(read(b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01", &mut name), None);
        assert_eq!(read(&[0xff; 40], &mut name), None);
    }
}
