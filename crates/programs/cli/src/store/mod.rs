//! `tapline record`, `find` and `store`: packets kept for days.
//!
//! ```text
//! record   what was typed --> capture --write store:DIR      capture's sources, filters, signals, account
//! find     what was typed --> capture --read store:DIR       and what the search passed over
//! store    status, check, verify, repair, hold, forget, import        of a directory; no daemon is asked
//! ```

mod find;
mod forget;
mod hold;
mod import;
mod manage;
mod mend;
mod progress;
mod record;
mod when;

pub(crate) use find::{FIND_EXAMPLES, FindArgs, find};
pub(crate) use manage::{STORE_EXAMPLES, StoreCommand, manage};
pub(crate) use record::{
    RECORD_EXAMPLES, RecordArgs, missing_text, open_output, output, record, settings_of_rule,
    settings_of_stage, tell_missing,
};
