//! `bench figures`: regenerates figures of papers and of theory and compares them with references.
//!
//! ```text
//!  one module per figure --Work--> Figure: panels, series, points, references
//!                                    |-> chart    SVG
//!                                    |-> output   CSV, JSON with verdicts, index
//!                                    '-> verdict  what is within tolerance, and why not (explain)
//! ```

pub mod figure;
pub mod work;

pub mod line;

mod blocks;

mod burst_interleaving;
mod field_batch_size;
mod finite_length;
mod recoding_blocks;
mod recoding_hops;
mod rlnc_overhead;
mod seed003_decoding;
mod seed003_fig7;
mod seed003_software;
mod seed003_xor;
mod stream_hops;

/// The virtual time of the pipeline's own tests.
#[allow(dead_code)] // figures use a part of it
#[path = "../../../dataplane/pipeline/tests/pipeline/timed/mod.rs"]
mod timed;

pub mod chart;
mod explain;
mod verdict;

pub mod output;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use crate::error::BenchError;
use crate::machine::Machine;
use figure::Figure;
use output::Summary;
use work::Work;

/// Regenerate the papers' figures and the tables of theory, and judge every number
///
/// Writes an SVG, a CSV and a JSON file per figure; of all figures, also an index. Every number
/// that has a reference (printed in the paper, or computed by an independent program or Recoded's
/// own theory) gets a verdict: within 1 percentage point or three standard errors, or not, and then
/// why, where that is known. Deviations without a known reason make the command fail.
///
/// Random numbers depend on the seed alone, not on the number of cores.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- figures --quick
  cargo run --release -p bench -- figures seed003-fig8
  cargo run --release -p bench -- figures all --out bench/results/figures")]
pub struct FiguresOptions {
    /// Which figure, or `all`
    #[arg(default_value = ALL, value_parser = names())]
    name: String,
    /// Folder for the files
    #[arg(long, value_name = "FOLDER", default_value = "target/figures")]
    out: PathBuf,
    /// A twentieth of the runs: enough to see that it works
    #[arg(long, conflicts_with = "share")]
    quick: bool,
    /// Share of the runs that published figures take
    #[arg(long, default_value_t = 1.0, value_parser = share)]
    share: f64,
    /// Seed of everything random
    #[arg(long, default_value_t = 0x5eed)]
    seed: u64,
}

/// Draws the requested figures.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &FiguresOptions) -> Result<(), BenchError> {
    let share = if options.quick { QUICK_SHARE } else { options.share };
    let work = Work { seed: options.seed, share };
    let machine = Machine::describe();
    println!("{}\nseed {}, {share} of the runs\n", machine.heading(), work.seed);
    println!("| figure | comparisons | within | explained | seconds |\n|---|---:|---:|---:|---:|");
    let folder = &options.out;
    fs::create_dir_all(folder).map_err(BenchError::os(format!("creating {}", folder.display())))?;
    let mut summaries: Vec<Summary> = Vec::new();
    let wanted = FIGURES.iter().filter(|(name, _)| options.name == ALL || options.name == *name);
    for (name, compute) in wanted {
        let start = Instant::now();
        let figure = compute(work)?;
        let seconds = start.elapsed().as_secs_f64();
        let summary = output::write(folder, &figure, work, &machine, seconds)?;
        let Summary { rows, within, explained, .. } = summary;
        println!("| {name} | {rows} | {within} | {explained} | {seconds:.1} |");
        print_outside(&figure, work);
        summaries.push(summary);
    }
    if options.name == ALL {
        output::write_index(folder, &summaries, work, &machine)?;
    }
    println!("\nwritten to {}", folder.display());
    match summaries.iter().map(Summary::unexplained).sum() {
        0 => Ok(()),
        rows => Err(BenchError::Unexplained { rows }),
    }
}

/// Prints the numbers outside their tolerance.
fn print_outside(figure: &Figure, work: Work) {
    let rows = figure.rows(work.errors_allowed());
    for row in rows.iter().filter(|row| row.within == Some(false)) {
        let reason = row.note.unwrap_or("NO KNOWN REASON");
        eprintln!(
            "{}, {}, {} at {}: {:.4} ({:.4}), reference {:.4}, tolerance {:.4}: {reason}",
            figure.name,
            row.panel,
            row.series,
            row.x,
            row.ours,
            row.standard_error,
            row.reference.unwrap_or(f64::NAN),
            row.tolerance.unwrap_or(f64::NAN),
        );
    }
}

/// Computes one figure.
type Compute = fn(Work) -> Result<Figure, BenchError>;

/// Every figure.
const FIGURES: [(&str, Compute); 12] = [
    (seed003_fig7::NAME, seed003_fig7::compute),
    (seed003_decoding::NAME_8, seed003_decoding::over_hops),
    (seed003_decoding::NAME_9, seed003_decoding::over_batches),
    (seed003_xor::NAME, seed003_xor::compute),
    (seed003_software::NAME, seed003_software::compute),
    (recoding_hops::NAME, recoding_hops::compute),
    (field_batch_size::NAME, field_batch_size::compute),
    (burst_interleaving::NAME, burst_interleaving::compute),
    (finite_length::NAME, finite_length::compute),
    (recoding_blocks::NAME, recoding_blocks::compute),
    (rlnc_overhead::NAME, rlnc_overhead::compute),
    (stream_hops::NAME, stream_hops::compute),
];

fn names() -> Vec<&'static str> {
    [ALL].into_iter().chain(FIGURES.iter().map(|(name, _)| *name)).collect()
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0001..=100.0).contains(&value) => Ok(value),
        _ => Err("must be a number from 0.0001 to 100".into()),
    }
}

const ALL: &str = "all";
const QUICK_SHARE: f64 = 0.05;
