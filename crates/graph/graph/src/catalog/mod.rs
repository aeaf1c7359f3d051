//! The classes of stages: each declares its arguments, its purpose, its rights, and its constructor. Manual pages, checks
//! and the confinement of a program come from that.
//!
//! ```text
//! StageClass = name, summary, description, parameters, outputs, order, example, properties, access, check, expand, make
//! StageDraft --check(parameters)--> Arguments --make(Arguments, BuildContext)--> Box<dyn Stage>
//!                                            \--make(OpenContext)--> sources and outputs, which a program opens with all rights
//! ```
//!
//! A program takes the classes of the crate `tapline-stages`, and adds its own: `tests/it/embedding.rs` is an example.

mod access;
mod arguments;
mod manual;
mod opening;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapline_packet::Interface;

pub use access::StageAccess;
pub use arguments::{Arguments, CheckText, Parameter, ParameterType};
pub use manual::page;
pub use opening::{OpenContext, OpenError, OpenSite, refuse};

use crate::engine::Control;
use crate::language::SyntaxError;
use crate::plan::{Plan, StageDraft};
use crate::stage::Stage;
use crate::worker_source::WorkerSource;

/// The classes that the graphs of a program may have, and the passes over their plans.
#[derive(Clone, Debug)]
pub struct Catalog {
    classes: Vec<&'static StageClass>,
    pub(crate) passes: &'static [Pass],
}

/// Changes a plan so that it costs less: moves work into the kernel, merges stages.
///
/// The error says what the plan asks for that cannot be.
pub type Pass = fn(&mut Plan, &Catalog) -> Result<(), String>;

impl Catalog {
    /// Classes, and passes over plans of them, which follow each other.
    pub fn new(classes: &'static [StageClass], passes: &'static [Pass]) -> Catalog {
        Catalog { classes: classes.iter().collect(), passes }
    }

    /// Adds a class, in place of one with its name.
    #[must_use]
    pub fn with(mut self, class: &'static StageClass) -> Catalog {
        match self.classes.iter_mut().find(|known| known.name == class.name) {
            Some(known) => *known = class,
            None => self.classes.push(class),
        }
        self
    }

    /// The classes in their order.
    pub fn classes(&self) -> &[&'static StageClass] {
        &self.classes
    }

    /// The class of a name.
    pub fn class(&self, name: &str) -> Option<&'static StageClass> {
        self.classes.iter().copied().find(|class| class.name == name)
    }
}

/// A class of stages. [`BASE`](Self::BASE) has the values that most classes leave as they are.
#[derive(Debug)]
pub struct StageClass {
    /// Name in graphs.
    pub name: &'static str,
    /// The purpose in a few words.
    pub summary: &'static str,
    /// The text of the manual page.
    pub description: &'static str,
    /// Parameters, in the order in which they may be given without their names.
    pub parameters: &'static [Parameter],
    /// The number and kind of its outputs.
    pub outputs: Outputs,
    /// The kind of its input: packets, or flows of a meter.
    pub input: StageInput,
    /// The packets that one instance must see in order.
    pub order: Order,
    /// An example of its use.
    pub example: &'static str,
    /// The word for packets that a stage did not hand on.
    pub refused: &'static str,
    /// Properties that a program asks for.
    pub properties: &'static [Property],
    /// Adds the access that a stage needs once it was made.
    pub access: fn(&Arguments, &mut StageAccess),
    /// Checks arguments that depend on files or on the interfaces, of which there may be none yet.
    pub check: fn(&Arguments, &[Interface], &GraphSettings) -> Result<(), OpenError>,
    /// Stages that one is written for, of which each takes the packets of the one before; none if it is itself.
    pub expand: ExpandStage,
    /// Makes one.
    pub make: Constructor,
}

impl StageClass {
    /// A class whose stages hand packets on in any order, and need no rights.
    pub const BASE: StageClass = StageClass {
        name: "",
        summary: "",
        description: "",
        parameters: &[],
        outputs: Outputs::One,
        input: StageInput::Packets,
        order: Order::Free,
        example: "",
        refused: "refused",
        properties: &[],
        access: |_, _| {},
        check: |_, _, _| Ok(()),
        expand: |_| Ok(Vec::new()),
        make: Constructor::Source(opening::refuse),
    };

    /// Whether the class has a property.
    pub fn has(&self, property: Property) -> bool {
        self.properties.contains(&property)
    }

