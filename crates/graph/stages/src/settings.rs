//! Settings that the stages of a run share.

use std::sync::{Arc, LazyLock};

use tapline_graph::catalog::GraphSettings;
use tapline_packet::Interface;
use tapline_view::ViewFile;
use tapline_watch::CommandStarter;

use crate::{PlaceFiles, RuleFiles};

/// The options for compiling a filter for an interface.
pub type InterfaceOptions = Arc<dyn Fn(&Interface) -> tapline_filter::Options + Send + Sync>;

/// Settings common to the stages of all workers.
pub struct StageSettings {
    /// The options for compiling a filter for an interface.
    pub options: InterfaceOptions,
    /// Filters stay in the interpreter, never become native code.
    pub interpret: bool,
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

/// Filters of the interface's link type, no files.
impl Default for StageSettings {
    fn default() -> StageSettings {
        StageSettings {
            options: Arc::new(|interface| tapline_filter::Options::new(interface.link_type)),
            interpret: false,
            view: None,
            rule_files: RuleFiles::default(),
            place_files: PlaceFiles::default(),
            commands: None,
        }
    }
}

impl StageSettings {
    /// The settings of stages among those of a graph; the defaults if a program gave none.
    pub fn of(settings: &GraphSettings) -> &StageSettings {
        static DEFAULT: LazyLock<StageSettings> = LazyLock::new(StageSettings::default);
        settings.stages.downcast_ref().unwrap_or(&DEFAULT)
    }
}

impl From<StageSettings> for GraphSettings {
    fn from(settings: StageSettings) -> GraphSettings {
        GraphSettings { stages: Arc::new(settings), ..GraphSettings::default() }
    }
}
