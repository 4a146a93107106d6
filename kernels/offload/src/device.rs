//! A device for callers that wait for their results, beside the queue for those that must not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Batch, Completed, Cpu, Error, Retained, Segment};

use crate::config::{Config, Mode};
use crate::model::{Class, Model};
use crate::offload::OpenEngine;
use crate::runner::{Event, Measured, Runner};

/// Who did a batch.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum By {
    /// The device.
    Device,
    /// The CPU.
    Cpu,
}

/// One device, shared by any number of callers, one at a time. It is opened when it is first wanted
/// and again after it failed, with growing pauses in which the CPU does everything.
#[derive(Clone)]
pub struct Device(Arc<Mutex<State>>);

struct State {
    config: Arc<Config>,
    open: OpenEngine,
    runner: Option<Runner>,
    depth: usize,
    model: Model,
    /// Matrices that the device was told of, and is told of again when it is opened again.
    expected: Vec<(Box<[u8]>, usize)>,
    /// Segments that it keeps, or would if it were there.
    kept: Vec<Weak<Segment>>,
    generation: u64,
    retry: Instant,
    pause: Duration,
    hangs: u32,
    why_down: Option<Error>,
    random: u64,
}

/// A batch that the device has.
struct Flight {
    generation: u64,
    /// Its place among those of the caller.
    place: usize,
    retained: Retained,
    sent: Instant,
    was_idle: bool,
    expires: Instant,
}

impl Device {
    /// A device that `open` opens. Of `config`, slots and ages of batches do not matter here.
    #[must_use]
    pub fn new(config: Config, open: OpenEngine) -> Self {
        let model = Model::new(config.rates);
        Self(Arc::new(Mutex::new(State {
            open,
            runner: None,
            depth: 1,
            model,
            expected: Vec::new(),
            kept: Vec::new(),
            generation: 0,
            retry: Instant::now(),
            pause: config.retry_min,
            hangs: 0,
            why_down: None,
            random: config.seed,
            config: Arc::new(config),
        })))
    }

    /// Does all batches, on the device where that works and is faster, and returns them in order. As
    /// many are in flight as the device takes, so that copies of one go beside the work on another.
    #[must_use]
    pub fn run(&self, batches: Vec<Batch>, cpu: &Cpu) -> Vec<(Batch, By)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).run(batches, cpu)
    }

    /// Says that many products with this row-major matrix are going to come.
    pub fn expect(&self, matrix: &[u8], columns: usize) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = state.expected.iter().any(|(known, c)| **known == *matrix && *c == columns);
        if !is_known && state.expected.len() < EXPECTED_MAX {
            state.expected.push((matrix.into(), columns));
            if let Some(runner) = &state.runner {
                runner.expect(matrix, columns);
            }
        }
    }

    /// Has the device keep `segment` as long as anybody else holds it, so that batches over it bring no
    /// rows along; where it cannot, they do. A device that is opened again is told again.
    pub fn keep(&self, segment: &Arc<Segment>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.kept.retain(|kept| kept.strong_count() > 0);
        if !state.kept.iter().any(|kept| kept.as_ptr() == Arc::as_ptr(segment)) {
            state.kept.push(Arc::downgrade(segment));
            if let Some(runner) = &state.runner {
                runner.keep(Arc::clone(segment));
            }
        }
    }

    /// Why the device was last found to be of no use; `None` when it never was.
    #[must_use]
    pub fn why_down(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).why_down.clone()
    }
}

impl State {
    fn run(&mut self, batches: Vec<Batch>, cpu: &Cpu) -> Vec<(Batch, By)> {
        let mut done: Vec<Option<(Batch, By)>> = batches.iter().map(|_| None).collect();
        let mut waiting: VecDeque<(usize, Batch)> = batches.into_iter().enumerate().collect();
        if self.prefers_device(&waiting, cpu) && self.is_open() {
            self.run_on_device(&mut waiting, &mut done);
        }
        for (place, mut batch) in waiting {
            let (begun, products) = (Instant::now(), batch.products());
            cpu.run(&mut batch);
            let class = Class::of_batch(&batch);
            self.model.cpu_took(class, products, begun.elapsed(), cpu.threads());
            done[place] = Some((batch, By::Cpu));
        }
        done.into_iter().flatten().collect()
    }

    fn prefers_device(&self, batches: &VecDeque<(usize, Batch)>, cpu: &Cpu) -> bool {
        let Some((_, first)) = batches.front() else { return false };
        let class = Class::of_batch(first);
        let bytes = batches.iter().map(|(_, batch)| bytes(batch)).sum();
        let products = batches.iter().map(|(_, batch)| batch.products()).sum();
        match self.config.mode {
            Mode::Cpu => false,
            Mode::Device => true,
            Mode::Auto => {
                let device = self.model.device_seconds(class, bytes);
                let cpu = self.model.cpu_seconds(class, products, cpu.threads());
                self.model.prefers_device(class, device, cpu)
            }
        }
    }

