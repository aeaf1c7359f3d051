//! FPL: programs over packets, with registers, memory that outlives packets, bounded loops, and registered functions.
//!
//! ```text
//! text --parse--> ast::Program --resolve--> Code --check--> Code, bounded --lower--> ir::Ir
//! ```
//!
//! The language is FPL-2 of FFPF (Bos and others, OSDI 2004), with decisions of our own, where the paper leaves a
//! question open, in `docs/filter/fpl.md`. A program that compiles is safe to run on any packet: it reads nothing but
//! captured bytes, touches nothing but its own memory cells, calls nothing but registered functions, and ends after
//! an amount of work that is known before it runs.
//!
//! ```
//! use tapline_fpl::{self as fpl, FplOptions};
//! use tapline_ir::{Machine, Memory};
//! use tapline_packet::{Meta, Packet};
//!
//! let program = fpl::compile("M[PKT.B[0]] += 1; RETURN PKT.LEN > 3;", &FplOptions::default())?;
//! let memory = Memory::new(program.ir.cells);
//! let mut machine = Machine::new(program.ir);
//! assert_eq!(machine.run(Packet { data: &[7, 0, 0, 0], meta: &Meta::default() }, &memory), 1);
//! assert_eq!(memory.get(7), 1);
//! # Ok::<(), tapline_syntax::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod ast;
mod field;
mod function;
pub mod functions;
mod hash;
mod interval;
mod lex;
mod lower;
mod outline;
mod parse;
mod range;
mod resolve;
mod tree;

use std::sync::Arc;

pub use field::{CONSTANTS, FIELDS, Field, Header};
pub use function::{Call, External, Registry};
pub use hash::hash;
pub use outline::outline;
pub use parse::{DEPTH_MAX, TEXT_MAX, parse};
pub use resolve::PARTS_MAX;
use tapline_packet::LinkType;
pub use tree::REGISTERS;

use tapline_ir::Ir;
use tapline_syntax::{Error, line_and_column};

/// Options of the compiler.
#[derive(Clone, Debug)]
pub struct FplOptions {
    /// The link type of frames: decides where `PKT.IP_SRC` and other named fields are.
    pub link_type: LinkType,
    /// Number of 64-bit cells of the program's memory: 0, or a power of two up to [`CELLS_MAX`].
    pub memory_cells: u32,
    /// The functions that it may call.
    pub registry: Arc<Registry>,
    /// The longest packet that proofs count with, in bytes. `PKT.LEN` is never more; bytes behind it are still read.
    pub packet_len_max: u32,
    /// The most work for one packet, in steps: statements, operators and operands that are run.
    pub work_max: u64,
    /// The seed of `HASH`; the application gives the same number to [`hash`].
    pub hash_seed: u64,
}

/// The most memory cells: 128 MiB.
pub const CELLS_MAX: u32 = 1 << 24;

impl Default for FplOptions {
    /// Ethernet, 1024 cells, the functions of [`Registry::standard`], packets of up to 262,144 bytes, 16 million steps.
    fn default() -> FplOptions {
        FplOptions {
            link_type: LinkType::ETHERNET,
            memory_cells: 1024,
            registry: Arc::new(Registry::standard()),
            packet_len_max: 262_144,
            work_max: 1 << 24,
            hash_seed: 0,
        }
    }
}

/// A program that may run.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The graph; its `cells` is the size of the memory that it needs, 0 if it uses none. [`Ir::has_state`] returns
    /// whether it is more than a filter.
    pub ir: Ir,
    /// The most steps that one packet may take; at most [`FplOptions::work_max`].
    pub work: u64,
}

/// Compiles a program.
///
/// # Errors
/// The fault in the text and its place: [`report`] shows it. A number of cells that is not a power of two, or too
/// large, is an error as well.
pub fn compile(text: &str, options: &FplOptions) -> Result<Compiled, Error> {
    let cells = options.memory_cells;
    if cells != 0 && !cells.is_power_of_two() || cells > CELLS_MAX {
        return Err(Error::whole(format!("a memory cannot have {cells} cells"))
            .hint(format!("the number of cells is 0 or a power of two up to {CELLS_MAX}")));
    }
    let program = parse(text)?;
    let mut code = resolve::resolve(&program, options)?;
    let work = range::check(&mut code, options)?;
    let ir = lower::lower(&code, options);
    debug_assert_eq!(ir.verify(), Ok(()));
    Ok(Compiled { ir, work })
}

/// An error for people: line and column, the fault, the line with the place marked, and the remedy.
///
/// ```
/// use tapline_fpl::{FplOptions, compile, report};
/// let text = "R[0] = 1;\nM[5000] = R[0];";
/// let error = compile(text, &FplOptions::default()).unwrap_err();
/// assert_eq!(
///     report(&error, text),
///     "line 2, column 3: there is no cell 5000\n  M[5000] = R[0];\n    ^^^^\n  the memory has the cells M[0] to M[1023]"
/// );
/// ```
pub fn report(error: &Error, text: &str) -> String {
    let shown = error.render(text);
    match error.span {
        // Of several lines, an error names the one by itself.
        Some(span) if !text.contains('\n') => format!("{}: {shown}", line_and_column(text, span)),
        _ => shown,
    }
}
