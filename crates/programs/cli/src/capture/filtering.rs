//! The filter of a capture: its text, and its program for each interface's link type.

use std::sync::Arc;

use anyhow::Result;
use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, LinkType};
use tapline_source::Error;
use tapline_stages::{Names, fits_any, split_names};

use super::args::CaptureArgs;
use crate::compiler::{Compiler, filter_text};
use crate::mistakes::mistake;
use crate::stored::UnfitLinkTypes;

/// The filter of a capture.
pub(super) struct Filtering {
    text: String,
    /// The words for names of flows, which are a stage behind the filter.
    names: Option<String>,
    compiler: Compiler,
}

impl Filtering {
    /// Takes the text from the command line or from a file, and parses it once, so that a mistake shows at once.
    pub(super) fn new(args: &CaptureArgs) -> Result<Filtering> {
        let text = filter_text(args.filter_file.as_deref(), &args.filter)?;
        let (text, names) = match split_names(&text).map_err(mistake)? {
            Some((filter, names)) => (filter, Some(names)),
            None => (text, None),
        };
        if let Err(error) = tapline_filter::parse(&text) {
            return Err(mistake(error.render(&text)));
        }
        let (is_live, netns) = (args.read.is_empty(), args.netns.as_deref());
        let compiler = Compiler::new(args.snap_len(), !args.no_optimize, args.language, is_live, netns);
        Ok(Filtering { text, names, compiler })
    }

    /// The filter as it was given; empty for none.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The filter with the modifiers that mean the options of its language.
    pub(super) fn in_words(&self) -> String {
        self.compiler.language().in_words(&self.text)
    }

    /// The stage for names of flows, if the filter has words for them.
    pub(super) fn names(&self) -> Result<Option<Names>, Error> {
        self.names.as_deref().map(|words| Names::of_words(words).map_err(Error::Filter)).transpose()
    }

    /// Link types of the store that cannot have the filter.
    pub(super) fn unfit(&self) -> &Arc<UnfitLinkTypes> {
        self.compiler.unfit()
    }

    /// The program for packets of `interface`; `None` lets everything through.
    pub(super) fn compile(&self, interface: &Interface) -> Result<Option<CompiledFilter>, Error> {
        match self.compiler.unfit().program(interface.link_type) {
            Some(reject) => Ok(Some(reject)),
            None => self.compile_for_search(interface),
        }
    }

    /// As [`compile`](Self::compile), for the threads that read a store: they find link types without support first.
    pub(super) fn compile_for_search(&self, interface: &Interface) -> Result<Option<CompiledFilter>, Error> {
        self.compiler.compile(&self.text, interface)
    }

    /// The program for packets that have not reached the kernel's stack.
    pub(super) fn compile_in_front(&self, interface: &Interface) -> Result<Option<CompiledFilter>, Error> {
        self.compiler.compile_in_front(&self.text, interface)
    }

    /// The program for packets of `interface`, also for the empty filter.
    pub(super) fn program(&self, interface: &Interface) -> Result<CompiledFilter, Error> {
        self.compiler.program(&self.text, interface)
    }

    /// Compiles for the interfaces known at the start, so that a mistake shows before anything is opened for writing:
    /// an error if none of them can have the filter; where others may come, if neither Ethernet nor IP can.
    pub(super) fn check(&self, interfaces: &[Interface], may_grow: bool) -> Result<()> {
        let mut all = interfaces.to_vec();
        if may_grow {
            all.extend([LinkType::ETHERNET, LinkType::RAW].map(|link_type| Interface::new("", link_type)));
        }
        Ok(fits_any(&all, |interface| self.compile(interface))?)
    }
}
