//! An end by a signal leaves nothing behind: programs that run are killed, namespaces and temporary files removed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io, process, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
use signal_hook::iterator::Signals;
use tapline_sys::without_signals;
use tapline_testkit::netns;

/// Looks for processes: one that is killed may have started another just before.
const ROUNDS_MAX: usize = 100;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Has Ctrl-C, SIGTERM and SIGHUP clean up, and end this process with 128 and the signal's number.
pub(crate) fn clean_up_on_signals() -> io::Result<()> {
    let mut signals = without_signals(|| Signals::new([SIGINT, SIGTERM, SIGHUP]))?;
    let work = move || {
        let Some(signal) = signals.forever().next() else { return };
        IS_ENDING.store(true, Ordering::SeqCst);
        clean_up();
        process::exit(128 + signal);
    };
    thread::Builder::new().name("signals".to_owned()).spawn(work).map(drop)
}

/// Has a temporary folder removed by an end.
pub(crate) fn note_folder(path: &Path) {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
}

/// Waits for the end, if a signal came: what failed meanwhile failed by it.
pub(crate) fn wait_if_ending() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_secs(1));
    }
}

fn clean_up() {
    for _ in 0..ROUNDS_MAX {
        let running = descendants();
        if running.is_empty() {
            break;
        }
        for pid in running {
            let _ = tapline_sys::process::signal(pid, SIGKILL);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let ours = format!("-{}-", process::id());
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(name) = name.to_str().filter(|name| name.starts_with("tapline-") && name.contains(&ours))
        {
            let _ = netns::remove(name);
        }
    }
    for folder in FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Processes that this one started, and those that they started, without those that have ended.
fn descendants() -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // PID (NAME) STATE PARENT ...: a name may have any character.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let (state, parent) = (fields.next(), fields.next().and_then(|text| text.parse().ok()));
        if let (Some(state), Some(parent)) = (state, parent)
            && state != "Z"
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![process::id()];
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        found.extend(children.remove(pid).unwrap_or_default());
        at += 1;
    }
    found.split_off(1)
}
