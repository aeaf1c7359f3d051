//! ClickHouse over HTTP: a block is an insert of its own, as Native.
//!
//! ```text
//! POST /?query=INSERT INTO db.table (columns) FORMAT Native&insert_deduplication_token=ID&async_insert=0&wait_end_of_query=1
//! 200            delivered, unless X-ClickHouse-Summary tells of fewer rows
//! Code: 252 ...  again: the server is full, asleep, or lacks the table      Code: 33 ...  refused: the block is at fault
//! ```
//!
//! The token is the block's id: a table with a window of deduplication has a block once, however often it comes.

use std::time::Duration;

use tapline_file::Compression;

use crate::destination::TableAddress;
use crate::http::{agent, body_of, packed, shown};
use crate::{Block, Error, Outcome, Schema, Secret, Target};

/// Errors of a server that are the fault of the block: unreadable data, or an invalid value.
const REFUSED: [u32; 9] = [6, 25, 26, 27, 32, 33, 117, 131, 321];
/// The longest time of a question before the first insert.
const QUESTION_TIME: Duration = Duration::from_secs(10);
/// The longest wait for an answer about the table when a run begins.
const CHECK_TIME: Duration = Duration::from_secs(5);
/// Errors of a server that will not go away: no such table or database, and users that are refused.
const UNKNOWN: [u32; 2] = [60, 81];
const DENIED: [u32; 5] = [192, 193, 194, 497, 516];

/// A table of ClickHouse.
pub(crate) struct ClickHouseTarget {
    agent: ureq::Agent,
    address: TableAddress,
    name: String,
    user: Option<String>,
    secret: Option<Secret>,
    schema: Schema,
    compression: Option<Compression>,
    /// Memory of compressed blocks.
    packed: Vec<u8>,
    /// The endpoint that is asked first.
    endpoint: usize,
    /// Whether the table still has to be made.
    is_missing: bool,
}

/// An answer of a server.
struct Answer {
    status: u16,
    /// `Code: N` of an error.
    code: Option<u32>,
    written_rows: Option<u64>,
    body: String,
    /// The beginning of the body, to be shown.
    text: String,
}

impl ClickHouseTarget {
    pub(crate) fn new(
        address: TableAddress,
        name: String,
        user: Option<String>,
        secret: Option<Secret>,
        schema: Schema,
    ) -> ClickHouseTarget {
        let is_missing = address.creates;
        ClickHouseTarget {
            agent: agent(),
            address,
            name,
            user,
            secret,
            schema,
            compression: None,
            packed: Vec::new(),
            endpoint: 0,
            is_missing,
        }
    }

    /// Sets how blocks are compressed on their way.
    pub(crate) fn set_compression(&mut self, compression: Option<Compression>) {
        self.compression = compression;
    }

