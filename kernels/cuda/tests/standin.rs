//! The whole host side, real cudarc included, against a stand-in for libcuda that runs the kernels
//! on this CPU and fails on request. Each test runs itself in a child process that finds that
//! library.
//!
//! `RECODED_SEED` repeats a run of the random ones; the seed is printed.

mod common;

use common::{PATIENCE, cpu, random, wait};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use recoded_code::engine::{
    Bundle, Completed, Engine, Error, Job, Operation, Refused, Segment, check,
};
use recoded_code::reed_solomon::ReedSolomon;
use recoded_cuda::{CompileError, CudaEngine, OpenError, Options, TECHNIQUES, opener, self_test};
use recoded_gf::FieldOrder;
use recoded_offload::gibraltar::Context;
use recoded_offload::{By, Config, Device, Fault, Mode, Offload, SpotCheck};

#[test]
fn every_technique_matches_the_cpu() {
    in_child("every_technique_matches_the_cpu", &[], || {
        for technique in TECHNIQUES {
            let options = options().with_technique(technique.name).expect("its name");
            let mut engine = open(&options);
            self_test(&mut engine, PATIENCE).unwrap_or_else(|e| panic!("{}: {e}", technique.name));
        }
    });
}

/// The stand-in has four multiprocessors: one large matrix is shared by several blocks, two are
/// not, and both give the CPU's results, also without an inverse.
#[test]
fn few_large_matrices_are_inverted_by_several_blocks() {
    in_child("few_large_matrices_are_inverted_by_several_blocks", &[], || {
        let mut random = random();
        let mut engine = open(&options());
        let solve = Job::new(Operation::Solve, 300, 300, 100);
        let cases = [
            (vec![solve, Job::invert(20)], true),
            (vec![solve, Job::invert(20), Job::invert(256)], false),
        ];
        for (jobs, are_shared) in cases {
            for is_singular in [false, true] {
                let bytes = |of: fn(&Job) -> usize| jobs.iter().map(of).sum();
                let (input, output) = (bytes(Job::input_bytes), bytes(Job::output_bytes));
                let mut bundle = Bundle::new(input, output, jobs.len());
                for job in &jobs {
                    let number = bundle.push(*job, 0).expect("room");
                    fill_job(&mut bundle, number, &mut random);
                    for row in 0..if is_singular { job.rows } else { 0 } {
                        bundle.coefficients_mut(number, row)[job.rows / 2] = 0;
                    }
                }
                engine.submit(bundle).expect("taken");
                let Completed { bundle, result } = wait(&mut engine);
                assert_eq!(result, Ok(()));
                assert!(check::agrees(&bundle), "shared: {are_shared}, singular: {is_singular}");
                let is_right = |job| bundle.outcome(job).is_err() || !is_singular;
                assert!((0..jobs.len()).all(is_right));
                if is_singular || !are_shared {
                    continue; // measuring repeats each launch several times, which takes long
                }
                let moment = Duration::from_micros(1);
                let (bundle, timings) = engine.measure(bundle, moment).expect("works");
                assert!(check::agrees(&bundle));
                let has = |name| timings.stages.iter().any(|(kernel, _)| *kernel == name);
                assert!(has("invert") && has("invert_begin"), "{:?}", timings.stages);
            }
        }
    });
}

/// Shared memory beyond 48 KB must be requested, and each capability has a limit.
#[test]
fn techniques_keep_the_limits_of_every_capability() {
    for capability in ["75", "80", "86", "89", "90"] {
        let variables = [("STANDIN_CAPABILITY", capability)];
        in_child("techniques_keep_the_limits_of_every_capability", &variables, || {
            let number: u32 =
                std::env::var("STANDIN_CAPABILITY").expect("given").parse().expect("n");
            for technique in TECHNIQUES {
                let (from, to) = technique.capability;
                let opened = CudaEngine::open(&Options { technique: Some(technique), ..options() });
                match opened {
                    Ok(mut engine) => self_test(&mut engine, PATIENCE).expect(technique.name),
                    Err(error) => {
                        let expected = matches!(error, OpenError::Capability { .. });
                        assert!(expected && !(from..=to).contains(&number), "{error}");
                    }
                }
            }
        });
    }
}

