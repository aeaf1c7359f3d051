//! The times of a command that changes a store.

use anyhow::Result;
use clap::Args;
use tapline_store::Window;
use tapline_store::moments::{Clock, shown};

use crate::mistakes::mistake;

/// Times of packets; all times without an option.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct WhenArgs {
    /// Packets from this time on: 10:00, yesterday 22:00, 2026-11-24 10:00, -1h (ago), RFC 3339, @SECONDS.
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    from: Option<String>,
    /// Packets before this time; +5m is after --from.
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    to: Option<String>,
}

impl WhenArgs {
    /// Whether a time was given.
    pub(super) fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    pub(super) fn window(&self) -> Result<Window> {
        let window = Clock::local().window(self.from.as_deref(), self.to.as_deref(), ["--from", "--to"]);
        window.map_err(mistake)
    }
}

/// The times for people.
pub(super) fn window_text(window: &Window) -> String {
    let (from, to) = (shown(window.from), shown(window.to));
    match (window.from == Window::ALL.from, window.to == Window::ALL.to) {
        (true, true) => "all times".to_owned(),
        (false, true) => format!("from {from} on"),
        (true, false) => format!("before {to}"),
        (false, false) => format!("from {from} to {to}"),
    }
}
