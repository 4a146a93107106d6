//! One worker: a pinned thread that runs every packet of its queues to completion.
//!
//! ```text
//!  each link: complete -> receive a burst -> find the payload -> pipeline -> outbox -> socket
//!  each tunnel queue of its shards: read -> wait until their links have budget -> pipeline -> ...
//!  packets of its shards that came to other workers -> pipeline -> ...
//!  timers -> write merged packets -> kick the sockets -> housekeeping (50 ms) -> new snapshot?
//!  -> sleep (see `idle`)
//! ```
//!
//! Owns its UMEM, sockets and pipeline exclusively; shares only what [`Shared`] lists. After start
//! it allocates when a snapshot, a neighbour or a tunnel changes and when it publishes a report,
//! never per packet.

mod ingress;

mod near;

mod offloads;

mod renewal;

use crate::accelerator::Accelerator;
use crate::arrived::{Arrived, BURST_PACKETS};
use crate::caught_panics::whole;
use crate::encap::header_bytes;
use crate::opening::Reply;
use crate::outbox::Outbox;
use crate::pacing::Pacer;
use crate::port::Port;
use crate::queue::FairQueue;
use crate::report::Verdicts;
use crate::report::{ByQueue, LinkPart, WorkerPart, WorkerReport};
use crate::roaming::{LinkAddress, Lookout, Near, Senders};
use crate::segmentation::Segmentation;
use crate::shared::{Clock, NewPort, Shared};
use crate::topology::{Idle, Topology, TunnelConfig};
use crate::tunnel::Tunnels;
use crate::wake::Sleeper;
use ingress::Source;
use recoded_pipeline::egress::{Egress, Origin, Outer};
use recoded_pipeline::params::{Nanos, Snapshot};
use recoded_pipeline::{Datagram, Pipeline};
use recoded_wire::frames::{Frames, HEADROOM_BYTES, Span};
use recoded_wire::shard::source_port_of;
use recoded_xsk::Umem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Everything a worker owns.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) core: Option<usize>,
    pub(crate) idle: Idle,
    pub(crate) clock: Clock,
    pub(crate) shared: Arc<Shared>,
    /// By link; `None` if there was no interface when they were opened.
    pub(crate) ports: Vec<Option<Port>>,
    /// Counters of closed sockets, by link.
    pub(crate) closed_statistics: Vec<ByQueue>,
    pub(crate) umem: Umem,
    pub(crate) pipeline: Pipeline,
    pub(crate) outbox: Outbox,
    pub(crate) pacers: Arc<[Pacer]>,
    /// Link of each hop.
    pub(crate) hop_links: Vec<usize>,
    pub(crate) tunnels: Arc<Tunnels>,
    /// The places of neighbours.
    pub(crate) near: Arc<Near>,
    pub(crate) state: WorkerState,
}

/// The part of a worker that outlives its sockets.
pub(crate) struct Parked {
    pub(crate) closed_statistics: Vec<ByQueue>,
    pub(crate) pipeline: Pipeline,
    pub(crate) outbox: Outbox,
    pub(crate) state: WorkerState,
}

/// State that changes from round to round.
#[derive(Default)]
pub(crate) struct WorkerState {
    arrived: Vec<Arrived>,
    /// Verdicts of closed sockets.
    verdicts: Verdicts,
    /// Sources whose shards this worker sends.
    pub(crate) sources: Vec<Source>,
    /// Packets of each tunnel that wait until they can leave.
    pub(crate) queues: Vec<FairQueue>,
    /// Sources whose tunnels could be read when the worker was about to sleep.
    pub(crate) readable: Vec<usize>,
    /// Roaming neighbours, by link.
    senders: Vec<Senders>,
    owners_seen: u64,
    snapshot_seen: u64,
    tunnels_seen: u64,
    next_hops_seen: u64,
    links_seen: u64,
    near_seen: u64,
    /// Whether sockets were left to this worker.
    has_new_ports: bool,
    tick_at: Option<Nanos>,
    housekeeping_at: Nanos,
    worked_at: Nanos,
    /// Since when another process is about to take over.
    pub(crate) leaves_from: Option<Nanos>,
    /// Refusals of memory already handled.
    refusals_seen: u64,
    /// Restarts of this worker after a panic.
    panics: u64,
    /// When to panic, and when to loop endlessly, in test builds.
    panics_at: Vec<Instant>,
    spins_at: Vec<Instant>,
    /// Whether anything may have changed since the last report.
    pub(crate) dirty: bool,
}

