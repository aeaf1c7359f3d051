//! libpcap as an oracle: the programs, verdicts and output of the system's own library.
//!
//! ```text
//! libpcap.so.0.8 --dlopen--> Libpcap --compile--> LibpcapProgram (instructions) --run--> verdict
//!                                   --read_file--> the packets of a capture file
//!                                   --count_live-> how many packets an interface had
//! ```
//!
//! The library is looked up when a test asks for it, so nothing links to it, and a machine without it can still run
//! every other test: [`Libpcap::get`] says why it is absent, and the test skips with that reason.
#![allow(unsafe_code)]

mod live;
mod trace;

pub use live::{LiveCount, LiveSettings};
pub use trace::Trace;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

// Laid out as `struct bpf_insn` of `pcap/bpf.h`, which has the members of the kernel's `struct sock_filter`.
use tapline_bpf::Insn;

/// The name under which Debian and its kin install libpcap 1.x.
const LIBRARY: &CStr = c"libpcap.so.0.8";

/// `PCAP_ERRBUF_SIZE` of `pcap/pcap.h`.
const ERROR_BYTES: usize = 256;

/// `PCAP_NETMASK_UNKNOWN` of `pcap/pcap.h`.
pub const NETMASK_UNKNOWN: u32 = 0xffff_ffff;

/// The snap length that our programs return as well.
pub const SNAP_LEN: u32 = 262_144;

/// The functions of a loaded libpcap. See pcap(3) and the manual pages of each.
pub struct Libpcap {
    open_dead: unsafe extern "C" fn(c_int, c_int) -> *mut c_void,
    open_offline: unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_void,
    close: unsafe extern "C" fn(*mut c_void),
    geterr: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    datalink: unsafe extern "C" fn(*mut c_void) -> c_int,
    compile: unsafe extern "C" fn(*mut c_void, *mut RawProgram, *const c_char, c_int, c_uint) -> c_int,
    freecode: unsafe extern "C" fn(*mut RawProgram),
    next_ex: unsafe extern "C" fn(*mut c_void, *mut *const RawHeader, *mut *const u8) -> c_int,
    bpf_filter: unsafe extern "C" fn(*const Insn, *const u8, c_uint, c_uint) -> c_uint,
    bpf_validate: unsafe extern "C" fn(*const Insn, c_int) -> c_int,
    bpf_image: unsafe extern "C" fn(*const Insn, c_int) -> *const c_char,
    live: live::Calls,
    version: String,
}

/// `struct bpf_program`.
#[repr(C)]
struct RawProgram {
    len: c_uint,
    insns: *mut Insn,
}

/// `struct pcap_pkthdr`.
#[repr(C)]
struct RawHeader {
    time: libc::timeval,
    cap_len: u32,
    wire_len: u32,
}

/// Settings of the compilation of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileSettings {
    /// libpcap's number of the link type (a DLT, not a LINKTYPE).
    pub dlt: i32,
    /// Whether its optimiser runs.
    pub optimise: bool,
    /// The network's mask in network byte order read as a number of this machine; [`NETMASK_UNKNOWN`] if not known.
    pub netmask: u32,
}

impl CompileSettings {
    /// Optimised, with the netmask that `tcpdump -r` passes: 0.
    pub const fn new(dlt: i32) -> CompileSettings {
        CompileSettings { dlt, optimise: true, netmask: 0 }
    }
}

/// One packet of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePacket {
    /// The captured bytes.
    pub data: Vec<u8>,
    /// The length on the wire.
    pub wire_len: u32,
}

/// A program that libpcap compiled, copied out of its memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LibpcapProgram {
    insns: Vec<Insn>,
    /// Whether libpcap made it; other programs are validated before each run.
    trusted: bool,
}

impl Libpcap {
    /// The system's libpcap, loaded once.
    ///
    /// # Errors
    /// The reason why it is missing, for the message with which a test skips.
    pub fn get() -> Result<&'static Libpcap, &'static str> {
        static LOADED: OnceLock<Result<Libpcap, String>> = OnceLock::new();
        LOADED.get_or_init(Libpcap::load).as_ref().map_err(String::as_str)
    }

