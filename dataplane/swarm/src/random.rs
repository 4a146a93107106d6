//! Random numbers: unpredictable ones for sessions and cookies, and the coefficients that a seed in
//! a packet stands for.

use blake3::{Hasher, OutputReader};

/// A generator of unpredictable bytes, seeded once.
pub(crate) struct Random {
    reader: OutputReader,
}

impl Random {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Self { reader: Hasher::new_keyed(seed).finalize_xof() }
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.reader.fill(bytes);
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    pub(crate) fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }
}

/// Writes the coding vector of a seed: SplitMix64, eight coefficients of GF(2^8) from each output,
/// least significant byte first. This is a part of the wire format.
pub(crate) fn expand(seed: u64, vector: &mut [u8]) {
    let mut state = seed;
    for chunk in vector.chunks_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        chunk.copy_from_slice(&(word ^ (word >> 31)).to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn vector_of_a_seed_is_that_of_splitmix64() {
        // The first two outputs for the seed 1234567, from the public test vector of SplitMix64.
        let mut vector = [0; 12];
        expand(1_234_567, &mut vector);
        assert_eq!(vector[..8], 6_457_827_717_110_365_317_u64.to_le_bytes());
        assert_eq!(vector[8..], 3_203_168_211_198_807_973_u64.to_le_bytes()[..4]);
    }
}
