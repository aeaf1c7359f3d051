//! `tapline follow`: the bytes of TCP conversations, in order, those of the client apart from those of the server.
//!
//! ```text
//! TCP packet --Reassembler--> bytes, gaps, ends --> Conversation: turns --complete--> text, hex or JSON
//!                                    |                  ^   \--no memory, or live--> the part that is there
//!                                    +- HTTP: heads, bodies unpacked
//! ```
//!
//! Conversations are printed one after the other, by number. One that takes too much memory is printed in parts, and so
//! are those of interfaces: nothing is left out.

mod body;
mod conversation;
mod show;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext, grouped};
use tapline_source::Error;
use tapline_stream::{Event, Limits, PacketFate, Reassembler, Stream};
use tapline_syntax::units::count_in;

use self::conversation::{Conversation, Shared};
use self::show::{Form, Show};
use super::lines::ResultLines;
use super::{Input, SessionArgs, brief, capture};
use crate::capture::ColorArg;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline follow -r trace.pcap 'port 80'          like tshark -z follow,tcp, or tcpflow
  tapline follow -r trace.pcap --number 3 -X      one of them, in hex
  tapline follow -i eth0 --json 'host 10.0.0.1'   turns as they come, for programs";

/// Memory of a conversation, in bytes; beyond it the conversation is printed in parts.
const CONVERSATION_MAX: usize = 16 << 20;
/// Memory of all conversations.
const MEMORY_MAX: usize = 256 << 20;

#[derive(Debug, Args)]
#[command(mut_args(brief))]
pub(crate) struct FollowArgs {
    /// Read only packets that this filter accepts, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Interface: a name, a glob, several with commas, 'any', or tap:NAME.
    #[arg(short, long, value_name = "NAMES")]
    interface: Vec<String>,
    /// Read files ('-' is standard input), or store:DIRECTORY. May be repeated.
    #[arg(short = 'r', value_name = "FILE", conflicts_with = "interface")]
    read: Vec<PathBuf>,
    /// Only the conversation with this number. May be repeated.
    ///
    /// Conversations are numbered from 0 in the order of their first packets, as tcp.stream in tshark.
    #[arg(long, value_name = "N", value_parser = count_in::<u64>(..))]
    number: Vec<u64>,
    /// Show bytes in hex and ASCII.
    #[arg(short = 'X', long, conflicts_with = "json")]
    hex: bool,
    /// Show HTTP as it was sent: bodies stay chunked and compressed.
    #[arg(long)]
    raw: bool,
    /// When to use colours.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: ColorArg,
    #[command(flatten)]
    session: SessionArgs,
    /// Print JSON: objects for turns, gaps and ends, the summary, and the account.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &FollowArgs) -> Result<ExitCode> {
    let form = match (args.json, args.hex) {
        (true, _) => Form::Json,
        (false, true) => Form::Hex,
        (false, false) => Form::Text,
    };
    let stage = FollowOutput {
        reassembler: Reassembler::new(Limits::default()),
        conversations: Conversations {
            known: BTreeMap::new(),
            numbers: args.number.clone(),
            is_raw: args.raw,
            memory: 0,
            missing: 0,
            shared: Shared::default(),
            touched: None,
            has_complete: false,
        },
        show: Show::new(ResultLines::open()?, form, args.color.is_colored()),
        packets: 0,
        not_tcp: 0,
        is_live: false,
    };
    let input = Input { interfaces: &args.interface, files: &args.read, filter: &args.filter };
    capture(&args.session, &input, args.json, Box::new(stage))
}

/// Conversations that are not printed, or not over.
struct Conversations {
    known: BTreeMap<u64, Conversation>,
    /// Numbers of the conversations to print. Empty: all.
    numbers: Vec<u64>,
    is_raw: bool,
    memory: usize,
    /// Missing bytes of the wanted ones.
    missing: u64,
    shared: Shared,
    /// The conversation that got bytes last.
    touched: Option<u64>,
    /// One of them is over.
    has_complete: bool,
}

impl Conversations {
    fn take(&mut self, stream: &Stream, event: Event<'_>) {
        let number = stream.connection;
        if !self.numbers.is_empty() && !self.numbers.contains(&number) {
            return;
        }
        if let Event::Gap { len, .. } = event {
            self.missing += len;
        }
        let begins = match event {
            Event::Segment(piece) if piece.len == 0 => return,
            Event::Segment(_) | Event::Gap { .. } => true,
            Event::End(_) | Event::Forgotten => false,
        };
        if begins && !self.known.contains_key(&number) {
            let conversation = Conversation::new(stream, self.is_raw);
            self.memory += conversation.memory();
            self.known.insert(number, conversation);
        }
        let Some(conversation) = self.known.get_mut(&number) else { return };
        let before = conversation.memory();
        conversation.take(stream, event, &mut self.shared);
        self.memory = self.memory - before + conversation.memory();
        self.touched = Some(number);
        self.has_complete |= conversation.is_complete();
    }

    /// Takes an event and prints complete conversations, until printing fails. This runs for each event, as the end of a
    /// gap releases many segments at once, which may unpack to a thousand times their length.
    fn take_and_print(
        &mut self,
        stream: &Stream,
        event: Event<'_>,
        show: &mut Show,
        printed: &mut Result<(), Error>,
    ) {
        if printed.is_ok() {
            self.take(stream, event);
            *printed = self.print_due(show);
        }
    }

