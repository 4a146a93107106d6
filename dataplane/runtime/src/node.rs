//! A running node: workers, programs and sockets, and how they reopen after an interface was
//! recreated.
//!
//! Sockets of one worker share its UMEM, and a UMEM ends with its first socket (`dataplane/xsk`).
//! So when an interface returns, or has another number of queues, all sockets of all workers are
//! reopened: workers stop, release their frames, get new ones and continue. Flows, counters and
//! tunnels stay; units open at that moment are lost.
//!
//! Locks, in this order: `steering`, `workers`, `links`, `icmp`. A thread that opens sockets holds
//! the first two.

use crate::choice;
use crate::encap::Mac;
use crate::error::StartError;
use crate::keyring::Keyring;
use crate::neighbours::HopRoute;
use crate::netlink::{Interface, Netlink};
use crate::outbox::{Outbox, Services};
use crate::own;
use crate::pacing::Pacer;
use crate::port::{LinkMode, Port};
use crate::report::{
    ByQueue, HopReport, IcmpErrors, LinkCounters, LinkPart, LinkReport, LinkStatus, RuntimeReport,
    TunnelCounters, TunnelReport, WorkerPart,
};
use crate::reserve::Reserve;
use crate::resources::{LinkState, status};
use crate::shared::{Clock, NewPort, Shared};
use crate::slot::Slot;
use crate::sockets::{
    Mode, Refused, WorkerResources, enter_sockets, joined, open_workers, queues_of, served,
};
use crate::steering::Steering;
use crate::talk::Talked;
use crate::topology::{Backend, HopConfig, Topology, is_known};
use crate::udp::{UdpSocket, bound};
use crate::worker::{Parked, Worker, WorkerState};
use core_affinity::CoreId;
use recoded_pipeline::Pipeline;
use recoded_pipeline::params::{Share, Snapshot};
use recoded_wire::other_version::OtherVersion;
use recoded_wire::steer::Verdict;
use recoded_xsk::{Queues, SocketStatistics};
use rustix::thread::set_current_timer_slack;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// State that the threads of a node share with its callers.
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared>,
    pub(crate) topology: Topology,
    pub(crate) pacers: Arc<[Pacer]>,
    pub(crate) clock: Clock,
    pub(crate) links: Mutex<Vec<LinkState>>,
    /// By link, counted by the thread that watches them.
    pub(crate) icmp: Mutex<Vec<IcmpErrors>>,
    pub(crate) steering: Mutex<Steering>,
    /// Locked while workers are stopped and restarted.
    pub(crate) workers: Mutex<Vec<JoinHandle<Worker>>>,
    /// For the neighbour thread.
    pub(crate) routes: Arc<Slot<Vec<Option<HopRoute>>>>,
    /// Keys, for workers and reports.
    pub(crate) keyring: Arc<Keyring>,
    /// Whether this process dropped the privileges that opening sockets needs.
    pub(crate) is_sealed: bool,
    /// Set when those are needed. Relaxed: it guards no other memory.
    pub(crate) needs_restart: AtomicBool,
}

impl Node {
    pub(crate) fn steering(&self) -> MutexGuard<'_, Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn links(&self) -> MutexGuard<'_, Vec<LinkState>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn icmp(&self) -> MutexGuard<'_, Vec<IcmpErrors>> {
        self.icmp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> MutexGuard<'_, Vec<JoinHandle<Worker>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every worker runs, or is about to.
    pub(crate) fn has_all_workers(&self) -> bool {
        let Ok(workers) = self.workers.try_lock() else { return true };
        workers.len() == self.topology.workers && !workers.iter().any(JoinHandle::is_finished)
    }

    /// The unresponsive worker, if there is one, and since when.
    pub(crate) fn stuck(&self) -> Option<(usize, Duration)> {
        Some(self.shared.silence()).filter(|(_, silent)| *silent >= STUCK)
    }

