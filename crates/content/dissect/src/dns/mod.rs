//! DNS messages (RFC 1035, 4.1), as DNS, multicast DNS (RFC 6762) and LLMNR (RFC 4795) have them.
//!
//! ```text
//! message  = id 2, flags 2, counts 4 x 2 | questions | answers | authorities | additionals
//! question = name, type 2, class 2
//! record   = name, type 2, class 2, time to live 4, length 2, data
//! flags    = QR, opcode 4, AA, TC, RD | RA, Z, AD, CD, rcode 4
//! ```
//!
//! Over TCP two bytes of length go before each message (RFC 1035, 4.2.2); readers here begin behind them.

use std::net::IpAddr;

pub mod name;

/// Bytes of the header of a message.
pub const HEADER_LEN: usize = 12;

/// Bits of [`Header::flags`].
pub mod flag {
    /// QR: the message is a response.
    pub const RESPONSE: u16 = 0x8000;
    /// AA: the server is an authority for the name.
    pub const AUTHORITATIVE: u16 = 0x0400;
    /// TC: the message was cut to the limit of the transport.
    pub const TRUNCATED: u16 = 0x0200;
    /// RD: the client requests recursion.
    pub const RECURSION_DESIRED: u16 = 0x0100;
    /// RA: the server offers recursion.
    pub const RECURSION_AVAILABLE: u16 = 0x0080;
    /// AD: the server verified the data (RFC 4035, 3.2.3).
    pub const AUTHENTIC_DATA: u16 = 0x0020;
    /// CD: the client verifies data itself (RFC 4035, 3.2.2).
    pub const CHECKING_DISABLED: u16 = 0x0010;
}

/// The largest opcode that was given out (RFC 8490: DSO).
const OPCODE_MAX: u8 = 6;

/// Type CNAME, whose data is a name.
const CNAME: u16 = 5;
/// Types whose data is an address: A and AAAA (RFC 3596).
const ADDRESS: [(u16, usize); 2] = [(1, 4), (28, 16)];
/// The Internet's class; the top bit is multicast DNS's (RFC 6762, 10.2).
const INTERNET: u16 = 1;

/// The fixed part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identifier, equal in a query and its response.
    pub id: u16,
    /// Flags, opcode and response code; see [`flag`].
    pub flags: u16,
    /// Number of questions.
    pub questions: u16,
    /// Number of records in the answer section.
    pub answers: u16,
    /// Number of records in the authority section.
    pub authorities: u16,
    /// Number of records in the additional section.
    pub additionals: u16,
}

impl Header {
    /// Reads the first [`HEADER_LEN`] bytes of a message; `None` if there are fewer.
    pub fn parse(message: &[u8]) -> Option<Header> {
        let head: &[u8; HEADER_LEN] = message.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        Some(Header {
            id: word(0),
            flags: word(2),
            questions: word(4),
            answers: word(6),
            authorities: word(8),
            additionals: word(10),
        })
    }

    /// Whether a bit of [`flag`] is set.
    pub const fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Kind of query, 0 to 15; 0 is the standard query.
    pub const fn opcode(self) -> u8 {
        (self.flags >> 11 & 15) as u8
    }

    /// RCODE, 0 to 15, without the upper bits that an OPT record may add (RFC 6891, 6.1.3).
    pub const fn response_code(self) -> u8 {
        (self.flags & 15) as u8
    }
}

/// The header of a message, and its first question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The fixed part.
    pub header: Header,
    /// Type of record that the first question asks for (IANA, DNS Parameters); `None` without a question.
    pub question_type: Option<u16>,
}

impl Message {
    /// Reads a message, and the name of its first question in [text form](name::read) into `name`, which is cleared
    /// before. `None` if the bytes are not a message: opcodes that were never given out, or a first question whose
    /// name does not end within the bytes.
    pub fn parse(message: &[u8], name: &mut Vec<u8>) -> Option<Message> {
        name.clear();
        let header = Header::parse(message)?;
        if header.opcode() > OPCODE_MAX {
            return None;
        }
        let question_type = match header.questions {
            0 => None,
            _ => {
                let after = name::read(message, HEADER_LEN, name)?;
                Some(u16_at(message, after)?)
            }
        };
        Some(Message { header, question_type })
    }
}

/// Most entries of a message that [`names`] looks at.
pub const NAMED_ENTRIES_MAX: usize = 64;

