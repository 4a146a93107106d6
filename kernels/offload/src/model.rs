//! Measured costs of the CPU and the device, and the choice between them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use recoded_code::engine::{Bundle, Job};

/// Jobs of about the same cost per byte: those whose numbers of source rows have the same number of
/// bits, and which invert their coefficients or do not.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Class(usize);

impl Class {
    /// Every class: products of 1, 2..=3, 4..=7 and on to 1024 source rows, then the same with
    /// inverses.
    pub const ALL: [Self; CLASSES] = {
        let mut all = [Self(0); CLASSES];
        let mut class = 0;
        while class < CLASSES {
            all[class] = Self(class);
            class += 1;
        }
        all
    };

    /// The class of products of `columns` source rows.
    #[must_use]
    pub fn of(columns: usize) -> Self {
        Self((columns.max(1).ilog2() as usize).min(SIZES - 1))
    }

    /// The class of a job.
    #[must_use]
    pub fn of_job(job: &Job) -> Self {
        let Self(size) = Self::of(job.columns);
        Self(if job.operation.inverts() { SIZES + size } else { size })
    }

    /// The class of most of the work of a bundle.
    #[must_use]
    pub fn of_bundle(bundle: &Bundle) -> Self {
        let heaviest = bundle.jobs().iter().map(|placed| placed.job).max_by_key(Job::products);
        heaviest.map_or(Self(0), |job| Self::of_job(&job))
    }

    /// The fewest source rows of the class.
    #[must_use]
    pub const fn columns(self) -> usize {
        1 << (self.0 % SIZES)
    }

    /// Whether its jobs invert their coefficients.
    #[must_use]
    pub const fn inverts(self) -> bool {
        self.0 >= SIZES
    }

    /// Its place in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self.0
    }
}

/// Initial rates.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Rates {
    /// Products of a coefficient and a byte per second, of one core.
    pub cpu_products: f64,
    /// Bytes of inputs and outputs per second, through the device and back.
    pub device_bytes: f64,
    /// Fixed seconds of a bundle, however small.
    pub device_start: f64,
}

impl Default for Rates {
    /// A core with GFNI and a card on PCIe 5.0; computed, not measured.
    fn default() -> Self {
        Self { cpu_products: 0.18e12, device_bytes: 100e9, device_start: 20e-6 }
    }
}

/// Cost of a device for bundles of a class.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Cost {
    /// Seconds of the smallest bundle.
    pub start: f64,
    /// Bytes of inputs and outputs per second, for consecutive bundles.
    pub bytes: f64,
}

/// Measured rates, written by the dispatcher, read by workers.
pub struct Model {
    cpu_products: [Number; CLASSES],
    device_bytes: [Number; CLASSES],
    device_start: [Number; CLASSES],
    /// Whether jobs of a class go to the device: kept until the other side is clearly better.
    is_offloaded: [AtomicBool; CLASSES],
    /// Jobs of a class declined since the last one was taken.
    declined: [AtomicU32; CLASSES],
}

impl Model {
    /// A model that assumes `rates` until something is measured.
    #[must_use]
    pub fn new(rates: Rates) -> Self {
        Self {
            cpu_products: [const { Number::new() }; CLASSES].map(|n| n.with(rates.cpu_products)),
            device_bytes: [const { Number::new() }; CLASSES].map(|n| n.with(rates.device_bytes)),
            device_start: [const { Number::new() }; CLASSES].map(|n| n.with(rates.device_start)),
            is_offloaded: [const { AtomicBool::new(false) }; CLASSES],
            declined: [const { AtomicU32::new(0) }; CLASSES],
        }
    }

    /// The present rates of a class.
    #[must_use]
    pub fn rates(&self, class: Class) -> Rates {
        Rates {
            cpu_products: self.cpu_products[class.0].get(),
            device_bytes: self.device_bytes[class.0].get(),
            device_start: self.device_start[class.0].get(),
        }
    }

    /// Seconds until `bytes` have passed through the device.
    #[must_use]
    pub fn device_seconds(&self, class: Class, bytes: u64) -> f64 {
        self.device_start[class.0].get() + bytes as f64 / self.device_bytes[class.0].get()
    }

