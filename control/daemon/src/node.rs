//! The real dataplane: implements the interface with `recoded_runtime`.

use crate::accelerator::Accelerator;
use crate::config::{Config, EngineChoice, Idle, XdpMode};
use crate::dataplane::{Dataplane, Observation, Refused};
use crate::keys::Keys;
use recoded_api::v1::{Disagreement, Engine, Frames, Link, Neighbour, Split, Tunnel, Worker};
use recoded_counters::Counter;
use recoded_counters::engine::{Close, Declined, EngineCounters, Fault};
use recoded_pipeline::params::{Nanos, Snapshot};
use recoded_pipeline::report::PacketCounters;
use recoded_runtime::offload::{self, Offload};
use recoded_runtime::report::{HopReport, LinkReport, TunnelReport, WorkerReport};
use recoded_runtime::secure::PublicKey;
use recoded_runtime::{
    Acceleration, HopConfig, Idle as RuntimeIdle, Interface, LinkConfig, ModePreference, Resources,
    Runtime, RuntimeReport, StartError, Topology, TunnelConfig,
};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A running node.
pub struct Node {
    runtime: Runtime,
    accelerator: Accelerator,
    /// TCP connections that end at the edges of tunnels, as the supervisor last reported.
    splits: RefCell<BTreeMap<String, Split>>,
}

impl Node {
    /// Opens all resources of `config` and starts the workers.
    ///
    /// # Errors
    ///
    /// [`StartError`]: one sentence and its fix.
    pub fn start(config: &Config, keys: Keys, snapshot: Snapshot) -> Result<Node, StartError> {
        let resources = Resources::open(&topology(config, keys))?;
        let accelerator = Accelerator::new(config.daemon.engine, config.daemon.fpga.clone());
        Node::start_on(resources, config, snapshot, accelerator)
    }

    /// Starts the workers on resources that are already open.
    ///
    /// # Errors
    ///
    /// [`StartError`]: one sentence and its fix.
    pub fn start_on(
        resources: Resources,
        config: &Config,
        snapshot: Snapshot,
        accelerator: Accelerator,
    ) -> Result<Node, StartError> {
        let mode = mode(config.daemon.engine);
        let acceleration = Acceleration {
            config: offload::Config { mode, ..offload::Config::default() },
            open: accelerator.opener(),
        };
        let runtime = Runtime::start(resources, snapshot, Some(acceleration))?;
        Ok(Node { runtime, accelerator, splits: RefCell::default() })
    }

    /// Notes the state of split TCP connections, by tunnel.
    pub fn note_splits(&self, splits: BTreeMap<String, Split>) {
        *self.splits.borrow_mut() = splits;
    }

    /// Whether all threads are alive.
    pub fn has_all_threads(&self) -> bool {
        self.runtime.has_all_threads()
    }

    /// The worker that does not respond, if any, and since when.
    pub fn stuck(&self) -> Option<(usize, std::time::Duration)> {
        self.runtime.stuck()
    }

    /// Whether an interface reappeared that only a new process can open.
    pub fn needs_restart(&self) -> bool {
        self.runtime.needs_restart()
    }

    /// Whether this process was set back to a snapshot, or runs twice.
    pub fn is_set_back(&self) -> bool {
        self.runtime.is_set_back()
    }

    /// Leaves packets queued in tunnels to the process that takes over.
    pub fn leave(&self) {
        self.runtime.leave();
    }

    /// Whether packets read earlier have been delivered, as far as known.
    pub fn has_left(&self) -> bool {
        self.runtime.has_left()
    }

    /// Ends the workers, after [`Node::leave`].
    pub fn end_workers(&self) {
        self.runtime.end_workers();
    }

    /// Drains, detaches, removes what was created, and returns the final observation.
    pub fn stop(self) -> Observation {
        observation(self.runtime.stop())
    }
}

impl Dataplane for Node {
    fn publish(&self, snapshot: Snapshot) -> Result<(), Refused> {
        self.runtime.publish(snapshot).map_err(|error| Refused(error.to_string()))
    }

    fn editions(&self) -> Vec<u64> {
        self.runtime.editions()
    }

    fn set_engine(&self, choice: EngineChoice) {
        let Some(offload) = self.runtime.offload() else { return };
        offload.set_mode(mode(choice));
        // A disabled device is retried.
        let is_wanted = choice != EngineChoice::Cpu && !offload.is_up();
        if self.accelerator.choose(choice) || is_wanted {
            offload.replace();
        }
    }

    fn set_rate(&self, link: usize, rate_mbit: Option<f64>) {
        self.runtime.set_rate(link, rate_mbit);
    }

    fn set_sinks(&self, sinks: Vec<(u32, Vec<PublicKey>)>) {
        self.runtime.set_sinks(sinks);
    }

