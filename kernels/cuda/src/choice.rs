//! Which technique does the products of a bundle, unless one was asked for. Pure.
//!
//! The universal one is `permute`, in tiles of 16 rows or of 4. Small tiles take more instructions
//! for a product and make four times as many blocks, which is faster where there are too few blocks
//! to go round: a bundle of 2 MB is 32 blocks of large tiles, and large cards have 132
//! multiprocessors.

use recoded_code::engine::Job;

use crate::job::{Geometry, TECHNIQUES, Technique};

/// The technique with which the multiprocessor that has most to do has least of it.
pub fn technique<'a>(
    jobs: impl IntoIterator<Item = &'a Job> + Clone,
    multiprocessors: u32,
) -> &'static Technique {
    let known = |name: &str| TECHNIQUES.iter().find(|technique| technique.name == name);
    let candidates = ["permute", "permute-narrow"].into_iter().filter_map(known);
    let rounds = |technique: &&Technique| {
        let Some(geometry) = Geometry::of(technique.kernel) else { return u64::MAX };
        let products = jobs.clone().into_iter().filter(|job| job.operation.has_sources());
        let work = products.map(|job| {
            let blocks = u64::from(geometry.blocks(job.rows as u32, job.row_bytes as u32));
            (blocks, blocks * job.columns as u64)
        });
        let (blocks, columns) = work.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        // Rounds of blocks, each of the columns of an average block.
        let rounds = blocks.div_ceil(u64::from(multiprocessors.max(1)));
        let instructions = technique.instructions().unwrap_or(u32::MAX);
        let block = u64::from(geometry.unit_rows) * u64::from(instructions);
        rounds * block * columns / blocks.max(1)
    };
    candidates.min_by_key(rounds).unwrap_or(&TECHNIQUES[0])
}

#[cfg(test)]
mod tests {
    use recoded_code::engine::Operation;

    use super::*;

    fn chosen(jobs: &[(usize, usize, usize)], multiprocessors: u32) -> &'static str {
        let job = |&(rows, columns, bytes)| Job::new(Operation::Multiply, rows, columns, bytes);
        let jobs: Vec<Job> = jobs.iter().map(job).collect();
        technique(&jobs, multiprocessors).name
    }

    /// A bundle of 1 MB in and 1 MB out once took 32 of 132 multiprocessors.
    #[test]
    fn small_tiles_are_chosen_where_large_ones_leave_multiprocessors_idle() {
        let generation = (128, 128, 8192);
        assert_eq!(chosen(&[generation], 132), "permute-narrow");
        assert_eq!(chosen(&[generation], 16), "permute");
        assert_eq!(chosen(&[generation; 8], 132), "permute");
        // 132 blocks of large tiles are one round of all multiprocessors; 136 would be two.
        assert_eq!(chosen(&[(16, 16, 2048); 132], 132), "permute");
        assert_eq!(chosen(&[(16, 16, 2048); 136], 132), "permute-narrow");
    }

    #[test]
    fn few_rows_waste_no_large_tile() {
        assert_eq!(chosen(&[(4, 64, 1 << 20)], 132), "permute-narrow");
        assert_eq!(chosen(&[], 132), "permute");
    }
}
