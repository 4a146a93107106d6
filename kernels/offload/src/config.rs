//! Settings of operators and tests.

use std::time::Duration;

use recoded_code::engine::{Bundle, check};

/// The processor of bulk work.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The device if it is measured to be faster.
    #[default]
    Auto,
    /// The CPU always.
    Cpu,
    /// The device whenever it works, however slow: for comparisons.
    Device,
}

/// Share of a bundle that the CPU recomputes to check the device.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum SpotCheck {
    /// Nothing.
    Off,
    /// One job per bundle, multiplied by a random vector: any wrong byte in it shows, except with a
    /// probability of 1/256; in a large job, any in the part that is drawn (`check::CHECKED_MAX`).
    #[default]
    Product,
    /// Everything: for tests of devices that return one wrong result.
    All,
}

impl SpotCheck {
    /// Whether a returned bundle passes; `state` is that of a generator.
    pub(crate) fn passes(self, bundle: &Bundle, state: &mut u64) -> bool {
        match self {
            Self::Off => true,
            Self::Product => {
                // Weyl's sequence with a mixer (SplitMix64): a device cannot target particular
                // jobs.
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                check::spot_check(bundle, mixed ^ (mixed >> 27))
            }
            Self::All => check::agrees(bundle),
        }
    }
}

/// Settings of a queue. The default suits a 10 to 100 Gbit/s node with one card.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The initial mode; [`Offload::set_mode`](crate::Offload::set_mode) changes it.
    pub mode: Mode,
    /// Slots of each worker: one being filled, the others with the dispatcher or the device.
    pub slots_per_port: usize,
    /// Bytes of inputs, and bytes of outputs, of a slot. Copies reach 80 % of a card's rate at
    /// about 1 MB, 90 % at 2.5 MB; larger ones only wait longer.
    pub slot_bytes: usize,
    /// Most jobs of a slot.
    pub slot_jobs: usize,
    /// A slot is submitted when it holds this many bytes of inputs and outputs.
    pub bundle_bytes: usize,
    /// A slot is submitted when its oldest job has waited this long.
    pub bundle_age: Duration,
    /// Jobs are declined when they would return later than this, by estimate.
    pub latency_max: Duration,
    /// Jobs of fewer source rows than this many per worker are declined: a core then feeds its
    /// vector units faster than any bus feeds a card. Measured against 0.18e12 products per second
    /// and core, and 55 GB/s of PCIe.
    pub columns_per_worker_min: f64,
    /// A device that takes longer than this many times the estimate is late: the CPU does the
    /// bundle, and the device gets no other until it has returned this one.
    pub watchdog_factor: u32,
    /// The least time for that.
    pub watchdog_min: Duration,
    /// A device that has not returned a bundle after this long, and twice the time after which it
    /// is late, has hung. Cards stall for tens of milliseconds if they are shared.
    pub hang_min: Duration,
    /// How long callers wait for a device to be opened, tested and measured. The drivers of large
    /// machines take ten seconds and more; they are not interrupted after that either.
    pub open_timeout: Duration,
    /// The first pause before a failed device is retried; doubled each time.
    pub retry_min: Duration,
    /// The longest such pause.
    pub retry_max: Duration,
    /// A device that hung this many times without completing a bundle in between is abandoned: each
    /// time takes memory and a thread with it.
    pub hangs_max: u32,
    /// Checks of results.
    pub spot_check: SpotCheck,
    /// Threads that redo failed device work in the dispatcher.
    pub cpu_threads: usize,
    /// Whether CPU and device are measured before use; otherwise `rates` apply until work is done.
    pub measure: bool,
    /// Rates assumed before any measurement.
    pub rates: crate::Rates,
    /// Seed of random draws: spot checks.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            slots_per_port: 4,
            slot_bytes: 2 << 20,
            slot_jobs: 256,
            bundle_bytes: 2 << 20,
            bundle_age: Duration::from_micros(100),
            latency_max: Duration::from_millis(5),
            columns_per_worker_min: 3.3,
            watchdog_factor: 10,
            watchdog_min: Duration::from_millis(20),
            hang_min: Duration::from_millis(500),
            open_timeout: Duration::from_secs(120),
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_secs(300),
            hangs_max: 3,
            spot_check: SpotCheck::default(),
            cpu_threads: 1,
            measure: true,
            rates: crate::Rates::default(),
            seed: 1,
        }
    }
}
