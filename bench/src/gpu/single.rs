//! One job at a time: the size above which the card is faster than a number of cores, measured and
//! as estimated by the dispatcher.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Completed, Cpu, Engine, Error, Job, Operation, Partition};
use recoded_cuda::{CudaEngine, opener};
use recoded_offload::{Config, Device, Mode, Model, Rates};
use serde::Serialize;

use super::bed::{Bed, compare};
use super::coding::{CPU, HOST, done_by_cpu};
use super::rows::{Part, RowKey};
use crate::error::BenchError;

/// CPU or card, as `Device` decides.
pub const DISPATCHER: &str = "dispatcher";

/// Target of the dispatcher, as a share of the better of CPU and card.
pub const DISPATCHER_MIN: f64 = 0.95;

/// Break-even size: the smallest segment, in bytes, where the card is faster than the CPU.
#[derive(Clone, Debug, Serialize)]
pub struct BreakEven {
    /// Source symbols.
    pub n: usize,
    /// Cores of the CPU.
    pub cores: usize,
    /// Measured: the card was faster at this size and at all larger ones.
    pub measured: Option<usize>,
    /// Computed by the dispatcher's formula from the rates measured here.
    pub model: Option<u64>,
    /// Computed by it from its initial rates, except for the CPU's, which was measured here.
    pub before_measuring: Option<u64>,
}

/// Cores of the CPU that are tried.
pub fn cores(all: usize) -> Vec<usize> {
    let mut cores: Vec<usize> =
        (0..).map(|power| 1 << power).take_while(|&cores| cores < all).collect();
    cores.push(all);
    cores
}

/// Times of single jobs.
///
/// # Errors
/// If the card's result is wrong, or Linux grants no threads.
pub fn single(bed: &mut Bed) -> Result<(), BenchError> {
    let cpus = cores(bed.cpu.threads())
        .into_iter()
        .map(|cores| Cpu::new(cores, Partition::FullBlock))
        .collect::<Result<Vec<_>, _>>()
        .map_err(BenchError::Engine)?;
    for &n in bed.scale.sizes {
        for &bytes in bed.scale.jobs.iter().filter(|&&bytes| bytes / n >= SYMBOL_BYTES_MIN) {
            one_shape(bed, &cpus, n, bytes)?;
        }
        bed.bar.inc(1);
    }
    dispatched(bed)
}

fn one_shape(bed: &mut Bed, cpus: &[Cpu], n: usize, bytes: usize) -> Result<(), BenchError> {
    let mut bundle = Some(bed.bundle(Job::new(Operation::Multiply, n, n, bytes / n), 1)?);
    let mut expected = bundle.iter().map(|bundle| done_by_cpu(bed, bundle)).collect::<Vec<_>>();
    let place = |of| RowKey { part: Part::Single, n, bytes, of };
    for _ in 0..bed.rounds() {
        for cpu in cpus {
            let seconds = bed.seconds(|| cpu.run(&mut expected[0]));
            bed.rows.sample(place(cpu.threads()), CPU, bytes as f64 / seconds);
        }
        let (Some(card), Some(own)) = (&mut bed.card, bundle.take()) else { continue };
        card.set_technique(None);
        match latency(card, own, bed.scale.sample) {
            Ok((own, seconds)) => {
                compare("single job", "auto", std::slice::from_ref(&own), &expected)?;
                bundle = Some(own);
                bed.rows.sample(place(0), HOST, bytes as f64 / seconds);
            }
            Err(error) => bed.note("single job", &error),
        }
    }
    Ok(())
}

/// Seconds from submitting a bundle until it returns, alone on the card.
fn latency(
    card: &mut CudaEngine,
    mut bundle: Bundle,
    time: Duration,
) -> Result<(Bundle, f64), Error> {
    let mut one = |bundle: Bundle| -> Result<(Bundle, f64), Error> {
        let begun = Instant::now();
        card.submit(bundle).map_err(|refused| refused.error)?;
        loop {
            match card.poll() {
                Some(Completed { bundle, result }) => {
                    result?;
                    return Ok((bundle, begun.elapsed().as_secs_f64()));
                }
                None if begun.elapsed() > PATIENCE => {
                    let reason = "no answer in time".into();
                    return Err(Error::Lost { call: "wait", code: 0, reason });
                }
                None => thread::yield_now(),
            }
        }
    };
    // The first one pins the memory.
    bundle = one(bundle)?.0;
    let (begun, mut samples) = (Instant::now(), Vec::new());
    while samples.len() < LATENCIES_MIN || begun.elapsed() < time {
        let (back, seconds) = one(bundle)?;
        bundle = back;
        samples.push(seconds);
    }
    Ok((bundle, crate::median::median(samples)))
}

