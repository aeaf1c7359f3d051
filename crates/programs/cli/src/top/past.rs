//! Queries of the history that `tapline view` keeps. A build without the feature `view` has none.

use std::path::{Path, PathBuf};

use tapline_pages::PastWindow;
use tapline_sys::sandbox;
use tapline_view::Dimension;

/// Rows of a table of the past.
#[cfg(feature = "view")]
const ROWS: usize = 100;

/// The history, opened when it is first asked.
pub(super) struct Past {
    path: Option<PathBuf>,
    #[cfg(feature = "view")]
    open: Option<tapline_web::History>,
    last: Option<CachedAnswer>,
}

/// An answer stays for the minute in which it was given.
struct CachedAnswer {
    question: (Vec<Dimension>, u64, u64),
    answer: Result<Vec<PastWindow>, String>,
}

impl Past {
    /// The history in a file; `None` for the user's own.
    pub(super) fn new(path: Option<&Path>) -> Past {
        let path = path.map(Path::to_owned).or_else(crate::view::own_history);
        Past {
            path,
            #[cfg(feature = "view")]
            open: None,
            last: None,
        }
    }

    /// The folder of the history, in which a reader makes files of its own, too.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.path.as_deref().and_then(sandbox::folder_of).map(Path::to_owned)
    }

    /// The tables of some dimensions over a window in seconds since 1970; an error as text.
    pub(super) fn ask(
        &mut self,
        dimensions: &[Dimension],
        (from, to): (u64, u64),
    ) -> Result<Vec<PastWindow>, String> {
        const MINUTE: u64 = 60;
        let question = (dimensions.to_vec(), from / MINUTE, to / MINUTE);
        if let Some(last) = self.last.as_ref().filter(|last| last.question == question) {
            return last.answer.clone();
        }
        let answer = self.read(dimensions, (from, to));
        self.last = Some(CachedAnswer { question, answer: answer.clone() });
        answer
    }

    #[cfg(feature = "view")]
    fn read(&mut self, dimensions: &[Dimension], window: (u64, u64)) -> Result<Vec<PastWindow>, String> {
        let path = self.path.as_deref().ok_or("no history is kept: name its file (--history)")?;
        if !path.is_file() {
            let path = path.display();
            return Err(format!("there is no history at {path}: tapline view keeps one while it runs"));
        }
        if self.open.is_none() {
            let opened = tapline_web::History::open_to_read(path).map_err(|error| error.to_string())?;
            self.open = Some(opened);
        }
        let Some(history) = &self.open else { return Ok(Vec::new()) };
        let ask = |dimension: &Dimension| {
            let answer = history.greatest(*dimension, window.0, window.1, ROWS);
            answer.map(|answer| answer.window).map_err(|error| error.to_string())
        };
        let answers: Result<Vec<PastWindow>, String> = dimensions.iter().map(ask).collect();
        if answers.is_err() {
            self.open = None;
        }
        answers
    }

    #[cfg(not(feature = "view"))]
    fn read(&mut self, _: &[Dimension], _: (u64, u64)) -> Result<Vec<PastWindow>, String> {
        let path = self.path.as_deref().unwrap_or(Path::new("the history")).display();
        Err(format!("this build does not read {path}: build it with `--features view`"))
    }
}
