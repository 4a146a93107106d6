//! A running node: its threads, and its interface for the control side.

use crate::error::{SnapshotError, StartError};
use crate::guard::Guard;
use crate::keyer::Keyer;
use crate::keyring::{Keyring, Rings};
use crate::links;
use crate::mailbox::{Mailbox, mailbox};
use crate::memory::Memory;
use crate::neighbours::{self, NeighbourTask};
use crate::netlink::Netlink;
use crate::node::{Node, mtus, routes, seed};
use crate::opening::{self, Counter, source_memory_bytes};
use crate::outbox::Services;
use crate::pacing::Pacer;
use crate::paths;
use crate::planning;
use crate::report::{IcmpErrors, RuntimeReport};
use crate::resources::{LinkState, Resources, Sources};
use crate::shared::{Clock, Shared};
use crate::slot::Slot;
use crate::snapshot;
use crate::steering::Steering;
use crate::topology::Topology;
use crate::watch::Watch;
use crossbeam::channel::{Sender, bounded};
use recoded_offload::{Offload, OpenEngine, Port};
use recoded_pipeline::params::{FlowParams, Snapshot};
use recoded_secure::PublicKey;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A running node. Dropping it stops it.
pub struct Runtime {
    node: Arc<Node>,
    neighbours: Option<(Sender<()>, JoinHandle<()>)>,
    paths: Option<(Sender<()>, JoinHandle<()>)>,
    /// Ends by itself when the workers are gone.
    planning: Option<JoinHandle<()>>,
    /// As above.
    opening: Option<JoinHandle<()>>,
    keys: Option<JoinHandle<()>>,
    watch: Watch,
    links: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    offload: Option<Offload>,
}

/// An accelerator for bulk work, and the settings of its queue.
pub struct Acceleration {
    /// Settings of the queue.
    pub config: recoded_offload::Config,
    /// Opens the device; called in a thread of its own.
    pub open: OpenEngine,
}

/// The pacer of each link.
fn pacers(topology: &Topology) -> Arc<[Pacer]> {
    topology.links.iter().map(|link| Pacer::new(link.rate_mbit)).collect()
}

impl Runtime {
    /// Starts the workers on the open resources.
    ///
    /// # Errors
    /// [`StartError::Snapshot`] when the snapshot does not fit the topology, [`StartError::Limit`]
    /// when a thread cannot be started. Everything is closed again then. A node runs without an
    /// accelerator that cannot be opened: [`Runtime::offload`] returns the reason.
    pub fn start(
        resources: Resources,
        snapshot: Snapshot,
        acceleration: Option<Acceleration>,
    ) -> Result<Runtime, StartError> {
        let Resources {
            workers,
            wakers,
            attachments,
            plans,
            tunnel_netlink,
            tunnels,
            links,
            netlink,
            path_netlink,
            memory,
            link_sources,
            topology,
            is_sealed,
        } = resources;
        snapshot::check(&snapshot, &topology, &mtus(&links))?;

        let routes = routes(&topology, &links);
        let known = neighbours::refresh(&netlink, &routes);
        let next_hops =
            Arc::new(Slot::new(known.unwrap_or_else(|_| vec![None; topology.hops.len()])));
        let now = links.iter().map(LinkState::now).collect();
        let watch = Watch::start(plans, tunnels.clone(), tunnel_netlink)?;
        let shared = Shared::new(snapshot.clone(), next_hops.clone(), tunnels, now, wakers);
        let shared = Arc::new(shared);
        let pacers = pacers(&topology);
        allow_units(&pacers, &topology, &snapshot);
        let routes = Arc::new(Slot::new(routes));
        let node = Node {
            shared: shared.clone(),
            topology,
            pacers,
            clock: Clock::start(),
            icmp: Mutex::new(vec![IcmpErrors::default(); links.len()]),
            links: Mutex::new(links),
            steering: Mutex::new(Steering::new(attachments)),
            workers: Mutex::default(),
            routes: routes.clone(),
            keyring: Arc::new(Keyring::new(Rings::default())),
            is_sealed,
            needs_restart: AtomicBool::new(false),
        };
        let (offload, mut ports) = start_offload(acceleration, workers.len())?;
        let mut runtime = Runtime {
            node: Arc::new(node),
            neighbours: None,
            paths: None,
            planning: None,
            opening: None,
            keys: None,
            watch,
            links: None,
            offload,
        };
        let task = NeighbourTask { netlink, routes, slot: next_hops };
        runtime.neighbours = Some(start_neighbours(task, shared)?);
        let (thread, desks) = planning::start(workers.len())
            .map_err(|source| StartError::Limit { what: "the planning thread", source })?;
        runtime.planning = Some(thread);
        let (thread, counters) = start_opening(&runtime.node, workers.len())?;
        runtime.opening = Some(thread);
        let (thread, mail) = start_keys(&runtime.node, memory)?;
        runtime.keys = Some(thread);
        let threads = desks.into_iter().zip(counters);
        for (index, (resources, (desk, counter))) in workers.into_iter().zip(threads).enumerate() {
            let port = if ports.is_empty() { None } else { Some(ports.remove(0)) };
            let guard = Guard::new(runtime.node.keyring.clone(), mail.clone());
            let services = Services { port, desk, counter, guard };
            runtime.node.start_worker(index, resources, &snapshot, services)?;
        }
        runtime.accept(&snapshot, path_netlink, link_sources)
    }

