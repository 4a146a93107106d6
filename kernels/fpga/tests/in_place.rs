//! Bundles that the card reads and writes in place: nothing is copied, nothing is freed or returned
//! while the card may still write it, and unreachable memory is copied as usual.

mod model_card;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use model_card::fake_vfio::{ADDRESS, FakeLinux, Log, Refusal};
use model_card::{ModelCard, memfd};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{
    Bundle, Completed, Cpu, Engine, Error, Job, Operation, Partition, Segment, check,
};
use recoded_fpga::transport::vfio::Vfio;
use recoded_fpga::transport::xdma::{Xdma, XdmaFiles};
use recoded_fpga::{Copied, DriverOptions, EngineOptions, FpgaEngine, Transport};
use recoded_offload::{By, Config, Device, Mode, Offload, OpenEngine, SpotCheck};

fn options() -> EngineOptions {
    let driver = DriverOptions {
        ring_log2: 3,
        // The model shares this machine with other programs.
        hang_timeout: Duration::from_secs(20),
        reset_timeout: Duration::from_millis(50),
    };
    EngineOptions { driver, lanes: 2, lane_bytes: 1 << 20, kept_bytes: 1 << 20 }
}

fn look(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().expect("no test panics")
}

fn still_mapped(log: &Mutex<Log>) -> usize {
    let log = look(log);
    log.mapped - log.unmapped
}

fn vfio(linux: FakeLinux) -> FpgaEngine<Vfio<FakeLinux>> {
    let transport = Vfio::open_with(linux, ADDRESS).expect("the card is there");
    FpgaEngine::open(transport, options()).expect("the card is there")
}