/// The stand-in once accepted any launch.
#[test]
fn stand_in_refuses_shared_memory_that_was_not_asked_for() {
    use cudarc::driver::{result, sys};
    in_child("stand_in_refuses_shared_memory_that_was_not_asked_for", &[], || {
        let mut engine = open(&options());
        self_test(&mut engine, PATIENCE).expect("its context is current here");
        let attribute =
            sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the stand-in checks the shape of a launch before anything else.
        unsafe {
            let module = result::module::load_data([0_u8].as_ptr().cast()).expect("any image");
            let name = c"recoded_matmul_four_russians".to_owned();
            let function = result::module::get_function(module, name).expect("a kernel");
            let (bytes, stream) = (65_536, std::ptr::null_mut());
            let launch =
                || result::launch_kernel(function, (1, 1, 1), (512, 1, 1), bytes, stream, &mut []);
            let invalid = sys::CUresult::CUDA_ERROR_INVALID_VALUE;
            assert_eq!(launch().map_err(|error| error.0), Err(invalid));
            let ask = |bytes| {
                let asked = result::function::set_function_attribute(function, attribute, bytes);
                asked.map_err(|error| error.0)
            };
            assert_eq!(ask(1 << 20), Err(invalid));
            assert_eq!(ask(65_536), Ok(()));
        }
    });
}

/// Tables of jobs once took a separate copy, from memory too small to be pinned.
#[test]
fn small_bundle_is_one_copy() {
    let variables = [("STANDIN_FAULTS", "cuMemcpyHtoDAsync_v2@2+=1")];
    in_child("small_bundle_is_one_copy", &variables, || {
        let (mut engine, mut random) = (open(&options()), random());
        let mut bundle = |columns| {
            let job = Job::new(Operation::Multiply, 5, columns, 900);
            let mut bundle = Bundle::of(job).expect("valid");
            fill_job(&mut bundle, 0, &mut random);
            bundle
        };
        let (small, large) = (bundle(7), bundle(70));
        engine.submit(small).expect("taken");
        let Completed { bundle, result } = wait(&mut engine);
        assert_eq!(result, Ok(()));
        assert!(check::agrees(&bundle));
        engine.submit(large).expect("taken");
        assert!(wait(&mut engine).result.is_err(), "tables and input are two copies");
    });
}

/// A second engine once copied through the registration of the first one, which may end meanwhile.
#[test]
fn memory_that_another_engine_has_pinned_is_refused_until_that_one_ends() {
    let name = "memory_that_another_engine_has_pinned_is_refused_until_that_one_ends";
    in_child(name, &[], || {
        let (mut first, mut second) = (open(&options()), open(&options()));
        let segment = Arc::new(Segment::new(2, 5000).expect("rows"));
        first.submit(check::sample(1)).expect("taken");
        let Completed { bundle, result } = wait(&mut first);
        assert_eq!(result, Ok(()));
        let Refused { error, bundle } = second.submit(bundle).expect_err("pinned elsewhere");
        assert!(matches!(error, Error::Failed { code: 712, .. }), "{error}");
        // A segment is copied through unpinned memory.
        first.keep(&segment).expect("room");
        second.keep(&segment).expect("room");
        drop(first);
        second.submit(*bundle).expect("taken");
        let Completed { bundle, result } = wait(&mut second);
        assert_eq!(result, Ok(()));
        assert!(check::agrees(&bundle));
    });
}

#[test]
fn bundles_beside_each_other_match_the_cpu() {
    let variables = [("STANDIN_DELAY_MICROS", "300")];
    in_child("bundles_beside_each_other_match_the_cpu", &variables, || {
        let mut random = random();
        let mut engine = open(&options());
        assert_eq!(engine.depth(), 8);
        let (mut submitted, mut done, mut ready) = (0, 0, Vec::new());
        while done < 30 {
            if submitted < 30 {
                // Memory is reused, as by the queue.
                let mut bundle = ready.pop().unwrap_or_else(|| Bundle::new(1 << 18, 1 << 18, 4));
                fill(&mut bundle, &mut random);
                match engine.submit(bundle) {
                    Ok(()) => submitted += 1,
                    Err(Refused { error, bundle }) => {
                        assert_eq!(error, Error::Busy { depth: 8 });
                        ready.push(*bundle);
                    }
                }
            }
            let Some(Completed { bundle, result }) = engine.poll() else { continue };
            assert_eq!(result, Ok(()));
            assert!(check::agrees(&bundle));
            ready.push(bundle);
            done += 1;
        }
    });
}