    /// Seconds that `cores` take for that many products.
    #[must_use]
    pub fn cpu_seconds(&self, class: Class, products: u64, cores: usize) -> f64 {
        products as f64 / (self.cpu_products[class.0].get() * cores.max(1) as f64)
    }

    /// Least bytes of inputs and outputs that make the device faster than `cores`, for products of
    /// as many rows as columns; `None` if it never is.
    #[must_use]
    pub fn break_even_bytes(&self, columns: usize, cores: usize) -> Option<u64> {
        let class = Class::of(columns);
        // Half of the bytes are outputs; each takes `columns` products.
        let cpu = columns as f64 / 2.0 / (self.cpu_products[class.0].get() * cores.max(1) as f64);
        let gain = cpu - 1.0 / self.device_bytes[class.0].get();
        (gain > 0.0).then(|| (self.device_start[class.0].get() / gain).ceil() as u64)
    }

    /// Whether work that takes the device `device` seconds and the CPU `cpu` goes to the device.
    /// Occasionally a job of a class that does not is still accepted, to measure again.
    pub(crate) fn prefers_device(&self, class: Class, device: f64, cpu: f64) -> bool {
        let state = &self.is_offloaded[class.0];
        let before = state.load(Ordering::Relaxed);
        let limit = if before { cpu } else { cpu * ENTER_SHARE };
        let after = device < limit;
        if before != after {
            state.store(after, Ordering::Relaxed);
        }
        if after {
            return true;
        }
        self.declined[class.0].fetch_add(1, Ordering::Relaxed) % EXPLORE_EVERY == EXPLORE_EVERY - 1
    }

    /// Records that `bytes` passed through the device in `taken`, without others if `was_idle`.
    pub(crate) fn device_took(&self, class: Class, bytes: u64, taken: Duration, was_idle: bool) {
        let seconds = taken.as_secs_f64();
        if was_idle && bytes <= START_BYTES_MAX {
            return self.device_start[class.0].learn(seconds);
        }
        let start = if was_idle { self.device_start[class.0].get() } else { 0.0 };
        // An overestimated start must not make a rate infinite.
        let moving = (seconds - start).max(seconds / 8.0).max(f64::MIN_POSITIVE);
        self.device_bytes[class.0].learn(bytes as f64 / moving);
    }

    /// Records that `threads` threads did that many products in `taken`.
    pub(crate) fn cpu_took(&self, class: Class, products: u64, taken: Duration, threads: usize) {
        let seconds = taken.as_secs_f64();
        if products >= CPU_PRODUCTS_MIN && seconds > 0.0 {
            self.cpu_products[class.0].learn(products as f64 / seconds / threads.max(1) as f64);
        }
    }

    /// Adopts the initial measurement.
    pub(crate) fn set_device(&self, costs: &[Cost; CLASSES]) {
        for (class, cost) in costs.iter().enumerate() {
            self.device_start[class].set(cost.start);
            self.device_bytes[class].set(cost.bytes);
        }
    }

    pub(crate) fn set_cpu(&self, class: Class, products: f64) {
        self.cpu_products[class.0].set(products);
    }
}

/// A positive number, averaged over its measurements. Relaxed: it is independent.
struct Number(AtomicU64);

impl Number {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn with(self, value: f64) -> Self {
        self.set(value);
        self
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Only the dispatcher updates, so that nothing is lost between the two halves.
    fn learn(&self, value: f64) {
        if value.is_finite() && value > 0.0 {
            self.set(self.get() + WEIGHT * (value - self.get()));
        }
    }
}

/// 1 to 1024 source rows.
const SIZES: usize = 11;

/// For products and for inverses.
pub(crate) const CLASSES: usize = 2 * SIZES;

/// Weight of a new measurement in the average: about the last ten count.
const WEIGHT: f64 = 0.2;

/// Work moves to the device when that takes less than this share of the CPU's time, and back when
/// it takes more than the CPU's: in between it stays where it is.
const ENTER_SHARE: f64 = 0.8;

/// Of this many jobs that the CPU is better at, one is accepted, so that a card that was busy once
/// is not avoided indefinitely.
const EXPLORE_EVERY: u32 = 1024;

/// Bundles up to this size show the cost of a start, as their bytes take next to nothing.
const START_BYTES_MAX: u64 = 16 << 10;

/// Fewer products take less time than is worth reading the clock.
const CPU_PRODUCTS_MIN: u64 = 1 << 18;

#[cfg(test)]
mod tests {
    use recoded_code::engine::Operation;

