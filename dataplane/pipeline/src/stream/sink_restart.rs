//! At the source of a tagged stream: whether the sink restarted, and which packets it lost with its
//! keys.
//!
//! ```text
//!   settled at the old sink | tagged under keys that only the old sink had | under new keys
//!  -------------------------+----------------------------------------------+-----------> number
//!                           '-------- are encoded again, as new symbols ---'
//! ```
//!
//! A sink names its reports by a random number, and counts from zero. So a report under another
//! name with a lower count is one of a sink that restarted. A sink has a name for each neighbour
//! that it reports to, and a flow may have several sinks: names that are still in use show that.
//! Reports are authenticated by hop: a relay that lies about them causes duplicates, and only where
//! keys change at the same time.

use crate::params::{Nanos, UPSTREAMS_MAX};
use recoded_wire::feedback::FlowReport as SinkReport;
use recoded_wire::header::serial_before;
use std::ops::Range;

/// How long keys are waited for that the restarted sink has: a handshake and its retries.
const KEYS_NANOS: Nanos = 5_000_000_000;

/// How often it is looked for them while no packets come.
const LOOK_NANOS: Nanos = 5_000_000;

/// Reports come every 20 ms. A sink that reports nothing for longer than this and a round trip may
/// have restarted.
const QUIET_NANOS: Nanos = 100_000_000;

/// The sink from one start to the next.
#[derive(Clone, Debug, Default)]
struct Sink {
    /// Names of its reports.
    names: [Option<u32>; UPSTREAMS_MAX],
    /// Numbers that it decided on.
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
        // Between the newest and those that are decided on lie those that are missing: none, most
        // of the time.
        let first = report.newest.wrapping_add(1).wrapping_sub(count);
        let known = self.first.filter(|known| first.wrapping_sub(*known) < window);
        self.first = Some(known.unwrap_or(first));
        if serial_before(self.count, count) {
            self.count = count;
        }
    }

    /// Every number before this one is delivered, or given up.
    fn settled(&self) -> Option<u32> {
        self.first.map(|first| first.wrapping_add(self.count))
    }
}

/// What a source knows of its sink's restarts.
#[derive(Debug, Default)]
pub(crate) struct SinkRestarts {
    present: Option<Sink>,
    before: Option<Sink>,
    heard_at: Nanos,
    /// The first number that a sink which restarted lacks, and when that showed.
    lacking: Option<Lacking>,
    /// The key that symbols are tagged with, and the first of them.
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
    /// Reads what the sink says of itself under a name; a window has so many symbols.
    pub(crate) fn hear(&mut self, name: u32, report: &SinkReport, window: u32, now: Nanos) {
        self.heard_at = now;
        let present = self.present.get_or_insert_default();
        if self.before.as_ref().is_some_and(|before| before.is_named(name)) {
            // It is there, too: the flow has several sinks.
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

    /// Notes the key of a symbol that was tagged.
    pub(crate) fn tagged(&mut self, id: u8, number: u32) {
        if self.key.is_none_or(|key| key.id != id) {
            self.key = Some(Key { id, first: number });
        }
    }

    /// The numbers that a sink which restarted lacks for good, once: `key` is what symbols are
    /// tagged with from `end` on.
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

    /// When to look for keys, if packets are to be encoded again under them.
    pub(crate) fn due(&self, now: Nanos) -> Option<Nanos> {
        self.lacking.map(|_| now + LOOK_NANOS)
    }

    /// The first number that is to be kept, since the sink may have restarted.
    pub(crate) fn keeps_from(&self, round_trip: Nanos, now: Nanos) -> Option<u32> {
        if let Some(lacking) = self.lacking {
            return Some(lacking.from);
        }
        let is_quiet = self.heard_at + QUIET_NANOS + round_trip < now;
        self.present.as_ref().filter(|_| is_quiet).and_then(Sink::settled)
    }
}

/// Numbers that a sink decided on.
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

    /// A source whose symbols have key 1, and whose sink has settled ninety of a hundred.
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
        assert_eq!(source.take(1, end, 1), None, "the keys are those of before");
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
