//! Large products by a device and all cores at once (Nuclei, IV-E.2).
//!
//! - [`Together::run`] does bundles, which either side reads and writes in place: the device takes
//!   them from the left and the cores from the right until they meet.
//! - [`Together::multiply`] does one product of the caller's rows. The bytes of every row are cut
//!   into ranges, since a range needs only the same bytes of the sources. Cores copy the device's
//!   ranges into bundles and back, which takes their time, too: the device's share follows from
//!   the rates at which cores copy, cores compute and the device computes.
//!
//! The cores compute ranges that the device does not return.

mod bundles;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use recoded_code::engine::{Bundle, Cpu, CpuEngine, Job, Operation};

use crate::config::Config;
use crate::lifecycle::Lifecycle;
use crate::model::{Class, Model};
use crate::runner::OpenEngine;
use crate::slot::Shared;

/// Bytes of each row computed by each side.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Shares {
    /// The device.
    pub device: usize,
    /// The cores.
    pub cores: usize,
    /// The cores' bytes that were first given to the device and not returned.
    pub redone: usize,
}

/// A device and the cores that work with it.
pub struct Together {
    cpu: Arc<Cpu>,
    /// The same cores, in the background; `None` until there are bundles.
    cores: Option<CpuEngine>,
    lifecycle: Lifecycle<Taken>,
    shared: Arc<Shared>,
    /// Returned bundles, for the next ranges: a device has pinned their memory, which takes it
    /// longer than the work. At most the device's limit.
    idle: Vec<Bundle>,
    /// Bytes of results per second that cores compute, and that they copy in both directions; once
    /// measured.
    computed: Option<f64>,
    copied: Option<f64>,
    /// Products that the cores did by themselves since the device last got a part.
    alone: u32,
}

/// Ranges are whole cache lines, so that no two writers share one.
const LINE: usize = 128;

/// Most bytes of sources in one range: a bundle's memory. With half of it, waking the copying
/// threads takes as long as they copy.
const BUNDLE_BYTES_MAX: usize = 8 << 20;

/// Rows of a range are at least this long: less is not worth a bundle.
const RANGE_MIN: usize = 8 * LINE;

/// Products that the faster cores do by themselves before the device is retried.
const ALONE_MAX: u32 = 8;

/// Ranges that the device has before the cores compute a part, and the number whose time on the
/// device equals the cores' time for that part.
const AHEAD: usize = 3;

impl Together {
    /// A device that `open` opens at first use. Mode, slots and bundle ages of `config` do not
    /// matter here. If `cpu` has a thread for every core, the two threads that feed the device wait
    /// for cores: with two fewer, the whole is faster.
    #[must_use]
    pub fn new(cpu: Cpu, config: Config, open: OpenEngine) -> Self {
        let shared = Arc::new(Shared::new(config.mode, Model::new(config.rates), 1));
        let lifecycle = Lifecycle::new(Arc::new(config), Arc::clone(&shared), open);
        let (idle, cpu) = (Vec::new(), Arc::new(cpu));
        Self { cpu, cores: None, lifecycle, shared, idle, computed: None, copied: None, alone: 0 }
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
        let mut work =
            SplitProduct { coefficients, sources, destinations, bytes, left: 0, right: bytes };
        let mut shares = Shares::default();
        self.lifecycle.open_now();
        while work.left < work.right || self.lifecycle.in_flight() > 0 {
            let is_given = self.hand_over(&mut work);
            self.lifecycle.poll();
            self.take_back(&mut work, &mut shares);
            if is_given && self.lifecycle.in_flight() < AHEAD {
                continue;
            }
            if let Some(range) = self.next_of_cores(&work) {
                let begun = Instant::now();
                shares.cores += range.len();
                work.right = range.start;
                work.compute(&self.cpu, range.clone());
                let made = work.results(range.len());
                self.computed = Some(blend(self.computed, made, begun.elapsed()));
            } else if !is_given && self.lifecycle.finished.is_empty() {
                self.lifecycle.wait();
                self.take_back(&mut work, &mut shares);
            }
        }
        self.alone = if shares.device > 0 { 0 } else { self.alone + 1 };
        shares
    }

