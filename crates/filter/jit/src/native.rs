//! Native code that has been placed in memory, and the calls into it.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, OnceLock, PoisonError};

use tapline_bpf::PacketFilter;
use tapline_ir::{Ir, Machine, Memory};
use tapline_packet::{BATCH_MAX, Batch, Meta, Packet, Selection};
use tapline_sys::ExecutableMemory;

use crate::helper::Callee;
use crate::lower::{self, BatchContext, Entry, Source};
use crate::search::Plan;
use crate::target::target;
use crate::{Error, VALUES_MAX};

/// `(data, len, meta, memory, cells) -> verdict`
type Run = unsafe extern "C" fn(*const u8, usize, *const Meta, *const Memory, *const AtomicU64) -> u64;

/// `(context) -> kept`
type SelectBatch = unsafe extern "C" fn(*const BatchContext) -> usize;

/// A filter or an FPL program as machine code. Its memory goes with it.
///
/// The code has two functions, for a batch and for one packet, and generating them takes the time. Few callers need
/// both, so the one for a single packet is generated when it is called for the first time.
///
/// ```
/// use tapline_ir::Memory;
/// use tapline_filter::{Options, compile};
/// use tapline_jit::Native;
/// use tapline_packet::{Meta, Packet};
///
/// let native = Native::of(&compile("ip", &Options::default())?)?;
/// let mut frame = [0; 60];
/// frame[12] = 8; // EtherType 0x0800
/// let meta = Meta { wire_len: 60, ..Meta::default() };
/// assert_ne!(native.run(Packet { data: &frame, meta: &meta }, &Memory::new(0)), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Native {
    select: ExecutableMemory,
    /// The function for one packet, once it was asked for.
    run: OnceLock<One>,
    ir: Ir,
    /// Cells for [`PacketFilter`], which brings none: as many as the graph has.
    own: Memory,
    /// The code holds the addresses of their tables.
    plans: Box<[Option<Plan>]>,
    /// The code holds their addresses.
    callees: Box<[Callee]>,
}

/// The code for a single packet.
#[derive(Debug)]
enum One {
    Code(ExecutableMemory),
    /// The interpreter, if the system refuses the memory for it after it gave that for batches.
    Interpreted(Box<Mutex<Machine>>),
}

impl Native {
    /// Makes native code of a graph.
    ///
    /// # Errors
    /// See [`Error`]; in each case an interpreter can run the graph, unless it is [`Error::Unsafe`].
    pub fn compile(ir: &Ir) -> Result<Native, Error> {
        ir.verify()?;
        let values = ir.instructions.len();
        if values > VALUES_MAX {
            return Err(Error::TooLarge { values, max: VALUES_MAX });
        }
        let plans = lower::plans(ir);
        let callees: Box<[Callee]> = ir.functions.iter().map(Callee::new).collect();
        let source = Source { ir, plans: &plans, callees: &callees };
        let select = placed(&source, Entry::Select)?;
        let run = match ir.functions.is_empty() {
            true => OnceLock::new(),
            // Programs that call functions are run packet by packet; what fails, fails now.
            false => OnceLock::from(One::Code(placed(&source, Entry::Run)?)),
        };
        Ok(Native { select, run, ir: ir.clone(), own: Memory::new(ir.cells), plans, callees })
    }

    /// Runs on one packet: 0 rejects it. The first call takes about as long as [`compile`](Self::compile).
    ///
    /// # Panics
    /// If `memory` has not as many cells as the graph.
    #[inline]
    pub fn run(&self, packet: Packet<'_>, memory: &Memory) -> u64 {
        let cells = self.checked(memory);
        let Some(One::Code(code)) = self.run.get() else {
            return self.run_first(packet, memory);
        };
        // SAFETY: the function at the start of the code has this type, and the code lives as long as `self`.
        let run: Run = unsafe { std::mem::transmute(code.as_ptr()) };
        let Packet { data, meta } = packet;
        // SAFETY: the graph was verified, so the code reads at most `len` bytes of `data`; the metadata, the memory
        // and as many cells as the graph has (checked) are there while it runs.
        unsafe { run(data.as_ptr(), data.len(), meta, memory, cells.as_ptr()) }
    }

    /// A call without machine code: the first one makes the code, and all are interpreted where the system refuses
    /// memory for it. Apart from [`run`](Self::run), so that a call with code saves no registers for this one.
    #[cold]
    #[inline(never)]
    fn run_first(&self, packet: Packet<'_>, memory: &Memory) -> u64 {
        match self.run.get_or_init(|| self.one()) {
            One::Code(_) => self.run(packet, memory),
            One::Interpreted(machine) => {
                machine.lock().unwrap_or_else(PoisonError::into_inner).run(packet, memory)
            }
        }
    }