#[test]
fn bundle_beyond_device_memory_is_refused_and_smaller_ones_go_on() {
    let variables = [("STANDIN_MEMORY", "1000000")];
    in_child("bundle_beyond_device_memory_is_refused_and_smaller_ones_go_on", &variables, || {
        let mut engine = open(&options());
        let large = Bundle::of(Job::new(Operation::Multiply, 8, 8, 100_000)).expect("valid");
        let refused = engine.submit(large).expect_err("too large");
        assert!(matches!(refused.error, Error::Memory { .. }), "{refused}");
        self_test(&mut engine, PATIENCE).expect("a small one");
    });
}

#[test]
fn launch_that_fails_harmlessly_fails_one_bundle() {
    // Launch 1 fills tables, launch 4 is in the middle of the self-test's.
    let variables = [("STANDIN_FAULTS", "cuLaunchKernel@4=701")];
    in_child("launch_that_fails_harmlessly_fails_one_bundle", &variables, || {
        let mut engine = open(&options());
        engine.submit(check::sample(1)).expect("taken");
        let Completed { result, .. } = wait(&mut engine);
        assert!(matches!(result, Err(Error::Failed { code: 701, .. })), "{result:?}");
        self_test(&mut engine, PATIENCE).expect("the next one");
    });
}

#[test]
fn lost_context_returns_all_bundles_and_is_made_again() {
    for fault in ["cuLaunchKernel@4=719", "kernel@4=700", "cuMemcpyDtoHAsync_v2@1=719"] {
        let name = "lost_context_returns_all_bundles_and_is_made_again";
        in_child(name, &[("STANDIN_FAULTS", fault), ("STANDIN_STICKY", "context")], || {
            let mut engine = open(&options());
            let mut given = 0;
            let mut back = 0;
            for seed in 0..3 {
                match engine.submit(check::sample(seed)) {
                    Ok(()) => given += 1,
                    Err(refused) => assert!(refused.error.is_fatal(), "{refused}"),
                }
            }
            let begun = Instant::now();
            while back < given {
                assert!(begun.elapsed() < PATIENCE, "{back} of {given} came back");
                let Some(Completed { result, .. }) = engine.poll() else { continue };
                assert!(result.is_ok_and(|()| true) || engine.submit(check::sample(1)).is_err());
                back += 1;
            }
            let refused = engine.submit(check::sample(1)).expect_err("lost");
            assert!(refused.error.is_fatal(), "{refused}");
            drop(engine);
            self_test(&mut open(&options()), PATIENCE).expect("a new context");
        });
    }
}

/// CUDA documents that the process must end after such errors. The queue once started a child for a
/// probe every five minutes indefinitely.
#[test]
fn error_that_outlives_its_context_ends_all_attempts() {
    let variables = [("STANDIN_FAULTS", "cuLaunchKernel@12=719")];
    in_child("error_that_outlives_its_context_ends_all_attempts", &variables, || {
        let config = Config {
            mode: Mode::Device,
            measure: false,
            retry_min: Duration::from_millis(1),
            ..Config::default()
        };
        let open = Arc::new(opener(options(), PATIENCE));
        let (offload, mut ports) = Offload::start(config, 1, open).expect("threads");
        let (port, begun, mut tag) = (&mut ports[0], Instant::now(), 0);
        while !offload.why_down().is_some_and(|error| error.needs_restart()) {
            assert!(begun.elapsed() < PATIENCE, "{:?}", offload.why_down());
            let job = Job::new(Operation::Multiply, 4, 40, 400);
            tag += u64::from(port.offer(job, tag, Instant::now(), |_| ()).is_ok());
            port.flush();
            port.poll(|_| ());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(offload.metrics().device_ups, 1);
        let why = offload.why_down().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("restart this program") && why.contains("719"), "{why}");
    });
}

