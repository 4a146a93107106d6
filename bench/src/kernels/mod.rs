//! `bench kernels`: the field kernels compared with the core's limits and with other libraries, in
//! turns.
//!
//! ```text
//!  limits   what the core can do          \
//!  rows     jobs, checked before timing     > rounds: every row, every rival  ->  report, JSON,
//!  rivals   crates, and libraries in C    /                                      targets, figures
//! ```

mod clock;
pub mod memory;

pub mod contest;
pub mod limits;

pub mod rivals;

pub mod rows;

pub mod anchors;

mod figures;
pub mod report;
mod summary;
mod targets;

pub use clock::thread_seconds;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use recoded_gf::Kernel;

use crate::cores;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::results::{write, write_json};
use limits::CoreLimits;
use report::KernelReport;
use rivals::Rivals;
use rows::{Section, Setting};

/// Measure the field kernels against the core's limits and other libraries
///
/// First what the core can do at most: products of a byte and a constant per second, loads, stores.
/// Then every job (multiply-add, the benchmark of the paper that libmoepgf comes from, encoding,
/// decoding, recoding, inversion) is done by Recoded's levels and by the rivals, in turns, round
/// after round, on one core, by the thread's own processor time. Recoded's results are checked
/// against the naive kernel before anything is timed, those of rivals where they can be compared.
///
/// Rivals in C are used when they are installed: apt install libisal2 libgf-complete1.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- kernels --quick
  cargo run --release -p bench -- kernels --rows encode,decode
  cargo run --release -p bench -- kernels --json bench/results/kernels.json --figures bench/results")]
pub struct KernelsOptions {
    /// Also write everything to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the paper's two figures into this folder
    #[arg(long, value_name = "FOLDER")]
    figures: Option<PathBuf>,
    /// Few and short samples: enough to see that it works
    #[arg(long, conflicts_with_all = ["rounds", "millis"])]
    quick: bool,
    /// Samples of everybody; the report has their median and the best
    #[arg(long, default_value_t = 61, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Milliseconds that each sample lasts at least
    #[arg(long, default_value_t = 1.5, value_parser = millis)]
    millis: f64,
    /// Only these rows
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Section::ALL)]
    rows: Vec<Section>,
    /// Measure this ISA-L too, in addition to the installed one
    #[arg(long, value_name = "FILE")]
    isal: Option<PathBuf>,
    /// Core to run on [default: the last that may be used]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Seed of symbols and coefficients
    #[arg(long, default_value_t = 0x5eed)]
    seed: u64,
}

/// Runs the benchmark, prints the tables, writes JSON and figures.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &KernelsOptions) -> Result<(), BenchError> {
    let (rounds, seconds) = match options.quick {
        true => (QUICK_ROUNDS, QUICK_SECONDS),
        false => (usize::from(options.rounds), options.millis / 1e3),
    };
    let core = choose_core(options.core)?;
    cores::pin(core)?;
    let machine = Machine::describe();
    let forced = Kernel::forced().map_err(BenchError::Kernel)?;
    let rivals = Rivals::find(options.isal.as_deref());
    eprintln!("{}", rivals.table());
    let limits = CoreLimits::measure(rounds.min(LIMIT_ROUNDS_MAX), seconds);
    let setting = Setting {
        rivals,
        products: limits.products(),
        store: limits.store(),
        best: forced.unwrap_or_else(Kernel::best),
        seed: options.seed,
    };
    let mut report =
        KernelReport { machine, core, rounds, seconds, limits, setting, rows: Vec::new() };
    for section in &options.rows {
        eprintln!("checking: {}", section.title());
        report.rows.extend(rows::build(*section, &report.setting)?);
    }
    measure(&mut report);
    println!("{}", report.text());
    if let Some(path) = &options.json {
        write_json(path, &report.json())?;
    }
    if let Some(folder) = &options.figures {
        fs::create_dir_all(folder)
            .map_err(BenchError::os(format!("creating {}", folder.display())))?;
        for (name, figure) in figures::draw(&report) {
            write(&folder.join(name), figure)?;
        }
    }
    Ok(())
}

/// Every round measures every contestant, so a disturbance of seconds affects few samples of each.
fn measure(report: &mut KernelReport) {
    let start = Instant::now();
    let (rounds, seconds) = (report.rounds, report.seconds);
    for round in 0..rounds {
        report.rows.iter_mut().for_each(|row| row.round(round, seconds));
        let spent = start.elapsed().as_secs_f64();
        let left = spent / (round + 1) as f64 * (rounds - round - 1) as f64;
        eprintln!("round {}/{rounds}, {left:.0} s left", round + 1);
    }
}

/// The requested core, or the last usable one.
///
/// # Errors
/// [`BenchError::PinCore`].
pub fn choose_core(asked: Option<usize>) -> Result<usize, BenchError> {
    let allowed = cores::allowed()?;
    let chosen = asked.or(allowed.last().copied()).unwrap_or_default();
    if allowed.contains(&chosen) {
        return Ok(chosen);
    }
    Err(BenchError::PinCore { core: chosen, allowed })
}

/// Parses the length of a sample.
///
/// # Errors
/// The allowed range.
pub fn millis(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.01..=1000.0).contains(&value) => Ok(value),
        _ => Err("must be a number of milliseconds from 0.01 to 1000".into()),
    }
}

const QUICK_ROUNDS: usize = 9;
const QUICK_SECONDS: f64 = 0.4e-3;
/// Cap on the initial rounds for the core's limits: every round of the rows measures them again.
const LIMIT_ROUNDS_MAX: usize = 31;
