//! State shared by the threads of a node: published values, a stop flag, and each worker's report.

use crate::encap::NextHops;
use crate::handover::{Inbox, Owners};
use crate::port::Port;
use crate::report::WorkerPart;
use crate::slot::Slot;
use crate::tunnel::Tunnels;
use crate::wake::Waker;
use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
use recoded_pipeline::params::{Nanos, PeerId, Snapshot};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Progress of the workers when another process takes over. Relaxed: they guard no other memory.
pub(crate) struct Leave {
    begun: AtomicBool,
    /// By worker: no packets are waiting there.
    done: Vec<CachePadded<AtomicBool>>,
}

impl Leave {
    fn new(workers: usize) -> Leave {
        Leave {
            begun: AtomicBool::new(false),
            done: (0..workers).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Whether tunnels must not be read any more.
    #[inline]
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Records that no packets are waiting at a worker.
    pub(crate) fn note_done(&self, worker: usize) {
        self.done[worker].store(true, Ordering::Relaxed);
    }

    /// Whether no packets are waiting at any worker.
    pub(crate) fn is_done(&self) -> bool {
        self.done.iter().all(|done| done.load(Ordering::Relaxed))
    }
}

/// The properties of a link that workers use, which may change while they run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkNow {
    /// Largest IP packet, in bytes.
    pub(crate) mtu: usize,
    /// Whether there is an interface with this link's sockets.
    pub(crate) is_present: bool,
}

/// Offloads of a link that do harm, unused until its sockets are reopened. Relaxed: they guard no
/// other memory.
#[derive(Default)]
pub(crate) struct UnusedOffloads {
    /// Splitting sent bursts (UDP_SEGMENT).
    pub(crate) segmentation: AtomicBool,
    /// Merging received packets (UDP_GRO).
    pub(crate) merging: AtomicBool,
}

impl UnusedOffloads {
    /// Enables them again.
    pub(crate) fn reset(&self) {
        self.segmentation.store(false, Ordering::Relaxed);
        self.merging.store(false, Ordering::Relaxed);
    }

    /// Reports of them; empty while all are in use.
    pub(crate) fn reasons(&self) -> [&'static str; 2] {
        let said = |flag: &AtomicBool, words| if flag.load(Ordering::Relaxed) { words } else { "" };
        [
            said(&self.segmentation, "segmented bursts do not arrive: packets are sent one by one"),
            said(&self.merging, "bursts are merged wrongly: packets are received one by one"),
        ]
    }
}

/// Neighbours that wait for a new lookup; one that finds no room is named again.
const SUSPECTS: usize = 64;

/// Shared by the control side and all workers.
pub(crate) struct Shared {
    pub(crate) snapshot: Slot<Snapshot>,
    pub(crate) next_hops: Arc<Slot<NextHops>>,
    pub(crate) tunnels: Arc<Slot<Tunnels>>,
    /// By link.
    pub(crate) links: Slot<Vec<LinkNow>>,
    /// By link.
    pub(crate) unused_offloads: Vec<UnusedOffloads>,
    /// Stored with Release by the control side after the sockets left their maps, loaded with
    /// Acquire by workers: packets received after that are the last.
    pub(crate) stop: AtomicBool,
    /// Whether another process takes over: tunnels are left to it.
    pub(crate) leave: Leave,
    /// Edition each worker has adopted: Release there, Acquire in readers. Padded, so that workers
    /// do not write to each other's cache lines.
    pub(crate) editions: Vec<CachePadded<AtomicU64>>,
    /// The worker that has each shard of a relay or sink.
    pub(crate) owners: Slot<Owners>,
    /// Memory of stages of relays and sinks, and of replaced state of sources, in bytes.
    pub(crate) stage_bytes: Arc<AtomicUsize>,
    /// Stages refused because no memory was left.
    pub(crate) refusals: AtomicU64,
    /// By worker.
    pub(crate) inboxes: Vec<Inbox>,
    /// Neighbours that do not respond, for the thread that resolves them.
    pub(crate) suspects: ArrayQueue<PeerId>,
    /// Set where a peer shows that this process was set back to a snapshot, or runs twice. Relaxed:
    /// it guards no other memory.
    pub(crate) is_set_back: AtomicBool,
    wakers: Arc<[Waker]>,
    start: Instant,
    /// Last sign of life of each worker, in milliseconds since `start`. Relaxed: they guard no
    /// other memory.
    heard: Vec<CachePadded<AtomicU64>>,
    observer: Observer,
    parts: Vec<Mutex<Option<WorkerPart>>>,
    /// By worker: sockets of links whose interfaces came later than the worker.
    ports: Vec<Mutex<Vec<NewPort>>>,
}

/// A socket for a running worker.
pub(crate) struct NewPort {
    pub(crate) link: usize,
    pub(crate) port: Port,
    /// A further descriptor, to wait on.
    pub(crate) fd: OwnedFd,
}

impl Shared {
    pub(crate) fn new(
        snapshot: Snapshot,
        next_hops: Arc<Slot<NextHops>>,
        tunnels: Arc<Slot<Tunnels>>,
        links: Vec<LinkNow>,
        wakers: Arc<[Waker]>,
    ) -> Shared {
        Shared {
            snapshot: Slot::new(snapshot),
            next_hops,
            tunnels,
            unused_offloads: links.iter().map(|_| UnusedOffloads::default()).collect(),
            links: Slot::new(links),
            stop: AtomicBool::new(false),
            leave: Leave::new(wakers.len()),
            editions: wakers.iter().map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            owners: Slot::new(Owners::new()),
            stage_bytes: Arc::default(),
            refusals: AtomicU64::new(0),
            inboxes: wakers.iter().map(|_| Inbox::new(wakers.len())).collect(),
            suspects: ArrayQueue::new(SUSPECTS),
            is_set_back: AtomicBool::new(false),
            start: Instant::now(),
            heard: wakers.iter().map(|_| CachePadded::default()).collect(),
            observer: Observer::default(),
            parts: wakers.iter().map(|_| Mutex::new(None)).collect(),
            ports: wakers.iter().map(|_| Mutex::default()).collect(),
            wakers,
        }
    }

