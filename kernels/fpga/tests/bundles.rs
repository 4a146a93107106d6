//! The simulated card behind the queue of bulk work: right bytes, also when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{
    Bundle, Chaos, Cpu, Engine, Error, Faults, Job, Operation, Partition, Segment, check,
};
use recoded_fpga::sim::{MemoryModel, Simulation};
use recoded_fpga::{DriverOptions, EngineOptions, FpgaEngine};
use recoded_offload::{By, Config, Device, Mode, OpenEngine, SpotCheck};

fn options() -> EngineOptions {
    let driver = DriverOptions { ring_log2: 3, ..DriverOptions::default() };
    EngineOptions { driver, lanes: 2, lane_bytes: 1 << 20, kept_bytes: 1 << 20 }
}

fn open() -> FpgaEngine<Simulation> {
    let simulation = Simulation::new(MemoryModel::default(), 8 << 20);
    FpgaEngine::open(simulation, options()).expect("the card is there")
}

/// The next returned bundle.
fn next(engine: &mut impl Engine) -> (Bundle, Result<(), Error>) {
    let begun = Instant::now();
    loop {
        if let Some(completed) = engine.poll() {
            return (completed.bundle, completed.result);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no bundle comes back");
    }
}

fn run(engine: &mut impl Engine, bundle: Bundle) -> Bundle {
    engine.submit(bundle).expect("the engine takes it");
    let (bundle, result) = next(engine);
    result.expect("the engine does it");
    bundle
}

fn bundle_of(job: Job, seed: u64) -> Bundle {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut bundle = Bundle::of(job).expect("a job");
    (0..job.rows).for_each(|row| random.fill_bytes(bundle.coefficients_mut(0, row)));
    (0..job.columns).for_each(|row| random.fill_bytes(bundle.source_mut(0, row)));
    bundle
}

#[test]
fn every_kind_of_job_is_right() {
    let mut engine = open();
    for seed in 0..3 {
        let bundle = run(&mut engine, check::sample(seed));
        assert!(check::agrees(&bundle), "seed {seed}");
    }
}

/// More rows, more columns and longer rows than the card takes at once.
#[test]
fn jobs_larger_than_the_card_takes_are_right() {
    let mut engine = open();
    for (rows, columns, row_bytes) in [(300, 20, 100), (5, 600, 70), (3, 3, 20_001)] {
        let job = Job::new(Operation::Multiply, rows, columns, row_bytes);
        let bundle = run(&mut engine, bundle_of(job, 1));
        assert!(check::agrees(&bundle), "{job:?}");
    }
}

#[test]
fn a_bundle_over_a_segment_is_right() {
    let mut segment = Segment::new(9, 500).expect("a segment");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    (0..9).for_each(|row| random.fill_bytes(segment.row_mut(row)));
    let mut bundle = Bundle::over(Arc::new(segment), 8, 2);
    for rows in [3, 5] {
        let job = bundle.push(Job::new(Operation::Multiply, rows, 9, 500), 0).expect("room");
        (0..rows).for_each(|row| random.fill_bytes(bundle.coefficients_mut(job, row)));
    }
    let bundle = run(&mut open(), bundle);
    assert!(check::agrees(&bundle));
}

fn random_segment(rows: usize, row_bytes: usize, seed: u64) -> Arc<Segment> {
    let mut segment = Segment::new(rows, row_bytes).expect("a segment");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..rows).for_each(|row| random.fill_bytes(segment.row_mut(row)));
    Arc::new(segment)
}

fn bundle_over(segment: &Arc<Segment>, seed: u64) -> Bundle {
    let mut bundle = Bundle::over(Arc::clone(segment), 8, 1);
    let (rows, row_bytes) = (segment.rows(), segment.row_bytes());
    let job = Job::new(Operation::Multiply, 5, rows, row_bytes);
    let job = bundle.push(job, 0).expect("room");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..5).for_each(|row| random.fill_bytes(bundle.coefficients_mut(job, row)));
    bundle
}

