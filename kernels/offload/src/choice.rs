//! Chooses the faster of two devices for a sink's bundles.

use std::time::Duration;

use recoded_code::engine::{Engine, Error, Job, Operation};

use crate::measure;

/// Seconds that an engine takes for the samples, each with as many bundles in flight as it accepts.
///
/// # Errors
/// The engine failed, or does not respond.
fn seconds(engine: &mut dyn Engine) -> Result<f64, Error> {
    SAMPLES.iter().try_fold(0.0, |sum, &(operation, size, jobs)| {
        let job = Job::new(operation, size, size, ROW_BYTES);
        let rate = measure::rate(engine, job, jobs, SAMPLE_TIME)?;
        Ok(sum + rate.bundle_seconds)
    })
}

/// Measures both, and drops the slower one; returns whether the second remains. A failing one is
/// dropped, and the first one if both fail: its user will notice.
pub fn faster(mut first: Box<dyn Engine>, mut second: Box<dyn Engine>) -> (Box<dyn Engine>, bool) {
    let is_second = match (seconds(first.as_mut()), seconds(second.as_mut())) {
        (Ok(of_first), Ok(of_second)) => of_second < of_first,
        (Err(_), Ok(_)) => true,
        (_, Err(_)) => false,
    };
    (if is_second { second } else { first }, is_second)
}

/// Operation, symbols, jobs in a bundle: generations to solve, and products of small ones.
const SAMPLES: [(Operation, usize, usize); 2] =
    [(Operation::Solve, 64, 4), (Operation::Multiply, 16, 16)];

/// Symbols of packets of 1,500 bytes, about.
const ROW_BYTES: usize = 1400;

const SAMPLE_TIME: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::thread;

    use recoded_code::engine::{Bundle, Completed, CpuEngine, Partition, Refused};

    use super::*;

    /// The CPU, after a delay, or not at all.
    struct Card {
        inner: CpuEngine,
        delay: Duration,
        fails: bool,
    }

    impl Engine for Card {
        fn name(&self) -> &str {
            "card"
        }
        fn depth(&self) -> usize {
            1
        }
        fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
            if self.fails {
                let error = Error::Absent { reason: "it is to fail".into() };
                return Err(Refused { bundle: Box::new(bundle), error });
            }
            thread::sleep(self.delay);
            self.inner.submit(bundle)
        }
        fn poll(&mut self) -> Option<Completed> {
            self.inner.poll()
        }
    }

    fn card(millis: u64, fails: bool) -> Box<dyn Engine> {
        let inner = CpuEngine::new(1, Partition::FullBlock).expect("a thread");
        Box::new(Card { inner, delay: Duration::from_millis(millis), fails })
    }

    #[test]
    fn the_faster_one_is_left_wherever_it_stands() {
        assert!(faster(card(300, false), card(0, false)).1);
        assert!(!faster(card(0, false), card(300, false)).1);
    }

    #[test]
    fn one_that_fails_is_left_only_when_both_do() {
        assert!(faster(card(0, true), card(50, false)).1);
        assert!(!faster(card(50, false), card(0, true)).1);
        assert!(!faster(card(0, true), card(0, true)).1);
    }
}