fn next(engine: &mut dyn Engine) -> (Bundle, Result<(), Error>) {
    let begun = Instant::now();
    loop {
        if let Some(Completed { bundle, result }) = engine.poll() {
            return (bundle, result);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing comes back");
        std::thread::yield_now();
    }
}

fn run(engine: &mut dyn Engine, bundle: Bundle) -> Bundle {
    engine.submit(bundle).expect("the engine takes it");
    let (bundle, result) = next(engine);
    assert_eq!(result, Ok(()));
    assert!(check::agrees(&bundle));
    bundle
}

fn fill(bundle: &mut Bundle, number: usize, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let Job { operation, rows, columns, .. } = bundle.jobs()[number].job;
    if operation.has_coefficients() {
        (0..rows).for_each(|row| random.fill_bytes(bundle.coefficients_mut(number, row)));
    }
    if operation.has_sources() && bundle.segment().is_none() {
        (0..columns).for_each(|row| random.fill_bytes(bundle.source_mut(number, row)));
    }
}

fn bundle_of(job: Job, seed: u64) -> Bundle {
    let mut bundle = Bundle::of(job).expect("a job");
    fill(&mut bundle, 0, seed);
    bundle
}

/// The card's results for bundles in place, and the bytes that are still copied.
fn nothing_is_copied(engine: &mut FpgaEngine<impl Transport>) {
    let mut bundle = run(engine, check::sample(1));
    assert_eq!(engine.copied(), Copied::default());
    // The same memory, with other jobs in it, at other places.
    for seed in 2..5 {
        bundle.clear();
        for rows in [1, 3, 7] {
            let job = Job::new(Operation::Multiply, rows, 9, 333 + rows);
            let number = bundle.push(job, 0).expect("room");
            fill(&mut bundle, number, seed);
        }
        bundle = run(engine, bundle);
    }
    assert_eq!(engine.copied(), Copied::default());
    // More sources than the card takes at once: their parts are added up here.
    let rows_max = engine.driver().shape().rows_max;
    let job = Job::new(Operation::Multiply, 2, rows_max + 1, 100);
    run(engine, bundle_of(job, 9));
    assert_eq!(engine.copied(), Copied { sources: 0, destinations: 2 * 2 * 100 });
}

#[test]
fn bundles_are_used_where_they_lie_through_vfio() {
    for (linux, log) in [FakeLinux::new(), FakeLinux::with_iommufd()] {
        let mut engine = vfio(linux);
        let before = look(&log).mapped;
        nothing_is_copied(&mut engine);
        // Two bundles were seen, each was mapped once, and unmapped when it was dropped.
        assert_eq!(look(&log).mapped, before + 4);
        assert_eq!(look(&log).arenas(), [0, 0]);
        let bundle = run(&mut engine, check::sample(2));
        assert_eq!(look(&log).arenas(), [1, 1], "inputs are only read");
        drop(engine);
        assert_eq!(look(&log).arenas(), [0, 0]);
        assert_eq!(still_mapped(&log), 0);
        // Its memory is no longer mapped for the card.
        drop(bundle);
        assert_eq!(still_mapped(&log), 0);
    }
}

/// XDMA cannot reach memory of the host: all rows are copied, and counted.
#[test]
fn bundles_are_copied_where_the_card_has_memory_of_its_own() {
    let (registers, memory) = (memfd(4096), memfd(64 << 20));
    let clone = |file: &std::fs::File| file.try_clone().expect("a descriptor");
    let files = XdmaFiles {
        user: clone(&registers),
        to_card: clone(&memory),
        from_card: clone(&memory),
        events: None,
    };
    let _card = ModelCard::start(registers, 0, memory, None);
    let transport = Xdma::over(files, 0..64 << 20, "xdma:0".into());
    let mut engine = FpgaEngine::open(transport, options()).expect("the card is there");
    copies_are_counted(&mut engine);
}

fn copies_are_counted(engine: &mut FpgaEngine<impl Transport>) {
    let job = Job::new(Operation::Multiply, 3, 5, 1000);
    for count in 1..4 {
        run(engine, bundle_of(job, count));
        let sources = count * job.input_bytes() as u64;
        assert_eq!(engine.copied(), Copied { sources, destinations: count * 3 * 1000 });
    }
}

/// No more memory may be locked: it is copied, and Linux is not queried repeatedly.
#[test]
fn bundles_that_linux_does_not_map_are_copied() {
    let (linux, log) = FakeLinux::new();
    let mut engine = vfio(linux.and_refusing(Refusal::NoArenas));
    copies_are_counted(&mut engine);
    assert_eq!(look(&log).arenas(), [0, 0]);
    assert_eq!(look(&log).refused, 1);
}

/// A segment is mapped, not copied, whether it is kept or not, as long as it exists.
#[test]
fn segments_are_read_where_they_lie() {
    let (linux, log) = FakeLinux::new();
    let mut engine = vfio(linux);
    let mut segment = Segment::new(9, 500).expect("a segment");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    (0..9).for_each(|row| random.fill_bytes(segment.row_mut(row)));
    let segment = Arc::new(segment);
    assert_eq!(engine.keep(&segment), Ok(()));
    assert_eq!((look(&log).arenas(), engine.kept_bytes()), ([1, 0], 0));
    for seed in 0..3 {
        let mut bundle = Bundle::over(Arc::clone(&segment), 8, 1);
        bundle.push(Job::new(Operation::Multiply, 5, 9, 500), 0).expect("room");
        fill(&mut bundle, 0, seed);
        run(&mut engine, bundle);
    }
    assert_eq!(engine.copied(), Copied::default());
    assert_eq!(look(&log).arenas(), [1, 0]);
    drop(segment);
    assert_eq!(look(&log).arenas(), [0, 0]);
}

/// An engine whose card computes nothing, with two bundles.
fn hanging(linux: FakeLinux, log: &Mutex<Log>) -> FpgaEngine<Vfio<FakeLinux>> {
    let transport = Vfio::open_with(linux.without_card(), ADDRESS).expect("registers are there");
    let driver = DriverOptions { hang_timeout: Duration::from_millis(5), ..options().driver };
    let options = EngineOptions { driver, ..options() };
    let mut engine = FpgaEngine::open(transport, options).expect("registers are there");
    (0..2).for_each(|seed| engine.submit(check::sample(seed)).expect("two lanes"));
    assert_eq!(look(log).arenas(), [2, 2]);
    engine
}

/// A hanging card may write at any time: it reaches nothing when the first bundle is returned.
#[test]
fn hanging_card_is_kept_out_of_bundles_before_they_are_returned() {
    for (linux, log) in [FakeLinux::new(), FakeLinux::with_iommufd()] {
        let mut engine = hanging(linux, &log);
        for _ in 0..2 {
            let (bundle, result) = next(&mut engine);
            assert!(matches!(result, Err(Error::Lost { call: "poll", .. })), "{result:?}");
            assert_eq!(look(&log).arenas(), [0, 0]);
            let mut again = bundle.retain().restore();
            Cpu::new(1, Partition::FullBlock).expect("a CPU").run(&mut again);
            assert!(check::agrees(&again), "its inputs are what they were");
        }
        assert!(engine.poll().is_none());
        assert!(engine.submit(check::sample(3)).expect_err("lost").error.is_fatal());
        assert_eq!(look(&log).arenas(), [0, 0]);
    }
}

/// Linux does not even unmap: the bundles are never returned, nor their memory freed.
#[test]
fn bundles_that_the_card_may_still_write_are_not_returned() {
    let (linux, log) = FakeLinux::new();
    let mut engine = hanging(linux, &log);
    look(&log).keeps_arenas = true;
    let begun = Instant::now();
    // An empty bundle shows only whether the card is lost.
    while !engine.submit(Bundle::new(0, 0, 0)).is_err_and(|refused| refused.error.is_fatal()) {
        assert!(engine.poll().is_none(), "the card may still write it");
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not lost");
    }
    assert!(engine.poll().is_none());
    assert_eq!(look(&log).arenas(), [2, 2]);
    drop(engine);
    look(&log).keeps_arenas = false;
}

/// The queue has the inputs of such bundles, and the CPU computes them.
#[test]
fn queue_does_without_bundles_that_are_not_returned() {
    let (linux, log) = FakeLinux::new();
    let linux = Mutex::new(Some(linux));
    let open: OpenEngine = Arc::new(move || {
        let linux = linux.lock().expect("no test panics").take();
        let linux = linux.ok_or_else(|| Error::Absent { reason: "there was one".into() })?;
        let driver = DriverOptions { hang_timeout: Duration::from_millis(500), ..options().driver };
        let transport = Vfio::open_with(linux, ADDRESS).expect("the card is there");
        let engine = FpgaEngine::open(transport, EngineOptions { driver, ..options() });
        Ok(Box::new(engine.expect("the card is there")) as Box<dyn Engine>)
    });
    let config = Config { watchdog_min: Duration::from_secs(2), ..config() };
    let device = Device::new(config, open);
    let cpu = Cpu::new(1, Partition::FullBlock).expect("a CPU");
    let done = device.run(vec![check::sample(1)], &cpu);
    assert!(done[0].1 == By::Device && check::agrees(&done[0].0));
    look(&log).keeps_arenas = true;
    look(&log).is_stalled.store(true, Ordering::Relaxed);
    let done = device.run((2..4).map(check::sample).collect(), &cpu);
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|(bundle, by)| *by != By::Device && check::agrees(bundle)));
}

