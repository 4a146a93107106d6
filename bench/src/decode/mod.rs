//! `bench decode`: whole generations through the dataplane's sink and the library, compared with
//! the kernels' own decoding (one inversion, one product), in turns.
//!
//! ```text
//!  source (the real one) -> symbols of IP packets -> as many random combinations
//!    kernels:   invert, matmul
//!    library:   Decoder::insert per packet, restore
//!    dataplane: Pipeline::receive per packet: headers, elimination, product, framing, delivery
//! ```

mod contestants;

mod dataplane;

mod stream;

use std::path::PathBuf;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use recoded_gf::Kernel;
use serde::Serialize;

use crate::cores;
use crate::error::BenchError;
use crate::kernels::contest::{Contestant, number};
use crate::kernels::rows::Decoding;
use crate::kernels::{choose_core, millis};
use crate::machine::Machine;
use crate::results::write_json;
use dataplane::Delivery;
use stream::Window;

/// Measure the dataplane's decoder against the kernels' own decoding
///
/// Generations that arrive as coded packets only, none lost and none redundant, GF(256): the most
/// work per packet that a sink can have. Three do it in turns on one core, by the thread's own
/// processor time: the kernels (one inversion of all coding vectors, one product), the library
/// (vectors are eliminated packet by packet), and the dataplane (real packets in frames in, IP
/// packets out). What each returns is checked against the source before anything is timed, and all
/// the dataplane's packets are counted afterwards.
///
/// The dataplane should reach 0.7 of the kernels at 64 symbols of 1428 bytes.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- decode --quick
  cargo run --release -p bench -- decode --json bench/results/decode.json")]
pub struct DecodeOptions {
    /// Also write everything, each sample included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Few and short samples: enough to see that it works
    #[arg(long, conflicts_with_all = ["rounds", "millis"])]
    quick: bool,
    /// Samples of each; the report has their median and the best
    #[arg(long, default_value_t = 61, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Milliseconds that each sample lasts at least
    #[arg(long, default_value_t = 2.0, value_parser = millis)]
    millis: f64,
    /// Symbols per generation
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64, 128],
          value_parser = clap::value_parser!(u16).range(1..=256))]
    sizes: Vec<u16>,
    /// Symbols per window of a stream, each a power of two
    #[arg(long, value_delimiter = ',', default_values_t = [64, 256], value_parser = window)]
    windows: Vec<u16>,
    /// Bytes of a symbol
    #[arg(long, default_value_t = TARGET_BYTES, value_parser = clap::value_parser!(u16).range(64..=1500))]
    bytes: u16,
    /// Core to run on [default: the last that may be used]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Seed of coefficients
    #[arg(long, default_value_t = 0x5eed)]
    seed: u64,
}

/// Contestants that decode generations of one size.
struct DecodeContest {
    n: usize,
    bytes: usize,
    kernels: Contestant,
    library: Contestant,
    dataplane: Contestant,
    delivery: Delivery,
}

/// Contestants that recover symbols and combine them, as a hop of a stream does.
struct StreamRow {
    n: usize,
    contestants: [(&'static str, Contestant); 4],
    delivery: Delivery,
}

/// A row in numbers.
#[derive(Serialize)]
struct Measured {
    n: usize,
    k: usize,
    unit: &'static str,
    /// Name of the kernel level that all use.
    level: String,
    contestants: Vec<Figures>,
    /// The dataplane's target at this size, as a share of the kernels' rate; none at other sizes.
    target: Option<f64>,
    met: Option<bool>,
}

/// One of those measured.
#[derive(Serialize)]
struct Figures {
    name: &'static str,
    median: f64,
    best: f64,
    /// Median of the rounds' own ratios to the kernels.
    ratio_to_kernels: f64,
    samples: Vec<f64>,
}

/// Runs the benchmark, prints the table and writes the JSON.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &DecodeOptions) -> Result<(), BenchError> {
    let (rounds, seconds) = match options.quick {
        true => (9, 0.5e-3),
        false => (usize::from(options.rounds), options.millis / 1e3),
    };
    let core = choose_core(options.core)?;
    cores::pin(core)?;
    let machine = Machine::describe();
    let mut random = SmallRng::seed_from_u64(options.seed);
    let sizes = options.sizes.iter().map(|size| usize::from(*size));
    let bytes = usize::from(options.bytes);
    let mut rows = sizes
        .map(|n| DecodeContest::build(n, bytes, &mut random))
        .collect::<Result<Vec<_>, _>>()?;
    let windows = options.windows.iter().map(|n| StreamRow::build(usize::from(*n), &mut random));
    let mut streams = windows.collect::<Result<Vec<_>, _>>()?;
    for round in 0..rounds {
        rows.iter_mut().for_each(|row| row.round(round, seconds));
        streams.iter_mut().for_each(|row| row.round(round, seconds));
    }
    let rows = rows.into_iter().map(DecodeContest::measured).collect::<Result<Vec<_>, _>>()?;
    let streams =
        streams.into_iter().map(StreamRow::measured).collect::<Result<Vec<_>, BenchError>>()?;
    println!("{}\n{}\n\n{}", machine.heading(), table(&rows), table(&streams));
    if let Some(path) = &options.json {
        let value = serde_json::json!({
            "benchmark": "decode",
            "machine": machine,
            "core": core,
            "rounds": rounds,
            "sample_seconds": seconds,
            "seed": options.seed,
            "rows": rows,
            "streams": streams,
        });
        write_json(path, &value)?;
    }
    Ok(())
}

impl DecodeContest {
    fn build(n: usize, bytes: usize, random: &mut SmallRng) -> Result<DecodeContest, BenchError> {
        let source = dataplane::generation(n, bytes)?;
        let job = Decoding::of(source.symbols.clone(), random);
        let (dataplane, delivery) = dataplane::contestant(&job, &source)?;
        Ok(DecodeContest {
            n,
            bytes,
            kernels: job.ours(Kernel::best())?,
            library: contestants::library(&job)?,
            dataplane,
            delivery,
        })
    }