    /// Starts a worker for the first time.
    pub(crate) fn start_worker(
        &self,
        index: usize,
        resources: WorkerResources,
        snapshot: &Snapshot,
        services: Services,
    ) -> Result<(), StartError> {
        let share = Share { worker: index, workers: self.topology.workers };
        let outbox =
            Outbox::new(&self.topology, &self.shared, self.pacers.clone(), share, services);
        let parked = Parked {
            closed_statistics: vec![ByQueue::new(); self.topology.links.len()],
            pipeline: Pipeline::of_worker(share, snapshot, seed()),
            outbox,
            state: WorkerState::new(&self.topology),
        };
        let thread = self.spawn(index, parked, resources)?;
        self.workers().push(thread);
        Ok(())
    }

    fn spawn(
        &self,
        index: usize,
        parked: Parked,
        resources: WorkerResources,
    ) -> Result<JoinHandle<Worker>, StartError> {
        let WorkerResources { ports, umem, socket_fds } = resources;
        let Parked { closed_statistics, pipeline, outbox, state } = parked;
        let topology = &self.topology;
        let mut worker = Worker {
            index,
            core: None,
            idle: topology.idle,
            clock: self.clock,
            shared: self.shared.clone(),
            ports,
            closed_statistics,
            umem,
            pipeline,
            outbox,
            pacers: self.pacers.clone(),
            hop_links: topology.hops.iter().map(|hop| hop.link).collect(),
            near: self.keyring.near.get(),
            tunnels: self.shared.tunnels.get(),
            state,
        };
        let core = topology.cores.as_ref().map(|cores| cores[index]);
        std::thread::Builder::new()
            .name(format!("recoded-w{index}"))
            .spawn(move || {
                worker.core = core.filter(|core| pin(*core));
                // Linux otherwise delays timers by up to 50 us, too much for pacing and flushing.
                let _ = set_current_timer_slack(NonZeroU64::new(1));
                worker.run(socket_fds)
            })
            .map_err(|source| StartError::Limit { what: "a worker thread", source })
    }

    /// Ends all workers; returns those that had not failed.
    pub(crate) fn stop_workers(&self) -> Vec<Worker> {
        let mut workers = self.workers();
        self.end(&mut workers)
    }

    fn end(&self, workers: &mut Vec<JoinHandle<Worker>>) -> Vec<Worker> {
        self.shared.stop();
        let ended = workers.drain(..).filter_map(|worker| {
            worker
                .join()
                .map_err(|_| {
                    tracing::error!("a worker had failed; its report is the last it published");
                })
                .ok()
        });
        ended.collect()
    }

    /// Reopens all sockets: `interface` is that of `link` again and gets a program, or it is the
    /// same with another number of queues.
    ///
    /// # Errors
    /// The reason why the link stays without sockets. The others have theirs, unless a thread or
    /// memory is not available: then workers are missing, and the node is not healthy.
    pub(crate) fn reopen(
        &self,
        link: usize,
        interface: Interface,
        reason: Reopening,
        netlink: &Netlink,
    ) -> Result<(), StartError> {
        if let Some(reason) = self.why_udp(link, &interface, netlink)? {
            return self.reopen_udp(link, interface, reason, netlink);
        }
        if self.is_sealed {
            self.needs_restart.store(true, Relaxed);
            return Err(StartError::Sealed);
        }
        let mut steering = self.steering();
        if reason == Reopening::Back {
            // The interface may be the same one renamed back.
            steering.attachments[link].detach();
            steering.replace(link, choice::attach(&self.topology, link, netlink)?);
        }
        let mut workers = self.workers();
        steering.release_sockets();
        // Before any socket is opened: Linux treats a queue as busy while its UMEM exists.
        let parked: Vec<Parked> = self.end(&mut workers).into_iter().map(Worker::park).collect();
        self.shared.resume();

        let present = self.links().iter().map(|link| link.now().is_present).collect::<Vec<_>>();
        let queues = present.into_iter().enumerate().map(|(other, is_present)| {
            (is_present || other == link).then(|| queues_of(&self.topology, other, netlink))
        });
        let mut queues: Vec<Option<Queues>> = queues.collect();
        let mut why = None;
        let (opened, modes, usable) = loop {
            let mut usable = queues.clone();
            let reserve = &mut Reserve::default();
            match open_workers(&self.topology, &steering.attachments, &mut usable, reserve) {
                Ok((opened, modes)) => break (opened, modes, usable),
                // Another interface may have disappeared meanwhile: all present ones get sockets.
                Err(Refused { error, link: Some(other) }) if queues[other].is_some() => {
                    queues[other] = None;
                    if other == link {
                        why = Some(error);
                    }
                }
                Err(refused) => return Err(refused.error),
            }
        };
        enter_sockets(&mut steering.attachments, &opened)?;
        let local = steering.attachments[link].local();
        let local = local.map_or_else(|| self.own(link, netlink, &interface), Ok);
        if let Some(local) = local.ok().filter(|_| queues[link].is_some()) {
            let mut links = self.links();
            let state = &mut links[link];
            state.status = status(&interface);
            (state.interface, state.local) = (interface, Some(local));
            state.waits.clear();
        }
        self.note_opened(&queues, &usable, modes);
        for (index, (parked, resources)) in parked.into_iter().zip(opened).enumerate() {
            workers.push(self.spawn(index, parked, resources)?);
        }
        steering.accept_again()?;
        why.map_or(Ok(()), Err)
    }

