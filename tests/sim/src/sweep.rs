//! Many seeds, on several threads.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::scenario::Scenario;
use crate::violation::Violation;

/// Why a run failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// An invariant did not hold.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The pipeline panicked.
    #[error("panic: {0}")]
    Panic(String),
}

/// A seed that fails.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("seed {seed}: {failure}\n  to repeat it: cargo run -p recoded-sim -- --seed {seed}")]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// Why.
    pub failure: Failure,
}

/// Runs the scenarios of all `seeds`; returns those that fail, in order.
#[must_use]
pub fn sweep(seeds: Range<u64>, threads: usize) -> Vec<Found> {
    // Relaxed: the counter only hands out numbers; joining the threads orders everything else.
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(failure) = attempt(seed) {
                        let mut found = found.lock().unwrap_or_else(|poison| poison.into_inner());
                        found.push(Found { seed, failure });
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(|poison| poison.into_inner());
    found.sort_by_key(|found| found.seed);
    found
}

fn attempt(seed: u64) -> Result<(), Failure> {
    let run = || crate::run(&Scenario::from_seed(seed));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Ok(result.map(|_| ())?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
            Err(Failure::Panic(text.unwrap_or_else(|| "of unknown kind".into())))
        }
    }
}
