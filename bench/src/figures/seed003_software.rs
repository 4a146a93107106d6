//! Sec. VI-C: software encoders of random and cyclic-shift BATS, on one core.
//!
//! The paper encodes 32 batches with look-up tables and no SIMD, on an i7-10700: 85 Mbit/s with
//! random batches, 200 with cyclically shifted ones. This benchmark runs with a table as well, and
//! with the fastest kernel of this machine, all in turns. Rates are of coded symbols, medians of
//! the rounds. The paper's packet length and degree distribution are unknown: this benchmark uses
//! 1428 bytes and this project's degrees for inactivation decoding.

use std::hint::black_box;

use bench_native::forget_wide_registers;
use rand_chacha::rand_core::Rng;
use recoded_code::bats::{Batch, Code, PAPER_ROW_DEGREES, Profile};
use recoded_gf::Kernel;

use crate::error::BenchError;
use crate::figures::blocks::{self, BATCH_SIZE};
use crate::figures::figure::{Axis, Figure, Panel, Point, Reference, Series, Style};
use crate::figures::work::Work;
use crate::kernels::thread_seconds;
use crate::median::median;

/// Name of the figure.
pub const NAME: &str = "seed003-software";

/// Computes it.
///
/// # Errors
/// A code is refused.
pub fn compute(work: Work) -> Result<Figure, BenchError> {
    let mut random = work.random(NAME, 0);
    let source: Vec<Vec<u8>> = (0..MOST_SYMBOLS)
        .map(|_| {
            let mut symbol = vec![0; SYMBOL_BYTES];
            random.fill_bytes(&mut symbol);
            symbol
        })
        .collect();
    let codes = [
        Code::new(blocks::params(SYMBOLS, Profile::Precoded, 8))?,
        Code::with_row_degrees(
            blocks::params(SYMBOLS, Profile::CyclicShift, 2),
            &PAPER_ROW_DEGREES,
        )?,
    ];
    let degrees = codes.each_ref().map(Code::mean_degree);
    let batches = codes.each_ref().map(formed);
    let table = Kernel::by_name("table").unwrap_or_else(Kernel::best);
    let kernels = [table, Kernel::best()];
    let rounds = work.runs(ROUNDS);
    // By kernel, by code: the rates of all rounds.
    let mut rates = vec![vec![Vec::new(); codes.len()]; kernels.len()];
    let mut encoder = Encoder { source: &source, coded: vec![vec![0; SYMBOL_BYTES]; BATCH_SIZE] };
    for _ in 0..rounds {
        for (kernel, rates) in kernels.iter().zip(&mut rates) {
            for (batches, rates) in batches.iter().zip(rates) {
                rates.push(encoder.rate(kernel, batches));
            }
        }
    }
    let ratios: Vec<f64> = rates
        .iter()
        .map(|rates| median(rates[0].iter().zip(&rates[1]).map(|(random, cs)| cs / random)))
        .collect();
    let rates = rates.into_iter().map(|rates| rates.into_iter().map(median).collect()).collect();
    Ok(figure(&kernels, rates, &ratios, degrees, rounds))
}

