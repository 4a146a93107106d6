//! A device from opening to failure and recovery, with its bundles: one state machine for the
//! queue's dispatcher, which never waits, and for [`crate::Device`] and [`crate::Together`], whose
//! callers do.
//!
//! ```text
//!  Down --retry is due--> Opening --self-test, measurement--> Up <--- it answers ---> Up, late
//!   ^                        | not opened                      | lost, hung, wrong bytes,
//!   '----- longer pause -----'---------------------------------' FAILURES_MAX failures in a row
//! ```
//!
//! The CPU does a late bundle, and the device gets nothing new until it has returned that bundle.
//! Only a device that returns nothing for much longer has hung: it is abandoned with its thread. A
//! device that is slow to open is awaited, however long: its thread exists anyway, and another
//! attempt would not be faster.
//!
//! Every bundle given to [`Lifecycle::send`] appears in [`Lifecycle::finished`] exactly once: with
//! results, or with the fault that makes the CPU compute it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Completed, Error, Retained};
use recoded_counters::engine::Fault;

use crate::config::Config;
use crate::metrics::add;
use crate::model::Class;
use crate::runner::{Event, Gone, Measured, OpenEngine, Runner};
use crate::slot::{Shared, bytes};

/// One device; `T` is the owner's data for each bundle.
pub(crate) struct Lifecycle<T> {
    config: Arc<Config>,
    shared: Arc<Shared>,
    open: OpenEngine,
    state: CardState,
    flights: Vec<Flight<T>>,
    /// Bundles that the device no longer has, for the owner to take.
    pub finished: Vec<Finished<T>>,
    /// The number of the last bundle. A bundle returned under a number not in flight was abandoned,
    /// and is ignored.
    serial: u64,
    /// When a bundle last returned.
    last_done: Instant,
    /// Consecutive failed bundles.
    failures: u32,
    /// Times that it hung since its last completed bundle.
    hangs: u32,
    /// Whether it opened since the last call of [`Self::open_now`].
    has_risen: bool,
    /// Whether this process can never use it again.
    is_spent: bool,
    pause: Duration,
    random: u64,
}

enum CardState {
    /// Permanently, if `retry` is `None`.
    Down {
        retry: Option<Instant>,
    },
    Opening {
        runner: Runner,
        /// Deadline until which callers wait for it; `None` once it has passed.
        expires: Option<Instant>,
    },
    Up {
        runner: Runner,
        depth: usize,
    },
}

/// A bundle that the device has.
struct Flight<T> {
    serial: u64,
    /// `None` if it is late and went to the CPU.
    wanted: Option<(T, Retained)>,
    class: Class,
    bytes: u64,
    sent: Instant,
    was_idle: bool,
    late: Instant,
    hung: Instant,
}

impl<T> Flight<T> {
    /// When [`Lifecycle::watch`] must check it.
    const fn expires(&self) -> Instant {
        if self.wanted.is_some() { self.late } else { self.hung }
    }

    /// Takes it from the device because of `fault`; `None` if that was done before.
    fn give_up(&mut self, fault: Fault) -> Option<Finished<T>> {
        let (given, retained) = self.wanted.take()?;
        Some(Finished { given, bundle: retained.restore(), result: Err(fault) })
    }
}

/// A bundle that the device no longer has.
pub(crate) struct Finished<T> {
    /// The owner's data.
    pub given: T,
    /// With results, or with its inputs only.
    pub bundle: Bundle,
    /// Whether the device did it, checked as configured.
    pub result: Result<(), Fault>,
}

/// Closes a device with nothing in flight before its owner continues.
impl<T> Drop for Lifecycle<T> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.state, CardState::Down { retry: None });
        if let (CardState::Opening { runner, .. } | CardState::Up { runner, .. }, true) =
            (state, self.flights.is_empty())
        {
            runner.end(CLOSE_PATIENCE);
        }
    }
}

impl<T> Lifecycle<T> {
    pub fn new(config: Arc<Config>, shared: Arc<Shared>, open: OpenEngine) -> Self {
        let now = Instant::now();
        Self {
            state: CardState::Down { retry: Some(now) },
            flights: Vec::new(),
            finished: Vec::new(),
            serial: 0,
            last_done: now,
            failures: 0,
            hangs: 0,
            has_risen: false,
            is_spent: false,
            pause: config.retry_min,
            random: config.seed,
            config,
            shared,
            open,
        }
    }

    /// Starts opening the device when that is due; this thread is unparked at every event.
    pub fn open(&mut self) {
        let now = Instant::now();
        let CardState::Down { retry: Some(retry) } = self.state else { return };
        if now < retry {
            return;
        }
        let config = Arc::clone(&self.config);
        match Runner::start(self.open.clone(), config, thread::current()) {
            Ok(runner) => {
                let expires = Some(now + self.config.open_timeout);
                self.state = CardState::Opening { runner, expires };
            }
            Err(_) => self.rest(now),
        }
    }