    fn observe(&self) -> Observation {
        let engine = self.runtime.offload().map(engine).unwrap_or_default();
        let mut seen = Observation { engine, ..observation(self.runtime.report()) };
        let splits = self.splits.borrow();
        for tunnel in &mut seen.tunnels {
            tunnel.split = splits.get(&tunnel.name).cloned();
        }
        seen
    }
}

/// The queue's mode for a choice; the queue has one device of either kind.
const fn mode(choice: EngineChoice) -> offload::Mode {
    match choice {
        EngineChoice::Auto => offload::Mode::Auto,
        EngineChoice::Cpu => offload::Mode::Cpu,
        EngineChoice::Cuda | EngineChoice::Fpga => offload::Mode::Device,
    }
}

/// MTU of an interface of this network namespace.
pub fn mtu(interface: &str) -> Option<u32> {
    let found = Interface::query(interface).ok()?;
    u32::try_from(found.mtu).ok()
}

/// The parts of the node that `config` describes.
pub fn topology(config: &Config, keys: Keys) -> Topology {
    let daemon = &config.daemon;
    let links = config.links.iter().map(|link| LinkConfig {
        name: link.name.clone(),
        interface: link.interface.clone(),
        local: link.local,
        backend: link.backend,
        rate_mbit: link.rate_mbit,
    });
    let Keys { private: private_key, hops: known, edges, groups, relayed } = keys;
    let hops = config.hops.iter().zip(known);
    let hops = hops.map(|(hop, key)| HopConfig {
        link: hop.link,
        address: hop.address,
        key,
        roams: config.roams(hop),
        path: config.path(hop),
    });
    let memory = crate::config::budget::for_flows(config.base());
    Topology {
        workers: daemon.workers,
        tunnel_queues: crate::config::diff::tunnel_queues(config),
        flow_memory_bytes: usize::try_from(memory).unwrap_or(usize::MAX),
        cores: daemon.cores.clone(),
        idle: match daemon.idle {
            Idle::Busy => RuntimeIdle::Busy,
            Idle::Adaptive => RuntimeIdle::Adaptive,
            Idle::Interrupt => RuntimeIdle::Interrupt,
        },
        frames_per_worker: daemon.frames,
        frame_size: config.frame_size,
        port: daemon.port,
        xdp_mode: match daemon.xdp_mode {
            XdpMode::Auto => ModePreference::Auto,
            XdpMode::ZeroCopy => ModePreference::ZeroCopy,
            XdpMode::Native => ModePreference::Native,
            XdpMode::Generic => ModePreference::Generic,
        },
        links: links.collect(),
        hops: hops.collect(),
        tunnels: tunnels(config),
        private_key,
        edges,
        groups,
        relayed,
    }
}

/// The tunnels of `config`.
pub fn tunnels(config: &Config) -> Vec<TunnelConfig> {
    let tunnel = |tunnel: &crate::config::Tunnel| TunnelConfig {
        name: tunnel.name.clone(),
        addresses: tunnel.addresses.clone(),
        mtu: tunnel.mtu,
    };
    config.tunnels.iter().map(tunnel).collect()
}

fn observation(report: RuntimeReport) -> Observation {
    let mut packets = PacketCounters::default();
    report.workers.iter().for_each(|worker| packets += &worker.pipeline.packets);
    let (drops, _) = split(packets.iter());
    let verdicts = report.verdicts.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let pipelines = report.workers.iter().map(|worker| &worker.pipeline);
    let (flows, remainders): (Vec<_>, Vec<_>) =
        pipelines.map(|it| (it.flows.clone(), it.remainders.clone())).unzip();
    Observation {
        at: report.at,
        links: report.links.iter().map(|link| self::link(link, report.at)).collect(),
        queues: report.links.iter().map(queues).collect(),
        workers: report.workers.iter().map(worker).collect(),
        tunnels: report.tunnels.iter().map(tunnel).collect(),
        verdicts: verdicts.collect(),
        drops,
        engine: Engine::default(),
        sessions: report.sessions,
        flows,
        remainders: remainders.concat(),
    }
}

fn engine(queue: &Offload) -> Engine {
    let metrics = queue.metrics();
    let scalars = metrics.iter().take(EngineCounters::TABLE.len());
    Engine {
        mode: String::new(),
        up: queue.is_up(),
        device: queue.device().unwrap_or_default(),
        reason: queue.why_down().map(|why| why.to_string()).unwrap_or_default(),
        offered: metrics.offered_jobs,
        taken: metrics.taken_jobs,
        offloaded: metrics.device_jobs,
        offloaded_bytes: metrics.device_bytes,
        declined: named(Declined::TABLE.iter().zip(metrics.declined)),
        redone: named(Fault::TABLE.iter().zip(metrics.redone)),
        bundles: named(Close::TABLE.iter().zip(metrics.closed)),
        bundle_bytes: metrics.bundle_bytes.to_vec(),
        latency_us: metrics.latency.to_vec(),
        counters: named(scalars),
    }
}