fn figure(
    kernels: &[&Kernel],
    rates: Vec<Vec<f64>>,
    ratios: &[f64],
    degrees: [f64; 2],
    rounds: usize,
) -> Figure {
    let names = ["random BATS", "cyclic-shift BATS"];
    let mut speed = vec![
        bars("paper, look-up tables", PAPER_RATES.map(Some)),
        bars("paper, FPGA (Alveo U50)", [None, Some(PAPER_FPGA_RATE)]),
    ];
    let mut ratio = vec![bars("paper, look-up tables", [Some(PAPER_RATIO), None])];
    for ((kernel, rates), value) in kernels.iter().zip(rates).zip(ratios) {
        let name = format!("Recoded, kernel {}", kernel.name());
        let points = rates.iter().zip(PAPER_RATES).enumerate().map(|(place, (rate, paper))| {
            Point::exact(place as f64, *rate).against(Reference::paper(paper).at_least())
        });
        speed.push(Series { name: name.clone(), style: Style::Bars, points: points.collect() });
        let reference = Reference::paper(PAPER_RATIO).at_least().with_margin(PAPER_RATIO_MARGIN);
        let point = Point::exact(0.0, *value).against(reference);
        ratio.push(Series { name, style: Style::Bars, points: vec![point] });
    }
    Figure {
        name: NAME,
        title: "Software encoders on one core: random and cyclic-shift BATS".into(),
        source: "seed 003, Sec. VI-C",
        about: format!(
            "32 batches of 16, K = {SYMBOLS}, {SYMBOL_BYTES} bytes, {rounds} rounds; mean degrees {:.1} and \
             {:.1}",
            degrees[0], degrees[1]
        ),
        panels: vec![
            Panel {
                title: "rate of coded symbols".into(),
                x: Axis::names("", &names),
                y: Axis::log("Mbit/s", &[10.0, 100.0, 1000.0, 10_000.0, 100_000.0, 1_000_000.0]),
                series: speed,
            },
            Panel {
                title: "cyclic-shift / random".into(),
                x: Axis::names("", &["times as fast"]),
                y: Axis::linear("ratio", &[0.0, 1.0, 2.0, 3.0, 4.0]),
                series: ratio,
            },
        ],
    }
}

fn bars(name: &str, values: [Option<f64>; 2]) -> Series {
    let points = values
        .iter()
        .enumerate()
        .filter_map(|(place, value)| Some(Point::exact(place as f64, (*value)?)));
    Series { name: name.into(), style: Style::Bars, points: points.collect() }
}

/// The batches to encode. They are formed beforehand, because a source repeats them block after
/// block.
fn formed(code: &Code) -> Vec<Batch> {
    let form = |id| {
        let mut batch = Batch::new();
        code.batch(id, &mut batch);
        batch
    };
    (0..BATCHES).map(form).collect()
}

struct Encoder<'a> {
    source: &'a [Vec<u8>],
    coded: Vec<Vec<u8>>,
}

impl Encoder<'_> {
    /// Coded Mbit/s of processor time.
    fn rate(&mut self, kernel: &Kernel, batches: &[Batch]) -> f64 {
        forget_wide_registers();
        let start = thread_seconds();
        let mut symbols = 0;
        // The fast kernel may finish within one clock tick: repeat until the clock has moved.
        loop {
            for batch in batches {
                let sources: Vec<&[u8]> = batch
                    .indices()
                    .iter()
                    .map(|&index| self.source[usize::from(index)].as_slice())
                    .collect();
                let mut coded: Vec<&mut [u8]> =
                    self.coded.iter_mut().map(Vec::as_mut_slice).collect();
                kernel.matmul(batch.generator(), &sources, &mut coded);
                symbols += coded.len();
                black_box(&mut self.coded);
            }
            let seconds = thread_seconds() - start;
            if seconds >= SAMPLE_SECONDS {
                return (symbols * SYMBOL_BYTES * 8) as f64 / seconds / 1e6;
            }
        }
    }
}

const SYMBOLS: usize = 256;
/// Room for the symbols of a precode.
const MOST_SYMBOLS: usize = 512;
const SYMBOL_BYTES: usize = 1428;
const BATCHES: u16 = 32;
const ROUNDS: usize = 41;
const SAMPLE_SECONDS: f64 = 0.004;

/// Mbit/s of random and of cyclic-shift BATS.
const PAPER_RATES: [f64; 2] = [85.0, 200.0];
const PAPER_RATIO: f64 = PAPER_RATES[1] / PAPER_RATES[0];
/// Mbit/s of its best design.
const PAPER_FPGA_RATE: f64 = 27_000.0;
/// Rates are printed to 5 Mbit/s or so.
const PAPER_RATIO_MARGIN: f64 = 0.15;
