//! `bench gpu`: a card compared with all cores of the same machine.
//!
//! ```text
//!  bed       CPU, card, random jobs, comparison of every result before it is timed
//!   card      copies, instructions, launches
//!   coding    encoding and decoding by size, symbol, technique
//!   server    a segment for many peers; one product by CPU and card together
//!   stripes   Reed-Solomon, by Gibraltar's interface
//!   single    one job at a time: where the card begins to win
//!  rows      what was measured ->  figures: SVG, CSV, JSON; report: tables, everything
//! ```

mod bed;
mod rows;
mod scale;

mod card;

mod coding;
mod server;
mod single;
mod stripes;

mod figures;
mod report;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::machine::Machine;
use crate::progress;
use bed::Bed;
use scale::{FULL, QUICK, Scale, TINY};

/// Measure a CUDA card against all cores of this machine, from copies to whole jobs
///
/// First the card itself (copies, instructions, launches), then encoding and decoding by every
/// technique, a streaming server whose segments stay on the card, CPU and card together,
/// Reed-Solomon stripes, and single jobs, which show the break-even size of the card. CPU and card
/// work in turns, in the same run. Before a job is timed, the card's result is compared with the
/// CPU's.
///
/// Where there is no card that works it says so and why, and measures the CPU.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- gpu --quick
  cargo run --release -p bench -- gpu --json bench/record/gpu.json --figures bench/record/gpu")]
pub struct GpuOptions {
    /// Under a minute: fewer shapes, fewer rounds
    #[arg(long, conflicts_with = "tiny")]
    quick: bool,
    /// Shapes of a few bytes, to see that everything runs; the numbers mean nothing
    #[arg(long, hide = true)]
    tiny: bool,
    /// Also write everything to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the figures, and write an index of them, into this folder
    #[arg(long, value_name = "FOLDER")]
    figures: Option<PathBuf>,
    /// After this many seconds everything is measured once only
    #[arg(long, default_value_t = 240, value_name = "SECONDS")]
    time: u64,
    /// Seed of everything random
    #[arg(long, default_value_t = 0x5eed)]
    seed: u64,
}

/// Everything that a run found out.
pub struct Findings {
    /// Where.
    pub machine: Machine,
    /// The card, or the reason why there is none.
    pub card: Result<card::Card, String>,
    /// Break-even sizes of the card.
    pub break_even: Vec<single::BreakEven>,
    /// All numbers and errors.
    pub bed: Bed,
    /// Duration of the run.
    pub seconds: f64,
}

/// Runs the requested measurements, prints and writes the results.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &GpuOptions) -> Result<(), BenchError> {
    let scale = match options {
        GpuOptions { tiny: true, .. } => TINY,
        GpuOptions { quick: true, .. } => QUICK,
        _ => FULL,
    };
    let machine = Machine::describe();
    println!("{}", machine.heading());
    let found = bed::find_card();
    match &found {
        Ok(_) => println!("a card works: see below\n"),
        Err(reason) => println!("NO CARD: {reason}\nonly the CPU is measured\n"),
    }
    let begun = Instant::now();
    let bar = progress::bar("gpu", steps(&scale));
    let time = Duration::from_secs(options.time);
    let bed = Bed::new(scale, found.as_ref().ok().cloned(), options.seed, time, bar)?;
    let findings = measure(bed, found.err(), machine, begun)?;
    report::print(&findings);
    if let Some(path) = &options.json {
        report::write(path, &findings)?;
    }
    if let Some(folder) = &options.figures {
        let action = format!("creating {}", folder.display());
        fs::create_dir_all(folder).map_err(BenchError::os(action))?;
        figures::write(folder, &findings, options.seed)?;
        println!("figures written to {}", folder.display());
    }
    Ok(())
}

fn measure(
    mut bed: Bed,
    why_none: Option<String>,
    machine: Machine,
    begun: Instant,
) -> Result<Findings, BenchError> {
    let card = card::measure(&mut bed);
    coding::encode(&mut bed)?;
    coding::decode(&mut bed)?;
    server::streaming(&mut bed)?;
    server::together(&mut bed)?;
    single::single(&mut bed)?;
    stripes::stripes(&mut bed)?;
    bed.bar.finish_and_clear();
    let no_card = || why_none.unwrap_or_else(|| "it was lost".into());
    Ok(Findings {
        machine,
        card: card.ok_or_else(no_card),
        break_even: single::break_even(&bed),
        bed,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Steps of the bar.
fn steps(scale: &Scale) -> usize {
    let shapes = scale.sizes.len() * scale.symbols.len();
    let ladder = scale.ladder_sizes.len() * (scale.symbols.len() + 1);
    2 + shapes + ladder + scale.sizes.len() + scale.data_buffers.len()
}
