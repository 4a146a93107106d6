//! The thread that allocates shards of relays and sinks; see `recoded_pipeline::open`.
//!
//! ```text
//!  worker: Egress::open ─► one queue ─► this thread: budget, allocate ─► a queue each ─► worker
//!                                            └─► owners: which worker has which shard
//! ```
//!
//! Packets from the network trigger the requests. The budget bounds their cost; a shard has one
//! request pending; the queue is short. The worker that requests first owns the shard from then on:
//! others pass its packets on. Replaced state is returned here, because freeing it may take long.

use crate::handover::Owners;
use crate::shared::Shared;
use crossbeam::channel::{Receiver, Sender, bounded};
use recoded_pipeline::egress::Answer;
use recoded_pipeline::open::{Closed, OpenRequest, Opened, Opener, Rent};
use recoded_pipeline::params::{Role, ShardId, Snapshot};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Waiting requests: the shards of some flows that begin at once.
const QUEUE: usize = 256;

/// Messages from workers to this thread.
enum Message {
    /// A worker's request.
    Open(usize, OpenRequest),
    /// State to free.
    Closed(Closed),
}

/// A reply of this thread.
pub(crate) enum Reply {
    /// The requested shard.
    Opened(Box<Opened>),
    /// There is no memory for it.
    Refused(ShardId),
    /// Another worker has the shard, or its flow is gone.
    Elsewhere(ShardId),
}

/// A worker's side.
pub(crate) struct Counter {
    worker: usize,
    shared: Arc<Shared>,
    budget: usize,
    messages: Sender<Message>,
    replies: Receiver<Reply>,
}

impl Counter {
    /// Queues a request; see [`recoded_pipeline::egress::Egress::open`].
    pub(crate) fn ask(&self, request: &OpenRequest) -> Answer {
        match self.messages.try_send(Message::Open(self.worker, *request)) {
            Ok(()) => Answer::Elsewhere,
            Err(_) => Answer::Busy,
        }
    }

    /// A reply, if one has arrived.
    pub(crate) fn reply(&self) -> Option<Reply> {
        self.replies.try_recv().ok()
    }

    /// Reserves memory for a source's replaced state, if other stages and sources leave enough.
    pub(crate) fn keep(&self, bytes: usize) -> Option<Rent> {
        let left = self.budget.saturating_sub(source_memory_bytes(&self.shared.snapshot.get()));
        Rent::take(&self.shared.stage_bytes, bytes, left)
    }

    /// Returns state for freeing.
    pub(crate) fn give_back(&self, closed: Closed) {
        // If the queue is full, it is freed here.
        let _ = self.messages.try_send(Message::Closed(closed));
    }
}

/// Starts the thread, which ends when all counters are gone. It allocates at most the part of
/// `budget` bytes that sources leave.
///
/// # Errors
/// The thread cannot be created.
pub(crate) fn start(
    shared: Arc<Shared>,
    workers: usize,
    budget: usize,
    seed: u64,
) -> io::Result<(JoinHandle<()>, Vec<Counter>)> {
    let (messages, inbox) = bounded(QUEUE);
    let mut answers = Vec::with_capacity(workers);
    let mut counters = Vec::with_capacity(workers);
    for worker in 0..workers {
        let (reply, replies) = bounded(QUEUE);
        answers.push(reply);
        let (shared, messages) = (shared.clone(), messages.clone());
        counters.push(Counter { worker, shared, budget, messages, replies });
    }
    let books = Books { used: shared.stage_bytes.clone(), owners: Owners::new() };
    let mut office = Office { shared, answers, opener: Opener::new(seed), budget, books };
    let thread = std::thread::Builder::new().name("recoded-open".into()).spawn(move || {
        for message in inbox {
            office.handle(message);
        }
    })?;
    Ok((thread, counters))
}

/// The thread's state.
struct Office {
    shared: Arc<Shared>,
    answers: Vec<Sender<Reply>>,
    opener: Opener,
    /// For sources and stages.
    budget: usize,
    books: Books,
}