    /// Whether its stages are sources.
    pub fn is_source(&self) -> bool {
        matches!(self.make, Constructor::Source(_))
    }
}

/// A property of a class that matters to the program which runs its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// A source whose packets come as they are sent, by an interface or a socket.
    Live,
    /// An output whose packets people read as they come.
    Interactive,
    /// An output that shows the hash by which the adapter spread packets.
    ReceiveHash,
    /// An output that sends packets on interfaces.
    Sends,
    /// An output that alone writes to the file of its argument `name`.
    Writer,
    /// An output whose losses fail the run.
    Archive,
    /// Writes the file of the run that `tapline view` reads.
    View,
    /// Scripts run in it, which need more stack than a thread has.
    Scripts,
    /// Makes files, sends, or reads files again while it runs: not for a daemon that has no rights left.
    External,
}

/// The way in which a stage of a class is constructed.
#[derive(Debug)]
pub enum Constructor {
    /// A source: opened before the graph is built, for all workers at once.
    Source(OpenSource),
    /// One for each worker.
    Stage(StageConstructor),
    /// An output: opened before the graph is built, once for all workers.
    Output(OpenOutput),
}

/// Opens a source: a part of it for each worker.
pub type OpenSource = fn(&OpenContext<'_>) -> Result<Vec<WorkerSource>, OpenError>;

/// Opens an output.
pub type OpenOutput = fn(&OpenContext<'_>) -> Result<Box<dyn Stage>, OpenError>;

/// Returns the stages for which one is written, such as a filter with words of another stage.
pub type ExpandStage = fn(&StageDraft) -> Result<Vec<StageDraft>, SyntaxError>;

/// Constructs a stage; the error says the reason.
pub type StageConstructor = fn(&Arguments, &BuildContext<'_>) -> Result<Box<dyn Stage>, String>;

/// Number of outputs of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// None: the stage ends a branch of the graph.
    None,
    /// One, which may lead nowhere.
    One,
    /// One, for packets and expired flows: the stage is a meter.
    Flows,
    /// As many as are connected.
    Many,
}

/// The kind of input of a stage.
#[derive(Clone, Copy, Debug)]
pub enum StageInput {
    /// Packets.
    Packets,
    /// Expired flows: the stage follows meters directly. The function checks their arguments against its own.
    Flows(CheckMeters),
}

/// Checks the arguments of the meters before a stage, and its own; the error says the reason.
pub type CheckMeters = fn(&[&Arguments], &Arguments) -> Result<(), String>;

impl StageInput {
    /// Whether the input is flows.
    pub fn is_flows(&self) -> bool {
        matches!(self, StageInput::Flows(_))
    }
}

/// The packets that a stage must see in their order. If workers share the packets by flow, it decides the parts that
/// each may run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any packet may be seen by any worker.
    Free,
    /// Packets of a flow in their order, by one worker.
    Flow,
    /// All packets in their order.
    All,
}

/// The context in which a stage is constructed.
pub struct BuildContext<'a> {
    /// The stage's name.
    pub name: &'a str,
    /// Worker of the stage, counted from 0.
    pub worker: usize,
    /// The stage follows the source directly: the kernel may have applied its filter to some interfaces.
    pub is_first: bool,
    /// The kernel's work that is this stage's, where the kernel takes it.
    pub tally: Option<&'a Tally>,
    /// Stop requests and the packet limit of the run.
    pub control: &'a Arc<Control>,
    /// Settings common to all workers.
    pub common: &'a GraphSettings,
}

/// Work on packets that the kernel does for stages; a pass over the plan and their classes know its type.
pub type Tally = Arc<dyn Any + Send + Sync>;

/// Settings common to all stages and workers.
pub struct GraphSettings {
    /// The number of workers.
    pub workers: usize,
    /// The directory of relative file names.
    pub directory: PathBuf,
    /// Anything that stages share, whose type their crate knows.
    pub stages: Arc<dyn Any + Send + Sync>,
}

/// One worker, and nothing that stages share.
impl Default for GraphSettings {
    fn default() -> GraphSettings {
        GraphSettings { workers: 1, directory: PathBuf::new(), stages: Arc::new(()) }
    }
}

impl GraphSettings {
    /// Resolves a file name of the graph against the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(Path::new(name))
    }
}
