//! Capture files built by hand, byte for byte, and ways to read them back.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::Cursor;

use tapline_file::{ByteOrder, Error, FileSource};
use tapline_packet::{Batch, Interface, Meta};

/// A packet that was read, with a copy of its bytes and options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) data: Vec<u8>,
    pub(crate) meta: Meta,
    pub(crate) options: Vec<u8>,
}

/// All that a file gave: packets, and how it ended.
pub(crate) struct Whole {
    pub(crate) packets: Vec<Read>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) error: Option<Error>,
}

/// Reads a file from memory to its end.
pub(crate) fn read(bytes: &[u8]) -> Whole {
    match FileSource::from_reader(Box::new(Cursor::new(bytes.to_vec())), "sample") {
        Ok(mut file) => read_source(&mut file),
        Err(error) => Whole { packets: Vec::new(), interfaces: Vec::new(), error: Some(error) },
    }
}

/// Reads an open file to its end.
pub(crate) fn read_source(file: &mut FileSource) -> Whole {
    let mut packets = Vec::new();
    let error = loop {
        match file.advance() {
            Ok(true) => packets.extend(self::packets(&file.batch())),
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(!file.advance().expect("after its end a file stays at its end"));
    Whole { packets, interfaces: file.interfaces().to_vec(), error }
}

/// Copies of a batch's packets.
pub(crate) fn packets(batch: &Batch<'_>) -> Vec<Read> {
    let read = |index| {
        let packet = batch.packet(index);
        Read { data: packet.data.to_vec(), meta: *packet.meta, options: batch.options(index).to_vec() }
    };
    (0..batch.len()).map(read).collect()
}

/// Bytes in one order. `ends` notes where the file may end.
#[derive(Clone)]
pub(crate) struct Bytes {
    pub(crate) order: ByteOrder,
    pub(crate) bytes: Vec<u8>,
    /// The ends of the packets.
    pub(crate) packet_ends: Vec<usize>,
    /// The ends of all items, where the file may end as well.
    pub(crate) item_ends: Vec<usize>,
}

impl Bytes {
    pub(crate) fn new(order: ByteOrder) -> Bytes {
        Bytes { order, bytes: Vec::new(), packet_ends: Vec::new(), item_ends: Vec::new() }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Bytes {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u16(&mut self, n: u16) -> &mut Bytes {
        self.raw(&if self.order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() })
    }

    pub(crate) fn u32(&mut self, n: u32) -> &mut Bytes {
        self.raw(&if self.order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() })
    }

    pub(crate) fn u64(&mut self, n: u64) -> &mut Bytes {
        self.raw(&if self.order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() })
    }

    pub(crate) fn item_end(&mut self) -> &mut Bytes {
        self.item_ends.push(self.bytes.len());
        self
    }

    pub(crate) fn packet_end(&mut self) -> &mut Bytes {
        self.packet_ends.push(self.bytes.len());
        self.item_end()
    }

    /// A pcap file header.
    pub(crate) fn pcap_header(
        &mut self,
        magic: u32,
        version: (u16, u16),
        snap_len: u32,
        link: u32,
    ) -> &mut Bytes {
        self.u32(magic).u16(version.0).u16(version.1).u32(0).u32(0).u32(snap_len).u32(link)
    }

    /// A pcap record; `extra` is between header and data.
    pub(crate) fn pcap_record(
        &mut self,
        time: (u32, u32),
        wire_len: u32,
        extra: &[u8],
        data: &[u8],
    ) -> &mut Bytes {
        self.u32(time.0).u32(time.1).u32(data.len() as u32).u32(wire_len).raw(extra).raw(data).packet_end()
    }

    /// A pcapng block around `body`, which is padded.
    pub(crate) fn block(&mut self, kind: u32, body: &[u8]) -> &mut Bytes {
        let padding = body.len().wrapping_neg() % 4;
        let len = (12 + body.len() + padding) as u32;
        self.u32(kind).u32(len).raw(body).raw(&[0; 3][..padding]).u32(len).item_end()
    }

    /// The body of a block, in this order.
    pub(crate) fn body(&self, write: impl FnOnce(&mut Bytes)) -> Vec<u8> {
        let mut body = Bytes::new(self.order);
        write(&mut body);
        body.bytes
    }

    pub(crate) fn section(&mut self, options: &[(u16, &[u8])]) -> &mut Bytes {
        let body = self.body(|b| {
            b.u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX).options(options);
        });
        self.block(0x0a0d_0d0a, &body)
    }

    pub(crate) fn interface(
        &mut self,
        link_type: u16,
        snap_len: u32,
        options: &[(u16, &[u8])],
    ) -> &mut Bytes {
        let body = self.body(|b| {
            b.u16(link_type).u16(0).u32(snap_len).options(options);
        });
        self.block(1, &body)
    }

    pub(crate) fn enhanced(
        &mut self,
        interface: u32,
        ticks: u64,
        data: &[u8],
        wire_len: u32,
        options: &[(u16, &[u8])],
    ) -> &mut Bytes {
        let body = self.body(|b| {
            b.u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
            b.u32(data.len() as u32).u32(wire_len).padded(data).options(options);
        });
        self.block(6, &body).packet_ends_here()
    }

    pub(crate) fn options(&mut self, options: &[(u16, &[u8])]) -> &mut Bytes {
        for (code, value) in options {
            self.u16(*code).u16(value.len() as u16).padded(value);
        }
        if options.is_empty() { self } else { self.u32(0) }
    }

    pub(crate) fn padded(&mut self, data: &[u8]) -> &mut Bytes {
        self.raw(data).raw(&[0; 3][..data.len().wrapping_neg() % 4])
    }

    pub(crate) fn packet_ends_here(&mut self) -> &mut Bytes {
        self.packet_ends.push(self.bytes.len());
        self
    }

    /// An ERF record: time in 2^-32 s.
    pub(crate) fn erf(
        &mut self,
        time: u64,
        kind: u8,
        flags: u8,
        counter: u16,
        wire_len: u16,
        rest: &[u8],
    ) -> &mut Bytes {
        self.raw(&time.to_le_bytes()).raw(&[kind, flags]).raw(&(16 + rest.len() as u16).to_be_bytes());
        self.raw(&counter.to_be_bytes()).raw(&wire_len.to_be_bytes()).raw(rest).packet_end()
    }
}

