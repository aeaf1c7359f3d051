//! The parser of files of rules.
//!
//! ```text
//! line := [ statement ] [ "#" comment ]
//! statement := "filter" filter | "flow" protocol end ( "->" | "<->" ) end "=>" actions
//!            | "rule" [ name ] ":" filter "=>" actions | "sample" share | "default" actions
//!            | "idle" time | "learn" number
//! ```
//!
//! One pass; each word knows its place in the text, so that errors show it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tapline_packet::FiveTuple;
use tapline_packet::numbers::ip_protocol::{self, has_ports};
use tapline_syntax::{Error, Span, line_and_column, units};

use crate::action::{Actions, Outputs, Share};
use crate::exact::{ExactRule, ExactTable};

/// The most exact rules in a file.
pub const EXACT_MAX: usize = 1 << 24;
/// The most rules of the list.
pub const LIST_MAX: usize = 4096;
/// The most outputs with names.
pub const OUTPUTS_MAX: usize = 63;
/// The most bytes of a line.
pub const LINE_MAX: usize = 4096;
/// The name of the output that `reflect` leads to.
pub const REFLECT: &str = "reflect";

/// Learned flows of a worker, unless the file says, and the most that it may say.
pub(crate) const LEARNED: usize = 65_536;
const LEARNED_MAX: u64 = 1 << 20;

/// The most lists of actions: a rule's is a number of 16 bits.
const ACTIONS_MAX: usize = u16::MAX as usize;

/// A file of rules.
#[derive(Debug)]
pub struct RuleFile {
    /// The text of the filter that all packets must pass; empty for none.
    pub filter: String,
    /// Line of the filter, counted from 1.
    pub filter_line: usize,
    /// The exact rules.
    pub exact: ExactTable,
    /// Lists of actions that exact rules have, by their number.
    pub actions: Vec<Actions>,
    /// The rules of the list, in their order.
    pub list: Vec<ListRule>,
    /// The share of undecided packets that come to the default; `None` for all.
    pub sample: Option<Share>,
    /// The actions for packets that are undecided after that.
    pub default: Actions,
    /// The names of outputs: the first is output 1.
    pub outputs: Vec<String>,
    /// Seconds without a packet after which an exact rule ends that does not say; 0 for never.
    pub idle_s: u32,
    /// The most flows that a worker learns.
    pub learn_max: usize,
}

impl RuleFile {
    /// Seconds without a packet after which an exact rule with these actions ends; 0 for never.
    #[inline]
    pub fn idle_of(&self, actions: &Actions) -> u32 {
        if actions.idle_s > 0 { actions.idle_s } else { self.idle_s }
    }

    /// The shortest idle time of a rule in seconds; `None` if no rule ends.
    pub(crate) fn shortest_idle(&self) -> Option<u32> {
        let list = self.list.iter().map(|rule| &rule.actions).chain([&self.default]);
        let all = self.actions.iter().chain(list.filter(|actions| actions.learns));
        all.map(|actions| self.idle_of(actions)).filter(|idle_s| *idle_s > 0).min()
    }

    /// Whether a rule teaches flows.
    pub fn learns(&self) -> bool {
        self.default.learns || self.list.iter().any(|rule| rule.actions.learns)
    }
}

/// A rule of the list.
#[derive(Clone, Debug)]
pub struct ListRule {
    /// Line of the rule, counted from 1.
    pub line: usize,
    /// Name of the rule; may be empty.
    pub name: String,
    /// The text of its filter.
    pub filter: String,
    /// Actions for packets that the filter accepts.
    pub actions: Actions,
}

impl ListRule {
    /// Equal for rules that are the same in two files.
    pub(crate) fn identity(&self) -> (&str, &str, Actions) {
        (&self.name, &self.filter, self.actions)
    }
}

/// Reads a file of rules whose actions may name these outputs: the first is output 1.
///
/// # Errors
/// The first mistake, with its place.
pub fn parse(text: &str, outputs: &[String]) -> Result<RuleFile, Error> {
    let mut parser = Parser {
        text,
        number: 0,
        file: RuleFile {
            filter: String::new(),
            filter_line: 0,
            exact: ExactTable::default(),
            actions: Vec::new(),
            list: Vec::new(),
            sample: None,
            default: Actions::PASS,
            outputs: outputs.to_vec(),
            idle_s: 0,
            learn_max: LEARNED,
        },
        starts: HashMap::new(),
        known: HashMap::new(),
    };
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        parser.number = number + 1;
        parser.line(Words { text, at: start, end: start + line.trim_end().len() })?;
        start += line.len();
    }
    parser.file.exact.shrink();
    Ok(parser.file)
}

