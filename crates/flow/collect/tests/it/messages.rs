//! Messages of exporters, made by hand.

use super::NOW;

/// A message with sets.
#[derive(Clone)]
pub(crate) struct Message {
    version: u16,
    uptime: u32,
    sequence: u32,
    domain: u32,
    seconds: u32,
    sets: Vec<u8>,
}

/// A message of IPFIX.
pub(crate) fn ipfix(sequence: u32) -> Message {
    Message { version: 10, uptime: 0, sequence, domain: 1, seconds: NOW as u32, sets: Vec::new() }
}

/// A message of version 9, sent at this uptime in milliseconds.
pub(crate) fn netflow9(sequence: u32, uptime: u32) -> Message {
    Message { version: 9, uptime, sequence, domain: 1, seconds: NOW as u32, sets: Vec::new() }
}

impl Message {
    pub(crate) fn of_domain(self, domain: u32) -> Message {
        Message { domain, ..self }
    }

    fn set(mut self, id: u16, content: &[u8]) -> Message {
        words(&mut self.sets, &[id, content.len() as u16 + 4]);
        self.sets.extend_from_slice(content);
        self
    }

    pub(crate) fn template(self, id: u16, fields: &[(u16, u16)]) -> Message {
        let mut content = Vec::new();
        words(&mut content, &[id, fields.len() as u16]);
        fields.iter().for_each(|(number, len)| words(&mut content, &[*number, *len]));
        let set = if self.version == 9 { 0 } else { 2 };
        self.set(set, &content)
    }

    /// Enterprise, number and length of each field.
    pub(crate) fn enterprise_template(self, id: u16, fields: &[(u32, u16, u16)]) -> Message {
        let mut content = Vec::new();
        words(&mut content, &[id, fields.len() as u16]);
        for &(enterprise, number, len) in fields {
            let bit = if enterprise == 0 { 0 } else { 0x8000 };
            words(&mut content, &[number | bit, len]);
            if enterprise != 0 {
                content.extend(enterprise.to_be_bytes());
            }
        }
        self.set(2, &content)
    }

    pub(crate) fn options_template(self, id: u16, scopes: &[(u16, u16)], fields: &[(u16, u16)]) -> Message {
        let mut content = Vec::new();
        let is_v9 = self.version == 9;
        match is_v9 {
            true => words(&mut content, &[id, scopes.len() as u16 * 4, fields.len() as u16 * 4]),
            false => words(&mut content, &[id, (scopes.len() + fields.len()) as u16, scopes.len() as u16]),
        }
        scopes.iter().chain(fields).for_each(|(number, len)| words(&mut content, &[*number, *len]));
        // Filled up to a multiple of four.
        content.extend([0, 0]);
        self.set(if is_v9 { 1 } else { 3 }, &content)
    }

    /// Octets that are in no set.
    pub(crate) fn behind(mut self, octets: &[u8]) -> Message {
        self.sets.extend_from_slice(octets);
        self
    }

    /// Sent so many seconds later.
    pub(crate) fn later(self, seconds: u32) -> Message {
        Message { seconds: self.seconds + seconds, ..self }
    }

    pub(crate) fn records(self, id: u16, records: &[Vec<u8>]) -> Message {
        self.set(id, &records.concat())
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        if self.version == 9 {
            words(&mut octets, &[9, 0]);
            octets.extend(self.uptime.to_be_bytes());
        } else {
            words(&mut octets, &[10, self.sets.len() as u16 + 16]);
        }
        for number in [self.seconds, self.sequence, self.domain] {
            octets.extend(number.to_be_bytes());
        }
        octets.extend_from_slice(&self.sets);
        octets
    }
}

fn words(out: &mut Vec<u8>, words: &[u16]) {
    words.iter().for_each(|word| out.extend(word.to_be_bytes()));
}

/// A message of version 5, sent at 100 s of uptime: packets and octets of each record.
pub(crate) fn netflow5(sequence: u32, interval: u16, records: &[(u32, u32)]) -> Vec<u8> {
    let mut octets = Vec::new();
    words(&mut octets, &[5, records.len() as u16]);
    for number in [100_000, NOW as u32, 0, sequence] {
        octets.extend(number.to_be_bytes());
    }
    words(&mut octets, &[0x0001, 0x4000 | interval]);
    for (packets, bytes) in records {
        octets.extend([10, 0, 0, 1, 10, 0, 0, 2, 10, 0, 0, 254, 0, 8, 0, 9]);
        for number in [*packets, *bytes, 80_000, 90_000] {
            octets.extend(number.to_be_bytes());
        }
        words(&mut octets, &[1234, 80]);
        octets.extend([0, 0x1b, 6, 0]);
        words(&mut octets, &[65_000, 65_001]);
        octets.extend([24, 16, 0, 0]);
    }
    octets
}

/// A datagram of sFlow: a sample of a UDP packet in VLAN 42, and one of counters.
pub(crate) fn sflow(sequence: u32, rate: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 42, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
    frame.extend([0x04, 0xd2, 0, 53, 0, 8, 0, 0]);
    let len = frame.len() as u32;
    frame.resize(len.next_multiple_of(4) as usize, 0);
    let mut header = Vec::new();
    for number in [1, len.max(64) + 4, 4, len] {
        header.extend(number.to_be_bytes());
    }
    header.extend(&frame);
    let mut sample = Vec::new();
    for number in [1, 3, rate, 1000, 0, 3, 4, 1, 1, header.len() as u32] {
        sample.extend(number.to_be_bytes());
    }
    sample.extend(&header);
    let mut octets = Vec::new();
    for number in [5_u32, 1] {
        octets.extend(number.to_be_bytes());
    }
    octets.extend([198, 51, 100, 9]);
    for number in [0, sequence, 5000, 2, 1, sample.len() as u32] {
        octets.extend(number.to_be_bytes());
    }
    octets.extend(&sample);
    for number in [2_u32, 8, 0, 0] {
        octets.extend(number.to_be_bytes());
    }
    octets
}
