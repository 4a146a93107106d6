//! Sink restarts, detected at the source of a tagged stream, and the packets that the sink lost
//! with its keys.
//!
//! ```text
//!   settled at the old sink | tagged under keys that only the old sink had | under new keys
//!  -------------------------+----------------------------------------------+-----------> number
//!                           '-------- are encoded again, as new symbols ---'
//! ```
//!
//! A sink names its reports by a random number, and counts from zero. So a report with another name
//! and a lower count means that the sink restarted. A sink has a name for each neighbour that it
//! reports to, and a flow may have several sinks: names that are still in use reveal that. Reports
//! are authenticated per hop: a relay that forges them causes duplicates, and only when keys change
//! at the same time.

use crate::config::params::{Nanos, UPSTREAMS_MAX};
use recoded_wire::feedback::FlowReport as SinkReport;
use recoded_wire::header::serial_before;
use std::ops::Range;

/// How long to wait for keys shared with the restarted sink: a handshake and its retries.
const KEYS_NANOS: Nanos = 5_000_000_000;

/// Interval of checks for them while no packets arrive.
const LOOK_NANOS: Nanos = 5_000_000;

/// Reports arrive every 20 ms. A sink without reports for longer than this and a round trip may
/// have restarted.
const QUIET_NANOS: Nanos = 100_000_000;

/// One life of the sink.
#[derive(Clone, Debug, Default)]
struct Sink {
    /// Names of its reports.
    names: [Option<u32>; UPSTREAMS_MAX],
    /// Numbers settled, delivered or lost.
    count: u32,
    /// The first of them.
    first: Option<u32>,
}

impl Sink {
    fn is_named(&self, name: u32) -> bool {
        self.names.contains(&Some(name))
    }

    fn hear(&mut self, name: u32, report: &SinkReport, window: u32) {
        if !self.is_named(name)
            && let Some(place) = self.names.iter_mut().find(|place| place.is_none())
        {
            *place = Some(name);
        }
        let count = count_of(report);
        if count == 0 {
            return;
        }
        // Missing numbers lie between the newest and the settled ones: usually none.
        let first = report.newest.wrapping_add(1).wrapping_sub(count);
        let known = self.first.filter(|known| first.wrapping_sub(*known) < window);
        self.first = Some(known.unwrap_or(first));
        if serial_before(self.count, count) {
            self.count = count;
        }
    }

    /// Every number before this one is delivered, or counts as lost.
    fn settled(&self) -> Option<u32> {
        self.first.map(|first| first.wrapping_add(self.count))
    }
}

/// Restart detection of a source for its sink.
#[derive(Debug, Default)]
pub(crate) struct SinkRestarts {
    present: Option<Sink>,
    before: Option<Sink>,
    heard_at: Nanos,
    /// The first number that a restarted sink lacks, and when that was detected.
    lacking: Option<Lacking>,
    /// The current tag key, and the first symbol tagged with it.
    key: Option<Key>,
}

#[derive(Copy, Clone, Debug)]
struct Lacking {
    from: u32,
    since: Nanos,
}

#[derive(Copy, Clone, Debug)]
struct Key {
    id: u8,
    first: u32,
}

impl SinkRestarts {
    /// Processes a report of the sink under a name; `window` is in symbols.
    pub(crate) fn hear(&mut self, name: u32, report: &SinkReport, window: u32, now: Nanos) {
        self.heard_at = now;
        let present = self.present.get_or_insert_default();
        if self.before.as_ref().is_some_and(|before| before.is_named(name)) {
            // Both are active: the flow has several sinks.
            self.lacking = None;
            return;
        }
        let is_new = !present.is_named(name) && serial_before(count_of(report), present.count);
        if is_new {
            let gone = std::mem::take(present);
            let from = gone.settled();
            self.lacking = from.map(|from| Lacking { from, since: now });
            self.before = Some(gone);
        }
        present.hear(name, report, window);
    }

    /// Records the key of a tagged symbol.
    pub(crate) fn tagged(&mut self, id: u8, number: u32) {
        if self.key.is_none_or(|key| key.id != id) {
            self.key = Some(Key { id, first: number });
        }
    }

