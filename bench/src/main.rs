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

mod stripes;

#[cfg(feature = "fpga-sim")]
mod fpga;

mod secure;

mod papers;

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
    Relay(relay::RelayOptions),
    Edge(edge::EdgeOptions),
    Line(line::LineOptions),
    #[command(hide = true)]
    LineProxy(line::proxy::ProxyOptions),
    Networks(networks::NetworksOptions),
    Kernels(kernels::KernelsOptions),
    Decode(decode::DecodeOptions),
    Worst(worst::WorstOptions),
    Figures(figures::FiguresOptions),
    Bats(bats::BatsOptions),
    Gpu(gpu::GpuOptions),
    Stripes(stripes::StripesOptions),
    #[cfg(feature = "fpga-sim")]
    Fpga(fpga::FpgaOptions),
    Secure(secure::SecureOptions),
    Papers(papers::PapersOptions),
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
        Bench::Stripes(options) => stripes::run(&options),
        #[cfg(feature = "fpga-sim")]
        Bench::Fpga(options) => fpga::run(&options),
        Bench::Secure(options) => secure::run(&options),
        Bench::Papers(options) => papers::run(&options),
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