/// Passes to `each` the names of questions, of records in the answer section, and those that CNAME records lead to,
/// in [text form](name::read), as far as the message can be read and up to [`NAMED_ENTRIES_MAX`] entries. A name may
/// come several times, and those without a text form are skipped. `scratch` holds one name at a time.
pub fn names(message: &[u8], scratch: &mut Vec<u8>, mut each: impl FnMut(&[u8])) {
    let Some(header) = Header::parse(message).filter(|header| header.opcode() <= OPCODE_MAX) else { return };
    let mut name_at = |at: usize| {
        scratch.clear();
        let Some(after) = name::read(message, at, scratch) else { return name::skip(message, at) };
        each(scratch);
        Some(after)
    };
    let mut read_entries = || {
        let mut at = HEADER_LEN;
        let questions = usize::from(header.questions).min(NAMED_ENTRIES_MAX);
        for _ in 0..questions {
            at = name_at(at)? + 4;
        }
        for _ in 0..usize::from(header.answers).min(NAMED_ENTRIES_MAX - questions) {
            let fixed = name_at(at)?;
            if u16_at(message, fixed)? == CNAME {
                name_at(fixed + 10)?;
            }
            at = fixed + 10 + usize::from(u16_at(message, fixed + 8)?);
        }
        Some(())
    };
    // If the message ends early, the names before its end were given.
    let _: Option<()> = read_entries();
}

/// Passes to `each` the addresses that the answer section of a message has for the name of its first question, aliases
/// followed; without a question, as multicast DNS answers, for the name of the first address. `name` gets that name in
/// [text form](name::read). It looks at [`NAMED_ENTRIES_MAX`] entries, and stops where the message cannot be read.
pub fn addresses(message: &[u8], name: &mut Vec<u8>, mut each: impl FnMut(IpAddr)) {
    name.clear();
    let Some(header) = Header::parse(message).filter(|header| header.opcode() <= OPCODE_MAX) else { return };
    let mut owner = Vec::new();
    let mut read_entries = || {
        let mut at = HEADER_LEN;
        let questions = usize::from(header.questions).min(NAMED_ENTRIES_MAX);
        for number in 0..questions {
            at = if number == 0 { name::read(message, at, name)? } else { name::skip(message, at)? } + 4;
        }
        for _ in 0..usize::from(header.answers).min(NAMED_ENTRIES_MAX - questions) {
            let fixed = name::skip(message, at)?;
            let (kind, class) = (u16_at(message, fixed)?, u16_at(message, fixed + 2)? & 0x7fff);
            let len = usize::from(u16_at(message, fixed + 8)?);
            let data = message.get(fixed + 10..)?.get(..len)?;
            if class == INTERNET && ADDRESS.contains(&(kind, len)) {
                if questions == 0 {
                    owner.clear();
                    name::read(message, at, &mut owner)?;
                    if name.is_empty() {
                        name.clone_from(&owner);
                    }
                }
                if questions > 0 || owner == *name {
                    each(address(data)?);
                }
            }
            at = fixed + 10 + len;
        }
        Some(())
    };
    // If the message ends early, the addresses before its end were given.
    let _: Option<()> = read_entries();
}

fn address(data: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(data).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(data).map(IpAddr::from)).ok()
}

