//! Monte Carlo work over all cores; results do not depend on the number of cores.
//!
//! Work is cut into tasks, each with a generator seeded by figure and task number. Results are
//! returned in the order of tasks, so sums are added up in a fixed order.

use indicatif::ParallelProgressIterator;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::progress;

/// Amount of work, and its seed.
#[derive(Copy, Clone)]
pub struct Work {
    /// Seed of every random stream, combined with the stream's purpose.
    pub seed: u64,
    /// Share of the runs of a published figure.
    pub share: f64,
}

impl Work {
    /// Number of runs where a published figure takes `full`: at least a few.
    pub fn runs(&self, full: usize) -> usize {
        ((full as f64 * self.share).round() as usize).max(RUNS_MIN)
    }

    /// Allowed deviation of a number, in standard errors. In a published figure few numbers have
    /// errors above one point. With few runs all do, and one in several hundred deviates by three
    /// errors by chance.
    pub fn errors_allowed(&self) -> f64 {
        if self.share < 1.0 { 4.5 } else { 3.0 }
    }

    /// Runs `tasks` tasks, each with its number and a generator of its own, and shows the progress.
    /// `name` separates the random streams of users of the same seed.
    pub fn map<T: Send>(
        &self,
        name: &'static str,
        tasks: usize,
        task: impl Fn(usize, &mut ChaCha8Rng) -> T + Sync,
    ) -> Vec<T> {
        let bar = progress::bar(name, tasks);
        let done = (0..tasks).into_par_iter().progress_with(bar.clone());
        let results = done.map(|number| task(number, &mut self.random(name, number))).collect();
        bar.finish_and_clear();
        results
    }

    /// The generator of one task.
    pub fn random(&self, name: &str, task: usize) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed ^ hash(name));
        random.set_stream(task as u64);
        random
    }
}

/// FNV-1a: names of a few letters become different numbers.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// A number estimated from samples.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Estimate {
    /// The estimated number.
    pub value: f64,
    /// Its standard error.
    pub standard_error: f64,
}

/// Mean of many numbers, and its standard error.
#[derive(Copy, Clone, Default)]
pub struct Mean {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Mean {
    /// Takes in a number.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    /// Takes in all that `other` has.
    pub fn merge(&mut self, other: &Mean) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Estimate of the mean.
    pub fn estimate(&self) -> Estimate {
        let mean = self.sum / self.count;
        let variance = (self.squares / self.count - mean * mean).max(0.0);
        let standard_error = (variance / (self.count - 1.0).max(1.0)).sqrt();
        Estimate { value: mean, standard_error }
    }

    /// The same for values from 0 to 1. The error is computed with two more runs, one at either
    /// end: a hundred successes out of a hundred do not prove that there are no failures.
    pub fn share(&self) -> Estimate {
        let mut more = *self;
        more.add(0.0);
        more.add(1.0);
        Estimate { value: self.sum / self.count, ..more.estimate() }
    }
}

impl FromIterator<f64> for Mean {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Mean {
        let mut mean = Mean::default();
        values.into_iter().for_each(|value| mean.add(value));
        mean
    }
}

/// Adds up the results of tasks, place by place.
pub fn merged(results: &[Vec<Mean>]) -> Vec<Mean> {
    let mut sums = vec![Mean::default(); results.first().map_or(0, Vec::len)];
    for result in results {
        sums.iter_mut().zip(result).for_each(|(sum, mean)| sum.merge(mean));
    }
    sums
}

/// Below this, a standard error is meaningless.
const RUNS_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::Rng;

    use super::*;

    #[test]
    fn estimate_of_known_numbers() {
        let mean: Mean = [1.0, 2.0, 3.0, 4.0].into_iter().collect();
        let Estimate { value, standard_error } = mean.estimate();
        assert!((value - 2.5).abs() < 1e-12);
        assert!((standard_error - (1.25_f64 / 3.0).sqrt()).abs() < 1e-12);
        let sure: Mean = [1.0; 100].into_iter().collect();
        assert_eq!(sure.estimate(), Estimate { value: 1.0, standard_error: 0.0 });
        assert!((0.005..0.02).contains(&sure.share().standard_error));
    }

    #[test]
    fn tasks_have_numbers_of_their_own_that_seed_and_name_decide() {
        let draw = |seed: u64, name: &'static str| {
            let work = Work { seed, share: 1.0 };
            work.map(name, 4, |_, random| random.next_u64())
        };
        let first = draw(1, "a");
        assert_eq!(first, draw(1, "a"));
        let mut all = [first, draw(2, "a"), draw(1, "b")].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 12);
    }
}
