//! How fast an engine is, from host memory to host memory, with as many bundles in flight as it
//! takes.

use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Completed, Engine, Error, Job};

/// What was measured.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Rate {
    /// Bytes of destinations per second.
    pub bytes: f64,
    /// Products of a coefficient and a byte per second.
    pub products: f64,
    /// Seconds per bundle.
    pub bundle_seconds: f64,
}

/// Has `engine` do bundles of `jobs` such jobs for about `time`, at least as many as it takes at
/// once. Inputs are all ones: no engine here is faster for it.
///
/// # Errors
/// The engine failed, or nothing came back for seconds on end.
///
/// # Panics
/// When no bundle takes such a job.
pub fn rate(engine: &mut dyn Engine, job: Job, jobs: usize, time: Duration) -> Result<Rate, Error> {
    let bundle_bytes = (job.rows * job.row_bytes * jobs) as f64;
    let mut ready: Vec<Bundle> = (0..engine.depth().max(1)).map(|_| filled(job, jobs)).collect();
    let products = ready[0].products() as f64;
    // The first round touches and pins memory, and is not counted.
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
                // What is still in flight at the end ran beside less than the others.
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
                is_over = begun.elapsed() >= time;
            }
            None if last.elapsed() > PATIENCE => {
                let reason = "no answer in time".into();
                return Err(Error::Lost { call: "measure", code: 0, reason });
            }
            None => thread::sleep(POLL_INTERVAL),
        }
    }
    let counted = last.saturating_duration_since(begun).as_secs_f64().max(1e-9);
    let bundles = f64::from(done);
    let (bytes, products) = (bundle_bytes * bundles / counted, products * bundles / counted);
    Ok(Rate { bytes, products, bundle_seconds: counted / bundles.max(1.0) })
}

fn filled(job: Job, jobs: usize) -> Bundle {
    let mut bundle = Bundle::new(jobs * job.input_bytes(), jobs * job.output_bytes(), jobs);
    for number in 0..jobs {
        assert!(bundle.push(job, 0).is_ok(), "a bundle takes {job:?}");
        let rows = if job.operation.has_coefficients() { job.rows } else { 0 };
        (0..rows).for_each(|row| bundle.coefficients_mut(number, row).fill(3));
        let rows = if job.operation.has_sources() { job.columns } else { 0 };
        (0..rows).for_each(|row| bundle.source_mut(number, row).fill(5));
    }
    bundle
}

/// Far more than a bundle takes on anything.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_micros(10);

#[cfg(test)]
mod tests {
    use super::*;
    use recoded_code::engine::{CpuEngine, Operation, Partition};

    #[test]
    fn rate_of_this_cpu_is_positive_and_consistent() {
        let mut engine = CpuEngine::new(1, Partition::FullBlock).expect("a thread");
        let job = Job::new(Operation::Multiply, 8, 16, 1000);
        let rate = rate(&mut engine, job, 3, Duration::from_millis(5)).expect("no fault");
        assert!(rate.bytes > 0.0 && rate.bundle_seconds > 0.0);
        assert!((rate.products / rate.bytes - 16.0).abs() < 1e-6);
        assert!(engine.poll().is_none(), "everything came back");
    }
}
