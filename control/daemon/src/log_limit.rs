//! Bounds the log: packets, clients or cable faults cannot fill a disk.
//!
//! Each place in the program that logs has a separate budget: [`BURST`] lines at once, then one per
//! [`PAUSE`]. The first line after a suppression is followed by the number of lines suppressed.
//! Lines of `debug` and `trace`, which must be enabled explicitly, are all written.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Lines of one place that are written at once: room for an incident of several links and flows.
pub const BURST: u32 = 30;

/// Time per additional line: 8640 a day from one place.
pub const PAUSE: Duration = Duration::from_secs(10);

/// Target of the lines that report suppressed lines.
const TARGET: &str = "recoded::log_limit";

/// The budget of one kind of line.
#[derive(Debug)]
pub struct Limit {
    left: u32,
    /// When the budget was last filled.
    filled: Instant,
    suppressed: u64,
}

impl Limit {
    /// A full budget.
    pub fn new(now: Instant) -> Limit {
        Limit { left: BURST, filled: now, suppressed: 0 }
    }

    /// Takes a line. Returns the number suppressed before it, or `None` if it is suppressed itself.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        let pauses = now.saturating_duration_since(self.filled).as_nanos() / PAUSE.as_nanos();
        let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
        if pauses > 0 {
            self.left = self.left.saturating_add(pauses).min(BURST);
            self.filled += PAUSE.saturating_mul(pauses);
        }
        if self.left == 0 {
            self.suppressed += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Describes suppressed lines.
pub fn suppressed(count: u64) -> String {
    format!("{count} similar lines suppressed before this one")
}

/// Bounds the output of a subscriber: `subscriber.with(LogLimit::default())`.
#[derive(Debug, Default)]
pub struct LogLimit {
    places: Mutex<HashMap<Identifier, CallSiteLimit>>,
}

#[derive(Debug)]
struct CallSiteLimit {
    limit: Limit,
    /// Lines suppressed before the one being written.
    before: u64,
}

impl LogLimit {
    fn with<T>(&self, event: &Event<'_>, use_place: impl FnOnce(&mut CallSiteLimit) -> T) -> T {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || CallSiteLimit { limit: Limit::new(Instant::now()), before: 0 };
        use_place(places.entry(event.metadata().callsite()).or_insert_with(new))
    }
}

impl<S: Subscriber> Layer<S> for LogLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == TARGET {
            return true;
        }
        self.with(event, |place| match place.limit.take(Instant::now()) {
            Some(before) => {
                place.before = before;
                true
            }
            None => false,
        })
    }

    /// The line is written.
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == TARGET {
            return;
        }
        let before = self.with(event, |place| std::mem::take(&mut place.before));
        if before > 0 {
            tracing::warn!(target: TARGET, "{}", suppressed(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::Arc;
    use tracing_subscriber::prelude::*;

    #[test]
    fn budget_lets_a_burst_through_then_one_in_each_pause_with_the_number_of_others() {
        let begin = Instant::now();
        let mut limit = Limit::new(begin);
        let first = (0..1000).filter_map(|_| limit.take(begin)).count();
        assert_eq!(first, BURST as usize);
        assert_eq!(limit.take(begin + PAUSE), Some(1000 - u64::from(BURST)));
        assert_eq!(limit.take(begin + PAUSE), None);
        assert_eq!(limit.take(begin + 2 * PAUSE), Some(1));
        let later = begin + 1000 * PAUSE;
        let again = (0..1000).filter_map(|_| limit.take(later)).count();
        assert_eq!(again, BURST as usize, "it fills, and not beyond");
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_place_that_logs_is_bounded_by_itself() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::TRACE)
            .with_writer(move || writer.clone())
            .finish()
            .with(LogLimit::default());
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..500 {
                tracing::warn!("refused a connection: {number}");
            }
            tracing::info!("another place");
            (0..100).for_each(|number| tracing::debug!("asked for: {number}"));
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!(count("refused a connection"), BURST as usize, "{text}");
        assert_eq!((count("another place"), count("asked for")), (1, 100));
    }
}