impl Office {
    fn handle(&mut self, message: Message) {
        match message {
            Message::Closed(closed) => drop(closed),
            Message::Open(worker, request) => {
                let snapshot = self.shared.snapshot.get();
                let reply = self.open(worker, &request, &snapshot);
                // A worker whose queue is full retries; one that has ended does not.
                let _ = self.answers[worker].try_send(reply);
                self.shared.waker(worker).wake();
            }
        }
    }

    fn open(&mut self, worker: usize, request: &OpenRequest, snapshot: &Snapshot) -> Reply {
        let OpenRequest { shard, sizes } = *request;
        self.books.keep(|flow| snapshot.flows.iter().any(|params| params.id == flow));
        let settings = snapshot.flows.iter().find(|params| params.id == shard.flow);
        let owner = self.books.owner(shard);
        let Some(settings) = settings.filter(|_| owner.is_none_or(|owner| owner == worker)) else {
            return Reply::Elsewhere(shard);
        };
        let bytes = settings.with(sizes).memory_bytes();
        let left = self.budget.saturating_sub(source_memory_bytes(snapshot));
        let Some(rent) = self.books.take(shard, worker, bytes, left) else {
            tracing::warn!(
                flow = shard.flow,
                bytes,
                "no memory is left for what packets announce: raise memory under [daemon]"
            );
            self.shared.refusals.fetch_add(1, Ordering::Relaxed);
            return Reply::Refused(shard);
        };
        if owner.is_none() {
            self.shared.owners.publish(self.books.owners.clone());
        }
        Reply::Opened(Box::new(self.opener.open(request, settings).with(rent)))
    }
}

/// Bytes that the sources of a snapshot take.
pub(crate) fn source_memory_bytes(snapshot: &Snapshot) -> usize {
    let is_source = |role: &Role| matches!(role, Role::Source { .. });
    let sources = snapshot.flows.iter().filter(|flow| is_source(&flow.role));
    let bytes = sources.map(|flow| flow.memory_bytes().saturating_mul(usize::from(flow.shards)));
    bytes.fold(0, usize::saturating_add)
}

/// The owner of each shard, and the memory of all stages.
struct Books {
    used: Arc<AtomicUsize>,
    owners: Owners,
}

impl Books {
    /// Drops the shards of flows that `is_there` does not name.
    fn keep(&mut self, is_there: impl Fn(u32) -> bool) {
        self.owners.retain(|shard, _| is_there(shard.flow));
    }

    fn owner(&self, shard: ShardId) -> Option<usize> {
        self.owners.get(&shard).copied()
    }

    /// Reserves `bytes` of a budget for a stage of the shard and records its owner; `None` when too
    /// little is left.
    fn take(&mut self, shard: ShardId, worker: usize, bytes: usize, budget: usize) -> Option<Rent> {
        let rent = Rent::take(&self.used, bytes, budget)?;
        self.owners.insert(shard, worker);
        Some(rent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ShardId = ShardId { flow: 1, shard: 0 };
    const B: ShardId = ShardId { flow: 2, shard: 3 };

    #[test]
    fn books_refuse_beyond_the_budget_and_remember_the_first_owner() {
        const BUDGET: usize = 100;
        let mut books = Books { used: Arc::default(), owners: Owners::new() };
        let half = books.take(A, 1, 30, BUDGET).expect("room");
        let all = books.take(A, 1, 30, BUDGET).expect("room");
        assert!(books.take(B, 0, 60, BUDGET).is_none());
        assert_eq!((books.owner(A), books.owner(B)), (Some(1), None));
        drop(half);
        let other = books.take(B, 0, 60, BUDGET).expect("what was dropped");
        assert_eq!((books.owner(A), books.owner(B)), (Some(1), Some(0)));
        // A removed flow releases its memory only when its worker drops it.
        books.keep(|flow| flow == 2);
        assert_eq!(books.owner(A), None);
        assert!(books.take(B, 0, 20, BUDGET).is_none());
        drop((all, other));
        assert!(
            books.take(B, 0, usize::MAX, BUDGET).is_none()
                && books.take(B, 0, 100, BUDGET).is_some()
        );
    }
}