struct Parser<'t> {
    text: &'t str,
    /// The number of the line.
    number: usize,
    file: RuleFile,
    /// First places of statements and names that may occur only once.
    starts: HashMap<String, Span>,
    /// Numbers of lists of actions.
    known: HashMap<Actions, u16>,
}

/// A line, or the rest of one.
#[derive(Clone, Copy)]
struct Words<'t> {
    text: &'t str,
    at: usize,
    end: usize,
}

impl<'t> Words<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..self.end]
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn is_empty(&mut self) -> bool {
        self.skip_blanks();
        self.at == self.end
    }

    /// The place of all that is left; of the last byte's end if that is nothing.
    fn span(&self) -> Span {
        Span { start: self.at, end: self.end }
    }

    /// The next word: up to a blank.
    fn word(&mut self) -> (&'t str, Span) {
        self.skip_blanks();
        let rest = self.rest();
        let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let span = Span { start: self.at, end: self.at + len };
        self.at += len;
        (&rest[..len], span)
    }

    /// The words before a text, which is skipped; `None` if it is not there.
    fn until(&mut self, mark: &str) -> Option<Words<'t>> {
        let len = unquoted(self.rest()).find(|(at, _)| self.rest()[*at..].starts_with(mark))?.0;
        let before = Words { end: self.at + len, ..*self };
        self.at += len + mark.len();
        Some(before)
    }

    /// The words without blanks at both ends.
    fn trimmed(mut self) -> Words<'t> {
        self.skip_blanks();
        Words { end: self.at + self.rest().trim_end().len(), ..self }
    }
}

/// The characters outside of texts in quotes, with their places.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut quote = None;
    let mut is_escaped = false;
    text.char_indices().filter(move |(_, c)| {
        match quote {
            Some(open) => {
                let is_end = *c == open && !is_escaped;
                is_escaped = *c == '\\' && !is_escaped;
                if is_end {
                    quote = None;
                }
                return false;
            }
            None if matches!(c, '"' | '\'') => quote = Some(*c),
            None => return true,
        }
        false
    })
}

/// Where the comment of a line begins, or the line's end.
fn end_of_statement(line: &str) -> usize {
    let is_start = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let mut found = unquoted(line).filter(|(at, c)| *c == '#' && is_start(*at));
    found.next().map_or(line.len(), |(at, _)| at)
}

impl<'t> Parser<'t> {
    fn line(&mut self, mut line: Words<'t>) -> Result<(), Error> {
        if line.rest().len() > LINE_MAX {
            return Err(
                Error::at(line.span(), "the line is too long").hint(format!("at most {LINE_MAX} bytes"))
            );
        }
        line.end = line.at + end_of_statement(line.rest());
        if line.is_empty() {
            return Ok(());
        }
        let (word, span) = line.word();
        match word {
            "flow" => self.flow(span, line),
            "filter" => self.filter(span, line),
            "sample" => self.sample(span, line),
            "default" => self.default(span, line),
            "idle" => {
                self.once("idle", span)?;
                self.file.idle_s = idle(&mut line)?;
                nothing_more(line)
            }
            "learn" => {
                self.once("learn", span)?;
                self.file.learn_max = learn_max(&mut line)?;
                nothing_more(line)
            }
            _ if word == "rule" || word.starts_with("rule:") => {
                line.at = span.start + "rule".len();
                self.rule(span, line)
            }
            _ => Err(Error::at(span, format!("`{word}` begins no statement"))
                .hint("filter, flow, rule, sample, default, idle or learn")),
        }
    }

    /// Refuses a statement or a name that was met before.
    fn once(&mut self, what: &str, span: Span) -> Result<(), Error> {
        match self.starts.insert(what.to_owned(), span) {
            None => Ok(()),
            Some(before) => Err(Error::at(span, format!("`{what}` is given twice"))
                .with_earlier_place(before)
                .hint(format!("the first is in {}", line_and_column(self.text, before)))),
        }
    }

