//! Functions that generated code calls: readers of metadata without a fixed place, and functions of FPL programs.
//!
//! All have the system's C calling convention, take the values of generated code, and never unwind.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tapline_ir::{Function, Memory, MetaField};
use tapline_packet::{Meta, Packet};

/// Returns a field of the metadata.
pub(crate) type FieldOf = extern "C" fn(&Meta) -> u32;

/// The way in which the packet was addressed: an enumeration has no layout to rely on.
pub(crate) extern "C" fn packet_type(meta: &Meta) -> u32 {
    of(MetaField::PacketType, meta)
}

/// Returns the tag as a number: the parts of an option have no layout to rely on.
pub(crate) extern "C" fn vlan_tag(meta: &Meta) -> u32 {
    of(MetaField::VlanTag, meta)
}

pub(crate) extern "C" fn vlan_present(meta: &Meta) -> u32 {
    of(MetaField::VlanPresent, meta)
}

pub(crate) extern "C" fn vlan_protocol(meta: &Meta) -> u32 {
    of(MetaField::VlanProtocol, meta)
}

fn of(field: MetaField, meta: &Meta) -> u32 {
    field.of(Packet { data: &[], meta })
}

/// A function of the graph, at an address that its code knows.
pub(crate) struct Callee {
    function: Arc<dyn Function>,
    panics: AtomicU64,
}

impl Callee {
    pub(crate) fn new(function: &Arc<dyn Function>) -> Callee {
        Callee { function: Arc::clone(function), panics: AtomicU64::new(0) }
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Callee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.function)
    }
}

/// The result of a call: two registers.
#[repr(C)]
pub(crate) struct Outcome {
    value: u64,
    /// 0 if the function panicked: the packet is rejected.
    has_returned: u64,
}

/// Calls a function of the graph on a packet.
///
/// # Safety
/// `data` must point to `len` readable bytes, `arguments` to `count` numbers.
pub(crate) unsafe extern "C" fn call(
    callee: &Callee,
    data: *const u8,
    len: usize,
    meta: &Meta,
    memory: &Memory,
    arguments: *const u64,
    count: usize,
) -> Outcome {
    // SAFETY: as the caller promises; both outlive the call.
    let (data, arguments) =
        unsafe { (std::slice::from_raw_parts(data, len), std::slice::from_raw_parts(arguments, count)) };
    let packet = Packet { data, meta };
    match catch_unwind(AssertUnwindSafe(|| callee.function.call(packet, memory, arguments))) {
        Ok(value) => Outcome { value, has_returned: 1 },
        Err(panic) => {
            callee.panics.fetch_add(1, Ordering::Relaxed);
            // Its destructor could panic in turn, and nothing may unwind from here.
            std::mem::forget(panic);
            Outcome { value: 0, has_returned: 0 }
        }
    }
}
