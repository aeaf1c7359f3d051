//! The classes of stages: each declares its arguments, its purpose, and its constructor. Manual pages and checks come
//! from that.
//!
//! ```text
//! StageClass = name, summary, description, parameters, outputs, order, example, make
//! StageDeclaration stage --check(parameters)--> Arguments --make(Arguments, BuildContext)--> Box<dyn Stage>
//! ```

mod arguments;
mod classes;
mod manual;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapline_capture::af_packet::KernelTally;
use tapline_packet::Interface;
use tapline_view::ViewFile;
use tapline_watch::CommandStarter;

pub use arguments::{Arguments, Parameter, ParameterType};
pub use classes::CLASSES;
pub use manual::{index, page};

use crate::engine::Control;
use crate::stage::Stage;
use crate::stages::{PlaceFiles, RuleFiles};

/// A class of stages.
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
    /// Makes one.
    pub make: Constructor,
}

/// The way in which a stage of a class is constructed.
#[derive(Debug)]
pub enum Constructor {
    /// A source: the command that runs the graph opens it.
    Source,
    /// One for each worker.
    Stage(StageConstructor),
    /// An output: the command that runs the graph opens it, once for all workers.
    Output,
}

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
    pub tally: Option<&'a KernelTally>,
    /// Stop requests and the packet limit of the run.
    pub control: &'a Arc<Control>,
    /// Settings common to all workers.
    pub common: &'a GraphSettings,
}

/// Settings common to all stages and workers.
pub struct GraphSettings {
    /// The options for compiling a filter for an interface.
    pub options: InterfaceOptions,
    /// The number of workers.
    pub workers: usize,
    /// Filters stay in the interpreter, never become native code.
    pub interpret: bool,
    /// The directory of relative file names.
    pub directory: PathBuf,
    /// The file of the stage `view`; without one it writes for this process alone.
    pub view: Option<Arc<ViewFile>>,
    /// Files of rules, which workers share.
    pub rule_files: RuleFiles,
    /// Files of places, which stages and workers share.
    pub place_files: PlaceFiles,
    /// The process that starts commands of rules for this one, which is confined; without one they are children of this
    /// process.
    pub commands: Option<Arc<CommandStarter>>,
}

/// The options for compiling a filter for an interface.
pub type InterfaceOptions = Arc<dyn Fn(&Interface) -> tapline_filter::Options + Send + Sync>;

/// One worker, filters of the interface's link type, no files.
impl Default for GraphSettings {
    fn default() -> GraphSettings {
        GraphSettings {
            options: Arc::new(|interface| tapline_filter::Options::new(interface.link_type)),
            workers: 1,
            interpret: false,
            directory: PathBuf::new(),
            view: None,
            rule_files: RuleFiles::default(),
            place_files: PlaceFiles::default(),
            commands: None,
        }
    }
}

impl GraphSettings {
    /// Resolves a file name of the graph against the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(Path::new(name))
    }
}

/// The class of a name.
pub fn class(name: &str) -> Option<&'static StageClass> {
    CLASSES.iter().find(|class| class.name == name)
}