#[test]
fn hung_kernel_is_left_behind_with_its_memory() {
    let name = "hung_kernel_is_left_behind_with_its_memory";
    in_child(name, &[("STANDIN_FAULTS", "kernel@3=hang")], || {
        let mut engine = open(&options());
        let (first, second) = (check::sample(1), check::sample(2));
        engine.submit(first).expect("taken");
        engine.submit(second).expect("taken");
        // One of the two has the kernel that hangs; the other one is returned.
        assert_eq!(wait(&mut engine).result, Ok(()));
        thread::sleep(Duration::from_millis(20));
        assert!(engine.poll().is_none());
        drop(engine);
        self_test(&mut open(&options()), PATIENCE).expect("the card has room for another context");
    });
}

#[test]
fn expected_matrix_gets_code_of_its_own() {
    in_child("expected_matrix_gets_code_of_its_own", &[], || {
        let code = ReedSolomon::new(10, 4).expect("a code");
        let mut engine = open(&options());
        engine.expect(code.generator(), 10);
        let mut random = random();
        let begun = Instant::now();
        // Compiled concurrently with the work.
        while engine.special_matrices() == 0 {
            assert!(begun.elapsed() < PATIENCE, "no code");
            multiply(&mut engine, code.generator(), 10, &mut random);
        }
        for _ in 0..3 {
            multiply(&mut engine, code.generator(), 10, &mut random);
        }
        // Another matrix of the same shape must not take that code.
        let other: Vec<u8> = code.generator().iter().rev().copied().collect();
        multiply(&mut engine, &other, 10, &mut random);
    });
}

#[test]
fn expected_matrix_compiles_with_the_real_compiler() {
    let Some(folder) = compiler_folder() else {
        println!("skipped: no run-time compiler in the build folder; scripts/cuda --fetch has it");
        return;
    };
    let name = "expected_matrix_compiles_with_the_real_compiler";
    in_child(name, &[("LD_LIBRARY_PATH", &libraries(&folder))], || {
        let code = ReedSolomon::new(10, 4).expect("a code");
        let mut engine = open(&options());
        engine.expect(code.generator(), 10);
        let (mut random, begun) = (random(), Instant::now());
        while engine.special_matrices() == 0 {
            assert_eq!(engine.why_not_special(), None);
            assert!(begun.elapsed() < PATIENCE, "no code");
            multiply(&mut engine, code.generator(), 10, &mut random);
        }
        multiply(&mut engine, code.generator(), 10, &mut random);
    });
}

/// Where `scripts/cuda` has put NVIDIA's run-time compiler.
fn compiler_folder() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let versions = std::fs::read_dir(target.join("cuda/toolchain/lib")).ok()?;
    let libraries = "site-packages/nvidia/cu13/lib";
    let mut folders = versions.flatten().map(|python| python.path().join(libraries));
    folders.find(|folder| folder.join("libnvrtc.so.13").is_file())
}

#[test]
fn matrix_that_does_not_compile_is_multiplied_all_the_same() {
    let name = "matrix_that_does_not_compile_is_multiplied_all_the_same";
    in_child(name, &[("STANDIN_NVRTC", "fail")], || {
        let mut engine = open(&options());
        let matrix: Vec<u8> = (0..40).collect();
        engine.expect(&matrix, 10);
        let begun = Instant::now();
        while engine.why_not_special().is_none() {
            assert!(begun.elapsed() < PATIENCE, "no word from the compiler");
            multiply(&mut engine, &matrix, 10, &mut random());
        }
        let refused = CompileError::Refused { function: "nvrtcCompileProgram", code: 6 };
        assert_eq!((engine.why_not_special(), engine.special_matrices()), (Some(&refused), 0));
    });
}

/// One product by the matrix, compared with this CPU.
fn multiply(engine: &mut CudaEngine, matrix: &[u8], columns: usize, random: &mut ChaCha8Rng) {
    let job = Job::new(Operation::Multiply, matrix.len() / columns, columns, 777);
    let mut bundle = Bundle::of(job).expect("valid");
    bundle.set_coefficients(0, matrix);
    (0..columns).for_each(|row| random.fill_bytes(bundle.source_mut(0, row)));
    engine.submit(bundle).expect("taken");
    let Completed { bundle, result } = wait(engine);
    assert_eq!(result, Ok(()));
    assert!(check::agrees(&bundle));
}

