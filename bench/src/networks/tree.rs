//! Datagrams from one source to several receivers over two relays.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_netns::probe::{Probe, ProbeOutcome, ProbePlan};
use recoded_netns::topology::{RECEIVER, TO_RELAYS, TREE_DELAY_MS, TREE_MBIT, Topology};
use recoded_netns::{Bed, BedError, Namespace};

use super::report::{ContenderRow, Figure, Network, Unit, figure};
use super::{Setup, processor_seconds, row};
use crate::error::BenchError;

/// The load.
const PAYLOAD_BYTES: usize = 1300;
const MBIT: f64 = 50.0;

/// Port of the datagrams.
const PORT: u16 = 7000;

/// Time before a measurement, for sources and relays to estimate the capacity of their links.
const WARM_UP: Duration = Duration::from_millis(1500);

/// End-to-end FEC: source symbols of a block, and blocks that may stay incomplete at the worst
/// sink.
const BLOCK_SYMBOLS: u32 = 256;
const INCOMPLETE: f64 = 1e-4;

/// Contenders that send to all receivers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Contender {
    /// Linux, a copy for each.
    Unicast,
    /// Ours, with these lines for the path.
    Tunnel(&'static str),
}

/// The measurements.
pub fn tree(setup: &Setup) -> Network {
    let contenders = [
        ("Linux, unicast to each", Contender::Unicast),
        ("recoded, rlnc", Contender::Tunnel("code = \"rlnc\"\n")),
        ("recoded", Contender::Tunnel("")),
    ];
    let rows = contenders.map(|(name, it)| row("tree", name, || sample(setup, it)));
    let mut rows = Vec::from(rows);
    rows.insert(1, end_to_end_fec(setup.sinks));
    let mut network = Network {
        name: "tree",
        what: format!(
            "a source, two relays behind links that lose {:.0} and {:.0} %, {} sinks behind links \
             that lose 1 to 20 %, all of {TREE_MBIT} Mbit/s and 10 ms; {MBIT} Mbit/s of datagrams \
             of {PAYLOAD_BYTES} B to all. Worst of the sinks; packets on the worse link of the \
             source for each that entered, times what it does not lose",
            TO_RELAYS[0] * 100.0,
            TO_RELAYS[1] * 100.0,
            setup.sinks
        ),
        rows,
        aims: Vec::new(),
    };
    network.aim("lost by the worst sink", "recoded", "lost, worst", false, 1e-4);
    network.aim("packets on the source's link", "recoded", "packets, source", false, 1.06);
    network
}

fn sample(setup: &Setup, contender: Contender) -> Result<Vec<Figure>, BenchError> {
    let keys = match contender {
        Contender::Unicast => "",
        Contender::Tunnel(keys) => keys,
    };
    let topology = Topology::tree(setup.sinks).with(keys);
    let bed = topology.build(setup.seed).map_err(BenchError::Bed)?;
    let daemons = match contender {
        Contender::Unicast => Vec::new(),
        Contender::Tunnel(_) => topology.start(&bed).map_err(BenchError::Bed)?,
    };
    send(&bed, &topology, contender, WARM_UP).map_err(BenchError::Bed)?;
    let (before, busy) = (bed.counters().map_err(BenchError::Bed)?, processor_seconds(&daemons)?);
    let outcomes = send(&bed, &topology, contender, setup.time).map_err(BenchError::Bed)?;
    let (after, busy_after) =
        (bed.counters().map_err(BenchError::Bed)?, processor_seconds(&daemons)?);
    let worst =
        |value: &dyn Fn(&ProbeOutcome) -> f64| outcomes.iter().map(value).fold(0.0, f64::max);
    // As if each packet had entered once.
    let entered = outcomes.first().map_or(1, |outcome| outcome.sent.max(1)) as f64;
    let packets = TO_RELAYS.iter().enumerate().map(|(link, loss)| {
        let sent = after[link].since(&before[link]).eastward.seen as f64;
        sent / entered * (1.0 - loss)
    });
    let packets = packets.fold(0.0, f64::max);
    let mut figures = vec![
        figure("lost, worst", Unit::Share, worst(&ProbeOutcome::loss)),
        figure("packets lost, all sinks", Unit::Count, outcomes.iter().map(lost).sum()),
        figure("of these overruns", Unit::Count, outcomes.iter().map(|it| it.overrun as f64).sum()),
        figure("p99, worst", Unit::Millis, worst(&|it| it.quantile_millis(0.99))),
        figure("longest gap", Unit::Millis, worst(&ProbeOutcome::longest_gap_millis)),
        figure("packets, source", Unit::Ratio, packets),
    ];
    let cores = (busy_after - busy) / setup.time.as_secs_f64();
    figures.push(figure("cores of daemons", Unit::Ratio, cores));
    Ok(figures)
}

