//! The thread between workers and the device: feeds it, watches it, checks it, and does its work
//! when it does not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use recoded_code::engine::{Batch, Completed, Cpu, Error, Job, Operation, Retained};

use crate::config::Config;
use crate::metrics::{Fault, add};
use crate::model::Class;
use crate::offload::OpenEngine;
use crate::runner::{Event, Measured, Runner};
use crate::slot::{Rings, Shared, Slot};

pub(crate) struct Dispatcher {
    config: Arc<Config>,
    shared: Arc<Shared>,
    ports: Vec<Rings>,
    open: OpenEngine,
    cpu: Cpu,
    device: Device,
    /// Handed over by workers, not yet with the device; with the port's number.
    waiting: VecDeque<(usize, Slot)>,
    flights: Vec<Flight>,
    /// The number of the next batch. A batch that comes back under a number that is not in flight
    /// was given up, and is ignored.
    generation: u64,
    /// When a batch last came back.
    last_done: Instant,
    /// Batches that failed since the last one that did not.
    failures: u32,
    hangs: u32,
    pause: Duration,
    random: u64,
}

enum Device {
    /// None until then, or for ever.
    Down {
        retry: Option<Instant>,
    },
    Opening {
        runner: Runner,
        expires: Instant,
    },
    Up {
        runner: Runner,
        depth: usize,
    },
}

/// A batch that the device has.
struct Flight {
    generation: u64,
    port: usize,
    retained: Retained,
    opened: Instant,
    close: crate::metrics::Close,
    class: Class,
    bytes: u64,
    sent: Instant,
    was_idle: bool,
    expires: Instant,
}

impl Dispatcher {
    pub fn new(
        config: Arc<Config>,
        shared: Arc<Shared>,
        ports: Vec<Rings>,
        open: OpenEngine,
        cpu: Cpu,
    ) -> Self {
        let now = Instant::now();
        let (pause, random) = (config.retry_min, config.seed);
        Self {
            config,
            shared,
            ports,
            open,
            cpu,
            device: Device::Down { retry: Some(now) },
            waiting: VecDeque::new(),
            flights: Vec::new(),
            generation: 0,
            last_done: now,
            failures: 0,
            hangs: 0,
            pause,
            random,
        }
    }

    /// Runs until the queue is stopped and everything that was taken is done.
    pub fn run(mut self) {
        self.work();
        // Release: pairs with the workers' Acquire. What they find in their rings afterwards was
        // handed over after the last look at them, and is theirs to do.
        self.shared.is_finished.store(true, Ordering::Release);
    }

    fn work(&mut self) {
        let waiter = thread::current();
        if self.config.measure {
            self.measure_cpu();
        }
        loop {
            let now = Instant::now();
            self.collect();
            let is_stopping = self.shared.is_stopping.load(Ordering::Relaxed);
            if !is_stopping {
                self.try_device(now, &waiter);
            }
            self.feed(now);
            let events = self.take_events();
            self.watch(Instant::now());
            if is_stopping && self.waiting.is_empty() && self.flights.is_empty() {
                return;
            } else if events == 0 {
                thread::park_timeout(self.until_next(Instant::now()));
            }
        }
    }

    /// Takes what workers have handed over, one slot of each in turn.
    fn collect(&mut self) {
        loop {
            let before = self.waiting.len();
            for (port, rings) in self.ports.iter().enumerate() {
                self.waiting.extend(rings.submitted.pop().map(|slot| (port, slot)));
            }
            if self.waiting.len() == before {
                return;
            }
        }
    }

    /// Opens the device when it is time to.
    fn try_device(&mut self, now: Instant, waiter: &Thread) {
        let Device::Down { retry: Some(retry) } = self.device else { return };
        if now < retry {
            return;
        }
        let runner = Runner::start(self.open.clone(), Arc::clone(&self.config), waiter.clone());
        match runner {
            Ok(runner) => {
                let expires = now + self.config.open_timeout;
                self.device = Device::Opening { runner, expires };
            }
            Err(_) => self.rest(now),
        }
    }

    /// Gives the device what it takes; without one, the CPU does it.
    fn feed(&mut self, now: Instant) {
        while let Some((port, slot)) = self.waiting.pop_front() {
            match &self.device {
                Device::Up { depth, .. } if self.flights.len() >= *depth => {
                    self.waiting.push_front((port, slot));
                    return;
                }
                Device::Up { .. } => self.send(port, slot, now),
                _ => self.redo(port, slot, Fault::Down),
            }
        }
    }

