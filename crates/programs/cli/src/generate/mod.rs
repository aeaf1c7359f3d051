//! `tapline generate`: a recipe becomes a source; the engine carries its packets into a file, the pacer out of an
//! interface.
//!
//! ```text
//! words --> recipe --> source, file opened ------> rights dropped --> engine --> account
//!                      source, interface opened -> rights dropped --> pacer  --> account, rate, gaps
//! ```

mod sending;

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use tapline_file::{FileWriter, Rotation, Section, WriteError, WriteOptions, parse_size};
use tapline_generator::{KEYS, Recipe};
use tapline_graph::{Out, Packets, RunEnd, Stage, StageCounters, StageStatus, TickContext};
use tapline_meters::Meters;
use tapline_packet::{Interface, Timestamp};
use tapline_source::{Error, Source};
use tapline_stages::{Chain, FileOutput, GeneratedSource};
use tapline_syntax::units::{count_in, size_in};
use tapline_sys::sandbox::{AllowedAccess, folder_of};

use crate::args::FormatArg;
use crate::mistakes::{mistake, misuse};
use crate::sending::SendArgs;
use crate::session::{Counters, Session, Watcher, Workers, clock, clocks, title};
use crate::{privileges, report};

const EXAMPLES: &str = "\
Examples:
  tapline generate -w small.pcap count=1M rate=100Mwire
      a full wire of 100 Mbit/s: 148,809 frames a second
  tapline generate -w imix.pcapng.zst size=imix flows=1k rate=100k gaps=poisson duration=10s
  tapline generate -w web.pcap tcp ip6 dport=80,443 size=1514 vlan=100.5 count=10k
  tapline generate -w mix.pcap match='tcp port 80' share=1/10 flows=500 count=100k
  tapline generate -w marked.pcap mark size=60..1514 count=10k
  tapline run -e 'file(\"marked.pcap\") -> verify -> drop'
      packets lost, duplicated, reordered, and their delay
  tapline generate -w bad.pcap bad=checksum:1/100,truncated:1/100 count=10k
  tapline generate -w - size=590 count=100 | tapline capture -r - -n
  tapline generate -i veth0 mark size=60..1514 flows=100 rate=50k duration=10s
      out of an interface; tapline capture -i veth1 --verify tells what became of them
  tapline generate -i veth0 size=60 count=10M
      as fast as it goes: by XDP live frames, if veth0 takes them (--backend)

The same recipe gives the same file, byte for byte. In graphs, generate(\"RECIPE\") is a source.
docs/generate.md says more.";

/// Arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub(crate) struct GenerateArgs {
    /// Write packets to this file ('-' is standard output). Its ending chooses the format: .pcapng or else pcap, and
    /// .gz, .zst or .lz4 after it.
    #[arg(short = 'w', value_name = "FILE", required_unless_present = "interface", help_heading = "Output")]
    write: Option<PathBuf>,
    /// Send packets on this interface instead, each at its time; without a rate in the recipe as fast as it goes.
    #[arg(short, long, value_name = "NAME", conflicts_with = "write", help_heading = "Output")]
    interface: Option<String>,
    #[command(flatten)]
    sending: SendArgs,
    /// Write in this format, whatever the name says.
    #[arg(long, value_name = "FORMAT", help_heading = "Output")]
    format: Option<FormatArg>,
    /// Keep at most this many bytes of a packet; its length on the wire stays. 0 keeps all.
    #[arg(short, long, value_name = "BYTES", default_value_t = 0, value_parser = size_in::<u32>(..), help_heading = "Output")]
    snapshot_length: u32,
    /// Begin a new file after this many million bytes; with k, m or g: KiB, MiB or GiB.
    #[arg(short = 'C', value_name = "SIZE", help_heading = "Output")]
    file_size: Option<String>,
    /// With -C a ring of that many files.
    #[arg(short = 'W', value_name = "N", value_parser = count_in::<u32>(..), help_heading = "Output", requires = "file_size")]
    file_count: Option<u32>,
    /// Add .part to the name of the file that is being written.
    #[arg(long, help_heading = "Output")]
    part: bool,
    /// Print the account as JSON, on standard output.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Run as this user once everything is open. Default: the caller of sudo, if any.
    #[arg(short = 'Z', long, value_name = "USER", help_heading = "Privileges")]
    relinquish_privileges: Option<String>,
    /// Recipe: words and key=value, as listed below.
    #[arg(value_name = "RECIPE")]
    recipe: Vec<String>,
}

/// The words and keys of recipes, then examples.
fn help() -> String {
    const INDENT: usize = 2;
    const NAME_WIDTH: usize = 10;
    // That of a terminal, and less than what clap would break itself.
    const WIDTH: usize = 79;
    let mut text = String::from("Recipes:\n");
    for key in KEYS {
        let value = if key.value.is_empty() { String::new() } else { format!("{}: ", key.value) };
        let mut line = format!("{:INDENT$}{:<NAME_WIDTH$}", "", key.name);
        for word in format!("{value}{}", key.meaning).split(' ') {
            if line.len() + word.len() + 1 > WIDTH {
                let _ = writeln!(text, "{line}");
                line = " ".repeat(INDENT + NAME_WIDTH);
            }
            let gap = if line.ends_with(' ') { "" } else { " " };
            line += &format!("{gap}{word}");
        }
        let _ = writeln!(text, "{line}");
    }
    text + "\n" + EXAMPLES
}

