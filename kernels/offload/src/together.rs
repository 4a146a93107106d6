//! One large product by a device and all cores at once (Nuclei, IV-E.2).
//!
//! The bytes of every row are cut into ranges, since a range needs only the same bytes of the
//! sources. The device takes ranges from the left and the cores from the right until they meet. How
//! large the ranges are follows from how fast either was so far, so that both finish at the same
//! time; what the device does not return, the cores compute.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use recoded_code::engine::{Bundle, Cpu, Job, Operation};

use crate::config::Config;
use crate::lifecycle::Lifecycle;
use crate::model::Model;
use crate::runner::OpenEngine;
use crate::slot::Shared;

/// Who made how many bytes of each row.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Shares {
    /// The device.
    pub device: usize,
    /// The cores.
    pub cores: usize,
    /// Of the cores' part, what the device was given first and did not return.
    pub redone: usize,
}

/// A device and the cores beside it.
pub struct Together {
    cpu: Cpu,
    lifecycle: Lifecycle<Taken>,
    /// Bundles that came back, for the next ranges: a device has pinned their memory, which takes
    /// it longer than the work. As many as it takes at once.
    idle: Vec<Bundle>,
    /// Bytes of a row per second, once measured.
    device_rate: Option<f64>,
    cores_rate: Option<f64>,
}

/// Ranges are whole cache lines, so that no two writers share one.
const LINE: usize = 128;

/// The device's next range is this part of what it should still get: ranges shrink towards the end.
const PART: f64 = 0.5;

/// Bytes of sources in one range at most: what a bundle has memory for.
const BUNDLE_BYTES_MAX: usize = 8 << 20;

/// Rows of a range are at least this long: less is not worth a bundle.
const RANGE_MIN: usize = 8 * LINE;

impl Together {
    /// A device that `open` opens at the first product. Of `config`, mode, slots and ages of
    /// bundles do not matter here.
    #[must_use]
    pub fn new(cpu: Cpu, config: Config, open: OpenEngine) -> Self {
        let shared = Arc::new(Shared::new(config.mode, Model::new(config.rates), 1));
        let lifecycle = Lifecycle::new(Arc::new(config), shared, open);
        Self { cpu, lifecycle, idle: Vec::new(), device_rate: None, cores_rate: None }
    }

    /// Whether the device is in use.
    #[must_use]
    pub fn has_device(&self) -> bool {
        self.lifecycle.device().is_some()
    }

    /// `destinations = coefficients * sources`, row-major coefficients, all rows of one length.
    ///
    /// # Panics
    /// When lengths contradict each other.
    pub fn multiply(
        &mut self,
        coefficients: &[u8],
        sources: &[&[u8]],
        destinations: &mut [&mut [u8]],
    ) -> Shares {
        assert_eq!(coefficients.len(), sources.len() * destinations.len(), "coefficients");
        let bytes = sources.first().map_or(0, |row| row.len());
        assert!(sources.iter().all(|row| row.len() == bytes), "sources of one length");
        assert!(destinations.iter().all(|row| row.len() == bytes), "destinations of one length");
        let mut work = Work { coefficients, sources, destinations, bytes, left: 0, right: bytes };
        let mut shares = Shares::default();
        self.lifecycle.open_now();
        while work.left < work.right || self.lifecycle.in_flight() > 0 {
            self.hand_over(&mut work);
            if let Some(range) = self.next_of_cores(&work) {
                let begun = Instant::now();
                shares.cores += range.len();
                work.right = range.start;
                work.compute(&self.cpu, range.clone());
                let rate = range.len() as f64 / begun.elapsed().as_secs_f64().max(1e-9);
                self.cores_rate = Some(blend(self.cores_rate, rate));
                self.lifecycle.poll();
            } else {
                self.lifecycle.wait();
            }
            self.take_back(&mut work, &mut shares);
        }
        shares
    }

    /// Part of what is left that the device should do: half until both were measured.
    fn share(&self) -> f64 {
        match (self.device_rate, self.cores_rate) {
            (Some(device), Some(cores)) => device / (device + cores),
            _ => 0.5,
        }
    }

