//! Turns: beds share the machine's processors, and disturb each other's timing.
//!
//! Tests with wide bounds run first, several at a time, because most of them wait; then those that
//! measure times or rates, each alone. A test that waits for its turn occupies a thread of the test
//! program, so `scripts/test` gives the suite many threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Tests with wide bounds at once, for each processor.
const BESIDE_A_PROCESSOR: usize = 2;

static TURNS: Mutex<Turns> =
    Mutex::new(Turns { beside: 0, waiting: 0, has_begun: false, is_alone: false });
static CHANGED: Condvar = Condvar::new();

struct Turns {
    /// Tests with wide bounds that run.
    beside: usize,
    /// Tests with wide bounds that wait.
    waiting: usize,
    /// Whether one of them has begun: the first test to be alone may come before all of them.
    has_begun: bool,
    /// Whether a test runs alone.
    is_alone: bool,
}

/// The turn of a test that measures times or rates: no other test has a bed meanwhile.
#[derive(Debug)]
pub struct Alone(Instant);

/// The turn of a test with wide bounds: others like it have beds, too.
#[derive(Debug)]
pub struct Beside(Instant);

/// Waits until no other test has or wants a shared turn.
pub fn alone() -> Alone {
    let mut turns = turns();
    while turns.is_alone || turns.beside + turns.waiting > 0 {
        turns = CHANGED.wait(turns).unwrap_or_else(PoisonError::into_inner);
    }
    turns.is_alone = true;
    if turns.has_begun {
        tell_that_it_is_quiet();
    }
    Alone(Instant::now())
}

/// Waits until fewer than the maximum hold a shared turn.
pub fn beside() -> Beside {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut turns = turns();
    turns.waiting += 1;
    while turns.is_alone || turns.beside >= BESIDE_A_PROCESSOR * processors {
        turns = CHANGED.wait(turns).unwrap_or_else(PoisonError::into_inner);
    }
    turns.waiting -= 1;
    turns.beside += 1;
    turns.has_begun = true;
    Beside(Instant::now())
}

/// Tells `scripts/test` that no more than one test runs from now on: most processors are idle then.
fn tell_that_it_is_quiet() {
    if let Some(folder) = std::env::var_os("RECODED_TESTS") {
        // Without this file, the lab starts when the suite has ended.
        let _ = std::fs::write(std::path::Path::new(&folder).join("quiet"), "");
    }
}

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Alone {
    fn drop(&mut self) {
        println!("turn: {:.1} s, alone", self.0.elapsed().as_secs_f64());
        turns().is_alone = false;
        CHANGED.notify_all();
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        println!("turn: {:.1} s, beside others", self.0.elapsed().as_secs_f64());
        turns().beside -= 1;
        CHANGED.notify_all();
    }
}
