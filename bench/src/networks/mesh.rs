//! Sixteen flows over twelve hosts: each flow's share, and the cost of a packet compared with a
//! line.

use std::net::SocketAddr;
use std::time::Duration;

use recoded_netns::mesh::{LINK_LOSS, LINK_MBIT, Mesh, SHARING};
use recoded_netns::probe::{Probe, ProbeOutcome, ProbePlan};
use recoded_netns::{Bed, BedError};

use super::report::{Figure, Network, Unit, figure};
use super::{Setup, processor_seconds, row};
use crate::error::BenchError;

/// Datagrams of each flow: a rate below the capacity of all links, and one above it.
const PAYLOAD_BYTES: usize = 1272;
const CALM_MBIT: f64 = 6.0;
const FULL_MBIT: f64 = 16.0;

/// Size of a packet on a link, with Ethernet, IP, UDP and Recoded's headers.
const WIRE_BYTES: f64 = 1384.0;

/// Time before a measurement.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The measurements.
pub fn mesh(setup: &Setup) -> Network {
    let rows = vec![
        row("mesh", "recoded, one flow over a line", || {
            sample(setup, &Mesh::line(), SHARING as f64)
        }),
        row("mesh", "recoded, 16 flows", || sample(setup, &Mesh::sixteen_flows(), 1.0)),
    ];
    let mut network = Network {
        name: "mesh",
        what: format!(
            "four sources, each with a flow to each of four sinks, over four relays with links \
             between all of them; {LINK_MBIT} Mbit/s and {:.0} % each, of which four flows share \
             those at the ends. {CALM_MBIT} Mbit/s of datagrams a flow, then {FULL_MBIT}, which is \
             more than fits; and a line of three links with as much as a source has. Least flow: \
             what it got of a quarter of its link, when all were full",
            LINK_LOSS * 100.0
        ),
        rows,
        aims: Vec::new(),
    };
    let ours = "recoded, 16 flows";
    network.aim("lost by the worst flow", ours, "lost, worst", false, 1e-3);
    network.aim("least flow, of its share", ours, "least flow", true, 0.5);
    let line = network.figure("recoded, one flow over a line", COST);
    if line.is_finite() {
        network.aim("processor time, 1.2 times a line's", ours, COST, false, 1.2 * line);
    }
    network
}

/// Processor time for a packet at a node, in microseconds.
const COST: &str = "us per packet and node";

/// Measures flows that each send `times` times the load of one.
fn sample(setup: &Setup, mesh: &Mesh, times: f64) -> Result<Vec<Figure>, BenchError> {
    let bed = mesh.build(setup.seed).map_err(BenchError::Bed)?;
    let daemons = mesh.start(&bed).map_err(BenchError::Bed)?;
    let send = |mbit: f64, length| send(&bed, mesh, mbit * times, length).map_err(BenchError::Bed);
    send(CALM_MBIT, WARM_UP)?;
    let busy = processor_seconds(&daemons)?;
    let calm = send(CALM_MBIT, setup.time)?;
    let busy = processor_seconds(&daemons)? - busy;
    let handled = calm.iter().zip(&mesh.flows);
    let handled: f64 = handled.map(|(flow, way)| (flow.came as usize * way.len()) as f64).sum();
    let full = send(FULL_MBIT, setup.time)?;
    // Packets per second that fit into a flow's share of a link.
    let fits = LINK_MBIT * (1.0 - LINK_LOSS) * 1e6 / 8.0 / WIRE_BYTES / SHARING as f64 * times;
    // Excludes packets that arrived from queues after the last one was sent.
    let millis = setup.time.as_secs_f64() * 1e3;
    let rates = full.iter().map(|flow| flow.rate_between(0.0, millis));
    let least = rates.fold(f64::INFINITY, f64::min);
    Ok(vec![
        figure("lost, worst", Unit::Share, worst(&calm, ProbeOutcome::loss)),
        figure("p99, worst", Unit::Millis, worst(&calm, |flow| flow.quantile_millis(0.99))),
        figure("least flow", Unit::Ratio, least / fits),
        figure(COST, Unit::Ratio, busy * 1e6 / handled.max(1.0)),
        figure("cores of daemons", Unit::Ratio, busy / setup.time.as_secs_f64()),
    ])
}

fn worst(flows: &[ProbeOutcome], value: impl Fn(&ProbeOutcome) -> f64) -> f64 {
    flows.iter().map(value).fold(0.0, f64::max)
}

/// Sends over all flows at once, and returns the result of each.
fn send(
    bed: &Bed,
    mesh: &Mesh,
    mbit: f64,
    length: Duration,
) -> Result<Vec<ProbeOutcome>, BedError> {
    let start = |number: usize, way: &[usize]| {
        let plan = ProbePlan {
            to: SocketAddr::from((Mesh::address(number), 7000)),
            payload_bytes: PAYLOAD_BYTES,
            packets_per_second: mbit * 1e6 / 8.0 / PAYLOAD_BYTES as f64,
            length,
            grace: Duration::from_millis(800),
            buffer_bytes: None,
        };
        Probe::start(&bed.hosts()[way[0]], &bed.hosts()[way[way.len() - 1]], &plan)
    };
    let flows = mesh.flows.iter().enumerate();
    let probes = flows.map(|(number, way)| start(number, way)).collect::<Result<Vec<_>, _>>()?;
    probes.into_iter().map(Probe::finish).collect()
}
