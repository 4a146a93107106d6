//! An engine with the faults of a device, for tests of code that uses engines.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::{Bundle, Completed, Engine, Error, Refused, Segment};

/// Injected faults, each with its probability from 0 to 1.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Faults {
    /// A submission is refused; the next one may succeed.
    pub refuse: f64,
    /// A bundle returns as failed.
    pub fail: f64,
    /// At a submission or completion the device is permanently lost, with everything in flight.
    pub lose: f64,
    /// A finished bundle is held back for up to [`Faults::stall_polls`] polls, so that others
    /// overtake it.
    pub stall: f64,
    /// The most polls of a stall.
    pub stall_polls: u32,
    /// A finished bundle never returns.
    pub hang: f64,
    /// A bundle returns as done, but one byte of each destination is wrong.
    pub lie: f64,
}

/// Wraps an engine and injects faults, the same ones for the same seed and the same calls.
pub struct Chaos<E> {
    inner: E,
    faults: Faults,
    random: ChaCha8Rng,
    is_lost: bool,
    /// Finished bundles that are held back, with the remaining polls.
    stalled: Vec<(u32, Completed)>,
    /// Finished bundles that never return. They are kept, as a device keeps its memory.
    hung: Vec<Bundle>,
}

impl<E: Engine> Chaos<E> {
    /// `inner` with `faults`, drawn from `seed`.
    #[must_use]
    pub fn new(inner: E, faults: Faults, seed: u64) -> Self {
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self { inner, faults, random, is_lost: false, stalled: Vec::new(), hung: Vec::new() }
    }

    fn happens(&mut self, probability: f64) -> bool {
        // A double holds 53 bits.
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        uniform < probability
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u64::from(self.random.next_u32()) * limit as u64) >> 32) as usize
    }

    fn lie(&mut self, bundle: &mut Bundle) {
        for index in 0..bundle.jobs().len() {
            let placed = bundle.jobs()[index];
            for row in 0..placed.job.rows {
                let column = self.below(placed.job.row_bytes);
                let at = placed.destinations + row * placed.job.stride() + column;
                bundle.output_mut()[at] ^= 1 + self.below(255) as u8;
            }
        }
    }

    /// Decides the fate of a finished bundle; `None` if it does not return now.
    fn spoil(&mut self, mut completed: Completed) -> Option<Completed> {
        self.is_lost |= self.happens(self.faults.lose);
        if self.is_lost {
            completed.result = Err(lost("poll"));
            return Some(completed);
        }
        if self.happens(self.faults.hang) {
            self.hung.push(completed.bundle);
            return None;
        }
        if self.happens(self.faults.fail) {
            completed.result = Err(failed("launch"));
        }
        if completed.result.is_ok() && self.happens(self.faults.lie) {
            self.lie(&mut completed.bundle);
        }
        if self.happens(self.faults.stall) {
            let polls = self.below(self.faults.stall_polls as usize + 1) as u32;
            self.stalled.push((polls, completed));
            return None;
        }
        Some(completed)
    }
}

impl<E: Engine> Engine for Chaos<E> {
    fn name(&self) -> &str {
        "chaos"
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn expect(&mut self, matrix: &[u8], columns: usize) {
        self.inner.expect(matrix, columns);
    }

    fn keep(&mut self, segment: &Arc<Segment>) -> Result<(), Error> {
        self.inner.keep(segment)
    }

    fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
        self.is_lost |= self.happens(self.faults.lose);
        if self.is_lost {
            return Err(Refused { error: lost("submit"), bundle: Box::new(bundle) });
        }
        if self.happens(self.faults.refuse) {
            return Err(Refused { error: failed("submit"), bundle: Box::new(bundle) });
        }
        self.inner.submit(bundle)
    }

    fn poll(&mut self) -> Option<Completed> {
        if let Some(index) = self.stalled.iter().position(|(polls, _)| *polls == 0 || self.is_lost)
        {
            let mut completed = self.stalled.swap_remove(index).1;
            if self.is_lost {
                completed.result = Err(lost("poll"));
            }
            return Some(completed);
        }
        self.stalled.iter_mut().for_each(|(polls, _)| *polls -= 1);
        let completed = self.inner.poll()?;
        self.spoil(completed)
    }
}

fn failed(call: &'static str) -> Error {
    Error::Failed { call, code: 1, reason: "chaos".into() }
}

fn lost(call: &'static str) -> Error {
    Error::Lost { call, code: 719, reason: "chaos".into() }
}
