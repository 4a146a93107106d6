//! A streaming server: coded symbols of one segment for many peers; and large products by CPU and
//! card at once.

use std::sync::Arc;
use std::time::Duration;

use recoded_code::engine::{Bundle, Cpu, Engine, Job, Operation, Partition, Segment};
use recoded_cuda::opener;
use recoded_gf::FieldOrder;
use recoded_offload::{By, Config, Shares, SpotCheck, Together};

use super::bed::{Bed, compare, results};
use super::coding::{CPU, DEVICE, HOST, done_by_cpu, measure};
use super::rows::{Part, RowKey};
use crate::error::BenchError;

/// Both at once, over bundles that each reads and writes where they lie.
pub const TOGETHER: &str = "CPU and card together";
/// The same, results checked as ever: by the thread that feeds the card.
pub const CHECKED: &str = "CPU and card together, checked";
/// Both at once, over the caller's rows; checked.
pub const COPYING: &str = "CPU and card together, rows copied";

/// Coded symbols of a segment that the card keeps, from seeds: only the symbols cross the bus.
///
/// # Errors
/// If the card's result is wrong.
pub fn streaming(bed: &mut Bed) -> Result<(), BenchError> {
    let (n, bytes) = bed.scale.streaming;
    let segment = bed.segment(n, bytes)?;
    // Requests of many peers are collected, up to the symbols of one job.
    let rows = (bed.scale.slot_bytes / bytes).clamp(1, recoded_code::engine::SIZE_MAX);
    let jobs = (bed.scale.bytes / bed.scale.slot_bytes).max(1);
    let mut many = vec![requests(bed, &segment, rows, jobs)?];
    let mut expected = vec![done_by_cpu(bed, &many[0])];
    let mut flights = Vec::new();
    for _ in 0..FLIGHTS {
        flights.push(requests(bed, &segment, rows, 1)?);
    }
    let flown: Vec<Bundle> = flights.iter().map(|bundle| done_by_cpu(bed, bundle)).collect();
    let place = RowKey { part: Part::Streaming, n, bytes, of: 0 };
    let made = results(&expected[0]) as f64;
    let kept = bed.card.as_mut().map(|card| card.keep(&segment));
    if let Some(Err(error)) = kept {
        bed.note("keeping a segment", &error);
    }
    for _ in 0..bed.rounds() {
        let seconds = bed.seconds(|| bed.cpu.run(&mut expected[0]));
        bed.rows.sample(place, CPU, made / seconds);
        for technique in bed.techniques(true) {
            if let Some(timings) = measure(bed, Some(technique), &mut many, &expected)? {
                let who = format!("{DEVICE}{}", technique.name);
                bed.rows.sample(place, &who, made / timings.device);
            }
        }
        if let Some(rate) = bed.through("streaming", &mut flights, &flown)? {
            bed.rows.sample(place, HOST, rate);
        }
    }
    bed.bar.inc(1);
    Ok(())
}

fn requests(
    bed: &mut Bed,
    segment: &Arc<Segment>,
    rows: usize,
    jobs: usize,
) -> Result<Bundle, BenchError> {
    let mut bundle = Bundle::over(Arc::clone(segment), rows * jobs, jobs);
    for number in 0..jobs {
        let drawn = Operation::Combine { seed: bed.number(), field: FieldOrder::TwoFiftySix };
        let job = Job::new(drawn, rows, segment.rows(), segment.row_bytes());
        bundle.push(job, number as u64).map_err(BenchError::Job)?;
    }
    bundle.output_mut().fill(1);
    Ok(bundle)
}

/// One large product, by the cores, by the card, and by both.
///
/// # Errors
/// If the result is wrong, or Linux grants no threads.
pub fn together(bed: &mut Bed) -> Result<(), BenchError> {
    for &n in bed.scale.ladder_sizes {
        let row_bytes = (bed.scale.bytes / n).next_multiple_of(128).max(ROW_BYTES_MIN);
        let place = RowKey { part: Part::Large, n, bytes: row_bytes, of: 0 };
        let mut large = Large::new(bed, n, row_bytes);
        let mut made = large.empty();
        for _ in 0..bed.rounds() {
            let seconds = bed.seconds(|| large.by(&bed.cpu, &mut made));
            bed.rows.sample(place, CPU, large.results() / seconds);
        }
        large.expected = std::mem::take(&mut made);
        if bed.card.take().is_some() {
            by_card(bed, place, &large)?;
            bed.open();
        }
        bed.bar.inc(1);
    }
    Ok(())
}