    fn filter(&mut self, span: Span, rest: Words<'t>) -> Result<(), Error> {
        self.once("filter", span)?;
        self.file.filter = checked_filter(rest)?;
        self.file.filter_line = self.number;
        Ok(())
    }

    fn sample(&mut self, span: Span, mut rest: Words<'t>) -> Result<(), Error> {
        self.once("sample", span)?;
        self.file.sample = Some(share(&mut rest)?);
        nothing_more(rest)
    }

    fn default(&mut self, span: Span, rest: Words<'t>) -> Result<(), Error> {
        self.once("default", span)?;
        let actions = self.actions(rest)?;
        ensure_taught(&actions, rest)?;
        if actions.goes_on {
            return Err(Error::at(rest.trimmed().span(), "no rule may follow the default")
                .hint("pass, drop, to NAME, reflect"));
        }
        self.file.default = actions;
        Ok(())
    }

    fn rule(&mut self, span: Span, mut rest: Words<'t>) -> Result<(), Error> {
        if self.file.list.len() == LIST_MAX {
            return Err(Error::at(span, format!("more than {LIST_MAX} rules"))
                .hint("exact rules (flow) have more room"));
        }
        let form = "rule NAME: FILTER => ACTIONS";
        let name = rest
            .until(":")
            .ok_or_else(|| Error::at(rest.trimmed().span(), "expected `:`").hint(form))?
            .trimmed();
        if !name.rest().is_empty() {
            if !is_name(name.rest()) {
                return Err(Error::at(name.span(), format!("`{}` cannot be a name", name.rest()))
                    .hint("a letter first, then letters, digits, _ - and ."));
            }
            self.once(&format!("rule {}", name.rest()), name.span())?;
        }
        let filter =
            rest.until("=>").ok_or_else(|| Error::at(rest.trimmed().span(), "expected `=>`").hint(form))?;
        let filter = checked_filter(filter)?;
        let actions = self.actions(rest)?;
        ensure_taught(&actions, rest)?;
        self.file.list.push(ListRule { line: self.number, name: name.rest().to_owned(), filter, actions });
        Ok(())
    }