    /// Opens the device when that is due and waits for the result, up to [`Config::open_timeout`];
    /// returns whether it is newly open.
    pub fn open_now(&mut self) -> bool {
        self.poll();
        self.open();
        while matches!(self.state, CardState::Opening { expires: Some(_), .. }) {
            self.wait();
        }
        std::mem::take(&mut self.has_risen) && self.device().is_some()
    }

    /// The device's thread, while the device works and is not late.
    pub fn device(&self) -> Option<&Runner> {
        match &self.state {
            CardState::Up { runner, .. } if !self.is_late() => Some(runner),
            _ => None,
        }
    }

    fn is_late(&self) -> bool {
        self.flights.iter().any(|flight| flight.wanted.is_none())
    }

    /// Whether the device has its maximum number of bundles.
    pub fn is_full(&self) -> bool {
        let is_up = self.device().is_some();
        matches!(self.state, CardState::Up { depth, .. } if is_up && self.flights.len() >= depth)
    }

    /// Bundles on the device whose results are awaited.
    pub fn in_flight(&self) -> usize {
        self.flights.iter().filter(|flight| flight.wanted.is_some()).count()
    }

    /// Gives the device a bundle.
    pub fn send(&mut self, mut bundle: Bundle, given: T) {
        if self.device().is_none() {
            let fault = if self.is_late() { Fault::Late } else { Fault::Down };
            return self.finished.push(Finished { given, bundle, result: Err(fault) });
        }
        self.serial += 1;
        bundle.tag = self.serial;
        let (class, bytes, now) = (Class::of_bundle(&bundle), bytes(&bundle), Instant::now());
        let ahead: u64 = self.flights.iter().map(|flight| flight.bytes).sum();
        let estimate = self.shared.model.device_seconds(class, ahead + bytes);
        let patience = f64::from(self.config.watchdog_factor) * estimate;
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        let patience = patience.min(WATCHDOG_MAX).max(self.config.watchdog_min);
        self.flights.push(Flight {
            serial: self.serial,
            wanted: Some((given, bundle.retain())),
            class,
            bytes,
            sent: now,
            was_idle: self.flights.is_empty(),
            late: now + patience,
            hung: now + self.config.hang_min.max(2 * patience),
        });
        if self.device().is_none_or(|device| device.submit(bundle).is_err()) {
            self.fall(unwell("submit", "its thread has ended"), Fault::Lost);
        }
    }

    /// Handles the reports of the device's thread and checks whether the device is late; returns
    /// the number of reports.
    pub fn poll(&mut self) -> usize {
        let mut events = 0;
        while let Some(event) = self.runner().map(Runner::poll) {
            match event {
                Ok(None) => break,
                Ok(Some(event)) => self.take(event),
                Err(Gone) => self.fall(unwell("wait", "its thread has ended"), Fault::Lost),
            }
            events += 1;
        }
        self.watch(Instant::now());
        events
    }

    /// Waits for a report until the device is late.
    pub fn wait(&mut self) {
        if let (Some(runner), Some(expires)) = (self.runner(), self.expires()) {
            match runner.wait(expires) {
                Ok(event) => event.into_iter().for_each(|event| self.take(event)),
                Err(Gone) => self.fall(unwell("wait", "its thread has ended"), Fault::Lost),
            }
        }
        // An already reported bundle is not late.
        self.poll();
    }

