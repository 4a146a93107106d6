//! Durations as users write them.

use std::time::Duration;

/// Seconds of a duration such as 60s, 5m or 1h.
pub fn confirm_seconds(text: &str) -> Result<u64, String> {
    let rule = || "write a time of 1s to 24h, such as 60s, 5m or 1h".to_owned();
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|seconds| (1..=24 * 3600).contains(seconds)).ok_or_else(rule)
}

/// Seconds between two looks.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.5..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write 0.5 to 3600 seconds".to_owned())
}