    /// Notes which links have sockets, and on how many queues.
    fn note_opened(&self, queues: &[Option<Queues>], usable: &[Option<Queues>], modes: Vec<Mode>) {
        let mut links = self.links();
        let opened = queues.iter().zip(usable).zip(modes);
        for (link, ((queues, usable), mode)) in links.iter_mut().zip(opened) {
            link.mode = mode.unwrap_or_else(|| link.mode.clone());
            link.queues = queues.unwrap_or(link.queues);
            link.served = usable.map_or(link.served, served);
            if queues.is_none() {
                link.status = LinkStatus::Gone;
            }
        }
        self.publish_links(&links);
    }

    /// This node's address on a link whose interface is present.
    pub(crate) fn own(
        &self,
        link: usize,
        netlink: &Netlink,
        interface: &Interface,
    ) -> Result<IpAddr, StartError> {
        own::address(&self.topology, link, netlink, interface)
    }

    /// The reason for UDP sockets on a link; `None` if it has AF_XDP. If its backend is not decided
    /// yet and AF_XDP would serve it, another process is needed.
    fn why_udp(
        &self,
        link: usize,
        interface: &Interface,
        netlink: &Netlink,
    ) -> Result<Option<String>, StartError> {
        if self.topology.links[link].backend == Backend::Xdp {
            return Ok(None);
        }
        let LinkState { mode, is_auto, is_undecided, .. } = self.links()[link].clone();
        if is_undecided {
            let mut topology = self.topology.clone();
            topology.links[link].backend = Backend::Auto;
            let attachment = choice::attach(&topology, link, netlink)?;
            let is_udp = attachment.backend() == Backend::Udp;
            return Ok(is_udp.then(|| attachment.mode().1.to_owned()));
        }
        // The decision stays; another kind of interface is another reason.
        let kind = choice::no_ethernet(interface).filter(|_| is_auto);
        Ok(kind.or_else(|| Some(mode.reason().to_owned())))
    }

    /// Opens UDP sockets on `interface`, now that of `link`, and passes them to the workers. Other
    /// links are not affected. Sockets already open are on the same interface.
    fn reopen_udp(
        &self,
        link: usize,
        interface: Interface,
        reason: String,
        netlink: &Netlink,
    ) -> Result<(), StartError> {
        let local = self.own(link, netlink, &interface)?;
        let is_open = self.links()[link].interface.index == interface.index;
        let mut lacks = "";
        let bind = |_| match netlink.privileged() {
            Some(privileged) => {
                let name = &self.topology.links[link].interface;
                privileged.socket(name).map_err(|error| StartError::Privileged {
                    what: format!("a socket on {name}"),
                    reason: error.to_string(),
                })
            }
            None => bound(&self.topology, link),
        };
        let workers = if is_open { 0..0 } else { 0..self.topology.workers };
        let sockets = workers.map(bind).collect::<Result<Vec<_>, _>>()?;
        if !is_open {
            self.shared.unused_offloads[link].reset();
        }
        for (worker, socket) in sockets.into_iter().enumerate() {
            let fd = socket.try_clone();
            let fd = fd.map_err(|source| StartError::Limit { what: "a descriptor", source })?;
            let (socket, of_socket) = UdpSocket::on(socket, &self.topology, link);
            lacks = of_socket;
            let port = Port::Udp(Box::new(socket));
            self.shared.leave_port(worker, NewPort { link, port, fd });
        }
        let mut links = self.links();
        let state = &mut links[link];
        state.status = status(&interface);
        if !is_open {
            let is_said = lacks.is_empty() || reason.ends_with(lacks);
            let reason = if is_said { reason } else { joined([&reason[..], lacks]) };
            state.mode = LinkMode::Udp(reason);
        }
        (state.interface, state.local, state.is_undecided) = (interface, Some(local), false);
        state.waits.clear();
        self.publish_links(&links);
        Ok(())
    }

