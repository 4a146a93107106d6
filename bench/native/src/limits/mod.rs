//! Probes: loops of one kind of instruction, which measure its peak rate on a core.
//!
//! The only result of a probe is its time. [`Kind::Products`] runs in registers only. The others
//! walk over a buffer repeatedly, and its size decides which cache they measure. There is one probe
//! per vector width, because the widest is not the fastest on every processor.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as arch;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use portable as arch;
#[cfg(target_arch = "x86_64")]
use x86_64 as arch;

/// Operation of a probe, which defines how its bytes are counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Products of a byte and a constant, in registers. Counted in products.
    Products,
    /// Loads of a whole buffer. Counted in bytes loaded.
    Load,
    /// Stores to a whole buffer. Counted in bytes stored.
    Store,
    /// `dst ^= src` of the two halves of a buffer: two loads and a store. Counted in bytes stored.
    Add,
}

/// One loop.
#[derive(Copy, Clone, Debug)]
pub struct Probe {
    /// Operation of the probe.
    pub kind: Kind,
    /// The instruction and the width of its registers, for display.
    pub name: &'static str,
    /// Bytes of a vector register.
    pub vector_bytes: usize,
    is_available: fn() -> bool,
    /// May only be called when `is_available` has returned true, with a buffer of whole
    /// [`BLOCK_BYTES`] (for [`Kind::Products`] it may be empty).
    pass: unsafe fn(buffer: &mut [u8], times: usize),
    /// For [`Kind::Products`]: products per pass.
    products: usize,
}

impl Probe {
    /// Runs the loop `times` times over `buffer`, ignoring a tail shorter than [`BLOCK_BYTES`].
    /// Returns the number of bytes (or products) processed.
    pub fn run(&self, buffer: &mut [u8], times: usize) -> usize {
        let whole = buffer.len() / BLOCK_BYTES * BLOCK_BYTES;
        // SAFETY: probes leave this module through `available` alone, which asked the processor,
        // and the buffer is whole blocks.
        unsafe { (self.pass)(&mut buffer[..whole], times) };
        let bytes = match self.kind {
            Kind::Products => self.products,
            Kind::Load | Kind::Store => whole,
            Kind::Add => whole / 2,
        };
        bytes * times
    }
}

/// The probes of a kind that this processor can run, narrow vectors first.
pub fn available(kind: Kind) -> impl Iterator<Item = Probe> {
    arch::PROBES.iter().filter(move |probe| probe.kind == kind && (probe.is_available)()).copied()
}

/// Loops process blocks: eight of the widest registers for each half of a buffer.
pub const BLOCK_BYTES: usize = 1024;

/// Independent chains of dependent instructions: more than any pipeline has stages, fewer than
/// there are registers, so that the issue rate is the limit.
const CHAINS: usize = 12;

/// Repetitions per pass of a loop in registers: enough to hide the cost of entry and exit.
const STEPS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_probe_that_counts_what_it_does() {
        let mut buffer = vec![1; 4 * BLOCK_BYTES + 5];
        for (kind, bytes) in [(Kind::Load, 4096), (Kind::Store, 4096), (Kind::Add, 2048)] {
            assert!(available(kind).count() > 0, "{kind:?}");
            for probe in available(kind) {
                assert_eq!(probe.run(&mut buffer, 3), 3 * bytes, "{}", probe.name);
            }
        }
        for probe in available(Kind::Products) {
            let once = probe.run(&mut [], 1);
            assert!(once >= probe.vector_bytes && probe.run(&mut [], 3) == 3 * once);
        }
    }

    #[test]
    fn add_probe_adds_the_second_half_to_the_first() {
        for probe in available(Kind::Add) {
            let mut buffer: Vec<u8> = (0..2 * BLOCK_BYTES).map(|index| (index / 9) as u8).collect();
            let before = buffer.clone();
            probe.run(&mut buffer, 1);
            let (sum, rest) = buffer.split_at(BLOCK_BYTES);
            let right = (0..BLOCK_BYTES).all(|at| sum[at] == before[at] ^ before[BLOCK_BYTES + at]);
            assert!(right, "{}", probe.name);
            assert_eq!(rest, &before[BLOCK_BYTES..], "{}", probe.name);
        }
    }

    #[test]
    fn rest_of_a_buffer_is_left_alone() {
        for probe in arch::PROBES.iter().filter(|probe| (probe.is_available)()) {
            let mut buffer = vec![7; BLOCK_BYTES + 64];
            probe.run(&mut buffer, 2);
            assert_eq!(buffer[BLOCK_BYTES..], [7; 64], "{}", probe.name);
        }
    }
}
