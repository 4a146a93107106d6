//! A value that one thread publishes and others pick up between bursts: snapshots, next hops.
//!
//! Readers compare a version, one load per loop, and take the lock only when it changed. That keeps
//! locks off the packet path without a hazard-pointer scheme: values change with operator actions
//! or the neighbour table, not with packets.
//!
//! # Memory ordering
//! `version` is stored with Release after the value is in place and loaded with Acquire by readers.
//! A reader may pick up a value newer than the version it saw; it then sees an unchanged value once
//! more, never an old one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The published value.
pub(crate) struct Slot<T> {
    version: AtomicU64,
    value: Mutex<Arc<T>>,
}

impl<T> Slot<T> {
    pub(crate) fn new(value: T) -> Slot<T> {
        Slot { version: AtomicU64::new(1), value: Mutex::new(Arc::new(value)) }
    }

    pub(crate) fn publish(&self, value: T) {
        let mut slot = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Arc::new(value);
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Arc<T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The value, if it was published since the version in `seen` (0 for never), which is updated.
    #[inline]
    pub(crate) fn newer(&self, seen: &mut u64) -> Option<Arc<T>> {
        let version = self.version.load(Ordering::Acquire);
        if version == *seen {
            return None;
        }
        *seen = version;
        Some(self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_returns_each_publication_once() {
        let slot = Slot::new(1);
        let mut seen = 0;
        assert_eq!(slot.newer(&mut seen).as_deref(), Some(&1));
        assert_eq!(slot.newer(&mut seen), None);
        slot.publish(2);
        slot.publish(3);
        assert_eq!(slot.newer(&mut seen).as_deref(), Some(&3));
        assert_eq!(slot.newer(&mut seen), None);
    }
}