    /// Publishes the state of the links to the threads.
    pub(crate) fn publish_links(&self, links: &[LinkState]) {
        let now = links.iter().map(LinkState::now).collect::<Vec<_>>();
        if *self.shared.links.get() != now {
            self.shared.links.publish(now);
            self.shared.wake_all();
        }
        let routes = routes(&self.topology, links);
        if *self.routes.get() != routes {
            self.routes.publish(routes);
        }
    }

    /// The report of the node, at most 50 ms old.
    pub(crate) fn report(&self) -> RuntimeReport {
        let (mut verdicts, refused) = {
            let steering = self.steering();
            let verdicts = steering.verdicts();
            // The map of neighbours is read in full, which most nodes never need.
            let has_others = verdicts[Verdict::DropVersion as usize].1 > 0;
            let refused = (0..self.topology.links.len()).map(|link| {
                let not_neighbours = steering.not_neighbours(link);
                let others = has_others.then(|| steering.other_versions(link));
                (not_neighbours, others.unwrap_or_default())
            });
            (verdicts, refused.collect::<Vec<_>>())
        };
        let parts = self.shared.parts();
        for part in &parts {
            verdicts.iter_mut().zip(part.verdicts).for_each(|((_, sum), count)| *sum += count);
        }
        let next_hops = self.shared.next_hops.get();
        let states = self.links();
        let links = states.iter().enumerate();
        let mut talked = self.keyring.talked();
        talked.resize(next_hops.len(), Talked::default());
        let near = self.keyring.near.get();
        let hops = self.topology.hops.iter().zip(near.endpoints.iter()).zip(next_hops.iter());
        let hops = hops.zip(talked).map(|(((hop, endpoint), next), talked)| HopReport {
            address: hop.address,
            endpoint: Some(endpoint.at)
                .filter(|at| *at != SocketAddr::new(hop.address, self.topology.port)),
            moves: endpoint.moves,
            is_resolved: next.is_some(),
            other_version: OtherVersion::default(),
            talked,
        });
        let hops: Vec<HopReport> = hops.collect();
        let links = links.zip(refused).map(|((link, state), (refused, mut others))| {
            let mut report = self.report_link(link, state, &parts, &hops);
            let all = report.not_neighbours.into_iter().chain(refused).collect::<BTreeSet<_>>();
            report.not_neighbours = all.into_iter().take(NOT_NEIGHBOURS_MAX).collect();
            parts.iter().for_each(|part| others.add(&part.links[link].other_versions));
            for hop in &mut report.hops {
                let at = hop.endpoint.map_or(hop.address, |endpoint| endpoint.ip());
                hop.other_version = others.of(at);
            }
            report
        });
        let tunnels = self.shared.tunnels.get();
        let tunnels = tunnels.iter().enumerate().map(|(index, tunnel)| {
            let mut counters = TunnelCounters::default();
            parts.iter().for_each(|part| counters += &part.tunnels[index]);
            TunnelReport {
                name: tunnel.name().to_owned(),
                offload: tunnel.offload().name(),
                reason: tunnel.reason().to_owned(),
                status: tunnel.status(),
                mtu: tunnel.mtu(),
                counters,
            }
        });
        RuntimeReport {
            at: self.clock.now(),
            links: links.collect(),
            verdicts,
            tunnels: tunnels.collect(),
            workers: parts.iter().map(|part| part.worker.clone()).collect(),
            sessions: self.keyring.sessions(),
        }
    }

