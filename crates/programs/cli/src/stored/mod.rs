//! A store as the input or output of a command: `store:DIRECTORY` where a file is named, which of its packets are read,
//! and how.

mod answer;
mod names;
mod report;
mod unfit;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use tapline_bpf::PacketFilter;
use tapline_file::{Excerpt, PacketNumbers};
use tapline_filter::Options;
use tapline_ir::CompiledFilter;
use tapline_jit::TieredFilter;
use tapline_packet::Interface;
use tapline_stages::CompileFilter;
use tapline_store::moments::Clock;
use tapline_store::{
    Catalog, NameFilter, Question, Search, SearchFilter, StoreInput, StoreName, StoreReading, Window,
};
use tapline_syntax::units;
use tapline_sys::open_files;

pub(crate) use self::answer::{StoreSearch, gap_json};
pub(crate) use self::report::{search_json, search_text};
pub(crate) use self::unfit::UnfitLinkTypes;
use crate::args::LanguageArgs;
use crate::compiler::Compiler;
use crate::mistakes::{mistake, misuse};

/// Times of the packets to read from a store.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TimeArgs {
    /// Read from this time on: 10:00 (today), yesterday 22:00, 2026-11-24 10:00, -1h (ago), RFC 3339.
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, help_heading = "Store")]
    from: Option<String>,
    /// Read up to this time, exclusive; +5m means after --from.
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true, help_heading = "Store")]
    to: Option<String>,
    /// Keep reading packets as they are recorded, until Ctrl-C, or two seconds after the time of --to.
    #[arg(long, help_heading = "Store")]
    follow: bool,
}

/// Packets to read from a store, and the rate of reading.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PastArgs {
    #[command(flatten)]
    times: TimeArgs,
    /// Read at most this many bytes a second from a store: 50MB, 1GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_rate, help_heading = "Store")]
    max_read: Option<NonZeroU64>,
    /// Read only packets of a store with this host name, in DNS or as the server name in a hello of TLS, DTLS or QUIC.
    /// .example.org is that name and all below it. May be repeated, for packets with any of the names.
    #[arg(long, value_name = "NAME", value_parser = NameFilter::parse, help_heading = "Store")]
    name: Vec<NameFilter>,
}

fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    let bytes = units::size(text).map_err(|error| error.to_string())?;
    NonZeroU64::new(bytes).ok_or_else(|| "at least one byte a second".to_owned())
}

/// A store that was named in place of a file, if one was.
pub(crate) fn store_name(name: &Path) -> Result<Option<StoreName>> {
    StoreName::parse(name).transpose().map_err(|error| mistake(format_args!("{}: {error}", name.display())))
}

/// The directory of a store, if a name means one.
pub(crate) fn directory(name: &Path) -> Option<PathBuf> {
    StoreName::parse(name)?.ok().map(|store| store.directory)
}

impl TimeArgs {
    /// Whether something was said that only stores understand.
    pub(crate) fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.follow
    }

    /// The store with the times given here, in place of those in its name.
    pub(crate) fn of(&self, name: &StoreName) -> StoreName {
        let mut name = name.clone();
        name.from = self.from.clone().or(name.from);
        name.to = self.to.clone().or(name.to);
        name.follow |= self.follow;
        name
    }

    /// Rejects --from, --to and --follow if the input is not a store.
    pub(crate) fn check_unused(&self) -> Result<()> {
        if self.is_given() {
            misuse!("--from, --to and --follow are for stores: name one as store:DIRECTORY");
        }
        Ok(())
    }

    /// Checks the times.
    pub(crate) fn check(&self, name: &StoreName) -> Result<()> {
        self.window(name).map(|_| ())
    }

    /// The times that are meant.
    fn window(&self, name: &StoreName) -> Result<Window> {
        let name = self.of(name);
        let said = |argument: &Option<String>, word: &str| match argument {
            Some(_) => format!("--{word}"),
            None => word.to_owned(),
        };
        let words = [said(&self.from, "from"), said(&self.to, "to")];
        let window = Clock::local().window(name.from.as_deref(), name.to.as_deref(), [&words[0], &words[1]]);
        window.map_err(mistake)
    }
}

impl PastArgs {
    /// The times that are meant; other options are for stores whose files are read.
    pub(crate) fn only_times(&self) -> Result<Window> {
        if self.max_read.is_some() || !self.name.is_empty() || self.times.follow {
            misuse!("--name, --follow and --max-read need the files of the store: tapline find DIRECTORY");
        }
        self.times.window(&StoreName::default())
    }

    /// The name of a store with the times that are meant.
    pub(crate) fn name_of(&self, store: &Path) -> Result<String> {
        let name = store_name(store)?.ok_or_else(|| anyhow!("{} is not a store", store.display()))?;
        self.times.check(&name)?;
        Ok(self.times.of(&name).text())
    }

    /// The packets of files that are meant; other options are for stores.
    pub(crate) fn of_files(&self) -> Result<Excerpt> {
        self.check_files()?;
        let Window { from, to } = self.times.window(&StoreName::default())?;
        Ok(Excerpt::default().between(from, (to != Window::ALL.to).then_some(to)))
    }

    /// Rejects the options of files and stores if the input is neither.
    pub(crate) fn check_unused(&self) -> Result<()> {
        if self.times.from.is_some() || self.times.to.is_some() {
            misuse!("--from and --to are for files and stores");
        }
        self.check_files()
    }

    fn check_files(&self) -> Result<()> {
        if self.max_read.is_some() {
            misuse!("--max-read is for stores: name one as store:DIRECTORY");
        }
        if !self.name.is_empty() {
            misuse!("--name is for stores: name one as store:DIRECTORY");
        }
        if self.times.follow {
            misuse!("--follow is for stores: name one as store:DIRECTORY");
        }
        Ok(())
    }
}

