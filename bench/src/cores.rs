//! Cores: which may be used, pinning, and how they spent their time.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::BenchError;

/// Cores this process may run on.
///
/// # Errors
/// [`BenchError::Os`].
pub fn allowed() -> Result<Vec<usize>, BenchError> {
    let set = sched_getaffinity(None).map_err(BenchError::os("asking which cores may be used"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Pins the calling thread to `core`.
///
/// # Errors
/// [`BenchError::Os`].
pub fn pin(core: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(BenchError::os(format!("pinning to core {core}")))
}

/// A core's time by use, in clock ticks since boot.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ticks {
    user: u64,
    system: u64,
    softirq: u64,
    idle: u64,
    steal: u64,
}

/// A core's time by use in an interval, as shares that sum to 1.
#[derive(Copy, Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct CoreShares {
    /// In programs.
    pub user: f64,
    /// In Linux, on behalf of programs.
    pub system: f64,
    /// In Linux, on behalf of devices.
    pub softirq: f64,
    /// Idle.
    pub idle: f64,
    /// Taken by the hypervisor for other guests.
    pub steal: f64,
}

impl Ticks {
    /// Reads the counters of `cores`, and adds them.
    ///
    /// # Errors
    /// [`BenchError::Os`].
    pub fn read(cores: &[usize]) -> Result<Ticks, BenchError> {
        let text =
            fs::read_to_string("/proc/stat").map_err(BenchError::os("reading /proc/stat"))?;
        let mut sums = [0_u64; 8];
        for core in cores {
            let name = format!("cpu{core}");
            let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
            let values =
                line.unwrap_or_default().split(' ').filter_map(|value| value.parse::<u64>().ok());
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
        // user nice system idle iowait irq softirq steal
        let at = |index: usize| sums[index];
        Ok(Ticks {
            user: at(0) + at(1),
            system: at(2),
            softirq: at(5) + at(6),
            idle: at(3) + at(4),
            steal: at(7),
        })
    }

    /// Shares of the interval from `earlier` to `self`.
    pub fn since(&self, earlier: &Ticks) -> CoreShares {
        let differences = [
            self.user - earlier.user,
            self.system - earlier.system,
            self.softirq - earlier.softirq,
            self.idle.saturating_sub(earlier.idle),
            self.steal - earlier.steal,
        ];
        let sum = differences.iter().sum::<u64>().max(1) as f64;
        let [user, system, softirq, idle, steal] = differences.map(|ticks| ticks as f64 / sum);
        CoreShares { user, system, softirq, idle, steal }
    }
}

impl CoreShares {
    /// All that Linux did.
    pub fn linux(&self) -> f64 {
        self.system + self.softirq
    }
}

/// Requests a higher priority for this process and the threads it starts. True if granted.
pub fn prefer_this_process() -> bool {
    rustix::process::setpriority_process(None, -20).is_ok()
}