    fn flow(&mut self, span: Span, mut rest: Words<'t>) -> Result<(), Error> {
        let form = "flow tcp 192.0.2.1:1024 <-> 198.51.100.7:443 => drop";
        if self.file.exact.len() == EXACT_MAX {
            return Err(Error::at(span, format!("more than {EXACT_MAX} exact rules")));
        }
        let protocol = protocol(rest.word())?;
        let (src, first) = end(rest.word(), protocol)?;
        let (arrow, place) = rest.word();
        let is_both = match arrow {
            "->" => false,
            "<->" => true,
            _ => return Err(Error::at(place, "expected `->` or `<->`").hint(form)),
        };
        let (dst, second) = end(rest.word(), protocol)?;
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(Error::at(second, "the ends have different versions of IP")
                .with_earlier_place(first)
                .hint("both IPv4, or both IPv6"));
        }
        let (arrow, place) = rest.word();
        if arrow != "=>" {
            return Err(Error::at(place, "expected `=>`").hint(form));
        }
        let actions = self.actions(rest)?;
        if actions.learns {
            return Err(Error::at(rest.trimmed().span(), "an exact rule has one flow, and learns no other")
                .hint("learn is for rules of the list and the default"));
        }
        let actions = self.number_of(actions, rest)?;
        let tuple =
            FiveTuple { src: src.ip(), dst: dst.ip(), protocol, src_port: src.port(), dst_port: dst.port() };
        self.file.exact.insert(&ExactRule { tuple, is_both, actions }).map_err(|other| {
            let other = self.file.shown(other);
            Error::at(first.to(second), "an earlier rule is for the same packets")
                .hint(format!("the other is `{other}`"))
        })
    }

    fn number_of(&mut self, actions: Actions, place: Words<'t>) -> Result<u16, Error> {
        if let Some(number) = self.known.get(&actions) {
            return Ok(*number);
        }
        let number = self.file.actions.len();
        if number == ACTIONS_MAX {
            let message = format!("more than {ACTIONS_MAX} different lists of actions");
            return Err(Error::at(place.trimmed().span(), message)
                .hint("of exact rules; the same shares, say, need one"));
        }
        self.file.actions.push(actions);
        self.known.insert(actions, number as u16);
        Ok(number as u16)
    }

    fn actions(&self, rest: Words<'t>) -> Result<Actions, Error> {
        let mut given = ActionList::default();
        let mut left = rest;
        loop {
            let action = left.until(",");
            let is_last = action.is_none();
            self.action(action.unwrap_or(left).trimmed(), &mut given)?;
            if is_last {
                return given.actions(rest.trimmed().span());
            }
        }
    }

    fn action(&self, mut words: Words<'t>, given: &mut ActionList) -> Result<(), Error> {
        let (word, span) = words.word();
        match word {
            "pass" => given.outputs = given.outputs.and(Outputs::PASS),
            "drop" => given.is_drop = true,
            "count" => given.is_count = true,
            "stop" => given.stops = true,
            "go" => {
                let (word, span) = words.word();
                if word != "on" {
                    return Err(Error::at(span, "expected `on`").hint("go on"));
                }
                given.goes_on = true;
            }
            "sample" => given.sample = Some(share(&mut words)?),
            "learn" => given.learns = true,
            "idle" => given.idle_s = idle(&mut words)?,
            "reflect" => given.outputs = given.outputs.and(self.output(REFLECT, span)?),
            "to" => {
                let (name, span) = words.word();
                given.outputs = given.outputs.and(self.output(name, span)?);
            }
            _ => {
                let message = if word.is_empty() {
                    "expected an action".to_owned()
                } else {
                    format!("`{word}` is not an action")
                };
                return Err(Error::at(span, message)
                    .hint("pass, drop, count, sample K/M, reflect, to NAME, go on, stop, learn, idle TIME"));
            }
        }
        nothing_more(words)
    }

    fn output(&self, name: &str, span: Span) -> Result<Outputs, Error> {
        let outputs = &self.file.outputs;
        let number = outputs.iter().take(OUTPUTS_MAX).position(|known| known == name);
        number.map(|number| Outputs::of(number + 1)).ok_or_else(|| {
            let known = if outputs.is_empty() { "none".to_owned() } else { outputs.join(", ") };
            Error::at(span, format!("there is no output `{name}`")).hint(format!(
                "the stage has {known}: rules(..., outputs=\"web, ids\") names outputs 1 and 2"
            ))
        })
    }
}

/// Actions as they were written.
#[derive(Default)]
struct ActionList {
    outputs: Outputs,
    sample: Option<Share>,
    is_drop: bool,
    is_count: bool,
    goes_on: bool,
    stops: bool,
    learns: bool,
    idle_s: u32,
}

impl ActionList {
    fn actions(self, span: Span) -> Result<Actions, Error> {
        let ActionList { mut outputs, sample, is_drop, is_count, goes_on, stops, learns, idle_s } = self;
        let fault = |message: &str, hint: &str| Err(Error::at(span, message).hint(hint));
        if is_drop && (!outputs.is_empty() || sample.is_some() || goes_on) {
            return fault("a packet that is dropped goes nowhere", "drop alone, or with count");
        }
        if goes_on && stops {
            return fault(
                "`go on` and `stop` exclude each other",
                "without `go on` no further rule is asked",
            );
        }
        let is_alone = outputs.is_empty() && !is_drop;
        if is_alone && sample.is_some() && (goes_on || is_count) {
            return fault("a sample of packets that go nowhere", "sample 1/10, to NAME, go on");
        }
        if is_alone && stops {
            return fault("`stop` says not where the packets go", "pass, stop; or drop");
        }
        if is_alone && sample.is_some() {
            outputs = Outputs::PASS;
        }
        let goes_on = goes_on || (outputs.is_empty() && !is_drop);
        Ok(Actions { outputs, sample, goes_on, learns, idle_s })
    }
}

/// Refuses a time of idleness where no exact rule could have it.
fn ensure_taught(actions: &Actions, rest: Words<'_>) -> Result<(), Error> {
    if actions.idle_s == 0 || actions.learns {
        return Ok(());
    }
    Err(Error::at(rest.trimmed().span(), "idle is for exact rules, and for flows that a rule learns")
        .hint("drop, learn, idle 5m"))
}

