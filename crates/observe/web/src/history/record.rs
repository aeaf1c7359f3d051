//! A table as bytes: numbers of 7 bits a byte, the low ones first, with the high bit on all bytes but the last.
//!
//! ```text
//! others: packets, bytes, flows | missing: packets, bytes | rows | for each: name, packets, bytes, first packets, first bytes, error packets, error bytes, flows
//! ```

use tapline_view::{Amount, Key, Row, Table};

/// The most rows that are read.
const ROWS_MAX: u64 = 4096;

/// A table whose rows have numbers of names in place of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberedTable {
    pub(crate) rows: Vec<(i64, Row)>,
    /// The table without rows.
    pub(crate) rest: Table,
}

/// The bytes of a table; `ids` has a number for each row's key.
pub(crate) fn blob_of(table: &Table, ids: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + 20 * ids.len());
    let Table { rows, others, others_flows, missing } = table;
    for number in
        [others.packets, others.bytes, *others_flows, missing.packets, missing.bytes, rows.len() as u64]
    {
        put(&mut bytes, number);
    }
    for (row, id) in rows.iter().zip(ids) {
        let Row { amount, first, error, flows, .. } = row;
        for number in [
            *id as u64,
            amount.packets,
            amount.bytes,
            first.packets,
            first.bytes,
            error.packets,
            error.bytes,
            *flows,
        ] {
            put(&mut bytes, number);
        }
    }
    bytes
}

/// The table of such bytes; `None` if they are damaged.
pub(crate) fn table_of(bytes: &[u8]) -> Option<NumberedTable> {
    let mut rest = bytes;
    let mut next = || take(&mut rest);
    let mut amount = || Some(Amount { packets: next()?, bytes: next()? });
    let others = amount()?;
    let others_flows = take(&mut rest)?;
    let missing = Amount { packets: take(&mut rest)?, bytes: take(&mut rest)? };
    let count = take(&mut rest).filter(|count| *count <= ROWS_MAX)?;
    let mut rows = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = take(&mut rest)?;
        }
        let [id, packets, bytes, first_packets, first_bytes, error_packets, error_bytes, flows] = numbers;
        let row = Row {
            amount: Amount { packets, bytes },
            first: Amount { packets: first_packets, bytes: first_bytes },
            error: Amount { packets: error_packets, bytes: error_bytes },
            flows,
            ..Row::default()
        };
        rows.push((id as i64, row));
    }
    let rest = Table { rows: Vec::new(), others, others_flows, missing };
    Some(NumberedTable { rows, rest })
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The bytes of a key, without zeros at the end.
pub(crate) fn key_bytes(key: &Key) -> Vec<u8> {
    let mut bytes: Vec<u8> = key.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(len);
    bytes
}

/// The key of such bytes.
pub(crate) fn key_of_bytes(bytes: &[u8]) -> Key {
    let mut whole = [0; 64];
    let len = bytes.len().min(64);
    whole[..len].copy_from_slice(&bytes[..len]);
    Key(std::array::from_fn(|word| u64::from_ne_bytes(std::array::from_fn(|byte| whole[word * 8 + byte]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seed: u64) -> Row {
        let amount = |of: u64| Amount { packets: seed.wrapping_mul(of), bytes: seed.wrapping_mul(of * 31) };
        Row { amount: amount(1), first: amount(3), error: amount(5), flows: seed, ..Row::default() }
    }

    #[test]
    fn tables_come_back_and_cut_ones_are_refused() {
        let rows: Vec<Row> = [0, 1, 127, 128, u64::MAX, 1 << 40].into_iter().map(row).collect();
        let table = Table {
            rows: rows.clone(),
            others: Amount { packets: 7, bytes: 1 << 63 },
            others_flows: 9,
            missing: Amount { packets: 300, bytes: 2 },
        };
        let ids: Vec<i64> = (1..=rows.len() as i64).collect();
        let blob = blob_of(&table, &ids);
        let back = table_of(&blob).expect("a table");
        assert_eq!(back.rows, ids.iter().copied().zip(rows).collect::<Vec<_>>());
        assert_eq!((back.rest.others, back.rest.missing), (table.others, table.missing));
        for len in 0..blob.len() {
            assert_eq!(table_of(&blob[..len]), None, "cut at {len}");
        }
        assert_eq!(table_of(&[0xff; 20]), None);
    }

    #[test]
    fn keys_come_back() {
        for key in [Key::default(), Key([1, 0, 0, 0, 0, 0, 0, u64::MAX]), Key([0, 256, 0, 0, 0, 0, 0, 0])] {
            assert_eq!(key_of_bytes(&key_bytes(&key)), key);
        }
    }
}
