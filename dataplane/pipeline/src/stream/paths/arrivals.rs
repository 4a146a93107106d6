//! Judges each of several paths by the sink's reports: how many of the symbols sent over it
//! arrived. The next hop alone could acknowledge everything and forward nothing, or invent losses.
//!
//! ```text
//!  sink: blocks of numbers at random, from the newest       path: 12 of 128 arrived ──► suspended
//!        1 1 0 1 0 1 1 0  ──────────────────────────►               │ 1 s, 2 s, 4 s ...
//!        no report on any of many symbols  ─────────►               ▼
//!                                                      trial: every 16th symbol ──► in use again
//! ```

use crate::config::params::{NEXT_HOPS_MAX, Nanos};
use crate::stream::arrival_log::WINDOWS;
use recoded_wire::feedback::ArrivalReport;

const SECOND: Nanos = 1_000_000_000;
const MILLI: Nanos = 1_000_000;

/// A symbol that the sink lacks counts as lost if the sink has a symbol that left this many round
/// trips of the path, and this time, later: hops repair losses twice meanwhile. So a report that a
/// relay held back is no evidence. Less: late repairs look like losses. More: a liar holds its
/// traffic for longer.
const ROUND_TRIPS: Nanos = 3;
const LATE_NANOS: Nanos = 50 * MILLI;

/// Longest round trip and backlog of a path that its next hop may claim here.
const ROUND_TRIP_MAX_NANOS: Nanos = SECOND;
const BACKLOG_MAX_NANOS: Nanos = 500 * MILLI;

/// Symbols judged before a path can be suspended, and on trial before it is used again or
/// suspended again.
const JUDGED_MIN: u32 = 128;
const TRIAL_MIN: u32 = 32;

/// More symbols than this count half.
const JUDGED_MAX: u32 = 1024;

/// A path is suspended if the sink lacks, or the next hop denies, more than one in this many of its
/// symbols, and more than [`WORSE`] times the share of another path. Hops repair all losses, so
/// honest paths lose one in thousands. Sinks request the rest from other paths.
const LOST_PART: f64 = 1.0 / 8.0;
const WORSE: f64 = 2.0;

/// The sink is silent when it sent no report for this long after this many symbols of a path should
/// have arrived, or only reports from before it had any of them: a next hop may acknowledge symbols
/// at once and forward them a second later. Reports are 20 ms apart. At the start, nodes open
/// stages, and the round trip of the path is unknown.
const SILENT_SYMBOLS: u32 = 64;
const SILENT_NANOS: Nanos = 500 * MILLI;
const SILENT_FIRST_NANOS: Nanos = 2 * SECOND;

/// The first suspension, how many times it doubles, and how many times as long a path must do well
/// before suspensions begin at the first length again. A liar that behaves meanwhile gains little:
/// the next verdict takes a fraction of a second.
const FIRST_NANOS: Nanos = SECOND;
const DOUBLED_MAX: u32 = 8;
const FORGIVEN_TIMES: Nanos = 16;

/// On trial, a path carries one in this many symbols.
const TRIAL_PART: u32 = 16;

/// A symbol that left: whether it is still to be judged (1 bit), path (3), and when, in units of
/// 2^18 ns (28). Ages are modulo 19 hours: an older symbol may look younger, and is judged later.
#[derive(Copy, Clone, Default, Debug)]
struct Left(u32);

const UNIT_LOG2: u32 = 18;
const PATH_BITS: u32 = 3;

impl Left {
    fn new(place: usize, now: Nanos) -> Self {
        let place = place as u32 & ((1 << PATH_BITS) - 1);
        Self(((now >> UNIT_LOG2) as u32) << (1 + PATH_BITS) | place << 1 | 1)
    }

    /// Its path, if it is still to be judged.
    fn place(self) -> Option<usize> {
        (self.0 & 1 != 0).then_some(((self.0 >> 1) & ((1 << PATH_BITS) - 1)) as usize)
    }

    fn judged(self) -> Self {
        Self(self.0 & !1)
    }

    /// How much later another symbol left; 0 if it left earlier.
    fn until(self, later: Self) -> Nanos {
        let units = (later.0 & !0xF).wrapping_sub(self.0 & !0xF) >> (1 + PATH_BITS);
        let is_earlier = units >= 1 << (31 - 1 - PATH_BITS);
        if is_earlier { 0 } else { Nanos::from(units) << UNIT_LOG2 }
    }
}

const _: () = assert!(NEXT_HOPS_MAX <= 1 << PATH_BITS);

