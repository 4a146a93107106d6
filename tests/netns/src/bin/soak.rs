//! `scripts/soak`: faults from a seed for any length of time, and a report about the daemons.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use recoded_netns::soak::{SoakPlan, run};
use recoded_netns::sweep;

/// Runs a line of daemons with traffic, lets random faults happen to it, and checks that it
/// recovers, leaks nothing and loses count of nothing. Exit code 0 if so, 1 if not, 2 if it could
/// not run.
#[derive(Parser)]
#[command(name = "soak")]
struct Arguments {
    /// Seconds with faults
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..))]
    seconds: u64,

    /// Which faults come; without it the time of day decides, and the soak says it
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { seconds, seed } = Arguments::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = seed.unwrap_or(now.as_secs());
    println!("soak --seconds {seconds} --seed {seed}");
    if let Err(error) = sweep::clean_up_on_signal() {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    match run(&SoakPlan { seconds, seed }) {
        Ok(outcome) => {
            println!("{outcome}");
            ExitCode::from(u8::from(!outcome.complaints().is_empty()))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
