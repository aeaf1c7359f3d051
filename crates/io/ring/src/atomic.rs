//! The atomics that the protocols are written with: the standard ones, or loom's, which try every order.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