#[test]
fn stripes_on_a_card_are_right_and_lost_ones_recovered() {
    for fault in ["", "kernel@9=719", "cuLaunchKernel@12=hang"] {
        let name = "stripes_on_a_card_are_right_and_lost_ones_recovered";
        in_child(name, &[("STANDIN_FAULTS", fault), ("STANDIN_STICKY", "context")], || {
            let config = Config { mode: Mode::Device, measure: false, ..Config::default() };
            let device = Device::new(config, Arc::new(opener(options(), PATIENCE)));
            let mut context = Context::on(device.clone(), 4, 2).expect("a code");
            let mut random = random();
            let mut by = Vec::new();
            for _ in 0..4 {
                let mut stripes: Vec<_> =
                    (0..3).map(|_| context.alloc(3000).expect("a size")).collect();
                for buffers in &mut stripes {
                    (0..4).for_each(|row| random.fill_bytes(buffers.row_mut(row)));
                }
                by.extend(context.generate_all(&mut stripes).expect("of this code"));
                for buffers in &mut stripes {
                    let lost = [buffers.row(1).to_vec(), buffers.row(3).to_vec()];
                    // Parity replaces lost buffers.
                    for (place, parity) in [(1, 4), (3, 5)] {
                        let bytes = buffers.row(parity).to_vec();
                        buffers.row_mut(place).copy_from_slice(&bytes);
                    }
                    by.push(context.recover(buffers, &[0, 4, 2, 5, 1, 3]).expect("enough"));
                    assert_eq!(
                        [buffers.row(4), buffers.row(5)],
                        lost.each_ref().map(Vec::as_slice)
                    );
                }
            }
            println!("{fault}: {by:?} {:?}", device.why_down());
            assert_eq!(by.contains(&By::Cpu), !fault.is_empty());
            assert!(by.contains(&By::Device));
        });
    }
}

#[test]
fn queue_over_a_card_that_fails_gives_right_results() {
    let faults = [
        "",
        "cuLaunchKernel@25=719,cuLaunchKernel@60=701",
        "kernel@20=700,kernel@45=hang",
        "cuMemAlloc_v2@5=2,cuMemcpyHtoDAsync_v2@25=719",
        "cuEventRecord@12=719,cuStreamCreate@5=2",
        "cuLaunchKernel@30=hang",
        "kernel@22+=wrong,cuCtxDestroy_v2@1=hang",
    ];
    for fault in faults {
        let variables = [
            ("STANDIN_FAULTS", fault),
            ("STANDIN_DELAY_MICROS", "100"),
            ("STANDIN_CALL_MICROS", "5"),
            ("STANDIN_STICKY", "context"),
        ];
        in_child("queue_over_a_card_that_fails_gives_right_results", &variables, run_queue);
    }
}

fn run_queue() {
    let mut random = random();
    let config = Config {
        mode: Mode::Device,
        slots_per_port: 4,
        slot_bytes: 256 << 10,
        slot_jobs: 4,
        bundle_bytes: 32 << 10,
        measure: false,
        // The shim is slow, and so is this machine when all tests run.
        watchdog_min: Duration::from_millis(500),
        retry_min: Duration::from_millis(1),
        spot_check: SpotCheck::All,
        ..Config::default()
    };
    let open = Arc::new(opener(options(), PATIENCE));
    let (offload, mut ports) = Offload::start(config, 1, open).expect("threads");
    let begun = Instant::now();
    while offload.metrics().device_ups == 0 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", offload.why_down());
        thread::sleep(Duration::from_millis(1));
    }
    let (port, mut waiting) = (&mut ports[0], Vec::new());
    let is_wrong = std::env::var("STANDIN_FAULTS").is_ok_and(|faults| faults.contains("wrong"));
    let has_seen = || !is_wrong || offload.metrics().redone[Fault::Wrong as usize] > 0;
    let (mut tag, begun) = (0, Instant::now());
    // On a busy machine most are declined, and the card has not reached its fault after sixty.
    while tag < 60 || !has_seen() && begun.elapsed() < PATIENCE {
        tag += 1;
        let job = random_job(&mut random);
        let mut inputs = Bundle::of(job).expect("valid");
        fill_job(&mut inputs, 0, &mut random);
        let offered = port.offer(job, tag, Instant::now(), |mut to| {
            let rows = if job.operation.has_coefficients() { job.rows } else { 0 };
            (0..rows)
                .for_each(|row| to.coefficients(row).copy_from_slice(inputs.coefficients(0, row)));
            let rows = if job.operation.has_sources() { job.columns } else { 0 };
            (0..rows).for_each(|row| to.source(row).copy_from_slice(inputs.source(0, row)));
        });
        if offered.is_ok() {
            cpu().run(&mut inputs);
            waiting.push((tag, inputs));
        } else {
            thread::sleep(Duration::from_millis(3));
        }
        collect(port, &mut waiting);
    }
    port.flush();
    let begun = Instant::now();
    while !waiting.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{} jobs did not come back", waiting.len());
        collect(port, &mut waiting);
        thread::sleep(Duration::from_millis(1));
    }
    let metrics = offload.metrics();
    println!("{:?} {metrics:?} {:?}", std::env::var("STANDIN_FAULTS"), offload.why_down());
    assert_eq!(metrics.taken_jobs, metrics.device_jobs + metrics.redone.iter().sum::<u64>());
    assert!(metrics.device_jobs > 0);
    assert!(!is_wrong || metrics.redone[Fault::Wrong as usize] > 0);
    // A driver that never returns does not keep a queue from ending.
    drop(offload);
}

