//! Bytes as hexadecimal and characters.
//!
//! ```text
//! \n\t0x0000:  4500 003c 1c46 4000 4006 b1e6 c0a8 0001  E..<.F@.@.......
//! \n\t0x0010:  c0a8 00                                  ...
//! ```

use crate::text::Text;

const PER_LINE: usize = 16;
/// Two digits a byte and a space a pair.
const HEX_WIDTH: usize = PER_LINE / 2 * 5;

/// Hexadecimal only. `indent` opens each line; `offset` is the first one shown.
pub(crate) fn hex(out: &mut Vec<u8>, indent: &[u8], bytes: &[u8], offset: usize) {
    for (index, line) in bytes.chunks(PER_LINE).enumerate() {
        start_line(out, indent, offset + index * PER_LINE);
        hex_pairs(out, line);
    }
}

/// Hexadecimal and characters.
pub(crate) fn hex_and_ascii(out: &mut Vec<u8>, indent: &[u8], bytes: &[u8], offset: usize) {
    for (index, line) in bytes.chunks(PER_LINE).enumerate() {
        start_line(out, indent, offset + index * PER_LINE);
        let written = out.len();
        hex_pairs(out, line);
        let padded = written + HEX_WIDTH + 2;
        out.resize(padded, b' ');
        out.extend(line.iter().map(|&b| if b.is_ascii_graphic() { b } else { b'.' }));
    }
}

/// Characters only, after a line feed: line feeds and tabs as they are, a carriage return before a line feed dropped.
pub(crate) fn ascii(out: &mut Vec<u8>, bytes: &[u8]) {
    out.raw(b"\n");
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' => {
                if bytes.get(index + 1) != Some(&b'\n') {
                    out.push(b'.');
                }
            }
            b'\n' | b'\t' | b' ' => out.push(byte),
            _ => out.push(if byte.is_ascii_graphic() { byte } else { b'.' }),
        }
    }
}

fn start_line(out: &mut Vec<u8>, indent: &[u8], offset: usize) {
    out.raw(indent);
    out.raw(b"0x");
    out.hex(offset, 4);
    out.raw(b": ");
}

fn hex_pairs(out: &mut Vec<u8>, line: &[u8]) {
    for pair in line.chunks(2) {
        out.raw(b" ");
        for byte in pair {
            out.hex(*byte, 2);
        }
    }
}
