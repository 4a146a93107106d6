//! Memory of stages: a request for one, and its share of a budget.

use crate::params::{ShardId, Sizes};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Asks for a stage that takes the packets of a shard.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct OpenRequest {
    /// The shard.
    pub shard: ShardId,
    /// What it has to take.
    pub sizes: Sizes,
}

/// Bytes that a stage takes of a budget, given back when the stage is dropped, wherever that is.
#[derive(Debug)]
pub struct Rent {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Rent {
    /// Takes `bytes` of `budget`, of which so much is `used`; `None` when that is too much.
    pub fn take(used: &Arc<AtomicUsize>, bytes: usize, budget: usize) -> Option<Rent> {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= budget);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Rent { used: used.clone(), bytes })
    }
}

impl Drop for Rent {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