fn config() -> Config {
    Config {
        mode: Mode::Device,
        watchdog_min: Duration::from_secs(20),
        hang_min: Duration::from_secs(60),
        spot_check: SpotCheck::All,
        measure: false,
        ..Config::default()
    }
}

/// The card reads and writes workers' slots: mapped at first use, and then reused.
#[test]
fn slots_of_workers_are_mapped_once() {
    let (linux, log) = FakeLinux::new();
    let linux = Mutex::new(Some(linux));
    let open: OpenEngine = Arc::new(move || {
        let linux = linux.lock().expect("no test panics").take().expect("it is opened once");
        Ok(Box::new(vfio(linux)) as Box<dyn Engine>)
    });
    let slots_per_port = 2;
    let config = Config { slots_per_port, slot_bytes: 256 << 10, ..config() };
    let (queue, mut ports) = Offload::start(config, 1, open).expect("threads");
    let (port, begun) = (&mut ports[0], Instant::now());
    let (mut taken, mut done, mut expected) = (0, 0, HashMap::new());
    while done < ROUNDS {
        if taken < ROUNDS {
            let job = Job::new(Operation::Multiply, 4, 8, 1000);
            let copy = bundle_of(job, taken);
            let offered = port.offer(job, taken, Instant::now(), |mut inputs| {
                (0..4).for_each(|row| {
                    inputs.coefficients(row).copy_from_slice(copy.coefficients(0, row));
                });
                (0..8).for_each(|row| inputs.source(row).copy_from_slice(copy.source(0, row)));
            });
            if offered.is_ok() {
                port.flush();
                expected.insert(taken, copy);
                taken += 1;
            }
        }
        port.poll(|delivered| {
            let mut copy = expected.remove(&delivered.tag()).expect("it was offered");
            Cpu::new(1, Partition::FullBlock).expect("a CPU").run(&mut copy);
            for row in 0..4 {
                assert_eq!(delivered.destination(row), copy.destination(0, row));
            }
            done += 1;
        });
        assert!(begun.elapsed() < Duration::from_secs(120), "{taken} taken, {done} done");
        std::thread::yield_now();
    }
    // The used slots, and nothing of the self-test, whose bundle is gone.
    let [read, written] = look(&log).arenas();
    assert!(read == written && (1..=slots_per_port).contains(&read), "{read} {written}");
    let mapped = look(&log).mapped;
    assert!(mapped <= OWN + 2 * (1 + slots_per_port), "{mapped}");
    drop((queue, ports));
    assert_eq!(look(&log).arenas(), [0, 0]);
}

