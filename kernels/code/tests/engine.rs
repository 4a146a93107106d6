//! Engines against products, inverses and draws done byte by byte.
//!
//! `RECODED_SEED` repeats a run; the seed is printed.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{
    Bundle, Chaos, Completed, Cpu, CpuEngine, Engine, Error, Faults, Job, Operation, Partition,
    Placed, RANK_BYTES, Rejected, Segment, check, draw,
};
use recoded_code::rlnc::{Density, Generator, Seeded};
use recoded_gf::{FieldOrder, Kernel, mul};

#[test]
fn jobs_of_all_kinds_every_partition_match_bytewise() {
    let mut random = random();
    for _ in 0..40 {
        let mut bundle = random_bundle(&mut random);
        let expected: Vec<_> = (0..bundle.jobs().len()).map(|job| expected(&bundle, job)).collect();
        for partition in [Partition::FullBlock, Partition::PartitionedBlock] {
            for threads in [1, 2, 3] {
                clobber(&mut bundle);
                Cpu::new(threads, partition).expect("threads").run(&mut bundle);
                assert_eq!(outcomes(&bundle), expected, "{threads} threads, {partition:?}");
            }
        }
    }
}

#[test]
fn large_product_divided_matches_kernel() {
    let mut random = random();
    // Odd numbers, and large enough that every thread gets a share.
    let job = Job::new(Operation::Multiply, 37, 61, 4099);
    let mut bundle = Bundle::of(job).expect("valid");
    fill(&mut bundle, 0, &mut random);
    let expected = expected(&bundle, 0);
    for partition in [Partition::FullBlock, Partition::PartitionedBlock] {
        clobber(&mut bundle);
        Cpu::new(3, partition).expect("threads").run(&mut bundle);
        assert_eq!(outcome(&bundle, 0), expected, "{partition:?}");
    }
}

#[test]
fn bundle_over_a_segment_matches_one_with_its_own_sources() {
    let mut random = random();
    let mut segment = Segment::new(33, 500).expect("of a possible size");
    (0..33).for_each(|row| random.fill_bytes(segment.row_mut(row)));
    let segment = Arc::new(segment);
    let drawn = Operation::Combine { seed: 7, field: FieldOrder::Sixteen };
    let jobs = [Operation::Multiply, drawn, Operation::Multiply]
        .map(|operation| Job::new(operation, 20, 33, 500));
    let mut over = Bundle::over(Arc::clone(&segment), 60, 3);
    let mut own = Bundle::new(1 << 20, 1 << 20, 3);
    for (number, job) in jobs.into_iter().enumerate() {
        over.push(job, 0).expect("room");
        own.push(job, 0).expect("room");
        (0..33).for_each(|row| own.source_mut(number, row).copy_from_slice(segment.row(row)));
        for row in 0..if job.operation.has_coefficients() { 20 } else { 0 } {
            random.fill_bytes(over.coefficients_mut(number, row));
            own.coefficients_mut(number, row).copy_from_slice(over.coefficients(number, row));
        }
    }
    assert!(over.input_bytes() < own.input_bytes());
    let mut engine = CpuEngine::new(2, Partition::FullBlock).expect("threads");
    assert_eq!(engine.keep(&segment), Ok(()));
    engine.submit(over).expect("is idle");
    engine.submit(own).expect("has room");
    let mut done = Vec::new();
    while done.len() < 2 {
        done.extend(engine.poll());
    }
    let [over, own] = [&done[0].bundle, &done[1].bundle];
    assert_eq!(outcomes(over), outcomes(own));
    assert!(check::agrees(over) && (0..20).all(|choice| check::spot_check(over, choice)));
    assert_eq!(outcomes(&over.retain().restore()).len(), 3);
}

#[test]
fn bundle_over_a_segment_takes_its_shape_only() {
    let segment = Arc::new(Segment::new(8, 100).expect("of a possible size"));
    assert!(Segment::new(1025, 1).is_none() && Segment::new(1, 0).is_none());
    let mut bundle = Bundle::over(segment, 4, 2);
    for (columns, row_bytes) in [(7, 100), (8, 99)] {
        let other = Job::new(Operation::Multiply, 1, columns, row_bytes);
        assert_eq!(bundle.push(other, 0), Err(Rejected::Segment { columns, row_bytes }));
    }
    let job = Job::new(Operation::Multiply, 4, 8, 100);
    assert_eq!(bundle.push(job, 0), Ok(0));
    assert!(matches!(bundle.push(job, 0), Err(Rejected::NoRoom { .. })));
    bundle.pop();
    assert_eq!((bundle.input_bytes(), bundle.push(job, 0)), (0, Ok(0)));
}

