//! Repeats the run of one seed, or tries many.

#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use recoded_sim::{Described, LiarRow, Promise, Scenario, Summary, Swept, run, run_watched, sweep};

/// Plays the scenario of a seed and shows what happened, or looks for seeds that fail.
#[derive(Parser)]
#[command(name = "recoded-sim")]
struct Arguments {
    /// The seed; with --count the first of them.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Runs this many seeds and shows only those that fail.
    #[arg(long)]
    count: Option<u64>,
    /// Threads for --count.
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Shows what arrives over two paths while a relay of one of them lies, for each lie. With
    /// --count, runs only the seeds that draw such a relay.
    #[arg(long, conflicts_with = "trace")]
    liars: bool,
    /// Prints every step of the run.
    #[arg(long, conflicts_with = "count")]
    trace: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.count {
        Some(count) => search(&arguments, count),
        None if arguments.liars => liars(arguments.seed),
        None => repeat(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn liars(seed: u64) -> Result<(), Box<dyn Error>> {
    println!("code    spread    lie                               share  missing    99th pct");
    let rows = LiarRow::all(seed).map_err(|(row, violation)| format!("{row}: {violation}"))?;
    rows.iter().for_each(|row| println!("{row}"));
    Ok(())
}

fn search(arguments: &Arguments, count: u64) -> Result<(), Box<dyn Error>> {
    let seeds = arguments.seed..arguments.seed.saturating_add(count);
    let seeds = seeds.filter(|seed| !arguments.liars || Scenario::draws_liar(*seed));
    let seeds: Vec<u64> = seeds.collect();
    let count = seeds.len();
    let Swept { found, short } = sweep(seeds.into_iter(), arguments.threads);
    for found in &found {
        println!("{found}");
    }
    println!("{short} of {count} seeds miss a generation or block");
    match found.len() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {count} seeds fail").into()),
    }
}

fn repeat(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::from_seed(arguments.seed);
    let mut out = BufWriter::new(std::io::stdout().lock());
    write!(out, "{}", Described(&scenario))?;
    let mut written = Ok(());
    let outcome = run_watched(&scenario, |now, step| {
        if arguments.trace && written.is_ok() {
            written = writeln!(out, "{:>12.3} us  {step}", now as f64 / 1e3);
        }
    });
    written?;
    match outcome {
        Ok(outcome) => write!(out, "{}", Summary(&scenario, &outcome))?,
        Err(violation) => {
            // If only promises are broken, print the result anyway.
            let promise = Promise { intact: false, delivered: None, ..scenario.promise.clone() };
            let lenient = Scenario { promise, ..scenario };
            if let Ok(outcome) = run(&lenient) {
                write!(out, "{}", Summary(&lenient, &outcome))?;
            }
            out.flush()?;
            return Err(format!("seed {}: {violation}", arguments.seed).into());
        }
    }
    Ok(out.flush()?)
}