const ROUNDS: u64 = 40;

/// Mappings of an engine at its opening: two rings, three parts of each of two lanes, segments.
const OWN: usize = 9;

#[cfg(feature = "fpga-sim")]
mod simulated {
    //! The same with the card's own circuits.

    use recoded_code::engine::Arena;
    use recoded_fpga::Driver;
    use recoded_fpga::layout::{Descriptor, flag, op, status};
    use recoded_fpga::sim::{MemoryModel, Simulation};

    use super::*;

    fn open() -> FpgaEngine<Simulation> {
        let driver = DriverOptions { ring_log2: 3, ..DriverOptions::default() };
        let simulation = Simulation::new(MemoryModel::default(), 8 << 20).with_host_memory();
        let options = EngineOptions { driver, ..options() };
        FpgaEngine::open(simulation, options).expect("the card is there")
    }

    #[test]
    fn bundles_are_used_where_they_lie_by_the_simulated_card() {
        nothing_is_copied(&mut open());
    }

    /// The card must not write bytes between and around rows.
    #[test]
    fn gaps_between_rows_stay_as_they_were() {
        let job = Job::new(Operation::Multiply, 5, 7, 333);
        let mut bundle = Bundle::new(1 << 14, 1 << 14, 2);
        for _ in 0..2 {
            let number = bundle.push(job, 0).expect("room");
            fill(&mut bundle, number, 3);
        }
        bundle.output_mut().fill(0xA5);
        let bundle = run(&mut open(), bundle);
        let rows = bundle
            .jobs()
            .iter()
            .flat_map(|placed| (0..5).map(|row| placed.destinations + row * job.stride()));
        let mut is_row = vec![false; bundle.output().len()];
        rows.for_each(|start| is_row[start..start + 333].fill(true));
        let ranks = bundle.jobs()[0].destinations;
        let mut gaps = bundle.output().iter().zip(&is_row).skip(ranks).filter(|(_, is)| !**is);
        assert!(gaps.all(|(byte, _)| *byte == 0xA5), "it wrote between rows");
    }

