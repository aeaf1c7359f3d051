//! The system's libhs (Hyperscan, or Vectorscan on other processors too): sets of literal strings.
//!
//! ```text
//! Literal, Literal, ... --LiteralSet::new--> LiteralSet, shared by threads
//!                                               │  lends nothing, is only read
//! Scratch (one a thread) ───────────────────────┴── scan(bytes) ──► (number, end) for every occurrence
//! ```
//!
//! Only with the feature `vectorscan`; the library must be there when Tapline is linked and when it runs. Source: `hs_compile.h`,
//! `hs_runtime.h`, `hs_common.h` of version 5.4.

use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};

/// What libhs answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VectorscanError {
    /// This processor lacks what the library was built for.
    #[error(
        "hs_valid_platform: this processor lacks SSSE3 or what else the library needs: use another engine"
    )]
    Platform,
    /// The set does not compile.
    #[error("hs_compile_lit_multi: {message}")]
    Compile {
        /// The library's words.
        message: String,
        /// The number of the literal at fault.
        literal: Option<usize>,
    },
    /// A call failed.
    #[error("{call}: error {code} (hs_common.h)")]
    Call {
        /// The function.
        call: &'static str,
        /// Its result.
        code: i32,
    },
    /// More bytes than one scan takes.
    #[error("hs_scan: {len} bytes, 4294967295 are the most: scan in pieces")]
    TooLong {
        /// How many there were.
        len: usize,
    },
}

/// A string to find.
#[derive(Clone, Copy, Debug)]
pub struct Literal<'a> {
    /// Its bytes, zeros too; not empty.
    pub bytes: &'a [u8],
    /// Letters of ASCII match in either case.
    pub nocase: bool,
}

/// Compiled literals.
#[derive(Debug)]
pub struct LiteralSet {
    database: NonNull<Database>,
}

// SAFETY: hs_runtime.h: a database is read-only once compiled and may be used by several threads at once.
unsafe impl Send for LiteralSet {}
// SAFETY: likewise; scans write to their scratch only.
unsafe impl Sync for LiteralSet {}

/// Memory that one scan at a time works in.
#[derive(Debug)]
pub struct Scratch {
    scratch: NonNull<RawScratch>,
}

// SAFETY: scratch belongs to no thread; only concurrent use is forbidden, and scanning takes it by &mut.
unsafe impl Send for Scratch {}

