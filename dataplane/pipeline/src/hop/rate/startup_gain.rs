//! How far the start phase runs ahead of the received rate.

use super::FIRST;
use crate::config::params::Nanos;

/// Multiple of the received rate to send when data never runs out; and otherwise: TCP starts in
/// bursts, and its start ends when it is slowed down.
const START: f64 = 3.0;
pub(super) const AHEAD: f64 = 4.0;

/// Over longer round trips the factor is lower: the excess fills a queue until reports arrive. This
/// bounds that queue approximately: at 50 ms, a start over 20 ms lost 100 to 680 packets in a queue
/// of 25 ms; at 25 ms it lost none to four, and carried as much.
const AHEAD_NANOS: f64 = 25e6;
pub(super) const AHEAD_LEAST: f64 = 2.0;

/// The next rate for a received rate, both in bytes per second.
pub(super) fn of(carried: f64, is_limited: bool, round_trip: Nanos) -> f64 {
    let most = (1.0 + AHEAD_NANOS / round_trip.max(1) as f64).max(AHEAD_LEAST);
    let ahead = if is_limited { START } else { AHEAD };
    // No less than the initial rate of a flow.
    let least = (ahead * carried).min(FIRST);
    least.max(most.min(ahead) * carried)
}