/// Record of one path.
#[derive(Copy, Clone, Debug, Default)]
struct Record {
    judged: u32,
    lost: u32,
    /// Symbols that left since the newest one that the sink had at its last report, and when the
    /// first of them did.
    unheard: u32,
    unheard_since: Nanos,
    /// When the newest symbol left.
    left_at: Nanos,
    /// End of the last suspension, its length, and the share lost before it.
    until: Nanos,
    length: Nanos,
    lost_share: f64,
    /// Number of suspensions.
    count: u32,
    is_on_trial: bool,
}

impl Record {
    fn note(&mut self, came: bool) {
        self.judged += 1;
        self.lost += u32::from(!came);
        if self.judged >= JUDGED_MAX {
            (self.judged, self.lost) = (self.judged / 2, self.lost / 2);
        }
    }

    fn is_suspended(&self, now: Nanos) -> bool {
        now < self.until
    }

    /// The share lost, once this many symbols were judged.
    fn share(&self, least: u32) -> Option<f64> {
        (self.judged >= least).then(|| f64::from(self.lost) / f64::from(self.judged))
    }

    /// The share to compare that of another path with. Nothing speaks against a path that was not
    /// judged.
    fn compared(&self, now: Nanos) -> f64 {
        if self.is_suspended(now) {
            return self.lost_share;
        }
        self.share(TRIAL_MIN).unwrap_or(0.0)
    }

    fn forget(&mut self) {
        (self.judged, self.lost, self.unheard) = (0, 0, 0);
    }

    fn suspend(&mut self, lost_share: f64, now: Nanos) {
        if now.saturating_sub(self.until) > FORGIVEN_TIMES * self.length {
            self.count = 0;
        }
        self.length = FIRST_NANOS << self.count.min(DOUBLED_MAX);
        (self.until, self.lost_share) = (now + self.length, lost_share);
        (self.count, self.is_on_trial) = (self.count.saturating_add(1), true);
        self.forget();
    }

    fn readmit(&mut self, now: Nanos) {
        (self.until, self.is_on_trial) = (self.until.min(now), false);
        self.forget();
    }
}

/// State of a path that the sender of its first hop knows.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct PathState {
    /// Whether its next hop answers.
    pub answers: bool,
    pub round_trip: Nanos,
    pub backlog: Nanos,
}

impl PathState {
    /// Age at which a symbol of the path that the sink lacks is lost.
    pub(crate) fn patience(&self) -> Nanos {
        ROUND_TRIPS * self.round_trip.min(ROUND_TRIP_MAX_NANOS)
            + self.backlog.min(BACKLOG_MAX_NANOS)
            + LATE_NANOS
    }
}

/// How a path should be used for a symbol; earlier variants are preferred.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Use {
    /// It shows whether a path on trial delivers.
    Trial,
    Normal,
    /// Only if there is no other.
    Avoid,
}

/// All paths.
#[derive(Debug)]
pub(crate) struct PathArrivals {
    /// By number, modulo their count, which is a power of two.
    left: Box<[Left]>,
    records: [Record; NEXT_HOPS_MAX],
    /// Whether the sink ever reported.
    is_heard: bool,
}

impl PathArrivals {
    /// Creates the state for a window of this many symbols, a power of two; 0 for none.
    pub(crate) fn new(symbols: usize) -> Self {
        Self {
            left: vec![Left::default(); WINDOWS * symbols].into_boxed_slice(),
            records: [Record::default(); NEXT_HOPS_MAX],
            is_heard: false,
        }
    }

    /// Resizes the window; symbols in flight are not judged.
    pub(crate) fn resize(&mut self, symbols: usize) {
        self.left = Self::new(symbols).left;
    }

    /// Allocated bytes.
    pub(crate) fn memory_bytes(symbols: usize) -> usize {
        WINDOWS * symbols * size_of::<Left>()
    }

    fn slot(&self, number: u32) -> usize {
        number as usize & (self.left.len() - 1)
    }

    fn record(&mut self, place: usize) -> &mut Record {
        &mut self.records[place % NEXT_HOPS_MAX]
    }

    /// Notes the transmission of a symbol over the path at `place`.
    pub(crate) fn note_left(&mut self, place: usize, number: u32, now: Nanos) {
        if self.left.is_empty() {
            return;
        }
        let slot = self.slot(number);
        self.left[slot] = Left::new(place, now);
        let record = self.record(place);
        if record.unheard == 0 {
            record.unheard_since = now;
        }
        record.unheard = record.unheard.saturating_add(1);
        record.left_at = now;
    }