    pub(crate) fn waker(&self, worker: usize) -> &Waker {
        &self.wakers[worker]
    }

    pub(crate) fn wake_all(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_all();
    }

    /// Allows stopped workers to run again.
    pub(crate) fn resume(&self) {
        self.stop.store(false, Ordering::Release);
        (0..self.heard.len()).for_each(|worker| self.hear(worker));
    }

    /// Records that a worker is alive.
    pub(crate) fn hear(&self, worker: usize) {
        // 584 million years fit.
        let millis = self.start.elapsed().as_millis() as u64;
        self.heard[worker].store(millis, Ordering::Relaxed);
    }

    /// The worker that is silent longest, and for how long. Each reports many times a second, even
    /// when idle. Polled four times a second; a gap in the polls means that this process was
    /// stopped, and does not count.
    pub(crate) fn silence(&self) -> (usize, Duration) {
        let heard = self.heard.iter().map(|heard| heard.load(Ordering::Relaxed));
        let oldest = heard.enumerate().min_by_key(|(_, heard)| *heard);
        let (worker, heard) = oldest.unwrap_or_default();
        let now = self.start.elapsed().as_millis() as u64;
        let since = heard.max(self.observer.look(now));
        (worker, Duration::from_millis(now.saturating_sub(since)))
    }

    /// Reports a neighbour that failed to respond: Linux may have a wrong address for it.
    pub(crate) fn suspect(&self, peer: PeerId) {
        // Without room, it is named again while it is silent.
        let _ = self.suspects.push(peer);
    }

    /// Leaves a socket to a worker, which adopts it when the state of its link changes.
    pub(crate) fn leave_port(&self, worker: usize, port: NewPort) {
        self.ports(worker).push(port);
    }

    /// Takes the sockets that were left to a worker.
    pub(crate) fn take_ports(&self, worker: usize) -> Vec<NewPort> {
        std::mem::take(&mut *self.ports(worker))
    }

    /// Whether there are any.
    pub(crate) fn has_ports(&self, worker: usize) -> bool {
        !self.ports(worker).is_empty()
    }

    fn ports(&self, worker: usize) -> MutexGuard<'_, Vec<NewPort>> {
        self.ports[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn store_part(&self, worker: usize, part: WorkerPart) {
        *self.parts[worker].lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
    }

    /// The last report of every worker; a worker that has only just started is missing.
    pub(crate) fn parts(&self) -> Vec<WorkerPart> {
        let part = |part: &Mutex<Option<WorkerPart>>| {
            part.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        self.parts.iter().filter_map(part).collect()
    }
}

/// Longest interval between two polls of the workers before the poller itself counts as late: four
/// times its regular interval.
const LATE_MILLIS: u64 = 1000;

/// The last poll of the thread that judges workers, and the start of its polls without a gap; in
/// milliseconds. Relaxed: they guard no other memory, and one thread uses them.
#[derive(Default)]
struct Observer {
    looked: AtomicU64,
    awake: AtomicU64,
}

impl Observer {
    /// Records a poll. Returns the start of the polls without a gap.
    fn look(&self, now: u64) -> u64 {
        let before = self.looked.swap(now, Ordering::Relaxed);
        if now.saturating_sub(before) > LATE_MILLIS {
            self.awake.store(now, Ordering::Relaxed);
        }
        self.awake.load(Ordering::Relaxed)
    }
}

/// The clock of a node: nanoseconds since its start, the same for all workers, because they share
/// the links' budgets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    #[inline]
    pub(crate) fn now(self) -> Nanos {
        // 584 years fit.
        self.start.elapsed().as_nanos() as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All threads stop for a minute: none is judged by it.
    #[test]
    fn observer_that_missed_its_own_looks_begins_again() {
        let observer = Observer::default();
        assert_eq!([250, 500, 1400].map(|now| observer.look(now)), [0; 3]);
        assert_eq!(observer.look(61_400), 61_400);
        assert_eq!(observer.look(62_300), 61_400);
    }
}