    fn send(&mut self, port: usize, slot: Slot, now: Instant) {
        let Device::Up { runner, .. } = &self.device else {
            return self.redo(port, slot, Fault::Down);
        };
        let (bytes, Slot { mut batch, opened, close }) = (slot.bytes(), slot);
        let class = Class::of_batch(&batch);
        self.generation += 1;
        batch.tag = self.generation;
        let retained = batch.retain();
        let ahead: u64 = self.flights.iter().map(|flight| flight.bytes).sum();
        let estimate = self.shared.model.device_seconds(class, ahead + bytes);
        let patience = f64::from(self.config.watchdog_factor) * estimate;
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        let patience = patience.clamp(self.config.watchdog_min, WATCHDOG_MAX);
        let flight = Flight {
            generation: self.generation,
            port,
            retained,
            opened,
            close,
            class,
            bytes,
            sent: now,
            was_idle: self.flights.is_empty(),
            expires: now + patience,
        };
        match runner.submit(batch) {
            Ok(()) => self.flights.push(flight),
            Err(batch) => {
                self.redo(port, Slot { batch: *batch, opened, close }, Fault::Lost);
                self.fall(Fault::Lost, false);
            }
        }
    }

    /// Deals with everything that the device's thread has reported.
    fn take_events(&mut self) -> usize {
        let mut events = 0;
        loop {
            let runner = match &self.device {
                Device::Up { runner, .. } | Device::Opening { runner, .. } => runner,
                Device::Down { .. } => return events,
            };
            match runner.poll() {
                Ok(Some(event)) => self.take(event),
                Ok(None) => return events,
                Err(_) => self.fall(Fault::Lost, false),
            }
            events += 1;
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened(measured) => self.rise(measured),
            Event::NotOpened(error) => {
                self.shared.explain(error);
                self.fall(Fault::Down, false);
            }
            Event::Refused(batch, error) => self.give_back(*batch, Err((error, Fault::Refused))),
            Event::Completed(completed) => {
                let Completed { batch, result } = *completed;
                self.give_back(batch, result.map_err(|error| (error, Fault::Failed)));
            }
        }
    }

    /// The device works.
    fn rise(&mut self, Measured { depth, rates }: Measured) {
        let placeholder = Device::Down { retry: None };
        if let Device::Opening { runner, .. } = std::mem::replace(&mut self.device, placeholder) {
            self.device = Device::Up { runner, depth };
            if let Some((start, bytes)) = rates {
                self.shared.model.set_device(start, &bytes);
            }
            self.shared.is_up.store(true, Ordering::Relaxed);
            add(&self.shared.counters.device_ups, 1);
        }
    }

    /// The device is of no use for now. What it has is done here.
    fn fall(&mut self, fault: Fault, has_hung: bool) {
        if self.shared.is_up.swap(false, Ordering::Relaxed) {
            add(&self.shared.counters.device_downs, 1);
        }
        self.hangs += u32::from(has_hung);
        self.failures = 0;
        // Its thread sees that nobody listens, and drops the engine, when it can.
        self.rest(Instant::now());
        for flight in std::mem::take(&mut self.flights) {
            let batch = flight.retained.restore();
            let slot = Slot { batch, opened: flight.opened, close: flight.close };
            self.redo(flight.port, slot, fault);
        }
    }

    /// Leaves the device alone for a while.
    fn rest(&mut self, now: Instant) {
        let retry = (self.hangs < self.config.hangs_max).then(|| now + self.pause);
        self.device = Device::Down { retry };
        self.pause = (2 * self.pause).min(self.config.retry_max);
    }

