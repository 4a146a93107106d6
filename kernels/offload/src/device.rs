//! A device for callers that wait for their results; the queue is for those that must not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Cpu, Error, Segment};

use crate::config::{Config, Mode};
use crate::lifecycle::Lifecycle;
use crate::model::{Class, Model};
use crate::runner::OpenEngine;
use crate::slot::{Shared, bytes};

/// The processor of a bundle.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum By {
    /// The device.
    Device,
    /// The CPU.
    Cpu,
}

/// One device, shared by any number of callers, one at a time. It is opened at first use and
/// reopened after failures, with growing pauses while the CPU does everything.
#[derive(Clone)]
pub struct Device(Arc<Mutex<Inner>>);

struct Inner {
    shared: Arc<Shared>,
    /// Bundles by their place among those of the caller.
    lifecycle: Lifecycle<usize>,
    /// Matrices announced to the device, and announced again when it is reopened.
    expected: Vec<(Box<[u8]>, usize)>,
    /// Segments that it keeps, or would keep if it were present.
    kept: Vec<Weak<Segment>>,
}

impl Device {
    /// A device that `open` opens. The slots and bundle ages of `config` do not matter here.
    #[must_use]
    pub fn new(config: Config, open: OpenEngine) -> Self {
        let shared = Arc::new(Shared::new(config.mode, Model::new(config.rates), 1));
        let watchdog_min = config.watchdog_min.max(PATIENCE_MIN);
        let config = Arc::new(Config { watchdog_min, ..config });
        Self(Arc::new(Mutex::new(Inner {
            lifecycle: Lifecycle::new(config, Arc::clone(&shared), open),
            shared,
            expected: Vec::new(),
            kept: Vec::new(),
        })))
    }

    /// Does all bundles, on the device if that works and is faster, and returns them in order. As
    /// many are in flight as the device accepts, so that copies of one overlap the work on another.
    #[must_use]
    pub fn run(&self, bundles: Vec<Bundle>, cpu: &Cpu) -> Vec<(Bundle, By)> {
        self.lock().run(bundles, cpu)
    }

    /// Announces many products with this row-major matrix.
    pub fn expect(&self, matrix: &[u8], columns: usize) {
        let mut inner = self.lock();
        let is_known = inner.expected.iter().any(|(known, c)| **known == *matrix && *c == columns);
        if !is_known && inner.expected.len() < EXPECTED_MAX {
            inner.expected.push((matrix.into(), columns));
            if let Some(device) = inner.lifecycle.device() {
                device.expect(matrix, columns);
            }
        }
    }

    /// Makes the device keep `segment` as long as anybody else holds it, so that bundles over it
    /// bring no rows along; if it cannot, they do. A reopened device gets the segment again.
    pub fn keep(&self, segment: &Arc<Segment>) {
        let mut inner = self.lock();
        inner.kept.retain(|kept| kept.strong_count() > 0);
        if !inner.kept.iter().any(|kept| kept.as_ptr() == Arc::as_ptr(segment)) {
            inner.kept.push(Arc::downgrade(segment));
            if let Some(device) = inner.lifecycle.device() {
                device.keep(Arc::clone(segment));
            }
        }
    }

    /// The last failure of the device; `None` if it never failed.
    #[must_use]
    pub fn why_down(&self) -> Option<Error> {
        self.lock().shared.why_down()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn run(&mut self, bundles: Vec<Bundle>, cpu: &Cpu) -> Vec<(Bundle, By)> {
        let mut done: Vec<Option<(Bundle, By)>> = bundles.iter().map(|_| None).collect();
        let mut waiting: VecDeque<(usize, Bundle)> = bundles.into_iter().enumerate().collect();
        if self.prefers_device(&waiting, cpu) && self.is_open() {
            self.run_on_device(&mut waiting, &mut done);
        }
        for (place, mut bundle) in waiting {
            let (begun, products) = (Instant::now(), bundle.products());
            cpu.run(&mut bundle);
            let class = Class::of_bundle(&bundle);
            self.shared.model.cpu_took(class, products, begun.elapsed(), cpu.threads());
            done[place] = Some((bundle, By::Cpu));
        }
        done.into_iter().flatten().collect()
    }

    fn prefers_device(&self, bundles: &VecDeque<(usize, Bundle)>, cpu: &Cpu) -> bool {
        let (model, Some((_, first))) = (&self.shared.model, bundles.front()) else { return false };
        let class = Class::of_bundle(first);
        let bytes = bundles.iter().map(|(_, bundle)| bytes(bundle)).sum();
        let products = bundles.iter().map(|(_, bundle)| bundle.products()).sum();
        match self.shared.mode() {
            Mode::Cpu => false,
            Mode::Device => true,
            Mode::Auto => {
                let device = model.device_seconds(class, bytes);
                let cpu = model.cpu_seconds(class, products, cpu.threads());
                model.prefers_device(class, device, cpu)
            }
        }
    }

    /// Whether there is a device; opens it when that is due, and waits for the result.
    fn is_open(&mut self) -> bool {
        let is_new = self.lifecycle.open_now();
        let Some(device) = self.lifecycle.device() else { return false };
        if is_new {
            self.expected.iter().for_each(|(matrix, columns)| device.expect(matrix, *columns));
            self.kept.iter().filter_map(Weak::upgrade).for_each(|kept| device.keep(kept));
        }
        true
    }

    /// Moves bundles that the device completes from `waiting` to `done`; others wait again.
    fn run_on_device(
        &mut self,
        waiting: &mut VecDeque<(usize, Bundle)>,
        done: &mut [Option<(Bundle, By)>],
    ) {
        // Computed by the CPU, even if the device recovers.
        let mut failed: Vec<(usize, Bundle)> = Vec::new();
        loop {
            while self.lifecycle.device().is_some()
                && !self.lifecycle.is_full()
                && let Some((place, bundle)) = waiting.pop_front()
            {
                self.lifecycle.send(bundle, place);
            }
            if self.lifecycle.in_flight() == 0 && self.lifecycle.finished.is_empty() {
                break;
            }
            self.lifecycle.wait();
            for finished in self.lifecycle.finished.drain(..) {
                match finished.result {
                    Ok(()) => done[finished.given] = Some((finished.bundle, By::Device)),
                    Err(_) => failed.push((finished.given, finished.bundle)),
                }
            }
        }
        waiting.extend(failed);
        // Their owners write to them again while the device may still be reading.
        waiting.iter_mut().for_each(|(_, bundle)| bundle.own_inputs());
    }
}

/// Callers here wait anyway, and their first bundles are pinned during that.
const PATIENCE_MIN: Duration = Duration::from_millis(500);

/// Most matrices announced to a device.
const EXPECTED_MAX: usize = 32;
