//! Prints a pcap file as `tcpdump -n` does, the given number of times, and reports the cost: `text FILE [TIMES]`.
//!
//! For measurements; the program reads files through `tapline-file`.

use std::io::Write as _;

use tapline_packet::{Interface, LinkType, Meta, Packet, Timestamp};
use tapline_print::{Options, Printer};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| panic!("usage: text FILE [TIMES]"));
    let times: usize = arguments.next().and_then(|t| t.parse().ok()).unwrap_or(1);
    let bytes = std::fs::read(path)?;
    let mut printer = Printer::new(Options { port_names: false, ..Options::default() });
    let mut out = Vec::with_capacity(1 << 17);
    let mut stdout = std::io::stdout().lock();
    for _ in 0..times {
        print_file(&bytes, &mut printer, &mut out, &mut stdout)?;
    }
    stdout.write_all(&out)
}

/// A little-endian pcap file in microseconds.
fn print_file(
    bytes: &[u8],
    printer: &mut Printer,
    out: &mut Vec<u8>,
    to: &mut impl std::io::Write,
) -> std::io::Result<()> {
    let word = |at: usize| {
        bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).unwrap_or(u32::MAX)
    };
    let interface = Interface::new("", LinkType::from_dlt(word(20) as u16));
    let mut at = 24_usize;
    while let Some(data) = bytes.get(at + 16..(at + 16).saturating_add(word(at + 8) as usize)) {
        let timestamp = Timestamp::from_parts(i64::from(word(at)), u64::from(word(at + 4)) * 1000);
        let meta = Meta { timestamp, wire_len: word(at + 12), ..Meta::default() };
        printer.print(Packet { data, meta: &meta }, &interface, out);
        if out.len() > 1 << 16 {
            to.write_all(out)?;
            out.clear();
        }
        at += 16 + data.len();
    }
    Ok(())
}