    /// The text of `pcap_lib_version`, such as `libpcap version 1.10.3 (with TPACKET_V3)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Compiles `text` on a handle that `pcap_open_dead` gives.
    ///
    /// # Errors
    /// libpcap's own text.
    pub fn compile(&self, text: &str, settings: CompileSettings) -> Result<LibpcapProgram, String> {
        let text = CString::new(text).map_err(|_| "the text holds a zero byte".to_owned())?;
        // SAFETY: pcap_open_dead takes any numbers; 262144 is a snap length that it documents.
        let handle = unsafe { (self.open_dead)(settings.dlt, SNAP_LEN as c_int) };
        let handle = Handle::new(self, handle).ok_or("pcap_open_dead returned no handle")?;
        let mut program = RawProgram { len: 0, insns: ptr::null_mut() };
        // SAFETY: the handle is open, `program` and `text` outlive the call, and the text ends in a zero byte.
        let status = unsafe {
            let optimise = c_int::from(settings.optimise);
            (self.compile)(handle.0.as_ptr(), &raw mut program, text.as_ptr(), optimise, settings.netmask)
        };
        if status != 0 {
            return Err(handle.error());
        }
        Ok(self.take(program))
    }

    /// All packets of a pcap or pcapng file, and its DLT.
    ///
    /// # Errors
    /// libpcap's own text when it cannot open the file. A file that breaks off gives the packets before the break.
    pub fn read_file(&self, path: &Path) -> Result<(i32, Vec<FilePacket>), String> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| "the name holds a zero byte".to_owned())?;
        let mut error = [0 as c_char; ERROR_BYTES];
        // SAFETY: the name ends in a zero byte and the buffer has the size that libpcap asks for.
        let handle = unsafe { (self.open_offline)(name.as_ptr(), error.as_mut_ptr()) };
        // SAFETY: libpcap wrote a text with its zero byte there, or left the zeros.
        let handle = Handle::new(self, handle).ok_or_else(|| unsafe { text_at(error.as_ptr()) })?;
        // SAFETY: the handle is open.
        let dlt = unsafe { (self.datalink)(handle.0.as_ptr()) };
        Ok((dlt, std::iter::from_fn(|| handle.next_packet()).collect()))
    }

    /// The line that `tcpdump -d` prints for an instruction at position `at`.
    ///
    /// The C function answers in one static buffer, so calls take turns.
    pub fn image(&self, insn: Insn, at: usize) -> String {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the instruction outlives the call; the answer is copied before anyone else may call.
        unsafe { text_at((self.bpf_image)(&raw const insn, at as c_int)) }
    }

    fn load() -> Result<Libpcap, String> {
        // SAFETY: libpcap's initialisers have no conditions of their own; the library is never unloaded.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = NonNull::new(library).ok_or_else(|| format!("{LIBRARY:?} is not installed"))?;
        // SAFETY: each name has in `pcap/pcap.h` and `pcap/bpf.h` the type of the field that it is assigned to.
        unsafe {
            let version: unsafe extern "C" fn() -> *const c_char = symbol(library, c"pcap_lib_version")?;
            Ok(Libpcap {
                open_dead: symbol(library, c"pcap_open_dead")?,
                open_offline: symbol(library, c"pcap_open_offline")?,
                close: symbol(library, c"pcap_close")?,
                geterr: symbol(library, c"pcap_geterr")?,
                datalink: symbol(library, c"pcap_datalink")?,
                compile: symbol(library, c"pcap_compile")?,
                freecode: symbol(library, c"pcap_freecode")?,
                next_ex: symbol(library, c"pcap_next_ex")?,
                bpf_filter: symbol(library, c"bpf_filter")?,
                bpf_validate: symbol(library, c"bpf_validate")?,
                bpf_image: symbol(library, c"bpf_image")?,
                live: live::Calls::load(library)?,
                version: text_at(version()),
            })
        }
    }

    /// Copies a compiled program and gives its memory back.
    fn take(&self, mut program: RawProgram) -> LibpcapProgram {
        // SAFETY: pcap_compile succeeded, so `insns` points to `len` instructions.
        let insns = unsafe { std::slice::from_raw_parts(program.insns, program.len as usize) }.to_vec();
        // SAFETY: the program came from pcap_compile and is not used after this.
        unsafe { (self.freecode)(&raw mut program) };
        LibpcapProgram { insns, trusted: true }
    }
}

impl LibpcapProgram {
    /// A program that did not come from libpcap.
    pub fn new(insns: Vec<Insn>) -> LibpcapProgram {
        LibpcapProgram { insns, trusted: false }
    }

