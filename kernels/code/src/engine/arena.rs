//! Memory of bundles: host bytes at an aligned address, which devices may pin.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Rows, coefficients and arenas start at multiples of this many bytes: a cache line of every GPU,
/// two of a CPU, and a whole number of vectors of both.
pub const ALIGNMENT: usize = 128;

/// A device's record of pinned memory.
pub trait Guard: Send {
    /// The device: two guards with one owner refer to the same pinning.
    fn owner(&self) -> u64;

    /// Unpins the memory. False if the device may still read or write it, so that it must never be
    /// freed.
    fn unpin(&mut self) -> bool;
}

/// Host memory of whole pages: pinning works on pages, and two arenas must not share one.
pub struct Arena {
    guards: Mutex<Vec<Box<dyn Guard>>>,
    memory: Box<[u8]>,
    start: usize,
    bytes: usize,
}

impl Arena {
    /// Zeroed memory; pages are touched when they are first written.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(if bytes < PAGE_BYTES { ALIGNMENT } else { PAGE_BYTES });
        let memory = vec![0; bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES].into_boxed_slice();
        let start = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { guards: Mutex::default(), memory, start, bytes }
    }

    /// All pages that it lies in, not shared with other data: a device pins these.
    #[must_use]
    pub fn pages(&self) -> &[u8] {
        &self.memory[self.start..][..self.bytes.next_multiple_of(PAGE_BYTES)]
    }

    /// The same, for a device that writes to them.
    pub fn pages_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.bytes.next_multiple_of(PAGE_BYTES)]
    }

    /// Keeps `guard` until this memory is freed.
    pub fn attach(&self, guard: Box<dyn Guard>) {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
    }

    /// Whether `owner` has pinned this memory.
    pub fn is_pinned_by(&self, owner: u64) -> bool {
        let guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.iter().any(|guard| guard.owner() == owner)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let guards = self.guards.get_mut().unwrap_or_else(PoisonError::into_inner);
        // All of them, whatever the first one returns.
        let held = guards.iter_mut().map(|guard| guard.unpin()).filter(|is_free| !is_free).count();
        if held > 0 {
            Box::leak(mem::take(&mut self.memory));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Arenas of 3969 to 4095 bytes once filled a page that did not begin at one: they were pinned
    /// together with half of the next one's page.
    #[test]
    fn no_two_arenas_share_a_page() {
        for bytes in [0, 1, 128, 3968, 3969, 4095, 4096, 4097] {
            let arenas: Vec<Arena> = (0..8).map(|_| Arena::new(bytes)).collect();
            let mut pages: Vec<_> =
                arenas.iter().map(|arena| arena.pages().as_ptr_range()).collect();
            pages.sort_by_key(|range| range.start);
            assert!(pages.is_sorted_by(|a, b| a.end <= b.start));
            for arena in &arenas {
                assert!(arena.is_empty() || (arena.as_ptr() as usize).is_multiple_of(PAGE_BYTES));
                assert!(arena.len() >= bytes && arena.len() <= arena.pages().len());
            }
        }
    }
}