    /// The device's part of the remaining work. The cores copy that part, at a rate d, and compute
    /// the rest, at a rate c, while the device does it, at a rate k: both end together at f / k = f
    /// / d + (1 - f) / c.
    fn share(&self, work: &SplitProduct<'_, '_>) -> f64 {
        let (Some(computed), Some(copied)) = (self.computed, self.copied) else { return 0.5 };
        if copied <= computed {
            // Only to measure again.
            return if self.alone >= ALONE_MAX { 0.1 } else { 0.0 };
        }
        let (rows, columns) = (work.destinations.len(), work.sources.len());
        let moved = self.shared.model.rates(Class::of(columns)).device_bytes;
        let device = moved * rows as f64 / (rows + columns) as f64;
        let balance = 1.0 / device + 1.0 / computed - 1.0 / copied;
        (1.0 / computed / balance).clamp(0.0, 1.0)
    }

    /// Gives the device a range if it accepts one and there is one for it.
    fn hand_over(&mut self, work: &mut SplitProduct<'_, '_>) -> bool {
        if !self.has_device() || self.lifecycle.is_full() {
            return false;
        }
        let left = work.right - work.left;
        let wanted = (left as f64 * self.share(work)) as usize / LINE * LINE;
        let length = wanted.min(range_max(work.sources.len()));
        if length < RANGE_MIN {
            return false;
        }
        let (range, begun) = (work.left..work.left + length, Instant::now());
        let is_used = !self.idle.is_empty();
        let Some(bundle) = work.bundle(&self.cpu, range.clone(), &mut self.idle) else {
            return false;
        };
        work.left += length;
        let copied = is_used.then(|| begun.elapsed());
        self.lifecycle.send(bundle, Taken::Range { range, copied });
        true
    }

    /// The range that the cores do next, if there is one for them. While there is a device, they
    /// return to it before it runs out of work.
    fn next_of_cores(&self, work: &SplitProduct<'_, '_>) -> Option<Range<usize>> {
        let left = work.right - work.left;
        if left == 0 {
            return None;
        }
        let mut length = left;
        if self.has_device() {
            let share = self.share(work);
            let own = (left as f64 * (1.0 - share)) as usize;
            if own < RANGE_MIN && self.lifecycle.in_flight() > 0 && left > RANGE_MIN {
                return None;
            }
            // The cores' work in the time that the device takes for some ranges.
            let beside = (AHEAD * range_max(work.sources.len())) as f64 * (1.0 - share);
            length = own.min((beside / share.max(0.01)) as usize);
        }
        let length = length.next_multiple_of(LINE).max(RANGE_MIN).min(left);
        Some(work.right - length..work.right)
    }

    /// Takes the device's results; the cores do the failed ranges.
    fn take_back(&mut self, work: &mut SplitProduct<'_, '_>, shares: &mut Shares) {
        for finished in std::mem::take(&mut self.lifecycle.finished) {
            let Taken::Range { range, copied } = finished.given else { continue };
            let begun = Instant::now();
            if finished.result.is_ok() && work.store(&self.cpu, &finished.bundle, range.clone()) {
                self.idle.push(finished.bundle);
                shares.device += range.len();
                if let Some(copied) = copied {
                    let made = work.results(range.len());
                    self.copied = Some(blend(self.copied, made, copied + begun.elapsed()));
                }
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

/// A rate that follows its measurements.
fn blend(old: Option<f64>, bytes: usize, taken: Duration) -> f64 {
    let new = bytes as f64 / taken.as_secs_f64().max(1e-9);
    old.map_or(new, |old| 0.75 * old + 0.25 * new)
}

/// The owner's data of a bundle on the device.
enum Taken {
    /// A range of a product.
    Range {
        range: Range<usize>,
        /// How long it took to copy it there, unless that was to new memory, which takes many times
        /// as long.
        copied: Option<Duration>,
    },
    /// The bundle of that place among those of the caller.
    Bundle(usize),
}

/// The product, and the bytes of its rows that are not assigned yet: `left..right`.
struct SplitProduct<'a, 'b> {
    coefficients: &'a [u8],
    sources: &'a [&'a [u8]],
    destinations: &'a mut [&'b mut [u8]],
    /// Of each row.
    bytes: usize,
    left: usize,
    right: usize,
}

impl SplitProduct<'_, '_> {
    /// Bytes of results in a range of `length` bytes of each row.
    fn results(&self, length: usize) -> usize {
        self.destinations.len() * length
    }

    fn compute(&mut self, cpu: &Cpu, range: Range<usize>) {
        let sources: Vec<&[u8]> = self.sources.iter().map(|row| &row[range.clone()]).collect();
        let rows = self.destinations.iter_mut().map(|row| &mut row[range.clone()]);
        cpu.matmul(self.coefficients, &sources, &mut rows.collect::<Vec<_>>());
    }

    /// A bundle for a range: an idle one, or one with room for any range of this product. All cores
    /// copy its rows: one is slower than the bus.
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
