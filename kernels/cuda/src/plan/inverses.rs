//! Inversions by one block each, and those shared by several.
//!
//! A matrix in one block takes equally long whether it is the only one on the card or every
//! multiprocessor has one. So a few large ones are shared: the blocks synchronise at the ends of
//! launches, two for each panel of 32 columns (`device/invert_parts.cu`).

use std::cell::Cell;
use std::ops::Range;

use recoded_code::engine::Error;

use super::{ALIGNMENT, Launch, LaunchPlan, PlacedJob};
use crate::job::Job;

impl LaunchPlan {
    /// Adds the launches that invert: all small matrices in one, a block each; large ones by
    /// several blocks each if there are too few.
    pub(super) fn stage_inverses(
        &mut self,
        works: &[PlacedJob],
        multiprocessors: u32,
    ) -> Result<(), Error> {
        let is_large = |work: &&PlacedJob| work.job.columns >= SHARED_SIZE_MIN && work.inverts();
        let parts = works.iter().filter(is_large).map(|work| SHARES / work.job.columns as u64);
        let are_few = parts.sum::<u64>() <= 16 * u64::from(multiprocessors);
        let is_shared = |work: &PlacedJob| are_few && is_large(&work);
        let alone = |work: &PlacedJob| if is_shared(work) { None } else { work.invert() };
        self.stage("invert", works, alone)?;
        let largest = works.iter().filter(|work| is_shared(work)).map(|work| work.job.columns);
        let Some(largest) = largest.max() else { return Ok(()) };
        let first = self.bytes;
        for _ in works.iter().filter(|work| is_shared(work)) {
            self.scratch(Job::INVERSE_STATE_BYTES);
        }
        let each = Job::INVERSE_STATE_BYTES.next_multiple_of(ALIGNMENT);
        let state = Cell::new(first);
        let shared = |work: &PlacedJob| {
            let job = work.invert().filter(|_| is_shared(work))?;
            Some(Job { sources: state.replace(state.get() + each), ..job })
        };
        let mut launches = Vec::with_capacity(INVERSE_KERNELS.len());
        for kernel in INVERSE_KERNELS {
            state.set(first);
            self.stage(kernel, works, shared)?;
            launches.extend(self.launches.pop());
        }
        let [begin, panel, update, end] = &launches[..] else { return Ok(()) };
        self.launches.push(begin.clone());
        for _ in 0..largest.div_ceil(Job::INVERSE_PANEL as usize) {
            self.launches.extend([panel.clone(), update.clone()]);
        }
        self.launches.push(end.clone());
        Ok(())
    }

    /// The stages in reports: name, and launches. Those of one inversion depend on each other.
    pub fn stages(&self) -> Vec<(&'static str, Range<usize>)> {
        let mut stages: Vec<(&'static str, Range<usize>)> = Vec::new();
        for (index, launch) in self.launches.iter().enumerate() {
            match stages.last_mut() {
                Some((name, launches)) if *name == SHARED_INVERSION && is_inside(launch) => {
                    launches.end = index + 1;
                }
                _ => stages.push((launch.kernel, index..index + 1)),
            }
        }
        stages
    }
}

/// Kernels that invert a matrix by several blocks, in the order of the first launch of each.
const INVERSE_KERNELS: [&str; 4] =
    [SHARED_INVERSION, "invert_panel", "invert_update", "invert_end"];
const SHARED_INVERSION: &str = "invert_begin";

fn is_inside(launch: &Launch) -> bool {
    INVERSE_KERNELS[1..].contains(&launch.kernel)
}

/// Matrices of fewer columns are inverted by a block each: ten launches and more take as long.
/// Measured on an H200: of 128 columns 0.17 ms either way, of 256 0.49 ms instead of 0.74, of 1024
/// 5.9 ms instead of 33.
const SHARED_SIZE_MIN: usize = 256;

/// Matrices are shared if they are few by this measure, in the columns of each, for 16
/// multiprocessors. There, that is 28 of 256 columns, 57 of 512 and 117 of 1024: with twice as many
/// of either size, a block each is faster.
const SHARES: u64 = 16 * 1200;

#[cfg(test)]
mod tests {
    use recoded_code::engine::{self, Bundle};

    use super::*;
    use crate::job::TECHNIQUES;

    fn inverses(sizes: &[usize], multiprocessors: u32) -> LaunchPlan {
        let jobs: Vec<_> = sizes.iter().map(|size| engine::Job::invert(*size)).collect();
        let bytes = |of: fn(&engine::Job) -> usize| jobs.iter().map(of).sum::<usize>();
        let input = bytes(engine::Job::input_bytes);
        let mut bundle = Bundle::new(input, bytes(engine::Job::output_bytes), jobs.len());
        jobs.iter().for_each(|job| assert!(bundle.push(*job, 0).is_ok()));
        let mut plan = LaunchPlan::default();
        let made = plan.make(&bundle, multiprocessors, |_, _| TECHNIQUES[0]);
        made.expect("a plan");
        plan
    }

    /// A matrix of 1,024 columns once occupied only one of 132 multiprocessors.
    #[test]
    fn few_large_matrices_are_shared_by_several_blocks() {
        let plan = inverses(&[1024, 16, 300, 16], 132);
        let kernels: Vec<_> = plan.launches.iter().map(|launch| launch.kernel).collect();
        let mut expected = vec!["invert", "invert_begin"];
        expected.extend(["invert_panel", "invert_update"].repeat(32));
        expected.push("invert_end");
        assert_eq!(kernels, expected);
        let blocks = |kernel| {
            plan.launches.iter().find(|launch| launch.kernel == kernel).map(|launch| launch.blocks)
        };
        assert_eq!(blocks("invert"), Some(2));
        assert_eq!(blocks("invert_panel"), Some(2));
        assert_eq!(blocks("invert_update"), Some(32 + 10));
        // The same jobs in all launches of a kernel, each matrix with a state of its own.
        let jobs = |kernel| plan.launches.iter().filter(move |l| l.kernel == kernel);
        assert!(
            jobs("invert_update").all(|l| l.jobs == jobs("invert_update").next().expect("32").jobs)
        );
        let states = |kernel| -> Vec<u64> {
            let launch = jobs(kernel).next().expect("there is one");
            plan.table[launch.jobs.clone()].iter().map(|job| job.sources).collect()
        };
        let expected = states("invert_begin");
        assert!(expected[1] >= expected[0] + Job::INVERSE_STATE_BYTES);
        assert!(expected[1] + Job::INVERSE_STATE_BYTES <= plan.bytes);
        assert!(INVERSE_KERNELS.iter().all(|kernel| states(kernel) == expected));
        assert_eq!(plan.stages(), [("invert", 0..1), ("invert_begin", 1..67)]);
        assert!(plan.table.len() * size_of::<Job>() <= plan.input as usize);
    }

    #[test]
    fn matrices_that_are_many_or_small_take_a_block_each() {
        for (sizes, multiprocessors) in [(vec![300; 5], 17), (vec![255; 2], 132)] {
            let plan = inverses(&sizes, multiprocessors);
            assert_eq!(plan.launches.len(), 1);
            assert_eq!(plan.launches[0].blocks as usize, sizes.len());
        }
        assert_eq!(inverses(&[300; 4], 17).launches.len(), 2 + 2 * 10);
    }
}
