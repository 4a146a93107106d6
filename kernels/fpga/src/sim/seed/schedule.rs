//! The unit's scheduler by itself: the assignment of batches, and the total time if only the array
//! took time.

use super::model::makespan;
use super::{Policy, SeedError};

/// The scheduler's result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The compute unit and row of the base graph of each batch.
    pub batches: Vec<(u8, u8)>,
    /// Clocks until the last batch was done.
    pub clocks: u64,
}

/// Makes the simulated scheduler assign `batches` to `units`, 1, 2, 4 or 8; each takes
/// `clocks[row]` for a batch.
///
/// # Errors
/// The number of units is unsupported, or the scheduler assigns something twice or stalls.
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
