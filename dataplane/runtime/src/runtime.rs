//! A running node: its threads, and what the control side may ask of it.

use crate::accelerator::Accelerator;
use crate::attach::{Attachment, Verdicts};
use crate::error::{SnapshotError, StartError};
use crate::neighbours::{self, HopRoute, NeighbourTask, NextHops};
use crate::outbox::Outbox;
use crate::pacing::Pacer;
use crate::report::{
    HopReport, LinkCounters, LinkReport, RuntimeReport, TunnelCounters, TunnelReport, WorkerPart,
    add_statistics,
};
use crate::resources::{LinkState, Resources, WorkerResources};
use crate::shared::{Clock, Shared};
use crate::slot::Slot;
use crate::snapshot;
use crate::topology::Topology;
use crate::tunnel::Tunnel;
use crate::worker::{State, Worker};
use core_affinity::CoreId;
use crossbeam::channel::{Sender, bounded};
use recoded_offload::{Offload, OpenEngine, Port};
use recoded_pipeline::Pipeline;
use recoded_pipeline::params::{FlowParams, Snapshot};
use recoded_wire::steer::Verdict;
use recoded_xsk::SocketStatistics;
use rustix::thread::set_current_timer_slack;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A running node. Dropping it stops it.
pub struct Runtime {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    neighbours: Option<(Sender<()>, JoinHandle<()>)>,
    steering: Mutex<Steering>,
    tunnels: Arc<[Tunnel]>,
    links: Vec<LinkState>,
    mtus: Vec<usize>,
    topology: Topology,
    pacers: Arc<[Pacer]>,
    offload: Option<Offload>,
}

/// An accelerator for bulk work, and how the queue in front of it works.
pub struct Acceleration {
    /// Settings of the queue.
    pub config: recoded_offload::Config,
    /// Opens the device; called in a thread of its own.
    pub open: OpenEngine,
}

/// The XDP side of the flows.
struct Steering {
    attachments: Vec<Attachment>,
    flows: BTreeSet<u32>,
}

impl Runtime {
    /// Starts the workers on what is open.
    ///
    /// # Errors
    /// [`StartError::Snapshot`] when the snapshot does not fit the topology, [`StartError::Limit`]
    /// when a thread cannot be had. Everything is closed again then. An accelerator that cannot be
    /// opened is none: [`Runtime::offload`] says why.
    pub fn start(
        resources: Resources,
        snapshot: Snapshot,
        acceleration: Option<Acceleration>,
    ) -> Result<Runtime, StartError> {
        let Resources { workers, wakers, attachments, tunnels, links, netlink, topology } =
            resources;
        let mtus: Vec<usize> = links.iter().map(|link| link.interface.mtu).collect();
        snapshot::check(&snapshot, &topology, &mtus)?;

        let routes = hop_routes(&topology, &links);
        let known = neighbours::refresh(&netlink, &routes);
        let next_hops =
            Arc::new(Slot::new(known.unwrap_or_else(|_| vec![None; topology.hops.len()])));
        let shared = Arc::new(Shared::new(snapshot.clone(), next_hops.clone(), wakers));
        let pacers: Arc<[Pacer]> =
            topology.links.iter().map(|link| Pacer::new(link.rate_mbit)).collect();
        allow_units(&pacers, &topology, &snapshot);
        let mut runtime = Runtime {
            shared: shared.clone(),
            workers: Vec::with_capacity(workers.len()),
            neighbours: None,
            steering: Mutex::new(Steering { attachments, flows: BTreeSet::new() }),
            tunnels,
            links,
            mtus,
            topology,
            pacers,
            offload: None,
        };
        let (offload, mut ports) = start_offload(acceleration, workers.len())?;
        runtime.offload = offload;
        let task = NeighbourTask { netlink, hops: routes, slot: next_hops };
        runtime.neighbours = Some(start_neighbours(task, shared)?);
        let clock = Clock::start();
        for (index, resources) in workers.into_iter().enumerate() {
            let port = if ports.is_empty() { None } else { Some(ports.remove(0)) };
            let thread = runtime.start_worker(index, resources, &snapshot, clock, port)?;
            runtime.workers.push(thread);
        }
        // Last: from here on packets come.
        runtime.steering().accept(&snapshot)?;
        Ok(runtime)
    }

    /// Publishes a snapshot: workers adopt it at their next burst.
    ///
    /// Flows that go are refused before they are forgotten and flows that come are known before
    /// they are accepted, so no packet is counted as a mismatch.
    ///
    /// # Errors
    /// [`SnapshotError`] when the snapshot does not fit the topology; the one in use stays.
    pub fn publish(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        snapshot::check(&snapshot, &self.topology, &self.mtus)?;
        let mut steering = self.steering();
        steering.refuse_others(&snapshot)?;
        allow_units(&self.pacers, &self.topology, &snapshot);
        self.shared.snapshot.publish(snapshot.clone());
        self.shared.wake_all();
        steering.accept(&snapshot)
    }