#[test]
fn checks_accept_what_is_right_and_find_what_is_wrong() {
    let mut random = random();
    let mut bundle = check::sample(random.next_u64());
    Cpu::new(2, Partition::FullBlock).expect("threads").run(&mut bundle);
    assert!(check::agrees(&bundle));
    let jobs = bundle.jobs().len() as u64;
    assert!((0..200).all(|_| check::spot_check(&bundle, random.next_u64())));
    for job in 0..jobs {
        if bundle.outcome(job as usize).is_err() {
            continue; // one matrix in 255 is singular, and its result is undefined
        }
        let Placed { job: Job { rows, row_bytes, .. }, destinations, .. } =
            bundle.jobs()[job as usize];
        let (row, at) = (random.next_u32() as usize % rows, random.next_u32() as usize % row_bytes);
        let stride = bundle.jobs()[job as usize].job.stride();
        bundle.output_mut()[destinations + row * stride + at] ^= 1;
        assert!(!check::agrees(&bundle));
        // A product hides it with probability 1/256, and in half of the cases of the largest job
        // the byte lies outside the checked part.
        let found = (0..40).filter(|n| !check::spot_check(&bundle, job + jobs * n)).count();
        assert!(found >= 3, "job {job}: {found} of 40");
        bundle.output_mut()[destinations + row * stride + at] ^= 1;
    }
    // Reported as singular, although it is not.
    let solved = bundle.jobs().iter().position(|placed| placed.job.operation == Operation::Solve);
    let solved = solved.expect("a sample of everything");
    if bundle.outcome(solved).is_err() {
        return;
    }
    bundle.output_mut()[solved * RANK_BYTES] = 3;
    assert!(!check::agrees(&bundle) && !check::spot_check(&bundle, solved as u64));
}

/// Large jobs are checked in part: correct results pass, results wrong everywhere fail, and a
/// single wrong byte is found in time.
#[test]
fn large_jobs_are_checked_in_part() {
    let mut random = random();
    let cpu = Cpu::new(2, Partition::FullBlock).expect("threads");
    for (operation, rows, columns, row_bytes) in [
        (Operation::Multiply, 700, 600, 4000),
        (Operation::Multiply, 4, 10, 300_000),
        (Operation::Solve, 600, 600, 3000),
        (Operation::Invert, 600, 600, 600),
        (Operation::Combine { seed: 7, field: FieldOrder::Sixteen }, 800, 512, 1000),
    ] {
        let mut bundle = Bundle::of(Job::new(operation, rows, columns, row_bytes)).expect("valid");
        if operation.has_coefficients() {
            (0..rows).for_each(|row| random.fill_bytes(bundle.coefficients_mut(0, row)));
        }
        if operation.has_sources() {
            bundle.sources_mut(0).into_iter().for_each(|row| random.fill_bytes(row));
        }
        cpu.run(&mut bundle);
        if bundle.outcome(0).is_err() {
            continue; // one matrix in 255
        }
        assert!((0..20).all(|_| check::spot_check(&bundle, random.next_u64())), "{operation:?}");
        let first = bundle.jobs()[0].destinations;
        let at = first + random.next_u32() as usize % row_bytes;
        bundle.output_mut()[at] ^= 1;
        let found = (0..20_000).any(|_| !check::spot_check(&bundle, random.next_u64()));
        assert!(found, "one byte of {operation:?}");
        let stride = bundle.jobs()[0].job.stride();
        for row in 0..rows {
            bundle.output_mut()[first + row * stride..][..row_bytes]
                .iter_mut()
                .for_each(|b| *b ^= 1);
        }
        let found = (0..4).filter(|_| !check::spot_check(&bundle, random.next_u64())).count();
        assert!(found >= 2, "all of {operation:?}: {found} of 4");
    }
}

#[test]
fn singular_matrix_reports_first_dependent_column() {
    for operation in [Operation::Invert, Operation::Solve] {
        let mut bundle = Bundle::of(Job::new(operation, 5, 5, 5)).expect("valid");
        for row in 0..5 {
            let coefficients = bundle.coefficients_mut(0, row);
            coefficients[row] = 1;
            // Column 3 is the sum of columns 0 and 1.
            coefficients[3] = u8::from(row < 2);
        }
        Cpu::new(1, Partition::FullBlock).expect("threads").run(&mut bundle);
        assert_eq!(bundle.outcome(0).expect_err("singular").column, 3);
        assert!(bundle.destination(0, 0).is_err());
    }
}