/// Multicast with end-to-end FEC, by arithmetic: relays copy, and any `BLOCK_SYMBOLS` packets
/// decode a block. The source must send for the sink with the highest loss.
fn end_to_end_fec(sinks: usize) -> ContenderRow {
    let arrives =
        Topology::tree_losses(sinks).into_iter().map(|[near, far]| (1.0 - near) * (1.0 - far));
    let arrives = arrives.fold(1.0, f64::min);
    let packets = fec_packets(BLOCK_SYMBOLS, arrives);
    let best = 1.0 - TO_RELAYS.iter().copied().fold(1.0, f64::min);
    // A block's lost first packets are recovered by its last ones.
    let rate = MBIT * 1e6 / 8.0 / PAYLOAD_BYTES as f64;
    let block_ms = f64::from(BLOCK_SYMBOLS) / rate * 1e3;
    let figures = vec![
        figure("lost, worst", Unit::Share, INCOMPLETE),
        figure("p99, worst", Unit::Millis, 2.0 * TREE_DELAY_MS as f64 + block_ms),
        figure(
            "packets, source",
            Unit::Ratio,
            f64::from(packets) / f64::from(BLOCK_SYMBOLS) * best,
        ),
    ];
    ContenderRow { contender: "multicast, FEC end to end, in theory".into(), figures, failed: None }
}

/// Packets of a block of `symbols` symbols that let a sink decode all but a share [`INCOMPLETE`] of
/// the blocks, if a share `arrives` of the packets arrives.
fn fec_packets(symbols: u32, arrives: f64) -> u32 {
    // The last required packet is number n with probability C(n-1, k-1) a^k (1-a)^(n-k).
    let mut chance = arrives.powi(symbols.cast_signed());
    let (mut packets, mut complete) = (symbols, chance);
    while complete < 1.0 - INCOMPLETE && packets < 64 * symbols {
        packets += 1;
        chance *= f64::from(packets - 1) / f64::from(packets - symbols) * (1.0 - arrives);
        complete += chance;
    }
    packets
}

fn lost(outcome: &ProbeOutcome) -> f64 {
    outcome.lost() as f64
}

/// Sends to all receivers and returns each one's result.
fn send(
    bed: &Bed,
    topology: &Topology,
    contender: Contender,
    length: Duration,
) -> Result<Vec<ProbeOutcome>, BedError> {
    let plan = |to: SocketAddr| ProbePlan {
        to,
        payload_bytes: PAYLOAD_BYTES,
        packets_per_second: MBIT * 1e6 / 8.0 / PAYLOAD_BYTES as f64,
        length,
        grace: Duration::from_secs(1),
        buffer_bytes: None,
    };
    let receivers: Vec<&Namespace> =
        topology.receivers().into_iter().map(|host| &bed.hosts()[host]).collect();
    if let Contender::Tunnel(_) = contender {
        let to = SocketAddr::from((RECEIVER, PORT));
        return Probe::start_to(bed.source(), &receivers, &plan(to))?.finish_all();
    }
    let probes = receivers.iter().enumerate().map(|(sink, host)| {
        let to = SocketAddr::new(Topology::leaf_address(sink), PORT);
        Probe::start(bed.source(), host, &plan(to))
    });
    let probes = probes.collect::<Result<Vec<_>, _>>()?;
    probes.into_iter().map(Probe::finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_take_what_losses_take_and_a_margin() {
        assert_eq!(fec_packets(256, 1.0), 256);
        // One symbol: n copies with 0.28^n less than one in ten thousand.
        assert_eq!(fec_packets(1, 0.72), 8);
        let packets = fec_packets(256, 0.72);
        assert!((390..410).contains(&packets), "{packets}");
    }
}
