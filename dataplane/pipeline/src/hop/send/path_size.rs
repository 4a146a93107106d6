//! The largest packet that every link of a path carries, as known to a source: the limit of its own
//! next hops, and those that relays report.
//!
//! Reports come from the network, so a limit only sets how long the packets of the tunnel should
//! be; it drops no packet. It falls at once and rises when no lower one was reported for
//! [`HOLD_NANOS`], however many are forged. No honest node reports less than [`FLOOR_BYTES`]: such
//! reports are ignored.

use crate::config::params::Nanos;
use crate::hop::send::path_mtu::FLOOR_BYTES;

/// Lifetime of a limit. Nodes repeat theirs every 20 ms while packets flow; temporary ones during a
/// search for the right size last less.
const HOLD_NANOS: Nanos = 3_000_000_000;

/// When a limit expires, the lowest one reported within this time replaces it: nodes repeat theirs
/// several times meanwhile.
const LATELY_NANOS: Nanos = 200_000_000;

/// After a silence of this length the flow counts as idle, and limits do not age during it.
const PAUSE_NANOS: Nanos = 200_000_000;

/// The lowest limit reported recently.
#[derive(Debug, Default)]
pub(crate) struct PathSize {
    /// Bytes of UDP payload, and when the limit was last reported.
    least: Option<(u16, Nanos)>,
    /// The lowest recent limit above `least`.
    lately: Option<(u16, Nanos)>,
    heard_at: Nanos,
}

impl PathSize {
    /// Ages the limits at any report from the path.
    pub(crate) fn age(&mut self, now: Nanos) {
        let silence = now.saturating_sub(std::mem::replace(&mut self.heard_at, now));
        let limits = [&mut self.least, &mut self.lately];
        if silence > PAUSE_NANOS {
            limits.into_iter().flatten().for_each(|(_, at)| *at += silence);
        }
        if self.least.is_some_and(|(_, at)| at + HOLD_NANOS <= now) {
            self.least = self.lately.take().filter(|(_, at)| at + LATELY_NANOS > now);
        }
    }

    /// Records a report that the next hops of some node receive packets of up to `bytes`.
    pub(crate) fn hear(&mut self, bytes: u16, now: Nanos) {
        if bytes < FLOOR_BYTES {
            return;
        }
        if self.least.is_none_or(|(least, _)| bytes <= least) {
            self.least = Some((bytes, now));
        } else if self.lately.is_none_or(|(least, at)| bytes <= least || at + LATELY_NANOS <= now) {
            self.lately = Some((bytes, now));
        }
    }

    /// The largest UDP payload that every link carries, if there is a limit.
    pub(crate) fn limit(&self) -> Option<u16> {
        self.least.map(|(bytes, _)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    /// Passes in `reports`, one every 20 ms, and returns how often the limit changed.
    fn hear(size: &mut PathSize, reports: impl Iterator<Item = Option<u16>>) -> usize {
        let begin = size.heard_at;
        let mut changes = 0;
        for (turn, report) in (1..).zip(reports) {
            let (before, now) = (size.limit(), begin + 20 * MILLI * turn);
            size.age(now);
            if let Some(bytes) = report {
                size.hear(bytes, now);
            }
            changes += usize::from(size.limit() != before);
        }
        changes
    }

    #[test]
    fn limit_is_the_least_that_is_repeated_and_ends_when_it_is_not() {
        let mut size = PathSize::default();
        let reports = (0..100).map(|turn| Some(if turn % 2 == 0 { 1372 } else { 1400 }));
        assert_eq!((hear(&mut size, reports), size.limit()), (1, Some(1372)));
        assert_eq!(hear(&mut size, (0..148).map(|_| None)), 0);
        assert_eq!((hear(&mut size, (0..10).map(|_| None)), size.limit()), (1, None));
    }

    /// Forged limits between valid ones must not make the tunnel flap.
    #[test]
    fn limits_that_alternate_change_it_twice_in_three_seconds_at_most() {
        let mut size = PathSize::default();
        // One in 160 reports is forged: for a minute, each arrives just when the last one expires.
        let reports = (0..3000).map(|turn| Some(if turn % 160 == 0 { FLOOR_BYTES } else { 1372 }));
        let changes = hear(&mut size, reports);
        assert!((2..=40).contains(&changes), "{changes}");
    }

    #[test]
    fn limits_that_no_link_has_are_ignored() {
        let mut size = PathSize::default();
        hear(&mut size, [1372, 0, 68, FLOOR_BYTES - 1].map(Some).into_iter());
        assert_eq!(size.limit(), Some(1372));
    }

    /// Regression: the limit lapsed until the next report, and a tunnel followed it.
    #[test]
    fn limit_that_ends_is_followed_by_what_is_heard_lately() {
        let mut size = PathSize::default();
        hear(&mut size, [Some(1000), Some(1200)].into_iter());
        let reports = (0..300).map(|turn| [None, Some(1400), Some(1372)][turn % 3]);
        assert_eq!((hear(&mut size, reports), size.limit()), (1, Some(1372)));
    }

    #[test]
    fn limit_outlasts_a_pause_of_the_flow() {
        let mut size = PathSize::default();
        hear(&mut size, [Some(1372)].into_iter());
        size.age(size.heard_at + 60_000 * MILLI);
        assert_eq!(size.limit(), Some(1372));
    }
}
