//! The recoding relay itself: the real runtime, started in this process inside the namespace.

use recoded_pipeline::params::{FlowParams, PeerId, Role, Snapshot};
use recoded_pipeline::report::FlowCounters;
use recoded_runtime::{
    Backend, HopConfig, Idle, LinkConfig, Resources, Runtime, RuntimeReport, Topology,
};
use recoded_wire::DEFAULT_PORT;
use recoded_xsk::{FrameSize, ModePreference};

use crate::error::BenchError;
use crate::relay::bed::{Bed, End, IN, LOAD, OUT, SINK};
use crate::relay::packets::FLOW;
use crate::relay::placement::Cores;
use crate::relay::xdp::Attached;

/// UMEM frames, the daemon's default.
pub const FRAMES: u32 = 8192;

/// More than the shards of one flow take.
const FLOW_MEMORY_BYTES: usize = 256 << 20;

/// A running relay.
pub struct Recoder {
    runtime: Runtime,
    /// With UDP sockets: the program that makes the cable deliver.
    _program: Option<Attached>,
}

/// The relay's own counters.
pub struct Account {
    /// Packets it took from its socket.
    pub received: u64,
    /// Of the flow, over all shards.
    pub flow: FlowCounters,
    /// Loss of the link in front of it, as each shard measured it.
    pub losses: Vec<f64>,
    /// Workers, and workers that have a shard.
    pub workers: [usize; 2],
    /// Packets that arrived at a worker other than their shard's.
    pub handed_over: u64,
    /// How the XDP program runs.
    pub xdp_mode: String,
    /// How the socket that sends works.
    pub socket_mode: String,
}

impl Recoder {
    /// Starts it in the middle of the row, a worker on each of `cores`.
    ///
    /// # Errors
    /// [`BenchError::Start`].
    pub fn start(
        bed: &Bed,
        cores: &Cores,
        symbol_bytes: usize,
        backend: Backend,
    ) -> Result<Recoder, BenchError> {
        // Threads that the runtime starts inherit the namespace of this one.
        bed.r.inside(|| {
            let program = (backend == Backend::Udp).then(|| Attached::pass(&IN)).transpose()?;
            let resources = Resources::open(&topology(cores, backend))?;
            let snapshot = Snapshot { edition: 1, flows: vec![flow(symbol_bytes)] };
            let runtime = Runtime::start(resources, snapshot, None)?;
            Ok(Recoder { runtime, _program: program })
        })
    }

    /// Stops it and returns its account; `None` if it has none of the flow.
    pub fn stop(self) -> Option<Account> {
        account(self.runtime.stop())
    }
}

fn account(report: RuntimeReport) -> Option<Account> {
    let [input, output] = report.links.as_slice() else { return None };
    let shards = || report.workers.iter().flat_map(|worker| &worker.pipeline.flows);
    let mut flow = shards().next()?.counters.clone();
    shards().skip(1).for_each(|shard| flow += &shard.counters);
    let working = report.workers.iter().filter(|worker| !worker.pipeline.flows.is_empty());
    let handed_over = report.workers.iter().map(|worker| worker.pipeline.packets.handed_over);
    Some(Account {
        received: input.counters.rx_packets,
        losses: shards().filter_map(|shard| Some(shard.hops.first()?.loss)).collect(),
        flow,
        workers: [report.workers.len(), working.count()],
        handed_over: handed_over.sum(),
        xdp_mode: output.xdp_mode.clone(),
        socket_mode: output.socket_mode.clone(),
    })
}

fn topology(cores: &Cores, backend: Backend) -> Topology {
    let link = |name: &str, end: &End| LinkConfig {
        name: name.into(),
        interface: end.name.into(),
        local: end.address,
        backend,
        rate_mbit: None,
    };
    Topology {
        workers: cores.relay.len(),
        cores: Some(cores.relay.clone()),
        // The bounce never sleeps either. If the load has the same core, the relay must.
        idle: if cores.are_shared() { Idle::Interrupt } else { Idle::Busy },
        tunnel_queues: cores.relay.len(),
        flow_memory_bytes: FLOW_MEMORY_BYTES,
        frames_per_worker: FRAMES,
        frame_size: FrameSize::SMALL,
        port: DEFAULT_PORT,
        xdp_mode: ModePreference::Auto,
        links: vec![link("west", &IN), link("east", &OUT)],
        hops: vec![
            HopConfig { link: 1, address: SINK.address, key: None, roams: false, path: 0 },
            HopConfig { link: 0, address: LOAD.address, key: None, roams: false, path: 0 },
        ],
        tunnels: vec![],
        private_key: None,
        edges: vec![],
        groups: vec![],
        relayed: vec![],
    }
}

/// The daemon's defaults, as far as a relay has any.
fn flow(symbol_bytes: usize) -> FlowParams {
    let role = Role::Relay { upstream: PeerId(1) };
    let flow = FlowParams::new(FLOW, role, vec![PeerId(0)]);
    FlowParams { symbol_bytes, ..flow }
}
