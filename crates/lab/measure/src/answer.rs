//! Output of a peer: number and identity of packets, so that speed is compared between equal answers only.
//!
//! ```text
//! pcap     header 24; per packet: time 8, captured 4, length 4, bytes
//! pcapng   blocks: type 4, length 4, body, length 4; packets are in blocks of type 6 (enhanced) and 3 (simple)
//! ```

use anyhow::{Context, bail};
use std::hash::{DefaultHasher, Hasher};
use std::io::{ErrorKind, Read};

/// Packets in order. Their times are left out: a peer may round them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number.
    pub packets: u64,
    /// Digest of the captured bytes of all packets.
    pub digest: u64,
}

/// Reads a capture in the byte order of this machine, as peers on it write.
pub fn read(input: &mut impl Read) -> anyhow::Result<Answer> {
    let mut digest = DefaultHasher::new();
    let magic = word(input)?.context("the output is empty")?;
    let packets = match magic {
        0x0a0d_0d0a => read_pcapng(input, &mut digest)?,
        0xa1b2_c3d4 | 0xa1b2_3c4d => read_pcap(input, &mut digest)?,
        _ => bail!("the output is not a capture file: it begins with {magic:08x}"),
    };
    Ok(Answer { packets, digest: digest.finish() })
}

fn read_pcap(input: &mut impl Read, digest: &mut DefaultHasher) -> anyhow::Result<u64> {
    let mut bytes = vec![0; 20];
    input.read_exact(&mut bytes)?;
    let mut packets = 0;
    while word(input)?.is_some() {
        let [_, captured, _] = [need(input)?, need(input)?, need(input)?];
        bytes.resize(captured as usize, 0);
        input.read_exact(&mut bytes)?;
        digest.write(&bytes);
        packets += 1;
    }
    Ok(packets)
}

fn read_pcapng(input: &mut impl Read, digest: &mut DefaultHasher) -> anyhow::Result<u64> {
    let mut body = Vec::new();
    let mut packets = 0;
    let mut kind = Some(0x0a0d_0d0a);
    while let Some(block) = kind {
        let len = need(input)? as usize;
        body.resize(len.checked_sub(8).context("a block shorter than its frame")?, 0);
        input.read_exact(&mut body)?;
        if block == 6 {
            let captured = u32::from_ne_bytes(body[12..16].try_into()?) as usize;
            digest.write(&body[20..20 + captured]);
            packets += 1;
        }
        kind = word(input)?;
    }
    Ok(packets)
}

/// Four bytes, or `None` at the end of the input.
fn word(input: &mut impl Read) -> anyhow::Result<Option<u32>> {
    let mut bytes = [0; 4];
    match input.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u32::from_ne_bytes(bytes))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn need(input: &mut impl Read) -> anyhow::Result<u32> {
    word(input)?.context("the output ends within a packet")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_arena::traffic::Traffic;
    use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap, write_pcapng};

    #[test]
    fn both_formats_give_the_same_answer() {
        let (mut pcap, mut pcapng) = (Vec::new(), Vec::new());
        write_pcap(&mut pcap, ETHERNET, Unit::Microseconds, Traffic::new(1).take(100)).unwrap();
        write_pcapng(&mut pcapng, ETHERNET, "eth0", Traffic::new(1).take(100)).unwrap();
        let answer = read(&mut &pcap[..]).unwrap();
        assert_eq!(answer.packets, 100);
        assert_eq!(answer, read(&mut &pcapng[..]).unwrap());
        assert!(read(&mut &pcap[..pcap.len() - 1]).is_err());
    }
}
