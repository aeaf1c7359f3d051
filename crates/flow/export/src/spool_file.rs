//! The format of a block in a spool.
//!
//! ```text
//! offset  length  all numbers little-endian
//! 0       8       TAPLBLK2
//! 8       4       CRC-32C of all that follows
//! 12      8       epoch
//! 20      8       number
//! 28      8       version of the columns
//! 36      8       flows
//! 44      8       rows
//! 52      8       packets
//! 60      8       start of the earliest flow, nanoseconds since 1970
//! 68      8       end of the latest flow
//! 76      8       bytes of the rows
//! 84      1       length of the sensor's name, 1 to 64
//! 85      1       length of the encoding's name, 1 to 16
//! 86      8       packets of the run before these
//! 94              the sensor's name, the encoding's name, the rows
//! ```
//!
//! TAPLBLK1 is the same without the packets before, and is read.

use std::io;

use crate::account::Tally;
use crate::{Block, BlockId, Encoding, Sensor};

const MAGIC: &[u8; 8] = b"TAPLBLK2";
const FORMER_MAGIC: &[u8; 8] = b"TAPLBLK1";
/// Bytes before the names, of the former format and of this one.
const FORMER_FIXED: usize = 86;
const FIXED: usize = FORMER_FIXED + 8;
/// The longest name of a sensor, and of an encoding.
const SENSOR_MAX: usize = 64;
const ENCODING_MAX: usize = 16;
/// The most bytes before the rows.
pub(crate) const HEAD_MAX: usize = FIXED + SENSOR_MAX + ENCODING_MAX;

/// The head of a file, before the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    id: BlockId,
    pub(crate) encoding: Encoding,
    schema: u64,
    pub(crate) tally: Tally,
    packets_before: u64,
    first_ns: i64,
    last_ns: i64,
    /// Bytes of the head, and of the rows.
    len: usize,
    rows_len: u64,
    checksum: u32,
}

/// The head of a block, before the rows.
pub(crate) fn head(block: &Block) -> Vec<u8> {
    let (sensor, encoding) = (block.id.sensor.as_str(), block.encoding.name());
    let mut bytes = Vec::with_capacity(HEAD_MAX);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    let Block { id, schema, flows, rows, packets, first_ns, last_ns, .. } = block;
    let numbers = [id.epoch, id.number, *schema, *flows, *rows, *packets, *first_ns as u64, *last_ns as u64];
    for number in numbers.into_iter().chain([block.bytes.len() as u64]) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&[sensor.len() as u8, encoding.len() as u8]);
    bytes.extend_from_slice(&block.packets_before.to_le_bytes());
    bytes.extend_from_slice(sensor.as_bytes());
    bytes.extend_from_slice(encoding.as_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[12..]), &block.bytes);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no block of a spool: {what}"))
}

impl Head {
    /// Reads the head at the beginning of a file. The checksum is not looked at.
    pub(crate) fn parse(bytes: &[u8]) -> io::Result<Head> {
        let fixed: &[u8; FORMER_FIXED] = bytes.first_chunk().ok_or_else(|| wrong("it is cut short"))?;
        let names = match fixed {
            _ if fixed.starts_with(MAGIC) => FIXED,
            _ if fixed.starts_with(FORMER_MAGIC) => FORMER_FIXED,
            _ => return Err(wrong("it begins otherwise")),
        };
        let number = |at: usize| {
            let mut octets = [0; 8];
            octets.copy_from_slice(&fixed[12 + 8 * at..20 + 8 * at]);
            u64::from_le_bytes(octets)
        };
        let packets_before = match bytes.get(FORMER_FIXED..names).map(<[u8; 8]>::try_from) {
            Some(Ok(octets)) => u64::from_le_bytes(octets),
            Some(Err(_)) => 0,
            None => return Err(wrong("it is cut short")),
        };
        let (sensor_len, encoding_len) = (usize::from(fixed[84]), usize::from(fixed[85]));
        let text = |from: usize, len: usize| {
            let name = bytes.get(from..from + len).ok_or_else(|| wrong("it is cut short"))?;
            std::str::from_utf8(name).map_err(|_| wrong("a name is not text"))
        };
        let sensor = Sensor::new(text(names, sensor_len)?).map_err(|error| wrong(&error.to_string()))?;
        let encoding = text(names + sensor_len, encoding_len)?;
        let encoding = Encoding::of_name(encoding).ok_or_else(|| wrong("its encoding is unknown"))?;
        Ok(Head {
            id: BlockId { sensor, epoch: number(0), number: number(1) },
            encoding,
            schema: number(2),
            tally: Tally { flows: number(3), rows: number(4), packets: number(5) },
            packets_before,
            first_ns: number(6) as i64,
            last_ns: number(7) as i64,
            len: names + sensor_len + encoding_len,
            rows_len: number(8),
            checksum: u32::from_le_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        })
    }
}

/// Reads a whole file.
pub(crate) fn parse(bytes: &[u8]) -> io::Result<Block> {
    let head = Head::parse(bytes)?;
    let rows = bytes.get(head.len..).unwrap_or_default();
    if rows.len() as u64 != head.rows_len {
        return Err(wrong("its length is another"));
    }
    if crc32c::crc32c(&bytes[12..]) != head.checksum {
        return Err(wrong("its checksum is another"));
    }
    let Head { id, encoding, schema, tally, packets_before, first_ns, last_ns, .. } = head;
    let Tally { flows, rows: count, packets } = tally;
    Ok(Block {
        id,
        encoding,
        schema,
        flows,
        rows: count,
        packets,
        packets_before,
        first_ns,
        last_ns,
        bytes: rows.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::block;

    #[test]
    fn a_file_gives_the_block_back_or_an_error() {
        let block = Block { packets_before: 1 << 40, ..block(3, b"{\"a\":1}\n") };
        let mut bytes = head(&block);
        bytes.extend_from_slice(&block.bytes);
        assert_eq!(parse(&bytes).expect("it is whole"), block);
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            assert!(parse(&changed).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn files_of_the_former_format_are_read() {
        let block = block(3, b"{}\n");
        let mut bytes = head(&block);
        bytes.drain(FORMER_FIXED..FIXED);
        bytes[..8].copy_from_slice(FORMER_MAGIC);
        bytes.extend_from_slice(&block.bytes);
        let checksum = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(parse(&bytes).expect("it is whole"), block);
    }
}