    /// Whether there is a device; opens it when it is time to.
    fn is_open(&mut self) -> bool {
        let now = Instant::now();
        if self.runner.is_some() || now < self.retry || self.hangs >= self.config.hangs_max {
            return self.runner.is_some();
        }
        let config = Arc::clone(&self.config);
        let deadline = now + self.config.open_timeout;
        let runner = Runner::start(self.open.clone(), config, thread::current());
        let event = runner.as_ref().ok().and_then(|runner| runner.wait(deadline).ok());
        match (runner, event) {
            (Ok(runner), Some(Some(Event::Opened(Measured { depth, rates })))) => {
                self.depth = depth;
                if let Some((start, bytes)) = rates {
                    self.model.set_device(start, &bytes);
                }
                for (matrix, columns) in &self.expected {
                    runner.expect(matrix, *columns);
                }
                self.kept.iter().filter_map(Weak::upgrade).for_each(|kept| runner.keep(kept));
                self.runner = Some(runner);
            }
            (Ok(_), Some(Some(Event::NotOpened(error)))) => self.fall(error, false),
            (Ok(_), Some(None)) => self.fall(unwell("open", "no answer in time"), true),
            _ => self.fall(unwell("open", "its thread has ended"), false),
        }
        self.runner.is_some()
    }

    /// Leaves the device to itself for a while.
    fn fall(&mut self, error: Error, has_hung: bool) {
        self.runner = None;
        self.why_down = Some(error);
        self.hangs += u32::from(has_hung);
        self.retry = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(self.config.retry_max);
    }

    /// Moves what the device does from `waiting` to `done`; what it does not do waits again.
    fn run_on_device(
        &mut self,
        waiting: &mut VecDeque<(usize, Batch)>,
        done: &mut [Option<(Batch, By)>],
    ) {
        let mut flights: Vec<Flight> = Vec::new();
        // For the CPU, whatever the device does next.
        let mut failed: Vec<(usize, Batch)> = Vec::new();
        while let Some(runner) = &self.runner {
            if flights.len() < self.depth
                && let Some((place, batch)) = waiting.pop_front()
            {
                self.generation += 1;
                let (flight, batch) = self.flight(place, batch, flights.len());
                match runner.submit(batch) {
                    Ok(()) => flights.push(flight),
                    Err(batch) => {
                        waiting.push_front((place, *batch));
                        self.fall(unwell("submit", "its thread has ended"), false);
                    }
                }
                continue;
            }
            let Some(expires) = flights.iter().map(|flight| flight.expires).min() else { break };
            match runner.wait(expires) {
                Ok(Some(Event::Completed(completed))) => {
                    let Completed { batch, result } = *completed;
                    self.take(batch, result, &mut flights, &mut failed, done);
                }
                Ok(Some(Event::Refused(batch, error))) => {
                    self.take(*batch, Err(error), &mut flights, &mut failed, done);
                }
                Ok(Some(Event::Opened(_) | Event::NotOpened(_))) => {}
                Ok(None) => self.fall(unwell("watchdog", "no answer in time"), true),
                Err(_) => self.fall(unwell("wait", "its thread has ended"), false),
            }
        }
        let lost = flights.into_iter().map(|flight| (flight.place, flight.retained.restore()));
        waiting.extend(lost.chain(failed));
        // Their owners write them again, and the device may be reading them still.
        waiting.iter_mut().for_each(|(_, batch)| batch.own_inputs());
    }

    fn flight(&self, place: usize, mut batch: Batch, others: usize) -> (Flight, Batch) {
        batch.tag = self.generation;
        let class = Class::of_batch(&batch);
        // What goes beside it takes its time as well.
        let estimate = self.model.device_seconds(class, bytes(&batch) * (others as u64 + 1));
        let patience = f64::from(self.config.watchdog_factor) * estimate;
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        let now = Instant::now();
        let flight = Flight {
            generation: self.generation,
            place,
            retained: batch.retain(),
            sent: now,
            was_idle: others == 0,
            expires: now + patience.clamp(self.config.watchdog_min.max(PATIENCE_MIN), PATIENCE_MAX),
        };
        (flight, batch)
    }

    /// A batch came back, well or not.
    fn take(
        &mut self,
        batch: Batch,
        result: Result<(), Error>,
        flights: &mut Vec<Flight>,
        failed: &mut Vec<(usize, Batch)>,
        done: &mut [Option<(Batch, By)>],
    ) {
        let found = flights.iter().position(|flight| flight.generation == batch.tag);
        let Some(found) = found else { return };
        let Flight { place, sent, was_idle, retained, .. } = flights.swap_remove(found);
        drop(retained);
        match result {
            Ok(()) if self.config.spot_check.passes(&batch, &mut self.random) => {
                if was_idle {
                    let class = Class::of_batch(&batch);
                    self.model.device_took(class, bytes(&batch), sent.elapsed(), true);
                }
                self.pause = self.config.retry_min;
                done[place] = Some((batch, By::Device));
            }
            Ok(()) => {
                failed.push((place, batch));
                self.fall(unwell("check", "wrong results"), false);
            }
            Err(error) => {
                failed.push((place, batch));
                if error.is_fatal() {
                    self.fall(error, false);
                } else {
                    self.why_down = Some(error);
                }
            }
        }
    }
}

fn bytes(batch: &Batch) -> u64 {
    (batch.input_bytes() + batch.output_bytes()) as u64
}

fn unwell(call: &'static str, reason: &str) -> Error {
    Error::Lost { call, code: 0, reason: reason.into() }
}

/// Callers here wait anyway, and their first batches are pinned while they do.
const PATIENCE_MIN: Duration = Duration::from_millis(500);
const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// Matrices that a device is told of.
const EXPECTED_MAX: usize = 32;
