//! The butterfly: the data of two sources for two receivers, which share one link.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_netns::probe::{Probe, ProbePlan};
use recoded_netns::topology::{
    RECEIVER, Topology, UNIT_LOSS, UNIT_MBIT, UNIT_PACKET_BYTES, UNIT_SYMBOLS,
};

use super::report::{ContenderRow, Figure, Network, Unit, figure};
use super::{Setup, processor_seconds, row};
use crate::error::BenchError;

/// IP and UDP.
const HEADER_BYTES: usize = 28;

/// Time before a measurement, for building tables.
const WARM_UP: Duration = Duration::from_millis(1500);

/// Upper bound of routing for each receiver, out of two links.
const ROUTING: f64 = 1.5;

/// The measurements.
pub fn butterfly(setup: &Setup) -> Network {
    let routing = ContenderRow {
        contender: "routing, in theory".into(),
        figures: vec![figure("links", Unit::Ratio, ROUTING)],
        failed: None,
    };
    let mut network = Network {
        name: "butterfly",
        what: format!(
            "nine links of {UNIT_MBIT} Mbit/s, {:.0} % and 2 ms; generations of {UNIT_SYMBOLS} \
             symbols, combined where branches meet. What each receiver gets, in links: of the one \
             that carries most packets, after losses",
            UNIT_LOSS * 100.0
        ),
        rows: vec![routing, row("butterfly", "recoded, rlnc", || sample(setup))],
        aims: Vec::new(),
    };
    network.aim("links to each receiver", "recoded, rlnc", "links", true, 1.9);
    network.aim("lost by the worst", "recoded, rlnc", "lost, worst", false, 1e-3);
    network
}

fn sample(setup: &Setup) -> Result<Vec<Figure>, BenchError> {
    let topology = Topology::butterfly();
    let bed = topology.build(setup.seed).map_err(BenchError::Bed)?;
    let daemons = topology.start(&bed).map_err(BenchError::Bed)?;
    let receivers: Vec<_> =
        topology.receivers().into_iter().map(|host| &bed.hosts()[host]).collect();
    let send = |length: Duration| {
        let plan = ProbePlan {
            to: SocketAddr::from((RECEIVER, 7000)),
            payload_bytes: UNIT_PACKET_BYTES - HEADER_BYTES,
            packets_per_second: Topology::butterfly_rate(),
            length,
            grace: Duration::from_millis(2500),
            buffer_bytes: None,
        };
        let probe = Probe::start_to(bed.source(), &receivers, &plan);
        probe.and_then(Probe::finish_all).map_err(BenchError::Bed)
    };
    send(WARM_UP)?;
    let (before, busy) = (bed.counters().map_err(BenchError::Bed)?, processor_seconds(&daemons)?);
    let outcomes = send(setup.time)?;
    let after = bed.counters().map_err(BenchError::Bed)?;
    let busy = processor_seconds(&daemons)? - busy;
    let carried = after.iter().zip(&before).map(|(after, before)| after.since(before).eastward);
    let most = carried.clone().map(|link| link.seen).max().unwrap_or(1) as f64;
    let found_full: u64 = carried.map(|link| link.queue_drops).sum();
    let came = outcomes.iter().map(|outcome| outcome.came).min().unwrap_or(0) as f64;
    let worst = |value: fn(&recoded_netns::probe::ProbeOutcome) -> f64| {
        outcomes.iter().map(value).fold(0.0, f64::max)
    };
    let seconds = setup.time.as_secs_f64();
    Ok(vec![
        figure("links", Unit::Ratio, came / (most * (1.0 - UNIT_LOSS))),
        figure("payload", Unit::Mbit, came * UNIT_PACKET_BYTES as f64 * 8e-6 / seconds),
        figure("lost, worst", Unit::Share, worst(recoded_netns::probe::ProbeOutcome::loss)),
        figure("p99, worst", Unit::Millis, worst(|it| it.quantile_millis(0.99))),
        figure("found a full queue", Unit::Count, found_full as f64),
        figure("cores of daemons", Unit::Ratio, busy / seconds),
    ])
}
