//! Segments that stay on a card, and measurements of a card, against the stand-in for libcuda. Each
//! test runs itself in a child process that finds that library.
//!
//! `RECODED_SEED` repeats a run; the seed is printed.

mod common;

use common::{PATIENCE, cpu, random, wait};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use recoded_code::engine::{Bundle, Completed, Engine, Error, Job, Operation, Segment, check};
use recoded_cuda::{CudaEngine, Direction, Options, Progressive, TECHNIQUES, opener};
use recoded_gf::FieldOrder;
use recoded_offload::{By, Config, Device, Mode, SpotCheck};

#[test]
fn bundles_over_a_kept_segment_match_the_cpu() {
    in_child("bundles_over_a_kept_segment_match_the_cpu", &[], || {
        for technique in ["auto", "table-5", "bmma"] {
            let mut random = random();
            let mut engine = open(technique);
            let sizes = [(40, 1000), (128, 64), (3, 1500)];
            let segments = sizes.map(|(rows, bytes)| segment(rows, bytes, &mut random));
            for segment in &segments[..2] {
                assert_eq!((engine.keep(segment), engine.keep(segment)), (Ok(()), Ok(())));
            }
            let bytes = segments[..2].iter().map(|segment| segment.bytes() as u64).sum::<u64>();
            assert_eq!(engine.kept_bytes(), bytes);
            // For the third one, bundles bring the rows along.
            for segment in segments.iter().cycle().take(9) {
                engine.submit(request(segment, &mut random)).expect("has room");
                let Completed { bundle, result } = wait(&mut engine);
                assert_eq!(result, Ok(()));
                assert!(check::agrees(&bundle), "{technique}");
            }
        }
    });
}

#[test]
fn segment_without_holder_is_freed() {
    // Half of the memory is for segments: 100 KB of each.
    let variables = [("STANDIN_MEMORY", "500000")];
    in_child("segment_without_holder_is_freed", &variables, || {
        let mut random = random();
        let mut engine = open("auto");
        let mut segments: Vec<_> = (0..3).map(|_| segment(100, 1000, &mut random)).collect();
        assert_eq!(segments[0].bytes(), 102_400);
        assert_eq!(engine.keep(&segments[0]), Ok(()));
        assert_eq!(engine.keep(&segments[1]), Ok(()));
        assert_eq!(engine.keep(&segments[2]), Err(Error::Memory { bytes: 102_400 }));
        // A bundle in flight holds its segment, even when all others drop it.
        let bundle = request(&segments[0], &mut random);
        drop(segments.remove(0));
        engine.submit(bundle).expect("is idle");
        let last = segment(100, 1000, &mut random);
        assert!(engine.keep(&last).is_err());
        let Completed { bundle, result } = wait(&mut engine);
        assert!(result.is_ok() && check::agrees(&bundle));
        drop(bundle);
        assert_eq!(engine.keep(&last), Ok(()));
        assert_eq!(engine.kept_bytes(), 2 * 102_400);
    });
}

#[test]
fn card_that_fails_while_it_keeps_says_so_and_the_cpu_serves() {
    let faults = [
        // The fault, and whether the card is lost.
        ("cuMemAlloc_v2@2=2", false),
        ("cuMemcpyHtoDAsync_v2@1=1", false),
        ("cuMemcpyHtoDAsync_v2@1=719", true),
        ("cuStreamCreate@9=719", true),
        ("cuEventRecord@2=700", true),
    ];
    for (fault, is_lost) in faults {
        let name = "card_that_fails_while_it_keeps_says_so_and_the_cpu_serves";
        in_child(name, &[("STANDIN_FAULTS", fault)], || {
            let mut random = random();
            let mut engine = open("auto");
            let segment = segment(40, 1000, &mut random);
            let error = engine.keep(&segment).expect_err("it fails");
            assert_eq!(error.is_fatal(), is_lost, "{fault}: {error}");
            let bundle = request(&segment, &mut random);
            match engine.submit(bundle) {
                Ok(()) => {
                    assert!(!is_lost);
                    let Completed { bundle, result } = wait(&mut engine);
                    assert!(result.is_ok() && check::agrees(&bundle));
                }
                Err(refused) => {
                    assert!(is_lost && refused.error.is_fatal());
                    let mut bundle = *refused.bundle;
                    cpu().run(&mut bundle);
                    assert!(check::agrees(&bundle));
                }
            }
        });
    }
}

