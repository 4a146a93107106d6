//! The paper's unit: its experiments A to J (Table II), and schedules (Sec. III-C).

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use recoded_code::bats::PAPER_ROW_DEGREES;
use recoded_fpga::sim::seed::{BATCH_SIZE, ChannelModel, Policy, SYMBOLS, Setup, encode, schedule};
use serde::Serialize;

use super::{card, gbit};
use crate::error::BenchError;

/// One experiment at one length of packets.
#[derive(Serialize)]
pub struct ExperimentResult {
    pub name: &'static str,
    pub units: usize,
    pub ports: usize,
    pub adapters: usize,
    pub channels: usize,
    pub policy: &'static str,
    pub packet_bytes: usize,
    pub cycles: u64,
    pub gbit_per_second: f64,
    /// Rate on a card that the paper reports.
    pub paper_gbit_per_second: Option<f64>,
    /// Shares of the time that the arrays were busy, or waited for the port. For the rest they
    /// waited for packets or for the end.
    pub busy: f64,
    pub waits_for_output: f64,
}

/// Name, units, ports, adapters, channels, policy, the paper's rate. The last, A', is A with the
/// paper's own schedule, as in its text.
type Experiment = (&'static str, usize, usize, usize, usize, Policy, Option<f64>);

const EXPERIMENTS: [Experiment; 11] = [
    ("A", 8, 1, 8, 8, Policy::LongestFirst, Some(25.0)),
    ("B", 8, 1, 1, 1, Policy::LongestFirst, Some(12.0)),
    ("C", 8, 1, 2, 2, Policy::LongestFirst, Some(18.0)),
    ("D", 8, 1, 4, 4, Policy::LongestFirst, Some(24.0)),
    ("E", 8, 1, 4, 2, Policy::LongestFirst, Some(23.0)),
    ("F", 8, 1, 8, 8, Policy::InOrder, Some(24.0)),
    ("G", 4, 1, 4, 4, Policy::LongestFirst, Some(14.0)),
    ("H", 2, 1, 2, 2, Policy::LongestFirst, Some(7.5)),
    ("I", 1, 1, 1, 1, Policy::LongestFirst, Some(6.0)),
    ("J", 8, 2, 8, 8, Policy::LongestFirst, Some(27.0)),
    ("A'", 8, 1, 8, 8, Policy::Mirrored, None),
];

/// Packet size of the figure; the paper's own length is not known.
pub const PACKET_BYTES: usize = 1024;

const BATCHES: u16 = 32;

/// Every experiment, 32 batches each, and the clocks simulated.
pub fn experiments(is_quick: bool) -> Result<(Vec<ExperimentResult>, u64), BenchError> {
    let lengths: &[usize] = if is_quick { &[32] } else { &[256, 512, PACKET_BYTES, 4096] };
    let (mut rows, mut clocks) = (Vec::new(), 0);
    for &packet_bytes in lengths {
        let mut block = vec![0; SYMBOLS * packet_bytes];
        SmallRng::seed_from_u64(1).fill_bytes(&mut block);
        for experiment in EXPERIMENTS {
            let row = run(experiment, packet_bytes, &block)?;
            clocks += row.cycles;
            rows.push(row);
        }
    }
    Ok((rows, clocks))
}

fn run(
    experiment: Experiment,
    packet_bytes: usize,
    block: &[u8],
) -> Result<ExperimentResult, BenchError> {
    let (name, units, ports, adapters, channels, policy, paper) = experiment;
    let memory = ChannelModel { channels, ..ChannelModel::default() };
    let setup = Setup { bits: 2, units, adapters, ports, policy, memory };
    let encoded = encode(&setup, block, BATCHES).map_err(card)?;
    let share = |clocks: u64| clocks as f64 / (encoded.cycles * units as u64) as f64;
    let bytes = u64::from(BATCHES) * (BATCH_SIZE * packet_bytes) as u64;
    Ok(ExperimentResult {
        name,
        units,
        ports,
        adapters,
        channels,
        policy: name_of(policy),
        packet_bytes,
        cycles: encoded.cycles,
        gbit_per_second: gbit(bytes, encoded.cycles),
        paper_gbit_per_second: paper,
        busy: share(encoded.busy),
        waits_for_output: share(encoded.waits_for_output),
    })
}

/// A table of them.
pub fn table(rows: &[ExperimentResult]) -> String {
    let head = "| experiment | CUs | ports | adapters | channels | schedule | packet | Gbit/s | paper \
                | arrays busy | wait for port |\n|---|---|---|---|---|---|---|---|---|---|---|";
    let line = |row: &ExperimentResult| {
        let paper = row.paper_gbit_per_second.map_or("-".into(), |rate| rate.to_string());
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {:.1} | {paper} | {:.2} | {:.2} |",
            row.name,
            row.units,
            row.ports,
            row.adapters,
            row.channels,
            row.policy,
            row.packet_bytes,
            row.gbit_per_second,
            row.busy,
            row.waits_for_output
        )
    };
    [head.to_owned()].into_iter().chain(rows.iter().map(line)).collect::<Vec<_>>().join("\n")
}

fn name_of(policy: Policy) -> &'static str {
    match policy {
        Policy::InOrder => "in order",
        Policy::Mirrored => "mirrored",
        Policy::LongestFirst => "longest first",
    }
}

/// Time that 32 batches occupy eight units, in products of a coefficient and a byte of each row.
#[derive(Serialize)]
pub struct Makespan {
    pub policy: &'static str,
    pub steps: f64,
    /// All work, evenly.
    pub ideal: f64,
}

/// Large enough that distributing work takes no time.
const CLOCKS_PER_STEP: u32 = 10_000;

/// Of each policy.
pub fn makespans() -> Result<Vec<Makespan>, BenchError> {
    let degree = |row: usize| PAPER_ROW_DEGREES.get(row).map_or(0, |&degree| u32::from(degree));
    let clocks = std::array::from_fn(|row| degree(row) * CLOCKS_PER_STEP);
    let mut makespans = Vec::new();
    for policy in [Policy::InOrder, Policy::Mirrored, Policy::LongestFirst] {
        let schedule = schedule(UNITS, policy, BATCHES, &clocks).map_err(card)?;
        let work: u32 = schedule.batches.iter().map(|batch| degree(batch.1.into())).sum();
        makespans.push(Makespan {
            policy: name_of(policy),
            steps: schedule.clocks as f64 / f64::from(CLOCKS_PER_STEP),
            ideal: f64::from(work) / UNITS as f64,
        });
    }
    Ok(makespans)
}

const UNITS: usize = 8;

/// They in a line.
pub fn makespan_line(makespans: &[Makespan]) -> String {
    let of = |makespan: &Makespan| format!("{} {:.0}", makespan.policy, makespan.steps);
    let all: Vec<String> = makespans.iter().map(of).collect();
    let ideal = makespans.first().map_or(0.0, |makespan| makespan.ideal);
    format!("7 rows, 8 CUs, 32 batches: {}; ideal {ideal:.1}", all.join(", "))
}
