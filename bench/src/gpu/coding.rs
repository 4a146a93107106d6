//! Encoding and decoding by CPU and card, over sizes and symbols.

use recoded_code::engine::{Bundle, Job, Operation};

use super::bed::{Bed, compare, results};
use super::rows::{Part, RowKey};
use crate::error::BenchError;

/// Name of the CPU contestant; techniques of a card have the prefix `DEVICE`.
pub const CPU: &str = "CPU";
/// Without copies.
pub const DEVICE: &str = "card, resident, ";
/// With copies.
pub const HOST: &str = "card, host to host";

/// Every size and symbol: as many coded symbols as source symbols.
///
/// # Errors
/// If the card's result is wrong.
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
    let mut resident = vec![bed.bundle(job, count)?];
    let mut expected = vec![done_by_cpu(bed, &resident[0])];
    let slot = Bed::segments(n, bytes, bed.scale.slot_bytes);
    let mut flights = Vec::new();
    if bed.card.is_some() {
        for _ in 0..FLIGHTS {
            flights.push(bed.bundle(job, slot)?);
        }
    }
    let flown: Vec<Bundle> = flights.iter().map(|bundle| done_by_cpu(bed, bundle)).collect();
    let place = RowKey { part: Part::Encode, n, bytes, of: 0 };
    let is_ladder = bed.scale.ladder_sizes.contains(&n);
    let made = results(&resident[0]) as f64;
    for _ in 0..bed.rounds() {
        let seconds = bed.seconds(|| bed.cpu.run(&mut expected[0]));
        bed.rows.sample(place, CPU, made / seconds);
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
    Ok(())
}

/// The same bundle, computed by this CPU.
pub fn done_by_cpu(bed: &Bed, bundle: &Bundle) -> Bundle {
    let mut again = bundle.retain().restore();
    bed.cpu.run(&mut again);
    again
}

/// Measures the phases of a bundle on the card; the only bundle of `bundles` is compared with
/// `expected`.
pub fn measure(
    bed: &mut Bed,
    technique: Option<&'static recoded_cuda::Technique>,
    bundles: &mut Vec<Bundle>,
    expected: &[Bundle],
) -> Result<Option<recoded_cuda::Timings>, BenchError> {
    let (Some(card), Some(bundle)) = (&mut bed.card, bundles.pop()) else { return Ok(None) };
    card.set_technique(technique);
    let name = technique.map_or("auto", |technique| technique.name);
    match card.measure(bundle, bed.scale.sample) {
        Ok((bundle, timings)) => {
            bundles.push(bundle);
            compare("product", name, bundles, expected)?;
            Ok(Some(timings))
        }
        Err(refused) => {
            // A card that was lost may have taken the bundle along.
            bundles.push(expected[0].retain().restore());
            bed.note(name, &refused.error);
            Ok(None)
        }
    }
}

/// One segment, and as many at once as saturate CPU or card.
///
/// # Errors
/// If the card's result is wrong.
pub fn decode(bed: &mut Bed) -> Result<(), BenchError> {
    for &n in bed.scale.ladder_sizes {
        for &bytes in bed.scale.symbols {
            decode_single(bed, n, bytes)?;
            decode_many(bed, n, bytes)?;
            bed.bar.inc(1);
        }
    }
    Ok(())
}

fn decode_single(bed: &mut Bed, n: usize, bytes: usize) -> Result<(), BenchError> {
    let mut single = vec![bed.generation(n, bytes)?];
    let mut expected = vec![done_by_cpu(bed, &single[0])];
    let place = RowKey { part: Part::Decode, n, bytes, of: 1 };
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

fn decode_many(bed: &mut Bed, n: usize, bytes: usize) -> Result<(), BenchError> {
    let processors = bed.card.as_ref().map_or(0, |card| card.info().multiprocessors as usize);
    let most = (FILL_TIMES * bed.scale.bytes / (n * bytes)).max(1);
    let fill = Bed::segments(n, bytes, bed.scale.bytes).max(2 * processors).max(bed.cpu.threads());
    let job = Job::new(Operation::Solve, n, n, bytes);
    let mut many = vec![bed.bundle(job, fill.min(most))?];
    let mut expected = vec![done_by_cpu(bed, &many[0])];
    let place = RowKey { part: Part::Decode, n, bytes, of: 0 };
    let made = results(&many[0]) as f64;
    for _ in 0..bed.rounds() {
        let seconds = bed.seconds(|| bed.cpu.run(&mut expected[0]));
        bed.rows.sample(place, CPU, made / seconds);
        if let Some(timings) = measure(bed, None, &mut many, &expected)? {
            let share = inversion_share(&timings);
            bed.rows.sample_with(place, &format!("{DEVICE}auto"), made / timings.device, share);
        }
    }
    let slot = Bed::segments(n, bytes, bed.scale.slot_bytes);
    let mut flights = Vec::new();
    if bed.card.is_some() {
        for _ in 0..FLIGHTS {
            flights.push(bed.bundle(job, slot)?);
        }
    }
    let flown: Vec<Bundle> = flights.iter().map(|bundle| done_by_cpu(bed, bundle)).collect();
    for _ in 0..bed.rounds() {
        if let Some(rate) = bed.through("decode", &mut flights, &flown)? {
            bed.rows.sample(place, HOST, rate);
        }
    }
    Ok(())
}

/// The first stage's part of decoding: all but the last launch.
fn inversion_share(timings: &recoded_cuda::Timings) -> Option<f64> {
    let inversions = timings.stages.iter().filter(|(kernel, _)| kernel.starts_with("invert"));
    let invert: f64 = inversions.map(|(_, seconds)| seconds).sum();
    let all: f64 = timings.stages.iter().map(|(_, seconds)| seconds).sum();
    (invert > 0.0).then_some(invert / all)
}

/// Bundles in turns: one more than a card accepts at once.
const FLIGHTS: usize = 9;

/// Limit of the bytes of one segment per processor, as a multiple of those of other measurements.
const FILL_TIMES: usize = 8;
