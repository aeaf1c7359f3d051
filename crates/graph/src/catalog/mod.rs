//! The classes of stages: each declares its arguments, what it is for, and how it is made. Manual pages and checks come from that.
//!
//! ```text
//! Class = name, summary, description, parameters, outputs, order, example, make
//! Declared stage --check(parameters)--> Arguments --make(Arguments, Site)--> Box<dyn Stage>
//! ```

mod arguments;
mod classes;
mod manual;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapline_packet::Interface;

pub use arguments::{Arguments, Kind, Parameter};
pub use classes::CLASSES;
pub use manual::{index, page};

use crate::engine::Control;
use crate::stage::Stage;

/// A class of stages.
#[derive(Debug)]
pub struct Class {
    /// Its name in graphs.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// What people should know besides.
    pub description: &'static str,
    /// Its arguments, in the order in which they may be given without their names.
    pub parameters: &'static [Parameter],
    /// What comes out of it.
    pub outputs: Outputs,
    /// What it is for: packets, or the flows of a meter.
    pub takes: Takes,
    /// Which packets it must see in their order.
    pub order: Order,
    /// How it is used.
    pub example: &'static str,
    /// Makes one.
    pub make: Make,
}

/// How a stage comes to be.
#[derive(Debug)]
pub enum Make {
    /// A source: the command that runs the graph opens it.
    Source,
    /// One for each worker.
    Stage(MakeStage),
    /// An output: the command that runs the graph opens it, once for all workers.
    Output,
}

/// Makes a stage, or says why it cannot.
pub type MakeStage = fn(&Arguments, &Site<'_>) -> Result<Box<dyn Stage>, String>;

/// How many outputs a stage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// It is the end of a way.
    None,
    /// One, which may lead nowhere.
    One,
    /// One, on which flows that have ended travel beside the packets: it is a meter.
    Flows,
    /// As many as are connected.
    Many,
}

/// What a stage is for.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// Packets.
    Packets,
    /// Flows: it stands right behind meters. The function says, of their arguments and its own, why that cannot be.
    Flows(CheckMeters),
}

/// Of the arguments of the meters that lead to a stage and its own, why that cannot be.
pub type CheckMeters = fn(&[&Arguments], &Arguments) -> Result<(), String>;

impl Takes {
    /// Whether it takes flows.
    pub fn are_flows(&self) -> bool {
        matches!(self, Takes::Flows(_))
    }
}

/// Which packets a stage must see in their order. Where workers share the packets by flow, this says what each may do alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any packet may be seen by any worker.
    Free,
    /// Packets of a flow in their order, by one worker.
    Flow,
    /// All packets in their order.
    All,
}

/// Where a stage is made.
pub struct Site<'a> {
    /// The stage's name.
    pub name: &'a str,
    /// Which worker it is for, counted from 0.
    pub worker: usize,
    /// Whether the source before it may have done its work, packet by packet of each interface.
    pub is_first: bool,
    /// The work's orders and its limit.
    pub control: &'a Arc<Control>,
    /// What belongs to all workers together.
    pub common: &'a Common,
}

/// What stages of all workers have in common.
pub struct Common {
    /// How the text of a filter is compiled for an interface.
    pub options: OptionsFor,
    /// How many workers there are.
    pub workers: usize,
    /// Filters stay in the interpreter, never become native code.
    pub interpret: bool,
    /// Where relative names of files start.
    pub directory: PathBuf,
}

/// How the text of a filter is compiled for an interface.
pub type OptionsFor = Arc<dyn Fn(&Interface) -> tapline_filter::Options + Send + Sync>;

impl Common {
    /// A file's name as the graph has it, from where relative names start.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(Path::new(name))
    }
}

/// The class of a name.
pub fn class(name: &str) -> Option<&'static Class> {
    CLASSES.iter().find(|class| class.name == name)
}
