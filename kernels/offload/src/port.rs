//! The worker's end: offers jobs, submits slots, gets results. Nothing here waits.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::Instant;

use recoded_code::engine::{Bundle, Cpu, Job, Singular};
use recoded_counters::engine::{Close, Declined, Fault};

use crate::config::{Config, Mode};
use crate::metrics::add;
use crate::model::Class;
use crate::slot::{Rings, Shared, Slot};

/// One worker's access to the queue. Belongs to one thread.
pub struct Port {
    config: Arc<Config>,
    shared: Arc<Shared>,
    rings: Rings,
    dispatcher: Thread,
    /// For slots submitted after the dispatcher has ended.
    cpu: Cpu,
    free: Vec<Slot>,
    open: Option<Slot>,
    /// Offers since `window_began`, accepted or not: how full a slot would get.
    window: WindowWork,
    window_began: Option<Instant>,
    /// The same for the previous window.
    last_window: WindowWork,
}

#[derive(Copy, Clone, Default)]
struct WindowWork {
    bytes: u64,
    products: u64,
}

/// The inputs of an accepted job, to be written before [`Port::offer`] returns.
pub struct Inputs<'a> {
    bundle: &'a mut Bundle,
    job: usize,
}

impl Inputs<'_> {
    /// A row of coefficients.
    ///
    /// # Panics
    /// When the job has no such row.
    pub fn coefficients(&mut self, row: usize) -> &mut [u8] {
        self.bundle.coefficients_mut(self.job, row)
    }

    /// A source.
    ///
    /// # Panics
    /// When the job has no such row.
    pub fn source(&mut self, row: usize) -> &mut [u8] {
        self.bundle.source_mut(self.job, row)
    }
}

/// A finished job.
pub struct Delivered<'a> {
    bundle: &'a Bundle,
    job: usize,
}

impl Delivered<'_> {
    /// The tag that the job was offered with.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.bundle.jobs()[self.job].tag
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.bundle.jobs()[self.job].job
    }

    /// A destination.
    ///
    /// # Errors
    /// The job had to invert a matrix that has no inverse.
    ///
    /// # Panics
    /// When the job has no such row.
    pub fn destination(&self, row: usize) -> Result<&[u8], Singular> {
        self.bundle.destination(self.job, row)
    }
}

impl Port {
    pub(crate) fn new(
        config: Arc<Config>,
        shared: Arc<Shared>,
        rings: Rings,
        dispatcher: Thread,
        slots: Vec<Slot>,
        cpu: Cpu,
    ) -> Self {
        let (window, last_window) = (WindowWork::default(), WindowWork::default());
        Self {
            config,
            shared,
            rings,
            dispatcher,
            cpu,
            free: slots,
            open: None,
            window,
            window_began: None,
            last_window,
        }
    }

    /// Offers a job. If it is accepted, `fill` writes all of its inputs, and [`Port::poll`]
    /// delivers its results under `tag`.
    ///
    /// # Errors
    /// The reason why the caller has to do it.
    pub fn offer(
        &mut self,
        job: Job,
        tag: u64,
        now: Instant,
        fill: impl FnOnce(Inputs<'_>),
    ) -> Result<(), Declined> {
        let work = self.observe(&job, now);
        let counters = &self.shared.counters;
        add(&counters.offered_jobs, 1);
        add(&counters.offered_bytes, work.bytes);
        let taken = self.admit(&job, work).and_then(|()| self.place(job, tag, now));
        if let Err(reason) = taken {
            add(&self.shared.counters.declined[reason as usize], 1);
            return Err(reason);
        }
        add(&self.shared.counters.taken_jobs, 1);
        add(&self.shared.counters.taken_bytes, work.bytes);
        if let Some(slot) = &mut self.open {
            let job = slot.bundle.jobs().len() - 1;
            fill(Inputs { bundle: &mut slot.bundle, job });
            if slot.bytes() >= self.config.bundle_bytes as u64 {
                self.hand_over(Close::Bytes);
            }
        }
        self.tick(now);
        Ok(())
    }

    /// Submits the open slot when it is due. Call it about every [`Config::bundle_age`];
    /// [`Port::offer`] does it too.
    pub fn tick(&mut self, now: Instant) {
        let Some(slot) = &self.open else { return };
        let class = Class::of_bundle(&slot.bundle);
        let (bytes, products) = (slot.bytes(), slot.bundle.products());
        // The time that the device takes is part of the age.
        let device = self.shared.model.device_seconds(class, bytes);
        let age = now.saturating_duration_since(slot.opened);
        let is_idle = self.shared.queued_bytes.load(Ordering::Relaxed) == 0;
        let cpu = || self.shared.model.cpu_seconds(class, products, self.shared.workers);
        if age.as_secs_f64() + device >= self.config.bundle_age.as_secs_f64().max(2.0 * device) {
            self.hand_over(Close::Age);
        } else if is_idle && device < cpu() {
            self.hand_over(Close::Idle);
        }
    }

    /// When [`Port::tick`] is due at the latest; `None` while nothing waits.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.open.as_ref().map(|slot| slot.opened + self.config.bundle_age)
    }

    /// Submits the open slot as it is.
    pub fn flush(&mut self) {
        self.hand_over(Close::Flush);
    }

