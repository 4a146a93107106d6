//! A product by CPU and device at once: correct however it is split, and whatever the device does.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{
    Bundle, Completed, Cpu, CpuEngine, Engine, Faults, Job, Operation, Partition, Refused,
};
use recoded_gf::Kernel;
use recoded_offload::{By, Config, OpenEngine, Shares, SpotCheck, Together};

mod common;

use common::{after_self_test, cpu};

fn together(faults: Faults, seed: u64) -> Together {
    over(after_self_test(faults, seed))
}

fn over(open: OpenEngine) -> Together {
    let cpu = Cpu::new(1, Partition::PartitionedBlock).expect("no thread is needed");
    let config = Config {
        measure: false,
        spot_check: SpotCheck::All,
        watchdog_min: Duration::from_secs(1),
        // An abandoned device stays away for the rest of a test.
        retry_min: Duration::from_secs(3600),
        ..Config::default()
    };
    Together::new(cpu, config, open)
}

/// Multiplies random rows, compares every byte, and checks that the shares add up.
fn multiply(together: &mut Together, random: &mut ChaCha8Rng, bytes: usize) -> Shares {
    let (rows, columns) = (24, 32);
    let mut coefficients = vec![0; rows * columns];
    random.fill_bytes(&mut coefficients);
    let mut payload = vec![0; columns * bytes];
    random.fill_bytes(&mut payload);
    let sources: Vec<&[u8]> = payload.chunks_exact(bytes.max(1)).take(columns).collect();
    let sources = if bytes == 0 { vec![&[][..]; columns] } else { sources };
    let product = |made: &mut Vec<Vec<u8>>, by: &mut dyn FnMut(&mut [&mut [u8]])| {
        let mut views: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        by(&mut views);
    };
    let (mut expected, mut made) = (vec![vec![0; bytes]; rows], vec![vec![0xEE; bytes]; rows]);
    product(&mut expected, &mut |rows| Kernel::best().matmul(&coefficients, &sources, rows));
    let mut shares = Shares::default();
    product(&mut made, &mut |rows| shares = together.multiply(&coefficients, &sources, rows));
    assert!(made == expected, "{shares:?}");
    assert_eq!(shares.device + shares.cores, bytes);
    shares
}

#[test]
fn both_take_part_and_lengths_do_not_matter() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut together = together(Faults::default(), 1);
    for bytes in [0, 1, 127, 1500, 70_001] {
        multiply(&mut together, &mut random, bytes);
    }
    // Each side takes its next part when it is done with one: if Linux runs only one of them for
    // long, the other may come too late.
    let tries: Vec<Shares> =
        (0..20).map(|_| multiply(&mut together, &mut random, 1 << 20)).collect();
    assert!(tries.iter().any(|it| it.device > 0 && it.cores > 0), "{tries:?}");
    assert!(tries.iter().all(|it| it.redone == 0), "{tries:?}");
    assert!(together.has_device());
}

/// Faults of a device, and whether it is kept. Three consecutive failures, refusals or others, may
/// occur, and then it is abandoned.
fn all_faults() -> [(Faults, Option<bool>); 6] {
    [
        (Faults { refuse: 0.3, ..Faults::default() }, None),
        (Faults { fail: 0.3, ..Faults::default() }, None),
        (Faults { stall: 0.5, stall_polls: 5, ..Faults::default() }, Some(true)),
        (Faults { lose: 1.0, ..Faults::default() }, Some(false)),
        (Faults { hang: 1.0, ..Faults::default() }, Some(false)),
        (Faults { lie: 1.0, ..Faults::default() }, Some(false)),
    ]
}

#[test]
fn what_the_device_does_not_do_the_cores_do() {
    let mut random = ChaCha8Rng::seed_from_u64(6);
    for (faults, survives) in all_faults() {
        let mut together = together(faults, 3);
        for _ in 0..3 {
            multiply(&mut together, &mut random, 200_000);
        }
        let expected = survives.unwrap_or(together.has_device());
        assert_eq!(together.has_device(), expected, "{faults:?}");
    }
}