/// Bundles over a segment that the card keeps bring no sources along: they are correct although the
/// buffer for copied sources is far too small for them.
#[test]
fn kept_segments_are_read_where_they_are() {
    let options = EngineOptions { lane_bytes: 16 << 10, kept_bytes: 128 << 10, ..options() };
    let simulation = Simulation::new(MemoryModel::default(), 8 << 20);
    let mut engine = FpgaEngine::open(simulation, options).expect("the card is there");
    let segments: Vec<_> = (0..3).map(|seed| random_segment(20, 2500, seed)).collect();
    let bytes = segments[0].bytes();
    let refused = engine.submit(bundle_over(&segments[0], 1)).expect_err("not kept");
    assert!(matches!(refused.error, Error::Memory { .. }), "{}", refused.error);
    assert_eq!((engine.keep(&segments[0]), engine.keep(&segments[1])), (Ok(()), Ok(())));
    assert_eq!(engine.keep(&segments[0]), Ok(()), "it is there already");
    assert_eq!(engine.kept_bytes(), 2 * bytes);
    assert_eq!(engine.keep(&segments[2]), Err(Error::Memory { bytes }));
    for seed in 0..4 {
        let bundle = run(&mut engine, bundle_over(&segments[seed as usize % 2], seed));
        assert!(check::agrees(&bundle), "seed {seed}");
    }
}

/// The place of a segment without other holders is reused, and the others stay unchanged.
#[test]
fn dropped_segments_make_room() {
    let options = EngineOptions { lane_bytes: 16 << 10, kept_bytes: 128 << 10, ..options() };
    let simulation = Simulation::new(MemoryModel::default(), 8 << 20);
    let mut engine = FpgaEngine::open(simulation, options).expect("the card is there");
    let first = random_segment(20, 2500, 1);
    let second = random_segment(20, 2500, 2);
    assert_eq!((engine.keep(&first), engine.keep(&second)), (Ok(()), Ok(())));
    // A bundle in flight holds its segment.
    engine.submit(bundle_over(&first, 1)).expect("a lane");
    drop(first);
    let third = random_segment(19, 2600, 3);
    assert!(matches!(engine.keep(&third), Err(Error::Memory { .. })));
    let (bundle, result) = next(&mut engine);
    assert!(result.is_ok() && check::agrees(&bundle));
    drop(bundle);
    assert_eq!(engine.keep(&third), Ok(()));
    for segment in [&second, &third] {
        let bundle = run(&mut engine, bundle_over(segment, 4));
        assert!(check::agrees(&bundle));
    }
    assert_eq!(engine.kept_bytes(), second.bytes() + third.bytes());
}

#[test]
fn bundles_beyond_its_depth_or_memory_are_refused_unharmed() {
    let mut engine = open();
    let large = Job::new(Operation::Multiply, 2, 2, 1 << 20);
    let refused = engine.submit(bundle_of(large, 1)).expect_err("too large");
    assert!(matches!(refused.error, Error::Memory { .. }), "{}", refused.error);
    for seed in 0..2 {
        engine.submit(check::sample(seed)).expect("two lanes");
    }
    let refused = engine.submit(check::sample(2)).expect_err("no lane");
    assert_eq!(refused.error, Error::Busy { depth: 2 });
    for _ in 0..2 {
        let (bundle, result) = next(&mut engine);
        assert!(result.is_ok() && check::agrees(&bundle));
    }
    let bundle = run(&mut engine, *refused.bundle);
    assert!(check::agrees(&bundle));
}

/// Memory refuses some reads: that bundle fails, the next one does not.
#[test]
fn a_refused_read_fails_one_bundle() {
    let mut engine = open();
    let sources = engine.driver().transport().faults();
    sources.failing_reads.push(0..u64::MAX);
    engine.submit(check::sample(1)).expect("the engine takes it");
    let (bundle, result) = next(&mut engine);
    assert!(matches!(result, Err(Error::Failed { call: "multiply", .. })), "{result:?}");
    engine.driver().transport().faults().failing_reads.clear();
    let bundle = run(&mut engine, bundle.retain().restore());
    assert!(check::agrees(&bundle));
}

