//! The queue in front of engines that work, fail, hang and lie: accepted jobs return once and
//! correct. `RECODED_SEED` repeats a run; the seed is printed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{
    Bundle, Chaos, Completed, Cpu, CpuEngine, Engine, Error, Faults, Job, Operation, Partition,
    Refused,
};
use recoded_offload::{
    Class, Close, Config, Declined, Delivered, EngineCounters, Fault, Inputs, Mode, Offload,
    OpenEngine, Port, Rates, SpotCheck,
};

mod common;

use common::{after_self_test, cpu};

#[test]
fn faults_of_all_kinds_results_are_right_and_delivered_once() {
    let mut random = random();
    for round in 0..12 {
        let faults = Faults {
            refuse: share(&mut random, 0.2),
            fail: share(&mut random, 0.2),
            lose: share(&mut random, 0.02),
            stall: share(&mut random, 0.5),
            stall_polls: 20,
            hang: share(&mut random, 0.05),
            lie: share(&mut random, 0.2),
        };
        println!("round {round}: {faults:?}");
        // Short, as many bundles hang; a bundle that is late for another reason is still correct.
        let (watchdog_min, hang_min) = (Duration::from_millis(20), Duration::from_millis(50));
        let config = Config { watchdog_min, hang_min, ..config() };
        let (offload, ports) = start(config, 2, chaos(faults, random.next_u64()));
        let seeds = [random.next_u64(), random.next_u64()];
        let workers = ports.into_iter().zip(seeds);
        let workers: Vec<_> = workers.map(|(port, seed)| spawn_worker(port, seed)).collect();
        let taken: u64 = workers.into_iter().map(|w| w.join().expect("a worker")).sum();
        let metrics = offload.metrics();
        println!("{metrics:?}");
        assert_eq!(metrics.taken_jobs, taken);
        assert_eq!(metrics.offered_jobs, taken + metrics.declined.iter().sum::<u64>());
        assert_eq!(taken, metrics.device_jobs + metrics.redone.iter().sum::<u64>());
        assert_eq!(metrics.closed.iter().sum::<u64>(), metrics.bundle_bytes.iter().sum::<u64>());
    }
}

/// Offers jobs, polls in between, and checks the results; returns how many were accepted.
fn spawn_worker(mut port: Port, seed: u64) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut expected = HashMap::new();
        let mut taken = 0;
        for tag in 0..150 {
            let (job, inputs) = random_job(&mut random);
            let offered = port.offer(job, tag, Instant::now(), |to| inputs.write(&job, to));
            if offered.is_ok() {
                expected.insert(tag, inputs.result(&job));
                taken += 1;
            } else if random.next_u32().is_multiple_of(2) {
                thread::sleep(Duration::from_micros(200));
            }
            port.poll(|delivered| check(&mut expected, &delivered));
        }
        port.flush();
        let begun = Instant::now();
        while !expected.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "lost: {:?}", expected.keys());
            port.poll(|delivered| check(&mut expected, &delivered));
            thread::sleep(Duration::from_micros(100));
        }
        taken
    })
}

fn check(expected: &mut HashMap<u64, Rows>, delivered: &Delivered<'_>) {
    let rows = expected.remove(&delivered.tag()).expect("delivered once");
    assert_eq!(result(delivered), rows, "{:?}", delivered.job());
}

#[test]
fn device_that_never_answers_is_given_up_by_the_watchdog() {
    let hang = Faults { hang: 1.0, ..Faults::default() };
    let config = Config { hangs_max: 1, ..config() };
    // The self-test returns: the engine hangs once that is over.
    let (offload, mut ports) = start(config, 1, after_self_test(hang, 1));
    one_job_comes_back(&mut ports[0]);
    assert_eq!(offload.metrics().redone[Fault::Late as usize], 1);
    assert!(!offload.is_up());
    wait_until(&offload, |metrics| metrics.device_downs == 1);
    assert!(matches!(offload.why_down(), Some(Error::Lost { call: "watchdog", .. })));
    thread::sleep(Duration::from_millis(30));
    assert_eq!(offload.metrics().device_ups, 1, "left alone after hanging");
}

