//! Encoding and decoding by CPU and card, for all shapes of the papers.

use recoded_code::engine::{Batch, Job, Operation};
use recoded_cuda::Progressive;

use super::bed::{Bed, compare, results};
use super::rows::{Part, Place};
use crate::error::BenchError;

/// Who is measured; techniques of a card have `DEVICE` before their names.
pub const CPU: &str = "CPU, full-block";
/// Each symbol divided among the cores.
pub const CPU_PARTITIONED: &str = "CPU, partitioned-block";
/// Without copies.
pub const DEVICE: &str = "card, resident, ";
/// With copies.
pub const HOST: &str = "card, host to host";

/// Every size and symbol: as many coded symbols as source symbols.
///
/// # Errors
/// The card makes wrong bytes.
pub fn encode(bed: &mut Bed) -> Result<(), BenchError> {
    for &n in bed.scale.sizes {
        for &bytes in bed.scale.symbols {
            encode_shape(bed, n, bytes)?;
            bed.bar.inc(1);
        }
    }
    Ok(())
}

fn encode_shape(bed: &mut Bed, n: usize, bytes: usize) -> Result<(), BenchError> {
    let job = Job::new(Operation::Multiply, n, n, bytes);
    let count = Bed::segments(n, bytes, bed.scale.bytes);
    let mut resident = vec![bed.batch(job, count)?];
    let mut expected = vec![done_by_cpu(bed, &resident[0])];
    let slot = Bed::segments(n, bytes, bed.scale.slot_bytes);
    let mut flights = Vec::new();
    if bed.card.is_some() {
        for _ in 0..FLIGHTS {
            flights.push(bed.batch(job, slot)?);
        }
    }
    let flown: Vec<Batch> = flights.iter().map(|batch| done_by_cpu(bed, batch)).collect();
    let place = Place { part: Part::Encode, n, bytes, of: 0 };
    let is_ladder = bed.scale.ladder_sizes.contains(&n);
    let made = results(&resident[0]) as f64;
    for _ in 0..bed.rounds() {
        let seconds = bed.seconds(|| bed.cpu.run(&mut expected[0]));
        bed.rows.sample(place, CPU, made / seconds);
        if is_ladder {
            let seconds = bed.seconds(|| bed.partitioned.run(&mut expected[0]));
            bed.rows.sample(place, CPU_PARTITIONED, made / seconds);
        }
        for technique in bed.techniques(is_ladder) {
            if let Some(timings) = measure(bed, Some(technique), &mut resident, &expected)? {
                let who = format!("{DEVICE}{}", technique.name);
                bed.rows.sample(place, &who, made / timings.device);
            }
        }
        if let Some(rate) = bed.through("encode", &mut flights, &flown)? {
            bed.rows.sample(place, HOST, rate);
        }
    }
    if is_ladder { on_demand(bed, n, bytes) } else { Ok(()) }
}

/// One coded symbol at a time, as a peer asks for it (Extreme NC §5.3).
fn on_demand(bed: &mut Bed, n: usize, bytes: usize) -> Result<(), BenchError> {
    let mut batch = bed.batch(Job::new(Operation::Multiply, 1, n, bytes), 1)?;
    let place = Place { part: Part::OnDemand, n, bytes, of: 0 };
    for _ in 0..bed.rounds() {
        let seconds = bed.seconds(|| bed.cpu.run(&mut batch));
        bed.rows.sample(place, CPU, bytes as f64 / seconds);
        let seconds = bed.seconds(|| bed.partitioned.run(&mut batch));
        bed.rows.sample(place, CPU_PARTITIONED, bytes as f64 / seconds);
    }
    Ok(())
}

/// The same batch, made by this CPU.
pub fn done_by_cpu(bed: &Bed, batch: &Batch) -> Batch {
    let mut again = batch.retain().restore();
    bed.cpu.run(&mut again);
    again
}

/// Parts of a batch on the card; the only batch of `batches` is compared with `expected`.
pub fn measure(
    bed: &mut Bed,
    technique: Option<&'static recoded_cuda::Technique>,
    batches: &mut Vec<Batch>,
    expected: &[Batch],
) -> Result<Option<recoded_cuda::Timings>, BenchError> {
    let (Some(card), Some(batch)) = (&mut bed.card, batches.pop()) else { return Ok(None) };
    card.set_technique(technique);
    let name = technique.map_or("auto", |technique| technique.name);
    match card.measure(batch, bed.scale.sample) {
        Ok((batch, timings)) => {
            batches.push(batch);
            compare("product", name, batches, expected)?;
            Ok(Some(timings))
        }
        Err(refused) => {
            // A card that was lost may have taken the batch along.
            batches.push(expected[0].retain().restore());
            bed.note(name, &refused.error);
            Ok(None)
        }
    }
}

