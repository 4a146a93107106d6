//! Panics that restart the worker, and work whose panic must end the process.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread restarts its worker, for a panic hook that otherwise ends the
/// process.
pub fn is_panic_caught() -> bool {
    IS_CAUGHT.get()
}

/// Whether `work` finished without a panic.
pub(crate) fn ends_well(work: impl FnOnce()) -> bool {
    IS_CAUGHT.set(true);
    // Only `Worker::renew` looks at the state left behind.
    let ended = catch_unwind(AssertUnwindSafe(work));
    let is_caught = IS_CAUGHT.replace(false);
    match ended {
        Ok(()) => true,
        Err(_) if is_caught => false,
        Err(panic) => resume_unwind(panic),
    }
}

/// Runs work after whose panic nothing can be restarted.
pub(crate) fn whole<R>(work: impl FnOnce() -> R) -> R {
    let is_caught = IS_CAUGHT.replace(false);
    let result = work();
    IS_CAUGHT.set(is_caught);
    result
}