pub(crate) const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// Data of `len` bytes that differ.
pub(crate) fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}

/// Small files of each format, with packets of several lengths.
pub(crate) fn small_files() -> Vec<(&'static str, Bytes)> {
    let mut files = Vec::new();
    for order in ORDERS {
        let mut pcap = Bytes::new(order);
        pcap.pcap_header(0xa1b2_c3d4, (2, 4), 65_535, 1).item_end();
        let mut pcapng = Bytes::new(order);
        pcapng.section(&[(4, b"hand")]).interface(1, 65_535, &[(2, b"eth0"), (9, &[9])]);
        for (i, len) in [60, 0, 1, 61, 14].into_iter().enumerate() {
            pcap.pcap_record((1_700_000_000 + i as u32, 5), 100, &[], &data(len));
            pcapng.enhanced(0, 1_700_000_000_000_000_000 + i as u64, &data(len), 100, &[(1, b"note")]);
            pcapng.block(0x0bad, b"whatever it is");
        }
        files.push(("pcap", pcap));
        files.push(("pcapng", pcapng));
    }
    let mut erf = Bytes::new(ByteOrder::Little);
    for i in 0..5u64 {
        erf.erf((1_700_000_000 + i) << 32, 2, 0, 0, 60, &[&[0, 0], &data(62)[..]].concat());
    }
    files.push(("erf", erf));
    files
}

/// xorshift: a seed is a whole test.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Changes a few bytes, mostly those of lengths: to extremes, to neighbours, to noise.
pub(crate) fn mutate(bytes: &mut Vec<u8>, noise: &mut Noise) {
    for _ in 0..=noise.below(4) {
        let at = noise.below(bytes.len());
        match noise.below(6) {
            0 => bytes[at] = noise.next() as u8,
            1 => bytes[at] = [0, 0xff, 0x7f, 0x80][noise.below(4)],
            2 => bytes[at] = bytes[at].wrapping_add(1),
            3 => bytes.truncate(at.max(1)),
            4 => {
                let end = (at + 4).min(bytes.len());
                bytes[at..end].fill([0, 0xff][noise.below(2)]);
            }
            _ => {
                let piece = bytes[at..(at + noise.below(40)).min(bytes.len())].to_vec();
                let to = noise.below(bytes.len());
                bytes.splice(to..to, piece);
            }
        }
    }
}
