//! Tables: rows, others, and how sure they are.

use std::collections::HashMap;

use crate::dimension::{Dimension, Key};
use crate::layout::{ROW_WORDS, ROWS_MAX, TABLE_HEAD_WORDS, TABLE_WORDS};

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Bytes as flows count them.
    pub bytes: u64,
}

impl Amount {
    /// Adds another amount.
    pub fn add(&mut self, other: Amount) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// This less another, at least nothing.
    #[must_use]
    pub fn less(self, other: Amount) -> Amount {
        Amount {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The lesser of each.
    #[must_use]
    pub fn min(self, other: Amount) -> Amount {
        Amount { packets: self.packets.min(other.packets), bytes: self.bytes.min(other.bytes) }
    }

    /// The greater of each.
    #[must_use]
    pub fn max(self, other: Amount) -> Amount {
        Amount { packets: self.packets.max(other.packets), bytes: self.bytes.max(other.bytes) }
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Key,
    /// A name in addition to the key, as words of the file: of interfaces and flows.
    pub name: Key,
    /// Packets and bytes that the key had.
    pub amount: Amount,
    /// The part that the first side sent.
    pub first: Amount,
    /// The most that the key may have had beyond `amount`.
    pub error: Amount,
    /// Flows with a packet; of several seconds the most in one.
    pub flows: u64,
    /// Begin of a flow, in nanoseconds since 1970 UTC.
    pub began_ns: i64,
    /// State of a flow: TCP flags of both sides, the reason for its end, and the side that is the server, as words of
    /// the file.
    pub state: u64,
}

/// Rows of a dimension, the greatest first, and the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Rows, in the order of their bytes.
    pub rows: Vec<Row>,
    /// Packets and bytes of keys without a row.
    pub others: Amount,
    /// Flows of these.
    pub others_flows: u64,
    /// The most that a key without a row can have.
    pub missing: Amount,
}

impl Table {
    /// The sum of rows and others.
    pub fn sum(&self) -> Amount {
        let mut sum = self.others;
        self.rows.iter().for_each(|row| sum.add(row.amount));
        sum
    }

    /// Orders the rows, and leaves the `most` greatest.
    pub fn cut(&mut self, most: usize) {
        self.rows.sort_unstable_by(|one, other| {
            let of = |row: &Row| (row.amount.bytes, row.amount.packets);
            of(other).cmp(&of(one)).then(one.key.cmp(&other.key))
        });
        for row in self.rows.drain(most.min(self.rows.len())..) {
            self.others.add(row.amount);
            self.others_flows = self.others_flows.saturating_add(row.flows);
            let mut at_most = row.amount;
            at_most.add(row.error);
            self.missing = self.missing.max(at_most);
        }
    }

    /// Adds packets of unknown keys: any key may have had them.
    pub(crate) fn add_unranked(&mut self, amount: Amount) {
        self.others.add(amount);
        self.missing.add(amount);
        self.rows.iter_mut().for_each(|row| row.error.add(amount));
    }

    /// The words of the file.
    pub(crate) fn to_words(&self) -> impl Iterator<Item = (usize, u64)> + use<'_> {
        let rows = self.rows.len().min(ROWS_MAX);
        let head = [
            rows as u64,
            self.others.packets,
            self.others.bytes,
            self.others_flows,
            self.missing.packets,
            self.missing.bytes,
        ];
        let head = head.into_iter().enumerate();
        head.chain(self.rows.iter().take(ROWS_MAX).enumerate().flat_map(|(number, row)| {
            let first = TABLE_HEAD_WORDS + number * ROW_WORDS;
            row.to_words().into_iter().enumerate().map(move |(at, word)| (first + at, word))
        }))
    }

    /// Decodes the words of a table; a number of rows beyond the maximum is cut.
    pub(crate) fn of_words(words: &[u64]) -> Table {
        debug_assert_eq!(words.len(), TABLE_WORDS);
        let rows = words[0].min(ROWS_MAX as u64) as usize;
        let amount = |at: usize| Amount { packets: words[at], bytes: words[at + 1] };
        Table {
            rows: words[TABLE_HEAD_WORDS..].chunks_exact(ROW_WORDS).take(rows).map(Row::of_words).collect(),
            others: amount(1),
            others_flows: words[3],
            missing: amount(4),
        }
    }
}

impl Row {
    fn to_words(self) -> [u64; ROW_WORDS] {
        let mut words = [0; ROW_WORDS];
        words[..8].copy_from_slice(&self.key.0);
        words[8..16].copy_from_slice(&self.name.0);
        words[16..25].copy_from_slice(&[
            self.amount.packets,
            self.amount.bytes,
            self.first.packets,
            self.first.bytes,
            self.error.packets,
            self.error.bytes,
            self.flows,
            self.began_ns as u64,
            self.state,
        ]);
        words
    }

