//! Memory that a thread has taken from the heap, counted by an allocator that a program may install.
//!
//! ```text
//! program    #[global_allocator] static HEAP: CountingHeap = CountingHeap;
//! library    let before = heap::taken();  ...foreign code...  heap::taken() - before > MAX: stop it
//! ```
//!
//! An interpreter that limits operations and lengths bounds each value, but not how many values its code holds at once.
//! This count does, whatever holds them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // No destructor and a constant beginning, so that it may be used inside the allocator.
    static TAKEN: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which also counts bytes by thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingHeap;

/// Bytes that this thread has taken and not given back. Negative if it gives back memory of other threads, so only
/// differences mean anything; always 0 in a program without [`CountingHeap`].
pub fn taken() -> isize {
    TAKEN.try_with(Cell::get).unwrap_or(0)
}

fn count(more: isize) {
    // A thread that is ending counts no more.
    let _ = TAKEN.try_with(|taken| taken.set(taken.get().wrapping_add(more)));
}

// SAFETY: each call goes to the system's allocator with the same arguments, and its result is returned as it is. Counting
// takes no memory and does not panic.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the conditions of `alloc`, which are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `memory` is from this allocator, hence from the system's, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count(len as isize - layout.size() as isize);
        // SAFETY: as in `dealloc`; the caller keeps the conditions on `len`.
        unsafe { System.realloc(memory, layout, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_what_it_takes_and_gives_back() {
        let before = taken();
        // SAFETY: the layout has a size, and the memory goes back with the layout that it has.
        unsafe {
            let layout = Layout::new::<[u64; 100]>();
            let memory = CountingHeap.alloc(layout);
            assert_eq!(taken() - before, 800);
            let memory = CountingHeap.realloc(memory, layout, 1600);
            assert_eq!(taken() - before, 1600);
            CountingHeap.dealloc(memory, Layout::from_size_align(1600, 8).unwrap());
        }
        assert_eq!(taken(), before);
        assert_eq!(std::thread::spawn(taken).join().unwrap(), 0);
    }
}
