//! Plans, and who makes them: how many packets a unit is worth, computed off the packet path.
//!
//! A plan follows from theory, and theory takes from microseconds to seconds. So a flow asks for
//! one, goes on with what it has, and takes the reply when it comes:
//!
//! ```text
//!  hop reports, histograms, parameters ─► Asker ─► Egress::plan ─► a control thread: PlanMaker
//!        packets: look the plan up  ◄── the flow ◄── Pipeline::planned ◄──────┘
//! ```
//!
//! A flow has one question out at a time and asks fifty times a second at most, whatever reports
//! say. A program without such a thread answers at once, on the packet path: tests and the
//! simulator do.

#[cfg(feature = "bats")]
use crate::bats::plan as batches;
use crate::combine::{BATCH_SIZE_MAX, PACKETS_MAX};
use crate::egress::{Answer, Egress};
use crate::io::Io;
use crate::params::{HOPS_MAX, Nanos, ShardId};
use crate::relay::adaptive;
use crate::report::HopLoss;
use crate::rlnc::redundancy as generations;
use crate::window::pace as window;
use recoded_code::theory::adaptive::Adaptive;
use recoded_wire::frames::Frames;

/// Shortest time between two questions of one flow: nodes report as often.
const INTERVAL_NANOS: Nanos = 20_000_000;

/// A reply that has not come after this time is not waited for any longer.
const PATIENCE_NANOS: Nanos = 10_000_000_000;

/// What a plan is to be made for. Plain values: it allocates nothing.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    shard: ShardId,
    basis: Basis,
}

/// A plan, for the shard that asked for it.
#[derive(Clone, Debug)]
pub struct PlanReply {
    /// Which one that is.
    pub shard: ShardId,
    pub(crate) plan: Plan,
}

/// What each code plans with: by value, since a worker allocates nothing.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum Basis {
    Generations(generations::Basis),
    #[cfg(feature = "bats")]
    Batches(batches::Basis),
    Window(window::Basis),
    Recoding(adaptive::Basis),
}

/// What each code is told: by value, as [`Basis`].
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum Plan {
    Generations(generations::Plan),
    #[cfg(feature = "bats")]
    Batches(batches::Plan),
    Window(window::Plan),
    Recoding(adaptive::Plan),
}

/// Makes plans. Its memory is taken at creation.
pub struct PlanMaker {
    adaptive: Adaptive,
}

impl Default for PlanMaker {
    fn default() -> Self {
        Self::new()
    }
}

impl PlanMaker {
    /// Takes its memory, half a megabyte.
    #[must_use]
    pub fn new() -> Self {
        Self { adaptive: Adaptive::new(BATCH_SIZE_MAX, PACKETS_MAX) }
    }

    /// Makes a plan: microseconds for generations of 16, seconds for windows of thousands.
    pub fn make(&mut self, request: &PlanRequest) -> PlanReply {
        let plan = match &request.basis {
            Basis::Generations(basis) => Plan::Generations(generations::plan(basis)),
            #[cfg(feature = "bats")]
            Basis::Batches(basis) => Plan::Batches(batches::plan(basis)),
            Basis::Window(basis) => Plan::Window(window::plan(basis)),
            Basis::Recoding(basis) => Plan::Recoding(adaptive::plan(&mut self.adaptive, basis)),
        };
        PlanReply { shard: request.shard, plan }
    }
}

/// The losses of a path's hops, as a plain value.
#[derive(Copy, Clone, Debug)]
pub(crate) struct HopList {
    hops: [HopLoss; HOPS_MAX],
    count: usize,
}

impl HopList {
    /// The first [`HOPS_MAX`] of `hops`.
    pub(crate) fn new(hops: &[HopLoss]) -> Self {
        let mut list = Self {
            hops: [HopLoss { hop: 0, loss: 0.0, burst_mean: 1.0 }; HOPS_MAX],
            count: hops.len().min(HOPS_MAX),
        };
        for (place, hop) in list.hops.iter_mut().zip(hops) {
            *place = *hop;
        }
        list
    }

    /// The hops.
    pub(crate) fn as_slice(&self) -> &[HopLoss] {
        &self.hops[..self.count]
    }
}

/// When a flow asks for a plan.
#[derive(Debug)]
pub(crate) struct Asker {
    shard: ShardId,
    is_wanted: bool,
    asked_at: Option<Nanos>,
    is_out: bool,
}

impl Asker {
    /// A first plan is wanted.
    pub(crate) fn new(shard: ShardId) -> Self {
        Self { shard, is_wanted: true, asked_at: None, is_out: false }
    }

    /// What the plan rests on has changed.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// The operator has changed what is wanted: no need to wait.
    pub(crate) fn want_now(&mut self) {
        (self.is_wanted, self.asked_at, self.is_out) = (true, None, false);
    }

    /// When to ask next.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let pause = if self.is_out { PATIENCE_NANOS } else { INTERVAL_NANOS };
        self.is_wanted.then(|| self.asked_at.map_or(0, |at| at.saturating_add(pause)))
    }

    /// Asks, if it is time. Returns the plan where it is made at once.
    pub(crate) fn ask(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        basis: impl FnOnce() -> Basis,
    ) -> Option<Plan> {
        if self.due().is_none_or(|due| due > io.now) {
            return None;
        }
        self.asked_at = Some(io.now);
        let request = PlanRequest { shard: self.shard, basis: basis() };
        match io.egress.plan(&request) {
            Answer::Here => {
                self.is_wanted = false;
                Some(io.combiner.plan_maker().make(&request).plan)
            }
            Answer::Elsewhere => {
                (self.is_wanted, self.is_out) = (false, true);
                None
            }
            Answer::Busy => None,
        }
    }

    /// The reply came.
    pub(crate) fn answered(&mut self) {
        self.is_out = false;
    }
}