    /// The instructions.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// Whether a jump goes backward, as `protochain` has it. Such a program may never end on a hostile packet.
    pub fn may_loop(&self) -> bool {
        const JUMP_ALWAYS: u16 = 0x05;
        self.insns.iter().any(|insn| insn.code == JUMP_ALWAYS && insn.k >= 1 << 31)
    }

    /// The verdict of libpcap's interpreter on a packet. The call may hang if [`may_loop`](Self::may_loop) is true.
    ///
    /// # Panics
    /// If the program did not come from libpcap and `bpf_validate` refuses it.
    pub fn run(&self, pcap: &Libpcap, data: &[u8], wire_len: u32) -> u32 {
        // SAFETY: the instructions are there, as many as stated.
        let is_valid = || unsafe { (pcap.bpf_validate)(self.insns.as_ptr(), self.insns.len() as c_int) != 0 };
        assert!(self.trusted || is_valid(), "libpcap does not take this program");
        // SAFETY: the program is valid, so its jumps and cells stay in bounds; it reads at most `data.len()` bytes.
        unsafe { (pcap.bpf_filter)(self.insns.as_ptr(), data.as_ptr(), wire_len, data.len() as c_uint) }
    }
}

/// An open `pcap_t`.
struct Handle<'a>(NonNull<c_void>, &'a Libpcap);

impl Handle<'_> {
    fn new(pcap: &Libpcap, raw: *mut c_void) -> Option<Handle<'_>> {
        NonNull::new(raw).map(|raw| Handle(raw, pcap))
    }

    fn error(&self) -> String {
        // SAFETY: the handle is open; its error text ends in a zero byte and is copied at once.
        unsafe { text_at((self.1.geterr)(self.0.as_ptr())) }
    }

    fn next_packet(&self) -> Option<FilePacket> {
        let (mut header, mut bytes) = (ptr::null(), ptr::null());
        // SAFETY: the handle is open and both pointers outlive the call.
        let status = unsafe { (self.1.next_ex)(self.0.as_ptr(), &raw mut header, &raw mut bytes) };
        if status != 1 {
            return None;
        }
        // SAFETY: with status 1 both pointers are valid until the next call, and `cap_len` bytes are there.
        unsafe {
            let RawHeader { cap_len, wire_len, .. } = *header;
            let data = std::slice::from_raw_parts(bytes, cap_len as usize).to_vec();
            Some(FilePacket { data, wire_len })
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is open and nothing uses it after this.
        unsafe { (self.1.close)(self.0.as_ptr()) }
    }
}

/// A function of the library.
///
/// # Safety
/// `F` must be the type of a function pointer and fit the header's declaration of this name.
unsafe fn symbol<F: Copy>(library: NonNull<c_void>, name: &CStr) -> Result<F, String> {
    assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer");
    // SAFETY: the library is loaded and stays so; the name ends in a zero byte.
    let address = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    if address.is_null() {
        return Err(format!("{LIBRARY:?} has no function {name:?}"));
    }
    // SAFETY: the sizes are equal (asserted), and the caller promises that the type is right.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

/// # Safety
/// `start` must point to a text that ends in a zero byte.
unsafe fn text_at(start: *const c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: i32 = 1;

    #[test]
    fn compiles_and_runs_ip() {
        let pcap = match Libpcap::get() {
            Ok(pcap) => pcap,
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        let oracle = pcap.compile("ip", CompileSettings::new(ETHERNET)).expect("compiles");
        assert_eq!(oracle.insns().len(), 4);
        assert_eq!(pcap.image(oracle.insns()[0], 0), "(000) ldh      [12]");
        let mut frame = [0; 60];
        assert_eq!(oracle.run(pcap, &frame, 60), 0);
        frame[12] = 8;
        assert_eq!(oracle.run(pcap, &frame, 60), SNAP_LEN);
        assert_eq!(oracle.run(pcap, &frame[..13], 60), 0);
        assert_eq!(oracle.run(pcap, &[], 60), 0);
    }

    #[test]
    fn errors_name_the_fault() {
        let Ok(pcap) = Libpcap::get() else { return eprintln!("skipped: no libpcap") };
        let error = pcap.compile("ip and arp", CompileSettings::new(ETHERNET)).expect_err("never true");
        assert_eq!(error, "expression rejects all packets");
    }
}
