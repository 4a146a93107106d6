//! `bench line`: TCP and datagrams over lines of lossy links with delay, carried by Linux, by split
//! TCP and by Recoded, in turns on the same line.

pub mod case;

mod contender;

pub mod proxy;

pub mod sample;

pub mod report;

mod figure;

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::builder::PossibleValuesParser;
use recoded_netns::sweep;

use crate::cores;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::results::{write, write_json};
use case::{CASES, Case};
use contender::{CONTENDERS, Contender};
use report::{Line, LineReport, Series};
use sample::Setup;

/// Compare Recoded with Linux and split TCP: TCP and datagrams over lossy lines with delay
///
/// Hosts in a line in network namespaces, joined by emulated links, of 300 Mbit/s unless a name
/// says otherwise. Measured in turns on the same line: Linux forwarding with cubic and with BBR,
/// split TCP with BBR on every hop, and recoded with each code. Of each: a TCP stream with a probe
/// of small datagrams, packets that each link saw per symbol, processor time; on some
/// lines also datagrams by themselves: sparse, voice, and 100 Mbit/s into a default socket buffer.
/// Everything runs on the cores of this machine, links and ends included.
///
/// Needs root, and `recoded` in the folder of this program.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo build --release -p recoded -p bench
  sudo target/release/bench line --json bench/results/line.json --svg bench/results/line.svg
  sudo target/release/bench line --lines 4hops-10%-10ms --contenders split-bbr,rlnc --runs 5
  sudo target/release/bench line --all")]
pub struct LineOptions {
    /// Also write everything, each sample included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the goodput to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Seconds of each stream that count, after two (or sixteen round trips) that do not; twice as
    /// many where the rate falls
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Runs of each contender on each line; the tables show their medians, and of goodput also the
    /// least and the most
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Only these lines
    #[arg(long, value_name = "NAME", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(CASES.iter().map(|case| case.name)))]
    lines: Vec<String>,
    /// All lines, not only those that show most in least time
    #[arg(long, conflicts_with = "lines")]
    all: bool,
    /// Only these contenders; auto, the daemons' default, is a stream here, and measured if named,
    /// and so is interactive
    #[arg(long, value_name = "NAME", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(CONTENDERS.iter().map(|one| one.name)))]
    contenders: Vec<String>,
    /// Seed of the losses; each run takes the next one
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs the benchmark, prints the tables and writes the files.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &LineOptions) -> Result<(), BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::NotRoot);
    }
    sweep::clean_up_on_signal().map_err(BenchError::Bed)?;
    sweep::sweep(false);
    let started = Instant::now();
    let mut report = LineReport {
        machine: Machine::describe(),
        cores: cores::allowed()?,
        seconds: options.seconds,
        runs: options.runs,
        elapsed_seconds: 0.0,
        lines: plan(options),
    };
    let seed = options.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    });
    eprintln!("seed {seed}");
    for run in 0..options.runs {
        for line in &mut report.lines {
            measure(line, options.seconds, run, seed + u64::from(run), &report.cores);
        }
    }
    report.elapsed_seconds = started.elapsed().as_secs_f64();
    println!("{}", report.table());
    if let Some(path) = &options.json {
        write_json(path, &report.json())?;
    }
    if let Some(path) = &options.svg {
        write(path, figure::svg(&report))?;
    }
    Ok(())
}

/// The contenders for each line.
fn plan(options: &LineOptions) -> Vec<Line> {
    let named: Vec<&'static Case> =
        options.lines.iter().filter_map(|name| Case::named(name)).collect();
    let cases = match named.is_empty() {
        true => CASES.iter().filter(|case| case.default || options.all).collect(),
        false => named,
    };
    let named: Vec<&'static Contender> =
        options.contenders.iter().filter_map(|name| Contender::named(name)).collect();
    let contenders = match named.is_empty() {
        true => CONTENDERS.iter().filter(|contender| contender.is_default()).collect(),
        false => named,
    };
    let by_default = options.contenders.is_empty();
    let line = |case: &'static Case| {
        let is_measured = |contender: &&&'static Contender| {
            let is_left_out = by_default && case.twins && contender.is_other_code();
            !contender.is_redundant(case) && !is_left_out
        };
        let contenders = contenders.iter().filter(is_measured);
        let series =
            contenders.map(|contender| Series { contender, samples: Vec::new(), failed: None });
        Line { case, series: series.collect() }
    };
    cases.into_iter().map(line).collect()
}

/// Takes a sample of each contender on a line. A failure is reported in the table: the other
/// results are still useful.
fn measure(line: &mut Line, seconds: u64, run: u16, seed: u64, cores: &[usize]) {
    let case = line.case;
    let seconds = if case.rate_falls_to.is_some() { 2 * seconds } else { seconds };
    for series in &mut line.series {
        let contender = series.contender;
        match (Setup { case, contender, seconds, cores }).take(run, seed) {
            Ok(sample) => {
                for stream in &sample.streams {
                    eprintln!(
                        "run {}  {:<22} {:<10} {:<6} {:>6.1} Mbit/s",
                        run + 1,
                        case.name,
                        contender.name,
                        stream.control,
                        stream.mbit
                    );
                }
                series.samples.push(sample);
            }
            Err(error) => {
                sweep::wait_if_interrupted();
                let text = crate::chain(&error);
                eprintln!("run {}  {} {}: {text}", run + 1, case.name, contender.name);
                series.failed = Some(text.lines().next().unwrap_or_default().to_owned());
            }
        }
    }
}