    /// The edition each worker has adopted; 0 before the first.
    pub fn editions(&self) -> Vec<u64> {
        self.shared.editions.iter().map(|edition| edition.load(Ordering::Acquire)).collect()
    }

    /// Whether all threads still run. False means a bug ended one: stop, and start anew.
    pub fn is_healthy(&self) -> bool {
        let neighbours = self.neighbours.iter().map(|(_, thread)| thread);
        !self.workers.iter().chain(neighbours).any(JoinHandle::is_finished)
    }

    /// The queue in front of the accelerator, where there is to be one.
    pub fn offload(&self) -> Option<&Offload> {
        self.offload.as_ref()
    }

    /// What the node says about itself, at most 50 ms old.
    pub fn report(&self) -> RuntimeReport {
        let parts = self.shared.parts();
        let next_hops = self.shared.next_hops.get();
        let links = (0..self.links.len()).map(|link| self.report_link(link, &parts, &next_hops));
        let tunnels = self.tunnels.iter().enumerate().map(|(index, tunnel)| {
            let mut counters = TunnelCounters::default();
            parts.iter().for_each(|part| counters += part.tunnels[index]);
            TunnelReport { name: tunnel.name().to_owned(), counters }
        });
        RuntimeReport {
            links: links.collect(),
            verdicts: self.steering().verdicts(),
            tunnels: tunnels.collect(),
            workers: parts.iter().map(|part| part.worker.clone()).collect(),
        }
    }

    /// Stops: no packet enters any more, what is open is closed and sent, XDP programs and tunnels
    /// are removed. Takes up to half a second longer than the last packet needs.
    pub fn stop(mut self) -> RuntimeReport {
        self.shut_down();
        self.report()
    }