    /// Notes that another path takes a symbol over, whatever became of it.
    pub(crate) fn note_moved(&mut self, number: u32) {
        if !self.left.is_empty() {
            let slot = self.slot(number);
            self.left[slot] = self.left[slot].judged();
        }
    }

    /// Notes that the sink requested a symbol: it did not arrive over its path.
    pub(crate) fn note_requested(&mut self, number: u32) {
        if self.left.is_empty() {
            return;
        }
        let slot = self.slot(number);
        if let Some(place) = self.left[slot].place() {
            self.left[slot] = self.left[slot].judged();
            self.record(place).note(false);
        }
    }

    /// Notes that the sink reported. Then it had `newest`, and none of the symbols that left later;
    /// `end` is the number after the newest one here.
    pub(crate) fn note_heard(&mut self, newest: u32, end: u32, now: Nanos) {
        self.is_heard = true;
        let age = match self.is_held(newest, end) {
            true => self.left[self.slot(newest)].until(Left::new(0, now)),
            false => 0,
        };
        let (reported_until, behind) = (now.saturating_sub(age), end.wrapping_sub(newest));
        for record in &mut self.records {
            record.unheard_since = record.unheard_since.max(reported_until);
            let is_reported = record.left_at <= reported_until + (1 << UNIT_LOG2);
            record.unheard = if is_reported { 0 } else { record.unheard.min(behind) };
        }
    }

    /// Whether a number is among the newest that are kept; `end` is the one after the newest.
    fn is_held(&self, number: u32, end: u32) -> bool {
        (1..=self.left.len()).contains(&(end.wrapping_sub(number) as usize))
    }

    /// Judges symbols by a report of the sink. `newest` is the newest symbol that the sink had
    /// then, `end` the number after the newest one here. `resolve` takes each symbol
    /// once, and whether it arrived, and returns whether the next hop has it.
    pub(crate) fn hear(
        &mut self,
        report: &ArrivalReport<'_>,
        newest: u32,
        paths: &[PathState; NEXT_HOPS_MAX],
        end: u32,
        mut resolve: impl FnMut(u32, bool) -> bool,
    ) {
        if !self.is_held(newest, end) {
            return;
        }
        let newest = self.left[self.slot(newest)];
        for (number, came) in report.numbers() {
            if !self.is_held(number, end) {
                continue;
            }
            let slot = self.slot(number);
            let left = self.left[slot];
            let Some(place) = left.place() else {
                resolve(number, came);
                continue;
            };
            if left.until(newest) < paths[place].patience() {
                continue;
            }
            self.left[slot] = left.judged();
            let is_acknowledged = resolve(number, came);
            // One that does not answer is judged by that alone. One that still denies a symbol
            // that arrived behind it invents losses, which slow the source down.
            if paths[place].answers {
                self.records[place].note(came && is_acknowledged);
            }
        }
    }

    /// How the path at `place` should be used for a symbol.
    pub(crate) fn usage(&self, place: usize, number: u32, now: Nanos) -> Use {
        let record = &self.records[place % NEXT_HOPS_MAX];
        match (record.is_suspended(now), record.is_on_trial) {
            (true, _) => Use::Avoid,
            (false, false) => Use::Normal,
            (false, true) if number.is_multiple_of(TRIAL_PART) => Use::Trial,
            (false, true) => Use::Avoid,
        }
    }

    /// Whether the path at `place` is suspended.
    pub(crate) fn is_suspended(&self, place: usize, now: Nanos) -> bool {
        self.records[place % NEXT_HOPS_MAX].is_suspended(now)
    }

    /// Whether others carry the symbols of the path at `place`, apart from a trial.
    pub(crate) fn is_avoided(&self, place: usize, now: Nanos) -> bool {
        let record = &self.records[place % NEXT_HOPS_MAX];
        record.is_on_trial || record.is_suspended(now)
    }

    /// Suspends a path that loses symbols, if there is a better one, and ends the trial of one that
    /// does not. Returns the place of a suspended one.
    pub(crate) fn judge(&mut self, paths: &[PathState], now: Nanos) -> Option<usize> {
        for (place, path) in paths.iter().enumerate().take(NEXT_HOPS_MAX) {
            let record = self.record(place);
            if !path.answers {
                record.forget();
                continue;
            }
            if record.is_suspended(now) {
                continue;
            }
            let least = if record.is_on_trial { TRIAL_MIN } else { JUDGED_MIN };
            let share = record.share(least);
            record.is_on_trial &= share.is_none_or(|share| share > LOST_PART);
            let is_suspended = match share {
                _ if self.is_silent(place, path, now) => self.replace_silent(place, paths, now),
                Some(share) if share > LOST_PART => self.replace_lossy(place, share, paths, now),
                _ => false,
            };
            if is_suspended {
                return Some(place);
            }
        }
        None
    }