fn u16_at(message: &[u8], at: usize) -> Option<u16> {
    message.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x1c\0\x01";

    #[test]
    fn questions_and_answers_are_read() {
        let mut name = Vec::new();
        let message = Message::parse(QUERY, &mut name).expect("a query");
        assert_eq!((message.header.id, message.header.has(flag::RESPONSE)), (0x1234, false));
        assert_eq!((message.question_type, name.as_slice()), (Some(28), &b"www.example.org"[..]));
        let answer = b"\x12\x34\x81\x83\0\x01\0\x02\0\0\0\0\0\0\x02\0\x01\xc0\x0c";
        let message = Message::parse(answer, &mut name).expect("a response");
        assert!(message.header.has(flag::RESPONSE));
        assert_eq!((message.header.response_code(), message.header.answers), (3, 2));
        assert_eq!((message.question_type, name.as_slice()), (Some(2), &b"."[..]));
    }

    #[test]
    fn other_bytes_are_no_messages() {
        let mut name = Vec::new();
        for cut in 0..QUERY.len() - 2 {
            assert_eq!(Message::parse(&QUERY[..cut], &mut name), None, "{cut}");
        }
        // The first question has nothing before it that a pointer may lead to.
        let to_itself = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01";
        assert_eq!(Message::parse(to_itself, &mut name), None);
        let to_the_header = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\xc0\x04\0\x01";
        assert_eq!(Message::parse(to_the_header, &mut name), None);
        assert_eq!(Message::parse(&[0xff; 40], &mut name), None);
    }

    fn all_names(message: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        names(message, &mut Vec::new(), |name| found.push(String::from_utf8_lossy(name).into_owned()));
        found
    }

    #[test]
    fn names_of_answers_follow_aliases() {
        let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03cdn\xc0\x10";
        let address = b"\xc0\x2d\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04";
        let mut message = [QUERY, alias, address].concat();
        (message[2], message[7]) = (0x81, 2);
        let wanted = ["www.example.org", "www.example.org", "cdn.example.org", "cdn.example.org"];
        assert_eq!(all_names(&message), wanted);
        for cut in 0..message.len() {
            assert!(
                wanted
                    .starts_with(&all_names(&message[..cut]).iter().map(String::as_str).collect::<Vec<_>>())
            );
        }
    }

    fn all_addresses(message: &[u8]) -> (String, Vec<String>) {
        let (mut name, mut found) = (Vec::new(), Vec::new());
        addresses(message, &mut name, |address| found.push(address.to_string()));
        (String::from_utf8_lossy(&name).into_owned(), found)
    }

    #[test]
    fn addresses_have_the_name_that_was_asked_for() {
        let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03cdn\xc0\x10";
        let four = b"\xc0\x2d\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04";
        let six = [&b"\xc0\x2d\0\x1c\0\x01\0\0\0\x3c\0\x10\x20\x01\x0d\xb8"[..], &[0; 11], &[1]].concat();
        let text = b"\xc0\x2d\0\x10\0\x01\0\0\0\x3c\0\x04\x03abc";
        let mut message = [QUERY, alias, four, text, &six].concat();
        (message[2], message[7]) = (0x81, 4);
        let wanted = ["1.2.3.4", "2001:db8::1"];
        let found = all_addresses(&message);
        assert_eq!((found.0.as_str(), &found.1[..]), ("www.example.org", &wanted.map(str::to_owned)[..]));
        for cut in 0..message.len() {
            let found = all_addresses(&message[..cut]).1;
            assert!(found.iter().eq(wanted.iter().take(found.len())), "{cut}");
        }
        // A length that is not that of an address, and another class.
        for (at, value) in [(QUERY.len() + 18 + 11, 3), (QUERY.len() + 18 + 5, 3)] {
            let mut other = message.clone();
            other[at] = value;
            assert!(!all_addresses(&other).1.contains(&"1.2.3.4".to_owned()));
        }
    }

    #[test]
    fn answers_without_a_question_have_their_own_name() {
        let record =
            |name: &[u8], last: u8| [name, b"\0\x01\x80\x01\0\0\0\x78\0\x04\x0a\0\0", &[last]].concat();
        let head = b"\0\0\x84\0\0\0\0\x03\0\0\0\0";
        let printer = b"\x07printer\x05local\0";
        let message =
            [&head[..], &record(printer, 5), &record(b"\x05other\0", 6), &record(b"\xc0\x0c", 7)].concat();
        let addresses = ["10.0.0.5", "10.0.0.7"].map(str::to_owned).to_vec();
        assert_eq!(all_addresses(&message), ("printer.local".to_owned(), addresses));
    }

    #[test]
    fn names_behind_one_that_is_too_long_are_given() {
        let long = [b"\x3f".as_slice(), &[b'a'; 63]].concat().repeat(5);
        let mut message =
            [&QUERY[..HEADER_LEN], &long, &[0], &QUERY[QUERY.len() - 4..], &QUERY[HEADER_LEN..]].concat();
        message[5] = 2;
        assert_eq!(all_names(&message), ["www.example.org"]);
    }

    #[test]
    fn the_work_of_one_message_is_bounded() {
        let mut message = vec![0; HEADER_LEN];
        (message[4], message[6]) = (0xff, 0xff);
        message.extend([0; 4096]);
        assert_eq!(all_names(&message).len(), NAMED_ENTRIES_MAX);
        let record = b"\0\0\x01\0\x01\0\0\0\0\0\x04\x01\x02\x03\x04";
        let message = [&[0, 0, 0x84, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0][..], &record.repeat(1000)].concat();
        assert_eq!(all_addresses(&message).1.len(), NAMED_ENTRIES_MAX);
    }
}
