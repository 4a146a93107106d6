//! The thread between workers and the device: collects slots from workers, and redoes failed device
//! work on the CPU.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Cpu, Job, Operation};
use recoded_counters::engine::{Close, Fault};

use crate::config::Config;
use crate::lifecycle::Lifecycle;
use crate::measure;
use crate::metrics::add;
use crate::model::Class;
use crate::runner::OpenEngine;
use crate::slot::{Rings, Shared, Slot};

pub(crate) struct Dispatcher {
    config: Arc<Config>,
    shared: Arc<Shared>,
    ports: Vec<Rings>,
    cpu: Cpu,
    lifecycle: Lifecycle<Origin>,
    /// Submitted by workers, not yet with the device; with the port's number.
    waiting: VecDeque<(usize, Slot)>,
}

/// Origin of the bundle of a slot.
struct Origin {
    port: usize,
    opened: Instant,
    close: Close,
}

impl Dispatcher {
    pub fn new(
        config: Arc<Config>,
        shared: Arc<Shared>,
        ports: Vec<Rings>,
        open: OpenEngine,
        cpu: Cpu,
    ) -> Self {
        let lifecycle = Lifecycle::new(Arc::clone(&config), Arc::clone(&shared), open);
        Self { config, shared, ports, cpu, lifecycle, waiting: VecDeque::new() }
    }

    /// Runs until the queue is stopped and all accepted work is done.
    pub fn run(mut self) {
        self.work();
        // Release: pairs with the workers' Acquire. Slots that workers then find in their rings
        // were submitted after the last check of these, and are theirs to do.
        self.shared.is_finished.store(true, Ordering::Release);
    }

    fn work(&mut self) {
        if self.config.measure {
            self.measure_cpu();
        }
        loop {
            self.collect();
            let is_stopping = self.shared.is_stopping.load(Ordering::Relaxed);
            if self.shared.is_replaced.swap(false, Ordering::Relaxed) {
                self.lifecycle.replace();
            }
            if !is_stopping {
                self.lifecycle.open();
            }
            self.feed();
            let events = self.lifecycle.poll();
            self.deliver();
            if is_stopping && self.waiting.is_empty() && self.lifecycle.in_flight() == 0 {
                return;
            } else if events == 0 {
                thread::park_timeout(self.until_next(Instant::now()));
            }
        }
    }

    /// Collects slots from workers, one of each in turn.
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

    /// Submits bundles to the device while it accepts them; without one, the CPU does them.
    fn feed(&mut self) {
        while !self.lifecycle.is_full()
            && let Some((port, Slot { bundle, opened, close })) = self.waiting.pop_front()
        {
            self.lifecycle.send(bundle, Origin { port, opened, close });
            self.deliver();
        }
    }

    /// Returns the device's results to workers, and does the rest on the CPU.
    fn deliver(&mut self) {
        for finished in std::mem::take(&mut self.lifecycle.finished) {
            let Origin { port, opened, close } = finished.given;
            let mut slot = Slot { bundle: finished.bundle, opened, close };
            if let Err(fault) = finished.result {
                self.redo(&mut slot.bundle, fault);
            }
            self.finish(port, slot);
        }
    }

    fn redo(&self, bundle: &mut Bundle, fault: Fault) {
        let begun = Instant::now();
        self.cpu.run(bundle);
        let (class, products) = (Class::of_bundle(bundle), bundle.products());
        self.shared.model.cpu_took(class, products, begun.elapsed(), self.cpu.threads());
        add(&self.shared.counters.redone[fault as usize], bundle.jobs().len() as u64);
    }

    fn finish(&self, port: usize, slot: Slot) {
        self.shared.dequeue(&slot);
        self.shared.counters.latency(slot.opened.elapsed());
        // The ring has room for all slots of the worker.
        let is_delivered = self.ports[port].done.push(slot).is_ok();
        debug_assert!(is_delivered, "more slots than the ring has room for");
    }

    /// How long this thread may sleep unless it is unparked.
    fn until_next(&self, now: Instant) -> Duration {
        let until = self.lifecycle.due().map(|due| due.saturating_duration_since(now));
        until.unwrap_or(PARK_MAX).min(PARK_MAX)
    }

    /// Products per second of one core, by class.
    fn measure_cpu(&self) {
        let mut rate = 1.0;
        for class in Class::ALL {
            // Inverses of more columns would take long, and have the same rate.
            if !class.inverts() || class.columns() <= CPU_INVERTED_MAX {
                rate = self.cpu_rate(class).unwrap_or(rate);
            }
            self.shared.model.set_cpu(class, rate);
        }
    }

    fn cpu_rate(&self, class: Class) -> Option<f64> {
        let columns = class.columns();
        let row_bytes = CPU_ROW_BYTES / columns.max(16);
        let job = if class.inverts() {
            Job::new(Operation::Solve, columns, columns, row_bytes)
        } else {
            Job::new(Operation::Multiply, 16, columns, row_bytes)
        };
        let mut bundle = measure::filled(job, 1).ok()?;
        // The first run touches the pages; the best of the others was not interrupted.
        let taken = (0..CPU_REPEATS).map(|_| {
            let begun = Instant::now();
            self.cpu.run(&mut bundle);
            begun.elapsed()
        });
        let seconds = taken.min()?.as_secs_f64().max(1e-9);
        Some(bundle.products() as f64 / seconds / self.cpu.threads() as f64)
    }
}

/// The longest sleep: slots wake this thread, and so does the end of the queue.
const PARK_MAX: Duration = Duration::from_millis(100);

const CPU_REPEATS: usize = 4;

/// Columns of the largest inverse in the CPU's measurement.
const CPU_INVERTED_MAX: usize = 128;

/// Bytes of all sources in the CPU's measurement: as much as stays in its caches.
const CPU_ROW_BYTES: usize = 256 << 10;
