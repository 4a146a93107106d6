//! Durations as users write them: with a unit, or as a number of seconds.

use recoded_api::units::{self, UnitError};
use std::ops::RangeInclusive;
use std::time::Duration;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A duration such as 0.5, 90s, 1.5 h, 1h30m or 2d.
pub fn duration(text: &str) -> Option<Duration> {
    if let Err(UnitError::NoUnit) = units::nanoseconds(text) {
        return units::nanoseconds(&format!("{} s", text.trim())).ok().map(Duration::from_nanos);
    }
    let mut sum = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let unit = rest.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(rest.len());
        let next = rest[unit..].find(|it: char| it.is_ascii_digit());
        let (part, after) = rest.split_at(next.map_or(rest.len(), |next| unit + next));
        let (part, times) = match part.trim().strip_suffix('d') {
            Some(days) => (format!("{days} h"), 24),
            None => (part.to_owned(), 1),
        };
        let nanos = Duration::from_nanos(units::nanoseconds(&part).ok()?);
        sum = sum.checked_add(nanos.checked_mul(times)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

/// Seconds of a duration such as 60s, 5m or 1h.
pub fn confirm_seconds(text: &str) -> Result<u64, String> {
    let rule = || "write a time of 1s to 24h, such as 60s, 5m or 1h".to_owned();
    whole(text).filter(|seconds| (1..=24 * 3600).contains(seconds)).ok_or_else(rule)
}

/// Whole seconds in a range.
pub fn seconds(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let seconds = whole(text).filter(|seconds| range.contains(seconds));
    seconds.ok_or_else(|| format!("write {} to {} seconds", range.start(), range.end()))
}

/// A duration in a range of seconds.
pub fn within(text: &str, range: RangeInclusive<f64>) -> Result<Duration, String> {
    let duration = duration(text).filter(|duration| range.contains(&duration.as_secs_f64()));
    duration.ok_or_else(|| format!("write {} to {} seconds", range.start(), range.end()))
}

/// Time between two looks.
pub fn interval(text: &str) -> Result<Duration, String> {
    within(text, 0.5..=3600.0)
}

fn whole(text: &str) -> Option<u64> {
    let nanos = duration(text)?.as_nanos();
    let is_whole = nanos.is_multiple_of(u128::from(NANOS_PER_SECOND));
    u64::try_from(nanos / u128::from(NANOS_PER_SECOND)).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seconds_and_units_are_those_of_files() {
        for (text, expected) in [
            ("2", Ok(2)),
            ("2s", Ok(2)),
            ("2 s", Ok(2)),
            ("2000ms", Ok(2)),
            ("1m", Ok(60)),
            ("1m30s", Ok(90)),
            ("1 min 30 s", Ok(90)),
            ("1m30", Err("write 2 to 120 seconds".to_owned())),
            ("", Err("write 2 to 120 seconds".to_owned())),
            ("2.5", Err("write 2 to 120 seconds".to_owned())),
            ("121", Err("write 2 to 120 seconds".to_owned())),
            ("-2", Err("write 2 to 120 seconds".to_owned())),
            ("two", Err("write 2 to 120 seconds".to_owned())),
        ] {
            assert_eq!(seconds(text, 2..=120), expected, "{text}");
        }
        assert_eq!(duration("2d"), Some(Duration::from_hours(48)));
        assert_eq!(duration("1d 1.5h"), Some(Duration::from_mins(25 * 60 + 30)));
        assert_eq!(duration("999999999d"), None, "beyond all clocks");
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("0.4"), Err("write 0.5 to 3600 seconds".to_owned()));
    }
}