    use super::*;

    /// An inversion of 1024 columns takes a card milliseconds, a product of them microseconds: a
    /// model of one class for both would offload neither or both.
    #[test]
    fn inverses_have_costs_of_their_own() {
        let model = Model::new(Rates::default());
        let [product, inverse] =
            [Operation::Multiply, Operation::Solve].map(|o| Class::of_job(&Job::new(o, 99, 99, 9)));
        let before = model.device_seconds(product, 1 << 20);
        for _ in 0..50 {
            model.device_took(inverse, 1 << 20, Duration::from_millis(25), true);
            model.device_took(inverse, 1 << 10, Duration::from_millis(3), true);
        }
        assert_eq!(model.device_seconds(product, 1 << 20), before);
        assert!((model.device_seconds(inverse, 1 << 20) / 25e-3 - 1.0).abs() < 0.1);
    }

    /// The table of break-even sizes for GPUs: 20 us to start, 55 GB/s each way.
    #[test]
    fn break_even_matches_the_computed_table() {
        let rates = Rates { cpu_products: 0.18e12, device_bytes: 55e9, device_start: 20e-6 };
        let model = Model::new(rates);
        // Bytes of segments in the table, of segments in and out here.
        let of = |n, cores| model.break_even_bytes(n, cores).map(|bytes| bytes / 2);
        assert!(of(16, 4).is_none() && of(64, 64).is_none());
        let near = |bytes: Option<u64>, expected: f64| {
            let bytes = bytes.expect("the device wins") as f64;
            assert!((bytes / expected - 1.0).abs() < 0.02, "{bytes} instead of {expected}");
        };
        near(of(128, 1), 30e3);
        near(of(128, 4), 141e3);
        near(of(256, 16), 381e3);
        near(of(1024, 64), 381e3);
    }

    #[test]
    fn preference_has_hysteresis_and_explores() {
        let model = Model::new(Rates::default());
        let class = Class::of(128);
        assert!(!model.prefers_device(class, 0.9, 1.0), "not clearly better");
        assert!(model.prefers_device(class, 0.7, 1.0));
        assert!(model.prefers_device(class, 0.9, 1.0), "stays");
        assert!(!model.prefers_device(class, 1.1, 1.0));
        assert!(!model.prefers_device(class, 0.9, 1.0), "stays away");
        let taken =
            (0..2 * EXPLORE_EVERY).filter(|_| model.prefers_device(class, 2.0, 1.0)).count();
        assert_eq!(taken, 2);
    }

    #[test]
    fn rates_follow_what_is_measured() {
        let model = Model::new(Rates { cpu_products: 1e9, device_bytes: 1e9, device_start: 1e-3 });
        let class = Class::of(200);
        for _ in 0..100 {
            model.device_took(class, 1 << 20, Duration::from_millis(2), false);
            model.cpu_took(class, 1 << 30, Duration::from_secs(1), 2);
            model.device_took(class, 100, Duration::from_micros(50), true);
        }
        let Rates { cpu_products, device_bytes, device_start } = model.rates(class);
        assert!((device_bytes / (500.0 * 1048576.0) - 1.0).abs() < 0.01);
        assert!((cpu_products / 536870912.0 - 1.0).abs() < 0.01);
        assert!((device_start / 50e-6 - 1.0).abs() < 0.01);
        assert_eq!(model.rates(Class::of(16)).device_bytes, 1e9, "other classes are untouched");
    }

    #[test]
    fn classes_cover_all_jobs() {
        assert_eq!(Class::of(0), Class::of(1));
        assert_eq!(Class::of(1024), Class::ALL[SIZES - 1]);
        let solve = Class::of_job(&Job::new(Operation::Solve, 1024, 1024, 1));
        assert_eq!(solve, Class::ALL[CLASSES - 1]);
        assert_eq!((solve.columns(), solve.inverts()), (1024, true));
        assert_eq!(Class::of(1023).columns(), 512);
    }
}
