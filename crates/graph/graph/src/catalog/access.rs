//! Access of stages once they were made, to which a program confines itself.

use std::path::{Path, PathBuf};

use tapline_sys::sandbox::{AllowedAccess, folder_of, nearest_folder};

use crate::plan::Plan;

/// Access that stages need once they were made.
#[derive(Debug, Default)]
pub struct StageAccess {
    /// Files and sockets.
    pub allowed: AllowedAccess,
    /// Folders in which capture files are made: by the process itself, or by one that keeps its rights for that.
    pub captures: Vec<PathBuf>,
    /// Commands that are started: their words.
    pub commands: Vec<Vec<String>>,
}

impl StageAccess {
    /// Lets a file be read again, which may be another one of its name then.
    pub fn reads_file(&mut self, name: impl AsRef<Path>) {
        self.allowed.reads.extend(folder_of(name.as_ref()).map(Path::to_owned));
    }

    /// Lets a file be made; no name and `-` mean none.
    pub fn makes_file(&mut self, name: impl AsRef<Path>) {
        let name = Some(name.as_ref()).filter(|name| *name != Path::new("-"));
        self.allowed.makes.extend(name.and_then(folder_of).map(Path::to_owned));
    }

    /// Lets a folder and files in it be made.
    pub fn makes_folder(&mut self, name: &str) {
        self.allowed.makes.push(nearest_folder(Path::new(name)));
    }
}

impl Plan {
    /// The access of all stages once they were made.
    pub fn access(&self) -> StageAccess {
        let mut access = StageAccess::default();
        for node in &self.nodes {
            (node.class.access)(&node.arguments, &mut access);
        }
        access
    }
}