    /// Asks the endpoints for the columns of the table, unless it will be made. Servers that are away are not a
    /// fault.
    ///
    /// # Errors
    /// [`Error::Table`] if there is no such table, if the user is refused, or if columns are missing.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.address.creates {
            return Ok(());
        }
        let query = format!("DESCRIBE TABLE {} FORMAT TabSeparated", self.address.table);
        let answers = (0..self.address.endpoints.len())
            .map(|number| self.ask_within(number, Some(CHECK_TIME), &[("query", query.as_str())], b"", None));
        let Some(answer) = answers.filter_map(Result::ok).next() else { return Ok(()) };
        self.check_columns(&answer).map_err(|why| Error::Table { name: self.name.clone(), why })
    }

    fn check_columns(&self, answer: &Answer) -> Result<(), String> {
        let is = |codes: &[u32]| answer.code.is_some_and(|code| codes.contains(&code));
        let table = &self.address.table;
        match answer.status {
            200 if answer.code.is_none() => {}
            _ if is(&UNKNOWN) => {
                return Err(format!("there is no table {table}: make it, or add create=yes to the address"));
            }
            _ if is(&DENIED) => return Err(format!("the server refuses the user: {}", answer.text)),
            // Whatever else it has may pass.
            _ => return Ok(()),
        }
        let there: Vec<&str> = answer.body.lines().filter_map(|line| line.split('\t').next()).collect();
        let names = self.schema.columns.iter().map(|(name, _)| name.as_str());
        let missing: Vec<&str> = names.filter(|name| !there.contains(name)).collect();
        match missing.is_empty() || there.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "the table {table} has no column {}: add them to it, or name others with --template",
                missing.join(", ")
            )),
        }
    }

    /// Asks the endpoint that answered last.
    fn ask(
        &self,
        settings: &[(&str, &str)],
        body: &[u8],
        compression: Option<Compression>,
    ) -> Result<Answer, String> {
        self.ask_within(self.endpoint, None, settings, body, compression)
    }

    /// Asks an endpoint, and waits no longer for it than this. The body is compressed as `compression` says.
    fn ask_within(
        &self,
        endpoint: usize,
        time: Option<Duration>,
        settings: &[(&str, &str)],
        body: &[u8],
        compression: Option<Compression>,
    ) -> Result<Answer, String> {
        let endpoint = &self.address.endpoints[endpoint % self.address.endpoints.len()];
        let mut request = self.agent.post(format!("{endpoint}/"));
        if time.is_some() {
            request = request.config().timeout_global(time).build();
        }
        for (name, value) in settings {
            request = request.query(*name, *value);
        }
        if let Some(user) = &self.user {
            request = request.header("x-clickhouse-user", user);
        }
        if let Some(secret) = &self.secret {
            request = request.header("x-clickhouse-key", secret.as_str());
        }
        if let Some(compression) = compression {
            request = request.header("content-encoding", compression.name());
        }
        let mut answer = request.send(body).map_err(|error| format!("{endpoint}: {error}"))?;
        let header =
            |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (summary, code) = (header("x-clickhouse-summary"), header("x-clickhouse-exception-code"));
        let body = body_of(&mut answer);
        Ok(Answer {
            status: answer.status().as_u16(),
            code: code.and_then(|code| code.parse().ok()).or_else(|| code_of(&body)),
            written_rows: summary.as_deref().and_then(written_rows),
            text: shown(&body),
            body,
        })
    }

    fn insert(&mut self, block: &Block) -> Result<Answer, String> {
        let columns = match block.schema == self.schema.version {
            true => format!(" ({})", self.schema.names()),
            // Of a run with another template: as its bytes say.
            false => String::new(),
        };
        let query = format!("INSERT INTO {}{columns} FORMAT Native", self.address.table);
        let token = block.id.to_string();
        let settings = [
            ("query", query.as_str()),
            ("insert_deduplication_token", token.as_str()),
            // Else sums of views have a block as often as it comes.
            ("deduplicate_blocks_in_dependent_materialized_views", "1"),
            ("async_insert", "0"),
            ("wait_end_of_query", "1"),
        ];
        let settings = if self.address.is_old { &settings[..1] } else { &settings[..] };
        let mut memory = std::mem::take(&mut self.packed);
        let body = packed(&block.bytes, self.compression, &mut memory).map_err(|error| error.to_string())?;
        let answer = self.ask(settings, body, self.compression);
        self.packed = memory;
        answer
    }

    /// Makes the table, once.
    fn create(&mut self) -> Result<(), String> {
        if !self.is_missing {
            return Ok(());
        }
        let statement = self.schema.create(&self.address.table, self.address.is_old);
        let limit = QUESTION_TIME.as_secs().to_string();
        let answer = self.ask(&[("max_execution_time", limit.as_str())], statement.as_bytes(), None)?;
        match answer.status {
            200 => {
                self.is_missing = false;
                Ok(())
            }
            _ => Err(format!("the table cannot be made: {}", answer.text)),
        }
    }
}

impl Target for ClickHouseTarget {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver(&mut self, block: &Block) -> Outcome {
        let answer = match self.create() {
            Ok(()) => self.insert(block),
            Err(why) => Err(why),
        };
        let outcome = answer.map_or_else(Outcome::Again, |answer| outcome(&answer, block.rows));
        if matches!(outcome, Outcome::Again(_)) {
            self.endpoint += 1;
        }
        outcome
    }
}

/// The outcome of an insert, by its answer and the number of its rows.
fn outcome(answer: &Answer, rows: u64) -> Outcome {
    let refuses = answer.code.is_some_and(|code| REFUSED.contains(&code));
    match (answer.status, answer.written_rows) {
        // No rows: the server had the block already. More: views wrote as well.
        (200, Some(written)) if written > 0 && written < rows => {
            Outcome::Refused(format!("the server wrote {written} of {rows} rows"))
        }
        (200, _) if answer.code.is_none() => Outcome::Delivered,
        _ if refuses => Outcome::Refused(answer.text.clone()),
        (status, _) => Outcome::Again(format!("answer {status}: {}", answer.text)),
    }
}

/// The number in `Code: 33. DB::Exception: ...`.
fn code_of(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("Code: ")?;
    digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The member `written_rows` of a summary, which is a flat object of texts.
fn written_rows(summary: &str) -> Option<u64> {
    let (_, rest) = summary.split_once("\"written_rows\"")?;
    let digits = rest.trim_start_matches([':', ' ', '"']);
    digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests;
