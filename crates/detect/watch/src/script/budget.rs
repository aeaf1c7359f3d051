//! Bounds of a call that hold whatever its operations do: stack, memory, processor time.
//!
//! Operations, depth and sizes of values have limits in Rhai. These bound neither the stack of an expression, nor how many
//! values a call holds, nor how long one operation takes. The interpreter asks here before each operation.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use tapline_sys::{heap, usage};

/// Bytes of stack that a call may take. Threads have 2 MiB.
const STACK_MAX: usize = 768 << 10;
/// Bytes of memory that a call may hold.
pub(super) const MEMORY_MAX: i64 = 64 << 20;
/// Processor time for each operation that a call may do, in nanoseconds: ten times that of a usual one.
const OPERATION_NS: u64 = 2_000;
/// The least processor time of a call, in nanoseconds.
const TIME_MIN_NS: u64 = 500_000_000;
/// Operations between two looks at the clock.
const OPERATIONS_PER_LOOK: u64 = 32;

/// The budget at the start of the present call. One thread at a time uses it; atomics only because Rhai may be called
/// from any.
#[derive(Debug)]
pub(super) struct CallBudget {
    time_max_ns: u64,
    end_ns: AtomicU64,
    stack_at: AtomicUsize,
    memory_max: AtomicI64,
    is_late: AtomicBool,
}

impl CallBudget {
    pub(super) fn new(operations: u64) -> CallBudget {
        CallBudget::of_time(operations.saturating_mul(OPERATION_NS).max(TIME_MIN_NS))
    }

    pub(super) fn of_time(time_max_ns: u64) -> CallBudget {
        CallBudget {
            time_max_ns,
            end_ns: AtomicU64::new(0),
            stack_at: AtomicUsize::new(0),
            memory_max: AtomicI64::new(0),
            is_late: AtomicBool::new(false),
        }
    }

    pub(super) fn begin(&self) {
        self.is_late.store(false, Ordering::Relaxed);
        self.end_ns.store(thread_ns().saturating_add(self.time_max_ns), Ordering::Relaxed);
        self.stack_at.store(stack_address(), Ordering::Relaxed);
        self.memory_max.store(heap::taken() as i64 + MEMORY_MAX, Ordering::Relaxed);
    }

    /// Whether the last call ran out of time.
    pub(super) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Runs work whose memory does not belong to the call: that of a table which grows.
    pub(super) fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = heap::taken();
        let result = work();
        self.memory_max.fetch_add((heap::taken() - before) as i64, Ordering::Relaxed);
        result
    }

    /// The reason that the call must end before its next operation, or `None`.
    pub(super) fn excess(&self, operations: u64) -> Option<String> {
        if self.stack_at.load(Ordering::Relaxed).abs_diff(stack_address()) > STACK_MAX {
            return Some(format!(
                "calls and expressions are nested too deep: {} KB of stack",
                STACK_MAX >> 10
            ));
        }
        if heap::taken() as i64 > self.memory_max.load(Ordering::Relaxed) {
            return Some(format!("the call holds more than {} MB of memory", MEMORY_MAX >> 20));
        }
        let looks = operations.is_multiple_of(OPERATIONS_PER_LOOK);
        if looks && thread_ns() > self.end_ns.load(Ordering::Relaxed) {
            self.is_late.store(true, Ordering::Relaxed);
            let seconds = self.time_max_ns as f64 / 1e9;
            return Some(format!("the call takes more than {seconds} s of processor time"));
        }
        None
    }
}

fn thread_ns() -> u64 {
    usage::thread_time().as_nanos() as u64
}

/// Where the stack is, about.
#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}