    /// The numbers that a restarted sink cannot recover, returned once: `key` tags the symbols from
    /// `end` on.
    pub(crate) fn take(&mut self, key: u8, end: u32, now: Nanos) -> Option<Range<u32>> {
        let Lacking { from, since } = self.lacking?;
        if since + KEYS_NANOS < now {
            self.lacking = None;
            return None;
        }
        let until = self.key.filter(|known| known.id == key).map_or(end, |known| known.first);
        let lacks = serial_before(from, until);
        if lacks {
            self.lacking = None;
        }
        lacks.then_some(from..until)
    }

    /// When to check for keys, if packets are to be encoded again under them.
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        self.lacking.map(|_| now + LOOK_NANOS)
    }

    /// The first number to keep, since the sink may have restarted.
    pub(crate) fn keeps_from(&self, round_trip: Nanos, now: Nanos) -> Option<u32> {
        if let Some(lacking) = self.lacking {
            return Some(lacking.from);
        }
        let is_quiet = self.heard_at + QUIET_NANOS + round_trip < now;
        self.present.as_ref().filter(|_| is_quiet).and_then(Sink::settled)
    }
}

/// Numbers settled by a sink.
fn count_of(report: &SinkReport) -> u32 {
    report.complete.wrapping_add(report.failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 1024;
    const FIRST: u32 = u32::MAX - 20;

    fn report(newest: u32, complete: u32) -> SinkReport {
        SinkReport { newest: FIRST.wrapping_add(newest), complete, failed: 0 }
    }

    /// A source with symbols under key 1, and a sink that has settled ninety of a hundred.
    fn source() -> SinkRestarts {
        let mut source = SinkRestarts::default();
        source.tagged(1, FIRST);
        source.hear(7, &report(49, 50), WINDOW, 0);
        source.hear(7, &report(99, 90), WINDOW, 0);
        source
    }

    #[test]
    fn what_a_restarted_sink_lacks_is_named_once_when_there_are_keys_for_it() {
        let (mut source, end) = (source(), FIRST.wrapping_add(140));
        assert_eq!(source.take(2, end, 1), None, "keys change, and no sink restarted");
        source.hear(8, &SinkReport { newest: u32::MAX, complete: 0, failed: 0 }, WINDOW, 1);
        assert_eq!(source.take(1, end, 1), None, "the keys are unchanged");
        assert!(source.due(1).is_some());
        assert_eq!(source.take(2, end, 1), Some(FIRST.wrapping_add(90)..end));
        assert_eq!(source.take(2, end, 1), None);
        assert_eq!(source.due(1), None);
    }

    #[test]
    fn keys_may_change_before_the_sink_says_that_it_restarted() {
        let (mut source, first) = (source(), FIRST.wrapping_add(120));
        source.tagged(2, first);
        source.tagged(2, first.wrapping_add(1));
        source.hear(8, &report(121, 1), WINDOW, 1);
        let range = source.take(2, first.wrapping_add(2), 1);
        assert_eq!(range, Some(FIRST.wrapping_add(90)..first));
    }

    #[test]
    fn other_names_of_the_same_sink_and_several_sinks_are_no_restart() {
        let mut source = source();
        source.hear(8, &report(100, 100), WINDOW, 0);
        source.hear(7, &report(99, 99), WINDOW, 0);
        assert_eq!(source.take(2, FIRST.wrapping_add(140), 1), None);
        // Another sink, which joined later.
        source.hear(9, &report(110, 10), WINDOW, 0);
        source.hear(7, &report(111, 111), WINDOW, 0);
        assert_eq!(source.take(2, FIRST.wrapping_add(140), 1), None);
    }

    #[test]
    fn restarts_without_other_keys_are_forgotten() {
        let mut source = source();
        source.hear(8, &report(100, 1), WINDOW, 0);
        assert_eq!(source.take(2, FIRST.wrapping_add(140), KEYS_NANOS + 1), None);
        assert_eq!(source.due(0), None);
    }

    #[test]
    fn symbols_are_kept_while_the_sink_is_quiet() {
        let source = source();
        assert_eq!(source.keeps_from(0, QUIET_NANOS), None);
        assert_eq!(source.keeps_from(0, QUIET_NANOS + 1), Some(FIRST.wrapping_add(90)));
    }
}