fn collect(port: &mut recoded_offload::Port, waiting: &mut Vec<(u64, Bundle)>) {
    port.poll(|delivered| {
        let found = waiting.iter().position(|(tag, _)| *tag == delivered.tag());
        let (_, expected) = waiting.swap_remove(found.expect("delivered once"));
        for row in 0..delivered.job().rows {
            assert_eq!(delivered.destination(row), expected.destination(0, row));
        }
    });
}

/// As [`common::in_child`], with the stand-ins for libcuda and libnvrtc.
fn in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    let libraries = libraries(recoded_cuda_standin::nvrtc_folder());
    common::in_child(test, &libraries, variables, body);
}

/// The stand-in for libcuda and a libnvrtc, for `LD_LIBRARY_PATH`.
fn libraries(nvrtc: &Path) -> String {
    format!("{}:{}", recoded_cuda_standin::folder().display(), nvrtc.display())
}

fn options() -> Options {
    Options::find().expect("the image is named")
}

fn open(options: &Options) -> CudaEngine {
    CudaEngine::open(options).unwrap_or_else(|error| panic!("{error}"))
}

fn fill(bundle: &mut Bundle, random: &mut ChaCha8Rng) {
    bundle.clear();
    for _ in 0..1 + random.next_u32() % 4 {
        let job = random_job(random);
        if let Ok(index) = bundle.push(job, 0) {
            fill_job(bundle, index, random);
        }
    }
}

fn fill_job(bundle: &mut Bundle, index: usize, random: &mut ChaCha8Rng) {
    let job = bundle.jobs()[index].job;
    // Bits instead of bytes make some matrices singular.
    let mask = if random.next_u32().is_multiple_of(4) { 1 } else { 255 };
    let rows = if job.operation.has_coefficients() { job.rows } else { 0 };
    for row in 0..rows {
        random.fill_bytes(bundle.coefficients_mut(index, row));
        bundle.coefficients_mut(index, row).iter_mut().for_each(|c| *c &= mask);
    }
    let rows = if job.operation.has_sources() { job.columns } else { 0 };
    (0..rows).for_each(|row| random.fill_bytes(bundle.source_mut(index, row)));
}

fn random_job(random: &mut ChaCha8Rng) -> Job {
    let mut below = |limit: u32| 1 + (random.next_u32() % limit) as usize;
    let (rows, columns, row_bytes) = (below(20), below(40), below(1500));
    let (field, seed) = (FieldOrder::ALL[below(4) - 1], below(1 << 30) as u32);
    match below(5) {
        1 => Job::new(Operation::Multiply, rows, columns, row_bytes),
        2 => Job::new(Operation::Solve, columns, columns, row_bytes),
        3 => Job::new(Operation::Combine { seed, field }, rows, columns, row_bytes),
        4 => Job::invert(columns),
        _ => Job::draw(seed, field, rows, columns),
    }
}
