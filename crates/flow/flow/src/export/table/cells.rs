//! The values of a table row by row.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapline_packet::Timestamp;

use super::{ColumnType, Data, NULL, RowGroup, Values};
use crate::export::element::{FieldValue, IpFamily};

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export) enum Cell<'t> {
    Null,
    Number(u64),
    /// Since 1970, in the unit of the column.
    Time(i64),
    Bytes(&'t [u8]),
    Address(IpAddr),
}

impl<'t> Cell<'t> {
    /// The value as records have it, in a column of this type. Texts are bytes.
    #[inline]
    pub(super) fn value(self, kind: ColumnType) -> FieldValue<'t> {
        match self {
            Cell::Null => FieldValue::Absent,
            Cell::Number(number) => FieldValue::Number(number),
            Cell::Time(nanos) if kind == ColumnType::Nanoseconds => {
                FieldValue::Time(Timestamp::from_nanos(nanos))
            }
            Cell::Time(millis) => FieldValue::Time(Timestamp::from_nanos(millis.saturating_mul(1_000_000))),
            Cell::Bytes(bytes) => FieldValue::Bytes(bytes),
            Cell::Address(address) => FieldValue::Address(address),
        }
    }
}

/// All rows of a table, in their order.
pub(in crate::export) struct Cells<'t> {
    columns: Vec<Cursor<'t>>,
    row: Vec<Cell<'t>>,
}

struct Cursor<'t> {
    values: &'t Values,
    kind: ColumnType,
    /// The next row, and the next value.
    row: usize,
    at: usize,
}

impl<'t> Cells<'t> {
    pub(in crate::export) fn new(rows: &'t RowGroup, kinds: &[ColumnType]) -> Cells<'t> {
        let cursor =
            |(values, kind): (&'t Values, &ColumnType)| Cursor { values, kind: *kind, row: 0, at: 0 };
        let columns: Vec<Cursor<'t>> = rows.columns.iter().zip(kinds).map(cursor).collect();
        Cells { row: vec![Cell::Null; columns.len()], columns }
    }

    /// The values of the next row; nulls behind the last.
    pub(in crate::export) fn next_row(&mut self) -> &[Cell<'t>] {
        for (cell, column) in self.row.iter_mut().zip(&mut self.columns) {
            *cell = column.advance();
        }
        &self.row
    }
}

impl<'t> Cursor<'t> {
    fn advance(&mut self) -> Cell<'t> {
        let is_null = self.values.levels.get(self.row) == Some(&NULL);
        self.row += 1;
        if is_null {
            return Cell::Null;
        }
        let at = self.at;
        self.at += 1;
        value(&self.values.data, self.kind, at).unwrap_or(Cell::Null)
    }
}

fn value(data: &Data, kind: ColumnType, at: usize) -> Option<Cell<'_>> {
    Some(match data {
        // Wider than 32 bits none of them is.
        Data::Narrow(values) => Cell::Number(u64::from(*values.get(at)? as u32)),
        Data::Wide(values) => match kind {
            ColumnType::Unsigned(_) | ColumnType::Mac => Cell::Number(*values.get(at)? as u64),
            _ => Cell::Time(*values.get(at)?),
        },
        Data::Bytes { bytes, ends } => {
            let start = at.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
            Cell::Bytes(bytes.get(start..*ends.get(at)?)?)
        }
        Data::Addresses(values) => Cell::Address(address(*values.get(at)?, kind)),
    })
}

/// An address of a column, in the version that the column has.
fn address(octets: [u8; 16], kind: ColumnType) -> IpAddr {
    match kind {
        ColumnType::Address(IpFamily::V4) => {
            IpAddr::V4(Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]))
        }
        _ => IpAddr::V6(Ipv6Addr::from(octets)),
    }
}
