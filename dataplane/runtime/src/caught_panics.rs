//! Panics that end where a worker is made anew, and work whose panic does not.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread ends where a worker is made anew: for a hook that would end the
/// process otherwise.
pub fn is_panic_caught() -> bool {
    IS_CAUGHT.get()
}

/// Whether `work` went to its end.
pub(crate) fn ends_well(work: impl FnOnce()) -> bool {
    IS_CAUGHT.set(true);
    // What it leaves is looked at by `Worker::renew` alone.
    let ended = catch_unwind(AssertUnwindSafe(work));
    let is_caught = IS_CAUGHT.replace(false);
    match ended {
        Ok(()) => true,
        Err(_) if is_caught => false,
        Err(panic) => resume_unwind(panic),
    }
}

/// Work whose panic is none of which anything can be made anew.
pub(crate) fn whole<R>(work: impl FnOnce() -> R) -> R {
    let is_caught = IS_CAUGHT.replace(false);
    let result = work();
    IS_CAUGHT.set(is_caught);
    result
}