/// An engine that accepts bundles and returns them when it is released.
struct Gated {
    is_open: Arc<AtomicBool>,
    inner: CpuEngine,
}

impl Engine for Gated {
    fn name(&self) -> &str {
        "gated"
    }
    fn depth(&self) -> usize {
        2
    }
    fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
        self.inner.submit(bundle)
    }
    fn poll(&mut self) -> Option<Completed> {
        if self.is_open.load(Ordering::Relaxed) { self.inner.poll() } else { None }
    }
}

/// Shared cards stall for tens of milliseconds; three stalls in the life of a process once disabled
/// a card permanently.
#[test]
fn device_that_is_late_is_kept_and_used_again_when_it_has_answered() {
    let is_open = Arc::new(AtomicBool::new(true));
    let gate = Arc::clone(&is_open);
    let open: OpenEngine =
        Arc::new(move || Ok(Box::new(Gated { is_open: Arc::clone(&gate), inner: cpu()? })));
    let (watchdog_min, hang_min) = (Duration::from_millis(50), Duration::from_secs(30));
    let config = Config { watchdog_min, hang_min, hangs_max: 1, ..config() };
    let (offload, mut ports) = start(config, 1, open);
    for stall in 1..=4 {
        is_open.store(false, Ordering::Relaxed);
        one_job_comes_back(&mut ports[0]);
        assert_eq!(offload.metrics().redone[Fault::Late as usize], stall, "by the CPU");
        let job = Job::new(Operation::Multiply, 4, 4, 64);
        assert_eq!(ports[0].offer(job, 0, Instant::now(), |_| ()), Err(Declined::Down));
        is_open.store(true, Ordering::Relaxed);
        wait_until(&offload, |metrics| metrics.late == stall);
        let begun = Instant::now();
        while !offload.is_up() {
            assert!(begun.elapsed() < Duration::from_secs(10), "still avoided");
            thread::yield_now();
        }
    }
    let metrics = offload.metrics();
    assert_eq!((metrics.device_ups, metrics.device_downs), (1, 0));
}

#[test]
fn device_that_hangs_now_and_then_is_opened_again_for_ever() {
    // Its first bundle returns, the next one does not.
    let open: OpenEngine = Arc::new(|| {
        struct Once(CpuEngine, usize);
        impl Engine for Once {
            fn name(&self) -> &str {
                "once"
            }
            fn depth(&self) -> usize {
                2
            }
            fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
                self.0.submit(bundle)
            }
            fn poll(&mut self) -> Option<Completed> {
                // Two: the self-test is the first one.
                let completed = (self.1 < 2).then(|| self.0.poll()).flatten()?;
                self.1 += 1;
                Some(completed)
            }
        }
        Ok(Box::new(Once(cpu()?, 0)))
    });
    let (watchdog_min, hang_min) = (Duration::from_millis(100), Duration::from_millis(200));
    let config = Config { watchdog_min, hang_min, hangs_max: 2, ..config() };
    let (offload, mut ports) = start(config, 1, open);
    for hangs in 1..=3 {
        wait_until(&offload, |metrics| metrics.device_ups == hangs);
        one_job_comes_back(&mut ports[0]);
        one_job_comes_back(&mut ports[0]);
        wait_until(&offload, |metrics| metrics.device_downs == hangs);
    }
    wait_until(&offload, |metrics| metrics.device_ups == 4);
}

