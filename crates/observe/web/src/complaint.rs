//! Reports of a fault of the history to the administrator: at once, again each hour while it lasts, and when it is
//! over.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use crate::error::Error;

/// The time after which a lasting fault is reported again.
const AGAIN: Duration = Duration::from_secs(3600);

/// The fault that was reported last.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    /// Kind of the fault, and the time of the report on a steady clock.
    told: Option<(Discriminant<Error>, Duration)>,
}

impl Complaint {
    /// Whether an error is to be reported at this time of a steady clock.
    pub(crate) fn is_due(&mut self, error: &Error, now: Duration) -> bool {
        let kind = discriminant(error);
        let is_due = self.told.is_none_or(|(told, at)| told != kind || now.saturating_sub(at) >= AGAIN);
        if is_due {
            self.told = Some((kind, now));
        }
        is_due
    }

    /// Ends the fault. Returns whether it was reported.
    pub(crate) fn end(&mut self) -> bool {
        self.told.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_lasts_is_told_again_each_hour() {
        let error = || Error::Future { path: "history".into() };
        let mut complaint = Complaint::default();
        let minutes = (0..=120).filter(|minute| complaint.is_due(&error(), Duration::from_secs(60 * minute)));
        assert_eq!(minutes.collect::<Vec<_>>(), [0, 60, 120]);
        assert!(complaint.end() && !complaint.end());
        assert!(complaint.is_due(&error(), Duration::from_secs(121 * 60)), "it came back");
    }
}