fn link(report: &LinkReport, at: Nanos) -> Link {
    let LinkReport { counters: packets, statistics, icmp, .. } = report;
    let all = packets.iter().chain(statistics.iter()).chain(icmp.iter());
    let (faults, counters) = split(all);
    Link {
        name: report.name.clone(),
        interface: report.interface.clone(),
        local: report.local.map(|local| local.to_string()).unwrap_or_default(),
        state: if report.waits.is_empty() { report.status.name() } else { "waiting" }.into(),
        waits: report.waits.clone(),
        mtu: count(report.mtu),
        xdp_mode: report.xdp_mode.clone(),
        socket_mode: report.socket_mode.clone(),
        reason: report.reason.clone(),
        queues: count(report.queues),
        rate_mbit: report.rate_mbit,
        neighbours: report.hops.iter().map(|hop| neighbour(hop, at)).collect(),
        not_neighbours: report.not_neighbours.iter().map(ToString::to_string).collect(),
        received_packets: packets.rx_packets,
        received_bytes: packets.rx_bytes,
        sent_packets: packets.tx_packets,
        sent_bytes: packets.tx_bytes,
        counters,
        faults,
    }
}

/// Faults on the socket of each receive queue.
fn queues(report: &LinkReport) -> Vec<Counts> {
    report.by_queue.iter().map(|statistics| split(statistics.iter()).0).collect()
}

fn neighbour(report: &HopReport, at: Nanos) -> Neighbour {
    let HopReport { address, endpoint, moves, is_resolved, other_version, talked } = report;
    let disagreement = |it: &recoded_runtime::Disagreement| Disagreement {
        flow: it.flow.into(),
        reason: it.reason.into(),
        ours: it.is_ours,
        cause: it.cause.clone(),
        cure: it.cure.clone(),
    };
    Neighbour {
        address: address.to_string(),
        name: String::new(),
        waits: String::new(),
        endpoint: endpoint.map(|endpoint| endpoint.to_string()).unwrap_or_default(),
        moves: *moves,
        resolved: *is_resolved,
        version: talked.software.clone(),
        other_protocol: other_version.version().map(Into::into),
        other_protocol_packets: other_version.packets().into(),
        said_ago_seconds: talked.at.map(|said| at.saturating_sub(said) as f64 / 1e9),
        clock_ahead_seconds: talked.clock_ahead_seconds,
        packet_bytes: talked.packet_bytes.map(|(here, _)| here.into()),
        packet_bytes_there: talked.packet_bytes.map(|(_, there)| there.into()),
        disagreements: talked.disagreements.iter().map(disagreement).collect(),
    }
}

fn worker(report: &WorkerReport) -> Worker {
    let packets = &report.pipeline.packets;
    let frames = &report.frames;
    Worker {
        index: count(report.index),
        core: report.core.map(count),
        idle: report.idle.to_owned(),
        edition: report.pipeline.edition,
        frames: Frames {
            total: frames.total.into(),
            free: frames.free.into(),
            fill: frames.fill.into(),
            held: frames.held.into(),
            tx: frames.tx.into(),
        },
        received: packets.received,
        forwarded: packets.forwarded,
        consumed: packets.consumed,
        handed_over: packets.handed_over,
        dropped: packets.dropped.iter().sum(),
        panics: report.panics,
    }
}

fn tunnel(report: &TunnelReport) -> Tunnel {
    let packets = &report.counters;
    let (faults, counters) = split(packets.iter());
    Tunnel {
        name: report.name.clone(),
        mtu: report.mtu.into(),
        state: report.status.name().into(),
        offload: report.offload.into(),
        reason: report.reason.clone(),
        read_packets: packets.read_packets,
        read_bytes: packets.read_bytes,
        written_packets: packets.written_packets,
        written_bytes: packets.written_bytes,
        counters,
        faults,
        ..Tunnel::default()
    }
}

/// Counters by name.
type Counts = BTreeMap<String, u64>;

/// Faults, and all other counters.
fn split(counters: impl Iterator<Item = (&'static Counter, u64)>) -> (Counts, Counts) {
    let (faults, others): (Vec<_>, Vec<_>) = counters.partition(|(counter, _)| counter.is_fault());
    (named(faults.into_iter()), named(others.into_iter()))
}

fn named(counters: impl Iterator<Item = (&'static Counter, u64)>) -> Counts {
    counters.map(|(counter, count)| (counter.name.to_owned(), count)).collect()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
