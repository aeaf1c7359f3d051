//! A host, or several together, in the past: sent and received traffic over time, and when it was seen.
//!
//! A bucket has rows of its greatest hosts alone. One without a row of the host is a point without a value, unless all
//! hosts of that time had rows.

use std::net::IpAddr;

use rusqlite::OptionalExtension as _;
use serde::Serialize;
use tapline_pages::Directions;
use tapline_view::{Amount, Dimension, Key};

use super::answer::{HistoryQuestion, Piece};
use super::{History, record, roll_key};
use crate::error::Error;
use crate::query::Query;

/// Addresses of a question.
const HOSTS_MAX: usize = 32;

/// A question for the past of hosts.
#[derive(Clone, Debug)]
pub(crate) struct HostQuestion {
    hosts: Vec<IpAddr>,
    window: HistoryQuestion,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct HostPast {
    /// The begin of each point, in seconds since 1970.
    t: Vec<u64>,
    /// Seconds between two points.
    step_seconds: u64,
    /// The length of a point as a word.
    tier: &'static str,
    #[serde(flatten)]
    directions: Directions,
    /// The begin of the first and the end of the last bucket of the window with a row, in seconds since 1970.
    seen: Option<[u64; 2]>,
    /// True if a host lacked a row that it may have had: the hosts have at least so much together.
    is_least: bool,
}

/// The sum of hosts in the tables of a direction; unknown once a bucket lacks a row that it may have had.
#[derive(Clone, Copy, Default)]
struct Sum {
    amount: Amount,
    is_unknown: bool,
    is_least: bool,
}

impl HostQuestion {
    /// Reads `host`, addresses with commas, and the window of an address.
    pub(crate) fn parse(query: &Query) -> Result<HostQuestion, String> {
        let window = HistoryQuestion::window_of(query)?;
        let hosts: Result<Vec<IpAddr>, _> = query.text("host").split(',').map(str::parse).collect();
        let mut hosts = hosts.map_err(|_| "host is an address, or several with commas".to_owned())?;
        hosts.sort_unstable();
        hosts.dedup();
        if hosts.len() > HOSTS_MAX {
            return Err(format!("host: {HOSTS_MAX} addresses at most"));
        }
        Ok(HostQuestion { hosts, window })
    }

    /// The host, if it is one alone.
    pub(crate) fn host(&self) -> Option<IpAddr> {
        if let [host] = self.hosts[..] { Some(host) } else { None }
    }
}

impl History {
    /// The past of hosts.
    ///
    /// # Errors
    /// [`Error::History`].
    pub(crate) fn host(&self, question: &HostQuestion) -> Result<HostPast, Error> {
        self.ask_host(question).map_err(Error::history(self.path()))
    }

    fn ask_host(&self, question: &HostQuestion) -> rusqlite::Result<HostPast> {
        let _moment = self.connection.unchecked_transaction()?;
        let ids = self.ids(&question.hosts)?;
        let points = self.points(&question.window)?;
        let mut past =
            HostPast { step_seconds: points.step_seconds, tier: points.tier, ..HostPast::default() };
        for (begin, pieces) in points.pieces {
            let [mut sent, mut received] = [Sum::default(); 2];
            for piece in &pieces {
                let hosts = (&ids[..], question.hosts.len());
                let has_sent = self.add_piece(&mut sent, Dimension::HostOut, piece, hosts)?;
                let has_received = self.add_piece(&mut received, Dimension::HostIn, piece, hosts)?;
                if has_sent || has_received {
                    let [first, last] = piece.span();
                    let seen = past.seen.unwrap_or([first, last]);
                    past.seen = Some([seen[0].min(first), seen[1].max(last)]);
                }
            }
            past.is_least |= sent.is_least || received.is_least;
            let seconds: f64 = pieces.iter().map(Piece::seconds).sum();
            let known = |sum: Sum| (!sum.is_unknown).then_some(sum.amount);
            past.t.push(begin);
            past.directions.push(known(sent), known(received), (seconds.max(1.0) * 1e9) as u64);
        }
        Ok(past)
    }

    /// The numbers of hosts that ever had a row.
    fn ids(&self, hosts: &[IpAddr]) -> rusqlite::Result<Vec<i64>> {
        let mut statement = self.connection.prepare_cached("SELECT id FROM name WHERE key = ?1")?;
        let mut ids = Vec::new();
        for host in hosts {
            let key = record::key_bytes(&Key::host(*host));
            ids.extend(statement.query_row([key], |row| row.get::<_, i64>(0)).optional()?);
        }
        Ok(ids)
    }

    /// Adds the rows of hosts, given by their numbers and their count; whether one has a row.
    fn add_piece(
        &self,
        sum: &mut Sum,
        dimension: Dimension,
        piece: &Piece,
        (ids, count): (&[i64], usize),
    ) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached("SELECT v FROM roll WHERE k = ?1")?;
        let mut found = statement.query([roll_key(piece.tier, dimension, piece.bucket)])?;
        let table = match found.next()? {
            Some(row) => record::table_of(row.get_ref(0)?.as_blob()?),
            None => None,
        };
        let Some(table) = table else {
            sum.is_unknown = true;
            return Ok(false);
        };
        let mut found = 0;
        for (_, row) in table.rows.iter().filter(|(id, _)| ids.contains(id)) {
            found += 1;
            sum.amount.add(row.amount);
        }
        let is_lacking = found < count && table.rest.missing != Amount::default();
        sum.is_unknown |= found == 0 && is_lacking;
        sum.is_least |= found > 0 && is_lacking;
        Ok(found > 0)
    }
}
