//! Memory of batches: host bytes at an aligned address, which devices may pin.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Rows, coefficients and arenas start at multiples of this many bytes: a cache line of every GPU,
/// two of a CPU, and a whole number of vectors of both.
pub const ALIGNMENT: usize = 128;

/// What a device keeps with memory that it has pinned; dropping it unpins.
pub type Guard = Box<dyn Any + Send>;

/// Host memory that begins at a page, or at [`ALIGNMENT`] for less than a page.
pub struct Arena {
    /// Dropped before the memory, so that nothing stays pinned that is no longer there.
    guards: Mutex<Vec<Guard>>,
    memory: Box<[u8]>,
    start: usize,
    bytes: usize,
}

impl Arena {
    /// Zeroed memory; pages are touched when they are first written.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let alignment = if bytes < PAGE_BYTES { ALIGNMENT } else { PAGE_BYTES };
        // Whole pages, as pinning works on pages and two arenas must not share one.
        let bytes = bytes.next_multiple_of(alignment);
        let memory = vec![0; bytes + alignment].into_boxed_slice();
        let start = memory.as_ptr().align_offset(alignment).min(alignment);
        Self { guards: Mutex::default(), memory, start, bytes }
    }

    /// Keeps `guard` until this memory is freed or [`Arena::unpin`] is called.
    pub fn attach(&self, guard: Guard) {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
    }

    /// Whether a guard satisfies `is_wanted`: whether a certain device has pinned this memory.
    pub fn is_pinned(&self, is_wanted: impl Fn(&dyn Any) -> bool) -> bool {
        let guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.iter().any(|guard| is_wanted(guard.as_ref()))
    }

    /// Drops all guards.
    pub fn unpin(&self) {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Deref for Arena {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.bytes]
    }
}

impl DerefMut for Arena {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.bytes]
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Arena").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

const PAGE_BYTES: usize = 4096;