#[test]
fn device_that_is_slow_to_open_is_waited_for_and_has_not_hung() {
    let (is_open, attempts) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (gate, counted) = (Arc::clone(&is_open), Arc::clone(&attempts));
    let open: OpenEngine = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        while !gate.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(Box::new(cpu()?))
    });
    // The self-test has as long: longer than a busy machine keeps a thread from running.
    let config = Config { open_timeout: Duration::from_secs(1), hangs_max: 1, ..config() };
    let (offload, ports) = Offload::start(config, 1, open).expect("threads");
    let begun = Instant::now();
    while offload.why_down().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(10), "no word of it");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(offload.why_down(), Some(Error::Lost { call: "open", .. })));
    thread::sleep(Duration::from_millis(20));
    is_open.store(true, Ordering::Relaxed);
    wait_until_up(&offload);
    assert_eq!(attempts.load(Ordering::Relaxed), 1, "one thread for it");
    drop(ports);
}

#[test]
fn device_that_needs_a_new_process_is_not_tried_again() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let open: OpenEngine = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(Error::RestartNeeded { call: "open", code: 719, reason: "sticky".into() })
    });
    let (offload, ports) = Offload::start(config(), 1, open).expect("threads");
    let begun = Instant::now();
    while offload.why_down().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(10), "no word of it");
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(30));
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
    assert!(offload.why_down().is_some_and(|error| error.needs_restart()));
    drop(ports);
}

#[test]
fn device_that_blocks_its_thread_blocks_no_other() {
    struct Blocking {
        is_released: Arc<AtomicBool>,
        inner: CpuEngine,
        submitted: usize,
    }
    impl Engine for Blocking {
        fn name(&self) -> &str {
            "blocking"
        }
        fn depth(&self) -> usize {
            2
        }
        fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
            self.submitted += 1;
            while self.submitted > 1 && !self.is_released.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            self.inner.submit(bundle)
        }
        fn poll(&mut self) -> Option<Completed> {
            self.inner.poll()
        }
    }
    let is_released = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&is_released);
    let open: OpenEngine = Arc::new(move || {
        let is_released = Arc::clone(&released);
        Ok(Box::new(Blocking { is_released, inner: cpu()?, submitted: 0 }))
    });
    let config = Config { hangs_max: 1, ..config() };
    let (offload, mut ports) = start(config, 1, open);
    one_job_comes_back(&mut ports[0]);
    assert_eq!(offload.metrics().redone[Fault::Late as usize], 1);
    wait_until(&offload, |metrics| metrics.device_downs == 1);
    // The device's later result for its bundle has no effect.
    is_released.store(true, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(ports[0].poll(|_| ()), 0);
    offload.stop();
}

#[test]
fn device_that_lies_is_found_by_a_product() {
    let lie = Faults { lie: 1.0, ..Faults::default() };
    let config = Config { spot_check: SpotCheck::Product, ..config() };
    let (offload, mut ports) = start(config, 1, after_self_test(lie, 1));
    // Found the first time, except with a probability of 1/256.
    let job = Job::new(Operation::Multiply, 32, 16, 64);
    for tag in 0..5 {
        let offered = ports[0].offer(job, tag, Instant::now(), |_| ());
        ports[0].flush();
        let begun = Instant::now();
        while offered.is_ok() && ports[0].poll(|_| ()) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "lost");
            thread::yield_now();
        }
        if offload.metrics().redone[Fault::Wrong as usize] > 0 {
            assert!(offload.metrics().device_downs > 0);
            return;
        }
    }
    panic!("five lies went unnoticed");
}

#[test]
fn device_that_cannot_be_opened_is_tried_again_until_it_can() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let open: OpenEngine = Arc::new(move || {
        if counted.fetch_add(1, Ordering::Relaxed) < 3 {
            return Err(Error::Lost { call: "open", code: 100, reason: "no device".into() });
        }
        Ok(Box::new(cpu()?))
    });
    let (offload, mut ports) = Offload::start(config(), 1, open).expect("threads");
    let job = Job::new(Operation::Multiply, 4, 4, 64);
    assert_eq!(ports[0].offer(job, 0, Instant::now(), |_| ()), Err(Declined::Down));
    wait_until_up(&offload);
    assert_eq!(attempts.load(Ordering::Relaxed), 4);
    assert!(matches!(offload.why_down(), Some(Error::Lost { code: 100, .. })));
    one_job_comes_back(&mut ports[0]);
    assert_eq!(offload.metrics().device_jobs, 1);
}

