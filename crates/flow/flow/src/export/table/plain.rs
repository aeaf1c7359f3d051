//! Tables in parts, as formats have them that know columns: whole flows, addresses as texts.

use super::{Cells, ColumnType, Data, EncodedRows, FlowTable, RowGroup, Values};
use crate::Error;

/// Maximum bytes of a value in any of these formats, without those of texts.
const VALUE_LEN: usize = 8;

/// Encodes a table in parts whose values have about `bytes_max` bytes: eight for each, also for a null, plus those of
/// texts.
pub(in crate::export) fn encode_parts(
    table: &FlowTable,
    kinds: &[ColumnType],
    bytes_max: usize,
    mut encode: impl FnMut(RowGroup) -> Result<Vec<u8>, Error>,
) -> Result<Vec<EncodedRows>, Error> {
    let plain: Vec<ColumnType> = kinds.iter().map(|kind| kind.plain()).collect();
    let row_len = VALUE_LEN * plain.len();
    let mut cells = Cells::new(&table.rows, kinds);
    let (mut parts, mut done) = (Vec::new(), 0);
    let (mut group, mut rows) = (RowGroup::new(&plain), 0);
    for (at, end) in table.ends.iter().enumerate() {
        while rows < end.rows {
            for ((values, cell), kind) in group.columns.iter_mut().zip(cells.next_row()).zip(kinds) {
                values.push(cell.value(*kind));
            }
            group.rows += 1;
            rows += 1;
        }
        let texts: usize = group.columns.iter().map(Values::text_len).sum();
        if group.rows * row_len + texts >= bytes_max || at + 1 == table.ends.len() {
            let full = std::mem::replace(&mut group, RowGroup::new(&plain));
            let rows_of_part = full.rows;
            parts.push(EncodedRows::of(&table.ends[done..=at], rows_of_part, encode(full)?));
            done = at + 1;
        }
    }
    Ok(parts)
}

impl Values {
    fn text_len(&self) -> usize {
        match &self.data {
            Data::Bytes { bytes, .. } => bytes.len(),
            _ => 0,
        }
    }
}
