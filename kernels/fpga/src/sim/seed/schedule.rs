//! The unit's scheduler alone: who would make which batch, and how long all would take, if nothing
//! but the array took time.

use super::model::makespan;
use super::{Policy, SeedError};

/// What the scheduler did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Of each batch, its compute unit and its row of the base graph.
    pub batches: Vec<(u8, u8)>,
    /// Clocks until the last batch was done.
    pub clocks: u64,
}

/// Lets the simulated scheduler hand out `batches` to `units`, 1, 2, 4 or 8, each of which takes
/// `clocks[row]` for a batch.
///
/// # Errors
/// There are not so many units, or the scheduler hands out something twice or nothing any more.
pub fn schedule(
    units: usize,
    policy: Policy,
    batches: u16,
    clocks: &[u32; 8],
) -> Result<Schedule, SeedError> {
    if !units.is_power_of_two() || units > 8 {
        return Err(SeedError::Setup);
    }
    let (clocks, batches) = makespan(units.ilog2(), policy as u32, batches, clocks);
    match clocks {
        0 if !batches.is_empty() => Err(SeedError::Schedule),
        _ => Ok(Schedule { batches, clocks }),
    }
}
