//! Buffers for the kernel suite: slices at odd places, guarded.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

#[cfg(all(unix, not(miri)))]
pub mod edge;

/// Guard bytes between slices: more than the widest vector.
const GUARD_BYTES: usize = 96;

/// Equally long slices in one buffer of random bytes, each at a random alignment and with guards
/// on both sides. Equality covers the guards.
#[derive(Clone, PartialEq)]
pub struct Arena {
    buffer: Vec<u8>,
    starts: Vec<usize>,
    bytes: usize,
}

impl Arena {
    pub fn random(rng: &mut ChaCha8Rng, count: usize, bytes: usize) -> Self {
        let mut starts = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let start = end + GUARD_BYTES + rng.next_u32() as usize % 64;
            starts.push(start);
            end = start + bytes;
        }
        let mut buffer = vec![0; end + GUARD_BYTES];
        rng.fill_bytes(&mut buffer);
        Self { buffer, starts, bytes }
    }

    pub fn slices(&self) -> Vec<&[u8]> {
        self.starts.iter().map(|&start| &self.buffer[start..start + self.bytes]).collect()
    }

    pub fn slices_mut(&mut self) -> Vec<&mut [u8]> {
        let mut slices = Vec::with_capacity(self.starts.len());
        let (mut rest, mut consumed) = (self.buffer.as_mut_slice(), 0);
        for &start in &self.starts {
            let (slice, behind) = rest[start - consumed..].split_at_mut(self.bytes);
            slices.push(slice);
            (rest, consumed) = (behind, start + self.bytes);
        }
        slices
    }
}

/// Random coefficients, a quarter of them 0 and a quarter 1.
pub fn coefficients(rng: &mut ChaCha8Rng, count: usize) -> Vec<u8> {
    let choose = |_| match rng.next_u32() {
        random if random >> 30 < 2 => (random >> 30) as u8,
        random => random as u8,
    };
    (0..count).map(choose).collect()
}