    fn of_words(words: &[u64]) -> Row {
        let key = |at: usize| Key(std::array::from_fn(|word| words[at + word]));
        let amount = |at: usize| Amount { packets: words[at], bytes: words[at + 1] };
        Row {
            key: key(0),
            name: key(8),
            amount: amount(16),
            first: amount(18),
            error: amount(20),
            flows: words[22],
            began_ns: words[23] as i64,
            state: words[24],
        }
    }

    /// Server of a flow: 0 for the side that began the flow, 1 for the other.
    pub fn server(&self) -> usize {
        usize::from(self.state & BEGAN_BY_SERVER == 0)
    }

    /// Adds the same key's row of a later time: `flows` becomes the most at one time.
    pub fn append(&mut self, later: &Row) {
        let flows = self.flows.max(later.flows);
        self.add(later);
        self.flows = flows;
    }

    /// Adds the same key's row of another worker.
    pub(crate) fn add(&mut self, other: &Row) {
        self.amount.add(other.amount);
        self.first.add(other.first);
        self.error.add(other.error);
        self.flows = self.flows.saturating_add(other.flows);
        if other.name != Key::default() {
            self.name = other.name;
        }
        self.began_ns = self.began_ns.min(other.began_ns);
        self.state = both_states(self.state, other.state);
    }
}

/// Bits of a state: the TCP flags of both sides, the reason for the end.
const FLAGS: u64 = 0xffff;
const REASON: u64 = 0xff << 16;
/// The side that began the flow is the server.
const BEGAN_BY_SERVER: u64 = 1 << 24;

/// The flags of both states, the reason for the end of the later one that has one, and the server of either.
pub(crate) fn both_states(one: u64, other: u64) -> u64 {
    let reason = if other & REASON != 0 { other & REASON } else { one & REASON };
    (one | other) & (FLAGS | BEGAN_BY_SERVER) | reason
}

/// The state of a row: TCP flags of both sides, the reason for the end, and whether the side that began the flow is the
/// server.
pub(crate) fn state([one, other]: [u8; 2], end: u8, is_begun_by_server: bool) -> u32 {
    let server = if is_begun_by_server { BEGAN_BY_SERVER as u32 } else { 0 };
    u32::from(one) | u32::from(other) << 8 | u32::from(end) << 16 | server
}

/// The sum of several tables of a dimension: of workers, or of seconds.
///
/// A key that has no row in one of the tables may have had up to that table's `missing` there: its row says so.
#[derive(Clone, Debug, Default)]
pub struct TableSum {
    rows: HashMap<Key, (Row, Amount)>,
    others: Amount,
    others_flows: u64,
    missing: Amount,
}

impl TableSum {
    /// Adds another worker's table of the same time.
    pub fn add(&mut self, table: &Table) {
        self.others_flows = self.others_flows.saturating_add(table.others_flows);
        self.add_with(table, Row::add);
    }

    /// Adds the table of a later time: for flows, the highest number at one time is kept.
    pub fn append(&mut self, later: &Table) {
        self.others_flows = self.others_flows.max(later.others_flows);
        self.add_with(later, Row::append);
    }

    fn add_with(&mut self, table: &Table, add: fn(&mut Row, &Row)) {
        for row in &table.rows {
            self.rows
                .entry(row.key)
                .and_modify(|(sum, present)| {
                    add(sum, row);
                    present.add(table.missing);
                })
                .or_insert((*row, table.missing));
        }
        self.others.add(table.others);
        self.missing.add(table.missing);
    }

    /// Keeps memory bounded: with more than `most` rows the smaller half becomes others.
    pub fn bound(&mut self, most: usize) {
        if self.rows.len() > most {
            let table = std::mem::take(self).finish(most / 2);
            self.add(&table);
        }
    }

    /// The sum, with the `most` greatest rows.
    pub fn finish(self, most: usize) -> Table {
        let TableSum { rows, others, others_flows, missing } = self;
        let rows = rows.into_values().map(|(mut row, present)| {
            row.error.add(missing.less(present));
            row
        });
        let mut table = Table { rows: rows.collect(), others, others_flows, missing };
        table.cut(most);
        table
    }
}

/// The tables of all dimensions, in the order of the file.
pub type Tables = [Table; Dimension::ALL.len()];
