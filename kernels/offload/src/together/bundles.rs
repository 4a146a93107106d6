//! Bundles by a device and all cores at once, without a copy.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Completed, CpuEngine, Engine};

use super::{Taken, Together};
use crate::device::By;
use crate::model::Class;
use crate::slot::bytes;

/// How long device and cores are polled without sleeping.
const AWAKE: Duration = Duration::from_millis(2);

/// Interval between polls after that.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// The cores take a bundle if they would finish it in this part of the time that the device takes
/// for all remaining ones: everybody waits for late cores.
const CORES_MARGIN: f64 = 0.75;

/// Bundles of the cores: one in progress, one waiting.
const CORES_DEPTH: usize = 2;

impl Together {
    /// Does all bundles, each on the device or on the cores, and returns them in their order. Takes
    /// at most about as long as the faster side by itself (2 % longer if a card does nearly all);
    /// with bundles of a few hundred microseconds both end at the same time.
    #[must_use]
    pub fn run(&mut self, bundles: Vec<Bundle>) -> Vec<(Bundle, By)> {
        let mut work = BundleQueue::new(bundles);
        self.lifecycle.open_now();
        let mut last = Instant::now();
        while work.missing > 0 {
            self.feed_device(&mut work);
            self.feed_cores(&mut work);
            let before = work.missing + work.failed.len();
            self.lifecycle.poll();
            self.collect(&mut work);
            if before != work.missing + work.failed.len() {
                last = Instant::now();
            } else if last.elapsed() < AWAKE {
                thread::yield_now();
            } else {
                thread::sleep(POLL_INTERVAL);
            }
        }
        work.done.into_iter().flatten().collect()
    }

    fn feed_device(&mut self, work: &mut BundleQueue) {
        while self.has_device()
            && !self.lifecycle.is_full()
            && let Some((place, bundle)) = work.waiting.pop_front()
        {
            work.at_device += bytes(&bundle);
            self.lifecycle.send(bundle, Taken::Bundle(place));
        }
    }

    /// Gives the cores bundles, from the end, that the device would not finish any sooner.
    fn feed_cores(&mut self, work: &mut BundleQueue) {
        while work.at_cores.len() < CORES_DEPTH {
            if work.failed.is_empty() && !self.is_work_for_cores(work) {
                return;
            }
            let next = work.failed.pop().or_else(|| work.waiting.pop_back());
            let Some((place, bundle)) = next else { return };
            let (class, products) = (Class::of_bundle(&bundle), bundle.products());
            if self.cores.is_none() {
                self.cores = CpuEngine::of(Arc::clone(&self.cpu)).ok();
            }
            let sent = Instant::now();
            let refused = match &mut self.cores {
                Some(cores) => cores.submit(bundle).err().map(|refused| *refused.bundle),
                None => Some(bundle),
            };
            match refused {
                None => work.at_cores.push_back(Flight { place, class, products, sent }),
                // Linux refuses a thread: done here instead.
                Some(mut bundle) => {
                    self.cpu.run(&mut bundle);
                    work.finish(place, bundle, By::Cpu);
                }
            }
        }
    }

    /// Whether the cores would finish the last bundle before the device has finished all others.
    fn is_work_for_cores(&self, work: &BundleQueue) -> bool {
        let Some((_, last)) = work.waiting.back() else { return false };
        if !self.has_device() {
            return true;
        }
        let (model, class) = (&self.shared.model, Class::of_bundle(last));
        let products: u64 = work.at_cores.iter().map(|flight| flight.products).sum();
        let waiting: u64 = work.waiting.iter().map(|(_, bundle)| bytes(bundle)).sum();
        let cores = model.cpu_seconds(class, products + last.products(), self.cpu.threads());
        let device = (waiting + work.at_device) as f64 / model.rates(class).device_bytes;
        cores < CORES_MARGIN * device
    }

    /// Takes the results of either side.
    fn collect(&mut self, work: &mut BundleQueue) {
        for finished in std::mem::take(&mut self.lifecycle.finished) {
            let (Taken::Bundle(place), mut bundle) = (finished.given, finished.bundle) else {
                continue;
            };
            work.at_device = work.at_device.saturating_sub(bytes(&bundle));
            if finished.result.is_ok() {
                work.finish(place, bundle, By::Device);
            } else {
                // Its owner writes to it again while the device may still be reading.
                bundle.own_inputs();
                work.failed.push((place, bundle));
            }
        }
        while let Some(Completed { bundle, .. }) = self.cores.as_mut().and_then(CpuEngine::poll) {
            // They finish in order.
            let Some(flight) = work.at_cores.pop_front() else { return };
            let now = Instant::now();
            let begun = work.cores_done.map_or(flight.sent, |done| done.max(flight.sent));
            work.cores_done = Some(now);
            let (class, threads) = (flight.class, self.cpu.threads());
            self.shared.model.cpu_took(class, flight.products, now - begun, threads);
            work.finish(flight.place, bundle, By::Cpu);
        }
    }
}

/// The bundles of a caller.
struct BundleQueue {
    /// Not assigned yet; the device takes the first, the cores the last.
    waiting: VecDeque<(usize, Bundle)>,
    /// For the cores: the device failed to do them.
    failed: Vec<(usize, Bundle)>,
    done: Vec<Option<(Bundle, By)>>,
    /// Number of unfinished bundles.
    missing: usize,
    /// Bytes that the device has.
    at_device: u64,
    at_cores: VecDeque<Flight>,
    /// When the cores last finished one.
    cores_done: Option<Instant>,
}

/// A bundle that the cores have.
struct Flight {
    place: usize,
    class: Class,
    products: u64,
    sent: Instant,
}

impl BundleQueue {
    fn new(bundles: Vec<Bundle>) -> Self {
        Self {
            done: bundles.iter().map(|_| None).collect(),
            missing: bundles.len(),
            waiting: bundles.into_iter().enumerate().collect(),
            failed: Vec::new(),
            at_device: 0,
            at_cores: VecDeque::new(),
            cores_done: None,
        }
    }

    fn finish(&mut self, place: usize, bundle: Bundle, by: By) {
        self.done[place] = Some((bundle, by));
        self.missing -= 1;
    }
}