#[test]
fn device_with_wrong_results_fails_its_self_test() {
    let lie = Faults { lie: 1.0, ..Faults::default() };
    let (offload, ports) = Offload::start(config(), 1, chaos(lie, 1)).expect("threads");
    let begun = Instant::now();
    while offload.why_down().is_none() && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(offload.why_down(), Some(Error::Lost { call: "self-test", .. })));
    assert_eq!(offload.metrics().device_ups, 0);
    drop(ports);
}

#[test]
fn full_queue_declines_at_once() {
    let hang = Faults { hang: 1.0, ..Faults::default() };
    let slow = Duration::from_secs(1);
    let config = Config { watchdog_min: slow, slots_per_port: 2, ..config() };
    let (offload, mut ports) = start(config, 1, after_self_test(hang, 1));
    let job = Job::new(Operation::Multiply, 4, 4, 64);
    for tag in 0..2 {
        assert_eq!(ports[0].offer(job, tag, Instant::now(), |_| ()), Ok(()));
        ports[0].flush();
    }
    assert_eq!(ports[0].offer(job, 2, Instant::now(), |_| ()), Err(Declined::Full));
    assert_eq!(offload.metrics().redone, [0; Fault::ALL.len()], "it waited");
    assert_eq!(offload.metrics().declined[Declined::Full as usize], 1);
    // Stopping waits for the watchdog; nothing is lost.
    offload.stop();
    assert_eq!((0..4).map(|_| ports[0].poll(|_| ())).sum::<usize>(), 2);
}

#[test]
fn slots_are_handed_over_by_bytes_age_idleness_and_flush() {
    let config = Config { bundle_bytes: 40_000, bundle_age: Duration::from_millis(50), ..config() };
    let (offload, mut ports) = start(config, 1, after_self_test(Faults::default(), 1));
    let port = &mut ports[0];
    let now = Instant::now();
    // 64 source and 64 destination rows of 128 bytes and 4 KiB of coefficients: 20 KiB.
    let job = Job::new(Operation::Multiply, 64, 64, 100);
    for tag in 0..2 {
        port.offer(job, tag, now, |_| ()).expect("taken");
    }
    let closed = |close: Close| offload.metrics().closed[close as usize];
    assert_eq!(closed(Close::Bytes), 1);
    wait_for(port, 2);
    port.offer(job, 2, now, |_| ()).expect("taken");
    assert_eq!(port.deadline(), Some(now + Duration::from_millis(50)));
    port.tick(now + Duration::from_millis(40));
    assert_eq!(closed(Close::Age), 0);
    port.tick(now + Duration::from_millis(50));
    assert_eq!(closed(Close::Age), 1);
    wait_for(port, 1);
    port.offer(job, 3, now, |_| ()).expect("taken");
    port.flush();
    assert_eq!(closed(Close::Flush), 1);
    wait_for(port, 1);
    offload.stop();

    // A device that starts at once takes all waiting jobs when it is idle.
    let rates = Rates { cpu_products: 1e6, device_bytes: 1e12, device_start: 1e-9 };
    let config = Config { rates, ..self::config() };
    let (offload, mut ports) = start(config, 1, after_self_test(Faults::default(), 1));
    ports[0].offer(job, 4, now, |_| ()).expect("taken");
    assert_eq!(offload.metrics().closed[Close::Idle as usize], 1);
    wait_for(&mut ports[0], 1);
}

