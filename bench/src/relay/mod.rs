//! `bench relay`: the recoding relay compared with a bare AF_XDP bounce, Linux's forwarding and XDP
//! redirection, in the same namespaces, in turns.

mod placement;

mod bed;

mod packets;

mod load;

mod case;

mod recoder;

mod bounce;

mod xdp;

mod sample;

mod proof;

mod report;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::Duration;

use crate::cores;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::results::write_json;
use bed::Bed;
use case::Case;
use load::Instrument;
use placement::Cores;
use report::{RelayReport, Series};
use sample::{Sample, Setting};

/// Measure the recoding relay and its rivals, in packets per second
///
/// Coded packets (generations of 16 symbols over GF(16), one packet in ten already lost) run
/// through a host in a network namespace. Five ways through that host are measured in turns: the
/// recoding relay (innovative packets cut through, lost ones replaced by recoded ones), the same
/// with UDP sockets, a bare AF_XDP bounce through the same socket module, Linux's ip_forward, and
/// redirection inside XDP.
/// The load is a closed loop: it sends as fast as packets come out at the other end, so that
/// nothing is lost and all get the same packets.
///
/// With several workers the relay has as many receive queues, and the load as many shards, each
/// sent from a core of its own.
///
/// Each number comes with proof that the work was done; without it the run ends with an error.
/// Needs root and two idle cores. The relay should reach 0.8 of the bounce.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- relay --quick
  cargo run --release -p bench -- relay --cases relay --workers 1,2
  cargo run --release -p bench -- relay --rounds 41 --json bench/results/relay.json")]
pub struct RelayOptions {
    /// Also write everything, each sample included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds that each sample counts
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// Samples per case and packet size; the table shows their median
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// A fifth of a second, three rounds: enough to see that it works
    #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
    quick: bool,
    /// Sizes of the IP packets in bytes, headers included
    #[arg(long, value_delimiter = ',', default_values_t = [256, 1500],
          value_parser = clap::value_parser!(u16).range(128..=1500))]
    bytes: Vec<u16>,
    /// Only these cases
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Case::ALL)]
    cases: Vec<Case>,
    /// Numbers of workers of the relay; the other cases have one
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_values_t = [1],
          value_parser = clap::value_parser!(u8).range(1..=16))]
    workers: Vec<u8>,
    /// Core of the load of one worker [default: the last but one that may be used]
    #[arg(long, value_name = "CORE")]
    load_core: Option<usize>,
    /// Core of one worker and of the bounce [default: the last that may be used]
    #[arg(long, value_name = "CORE")]
    relay_core: Option<usize>,
    /// Seed of the losses; round r uses seed + r
    #[arg(long, default_value_t = 0x5eed)]
    seed: u64,
}

/// Runs the benchmark, prints the table and writes the JSON.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &RelayOptions) -> Result<(), BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::NotRoot);
    }
    let (time, rounds) = match options.quick {
        true => (Duration::from_millis(200), 3),
        false => (Duration::from_secs_f64(options.seconds), usize::from(options.rounds)),
    };
    let series = series(options);
    // By number of workers.
    let mut settings = BTreeMap::new();
    for Series { workers, .. } in &series {
        if let Entry::Vacant(place) = settings.entry(*workers) {
            let cores = choose_cores(options, *workers)?;
            place.insert(setting(cores, time, options.seed)?);
        }
    }
    let priority = cores::prefer_this_process();
    let mut report = RelayReport {
        machine: Machine::describe(),
        cores: settings.values().map(|setting| setting.cores.clone()).collect(),
        priority,
        seconds: time.as_secs_f64(),
        rounds,
        seed: options.seed,
        series,
    };
    for round in 0..rounds {
        for turn in 0..report.series.len() {
            // Each round starts with another contender, so that none always follows the same one.
            let turn = (turn + round) % report.series.len();
            let series = &mut report.series[turn];
            let Some(setting) = settings.get_mut(&series.workers) else { continue };
            let sample = take_proven(setting, series, round)?;
            progress(rounds, series, &sample);
            series.samples.push(sample);
        }
    }
    println!("{}", report.table());
    if let Some(path) = &options.json {
        write_json(path, &report.json())?;
    }
    Ok(())
}

/// Takes a sample, and repeats it if it lacks proof: a core that is preempted for some milliseconds
/// lets rings overflow. The report contains the number of repetitions. A repeated failure is no
/// accident and ends the run.
fn take_proven(
    setting: &mut Setting,
    series: &mut Series,
    round: usize,
) -> Result<Sample, BenchError> {
    for _ in 1..ATTEMPTS {
        match sample::take(setting, series.case, series.packet_bytes, round) {
            Err(error @ BenchError::Unproven { .. }) => {
                eprintln!("again, for this sample is void: {error}");
                series.void.push(error.to_string());
            }
            taken => return taken,
        }
    }
    sample::take(setting, series.case, series.packet_bytes, round)
}

fn series(options: &RelayOptions) -> Vec<Series> {
    let sizes = options.bytes.iter().map(|bytes| usize::from(*bytes));
    sizes
        .flat_map(|packet_bytes| {
            options.cases.iter().flat_map(move |case| {
                let workers: &[u8] = if *case == Case::Relay { &options.workers } else { &[1] };
                workers.iter().map(move |workers| Series {
                    case: *case,
                    workers: usize::from(*workers),
                    packet_bytes,
                    samples: Vec::new(),
                    void: Vec::new(),
                })
            })
        })
        .collect()
}

/// Builds the hosts for a number of workers.
fn setting(cores: Cores, time: Duration, seed: u64) -> Result<Setting, BenchError> {
    let bed = Bed::build(cores.relay.len())?;
    let instrument = Instrument::attach(&bed)?;
    Ok(Setting { bed, instrument, cores, time, seed })
}

fn progress(rounds: usize, series: &Series, sample: &Sample) {
    eprintln!(
        "round {}/{rounds}  {:>5} B  {:<25} {:>7.3} Mpps out",
        sample.round + 1,
        series.packet_bytes,
        series.name(),
        sample.output_pps / 1e6,
    );
}

fn choose_cores(options: &RelayOptions, workers: usize) -> Result<Cores, BenchError> {
    let allowed = cores::allowed()?;
    let mut cores = Cores::choose(&allowed, workers)?;
    if workers == 1 {
        let load = options.load_core.unwrap_or(cores.load[0]);
        let relay = options.relay_core.unwrap_or(cores.relay[0]);
        for (core, other) in [(load, relay), (relay, load)] {
            if core == other || !allowed.contains(&core) {
                return Err(BenchError::Core { core, allowed });
            }
        }
        cores = Cores { load: vec![load], relay: vec![relay] };
    }
    Ok(cores)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.05..=600.0).contains(&value) => Ok(value),
        _ => Err("must be a number of seconds from 0.05 to 600".into()),
    }
}

/// Attempts at one sample.
const ATTEMPTS: usize = 8;