/// Packets of files by number, and other times for them.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ExcerptArgs {
    /// Read only these packets of files, numbered from 1: 10-20, or 1-5,8,30-. The filter runs after that.
    #[arg(long, value_name = "NUMBERS", value_parser = PacketNumbers::parse, help_heading = "Input")]
    packets: Option<PacketNumbers>,
    /// Add this to the times of packets from files: 1h, -0.5s. --from and --to compare the times before the shift.
    #[arg(long, value_name = "TIME", value_parser = parse_shift, allow_hyphen_values = true, help_heading = "Input")]
    shift: Option<i64>,
}

/// Nanoseconds, also negative.
fn parse_shift(text: &str) -> Result<i64, String> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(digits) => (digits, -1),
        None => (text.strip_prefix('+').unwrap_or(text), 1),
    };
    let ns = units::nanoseconds(digits).map_err(|error| error.to_string())?;
    i64::try_from(ns).map(|ns| sign * ns).map_err(|_| format!("{text} is too long a time"))
}

impl ExcerptArgs {
    /// The packets of files that are meant, with other options for them.
    pub(crate) fn of_files(&self, past: &PastArgs) -> Result<Excerpt> {
        let excerpt = past.of_files()?.shifted(self.shift.unwrap_or(0));
        Ok(match &self.packets {
            Some(numbers) => excerpt.numbered(numbers),
            None => excerpt,
        })
    }

    /// Rejects the options if the input is not a file.
    pub(crate) fn check_unused(&self) -> Result<()> {
        if self.packets.is_some() || self.shift.is_some() {
            misuse!("--packets and --shift are for files: -r FILE");
        }
        Ok(())
    }
}

/// Opens the packets of a store that a filter accepts; the threads that read the store run the filter. Link types that
/// do not support the filter are noted in `unfit`; it is an error if no link type of the store does.
pub(crate) fn open(
    name: &StoreName,
    past: &PastArgs,
    filter: &str,
    language: LanguageArgs,
    compile: CompileFilter,
    unfit: &Arc<UnfitLinkTypes>,
) -> Result<(StoreInput, StoreSearch)> {
    let options = language.options(Options::default());
    let of_names = past.name.iter().map(NameFilter::question).reduce(Question::or);
    let question = Question::of(filter, &options).and(of_names.unwrap_or(Question::Anything));
    check_open_files()?;
    let catalog = Arc::new(Catalog::open(&name.directory)?);
    let window = past.times.window(name)?;
    let mut search = Search::new(Arc::clone(&catalog), window, question)?;
    let follows = past.times.follow || name.follow;
    if follows {
        search.follow();
    } else {
        check_fits(&catalog, &compile)?;
    }
    let sieve = (!filter.trim().is_empty()).then(|| sieve(compile, Arc::clone(unfit)));
    let sieve = if past.name.is_empty() { sieve } else { Some(names::sieve(&past.name, sieve)) };
    let reading = StoreReading { sieve, rate: past.max_read, ..StoreReading::default() };
    let input = StoreInput::new(search, &name.directory.display().to_string(), reading);
    let report = input.report();
    Ok((input, StoreSearch { catalog, window, follows, report }))
}

/// As [`open`], with the filter compiled by `compiler`.
pub(crate) fn open_filtered(
    name: &StoreName,
    past: &PastArgs,
    filter: &str,
    compiler: &Arc<Compiler>,
) -> Result<StoreInput> {
    let (text, of_store) = (filter.to_owned(), Arc::clone(compiler));
    let compile = Arc::new(move |interface: &Interface| of_store.compile(&text, interface));
    Ok(open(name, past, filter, compiler.language(), compile, compiler.unfit())?.0)
}

/// Checks that a link type of the store supports the filter: the index may rule out all packets before their link type
/// is known.
fn check_fits(catalog: &Catalog, compile: &CompileFilter) -> Result<()> {
    let mut last_error = None;
    let mut fits = |link_type| {
        let compiled = compile(&Interface::new("", link_type));
        compiled.map_err(|error| last_error = Some(error)).is_ok()
    };
    match (catalog.any_link_type(&mut fits)?, last_error) {
        (Some(false), Some(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Open files that recording or searching a store needs, including those that every process has.
const OPEN_FILES_MIN: u64 = 64;

/// Checks that the process may open enough files; raises the limit as far as allowed.
pub(crate) fn check_open_files() -> Result<()> {
    match open_files::raise_limit() {
        Ok(limit @ ..OPEN_FILES_MIN) => bail!(
            "the process may have {limit} files open, and a store needs {OPEN_FILES_MIN}: raise the limit (ulimit -n)"
        ),
        _ => Ok(()),
    }
}

/// The filter for each interface: interfaces with the same program share one.
fn sieve(compile: CompileFilter, unfit: Arc<UnfitLinkTypes>) -> SearchFilter {
    let made: Mutex<Vec<(CompiledFilter, Arc<dyn PacketFilter>)>> = Mutex::default();
    Arc::new(move |interface: &Interface| {
        let program = match compile(interface) {
            Err(error) => return Ok(Some(unfit.refuse(interface.link_type, &error))),
            Ok(program) => program,
        };
        unfit.note_fit();
        let Some(program) = program else { return Ok(None) };
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, engine)) = made.iter().find(|(other, _)| *other == program) {
            return Ok(Some(Arc::clone(engine)));
        }
        let engine = Arc::new(TieredFilter::new(program.clone())) as Arc<dyn PacketFilter>;
        made.push((program, Arc::clone(&engine)));
        Ok(Some(engine))
    })
}
