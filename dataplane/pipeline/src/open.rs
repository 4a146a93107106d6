//! Stages for the code and sizes that packets announce.
//!
//! Code and sizes are configured only at the source of a flow; relays and sinks take them from
//! packets. Tables for them are not allocated on the packet path: a shard requests a stage, another
//! thread allocates it within a budget, and the shard adopts it.
//!
//! ```text
//!  packet of another code, or larger ─► Egress::open(request) ─► Opener ─► Pipeline::opened
//!                                         until then: dropped as `opening`
//! ```
//!
//! Sizes are rounded up, so that a flow whose sizes vary makes one or two requests; a stage that
//! grows never shrinks. Whatever a packet contains, a shard has at most one request outstanding.

pub use crate::config::params::Sizes;
use crate::config::params::{FlowParams, ShardId};
use crate::env::combine::Combiner;
pub use crate::env::stage_memory::{OpenRequest, Rent};
pub use crate::packet::announced_sizes::SIZE_MIN;
use crate::stage::Stage;

/// A requested stage.
pub struct Opened {
    pub(crate) shard: ShardId,
    pub(crate) stage: Stage,
}

impl Opened {
    /// The shard it is for.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// This stage, with its share of a budget.
    #[must_use]
    pub fn with(self, rent: Rent) -> Opened {
        let Opened { shard, stage } = self;
        Opened { shard, stage: stage.with(rent) }
    }
}

/// A stage that is not used any more: to be dropped where that may take its time.
pub struct Closed {
    pub(crate) _stage: Stage,
}

/// Makes stages.
pub struct Opener {
    combiner: Combiner,
}

impl Opener {
    /// `seed` starts the random generator; use a different one for each start of a program.
    pub fn new(seed: u64) -> Opener {
        Opener { combiner: Combiner::new(seed) }
    }

    /// Allocates the stage of `request`, for a flow with `settings`.
    pub fn open(&mut self, request: &OpenRequest, settings: &FlowParams) -> Opened {
        let OpenRequest { shard, sizes } = *request;
        Opened { shard, stage: Stage::new(shard, settings.with(sizes), &mut self.combiner) }
    }
}