    /// Calls `deliver` for each job of at most one finished bundle, and returns their number.
    pub fn poll(&mut self, mut deliver: impl FnMut(Delivered<'_>)) -> usize {
        let Some(mut slot) = self.rings.done.pop().or_else(|| self.leftover()) else { return 0 };
        let jobs = slot.bundle.jobs().len();
        (0..jobs).for_each(|job| deliver(Delivered { bundle: &slot.bundle, job }));
        slot.bundle.clear();
        self.free.push(slot);
        jobs
    }

    /// Slots left after the dispatcher's end, done here.
    fn leftover(&mut self) -> Option<Slot> {
        // Acquire: pairs with the dispatcher's Release at its end.
        if !self.shared.is_finished.load(Ordering::Acquire) {
            return None;
        }
        // It may have finished something between the check of the ring and its end.
        if let Some(slot) = self.rings.done.pop() {
            return Some(slot);
        }
        let mut slot = self.rings.submitted.pop()?;
        self.cpu.run(&mut slot.bundle);
        self.shared.dequeue(&slot);
        let jobs = slot.bundle.jobs().len() as u64;
        add(&self.shared.counters.redone[Fault::Down as usize], jobs);
        Some(slot)
    }

    /// Adds an offer to the present window: offers in one window would share a slot.
    fn observe(&mut self, job: &Job, now: Instant) -> WindowWork {
        if !job.is_valid() {
            return WindowWork::default();
        }
        let bytes = (job.input_bytes() + job.output_bytes()) as u64;
        let work = WindowWork { bytes, products: job.products() };
        let began = *self.window_began.get_or_insert(now);
        let age = now.saturating_duration_since(began);
        if age >= self.config.bundle_age {
            // A window that ended long ago shows that offers are few.
            let is_recent = age < 2 * self.config.bundle_age;
            let window = mem::take(&mut self.window);
            self.last_window = if is_recent { window } else { WindowWork::default() };
            self.window_began = Some(now);
        }
        self.window.bytes += work.bytes;
        self.window.products += work.products;
        work
    }

    fn admit(&self, job: &Job, work: WindowWork) -> Result<(), Declined> {
        let shared = &self.shared;
        let mode = shared.mode();
        if mode == Mode::Cpu {
            return Err(Declined::Off);
        }
        if !shared.is_up.load(Ordering::Relaxed) || shared.is_stopping.load(Ordering::Relaxed) {
            return Err(Declined::Down);
        }
        let slot_bytes = self.config.slot_bytes;
        if !job.is_valid() || job.input_bytes() > slot_bytes || job.output_bytes() > slot_bytes {
            return Err(Declined::Size);
        }
        if mode == Mode::Device {
            return Ok(());
        }
        let columns_min = self.config.columns_per_worker_min * shared.workers as f64;
        if job.columns as f64 <= columns_min {
            return Err(Declined::Rows);
        }
        self.compare(Class::of_job(job), work)
    }

    /// Compares the queued work and the bundle of this job, on the device and on all workers.
    fn compare(&self, class: Class, work: WindowWork) -> Result<(), Declined> {
        let model = &self.shared.model;
        let others = if self.last_window.bytes > work.bytes { self.last_window } else { work };
        let bundle_bytes = self.config.bundle_bytes as u64;
        // The job's share of a full slot, if there are more offers.
        let share = (bundle_bytes as f64 / others.bytes.max(1) as f64).min(1.0);
        let scaled = |number: u64| (number as f64 * share) as u64;
        let bytes = self.shared.queued_bytes.load(Ordering::Relaxed) + scaled(others.bytes);
        let products =
            self.shared.queued_products.load(Ordering::Relaxed) + scaled(others.products);
        let device = model.device_seconds(class, bytes);
        if device > self.config.latency_max.as_secs_f64() {
            return Err(Declined::Late);
        }
        let cpu = model.cpu_seconds(class, products, self.shared.workers);
        if model.prefers_device(class, device, cpu) { Ok(()) } else { Err(Declined::Cost) }
    }

    /// Puts the job into the open slot, or into the next one.
    fn place(&mut self, job: Job, tag: u64, now: Instant) -> Result<(), Declined> {
        if self.open.as_ref().is_some_and(|slot| !slot.bundle.has_room(&job)) {
            self.hand_over(Close::Bytes);
        }
        if self.open.is_none() {
            let mut slot = self.free.pop().ok_or(Declined::Full)?;
            slot.opened = now;
            self.open = Some(slot);
        }
        let pushed = self.open.as_mut().map(|slot| slot.bundle.push(job, tag));
        match pushed {
            Some(Ok(_)) => Ok(()),
            _ => Err(Declined::Size),
        }
    }

    fn hand_over(&mut self, close: Close) {
        let Some(mut slot) = self.open.take() else { return };
        if slot.bundle.jobs().is_empty() {
            return self.free.push(slot);
        }
        slot.close = close;
        self.shared.counters.bundle(slot.bytes(), close);
        self.shared.enqueue(&slot);
        // The ring has room for all slots of this worker.
        if let Err(slot) = self.rings.submitted.push(slot) {
            self.shared.dequeue(&slot);
            debug_assert!(false, "more slots than the ring has room for");
        }
        self.dispatcher.unpark();
    }
}