    fn shut_down(&mut self) {
        // Workers first: what is in their rings is still handled, nothing comes after it.
        self.steering().release_sockets(self.topology.workers);
        self.shared.stop();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker had failed; its report is the last it published");
            }
        }
        if let Some((stop, thread)) = self.neighbours.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("the neighbour thread had failed");
            }
        }
    }

    fn steering(&self) -> std::sync::MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_worker(
        &self,
        index: usize,
        resources: WorkerResources,
        snapshot: &Snapshot,
        clock: Clock,
        port: Option<Port>,
    ) -> Result<JoinHandle<()>, StartError> {
        let WorkerResources { sockets, umem, socket_fds, tunnel_fds } = resources;
        let topology = &self.topology;
        let next_hops = self.shared.next_hops.get();
        let local = |address| SocketAddr::new(address, topology.port);
        let outbox = Outbox::new(
            topology,
            self.mtus.clone(),
            self.pacers.clone(),
            self.tunnels.clone(),
            next_hops,
            port.map(Accelerator::new),
        );
        let mut worker = Worker {
            index,
            core: None,
            idle: topology.idle,
            clock,
            shared: self.shared.clone(),
            sockets,
            umem,
            pipeline: Pipeline::new(snapshot, seed()),
            outbox,
            local: topology.links.iter().map(|link| local(link.local)).collect(),
            pacers: self.pacers.clone(),
            hop_links: topology.hops.iter().map(|hop| hop.link).collect(),
            tunnels: self.tunnels.clone(),
            reads_tunnels: index == 0,
            state: State::default(),
        };
        let core = topology.cores.as_ref().map(|cores| cores[index]);
        std::thread::Builder::new()
            .name(format!("recoded-w{index}"))
            .spawn(move || {
                worker.core = core.filter(|core| pin(*core));
                // Linux otherwise lets timers slip by 50 us, which pacing and flushing would feel.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                worker.run(&socket_fds, &tunnel_fds);
            })
            .map_err(|source| StartError::Limit { what: "a worker thread", source })
    }

    fn report_link(&self, link: usize, parts: &[WorkerPart], next_hops: &NextHops) -> LinkReport {
        let config = &self.topology.links[link];
        let LinkState { interface, mode } = &self.links[link];
        let mut counters = LinkCounters::default();
        let mut statistics = SocketStatistics::default();
        for part in parts {
            let (of_worker, of_socket) = part.links[link];
            counters += of_worker;
            add_statistics(&mut statistics, of_socket);
        }
        let hops = self.topology.hops.iter().zip(next_hops).filter(|(hop, _)| hop.link == link);
        LinkReport {
            name: config.name.clone(),
            interface: config.interface.clone(),
            mtu: interface.mtu,
            rate_mbit: config.rate_mbit,
            xdp_mode: mode.xdp.to_string(),
            socket_mode: mode.socket.to_string(),
            reason: mode.reason.clone(),
            queues: self.topology.workers,
            hops: hops
                .map(|(hop, next)| HopReport { address: hop.address, is_resolved: next.is_some() })
                .collect(),
            counters,
            statistics,
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Steering {
    /// Refuses flows that are not in `snapshot`.
    fn refuse_others(&mut self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let wanted: BTreeSet<u32> = snapshot.flows.iter().map(|flow| flow.id).collect();
        let gone: Vec<u32> = self.flows.difference(&wanted).copied().collect();
        gone.into_iter().try_for_each(|flow| self.set_flow(flow, false))
    }

    /// Accepts the flows of `snapshot`.
    fn accept(&mut self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let ids = snapshot.flows.iter().map(|flow| flow.id);
        let new: Vec<u32> = ids.filter(|id| !self.flows.contains(id)).collect();
        new.into_iter().try_for_each(|flow| self.set_flow(flow, true))
    }

    fn set_flow(&mut self, flow: u32, accept: bool) -> Result<(), SnapshotError> {
        for attachment in &mut self.attachments {
            attachment.set_flow(flow, accept).map_err(|error| SnapshotError::FlowTable {
                interface: attachment.interface().to_owned(),
                reason: error.to_string(),
            })?;
        }
        if accept {
            self.flows.insert(flow);
        } else {
            self.flows.remove(&flow);
        }
        Ok(())
    }

    /// Takes the sockets out of the maps, so that nothing more arrives at them.
    fn release_sockets(&mut self, queues: usize) {
        for attachment in &mut self.attachments {
            for queue in 0..queues as u32 {
                if let Err(error) = attachment.unset_socket(queue) {
                    tracing::debug!(%error, queue, "the socket was not in the map");
                }
            }
        }
    }

    fn verdicts(&self) -> Vec<(&'static str, u64)> {
        let mut sum: Verdicts = Default::default();
        for attachment in &self.attachments {
            if let Err(error) = attachment.add_verdicts(&mut sum) {
                tracing::warn!(%error, interface = attachment.interface(), "no verdicts");
            }
        }
        Verdict::ALL.into_iter().map(Verdict::name).zip(sum).collect()
    }
}

fn hop_routes(topology: &Topology, links: &[LinkState]) -> Vec<HopRoute> {
    let route = |hop: &crate::topology::HopConfig| HopRoute {
        interface: links[hop.link].interface.index,
        source_mac: links[hop.link].interface.mac,
        source: topology.links[hop.link].local,
        destination: hop.address,
        port: topology.port,
    };
    topology.hops.iter().map(route).collect()
}

/// Lets each link go into debt for the largest unit that a source sends over it.
fn allow_units(pacers: &[Pacer], topology: &Topology, snapshot: &Snapshot) {
    for (link, pacer) in pacers.iter().enumerate() {
        let unit = |flow: &FlowParams| {
            let hops = flow.next_hops.iter().map(|hop| &topology.hops[usize::from(hop.0)]);
            let copies = hops.filter(|hop| hop.link == link).count();
            copies * flow.unit_packets_max() * (flow.symbol_bytes + UNIT_HEADER_BYTES)
        };
        pacer.allow_unit(snapshot.flows.iter().map(unit).max().unwrap_or(0));
    }
}

fn start_offload(
    acceleration: Option<Acceleration>,
    workers: usize,
) -> Result<(Option<Offload>, Vec<Port>), StartError> {
    let Some(Acceleration { config, open }) = acceleration else { return Ok((None, Vec::new())) };
    let (offload, ports) = Offload::start(config, workers, open).map_err(StartError::Offload)?;
    Ok((Some(offload), ports))
}

fn start_neighbours(
    task: NeighbourTask,
    shared: Arc<Shared>,
) -> Result<(Sender<()>, JoinHandle<()>), StartError> {
    let (stop, stopped) = bounded(1);
    let thread = std::thread::Builder::new()
        .name("recoded-neigh".into())
        .spawn(move || {
            let NeighbourTask { netlink, hops, slot } = task;
            neighbours::run(&netlink, &hops, &slot, || shared.wake_all(), &stopped);
        })
        .map_err(|source| StartError::Limit { what: "the neighbour thread", source })?;
    Ok((stop, thread))
}

/// Pins the current thread; a machine without that core still works, only slower.
fn pin(core: usize) -> bool {
    let pinned = core_affinity::set_for_current(CoreId { id: core });
    if !pinned {
        tracing::warn!(core, "the worker is not pinned: no such core, or not ours to use");
    }
    pinned
}

/// A different start of the coefficient generator for every worker of every run. It need not be
/// secret: a relay that can be predicted recodes as well as one that cannot.
fn seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// Headers of a packet beside its symbol: Ethernet, IPv6, UDP, ours and a vector of usual length.
const UNIT_HEADER_BYTES: usize = 14 + 40 + 8 + 20 + 32;
