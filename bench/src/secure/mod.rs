//! `bench secure`: cost of keys per packet, compared with other MACs and AEADs, on one core, in
//! turns.
//!
//! ```text
//!  ring of packets (L2) -> each contestant, one packet after the other -> ns per packet
//! ```

mod attack;

mod adversaries;

mod forged;

mod line;

mod path;

mod rivals;

mod work;

use std::path::PathBuf;

use serde::Serialize;

use crate::cores;
use crate::error::BenchError;
use crate::kernels::{choose_core, millis, thread_seconds};
use crate::machine::Machine;
use crate::results::write_json;
use adversaries::SimulatedReport;
use work::PacketWork;

/// Measure what tags and encryption cost per packet
///
/// Tags of hops, verification of homomorphic tags by 4, 8 and 16 columns, envelopes from end to
/// end, alone and in the pipeline of a source and a sink. For comparison: AES-GMAC, AEGIS, SipHash,
/// BLAKE3, ChaCha20-Poly1305 and boringtun, in turns in the same run, by the thread's own processor
/// time.
///
/// A relay's tag in, tag out and verification by its 4 of 8 columns should take less than 160 ns
/// together.
///
/// With `--attack` a legitimate flow over a relay with keys is measured instead, alone and under
/// 100,000 hostile packets or 50,000 handshakes a second; needs root, and `recoded` in the folder
/// of this program. Rows in virtual time follow: relays with keys that lie on one of two paths, and
/// forged messages of handshakes; with `--simulated` only these, which need neither.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  cargo run --release -p bench -- secure --quick
  cargo run --release -p bench -- secure --json bench/results/secure.json
  cargo run --release -p bench -- secure --attack --json bench/results/attack.json
  cargo run --release -p bench -- secure --attack --simulated --json bench/results/liars.json")]
pub struct SecureOptions {
    /// Also write everything, each sample included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Few and short samples: enough to see that it works
    #[arg(long, conflicts_with_all = ["rounds", "millis"])]
    quick: bool,
    /// Samples of each; the report has their median and the best
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Milliseconds that each sample lasts at least
    #[arg(long, default_value_t = 5.0, value_parser = millis)]
    millis: f64,
    /// Bytes of a packet
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(200..=9000))]
    bytes: u16,
    /// Core to run on [default: the last that may be used]
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Only rows with this text in their names
    #[arg(long, value_name = "TEXT")]
    rows: Option<String>,
    /// A legitimate flow under attack, instead of the costs per packet
    #[arg(long, conflicts_with_all = ["rounds", "millis", "bytes", "core", "rows"])]
    attack: bool,
    /// Of the attacks, only those in virtual time
    #[arg(long, requires = "attack")]
    simulated: bool,
}

/// Packets in turn: more than fit into L1, fewer than into L2.
const PACKETS: usize = 256;

/// Seed of the rows in virtual time.
const SEED: u64 = 31;

/// Budget of a relay per packet, in nanoseconds.
const AIM_NANOS: f64 = 160.0;

/// One way to protect a packet, or a part of one.
#[derive(Serialize)]
struct ProtectionCost {
    name: String,
    median_nanos: f64,
    best_nanos: f64,
    samples_nanos: Vec<f64>,
}

#[derive(Serialize)]
struct CryptoReport {
    benchmark: &'static str,
    machine: Machine,
    kernel: &'static str,
    packet_bytes: usize,
    packets: usize,
    rows: Vec<ProtectionCost>,
    aim_nanos: f64,
    /// Tag in, tag out and homomorphic verification of 4 columns, measured as one; none if that row
    /// was left out.
    relay_nanos: Option<f64>,
    met: Option<bool>,
}

/// Runs the benchmark, prints the table and writes the JSON.
///
/// # Errors
/// [`BenchError`]: one sentence, with the fix if there is one.
pub fn run(options: &SecureOptions) -> Result<(), BenchError> {
    if options.simulated {
        let report = SimulatedReport::measure(SEED, options.quick)?;
        println!("{}", report.table());
        return options.json.as_ref().map_or(Ok(()), |path| write_json(path, &report));
    }
    if options.attack {
        let report = attack::run(SEED, options.quick)?;
        println!("{}", report.table());
        return options.json.as_ref().map_or(Ok(()), |path| write_json(path, &report));
    }
    let (rounds, seconds) = match options.quick {
        true => (3, 0.5e-3),
        false => (usize::from(options.rounds), options.millis / 1e3),
    };
    cores::pin(choose_core(options.core)?)?;
    let machine = Machine::describe();
    let bytes = usize::from(options.bytes);
    let mut works: Vec<Box<dyn PacketWork>> = work::ours(bytes);
    works.extend(path::all(bytes));
    works.extend(line::all(bytes));
    works.extend(rivals::all(bytes));
    works.retain(|work| options.rows.as_ref().is_none_or(|text| work.name().contains(text)));
    let mut samples = vec![Vec::with_capacity(rounds); works.len()];
    for _ in 0..rounds {
        for (work, samples) in works.iter_mut().zip(&mut samples) {
            samples.push(sample(work.as_mut(), seconds));
        }
    }
    let rows = works.iter().zip(samples).map(|(work, samples)| row(work.name(), samples));
    let rows: Vec<ProtectionCost> = rows.collect();
    let relay = rows.iter().find(|row| row.name == work::RELAY).map(|row| row.median_nanos);
    println!("{}\n\n{}", machine.heading(), table(&rows, bytes));
    if let Some(relay) = relay {
        println!("a relay's share, {relay:.0} ns, against an aim of {AIM_NANOS:.0} ns");
    }
    if let Some(path) = &options.json {
        let report = CryptoReport {
            benchmark: "secure",
            machine,
            kernel: recoded_gf::Kernel::best().name(),
            packet_bytes: bytes,
            packets: PACKETS,
            rows,
            aim_nanos: AIM_NANOS,
            relay_nanos: relay,
            met: relay.map(|relay| relay < AIM_NANOS),
        };
        write_json(path, &report)?;
    }
    Ok(())
}

/// Nanoseconds per packet, over all packets, repeated until `seconds` have passed.
fn sample(work: &mut dyn PacketWork, seconds: f64) -> f64 {
    let (start, mut packets) = (thread_seconds(), 0_usize);
    loop {
        (0..PACKETS).for_each(|packet| work.run(packet));
        packets += PACKETS;
        let spent = thread_seconds() - start;
        if spent >= seconds {
            return spent * 1e9 / packets as f64;
        }
    }
}

fn row(name: &str, samples: Vec<f64>) -> ProtectionCost {
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    ProtectionCost {
        name: name.into(),
        median_nanos: sorted[sorted.len() / 2],
        best_nanos: sorted[0],
        samples_nanos: samples,
    }
}

fn table(rows: &[ProtectionCost], bytes: usize) -> String {
    let head = format!("{:<52} {:>8} {:>8} {:>8}", "ns per packet", "median", "best", "Gbit/s");
    let line = |row: &ProtectionCost| {
        let rate = bytes as f64 * 8.0 / row.median_nanos;
        let ProtectionCost { name, median_nanos, best_nanos, .. } = row;
        format!("{name:<52} {median_nanos:>8.1} {best_nanos:>8.1} {rate:>8.1}")
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>().join("\n")
}