    /// Takes one sample of each, another one first in each round.
    fn round(&mut self, round: usize, seconds: f64) {
        let mut turns = [&mut self.kernels, &mut self.library, &mut self.dataplane];
        turns.rotate_left(round % 3);
        turns.into_iter().for_each(|contestant| contestant.sample(seconds));
    }

    /// # Errors
    /// [`BenchError::Wrong`] if the dataplane lost packets.
    fn measured(self) -> Result<Measured, BenchError> {
        if !self.delivery.is_complete() {
            return Err(wrong("dataplane", self.n, self.bytes));
        }
        let figures = |name, contestant: &Contestant| Figures::of(name, contestant, &self.kernels);
        let dataplane = figures("dataplane", &self.dataplane);
        let is_target = (self.n, self.bytes) == (TARGET_SIZE, usize::from(TARGET_BYTES));
        let target = is_target.then_some(TARGET);
        Ok(Measured {
            n: self.n,
            k: self.bytes,
            unit: "Gbit/s",
            level: self.kernels.name.clone(),
            target,
            met: target.map(|target| dataplane.ratio_to_kernels >= target),
            contestants: vec![
                figures("kernels", &self.kernels),
                figures("library", &self.library),
                dataplane,
            ],
        })
    }
}

impl Figures {
    /// Whether it is to reach the target of its row.
    fn is_judged(&self) -> bool {
        self.name == "dataplane" || self.name.starts_with("stream")
    }

    fn of(name: &'static str, contestant: &Contestant, kernels: &Contestant) -> Figures {
        Figures {
            name,
            median: contestant.median(),
            best: contestant.best(),
            ratio_to_kernels: contestant.ratio_to(kernels),
            samples: contestant.rates.clone(),
        }
    }
}

impl StreamRow {
    fn build(n: usize, random: &mut SmallRng) -> Result<StreamRow, BenchError> {
        let window = Window::new(n);
        let (sink, delivery) = window.sink()?;
        let contestants = [
            ("kernels", window.kernels(random)?),
            ("stream's sink", sink),
            ("kernels, combining", window.product()),
            ("stream's relay, combining", window.relay()),
        ];
        Ok(StreamRow { n, contestants, delivery })
    }

    fn round(&mut self, round: usize, seconds: f64) {
        let mut turns = self.contestants.each_mut();
        turns.rotate_left(round % 4);
        turns.into_iter().for_each(|(_, contestant)| contestant.sample(seconds));
    }

    /// # Errors
    /// [`BenchError::Wrong`] if the sink lost packets.
    fn measured(self) -> Result<Measured, BenchError> {
        if !self.delivery.is_complete() {
            return Err(wrong("stream, sink", self.n, stream::CODED_BYTES));
        }
        // Each job's kernels come first, followed by the other contestant.
        let pairs = self.contestants.chunks(2).flat_map(|pair| {
            pair.iter().map(|(name, contestant)| Figures::of(name, contestant, &pair[0].1))
        });
        let contestants: Vec<Figures> = pairs.collect();
        let mut judged = contestants.iter().filter(|figures| figures.is_judged());
        let met = judged.all(|figures| figures.ratio_to_kernels >= TARGET);
        Ok(Measured {
            n: self.n,
            k: stream::CODED_BYTES,
            unit: "Gbit/s",
            level: self.contestants[0].1.name.clone(),
            target: Some(TARGET),
            met: Some(met),
            contestants,
        })
    }
}

fn window(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(n) if n.is_power_of_two() && (8..=512).contains(&n) => Ok(n),
        _ => Err("must be a power of two from 8 to 512".into()),
    }
}

fn table(rows: &[Measured]) -> String {
    let mut lines = vec![
        "| n | k | who | Gbit/s, median | best | of the kernels | target |".to_owned(),
        "|---:|---:|---|---:|---:|---:|---|".to_owned(),
    ];
    for row in rows {
        for figures in &row.contestants {
            let target = match row.target {
                Some(target) if figures.is_judged() => {
                    let is_met = figures.ratio_to_kernels >= target;
                    format!("{target}: {}", if is_met { "met" } else { "missed" })
                }
                _ => String::new(),
            };
            lines.push(format!(
                "| {} | {} | {} | {} | {} | {:.3} | {target} |",
                row.n,
                row.k,
                figures.name,
                number(figures.median),
                number(figures.best),
                figures.ratio_to_kernels,
            ));
        }
    }
    lines.join("\n")
}

fn wrong(kernel: &'static str, n: usize, bytes: usize) -> BenchError {
    let field = recoded_gf::Field::Gf256x11D.to_string();
    BenchError::Wrong { kernel, operation: "decoding", field, n, bytes }
}

/// The dataplane's share of the kernels' rate at the size and length below.
const TARGET: f64 = 0.7;
const TARGET_SIZE: usize = 64;
const TARGET_BYTES: u16 = 1428;