fn by_card(bed: &mut Bed, place: RowKey, large: &Large) -> Result<(), BenchError> {
    let Some(options) = bed.options.clone() else { return Ok(()) };
    // Results are not checked, as they are not in the figures host to host.
    let mut together = both(bed, options.clone(), SpotCheck::Off)?;
    bundles_by_both(bed, place, &mut together, TOGETHER)?;
    drop(together);
    let mut together = both(bed, options, SpotCheck::default())?;
    bundles_by_both(bed, place, &mut together, CHECKED)?;
    let mut made = large.empty();
    // Until the rates are known, halves.
    for round in 0..WARM_UP {
        let shares = large.by_both(&mut together, &mut made);
        large.compare(&made)?;
        if round == 0 && shares.device == 0 {
            bed.troubles.push("the card got no part of a large product".into());
        }
    }
    for _ in 0..bed.rounds() {
        let mut shares = Shares::default();
        let seconds = bed.seconds(|| shares = large.by_both(&mut together, &mut made));
        let share = shares.device as f64 / (shares.device + shares.cores).max(1) as f64;
        bed.rows.sample_with(place, COPYING, large.results() / seconds, Some(share));
    }
    if !together.has_device() {
        bed.troubles.push("the device was closed while it shared the work with the CPU".into());
    }
    drop(together);
    bed.open();
    let (n, count) = (large.sources.len(), FLIGHTS);
    let columns = (bed.scale.slot_bytes / n).next_multiple_of(128).min(large.row_bytes);
    let job = Job::new(Operation::Multiply, n, n, columns);
    let mut flights = Vec::new();
    for _ in 0..count {
        flights.push(bed.bundle(job, 1)?);
    }
    let flown: Vec<Bundle> = flights.iter().map(|bundle| done_by_cpu(bed, bundle)).collect();
    for _ in 0..bed.rounds() {
        if let Some(rate) = bed.through("large", &mut flights, &flown)? {
            bed.rows.sample(place, HOST, rate);
        }
    }
    Ok(())
}

/// A card and all cores but two, which are for the threads that feed the card.
fn both(
    bed: &Bed,
    options: recoded_cuda::Options,
    spot_check: SpotCheck,
) -> Result<Together, BenchError> {
    let cores = bed.cpu.threads().saturating_sub(2).max(1);
    let cpu = Cpu::new(cores, Partition::FullBlock).map_err(BenchError::Engine)?;
    let config = Config { measure: false, watchdog_min: TIMEOUT, spot_check, ..Config::default() };
    Ok(Together::new(cpu, config, Arc::new(opener(options, TIMEOUT))))
}

/// The same matrix size, in bundles as large as those transferred host to host. The total is four
/// times one product, so that the first copy in and the last one out, which overlap with nothing,
/// count little.
fn bundles_by_both(
    bed: &mut Bed,
    place: RowKey,
    together: &mut Together,
    who: &str,
) -> Result<(), BenchError> {
    let columns = (bed.scale.slot_bytes / place.n).next_multiple_of(128).min(place.bytes);
    let job = Job::new(Operation::Multiply, place.n, place.n, columns);
    let count = (4 * bed.scale.bytes).div_ceil(place.n * columns);
    let mut bundles = (0..count).map(|_| bed.bundle(job, 1)).collect::<Result<Vec<_>, _>>()?;
    let expected: Vec<Bundle> = bundles.iter().map(|bundle| done_by_cpu(bed, bundle)).collect();
    let made: usize = bundles.iter().map(results).sum();
    for round in 0..WARM_UP + bed.rounds() {
        let mut by_card = 0;
        let seconds = bed.seconds(|| {
            let done = together.run(std::mem::take(&mut bundles));
            by_card = done.iter().filter(|(_, by)| *by == By::Device).count();
            bundles = done.into_iter().map(|(bundle, _)| bundle).collect();
        });
        compare("bundles", who, &bundles, &expected)?;
        if round >= WARM_UP {
            let share = Some(by_card as f64 / count as f64);
            bed.rows.sample_with(place, who, made as f64 / seconds, share);
        }
    }
    Ok(())
}

/// A product with rows that do not fit into a bundle.
struct Large {
    coefficients: Vec<u8>,
    sources: Vec<Vec<u8>>,
    expected: Vec<Vec<u8>>,
    row_bytes: usize,
}

impl Large {
    fn new(bed: &mut Bed, n: usize, row_bytes: usize) -> Self {
        let mut row = |bytes| {
            let mut row = vec![0; bytes];
            bed.bytes(&mut row);
            row
        };
        let coefficients = row(n * n);
        let sources = (0..n).map(|_| row(row_bytes)).collect();
        Self { coefficients, sources, expected: Vec::new(), row_bytes }
    }

    fn results(&self) -> f64 {
        (self.sources.len() * self.row_bytes) as f64
    }

    fn empty(&self) -> Vec<Vec<u8>> {
        vec![vec![1; self.row_bytes]; self.sources.len()]
    }

    fn by(&self, cpu: &Cpu, made: &mut [Vec<u8>]) {
        let sources: Vec<&[u8]> = self.sources.iter().map(Vec::as_slice).collect();
        let mut rows: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        cpu.matmul(&self.coefficients, &sources, &mut rows);
    }

    fn by_both(&self, together: &mut Together, made: &mut [Vec<u8>]) -> Shares {
        let sources: Vec<&[u8]> = self.sources.iter().map(Vec::as_slice).collect();
        let mut rows: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        together.multiply(&self.coefficients, &sources, &mut rows)
    }

    fn compare(&self, made: &[Vec<u8>]) -> Result<(), BenchError> {
        let (what, technique) = (COPYING.into(), "auto".into());
        (made == self.expected).then_some(()).ok_or(BenchError::WrongCard { what, technique })
    }
}

/// Bundles in turns: one more than a card accepts at once.
const FLIGHTS: usize = 9;

/// Shorter rows are not divided between CPU and card.
const ROW_BYTES_MIN: usize = 4096;

/// Products until the shares of CPU and card have settled.
const WARM_UP: usize = 3;

/// A card that has not finished a part of a product within this time is abandoned.
const TIMEOUT: Duration = Duration::from_secs(5);
