//! What everything is measured with: this CPU, the card if there is one, random jobs, a clock.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use recoded_code::engine::{
    Batch, Completed, Cpu, Engine, Error, Job, Operation, Partition, Segment,
};
use recoded_cuda::{CudaEngine, Options, TECHNIQUES, Technique, Unusable, probe};

use super::rows::Rows;
use super::scale::Scale;
use crate::error::BenchError;

/// CPU and card, and what they have done so far.
pub struct Bed {
    /// How much is measured.
    pub scale: Scale,
    /// All cores, whole symbols each.
    pub cpu: Cpu,
    /// The card, while it works.
    pub card: Option<CudaEngine>,
    /// How it is opened again.
    pub options: Option<Options>,
    /// What was measured.
    pub rows: Rows,
    /// What went wrong on the way and left numbers out.
    pub troubles: Vec<String>,
    /// How far everything is.
    pub bar: ProgressBar,
    random: ChaCha8Rng,
    deadline: Instant,
}

/// Opens the card, or says why there is none. Asked in a child process first.
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
    /// Everything that a run needs; measurements are cut short after `time`.
    ///
    /// # Errors
    /// Linux grants no threads.
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

    /// The rounds to take: all while there is time, then one.
    pub fn rounds(&self) -> usize {
        if Instant::now() < self.deadline { self.scale.rounds } else { 1 }
    }

    /// Notes what the card said; a card that is lost is opened once more.
    pub fn note(&mut self, what: &str, error: &Error) {
        self.troubles.push(format!("{what}: {error}"));
        if error.is_fatal() {
            self.card = None;
            self.open();
        }
    }

    /// Segments of a shape that one batch takes, for results of about `bytes` bytes.
    pub fn segments(n: usize, symbol_bytes: usize, bytes: usize) -> usize {
        // Coefficients count too: there are more of them than results where symbols are short.
        (bytes / (n * symbol_bytes.max(n))).clamp(1, SEGMENTS_MAX)
    }

    /// A batch of `count` random jobs.
    ///
    /// # Errors
    /// No batch takes such a job.
    pub fn batch(&mut self, job: Job, count: usize) -> Result<Batch, BenchError> {
        let (input, output) = (count * job.input_bytes(), count * job.output_bytes());
        let mut batch = Batch::new(input, output, count);
        for number in 0..count {
            batch.push(job, number as u64).map_err(BenchError::Job)?;
            self.fill(&mut batch, number);
        }
        // Pages that exist: neither side is to pay for them.
        batch.output_mut().fill(1);
        Ok(batch)
    }

    /// A random batch of one `Solve`, whose matrix has an inverse.
    ///
    /// # Errors
    /// No batch takes such a job.
    pub fn generation(&mut self, n: usize, symbol_bytes: usize) -> Result<Batch, BenchError> {
        loop {
            let mut batch = self.batch(Job::new(Operation::Solve, n, n, symbol_bytes), 1)?;
            self.cpu.run(&mut batch);
            if batch.outcome(0).is_ok() {
                return Ok(batch);
            }
        }
    }

    /// A random segment.
    ///
    /// # Errors
    /// No batch takes such rows.
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

    fn fill(&mut self, batch: &mut Batch, number: usize) {
        let job = batch.jobs()[number].job;
        if job.operation.has_coefficients() {
            (0..job.rows)
                .for_each(|row| self.random.fill_bytes(batch.coefficients_mut(number, row)));
        }
        if job.operation.has_sources() && batch.segment().is_none() {
            (0..job.columns).for_each(|row| self.random.fill_bytes(batch.source_mut(number, row)));
        }
    }

    /// Techniques that this card runs: all of them, or those that could be the best.
    pub fn techniques(&self, all: bool) -> Vec<&'static Technique> {
        let Some(card) = &self.card else { return Vec::new() };
        let capability = card.info().capability;
        let runs = |technique: &&Technique| {
            let (from, to) = technique.capability;
            (from..=to).contains(&capability) && (all || BEST.contains(&technique.name))
        };
        TECHNIQUES.iter().filter(runs).collect()
    }

    /// Seconds that `work` takes, repeated until a sample is full.
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

    /// Bytes of results a second through the card and back, with as many batches in flight as it
    /// takes. Each is compared with `expected`, in its order, when it comes back first.
    ///
    /// # Errors
    /// The bytes are wrong.
    pub fn through(
        &mut self,
        what: &str,
        batches: &mut Vec<Batch>,
        expected: &[Batch],
    ) -> Result<Option<f64>, BenchError> {
        let Some(card) = &mut self.card else { return Ok(None) };
        if batches.len() != expected.len() || batches.is_empty() {
            return Ok(None); // a card that was lost took them along
        }
        card.set_technique(None);
        batches.iter_mut().enumerate().for_each(|(tag, batch)| batch.tag = tag as u64);
        let checked = pass(card, batches, Duration::ZERO);
        if checked.is_ok() {
            compare(what, "auto", batches, expected)?;
        }
        match checked.and_then(|_| pass(card, batches, THROUGH_SAMPLES * self.scale.sample)) {
            Ok(rate) => Ok(Some(rate)),
            Err(error) => {
                self.note(what, &error);
                Ok(None)
            }
        }
    }
}

