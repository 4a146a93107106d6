//! Processor time of this thread: time of other programs does not count, time of the hypervisor
//! mostly does.

use rustix::time::{ClockId, clock_gettime};

/// Seconds of processor time that this thread has used.
pub fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