impl WorkerState {
    /// State of a new worker.
    pub(crate) fn new(topology: &Topology) -> WorkerState {
        let tunnels = topology.tunnels.len();
        let queue = |tunnel: &TunnelConfig| FairQueue::new(topology.workers, tunnels, tunnel.mtu);
        let queues = topology.tunnels.iter().map(queue).collect();
        let [panics_at, spins_at] = [PANIC_VARIABLE, SPIN_VARIABLE].map(injected);
        let senders = topology.links.iter().map(|_| Senders::default()).collect();
        WorkerState { queues, panics_at, spins_at, senders, ..WorkerState::default() }
    }
}

/// Times of faults that a test requests: milliseconds after a worker starts, the last one first.
/// Builds without debug assertions never have one, and no packet can set it.
fn injected(variable: &str) -> Vec<Instant> {
    let wanted = if cfg!(debug_assertions) { std::env::var(variable).ok() } else { None };
    let wanted = wanted.unwrap_or_default();
    let millis = wanted.split(',').filter_map(|millis| millis.parse().ok());
    let mut at: Vec<_> = millis.map(|at| Instant::now() + Duration::from_millis(at)).collect();
    at.sort_unstable_by(|one, other| other.cmp(one));
    at
}

impl Worker {
    /// Runs until `stop` is set; then empties the rings and publishes a last report. The returned
    /// worker may be parked.
    pub(crate) fn run(mut self, mut socket_fds: Vec<Vec<OwnedFd>>) -> Worker {
        let shared = self.shared.clone();
        self.state.arrived.reserve_exact(BURST_PACKETS);
        // Sockets may be newer than the last adopted snapshot.
        self.accept(&self.shared.snapshot.get());
        self.state.near_seen = 0;
        self.adopt();
        self.publish();
        while !shared.stop.load(Ordering::Acquire) {
            self.take_ports(&mut socket_fds);
            // Until a tunnel is replaced, other queues are read, or there are new sockets: the
            // sleeper waits on those.
            let tunnels = self.tunnels.clone();
            let waker = shared.waker(self.index);
            let mut sleeper = Sleeper::new(waker, &socket_fds, self.queues_read(&tunnels));
            let snapshot_seen = self.state.snapshot_seen;
            while Arc::ptr_eq(&tunnels, &self.tunnels)
                && snapshot_seen == self.state.snapshot_seen
                && !self.state.has_new_ports
                && !shared.stop.load(Ordering::Acquire)
            {
                self.turn_or_renew(&mut sleeper);
            }
        }
        self.drain();
        self.publish();
        self
    }

    /// Adopts sockets that were opened while it runs, and closes the ones that they replace.
    #[cold]
    fn take_ports(&mut self, socket_fds: &mut [Vec<OwnedFd>]) {
        if !std::mem::take(&mut self.state.has_new_ports) {
            return;
        }
        for NewPort { link, port, fd } in self.shared.take_ports(self.index) {
            self.close_port(link);
            self.ports[link] = Some(port);
            self.outbox.segmentation[link] = Segmentation::default();
            socket_fds[link] = vec![fd];
        }
        let snapshot = self.shared.snapshot.get();
        self.accept(&snapshot);
        // They need the places of neighbours.
        self.state.near_seen = 0;
    }

    /// Closes the socket on a link.
    fn close_port(&mut self, link: usize) {
        if let Some(mut port) = self.ports[link].take() {
            port.add_statistics(self.index, &mut self.closed_statistics[link]);
            port.add_verdicts(&mut self.state.verdicts);
            port.discard(&mut self.umem);
        }
    }

