//! The thread that makes plans for all workers; see `recoded_pipeline::plan`.
//!
//! ```text
//!  worker: Egress::plan ─► one queue ─► this thread: theory ─► a queue each ─► Pipeline::planned
//! ```
//!
//! Packets from the network trigger the requests, so their number and cost are bounded: a flow has
//! one pending, the queue is short, and the thread sleeps four times as long as it computed, so
//! that it takes at most a fifth of a core. A worker never waits for it.

use crossbeam::channel::{Receiver, Sender, bounded};
use recoded_pipeline::egress::Answer;
use recoded_pipeline::plan::{PlanMaker, PlanReply, PlanRequest};
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Waiting requests: more than flows change at once, few enough to be answered soon.
const QUEUE: usize = 64;

/// Rest after a plan, as a multiple of the time it took.
const REST: u32 = 4;

/// Longest rest, after the plan of a block of thousands of symbols.
const REST_MAX: Duration = Duration::from_secs(1);

/// A worker's side.
pub(crate) struct Desk {
    worker: usize,
    requests: Sender<(usize, PlanRequest)>,
    replies: Receiver<PlanReply>,
}

impl Desk {
    /// Queues a request; see [`recoded_pipeline::egress::Egress::plan`].
    pub(crate) fn ask(&self, request: &PlanRequest) -> Answer {
        match self.requests.try_send((self.worker, request.clone())) {
            Ok(()) => Answer::Elsewhere,
            Err(_) => Answer::Busy,
        }
    }

    /// A reply, if one has arrived.
    pub(crate) fn reply(&self) -> Option<PlanReply> {
        self.replies.try_recv().ok()
    }
}

/// Starts the thread, which ends when all desks are gone.
///
/// # Errors
/// The thread cannot be created.
pub(crate) fn start(workers: usize) -> io::Result<(JoinHandle<()>, Vec<Desk>)> {
    let (requests, questions) = bounded(QUEUE);
    let mut answers = Vec::with_capacity(workers);
    let mut desks = Vec::with_capacity(workers);
    for worker in 0..workers {
        let (reply, replies) = bounded(QUEUE);
        answers.push(reply);
        desks.push(Desk { worker, requests: requests.clone(), replies });
    }
    let work = move || answer_all(&questions, &answers);
    let thread = std::thread::Builder::new().name("recoded-plan".into()).spawn(work)?;
    Ok((thread, desks))
}

fn answer_all(questions: &Receiver<(usize, PlanRequest)>, answers: &[Sender<PlanReply>]) {
    let mut maker = PlanMaker::new();
    for (worker, request) in questions {
        let started = Instant::now();
        // A worker whose queue is full retries; one that has ended does not.
        let _ = answers[worker].try_send(maker.make(&request));
        std::thread::sleep((started.elapsed() * REST).min(REST_MAX));
    }
}
