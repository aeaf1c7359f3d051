//! A program in FPL, compiled for each worker and link type.
//!
//! ```text
//! text --> compiled for each worker and link type --> Arc<dyn PacketFilter>, native code from the first packet on
//!                                each worker: memory and functions of its own; searches for patterns keep nothing: all share them
//! ```
//!
//! The interpreter takes the place of native code where none can be made; never in the middle of a run.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use tapline_bpf::{PacketFilter, retain_with};
use tapline_fpl::functions::aho_corasick;
use tapline_fpl::{self as fpl, Compiled, External, FplOptions, Registry};
use tapline_fpl_memory::SharedCells;
use tapline_ir::{Ir, Machine, Memory};
use tapline_packet::{Batch, Interface, LinkType, Packet, Selection};
use tapline_search::Patterns;
use tapline_source::Error;

use super::super::input_file;

/// A program, and its memory in each worker.
pub struct FplProgram {
    name: String,
    text: String,
    searches: Vec<Arc<External>>,
    workers: Vec<Worker>,
    shared: Option<Arc<SharedCells>>,
}

/// A function for FPL programs, from `NAME=FILE`: it finds the patterns of the file (docs/search.md), numbered from 1
/// by their lines.
///
/// # Errors
/// The fault of the text, or of the file, with its line.
pub fn search_function(text: &str, directory: &Path) -> Result<Arc<External>, String> {
    let Some((name, file)) = text.split_once('=').filter(|(name, file)| is_name(name) && !file.is_empty())
    else {
        return Err(format!("'{text}' is not a search: say NAME=FILE, as in worms=signatures.txt"));
    };
    let path = directory.join(file);
    let patterns = input_file::read(&path, input_file::PATTERNS_MAX)?;
    let patterns = Patterns::from_list(&patterns).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Arc::new(aho_corasick(name, patterns)))
}

/// Whether FPL accepts a text as a name.
fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(is_letter) && text.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// The standard functions, and searches. A worker has its own, since some remember.
pub fn functions(searches: &[Arc<External>]) -> Arc<Registry> {
    let mut registry = Registry::standard();
    for search in searches {
        registry.insert(Arc::clone(search));
    }
    Arc::new(registry)
}

/// State of one thread.
struct Worker {
    /// The memory of the program, shared by all link types.
    memory: Memory,
    options: FplOptions,
    engines: Mutex<HashMap<LinkType, Arc<dyn PacketFilter>>>,
}

impl FplProgram {
    /// A program with `cells` cells of memory, which may call these searches in addition to the standard functions;
    /// `name` is for messages. It is compiled once for Ethernet, so that its errors show at once.
    ///
    /// # Errors
    /// The error of the program, with its place.
    pub fn new(
        name: &str,
        text: &str,
        cells: u32,
        searches: Vec<Arc<External>>,
    ) -> Result<FplProgram, Error> {
        let options =
            FplOptions { memory_cells: cells, registry: functions(&searches), ..FplOptions::default() };
        let workers = vec![Worker::new(options)];
        let program =
            FplProgram { name: name.to_owned(), text: text.to_owned(), searches, workers, shared: None };
        program.compile(&program.workers[0], LinkType::ETHERNET)?;
        Ok(program)
    }

    /// The program for `workers` workers, each with its own memory.
    #[must_use]
    pub fn for_workers(mut self, workers: usize) -> FplProgram {
        if self.shared.is_some() && workers <= 1 {
            return self;
        }
        self.shared = None;
        let options = self.workers[0].options.clone();
        let own = || FplOptions { registry: functions(&self.searches), ..options.clone() };
        self.workers = (0..workers.max(1)).map(|_| Worker::new(own())).collect();
        self
    }

    /// The program with its memory in a file, which other processes read and change while it runs
    /// (docs/format/memory.md). For one worker.
    ///
    /// # Errors
    /// The file cannot be made, is another one, or is in use.
    pub fn in_file(mut self, path: &Path) -> Result<FplProgram, tapline_fpl_memory::Error> {
        let shared = SharedCells::open(path, self.workers[0].options.memory_cells)?;
        self.workers[0].memory = shared.memory();
        self.shared = Some(Arc::new(shared));
        Ok(self)
    }

    /// The memory, if it is in a file.
    pub fn shared(&self) -> Option<Arc<SharedCells>> {
        self.shared.clone()
    }

