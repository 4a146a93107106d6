//! Benchmarks: Recoded and its rivals, on the same machine, in the same run.
//!
//! Not on the packet path. One module per benchmark; each prints a table for readers and writes
//! JSON with every sample, the machine and the date.

#![forbid(unsafe_code)]

mod error;

mod results;

mod machine;

mod cores;

mod progress;

mod median;

mod namespace;

mod relay;

mod edge;

mod line;

mod networks;

mod kernels;

mod decode;

mod worst;

mod figures;

mod bats;

mod gpu;

#[cfg(feature = "fpga-sim")]
mod fpga;

mod secure;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Benchmarks of Recoded, each with its rivals in the same run
#[derive(Parser)]
#[command(name = "bench", version)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Relay(relay::Options),
    Edge(edge::Options),
    Line(line::Options),
    #[command(hide = true)]
    LineProxy(line::proxy::Options),
    Networks(networks::Options),
    Kernels(kernels::Options),
    Decode(decode::Options),
    Worst(worst::Options),
    Figures(figures::Options),
    Bats(bats::Options),
    Gpu(gpu::Options),
    #[cfg(feature = "fpga-sim")]
    Fpga(fpga::Options),
    Secure(secure::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().bench {
        Bench::Relay(options) => relay::run(&options),
        Bench::Edge(options) => edge::run(&options),
        Bench::Line(options) => line::run(&options),
        Bench::LineProxy(options) => line::proxy::run(&options),
        Bench::Networks(options) => networks::run(&options),
        Bench::Kernels(options) => kernels::run(&options),
        Bench::Decode(options) => decode::run(&options),
        Bench::Worst(options) => worst::run(&options),
        Bench::Figures(options) => figures::run(&options),
        Bench::Bats(options) => bats::run(&options),
        Bench::Gpu(options) => gpu::run(&options),
        #[cfg(feature = "fpga-sim")]
        Bench::Fpga(options) => fpga::run(&options),
        Bench::Secure(options) => secure::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut current = error.source();
    while let Some(cause) = current {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        current = cause.source();
    }
    text
}
