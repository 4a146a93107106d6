//! Chooses the technique for the products of a bundle, unless one is configured. Pure.
//!
//! The universal technique is `permute`, in tiles of 16 rows or of 4: small tiles take more
//! instructions for a product and make four times as many blocks, which is faster if there are too
//! few blocks to fill the card. On cards with the binary matrix product, `bmma` is faster than both
//! from some 48 sources on. Hopper's wide form of it, `wgmma`, is twice as fast as `bmma` from some
//! 24 sources on, if its larger blocks fill the card.

use recoded_code::engine::Job;

use crate::job::{Geometry, TECHNIQUES, Technique};

/// Cost of a technique, in nanoseconds, as measured on an H200 and, for `wgmma`, on an H100 (each
/// 132 multiprocessors at 1.8 to 1.98 GHz; the others are as fast there as on an H200) over
/// products of 16 to 1024 sources and bundles of 256 KB to 64 MB. Other cards are slower or faster
/// by about the same factor in all of them, which is all that matters here.
struct Speed {
    technique: &'static str,
    /// For each bundle: launches, prepared coefficients.
    start: u64,
    /// A source of a block, however few blocks there are.
    alone: u64,
    /// A source of a block on a fully occupied multiprocessor.
    crowded: u64,
    /// The same for the work that a block does once.
    once: u64,
}

const SPEEDS: [Speed; 4] = [
    Speed { technique: "permute", start: 3_500, alone: 415, crowded: 370, once: 900 },
    Speed { technique: "permute-narrow", start: 3_500, alone: 150, crowded: 122, once: 300 },
    Speed { technique: "bmma", start: 6_000, alone: 50, crowded: 25, once: 1_700 },
    Speed { technique: "wgmma", start: 5_000, alone: 70, crowded: 54, once: 1_500 },
];

/// The fastest technique for the products of a bundle, on a card of that compute capability, times
/// ten, and number of multiprocessors.
pub fn technique<'a>(
    jobs: impl IntoIterator<Item = &'a Job> + Clone,
    capability: u32,
    multiprocessors: u32,
) -> &'static Technique {
    let candidates = SPEEDS.iter().filter_map(|speed| {
        let technique = TECHNIQUES.iter().find(|known| known.name == speed.technique)?;
        let (from, to) = technique.capability;
        let geometry = Geometry::of(technique.kernel)?;
        (from..=to).contains(&capability).then_some((speed, geometry, technique))
    });
    let nanoseconds = |(speed, geometry, _): &(&Speed, &Geometry, _)| {
        let products = jobs.clone().into_iter().filter(|job| job.operation.has_sources());
        let (mut longest, mut all) = (0, 0);
        for job in products {
            let blocks = u64::from(geometry.blocks(job.rows as u32, job.row_bytes as u32));
            longest = longest.max(speed.once + speed.alone * job.columns as u64);
            all += blocks * (speed.once + speed.crowded * job.columns as u64);
        }
        speed.start + longest.max(all / u64::from(multiprocessors.max(1)))
    };
    let soonest = candidates.min_by_key(nanoseconds);
    soonest.map_or(&TECHNIQUES[0], |(_, _, technique)| technique)
}

#[cfg(test)]
mod tests {
    use recoded_code::engine::Operation;

    use super::*;

    /// On an H100.
    fn chosen(jobs: &[(usize, usize, usize)]) -> &'static str {
        chosen_on(jobs, 90, 132)
    }

    fn chosen_on(
        jobs: &[(usize, usize, usize)],
        capability: u32,
        multiprocessors: u32,
    ) -> &'static str {
        let job = |&(rows, columns, bytes)| Job::new(Operation::Multiply, rows, columns, bytes);
        let jobs: Vec<Job> = jobs.iter().map(job).collect();
        technique(&jobs, capability, multiprocessors).name
    }

    /// A bundle of 1 MB in and 1 MB out once took 32 of 132 multiprocessors.
    #[test]
    fn small_tiles_are_chosen_where_large_ones_leave_multiprocessors_idle() {
        let generation = (128, 128, 8192);
        assert_eq!(chosen_on(&[generation], 75, 132), "permute-narrow");
        assert_eq!(chosen_on(&[generation], 75, 16), "permute");
        assert_eq!(chosen_on(&[generation; 8], 75, 132), "permute");
    }

    #[test]
    fn few_rows_waste_no_large_tile() {
        assert_eq!(chosen_on(&[(4, 64, 1 << 20)], 75, 132), "permute-narrow");
    }

    /// Each of these was measured to be the fastest of the three by more than a tenth, on an H200.
    #[test]
    fn the_fastest_without_wgmma_is_chosen() {
        let chosen = |jobs: &[(usize, usize, usize)]| chosen_on(jobs, 89, 132);
        let bundle = |n: usize, jobs| vec![(n, n, 1024); jobs];
        for (n, jobs) in [(16, 16), (16, 128), (16, 512), (32, 8)] {
            assert_eq!(chosen(&bundle(n, jobs)), "permute-narrow", "{jobs} of {n}");
        }
        for (n, jobs) in [(64, 4), (64, 32), (64, 128), (128, 2), (128, 16), (128, 64)] {
            assert_eq!(chosen(&bundle(n, jobs)), "bmma", "{jobs} of {n}");
        }
        for (n, jobs) in [(256, 1), (256, 8), (256, 32), (512, 4), (1024, 2), (1024, 8)] {
            assert_eq!(chosen(&bundle(n, jobs)), "bmma", "{jobs} of {n}");
        }
        assert_eq!(chosen(&vec![(16, 16, 4096); 1024]), "permute");
        assert_eq!(chosen(&[]), "permute");
    }

    /// Each of these was measured to be the fastest of the four by more than a tenth.
    #[test]
    fn the_fastest_on_an_h100_is_chosen() {
        let bundle = |n: usize, jobs| vec![(n, n, 1024); jobs];
        for (n, jobs) in [(8, 64), (16, 16), (16, 128)] {
            assert_eq!(chosen(&bundle(n, jobs)), "permute-narrow", "{jobs} of {n}");
        }
        for (n, jobs) in [(256, 1), (512, 1), (1024, 1)] {
            assert_eq!(chosen(&bundle(n, jobs)), "bmma", "{jobs} of {n}");
        }
        for (n, jobs) in [(32, 64), (48, 64), (64, 128), (96, 32), (128, 16), (128, 64), (256, 32)]
        {
            assert_eq!(chosen(&bundle(n, jobs)), "wgmma", "{jobs} of {n}");
        }
        assert_eq!(chosen(&bundle(1024, 8)), "wgmma");
        assert_eq!(chosen(&vec![(16, 16, 4096); 1024]), "permute");
    }

    /// Later cards only emulate the instruction of the one, and lack that of the other.
    #[test]
    fn binary_products_are_for_cards_that_have_them() {
        let generation = [(1024, 1024, 1024); 8];
        assert_eq!(chosen_on(&generation, 90, 132), "wgmma");
        assert_eq!(chosen_on(&generation, 89, 132), "bmma");
        assert_eq!(chosen_on(&generation, 75, 132), "permute");
        assert_eq!(chosen_on(&generation, 100, 132), "permute");
    }
}