/// The same jobs by CPU or card, as the dispatcher decides, on all cores.
fn dispatched(bed: &mut Bed) -> Result<(), BenchError> {
    let Some(options) = bed.options.clone() else { return Ok(()) };
    bed.card = None;
    let config = Config { mode: Mode::Auto, ..Config::default() };
    let device = Device::new(config, Arc::new(opener(options, PATIENCE)));
    let all = bed.cpu.threads();
    for &n in bed.scale.sizes {
        for &bytes in bed.scale.jobs.iter().filter(|&&bytes| bytes / n >= SYMBOL_BYTES_MIN) {
            let mut bundle = Some(bed.bundle(Job::new(Operation::Multiply, n, n, bytes / n), 1)?);
            let expected: Vec<_> = bundle.iter().map(|bundle| done_by_cpu(bed, bundle)).collect();
            let place = RowKey { part: Part::Single, n, bytes, of: all };
            for round in 0..=bed.rounds() {
                let seconds = bed.seconds(|| {
                    let done = device.run(bundle.take().into_iter().collect(), &bed.cpu);
                    bundle = done.into_iter().next().map(|(bundle, _)| bundle);
                });
                let Some(done) = &bundle else { break };
                compare("dispatched job", "auto", std::slice::from_ref(done), &expected)?;
                // The first round only warms up: the dispatcher learns, memory is pinned.
                if round > 0 {
                    bed.rows.sample(place, DISPATCHER, bytes as f64 / seconds);
                }
            }
        }
    }
    drop(device);
    bed.open();
    Ok(())
}

/// Break-even points by size and cores.
pub fn break_even(bed: &Bed) -> Vec<BreakEven> {
    let mut surface = Vec::new();
    let at = |n, bytes, of, who: &str| {
        bed.rows.at(RowKey { part: Part::Single, n, bytes, of }, who).map(|row| row.rate)
    };
    for &n in bed.scale.sizes {
        let jobs = bed.scale.jobs.iter().copied().filter(|bytes| bytes / n >= SYMBOL_BYTES_MIN);
        let jobs: Vec<usize> = jobs.collect();
        let largest = jobs.last().copied().unwrap_or_default();
        let model = model(bed, n, &jobs);
        for cores in cores(bed.cpu.threads()) {
            let wins = |bytes| {
                let (card, cpu) = (at(n, bytes, 0, HOST), at(n, bytes, cores, CPU));
                card.zip(cpu).is_some_and(|(card, cpu)| card > cpu)
            };
            let measured = (0..jobs.len()).find(|&first| jobs[first..].iter().all(|&b| wins(b)));
            // Of all that many cores do, each does as much: as `Model` has it.
            let products = at(n, largest, cores, CPU).map(|rate| rate * n as f64 / cores as f64);
            let begin = products.map(|cpu_products| Rates { cpu_products, ..Rates::default() });
            let of_model =
                |rates| Model::new(rates).break_even_bytes(n, cores).map(|bytes| bytes / 2);
            let measured_rates =
                model.zip(products).map(|((device_start, device_bytes), products)| Rates {
                    cpu_products: products,
                    device_bytes,
                    device_start,
                });
            surface.push(BreakEven {
                n,
                cores,
                measured: measured.map(|first| jobs[first]),
                model: measured_rates.and_then(of_model),
                before_measuring: begin.and_then(of_model),
            });
        }
    }
    surface
}

/// Model of the card: seconds per start, then bytes per second, from the smallest and largest job.
fn model(bed: &Bed, n: usize, jobs: &[usize]) -> Option<(f64, f64)> {
    let seconds = |bytes| {
        let place = RowKey { part: Part::Single, n, bytes, of: 0 };
        Some(bytes as f64 / bed.rows.at(place, HOST)?.rate)
    };
    let (&small, &large) = (jobs.first()?, jobs.last()?);
    let (short, long) = (seconds(small)?, seconds(large)?);
    // As many bytes return as are sent.
    Some((short, 2.0 * (large - small) as f64 / (long - short).max(long / 8.0)))
}

/// Shorter symbols are no job for anybody.
const SYMBOL_BYTES_MIN: usize = 64;

/// The median of fewer means nothing.
const LATENCIES_MIN: usize = 5;

const PATIENCE: Duration = Duration::from_secs(20);
