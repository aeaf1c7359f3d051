//! Reads files that programs on this machine wrote, strictly: anything odd is an error, so that a test sees it.

/// A packet of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPacket {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Length on the wire.
    pub wire_len: u32,
    /// The number of its interface in the file; 0 in pcap.
    pub interface: u32,
    /// Packets that the file says were lost just before it (`epb_dropcount`); 0 in pcap.
    pub drops: u64,
    /// The captured bytes.
    pub data: Vec<u8>,
}

/// All packets of a whole pcap or pcapng file in this machine's byte order.
///
/// # Errors
/// The first fault, with its offset: a file must be complete to its last byte.
pub fn read_packets(file: &[u8]) -> Result<Vec<StoredPacket>, String> {
    let mut cursor = Cursor { bytes: file, at: 0 };
    match cursor.word()? {
        0xa1b2_c3d4 => read_pcap(cursor, 1000),
        0xa1b2_3c4d => read_pcap(cursor, 1),
        0x0a0d_0d0a => read_pcapng(Cursor { bytes: file, at: 0 }),
        magic => Err(format!("not a capture file: it begins with {magic:08x}")),
    }
}

fn read_pcap(mut cursor: Cursor<'_>, unit_ns: u64) -> Result<Vec<StoredPacket>, String> {
    cursor.take(20)?;
    let mut packets = Vec::new();
    while !cursor.is_at_end() {
        let [seconds, fraction, captured, wire_len] =
            [cursor.word()?, cursor.word()?, cursor.word()?, cursor.word()?];
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit_ns;
        let data = cursor.take(captured as usize)?.to_vec();
        packets.push(StoredPacket { time_ns, wire_len, interface: 0, drops: 0, data });
    }
    Ok(packets)
}

fn read_pcapng(mut cursor: Cursor<'_>) -> Result<Vec<StoredPacket>, String> {
    let mut packets = Vec::new();
    // Nanoseconds of one unit of time, for each interface.
    let mut units_ns: Vec<u64> = Vec::new();
    while !cursor.is_at_end() {
        let start = cursor.at;
        let (kind, len) = (cursor.word()?, cursor.word()? as usize);
        let body_len = len.checked_sub(12).ok_or_else(|| format!("block of {len} bytes at {start}"))?;
        let mut body = Cursor { bytes: cursor.take(body_len)?, at: 0 };
        if cursor.word()? as usize != len {
            return Err(format!("the block at {start} has two lengths"));
        }
        match kind {
            0x0a0d_0d0a => units_ns.clear(),
            1 => units_ns.push(unit_of_interface(body)?),
            6 => packets.push(read_enhanced_packet(&mut body, &units_ns)?),
            _ => {}
        }
    }
    Ok(packets)
}

fn unit_of_interface(mut body: Cursor<'_>) -> Result<u64, String> {
    body.take(8)?;
    let mut unit_ns = 1000;
    while let Some((code, value)) = body.option()? {
        if code == 9 {
            // if_tsresol: only powers of ten up to nanoseconds have a whole number of nanoseconds.
            let digits =
                value.first().copied().filter(|digits| *digits <= 9).ok_or("a resolution beyond 10^-9")?;
            unit_ns = 10_u64.pow(9 - u32::from(digits));
        }
    }
    Ok(unit_ns)
}

fn read_enhanced_packet(body: &mut Cursor<'_>, units_ns: &[u64]) -> Result<StoredPacket, String> {
    let interface = body.word()?;
    let unit_ns = units_ns.get(interface as usize).ok_or_else(|| format!("no interface {interface}"))?;
    let time = u64::from(body.word()?) << 32 | u64::from(body.word()?);
    let (captured, wire_len) = (body.word()? as usize, body.word()?);
    let data = body.take(captured)?.to_vec();
    body.take(captured.next_multiple_of(4) - captured)?;
    let mut drops = 0;
    while let Some((code, value)) = body.option()? {
        if code == 4 {
            drops = value.try_into().map(u64::from_ne_bytes).map_err(|_| "a drop count of another length")?;
        }
    }
    Ok(StoredPacket { time_ns: time.wrapping_mul(*unit_ns), wire_len, interface, drops, data })
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let end = self.at.saturating_add(len);
        let taken = self.bytes.get(self.at..end).ok_or_else(|| {
            format!("{len} bytes wanted at offset {}, {} are there", self.at, self.bytes.len() - self.at)
        })?;
        self.at = end;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// The next option: code and value. `None` at the end of the options.
    fn option(&mut self) -> Result<Option<(u16, &'a [u8])>, String> {
        if self.is_at_end() {
            return Ok(None);
        }
        let head = self.take(4)?;
        let (code, len) = (u16::from_ne_bytes([head[0], head[1]]), u16::from_ne_bytes([head[2], head[3]]));
        let value = self.take(usize::from(len))?;
        self.take(usize::from(len).next_multiple_of(4) - usize::from(len))?;
        Ok((code != 0).then_some((code, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EPOCH, ETHERNET, Unit, write_pcap, write_pcapng};
    use super::*;
    use crate::traffic::Traffic;

    #[test]
    fn written_files_are_read_back() {
        let frames: Vec<_> = Traffic::new(1).take(50).collect();
        let (mut pcap, mut pcapng) = (Vec::new(), Vec::new());
        write_pcap(&mut pcap, ETHERNET, Unit::Nanoseconds, frames.iter().cloned()).expect("memory");
        write_pcapng(&mut pcapng, ETHERNET, "eth0", frames.iter().cloned()).expect("memory");
        for file in [&pcap, &pcapng] {
            let packets = read_packets(file).expect("whole");
            assert_eq!(packets.len(), frames.len());
            for (packet, (at, frame)) in packets.iter().zip(&frames) {
                assert_eq!(u128::from(packet.time_ns), (EPOCH + *at).as_nanos());
                assert_eq!((&packet.data, packet.wire_len as usize), (frame, frame.len()));
            }
            assert!(read_packets(&file[..file.len() - 1]).is_err());
        }
    }
}