/// A time of whole seconds, one or more.
fn idle(words: &mut Words<'_>) -> Result<u32, Error> {
    let (word, span) = words.word();
    let seconds =
        units::nanoseconds(word).ok().filter(|ns| ns % 1_000_000_000 == 0).map(|ns| ns / 1_000_000_000);
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| Error::at(span, format!("`{word}` is not a time of whole seconds")).hint("idle 5m"))
}

/// The most flows that a worker learns.
fn learn_max(words: &mut Words<'_>) -> Result<usize, Error> {
    let (word, span) = words.word();
    let flows = units::count(word).ok().filter(|flows| (1..=LEARNED_MAX).contains(flows));
    flows.map(|flows| flows as usize).ok_or_else(|| {
        Error::at(span, format!("`{word}` is not a number of flows"))
            .hint(format!("learn 10000; at most {LEARNED_MAX}"))
    })
}

fn nothing_more(mut rest: Words<'_>) -> Result<(), Error> {
    if rest.is_empty() {
        return Ok(());
    }
    Err(Error::at(rest.span(), "expected the end of the line, or a comma")
        .hint("one statement a line, actions by commas"))
}

/// The text of a filter that parses.
fn checked_filter(words: Words<'_>) -> Result<String, Error> {
    let words = words.trimmed();
    if words.rest().is_empty() {
        return Err(
            Error::at(words.span(), "expected a filter").hint("such as: tcp port 80 and net 10.0.0.0/8")
        );
    }
    let within = |span: Span| Span { start: words.at + span.start, end: words.at + span.end };
    match tapline_filter::parse(words.rest()) {
        Ok(_) => Ok(words.rest().to_owned()),
        Err(mut error) => {
            error.also = error.also.map(within);
            error.span = error.span.map(within);
            Err(error.with_place_if_none(words.span()))
        }
    }
}

/// `k/m`, one word.
fn share(words: &mut Words<'_>) -> Result<Share, Error> {
    let (word, span) = words.word();
    let number = |text: &str| units::count(text).ok().and_then(|number| u32::try_from(number).ok());
    let parts = word.split_once('/').and_then(|(chosen, of)| Some((number(chosen)?, number(of)?)));
    match parts {
        Some((chosen, of)) if of > 0 && chosen <= of => Ok(Share { chosen, of }),
        _ => Err(Error::at(span, format!("`{word}` is not a share")).hint("such as 1/100: one of a hundred")),
    }
}

fn protocol((word, span): (&str, Span)) -> Result<u8, Error> {
    let named = NAMES.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    named.or_else(|| word.parse().ok()).ok_or_else(|| {
        Error::at(span, format!("`{word}` is not a protocol"))
            .hint("tcp, udp, sctp, icmp, icmp6, or a number from 0 to 255")
    })
}

/// Protocols that have names here.
pub(crate) const NAMES: [(&str, u8); 5] = [
    ("tcp", ip_protocol::TCP),
    ("udp", ip_protocol::UDP),
    ("sctp", ip_protocol::SCTP),
    ("icmp", ip_protocol::ICMP),
    ("icmp6", ip_protocol::ICMPV6),
];

/// An address, and a port where the protocol has ports.
fn end((word, span): (&str, Span), protocol: u8) -> Result<(SocketAddr, Span), Error> {
    if !has_ports(protocol) {
        let address: Result<IpAddr, _> = word.parse();
        return address.map(|address| (SocketAddr::new(address, 0), span)).map_err(|_| {
            Error::at(span, format!("`{word}` is not an address"))
                .hint("such as 192.0.2.1, or 2001:db8::1; this protocol has no ports")
        });
    }
    let end: Option<SocketAddr> = word.parse().ok().filter(|end| match end {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(end) => end.scope_id() == 0,
    });
    end.map(|end| (end, span)).ok_or_else(|| {
        Error::at(span, format!("`{word}` is not an address with a port"))
            .hint("such as 192.0.2.1:443, or [2001:db8::1]:443")
    })
}

fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(is_part)
}

#[cfg(test)]
mod tests;
