//! Files of rules read, and their filters made ready to run.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tapline_bpf::PacketFilter;
use tapline_filterset::Filter;
use tapline_graph::catalog::StageAccess;
use tapline_packet::{Interface, LinkType};
use tapline_watch::{Compile, FILE_MAX, Program, Rules, Webhook, parse};

use super::holds;
use crate::filters;
use crate::fpl::FplProgram;
use crate::settings::InterfaceOptions;
use crate::unfit::{Rejecting, rejecting, unfit_text};

/// Cells of memory of a rule in FPL.
const CELLS: u32 = 1 << 16;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes filters native code where there is any.
pub(super) struct WatchCompiler {
    options: InterfaceOptions,
    /// Texts that some link type could have: for one that cannot, they accept nothing.
    fit: Mutex<HashSet<String>>,
    told: Mutex<Vec<String>>,
}

impl WatchCompiler {
    pub(super) fn new(options: InterfaceOptions) -> WatchCompiler {
        WatchCompiler { options, fit: Mutex::default(), told: Mutex::default() }
    }

    /// Takes the sentences about rules that an interface cannot have.
    pub(super) fn take_told(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.told))
    }

    /// The compiled text for an interface, or a filter that accepts nothing, if another link type could have the
    /// text.
    fn or_reject<T>(
        &self,
        text: &str,
        interface: &Interface,
        made: Result<T, String>,
        rejecting: impl FnOnce() -> T,
    ) -> Result<T, String> {
        match made {
            Ok(made) => {
                lock(&self.fit).insert(text.to_owned());
                Ok(made)
            }
            Err(reason) if lock(&self.fit).contains(text) => {
                let shown = format!("the condition `{}`", text.lines().next().unwrap_or_default());
                lock(&self.told).push(unfit_text(interface, &shown, &reason));
                Ok(rejecting())
            }
            Err(reason) => Err(reason),
        }
    }
}

impl Compile for WatchCompiler {
    fn filter(&self, text: &str, interface: &Interface) -> Result<Filter, String> {
        let made = filters::compile(text, &(self.options)(interface)).map_err(|error| error.render(text));
        self.or_reject(text, interface, made, rejecting)
    }

    fn fpl(&self, text: &str, interface: &Interface) -> Result<Arc<dyn PacketFilter>, String> {
        let program = FplProgram::new("fpl", text, CELLS, Vec::new()).map_err(|error| error.to_string())?;
        let made = program.engine(0, interface).map_err(|error| error.to_string());
        self.or_reject(text, interface, made, || Arc::new(Rejecting))
    }
}

/// Reads a file of rules that are to run, and looks whether holds can be made in the stores that they name: that is
/// work for the start, and for the thread that reads rules again.
///
/// # Errors
/// The reason, with the place and the mend of a mistake.
pub(super) fn read(path: &Path) -> Result<Rules, String> {
    let rules = parsed(path)?;
    check_stores(&rules).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(rules)
}

/// Looks at each store once.
fn check_stores(rules: &Rules) -> Result<(), String> {
    let of_rules = rules.rules.iter().map(|rule| (&rule.name, rule.line, &rule.actions));
    let of_scripts = rules.scripts.iter().map(|script| (&script.name, script.line, &script.actions));
    let mut seen = HashSet::new();
    for (name, line, actions) in of_rules.chain(of_scripts) {
        let Some(hold) = actions.hold.as_ref().filter(|hold| seen.insert(&hold.store)) else { continue };
        holds::check(&hold.store).map_err(|why| format!("`{name}` in line {line}: hold: {why}"))?;
    }
    Ok(())
}

/// The rules of a file, wherever they are to run.
fn parsed(path: &Path) -> Result<Rules, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot read the rules {}: {why}", path.display());
    let bytes = tapline_sys::disk::read_at_most(path, FILE_MAX).map_err(|error| failed(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| failed(&error))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file of rules, and compiles its filters for interfaces; for Ethernet if there are none.
///
/// # Errors
/// The first mistake.
pub fn check(path: &Path, interfaces: &[Interface], options: &InterfaceOptions) -> Result<Rules, String> {
    let rules = parsed(path)?;
    let plain = [Interface::new("", LinkType::ETHERNET)];
    let interfaces = if interfaces.is_empty() { &plain[..] } else { interfaces };
    let compile = Arc::new(WatchCompiler::new(Arc::clone(options)));
    Program::new(rules.clone(), folder(path), interfaces, compile)
        .map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(rules)
}

/// The folder of a file of rules, in which its scripts are.
pub(super) fn folder(path: &Path) -> &Path {
    tapline_sys::sandbox::folder_of(path).unwrap_or(Path::new("."))
}

/// Adds the access that the rules of a file need; none for a file that cannot be read, which is reported elsewhere.
pub(super) fn add_needs(path: &Path, access: &mut StageAccess) {
    let Ok(rules) = parsed(path) else { return };
    access.reads_file(path);
    rules.webhooks.iter().flat_map(Webhook::files).for_each(|file| access.reads_file(file));
    let of_rules = rules.rules.iter().map(|rule| &rule.actions);
    for actions in of_rules.chain(rules.scripts.iter().map(|script| &script.actions)) {
        access.commands.extend((!actions.run.is_empty()).then(|| actions.run.clone()));
        access.allowed.ip |= !actions.webhook.is_empty();
        access.allowed.makes.extend(actions.hold.as_ref().map(|hold| hold.store.clone()));
    }
}
