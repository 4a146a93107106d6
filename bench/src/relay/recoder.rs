//! The recoding relay itself: the real runtime, started in this process inside the namespace.

use recoded_pipeline::params::{FlowParams, PeerId, Role, Snapshot};
use recoded_pipeline::report::FlowCounters;
use recoded_runtime::{HopConfig, Idle, LinkConfig, Resources, Runtime, RuntimeReport, Topology};
use recoded_wire::DEFAULT_PORT;
use recoded_xsk::ModePreference;

use crate::error::BenchError;
use crate::relay::bed::{Bed, End, IN, LOAD, OUT, SINK};
use crate::relay::packets::{FIELD, FLOW};

/// UMEM frames, the daemon's default.
pub const FRAMES: u32 = 8192;

/// A running relay.
pub struct Recoder {
    runtime: Runtime,
}

/// What the relay did, by its own account.
pub struct Account {
    /// Packets it took from its socket.
    pub received: u64,
    /// Of the flow.
    pub flow: FlowCounters,
    /// Loss of the link in front of it, as it measured it.
    pub loss: Option<f64>,
    /// How the XDP program runs.
    pub xdp_mode: String,
    /// How the socket that sends works.
    pub socket_mode: String,
}

impl Recoder {
    /// Starts it in the middle of the row, its one worker on `core`.
    ///
    /// # Errors
    /// [`BenchError::Start`].
    pub fn start(bed: &Bed, core: usize, symbol_bytes: usize) -> Result<Recoder, BenchError> {
        // Threads that the runtime starts inherit the namespace of this one.
        bed.r.inside(|| {
            let resources = Resources::open(&topology(core))?;
            let snapshot = Snapshot { edition: 1, flows: vec![flow(symbol_bytes)] };
            Ok(Recoder { runtime: Runtime::start(resources, snapshot, None)? })
        })
    }

    /// Stops it and returns its account. `None` when it has none of our flow.
    pub fn stop(self) -> Option<Account> {
        account(self.runtime.stop())
    }
}

fn account(report: RuntimeReport) -> Option<Account> {
    let mut links = report.links.into_iter();
    let (input, output) = (links.next()?, links.next()?);
    let worker = report.workers.into_iter().next()?;
    let flow = worker.pipeline.flows.into_iter().next()?;
    Some(Account {
        received: input.counters.rx_packets,
        loss: flow.hops.first().map(|hop| hop.loss),
        flow: flow.counters,
        xdp_mode: output.xdp_mode,
        socket_mode: output.socket_mode,
    })
}

fn topology(core: usize) -> Topology {
    let link = |name: &str, end: &End| LinkConfig {
        name: name.into(),
        interface: end.name.into(),
        local: end.address,
        rate_mbit: None,
    };
    Topology {
        workers: 1,
        cores: Some(vec![core]),
        // The bounce never sleeps either.
        idle: Idle::Busy,
        frames_per_worker: FRAMES,
        port: DEFAULT_PORT,
        xdp_mode: ModePreference::Auto,
        links: vec![link("west", &IN), link("east", &OUT)],
        hops: vec![
            HopConfig { link: 1, address: SINK.address },
            HopConfig { link: 0, address: LOAD.address },
        ],
        tunnels: vec![],
    }
}

/// The daemon's defaults, as far as a relay has any.
fn flow(symbol_bytes: usize) -> FlowParams {
    let role = Role::Relay { upstream: PeerId(1) };
    let flow = FlowParams::new(FLOW, role, vec![PeerId(0)]);
    FlowParams { field: FIELD, generation_size: 64, symbol_bytes, ..flow }
}
