//! Many seeds, on several threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use thiserror::Error;

use crate::code::is_open_loop;
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

/// Results of many seeds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Swept {
    /// Those that fail, in order.
    pub found: Vec<Found>,
    /// Seeds that miss packets although delivery is promised for all but one unit in ten thousand:
    /// see [`Promise::missing_max`](crate::Promise::missing_max). Open loops, which send no NACKs,
    /// and runs with a liar are not counted.
    pub short: u64,
}

/// Runs the scenarios of all `seeds`.
#[must_use]
pub fn sweep(seeds: impl Iterator<Item = u64> + Send, threads: usize) -> Swept {
    let seeds = Mutex::new(seeds);
    let swept = Mutex::new(Swept::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let next = seeds.lock().unwrap_or_else(|poison| poison.into_inner()).next();
                    let Some(seed) = next else { return };
                    let result = attempt(seed);
                    let mut swept = swept.lock().unwrap_or_else(|poison| poison.into_inner());
                    match result {
                        Ok(is_short) => swept.short += u64::from(is_short),
                        Err(failure) => swept.found.push(Found { seed, failure }),
                    }
                }
            });
        }
    });
    let mut swept = swept.into_inner().unwrap_or_else(|poison| poison.into_inner());
    swept.found.sort_by_key(|found| found.seed);
    swept
}

fn attempt(seed: u64) -> Result<bool, Failure> {
    let run = || {
        let scenario = Scenario::from_seed(seed);
        let source = &scenario.nodes[0];
        let sends_nacks = !is_open_loop(&source.code, source.redundancy);
        let is_counted = sends_nacks && scenario.liars.is_empty();
        crate::run(&scenario).map(|outcome| outcome.missing > 0 && is_counted)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Ok(result?),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
            Err(Failure::Panic(text.unwrap_or_else(|| "of unknown kind".into())))
        }
    }
}