    /// A card whose memory stalled and then responds: it writes nothing into bundles that were
    /// returned, however long it continues.
    #[test]
    fn late_card_writes_nothing_into_bundles_that_were_returned() {
        let mut written = 0;
        // When it has begun to read, to compute, and to write: it takes 9,000 clocks.
        for clocks in [500, 2000, 4000, 6000, 8000] {
            let mut engine = impatient();
            let mut bundle = bundle_of(Job::new(Operation::Multiply, 32, 32, 9000), clocks);
            bundle.output_mut().fill(0x5A);
            engine.submit(bundle).expect("a lane");
            engine.driver().transport().run(clocks);
            engine.driver().transport().faults().is_silent = true;
            let (bundle, result) = next(&mut engine);
            assert!(result.is_err_and(|error| error.is_fatal()));
            let before = bundle.output().to_vec();
            written += before.iter().filter(|byte| **byte != 0x5A).count();
            engine.driver().transport().faults().is_silent = false;
            engine.driver().transport().run(5000);
            assert!(bundle.output()[..] == before, "it wrote after {clocks} clocks");
        }
        assert!(written > 32 * 9000, "it wrote before: {written} bytes");
    }

    /// The card cannot access memory that the IOMMU protects, and reports that.
    #[test]
    fn card_reads_and_writes_only_what_it_may() {
        let simulation = Simulation::new(MemoryModel::default(), 8 << 20).with_host_memory();
        let mut driver =
            Driver::open(simulation, DriverOptions::default()).expect("the card is there");
        let (mut read, mut both) = (Arena::new(4096), Arena::new(4096));
        read.fill(1);
        let coefficients = driver.transport().allocate(256).expect("room");
        driver.transport().write(coefficients, &[1]).expect("it is allocated");
        let from = driver.transport().share(&read).expect("it is shared");
        let to = driver.transport().share_mut(&mut both).expect("it is shared");
        let run = |driver: &mut Driver<Simulation>, sources, destinations| {
            let descriptor = Descriptor {
                op: op::MULTIPLY,
                polynomial: 0x1D,
                flags: 1 << flag::SOURCE_STRIDE | 1 << flag::DESTINATION_STRIDE,
                k: 1,
                n: 1,
                row_bytes: 100,
                coefficients,
                sources,
                destinations,
                ..Descriptor::default()
            };
            driver.submit(descriptor).expect("room");
            driver.wait().expect("it works").expect("it was submitted").status
        };
        assert_eq!(run(&mut driver, from, to + 7), status::OK);
        assert_eq!(run(&mut driver, from + 4000, to), status::READ, "it reads beyond the end");
        assert_eq!(
            run(&mut driver, from, from + 200),
            status::WRITE,
            "it writes what it may only read"
        );
        assert_eq!(run(&mut driver, from, to + 4000), status::WRITE, "it writes beyond the end");
        assert!(driver.stop());
        driver.reset().expect("it comes back");
        assert_eq!(run(&mut driver, from, to), status::READ, "it was stopped");
        assert!(read.iter().all(|byte| *byte == 1));
        // A refused read may leave wrong bytes in its own destinations.
        assert!(both[107..4000].iter().all(|byte| *byte == 0));
        assert!(both[7..107].iter().all(|byte| *byte == 1));
    }

    fn impatient() -> FpgaEngine<Simulation> {
        let driver =
            DriverOptions { hang_timeout: Duration::from_micros(200), ..DriverOptions::default() };
        let simulation = Simulation::new(MemoryModel::default(), 8 << 20).with_host_memory();
        let options = EngineOptions { driver, ..options() };
        FpgaEngine::open(simulation, options).expect("the card is there")
    }
}