impl LiteralSet {
    /// Compiles the literals. Their numbers are their places in the slice.
    ///
    /// # Errors
    /// [`VectorscanError::Platform`], or the library's words on a literal.
    pub fn new(literals: &[Literal<'_>]) -> Result<LiteralSet, VectorscanError> {
        // Version 5.4.9 dies of a segmentation fault over an empty literal.
        let empty = literals.iter().position(|each| each.bytes.is_empty());
        if empty.is_some() || literals.is_empty() {
            return Err(VectorscanError::Compile { message: "nothing to search for".into(), literal: empty });
        }
        // SAFETY: no conditions.
        if unsafe { hs_valid_platform() } != HS_SUCCESS {
            return Err(VectorscanError::Platform);
        }
        let count = c_uint::try_from(literals.len())
            .map_err(|_| VectorscanError::Compile { message: "too many literals".into(), literal: None })?;
        let ids: Vec<c_uint> = (0..count).collect();
        let flag = |each: &Literal<'_>| if each.nocase { HS_FLAG_CASELESS } else { 0 };
        let flags: Vec<c_uint> = literals.iter().map(flag).collect();
        // The literal interface takes a first byte of zero for an empty string.
        if literals.iter().any(|each| each.bytes[0] == 0) {
            compile_as_expressions(literals, &ids, &flags)
        } else {
            compile(literals, &ids, &flags)
        }
    }

    /// Bytes that the database takes.
    pub fn memory(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is alive, and the size is written if the call succeeds; otherwise it stays 0.
        unsafe { hs_database_size(self.database.as_ptr(), &mut size) };
        size
    }

    /// Scratch for one scan of this set at a time.
    ///
    /// # Errors
    /// No memory.
    pub fn scratch(&self) -> Result<Scratch, VectorscanError> {
        let mut scratch = ptr::null_mut();
        // SAFETY: the database is alive; a null scratch asks for a new one.
        let code = unsafe { hs_alloc_scratch(self.database.as_ptr(), &mut scratch) };
        let scratch = NonNull::new(scratch).filter(|_| code == HS_SUCCESS);
        scratch
            .map(|scratch| Scratch { scratch })
            .ok_or(VectorscanError::Call { call: "hs_alloc_scratch", code })
    }

    /// Calls `found` with the number and the end of every occurrence, until it ends the scan.
    ///
    /// # Errors
    /// More than 4 GiB; scratch of another set.
    ///
    /// # Panics
    /// If `found` does; the panic passes behind the library, not through it.
    pub fn scan(
        &self,
        scratch: &mut Scratch,
        bytes: &[u8],
        found: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, VectorscanError> {
        let len = c_uint::try_from(bytes.len()).map_err(|_| VectorscanError::TooLong { len: bytes.len() })?;
        let mut context = Context { found, panic: None };
        // SAFETY: database and scratch are alive, and scratch is ours alone by &mut. `bytes` has `len` readable bytes.
        // `context` outlives the call and is touched by nothing else meanwhile; on_match takes it as what it is.
        let code = unsafe {
            hs_scan(
                self.database.as_ptr(),
                bytes.as_ptr().cast(),
                len,
                0,
                scratch.scratch.as_ptr(),
                on_match,
                ptr::from_mut(&mut context).cast(),
            )
        };
        if let Some(panic) = context.panic {
            resume_unwind(panic);
        }
        match code {
            HS_SUCCESS => Ok(ControlFlow::Continue(())),
            HS_SCAN_TERMINATED => Ok(ControlFlow::Break(())),
            code => Err(VectorscanError::Call { call: "hs_scan", code }),
        }
    }
}

impl Drop for LiteralSet {
    fn drop(&mut self) {
        // SAFETY: the database came from the compiler and is freed once; no scan borrows it any more.
        unsafe { hs_free_database(self.database.as_ptr()) };
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the scratch came from hs_alloc_scratch and is freed once, while no scan uses it.
        unsafe { hs_free_scratch(self.scratch.as_ptr()) };
    }
}

/// What a scan hands to its callback.
struct Context<'a> {
    found: &'a mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    panic: Option<Box<dyn Any + Send>>,
}

/// Called by the library for each occurrence. Returns 0 to go on. No panic leaves it.
extern "C" fn on_match(id: c_uint, _from: u64, to: u64, _flags: c_uint, context: *mut c_void) -> c_int {
    // SAFETY: `scan` passed a live Context that only this function touches until hs_scan returns; the library calls it
    // from the scanning thread, one call at a time.
    let context = unsafe { &mut *context.cast::<Context<'_>>() };
    match catch_unwind(AssertUnwindSafe(|| (context.found)(id as usize, to as usize))) {
        Ok(ControlFlow::Continue(())) => 0,
        Ok(ControlFlow::Break(())) => 1,
        Err(panic) => {
            context.panic = Some(panic);
            1
        }
    }
}

/// Through the literal interface. `ids` and `flags` are as many as `literals`.
fn compile(
    literals: &[Literal<'_>],
    ids: &[c_uint],
    flags: &[c_uint],
) -> Result<LiteralSet, VectorscanError> {
    let pointers: Vec<*const c_char> = literals.iter().map(|each| each.bytes.as_ptr().cast()).collect();
    let lens: Vec<usize> = literals.iter().map(|each| each.bytes.len()).collect();
    debug_assert!(literals.len() == ids.len() && ids.len() == flags.len());
    let (mut database, mut error) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the four arrays have as many elements as `ids` and live during the call; each pointer has as many readable
    // bytes as its length > 0 says, and this interface reads no further (it expects no terminator). A null platform
    // means this machine. Both results are written before the call returns.
    let code = unsafe {
        hs_compile_lit_multi(
            pointers.as_ptr(),
            flags.as_ptr(),
            ids.as_ptr(),
            lens.as_ptr(),
            ids.len() as c_uint,
            HS_MODE_BLOCK,
            ptr::null(),
            &mut database,
            &mut error,
        )
    };
    compiled(code, database, error)
}

/// Through the interface for regular expressions, each byte that is no letter or digit escaped.
fn compile_as_expressions(
    literals: &[Literal<'_>],
    ids: &[c_uint],
    flags: &[c_uint],
) -> Result<LiteralSet, VectorscanError> {
    let expressions: Vec<CString> = literals.iter().map(|each| expression(each.bytes)).collect();
    let pointers: Vec<*const c_char> = expressions.iter().map(|each| each.as_ptr()).collect();
    debug_assert!(literals.len() == ids.len() && ids.len() == flags.len());
    let (mut database, mut error) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the three arrays have as many elements as `ids` and live during the call; each pointer is a C string of
    // `expressions`. A null platform means this machine. Both results are written before the call returns.
    let code = unsafe {
        hs_compile_multi(
            pointers.as_ptr(),
            flags.as_ptr(),
            ids.as_ptr(),
            ids.len() as c_uint,
            HS_MODE_BLOCK,
            ptr::null(),
            &mut database,
            &mut error,
        )
    };
    compiled(code, database, error)
}

fn expression(bytes: &[u8]) -> CString {
    let escape = |byte: &u8| match byte.is_ascii_alphanumeric() {
        true => char::from(*byte).to_string(),
        false => format!("\\x{byte:02x}"),
    };
    CString::new(bytes.iter().map(escape).collect::<String>()).expect("a zero is escaped")
}

fn compiled(
    code: c_int,
    database: *mut Database,
    error: *mut CompileError,
) -> Result<LiteralSet, VectorscanError> {
    match NonNull::new(database) {
        Some(database) if code == HS_SUCCESS => Ok(LiteralSet { database }),
        _ => Err(compile_error(error)),
    }
}

/// Takes over an error of the compiler, which may be null.
fn compile_error(error: *mut CompileError) -> VectorscanError {
    let Some(error) = NonNull::new(error) else {
        return VectorscanError::Compile { message: "no reason given".into(), literal: None };
    };
    // SAFETY: the compiler returned it; its message is a C string that lives until it is freed below, once.
    let (message, expression) = unsafe {
        let raw = error.as_ref();
        let message = CStr::from_ptr(raw.message).to_string_lossy().into_owned();
        let expression = raw.expression;
        hs_free_compile_error(error.as_ptr());
        (message, expression)
    };
    VectorscanError::Compile { message, literal: usize::try_from(expression).ok() }
}

const HS_SUCCESS: c_int = 0;
const HS_SCAN_TERMINATED: c_int = -3;
const HS_FLAG_CASELESS: c_uint = 1;
const HS_MODE_BLOCK: c_uint = 1;

#[repr(C)]
struct Database {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawScratch {
    _opaque: [u8; 0],
}

#[repr(C)]
struct CompileError {
    message: *mut c_char,
    expression: c_int,
}

type OnMatch = extern "C" fn(c_uint, u64, u64, c_uint, *mut c_void) -> c_int;

#[link(name = "hs")]
unsafe extern "C" {
    fn hs_valid_platform() -> c_int;
    fn hs_compile_lit_multi(
        expressions: *const *const c_char,
        flags: *const c_uint,
        ids: *const c_uint,
        lens: *const usize,
        elements: c_uint,
        mode: c_uint,
        platform: *const c_void,
        database: *mut *mut Database,
        error: *mut *mut CompileError,
    ) -> c_int;
    fn hs_compile_multi(
        expressions: *const *const c_char,
        flags: *const c_uint,
        ids: *const c_uint,
        elements: c_uint,
        mode: c_uint,
        platform: *const c_void,
        database: *mut *mut Database,
        error: *mut *mut CompileError,
    ) -> c_int;
    fn hs_free_compile_error(error: *mut CompileError) -> c_int;
    fn hs_free_database(database: *mut Database) -> c_int;
    fn hs_database_size(database: *const Database, size: *mut usize) -> c_int;
    fn hs_alloc_scratch(database: *const Database, scratch: *mut *mut RawScratch) -> c_int;
    fn hs_free_scratch(scratch: *mut RawScratch) -> c_int;
    fn hs_scan(
        database: *const Database,
        data: *const c_char,
        len: c_uint,
        flags: c_uint,
        scratch: *mut RawScratch,
        on_match: OnMatch,
        context: *mut c_void,
    ) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[(&str, bool)]) -> LiteralSet {
        let literal =
            |(text, nocase): &(&'static str, bool)| Literal { bytes: text.as_bytes(), nocase: *nocase };
        let texts: Vec<(&'static str, bool)> =
            texts.iter().map(|(text, nocase)| (&*String::from(*text).leak(), *nocase)).collect();
        LiteralSet::new(&texts.iter().map(literal).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn every_occurrence_in_either_case() {
        let set = set(&[("aa", false), ("AB", true), ("a\0", false)]);
        let mut scratch = set.scratch().unwrap();
        let mut all = Vec::new();
        let end = set.scan(&mut scratch, b"aaaba\0", &mut |number, end| {
            all.push((end, number));
            ControlFlow::Continue(())
        });
        all.sort_unstable();
        assert_eq!(end.unwrap(), ControlFlow::Continue(()));
        assert_eq!(all, [(2, 0), (3, 0), (4, 1), (6, 2)]);
        assert!(set.memory() > 0);
    }

    #[test]
    fn a_first_byte_of_zero() {
        let set = set(&[("\0", false), ("\0\n.*aé", true), ("x", false)]);
        let mut scratch = set.scratch().unwrap();
        let mut all = Vec::new();
        let end = set.scan(&mut scratch, "x\0\0\n.*Aéx".as_bytes(), &mut |number, end| {
            all.push((end, number));
            ControlFlow::Continue(())
        });
        all.sort_unstable();
        assert_eq!(end.unwrap(), ControlFlow::Continue(()));
        assert_eq!(all, [(1, 2), (2, 0), (3, 0), (9, 1), (10, 2)]);
    }

    #[test]
    fn a_scan_ends_when_told() {
        let set = set(&[("a", false)]);
        let mut scratch = set.scratch().unwrap();
        let mut count = 0;
        let end = set.scan(&mut scratch, b"aaaa", &mut |_, _| {
            count += 1;
            ControlFlow::Break(())
        });
        assert_eq!((end.unwrap(), count), (ControlFlow::Break(()), 1));
    }

    #[test]
    fn a_panic_passes_behind_the_library() {
        let set = set(&[("a", false)]);
        let mut scratch = set.scratch().unwrap();
        let scan = |scratch: &mut Scratch| set.scan(scratch, b"aaaa", &mut |_, _| panic!("told"));
        let panic = catch_unwind(AssertUnwindSafe(|| scan(&mut scratch))).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"told"));
        let end = set.scan(&mut scratch, b"aaaa", &mut |_, _| ControlFlow::Continue(()));
        assert_eq!(end.unwrap(), ControlFlow::Continue(()), "the scratch is free again");
    }

    #[test]
    fn an_empty_literal_is_named() {
        let literals = [Literal { bytes: b"a", nocase: false }, Literal { bytes: b"", nocase: false }];
        match LiteralSet::new(&literals) {
            Err(VectorscanError::Compile { literal, message }) => assert_eq!(literal, Some(1), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}
