//! Both sides in one process: over memory files, and, for miri, over plain memory in two threads.

#[cfg(not(miri))]
mod end_to_end;
#[cfg(not(miri))]
mod hostile;
#[cfg(not(miri))]
mod merging;
#[cfg(not(miri))]
mod ordering;
mod threads;
#[cfg(not(miri))]
mod waking;