/// One segment, several and many at once, for the papers' sizes.
///
/// # Errors
/// The card makes wrong bytes.
pub fn decode(bed: &mut Bed) -> Result<(), BenchError> {
    for &n in bed.scale.ladder_sizes {
        for &bytes in bed.scale.symbols {
            decode_single(bed, n, bytes)?;
            decode_many(bed, n, bytes)?;
            bed.bar.inc(1);
        }
    }
    let (n, bytes) = bed.scale.progressive;
    decode_single(bed, n, bytes)?;
    row_by_row(bed, n, bytes)?;
    for &bytes in bed.scale.symbols {
        row_by_row(bed, bed.scale.ladder_sizes[0], bytes)?;
    }
    bed.bar.inc(1);
    Ok(())
}

fn decode_single(bed: &mut Bed, n: usize, bytes: usize) -> Result<(), BenchError> {
    let mut single = vec![bed.generation(n, bytes)?];
    let mut expected = vec![done_by_cpu(bed, &single[0])];
    let place = Place { part: Part::Decode, n, bytes, of: 1 };
    for _ in 0..bed.rounds() {
        let seconds = bed.seconds(|| bed.cpu.run(&mut expected[0]));
        bed.rows.sample(place, CPU, (n * bytes) as f64 / seconds);
        if let Some(timings) = measure(bed, None, &mut single, &expected)? {
            let share = inversion_share(&timings);
            let rate = (n * bytes) as f64 / timings.device;
            bed.rows.sample_with(place, &format!("{DEVICE}auto"), rate, share);
        }
    }
    Ok(())
}

/// 30 and 60 segments, as the paper has it, and as many as fill CPU or card.
fn decode_many(bed: &mut Bed, n: usize, bytes: usize) -> Result<(), BenchError> {
    let processors = bed.card.as_ref().map_or(0, |card| card.info().multiprocessors as usize);
    let most = (FILL_TIMES * bed.scale.bytes / (n * bytes)).max(1);
    let fill = Bed::segments(n, bytes, bed.scale.bytes).max(2 * processors).max(bed.cpu.threads());
    let fill = fill.min(most);
    let job = Job::new(Operation::Solve, n, n, bytes);
    for (count, is_fill) in [(PAPER_SEGMENTS[0], false), (PAPER_SEGMENTS[1], false), (fill, true)] {
        let mut many = vec![bed.batch(job, count)?];
        let mut expected = vec![done_by_cpu(bed, &many[0])];
        let place = Place { part: Part::Decode, n, bytes, of: if is_fill { 0 } else { count } };
        let made = results(&many[0]) as f64;
        for _ in 0..bed.rounds() {
            let seconds = bed.seconds(|| bed.cpu.run(&mut expected[0]));
            bed.rows.sample(place, CPU, made / seconds);
            if let Some(timings) = measure(bed, None, &mut many, &expected)? {
                let share = inversion_share(&timings);
                let who = format!("{DEVICE}auto");
                bed.rows.sample_with(place, &who, made / timings.device, share);
            }
        }
    }
    let slot = Bed::segments(n, bytes, bed.scale.slot_bytes);
    let mut flights = Vec::new();
    if bed.card.is_some() {
        for _ in 0..FLIGHTS {
            flights.push(bed.batch(job, slot)?);
        }
    }
    let flown: Vec<Batch> = flights.iter().map(|batch| done_by_cpu(bed, batch)).collect();
    for _ in 0..bed.rounds() {
        if let Some(rate) = bed.through("decode", &mut flights, &flown)? {
            bed.rows.sample(Place { part: Part::Decode, n, bytes, of: 0 }, HOST, rate);
        }
    }
    Ok(())
}

/// Row by row, as the papers did before they had several segments.
fn row_by_row(bed: &mut Bed, n: usize, bytes: usize) -> Result<(), BenchError> {
    let place = Place { part: Part::Decode, n, bytes, of: 1 };
    for (how, name) in ROW_BY_ROW {
        if bed.card.is_none() {
            return Ok(());
        }
        let batch = bed.generation(n, bytes)?;
        let expected = vec![done_by_cpu(bed, &batch)];
        let Some(card) = &mut bed.card else { return Ok(()) };
        match card.decode_progressively(batch, how) {
            Ok((batch, seconds)) => {
                compare("decode", name, &[batch], &expected)?;
                bed.rows.sample(place, name, (n * bytes) as f64 / seconds);
            }
            Err(refused) => bed.note(name, &refused.error),
        }
    }
    Ok(())
}

/// The first stage's part of decoding: all but the last launch.
fn inversion_share(timings: &recoded_cuda::Timings) -> Option<f64> {
    let invert = timings.stages.iter().find(|(kernel, _)| *kernel == "invert")?.1;
    let all: f64 = timings.stages.iter().map(|(_, seconds)| seconds).sum();
    Some(invert / all)
}

/// Batches in turns: one more than a card takes at once.
const FLIGHTS: usize = 4;

/// As many segments as processors are not more bytes than this many times those of other measurements.
const FILL_TIMES: usize = 8;

/// Segments at once (Extreme NC §5.2).
pub const PAPER_SEGMENTS: [usize; 2] = [30, 60];

/// The papers' decoders of one segment.
pub const ROW_BY_ROW: [(Progressive, &str); 3] = [
    (Progressive::Assisted, "card, row by row, pivots by the CPU"),
    (Progressive::Card, "card alone, row by row"),
    (Progressive::Buffered, "card alone, buffered"),
];
