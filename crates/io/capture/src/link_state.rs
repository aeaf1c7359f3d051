//! State of an interface, and its names for users.

use tapline_sys::Link;

/// The fate of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Up, with carrier.
    Running,
    /// Up, without carrier.
    NoCarrier,
    /// Switched off.
    Down,
    /// Removed.
    Gone,
}

impl LinkState {
    pub(crate) fn of(link: &Link) -> LinkState {
        match (link.is_up(), link.is_running()) {
            (false, _) => LinkState::Down,
            (true, false) => LinkState::NoCarrier,
            (true, true) => LinkState::Running,
        }
    }

    /// The change of an interface to this state, as a clause.
    pub(crate) fn news(self) -> &'static str {
        match self {
            LinkState::Running => "is up",
            LinkState::NoCarrier => "lost its carrier",
            LinkState::Down | LinkState::Gone => "went down; the capture continues when it is up",
        }
    }
}