    /// Gives the device ranges as long as it takes some and there are any for it.
    fn hand_over(&mut self, work: &mut Work<'_, '_>) {
        let share = self.share();
        while self.has_device() && !self.lifecycle.is_full() {
            let wanted = (work.right - work.left) as f64 * share * PART;
            let length = (wanted as usize / LINE * LINE).min(range_max(work.sources.len()));
            let range = work.left..work.left + length;
            if length < RANGE_MIN {
                return;
            }
            let Some(bundle) = work.bundle(&self.cpu, range.clone(), &mut self.idle) else {
                return;
            };
            work.left += length;
            self.lifecycle.send(bundle, Taken { range, since: Instant::now() });
        }
    }

    /// The range that the cores do next: all that is left when there is no device to leave it to.
    fn next_of_cores(&self, work: &Work<'_, '_>) -> Option<Range<usize>> {
        let left = work.right - work.left;
        let share = 1.0 - self.share();
        let part = if self.has_device() { left as f64 * share * PART } else { left as f64 };
        let length = (part as usize).next_multiple_of(LINE).max(RANGE_MIN).min(left);
        (left > 0).then(|| work.right - length..work.right)
    }

    /// Takes what the device has done; what it did not do, the cores do.
    fn take_back(&mut self, work: &mut Work<'_, '_>, shares: &mut Shares) {
        for finished in std::mem::take(&mut self.lifecycle.finished) {
            let Taken { range, since } = finished.given;
            if finished.result.is_ok() && work.store(&self.cpu, &finished.bundle, range.clone()) {
                self.idle.push(finished.bundle);
                shares.device += range.len();
                let rate = range.len() as f64 / since.elapsed().as_secs_f64().max(1e-9);
                let rate = rate * (self.lifecycle.in_flight() + 1) as f64;
                self.device_rate = Some(blend(self.device_rate, rate));
            } else {
                shares.cores += range.len();
                shares.redone += range.len();
                work.compute(&self.cpu, range);
            }
        }
    }
}

/// Bytes of the longest range of a product of that many sources.
fn range_max(columns: usize) -> usize {
    (BUNDLE_BYTES_MAX / columns.max(1)).max(RANGE_MIN) / LINE * LINE
}

/// A rate that follows what is measured.
fn blend(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| 0.5 * (old + new))
}

/// A range that the device has.
struct Taken {
    range: Range<usize>,
    since: Instant,
}

/// The product, and the bytes of its rows that are not assigned yet: `left..right`.
struct Work<'a, 'b> {
    coefficients: &'a [u8],
    sources: &'a [&'a [u8]],
    destinations: &'a mut [&'b mut [u8]],
    /// Of each row.
    bytes: usize,
    left: usize,
    right: usize,
}

impl Work<'_, '_> {
    fn compute(&mut self, cpu: &Cpu, range: Range<usize>) {
        let sources: Vec<&[u8]> = self.sources.iter().map(|row| &row[range.clone()]).collect();
        let rows = self.destinations.iter_mut().map(|row| &mut row[range.clone()]);
        cpu.matmul(self.coefficients, &sources, &mut rows.collect::<Vec<_>>());
    }

    /// A bundle for a range: an idle one, or one with room for any range of this product.
    /// Its rows are copied by all cores: one is slower than the bus.
    fn bundle(&self, cpu: &Cpu, range: Range<usize>, idle: &mut Vec<Bundle>) -> Option<Bundle> {
        let (rows, columns) = (self.destinations.len(), self.sources.len());
        let job = |bytes| Job::new(Operation::Multiply, rows, columns, bytes);
        let mut bundle = idle.pop().unwrap_or_else(|| Bundle::new(0, 0, 1));
        bundle.clear();
        if !bundle.has_room(&job(range.len())) {
            let largest = job(range_max(columns).min(self.bytes));
            bundle = Bundle::new(largest.input_bytes(), largest.output_bytes(), 1);
        }
        bundle.push(job(range.len()), 0).ok()?;
        bundle.set_coefficients(0, self.coefficients);
        let rows: Vec<&[u8]> = self.sources.iter().map(|row| &row[range.clone()]).collect();
        cpu.copy(&rows, &mut bundle.sources_mut(0));
        Some(bundle)
    }

    fn store(&mut self, cpu: &Cpu, bundle: &Bundle, range: Range<usize>) -> bool {
        let made = (0..self.destinations.len()).map(|row| bundle.destination(0, row));
        let Ok(made) = made.collect::<Result<Vec<_>, _>>() else { return false };
        let rows = self.destinations.iter_mut().map(|row| &mut row[range.clone()]);
        cpu.copy(&made, &mut rows.collect::<Vec<_>>());
        true
    }
}