#[test]
fn offers_are_declined_for_their_reasons() {
    let rates = Rates { cpu_products: 1e9, device_bytes: 1e9, device_start: 20e-6 };
    let auto = Config { mode: Mode::Auto, rates, ..config() };
    let (offload, mut ports) = start(auto.clone(), 4, after_self_test(Faults::default(), 1));
    let now = Instant::now();
    let mut offer = |job| ports[0].offer(job, 0, now, |_| ());
    let job = |columns, bytes| Job::new(Operation::Multiply, columns, columns, bytes);
    // 3.3 x 4 workers.
    assert_eq!(offer(job(13, 1000)), Err(Declined::Rows));
    assert_eq!(offer(job(14, 64)), Err(Declined::Cost), "20 us for 13 k products is too long");
    assert_eq!(offer(job(128, 800)), Ok(()), "3.3 ms of four cores in 0.3 ms");
    assert_eq!(offer(job(128, 1 << 20)), Err(Declined::Size));
    assert_eq!(offer(job(0, 10)), Err(Declined::Size));
    offload.set_mode(Mode::Cpu);
    assert_eq!(offer(job(128, 800)), Err(Declined::Off));
    offload.set_mode(Mode::Device);
    assert_eq!(offer(job(13, 800)), Ok(()));
    drop(offload);

    let slow = Rates { device_bytes: 1e6, ..rates };
    let config = Config { rates: slow, ..auto };
    let (_offload, mut ports) = start(config, 4, after_self_test(Faults::default(), 1));
    assert_eq!(ports[0].offer(job(128, 800), 0, now, |_| ()), Err(Declined::Late));
}

#[test]
fn rates_are_measured_when_a_device_is_opened() {
    let measured = Config { measure: true, ..config() };
    let nothing = Rates { cpu_products: 0.0, device_bytes: 0.0, device_start: 0.0 };
    let config = Config { rates: nothing, ..measured };
    let (offload, mut ports) = start(config, 1, Arc::new(|| Ok(Box::new(cpu()?))));
    for class in Class::ALL {
        let Rates { cpu_products, device_bytes, device_start } = offload.model().rates(class);
        println!("{:4}: {cpu_products:.3e} {device_bytes:.3e} {device_start:.1e}", class.columns());
        assert!([cpu_products, device_bytes, device_start].iter().all(|rate| *rate > 0.0));
    }
    one_job_comes_back(&mut ports[0]);
}

#[test]
fn slot_handed_over_after_the_end_is_done_by_its_worker() {
    let (offload, mut ports) = start(config(), 1, after_self_test(Faults::default(), 1));
    let mut random = random();
    let (job, inputs) = random_job(&mut random);
    ports[0].offer(job, 7, Instant::now(), |to| inputs.write(&job, to)).expect("taken");
    offload.stop();
    assert_eq!(ports[0].offer(job, 8, Instant::now(), |_| ()), Err(Declined::Down));
    ports[0].flush();
    let mut expected = HashMap::from([(7, inputs.result(&job))]);
    assert_eq!(ports[0].poll(|delivered| check(&mut expected, &delivered)), 1);
}

fn config() -> Config {
    Config {
        mode: Mode::Device,
        slots_per_port: 3,
        slot_bytes: 128 << 10,
        slot_jobs: 8,
        bundle_bytes: 64 << 10,
        // Longer than a busy machine keeps a thread from running.
        watchdog_min: Duration::from_millis(500),
        hang_min: Duration::from_millis(1000),
        // A device may hang in its self-test, too.
        open_timeout: Duration::from_millis(300),
        retry_min: Duration::from_millis(1),
        retry_max: Duration::from_millis(4),
        hangs_max: u32::MAX,
        spot_check: SpotCheck::All,
        measure: false,
        ..Config::default()
    }
}

fn start(config: Config, workers: usize, open: OpenEngine) -> (Offload, Vec<Port>) {
    let (offload, ports) = Offload::start(config, workers, open).expect("threads");
    wait_until_up(&offload);
    (offload, ports)
}

fn wait_until_up(offload: &Offload) {
    wait_until(offload, |metrics| metrics.device_ups > 0);
}

