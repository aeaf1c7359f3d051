//! One key: memchr's `memmem`, again from one byte behind each occurrence.

use super::{SearchEngine, Set};
use crate::Error;
use crate::keys::{Keys, Sink};
use memchr::memmem::Finder;
use std::ops::ControlFlow;

#[derive(Debug)]
pub(crate) struct Single {
    finder: Finder<'static>,
}

impl Single {
    pub(crate) fn new(keys: &Keys) -> Result<Single, Error> {
        if keys.fold || keys.len() != 1 {
            return Err(SearchEngine::Single.unfit("it takes one pattern, case-sensitive"));
        }
        Ok(Single { finder: Finder::new(keys.bytes(0)).into_owned() })
    }

    pub(crate) fn search(&self, set: &Set, haystack: &[u8], sink: Sink<'_>) -> ControlFlow<()> {
        let mut from = 0;
        while let Some(found) = self.finder.find(&haystack[from..]) {
            set.report(0, haystack, from + found, sink)?;
            from += found + 1;
        }
        ControlFlow::Continue(())
    }
}