    fn report_link(
        &self,
        link: usize,
        LinkState { interface, local, mode, status, served, waits, .. }: &LinkState,
        parts: &[WorkerPart],
        hops: &[HopReport],
    ) -> LinkReport {
        let config = &self.topology.links[link];
        let queues = match config.backend {
            Backend::Udp => self.topology.workers,
            Backend::Auto | Backend::Xdp => *served as usize,
        };
        let mut counters = LinkCounters::default();
        let mut statistics = SocketStatistics::default();
        let mut by_queue = vec![SocketStatistics::default(); queues];
        let mut not_neighbours = BTreeSet::new();
        for part in parts {
            let LinkPart { counters: of_worker, sockets, not_neighbour, .. } = &part.links[link];
            counters += of_worker;
            not_neighbours.extend(*not_neighbour);
            for (queue, of_socket) in sockets {
                statistics += of_socket;
                if let Some(sum) = by_queue.get_mut(*queue as usize) {
                    *sum += of_socket;
                }
            }
        }
        let unused = self.shared.unused_offloads[link].reasons();
        let hops = self.topology.hops.iter().zip(hops).filter(|(hop, _)| hop.link == link);
        LinkReport {
            name: config.name.clone(),
            interface: config.interface.clone(),
            status: *status,
            waits: waits.clone(),
            local: *local,
            mtu: interface.mtu,
            rate_mbit: self.pacers[link].rate_mbit(),
            xdp_mode: mode.xdp(),
            socket_mode: mode.socket(),
            reason: joined([mode.reason()].into_iter().chain(unused)),
            queues,
            hops: hops.map(|(_, report)| report.clone()).collect(),
            not_neighbours,
            counters,
            statistics,
            by_queue,
            icmp: self.icmp()[link],
        }
    }
}

/// Most addresses listed for a link: a few help the operator, all addresses of a flood do not.
const NOT_NEIGHBOURS_MAX: usize = 8;

/// The reason for reopening sockets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reopening {
    /// The interface was gone.
    Back,
    /// It has another number of queues.
    Queues,
}

/// A worker publishes 20 times a second. A busy host may delay a thread by a second.
const STUCK: Duration = Duration::from_secs(3);

/// MTUs of the links; unbounded for an interface not seen yet.
pub(crate) fn mtus(links: &[LinkState]) -> Vec<usize> {
    let mtu = |link: &LinkState| Some(link.interface.mtu).filter(|mtu| *mtu > 0);
    links.iter().map(|link| mtu(link).unwrap_or(usize::MAX)).collect()
}

/// The route to each hop; `None` while its interface is gone.
pub(crate) fn routes(topology: &Topology, links: &[LinkState]) -> Vec<Option<HopRoute>> {
    let route = |hop: &HopConfig| {
        let LinkState { interface, status, local, .. } = &links[hop.link];
        let by_linux = topology.links[hop.link].backend == Backend::Udp;
        // A neighbour that roams may be found without a known address.
        let is_found = is_known(hop.address) || hop.roams && by_linux;
        let source = local.filter(|_| *status != LinkStatus::Gone && is_found)?;
        Some(HopRoute {
            interface: interface.index,
            source_mac: if by_linux { Mac::default() } else { interface.mac? },
            by_linux,
            source,
            destination: hop.address,
            port: topology.port,
        })
    };
    topology.hops.iter().map(route).collect()
}

/// Pins the current thread; on a machine without that core the thread runs unpinned.
fn pin(core: usize) -> bool {
    let pinned = core_affinity::set_for_current(CoreId { id: core });
    if !pinned {
        tracing::warn!(
            core,
            "the worker is not pinned: core missing or outside the allowed CPU set"
        );
    }
    pinned
}

/// A different seed of the coefficient generator for every worker of every run. It need not be
/// secret: predictable coefficients recode equally well.
pub(crate) fn seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
