//! Files of places of addresses, which stages of a run share, and the thread that reads them again.
//!
//! ```text
//! files --thread: read when one has changed--> SharedPlaces: Arc<Places>, a generation
//!                                                   |  between two parts of flows
//!                                                   +--> PlaceReader of each stage
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use tapline_geo::{Places, file_list};
use tapline_graph::catalog::{Arguments, BuildContext, Parameter, ParameterType, StageAccess};
use tapline_graph::{Control, grouped};

use super::changed_file::{FileStamp, FileWatcher, LOOK};

/// Lines for the user that wait to be shown; further ones are left out.
const MESSAGES_MAX: usize = 64;

/// The parameter of stages that look addresses up.
pub(super) const PARAMETER: Parameter = Parameter::new("enrich", ParameterType::Text, "none")
    .means("files with the places of addresses, CSV or MMDB, with commas (docs/enrich.md): for elements such as sourceCountry; places in a template means all of them. Files that change are read again");

/// Adds the files of places of a stage, which are read again when they change.
pub(crate) fn add_place_files(arguments: &Arguments, access: &mut StageAccess) {
    let files = arguments.get(PARAMETER.name).and_then(|files| file_list(files).ok()).unwrap_or_default();
    files.iter().filter(|file| *file != Path::new("none")).for_each(|file| access.reads_file(file));
}

/// Files of places that are open in a run.
#[derive(Debug, Default)]
pub struct PlaceFiles(Mutex<Vec<Weak<SharedPlaces>>>);

impl PlaceFiles {
    /// The files of a stage's argument: those that another stage has, or else read now.
    pub(super) fn open(
        &self,
        arguments: &Arguments,
        site: &BuildContext<'_>,
    ) -> Result<Option<PlaceReader>, String> {
        if !is_given(arguments) {
            return Ok(None);
        }
        let names = file_list(arguments.text(PARAMETER.name)).map_err(|error| error.to_string())?;
        let paths: Vec<PathBuf> =
            names.iter().map(|name| site.common.path(&name.to_string_lossy())).collect();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|files| files.strong_count() > 0);
        let shared = match open.iter().filter_map(Weak::upgrade).find(|shared| shared.paths == paths) {
            Some(shared) => shared,
            None => {
                let shared = SharedPlaces::open(paths, Arc::clone(site.control))?;
                open.push(Arc::downgrade(&shared));
                shared
            }
        };
        Ok(Some(PlaceReader { shared, generation: 0 }))
    }
}

/// Whether a stage has files of places.
pub(super) fn is_given(arguments: &Arguments) -> bool {
    arguments.text(PARAMETER.name) != "none"
}

/// Files of places, as they were read last.
#[derive(Debug)]
struct SharedPlaces {
    paths: Vec<PathBuf>,
    places: Mutex<Arc<Places>>,
    /// Number of readings of the files.
    generation: AtomicU64,
    messages: Mutex<Vec<String>>,
}

fn open_places(paths: &[PathBuf]) -> Result<Places, String> {
    let places = Places::open(paths).map_err(|error| error.to_string())?;
    if places.has_vendors() {
        return Err("flows have no vendors of MAC addresses: such a list is for tapline view".to_owned());
    }
    Ok(places)
}

impl SharedPlaces {
    fn open(paths: Vec<PathBuf>, control: Arc<Control>) -> Result<Arc<SharedPlaces>, String> {
        let stamps: Vec<_> = paths.iter().map(|path| FileStamp::of(path)).collect();
        let places = open_places(&paths)?;
        let shared = Arc::new(SharedPlaces {
            paths,
            places: Mutex::new(Arc::new(places)),
            generation: AtomicU64::new(1),
            messages: Mutex::default(),
        });
        watch(&shared, &stamps, control)
            .map_err(|error| format!("no thread for files of places: {error}"))?;
        Ok(shared)
    }

    /// Reads all files. A mistake is reported, and the previous contents stay.
    fn reload(&self) {
        let message = match open_places(&self.paths) {
            Ok(places) => {
                let entries = places.entries();
                *self.places() = Arc::new(places);
                self.generation.fetch_add(1, Ordering::Release);
                format!("files of places read again: {} entries", grouped(entries))
            }
            Err(error) => format!("{error}; the places before stay"),
        };
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() < MESSAGES_MAX {
            messages.push(message);
        }
    }

    fn places(&self) -> MutexGuard<'_, Arc<Places>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread that reads the files again; it ends with the last stage.
fn watch(
    shared: &Arc<SharedPlaces>,
    stamps: &[Option<FileStamp>],
    control: Arc<Control>,
) -> std::io::Result<()> {
    let shared = Arc::downgrade(shared);
    let mut watchers: Vec<FileWatcher> = stamps.iter().copied().map(FileWatcher::new).collect();
    let mut seen = control.reloads().count();
    thread::Builder::new().name("places".to_owned()).spawn(move || {
        loop {
            let asked = control.reloads().wait(seen, LOOK);
            let Some(shared) = shared.upgrade() else { break };
            let is_asked = asked != seen;
            seen = asked;
            let mut is_due = false;
            for (watcher, path) in watchers.iter_mut().zip(&shared.paths) {
                is_due |= watcher.is_due(FileStamp::of(path), is_asked);
            }
            if is_due {
                shared.reload();
            }
        }
    })?;
    Ok(())
}

/// A stage's view of the files.
#[derive(Debug)]
pub(super) struct PlaceReader {
    shared: Arc<SharedPlaces>,
    /// The generation that the stage has.
    generation: u64,
}

impl PlaceReader {
    /// The places, if they are others than at the last call.
    pub(super) fn take_new(&mut self) -> Option<Arc<Places>> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        (generation != self.generation).then(|| {
            self.generation = generation;
            Arc::clone(&self.shared.places())
        })
    }

    /// The places as they are now.
    pub(super) fn current(&self) -> Arc<Places> {
        Arc::clone(&self.shared.places())
    }

    /// Messages for the user since the last call of any stage.
    pub(super) fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.messages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
