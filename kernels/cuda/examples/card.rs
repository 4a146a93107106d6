//! Measurements of a first run on a card other than its speed: one-time costs, and the driver's
//! response to a faulty kernel. `scripts/gpu-run` calls it; each command prints one line of JSON.
//!
//!   card probe     properties of the card
//!   card first     seconds of cuInit, context, image, first launches, pinning
//!   card stray     a kernel writes far beyond its memory: can this process use the card again?
//!   card endless   a kernel does not end: can a new process use it? does this end?
//!   card time TECHNIQUE multiply|solve N BYTES JOBS
//!                  seconds of JOBS products (or solutions) of N symbols of BYTES bytes there,
//!                  launch by launch; TECHNIQUE `auto` chooses as usual
//!
//! Exits with 3 without a working card.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use recoded_code::engine::{self, Bundle, Operation};
use recoded_cuda::{BareCard, CudaEngine, Geometry, Job, OpenError, Options, probe, self_test};
use serde_json::{Value, json};

const NO_CARD: u8 = 3;
const TIMEOUT: Duration = Duration::from_secs(120);

/// The same if another program may own the card.
const AGAIN: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let found = Options::find().map_err(|error| error.to_string());
    // The first use in a process is measured by `first`, in this one.
    let found = found.and_then(|options| match probe(&options, TIMEOUT) {
        Ok(info) => Ok((options, info)),
        Err(error) => Err(error.to_string()),
    });
    let (options, info) = match found {
        Ok(found) => found,
        Err(why) => {
            println!("{}", json!({ "card": null, "why": why }));
            return ExitCode::from(NO_CARD);
        }
    };
    let report = match command.as_str() {
        "probe" => json!({
            "card": info.name,
            "capability": info.capability,
            "multiprocessors": info.multiprocessors,
            "memory_bytes": info.memory_bytes,
            "driver": info.driver,
        }),
        "first" => first(&options),
        "stray" => stray(&options),
        "endless" => endless(&options),
        "time" => match time(options, &std::env::args().skip(2).collect::<Vec<_>>()) {
            Ok(report) => report,
            Err(why) => json!({ "error": why }),
        },
        _ => {
            eprintln!("usage: card probe|first|stray|endless|time; the head of card.rs has all");
            return ExitCode::FAILURE;
        }
    };
    println!("{report}");
    if report.get("error").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn first(options: &Options) -> Value {
    match BareCard::first_use(options) {
        Ok(used) => json!({
            "init_seconds": used.init,
            "context_seconds": used.context,
            "image_seconds": used.module,
            "launch_seconds": used.launches,
            "pinning": used.pinning.iter().map(|(bytes, fresh, touched)| {
                json!({ "bytes": bytes, "fresh_seconds": fresh, "touched_seconds": touched })
            }).collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// Runs a kernel over one job, and reports the driver's error.
fn fails(options: &Options, kernel: &str, job: Job, timeout: Duration) -> Result<Value, OpenError> {
    let mut card = BareCard::open(options, 1 << 20)?;
    card.fill_tables()?;
    let geometry = Geometry::of(kernel).ok_or(OpenError::Wrong)?;
    let begun = Instant::now();
    // SAFETY: none is claimed: the driver must report the fault, and the context ends with it.
    let result = unsafe { card.launch(kernel, geometry, 1, &[job], timeout) };
    let seconds = begun.elapsed().as_secs_f64();
    let said = result.err().map(|error| error.to_string());
    let begun = Instant::now();
    drop(card);
    Ok(json!({ "said": said, "seconds": seconds, "end_seconds": begun.elapsed().as_secs_f64() }))
}

fn fault(options: &Options, kernel: &str, job: Job, timeout: Duration) -> Value {
    match fails(options, kernel, job, timeout) {
        Ok(failed) => {
            json!({ "kernel": kernel, "fault": failed, "new_process": said(probe(options, AGAIN)) })
        }
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// The outcome, in words.
fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.err().map_or("works".into(), |error| error.to_string())
}

fn stray(options: &Options) -> Value {
    // A terabyte beyond the arena.
    let job = Job { destinations: 1 << 40, symbol_bytes: 1024, rows: 1, ..Job::default() };
    let job = Job { depth: 1, destination_stride: 1024, ..job };
    let mut report = fault(options, "probe_logic", job, TIMEOUT);
    let begun = Instant::now();
    let opened = CudaEngine::open(options);
    report["here"] = said(opened.and_then(|mut engine| self_test(&mut engine, AGAIN))).into();
    report["here_seconds"] = begun.elapsed().as_secs_f64().into();
    report
}

fn endless(options: &Options) -> Value {
    let job = Job { symbol_bytes: 1024, destination_stride: 1024, rows: 1, ..Job::default() };
    // A round takes some 100 clocks: minutes. This process does not retry: calls of the driver may
    // not return meanwhile (they did not on an H200).
    fault(options, "probe_logic", Job { depth: u32::MAX, ..job }, Duration::from_secs(3))
}

/// How fast one technique does jobs of one shape.
fn time(options: Options, arguments: &[String]) -> Result<Value, String> {
    let [technique, operation, numbers @ ..] = arguments else {
        return Err("a technique, an operation, symbols, bytes and jobs are needed".into());
    };
    let numbers: Result<Vec<usize>, _> = numbers.iter().map(|number| number.parse()).collect();
    let Ok([n, bytes, jobs]) = numbers.as_deref() else {
        return Err("symbols, bytes and jobs are three numbers".into());
    };
    let operation = match operation.as_str() {
        "multiply" => Operation::Multiply,
        "solve" => Operation::Solve,
        other => return Err(format!("no such operation: {other}")),
    };
    let options = options.with_technique(technique).map_err(|error| error.to_string())?;
    let mut engine = CudaEngine::open(&options).map_err(|error| error.to_string())?;
    let job = engine::Job::new(operation, *n, *n, *bytes);
    let mut bundle = Bundle::new(jobs * job.input_bytes(), jobs * job.output_bytes(), *jobs);
    let mut state = 1_u32;
    for number in 0..*jobs {
        bundle.push(job, number as u64).map_err(|error| error.to_string())?;
        for row in 0..*n {
            for byte in bundle.coefficients_mut(number, row) {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
            bundle.source_mut(number, row).fill(row as u8);
        }
    }
    let chosen = engine.technique(&job).name;
    let (_, timings) =
        engine.measure(bundle, SAMPLE).map_err(|refused| refused.error.to_string())?;
    let made = (jobs * n * bytes) as f64;
    Ok(json!({
        "technique": chosen, "n": n, "bytes": bytes, "jobs": jobs,
        "gigabytes_per_second": made / timings.device / 1e9,
        "device_seconds": timings.device,
        "stages": timings.stages,
    }))
}

/// Repetition time of each part.
const SAMPLE: Duration = Duration::from_millis(5);