    /// When to call [`Self::open`] or [`Self::poll`] next, even without a report.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            CardState::Down { retry } => retry,
            _ => self.expires(),
        }
    }

    /// When the device is late, or has hung.
    fn expires(&self) -> Option<Instant> {
        match self.state {
            CardState::Opening { expires, .. } => expires,
            _ => self.flights.iter().map(Flight::expires).min(),
        }
    }

    fn runner(&self) -> Option<&Runner> {
        match &self.state {
            CardState::Opening { runner, .. } | CardState::Up { runner, .. } => Some(runner),
            CardState::Down { .. } => None,
        }
    }

    fn watch(&mut self, now: Instant) {
        if let CardState::Opening { expires, .. } = &mut self.state {
            if expires.take_if(|expires| *expires <= now).is_some() {
                self.shared.explain(unwell("open", "no answer yet"));
            }
        } else if self.flights.iter().any(|flight| flight.hung <= now) {
            self.fall(unwell("watchdog", "no answer in time"), Fault::Hung);
        } else if self.expires().is_some_and(|expires| expires <= now) {
            self.shared.explain(unwell("watchdog", "late"));
            self.shared.is_up.store(false, Ordering::Relaxed);
            let late = self.flights.iter_mut().filter(|flight| flight.late <= now);
            self.finished.extend(late.filter_map(|flight| flight.give_up(Fault::Late)));
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened(measured) => self.rise(measured),
            Event::NotOpened(error, fault) => self.fall(error, fault),
            Event::Refused(bundle, error) => self.take_back(*bundle, Err((error, Fault::Refused))),
            Event::Completed(completed) => {
                let Completed { bundle, result } = *completed;
                self.take_back(bundle, result.map_err(|error| (error, Fault::Failed)));
            }
        }
    }

    /// The device works.
    fn rise(&mut self, Measured { name, depth, costs }: Measured) {
        let placeholder = CardState::Down { retry: None };
        if let CardState::Opening { runner, .. } = std::mem::replace(&mut self.state, placeholder) {
            self.state = CardState::Up { runner, depth };
            if let Some(costs) = costs {
                self.shared.model.set_device(&costs);
            }
            self.has_risen = true;
            self.shared.set_device(Some(name));
            self.shared.is_up.store(true, Ordering::Relaxed);
            add(&self.shared.counters.device_ups, 1);
        }
    }

    /// The device failed. Its bundles return to the owner with `fault`.
    fn fall(&mut self, error: Error, fault: Fault) {
        self.is_spent |= error.needs_restart();
        self.shared.explain(error);
        self.leave();
        self.hangs += u32::from(fault == Fault::Hung);
        self.failures = 0;
        // Its thread finds the channel closed and drops the engine, if it returns from the device.
        self.rest(Instant::now());
        self.give_up_all(fault);
    }

    /// Abandons the device and reopens at once, possibly another one: the old one's failures do not
    /// count against the new one.
    pub fn replace(&mut self) {
        self.leave();
        self.shared.forget();
        (self.failures, self.hangs, self.is_spent) = (0, 0, false);
        self.pause = self.config.retry_min;
        self.state = CardState::Down { retry: Some(Instant::now()) };
        self.give_up_all(Fault::Down);
    }

    /// Drops the device.
    fn leave(&mut self) {
        self.shared.is_up.store(false, Ordering::Relaxed);
        self.shared.set_device(None);
        if matches!(self.state, CardState::Up { .. }) {
            add(&self.shared.counters.device_downs, 1);
        }
    }

    /// Returns the device's bundles to the owner.
    fn give_up_all(&mut self, fault: Fault) {
        let flights = self.flights.drain(..);
        self.finished.extend(flights.filter_map(|mut flight| flight.give_up(fault)));
    }

    /// Does not use the device until the pause is over.
    fn rest(&mut self, now: Instant) {
        let is_over = self.is_spent || self.hangs >= self.config.hangs_max;
        self.state = CardState::Down { retry: (!is_over).then(|| now + self.pause) };
        self.pause = (2 * self.pause).min(self.config.retry_max);
    }

    /// The device returned a bundle.
    fn take_back(&mut self, bundle: Bundle, result: Result<(), (Error, Fault)>) {
        let found = self.flights.iter().position(|flight| flight.serial == bundle.tag);
        let Some(found) = found else {
            return add(&self.shared.counters.late, 1);
        };
        let flight = self.flights.swap_remove(found);
        let result = match result {
            Ok(()) if self.config.spot_check.passes(&bundle, &mut self.random) => {
                self.succeed(&flight, &bundle);
                Ok(())
            }
            Ok(()) => {
                self.fall(unwell("check", "wrong results"), Fault::Lost);
                Err(Fault::Wrong)
            }
            Err((error, fault)) => Err(self.fail(error, fault)),
        };
        match flight.wanted {
            Some((given, _)) => self.finished.push(Finished { given, bundle, result }),
            None => add(&self.shared.counters.late, 1),
        }
        // The late bundle has been answered.
        let is_up = self.device().is_some();
        self.shared.is_up.store(is_up, Ordering::Relaxed);
    }

    /// Updates the model from a correctly returned bundle.
    fn succeed(&mut self, flight: &Flight<T>, bundle: &Bundle) {
        let now = Instant::now();
        // With others in flight, the device has worked on it since the previous one was done.
        let begun = if flight.was_idle { flight.sent } else { flight.sent.max(self.last_done) };
        self.shared.model.device_took(flight.class, flight.bytes, now - begun, flight.was_idle);
        self.last_done = now;
        self.failures = 0;
        self.hangs = 0;
        self.pause = self.config.retry_min;
        if flight.wanted.is_some() {
            add(&self.shared.counters.device_jobs, bundle.jobs().len() as u64);
            add(&self.shared.counters.device_bytes, flight.bytes);
        }
    }

    /// Records a bundle returned with an error, and returns the reason why the CPU has to do it.
    fn fail(&mut self, error: Error, fault: Fault) -> Fault {
        self.failures += 1;
        let is_fatal = error.is_fatal();
        if is_fatal || self.failures >= FAILURES_MAX {
            self.fall(error, Fault::Lost);
        } else {
            self.shared.explain(error);
        }
        if is_fatal { Fault::Lost } else { fault }
    }
}

fn unwell(call: &'static str, reason: &str) -> Error {
    Error::Lost { call, code: 0, reason: reason.into() }
}

/// Consecutive failures of single bundles after which a device is abandoned.
const FAILURES_MAX: u32 = 3;

/// Estimates of a device that was never measured are arbitrary.
const WATCHDOG_MAX: Duration = Duration::from_secs(10);

/// How long a device may take to close: memory is released, and a compiler finishes.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);