#[test]
fn streaming_server_serves_through_faults() {
    let faults = [
        "",
        "cuMemcpyDtoDAsync_v2@2=719",
        "cuMemcpyDtoDAsync_v2@2=1,cuMemAlloc_v2@3=2",
        "kernel@9=700,kernel@20=wrong",
        "cuMemcpyHtoDAsync_v2@6=719",
    ];
    for fault in faults {
        let variables = [
            ("STANDIN_FAULTS", fault),
            ("STANDIN_DELAY_MICROS", "100"),
            ("STANDIN_STICKY", "context"),
        ];
        in_child("streaming_server_serves_through_faults", &variables, || {
            let mut random = random();
            let config = Config {
                mode: Mode::Device,
                measure: false,
                watchdog_min: Duration::from_millis(500),
                retry_min: Duration::from_millis(1),
                spot_check: SpotCheck::All,
                ..Config::default()
            };
            let device = Device::new(config, Arc::new(opener(options("auto"), PATIENCE)));
            let sizes = [(40, 1000), (16, 300)];
            let segments = sizes.map(|(rows, bytes)| segment(rows, bytes, &mut random));
            segments.iter().for_each(|segment| device.keep(segment));
            let (cpu, mut by) = (cpu(), Vec::new());
            for round in 0..6 {
                let bundles = (0..3).map(|n| request(&segments[(round + n) % 2], &mut random));
                for (bundle, who) in device.run(bundles.collect(), &cpu) {
                    assert!(check::agrees(&bundle));
                    by.push(who);
                }
                thread::sleep(Duration::from_millis(2));
            }
            println!("{fault}: {by:?} {:?}", device.why_down());
            assert!(by.contains(&By::Device));
            assert_eq!(by.contains(&By::Cpu), !fault.is_empty());
        });
    }
}

#[test]
fn parts_of_a_bundle_are_measured_and_its_results_right() {
    in_child("parts_of_a_bundle_are_measured_and_its_results_right", &[], || {
        let mut random = random();
        for technique in TECHNIQUES {
            let mut engine = open(technique.name);
            let bundle = check::sample(random.next_u64());
            let (bundle, timings) = engine.measure(bundle, MOMENT).expect("works");
            assert!(check::agrees(&bundle), "{}", technique.name);
            let kernels: Vec<_> = timings.stages.iter().map(|(kernel, _)| *kernel).collect();
            assert_eq!(kernels[..2], ["random_coefficients", "invert"]);
            assert_eq!(kernels.last(), Some(&technique.kernel));
            let times = timings.stages.iter().map(|(_, seconds)| *seconds);
            let copies = [timings.copy_in, timings.copy_out, timings.device];
            assert!(times.chain(copies).all(|seconds| seconds > 0.0));
            // It continues as usual.
            engine.submit(bundle).expect("is idle");
            assert!(check::agrees(&wait(&mut engine).bundle));
        }
    });
}

#[test]
fn card_itself_is_measured() {
    in_child("card_itself_is_measured", &[], || {
        let mut engine = open("auto");
        for direction in [Direction::In, Direction::Out, Direction::Both] {
            for is_pinned in [false, true] {
                let seconds = engine.copy_seconds(direction, 10_000, is_pinned, MOMENT);
                assert!(seconds.expect("works") > 0.0);
            }
        }
        let cost = engine.launch_cost(MOMENT).expect("works");
        assert!(cost.interval > 0.0 && cost.latency > 0.0);
        let rates = engine.issue_rates(1, MOMENT).expect("works");
        assert!(rates.instructions > 0.0 && rates.accesses > 0.0);
        assert!(rates.products > 0.0 && rates.wide_products > 0.0);
        engine.submit(check::sample(3)).expect("is idle");
        assert!(matches!(engine.launch_cost(MOMENT), Err(Error::Busy { .. })));
        assert!(check::agrees(&wait(&mut engine).bundle));
    });
}

