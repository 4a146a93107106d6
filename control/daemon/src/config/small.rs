//! Defaults of `frames`, `memory` and `standby` by the memory of the box.
//!
//! A box below [`SMALL_BYTES`] is a router or a small container. There, packet buffers of 32 MiB
//! and a budget of 512 MiB end in a killed process. What is written in the file stays.

use super::budget::MEMORY_DEFAULT;
use crate::memory::Memory;
use std::sync::OnceLock;

/// Boxes with at least this memory get the usual defaults, which take 45 to 80 MB when idle and
/// 50 MB for each stream.
const SMALL_BYTES: u64 = 256 << 20;

/// A small box has this part of the usual packet buffers: 8 MiB, 40 ms at a Gbit/s.
const FRAMES_PART: u32 = 4;

/// The part of a small box's memory that packets and flows may take.
const MEMORY_PART: u64 = 4;

/// The least budget: buffers, the queue of a tunnel, and a stream in each direction.
const MEMORY_MIN: u64 = 32 << 20;

/// The defaults.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// Of `memory`, for the usual number of flows.
    pub memory: u64,
    /// The largest default of `memory`, however many flows there are.
    pub memory_max: u64,
    /// Of `standby`.
    pub standby: bool,
    /// The usual number of packet buffers is divided by this.
    pub frames_part: u32,
}

impl Defaults {
    /// Those of the box that this process runs on.
    pub fn here() -> Defaults {
        static HERE: OnceLock<Defaults> = OnceLock::new();
        *HERE.get_or_init(|| Defaults::of(Memory::here().total()))
    }

    /// Those of a box with this much memory in bytes; the usual ones if it is unknown.
    pub fn of(total: Option<u64>) -> Defaults {
        match total.filter(|total| *total < SMALL_BYTES) {
            Some(total) => {
                let memory = (total / MEMORY_PART).max(MEMORY_MIN) >> 20 << 20;
                let frames_part = FRAMES_PART;
                Defaults { memory, memory_max: memory, standby: false, frames_part }
            }
            None => {
                let memory_max = total.map_or(MEMORY_DEFAULT, |total| total / 2);
                let memory = MEMORY_DEFAULT;
                Defaults { memory, memory_max, standby: true, frames_part: 1 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_below_256_mib_gets_less_and_others_get_the_usual_defaults() {
        let memory = 512 << 20;
        let usual = Defaults { memory, memory_max: memory, standby: true, frames_part: 1 };
        assert_eq!(Defaults::of(None), usual);
        let half = |memory_max: u64| Defaults { memory_max, ..usual };
        assert_eq!(Defaults::of(Some(256 << 20)), half(128 << 20));
        assert_eq!(Defaults::of(Some(8 << 30)), half(4 << 30));
        for (total, memory) in [(64, 32), (121, 32), (240, 60)] {
            let small = Defaults::of(Some(total << 20));
            let memory = memory << 20;
            let expected = Defaults { memory, memory_max: memory, standby: false, frames_part: 4 };
            assert_eq!(small, expected);
        }
    }
}
