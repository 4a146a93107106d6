//! How far a start keeps ahead of what arrives.

use super::FIRST;
use crate::params::Nanos;

/// Times what arrives that is sent where there is always more to send; and where there is not: a
/// start of TCP comes in bursts, and ends where it is slowed down.
const START: f64 = 3.0;
pub(super) const AHEAD: f64 = 4.0;

/// Where round trips are longer, less: what is too much fills a queue until that is heard of. This
/// is about the longest that a start makes: at 50 ms, a start over 20 ms lost 100 to 680 packets in
/// a queue of 25 ms, at 25 ms none to four, and carried as much.
const AHEAD_NANOS: f64 = 25e6;
pub(super) const AHEAD_LEAST: f64 = 2.0;

/// The rate at which to go on where so much arrives, both in bytes per second.
pub(super) fn of(carried: f64, is_limited: bool, round_trip: Nanos) -> f64 {
    let most = (1.0 + AHEAD_NANOS / round_trip.max(1) as f64).max(AHEAD_LEAST);
    let ahead = if is_limited { START } else { AHEAD };
    // No less than a flow begins with anyway.
    let least = (ahead * carried).min(FIRST);
    least.max(most.min(ahead) * carried)
}
