//! Threads that work on stripes, each on one at a time, and the order of their results.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::Error;
use crate::layout::Layout;

/// Bytes of stripes that all threads hold together: half of the program's memory limit.
const STRIPES_BYTES_MAX: usize = 128 << 20;

/// More threads wait for the disk.
pub(crate) const THREADS_MAX: usize = 16;

/// Threads for a layout, where each holds `buffers` stripes: one per core, within the bounds.
pub(crate) fn threads(wanted: usize, layout: &Layout, buffers: usize) -> usize {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let wanted = if wanted == 0 { cores() } else { wanted };
    let stripe_bytes = layout.shards() * layout.unit_bytes() * buffers;
    wanted.min(THREADS_MAX).min(STRIPES_BYTES_MAX / stripe_bytes).max(1)
}

/// Hands out stripes to threads, and has them take turns in the order of stripes.
pub(crate) struct Turns {
    stripes: u64,
    claimed: AtomicU64,
    /// The stripe whose turn it is.
    current: Mutex<u64>,
    advanced: Condvar,
    /// Whether a thread has failed. It is read under no lock of its own: a late reader does one
    /// stripe more.
    is_stopped: AtomicBool,
}

impl Turns {
    /// The stripes below `stripes`.
    pub fn new(stripes: u64) -> Self {
        Self {
            stripes,
            claimed: AtomicU64::new(0),
            current: Mutex::new(0),
            advanced: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// The next stripe to work on; `None` at the end or after an error.
    pub fn claim(&self) -> Option<u64> {
        let stripe = self.claimed.fetch_add(1, Ordering::Relaxed);
        (stripe < self.stripes && !self.is_stopped()).then_some(stripe)
    }

    /// Whether a thread has failed.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Does `work` when all earlier stripes have done theirs. Nothing is done after an error.
    pub fn in_turn(
        &self,
        stripe: u64,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut current = lock(&self.current);
        while *current != stripe && !self.is_stopped() {
            current = self.advanced.wait(current).unwrap_or_else(PoisonError::into_inner);
        }
        if self.is_stopped() {
            return Ok(());
        }
        work()?;
        *current += 1;
        self.advanced.notify_all();
        Ok(())
    }

    /// Runs `work` on this many threads; on the caller's if it is one.
    ///
    /// # Errors
    /// The error of the thread that failed first.
    pub fn run(
        &self,
        threads: usize,
        work: impl Fn() -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        if threads == 1 {
            return work();
        }
        let first = Mutex::new(Ok(()));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let stop = Stop(self);
                    match work() {
                        Ok(()) => std::mem::forget(stop),
                        Err(error) => {
                            let mut first = lock(&first);
                            if first.is_ok() {
                                *first = Err(error);
                            }
                        }
                    }
                });
            }
        });
        first.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the other threads when dropped: after an error, or in a panic.
struct Stop<'a>(&'a Turns);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        // Under the lock, so that no thread misses it between its check and its wait.
        let current = lock(&self.0.current);
        self.0.is_stopped.store(true, Ordering::Relaxed);
        self.0.advanced.notify_all();
        drop(current);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_the_order_of_stripes() {
        let turns = Turns::new(200);
        let order = Mutex::new(Vec::new());
        let done = turns.run(4, || {
            while let Some(stripe) = turns.claim() {
                turns.in_turn(stripe, || {
                    lock(&order).push(stripe);
                    Ok(())
                })?;
            }
            Ok(())
        });
        assert!(done.is_ok());
        assert!(lock(&order).iter().copied().eq(0..200));
    }

    #[test]
    fn first_error_ends_all_threads() {
        let turns = Turns::new(1000);
        let done = turns.run(4, || {
            while let Some(stripe) = turns.claim() {
                turns.in_turn(stripe, || if stripe == 17 { Err(Error::NoSet) } else { Ok(()) })?;
            }
            Ok(())
        });
        assert!(matches!(done, Err(Error::NoSet)));
        assert!(turns.claim().is_none());
    }

    #[test]
    fn threads_are_bounded_by_memory() {
        let wide = Layout::new(200, 56, 256 << 10).expect("it is in range");
        assert_eq!(threads(16, &wide, 1), 2);
        let narrow = Layout::new(10, 4, 256 << 10).expect("it is in range");
        assert_eq!(threads(16, &narrow, 1), 16);
        assert_eq!(threads(16, &wide, 4), 1);
    }
}
