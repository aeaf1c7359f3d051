//! Filters of the command line: their text, and their program for each interface.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, anyhow};
use tapline_bpf::DumpFormat;
use tapline_capture::{DroppedPackets, af_packet};
use tapline_filter::{HandleKind, Options};
use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, LinkType};
use tapline_source::Error;
use tapline_stages::{input_file, split_names};

use crate::args::LanguageArgs;
use crate::mistakes::mistake;
use crate::stored::UnfitLinkTypes;

/// Compiles the texts of filters in a run.
pub(crate) struct Compiler {
    snap_len: u32,
    optimise: bool,
    language: LanguageArgs,
    handle: HandleKind,
    /// The IPv4 netmask of each live interface, for `ip broadcast`.
    netmasks: HashMap<String, u32>,
    /// Link types of stores that do not support the filter of the search.
    unfit: Arc<UnfitLinkTypes>,
    last: Mutex<Option<LastFilter>>,
}

/// The filter that was compiled last. Most captures compile one filter several times: to check it, and for each
/// interface and worker.
struct LastFilter {
    text: String,
    link_type: LinkType,
    netmask: Option<u32>,
    handle: HandleKind,
    program: CompiledFilter,
}

impl Compiler {
    /// For packets of files, or of live interfaces of a network namespace.
    pub(crate) fn new(
        snap_len: u32,
        optimise: bool,
        language: LanguageArgs,
        is_live: bool,
        netns: Option<&str>,
    ) -> Compiler {
        let handle = if is_live { HandleKind::Live } else { HandleKind::Savefile };
        // Without them only `ip broadcast` is missed, which then says so.
        let netmasks = if is_live { af_packet::netmasks(netns).unwrap_or_default() } else { HashMap::new() };
        Compiler {
            snap_len,
            optimise,
            language,
            handle,
            netmasks,
            unfit: Arc::default(),
            last: Mutex::default(),
        }
    }

    /// Dialect of filter texts.
    pub(crate) fn language(&self) -> LanguageArgs {
        self.language
    }

    /// Link types of stores that do not support the filter of the search.
    pub(crate) fn unfit(&self) -> &Arc<UnfitLinkTypes> {
        &self.unfit
    }

    /// Options of the compiler for packets of `interface`.
    pub(crate) fn options(&self, interface: &Interface) -> Options {
        let is_dropped = self.handle == HandleKind::Live && DroppedPackets::is_its(interface);
        let netmask = match self.handle {
            HandleKind::Live => self.netmasks.get(&interface.name).copied(),
            _ => Some(0), // as tcpdump -r
        };
        Options {
            link_type: interface.link_type,
            snap_len: self.snap_len,
            netmask,
            handle: if is_dropped { HandleKind::Dropped } else { self.handle },
            optimise: self.optimise,
            ..self.language.options(Options::default())
        }
    }

    /// The program for packets that have not reached the kernel's stack: VLAN tags are in them, as in a file. `None`
    /// lets everything through.
    pub(crate) fn compile_in_front(
        &self,
        text: &str,
        interface: &Interface,
    ) -> Result<Option<CompiledFilter>, Error> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let options = Options { handle: HandleKind::Front, ..self.options(interface) };
        // With `outbound`, no packet is taken from the host.
        let program = tapline_filter::compile_or_reject(text, &options);
        program.map(Some).map_err(|error| Error::Filter(error.render(text)))
    }

    /// The program for packets of `interface`, also for the empty filter.
    pub(crate) fn program(&self, text: &str, interface: &Interface) -> Result<CompiledFilter, Error> {
        let options = self.options(interface);
        let Options { link_type, netmask, handle, .. } = options;
        // Two threads may compile the same filter at the same time: neither waits for the other.
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last()
            && (last.text.as_str(), last.link_type, last.netmask, last.handle)
                == (text, link_type, netmask, handle)
        {
            return Ok(last.program.clone());
        }
        let program =
            tapline_filter::compile(text, &options).map_err(|error| Error::Filter(error.render(text)))?;
        // A live interface may come later, when the addresses of a name may be others.
        if self.handle != HandleKind::Live || !tapline_filter::may_ask_for_names(text) {
            *last() = Some(LastFilter {
                text: text.to_owned(),
                link_type,
                netmask,
                handle,
                program: program.clone(),
            });
        }
        Ok(program)
    }

    /// The program for packets of `interface`; `None` lets everything through.
    pub(crate) fn compile(&self, text: &str, interface: &Interface) -> Result<Option<CompiledFilter>, Error> {
        if text.trim().is_empty() { Ok(None) } else { self.program(text, interface).map(Some) }
    }
}