#[test]
fn drawn_row_is_the_vector_of_its_seed() {
    for field in FieldOrder::ALL {
        let (mut drawn, mut vector) = ([0; 100], [0; 100]);
        draw(u32::MAX, 3, field, &mut drawn);
        Seeded::new(2, Density::UNIFORM).fill(field, &mut vector);
        assert_eq!(drawn, vector);
    }
}

#[test]
fn push_beyond_room_or_sense_is_rejected() {
    let mut bundle = Bundle::new(4096, 1024, 2);
    let job = Job::new(Operation::Multiply, 2, 4, 100);
    assert_eq!(bundle.push(job, 7), Ok(0));
    assert_eq!(bundle.jobs()[0].tag, 7);
    for (rows, columns, row_bytes) in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1025, 1, 1), (1, 1025, 1)]
    {
        let job = Job::new(Operation::Multiply, rows, columns, row_bytes);
        assert_eq!(bundle.push(job, 0), Err(Rejected::Invalid { job }));
    }
    let huge = Job::new(Operation::Multiply, usize::MAX, usize::MAX, usize::MAX);
    assert!(Bundle::of(huge).is_err());
    let oblong = Job::new(Operation::Solve, 3, 4, 100);
    assert_eq!(bundle.push(oblong, 0), Err(Rejected::Invalid { job: oblong }));
    let large = Job::new(Operation::Multiply, 9, 4, 100);
    assert!(matches!(bundle.push(large, 0), Err(Rejected::NoRoom { .. })));
    assert_eq!(bundle.push(job, 8), Ok(1));
    assert!(!bundle.has_room(&Job::draw(0, FieldOrder::Two, 1, 1)), "two jobs at most");
    bundle.pop();
    assert!(bundle.has_room(&Job::draw(0, FieldOrder::Two, 1, 1)));
}

#[test]
fn retained_bundle_is_done_again_after_the_first_is_gone() {
    let mut random = random();
    let bundle = random_bundle(&mut random);
    let retained = bundle.retain();
    let expected: Vec<_> = (0..bundle.jobs().len()).map(|job| expected(&bundle, job)).collect();
    drop(bundle);
    let mut again = retained.restore();
    Cpu::new(1, Partition::FullBlock).expect("threads").run(&mut again);
    assert_eq!(outcomes(&again), expected);
}

#[test]
fn cpu_engine_takes_its_depth_and_gives_all_back() {
    let mut random = random();
    let mut engine = CpuEngine::new(2, Partition::PartitionedBlock).expect("threads");
    let mut expectations = Vec::new();
    for tag in 0..engine.depth() as u64 {
        let mut bundle = random_bundle(&mut random);
        bundle.tag = tag;
        let jobs = 0..bundle.jobs().len();
        expectations.push(jobs.map(|job| expected(&bundle, job)).collect::<Vec<_>>());
        engine.submit(bundle).expect("below its depth");
    }
    let refused = engine.submit(Bundle::new(0, 0, 1)).expect_err("full");
    assert!(matches!(refused.error, Error::Busy { depth: 2 }));
    for (tag, expected) in expectations.into_iter().enumerate() {
        let Completed { bundle, result } = wait(&mut engine);
        assert_eq!((bundle.tag, result), (tag as u64, Ok(())));
        assert_eq!(outcomes(&bundle), expected);
    }
    assert!(engine.poll().is_none());
}

#[test]
fn chaos_without_faults_changes_nothing_and_with_a_loss_returns_everything() {
    let mut random = random();
    let inner = || CpuEngine::new(1, Partition::FullBlock).expect("threads");
    // A job with results: a lie about none changes nothing.
    let (bundle, expected) = loop {
        let bundle = random_bundle(&mut random);
        let all = (0..bundle.jobs().len()).map(|job| expected(&bundle, job)).collect::<Vec<_>>();
        if all.iter().any(Result::is_ok) {
            break (bundle, all);
        }
    };
    let mut engine = Chaos::new(inner(), Faults::default(), 1);
    engine.submit(bundle).expect("takes it");
    let Completed { bundle, result } = wait(&mut engine);
    assert_eq!((outcomes(&bundle), result), (expected.clone(), Ok(())));

    let lies = Faults { lie: 1.0, ..Faults::default() };
    let mut engine = Chaos::new(inner(), lies, 1);
    engine.submit(bundle).expect("takes it");
    let Completed { bundle, result } = wait(&mut engine);
    assert_eq!(result, Ok(()));
    assert_ne!(outcomes(&bundle), expected);

    let losses = Faults { stall: 1.0, stall_polls: 3, lose: 0.5, ..Faults::default() };
    let mut engine = Chaos::new(inner(), losses, 4);
    let mut waiting = Some(bundle);
    let error = loop {
        if let Some(bundle) = waiting.take() {
            match engine.submit(bundle) {
                Ok(()) => {}
                Err(refused) => break refused.error,
            }
        }
        if let Some(completed) = engine.poll() {
            waiting = Some(completed.bundle);
        }
    };
    assert!(error.is_fatal());
}