    /// Releases every frame and closes sockets and UMEM: open units are lost, counters and flows
    /// stay.
    pub(crate) fn park(mut self) -> Parked {
        self.pipeline.release(&mut self.umem);
        (0..self.ports.len()).for_each(|link| self.close_port(link));
        let Worker { closed_statistics, pipeline, outbox, state, .. } = self;
        Parked { closed_statistics, pipeline, outbox, state }
    }

    /// Queues to wait on, each with the index of its tunnel.
    fn queues_read<'a>(&self, tunnels: &'a Tunnels) -> Vec<(usize, BorrowedFd<'a>)> {
        let sources = self.state.sources.iter();
        sources
            .flat_map(|source| {
                let tunnel = &tunnels[source.tunnel];
                source.intake.queues().map(|queue| (source.tunnel, tunnel.queue_fd(queue)))
            })
            .collect()
    }

    /// One turn of the loop: adopts, works, publishes, rests.
    fn turn(&mut self, sleeper: &mut Sleeper<'_>) {
        let now = self.clock.now();
        self.outbox.now = now;
        self.adopt();
        self.alternate(now);
        let worked = self.round(now);
        if now >= self.state.housekeeping_at {
            self.state.housekeeping_at = now + HOUSEKEEPING_NANOS;
            self.shared.hear(self.index);
            let lookouts = self.ports.iter_mut().flatten().filter_map(Port::lookout);
            lookouts.for_each(Lookout::refill);
            self.look_at_offloads(now);
            self.have_fault();
            if std::mem::take(&mut self.state.dirty) {
                self.publish();
            }
            self.give_back(now);
        }
        self.look_at_leaving(now);
        if !worked {
            self.rest(now, sleeper);
        }
    }

    /// Causes the fault that a test requests, when it is due.
    fn have_fault(&mut self) {
        let is_time = |at: &mut Vec<Instant>| at.pop_if(|at| Instant::now() >= *at).is_some();
        // In the middle of a packet, if one leaves before the next call.
        self.outbox.panic_if_wanted();
        self.outbox.must_panic |= is_time(&mut self.state.panics_at);
        if is_time(&mut self.state.spins_at) {
            tracing::warn!("{SPIN_VARIABLE} asked for this");
            loop {
                std::hint::spin_loop();
            }
        }
    }

    /// Receives, reads, runs timers, sends. False if there was nothing to do.
    fn round(&mut self, now: Nanos) -> bool {
        let mut worked = false;
        for link in 0..self.ports.len() {
            worked |= self.receive(link, now);
        }
        for source in 0..self.state.sources.len() {
            worked |= self.read_tunnel(source, now);
        }
        worked |= self.collect(now);
        while let Some(reply) = self.outbox.desk.reply() {
            self.pipeline.planned(reply);
        }
        if self.open(now) {
            worked = true;
            self.outbox.flush(&mut self.umem, &mut self.ports);
        }
        worked |= self.take_over(now);
        worked |= self.send_letters();
        if worked || self.state.tick_at.is_some_and(|at| at <= now) {
            self.state.tick_at = self.pipeline.tick(&mut self.umem, &mut self.outbox, now);
            self.outbox.flush(&mut self.umem, &mut self.ports);
            self.state.dirty = true;
        }
        self.outbox.settle_tunnels();
        for (port, counters) in self.ports.iter_mut().zip(&mut self.outbox.links) {
            if let Some(port) = port.as_mut().filter(|port| port.pending() > 0) {
                port.flush(&mut self.umem, counters);
            }
        }
        if worked {
            self.state.worked_at = now;
        }
        worked
    }

    fn receive(&mut self, link: usize, now: Nanos) -> bool {
        let Some(port) = &mut self.ports[link] else { return false };
        port.complete(&mut self.umem);
        let mut arrived = std::mem::take(&mut self.state.arrived);
        let worked = port.receive(&mut self.umem, &mut self.outbox.links[link], &mut arrived);
        for Arrived { payload, source, traffic_class } in arrived.drain(..) {
            let place = LinkAddress { link, address: source };
            let Some((peer, payload)) = self.admit(place, payload, now) else { continue };
            let datagram = Datagram { peer, payload, traffic_class };
            self.pipeline.receive(&mut self.umem, &mut self.outbox, datagram, now);
        }
        self.state.arrived = arrived;
        if worked {
            self.outbox.flush(&mut self.umem, &mut self.ports);
        }
        worked
    }

    /// Sends letters of the key thread. Returns whether there were any.
    fn send_letters(&mut self) -> bool {
        if self.index != 0 {
            return false;
        }
        let mut sent = false;
        while let Some(letter) = self.outbox.guard.outgoing() {
            if let Some(LinkAddress { link, address }) = letter.place {
                let counters = &mut self.outbox.links[link];
                let port = self.ports[link].as_mut();
                if port.is_some_and(|port| port.send_to(letter.packet(), address)) {
                    counters.tx_packets += 1;
                    counters.tx_bytes +=
                        (header_bytes(address.ip()) + letter.packet().len()) as u64;
                }
                continue;
            }
            let Some(peer) = letter.peer else { continue };
            let Some(payload) = copy_in(&mut self.umem, letter.packet()) else { break };
            let outer = Outer { source_port: source_port_of(letter.packet()), traffic_class: 0 };
            self.outbox.transmit(peer, payload, outer);
            sent = true;
        }
        if sent {
            self.outbox.flush(&mut self.umem, &mut self.ports);
        }
        sent
    }

    /// Passes allocated stages of shards to the pipeline. Returns whether there were any.
    fn open(&mut self, now: Nanos) -> bool {
        let mut came = false;
        while let Some(reply) = self.outbox.counter.reply() {
            came = true;
            match reply {
                Reply::Refused(shard) => self.pipeline.refused(&mut self.umem, shard),
                Reply::Elsewhere(shard) => {
                    self.adopt_owners();
                    self.pipeline.elsewhere(&mut self.umem, &mut self.outbox, shard, now);
                }
                Reply::Opened(opened) => {
                    let (umem, outbox) = (&mut self.umem, &mut self.outbox);
                    if let Some(closed) = self.pipeline.opened(umem, outbox, *opened, now) {
                        self.outbox.counter.give_back(closed);
                    }
                }
            }
        }
        came
    }

    fn adopt_owners(&mut self) {
        if let Some(owners) = self.shared.owners.newer(&mut self.state.owners_seen) {
            self.outbox.whereabouts.owners = owners;
        }
    }

    /// Returns unused memory, and more after others were refused some.
    fn give_back(&mut self, now: Nanos) {
        while let Some(closed) = self.pipeline.retire(&mut self.umem, now) {
            self.outbox.counter.give_back(closed);
        }
        let refusals = self.shared.refusals.load(Ordering::Relaxed);
        if refusals == self.state.refusals_seen {
            return;
        }
        match self.pipeline.give_back(&mut self.umem, now) {
            Some(closed) => {
                self.outbox.counter.give_back(closed);
                self.state.dirty = true;
            }
            None => self.state.refusals_seen = refusals,
        }
    }

    /// Takes packets that arrived at other workers. Returns whether there were any.
    fn take_over(&mut self, now: Nanos) -> bool {
        if self.shared.inboxes[self.index].is_empty() {
            return false;
        }
        let shared = self.shared.clone();
        let inbox = &shared.inboxes[self.index];
        for _ in 0..BURST_PACKETS {
            let Some(parcel) = inbox.take() else { break };
            match copy_in(&mut self.umem, parcel.payload()) {
                Some(payload) => {
                    let Origin { peer, traffic_class } = parcel.origin;
                    let datagram = Datagram { peer: Some(peer), payload, traffic_class };
                    self.pipeline.receive(&mut self.umem, &mut self.outbox, datagram, now);
                }
                None => self.pipeline.lost(&mut self.umem, &mut self.outbox, now),
            }
            inbox.recycle(parcel);
        }
        self.outbox.flush(&mut self.umem, &mut self.ports);
        true
    }

    /// Passes the results of an accelerator to the pipeline. Returns whether there were any.
    fn collect(&mut self, now: Nanos) -> bool {
        // The pipeline offers no product during this call, which brings results, not packets.
        let outbox = &mut self.outbox;
        let Some(mut accelerator) = outbox.accelerator.take_if(|waits| waits.is_waiting()) else {
            return false;
        };
        let came = whole(|| {
            accelerator.poll(|ticket, rows| {
                self.pipeline.solved(&mut self.umem, &mut self.outbox, ticket, rows, now);
            })
        });
        self.outbox.accelerator = Some(accelerator);
        came
    }

    /// Whether the interface of a link is present.
    pub(crate) fn is_present(&self, link: usize) -> bool {
        self.outbox.links_now[link].is_present
    }

    /// Adopts a new snapshot, new neighbours and changed links, if there are any.
    fn adopt(&mut self) {
        if let Some(links) = self.shared.links.newer(&mut self.state.links_seen) {
            self.outbox.links_now = links;
            self.state.has_new_ports = self.shared.has_ports(self.index);
        }
        if let Some(next_hops) = self.shared.next_hops.newer(&mut self.state.next_hops_seen) {
            self.outbox.next_hops = next_hops;
        }
        if let Some(tunnels) = self.shared.tunnels.newer(&mut self.state.tunnels_seen) {
            self.outbox.set_tunnels(&tunnels);
            self.tunnels = tunnels;
        }
        self.adopt_keys();
        self.adopt_owners();
        let Some(snapshot) = self.shared.snapshot.newer(&mut self.state.snapshot_seen) else {
            return;
        };
        let now = self.clock.now();
        self.outbox.now = now;
        self.accept(&snapshot);
        self.pipeline.apply(&snapshot, &mut self.umem, &mut self.outbox, now);
        self.outbox.flush(&mut self.umem, &mut self.ports);
        self.outbox.whereabouts.adopt(&snapshot);
        self.state.sources = self.sources(&snapshot);
        // New timers may be due at once.
        self.state.tick_at = Some(0);
        self.state.dirty = true;
        self.shared.editions[self.index].store(snapshot.edition, Ordering::Release);
    }

    /// Makes sockets without an XDP program accept the flows of a snapshot.
    fn accept(&mut self, snapshot: &Snapshot) {
        self.ports.iter_mut().flatten().for_each(|port| port.accept(snapshot));
    }

    /// Spins or sleeps when idle, as configured.
    fn rest(&mut self, now: Nanos, sleeper: &mut Sleeper<'_>) {
        let is_spinning = match self.idle {
            Idle::Busy => true,
            Idle::Adaptive => now.saturating_sub(self.state.worked_at) < SPIN_NANOS,
            Idle::Interrupt => false,
        };
        if is_spinning {
            std::hint::spin_loop();
            return;
        }
        let Some(sources_at) = self.sources_wake_at(now) else { return };
        let tick_at = self.state.tick_at.unwrap_or(Nanos::MAX);
        let mut until = self.state.housekeeping_at.min(tick_at).min(sources_at);
        let links = self.outbox.links_now.iter();
        let present = self.ports.iter_mut().zip(links).filter(|(_, link)| link.is_present);
        for port in present.filter_map(|(port, _)| port.as_mut()) {
            if port.unsent() > 0 {
                until = until.min(now + RETRY_NANOS);
            } else if port.pending() > 0 {
                until = until.min(now + COMPLETE_NANOS);
            }
        }
        if self.shared.leave.is_begun() {
            until = until.min(now + COMPLETE_NANOS);
        }
        if self.outbox.accelerator.as_ref().is_some_and(Accelerator::is_waiting) {
            until = until.min(now + COLLECT_NANOS);
        }
        // No packet may wait here while the worker sleeps.
        self.outbox.flush_tunnels();
        let timeout = until.saturating_sub(self.clock.now());
        let WorkerState { sources, readable, .. } = &self.state;
        let wants = |tunnel| readable.iter().any(|source| sources[*source].tunnel == tunnel);
        let inbox = &self.shared.inboxes[self.index];
        if timeout > 0 && !inbox.sleeps(true) {
            sleeper.sleep(timeout, wants, |link| self.is_present(link));
        }
        inbox.sleeps(false);
    }

    /// Closes open units and waits until Linux has sent them, for a bounded time: short if another
    /// process takes over, which gets packets that arrive meanwhile.
    fn drain(&mut self) {
        let now = self.clock.now();
        self.outbox.now = now;
        let is_left = self.shared.leave.is_begun();
        let patience = if is_left { LAST_NANOS } else { DRAIN_NANOS };
        while !is_left && self.round(now) && self.clock.now() < now + patience {}
        self.pipeline.drain(&mut self.umem, &mut self.outbox, now);
        self.outbox.flush(&mut self.umem, &mut self.ports);
        self.outbox.flush_tunnels();
        while self.clock.now() < now + patience {
            let mut pending = 0;
            let Outbox { links_now, links, .. } = &mut self.outbox;
            for ((port, link), counters) in self.ports.iter_mut().zip(links_now.iter()).zip(links) {
                let Some(port) = port.as_mut().filter(|_| link.is_present) else { continue };
                port.flush(&mut self.umem, counters);
                port.complete(&mut self.umem);
                pending += port.pending();
            }
            if pending == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_nanos(RETRY_NANOS));
        }
    }

    fn publish(&mut self) {
        let mut verdicts = self.state.verdicts;
        self.ports.iter().flatten().for_each(|port| port.add_verdicts(&mut verdicts));
        let mut statistics = self.closed_statistics.clone();
        for (sum, port) in statistics.iter_mut().zip(&mut self.ports) {
            port.iter_mut().for_each(|port| port.add_statistics(self.index, sum));
        }
        let links = self.outbox.links.iter().zip(statistics);
        let links = links.zip(&self.ports);
        let links = links.map(|((counters, sockets), port)| LinkPart {
            counters: *counters,
            sockets,
            not_neighbour: port.as_ref().and_then(Port::not_neighbour),
            other_versions: port.as_ref().map(Port::other_versions).unwrap_or_default(),
        });
        let part = WorkerPart {
            worker: WorkerReport {
                index: self.index,
                core: self.core,
                idle: self.idle.name(),
                frames: self.umem.gauge(),
                panics: self.state.panics,
                pipeline: self.pipeline.report(),
            },
            links: links.collect(),
            tunnels: self.outbox.tunnel_counters.clone(),
            verdicts,
        };
        self.shared.store_part(self.index, part);
    }
}