fn wait_until(offload: &Offload, is_so: impl Fn(&EngineCounters) -> bool) {
    let begun = Instant::now();
    while !is_so(&offload.metrics()) {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", offload.why_down());
        thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for(port: &mut Port, jobs: usize) {
    let (begun, mut done) = (Instant::now(), 0);
    while done < jobs {
        assert!(begun.elapsed() < Duration::from_secs(10), "{done} of {jobs} jobs came back");
        done += port.poll(|_| ());
        thread::sleep(Duration::from_micros(100));
    }
}

fn one_job_comes_back(port: &mut Port) {
    let mut random = random();
    let (job, inputs) = random_job(&mut random);
    port.offer(job, 7, Instant::now(), |to| inputs.write(&job, to)).expect("taken");
    port.flush();
    let mut expected = HashMap::from([(7, inputs.result(&job))]);
    let begun = Instant::now();
    while port.poll(|delivered| check(&mut expected, &delivered)) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "lost");
        thread::sleep(Duration::from_micros(100));
    }
}

fn chaos(faults: Faults, seed: u64) -> OpenEngine {
    let opened = AtomicUsize::new(0);
    Arc::new(move || {
        let seed = seed.wrapping_add(opened.fetch_add(1, Ordering::Relaxed) as u64);
        Ok(Box::new(Chaos::new(cpu()?, faults, seed)))
    })
}

struct Given {
    coefficients: Vec<u8>,
    sources: Vec<u8>,
}

type Rows = Result<Vec<Vec<u8>>, usize>;

impl Given {
    fn write(&self, job: &Job, mut to: Inputs<'_>) {
        for (row, coefficients) in self.coefficients.chunks_exact(job.columns).enumerate() {
            to.coefficients(row).copy_from_slice(coefficients);
        }
        for (row, source) in self.sources.chunks_exact(job.row_bytes).enumerate() {
            to.source(row).copy_from_slice(source);
        }
    }

    /// The CPU's result.
    fn result(&self, job: &Job) -> Rows {
        let mut bundle = Bundle::of(*job).expect("valid");
        if !self.coefficients.is_empty() {
            bundle.set_coefficients(0, &self.coefficients);
        }
        for (row, source) in self.sources.chunks_exact(job.row_bytes).enumerate() {
            bundle.source_mut(0, row).copy_from_slice(source);
        }
        Cpu::new(1, Partition::FullBlock).expect("threads").run(&mut bundle);
        let row = |row| bundle.destination(0, row).map(<[u8]>::to_vec).map_err(|e| e.column);
        (0..job.rows).map(row).collect()
    }
}

fn result(delivered: &Delivered<'_>) -> Rows {
    let row = |row| delivered.destination(row).map(<[u8]>::to_vec).map_err(|e| e.column);
    (0..delivered.job().rows).map(row).collect()
}

fn random_job(random: &mut ChaCha8Rng) -> (Job, Given) {
    let mut below = |limit: u32| 1 + (random.next_u32() % limit) as usize;
    let (rows, columns, row_bytes) = (below(20), below(20), below(1000));
    let (kind, mask) = (below(3), if below(2) == 1 { 1 } else { 255 });
    let job = match kind {
        1 => Job::new(Operation::Multiply, rows, columns, row_bytes),
        2 => Job::new(Operation::Solve, columns, columns, row_bytes),
        _ => Job::invert(columns),
    };
    let mut coefficients = vec![0; job.rows * job.columns];
    random.fill_bytes(&mut coefficients);
    coefficients.iter_mut().for_each(|c| *c &= mask);
    let sources = if job.operation.has_sources() { columns * row_bytes } else { 0 };
    let mut sources = vec![0; sources];
    random.fill_bytes(&mut sources);
    (job, Given { coefficients, sources })
}

fn share(random: &mut ChaCha8Rng, limit: f64) -> f64 {
    // Half of the faults do not occur in a round, so that others are not hidden by them.
    match random.next_u32() {
        word if word.is_multiple_of(2) => 0.0,
        word => f64::from(word) / f64::from(u32::MAX) * limit,
    }
}

fn random() -> ChaCha8Rng {
    let given = std::env::var("RECODED_SEED").ok().and_then(|text| text.parse().ok());
    let clock =
        std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let seed = given.unwrap_or(clock);
    println!("RECODED_SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}
