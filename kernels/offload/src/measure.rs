//! Speed of an engine, from host memory to host memory, with as many bundles in flight as it
//! accepts.

use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Completed, Engine, Error, Job, Rejected};

/// The measured rates.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Rate {
    /// Bytes of destinations per second.
    pub bytes: f64,
    /// Products of a coefficient and a byte per second.
    pub products: f64,
    /// Seconds per bundle.
    pub bundle_seconds: f64,
}

/// Makes `engine` do bundles of `jobs` such jobs for about `time`, at least as many as it accepts
/// at once. The bundles are reused, as a queue reuses its slots, and each one's first run is not
/// counted: devices then pin its memory, which takes longer than the work.
///
/// # Errors
/// The engine failed, or returned nothing for seconds on end.
///
/// # Panics
/// When no bundle supports such a job.
pub fn rate(engine: &mut dyn Engine, job: Job, jobs: usize, time: Duration) -> Result<Rate, Error> {
    let bundle_bytes = (job.rows * job.row_bytes * jobs) as f64;
    let bundles = (0..engine.depth().max(1)).map(|_| filled(job, jobs));
    let mut ready: Vec<Bundle> =
        bundles.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}"));
    let (products, depth) = (ready[0].products() as f64, ready.len() as u32);
    let mut to_skip = ready.len();
    let (mut begun, mut last) = (Instant::now(), Instant::now());
    let (mut done, mut in_flight) = (0_u32, 0);
    let mut is_over = false;
    while !is_over || in_flight > 0 {
        while !is_over && let Some(bundle) = ready.pop() {
            engine.submit(bundle).map_err(|refused| refused.error)?;
            in_flight += 1;
        }
        match engine.poll() {
            Some(Completed { bundle, result }) => {
                result?;
                in_flight -= 1;
                ready.push(bundle);
                // Bundles still in flight at the end had less company than the others.
                if is_over {
                    continue;
                }
                last = Instant::now();
                if to_skip > 0 {
                    to_skip -= 1;
                    begun = last;
                    continue;
                }
                done += 1;
                is_over = done >= depth && begun.elapsed() >= time;
            }
            None if last.elapsed() > PATIENCE => {
                return Err(no_answer());
            }
            // A sleep takes 60 us, longer than many bundles.
            None => thread::yield_now(),
        }
    }
    let counted = last.saturating_duration_since(begun).as_secs_f64().max(1e-9);
    let bundles = f64::from(done);
    let (bytes, products) = (bundle_bytes * bundles / counted, products * bundles / counted);
    Ok(Rate { bytes, products, bundle_seconds: counted / bundles.max(1.0) })
}

/// Seconds that a bundle of one such job takes, from offering it to its results, on an otherwise
/// idle device that knows the memory: the best of a few.
///
/// # Errors
/// The engine failed, or returned nothing for seconds on end.
pub(crate) fn latency(engine: &mut dyn Engine, job: Job) -> Result<f64, Error> {
    let mut best = f64::MAX;
    let memory = |_| Error::Memory { bytes: job.input_bytes() };
    let mut bundle = filled(job, 1).map_err(memory)?;
    for repeat in 0..=LATENCIES {
        let begun = Instant::now();
        engine.submit(bundle).map_err(|refused| refused.error)?;
        let Completed { bundle: done, result } = loop {
            match engine.poll() {
                Some(completed) => break completed,
                None if begun.elapsed() > PATIENCE => return Err(no_answer()),
                None => thread::yield_now(),
            }
        };
        result?;
        bundle = done;
        if repeat > 0 {
            best = best.min(begun.elapsed().as_secs_f64());
        }
    }
    Ok(best.max(1e-9))
}

/// A bundle of `jobs` such jobs with written inputs. Products are by 3; matrices to invert are
/// dense, and hardly ever singular.
pub(crate) fn filled(job: Job, jobs: usize) -> Result<Bundle, Rejected> {
    let mut bundle = Bundle::new(jobs * job.input_bytes(), jobs * job.output_bytes(), jobs);
    let mut word = 1_u32;
    for number in 0..jobs {
        bundle.push(job, 0)?;
        let rows = if job.operation.has_coefficients() { job.rows } else { 0 };
        for row in 0..rows {
            let coefficients = bundle.coefficients_mut(number, row);
            coefficients.fill(3);
            if job.operation.inverts() {
                // Xorshift.
                for coefficient in coefficients {
                    word ^= word << 13;
                    word ^= word >> 17;
                    word ^= word << 5;
                    *coefficient = word as u8;
                }
            }
        }
        let rows = if job.operation.has_sources() { job.columns } else { 0 };
        (0..rows).for_each(|row| bundle.source_mut(number, row).fill(5));
    }
    Ok(bundle)
}

fn no_answer() -> Error {
    Error::Lost { call: "measure", code: 0, reason: "no answer in time".into() }
}

/// Far more than a bundle takes anywhere.
const PATIENCE: Duration = Duration::from_secs(10);

/// The best of these is the latency.
const LATENCIES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_code::engine::{CpuEngine, Operation, Partition, Refused};

    #[test]
    fn rate_of_this_cpu_is_positive_and_consistent() {
        let mut engine = CpuEngine::new(1, Partition::FullBlock).expect("a thread");
        let job = Job::new(Operation::Multiply, 8, 16, 1000);
        let rate = rate(&mut engine, job, 3, Duration::from_millis(5)).expect("no fault");
        assert!(rate.bytes > 0.0 && rate.bundle_seconds > 0.0);
        assert!((rate.products / rate.bytes - 16.0).abs() < 1e-6);
        assert!(engine.poll().is_none(), "everything came back");
    }

    /// Simulates pinning by a card: new memory costs far more than the work.
    struct Cold {
        inner: CpuEngine,
        known: Vec<usize>,
        in_flight: usize,
        in_flight_max: usize,
    }

    impl Engine for Cold {
        fn name(&self) -> &str {
            "cold"
        }
        fn depth(&self) -> usize {
            2
        }
        fn submit(&mut self, bundle: Bundle) -> Result<(), Refused> {
            let memory = bundle.input().as_ptr() as usize;
            if !self.known.contains(&memory) {
                self.known.push(memory);
                thread::sleep(PINNING);
            }
            self.inner.submit(bundle)?;
            self.in_flight += 1;
            self.in_flight_max = self.in_flight_max.max(self.in_flight);
            Ok(())
        }
        fn poll(&mut self) -> Option<Completed> {
            let completed = self.inner.poll()?;
            self.in_flight -= 1;
            Some(completed)
        }
    }

    const PINNING: Duration = Duration::from_millis(300);

    /// Rates were once those of fresh bundles, one at a time: a card seemed ten times slower.
    #[test]
    fn rate_and_latency_are_those_of_warm_bundles() {
        let inner = CpuEngine::new(1, Partition::FullBlock).expect("a thread");
        let mut engine = Cold { inner, known: Vec::new(), in_flight: 0, in_flight_max: 0 };
        let job = Job::new(Operation::Multiply, 2, 2, 128);
        let rate = rate(&mut engine, job, 1, Duration::from_millis(1)).expect("no fault");
        assert!(rate.bundle_seconds < PINNING.as_secs_f64() / 2.0, "{rate:?}");
        assert_eq!(
            (engine.known.len(), engine.in_flight_max),
            (2, 2),
            "all at once, again and again"
        );
        let latency = latency(&mut engine, job).expect("no fault");
        assert!(latency < PINNING.as_secs_f64() / 2.0, "{latency}");
    }
}
