//! Conversations as text, hex and JSON.
//!
//! ```text
//! conversation 0: 10.0.0.1:40000 > 10.0.0.2:80, from 2023-11-14 22:13:20.033000
//! > GET / HTTP/1.1                    from the client
//! < HTTP/1.1 200 OK                   from the server
//! !< 1,460 bytes are missing          a gap, or a note
//! end: client fin, 78 bytes; server fin, 4,300 bytes
//! ```

use std::fmt::Write as _;

use serde_json::{Value, json};
use tapline_graph::grouped;
use tapline_source::Error;
use tapline_stream::EndCause;

use super::super::lines::{ResultLines, endpoint, local_ns, printable, universal_ns};
use super::conversation::{Conversation, Kind, Turn};
use crate::escape::plain_json;

/// Bytes of a row in hex.
const ROW_LEN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Hex,
    Json,
}

/// Prints conversations.
pub(super) struct Show {
    pub(super) lines: ResultLines,
    pub(super) form: Form,
    is_colored: bool,
    /// Conversations, and their bytes of payload.
    pub(super) conversations: u64,
    pub(super) bytes: u64,
    /// Conversations that were printed in several parts.
    pub(super) in_parts: u64,
}

impl Show {
    pub(super) fn new(lines: ResultLines, form: Form, is_colored: bool) -> Show {
        Show { lines, form, is_colored, conversations: 0, bytes: 0, in_parts: 0 }
    }

    /// Prints the turns of a conversation that are there, and its end.
    pub(super) fn conversation(&mut self, number: u64, one: &mut Conversation) -> Result<(), Error> {
        one.parts += 1;
        self.conversations += u64::from(one.parts == 1);
        self.in_parts += u64::from(one.parts == 2);
        if self.form != Form::Json {
            let head = self.dimmed(&head(number, one));
            self.lines.add(&head);
        }
        let mut at = 0;
        let mut has_open_line = false;
        for turn in &one.turns.turns {
            let bytes = &one.turns.bytes[at..at + turn.len];
            at += turn.len;
            if has_open_line && (turn.begins_line || self.form != Form::Text) {
                self.lines.add("\n");
                has_open_line = false;
            }
            match self.form {
                Form::Json => self.turn_json(number, one, turn, bytes),
                Form::Hex if turn.kind == Kind::Bytes => self.hex(turn, bytes),
                Form::Text if turn.kind == Kind::Bytes => {
                    self.text(turn, bytes, has_open_line);
                    has_open_line = bytes.last() != Some(&b'\n');
                }
                Form::Text | Form::Hex => self.note(turn),
            }
            self.lines.offer()?;
        }
        if has_open_line {
            self.lines.add("\n");
        }
        one.turns.clear();
        if one.is_complete() {
            self.bytes += one.sent.iter().sum::<u64>();
            self.end(number, one);
        }
        self.lines.offer()
    }

    fn end(&mut self, number: u64, one: &Conversation) {
        let [server, client] = [0, 1].map(|side| (one.ends[side].map(EndCause::name), one.sent[side]));
        if self.form == Form::Json {
            let object = json!({
                "conversation": number,
                "end": { "client": client.0, "server": server.0 },
                "bytes": { "client": client.1, "server": server.1 },
            });
            return self.lines.add(&format!("{object}\n"));
        }
        let [client, server] = [client, server]
            .map(|(cause, bytes)| format!("{}, {} bytes", cause.unwrap_or("sent nothing"), grouped(bytes)));
        let end = self.dimmed(&format!("end: client {client}; server {server}\n"));
        self.lines.add(&(end + "\n"));
    }

    fn dimmed(&self, line: &str) -> String {
        match self.is_colored {
            true => format!("\x1b[2m{}\x1b[0m\n", line.trim_end_matches('\n')),
            false => line.to_owned(),
        }
    }

    /// The colour of an end, red and blue as Wireshark has them; and the one behind it.
    fn colors(&self, is_from_client: bool) -> (&'static str, &'static str) {
        match (self.is_colored, is_from_client) {
            (false, _) => ("", ""),
            (true, true) => ("\x1b[31m", "\x1b[0m"),
            (true, false) => ("\x1b[34m", "\x1b[0m"),
        }
    }

    /// Lines of text; the first one goes on with a line that is there already.
    fn text(&mut self, turn: &Turn, bytes: &[u8], mut goes_on: bool) {
        let (color, plain) = self.colors(turn.is_from_client);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mark = if std::mem::take(&mut goes_on) { "" } else { mark(turn.is_from_client) };
            let end = if line.ends_with(b"\n") { "\n" } else { "" };
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = printable(line.strip_suffix(b"\r").unwrap_or(line));
            self.lines.add(&format!("{color}{mark}{line}{plain}{end}"));
        }
    }

    fn hex(&mut self, turn: &Turn, bytes: &[u8]) {
        let (color, plain) = self.colors(turn.is_from_client);
        for (row, bytes) in bytes.chunks(ROW_LEN).enumerate() {
            let mut digits = String::with_capacity(3 * ROW_LEN);
            bytes.iter().for_each(|byte| _ = write!(digits, "{byte:02x} "));
            let (mark, offset) = (mark(turn.is_from_client), turn.offset + (row * ROW_LEN) as u64);
            let text = printable(bytes);
            self.lines.add(&format!("{color}{mark}{offset:08x}  {digits:<48} {text}{plain}\n"));
        }
    }

    fn note(&mut self, turn: &Turn) {
        let text = match turn.kind {
            Kind::Bytes => return,
            Kind::Gap { len, cause } => format!("{} bytes are missing: {}", grouped(len), cause.name()),
            Kind::Note(note) => note.text().to_owned(),
        };
        self.lines.add(&format!("!{}{text}\n", mark(turn.is_from_client)));
    }

    fn turn_json(&mut self, number: u64, one: &Conversation, turn: &Turn, bytes: &[u8]) {
        let (client, server) = (one.client, one.server);
        let mut object = json!({
            "conversation": number,
            "time": universal_ns(turn.time_ns),
            "from": if turn.is_from_client { "client" } else { "server" },
            "client": client.0.to_string(),
            "client_port": client.1,
            "server": server.0.to_string(),
            "server_port": server.1,
            "offset": turn.offset,
        });
        match turn.kind {
            Kind::Bytes => {
                let text = std::str::from_utf8(bytes).ok();
                object["text"] = text.into();
                object["hex"] = if text.is_some() { Value::Null } else { hex_digits(bytes).into() };
            }
            Kind::Gap { len, cause } => {
                object["missing"] = len.into();
                object["cause"] = cause.name().into();
            }
            Kind::Note(note) => object["note"] = note.text().into(),
        }
        self.lines.add(&plain_json(&format!("{object}\n")));
    }
}

fn mark(is_from_client: bool) -> &'static str {
    if is_from_client { "> " } else { "< " }
}

fn head(number: u64, one: &Conversation) -> String {
    let ends = format!("{} > {}", endpoint(one.client), endpoint(one.server));
    if one.parts > 1 {
        return format!("conversation {number} goes on: {ends}\n");
    }
    let time = local_ns(one.begin_ns, "%Y-%m-%d %H:%M:%S.%6f");
    let beginning = if one.has_syn { "" } else { "; its beginning was not seen" };
    format!("conversation {number}: {ends}, from {time}{beginning}\n")
}

fn hex_digits(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    bytes.iter().for_each(|byte| _ = write!(digits, "{byte:02x}"));
    digits
}