/// Memory stops responding: the engine returns everything and accepts nothing more.
#[test]
fn silent_memory_loses_the_engine_and_no_bundle() {
    let driver = DriverOptions { hang_timeout: Duration::from_micros(200), ..options().driver };
    let simulation = Simulation::new(MemoryModel::default(), 8 << 20);
    let options = EngineOptions { driver, ..options() };
    let mut engine = FpgaEngine::open(simulation, options).expect("the card is there");
    engine.driver().transport().faults().is_silent = true;
    for seed in 0..2 {
        engine.submit(check::sample(seed)).expect("two lanes");
    }
    for _ in 0..2 {
        let (_, result) = next(&mut engine);
        assert!(matches!(result, Err(Error::Lost { call: "poll", .. })), "{result:?}");
    }
    let refused = engine.submit(check::sample(1)).expect_err("it is lost");
    assert!(refused.error.is_fatal());
    assert!(engine.poll().is_none());
}

fn config() -> Config {
    Config {
        mode: Mode::Device,
        // A simulation is slow, and this machine may be busy.
        watchdog_min: Duration::from_secs(5),
        open_timeout: Duration::from_secs(60),
        retry_min: Duration::from_millis(1),
        retry_max: Duration::from_millis(2),
        spot_check: SpotCheck::All,
        ..Config::default()
    }
}

/// The queue measures a device with matrices of up to 1,024 sources before it uses it.
#[test]
fn the_queue_opens_measures_and_uses_the_card() {
    let open: OpenEngine = Arc::new(|| {
        let simulation = Simulation::new(MemoryModel::default(), 32 << 20);
        let engine = FpgaEngine::open(simulation, EngineOptions::default());
        Ok(Box::new(engine.expect("the card is there")))
    });
    let device = Device::new(config(), open);
    let cpu = Cpu::new(1, Partition::FullBlock).expect("a CPU");
    let done = device.run(vec![check::sample(1)], &cpu);
    assert_eq!(device.why_down(), None);
    assert_eq!(done[0].1, By::Device);
    assert!(check::agrees(&done[0].0));
}

/// The queue's own fault injector around the simulated card: whatever it does, results are correct,
/// by the card or by the CPU.
#[test]
fn bundles_through_the_queue_are_right_while_the_card_fails_and_lies() {
    let faults = Faults { refuse: 0.1, fail: 0.2, lose: 0.1, lie: 0.3, ..Faults::default() };
    let opened = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&opened);
    let open: OpenEngine = Arc::new(move || {
        let seed = counted.fetch_add(1, Ordering::Relaxed);
        // Faultless the first time, so that some jobs succeed.
        let faults = if seed == 0 { Faults::default() } else { faults };
        let faults = if seed == 0 { Faults { lose: 0.3, ..faults } } else { faults };
        Ok(Box::new(Chaos::new(open(), faults, 7 + seed)))
    });
    let config = Config { measure: false, ..config() };
    let device = Device::new(config, open);
    let cpu = Cpu::new(1, Partition::FullBlock).expect("a CPU");
    let mut by = Vec::new();
    for round in 0..12 {
        let bundles = (0..3).map(|number| check::sample(3 * round + number)).collect();
        for (bundle, who) in device.run(bundles, &cpu) {
            assert!(check::agrees(&bundle), "round {round}");
            by.push(who);
        }
        thread::sleep(Duration::from_millis(3));
    }
    let device = by.iter().filter(|who| matches!(who, By::Device)).count();
    println!("{device} of {} by the card, opened {opened:?} times", by.len());
    assert!(device > 0 && device < by.len(), "{device} of {}", by.len());
}
