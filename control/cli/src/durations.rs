//! Durations as users write them.

use recoded_api::units::{self, UnitError};
use std::time::Duration;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Seconds of a duration such as 60s, 5m or 1h.
pub fn confirm_seconds(text: &str) -> Result<u64, String> {
    let rule = || "write a time of 1s to 24h, such as 60s, 5m or 1h".to_owned();
    // A number without a unit counts seconds.
    let seconds = match units::nanoseconds(text) {
        Err(UnitError::NoUnit) => text.trim().parse().ok(),
        nanoseconds => nanoseconds
            .ok()
            .filter(|nanos| nanos.is_multiple_of(NANOS_PER_SECOND))
            .map(|nanos| nanos / NANOS_PER_SECOND),
    };
    seconds.filter(|seconds| (1..=24 * 3600).contains(seconds)).ok_or_else(rule)
}

/// Seconds between two looks.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.5..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write 0.5 to 3600 seconds".to_owned())
}
