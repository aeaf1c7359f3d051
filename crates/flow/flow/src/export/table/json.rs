//! Tables as lines of JSON, byte for byte those of `RowWriter`.

use super::{Cell, ColumnType, EncodedRows, FlowTable, SpareBuffers, TableEncoder, TableShape, encode_rows};
use crate::Error;
use crate::export::text::{ValueText, end_json_line, json_key, json_text};

/// Encodes tables as lines of JSON.
pub struct JsonEncoder {
    kinds: Vec<ColumnType>,
    /// Each column's name with its separators.
    keys: Vec<Vec<u8>>,
    values: ValueText,
}

impl JsonEncoder {
    /// An encoder of tables of this shape.
    pub fn new(shape: &TableShape) -> JsonEncoder {
        let keys = shape.columns.iter().map(|column| json_key(&column.name)).collect();
        JsonEncoder { kinds: shape.kinds.clone(), keys, values: ValueText::default() }
    }
}

impl TableEncoder for JsonEncoder {
    fn encode_into(
        &mut self,
        table: &FlowTable,
        bytes_max: usize,
        spare: &mut SpareBuffers,
    ) -> Result<Vec<EncodedRows>, Error> {
        let JsonEncoder { kinds, keys, values } = self;
        Ok(encode_rows(table, kinds, bytes_max, spare, |row, out| {
            let start = out.len();
            for ((cell, kind), key) in row.iter().zip(kinds.iter()).zip(keys.iter()) {
                if *cell != Cell::Null {
                    out.extend_from_slice(key);
                    write_cell(*cell, *kind, values, out);
                }
            }
            end_json_line(start, out);
        }))
    }
}

fn write_cell(cell: Cell<'_>, kind: ColumnType, values: &mut ValueText, out: &mut Vec<u8>) {
    if let (Cell::Bytes(text), ColumnType::Text) = (cell, kind) {
        return json_text(text, out);
    }
    let value = cell.value(kind);
    if matches!(kind, ColumnType::Unsigned(_)) {
        return values.write(value, kind, out);
    }
    out.push(b'"');
    values.write(value, kind, out);
    out.push(b'"');
}
