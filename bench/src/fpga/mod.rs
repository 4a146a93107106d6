//! `bench fpga`: the FPGA card, simulated clock by clock, compared with the paper's unit.
//!
//! ```text
//!  engine      Recoded's engine: clocks of jobs by size, length, memory; causes of stalls
//!  break_even  concurrent jobs needed to beat one core, over PCIe
//!  seed        the paper's unit: its ten experiments, and three schedules
//!  size        LUTs per multiply-add, from the synthesis counts
//! ```
//!
//! Clock counts are the same on every machine. A clock of 1/300 us is an assumption: nothing has
//! been placed and routed.

mod break_even;

mod engine;

mod figure;

mod seed;

mod size;

use std::path::PathBuf;

use serde::Serialize;

use crate::error::BenchError;
use crate::figures::chart::draw;
use crate::kernels::thread_seconds;
use crate::machine::Machine;
use crate::results::{write, write_json};

/// Count the clocks of the simulated FPGA card and of the paper's
///
/// Recoded's engine multiplies matrices of many sizes and lengths, from the card's own memory and
/// over PCIe; the paper's unit does the paper's experiments A to J. Both are simulated clock by
/// clock; rates assume 300 MHz. Only the break-even and the clocks simulated per second depend on
/// this machine.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench --features fpga-sim -- fpga --quick
  cargo run --release -p bench --features fpga-sim -- fpga --json bench/results/fpga.json \\
      --figure bench/results/fpga.svg")]
pub struct FpgaOptions {
    /// Also write everything to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw it into this file, as SVG
    #[arg(long, value_name = "FILE")]
    figure: Option<PathBuf>,
    /// Few and short jobs: enough to see that it works
    #[arg(long)]
    quick: bool,
}

/// Everything that was counted.
#[derive(Serialize)]
struct FpgaReport {
    benchmark: &'static str,
    what: &'static str,
    machine: Machine,
    clock_khz: u64,
    jobs: Vec<engine::JobCycles>,
    break_even: break_even::BreakEven,
    experiments: Vec<seed::ExperimentResult>,
    makespans: Vec<seed::Makespan>,
    luts_per_product: Vec<size::MultiplierArray>,
    /// Of the engine, and of the paper's unit with eight compute units, including all other work.
    /// Seconds are those of this thread, so other programs do not count.
    simulated_cycles_per_second: [u64; 2],
}

const WHAT: &str = "simulated; 300 MHz assumed; rates are of destinations only";

/// Runs the benchmark, prints the tables, writes JSON and figure.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &FpgaOptions) -> Result<(), BenchError> {
    let begun = thread_seconds();
    let (jobs, engine_clocks) = engine::measure(options.quick)?;
    let engine_rate = rate(engine_clocks, begun);
    let begun = thread_seconds();
    let (experiments, seed_clocks) = seed::experiments(options.quick)?;
    let seed_rate = rate(seed_clocks, begun);
    let report = FpgaReport {
        benchmark: "fpga",
        what: WHAT,
        machine: Machine::describe(),
        clock_khz: recoded_fpga::sim::CLOCK_KHZ,
        jobs,
        break_even: break_even::measure(options.quick)?,
        experiments,
        makespans: seed::makespans()?,
        luts_per_product: size::rows(),
        simulated_cycles_per_second: [engine_rate, seed_rate],
    };
    println!("{}\n{WHAT}\n\n{}", report.machine.heading(), report.tables());
    if let Some(path) = &options.json {
        write_json(path, &report)?;
    }
    options.figure.as_ref().map_or(Ok(()), |path| write(path, draw(&figure::of(&report))))
}

impl FpgaReport {
    fn tables(&self) -> String {
        let [engine, seed] = self.simulated_cycles_per_second;
        let parts = [
            engine::table(&self.jobs),
            self.break_even.line(),
            seed::table(&self.experiments),
            seed::makespan_line(&self.makespans),
            size::table(&self.luts_per_product),
            format!(
                "clocks simulated a second of a core: engine {engine}, the paper's unit {seed}"
            ),
        ];
        parts.join("\n\n")
    }
}

fn rate(clocks: u64, begun: f64) -> u64 {
    (clocks as f64 / (thread_seconds() - begun)) as u64
}

/// Rate in Gbit/s of `bytes` in `clocks`.
fn gbit(bytes: u64, clocks: u64) -> f64 {
    bytes as f64 * 8.0 * recoded_fpga::sim::CLOCK_KHZ as f64 / 1e6 / clocks as f64
}

/// Wraps an error of the simulated card, which only a bug in this project can cause.
fn card<E: std::error::Error + Send + Sync + 'static>(error: E) -> BenchError {
    BenchError::os("simulating the card")(std::io::Error::other(error))
}
