//! Detects links that lose packets of segmented bursts (UDP_SEGMENT) which arrive when sent singly:
//! a card, driver or box on the path segments wrongly.
//!
//! ```text
//!  watches --more than 2 % are lost--> compares --no difference--> rests 5 s, 10 s, ... an hour
//!                                        `--clear difference--> no bursts on this link any more
//! ```
//!
//! While it compares, the socket alternates between both ways of sending, by the clock
//! ([`is_single`]), and neighbours' reports count arrivals of each. A window of enough packets of
//! both gives one difference; [`WINDOWS`] of them decide. They differ by chance, and more so under
//! bursty loss; so the mean difference is compared with their spread, not with the errors of
//! independent losses. A comparison ends early when the sum of differences is not above zero: a
//! link with ordinary loss is left alone within seconds.
//!
//! Reports are not trusted. A lying neighbour makes its link send without bursts, which costs CPU
//! time and nothing else. Nothing reverts this: measuring the offload again would lose packets
//! again. Reopened sockets start over.

use recoded_pipeline::params::Nanos;
use recoded_pipeline::segmentation::{Comparison, Totals, is_single};

/// Loss of a link above which it may be due to bursts. Broken offloads lose far more; below it a
/// comparison would take long to detect anything.
const LOSS_MIN: f64 = 0.02;

/// Packets after which a watched link is judged: 1 % is then known to a third of a point.
const WATCHED_PACKETS: u32 = 1000;

/// Packets of each half in a window, at first: 11 % are then known to 3 points. Each comparison
/// without a result doubles them, up to [`DOUBLINGS`] times, to detect smaller differences under
/// heavy loss.
const WINDOW_PACKETS: u32 = 128;
const DOUBLINGS: u32 = 3;

/// The least length of a window: three pairs of halves.
const WINDOW_NANOS: Nanos = 200_000_000;

/// Windows of a comparison, some three seconds of them at least.
const WINDOWS: u32 = 16;

/// Windows after which a comparison ends if their sum is not above zero: fewer would end some that
/// began badly, more cost a link with ordinary loss more time without bursts.
const VAIN_WINDOWS: u32 = 3;

/// Least extra loss by bursts that justifies sending without them.
const DIFFERENCE_MIN: f64 = 0.05;

/// Standard errors between the mean difference and zero. By chance this occurs once in 100,000
/// comparisons (Student's t, 15 degrees of freedom).
const ERRORS_MIN: f64 = 6.0;

/// Reports at the beginning are about packets sent earlier.
const SETTLE_NANOS: Nanos = 1_000_000_000;

/// A comparison that takes longer has too few packets.
const COMPARE_NANOS: Nanos = 60_000_000_000;

/// Pause after a comparison without a result: doubled each time, up to the longest.
const REST_NANOS: Nanos = 5_000_000_000;
const REST_MAX_NANOS: Nanos = 3_600_000_000_000;

/// State of a link.
#[derive(Clone, Default, Debug)]
pub(crate) struct Segmentation {
    reported: Comparison,
    /// No evaluation before this time.
    rests_until: Nanos,
    /// Comparisons without a result.
    vain: u32,
    present: Option<Windows>,
}

/// A comparison in progress.
#[derive(Copy, Clone, Debug)]
struct Windows {
    ends_at: Nanos,
    since: Nanos,
    count: u32,
    sum: f64,
    squares: f64,
    least: f64,
}

impl Segmentation {
    /// Records the report of a neighbour on the link.
    #[inline]
    pub(crate) fn note(&mut self, reported: &Comparison) {
        self.reported.add(reported);
    }

    /// Whether the socket has to alternate.
    #[inline]
    pub(crate) fn is_comparing(&self) -> bool {
        self.present.is_some()
    }

    /// Whether packets leave singly for a comparison.
    #[inline]
    pub(crate) fn is_single(&self, now: Nanos) -> bool {
        self.is_comparing() && is_single(now)
    }

    /// Evaluates the reports, several times a second. Returns true once, when bursts must end.
    pub(crate) fn look(&mut self, now: Nanos) -> bool {
        if now < self.rests_until {
            self.reported = Comparison::default();
            return false;
        }
        match self.present {
            Some(windows) => self.compare(windows, now),
            None => {
                self.watch(now);
                false
            }
        }
    }

    fn watch(&mut self, now: Nanos) {
        let all = self.reported.all();
        if all.packets() < WATCHED_PACKETS {
            return;
        }
        self.reported = Comparison::default();
        if all.loss() > LOSS_MIN {
            self.present = Some(Windows::new(now));
        }
    }

    fn compare(&mut self, mut windows: Windows, now: Nanos) -> bool {
        let least = WINDOW_PACKETS << self.vain.min(DOUBLINGS);
        if now < windows.since {
            self.reported = Comparison::default();
            return false;
        }
        let Comparison { segmented, single } = self.reported;
        let has_enough = segmented.packets().min(single.packets()) >= least;
        if has_enough && now - windows.since >= WINDOW_NANOS {
            windows.add(extra_loss(&segmented, &single), now);
            self.reported = Comparison::default();
        }
        self.present = Some(windows);
        let is_vain = windows.count >= VAIN_WINDOWS && windows.sum <= 0.0;
        if windows.count < WINDOWS && !is_vain && now < windows.ends_at {
            return false;
        }
        self.present = None;
        let is_clear = windows.is_clear();
        if !is_clear {
            let rest = REST_NANOS.saturating_mul(1 << self.vain.min(20)).min(REST_MAX_NANOS);
            (self.rests_until, self.vain) = (now + rest, self.vain.saturating_add(1));
        }
        is_clear
    }
}

impl Windows {
    fn new(now: Nanos) -> Windows {
        let ends_at = now + COMPARE_NANOS;
        let since = now + SETTLE_NANOS;
        Windows { ends_at, since, count: 0, sum: 0.0, squares: 0.0, least: 1.0 }
    }

    fn add(&mut self, difference: f64, now: Nanos) {
        self.since = now;
        self.count += 1;
        self.sum += difference;
        self.squares += difference * difference;
        self.least = self.least.min(difference);
    }

    fn is_clear(&self) -> bool {
        if self.count < WINDOWS {
            return false;
        }
        let count = f64::from(self.count);
        let mean = self.sum / count;
        let variance = ((self.squares / count - mean * mean) * count / (count - 1.0)).max(0.0);
        // A rate that follows the losses makes differences vary widely, and none of them negative:
        // by chance they all have this sign once in 65,000 comparisons.
        let is_significant = mean > ERRORS_MIN * (variance / count).sqrt();
        mean > DIFFERENCE_MIN && (is_significant || self.least > 0.0)
    }
}

/// The share of packets lost in bursts among those that would have arrived singly; negative if
/// fewer are lost in bursts.
fn extra_loss(segmented: &Totals, single: &Totals) -> f64 {
    let arrived = 1.0 - single.loss();
    // If nothing arrives either way, nothing is known.
    if arrived < 0.01 { 0.0 } else { (segmented.loss() - single.loss()) / arrived }
}

#[cfg(test)]
mod tests;
