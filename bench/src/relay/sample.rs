//! One measurement of one case: start it, start the load, let both settle, count for a while, stop,
//! and check that the work was done.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cores::{CoreShares, Ticks};
use crate::error::BenchError;
use crate::relay::bed::Bed;
use crate::relay::case::Case;
use crate::relay::load::{Instrument, Order, Progress};
use crate::relay::packets::Packet;
use crate::relay::placement::Cores;
use crate::relay::proof::{self, Proof};

/// Setting common to all measurements of a run.
pub struct Setting {
    /// The hosts.
    pub bed: Bed,
    /// The load, and the counter at the end of the row.
    pub instrument: Instrument,
    /// Cores of the load, including Linux's work for it, and of the relay and the bounce.
    pub cores: Cores,
    /// Duration of counting.
    pub time: Duration,
    /// Seed of the losses.
    pub seed: u64,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Round, counted from 0.
    pub round: usize,
    /// Packets per second that the load sent.
    pub offered_pps: f64,
    /// Of these, packets that the case received.
    pub received_pps: f64,
    /// Packets per second that arrived at the end of the row.
    pub output_pps: f64,
    /// Share of the time that the load waited for the case, mean over shards. Near 0, the load was
    /// the bottleneck, and the case may be faster.
    pub load_waited: f64,
    /// Time over which it was counted.
    pub seconds: f64,
    /// Load of the generator's cores.
    pub load_core: CoreShares,
    /// Load of the relay's cores.
    pub relay_core: CoreShares,
    /// Proof that the work was done.
    pub proof: Proof,
}

/// Takes one sample.
///
/// # Errors
/// [`BenchError::Unproven`] if the work was not done; otherwise the error that occurred.
pub fn take(
    setting: &mut Setting,
    case: Case,
    packet_bytes: usize,
    round: usize,
) -> Result<Sample, BenchError> {
    let shards = 0..setting.cores.load.len() as u8;
    let packets: Option<Vec<Packet>> =
        shards.map(|shard| Packet::new(packet_bytes, case.destination(), shard)).collect();
    let packets = packets.ok_or(BenchError::PacketBytes(packet_bytes))?;
    let running = case.start(&setting.bed, &setting.cores, packet_bytes)?;
    let order = Order {
        packets: &packets,
        output: case.output(),
        // Every round loses other packets, every case of a round the same.
        seed: setting.seed.wrapping_add(round as u64).max(1),
        cores: &setting.cores.load,
        time: setting.time,
    };
    let load = setting.instrument.start(&setting.bed, &order)?;
    wait_for_first(&setting.instrument)?;
    sleep(WARM_UP);
    let before = Reading::take(setting)?;
    sleep(setting.time);
    let after = Reading::take(setting)?;
    setting.instrument.stop(load)?;
    wait_for_last(&setting.instrument)?;
    let ended = running.stop()?;
    let total = setting.instrument.progress()?;
    let received = ended.received(&total);
    let proof = proof::check(case, packet_bytes, &ended, &total)?;
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let rate = |count: fn(&Progress) -> u64| {
        (count(&after.progress) - count(&before.progress)) as f64 / seconds
    };
    let offered_pps = rate(|progress| progress.sent);
    Ok(Sample {
        round,
        offered_pps,
        received_pps: offered_pps * received as f64 / total.sent.max(1) as f64,
        output_pps: rate(|progress| progress.arrived),
        load_waited: rate(|progress| progress.waited_nanos) / 1e9 / packets.len() as f64,
        seconds,
        load_core: after.load_core.since(&before.load_core),
        relay_core: after.relay_core.since(&before.relay_core),
        proof,
    })
}

/// Waits for the first packet, which Linux takes some tens of milliseconds to prepare.
fn wait_for_first(instrument: &Instrument) -> Result<(), BenchError> {
    let start = Instant::now();
    while instrument.progress()?.arrived == 0 && start.elapsed() < PATIENCE {
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Waits until packets stop arriving: the relay's open generation closes after a timeout.
fn wait_for_last(instrument: &Instrument) -> Result<(), BenchError> {
    let mut count = instrument.progress()?.arrived;
    for _ in 0..SETTLE_ROUNDS_MAX {
        sleep(SETTLE);
        let now = instrument.progress()?.arrived;
        if now == count {
            break;
        }
        count = now;
    }
    Ok(())
}

/// All counters at one moment.
struct Reading {
    at: Instant,
    progress: Progress,
    load_core: Ticks,
    relay_core: Ticks,
}

impl Reading {
    fn take(setting: &Setting) -> Result<Reading, BenchError> {
        let load_core = Ticks::read(&setting.cores.load)?;
        let relay_core = Ticks::read(&setting.cores.relay)?;
        let progress = setting.instrument.progress()?;
        Ok(Reading { at: Instant::now(), progress, load_core, relay_core })
    }
}

/// Caches, branch predictors and page pools are warm after some thousands of packets.
const WARM_UP: Duration = Duration::from_millis(150);
/// Longer than the relay's timeout of 20 ms for a generation that stays open.
const SETTLE: Duration = Duration::from_millis(40);
const SETTLE_ROUNDS_MAX: usize = 25;
/// If nothing has arrived within this time, nothing will, and the proof fails.
const PATIENCE: Duration = Duration::from_secs(2);