/// The words as one text. The shell took the quotes of those that hold blanks by right.
fn recipe_text(words: &[String]) -> String {
    let word = |word: &String| {
        let holds_text = word.starts_with("match=") || word.starts_with("payload=");
        match word.split_once('=').filter(|_| holds_text) {
            Some((key, value)) if !value.starts_with(['\'', '"']) && value.contains(char::is_whitespace) => {
                let quote = if value.contains('\'') { '"' } else { '\'' };
                format!("{key}={quote}{value}{quote}")
            }
            _ => word.clone(),
        }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

pub(crate) fn run(args: &GenerateArgs) -> Result<ExitCode> {
    let text = recipe_text(&args.recipe);
    let recipe = Recipe::parse(&text).map_err(|error| mistake(error.render(&text)))?;
    if let Some(interface) = &args.interface {
        return sending::run(args, interface, &text, recipe.rate);
    }
    if !recipe.is_bounded() && !is_standard_output(args) {
        misuse!("how many packets? count=1000 or duration=10s in the recipe ends the file");
    }
    let source = GeneratedSource::new(&text, clock()).map_err(|error| mistake(error.render(&text)))?;
    let mut session = Session::new(args.relinquish_privileges.as_deref(), None)?;
    session.catch()?;
    let output = open_file(args, &text, source.interfaces(), session.identity.as_ref())?;
    let folder = args.write.as_deref().filter(|_| !is_standard_output(args)).and_then(folder_of);
    let mut needs = AllowedAccess::default();
    session.allow_files(&mut needs, folder.map(Path::to_owned));
    let (meters, _) = session.confine(needs, || Meters::create(&title()))?;
    session.obey(None)?;
    let chain = Chain {
        compile: Arc::new(|_| Ok(None)),
        looks_for_tags: false,
        names: None,
        decide: None,
        shared: None,
        control: Arc::clone(&session.control),
        snap_len: if args.snapshot_length == 0 { u32::MAX } else { args.snapshot_length },
        verify: false,
    };
    let (graph, node) = chain.graph(&meters, 0, vec![Box::new(output)]);
    let counters = if io::stderr().is_terminal() { Counters::Packets } else { Counters::None };
    let workers = Workers::alone(vec![Box::new(source)], (graph, vec![node]));
    let finished = session.drive(workers, &Watcher::of_accounts(1, counters, args.json))?;
    let ended = match finished.ended {
        // A reader that has enough of a recipe's packets (`| head`) misses none.
        RunEnd::Failed(Error::File(error)) if is_standard_output(args) && is_left(&*error) => RunEnd::Stopped,
        ended => ended,
    };
    let failure = session.failure(&ended, false);
    let code = if failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    let account = &finished.account;
    if args.json && !is_standard_output(args) {
        writeln!(io::stdout(), "{}", report::json(account))?;
    } else {
        let form = args.sending.report.account.form(false);
        let text =
            if args.json { format!("{}\n", report::json(account)) } else { report::text(account, form) };
        let _ = io::stderr().write_all(text.as_bytes());
    }
    Ok(code)
}

fn is_left(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(WriteError::BrokenPipe { .. }))
}

fn is_standard_output(args: &GenerateArgs) -> bool {
    args.write.as_ref().is_some_and(|path| path.as_os_str() == "-")
}

fn open_file(
    args: &GenerateArgs,
    recipe: &str,
    interfaces: &[Interface],
    identity: Option<&tapline_sys::privilege::Identity>,
) -> Result<Repeatable> {
    let Some(path) = &args.write else { misuse!("no output: give -w FILE") };
    if is_standard_output(args) && io::stdout().is_terminal() {
        misuse!("packets are not for a terminal: send them to a program (-w - | ...) or to a file (-w NAME)");
    }
    let mut options = WriteOptions::new(path, interfaces);
    options.format = FormatArg::of(args.format, path)?;
    let size_max = args.file_size.as_deref().map(parse_size).transpose()?;
    options.rotation = Rotation { size_max, period_s: None, count: args.file_count };
    options.has_part_name = args.part;
    options.snap_len = args.snapshot_length;
    // Nothing of this machine or of this moment: the same recipe gives the same file.
    let application = concat!("tapline ", env!("CARGO_PKG_VERSION")).to_owned();
    let comments = vec![format!("{application}, generate {recipe}")];
    options.section = Section { application, comments, ..Section::default() };
    options.statistics_interval_ns = 0;
    let writer = FileWriter::create(options, interfaces, clocks(), privileges::files(path, identity)?)?;
    Ok(Repeatable {
        file: FileOutput::new(writer, &path.display().to_string(), None),
        last: Timestamp::EPOCH,
    })
}

/// A file whose statistics were taken when its last packet left, not when it was written.
struct Repeatable {
    file: FileOutput,
    last: Timestamp,
}

impl Stage for Repeatable {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        if let Some(last) = packets.batch.records().last() {
            self.last = last.meta.timestamp;
        }
        self.file.push(packets, out)
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.file.idle()
    }

    fn tick(&mut self, moment: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.file.tick(moment, out)
    }

    fn finish(&mut self, moment: &TickContext<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.file.finish(&TickContext { now: self.last, ..*moment }, out)
    }

    fn counters(&self) -> StageCounters {
        self.file.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_hold_blanks_get_their_quotes_back() {
        let words = [
            "udp",
            "match=tcp port 80",
            "payload='a b'",
            "size=60 count=3",
            "payload=it's a text",
            "match=udp",
        ];
        let text = recipe_text(&words.map(str::to_owned));
        let expected =
            "udp match='tcp port 80' payload='a b' size=60 count=3 payload=\"it's a text\" match=udp";
        assert_eq!(text, expected);
    }

    #[test]
    fn help_names_every_key_in_lines_that_fit() {
        let help = help();
        assert!(KEYS.iter().all(|key| help.contains(&format!("\n  {:<10}", key.name))), "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
}
