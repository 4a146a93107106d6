//! The test bed: this CPU, the card if there is one, random jobs, a clock.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{
    Bundle, Completed, Cpu, Engine, Error, Job, Operation, Partition, Segment,
};
use recoded_cuda::{CudaEngine, Options, TECHNIQUES, Technique, Unusable, probe};

use super::rows::Rows;
use super::scale::Scale;
use crate::error::BenchError;

/// CPU and card, and their results so far.
pub struct Bed {
    /// How much is measured.
    pub scale: Scale,
    /// All cores, whole symbols each.
    pub cpu: Cpu,
    /// The card, while it works.
    pub card: Option<CudaEngine>,
    /// Options for reopening it.
    pub options: Option<Options>,
    /// Measurements.
    pub rows: Rows,
    /// Errors that left numbers out.
    pub troubles: Vec<String>,
    /// How far everything is.
    pub bar: ProgressBar,
    random: ChaCha8Rng,
    deadline: Instant,
}

/// Opens the card, or explains why there is none. A child process probes it first.
pub fn find_card() -> Result<Options, String> {
    let options = Options::find().map_err(|error| error.to_string())?;
    match probe(&options, PROBE_TIMEOUT) {
        Ok(_) => Ok(options),
        Err(error @ Unusable::NoLibrary) => {
            Err(format!("{error}: no driver for NVIDIA cards here"))
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Bed {
    /// Creates the test bed; measurements are cut short after `time`.
    ///
    /// # Errors
    /// If Linux grants no threads.
    pub fn new(
        scale: Scale,
        options: Option<Options>,
        seed: u64,
        time: Duration,
        bar: ProgressBar,
    ) -> Result<Self, BenchError> {
        let mut bed = Self {
            scale,
            cpu: Cpu::new(0, Partition::FullBlock).map_err(BenchError::Engine)?,
            card: None,
            options,
            rows: Rows::default(),
            troubles: Vec::new(),
            bar,
            random: ChaCha8Rng::seed_from_u64(seed),
            deadline: Instant::now() + time,
        };
        bed.open();
        Ok(bed)
    }

    /// Opens the card, unless it is open or there is none.
    pub fn open(&mut self) {
        if let (None, Some(options)) = (&self.card, &self.options) {
            match CudaEngine::open(options) {
                Ok(engine) => self.card = Some(engine),
                Err(error) => {
                    self.troubles.push(format!("the card does not open: {error}"));
                    self.options = None;
                }
            }
        }
    }

    /// Number of rounds: all while there is time, then one.
    pub fn rounds(&self) -> usize {
        if Instant::now() < self.deadline { self.scale.rounds } else { 1 }
    }

    /// Records an error of the card; a lost card is reopened once.
    pub fn note(&mut self, what: &str, error: &Error) {
        self.troubles.push(format!("{what}: {error}"));
        if error.is_fatal() {
            self.card = None;
            self.open();
        }
    }

    /// Number of segments of a shape per bundle, for results of about `bytes` bytes.
    pub fn segments(n: usize, symbol_bytes: usize, bytes: usize) -> usize {
        // Coefficients count too: they outnumber the results if symbols are short.
        (bytes / (n * symbol_bytes.max(n))).clamp(1, SEGMENTS_MAX)
    }

    /// A bundle of `count` random jobs.
    ///
    /// # Errors
    /// If no bundle takes such a job.
    pub fn bundle(&mut self, job: Job, count: usize) -> Result<Bundle, BenchError> {
        let (input, output) = (count * job.input_bytes(), count * job.output_bytes());
        let mut bundle = Bundle::new(input, output, count);
        for number in 0..count {
            bundle.push(job, number as u64).map_err(BenchError::Job)?;
            self.fill(&mut bundle, number);
        }
        // Pages that exist: neither side is to pay for them.
        bundle.output_mut().fill(1);
        Ok(bundle)
    }

    /// A random bundle of one `Solve` with an invertible matrix.
    ///
    /// # Errors
    /// If no bundle takes such a job.
    pub fn generation(&mut self, n: usize, symbol_bytes: usize) -> Result<Bundle, BenchError> {
        loop {
            let mut bundle = self.bundle(Job::new(Operation::Solve, n, n, symbol_bytes), 1)?;
            self.cpu.run(&mut bundle);
            if bundle.outcome(0).is_ok() {
                return Ok(bundle);
            }
        }
    }

    /// A random segment.
    ///
    /// # Errors
    /// If no bundle takes such rows.
    pub fn segment(&mut self, n: usize, symbol_bytes: usize) -> Result<Arc<Segment>, BenchError> {
        let job = Job::new(Operation::Multiply, 1, n, symbol_bytes);
        let invalid = BenchError::Job(recoded_code::engine::Rejected::Invalid { job });
        let mut segment = Segment::new(n, symbol_bytes).ok_or(invalid)?;
        (0..n).for_each(|row| self.random.fill_bytes(segment.row_mut(row)));
        Ok(Arc::new(segment))
    }

    /// Random bytes.
    pub fn bytes(&mut self, to: &mut [u8]) {
        self.random.fill_bytes(to);
    }

    /// A random number.
    pub fn number(&mut self) -> u32 {
        self.random.next_u32()
    }

    fn fill(&mut self, bundle: &mut Bundle, number: usize) {
        let job = bundle.jobs()[number].job;
        if job.operation.has_coefficients() {
            (0..job.rows)
                .for_each(|row| self.random.fill_bytes(bundle.coefficients_mut(number, row)));
        }
        if job.operation.has_sources() && bundle.segment().is_none() {
            (0..job.columns).for_each(|row| self.random.fill_bytes(bundle.source_mut(number, row)));
        }
    }

    /// Techniques to run on this card: all of them, or those that could be the best.
    pub fn techniques(&self, all: bool) -> Vec<&'static Technique> {
        let Some(card) = &self.card else { return Vec::new() };
        let capability = card.info().capability;
        let runs = |technique: &&Technique| {
            let (from, to) = technique.capability;
            (from..=to).contains(&capability) && (all || BEST.contains(&technique.name))
        };
        TECHNIQUES.iter().filter(runs).collect()
    }

    /// Seconds per run of `work`, which is repeated until a sample is full.
    pub fn seconds(&self, mut work: impl FnMut()) -> f64 {
        let (begun, mut count) = (Instant::now(), 0);
        loop {
            work();
            count += 1;
            if begun.elapsed() >= self.scale.sample {
                return begun.elapsed().as_secs_f64() / f64::from(count);
            }
        }
    }

    /// Rate of results in bytes per second through the card and back, with as many bundles in
    /// flight as needed. Each is compared with `expected`, in order, when it returns for the first
    /// time.
    ///
    /// # Errors
    /// If the bytes are wrong.
    pub fn through(
        &mut self,
        what: &str,
        bundles: &mut Vec<Bundle>,
        expected: &[Bundle],
    ) -> Result<Option<f64>, BenchError> {
        let Some(card) = &mut self.card else { return Ok(None) };
        if bundles.len() != expected.len() || bundles.is_empty() {
            return Ok(None); // a card that was lost took them along
        }
        card.set_technique(None);
        bundles.iter_mut().enumerate().for_each(|(tag, bundle)| bundle.tag = tag as u64);
        let checked = pass(card, bundles, Duration::ZERO);
        if checked.is_ok() {
            compare(what, "auto", bundles, expected)?;
        }
        match checked.and_then(|_| pass(card, bundles, THROUGH_SAMPLES * self.scale.sample)) {
            Ok(rate) => Ok(Some(rate)),
            Err(error) => {
                self.note(what, &error);
                Ok(None)
            }
        }
    }
}

/// Has the card process all bundles, each again as soon as it returns, until `time` is over;
/// returns the rate of results in bytes per second.
fn pass(card: &mut CudaEngine, bundles: &mut Vec<Bundle>, time: Duration) -> Result<f64, Error> {
    let (begun, count) = (Instant::now(), bundles.len());
    let mut waiting = std::mem::take(bundles);
    waiting.reverse();
    let mut bytes = 0;
    while bundles.len() < count {
        while let Some(bundle) = waiting.pop() {
            match card.submit(bundle) {
                Ok(()) => {}
                Err(refused) if matches!(refused.error, Error::Busy { .. }) => {
                    waiting.push(*refused.bundle);
                    break;
                }
                Err(refused) => return Err(refused.error),
            }
        }
        match card.poll() {
            Some(Completed { bundle, result }) => {
                result?;
                bytes += results(&bundle);
                let is_over = begun.elapsed() >= time;
                if is_over { bundles.push(bundle) } else { waiting.insert(0, bundle) }
            }
            None if begun.elapsed() > PROBE_TIMEOUT + time => {
                let reason = "no answer in time".into();
                return Err(Error::Lost { call: "wait", code: 0, reason });
            }
            None => thread::yield_now(),
        }
    }
    bundles.sort_by_key(|bundle| bundle.tag);
    Ok(bytes as f64 / begun.elapsed().as_secs_f64())
}

/// Checks that the card's result equals this CPU's, every byte of it.
///
/// # Errors
/// If it differs.
pub fn compare(
    what: &str,
    technique: &str,
    bundles: &[Bundle],
    expected: &[Bundle],
) -> Result<(), BenchError> {
    let is_same = bundles.iter().zip(expected).all(|(bundle, expected)| {
        (0..bundle.jobs().len()).all(|job| {
            let rows = 0..bundle.jobs()[job].job.rows;
            let same_row = |row| bundle.destination(job, row) == expected.destination(job, row);
            bundle.outcome(job) == expected.outcome(job)
                && (bundle.outcome(job).is_err() || rows.clone().all(same_row))
        })
    });
    let wrong = || BenchError::WrongCard { what: what.into(), technique: technique.into() };
    (is_same && bundles.len() == expected.len()).then_some(()).ok_or_else(wrong)
}

/// Result bytes of a bundle, without the gaps.
pub fn results(bundle: &Bundle) -> usize {
    bundle.jobs().iter().map(|placed| placed.job.rows * placed.job.row_bytes).sum()
}

/// Those that a card should be used with; the others are for comparison.
const BEST: [&str; 5] = ["loop", "permute", "four-russians", "bmma", "wgmma"];

/// Upper limit of the jobs of a bundle: enough to amortise the cost of a start.
const SEGMENTS_MAX: usize = 4096;

/// Pipelines take a while to fill.
const THROUGH_SAMPLES: u32 = 4;

/// A driver that has not answered by then does not.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
