//! What a first run on a card finds out beside its speed: what is slow once, and what its driver
//! does when a kernel goes wrong. `scripts/gpu-run` calls it; each command prints one line of JSON.
//!
//!   card probe     what card there is
//!   card first     seconds of cuInit, context, image, first launches, pinning
//!   card stray     a kernel writes far beyond its memory: can this process use the card again?
//!   card endless   a kernel does not end: can this process use the card beside it?
//!
//! Exits with 3 where there is no card that works.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use recoded_cuda::{BareCard, CudaEngine, Geometry, Job, OpenError, Options, probe, self_test};
use serde_json::{Value, json};

const NO_CARD: u8 = 3;
const TIMEOUT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let found = Options::find().map_err(|error| error.to_string());
    // Whatever comes first in a process is measured by `first`, in this one.
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
        _ => {
            eprintln!("usage: card probe|first|stray|endless");
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

/// A kernel over one job, and what the driver says of it.
fn fails(options: &Options, kernel: &str, job: Job, timeout: Duration) -> Result<Value, OpenError> {
    let mut card = BareCard::open(options, 1 << 20)?;
    card.fill_tables()?;
    let geometry = Geometry::of(kernel).ok_or(OpenError::Wrong)?;
    let begun = Instant::now();
    // SAFETY: none is claimed: the driver is to say what comes of it, and the context ends with it.
    let result = unsafe { card.launch(kernel, geometry, 1, &[job], timeout) };
    let seconds = begun.elapsed().as_secs_f64();
    let said = result.err().map(|error| error.to_string());
    let begun = Instant::now();
    drop(card);
    Ok(json!({ "said": said, "seconds": seconds, "end_seconds": begun.elapsed().as_secs_f64() }))
}

/// Whether this process can use the card, and whether a new one can.
fn again(options: &Options) -> Value {
    let begun = Instant::now();
    let opened = CudaEngine::open(options);
    let here = opened.and_then(|mut engine| self_test(&mut engine, TIMEOUT));
    let here_seconds = begun.elapsed().as_secs_f64();
    json!({
        "here": here.err().map_or("works".into(), |error| error.to_string()),
        "here_seconds": here_seconds,
        "new_process": probe(options, TIMEOUT).err().map_or("works".into(), |e| e.to_string()),
    })
}

fn fault(options: &Options, kernel: &str, job: Job, timeout: Duration) -> Value {
    match fails(options, kernel, job, timeout) {
        Ok(failed) => json!({ "kernel": kernel, "fault": failed, "again": again(options) }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

fn stray(options: &Options) -> Value {
    // A terabyte beyond the arena.
    let job = Job { destinations: 1 << 40, symbol_bytes: 1024, rows: 1, ..Job::default() };
    fault(options, "probe_logic", Job { depth: 1, destination_stride: 1024, ..job }, TIMEOUT)
}

fn endless(options: &Options) -> Value {
    let job = Job { symbol_bytes: 1024, destination_stride: 1024, rows: 1, ..Job::default() };
    // A round takes some 100 clocks: minutes.
    fault(options, "probe_logic", Job { depth: u32::MAX, ..job }, Duration::from_secs(3))
}
