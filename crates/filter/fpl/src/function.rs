//! Functions that programs call with `EXTERN(name, input, output)`.
//!
//! ```text
//! EXTERN(sample, 8, 9)        input: cells M[8] ..    output: cells M[9] ..    value: what the call gives
//! ```
//!
//! A function declares how many cells it reads and how many it writes. The compiler proves that they lie in the
//! memory, so a function sees no other cell. Only registered functions can be called.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tapline_packet::Packet;

use tapline_ir::Memory;

/// The arguments of a function and the cells that it may touch.
#[derive(Debug)]
pub struct Call<'a> {
    packet: Packet<'a>,
    memory: &'a Memory,
    input: (u64, u32),
    output: (u64, u32),
}

impl<'a> Call<'a> {
    /// The packet that the program looks at.
    pub fn packet(&self) -> Packet<'a> {
        self.packet
    }

    /// An input cell, counted from the call's input offset; 0 beyond the declared number.
    pub fn input(&self, index: u32) -> u64 {
        self.read(self.input, index)
    }

    /// An output cell as it is now, counted from the call's output offset; 0 beyond the declared number.
    pub fn output(&self, index: u32) -> u64 {
        self.read(self.output, index)
    }

    /// Writes an output cell. Beyond the declared number, nothing is written.
    pub fn set_output(&self, index: u32, value: u64) {
        let (start, count) = self.output;
        if index < count {
            self.memory.set(start + u64::from(index), value);
        }
    }

    fn read(&self, (start, count): (u64, u32), index: u32) -> u64 {
        if index < count { self.memory.get(start + u64::from(index)) } else { 0 }
    }
}

type Run = dyn Fn(&Call<'_>) -> u64 + Send + Sync;

/// A function that programs may call once it is in their [`Registry`].
///
/// A function must not panic on any packet or cell, and takes time in proportion to the length of the packet at most.
pub struct External {
    name: String,
    inputs: u32,
    outputs: u32,
    run: Box<Run>,
}

impl External {
    /// A function that reads `inputs` cells and writes `outputs`.
    ///
    /// ```
    /// use tapline_fpl::{External, Registry};
    /// let mut registry = Registry::standard();
    /// registry.insert(External::new("longest", 0, 1, |call| {
    ///     call.set_output(0, call.output(0).max(call.packet().data.len() as u64));
    ///     call.output(0)
    /// }));
    /// ```
    pub fn new(
        name: impl Into<String>,
        inputs: u32,
        outputs: u32,
        run: impl Fn(&Call<'_>) -> u64 + Send + Sync + 'static,
    ) -> External {
        External { name: name.into(), inputs, outputs, run: Box::new(run) }
    }

    /// The name in programs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of cells that the function reads, from the input offset of the call.
    pub fn inputs(&self) -> u32 {
        self.inputs
    }

    /// Number of cells that the function reads and writes, from the output offset of the call.
    pub fn outputs(&self) -> u32 {
        self.outputs
    }
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} in, {} out)", self.name, self.inputs, self.outputs)
    }
}

/// Arguments: the input's first cell, the output's.
impl tapline_ir::Function for External {
    fn name(&self) -> &str {
        &self.name
    }

    fn call(&self, packet: Packet<'_>, memory: &Memory, arguments: &[u64]) -> u64 {
        let &[input, output] = arguments else { return 0 };
        // Proven by the compiler for a memory of the program's size; a smaller one must not make a function read
        // beside its cells.
        let cells = memory.len() as u64;
        let fits = |start: u64, count: u32| start.checked_add(count.into()).is_some_and(|end| end <= cells);
        if !fits(input, self.inputs) || !fits(output, self.outputs) {
            return 0;
        }
        (self.run)(&Call { packet, memory, input: (input, self.inputs), output: (output, self.outputs) })
    }
}

/// The functions that programs may call.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    functions: BTreeMap<String, Arc<External>>,
}

impl Registry {
    /// A registry without functions: nothing can be called.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// `count`, `sample`, `rtsp_ports`: see [`functions`](super::functions).
    pub fn standard() -> Registry {
        let mut registry = Registry::new();
        super::functions::standard().into_iter().for_each(|function| {
            registry.insert(function);
        });
        registry
    }

    /// Adds a function; returns the previous one of its name. Programs that were compiled before keep theirs.
    pub fn insert(&mut self, function: impl Into<Arc<External>>) -> Option<Arc<External>> {
        let function = function.into();
        self.functions.insert(function.name.clone(), function)
    }

    /// Takes a function out: programs compiled from now on cannot call it.
    pub fn remove(&mut self, name: &str) -> Option<Arc<External>> {
        self.functions.remove(name)
    }

    /// The function of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<External>> {
        self.functions.get(name)
    }

    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }
}
