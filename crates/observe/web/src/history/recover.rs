//! Hours and days that a killed writer did not come to write, made of the buckets below them.
//!
//! Their totals are exact. Their tables are sums of tables with fewer rows, and each row says by how much it may lack.

use rusqlite::{Connection, params};
use tapline_view::TableSum;

use super::{KEPT, Tier, read_table, roll_key, write_table};

/// Completes hours by minutes, and days by hours.
pub(super) fn complete(connection: &Connection) -> rusqlite::Result<()> {
    for (from, to) in [(Tier::Minute, Tier::Hour), (Tier::Hour, Tier::Day)] {
        let lacking = lacking(connection, from, to)?;
        if lacking.is_empty() {
            continue;
        }
        let transaction = connection.unchecked_transaction()?;
        for bucket in lacking {
            make(&transaction, from, to, bucket)?;
        }
        transaction.commit()?;
    }
    Ok(())
}

/// Buckets of `to` that have fewer seconds than their parts of `from`.
fn lacking(connection: &Connection, from: Tier, to: Tier) -> rusqlite::Result<Vec<u64>> {
    let mut statement = connection.prepare(
        "SELECT part.bucket FROM (SELECT bucket / ?1 AS bucket, sum(seconds) AS seconds FROM total WHERE tier = ?2
         GROUP BY 1) AS part LEFT JOIN total ON tier = ?3 AND total.bucket = part.bucket
         WHERE total.seconds IS NULL OR total.seconds + 0.5 < part.seconds",
    )?;
    let parts = (to.len_ns() / from.len_ns()) as i64;
    let found = statement
        .query_map(params![parts, from as i64, to as i64], |row| row.get::<_, i64>(0).map(|at| at as u64))?;
    found.collect()
}

/// Makes a bucket again from its parts.
fn make(connection: &Connection, from: Tier, to: Tier, bucket: u64) -> rusqlite::Result<()> {
    let parts = to.len_ns() / from.len_ns();
    let range = bucket * parts..(bucket + 1) * parts;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO total SELECT ?1, ?2, sum(seconds), sum(packets), sum(bytes), sum(metered),
             sum(metered_bytes), sum(flow_bytes), sum(not_ip), sum(cut), sum(sampled_out), sum(lost_ring),
             sum(lost_daemon), sum(lost_before), sum(flows), max(active) FROM total
             WHERE tier = ?3 AND bucket >= ?4 AND bucket < ?5",
        )?
        .execute(params![to as i64, bucket as i64, from as i64, range.start as i64, range.end as i64])?;
    for dimension in KEPT {
        let mut sum = TableSum::default();
        for part in range.clone() {
            if let Some(table) = read_table(connection, roll_key(from, dimension, part))? {
                sum.append(&table);
            }
        }
        write_table(connection, roll_key(to, dimension, bucket), &sum.finish(to.rows()))?;
    }
    Ok(())
}