/// The filter's text: a file's, or the words of the command line joined.
pub(crate) fn filter_text(file: Option<&Path>, words: &[String]) -> Result<String> {
    let Some(path) = file else { return Ok(words.join(" ")) };
    let text = input_file::read(path, input_file::TEXT_MAX).map_err(|why| anyhow!("the filter: {why}"))?;
    Ok(without_comments(&String::from_utf8_lossy(&text)))
}

/// Checks the grammar of a filter.
pub(crate) fn check_filter(text: &str) -> Result<()> {
    tapline_filter::parse(text).map(drop).map_err(|error| mistake(error.render(text)))
}

/// Checks the grammar of the filter of a graph, which may have words for names.
pub(crate) fn check_stage_filter(text: &str) -> Result<()> {
    match split_names(text).map_err(mistake)? {
        Some((filter, _)) => check_filter(&filter),
        None => check_filter(text),
    }
}

/// Blanks comments, from a `#` to the end of its line, as tcpdump does in files. The rest keeps its position.
fn without_comments(text: &str) -> String {
    let mut is_comment = false;
    let blank = |character: char| {
        is_comment = character != '\n' && (is_comment || character == '#');
        if is_comment { ' ' } else { character }
    };
    text.chars().map(blank).collect()
}

/// Form of a listing by the number of `-d`.
pub(crate) fn program_form(count: u8) -> DumpFormat {
    match count {
        0 | 1 => DumpFormat::Assembly,
        2 => DumpFormat::C,
        _ => DumpFormat::Decimal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_a_file_are_blanked() {
        assert_eq!(without_comments("# all\ntcp # \u{fc} # web\nport 80#"), "     \ntcp          \nport 80 ");
    }

    /// No packet of `drops:` has a direction, and packets of other interfaces have one.
    #[test]
    fn packets_that_the_kernel_dropped_have_no_direction() {
        let compiler = Compiler::new(262_144, true, LanguageArgs::default(), true, None);
        let drops = Interface::new("drops", LinkType::RAW);
        let error = compiler.program("udp and outbound", &drops).unwrap_err().to_string();
        assert!(error.contains("'outbound' not supported on packets that the kernel dropped"), "{error}");
        assert!(compiler.program("udp port 53 and ifindex 3", &drops).is_ok());
        let tunnel = Interface { if_index: 3, ..drops.clone() };
        assert!(compiler.program("udp and outbound", &tunnel).is_ok());
        assert!(compiler.program("udp and outbound", &drops).is_err(), "it is another interface's filter");
    }

    /// Interfaces alike share the last filter; others, and other texts, get their own.
    #[test]
    fn the_last_filter_serves_interfaces_alike() {
        let compiler = Compiler::new(262_144, true, LanguageArgs::default(), false, None);
        for link_type in [LinkType::ETHERNET, LinkType::ETHERNET, LinkType::RAW, LinkType::ETHERNET] {
            for text in ["host 10.0.0.1", "host 10.0.0.1", "tcp port 80"] {
                let interface = Interface::new("far0", link_type);
                let options = Options { netmask: Some(0), ..Options::new(link_type) };
                let expected = tapline_filter::compile(text, &options).expect("a filter");
                assert_eq!(compiler.program(text, &interface).expect("a filter"), expected, "{text}");
            }
        }
        let last = |compiler: &Compiler| compiler.last.lock().expect("no panic").is_some();
        let live = Compiler::new(262_144, true, LanguageArgs::default(), true, None);
        let interface = Interface::new("far0", LinkType::ETHERNET);
        assert!(live.program("host 10.0.0.1", &interface).is_ok());
        assert!(last(&compiler) && !last(&live), "names are looked up again");
        assert!(live.program("tcp port 80", &interface).is_ok());
        assert!(last(&live));
    }
}
