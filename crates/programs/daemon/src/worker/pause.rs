//! The states of a capture: running and paused.
//!
//! ```text
//!            pause                                pause: refused, it is paused
//! running ----------> paused                      resume, while it runs: refused
//!    ^                  |  packets are counted, and go nowhere; a file is not read on
//!    +------resume------+  packets that came before it, and wait still, are of the pause
//!
//! ended: refused, either way
//! ```

use tapline_packet::Timestamp;
use tapline_sys::clock;
use tapline_tap_client::protocol::ControlAction;

/// Whether packets are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PauseState {
    Running {
        /// The end of the last pause: packets before it belong to that. None without one, and for files, whose packets
        /// have times of their own.
        since: Option<Timestamp>,
    },
    Paused,
}

impl PauseState {
    /// The state after an action.
    ///
    /// # Errors
    /// There is no such way from here, in words.
    pub(super) fn after(self, action: ControlAction, is_file: bool) -> Result<PauseState, String> {
        match (self, action) {
            (PauseState::Running { .. }, ControlAction::Pause) => Ok(PauseState::Paused),
            (PauseState::Paused, ControlAction::Resume) => {
                let now = Timestamp::from_nanos(clock::realtime_ns());
                Ok(PauseState::Running { since: (!is_file).then_some(now) })
            }
            (PauseState::Paused, ControlAction::Pause) => Err("the capture is paused already".to_owned()),
            (PauseState::Running { .. }, ControlAction::Resume) => {
                Err("the capture is not paused".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_and_resume_alternate() {
        use ControlAction::{Pause, Resume};
        let running = PauseState::Running { since: None };
        assert!(running.after(Resume, false).is_err());
        let paused = running.after(Pause, false).expect("a way");
        assert_eq!(paused, PauseState::Paused);
        assert!(paused.after(Pause, false).is_err());
        assert_eq!(paused.after(Resume, true), Ok(running), "a file has no clock");
        let again = paused.after(Resume, false).expect("a way");
        assert!(matches!(again, PauseState::Running { since: Some(_) }));
        assert!(again.after(Resume, false).is_err() && again.after(Pause, false) == Ok(PauseState::Paused));
    }
}
