//! Deletes from a history: buckets by age and by size, and names that no row has any more.
//!
//! ```text
//! by age    the oldest buckets of a tier, twice as many at most as were begun: a wrong clock takes little away
//! by size   events and tables beyond their part; then a sixteenth of the minutes, then of hours, then of days
//! names     once a day, and when buckets went by size: rolls --bits--> names without a bit go
//! ```
//!
//! Each step is a transaction of its own and small, so that the log of the file (`-wal`) stays within its part of the size.

use rusqlite::{Connection, params};

use super::{HistoryLimits, KEPT, Tier, events, record, roll_key};

/// Number of buckets deleted by age for each new one. The leftovers of a time without a writer go bit by bit.
const GONE_FOR_ONE: u64 = 2;
/// Buckets of a transaction.
const BUCKETS_AT_ONCE: u64 = 60;
/// Numbers of names that are looked at together: 8 MB of bits.
const NAMES_AT_ONCE: i64 = 1 << 26;
/// Names of a transaction.
const NAMES_DELETED_AT_ONCE: usize = 4096;

/// The part of a history's bytes that its log may take: one in so many.
pub(super) const LOG_SHARE: u64 = 8;

/// Deletes buckets that are too old by now, after so many buckets of each tier were begun.
pub(super) fn by_age(
    connection: &Connection,
    now_ns: u64,
    limits: &HistoryLimits,
    begun: [u64; Tier::ALL.len()],
) -> rusqlite::Result<()> {
    for (tier, begun) in Tier::ALL.into_iter().zip(begun) {
        let kept = if tier == Tier::Minute { limits.minutes } else { limits.hours };
        let oldest = now_ns.saturating_sub(kept.as_nanos() as u64) / tier.len_ns();
        take_away(connection, tier, oldest, GONE_FOR_ONE * begun)?;
    }
    Ok(())
}

/// Takes away events beyond their part if the file is too large, and then, if it is still, the oldest buckets; whether
/// buckets went.
pub(super) fn by_size(connection: &Connection, limits: &HistoryLimits) -> rusqlite::Result<bool> {
    if !is_too_large(connection, limits)? {
        return Ok(false);
    }
    events::by_size(connection, limits)?;
    if !is_too_large(connection, limits)? {
        return Ok(false);
    }
    for tier in Tier::ALL {
        let count: u64 = connection
            .prepare_cached("SELECT count(*) FROM total WHERE tier = ?1")?
            .query_row([tier as i64], |row| row.get(0))?;
        if count > 1 {
            // A sixteenth, so that the next minutes find room.
            let mut rest = 1 + (count - 1) / 16;
            while rest > 0 {
                let some = rest.min(BUCKETS_AT_ONCE);
                take_away(connection, tier, u64::MAX >> 1, some)?;
                rest -= some;
            }
            break;
        }
    }
    Ok(true)
}

fn is_too_large(connection: &Connection, limits: &HistoryLimits) -> rusqlite::Result<bool> {
    let number = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let used = number("PRAGMA page_count")? - number("PRAGMA freelist_count")?;
    let size = used.saturating_mul(number("PRAGMA page_size")?).max(0).unsigned_abs();
    Ok(size > limits.bytes - limits.bytes / LOG_SHARE)
}

/// Takes away the oldest buckets of a tier before one, `most` of them at most.
fn take_away(connection: &Connection, tier: Tier, before: u64, most: u64) -> rusqlite::Result<()> {
    let last: Option<u64> = connection
        .prepare_cached(
            "SELECT max(bucket) FROM (SELECT bucket FROM total WHERE tier = ?1 AND bucket < ?2 ORDER BY bucket LIMIT ?3)",
        )?
        .query_row(params![tier as i64, before as i64, most as i64], |row| row.get(0))?;
    let Some(last) = last else { return Ok(()) };
    let transaction = connection.unchecked_transaction()?;
    transaction
        .prepare_cached("DELETE FROM total WHERE tier = ?1 AND bucket <= ?2")?
        .execute(params![tier as i64, last as i64])?;
    for dimension in KEPT {
        let (from, to) = (roll_key(tier, dimension, 0), roll_key(tier, dimension, last));
        transaction.prepare_cached("DELETE FROM roll WHERE k >= ?1 AND k <= ?2")?.execute([from, to])?;
    }
    transaction.commit()
}

/// Takes away names that no row has any more: strangers make new ones at will, with a packet for each.
pub(super) fn names(connection: &Connection) -> rusqlite::Result<()> {
    let mut from = i64::MIN;
    loop {
        let first: Option<i64> = connection
            .prepare_cached("SELECT min(id) FROM name WHERE id >= ?1")?
            .query_row([from], |row| row.get(0))?;
        let Some(first) = first else { return Ok(()) };
        let last = first.saturating_add(NAMES_AT_ONCE - 1);
        if !names_between(connection, (first, last))? || last == i64::MAX {
            return Ok(());
        }
        from = last + 1;
    }
}

/// Deletes the names with these numbers; `false` if another program wrote to the file meanwhile.
fn names_between(connection: &Connection, (first, last): (i64, i64)) -> rusqlite::Result<bool> {
    // Changes with each commit of another connection, never with ours.
    let version = || connection.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0));
    let before = version()?;
    let has_row = NumbersWithRow::read(connection, (first, last))?;
    let mut from = first;
    loop {
        let ids = connection
            .prepare_cached("SELECT id FROM name WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3")?
            .query_map(params![from, last, NAMES_DELETED_AT_ONCE as i64], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        let Some(greatest) = ids.last().copied() else { return Ok(true) };
        let gone: Vec<i64> = ids.into_iter().filter(|id| !has_row.contains(*id)).collect();
        if !gone.is_empty() {
            let transaction = connection.unchecked_transaction()?;
            let mut delete = transaction.prepare_cached("DELETE FROM name WHERE id = ?1")?;
            gone.iter().try_for_each(|id| delete.execute([id]).map(drop))?;
            drop(delete);
            // No other connection writes from here on: a row that came before may have taken one of these names.
            if version()? != before {
                return Ok(false);
            }
            transaction.commit()?;
        }
        if greatest >= last {
            return Ok(true);
        }
        from = greatest + 1;
    }
}

/// Numbers of names that rows have, as bits from the first on.
struct NumbersWithRow {
    first: i64,
    words: Vec<u64>,
}

impl NumbersWithRow {
    fn read(connection: &Connection, (first, last): (i64, i64)) -> rusqlite::Result<NumbersWithRow> {
        let greatest: i64 =
            connection.query_row("SELECT max(id) FROM name WHERE id <= ?1", [last], |row| row.get(0))?;
        let words = vec![0; greatest.abs_diff(first) as usize / 64 + 1];
        let mut numbers = NumbersWithRow { first, words };
        let mut statement = connection.prepare_cached("SELECT v FROM roll")?;
        let mut rolls = statement.query([])?;
        while let Some(roll) = rolls.next()? {
            let Some(table) = record::table_of(roll.get_ref(0)?.as_blob()?) else { continue };
            for (id, _) in table.rows.iter().filter(|(id, _)| (first..=greatest).contains(id)) {
                let place = id.abs_diff(first) as usize;
                numbers.words[place / 64] |= 1 << (place % 64);
            }
        }
        Ok(numbers)
    }

    fn contains(&self, id: i64) -> bool {
        let place = id.abs_diff(self.first) as usize;
        self.words.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }
}
