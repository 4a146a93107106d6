//! Stages for what packets announce.
//!
//! Only the source of a flow is told its code and sizes; relays and sinks take them from packets.
//! Tables for them are not allocated on the packet path: a shard asks, another thread allocates
//! within a budget, and the shard takes over what was made.
//!
//! ```text
//!  packet of another code, or larger ─► Egress::open(request) ─► Opener ─► Pipeline::opened
//!                                         until then: dropped as `opening`
//! ```
//!
//! Sizes are rounded up, so that a flow whose sizes vary asks once or twice; a stage that grows
//! never shrinks. Nothing a packet says leads to more than one question at a time per shard.

pub use crate::announced_sizes::{SIZE_MIN, WINDOW_MIN};
use crate::combine::Combiner;
pub use crate::params::Sizes;
use crate::params::{FlowParams, ShardId};
use crate::stage::Stage;
pub use crate::stage_memory::{OpenRequest, Rent};

/// A stage that was asked for.
pub struct Opened {
    pub(crate) shard: ShardId,
    pub(crate) stage: Stage,
}

impl Opened {
    /// The shard it is for.
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// This stage, with what it takes of a budget.
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
    /// `seed` starts the generator of what must be random; give each start of a program another
    /// one.
    pub fn new(seed: u64) -> Opener {
        Opener { combiner: Combiner::new(seed) }
    }

    /// Allocates what `request` asks for, of a flow with `settings`.
    pub fn open(&mut self, request: &OpenRequest, settings: &FlowParams) -> Opened {
        let OpenRequest { shard, sizes } = *request;
        Opened { shard, stage: Stage::new(shard, settings.with(sizes), &mut self.combiner) }
    }
}
