//! What the source is told that is wanted: the rest is not even lent.

use tapline_capture::Source;
use tapline_ir::CompiledFilter;

use super::Desk;
use crate::union::{self, Asked};

/// What the source was told that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Restricted {
    /// All that the capture filter accepts.
    Not,
    /// What this program accepts.
    To(CompiledFilter),
    /// It cannot be told.
    Never,
}

impl Desk {
    /// Has the source lend what anybody wants, and one more.
    pub(super) fn want(&mut self, more: Option<&Asked>, source: &dyn Source) -> Result<(), String> {
        if self.restricted == Restricted::Never {
            return Ok(());
        }
        let union = self.union(more);
        if union == self.restricted {
            return Ok(());
        }
        let program = match &union {
            Restricted::To(program) => Some(program),
            _ => None,
        };
        let can = source.restrict(program).map_err(|error| error.to_string())?;
        self.restricted = if can { union } else { Restricted::Never };
        Ok(())
    }

    /// What anybody wants, and one more.
    fn union(&self, more: Option<&Asked>) -> Restricted {
        let readers = self.readers.iter().map(|reader| &reader.asked);
        let all = self.setting.history.iter().map(|history| &history.asked).chain(readers).chain(more);
        union::of(all).map_or(Restricted::Not, |program| Restricted::To(program.into()))
    }

    /// Tells the source what nobody wants any longer. Not at once: whoever comes often costs no more than that.
    pub(super) fn want_less(&mut self, source: &dyn Source) {
        if std::mem::take(&mut self.may_want_less) {
            // What cannot be told is lent.
            let _ = self.want(None, source);
        }
    }
}