    /// A batch came back from the device, well or not.
    fn give_back(&mut self, batch: Batch, result: Result<(), (Error, Fault)>) {
        let found = self.flights.iter().position(|flight| flight.generation == batch.tag);
        let Some(found) = found else {
            return add(&self.shared.counters.late, 1);
        };
        let Flight { port, opened, close, class, bytes, sent, was_idle, .. } =
            self.flights.swap_remove(found);
        let slot = Slot { batch, opened, close };
        match result {
            Ok(()) if self.config.spot_check.passes(&slot.batch, &mut self.random) => {
                let now = Instant::now();
                // Beside others, the device has worked on it since the one before was done.
                let begun = if was_idle { sent } else { sent.max(self.last_done) };
                self.shared.model.device_took(class, bytes, now - begun, was_idle);
                self.last_done = now;
                self.failures = 0;
                self.pause = self.config.retry_min;
                add(&self.shared.counters.device_jobs, slot.batch.jobs().len() as u64);
                add(&self.shared.counters.device_bytes, bytes);
                self.finish(port, slot);
            }
            Ok(()) => {
                self.redo(port, slot, Fault::Wrong);
                self.shared.explain(unwell("check", "wrong results"));
                self.fall(Fault::Lost, false);
            }
            Err((error, fault)) => {
                self.failures += 1;
                let is_lost = error.is_fatal() || self.failures >= FAILURES_MAX;
                self.redo(port, slot, if error.is_fatal() { Fault::Lost } else { fault });
                if is_lost {
                    self.shared.explain(error);
                    self.fall(Fault::Lost, false);
                }
            }
        }
    }

    /// Looks whether the device is late.
    fn watch(&mut self, now: Instant) {
        match &self.device {
            Device::Up { .. } if self.flights.iter().any(|flight| flight.expires <= now) => {
                self.shared.explain(unwell("watchdog", "no answer in time"));
                self.fall(Fault::Hung, true);
            }
            Device::Opening { expires, .. } if *expires <= now => {
                self.shared.explain(unwell("open", "no answer in time"));
                self.fall(Fault::Down, true);
            }
            _ => {}
        }
    }

    /// Does a batch on the CPU.
    fn redo(&mut self, port: usize, mut slot: Slot, fault: Fault) {
        let begun = Instant::now();
        self.cpu.run(&mut slot.batch);
        let (class, products) = (Class::of_batch(&slot.batch), slot.batch.products());
        self.shared.model.cpu_took(class, products, begun.elapsed(), self.cpu.threads());
        add(&self.shared.counters.redone[fault as usize], slot.batch.jobs().len() as u64);
        self.finish(port, slot);
    }

    fn finish(&mut self, port: usize, slot: Slot) {
        self.shared.dequeue(&slot);
        self.shared.counters.latency(slot.opened.elapsed());
        // The ring has room for all slots of the worker.
        let is_delivered = self.ports[port].done.push(slot).is_ok();
        debug_assert!(is_delivered, "more slots than the ring has room for");
    }

    /// How long there is nothing to do unless somebody unparks this thread.
    fn until_next(&self, now: Instant) -> Duration {
        let flights = self.flights.iter().map(|flight| flight.expires);
        let device = match &self.device {
            Device::Down { retry } => *retry,
            Device::Opening { expires, .. } => Some(*expires),
            Device::Up { .. } => None,
        };
        let next = flights.chain(device).min();
        let until = next.map_or(PARK_MAX, |next| next.saturating_duration_since(now));
        until.min(PARK_MAX)
    }

    /// Products per second of one core, by class.
    fn measure_cpu(&self) {
        for class in Class::ALL {
            let columns = class.columns();
            let job = Job::new(Operation::Multiply, 16, columns, CPU_ROW_BYTES / columns.max(16));
            let Ok(mut batch) = Batch::of(job) else { continue };
            (0..16).for_each(|row| batch.coefficients_mut(0, row).fill(3));
            (0..columns).for_each(|row| batch.source_mut(0, row).fill(5));
            // The first run touches the pages; of the others, the best one was not interrupted.
            let taken = (0..CPU_REPEATS).map(|_| {
                let begun = Instant::now();
                self.cpu.run(&mut batch);
                begun.elapsed()
            });
            let seconds = taken.min().map_or(1.0, |best| best.as_secs_f64().max(1e-9));
            let products = batch.products() as f64 / seconds / self.cpu.threads() as f64;
            self.shared.model.set_cpu(class, products);
        }
    }
}

fn unwell(call: &'static str, reason: &str) -> Error {
    Error::Lost { call, code: 0, reason: reason.into() }
}

/// Failures of single batches in a row after which a device is given up.
const FAILURES_MAX: u32 = 3;

/// Estimates of a device that was never measured may be anything.
const WATCHDOG_MAX: Duration = Duration::from_secs(10);

/// The longest sleep: slots wake this thread, and the end of the queue does.
const PARK_MAX: Duration = Duration::from_millis(100);

const CPU_REPEATS: usize = 4;

/// Bytes of all sources of the jobs that the CPU is measured with: as much as stays in its caches.
const CPU_ROW_BYTES: usize = 256 << 10;