    /// The last step: packets arrive from here on.
    fn accept(
        mut self,
        snapshot: &Snapshot,
        paths: Netlink,
        links: Sources,
    ) -> Result<Runtime, StartError> {
        self.node.steering().accept(snapshot)?;
        self.paths = Some(start_paths(self.node.clone(), paths)?);
        self.links = Some(start_links(self.node.clone(), links)?);
        Ok(self)
    }

    /// Publishes a snapshot: workers adopt it at their next burst.
    ///
    /// A removed flow is refused before its state is dropped, and a new flow gets its state before
    /// it is accepted, so no packet is counted as a mismatch.
    ///
    /// # Errors
    /// [`SnapshotError`] when the snapshot does not fit the topology; the one in use stays.
    pub fn publish(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        let node = &self.node;
        snapshot::check(&snapshot, &node.topology, &mtus(&node.links()))?;
        self.check_memory(&snapshot)?;
        let mut steering = node.steering();
        steering.refuse_others(&snapshot)?;
        allow_units(&node.pacers, &node.topology, &snapshot);
        node.shared.snapshot.publish(snapshot.clone());
        node.shared.wake_all();
        steering.accept(&snapshot)
    }

    /// Changes the pace of a link, by its index in the topology; `None` is unlimited. Applies from
    /// the next packet on.
    pub fn set_rate(&self, link: usize, rate_mbit: Option<f64>) {
        let node = &self.node;
        if let Some(pacer) = node.pacers.get(link) {
            pacer.set_rate(rate_mbit);
            allow_units(&node.pacers, &node.topology, &node.shared.snapshot.get());
        }
    }

    /// Changes the readers of flows to several sinks: their public keys. A removed sink cannot
    /// decrypt traffic sent more than one second later.
    pub fn set_sinks(&self, sinks: Vec<(u32, Vec<PublicKey>)>) {
        self.node.keyring.sinks.publish(sinks);
    }

    /// Refuses sources that take more memory than relays and sinks leave.
    fn check_memory(&self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let Node { shared, topology, .. } = &*self.node;
        let sources = source_memory_bytes(snapshot);
        let (stages, budget) =
            (shared.stage_bytes.load(Ordering::Relaxed), topology.flow_memory_bytes);
        // Sources already in use may stay.
        let is_more = sources > source_memory_bytes(&shared.snapshot.get());
        if is_more && sources.saturating_add(stages) > budget {
            return Err(SnapshotError::Memory { sources, stages, budget });
        }
        Ok(())
    }

    /// The edition each worker has adopted; 0 before the first.
    pub fn editions(&self) -> Vec<u64> {
        self.node.shared.editions.iter().map(|edition| edition.load(Ordering::Acquire)).collect()
    }

    /// Whether all threads still run and no worker is stuck. False means a bug: end the process and
    /// start another.
    pub fn is_healthy(&self) -> bool {
        self.has_all_threads() && self.stuck().is_none()
    }

    /// Whether no thread has ended.
    pub fn has_all_threads(&self) -> bool {
        let neighbours = self.neighbours.iter().chain(&self.paths).map(|(_, thread)| thread);
        let links = self.links.iter().map(|(_, thread)| thread);
        let threads = neighbours.chain(links).chain(&self.planning);
        let threads = threads.chain(&self.opening).chain(&self.keys);
        self.node.has_all_workers()
            && self.watch.is_running()
            && !threads.into_iter().any(JoinHandle::is_finished)
    }

    /// The unresponsive worker, if there is one, and since when.
    pub fn stuck(&self) -> Option<(usize, std::time::Duration)> {
        self.node.stuck()
    }

    /// Whether an interface returned whose sockets only a privileged process can open: stop the
    /// node and start it in a new process.
    pub fn needs_restart(&self) -> bool {
        self.node.needs_restart.load(Ordering::Relaxed)
    }

    /// Whether this process was set back to a snapshot, or runs twice: its keys and numbers must
    /// not be used any more. Stop the node and start it in a new process.
    pub fn is_set_back(&self) -> bool {
        self.node.shared.is_set_back.load(Ordering::Relaxed)
    }

    /// The queue in front of the accelerator, if one is configured.
    pub fn offload(&self) -> Option<&Offload> {
        self.offload.as_ref()
    }

    /// The report of the node, at most 50 ms old.
    pub fn report(&self) -> RuntimeReport {
        let mut report = self.node.report();
        for (index, tunnel) in report.tunnels.iter_mut().enumerate() {
            tunnel.counters.recreated = self.watch.recreated(index);
        }
        report
    }