    #[cold]
    fn one(&self) -> One {
        match placed(&self.source(), Entry::Run) {
            Ok(code) => One::Code(code),
            Err(_) => One::Interpreted(Box::new(Mutex::new(Machine::new(self.ir.clone())))),
        }
    }

    /// Keeps in `selection` the packets of `batch` that are accepted: one call for all of them.
    ///
    /// # Panics
    /// If `selection` holds an index that the batch does not have, or if `memory` has not as many cells as the graph.
    pub fn select(&self, batch: &Batch<'_>, memory: &Memory, selection: &mut Selection) {
        let cells = self.checked(memory);
        // SAFETY: the function at the start of the code has this type, and the code lives as long as `self`.
        let select: SelectBatch = unsafe { std::mem::transmute(self.select.as_ptr()) };
        selection.narrow(|indices| {
            // In a full batch each index has a record, and need not be looked at.
            if batch.len() < BATCH_MAX {
                let last = indices.iter().copied().max();
                assert!(
                    last.is_none_or(|last| usize::from(last) < batch.len()),
                    "the batch has no packet {last:?}"
                );
            }
            let (plain, fetched) = lower::stretches(batch.base().len(), indices.len());
            let context = BatchContext {
                base: batch.base().as_ptr(),
                base_len: batch.base().len(),
                records: batch.records().as_ptr(),
                indices: indices.as_mut_ptr(),
                count: indices.len(),
                plain,
                fetched,
                snap_len: batch.snap_len(),
                memory,
                cells: cells.as_ptr().cast(),
            };
            // SAFETY: base, records and indices are there with these lengths, and each index has a record (checked).
            // The code holds each record against the base, and, as the graph was verified, reads no further than the
            // packet; it writes at most `count` indices. Cells as in `run`.
            unsafe { select(&raw const context) }
        });
    }

    /// Packets that were rejected because a function of the program panicked.
    pub fn panics(&self) -> u64 {
        self.callees.iter().map(Callee::panics).sum()
    }

    /// The machine code for batches, in place.
    pub fn code(&self) -> &[u8] {
        self.select.as_slice()
    }

    /// The machine code for one packet, in place, generated now if it was not called yet; `None` if the system
    /// refuses memory for it.
    pub fn packet_code(&self) -> Option<&[u8]> {
        match self.run.get_or_init(|| self.one()) {
            One::Code(code) => Some(code.as_slice()),
            One::Interpreted(_) => None,
        }
    }

    /// The machine code as text: the function for one packet, then that for batches. Each is its instructions, then
    /// the bytes that calls execute, read from where they lie.
    ///
    /// # Errors
    /// [`Error::Generator`] if generating the instructions once more gives other bytes than those that lie there.
    pub fn assembly(&self) -> Result<String, Error> {
        let run = self.packet_code();
        let mut text = String::new();
        for (name, entry, placed) in [("run", Entry::Run, run), ("select", Entry::Select, Some(self.code()))]
        {
            let Some(placed) = placed else {
                text += &format!("{name}: interpreted: no executable memory\n");
                continue;
            };
            let code = lower::generate(&self.source(), entry, target()?.as_ref(), true)?;
            if code.bytes != placed {
                return Err(Error::Generator { reason: format!("{name}: other bytes the second time") });
            }
            text += &format!("{name}: {} bytes\n{}\n{}", placed.len(), code.listing.trim_end(), rows(placed));
        }
        Ok(text)
    }

    fn source(&self) -> Source<'_> {
        Source { ir: &self.ir, plans: &self.plans, callees: &self.callees }
    }

    /// The cells of a memory that has as many as the graph. They are requested once: the code gets the checked cells.
    fn checked<'m>(&self, memory: &'m Memory) -> &'m [AtomicU64] {
        let cells = memory.cells();
        assert!(cells.len() == self.own.len(), "{} cells, of {}", cells.len(), self.own.len());
        cells
    }
}

/// Bytes of an instruction stream, 24 a row.
const ROW: usize = 24;

/// Bytes in hexadecimal, for disassemblers.
fn rows(bytes: &[u8]) -> String {
    let row = |row: &[u8]| row.iter().map(|byte| format!(" {byte:02x}")).collect::<String>();
    bytes.chunks(ROW).map(|bytes| format!("bytes:{}\n", row(bytes))).collect()
}

/// The machine code of an entry, in memory.
fn placed(source: &Source<'_>, entry: Entry) -> Result<ExecutableMemory, Error> {
    let code = lower::generate(source, entry, target()?.as_ref(), false)?;
    Ok(ExecutableMemory::new(&code.bytes)?)
}

/// With cells of its own, all 0 at first.
impl PacketFilter for Native {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.run(packet, &self.own) != 0
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        Native::select(self, batch, &self.own, selection);
    }
}
