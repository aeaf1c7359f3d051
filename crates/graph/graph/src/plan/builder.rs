//! A graph of values, from which a plan is made: programs fill it, and so does the parser of the graph language.
//!
//! ```text
//! PlanBuilder --Display--> text of the graph language --parse--> the same PlanBuilder
//!           \--plan--> Plan
//! ```

use std::fmt;
use std::time::Duration;

use tapline_syntax::{Error, Span};

/// Where a stage, an argument or a connection was given; errors name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// By a program, which needs no place.
    #[default]
    Program,
    /// By an option of a command: `--template`.
    Option(&'static str),
    /// At a place in a text.
    Text(Span),
}

impl Origin {
    /// An error about this argument.
    pub fn error(self, message: impl Into<String>) -> Error {
        match self {
            Origin::Program => Error::whole(message),
            Origin::Option(option) => Error::whole(format!("{option}: {}", message.into())),
            Origin::Text(span) => Error::at(span, message),
        }
    }

    /// Marks this place in an error, too, if it is one in a text.
    pub(crate) fn mark_earlier(self, error: Error) -> Error {
        match self {
            Origin::Text(span) => error.with_earlier_place(span),
            Origin::Program | Origin::Option(_) => error,
        }
    }
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Any text: in quotes in the graph language.
    Text(String),
    /// A word, or a number or time as it was written.
    Word(String),
    /// A number.
    Number(u64),
    /// A time, in nanoseconds.
    Time(u64),
}

impl Value {
    /// A word that needs no quotes, such as one of a choice.
    pub fn word(word: &str) -> Value {
        Value::Word(word.to_owned())
    }

    /// The value as text, without quotes.
    pub fn text(&self) -> String {
        match self {
            Value::Text(text) | Value::Word(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Time(ns) => format!("{ns}ns"),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Value {
        Value::word(if is_so { "yes" } else { "no" })
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Value {
        Value::Number(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Value {
        Value::Number(number.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Value {
        Value::Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            Value::Word(_) | Value::Number(_) | Value::Time(_) => f.write_str(&self.text()),
        }
    }
}

/// An argument as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftArgument {
    /// The parameter; without it the place among the arguments says which.
    pub key: Option<String>,
    /// The value.
    pub value: Value,
    /// Where it was given.
    pub origin: Origin,
}

/// A stage as given: nothing of it was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageDraft {
    /// The name of its class.
    pub class: String,
    /// Given name, if any.
    pub name: Option<String>,
    /// Arguments, in order.
    pub arguments: Vec<DraftArgument>,
    /// Where it was given.
    pub origin: Origin,
}

impl StageDraft {
    /// A stage without arguments.
    pub fn new(class: impl Into<String>) -> StageDraft {
        StageDraft { class: class.into(), name: None, arguments: Vec::new(), origin: Origin::default() }
    }

    /// Sets its name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> StageDraft {
        self.name = Some(name.into());
        self
    }

    /// Adds an argument by its place.
    #[must_use]
    pub fn arg(mut self, value: impl Into<Value>) -> StageDraft {
        self.arguments.push(DraftArgument { key: None, value: value.into(), origin: Origin::default() });
        self
    }

    /// Adds an argument by its name.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> StageDraft {
        let key = Some(key.to_owned());
        self.arguments.push(DraftArgument { key, value: value.into(), origin: Origin::default() });
        self
    }

    /// Adds an argument by its name, if there is a value.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl Into<Value>>) -> StageDraft {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Adds an argument that came by an option of a command.
    #[must_use]
    pub fn option(self, option: &'static str, key: &str, value: impl Into<Value>) -> StageDraft {
        self.with(key, value).by(option)
    }

    /// The option of a command that the last argument came by; without arguments that of the stage.
    #[must_use]
    pub fn by(mut self, option: &'static str) -> StageDraft {
        let last = self.arguments.last_mut().map(|argument| &mut argument.origin);
        *last.unwrap_or(&mut self.origin) = Origin::Option(option);
        self
    }
}

/// A stage of a [`PlanBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftId(pub(crate) usize);

/// A connection of two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The stage that packets come from.
    pub from: DraftId,
    /// The number of its output.
    pub output: usize,
    /// The stage that packets go to.
    pub to: DraftId,
    /// The number of its input.
    pub input: usize,
    /// Where it was given.
    pub origin: Origin,
    /// Whether its text goes on where that of the connection before it ended: `a -> b -> c`.
    pub is_continued: bool,
}

/// A graph as given: stages and connections, which [`plan`](Self::plan) checks.
///
/// ```
/// use tapline_graph::plan::{PlanBuilder, StageDraft};
///
/// let mut graph = PlanBuilder::default();
/// let source = graph.add(StageDraft::new("file").arg("a.pcap"));
/// let flows = graph.add_behind(source, StageDraft::new("flow").with("inner", true));
/// graph.add_behind(flows, StageDraft::new("flowtop").with("n", 10_u64));
/// assert_eq!(graph.to_string(), "file(\"a.pcap\") -> flow(inner=yes) -> flowtop(n=10);");
/// assert_eq!(graph.stages().len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanBuilder {
    pub(crate) stages: Vec<StageDraft>,
    pub(crate) links: Vec<Connection>,
}

impl PlanBuilder {
    /// Adds a stage.
    pub fn add(&mut self, stage: StageDraft) -> DraftId {
        self.stages.push(stage);
        DraftId(self.stages.len() - 1)
    }