    /// Prints a conversation as far as it is there, and forgets it if it is complete. Returns whether it was.
    fn print(&mut self, number: u64, show: &mut Show) -> Result<bool, Error> {
        let Some(conversation) = self.known.get_mut(&number) else { return Ok(true) };
        self.memory -= conversation.memory();
        let printed = show.conversation(number, conversation);
        if conversation.is_complete() {
            self.shared.forget(conversation);
            self.known.remove(&number);
        } else {
            self.memory += conversation.memory();
        }
        printed.map(|()| !self.known.contains_key(&number))
    }

    /// Prints those whose turn has come: complete ones with none before them, and parts if memory is short.
    fn print_due(&mut self, show: &mut Show) -> Result<(), Error> {
        let is_large = |one: &Conversation| one.memory() > CONVERSATION_MAX;
        if let Some(number) =
            self.touched.take().filter(|number| self.known.get(number).is_some_and(is_large))
        {
            self.print(number, show)?;
        }
        if std::mem::take(&mut self.has_complete) {
            self.print_first(show)?;
        }
        if self.memory > MEMORY_MAX {
            self.print_all(MEMORY_MAX / 2, show)?;
        }
        Ok(())
    }

    fn print_first(&mut self, show: &mut Show) -> Result<(), Error> {
        while let Some((&number, first)) = self.known.first_key_value()
            && first.is_complete()
        {
            self.print(number, show)?;
        }
        Ok(())
    }

    /// Prints conversations, by number, until they take no more memory than this.
    fn print_all(&mut self, most: usize, show: &mut Show) -> Result<(), Error> {
        let numbers: Vec<u64> = self.known.keys().copied().collect();
        for number in numbers {
            if self.memory <= most {
                break;
            }
            if self.known.get(&number).is_some_and(Conversation::has_news) {
                self.print(number, show)?;
            }
        }
        Ok(())
    }
}

struct FollowOutput {
    reassembler: Reassembler,
    conversations: Conversations,
    show: Show,
    packets: u64,
    not_tcp: u64,
    is_live: bool,
}

impl FollowOutput {
    /// Names and counts, for the summary.
    fn counts(&self) -> [(&'static str, u64); 8] {
        let account = self.reassembler.account();
        let Shared { not_unpacked, left_out, heads_given_up, .. } = self.conversations.shared;
        [
            ("bytes are missing", self.conversations.missing),
            ("bytes belong to no stream", account.refused()),
            ("packets are not TCP", self.not_tcp),
            ("conversations were evicted", account.evicted),
            ("conversations were shown in parts", self.show.in_parts),
            ("bodies were not unpacked", not_unpacked),
            ("bytes of unpacked bodies were left out", left_out),
            ("heads of HTTP found no memory", heads_given_up),
        ]
    }

    fn summary_json(&self) -> Value {
        // With --number, those that are not shown may have data.
        let connections = self.reassembler.account().connections;
        let is_all = self.conversations.numbers.is_empty();
        let mut summary = json!({
            "packets": self.packets,
            "conversations": self.show.conversations,
            "without_data": is_all.then(|| connections - self.show.conversations),
            "bytes": self.show.bytes,
        });
        self.counts().iter().for_each(|(name, count)| summary[name.replace(' ', "_")] = (*count).into());
        json!({ "summary": summary })
    }

    fn summary_text(&self) -> String {
        let conversations = self.show.conversations;
        let mut text = format!(
            "{} conversation{} with {} bytes of payload, of {} packets",
            grouped(conversations),
            if conversations == 1 { "" } else { "s" },
            grouped(self.show.bytes),
            grouped(self.packets)
        );
        for (name, count) in self.counts().iter().filter(|(_, count)| *count > 0) {
            text += &format!("; {} {name}", grouped(*count));
        }
        text
    }
}

impl Stage for FollowOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.packets += packets.len() as u64;
        let FollowOutput { reassembler, conversations, show, not_tcp, is_live, .. } = self;
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            *is_live |= packet.meta.if_index != 0;
            let mut printed = Ok(());
            let mut sink = |stream: &Stream, event: Event<'_>| {
                conversations.take_and_print(stream, event, show, &mut printed);
            };
            let taken = reassembler.push(&packets.headers(index), packet, &mut sink);
            *not_tcp += u64::from(taken == PacketFate::NotTcp);
            printed?;
        }
        show.lines.offer()
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.show.lines.flush()
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        let FollowOutput { reassembler, conversations, show, is_live, .. } = self;
        if *is_live {
            let mut printed = Ok(());
            reassembler.tick(tick.now.as_nanos(), &mut |stream, event| {
                conversations.take_and_print(stream, event, show, &mut printed);
            });
            printed?;
            conversations.print_all(0, show)?;
        }
        show.lines.flush().map(|()| StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let FollowOutput { reassembler, conversations, show, .. } = self;
        let mut printed = Ok(());
        reassembler.finish(&mut |stream, event| {
            conversations.take_and_print(stream, event, show, &mut printed);
        });
        printed?;
        conversations.print_all(0, show)?;
        let (object, text) = (self.summary_json(), self.summary_text());
        self.show.lines.finish(self.show.form == Form::Json, &object, &text)
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_written("follow", self.packets)
    }
}