    /// Whether the sink should have reported on symbols of a path, but did not.
    fn is_silent(&self, place: usize, path: &PathState, now: Nanos) -> bool {
        let margin = if self.is_heard { SILENT_NANOS } else { SILENT_FIRST_NANOS };
        let Record { unheard, unheard_since, .. } = self.records[place];
        unheard >= SILENT_SYMBOLS && now.saturating_sub(unheard_since) > path.patience() + margin
    }

    /// Suspends a path over which nothing arrives. If all others were too, the sink may have been
    /// down, and they are readmitted.
    fn replace_silent(&mut self, place: usize, paths: &[PathState], now: Nanos) -> bool {
        let others = || (0..paths.len().min(NEXT_HOPS_MAX)).filter(|other| *other != place);
        if others().count() == 0 {
            return false;
        }
        if others().all(|other| self.is_avoided(other, now)) {
            for other in others() {
                self.records[other].readmit(now);
                self.records[other].count = 0;
            }
            self.records[place].count = 0;
        }
        self.records[place].suspend(1.0, now);
        true
    }

    /// Suspends a path that loses this share, if another one that answers loses less.
    fn replace_lossy(&mut self, place: usize, share: f64, paths: &[PathState], now: Nanos) -> bool {
        let answers = |other: &usize| *other != place && paths[*other].answers;
        let others = (0..paths.len().min(NEXT_HOPS_MAX)).filter(answers);
        let better = |other: &usize| WORSE * self.records[*other].compared(now) < share;
        let Some(other) = others.filter(better).min_by_key(|other| self.records[*other].until)
        else {
            return false;
        };
        if self.records[other].is_suspended(now) {
            self.records[other].readmit(now);
        }
        self.records[place].suspend(share, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_wire::feedback::{FEEDBACK_BYTES, Item, Writer, items};

    const PATHS: [PathState; 2] =
        [PathState { answers: true, round_trip: 10 * MILLI, backlog: 0 }; 2];

    /// Patience with these paths, and the unit of time.
    const LATE: Nanos = ROUND_TRIPS * 10 * MILLI + LATE_NANOS + (1 << UNIT_LOG2);

    /// Lets the sink, whose newest symbol left at `now`, report a block of numbers by this rule.
    fn hear(arrivals: &mut PathArrivals, first: u32, now: Nanos, came: impl Fn(u32) -> bool) {
        hear_beside(arrivals, first, now, came, true);
    }

    /// The same, if the next hop acknowledges all or nothing.
    fn hear_beside(
        arrivals: &mut PathArrivals,
        first: u32,
        now: Nanos,
        came: impl Fn(u32) -> bool,
        acknowledges: bool,
    ) {
        let mut states = [PathState::default(); NEXT_HOPS_MAX];
        states[..2].copy_from_slice(&PATHS);
        let mut buffer = [0; FEEDBACK_BYTES + 64];
        let mut writer = Writer::new(&mut buffer);
        assert!(writer.push_arrivals(first, 256, came));
        let length = writer.finish();
        let Some(Item::Arrivals(report)) = items(&buffer[..length]).next() else { panic!() };
        let newest = first.wrapping_add(256);
        arrivals.note_left(1, newest, now);
        arrivals.note_heard(newest, newest.wrapping_add(1), now);
        arrivals.hear(&report, newest, &states, newest.wrapping_add(1), |_, _| acknowledges);
        arrivals.note_moved(newest);
    }

    /// 256 symbols in turn over two paths. The first one loses one in `loses`.
    fn turn(arrivals: &mut PathArrivals, first: u32, now: Nanos, loses: u32) -> Option<usize> {
        let numbers = (0..256).map(|step| first.wrapping_add(step));
        numbers.for_each(|number| arrivals.note_left(number as usize % 2, number, now));
        let late = now + LATE;
        hear(arrivals, first, late, |number| {
            number % 2 == 1 || !(number / 2).is_multiple_of(loses)
        });
        arrivals.judge(&PATHS, late)
    }

    #[test]
    fn path_that_loses_too_many_is_suspended_for_longer_each_time() {
        let mut arrivals = PathArrivals::new(1024);
        let (mut now, mut first) = (SECOND, u32::MAX - 255);
        assert_eq!(turn(&mut arrivals, first, now, 16), None, "one in sixteen is no reason");
        for seconds in [1, 2, 4, 8] {
            first = first.wrapping_add(256);
            assert_eq!(turn(&mut arrivals, first, now, 2), Some(0));
            let at = now + LATE;
            assert!(arrivals.is_avoided(0, at) && !arrivals.is_avoided(1, at));
            assert_eq!(arrivals.usage(0, 16, at + seconds * SECOND - 1), Use::Avoid);
            assert_eq!(arrivals.usage(0, 16, at + seconds * SECOND), Use::Trial);
            assert_eq!(arrivals.usage(0, 17, at + seconds * SECOND), Use::Avoid);
            now = at + seconds * SECOND;
        }
        // It delivers again.
        assert_eq!(turn(&mut arrivals, first.wrapping_add(256), now, 200), None);
        assert!(!arrivals.is_avoided(0, now) && arrivals.usage(0, 17, now) == Use::Normal);
    }

    #[test]
    fn no_path_is_suspended_where_all_lose_alike_or_there_is_no_other() {
        let mut arrivals = PathArrivals::new(1024);
        for number in 0..512u32 {
            arrivals.note_left(number as usize % 2, number, SECOND);
        }
        let late = SECOND + LATE;
        for first in [256, 0] {
            hear(&mut arrivals, first, late, |_| false);
        }
        assert_eq!(arrivals.judge(&PATHS, late), None);
        let mut alone = PathArrivals::new(1024);
        (0..256).for_each(|number| alone.note_left(0, number, SECOND));
        hear(&mut alone, 0, late, |_| false);
        assert_eq!(alone.judge(&PATHS[..1], late), None);
    }

    #[test]
    fn next_hop_that_denies_symbols_that_arrived_is_suspended() {
        let mut arrivals = PathArrivals::new(1024);
        (0..256).for_each(|number| arrivals.note_left(0, number, SECOND));
        hear_beside(&mut arrivals, 0, SECOND + LATE, |_| true, false);
        assert_eq!(arrivals.judge(&PATHS, SECOND + LATE), Some(0));
    }

    #[test]
    fn young_symbols_are_not_judged_and_none_is_judged_twice() {
        let mut arrivals = PathArrivals::new(1024);
        (0..256).for_each(|number| arrivals.note_left(0, number, SECOND));
        hear(&mut arrivals, 0, SECOND + LATE_NANOS, |_| false);
        assert_eq!(arrivals.records[0].judged, 0);
        for _ in 0..2 {
            hear(&mut arrivals, 0, SECOND + LATE, |_| false);
            assert_eq!((arrivals.records[0].judged, arrivals.records[0].lost), (256, 256));
        }
    }

    /// Tests in virtual time: a next hop acknowledges at once, and forwards a second later.
    #[test]
    fn path_over_which_all_arrives_late_is_suspended_and_an_idle_one_is_not() {
        let mut arrivals = PathArrivals::new(1024);
        let mut verdicts = Vec::new();
        for number in 0..2000u32 {
            let now = SECOND + MILLI * Nanos::from(number);
            // The other path carried some before.
            arrivals.note_left(usize::from(number < 100), number, now);
            let late = if number < 600 { 20 } else { 1000.min(number - 580) };
            if number % 20 == 0 && number > 100 {
                arrivals.note_heard(number - late, number + 1, now);
            }
            verdicts.extend(arrivals.judge(&PATHS, now).map(|place| (place, number)));
            if !verdicts.is_empty() {
                break;
            }
        }
        let [(0, at)] = verdicts[..] else { panic!("{verdicts:?}") };
        // Half a second and the patience later.
        assert!((1100..1300).contains(&at), "{at}");
    }

    #[test]
    fn silent_sink_has_the_paths_used_in_turn_without_longer_suspensions() {
        let mut arrivals = PathArrivals::new(1024);
        let mut now = SECOND;
        for used in [0, 1, 0, 1, 0, 1] {
            (0..SILENT_SYMBOLS).for_each(|number| arrivals.note_left(used, number, now));
            assert_eq!(arrivals.judge(&PATHS, now + SECOND), None);
            now += SILENT_FIRST_NANOS + PATHS[0].patience() + 1;
            // Suspensions that ended meanwhile leave a path on trial.
            let other = 1 - used;
            arrivals.records[other].until = arrivals.records[other].until.max(now + 1);
            assert_eq!(arrivals.judge(&PATHS, now), Some(used));
            assert!(
                !arrivals.records[other].is_suspended(now) && arrivals.records[used].count == 1
            );
        }
    }
}
