//! Plans: how many packets a unit gets, computed off the packet path. Plain values, no packets:
//! each code has a basis, and its plan follows from that by theory, in microseconds to seconds.
//!
//! ```text
//!  hop reports, histograms, parameters -> PlanSchedule -> Egress::plan -> a thread: PlanMaker
//!        packets: look the plan up  <-- the flow <-- Pipeline::planned <--------'
//! ```

#[cfg(feature = "bats")]
pub(crate) mod batch;

pub(crate) mod generation;

pub(crate) mod recode;

use crate::config::params::{HOPS_MAX, ShardId};
use crate::config::report::HopLoss;
use recode::{BATCH_SIZE_MAX, PACKETS_MAX};
use recoded_code::theory::adaptive::Adaptive;

/// Loss assumed for a path that has not reported yet: a single hop this lossy, so that the first
/// packets of a flow over a bad path are not lost while its first report travels.
pub(crate) const LOSS_UNKNOWN: f64 = 0.1;

/// Plans add one standard error to estimates: falling short costs far more than a packet.
pub(crate) const LOSS_MARGIN_RELATIVE: f64 = 0.05;

/// A request for a plan. It allocates nothing.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    pub(crate) shard: ShardId,
    pub(crate) basis: Basis,
}

/// A plan, for the shard that requested it.
#[derive(Clone, Debug)]
pub struct PlanReply {
    /// That shard.
    pub shard: ShardId,
    pub(crate) plan: Plan,
}

/// Inputs of each code's plans: by value, since a worker allocates nothing.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum Basis {
    Generations(generation::Basis),
    #[cfg(feature = "bats")]
    Batches(batch::Basis),
    Recoding(recode::Basis),
}

/// Plan of each code: by value, like [`Basis`].
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum Plan {
    Generations(generation::GenerationPlan),
    #[cfg(feature = "bats")]
    Batches(batch::RankModel),
    Recoding(recode::RecodingPlan),
}

/// Makes plans. Allocates its memory at creation.
pub struct PlanMaker {
    adaptive: Adaptive,
}

impl Default for PlanMaker {
    fn default() -> Self {
        Self::new()
    }
}

impl PlanMaker {
    /// Allocates its memory, half a megabyte.
    #[must_use]
    pub fn new() -> Self {
        Self { adaptive: Adaptive::new(BATCH_SIZE_MAX, PACKETS_MAX) }
    }

    /// Makes a plan: microseconds for generations of 16, seconds for blocks of thousands.
    pub fn make(&mut self, request: &PlanRequest) -> PlanReply {
        let plan = match &request.basis {
            Basis::Generations(basis) => Plan::Generations(generation::plan(basis)),
            #[cfg(feature = "bats")]
            Basis::Batches(basis) => Plan::Batches(batch::plan(basis)),
            Basis::Recoding(basis) => Plan::Recoding(recode::plan(&mut self.adaptive, basis)),
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
