//! Tables as lines of JSON, byte for byte those of `RowWriter`.

use std::io::Write as _;

use super::{Cell, ColumnType, EncodedRows, FlowTable, SpareBuffers, TableEncoder, TableShape, encode_rows};
use crate::Error;
use crate::export::element::mac_text;

/// Encodes tables as lines of JSON.
pub struct JsonEncoder {
    kinds: Vec<ColumnType>,
    /// Each column's name with its quotes and colon.
    names: Vec<Vec<u8>>,
    seconds: Seconds,
}

impl JsonEncoder {
    /// An encoder of tables of this shape.
    pub fn new(shape: &TableShape) -> JsonEncoder {
        let names = shape.columns.iter().map(|column| format!("\"{}\":", column.name).into_bytes()).collect();
        JsonEncoder { kinds: shape.kinds.clone(), names, seconds: Seconds::default() }
    }
}

impl TableEncoder for JsonEncoder {
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        spare: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error> {
        let JsonEncoder { kinds, names, seconds } = self;
        Ok(encode_rows(table, kinds, bytes_max, spare, |row, out| {
            let mut separator = b'{';
            for ((cell, kind), name) in row.iter().zip(kinds.iter()).zip(names.iter()) {
                if *cell != Cell::Null {
                    out.push(separator);
                    out.extend_from_slice(name);
                    separator = b',';
                    write_cell(*cell, *kind, seconds, out);
                }
            }
            out.extend_from_slice(if separator == b'{' { b"{}\n" } else { b"}\n" });
        }))
    }
}

/// Writes a value. Writing to memory does not fail.
fn write_cell(cell: Cell<'_>, kind: ColumnType, seconds: &mut Seconds, out: &mut Vec<u8>) {
    match cell {
        Cell::Number(number) if kind == ColumnType::Mac => {
            let _ = write!(out, "\"{}\"", mac_text(number));
        }
        Cell::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Cell::Time(time) => seconds.write(time, kind, out),
        Cell::Address(address) => {
            let _ = write!(out, "\"{address}\"");
        }
        Cell::Bytes(bytes) => {
            out.push(b'"');
            match kind {
                ColumnType::Octets(_) => bytes.iter().for_each(|byte| {
                    let _ = write!(out, "{byte:02x}");
                }),
                // Texts have no control characters.
                _ => bytes.iter().for_each(|byte| {
                    if matches!(byte, b'"' | b'\\') {
                        out.push(b'\\');
                    }
                    out.push(*byte);
                }),
            }
            out.push(b'"');
        }
        Cell::Null => {}
    }
}

/// The text of a second, which the times of many rows share.
#[derive(Default)]
struct Seconds {
    second: Option<i64>,
    text: String,
}

impl Seconds {
    fn write(&mut self, time: i64, kind: ColumnType, out: &mut Vec<u8>) {
        let (a_second, digits) = match kind {
            ColumnType::Nanoseconds => (1_000_000_000, 9),
            ColumnType::Seconds => (1000, 0),
            _ => (1000, 3),
        };
        let (second, fraction) = (time.div_euclid(a_second), time.rem_euclid(a_second));
        if self.second != Some(second) {
            let moment = jiff::Timestamp::from_second(second);
            self.text = moment
                .map_or_else(|_| String::new(), |moment| moment.strftime("%Y-%m-%dT%H:%M:%S").to_string());
            self.second = Some(second);
        }
        let text = &self.text;
        // Packets have no times outside of the calendar.
        let _ = match digits {
            _ if text.is_empty() => write!(out, "\"\""),
            0 => write!(out, "\"{text}Z\""),
            digits => write!(out, "\"{text}.{fraction:0digits$}Z\""),
        };
    }
}