/// Has the card do all batches, again and again until `time` is over; bytes of results a second.
fn pass(card: &mut CudaEngine, batches: &mut Vec<Batch>, time: Duration) -> Result<f64, Error> {
    let bytes: usize = batches.iter().map(results).sum();
    let (begun, count) = (Instant::now(), batches.len());
    let mut passes = 0;
    loop {
        let mut waiting = std::mem::take(batches);
        waiting.reverse();
        while batches.len() < count {
            while let Some(batch) = waiting.pop() {
                match card.submit(batch) {
                    Ok(()) => {}
                    Err(refused) if matches!(refused.error, Error::Busy { .. }) => {
                        waiting.push(*refused.batch);
                        break;
                    }
                    Err(refused) => return Err(refused.error),
                }
            }
            match card.poll() {
                Some(Completed { batch, result }) => {
                    result?;
                    batches.push(batch);
                }
                None if begun.elapsed() > PROBE_TIMEOUT + time => {
                    let reason = "no answer in time".into();
                    return Err(Error::Lost { call: "wait", code: 0, reason });
                }
                None => thread::yield_now(),
            }
        }
        batches.sort_by_key(|batch| batch.tag);
        passes += 1;
        if begun.elapsed() >= time {
            return Ok((bytes * passes) as f64 / begun.elapsed().as_secs_f64());
        }
    }
}

/// Whether the card made what this CPU made, every byte of it.
///
/// # Errors
/// It did not.
pub fn compare(
    what: &str,
    technique: &str,
    batches: &[Batch],
    expected: &[Batch],
) -> Result<(), BenchError> {
    let is_same = batches.iter().zip(expected).all(|(batch, expected)| {
        (0..batch.jobs().len()).all(|job| {
            let rows = 0..batch.jobs()[job].job.rows;
            let same_row = |row| batch.destination(job, row) == expected.destination(job, row);
            batch.outcome(job) == expected.outcome(job)
                && (batch.outcome(job).is_err() || rows.clone().all(same_row))
        })
    });
    let wrong = || BenchError::WrongCard { what: what.into(), technique: technique.into() };
    (is_same && batches.len() == expected.len()).then_some(()).ok_or_else(wrong)
}

/// Bytes that a batch makes, without the gaps.
pub fn results(batch: &Batch) -> usize {
    batch.jobs().iter().map(|placed| placed.job.rows * placed.job.row_bytes).sum()
}

/// Those that a card should be used with; the others are for comparison.
const BEST: [&str; 4] = ["loop", "permute", "four-russians", "bmma"];

/// Jobs of a batch at most: what a start costs is spread over enough of them.
const SEGMENTS_MAX: usize = 4096;

/// Pipelines take a while to fill.
const THROUGH_SAMPLES: u32 = 4;

/// A driver that has not answered by then does not.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