fn wait(engine: &mut impl Engine) -> Completed {
    loop {
        match engine.poll() {
            Some(completed) => return completed,
            None => std::thread::yield_now(),
        }
    }
}

type Rows = Result<Vec<Vec<u8>>, usize>;

fn outcomes(bundle: &Bundle) -> Vec<Rows> {
    (0..bundle.jobs().len()).map(|job| outcome(bundle, job)).collect()
}

fn outcome(bundle: &Bundle, job: usize) -> Rows {
    let row = |row| bundle.destination(job, row).map(<[u8]>::to_vec).map_err(|e| e.column);
    (0..bundle.jobs()[job].job.rows).map(row).collect()
}

/// The expected result of a job, from tables of products only.
fn expected(bundle: &Bundle, index: usize) -> Rows {
    let Job { operation, rows, columns, row_bytes } = bundle.jobs()[index].job;
    let given = || -> Vec<u8> {
        (0..rows).flat_map(|row| bundle.coefficients(index, row).to_vec()).collect()
    };
    let drawn = |seed: u32, field| -> Vec<u8> {
        let mut matrix = vec![0; rows * columns];
        for (row, vector) in matrix.chunks_exact_mut(columns).enumerate() {
            let seed = seed.wrapping_add(row as u32);
            Seeded::new(seed, Density::UNIFORM).fill(field, vector);
        }
        matrix
    };
    let factors = match operation {
        Operation::Multiply => given(),
        Operation::Combine { seed, field } | Operation::Draw { seed, field } => drawn(seed, field),
        Operation::Solve | Operation::Invert => {
            let naive = Kernel::by_name("naive").expect("everywhere");
            let mut matrix = given();
            naive.invert(&mut matrix, columns).map_err(|singular| singular.column)?;
            matrix
        }
    };
    let row = |factors: &[u8]| -> Vec<u8> {
        let byte = |at: usize| {
            let products = factors.iter().enumerate();
            products.fold(0, |sum, (row, &c)| sum ^ mul(c, bundle.source(index, row)[at]))
        };
        (0..row_bytes).map(byte).collect()
    };
    let rows = factors.chunks_exact(columns);
    Ok(if operation.has_sources() {
        rows.map(row).collect()
    } else {
        rows.map(<[u8]>::to_vec).collect()
    })
}

fn random_bundle(random: &mut ChaCha8Rng) -> Bundle {
    let jobs = 1 + random.next_u32() as usize % 4;
    let mut bundle = Bundle::new(1 << 17, 1 << 17, jobs);
    for index in 0..jobs {
        let mut below = |limit: u32| 1 + (random.next_u32() % limit) as usize;
        let (rows, columns, row_bytes) = (below(40), below(40), below(300));
        let field = FieldOrder::ALL[below(4) - 1];
        let seed = below(1 << 30) as u32;
        let job = match below(5) {
            1 => Job::new(Operation::Multiply, rows, columns, row_bytes),
            2 => Job::new(Operation::Solve, columns, columns, row_bytes),
            3 => Job::new(Operation::Combine { seed, field }, rows, columns, row_bytes),
            4 => Job::invert(columns),
            _ => Job::draw(seed, field, rows, columns),
        };
        assert_eq!(bundle.push(job, index as u64), Ok(index));
        fill(&mut bundle, index, random);
    }
    bundle
}

fn fill(bundle: &mut Bundle, index: usize, random: &mut ChaCha8Rng) {
    let job = bundle.jobs()[index].job;
    if job.operation.has_coefficients() {
        // Few values, so that some matrices are singular.
        let mask = if random.next_u32().is_multiple_of(2) { 1 } else { 255 };
        for row in 0..job.rows {
            let row = bundle.coefficients_mut(index, row);
            random.fill_bytes(row);
            row.iter_mut().for_each(|c| *c &= mask);
        }
    }
    if job.operation.has_sources() {
        (0..job.columns).for_each(|row| random.fill_bytes(bundle.source_mut(index, row)));
    }
}

fn clobber(bundle: &mut Bundle) {
    bundle.output_mut().fill(0xA5);
}

fn random() -> ChaCha8Rng {
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let clock =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let seed = given.unwrap_or(clock);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}