/// A payload in a frame of this worker; `None` when none is free.
fn copy_in(umem: &mut Umem, payload: &[u8]) -> Option<Span> {
    let frame = umem.take()?;
    let span = Span { frame, offset: HEADROOM_BYTES as u16, len: payload.len() as u16 };
    umem.bytes_mut(span).copy_from_slice(payload);
    Some(span)
}

/// Retry interval for a full ring. Linux gives no sign when it drains.
pub(crate) const RETRY_NANOS: Nanos = 100_000;
/// Interval at which sent frames are collected when nothing else happens.
const COMPLETE_NANOS: Nanos = 1_000_000;
/// Interval at which an accelerator is polled for solved generations when nothing else happens.
const COLLECT_NANOS: Nanos = 20_000;
/// Adaptive idling: about the cost of going to sleep and being woken.
const SPIN_NANOS: Nanos = 20_000;
/// Interval between two reports; also the longest sleep. Twenty wakeups a second cost less than 0.1
/// % of a core.
const HOUSEKEEPING_NANOS: Nanos = 50_000_000;
/// For tests: workers panic this many milliseconds after they begin, once for each number.
const PANIC_VARIABLE: &str = "RECODED_TEST_PANIC_MILLIS";
/// For tests: workers loop endlessly this many milliseconds after they begin.
const SPIN_VARIABLE: &str = "RECODED_TEST_SPIN_MILLIS";
/// Longest time to send the remaining packets at the end.
const DRAIN_NANOS: Nanos = 500_000_000;
/// The same if another process waits to take over: a burst takes less.
const LAST_NANOS: Nanos = 5_000_000;