/// A card pins memory that it has not seen before, which takes longer than the work in it.
#[test]
fn device_gets_the_same_memory_again_and_again() {
    struct Watched {
        inner: CpuEngine,
        seen: Arc<Mutex<HashSet<usize>>>,
    }
    impl Engine for Watched {
        fn name(&self) -> &str {
            "watched"
        }
        fn depth(&self) -> usize {
            self.inner.depth()
        }
        fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
            let memory = [bundle.input().as_ptr() as usize, bundle.output().as_ptr() as usize];
            self.seen.lock().expect("no panic").extend(memory);
            self.inner.submit(bundle)
        }
        fn poll(&mut self) -> Option<Completed> {
            self.inner.poll()
        }
    }
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let watched = Arc::clone(&seen);
    let open: OpenEngine =
        Arc::new(move || Ok(Box::new(Watched { inner: cpu()?, seen: Arc::clone(&watched) })));
    let (mut together, mut random) = (over(open), ChaCha8Rng::seed_from_u64(7));
    let mut device = 0;
    for _ in 0..6 {
        device += multiply(&mut together, &mut random, 300_000).device;
    }
    assert!(device > 0);
    // Two arenas of each bundle that it takes at once, and those of the self-test.
    let most = 2 * cpu().expect("a thread").depth() + 2;
    let seen = seen.lock().expect("no panic").len();
    assert!(seen <= most, "{seen} arenas, {most} are enough");
}

/// Bundles of products of random rows.
fn bundles(random: &mut ChaCha8Rng, count: usize) -> Vec<Bundle> {
    let bundle = |_| {
        let job = Job::new(Operation::Multiply, 16, 24, 2000);
        let mut bundle = Bundle::of(job).expect("a valid job");
        (0..job.rows).for_each(|row| random.fill_bytes(bundle.coefficients_mut(0, row)));
        (0..job.columns).for_each(|row| random.fill_bytes(bundle.source_mut(0, row)));
        bundle
    };
    (0..count).map(bundle).collect()
}

/// Runs both, compares every byte, and returns how many the device did.
fn run(together: &mut Together, random: &mut ChaCha8Rng, count: usize) -> usize {
    let bundles = bundles(random, count);
    let cpu = Cpu::new(1, Partition::FullBlock).expect("no thread is needed");
    let mut expected: Vec<Bundle> = bundles.iter().map(|it| it.retain().restore()).collect();
    expected.iter_mut().for_each(|bundle| cpu.run(bundle));
    let done = together.run(bundles);
    assert_eq!(done.len(), count);
    for ((bundle, by), expected) in done.iter().zip(&expected) {
        let is_same = |row| bundle.destination(0, row) == expected.destination(0, row);
        assert!((0..16).all(is_same), "{by:?}");
    }
    done.iter().filter(|(_, by)| *by == By::Device).count()
}

#[test]
fn bundles_come_back_in_their_order_and_both_take_part() {
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let mut together = together(Faults::default(), 4);
    for count in [0, 1, 2, 7] {
        run(&mut together, &mut random, count);
    }
    let tries: Vec<usize> = (0..10).map(|_| run(&mut together, &mut random, 60)).collect();
    assert!(tries.iter().any(|device| (1..60).contains(device)), "{tries:?}");
    assert!(together.has_device());
}

#[test]
fn bundles_that_the_device_does_not_do_the_cores_do() {
    let mut random = ChaCha8Rng::seed_from_u64(9);
    for (faults, survives) in all_faults() {
        let mut together = together(faults, 5);
        for _ in 0..3 {
            run(&mut together, &mut random, 20);
        }
        let expected = survives.unwrap_or(together.has_device());
        assert_eq!(together.has_device(), expected, "{faults:?}");
    }
}