    /// Leaves packets waiting in tunnels to the process that takes over: workers stop reading, and
    /// continue with packets already read until [`Runtime::has_left`].
    pub fn leave(&self) {
        self.node.shared.leave.begin();
        self.node.shared.wake_all();
    }

    /// Whether packets read before [`Runtime::leave`] have arrived at the next hops and had time to
    /// reach the sink; true after 200 ms in any case.
    pub fn has_left(&self) -> bool {
        self.node.shared.leave.is_done()
    }

    /// Ends the workers after [`Runtime::leave`]; they write their packets to sockets and tunnels
    /// first. Everything else ends with this process.
    pub fn end_workers(&self) {
        self.node.stop_workers();
    }

    /// Stops: no more packets enter, open units are closed and sent, XDP programs and tunnels are
    /// removed. Takes up to half a second longer than the last packet needs.
    pub fn stop(mut self) -> RuntimeReport {
        self.shut_down();
        self.report()
    }

    fn shut_down(&mut self) {
        // First the thread that could restart workers.
        if let Some((stop, thread)) = self.links.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("the thread that watches links had failed");
            }
        }
        // Workers next: they still handle the packets in their rings.
        self.node.steering().release_sockets();
        if let Some((stop, thread)) = self.paths.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("the thread that follows paths had failed");
            }
        }
        self.watch.stop();
        self.node.stop_workers();
        if let Some((stop, thread)) = self.neighbours.take() {
            drop(stop);
            if thread.join().is_err() {
                tracing::error!("the neighbour thread had failed");
            }
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Lets the backlog of each link hold one unit of every source that sends over it.
fn allow_units(pacers: &[Pacer], topology: &Topology, snapshot: &Snapshot) {
    for (link, pacer) in pacers.iter().enumerate() {
        let unit = |flow: &FlowParams| {
            let hops = flow.next_hops.iter().map(|hop| &topology.hops[usize::from(hop.0)]);
            let copies = hops.filter(|hop| hop.link == link).count();
            copies * flow.unit_packets_max() * (flow.symbol_bytes + UNIT_HEADER_BYTES)
        };
        pacer.allow_unit(snapshot.flows.iter().map(unit).sum());
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

/// Starts the key thread, which ends when no worker can write to it any more.
fn start_keys(node: &Node, memory: Memory) -> Result<(JoinHandle<()>, Mailbox), StartError> {
    let Node { topology, shared, keyring, clock, .. } = node;
    let mut keyer =
        Keyer::new(topology, shared.clone(), keyring.clone(), *clock, memory).map_err(|error| {
            StartError::Limit {
                what: "random bytes",
                source: std::io::Error::other(error.to_string()),
            }
        })?;
    keyring.rings.publish(keyer.rings());
    keyring.near.publish(keyer.near());
    keyer.report(clock.now());
    let (mail, letters) = mailbox(topology.hops.len());
    let thread = std::thread::Builder::new()
        .name("recoded-keys".into())
        .spawn(move || keyer.run(&letters))
        .map_err(|source| StartError::Limit { what: "the thread of keys", source })?;
    Ok((thread, mail))
}

fn start_opening(
    node: &Node,
    workers: usize,
) -> Result<(JoinHandle<()>, Vec<Counter>), StartError> {
    let budget = node.topology.flow_memory_bytes;
    opening::start(node.shared.clone(), workers, budget, seed())
        .map_err(|source| StartError::Limit { what: "the thread that opens shards", source })
}

fn start_neighbours(
    task: NeighbourTask,
    shared: Arc<Shared>,
) -> Result<(Sender<()>, JoinHandle<()>), StartError> {
    let (stop, stopped) = bounded(1);
    let thread = std::thread::Builder::new()
        .name("recoded-neigh".into())
        .spawn(move || {
            neighbours::run(&task, &shared, &stopped);
        })
        .map_err(|source| StartError::Limit { what: "the neighbour thread", source })?;
    Ok((stop, thread))
}

fn start_paths(
    node: Arc<Node>,
    netlink: Netlink,
) -> Result<(Sender<()>, JoinHandle<()>), StartError> {
    let (stop, stopped) = bounded(1);
    let thread = std::thread::Builder::new()
        .name("recoded-paths".into())
        .spawn(move || paths::run(&node, &netlink, &stopped))
        .map_err(|source| StartError::Limit { what: "the thread that follows paths", source })?;
    Ok((stop, thread))
}

fn start_links(
    node: Arc<Node>,
    mut sources: Sources,
) -> Result<(oneshot::Sender<()>, JoinHandle<()>), StartError> {
    let (stop, mut stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("recoded-links".into())
        .spawn(move || links::run(&node, &mut sources, &mut stopped))
        .map_err(|source| StartError::Limit { what: "the thread that watches links", source })?;
    Ok((stop, thread))
}

/// Header bytes of a packet around its symbol: Ethernet, IPv6, UDP, Recoded and a vector of usual
/// length.
const UNIT_HEADER_BYTES: usize = 14 + 40 + 8 + 20 + 32;