    /// The name of the program's file, or of its option.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compiles for all interfaces known at the start, so that a mistake shows before anything is opened for writing.
    ///
    /// # Errors
    /// The error of the program for the first of these interfaces, if none of them can have it.
    pub fn check(&self, interfaces: &[Interface]) -> Result<(), Error> {
        let mut first = None;
        for interface in interfaces {
            match self.compile(&self.workers[0], interface.link_type) {
                Ok(_) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The engine for the packets of an interface that a worker reads.
    ///
    /// # Errors
    /// The error of the program for the interface's link type.
    pub fn engine(&self, worker: usize, interface: &Interface) -> Result<Arc<dyn PacketFilter>, Error> {
        let own = &self.workers[worker];
        let mut engines = own.engines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = engines.get(&interface.link_type) {
            return Ok(Arc::clone(engine));
        }
        let mut ir = self.compile(own, interface.link_type)?.ir;
        // A program that uses no cell on this link type wants none.
        let memory = if ir.cells == 0 { Memory::new(0) } else { own.memory.clone() };
        tapline_ir::optimise::optimise(&mut ir);
        let engine = engine(ir, memory);
        engines.insert(interface.link_type, Arc::clone(&engine));
        Ok(engine)
    }

    fn compile(&self, worker: &Worker, link_type: LinkType) -> Result<Compiled, Error> {
        let options = FplOptions { link_type, ..worker.options.clone() };
        fpl::compile(&self.text, &options)
            .map_err(|error| Error::Filter(format!("{}: {}", self.name, fpl::report(&error, &self.text))))
    }

    /// The cells of a worker that are not 0: index and value.
    ///
    /// # Panics
    /// If there is no such worker.
    pub fn cells(&self, worker: usize) -> impl Iterator<Item = (u64, u64)> {
        self.workers[worker].cells()
    }

    /// The cells that are not 0: a line each, index and value, the worker before them if there are several.
    pub fn memory_text(&self) -> String {
        let mut text = String::new();
        for (number, worker) in self.workers.iter().enumerate() {
            for (index, value) in worker.cells() {
                let place = if self.workers.len() > 1 { format!("{number}\t") } else { String::new() };
                let _ = writeln!(text, "{place}{index}\t{value}");
            }
        }
        text
    }

    /// The cells that are not 0: one object for all workers. Numbers are text, as most readers of JSON round those
    /// above 2^53.
    pub fn memory_json(&self) -> Value {
        let cells = |worker: &Worker| -> Map<String, Value> {
            worker.cells().map(|(index, value)| (index.to_string(), value.to_string().into())).collect()
        };
        json!({ "fpl_memory": self.workers.iter().map(cells).collect::<Vec<_>>() })
    }
}

impl Worker {
    fn new(options: FplOptions) -> Worker {
        // A wrong number is refused when the program is compiled.
        let is_right = options.memory_cells.is_power_of_two() && options.memory_cells <= fpl::CELLS_MAX;
        let memory = Memory::new(if is_right { options.memory_cells } else { 0 });
        Worker { memory, options, engines: Mutex::default() }
    }

    fn cells(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = (0..self.memory.len() as u64).map(|index| (index, self.memory.get(index)));
        all.filter(|(_, value)| *value != 0)
    }
}

fn engine(ir: Ir, memory: Memory) -> Arc<dyn PacketFilter> {
    match tapline_jit::Native::compile(&ir) {
        Ok(native) => Arc::new(Native { native, memory }),
        Err(_) => Arc::new(Interpreted { machine: Mutex::new(Machine::new(ir)), memory }),
    }
}

struct Native {
    native: tapline_jit::Native,
    memory: Memory,
}

impl PacketFilter for Native {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.verdict(packet) != 0
    }

    fn verdict(&self, packet: Packet<'_>) -> u64 {
        self.native.run(packet, &self.memory)
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        self.native.select(batch, &self.memory, selection);
    }
}

struct Interpreted {
    machine: Mutex<Machine>,
    memory: Memory,
}

impl PacketFilter for Interpreted {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.verdict(packet) != 0
    }

    fn verdict(&self, packet: Packet<'_>) -> u64 {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner).run(packet, &self.memory)
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.select(batch, &self.memory, selection);
    }

    fn select_with(&self, batch: &Batch<'_>, selection: &mut Selection, note: &mut dyn FnMut(usize, u64)) {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        retain_with(selection, note, |index| machine.run(batch.packet(index), &self.memory));
    }
}
