//! `bench networks`: several paths, trees and the butterfly. Compares Recoded with TCP over one
//! path, split TCP, MPTCP, unicast and the bound of routing, in turns on the same links.

mod tcp;

mod paths;

mod tree;

mod butterfly;

mod mesh;

mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use recoded_netns::{Daemon, sweep, topology};

use crate::cores;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::results::write_json;
use report::{ContenderRow, Figure, Network, NetworkReport};

/// Measure networks that are not lines: two paths, one of them cut, a tree, the butterfly, a mesh
///
/// Hosts in network namespaces, joined by emulated links; recoded with its defaults, configured by
/// what recodectl render makes of a net.toml. In the same run: BBR over each path, split
/// TCP, Linux's MPTCP with BBR where this kernel has it, unicast to each receiver, generations
/// over the same tree. Everything runs on the cores of this machine, links and ends included.
///
/// Needs root, and `recoded` in the folder of this program.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo build --release -p recoded -p bench
  sudo target/release/bench networks --json bench/results/networks.json
  sudo target/release/bench networks --only tree --sinks 4")]
pub struct NetworksOptions {
    /// Also write everything to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    only: Vec<NetworkPart>,
    /// Seconds of each measurement that count
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Sinks of the tree
    #[arg(long, default_value_t = 8,
          value_parser = clap::value_parser!(u8).range(2..=topology::SINKS_MAX as i64))]
    sinks: u8,
    /// Seed of the losses
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// What is measured.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum NetworkPart {
    /// TCP over two paths
    Paths,
    /// One of them cut, and back
    Cut,
    /// Copies on both, for a probe
    Every,
    /// Datagrams to several receivers
    Tree,
    /// Two branches that share a link
    Butterfly,
    /// Sixteen flows over twelve hosts
    Mesh,
}

/// Setup common to all measurements.
struct Setup {
    seed: u64,
    /// Duration of a measurement.
    time: Duration,
    sinks: usize,
}

/// Runs the benchmark, prints the tables and writes the file.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &NetworksOptions) -> Result<(), BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::NotRoot);
    }
    sweep::clean_up_on_signal().map_err(BenchError::Bed)?;
    sweep::sweep(false);
    let started = Instant::now();
    let seed = options.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    });
    eprintln!("seed {seed}");
    let time = Duration::from_secs(options.seconds);
    let setup = Setup { seed, time, sinks: options.sinks.into() };
    let mut report = NetworkReport {
        machine: Machine::describe(),
        cores: cores::allowed()?,
        seconds: options.seconds,
        seed,
        elapsed_seconds: 0.0,
        networks: Vec::new(),
    };
    for part in NetworkPart::value_variants() {
        if options.only.is_empty() || options.only.contains(part) {
            report.networks.push(setup.measure(*part));
        }
    }
    report.elapsed_seconds = started.elapsed().as_secs_f64();
    println!("{}", report.table());
    if let Some(path) = &options.json {
        write_json(path, &report)?;
    }
    Ok(())
}

impl Setup {
    fn measure(&self, part: NetworkPart) -> Network {
        match part {
            NetworkPart::Paths => paths::sum(self),
            NetworkPart::Cut => paths::cut(self),
            NetworkPart::Every => paths::every(self),
            NetworkPart::Tree => tree::tree(self),
            NetworkPart::Butterfly => butterfly::butterfly(self),
            NetworkPart::Mesh => mesh::mesh(self),
        }
    }
}

/// Measures one contender. A failure is reported in the table: the other results are still useful.
fn row(
    network: &str,
    contender: &str,
    measure: impl FnOnce() -> Result<Vec<Figure>, BenchError>,
) -> ContenderRow {
    let measured = measure();
    let (figures, failed) = match measured {
        Ok(figures) => (figures, None),
        Err(error) => {
            sweep::wait_if_interrupted();
            let text = crate::chain(&error);
            eprintln!("{text}");
            (Vec::new(), Some(text.lines().next().unwrap_or_default().to_owned()))
        }
    };
    let row = ContenderRow { contender: contender.to_owned(), figures, failed };
    eprintln!("{network:<10} {}", row.line());
    row
}

/// Processor time that daemons have used, in seconds.
fn processor_seconds(daemons: &[Daemon]) -> Result<f64, BenchError> {
    let times = daemons.iter().map(Daemon::processor_time);
    times.map(|time| Ok(time.map_err(BenchError::Bed)?.as_secs_f64())).sum()
}
