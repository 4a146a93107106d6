//! Memory of stages: a request for one, and its share of a budget.

use crate::config::params::{ShardId, Sizes};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request for a stage that accepts the packets of a shard.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct OpenRequest {
    /// The shard.
    pub shard: ShardId,
    /// Sizes that it must accept.
    pub sizes: Sizes,
}

/// Bytes that a stage takes from a budget; they are returned when the stage is dropped, on any
/// thread.
#[derive(Debug)]
pub struct Rent {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Rent {
    /// Takes `bytes` of `budget`, whose `used` counts the bytes taken; `None` if they would exceed
    /// it.
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
