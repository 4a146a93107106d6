//! `bench edge`: TCP through one tunnel over a clean cable, compared with the bare cable and with a
//! user-space WireGuard.

mod bed;

mod contender;

mod sample;

mod report;

use std::path::PathBuf;

use crate::cores;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::results::write_json;
use bed::Bed;
use contender::Contender;
use report::{EdgeReport, Series};

/// Measure TCP through a tunnel over a clean cable, on the cores of this machine
///
/// Two hosts in network namespaces, joined by one unshaped veth pair; iperf3 sends one TCP stream
/// from the one to the other. Measured in turns: the cable alone, with and without Linux's
/// offloads, boringtun (WireGuard in user space), and recoded with each code; then both of the
/// former again over a cable with an MTU of 9001 bytes. Everything runs on the cores of this
/// machine: the table says how many were busy, programs of others included.
///
/// Needs root, iperf3, and `recoded` in the folder of this program; boringtun needs `wg` of
/// wireguard-tools and is left out, with the reason, where it is not to be had.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo build --release -p recoded
  cargo install boringtun-cli --root target/rivals
  cargo run --release -p bench -- edge --quick
  cargo run --release -p bench -- edge --json bench/results/edge.json")]
pub struct EdgeOptions {
    /// Also write everything, each sample included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds that each sample counts, after one that it does not
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Samples per contender; the table shows their median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// One second, one round: enough to see that it works
    #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
    quick: bool,
    /// Only these contenders
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::ALL)]
    contenders: Vec<Contender>,
    /// The program boringtun-cli [default: target/rivals/bin/boringtun-cli, or where the shell
    /// finds it]
    #[arg(long, value_name = "FILE")]
    boringtun: Option<PathBuf>,
}

/// Runs the benchmark, prints the table and writes the JSON.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &EdgeOptions) -> Result<(), BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::NotRoot);
    }
    let (seconds, rounds) = match options.quick {
        true => (1, 1),
        false => (options.seconds, options.rounds),
    };
    let priority = cores::prefer_this_process();
    let mut report = EdgeReport {
        machine: Machine::describe(),
        cores: cores::allowed()?,
        priority,
        seconds,
        rounds,
        series: options.contenders.iter().map(|contender| Series::new(*contender)).collect(),
    };
    for round in 0..usize::from(rounds) {
        for turn in 0..report.series.len() {
            // Each round starts with another contender, so that none always follows the same one.
            let turn = (turn + round) % report.series.len();
            let series = &mut report.series[turn];
            if series.skipped.is_some() {
                continue;
            }
            let name = series.contender.name();
            // A new bed for each sample: no state is left over from the previous contender.
            let bed = Bed::build(series.contender.mtu_bytes())?;
            let boringtun = options.boringtun.as_deref();
            match series.contender.start(&bed, boringtun)? {
                Ok(running) => {
                    let sample = sample::take(&bed, &running, &report.cores, seconds, round)?;
                    eprintln!(
                        "round {}/{rounds}  {name:<20} {:>6.2} Gbit/s",
                        round + 1,
                        sample.gbit
                    );
                    series.samples.push(sample);
                }
                Err(reason) => {
                    eprintln!("skipped: {name}: {reason}");
                    series.skipped = Some(reason);
                }
            }
        }
    }
    println!("{}", report.table());
    if let Some(path) = &options.json {
        write_json(path, &report.json())?;
    }
    Ok(())
}
