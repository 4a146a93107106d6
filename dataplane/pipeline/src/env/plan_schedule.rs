//! Schedule of the plan requests of a flow. Until a reply arrives, the flow keeps its present plan.
//!
//! A flow has one request outstanding at a time and makes at most fifty a second, regardless of
//! reports. A program without a planning thread computes plans immediately, on the packet path:
//! tests and the simulator do.

use crate::base::time::Nanos;
use crate::config::params::ShardId;
use crate::env::egress::{Answer, Egress};
use crate::env::io::Io;
use crate::plan::{Basis, Plan, PlanRequest};
use recoded_wire::frames::Frames;

/// Shortest time between two requests of one flow: the reporting interval of nodes.
const INTERVAL_NANOS: Nanos = 20_000_000;

/// A flow retries a request that was not answered within this time.
const REPLY_TIMEOUT_NANOS: Nanos = 10_000_000_000;

/// The requests of one flow.
#[derive(Debug)]
pub(crate) struct PlanSchedule {
    shard: ShardId,
    is_wanted: bool,
    requested_at: Option<Nanos>,
    is_out: bool,
}

impl PlanSchedule {
    /// A schedule whose first plan is due.
    pub(crate) fn new(shard: ShardId) -> Self {
        Self { shard, is_wanted: true, requested_at: None, is_out: false }
    }

    /// Notes that the basis of the plan has changed.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Makes the next request without delay: the operator has changed parameters.
    pub(crate) fn want_now(&mut self) {
        (self.is_wanted, self.requested_at, self.is_out) = (true, None, false);
    }

    /// When the next request is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        let pause = if self.is_out { REPLY_TIMEOUT_NANOS } else { INTERVAL_NANOS };
        self.is_wanted.then(|| self.requested_at.map_or(0, |at| at.saturating_add(pause)))
    }

    /// Makes a request, if it is time. Returns the plan if it is made at once.
    pub(crate) fn request(
        &mut self,
        io: &mut Io<'_, impl Frames, impl Egress>,
        basis: impl FnOnce() -> Basis,
    ) -> Option<Plan> {
        if self.due().is_none_or(|due| due > io.now) {
            return None;
        }
        self.requested_at = Some(io.now);
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

    /// Notes that the reply arrived.
    pub(crate) fn answered(&mut self) {
        self.is_out = false;
    }
}