#[test]
fn generations_decode_row_by_row() {
    in_child("generations_decode_row_by_row", &[], || {
        let mut random = random();
        let mut engine = open("auto");
        for how in [Progressive::Card, Progressive::Buffered, Progressive::Assisted] {
            for (size, bytes) in [(16, 1200), (21, 77)] {
                let mut bundle =
                    Bundle::of(Job::new(Operation::Solve, size, size, bytes)).expect("valid");
                (0..size).for_each(|row| random.fill_bytes(bundle.coefficients_mut(0, row)));
                (0..size).for_each(|row| random.fill_bytes(bundle.source_mut(0, row)));
                let (bundle, seconds) = engine.decode_progressively(bundle, how).expect("works");
                assert!(seconds > 0.0);
                let mut expected = bundle.retain().restore();
                cpu().run(&mut expected);
                assert_eq!(bundle.outcome(0).is_ok(), expected.outcome(0).is_ok());
                if expected.outcome(0).is_ok() {
                    for row in 0..size {
                        assert_eq!(bundle.destination(0, row), expected.destination(0, row));
                    }
                }
            }
        }
        let other = Bundle::of(Job::new(Operation::Multiply, 4, 4, 16)).expect("valid");
        let refused = engine.decode_progressively(other, Progressive::Card).expect_err("no Solve");
        assert!(matches!(refused.error, Error::Unsupported { .. }));
    });
}

#[test]
fn card_that_fails_while_it_is_measured_is_lost_or_goes_on() {
    let faults = [
        ("cuLaunchKernel@4=719", true),
        ("cuLaunchKernel@4=701", false),
        ("kernel@5=700", true),
        ("cuMemcpyDtoHAsync_v2@1=719", true),
        ("cuMemcpyHtoDAsync_v2@1=1", false),
        ("cuEventRecord@3=719", true),
    ];
    for (fault, is_lost) in faults {
        let name = "card_that_fails_while_it_is_measured_is_lost_or_goes_on";
        in_child(name, &[("STANDIN_FAULTS", fault)], || {
            let mut engine = open("auto");
            let refused = engine.measure(check::sample(1), MOMENT).expect_err("it fails");
            assert_eq!(refused.error.is_fatal(), is_lost, "{fault}: {}", refused.error);
            assert_eq!(engine.launch_cost(MOMENT).is_ok(), !is_lost);
            assert_eq!(engine.submit(check::sample(1)).is_ok(), !is_lost);
        });
    }
}

/// A few coded symbols of a segment, by coefficients and by seeds, as peers request them.
fn request(segment: &Arc<Segment>, random: &mut ChaCha8Rng) -> Bundle {
    let mut bundle = Bundle::over(Arc::clone(segment), 40, 2);
    let seed = random.next_u32();
    let drawn = Operation::Combine { seed, field: FieldOrder::TwoFiftySix };
    for operation in [Operation::Multiply, drawn] {
        let rows = 1 + random.next_u32() as usize % 20;
        let job = Job::new(operation, rows, segment.rows(), segment.row_bytes());
        let number = bundle.push(job, 0).expect("room");
        if operation.has_coefficients() {
            (0..rows).for_each(|row| random.fill_bytes(bundle.coefficients_mut(number, row)));
        }
    }
    bundle
}

fn segment(rows: usize, row_bytes: usize, random: &mut ChaCha8Rng) -> Arc<Segment> {
    let mut segment = Segment::new(rows, row_bytes).expect("of a possible size");
    (0..rows).for_each(|row| random.fill_bytes(segment.row_mut(row)));
    Arc::new(segment)
}

/// As [`common::in_child`], with the stand-in for libcuda.
fn in_child(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    let folder = recoded_cuda_standin::folder().display().to_string();
    common::in_child(test, &folder, variables, body);
}

fn options(technique: &str) -> Options {
    let options = Options::find().expect("the image is named");
    options.with_technique(technique).expect("its name")
}

fn open(technique: &str) -> CudaEngine {
    CudaEngine::open(&options(technique)).unwrap_or_else(|error| panic!("{error}"))
}

/// Nothing is fast here.
const MOMENT: Duration = Duration::from_micros(10);