    /// Adds a stage that takes the packets of another.
    pub fn add_behind(&mut self, before: DraftId, stage: StageDraft) -> DraftId {
        let stage = self.add(stage);
        self.connect(before, stage);
        self.links.iter_mut().last().expect("a connection").is_continued = true;
        stage
    }

    /// Adds stages of which each takes the packets of the one before it.
    pub fn add_chain(&mut self, stages: impl IntoIterator<Item = StageDraft>) -> Vec<DraftId> {
        let mut chain: Vec<DraftId> = Vec::new();
        for stage in stages {
            chain.push(match chain.last() {
                Some(&before) => self.add_behind(before, stage),
                None => self.add(stage),
            });
        }
        chain
    }

    /// Leads the first output of a stage to another stage.
    pub fn connect(&mut self, from: DraftId, to: DraftId) {
        let origin = Origin::default();
        self.links.push(Connection { from, output: 0, to, input: 0, origin, is_continued: false });
    }

    /// The stages, in the order in which they were added.
    pub fn stages(&self) -> &[StageDraft] {
        &self.stages
    }

    /// The connections, in the order in which they were added.
    pub fn links(&self) -> &[Connection] {
        &self.links
    }

    /// The name of a stage: its own, or one made of its class and its number: `filter@2`.
    pub fn name_of(&self, DraftId(stage): DraftId) -> String {
        let StageDraft { class, name, .. } = &self.stages[stage];
        name.clone().unwrap_or_else(|| format!("{class}@{}", stage + 1))
    }
}

impl fmt::Display for StageDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name} :: ")?;
        }
        let arguments = self.arguments.iter().map(|DraftArgument { key, value, .. }| match key {
            Some(key) => format!("{key}={value}"),
            None => value.to_string(),
        });
        match self.arguments.is_empty() {
            true => f.write_str(&self.class),
            false => write!(f, "{}({})", self.class, arguments.collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Prints the graph language: a stage is written where a connection first names it, and later ones use its name.
/// Stages that are connected more than once need names.
impl fmt::Display for PlanBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut is_shown = vec![false; self.stages.len()];
        // The stage that the text of the last connection ends with, if that declares it.
        let (mut end, mut gap) = (None, "");
        for &Connection { from, output, to, input, is_continued, .. } in &self.links {
            if end != Some(from) || !is_continued {
                f.write_str(gap)?;
                self.write_end(f, from, &mut is_shown)?;
            }
            f.write_str(&if output > 0 { format!("[{output}] -> ") } else { " -> ".to_owned() })?;
            f.write_str(&if input > 0 { format!("[{input}] ") } else { String::new() })?;
            end = self.write_end(f, to, &mut is_shown)?.then_some(to);
            gap = "; ";
        }
        for (stage, _) in self.stages.iter().zip(&is_shown).filter(|(_, is_shown)| !**is_shown) {
            write!(f, "{gap}{stage}")?;
            gap = "; ";
        }
        f.write_str(gap.trim_end())
    }
}

impl PlanBuilder {
    /// Writes the declaration of a stage once, and then its name. Returns whether this was the declaration.
    fn write_end(
        &self,
        f: &mut fmt::Formatter<'_>,
        stage: DraftId,
        is_shown: &mut [bool],
    ) -> Result<bool, fmt::Error> {
        match std::mem::replace(&mut is_shown[stage.0], true) {
            true => f.write_str(&self.name_of(stage)).map(|()| false),
            false => write!(f, "{}", self.stages[stage.0]).map(|()| true),
        }
    }
}
